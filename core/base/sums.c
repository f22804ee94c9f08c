/* SPDX-License-Identifier: Apache-2.0
 *
 * Sums in the order that <xray/comm.h> defines. Every source is loaded before
 * any destination is written, since they may be the same memory.
 */
#include "core/base/sums.h"

#include <immintrin.h>
#include <math.h>
#include <string.h>

#define LANES 8u
#define BLOCK 32u /* elements per iteration: four registers */

/* ---- bf16 as the device casts it: to nearest even, NaN stays NaN -------- */

static float widen(uint16_t x)
{
    uint32_t bits = (uint32_t)x << 16;
    float f;
    memcpy(&f, &bits, sizeof(f));
    return f;
}

static uint16_t narrow(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof(bits));
    if ((bits & 0x7fffffffu) > 0x7f800000u)
        return (uint16_t)(bits >> 16 | 0x40u);
    return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

static __m256 widen8(const uint16_t *p)
{
    __m128i half = _mm_loadu_si128((const __m128i *)(const void *)p);
    return _mm256_castsi256_ps(
        _mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16));
}

static __m128i narrow8(__m256 f)
{
    __m256i bits = _mm256_castps_si256(f);
    __m256i odd =
        _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    __m256i sum = _mm256_add_epi32(
        bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
    __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(f, f, _CMP_UNORD_Q));
    __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
    __m256i all = _mm256_srli_epi32(_mm256_blendv_epi8(sum, quiet, nan), 16);
    __m256i packed = _mm256_packus_epi32(all, all);
    return _mm256_castsi256_si128(_mm256_permute4x64_epi64(packed, 0x08));
}

/* ---- sums --------------------------------------------------------------- */

/* Sums over 2^k neighbouring fours of sources wait on level k for the next
 * ones, like the digits of a binary counter: that is the tree of
 * xray_comm_left. */
#define LEVELS 6u

_Static_assert(XR_SUM_MOST <= 4u << LEVELS, "a level per digit");

/* These are compiled for each type and number of sources, so that what they add
 * stays in registers. */
#define INLINE inline __attribute__((always_inline))

/* Loads 32 elements of source r, starting at element i. */
static INLINE void load_block(const xr_sum *s, uint32_t r, uint64_t i, int wide,
                              __m256 *to)
{
    const float *f = (const float *)s->src[r] + i;
    const uint16_t *b = (const uint16_t *)s->src[r] + i;
    for (uint32_t k = 0; k < 4; k++)
        to[k] = wide ? _mm256_loadu_ps(f + k * LANES) : widen8(b + k * LANES);
}

static INLINE void add_block(__m256 *to, const __m256 *other)
{
    for (uint32_t k = 0; k < 4; k++)
        to[k] = _mm256_add_ps(to[k], other[k]);
}

static INLINE void add_source(const xr_sum *s, uint32_t r, uint64_t i, int wide,
                              __m256 *to)
{
    __m256 block[4];
    load_block(s, r, i, wide, block);
    add_block(to, block);
}

/* Sums sources r .. r + n - 1, where n is at most 4. */
static INLINE void add_four(const xr_sum *s, uint32_t r, uint32_t n, uint64_t i,
                            int wide, __m256 *to)
{
    load_block(s, r, i, wide, to);
    if (n > 1)
        add_source(s, r + 1, i, wide, to);
    if (n == 3)
        add_source(s, r + 2, i, wide, to);
    if (n > 3) {
        __m256 right[4];
        load_block(s, r + 2, i, wide, right);
        add_source(s, r + 3, i, wide, right);
        add_block(to, right);
    }
}

/* Sums 32 elements of more than four sources, starting at element i. */
static INLINE void add_fours(const xr_sum *s, uint64_t i, int wide, __m256 *acc)
{
    __m256 level[LEVELS][4];
    uint32_t last = (s->src_count - 1) / 4;
    uint32_t at = 0;
    for (uint32_t four = 0; four < last; four++) {
        add_four(s, 4 * four, 4, i, wide, acc);
        for (at = 0; four >> at & 1; at++)
            add_block(acc, level[at]);
        memcpy(level[at], acc, sizeof(level[at]));
    }
    add_four(s, 4 * last, s->src_count - 4 * last, i, wide, acc);
    for (at = 0; last >> at; at++)
        if (last >> at & 1)
            add_block(acc, level[at]);
}

/* Sums 32 elements of `n` sources, or of more than four. */
static INLINE void add_sources(const xr_sum *s, uint32_t n, uint64_t i,
                               int wide, __m256 *acc)
{
    if (n <= 4)
        add_four(s, 0, n, i, wide, acc);
    else
        add_fours(s, i, wide, acc);
}

