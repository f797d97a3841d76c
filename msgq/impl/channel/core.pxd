"""Cython declarations of channels."""

from libc.stdint cimport int64_t, uint32_t, uint64_t, uint8_t
from posix.stat cimport struct_stat

from msgq.impl.base.core cimport (
    Bus, EndpointFile, ForkAwareHandle, mq_error, mq_file_lock, mq_file_policy, mq_liveness, mq_liveness_file,
    mq_liveness_probe, mq_mapping, mq_process_identity, mq_schema_parts, mq_u32, mq_u64, PinnedView, PinOwner, Segment,
    SegmentMemory, Waitable,
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
        mq_u64 publish_time, origin_time
    ctypedef struct mq_pool_map:
        mq_pool_header *pool_header
        uint8_t *slots_base
        uint64_t uid, slot_bytes, stride
        uint32_t slots
    enum:
        MQ_POOL_SLOTS_MAX
    const uint64_t MQ_POOL_BYTES_MAX
    mq_pool_slot *mq_pool_slot_at(const mq_pool_map *slots, uint32_t slot)
    uint8_t *mq_pool_slot_payload(mq_pool_slot *slot)
    uint64_t mq_pool_pin_holders(const mq_pool_map *slots, uint32_t slot)
    void mq_pool_pin_clear(const mq_pool_map *slots, uint32_t slot, unsigned viewer)


cdef extern from "channel/layout.h" nogil:
    enum:
        MQ_CHANNEL_CREATOR_BYTES
        MQ_CHANNEL_CAPACITY_MAX
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
        mq_u64 pool_uid, slots, slot_bytes, superseded, sent, bytes, refused, evicted
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
    mq_channel_config mq_channel_config_unpack(uint64_t word)
    mq_schema_parts mq_schema_parts_from_block(mq_schema *schema, char *data, uint64_t room)
    bint mq_schema_is_set(const mq_schema_parts *parts)


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
    void mq_channel_publisher_free(mq_channel_publisher *p)
    int mq_channel_take_free_slot(mq_channel_publisher *p)
    bint mq_channel_can_take_slot(const mq_channel_publisher *p)
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
    mq_liveness mq_participant_liveness(mq_liveness_probe *probe, const mq_participant *participant, int byte)


cdef extern from "base/truncation.h" nogil:
    bint mq_file_shrank(const char *path, uint64_t inode, uint64_t bytes)


cdef extern from "channel/header.h" nogil:
    void mq_channel_header_init(mq_channel_header *header, uint64_t kind, uint64_t created_ns, uint64_t pid,
                                const char *creator)
    mq_liveness mq_channel_publisher_liveness(const mq_channel_header *header, mq_liveness_probe *probe, int row)
    bint mq_channel_has_publisher(const mq_channel_header *header, const mq_liveness_file *liveness_file)


cdef extern from "channel/configure.h" nogil:
    enum:
        MQ_CHANNEL_CAPACITY_DEFAULT
    int mq_channel_check_file(const mq_channel_header *header, uint64_t size, const char *path, mq_error *error)
    uint64_t mq_channel_kind_of_name(const char *name)
    mq_channel_config mq_channel_default_config(uint64_t capacity)
    int mq_channel_merge_config(const mq_channel_header *header, const char *path, const mq_channel_config *requested,
                                const mq_channel_config *defaults, mq_channel_config *merged, mq_error *error)
    bint mq_channel_is_configured(const mq_channel_header *header, const mq_channel_config *merged)
    int mq_channel_configure(mq_channel_header *header, const char *path, const mq_channel_config *requested,
                             const mq_channel_config *defaults, mq_error *error)


cdef extern from "channel/pool_file.h" nogil:
    enum:
        MQ_POOL_SLOT_BYTES_DEFAULT
    ctypedef struct mq_channel_files:
        const mq_file_policy *policy
        const char *pool_prefix
        mq_channel_header *header
        const mq_liveness_file *liveness_file
        unsigned int mode
    ctypedef struct mq_pool_file:
        mq_mapping *mapping
        struct_stat found
        mq_pool_map slots
    int64_t mq_pool_grow_slot_bytes(uint64_t slots, uint64_t slot_bytes, uint64_t size, uint64_t max_bytes,
                                    mq_error *error)
    void mq_pool_path(const mq_channel_files *files, uint64_t uid, char *path)
    int mq_pool_check_file(const mq_channel_files *files, int fd, const char *path, mq_pool_file *pool, mq_error *error)
    int mq_pool_map_file(const mq_channel_files *files, int fd, uint64_t uid, bint views, const char *path,
                         mq_pool_file *pool, mq_error *error)


cdef extern from "channel/join.h" nogil:
    ctypedef struct mq_channel_join_request:
        const mq_process_identity *self
        const char *node
        uint64_t pool_uid, slots, slot_bytes, max_bytes
        int64_t clock_offset
        const int64_t *virtual_ns
        bint replaces
    ctypedef struct mq_channel_subscriber_rows:
        mq_channel_subscriber_row *row
        int viewer
    int mq_channel_sweep(const mq_channel_files *files, const mq_file_lock *lock, mq_error *error)
    int mq_channel_unlink(const mq_channel_files *files, mq_error *error)
    int mq_channel_join(const mq_channel_files *files, const mq_file_lock *lock, const mq_channel_join_request *request,
                        mq_channel_publisher *p, void **row_token, mq_pool_file *pool, mq_error *error)
    void mq_channel_leave(const mq_channel_publisher *p, void **row_token)
    void mq_channel_abandon(void **row_token)
    int mq_channel_register_subscriber(const mq_channel_files *files, const mq_file_lock *lock,
                                       const mq_process_identity *self, uint64_t uid, const char *node,
                                       mq_channel_subscriber_rows *rows, mq_error *error)
    int mq_channel_register_viewer(const mq_channel_files *files, const mq_file_lock *lock,
                                   const mq_process_identity *self, uint64_t uid, mq_channel_subscriber_rows *rows,
                                   mq_error *error)
    void mq_channel_leave_rows(mq_channel_subscriber_rows *rows)
    void mq_channel_abandon_rows(mq_channel_subscriber_rows *rows)


cdef extern from "channel/room.h" nogil:
    ctypedef enum mq_room_status:
        MQ_ROOM_MISSING
        MQ_ROOM_FOUND
    ctypedef struct mq_channel_room_wait:
        pass
    bint mq_channel_has_room(const mq_channel_publisher *p, uint64_t messages, uint64_t dead)
    bint mq_channel_find_room(mq_channel_publisher *p, uint64_t messages, bint probes)
    mq_channel_room_wait mq_channel_begin_room_wait(int64_t deadline)
    mq_room_status mq_channel_check_room_wait(mq_channel_room_wait *wait, mq_channel_publisher *p, uint64_t messages)
    bint mq_channel_pause_room_wait(mq_channel_room_wait *wait, const void *mask)


cdef extern from "channel/view.h" nogil:
    ctypedef struct mq_channel_view:
        mq_index_ring ring
        uint64_t end


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
    cdef tuple key  # key in _open_marks; None: not there yet
    cdef object reference  # weak reference in _open_marks
    cdef void *liveness_token  # NULL: the file system has no such locks
    cdef int generation  # fork generation of the process that holds the token


cdef class ChannelFile(EndpointFile):
    """A channel's mapped file, and the location of its pools."""
    cdef readonly bint writable
    cdef str creator_name  # creator of a new file
    cdef bytes pool_prefix  # path of a pool without its uid
    cdef mq_channel_header *header
    cdef OpenMark open_mark  # None: an observer, or closed
    cdef uint64_t own_pools[63]  # uid of the pool that this object created for each row
    cdef tuple identity(self)
    cdef ChannelFile _open_again(self)
    cdef SegmentMemory require_memory(self)  # raise if the channel object is closed
    cdef mq_channel_files describe_files(self) noexcept


cdef class PublisherPool:
    """A row of the file and its pool, from which this process publishes."""
    cdef ChannelFile channel_file
    cdef object channel_memory  # None: the pool has left the row
    cdef Segment segment  # the pool's file
    cdef SegmentMemory memory  # None: released
    cdef const mq_u64 *not_truncated  # see mq_mapping_was_truncated
    cdef mq_channel_publisher c
    cdef void *liveness_token  # the row's lock; NULL: the pool has left the row, or the file system has no such locks
    cdef bint open
    cdef bint superseded  # the publisher uses another pool; the last loan retires this pool
    cdef int generation
    cdef uint64_t open_loans  # number of slots of open loans
    cdef void _release_row(self) noexcept
    cdef void abandon(self) noexcept
    cdef int check_truncation(self) except -1
    cdef int adopt(self, const mq_channel_files *files, mq_mapping *mapping) except -1
    cdef void release_memory(self) noexcept
    cdef int retire(self, bint removes_pool) except -1
    cdef int cancel_loan(self, uint64_t slot, bint removes_pool) except -1
    cdef int end_loan(self, bint removes_pool) except -1


cdef class Publisher(ForkAwareHandle):
    cdef unsigned long _waiting_thread  # the thread that waits for a slot or room; 0: no thread waits
    cdef bint _is_closing  # `close` was called during the wait; the waiting thread then closes the publisher
    cdef readonly str name  # name of the publisher's node
    cdef readonly ChannelFile _file
    cdef PublisherPool _pool
    cdef bint _is_observed      # True in a simulation: the bus gets each message
    cdef object _published      # the last message for the bus
    cdef object _slots  # requested number of slots; None: the default
    cdef uint64_t _max_bytes
    cdef uint64_t _sent, _sent_bytes, _refused, _evicted  # counters of previous pools
    cdef int _interrupt_wait(self) except -1
    cdef int _check_not_inherited(self) except -1
    cdef int _switch_pool(self, PublisherPool pool) except -1
    cdef Py_ssize_t _send_batch(self, const Py_buffer *view, uint64_t origin_time) except -1
    cdef bint _publish_batch(self, const uint8_t *rows, uint64_t size, uint64_t count, uint64_t origin_time,
                             uint64_t *done) except -1
    cdef object _send_message(self, object data, int64_t wait_ns, uint64_t origin_time)
    cdef object _send_bytes(self, const void *data, uint64_t size, int64_t wait_ns, uint64_t origin_time)
    cdef object _publish_slot(self, PublisherPool pool, uint64_t slot, uint64_t size, uint64_t origin_time)
    cdef int _reclaim_slot(self, int64_t wait_ns) except -1
    cdef int _wait_for_slot(self, int64_t wait_ns) except -2
    cdef bint _wait_for_room(self, uint64_t messages, int64_t wait_ns) except -1
    cdef int _wait_on_bus(self, is_over, int64_t wait_ns, str subject) except -1
    cdef PublisherPool _begin_wait(self)
    cdef bint _end_wait(self, PublisherPool pool, int slot) except -1
    cdef int _check_after_wait(self, bint closed, str subject) except -1
    cdef object _room_error(self, Py_ssize_t messages)
    cdef int _tell_bus(self, PublisherPool pool, uint64_t slot, uint64_t size, uint64_t position) except -1
    cdef object _missing_memory_error(self)
    cdef object _pool_exhausted_error(self)
    cdef int _grow_pool(self, uint64_t size) except -1


cdef class SubscriberRows:
    """The rows of a subscriber, which stay until its last view is released.

    The subscriber and its views are users of the rows. Any thread may release a view, so the users are counted without
    the subscriber's lock.
    """
    cdef ChannelFile file
    cdef object memory  # memory of the file, until the rows are released
    cdef mq_channel_subscriber_rows c
    cdef mq_u64 users  # number of views, and 1 until the subscriber is closed
    cdef int generation
    cdef bint closed
    cdef bint abandoned  # the pins of views stay, as those of a dead process
    cdef int register_subscriber(self, str node) except -1
    cdef int register_viewer(self) except -1
    cdef uint64_t count_views(self) noexcept
    cdef void add_view(self) noexcept
    cdef void remove_view(self) noexcept
    cdef void _remove_user(self) noexcept
    cdef void release_rows(self) noexcept
    cdef void abandon(self) noexcept


cdef class MappedPool(PinOwner):
    """A pool mapped by a subscriber, whose views pin its slots."""
    cdef SubscriberRows rows  # None: the pool's messages are only copied
    cdef Segment segment  # cleared before `memory`, whose end would else give the segment private memory
    cdef SegmentMemory memory
    cdef const mq_u64 *not_truncated  # see mq_mapping_was_truncated
    cdef mq_pool_map slots
    cdef readonly str node  # name of the publisher's node
    cdef readonly uint64_t pid
    cdef object _publisher_info  # None: not requested yet
    cdef int adopt(self, const mq_pool_file *pool, str path) except -1
    cdef int check_truncation(self, str endpoint) except -1
    cdef object describe_publisher(self)

cdef MappedPool open_pool(ChannelFile file, uint64_t uid, bint views)


cdef class ArrivalView:
    """What has arrived at a subscriber in a simulation."""
    cdef mq_channel_view c
    cdef readonly bint conflates
    cdef object _repeats            # positions of messages that arrived again
    cdef set _dropped               # positions of messages that never arrive
    cdef uint64_t _repeated, _resume_at  # the message that the cursor was set back to; where it continues, or 0
    cdef uint64_t _overwritten_end  # a fault: the messages before this position are overwritten
    cdef int begin(self, mq_channel_subscriber *s) except -1
    cdef int _show_ring(self, mq_channel_subscriber *s, uint64_t end) except -1
    cdef bint _has_ring(self, mq_channel_subscriber *s) except -1
    cdef int _pass_dropped(self) except -1
    cdef bint is_lapped(self, mq_channel_subscriber *s) noexcept
    cdef int advance(self, mq_channel_subscriber *s) except -1
    cdef int show_arrivals(self, mq_channel_subscriber *s) except -1
    cdef int _show(self, mq_channel_subscriber *s) except -1
    cdef int _begin_repeat(self, mq_channel_subscriber *s) except -1
    cdef int _end_repeat(self, mq_channel_subscriber *s) except -1
    cdef int _hide_dropped(self) except -1


cdef class Subscriber(Waitable):
    cdef readonly str name      # name of the subscriber's node
    cdef readonly int max_views
    cdef readonly ChannelFile _file
    cdef ArrivalView _view  # arrived messages in a simulation; None: all published messages have arrived
    cdef SubscriberRows _rows  # None: a passive subscriber, which has no rows
    cdef mq_channel_subscriber c
    cdef list _pools  # MappedPool of each row, or None if the pool is not mapped
    cdef mq_channel_poll_state _poll_state
    cdef mq_channel_message _last
    cdef MappedPool _last_pool
    cdef bint _raise_on_lost  # raise LostMessagesError for each loss
    cdef uint64_t _lost_reported  # number of losses that were raised as errors
    cdef int64_t _nap_ns  # nanoseconds of the next nap, which announces no sleep; 0: announce the sleep
    cdef int _register_rows(self) except -1
    cdef bint _next_message(self, mq_channel_message *message) except -1
    cdef bint _wait_for_message(self, mq_channel_message *message, int64_t wait_ns) except -1
    cdef bint _accept_message(self, const mq_channel_message *message) except -1
    cdef bint _accept_following(self, const mq_channel_message *message) except -1
    cdef bint _following_message(self, mq_channel_message *message) except -1
    cdef bint _map_pool(self, const mq_channel_message *message) except -1
    cdef int _map_or_skip_pool(self, const mq_channel_message *message) except -1
    cdef bytes _receive_following(self)
    cdef bint _can_take_views(self) noexcept
    cdef int _ensure_viewer_row(self) except -1
    cdef object _receive_copy(self, int64_t wait_ns)
    cdef bint _should_stop_retrying(self, int *torn, int64_t wait_ns) noexcept
    cdef bytes _copy_payload(self, const mq_channel_message *message)
    cdef uint64_t _count_receivable(self, object limit) except? 0
