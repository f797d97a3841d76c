/* Identity of this process, and information about other processes from /proc: process id, start time, PID namespace.
 *
 * This information cannot detect an exec, and covers only the PID namespace of this process. liveness_lock.h detects an
 * exec and covers all namespaces. The functions of this file do not call Python.
 */
#ifndef MQ_PROCESS_INFO_H
#define MQ_PROCESS_INFO_H

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/layout.h"

typedef enum { MQ_DEAD = 0, MQ_ALIVE = 1, MQ_UNKNOWN = 2 } mq_liveness;

typedef struct {
    uint64_t pid, thread_id, start_time, pid_namespace;
    char name[MQ_NAME];
} mq_process_identity;

/* Read a whole small file of /proc, and append a NUL byte. Returns the length of the text, or -1 with errno. */
static inline ssize_t mq_read_proc_file(const char *path, char *buffer, size_t buffer_bytes) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -1;
    ssize_t n;
    do
        n = read(fd, buffer, buffer_bytes - 1);
    while (n < 0 && errno == EINTR);
    int error = errno;
    close(fd);
    errno = error;
    buffer[n < 0 ? 0 : n] = '\0';
    return n;
}

/* Read the state, number of threads and start time of a process or thread (proc_pid_stat(5)). Returns 0, or -1 with
 * errno. */
static inline int mq_read_process_stat(uint64_t pid, char *state, long *threads, uint64_t *start_time) {
    char path[48], text[1024];
    snprintf(path, sizeof path, "/proc/%llu/stat", (unsigned long long)pid);
    if (mq_read_proc_file(path, text, sizeof text) < 0)
        return -1;
    /* The command name may contain any byte, so fields are counted from the closing parenthesis after the command
     * name. */
    const char *rest = strrchr(text, ')');
    unsigned long long start;
    const char *fields = " %c %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %ld %*s %llu";
    if (!rest || sscanf(rest + 1, fields, state, threads, &start) != 3) {
        errno = EPROTO;
        return -1;
    }
    *start_time = start;
    return 0;
}

static inline uint64_t mq_pid_namespace(void) {
    struct stat st;
    return stat("/proc/self/ns/pid", &st) == 0 ? (uint64_t)st.st_ino : 0;
}

static inline uint64_t mq_thread_id(void) { return (uint64_t)syscall(SYS_gettid); }

/* Read the identity of this process and thread. Returns 0, or -1 with errno if /proc is missing. */
static inline int mq_read_process_identity(mq_process_identity *self) {
    char state, path[] = "/proc/self/comm";
    long threads;
    memset(self, 0, sizeof *self);
    self->pid = (uint64_t)getpid();
    self->thread_id = mq_thread_id();
    self->pid_namespace = mq_pid_namespace();
    ssize_t n = mq_read_proc_file(path, self->name, sizeof self->name);
    if (n > 0 && self->name[n - 1] == '\n')
        self->name[n - 1] = '\0';
    return mq_read_process_stat(self->pid, &state, &threads, &self->start_time);
}

/* Return 64 random bits. */
static inline uint64_t mq_random_u64(void) {
    uint64_t word = 0;
    while (getrandom(&word, sizeof word, 0) < 0 && errno == EINTR)
        continue;
    return word;
}
static inline uint32_t mq_random_u32(void) { return (uint32_t)mq_random_u64(); }

/* Return a unique number for a row or a file; never 0. */
static inline uint64_t mq_new_uid(void) { return mq_random_u64() | 1; }

enum { MQ_IDENTITY_UNREAD, MQ_IDENTITY_BUSY, MQ_IDENTITY_READ };

/* Identity of this process, read once, because reading takes 16 us. Any number of threads may use the cache at once. */
typedef struct {
    mq_u32 state; /* MQ_IDENTITY_... */
    mq_process_identity identity;
} mq_identity_cache;

/* Store the identity of this process and thread in `self`. Threads that find the cache unread read /proc themselves, and
 * one of them fills the cache. So no thread waits for another, and a fork leaves no lock. Returns 0, or -1 with errno if
 * /proc is missing. */
