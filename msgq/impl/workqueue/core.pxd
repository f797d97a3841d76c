"""Cython declarations of work queues."""

from libc.stdint cimport int64_t, uint32_t, uint64_t, uint8_t

from msgq.impl.base.core cimport (
    EndpointFile, mq_error, mq_file_lock, mq_file_policy, mq_liveness, mq_liveness_file, mq_liveness_probe,
    mq_load_acquire_u64, mq_load_relaxed_u64, mq_participant, mq_participant_liveness, mq_process_identity, mq_schema,
    mq_schema_parts,
    mq_u32, mq_u64, mq_versioned_row, Segment, SegmentMemory, ThreadSharedHandle, Waitable,
)


cdef extern from "base/futex.h" nogil:
    int64_t mq_read_time_ns(const int64_t *virtual_ns)


cdef extern from "base/atomics.h" nogil:
    uint32_t mq_load_acquire_u32(const mq_u32 *word)
    void mq_store_relaxed_u64(mq_u64 *word, uint64_t value)


cdef extern from "workqueue/layout.h" nogil:
    enum:
        MQ_QUEUE_CREATOR_BYTES
        MQ_QUEUE_ROWS
        MQ_QUEUE_ROW_BYTE
        MQ_QUEUE_SCHEMA_DATA_BYTES
    ctypedef enum mq_queue_role:
        MQ_QUEUE_RECEIVER
        MQ_QUEUE_WATCHER
        MQ_QUEUE_SENDER
    ctypedef enum mq_queue_events_mode:
        MQ_QUEUE_EVENTS_PAYLOAD
    ctypedef struct mq_queue_handle_counts:
        mq_u64 sent, received, acknowledged, returned, refused
    ctypedef struct mq_queue_row:
        mq_versioned_row at
        mq_queue_handle_counts counts_before, counts
        mq_u64 events_lost
        mq_u64 oldest_ticket[3]
    ctypedef struct mq_queue_row_bits:
        pass
    ctypedef struct mq_queue_slot_header:
        mq_u64 length, deliveries, sent_time, origin_time
    ctypedef struct mq_queue:
        mq_u64 created_ns, creator_pid
        char creator[64]
        mq_queue_row_bits sleeping_rows[3]
        mq_queue_row_bits notify_requested
        mq_u32 notify_seq
        mq_queue_row rows[128]
        mq_schema schema
        char schema_data[1]
    ctypedef struct mq_queue_file_parts:
        mq_queue *queue
        mq_u64 *slot_states
        mq_queue_slot_header *slot_headers
        uint64_t max_messages, max_message_size, block_count
        mq_queue_events_mode events
    bint mq_queue_has_sizes(const mq_queue *queue)


cdef extern from "workqueue/slot_state.h" nogil:
    ctypedef enum mq_slot_state:
        MQ_SLOT_TAKEN
        MQ_SLOT_DELAYED
    bint mq_slot_state_is_ready(uint64_t word)
    unsigned mq_slot_state_get_priority(uint64_t word)
    mq_slot_state mq_slot_state_decode(uint64_t word)
    uint32_t mq_job_lease_end_tick(int64_t host_time_ns)


cdef extern from "workqueue/events.h" nogil:
    enum:
        MQ_QUEUE_EVENTS_CAPACITY
        MQ_QUEUE_EVENTS_MAX_BYTES
    uint64_t mq_queue_count_event_slots(uint64_t slot_bytes)
    uint64_t mq_queue_count_buffered_events(uint64_t max_messages)
    int64_t mq_queue_next_event_attempt_ns(int64_t started_ns, int64_t failed_ns)
    uint64_t mq_queue_compute_message_number(uint64_t key, uint64_t slot)
    ctypedef enum mq_queue_event_type:
        MQ_QUEUE_EVENT_TAKEN
        MQ_QUEUE_EVENT_ACKNOWLEDGED
        MQ_QUEUE_EVENT_RECEIVED
    ctypedef struct mq_queue_event:
        pass
    ctypedef struct mq_queue_event_record:
        mq_queue_event event
        uint64_t origin_time
    ctypedef struct mq_queue_event_buffer:
        mq_queue_row *own_row
        uint8_t number
        uint32_t pid
        int64_t clock_offset
        const int64_t *virtual_ns
        uint64_t first, end, capacity
        mq_queue_event_record *records
    void mq_queue_count_lost_events(const mq_queue_event_buffer *buffer, uint64_t n)
    void mq_queue_event_buffer_move_all(mq_queue_event_buffer *source, mq_queue_event_buffer *target)
    mq_queue_event_record mq_queue_make_sent_event(const mq_queue_event_buffer *buffer, uint64_t key, uint64_t slot,
                                                   uint64_t length, int64_t sent_time, uint64_t origin_time)
    mq_queue_event_record mq_queue_make_refused_event(const mq_queue_event_buffer *buffer, uint64_t priority,
                                                      uint64_t length, uint64_t origin_time)


