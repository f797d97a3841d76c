"""Event-gated receiving: handles and events for the controller, gates for subscribers (docs/guides/fake-events.md).

The layout is in layout.h, the protocol in gate.h, and the files in gatefile.pxi.
"""


cdef enum:
    RECV_CALLED = 0
    RECV_READY = 1
    # Spin time before a sleep, in nanoseconds. If two processes wait for each other, a step takes 2 to 10 us, and a
    # wake takes 5 to 50 us. The spin time doubles after a short wait, and halves after a long wait.
    MIN_SPIN_NS = 2000
    MAX_SPIN_NS = 50000
    # First and longest sleep, in nanoseconds. Polls detect the death of the controller, and a signal that arrived just
    # before the system call.
    MIN_SLEEP_NS = 50000000
    MAX_SLEEP_NS = 1000000000

cdef int64_t _adaptive_spin_ns = MAX_SPIN_NS  # spin of the last wait of any thread


# ---- wait ----


cdef inline mq_fake_event *_shared_event(Event event):
    return mq_fake_event_select(event._event_handle._event_gate, event._event_index)


cdef Py_ssize_t _find_set_event(list events) noexcept:
    cdef Py_ssize_t i
    for i in range(len(events)):
        if mq_fake_event_is_set(_shared_event(<Event> events[i])):
            return i
    return -1


cdef Py_ssize_t _prepare_event_wait(list events, mq_futex_waitv_entry *words) noexcept:
    """Announce a sleep on each event. Return the first event that is set already, or -1."""
    cdef Py_ssize_t i
    cdef uint32_t expected
    for i in range(len(events)):
        expected = mq_fake_event_prepare_wait(_shared_event(<Event> events[i]))
        if expected >= MQ_FAKE_EVENT_ONE:
            return i
        if i < MQ_FUTEX_WAITV_MAX:
            words[i].expected = expected
    return -1


cdef bint _has_closed_gate(list events) noexcept:
    for event in events:
        if mq_event_gate_is_closed((<Event> event)._event_handle._event_gate):
            return True
    return False


cdef Py_ssize_t _sleep_until_event(list events, mq_futex_waitv_entry *words, int64_t deadline,
                                   FakeEventGate gate) except -2:
    """As _spin_or_sleep_until_event, without spinning."""
    cdef int64_t until, nap = MIN_SLEEP_NS
    cdef unsigned count = len(events)
    cdef Py_ssize_t i
    while True:
        PyErr_CheckSignals()
        i = _prepare_event_wait(events, words)
        if i >= 0 or _has_closed_gate(events) or (gate is not None and not gate._blocks_receive()):
            return i
        until = mq_monotonic_ns() + nap
        if 0 <= deadline < until:
            until = deadline
        with nogil:
            sleep_on_futexes(words, count, until)
        i = _find_set_event(events)
        for event in events:
            (<Event> event)._event_handle._check_truncation()
        if i >= 0 or 0 <= deadline <= mq_monotonic_ns():
            return i
        for event in events:
            (<Event> event)._event_handle._check_owner()
        nap = min(2 * nap, <int64_t> MAX_SLEEP_NS)


