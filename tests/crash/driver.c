/* A participant that dies, or stops, at a chosen step of the protocol.
 *
 *     driver RING SIDE SIGNAL PATTERN N OPERATION...
 *
 * includes the library's own headers, with each access to shared memory followed by a *point*: a name such as
 * "mq_publisher_commit: stored &p->ring->write_pointer". After the operation `arm`, the N-th point whose name matches
 * PATTERN (fnmatch) raises SIGNAL. N = 0 prints the names instead.
 *
 * Messages hold their number in each word of eight bytes, so that a torn one shows.
 */
#include <fnmatch.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/mman.h>

#include "futex.h"
#include "life.h"

static struct {
    const char *pattern;
    long at, seen;
    int signal;
    bool armed;
} plan;

static void point(const char *function, const char *what, const char *which)
{
    char name[256];
    if (!plan.armed)
        return;
    snprintf(name, sizeof name, "%s: %s %s", function, what, which);
    if (fnmatch(plan.pattern, name, 0) != 0)
        return;
    if (plan.at == 0)
        puts(name);
    else if (++plan.seen == plan.at)
        raise(plan.signal);
}

static void copy_in(void *shared, const void *from, size_t n, const char *function, const char *which)
{
    memcpy(shared, from, n / 2);
    point(function, "half copied to", which);
    memcpy((char *)shared + n / 2, (const char *)from + n / 2, n - n / 2);
    point(function, "copied to", which);
}

static void copy_out(void *to, const void *shared, size_t n, const char *function, const char *which)
{
    memcpy(to, shared, n / 2);
    point(function, "half copied from", which);
    memcpy((char *)to + n / 2, (const char *)shared + n / 2, n - n / 2);
    point(function, "copied from", which);
}

#define POINT(what, which) point(__func__, what, #which)
#define VALUE_THEN(value, what, which) ({ __typeof__(value) value_ = (value); POINT(what, which); value_; })
#define mq_store_relaxed_u64(word, value) (mq_store_relaxed_u64(word, value), POINT("stored", word))
#define mq_store_release_u64(word, value) (mq_store_release_u64(word, value), POINT("stored", word))
#define mq_load_relaxed_u64(word) VALUE_THEN(mq_load_relaxed_u64(word), "loaded", word)
#define mq_load_acquire_u64(word) VALUE_THEN(mq_load_acquire_u64(word), "loaded", word)
#define mq_compare_exchange_u64(word, a, b) VALUE_THEN(mq_compare_exchange_u64(word, a, b), "exchanged", word)
#define mq_load_relaxed_u32(word) VALUE_THEN(mq_load_relaxed_u32(word), "loaded", word)
#define mq_compare_exchange_u32(word, a, b) VALUE_THEN(mq_compare_exchange_u32(word, a, b), "exchanged", word)
#define mq_fetch_or_u32(word, bits) VALUE_THEN(mq_fetch_or_u32(word, bits), "set", word)
#define mq_membarrier() VALUE_THEN(mq_membarrier(), "ordered", membarrier)
#define mq_row_hold(roll, row, shared) VALUE_THEN(mq_row_hold(roll, row, shared), "held", row)
#define mq_row_let_go(hold) (mq_row_let_go(hold), POINT("let go of", hold))
#define mq_futex_wake_all(word) (mq_futex_wake_all(word), POINT("woke", word))
#define mq_copy_in(shared, from, n) copy_in(shared, from, n, __func__, #shared)
#define mq_copy_out(to, shared, n) copy_out(to, shared, n, __func__, #shared)

#include "registry.h"

static mq_ring_header *ring;
static mq_side *side;
static uint32_t data_bytes;
static int lock_fd;
static mq_roll roll;
static mq_publisher publisher;
static mq_subscriber subscriber;
static mq_self self;

static void fail(const char *why)
{
    printf("failed: %s\n", why);
    exit(1);
}

