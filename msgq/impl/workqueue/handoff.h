/* Waiting calls are served in the order in which they began to wait, and barging is bounded. A call barges if it takes
 * a message before an older waiting call that was woken for the message.
 *   `ticket`: the position of a waiting call in the order of waiting. A call draws one ticket, and keeps the ticket
 *   until the call returns.
 *   `oldest_ticket`: the smallest ticket of a row's calls. A wake goes to the row with the smallest `oldest_ticket`
 *   (handle.h).
 *   `handoff_ticket`: the smallest ticket of the calls that were overtaken MQ_QUEUE_OVERTAKEN_MAX times. 0: none. Calls
 *   with larger tickets, and calls without a ticket, leave messages (for senders: free slots) to the call with this
 *   ticket.
 *
 * Linux's mutexes and rwsems have handoffs for the same purpose. Tickets decide which row is woken, but a call that
 * never sleeps can still barge. A handoff stops such calls. Only a call that loaded `handoff_ticket` before the handoff
 * can still barge, once.
 *   `Request the handoff`: after the announcement, set handoff_ticket = ticket if handoff_ticket is 0 or larger. Then
 *   scan before the sleep.
 *   `Yield`: if a message is there and `handoff_ticket` is smaller than the call's ticket, leave the message there, and
 *   sleep.
 *   `End the handoff`: if handoff_ticket = ticket, set handoff_ticket = 0. Then wake a row for each message, because a
 *   call that yields consumes a wake.
 *
 * Either the waker sees the bit of a sleeper, or the sleeper's scan sees that the handoff has ended (EDGE sleeper-bit).
 * An older call may take over the handoff of another call. The older call then ends the handoff for both calls.
 *   `The owner was killed`: the next recovery ends the handoff, if the row shows this ticket.
 *   `The owner is stopped, or not found`: a handle ends the handoff after it has yielded for MQ_QUEUE_HANDOFF_NS, or
 *   has found a message at two recoveries.
 *   `A process was killed before the wake`: sleepers scan once a second, and a notification is pending.
 */
#ifndef MQ_WORKQUEUE_HANDOFF_H
#define MQ_WORKQUEUE_HANDOFF_H

#include "workqueue/scan.h"

enum {
    MQ_QUEUE_OVERTAKEN_MAX = 2,     /* number of times that a call is overtaken before it requests a handoff */
    MQ_QUEUE_HANDOFF_NS = 10000000, /* a handoff ends if its owner leaves a message in the queue for this time */
};
#define MQ_NO_TICKET UINT64_MAX /* ticket of a call that has not waited yet */

/* Call this when a receiver stops waiting. Senders that relied on this receiver sent no notification. Therefore send
 * the notification now. */
static inline void mq_queue_notify_if_not_empty(const mq_queue_file_parts *parts) {
    if (!mq_queue_any_row_bit_is_set(&parts->queue->notify_requested))
        return;
    /* EDGE empty-notify: sequentially consistent. A message was taken, then the others are loaded. Partner:
     * mq_queue_commit_and_notify, which may have seen that message. If weaker: as there. */
    mq_fence_seq_cst();
    if (mq_queue_has_ready_message(parts))
        mq_queue_notify_not_empty(parts->queue);
}

/* ---- handoffs ---- */

/* Request the handoff for `ticket`, unless a call with a smaller ticket has the handoff. */
static inline void mq_queue_request_handoff(const mq_queue_handle *h, mq_queue_role role, uint64_t ticket) {
    mq_u64 *handoff = &h->parts.queue->handoff_ticket[role];
    for (unsigned tries = 0; tries < MQ_EVENTCOUNT_TRIES; tries++) {
        uint64_t owner = mq_load_acquire_u64(handoff);
        if ((owner && owner <= ticket) || mq_compare_exchange_u64(handoff, owner, ticket))
            return;
    }
}

/* If `ticket` has the handoff, end the handoff and notify. A call that yielded sent no notification for the message
 * that it left. A process that receives after a notification may also have yielded. Until this notification is sent,
 * `row` has a pending notification. */
static inline void mq_queue_end_handoff(const mq_queue_file_parts *parts, mq_queue_row *row, mq_queue_role role,
                                        uint64_t ticket) {
    mq_queue_add_notify_debt(row, 1);
    if (mq_compare_exchange_u64(&parts->queue->handoff_ticket[role], ticket, 0)) {
        /* EDGE sleeper-bit: sequentially consistent. The handoff has ended, then words and bits are loaded. Partner:
         * mq_queue_set_row_bit. */
        mq_fence_seq_cst();
        mq_queue_wake_rows(parts->queue, role, mq_queue_count_available(parts, role));
        if (role == MQ_QUEUE_RECEIVER)
            mq_queue_notify_if_not_empty(parts);
    }
    mq_queue_clear_notify_debt(row, 1);
}

