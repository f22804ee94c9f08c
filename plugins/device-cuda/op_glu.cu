/* SPDX-License-Identifier: Apache-2.0
 *
 * Activations on NVIDIA GPUs, gated or plain, and their gradients.
 */
#include "plugins/device-cuda/activation.h"
#include "plugins/device-cuda/rows.h"

/* The derivative d act / dg. For gelu, with th = 2 f - 1, it is f + g (1 -
 * th^2) / 2 u', where 1 - th^2 = 4 f (1 - f). Where that is 0, u' may be
 * infinite, so the slope is f. */
template <int Silu> CU_FN float act_slope(float g, float f)
{
    if (Silu)
        return f * fmaf(g, 1.0f - f, 1.0f);
    float du = GELU_A * fmaf(3.0f * GELU_B, g * g, 1.0f);
    float bell = 2.0f * (f * (1.0f - f));
    float slope = fmaf(g * bell, du, f);
    return 0.0f < bell ? slope : f;
}

typedef struct act_args {
    const void *x; /* [tokens, dim], or [tokens, 2 dim] with a gate */
    const float *dy;
    void *to; /* y, or dx */
    const int32_t *live;
    uint64_t bound;
    uint64_t step; /* columns per block */
    uint32_t chunks;
    uint32_t dim;
} act_args;

#define ACT_EACH 2 /* groups of four per thread in flight */

/* y = act(gate) up. 12 bytes of fp32 and about 45 instructions per value: bound
 * by memory, with about two thirds of the issue slots used. */
template <int Wide, int Silu, int Plain, typename X, typename Y>
__global__ void __launch_bounds__(ROWS_THREADS) act_kernel(act_args a)
{
    uint64_t t = blockIdx.x / a.chunks;
    if (t >= cu_count(a.bound, a.live))
        return;
    const X *x = (const X *)a.x + t * a.dim * (Plain ? 1 : 2);
    Y *y = (Y *)a.to + t * a.dim;
    uint64_t first = blockIdx.x % a.chunks * a.step;
    uint64_t last = min(first + a.step, (uint64_t)a.dim);
    uint64_t stride = (uint64_t)blockDim.x * 4;
    for (uint64_t c = first + threadIdx.x * 4; c < last;
         c += stride * ACT_EACH) {
        cu_quad g[ACT_EACH];
        cu_quad up[ACT_EACH];
#pragma unroll
        for (int u = 0; u < ACT_EACH; u++)
            if (c + u * stride < last) {
                uint64_t at = c + u * stride;
                g[u] = cu_load4<Wide>(x + at, a.dim - at);
                if (!Plain)
                    up[u] = cu_load4<Wide>(x + a.dim + at, a.dim - at);
            }
#pragma unroll
        for (int u = 0; u < ACT_EACH; u++)
            if (c + u * stride < last) {
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    float v = g[u].f[i] * act_factor<Silu>(g[u].f[i]);
                    g[u].f[i] = Plain ? v : v * up[u].f[i];
                }
                cu_put4<Wide>(y + c + u * stride, g[u], a.dim - c - u * stride);
            }
    }
}

/* dgate = dy up slope, dup = dy act(gate). 20 bytes of fp32 per value of y. dx
 * may be x, because a thread reads what it overwrites. */
template <int Wide, int Silu, int Plain, typename X>
__global__ void __launch_bounds__(ROWS_THREADS) act_grad_kernel(act_args a)
{
    uint64_t t = blockIdx.x / a.chunks;
    if (t >= cu_count(a.bound, a.live))
        return;
    const X *x = (const X *)a.x + t * a.dim * (Plain ? 1 : 2);
    const float *dy = a.dy + t * a.dim;
    float *dx = (float *)a.to + t * a.dim * (Plain ? 1 : 2);
    uint64_t first = blockIdx.x % a.chunks * a.step;
    uint64_t last = min(first + a.step, (uint64_t)a.dim);
    for (uint64_t c = first + threadIdx.x * 4; c < last; c += blockDim.x * 4) {
        uint64_t left = a.dim - c;
        cu_quad g = cu_load4<Wide>(x + c, left);
        cu_quad d = cu_load4<Wide>(dy + c, left);
        cu_quad up = {};
        if (!Plain)
            up = cu_load4<Wide>(x + a.dim + c, left);
        cu_quad dgate;
        cu_quad dup;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            float f = act_factor<Silu>(g.f[i]);
            float slope = act_slope<Silu>(g.f[i], f);
            dgate.f[i] = (Plain ? d.f[i] : d.f[i] * up.f[i]) * slope;
            dup.f[i] = d.f[i] * (g.f[i] * f);
        }
        cu_put4<Wide>(dx + c, dgate, left);
        if (!Plain)
            cu_put4<Wide>(dx + a.dim + c, dup, left);
    }
}

