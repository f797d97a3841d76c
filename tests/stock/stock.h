/* What every stock process of the tests does: the ring as stock has it, and taking commands.
 *
 * Written from this project's own notes on the stock protocol (docs/internals/layout.md has the bytes, the behaviour is
 * below) and the public README of the stock project, not from its source. It is naive on purpose, because it stands for
 * the real thing: it believes the validity flag, calls a ring empty when the low halves of two positions agree, looks
 * at write_uid only when a send begins, evicts everybody when the fifteen slots are taken, sets the size of the file at
 * every open, and gives up on a size that it does not like: EXIT_ABORT, without a core dump, where stock aborts.
 */
#pragma once
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { SLOTS = 15, SIZE_FIELD = 8, EXIT_USAGE = 64, EXIT_ABORT = 70, EXIT_AT_POINT = 71 };

typedef _Atomic uint64_t Word;

typedef struct {
    Word num_readers, write_pointer, write_uid;
    Word read_pointers[SLOTS], read_valids[SLOTS], read_uids[SLOTS];
} Header;
_Static_assert(sizeof(Header) == 384, "the data area starts at byte 384");

typedef struct {
    Header *header;
    char *data;
    uint64_t data_size, uid, resets;
    int slot;
    bool conflate;
} Queue;

static Queue queue;
static char *message; /* data_size bytes: no message is larger */

/* ---- giving up, and stopping at named points ---- */

static struct {
    char name[32];
    bool exits;
    uint64_t bytes;
} armed;

static void give_up(const char *why) {
    fprintf(stderr, "stock peer aborts: %s\n", why);
    _exit(EXIT_ABORT);
}

/* Stop or die here, once, when the test armed this point. */
static void point(const char *name) {
    if (strcmp(armed.name, name) != 0)
        return;
    armed.name[0] = 0;
    if (armed.exits)
        _exit(EXIT_AT_POINT);
    raise(SIGSTOP);
}

/* ---- positions ---- */

static uint64_t aligned(uint64_t n) { return (n + 7) & ~UINT64_C(7); }
static uint64_t pack(uint64_t cycle, uint64_t offset) { return cycle << 32 | offset; }
static uint64_t cycle_of(uint64_t position) { return position >> 32; }
static uint64_t offset_of(uint64_t position) { return position & UINT32_MAX; }

/* ---- opening ---- */

static void on_signal(int number) { (void)number; }
static void wake(uint64_t uid) { syscall(SYS_tkill, (pid_t)(uid & UINT32_MAX), SIGUSR2); }

static uint64_t new_uid(void) {
    uint32_t chosen;
    if (getrandom(&chosen, sizeof chosen, 0) != sizeof chosen)
        give_up("no random bytes");
    return (uint64_t)chosen << 32 | (uint32_t)syscall(SYS_gettid);
}

