/* SPDX-License-Identifier: Apache-2.0
 *
 * Helpers of the kernels that work row by row or element by element: access to
 * four adjacent values, as one access where addresses allow it (`Wide`), and
 * the division of a row into blocks.
 *
 * Kernels take element types as template arguments: float, and uint16_t for
 * bf16, which is widened as it is loaded and rounded as it is stored.
 */
#ifndef CUDA_ROWS_H
#define CUDA_ROWS_H

#include "plugins/device-cuda/cu.h"
#include "plugins/device-cuda/device.h"
#include "plugins/device-cuda/fmath.h"

typedef struct cu_quad {
    float f[4];
} cu_quad;

/* Loads the first `left` of four values, +0 for the others; with Wide always
 * all four. */
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

/* The same for 16-bit values: 8 bytes. */
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

template <int Wide> CU_FN cu_quad cu_load4(const uint16_t *p, uint64_t left)
{
    uint16_t h[4];
    cu_quad q;
    cu_load4_16<Wide>(p, left, h);
#pragma unroll
    for (int i = 0; i < 4; i++)
        q.f[i] = cu_from_bf16(h[i]);
    return q;
}

/* Stores to global memory. This is an explicit instruction, since nvcc splits
 * an ordinary assignment into four where it cannot prove the alignment. */
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

template <int Wide> CU_FN void cu_put4(uint16_t *p, cu_quad q, uint64_t left)
{
    uint16_t h[4];
#pragma unroll
    for (int i = 0; i < 4; i++)
        h[i] = cu_to_bf16(q.f[i]);
    cu_put4_16<Wide>(p, h, left);
}

/* The value that x has as an element of type T. */
template <typename T> CU_FN float cu_rounded(float x)
{
    return sizeof(T) == sizeof(float) ? x : cu_from_bf16(cu_to_bf16(x));
}

/* The content of a row that has no valid value. */
CU_FN float cu_nan(void)
{
    return cu_float(0x7fc00000u);
}

/* Returns 0 if four elements of type `dtype` at p can be accessed at once, or
 * if p is NULL. */
static inline uint64_t rows_odd_as(const void *p, uint32_t dtype)
{
    return (uint64_t)(uintptr_t)p % (dtype > XRAY_F32 ? 8 : 16);
}

static inline uint64_t rows_odd(const void *p)
{
    return rows_odd_as(p, XRAY_F32);
}

/* Calls f with a value of the type that `dtype` names, for use in a generic
 * lambda whose kernel has decltype of it as a template argument. */
template <typename Call> static void rows_as(uint32_t dtype, Call f)
{
    if (dtype == XRAY_BF16)
        f((uint16_t)0);
    else
        f(0.0f);
}

#define ROWS_THREADS 256u /* threads per block, at most */

/* The division of a row of `quads` into `chunks` blocks of `step` quads
 * each. */
typedef struct rows_shape {
    uint32_t threads;
    uint32_t chunks;
    uint64_t step;
} rows_shape;

/* Cuts a row so that a thread has about `each` quads. */
static inline rows_shape rows_cut(uint64_t quads, uint32_t each)
{
    rows_shape s;
    uint64_t most = (uint64_t)ROWS_THREADS * each;
    s.chunks = (uint32_t)((quads + most - 1) / most);
    s.step = (quads + s.chunks - 1) / s.chunks;
    s.threads = (uint32_t)((s.step + each - 1) / each + 31) / 32 * 32;
    return s;
}

/* The threads of a block that does a complete row of `quads`. */
static inline uint32_t rows_threads(uint64_t quads, uint32_t each)
{
    uint64_t threads = ((quads + each - 1) / each + 31) / 32 * 32;
    return threads < ROWS_THREADS ? (uint32_t)threads : ROWS_THREADS;
}

/* Launches kernel<Wide>. */
#define ROWS_LAUNCH(kernel, wide, grid, block, shared, stream, ...)         \
    do {                                                                    \
        if (wide)                                                           \
            CU_LAUNCH(kernel<1>, grid, block, shared, stream, __VA_ARGS__); \
        else                                                                \
            CU_LAUNCH(kernel<0>, grid, block, shared, stream, __VA_ARGS__); \
    } while (0)

#endif
