"""The context of publishers and subscribers, closing at exit, and usage errors."""


# Address of each open handle: a weak reference. A WeakSet takes 1 us longer for each handle.
cdef dict _open_handles = {}
cdef unsigned long _ending_thread = 0  # thread that closes all handles at exit; 0: the process continues


@atexit.register
def _close_open_handles():
    """Leave all rows at exit, so that other processes need not detect our death."""
    global _ending_thread
    _ending_thread = PyThread_get_thread_ident()
    for reference in list(_open_handles.values()):
        handle = reference()
        if handle is not None:
            handle._close_at_exit()


cdef int close_at_exit(handle) except -1:
    """Close the handle at exit. Its `__dealloc__` must call `forget_at_exit`."""
    _open_handles[<uintptr_t> <void *> handle] = PyWeakref_NewRef(handle, None)
    return 0


cdef void forget_at_exit(handle) noexcept:
    _open_handles.pop(<uintptr_t> <void *> handle, None)


cdef object end_daemon_or(object error):
    """Return the error of a closed handle.

    In a daemon thread at exit, return SystemExit, which Python does not print.
    """
    return error if not _ending_thread or _ending_thread == PyThread_get_thread_ident() else SystemExit()


cdef object usage_error(int ticket, str endpoint):
    """Return the exception for an invalid use state."""
    if ticket == RESERVED:
        return ConcurrentUseError("a reservation is open; leave its with block first", endpoint)
    if ticket == BUSY:
        return ConcurrentUseError("is in use by another thread; use a socket in one thread at a time", endpoint)
    return end_daemon_or(not_connected_error(endpoint))


_connect_watcher = None  # a simulation sets this function; each connect calls the function


def watch_connects(watcher):
    global _connect_watcher
    former, _connect_watcher = _connect_watcher, watcher
    return former


cdef int refuse_in_simulation(str endpoint) except -1:
    if _connect_watcher is not None:
        _connect_watcher(endpoint)
    return 0


cdef int check_context_open(Context context, str endpoint) except -1:
    if context.closed:
        raise StateError("context was terminated; create a new one", endpoint)
    return 0


cdef class Context:
    """Creates sockets. The ring needs no context, but the ZMQ backend does, so programs pass one everywhere.

    `term` only refuses new sockets. Existing sockets stay usable, and `term` never blocks.
    """

    def __init__(self):  # gives the class a signature
        pass

    def term(self):
        self.closed = True

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.term()
