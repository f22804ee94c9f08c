/* SPDX-License-Identifier: Apache-2.0
 *
 * The operator matmul_grad on NVIDIA GPUs: the product that adds to a matrix's
 * gradient, and the gradient of the bias.
 */
#include "plugins/device-cuda/cu.h"
#include "plugins/device-cuda/fmath.h"
#include "plugins/device-cuda/product.h"

#define ALIGN 256u

#define BIAS_AHEAD 16 /* tokens read before they are added */

/* One thread per column adds the column in token order. Bound by memory once
 * there are columns for all multiprocessors, otherwise by the chain of
 * additions. */
__global__ void __launch_bounds__(64)
    bias_grad(float *dbias, const float *dy, uint64_t stride, uint64_t tokens,
              const int32_t *live, uint32_t rows)
{
    uint32_t n = blockIdx.x * 64 + threadIdx.x;
    if (n >= rows)
        return;
    tokens = cu_count(tokens, live);
    float s = dbias[n];
    const float *at = dy + n;
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
    dbias[n] = s;
}

/* dbias[n] += sum of dy[t, n] over tokens, in order. */
static xray_status add_bias_grad(const cuda_device *d, cudaStream_t stream,
                                 const xray_matmul_grad *op)
{
    unsigned blocks = (unsigned)((op->rows + 63) / 64);
    CU_LAUNCH(bias_grad, dim3(blocks), 64, 0, stream, op->dbias, op->dy,
              op->dy_stride, op->tokens.bound, op->tokens.live,
              (uint32_t)op->rows);
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
    return status == XRAY_OK
               ? product_tensor(d, stream, "matmul_grad", &g, PRODUCT_AUTO)
               : status;
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
