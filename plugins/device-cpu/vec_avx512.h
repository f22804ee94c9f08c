/* SPDX-License-Identifier: Apache-2.0
 *
 * Sixteen lanes of float32 in one AVX-512 register.
 */
#ifndef CPU_VEC_AVX512_H
#define CPU_VEC_AVX512_H

#include <immintrin.h>

#define VEC_ROWS 14 /* rows of the largest matrix tile */
#define VEC_WIDE 8  /* panels that a one-row tile computes at once */
#define VEC_DOUBLES 8

typedef __m512 v16;
typedef __m512i i16;
typedef __mmask16 m16;

VFN m16 m16_first(size_t n)
{
    return (m16)(n >= 16 ? 0xFFFFu : (1u << n) - 1u);
}

VFN v16 v16_set(float x)
{
    return _mm512_set1_ps(x);
}

VFN v16 v16_load(const float *p)
{
    return _mm512_loadu_ps(p);
}

VFN v16 v16_loadn(const float *p, size_t n)
{
    return _mm512_maskz_loadu_ps(m16_first(n), p);
}

/* bf16 values are the upper halves of floats. */
VFN v16 v16_widen(const uint16_t *p)
{
    __m512i x = _mm512_cvtepu16_epi32(
        _mm256_loadu_si256((const __m256i *)(const void *)p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(x, 16));
}

VFN v16 v16_widenn(const uint16_t *p, size_t n)
{
    __m512i x =
        _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(m16_first(n), p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(x, 16));
}

VFN void v16_store(float *p, v16 x)
{
    _mm512_storeu_ps(p, x);
}

VFN void v16_storen(float *p, v16 x, size_t n)
{
    _mm512_mask_storeu_ps(p, m16_first(n), x);
}

/* Lanes 0 to 7 and 8 to 15. */
VFN __m256 v16_low(v16 x)
{
    return _mm512_castps512_ps256(x);
}

VFN __m256 v16_high(v16 x)
{
    return _mm512_extractf32x8_ps(x, 1);
}

VFN v16 v16_add(v16 a, v16 b)
{
    return _mm512_add_ps(a, b);
}

VFN v16 v16_sub(v16 a, v16 b)
{
    return _mm512_sub_ps(a, b);
}

VFN v16 v16_mul(v16 a, v16 b)
{
    return _mm512_mul_ps(a, b);
}

VFN v16 v16_div(v16 a, v16 b)
{
    return _mm512_div_ps(a, b);
}

VFN v16 v16_fma(v16 a, v16 b, v16 c)
{
    return _mm512_fmadd_ps(a, b, c);
}

VFN v16 v16_sqrt(v16 a)
{
    return _mm512_sqrt_ps(a);
}

/* a > b ? a : b; the second operand where one of them is NaN. */
VFN v16 v16_max(v16 a, v16 b)
{
    return _mm512_max_ps(a, b);
}

VFN v16 v16_min(v16 a, v16 b)
{
    return _mm512_min_ps(a, b);
}

VFN m16 v16_lt(v16 a, v16 b)
{
    return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ);
}

/* Lanes first <= i < last. */
VFN m16 m16_range(size_t first, size_t last)
{
    return (m16)(m16_first(last) & (m16)~m16_first(first));
}

/* yes where m is set, else no. */
VFN int m16_all(m16 m)
{
    return m == 0xFFFF;
}

VFN v16 v16_pick(m16 m, v16 yes, v16 no)
{
    return _mm512_mask_blend_ps(m, no, yes);
}

VFN i16 i16_pick(m16 m, i16 yes, i16 no)
{
    return _mm512_mask_blend_epi32(m, no, yes);
}

VFN i16 i16_set(int32_t x)
{
    return _mm512_set1_epi32(x);
}

VFN i16 i16_iota(int32_t first)
{
    return _mm512_add_epi32(_mm512_set1_epi32(first),
                            _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10,
                                              11, 12, 13, 14, 15));
}

VFN void i16_store(int32_t *p, i16 x)
{
    _mm512_storeu_si512(p, x);
}