/* Map the segment, creating it or setting its size without looking. */
static int map_segment(const char *endpoint, uint64_t data_size) {
    char path[512];
    const char *prefix = getenv("OPENPILOT_PREFIX");
    /* SA_RESTART spares the reads of stdin; nanosleep is interrupted all the same. */
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    sigaction(SIGUSR2, &action, NULL);
    snprintf(path, sizeof path, "/dev/shm/msgq_%s%s%s", prefix ? prefix : "", prefix ? "/" : "", endpoint);
    int fd = open(path, O_RDWR | O_CREAT, 0664);
    if (fd < 0 || ftruncate(fd, (off_t)(sizeof(Header) + data_size)) != 0)
        return -1;
    char *start = mmap(NULL, sizeof(Header) + data_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (start == MAP_FAILED)
        return -1;
    queue.header = (Header *)start;
    queue.data = start + sizeof(Header);
    queue.data_size = data_size;
    message = malloc(data_size);
    return 0;
}

static void clear_slots(void) {
    queue.header->num_readers = 0;
    for (int i = 0; i < SLOTS; i++) {
        queue.header->read_valids[i] = 0;
        queue.header->read_uids[i] = 0;
    }
}

/* ---- publisher ---- */

static void start_publisher(void) {
    queue.uid = new_uid();
    queue.header->write_uid = queue.uid;
    clear_slots();
}

/* Clear the flag of each reader of an earlier cycle with an offset in [start, end). */
static void invalidate(uint64_t start, uint64_t end, uint64_t cycle) {
    for (uint64_t i = 0; i < queue.header->num_readers && i < SLOTS; i++) {
        uint64_t reader = queue.header->read_pointers[i];
        if (offset_of(reader) >= start && offset_of(reader) < end && cycle_of(reader) != cycle)
            queue.header->read_valids[i] = 0;
    }
}

static void write_payload(char *to, uint64_t size) {
    uint64_t before = armed.bytes < size ? armed.bytes : size;
    memcpy(to, message, before);
    point("mid_send");
    memcpy(to + before, message + before, size - before);
}

static int publish(uint64_t size) {
    Header *header = queue.header;
    uint64_t needed = aligned(SIZE_FIELD + size);
    if (header->write_uid != queue.uid) {
        errno = EADDRINUSE;
        return -1;
    }
    point("uid_checked");
    if (3 * needed > queue.data_size)
        give_up("three messages of this size do not fit");
    uint64_t cycle = cycle_of(header->write_pointer), offset = offset_of(header->write_pointer);
    if ((int64_t)(queue.data_size - offset - needed - SIZE_FIELD) <= 0) {
        *(volatile int64_t *)(queue.data + offset) = -1;
        invalidate(offset + 1, UINT64_MAX, cycle);
        cycle = (cycle + 1) & UINT32_MAX;
        offset = 0;
        header->write_pointer = pack(cycle, offset);
        point("wrapped");
    }
    invalidate(offset, offset + needed, cycle);
    *(volatile int64_t *)(queue.data + offset) = (int64_t)size;
    write_payload(queue.data + offset + SIZE_FIELD, size);
    point("payload_written");
    header->write_pointer = pack(cycle, offset + needed);
    point("published");
    for (uint64_t i = 0; i < header->num_readers && i < SLOTS; i++)
        wake(header->read_uids[i]);
    return 0;
}

/* ---- subscriber ---- */

static void reset_reader(void) {
    queue.resets++;
    queue.header->read_valids[queue.slot] = 1;
    uint64_t position = queue.header->write_pointer;
    point("reset_loaded");
    queue.header->read_pointers[queue.slot] = position;
}

static void evict_everybody(void) {
    uint64_t uids[SLOTS];
    for (int i = 0; i < SLOTS; i++)
        uids[i] = queue.header->read_uids[i];
    clear_slots();
    for (int i = 0; i < SLOTS; i++)
        wake(uids[i]);
}

static void join(void) {
    Header *header = queue.header;
    uint64_t taken = header->num_readers;
    do {
        if (taken >= SLOTS)
            evict_everybody();
        taken %= SLOTS;
    } while (!atomic_compare_exchange_strong(&header->num_readers, &taken, taken + 1));
    point("slot_taken");
    queue.slot = (int)taken;
    queue.uid = new_uid();
    header->read_valids[taken] = 0;
    header->read_pointers[taken] = 0;
    header->read_uids[taken] = queue.uid;
    reset_reader();
}

/* Copy the message at `offset` away, step over it, and say whether it was valid all the time. */
static bool take(int64_t size, uint64_t position) {
    if (size <= 0 || (uint64_t)size >= queue.data_size)
        give_up("a message of impossible size");
    point("size_trusted");
    memcpy(message, queue.data + offset_of(position) + SIZE_FIELD, (size_t)size);
    point("copied");
    atomic_thread_fence(memory_order_seq_cst);
    queue.header->read_pointers[queue.slot] = position + aligned(SIZE_FIELD + (uint64_t)size);
    return queue.header->read_valids[queue.slot] != 0;
}

/* The size of the message that is now in `message`, or 0 when there is none. */
static int64_t receive_now(void) {
    Header *header = queue.header;
    for (;;) {
        if (header->read_uids[queue.slot] != queue.uid)
            join();
        else if (!header->read_valids[queue.slot])
            reset_reader();
        uint64_t position = header->read_pointers[queue.slot], written = header->write_pointer;
        if (offset_of(position) == offset_of(written))
            return 0;
        int64_t size = *(volatile int64_t *)(queue.data + offset_of(position));
        atomic_thread_fence(memory_order_seq_cst);
        if (!header->read_valids[queue.slot])
            continue;
        uint64_t next = position + aligned(SIZE_FIELD + (uint64_t)size);
        if (size == -1)
            header->read_pointers[queue.slot] = pack(cycle_of(position) + 1, 0);
        else if (size > 0 && queue.conflate && offset_of(next) != offset_of(written))
            header->read_pointers[queue.slot] = next;
        else if (take(size, position))
            return size;
    }
}

/* As receive_now, asleep until a signal comes or the time is up; `how` says what ended the wait. */
static int64_t receive_within(uint64_t timeout_ms, const char **how) {
    struct timespec left = {(time_t)(timeout_ms / 1000), (long)(timeout_ms % 1000) * 1000000};
    int64_t size = receive_now();
    *how = "ready";
    while (size == 0 && timeout_ms > 0 && strcmp(*how, "timeout") != 0) {
        *how = nanosleep(&left, &left) == 0 ? "timeout" : "signal";
        size = receive_now();
    }
    return size;
}

/* ---- commands: lines on stdin, each answered with one line on stdout ---- */

typedef struct {
    const char *name;
    void (*run)(void);
} Command;

static char *rest;            /* of the command's line, */
static uint64_t arguments[5]; /* and the numbers that it starts with */

static void run(char *line, const Command *commands, size_t known) {
    rest = strchr(line, ' ');
    rest = rest ? (*rest = 0, rest + 1) : line + strlen(line);
    sscanf(rest, "%" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64, &arguments[0], &arguments[1],
           &arguments[2], &arguments[3], &arguments[4]);
    size_t i = 0;
    while (i < known && strcmp(commands[i].name, line) != 0)
        i++;
    if (i == known)
        exit(EXIT_USAGE);
    commands[i].run();
    fflush(stdout);
}

static int run_commands(const Command *commands, size_t known) {
    char line[512];
    setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* a stopped peer does not outlive the tests */
    while (fgets(line, sizeof line, stdin)) {
        line[strcspn(line, "\n")] = 0;
        run(line, commands, known);
    }
    return 0;
}
