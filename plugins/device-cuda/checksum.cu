/* SPDX-License-Identifier: Apache-2.0
 *
 * The checksum of docs/numerics.md on the GPU: a sum of mixed words modulo
 * 2^64, so the result does not depend on which thread adds which word.
 */
#include <xray/numerics.h>

#include "plugins/device-cuda/cu.h"

#include "plugins/device-cuda/instance.h"

#define THREADS 256u

/* Bound by memory: it takes about as long as the reading half of a copy. */
static __global__ void __launch_bounds__(THREADS)
    checksum_kernel(const uint8_t *p, uint64_t bytes, int aligned,
                    unsigned long long *sum)
{
    uint64_t step = (uint64_t)gridDim.x * THREADS;
    uint64_t part = 0;
    for (uint64_t i = (uint64_t)blockIdx.x * THREADS + threadIdx.x;
         i * 8 < bytes; i += step) {
        uint64_t word = 0;
        uint64_t left = bytes - i * 8;
        if (aligned && left >= 8)
            word = *reinterpret_cast<const uint64_t *>(p + i * 8);
        else
            for (uint64_t k = 0; k < 8 && k < left; k++)
                word |= (uint64_t)p[i * 8 + k] << (8 * k);
        part += xray_checksum_word(i, word);
    }
    for (int by = 16; by; by /= 2)
        part += __shfl_xor_sync(0xffffffffu, part, by);
    if (threadIdx.x % 32 == 0)
        atomicAdd(sum, (unsigned long long)part);
}

xray_status cuda_checksum_run(const cuda_device *d, const void *ptr,
                              uint64_t bytes, uint64_t *sum)
{
    uint64_t words = (bytes + 7) / 8;
    uint64_t blocks = (words + THREADS - 1) / THREADS;
    uint64_t most = (uint64_t)d->sms * 8;
    CU_LAUNCH(checksum_kernel, (unsigned)(blocks < most ? blocks : most),
              THREADS, 0, d->stream, static_cast<const uint8_t *>(ptr), bytes,
              (uintptr_t)ptr % 8 == 0,
              reinterpret_cast<unsigned long long *>(sum));
    return cuda_launched(d, "checksum");
}
