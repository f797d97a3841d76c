"""Cython declarations of channels."""

from libc.stdint cimport int64_t, uint32_t, uint64_t, uint8_t

from msgq.impl.base.core cimport (
    EndpointFile, ForkAwareHandle, mq_file_check_result, mq_file_lock, MQ_FILE_OTHER_VERSION, MQ_FILE_VALID,
    mq_liveness, mq_liveness_file, mq_liveness_probe, mq_process_identity, mq_schema_parts, mq_u32, mq_u64, PinnedView,
    PinOwner, Segment, SegmentMemory, Waitable,
)


cdef extern from "base/layout.h" nogil:
    enum:
        MQ_NAME
    ctypedef struct mq_participant:
        mq_u64 uid, pid, thread_id, start_time
        char name[16]


cdef extern from "channel/index_ring.h" nogil:
    ctypedef struct mq_index_ring:
        uint64_t capacity
    uint64_t mq_index_ring_load_tail(const mq_index_ring *order)


cdef extern from "channel/pool.h" nogil:
    enum:
        MQ_NODE_NAME_BYTES
    ctypedef struct mq_pool_header:
        mq_u64 pid
        char node[48]
        mq_u32 slot_released
    ctypedef struct mq_pool_slot:
        pass
    ctypedef struct mq_pool_map:
        mq_pool_header *pool_header
        uint8_t *slots_base
        uint64_t uid, slot_bytes, stride
        uint32_t slots
    uint64_t mq_pool_slot_stride_bytes(uint64_t slot_bytes)
    uint64_t mq_pool_header_bytes(uint64_t slots, uint64_t page)
    void mq_pool_header_init(mq_pool_header *pool, uint64_t size, uint64_t slots, uint64_t slot_bytes, uint64_t page,
                             uint64_t channel_inode, uint64_t uid, uint64_t pid, const char *node)
    const char *mq_pool_header_check(mq_pool_header *pool, uint64_t size, uint64_t channel_inode, uint64_t uid,
                                     mq_pool_map *slots)
    uint8_t *mq_pool_slot_payload(mq_pool_slot *slot)
    uint64_t mq_pool_pin_holders(const mq_pool_map *slots, uint32_t slot)
    void mq_pool_pin_clear(const mq_pool_map *slots, uint32_t slot, unsigned viewer)


cdef extern from "channel/layout.h" nogil:
    enum:
        MQ_CHANNEL_CREATOR_BYTES
        MQ_CHANNEL_MAJOR
        MQ_CHANNEL_PUBLISHERS
        MQ_CHANNEL_VIEWERS
        MQ_CHANNEL_SUBSCRIBERS
        MQ_CHANNEL_VIEWER_BYTE
        MQ_CHANNEL_SUBSCRIBER_BYTE
        MQ_CHANNEL_OPEN_BYTE
        MQ_CHANNEL_ANY_SUBSCRIBERS
        MQ_CHANNEL_UNSTAMPED
        MQ_CHANNEL_STAMPED
        MQ_CHANNEL_SCHEMA_BYTES
    ctypedef struct mq_schema:
        pass
    ctypedef struct mq_channel_publisher_row:
        mq_participant participant
        mq_u64 pool_uid, slots, slot_bytes, pool_bytes, pool_inode, superseded, sent, bytes, refused, evicted
        char node[48]
    ctypedef struct mq_channel_viewer_row:
        mq_participant participant
    ctypedef struct mq_channel_subscriber_row:
        mq_participant participant
        char node[48]
        mq_u64 viewer, joined, cursor, received, lost, resets, views_held
    ctypedef struct mq_channel_header:
        mq_u64 version, created_ns, creator_pid, kind, config, tail
        char creator[64]
        mq_u32 eventcount
        mq_channel_publisher_row publishers[63]
        mq_channel_viewer_row viewers[64]
        mq_channel_subscriber_row subscribers[64]
        mq_schema schema
        char schema_data[1]
    ctypedef struct mq_channel_config:
        uint64_t capacity, publishers, subscribers, stamps
    uint64_t mq_channel_config_pack(mq_channel_config config)
    mq_channel_config mq_channel_config_unpack(uint64_t word)
    mq_schema_parts mq_schema_parts_from_block(mq_schema *schema, char *data, uint64_t room)


