/* A participant of a topic that dies, or stops, at a chosen step of the protocol (points.h).
 *
 *     driver RING SIDE SIGNAL PATTERN N OPERATION...
 *
 * Messages hold their number in each word of eight bytes, so that a torn one shows.
 */
#include "points.h"

#include "ring/registry.h"
#include "ring/batch.h"

static mq_ring_header *ring;
static mq_ring_side *side;
static uint32_t data_bytes;
static int lock_fd;
static mq_liveness_file liveness_file;
static mq_ring_publisher publisher;
static mq_ring_subscriber subscriber;
static mq_track track; /* what claim wants */

/* As publisher.pxi does it. */
static void claim(void) {
    flock(lock_fd, LOCK_EX);
    POINT("holds", lock);
    memset(&publisher, 0, sizeof publisher);
    publisher.ring = ring;
    publisher.side = side;
    publisher.data = (uint8_t *)ring + MQ_RING_HEADER;
    publisher.data_bytes = data_bytes;
    publisher.canary = mq_canary_always_intact();
    publisher.needs_fence = !mq_membarrier_register();
    publisher.liveness_file = &liveness_file;
    publisher.track = track;
    uint64_t former;
    if (!mq_ring_publisher_claim(&publisher, &self, (uint32_t)random(), &former))
        fail("no publisher's row");
    while (mq_ring_find_sending_publisher(&publisher, false))
        usleep(50);
    if (mq_ring_publisher_start(&publisher, &self) != MQ_RING_OK)
        fail("corrupt");
    flock(lock_fd, LOCK_UN);
    POINT("gave back", lock);
}

/* As subscriber.pxi does it. */
static void join(void) {
    flock(lock_fd, LOCK_EX);
    POINT("holds", lock);
    memset(&subscriber, 0, sizeof subscriber);
    subscriber.ring = ring;
    subscriber.side = side;
    subscriber.data = (const uint8_t *)ring + MQ_RING_HEADER;
    subscriber.data_bytes = data_bytes;
    subscriber.liveness_file = &liveness_file;
    subscriber.canary = mq_canary_always_intact();
    if (mq_ring_subscriber_join(&subscriber, &self, (uint32_t)random()) != MQ_RING_OK)
        fail("corrupt");
    flock(lock_fd, LOCK_UN);
    POINT("gave back", lock);
}

static void fill(uint8_t *message, uint64_t size, uint64_t number) {
    for (uint64_t i = 0; i < size; i++)
        message[i] = (uint8_t)(number >> 8 * (i & 7));
}

/* What a send says: somebody is to be woken, or it was refused, which ends us. */
static void heed(mq_ring_status status) {
    if (status == MQ_RING_NOTIFY)
        mq_ring_publisher_notify_subscribers(&publisher);
    else if (status != MQ_RING_OK) {
        printf("refused %d by %llu\n", status, (unsigned long long)mq_ring_current_publisher_pid(ring, side));
        exit(0);
    }
}

/* send:SIZE:NUMBER */
static void send_one(uint64_t size, uint64_t number) {
    uint8_t *message = malloc(size + 1);
    fill(message, size, number);
    mq_stamps stamps = {.publish_time = (int64_t)number, .origin_time = (int64_t)number};
    mq_ring_status status = publisher.stamps ? mq_ring_publisher_send_tracked(&publisher, message, size, &stamps)
                                             : mq_ring_publisher_send(&publisher, message, size);
    free(message);
    heed(status);
}

/* batch:SIZE:NUMBER: three messages, committed as one */
static void send_batch(uint64_t size, uint64_t number) {
    uint8_t *payload, *message = malloc(size + 1);
    for (uint64_t i = 0; i < 3; i++) {
        fill(message, size, number + i);
        if (publisher.pending && !mq_ring_publisher_has_room(&publisher, size) &&
            mq_ring_publisher_commit_staged(&publisher) == MQ_RING_NOTIFY)
            mq_ring_publisher_notify_subscribers(&publisher);
        if (mq_ring_publisher_begin_message(&publisher, size, &payload) != MQ_RING_OK)
            fail("begin");
        mq_copy_to_shared(payload, message, size);
        mq_ring_publisher_stage_message(&publisher, size);
    }
    free(message);
    if (mq_ring_publisher_commit_staged(&publisher) == MQ_RING_NOTIFY)
        mq_ring_publisher_notify_subscribers(&publisher);
}

