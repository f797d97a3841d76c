/* Calls that wait are served in the order in which they began.
 *
 *   ticket   a call draws one before it sleeps for the first time, and keeps it until it ends. Tickets grow
 *   since    a row shows the ticket of its longest waiter; a wake goes to the smallest one (handle.h)
 *   turn     the ticket of a call that was woken without result MQ_QUEUE_VAIN times. Calls with a larger ticket, and calls
 *            without one, then leave messages (places, for senders) to that call
 *
 * Tickets alone are not enough: a call that never sleeps may take each message before the woken one runs. A turn bounds
 * that. While a call has the turn, calls with a larger ticket take nothing, except a call that loaded `turn` before. If
 * another call has the turn already, that protects all calls with smaller tickets, too.
 *
 *   take a turn   after the announcement: turn = ticket, if it is 0; then the look before the sleep
 *   yield         a message is there, and a turn with a smaller ticket: leave it there, and sleep
 *   end a turn    turn = 0; then wake as many rows as there are messages, because rows that yielded used up their wakes
 *
 * Either the owner's end sees the sleeper's bit, or the sleeper's look sees that the turn is over (EDGE asleep).
 *
 *   killed with a turn                      the next look for the dead ends it, if it is the ticket of the row
 *   stopped, or killed and none has looked  others yield for MQ_QUEUE_TURN_NS, then one of them ends the turn
 *   killed after the end, before the wake   sleepers look once a second
 */
#ifndef MQ_WORKQUEUE_TURN_H
#define MQ_WORKQUEUE_TURN_H

#include "workqueue/handle.h"

enum {
    MQ_QUEUE_VAIN = 2,           /* wakes without result, before a call takes a turn */
    MQ_QUEUE_TURN_NS = 10000000, /* a turn ends after this time if its owner leaves a message there */
};
#define MQ_NO_TICKET UINT64_MAX /* of calls that have not waited */

/* ---- looks at all words, without memory, for any thread ---- */

/* Is there anything to take? */
static inline bool mq_queue_has_ready(const mq_queue_parts *parts) {
    mq_load_acquire_u64(&parts->queue->ready); /* all that was counted is to be found */
    for (uint64_t i = 0; i < parts->max_messages; i++)
        if (mq_word_is_ready(mq_load_acquire_u64(&parts->words[i])))
            return true;
    return false;
}

/* Is there room? */
static inline bool mq_queue_has_free(const mq_queue_parts *parts) {
    for (uint64_t i = 0; i < parts->max_messages; i++)
        if (mq_load_acquire_u64(&parts->words[i]) == 0)
            return true;
    return false;
}

static inline bool mq_queue_has(const mq_queue_parts *parts, mq_queue_sleep kind) {
    return kind == MQ_SENDING ? mq_queue_has_free(parts) : mq_queue_has_ready(parts);
}

/* Messages, or free places. */
static inline int mq_queue_available(const mq_queue_parts *parts, mq_queue_sleep kind) {
    int count = 0;
    for (uint64_t i = 0; i < parts->max_messages; i++) {
        uint64_t word = mq_load_acquire_u64(&parts->words[i]);
        count += kind == MQ_SENDING ? word == 0 : mq_word_is_ready(word);
    }
    return count;
}

/* ---- turns ---- */

/* Take a turn, unless another call has it: while one has it, all calls that have waited for longer are served first. */
static inline void mq_queue_turn_take(const mq_queue_handle *h, mq_queue_sleep kind, uint64_t ticket) {
    mq_compare_exchange_u64(&h->parts.queue->turn[kind], 0, ticket);
}

/* End the turn of this ticket, if it has one. */
static inline void mq_queue_turn_end(const mq_queue_parts *parts, mq_queue_sleep kind, uint64_t ticket) {
    if (!mq_compare_exchange_u64(&parts->queue->turn[kind], ticket, 0))
        return;
    /* EDGE asleep: sequentially consistent. The turn is over, then words and bits are loaded. Partner: mq_queue_bit_on. */
    mq_fence_seq_cst();
    mq_queue_wake(parts->queue, kind, mq_queue_available(parts, kind));
}

