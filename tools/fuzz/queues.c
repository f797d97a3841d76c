/* Fuzzes a work queue: senders, consumers, observers, joins and recovery. A hostile program rewrites words of the file
 * before and during each call. For the usage, see driver.c. The program checks that:
 *
 * - no call accesses bytes outside of the file, or returns an invalid slot or length;
 * - every call ends;
 * - without hostile stores, a sent message is received.
 */
#include <sys/file.h>

#define FUZZ_STEPS_MAX 1000000
#include "hostile.h"

/* The code of topics never uses these loads. */
#define mq_load_seq_cst_u64(word) (fuzz_before_load(), mq_load_seq_cst_u64(word))
#define mq_fetch_or_u64(word, bits) (fuzz_before_load(), mq_fetch_or_u64(word, bits))
#define mq_fetch_and_u64(word, bits) (fuzz_before_load(), mq_fetch_and_u64(word, bits))
#define mq_fetch_add_u64(word, n) (fuzz_before_load(), mq_fetch_add_u64(word, n))

static int fuzz_flock(int fd, int operation) { return fd < 0 || !operation ? -1 : fuzz_answer(); }
#define flock(fd, operation) fuzz_flock(fd, operation)

/* The seed also determines the clock. */
static uint64_t fuzz_now_ns;
static int fuzz_clock(clockid_t clock, struct timespec *t) {
    fuzz_now_ns += fuzz_one_in(4) ? fuzz_below(3000000000ull) : fuzz_below(1000);
    *t = (struct timespec){(time_t)(fuzz_now_ns / 1000000000), (long)(fuzz_now_ns % 1000000000)};
    return clock < 0 ? -1 : 0;
}
#define clock_gettime(clock, t) fuzz_clock(clock, t)

#include "base/file_lock.h"
#include "workqueue/join.h"
#include "workqueue/poll_state.h"

enum { OPS = 200, HANDLES = 3, JOBS = 4, MOST = 200, SIZE_MOST = 200, PAGE = 4096 };

static fuzz_memory memory;
static mq_queue_file_parts parts; /* parts of the new file */
static mq_liveness_file liveness_file = {.path = "/dev/shm/msgqjobs_fuzz", .inode = 1};
static mq_process_identity self = {.pid = 7, .name = "fuzz"};
static bool contended; /* the hostile stores only change words for which a receiver repeats its scan */

typedef struct {
    mq_queue_handle h;
    mq_queue_block_cache blocks[(MOST + MQ_QUEUE_BLOCK_SLOTS - 1) / MQ_QUEUE_BLOCK_SLOTS];
    mq_queue_taken_message jobs[JOBS];
    mq_queue_poll_state state;
    mq_queue_notification notification;
    void *liveness_token;
    uint64_t uid, held;
    bool joined;
} member;
static member members[HANDLES];

static mq_queue *queue(void) { return (mq_queue *)(void *)memory.writable; }

/* ---- the stranger ---- */

static uint64_t hostile_word(void) {
    unsigned row = fuzz_one_in(4) ? (unsigned)fuzz_below(256) : (unsigned)fuzz_below(HANDLES + 1);
    uint16_t generation = (uint16_t)(fuzz_one_in(4) ? fuzz_random() : fuzz_below(4));
    switch (fuzz_below(6)) {
    case 0: return 0;
    case 1: return mq_slot_state_encode_filling(row, generation);
    case 2: return mq_slot_state_encode_taken(row, generation, (uint32_t)fuzz_below(8));
    case 3: return fuzz_edge(64);
    default: return mq_slot_state_encode_ready(fuzz_below(4), fuzz_below(64));
    }
}

static void store(void *at, uint64_t value) { __atomic_store_n((uint64_t *)at, value, __ATOMIC_RELAXED); }

static void contend(void) {
    static uint64_t order;
    store(&queue()->ready_count, fuzz_random());
    store(&parts.slot_states[fuzz_below(parts.max_messages)],
          mq_slot_state_encode_ready(MQ_QUEUE_PRIORITY_MAX, 0 - ++order));
}

