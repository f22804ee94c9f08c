/* SPDX-License-Identifier: Apache-2.0
 *
 * Where the outputs of a tile start and end, for the kernels of product_*.cu.
 *
 * With gates, columns 2 i and 2 i + 1 of the tiles are gate i and up projection
 * i, so that one thread has both.
 */
#ifndef CUDA_PRODUCT_EPILOGUE_H
#define CUDA_PRODUCT_EPILOGUE_H

#include "plugins/device-cuda/activation.h"
#include "plugins/device-cuda/product.h"

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

/* Returns the value that the sum of an output starts from. */
CU_FN float product_start(const product_gemm *g, uint32_t row, uint32_t col)
{
    if (g->from)
        return g->from[row * g->from_row + col];
    return g->bias ? g->bias[product_line(product_gates(g), col)] : 0.0f;
}

/* Stores the sum of an output, unless it is a gate or an up projection. */
CU_FN void product_put(const product_gemm *g, uint32_t row, uint32_t col,
                       float sum)
{
    if (g->act)
        sum = act_value(sum, g->act);
    if (g->add)
        sum = g->add[row * g->from_row + col] + sum;
    g->c[row * g->c_row + col] = sum;
}

/* Stores the sums of columns col and col + 1, where col is even. */
CU_FN void product_put2(const product_gemm *g, uint32_t row, uint32_t col,
                        float even, float odd)
{
    if (g->gates) {
        if (col < g->n)
            g->c[row * g->c_row + col / 2] = act_value(even, g->act) * odd;
        return;
    }
    if (col < g->n)
        product_put(g, row, col, even);
    if (col + 1 < g->n)
        product_put(g, row, col + 1, odd);
}

#endif