cdef extern from "channel/publisher.h" nogil:
    ctypedef enum mq_channel_status:
        MQ_CHANNEL_OK
        MQ_CHANNEL_EMPTY
        MQ_CHANNEL_NOTIFY
        MQ_CHANNEL_UNMAPPED
        MQ_CHANNEL_CORRUPT
    enum:
        MQ_CHANNEL_NO_SLOT
    ctypedef struct mq_channel_publisher:
        mq_index_ring order
        mq_pool_map slots
        mq_channel_header *header
        mq_channel_publisher_row *row
        unsigned number
        bint stamps
        int64_t clock_offset
        const mq_liveness_file *liveness_file
        uint32_t limbo_count, published_count, free_count, populated_slots
        bint lacks_memory
        uint32_t *limbo_slots
        uint64_t sent, bytes, refused, evicted
    bint mq_channel_publisher_init(mq_channel_publisher *p, bint has_holes)
    void mq_channel_publisher_free(mq_channel_publisher *p)
    int mq_channel_take_free_slot(mq_channel_publisher *p)
    void mq_channel_return_slot(mq_channel_publisher *p, uint32_t slot)
    uint32_t mq_channel_count_used_slots(const mq_channel_publisher *p)
    uint32_t mq_channel_get_used_slot(const mq_channel_publisher *p, uint32_t i)
    bint mq_channel_clear_dead_pins(mq_channel_publisher *p)
    uint8_t *mq_channel_begin_slot_write(const mq_channel_publisher *p, uint32_t slot)
    mq_channel_status mq_channel_publish(mq_channel_publisher *p, uint32_t slot, uint64_t length, uint64_t origin_time,
                                         uint64_t *position)
    uint64_t mq_channel_publish_batch(mq_channel_publisher *p, const uint8_t *rows, uint64_t size, uint64_t count,
                                      uint64_t origin_time, uint64_t *first)
    void mq_channel_count_refused_message(mq_channel_publisher *p)


cdef extern from "channel/subscriber.h" nogil:
    ctypedef struct mq_channel_subscriber:
        mq_index_ring order
        const mq_channel_header *header
        mq_channel_subscriber_row *row
        const mq_u64 *not_truncated
        const uint64_t *excluded_pools
        mq_pool_map pools[63]
        uint64_t history
        mq_u64 cursor
        uint64_t joined_at, received, lost, resets
        bint conflate, newest
    ctypedef struct mq_channel_message:
        uint64_t entry, position
        unsigned row, number
        uint64_t pool_uid
        mq_pool_slot *slot
        uint64_t length, publish_time, origin_time
    ctypedef struct mq_channel_poll_state:
        const mq_channel_header *header
        const mq_u64 *cursor
        const mq_u64 *not_truncated
    uint64_t mq_channel_load_cursor(const mq_channel_subscriber *s)
    bint mq_channel_load_index_ring(const mq_channel_header *header, mq_index_ring *order)
    void mq_channel_store_join_position(const mq_channel_subscriber *s)
    bint mq_channel_subscriber_join(mq_channel_subscriber *s, bint at_tail)
    mq_channel_status mq_channel_next_message(mq_channel_subscriber *s, mq_channel_message *m)
    mq_channel_status mq_channel_following_message(mq_channel_subscriber *s, mq_channel_message *m)
    void mq_channel_skip_message(mq_channel_subscriber *s, const mq_channel_message *m)
    bint mq_channel_accept_entry(mq_channel_subscriber *s, const mq_channel_message *m)
    uint64_t mq_channel_receive_batch(mq_channel_subscriber *s, uint8_t *out, uint64_t size, uint64_t count,
                                      mq_channel_message *last, const mq_u64 *not_truncated)
    bint mq_channel_pin_message(mq_channel_subscriber *s, const mq_channel_message *m, unsigned viewer)
    int mq_channel_subscriber_is_readable(const void *poll_state)
    int64_t mq_channel_compute_lapped_nap_ns(mq_channel_subscriber *s, int64_t now_ns)


cdef extern from "base/row_table.h" nogil:
    enum:
        MQ_NO_ROW
    ctypedef struct mq_row_table:
        pass
    int mq_row_table_reserve(const mq_row_table *row_table, const mq_liveness_file *liveness_file,
                             void **liveness_token)
    void mq_participant_write(mq_participant *participant, const mq_process_identity *self, uint64_t uid, bint held)
    void mq_participant_leave(mq_participant *participant, uint64_t uid, void **liveness_token)
    mq_liveness mq_participant_liveness(mq_liveness_probe *probe, const mq_participant *participant, int byte)


