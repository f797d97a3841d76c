/* The source for a channel: a subscriber that has no row and maps all files read-only. */
#ifndef MQ_SOURCES_CHANNEL_H
#define MQ_SOURCES_CHANNEL_H

#include "channel/subscriber.h"
#include "sources/message.h"

typedef struct {
    mq_channel_subscriber subscriber;
    /* for each mapped pool, the word that is 1 until the pool is truncated */
    const mq_u64 *pool_not_truncated[MQ_CHANNEL_PUBLISHERS];
    uint32_t origin_ids[MQ_CHANNEL_PUBLISHERS]; /* for each row, the number of the publisher whose pool is mapped */
    mq_channel_message at; /* the last message found. After MQ_SOURCE_UNMAPPED, the message whose pool is not mapped */
} mq_channel_source;

static inline __attribute__((always_inline)) mq_source_status mq_channel_source_find_message(mq_channel_source *c) {
    mq_channel_status status = mq_channel_next_message(&c->subscriber, &c->at);
    if (mq_likely(status == MQ_CHANNEL_OK))
        return MQ_SOURCE_OK;
    if (mq_mapping_was_truncated(c->subscriber.not_truncated))
        return MQ_SOURCE_CORRUPT;
    return status == MQ_CHANNEL_EMPTY      ? MQ_SOURCE_EMPTY
           : status == MQ_CHANNEL_UNMAPPED ? MQ_SOURCE_UNMAPPED
                                           : MQ_SOURCE_CORRUPT;
}

static inline __attribute__((always_inline)) mq_source_status
mq_channel_source_take_message(mq_channel_source *c, const mq_source_buffer *buffer, mq_source_message *message) {
    mq_channel_message *m = &c->at;
    for (int tries = 0; tries < MQ_SOURCE_COPY_TRIES; tries++) {
        mq_source_status status = mq_channel_source_find_message(c);
        if (status != MQ_SOURCE_OK)
            return status;
        if (mq_unlikely(buffer->all_or_nothing && m->length > buffer->bytes)) {
            if (!mq_index_ring_entry_is_unchanged(&c->subscriber.order, m->position, m->entry))
                continue; /* the publisher reused the slot, so the length belongs to another message */
            message->size = m->length;
            return MQ_SOURCE_FULL;
        }
        bool has_part = mq_source_buffer_copy_payload(buffer, mq_pool_slot_payload(m->slot), m->length);
        if (mq_unlikely(mq_mapping_was_truncated(c->subscriber.not_truncated) ||
                        mq_mapping_was_truncated(c->pool_not_truncated[m->row])))
            return MQ_SOURCE_CORRUPT;
        if (mq_unlikely(!mq_channel_accept_entry(&c->subscriber, m)))
            continue;
        *message = (mq_source_message){.size = m->length,
                                       .sequence = m->position,
                                       .counted = true,
                                       .has_part = has_part,
                                       .origin_id = c->origin_ids[m->row],
                                       .publish_time = (int64_t)m->publish_time,
                                       .origin_time = (int64_t)m->origin_time};
        return MQ_SOURCE_OK;
    }
    /* publishers overwrite messages faster than this source copies, so the caller calls again */
    return MQ_SOURCE_EMPTY;
}

/* True if the index ring has an entry at the cursor. Also true for a retracted entry. */
static inline bool mq_channel_source_has_pending(const mq_channel_source *c) {
    const mq_channel_poll_state poll_state = {
        .header = c->subscriber.header, .cursor = &c->subscriber.cursor, .not_truncated = c->subscriber.not_truncated};
    return mq_channel_subscriber_is_readable(&poll_state);
}

/* Return the number of waiting messages. */
static inline uint64_t mq_channel_source_count_pending(const mq_channel_source *c) {
    mq_index_ring order;
    if (!mq_channel_load_index_ring(c->subscriber.header, &order))
        return 0;
    uint64_t cursor = mq_channel_load_cursor(&c->subscriber), tail = mq_index_ring_load_tail(&order);
    cursor = cursor ? cursor : order.capacity;
    return tail > cursor ? tail - cursor : 0;
}

/* Skip the waiting messages. Skipped messages count as lost. */
static inline void mq_channel_source_skip_pending(mq_channel_source *c) {
    uint64_t pending = mq_channel_source_count_pending(c);
    if (pending && (c->subscriber.order.capacity || mq_channel_subscriber_join(&c->subscriber, false)))
        mq_channel_skip_lost(&c->subscriber, mq_channel_load_cursor(&c->subscriber) + pending);
}

/* True if publishers could overwrite some waiting messages during a nap. */
static inline bool mq_channel_source_is_near_overrun(const mq_channel_source *c) {
    return c->subscriber.order.capacity && mq_channel_source_count_pending(c) > c->subscriber.order.capacity / 64;
}

#endif
