/* Points: each access to shared memory, of the headers that are included after this one, is followed by one.
 *
 * A point has a name such as "mq_ring_publisher_publish: stored &p->ring->write_pointer". Once the plan is armed, the N-th
 * point whose name matches PATTERN (fnmatch) raises SIGNAL. N = 0 prints the names instead. A driver has its own actions
 * and takes "SIGNAL PATTERN N OPERATION..." from its command line; each operation is a word and up to two numbers.
 */
#ifndef POINTS_H
#define POINTS_H

#include <fnmatch.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/mman.h>

static struct {
    const char *pattern;
    long at, seen;
    int signal;
    bool armed;
} plan;

static void point(const char *function, const char *what, const char *which) {
    char name[256];
    if (!plan.armed)
        return;
    snprintf(name, sizeof name, "%s: %s %s", function, what, which);
    if (fnmatch(plan.pattern, name, 0) != 0)
        return;
    if (plan.at == 0)
        puts(name);
    else if (++plan.seen == plan.at)
        raise(plan.signal);
}

#include "accesses.h"

static mq_process_identity self;

static void fail(const char *why) {
    printf("failed: %s\n", why);
    exit(1);
}

/* Map a file. What it is goes into *liveness_file: where the locks of those who live in it are. */
static inline void *map(const char *path, int *fd, size_t *bytes, mq_liveness_file *liveness_file) {
    struct stat found;
    if ((*fd = open(path, O_RDWR | O_CLOEXEC)) < 0 || fstat(*fd, &found) != 0)
        fail(path);
    *bytes = (size_t)found.st_size;
    *liveness_file = mq_liveness_file_make(path, -1, &found);
    void *address = mmap(NULL, *bytes, PROT_READ | PROT_WRITE, MAP_SHARED, *fd, 0);
    if (address == MAP_FAILED)
        fail("mmap");
    return address;
}

/* What every driver can do. */
static bool perform_common(const char *name) {
    if (!strcmp(name, "arm"))
        plan.armed = true;
    else if (!strcmp(name, "disarm"))
        plan.armed = false;
    else if (!strcmp(name, "unlockable"))
        rows_are_unlockable = true;
    else if (!strcmp(name, "ready")) {
        puts("ready");
        getchar();
    } else
        return false;
    return true;
}

static void begin(void) {
    alarm(50); /* nobody waits for ever, whatever a test forgets */
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (mq_read_process_identity(&self) != 0)
        fail("/proc/self");
    srandom((unsigned)getpid());
}

/* SIGNAL PATTERN N OPERATION..., the rest of a command line. */
static void run(char **arguments, void (*perform)(const char *name, uint64_t a, uint64_t b)) {
    plan.signal = atoi(arguments[0]);
    plan.pattern = arguments[1];
    plan.at = atol(arguments[2]);
    for (char **operation = arguments + 3; *operation; operation++) {
        unsigned long long a = 0, b = 0;
        char name[16] = "";
        sscanf(*operation, "%15[a-z]:%llu:%llu", name, &a, &b);
        if (!perform_common(name))
            perform(name, a, b);
    }
}

#endif
