from msgq.impl.core cimport int64_t, mq_subscriber, uint32_t
from msgq.impl.gate cimport Gate
from msgq.impl.liveness cimport fork_generation
from msgq.impl.segment cimport Segment, Topic


cdef enum:
    FOR_EVER = -1


cdef class Connection:
    cdef int _ticket
    cdef int _generation
    cdef str _endpoint
    cdef str _prefix
    cdef object _trust          # whose files beside its own and root's; None: as MSGQ_TRUST says
    cdef Segment _ring
    cdef Segment _side
    cdef mq_subscriber _subscriber
    cdef bint _conflate
    cdef bint _conflate_wanted  # set before connect
    cdef bint _passive
    cdef bint _watched          # the helper thread looks out for stock publishers
    cdef bint _watch_failed
    cdef bint _closing          # close() was called while the socket is in use
    cdef unsigned long _user    # thread that is using it, while BUSY
    cdef uint32_t _helper       # thread id of the process's helper thread
    cdef int _timeout_ms        # -1: for ever
    cdef int _spin_us
    cdef int _fd                # for event loops; -1: nobody has asked for it
    cdef public object _waiting  # see event_loop.py
    cdef Gate _gate             # None: fake events were off when it connected
    cdef bint _let_through      # a poll has passed the gate for the next receive
    cdef object __weakref__
    cdef void _occupy(self) noexcept
    cdef int _end_if_closing(self) except -1
    cdef int _join(self, Topic topic) except -1
    cdef int _map(self, Topic topic) except -1
    cdef bint _follow(self) except -1
    cdef int _refuse(self) except -1
    cdef int _look_for_side(self) except -1
    cdef int _rejoin(self) except -1
    cdef int _leave(self) except -1
    cdef bint _pass_gate(self) except -1
    cdef bint _ready(self) except -1
    cdef int64_t _prepare_sleep(self, int64_t slept_ns) except -2
    cdef int _watch(self) except -1
    cdef int _settle_fd(self) except -1


cdef inline int enter(Connection socket) except -1:
    """What each call does first."""
    if socket._ticket != fork_generation:
        socket._refuse()
    if socket._subscriber.side == NULL:
        socket._look_for_side()
    return 0


cdef int checked_timeout(timeout, str endpoint) except -2
cdef bint wait_ready(list sockets, int64_t deadline) except -1
