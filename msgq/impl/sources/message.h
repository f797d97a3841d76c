/* What a source gives: one message, and what is known of it; and the room that it is put into. */
#ifndef MQ_SOURCES_MESSAGE_H
#define MQ_SOURCES_MESSAGE_H

#include "base/layout.h"

enum {
    MQ_SOURCE_COPY_TRIES = 64
}; /* at messages that are overwritten while they are copied; then others have their turn */

/* Where a payload goes. */
typedef struct {
    uint8_t *data;
    uint64_t bytes;
    uint64_t skip; /* of the payload, the first byte that is wanted */
    bool
        all_or_nothing; /* all of it, from 0 on: a message without room is not taken. Else what of it there is room for */
} mq_source_buffer;

typedef struct {
    uint64_t size;      /* of the payload */
    uint64_t sequence;  /* its number among those of its numbering; what is known of that: */
    uint64_t era;       /* another one begins another numbering */
    bool counted;       /* by publishers, so that a gap is a loss; else by us, or by an element's writers */
    bool stamped;       /* its kind has stamps, which are not in the payload */
    uint32_t origin_id; /* whose it is, where an endpoint has several: a publisher's number, a key's; else 0 */
    int64_t publish_time, origin_time; /* host's clock, ns; 0: not known */
} mq_source_message;

typedef enum {
    MQ_SOURCE_OK,
    MQ_SOURCE_EMPTY,
    MQ_SOURCE_FULL,     /* there is a message, of `size` bytes, and no room for it */
    MQ_SOURCE_UNMAPPED, /* a channel has a message in a pool that is not mapped: map it, or pass the message over */
    MQ_SOURCE_CORRUPT,  /* its bytes make no sense, or others cut its file */
} mq_source_status;

/* Copy what is wanted of a payload of `size` bytes; a whole one was found to fit. */
static inline void mq_source_buffer_copy_payload(const mq_source_buffer *room, const uint8_t *payload, uint64_t size) {
    if (mq_likely(room->all_or_nothing))
        mq_copy_from_shared(room->data, payload, size);
    else if (room->skip < size)
        mq_copy_from_shared(room->data, payload + room->skip,
                            size - room->skip < room->bytes ? size - room->skip : room->bytes);
}

#endif
