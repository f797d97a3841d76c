"""The headers of the gate as Cython sees them."""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from msgq.impl.base.core cimport (
    MQ_FILE_OTHER_VERSION, MQ_FILE_VALID, mq_file_check, mq_futex_many, mq_liveness, mq_liveness_file,
    mq_process_identity,
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
