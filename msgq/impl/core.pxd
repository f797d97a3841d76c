"""The C core (the headers beside this file) as Cython sees it.

Shared structures are opaque here: touching one of their fields from Cython does not compile. Only the private state of
a socket has fields.
"""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t


cdef extern from "atomics.h" nogil:
    void mq_copy_in(void *shared, const void *source, size_t n)
    void mq_copy_out(void *to, const void *shared, size_t n)


cdef extern from "layout.h" nogil:
    enum:
        MQ_RING_HEADER
        MQ_SIDE_VERSION
        MQ_SIDE_BYTES
        MQ_PUBLISHERS
        MQ_READERS
        MQ_SCHEMA_NAME
        MQ_SCHEMA_ENCODING
        MQ_SCHEMA_DATA_MAX
        MQ_DEFAULT_DATA_BYTES
        MQ_GATE_VERSION
        MQ_GATE_BYTES
        MQ_EVENT_ONE
    ctypedef struct mq_ring_header:
        pass
    ctypedef struct mq_side:
        pass
    ctypedef struct mq_event:
        pass
    ctypedef struct mq_gate:
        pass


cdef extern from "position.h" nogil:
    uint64_t mq_need(uint64_t size)
    uint64_t mq_need_max(uint32_t data_bytes)


cdef extern from "whole.h" nogil:
    ctypedef struct mq_u64:
        pass
    ctypedef struct mq_whole:
        pass
    bint mq_file_outgrows(const char *path, uint64_t inode, uint64_t data_bytes)
    bint mq_is_whole(const mq_whole *whole)
    bint mq_is_uncut(const mq_whole *whole)
    mq_whole mq_whole_always()
    mq_whole mq_whole_by(const mq_u64 *word)
    mq_whole mq_whole_ring(const mq_ring_header *ring, uint64_t data_bytes, const mq_u64 *word)
    void mq_ring_sign(mq_ring_header *ring, uint64_t data_bytes, uint64_t random)


cdef extern from "liveness.h" nogil:
    ctypedef enum mq_life:
        MQ_DEAD
        MQ_ALIVE
        MQ_UNKNOWN
    ctypedef struct mq_self:
        uint64_t pid
        uint64_t thread_id
        uint64_t start_time
        uint64_t pid_namespace
        char name[16]
    int mq_read_self(mq_self *self)
    uint64_t mq_thread_id()
    mq_life mq_process_life(uint64_t pid, uint64_t start_time, uint64_t pid_namespace)
    mq_life mq_thread_life(uint32_t thread_id)


cdef extern from "life.h" nogil:
    ctypedef struct mq_roll:
        const char *path
        int fd
        uint64_t device
        uint64_t inode
    ctypedef struct mq_inquiry:
        const mq_roll *roll
    void *mq_row_hold(const mq_roll *roll, uint64_t row, bint shared)
    void *mq_file_hold(const char *path, mq_roll *which)
    void mq_row_let_go(void *hold)
    mq_inquiry mq_inquire(const mq_roll *roll)
    void mq_inquiry_end(mq_inquiry *inquiry)
    mq_life mq_row_held(mq_inquiry *inquiry, uint64_t row)
    mq_life mq_owner_life(mq_inquiry *inquiry, uint64_t row, uint64_t pid, uint64_t pid_namespace)


cdef extern from "slots.h" nogil:
    enum:
        MQ_ROW_UNLISTED
    mq_life mq_row_life(mq_inquiry *inquiry, const mq_side *side, int row)


cdef extern from "futex.h" nogil:
    enum:
        MQ_FUTEX_MANY
        MQ_FUTEX_32
    ctypedef struct mq_futex_many:
        uint64_t expected
        uint64_t address
        uint32_t flags
    int64_t mq_now_ns()
    long mq_futex_wait(uint32_t *word, uint32_t expected, int64_t deadline_ns)
    long mq_futex_wait_many(const mq_futex_many *words, unsigned count, int64_t deadline_ns)
    void mq_futex_wake_all(uint32_t *word)
    bint mq_membarrier_register()