static void scribble(void) {
    uint64_t slot = fuzz_below(parts.max_messages), block = fuzz_below(parts.block_count);
    mq_queue_row *row = &queue()->rows[fuzz_below(HANDLES + 1)];
    if (contended) {
        contend();
        return;
    }
    switch (fuzz_below(12)) {
    case 0:
    case 1:
    case 2:
    case 3: store(&parts.slot_states[slot], hostile_word()); break;
    case 4: store(&parts.slot_headers[slot].length, fuzz_edge(2 * SIZE_MOST)); break;
    case 5:
        store(&parts.slot_headers[slot].lease, fuzz_one_in(2) ? fuzz_random() : fuzz_below(64) << 32 | fuzz_below(4));
        break;
    case 6: store((uint64_t *)(void *)&parts.slot_headers[slot] + fuzz_below(8), hostile_word()); break;
    case 7: store(&parts.fill_counts[block], fuzz_one_in(2) ? fuzz_below(64) : fuzz_random()); break;
    case 8: store((uint64_t *)(void *)row + fuzz_below(sizeof *row / 8), fuzz_edge(8)); break;
    case 9: store((uint64_t *)(void *)&queue()->ready_count + fuzz_below(32), fuzz_edge(64)); break;
    case 10: store(&queue()->ready_count, fuzz_edge(64)); break;
    default: store(memory.writable + 8 * fuzz_below(memory.bytes / 8), fuzz_edge(64));
    }
}

/* ---- join and leave ---- */

static void leave(member *m) {
    if (m->joined)
        mq_queue_leave(&m->h, m->uid, &m->liveness_token);
    m->joined = false;
    m->held = 0;
}

static void join(member *m) {
    static uint64_t uids;
    mq_file_lock lock;
    mq_error error;
    leave(m);
    memset(m, 0, sizeof *m);
    m->h.parts = parts;
    m->h.liveness_file = &liveness_file;
    m->h.block_caches = m->blocks;
    if (!mq_file_lock_open(&lock, &liveness_file))
        return;
    while (mq_file_lock_try(&lock) != 0)
        ;
    m->joined = mq_queue_join(&m->h, &lock, &self, m->uid = ++uids, &m->liveness_token, &error) == 0;
    mq_file_lock_close(&lock);
    if (!m->joined)
        return;
    check(m->h.row_number < MQ_QUEUE_ROWS && m->h.next_search_slot < parts.max_messages, "a row that is none");
    m->h.next_search_slot = fuzz_below(parts.max_messages);
    m->state.h = m->notification.h = m->h;
    mq_queue_recover(&m->h, mq_monotonic_ns());
}

/* Check a file with hostile sizes, as in an open. */
static void open_file(void) {
    mq_queue_file_parts found;
    mq_error error;
    uint64_t bytes = fuzz_one_in(2) ? memory.bytes : fuzz_below(memory.bytes);
    if (fuzz_one_in(2))
        store(&queue()->max_messages, fuzz_edge(2 * MOST));
    if (fuzz_one_in(2))
        store(&queue()->max_message_size, fuzz_edge(2 * SIZE_MOST));
    if (mq_queue_check_file(queue(), bytes, liveness_file.path, &found, &error) == 0) {
        check(found.payloads + found.max_messages * found.stride <= memory.writable + bytes, "slots beyond the file");
        check(found.max_message_size <= found.stride &&
                  (uint8_t *)(found.slot_headers + found.max_messages) <= found.payloads &&
                  (uint8_t *)(found.slot_states + found.max_messages) <= (uint8_t *)found.slot_headers,
              "parts that overlap");
        mq_queue_has_ready_message(&found);
        mq_queue_has_free_slot(&found);
    }
}

/* ---- messages ---- */

