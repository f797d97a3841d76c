/* A channel's publisher. Compile as C11. */
#define _GNU_SOURCE
#include "c/channelfile.h"
#include "channel/room.h"

static const uint64_t MQC_POOL_MOST = 1ull << 30; /* default of max_bytes */
/* poll interval, nanoseconds. The publisher polls because the death of a viewer wakes no process */
static const int64_t MQC_LOOK_FOR_SLOT_NS = 100 * MQ_NS_PER_MS;

/* A publisher's row and pool. */
typedef struct {
    mq_channel_publisher c;
    mqc_mapped_file pool;
    void *liveness_token;
    bool open; /* the publisher has its row */
} mqc_publisher_pool;

struct msgq_channel_publisher {
    mqc_channel_file file;
    mqc_publisher_pool *own;
    uint64_t slots, max_bytes;
};

/* ---- pool ---- */

/* Leave the row, and remove unreachable pools. The pool stays for subscribers that have not read its messages. */
static void mqc_publisher_pool_close(mqc_channel_file *file, mqc_publisher_pool *own) {
    if (own->open)
        mq_channel_leave(&own->c, &own->liveness_token);
    /* if another process holds the lock, the next publisher that joins removes the unreachable pools */
    mq_channel_files files = mqc_channel_files(file);
    mq_file_lock lock;
    mq_error error;
    if (own->open && mqc_channel_file_lock(file, false, &lock) == 0) {
        mq_channel_sweep(&files, &lock, &error);
        mqc_unlock_mapped_file(&lock);
    }
    mq_channel_publisher_free(&own->c);
    mqc_unmap_file(&own->pool);
    free(own);
}

/* Take a row and create its pool, under the join lock. */
static int mqc_publisher_register(msgq_channel_publisher *p, uint64_t slot_bytes, bool replaces,
                                  const mq_file_lock *lock, mqc_publisher_pool **entered) {
    mqc_channel_file *file = &p->file;
    mq_process_identity self;
    mq_channel_files files = mqc_channel_files(file);
    mq_channel_join_request request = {.self = &self,
                                       .node = file->node,
                                       .pool_uid = mq_new_uid(),
                                       .slots = p->slots,
                                       .slot_bytes = slot_bytes,
                                       .max_bytes = p->max_bytes,
                                       .clock_offset = mqc_clock_offset_ns(),
                                       .replaces = replaces};
    mq_pool_file pool;
    mq_error error;
    char path[MQC_PATH];
    mqc_publisher_pool *own = calloc(1, sizeof *own);
    if (!own)
        return mqc_endpoint_error(&file->endpoint, ENOMEM, "no memory for a publisher");
    int status = mqc_read_own_identity(&self);
    if (!status && mq_channel_join(&files, lock, &request, &own->c, &own->liveness_token, &pool, &error))
        status = mqc_report(&file->endpoint, &error);
    if (status) {
        free(own);
        return status;
    }
    mq_pool_path(&files, request.pool_uid, path);
    mqc_adopt_mapping(pool.mapping, path, &own->pool);
    own->open = true;
    *entered = own;
    return 0;
}

/* ---- publish ---- */

/* Open the prepared channel file, and take a row. */
static int mqc_publisher_start(msgq_channel_publisher *p, const msgq_channel_options *asked) {
    uint64_t slot_bytes = asked->slot_bytes ? asked->slot_bytes : MQ_POOL_SLOT_BYTES_DEFAULT;
    mq_file_lock lock;
    p->slots = asked->slots;
    p->max_bytes = asked->max_bytes ? asked->max_bytes : MQC_POOL_MOST;
    int status = mqc_channel_file_open(&p->file, asked, true, &lock);
    if (status)
        return status;
    status = slot_bytes > MQ_POOL_BYTES_MAX
                 ? mqc_endpoint_error(&p->file.endpoint, EMSGSIZE, "slots have at most %llu bytes", MQ_POOL_BYTES_MAX)
                 : mqc_publisher_register(p, slot_bytes, false, &lock, &p->own);
    mqc_unlock_mapped_file(&lock);
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
    mqc_publisher_pool_close(&publisher->file, publisher->own);
    mqc_channel_file_close(&publisher->file);
    free(publisher);
}

