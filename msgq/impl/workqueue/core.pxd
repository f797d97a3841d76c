"""The headers of work queues as Cython sees them."""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from msgq.impl.base.core cimport (
    MQ_FILE_OTHER_VERSION, MQ_FILE_VALID, MQ_NO_ROW, mq_file_check, mq_participant, mq_participant_liveness,
    mq_liveness_probe, mq_liveness, mq_load_acquire_u64, mq_load_relaxed_u64, mq_liveness_file, mq_row_table,
    mq_row_table_reserve, mq_versioned_row, mq_schema, mq_schema_parts, mq_process_identity, mq_u32, mq_u64,
)


cdef extern from "base/atomics.h" nogil:
    uint32_t mq_load_acquire_u32(const mq_u32 *word)
    void mq_fence_acquire()
    void mq_store_relaxed_u64(mq_u64 *word, uint64_t value)


cdef extern from "workqueue/layout.h" nogil:
    enum:
        MQ_QUEUE_CREATOR
        MQ_QUEUE_MAJOR
        MQ_QUEUE_ROWS
        MQ_QUEUE_ROW_BYTE
        MQ_QUEUE_SCHEMA_DATA
    ctypedef enum mq_queue_role:
        MQ_QUEUE_RECEIVER
        MQ_QUEUE_WATCHER
        MQ_QUEUE_SENDER
    ctypedef enum mq_queue_events:
        MQ_QUEUE_EVENTS_NONE
        MQ_QUEUE_EVENTS_HEADS
        MQ_QUEUE_EVENTS_PAYLOAD
    ctypedef struct mq_queue_counts:
        mq_u64 sent, received, acknowledged, returned, refused
    ctypedef struct mq_queue_row:
        mq_versioned_row at
        mq_queue_counts counts_before, counts
        mq_u64 events_lost
        mq_u64 oldest_ticket[3]
    ctypedef struct mq_queue_bits:
        pass
    ctypedef struct mq_queue_slot_header:
        mq_u64 length, deliveries, sent_time, origin_time
    ctypedef struct mq_queue:
        mq_u64 created_ns, creator_pid
        char creator[64]
        mq_queue_bits sleeping_rows[3]
        mq_queue_bits notify_requested
        mq_u32 notify_seq
        mq_queue_row rows[128]
        mq_schema schema
        char schema_data[1]
    ctypedef struct mq_queue_parts:
        mq_queue *queue
        mq_u64 *slot_states
        mq_queue_slot_header *slot_headers
        uint64_t max_messages, max_message_size, blocks
        mq_queue_events events
    uint64_t mq_queue_bytes(uint64_t max_messages, uint64_t max_message_size)
    void mq_queue_write(mq_queue *queue, uint64_t max_messages, uint64_t max_message_size, uint64_t created_ns,
                        uint64_t pid, const char *creator, mq_queue_events events)
    mq_file_check mq_queue_check(mq_queue *queue, uint64_t size, mq_queue_parts *parts)


cdef extern from "workqueue/slot_state.h" nogil:
    ctypedef enum mq_slot_state:
        MQ_SLOT_TAKEN
    enum:
        MQ_JOB_LEASE_TICK_NS
    bint mq_slot_state_is_ready(uint64_t word)
    unsigned mq_slot_state_priority(uint64_t word)
    mq_slot_state mq_slot_state_of(uint64_t word)
    uint32_t mq_job_lease_tick(uint64_t host_time_ns)


cdef extern from "workqueue/events.h" nogil:
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
        mq_queue_row *row
        uint8_t number
        uint32_t pid
        int64_t clock_offset
        uint64_t first, end, room
        mq_queue_event_record *records
    void mq_queue_count_lost_events(const mq_queue_event_buffer *buffer, uint64_t n)
    void mq_queue_event_buffer_move(mq_queue_event_buffer *source, mq_queue_event_buffer *target)
    mq_queue_event_record mq_queue_make_sent_event(const mq_queue_event_buffer *buffer, uint64_t key, uint64_t slot,
                                                   uint64_t length, int64_t sent_time, uint64_t origin_time)
    mq_queue_event_record mq_queue_make_refused_event(const mq_queue_event_buffer *buffer, uint64_t priority,
                                                      uint64_t length, uint64_t origin_time)


