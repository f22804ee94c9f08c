/* SPDX-License-Identifier: Apache-2.0
 *
 * Compute capability 9.0 has this for products: barriers that count bytes, the
 * tensor memory accelerator, and products of groups of four warps.
 */
#ifndef CUDA_PRODUCT_BULK_H
#define CUDA_PRODUCT_BULK_H

#include "plugins/device-cuda/cu.h"

#ifndef XR_CUDA_EMULATED
#include <cuda.h>
#endif

#define BOX 8192      /* bytes of 64 rows of 128 bytes */
#define SWIZZLED 1024 /* the swizzle's pattern repeats after so many bytes */
/* Cycles, about five seconds, after which a wait is a fault and ends the
 * kernel with an error; a wait takes microseconds. */
#define PATIENCE (1ll << 33)

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
CU_FN uint32_t shared_address(const void *p)
{
    return (uint32_t)__cvta_generic_to_shared(p);
}

CU_FN void barrier_init(uint32_t barrier, uint32_t arrivals)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;\n" ::"r"(barrier),
                 "r"(arrivals)
                 : "memory");
}

CU_FN void barrier_arrive(uint32_t barrier)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];\n" ::"r"(barrier)
                 : "memory");
}

/* Arrives, and lets the phase complete only after `bytes` were copied. */
CU_FN void barrier_expect(uint32_t barrier, uint32_t bytes)
{
    asm volatile(
        "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;\n" ::"r"(
            barrier),
        "r"(bytes)
        : "memory");
}

CU_FN uint32_t barrier_passed(uint32_t barrier, uint32_t parity)
{
    uint32_t passed;
    asm volatile("{\n.reg .pred p;\n"
                 "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
                 "selp.u32 %0, 1, 0, p;\n}\n"
                 : "=r"(passed)
                 : "r"(barrier), "r"(parity)
                 : "memory");
    return passed;
}

/* Waits until the phase of this parity is complete. */
CU_FN void barrier_wait(uint32_t barrier, uint32_t parity)
{
    if (barrier_passed(barrier, parity))
        return;
    long long start = clock64();
    while (!barrier_passed(barrier, parity))
        if (clock64() - start > PATIENCE)
            __trap();
}

/* Fetches the description of a matrix before it is needed. */
CU_FN void prefetch_map(const CUtensorMap *map)
{
    asm volatile("prefetch.tensormap [%0];\n" ::"l"(map) : "memory");
}

/* Starts the copy of a box whose first element is element `x` of row `y`.
 * Elements that the matrix does not have become 0 and count as copied. */
CU_FN void load_box(uint32_t to, const CUtensorMap *map, uint32_t barrier,
                    uint32_t x, uint32_t y)
{
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::"
                 "complete_tx::bytes [%0], [%1, {%3, %4}], [%2];\n" ::"r"(to),
                 "l"(map), "r"(barrier), "r"((int32_t)x), "r"((int32_t)y)
                 : "memory");
}

CU_FN void wgmma_fence(void)
{
    asm volatile("wgmma.fence.sync.aligned;\n" ::: "memory");
}

CU_FN void wgmma_commit(void)
{
    asm volatile("wgmma.commit_group.sync.aligned;\n" ::: "memory");
}

template <int Left> CU_FN void wgmma_wait(void)
{
    asm volatile("wgmma.wait_group.sync.aligned %0;\n" ::"n"(Left) : "memory");
}

/* Keeps the compiler from moving what uses the sums across this place: it does
 * not know that they change until a wait. */
template <int COUNT> CU_FN void hold_sums(float (&d)[COUNT])
{
#pragma unroll
    for (int i = 0; i < COUNT; i++)
        asm volatile("" : "+f"(d[i])::"memory");
}

#define HELD4(d, i) \
    "+f"((d)[i]), "+f"((d)[(i) + 1]), "+f"((d)[(i) + 2]), "+f"((d)[(i) + 3])
#define HELD16(d, i) \
    HELD4(d, i), HELD4(d, (i) + 4), HELD4(d, (i) + 8), HELD4(d, (i) + 12)

/* Starts D (64 x 128) += A (64 x 16) . B (16 x 128). A and B are descriptors;
 * TURNED: rows of the operand run across the summed index. */
template <int A_TURNED, int B_TURNED>
CU_FN void wgmma_step(float (&d)[64], uint64_t a, uint64_t b)
{
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, 1, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {"
                 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, "
                 "%12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, "
                 "%24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, "
                 "%36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
                 "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, "
                 "%60, %61, %62, %63"
                 "}, %64, %65, p, 1, 1, %66, %67;\n}\n"
                 : HELD16(d, 0), HELD16(d, 16), HELD16(d, 32), HELD16(d, 48)
                 : "l"(a), "l"(b), "n"(A_TURNED), "n"(B_TURNED)
                 : "memory");
}

/* The same for 256 columns. */
template <int A_TURNED, int B_TURNED>
CU_FN void wgmma_step(float (&d)[128], uint64_t a, uint64_t b)
{
    asm volatile(
        "{\n.reg .pred p;\nsetp.ne.b32 p, 1, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 {"
        "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, "
        "%12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, "
        "%24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, "
        "%36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
        "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, "
        "%60, %61, %62, %63, %64, %65, %66, %67, %68, %69, %70, %71, "
        "%72, %73, %74, %75, %76, %77, %78, %79, %80, %81, %82, %83, "
        "%84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, "
        "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, "
        "%108, %109, %110, %111, %112, %113, %114, %115, %116, %117, %118, "
        "%119, "
        "%120, %121, %122, %123, %124, %125, %126, %127"
        "}, %128, %129, p, 1, 1, %130, %131;\n}\n"
        : HELD16(d, 0), HELD16(d, 16), HELD16(d, 32), HELD16(d, 48),
          HELD16(d, 64), HELD16(d, 80), HELD16(d, 96), HELD16(d, 112)
        : "l"(a), "l"(b), "n"(A_TURNED), "n"(B_TURNED)
        : "memory");
}

/* The descriptor of an operand in shared memory with the 128-byte swizzle, as
 * the accelerator stores boxes: rows of 128 bytes without gaps. Bits 0 to 13
 * are its address, bits 16 to 29 the leading offset and bits 32 to 45 the
 * stride, each in units of 16 bytes; bits 62 and 63 are 1, the swizzle.
 *
 * The stride goes from eight rows to the next eight: 1024 bytes. With the
 * summed index along the rows, a row has the 64 terms of a line, eight rows are
 * eight lines, the leading offset is not used, and the next step is 32 bytes
 * further. Turned, a row has 64 lines of one term, eight rows are eight terms,
 * the leading offset goes from 64 lines to the next 64, which are the next box,
 * and the next step is 16 rows further. The pattern of the swizzle follows from
 * the addresses alone, because boxes begin at multiples of 1024 bytes. */
template <int TURNED> CU_FN uint64_t descriptor_of(uint32_t at)
{
    return (uint64_t)((at & 0x3ffffu) >> 4) |
           (uint64_t)(TURNED ? BOX >> 4 : 1) << 16 |
           (uint64_t)(SWIZZLED >> 4) << 32 | 1ull << 62;
}

#undef HELD16
#undef HELD4
#endif

#endif