static void *map(const char *path, int *fd, size_t *bytes)
{
    struct stat found;
    if ((*fd = open(path, O_RDWR | O_CLOEXEC)) < 0 || fstat(*fd, &found) != 0)
        fail(path);
    *bytes = (size_t)found.st_size;
    void *address = mmap(NULL, *bytes, PROT_READ | PROT_WRITE, MAP_SHARED, *fd, 0);
    if (address == MAP_FAILED)
        fail("mmap");
    return address;
}

/* As publisher.pyx does it. */
static void claim(void)
{
    flock(lock_fd, LOCK_EX);
    POINT("holds", lock);
    memset(&publisher, 0, sizeof publisher);
    publisher.ring = ring;
    publisher.side = side;
    publisher.data = (uint8_t *)ring + MQ_RING_HEADER;
    publisher.data_bytes = data_bytes;
    publisher.whole = mq_whole_always();
    publisher.fences = !mq_membarrier_register();
    publisher.roll = &roll;
    int row = mq_publisher_row_take(&roll, ring, side, &publisher.hold);
    if (row == MQ_NO_ROW)
        fail("no publisher's row");
    mq_publisher_claim(&publisher, &self, (uint32_t)random(), row);
    while (mq_other_send_in_progress(&publisher, false))
        usleep(50);
    if (mq_publisher_start(&publisher, &self) != MQ_OK)
        fail("corrupt");
    flock(lock_fd, LOCK_UN);
    POINT("gave back", lock);
}

/* As subscriber.pyx does it. */
static void join(void)
{
    flock(lock_fd, LOCK_EX);
    POINT("holds", lock);
    memset(&subscriber, 0, sizeof subscriber);
    subscriber.ring = ring;
    subscriber.side = side;
    subscriber.data = (const uint8_t *)ring + MQ_RING_HEADER;
    subscriber.data_bytes = data_bytes;
    subscriber.roll = &roll;
    subscriber.whole = mq_whole_always();
    if (mq_subscriber_join(&subscriber, &self, (uint32_t)random()) != MQ_OK)
        fail("corrupt");
    flock(lock_fd, LOCK_UN);
    POINT("gave back", lock);
}

static void fill(uint8_t *message, uint64_t size, uint64_t number)
{
    for (uint64_t i = 0; i < size; i++)
        message[i] = (uint8_t)(number >> 8 * (i & 7));
}

/* send:SIZE:NUMBER */
static void send_one(uint64_t size, uint64_t number)
{
    uint8_t *message = malloc(size + 1);
    fill(message, size, number);
    mq_status status = mq_publisher_send(&publisher, message, size);
    free(message);
    if (status == MQ_NOTIFY)
        mq_publisher_notify(&publisher);
    else if (status != MQ_OK) {
        printf("refused %d by %llu\n", status, (unsigned long long)mq_publisher_current_pid(ring, side));
        exit(0);
    }
}

/* batch:SIZE:NUMBER: three messages, committed as one */
static void send_batch(uint64_t size, uint64_t number)
{
    uint8_t *payload, *message = malloc(size + 1);
    for (uint64_t i = 0; i < 3; i++) {
        fill(message, size, number + i);
        if (publisher.pending && !mq_publisher_has_room(&publisher, size) && mq_publisher_commit(&publisher) == MQ_NOTIFY)
            mq_publisher_notify(&publisher);
        if (mq_publisher_begin(&publisher, size, &payload) != MQ_OK)
            fail("begin");
        mq_copy_in(payload, message, size);
        mq_publisher_stage(&publisher, size);
    }
    free(message);
    if (mq_publisher_commit(&publisher) == MQ_NOTIFY)
        mq_publisher_notify(&publisher);
}

