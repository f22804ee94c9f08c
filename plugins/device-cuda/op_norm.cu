/* SPDX-License-Identifier: Apache-2.0
 *
 * RMSNorm on NVIDIA GPUs, and the gradients of its input. Short rows (qk-norm)
 * take half a warp each and stay in registers.
 */
#include "plugins/device-cuda/norm.h"

#define NORM_SHORT 256u /* longest row that half a warp keeps */

/* y = (row rstd) (w + offset). */
template <int Wide, typename Y>
CU_FN void store_rms(const xray_rmsnorm *op, const float *row, float rstd, Y *y)
{
    uint32_t stride = blockDim.x * 4;
    for (uint32_t c = threadIdx.x * 4; c < op->dim; c += stride * NORM_EACH) {
        cu_quad w[NORM_EACH];
#pragma unroll
        for (uint32_t u = 0; u < NORM_EACH; u++) {
            uint32_t at = c + u * stride;
            if (at < op->dim)
                w[u] = cu_load4<Wide>(op->weight + at, op->dim - at);
        }
#pragma unroll
        for (uint32_t u = 0; u < NORM_EACH; u++) {
            uint32_t at = c + u * stride;
            if (at >= op->dim)
                break;
            cu_quad q = cu_load4<Wide>(row + at, op->dim - at);
#pragma unroll
            for (int i = 0; i < 4; i++)
                q.f[i] = (q.f[i] * rstd) * (w[u].f[i] + op->offset);
            cu_put4<Wide>(y + at, q, op->dim - at);
        }
    }
}

/* One block per row: load, sum of squares by the first warp, scale and
 * store. */
template <int Wide, typename X, typename R, typename Y>
__global__ void __launch_bounds__(ROWS_THREADS) rmsnorm_kernel(xray_rmsnorm op)
{
    CU_DYNAMIC(float, row);
    __shared__ float stat;
    uint64_t r = blockIdx.x;
    if (r >= cu_count(op.tokens.bound, op.tokens.live) * op.groups)
        return;
    uint64_t t = r / op.groups;
    uint32_t g = (uint32_t)(r % op.groups);
    load_row<Wide>((const X *)op.x + t * op.x_stride + (uint64_t)g * op.dim,
                   op.residual ? (R *)op.residual + t * op.dim : NULL, op.dim,
                   row);
    __syncthreads();
    if (threadIdx.x < 32) {
        float rstd = inverse_root(dot_row(row, row, op.dim), op.dim, op.eps);
        if (threadIdx.x == 0) {
            stat = rstd;
            if (op.rstd)
                op.rstd[r] = rstd;
        }
    }
    __syncthreads();
    store_rms<Wide>(&op, row, stat,
                    (Y *)op.y + t * op.y_stride + (uint64_t)g * op.dim);
}

/* Loads a row of at most 16 K values into half a warp. Lane l keeps every
 * sixteenth value from l on, which are the terms of its chain. */
template <int K, typename X>
CU_FN void load_short(const X *row, uint32_t dim, int on, float v[K])
{
#pragma unroll
    for (int k = 0; k < K; k++) {
        uint32_t i = (uint32_t)k * 16 + threadIdx.x % 16;
        v[k] = on && i < dim ? cu_load1(row + i) : 0.0f;
    }
}

/* Half a warp per row; the row stays in registers. */
template <int K, typename X, typename Y>
__global__ void __launch_bounds__(ROWS_THREADS) rmsnorm_short(xray_rmsnorm op)
{
    uint64_t r = ((uint64_t)blockIdx.x * ROWS_THREADS + threadIdx.x) / 16;
    int on = r < cu_count(op.tokens.bound, op.tokens.live) * op.groups;
    uint64_t t = r / op.groups;
    uint64_t g = r % op.groups;
    float x[K];
    load_short<K>((const X *)op.x + t * op.x_stride + g * op.dim, op.dim, on,
                  x);
    float s = 0.0f;
#pragma unroll
    for (int k = 0; k < K; k++)
        s = fmaf(x[k], x[k], s);
    float rstd = inverse_root(cu_half_tree16(s), op.dim, op.eps);
    if (on && op.rstd && threadIdx.x % 16 == 0)
        op.rstd[r] = rstd;
    Y *y = (Y *)op.y + t * op.y_stride + g * op.dim;
#pragma unroll
    for (int k = 0; k < K; k++) {
        uint32_t i = (uint32_t)k * 16 + threadIdx.x % 16;
        if (on && i < op.dim)
            cu_put1(y + i, (x[k] * rstd) * (op.weight[i] + op.offset));
    }
}

