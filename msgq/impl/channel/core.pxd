"""The channel's headers as Cython sees them."""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from msgq.impl.base.core cimport (
    mq_liveness_probe, mq_liveness, mq_liveness_file, mq_schema_parts, mq_self, mq_u32, mq_u64,
)


cdef extern from "base/layout.h" nogil:
    ctypedef struct mq_identity:
        mq_u64 uid, pid, thread_id, start_time
        char name[16]


cdef extern from "base/index_ring.h" nogil:
    ctypedef struct mq_index_ring:
        uint64_t capacity
    uint64_t mq_index_ring_tail(const mq_index_ring *order)


cdef extern from "base/pool.h" nogil:
    enum:
        MQ_NODE_NAME
    ctypedef struct mq_pool:
        mq_u64 pid
        char node[48]
        mq_u32 slot_released
    ctypedef struct mq_pool_slot:
        pass
    ctypedef struct mq_pool_map:
        mq_pool *pool
        uint8_t *data
        uint64_t uid, slot_bytes, stride
        uint32_t slots
    uint64_t mq_pool_stride(uint64_t slot_bytes)
    uint64_t mq_pool_head(uint64_t slots, uint64_t page)
    void mq_pool_write(mq_pool *pool, uint64_t size, uint64_t slots, uint64_t slot_bytes, uint64_t page,
                       uint64_t channel_inode, uint64_t uid, uint64_t pid, const char *node)
    const char *mq_pool_check(mq_pool *pool, uint64_t size, uint64_t channel_inode, uint64_t uid, mq_pool_map *slots)
    uint8_t *mq_pool_slot_payload(mq_pool_slot *slot)
    uint64_t mq_pin_holders(const mq_pool_map *slots, uint32_t slot)
    void mq_pin_clear(const mq_pool_map *slots, uint32_t slot, unsigned viewer)


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
        mq_identity who
        mq_u64 pool_uid, slots, slot_bytes, pool_bytes, pool_inode, superseded, sent, bytes, refused, evicted
        char node[48]
    ctypedef struct mq_channel_viewer_row:
        mq_identity who
    ctypedef struct mq_channel_subscriber_row:
        mq_identity who
        char node[48]
        mq_u64 viewer, joined, cursor, received, lost, resets, views_held
    ctypedef struct mq_channel_header:
        mq_u64 version, created_ns, creator_pid, kind, config, tail
        char creator[64]
        mq_u32 attention
        mq_channel_publisher_row publishers[63]
        mq_channel_viewer_row viewers[64]
        mq_channel_subscriber_row subscribers[64]
        mq_schema schema
        char schema_data[1]
    ctypedef struct mq_channel_config:
        uint64_t capacity, publishers, subscribers, stamps
    uint64_t mq_channel_config_word(mq_channel_config config)
    mq_channel_config mq_channel_config_of(uint64_t word)
    mq_schema_parts mq_schema_parts_of(mq_schema *schema, char *data, uint64_t room)


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
        const mq_liveness_file *roll
        uint32_t limbo_count, published_count, free_count
        uint32_t *limbo
        uint64_t sent, bytes, refused, evicted
    bint mq_channel_publisher_begin(mq_channel_publisher *p)
    void mq_channel_publisher_end(mq_channel_publisher *p)
    int mq_channel_take_slot(mq_channel_publisher *p)
    void mq_channel_return_slot(mq_channel_publisher *p, uint32_t slot)
    uint32_t mq_channel_used_count(const mq_channel_publisher *p)
    uint32_t mq_channel_used_slot(const mq_channel_publisher *p, uint32_t i)
    bint mq_channel_clear_dead(mq_channel_publisher *p)
    uint8_t *mq_channel_payload(const mq_channel_publisher *p, uint32_t slot)
    mq_channel_status mq_channel_publish(mq_channel_publisher *p, uint32_t slot, uint64_t length, uint64_t origin_time,
                                         uint64_t *position)
    uint64_t mq_channel_publish_batch(mq_channel_publisher *p, const uint8_t *rows, uint64_t size, uint64_t count,
                                      uint64_t origin_time, uint64_t *first)
    void mq_channel_count_refused(mq_channel_publisher *p)


