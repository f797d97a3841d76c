/* A channel under stress in one process: publishers that come, die, and leave; subscribers that copy, look, and come and
 * go. Usage: channel SECONDS SEED. Prints what was done; ends with 1 and a text when something was wrong.
 *
 * What: every word of a message is its publisher and its number. Copies are checked after they were accepted, views when
 * they are taken and before they are let go. Numbers of a publisher go up, and what is received, lost, and passed agree.
 * Why: slots are plain memory that is written again and again; only entries and pins say when.
 * Failure would mean: a torn copy passed, a view changed, or a message was counted twice or not at all.
 *
 * What the thread sanitizer can say here: whether EDGE order and EDGE unpin order the plain accesses of views before and
 * after those of the publisher. What it cannot say: whether EDGE slot and EDGE pin are strong enough, as it does not
 * model fences; there, the words of the messages count, and the orders that tests/headers and tests/meta check.
 */
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/liveness_lock.h"

/* What a dead process did is over before anybody learns of its death. The kernel sees to that, unseen by sanitizers. */
static _Atomic uint64_t deaths;
#define mq_owner_liveness(...)                                                                                         \
    ({                                                                                                                 \
        mq_liveness life_ = mq_owner_liveness(__VA_ARGS__);                                                            \
        (void)atomic_load(&deaths);                                                                                    \
        life_;                                                                                                         \
    })

enum { PUBLISHERS = 2, SUBSCRIBERS = 3, CAPACITY = 16, WORDS = 64, HELD_MAX = 2, MEMORY_FILES_MAX = 4096 };

/* The memory stays after the removal of the file, because a subscriber may still read. */
static void *new_file_memory(uint64_t uid, uint64_t bytes) {
    (void)uid;
    void *memory = aligned_alloc(4096, (bytes + 4095) & ~(size_t)4095);
    return memset(memory, 0, bytes);
}

#include "../../tools/fuzz/memory_files.h"

#include "channel/join.h"

static mq_channel_header *header;
static mq_liveness_file liveness_file;
static mq_process_identity self;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of the channel file */
static mq_pool_map pools[MEMORY_FILES_MAX + 1];          /* by uid */
static uint32_t pools_made;
static mq_channel_files files = {
    .policy = &memory_file_policy, .pool_prefix = MEMORY_FILE_PREFIX, .liveness_file = &liveness_file};
static _Atomic bool stop;
static _Atomic uint64_t published, refused, evicted, joined, copied, viewed, missed, lapped, died, left;
static unsigned seed;

static void wrong(const char *what, uint64_t a, uint64_t b) {
    fprintf(stderr, "channel: %s: %llu, %llu (seed %u)\n", what, (unsigned long long)a, (unsigned long long)b, seed);
    _exit(1);
}

static uint32_t below(uint64_t *state, uint32_t n) {
    *state = *state * 6364136223846793005ull + 1442695040888963407ull;
    return (uint32_t)(*state >> 33) % n;
}

/* ---- publishers ---- */

static void succeed(int result, const mq_error *error) {
    if (result < 0)
        wrong(error->text, (uint64_t)-result, 0);
}

/* Join. Every other join also removes pools of the dead whose messages nobody has read. Returns false after the maximum
 * number of pools. */
static bool join(mq_channel_publisher *p, void **liveness_token, uint32_t slots) {
    mq_file_lock row_lock = {.file = liveness_file, .fd = -1};
    mq_error error;
    mq_pool_file pool;
    pthread_mutex_lock(&lock);
    bool enough = pools_made == MEMORY_FILES_MAX;
    if (!enough) {
        mq_channel_join_request request = {.self = &self,
                                           .node = "stress",
                                           .pool_uid = ++pools_made,
                                           .slots = slots,
                                           .slot_bytes = 8 * WORDS,
                                           .max_bytes = MQ_POOL_BYTES_MAX};
        if (pools_made % 2)
            succeed(
                mq_channel_remove_dead_pools(&files, mq_channel_find_living_publishers(&files, &row_lock), 0, &error),
                &error);
        succeed(mq_channel_join(&files, &row_lock, &request, p, liveness_token, &pool, &error), &error);
        pools[p->slots.uid] = p->slots;
    }
    pthread_mutex_unlock(&lock);
    joined++;
    return !enough;
}

static void leave(mq_channel_publisher *p, void **liveness_token, bool dies) {
    evicted += p->evicted;
    if (dies) { /* as the kernel does it */
        mq_liveness_unlock(*liveness_token);
        *liveness_token = NULL;
    } else {
        mq_channel_leave(p, liveness_token);
    }
    mq_channel_publisher_free(p);
}