cdef extern from "workqueue/handle.h" nogil:
    ctypedef struct mq_queue_block_cache:
        pass
    ctypedef struct mq_queue_handle:
        mq_queue_file_parts parts
        mq_queue_row *own_row
        unsigned row_number
        uint64_t take_count
        uint64_t next_search_slot
        mq_queue_block_cache *block_caches
        bint saw_owned_slots
        int64_t clock_offset
        const int64_t *virtual_ns
        const mq_liveness_file *liveness_file
        mq_queue_event_buffer *event_buffer
    ctypedef enum mq_queue_status:
        MQ_QUEUE_OK
        MQ_QUEUE_EMPTY
    void mq_queue_add_to_counter(mq_u64 *counter, uint64_t n)
    void mq_queue_set_row_bit(mq_queue_row_bits *bits, unsigned row)
    void mq_queue_clear_row_bit(mq_queue_row_bits *bits, unsigned row)
    bint mq_queue_any_row_bit_is_set(const mq_queue_row_bits *bits)
    bint mq_queue_row_bit_is_set(const mq_queue_row_bits *bits, unsigned row)
    void mq_queue_add_notify_debt(mq_queue_row *row, uint64_t n)
    void mq_queue_clear_notify_debt(mq_queue_row *row, uint64_t n)
    mq_u32 *mq_queue_get_eventcount(const mq_queue_handle *h, mq_queue_role role)
    void mq_queue_finish_sleep(const mq_queue_handle *h, mq_queue_role role)
    void mq_queue_wake_receivers(mq_queue *queue, int messages)


cdef extern from "workqueue/scan.h" nogil:
    bint mq_queue_has_ready_message(const mq_queue_file_parts *parts)
    bint mq_queue_has_free_slot(const mq_queue_file_parts *parts)
    int mq_queue_count_available(const mq_queue_file_parts *parts, mq_queue_role role)
    void mq_queue_invalidate_all_caches(mq_queue_handle *h)
    bint mq_queue_search_message(mq_queue_handle *h)


cdef extern from "workqueue/handoff.h" nogil:
    enum:
        MQ_QUEUE_OVERTAKEN_MAX
    uint64_t MQ_NO_TICKET
    ctypedef struct mq_queue_waiting_call:
        mq_queue_role role
        bint takes
        uint64_t ticket
        uint32_t overtaken
    mq_queue_waiting_call mq_queue_wait_begin(const mq_queue_handle *h, mq_queue_role role, bint takes)
    void mq_queue_wait_count_overtake(mq_queue_waiting_call *wait)
    uint32_t mq_queue_wait_prepare_sleep(const mq_queue_handle *h, mq_queue_waiting_call *wait, uint64_t oldest)
    bint mq_queue_wait_is_over(mq_queue_handle *h, const mq_queue_waiting_call *wait)
    int64_t mq_queue_wait_limit_sleep_ns(const mq_queue_handle *h, const mq_queue_waiting_call *wait,
                                         int64_t max_sleep_ns)
    void mq_queue_wait_end(const mq_queue_handle *h, const mq_queue_waiting_call *wait)


