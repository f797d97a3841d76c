/* Fuzzes topics: publishers, subscribers and observers (a meter, a recorder and an event loop). A hostile program
 * rewrites the shared bytes before, between and during their calls.
 *
 * Usage: driver SEED FIRST COUNT [SECONDS]. The program runs cases FIRST to FIRST + COUNT - 1 until the time is over. Each
 * case depends only on SEED and its number. After a failure, the program prints the error and the command that repeats
 * the case.
 *
 * The program is built with the sanitizers of addresses and undefined behaviour. It checks that:
 *
 * - no call accesses bytes outside of the two segments or of a caller's buffer;
 * - a passive subscriber writes nothing;
 * - every call ends.
 */
#include "topic.h"

#include "ring/batch.h"
#include "ring/snapshot.h"

enum { PUBLISHERS = 2, SUBSCRIBERS = 5, PASSIVE = 3, WITHOUT_SIDE = 4, OPS = 160 };

static mq_ring_publisher publishers[PUBLISHERS];
static bool started[PUBLISHERS];
static mq_ring_subscriber subscribers[SUBSCRIBERS];
static bool joined[SUBSCRIBERS];
static uint8_t payloads[FUZZ_ROOM]; /* zeros, so that a subscriber at a wrong position finds sizes of 0 */
static const mq_liveness_file liveness_file = {.path = "/side", .inode = 1};
static const mq_process_identity self = {.pid = 7, .thread_id = 7, .start_time = 1, .pid_namespace = 1, .name = "fuzz"};

static mq_ring_header *ring(void) { return (mq_ring_header *)(void *)fuzz_ring.writable; }
static mq_ring_side *side(void) { return (mq_ring_side *)(void *)fuzz_side.writable; }

/* ---- publishers, as in publisher.pxi ---- */

static void start_publisher(int i) {
    mq_ring_publisher *p = &publishers[i];
    memset(p, 0, sizeof *p);
    p->ring = ring();
    p->side = side();
    p->data = fuzz_ring.writable + MQ_RING_HEADER;
    p->data_bytes = fuzz_data_bytes;
    p->canary = mq_canary_always_intact();
    p->needs_fence = fuzz_one_in(2);
    p->liveness_file = fuzz_one_in(8) ? NULL : &liveness_file;
    uint64_t former_uid;
    started[i] = false;
    if (!mq_ring_publisher_claim(p, &self, (uint32_t)fuzz_random(), &former_uid))
        return;
    if (mq_ring_find_sending_publisher(p, fuzz_one_in(2)) && fuzz_one_in(2)) {
        mq_ring_publisher_release_ring(p, former_uid);
        return;
    }
    started[i] = mq_ring_publisher_start(p, &self) == MQ_RING_OK;
    if (!started[i])
        mq_ring_publisher_release_ring(p, former_uid);
}

static uint64_t message_size(void) {
    uint64_t most = mq_ring_frame_bytes_max(fuzz_data_bytes);
    switch (fuzz_below(6)) {
    case 0: return fuzz_value();
    case 1: return most - fuzz_below(24);
    case 2: return 0;
    default: return fuzz_below(most);
    }
}

/* Write a message in place. In half of the calls, the message stays staged. */
static void write_message(mq_ring_publisher *p) {
    uint8_t *payload;
    uint64_t size = message_size();
    if (p->pending && !mq_ring_publisher_has_room(p, size))
        if (mq_ring_publisher_commit_staged(p) == MQ_RING_NOTIFY)
            mq_ring_publisher_notify_subscribers(p);
    if (mq_ring_publisher_begin_message(p, size, &payload) != MQ_RING_OK)
        return;
    check(payload >= p->data + 8 && payload + size <= p->data + p->data_bytes, "a message beyond the ring");
    if (fuzz_one_in(8)) {
        mq_ring_publisher_discard_staged(p, MQ_RING_OK);
        return;
    }
    mq_copy_to_shared(payload, payloads, size);
    mq_ring_publisher_stage_message(p, size);
    if (fuzz_one_in(2) && mq_ring_publisher_commit_staged(p) == MQ_RING_NOTIFY)
        mq_ring_publisher_notify_subscribers(p);
}

static void send_message(mq_ring_publisher *p) {
    uint64_t size = message_size();
    if (p->pending && mq_ring_publisher_commit_staged(p) == MQ_RING_NOTIFY)
        mq_ring_publisher_notify_subscribers(p);
    if (mq_ring_publisher_send(p, payloads, size) == MQ_RING_NOTIFY)
        mq_ring_publisher_notify_subscribers(p);
}