static void send_one(mq_channel_publisher *p, uint64_t word, uint32_t words) {
    uint64_t message[WORDS], position;
    int slot = mq_channel_take_free_slot(p);
    if (slot == MQ_CHANNEL_NO_SLOT && mq_channel_clear_dead_pins(p))
        slot = mq_channel_take_free_slot(p);
    if (slot == MQ_CHANNEL_NO_SLOT) {
        refused++;
        sched_yield();
        return;
    }
    for (uint32_t i = 0; i < words; i++)
        message[i] = word;
    mq_copy_to_shared(mq_channel_begin_slot_write(p, (uint32_t)slot), message, 8 * words);
    mq_channel_status status = mq_channel_publish(p, (uint32_t)slot, 8 * words, word, &position);
    if (status == MQ_CHANNEL_CORRUPT)
        wrong("the order makes no sense", word, position);
    if (status == MQ_CHANNEL_NOTIFY)
        mq_eventcount_notify_mp(&header->eventcount);
    published++;
}

static void *run_publisher(void *argument) {
    uint64_t number = 0, me = (uint64_t)(uintptr_t)argument, chance = seed + me;
    mq_channel_publisher p;
    void *liveness_token = NULL;
    while (!stop && join(&p, &liveness_token, me ? CAPACITY + 2 : 4)) {
        for (uint32_t left_to_do = 1 + below(&chance, 40000); left_to_do && !stop; left_to_do--)
            send_one(&p, me << 48 | ++number, 1 + below(&chance, WORDS));
        leave(&p, &liveness_token, below(&chance, 2));
    }
    return NULL;
}

/* ---- subscribers ---- */

typedef struct {
    mq_channel_subscriber c;
    mq_channel_subscriber_rows rows;
    uint64_t begun, last[PUBLISHERS], held;
    struct {
        mq_pool_map pool;
        uint32_t slot;
        uint64_t words, word;
    } kept[HELD_MAX];
} reader;

static void verify(const uint64_t *words, uint64_t count, uint64_t word) {
    for (uint64_t i = 0; i < count; i++)
        if (words[i] != word)
            wrong("a message is another one's in part", words[i], word);
    mq_fence_compiler(); /* look again the next time */
}

/* Each publisher's numbers go up, and each position is received, or lost. */
static void account(reader *r, const mq_channel_message *m, uint64_t word) {
    if (m->length == 0 || m->length > 8 * WORDS || m->length % 8 || m->origin_time != word || word >> 48 >= PUBLISHERS)
        wrong("length or origin", m->length, m->origin_time);
    if (word <= r->last[word >> 48])
        wrong("a message came again", word, r->last[word >> 48]);
    r->last[word >> 48] = word;
    if (r->c.received + r->c.lost != mq_channel_load_cursor(&r->c) - r->begun)
        wrong("the account", r->c.received + r->c.lost, mq_channel_load_cursor(&r->c) - r->begun);
}

/* Has the message at hand; false: nothing is there. */
static bool look(reader *r, mq_channel_message *m) {
    for (;;) {
        mq_channel_status status = mq_channel_next_message(&r->c, m);
        if (status == MQ_CHANNEL_CORRUPT)
            wrong("no message at", m->position, m->entry);
        if (status != MQ_CHANNEL_UNMAPPED)
            return status == MQ_CHANNEL_OK;
        r->c.pools[m->row] = pools[m->pool_uid];
    }
}

static void copy_one(reader *r, const mq_channel_message *m) {
    uint64_t copy[WORDS];
    mq_copy_from_shared(copy, mq_pool_slot_payload(m->slot), m->length);
    if (!mq_channel_accept_entry(&r->c, m)) {
        missed++;
        return;
    }
    account(r, m, copy[0]);
    verify(copy, m->length / 8, copy[0]);
    copied++;
}

static void let_go(reader *r) {
    while (r->held) {
        r->held--;
        mq_pool_slot *slot = mq_pool_slot_at(&r->kept[r->held].pool, r->kept[r->held].slot);
        verify((const uint64_t *)(void *)mq_pool_slot_payload(slot), r->kept[r->held].words, r->kept[r->held].word);
        mq_pool_pin_clear(&r->kept[r->held].pool, r->kept[r->held].slot, (unsigned)r->rows.viewer);
    }
}

static void view_one(reader *r, const mq_channel_message *m) {
    if (!mq_channel_pin_message(&r->c, m, (unsigned)r->rows.viewer)) {
        missed++;
        return;
    }
    const uint64_t *words = (const uint64_t *)(void *)mq_pool_slot_payload(m->slot);
    account(r, m, words[0]);
    verify(words, m->length / 8, words[0]);
    r->kept[r->held].pool = r->c.pools[m->row];
    r->kept[r->held].slot = m->number;
    r->kept[r->held].words = m->length / 8;
    r->kept[r->held++].word = words[0];
    viewed++;
}

