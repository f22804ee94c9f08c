/* SPDX-License-Identifier: Apache-2.0
 *
 * Sixteen lanes of float32 in two AVX2 registers.
 */
#ifndef CPU_VEC_AVX2_H
#define CPU_VEC_AVX2_H

#include <immintrin.h>
#include <string.h>

#define VEC_ROWS 6
#define VEC_WIDE 4
#define VEC_DOUBLES 4

typedef struct v16 {
    __m256 a;
    __m256 b;
} v16;

typedef struct i16 {
    __m256i a;
    __m256i b;
} i16;

typedef i16 m16; /* all ones where set */

VFN i16 i16_set(int32_t x)
{
    return (i16){ _mm256_set1_epi32(x), _mm256_set1_epi32(x) };
}

VFN i16 i16_iota(int32_t first)
{
    __m256i base = _mm256_set1_epi32(first);
    return (i16){
        _mm256_add_epi32(base, _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7)),
        _mm256_add_epi32(base, _mm256_setr_epi32(8, 9, 10, 11, 12, 13, 14, 15))
    };
}

VFN m16 m16_first(size_t n)
{
    __m256i limit = _mm256_set1_epi32(n > 16 ? 16 : (int32_t)n);
    i16 lane = i16_iota(0);
    return (m16){ _mm256_cmpgt_epi32(limit, lane.a),
                  _mm256_cmpgt_epi32(limit, lane.b) };
}

VFN v16 v16_set(float x)
{
    return (v16){ _mm256_set1_ps(x), _mm256_set1_ps(x) };
}

VFN v16 v16_load(const float *p)
{
    return (v16){ _mm256_loadu_ps(p), _mm256_loadu_ps(p + 8) };
}

VFN v16 v16_loadn(const float *p, size_t n)
{
    if (n >= 16)
        return v16_load(p);
    m16 m = m16_first(n);
    v16 x = { _mm256_maskload_ps(p, m.a), _mm256_setzero_ps() };
    if (n > 8)
        x.b = _mm256_maskload_ps(p + 8, m.b);
    return x;
}

/* bf16 values are the upper halves of floats. */
VFN __m256 v8_widen(const uint16_t *p)
{
    __m256i x = _mm256_cvtepu16_epi32(
        _mm_loadu_si128((const __m128i *)(const void *)p));
    return _mm256_castsi256_ps(_mm256_slli_epi32(x, 16));
}

VFN v16 v16_widen(const uint16_t *p)
{
    return (v16){ v8_widen(p), v8_widen(p + 8) };
}

VFN v16 v16_widenn(const uint16_t *p, size_t n)
{
    if (n >= 16)
        return v16_widen(p);
    uint16_t some[16] = { 0 };
    memcpy(some, p, n * sizeof(*p));
    return v16_widen(some);
}

VFN void v16_store(float *p, v16 x)
{
    _mm256_storeu_ps(p, x.a);
    _mm256_storeu_ps(p + 8, x.b);
}

VFN void v16_storen(float *p, v16 x, size_t n)
{
    if (n >= 16) {
        v16_store(p, x);
        return;
    }
    m16 m = m16_first(n);
    _mm256_maskstore_ps(p, m.a, x.a);
    if (n > 8)
        _mm256_maskstore_ps(p + 8, m.b, x.b);
}

/* Lanes 0 to 7 and 8 to 15. */
VFN __m256 v16_low(v16 x)
{
    return x.a;
}

VFN __m256 v16_high(v16 x)
{
    return x.b;
}

#define V16_BINARY(name, op)                        \
    VFN v16 v16_##name(v16 x, v16 y)                \
    {                                               \
        return (v16){ op(x.a, y.a), op(x.b, y.b) }; \
    }
V16_BINARY(add, _mm256_add_ps)
V16_BINARY(sub, _mm256_sub_ps)
V16_BINARY(mul, _mm256_mul_ps)
V16_BINARY(div, _mm256_div_ps)
V16_BINARY(max, _mm256_max_ps) /* a > b ? a : b */
V16_BINARY(min, _mm256_min_ps)

VFN v16 v16_fma(v16 x, v16 y, v16 z)
{
    return (v16){ _mm256_fmadd_ps(x.a, y.a, z.a),
                  _mm256_fmadd_ps(x.b, y.b, z.b) };
}

VFN v16 v16_sqrt(v16 x)
{
    return (v16){ _mm256_sqrt_ps(x.a), _mm256_sqrt_ps(x.b) };
}

VFN m16 v16_lt(v16 x, v16 y)
{
    return (m16){ _mm256_castps_si256(_mm256_cmp_ps(x.a, y.a, _CMP_LT_OQ)),
                  _mm256_castps_si256(_mm256_cmp_ps(x.b, y.b, _CMP_LT_OQ)) };
}

VFN m16 m16_range(size_t first, size_t last)
{
    m16 f = m16_first(first);
    m16 l = m16_first(last);
    return (m16){ _mm256_andnot_si256(f.a, l.a),
                  _mm256_andnot_si256(f.b, l.b) };
}

VFN int m16_all(m16 m)
{
    return _mm256_movemask_epi8(_mm256_and_si256(m.a, m.b)) == -1;
}

VFN v16 v16_pick(m16 m, v16 yes, v16 no)
{
    return (v16){ _mm256_blendv_ps(no.a, yes.a, _mm256_castsi256_ps(m.a)),
                  _mm256_blendv_ps(no.b, yes.b, _mm256_castsi256_ps(m.b)) };
}

VFN i16 i16_pick(m16 m, i16 yes, i16 no)
{
    return (i16){ _mm256_blendv_epi8(no.a, yes.a, m.a),
                  _mm256_blendv_epi8(no.b, yes.b, m.b) };
}