/* schema:SIZE:LETTER: all its letters the same */
static void describe(uint64_t size, uint64_t letter)
{
    char *data = malloc(size + 1);
    memset(data, (int)letter, size);
    char name[MQ_SCHEMA_NAME] = {(char)letter};
    flock(lock_fd, LOCK_EX);
    mq_schema_write(side, name, name, data, size);
    flock(lock_fd, LOCK_UN);
    free(data);
}

/* receive:CONFLATE:COUNT */
static void receive(bool conflate, uint64_t count)
{
    uint8_t *copy = malloc(data_bytes);
    mq_message message;
    while (count) {
        mq_status status = mq_subscriber_next(&subscriber, conflate, &message);
        if (status == MQ_EMPTY)
            break;
        if (status != MQ_OK)
            fail("corrupt");
        mq_copy_out(copy, message.payload, message.size);
        if (!mq_subscriber_accept(&subscriber, &message)) {
            if (!conflate)
                mq_subscriber_reset(&subscriber);
            continue;
        }
        uint64_t number = 0;
        memcpy(&number, copy, message.size < 8 ? message.size : 8);
        for (uint64_t i = 0; i < message.size; i++)
            if (copy[i] != (uint8_t)(number >> 8 * (i & 7)))
                fail("torn");
        count--;
    }
    free(copy);
}

/* Sleep as a subscriber does that has found nothing. */
static void doze(void)
{
    mq_subscriber_refresh_survey(&subscriber);
    uint32_t expected = mq_subscriber_announce_sleep(&subscriber);
    if (mq_subscriber_has_more(&subscriber))
        return;
    POINT("goes to", sleep);
    mq_futex_wait(mq_subscriber_futex(&subscriber), expected, -1);
}

static void perform(char *operation)
{
    unsigned long long a = 0, b = 0;
    char name[16] = "";
    sscanf(operation, "%15[a-z]:%llu:%llu", name, &a, &b);
    if (!strcmp(name, "arm"))
        plan.armed = true;
    else if (!strcmp(name, "disarm"))
        plan.armed = false;
    else if (!strcmp(name, "claim"))
        claim();
    else if (!strcmp(name, "send"))
        send_one(a, b);
    else if (!strcmp(name, "batch"))
        send_batch(a, b);
    else if (!strcmp(name, "schema"))
        describe(a, b);
    else if (!strcmp(name, "close"))
        mq_publisher_close(&publisher);
    else if (!strcmp(name, "join"))
        join();
    else if (!strcmp(name, "receive"))
        receive(a, b);
    else if (!strcmp(name, "doze"))
        doze();
    else if (!strcmp(name, "announce"))
        mq_subscriber_announce_sleep(&subscriber);
    else if (!strcmp(name, "leave"))
        mq_subscriber_leave(&subscriber);
    else if (!strcmp(name, "tell"))
        printf("%llu received %llu lost %d unknown\n", (unsigned long long)subscriber.received,
               (unsigned long long)subscriber.lost, subscriber.lost_unknown);
    else if (!strcmp(name, "ready")) {
        puts("ready");
        getchar();
    } else
        fail(operation);
}

int main(int count, char **arguments)
{
    size_t bytes;
    struct stat found;
    int side_fd;
    alarm(50); /* nobody waits for ever, whatever a test forgets */
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (count < 6 || mq_read_self(&self) != 0)
        fail("usage: driver RING SIDE SIGNAL PATTERN N OPERATION...");
    srandom((unsigned)getpid());
    ring = map(arguments[1], &lock_fd, &bytes);
    data_bytes = (uint32_t)(bytes - MQ_RING_HEADER);
    side = map(arguments[2], &side_fd, &bytes);
    if (fstat(side_fd, &found) != 0)
        fail(arguments[2]);
    roll = (mq_roll){.path = arguments[2], .device = found.st_dev, .inode = found.st_ino};
    plan.signal = atoi(arguments[3]);
    plan.pattern = arguments[4];
    plan.at = atol(arguments[5]);
    for (int i = 6; i < count; i++)
        perform(arguments[i]);
    return 0;
}
