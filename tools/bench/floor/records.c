/* A ring of seqlocks between two pinned processes, without Python. The program measures records per second. Both
 * processes work in batches, and the producer does not know its consumers.
 *
 * Each place has a version and a record. The version is odd during a write. The consumer copies records into one array,
 * and compares the version before and after each copy. The consumer does not accept a record that was overwritten
 * during the copy. No record is lost: after each batch, the consumer stores the number of its records, as in all
 * systems. The producer loads this number only if the remembered number leaves no free place.
 *
 * usage: records SECONDS PRODUCER_CPU CONSUMER_CPU RECORD_BYTES BATCH DATA_BYTES
 * prints: {"value": records per second, "waited": share of the time in which a process waited for its core}
 */
#include "pair.h"

typedef struct {
    unsigned char *places;
    uint64_t mask, stride, size, batch;
} records;

static inline _Atomic uint64_t *version_of(const records *r, uint64_t number) {
    return (_Atomic uint64_t *)(r->places + (number & r->mask) * r->stride);
}

/* The callers pass a constant `size` if possible. The compiler then replaces the copy by a few moves. */
static inline void produce(const records *r, uint64_t number, const unsigned char *from, uint64_t size) {
    _Atomic uint64_t *version = version_of(r, number);
    atomic_store_explicit(version, 2 * number + 1, memory_order_relaxed);
    atomic_thread_fence(memory_order_release); /* store the odd version before the record */
    memcpy((unsigned char *)version + 8, from, size);
    atomic_store_explicit(version, 2 * number + 2, memory_order_release);
}

static inline int consume(const records *r, uint64_t number, unsigned char *to, uint64_t size) {
    _Atomic uint64_t *version = version_of(r, number);
    if (atomic_load_explicit(version, memory_order_acquire) != 2 * number + 2)
        return 0;
    memcpy(to, (unsigned char *)version + 8, size);
    atomic_thread_fence(memory_order_acquire); /* load the record before the second load of the version */
    return atomic_load_explicit(version, memory_order_relaxed) == 2 * number + 2;
}

/* Produce batches until the parent kills this process. */
static void produce_batches(const records *r, progress *state) {
    unsigned char *array = calloc(r->batch, r->size);
    uint64_t number = 0, taken = 0;
    for (;;) {
        while (number + r->batch - taken > r->mask + 1) {
            taken = atomic_load_explicit(&state->received, memory_order_acquire);
            floor_relax();
        }
        const unsigned char *from = array;
        if (r->size == 64)
            for (uint64_t end = number + r->batch; number < end; number++, from += 64)
                produce(r, number, from, 64);
        else
            for (uint64_t end = number + r->batch; number < end; number++, from += r->size)
                produce(r, number, from, r->size);
    }
}

/* Copy all new records into an array, at most one batch at a time, until the parent kills this process. */
static void consume_batches(const records *r, progress *state) {
    unsigned char *array = malloc(r->batch * r->size);
    uint64_t number = 0;
    for (;;) {
        uint64_t end = number + r->batch, before = number;
        unsigned char *to = array;
        if (r->size == 64)
            for (; number < end && consume(r, number, to, 64); number++)
                to += 64;
        else
            for (; number < end && consume(r, number, to, r->size); number++)
                to += r->size;
        if (number == before)
            floor_relax();
        else
            atomic_store_explicit(&state->received, number, memory_order_release);
    }
}

int main(int count, char **words) {
    if (count != 7)
        return 2;
    records r = {.size = strtoull(words[4], NULL, 10), .batch = strtoull(words[5], NULL, 10)};
    r.stride = 8 + (r.size + 7) / 8 * 8;
    uint64_t places = 1;
    while (2 * places * r.stride <= strtoull(words[6], NULL, 10))
        places *= 2;
    r.mask = places - 1;
    r.places = share(places * r.stride);
    progress *state = share(sizeof *state);

    pid_t consumer = fork();
    if (consumer == 0) {
        settle(atoi(words[3]));
        consume_batches(&r, state);
    }
    pid_t producer = fork();
    if (producer == 0) {
        settle(atoi(words[2]));
        produce_batches(&r, state);
    }
    report(state, consumer, producer, atof(words[1]));
    return 0;
}
