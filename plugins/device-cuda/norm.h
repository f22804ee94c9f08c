/* SPDX-License-Identifier: Apache-2.0
 *
 * Loads, sums and stores rows for the kernels of RMSNorm and LayerNorm.
 *
 * The sum of a row is sixteen chains of dim / 16 additions each, run by half a
 * warp in a fixed order. A block takes one row: all its threads load the row
 * into shared memory, one warp sums it there, and all threads write the result
 * from there. Values are read once and written once, and with many rows on a
 * multiprocessor the chains of some rows overlap with the loads of others. All
 * of these kernels are bound by memory.
 */
#ifndef CUDA_NORM_H
#define CUDA_NORM_H

#include "plugins/device-cuda/norm_fold.h"
#include "plugins/device-cuda/rows.h"

#define NORM_EACH 4u       /* groups of four per thread in flight */
#define NORM_STATIC 47104u /* shared memory of a block without an opt-in */

/* The floats of a row in shared memory. The row is padded with zeros to sixteen
 * chains of one length, whose last steps may add +0. */
CU_FN uint32_t padded_floats(uint32_t dim)
{
    return (dim + 15) / 16 * 16;
}

CU_FN void pad_row(float *row, uint32_t dim)
{
    if (dim + threadIdx.x < padded_floats(dim))
        row[dim + threadIdx.x] = 0.0f;
}

/* dot16 and sum16, computed by the block's first warp; all its lanes get the
 * result. */
CU_FN float dot_row(const float *a, const float *b, uint32_t dim)
{
    float s = 0.0f;
#pragma unroll 8
    for (uint32_t i = threadIdx.x % 16; i < padded_floats(dim); i += 16)
        s = fmaf(a[i], b[i], s);
    return cu_half_tree16(s);
}

CU_FN float sum_row(const float *a, uint32_t dim)
{
    float s = 0.0f;
#pragma unroll 8
    for (uint32_t i = threadIdx.x % 16; i < padded_floats(dim); i += 16)
        s = s + a[i];
    return cu_half_tree16(s);
}

CU_FN float inverse_root(float sum, uint32_t dim, float eps)
{
    return 1.0f / sqrtf(sum / (float)dim + eps);
}

/* Allows a kernel to use `bytes` of dynamic shared memory. */
template <typename Kernel>
static xray_status allow_shared(const cuda_device *d, const char *where,
                                Kernel *kernel, uint64_t bytes)
{
    if (bytes <= NORM_STATIC)
        return XRAY_OK;
    if (bytes + 1024 > (uint64_t)d->shared_most)
        return cuda_fail(d, XRAY_E_UNSUPPORTED, where,
                         "a row needs %llu bytes of shared memory, but a block "
                         "has %d on this GPU",
                         (unsigned long long)bytes, d->shared_most);
    return cuda_check(
        d, where,
        cudaFuncSetAttribute(
            kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes));
}

/* Launches a kernel with one block of `threads` for each of `rows` rows, whose
 * shared memory has `copies` of the row. */
template <typename Op>
static xray_status norm_launch(const cuda_device *d, const char *where,
                               cudaStream_t on, void (*kernel)(Op),
                               const Op *op, uint64_t rows, uint32_t copies,
                               uint32_t each)
{
    uint64_t bytes = ((uint64_t)op->dim + 15) / 16 * 64 * copies;
    dim3 block(rows_threads(((uint64_t)op->dim + 3) / 4, each));
    xray_status status = allow_shared(d, where, kernel, bytes);
    if (status == XRAY_OK)
        CU_LAUNCH(kernel, dim3((unsigned)rows), block, bytes, on, *op);
    return status;
}