static bool send(member *m, uint64_t token) {
    uint8_t message[SIZE_MOST];
    uint64_t size = fuzz_below(parts.max_message_size + 1);
    int64_t slot = mq_queue_claim_free_slot(&m->h, MQ_NO_TICKET);
    check(slot >= MQ_QUEUE_NO_SLOT && slot < (int64_t)parts.max_messages, "a slot that is none");
    if (slot == MQ_QUEUE_NO_SLOT)
        return false;
    memset(message, 1, size);
    mq_copy_to_shared(mq_queue_get_slot_payload(&m->h, (uint64_t)slot), message, size);
    if (!token && fuzz_one_in(8)) {
        mq_queue_release_unsent_slot(&m->h, (uint64_t)slot);
        return false;
    }
    mq_queue_commit_message(&m->h, (uint64_t)slot, size, fuzz_below(4), 1, token);
    mq_queue_wake_receivers(queue(), 1);
    return true;
}

/* As QueueHandle._try_take_message. Returns false without a message, and for an invalid message. */
static bool take(member *m, mq_queue_taken_message *delivery, bool *any) {
    mq_queue_status status = mq_queue_take_message(&m->h, MQ_NO_TICKET, delivery);
    *any = status != MQ_QUEUE_EMPTY;
    if (status == MQ_QUEUE_CORRUPT && delivery->word)
        mq_queue_free_taken_slot(&m->h, delivery);
    if (status != MQ_QUEUE_OK)
        return false;
    check(delivery->slot < parts.max_messages, "a slot that is none");
    check(delivery->length <= parts.max_message_size, "a length beyond the slot");
    return true;
}

static uint64_t receive(member *m, bool *any) {
    mq_queue_taken_message delivery;
    if (!take(m, &delivery, any))
        return 0;
    uint8_t *copy = malloc(delivery.length + 1); /* of the exact size, so that the sanitizer detects a longer copy */
    mq_copy_from_shared(copy, mq_queue_get_slot_payload(&m->h, delivery.slot), delivery.length);
    free(copy);
    return mq_queue_free_taken_slot(&m->h, &delivery) ? delivery.origin_time : 0;
}

static void work(member *m) {
    bool any;
    if (m->held < JOBS && take(m, &m->jobs[m->held], &any)) {
        if (fuzz_one_in(2))
            mq_queue_set_job_lease(&m->h, &m->jobs[m->held], (uint32_t)fuzz_edge(64));
        m->held++;
    } else if (m->held) {
        m->held--;
        if (fuzz_one_in(2))
            mq_queue_free_taken_slot(&m->h, &m->jobs[m->held]);
        else
            mq_queue_requeue_message(&m->h, m->jobs[m->held].slot, m->jobs[m->held].word);
    }
}

/* All steps of a waiting call except the sleep. Earlier wakes of the call had no result. */
static void lie_down(member *m, mq_queue_role role) {
    mq_queue_waiting_call call = mq_queue_wait_begin(&m->h, role, fuzz_one_in(2));
    call.overtaken = (uint32_t)fuzz_below(4);
    mq_queue_wait_prepare_sleep(&m->h, &call, call.ticket);
    mq_queue_wait_is_over(&m->h, &call);
    mq_queue_wait_limit_sleep_ns(&m->h, &call, MQ_QUEUE_RECOVER_NS);
    mq_queue_finish_sleep(&m->h, role);
    if (fuzz_one_in(2))
        mq_queue_wait_end(&m->h, &call);
}

/* All steps except the sleep: of a waiting call, of a poll, or of a notification. */
static void rest(member *m) {
    mq_queue_role role = fuzz_one_in(2) ? MQ_QUEUE_RECEIVER : MQ_QUEUE_SENDER;
    switch (fuzz_below(4)) {
    case 0: lie_down(m, role); break;
    case 1:
        mq_queue_poll_prepare_wait(&m->state, mq_queue_get_eventcount(&m->h, MQ_QUEUE_WATCHER));
        mq_queue_poll_has_more(&m->state);
        mq_queue_poll_end_wait(&m->state);
        break;
    case 2:
        mq_queue_set_row_bit(&queue()->notify_requested, m->h.row_number);
        mq_queue_notification_has_more(&m->notification);
        mq_queue_notification_consume(&m->notification);
        break;
    default: mq_queue_forward_wake_and_notify(&m->h); mq_queue_forward_sender_wake(&m->h);
    }
}

