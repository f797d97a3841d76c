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
 * model fences; there, the words of the messages count, and the model (tools/model).
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

#include "channel/header.h"
#include "channel/subscriber.h"

enum { PUBLISHERS = 2, SUBSCRIBERS = 3, CAPACITY = 16, WORDS = 64, HELD_MAX = 2, POOLS_MAX = 4096 };

static mq_channel_header *header;
static mq_liveness_file liveness_file;
static mq_process_identity self;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of the channel file */
static mq_pool_map pools[POOLS_MAX];                     /* by uid */
static uint32_t pools_made;
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

/* As remove_dead_pools of channelfile.pxi: pools of the dead that nobody can reach. */
static void remove_dead_pools(const mq_index_ring *order) {
    mq_liveness_probe probe = mq_liveness_probe_begin(&liveness_file);
    for (int i = 0; i < MQ_CHANNEL_PUBLISHERS; i++) {
        uint64_t newest, uid = mq_load_acquire_u64(&header->publishers[i].pool_uid);
        if (uid && mq_channel_publisher_liveness(header, &probe, i) == MQ_DEAD &&
            (!mq_channel_count_row_entries(order, (unsigned)i, &newest) || i % 2)) {
            mq_channel_retract_row_entries(order, (unsigned)i);
            mq_channel_release_row(&header->publishers[i]);
        }
    }
    mq_liveness_probe_end(&probe);
}

/* As register_publisher. False: so many were there that it is enough. */
static bool join(mq_channel_publisher *p, void **liveness_token, uint32_t slots) {
    char node[MQ_NODE_NAME_BYTES] = "stress";
    memset(p, 0, sizeof *p);
    p->header = header;
    p->liveness_file = &liveness_file;
    mq_channel_load_index_ring(header, &p->order);
    pthread_mutex_lock(&lock);
    remove_dead_pools(&p->order);
    int row = mq_channel_find_free_row(header, &liveness_file, liveness_token);
    if (row != MQ_NO_ROW && pools_made + 1 < POOLS_MAX) {
        uint64_t uid = ++pools_made;
        size_t bytes = mq_pool_header_bytes(slots, 4096) + slots * mq_pool_slot_stride_bytes(8 * WORDS);
        mq_pool_header *pool = aligned_alloc(4096, (bytes + 4095) & ~(size_t)4095);
        memset((void *)pool, 0, bytes);
        mq_pool_header_init(pool, bytes, slots, 8 * WORDS, 4096, 1, uid, 1, node);
        if (mq_pool_header_check(pool, bytes, 1, uid, &pools[uid]))
            wrong("its own pool", uid, 0);
        p->slots = pools[uid];
        p->row = &header->publishers[row];
        p->number = (unsigned)row;
        mq_channel_publisher_init(p, false);
        mq_channel_publisher_register(p->row, &self, *liveness_token != NULL, &p->slots, bytes, 0, node);
    }
    pthread_mutex_unlock(&lock);
    joined++;
    return p->row;
}

static void leave(mq_channel_publisher *p, void **liveness_token, bool dies) {
    evicted += p->evicted;
    if (dies) { /* as the kernel does it */
        mq_liveness_unlock(*liveness_token);
        *liveness_token = NULL;
    } else {
        mq_participant_leave(&p->row->participant, p->slots.uid, liveness_token);
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
    void *row_token, *views;
    uint64_t row_uid, begun, last[PUBLISHERS], held;
    int viewer;
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
        mq_pool_pin_clear(&r->kept[r->held].pool, r->kept[r->held].slot, (unsigned)r->viewer);
    }
}

static void view_one(reader *r, const mq_channel_message *m) {
    if (!mq_channel_pin_message(&r->c, m, (unsigned)r->viewer)) {
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

/* As SubscriberRows.join and become_viewer. */
static void come(reader *r, bool views, uint64_t history) {
    static uint64_t uids;
    memset(r, 0, sizeof *r);
    char node[MQ_NODE_NAME_BYTES] = "stress";
    r->viewer = MQ_NO_ROW;
    pthread_mutex_lock(&lock);
    mq_row_table row_table = mq_channel_subscriber_row_table(header, MQ_CHANNEL_SUBSCRIBERS);
    r->c.row = &header->subscribers[mq_row_table_reserve(&row_table, &liveness_file, &r->row_token)];
    r->row_uid = ++uids;
    mq_channel_subscriber_register(r->c.row, &self, r->row_uid, r->row_token != NULL, node);
    for (int row = 0; views && (row = mq_channel_find_free_viewer(header, &liveness_file, row)) != MQ_NO_ROW; row++) {
        for (int i = 0; mq_channel_viewer_row_is_stale(header, row) && i < MQ_CHANNEL_PUBLISHERS; i++)
            if (mq_load_acquire_u64(&header->publishers[i].pool_uid))
                mq_channel_clear_dead_viewer_pins(&pools[mq_load_acquire_u64(&header->publishers[i].pool_uid)], row);
        if (!(r->views = mq_liveness_lock(&liveness_file, MQ_CHANNEL_VIEWER_BYTE + (uint64_t)row, false)))
            continue;
        mq_participant_write(&header->viewers[row].participant, &self, r->row_uid, r->views != NULL);
        r->viewer = row;
        break;
    }
    pthread_mutex_unlock(&lock);
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
        mq_liveness_unlock(r->row_token);
        mq_liveness_unlock(r->views);
        died++;
        return;
    }
    let_go(r);
    mq_participant_leave(&r->c.row->participant, r->row_uid, &r->row_token);
    if (r->viewer >= 0)
        mq_participant_leave(&header->viewers[r->viewer].participant, r->row_uid, &r->views);
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
            if (r.viewer < 0)
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
    header = aligned_alloc(64, sizeof *header);
    memset((void *)header, 0, sizeof *header);
    struct stat found;
    liveness_file.fd = memfd_create("channel", MFD_CLOEXEC);
    if (liveness_file.fd < 0 || ftruncate(liveness_file.fd, 4096) || fstat(liveness_file.fd, &found) ||
        mq_read_process_identity(&self))
        wrong("no file", 0, 0);
    liveness_file.device = found.st_dev;
    liveness_file.inode = found.st_ino;
    mq_channel_header_init(header, MQ_CHANNEL_PUBSUB, 0, 1, "stress");
    mq_channel_store_config(header, (mq_channel_config){.capacity = CAPACITY, .publishers = MQ_CHANNEL_PUBLISHERS});
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
        free(pools[uid].pool_header);
    free(header);
    return 0;
}