cdef extern from "workqueue/sender.h" nogil:
    enum:
        MQ_QUEUE_NO_SLOT
    int64_t mq_queue_claim_free_slot(mq_queue_handle *h, uint64_t ticket)
    uint8_t *mq_queue_get_slot_payload(const mq_queue_handle *h, uint64_t slot)
    uint64_t mq_queue_commit_message(mq_queue_handle *h, uint64_t slot, uint64_t length, uint64_t priority,
                                     uint64_t sent_time, uint64_t origin_time)
    uint64_t mq_queue_commit_delayed_message(mq_queue_handle *h, uint64_t slot, uint64_t length, uint64_t priority,
                                             uint64_t sent_time, uint64_t origin_time, uint32_t due_tick)
    bint mq_queue_requeue_message(mq_queue_handle *h, uint64_t slot, uint64_t word)
    bint mq_queue_end_delay(const mq_queue_file_parts *parts, uint64_t slot, uint64_t word)


cdef extern from "workqueue/receiver.h" nogil:
    ctypedef struct mq_queue_taken_message:
        uint64_t slot, key, word, length, deliveries, sent_time, origin_time
        int64_t taken_time
    bint mq_queue_take_slot(mq_queue_handle *h, uint64_t slot, uint64_t word, mq_queue_taken_message *delivery)
    mq_queue_status mq_queue_take_message(mq_queue_handle *h, uint64_t ticket, mq_queue_taken_message *delivery)
    void mq_queue_put_back_message(mq_queue_handle *h, const mq_queue_taken_message *delivery)
    int64_t mq_queue_start_job_lease(mq_queue_handle *h, const mq_queue_taken_message *delivery, int64_t until_ns)
    void mq_queue_buffer_delivery_event(const mq_queue_handle *h, mq_queue_event_type event_type,
                                        const mq_queue_taken_message *delivery)
    bint mq_queue_delay_taken_message(mq_queue_handle *h, const mq_queue_taken_message *delivery, uint32_t due_tick)
    bint mq_queue_free_taken_slot(mq_queue_handle *h, const mq_queue_taken_message *delivery)


cdef extern from "workqueue/recovery.h" nogil:
    enum:
        MQ_QUEUE_RECOVER_NS
        MQ_QUEUE_RECOVER_BUSY_NS
    int64_t mq_queue_recover(mq_queue_handle *h, int64_t now_ns)
    bint mq_queue_recovery_is_due(const mq_queue_handle *h, int64_t now_ns)
    bint mq_queue_delays_changed(const mq_queue_handle *h)
    int64_t mq_queue_reclaim_slots(mq_queue_handle *h, int64_t now_ns)
    void mq_queue_notify_if_not_empty(const mq_queue_file_parts *parts)
    bint mq_queue_owns_word(const mq_queue_handle *h, uint64_t word)
    void mq_queue_leave(mq_queue_handle *h, uint64_t uid, void **liveness_token)
    void mq_queue_forward_wake_and_notify(mq_queue_handle *h)
    void mq_queue_forward_sender_wake(mq_queue_handle *h)


cdef extern from "workqueue/join.h" nogil:
    ctypedef struct mq_queue_request:
        uint64_t max_messages, max_message_size
        bint names_sizes
    int mq_queue_check_file(mq_queue *queue, uint64_t size, const char *path, mq_queue_file_parts *parts,
                            mq_error *error)
    int mq_queue_check_sized_file(mq_queue *queue, uint64_t size, const char *path, mq_queue_file_parts *parts,
                                  mq_error *error)
    mq_queue_request mq_queue_make_request(uint64_t max_messages, uint64_t max_message_size,
                                           mq_queue_events_mode events)
    uint64_t mq_queue_compute_new_file_bytes(const mq_queue_request *request)
    void mq_queue_init_file(mq_queue *queue, const mq_queue_request *request, uint64_t created_ns,
                            const mq_process_identity *self)
    int mq_queue_choose_sizes(mq_queue *queue, const mq_file_policy *policy, const mq_file_lock *lock,
                              const mq_queue_request *request, const mq_process_identity *self, mq_error *error)
    void mq_queue_use_slots(mq_queue_handle *h, const mq_queue_file_parts *parts, mq_queue_block_cache *caches)
    int mq_queue_join(mq_queue_handle *h, const mq_file_lock *lock, const mq_process_identity *self, uint64_t uid,
                      void **row_token, mq_error *error)
    bint mq_queue_other_process_is_notified(const mq_queue_handle *h)


