/* A topic under stress in one process: publishers that take over, stop and die in the middle of a send; subscribers
 * that join, sleep, leave and die; somebody who looks on. Usage: threads SECONDS SEED. Prints what was done; ends with
 * 1 and a text when something was wrong.
 *
 * What: every message carries the sequence number that its publisher gave it, and bytes that follow from that.
 * Why: several processes on one shared memory behave as threads on one memory do, and a thread sanitizer sees threads.
 * Failure would mean: a message was torn, repeated, reordered, or lost and not counted; or somebody slept on although
 * there was something to read.
 *
 * What the thread sanitizer can say here: whether any shared byte is touched by a plain access of one thread while
 * another writes it. It says so because atomics.h gives it payload copies made of relaxed atomic bytes. What it cannot
 * say: whether the orders are strong enough. GCC's does not model needs_fence at all (EDGE grant, sleep, schema), nor
 * membarrier (EDGE takeover), and it runs on the machine's own order, which on x86-64 is stronger than the code
 * asks for. With all accesses atomic it has nothing to object to in a missing fence. Those edges are argued in
 * docs/internals/topic-protocol.md and docs/internals/aarch64.md, searched by the model (tools/model), and tried here by the same program without
 * a sanitizer, where the checksums count. EDGE sleep runs for real in both builds: a sleeper that missed its wake-up
 * is found out.
 */
#include <pthread.h>
#include <stdarg.h>

#include "ring/seek.h"
#include "ring/registry.h"
#include "ring/snapshot.h"

enum {
    DATA_BYTES = 1 << 14,
    MESSAGE_MAX = 1200,
    PUBLISHERS = 2,
    SUBSCRIBERS = 4,
    WATCHDOG_S = 20, /* nobody needs a second, however busy the machine */
};

static mq_ring_header *ring;
static mq_ring_side *side;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* in place of flock */
static _Atomic bool stop;
static _Atomic uint64_t sent, received, lost, joins, starts, slept, caught_up, oldest, overtaken, newest;
static _Atomic uint64_t progress[PUBLISHERS + SUBSCRIBERS + 1]; /* cursors by thread, as far as it said */
#define AWAY UINT64_MAX                                         /* not subscribed just now */
static bool no_membarrier;
static unsigned seed;

static void fail(const char *format, ...) {
    va_list values;
    va_start(values, format);
    fprintf(stderr, "threads: ");
    vfprintf(stderr, format, values);
    fprintf(stderr, " (seed %u)\n", seed);
    va_end(values);
    _exit(1);
}

static uint32_t below(uint64_t *state, uint32_t n) {
    *state = *state * 6364136223846793005ull + 1442695040888963407ull;
    return (uint32_t)(*state >> 33) % n;
}

/* ---- messages ---- */

static uint8_t pattern(uint64_t sequence, size_t i) { return (uint8_t)(sequence * 89 + i * 7 + (sequence >> 8)); }

static void fill(uint8_t *bytes, size_t size, uint64_t sequence) {
    memcpy(bytes, &sequence, 8);
    for (size_t i = 8; i < size; i++)
        bytes[i] = pattern(sequence, i);
}

static uint64_t verify(const uint8_t *bytes, size_t size) {
    uint64_t sequence;
    if (size < 8)
        fail("a message of %zu bytes", size);
    memcpy(&sequence, bytes, 8);
    for (size_t i = 8; i < size; i++)
        if (bytes[i] != pattern(sequence, i))
            fail("message %llu of %zu bytes is torn at %zu", (unsigned long long)sequence, size, i);
    return sequence;
}

/* Make an entry look as if its process had been killed: nobody with this start time lives. */
static void die(mq_participant *participant) { mq_store_release_u64(&participant->start_time, 1); }

/* ---- publishing ---- */

static void become_publisher(mq_ring_publisher *p, const mq_process_identity *self, uint64_t *chance) {
    memset(p, 0, sizeof *p);
    p->ring = ring;
    p->side = side;
    p->data = (uint8_t *)ring + MQ_RING_HEADER;
    p->data_bytes = DATA_BYTES;
    p->canary = mq_canary_always_intact();
    p->needs_fence = no_membarrier || below(chance, 4) == 0;
    pthread_mutex_lock(&lock);
    uint64_t former;
    if (!mq_ring_publisher_claim(p, self, below(chance, UINT32_MAX), &former))
        fail("no publisher's row is free");
    while (mq_ring_find_sending_publisher(p, false))
        sched_yield();
    if (mq_ring_publisher_start(p, self) != MQ_RING_OK)
        fail("the ring makes no sense to a starting publisher");
    if (p->era != 0)
        fail("a starting publisher could not continue the count");
    mq_schema_parts at = mq_ring_side_schema(side);
    mq_ring_publisher_begin_schema(p);
    mq_schema_write(&at, "name", "encoding", "schema", below(chance, 6));
    pthread_mutex_unlock(&lock);
    atomic_fetch_add(&starts, 1);
}

