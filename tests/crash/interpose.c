/* Preloaded into a Python process: raises a signal at a chosen system call of the library.
 *
 * MSGQ_TEST_CALLS="SIGNAL NAME N" raises SIGNAL at the N-th point NAME, which is "before" or "after" and one of the
 * calls below, or "any point". The files are created, locked and mapped by Cython code that no C driver can include;
 * this way the steps between those calls are reached as well. library.c adds points of the C library.
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <linux/membarrier.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

static void call_point(const char *when, const char *call) {
    static int signal_number, at, seen;
    static char wanted_when[16], wanted_call[32];
    const char *plan = getenv("MSGQ_TEST_CALLS");
    if (!plan || sscanf(plan, "%d %15s %31s %d", &signal_number, wanted_when, wanted_call, &at) != 4)
        return;
    if (strcmp(wanted_when, "any") && (strcmp(when, wanted_when) || strcmp(call, wanted_call)))
        return;
    if (++seen != at)
        return;
    fprintf(stderr, "%s %s\n", when, call); /* shown if a test fails */
    raise(signal_number);
}

#define AROUND(name, call)                                                                                             \
    ({                                                                                                                 \
        call_point("before", name);                                                                                    \
        __typeof__(call) result_ = (call);                                                                             \
        call_point("after", name);                                                                                     \
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
