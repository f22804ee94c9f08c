/* SPDX-License-Identifier: Apache-2.0
 *
 * The exact sum of squares of the CPU (xray_sumsq), in doubles.
 *
 * A square of a float is exact in double. A level cuts from all squares of a
 * run the part that is a multiple of one power of two, the unit, and adds these
 * parts, which a double does without rounding if the unit is coarse enough for
 * the largest of them. What is left of each square goes to the next level. Two
 * levels take what is within 2^-23 of the largest float, and most runs have no
 * more. A run stays in the first cache meanwhile, so that it is read from
 * memory once.
 */
#ifndef CPU_K_SQUARES_H
#define CPU_K_SQUARES_H

#include <string.h>

#include <xray/numerics.h>

#include "plugins/device-cpu/k_rows.h"

#define SQUARES_RUN 1024
#define SQUARES_LANES 8
#define SQUARES_WIDES (SQUARES_LANES / VEC_DOUBLES)
#define SQUARES_BITS 47 /* of a square that a level takes */
typedef double wide __attribute__((vector_size(VEC_DOUBLES * sizeof(double))));
#define FLOAT_INFINITE 0x7F800000u

/* 2^n where that is a normal number. */
static double scale_by(int32_t n)
{
    uint64_t bits = (uint64_t)(n + 1023) << 52;
    double x;
    memcpy(&x, &bits, sizeof(x));
    return x;
}

/* Adds count 2^at units of the words, where the count is below 2^57. */
static void add_units(int64_t count, uint32_t at, uint64_t *words)
{
    uint64_t sign = count < 0 ? UINT64_MAX : 1;
    uint64_t size = (uint64_t)count * sign;
    uint64_t low = (size & 0xFFFFFFFFu) << at % 32;
    uint64_t high = (size >> 32) << at % 32;
    words[at / 32] += sign * (low & 0xFFFFFFFFu);
    words[at / 32 + 1] += sign * ((low >> 32) + (high & 0xFFFFFFFFu));
    words[at / 32 + 2] += sign * (high >> 32);
}

static void add_lanes(const wide *sum, int32_t at, uint64_t *words)
{
    double lane[SQUARES_LANES];
    int64_t units = 0;
    memcpy(lane, sum, sizeof(lane));
    for (size_t l = 0; l < SQUARES_LANES; l++)
        units += (int64_t)(lane[l] * scale_by(298 - at));
    add_units(units, (uint32_t)at, words);
}

/* Cuts two levels from a run; 2^at units of the words are the unit of the
 * first. Returns 0 if nothing is left. */
static int cut_levels(double *r, int32_t at, uint64_t *words)
{
    int32_t low = at > SQUARES_BITS ? at - SQUARES_BITS : 0;
    const double round[2] = { 0x1.8p52 * scale_by(at - 298),
                              0x1.8p52 * scale_by(low - 298) };
    wide sum[2][SQUARES_WIDES] = { 0 };
    wide left[SQUARES_WIDES] = { 0 };
    for (size_t i = 0; i < SQUARES_RUN; i += SQUARES_LANES)
#pragma GCC unroll 8
        for (size_t u = 0; u < SQUARES_WIDES; u++) {
            double *here = r + i + u * VEC_DOUBLES;
            wide rest;
            memcpy(&rest, here, sizeof(rest));
            wide first = (rest + round[0]) - round[0];
            rest -= first;
            wide second = (rest + round[1]) - round[1];
            rest -= second;
            sum[0][u] += first;
            sum[1][u] += second;
            left[u] += rest * rest;
            memcpy(here, &rest, sizeof(rest));
        }
    add_lanes(sum[0], at, words);
    add_lanes(sum[1], low, words);
    double some = 0;
    for (size_t l = 0; l < SQUARES_LANES; l++)
        some += left[l / VEC_DOUBLES][l % VEC_DOUBLES];
    return some > 0;
}

/* Adds the squares of a run of finite floats, of which `most` is the largest in
 * size. With 2^e <= its square < 2^(e + 1) the first unit is 2^(e - 45), so
 * that a square has at most 2^46 units and the 128 of a lane 2^53. A level
 * leaves half a unit of each. */
static void square_run(const float *x, float most, uint64_t *words)
{
    double r[SQUARES_RUN];
    double square = (double)most * (double)most;
    uint64_t bits;
    memcpy(&bits, &square, sizeof(bits));
    for (size_t i = 0; i < SQUARES_RUN; i++)
        r[i] = (double)x[i] * (double)x[i];
    int32_t at = (int32_t)(bits >> 52) - 1023 - 45 + 298;
    while (cut_levels(r, at > 0 ? at : 0, words))
        at -= 2 * SQUARES_BITS;
}

/* The largest of the absolute values, by their bits. */
static uint32_t largest_bits(const float *x)
{
    uint32_t most = 0;
    for (size_t i = 0; i < SQUARES_RUN; i++) {
        uint32_t bits;
        memcpy(&bits, &x[i], sizeof(bits));
        bits &= 0x7FFFFFFFu;
        most = bits > most ? bits : most;
    }
    return most;
}

/* Copies the finite floats, counts the others and fills the run with 0. */
static void copy_finite(float *to, const float *x, size_t n, uint64_t *odd)
{
    memset(to, 0, SQUARES_RUN * sizeof(*to));
    for (size_t i = 0; i < n; i++) {
        int finite = x[i] - x[i] == 0.0f;
        to[i] = finite ? x[i] : 0.0f;
        *odd += !finite;
    }
}

static void sumsq(const float *x, size_t n, uint64_t *words)
{
    float copy[SQUARES_RUN];
    for (size_t i = 0; i < n; i += SQUARES_RUN) {
        const float *run = x + i;
        uint32_t bits = n - i < SQUARES_RUN ? UINT32_MAX : largest_bits(run);
        if (bits >= FLOAT_INFINITE) {
            size_t left = n - i < SQUARES_RUN ? n - i : SQUARES_RUN;
            copy_finite(copy, run, left, &words[XRAY_SQUARES_WORDS - 1]);
            run = copy;
            bits = largest_bits(run);
        }
        float most;
        memcpy(&most, &bits, sizeof(most));
        if (most > 0.0f)
            square_run(run, most, words);
    }
}

#endif
