/* SPDX-License-Identifier: Apache-2.0
 *
 * Sixteen lanes of float32 and the functions that the numerics contract defines
 * on them: the fixed tree of a row sum, exp, log and tanh. Kernels are compiled
 * once per instruction set, selected by VEC_ISA, and use only these operations,
 * so all instruction sets do the same roundings in the same order.
 */
#ifndef CPU_VEC_H
#define CPU_VEC_H

#include <stddef.h>
#include <stdint.h>

#define VEC_SCALAR 1
#define VEC_AVX2 2
#define VEC_AVX512 3

/* Vector code needs its lanes in registers, so everything is inlined and
 * unrolled. */
#if VEC_ISA == VEC_SCALAR
#define VFN static inline __attribute__((unused))
#define UNROLL(n)
#else
#define VFN static inline __attribute__((always_inline, unused))
#define UNROLL(n) _Pragma(#n)
#endif
#define UNROLL_ROWS UNROLL(GCC unroll 14)
#define UNROLL_PANELS UNROLL(GCC unroll 8)

#if VEC_ISA == VEC_AVX512
#include "plugins/device-cpu/vec_avx512.h"
#elif VEC_ISA == VEC_AVX2
#include "plugins/device-cpu/vec_avx2.h"
#else
#include "plugins/device-cpu/vec_scalar.h"
#endif

#define VEC_INF __builtin_inff()

/* Store x as bf16, all of it or lanes 0 to n - 1. */
VFN void v16_narrow(uint16_t *p, v16 x)
{
    i16_halven(p, v16_half(x), 16);
}

VFN void v16_narrown(uint16_t *p, v16 x, size_t n)
{
    i16_halven(p, v16_half(x), n);
}

#define VEC_F32 0
#define VEC_BF16 1
#define VEC_ROUND 2 /* float32 that is rounded to bf16 as it is read */

/* Elements i to i + n - 1 of x, which are of a kind above. */
VFN v16 v16_take(const void *x, int kind, size_t i, size_t n)
{
    if (kind == VEC_BF16)
        return v16_widenn((const uint16_t *)x + i, n);
    v16 r = v16_loadn((const float *)x + i, n);
    return kind == VEC_ROUND ? i16_float(i16_sll(v16_half(r), 16)) : r;
}

VFN void v16_put(void *y, int kind, size_t i, v16 x, size_t n)
{
    if (kind == VEC_BF16)
        v16_narrown((uint16_t *)y + i, x, n);
    else
        v16_storen((float *)y + i, x, n);
}

/* The tree ((8)(4)(2)(1)): lane i is combined with lane i + 8, then i + 4, i +
 * 2, i + 1. */
#if VEC_ISA == VEC_SCALAR
VFN float v16_sum(v16 x)
{
    float s[16];
    v16_store(s, x);
    for (int half = 8; half > 0; half /= 2)
        for (int i = 0; i < half; i++)
            s[i] += s[i + half];
    return s[0];
}

VFN float v16_hmax(v16 x)
{
    float s[16];
    v16_store(s, x);
    for (int half = 8; half > 0; half /= 2)
        for (int i = 0; i < half; i++)
            s[i] = s[i] > s[i + half] ? s[i] : s[i + half];
    return s[0];
}
#else
#define V16_FOLD(name, op)                                          \
    VFN float name(v16 x)                                           \
    {                                                               \
        __m256 e = _mm256_##op##_ps(v16_low(x), v16_high(x));       \
        __m128 q = _mm_##op##_ps(_mm256_castps256_ps128(e),         \
                                 _mm256_extractf128_ps(e, 1));      \
        q = _mm_##op##_ps(q, _mm_movehl_ps(q, q));                  \
        return _mm_cvtss_f32(_mm_##op##_ss(q, _mm_movehdup_ps(q))); \
    }
V16_FOLD(v16_sum, add)
V16_FOLD(v16_hmax, max)
#endif

/* 2^n for n in [-126, 127]. */
VFN v16 v16_pow2(i16 n)
{
    return i16_float(i16_sll(i16_add(n, i16_set(127)), 23));
}

/* e^x: x = n ln 2 + r, a polynomial in r, and two scalings, so that results
 * below the normal range round once. Below -104 the result is 0, above 88.73
 * inf. */
