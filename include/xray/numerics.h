/* SPDX-License-Identifier: Apache-2.0
 *
 * xray/numerics.h - the part of the numerics contract xray.fp32/2
 * (docs/numerics.md) that hosts and devices both compute: random numbers,
 * checksums, sums of squares and the sines of rotary tables.
 *
 * The functions are inline and compile as C11, C++17 and CUDA, there for the
 * host and for the device. They use only integer operations and fma, rint, +, *
 * and conversions of IEEE 754, none of which a compiler may contract into
 * another rounding, so the bits are the same in every build. Functions of
 * doubles need the math library of the host (fma, rint), and the rounding mode
 * must be the default, to nearest even.
 */
#ifndef XRAY_NUMERICS_H
#define XRAY_NUMERICS_H

#include <math.h>
#include <stdint.h>

#ifdef __CUDACC__
#define XRAY_FN_ static __host__ __device__ __forceinline__
#else
#define XRAY_FN_ static inline
#endif

/* ---- random numbers ------------------------------------------------------ */

/* The upper word of a product. A kernel gets it from CUDA's own function: nvcc
 * turns a chain of 64-bit products, of which halves are taken, into one and a
 * half times the instructions. */
XRAY_FN_ uint32_t xray_upper_word_(uint32_t a, uint32_t b)
{
#ifdef __CUDA_ARCH__
    return __umulhi(a, b);
#else
    return (uint32_t)((uint64_t)a * b >> 32);
#endif
}

/* Four words of 32 random bits. */
typedef struct xray_philox_out {
    uint32_t w[4];
} xray_philox_out;

/* Philox4x32-10 (Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as
 * easy as 1, 2, 3", 2011): a bijection of the counter (c0, c1, c2, c3) for each
 * key, so that a number depends on its purpose and never on the time of the
 * draw. The key's low half is the paper's first key word. Ten rounds of
 *
 *   a = 0xD2511F53 * c0, b = 0xCD9E8D57 * c2            as 64-bit products
 *   (c0, c1, c2, c3) = (high(b) ^ c1 ^ k0, low(b), high(a) ^ c3 ^ k1, low(a))
 *   k0 += 0x9E3779B9, k1 += 0xBB67AE85                  modulo 2^32
 *
 * For token v of the vocabulary a sampler uses the counter
 * (v / 4, position, sample, 0) and takes word v % 4 of the result: xray_draw in
 * <xray/head.h>. */
XRAY_FN_ xray_philox_out xray_philox(uint64_t key, uint32_t c0, uint32_t c1,
                                     uint32_t c2, uint32_t c3)
{
    uint32_t k0 = (uint32_t)key;
    uint32_t k1 = (uint32_t)(key >> 32);
    xray_philox_out out;
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
    for (int round = 0; round < 10; round++) {
        uint32_t n0 = xray_upper_word_(0xCD9E8D57u, c2) ^ c1 ^ k0;
        uint32_t n2 = xray_upper_word_(0xD2511F53u, c0) ^ c3 ^ k1;
        c1 = 0xCD9E8D57u * c2;
        c3 = 0xD2511F53u * c0;
        c0 = n0;
        c2 = n2;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    out.w[0] = c0;
    out.w[1] = c1;
    out.w[2] = c2;
    out.w[3] = c3;
    return out;
}

/* u in (0, 1) of 32 random bits w: ((w >> 9) + 0.5) * 2^-23, the centre of one
 * of 2^23 cells. It is exact, so the result is never 0 or 1. */
XRAY_FN_ float xray_unit(uint32_t bits)
{
    return ((float)(bits >> 9) + 0.5f) * 0x1p-23f;
}

/* Mixes one more word into a 64-bit key: the step of splitmix64 (Steele, Lea
 * and Flood, "Fast splittable pseudorandom number generators", 2014) from the
 * state key ^ word. */
XRAY_FN_ uint64_t xray_mix64(uint64_t key, uint64_t word)
{
    uint64_t z = (key ^ word) + 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

/* Key of the draws made for one prompt in one step of a run. */
XRAY_FN_ uint64_t xray_philox_key(uint64_t seed, uint64_t step,
                                  uint64_t prompt_id)
{
    return xray_mix64(xray_mix64(xray_mix64(0, seed), step), prompt_id);
}

/* ---- checksums ----------------------------------------------------------- */

/* The contribution of the 8-byte little-endian word number `index` to a
 * checksum. The checksum of bytes is the sum modulo 2^64 of all contributions
 * and of xray_checksum_length. A contribution is linear in both halves of the
 * word, with odd weights that depend on the index. So if bytes of a word are
 * taken as 0, the contributions of its parts add up to that of the word, and
 * the checksums of disjoint parts of a tensor, each with its bytes numbered as
 * in the tensor, add up to the tensor's, wherever it was cut. */
XRAY_FN_ uint64_t xray_checksum_word(uint64_t index, uint64_t word)
{
    uint64_t z = (index + 1) * 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 32)) * 0xBF58476D1CE4E5B9u;
    z ^= z >> 29;
    return (word & 0xFFFFFFFFu) * (z | 1u) +
           (word >> 32) * ((z >> 32 | z << 32) | 1u);
}

