/* SPDX-License-Identifier: Apache-2.0
 *
 * Draws normal numbers, several at once where the processor has AVX2. Both ways
 * make the same operations of IEEE arithmetic, so they give the same bits.
 */
#include <math.h>

#include <xray/numerics.h>

#include "model/nn/weights_internal.h"

/* ---- one pair ------------------------------------------------------------ */

/* Natural logarithm from basic arithmetic, so that initial weights do not
 * depend on the C library: with x = m 2^e, ln m = 2 atanh((m-1)/(m+1)). */
static double portable_log(double x)
{
    int e = 0;
    double m = frexp(x, &e);
    if (m < 0.70710678118654752) {
        m *= 2;
        e--;
    }
    double s = (m - 1) / (m + 1);
    double s2 = s * s;
    double sum = 0;
    for (int k = 21; k >= 1; k -= 2)
        sum = sum * s2 + 1.0 / k;
    return 2 * s * sum + e * 0.69314718055994531;
}

/* Draws two normal numbers by the polar method (Marsaglia, 1964); each attempt
 * has its own Philox counter. */
static void draw_normal_pair(uint64_t key, uint64_t pair, double out[2])
{
    double u = 0;
    double v = 0;
    double r = 0;
    for (uint32_t attempt = 0;; attempt++) {
        xray_philox_out bits = xray_philox(key, (uint32_t)pair,
                                           (uint32_t)(pair >> 32), attempt, 0);
        u = ((double)bits.w[0] + 0.5) * 0x1p-31 - 1;
        v = ((double)bits.w[1] + 0.5) * 0x1p-31 - 1;
        r = u * u + v * v;
        if (r > 0 && r < 1)
            break;
    }
    double scale = sqrt(-2 * portable_log(r) / r);
    out[0] = u * scale;
    out[1] = v * scale;
}

void xm_draw_normals_plain(uint64_t key, double deviation, uint64_t first,
                           uint64_t count, float *out)
{
    for (uint64_t i = first / 2 * 2; i < first + count; i += 2) {
        double pair[2];
        draw_normal_pair(key, i / 2, pair);
        if (i >= first)
            out[i - first] = (float)(pair[0] * deviation);
        if (i + 1 < first + count)
            out[i + 1 - first] = (float)(pair[1] * deviation);
    }
}

/* ---- four pairs at once ------------------------------------------------- */

#if defined(__x86_64__)
#include <immintrin.h>

#define AVX2 __attribute__((target("avx2")))
#define PAIRS 256u /* of a batch; a multiple of 4 */

/* Pairs of a batch: their numbers, their points (u, v) in the square, and r =
 * u^2 + v^2. */
typedef struct batch {
    _Alignas(32) double u[PAIRS];
    _Alignas(32) double v[PAIRS];
    _Alignas(32) double r[PAIRS];
    uint32_t open[PAIRS + 3]; /* places whose point is outside the circle */
    uint32_t open_count;
} batch;

/* A word below 2^32 in the low half of each lane, as a double: below a mantissa
 * of 2^52 it is a number as it is. */
AVX2 static inline __m256d words_to_doubles(__m256i words)
{
    const __m256i low = _mm256_set1_epi64x(0xFFFFFFFF);
    const __m256i base = _mm256_castpd_si256(_mm256_set1_pd(0x1p52));
    __m256i bits = _mm256_or_si256(_mm256_and_si256(words, low), base);
    return _mm256_sub_pd(_mm256_castsi256_pd(bits), _mm256_set1_pd(0x1p52));
}

AVX2 static inline __m256d words_to_points(__m256i words)
{
    __m256d w = _mm256_add_pd(words_to_doubles(words), _mm256_set1_pd(0.5));
    return _mm256_sub_pd(_mm256_mul_pd(w, _mm256_set1_pd(0x1p-31)),
                         _mm256_set1_pd(1));
}

/* The key of each round of xray_philox, in the low half of each lane. */
typedef struct round_keys {
    __m256i low[10];
    __m256i high[10];
} round_keys;

