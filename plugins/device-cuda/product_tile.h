/* SPDX-License-Identifier: Apache-2.0
 *
 * The tiles of product_tensor.cu are made of this: copies of operands to shared
 * memory, fragments of them, and steps of the tensor cores.
 */
#ifndef CUDA_PRODUCT_TILE_H
#define CUDA_PRODUCT_TILE_H

#include "plugins/device-cuda/cu.h"
#include "plugins/device-cuda/product_epilogue.h"

#define STEP 16 /* terms per step */
#define CHUNK 8 /* bf16 values per copy */

/* The index of chunk `chunk` of row `row` in a tile whose rows hold ROW chunks.
 * It is swizzled, so that eight rows of one column of chunks fall into
 * different banks. */
template <int ROW> CU_FN uint32_t swizzle(uint32_t row, uint32_t chunk)
{
    enum { MASK = ROW < 8 ? ROW - 1 : 7 };
    return (row * ROW + (chunk ^ (row & MASK))) * CHUNK;
}

/* An operand of a tile: LINES rows of ROW chunks, from memory rows `first_line`
 * on and elements `first` on. The summed index runs along one of the two
 * directions. */
typedef struct tensor_operand {
    const uint16_t *data;
    uint64_t row;
    uint32_t lines; /* memory rows that exist */
    /* Elements that exist per line; zeros up to a multiple of 8. */
    uint32_t width;
    uint32_t gates; /* as product_line has it */
    uint32_t odd;   /* 1: lines are read from any element on */
} tensor_operand;

/* Copies a chunk that is not aligned and of which only `left` elements exist.
 */
CU_FN void copy_odd(uint16_t *to, const uint16_t *from, uint32_t left)
{
    uint32_t h[CHUNK];
#pragma unroll
    for (uint32_t j = 0; j < CHUNK; j++)
        h[j] = j < left ? from[j] : 0;
    *(uint4 *)(void *)to = make_uint4(h[0] | h[1] << 16, h[2] | h[3] << 16,
                                      h[4] | h[5] << 16, h[6] | h[7] << 16);
}

template <int Cut, int LINES, int ROW, int THREADS>
CU_FN void load_operand(uint16_t *tile, const tensor_operand *o, uint32_t line0,
                        uint32_t at0, uint32_t thread)
{
    enum { PARTS = LINES * ROW / THREADS, DOWN = THREADS / ROW };
    static_assert(PARTS * THREADS == LINES * ROW, "parts must divide the tile");
    static_assert(DOWN * ROW == THREADS, "lines must divide the threads");
    static_assert(DOWN % 2 == 0, "a thread must load either gates or none");
    uint32_t chunk = thread % ROW;
    uint32_t line = thread / ROW;
    uint32_t at = at0 + chunk * CHUNK;
    const uint16_t *from =
        o->data + product_line(o->gates, line0 + line) * o->row + at;
    uint64_t step = (o->gates ? DOWN / 2 : DOWN) * o->row;
    int in = at < o->width;
    if (Cut && o->odd) {
#pragma unroll 1
        for (int i = 0; i < PARTS; i++) {
            int there = in && line0 + line < o->lines;
            copy_odd(tile + swizzle<ROW>(line, chunk), from,
                     there ? o->width - at : 0);
            line += DOWN;
            from += step;
        }
        return;
    }
#pragma unroll
    for (int i = 0; i < PARTS; i++) {
        int there = in && line0 + line < o->lines;
        cu_async16(tile + swizzle<ROW>(line, chunk), there ? from : o->data,
                   there ? 16 : 0);
        line += DOWN;
        from += step;
    }
}

/* Loads both operands of a step. */
template <int FORM, int Cut, int BM, int BN, int BK, int THREADS>
CU_FN void load_step(uint16_t *to, tensor_operand *a, tensor_operand *b,
                     uint32_t m0, uint32_t n0, const product_step *step,
                     uint32_t thread)
{
    enum { A_TURNED = FORM == PRODUCT_TN, B_TURNED = FORM != PRODUCT_NT };
    if (Cut) {
        *(A_TURNED ? &a->lines : &a->width) = step->end;
        *(B_TURNED ? &b->lines : &b->width) = step->end;
    }
    load_operand<Cut, A_TURNED ? BK : BM, (A_TURNED ? BM : BK) / CHUNK,
                 THREADS>(to, a, A_TURNED ? step->at : m0,
                          A_TURNED ? m0 : step->at, thread);
    load_operand<Cut, B_TURNED ? BK : BN, (B_TURNED ? BN : BK) / CHUNK,
                 THREADS>(to + BM * BK, b, B_TURNED ? step->at : n0,
                          B_TURNED ? n0 : step->at, thread);
}

/* Loads the a fragment of rows [m0, m0 + 16), step k0. A tile whose rows run
 * along the summed index is read transposed. */
template <int TURNED, int ROW>
CU_FN void fragment_a(uint32_t a[4], const uint16_t *tile, uint32_t m0,
                      uint32_t k0, uint32_t lane)
{
    if (TURNED)
        cu_ldmatrix4_t(a, tile + swizzle<ROW>(k0 + (lane >> 4) * 8 + (lane & 7),
                                              m0 / CHUNK + (lane >> 3 & 1)));
    else
        cu_ldmatrix4(
            a, tile + swizzle<ROW>(m0 + (lane & 15), k0 / CHUNK + (lane >> 4)));
}