cdef extern from "workqueue/handle.h" nogil:
    ctypedef struct mq_queue_block_cache:
        pass
    ctypedef struct mq_queue_handle:
        mq_queue_parts parts
        mq_queue_row *row
        unsigned number
        uint64_t next
        mq_queue_block_cache *blocks
        bint saw_owned_slots
        int64_t clock_offset
        const mq_liveness_file *liveness_file
        mq_queue_event_buffer *event_buffer
    ctypedef enum mq_queue_status:
        MQ_QUEUE_OK
        MQ_QUEUE_EMPTY
    mq_row_table mq_queue_row_table(mq_queue *queue)
    void mq_queue_count(mq_u64 *counter, uint64_t n)
    void mq_queue_bit_on(mq_queue_bits *bits, unsigned row)
    void mq_queue_bit_off(mq_queue_bits *bits, unsigned row)
    bint mq_queue_bit_is_on(const mq_queue_bits *bits, unsigned row)
    void mq_queue_debt_add(mq_queue_row *row, uint64_t n)
    void mq_queue_debt_clear(mq_queue_row *row, uint64_t n)
    mq_u32 *mq_queue_eventcount(const mq_queue_handle *h, mq_queue_role role)
    void mq_queue_finish_sleep(const mq_queue_handle *h, mq_queue_role role)
    void mq_queue_wake_receivers(mq_queue *queue, int messages)


cdef extern from "workqueue/handoff.h" nogil:
    enum:
        MQ_QUEUE_OVERTAKEN_MAX
    uint64_t MQ_NO_TICKET
    bint mq_queue_has_ready(const mq_queue_parts *parts)
    bint mq_queue_has_free(const mq_queue_parts *parts)
    ctypedef struct mq_queue_wait:
        mq_queue_role role
        bint takes
        uint64_t ticket
        uint32_t overtaken
    mq_queue_wait mq_queue_wait_begin(const mq_queue_handle *h, mq_queue_role role, bint takes)
    void mq_queue_wait_overtaken(mq_queue_wait *wait)
    uint32_t mq_queue_wait_prepare_sleep(const mq_queue_handle *h, mq_queue_wait *wait, uint64_t oldest)
    bint mq_queue_wait_is_over(mq_queue_handle *h, const mq_queue_wait *wait)
    int64_t mq_queue_wait_max_sleep_ns(const mq_queue_handle *h, const mq_queue_wait *wait, int64_t max_sleep_ns)
    void mq_queue_wait_end(const mq_queue_handle *h, const mq_queue_wait *wait)


cdef extern from "workqueue/sender.h" nogil:
    enum:
        MQ_QUEUE_NO_SLOT
    int64_t mq_queue_claim_slot(mq_queue_handle *h, uint64_t ticket)
    uint8_t *mq_queue_slot_payload(const mq_queue_handle *h, uint64_t slot)
    uint64_t mq_queue_commit(mq_queue_handle *h, uint64_t slot, uint64_t length, uint64_t priority, uint64_t sent_time,
                             uint64_t origin_time)
    bint mq_queue_requeue(mq_queue_handle *h, uint64_t slot, uint64_t taken)


cdef extern from "workqueue/receiver.h" nogil:
    ctypedef struct mq_queue_delivery:
        uint64_t slot, key, word, length, deliveries, sent_time, origin_time
        int64_t taken_time
    void mq_queue_cache_invalidate_all(mq_queue_handle *h)
    mq_queue_status mq_queue_take(mq_queue_handle *h, uint64_t ticket, mq_queue_delivery *delivery)
    void mq_queue_set_lease(mq_queue_handle *h, const mq_queue_delivery *delivery, uint32_t deadline_tick)
    void mq_queue_add_event_of_delivery(const mq_queue_handle *h, mq_queue_event_type event_type,
                                        const mq_queue_delivery *delivery)
    bint mq_queue_free_slot(mq_queue_handle *h, const mq_queue_delivery *delivery)


cdef extern from "workqueue/recovery.h" nogil:
    enum:
        MQ_QUEUE_RECOVER_NS
        MQ_QUEUE_RECOVER_BUSY_NS
    int64_t mq_queue_recover(mq_queue_handle *h, int64_t now_ns)
    bint mq_queue_reclaim_due(const mq_queue_handle *h, int64_t now_ns)
    void mq_queue_notify_if_not_empty(const mq_queue_parts *parts)
    void mq_queue_join(mq_queue_handle *h, int row, const mq_process_identity *self, uint64_t uid, bint held)
    void mq_queue_leave(mq_queue_handle *h, uint64_t uid, void **liveness_token)
    void mq_queue_forward_message_wake(mq_queue_handle *h)
    void mq_queue_forward_room_wake(mq_queue_handle *h)


cdef extern from "workqueue/poll_state.h" nogil:
    ctypedef struct mq_queue_poll_state:
        mq_queue_handle h
        uint64_t ticket
    uint32_t mq_queue_watch(mq_queue_poll_state *state)
    void mq_queue_unwatch(mq_queue_poll_state *state)
    int mq_queue_poll_has_more(const void *reader)
    uint32_t mq_queue_poll_prepare_wait(const void *reader, mq_u32 *word)
    void mq_queue_poll_end_wait(const void *reader)
    ctypedef struct mq_queue_notification:
        mq_queue_handle h
    int mq_queue_notification_has_more(const void *reader)
    uint32_t mq_queue_notification_prepare_wait(const void *reader, mq_u32 *word)
    bint mq_queue_notification_is_due(const mq_queue_notification *notification)
    bint mq_queue_notification_consume(mq_queue_notification *notification)
