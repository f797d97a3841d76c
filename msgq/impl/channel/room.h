/* Room of a channel: messages that a publisher can publish without a loss.
 *
 * A publisher has room for n messages if the n next positions overwrite only messages that each subscriber with a row
 * has received, and if the publisher gets n slots without retracting other messages. A subscriber stores its cursor in
 * its row after it has validated a message (mq_channel_accept_entry), and wakes no publisher. A publisher without room
 * therefore loads the rows again and again. First it yields its core, and then it takes naps that become longer.
 *
 * Writers: each subscriber writes its row. The fields `unread_from` and `dead_subscribers` are private to the publisher.
 * A publisher that waits has announced nothing, so its death leaves no trace. A subscriber that dies leaves its row. The
 * publisher finds this death with a probe, and remembers the uid of the row.
 *
 * Cursors only increase, so subscribers never take room away. With several publishers, each publisher waits for room for
 * all messages that the publishers publish together until each of them waits again. Then no message is lost: consider
 * the last moment at which so many positions were free. No wait has ended since that moment, so each publisher has
 * published at most the messages of one wait.
 */
#ifndef MQ_CHANNEL_ROOM_H
#define MQ_CHANNEL_ROOM_H

#include <poll.h>
#include <sched.h>
#include <signal.h>

#include "channel/snapshot.h"

enum {
    MQ_ROOM_YIELDS = 4,
    MQ_ROOM_NAP_MIN_NS = 50000,
    MQ_ROOM_NAP_MAX_NS = 1000000,
    MQ_ROOM_FIRST_PROBE_NS = 2000000, /* a probe costs system calls, and most waits are shorter */
    MQ_ROOM_PROBE_NS = 100000000,
};

/* ---- rows of subscribers ---- */

/* Return the first position that the subscriber can lose. */
static inline uint64_t mq_channel_load_unread_position(const mq_channel_publisher *p,
                                                       const mq_channel_subscriber_row *row) {
    uint64_t cursor = mq_load_relaxed_u64(&row->cursor); /* relaxed, both: an old value is too low, which is safe */
    uint64_t joined = mq_load_relaxed_u64(&row->joined);
    cursor = cursor ? cursor : p->order.capacity; /* 0: no receive since the order was initialized */
    return cursor > joined ? cursor : joined;
}

/* Load the rows, and store the first position that a subscriber can lose. Rows of known dead owners do not count. */
static inline void mq_channel_load_unread(mq_channel_publisher *p) {
    /* the tail is loaded first: a subscriber that gets a row after this load starts at this tail or later */
    uint64_t first = mq_index_ring_load_tail(&p->order);
    for (int i = 0; i < MQ_CHANNEL_SUBSCRIBERS; i++) {
        const mq_channel_subscriber_row *row = &p->header->subscribers[i];
        uint64_t uid = mq_load_acquire_u64(&row->participant.uid);
        if (!uid || uid == p->dead_subscribers[i])
            continue;
        uint64_t position = mq_channel_load_unread_position(p, row);
        first = position < first ? position : first;
    }
    p->unread_from = first;
}

/* Probe the owners of the rows that leave no room, and remember the dead owners. */
static inline void mq_channel_find_dead_subscribers(mq_channel_publisher *p, uint64_t messages) {
    mq_liveness_probe probe = mq_liveness_probe_begin(p->liveness_file);
    uint64_t end = mq_channel_snapshot_end_position(&p->order);
    for (int i = 0; i < MQ_CHANNEL_SUBSCRIBERS; i++) {
        const mq_channel_subscriber_row *row = &p->header->subscribers[i];
        uint64_t uid = mq_load_acquire_u64(&row->participant.uid);
        if (uid && mq_channel_load_unread_position(p, row) + p->order.capacity < end + messages &&
            mq_participant_liveness(&probe, &row->participant, MQ_CHANNEL_SUBSCRIBER_BYTE + i) == MQ_DEAD)
            p->dead_subscribers[i] = uid; /* a later owner of the row has another uid */
    }
    mq_liveness_probe_end(&probe);
}

/* ---- room ---- */

/* True if the publisher gets slots for `messages` messages, and retracts only messages that all subscribers have
 * received. `dead` is a bit mask of dead viewers, whose pins do not count. */
