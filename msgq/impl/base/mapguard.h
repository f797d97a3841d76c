/* A mapping outlives its file: what others cut off the file raises SIGBUS here, which kills the process. This is the
 * handler that turns that into a word which says so. One a process: only segment.pxi includes this file.
 *
 * Each guarded mapping has a guard in a list that only grows; a guard is used again, never freed. States of `start`:
 *
 *   0        free
 *   1        taken by a thread that fills it in, or is about to unmap the mapping
 *   address  guards the mapping that begins there: a handler may find it
 *
 * A fault inside a guarded mapping maps pages of zeros over the *whole* of it, with the same protection, clears `not_truncated`,
 * and returns: the load or store that faulted is done again, and sees zeros. Nothing half old and half zero is left for
 * others, and the zeros are no ring: write_uid, slots and tail are not what anybody wrote there. Two threads that fault
 * at once both do so, with the same result. If the guard has a partner, the partner's mapping is replaced as well. Any
 * other SIGBUS goes to the handler that was there before, or to the default action.
 *
 * The handler makes system calls only (mmap, and on its way out sigaction and pthread_sigmask), and keeps errno. It runs
 * with all signals blocked, so it ends soon; mq_sigbus_guard_remove waits for that, since a handler that has found a guard must
 * not map anything where its mapping was. A forked child inherits guards and mappings alike, and no handler at work.
 */
#ifndef MQ_MAPGUARD_H
#define MQ_MAPGUARD_H

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <ucontext.h>
#include <unistd.h>

#include "base/atomics.h"

typedef struct mq_sigbus_guard {
    mq_u64 start;
    uint64_t bytes;
    int protection;
    mq_u32 inside;                /* handlers that look at it */
    mq_u64 not_truncated;         /* 1; 0: zeros are mapped there */
    mq_u64 partner;               /* mq_sigbus_guard *: its mapping is replaced together with this one; 0: none */
    struct mq_sigbus_guard *next; /* constant once it is in the list */
} mq_sigbus_guard;

static struct {
    mq_u64 first; /* mq_sigbus_guard *; guards are added in front */
    bool installed;
    struct sigaction former;
} mq_sigbus_guard_list;

static inline mq_sigbus_guard *mq_sigbus_guard_first(void) {
    /* EDGE guard: acquire. A guard that is found was filled in. Partner: mq_sigbus_guard_allocate */
    return (mq_sigbus_guard *)(uintptr_t)mq_load_acquire_u64(&mq_sigbus_guard_list.first);
}

/* Hold the guard of the mapping with this address: it is not unmapped before `inside` is counted down. NULL: none. */
static inline mq_sigbus_guard *mq_sigbus_guard_pin_address(uint64_t address) {
    for (mq_sigbus_guard *guard = mq_sigbus_guard_first(); guard; guard = guard->next) {
        mq_fetch_add_u32(&guard->inside, 1);
        /* EDGE unmap: sequentially consistent. `inside` is stored, then `start` is loaded. Partner:
         * mq_sigbus_guard_remove */
        mq_fence_seq_cst();
        /* EDGE guard: acquire. Size and protection are those of this mapping. Partner: mq_sigbus_guard_add_mapping */
        uint64_t start = mq_load_acquire_u64(&guard->start);
        if (start > 1 && address - start < guard->bytes)
            return guard;
        mq_fetch_add_u32(&guard->inside, (uint32_t)-1);
    }
    return NULL;
}

/* Replace the mapping of a held guard by zeros. False: mmap failed. */
static inline bool mq_sigbus_guard_map_zeros(mq_sigbus_guard *guard) {
    void *start = (void *)(uintptr_t)mq_load_acquire_u64(&guard->start);
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE;
    bool replaced = mmap(start, guard->bytes, guard->protection, flags, -1, 0) == start;
    if (replaced)
        mq_store_release_u64(&guard->not_truncated, 0);
    return replaced;
}

/* Hold the partner of a held guard. NULL: it has none, or its partner has just changed. */
static inline mq_sigbus_guard *mq_sigbus_guard_pin_partner(mq_sigbus_guard *guard) {
    mq_sigbus_guard *partner = (mq_sigbus_guard *)(uintptr_t)mq_load_acquire_u64(&guard->partner);
    if (!partner)
        return NULL;
    mq_fetch_add_u32(&partner->inside, 1);
    /* EDGE unmap: sequentially consistent. `inside` (and before it `not_truncated` of the guard) is stored, then
     * `partner` is loaded. Partner: mq_sigbus_guard_set_partner */
    mq_fence_seq_cst();
    if (mq_load_acquire_u64(&guard->partner) == (uintptr_t)partner)
        return partner;
    mq_fetch_add_u32(&partner->inside, (uint32_t)-1);
    return NULL;
}

