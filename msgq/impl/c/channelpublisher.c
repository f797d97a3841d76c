/* A channel's publisher. The code follows impl/channel/publisher_pool.pxi, poolfile.pxi and publisher.pxi step by step.
 * Compile as C11. */
#define _GNU_SOURCE
#include "c/channelfile.h"

enum { MQC_LEAST_SLOTS = 4, MQC_FEW_SLOTS = 4, MQC_SPARE_SLOTS = 2, MQC_SLOT_BYTES = 4096 };
/* default maximum bytes of a pool, unless four slots need more bytes */
static const uint64_t MQC_POOL_DEFAULT = 1ull << 26;
static const uint64_t MQC_POOL_MOST = 1ull << 30; /* default of max_bytes */
/* poll interval, nanoseconds. The publisher polls because the death of a viewer wakes no process */
static const int64_t MQC_LOOK_FOR_SLOT_NS = 100 * MQ_NS_PER_MS;

/* A publisher's row and pool. */
typedef struct {
    mq_channel_publisher c;
    mqc_mapped_file pool;
    void *liveness_token;
    bool open, has_holes; /* the publisher has its row; the pool's slots get memory before their first use */
} mqc_publisher_pool;

struct msgq_channel_publisher {
    mqc_channel_file file;
    mqc_publisher_pool *own;
    uint64_t slots, max_bytes;
};

/* ---- pool ---- */

/* Return the number of slots for a pool. The default is one slot for each entry of the index ring plus spare slots,
 * within the limits. Returns 0 if the slots do not fit into max_bytes. */
static uint64_t mqc_pool_slots(const msgq_channel_publisher *p, uint64_t slot_bytes) {
    uint64_t stride = mq_pool_slot_stride_bytes(slot_bytes), wanted = p->slots;
    if (!wanted) {
        wanted = mq_channel_config_unpack(mq_load_acquire_u64(&p->file.header->config)).capacity + MQC_SPARE_SLOTS;
        wanted = wanted < MQC_POOL_DEFAULT / stride ? wanted : MQC_POOL_DEFAULT / stride;
        wanted = wanted > MQC_LEAST_SLOTS ? wanted : MQC_LEAST_SLOTS;
        if (wanted * stride > p->max_bytes)
            wanted = p->max_bytes / stride ? p->max_bytes / stride : 1;
    }
    return wanted <= MQ_POOL_SLOTS_MAX && wanted * stride <= p->max_bytes ? wanted : 0;
}

/* Create a complete pool without a name. Returns its descriptor. */
static int mqc_pool_make(const mqc_channel_file *file, mqc_publisher_pool *own, uint64_t slots, uint64_t slot_bytes) {
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), uid = mqc_new_uid();
    uint64_t header_bytes = mq_pool_header_bytes(slots, page);
    uint64_t bytes = header_bytes + slots * mq_pool_slot_stride_bytes(slot_bytes);
    mode_t mode = file->segment.mode;
    char path[MQC_PATH];
    struct stat found;
    mqc_pool_path(file, uid, path);
    own->has_holes = mq_makes_holes(&file->endpoint.policy);
    int status = mqc_make_directory(&file->endpoint, "msgqpool_", mode);
    /* other processes write only the header */
    uint64_t allocated = own->has_holes ? header_bytes : bytes;
    int fd = status ? status : mqc_create_file(&file->endpoint, path, bytes, allocated, mode, &found);
    if (fd < 0)
        return fd;
    status = mqc_map_file(&file->endpoint, fd, &found, true, path, &own->pool);
    if (status) {
        close(fd);
        return status;
    }
    mq_pool_header *pool = (mq_pool_header *)(void *)own->pool.address;
    mq_pool_header_init(pool, bytes, slots, slot_bytes, page, file->segment.inode, uid, (uint64_t)getpid(), file->node);
    /* the header is always valid, because this function wrote the header and no other process has the file */
    mq_pool_header_check(pool, bytes, file->segment.inode, uid, &own->c.slots);
    return fd;
}