/* Stores the lower halves of lanes 0 to n - 1. */
VFN void i16_halven(uint16_t *p, i16 x, size_t n)
{
    __m256i h = _mm512_cvtepi32_epi16(x);
    if (n >= 16)
        _mm256_storeu_si256((__m256i *)(void *)p, h);
    else
        _mm256_mask_storeu_epi16(p, m16_first(n), h);
}

/* The bits of x as bf16, rounded to nearest even; NaN stays NaN. */
VFN i16 v16_half(v16 x)
{
    i16 bits = _mm512_castps_si512(x);
    m16 even = _mm512_testn_epi32_mask(bits, i16_set(0x10000));
    m16 nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
    i16 near = _mm512_add_epi32(bits, i16_set(0x8000));
    near = _mm512_mask_sub_epi32(near, even, near, i16_set(1));
    near = _mm512_mask_or_epi32(near, nan, bits, i16_set(0x400000));
    return _mm512_srli_epi32(near, 16);
}

VFN i16 i16_add(i16 a, i16 b)
{
    return _mm512_add_epi32(a, b);
}

VFN i16 i16_sub(i16 a, i16 b)
{
    return _mm512_sub_epi32(a, b);
}

VFN i16 i16_and(i16 a, i16 b)
{
    return _mm512_and_si512(a, b);
}

VFN i16 i16_or(i16 a, i16 b)
{
    return _mm512_or_si512(a, b);
}

VFN i16 i16_xor(i16 a, i16 b)
{
    return _mm512_xor_si512(a, b);
}

/* For each pair of lanes: the 64-bit product of its first lanes, as a pair. */
VFN i16 i16_mul_first(i16 a, i16 b)
{
    return _mm512_mul_epu32(a, b);
}

/* For each pair: its second lane, then 0. */
VFN i16 i16_second(i16 a)
{
    return _mm512_srli_epi64(a, 32);
}

/* For each pair: the first lane of a, then the first lane of b. */
VFN i16 i16_firsts(i16 a, i16 b)
{
    return _mm512_mask_mov_epi32(a, 0xAAAA, _mm512_slli_epi64(b, 32));
}

#define i16_sll(a, n) _mm512_slli_epi32(a, n)
#define i16_srl(a, n) _mm512_srli_epi32(a, n)
#define i16_sra(a, n) _mm512_srai_epi32(a, n)

VFN i16 v16_bits(v16 a)
{
    return _mm512_castps_si512(a);
}

VFN v16 i16_float(i16 a)
{
    return _mm512_castsi512_ps(a);
}

VFN v16 i16_convert(i16 a)
{
    return _mm512_cvtepi32_ps(a);
}

/* Lane 2i of p[0..31] to even, 2i + 1 to odd. */
VFN void v16_split(const float *p, v16 *even, v16 *odd)
{
    v16 a = _mm512_loadu_ps(p);
    v16 b = _mm512_loadu_ps(p + 16);
    i16 e = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26,
                              28, 30);
    *even = _mm512_permutex2var_ps(a, e, b);
    *odd =
        _mm512_permutex2var_ps(a, _mm512_add_epi32(e, _mm512_set1_epi32(1)), b);
}

/* Interleaves the lanes of a and b: lanes 0 to 7 of both, then 8 to 15. */
VFN void i16_zip(i16 a, i16 b, i16 out[2])
{
    i16 first = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6,
                                  22, 7, 23);
    out[0] = _mm512_permutex2var_epi32(a, first, b);
    out[1] = _mm512_permutex2var_epi32(
        a, _mm512_add_epi32(first, _mm512_set1_epi32(8)), b);
}

/* Lanes 0 to 7, twice. */
VFN v16 v16_twice(v16 x)
{
    return _mm512_shuffle_f32x4(x, x, 0x44);
}

/* Lanes 8 to 15, then 0 to 7. */
VFN v16 v16_swap(v16 x)
{
    return _mm512_shuffle_f32x4(x, x, 0x4E);
}

#endif