VFN void i16_store(int32_t *p, i16 x)
{
    _mm256_storeu_si256((__m256i *)(void *)p, x.a);
    _mm256_storeu_si256((__m256i *)(void *)(p + 8), x.b);
}

VFN __m256i v8_half(__m256 x)
{
    __m256i bits = _mm256_castps_si256(x);
    __m256i odd =
        _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    __m256i near = _mm256_add_epi32(
        _mm256_add_epi32(bits, _mm256_set1_epi32(0x7FFF)), odd);
    __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
    __m256 nan = _mm256_cmp_ps(x, x, _CMP_UNORD_Q);
    __m256 half = _mm256_blendv_ps(_mm256_castsi256_ps(near),
                                   _mm256_castsi256_ps(quiet), nan);
    return _mm256_srli_epi32(_mm256_castps_si256(half), 16);
}

/* The bits of x as bf16, rounded to nearest even; NaN stays NaN. */
VFN i16 v16_half(v16 x)
{
    return (i16){ v8_half(x.a), v8_half(x.b) };
}

/* Stores lanes 0 to n - 1, which have to fit 16 bits without a sign. */
VFN void i16_halven(uint16_t *p, i16 x, size_t n)
{
    __m256i h = _mm256_permute4x64_epi64(_mm256_packus_epi32(x.a, x.b), 0xD8);
    if (n >= 16) {
        _mm256_storeu_si256((__m256i *)(void *)p, h);
        return;
    }
    uint16_t some[16];
    _mm256_storeu_si256((__m256i *)(void *)some, h);
    memcpy(p, some, n * sizeof(*p));
}

#define I16_BINARY(name, op)                        \
    VFN i16 i16_##name(i16 x, i16 y)                \
    {                                               \
        return (i16){ op(x.a, y.a), op(x.b, y.b) }; \
    }
I16_BINARY(add, _mm256_add_epi32)
I16_BINARY(sub, _mm256_sub_epi32)
I16_BINARY(and, _mm256_and_si256)
I16_BINARY(or, _mm256_or_si256)
I16_BINARY(xor, _mm256_xor_si256)

/* For each pair of lanes: the 64-bit product of its first lanes, as a pair. */
I16_BINARY(mul_first, _mm256_mul_epu32)

/* For each pair: its second lane, then 0. */
VFN i16 i16_second(i16 x)
{
    return (i16){ _mm256_srli_epi64(x.a, 32), _mm256_srli_epi64(x.b, 32) };
}

/* For each pair: the first lane of x, then the first lane of y. */
VFN i16 i16_firsts(i16 x, i16 y)
{
    return (i16){ _mm256_blend_epi32(x.a, _mm256_slli_epi64(y.a, 32), 0xAA),
                  _mm256_blend_epi32(x.b, _mm256_slli_epi64(y.b, 32), 0xAA) };
}

VFN i16 i16_sll(i16 x, int n)
{
    return (i16){ _mm256_slli_epi32(x.a, n), _mm256_slli_epi32(x.b, n) };
}

VFN i16 i16_srl(i16 x, int n)
{
    return (i16){ _mm256_srli_epi32(x.a, n), _mm256_srli_epi32(x.b, n) };
}

VFN i16 i16_sra(i16 x, int n)
{
    return (i16){ _mm256_srai_epi32(x.a, n), _mm256_srai_epi32(x.b, n) };
}

VFN i16 v16_bits(v16 x)
{
    return (i16){ _mm256_castps_si256(x.a), _mm256_castps_si256(x.b) };
}

VFN v16 i16_float(i16 x)
{
    return (v16){ _mm256_castsi256_ps(x.a), _mm256_castsi256_ps(x.b) };
}

VFN v16 i16_convert(i16 x)
{
    return (v16){ _mm256_cvtepi32_ps(x.a), _mm256_cvtepi32_ps(x.b) };
}

VFN __m256 v8_even(__m256 x, __m256 y, int odd)
{
    __m256 s =
        odd ? _mm256_shuffle_ps(x, y, 0xDD) : _mm256_shuffle_ps(x, y, 0x88);
    return _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(s), 0xD8));
}

VFN void v16_split(const float *p, v16 *even, v16 *odd)
{
    __m256 a = _mm256_loadu_ps(p);
    __m256 b = _mm256_loadu_ps(p + 8);
    __m256 c = _mm256_loadu_ps(p + 16);
    __m256 d = _mm256_loadu_ps(p + 24);
    *even = (v16){ v8_even(a, b, 0), v8_even(c, d, 0) };
    *odd = (v16){ v8_even(a, b, 1), v8_even(c, d, 1) };
}

VFN i16 i8_zip(__m256i x, __m256i y)
{
    __m256i low = _mm256_unpacklo_epi32(x, y);
    __m256i high = _mm256_unpackhi_epi32(x, y);
    return (i16){ _mm256_permute2x128_si256(low, high, 0x20),
                  _mm256_permute2x128_si256(low, high, 0x31) };
}

/* Interleaves the lanes of a and b: lanes 0 to 7 of both, then 8 to 15. */
VFN void i16_zip(i16 a, i16 b, i16 out[2])
{
    out[0] = i8_zip(a.a, b.a);
    out[1] = i8_zip(a.b, b.b);
}

/* Lanes 0 to 7, twice. */
VFN v16 v16_twice(v16 x)
{
    return (v16){ x.a, x.a };
}

/* Lanes 8 to 15, then 0 to 7. */
VFN v16 v16_swap(v16 x)
{
    return (v16){ x.b, x.a };
}

#endif
