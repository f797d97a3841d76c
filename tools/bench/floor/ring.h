/* The floor: a minimal ring in shared memory, for one writer. Where nothing may be lost, it has one reader.
 *
 * Messages have the format of msgq: 8 bytes with the size, the payload padded to 8 bytes, and the size -1 for "continue
 * at the start". The same bytes therefore move between the cores. The ring has no checks, no statistics, and no
 * detection of dead processes. Each side remembers the last position of the other side. A side loads the shared
 * position only if the remembered position leaves no message or no space.
 */
#ifndef BENCH_FLOOR_RING_H
#define BENCH_FLOOR_RING_H

#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define FLOOR_WRAP UINT64_MAX
#ifndef SYS_futex_waitv
#define SYS_futex_waitv 449
#endif
enum { FLOOR_RINGS_MAX = 128, FLOOR_FUTEX_32 = 2 };

/* struct futex_waitv of Linux 5.16. Older headers do not declare the struct. */
typedef struct {
    uint64_t expected, address;
    uint32_t flags, reserved;
} floor_wait;

/* The shared memory. Each word has its own cache line. Positions count bytes since the start, and never wrap. */
typedef struct {
    _Alignas(64) _Atomic uint64_t write;    /* stored by the writer; the low half is the futex word */
    _Alignas(64) _Atomic uint64_t read;     /* stored by the reader */
    _Alignas(64) _Atomic uint32_t sleepers; /* number of readers that sleep */
    _Alignas(64) unsigned char data[];
} floor_shared;

/* The private state of one side: its position, the offset of this position, and the last known position of the other
 * side. */
typedef struct {
    floor_shared *shared;
    uint64_t size;
    uint64_t position;
    uint64_t offset;
    uint64_t other;
} floor_ring;

static inline uint64_t floor_need(uint64_t payload) { return (payload + 8 + 7) & ~(uint64_t)7; }

static inline void floor_relax(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static inline uint64_t floor_now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* ---- set-up ---- */

static inline int floor_map(floor_ring *ring, const char *path, uint64_t size) {
    size_t length = sizeof(floor_shared) + size;
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0)
        return -1;
    struct stat about;
    int failed = fstat(fd, &about) || ((size_t)about.st_size < length && ftruncate(fd, (off_t)length));
    void *bytes = failed ? MAP_FAILED : mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (bytes == MAP_FAILED)
        return -1;
    *ring = (floor_ring){.shared = bytes, .size = size};
    ring->position = ring->other = atomic_load_explicit(&ring->shared->write, memory_order_acquire);
    ring->offset = ring->position % size;
    return 0;
}

static inline void floor_unmap(floor_ring *ring) {
    if (ring->shared)
        munmap(ring->shared, sizeof(floor_shared) + ring->size);
    ring->shared = NULL;
}

/* ---- writing ---- */

/* Return the start of the next message of `need` bytes. If the message does not fit into the lap, mark the end of the
 * lap, and start at the beginning. */
static inline unsigned char *floor_claim(floor_ring *ring, uint64_t need) {
    uint64_t left = ring->size - ring->offset;
    if (left < need) {
        if (left)
            *(uint64_t *)(ring->shared->data + ring->offset) = FLOOR_WRAP;
        ring->position += left;
        ring->offset = 0;
    }
    return ring->shared->data + ring->offset;
}

/* Wait until the reader has released the bytes of a message of `need` bytes. */
static inline void floor_wait_for_room(floor_ring *ring, uint64_t need) {
    uint64_t left = ring->size - ring->offset;
    uint64_t end = ring->position + need + (left < need ? left : 0);
    while (end - ring->other > ring->size) {
        ring->other = atomic_load_explicit(&ring->shared->read, memory_order_acquire);
        if (end - ring->other > ring->size)
            floor_relax();
    }
}

static inline void floor_write(floor_ring *ring, const void *payload, uint64_t size) {
    uint64_t need = floor_need(size);
    unsigned char *place = floor_claim(ring, need);
    *(uint64_t *)place = size;
    memcpy(place + 8, payload, size);
    ring->position += need;
    ring->offset += need;
}

static inline void floor_publish(floor_ring *ring) {
    atomic_store_explicit(&ring->shared->write, ring->position, memory_order_release);
}

static inline void floor_wake(floor_ring *ring) {
    /* Store the position before loading the number. A reader changes the number before it loads the position. */
    atomic_thread_fence(memory_order_seq_cst);
    if (atomic_load_explicit(&ring->shared->sleepers, memory_order_relaxed))
        syscall(SYS_futex, &ring->shared->write, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

/* ---- reading ---- */

/* Return the next message, and store its size. Return NULL if there is no message. The message is valid until
 * floor_release(). */
static inline const unsigned char *floor_peek(floor_ring *ring, uint64_t *size) {
    if (ring->position == ring->other) {
        ring->other = atomic_load_explicit(&ring->shared->write, memory_order_acquire);
        if (ring->position == ring->other)
            return NULL;
    }
    if (ring->offset == ring->size || *(uint64_t *)(ring->shared->data + ring->offset) == FLOOR_WRAP) {
        ring->position += ring->size - ring->offset;
        ring->offset = 0;
    }
    *size = *(uint64_t *)(ring->shared->data + ring->offset);
    return ring->shared->data + ring->offset + 8;
}

static inline void floor_advance(floor_ring *ring, uint64_t size) {
    ring->position += floor_need(size);
    ring->offset += floor_need(size);
}

static inline void floor_release(floor_ring *ring) {
    atomic_store_explicit(&ring->shared->read, ring->position, memory_order_release);
}

static inline bool floor_is_empty(const floor_ring *ring) {
    return ring->position == atomic_load_explicit(&ring->shared->write, memory_order_acquire);
}

/* Sleep until one of the rings has a message. A signal or the deadline (ns of CLOCK_MONOTONIC; negative: none) ends the
 * sleep early, so call this in a loop. */
static inline void floor_sleep(floor_ring *const *rings, unsigned count, int64_t deadline_ns) {
    floor_wait waits[FLOOR_RINGS_MAX];
    struct timespec deadline = {deadline_ns / 1000000000, deadline_ns % 1000000000};
    bool empty = true;
    for (unsigned i = 0; i < count; i++)
        atomic_fetch_add_explicit(&rings[i]->shared->sleepers, 1, memory_order_seq_cst);
    for (unsigned i = 0; i < count; i++) {
        waits[i] = (floor_wait){(uint32_t)rings[i]->position, (uint64_t)(uintptr_t)&rings[i]->shared->write,
                                FLOOR_FUTEX_32, 0};
        empty &= floor_is_empty(rings[i]);
    }
    if (empty && count == 1)
        syscall(SYS_futex, &rings[0]->shared->write, FUTEX_WAIT_BITSET, (uint32_t)rings[0]->position,
                deadline_ns < 0 ? NULL : &deadline, NULL, FUTEX_BITSET_MATCH_ANY);
    else if (empty)
        syscall(SYS_futex_waitv, waits, count, 0, deadline_ns < 0 ? NULL : &deadline, CLOCK_MONOTONIC);
    for (unsigned i = 0; i < count; i++)
        atomic_fetch_sub_explicit(&rings[i]->shared->sleepers, 1, memory_order_relaxed);
}

#endif
