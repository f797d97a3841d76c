/* The ring of ring.h between two pinned processes, without Python. The program measures messages per second. Both
 * processes work in batches.
 *
 * The writer publishes once per batch, like send_many(). The reader copies the payloads of all waiting messages into
 * one array and releases them once, like receive_array().
 *
 * usage: stream SECONDS WRITER_CPU READER_CPU MESSAGE_BYTES BATCH DATA_BYTES
 * prints: {"value": messages per second, "waited": share of the time in which a process waited for its core}
 */
#include "pair.h"

/* Write batches until the parent kills this process. */
static void write_batches(floor_ring ring, uint64_t size, uint64_t batch) {
    unsigned char *messages = calloc(batch, size);
    for (;;) {
        for (uint64_t i = 0; i < batch; i++) {
            uint64_t left = ring.size - ring.offset, need = floor_need(size);
            /* If the batch is larger than the free space, publish its first part. Otherwise both sides would wait for
             * each other. */
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

int main(int count, char **words) {
    if (count != 7)
        return 2;
    uint64_t size = strtoull(words[4], NULL, 10), batch = strtoull(words[5], NULL, 10);
    floor_ring ring = {.size = strtoull(words[6], NULL, 10)};
    ring.shared = share(sizeof(floor_shared) + ring.size);
    progress *state = share(sizeof *state);

    pid_t reader = fork();
    if (reader == 0) {
        settle(atoi(words[3]));
        read_batches(ring, state, ring.size);
    }
    pid_t writer = fork();
    if (writer == 0) {
        settle(atoi(words[2]));
        write_batches(ring, size, batch);
    }
    report(state, reader, writer, atof(words[1]));
    return 0;
}
