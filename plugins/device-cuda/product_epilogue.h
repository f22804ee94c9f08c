/* SPDX-License-Identifier: Apache-2.0
 *
 * The steps of a product's summed index, and where the outputs of a tile start
 * and end, for the kernels of product_*.cu.
 *
 * With gates, columns 2 i and 2 i + 1 of the tiles are gate i and up projection
 * i, so that one thread has both.
 */
#ifndef CUDA_PRODUCT_EPILOGUE_H
#define CUDA_PRODUCT_EPILOGUE_H

#include "plugins/device-cuda/activation.h"
#include "plugins/device-cuda/product.h"

static_assert(sizeof(product_gemm) <= 128,
              "nvcc keeps a larger argument in registers, which then spill");

/* The row of b, of `gates` gates and as many up projections, that a column of
 * the tiles belongs to. Without gates it is the column. */
CU_FN uint32_t product_line(uint32_t gates, uint32_t col)
{
    return gates ? col / 2 + col % 2 * gates : col;
}

/* The number of gates; 0: none. */
CU_FN uint32_t product_gates(const product_gemm *g)
{
    return g->gates ? g->n / 2 : 0;
}

/* A step of a tile along the summed index; past the last one `at` is not below
 * `end`. */
typedef struct product_step {
    uint32_t at;
    uint32_t end; /* of the piece: terms from there on are not of this step */
    uint32_t segment;
    uint32_t part;
    uint32_t stop; /* steps of segments from this one on are left out */
} product_step;

CU_FN product_step product_first(const product_gemm *g, uint32_t depth)
{
    uint32_t end = g->segments && g->piece[0] < depth ? g->piece[0] : depth;
    return product_step{ 0, end, 0, 0, g->segments };
}

CU_FN uint32_t product_parts(const product_gemm *g)
{
    return g->piece[2] ? 3 : g->piece[1] ? 2 : 1;
}

/* Moves to the first term of the step's piece. */
CU_FN void product_enter(const product_gemm *g, product_step *s)
{
    uint32_t first =
        (s->part > 0 ? g->piece[0] : 0) + (s->part > 1 ? g->piece[1] : 0);
    uint32_t length = s->part == 0   ? g->piece[0]
                      : s->part == 1 ? g->piece[1]
                                     : g->piece[2];
    s->at = first * g->segments + s->segment * length;
    s->end = s->at + length < g->k ? s->at + length : g->k;
}

/* The first step of segments [first, stop). */
CU_FN product_step product_first_of(const product_gemm *g, uint32_t first,
                                    uint32_t stop)
{
    product_step s = { 0, 0, first, 0, stop };
    product_enter(g, &s);
    return s;
}

/* Advances by `by` terms, or to the next piece. Returns the number of segments
 * up to its own if this ends one, otherwise 0. Without Cut there are none. */
template <int Cut>
CU_FN uint32_t product_advance(const product_gemm *g, product_step *s,
                               uint32_t by)
{
    s->at += by;
    if (!Cut || s->at < s->end)
        return 0;
    s->part++;
    if (s->part == product_parts(g)) {
        s->part = 0;
        s->segment++;
    }
    if (s->segment < s->stop)
        product_enter(g, s);
    return s->part == 0 ? s->segment : 0;
}

/* Reads element `at` of what a sum starts from or what is added to it. */
CU_FN float product_read(const product_gemm *g, const void *from, uint64_t at)
{
    return g->narrow & PRODUCT_NARROW_FROM
               ? cu_from_bf16(((const uint16_t *)from)[at])
               : ((const float *)from)[at];
}

/* Returns an output as it is stored. */
CU_FN float product_rounded(const product_gemm *g, float y)
{
    return g->narrow & PRODUCT_NARROW_C ? cu_from_bf16(cu_to_bf16(y)) : y;
}

CU_FN void product_write(const product_gemm *g, uint64_t at, float y)
{
    if (g->narrow & PRODUCT_NARROW_C)
        ((uint16_t *)g->c)[at] = cu_to_bf16(y);
    else
        ((float *)g->c)[at] = y;
}

/* Returns the value that the sum of an output starts from. */
CU_FN float product_start(const product_gemm *g, uint32_t row, uint32_t col)
{
    if (g->segments)
        return 0.0f;
    if (g->from)
        return product_read(g, g->from, row * g->from_row + col);
    return g->bias ? g->bias[product_line(product_gates(g), col)] : 0.0f;
}

/* Adds to the sums of columns col and col + 1, which began at 0, what they are
 * to start from, if there is something. The tensor cores cut every step toward
 * zero at the magnitude of its largest term, so a large start would bias all of
 * a sum's steps. */
CU_FN void product_add_start(const product_gemm *g, uint32_t row, uint32_t col,
                             float sums[2])
{
#pragma unroll
    for (uint32_t i = 0; i < 2; i++)
        if (col + i < g->n)
            sums[i] = product_start(g, row, col + i) + sums[i];
}

/* Whether the sums are the outputs. */
static inline int product_ends(const product_gemm *g)
{
    return !g->act && !g->add && !(g->segments && g->bias);
}

/* Stores the sum of an output, unless it is a gate or an up projection. */
CU_FN void product_put(const product_gemm *g, uint32_t row, uint32_t col,
                       float sum)
{
    if (g->act)
        sum = act_value(product_rounded(g, sum), g->act);
    if (g->segments && g->bias)
        sum = sum + g->bias[col];
    if (g->add)
        sum = product_read(g, g->add, row * g->from_row + col) + sum;
    product_write(g, row * g->c_row + col, sum);
}

/* Stores the sums of columns col and col + 1, where col is even. */
CU_FN void product_put2(const product_gemm *g, uint32_t row, uint32_t col,
                        float even, float odd)
{
    if (g->gates) {
        if (col < g->n)
            product_write(g, row * g->c_row + col / 2,
                          act_value(product_rounded(g, even), g->act) *
                              product_rounded(g, odd));
        return;
    }
    if (col < g->n)
        product_put(g, row, col, even);
    if (col + 1 < g->n)
        product_put(g, row, col + 1, odd);
}

#endif
