"""Cython declarations of the ring.

Shared structures are opaque: code that accesses their fields does not compile. Only the private state of a socket has
fields.
"""

from libc.stdint cimport int64_t, uint32_t, uint64_t, uint8_t
from posix.stat cimport struct_stat

from msgq.impl.base.core cimport (
    ForkAwareHandle, mq_create, mq_error, mq_file_policy, mq_liveness, mq_liveness_file, mq_liveness_probe, mq_mapping,
    mq_poll_ops, mq_process_identity, mq_schema_parts, mq_u32, mq_u64, ReceiveGate, Segment, SegmentMemory, Waitable,
)
from msgq.impl.base.process cimport fork_generation


cdef extern from "ring/layout.h" nogil:
    enum:
        MQ_RING_HEADER
        MQ_RING_PUBLISHERS
        MQ_RING_SUBSCRIBERS
        MQ_DEFAULT_DATA_BYTES
    const char *MQ_BRIDGE_NAME
    ctypedef struct mq_ring_header:
        pass
    ctypedef struct mq_ring_side:
        pass
    ctypedef struct mq_stamps:
        int64_t publish_time
        int64_t origin_time


cdef extern from "ring/stamps.h" nogil:
    ctypedef enum mq_track:
        MQ_TRACK_UNCHANGED
        MQ_TRACK_YES
        MQ_TRACK_NO
    bint mq_ring_side_is_tracked(const mq_ring_side *side)
    bint mq_ring_side_can_track(const mq_ring_header *ring, const mq_ring_side *side, mq_track wanted)
    void mq_stamps_write(uint8_t *payload, const mq_stamps *stamps)
    void mq_stamps_read(mq_stamps *stamps, const uint8_t *payload)


cdef extern from "ring/position.h" nogil:
    uint64_t mq_ring_frame_bytes(uint64_t size)
    uint64_t mq_ring_frame_bytes_max(uint32_t data_bytes)


cdef extern from "ring/canary.h" nogil:
    ctypedef struct mq_canary:
        pass
    bint mq_file_grew(const char *path, uint64_t inode, uint64_t data_bytes)
    bint mq_file_shrank(const char *path, uint64_t inode, uint64_t bytes)
    bint mq_canary_is_intact(const mq_canary *canary)
    bint mq_canary_is_nonzero(const mq_canary *canary)


cdef extern from "ring/reader_slots.h" nogil:
    enum:
        MQ_RING_ROW_UNREGISTERED
    mq_liveness mq_ring_row_liveness(mq_liveness_probe *probe, const mq_ring_side *side, int row)


cdef extern from "ring/publisher.h" nogil:
    ctypedef enum mq_ring_status:
        MQ_RING_OK
        MQ_RING_NOTIFY
        MQ_RING_EMPTY
        MQ_RING_TOO_LARGE
        MQ_RING_CORRUPT
        MQ_RING_UNTRACKED
        MQ_RING_NO_MEMORY
    ctypedef struct mq_ring_publisher_row:
        pass
    ctypedef struct mq_ring_publisher:
        mq_ring_header *ring
        mq_ring_side *side
        const mq_liveness_file *liveness_file
        void *liveness_token
        uint8_t *data
        mq_canary canary
        uint32_t data_bytes
        uint32_t stamps
        mq_track track
        bint after_stock
        bint unordered
        bint for_bridge
        bint needs_fence
        uint64_t uid
        uint64_t populated_from, populated_to
        uint64_t readers_seen
        uint64_t position
        uint64_t pending
        uint64_t sequence
        uint64_t bytes
        uint32_t stock_count
    mq_ring_status mq_ring_publisher_send(mq_ring_publisher *p, const void *data, uint64_t size)
    mq_ring_status mq_ring_publisher_send_tracked(mq_ring_publisher *p, const void *data, uint64_t size,
                                                  const mq_stamps *stamps)
    mq_ring_status mq_ring_publisher_begin_message(mq_ring_publisher *p, uint64_t size, uint8_t **payload)
    bint mq_ring_publisher_has_room(const mq_ring_publisher *p, uint64_t size)
    void mq_ring_publisher_stage_message(mq_ring_publisher *p, uint64_t size)
    mq_ring_status mq_ring_publisher_commit_staged(mq_ring_publisher *p)
    mq_ring_status mq_ring_publisher_discard_staged(mq_ring_publisher *p, mq_ring_status why)
    void mq_ring_publisher_notify_subscribers(mq_ring_publisher *p)
    void mq_ring_publisher_scan_stock_readers(mq_ring_publisher *p)
    bint mq_ring_publisher_may_have_stock_readers(const mq_ring_publisher *p)
    bint mq_ring_publisher_populate_range(mq_ring_publisher *p, uint64_t start, uint64_t end, uint64_t spare)
    void mq_ring_publisher_detach_row(mq_ring_publisher *p)