/* ---- launches ----------------------------------------------------------- */

/* Launches act_kernel with dy NULL, else act_grad_kernel. */
template <int Wide, int Silu, int Plain>
static void launch_as(cudaStream_t on, const act_args *a, dim3 grid, dim3 block,
                      uint32_t x_dtype, uint32_t y_dtype)
{
    rows_as(x_dtype, [&](auto x) {
        typedef decltype(x) X;
        if (a->dy)
            CU_LAUNCH((act_grad_kernel<Wide, Silu, Plain, X>), grid, block, 0,
                      on, *a);
        else
            rows_as(y_dtype, [&](auto y) {
                CU_LAUNCH((act_kernel<Wide, Silu, Plain, X, decltype(y)>), grid,
                          block, 0, on, *a);
            });
    });
}

#define ACT_LAUNCH(silu, plain)                                              \
    do {                                                                     \
        if (wide)                                                            \
            launch_as<1, silu, plain>(on, a, grid, block, x_dtype, y_dtype); \
        else                                                                 \
            launch_as<0, silu, plain>(on, a, grid, block, x_dtype, y_dtype); \
    } while (0)

/* Launches the activation or, with dy, its gradient; y_dtype is the type of
 * a->to. */
static void launch_act(cudaStream_t on, act_args *a, uint32_t act,
                       uint32_t plain, uint32_t x_dtype, uint32_t y_dtype)
{
    rows_shape s = rows_cut(((uint64_t)a->dim + 3) / 4, ACT_EACH);
    a->step = s.step * 4;
    a->chunks = s.chunks;
    dim3 grid((unsigned)(a->bound * s.chunks));
    dim3 block(s.threads);
    int wide = rows_odd_as(a->x, x_dtype) + rows_odd(a->dy) +
                   rows_odd_as(a->to, y_dtype) + a->dim % 4 ==
               0;
    if (act == XRAY_ACT_SILU && plain)
        ACT_LAUNCH(1, 1);
    else if (act == XRAY_ACT_SILU)
        ACT_LAUNCH(1, 0);
    else if (plain)
        ACT_LAUNCH(0, 1);
    else
        ACT_LAUNCH(0, 0);
}

static xray_status check_act(const cuda_device *d, const char *where,
                             uint32_t act, uint32_t dim, uint32_t plain)
{
    if (plain > 1)
        return cuda_fail(d, XRAY_E_ARG, where,
                         "plain is %u, but must be 0 or 1", plain);
    if (act != XRAY_ACT_SILU && act != XRAY_ACT_GELU_TANH)
        return cuda_fail(d, XRAY_E_UNSUPPORTED, where,
                         "activation %u is not supported", act);
    if (dim == 0)
        return cuda_fail(d, XRAY_E_ARG, where, "dim is 0");
    return XRAY_OK;
}

extern "C" xray_status cuda_glu(void *self, xray_stream *stream,
                                const xray_glu *op)
{
    cuda_device *d = (cuda_device *)self;
    CUDA_CHECK(d, op, "glu", op->x, op->y);
    XR_CHECK_OPERANDS(d->host, "glu", XR_OPERAND(op, x), XR_OPERAND(op, y));
    xray_status status = check_act(d, "glu", op->act, op->dim, op->plain);
    if (status != XRAY_OK || op->tokens.bound == 0)
        return status;
    act_args a = {};
    a.x = op->x;
    a.to = op->y;
    a.live = op->tokens.live;
    a.bound = op->tokens.bound;
    a.dim = op->dim;
    launch_act(cuda_stream(d, stream), &a, op->act, op->plain, op->x_dtype,
               op->y_dtype);
    return cuda_launched(d, "glu");
}

extern "C" xray_status cuda_glu_grad(void *self, xray_stream *stream,
                                     const xray_glu_grad *op)
{
    cuda_device *d = (cuda_device *)self;
    CUDA_CHECK(d, op, "glu_grad", op->x, op->dy, op->dx);
    XR_CHECK_OPERANDS(d->host, "glu_grad", XR_OPERAND(op, x),
                      { "dx", op->dx, XRAY_F32 });
    xray_status status = check_act(d, "glu_grad", op->act, op->dim, op->plain);
    if (status != XRAY_OK || op->tokens.bound == 0)
        return status;
    act_args a = {};
    a.x = op->x;
    a.dy = op->dy;
    a.to = op->dx;
    a.live = op->tokens.live;
    a.bound = op->tokens.bound;
    a.dim = op->dim;
    launch_act(cuda_stream(d, stream), &a, op->act, op->plain, op->x_dtype,
               XRAY_F32);
    return cuda_launched(d, "glu_grad");
}
