/* Messages that wait, copied by those who take none of them, and who may have the file for reading only. Nothing that is read
 * is believed: it bounds no loop, no index and no copy that a check does not bound.
 *
 * A copy is of one message if its slot had the same READY word before and after. The word alone is not enough: a sender that
 * is stopped between READY and `ready_count` lets the next one get an equal word, perhaps in the same slot. So the time of sending
 * is looked at as well, on both sides.
 *
 *   look    word, time of sending, word again: this time belongs to this word
 *   copy    header and payload
 *   stands  word and time of sending are what they were
 */
#ifndef MQ_WORKQUEUE_PEEK_H
#define MQ_WORKQUEUE_PEEK_H

#include "workqueue/slot_state.h"

/* A message that waits. */
typedef struct {
    uint64_t slot;
    uint64_t word; /* READY */
    uint64_t length;
    uint64_t deliveries;
    uint64_t sent_time;
    uint64_t origin_time;
} mq_queue_pending_message;

/* Is it there as it was? What was copied before is of this message then. */
static inline bool mq_peek_message_is_unchanged(const mq_queue_file_parts *parts,
                                                const mq_queue_pending_message *message) {
    mq_fence_acquire(); /* what was copied is loaded before the word; partner: the exchanges of mq_queue_claim_free_slot */
    /* EDGE message: acquire. Partner: mq_queue_commit_message. If weaker: an equal word of the next message goes with
     * the time of this one, and half of each passes for a whole. */
    if (mq_load_acquire_u64(&parts->slot_states[message->slot]) != message->word)
        return false;
    /* relaxed: acquired with the word */
    return mq_load_relaxed_u64(&parts->slot_headers[message->slot].sent_time) == message->sent_time;
}

/* Look into a slot. False: no message waits there, or it makes no sense. The payload is still to be copied. */
static inline bool mq_peek_read_slot(const mq_queue_file_parts *parts, uint64_t slot,
                                     mq_queue_pending_message *message) {
    const mq_queue_slot_header *header = &parts->slot_headers[slot];
    /* EDGE message: acquire. Partner: mq_queue_commit_message. If weaker: the header is that of the message before. */
    *message = (mq_queue_pending_message){.slot = slot, .word = mq_load_acquire_u64(&parts->slot_states[slot])};
    if (!mq_slot_state_is_ready(message->word))
        return false;
    message->sent_time = mq_load_relaxed_u64(&header->sent_time); /* relaxed, all: looked at again */
    message->length = mq_load_relaxed_u64(&header->length);
    message->deliveries = mq_load_relaxed_u64(&header->deliveries);
    message->origin_time = mq_load_relaxed_u64(&header->origin_time);
    return mq_peek_message_is_unchanged(parts, message) && message->length <= parts->max_message_size;
}

/* Copy the payload of a message that was looked at into `room`, of its length. False: it is gone, and half of another
 * may be there. */
static inline bool mq_peek_copy_payload(const mq_queue_file_parts *parts, const mq_queue_pending_message *message,
                                        uint8_t *room) {
    mq_copy_from_shared(room, parts->payloads + message->slot * parts->stride, message->length);
    return mq_peek_message_is_unchanged(parts, message);
}

/* ---- each message once ---- */

/* What somebody knows of a slot: the message that was in it last. */
typedef struct {
    uint64_t word, sent_time;
} mq_queue_seen_message;

/* Is it the message that was known of this slot? One that was taken and came back is the same. */
static inline bool mq_peek_message_was_seen(const mq_queue_seen_message *seen,
                                            const mq_queue_pending_message *message) {
    return seen[message->slot].word == message->word && seen[message->slot].sent_time == message->sent_time;
}

static inline void mq_peek_mark_message_seen(mq_queue_seen_message *seen, const mq_queue_pending_message *message) {
    seen[message->slot] = (mq_queue_seen_message){.word = message->word, .sent_time = message->sent_time};
}

/* Messages that were sent so far, by all handles. */
static inline uint64_t mq_queue_sum_sent_counts(const mq_queue *queue) {
    uint64_t sent = 0;
    for (unsigned row = 0; row < MQ_QUEUE_ROWS; row++)
        sent += mq_load_relaxed_u64(&queue->rows[row].counts.sent); /* relaxed: a figure for people */
    return sent;
}

#endif