typedef enum { WELL, TAKEN_OVER, DEAD } health;

/* Say nothing more until all have read all: a subscriber whose wake-up went missing sleeps on, and is found out. No
 * other publisher may start meanwhile, as that wakes everybody. */
static void wait_for_readers(const mq_ring_publisher *p) {
    int64_t deadline = mq_monotonic_ns() + (int64_t)WATCHDOG_S * 1000000000;
    pthread_mutex_lock(&lock);
    for (int i = 1 + PUBLISHERS; i < 1 + PUBLISHERS + SUBSCRIBERS && mq_ring_publisher_owns_ring(p); i++) {
        uint64_t cursor;
        while ((cursor = progress[i]) != AWAY && mq_ring_distance(cursor, p->position) < 0 && !stop) {
            if (mq_monotonic_ns() > deadline)
                fail("subscriber %d slept through a message: at %llx of %llx", i, (unsigned long long)cursor,
                     (unsigned long long)p->position);
            usleep(20);
        }
    }
    pthread_mutex_unlock(&lock);
    atomic_fetch_add(&caught_up, 1);
}

/* One send; in one of a thousand the publisher dies on the way. */
static health publish(mq_ring_publisher *p, uint64_t *chance) {
    uint8_t bytes[MESSAGE_MAX], *payload;
    uint64_t size = 8 + below(chance, MESSAGE_MAX - 8);
    uint32_t death = below(chance, 4000);
    if (mq_ring_publisher_begin_message(p, size, &payload) != MQ_RING_OK)
        return TAKEN_OVER;
    fill(bytes, size, p->sequence);
    mq_copy_to_shared(payload, bytes, death == 0 ? size / 2 : size);
    if (death < 2) /* in the middle of the payload, or before the commit */
        return die(&p->row->participant), DEAD;
    mq_ring_publisher_stage_message(p, size);
    mq_ring_status status = mq_ring_publisher_commit_staged(p);
    if (status != MQ_RING_OK && status != MQ_RING_NOTIFY)
        return TAKEN_OVER;
    atomic_fetch_add(&sent, 1);
    if (death == 2) /* before the wake */
        return die(&p->row->participant), DEAD;
    if (status == MQ_RING_NOTIFY)
        mq_ring_publisher_notify_subscribers(p);
    return WELL;
}

static void *run_publisher(void *number) {
    uint64_t chance = seed * 1000 + (uintptr_t)number;
    mq_process_identity self;
    mq_ring_publisher p;
    if (mq_read_process_identity(&self) != 0)
        fail("no /proc");
    while (!stop) {
        become_publisher(&p, &self, &chance);
        uint32_t life = 1 + below(&chance, 3000);
        health now = WELL;
        for (uint32_t i = 0; i < life && now == WELL && !stop; i++) {
            now = publish(&p, &chance);
            if (now == WELL && below(&chance, 64) == 0)
                wait_for_readers(&p);
            if (below(&chance, 64) == 0) /* let them fall asleep */
                usleep(below(&chance, 200));
        }
        if (now != DEAD) /* the dead do not close; their entry may be another's by now */
            mq_ring_publisher_close(&p);
    }
    become_publisher(&p, &self, &chance); /* wakes whom a publisher that died left asleep */
    mq_ring_publisher_close(&p);
    return NULL;
}

/* ---- subscribing ---- */

static void join(mq_ring_subscriber *s, const mq_process_identity *self, uint64_t *chance, _Atomic uint64_t *cursor) {
    memset(s, 0, sizeof *s);
    s->ring = ring;
    s->side = side;
    s->data = (uint8_t *)ring + MQ_RING_HEADER;
    s->data_bytes = DATA_BYTES;
    s->canary = mq_canary_always_intact();
    pthread_mutex_lock(&lock);
    if (mq_ring_subscriber_join(s, self, below(chance, UINT32_MAX)) != MQ_RING_OK)
        fail("the ring makes no sense to a subscriber");
    *cursor = s->cursor;
    pthread_mutex_unlock(&lock);
    atomic_fetch_add(&joins, 1);
}