/* Replace the mapping with this address by zeros. False: it is not guarded, or mmap failed. */
static inline bool mq_sigbus_guard_replace_mapping(uint64_t address) {
    mq_sigbus_guard *guard = mq_sigbus_guard_pin_address(address);
    if (!guard)
        return false;
    bool replaced = mq_sigbus_guard_map_zeros(guard);
    mq_sigbus_guard *partner = replaced ? mq_sigbus_guard_pin_partner(guard) : NULL;
    if (partner) {
        mq_sigbus_guard_map_zeros(partner);
        mq_fetch_add_u32(&partner->inside, (uint32_t)-1);
    }
    mq_fetch_add_u32(&guard->inside, (uint32_t)-1);
    return replaced;
}

/* Would a look at this address fault? The kernel looks for us. */
static inline bool mq_sigbus_guard_address_faults(uint64_t address) {
    char byte;
    struct iovec to = {&byte, 1}, from = {(void *)(uintptr_t)address, 1};
    return process_vm_readv(getpid(), &to, 1, &from, 1, 0) != 1;
}

/* Where this thread faulted; 0: the signal tells of no such fault. A handler that was installed after ours, and calls
 * us by raising the signal again (as Python's faulthandler does), hides the address; the CPU's registers still have it,
 * if it was a fault: that they have one from an earlier fault shows in that nothing faults there now. */
static inline uint64_t mq_sigbus_guard_fault_address(const siginfo_t *info, const ucontext_t *context) {
    if (info->si_code == BUS_ADRERR)
        return (uint64_t)(uintptr_t)info->si_addr;
    uint64_t address = 0;
#if defined(__x86_64__)
    address = (uint64_t)context->uc_mcontext.gregs[REG_CR2];
#elif defined(__aarch64__)
    address = context->uc_mcontext.fault_address;
#else
    (void)context;
#endif
    bool raised = info->si_code == SI_TKILL && info->si_pid == getpid();
    return raised && mq_sigbus_guard_address_faults(address) ? address : 0;
}

/* Let the signal have the effect that it would have had without us. */
static inline void mq_sigbus_guard_forward_signal(int number, siginfo_t *info, ucontext_t *context) {
    struct sigaction *former = &mq_sigbus_guard_list.former;
    bool sent = info->si_code <= 0; /* by kill or raise: nothing faults again when we return */
    if (former->sa_handler == SIG_IGN && sent)
        return;
    if (former->sa_handler == SIG_DFL || former->sa_handler == SIG_IGN) {
        /* Also for a fault that is ignored, as the kernel does. It comes again from where it was, for a true core. */
        struct sigaction fatal = {.sa_handler = SIG_DFL};
        sigaction(number, &fatal, NULL);
        if (sent)
            raise(number); /* blocked until we return */
        return;
    }
    sigset_t blocked = former->sa_mask;
    for (int i = 1; i < NSIG; i++)
        if (sigismember(&context->uc_sigmask, i) == 1)
            sigaddset(&blocked, i);
    if (!(former->sa_flags & SA_NODEFER))
        sigaddset(&blocked, number);
    void (*simple)(int) = former->sa_handler;
    void (*full)(int, siginfo_t *, void *) = former->sa_sigaction;
    bool is_full = former->sa_flags & SA_SIGINFO;
    if (former->sa_flags & SA_RESETHAND) {
        former->sa_handler = SIG_DFL;
        former->sa_flags = 0;
    }
    pthread_sigmask(SIG_SETMASK, &blocked, NULL); /* the kernel puts it back when we return */
    if (is_full)
        full(number, info, context);
    else
        simple(number);
}

static void mq_sigbus_guard_handle_signal(int number, siginfo_t *info, void *context) {
    int error = errno;
    uint64_t address = mq_sigbus_guard_fault_address(info, context);
    if (!address || !mq_sigbus_guard_replace_mapping(address))
        mq_sigbus_guard_forward_signal(number, info, context);
    errno = error;
}