static inline bool mq_channel_has_slots(const mq_channel_publisher *p, uint64_t messages, uint64_t dead) {
    uint64_t slots = p->free_count;
    for (uint32_t i = 0; slots < messages && i < mq_channel_count_used_slots(p); i++) {
        if (i >= p->limbo_count && mq_channel_get_published_slot(p, i - p->limbo_count)->position >= p->unread_from)
            break;
        slots += !(mq_pool_pin_holders(&p->slots, mq_channel_get_used_slot(p, i)) & ~dead);
    }
    return slots >= messages;
}

/* True if the publisher has room by the rows as they were at the last load. */
static inline bool mq_channel_has_room(const mq_channel_publisher *p, uint64_t messages, uint64_t dead) {
    return mq_channel_snapshot_end_position(&p->order) + messages <= p->unread_from + p->order.capacity &&
           mq_channel_has_slots(p, messages, dead);
}

/* Load the rows, and return true if the publisher has room. If `probes`, also search for dead subscribers. */
static inline bool mq_channel_find_room(mq_channel_publisher *p, uint64_t messages, bool probes) {
    mq_channel_load_unread(p);
    bool found = mq_channel_has_room(p, messages, 0);
    if (found || !probes)
        return found;
    mq_channel_find_dead_subscribers(p, messages);
    mq_channel_load_unread(p);
    uint64_t dead = mq_channel_find_dead_viewers(p, mq_channel_count_used_slots(p));
    if (dead)
        p->next_probe_at = p->sent; /* mq_channel_take_free_slot then clears the pins of dead viewers at once */
    return mq_channel_has_room(p, messages, dead);
}

/* ---- wait ---- */

typedef enum { MQ_ROOM_MISSING, MQ_ROOM_FOUND, MQ_ROOM_TIMED_OUT } mq_room_status;

typedef struct {
    int64_t deadline; /* CLOCK_MONOTONIC, nanoseconds. Negative: none */
    int64_t probe_at; /* time of the next probe */
    int64_t nap_ns;
    int yields;
} mq_channel_room_wait;

static inline mq_channel_room_wait mq_channel_begin_room_wait(int64_t deadline) {
    return (mq_channel_room_wait){
        .deadline = deadline, .probe_at = mq_monotonic_ns() + MQ_ROOM_FIRST_PROBE_NS, .nap_ns = MQ_ROOM_NAP_MIN_NS};
}

/* Look for room once. */
static inline mq_room_status mq_channel_check_room_wait(mq_channel_room_wait *wait, mq_channel_publisher *p,
                                                        uint64_t messages) {
    int64_t now = mq_monotonic_ns();
    bool is_late = wait->deadline >= 0 && now >= wait->deadline;
    bool probes = is_late || now >= wait->probe_at;
    if (probes)
        wait->probe_at = now + MQ_ROOM_PROBE_NS;
    if (mq_channel_find_room(p, messages, probes))
        return MQ_ROOM_FOUND;
    return is_late ? MQ_ROOM_TIMED_OUT : MQ_ROOM_MISSING;
}

/* Yield the core or take a nap, until subscribers may have received messages. `mask` is the signal mask during the nap
 * (NULL: unchanged). Returns false if a signal handler ended the nap. With a mask that unblocks a signal, no handler runs
 * unnoticed, because the kernel changes the mask and sleeps in one step. */
static inline bool mq_channel_pause_room_wait(mq_channel_room_wait *wait, const sigset_t *mask) {
    if (wait->yields < MQ_ROOM_YIELDS) {
        wait->yields++;
        return sched_yield() == 0;
    }
    int64_t left = wait->deadline >= 0 ? wait->deadline - mq_monotonic_ns() : wait->nap_ns;
    struct timespec nap = mq_timespec_from_ns(left < 0 ? 0 : left < wait->nap_ns ? left : wait->nap_ns);
    wait->nap_ns = 2 * wait->nap_ns < MQ_ROOM_NAP_MAX_NS ? 2 * wait->nap_ns : MQ_ROOM_NAP_MAX_NS;
    return ppoll(NULL, 0, &nap, mask) == 0;
}

#endif
