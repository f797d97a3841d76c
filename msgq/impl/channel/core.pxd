"""The channel's headers as Cython sees them."""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from msgq.impl.ground.core cimport mq_inquiry, mq_life, mq_roll, mq_schema_parts, mq_self, mq_u32, mq_u64


cdef extern from "ground/layout.h" nogil:
    ctypedef struct mq_identity:
        mq_u64 uid, pid, thread_id, start_time
        char name[16]


cdef extern from "ground/order.h" nogil:
    ctypedef struct mq_order:
        uint64_t capacity
    uint64_t mq_order_tail(const mq_order *order)


cdef extern from "ground/pool.h" nogil:
    enum:
        MQ_NODE_NAME
    ctypedef struct mq_pool:
        mq_u64 pid
        char node[48]
        mq_u32 released
    ctypedef struct mq_slot:
        pass
    ctypedef struct mq_slots:
        mq_pool *pool
        uint8_t *data
        uint64_t uid, slot_bytes, stride
        uint32_t slots
    uint64_t mq_pool_stride(uint64_t slot_bytes)
    uint64_t mq_pool_head(uint64_t slots, uint64_t page)
    void mq_pool_write(mq_pool *pool, uint64_t size, uint64_t slots, uint64_t slot_bytes, uint64_t page,
                       uint64_t piece_inode, uint64_t uid, uint64_t pid, const char *node)
    const char *mq_pool_check(mq_pool *pool, uint64_t size, uint64_t piece_inode, uint64_t uid, mq_slots *slots)
    uint8_t *mq_slot_payload(mq_slot *slot)
    uint64_t mq_pin_holders(const mq_slots *slots, uint32_t slot)
    void mq_pin_clear(const mq_slots *slots, uint32_t slot, unsigned viewer)


cdef extern from "channel/layout.h" nogil:
    enum:
        MQ_HUB_CREATOR
        MQ_HUB_MAJOR
        MQ_PUBLISHERS
        MQ_VIEWERS
        MQ_LISTENERS
        MQ_VIEWER_BYTE
        MQ_LISTENER_BYTE
        MQ_OPEN_BYTE
        MQ_ANY_SUBSCRIBERS
        MQ_NO_STAMPS
        MQ_STAMPS
        MQ_HUB_SCHEMA_DATA
    ctypedef struct mq_schema:
        pass
    ctypedef struct mq_publisher_row:
        mq_identity who
        mq_u64 pool_uid, slots, slot_bytes, pool_bytes, pool_inode, superseded, sent, bytes, refused, withdrawn
        char node[48]
    ctypedef struct mq_viewer_row:
        mq_identity who
    ctypedef struct mq_listener_row:
        mq_identity who
        char node[48]
        mq_u64 viewer, joined, cursor, received, lost, resets, held
    ctypedef struct mq_hub:
        mq_u64 version, created_ns, creator_pid, kind, geometry, tail
        char creator[64]
        mq_u32 attention
        mq_publisher_row publishers[63]
        mq_viewer_row viewers[64]
        mq_listener_row listeners[64]
        mq_schema schema
        char schema_data[1]
    ctypedef struct mq_geometry:
        uint64_t capacity, publishers, subscribers, stamps
    uint64_t mq_geometry_word(mq_geometry geometry)
    mq_geometry mq_geometry_of(uint64_t word)
    mq_schema_parts mq_schema_parts_of(mq_schema *schema, char *data, uint64_t room)


cdef extern from "channel/publisher.h" nogil:
    ctypedef enum mq_channel_status:
        MQ_CHANNEL_OK
        MQ_CHANNEL_EMPTY
        MQ_CHANNEL_NOTIFY
        MQ_CHANNEL_UNMAPPED
        MQ_CHANNEL_CORRUPT
    enum:
        MQ_NO_SLOT
    ctypedef struct mq_channel_publisher:
        mq_order order
        mq_slots slots
        mq_hub *hub
        mq_publisher_row *row
        unsigned number
        bint stamps
        int64_t clock_offset
        const mq_roll *roll
        uint32_t limbo_count, published_count, free_count
        uint32_t *limbo
        uint64_t sent, bytes, refused, withdrawn
    bint mq_channel_publisher_begin(mq_channel_publisher *p)
    void mq_channel_publisher_end(mq_channel_publisher *p)
    int mq_channel_take(mq_channel_publisher *p)
    void mq_channel_give_back(mq_channel_publisher *p, uint32_t slot)
    uint32_t mq_channel_used(const mq_channel_publisher *p)
    uint32_t mq_channel_used_slot(const mq_channel_publisher *p, uint32_t i)
    bint mq_channel_clear_dead(mq_channel_publisher *p)
    uint8_t *mq_channel_payload(const mq_channel_publisher *p, uint32_t slot)
    mq_channel_status mq_channel_publish(mq_channel_publisher *p, uint32_t slot, uint64_t length, uint64_t origin_time,
                                         uint64_t *position)
    uint64_t mq_channel_publish_rows(mq_channel_publisher *p, const uint8_t *rows, uint64_t size, uint64_t count,
                                     uint64_t origin_time, uint64_t *first)
    void mq_channel_refuse(mq_channel_publisher *p)


