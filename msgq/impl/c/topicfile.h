/* Both files of a topic: open them, and wait for their lock. The steps are in ring/topic_open.h. */
#ifndef MQC_TOPICFILE_H
#define MQC_TOPICFILE_H

#include "c/file.h"
#include "msgq/topic.h"
#include "ring/topic_open.h"

/* Both files of a topic. Do not move this struct in memory, because `liveness_file` points into the struct. */
typedef struct {
    mqc_endpoint endpoint;
    mq_topic_files files;
    mq_liveness_file liveness_file; /* the side segment, which has the rows' locks */
    uint32_t asked;                 /* segment_size that the program requested */
    char ring_path[MQC_PATH], side_path[MQC_PATH];
} mqc_topic_files;

/* Open or create both files, and lock the topic. */
MQC_HIDDEN int mqc_topic_files_open(mqc_topic_files **topic, const char *name, const msgq_topic_options *options);
/* Open both files of an inherited topic again in a forked child, and lock the topic. Close the inherited topic after
 * its last use. */
MQC_HIDDEN int mqc_topic_files_reopen_in_child(mqc_topic_files **topic, const mqc_topic_files *former);
/* Map the ring again if its file has grown. Returns 1 if the ring has a new mapping, and 0 if the file has not grown. */
MQC_HIDDEN int mqc_topic_files_remap(mqc_topic_files *t);
/* Unlock and unmap both files, and free the memory. `t` may be NULL. */
MQC_HIDDEN void mqc_topic_files_close(mqc_topic_files *t);
/* Return the error for a publisher or subscriber that cannot start. */
MQC_HIDDEN int mqc_topic_start_error(const mqc_topic_files *t);
/* Return the error for a truncated file. */
MQC_HIDDEN int mqc_topic_truncation_error(const mqc_topic_files *t);

#endif
