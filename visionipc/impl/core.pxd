"""Cython declarations of frames."""

from cython cimport final
from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uint32_t, uint64_t, uint8_t

from msgq.impl.base.core cimport (
    expose_buffer, DescriptorMapping, mq_liveness_file, mq_lock_object, mq_object_lock, mq_unlock_object, pin_view,
    PinnedView, PinOwner,
)
from msgq.impl.base.process cimport mq_process_identity


cdef extern from "leases.h" nogil:
    ctypedef struct mq_frame_lease_table:
        pass
    ctypedef struct mq_frame_buffer_mru:
        uint64_t sender
        uint32_t buffers
        uint32_t newest
        uint32_t generation[128]
        uint8_t order[128]
        uint64_t writer[128]
    enum:
        MQ_FRAME_BUFFERS_MAX
    uint64_t mq_frame_load_dropped_count(const mq_frame_lease_table *table)
    bint mq_frame_lease_take(mq_frame_lease_table *table, uint32_t row, uint32_t buffer, uint32_t generation)


cdef extern from "leases.h" nogil:
    enum:
        MQ_FRAME_CLIENT_ROWS
        MQ_FRAME_LEASE_VERSION
        MQ_FRAME_ROW_FREE
        MQ_FRAME_ROW_TAKEN
    void mq_frame_lease_return(mq_frame_lease_table *table, uint32_t row, uint32_t buffer)
    void mq_frame_row_set_locked(mq_frame_lease_table *table, uint32_t row)
    void mq_frame_row_set_leaving(mq_frame_lease_table *table, uint32_t row)
    void mq_frame_row_set_left(mq_frame_lease_table *table, uint32_t row)
    bint mq_frame_row_has_leases(const mq_frame_lease_table *table, uint32_t row, const uint32_t *generations)
    bint mq_frame_row_is_locked(const mq_frame_lease_table *table, uint32_t row)
    int mq_frame_lease_find_holder(const mq_frame_lease_table *table, uint32_t rows, uint32_t buffer,
                                   uint32_t generation)
    int mq_frame_buffer_claim(mq_frame_lease_table *table, uint32_t rows, uint32_t buffer, uint32_t generation)
    void mq_frame_store_dropped_count(mq_frame_lease_table *table, uint64_t dropped)
    void mq_frame_buffer_mru_init(mq_frame_buffer_mru *mru, uint32_t buffers)
    void mq_frame_buffer_mru_add(mq_frame_buffer_mru *mru)
    uint32_t mq_frame_buffer_mru_publish(mq_frame_buffer_mru *mru, mq_frame_lease_table *table, uint32_t buffer)
    uint32_t mq_frame_count_awaited_frames(const mq_frame_lease_table *table, uint32_t rows, uint32_t newest,
                                           int *slowest)
    int mq_frame_buffer_claim_mru(const mq_frame_buffer_mru *mru, mq_frame_lease_table *table, uint32_t rows,
                                  uint32_t awaited)
    uint32_t mq_frame_buffer_mru_age(const mq_frame_buffer_mru *mru, uint32_t buffer)
    bint mq_frame_buffer_is_ours(const mq_frame_buffer_mru *mru, uint32_t buffer)
    bint mq_frame_row_is_released(const mq_frame_lease_table *table, uint32_t row, const uint32_t *generations)
    void mq_frame_row_reset(mq_frame_lease_table *table, uint32_t row, uint32_t state)


cdef extern from "stream_state.h" nogil:
    ctypedef struct mq_frame_client:
        uint64_t pid
        uint64_t start_time
        int64_t probed_ns
        uint64_t joined_at_frame
        bint taken
    ctypedef struct mq_frame_stream_state:
        mq_frame_buffer_mru mru
        uint64_t published
        uint64_t dropped
        uint64_t round_end
        uint64_t taken_back
        uint32_t used_row_count
        bint has_stock_client
        bint is_replaced
        mq_frame_client clients[256]
    mq_frame_stream_state *mq_frame_stream_state_create()
    void mq_frame_stream_state_unmap(mq_frame_stream_state *state)
    void mq_frame_stream_state_lock(mq_frame_stream_state *state)
    void mq_frame_stream_state_unlock(mq_frame_stream_state *state)
    void mq_frame_stream_state_set_sender(mq_frame_stream_state *state, uint64_t sender,
                                          const mq_process_identity *self)
    uint32_t mq_frame_count_waiting_frames(const mq_frame_stream_state *state, const mq_frame_lease_table *table,
                                           int *slowest)