cdef extern from "channel/header.h" nogil:
    void mq_channel_header_init(mq_channel_header *header, uint64_t kind, uint64_t created_ns, uint64_t pid,
                                const char *creator)
    mq_file_check_result mq_channel_header_check(const mq_channel_header *header, uint64_t size)
    bint mq_channel_store_config(mq_channel_header *header, mq_channel_config config)
    uint64_t mq_channel_count_row_entries(const mq_index_ring *order, unsigned row, uint64_t *newest)
    void mq_channel_retract_row_entries(const mq_index_ring *order, unsigned row)
    mq_liveness mq_channel_publisher_liveness(const mq_channel_header *header, mq_liveness_probe *probe, int row)
    bint mq_channel_has_publisher(const mq_channel_header *header, const mq_liveness_file *liveness_file)
    void mq_channel_release_row(mq_channel_publisher_row *row)
    int mq_channel_find_free_row(mq_channel_header *header, const mq_liveness_file *liveness_file,
                                 void **liveness_token)
    void mq_channel_publisher_register(mq_channel_publisher_row *row, const mq_process_identity *self, bint held,
                                       const mq_pool_map *slots, uint64_t pool_size, uint64_t pool_inode,
                                       const char *node)
    int mq_channel_find_free_viewer(const mq_channel_header *header, const mq_liveness_file *liveness_file, int row)
    mq_row_table mq_channel_subscriber_row_table(mq_channel_header *header, int count)
    bint mq_channel_viewer_row_is_stale(const mq_channel_header *header, int viewer)
    void mq_channel_clear_dead_viewer_pins(const mq_pool_map *slots, int viewer)
    void mq_channel_subscriber_register(mq_channel_subscriber_row *row, const mq_process_identity *self, uint64_t uid,
                                        bint held, const char *node)


cdef extern from "base/atomics.h" nogil:
    uint32_t mq_load_acquire_u32(const mq_u32 *word)
    uint64_t mq_load_relaxed_u64(const mq_u64 *word)
    uint64_t mq_load_acquire_u64(const mq_u64 *word)
    void mq_store_release_u64(mq_u64 *word, uint64_t value)


cdef extern from "channel/snapshot.h" nogil:
    ctypedef struct mq_channel_published_slot_set:
        uint64_t messages
    ctypedef struct mq_channel_view_counts:
        uint64_t views, outdated, publish_time
    ctypedef struct mq_channel_subscriber_snapshot:
        uint64_t cursor, joined, received, lost, resets, views_held, viewer, lag
    void mq_channel_snapshot_slots(const mq_index_ring *order, unsigned row, mq_channel_published_slot_set *out)
    void mq_channel_snapshot_views(const mq_pool_map *pool, const mq_channel_published_slot_set *ordered,
                                   mq_channel_view_counts *views_by_viewer)
    void mq_channel_snapshot_subscriber(const mq_channel_subscriber_row *row, mq_channel_subscriber_snapshot *out)
    void mq_channel_snapshot_count_unread(const mq_index_ring *order, mq_channel_subscriber_snapshot *copy)


cdef class OpenMark:
    cdef object __weakref__
    cdef tuple key  # in _open_marks; None: new channel objects do not get this mark
    cdef void *liveness_token  # NULL: the file system has no such locks
    cdef int generation  # fork generation of the process that holds the token


cdef class ChannelFile(EndpointFile):
    """A channel's mapped file, and the location of its pools."""
    cdef readonly bint writable
    cdef str creator_name  # creator of a new file
    cdef mq_channel_header *header
    cdef OpenMark open_mark  # None: an observer, or closed
    cdef uint64_t own_pools[63]  # for each row: uid of the pool created through this object
    cdef tuple identity(self)
    cdef ChannelFile _open_again(self)
    cdef SegmentMemory require_memory(self)  # raise if the channel object is closed
    cdef int _apply_config_locked(self, capacity, publishers, subscribers, stamps, bint publishes) except -1
    cdef mq_channel_config _merge_config(self, mq_channel_config before, capacity, publishers, subscribers, stamps,
                                         bint publishes) except *
    cdef uint64_t _merge_config_value(self, str setting, uint64_t current, asked, uint64_t default) except? 0

cdef class PoolFile(EndpointFile):
    """A publisher's mapped pool."""
    cdef uint64_t channel_inode, uid
    cdef uint64_t slot_count, slot_bytes  # slots of a new pool, and their bytes
    cdef bint has_holes  # slots of a new pool get memory before their first use
    cdef bint maps_header_writable
    cdef uint64_t writable_bytes  # bytes of the header, if only the header is mapped writable
    cdef mq_pool_map slots
    cdef readonly str node      # name of the publisher's node
    cdef readonly uint64_t pid

cdef PoolFile open_pool(ChannelFile file, uint64_t uid, bint writable)


cdef class PublisherPool:
    """A row of the file and its pool, from which this process publishes."""
    cdef ChannelFile channel_file
    cdef object channel_memory  # None: the pool has left the row
    cdef PoolFile pool_file
    cdef mq_channel_publisher c
    cdef void *liveness_token  # the row's lock; NULL: the pool has left the row, or the file system has no such locks
    cdef bint open
    cdef bint superseded  # the publisher uses another pool; the last loan retires this pool
    cdef int generation
    cdef uint64_t open_loans  # number of slots of open loans
    cdef void _release_row(self) noexcept
    cdef void release_memory(self) noexcept
    cdef int retire(self, bint removes_pool) except -1
    cdef int cancel_loan(self, uint64_t slot, bint removes_pool) except -1
    cdef int end_loan(self, bint removes_pool) except -1


