/* SPDX-License-Identifier: Apache-2.0
 *
 * What the kernels that work row by row or element by element share: four
 * neighbouring values at a time, as one 16-byte access where addresses allow
 * it (`Wide`), and the cut of a row into blocks.
 */
#ifndef CUDA_ROWS_H
#define CUDA_ROWS_H

#include "plugins/device-cuda/cu.h"
#include "plugins/device-cuda/device.h"
#include "plugins/device-cuda/fmath.h"

typedef struct cu_quad {
    float f[4];
} cu_quad;

/* The first `left` of four values, +0 for the others. Wide: all four. */
template <int Wide> CU_FN cu_quad cu_load4(const float *p, uint64_t left)
{
    cu_quad q;
    if (Wide) {
        float4 v = *reinterpret_cast<const float4 *>(p);
        q.f[0] = v.x;
        q.f[1] = v.y;
        q.f[2] = v.z;
        q.f[3] = v.w;
    } else {
#pragma unroll
        for (uint32_t i = 0; i < 4; i++)
            q.f[i] = i < left ? p[i] : 0.0f;
    }
    return q;
}

template <int Wide> CU_FN void cu_store4(float *p, cu_quad q, uint64_t left)
{
    if (Wide) {
        *reinterpret_cast<float4 *>(p) =
            make_float4(q.f[0], q.f[1], q.f[2], q.f[3]);
    } else {
#pragma unroll
        for (uint32_t i = 0; i < 4; i++)
            if (i < left)
                p[i] = q.f[i];
    }
}

/* The same of 16-bit values: 8 bytes. */
template <int Wide>
CU_FN void cu_load4_16(const uint16_t *p, uint64_t left, uint16_t h[4])
{
    if (Wide) {
        uint2 v = *reinterpret_cast<const uint2 *>(p);
        h[0] = (uint16_t)v.x;
        h[1] = (uint16_t)(v.x >> 16);
        h[2] = (uint16_t)v.y;
        h[3] = (uint16_t)(v.y >> 16);
    } else {
#pragma unroll
        for (uint32_t i = 0; i < 4; i++)
            h[i] = i < left ? p[i] : (uint16_t)0;
    }
}

/* Of global memory: an instruction of its own, since nvcc cuts an ordinary
 * assignment into four where it has lost sight of the alignment. */
template <int Wide> CU_FN void cu_put4(float *p, cu_quad q, uint64_t left)
{
    if (Wide)
        __stcg(reinterpret_cast<float4 *>(p),
               make_float4(q.f[0], q.f[1], q.f[2], q.f[3]));
    else
        cu_store4<0>(p, q, left);
}

template <int Wide>
CU_FN void cu_put4_16(uint16_t *p, const uint16_t h[4], uint64_t left)
{
    if (Wide) {
        __stcg(reinterpret_cast<uint2 *>(p),
               make_uint2((uint32_t)h[0] | (uint32_t)h[1] << 16,
                          (uint32_t)h[2] | (uint32_t)h[3] << 16));
    } else {
#pragma unroll
        for (uint32_t i = 0; i < 4; i++)
            if (i < left)
                p[i] = h[i];
    }
}

/* What a row becomes that has no value. */
CU_FN float cu_nan(void)
{
    return cu_float(0x7fc00000u);
}

/* 0 where 16-byte accesses may be made at p, or p is NULL. */
static inline uint64_t rows_odd(const void *p)
{
    return (uint64_t)(uintptr_t)p % 16;
}

#define ROWS_THREADS 256u /* most of a block */

/* How blocks share a row of `quads`: `chunks` of them a row, `step` quads each.
 */
typedef struct rows_shape {
    uint32_t threads;
    uint32_t chunks;
    uint64_t step;
} rows_shape;

/* So that a thread has about `each` quads of a row. */
static inline rows_shape rows_cut(uint64_t quads, uint32_t each)
{
    rows_shape s;
    uint64_t most = (uint64_t)ROWS_THREADS * each;
    s.chunks = (uint32_t)((quads + most - 1) / most);
    s.step = (quads + s.chunks - 1) / s.chunks;
    s.threads = (uint32_t)((s.step + each - 1) / each + 31) / 32 * 32;
    return s;
}

/* A row of `quads` stays with one block. */
static inline uint32_t rows_threads(uint64_t quads, uint32_t each)
{
    uint64_t threads = ((quads + each - 1) / each + 31) / 32 * 32;
    return threads < ROWS_THREADS ? (uint32_t)threads : ROWS_THREADS;
}

/* Starts kernel<Wide>. */
#define ROWS_LAUNCH(kernel, wide, grid, block, shared, stream, ...)         \
    do {                                                                    \
        if (wide)                                                           \
            CU_LAUNCH(kernel<1>, grid, block, shared, stream, __VA_ARGS__); \
        else                                                                \
            CU_LAUNCH(kernel<0>, grid, block, shared, stream, __VA_ARGS__); \
    } while (0)

#endif
