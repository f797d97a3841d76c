"""Cython declarations of gates."""

from libc.stdint cimport int64_t, uint32_t, uint64_t, uint8_t

from msgq.impl.base.core cimport (
    mq_file_check_result, MQ_FILE_OTHER_VERSION, MQ_FILE_VALID, mq_futex_waitv_entry, mq_liveness, mq_liveness_file,
    mq_process_identity, ReceiveGate, Segment,
)


cdef extern from "gate/layout.h" nogil:
    enum:
        MQ_GATE_VERSION
        MQ_GATE_BYTES
        MQ_FAKE_EVENT_ONE
    ctypedef struct mq_fake_event:
        pass
    ctypedef struct mq_event_gate:
        pass


cdef extern from "gate/gate.h" nogil:
    enum:
        MQ_GATE_ROW
        MQ_FAKE_EVENT_WAS_CLEAR
        MQ_FAKE_EVENT_CLEARED_FIFO
    void mq_event_gate_init(mq_event_gate *gate, const mq_process_identity *owner, bint held)
    mq_file_check_result mq_event_gate_check_header(const mq_event_gate *gate)
    uint64_t mq_event_gate_layout_version(const mq_event_gate *gate)
    uint64_t mq_event_gate_owner_pid(const mq_event_gate *gate)
    mq_liveness mq_event_gate_owner_liveness(const mq_event_gate *gate, const mq_liveness_file *liveness_file)
    bint mq_event_gate_is_enabled(const mq_event_gate *gate)
    void mq_event_gate_set_enabled(mq_event_gate *gate, bint enabled)
    bint mq_event_gate_is_closed(const mq_event_gate *gate)
    void mq_event_gate_close(mq_event_gate *gate)
    mq_fake_event *mq_fake_event_select(mq_event_gate *gate, int ready)
    bint mq_fake_event_is_set(const mq_fake_event *event)
    bint mq_fake_event_set(mq_fake_event *event)
    int mq_fake_event_clear(mq_fake_event *event)
    void mq_fake_event_sync_fifo(const mq_fake_event *event, int fifo)
    void mq_fake_event_attach_fifo(mq_fake_event *event, uint64_t inode, int fifo)
    uint64_t mq_fake_event_fifo_inode(const mq_fake_event *event)
    bint mq_fake_event_spin_until_set(const mq_futex_waitv_entry *words, unsigned count, int64_t until_ns)
    uint32_t *mq_fake_event_futex_word(mq_fake_event *event)
    uint32_t mq_fake_event_prepare_wait(mq_fake_event *event)


cdef class SocketEventHandle:
    cdef readonly str endpoint
    cdef readonly str identifier
    cdef str _gate_path
    cdef Segment _gate_segment  # None: the endpoint has no gate
    cdef object _memory  # memory of the gate; None: the endpoint has no gate, or this owner closed it
    cdef mq_event_gate *_event_gate
    cdef int _fifo_fds[2]          # open descriptors, or -1
    cdef bint _owns_gate
    cdef void *_liveness_token  # lock of the owner
    cdef int _fork_generation
    cdef object __weakref__
    cdef int _attach_gate_file(self, Segment segment) except -1
    cdef int _check_managed(self) except -1
    cdef int _check_truncation(self) except -1
    cdef int _check_owner(self) except -1
    cdef int _set_event(self, int which) except -1
    cdef bint _clear_event(self, int which) except -1
    cdef int _sync_fifo(self, int which) except -1
    cdef int _event_fd(self, int which) except -2
    cdef int _open_fifo(self, int which, bint fresh) except -1
    cdef int _make_fifo(self, int which) except -1


cdef class FakeEventGate(ReceiveGate):
    cdef str _endpoint
    cdef str _identifier
    cdef str _gate_path
    cdef SocketEventHandle _event_handle  # None: no gate at the last check
    cdef list _ready_events                # a list with the handle's recv_ready_event
    cdef bint _has_announced_receive  # recv_called was set for the current receive
    cdef int _fork_generation  # fork generation of the process that set the flag above
    cdef const bint *_cancel_flag  # cancel flag of the current receive
    cdef bint _is_gate_enabled(self) except -1
    cdef bint _blocks_receive(self) noexcept
    cdef int _find_gate(self) except -1
