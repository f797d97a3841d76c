/* A message of a source, its metadata, and the buffer that receives its payload. */
#ifndef MQ_SOURCES_MESSAGE_H
#define MQ_SOURCES_MESSAGE_H

#include "base/layout.h"

enum {
    MQ_SOURCE_COPY_TRIES = 64
}; /* attempts to copy messages that are overwritten during the copy; then other sources have their turn */

/* The buffer for a payload. */
typedef struct {
    uint8_t *data;
    uint64_t bytes;
    uint64_t skip; /* offset of the first payload byte to copy */
    /* true: copy the whole payload from offset 0, or leave the message. false: copy as much as fits */
    bool all_or_nothing;
} mq_source_buffer;

typedef struct {
    uint64_t size;     /* bytes of the payload */
    uint64_t sequence; /* number of the message; the next fields describe it: */
    uint64_t era;      /* changes when the numbering restarts */
    /* true: publishers count messages, so a gap is a loss. false: numbered by the source, or by an element's writers */
    bool counted;
    bool stamped;                      /* the endpoint has stamps, which are not in the payload */
    uint32_t origin_id;                /* publisher or key, for endpoints with several; else 0 */
    int64_t publish_time, origin_time; /* nanoseconds by the host's clock; 0: unknown */
} mq_source_message;

typedef enum {
    MQ_SOURCE_OK,
    MQ_SOURCE_EMPTY,
    MQ_SOURCE_FULL,     /* the next message has `size` bytes and does not fit */
    MQ_SOURCE_UNMAPPED, /* a channel's message is in an unmapped pool: map the pool, or skip the message */
    MQ_SOURCE_CORRUPT,  /* invalid data, or another program truncated the file */
} mq_source_status;

/* Copy the requested part of a payload of `size` bytes. The caller checked that a whole payload fits. */
static inline void mq_source_buffer_copy_payload(const mq_source_buffer *room, const uint8_t *payload, uint64_t size) {
    if (mq_likely(room->all_or_nothing))
        mq_copy_from_shared(room->data, payload, size);
    else if (room->skip < size)
        mq_copy_from_shared(room->data, payload + room->skip,
                            size - room->skip < room->bytes ? size - room->skip : room->bytes);
}

#endif
