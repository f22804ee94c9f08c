/* SPDX-License-Identifier: Apache-2.0
 *
 * Wraps the device's operators in functions of a pass that stop at the first
 * error.
 */
#include "model/nn/internal.h"

void xm_pass_keep_status(xm_pass *pass, xray_status status, const char *what)
{
    if (status == XRAY_OK || pass->status != XRAY_OK)
        return;
    pass->status = status;
    if (pass->layer == XM_NO_LAYER)
        (void)xr_fail(pass->err, status, "the device refused %s (%d)", what,
                      status);
    else
        (void)xr_fail(pass->err, status, "layer %u: the device refused %s (%d)",
                      pass->layer, what, status);
}

static void enqueue_product(xm_pass *pass, xray_matmul *call, xm_rows x,
                            xm_rows y)
{
    if (xm_pass_idles(pass))
        return;
    call->tokens = pass->tokens;
    call->x = x.data;
    call->y = y.data;
    call->x_stride = x.stride;
    call->y_stride = y.stride;
    call->x_dtype = x.dtype;
    call->y_dtype = y.dtype;
    call->residual_dtype = call->residual ? y.dtype : 0;
    xm_pass_keep_status(pass, pass->device->matmul(pass->self, NULL, call),
                        "a matrix product");
}

void xm_pass_product(xm_pass *pass, const xray_weight *weight,
                     const float *bias, xm_rows x, xm_rows y)
{
    xray_matmul call = { XRAY_HEADER(xray_matmul), .weight = weight,
                         .bias = bias, .kind = XRAY_NT };
    enqueue_product(pass, &call, x, y);
}

void xm_pass_product_onto(xm_pass *pass, const xray_weight *weight,
                          const xm_onto *onto, xm_rows x, xm_rows y)
{
    xray_matmul call = { XRAY_HEADER(xray_matmul),
                         .weight = weight,
                         .bias = onto->bias,
                         .residual = onto->from,
                         .residual_stride = y.dim,
                         .kind = XRAY_NT,
                         .segments = xm_segments(&pass->decoder->config) };
    enqueue_product(pass, &call, x, y);
}

void xm_pass_product_act(xm_pass *pass, const xray_weight *weight,
                         const float *bias, xm_rows x, xm_rows y)
{
    const xm_config *config = &pass->decoder->config;
    xray_matmul call = { XRAY_HEADER(xray_matmul),
                         .weight = weight,
                         .bias = bias,
                         .kind = XRAY_NT,
                         .act = xm_act_of(config),
                         .plain = !config->gated };
    enqueue_product(pass, &call, x, y);
}

void xm_pass_input_grad(xm_pass *pass, const xray_weight *weight, xm_rows dy,
                        xm_rows dx, uint32_t accumulate)
{
    xray_matmul call = { XRAY_HEADER(xray_matmul), .weight = weight,
                         .residual = accumulate ? dx.data : NULL,
                         .residual_stride = dx.stride, .kind = XRAY_NN };
    enqueue_product(pass, &call, dy, dx);
}

xm_rows xm_pass_joint_input_grad(xm_pass *pass, const xray_weight *weight,
                                 const uint64_t part[3], xm_rows dy, xm_rows dx)
{
    xray_matmul call = { XRAY_HEADER(xray_matmul), .weight = weight,
                         .kind = XRAY_NN,
                         .segments = xm_segments(&pass->decoder->config),
                         .part = { part[0], part[1], part[2] } };
    enqueue_product(pass, &call, dy, dx);
    return xm_pass_join_sums(pass, XM_JOIN_INPUT_GRADS, dx);
}

void xm_pass_weight_grad(xm_pass *pass, xm_rows dy, xm_rows x, float *dw,
                         float *dbias)
{
    if (xm_pass_idles(pass))
        return;
    xray_matmul_grad call = { XRAY_HEADER(xray_matmul_grad),
                              .tokens = pass->tokens,
                              .dy = dy.data,
                              .x = x.data,
                              .dy_stride = dy.stride,
                              .x_stride = x.stride,
                              .rows = dy.dim,
                              .cols = x.dim,
                              .dw = dw,
                              .dbias = dbias,
                              .x_dtype = x.dtype };
    xm_pass_keep_status(pass,
                        pass->device->matmul_grad(pass->self, NULL, &call),
                        "a weight gradient");
}