cdef extern from "publisher.h" nogil:
    ctypedef enum mq_status:
        MQ_OK
        MQ_NOTIFY
        MQ_EMPTY
        MQ_TOO_LARGE
        MQ_CORRUPT
    ctypedef struct mq_publisher_entry:
        pass
    ctypedef struct mq_publisher:
        mq_ring_header *ring
        mq_side *side
        const mq_roll *roll
        void *hold
        uint8_t *data
        mq_whole whole
        uint32_t data_bytes
        bint after_stock
        bint unordered
        bint fences
        uint64_t uid
        uint64_t position
        uint64_t pending
        uint64_t sequence
        uint64_t bytes
        uint32_t stock_count
    mq_status mq_publisher_send(mq_publisher *p, const void *data, uint64_t size)
    mq_status mq_publisher_begin(mq_publisher *p, uint64_t size, uint8_t **payload)
    bint mq_publisher_has_room(const mq_publisher *p, uint64_t size)
    void mq_publisher_stage(mq_publisher *p, uint64_t size)
    mq_status mq_publisher_commit(mq_publisher *p)
    mq_status mq_publisher_discard(mq_publisher *p, mq_status why)
    void mq_publisher_notify(mq_publisher *p)
    void mq_publisher_survey(mq_publisher *p)
    void mq_publisher_forget_stock(mq_publisher *p)


cdef extern from "subscriber.h" nogil:
    ctypedef struct mq_subscriber:
        mq_ring_header *ring
        mq_side *side
        const mq_roll *roll
        void *hold
        const uint8_t *data
        mq_whole whole
        const char *path
        uint64_t inode
        uint32_t data_bytes
        bint outgrown
        bint passive
        bint announced
        bint lost_unknown
        void *entry
        uint64_t cursor
        uint64_t published
        uint64_t publisher_uid
        uint64_t sequence_base
        uint64_t received
        uint64_t lost
        uint64_t resets
        uint32_t signal_thread
        int slot
    ctypedef struct mq_message:
        const uint8_t *payload
        uint64_t size
    mq_status mq_subscriber_next(mq_subscriber *s, bint conflate, mq_message *message)
    mq_status mq_subscriber_peek(mq_subscriber *s, mq_message *message)
    bint mq_subscriber_accept(mq_subscriber *s, const mq_message *message)
    mq_status mq_subscriber_doubt(mq_subscriber *s)
    uint64_t mq_subscriber_pending_bytes(const mq_subscriber *s)
    mq_status mq_subscriber_refresh(mq_subscriber *s)
    mq_status mq_subscriber_reset(mq_subscriber *s)
    int64_t mq_subscriber_take_block(mq_subscriber *s, uint8_t *out, uint64_t size, int64_t most)
    void mq_subscriber_refresh_survey(mq_subscriber *s)
    void mq_subscriber_survey_again(mq_subscriber *s)
    void mq_subscriber_survey(mq_subscriber *s)
    void mq_subscriber_take_signals(mq_subscriber *s, uint32_t thread)
    bint mq_subscriber_lacks_side(mq_subscriber *s)
    void mq_subscriber_adopt(mq_subscriber *s, mq_side *side)
    uint32_t mq_subscriber_announce_sleep(mq_subscriber *s)
    bint mq_subscriber_has_more(const mq_subscriber *s)
    uint32_t *mq_subscriber_futex(mq_subscriber *s)


