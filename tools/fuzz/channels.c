/* Fuzzes a channel: publishers, subscribers (copies, views, conflation), and joins. A hostile program rewrites words of
 * the channel's file and of the pools before and during each call. For the usage, see driver.c. The program checks that:
 *
 * - no call accesses bytes outside of the channel's file and the pools;
 * - every call ends;
 * - a cursor never goes back, and received plus lost messages equal the distance of the cursor;
 * - a publisher neither loses a slot nor has a slot twice.
 */
/* Above 100 rounds of `look`, each of which may pass over 8,192 hostile entries. Measured: 820,402. */
#define FUZZ_STEPS_MAX 1000000
#include "hostile.h"

/* The code of topics never uses these loads. */
#define mq_load_seq_cst_u64(word) (fuzz_before_load(), mq_load_seq_cst_u64(word))
#define mq_load_seq_cst_u32(word) (fuzz_before_load(), mq_load_seq_cst_u32(word))
#define mq_fetch_or_u64(word, bits) (fuzz_before_load(), mq_fetch_or_u64(word, bits))
#define mq_fetch_and_u64(word, bits) (fuzz_before_load(), mq_fetch_and_u64(word, bits))

enum { PUBLISHERS = 2, MEMORY_FILES_MAX = PUBLISHERS };

static fuzz_memory header_memory, pool_memory[PUBLISHERS]; /* a pool's uid is its index plus 1 */

static void *new_file_memory(uint64_t uid, uint64_t bytes) {
    fuzz_use(&pool_memory[uid - 1], bytes);
    return pool_memory[uid - 1].writable;
}

#include "memory_files.h"

#include "channel/join.h"
#include "sources/channel.h"

enum { OPS = 200, SUBSCRIBERS = 3, SLOTS_MAX = 20, SLOT_BYTES = 100, PAGE = 4096, CAPACITY_MOST = 64 };

static mq_channel_publisher publishers[PUBLISHERS];
static mq_liveness_file liveness_file = {.path = "/dev/shm/msgqchan_fuzz", .inode = 1};
static mq_process_identity self = {.pid = 7, .name = "fuzz"};
static char node[MQ_NODE_NAME_BYTES] = "fuzz";
static mq_channel_files files = {
    .policy = &memory_file_policy, .pool_prefix = MEMORY_FILE_PREFIX, .liveness_file = &liveness_file};
static mq_file_lock row_lock = {.file = {.path = "/dev/shm/msgqchan_fuzz", .inode = 1}, .fd = -1};
static mq_error error;
static uint64_t capacity;

typedef struct {
    mq_channel_subscriber c;
    uint64_t slots[4], held;
    mq_pool_map pools[4];
    bool joined;
} reader;
static reader readers[SUBSCRIBERS];

static mq_channel_header *header(void) { return (mq_channel_header *)(void *)header_memory.writable; }

/* ---- the stranger ---- */

static uint64_t hostile_position(void) {
    uint64_t tail = ((uint64_t *)(void *)&header()->tail)[0];
    switch (fuzz_below(5)) {
    case 0: return fuzz_edge(3 * CAPACITY_MOST);
    case 1: return tail + (fuzz_below(3) - 1) * (1ull << fuzz_below(64));
    case 2: return fuzz_below(1ull << 44);
    default: return tail + fuzz_below(4 * CAPACITY_MOST) - 2 * CAPACITY_MOST;
    }
}

static uint64_t hostile_entry(void) {
    unsigned row = fuzz_one_in(2) ? publishers[fuzz_below(PUBLISHERS)].number : (unsigned)fuzz_below(64);
    unsigned slot = fuzz_one_in(2) ? (unsigned)fuzz_below(SLOTS_MAX) : (unsigned)fuzz_below(1 << 14);
    return fuzz_one_in(8) ? fuzz_random() : mq_index_entry_pack(hostile_position(), row, slot);
}

/* Store a word if it is in the used bytes. A pool without a name belongs to its owner alone. */
static void store_in(fuzz_memory *memory, uint64_t offset, uint64_t value) {
    if (offset + 8 <= memory->bytes && memory_files[1 + memory - pool_memory].named)
        __atomic_store_n((uint64_t *)(void *)(memory->writable + offset), value, __ATOMIC_RELAXED);
}

