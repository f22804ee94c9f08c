/* SPDX-License-Identifier: Apache-2.0
 *
 * RMSNorm and LayerNorm on NVIDIA GPUs, and the gradients of their inputs.
 *
 * The sum of a row is sixteen chains of dim / 16 additions each, run by half a
 * warp in a fixed order. A block takes one row: all its threads load the row
 * into shared memory, one warp sums it there, and all threads write the result
 * from there. Values are read once and written once, and with many rows on a
 * multiprocessor the chains of some rows overlap with the loads of others.
 * Short rows (qk-norm) take half a warp each and stay in registers. All of
 * these kernels are bound by memory.
 */
#include "plugins/device-cuda/norm_fold.h"
#include "plugins/device-cuda/rows.h"

#define NORM_EACH 4u       /* groups of four per thread in flight */
#define NORM_SHORT 256u    /* longest row that half a warp keeps */
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

/* Launches kernel<Wide> with one block per row. */
#define NORM_LAUNCH(kernel, rows, floats, each)                               \
    do {                                                                      \
        uint64_t bytes_ = ((uint64_t)op->dim + 15) / 16 * 64 * (floats);      \
        dim3 block_(rows_threads(((uint64_t)op->dim + 3) / 4, each));         \
        xray_status s_ = wide ? allow_shared(d, where, kernel<1>, bytes_)     \
                              : allow_shared(d, where, kernel<0>, bytes_);    \
        if (s_ != XRAY_OK)                                                    \
            return s_;                                                        \
        ROWS_LAUNCH(kernel, wide, dim3((unsigned)(rows)), block_, bytes_, on, \
                    *op);                                                     \
    } while (0)

/* ---- RMSNorm ------------------------------------------------------------ */

/* Loads x, or r + x, which is also stored to r. */
template <int Wide>
CU_FN void load_row(const float *x, float *r, uint32_t dim, float *row)
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
                    q[u].f[i] = old[u].f[i] + q[u].f[i];
                cu_put4<Wide>(r + at, q[u], dim - at);
            }
            if (at < dim)
                cu_store4<Wide>(row + at, q[u], dim - at);
        }
    }
    pad_row(row, dim);
}

/* y = (row rstd) (w + offset). */
template <int Wide>
CU_FN void store_rms(const xray_rmsnorm *op, const float *row, float rstd,
                     float *y)
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
template <int Wide>
__global__ void __launch_bounds__(ROWS_THREADS) rmsnorm_kernel(xray_rmsnorm op)
{
    CU_DYNAMIC(float, row);
    __shared__ float stat;
    uint64_t r = blockIdx.x;
    if (r >= cu_count(op.tokens.bound, op.tokens.live) * op.groups)
        return;
    uint64_t t = r / op.groups;
    uint32_t g = (uint32_t)(r % op.groups);
    load_row<Wide>((const float *)op.x + t * op.x_stride + (uint64_t)g * op.dim,
                   op.residual ? (float *)op.residual + t * op.dim : NULL,
                   op.dim, row);
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
                    (float *)op.y + t * op.y_stride + (uint64_t)g * op.dim);
}

/* Loads a row of at most 16 K values into half a warp. Lane l keeps every
 * sixteenth value from l on, which are the terms of its chain. */
template <int K>
CU_FN void load_short(const float *row, uint32_t dim, int on, float v[K])
{
#pragma unroll
    for (int k = 0; k < K; k++) {
        uint32_t i = (uint32_t)k * 16 + threadIdx.x % 16;
        v[k] = on && i < dim ? row[i] : 0.0f;
    }
}

/* Half a warp per row; the row stays in registers. */
template <int K>
__global__ void __launch_bounds__(ROWS_THREADS) rmsnorm_short(xray_rmsnorm op)
{
    uint64_t r = ((uint64_t)blockIdx.x * ROWS_THREADS + threadIdx.x) / 16;
    int on = r < cu_count(op.tokens.bound, op.tokens.live) * op.groups;
    uint64_t t = r / op.groups;
    uint64_t g = r % op.groups;
    float x[K];
    load_short<K>((const float *)op.x + t * op.x_stride + g * op.dim, op.dim,
                  on, x);
    float s = 0.0f;
#pragma unroll
    for (int k = 0; k < K; k++)
        s = fmaf(x[k], x[k], s);
    float rstd = inverse_root(cu_half_tree16(s), op.dim, op.eps);
    if (on && op.rstd && threadIdx.x % 16 == 0)
        op.rstd[r] = rstd;
    float *y = (float *)op.y + t * op.y_stride + g * op.dim;
#pragma unroll
    for (int k = 0; k < K; k++) {
        uint32_t i = (uint32_t)k * 16 + threadIdx.x % 16;
        if (on && i < op.dim)
            y[i] = (x[k] * rstd) * (op.weight[i] + op.offset);
    }
}

/* Launches kernel<4>, <8> or <16>, the number of values that a lane keeps. */
#define SHORT_LAUNCH(kernel, rows)                                        \
    do {                                                                  \
        dim3 grid_((unsigned)(((rows) + 15) / 16));                       \
        if (op->dim <= 64)                                                \
            CU_LAUNCH(kernel<4>, grid_, dim3(ROWS_THREADS), 0, on, *op);  \
        else if (op->dim <= 128)                                          \
            CU_LAUNCH(kernel<8>, grid_, dim3(ROWS_THREADS), 0, on, *op);  \
        else                                                              \
            CU_LAUNCH(kernel<16>, grid_, dim3(ROWS_THREADS), 0, on, *op); \
    } while (0)

