/* Both files of a topic: open, create, check, map. */
#ifndef MQC_TOPICFILE_H
#define MQC_TOPICFILE_H

#include "c/file.h"
#include "msgq/topic.h"
#include "ring/topic_files.h"

/* Both files of a topic. */
typedef struct {
    mqc_endpoint endpoint;
    mqc_mapped_file ring, side;
    mq_canary canary;
    uint32_t data_bytes;
    uint32_t asked; /* segment_size that the program requested */
    int lock;       /* descriptor of the ring's file, which holds the topic's lock; -1: the topic is not locked */
} mqc_topic_files;

/* Open or create both files, and lock the topic. */
MQC_HIDDEN int mqc_topic_files_open(mqc_topic_files **topic, const char *name, const msgq_topic_options *options);
/* Open both files of an inherited topic again in a forked child, and lock the topic. Close the inherited topic after
 * its last use. */
MQC_HIDDEN int mqc_topic_files_reopen_in_child(mqc_topic_files **topic, const mqc_topic_files *former);
/* Map the ring again if its file has grown. Returns 1 if the ring has a new mapping, and 0 if the file has not grown. */
MQC_HIDDEN int mqc_topic_files_remap(mqc_topic_files *t);
MQC_HIDDEN void mqc_topic_files_unlock(mqc_topic_files *t);
/* Unlock and unmap both files, and free the memory. `t` may be NULL. */
MQC_HIDDEN void mqc_topic_files_close(mqc_topic_files *t);
/* Return the error for a publisher or subscriber that cannot start. */
MQC_HIDDEN int mqc_topic_start_error(const mqc_topic_files *t);
/* Return the error for a truncated file. */
MQC_HIDDEN int mqc_topic_truncation_error(const mqc_topic_files *t);

static inline mq_ring_header *mqc_topic_ring_header(const mqc_topic_files *t) {
    return (mq_ring_header *)(void *)t->ring.address;
}
static inline mq_ring_side *mqc_topic_side_header(const mqc_topic_files *t) {
    return (mq_ring_side *)(void *)t->side.address;
}

#endif