static void store(void *at, uint64_t value) { __atomic_store_n((uint64_t *)at, value, __ATOMIC_RELAXED); }

static void scribble(void) {
    fuzz_memory *pool = &pool_memory[fuzz_below(PUBLISHERS)];
    unsigned row = fuzz_one_in(2) ? MQ_INDEX_RING_RETRACTED : 0;
    bool circle;
    switch (fuzz_below(10)) {
    case 0: store(&header()->tail, fuzz_one_in(4) ? 0 : hostile_position()); break;
    case 1: store(&header()->config, fuzz_one_in(2) ? 1ull << fuzz_below(17) : fuzz_random()); break;
    case 2:
    case 3: store(&header()->entries[fuzz_below(capacity)], hostile_entry()); break;
    case 4: /* an index ring of random entries, or of entries that each lead to the next */
        circle = fuzz_one_in(4);
        for (uint64_t i = 0; i < capacity; i++)
            store(&header()->entries[i],
                  circle ? mq_index_entry_pack(i * ((1ull << 44) / capacity) + i, row, 0) : hostile_entry());
        break;
    case 5: store(&header()->publishers[fuzz_below(PUBLISHERS)].pool_uid, fuzz_below(4)); break;
    case 6: store(header_memory.writable + 8 * fuzz_below(sizeof(mq_channel_header) / 8), fuzz_edge(64)); break;
    case 7: store_in(pool, 8 * fuzz_below(24 + 8 * SLOTS_MAX), fuzz_edge(64)); break;
    default: /* usually the length of a slot */
        store_in(pool, PAGE + mq_pool_slot_stride_bytes(SLOT_BYTES) * fuzz_below(SLOTS_MAX) + 8 * fuzz_one_in(4),
                 fuzz_edge(2 * SLOT_BYTES));
    }
}

/* ---- publishers ---- */

static void let_go(reader *r) {
    while (r->held) {
        r->held--;
        mq_pool_pin_clear(&r->pools[r->held], (uint32_t)r->slots[r->held], 5);
    }
}

/* The pool reuses the memory of the previous pool, after all readers have forgotten it. */
static void join(unsigned number) {
    mq_channel_publisher *p = &publishers[number];
    mq_channel_join_request request = {.self = &self,
                                       .node = node,
                                       .pool_uid = 1 + number,
                                       .slots = 2 + fuzz_below(SLOTS_MAX - 1),
                                       .slot_bytes = SLOT_BYTES,
                                       .max_bytes = MQ_POOL_BYTES_MAX,
                                       .replaces = !fuzz_one_in(4)};
    mq_pool_file pool;
    void *liveness_token;
    for (int i = 0; i < SUBSCRIBERS; i++) {
        let_go(&readers[i]);
        memset(readers[i].c.pools, 0, sizeof readers[i].c.pools);
    }
    mq_channel_publisher_free(p);
    memset(p, 0, sizeof *p);
    memory_files[1 + number].named = false;
    int failed = mq_channel_join(&files, &row_lock, &request, p, &liveness_token, &pool, &error);
    check(failed <= 0 && !failed == (p->published_slots != NULL), "an error with a publisher, or none without");
    check(failed || p->number < MQ_CHANNEL_PUBLISHERS, "a publisher's row that is none");
}

static void publish(mq_channel_publisher *p) {
    uint8_t message[SLOT_BYTES];
    uint64_t position, size = fuzz_below(SLOT_BYTES + 1);
    if (!p->published_slots)
        return;
    int slot = mq_channel_take_free_slot(p);
    check(slot >= MQ_CHANNEL_NO_SLOT && slot < (int)p->slots.slots, "a slot that is none");
    check(p->free_count + p->limbo_count + p->published_count + (slot != MQ_CHANNEL_NO_SLOT) == p->slots.slots,
          "a slot is lost, or twice there");
    if (slot == MQ_CHANNEL_NO_SLOT)
        return;
    memset(message, slot, size);
    mq_copy_to_shared(mq_channel_begin_slot_write(p, (uint32_t)slot), message, size);
    mq_channel_status status = mq_channel_publish(p, (uint32_t)slot, size, 0, &position);
    if (status == MQ_CHANNEL_CORRUPT)
        mq_channel_return_slot(p, (uint32_t)slot);
    else if (status == MQ_CHANNEL_NOTIFY)
        mq_eventcount_notify_mp(&header()->eventcount);
}

