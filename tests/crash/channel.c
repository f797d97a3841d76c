/* A participant of a channel that dies, or stops, at a chosen step of the protocol (points.h).
 *
 *     channel CHANNEL POOLS SIGNAL PATTERN N OPERATION...
 *
 * The channel file exists, and its configuration is complete. A pool's file is POOLS and its uid, 16 hexadecimal digits. Messages hold
 * their number in each word of eight bytes, so that a torn one shows. Coming and going are the library's own steps
 * (channel/join.h).
 */
#include "points.h"

#include "base/file_lock.h"
#include "channel/join.h"

enum { KEPT_MAX = 64 };

static mq_file_policy policy = {.group = (gid_t)-1};
static mq_liveness_file liveness_file;
static mq_channel_files files = {.policy = &policy, .liveness_file = &liveness_file, .mode = 0600};
static mq_channel_header *header;
static mq_file_lock lock;
static mq_error error;
static char node[MQ_NODE_NAME_BYTES] = "driver";

static mq_channel_publisher publisher, former; /* former: outgrown, with a loan */
static void *publisher_hold, *former_hold;
static uint32_t loan;
static bool lent;

static mq_channel_subscriber subscriber;
static mq_channel_subscriber_rows rows;
static uint64_t held, begun; /* begun: the first position */
static struct {
    mq_pool_map pool;
    uint32_t slot;
    uint64_t number, length;
} kept[KEPT_MAX];

static uint64_t new_uid(void) { return (uint64_t)random() << 32 | (uint64_t)random() | 1; }

static void lock_channel(void) {
    if (!mq_file_lock_open(&lock, &liveness_file))
        fail("open");
    while (mq_file_lock_try(&lock) != 0)
        usleep(200);
    POINT("holds", lock);
}
/* The step under the lock has ended with this result. */
static void unlock_channel(int result) {
    if (result < 0)
        fail(error.text);
    mq_file_lock_close(&lock);
    POINT("gave back", lock);
}

/* ---- the publisher ---- */

/* join:SLOTS:BYTES */
static void join_by(uint64_t count, uint64_t slot_bytes, bool replaces) {
    mq_pool_file pool;
    mq_channel_join_request request = {.self = &self,
                                       .node = node,
                                       .pool_uid = new_uid(),
                                       .slots = count,
                                       .slot_bytes = slot_bytes,
                                       .max_bytes = MQ_POOL_BYTES_MAX,
                                       .replaces = replaces};
    lock_channel();
    unlock_channel(mq_channel_join(&files, &lock, &request, &publisher, &publisher_hold, &pool, &error));
}
static void join(uint64_t count, uint64_t slot_bytes) { join_by(count, slot_bytes, false); }

static void leave_row(mq_channel_publisher *p, void **liveness_token) {
    mq_channel_leave(p, liveness_token);
    mq_channel_publisher_free(p);
    lock_channel();
    unlock_channel(mq_channel_remove_dead_pools(&files, MQ_CHANNEL_KEPT_DEAD_POOLS, &error));
}

static void close_publisher(void) { leave_row(&publisher, &publisher_hold); }

/* grow:SLOTS:BYTES */
static void grow(uint64_t count, uint64_t slot_bytes) {
    former = publisher;
    former_hold = publisher_hold;
    join_by(count, slot_bytes, true);
    mq_store_release_u64(&former.row->superseded, 1);
    if (!lent)
        leave_row(&former, &former_hold);
}

static uint32_t take(mq_channel_publisher *p) {
    int slot = mq_channel_take_free_slot(p);
    if (slot == MQ_CHANNEL_NO_SLOT && mq_channel_clear_dead_pins(p))
        slot = mq_channel_take_free_slot(p);
    if (slot == MQ_CHANNEL_NO_SLOT) {
        mq_channel_count_refused_message(p);
        puts("exhausted");
        exit(0);
    }
    return (uint32_t)slot;
}

static void write_message(mq_channel_publisher *p, uint32_t slot, uint64_t size, uint64_t number) {
    uint8_t message[512];
    for (uint64_t i = 0; i < size; i++)
        message[i] = (uint8_t)(number >> 8 * (i & 7));
    uint8_t *payload = mq_channel_begin_slot_write(p, slot);
    mq_copy_to_shared(payload, message, size);
}

static void publish(mq_channel_publisher *p, uint32_t slot, uint64_t size) {
    uint64_t position;
    mq_channel_status status = mq_channel_publish(p, slot, size, 0, &position);
    if (status == MQ_CHANNEL_CORRUPT)
        fail("corrupt");
    if (status == MQ_CHANNEL_NOTIFY)
        mq_eventcount_notify_mp(&header->eventcount);
}

/* send:SIZE:NUMBER */
static void send_one(uint64_t size, uint64_t number) {
    uint32_t slot = take(&publisher);
    write_message(&publisher, slot, size, number);
    publish(&publisher, slot, size);
}

/* loan:SIZE:NUMBER */
static void borrow(uint64_t size, uint64_t number) {
    loan = take(&publisher);
    lent = true;
    write_message(&publisher, loan, size, number);
}

/* settle:SIZE, of a loan from the pool that was outgrown */
static void publish_loan(uint64_t size) {
    publish(&former, loan, size);
    lent = false;
    leave_row(&former, &former_hold);
}

/* Each slot is somewhere, once. */
static void account(void) {
    uint32_t slots = publisher.free_count + publisher.published_count + publisher.limbo_count;
    printf("%u of %u slots, %u in limbo, %llu evicted\n", slots, publisher.slots.slots, publisher.limbo_count,
           (unsigned long long)publisher.evicted);
}

