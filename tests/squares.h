/* SPDX-License-Identifier: Apache-2.0
 *
 * A plain exact sum of squares: the product of two integers, added bit by bit.
 */
#ifndef TESTS_SQUARES_H
#define TESTS_SQUARES_H

#include <stdint.h>
#include <string.h>

#include <xray/numerics.h>

/* Adds 2^at units of a sum whose words are carried, and carries. */
static inline void squares_add_bit(uint64_t *words, uint32_t at)
{
    uint32_t i = at / 32;
    words[i] += UINT64_C(1) << at % 32;
    for (; words[i] >> 32; i++) {
        words[i] -= UINT64_C(1) << 32;
        words[i + 1]++;
    }
}

/* Adds the square of x = m 2^(at / 2 - 149), with an integer m. */
static inline void squares_add(uint64_t *words, float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof(bits));
    uint32_t exponent = bits >> 23 & 255;
    uint64_t m = bits & 0x7FFFFF;
    uint32_t at = 0;
    if (exponent == 255) {
        words[XRAY_SQUARES_WORDS - 1]++;
        return;
    }
    if (exponent > 0) {
        m += 0x800000;
        at = 2 * (exponent - 1);
    }
    for (uint32_t bit = 0; bit < 48; bit++)
        if (m * m >> bit & 1)
            squares_add_bit(words, at + bit);
}

#endif
