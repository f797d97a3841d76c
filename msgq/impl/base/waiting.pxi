"""Wait until a handle is readable: spinning, sleeping, event loops. Another thread may close the handle during the
wait.
This file is independent of the type of endpoint.

A type derives from Waitable and defines the methods below. They run before and after a sleep, under the object's lock
(object_lock.h), while this thread has acquired the object. A receive that finds a message calls none of them.

    _is_readable    True if a message waits, or a receive would raise. One check of shared memory; changes nothing. Also
                    true for bytes that a receive skips, such as a lap.
    _can_receive_now  True if the next receive returns a message or raises. Skips what a receive would skip. Only types
                    that skip need it.
    _futex_word     The futex word that changes when another process wakes this one. Without such a word: any that
                    stays mapped.
    _prepare_wait   Announce a sleep that lasts until that word changes; returns the value that the word has then
                    (eventcount.h). Passive readers only return the value.
    _max_sleep_ns   Ensure that another process can wake this one; returns the longest sleep before the next check,
                    in ns. `slept_ns`: how long this wait has lasted.
    _poll_ops       The same for the watcher thread, without the GIL (poll_ops.h).
    _read_last_stamps  The publish and origin times of the message received last; False: unknown.
    _end_wait       The sleep that _prepare_wait announced has ended, or did not begin. Not every type needs it.
    _release_rows   Leave all rows and slots, because the handle is closed. A type's `__dealloc__` calls _close_handle
                    if it is open.

The type sets `_use_state` and `_fork_generation` to `fork_generation` when it is open (handle.pxi), and calls _rearm_fd
at the end of each call that receives.
"""


cdef extern from "sched.h" nogil:
    int sched_yield()


cdef extern from "base/watcher.h" nogil:  # only this module has the watcher thread and its list
    int mq_watcher_add(const mq_poll_ops *ops)
    void mq_watcher_set_unreadable(int fd, int64_t max_sleep_ns)
    void mq_watcher_set_readable(int fd)
    void mq_watcher_remove(int fd)
    void mq_watcher_lock()
    void mq_watcher_unlock()


cdef enum:
    SPIN_GIL_NS = 50000  # nanoseconds for which a spin holds the GIL
    GATHER_PAUSES = 16  # pauses before a sleep, 0.4 us together
    SLEEPS_WITHOUT_PAUSE = 15  # sleeps without these pauses, after pauses in which no message came


cdef object _event_loop = None


cdef class ReceiveGate:
    """See core.pxd."""

    cdef bint wait_until_released(self, const bint *cancelled) except -1:
        return False

    cdef void interrupt_wait(self) noexcept:
        pass