extern "C" xray_status cuda_rmsnorm(void *self, xray_stream *stream,
                                    const xray_rmsnorm *op)
{
    cuda_device *d = (cuda_device *)self;
    const char *where = "rmsnorm";
    CUDA_CHECK(d, op, where, op->x, op->weight, op->y);
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
    int wide = rows_odd(op->x) + rows_odd(op->residual) + rows_odd(op->weight) +
                   rows_odd(op->y) + op->dim % 4 + op->x_stride % 4 +
                   op->y_stride % 4 ==
               0;
    if (op->dim <= NORM_SHORT && !op->residual)
        SHORT_LAUNCH(rmsnorm_short, rows);
    else
        NORM_LAUNCH(rmsnorm_kernel, rows, 1, NORM_EACH);
    return cuda_launched(d, where);
}

/* The row that a gradient kernel works on, for both norms. */
typedef struct grad_row {
    const float *x;
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
} grad_row;

#define GRAD_EACH 2u /* groups of four of each array per thread in flight */

template <int Wide, int Centred> CU_FN void load_grad(const grad_row *r)
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
template <int Wide, int Centred>
CU_FN void store_grad(const grad_row *r, float b, float minus_c)
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

/* One block per row. With xh = x rstd, g = dy (w + offset) and c = sum(g xh) /
 * dim: dx = rstd (g - c xh). g and xh are kept in shared memory. */
template <int Wide>
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
    grad_row row = { (const float *)op.x + t * op.x_stride + at,
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
template <int K>
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
    load_short<K>((const float *)op.x + t * op.x_stride + at, op.dim, on, xh);
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
    norm_fold f = { (const float *)op->x,  op->dy,        op->rstd,
                    op->dweight,           NULL,          op->tokens,
                    op->x_stride,          op->dy_stride, op->groups,
                    op->groups / segments, op->dim };
    if (op->dweight)
        norm_fold_start(d, on, &f, 0);
    int wide = rows_odd(op->x) + rows_odd(op->dy) + rows_odd(op->weight) +
                   rows_odd(op->dx) + op->dim % 4 + op->x_stride % 4 +
                   op->dy_stride % 4 + op->dx_stride % 4 ==
               0;
    if (op->dim <= NORM_SHORT)
        SHORT_LAUNCH(rmsnorm_dx_short, rows);
    else
        NORM_LAUNCH(rmsnorm_dx_kernel, rows, 2, GRAD_EACH);
    return cuda_launched(d, where);
}

/* ---- LayerNorm ---------------------------------------------------------- */

/* One block per row. The variance is computed from the centred values, so a
 * large mean does not cost digits. */
template <int Wide>
__global__ void __launch_bounds__(ROWS_THREADS)
    layernorm_kernel(xray_layernorm op)
{
    CU_DYNAMIC(float, row);
    __shared__ float stat[2];
    uint64_t t = blockIdx.x;
    if (t >= cu_count(op.tokens.bound, op.tokens.live))
        return;
    const float *x = (const float *)op.x + t * op.x_stride;
    load_row<Wide>(x, NULL, op.dim, row);
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
    float *y = (float *)op.y + t * op.y_stride;
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
        cu_store4<Wide>(y + c, q, op.dim - c);
    }
}

extern "C" xray_status cuda_layernorm(void *self, xray_stream *stream,
                                      const xray_layernorm *op)
{
    cuda_device *d = (cuda_device *)self;
    const char *where = "layernorm";
    CUDA_CHECK(d, op, where, op->x, op->weight, op->y);
    if (op->dim == 0 || op->x_stride < op->dim || op->y_stride < op->dim)
        return cuda_fail(d, XRAY_E_ARG, where,
                         "dim %u does not fit strides %llu and %llu", op->dim,
                         (unsigned long long)op->x_stride,
                         (unsigned long long)op->y_stride);
    uint64_t rows = op->tokens.bound;
    cudaStream_t on = cuda_stream(d, stream);
    if (rows == 0)
        return XRAY_OK;
    int wide = rows_odd(op->x) + rows_odd(op->weight) + rows_odd(op->bias) +
                   rows_odd(op->y) + op->dim % 4 + op->x_stride % 4 +
                   op->y_stride % 4 ==
               0;
    NORM_LAUNCH(layernorm_kernel, rows, 1, NORM_EACH);
    return cuda_launched(d, where);
}

/* One block per row. With xh = (x - mean) rstd, g = dy w, b = sum(g) / dim and
 * c = sum(g xh) / dim: dx = rstd ((g - b) - c xh). The two halves of a warp
 * compute the two sums: g times 1 adds as g does. */
template <int Wide>
__global__ void __launch_bounds__(ROWS_THREADS)
    layernorm_dx_kernel(xray_layernorm_grad op)
{
    CU_DYNAMIC(float, shared);
    __shared__ float stat[2];
    uint64_t t = blockIdx.x;
    if (t >= cu_count(op.tokens.bound, op.tokens.live))
        return;
    grad_row row = { (const float *)op.x + t * op.x_stride,
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
    const float *x = (const float *)op->x;
    norm_fold f = { x,         op->dy,     op->stat,     op->dweight,
                    op->dbias, op->tokens, op->x_stride, op->dy_stride,
                    1,         1,          op->dim };
    if (op->dweight || op->dbias)
        norm_fold_start(d, on, &f, 1);
    int wide = rows_odd(op->x) + rows_odd(op->dy) + rows_odd(op->weight) +
                   rows_odd(op->dx) + op->dim % 4 + op->x_stride % 4 +
                   op->dy_stride % 4 + op->dx_stride % 4 ==
               0;
    NORM_LAUNCH(layernorm_dx_kernel, rows, 2, GRAD_EACH);
    return cuda_launched(d, where);
}