static void store_lanes(void *to, __m256i v, int past)
{
    if (past)
        _mm256_stream_si256((__m256i *)to, v);
    else
        _mm256_storeu_si256((__m256i *)to, v);
}

static INLINE void store_f32(const xr_sum *s, uint64_t i, const __m256 *acc,
                             int past)
{
    for (uint32_t d = 0; d < s->dst_count; d++) {
        float *to = (float *)s->dst[d] + s->dst_at + i;
        for (uint32_t k = 0; k < 4; k++)
            store_lanes(to + k * LANES, _mm256_castps_si256(acc[k]), past);
    }
}

static INLINE void store_bf16(const xr_sum *s, uint64_t i, const __m256 *acc,
                              int past)
{
    __m256i low = _mm256_set_m128i(narrow8(acc[1]), narrow8(acc[0]));
    __m256i high = _mm256_set_m128i(narrow8(acc[3]), narrow8(acc[2]));
    for (uint32_t d = 0; d < s->dst_count; d++) {
        uint16_t *to = (uint16_t *)s->dst[d] + s->dst_at + i;
        store_lanes(to, low, past);
        store_lanes(to + 2 * LANES, high, past);
    }
}

/* A NaN is less than every number. */
static float join_two(const xr_sum *s, float a, float b)
{
    if (!s->max)
        return a + b;
    return a > b || isnan(b) ? a : b;
}

/* Joins element i of sources first .. first + n - 1. */
static float join_ranks(const xr_sum *s, uint64_t i, uint32_t first, uint32_t n)
{
    if (n == 1)
        return s->dtype == XRAY_F32
                   ? ((const float *)s->src[first])[i]
                   : widen(((const uint16_t *)s->src[first])[i]);
    uint32_t left = xray_comm_left(n);
    float sum = join_ranks(s, i, first, left);
    return join_two(s, sum, join_ranks(s, i, first + left, n - left));
}

static uint32_t type_of_results(const xr_sum *s)
{
    return s->to ? s->to : s->dtype;
}

static void sum_one(const xr_sum *s, uint64_t i)
{
    float sum = join_ranks(s, s->src_at + i, 0, s->src_count);
    int wide = type_of_results(s) == XRAY_F32;
    for (uint32_t d = 0; d < s->dst_count; d++)
        if (wide)
            ((float *)s->dst[d])[s->dst_at + i] = sum;
        else
            ((uint16_t *)s->dst[d])[s->dst_at + i] = narrow(sum);
}

/* Sums whole blocks of sources of one type to destinations of one type; returns
 * the first element after them. */
static INLINE uint64_t sum_typed(const xr_sum *s, uint32_t n, uint64_t i,
                                 uint64_t end, int wide, int to_wide)
{
    int past = s->stream != 0;
    for (; i + BLOCK <= end; i += BLOCK) {
        __m256 acc[4];
        add_sources(s, n, s->src_at + i, wide, acc);
        if (to_wide)
            store_f32(s, i, acc, past);
        else
            store_bf16(s, i, acc, past);
    }
    return i;
}

static INLINE uint64_t sum_blocks(const xr_sum *s, uint32_t n, uint64_t i,
                                  uint64_t end)
{
    return s->dtype == XRAY_F32 ? sum_typed(s, n, i, end, 1, 1)
                                : sum_typed(s, n, i, end, 0, 0);
}

/* The same to destinations of the other type, which only parts of a sum have:
 * compiled once for all numbers of sources. */
static uint64_t sum_to_other(const xr_sum *s, uint64_t i, uint64_t end)
{
    return s->dtype == XRAY_F32 ? sum_typed(s, s->src_count, i, end, 1, 0)
                                : sum_typed(s, s->src_count, i, end, 0, 1);
}

void xr_sum_run(const xr_sum *sum, uint64_t first, uint64_t n)
{
    xr_sum copy = *sum;
    const xr_sum *s = &copy;
    uint64_t end = first + n;
    uint64_t i = first;
    uint64_t width = type_of_results(s) == XRAY_F32 ? 4 : 2;
    const char *to = (const char *)s->dst[0] + (s->dst_at + first) * width;
    copy.stream = s->stream && (uintptr_t)to % 32 == 0;
    if (!s->max && type_of_results(s) != s->dtype)
        i = sum_to_other(s, i, end);
    /* Maxima are of a number for each token, so they need no blocks. */
    switch (s->max ? 0 : s->src_count) {
    case 0:
        break;
    case 1:
        i = sum_blocks(s, 1, i, end);
        break;
    case 2:
        i = sum_blocks(s, 2, i, end);
        break;
    case 3:
        i = sum_blocks(s, 3, i, end);
        break;
    case 4:
        i = sum_blocks(s, 4, i, end);
        break;
    default:
        i = sum_blocks(s, 5, i, end);
        break;
    }
    for (; i < end; i++)
        sum_one(s, i);
}
