/* A preloaded library that stands for the sleep of the C library's `syscall` under callgrind.
 *
 * Old versions of valgrind know no futex_waitv, and msgq then polls once in a millisecond. Here, each wait on a futex
 * asks the parent for a message: it writes a byte to the standard output, and sleeps until the parent answers on the
 * standard input. The process sleeps exactly once for each message, so the number of instructions does not depend on
 * the load of the machine.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <linux/futex.h>
#include <stdarg.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef SYS_futex_waitv
#define SYS_futex_waitv 449
#endif

static long ask_for_message(void) {
    char byte = 0;
    if (write(1, &byte, 1) != 1 || read(0, &byte, 1) != 1)
        _exit(1); /* the parent has ended */
    return 0;
}

long syscall(long number, ...) {
    long arguments[6];
    va_list list;
    va_start(list, number);
    for (int i = 0; i < 6; i++)
        arguments[i] = va_arg(list, long);
    va_end(list);
    int command = (int)arguments[1] & FUTEX_CMD_MASK;
    if (number == SYS_futex_waitv || (number == SYS_futex && (command == FUTEX_WAIT || command == FUTEX_WAIT_BITSET)))
        return ask_for_message();
    static long (*next)(long, ...);
    if (!next)
        next = (long (*)(long, ...))dlsym(RTLD_NEXT, "syscall");
    return next(number, arguments[0], arguments[1], arguments[2], arguments[3], arguments[4], arguments[5]);
}