static void publish(void) {
    int attached, updated, i = (int)fuzz_below(PUBLISHERS);
    mq_ring_publisher *p = &publishers[i];
    if (!started[i] || fuzz_one_in(24)) {
        fuzz_op = "connect (publisher)";
        start_publisher(i);
        return;
    }
    switch (fuzz_below(12)) {
    case 0:
        fuzz_op = "all_readers_updated";
        mq_ring_count_subscribers(p, &attached, &updated);
        break;
    case 1:
        fuzz_op = "notify";
        mq_ring_publisher_scan_stock_readers(p);
        mq_ring_publisher_notify_subscribers(p);
        break;
    case 2:
        fuzz_op = "close (publisher)";
        mq_ring_publisher_discard_staged(p, MQ_RING_OK);
        mq_ring_publisher_close(p);
        started[i] = false;
        break;
    case 3:
    case 4:
    case 5:
        fuzz_op = "reserve";
        write_message(p);
        break;
    default: fuzz_op = "send"; send_message(p);
    }
}

#include "observers.h"

/* ---- subscribers, as in subscriber.pxi ---- */

static void join(int i) {
    mq_ring_subscriber *s = &subscribers[i];
    bool passive = i == PASSIVE;
    memset(s, 0, sizeof *s);
    s->passive = passive;
    s->liveness_file = fuzz_one_in(8) ? NULL : &liveness_file;
    s->ring = (mq_ring_header *)(void *)(passive ? fuzz_ring.readable : fuzz_ring.writable);
    s->side = i == WITHOUT_SIDE ? NULL : (mq_ring_side *)(void *)(passive ? fuzz_side.readable : fuzz_side.writable);
    s->data = (uint8_t *)s->ring + MQ_RING_HEADER;
    s->data_bytes = fuzz_data_bytes;
    s->canary = mq_canary_always_intact();
    joined[i] = mq_ring_subscriber_join(s, &self, (uint32_t)fuzz_random()) == MQ_RING_OK;
    if (!joined[i])
        mq_ring_subscriber_leave(s);
}

/* Receive a message into a buffer of its exact size, so that the sanitizer detects a longer copy. Returns MQ_RING_OK for a
 * message, MQ_RING_EMPTY if a blocking caller would sleep, and MQ_RING_CORRUPT if the caller would get an error. */
static mq_ring_status receive(mq_ring_subscriber *s, bool conflate) {
    mq_ring_message message;
    for (int tries = 0; tries < 1000; tries++) {
        fuzz_steps = 0;
        mq_ring_status status = mq_ring_subscriber_next_message(s, conflate, &message);
        if (status != MQ_RING_OK) {
            if (status == MQ_RING_CORRUPT)
                mq_ring_subscriber_recover_from_lap(s);
            return status;
        }
        check(message.payload >= s->data + 8 && message.size <= s->data_bytes &&
                  message.payload + message.size <= s->data + s->data_bytes,
              "a message beyond the ring");
        uint8_t *copy = malloc(message.size + 1);
        mq_copy_from_shared(copy, message.payload, message.size);
        free(copy);
        if (mq_ring_subscriber_accept_copy(s, &message))
            return MQ_RING_OK;
        if (!conflate && mq_ring_subscriber_recover_from_lap(s) != MQ_RING_OK)
            return MQ_RING_CORRUPT;
    }
    check(fuzz_rate, "torn again and again, though nobody writes");
    return MQ_RING_EMPTY;
}

static void receive_all(mq_ring_subscriber *s) {
    mq_ring_subscriber_refresh_published(s);
    for (int i = 0; i < 100000 && s->cursor != s->published; i++)
        if (receive(s, false) != MQ_RING_OK)
            break;
}

static void receive_array(mq_ring_subscriber *s) {
    uint64_t size = fuzz_below(40) + 1;
    mq_ring_subscriber_refresh_published(s);
    uint64_t most = mq_ring_subscriber_pending_bytes(s) / mq_ring_frame_bytes(size);
    most = most < 4096 ? most : 4096; /* receive_array also receives blocks */
    uint8_t *out = malloc(most * size + 1);
    int64_t taken = most ? mq_ring_subscriber_receive_batch(s, out, size, (int64_t)most) : 0;
    check(taken <= (int64_t)most, "more messages than there is room for");
    free(out);
    if (taken < 0)
        mq_ring_subscriber_recover_from_lap(s);
}

