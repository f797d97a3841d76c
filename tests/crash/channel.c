/* A participant of a channel that dies, or stops, at a chosen step of the protocol (points.h).
 *
 *     channel CHANNEL POOLS SIGNAL PATTERN N OPERATION...
 *
 * The channel file exists, and its configuration is complete. A pool's file is POOLS and its uid, 16 hexadecimal digits. Messages hold
 * their number in each word of eight bytes, so that a torn one shows. Coming and going is done in the order of steps of
 * channelfile.pxi, poolfile.pxi, publisher_pool.pxi and subscriber_rows.pxi.
 */
#include "points.h"

#include "channel/header.h"
#include "channel/subscriber.h"

enum { KEPT_DEAD_POOLS = 8, KEPT_MAX = 64 };

static const char *channel_path, *pools_path;
static mq_channel_header *header;
static mq_liveness_file liveness_file;
static uint64_t page;
static char node[MQ_NODE_NAME_BYTES] = "driver";

static mq_channel_publisher publisher, former; /* former: outgrown, with a loan */
static void *publisher_hold, *former_hold;
static uint32_t loan;
static bool lent;

static mq_channel_subscriber subscriber;
static void *row_token, *views;
static int viewer = -1;
static uint64_t row_uid, view_uid, held, begun; /* begun: the first position */
static struct {
    mq_pool_map pool;
    uint32_t slot;
    uint64_t number, length;
} kept[KEPT_MAX];

static uint64_t new_uid(void) { return (uint64_t)random() << 32 | (uint64_t)random() | 1; }

static const char *pool_path(uint64_t uid) {
    static char path[300];
    snprintf(path, sizeof path, "%s%016llx", pools_path, (unsigned long long)uid);
    return path;
}

/* As ChannelFile.lock. */
static int lock_channel(void) {
    int fd = open(channel_path, O_RDWR | O_CLOEXEC);
    if (fd < 0 || flock(fd, LOCK_EX) != 0)
        fail("lock");
    POINT("holds", lock);
    return fd;
}
static void unlock_channel(int fd) {
    flock(fd, LOCK_UN);
    close(fd);
    POINT("gave back", lock);
}

/* ---- pools ---- */