/* Launches kernel<K, ...>, where K is the number of values that a lane keeps.
 */
#define SHORT_LAUNCH(kernel, rows, ...)                                        \
    do {                                                                       \
        dim3 grid_((unsigned)(((rows) + 15) / 16));                            \
        if (op->dim <= 64)                                                     \
            CU_LAUNCH((kernel<4, __VA_ARGS__>), grid_, dim3(ROWS_THREADS), 0,  \
                      on, *op);                                                \
        else if (op->dim <= 128)                                               \
            CU_LAUNCH((kernel<8, __VA_ARGS__>), grid_, dim3(ROWS_THREADS), 0,  \
                      on, *op);                                                \
        else                                                                   \
            CU_LAUNCH((kernel<16, __VA_ARGS__>), grid_, dim3(ROWS_THREADS), 0, \
                      on, *op);                                                \
    } while (0)

extern "C" xray_status cuda_rmsnorm(void *self, xray_stream *stream,
                                    const xray_rmsnorm *op)
{
    cuda_device *d = (cuda_device *)self;
    const char *where = "rmsnorm";
    CUDA_CHECK(d, op, where, op->x, op->weight, op->y);
    XR_CHECK_OPERANDS(d->host, where, XR_OPERAND(op, x), XR_OPERAND(op, y),
                      XR_OPERAND(op, residual));
    uint64_t width = (uint64_t)op->groups * op->dim;
    if (width == 0 || op->x_stride < width || op->y_stride < width)
        return cuda_fail(d, XRAY_E_ARG, where,
                         "%u groups of %u do not fit strides %llu and %llu",
                         op->groups, op->dim, (unsigned long long)op->x_stride,
                         (unsigned long long)op->y_stride);
    if (op->residual && op->groups != 1)
        return cuda_fail(d, XRAY_E_ARG, where,
                         "residual needs groups = 1, not %u", op->groups);
    uint64_t rows = op->tokens.bound * op->groups;
    cudaStream_t on = cuda_stream(d, stream);
    if (rows == 0)
        return XRAY_OK;
    int wide = rows_odd_as(op->x, op->x_dtype) +
                   rows_odd_as(op->residual, op->residual_dtype) +
                   rows_odd(op->weight) + rows_odd_as(op->y, op->y_dtype) +
                   op->dim % 4 + op->x_stride % 4 + op->y_stride % 4 ==
               0;
    xray_status status = XRAY_OK;
    rows_as(op->x_dtype, [&](auto x) {
        rows_as(op->y_dtype, [&](auto y) {
            typedef decltype(x) X;
            typedef decltype(y) Y;
            if (op->dim <= NORM_SHORT && !op->residual)
                SHORT_LAUNCH(rmsnorm_short, rows, X, Y);
            else
                rows_as(op->residual_dtype, [&](auto r) {
                    typedef decltype(r) R;
                    status = norm_launch(d, where, on,
                                         wide ? rmsnorm_kernel<1, X, R, Y>
                                              : rmsnorm_kernel<0, X, R, Y>,
                                         op, rows, 1, NORM_EACH);
                });
        });
    });
    return status != XRAY_OK ? status : cuda_launched(d, where);
}

/* One block per row. With xh = x rstd, g = dy (w + offset) and c = sum(g xh) /
 * dim: dx = rstd (g - c xh). g and xh are kept in shared memory. */
template <int Wide, typename X>
__global__ void __launch_bounds__(ROWS_THREADS)
    rmsnorm_dx_kernel(xray_rmsnorm_grad op)
{
    CU_DYNAMIC(float, shared);
    __shared__ float stat;
    uint64_t r = blockIdx.x;
    if (r >= cu_count(op.tokens.bound, op.tokens.live) * op.groups)
        return;
    uint64_t t = r / op.groups;
    uint64_t at = r % op.groups * op.dim;
    grad_row<X> row = { (const X *)op.x + t * op.x_stride + at,
                        op.dy + t * op.dy_stride + at,
                        op.weight,
                        shared,
                        shared + padded_floats(op.dim),
                        op.dx + t * op.dx_stride + at,
                        op.offset,
                        0.0f,
                        op.rstd[r],
                        op.dim,
                        op.accumulate };
    load_grad<Wide, 0>(&row);
    __syncthreads();
    if (threadIdx.x < 32) {
        float sum = dot_row(row.g, row.xh, op.dim);
        if (threadIdx.x == 0)
            stat = -(sum / (float)op.dim);
    }
    __syncthreads();
    store_grad<Wide, 0>(&row, 0.0f, stat);
}