/* ---- subscribers ---- */

/* As _map_pool. */
static bool map_pool(reader *r, const mq_channel_message *m) {
    check(m->row < MQ_CHANNEL_PUBLISHERS, "a row that is none");
    if (m->pool_uid == 0 || m->pool_uid > PUBLISHERS || fuzz_one_in(16))
        return false;
    fuzz_memory *from = &pool_memory[m->pool_uid - 1];
    bool views = r == &readers[1];
    mq_pool_header *pool = (mq_pool_header *)(void *)(views ? from->writable : from->readable);
    return from->bytes && mq_pool_header_check(pool, from->bytes, 1, m->pool_uid, &r->c.pools[m->row]) == NULL;
}

/* Find the message at the cursor. Returns false if there is none. */
static bool look(reader *r, mq_channel_message *m) {
    for (int rounds = 0; rounds < 100; rounds++) { /* hostile entries may lead from pool to pool */
        mq_channel_status status = mq_channel_next_message(&r->c, m);
        if (status == MQ_CHANNEL_OK || status == MQ_CHANNEL_EMPTY)
            return status == MQ_CHANNEL_OK;
        if (status == MQ_CHANNEL_UNMAPPED && map_pool(r, m))
            continue;
        mq_channel_skip_message(&r->c, m);
        if (status == MQ_CHANNEL_CORRUPT)
            return false;
    }
    return false;
}

/* Receive as the recorder. */
static void record(reader *r) {
    mq_channel_source source = {.subscriber = r->c};
    mq_source_message taken = {.size = 0};
    uint64_t bytes = fuzz_below(2 * SLOT_BYTES);
    uint8_t *to = malloc(bytes + 1);
    mq_source_status status = mq_channel_source_take_message(
        &source, &(mq_source_buffer){.data = to, .bytes = bytes, .all_or_nothing = true}, &taken);
    check(status != MQ_SOURCE_OK || taken.size <= bytes, "a message beyond the room");
    check(status != MQ_SOURCE_FULL || taken.size > bytes, "no room, though there is");
    mq_channel_source_count_pending(&source);
    r->c = source.subscriber;
    free(to);
}

static void receive(reader *r) {
    mq_channel_message m;
    uint8_t copy[SLOT_BYTES];
    if (!r->joined) {
        memset(r, 0, sizeof *r);
        r->c.header = (const mq_channel_header *)(const void *)header_memory.readable;
        r->c.conflate = r == &readers[2];
        r->c.newest = fuzz_one_in(2);
        r->c.history = fuzz_one_in(2) ? fuzz_below(2 * CAPACITY_MOST) : fuzz_random();
        if (!(r->joined = mq_channel_subscriber_join(&r->c, true)))
            return;
        r->c.joined_at = 0;
    }
    uint64_t before = mq_channel_load_cursor(&r->c), lost = r->c.lost, received = r->c.received;
    if (fuzz_one_in(4)) {
        record(r);
    } else if (look(r, &m)) {
        check(m.length <= SLOT_BYTES || m.length <= r->c.pools[m.row].slot_bytes, "a length beyond the slot");
        if (r == &readers[1] && r->held < 4) {
            mq_pool_map pool = r->c.pools[m.row];
            if (mq_channel_pin_message(&r->c, &m, 5)) {
                r->pools[r->held] = pool;
                r->slots[r->held++] = m.number;
                mq_copy_from_shared(copy, mq_pool_slot_payload(m.slot), m.length < SLOT_BYTES ? m.length : SLOT_BYTES);
            }
        } else if (m.length <= SLOT_BYTES) {
            mq_copy_from_shared(copy, mq_pool_slot_payload(m.slot), m.length);
            mq_channel_accept_entry(&r->c, &m);
        }
    }
    uint64_t cursor = mq_channel_load_cursor(&r->c);
    check(cursor - before < 1ull << 63, "the cursor goes back");
    check(r->c.lost - lost + r->c.received - received == cursor - before, "the account is wrong");
    if (fuzz_one_in(4))
        let_go(r);
}