void xm_pass_norm(xm_pass *pass, const float *weight, uint64_t dim, xm_rows x,
                  xm_rows y, float *rstd)
{
    if (xm_pass_idles(pass))
        return;
    xray_rmsnorm call = { XRAY_HEADER(xray_rmsnorm),
                          .tokens = pass->tokens,
                          .x = x.data,
                          .weight = weight,
                          .y = y.data,
                          .rstd = rstd,
                          .x_stride = x.stride,
                          .y_stride = y.stride,
                          .groups = (uint32_t)(x.dim / dim),
                          .dim = (uint32_t)dim,
                          .eps = (float)pass->decoder->config.norm_eps,
                          .offset = (float)pass->decoder->config.norm_offset,
                          .x_dtype = x.dtype,
                          .y_dtype = y.dtype };
    xm_pass_keep_status(pass, pass->device->rmsnorm(pass->self, NULL, &call),
                        "a norm");
}

void xm_pass_layernorm(xm_pass *pass, const float *weight, const float *bias,
                       xm_rows x, xm_rows y, float *stat)
{
    if (xm_pass_idles(pass))
        return;
    xray_layernorm call = { XRAY_HEADER(xray_layernorm),
                            .tokens = pass->tokens,
                            .x = x.data,
                            .weight = weight,
                            .bias = bias,
                            .y = y.data,
                            .stat = stat,
                            .x_stride = x.stride,
                            .y_stride = y.stride,
                            .dim = (uint32_t)x.dim,
                            .eps = (float)pass->decoder->config.norm_eps,
                            .x_dtype = x.dtype,
                            .y_dtype = y.dtype };
    xm_pass_keep_status(pass, pass->device->layernorm(pass->self, NULL, &call),
                        "a norm");
}

void xm_pass_norm_grad(xm_pass *pass, const xm_norm_grad_call *back, xm_rows x,
                       xm_rows dx)
{
    if (xm_pass_idles(pass))
        return;
    xray_rmsnorm_grad call = { XRAY_HEADER(xray_rmsnorm_grad),
                               .tokens = pass->tokens,
                               .x = x.data,
                               .weight = back->weight,
                               .rstd = back->stat,
                               .dy = back->dy,
                               .dx = dx.data,
                               .dweight = back->dweight,
                               .x_stride = x.stride,
                               .dy_stride = dx.stride,
                               .dx_stride = dx.stride,
                               .groups = (uint32_t)(x.dim / back->dim),
                               .dim = (uint32_t)back->dim,
                               .accumulate = back->accumulate,
                               .offset =
                                   (float)pass->decoder->config.norm_offset,
                               .segments = back->segments,
                               .x_dtype = x.dtype };
    xm_pass_keep_status(pass,
                        pass->device->rmsnorm_grad(pass->self, NULL, &call),
                        "the gradient of a norm");
}

void xm_pass_layernorm_grad(xm_pass *pass, const xm_norm_grad_call *back,
                            xm_rows x, xm_rows dx)
{
    if (xm_pass_idles(pass))
        return;
    xray_layernorm_grad call = { XRAY_HEADER(xray_layernorm_grad),
                                 .tokens = pass->tokens,
                                 .x = x.data,
                                 .weight = back->weight,
                                 .stat = back->stat,
                                 .dy = back->dy,
                                 .dx = dx.data,
                                 .dweight = back->dweight,
                                 .dbias = back->dbias,
                                 .x_stride = x.stride,
                                 .dy_stride = dx.stride,
                                 .dx_stride = dx.stride,
                                 .dim = (uint32_t)back->dim,
                                 .accumulate = back->accumulate,
                                 .x_dtype = x.dtype };
    xm_pass_keep_status(pass,
                        pass->device->layernorm_grad(pass->self, NULL, &call),
                        "the gradient of a norm");
}

void xm_pass_rope(xm_pass *pass, xm_rows x, uint32_t inverse)
{
    const xm_config *config = &pass->decoder->config;
    if (xm_pass_idles(pass) || !pass->decoder->rope)
        return;
    int local = xm_config_slides(config, pass->layer);
    xray_rope call = { XRAY_HEADER(xray_rope),
                       .tokens = pass->tokens,
                       .x = x.data,
                       .positions = xm_pass_positions(pass),
                       .table = local ? pass->decoder->rope_local
                                      : pass->decoder->rope,
                       .stride = x.stride,
                       .heads = config->heads + config->kv_heads,
                       .head_dim = config->head_dim,
                       .half = config->rotary / 2,
                       .inverse = inverse,
                       .dtype = x.dtype };
    xm_pass_keep_status(pass, pass->device->rope(pass->self, NULL, &call),
                        "a rotary embedding");
}