@cython.no_gc_clear  # a subclass's __dealloc__ needs the fields
cdef class Waitable:
    """Base of all handles that can wait. See the top of this file, and the type stub (core.pyi)."""

    def __cinit__(self):
        self._fd = -1
        self._guard = <PyObject *> self

    # ---- methods of subclasses ----

    cdef bint _is_readable(self) noexcept:
        return False

    cdef uint32_t _prepare_wait(self) noexcept:
        return 0

    cdef mq_u32 *_futex_word(self) noexcept:
        return NULL

    cdef int64_t _max_sleep_ns(self, int64_t slept_ns) except -2:
        return 0

    cdef mq_poll_ops _poll_ops(self) noexcept:
        cdef mq_poll_ops none
        memset(&none, 0, sizeof(none))
        return none

    cdef int _release_rows(self) except -1:
        return 0

    cdef bint _can_receive_now(self) except -1:
        self._check_usable()
        return self._is_readable()

    cdef bint _poll_now(self) except -1:
        """Return True if the next receive returns a message or raises. Otherwise make the descriptor unreadable."""
        if self._can_receive_now():
            return True
        self._rearm_fd()
        return False

    cdef bint _begin_poll(self) except -1:
        """Begin a poll. Return True in a step of an event-gated run, which is one check without a wait."""
        return False

    cdef void _interrupt_wait(self) noexcept:
        """End the sleep of another thread."""
        mq_futex_wake_all(mq_futex_word(self._futex_word()))

    cdef void _end_wait(self) noexcept:
        pass

    cdef bint _read_last_stamps(self, int64_t *published, int64_t *origin) noexcept:
        return False

    cdef void _rearm_watch(self) noexcept:
        """Announce a sleep on behalf of the watcher thread."""
        self._prepare_wait()

    cdef void _begin_use(self) noexcept:
        """Acquire the handle, so that other threads and signal handlers cannot use it."""
        self._use_state, self._user_thread_id = BUSY, PyThread_get_thread_ident()

    cdef void _end_use(self) noexcept:
        """Release the handle."""
        self._use_state = self._fork_generation

    # ---- connect and close ----

    cdef void _forget_inherited_wait(self) noexcept:
        """Reset the state in a forked child: the descriptor and its waits are the parent's."""
        self._fd, self._asyncio_reader, self._is_closing = -1, None, False

    cdef int _finish_requested_close(self) except -1:
        """Close the handle if a signal handler requested that during the connect."""
        if self._is_closing:
            self._close_handle()
            raise EndpointClosedError("was closed during connect", self._endpoint)
        return 0

    def close(self):
        if self._use_state == BUSY and self._fork_generation == fork_generation and self._bus is None:
            self._is_closing = True
            while (self._use_state == BUSY and self._user_thread_id != PyThread_get_thread_ident()
                   and self._fork_generation == fork_generation):  # a signal handler may fork
                self._interrupt_wait()
                with nogil:
                    usleep(200)
                PyErr_CheckSignals()
            if self._use_state == BUSY and self._fork_generation == fork_generation:
                return  # this signal handler interrupted a sleep of the same thread, and the sleep checks _is_closing
        if self._use_state != CLOSED:
            is_own = self._fork_generation == fork_generation
            if is_own:
                self._close_handle()
            self._use_state = CLOSED
            self._fd, self._asyncio_reader = -1, None  # in a forked child, both fields belonged to the parent
            self._release_memory()
            if is_own and self._bus is not None:
                self._bus.on_closed(self)

    cdef int _close_handle(self) except -1:
        self._connection += 1
        reader, self._asyncio_reader = self._asyncio_reader, None
        if reader is not None and not _ending_thread:  # at exit, the loop of a daemon thread stays asleep
            reader.close(self._endpoint)  # end the wait with an error before the descriptor wakes the event loop
        if self._fd >= 0:
            mq_watcher_remove(self._fd)
            self._fd = -1
        self._release_rows()
        self._use_state = CLOSED
        self._release_memory()
        return 0

    def _receive_now(self):
        raise NotImplementedError

    def _default_timeout_ns(self):
        return None

    def _would_receive_return(self):
        """Return True if a receive would return or raise at once, also during a wait on a bus."""
        return self._use_state == CLOSED or _is_ready(self, self._use_state == BUSY)

    cdef int _abandon_rows(self) except -1:
        return 0

    def _abandon_handle(self):
        """End the handle as the death of a process does: its rows stay, without their locks. Only on a bus."""
        if self._use_state == CLOSED or self._fork_generation != fork_generation:
            return
        self._abandon_rows()
        self._connection += 1
        self._use_state = CLOSED
        self._release_memory()
        self._bus.on_closed(self)

    # ---- event loops ----

    def fileno(self):
        cdef mq_poll_ops ops
        self._check_usable()
        if self._bus is not None:
            self._bus.check_descriptor_allowed(self._endpoint)
        if self._fd < 0:
            ops = self._poll_ops()
            self._fd = mq_watcher_add(&ops)
            if self._fd < 0:
                raise IpcError(f"cannot create a file descriptor: {os.strerror(errno)}", self._endpoint, errno)
        self._poll_now()
        return self._fd

    cdef int _rearm_fd(self) except -1:
        """End a call that receives: if no message is left, make the descriptor unreadable."""
        if self._fd >= 0 and not self._is_readable():
            mq_watcher_set_unreadable(self._fd, self._max_sleep_ns(0))
            self._rearm_watch()
            if self._is_readable():
                mq_watcher_set_readable(self._fd)
        return 0

    cdef void _update_poll_state(self, void *reader, const void *now, size_t bytes) noexcept:
        """Change the state that the watcher reads, under its mutex."""
        mq_watcher_lock()
        memcpy(reader, now, bytes)
        mq_watcher_unlock()

    def areceive(self):
        return self.arecv()

    def arecv(self):
        return load_event_loop().receive_async(self)

    def __aiter__(self):
        return self

    def __anext__(self):
        return self.arecv()