cdef extern from "channel/subscriber.h" nogil:
    ctypedef struct mq_channel_subscriber:
        mq_index_ring order
        const mq_channel_header *header
        mq_channel_subscriber_row *row
        const mq_u64 *whole
        const uint64_t *excluded_pools
        mq_pool_map pools[63]
        uint64_t history
        mq_u64 cursor
        uint64_t received, lost, resets
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
        const mq_u64 *whole
    uint64_t mq_channel_cursor(const mq_channel_subscriber *s)
    bint mq_channel_order(const mq_channel_header *header, mq_index_ring *order)
    void mq_channel_store_joined(const mq_channel_subscriber *s)
    bint mq_channel_join(mq_channel_subscriber *s, bint at_tail)
    mq_channel_status mq_channel_next(mq_channel_subscriber *s, mq_channel_message *m)
    void mq_channel_skip(mq_channel_subscriber *s, const mq_channel_message *m)
    bint mq_channel_accept(mq_channel_subscriber *s, const mq_channel_message *m)
    uint64_t mq_channel_take_batch(mq_channel_subscriber *s, uint8_t *out, uint64_t size, uint64_t count,
                                   mq_channel_message *last, const mq_u64 *whole)
    bint mq_channel_pin(mq_channel_subscriber *s, const mq_channel_message *m, unsigned viewer)
    int mq_channel_is_readable(const void *outlook)
    int64_t mq_channel_nap_ns(mq_channel_subscriber *s, int64_t now_ns)


cdef extern from "base/row_table.h" nogil:
    enum:
        MQ_NO_ROW
    ctypedef struct mq_row_table:
        pass
    int mq_row_table_reserve(const mq_row_table *roster, const mq_liveness_file *roll, void **hold)
    void mq_identity_write(mq_identity *who, const mq_self *self, uint64_t uid, bint held)
    void mq_identity_leave(mq_identity *who, uint64_t uid, void **hold)
    mq_liveness mq_identity_liveness(mq_liveness_probe *inquiry, const mq_identity *who, int byte)


cdef extern from "channel/header.h" nogil:
    ctypedef enum mq_channel_check_result:
        MQ_CHANNEL_VALID
        MQ_CHANNEL_OTHER_VERSION
    void mq_channel_header_init(mq_channel_header *header, uint64_t kind, uint64_t created_ns, uint64_t pid,
                                const char *creator)
    mq_channel_check_result mq_channel_header_check(const mq_channel_header *header, uint64_t size)
    bint mq_channel_configure(mq_channel_header *header, mq_channel_config config)
    uint64_t mq_channel_count_entries(const mq_index_ring *order, unsigned row, uint64_t *newest)
    void mq_channel_retract_all(const mq_index_ring *order, unsigned row)
    mq_liveness mq_channel_publisher_liveness(const mq_channel_header *header, mq_liveness_probe *inquiry, int row)
    bint mq_channel_has_publisher(const mq_channel_header *header, const mq_liveness_file *roll)
    void mq_channel_release_row(mq_channel_publisher_row *row)
    int mq_channel_find_free_row(mq_channel_header *header, const mq_liveness_file *roll, void **hold)
    void mq_channel_publisher_register(mq_channel_publisher_row *row, const mq_self *self, bint held,
                                       const mq_pool_map *slots, uint64_t pool_size, uint64_t pool_inode,
                                       const char *node)
    int mq_channel_find_free_viewer(const mq_channel_header *header, const mq_liveness_file *roll, int row)
    mq_row_table mq_channel_subscriber_table(mq_channel_header *header, int count)
    bint mq_channel_viewer_died(const mq_channel_header *header, int viewer)
    void mq_channel_clear_pins(const mq_pool_map *slots, int viewer)
    void mq_channel_subscriber_register(mq_channel_subscriber_row *row, const mq_self *self, uint64_t uid, bint held,
                                        const char *node)


cdef extern from "base/atomics.h" nogil:
    uint64_t mq_load_relaxed_u64(const mq_u64 *word)
    uint64_t mq_load_acquire_u64(const mq_u64 *word)
    void mq_store_release_u64(mq_u64 *word, uint64_t value)