static void mq_sigbus_guard_reset_in_child(void) {
    for (mq_sigbus_guard *guard = mq_sigbus_guard_first(); guard; guard = guard->next)
        mq_store_release_u32(&guard->inside, 0); /* a thread of the parent's was there */
}

/* Install the handler, once a process. False, with errno: it is not. */
static inline bool mq_sigbus_guard_install_handler(void) {
    struct sigaction action = {.sa_sigaction = mq_sigbus_guard_handle_signal};
    if (mq_sigbus_guard_list.installed)
        return true;
    if (sigaction(SIGBUS, NULL, &mq_sigbus_guard_list.former) != 0)
        return false;
    sigfillset(&action.sa_mask);
    action.sa_flags = SA_SIGINFO | SA_ONSTACK | (mq_sigbus_guard_list.former.sa_flags & SA_RESTART);
    if (pthread_atfork(NULL, NULL, mq_sigbus_guard_reset_in_child) != 0 || sigaction(SIGBUS, &action, NULL) != 0)
        return false;
    return mq_sigbus_guard_list.installed = true;
}

/* Take a guard that is free, or a new one. NULL: no memory. */
static inline mq_sigbus_guard *mq_sigbus_guard_allocate(void) {
    mq_sigbus_guard *guard;
    for (guard = mq_sigbus_guard_first(); guard; guard = guard->next)
        if (mq_load_acquire_u64(&guard->start) == 0 && mq_compare_exchange_u64(&guard->start, 0, 1))
            return guard;
    if (!(guard = calloc(1, sizeof *guard)))
        return NULL;
    mq_store_release_u64(&guard->start, 1);
    do
        guard->next = mq_sigbus_guard_first();
    /* EDGE guard: sequentially consistent, and so release: of the guard. Partner: mq_sigbus_guard_first */
    while (!mq_compare_exchange_u64(&mq_sigbus_guard_list.first, (uintptr_t)guard->next, (uintptr_t)guard));
    return guard;
}

/* Guard a mapping that nobody uses yet. NULL: no memory. */
static inline mq_sigbus_guard *mq_sigbus_guard_add_mapping(void *address, uint64_t bytes, int protection) {
    mq_sigbus_guard *guard = mq_sigbus_guard_allocate();
    if (!guard)
        return NULL;
    guard->bytes = bytes;
    guard->protection = protection;
    mq_store_release_u64(&guard->not_truncated, 1);
    /* EDGE guard: release. What a handler does with it was filled in. Partner: mq_sigbus_guard_pin_address */
    mq_store_release_u64(&guard->start, (uintptr_t)address);
    return guard;
}

/* Replace the mapping of `partner` whenever that of `guard` is replaced, so that a hot path checks one of two files
 * that belong together. Remove the partner after the guard, or after the guard has another partner. False: the guard's
 * mapping is already replaced. */
static inline bool mq_sigbus_guard_set_partner(mq_sigbus_guard *guard, mq_sigbus_guard *partner) {
    mq_store_release_u64(&guard->partner, (uintptr_t)partner);
    /* EDGE unmap: sequentially consistent. `partner` is stored, then `not_truncated` and, when the former partner is
     * removed, its `inside` are loaded. Partner: mq_sigbus_guard_pin_partner. If weaker: as in mq_sigbus_guard_remove,
     * or a mapping that stays. */
    mq_fence_seq_cst();
    return mq_load_acquire_u64(&guard->not_truncated) == 1;
}

/* To be called before the mapping is unmapped; nobody uses it any more. */
static inline void mq_sigbus_guard_remove(mq_sigbus_guard *guard) {
    mq_store_release_u64(&guard->start, 1); /* not free before the handlers are gone */
    /* EDGE unmap: sequentially consistent. `start` is stored, then `inside` is loaded. Partner:
     * mq_sigbus_guard_pin_address. If weaker: a handler maps zeros over what somebody has mapped there since. */
    mq_fence_seq_cst();
    while (mq_load_acquire_u32(&guard->inside))
        sched_yield();
    mq_store_release_u64(&guard->partner, 0);
    mq_store_release_u64(&guard->start, 0);
}

/* relaxed: a caller has a fence before it, or only looks. */
static inline bool mq_sigbus_guard_is_intact(const mq_sigbus_guard *guard) {
    return mq_load_relaxed_u64(&guard->not_truncated) == 1;
}

#endif