/* Initialize the publisher that owns the row. */
static int mqc_publisher_pool_init(mqc_channel_file *file, mqc_publisher_pool *own, int row) {
    own->c.header = file->header, own->c.row = &file->header->publishers[row], own->c.number = (unsigned)row;
    own->c.stamps = mq_channel_config_unpack(mq_load_acquire_u64(&file->header->config)).stamps == MQ_CHANNEL_STAMPED;
    own->c.clock_offset = mqc_clock_offset_ns(), own->c.liveness_file = &file->segment.liveness_file;
    /* the capacity was set while the channel was opened */
    if (!mq_channel_load_index_ring(file->header, &own->c.order))
        return mqc_endpoint_error(&file->endpoint, EPROTO,
                                  "has an invalid order: another program wrote into the file; remove it");
    return mq_channel_publisher_init(&own->c, own->has_holes)
               ? 0
               : mqc_endpoint_error(&file->endpoint, ENOMEM, "no memory for a publisher");
}

/* Create the pool, register the pool in the row, and then give the pool its name. Because of this order, each named
 * pool has a row. */
static int mqc_publisher_fill_row(mqc_channel_file *file, mqc_publisher_pool *own, int row, uint64_t slots,
                                  uint64_t slot_bytes) {
    mq_process_identity self;
    int status = mqc_read_own_identity(&self);
    int fd = status ? status : mqc_pool_make(file, own, slots, slot_bytes);
    if (fd < 0)
        return fd;
    status = mqc_publisher_pool_init(file, own, row);
    if (!status) {
        mq_channel_publisher_register(own->c.row, &self, own->liveness_token != NULL, &own->c.slots, own->pool.size,
                                      own->pool.inode, file->node);
        int named = mqc_name_file(&file->endpoint, fd, own->pool.path);
        own->open = named == 1;
        if (!own->open) {
            mq_channel_release_row(own->c.row);
            status = named ? named : mqc_endpoint_error(&file->endpoint, EEXIST, "pool exists; remove it (msgq clean)");
        }
    }
    close(fd);
    /* another publisher may have died between its message and the wake of the subscribers */
    if (!status && mq_eventcount_has_waiters_mp(&file->header->eventcount))
        mq_eventcount_notify_mp(&file->header->eventcount);
    return status;
}

/* Return an error if the channel has its maximum number of publishers. */
static int mqc_check_publisher_limit(const mqc_channel_file *file) {
    mq_liveness_probe probe = mq_liveness_probe_begin(&file->segment.liveness_file);
    uint64_t most = mq_channel_config_unpack(mq_load_acquire_u64(&file->header->config)).publishers, living = 0;
    for (int i = 0; i < MQ_CHANNEL_PUBLISHERS; i++) /* relaxed: under the lock. Rows kept for loans count once */
        if (!mq_load_relaxed_u64(&file->header->publishers[i].superseded))
            living += mq_channel_publisher_liveness(file->header, &probe, i) != MQ_DEAD;
    mq_liveness_probe_end(&probe);
    if (living < most)
        return 0;
    return mqc_endpoint_error(&file->endpoint, ENFILE, "number of publishers is at its limit (%llu)",
                              (unsigned long long)most);
}

/* Return a free row. Remove pools of dead publishers if needed. */
static int mqc_publisher_find_row(mqc_channel_file *file, const mq_file_lock *lock, void **liveness_token) {
    int left = mqc_remove_dead_pools(file, MQC_KEPT_DEAD_POOLS),
        row = left < 0 ? left : mq_channel_find_free_row(file->header, &lock->file, liveness_token);
    while (left > 0 && row == MQ_NO_ROW) {
        left = mqc_remove_dead_pools(file, left - 1);
        row = left < 0 ? left : mq_channel_find_free_row(file->header, &lock->file, liveness_token);
    }
    return left < 0           ? left
           : row != MQ_NO_ROW ? row
                              : mqc_endpoint_error(&file->endpoint, ENFILE, "all %d rows of publishers are in use",
                                                   MQ_CHANNEL_PUBLISHERS);
}