/* One call while words change before each load. */
static void check_termination(member *m) {
    uint64_t rate = fuzz_rate;
    bool any;
    if (parts.max_messages > 16)
        return;
    contended = true;
    fuzz_rate = 1;
    receive(m, &any);
    contended = false;
    fuzz_rate = rate;
}

static void call(void) {
    member *m = &members[fuzz_below(HANDLES)];
    bool any;
    uint64_t what = m->joined ? fuzz_below(20) : 0;
    switch (what) {
    case 0:
        fuzz_op = "join";
        join(m);
        break;
    case 1:
        fuzz_op = "leave";
        leave(m);
        break;
    case 2:
        fuzz_op = "open";
        open_file();
        break;
    case 3:
        fuzz_op = "look";
        mq_queue_recover(&m->h, mq_monotonic_ns());
        break;
    case 4:
    case 5:
        fuzz_op = "rest";
        rest(m);
        break;
    case 6:
    case 7:
    case 8:
        fuzz_op = "take";
        work(m);
        break;
    case 9:
        fuzz_op = "forget";
        mq_queue_invalidate_all_caches(&m->h);
        break;
    case 10:
    case 11:
    case 12:
    case 13:
    case 14:
        fuzz_op = "send";
        send(m, 0);
        break;
    default: fuzz_op = "receive"; receive(m, &any);
    }
}

/* As after MQ_QUEUE_HANDOFF_NS: the next successful call of this handle ends the handoff. */
static void outwait_turns(member *m) {
    for (unsigned role = 0; role < MQ_QUEUE_ROLES; role++)
        m->h.yields[role] = (mq_queue_handoff_yield){.ticket = mq_load_relaxed_u64(&queue()->handoff_ticket[role])};
}

/* Without hostile stores, a sent message must be received, unless the queue is full. */
static void check_delivers(member *m) {
    const uint64_t token = 0x5ca1ab1e;
    bool any = true, found = false;
    fuzz_op = "the sound message";
    fuzz_steps = 0;
    mq_queue_invalidate_all_caches(&m->h); /* as in each recovery */
    outwait_turns(m);
    if (!send(m, token))
        return;
    for (uint64_t i = 0; i <= parts.max_messages && any && !found; i++)
        found = receive(m, &any) == token;
    check(found, "a sound message does not come");
}

static void run_case(void) {
    static const uint64_t rates[] = {0, 4, 64, 512};
    uint64_t messages = 1 + fuzz_below(fuzz_one_in(2) ? 16 : MOST), size = 1 + fuzz_below(SIZE_MOST);
    mq_error error;
    fuzz_use(&memory, mq_queue_compute_file_bytes(messages, size));
    memset(members, 0, sizeof members);
    mq_queue_write_file_header(queue(), messages, size, 1, &self, MQ_QUEUE_EVENTS_NONE);
    check(mq_queue_check_sized_file(queue(), memory.bytes, liveness_file.path, &parts, &error) == 0, "its own queue");
    for (int i = 0; i < HANDLES; i++)
        join(&members[i]);
    fuzz_calls(OPS, call, rates);
    for (int i = 0; i < HANDLES; i++)
        if (members[i].joined) {
            fuzz_op = "receive, while words change all the time";
            fuzz_steps = 0;
            if (fuzz_one_in(64))
                check_termination(&members[i]);
            check_delivers(&members[i]);
        }
}

int main(int argc, char **argv) {
    fuzz_map(&memory, (mq_queue_compute_file_bytes(MOST, SIZE_MOST) + PAGE - 1) & ~(size_t)(PAGE - 1));
    fuzz_scribble = scribble;
    return fuzz_main(argc, argv, run_case, OPS);
}