/* The other steps that need the channel's lock. */
static void under_lock(void) {
    mq_channel_subscriber_rows rows = {.viewer = MQ_NO_ROW};
    mq_channel_config nothing = {0}, defaults = mq_channel_default_config(capacity);
    uint64_t living = mq_channel_find_living_publishers(&files, &row_lock);
    int left = mq_channel_remove_dead_pools(&files, living, (int)fuzz_below(3), &error);
    check(left >= 0 && left <= MQ_CHANNEL_PUBLISHERS, "a number of pools that is none");
    mq_channel_register_subscriber(&files, &row_lock, &self, 1, node, &rows, &error);
    mq_channel_register_viewer(&files, &row_lock, &self, 2, &rows, &error);
    check(rows.viewer >= MQ_NO_ROW && rows.viewer < MQ_CHANNEL_VIEWERS, "a viewer's row that is none");
    mq_channel_leave_rows(&rows);
    mq_channel_configure(header(), liveness_file.path, &nothing, &defaults, &error);
}

static void call(void) {
    mq_u64 *cursor;
    switch (fuzz_below(12)) {
    case 0:
        fuzz_op = "join";
        join((unsigned)fuzz_below(PUBLISHERS));
        break;
    case 1:
        fuzz_op = "under the lock";
        under_lock();
        break;
    case 2:
        fuzz_op = "has more";
        cursor = &readers[fuzz_below(SUBSCRIBERS)].c.cursor;
        mq_channel_subscriber_is_readable(
            &(mq_channel_poll_state){(const mq_channel_header *)(const void *)header_memory.readable, cursor, NULL});
        break;
    case 3:
    case 4:
    case 5:
    case 6:
        fuzz_op = "publish";
        publish(&publishers[fuzz_below(PUBLISHERS)]);
        break;
    case 7: readers[fuzz_below(SUBSCRIBERS)].joined &= !fuzz_one_in(4); break;
    default: fuzz_op = "receive"; receive(&readers[fuzz_below(SUBSCRIBERS)]);
    }
}

static void run_case(void) {
    static const uint64_t rates[] = {0, 8, 64, 512};
    fuzz_use(&header_memory, sizeof(mq_channel_header));
    memset(readers, 0, sizeof readers);
    memset(publishers, 0, sizeof publishers);
    memset(memory_files, 0, sizeof memory_files);
    capacity = 2ull << fuzz_below(6);
    files.header = header();
    mq_channel_header_init(header(), MQ_CHANNEL_PUBSUB, 0, 7, node);
    if (fuzz_one_in(4)) /* the hostile program sets the configuration */
        scribble();
    mq_channel_store_config(
        header(), (mq_channel_config){.capacity = capacity, .publishers = 63, .subscribers = 255, .stamps = 1});
    for (unsigned i = 0; i < PUBLISHERS; i++)
        join(i);
    fuzz_calls(OPS, call, rates);
    for (unsigned i = 0; i < PUBLISHERS; i++)
        mq_channel_publisher_free(&publishers[i]);
}

int main(int argc, char **argv) {
    fuzz_map(&header_memory, (sizeof(mq_channel_header) + PAGE - 1) & ~(size_t)(PAGE - 1));
    for (int i = 0; i < PUBLISHERS; i++)
        fuzz_map(&pool_memory[i],
                 mq_pool_header_bytes(SLOTS_MAX, PAGE) +
                     ((SLOTS_MAX * mq_pool_slot_stride_bytes(SLOT_BYTES) + PAGE - 1) & ~(size_t)(PAGE - 1)));
    fuzz_scribble = scribble;
    return fuzz_main(argc, argv, run_case, OPS);
}
