/* SPDX-License-Identifier: Apache-2.0
 *
 * LayerNorm on NVIDIA GPUs, and the gradients of its input.
 */
#include "plugins/device-cuda/norm.h"

/* One block per row. The variance is computed from the centred values, so a
 * large mean does not cost digits. */
template <int Wide, typename X, typename Y>
__global__ void __launch_bounds__(ROWS_THREADS)
    layernorm_kernel(xray_layernorm op)
{
    CU_DYNAMIC(float, row);
    __shared__ float stat[2];
    uint64_t t = blockIdx.x;
    if (t >= cu_count(op.tokens.bound, op.tokens.live))
        return;
    const X *x = (const X *)op.x + t * op.x_stride;
    load_row<Wide>(x, (float *)NULL, op.dim, row);
    __syncthreads();
    if (threadIdx.x < 32) {
        float mean = sum_row(row, op.dim) / (float)op.dim;
        if (threadIdx.x == 0)
            stat[0] = mean;
    }
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < op.dim; i += blockDim.x)
        row[i] = row[i] - stat[0];
    __syncthreads();
    if (threadIdx.x < 32) {
        float rstd = inverse_root(dot_row(row, row, op.dim), op.dim, op.eps);
        if (threadIdx.x == 0)
            stat[1] = rstd;
    }
    __syncthreads();
    float rstd = stat[1];
    if (op.stat && threadIdx.x < 2)
        op.stat[2 * t + threadIdx.x] = stat[threadIdx.x];
    Y *y = (Y *)op.y + t * op.y_stride;
#pragma unroll 4
    for (uint32_t c = threadIdx.x * 4; c < op.dim; c += blockDim.x * 4) {
        cu_quad q = cu_load4<Wide>(row + c, op.dim - c);
        cu_quad w = cu_load4<Wide>(op.weight + c, op.dim - c);
        cu_quad b = {};
        if (op.bias)
            b = cu_load4<Wide>(op.bias + c, op.dim - c);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            float xh = q.f[i] * rstd;
            q.f[i] = op.bias ? fmaf(xh, w.f[i], b.f[i]) : xh * w.f[i];
        }
        cu_put4<Wide>(y + c, q, op.dim - c);
    }
}

extern "C" xray_status cuda_layernorm(void *self, xray_stream *stream,
                                      const xray_layernorm *op)
{
    cuda_device *d = (cuda_device *)self;
    const char *where = "layernorm";
    CUDA_CHECK(d, op, where, op->x, op->weight, op->y);
    XR_CHECK_OPERANDS(d->host, where, XR_OPERAND(op, x), XR_OPERAND(op, y));
    if (op->dim == 0 || op->x_stride < op->dim || op->y_stride < op->dim)
        return cuda_fail(d, XRAY_E_ARG, where,
                         "dim %u does not fit strides %llu and %llu", op->dim,
                         (unsigned long long)op->x_stride,
                         (unsigned long long)op->y_stride);
    uint64_t rows = op->tokens.bound;
    cudaStream_t on = cuda_stream(d, stream);
    if (rows == 0)
        return XRAY_OK;
    int wide = rows_odd_as(op->x, op->x_dtype) + rows_odd(op->weight) +
                   rows_odd(op->bias) + rows_odd_as(op->y, op->y_dtype) +
                   op->dim % 4 + op->x_stride % 4 + op->y_stride % 4 ==
               0;
    xray_status status = XRAY_OK;
    rows_as(op->x_dtype, [&](auto x) {
        rows_as(op->y_dtype, [&](auto y) {
            typedef decltype(x) X;
            typedef decltype(y) Y;
            status = norm_launch(d, where, on,
                                 wide ? layernorm_kernel<1, X, Y>
                                      : layernorm_kernel<0, X, Y>,
                                 op, rows, 1, NORM_EACH);
        });
    });
    return status != XRAY_OK ? status : cuda_launched(d, where);
}

/* One block per row. With xh = (x - mean) rstd, g = dy w, b = sum(g) / dim and
 * c = sum(g xh) / dim: dx = rstd ((g - b) - c xh). The two halves of a warp
 * compute the two sums: g times 1 adds as g does. */
template <int Wide, typename X>
__global__ void __launch_bounds__(ROWS_THREADS)
    layernorm_dx_kernel(xray_layernorm_grad op)
{
    CU_DYNAMIC(float, shared);
    __shared__ float stat[2];
    uint64_t t = blockIdx.x;
    if (t >= cu_count(op.tokens.bound, op.tokens.live))
        return;
    grad_row<X> row = { (const X *)op.x + t * op.x_stride,
                        op.dy + t * op.dy_stride,
                        op.weight,
                        shared,
                        shared + padded_floats(op.dim),
                        op.dx + t * op.dx_stride,
                        0.0f,
                        op.stat[2 * t],
                        op.stat[2 * t + 1],
                        op.dim,
                        op.accumulate };
    load_grad<Wide, 1>(&row);
    __syncthreads();
    if (threadIdx.x < 32) {
        float s = 0.0f;
#pragma unroll 8
        for (uint32_t i = threadIdx.x % 16; i < padded_floats(op.dim); i += 16)
            s = fmaf(row.g[i], threadIdx.x < 16 ? 1.0f : row.xh[i], s);
        s = cu_half_tree16(s) / (float)op.dim;
        if (threadIdx.x % 16 == 0)
            stat[threadIdx.x / 16] = s;
    }
    __syncthreads();
    store_grad<Wide, 1>(&row, stat[0], -stat[1]);
}

/* dweight and dbias are computed first, because dx may overwrite dy. */
extern "C" xray_status cuda_layernorm_grad(void *self, xray_stream *stream,
                                           const xray_layernorm_grad *op)
{
    cuda_device *d = (cuda_device *)self;
    const char *where = "layernorm_grad";
    CUDA_CHECK(d, op, where, op->x, op->weight, op->stat, op->dy, op->dx);
    XR_CHECK_OPERANDS(d->host, where, XR_OPERAND(op, x));
    if (op->dim == 0 || op->x_stride < op->dim || op->dy_stride < op->dim ||
        op->dx_stride < op->dim)
        return cuda_fail(d, XRAY_E_ARG, where,
                         "dim %u does not fit strides %llu, %llu and %llu",
                         op->dim, (unsigned long long)op->x_stride,
                         (unsigned long long)op->dy_stride,
                         (unsigned long long)op->dx_stride);
    uint64_t rows = op->tokens.bound;
    cudaStream_t on = cuda_stream(d, stream);
    if (rows == 0)
        return XRAY_OK;
    norm_fold f = { op->x,     op->dy,     op->stat,     op->dweight,
                    op->dbias, op->tokens, op->x_stride, op->dy_stride,
                    1,         1,          op->dim,      op->x_dtype };
    if (op->dweight || op->dbias)
        norm_fold_start(d, on, &f, 1);
    int wide = rows_odd_as(op->x, op->x_dtype) + rows_odd(op->dy) +
                   rows_odd(op->weight) + rows_odd(op->dx) + op->dim % 4 +
                   op->x_stride % 4 + op->dy_stride % 4 + op->dx_stride % 4 ==
               0;
    xray_status status = XRAY_OK;
    rows_as(op->x_dtype, [&](auto x) {
        typedef decltype(x) X;
        status = norm_launch(d, where, on,
                             wide ? layernorm_dx_kernel<1, X>
                                  : layernorm_dx_kernel<0, X>,
                             op, rows, 2, GRAD_EACH);
    });
    return status != XRAY_OK ? status : cuda_launched(d, where);
}