cdef extern from "ring/subscriber.h" nogil:
    ctypedef struct mq_ring_subscriber:
        mq_ring_header *ring
        mq_ring_side *side
        const mq_liveness_file *liveness_file
        void *liveness_token
        const uint8_t *data
        mq_canary canary
        const char *path
        uint64_t inode
        uint32_t data_bytes
        uint32_t stamps
        uint64_t record_bytes
        bint mapping_too_small
        bint passive
        bint announces_limit
        bint lost_unknown
        void *row
        uint64_t cursor
        uint64_t published
        uint64_t publisher_uid
        uint64_t sequence_base
        uint64_t received
        uint64_t lost
        uint64_t resets
        uint32_t signal_thread
        int slot
    ctypedef struct mq_ring_message:
        const uint8_t *payload
        uint64_t size
    mq_ring_status mq_ring_subscriber_peek_message(mq_ring_subscriber *s, mq_ring_message *message)
    bint mq_ring_subscriber_accept_copy(mq_ring_subscriber *s, const mq_ring_message *message)
    mq_ring_status mq_ring_subscriber_revalidate_cursor(mq_ring_subscriber *s)
    uint64_t mq_ring_subscriber_frame_bytes(const mq_ring_subscriber *s, uint64_t size)
    mq_ring_status mq_ring_subscriber_refresh_published(mq_ring_subscriber *s)
    mq_ring_status mq_ring_subscriber_recover_from_lap(mq_ring_subscriber *s)
    void mq_ring_subscriber_classify_publisher(mq_ring_subscriber *s)
    bint mq_ring_subscriber_may_attach_side(mq_ring_subscriber *s)
    void mq_ring_subscriber_attach_side(mq_ring_subscriber *s, mq_ring_side *side)
    void mq_prefetch(const void *line)


cdef extern from "ring/next_message.h" nogil:
    mq_ring_status mq_ring_subscriber_next_message(mq_ring_subscriber *s, bint conflate, mq_ring_message *message)
    mq_ring_status mq_ring_subscriber_next_intact_message(mq_ring_subscriber *s, bint conflate,
                                                          mq_ring_message *message)


cdef extern from "ring/sleeper.h" nogil:
    void mq_ring_subscriber_recheck_publisher(mq_ring_subscriber *s)
    void mq_ring_subscriber_route_signals(mq_ring_subscriber *s, uint32_t thread)
    uint32_t mq_ring_subscriber_prepare_wait(mq_ring_subscriber *s)
    bint mq_ring_subscriber_is_drained(const mq_ring_subscriber *s)
    bint mq_ring_subscriber_is_readable(const mq_ring_subscriber *s)
    mq_u32 *mq_ring_subscriber_eventcount(mq_ring_subscriber *s)
    ctypedef struct mq_ring_poll_state:
        pass
    mq_ring_poll_state mq_ring_subscriber_poll_state(const mq_ring_subscriber *s)
    mq_poll_ops mq_ring_subscriber_poll_ops(mq_ring_subscriber *s, const mq_ring_poll_state *poll_state)


