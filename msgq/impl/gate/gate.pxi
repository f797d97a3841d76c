"""Event-gated receiving: handles and events for the controller, gates for subscribers (docs/guides/fake-events.md).

The bytes are in layout.h, the protocol is in gate.h, the files in gatefile.pxi.
"""


cdef enum:
    CALLED = 0
    READY = 1
    # How long a wait looks before it sleeps, in nanoseconds: a step of two processes that wait for each other takes 2
    # to 10 us, waking a sleeper 5 to 50. Doubled after a wait that was short, halved after one that was not.
    SPIN_MIN_NS = 2000
    SPIN_MAX_NS = 50000
    # How long a sleep may last: the first time, and at most. Then a signal that came just before the system call is
    # heard, and the death of the controller noticed.
    NAP_MIN_NS = 50000000
    NAP_MAX_NS = 1000000000

cdef int64_t _spin_ns = SPIN_MAX_NS


# ---- waiting ----


cdef inline mq_fake_event *_shared_event(Event event):
    return mq_fake_event_select(event._handle._gate, event._which)


cdef Py_ssize_t _first_set(list events) noexcept:
    cdef Py_ssize_t i
    for i in range(len(events)):
        if mq_fake_event_is_set(_shared_event(<Event> events[i])):
            return i
    return -1


cdef Py_ssize_t _announce_sleep(list events, mq_futex_waitv_entry *words) noexcept:
    """Have us woken by each event; returns the first that is set already, or -1."""
    cdef Py_ssize_t i
    cdef uint32_t expected
    for i in range(len(events)):
        expected = mq_fake_event_prepare_wait(_shared_event(<Event> events[i]))
        if expected >= MQ_FAKE_EVENT_ONE:
            return i
        if i < MQ_FUTEX_WAITV_MAX:
            words[i].expected = expected
    return -1


cdef bint _any_closed(list events) noexcept:
    for event in events:
        if mq_event_gate_is_closed((<Event> event)._handle._gate):
            return True
    return False


cdef Py_ssize_t _sleep(list events, mq_futex_waitv_entry *words, int64_t deadline, Gate gate) except -2:
    """Do what await_one says, without spinning."""
    cdef int64_t until, nap = NAP_MIN_NS
    cdef unsigned count = len(events)
    cdef Py_ssize_t i
    while True:
        PyErr_CheckSignals()
        i = _announce_sleep(events, words)
        if i >= 0 or _any_closed(events) or (gate is not None and not gate._is_blocking()):
            return i
        until = mq_monotonic_ns() + nap
        if 0 <= deadline < until:
            until = deadline
        with nogil:
            sleep_on(words, count, until)
        i = _first_set(events)
        for event in events:
            (<Event> event)._handle._check_truncation()
        if i >= 0 or 0 <= deadline <= mq_monotonic_ns():
            return i
        for event in events:
            (<Event> event)._handle._check_owner()
        nap = min(2 * nap, <int64_t> NAP_MAX_NS)


