/* Messages that wait, copied by those who take none of them, and who may have the file for reading only. Nothing that is read
 * is believed: it bounds no loop, no index and no copy that a check does not bound.
 *
 * A copy is of one message if its place had the same READY word before and after. The word alone is not enough: a sender that
 * is stopped between READY and `ready` lets the next one get an equal word, perhaps in the same place. So the time of sending
 * is looked at as well, on both sides.
 *
 *   look    word, time of sending, word again: this time belongs to this word
 *   copy    head and payload
 *   stands  word and time of sending are what they were
 */
#ifndef MQ_WORKQUEUE_PEEK_H
#define MQ_WORKQUEUE_PEEK_H

#include "workqueue/words.h"

/* A message that waits. */
typedef struct {
    uint64_t place;
    uint64_t word; /* READY */
    uint64_t length;
    uint64_t deliveries;
    uint64_t sent_time;
    uint64_t origin_time;
} mq_queue_waiting;

/* Is it there as it was? What was copied before is of this message then. */
static inline bool mq_peek_stands(const mq_queue_parts *parts, const mq_queue_waiting *it) {
    mq_fence_acquire(); /* what was copied is loaded before the word; partner: the exchanges of mq_queue_hold */
    /* EDGE message: acquire. Partner: mq_queue_commit. If weaker: an equal word of the next message goes with the time of
     * this one, and half of each passes for a whole. */
    if (mq_load_acquire_u64(&parts->words[it->place]) != it->word)
        return false;
    /* relaxed: acquired with the word */
    return mq_load_relaxed_u64(&parts->heads[it->place].sent_time) == it->sent_time;
}

/* Look into a place. False: no message waits there, or it makes no sense. The payload is still to be copied. */
static inline bool mq_peek_look(const mq_queue_parts *parts, uint64_t place, mq_queue_waiting *it) {
    const mq_queue_head *head = &parts->heads[place];
    /* EDGE message: acquire. Partner: mq_queue_commit. If weaker: the head is that of the message before. */
    *it = (mq_queue_waiting){.place = place, .word = mq_load_acquire_u64(&parts->words[place])};
    if (!mq_word_is_ready(it->word))
        return false;
    it->sent_time = mq_load_relaxed_u64(&head->sent_time); /* relaxed, all: looked at again */
    it->length = mq_load_relaxed_u64(&head->length);
    it->deliveries = mq_load_relaxed_u64(&head->deliveries);
    it->origin_time = mq_load_relaxed_u64(&head->origin_time);
    return mq_peek_stands(parts, it) && it->length <= parts->max_message_size;
}

/* Copy the payload of a message that was looked at into `room`, of its length. False: it is gone, and half of another may be
 * there. */
static inline bool mq_peek_copy(const mq_queue_parts *parts, const mq_queue_waiting *it, uint8_t *room) {
    mq_copy_out(room, parts->payloads + it->place * parts->stride, it->length);
    return mq_peek_stands(parts, it);
}

/* ---- each message once ---- */

/* What somebody knows of a place: the message that was in it last. */
typedef struct {
    uint64_t word, sent_time;
} mq_queue_known;

/* Is it the message that was known of this place? One that was taken and came back is the same. */
static inline bool mq_peek_is_known(const mq_queue_known *known, const mq_queue_waiting *it) {
    return known[it->place].word == it->word && known[it->place].sent_time == it->sent_time;
}

static inline void mq_peek_remember(mq_queue_known *known, const mq_queue_waiting *it) {
    known[it->place] = (mq_queue_known){.word = it->word, .sent_time = it->sent_time};
}

/* Messages that were sent so far, by all handles. */
static inline uint64_t mq_peek_sent(const mq_queue *queue) {
    uint64_t sent = 0;
    for (unsigned row = 0; row < MQ_QUEUE_ROWS; row++)
        sent += mq_load_relaxed_u64(&queue->rows[row].counts.sent); /* relaxed: a figure for people */
    return sent;
}

#endif