cdef extern from "workqueue/poll_state.h" nogil:
    ctypedef struct mq_queue_poll_state:
        mq_queue_handle h
        uint64_t ticket
    uint32_t mq_queue_poll_add_watcher(mq_queue_poll_state *state)
    void mq_queue_poll_remove_watcher(mq_queue_poll_state *state)
    int mq_queue_poll_has_more(const void *reader)
    uint32_t mq_queue_poll_prepare_wait(const void *reader, mq_u32 *word)
    void mq_queue_poll_end_wait(const void *reader)
    int64_t mq_queue_poll_max_sleep_ns(const void *reader)
    ctypedef struct mq_queue_notification:
        mq_queue_handle h
    int mq_queue_notification_has_more(const void *reader)
    int64_t mq_queue_notification_max_sleep_ns(const void *reader)
    uint32_t mq_queue_notification_prepare_wait(const void *reader, mq_u32 *word)
    bint mq_queue_notification_is_due(const mq_queue_notification *notification)
    bint mq_queue_notification_consume(mq_queue_notification *notification)


cdef extern from "workqueue/peek.h" nogil:
    ctypedef struct mq_queue_pending_message:
        uint64_t slot, word, length, deliveries, sent_time, origin_time
    ctypedef struct mq_queue_seen_message:
        pass
    bint mq_peek_read_slot(const mq_queue_file_parts *parts, uint64_t slot, mq_queue_pending_message *message)
    bint mq_peek_copy_payload(const mq_queue_file_parts *parts, const mq_queue_pending_message *message, uint8_t *room)
    bint mq_peek_message_was_seen(const mq_queue_seen_message *seen, const mq_queue_pending_message *message)
    void mq_peek_mark_message_seen(mq_queue_seen_message *seen, const mq_queue_pending_message *message)
    uint64_t mq_queue_sum_sent_counts(const mq_queue *queue)


cdef extern from "workqueue/snapshot.h" nogil:
    enum:
        MQ_QUEUE_PRIORITIES
    ctypedef struct mq_queue_row_slot_counts:
        uint64_t filling, taken
    ctypedef struct mq_queue_slot_counts:
        uint64_t free, filling, ready, taken, delayed, corrupt, lost, redelivered, most_deliveries
        uint64_t leases, expired_leases, oldest
        mq_queue_row_slot_counts rows[128]
    void mq_queue_count_all_slots(const mq_queue_file_parts *parts, uint64_t now_ns, mq_queue_slot_counts *counts,
                                  uint32_t *by_priority)
    uint64_t mq_queue_count_since_join(const mq_u64 *count, const mq_u64 *before)


cdef extern from "time.h" nogil:
    enum:
        CLOCK_MONOTONIC_COARSE


cdef class QueueFile(EndpointFile):
    """A queue's file, mapped and open, with its lock. Each handle of a process has its own."""
    cdef object wanted  # options.OpenRequest: the options of a new file
    cdef mq_queue_request request  # the same for C
    cdef mq_queue_file_parts parts  # parts; no slots until a process has chosen the sizes and this handle maps them
    # mapping without slots and its memory, kept until the close because threads may sleep on its words
    cdef Segment unsized_segment
    cdef SegmentMemory unsized_memory
    cdef mq_schema_parts schema_parts(self) noexcept
    cdef int choose_sizes(self) except -1
    cdef bint adopt_sizes(self) except -1
    cdef int _map_slots(self) except -1

cdef QueueFile queue_file(str name, str in_prefix, object trust, object wanted)
cdef QueueFile open_queue_file(str name, str in_prefix)


cdef class EventBuffer:
    """A buffer for the unpublished events of one thread."""
    cdef mq_queue_event_buffer c


