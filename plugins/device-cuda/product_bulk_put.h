/* SPDX-License-Identifier: Apache-2.0
 *
 * Where the sums of product_bulk.cu's tiles become outputs. Each way to read
 * starts and to store outputs is a loop of its own, because code that is
 * skipped costs time where it lies between instructions that are executed. The
 * ways that are rare take one sum after the other, from a copy in memory.
 */
#ifndef CUDA_PRODUCT_BULK_PUT_H
#define CUDA_PRODUCT_BULK_PUT_H

#include "plugins/device-cuda/cu.h"
#include "plugins/device-cuda/product_epilogue.h"

/* Bits of product_gemm.wide */
#define C_WIDE 1u    /* c: the sums are stored, bf16 in eights, else in pairs */
#define FROM_WIDE 2u /* from: may be read in pairs */

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

/* A thread's outputs: pair p of half h is rows row + 8 h, columns col + 8 p and
 * the next one. With gates they are outputs of c: their gates are in the first
 * half of the sums and their up projections in the second. */
typedef struct bulk_place {
    uint32_t row;
    uint32_t rows; /* rows from there on do not exist */
    uint32_t col;
    uint32_t cols;
} bulk_place;

template <int COUNT>
CU_FN void copy_sums(float (&to)[COUNT], const float (&from)[COUNT])
{
#pragma unroll
    for (int i = 0; i < COUNT; i++)
        to[i] = from[i];
}

/* How the starts of a pair are read */
#define START_FLOATS 0 /* two of from, float32 */
#define START_NARROW 1 /* two of from, bf16 */
#define START_BIAS 2

template <int HOW>
CU_FN void read_starts(float s[2], const product_gemm *g, uint32_t row,
                       uint32_t col, uint32_t cols)
{
    uint64_t at = row * g->from_row + col;
    if (HOW == START_FLOATS) {
        const void *from = (const float *)g->from + at;
        float2 two = *(const float2 *)from;
        s[0] = two.x;
        s[1] = two.y;
    } else if (HOW == START_NARROW) {
        const void *from = (const uint16_t *)g->from + at;
        uint32_t two = *(const uint32_t *)from;
        s[0] = cu_from_bf16((uint16_t)two);
        s[1] = cu_from_bf16((uint16_t)(two >> 16));
    } else {
        s[0] = g->bias[col];
        s[1] = col + 1 < cols ? g->bias[col + 1] : 0.0f;
    }
}

template <int HOW, int PAIRS>
CU_FN void add_pairs(float (&c)[PAIRS * 4], const product_gemm *g,
                     const bulk_place *p)
{
#pragma unroll
    for (uint32_t h = 0; h < 2; h++)
#pragma unroll
        for (uint32_t j = 0; j < PAIRS; j++) {
            uint32_t row = p->row + h * 8;
            uint32_t col = p->col + j * 8;
            if (row >= p->rows || col >= p->cols)
                continue;
            float s[2];
            read_starts<HOW>(s, g, row, col, p->cols);
            c[j * 4 + h * 2] = s[0] + c[j * 4 + h * 2];
            c[j * 4 + h * 2 + 1] = s[1] + c[j * 4 + h * 2 + 1];
        }
}

/* Adds starts one after the other; SPLIT: to gates and up projections. */
template <int SPLIT, int COUNT>
CU_FN void add_each(float (&c)[COUNT], const product_gemm *g,
                    const bulk_place *p)
{
    enum { OUTPUTS = SPLIT ? COUNT / 2 : COUNT };
    float own[COUNT];
    copy_sums(own, c);
#pragma unroll 1
    for (uint32_t i = 0; i < OUTPUTS; i++) {
        uint32_t row = p->row + i / 2 % 2 * 8;
        uint32_t col = p->col + i / 4 * 8 + i % 2;
        if (row >= p->rows || col >= p->cols)
            continue;
        own[i] = product_start(g, row, SPLIT ? col * 2 : col) + own[i];
        if (SPLIT)
            own[i + OUTPUTS] =
                product_start(g, row, col * 2 + 1) + own[i + OUTPUTS];
    }
    copy_sums(c, own);
}

/* Adds what the sums start from, without gates. */
template <int PAIRS>
CU_FN void add_starts(float (&c)[PAIRS * 4], const product_gemm *g,
                      const bulk_place *p)
{
    if (!g->from)
        add_pairs<START_BIAS, PAIRS>(c, g, p);
    else if (!(g->wide & FROM_WIDE))
        add_each<0>(c, g, p);
    else if (g->narrow & PRODUCT_NARROW_FROM)
        add_pairs<START_NARROW, PAIRS>(c, g, p);
    else
        add_pairs<START_FLOATS, PAIRS>(c, g, p);
}

/* Stores four pairs of each of a quad's lanes, j to j + 3, as bf16. Each lane
 * gets the quad's eight columns of one j and stores 16 bytes. All lanes of the
 * warp call it. */