cdef extern from "ring/snapshot.h" nogil:
    ctypedef struct mq_participant_snapshot:
        uint64_t uid
        uint64_t pid
        uint64_t thread_id
        uint64_t start_time
        uint64_t pid_namespace
        char name[17]
    ctypedef struct mq_ring_subscriber_snapshot:
        mq_participant_snapshot participant
        uint64_t cursor
        uint64_t received
        uint64_t lost
        uint64_t lost_unknown
        uint64_t resets
    ctypedef struct mq_ring_counts:
        uint64_t messages
        uint64_t bytes
        uint64_t position
        uint64_t subscribers
        uint64_t lost
        uint64_t lost_unknown
    void mq_ring_snapshot_counts(mq_ring_header *ring, mq_ring_side *side, const mq_liveness_file *liveness_file,
                                 uint32_t data_bytes, mq_canary canary, mq_ring_counts *out)
    void mq_ring_snapshot_publisher(const mq_ring_side *side, int row, mq_participant_snapshot *participant,
                                    uint64_t *sent, uint64_t *size)
    bint mq_ring_snapshot_is_bridge(const mq_ring_side *side, int row, const mq_participant_snapshot *participant)
    mq_ring_subscriber mq_ring_make_observer(mq_ring_header *ring, mq_ring_side *side,
                                             const mq_liveness_file *liveness_file, uint32_t data_bytes,
                                             mq_canary canary)
    void mq_ring_observer_read_subscriber(mq_ring_subscriber *observer, int row, mq_ring_subscriber_snapshot *out)
    uint64_t mq_ring_side_created_ns(const mq_ring_side *side)
    int mq_ring_count_stock_readers(const mq_ring_header *ring, const mq_ring_side *side)
    uint64_t mq_ring_write_pointer(const mq_ring_header *ring)
    uint64_t mq_ring_write_uid(const mq_ring_header *ring)


cdef extern from "ring/seek.h" nogil:
    mq_ring_status mq_ring_subscriber_seek_oldest(mq_ring_subscriber *s)
    mq_ring_status mq_ring_subscriber_seek_last(mq_ring_subscriber *s)
    bint mq_ring_subscriber_has_no_publisher(const mq_ring_subscriber *s)
    void mq_ring_subscriber_continue_in_grown_ring(mq_ring_subscriber *s, uint32_t former_bytes, bint present)


cdef extern from "ring/batch.h" nogil:
    mq_ring_status mq_ring_publisher_stage_batch(mq_ring_publisher *p, const uint8_t *messages, size_t size,
                                                 uint64_t *count)
    uint64_t mq_ring_subscriber_pending_bytes(const mq_ring_subscriber *s)
    int64_t mq_ring_subscriber_receive_batch(mq_ring_subscriber *s, uint8_t *out, uint64_t size, int64_t most)
    bint mq_ring_subscriber_peek_known_message(const mq_ring_subscriber *s, mq_ring_message *message)
    bint mq_ring_subscriber_peek_following_message(mq_ring_subscriber *s, mq_ring_message *message)
    bint mq_ring_subscriber_accept_known_copy(mq_ring_subscriber *s, const mq_ring_message *message)


cdef extern from "ring/registry.h" nogil:
    mq_schema_parts mq_ring_side_schema(const mq_ring_side *side)
    bint mq_ring_side_populate_schema(mq_ring_side *side)
    void mq_ring_publisher_release_ring(mq_ring_publisher *p, uint64_t former)
    const mq_ring_publisher_row *mq_ring_find_sending_publisher(const mq_ring_publisher *p, bint known)
    uint64_t mq_ring_publisher_pid(const mq_ring_publisher_row *former)
    mq_ring_status mq_ring_publisher_start(mq_ring_publisher *p, const mq_process_identity *self)
    void mq_ring_publisher_begin_schema(mq_ring_publisher *p)
    void mq_ring_publisher_close(mq_ring_publisher *p)
    uint64_t mq_ring_current_publisher_pid(const mq_ring_header *ring, const mq_ring_side *side)
    mq_ring_status mq_ring_subscriber_join(mq_ring_subscriber *s, const mq_process_identity *self, uint32_t random)
    void mq_ring_subscriber_detach_row(mq_ring_subscriber *s)
    void mq_ring_subscriber_rejoin(mq_ring_subscriber *s, const mq_process_identity *self, uint32_t random)
    void mq_ring_subscriber_leave(mq_ring_subscriber *s)
    void mq_ring_count_subscribers(const mq_ring_publisher *p, int *attached, int *updated)