/* A call with a smaller ticket has the turn. False: it left a message there for too long, and has it no more. */
static inline bool mq_queue_yield(mq_queue_handle *h, mq_queue_sleep kind, uint64_t turn) {
    mq_queue_patience *patience = &h->patience[kind];
    if (!mq_queue_has(&h->parts, kind)) {
        patience->turn = 0;
        return true;
    }
    int64_t now = mq_now_ns();
    if (patience->turn != turn)
        *patience = (mq_queue_patience){.turn = turn, .until_ns = now + MQ_QUEUE_TURN_NS};
    if (now < patience->until_ns)
        return true;
    mq_queue_turn_end(&h->parts, kind, turn);
    return false;
}

/* Must a call with this ticket leave what is there to another one? */
static inline bool mq_queue_must_yield(mq_queue_handle *h, mq_queue_sleep kind, uint64_t ticket) {
    uint64_t turn = mq_load_seq_cst_u64(&h->parts.queue->turn[kind]);
    return mq_unlikely(turn != 0) && turn < ticket && mq_queue_yield(h, kind, turn);
}

/* ---- a call that waits ---- */

typedef struct {
    mq_queue_sleep kind;
    bool takes; /* else it only looks, and never takes a turn */
    uint64_t ticket;
    uint32_t expected; /* attention in the last sleep; 0: it has not slept, or that sleep is counted */
    uint32_t vain;     /* wakes without result */
} mq_queue_wait;

static inline mq_queue_wait mq_queue_wait_begin(const mq_queue_handle *h, mq_queue_sleep kind, bool takes) {
    return (mq_queue_wait){.kind = kind, .takes = takes, .ticket = mq_fetch_add_u64(&h->parts.queue->tickets, 1) + 1};
}

/* It was woken, or had found something, and another call took that. */
static inline void mq_queue_wait_lost(mq_queue_wait *wait) {
    wait->vain++;
    wait->expected = 0;
}

/* As mq_queue_lie_down. `oldest`: the smallest ticket of the row. */
static inline uint32_t mq_queue_wait_lie_down(const mq_queue_handle *h, mq_queue_wait *wait, uint64_t oldest) {
    uint32_t now = mq_load_acquire_u32(mq_queue_sleep_word(h, wait->kind));
    if (wait->expected && (now ^ wait->expected) & ~(uint32_t)MQ_ATTENTION_FLAGS)
        mq_queue_wait_lost(wait);
    wait->expected = mq_queue_lie_down(h, wait->kind, oldest);
    if (wait->takes && wait->vain >= MQ_QUEUE_VAIN)
        mq_queue_turn_take(h, wait->kind, wait->ticket); /* behind its ticket, by which others end it for the dead */
    return wait->expected;
}

/* Is there something for it? */
static inline bool mq_queue_wait_is_over(mq_queue_handle *h, const mq_queue_wait *wait) {
    return mq_queue_has(&h->parts, wait->kind) && !(wait->takes && mq_queue_must_yield(h, wait->kind, wait->ticket));
}

/* How long it may sleep, of `nap_ns`, while a turn may end without a wake. */
static inline int64_t mq_queue_wait_nap(const mq_queue_handle *h, const mq_queue_wait *wait, int64_t nap_ns) {
    uint64_t turn = mq_load_acquire_u64(&h->parts.queue->turn[wait->kind]);
    return turn && turn < wait->ticket && nap_ns > MQ_QUEUE_TURN_NS ? MQ_QUEUE_TURN_NS : nap_ns;
}

static inline void mq_queue_wait_end(const mq_queue_handle *h, const mq_queue_wait *wait) {
    if (wait->takes && wait->vain >= MQ_QUEUE_VAIN)
        mq_queue_turn_end(&h->parts, wait->kind, wait->ticket);
}

#endif
