/* Unit tests of headers, in one thread. Each access to shared memory by the headers that are included after this one is a
 * step with a name such as "mq_pool_pin_set: set &slots->pool_header->pins[slot].holders". A test can
 *
 *   meet(PATTERN, act)        let another participant act after each step whose name matches (fnmatch)
 *   hold_at_each_step(check)  check an invariant after each step, because the participant may be killed or stopped there
 *   in_order(PATTERN, ...)    return whether matching steps were taken in this order
 *   wakes(word)               return how often the sleepers of a word were woken
 *
 * lives[BYTE] is the liveness of the process that holds this byte of a file. No file is opened, and no thread sleeps.
 * `PROGRAM NAME` runs one test, `PROGRAM` all.
 */
#ifndef STEPS_H
#define STEPS_H

#include <fnmatch.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

enum { STEPS_MAX = 65536, TESTS_MAX = 128, BYTES = 256 };

static struct {
    const char *function, *what, *which;
} taken_steps[STEPS_MAX];
static unsigned step_count;
static const char *meeting;
static unsigned met;
static void (*other_acts)(unsigned time);
static void (*must_hold)(void);
static bool is_other; /* another participant acts: its steps do not count */

static const char *step_name(unsigned i) {
    static char name[256];
    snprintf(name, sizeof name, "%s: %s %s", taken_steps[i].function, taken_steps[i].what, taken_steps[i].which);
    return name;
}

static void point(const char *function, const char *what, const char *which) {
    if (is_other)
        return;
    if (step_count == STEPS_MAX) {
        puts("too many steps");
        exit(1);
    }
    taken_steps[step_count].function = function;
    taken_steps[step_count].what = what;
    taken_steps[step_count++].which = which;
    is_other = true;
    if (must_hold)
        must_hold();
    if (other_acts && fnmatch(meeting, step_name(step_count - 1), 0) == 0)
        other_acts(++met);
    is_other = false;
}

#include "../crash/accesses.h"

#define mq_store_release_u32(word, value) (mq_store_release_u32(word, value), POINT("stored", word))
#define mq_load_acquire_u32(word) VALUE_THEN(mq_load_acquire_u32(word), "loaded", word)
#define mq_fetch_and_u32(word, bits) VALUE_THEN(mq_fetch_and_u32(word, bits), "cleared", word)
#define mq_fence_acquire() (mq_fence_acquire(), POINT("fenced", acquire))
#define mq_fence_release() (mq_fence_release(), POINT("fenced", release))
#define mq_fence_seq_cst() (mq_fence_seq_cst(), POINT("fenced", seq_cst))

/* ---- wakes, lives and locks, without system calls ---- */

static const void *woken_words[STEPS_MAX];
static unsigned wake_count;
static mq_liveness lives[BYTES];
static unsigned lives_asked; /* number of tests of a liveness */
static char holds[BYTES];    /* an address for each lock */
static bool has_no_locks;    /* as on a file system without locks */

__attribute__((unused)) static void wake_word(const void *word) { woken_words[wake_count++ % STEPS_MAX] = word; }

__attribute__((unused)) static void *hold_byte(uint64_t byte) {
    errno = has_no_locks ? EINVAL : EAGAIN;
    return has_no_locks || lives[byte] == MQ_ALIVE ? NULL : &holds[byte];
}

#undef mq_futex_wake_all
#undef mq_futex_wake
#undef mq_liveness_lock
#undef mq_liveness_unlock
#define mq_futex_wake_all(word) (wake_word(word), POINT("woke", word))
#define mq_futex_wake(word, count) (wake_word(word), POINT("woke", word))
#define mq_liveness_lock(liveness_file, byte, shared) VALUE_THEN(((void)(liveness_file), hold_byte(byte)), "held", byte)
#define mq_liveness_unlock(liveness_token) ((void)(liveness_token), POINT("let go of", liveness_token))
#define mq_owner_liveness(probe, byte, pid, pid_namespace)                                                             \
    ((void)(probe), (void)(pid), (void)(pid_namespace), lives_asked++, lives[byte])

/* ---- for tests ---- */

static struct {
    const char *name;
    void (*run)(void);
} tests[TESTS_MAX];
static unsigned test_count;

#define TEST(test)                                                                                                     \
    static void test(void);                                                                                            \
    __attribute__((constructor)) static void add_##test(void) {                                                        \
        tests[test_count].name = #test;                                                                                \
        tests[test_count++].run = test;                                                                                \
    }                                                                                                                  \
    static void test(void)

static void failed(const char *file, int line, const char *what) {
    printf("%s:%d: %s\n", file, line, what);
    if (step_count)
        printf("the last step was %s\n", step_name(step_count - 1));
    exit(1);
}
#define CHECK(condition) ((condition) ? (void)0 : failed(__FILE__, __LINE__, #condition))

static void forget_steps(void) {
    step_count = met = wake_count = 0;
    other_acts = NULL;
    must_hold = NULL;
}

__attribute__((unused)) static void meet(const char *pattern, void (*act)(unsigned time)) {
    forget_steps();
    meeting = pattern;
    other_acts = act;
}

__attribute__((unused)) static void hold_at_each_step(void (*check)(void)) {
    forget_steps();
    must_hold = check;
}

/* The patterns end with NULL. */
__attribute__((unused)) static bool steps_in_order(const char *const *patterns) {
    for (unsigned i = 0; i < step_count && *patterns; i++)
        if (fnmatch(*patterns, step_name(i), 0) == 0)
            patterns++;
    return !*patterns;
}
#define in_order(...) steps_in_order((const char *const[]){__VA_ARGS__, NULL})

__attribute__((unused)) static unsigned wakes(const mq_u32 *word) {
    unsigned count = 0;
    for (unsigned i = 0; i < wake_count; i++)
        count += woken_words[i] == word;
    return count;
}

static const mq_process_identity me = {.pid = 1, .thread_id = 1, .start_time = 1, .pid_namespace = 1, .name = "test"};

/* Return pages of zeros; they are not freed. */
__attribute__((unused)) static void *zeros(size_t bytes) {
    bytes = (bytes + 4095) & ~(size_t)4095;
    void *memory = aligned_alloc(4096, bytes);
    CHECK(memory);
    return memset(memory, 0, bytes);
}

int main(int count, char **arguments) {
    unsigned run = 0;
    for (unsigned i = 0; i < test_count; i++) {
        if (count > 1 && strcmp(tests[i].name, arguments[1]))
            continue;
        forget_steps();
        memset(lives, 0, sizeof lives);
        lives_asked = 0;
        tests[i].run();
        run++;
    }
    printf("%u passed\n", run);
    return !run;
}

#endif