/* Loads x, or r + x as it is then stored to r. */
template <int Wide, typename X, typename R>
CU_FN void load_row(const X *x, R *r, uint32_t dim, float *row)
{
    uint32_t stride = blockDim.x * 4;
    for (uint32_t c = threadIdx.x * 4; c < dim; c += stride * NORM_EACH) {
        cu_quad q[NORM_EACH];
        cu_quad old[NORM_EACH];
#pragma unroll
        for (uint32_t u = 0; u < NORM_EACH; u++) {
            uint32_t at = c + u * stride;
            if (at < dim)
                q[u] = cu_load4<Wide>(x + at, dim - at);
            if (at < dim && r)
                old[u] = cu_load4<Wide>(r + at, dim - at);
        }
#pragma unroll
        for (uint32_t u = 0; u < NORM_EACH; u++) {
            uint32_t at = c + u * stride;
            if (at < dim && r) {
#pragma unroll
                for (int i = 0; i < 4; i++)
                    q[u].f[i] = cu_rounded<R>(old[u].f[i] + q[u].f[i]);
                cu_put4<Wide>(r + at, q[u], dim - at);
            }
            if (at < dim)
                cu_store4<Wide>(row + at, q[u], dim - at);
        }
    }
    pad_row(row, dim);
}

/* The row that a gradient kernel works on, for both norms. */
template <typename X> struct grad_row {
    const X *x;
    const float *dy;
    const float *weight;
    float *g;  /* in shared memory: dy (w + offset) */
    float *xh; /* in shared memory: (x - mean) rstd, with mean 0 in RMSNorm */
    float *dx;
    float offset;
    float mean;
    float rstd;
    uint32_t dim;
    uint32_t accumulate;
};

#define GRAD_EACH 2u /* groups of four of each array per thread in flight */

template <int Wide, int Centred, typename X>
CU_FN void load_grad(const grad_row<X> *r)
{
    uint32_t stride = blockDim.x * 4;
    for (uint32_t c = threadIdx.x * 4; c < r->dim; c += stride * GRAD_EACH) {
        cu_quad x[GRAD_EACH];
        cu_quad dy[GRAD_EACH];
        cu_quad w[GRAD_EACH];
#pragma unroll
        for (uint32_t u = 0; u < GRAD_EACH; u++) {
            uint32_t at = c + u * stride;
            if (at < r->dim) {
                x[u] = cu_load4<Wide>(r->x + at, r->dim - at);
                dy[u] = cu_load4<Wide>(r->dy + at, r->dim - at);
                w[u] = cu_load4<Wide>(r->weight + at, r->dim - at);
            }
        }
#pragma unroll
        for (uint32_t u = 0; u < GRAD_EACH; u++) {
            uint32_t at = c + u * stride;
            if (at >= r->dim)
                break;
#pragma unroll
            for (int i = 0; i < 4; i++) {
                float v = Centred ? x[u].f[i] - r->mean : x[u].f[i];
                x[u].f[i] = v * r->rstd;
                dy[u].f[i] =
                    dy[u].f[i] * (Centred ? w[u].f[i] : w[u].f[i] + r->offset);
            }
            cu_store4<Wide>(r->g + at, dy[u], r->dim - at);
            cu_store4<Wide>(r->xh + at, x[u], r->dim - at);
        }
    }
    pad_row(r->g, r->dim);
    pad_row(r->xh, r->dim);
}

/* dx = rstd ((g - b) - c xh), where RMSNorm has no b. */
template <int Wide, int Centred, typename X>
CU_FN void store_grad(const grad_row<X> *r, float b, float minus_c)
{
    uint32_t stride = blockDim.x * 4;
    for (uint32_t c = threadIdx.x * 4; c < r->dim; c += stride * GRAD_EACH) {
        cu_quad old[GRAD_EACH] = {};
#pragma unroll
        for (uint32_t u = 0; u < GRAD_EACH; u++) {
            uint32_t at = c + u * stride;
            if (r->accumulate && at < r->dim)
                old[u] = cu_load4<Wide>(r->dx + at, r->dim - at);
        }
#pragma unroll
        for (uint32_t u = 0; u < GRAD_EACH; u++) {
            uint32_t at = c + u * stride;
            if (at >= r->dim)
                break;
            cu_quad g = cu_load4<Wide>(r->g + at, r->dim - at);
            cu_quad xh = cu_load4<Wide>(r->xh + at, r->dim - at);
#pragma unroll
            for (int i = 0; i < 4; i++) {
                float d = Centred ? g.f[i] - b : g.f[i];
                d = r->rstd * fmaf(minus_c, xh.f[i], d);
                g.f[i] = r->accumulate ? old[u].f[i] + d : d;
            }
            cu_put4<Wide>(r->dx + at, g, r->dim - at);
        }
    }
}

#endif
