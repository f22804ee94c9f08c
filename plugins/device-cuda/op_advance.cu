/* SPDX-License-Identifier: Apache-2.0
 *
 * From the drawn tokens to the next step of their sequences, on NVIDIA GPUs.
 */
#include "plugins/device-cuda/rows.h"

#define ADVANCE_THREADS 128u

/* One thread per sequence. */
__global__ void __launch_bounds__(ADVANCE_THREADS)
    advance_kernel(xray_advance op)
{
    uint64_t i = (uint64_t)blockIdx.x * ADVANCE_THREADS + threadIdx.x;
    if (i >= cu_count(op.items.bound, op.items.live) || op.stop[i])
        return;
    xray_draw *draw =
        (xray_draw *)(void *)((char *)(void *)op.draws + i * op.draw_stride);
    int32_t token = op.token[i];
    int32_t stop = 0;
    for (int32_t n = op.stop_start ? op.stop_start[i] : 0;
         op.stop_start && n < op.stop_start[i + 1]; n++)
        stop = stop || op.stop_ids[n] == token;
    uint32_t position = draw->position + 1;
    draw->position = position;
    op.ids[i] = token;
    op.positions[i]++;
    op.stop[i] = stop || (int64_t)position >= op.limit[i];
}

xray_status cuda_advance(void *self, xray_stream *stream,
                         const xray_advance *op)
{
    cuda_device *d = (cuda_device *)self;
    CUDA_CHECK(d, op, "advance", op->token, op->ids, op->positions, op->draws,
               op->stop, op->limit);
    if (!op->stop_start != !op->stop_ids)
        return cuda_fail(d, XRAY_E_ARG, "advance",
                         "stop_start needs stop_ids, and the other way round");
    if (op->draw_stride < sizeof(xray_draw) || op->draw_stride % 8 != 0)
        return cuda_fail(
            d, XRAY_E_ARG, "advance",
            "draw_stride is %u, which does not fit an array of draws",
            op->draw_stride);
    if (op->items.bound == 0)
        return XRAY_OK;
    unsigned blocks =
        (unsigned)((op->items.bound + ADVANCE_THREADS - 1) / ADVANCE_THREADS);
    CU_LAUNCH(advance_kernel, dim3(blocks), ADVANCE_THREADS, 0,
              cuda_stream(d, stream), *op);
    return cuda_launched(d, "advance");
}