void xm_pass_add(xm_pass *pass, xm_rows from, xm_rows to)
{
    if (xm_pass_idles(pass))
        return;
    xray_axpby call = {
        XRAY_HEADER(xray_axpby), .count = pass->tokens.bound * to.dim,
        .x = from.data,          .y = to.data,
        .alpha = 1.0f,           .beta = 1.0f,
        .x_dtype = from.dtype,   .y_dtype = to.dtype
    };
    xm_pass_keep_status(pass, pass->device->axpby(pass->self, NULL, &call),
                        "a sum");
}

void xm_pass_add_bias(xm_pass *pass, const float *bias, xm_rows y,
                      float *scratch)
{
    if (xm_pass_idles(pass) || !bias)
        return;
    /* Zeros are the same number as floats and as ids: every token looks up the
     * bias, the only row of its table. */
    xray_embedding call = { XRAY_HEADER(xray_embedding),
                            .tokens = pass->tokens,
                            .ids = (const int32_t *)pass->space->zeros,
                            .table = bias,
                            .y = scratch,
                            .vocab = 1,
                            .dim = y.dim,
                            .scale = 1.0f };
    xm_pass_keep_status(pass, pass->device->embedding(pass->self, NULL, &call),
                        "a bias");
    xm_pass_add(pass, xm_rows_of(scratch, y.dim), y);
}

void xm_pass_copy(xm_pass *pass, const void *from, xm_rows to)
{
    uint64_t size = to.dtype == XRAY_BF16 ? 2 : sizeof(float);
    if (xm_pass_idles(pass) || from == to.data)
        return;
    xm_pass_keep_status(pass,
                        pass->device->copy(pass->self, NULL, to.data, from,
                                           pass->tokens.bound * to.dim * size,
                                           XRAY_COPY_ON_DEVICE),
                        "a copy");
}

void xm_pass_cast(xm_pass *pass, xm_rows x, xm_rows y)
{
    if (xm_pass_idles(pass))
        return;
    xray_cast call = { XRAY_HEADER(xray_cast),
                       .count = y.dim,
                       .x = x.data,
                       .y = y.data,
                       .x_dtype = x.dtype ? x.dtype : XRAY_F32,
                       .y_dtype = y.dtype ? y.dtype : XRAY_F32,
                       .rows = pass->tokens.bound,
                       .x_stride = x.stride,
                       .y_stride = y.stride };
    xm_pass_keep_status(pass, pass->device->cast(pass->self, NULL, &call),
                        "a conversion");
}

void xm_pass_zero(xm_pass *pass, float *data, uint64_t count)
{
    if (pass->status != XRAY_OK)
        return;
    xm_pass_keep_status(
        pass, pass->device->zero(pass->self, NULL, data, count * sizeof(float)),
        "clearing memory");
}

void xm_pass_move_rows(xm_pass *pass, const xray_rows *call, int gather)
{
    if (pass->status != XRAY_OK || call->count.bound == 0)
        return;
    xray_status status = gather ? pass->device->gather(pass->self, NULL, call)
                                : pass->device->scatter(pass->self, NULL, call);
    xm_pass_keep_status(pass, status, "moving rows");
}

void xm_pass_gather(xm_pass *pass, const int32_t *index, const void *x, void *y)
{
    xray_rows call = { XRAY_HEADER(xray_rows),
                       .count = pass->tokens,
                       .index = index,
                       .x = x,
                       .y = y,
                       .dim = pass->decoder->config.hidden,
                       .dtype = pass->decoder->config.dtype };
    xm_pass_move_rows(pass, &call, 1);
}

void xm_pass_scatter(xm_pass *pass, const int32_t *index, const float *x,
                     float *y)
{
    xray_rows call = { XRAY_HEADER(xray_rows),
                       .count = pass->tokens,
                       .index = index,
                       .x = x,
                       .y = y,
                       .dim = pass->decoder->config.hidden };
    xm_pass_move_rows(pass, &call, 0);
}