cdef extern from "registry.h" nogil:
    enum:
        MQ_NO_ROW
    void mq_side_init(mq_side *side, const mq_ring_header *ring, uint64_t inode, uint32_t data_bytes,
                      uint64_t created_ns)
    int mq_side_check(const mq_side *side, uint64_t inode, uint32_t data_bytes)
    bint mq_ring_wiped(const mq_ring_header *ring, const mq_side *side, uint32_t data_bytes)
    void mq_side_follow(mq_side *side, const mq_ring_header *ring, uint32_t data_bytes)
    void mq_ring_shorten(mq_ring_header *ring, const mq_side *side, uint64_t inode, uint32_t data_bytes)
    uint64_t mq_side_version(const mq_side *side)
    int mq_publisher_row_take(const mq_roll *roll, const mq_ring_header *ring, mq_side *side, void **hold)
    uint64_t mq_publisher_claim(mq_publisher *p, const mq_self *self, uint32_t random, int row)
    void mq_publisher_unclaim(mq_publisher *p, uint64_t former)
    const mq_publisher_entry *mq_other_send_in_progress(const mq_publisher *p, bint known)
    uint64_t mq_publisher_pid(const mq_publisher_entry *former)
    mq_status mq_publisher_start(mq_publisher *p, const mq_self *self)
    void mq_publisher_close(mq_publisher *p)
    uint64_t mq_publisher_current_pid(const mq_ring_header *ring, const mq_side *side)
    mq_status mq_subscriber_join(mq_subscriber *s, const mq_self *self, uint32_t random)
    void mq_subscriber_disown(mq_subscriber *s)
    void mq_subscriber_rejoin(mq_subscriber *s, const mq_self *self, uint32_t random)
    void mq_subscriber_leave(mq_subscriber *s)
    void mq_schema_write(mq_side *side, const char *name, const char *encoding, const char *data, uint64_t size)
    bint mq_schema_read(const mq_side *side, char *name, char *encoding, char *data, uint64_t *size)
    void mq_readers_count(const mq_publisher *p, int *attached, int *updated)


cdef extern from "helper.h" nogil:
    uint32_t mq_helper_watch(mq_ring_header *ring, mq_side *side, mq_whole whole, const char *path, uint64_t seen_uid)
    void mq_helper_unwatch(mq_ring_header *ring)


cdef extern from "watcher.h" nogil:
    int mq_watcher_add(mq_subscriber *s)
    void mq_watcher_quiet(mq_subscriber *s, int fd, int64_t nap_ns)
    void mq_watcher_follow(const mq_subscriber *s, int fd)
    void mq_watcher_remove(int fd)


cdef extern from "gate.h" nogil:
    ctypedef enum mq_gate_state:
        MQ_GATE_GOOD
        MQ_GATE_FOREIGN
        MQ_GATE_VERSION_DIFFERS
    ctypedef enum mq_event_change:
        MQ_EVENT_WAS_CLEAR
        MQ_EVENT_CLEARED_TELL
    enum:
        MQ_GATE_ROW
    void mq_gate_init(mq_gate *gate, const mq_self *owner, bint held)
    mq_gate_state mq_gate_check(const mq_gate *gate)
    uint64_t mq_gate_version(const mq_gate *gate)
    uint64_t mq_gate_owner(const mq_gate *gate)
    mq_life mq_gate_owner_life(const mq_gate *gate, const mq_roll *roll)
    bint mq_gate_enabled(const mq_gate *gate)
    void mq_gate_enable(mq_gate *gate, bint enabled)
    bint mq_gate_closed(const mq_gate *gate)
    void mq_gate_close(mq_gate *gate)
    mq_event *mq_gate_event(mq_gate *gate, int ready)
    bint mq_event_is_set(const mq_event *event)
    bint mq_event_set(mq_event *event)
    mq_event_change mq_event_clear(mq_event *event)
    void mq_event_settle(const mq_event *event, int fifo)
    void mq_event_watch(mq_event *event, uint64_t inode, int fifo)
    uint64_t mq_event_fifo(const mq_event *event)
    bint mq_event_spin(const mq_futex_many *words, unsigned count, int64_t until_ns)
    uint32_t *mq_event_futex(mq_event *event)
    uint32_t mq_event_announce_sleep(mq_event *event)
