/* An eventcount: the futex word that sleepers and wakers share. The word has two flags and a count of wakes above them.
 *
 * To sleep, a sleeper (1) sets the waiters flag, (2) checks its condition again, and (3) sleeps while the word has the
 * value that step 1 returned. A publisher stores first, and then checks the flags. So either the publisher sees the
 * flag, or the sleeper sees the published value. See docs/internals/topic-protocol.md, "Sleeping and waking".
 *
 * The functions with the suffix _mp are for words that several writers notify. All users of one word use the same
 * variant. With several writers, one writer may stop at any step while the others continue. Therefore the waiters flag
 * stays set until a wake has happened. The second flag means that a wake is in progress and no sleeper has announced
 * itself since.
 * - prepare wait: set WAITERS, clear NOTIFYING.
 * - notify: if WAITERS is set, add 1 to the count and set NOTIFYING; wake all; if the word is unchanged, clear both
 *   flags.
 *
 * If a writer dies before its wake, the flag stays set for the next writer. If a writer dies after its wake, at most an
 * unneeded flag remains. The last step of a notify fails after a sleeper's announcement, because the wake may have
 * missed that sleeper. It also fails after another writer's notify, which then completes the wake. The count keeps a
 * sleeper awake that enters the system call only after the wake. Announcements leave an announced word unchanged, so
 * one thread may sleep for several readers of one word.
 */
#ifndef MQ_EVENTCOUNT_H
#define MQ_EVENTCOUNT_H

#include "base/futex.h"

enum {
    MQ_EVENTCOUNT_WAITERS = 1, /* a process may sleep */
    /* one of several writers is about to wake; for a single writer, the owner defines this flag */
    MQ_EVENTCOUNT_NOTIFYING = 2,
    MQ_EVENTCOUNT_FLAGS = 3,
    MQ_EVENTCOUNT_WAKE = 4, /* one wake */
    /* Failed exchanges, each because another process changed the word. At the bound the last attempt counts as done: a
     * sleeper finds that the word differs and does not sleep, and a waker wakes. */
    MQ_EVENTCOUNT_TRIES = 1000,
};

/* Return the value that the word must have at the beginning of the sleep. Check the condition again after this call. */
static inline uint32_t mq_eventcount_prepare_wait(mq_u32 *word) {
    uint32_t before = mq_fetch_or_u32(word, MQ_EVENTCOUNT_WAITERS);
    /* EDGE sleep: sequentially consistent. The flag is stored, then the awaited value is loaded. Partner:
     * mq_eventcount_load_flags. If weaker: a subscriber sleeps through a message. */
    mq_fence_seq_cst();
    return before | MQ_EVENTCOUNT_WAITERS;
}

/* Return the flags. Call this after publishing. If the result is not 0, call mq_eventcount_notify. */
static inline uint32_t mq_eventcount_load_flags(const mq_u32 *word) {
    /* EDGE sleep: sequentially consistent. The published value is stored, then the flag is loaded. Partner:
     * mq_eventcount_prepare_wait. If weaker: a subscriber sleeps through a message. */
    mq_fence_seq_cst();
    return mq_load_relaxed_u32(word) & MQ_EVENTCOUNT_FLAGS; /* relaxed: ordered by the fence */
}

/* Clear the flags, count a wake, and wake all sleepers if WAITERS was set. Returns the previous flags. Only for words
 * with one waker: while it is stopped between the two steps, no other process would wake the sleepers. */
static inline uint32_t mq_eventcount_notify(mq_u32 *word) {
    uint32_t old, tries = 0;
    /* The flags are cleared before the wake. A flag set later belongs to a sleeper that checks again after this store.
     * A flag set earlier belongs to a sleeper that the kernel finds asleep, or keeps awake because the word changed. */
    do
        old = mq_load_relaxed_u32(word); /* relaxed: the exchange below checks it */
    while (!mq_compare_exchange_u32(word, old, (old & ~(uint32_t)MQ_EVENTCOUNT_FLAGS) + MQ_EVENTCOUNT_WAKE) &&
           ++tries < MQ_EVENTCOUNT_TRIES);
    if (old & MQ_EVENTCOUNT_WAITERS)
        mq_futex_wake_all(mq_futex_word(word));
    return old & MQ_EVENTCOUNT_FLAGS;
}

/* ---- for several writers ---- */

/* As mq_eventcount_prepare_wait. */
static inline uint32_t mq_eventcount_prepare_wait_mp(mq_u32 *word) {
    uint32_t old, announced, tries = 0;
    do {
        old = mq_load_relaxed_u32(word); /* relaxed: the exchange below checks it */
        announced = (old | MQ_EVENTCOUNT_WAITERS) & ~(uint32_t)MQ_EVENTCOUNT_NOTIFYING;
    } while (!mq_compare_exchange_u32(word, old, announced) && ++tries < MQ_EVENTCOUNT_TRIES);
    /* EDGE sleep: sequentially consistent. The flag is stored, then the awaited value is loaded. Partner:
     * mq_eventcount_has_waiters_mp. If weaker: a sleeper sleeps through a message. */
    mq_fence_seq_cst();
    return announced;
}

/* True if a process may sleep. Call this after publishing by a sequentially consistent exchange. After a plain store,
 * call mq_fence_seq_cst first. If true, call mq_eventcount_notify_mp. */
static inline bool mq_eventcount_has_waiters_mp(const mq_u32 *word) {
    /* EDGE sleep: sequentially consistent. The published value is stored, then the flag is loaded. Partner:
     * mq_eventcount_prepare_wait_mp. If weaker: a sleeper sleeps through a message. */
    return mq_load_seq_cst_u32(word) & MQ_EVENTCOUNT_WAITERS;
}

/* Wake all announced sleepers. Returns false if another writer has begun a wake since the last announcement. */
static inline bool mq_eventcount_notify_mp(mq_u32 *word) {
    uint32_t old, waking, tries = 0;
    do {
        old = mq_load_relaxed_u32(word); /* relaxed: the exchange below checks it */
        if (!(old & MQ_EVENTCOUNT_WAITERS))
            return false; /* another writer has woken them */
        waking = (old | MQ_EVENTCOUNT_NOTIFYING) + MQ_EVENTCOUNT_WAKE;
    } while (!mq_compare_exchange_u32(word, old, waking) && ++tries < MQ_EVENTCOUNT_TRIES);
    mq_futex_wake_all(mq_futex_word(word));
    mq_compare_exchange_u32(word, waking, waking & ~(uint32_t)MQ_EVENTCOUNT_FLAGS);
    return !(old & MQ_EVENTCOUNT_NOTIFYING);
}

#endif
