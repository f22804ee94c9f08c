/* SPDX-License-Identifier: Apache-2.0
 *
 * Tensor-core fragments of the bfloat16 attention kernels. A warp has 16 rows.
 * Operands in shared memory are rows of DIM bf16 (a multiple of 16) at a pitch
 * of DIM + 8, so that the eight rows of an ldmatrix are in different banks.
 */
#ifndef CUDA_ATTENTION_BF16_H
#define CUDA_ATTENTION_BF16_H

#include "plugins/device-cuda/attention.h"

#define LOG2E 0x1.715476p+0f
#define LN2 0x1.62e430p-1f
#define NEG_INF cu_float(0xff800000u)

template <int DIM> struct attend_pitch {
    static const uint32_t of = DIM + 8; /* bf16 values */
};

/* Loads fragment A (16 x 16) at row 0, column d of `rows`. */
template <int DIM>
CU_FN void fragment_a(uint32_t r[4], const uint16_t *rows, uint32_t d)
{
    uint32_t lane = threadIdx.x % 32;
    cu_ldmatrix4(r, rows + (lane % 16) * attend_pitch<DIM>::of + d +
                        lane / 16 * 8);
}

/* Loads fragment B (16 x 16, as two of 16 x 8) whose columns are rows n and up
 * of `rows`, summed over their columns d and up: r[0..1] for n, r[2..3] for n +
 * 8. */
template <int DIM>
CU_FN void fragment_b(uint32_t r[4], const uint16_t *rows, uint32_t n,
                      uint32_t d)
{
    uint32_t lane = threadIdx.x % 32;
    cu_ldmatrix4(r, rows +
                        (n + lane / 16 * 8 + lane % 8) * attend_pitch<DIM>::of +
                        d + lane / 8 % 2 * 8);
}

/* Loads fragment B whose columns are columns d and up of `rows`, summed over
 * rows k and up: r[0..1] for d, r[2..3] for d + 8. */
template <int DIM>
CU_FN void fragment_bt(uint32_t r[4], const uint16_t *rows, uint32_t k,
                       uint32_t d)
{
    uint32_t lane = threadIdx.x % 32;
    cu_ldmatrix4_t(r, rows + (k + lane % 16) * attend_pitch<DIM>::of + d +
                          lane / 16 * 8);
}

/* s[n] (16 x 8 each) = A rows . B rows^T for 8 * N rows of b, summed over DIM
 * in steps of 16, starting from 0. */
template <int DIM, int N>
CU_FN void product_rows(float s[N][4], const uint16_t *a_rows,
                        const uint16_t *b_rows)
{
#pragma unroll
    for (int n = 0; n < N; n++)
        s[n][0] = s[n][1] = s[n][2] = s[n][3] = 0.0f;
#pragma unroll
    for (int k = 0; k < DIM / 16; k++) {
        uint32_t a[4];
        fragment_a<DIM>(a, a_rows, k * 16);
#pragma unroll
        for (int n = 0; n < N; n += 2) {
            uint32_t b[4];
            fragment_b<DIM>(b, b_rows, n * 8, k * 16);
            cu_mma_bf16(s[n], a, b);
            cu_mma_bf16(s[n + 1], a, b + 2);
        }
    }
}

/* Converts the accumulators of 16 columns to an A fragment. */
CU_FN void fragment_of(uint32_t a[4], const float low[4], const float high[4])
{
    a[0] = cu_pack_bf16(low[0], low[1]);
    a[1] = cu_pack_bf16(low[2], low[3]);
    a[2] = cu_pack_bf16(high[0], high[1]);
    a[3] = cu_pack_bf16(high[2], high[3]);
}

/* acc (16 x 8 each, COLS / 8 of them) += A . rows[., first ..]. A is given by
 * the accumulators p of N column groups; 16 rows per step, in order. */
template <int DIM, int COLS, int N>
CU_FN void product_columns(float acc[COLS / 8][4], const float p[N][4],
                           const uint16_t *rows, uint32_t first)
{
#pragma unroll
    for (int k = 0; k < N / 2; k++) {
        uint32_t a[4];
        fragment_of(a, p[2 * k], p[2 * k + 1]);
#pragma unroll
        for (int n = 0; n < COLS / 8; n += 2) {
            uint32_t b[4];
            fragment_bt<DIM>(b, rows, k * 16, first + n * 8);
            cu_mma_bf16(acc[n], a, b);
            cu_mma_bf16(acc[n + 1], a, b + 2);
        }
    }
}

/* Converts a score to units of log 2, for exp2f; the slope of the softcap is
 * computed from `u`. CAPPED is a template argument because a branch per score
 * would keep scores from overlapping. */
template <bool CAPPED>
CU_FN float attend_log2(const attend_args *a, float s, float c, float *u)
{
    if (!CAPPED)
        return s * c;
    *u = cu_tanh((s * a->scale) / a->softcap);
    return (a->softcap * *u) * LOG2E;
}

/* Loads rows of bf16 from `from`, `stride` values apart; rows r < cut come from
 * `other`. Only rows lo <= r < hi are read; everything else of ROWS x DIM
 * becomes 0. */
template <int DIM, int ROWS, int THREADS>
CU_FN void load_rows(uint16_t *to, const uint16_t *from, const uint16_t *other,
                     int cut, uint64_t stride, int lo, int hi, uint32_t dim8)
{
    const uint32_t pieces = DIM / 8;
    for (uint32_t i = threadIdx.x; i < ROWS * pieces; i += THREADS) {
        uint32_t r = i / pieces;
        uint32_t d = i % pieces * 8;
        int there = (int)r >= lo && (int)r < hi && d < dim8;
        const uint16_t *x = (int)r < cut ? other : from;
        cu_async16(to + r * attend_pitch<DIM>::of + d,
                   there ? x + r * stride + d : x, there ? 16 : 0);
    }
}

#endif
