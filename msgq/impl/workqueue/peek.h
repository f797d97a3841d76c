/* Copies of waiting messages. The functions here do not take messages. The file may be mapped read-only. Loaded values
 * are not trusted: a check bounds each loop, index and copy.
 *
 * A copy belongs to one message if the slot had the same READY word and sent time before and after the copy. The READY
 * word alone is not sufficient. If a sender stops between READY and `ready_count`, the next sender may get an equal
 * word, perhaps in the same slot.
 *   `Read`: load the word, the sent time, and the word again. The sent time then belongs to the word.
 *   `Copy`: copy the header and the payload.
 *   `Validate`: check that the word and the sent time are unchanged.
 */
#ifndef MQ_WORKQUEUE_PEEK_H
#define MQ_WORKQUEUE_PEEK_H

#include "workqueue/slot_state.h"

/* A waiting message. */
typedef struct {
    uint64_t slot;
    uint64_t word; /* READY */
    uint64_t length;
    uint64_t deliveries;
    uint64_t sent_time;
    uint64_t origin_time;
} mq_queue_pending_message;

/* True if the message is unchanged. Bytes copied before this call then belong to the message. */
static inline bool mq_peek_message_is_unchanged(const mq_queue_file_parts *parts,
                                                const mq_queue_pending_message *message) {
    /* acquire: the copy is loaded before the word. Partner: the exchanges of mq_queue_claim_free_slot */
    mq_fence_acquire();
    /* EDGE message: acquire. Partner: mq_queue_commit_message. If weaker: an equal word of the next message is seen
     * with the sent time of this one, and a torn copy passes. */
    if (mq_load_acquire_u64(&parts->slot_states[message->slot]) != message->word)
        return false;
    /* relaxed: acquired with the word */
    return mq_load_relaxed_u64(&parts->slot_headers[message->slot].sent_time) == message->sent_time;
}

/* Read the message in a slot, without its payload. Returns false if no message waits in the slot, or if the message
 * is invalid. */
static inline bool mq_peek_read_slot(const mq_queue_file_parts *parts, uint64_t slot,
                                     mq_queue_pending_message *message) {
    const mq_queue_slot_header *header = &parts->slot_headers[slot];
    /* EDGE message: acquire. Partner: mq_queue_commit_message. If weaker: the header is that of the previous
     * message. */
    *message = (mq_queue_pending_message){.slot = slot, .word = mq_load_acquire_u64(&parts->slot_states[slot])};
    if (!mq_slot_state_is_ready(message->word))
        return false;
    message->sent_time = mq_load_relaxed_u64(&header->sent_time); /* relaxed, all: validated below */
    message->length = mq_load_relaxed_u64(&header->length);
    message->deliveries = mq_load_relaxed_u64(&header->deliveries);
    message->origin_time = mq_load_relaxed_u64(&header->origin_time);
    return mq_peek_message_is_unchanged(parts, message) && message->length <= parts->max_message_size;
}

/* Copy the message's payload, message->length bytes, into `payload`. Returns false if the message left the slot. The
 * copy may then be torn. */
static inline bool mq_peek_copy_payload(const mq_queue_file_parts *parts, const mq_queue_pending_message *message,
                                        uint8_t *payload) {
    mq_copy_from_shared(payload, parts->payloads + message->slot * parts->stride, message->length);
    return mq_peek_message_is_unchanged(parts, message);
}

/* ---- return each message only once ---- */

/* The last message that the reader saw in a slot. */
typedef struct {
    uint64_t word, sent_time;
} mq_queue_seen_message;

/* True if the reader saw this message in this slot before. A message that was taken and returned counts as the same
 * message. */
static inline bool mq_peek_message_was_seen(const mq_queue_seen_message *seen,
                                            const mq_queue_pending_message *message) {
    return seen[message->slot].word == message->word && seen[message->slot].sent_time == message->sent_time;
}

static inline void mq_peek_mark_message_seen(mq_queue_seen_message *seen, const mq_queue_pending_message *message) {
    seen[message->slot] = (mq_queue_seen_message){.word = message->word, .sent_time = message->sent_time};
}

/* Return the number of messages sent by all handles. */
static inline uint64_t mq_queue_sum_sent_counts(const mq_queue *queue) {
    uint64_t sent = 0;
    for (unsigned row = 0; row < MQ_QUEUE_ROWS; row++)
        sent += mq_load_relaxed_u64(&queue->rows[row].counts.sent); /* relaxed: a counter for people */
    return sent;
}

#endif