cdef Py_ssize_t _spin_or_sleep_until_event(list events, int64_t deadline, FakeEventGate gate) except -2:
    """Wait for one of the events, and return the first that is set.

    Return -1 at the deadline (CLOCK_MONOTONIC, negative: never), if a gate was closed, or if `gate` does not stop us.
    """
    global _adaptive_spin_ns
    cdef mq_futex_waitv_entry words[MQ_FUTEX_WAITV_MAX]
    cdef unsigned j, count = min(len(events), <Py_ssize_t> MQ_FUTEX_WAITV_MAX)
    cdef int64_t until, started
    cdef Py_ssize_t i = _find_set_event(events)
    if i >= 0:
        return i
    started = mq_monotonic_ns()
    if 0 <= deadline <= started:
        return -1
    memset(words, 0, count * sizeof(mq_futex_waitv_entry))
    for j in range(count):
        words[j].address = <uint64_t> <size_t> mq_fake_event_futex_word(_shared_event(<Event> events[j]))
        words[j].flags = MQ_FUTEX_32
    until = started + _adaptive_spin_ns
    if 0 <= deadline < until:
        until = deadline
    with nogil:
        mq_fake_event_spin_until_set(words, count, until)
    i = _find_set_event(events)
    if i < 0:
        i = _sleep_until_event(events, words, deadline, gate)
    if mq_monotonic_ns() - started < 2 * MAX_SPIN_NS:
        _adaptive_spin_ns = min(2 * _adaptive_spin_ns, <int64_t> MAX_SPIN_NS)
    else:
        _adaptive_spin_ns = max(_adaptive_spin_ns // 2, <int64_t> MIN_SPIN_NS)
    return i


cdef Py_ssize_t _wait_for_event(list events, timeout) except -2:
    """Wait for one of the events, and return the first that is set. Raise at the timeout, or if no event can be set."""
    cdef int64_t deadline = WAIT_FOREVER
    cdef Py_ssize_t i
    if not events:
        raise InvalidValueError("no events to wait for; give at least one")
    for event in events:
        (<Event?> event)._event_handle._check_managed()
    endpoint = (<Event> events[0])._event_handle.endpoint
    check_seconds("timeout", timeout, "seconds", "-1", endpoint)
    if timeout != WAIT_FOREVER:
        if not 0 <= timeout <= INT32_MAX:
            text = f"timeout is {timeout} s; give 0 to {INT32_MAX}, or -1 to wait forever"
            raise InvalidValueError(text, endpoint)
        deadline = mq_monotonic_ns() + <int64_t> (timeout * 1e9)
    i = _spin_or_sleep_until_event(events, deadline, None)
    if i < 0:
        for event in events:
            (<Event> event)._event_handle._check_managed()
        which = "the event" if len(events) == 1 else f"none of the {len(events)} events (this endpoint's is the first)"
        raise EventTimeoutError(f"{which} was {'not ' if len(events) == 1 else ''}set within {timeout} s", endpoint)
    return i


def wait_for_one_event(events, timeout=-1):
    return _wait_for_event(list(events), timeout)


# ---- controller ----


cdef class Event:
    """One of the two events of a handle, which it keeps alive. See the type stub (core.pyi)."""

    cdef SocketEventHandle _event_handle
    cdef int _event_index

    def __cinit__(self, SocketEventHandle handle not None, bint which):
        self._event_handle = handle
        self._event_index = which

    def __repr__(self):
        return f"<msgq Event recv_{'ready' if self._event_index else 'called'} of {self._event_handle!r}>"

    def set(self):
        with critical_section(self._event_handle):
            self._event_handle._check_managed()
            self._event_handle._set_event(self._event_index)

    def clear(self):
        with critical_section(self._event_handle):
            self._event_handle._check_managed()
            return self._event_handle._clear_event(self._event_index)

    def wait(self, timeout_s=-1):
        _wait_for_event([self], timeout_s)

    def peek(self):
        self._event_handle._check_managed()
        is_set = mq_fake_event_is_set(_shared_event(self))
        self._event_handle._check_truncation()
        return is_set

    @property
    def fd(self):
        with critical_section(self._event_handle):
            return self._event_handle._event_fd(self._event_index)


cdef class SocketEventHandle:
    """Manages the gate of an endpoint. See the type stub (core.pyi). Its events lock it."""

    def __cinit__(self):
        self._fifo_fds[RECV_CALLED] = self._fifo_fds[RECV_READY] = -1

    def __init__(self, endpoint, identifier, bint override, bint enable=False):
        if self._gate_path is not None:
            raise StateError("handle was created already; use it", self.endpoint)
        self.endpoint = naming.validate_endpoint_name(endpoint)
        self.identifier = naming.validate_endpoint_name(identifier, "fake prefix") if identifier else ""
        self._gate_path = shm_paths.gate_path(self.endpoint, settings.get_prefix(), self.identifier)
        self._fork_generation = fork_generation
        if override:
            self._attach_gate_file(create_gate(self.endpoint, self._gate_path, enable, &self._liveness_token))
            self._owns_gate = True
            close_at_exit(self)
        elif (segment := open_gate(self.endpoint, self._gate_path)) is not None:
            self._attach_gate_file(segment)

    cdef int _attach_gate_file(self, Segment segment) except -1:
        self._gate_segment, self._memory = segment, use_memory(segment, segment.size)  # the closed gate stays closed
        self._event_gate = <mq_event_gate *> segment.address
        return 0

    def __del__(self):
        self.close()

    def __dealloc__(self):
        forget_at_exit(self)
        for which in range(2):
            if self._fifo_fds[which] >= 0:
                close(self._fifo_fds[which])
        if self._liveness_token != NULL and self._fork_generation == fork_generation:
            mq_liveness_unlock(self._liveness_token)

    def __repr__(self):
        state = "not managed"
        if self._event_gate != NULL:
            state = "closed" if mq_event_gate_is_closed(self._event_gate) else "open"
        return f"<msgq SocketEventHandle {self.endpoint!r}, {state}>"

    def close(self):
        if self._owns_gate and self._fork_generation == fork_generation:
            self._owns_gate = False
            mq_event_gate_close(self._event_gate)  # also if the name was removed, or belongs to another gate
            remove_gate(self.endpoint, self._gate_path, self._gate_segment.inode)
            mq_liveness_unlock(self._liveness_token)
            self._liveness_token = NULL
            self._memory = None

    def _close_at_exit(self):
        self.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    @property
    def enabled(self):
        on = (self._event_gate != NULL and not mq_event_gate_is_closed(self._event_gate)
              and mq_event_gate_is_enabled(self._event_gate))
        self._check_truncation()
        return on

    @enabled.setter
    def enabled(self, bint value):
        self._check_managed()
        mq_event_gate_set_enabled(self._event_gate, value)
        self._check_truncation()

    @property
    def recv_called_event(self):
        return Event(self, RECV_CALLED)

    @property
    def recv_ready_event(self):
        return Event(self, RECV_READY)

    cdef int _check_managed(self) except -1:
        """Raise if there is no gate to set or wait for."""
        if self._event_gate == NULL:
            raise EventError("is not managed: no handle with override existed at its creation", self.endpoint)
        if mq_event_gate_is_closed(self._event_gate):
            raise EventError("managing handle was closed or replaced; create a new handle", self.endpoint)
        return self._check_truncation()

    cdef int _check_truncation(self) except -1:
        """Raise if another program truncated the gate's file. Call this after each access."""
        if self._gate_segment is not None and mq_mapping_was_truncated(self._gate_segment.not_truncated):
            text = (f"has a gate of {self._gate_segment.size} bytes that another program truncated; create a "
                    "new one (fake_event_handle with override)")
            raise SegmentSizeError(text, self.endpoint, self._gate_path)
        return 0

    cdef int _check_owner(self) except -1:
        """Raise if the gate was truncated, or the process that created it is dead."""
        self._check_truncation()
        if self._owns_gate and self._fork_generation == fork_generation:
            return 0
        if mq_event_gate_owner_liveness(self._event_gate, &self._gate_segment.liveness_file) == MQ_DEAD:
            self._check_truncation()
            owner = mq_event_gate_owner_pid(self._event_gate)
            text = f"its controller (process {owner}) died; create a new handle with override"
            raise ControllerDiedError(text, self.endpoint)
        return 0

    cdef int _set_event(self, int which) except -1:
        changed = mq_fake_event_set(mq_fake_event_select(self._event_gate, which))
        self._check_truncation()
        if changed:
            self._sync_fifo(which)
        return 0

    cdef bint _clear_event(self, int which) except -1:
        change = mq_fake_event_clear(mq_fake_event_select(self._event_gate, which))
        self._check_truncation()
        if change == MQ_FAKE_EVENT_CLEARED_FIFO:
            try:
                self._sync_fifo(which)
            except BaseException:
                # after an error, set the event again
                mq_fake_event_set(mq_fake_event_select(self._event_gate, which))
                raise
        return change != MQ_FAKE_EVENT_WAS_CLEAR

    # ---- FIFOs ----

    cdef int _sync_fifo(self, int which) except -1:
        """Update the FIFO of an event that just became set or clear."""
        if self._fifo_fds[which] < 0 and not self._open_fifo(which, False):
            return 0
        mq_fake_event_sync_fifo(mq_fake_event_select(self._event_gate, which), self._fifo_fds[which])
        return 0

    cdef int _event_fd(self, int which) except -2:
        if self._event_gate == NULL or mq_event_gate_is_closed(self._event_gate):
            return -1
        if self._fifo_fds[which] < 0:
            self._make_fifo(which)
        return self._fifo_fds[which]

    cdef int _open_fifo(self, int which, bint fresh) except -1:
        """Open the FIFO of the event. Return 0 if the gate was closed and its files removed."""
        cdef struct_stat found
        cdef str path = self._gate_path + <str> FIFO_SUFFIX[which]
        cdef mq_fake_event *event = mq_fake_event_select(self._event_gate, which)
        cdef int fd = open_file(self.endpoint, path, O_RDWR)
        good = fd >= 0 and fstat(fd, &found) == 0 and S_ISFIFO(found.st_mode)
        good = good and is_trusted(found.st_uid)
        if not good or (not fresh and found.st_ino != mq_fake_event_fifo_inode(event)):
            if fd >= 0:
                close(fd)
            if mq_event_gate_is_closed(self._event_gate):
                return 0
            raise CorruptSegmentError("is not the FIFO of this event; remove it", self.endpoint, path)
        self._fifo_fds[which] = fd
        if fresh:
            mq_fake_event_attach_fifo(event, found.st_ino, fd)
        else:
            mq_fake_event_sync_fifo(event, fd)  # the bytes in the FIFO are lost if no process had the FIFO open
        return 1

    cdef int _make_fifo(self, int which) except -1:
        """Open the event's FIFO, and create it if needed."""
        cdef struct_stat found
        cdef int fd = open_file(self.endpoint, self._gate_path, O_RDWR)
        if fd < 0:
            raise EventError("file of the gate was removed", self.endpoint)
        try:
            lock_file(fd, self.endpoint, self._gate_path)
            check_file(fd, &found, self.endpoint, self._gate_path)
            if not found.st_nlink or found.st_ino != self._gate_segment.inode:
                raise EventError("gate was replaced by another gate", self.endpoint)
            fresh = mq_fake_event_fifo_inode(mq_fake_event_select(self._event_gate, which)) == 0
            if fresh:
                path = self._gate_path + FIFO_SUFFIX[which]
                remove_file(self.endpoint, path)  # a process that died before it attached the FIFO may have left a file
                os.mkfifo(path, 0o600)
                # If this user is not a member of the gate's group, the permission bits for others apply.
                with contextlib.suppress(PermissionError):
                    os.chown(path, -1, found.st_gid)
                os.chmod(path, found.st_mode & 0o666)  # set the mode regardless of the umask
            self._open_fifo(which, fresh)
        finally:
            unlock_file(fd)
        return 0


# ---- subscriber ----


cdef class FakeEventGate(ReceiveGate):
    """The gate of a subscriber. Used by one thread at a time."""

    def __cinit__(self, str endpoint, str in_prefix, str identifier):
        self._endpoint = endpoint
        self._identifier = identifier
        self._gate_path = shm_paths.gate_path(endpoint, in_prefix, identifier)

    cdef int _find_gate(self) except -1:
        """Find the current gate of the endpoint, if any. Without a gate, this takes one system call."""
        cdef SocketEventHandle handle
        self._event_handle, self._has_announced_receive = None, False
        if (segment := open_gate(self._endpoint, self._gate_path)) is not None:
            handle = SocketEventHandle.__new__(SocketEventHandle)
            handle.endpoint, handle.identifier, handle._gate_path = self._endpoint, self._identifier, self._gate_path
            handle._attach_gate_file(segment)
            self._event_handle, self._ready_events = handle, [Event(handle, RECV_READY)]
        return 0

    cdef bint wait_until_released(self, const bint *cancelled) except -1:
        """Announce a receive to the controller, and wait until it releases us.

        Return False if the gate does not stop us.

        Return False also when `*cancelled` becomes true. After an exception, the next call continues the wait, without
        a second announcement. A forked child's receive is announced separately.
        """
        self._cancel_flag = cancelled
        while True:
            if self._event_handle is None or mq_event_gate_is_closed(self._event_handle._event_gate):
                self._find_gate()
            if self._event_handle is None or not self._is_gate_enabled():
                self._has_announced_receive = False
                return False
            if not self._has_announced_receive or self._fork_generation != fork_generation:
                self._has_announced_receive, self._fork_generation = True, fork_generation
                self._event_handle._set_event(RECV_CALLED)
            try:
                ready = _spin_or_sleep_until_event(self._ready_events, WAIT_FOREVER, self)
            except (ControllerDiedError, SegmentSizeError):
                # The next receive searches for another controller's gate.
                self._event_handle, self._has_announced_receive = None, False
                raise
            if cancelled[0]:
                return False
            # If `ready` is not 0, the gate lets this subscriber pass. If the clear fails, another subscriber was first.
            if ready == 0 and self._event_handle._clear_event(RECV_READY):
                self._has_announced_receive = False
                return True

    cdef bint _is_gate_enabled(self) except -1:
        """True if the gate is enabled. After a truncation, the next receive searches for the gate again."""
        cdef bint enabled = mq_event_gate_is_enabled(self._event_handle._event_gate)
        cdef SocketEventHandle handle = self._event_handle
        if mq_mapping_was_truncated(handle._gate_segment.not_truncated):
            self._event_handle, self._has_announced_receive = None, False
            handle._check_truncation()
        return enabled

    cdef bint _blocks_receive(self) noexcept:
        """True if the gate still stops this receive."""
        if self._cancel_flag[0] or self._fork_generation != fork_generation:
            return False
        return mq_event_gate_is_enabled(self._event_handle._event_gate)

    cdef void interrupt_wait(self) noexcept:
        """Wake a thread in `wait_until_released`, which then checks `*cancelled`."""
        cdef mq_fake_event *event
        if self._event_handle is not None:
            event = mq_fake_event_select(self._event_handle._event_gate, RECV_READY)
            mq_futex_wake_all(mq_fake_event_futex_word(event))