/* Yield to a call with a smaller ticket. Returns false if the other call left a message in the queue for
 * MQ_QUEUE_HANDOFF_NS. The handoff of the other call has then ended. */
static inline bool mq_queue_yield_to_handoff(mq_queue_handle *h, mq_queue_role role, uint64_t ticket) {
    mq_queue_handoff_yield *yields = &h->yields[role];
    if (!mq_queue_has_message_or_slot(&h->parts, role)) {
        yields->ticket = 0;
        return true;
    }
    int64_t now = mq_read_time_ns(h->virtual_ns);
    if (yields->ticket != ticket)
        *yields = (mq_queue_handoff_yield){.ticket = ticket, .until_ns = now + MQ_QUEUE_HANDOFF_NS};
    if (now < yields->until_ns)
        return true;
    mq_queue_end_handoff(&h->parts, h->own_row, role, ticket);
    return false;
}

/* True if a call with this ticket must leave a message (or a free slot) to a call with a smaller ticket. */
static inline bool mq_queue_must_yield_to_handoff(mq_queue_handle *h, mq_queue_role role, uint64_t ticket) {
    uint64_t handoff = mq_load_seq_cst_u64(&h->parts.queue->handoff_ticket[role]);
    return mq_unlikely(handoff != 0) && handoff < ticket && mq_queue_yield_to_handoff(h, role, handoff);
}

/* ---- waiting calls ---- */

typedef struct {
    mq_queue_role role;
    bool takes; /* false: the call only watches, and neither yields nor requests a handoff */
    uint64_t ticket;
    uint32_t expected;  /* eventcount in the last sleep. 0: the call has not slept, or the wake is counted */
    uint32_t overtaken; /* wakes without result, plus messages that the call saw and other calls took */
} mq_queue_waiting_call;

static inline mq_queue_waiting_call mq_queue_wait_begin(const mq_queue_handle *h, mq_queue_role role, bool takes) {
    return (mq_queue_waiting_call){
        .role = role, .takes = takes, .ticket = mq_fetch_add_u64(&h->parts.queue->last_ticket, 1) + 1};
}

/* Count a message that another call took, although this call saw the message or was woken for the message. */
static inline void mq_queue_wait_count_overtake(mq_queue_waiting_call *wait) {
    wait->overtaken++;
    wait->expected = 0;
}

/* As mq_queue_prepare_sleep. `oldest` is the smallest ticket of the row. */
static inline uint32_t mq_queue_wait_prepare_sleep(const mq_queue_handle *h, mq_queue_waiting_call *wait,
                                                   uint64_t oldest) {
    uint32_t now = mq_load_acquire_u32(mq_queue_get_eventcount(h, wait->role));
    if (wait->expected && (now ^ wait->expected) & ~(uint32_t)MQ_EVENTCOUNT_FLAGS)
        mq_queue_wait_count_overtake(wait);
    wait->expected = mq_queue_prepare_sleep(h, wait->role, oldest);
    if (wait->takes && wait->overtaken >= MQ_QUEUE_OVERTAKEN_MAX)
        /* The call shows its ticket in the row before the call requests the handoff. Other processes can then end the
         * handoff of a dead row. */
        mq_queue_request_handoff(h, wait->role, wait->ticket);
    return wait->expected;
}

/* True if this call may take a message (or a free slot). */
static inline bool mq_queue_wait_is_over(mq_queue_handle *h, const mq_queue_waiting_call *wait) {
    return (wait->role == MQ_QUEUE_SENDER ? mq_queue_has_free_slot(&h->parts) : mq_queue_search_message(h)) &&
           !(wait->takes && mq_queue_must_yield_to_handoff(h, wait->role, wait->ticket));
}

/* Return the maximum time of the next sleep. The result is `max_sleep_ns`, or less while this call yields, because a
 * handoff may end without a wake. */
static inline int64_t mq_queue_wait_limit_sleep_ns(const mq_queue_handle *h, const mq_queue_waiting_call *wait,
                                                   int64_t max_sleep_ns) {
    uint64_t handoff = mq_load_acquire_u64(&h->parts.queue->handoff_ticket[wait->role]);
    return handoff && handoff < wait->ticket && max_sleep_ns > MQ_QUEUE_HANDOFF_NS ? MQ_QUEUE_HANDOFF_NS : max_sleep_ns;
}

static inline void mq_queue_wait_end(const mq_queue_handle *h, const mq_queue_waiting_call *wait) {
    if (wait->takes && wait->overtaken >= MQ_QUEUE_OVERTAKEN_MAX)
        mq_queue_end_handoff(&h->parts, h->own_row, wait->role, wait->ticket);
}

#endif
