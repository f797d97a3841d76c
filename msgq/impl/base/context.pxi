"""What publishers and subscribers share: the context, closing at exit, and the errors for usage_error."""


_open_sockets = weakref.WeakSet()


@atexit.register
def _close_open_sockets():
    """Free places at exit, so that nobody has to find out that we are gone."""
    for socket in list(_open_sockets):
        socket._close_at_exit()


cdef void close_at_exit(socket):
    _open_sockets.add(socket)


cdef object usage_error(int ticket, str endpoint):
    """Return the exception for a ticket that is not valid."""
    if ticket == RESERVED:
        return ConcurrentUseError("a reservation is open; leave its with block first", endpoint)
    if ticket == BUSY:
        return ConcurrentUseError("is in use by another thread; a socket serves one thread at a time", endpoint)
    return not_connected_error(endpoint)


_connect_watcher = None  # of connects, for a simulation


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
        raise StateError("the context was terminated; make a new one", endpoint)
    return refuse_in_simulation(endpoint)


cdef class Context:
    """Where sockets are made. Costs nothing here; the ZMQ backend needs it, so programs pass it everywhere.

    Sockets stay usable after `term`, which only refuses new ones; it never blocks.
    """

    def __init__(self):  # so that it has a signature
        pass

    def term(self):
        self.closed = True

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.term()