cdef class EventPublisher:
    """A handle's event publisher. One thread at a time publishes, and also publishes events that other threads add."""
    cdef QueueFile _file
    cdef EventBuffer buffer                # events of the handle
    cdef EventBuffer watcher_buffer  # events of the watcher thread, guarded by the watcher's mutex
    cdef object _publisher  # publisher of the channel. None: the channel was not opened, or opening failed
    cdef uint64_t _slot_bytes  # payload bytes of the pool's slots
    cdef bint _with_payload  # events of sends contain the payload
    cdef bint _has_payload_slots  # the slots have room for payloads
    cdef object _load_publisher  # returns the class of the channel's publishers
    cdef bint _is_publishing  # a thread publishes events or opens the channel
    cdef int64_t _next_open_attempt_ns  # time of the next attempt to open the channel, by CLOCK_MONOTONIC
    cdef object _deferred_events  # events added while a thread publishes: messages with their origins
    cdef int restart_for_handle(self, const mq_queue_handle *h) except -1
    cdef bint can_publish_now(self, bint sends) noexcept
    cdef int open_channel(self, bint sends) except -1
    cdef bint has_buffered_events(self) noexcept
    cdef void publish_buffered_events(self) noexcept
    cdef void publish_event(self, const mq_queue_event_record *record, const Py_buffer *payload) noexcept
    cdef int close(self) except -1
    cdef int64_t _now_ns(self) noexcept
    cdef int _open_channel(self, bint sends) except -1
    cdef int _send_or_defer_event(self, bytes message, uint64_t origin_time) except -1
    cdef int _send_event(self, bytes message, uint64_t origin_time) except -1
    cdef int _send_deferred_events(self) except -1


cdef EventPublisher new_event_publisher(QueueFile file, object load_publisher)


cdef enum:
    NO_WAIT = 0  # a time in the past: the call does not wait


cdef class QueueWait(Waitable)


cdef class QueueHandle(ThreadSharedHandle):
    """An open queue with its row."""
    cdef QueueFile _file
    cdef mq_queue_handle _h
    cdef mq_queue_poll_state _poll_state  # the handle's state for the watcher thread
    cdef uint64_t _uid              # uid of the row
    cdef void *_liveness_token  # lock of the row
    cdef bint _joined  # the handle has a row
    cdef bint _can_read
    cdef bint _can_write
    cdef public bint block
    cdef public bint signals_end_waits
    cdef int64_t _next_lease_end_ns  # end of the next known lease, by CLOCK_MONOTONIC
    cdef int _sleeping_threads[3]  # number of sleeping threads of each role
    cdef object _registration               # notifies when a message arrives in the empty queue (notifier.py)
    cdef int _unwoken_messages  # sent messages whose receivers are not woken yet
    cdef EventPublisher _event_publisher  # None: the queue has no events
    cdef QueueWait _first_wait  # first wait of a thread in this handle, or None
    cdef tuple _unused_wait  # a tuple with the last wait that ended, for the next call; None: that call creates one
    cdef str _prefix  # prefix without the bus
    cdef bint _is_reported  # the queue has events, or the handle is observed
    cdef bint _is_observed  # True in a simulation: the bus learns of each send, and of each message taken
    cdef int _held_sends  # sends of a simulation that wait for their commit
    cdef int _attach_file(self, QueueFile file) except -1
    cdef int _adopt_sizes(self) except -1
    cdef int _choose_sizes(self) except -1
    cdef int _use_slots(self) except -1
    cdef int _reset_for_process(self) except -1
    cdef int _occupy_row(self, mq_file_lock *lock) except -1
    cdef int _check_can_read(self) except -1
    cdef int _check_can_write(self) except -1
    cdef void _wake_receivers(self) noexcept
    cdef void _add_wait(self, QueueWait wait) noexcept
    cdef void _remove_wait(self, QueueWait wait) noexcept
    cdef int _recover_from_dead_owners(self, int64_t now) except -1
    cdef int _open_event_channel(self, bint sends) except -1
    cdef int _open_event_channel_to_take(self) except -1
    cdef void _publish_buffered_events(self) noexcept
    cdef void _publish_delivery_event(self, mq_queue_event_type event_type,
                                      const mq_queue_taken_message *delivery) noexcept
    cdef int _report_delivery(self, mq_queue_event_type event_type, const mq_queue_taken_message *delivery) except -1
    cdef int _run_notifications(self) except -1
    cdef tuple _alarm_key(self, uint64_t slot, uint64_t word)
    cdef int _set_alarm(self, uint64_t slot, int64_t due_ns) except -1
    cdef int _cancel_alarm(self, uint64_t slot, uint64_t word) except -1
    cdef int _return_taken_messages(self, bint abandoned) except -1
    cdef bint _wait_on_bus(self, QueueWait wait, int64_t give_up_ns) except -1
    cdef int _publish_recovery_events(self) except -1
    cdef bint _recover_if_due(self, int64_t now) except -1
    cdef int64_t _compute_next_recovery_ns(self) except -2
    cdef QueueWait _begin_wait(self, mq_queue_role role, bint takes)
    cdef bint _sleep_until_wake(self, QueueWait wait, int64_t give_up_ns) except -1
    cdef int64_t _wait_for_slot(self, int64_t give_up_ns) except -2
    cdef bint _wait_for_message(self, mq_queue_taken_message *delivery, int64_t give_up_ns) except -1
    cdef int64_t _compute_give_up_ns(self, timeout, deadline) except -2
    cdef int64_t _claim_free_slot(self, int64_t give_up_ns) except -2
    cdef int _copy_payload_in(self, uint64_t slot, const void *source, uint64_t size) noexcept
    cdef bint _try_take_message(self, uint64_t ticket, mq_queue_taken_message *delivery) except -1
    cdef bint _take_message_or_wait(self, mq_queue_taken_message *delivery, timeout, deadline) except -1
    cdef bytes _copy_payload_out(self, const mq_queue_taken_message *delivery)
    cdef bint _is_truncated(self) noexcept
    cdef uint64_t _find_oldest_ticket(self, mq_queue_role role) noexcept