cdef extern from "base/process_info.h" nogil:
    int mq_read_process_stat(uint64_t pid, char *state, long *threads, uint64_t *start_time)


cdef extern from "<pthread.h>" nogil:
    int pthread_atfork(void (*prepare)(), void (*parent)(), void (*child)())


cdef extern from "<time.h>" nogil:
    enum:
        CLOCK_BOOTTIME


cdef struct FramePacket:  # same layout as wire.FRAME_PACKET_STRUCT
    uint64_t server_id
    uint64_t buffer
    uint32_t frame_id
    uint32_t generation
    uint64_t timestamp_sof
    uint64_t timestamp_eof
    uint8_t valid
    uint8_t padding[7]


cdef enum:
    # Results of ServerLeases.take without a buffer.
    ALL_HELD = -1
    NOT_SENDER = -2  # another process of the server publishes the stream now


@final
cdef class ServerLeases:
    cdef DescriptorMapping _region
    cdef mq_frame_lease_table *_table
    cdef mq_liveness_file _liveness_file  # the table's file; the client of row n locks byte n
    cdef str _endpoint
    cdef uint64_t _pid_namespace  # namespace of the process that admits clients
    cdef mq_frame_stream_state *_state  # shared with forked children
    cdef uint64_t _sender  # id of this process as the sender; of the parent in a child that has sent no frame
    cdef int _claimed_buffer  # buffer of the last frame of this process, if the frame was not published; else -1
    cdef bint _lock(self) noexcept
    cdef void _unlock(self, bint locked) noexcept
    cdef uint32_t _admit(self, uint64_t pid, uint64_t start_time) noexcept
    cdef void _drop_client(self, uint32_t row, uint64_t pid) noexcept
    cdef bint _is_row_released(self, uint32_t row) noexcept
    cdef bint _is_client_dead(self, uint32_t row) noexcept
    cdef bint _reclaim_dead_client(self, uint32_t row, int64_t now_ns, int64_t pause_ns) noexcept
    cdef int _choose_buffer(self, bint stock_reader, bint may_grow, int64_t now_ns) noexcept
    cdef int _take_mru_buffer(self, int64_t now_ns) noexcept
    cdef int _take_oldest_buffer(self, uint32_t waiting, int64_t now_ns) noexcept
    cdef uint32_t _count_waiting_frames(self, int64_t now_ns) noexcept
    cdef int become_sender(self) except -1
    cdef int take(self, bint stock_reader, bint may_grow, int64_t now_ns) noexcept
    cdef uint32_t publish(self, uint32_t buffer) noexcept
    cdef void count_dropped_frame(self) noexcept


cdef class ClientLeases(PinOwner):
    cdef DescriptorMapping _region
    cdef mq_frame_lease_table *_table
    cdef uint32_t _row
    cdef readonly uint32_t since  # newest generation when the server gave the row to this client
    cdef uint64_t _dropped_before  # number of frames that the server had dropped when it gave the row
    cdef void *_liveness_token                # the row's lock
    cdef int _fork_generation
    cdef uint32_t _held_buffers[128]  # 1: a view holds the buffer


cdef inline PinnedView lease(ClientLeases leases, DescriptorMapping region, size_t size, uint32_t buffer,
                             uint32_t generation):
    """Lease a buffer with this generation.

    Return None if the buffer is being written again, the packet is invalid, or a view already holds the buffer.
    """
    cdef PinnedView view
    cdef mq_object_lock lock
    cdef bint is_leased = False
    if buffer >= MQ_FRAME_BUFFERS_MAX or generation == 0:  # the server may send any packet
        return None
    mq_lock_object(&lock, <PyObject *> leases)  # other threads release views
    if not leases._held_buffers[buffer]:  # never give up the lease of another view
        is_leased = mq_frame_lease_take(leases._table, leases._row, buffer, generation)
        leases._held_buffers[buffer] = is_leased
    mq_unlock_object(&lock)
    if not is_leased:
        return None
    view = PinnedView.__new__(PinnedView)
    pin_view(view, leases, buffer)
    expose_buffer(view, region, region.address, size, False)
    return view
