"""Wait for several readers of any type."""


cdef class Poller:
    """Waits for several readers. See the type stub (core.pyi)."""

    def __cinit__(self):
        self._registered = (), ()

    def _register_reader(self, Waitable reader not None, result, bint replaces):
        if reader._use_state == CLOSED:
            raise usage_error(CLOSED, reader._endpoint)
        readers, results = self._registered
        cdef Py_ssize_t i = _find_reader(readers, reader)
        if i < 0:
            self._registered = (*readers, reader), (*results, result)
        elif replaces:
            self._registered = readers, (*results[:i], result, *results[i + 1:])

    def _unregister_reader(self, Waitable reader not None):
        readers, results = self._registered
        cdef Py_ssize_t i = _find_reader(readers, reader)
        if i < 0:
            raise KeyError(reader)
        self._registered = (*readers[:i], *readers[i + 1:]), (*results[:i], *results[i + 1:])

    def _registered_sockets(self):
        return self._registered[0]

    def apoll(self, timeout):
        return load_event_loop().poll_async(self, parse_timeout_ms(timeout, ""))

    def poll(self, timeout=None):
        cdef int wait_ms = WAIT_FOREVER if timeout is None else parse_timeout_ms(timeout, "")
        if self._descriptors:
            return self._poll_with_descriptors(wait_ms)
        return self._poll_readers(wait_ms)

    def _poll_at_once(self):
        return self._poll_readers(0)

    cdef list _poll_readers(self, int wait_ms):
        cdef tuple readers, results
        readers, results = self._registered  # another thread may register more readers during the poll
        cdef list ready
        cdef int64_t deadline = 0
        self._last_poll_was_step = _pass_event_gates(readers)
        if not PyTuple_GET_SIZE(readers):
            return []
        if self._last_poll_was_step:
            wait_ms = 0  # the controller has sent all messages of this step
        if wait_ms:
            deadline = WAIT_FOREVER if wait_ms < 0 else _now_of(readers) + wait_ms * <int64_t> MQ_NS_PER_MS
        ready = _collect_ready(readers, results)
        while ready is None and wait_ms and wait_until_ready(readers, deadline):
            ready = _collect_ready(readers, results)
            if ready is None:  # publishers may lap a subscriber whenever it becomes readable
                PyErr_CheckSignals()
                if 0 <= deadline <= _now_of(readers):
                    wait_ms = 0
        return [] if ready is None else ready


cdef Py_ssize_t _find_reader(tuple readers, Waitable reader) noexcept:
    for i in range(PyTuple_GET_SIZE(readers)):
        if PySequence_Fast_ITEMS(readers)[i] == <PyObject *> reader:
            return i
    return -1


cdef int64_t _now_of(tuple readers) noexcept:
    return (<Waitable> PySequence_Fast_ITEMS(readers)[0])._now_ns()


cdef list _collect_ready(tuple readers, tuple results):
    """Return the results of the readers that are ready; None if no reader is ready."""
    cdef PyObject **each = PySequence_Fast_ITEMS(readers)
    cdef list ready = None
    for i in range(PyTuple_GET_SIZE(readers)):
        if _poll_locked(each[i]):
            if ready is None:
                ready = []
            ready.append(<object> PySequence_Fast_ITEMS(results)[i])
    return ready


cdef bint _pass_event_gates(tuple readers) except -1:
    """Pass the gates of an event-gated run, one after the other. Return False if there was none."""
    cdef PyObject **each = PySequence_Fast_ITEMS(readers)
    cdef bint any_gate = False
    for i in range(PyTuple_GET_SIZE(readers)):
        any_gate |= _begin_poll_locked(each[i])
    return any_gate


# The lock of the poller is not that of its readers (object_lock.h).

cdef bint _poll_locked(PyObject *reader) except -1:
    cdef mq_object_lock lock
    mq_lock_object(&lock, (<Waitable> reader)._guard)
    try:
        return (<Waitable> reader)._poll_now()
    finally:
        mq_unlock_object(&lock)


cdef bint _begin_poll_locked(PyObject *reader) except -1:
    cdef mq_object_lock lock
    mq_lock_object(&lock, (<Waitable> reader)._guard)
    try:
        return (<Waitable> reader)._begin_poll()
    finally:
        mq_unlock_object(&lock)