cdef extern from "channel/subscriber.h" nogil:
    ctypedef struct mq_channel_subscriber:
        mq_order order
        const mq_hub *hub
        mq_listener_row *row
        const mq_u64 *whole
        const uint64_t *own
        mq_slots pools[63]
        uint64_t history
        mq_u64 cursor
        uint64_t received, lost, resets
        bint conflate, newest
    ctypedef struct mq_channel_message:
        uint64_t entry, position
        unsigned row, number
        uint64_t pool_uid
        mq_slot *slot
        uint64_t length, publish_time, origin_time
    ctypedef struct mq_channel_outlook:
        const mq_hub *hub
        const mq_u64 *cursor
        const mq_u64 *whole
    uint64_t mq_channel_cursor(const mq_channel_subscriber *s)
    bint mq_channel_order(const mq_hub *hub, mq_order *order)
    void mq_channel_show_joined(const mq_channel_subscriber *s)
    bint mq_channel_join(mq_channel_subscriber *s, bint present)
    mq_channel_status mq_channel_next(mq_channel_subscriber *s, mq_channel_message *m)
    void mq_channel_pass(mq_channel_subscriber *s, const mq_channel_message *m)
    bint mq_channel_accept(mq_channel_subscriber *s, const mq_channel_message *m)
    uint64_t mq_channel_take_rows(mq_channel_subscriber *s, uint8_t *out, uint64_t size, uint64_t count,
                                  mq_channel_message *last, const mq_u64 *whole)
    bint mq_channel_hold(mq_channel_subscriber *s, const mq_channel_message *m, unsigned viewer)
    int mq_channel_has_more(const void *outlook)
    int64_t mq_channel_nap_ns(mq_channel_subscriber *s, int64_t now_ns)


cdef extern from "ground/roster.h" nogil:
    enum:
        MQ_NO_ROW
    ctypedef struct mq_roster:
        pass
    int mq_roster_find(const mq_roster *roster, const mq_roll *roll, void **hold)
    void mq_identity_write(mq_identity *who, const mq_self *self, uint64_t uid, bint held)
    void mq_identity_leave(mq_identity *who, uint64_t uid, void **hold)
    mq_life mq_identity_life(mq_inquiry *inquiry, const mq_identity *who, int byte)


cdef extern from "channel/hub.h" nogil:
    ctypedef enum mq_hub_status:
        MQ_HUB_OK
        MQ_HUB_VERSION
    void mq_hub_write(mq_hub *hub, uint64_t kind, uint64_t created_ns, uint64_t pid, const char *creator)
    mq_hub_status mq_hub_check(const mq_hub *hub, uint64_t size)
    bint mq_hub_settle(mq_hub *hub, mq_geometry geometry)
    uint64_t mq_hub_references(const mq_order *order, unsigned row, uint64_t *newest)
    void mq_hub_withdraw(const mq_order *order, unsigned row)
    mq_life mq_hub_life(const mq_hub *hub, mq_inquiry *inquiry, int row)
    bint mq_hub_is_published(const mq_hub *hub, const mq_roll *roll)
    void mq_hub_free(mq_publisher_row *row)
    int mq_hub_find(mq_hub *hub, const mq_roll *roll, void **hold)
    void mq_hub_enter(mq_publisher_row *row, const mq_self *self, bint held, const mq_slots *slots, uint64_t pool_size,
                      uint64_t pool_inode, const char *node)
    int mq_hub_vacant_viewer(const mq_hub *hub, const mq_roll *roll, int row)
    mq_roster mq_hub_listeners(mq_hub *hub, int count)
    bint mq_hub_viewer_died(const mq_hub *hub, int viewer)
    void mq_hub_clear_pins(const mq_slots *slots, int viewer)
    void mq_hub_list(mq_listener_row *row, const mq_self *self, uint64_t uid, bint held, const char *node)


cdef extern from "ground/atomics.h" nogil:
    uint64_t mq_load_relaxed_u64(const mq_u64 *word)
    uint64_t mq_load_acquire_u64(const mq_u64 *word)
    void mq_store_release_u64(mq_u64 *word, uint64_t value)