cdef object load_event_loop():
    """Return the module of waits in asyncio. Imported late, because the import of asyncio takes long."""
    global _event_loop
    if _event_loop is None:
        from msgq.impl.base import event_loop
        _event_loop = event_loop
    return _event_loop


cdef void watcher_lock() noexcept:
    mq_watcher_lock()


cdef void watcher_unlock() noexcept:
    mq_watcher_unlock()


# ---- sleep ----
#
# These functions run before and after each sleep, when the caches are cold. They read the elements of the tuple as
# borrowed references, because each counted reference writes to one more cache line.

cdef bint _has_readable_handle(tuple waitables) noexcept:
    cdef PyObject **each = PySequence_Fast_ITEMS(waitables)
    cdef mq_object_lock lock
    cdef bint is_readable = False
    for i in range(PyTuple_GET_SIZE(waitables)):
        mq_lock_object(&lock, (<Waitable> each[i])._guard)
        is_readable = (<Waitable> each[i])._is_readable()
        mq_unlock_object(&lock)
        if is_readable:
            return True
    return False


cdef bint _gather_messages(tuple waitables) noexcept:
    """Pause without access to shared memory. Return True if a handle is readable after the pause.

    If a publisher is as fast as this subscriber, the publisher sends several messages during the pause. Without the
    pause, the subscriber fetches cache lines for each message, and often announces a sleep. Each announced sleep costs
    the publisher a system call. If no message comes, the next sleeps begin without a pause.
    """
    cdef Waitable first = <Waitable> PySequence_Fast_ITEMS(waitables)[0]
    if first._sleeps_without_pause:
        first._sleeps_without_pause -= 1
        return False
    for _ in range(GATHER_PAUSES):
        mq_cpu_relax()
    if _has_readable_handle(waitables):
        return True
    first._sleeps_without_pause = SLEEPS_WITHOUT_PAUSE
    return False


cdef int _spin_until_readable(tuple waitables, int64_t deadline) except -1:
    """Poll for the longest spin time of all handles; without a spin time, at most once. Return 1 if one is readable."""
    cdef PyObject **each = PySequence_Fast_ITEMS(waitables)
    cdef int64_t now, breath, until = 0
    for i in range(PyTuple_GET_SIZE(waitables)):
        until = max(until, (<Waitable> each[i])._spin_us)
    if not until:
        return _gather_messages(waitables)
    now = mq_monotonic_ns()
    breath, until = now + SPIN_GIL_NS, now + until * 1000
    if deadline >= 0:
        until = min(until, deadline)
    while (now := mq_monotonic_ns()) < until:
        if _has_readable_handle(waitables):
            return 1
        if now > breath:
            with nogil:  # lets a publisher in another thread run
                sched_yield()
            _run_signal_handlers(waitables, _has_handle_ended_by_signals(waitables), False)
            breath = now + SPIN_GIL_NS
    return 0