/* The contribution of the number of bytes to their checksum. */
XRAY_FN_ uint64_t xray_checksum_length(uint64_t bytes)
{
    return bytes * 0x94D049BB133111EBu;
}

/* ---- sums of squares ----------------------------------------------------- */

/* A sum of squares of floats as a fixed-point number, which holds every such
 * sum without rounding, so that it does not depend on any order. The unit is
 * 2^-298, the square of the smallest float above 0. Word i counts 2^(32 i)
 * units; the last word counts the entries that are not finite, which have no
 * square. There is room for 2^40 squares of the largest float. A word has the
 * width of a sum: words may be added, modulo 2^64, without a carry, and those
 * that are subtracted in between may be below 0, as long as the sum is not. */
#define XRAY_SQUARES_WORDS 20u

/* Carries, so that every word but the last is below 2^32 and equal sums have
 * equal words. */
XRAY_FN_ void xray_squares_carry(uint64_t *words)
{
    uint64_t carry = 0;
    for (uint32_t i = 0; i + 1 < XRAY_SQUARES_WORDS; i++) {
        uint64_t word = words[i] + carry;
        words[i] = word & 0xFFFFFFFFu;
        carry = (word >> 32) - (word >> 63 << 32); /* keeps the sign */
    }
}

/* The sum after xray_squares_carry, rounded once, to nearest even; NaN if an
 * entry was not finite. */
XRAY_FN_ double xray_squares_value(const uint64_t *words)
{
    uint64_t head = 0; /* the first 64 bits from the highest that is 1 */
    uint64_t rest = 0; /* 1: a bit below them is 1 */
    int32_t below = 0; /* how many bits are below them */
    if (words[XRAY_SQUARES_WORDS - 1])
        return (double)NAN;
    for (uint32_t i = 32 * (XRAY_SQUARES_WORDS - 1); i-- > 0;) {
        uint64_t bit = words[i / 32] >> i % 32 & 1u;
        if (head >> 63) {
            rest |= bit;
            below++;
        } else {
            head = head << 1 | bit;
        }
    }
    return ldexp((double)(head | rest), below - 298);
}

/* ---- rotary tables ------------------------------------------------------- */

/* sin and cos of x radians, 0 <= x < 2^30, in double: n = rint(x * 2/pi),
 * r = x - n pi/2 by three fma with pi/2 in three parts (the reduction of Cody
 * and Waite, "Software manual for the elementary functions", 1980), then the
 * Taylor polynomials of sin to r^17 and of cos to r^16 on [-pi/4, pi/4], by
 * Horner steps of fma; n mod 4 selects which of them is the sine, and the
 * signs. Absolute errors are below 2^-52. */
XRAY_FN_ void xray_sine_cosine(double x, double *out_sin, double *out_cos)
{
    double n = rint(x * 0x1.45f306dc9c883p-1); /* 2 / pi */
    double r = fma(-n, 0x1.921fb544p+0, x);    /* pi / 2: 31 bits, */
    r = fma(-n, 0x1.0b4611a6p-34, r);          /* 32 more, */
    r = fma(-n, 0x1.3198a2e037073p-69, r);     /* and 53 */
    double u = r * r;
    double s = 0x1.952c77030ad4ap-49;      /* 1 / 17! */
    s = fma(s, u, -0x1.ae7f3e733b81fp-41); /* -1 / 15! */
    s = fma(s, u, 0x1.6124613a86d09p-33);
    s = fma(s, u, -0x1.ae64567f544e4p-26);
    s = fma(s, u, 0x1.71de3a556c734p-19);
    s = fma(s, u, -0x1.a01a01a01a01ap-13);
    s = fma(s, u, 0x1.1111111111111p-7);
    s = fma(s, u, -0x1.5555555555555p-3); /* -1 / 3! */
    s = fma(s * u, r, r);
    double c = 0x1.ae7f3e733b81fp-45;      /* 1 / 16! */
    c = fma(c, u, -0x1.93974a8c07c9dp-37); /* -1 / 14! */
    c = fma(c, u, 0x1.1eed8eff8d898p-29);
    c = fma(c, u, -0x1.27e4fb7789f5cp-22);
    c = fma(c, u, 0x1.a01a01a01a01ap-16);
    c = fma(c, u, -0x1.6c16c16c16c17p-10);
    c = fma(c, u, 0x1.5555555555555p-5);
    c = fma(c, u, -0.5); /* -1 / 2! */
    c = fma(c, u, 1.0);
    uint32_t quarter = (uint32_t)n & 3u;
    double a = quarter & 1u ? c : s;
    double b = quarter & 1u ? s : c;
    *out_sin = quarter & 2u ? -a : a;
    *out_cos = quarter == 1u || quarter == 2u ? -b : b;
}

/* One pair of a rotary table (xray_rope_table): cos and sin of the angle
 * position * inv_freq radians, a double below 2^30, each times `scale` in
 * double and then rounded to float once. */
XRAY_FN_ void xray_rope_pair(uint64_t position, double inv_freq, float scale,
                             float out_pair[2])
{
    double s;
    double c;
    xray_sine_cosine((double)position * inv_freq, &s, &c);
    out_pair[0] = (float)(c * (double)scale);
    out_pair[1] = (float)(s * (double)scale);
}

#endif