static void sleep_until_more(mq_ring_subscriber *s) {
    mq_ring_subscriber_recheck_publisher(s);
    uint32_t expected = mq_ring_subscriber_prepare_wait(s);
    if (mq_ring_subscriber_is_readable(s))
        return;
    atomic_fetch_add(&slept, 1);
    mq_futex_wait(mq_ring_subscriber_futex_word(s), expected, mq_monotonic_ns() + (int64_t)2 * WATCHDOG_S * 1000000000);
}

/* Receive one message, with the checks that follow from its number. False: the end. */
static bool receive(mq_ring_subscriber *s, bool conflate, uint64_t *next, _Atomic uint64_t *cursor) {
    uint8_t copy[MESSAGE_MAX];
    mq_ring_message m = {0};
    while (!stop) {
        mq_ring_status status = mq_ring_subscriber_next_message(s, conflate, &m);
        *cursor = s->cursor;
        if (status == MQ_RING_CORRUPT)
            fail("corrupt at %llx", (unsigned long long)s->cursor);
        if (status == MQ_RING_EMPTY) {
            sleep_until_more(s);
            continue;
        }
        mq_copy_from_shared(copy, m.payload, m.size < sizeof copy ? m.size : sizeof copy);
        if (!mq_ring_subscriber_accept_copy(s, &m)) {
            if (!conflate)
                mq_ring_subscriber_recover_from_lap(s);
            continue;
        }
        uint64_t sequence = verify(copy, m.size);
        if (sequence < *next)
            fail("message %llu after %llu", (unsigned long long)sequence, (unsigned long long)*next - 1);
        if (s->sequence_known && sequence + 1 != mq_ring_subscriber_sequence(s))
            fail("message %llu was counted as %llu", (unsigned long long)sequence,
                 (unsigned long long)mq_ring_subscriber_sequence(s) - 1);
        *next = sequence + 1;
        return true;
    }
    return false;
}

static void *run_subscriber(void *number) {
    uint64_t chance = seed * 2000 + (uintptr_t)number;
    _Atomic uint64_t *cursor = &progress[(uintptr_t)number];
    mq_process_identity self;
    mq_ring_subscriber s;
    if (mq_read_process_identity(&self) != 0)
        fail("no /proc");
    while (!stop) {
        uint64_t first = 0, next = 0, got = 0;
        uint32_t life = 1 + below(&chance, 2000);
        bool conflate = below(&chance, 4) == 0;
        join(&s, &self, &chance, cursor);
        while (got < life && receive(&s, conflate, &next, cursor)) {
            if (got++ == 0)
                first = next - 1 - s.lost; /* of those that were lost before the first came */
            if (!s.lost_unknown && next - first != got + s.lost)
                fail("%llu received and %llu lost of %llu", (unsigned long long)got, (unsigned long long)s.lost,
                     (unsigned long long)(next - first));
            if (below(&chance, 500) == 0)
                usleep(below(&chance, 2000)); /* to be lapped */
        }
        *cursor = AWAY;
        atomic_fetch_add(&received, got);
        atomic_fetch_add(&lost, s.lost);
        if (below(&chance, 3) == 0 && s.row != &s.private_row)
            die(&s.row->participant);
        else
            mq_ring_subscriber_leave(&s);
    }
    return NULL;
}

/* ---- looking on ---- */

static mq_ring_subscriber make_passive_subscriber(void) {
    return (mq_ring_subscriber){.ring = ring,
                                .side = side,
                                .data = (uint8_t *)ring + MQ_RING_HEADER,
                                .data_bytes = DATA_BYTES,
                                .canary = mq_canary_always_intact(),
                                .passive = true};
}

/* Join the ring as if it had just appeared, without a trace, and take some: each message that was ever sent is
 * received, or counted as lost. */
static void take_from_oldest(const mq_process_identity *self) {
    uint8_t copy[MESSAGE_MAX];
    mq_ring_message m = {0};
    mq_ring_subscriber s = make_passive_subscriber();
    if (mq_ring_subscriber_join(&s, self, 0) != MQ_RING_OK || mq_ring_subscriber_seek_oldest(&s) != MQ_RING_OK)
        fail("a passive subscriber cannot seek the oldest message");
    uint64_t behind = s.lost;
    while (s.received < 50 && !stop && !s.lost_unknown) {
        mq_ring_status status = mq_ring_subscriber_peek_message(&s, &m);
        if (status == MQ_RING_EMPTY)
            return;
        if (status != MQ_RING_OK)
            fail("corrupt at %llx", (unsigned long long)s.cursor);
        mq_copy_from_shared(copy, m.payload, m.size < sizeof copy ? m.size : sizeof copy);
        if (!mq_ring_subscriber_accept_copy(&s, &m)) {
            mq_ring_subscriber_recover_from_lap(&s);
            continue;
        }
        uint64_t sequence = verify(copy, m.size);
        if (!s.lost_unknown && sequence + 1 != s.received + s.lost)
            fail("message %llu is the %lluth of those received and %llu lost, %llu of them before it came",
                 (unsigned long long)sequence, (unsigned long long)s.received, (unsigned long long)s.lost,
                 (unsigned long long)behind);
        atomic_fetch_add(s.lost == behind ? &oldest : &overtaken, 1);
    }
}