/* rows:SIZE:NUMBER: three messages from an array, committed as one where there is room. As publisher.pxi does it. */
static void send_rows(uint64_t size, uint64_t number) {
    uint8_t *payload, *rows = malloc(3 * size);
    for (uint64_t i = 0; i < 3; i++)
        fill(rows + i * size, size, number + i);
    for (uint64_t done = 0, block; done < 3; done += block) {
        if (publisher.pending)
            heed(mq_ring_publisher_commit_staged(&publisher));
        heed(mq_ring_publisher_begin_message(&publisher, size, &payload));
        block = 3 - done;
        heed(mq_ring_publisher_stage_batch(&publisher, rows + done * size, size, &block));
    }
    free(rows);
    heed(mq_ring_publisher_commit_staged(&publisher));
}

/* schema:SIZE:LETTER: all its letters the same */
static void describe(uint64_t size, uint64_t letter) {
    char *data = malloc(size + 1);
    memset(data, (int)letter, size);
    char name[MQ_SCHEMA_NAME] = {(char)letter};
    flock(lock_fd, LOCK_EX);
    mq_schema_parts at = mq_ring_side_schema(side);
    mq_schema_write(&at, name, name, data, size);
    flock(lock_fd, LOCK_UN);
    free(data);
}

/* receive:CONFLATE:COUNT */
static void receive(bool conflate, uint64_t count) {
    uint8_t *copy = malloc(data_bytes);
    mq_ring_message message;
    while (count) {
        mq_ring_status status = mq_ring_subscriber_next_message(&subscriber, conflate, &message);
        if (status == MQ_RING_EMPTY)
            break;
        if (status != MQ_RING_OK)
            fail("corrupt");
        mq_copy_from_shared(copy, message.payload, message.size);
        if (!mq_ring_subscriber_accept_copy(&subscriber, &message)) {
            if (!conflate)
                mq_ring_subscriber_recover_from_lap(&subscriber);
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
static void doze(void) {
    mq_ring_subscriber_recheck_publisher(&subscriber);
    uint32_t expected = mq_ring_subscriber_prepare_wait(&subscriber);
    if (mq_ring_subscriber_is_readable(&subscriber))
        return;
    POINT("goes to", sleep);
    mq_futex_wait(mq_ring_subscriber_futex_word(&subscriber), expected, -1);
}

static void perform(const char *name, uint64_t a, uint64_t b) {
    if (!strcmp(name, "claim"))
        claim();
    else if (!strcmp(name, "track"))
        track = MQ_TRACK_YES;
    else if (!strcmp(name, "send"))
        send_one(a, b);
    else if (!strcmp(name, "batch"))
        send_batch(a, b);
    else if (!strcmp(name, "rows"))
        send_rows(a, b);
    else if (!strcmp(name, "schema"))
        describe(a, b);
    else if (!strcmp(name, "close"))
        mq_ring_publisher_close(&publisher);
    else if (!strcmp(name, "join"))
        join();
    else if (!strcmp(name, "receive"))
        receive(a, b);
    else if (!strcmp(name, "doze"))
        doze();
    else if (!strcmp(name, "announce"))
        mq_ring_subscriber_prepare_wait(&subscriber);
    else if (!strcmp(name, "leave"))
        mq_ring_subscriber_leave(&subscriber);
    else if (!strcmp(name, "tell"))
        printf("%llu received %llu lost %d unknown\n", (unsigned long long)subscriber.received,
               (unsigned long long)subscriber.lost, subscriber.lost_unknown);
    else
        fail(name);
}

int main(int count, char **arguments) {
    size_t bytes;
    mq_liveness_file ring_roll;
    int side_fd;
    begin();
    if (count < 6)
        fail("usage: driver RING SIDE SIGNAL PATTERN N OPERATION...");
    ring = map(arguments[1], &lock_fd, &bytes, &ring_roll);
    data_bytes = (uint32_t)(bytes - MQ_RING_HEADER);
    side = map(arguments[2], &side_fd, &bytes, &liveness_file);
    run(arguments + 3, perform);
    return 0;
}
