/* SPDX-License-Identifier: Apache-2.0
 *
 * The CUDA names that kernels are written with.
 *
 * nvcc provides CUDA's own names. Where XR_CUDA_EMULATED is defined,
 * "emulate.h" provides the same names on the host (tests/cuda), so that every
 * kernel runs in tests without a GPU. A kernel uses CUDA's built-in names, the
 * additions of this header, and nothing else of the toolkit.
 */
#ifndef CUDA_CU_H
#define CUDA_CU_H

#include <stddef.h>
#include <stdint.h>

#ifdef XR_CUDA_EMULATED
#include "emulate.h"
#else
#include <cuda_runtime.h>

/* Enqueues kernel<<<grid, block, shared bytes, stream>>>(...). */
#define CU_LAUNCH(kernel, grid, block, shared, stream, ...) \
    kernel<<<(grid), (block), (shared), (stream)>>>(__VA_ARGS__)

/* Declares the block's dynamic shared memory as `name`, 128-byte aligned. */
#define CU_DYNAMIC(type, name)                                         \
    extern __shared__ __align__(128) unsigned char cu_dynamic_bytes[]; \
    type *name = reinterpret_cast<type *>(cu_dynamic_bytes)

#define CU_FN static __device__ __forceinline__

/* D (16 x 8, fp32) += A (16 x 16, bf16, row-major) . B (16 x 8, bf16), with the
 * fragments of mma.m16n8k16: lane l holds rows l/4 and l/4 + 8 of D, columns 2
 * (l % 4) and the next one. Called by a complete warp. */
CU_FN void cu_mma_bf16(float d[4], const uint32_t a[4], const uint32_t b[2])
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
                 "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};\n"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]),
                   "r"(b[1]));
}

/* Loads four 8 x 8 matrices of 16-bit values from shared memory. Lane l gives
 * the 16-byte aligned address of row l % 8 of matrix l / 8; register i receives
 * row l / 4 of matrix i, columns 2 (l % 4) and the next one. */
CU_FN void cu_ldmatrix4(uint32_t r[4], const void *row)
{
    uint32_t at = (uint32_t)__cvta_generic_to_shared(row);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, "
                 "[%4];\n"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(at)
                 : "memory");
}

/* The same, with each matrix transposed. */
CU_FN void cu_ldmatrix4_t(uint32_t r[4], const void *row)
{
    uint32_t at = (uint32_t)__cvta_generic_to_shared(row);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 "
                 "{%0,%1,%2,%3}, [%4];\n"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(at)
                 : "memory");
}

/* Starts a copy of 16 bytes from global to shared memory, both 16-byte aligned.
 * The last 16 - `bytes` bytes are not read and become 0. */
CU_FN void cu_async16(void *to, const void *from, uint32_t bytes)
{
    uint32_t at = (uint32_t)__cvta_generic_to_shared(to);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\n" ::"r"(at),
                 "l"(from), "r"(bytes)
                 : "memory");
}

CU_FN void cu_async_commit(void)
{
    asm volatile("cp.async.commit_group;\n" ::: "memory");
}

/* Waits until at most `Left` of this thread's groups are in flight. */
template <int Left> CU_FN void cu_async_wait(void)
{
    asm volatile("cp.async.wait_group %0;\n" ::"n"(Left) : "memory");
}

/* Waits for all of the block's `Threads` threads that meet at `number`, from 1
 * on; complete warps. Number 0 is __syncthreads. */
template <int Threads> CU_FN void cu_meet(uint32_t number)
{
    asm volatile("bar.sync %0, %1;\n" ::"r"(number), "n"(Threads) : "memory");
}

CU_FN uint32_t cu_bits(float x)
{
    return __float_as_uint(x);
}

CU_FN float cu_float(uint32_t x)
{
    return __uint_as_float(x);
}
#endif

/* Rounds to the nearest even bf16; NaN stays NaN. On the device this is one
 * instruction. */
CU_FN uint16_t cu_to_bf16(float x)
{
#ifdef XR_CUDA_EMULATED
    uint32_t u = cu_bits(x);
    if ((u & 0x7fffffffu) > 0x7f800000u)
        return (uint16_t)(u >> 16 | 0x40u);
    return (uint16_t)((u + 0x7fffu + (u >> 16 & 1u)) >> 16);
#else
    uint16_t y;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(y) : "f"(x));
    return y;
#endif
}

CU_FN float cu_from_bf16(uint16_t x)
{
    return cu_float((uint32_t)x << 16);
}

/* Widens an IEEE half, exactly, subnormal numbers included. */
CU_FN float cu_from_f16(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16;
    uint32_t m = h & 0x7fffu;
    uint32_t normal = (m << 13) + 0x38000000u;
    uint32_t small = cu_bits((float)m * 0x1p-24f);
    uint32_t x = m < 0x400u ? small : normal;
    x = m >= 0x7c00u ? m << 13 | 0x7f800000u : x;
    return cu_float(sign | x);
}

/* One element of fp32 or bf16: widened as it is loaded, rounded as it is
 * stored. */
CU_FN float cu_load1(const float *p)
{
    return *p;
}

CU_FN float cu_load1(const uint16_t *p)
{
    return cu_from_bf16(*p);
}

CU_FN void cu_put1(float *p, float x)
{
    *p = x;
}

CU_FN void cu_put1(uint16_t *p, float x)
{
    *p = cu_to_bf16(x);
}

/* Two values as a fragment's register: `low` is the one at the lower index. */
CU_FN uint32_t cu_pack_bf16(float low, float high)
{
#ifdef XR_CUDA_EMULATED
    return (uint32_t)cu_to_bf16(low) | (uint32_t)cu_to_bf16(high) << 16;
#else
    uint32_t y;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(y) : "f"(high), "f"(low));
    return y;
#endif
}

#endif
