/* Hostile words for the two files of a topic. Most stores change words that control the protocol, to limits of their range. */
#ifndef FUZZ_TOPIC_H
#define FUZZ_TOPIC_H

#define FUZZ_STEPS_MAX 500000
#include "hostile.h"

enum {
    FUZZ_ROOM = 1 << 16, /* the largest ring of the fuzzer, header included */
    FUZZ_SIDE = 65536,
};

static fuzz_memory fuzz_ring, fuzz_side;
static uint32_t fuzz_data_bytes;

static uint64_t *fuzz_ring_word(uint64_t offset) { return (uint64_t *)(void *)(fuzz_ring.writable + offset); }
static uint64_t *fuzz_side_word(uint64_t offset) { return (uint64_t *)(void *)(fuzz_side.writable + offset); }

static uint64_t fuzz_edge_offset(void) {
    uint64_t bases[] = {0,
                        8,
                        fuzz_data_bytes,
                        (fuzz_data_bytes - 9) & ~7u,
                        fuzz_data_bytes / 3,
                        fuzz_data_bytes / 2,
                        fuzz_data_bytes + 384,
                        1ull << 31,
                        UINT32_MAX,
                        (uint32_t)*fuzz_ring_word(8)};
    return bases[fuzz_below(sizeof bases / sizeof *bases)] + (fuzz_below(7) - 3) * (fuzz_one_in(4) ? 1 : 8);
}

static uint64_t fuzz_position(void) {
    uint64_t cycles[] = {0, 1, UINT32_MAX, UINT32_MAX - 1, 1ull << 31, *fuzz_ring_word(8) >> 32};
    uint64_t cycle = cycles[fuzz_below(sizeof cycles / sizeof *cycles)] + fuzz_below(3) - 1;
    return cycle << 32 | (uint32_t)(fuzz_one_in(3) ? fuzz_below(fuzz_data_bytes) & ~7ull : fuzz_edge_offset());
}

static uint64_t fuzz_uid(void) {
    static const uint32_t threads[] = {0, 1, 7, INT32_MAX, UINT32_MAX};
    return (fuzz_random() & 0xffffff00) << 32 | fuzz_below(140) << 32 | threads[fuzz_below(5)];
}

static uint64_t fuzz_value(void) {
    switch (fuzz_below(9)) {
    case 0: return fuzz_random();
    case 1: return fuzz_below(24);
    case 2: return 0 - fuzz_below(9);
    case 3: return (1ull << 63) + fuzz_below(3) - 1;
    case 4: return fuzz_edge_offset();
    case 5: return fuzz_uid();
    case 6: return *fuzz_ring_word(8) + (fuzz_below(65) - 32) * 8;
    case 7: return *fuzz_side_word(128 + 8 * fuzz_below(6)) + fuzz_below(3) - 1;
    default: return fuzz_position();
    }
}

static uint64_t *fuzz_target(void) {
    uint64_t words = fuzz_data_bytes / 8;
    switch (fuzz_below(10)) {
    case 0: return fuzz_ring_word(8);                                                    /* write_pointer */
    case 1: return fuzz_ring_word(8 * fuzz_below(48));                                   /* the header */
    case 2: return fuzz_ring_word(384);                                                  /* the first message */
    case 3: return fuzz_ring_word(384 + ((uint32_t)*fuzz_ring_word(8) / 8 % words) * 8); /* the next message */
    case 4:
    case 5: return fuzz_ring_word(384 + 8 * fuzz_below(words));
    case 6: return fuzz_side_word(8 * fuzz_below(28));          /* all before the entries */
    case 7: return fuzz_side_word(128 + 8 * fuzz_below(6));     /* the grant */
    case 8: return fuzz_side_word(256 + 8 * fuzz_below(2304));  /* the entries */
    default: return fuzz_side_word(18688 + 8 * fuzz_below(64)); /* the schema */
    }
}

/* Mark a row as locked by its owner. The rows of publishers and subscribers have the same size. */
static void fuzz_scribble_held(void) {
    uint64_t row = 256 + 128 * fuzz_below(144);
    uint64_t uid = __atomic_load_n(fuzz_side_word(row), __ATOMIC_RELAXED);
    __atomic_store_n(fuzz_side_word(row), uid ? uid : fuzz_uid(), __ATOMIC_RELAXED);
    __atomic_store_n(fuzz_side_word(row + 56), uid ? uid : *fuzz_side_word(row), __ATOMIC_RELAXED);
}

/* Write a shadow copy, as left by a dead writer of the schema. Most sizes are near the maximum. */
static void fuzz_scribble_spare(void) {
    uint64_t room = FUZZ_SIDE - 18928, turn = *fuzz_side_word(192) | 1;
    uint64_t offset = (fuzz_one_in(4) ? fuzz_below(room) : room - fuzz_below(600)) & ~7ull;
    if (offset + 8 <= room)
        __atomic_store_n(fuzz_side_word(18928 + offset), fuzz_one_in(2) ? fuzz_below(room) : fuzz_value(),
                         __ATOMIC_RELAXED);
    __atomic_store_n(fuzz_side_word(208), turn << 32 | offset, __ATOMIC_RELAXED);
    __atomic_store_n(fuzz_side_word(192), turn, __ATOMIC_RELAXED);
}

static void fuzz_scribble_topic(void) {
    switch (fuzz_below(32)) {
    case 0: fuzz_scribble_held(); return;
    case 1: fuzz_scribble_spare(); return;
    }
    uint64_t *word = fuzz_target(), value = fuzz_value();
    __atomic_store_n(word, value, __ATOMIC_RELAXED);
}

#endif
