/* What the messages of the interoperation tests carry, so that a torn, repeated or lost one shows:
 * u32 crc32 of all that follows, u32 sequence, u32 size of the message, then bytes that depend on both.
 * Shorter messages than these twelve bytes are noise. `Tally` in __init__.py reads and writes the same form.
 */
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

enum { CHECKED_BYTES = 12 };

static uint64_t mixed(uint64_t x) {
    x += UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

static uint32_t crc_table[256];

static void fill_crc_table(void) {
    for (uint32_t i = 0; i < 256; i++) {
        crc_table[i] = i;
        for (int bit = 0; bit < 8; bit++)
            crc_table[i] = crc_table[i] >> 1 ^ (crc_table[i] & 1 ? 0xedb88320 : 0);
    }
}

static uint32_t crc32(const char *bytes, uint64_t count) {
    uint32_t crc = UINT32_MAX;
    for (uint64_t i = 0; i < count; i++)
        crc = crc >> 8 ^ crc_table[(crc ^ (uint8_t)bytes[i]) & 255];
    return ~crc;
}

static void compose(char *message, uint32_t sequence, uint32_t size) {
    for (uint32_t i = 0; i < size; i += 8) {
        uint64_t word = mixed((uint64_t)sequence << 32 | i);
        memcpy(message + i, &word, size - i < 8 ? size - i : 8);
    }
    if (size < CHECKED_BYTES)
        return;
    memcpy(message + 4, (uint32_t[]){sequence, size}, 8);
    memcpy(message, (uint32_t[]){crc32(message + 4, size - 4)}, 4);
}

static bool intact(const char *message, uint64_t size, uint32_t *sequence) {
    uint32_t start[3]; /* checksum, sequence, size */
    if (size < CHECKED_BYTES)
        return false;
    memcpy(start, message, sizeof start);
    *sequence = start[1];
    return start[2] == size && start[0] == crc32(message + 4, size - 4);
}
