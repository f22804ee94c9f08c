/* SPDX-License-Identifier: Apache-2.0
 *
 * Rotary positions on NVIDIA GPUs: the table of sines and cosines, and the
 * rotation of queries and keys in place.
 */
#include <xray/numerics.h>

#include "plugins/device-cuda/rows.h"

/* ---- the table ---------------------------------------------------------- */

/* The frequencies are in host memory. They are passed as kernel arguments, this
 * many at a time, so that nothing waits for a copy. */
#define TABLE_PART 128

typedef struct table_args {
    float *table;
    uint64_t positions;
    uint32_t half;
    uint32_t first; /* pairs first .. first + count - 1 */
    uint32_t count;
    float scale;
    double freq[TABLE_PART];
} table_args;

/* One thread per entry: sine and cosine of a position times a frequency. */
__global__ void __launch_bounds__(ROWS_THREADS) table_kernel(table_args a)
{
    uint64_t at = (uint64_t)blockIdx.x * ROWS_THREADS + threadIdx.x;
    uint64_t p = at / a.count;
    uint32_t i = (uint32_t)(at % a.count);
    if (p >= a.positions)
        return;
    xray_rope_pair(p, a.freq[i], a.scale,
                   a.table + (p * a.half + a.first + i) * 2);
}

extern "C" xray_status cuda_rope_table(void *self, xray_stream *stream,
                                       const xray_rope_table *op)
{
    cuda_device *d = (cuda_device *)self;
    CUDA_CHECK(d, op, "rope_table", op->inv_freq, op->table);
    for (uint32_t i = 0; i < op->half; i++)
        if (!(op->inv_freq[i] >= 0.0 &&
              op->inv_freq[i] * (double)op->positions < 0x1p30))
            return cuda_fail(d, XRAY_E_RANGE, "rope_table",
                             "frequency %u, %g, is not in range", i,
                             op->inv_freq[i]);
    table_args a = {};
    a.table = op->table;
    a.positions = op->positions;
    a.half = op->half;
    a.scale = op->scale;
    for (uint32_t first = 0; first < op->half && op->positions > 0;
         first += TABLE_PART) {
        uint32_t left = op->half - first;
        a.first = first;
        a.count = left < TABLE_PART ? left : TABLE_PART;
        for (uint32_t i = 0; i < a.count; i++)
            a.freq[i] = op->inv_freq[first + i];
        uint64_t blocks =
            (op->positions * a.count + ROWS_THREADS - 1) / ROWS_THREADS;
        CU_LAUNCH(table_kernel, dim3((unsigned)blocks), dim3(ROWS_THREADS), 0,
                  cuda_stream(d, stream), a);
    }
    return cuda_launched(d, "rope_table");
}

/* ---- rotation ----------------------------------------------------------- */

/* A thread rotates four pairs of a head in place, with one access to each of
 * the halves. The heads of a token share a row of the table, which stays in the
 * L1 cache, so the traffic is each rotated value read and written once: close
 * to copy bandwidth. A position below 0 gives NaN. */
template <int Wide, typename X>
__global__ void __launch_bounds__(ROWS_THREADS) rope_kernel(xray_rope op)
{
    uint64_t t = blockIdx.x;
    if (t >= cu_count(op.tokens.bound, op.tokens.live))
        return;
    int32_t position = op.positions[t];
    float turn = op.inverse ? -1.0f : 1.0f;
    const float *table =
        op.table + (uint64_t)(position < 0 ? 0 : position) * op.half * 2;
    uint32_t quads = (op.half + 3) / 4;
    for (uint32_t i = threadIdx.x; i < op.heads * quads; i += blockDim.x) {
        uint32_t h = i / quads;
        uint32_t at = (i - h * quads) * 4;
        uint32_t left = op.half - at;
        X *a = (X *)op.x + t * op.stride + (uint64_t)h * op.head_dim + at;
        X *b = a + op.half;
        cu_quad x = cu_load4<Wide>(a, left);
        cu_quad y = cu_load4<Wide>(b, left);
        cu_quad cs[2];
        cs[0] = cu_load4<Wide>(table + 2 * at, 2 * left);
        cs[1] = cu_load4<Wide>(table + 2 * at + 4, left > 2 ? 2 * left - 4 : 0);
        cu_quad to_a;
        cu_quad to_b;
#pragma unroll
        for (int j = 0; j < 4; j++) {
            float c = position < 0 ? cu_nan() : cs[j / 2].f[2 * (j % 2)];
            float s = cs[j / 2].f[2 * (j % 2) + 1] * turn;
            to_a.f[j] = fmaf(x.f[j], c, -(y.f[j] * s));
            to_b.f[j] = fmaf(y.f[j], c, x.f[j] * s);
        }
        cu_put4<Wide>(a, to_a, left);
        cu_put4<Wide>(b, to_b, left);
    }
}

extern "C" xray_status cuda_rope(void *self, xray_stream *stream,
                                 const xray_rope *op)
{
    cuda_device *d = (cuda_device *)self;
    CUDA_CHECK(d, op, "rope", op->x, op->positions, op->table);
    XR_CHECK_OPERANDS(d->host, "rope", { "x", op->x, op->dtype });
    if (2 * (uint64_t)op->half > op->head_dim ||
        op->stride < (uint64_t)op->heads * op->head_dim)
        return cuda_fail(
            d, XRAY_E_ARG, "rope",
            "%u heads of %u, %u of them rotary, do not fit stride %llu",
            op->heads, op->head_dim, 2 * op->half,
            (unsigned long long)op->stride);
    uint64_t items = (uint64_t)op->heads * ((op->half + 3) / 4);
    if (op->tokens.bound == 0 || items == 0)
        return XRAY_OK;
    int wide = rows_odd_as(op->x, op->dtype) + rows_odd(op->table) +
                   op->stride % 4 + op->head_dim % 4 + op->half % 4 ==
               0;
    dim3 grid((unsigned)op->tokens.bound);
    dim3 block(rows_threads(items, 1));
    cudaStream_t on = cuda_stream(d, stream);
    rows_as(op->dtype, [&](auto x) {
        if (wide)
            CU_LAUNCH((rope_kernel<1, decltype(x)>), grid, block, 0, on, *op);
        else
            CU_LAUNCH((rope_kernel<0, decltype(x)>), grid, block, 0, on, *op);
    });
    return cuda_launched(d, "rope");
}
