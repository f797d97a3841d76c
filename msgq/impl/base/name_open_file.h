/* Give a name to an open file without a name (O_TMPFILE). */
#ifndef MQ_NAME_OPEN_FILE_H
#define MQ_NAME_OPEN_FILE_H

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#ifndef AT_EMPTY_PATH /* missing without _GNU_SOURCE */
#define AT_EMPTY_PATH 0x1000
#endif

/* Returns 0, or -1 with errno. Before Linux 6.10, a link of the descriptor itself needs a capability, so the second
 * call uses the descriptor's path in /proc. The first call is faster, because it does not search /proc. */
static inline int mq_name_open_file(int fd, int directory, const char *name) {
    char path[40];
    if (linkat(fd, "", directory, name, AT_EMPTY_PATH) == 0)
        return 0;
    if (errno == EEXIST)
        return -1;
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    return linkat(AT_FDCWD, path, directory, name, AT_SYMLINK_FOLLOW);
}

#endif
