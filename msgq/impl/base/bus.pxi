"""A bus of the fake backend: a host in the memory of this process, with files and a time of its own.

The endpoints of a bus are the real ones. Their files are private (private_file.h), because the prefix of their paths
begins with the name of the bus. A handle of a bus reads the virtual time, and its waits let the bus run other nodes.
"""


cdef extern from "base/private_file.h" nogil:
    void mq_private_files_reset_in_child(mq_private_files *list_of_files)
    int mq_private_describe_older(mq_private_files *list_of_files, const char *root, int before, char *path,
                                  size_t path_bytes, uint64_t *inode, uint64_t *bytes, unsigned *mode)
    void mq_private_pin(mq_private_files *list_of_files, uint64_t inode)
    void mq_private_end_bus(mq_private_files *list_of_files, const char *bus)


cdef mq_private_files _private_files  # private files of all buses of the process
cdef dict _buses = {}  # prefix: a weak reference to the bus
cdef object _buses_lock = object()  # its critical section, because a dictionary's own ends with each call


cdef void _reset_private_files_in_child() noexcept nogil:
    mq_private_files_reset_in_child(&_private_files)


pthread_atfork(NULL, NULL, _reset_private_files_in_child)


def list_private_files(str root):
    # The loop holds no lock while it creates objects, because a collection of garbage may release a mapping.
    cdef char path[MQ_ERROR_PATH_BYTES]
    cdef uint64_t number = 0, size = 0
    cdef unsigned mode = 0
    cdef int fd = INT_MAX
    cdef bytes start = root.encode()
    cdef list found = []
    while fd := mq_private_describe_older(&_private_files, start, fd, path, sizeof(path), &number, &size, &mode):
        name = path[len(start) + 1:].decode()
        if "/" not in name:  # another prefix
            found.append((name, number, size, mode))
    return found


cdef class VirtualTime:
    """See core.pxd, and the type stub (core.pyi)."""

    def new_origin_time(self, int64_t count=1):
        cdef int64_t first = max(self.now_ns, self._last_origin_ns + 1)
        self._last_origin_ns = first + count - 1
        return first


cdef class Bus:
    """See core.pxd, and the type stub (core.pyi)."""

    def __cinit__(self, *_, **_options):
        cdef unsigned number = 1
        with cython.critical_section(_buses_lock):
            while f"bus:{number}" in _buses:  # a run of a simulation that is repeated gets the same number
                number += 1
            self.prefix = f"bus:{number}"
            _buses[self.prefix] = PyWeakref_NewRef(self, None)

    def __init__(self, VirtualTime clock not None):
        self.clock = clock

    def __dealloc__(self):
        self._end()

    def end(self):
        self._end()

    cdef void _end(self) noexcept:
        if not self._has_ended:
            self._has_ended = True
            mq_private_end_bus(&_private_files, self.prefix.encode())
            _buses.pop(self.prefix, None)

    def wait_until(self, ready, timeout_ns, subject):
        raise NotImplementedError

    def on_opened(self, handle):
        pass

    def on_closed(self, handle):
        pass

    def on_published(self, handle):
        pass

    def check_descriptor_allowed(self, endpoint):
        pass

    def pin_file(self, uint64_t number):
        mq_private_pin(&_private_files, number)

    def resolve_prefix(self, asked):
        prefix = settings.resolve_prefix(asked)
        if prefix.startswith(naming.BUS_PREFIX_START):
            return prefix
        return f"{self.prefix}/{prefix}" if prefix else self.prefix

    cdef uint32_t next_number(self) noexcept:
        self._numbers += 1
        return self._numbers


cdef Bus find_bus(str in_prefix):
    reference = _buses.get(in_prefix.partition("/")[0])
    return None if reference is None else reference()


cdef class _BusWait:
    """The condition of a wait on a bus: a receive of one of the handles would return or raise."""

    cdef tuple _waitables
    cdef list _connections
    cdef bint _holds_handles  # the handles are in use by the wait

    cdef bint has_closed(self, Py_ssize_t i) noexcept:
        return (<Waitable> self._waitables[i])._connection != self._connections[i]

    def is_over(self):
        cdef Py_ssize_t i
        for i in range(len(self._waitables)):
            if self.has_closed(i) or _is_ready(self._waitables[i], self._holds_handles):
                return True
        return False


cdef bint _is_ready(Waitable handle, bint is_held):
    """True if a receive would return or raise. `is_held`: the handle is in use by the wait that asks."""
    if is_held:
        handle._end_use()
    try:
        return handle._can_receive_now()
    except MsgqError:
        return True
    finally:
        if is_held:
            handle._begin_use()


cdef _BusWait _make_wait(tuple waitables, bint holds_handles):
    cdef _BusWait wait = _BusWait.__new__(_BusWait)
    wait._waitables, wait._connections = waitables, [(<Waitable> each)._connection for each in waitables]
    wait._holds_handles = holds_handles
    return wait


def make_wait_condition(tuple waitables):
    for each in waitables:
        (<Waitable> each)._check_usable()
    return _make_wait(waitables, False).is_over, _describe_awaited(waitables)


cdef str _describe_awaited(tuple waitables):
    return "a message on " + " or ".join([repr((<Waitable> each)._endpoint) for each in waitables])


cdef bint _wait_on_bus(tuple waitables, int64_t deadline) except -1:
    """Let the bus run other nodes until a handle is ready. Return False at the deadline (virtual ns, -1: none)."""
    cdef Bus bus = (<Waitable> waitables[0])._bus
    cdef _BusWait wait = _make_wait(waitables, True)
    cdef Py_ssize_t i
    cdef str closed = None
    warn_in_event_loop()
    for each in waitables:
        (<Waitable> each)._begin_use()
    try:
        bus.wait_until(wait.is_over, None if deadline < 0 else max(deadline - bus.clock.now_ns, 0),
                       _describe_awaited(waitables))
    finally:
        for i in range(len(waitables)):
            if wait.has_closed(i):
                closed = (<Waitable> waitables[i])._endpoint
            else:
                (<Waitable> waitables[i])._end_use()
    if closed is not None:
        raise EndpointClosedError("was closed during the wait", closed)
    return deadline < 0 or bus.clock.now_ns < deadline or _make_wait(waitables, False).is_over()
