"""Sleep until a shared word changes, and process-wide properties of the kernel."""


cdef int _membarrier_generation = -1
cdef bint _has_membarrier = False
cdef bint _is_waitv_missing = False


cdef enum:
    MAX_POLL_SLEEP_NS = 1000000  # nanoseconds between two polls if the kernel cannot wait for several words


cdef bint can_order_stores():
    """True if a new publisher's membarrier reaches this process. Registers the process once."""
    global _has_membarrier, _membarrier_generation
    if _membarrier_generation != fork_generation:
        _has_membarrier = mq_membarrier_register()
        _membarrier_generation = fork_generation
    return _has_membarrier


cdef int sleep_on_futexes(mq_futex_waitv_entry *words, unsigned count, int64_t deadline_ns) noexcept nogil:
    """Sleep until one of the words differs from its expected value, a wake, a signal, or the deadline.

    The deadline is CLOCK_MONOTONIC nanoseconds, negative: none. Return an errno or 0. The caller checks its condition
    in any case.
    """
    global _is_waitv_missing
    cdef int64_t nap
    cdef bint woken
    if count == 1:
        woken = mq_futex_wait(<uint32_t *> words[0].address, <uint32_t> words[0].expected, deadline_ns) == 0
        return 0 if woken else errno
    if 0 < count <= MQ_FUTEX_WAITV_MAX and not _is_waitv_missing:
        if mq_futex_waitv(words, count, deadline_ns) >= 0:
            return 0
        if errno != ENOSYS and errno != EPERM:
            return errno
        _is_waitv_missing = True  # the kernel is older than Linux 5.16, or forbids the call
    nap = MAX_POLL_SLEEP_NS
    if deadline_ns >= 0:
        nap = min(nap, max(deadline_ns - mq_monotonic_ns(), 0))
    usleep(nap // 1000 + 1)
    return 0