CU_FN void put_eights(uint32_t w[4], const product_gemm *g, const bulk_place *p,
                      uint32_t h, uint32_t j)
{
    uint32_t lane = threadIdx.x % 4;
#pragma unroll
    for (uint32_t by = 1; by <= 2; by *= 2)
#pragma unroll
        for (uint32_t i = 0; i < 4; i++) {
            if (i & by)
                continue;
            uint32_t high = lane & by;
            uint32_t kept = high ? w[i + by] : w[i];
            uint32_t got =
                __shfl_xor_sync(0xffffffffu, high ? w[i] : w[i + by], (int)by);
            w[i] = high ? got : kept;
            w[i + by] = high ? kept : got;
        }
    uint32_t row = p->row + h * 8;
    uint32_t col = p->col - lane * 2 + (j + lane) * 8;
    if (row < p->rows && col < p->cols)
        *(uint4 *)(void *)((uint16_t *)g->c + row * g->c_row + col) =
            make_uint4(w[0], w[1], w[2], w[3]);
}

template <int PAIRS>
CU_FN void put_narrow(float (&c)[PAIRS * 4], const product_gemm *g,
                      const bulk_place *p)
{
#pragma unroll
    for (uint32_t h = 0; h < 2; h++)
#pragma unroll
        for (uint32_t j = 0; j < PAIRS; j += 4) {
            uint32_t w[4];
#pragma unroll
            for (uint32_t i = 0; i < 4; i++)
                w[i] = cu_pack_bf16(c[(j + i) * 4 + h * 2],
                                    c[(j + i) * 4 + h * 2 + 1]);
            put_eights(w, g, p, h, j);
        }
}

template <int PAIRS>
CU_FN void put_floats(float (&c)[PAIRS * 4], const product_gemm *g,
                      const bulk_place *p)
{
#pragma unroll
    for (uint32_t h = 0; h < 2; h++)
#pragma unroll
        for (uint32_t j = 0; j < PAIRS; j++) {
            uint32_t row = p->row + h * 8;
            uint32_t col = p->col + j * 8;
            if (row < p->rows && col < p->cols)
                *(float2 *)(void *)((float *)g->c + row * g->c_row + col) =
                    make_float2(c[j * 4 + h * 2], c[j * 4 + h * 2 + 1]);
        }
}

/* Stores outputs one after the other; SPLIT: of gates and up projections. */
template <int SPLIT, int COUNT>
CU_FN void put_each(float (&c)[COUNT], const product_gemm *g,
                    const bulk_place *p)
{
    enum { OUTPUTS = SPLIT ? COUNT / 2 : COUNT };
    float own[COUNT];
    copy_sums(own, c);
#pragma unroll 1
    for (uint32_t i = 0; i < OUTPUTS; i++) {
        uint32_t row = p->row + i / 2 % 2 * 8;
        uint32_t col = p->col + i / 4 * 8 + i % 2;
        if (row >= p->rows || col >= p->cols)
            continue;
        if (SPLIT)
            product_put2(g, row, col * 2, own[i], own[i + OUTPUTS]);
        else
            product_put(g, row, col, own[i]);
    }
}

/* Stores outputs without gates. */
template <int PAIRS>
CU_FN void put_sums(float (&c)[PAIRS * 4], const product_gemm *g,
                    const bulk_place *p)
{
    if (!(g->wide & C_WIDE))
        put_each<0>(c, g, p);
    else if (g->narrow & PRODUCT_NARROW_C)
        put_narrow<PAIRS>(c, g, p);
    else
        put_floats<PAIRS>(c, g, p);
}

/* Returns the product of gate and up projection as product_put2 has it. */
template <int Silu> CU_FN float gated(float gate, float up)
{
    gate = cu_from_bf16(cu_to_bf16(gate));
    return gate * act_factor<Silu>(gate) * cu_from_bf16(cu_to_bf16(up));
}

template <int Silu, int PAIRS>
CU_FN void put_gated_narrow(float (&c)[PAIRS * 8], const product_gemm *g,
                            const bulk_place *p)
{
#pragma unroll
    for (uint32_t h = 0; h < 2; h++)
#pragma unroll
        for (uint32_t j = 0; j < PAIRS; j += 4) {
            uint32_t w[4];
#pragma unroll
            for (uint32_t i = 0; i < 4; i++) {
                const float *gate = c + (j + i) * 4 + h * 2;
                const float *up = gate + PAIRS * 4;
                w[i] = cu_pack_bf16(gated<Silu>(gate[0], up[0]),
                                    gated<Silu>(gate[1], up[1]));
            }
            put_eights(w, g, p, h, j);
        }
}

/* Stores the outputs of gates. */
template <int PAIRS>
CU_FN void put_gated(float (&c)[PAIRS * 8], const product_gemm *g,
                     const bulk_place *p)
{
    if (!(g->wide & C_WIDE))
        put_each<1>(c, g, p);
    else if (g->act == XRAY_ACT_SILU)
        put_gated_narrow<1, PAIRS>(c, g, p);
    else
        put_gated_narrow<0, PAIRS>(c, g, p);
}
#endif

#endif
