/* A kernel that answers at random: the system calls of the headers in base/. Part of hostile.h. */
#ifndef FUZZ_KERNEL_H
#define FUZZ_KERNEL_H

static inline int fuzz_answer(void) {
    static const int errors[] = {ESRCH, ENOENT, EPERM, EINVAL, EACCES};
    if (!fuzz_one_in(3))
        return 0;
    errno = errors[fuzz_below(5)];
    return -1;
}
static inline long fuzz_syscall(long number, ...) { return number == SYS_gettid ? 7 : fuzz_answer(); }
static inline int fuzz_kill(pid_t pid, int signal_number) { return pid < 0 || signal_number < 0 ? -1 : fuzz_answer(); }
static inline int fuzz_open(const char *path, int flags, ...) {
    return path[0] != '/' || flags < 0 ? -1 : fuzz_answer();
}
static inline int fuzz_close(int fd) { return fd; }
static inline int fuzz_stat(const char *path, struct stat *out) {
    memset(out, 0, sizeof *out);
    out->st_ino = fuzz_below(2) * (path[0] == '/');
    return fuzz_answer();
}
static inline int fuzz_fstat(int fd, struct stat *out) { /* mostly the file that was meant, of inode 1 */
    memset(out, 0, sizeof *out);
    out->st_ino = !fuzz_one_in(8);
    return fd < 0 ? -1 : fuzz_answer();
}

/* A lock, or the answer who has it; and the page that holds it. */
static inline int fuzz_fcntl(int fd, int command, struct flock *lock) {
    if (fd < 0 || command < 0 || fuzz_one_in(4))
        return fuzz_answer();
    lock->l_type = fuzz_one_in(2) ? F_UNLCK : F_WRLCK;
    errno = EAGAIN;
    return fuzz_one_in(4) ? -1 : 0;
}
static inline void *fuzz_mmap(void *at, size_t bytes, int protection, int flags, int fd, off_t offset) {
    static uint8_t page[4096];
    bool sensible = !at && bytes <= sizeof page && protection == PROT_READ && flags && fd >= 0 && offset == 0;
    return sensible && fuzz_answer() == 0 ? page : MAP_FAILED;
}
static inline int fuzz_munmap(void *at, size_t bytes) { return at && bytes ? 0 : -1; }
static inline int fuzz_madvise(void *at, size_t bytes, int advice) {
    return at && bytes && advice ? fuzz_answer() : -1;
}

/* A file of /proc, whole, cut, or nonsense. */
static inline ssize_t fuzz_read(int fd, void *buffer, size_t room) {
    char text[512];
    int n = 0;
    switch (fuzz_below(4) + (uint64_t)(fd != 0)) {
    case 0:
        n = snprintf(text, sizeof text, "1 (a) b) %c 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 %d 0 %llu 9",
                     "RSZX"[fuzz_below(4)], (int)fuzz_below(3), (unsigned long long)fuzz_below(3));
        break;
    case 1:
        n = snprintf(text, sizeof text, "Name:\ta\nSigBlk:\t%llx\nSigCgt:\t%llx\n", (unsigned long long)fuzz_random(),
                     (unsigned long long)fuzz_random());
        break;
    case 2:
        for (n = 0; n < 100; n++)
            text[n] = (char)fuzz_random();
        break;
    default: return fuzz_answer();
    }
    size_t wanted = fuzz_one_in(4) ? fuzz_below((uint64_t)n) : (size_t)n;
    memcpy(buffer, text, wanted < room ? wanted : room);
    return (ssize_t)(wanted < room ? wanted : room);
}

static inline ssize_t fuzz_write(int fd, const void *buffer, size_t n) {
    return fd < 0 || !buffer || fuzz_answer() < 0 ? -1 : (ssize_t)n;
}

static inline ssize_t fuzz_pread(int fd, void *buffer, size_t room, off_t offset) {
    return offset == 0 && room > 0 && fd >= 0 ? fuzz_read(fd, buffer, room) : -1;
}

#define syscall fuzz_syscall
#define kill fuzz_kill
#define open fuzz_open
#define read fuzz_read
#define pread fuzz_pread
#define write fuzz_write
#define close fuzz_close
#define stat(path, out) fuzz_stat(path, out)
#define fstat(fd, out) fuzz_fstat(fd, out)
#define fcntl(fd, command, lock) fuzz_fcntl(fd, command, lock)
#define mmap fuzz_mmap
#define munmap fuzz_munmap
#define madvise fuzz_madvise

#endif
