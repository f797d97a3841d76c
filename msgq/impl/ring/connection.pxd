from msgq.impl.ring.core cimport mq_ring_poll_state, mq_ring_subscriber
from msgq.impl.gate.gate cimport Gate
from msgq.impl.base.liveness cimport fork_generation
from msgq.impl.base.segment cimport Segment
from msgq.impl.base.waiting cimport Waitable
from msgq.impl.ring.topic cimport TopicFiles


cdef class SubConnection(Waitable):
    cdef str _prefix
    cdef object _trust          # whose files beside its own and root's; None: as MSGQ_TRUST says
    cdef Segment _ring
    cdef Segment _side
    cdef mq_ring_subscriber _subscriber
    cdef mq_ring_poll_state _poll_state    # the watcher's view of it
    cdef bint _conflate
    cdef bint _conflate_default  # set before connect
    cdef bint _passive
    cdef bint _from_oldest      # set before connect: not from the present
    cdef bint _watches_for_stock          # the helper thread looks out for stock publishers
    cdef bint _stock_watch_failed
    cdef int _timeout_ms        # -1: for ever
    cdef Gate _gate             # None: fake events were off when it connected
    cdef bint _gate_passed      # a poll has passed the gate for the next receive
    cdef public bint _for_bridge  # see bridge.py
    cdef int _join(self, TopicFiles topic) except -1
    cdef int _attach_topic(self, TopicFiles topic) except -1
    cdef bint _remap_if_grown(self) except -1
    cdef int _recover_use(self) except -1
    cdef int _find_late_side(self) except -1
    cdef int _rejoin(self) except -1
    cdef bint _pass_gate(self) except -1
    cdef int _watch_for_stock(self) except -1


cdef inline int check_usable(SubConnection socket) except -1:
    """What each call does first."""
    if socket._ticket != fork_generation:
        socket._recover_use()
    if socket._subscriber.side == NULL:
        socket._find_late_side()
    return 0
