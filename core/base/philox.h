/* SPDX-License-Identifier: Apache-2.0
 *
 * Counter-based random numbers: Philox4x32-10 (Salmon et al., "Parallel random
 * numbers: as easy as 1, 2, 3", 2011). A number depends on what it is for,
 * never on when it is drawn.
 */
#ifndef XR_PHILOX_H
#define XR_PHILOX_H

#include <stdint.h>

typedef struct xr_philox_out {
    uint32_t w[4];
} xr_philox_out;

static inline xr_philox_out xr_philox(uint64_t key, uint32_t c0, uint32_t c1,
                                      uint32_t c2, uint32_t c3)
{
    uint32_t k0 = (uint32_t)key;
    uint32_t k1 = (uint32_t)(key >> 32);
    for (int round = 0; round < 10; round++) {
        uint64_t a = (uint64_t)0xD2511F53u * c0;
        uint64_t b = (uint64_t)0xCD9E8D57u * c2;
        uint32_t n0 = (uint32_t)(b >> 32) ^ c1 ^ k0;
        uint32_t n2 = (uint32_t)(a >> 32) ^ c3 ^ k1;
        c1 = (uint32_t)b;
        c3 = (uint32_t)a;
        c0 = n0;
        c2 = n2;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    return (xr_philox_out){ { c0, c1, c2, c3 } };
}

/* Mixes one more word into a 64-bit key (the finalizer of splitmix64). */
static inline uint64_t xr_mix64(uint64_t key, uint64_t word)
{
    uint64_t z = (key ^ word) + 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

/* Key of the draws made for one prompt in one step of a run. */
static inline uint64_t xr_philox_key(uint64_t seed, uint64_t step,
                                     uint64_t prompt_id)
{
    return xr_mix64(xr_mix64(xr_mix64(0, seed), step), prompt_id);
}

/* 32 random bits as a float in (0, 1): the centre of one of 2^23 cells. */
static inline float xr_unit(uint32_t bits)
{
    return ((float)(bits >> 9) + 0.5f) * 0x1p-23f;
}

#endif