static void come(reader *r, bool views, uint64_t history) {
    static uint64_t uids;
    mq_file_lock row_lock = {.file = liveness_file, .fd = -1};
    mq_error error;
    memset(r, 0, sizeof *r);
    pthread_mutex_lock(&lock);
    succeed(mq_channel_register_subscriber(&files, &row_lock, &self, ++uids, "stress", &r->rows, &error), &error);
    if (views)
        succeed(mq_channel_register_viewer(&files, &row_lock, &self, ++uids, &r->rows, &error), &error);
    pthread_mutex_unlock(&lock);
    r->c.row = r->rows.row;
    r->c.header = header;
    r->c.history = history;
    mq_channel_subscriber_join(&r->c, true);
    r->c.joined_at = 0; /* all that is gone is counted here */
    r->begun = mq_channel_load_cursor(&r->c);
}

static void go(reader *r, bool dies) {
    lapped += r->c.resets;
    if (dies) { /* with what it holds */
        deaths++;
        mq_liveness_unlock(r->rows.row_token);
        mq_liveness_unlock(r->rows.viewer_token);
        died++;
        return;
    }
    let_go(r);
    mq_channel_leave_rows(&r->rows);
    left++;
}

/* 0 copies, 1 looks, 2 does either, and comes and goes. */
static void *run_subscriber(void *argument) {
    uint64_t me = (uint64_t)(uintptr_t)argument, chance = seed * 31 + me;
    reader r;
    while (!stop) {
        bool views = me == 1 || (me == 2 && below(&chance, 2));
        come(&r, views, me == 2 ? below(&chance, 2 * CAPACITY) : 0);
        uint32_t rounds = me == 2 ? 1 + below(&chance, 200) : 1 + below(&chance, 20000);
        for (mq_channel_message m; rounds && !stop; rounds--) {
            if (!look(&r, &m)) {
                mq_eventcount_prepare_wait_mp(&header->eventcount); /* and does not sleep */
                sched_yield();
                continue;
            }
            if (r.rows.viewer == MQ_NO_ROW)
                copy_one(&r, &m);
            else
                view_one(&r, &m);
            if (below(&chance, 256) == 0)
                usleep(below(&chance, 50));
            if (r.held == HELD_MAX || below(&chance, 2))
                let_go(&r);
        }
        go(&r, views && below(&chance, 2));
    }
    return NULL;
}

int main(int argc, char **argv) {
    pthread_t threads[PUBLISHERS + SUBSCRIBERS];
    if (argc != 3)
        return fprintf(stderr, "usage: channel SECONDS SEED\n"), 2;
    seed = (unsigned)strtoul(argv[2], NULL, 10);
    header = files.header = aligned_alloc(64, sizeof *header);
    memset((void *)header, 0, sizeof *header);
    struct stat found;
    liveness_file.fd = memfd_create("channel", MFD_CLOEXEC);
    if (liveness_file.fd < 0 || ftruncate(liveness_file.fd, 4096) || fstat(liveness_file.fd, &found) ||
        mq_read_process_identity(&self))
        wrong("no file", 0, 0);
    liveness_file.device = found.st_dev;
    liveness_file.inode = found.st_ino;
    mq_channel_header_init(header, MQ_CHANNEL_PUBSUB, 0, 1, "stress");
    mq_channel_store_config(
        header,
        (mq_channel_config){.capacity = CAPACITY, .publishers = MQ_CHANNEL_PUBLISHERS, .stamps = MQ_CHANNEL_UNSTAMPED});
    for (uintptr_t i = 0; i < PUBLISHERS + SUBSCRIBERS; i++)
        pthread_create(&threads[i], NULL, i < PUBLISHERS ? run_publisher : run_subscriber,
                       (void *)(i < PUBLISHERS ? i : i - PUBLISHERS));
    usleep((useconds_t)(atof(argv[1]) * 1e6));
    stop = true;
    for (int i = 0; i < PUBLISHERS + SUBSCRIBERS; i++)
        pthread_join(threads[i], NULL);
    if (mq_load_acquire_u64(&header->tail) != CAPACITY + published)
        wrong("the tail", mq_load_acquire_u64(&header->tail), CAPACITY + published);
    printf("published %llu refused %llu evicted %llu joined %llu copied %llu viewed %llu missed %llu lapped %llu "
           "died %llu left %llu\n",
           (unsigned long long)published, (unsigned long long)refused, (unsigned long long)evicted,
           (unsigned long long)joined, (unsigned long long)copied, (unsigned long long)viewed,
           (unsigned long long)missed, (unsigned long long)lapped, (unsigned long long)died, (unsigned long long)left);
    for (uint32_t uid = 1; uid <= pools_made; uid++)
        free(memory_files[uid].memory);
    free(header);
    return 0;
}
