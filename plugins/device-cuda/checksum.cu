/* SPDX-License-Identifier: Apache-2.0
 *
 * The checksum of docs/numerics.md on the GPU: a sum of mixed words modulo
 * 2^64, so the result does not depend on which thread adds which word.
 */
#include <xray/numerics.h>

#include "plugins/device-cuda/cu.h"

#include "plugins/device-cuda/instance.h"

#define THREADS 256u

/* The word number `w` of a row, counted from the word that holds its first
 * byte, which is byte `head` of it. Bytes outside of the row are 0. */
CU_FN uint64_t read_word(const uint8_t *row, uint64_t bytes, uint64_t head,
                         uint64_t w)
{
    uint64_t word = 0;
    const uint8_t *at = row + w * 8 - head;
    bool inside = w * 8 >= head && w * 8 - head + 8 <= bytes;
    if (inside && (uintptr_t)at % 8 == 0)
        return *reinterpret_cast<const uint64_t *>(at);
    for (uint64_t k = 0; k < 8; k++)
        if (w * 8 + k >= head && w * 8 + k - head < bytes)
            word |= (uint64_t)at[k] << (8 * k);
    return word;
}

/* Bound by memory: it takes about as long as the reading half of a copy. */
static __global__ void __launch_bounds__(THREADS)
    checksum_kernel(const uint8_t *p, xray_checksum_rows rows,
                    unsigned long long *sum)
{
    uint64_t step = (uint64_t)gridDim.x * THREADS;
    uint64_t part = 0;
    for (uint64_t r = blockIdx.y; r < rows.rows; r += gridDim.y) {
        const uint8_t *row = p + r * rows.pitch;
        uint64_t at = rows.at + r * rows.at_pitch;
        uint64_t head = at % 8;
        for (uint64_t w = (uint64_t)blockIdx.x * THREADS + threadIdx.x;
             w * 8 < head + rows.bytes; w += step)
            part += xray_checksum_word(at / 8 + w,
                                       read_word(row, rows.bytes, head, w));
    }
    for (int by = 16; by; by /= 2)
        part += __shfl_xor_sync(0xffffffffu, part, by);
    if (threadIdx.x % 32 == 0)
        atomicAdd(sum, (unsigned long long)part);
}

static uint64_t least_of(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

xray_status cuda_checksum_run(const cuda_device *d,
                              const xray_checksum_rows *rows, uint64_t *sum)
{
    uint64_t words = (rows->bytes + 7) / 8 + 1;
    uint64_t most = (uint64_t)d->sms * 8;
    uint64_t wide = least_of((words + THREADS - 1) / THREADS, most);
    dim3 grid((unsigned)wide,
              (unsigned)least_of(rows->rows, (most + wide - 1) / wide));
    CU_LAUNCH(checksum_kernel, grid, THREADS, 0, d->stream,
              static_cast<const uint8_t *>(rows->data), *rows,
              reinterpret_cast<unsigned long long *>(sum));
    return cuda_launched(d, "checksum");
}
