/* SPDX-License-Identifier: Apache-2.0
 *
 * Sums in the order of the ranks, and copies. Every source is loaded before any
 * destination is written, since they may be the same memory.
 */
#include <immintrin.h>
#include <string.h>

#include "plugins/comm-shm/shm.h"

#define LANES 8u
#define BLOCK 32u    /* elements per iteration: four registers */
#define COPY 0x1000u /* bytes that stay in the first-level cache */

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

/* Sums 32 elements of every source, starting at element i. */
static void add_f32(const shm_sum *s, uint64_t i, __m256 *acc)
{
    const float *p = (const float *)s->src[0] + i;
    for (uint32_t k = 0; k < 4; k++)
        acc[k] = _mm256_loadu_ps(p + k * LANES);
    for (uint32_t r = 1; r < s->src_count; r++) {
        p = (const float *)s->src[r] + i;
        for (uint32_t k = 0; k < 4; k++)
            acc[k] = _mm256_add_ps(acc[k], _mm256_loadu_ps(p + k * LANES));
    }
}

static void add_bf16(const shm_sum *s, uint64_t i, __m256 *acc)
{
    const uint16_t *p = (const uint16_t *)s->src[0] + i;
    for (uint32_t k = 0; k < 4; k++)
        acc[k] = widen8(p + k * LANES);
    for (uint32_t r = 1; r < s->src_count; r++) {
        p = (const uint16_t *)s->src[r] + i;
        for (uint32_t k = 0; k < 4; k++)
            acc[k] = _mm256_add_ps(acc[k], widen8(p + k * LANES));
    }
}

static void store_lanes(void *to, __m256i v, int past)
{
    if (past)
        _mm256_stream_si256((__m256i *)to, v);
    else
        _mm256_storeu_si256((__m256i *)to, v);
}

static void sum_f32_block(const shm_sum *s, uint64_t i, int past)
{
    __m256 acc[4];
    add_f32(s, s->src_at + i, acc);
    for (uint32_t d = 0; d < s->dst_count; d++) {
        float *to = (float *)s->dst[d] + s->dst_at + i;
        for (uint32_t k = 0; k < 4; k++)
            store_lanes(to + k * LANES, _mm256_castps_si256(acc[k]), past);
    }
}

static void sum_bf16_block(const shm_sum *s, uint64_t i, int past)
{
    __m256 acc[4];
    add_bf16(s, s->src_at + i, acc);
    __m256i low = _mm256_set_m128i(narrow8(acc[1]), narrow8(acc[0]));
    __m256i high = _mm256_set_m128i(narrow8(acc[3]), narrow8(acc[2]));
    for (uint32_t d = 0; d < s->dst_count; d++) {
        uint16_t *to = (uint16_t *)s->dst[d] + s->dst_at + i;
        store_lanes(to, low, past);
        store_lanes(to + 2 * LANES, high, past);
    }
}

static void sum_f32_one(const shm_sum *s, uint64_t i)
{
    float acc = ((const float *)s->src[0])[s->src_at + i];
    for (uint32_t r = 1; r < s->src_count; r++)
        acc += ((const float *)s->src[r])[s->src_at + i];
    for (uint32_t d = 0; d < s->dst_count; d++)
        ((float *)s->dst[d])[s->dst_at + i] = acc;
}

static void sum_bf16_one(const shm_sum *s, uint64_t i)
{
    float acc = widen(((const uint16_t *)s->src[0])[s->src_at + i]);
    for (uint32_t r = 1; r < s->src_count; r++)
        acc += widen(((const uint16_t *)s->src[r])[s->src_at + i]);
    for (uint32_t d = 0; d < s->dst_count; d++)
        ((uint16_t *)s->dst[d])[s->dst_at + i] = narrow(acc);
}

void shm_sum_run(const shm_sum *s, uint64_t first, uint64_t n)
{
    uint64_t end = first + n;
    uint64_t i = first;
    int wide = s->dtype == XRAY_F32;
    uint64_t width = wide ? 4 : 2;
    const char *to = (const char *)s->dst[0] + (s->dst_at + first) * width;
    int past = s->stream && (uintptr_t)to % 32 == 0;
    for (; wide && i + BLOCK <= end; i += BLOCK)
        sum_f32_block(s, i, past);
    for (; !wide && i + BLOCK <= end; i += BLOCK)
        sum_bf16_block(s, i, past);
    for (; i < end; i++)
        (wide ? sum_f32_one : sum_bf16_one)(s, i);
}

/* ---- copies ------------------------------------------------------------- */

/* `n` is at most COPY, so the source is still cached for the next
 * destination. */
static void copy_block(char *to, const char *from, uint64_t n, int past)
{
    uint64_t i = 0;
    if (past && (uintptr_t)to % 32 == 0)
        for (; i + 128 <= n; i += 128)
            for (uint32_t k = 0; k < 128; k += 32)
                store_lanes(to + i + k,
                            _mm256_loadu_si256(
                                (const __m256i *)(const void *)(from + i + k)),
                            1);
    memcpy(to + i, from + i, n - i);
}

void shm_copy_run(const shm_copy *c)
{
    for (uint64_t i = 0; i < c->bytes; i += COPY) {
        uint64_t n = c->bytes - i < COPY ? c->bytes - i : COPY;
        for (uint32_t d = 0; d < c->count; d++)
            if (c->dst[d] && d != c->except)
                copy_block((char *)c->dst[d] + c->at + i, c->src + i, n,
                           c->stream != 0);
    }
}

void shm_flush_stores(void)
{
    _mm_sfence();
}
