/* The source for types of endpoint whose messages only Python can read. Python polls the endpoint for batches of
 * messages. */
#ifndef MQ_SOURCES_POLLED_H
#define MQ_SOURCES_POLLED_H

#include "sources/message.h"

typedef struct {
    const uint8_t *payloads;      /* payloads of a batch, one after the other */
    const uint64_t *payload_ends; /* for each payload, the offset in `payloads` at which the payload ends */
    const int64_t *publish_times; /* nanoseconds by the host's clock; 0: unknown */
    uint64_t count, next;         /* number of messages in the batch; index of the next message */
    uint64_t taken;               /* number of messages taken from all batches */
} mq_polled_source;

static inline bool mq_polled_source_has_pending(const mq_polled_source *p) { return p->next < p->count; }

static inline mq_source_status mq_polled_source_take_message(mq_polled_source *p, const mq_source_buffer *buffer,
                                                             mq_source_message *message) {
    if (!mq_polled_source_has_pending(p))
        return MQ_SOURCE_EMPTY;
    uint64_t begin = p->next ? p->payload_ends[p->next - 1] : 0, size = p->payload_ends[p->next] - begin;
    message->size = size;
    if (buffer->all_or_nothing && size > buffer->bytes)
        return MQ_SOURCE_FULL;
    bool has_part = mq_source_buffer_copy_payload(buffer, p->payloads + begin, size);
    *message = (mq_source_message){.size = size,
                                   .sequence = p->taken++,
                                   .counted = true,
                                   .has_part = has_part,
                                   .publish_time = p->publish_times[p->next]};
    p->next++;
    return MQ_SOURCE_OK;
}

#endif
