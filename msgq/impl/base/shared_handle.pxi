"""A handle that several threads may use at the same time; the base of queues, vectors and boards.

Code that uses the handle's own fields holds the GIL, or the handle's lock (object_lock.h). A thread that waits, or
copies without the lock, is a user of the handle. A closed handle leaves its rows after its last user.
"""


@cython.no_gc_clear  # same as the base class
cdef class ThreadSharedHandle(Waitable):
    """See core.pxd."""

    cdef int _reopen_or_raise(self) except -1:
        """As the base, but other threads may use the handle during the call."""
        if self._use_state == CLOSED:
            raise usage_error(CLOSED, self._endpoint)
        if self._bus is not None:
            raise inherited_bus_error(self._endpoint)
        return self._reopen_in_child()

    cdef void _forget_user_threads(self) noexcept:
        """Begin without users, also in a forked child, where they are the parent's."""
        self._single_user_uses, self._other_users = 0, []

    cdef void _add_user_thread(self) noexcept:
        cdef unsigned long thread = PyThread_get_thread_ident()
        if not self._single_user_uses or self._single_user == thread:
            self._single_user, self._single_user_uses = thread, self._single_user_uses + 1
        else:
            self._other_users.append(thread)

    cdef void _remove_user_thread(self) noexcept:
        cdef unsigned long thread = PyThread_get_thread_ident()
        if self._single_user_uses and self._single_user == thread:
            self._single_user_uses -= 1
        elif thread in self._other_users:  # false in a child that a signal handler forked
            self._other_users.remove(thread)

    cdef bint _has_user_threads(self) noexcept:
        return self._single_user_uses > 0 or bool(self._other_users)  # None: the opening failed

    cdef bint _is_user_thread(self, unsigned long thread) noexcept:
        return (self._single_user_uses and self._single_user == thread) or thread in self._other_users

    cdef void _begin_use(self) noexcept:
        if self._bus is None:  # a wait on a bus notices a close by itself
            self._add_user_thread()  # other threads may use the handle during the call

    cdef void _end_use(self) noexcept:
        self._remove_user_thread()

    def close(self):
        if self._use_state == CLOSED and (self._bus is not None or not self._is_closing):
            return  # a previous close is complete. After an interrupted close, _is_closing is still set
        self._use_state = CLOSED
        if self._fork_generation != fork_generation:
            self._release_memory()
            return  # in a forked child, the row belongs to the parent
        self._is_closing = True
        if self._bus is not None:  # no use ends during this call, so the last one closes the handle
            self._close_handle()
            self._bus.on_closed(self)
            return
        while self._has_user_threads() and self._fork_generation == fork_generation:  # a signal handler may fork
            self._interrupt_wait()
            if self._is_user_thread(PyThread_get_thread_ident()):
                return  # this signal handler interrupted a wait of the same thread, and the wait closes the handle
            with nogil:
                usleep(200)
            PyErr_CheckSignals()
        self._close_handle()
        self._is_closing = False
        if self._bus is not None:
            self._bus.on_closed(self)

    cdef int _close_handle(self) except -1:
        if self._has_user_threads() or self._fork_generation != fork_generation:
            return 0
        return Waitable._close_handle(self)

    def _close_at_exit(self):
        if self._fork_generation == fork_generation:
            self.close()