cdef int64_t _prepare_sleep(tuple waitables, mq_futex_waitv_entry *words, int64_t slept_ns) except -2:
    """Announce the sleep of all handles. Return the longest sleep in ns (0: one is readable already)."""
    cdef PyObject **each = PySequence_Fast_ITEMS(waitables)
    cdef Py_ssize_t i, count = PyTuple_GET_SIZE(waitables)
    cdef int64_t shortest = INT64_MAX
    cdef uint32_t expected
    cdef mq_object_lock lock
    for i in range(count):  # these calls may raise, so make them before the announcements
        shortest = min(shortest, _max_sleep_locked(each[i], slept_ns))
    for i in range(count):
        mq_lock_object(&lock, (<Waitable> each[i])._guard)
        expected = (<Waitable> each[i])._prepare_wait()
        mq_unlock_object(&lock)
        if i < MQ_FUTEX_WAITV_MAX:
            words[i].address = <uint64_t> <size_t> (<Waitable> each[i])._futex_word()
            words[i].expected = expected
            words[i].flags, words[i].reserved = MQ_FUTEX_32, 0
    return 0 if _has_readable_handle(waitables) else shortest


cdef int64_t _max_sleep_locked(PyObject *waitable, int64_t slept_ns) except -2:
    cdef mq_object_lock lock
    mq_lock_object(&lock, (<Waitable> waitable)._guard)
    try:
        return (<Waitable> waitable)._max_sleep_ns(slept_ns)
    finally:
        mq_unlock_object(&lock)


cdef object _get_running_loop = None  # asyncio's function; None: the program has not imported asyncio


cpdef int warn_in_event_loop() except -1:
    """Warn if this thread runs an event loop of asyncio. Call it before a sleep."""
    global _get_running_loop
    if _get_running_loop is None:
        # `asyncio` imports this module after asyncio.events, where a function of Python is replaced by one of C.
        if PyDict_GetItemWithError(PyImport_GetModuleDict(), "asyncio.runners") == NULL:
            return 0
        from asyncio.events import _get_running_loop
    if _get_running_loop() is not None:
        warn_program(
            "this call waits in a running event loop of asyncio, so that all tasks of the loop wait, too; await "
            "areceive() or the apoll() of a poller, or call the function with asyncio.to_thread()"
        )
    return 0


cdef bint wait_until_ready(tuple waitables, int64_t deadline) except -1:
    """Sleep until a handle may be readable. Return False at the deadline (ns of `_now_ns`, -1: none)."""
    cdef str closed = None
    cdef bint ends_by_signals, logs_signals = False
    if (<Waitable> PySequence_Fast_ITEMS(waitables)[0])._bus is not None:
        return _wait_on_bus(waitables, deadline)
    if _spin_until_readable(waitables, deadline):
        return True
    warn_in_event_loop()
    _begin_uses(waitables)
    try:
        ends_by_signals = _has_handle_ended_by_signals(waitables)
        logs_signals = ends_by_signals and _begin_signal_log()
        ready = _sleep_until_ready(waitables, deadline, ends_by_signals, logs_signals)
    finally:
        if logs_signals:
            _end_signal_log()
        closed = _end_uses(waitables)
    if closed is not None:
        raise end_daemon_or(EndpointClosedError("was closed during the wait", closed))
    return ready


cdef int _begin_uses(tuple waitables) except -1:
    """Acquire all handles, or raise: other Python code may have closed a handle during this call."""
    cdef PyObject **each = PySequence_Fast_ITEMS(waitables)
    cdef mq_object_lock lock
    cdef object error = None
    for i in range(PyTuple_GET_SIZE(waitables)):
        mq_lock_object(&lock, (<Waitable> each[i])._guard)
        if (<Waitable> each[i])._use_state == fork_generation:
            (<Waitable> each[i])._begin_use()
        else:
            error = usage_error((<Waitable> each[i])._use_state, (<Waitable> each[i])._endpoint)
        mq_unlock_object(&lock)
        if error is not None:
            _end_uses(waitables[:i])
            raise error
    return 0