cdef extern from "ring/topic_files.h" nogil:
    enum:
        MQ_RING_DATA_BYTES_MIN
    ctypedef struct mq_topic_request:
        const mq_file_policy *policy
        const char *ring_path
        const char *side_path
        uint32_t data_bytes
        bint is_size_asked
        unsigned int mode
        mq_create create
        const mq_process_identity *self
        uint64_t now_ns
    int mq_topic_fail_truncated(const mq_mapping *ring, const char *ring_path, const mq_mapping *side,
                                const char *side_path, mq_error *error)
    int mq_topic_fail_start(const mq_canary *canary, const mq_mapping *ring, const char *ring_path,
                            const mq_mapping *side, const char *side_path, mq_error *error)
    int mq_ring_check_size(const struct_stat *found, const char *path, mq_error *error)
    int mq_ring_map(const mq_file_policy *policy, int fd, const struct_stat *found, bint writable, const char *path,
                    mq_mapping **ring, mq_error *error)
    int mq_topic_check_side_file(const mq_topic_request *request, int fd, struct_stat *found, mq_error *error)
    int mq_topic_check_side(const mq_topic_request *request, const mq_ring_header *ring, uint64_t inode,
                            uint32_t data_bytes, const mq_ring_side *side, mq_error *error)
    int mq_topic_claim_ring(mq_ring_publisher *p, const mq_process_identity *self, uint32_t random, uint64_t *former,
                            mq_error *error)


cdef extern from "ring/topic_open.h" nogil:
    ctypedef struct mq_topic_files:
        mq_mapping *ring
        mq_mapping *side
        mq_canary canary
        int lock
    void mq_topic_unlock(mq_topic_files *topic)
    int mq_topic_load_canary(mq_topic_files *topic, const char *ring_path, const char *side_path, mq_error *error)
    int mq_topic_open(const mq_topic_request *request, mq_topic_files *topic, mq_error *error)
    int mq_topic_remap_ring(const mq_topic_request *request, int fd, const mq_mapping *former, bint writable,
                            mq_topic_files *topic, mq_error *error)


cdef extern from "ring/signal_thread.h" nogil:
    uint32_t mq_signal_thread_id()
    bint mq_signal_thread_watch_ring(const void *subscriber, mq_ring_header *ring, mq_ring_side *side,
                                     mq_canary canary, const char *path, uint64_t seen_uid)
    void mq_signal_thread_unwatch_ring(const void *subscriber)


cdef class TopicFiles:
    """A topic's two files. Locked from open_topic until unlock, so that processes join and leave one at a time."""
    cdef readonly str endpoint
    cdef str ring_path, side_path
    cdef bytes ring_file, side_file  # the paths, for system calls
    cdef mq_file_policy policy
    cdef mq_topic_request request
    cdef readonly Segment ring
    cdef readonly Segment side  # None: the topic was opened passive, and has no side segment
    cdef SegmentMemory ring_memory  # None: opened passive; `side_memory`, too
    cdef SegmentMemory side_memory
    cdef uint32_t data_bytes
    cdef mq_topic_files files  # the mappings belong to the segments
    cdef int generation  # fork generation of the process that locks it
    cdef void unlock(self)


cdef class PubConnection(ForkAwareHandle):
    cdef str _prefix
    cdef tuple _options  # options of `connect`, which a forked child uses again
    cdef readonly Segment _ring
    cdef Segment _side
    cdef mq_ring_publisher _publisher
    cdef int64_t _clock_offset_ns  # host's clock minus CLOCK_MONOTONIC, in nanoseconds
    cdef public bint _for_bridge  # see bridge.py
    cdef bint _is_observed          # True in a simulation: the bus gets each message
    cdef uint64_t _published_to     # position up to which the bus has the messages
    cdef int _populate_schema(self, TopicFiles topic) except -1
    cdef int _become_publisher(self) except -1
    cdef int _start_publishing(self, TopicFiles topic, tracked) except -1
    cdef int _wait_for_previous_send(self, uint64_t uid) except -1
    cdef int _check_truncation(self) except -1


cdef class PubSocket(PubConnection):
    cdef int _handle_status(self, int status, uint64_t size) except -1
    cdef int _populate_ring(self) except -1
    cdef object _message_too_large_error(self, object size)
    cdef int _fill_stamps(self, mq_stamps *stamps, int64_t origin_time) except -1
    cdef int _check_origin(self, int64_t origin_time) except -1
    cdef int _send_object(self, object data, int64_t origin_time) except -1
    cdef int _send_bytes(self, const void *data, uint64_t size, int64_t origin_time) except -1
    cdef int _send_buffer(self, object data, int64_t origin_time) except -1
    cdef Py_ssize_t _send_batch(self, object messages, int64_t origin_time) except -1
    cdef Py_ssize_t _send_array(self, object array, int64_t origin_time) except -1
    cdef int _stage_message(self, const void *data, uint64_t size, int64_t origin_time) except -1
    cdef int _stage_batch(self, const uint8_t *rows, uint64_t size, uint64_t count) except -1
    cdef int _begin_large_message(self, const void *data, uint64_t size, uint8_t **payload) except -1
    cdef int _stage_payload(self, uint8_t *payload, uint64_t size, int64_t origin_time) except -1
    cdef int _publish_staged(self) except -1
    cdef int _check_empty_message(self) except -1