/* Leave the row. The pool stays for subscribers that have not read its messages. If `sweeps`, remove unreachable pools
 * now. */
static void mqc_publisher_pool_close(mqc_channel_file *file, mqc_publisher_pool *own, bool sweeps) {
    if (own->open)
        mq_participant_leave(&own->c.row->participant, own->c.slots.uid, &own->liveness_token);
    /* if another process holds the lock, the next publisher that joins removes the unreachable pools */
    mq_file_lock lock;
    if (own->open && sweeps && mqc_channel_file_lock(file, false, &lock) == 0) {
        mqc_remove_dead_pools(file, MQC_KEPT_DEAD_POOLS);
        mqc_unlock_mapped_file(&lock);
    }
    mq_channel_publisher_free(&own->c);
    mqc_unmap_file(&own->pool);
    free(own);
}

/* Take a row and create its pool. */
static int mqc_publisher_register(msgq_channel_publisher *p, uint64_t slot_bytes, bool newcomer,
                                  mqc_publisher_pool **entered) {
    mqc_channel_file *file = &p->file;
    uint64_t slots = mqc_pool_slots(p, slot_bytes);
    mqc_publisher_pool *own = calloc(1, sizeof *own);
    if (!own || !slots) {
        free(own);
        return own ? mqc_endpoint_error(&file->endpoint, EMSGSIZE,
                                        "slots of %llu bytes do not fit: the pool is limited to %llu (max_bytes)",
                                        (unsigned long long)slot_bytes, (unsigned long long)p->max_bytes)
                   : mqc_endpoint_error(&file->endpoint, ENOMEM, "no memory for a publisher");
    }
    mq_file_lock lock;
    int status = mqc_channel_file_lock(file, true, &lock);
    bool locked = status == 0;
    if (!status && newcomer)
        status = mqc_check_publisher_limit(file);
    int row = status ? status : mqc_publisher_find_row(file, &lock, &own->liveness_token);
    status = row < 0 ? row : mqc_publisher_fill_row(file, own, row, slots, slot_bytes);
    if (status) {
        mq_liveness_unlock(own->liveness_token);
        mqc_publisher_pool_close(file, own, false);
    } else
        *entered = own;
    if (locked)
        mqc_unlock_mapped_file(&lock);
    return status;
}

/* ---- publish ---- */

/* Open the prepared channel file, and take a row. */
static int mqc_publisher_start(msgq_channel_publisher *p, const msgq_channel_options *asked) {
    uint64_t slot_bytes = asked->slot_bytes ? asked->slot_bytes : MQC_SLOT_BYTES;
    p->slots = asked->slots;
    p->max_bytes = asked->max_bytes ? asked->max_bytes : MQC_POOL_MOST;
    int status = mqc_channel_file_open(&p->file, asked, true);
    if (!status && slot_bytes > MQ_POOL_BYTES_MAX)
        status = mqc_endpoint_error(&p->file.endpoint, EMSGSIZE, "slots have at most %llu bytes", MQ_POOL_BYTES_MAX);
    if (!status)
        status = mqc_publisher_register(p, slot_bytes, true, &p->own);
    if (status)
        mqc_channel_file_close(&p->file);
    return status;
}

int mqc_publisher_open(msgq_channel_publisher **publisher, const mqc_channel_file *begun,
                       const msgq_channel_options *options) {
    msgq_channel_publisher *p = *publisher = calloc(1, sizeof *p);
    if (!p)
        return mqc_set_error(ENOMEM, "no memory for a publisher");
    p->file = *begun;
    int status = mqc_publisher_start(p, options);
    if (status) {
        free(p);
        *publisher = NULL;
    }
    return status;
}

