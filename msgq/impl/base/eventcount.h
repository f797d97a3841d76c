/* An eventcount: the futex word that sleepers and wakers share. The two lowest bits of the word are flags, and the
 * other bits are a count of wakes.
 *
 * To sleep, a sleeper (1) sets the waiters flag, (2) checks its condition again, and (3) sleeps while the word has the
 * value that step 1 returned. A publisher stores first, and then checks the flags. Therefore either the publisher sees
 * the flag, or the sleeper sees the published value. See docs/internals/common-protocol.md, "Sleeping and waking".
 *
 * The functions with the suffix _mp are for words that several writers notify. All users of one word must use the same
 * variant, with or without _mp. One of several writers may stop at any step while the other writers continue. Therefore
 * the waiters flag stays set until a wake has happened. The second flag, NOTIFYING, means that a wake is in progress. A
 * sleeper that announces itself clears NOTIFYING.
 *
 * To announce itself, a sleeper sets WAITERS and clears NOTIFYING. To notify, a writer first checks WAITERS. If WAITERS
 * is set, the writer adds 1 to the count, sets NOTIFYING, and wakes all sleepers. If the word is unchanged after the
 * wake, the writer clears both flags.
 *
 * If a writer dies before its wake, the flag stays set for the next writer. If a writer dies after its wake, an
 * unneeded flag may remain. If a sleeper announces itself during a notify, the wake may miss that sleeper. The
 * announcement changes the word, so the notify does not clear the flags. If another writer notifies during a notify,
 * only the later notify clears the flags. The count protects a sleeper that enters the system call after the wake: the
 * word has changed, so the call returns at once. If a word already has an announcement, a second announcement leaves
 * the word unchanged. Therefore one thread may sleep for several readers of one word. */
#ifndef MQ_EVENTCOUNT_H
#define MQ_EVENTCOUNT_H

#include "base/futex.h"

enum {
    MQ_EVENTCOUNT_WAITERS = 1, /* a process may sleep */
    /* one of several writers is about to wake the sleepers. In a word with a single writer, the component that owns the
     * word defines this flag */
    MQ_EVENTCOUNT_NOTIFYING = 2,
    MQ_EVENTCOUNT_FLAGS = 3,
    MQ_EVENTCOUNT_WAKE = 4, /* one wake */
    /* Maximum number of failed exchanges. An exchange fails if another process changed the word. If all attempts of a
     * sleeper fail, the sleeper finds a different word and does not sleep. If all attempts of a waker fail, the waker
     * wakes the sleepers. */
    MQ_EVENTCOUNT_TRIES = 1000,
};

/* Return the value that the word must have at the beginning of the sleep. After this call, check the awaited condition
 * again. */
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

/* Clear the flags and count a wake. If WAITERS was set, wake all sleepers. Returns the previous flags. Use this
 * function only for words with one waker: if the waker stops after the exchange, no other process wakes the
 * sleepers. */
static inline uint32_t mq_eventcount_notify(mq_u32 *word) {
    uint32_t old, tries = 0;
    /* The exchange clears the flags before the wake. A sleeper that sets the flag after the exchange then checks its
     * condition again, and sees the published value. A sleeper that set the flag before the exchange may already be
     * asleep, and the wake finds the sleeper. If that sleeper is not asleep yet, the kernel refuses the sleep, because
     * the word has changed. */
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

/* True if a process may sleep. Then call mq_eventcount_notify_mp. Publish the value by a sequentially consistent
 * exchange before this call. If you publish by a plain store, call mq_fence_seq_cst after the store. */
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
            return false; /* another writer has woken the sleepers */
        waking = (old | MQ_EVENTCOUNT_NOTIFYING) + MQ_EVENTCOUNT_WAKE;
    } while (!mq_compare_exchange_u32(word, old, waking) && ++tries < MQ_EVENTCOUNT_TRIES);
    mq_futex_wake_all(mq_futex_word(word));
    mq_compare_exchange_u32(word, waking, waking & ~(uint32_t)MQ_EVENTCOUNT_FLAGS);
    return !(old & MQ_EVENTCOUNT_NOTIFYING);
}

#endif