cdef class ArrivalView(ReceiveGate):
    """What has arrived at a subscriber in a simulation. It is also the gate, which each receive passes first."""
    cdef mq_ring_header _shown      # the copy of the ring's header that the subscriber reads
    cdef const mq_ring_header *_ring
    cdef const mq_ring_side *_side
    cdef object _arrivals           # kind, start and end of each later message, in order
    cdef bint _is_lapped            # a fault: all that has arrived by the next receive is overwritten
    cdef int begin(self, SubConnection subscriber) except -1
    cdef int show(self, SubConnection subscriber, mq_ring_header *ring) except -1
    cdef bint advance(self, mq_ring_subscriber *s, bint conflate) except -1
    cdef bint _has_later_arrival(self)
    cdef void _show_to(self, uint64_t position) noexcept
    cdef bint _recover_from_lap(self, mq_ring_subscriber *s) except -1


cdef class SubConnection(Waitable):
    cdef str _prefix
    cdef object _trust  # users whose files are accepted, in addition to own files and root's; None: MSGQ_TRUST
    cdef readonly Segment _ring
    cdef Segment _side
    cdef mq_ring_subscriber _subscriber
    cdef mq_ring_poll_state _poll_state  # the subscriber's state for the watcher thread
    cdef bint _conflate
    cdef bint _conflate_default  # conflate setting made before connect
    cdef bint _passive
    cdef object _create             # see _set_create
    cdef bint _from_last  # argument of connect: start at the last message
    cdef bint _from_oldest  # setting made before connect: start at the oldest message
    cdef bint _watches_for_stock  # the helper thread watches for stock publishers
    cdef bint _stock_watch_failed
    cdef int _timeout_ms  # timeout in milliseconds; -1: wait without end
    cdef ReceiveGate _gate               # None: fake events were off when the socket connected; or the view
    cdef bint _gate_passed      # a poll has passed the gate for the next receive
    cdef public bint _for_bridge  # see bridge.py
    cdef ArrivalView _view          # arrived messages in a simulation; None: all published messages have arrived
    cdef bint _advance_view(self) except -1
    cdef int _join_topic(self, TopicFiles topic) except -1
    cdef int _attach_topic(self, TopicFiles topic) except -1
    cdef bint _remap_if_grown(self) except -1
    cdef bint _remap_for_poll(self) except -1
    cdef int _find_late_side(self) except -1
    cdef bint _pass_gate(self) except -1
    cdef bint _route_stock_signals(self) noexcept
    cdef int _watch_for_stock(self) except -1


cdef inline int check_usable(SubConnection socket) except -1:
    """Check that the socket may be used, at the beginning of each call."""
    if socket._use_state != fork_generation:
        socket._reopen_or_raise()
    if socket._subscriber.side == NULL:
        socket._find_late_side()
    return 0


cdef class SubSocket(SubConnection):
    cdef int _skip_torn_message(self) except -1
    cdef int _handle_corruption(self) except -1
    cdef bint _pass_gate_once(self) except -1
    cdef list _receive_gated(self, uint64_t most, bint wait_for_one, dtype)
    cdef object _receive_element(self, dtype, int64_t wait_ns)
    cdef bytes take_message(self, bint non_blocking)
    cdef bytes take_message_within(self, int64_t wait_ns)
    cdef bytes _receive_message(self, int64_t wait_ns)
    cdef bint _have_more_arrived(self) except -1
    cdef bytes _receive_following(self)
    cdef int _wait_for_message(self, mq_ring_message *message, int64_t wait_ns) except -1
    cdef bytes _copy_large_message(self, const mq_ring_message *message)
    cdef object _receive_pending_array(self, numpy, dtype, uint64_t size, uint64_t most)
    cdef uint64_t _count_ready_messages(self, uint64_t size) noexcept
    cdef int64_t _copy_batches(self, uint8_t *out, uint64_t size, int64_t most) except -1
    cdef int _check_next_size(self, uint64_t size) except -1