cdef class Publisher(ForkAwareHandle):
    cdef unsigned long _waiting_thread  # the thread that waits for a slot; 0: no thread waits
    cdef bint _is_closing  # `close` was called during the wait for a slot; the waiting thread then closes the publisher
    cdef readonly str name  # name of the publisher's node
    cdef ChannelFile _file
    cdef PublisherPool _pool
    cdef object _slots  # requested number of slots; None: the default
    cdef uint64_t _max_bytes
    cdef uint64_t _sent, _sent_bytes, _refused, _evicted  # counters of previous pools
    cdef int _interrupt_wait(self) except -1
    cdef int _check_not_inherited(self) except -1
    cdef int _switch_pool(self, PublisherPool pool) except -1
    cdef Py_ssize_t _send_batch(self, const Py_buffer *view, uint64_t origin_time) except -1
    cdef bint _publish_batch(self, const uint8_t *rows, uint64_t size, uint64_t count, uint64_t origin_time,
                             uint64_t *done) except -1
    cdef object _send_message(self, object data, object timeout, uint64_t origin_time)
    cdef object _send_bytes(self, const void *data, uint64_t size, object timeout, uint64_t origin_time)
    cdef object _publish_slot(self, PublisherPool pool, uint64_t slot, uint64_t size, uint64_t origin_time)
    cdef int _reclaim_slot(self, object timeout) except -1
    cdef int _wait_for_slot(self, object timeout) except -2
    cdef bint _close_after_wait(self, PublisherPool pool, int slot) except -1
    cdef object _missing_memory_error(self)
    cdef object _pool_exhausted_error(self)
    cdef int _grow_pool(self, uint64_t size) except -1


cdef class SubscriberRows:
    """The rows of a subscriber, which stay until its last view is released."""
    cdef ChannelFile file
    cdef object memory  # memory of the file, until the rows are released
    cdef mq_channel_subscriber_row *row  # NULL: the subscriber has no row
    cdef int viewer  # row in viewers; -1: the subscriber has taken no views
    cdef uint64_t views_held  # number of views that are held
    cdef void *row_token  # lock of the row, or a shared lock of MQ_CHANNEL_OPEN_BYTE
    cdef void *viewer_token
    cdef uint64_t row_uid, viewer_uid
    cdef int generation
    cdef bint closed
    cdef int register_subscriber(self, str node) except -1
    cdef int register_viewer(self) except -1
    cdef void add_views_held(self, int by) noexcept
    cdef void release_rows(self) noexcept


cdef class MappedPool(PinOwner):
    """A pool mapped by a subscriber, whose views pin its slots."""
    cdef SubscriberRows rows
    cdef PoolFile pool_file
    cdef object _publisher_info  # None: not requested yet
    cdef object describe_publisher(self)


cdef class Subscriber(Waitable):
    cdef readonly str name      # name of the subscriber's node
    cdef readonly int max_views
    cdef ChannelFile _file
    cdef SubscriberRows _rows  # None: a passive subscriber, which has no rows
    cdef mq_channel_subscriber c
    cdef list _pools  # for each row: MappedPool, or None if the pool is not mapped
    cdef mq_channel_poll_state _poll_state
    cdef mq_channel_message _last
    cdef MappedPool _last_pool
    cdef bint _raise_on_lost  # raise LostMessagesError for each loss
    cdef uint64_t _lost_reported  # number of losses that were raised as errors
    cdef int64_t _nap_ns  # nanoseconds of the next nap, which announces no sleep; 0: announce the sleep
    cdef int _register_rows(self) except -1
    cdef bint _next_message(self, mq_channel_message *message) except -1
    cdef bint _wait_for_message(self, mq_channel_message *message, object timeout) except -1
    cdef bint _accept_message(self, const mq_channel_message *message) except -1
    cdef bint _accept_following(self, const mq_channel_message *message) except -1
    cdef bint _following_message(self, mq_channel_message *message) except -1
    cdef bint _map_pool(self, const mq_channel_message *message) except -1
    cdef int _map_or_skip_pool(self, const mq_channel_message *message) except -1
    cdef bytes _receive_following(self)
    cdef bint _can_take_views(self) noexcept
    cdef object _receive_copy(self, object timeout)
    cdef bint _should_stop_retrying(self, int *torn, object timeout) noexcept
    cdef bytes _copy_payload(self, const mq_channel_message *message)
    cdef uint64_t _receive_batch(self, uint8_t *out, uint64_t size, uint64_t max_count) noexcept
    cdef uint64_t _count_receivable(self, object limit) except? 0