/* Loads the b fragments of columns [n0, n0 + 16), step k0. */
template <int TURNED, int ROW>
CU_FN void fragment_b(uint32_t b[4], const uint16_t *tile, uint32_t n0,
                      uint32_t k0, uint32_t lane)
{
    if (TURNED)
        cu_ldmatrix4_t(
            b, tile + swizzle<ROW>(k0 + (lane >> 3 & 1) * 8 + (lane & 7),
                                   n0 / CHUNK + (lane >> 4)));
    else
        cu_ldmatrix4(b, tile + swizzle<ROW>(n0 + (lane >> 4) * 8 + (lane & 7),
                                            k0 / CHUNK + (lane >> 3 & 1)));
}

/* Loads the b fragments of columns [n0, n0 + 8), steps k0 and k0 + 16. */
template <int ROW>
CU_FN void fragment_b2(uint32_t b[4], const uint16_t *tile, uint32_t n0,
                       uint32_t k0, uint32_t lane)
{
    cu_ldmatrix4(
        b, tile + swizzle<ROW>(n0 + (lane & 7), k0 / CHUNK + (lane >> 3)));
}

/* Does one step of a warp's WM x WN outputs. */
template <int A_TURNED, int B_TURNED, int A_ROW, int B_ROW, int WM, int WN>
CU_FN void tensor_step(float (*c)[WN / 8][4], const uint16_t *at,
                       const uint16_t *bt, uint32_t wm, uint32_t wn,
                       uint32_t k0, uint32_t lane)
{
    uint32_t a[WM / 16][4];
    uint32_t b[WN / 16][4];
#pragma unroll
    for (int i = 0; i < WM / 16; i++)
        fragment_a<A_TURNED, A_ROW>(a[i], at, wm + (uint32_t)i * 16, k0, lane);
#pragma unroll
    for (int j = 0; j < WN / 16; j++)
        fragment_b<B_TURNED, B_ROW>(b[j], bt, wn + (uint32_t)j * 16, k0, lane);
#pragma unroll
    for (int i = 0; i < WM / 16; i++)
#pragma unroll
        for (int j = 0; j < WN / 8; j++)
            cu_mma_bf16(c[i][j], a[i], b[j / 2] + j % 2 * 2);
}

/* Does two steps of a warp's 16 x 8 outputs, or one. */
template <int A_ROW, int B_ROW>
CU_FN void tensor_steps_low(float c[4], const uint16_t *at, const uint16_t *bt,
                            uint32_t wn, uint32_t k0, uint32_t lane, int two)
{
    uint32_t a[4];
    uint32_t b[4];
    fragment_b2<B_ROW>(b, bt, wn, k0, lane);
    fragment_a<0, A_ROW>(a, at, 0, k0, lane);
    cu_mma_bf16(c, a, b);
    if (!two)
        return;
    fragment_a<0, A_ROW>(a, at, 0, k0 + STEP, lane);
    cu_mma_bf16(c, a, b + 2);
}

/* Does the steps of a stage, of whose terms `left` are of the piece. Steps
 * beyond the last term are skipped, not summed as zeros, because their number
 * depends on the tile. */
template <int A_TURNED, int B_TURNED, int BM, int BN, int WM, int WN, int BK>
CU_FN void sum_stage(float (*c)[WN / 8][4], const uint16_t *at, uint32_t wm,
                     uint32_t wn, uint32_t lane, uint32_t left)
{
    enum {
        A_ROW = (A_TURNED ? BM : BK) / CHUNK,
        B_ROW = (B_TURNED ? BN : BK) / CHUNK,
        STEPS = BK / STEP
    };
    const uint16_t *bt = at + BM * BK;
    uint32_t steps = left < BK ? (left + STEP - 1) / STEP : BK / STEP;
    if constexpr (WN == 8) {
        if (steps == STEPS) {
#pragma unroll
            for (uint32_t s = 0; s < STEPS; s += 2)
                tensor_steps_low<A_ROW, B_ROW>(c[0][0], at, bt, wn, s * STEP,
                                               lane, 1);
            return;
        }
#pragma unroll 1
        for (uint32_t s = 0; s < steps; s += 2)
            tensor_steps_low<A_ROW, B_ROW>(c[0][0], at, bt, wn, s * STEP, lane,
                                           s + 1 < steps);
    } else if (steps == STEPS) {
#pragma unroll
        for (uint32_t s = 0; s < STEPS; s++)
            tensor_step<A_TURNED, B_TURNED, A_ROW, B_ROW, WM, WN>(
                c, at, bt, wm, wn, s * STEP, lane);
    } else {
#pragma unroll 1
        for (uint32_t s = 0; s < steps; s++)
            tensor_step<A_TURNED, B_TURNED, A_ROW, B_ROW, WM, WN>(
                c, at, bt, wm, wn, s * STEP, lane);
    }
}

#endif