cdef Py_ssize_t _await_one(list events, int64_t deadline, Gate gate) except -2:
    """Return the first of the events that is set, waiting for one.

    -1: the deadline (CLOCK_MONOTONIC, negative: never) is over, a gate was closed, or `gate` (if any) does not hold us.
    """
    global _spin_ns
    cdef mq_futex_waitv_entry words[MQ_FUTEX_WAITV_MAX]
    cdef unsigned j, count = min(len(events), <Py_ssize_t> MQ_FUTEX_WAITV_MAX)
    cdef int64_t until, started
    cdef Py_ssize_t i = _first_set(events)
    if i >= 0:
        return i
    started = mq_monotonic_ns()
    if 0 <= deadline <= started:
        return -1
    memset(words, 0, count * sizeof(mq_futex_waitv_entry))
    for j in range(count):
        words[j].address = <uint64_t> <size_t> mq_fake_event_futex_word(_shared_event(<Event> events[j]))
        words[j].flags = MQ_FUTEX_32
    until = started + _spin_ns
    if 0 <= deadline < until:
        until = deadline
    with nogil:
        mq_fake_event_spin_until_set(words, count, until)
    i = _first_set(events)
    if i < 0:
        i = _sleep(events, words, deadline, gate)
    if mq_monotonic_ns() - started < 2 * SPIN_MAX_NS:
        _spin_ns = min(2 * _spin_ns, <int64_t> SPIN_MAX_NS)
    else:
        _spin_ns = max(_spin_ns // 2, <int64_t> SPIN_MIN_NS)
    return i


cdef Py_ssize_t _wait(list events, timeout) except -2:
    """Return the first of the events that is set; an error when there is none in time, or there cannot be one."""
    cdef int64_t deadline = WAIT_FOREVER
    cdef Py_ssize_t i
    if not events:
        raise InvalidValueError("there are no events to wait for")
    for event in events:
        (<Event?> event)._handle._check()
    endpoint = (<Event> events[0])._handle.endpoint
    check_seconds("the time-out", timeout, "seconds", "-1", endpoint)
    if timeout != WAIT_FOREVER:
        if not 0 <= timeout <= INT32_MAX:
            text = f"a time-out of {timeout} s is not possible; give 0 to {INT32_MAX}, or -1 to wait for ever"
            raise InvalidValueError(text, endpoint)
        deadline = mq_monotonic_ns() + <int64_t> (timeout * 1e9)
    i = _await_one(events, deadline, None)
    if i < 0:
        for event in events:
            (<Event> event)._handle._check()
        which = "the event" if len(events) == 1 else f"none of the {len(events)} events (this endpoint's is the first)"
        raise EventTimeoutError(f"{which} was {'not ' if len(events) == 1 else ''}set within {timeout} s", endpoint)
    return i


def wait_for_one_event(events, timeout=-1):
    return _wait(list(events), timeout)


# ---- the controller's side ----


cdef class Event:
    """One of the two events of a handle, which it keeps alive. See the type stub (core.pyi)."""

    cdef SocketEventHandle _handle
    cdef int _which

    def __cinit__(self, SocketEventHandle handle not None, bint which):
        self._handle = handle
        self._which = which

    def __repr__(self):
        return f"<msgq Event recv_{'ready' if self._which else 'called'} of {self._handle!r}>"

    def set(self):
        self._handle._check()
        self._handle._set(self._which)

    def clear(self):
        self._handle._check()
        return self._handle._clear(self._which)

    def wait(self, timeout_s=-1):
        _wait([self], timeout_s)

    def peek(self):
        self._handle._check()
        is_set = mq_fake_event_is_set(_shared_event(self))
        self._handle._check_truncation()
        return is_set

    @property
    def fd(self):
        return self._handle._descriptor(self._which)


cdef class SocketEventHandle:
    """Manages the gate of an endpoint. See the type stub (core.pyi)."""

    def __cinit__(self):
        self._fifos[CALLED] = self._fifos[READY] = -1

    def __init__(self, endpoint, identifier, bint override, bint enable=False):
        if self._path is not None:
            raise StateError("the handle was made already", self.endpoint)
        self.endpoint = naming.validate_endpoint_name(endpoint)
        self.identifier = naming.validate_endpoint_name(identifier, "fake prefix") if identifier else ""
        self._path = shm_paths.gate_path(self.endpoint, settings.get_prefix(), self.identifier)
        self._generation = fork_generation
        if override:
            self._map(make_gate(self.endpoint, self._path, enable, &self._liveness_token))
            self._owner = True
            close_at_exit(self)
        elif (segment := open_gate(self.endpoint, self._path)) is not None:
            self._map(segment)

    cdef int _map(self, Segment segment) except -1:
        self._segment = segment
        self._gate = <mq_event_gate *> segment.address
        return 0

    def __del__(self):
        self.close()

    def __dealloc__(self):
        for which in range(2):
            if self._fifos[which] >= 0:
                close(self._fifos[which])
        if self._liveness_token != NULL and self._generation == fork_generation:
            mq_liveness_unlock(self._liveness_token)

    def __repr__(self):
        state = "not managed" if self._gate == NULL else "closed" if mq_event_gate_is_closed(self._gate) else "open"
        return f"<msgq SocketEventHandle {self.endpoint!r}, {state}>"

    def close(self):
        if self._owner and self._generation == fork_generation:
            self._owner = False
            mq_event_gate_close(self._gate)  # also when its name is gone or belongs to another one by now
            remove_gate(self.endpoint, self._path, self._segment.inode)
            mq_liveness_unlock(self._liveness_token)
            self._liveness_token = NULL

    def _close_at_exit(self):
        self.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    @property
    def enabled(self):
        on = self._gate != NULL and not mq_event_gate_is_closed(self._gate) and mq_event_gate_is_enabled(self._gate)
        self._check_truncation()
        return on

    @enabled.setter
    def enabled(self, bint value):
        self._check()
        mq_event_gate_set_enabled(self._gate, value)
        self._check_truncation()

    @property
    def recv_called_event(self):
        return Event(self, CALLED)

    @property
    def recv_ready_event(self):
        return Event(self, READY)

    cdef int _check(self) except -1:
        """Refuse when there is nothing to set or wait for."""
        if self._gate == NULL:
            raise EventError("is not managed: there was no handle with override when this one was made", self.endpoint)
        if mq_event_gate_is_closed(self._gate):
            raise EventError("the handle that managed it was closed, or replaced by another one", self.endpoint)
        return self._check_truncation()

    cdef int _check_truncation(self) except -1:
        """Raise if another program truncated the gate's file. Call this after each access."""
        if self._segment is not None and was_truncated(self._segment.guard):
            text = (f"has a gate that had {self._segment.size} bytes, and another program made it smaller; make a new "
                    "one (fake_event_handle with override)")
            raise SegmentSizeError(text, self.endpoint, self._path)
        return 0

    cdef int _check_owner(self) except -1:
        """Raise if the gate was truncated, or the process that made it is dead."""
        self._check_truncation()
        if self._owner and self._generation == fork_generation:
            return 0
        if mq_event_gate_owner_liveness(self._gate, &self._segment.liveness_file) == MQ_DEAD:
            self._check_truncation()
            owner = mq_event_gate_owner_pid(self._gate)
            text = f"process {owner}, which made its handle, died; make a new one, with override"
            raise ControllerDiedError(text, self.endpoint)
        return 0

    cdef int _set(self, int which) except -1:
        changed = mq_fake_event_set(mq_fake_event_select(self._gate, which))
        self._check_truncation()
        if changed:
            self._sync_fifo(which)
        return 0

    cdef bint _clear(self, int which) except -1:
        change = mq_fake_event_clear(mq_fake_event_select(self._gate, which))
        self._check_truncation()
        if change == MQ_FAKE_EVENT_CLEARED_FIFO:
            try:
                self._sync_fifo(which)
            except BaseException:
                mq_fake_event_set(mq_fake_event_select(self._gate, which))  # who gets an error has taken nothing
                raise
        return change != MQ_FAKE_EVENT_WAS_CLEAR

    # ---- FIFOs ----

    cdef int _sync_fifo(self, int which) except -1:
        """The event just became set, or ceased to be: bring its FIFO in line."""
        if self._fifos[which] < 0 and not self._open_fifo(which, False):
            return 0
        mq_fake_event_sync_fifo(mq_fake_event_select(self._gate, which), self._fifos[which])
        return 0

    cdef int _descriptor(self, int which) except -2:
        if self._gate == NULL or mq_event_gate_is_closed(self._gate):
            return -1
        if self._fifos[which] < 0:
            self._make_fifo(which)
        return self._fifos[which]

    cdef int _open_fifo(self, int which, bint fresh) except -1:
        """Open the FIFO that was just made, or that the event names; 0: the gate was closed and its files removed."""
        cdef struct_stat found
        cdef str path = self._path + <str> FIFO_SUFFIX[which]
        cdef mq_fake_event *event = mq_fake_event_select(self._gate, which)
        cdef int fd = open_file(self.endpoint, path, O_RDWR)
        good = fd >= 0 and fstat(fd, &found) == 0 and S_ISFIFO(found.st_mode) and file_permissions.is_trusted(found.st_uid)
        if not good or (not fresh and found.st_ino != mq_fake_event_fifo_inode(event)):
            if fd >= 0:
                close(fd)
            if mq_event_gate_is_closed(self._gate):
                return 0
            raise CorruptSegmentError("is not the FIFO that was made for this event", self.endpoint, path)
        self._fifos[which] = fd
        if fresh:
            mq_fake_event_attach_fifo(event, found.st_ino, fd)
        else:
            mq_fake_event_sync_fifo(event, fd)  # its bytes are gone if nobody had it open meanwhile
        return 1

    cdef int _make_fifo(self, int which) except -1:
        """Open the event's FIFO, made if this is the first who asks."""
        cdef struct_stat found
        cdef int fd = open_file(self.endpoint, self._path, O_RDWR)
        if fd < 0:
            raise EventError("its gate's file was removed", self.endpoint)
        try:
            lock_file(fd, self.endpoint, self._path)
            check_file(fd, &found, self.endpoint, self._path)
            if not found.st_nlink or found.st_ino != self._segment.inode:
                raise EventError("its gate was replaced by another one", self.endpoint)
            fresh = mq_fake_event_fifo_inode(mq_fake_event_select(self._gate, which)) == 0
            if fresh:
                path = self._path + FIFO_SUFFIX[which]
                remove_file(self.endpoint, path)  # of one that died in between
                os.mkfifo(path, 0o600)
                with contextlib.suppress(PermissionError):  # no member of the gate's group: others' bits are for us
                    os.chown(path, -1, found.st_gid)
                os.chmod(path, found.st_mode & 0o666)  # whatever the umask says
            self._open_fifo(which, fresh)
        finally:
            unlock_file(fd)
        return 0


# ---- the subscriber's side ----


cdef class Gate:
    """What a subscriber stops at. Used by one thread at a time."""

    def __cinit__(self, str endpoint, str in_prefix, str identifier):
        self._endpoint = endpoint
        self._identifier = identifier
        self._path = shm_paths.gate_path(endpoint, in_prefix, identifier)

    cdef int _find_gate(self) except -1:
        """Find the gate that the endpoint has now, if any. One system call while it has none."""
        cdef SocketEventHandle handle
        self._handle, self._called = None, False
        if (segment := open_gate(self._endpoint, self._path)) is not None:
            handle = SocketEventHandle.__new__(SocketEventHandle)
            handle.endpoint, handle.identifier, handle._path = self._endpoint, self._identifier, self._path
            handle._map(segment)
            self._handle, self._ready = handle, [Event(handle, READY)]
        return 0

    cdef bint enter(self, const bint *cancelled) except -1:
        """Tell the controller of a receive and wait until it lets us through; False: it does not want to know.

        False as well when `*cancelled` becomes true. What an exception interrupts goes on at the next call: the
        controller is not told twice. A forked child's receive is another one: it is told of that, too.
        """
        self._cancelled = cancelled
        while True:
            if self._handle is None or mq_event_gate_is_closed(self._handle._gate):
                self._find_gate()
            if self._handle is None or not self._is_enabled():
                self._called = False
                return False
            if not self._called or self._generation != fork_generation:
                self._called, self._generation = True, fork_generation
                self._handle._set(CALLED)
            try:
                ready = _await_one(self._ready, WAIT_FOREVER, self)
            except (ControllerDiedError, SegmentSizeError):
                self._handle, self._called = None, False  # the next receive looks for another controller's
                raise
            if cancelled[0]:
                return False
            if ready == 0 and self._handle._clear(READY):  # otherwise not held, or another subscriber was faster
                self._called = False
                return True

    cdef bint _is_enabled(self) except -1:
        """Whether the gate is enabled. After a truncation, the next receive looks for the gate again."""
        cdef bint enabled = mq_event_gate_is_enabled(self._handle._gate)
        cdef SocketEventHandle handle = self._handle
        if was_truncated(handle._segment.guard):
            self._handle, self._called = None, False
            handle._check_truncation()
        return enabled

    cdef bint _is_blocking(self) noexcept:
        """Whether there is still something to wait for."""
        if self._cancelled[0] or self._generation != fork_generation:
            return False
        return mq_event_gate_is_enabled(self._handle._gate)

    cdef void wake(self) noexcept:
        """Have a thread that waits in `enter` look at `*cancelled`."""
        if self._handle is not None:
            mq_futex_wake_all(mq_fake_event_futex_word(mq_fake_event_select(self._handle._gate, READY)))
