/* SPDX-License-Identifier: Apache-2.0
 *
 * Short names for the device's operators; the first error sticks.
 */
#include "model/nn/internal.h"

void xm_run_note(xm_run *run, xray_status status, const char *what)
{
    if (status == XRAY_OK || run->status != XRAY_OK)
        return;
    run->status = status;
    if (run->layer == XM_NO_LAYER)
        (void)xr_fail(run->err, status, "the device refused %s (%d)", what,
                      status);
    else
        (void)xr_fail(run->err, status, "layer %u: the device refused %s (%d)",
                      run->layer, what, status);
}

static void product(xm_run *run, xray_matmul *call, xm_rows x, xm_rows y)
{
    if (run->status != XRAY_OK)
        return;
    call->tokens = run->tokens;
    call->x = x.data;
    call->y = y.data;
    call->x_stride = x.stride;
    call->y_stride = y.stride;
    xm_run_note(run, run->device->matmul(run->self, NULL, call),
                "a matrix product");
}

void xm_run_product(xm_run *run, const xray_weight *weight, const float *bias,
                    xm_rows x, xm_rows y)
{
    xray_matmul call = { XRAY_HEADER(xray_matmul), .weight = weight,
                         .bias = bias, .kind = XRAY_NT };
    product(run, &call, x, y);
}

void xm_run_product_add(xm_run *run, const xray_weight *weight, xm_rows x,
                        xm_rows y)
{
    xray_matmul call = { XRAY_HEADER(xray_matmul), .weight = weight,
                         .kind = XRAY_NT, .accumulate = 1 };
    product(run, &call, x, y);
}

void xm_run_product_back(xm_run *run, const xray_weight *weight, xm_rows dy,
                         xm_rows dx, uint32_t accumulate)
{
    xray_matmul call = { XRAY_HEADER(xray_matmul), .weight = weight,
                         .kind = XRAY_NN, .accumulate = accumulate };
    product(run, &call, dy, dx);
}

void xm_run_fold(xm_run *run, xm_rows dy, xm_rows x, float *dw, float *dbias)
{
    if (run->status != XRAY_OK)
        return;
    xray_matmul_grad call = { XRAY_HEADER(xray_matmul_grad),
                              .tokens = run->tokens,
                              .dy = dy.data,
                              .x = x.data,
                              .dy_stride = dy.stride,
                              .x_stride = x.stride,
                              .rows = dy.dim,
                              .cols = x.dim,
                              .dw = dw,
                              .dbias = dbias };
    xm_run_note(run, run->device->matmul_grad(run->self, NULL, &call),
                "a weight gradient");
}

void xm_run_norm(xm_run *run, const float *weight, uint64_t dim, xm_rows x,
                 xm_rows y, float *rstd)
{
    if (run->status != XRAY_OK)
        return;
    xray_rmsnorm call = { XRAY_HEADER(xray_rmsnorm),
                          .tokens = run->tokens,
                          .x = x.data,
                          .weight = weight,
                          .y = y.data,
                          .rstd = rstd,
                          .x_stride = x.stride,
                          .y_stride = y.stride,
                          .groups = (uint32_t)(x.dim / dim),
                          .dim = (uint32_t)dim,
                          .eps = (float)run->decoder->config.norm_eps,
                          .offset = (float)run->decoder->config.norm_offset };
    xm_run_note(run, run->device->rmsnorm(run->self, NULL, &call), "a norm");
}

void xm_run_layernorm(xm_run *run, const float *weight, const float *bias,
                      xm_rows x, xm_rows y, float *stat)
{
    if (run->status != XRAY_OK)
        return;
    xray_layernorm call = { XRAY_HEADER(xray_layernorm),
                            .tokens = run->tokens,
                            .x = x.data,
                            .weight = weight,
                            .bias = bias,
                            .y = y.data,
                            .stat = stat,
                            .x_stride = x.stride,
                            .y_stride = y.stride,
                            .dim = (uint32_t)x.dim,
                            .eps = (float)run->decoder->config.norm_eps };
    xm_run_note(run, run->device->layernorm(run->self, NULL, &call), "a norm");
}

