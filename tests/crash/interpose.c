/* Points around the system calls of the library. Preloaded into a Python process, or a part of the driver (driver.c).
 *
 * MSGQ_TEST_POINT="SIGNAL N PATTERN" raises SIGNAL at the N-th point whose name matches PATTERN (fnmatch). The names are
 * such as "call: before link", and those of accesses.h. N = 0 prints the names instead.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <linux/futex.h>
#include <linux/membarrier.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

static bool is_armed = true;

void point(const char *function, const char *what, const char *which);
void point(const char *function, const char *what, const char *which) {
    static int signal_number, seen;
    static char pattern[100], name[256];
    int at;
    const char *plan = is_armed ? getenv("MSGQ_TEST_POINT") : NULL;
    if (!plan || sscanf(plan, "%d %d %99[^\n]", &signal_number, &at, pattern) != 3)
        return;
    snprintf(name, sizeof name, "%s: %s %s", function, what, which);
    if (fnmatch(pattern, name, 0) != 0)
        return;
    if (at == 0)
        puts(name);
    else if (++seen == at) {
        fprintf(stderr, "%s\n", name); /* shown if a test fails */
        raise(signal_number);
    }
}

#define AROUND(name, call)                                                                                             \
    ({                                                                                                                 \
        point("call", "before", name);                                                                                 \
        __typeof__(call) result_ = (call);                                                                             \
        point("call", "after", name);                                                                                  \
        result_;                                                                                                       \
    })
#define REAL(function) ((__typeof__(&function))dlsym(RTLD_NEXT, #function))

int fchmod(int fd, mode_t mode) { return AROUND("fchmod", REAL(fchmod)(fd, mode)); }

int posix_fallocate(int fd, off_t offset, off_t length) {
    return AROUND("allocate", REAL(posix_fallocate)(fd, offset, length));
}

int posix_fallocate64(int fd, off_t offset, off_t length) {
    return AROUND("allocate", REAL(posix_fallocate64)(fd, offset, length));
}

int linkat(int from_fd, const char *from, int to_fd, const char *to, int flags) {
    return AROUND("link", REAL(linkat)(from_fd, from, to_fd, to, flags));
}

int unlinkat(int folder, const char *name, int flags) { return AROUND("unlink", REAL(unlinkat)(folder, name, flags)); }

int flock(int fd, int operation) {
    const char *name = operation & LOCK_UN ? "unlock" : "lock";
    return AROUND(name, REAL(flock)(fd, operation));
}

int madvise(void *address, size_t bytes, int advice) { return AROUND("advise", REAL(madvise)(address, bytes, advice)); }

static int point_at_row_lock(int (*call)(int, int, ...), int fd, int command, void *argument) {
    return command == F_OFD_SETLK ? AROUND("row", call(fd, command, argument)) : call(fd, command, argument);
}

int fcntl(int fd, int command, ...) {
    va_list list;
    va_start(list, command);
    void *argument = va_arg(list, void *);
    va_end(list);
    return point_at_row_lock(REAL(fcntl), fd, command, argument);
}

int fcntl64(int fd, int command, ...) {
    va_list list;
    va_start(list, command);
    void *argument = va_arg(list, void *);
    va_end(list);
    return point_at_row_lock(REAL(fcntl64), fd, command, argument);
}

long syscall(long number, ...) {
    long a[6];
    va_list list;
    va_start(list, number);
    for (int i = 0; i < 6; i++)
        a[i] = va_arg(list, long);
    va_end(list);
    const char *name = "other";
    if (number == SYS_membarrier && a[0] == MEMBARRIER_CMD_GLOBAL_EXPEDITED)
        name = "membarrier";
    else if (number == SYS_futex)
        name = (a[1] & FUTEX_CMD_MASK) == FUTEX_WAKE ? "wake" : "sleep";
    return AROUND(name, REAL(syscall)(number, a[0], a[1], a[2], a[3], a[4], a[5]));
}