VFN v16 v16_exp(v16 x)
{
    v16 magic = v16_set(0x1.8p23f);
    x = v16_max(v16_set(-104.0f), x);
    x = v16_min(v16_set(89.0f), x);
    v16 shifted = v16_fma(x, v16_set(0x1.715476p+0f), magic);
    v16 n = v16_sub(shifted, magic);
    v16 r = v16_fma(n, v16_set(-0x1.62e400p-1f), x);
    r = v16_fma(n, v16_set(-0x1.7f7d1cp-20f), r);
    v16 p = v16_set(0x1.6a234cp-10f);
    p = v16_fma(p, r, v16_set(0x1.123a6ep-7f));
    p = v16_fma(p, r, v16_set(0x1.5558f4p-5f));
    p = v16_fma(p, r, v16_set(0x1.555490p-3f));
    p = v16_fma(p, r, v16_set(0x1.fffffcp-2f));
    p = v16_fma(p, v16_mul(r, r), r);
    p = v16_add(p, v16_set(1.0f));
    i16 complete = i16_sub(v16_bits(shifted), v16_bits(magic));
    i16 half = i16_sra(complete, 1);
    p = v16_mul(p, v16_pow2(half));
    return v16_mul(p, v16_pow2(i16_sub(complete, half)));
}

/* e^x where m is set, else 0. The other lanes are not given -inf, because
 * computing a result in the subnormal range, even one that rounds to 0, is
 * slow. */
VFN v16 v16_exp_of(m16 m, v16 x)
{
    v16 zero = v16_set(0.0f);
    return v16_pick(m, v16_exp(v16_pick(m, x, zero)), zero);
}

/* ln x: x = 2^e m with m in [sqrt 1/2, sqrt 2), and a polynomial in m - 1. 0
 * gives -inf, negative numbers give NaN. */
VFN v16 v16_log(v16 x)
{
    m16 small = v16_lt(x, v16_set(0x1p-126f));
    v16 wide = v16_pick(small, v16_mul(x, v16_set(0x1p23f)), x);
    i16 bits = v16_bits(wide);
    i16 e = i16_sra(i16_sub(bits, i16_set(0x3F3504F3)), 23);
    v16 f = v16_sub(i16_float(i16_sub(bits, i16_sll(e, 23))), v16_set(1.0f));
    v16 n =
        v16_sub(i16_convert(e), v16_pick(small, v16_set(23.0f), v16_set(0.0f)));
    v16 p = v16_set(0x1.1457a2p-4f);
    p = v16_fma(p, f, v16_set(-0x1.de3c14p-4f));
    p = v16_fma(p, f, v16_set(0x1.e6f06cp-4f));
    p = v16_fma(p, f, v16_set(-0x1.fc2208p-4f));
    p = v16_fma(p, f, v16_set(0x1.233768p-3f));
    p = v16_fma(p, f, v16_set(-0x1.555c4ep-3f));
    p = v16_fma(p, f, v16_set(0x1.99a4b6p-3f));
    p = v16_fma(p, f, v16_set(-0x1.000006p-2f));
    p = v16_fma(p, f, v16_set(0x1.555548p-2f));
    v16 ff = v16_mul(f, f);
    v16 y = v16_mul(v16_mul(f, ff), p);
    y = v16_fma(n, v16_set(0x1.7f7d1cp-20f), y);
    y = v16_fma(v16_set(-0.5f), ff, y);
    y = v16_add(f, y);
    y = v16_fma(n, v16_set(0x1.62e400p-1f), y);
    y = v16_pick(v16_lt(v16_set(0.0f), x), y, v16_set(-VEC_INF));
    y = v16_pick(v16_lt(x, v16_set(VEC_INF)), y, x);
    return v16_pick(v16_lt(x, v16_set(0.0f)), v16_set(__builtin_nanf("")), y);
}

/* tanh x: an odd polynomial below 0.625, otherwise 1 - 2 / (e^2|x| + 1). */
VFN v16 v16_tanh(v16 x)
{
    i16 sign = i16_and(v16_bits(x), i16_set(INT32_MIN));
    v16 a = i16_float(i16_and(v16_bits(x), i16_set(INT32_MAX)));
    v16 u = v16_mul(x, x);
    v16 p = v16_set(-0x1.75e1cap-8f);
    p = v16_fma(p, u, v16_set(0x1.52269ap-6f));
    p = v16_fma(p, u, v16_set(-0x1.b83c5ap-5f));
    p = v16_fma(p, u, v16_set(0x1.110726p-3f));
    p = v16_fma(p, u, v16_set(-0x1.555532p-2f));
    v16 near = v16_fma(v16_mul(p, u), x, x);
    v16 e = v16_exp(v16_add(a, a));
    v16 far = v16_sub(v16_set(1.0f),
                      v16_div(v16_set(2.0f), v16_add(e, v16_set(1.0f))));
    far = i16_float(i16_or(v16_bits(far), sign));
    return v16_pick(v16_lt(a, v16_set(0.625f)), near, far);
}

/* The same functions of a single value. */
VFN float f_exp(float x)
{
    float y[16];
    v16_store(y, v16_exp(v16_set(x)));
    return y[0];
}

VFN float f_log(float x)
{
    float y[16];
    v16_store(y, v16_log(v16_set(x)));
    return y[0];
}

#endif
