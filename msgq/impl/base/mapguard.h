/* Handler of SIGBUS for truncated files. If another process truncates a mapped file, an access to the removed part
 * raises SIGBUS, which kills the process by default. With this handler, the access sets a word instead. Only
 * segment.pxi includes this file, so each process has one handler.
 *
 * Each guarded mapping has a guard in a list. The list only grows, because guards are reused and never freed. If
 * `start` of a guard is 0, the guard is free. If `start` is 1, a thread is filling in the guard, or is about to unmap
 * the mapping. Any other `start` is the address of the mapping, and a handler may use the guard.
 *
 * After a fault in a guarded mapping, the handler maps pages of zeros over the *whole* mapping with the same
 * protection, clears `not_truncated`, and returns. The CPU repeats the load or store and sees zeros. A mapping never
 * has a mix of old bytes and zeros. A ring of zeros is invalid, because zeros differ from all values that programs
 * write to write_uid, slots and canary. If two threads fault at once, both threads run the handler with the same
 * result. If the guard has a partner, the handler replaces the partner's mapping, too, and then the mapping of the
 * partner's partner. A chain of partners has no cycle. The handler forwards any other SIGBUS to the previous handler,
 * or to the default action.
 *
 * The handler only makes system calls (mmap, and for other signals sigaction and pthread_sigmask), and preserves errno.
 * All signals are blocked while the handler runs, so the handler ends soon. mq_sigbus_guard_remove waits until no
 * handler uses the guard. A handler that still used the guard could map zeros over a later mapping at the same address.
 * A forked child inherits guards and mappings, but no running handler. */
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
    mq_u32 inside;        /* number of handlers that use the guard */
    mq_u64 not_truncated; /* 1: the mapping is intact; 0: the handler has replaced the mapping by zeros */
    /* mq_sigbus_guard *: the guard whose mapping is replaced together with this mapping; 0: no partner */
    mq_u64 partner;
    struct mq_sigbus_guard *next; /* constant once the guard is in the list */
} mq_sigbus_guard;

static struct {
    mq_u64 first; /* mq_sigbus_guard *: first guard of the list. New guards are added at the front */
    pthread_once_t once;
    int error; /* errno of the installation; 0: the handler is installed */
    struct sigaction former;
} mq_sigbus_guard_list = {.once = PTHREAD_ONCE_INIT};

static inline mq_sigbus_guard *mq_sigbus_guard_first(void) {
    /* EDGE guard: acquire. A guard in the list was filled in. Partner: mq_sigbus_guard_allocate */
    return (mq_sigbus_guard *)(uintptr_t)mq_load_acquire_u64(&mq_sigbus_guard_list.first);
}

/* Pin the guard of the mapping with this address. The mapping stays mapped until `inside` is decremented. NULL: the
 * address belongs to no guarded mapping. */
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

/* Replace the mapping of a pinned guard by zeros. Returns false if mmap failed. */
static inline bool mq_sigbus_guard_map_zeros(mq_sigbus_guard *guard) {
    void *start = (void *)(uintptr_t)mq_load_acquire_u64(&guard->start);
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE;
    bool replaced = mmap(start, guard->bytes, guard->protection, flags, -1, 0) == start;
    if (replaced)
        mq_store_release_u64(&guard->not_truncated, 0);
    return replaced;
}

/* Pin the partner of a pinned guard. NULL: the guard has no partner, or the partner just changed. */
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

/* Replace the mapping with this address by zeros. Returns false if the mapping is not guarded, or mmap failed. */
static inline bool mq_sigbus_guard_replace_mapping(uint64_t address) {
    mq_sigbus_guard *guard = mq_sigbus_guard_pin_address(address);
    bool replaced = guard && mq_sigbus_guard_map_zeros(guard);
    while (guard) {
        mq_sigbus_guard *partner = replaced ? mq_sigbus_guard_pin_partner(guard) : NULL;
        if (partner)
            mq_sigbus_guard_map_zeros(partner);
        mq_fetch_add_u32(&guard->inside, (uint32_t)-1);
        guard = partner;
    }
    return replaced;
}

/* True if a load from this address would fault. The kernel does the test load. */
static inline bool mq_sigbus_guard_address_faults(uint64_t address) {
    char byte;
    struct iovec to = {&byte, 1}, from = {(void *)(uintptr_t)address, 1};
    return process_vm_readv(getpid(), &to, 1, &from, 1, 0) != 1;
}

/* Return the address of this thread's fault, or 0 if the signal is not a memory fault. If the program installed another
 * handler later, that handler may raise the signal again (Python's faulthandler does). A raised signal has no fault
 * address, but the CPU's registers still hold the address. The registers may also hold the address of an earlier fault.
 * A test load from the address of an earlier fault succeeds. */
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

