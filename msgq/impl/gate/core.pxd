"""The headers of the gate as Cython sees them."""

from libc.stdint cimport int64_t, uint32_t, uint64_t, uint8_t

from msgq.impl.base.core cimport (
    mq_file_check, MQ_FILE_OTHER_VERSION, MQ_FILE_VALID, mq_futex_many, mq_liveness, mq_liveness_file,
    mq_process_identity, Segment,
)


cdef extern from "gate/layout.h" nogil:
    enum:
        MQ_GATE_VERSION
        MQ_GATE_BYTES
        MQ_GATE_EVENT_ONE
    ctypedef struct mq_gate_event:
        pass
    ctypedef struct mq_gate:
        pass


cdef extern from "gate/gate.h" nogil:
    enum:
        MQ_GATE_ROW
        MQ_GATE_EVENT_WAS_CLEAR
        MQ_GATE_EVENT_CLEARED_FIFO
    void mq_gate_init(mq_gate *gate, const mq_process_identity *owner, bint held)
    mq_file_check mq_gate_check(const mq_gate *gate)
    uint64_t mq_gate_version(const mq_gate *gate)
    uint64_t mq_gate_owner(const mq_gate *gate)
    mq_liveness mq_gate_owner_liveness(const mq_gate *gate, const mq_liveness_file *liveness_file)
    bint mq_gate_enabled(const mq_gate *gate)
    void mq_gate_enable(mq_gate *gate, bint enabled)
    bint mq_gate_closed(const mq_gate *gate)
    void mq_gate_close(mq_gate *gate)
    mq_gate_event *mq_gate_event_at(mq_gate *gate, int ready)
    bint mq_gate_event_is_set(const mq_gate_event *event)
    bint mq_gate_event_set(mq_gate_event *event)
    int mq_gate_event_clear(mq_gate_event *event)
    void mq_gate_event_sync_fifo(const mq_gate_event *event, int fifo)
    void mq_gate_event_attach_fifo(mq_gate_event *event, uint64_t inode, int fifo)
    uint64_t mq_gate_event_fifo(const mq_gate_event *event)
    bint mq_gate_event_spin(const mq_futex_many *words, unsigned count, int64_t until_ns)
    uint32_t *mq_gate_event_futex(mq_gate_event *event)
    uint32_t mq_gate_event_prepare_wait(mq_gate_event *event)


cdef class SocketEventHandle:
    cdef readonly str endpoint
    cdef readonly str identifier
    cdef str _path
    cdef Segment _segment       # None: nobody manages the endpoint
    cdef mq_gate *_gate
    cdef int _fifos[2]          # open descriptors, or -1
    cdef bint _owner
    cdef void *_liveness_token  # the owner's life
    cdef int _generation
    cdef object __weakref__
    cdef int _map(self, Segment segment) except -1
    cdef int _check(self) except -1
    cdef int _check_truncation(self) except -1
    cdef int _check_owner(self) except -1
    cdef int _set(self, int which) except -1
    cdef bint _clear(self, int which) except -1
    cdef int _sync_fifo(self, int which) except -1
    cdef int _descriptor(self, int which) except -2
    cdef int _open_fifo(self, int which, bint fresh) except -1
    cdef int _make_fifo(self, int which) except -1


cdef class Gate:
    cdef str _endpoint
    cdef str _identifier
    cdef str _path
    cdef SocketEventHandle _handle  # None: nobody manages the endpoint, as of the last look
    cdef list _ready                # its recv_ready_event
    cdef bint _called               # recv_called was set for the receive that is on its way
    cdef int _generation            # of the process that set it
    cdef const bint *_cancelled     # of the receive that is on its way
    cdef bint enter(self, const bint *cancelled) except -1
    cdef bint _is_enabled(self) except -1
    cdef bint _is_blocking(self) noexcept
    cdef int _find_gate(self) except -1
    cdef void wake(self) noexcept
