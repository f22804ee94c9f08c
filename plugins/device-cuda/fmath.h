/* SPDX-License-Identifier: Apache-2.0
 *
 * The functions of docs/numerics.md for kernels: the fixed tree of a row sum,
 * exp, log and tanh, each with the CPU's roundings in the CPU's order
 * (plugins/device-cpu/vec.h). nvcc must not contract them (--fmad=false).
 * Philox and the sines of rotary tables are those of xray/numerics.h.
 */
#ifndef CUDA_FMATH_H
#define CUDA_FMATH_H

#include "plugins/device-cuda/cu.h"

#define CU_FULL 0xffffffffu /* all lanes of a warp */

/* The number of items of an extent: `bound`, or the value at `live` if that is
 * less. */
CU_FN uint64_t cu_count(uint64_t bound, const int32_t *live)
{
    if (!live)
        return bound;
    int32_t n = *live;
    if (n < 0)
        return 0;
    return (uint64_t)n < bound ? (uint64_t)n : bound;
}

/* The tree ((8)(4)(2)(1)): partial sum i is added to i + 8, then i + 4, i + 2,
 * i + 1. */
CU_FN float cu_tree16(const float s[16])
{
    float e[8];
#pragma unroll
    for (int i = 0; i < 8; i++)
        e[i] = s[i] + s[i + 8];
#pragma unroll
    for (int i = 0; i < 4; i++)
        e[i] = e[i] + e[i + 4];
    e[0] = e[0] + e[2];
    e[1] = e[1] + e[3];
    return e[0] + e[1];
}

/* The same tree over each half of a warp. Lane i of a half holds partial sum i,
 * and all lanes of that half get the result. Addition commutes, so both lanes
 * of an exchange compute the same bits. Called by a complete warp. */
CU_FN float cu_half_tree16(float partial)
{
    partial = partial + __shfl_xor_sync(CU_FULL, partial, 8);
    partial = partial + __shfl_xor_sync(CU_FULL, partial, 4);
    partial = partial + __shfl_xor_sync(CU_FULL, partial, 2);
    return partial + __shfl_xor_sync(CU_FULL, partial, 1);
}

/* The same tree with partial sum l in lane l < 16; the values of other lanes do
 * not enter. All lanes get the result. Called by a complete warp. */
CU_FN float cu_warp_tree16(float partial)
{
    return __shfl_sync(CU_FULL, cu_half_tree16(partial), 0);
}

/* 2^n for n in [-126, 127]. */
CU_FN float cu_pow2(int32_t n)
{
    return cu_float((uint32_t)(n + 127) << 23);
}

/* e^r for |r| <= ln 2 / 2. */
CU_FN float cu_exp_near(float r)
{
    float p = 0x1.6a234cp-10f;
    p = fmaf(p, r, 0x1.123a6ep-7f);
    p = fmaf(p, r, 0x1.5558f4p-5f);
    p = fmaf(p, r, 0x1.555490p-3f);
    p = fmaf(p, r, 0x1.fffffcp-2f);
    p = fmaf(p, r * r, r);
    return p + 1.0f;
}

/* e^x; 0 below -104, inf above 88.73, NaN for NaN. */
CU_FN float cu_exp(float x)
{
    const float magic = 0x1.8p23f;
    x = -104.0f > x ? -104.0f : x;
    x = 89.0f < x ? 89.0f : x;
    float shifted = fmaf(x, 0x1.715476p+0f, magic);
    float n = shifted - magic;
    float r = fmaf(n, -0x1.62e400p-1f, x);
    r = fmaf(n, -0x1.7f7d1cp-20f, r);
    float p = cu_exp_near(r);
    int32_t complete = (int32_t)(cu_bits(shifted) - cu_bits(magic));
    int32_t half = complete >> 1;
    p = p * cu_pow2(half);
    return p * cu_pow2(complete - half);
}

/* e^x for x <= 0, with the bits of cu_exp in two thirds of the instructions. p
 * is multiplied by 2^(n + 64), whose exponent the low bits of `shifted` are,
 * and rounded once, by the last product. x log2 e is never a half of an odd
 * number, so the offset in `magic` does not change how it is rounded. */
CU_FN float cu_exp_below(float x)
{
    const float magic = 0x1.8p23f + (64.0f + 127.0f);
    x = -104.0f > x ? -104.0f : x;
    float shifted = fmaf(x, 0x1.715476p+0f, magic);
    float n = shifted - magic;
    float r = fmaf(n, -0x1.62e400p-1f, x);
    r = fmaf(n, -0x1.7f7d1cp-20f, r);
    float p = cu_exp_near(r);
    return p * cu_float(cu_bits(shifted) << 23) * 0x1p-64f;
}

/* ln x; -inf for 0, NaN for negative numbers. */
CU_FN float cu_log(float x)
{
    int small = x < 0x1p-126f;
    uint32_t bits = cu_bits(small ? x * 0x1p23f : x);
    int32_t e = (int32_t)(bits - 0x3F3504F3u) >> 23;
    float f = cu_float(bits - ((uint32_t)e << 23)) - 1.0f;
    float n = (float)e - (small ? 23.0f : 0.0f);
    float p = 0x1.1457a2p-4f;
    p = fmaf(p, f, -0x1.de3c14p-4f);
    p = fmaf(p, f, 0x1.e6f06cp-4f);
    p = fmaf(p, f, -0x1.fc2208p-4f);
    p = fmaf(p, f, 0x1.233768p-3f);
    p = fmaf(p, f, -0x1.555c4ep-3f);
    p = fmaf(p, f, 0x1.99a4b6p-3f);
    p = fmaf(p, f, -0x1.000006p-2f);
    p = fmaf(p, f, 0x1.555548p-2f);
    float ff = f * f;
    float y = (f * ff) * p;
    y = fmaf(n, 0x1.7f7d1cp-20f, y);
    y = fmaf(-0.5f, ff, y);
    y = f + y;
    y = fmaf(n, 0x1.62e400p-1f, y);
    y = 0.0f < x ? y : cu_float(0xff800000u);
    y = x < cu_float(0x7f800000u) ? y : x;
    return x < 0.0f ? cu_float(0x7fc00000u) : y;
}

CU_FN float cu_tanh(float x)
{
    float a = cu_float(cu_bits(x) & 0x7fffffffu);
    float u = x * x;
    float p = -0x1.75e1cap-8f;
    p = fmaf(p, u, 0x1.52269ap-6f);
    p = fmaf(p, u, -0x1.b83c5ap-5f);
    p = fmaf(p, u, 0x1.110726p-3f);
    p = fmaf(p, u, -0x1.555532p-2f);
    float near_0 = fmaf(p * u, x, x);
    float far_0 = 1.0f - 2.0f / (cu_exp(a + a) + 1.0f);
    far_0 = cu_float(cu_bits(far_0) | (cu_bits(x) & 0x80000000u));
    return a < 0.625f ? near_0 : far_0;
}

#endif