int msgq_channel_publisher_open(msgq_channel_publisher **publisher, const char *channel,
                                const msgq_channel_options *options) {
    static const msgq_channel_options defaults;
    const msgq_channel_options *asked = options ? options : &defaults;
    mqc_channel_file file;
    int status = mqc_check_pointers(publisher, NULL, 0);
    if (status)
        return status;
    *publisher = NULL;
    status = mqc_channel_file_init(&file, channel, asked);
    return status ? status : mqc_publisher_open(publisher, &file, asked);
}

void msgq_channel_publisher_close(msgq_channel_publisher *publisher) {
    if (!publisher)
        return;
    bool ours = publisher->file.generation == mqc_fork_generation();
    publisher->own->open &= ours;
    mqc_publisher_pool_close(&publisher->file, publisher->own, true);
    mqc_channel_file_close(&publisher->file);
    free(publisher);
}

/* Replace the pool by a pool with larger slots. */
static int mqc_publisher_grow_pool(msgq_channel_publisher *p, uint64_t size) {
    mqc_publisher_pool *larger, *former = p->own;
    uint64_t wanted = 2 * former->c.slots.slot_bytes > size ? 2 * former->c.slots.slot_bytes : size;
    if (size > p->max_bytes) /* prevents an overflow of the product below */
        return mqc_endpoint_error(&p->file.endpoint, EMSGSIZE,
                                  "a message of %llu bytes does not fit: the pool is limited to %llu (max_bytes)",
                                  (unsigned long long)size, (unsigned long long)p->max_bytes);
    if ((p->slots ? p->slots : MQC_FEW_SLOTS) * mq_pool_slot_stride_bytes(wanted) > p->max_bytes)
        wanted = size;
    int status = mqc_publisher_register(p, wanted, false, &larger);
    if (status)
        return status;
    p->own = larger;
    mq_store_release_u64(&former->c.row->superseded, 1);
    mqc_publisher_pool_close(&p->file, former, true);
    return 0;
}

/* Sleep until a viewer releases a slot. */
static int mqc_await_slot(msgq_channel_publisher *p, double timeout, int *slot) {
    mq_channel_publisher *c = &p->own->c;
    int64_t deadline = mqc_deadline_ns(timeout);
    mqc_held_signals signals = {.held = false};
    for (;;) {
        uint32_t expected = mq_eventcount_prepare_wait_mp(&c->slots.pool_header->slot_released);
        *slot = mq_channel_take_free_slot(c);
        if (*slot == MQ_CHANNEL_NO_SLOT && mq_channel_clear_dead_pins(c))
            *slot = mq_channel_take_free_slot(c);
        int64_t now = mq_monotonic_ns(), until = now + mqc_vary_sleep_ns(MQC_LOOK_FOR_SLOT_NS, now);
        bool interrupted = mqc_release_signals(&signals);
        if (*slot != MQ_CHANNEL_NO_SLOT || (deadline >= 0 && deadline <= now))
            return 0;
        until = deadline >= 0 && deadline < until ? deadline : until;
        if (!interrupted)
            interrupted = mq_futex_wait(mq_futex_word(&c->slots.pool_header->slot_released), expected, until) != 0 &&
                          errno == EINTR;
        if (interrupted)
            return mqc_set_error(EINTR, "signal handler ran during the wait");
        mqc_hold_signals(&signals);
    }
}

/* Return the error of a slot without memory. */
static int mqc_missing_memory_error(const msgq_channel_publisher *p) {
    const mqc_mapped_file *pool = &p->own->pool;
    if (mq_file_shrank(pool->path, pool->inode, pool->size))
        return mqc_endpoint_error(&p->file.endpoint, ESTALE,
                                  "had a pool of %llu bytes, but another program truncated it; open it again",
                                  (unsigned long long)pool->size);
    return mqc_endpoint_error(&p->file.endpoint, ENOSPC,
                              "nothing was sent: /dev/shm has no memory for a slot of %llu bytes",
                              (unsigned long long)p->own->c.slots.slot_bytes);
}

