/* A message of a source, its metadata, and the buffer that receives its payload. */
#ifndef MQ_SOURCES_MESSAGE_H
#define MQ_SOURCES_MESSAGE_H

#include "base/layout.h"

/* maximum number of attempts to copy a message if publishers overwrite each message during the copy. After the last
 * attempt, the caller continues with other sources */
enum { MQ_SOURCE_COPY_TRIES = 64 };

/* The buffer for a payload. */
typedef struct {
    uint8_t *data;
    uint64_t bytes;
    uint64_t skip; /* offset of the first payload byte to copy */
    /* If true, copy the whole payload from offset 0. If the whole payload does not fit, leave the message. If false,
     * take the message, and copy only `bytes` bytes from offset `skip`, if the payload contains them all. */
    bool all_or_nothing;
} mq_source_buffer;

typedef struct {
    uint64_t size;     /* bytes of the payload */
    uint64_t sequence; /* number of the message. `era` and `counted` describe the numbering */
    uint64_t era;      /* changes when the numbering restarts */
    /* If true, publishers count messages, and a gap in the numbers is a loss. If false, the source, or the writers of
     * an element, number the messages. */
    bool counted;
    bool stamped;       /* the endpoint has stamps. The payload does not include the stamps */
    bool has_part;      /* the requested part of the payload was copied. Never true for vectors and boards */
    uint32_t origin_id; /* number of the publisher (channels) or index of the key (boards); 0 for other endpoints */
    int64_t publish_time, origin_time; /* nanoseconds by the host's clock; 0: unknown */
} mq_source_message;

typedef enum {
    MQ_SOURCE_OK,
    MQ_SOURCE_EMPTY,
    MQ_SOURCE_FULL, /* the next message has `size` bytes and does not fit */
    /* the message is in a pool that is not mapped. The caller must map the pool, or skip the message */
    MQ_SOURCE_UNMAPPED,
    MQ_SOURCE_NEW_SCHEMA, /* the next message has another schema than the schema that was read last */
    MQ_SOURCE_CORRUPT,    /* the data is invalid, or another program truncated the file */
} mq_source_status;

/* Copy the requested part of a payload of `size` bytes, or the whole payload. The caller checked that a whole payload
 * fits. Returns false if the payload does not contain the part. */
static inline __attribute__((always_inline)) bool mq_source_buffer_copy_payload(const mq_source_buffer *buffer,
                                                                                const uint8_t *payload, uint64_t size) {
    if (mq_likely(buffer->all_or_nothing)) {
        mq_copy_from_shared(buffer->data, payload, size);
        return true;
    }
    if (!buffer->bytes || size < buffer->bytes || buffer->skip > size - buffer->bytes)
        return false;
    mq_copy_from_shared(buffer->data, payload + buffer->skip, buffer->bytes);
    return true;
}

#endif
