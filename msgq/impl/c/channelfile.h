/* A channel's file: open, create, lock, configure, clean up. The steps are in channel/join.h. */
#ifndef MQC_CHANNELFILE_H
#define MQC_CHANNELFILE_H

#include "c/file.h"
#include "channel/join.h"
#include "msgq/channel.h"

typedef struct {
    mqc_endpoint endpoint;
    mqc_mapped_file segment;
    mq_channel_header *header;
    char node[MQ_NODE_NAME_BYTES];
    char pool_prefix[MQC_PATH]; /* path of a pool without its uid */
    uint64_t capacity;          /* default capacity, used if the channel has no capacity yet */
    int generation;
} mqc_channel_file;

/* Prepare to open a channel by its name. mqc_channel_file_init_beside prepares a channel that belongs to the endpoint
 * `beside` and has the same trusted users. */
MQC_HIDDEN int mqc_channel_file_init(mqc_channel_file *file, const char *name, const msgq_channel_options *options);
MQC_HIDDEN int mqc_channel_file_init_beside(mqc_channel_file *file, const char *name, const mqc_endpoint *beside,
                                            mode_t mode, uint64_t capacity);
/* Open or create the channel, take its join lock, and check the requested configuration against the existing
 * configuration. If `publishes`, missing fields get their defaults. Returns with the join lock held. The caller takes a
 * row and then unlocks, because another process could remove a channel without rows. */
MQC_HIDDEN int mqc_channel_file_open(mqc_channel_file *file, const msgq_channel_options *options, bool publishes,
                                     mq_file_lock *lock);
MQC_HIDDEN void mqc_channel_file_close(mqc_channel_file *file);
/* Take the join lock (mqc_lock_mapped_file), and check that the channel still exists. */
MQC_HIDDEN int mqc_channel_file_lock(const mqc_channel_file *file, bool patient, mq_file_lock *lock);
/* Describe the open channel for the steps of channel/join.h. */
MQC_HIDDEN mq_channel_files mqc_channel_files(const mqc_channel_file *file);

enum { MQC_CHANNEL_NAME_MAX = 229 };

/* ---- publishers for other units ---- */

/* Open a publisher on a prepared channel file. The publisher becomes the owner of the file. After an error, the file is
 * closed. */
MQC_HIDDEN int mqc_publisher_open(msgq_channel_publisher **publisher, const mqc_channel_file *begun,
                                  const msgq_channel_options *options);
/* Publish a header and its payload as one message with this origin time. The message must fit into a slot. The call
 * never waits. */
MQC_HIDDEN int mqc_publisher_send(msgq_channel_publisher *publisher, const void *head, size_t head_size,
                                  const void *data, size_t size, int64_t origin_time);

#endif