/* All steps of a sleep except the system call. A caller repeats its receive while the ring is readable, so that must end. */
static void sleep_on_it(mq_ring_subscriber *s, bool conflate) {
    uint64_t rate = fuzz_rate;
    fuzz_rate = 0;                         /* no hostile stores */
    mq_ring_subscriber_may_attach_side(s); /* each call of the library begins with this. The fuzzer attaches nothing */
    for (int tries = 0; mq_ring_subscriber_is_readable(s) && receive(s, conflate) == MQ_RING_EMPTY; tries++)
        check(tries < 1000, "a subscriber neither receives nor sleeps");
    fuzz_rate = rate;
    if (s->passive || !s->side)
        return;
    mq_ring_subscriber_recheck_publisher(s);
    if (fuzz_one_in(4))
        mq_ring_subscriber_route_signals(s, (uint32_t)fuzz_below(2) * 7);
    mq_ring_subscriber_prepare_wait(s);
    check(mq_ring_subscriber_futex_word(s) != NULL, "no futex");
}

static void subscribe(void) {
    int i = (int)fuzz_below(SUBSCRIBERS);
    mq_ring_subscriber *s = &subscribers[i];
    mq_ring_message message;
    bool conflate = fuzz_one_in(3);
    if (!joined[i]) {
        fuzz_op = "connect (subscriber)";
        join(i);
        return;
    }
    switch (fuzz_below(14)) {
    case 0:
        fuzz_op = "receive_many";
        receive_all(s);
        break;
    case 1:
    case 2:
        fuzz_op = "receive_array";
        receive_array(s);
        break;
    case 3:
    case 4:
        fuzz_op = "sleep";
        sleep_on_it(s, conflate);
        break;
    case 5:
        fuzz_op = "poll";
        mq_ring_subscriber_peek_message(s, &message);
        break;
    case 6:
        fuzz_op = "reset";
        mq_ring_subscriber_recover_from_lap(s);
        break;
    case 7:
        fuzz_op = "rejoin";
        unwatch(i); /* as in a forked child */
        mq_ring_subscriber_leave(s);
        if (!s->passive && s->side)
            mq_ring_subscriber_rejoin(s, &self, (uint32_t)fuzz_random());
        else
            joined[i] = false;
        break;
    case 8:
        fuzz_op = "close (subscriber)";
        unwatch(i);
        mq_ring_subscriber_leave(s);
        joined[i] = false;
        break;
    default: fuzz_op = conflate ? "receive, conflating" : "receive"; receive(s, conflate);
    }
}

/* ---- observers ---- */

/* Read the losses of subscribers, as `stats` does. The observer may not write. */
static void observer(void) {
    mq_ring_header *seen_ring = (mq_ring_header *)(void *)fuzz_ring.readable;
    mq_ring_side *seen = (mq_ring_side *)(void *)fuzz_side.readable;
    static const mq_u64 whole = {1};
    mq_canary by = fuzz_one_in(2) ? mq_canary_always_intact() : mq_canary_of_ring(seen_ring, fuzz_data_bytes, &whole);
    mq_ring_subscriber observer =
        mq_ring_make_observer(seen_ring, seen, fuzz_one_in(8) ? NULL : &liveness_file, fuzz_data_bytes, by);
    mq_ring_subscriber_snapshot reader;
    mq_ring_counts counts;
    fuzz_op = "stats of a subscriber";
    for (int i = 0; i < SUBSCRIBERS; i++)
        mq_ring_observer_read_subscriber(&observer, i, &reader);
    mq_ring_observer_read_subscriber(&observer, (int)fuzz_below(MQ_RING_SUBSCRIBERS), &reader);
    fuzz_op = "counts";
    mq_ring_snapshot_counts(seen_ring, fuzz_one_in(8) ? NULL : seen, observer.liveness_file, fuzz_data_bytes, by,
                            &counts);
    check(counts.subscribers <= MQ_RING_SUBSCRIBERS, "more subscribers than rows");
}