cdef class QueueWait(Waitable):
    """The wait of one call in a handle, for a message or a slot: one sleep or several."""
    cdef QueueHandle _queue  # None: no call uses this wait
    cdef QueueWait _next  # next wait in the handle
    cdef tuple _alone  # a tuple with this wait only
    cdef mq_queue_waiting_call _c
    cdef list _tickets  # tickets of all calls on a bus that wait for the same
    cdef bint _is_over_on_bus(self) except -1
    cdef void _finish_waiting(self) noexcept


cdef int run_notifications(QueueFile file) except -1


cdef class QueueAlarm:
    """The end of a lease or a delay on a bus."""
    cdef QueueHandle _taker  # owner of a message with a lease; None: the message is delayed, and has no owner
    cdef QueueFile _file
    cdef uint64_t _slot, _word


cdef class HeldSend:
    """A send in a simulation between its two steps: the slot is filled, and the message is not sent yet."""
    cdef readonly QueueHandle queue
    cdef readonly uint64_t slot
    cdef readonly bytes data
    cdef readonly uint64_t priority
    cdef int64_t _sent_time
    cdef uint64_t _origin_time
    cdef bint _is_over
    cdef int _end(self) except -1


cdef object new_job(QueueHandle queue, const mq_queue_taken_message *delivery)


cdef class MessageQueue(QueueHandle):
    cdef tuple _sizes(self)
    cdef int _deliver_signals(self, bint was_requested) except -1
    cdef object _count_slots(self, mq_slot_state state)
    cdef bint _send_without_wake(self, const Py_buffer *view, uint64_t rank, uint64_t origin, int64_t delay_ns,
                                 int64_t give_up_ns) except -1
    cdef bint _send_on_bus(self, const Py_buffer *view, uint64_t rank, uint64_t origin, int64_t delay_ns,
                           uint64_t slot) except -1
    cdef int _hold_send(self, const Py_buffer *view, uint64_t rank, uint64_t origin, uint64_t slot) except -1
    cdef void _publish_sent_event(self, const Py_buffer *view, uint64_t key, uint64_t slot, int64_t sent_time,
                                  uint64_t origin) noexcept
    cdef void _publish_refused_event(self, const Py_buffer *view, uint64_t rank, uint64_t origin) noexcept
    cdef object _copy_waiting_message(self, uint64_t slot, uint64_t word)
    cdef void _requeue_unseen_message(self, mq_queue_taken_message delivery) noexcept
    cdef bint _take_slot_with_ending(self, uint64_t slot, bytes ending, mq_queue_taken_message *delivery) except -1
    cdef bint _slot_ends_with(self, uint64_t slot, bytes ending) except -1
    cdef int _set_notify_bit(self, bint requested) except -1