cdef str _end_uses(tuple waitables):
    """Release all handles, and close those that were to be closed. Return the endpoint of a closed handle, or None."""
    cdef PyObject **each = PySequence_Fast_ITEMS(waitables)
    cdef str closed = None
    for i in range(PyTuple_GET_SIZE(waitables)):
        if _end_use_locked(each[i]):
            closed = (<Waitable> each[i])._endpoint
    return closed


cdef bint _end_use_locked(PyObject *waitable) except -1:
    """Release a handle. Return True if it was to be closed, and is closed now."""
    cdef mq_object_lock lock
    mq_lock_object(&lock, (<Waitable> waitable)._guard)
    try:
        (<Waitable> waitable)._end_use()
        if not (<Waitable> waitable)._is_closing or (<Waitable> waitable)._fork_generation != fork_generation:
            return False
        (<Waitable> waitable)._close_handle()
        return True
    finally:
        mq_unlock_object(&lock)


cdef bint _sleep_until_ready(tuple waitables, int64_t deadline, bint ends_by_signals, bint logs_signals) except -1:
    """Sleep as wait_until_ready says. Return also if a handle is about to be closed."""
    cdef PyObject **each = PySequence_Fast_ITEMS(waitables)
    cdef Py_ssize_t i, count = PyTuple_GET_SIZE(waitables)
    cdef mq_futex_waitv_entry words[MQ_FUTEX_WAITV_MAX]
    cdef int64_t nap, until, now = mq_monotonic_ns(), started = now
    cdef int generation = fork_generation
    cdef int ended = 0
    cdef bint has_slept = False
    cdef mq_object_lock lock
    while True:
        # Run signal handlers before the sleep. After the sleep, handlers would delay the message that ended the sleep.
        _run_signal_handlers(waitables, ends_by_signals,
                             ended == EINTR or has_slept and logs_signals and _has_logged_signal())
        if _has_closing_handle(waitables):
            return False
        if generation != fork_generation:
            return True  # a signal handler forked this child, so the caller acquires the handles again
        nap = _prepare_sleep(waitables, words, now - started)
        if nap:
            until = now + nap
            if 0 <= deadline < until:
                until = deadline
            with nogil:
                ended = sleep_on_futexes(words, count, until)
            has_slept = True
        for i in range(count):
            mq_lock_object(&lock, (<Waitable> each[i])._guard)
            (<Waitable> each[i])._end_wait()
            mq_unlock_object(&lock)
        if nap == 0:  # a message came during the announcement, so pauses gather messages again
            (<Waitable> each[0])._sleeps_without_pause = 0
            return True
        if _has_readable_handle(waitables):
            return True
        now = mq_monotonic_ns()
        if 0 <= deadline <= now:
            return False


cdef int _run_signal_handlers(tuple waitables, bint ends_by_signals, bint interrupted) except -1:
    """Run pending signal handlers. `interrupted`: a signal came during the wait, and ends it if `ends_by_signals`.

    In that case only KeyboardInterrupt is raised as it is. Another exception becomes the cause of the wait's error.
    """
    if not ends_by_signals:
        PyErr_CheckSignals()
        return 0
    endpoint = (<Waitable> PySequence_Fast_ITEMS(waitables)[0])._endpoint
    try:
        PyErr_CheckSignals()
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise InterruptedWaitError("signal handler raised during the wait", endpoint) from error
    if interrupted:
        raise InterruptedWaitError("signal handler ran during the wait", endpoint)
    return 0


cdef bint _has_handle_ended_by_signals(tuple waitables) noexcept:
    cdef PyObject **each = PySequence_Fast_ITEMS(waitables)
    for i in range(PyTuple_GET_SIZE(waitables)):
        if (<Waitable> each[i])._signals_end_wait:
            return True
    return False


cdef bint _has_closing_handle(tuple waitables) noexcept:
    cdef PyObject **each = PySequence_Fast_ITEMS(waitables)
    for i in range(PyTuple_GET_SIZE(waitables)):
        if (<Waitable> each[i])._is_closing:
            return True
    return False