static void observe(void) {
    static char name[MQ_SCHEMA_NAME], encoding[MQ_SCHEMA_ENCODING];
    char *data = malloc(MQ_SCHEMA_DATA_MAX);
    const mq_ring_side *seen = (const mq_ring_side *)(const void *)fuzz_side.readable;
    const mq_ring_header *header = (const mq_ring_header *)(const void *)fuzz_ring.readable;
    mq_participant_snapshot participant;
    mq_ring_subscriber_snapshot reader;
    uint64_t sent, bytes;
    fuzz_op = "stats";
    mq_ring_snapshot_publisher(seen, (int)fuzz_below(MQ_RING_PUBLISHERS), &participant, &sent, &bytes);
    mq_ring_snapshot_subscriber(seen, (int)fuzz_below(MQ_RING_SUBSCRIBERS), &reader);
    check(memchr(participant.name, 0, sizeof participant.name) &&
              memchr(reader.participant.name, 0, sizeof participant.name),
          "a name without end");
    mq_ring_count_stock_readers(header, fuzz_one_in(4) ? NULL : seen);
    mq_ring_side_check(seen, 1, fuzz_data_bytes);
    mq_ring_canary_is_missing(header, seen, fuzz_data_bytes);
    observer();
    fuzz_op = "schema";
    mq_schema_parts described = mq_ring_side_schema(seen);
    if (mq_schema_read(&described, name, encoding, data, &bytes))
        check(bytes <= MQ_SCHEMA_DATA_MAX, "a schema beyond the file");
    free(data);
    if (fuzz_one_in(8)) {
        static char text[MQ_SCHEMA_DATA_MAX];
        fuzz_op = "connect with a schema";
        memset(text, 'x', sizeof text);
        mq_schema_parts at = mq_ring_side_schema(side());
        mq_schema_write(&at, "name", "encoding", text,
                        fuzz_one_in(4) ? sizeof text : fuzz_below(fuzz_one_in(2) ? 64 : sizeof text));
    }
}

/* Rings of all sizes up to 4 GiB: positions of position.h must be inside of the ring. */
static void check_counts(void) {
    uint32_t size = (uint32_t)(fuzz_one_in(2) ? UINT32_MAX - fuzz_below(64) : 128 + fuzz_below(UINT32_MAX - 128));
    uint64_t position = fuzz_one_in(2) ? fuzz_random() : fuzz_position();
    fuzz_op = "check counts";
    check((uint64_t)mq_ring_lap_end(size) + 8 < size && mq_ring_frame_bytes_max(size) <= mq_ring_lap_end(size),
          "a lap beyond the ring");
    check(mq_ring_grant_chunk_bytes(size) >= 8 && (mq_ring_grant_chunk_bytes(size) & 7) == 0, "a chunk that is none");
    check(!mq_ring_position_is_valid(position, size) || (uint64_t)mq_ring_offset(position) + 8 <= size,
          "beyond the ring");
    if (mq_ring_position_is_valid(position, size)) {
        check(mq_ring_distance(mq_ring_max_written_position(position, size), position) >= 0, "a reach that goes back");
        check(mq_ring_message_is_intact(position, position), "nothing was written, and yet not intact");
    }
}

static void fill(void) {
    if (fuzz_one_in(8)) /* random bytes in the ring. The side segment stays valid, because the library checks it */
        for (size_t i = 0; i + 8 <= fuzz_ring.bytes; i += 8)
            *fuzz_ring_word(i) = fuzz_value();
    for (uint64_t honest = fuzz_below(4) * fuzz_data_bytes / 64; honest > 0 && started[0]; honest--)
        send_message(&publishers[0]);
}

static void run_case(void) {
    static const uint64_t rates[] = {0, 8, 64, 512};
    fuzz_data_bytes = (uint32_t)(128 + (fuzz_one_in(8) ? fuzz_below(FUZZ_ROOM - 512 - 128) : fuzz_below(900)));
    fuzz_use(&fuzz_ring, MQ_RING_HEADER + fuzz_data_bytes);
    fuzz_use(&fuzz_side, MQ_SIDE_BYTES);
    memset(started, 0, sizeof started);
    memset(joined, 0, sizeof joined);
    reset_observers();
    mq_ring_side_init(side(), ring(), 1, fuzz_data_bytes, 1, false);
    start_publisher(0);
    fill();
    fuzz_rate = rates[fuzz_below(4)];
    for (int i = 0; i < OPS; i++) {
        fuzz_steps = 0;
        for (uint64_t words = fuzz_one_in(2) ? 0 : fuzz_below(4); words > 0; words--)
            fuzz_scribble();
        switch (fuzz_below(20)) {
        case 0: observe(); break;
        case 1: check_counts(); break;
        case 2:
        case 3:
        case 4:
        case 5: publish(); break;
        case 6:
        case 7:
        case 8: run_observer(); break;
        default: subscribe();
        }
    }
}

int main(int argc, char **argv) {
    fuzz_map(&fuzz_ring, FUZZ_ROOM);
    fuzz_map(&fuzz_side, FUZZ_SIDE);
    fuzz_scribble = fuzz_scribble_topic;
    return fuzz_main(argc, argv, run_case, OPS);
}
