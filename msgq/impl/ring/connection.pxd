from msgq.impl.ring.core cimport mq_ring_poll_state, mq_ring_subscriber
from msgq.impl.gate.gate cimport Gate
from msgq.impl.base.liveness cimport fork_generation
from msgq.impl.base.segment cimport Segment
from msgq.impl.base.waiting cimport Waitable
from msgq.impl.ring.topic cimport Topic


cdef class Connection(Waitable):
    cdef str _prefix
    cdef object _trust          # whose files beside its own and root's; None: as MSGQ_TRUST says
    cdef Segment _ring
    cdef Segment _side
    cdef mq_ring_subscriber _subscriber
    cdef mq_ring_poll_state _outlook    # the watcher's view of it
    cdef bint _conflate
    cdef bint _conflate_wanted  # set before connect
    cdef bint _passive
    cdef bint _from_oldest      # set before connect: not from the present
    cdef bint _watched          # the helper thread looks out for stock publishers
    cdef bint _watch_failed
    cdef int _timeout_ms        # -1: for ever
    cdef Gate _gate             # None: fake events were off when it connected
    cdef bint _let_through      # a poll has passed the gate for the next receive
    cdef public bint _for_bridge  # see bridge.py
    cdef int _join(self, Topic topic) except -1
    cdef int _map(self, Topic topic) except -1
    cdef bint _follow(self) except -1
    cdef int _refuse(self) except -1
    cdef int _look_for_side(self) except -1
    cdef int _rejoin(self) except -1
    cdef bint _pass_gate(self) except -1
    cdef int _watch(self) except -1


cdef inline int enter(Connection socket) except -1:
    """What each call does first."""
    if socket._ticket != fork_generation:
        socket._refuse()
    if socket._subscriber.side == NULL:
        socket._look_for_side()
    return 0
