/* Mappings that are cut while threads use them, on mapguard.h alone.
 *
 * What: threads map a file of their own, guard it, and read it over and over, two threads each file; another one cuts
 * the files off meanwhile, and children are forked. Each mapping is removed and its address used again at once. Each has
 * a partner, which is exchanged for another one meanwhile.
 * Why: the handler runs in any thread, while others add and remove guards.
 * A failure would mean: a handler maps zeros over memory of somebody else, or a fault is not found to be ours.
 */
#include <fcntl.h>
#include <stdio.h>
#include <sys/wait.h>

#include "base/mapguard.h"

enum { PAGES = 16, PAGE = 4096, BYTES = PAGES * PAGE, WATCHDOG = 60 };

static mq_u32 rounds, forks;
static mq_u64 stop;

static void fail(const char *why) {
    fprintf(stderr, "%s\n", why);
    abort();
}

typedef struct {
    const volatile unsigned char *bytes;
    pthread_barrier_t *start;
} reader;

static void *read_all(void *argument) {
    reader *r = argument;
    unsigned sum = 0;
    pthread_barrier_wait(r->start);
    for (int turn = 0; turn < 20; turn++)
        for (int i = PAGES - 1; i >= 0; i--)
            sum += r->bytes[i * PAGE];
    if (sum > 2 * 20 * PAGES)
        fail("neither what was written nor zeros");
    return NULL;
}

static int make_file(void) {
    char path[] = "/dev/shm/msgqguardXXXXXX";
    int fd = mkstemp(path);
    if (fd < 0 || unlink(path) != 0 || ftruncate(fd, BYTES) != 0)
        fail("no file");
    for (int i = 0; i < PAGES; i++)
        if (pwrite(fd, "\1", 1, (off_t)i * PAGE) != 1)
            fail("no page");
    return fd;
}

/* A mapping of a page of ones, guarded. */
static unsigned char *map_ones(mq_sigbus_guard **guard) {
    unsigned char *ones = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (ones == MAP_FAILED)
        fail("mmap");
    *ones = 1;
    *guard = mq_sigbus_guard_add_mapping(ones, PAGE, PROT_READ);
    return ones;
}

/* One mapping: guarded, read by two threads, cut meanwhile, gone. */
static void one_round(unsigned number) {
    pthread_barrier_t start;
    pthread_t threads[2];
    int fd = make_file();
    unsigned char *bytes = mmap(NULL, BYTES, PROT_READ, MAP_SHARED, fd, 0);
    if (bytes == MAP_FAILED)
        fail("mmap");
    mq_sigbus_guard *former, *partner, *guard = mq_sigbus_guard_add_mapping(bytes, BYTES, PROT_READ);
    unsigned char *before = map_ones(&former), *ones = map_ones(&partner);
    reader r = {bytes, &start};
    if (!mq_sigbus_guard_set_partner(guard, former))
        fail("paired after a fault that was none");
    pthread_barrier_init(&start, NULL, 3);
    for (int i = 0; i < 2; i++)
        if (pthread_create(&threads[i], NULL, read_all, &r) != 0)
            fail("no thread");
    pthread_barrier_wait(&start);
    if (ftruncate(fd, number % PAGES * PAGE) != 0)
        fail("ftruncate");
    bool whole = mq_sigbus_guard_set_partner(guard, partner);
    mq_sigbus_guard_remove(former);
    munmap(before, PAGE);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    if (((const volatile unsigned char *)bytes)[BYTES - 1] || mq_load_acquire_u64(&guard->not_truncated))
        fail("a fault that nobody noticed");
    if (whole && (*(const volatile unsigned char *)ones || mq_load_acquire_u64(&partner->not_truncated)))
        fail("a fault that the partner did not notice");
    mq_sigbus_guard_remove(guard);
    mq_sigbus_guard_remove(partner);
    munmap(ones, PAGE);
    munmap(bytes, BYTES);
    /* What comes to lie there now is not ours to replace. */
    unsigned char *mine =
        mmap(bytes, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    if (mine != MAP_FAILED) {
        *mine = 5;
        sched_yield();
        if (*(volatile unsigned char *)mine != 5)
            fail("zeros over memory of somebody else");
        munmap(mine, PAGE);
    }
    close(fd);
    pthread_barrier_destroy(&start);
}

static void *work(void *argument) {
    for (unsigned i = (unsigned)(uintptr_t)argument; !mq_load_acquire_u64(&stop); i++) {
        one_round(i);
        mq_fetch_add_u32(&rounds, 1);
    }
    return NULL;
}

/* A child inherits mapping and guard; each of the two faults on its own. No allocation in the child: the address
 * sanitizer's locks do not survive a fork beside threads. */
static void in_child(unsigned number) {
    int status, fd = make_file();
    const volatile unsigned char *bytes = mmap(NULL, BYTES, PROT_READ, MAP_SHARED, fd, 0);
    mq_sigbus_guard *guard = mq_sigbus_guard_add_mapping((void *)bytes, BYTES, PROT_READ);
    if (ftruncate(fd, number % PAGES * PAGE) != 0)
        fail("ftruncate");
    pid_t child = fork();
    if (child == 0) {
        alarm(WATCHDOG); /* the parent's is not inherited */
        _exit(bytes[BYTES - 1] || mq_load_acquire_u64(&guard->not_truncated));
    }
    if (child < 0 || waitpid(child, &status, 0) != child || status != 0)
        fail("a forked child");
    if (!mq_load_acquire_u64(&guard->not_truncated) || bytes[BYTES - 1] || mq_load_acquire_u64(&guard->not_truncated))
        fail("the parent of a forked child");
    mq_sigbus_guard_remove(guard);
    munmap((void *)bytes, BYTES);
    close(fd);
    mq_fetch_add_u32(&forks, 1);
}

static volatile sig_atomic_t passed_on;
static void former(int number) {
    passed_on = number;
    signal(SIGBUS, SIG_DFL);
}

int main(int count, char **arguments) {
    pthread_t threads[4];
    double seconds = count > 1 ? atof(arguments[1]) : 1;
    struct sigaction action = {.sa_handler = former};
    alarm((unsigned)seconds + WATCHDOG); /* nobody runs for ever, whoever ends the test */
    sigaction(SIGBUS, &action, NULL);
    if (!mq_sigbus_guard_install_handler() || !mq_sigbus_guard_install_handler())
        fail("not installed");
    for (uintptr_t i = 0; i < 4; i++)
        if (pthread_create(&threads[i], NULL, work, (void *)(i * 5)) != 0)
            fail("no thread");
    for (unsigned i = 0; i < (unsigned)(20 * seconds); i++) {
        usleep(50000);
        in_child(i);
    }
    mq_store_release_u64(&stop, 1);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    raise(SIGBUS);
    if (passed_on != SIGBUS)
        fail("the former handler was not called");
    printf("rounds %u forks %u\n", mq_load_relaxed_u32(&rounds), mq_load_relaxed_u32(&forks));
    return 0;
}