/* Replace the pool by a pool with larger slots. */
static int mqc_publisher_grow_pool(msgq_channel_publisher *p, uint64_t size) {
    mqc_publisher_pool *larger, *former = p->own;
    mq_error error;
    int64_t wanted = mq_pool_grow_slot_bytes(p->slots, former->c.slots.slot_bytes, size, p->max_bytes, &error);
    if (wanted < 0)
        return mqc_report(&p->file.endpoint, &error);
    mq_file_lock lock;
    int status = mqc_channel_file_lock(&p->file, true, &lock);
    if (status)
        return status;
    status = mqc_publisher_register(p, (uint64_t)wanted, true, &lock, &larger);
    mqc_unlock_mapped_file(&lock);
    if (status)
        return status;
    p->own = larger;
    mq_store_release_u64(&former->c.row->superseded, 1);
    mqc_publisher_pool_close(&p->file, former);
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

/* ---- room ---- */

static int mqc_check_room_messages(const msgq_channel_publisher *p, uint64_t messages) {
    uint64_t capacity = p->own->c.order.capacity, slots = p->own->c.slots.slots;
    if (messages >= 1 && messages <= capacity && messages <= slots)
        return 0;
    return mqc_endpoint_error(&p->file.endpoint, EINVAL,
                              "room for %llu messages was requested, but the channel keeps %llu and this publisher has "
                              "%llu slots; give 1 to %llu",
                              (unsigned long long)messages, (unsigned long long)capacity, (unsigned long long)slots,
                              (unsigned long long)(capacity < slots ? capacity : slots));
}

/* Wait until the publisher has room. Returns -EINTR if a signal handler ran. */
static int mqc_await_room(msgq_channel_publisher *p, uint64_t messages, double timeout) {
    mq_channel_room_wait wait = mq_channel_begin_room_wait(mqc_deadline_ns(timeout));
    mq_room_status status;
    mqc_held_signals signals;
    bool interrupted = false;
    mqc_hold_signals(&signals); /* handlers run during naps only, which then end */
    while (!interrupted && (status = mq_channel_check_room_wait(&wait, &p->own->c, messages)) == MQ_ROOM_MISSING)
        interrupted = !mq_channel_pause_room_wait(&wait, signals.held ? &signals.mask : NULL);
    mqc_release_signals(&signals);
    if (interrupted)
        return mqc_set_error(EINTR, "signal handler ran during the wait");
    if (status == MQ_ROOM_FOUND)
        return 0;
    return mqc_endpoint_error(&p->file.endpoint, timeout == 0 ? EAGAIN : ETIMEDOUT,
                              "no room for %llu messages: a subscriber has not received older messages",
                              (unsigned long long)messages);
}

int msgq_channel_wait_for_room(msgq_channel_publisher *publisher, uint64_t messages, double timeout) {
    int status = mqc_check_pointers(publisher, NULL, 0);
    if (!status)
        status = mqc_check_process(&publisher->file.endpoint, publisher->file.generation);
    if (!status)
        status = mqc_check_room_messages(publisher, messages);
    if (!status && mq_unlikely(!mq_channel_has_room(&publisher->own->c, messages, 0)))
        status = mqc_await_room(publisher, messages, timeout);
    return status ? status : mqc_check_truncation(&publisher->file.endpoint, &publisher->file.segment);
}

/* ---- publishers for other units ---- */

int mqc_publisher_send(msgq_channel_publisher *publisher, const void *head, size_t head_size, const void *data,
                       size_t size, int64_t origin_time) {
    int status = 0;
    if (head_size + size > publisher->own->c.slots.slot_bytes)
        return mqc_endpoint_error(&publisher->file.endpoint, EMSGSIZE, "the slots have no payload for %zu bytes",
                                  head_size + size);
    int slot = mqc_take_free_slot(publisher, 0, &status);
    if (slot == MQ_CHANNEL_NO_SLOT)
        return status;
    uint8_t *payload = mq_channel_begin_slot_write(&publisher->own->c, (uint32_t)slot);
    mq_copy_to_shared(payload, head, head_size);
    if (size)
        mq_copy_to_shared(payload + head_size, data, size);
    int64_t position = mqc_publish_slot(publisher, (uint32_t)slot, head_size + size, origin_time);
    return position < 0 ? (int)position : 0;
}