/* Forward the signal to the handler, or to the default action, that was installed before this handler. */
static inline void mq_sigbus_guard_forward_signal(int number, siginfo_t *info, ucontext_t *context) {
    struct sigaction *former = &mq_sigbus_guard_list.former;
    bool sent = info->si_code <= 0; /* sent by kill or raise: no instruction faults again after this handler returns */
    if (former->sa_handler == SIG_IGN && sent)
        return;
    if (former->sa_handler == SIG_DFL || former->sa_handler == SIG_IGN) {
        /* The kernel kills the process for a fault even if the signal is ignored. After this handler returns, the
         * instruction faults again, so the core dump shows that instruction. */
        struct sigaction fatal = {.sa_handler = SIG_DFL};
        sigaction(number, &fatal, NULL);
        if (sent)
            raise(number); /* the signal stays blocked until this handler returns */
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
    pthread_sigmask(SIG_SETMASK, &blocked, NULL); /* the kernel restores the mask after this handler returns */
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
        mq_store_release_u32(&guard->inside, 0); /* a thread of the parent may have incremented `inside` */
}

static void mq_sigbus_guard_install_once(void) {
    struct sigaction action = {.sa_sigaction = mq_sigbus_guard_handle_signal}, former;
    bool failed = sigaction(SIGBUS, NULL, &former) != 0;
    /* a child that was forked during the installation installs the handler again */
    if (!failed && former.sa_sigaction != mq_sigbus_guard_handle_signal)
        mq_sigbus_guard_list.former = former;
    sigfillset(&action.sa_mask);
    action.sa_flags = SA_SIGINFO | SA_ONSTACK | (mq_sigbus_guard_list.former.sa_flags & SA_RESTART);
    failed = failed || pthread_atfork(NULL, NULL, mq_sigbus_guard_reset_in_child) != 0 ||
             sigaction(SIGBUS, &action, NULL) != 0;
    mq_sigbus_guard_list.error = failed ? errno : 0;
}

/* Install the handler once in the process. Threads may call this at the same time. Returns false with errno on
 * failure. */
static inline bool mq_sigbus_guard_install_handler(void) {
    pthread_once(&mq_sigbus_guard_list.once, mq_sigbus_guard_install_once);
    return !mq_sigbus_guard_list.error || (errno = mq_sigbus_guard_list.error, false);
}

/* Take a free guard, or allocate a new guard. NULL: out of memory. */
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

/* Guard a mapping before its first use. NULL: out of memory. */
static inline mq_sigbus_guard *mq_sigbus_guard_add_mapping(void *address, uint64_t bytes, int protection) {
    mq_sigbus_guard *guard = mq_sigbus_guard_allocate();
    if (!guard)
        return NULL;
    guard->bytes = bytes;
    guard->protection = protection;
    mq_store_release_u64(&guard->not_truncated, 1);
    /* EDGE guard: release. All fields that a handler uses were filled in. Partner: mq_sigbus_guard_pin_address */
    mq_store_release_u64(&guard->start, (uintptr_t)address);
    return guard;
}

/* Replace the mapping of `partner` whenever the mapping of `guard` is replaced. If two files belong together, a hot
 * path then checks only the mapping of `partner`. Remove `partner` only after you removed `guard`, or gave `guard`
 * another partner. Returns false if the mapping of `guard` is already replaced. */
static inline bool mq_sigbus_guard_set_partner(mq_sigbus_guard *guard, mq_sigbus_guard *partner) {
    mq_store_release_u64(&guard->partner, (uintptr_t)partner);
    /* EDGE unmap: sequentially consistent. `partner` is stored, then `not_truncated` is loaded, and, when the previous
     * partner is removed, its `inside`. Partner: mq_sigbus_guard_pin_partner. If weaker: as in mq_sigbus_guard_remove,
     * or a mapping is not replaced. */
    mq_fence_seq_cst();
    return mq_load_acquire_u64(&guard->not_truncated) == 1;
}

/* Remove the guard. Call this after the last use of the mapping, and before the unmap. */
static inline void mq_sigbus_guard_remove(mq_sigbus_guard *guard) {
    mq_store_release_u64(&guard->start, 1); /* keep the guard reserved until all handlers have released it */
    /* EDGE unmap: sequentially consistent. `start` is stored, then `inside` is loaded. Partner:
     * mq_sigbus_guard_pin_address. If weaker: a handler maps zeros over a later mapping. */
    mq_fence_seq_cst();
    while (mq_load_acquire_u32(&guard->inside))
        sched_yield();
    mq_store_release_u64(&guard->partner, 0);
    mq_store_release_u64(&guard->start, 0);
}

/* relaxed: callers issue a fence before the load, or only observe. */
static inline bool mq_sigbus_guard_is_intact(const mq_sigbus_guard *guard) {
    return mq_load_relaxed_u64(&guard->not_truncated) == 1;
}

#endif