AVX2 static void expand_key(uint64_t key, round_keys *out)
{
    uint32_t k0 = (uint32_t)key;
    uint32_t k1 = (uint32_t)(key >> 32);
    for (int round = 0; round < 10; round++) {
        out->low[round] = _mm256_set1_epi64x(k0);
        out->high[round] = _mm256_set1_epi64x(k1);
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
}

/* The first two words of xray_philox. Only the low half of each lane counts:
 * the products read no more. */
AVX2 static inline void draw_words(const round_keys *keys, __m256i pairs,
                                   uint32_t attempt, __m256i out[2])
{
    __m256i c0 = pairs;
    __m256i c1 = _mm256_srli_epi64(pairs, 32);
    __m256i c2 = _mm256_set1_epi64x(attempt);
    __m256i c3 = _mm256_setzero_si256();
    for (int round = 0; round < 10; round++) {
        __m256i a = _mm256_mul_epu32(c0, _mm256_set1_epi64x(0xD2511F53));
        __m256i b = _mm256_mul_epu32(c2, _mm256_set1_epi64x(0xCD9E8D57));
        c0 = _mm256_xor_si256(_mm256_srli_epi64(b, 32),
                              _mm256_xor_si256(c1, keys->low[round]));
        c2 = _mm256_xor_si256(_mm256_srli_epi64(a, 32),
                              _mm256_xor_si256(c3, keys->high[round]));
        c1 = b;
        c3 = a;
    }
    out[0] = c0;
    out[1] = c1;
}

/* Draws the points of four pairs; bit i of the result says that point i is
 * outside the circle. */
AVX2 static inline int draw_points(const round_keys *keys, __m256i pairs,
                                   uint32_t attempt, double u[4], double v[4],
                                   double r[4])
{
    __m256i words[2];
    draw_words(keys, pairs, attempt, words);
    __m256d x = words_to_points(words[0]);
    __m256d y = words_to_points(words[1]);
    __m256d rr = _mm256_add_pd(_mm256_mul_pd(x, x), _mm256_mul_pd(y, y));
    __m256d in =
        _mm256_and_pd(_mm256_cmp_pd(rr, _mm256_setzero_pd(), _CMP_GT_OQ),
                      _mm256_cmp_pd(rr, _mm256_set1_pd(1), _CMP_LT_OQ));
    _mm256_store_pd(u, x);
    _mm256_store_pd(v, y);
    _mm256_store_pd(r, rr);
    return _mm256_movemask_pd(in) ^ 15;
}

AVX2 static void draw_first_points(const round_keys *keys, uint64_t first,
                                   uint32_t count, batch *b)
{
    uint32_t open = 0;
    for (uint32_t i = 0; i < count; i += 4) {
        __m256i pairs = _mm256_add_epi64(_mm256_set1_epi64x((int64_t)first + i),
                                         _mm256_setr_epi64x(0, 1, 2, 3));
        int outside = draw_points(keys, pairs, 0, b->u + i, b->v + i, b->r + i);
        for (uint32_t j = 0; j < 4; j++) {
            b->open[open] = i + j;
            open += (uint32_t)(outside >> j) & 1;
        }
    }
    b->open_count = open;
}

/* Draws again for the pairs whose point was outside, four at a time. */
AVX2 static void draw_further_points(const round_keys *keys, uint64_t first,
                                     uint32_t attempt, batch *b)
{
    uint32_t count = b->open_count;
    uint32_t open = 0;
    for (uint32_t j = 0; j < 3; j++) /* pads the last four */
        b->open[count + j] = b->open[count - 1];
    for (uint32_t i = 0; i < count; i += 4) {
        _Alignas(32) double u[4];
        _Alignas(32) double v[4];
        _Alignas(32) double r[4];
        uint32_t at[4] = { b->open[i], b->open[i + 1], b->open[i + 2],
                           b->open[i + 3] };
        __m256i pairs =
            _mm256_add_epi64(_mm256_set1_epi64x((int64_t)first),
                             _mm256_setr_epi64x(at[0], at[1], at[2], at[3]));
        int outside = draw_points(keys, pairs, attempt, u, v, r);
        for (uint32_t j = 0; j < 4 && i + j < count; j++) {
            b->u[at[j]] = u[j];
            b->v[at[j]] = v[j];
            b->r[at[j]] = r[j];
            b->open[open] = at[j];
            open += (uint32_t)(outside >> j) & 1;
        }
    }
    b->open_count = open;
}

/* portable_log of normal numbers. */
AVX2 static inline __m256d log_of_four(__m256d x)
{
    const __m256d one = _mm256_set1_pd(1);
    const __m256i mantissa = _mm256_set1_epi64x(0xFFFFFFFFFFFFF);
    __m256i bits = _mm256_castpd_si256(x);
    __m256d e = _mm256_sub_pd(words_to_doubles(_mm256_srli_epi64(bits, 52)),
                              _mm256_set1_pd(1022));
    __m256d m = _mm256_castsi256_pd(
        _mm256_or_si256(_mm256_and_si256(bits, mantissa),
                        _mm256_castpd_si256(_mm256_set1_pd(0.5))));
    __m256d small =
        _mm256_cmp_pd(m, _mm256_set1_pd(0.70710678118654752), _CMP_LT_OQ);
    m = _mm256_add_pd(m, _mm256_and_pd(small, m));
    e = _mm256_sub_pd(e, _mm256_and_pd(small, one));
    __m256d s = _mm256_div_pd(_mm256_sub_pd(m, one), _mm256_add_pd(m, one));
    __m256d s2 = _mm256_mul_pd(s, s);
    __m256d sum = _mm256_setzero_pd();
    static const double terms[] = { 1.0 / 21, 1.0 / 19, 1.0 / 17, 1.0 / 15,
                                    1.0 / 13, 1.0 / 11, 1.0 / 9,  1.0 / 7,
                                    1.0 / 5,  1.0 / 3,  1.0 };
    for (size_t k = 0; k < sizeof terms / sizeof terms[0]; k++)
        sum = _mm256_add_pd(_mm256_mul_pd(sum, s2), _mm256_set1_pd(terms[k]));
    __m256d log_m = _mm256_mul_pd(_mm256_add_pd(s, s), sum);
    return _mm256_add_pd(log_m,
                         _mm256_mul_pd(e, _mm256_set1_pd(0.69314718055994531)));
}

AVX2 static void write_normals(const batch *b, double deviation, uint32_t count,
                               float *out)
{
    const __m256d d = _mm256_set1_pd(deviation);
    for (uint32_t i = 0; i < count; i += 4) {
        __m256d r = _mm256_load_pd(b->r + i);
        __m256d scale = _mm256_sqrt_pd(_mm256_div_pd(
            _mm256_mul_pd(_mm256_set1_pd(-2), log_of_four(r)), r));
        __m256d x = _mm256_mul_pd(_mm256_load_pd(b->u + i), scale);
        __m256d y = _mm256_mul_pd(_mm256_load_pd(b->v + i), scale);
        __m128 low = _mm256_cvtpd_ps(_mm256_mul_pd(x, d));
        __m128 high = _mm256_cvtpd_ps(_mm256_mul_pd(y, d));
        _mm_storeu_ps(out + 2 * (size_t)i, _mm_unpacklo_ps(low, high));
        _mm_storeu_ps(out + 2 * (size_t)i + 4, _mm_unpackhi_ps(low, high));
    }
}

/* `first` is even and `count` a multiple of 8. */
AVX2 static void draw_many(uint64_t key, double deviation, uint64_t first,
                           uint64_t count, float *out)
{
    batch b;
    round_keys keys;
    expand_key(key, &keys);
    for (uint64_t at = 0; at < count; at += 2 * PAIRS) {
        uint64_t left = (count - at) / 2;
        uint32_t pairs = left < PAIRS ? (uint32_t)left : PAIRS;
        draw_first_points(&keys, (first + at) / 2, pairs, &b);
        for (uint32_t attempt = 1; b.open_count; attempt++)
            draw_further_points(&keys, (first + at) / 2, attempt, &b);
        write_normals(&b, deviation, pairs, out + at);
    }
}

void xm_draw_normals(uint64_t key, double deviation, uint64_t first,
                     uint64_t count, float *out)
{
    uint64_t before = first % 2 && count ? 1 : 0;
    uint64_t many =
        __builtin_cpu_supports("avx2") ? (count - before) / 8 * 8 : 0;
    uint64_t done = before + many;
    xm_draw_normals_plain(key, deviation, first, before, out);
    draw_many(key, deviation, first + before, many, out + before);
    xm_draw_normals_plain(key, deviation, first + done, count - done,
                          out + done);
}

#else

void xm_draw_normals(uint64_t key, double deviation, uint64_t first,
                     uint64_t count, float *out)
{
    xm_draw_normals_plain(key, deviation, first, count, out);
}

#endif
