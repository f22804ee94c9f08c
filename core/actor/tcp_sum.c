/* SPDX-License-Identifier: Apache-2.0
 *
 * Sums up payloads, with the widest vectors that the processor has.
 */
#include "core/actor/tcp_sum.h"

#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "core/base/hash.h"

#define LANES (XR_TCP_STEP / sizeof(uint64_t))
/* The golden ratio, whose multiples are spread over all numbers. */
#define KEY UINT64_C(0x9e3779b97f4a7c15)
/* Bytes that are asked for in advance, since the processor's own prefetcher
 * stops at the end of a page. */
#define AHEAD 1024

/* Of each lane of each stream. */
typedef struct sums {
    uint64_t words[XR_TCP_STREAMS][LANES];
    uint64_t products[XR_TCP_STREAMS][LANES];
} sums;

static void add_plain(const unsigned char *at, uint64_t length, sums *s)
{
    uint64_t key = 0;
    for (uint64_t n = 0; n < length; n += XR_TCP_STEP) {
        key += KEY;
#pragma GCC unroll 4
        for (uint32_t i = 0; i < XR_TCP_STREAMS; i++) {
            uint64_t word[LANES];
            memcpy(word, at + i * length + n, sizeof(word));
#pragma GCC unroll 4
            for (uint32_t lane = 0; lane < LANES; lane++) {
                const uint64_t mixed = word[lane] ^ key;
                s->words[i][lane] += word[lane];
                s->products[i][lane] += (uint32_t)mixed * (mixed >> 32);
            }
        }
    }
}

#if defined(__x86_64__)
__attribute__((target("avx2"))) static void add_wide(const unsigned char *at,
                                                     uint64_t length, sums *s)
{
    const __m256i step = _mm256_set1_epi64x((int64_t)KEY);
    __m256i words[XR_TCP_STREAMS] = { 0 };
    __m256i products[XR_TCP_STREAMS] = { 0 };
    __m256i key = _mm256_setzero_si256();
    for (uint64_t n = 0; n < length; n += XR_TCP_STEP) {
        key = _mm256_add_epi64(key, step);
#pragma GCC unroll 4 /* which keeps the numbers in registers */
        for (uint32_t i = 0; i < XR_TCP_STREAMS; i++) {
            const unsigned char *from = at + i * length + n;
            _mm_prefetch((const char *)from + AHEAD, _MM_HINT_T0);
            const __m256i word = _mm256_loadu_si256((const void *)from);
            const __m256i mixed = _mm256_xor_si256(word, key);
            const __m256i high = _mm256_srli_epi64(mixed, 32);
            words[i] = _mm256_add_epi64(words[i], word);
            products[i] =
                _mm256_add_epi64(products[i], _mm256_mul_epu32(mixed, high));
        }
    }
    memcpy(s->words, words, sizeof(words));
    memcpy(s->products, products, sizeof(products));
}

static int has_wide(void)
{
    return __builtin_cpu_supports("avx2");
}
#else
#define add_wide add_plain

static int has_wide(void)
{
    return 0;
}
#endif

static uint64_t sum_bytes(const unsigned char *data, uint64_t size,
                          uint64_t seed, int wide)
{
    const uint64_t length = size / (XR_TCP_STREAMS * XR_TCP_STEP) * XR_TCP_STEP;
    const uint64_t tail = size - XR_TCP_STREAMS * length;
    sums s = { 0 };
    if (length && wide)
        add_wide(data, length, &s);
    else if (length)
        add_plain(data, length, &s);
    if (length)
        seed = xr_hash64(&s, sizeof(s), seed);
    return tail ? xr_hash64(data + size - tail, (size_t)tail, seed) : seed;
}

uint64_t xr_tcp_sum(const void *data, uint64_t size, uint64_t seed)
{
    return sum_bytes(data, size, seed, has_wide());
}

uint64_t xr_tcp_sum_plain(const void *data, uint64_t size, uint64_t seed)
{
    return sum_bytes(data, size, seed, 0);
}
