/* SPDX-License-Identifier: Apache-2.0
 *
 * The model of a tensor-core product that the emulator computes, one output at
 * a time and without a shortcut.
 */
#ifndef CUDA_MMA_REFERENCE_H
#define CUDA_MMA_REFERENCE_H

#include <math.h>
#include <stdint.h>

/* A number that is not zero is (minus ? -1 : 1) m 2^(e - bits). */
typedef struct mma_term {
    int64_t m;
    int e, bits, minus;
} mma_term;

static inline mma_term mma_take_apart(float x, int bits)
{
    mma_term t = { 0, 0, bits, signbit(x) != 0 };
    double m = ldexp(frexp(fabs((double)x), &t.e), bits + 1);
    t.e--;
    if (x != 0.0f && t.e < -126) { /* denormal numbers keep exponent -126 */
        m = ldexp(m, t.e + 126);
        t.e = -126;
    }
    t.m = (int64_t)m;
    return t;
}

static inline mma_term mma_multiply(float a, float b)
{
    mma_term x = mma_take_apart(a, 7);
    mma_term y = mma_take_apart(b, 7);
    mma_term t = { x.m * y.m, x.e + y.e, 14, x.minus != y.minus };
    return t;
}

/* c + a[0] b[0] + ... + a[15] b[15]: all terms are cut toward zero 25 bits
 * below the largest exponent of a term that is not zero, and so is their sum
 * to fp32. */
static inline float mma_reference(const float a[16], const float b[16], float c)
{
    mma_term terms[17];
    double plain = (double)c;
    int top = -1000;
    for (int k = 0; k < 16; k++)
        plain += (double)a[k] * (double)b[k];
    if (!isfinite(plain))
        return (float)plain;
    for (int k = 0; k < 16; k++)
        terms[k] = mma_multiply(a[k], b[k]);
    terms[16] = mma_take_apart(c, 23);
    for (int k = 0; k < 17; k++)
        top = terms[k].m && terms[k].e > top ? terms[k].e : top;
    if (top == -1000)
        return c;
    int64_t sum = 0;
    for (int k = 0; k < 17; k++) {
        const mma_term *t = &terms[k];
        int down = top - t->e;
        int64_t x = t->m && down < 63 ? (t->m << (25 - t->bits)) >> down : 0;
        sum += t->minus ? -x : x;
    }
    double exact = ldexp((double)sum, top - 25);
    if (fabs(exact) >= 0x1p128)
        return copysignf(INFINITY, (float)exact);
    float near = (float)exact;
    return fabs((double)near) > fabs(exact) ? nextafterf(near, 0.0f) : near;
}

#endif
