/* Fuzzes the gate: set, clear, wait for and watch events. A hostile program rewrites words before and during each call.
 * For the usage, see driver.c. The program checks that no call accesses bytes outside of the gate, and that every call
 * ends.
 */
#define FUZZ_STEPS_MAX 20000 /* MQ_FAKE_EVENT_TRIES changes of the event with a few steps each */
#include "hostile.h"

#include <sched.h>

static int fuzz_yield(void) { return 0; }
#define sched_yield fuzz_yield

#include "gate/gate.h"

enum { OPS = 200, FIFO = 5 };

static fuzz_memory memory;
static const mq_liveness_file liveness_file = {.path = "/gate", .inode = 1};
static const mq_process_identity self = {.pid = 7, .thread_id = 7, .start_time = 1, .pid_namespace = 1, .name = "fuzz"};

static uint64_t hostile_word(void) { return fuzz_one_in(5) ? fuzz_below(8) << 32 | fuzz_below(8) : fuzz_edge(8); }

static void scribble(void) {
    uint64_t *words = (uint64_t *)(void *)memory.writable, events[] = {8, 9, 16, 17};
    uint64_t at = fuzz_one_in(2) ? fuzz_below(MQ_GATE_BYTES / 8) : fuzz_one_in(4) ? 6 : events[fuzz_below(4)];
    __atomic_store_n(&words[at], hostile_word(), __ATOMIC_RELAXED);
}

/* As _wait_for_event of gate.pxi, without the sleep. */
static void await(mq_event_gate *g, mq_fake_event *e) {
    mq_futex_waitv_entry words[2] = {
        {.address = (uint64_t)(uintptr_t)mq_fake_event_futex_word(e), .flags = MQ_FUTEX_32},
        {.address = (uint64_t)(uintptr_t)mq_fake_event_futex_word(&g->recv_called), .flags = MQ_FUTEX_32}};
    fuzz_op = "wait";
    mq_fake_event_spin_until_set(words, 1 + (unsigned)fuzz_below(2), 0);
    uint32_t expected = mq_fake_event_prepare_wait(e);
    check(expected & MQ_FAKE_EVENT_SLEEPERS, "a sleep without its flag");
    if (expected < MQ_FAKE_EVENT_ONE && !mq_event_gate_is_closed(g) && mq_event_gate_is_enabled(g)) {
        mq_futex_wait(mq_fake_event_futex_word(e), expected, 0);
        mq_futex_waitv(words, 2, 0);
        mq_event_gate_owner_liveness(g, &liveness_file);
    }
}

static void call(void) {
    mq_event_gate *g = (mq_event_gate *)(void *)memory.writable;
    mq_fake_event *e = mq_fake_event_select(g, (int)fuzz_below(2));
    switch (fuzz_below(10)) {
    case 0:
    case 1:
        fuzz_op = "set";
        if (mq_fake_event_set(e))
            mq_fake_event_sync_fifo(e, FIFO);
        break;
    case 2:
    case 3:
        fuzz_op = "clear";
        if (mq_fake_event_clear(e) == MQ_FAKE_EVENT_CLEARED_FIFO)
            mq_fake_event_sync_fifo(e, FIFO);
        break;
    case 4:
        fuzz_op = "fd";
        mq_fake_event_attach_fifo(e, mq_fake_event_fifo_inode(e) + fuzz_below(2), FIFO);
        break;
    case 5:
        fuzz_op = "enable";
        mq_event_gate_set_enabled(g, fuzz_one_in(2));
        break;
    case 6:
        fuzz_op = "close";
        mq_event_gate_close(g);
        break;
    case 7:
        fuzz_op = "open";
        mq_event_gate_check_header((const mq_event_gate *)(const void *)memory.readable);
        mq_event_gate_layout_version(g);
        break;
    default: await(g, e);
    }
}

static void run_case(void) {
    static const uint64_t rates[] = {0, 4, 16, 64};
    fuzz_use(&memory, MQ_GATE_BYTES);
    mq_event_gate_init((mq_event_gate *)(void *)memory.writable, &self, fuzz_one_in(2));
    fuzz_calls(OPS, call, rates);
    /* Without hostile stores, an event has the state of its last change. */
    fuzz_use(&memory, MQ_GATE_BYTES);
    mq_fake_event *e = &((mq_event_gate *)(void *)memory.writable)->recv_ready;
    mq_fake_event_set(e);
    check(mq_fake_event_is_set(e) && mq_fake_event_clear(e) != MQ_FAKE_EVENT_WAS_CLEAR && !mq_fake_event_is_set(e),
          "an event that forgets");
    check(mq_fake_event_clear(e) == MQ_FAKE_EVENT_WAS_CLEAR && !mq_fake_event_is_set(e),
          "an event that is set by clearing it");
}

int main(int argc, char **argv) {
    fuzz_map(&memory, 4096);
    fuzz_scribble = scribble;
    return fuzz_main(argc, argv, run_case, OPS);
}