/* The same with half a warp per row, in registers. */
template <int K, typename X>
__global__ void __launch_bounds__(ROWS_THREADS)
    rmsnorm_dx_short(xray_rmsnorm_grad op)
{
    uint64_t r = ((uint64_t)blockIdx.x * ROWS_THREADS + threadIdx.x) / 16;
    int on = r < cu_count(op.tokens.bound, op.tokens.live) * op.groups;
    uint64_t t = r / op.groups;
    uint64_t at = r % op.groups * op.dim;
    float rstd = on ? op.rstd[r] : 0.0f;
    float g[K];
    float xh[K];
    float w[K];
    load_short<K>((const X *)op.x + t * op.x_stride + at, op.dim, on, xh);
    load_short<K>(op.dy + t * op.dy_stride + at, op.dim, on, g);
    load_short<K>(op.weight, op.dim, 1, w);
    float s = 0.0f;
#pragma unroll
    for (int k = 0; k < K; k++) {
        g[k] = g[k] * (w[k] + op.offset);
        xh[k] = xh[k] * rstd;
        s = fmaf(g[k], xh[k], s);
    }
    float minus_c = -(cu_half_tree16(s) / (float)op.dim);
    float *dx = op.dx + t * op.dx_stride + at;
#pragma unroll
    for (int k = 0; k < K; k++) {
        uint32_t i = (uint32_t)k * 16 + threadIdx.x % 16;
        float v = rstd * fmaf(minus_c, xh[k], g[k]);
        if (on && i < op.dim)
            dx[i] = op.accumulate ? dx[i] + v : v;
    }
}

/* dweight is computed first, because dx may overwrite dy. */
extern "C" xray_status cuda_rmsnorm_grad(void *self, xray_stream *stream,
                                         const xray_rmsnorm_grad *op)
{
    cuda_device *d = (cuda_device *)self;
    const char *where = "rmsnorm_grad";
    CUDA_CHECK(d, op, where, op->x, op->weight, op->rstd, op->dy, op->dx);
    XR_CHECK_OPERANDS(d->host, where, XR_OPERAND(op, x));
    uint64_t width = (uint64_t)op->groups * op->dim;
    if (width == 0 || op->x_stride < width || op->dy_stride < width ||
        op->dx_stride < width)
        return cuda_fail(
            d, XRAY_E_ARG, where,
            "%u groups of %u do not fit strides %llu, %llu and %llu",
            op->groups, op->dim, (unsigned long long)op->x_stride,
            (unsigned long long)op->dy_stride,
            (unsigned long long)op->dx_stride);
    uint32_t segments = op->segments ? op->segments : 1;
    if (op->groups % segments)
        return cuda_fail(d, XRAY_E_ARG, where,
                         "%u segments do not divide %u groups", op->segments,
                         op->groups);
    uint64_t rows = op->tokens.bound * op->groups;
    cudaStream_t on = cuda_stream(d, stream);
    if (rows == 0)
        return XRAY_OK;
    norm_fold f = { op->x,        op->dy,
                    op->rstd,     op->dweight,
                    NULL,         op->tokens,
                    op->x_stride, op->dy_stride,
                    op->groups,   op->groups / segments,
                    op->dim,      op->x_dtype };
    if (op->dweight)
        norm_fold_start(d, on, &f, 0);
    int wide = rows_odd_as(op->x, op->x_dtype) + rows_odd(op->dy) +
                   rows_odd(op->weight) + rows_odd(op->dx) + op->dim % 4 +
                   op->x_stride % 4 + op->dy_stride % 4 + op->dx_stride % 4 ==
               0;
    xray_status status = XRAY_OK;
    rows_as(op->x_dtype, [&](auto x) {
        typedef decltype(x) X;
        if (op->dim <= NORM_SHORT)
            SHORT_LAUNCH(rmsnorm_dx_short, rows, X);
        else
            status = norm_launch(d, where, on,
                                 wide ? rmsnorm_dx_kernel<1, X>
                                      : rmsnorm_dx_kernel<0, X>,
                                 op, rows, 2, GRAD_EACH);
    });
    return status != XRAY_OK ? status : cuda_launched(d, where);
}