/* Join without a trace, and receive from the last message on. Each message is complete, and the order is correct. */
static void take_from_last(const mq_process_identity *self) {
    uint8_t copy[MESSAGE_MAX];
    mq_ring_message m = {0};
    mq_ring_subscriber s = make_passive_subscriber();
    if (mq_ring_subscriber_join(&s, self, 0) != MQ_RING_OK || mq_ring_subscriber_seek_last(&s) != MQ_RING_OK)
        fail("a passive subscriber cannot seek the last message");
    if (s.lost || s.lost_unknown || s.received)
        fail("messages before the last one count");
    for (uint64_t next = 0; s.received < 3 && !stop;) {
        mq_ring_status status = mq_ring_subscriber_peek_message(&s, &m);
        if (status == MQ_RING_EMPTY)
            return;
        if (status != MQ_RING_OK)
            fail("corrupt at %llx", (unsigned long long)s.cursor);
        mq_copy_from_shared(copy, m.payload, m.size < sizeof copy ? m.size : sizeof copy);
        if (!mq_ring_subscriber_accept_copy(&s, &m)) {
            mq_ring_subscriber_recover_from_lap(&s);
            continue;
        }
        uint64_t sequence = verify(copy, m.size);
        if (sequence < next)
            fail("message %llu after message %llu", (unsigned long long)sequence, (unsigned long long)next - 1);
        next = sequence + 1;
        atomic_fetch_add(&newest, 1);
    }
}

static void *run_onlooker(void *unused) {
    static char data[MQ_SCHEMA_DATA_MAX];
    char name[MQ_SCHEMA_NAME], encoding[MQ_SCHEMA_ENCODING];
    mq_participant_snapshot participant;
    mq_ring_subscriber_snapshot reader;
    uint64_t messages, bytes;
    mq_process_identity self;
    if (mq_read_process_identity(&self) != 0)
        fail("no /proc");
    while (!stop) {
        take_from_oldest(&self);
        take_from_last(&self);
        for (int i = 0; i < MQ_RING_PUBLISHERS; i++)
            mq_ring_snapshot_publisher(side, i, &participant, &messages, &bytes);
        for (int i = 0; i < 8; i++)
            mq_ring_snapshot_subscriber(side, i, &reader);
        mq_schema_parts at = mq_ring_side_schema(side);
        if (mq_schema_read(&at, name, encoding, data, &bytes) && bytes && memcmp(data, "schema", bytes) != 0)
            fail("a torn schema");
        usleep(100);
    }
    return unused;
}

int main(int argc, char **argv) {
    enum { THREADS = PUBLISHERS + SUBSCRIBERS + 1 };
    pthread_t threads[THREADS];
    void *(*runs[THREADS])(void *) = {run_onlooker, run_publisher, run_publisher};
    if (argc != 3)
        fail("usage: threads SECONDS SEED");
    seed = (unsigned)strtoul(argv[2], NULL, 10);
    no_membarrier = !mq_membarrier_register();
    ring = aligned_alloc(64, MQ_RING_HEADER + DATA_BYTES);
    side = aligned_alloc(64, MQ_SIDE_BYTES);
    memset((void *)ring, 0, MQ_RING_HEADER + DATA_BYTES);
    memset((void *)side, 0, MQ_SIDE_BYTES);
    mq_ring_side_init(side, ring, 1, DATA_BYTES, 1, false);
    for (int i = 0; i < THREADS; i++)
        progress[i] = AWAY;
    for (int i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, runs[i] ? runs[i] : run_subscriber, (void *)(uintptr_t)i);
    usleep((useconds_t)(atof(argv[1]) * 1e6));
    stop = true;
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    printf("sent %llu received %llu lost %llu slept %llu caught_up %llu starts %llu joins %llu oldest %llu overtaken "
           "%llu newest %llu membarrier "
           "%d\n",
           (unsigned long long)sent, (unsigned long long)received, (unsigned long long)lost, (unsigned long long)slept,
           (unsigned long long)caught_up, (unsigned long long)starts, (unsigned long long)joins,
           (unsigned long long)oldest, (unsigned long long)overtaken, (unsigned long long)newest, !no_membarrier);
    free(ring);
    free(side);
    return 0;
}
