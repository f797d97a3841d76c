"""One waiting call of a handle: its role, its ticket and its sleep. See handle.pxi."""


@cython.no_gc_clear  # the queue is needed until the end
cdef class QueueWait(Waitable):
    """See core.pxd."""

    cdef bint _is_readable(self) noexcept:
        # A receiver that learns of a delay must compute the length of its sleep again.
        return (self._queue._is_truncated() or mq_queue_wait_is_over(&self._queue._h, &self._c)
                or self._c.role == MQ_QUEUE_RECEIVER and mq_queue_delays_changed(&self._queue._h))

    cdef mq_u32 *_futex_word(self) noexcept:
        return mq_queue_get_eventcount(&self._queue._h, self._c.role)

    cdef uint32_t _prepare_wait(self) noexcept:
        self._queue._sleeping_threads[<int> self._c.role] += 1
        return mq_queue_wait_prepare_sleep(&self._queue._h, &self._c, self._queue._find_oldest_ticket(self._c.role))

    cdef void _end_wait(self) noexcept:
        if self._fork_generation == fork_generation:
            self._queue._sleeping_threads[<int> self._c.role] -= 1
            if not self._queue._sleeping_threads[<int> self._c.role]:
                mq_queue_finish_sleep(&self._queue._h, self._c.role)

    cdef int64_t _max_sleep_ns(self, int64_t slept_ns) except -2:
        return mq_queue_wait_limit_sleep_ns(&self._queue._h, &self._c, self._queue._compute_next_recovery_ns())

    def is_over(self):
        return self._is_over_on_bus()

    cdef bint _is_over_on_bus(self) except -1:
        """On a bus: True if the call goes on. An older call that waits is the first to get a message or slot."""
        cdef QueueHandle queue = self._queue
        if queue._use_state == CLOSED:
            return True
        queue._adopt_sizes()
        if not self._c.takes or self._tickets[0] == self._c.ticket:
            return mq_queue_wait_is_over(&queue._h, &self._c)
        return mq_queue_count_available(&queue._h.parts, self._c.role) > self._tickets.index(self._c.ticket)

    cdef void _finish_waiting(self) noexcept:
        """End the wait, and its handoff if it has one. The next call of the handle may use this object."""
        cdef QueueHandle queue = self._queue
        if self._fork_generation == fork_generation and queue._joined:
            mq_queue_wait_end(&queue._h, &self._c)
        queue._unused_wait = self._alone
        self._alone, self._queue, self._tickets = None, None, None  # an unused wait is in no cycle of references
