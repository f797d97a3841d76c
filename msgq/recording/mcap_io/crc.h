/* Fold bytes for a CRC-32, ten to forty times as fast as with a table. zlib and MCAP use the same CRC.
 *
 * A CRC is the remainder of the message as a polynomial over GF(2). Multiply some bytes by x^n mod P, and add the
 * product to the bytes n bits later. The message changes, but its remainder stays the same. Therefore each 64 bytes are
 * folded into the next 64 bytes. The CRC of the last 16 bytes is then the CRC of all bytes. The bits are reflected, as
 * in the CRC. Therefore the constants are shifted: x^(n+32) and x^(n-32) mod P, for n = 512 and 128. */
#ifndef MSGQ_RECORDING_CRC_H
#define MSGQ_RECORDING_CRC_H

#include <stdint.h>

#if defined(__x86_64__)
#include <immintrin.h>

static inline int mq_crc_is_fold_supported(void) {
    return __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1");
}

__attribute__((target("pclmul,sse4.1"))) static inline __m128i mq_crc_fold_lane(__m128i value, __m128i factors,
                                                                                const uint8_t *next) {
    const __m128i low = _mm_clmulepi64_si128(value, factors, 0x00);
    const __m128i high = _mm_clmulepi64_si128(value, factors, 0x11);
    return _mm_xor_si128(_mm_xor_si128(low, high), _mm_loadu_si128((const __m128i *)next));
}

static inline int mq_crc_is_wide_fold_supported(void) {
    return __builtin_cpu_supports("vpclmulqdq") && __builtin_cpu_supports("avx512f");
}

__attribute__((target("vpclmulqdq,avx512f"))) static inline __m512i
mq_crc_fold_wide_lane(__m512i value, __m512i factors, __m512i next) {
    const __m512i low = _mm512_clmulepi64_epi128(value, factors, 0x00);
    const __m512i high = _mm512_clmulepi64_epi128(value, factors, 0x11);
    return _mm512_xor_si512(_mm512_xor_si512(low, high), next);
}

/* Fold like mq_crc_fold_narrow, with registers of 64 bytes. `size` is at least 256. */
__attribute__((target("vpclmulqdq,avx512f,pclmul,sse4.1"))) static void
mq_crc_fold_wide(const uint8_t *bytes, int64_t size, uint32_t start, uint8_t *folded) {
    const __m512i by_2048 = _mm512_broadcast_i32x4(_mm_set_epi64x(0x1322d1430, 0x11542778a));
    const __m512i by_512 = _mm512_broadcast_i32x4(_mm_set_epi64x(0x1c6e41596, 0x154442bd4));
    const __m128i by_128 = _mm_set_epi64x(0x0ccaa009e, 0x1751997d0);
    __m512i lanes[4];
    uint8_t parts[64];
    int64_t at = 256;
    for (int i = 0; i < 4; i++)
        lanes[i] = _mm512_loadu_si512(bytes + 64 * i);
    lanes[0] = _mm512_xor_si512(lanes[0], _mm512_zextsi128_si512(_mm_cvtsi32_si128((int)~start)));
    for (; at + 256 <= size; at += 256)
        for (int i = 0; i < 4; i++)
            lanes[i] = mq_crc_fold_wide_lane(lanes[i], by_2048, _mm512_loadu_si512(bytes + at + 64 * i));
    for (int i = 1; i < 4; i++)
        lanes[i] = mq_crc_fold_wide_lane(lanes[i - 1], by_512, lanes[i]);
    for (; at < size; at += 64)
        lanes[3] = mq_crc_fold_wide_lane(lanes[3], by_512, _mm512_loadu_si512(bytes + at));
    _mm512_storeu_si512(parts, lanes[3]);
    __m128i rest = _mm_loadu_si128((const __m128i *)parts);
    for (int i = 1; i < 4; i++)
        rest = mq_crc_fold_lane(rest, by_128, parts + 16 * i);
    _mm_storeu_si128((__m128i *)folded, rest);
}

/* Fold with registers of 16 bytes. */
__attribute__((target("pclmul,sse4.1"))) static void mq_crc_fold_narrow(const uint8_t *bytes, int64_t size,
                                                                        uint32_t start, uint8_t *folded) {
    const __m128i by_512 = _mm_set_epi64x(0x1c6e41596, 0x154442bd4);
    const __m128i by_128 = _mm_set_epi64x(0x0ccaa009e, 0x1751997d0);
    __m128i lanes[4];
    for (int i = 0; i < 4; i++)
        lanes[i] = _mm_loadu_si128((const __m128i *)(bytes + 16 * i));
    /* a CRC is the inverted state of the computation */
    lanes[0] = _mm_xor_si128(lanes[0], _mm_cvtsi32_si128((int)~start));
    for (int64_t at = 64; at < size; at += 64)
        for (int i = 0; i < 4; i++)
            lanes[i] = mq_crc_fold_lane(lanes[i], by_512, bytes + at + 16 * i);
    for (int i = 1; i < 4; i++)
        lanes[i] = mq_crc_fold_lane(lanes[i - 1], by_128, (const uint8_t *)&lanes[i]);
    _mm_storeu_si128((__m128i *)folded, lanes[3]);
}

/* Fold `size` bytes, a positive multiple of 64, into the 16 bytes at `folded`. The CRC of the folded bytes, from the
 * state 0, is the CRC of all bytes. `start` is the CRC of previous bytes. */
static inline void mq_crc_fold_bytes(const uint8_t *bytes, int64_t size, uint32_t start, uint8_t *folded) {
    if (size >= 256 && mq_crc_is_wide_fold_supported())
        mq_crc_fold_wide(bytes, size, start, folded);
    else
        mq_crc_fold_narrow(bytes, size, start, folded);
}

#else

static inline int mq_crc_is_fold_supported(void) { return 0; } /* other machines use the CRC function of zlib */
static inline void mq_crc_fold_bytes(const uint8_t *bytes, int64_t size, uint32_t start, uint8_t *folded) {
    (void)bytes;
    (void)size;
    (void)start;
    (void)folded;
}

#endif

/* Multiply two polynomials modulo P. The bits are reflected: bit 31 is the coefficient of x^0. */
static inline uint32_t mq_crc_multiply(uint32_t left, uint32_t right) {
    uint32_t product = 0;
    for (uint32_t bit = 1u << 31; bit; bit >>= 1) {
        product ^= left & bit ? right : 0;
        right = right >> 1 ^ (right & 1 ? 0xEDB88320u : 0);
    }
    return product;
}

/* Return the CRC of two parts, from the CRC of each part. The first CRC is shifted by the bits of the second part:
 * multiplied by x^(8 * second_size). */
static inline uint32_t mq_crc_combine(uint32_t first, uint32_t second, uint64_t second_size) {
    uint32_t power = 1u << (31 - 8); /* x^8, then its squares */
    for (; second_size; second_size >>= 1, power = mq_crc_multiply(power, power))
        if (second_size & 1)
            first = mq_crc_multiply(first, power);
    return first ^ second;
}

#endif
