/* SPDX-License-Identifier: Apache-2.0
 *
 * The operator matmul_grad on NVIDIA GPUs: the product that adds to a matrix's
 * gradient, and the gradient of the bias.
 */
#include "plugins/device-cuda/cu.h"
#include "plugins/device-cuda/fmath.h"
#include "plugins/device-cuda/product.h"

#define ALIGN 256u

#define BIAS_AHEAD 16   /* tokens read before they are added */
#define BIAS_CHUNK 256u /* bfloat16: tokens of a sum */
#define BIAS_COLS 32u   /* bfloat16: columns of a block */
#define BIAS_SUMS 32u   /* bfloat16: sums that a block has at a time */

/* Adds a column of `tokens` rows to s, in order. */
CU_FN float add_column(float s, const float *at, uint64_t stride,
                       uint64_t tokens)
{
    uint64_t t = 0;
    for (; t + BIAS_AHEAD <= tokens; t += BIAS_AHEAD) {
        float v[BIAS_AHEAD];
#pragma unroll
        for (int i = 0; i < BIAS_AHEAD; i++)
            v[i] = at[(uint64_t)i * stride];
#pragma unroll
        for (int i = 0; i < BIAS_AHEAD; i++)
            s = s + v[i];
        at += BIAS_AHEAD * stride;
    }
    for (; t < tokens; t++, at += stride)
        s = s + *at;
    return s;
}

/* float32: one thread per column adds the column in token order. Bound by
 * memory once there are columns for all multiprocessors, otherwise by the chain
 * of additions. */
__global__ void __launch_bounds__(64)
    bias_grad(float *dbias, const float *dy, uint64_t stride, uint64_t tokens,
              const int32_t *live, uint32_t rows)
{
    uint32_t n = blockIdx.x * 64 + threadIdx.x;
    if (n < rows)
        dbias[n] = add_column(dbias[n], dy + n, stride, cu_count(tokens, live));
}

/* bfloat16: the sums of chunks of tokens, each from 0, are added in order. A
 * warp sums a chunk of the block's columns. */
__global__ void __launch_bounds__(BIAS_COLS *BIAS_SUMS)
    bias_grad_chunks(float *dbias, const float *dy, uint64_t stride,
                     uint64_t tokens, const int32_t *live, uint32_t rows)
{
    __shared__ float sums[BIAS_SUMS][BIAS_COLS];
    uint32_t col = threadIdx.x % BIAS_COLS;
    uint32_t own = threadIdx.x / BIAS_COLS;
    uint32_t n = blockIdx.x * BIAS_COLS + col;
    tokens = cu_count(tokens, live);
    float s = own == 0 && n < rows ? dbias[n] : 0.0f;
    for (uint64_t t = 0; t < tokens; t += (uint64_t)BIAS_SUMS * BIAS_CHUNK) {
        uint64_t first = t + (uint64_t)own * BIAS_CHUNK;
        uint64_t left = first < tokens ? tokens - first : 0;
        sums[own][col] = n < rows
                             ? add_column(0.0f, dy + first * stride + n, stride,
                                          left < BIAS_CHUNK ? left : BIAS_CHUNK)
                             : 0.0f;
        __syncthreads();
        for (uint32_t i = 0;
             own == 0 && i < BIAS_SUMS && t + (uint64_t)i * BIAS_CHUNK < tokens;
             i++)
            s = s + sums[i][col];
        __syncthreads();
    }
    if (own == 0 && n < rows)
        dbias[n] = s;
}

/* dbias[n] += sum of dy[t, n] over tokens, in order. */
static xray_status add_bias_grad(const cuda_device *d, cudaStream_t stream,
                                 const xray_matmul_grad *op)
{
    uint32_t rows = (uint32_t)op->rows;
    if (d->precision == CUDA_FLOAT32)
        CU_LAUNCH(bias_grad, dim3((rows + 63) / 64), 64, 0, stream, op->dbias,
                  op->dy, op->dy_stride, op->tokens.bound, op->tokens.live,
                  rows);
    else
        CU_LAUNCH(bias_grad_chunks, dim3((rows + BIAS_COLS - 1) / BIAS_COLS),
                  BIAS_COLS * BIAS_SUMS, 0, stream, op->dbias, op->dy,
                  op->dy_stride, op->tokens.bound, op->tokens.live, rows);
    return cuda_launched(d, "matmul_grad");
}