void xm_run_norm_back(xm_run *run, const xm_norm_back *back, xm_rows x,
                      xm_rows dx)
{
    if (run->status != XRAY_OK)
        return;
    xray_rmsnorm_grad call = { XRAY_HEADER(xray_rmsnorm_grad),
                               .tokens = run->tokens,
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
                                   (float)run->decoder->config.norm_offset };
    xm_run_note(run, run->device->rmsnorm_grad(run->self, NULL, &call),
                "the gradient of a norm");
}

void xm_run_layernorm_back(xm_run *run, const xm_norm_back *back, xm_rows x,
                           xm_rows dx)
{
    if (run->status != XRAY_OK)
        return;
    xray_layernorm_grad call = { XRAY_HEADER(xray_layernorm_grad),
                                 .tokens = run->tokens,
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
                                 .accumulate = back->accumulate };
    xm_run_note(run, run->device->layernorm_grad(run->self, NULL, &call),
                "the gradient of a norm");
}

void xm_run_rope(xm_run *run, xm_rows x, uint32_t inverse)
{
    const xm_config *config = &run->decoder->config;
    if (run->status != XRAY_OK || !run->decoder->rope)
        return;
    int local = xm_config_slides(config, run->layer);
    xray_rope call = { XRAY_HEADER(xray_rope),
                       .tokens = run->tokens,
                       .x = x.data,
                       .positions = xm_run_positions(run),
                       .table = local ? run->decoder->rope_local
                                      : run->decoder->rope,
                       .stride = x.stride,
                       .heads = config->heads + config->kv_heads,
                       .head_dim = config->head_dim,
                       .half = config->rotary / 2,
                       .inverse = inverse };
    xm_run_note(run, run->device->rope(run->self, NULL, &call),
                "a rotary embedding");
}

void xm_run_add(xm_run *run, const float *from, float *to, uint64_t count)
{
    if (run->status != XRAY_OK)
        return;
    xray_axpby call = {
        XRAY_HEADER(xray_axpby), .count = count, .x = from, .y = to,
        .alpha = 1.0f,           .beta = 1.0f
    };
    xm_run_note(run, run->device->axpby(run->self, NULL, &call), "a sum");
}

void xm_run_copy(xm_run *run, const float *from, float *to, uint64_t count)
{
    if (run->status != XRAY_OK || from == to)
        return;
    xm_run_note(run,
                run->device->copy(run->self, NULL, to, from,
                                  count * sizeof(float), XRAY_COPY_ON_DEVICE),
                "a copy");
}

void xm_run_zero(xm_run *run, float *data, uint64_t count)
{
    if (run->status != XRAY_OK)
        return;
    xm_run_note(run,
                run->device->zero(run->self, NULL, data, count * sizeof(float)),
                "clearing memory");
}

static void move_rows(xm_run *run, const xray_rows *call, int gather)
{
    if (run->status != XRAY_OK)
        return;
    xray_status status = gather ? run->device->gather(run->self, NULL, call)
                                : run->device->scatter(run->self, NULL, call);
    xm_run_note(run, status, "moving rows");
}

void xm_run_gather(xm_run *run, const int32_t *index, const float *x, float *y)
{
    xray_rows call = { XRAY_HEADER(xray_rows),
                       .count = run->tokens,
                       .index = index,
                       .x = x,
                       .y = y,
                       .dim = run->decoder->config.hidden };
    move_rows(run, &call, 1);
}

void xm_run_scatter(xm_run *run, const int32_t *index, const float *x, float *y)
{
    xray_rows call = { XRAY_HEADER(xray_rows),
                       .count = run->tokens,
                       .index = index,
                       .x = x,
                       .y = y,
                       .dim = run->decoder->config.hidden };
    move_rows(run, &call, 0);
}
