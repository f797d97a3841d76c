/* A channel's file: opened, made, locked, agreed on, cleaned; as in impl/channel/channelfile.pxi. */
#ifndef MQC_CHANNELFILE_H
#define MQC_CHANNELFILE_H

#include "c/file.h"
#include "channel/header.h"
#include "channel/subscriber.h"
#include "msgq/channel.h"

typedef struct {
    mqc_endpoint endpoint;
    mqc_mapped_file segment;
    mq_channel_header *header;
    void *liveness_token; /* says that the channel is open here */
    char node[MQ_NODE_NAME_BYTES];
    uint64_t capacity; /* for a channel of which nobody has said it */
    int generation;
} mqc_channel_file;

/* What is to be opened: a channel as a program names it, or one that goes with another endpoint, for the same users. */
MQC_HIDDEN int mqc_channel_file_init(mqc_channel_file *file, const char *name, const msgq_channel_options *options);
MQC_HIDDEN int mqc_channel_file_init_beside(mqc_channel_file *file, const char *name, const mqc_endpoint *beside,
                                            mode_t mode, uint64_t capacity);
/* Open the channel or make it, and agree on what is asked for; `publishes`: all that nobody has said gets its
 * default. */
MQC_HIDDEN int mqc_channel_file_open(mqc_channel_file *file, const msgq_channel_options *options, bool publishes);
MQC_HIDDEN void mqc_channel_file_close(mqc_channel_file *file);
/* Hold off all who join; returns what mqc_unlock_file takes. Not patient: -EWOULDBLOCK, if somebody has it. */
MQC_HIDDEN int mqc_channel_file_lock(const mqc_channel_file *file, bool patient);
/* Where the pool of a publisher is. */
MQC_HIDDEN void mqc_pool_path(const mqc_channel_file *file, uint64_t uid, char *path);
/* Remove the pools of the dead, under the lock: those that nobody can reach, and the oldest if more than `most` are
 * left. Returns how many are. */
MQC_HIDDEN int mqc_remove_dead_pools(mqc_channel_file *file, int most);

enum { MQC_KEPT_DEAD_POOLS = 8, MQC_CHANNEL_NAME_MAX = 229 };

/* ---- publishers for other units ---- */

/* Publish on a channel that was begun, which the publisher has from now on; after an error nobody has it. */
MQC_HIDDEN int mqc_publisher_open(msgq_channel_publisher **publisher, const mqc_channel_file *begun,
                                  const msgq_channel_options *options);
/* Publish a head and what follows it as one message, with this origin, in a slot as they are. Waits for nothing. */
MQC_HIDDEN int mqc_publisher_send(msgq_channel_publisher *publisher, const void *head, size_t head_size,
                                  const void *data, size_t size, int64_t origin_time);

#endif