/* ---- the subscriber ---- */

static void listen_in(void) {
    lock_channel();
    unlock_channel(mq_channel_register_subscriber(&files, &lock, &self, new_uid(), node, &rows, &error));
    if (!rows.row)
        fail("no listener's row");
    subscriber = (mq_channel_subscriber){.header = header, .row = rows.row};
    mq_channel_subscriber_join(&subscriber, true);
    begun = mq_channel_load_cursor(&subscriber);
}

static void become_viewer(void) {
    lock_channel();
    unlock_channel(mq_channel_register_viewer(&files, &lock, &self, new_uid(), &rows, &error));
}

/* Map the pool of the message, or skip the message if there is no such file. */
static void map_pool(const mq_channel_message *message) {
    mq_pool_file pool;
    int failed = mq_pool_open(&files, message->pool_uid, true, &pool, &error);
    if (failed == -ENOENT)
        mq_channel_skip_message(&subscriber, message);
    else if (failed)
        fail(error.text);
    else
        subscriber.pools[message->row] = pool.slots;
}

/* As Subscriber._look. False: nothing is there. */
static bool look(mq_channel_message *message) {
    for (;;) {
        mq_channel_status status = mq_channel_next_message(&subscriber, message);
        if (status == MQ_CHANNEL_CORRUPT)
            fail("corrupt");
        if (status != MQ_CHANNEL_UNMAPPED)
            return status == MQ_CHANNEL_OK;
        map_pool(message);
    }
}

static uint64_t number_of(const uint8_t *bytes, uint64_t length) {
    uint64_t number = 0;
    memcpy(&number, bytes, length < 8 ? length : 8);
    for (uint64_t i = 0; i < length; i++)
        if (bytes[i] != (uint8_t)(number >> 8 * (i & 7)))
            fail("torn");
    return number;
}

/* The same, of the one who publishes while we are at work: its numbers go up with the positions. */
static uint64_t check_number(const mq_channel_message *message, const uint8_t *bytes) {
    static uint64_t first;
    uint64_t number = number_of(bytes, message->length);
    if (message->length && first && number - message->position != first)
        fail("another message than that of its position");
    if (message->length)
        first = number - message->position;
    return number;
}

/* receive:COUNT */
static void receive(uint64_t count) {
    uint8_t copy[512];
    mq_channel_message message;
    while (count && look(&message)) {
        mq_copy_from_shared(copy, mq_pool_slot_payload(message.slot), message.length);
        if (!mq_channel_accept_entry(&subscriber, &message))
            continue;
        check_number(&message, copy);
        count--;
    }
}

/* hold:COUNT */
static void hold(uint64_t count) {
    mq_channel_message message;
    while (held < count && look(&message)) {
        if (!mq_channel_pin_message(&subscriber, &message, (unsigned)rows.viewer))
            continue;
        kept[held].pool = subscriber.pools[message.row];
        kept[held].slot = message.number;
        kept[held].length = message.length;
        kept[held].number = check_number(&message, mq_pool_slot_payload(message.slot));
        mq_store_release_u64(&subscriber.row->views_held, ++held);
    }
}

/* What is held has not changed; then let it go. */
static void let_go(void) {
    while (held) {
        mq_pool_slot *slot = mq_pool_slot_at(&kept[held - 1].pool, kept[held - 1].slot);
        if (number_of(mq_pool_slot_payload(slot), kept[held - 1].length) != kept[held - 1].number)
            fail("a view has changed");
        mq_pool_pin_clear(&kept[held - 1].pool, kept[held - 1].slot, (unsigned)rows.viewer);
        mq_store_release_u64(&subscriber.row->views_held, --held);
    }
}

static void perform(const char *name, uint64_t a, uint64_t b) {
    if (!strcmp(name, "join"))
        join(a, b);
    else if (!strcmp(name, "send"))
        send_one(a, b);
    else if (!strcmp(name, "loan"))
        borrow(a, b);
    else if (!strcmp(name, "settle"))
        publish_loan(a);
    else if (!strcmp(name, "grow"))
        grow(a, b);
    else if (!strcmp(name, "close"))
        close_publisher();
    else if (!strcmp(name, "account"))
        account();
    else if (!strcmp(name, "listen"))
        listen_in();
    else if (!strcmp(name, "view"))
        become_viewer();
    else if (!strcmp(name, "receive"))
        receive(a);
    else if (!strcmp(name, "hold"))
        hold(a);
    else if (!strcmp(name, "release"))
        let_go();
    else if (!strcmp(name, "announce"))
        mq_eventcount_prepare_wait_mp(&header->eventcount);
    else if (!strcmp(name, "leave"))
        mq_channel_leave_rows(&rows);
    else if (!strcmp(name, "tell"))
        printf("%llu received %llu lost %llu passed\n", (unsigned long long)subscriber.received,
               (unsigned long long)subscriber.lost, (unsigned long long)(mq_channel_load_cursor(&subscriber) - begun));
    else
        fail(name);
}

int main(int count, char **arguments) {
    size_t bytes;
    int fd;
    begin();
    if (count < 7)
        fail("usage: channel CHANNEL POOLS SIGNAL PATTERN N OPERATION...");
    files.pool_prefix = arguments[2];
    header = files.header = map(arguments[1], &fd, &bytes, &liveness_file);
    close(fd);
    if (mq_channel_check_file(header, bytes, arguments[1], &error))
        fail(error.text);
    run(arguments + 3, perform);
    return 0;
}