/* Take a slot. If the result is MQ_CHANNEL_NO_SLOT, *status is the error. */
static int mqc_take_free_slot(msgq_channel_publisher *p, double timeout, int *status) {
    mq_channel_publisher *c = &p->own->c;
    int slot = mq_channel_take_free_slot(c);
    if (mq_likely(slot != MQ_CHANNEL_NO_SLOT))
        return slot;
    if (c->lacks_memory) {
        *status = mqc_missing_memory_error(p);
        return slot;
    }
    if (mq_channel_clear_dead_pins(c))
        slot = mq_channel_take_free_slot(c);
    if (slot == MQ_CHANNEL_NO_SLOT && timeout != 0)
        *status = mqc_await_slot(p, timeout, &slot);
    if (slot != MQ_CHANNEL_NO_SLOT || *status)
        return slot;
    mq_channel_count_refused_message(c);
    *status = mqc_endpoint_error(&p->file.endpoint, timeout == 0 ? ENOBUFS : ETIMEDOUT,
                                 "all %u slots of this publisher are held by views; "
                                 "give it more, or a time-out to wait for one. Nothing was sent",
                                 c->slots.slots);
    return MQ_CHANNEL_NO_SLOT;
}

/* Publish the message in a filled slot. Returns the position of the message. */
static int64_t mqc_publish_slot(msgq_channel_publisher *p, uint32_t slot, size_t size, int64_t origin_time) {
    mqc_channel_file *file = &p->file;
    mq_channel_publisher *c = &p->own->c;
    uint64_t position;
    mq_channel_status sent = mq_channel_publish(c, slot, size, (uint64_t)origin_time, &position);
    /* the message was copied before the check, so a truncated page has already faulted */
    int status = mqc_check_truncation(&file->endpoint, &file->segment);
    if (!status)
        status = mqc_check_truncation(&file->endpoint, &p->own->pool);
    if (sent == MQ_CHANNEL_NOTIFY)
        mq_eventcount_notify_mp(&file->header->eventcount);
    else if (sent == MQ_CHANNEL_CORRUPT) {
        mq_channel_return_slot(c, slot);
        status = status ? status
                        : mqc_endpoint_error(&file->endpoint, EPROTO,
                                             "has an invalid order: another program wrote into the file; remove it");
    }
    return status ? status : (int64_t)position;
}

int64_t msgq_channel_send(msgq_channel_publisher *publisher, const void *data, size_t size, double timeout) {
    int status = mqc_check_pointers(publisher, data, size);
    if (!status)
        status = mqc_check_process(&publisher->file.endpoint, publisher->file.generation);
    if (!status && mq_unlikely(size > publisher->own->c.slots.slot_bytes))
        status = mqc_publisher_grow_pool(publisher, size);
    int slot = status ? MQ_CHANNEL_NO_SLOT : mqc_take_free_slot(publisher, timeout, &status);
    if (slot == MQ_CHANNEL_NO_SLOT)
        return status;
    mq_copy_to_shared(mq_channel_begin_slot_write(&publisher->own->c, (uint32_t)slot), data ? data : mqc_no_bytes,
                      size);
    return mqc_publish_slot(publisher, (uint32_t)slot, size, msgq_origin());
}

int mqc_publisher_send(msgq_channel_publisher *publisher, const void *head, size_t head_size, const void *data,
                       size_t size, int64_t origin_time) {
    int status = 0;
    if (head_size + size > publisher->own->c.slots.slot_bytes)
        return mqc_endpoint_error(&publisher->file.endpoint, EMSGSIZE, "the slots have no room for %zu bytes",
                                  head_size + size);
    int slot = mqc_take_free_slot(publisher, 0, &status);
    if (slot == MQ_CHANNEL_NO_SLOT)
        return status;
    uint8_t *room = mq_channel_begin_slot_write(&publisher->own->c, (uint32_t)slot);
    mq_copy_to_shared(room, head, head_size);
    if (size)
        mq_copy_to_shared(room + head_size, data, size);
    int64_t position = mqc_publish_slot(publisher, (uint32_t)slot, head_size + size, origin_time);
    return position < 0 ? (int)position : 0;
}
