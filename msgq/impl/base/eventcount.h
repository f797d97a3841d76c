/* The word that sleepers and those who wake them share: two flags, and above them a count of wakes. It is the futex
 * word.
 *
 * A sleeper announces itself, looks once more at what it waits for, and sleeps as long as the word is what the
 * announcement returned. A publisher stores first, and then asks whether somebody is due to be woken. So either the
 * publisher sees the flag, or the sleeper sees what was published.
 * See docs/internals/topic-protocol.md, "Sleeping and waking".
 *
 * The functions that end in _many are for words that several writers wake; a word is used by these or by the others.
 * There a writer may be stopped at any step while the rest go on, so the flag stands until somebody has woken. The
 * second flag says that a wake is under way, and that nobody has announced itself since:
 *
 *   an announcement   WAITERS on, WAKING off
 *   a wake            if WAITERS is on: count + 1 and WAKING on; wake all; then both off, if the word is still that
 *
 * A writer that dies before it woke leaves the flag to the next one, afterwards at most a flag for nobody. Its last step
 * fails after an announcement, whose sleeper it may not have found, and after another wake, which ends by itself. The
 * count keeps out a sleeper that comes to the system call only after the wake. Announcements do not change an announced
 * word, so one thread may sleep for several readers of one word.
 */
#ifndef MQ_EVENTCOUNT_H
#define MQ_EVENTCOUNT_H

#include "base/futex.h"

enum {
    MQ_EVENTCOUNT_WAITERS = 1,   /* somebody may sleep */
    MQ_EVENTCOUNT_NOTIFYING = 2, /* of several writers one is about to wake; elsewhere this flag is the owner's */
    MQ_EVENTCOUNT_FLAGS = 3,
    MQ_EVENTCOUNT_WAKE = 4, /* one wake */
    /* Exchanges that fail, each because another process has changed the word. At the bound the last one counts as done:
     * a sleeper finds that the word differs and does not sleep, and a waker wakes. */
    MQ_EVENTCOUNT_TRIES = 1000,
};

/* Returns what the word shall be when the sleep begins. To be followed by another look. */
static inline uint32_t mq_eventcount_prepare_wait(mq_u32 *word) {
    uint32_t before = mq_fetch_or_u32(word, MQ_EVENTCOUNT_WAITERS);
    /* EDGE sleep: sequentially consistent. The flag is stored, then what is waited for is loaded. Partner:
     * mq_eventcount_load_flags. If weaker: a subscriber sleeps through a message. */
    mq_fence_seq_cst();
    return before | MQ_EVENTCOUNT_WAITERS;
}

/* The flags; to be asked after something was published. Not 0: now call mq_eventcount_notify. */
static inline uint32_t mq_eventcount_load_flags(const mq_u32 *word) {
    /* EDGE sleep: sequentially consistent. What was published is stored, then the flag is loaded. Partner:
     * mq_eventcount_prepare_wait. If weaker: a subscriber sleeps through a message. */
    mq_fence_seq_cst();
    return mq_load_relaxed_u32(word) & MQ_EVENTCOUNT_FLAGS; /* relaxed: ordered by the fence */
}

/* Clear the flags, count a wake, and wake everybody if somebody may sleep. Returns the flags as they were. For words
 * that one writer wakes: while it is stopped between the two steps, nobody else would know of the sleepers. */
static inline uint32_t mq_eventcount_notify(mq_u32 *word) {
    uint32_t old, tries = 0;
    /* Cleared before the wake: a flag set later belongs to a sleeper that looks again after us; one set earlier to a
     * sleeper that the kernel finds asleep, or does not let sleep, because the word has changed. */
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
    /* EDGE sleep: sequentially consistent. The flag is stored, then what is waited for is loaded. Partner:
     * mq_eventcount_has_waiters_mp. If weaker: a sleeper sleeps through a message. */
    mq_fence_seq_cst();
    return announced;
}

/* May somebody sleep? To be asked after something was published by a sequentially consistent exchange; behind a plain
 * store it needs mq_fence_seq_cst first. Then call mq_eventcount_notify_mp. */
static inline bool mq_eventcount_has_waiters_mp(const mq_u32 *word) {
    /* EDGE sleep: sequentially consistent. What was published is stored, then the flag is loaded. Partner:
     * mq_eventcount_prepare_wait_mp. If weaker: a sleeper sleeps through a message. */
    return mq_load_seq_cst_u32(word) & MQ_EVENTCOUNT_WAITERS;
}

/* Wake everybody who announced itself. False: somebody else has begun to wake them since the last announcement. */
static inline bool mq_eventcount_notify_mp(mq_u32 *word) {
    uint32_t old, waking, tries = 0;
    do {
        old = mq_load_relaxed_u32(word); /* relaxed: the exchange below checks it */
        if (!(old & MQ_EVENTCOUNT_WAITERS))
            return false; /* somebody else has woken them */
        waking = (old | MQ_EVENTCOUNT_NOTIFYING) + MQ_EVENTCOUNT_WAKE;
    } while (!mq_compare_exchange_u32(word, old, waking) && ++tries < MQ_EVENTCOUNT_TRIES);
    mq_futex_wake_all(mq_futex_word(word));
    mq_compare_exchange_u32(word, waking, waking & ~(uint32_t)MQ_EVENTCOUNT_FLAGS);
    return !(old & MQ_EVENTCOUNT_NOTIFYING);
}

#endif