static inline int mq_read_own_identity(mq_identity_cache *cache, mq_process_identity *self) {
    if (mq_load_acquire_u32(&cache->state) == MQ_IDENTITY_READ) {
        *self = cache->identity;
        self->thread_id = mq_thread_id();
        return 0;
    }
    if (mq_read_process_identity(self) != 0)
        return -1;
    if (mq_compare_exchange_u32(&cache->state, MQ_IDENTITY_UNREAD, MQ_IDENTITY_BUSY)) {
        cache->identity = *self;
        /* A signal handler may have forked this child, so that `self` is the parent. After a fork since the first
         * exchange, the state is UNREAD already, and this exchange fails. */
        bool is_own = self->pid == (uint64_t)getpid();
        mq_compare_exchange_u32(&cache->state, MQ_IDENTITY_BUSY, is_own ? MQ_IDENTITY_READ : MQ_IDENTITY_UNREAD);
    }
    return 0;
}

/* Empty the cache in a forked child, before the child has a second thread. */
static inline void mq_forget_own_identity(mq_identity_cache *cache) {
    mq_store_release_u32(&cache->state, MQ_IDENTITY_UNREAD);
}

/* True if this PID namespace has no process with this id. False if the answer is unknown. */
static inline bool mq_process_is_gone(uint64_t pid, uint64_t pid_namespace) {
    if (pid == 0 || pid > INT32_MAX)
        return true;
    return kill((pid_t)pid, 0) != 0 && errno == ESRCH && pid_namespace == mq_pid_namespace();
}

/* Return the liveness of the process that had `pid` and started at `start_time`. Used for participants on a file system
 * without locks. */
static inline mq_liveness mq_process_liveness(uint64_t pid, uint64_t start_time, uint64_t pid_namespace) {
    char state;
    long threads;
    uint64_t started;
    if (pid == 0 || pid > INT32_MAX)
        return MQ_DEAD;
    if (pid_namespace != mq_pid_namespace())
        return MQ_UNKNOWN;
    if (kill((pid_t)pid, 0) != 0 && errno == ESRCH)
        return MQ_DEAD;
    /* the process is dead, or /proc hides the process (hidepid of proc(5)) */
    if (mq_read_process_stat(pid, &state, &threads, &started) != 0)
        return kill((pid_t)pid, 0) != 0 && errno == ESRCH ? MQ_DEAD : MQ_UNKNOWN;
    /* If the main thread ends before other threads, the main thread is shown as a zombie although the process lives. */
    bool zombie = (state == 'Z' || state == 'X') && threads < 2;
    return started == start_time && !zombie ? MQ_ALIVE : MQ_DEAD;
}

/* Return the liveness of the thread with this id. A stock participant has no other identity. A thread of another PID
 * namespace appears dead. */
static inline mq_liveness mq_thread_liveness(uint32_t thread_id) {
    char state = 0;
    long threads = 0;
    uint64_t started;
    if (thread_id == 0 || (syscall(SYS_tkill, thread_id, 0) != 0 && errno == ESRCH))
        return MQ_DEAD;
    if (mq_read_process_stat(thread_id, &state, &threads, &started) != 0)
        return syscall(SYS_tkill, thread_id, 0) != 0 && errno == ESRCH ? MQ_DEAD : MQ_UNKNOWN;
    return state == 'Z' || state == 'X' ? MQ_DEAD : MQ_ALIVE;
}

/* Return the process id of the thread if the thread blocks `signal_number`, or if the process catches the signal
 * (proc_pid_status(5)). Returns 0 if the signal would kill the process, or if the thread does not exist. */
static inline uint32_t mq_thread_survives_signal(uint32_t thread_id, int signal_number) {
    char path[48], text[4096];
    snprintf(path, sizeof path, "/proc/%u/status", thread_id);
    if (mq_read_proc_file(path, text, sizeof text) <= 0)
        return 0;
    unsigned long long taken = 0;
    for (int i = 0; i < 2; i++) {
        const char *mask = strstr(text, i ? "\nSigCgt:" : "\nSigBlk:");
        if (mask)
            taken |= strtoull(mask + 8, NULL, 16);
    }
    const char *process = strstr(text, "\nTgid:");
    return process && taken >> (signal_number - 1) & 1 ? (uint32_t)strtoul(process + 6, NULL, 10) : 0;
}

#endif