/* Rounds dy and x to bf16 in scratch and sets them as operands of g, but not an
 * x that the tensor cores can read as it is. */
static xray_status narrow_operands(cuda_device *d, cudaStream_t stream,
                                   const xray_matmul_grad *op, product_gemm *g)
{
    int in_place = product_in_place(op->x, op->x_stride, op->cols, op->x_dtype);
    uint64_t row = product_row(op->cols);
    g->a_row = product_row(op->rows);
    uint64_t first = g->k * g->a_row * sizeof(uint16_t);
    first = (first + ALIGN - 1) / ALIGN * ALIGN;
    uint64_t second = in_place ? 0 : g->k * row * sizeof(uint16_t);
    void *to = NULL;
    xray_status status = cuda_scratch(d, CUDA_SCRATCH_X, first + second, &to);
    if (status != XRAY_OK)
        return status;
    product_rounding r = {};
    r.x = op->dy;
    r.to = (uint16_t *)to;
    r.live = op->tokens.live;
    r.x_row = op->dy_stride;
    r.rows = g->k;
    r.width = g->m;
    r.dtype = XRAY_F32;
    g->a = to;
    status = product_round(d, stream, "matmul_grad", &r);
    if (status != XRAY_OK || in_place)
        return status;
    r.x = op->x;
    r.to = (uint16_t *)(void *)((char *)to + first);
    r.x_row = op->x_stride;
    r.width = g->n;
    r.dtype = product_type(op->x_dtype);
    g->b = r.to;
    g->b_row = row;
    return product_round(d, stream, "matmul_grad", &r);
}

/* Adds the sums of the grains of tokens, one after the other. */
static xray_status add_grains(cuda_device *d, cudaStream_t stream,
                              const product_gemm *all)
{
    xray_status status = XRAY_OK;
    for (uint32_t t = 0; t < all->k && status == XRAY_OK; t += CUDA_GRAIN) {
        product_gemm g = *all;
        g.a = (const uint16_t *)all->a + t * all->a_row;
        g.b = (const uint16_t *)all->b + t * all->b_row;
        g.live_from = t;
        g.k = all->k - t < CUDA_GRAIN ? all->k - t : CUDA_GRAIN;
        status = product_narrow(d, stream, "matmul_grad", &g);
    }
    return status;
}

static xray_status add_matrix_grad(cuda_device *d, cudaStream_t stream,
                                   const xray_matmul_grad *op)
{
    product_gemm g = {};
    g.a = op->dy;
    g.b = op->x;
    g.c = op->dw;
    g.live = op->tokens.live;
    g.a_row = op->dy_stride;
    g.b_row = op->x_stride;
    g.c_row = op->cols;
    g.form = PRODUCT_TN;
    g.m = (uint32_t)op->rows;
    g.n = (uint32_t)op->cols;
    g.k = (uint32_t)op->tokens.bound;
    g.from = op->dw;
    g.from_row = op->cols;
    g.b_dtype = (uint8_t)product_type(op->x_dtype);
    if (d->precision == CUDA_FLOAT32)
        return product_chain(d, stream, "matmul_grad", &g, PRODUCT_AUTO);
    xray_status status = narrow_operands(d, stream, op, &g);
    return status == XRAY_OK ? add_grains(d, stream, &g) : status;
}

xray_status cuda_matmul_grad(void *self, xray_stream *stream,
                             const xray_matmul_grad *op)
{
    cuda_device *d = (cuda_device *)self;
    CUDA_CHECK(d, op, "matmul_grad", op->dy, op->x, op->dw);
    XR_CHECK_OPERANDS(d->host, "matmul_grad", XR_OPERAND(op, x));
    if (op->dy_stride < op->rows || op->x_stride < op->cols || !op->rows ||
        !op->cols || op->rows > INT32_MAX || op->cols > INT32_MAX ||
        op->tokens.bound > INT32_MAX)
        return cuda_fail(
            d, XRAY_E_ARG, "matmul_grad",
            "strides %llu and %llu do not fit rows of %llu and %llu",
            (unsigned long long)op->dy_stride, (unsigned long long)op->x_stride,
            (unsigned long long)op->rows, (unsigned long long)op->cols);
    if (op->tokens.bound == 0)
        return XRAY_OK;
    cudaStream_t s = cuda_stream(d, stream);
    xray_status status = add_matrix_grad(d, s, op);
    return status == XRAY_OK && op->dbias ? add_bias_grad(d, s, op) : status;
}