/* As make_pool: complete, and without a name. */
static int make_pool(uint64_t count, uint64_t slot_bytes, mq_pool_map *slots, size_t *bytes) {
    *bytes = mq_pool_header_bytes(count, page) + count * mq_pool_slot_stride_bytes(slot_bytes);
    int fd = open("/dev/shm", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (fd < 0 || posix_fallocate(fd, 0, (off_t)*bytes) != 0)
        fail("a new file");
    mq_pool_header *pool = mmap(NULL, *bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    uint64_t uid = new_uid();
    mq_pool_header_init(pool, *bytes, count, slot_bytes, page, liveness_file.inode, uid, self.pid, node);
    if (mq_pool_header_check(pool, *bytes, liveness_file.inode, uid, slots))
        fail("its own pool");
    return fd;
}

/* As name_pool. */
static void name_pool(int fd, uint64_t uid) {
    char unnamed[40];
    snprintf(unnamed, sizeof unnamed, "/proc/self/fd/%d", fd);
    if (linkat(AT_FDCWD, unnamed, AT_FDCWD, pool_path(uid), AT_SYMLINK_FOLLOW) != 0)
        fail("name of a pool");
    close(fd);
    POINT("named", pool);
}

/* As open_pool. False: there is no such file. */
static bool open_pool(uint64_t uid, mq_pool_map *slots) {
    struct stat found;
    int fd = open(pool_path(uid), O_RDWR | O_CLOEXEC);
    if (fd < 0)
        return false;
    fstat(fd, &found);
    mq_pool_header *pool = mmap(NULL, (size_t)found.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    const char *wrong = mq_pool_header_check(pool, (uint64_t)found.st_size, liveness_file.inode, uid, slots);
    if (wrong)
        fail(wrong);
    return true;
}

/* As remove_dead_pools, without the limit of bytes. */
static int remove_dead_pools(int most) {
    mq_index_ring order;
    uint64_t newest[MQ_CHANNEL_PUBLISHERS];
    int left = 0;
    bool dead[MQ_CHANNEL_PUBLISHERS] = {false}, begun = mq_channel_load_index_ring(header, &order);
    mq_liveness_probe probe = mq_liveness_probe_begin(&liveness_file);
    for (int i = 0; i < MQ_CHANNEL_PUBLISHERS; i++) {
        dead[i] = mq_load_acquire_u64(&header->publishers[i].pool_uid) &&
                  mq_channel_publisher_liveness(header, &probe, i) == MQ_DEAD;
        if (dead[i] && (!begun || mq_channel_count_row_entries(&order, (unsigned)i, &newest[i]) == 0))
            newest[i] = 0;
        left += dead[i];
    }
    mq_liveness_probe_end(&probe);
    for (;;) {
        int oldest = -1;
        for (int i = 0; i < MQ_CHANNEL_PUBLISHERS; i++)
            if (dead[i] && (oldest < 0 || newest[i] < newest[oldest]))
                oldest = i;
        if (oldest < 0 || (newest[oldest] && left <= most))
            return left;
        if (begun)
            mq_channel_retract_row_entries(&order, (unsigned)oldest);
        unlink(pool_path(mq_load_relaxed_u64(&header->publishers[oldest].pool_uid)));
        POINT("removed", pool);
        mq_channel_release_row(&header->publishers[oldest]);
        dead[oldest] = false;
        left--;
    }
}

/* ---- the publisher ---- */

/* join:SLOTS:BYTES, as register_publisher */
static void join(uint64_t count, uint64_t slot_bytes) {
    size_t bytes;
    int lock = lock_channel(), left = remove_dead_pools(KEPT_DEAD_POOLS), row;
    mq_channel_store_config(header, mq_channel_config_unpack(mq_load_acquire_u64(&header->config)));
    memset(&publisher, 0, sizeof publisher);
    while ((row = mq_channel_find_free_row(header, &liveness_file, &publisher_hold)) == MQ_NO_ROW && left)
        left = remove_dead_pools(left - 1);
    if (row == MQ_NO_ROW)
        fail("no row");
    int fd = make_pool(count, slot_bytes, &publisher.slots, &bytes);
    publisher.header = header;
    publisher.liveness_file = &liveness_file;
    publisher.row = &header->publishers[row];
    publisher.number = (unsigned)row;
    mq_channel_load_index_ring(header, &publisher.order);
    mq_channel_publisher_init(&publisher, false);
    mq_channel_publisher_register(publisher.row, &self, publisher_hold != NULL, &publisher.slots, bytes, 0, node);
    name_pool(fd, publisher.slots.uid);
    if (mq_eventcount_has_waiters_mp(&header->eventcount))
        mq_eventcount_notify_mp(&header->eventcount);
    unlock_channel(lock);
}

/* As PublisherPool.leave. */
static void leave_row(mq_channel_publisher *p, void **liveness_token) {
    mq_participant_leave(&p->row->participant, p->slots.uid, liveness_token);
    mq_channel_publisher_free(p);
    int lock = lock_channel();
    remove_dead_pools(KEPT_DEAD_POOLS);
    unlock_channel(lock);
}

static void close_publisher(void) { leave_row(&publisher, &publisher_hold); }

/* grow:SLOTS:BYTES */
static void grow(uint64_t count, uint64_t slot_bytes) {
    former = publisher;
    former_hold = publisher_hold;
    join(count, slot_bytes);
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

/* As SubscriberRows.join, and Subscriber. */
static void listen_in(void) {
    int lock = lock_channel();
    mq_row_table row_table = mq_channel_subscriber_row_table(header, MQ_CHANNEL_SUBSCRIBERS);
    int row = mq_row_table_reserve(&row_table, &liveness_file, &row_token);
    if (row == MQ_NO_ROW)
        fail("no listener's row");
    row_uid = new_uid();
    memset(&subscriber, 0, sizeof subscriber);
    subscriber.header = header;
    subscriber.row = &header->subscribers[row];
    mq_channel_subscriber_register(subscriber.row, &self, row_uid, row_token != NULL, node);
    unlock_channel(lock);
    mq_channel_subscriber_join(&subscriber, true);
    begun = mq_channel_load_cursor(&subscriber);
}

/* As _clear_pins of subscriber_rows.pxi. */
static void clear_pins(int row) {
    mq_liveness_probe probe = mq_liveness_probe_begin(&liveness_file);
    for (int i = 0; i < MQ_CHANNEL_PUBLISHERS; i++) {
        mq_pool_map pool;
        uint64_t uid = mq_load_acquire_u64(&header->publishers[i].pool_uid);
        if (uid && mq_channel_publisher_liveness(header, &probe, i) != MQ_DEAD && open_pool(uid, &pool))
            mq_channel_clear_dead_viewer_pins(&pool, row);
    }
    mq_liveness_probe_end(&probe);
}

/* As SubscriberRows.become_viewer. */
static void become_viewer(void) {
    int lock = lock_channel(), row = mq_channel_find_free_viewer(header, &liveness_file, 0);
    while (row != MQ_NO_ROW) {
        if (mq_channel_viewer_row_is_stale(header, row))
            clear_pins(row);
        views = mq_liveness_lock(&liveness_file, MQ_CHANNEL_VIEWER_BYTE + (uint64_t)row, false);
        if (views)
            break;
        row = mq_channel_find_free_viewer(header, &liveness_file, row + 1);
    }
    if (row == MQ_NO_ROW)
        fail("no viewer's row");
    view_uid = new_uid();
    mq_participant_write(&header->viewers[row].participant, &self, view_uid, views != NULL);
    viewer = row;
    mq_store_release_u64(&subscriber.row->viewer, (uint64_t)row + 1);
    unlock_channel(lock);
}

/* As Subscriber._look. False: nothing is there. */
static bool look(mq_channel_message *message) {
    for (;;) {
        mq_channel_status status = mq_channel_next_message(&subscriber, message);
        if (status == MQ_CHANNEL_CORRUPT)
            fail("corrupt");
        if (status != MQ_CHANNEL_UNMAPPED)
            return status == MQ_CHANNEL_OK;
        if (!open_pool(message->pool_uid, &subscriber.pools[message->row]))
            mq_channel_skip_message(&subscriber, message);
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
        if (!mq_channel_pin_message(&subscriber, &message, (unsigned)viewer))
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
        mq_pool_pin_clear(&kept[held - 1].pool, kept[held - 1].slot, (unsigned)viewer);
        mq_store_release_u64(&subscriber.row->views_held, --held);
    }
}

/* As SubscriberRows.leave. */
static void leave(void) {
    mq_participant_leave(&subscriber.row->participant, row_uid, &row_token);
    if (viewer >= 0)
        mq_participant_leave(&header->viewers[viewer].participant, view_uid, &views);
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
        leave();
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
    channel_path = arguments[1];
    pools_path = arguments[2];
    page = (uint64_t)sysconf(_SC_PAGESIZE);
    header = map(channel_path, &fd, &bytes, &liveness_file);
    close(fd);
    if (mq_channel_header_check(header, bytes) != MQ_FILE_VALID)
        fail("no channel");
    run(arguments + 3, perform);
    return 0;
}
