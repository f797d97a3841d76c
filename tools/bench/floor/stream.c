/* Two pinned processes, no Python: how many messages a second the floor's ring carries when both sides work in batches.
 *
 * The writer publishes once a batch, as send_many() does; the reader copies the payloads of all that is pending into one
 * array and releases once, as receive_array() does.
 *
 * usage: stream SECONDS WRITER_CPU READER_CPU MESSAGE_BYTES BATCH DATA_BYTES
 * prints: {"value": messages a second, "waited": share of the time that the processes waited for a core}
 */
#define _GNU_SOURCE
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>

#include "ring.h"

typedef struct {
    _Alignas(64) _Atomic uint64_t received; /* by the reader, after each batch */
} progress;

static void pin(int cpu) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    sched_setaffinity(0, sizeof set, &set);
}

static void *share(size_t length) {
    void *bytes = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (bytes == MAP_FAILED) {
        perror("mmap");
        exit(1);
    }
    return bytes;
}

/* Until it is killed, like its partner. */
static void write_batches(floor_ring ring, uint64_t size, uint64_t batch) {
    unsigned char *messages = calloc(batch, size);
    for (;;) {
        for (uint64_t i = 0; i < batch; i++) {
            uint64_t left = ring.size - ring.offset, need = floor_need(size);
            /* A batch larger than the room left must publish what it has, or both sides would wait for each other. */
            if (ring.position + need + (left < need ? left : 0) - ring.other > ring.size)
                floor_publish(&ring);
            floor_wait_for_room(&ring, need);
            floor_write(&ring, messages + i * size, size);
        }
        floor_publish(&ring);
    }
}

static void read_batches(floor_ring ring, progress *state, uint64_t capacity) {
    unsigned char *array = malloc(capacity);
    uint64_t received = 0, size;
    for (;;) {
        const unsigned char *payload = floor_peek(&ring, &size);
        if (!payload) {
            floor_relax();
            continue;
        }
        unsigned char *next = array;
        do {
            memcpy(next, payload, size);
            next += size;
            received++;
            floor_advance(&ring, size);
        } while (ring.position != ring.other && (payload = floor_peek(&ring, &size)));
        floor_release(&ring);
        atomic_store_explicit(&state->received, received, memory_order_relaxed);
    }
}

static void pause_for(double seconds) {
    struct timespec time = {(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)};
    nanosleep(&time, NULL);
}

/* How long a process was ready to run while something else had its core. */
static uint64_t waited_ns(pid_t process) {
    char path[64];
    unsigned long long ran, waited = 0;
    snprintf(path, sizeof path, "/proc/%d/schedstat", (int)process);
    FILE *file = fopen(path, "r");
    if (file) {
        if (fscanf(file, "%llu %llu", &ran, &waited) != 2)
            waited = 0;
        fclose(file);
    }
    return waited;
}

int main(int count, char **words) {
    if (count != 7)
        return 2;
    double seconds = atof(words[1]);
    uint64_t size = strtoull(words[4], NULL, 10), batch = strtoull(words[5], NULL, 10);
    floor_ring ring = {.size = strtoull(words[6], NULL, 10)};
    ring.shared = share(sizeof(floor_shared) + ring.size);
    progress *state = share(sizeof *state);

    pid_t reader = fork();
    if (reader == 0) {
        pin(atoi(words[3]));
        read_batches(ring, state, ring.size);
    }
    pid_t writer = fork();
    if (writer == 0) {
        pin(atoi(words[2]));
        write_batches(ring, size, batch);
    }
    pause_for(seconds / 4); /* warm-up */
    uint64_t waited = waited_ns(reader) + waited_ns(writer);
    uint64_t before = atomic_load(&state->received), start = floor_now_ns();
    pause_for(seconds);
    double messages = (double)(atomic_load(&state->received) - before), took = (double)(floor_now_ns() - start);
    waited = waited_ns(reader) + waited_ns(writer) - waited;
    kill(reader, SIGKILL);
    kill(writer, SIGKILL);
    while (wait(NULL) > 0)
        ;
    printf("{\"value\": %.1f, \"waited\": %.4f}\n", messages / took * 1e9, (double)waited / took);
    return 0;
}
