/* SPDX-License-Identifier: Apache-2.0
 *
 * Computes the norm of the gradients on the device and finds the parameter
 * whose gradient is not finite.
 */
#include "model/train/norm.h"

static xray_status add_squares(const xm_grad_share *grads, const float *x,
                               uint64_t count, xr_err *err)
{
    xray_sumsq call = { .header = XRAY_HEADER(xray_sumsq),
                        .count = count,
                        .x = x,
                        .result = grads->squares };
    if (count == 0)
        return XRAY_OK;
    xray_status status = xr_stop_check(grads->calls, err);
    if (status != XRAY_OK)
        return status;
    status = grads->device->sumsq(grads->device_self, NULL, &call);
    return status == XRAY_OK ? XRAY_OK
                             : xr_fail(err, status, "gradient norm failed");
}

static xray_status read_squares(const xm_grad_share *grads, xr_err *err,
                                uint64_t *out)
{
    xray_status status = grads->device->copy(
        grads->device_self, NULL, out, grads->squares,
        XRAY_SQUARES_WORDS * sizeof(*out), XRAY_COPY_TO_HOST);
    if (status == XRAY_OK)
        status = grads->device->sync(grads->device_self, NULL);
    return status == XRAY_OK
               ? XRAY_OK
               : xr_fail(err, status, "reading the gradient norm failed");
}

static xray_status clear_squares(const xm_grad_share *grads, xr_err *err)
{
    xray_status status =
        grads->device->zero(grads->device_self, NULL, grads->squares,
                            XRAY_SQUARES_WORDS * sizeof(*grads->squares));
    return status == XRAY_OK ? XRAY_OK
                             : xr_fail(err, status, "gradient norm failed");
}

/* Adds the squares of the rank's share of a bucket, copies left out. */
static xray_status add_bucket(const xm_grad_share *grads, uint32_t bucket,
                              xr_err *err)
{
    const xm_layout *layout = grads->layout;
    const float *data = grads->data[bucket];
    xm_range share = xm_bucket_share(layout, bucket);
    uint64_t from = 0;
    xray_status status = XRAY_OK;
    for (uint32_t i = 0; i < layout->param_count && status == XRAY_OK; i++) {
        const xm_param *param = &layout->params[i];
        xm_range here = xm_param_in(param, share);
        uint64_t end = here.first + here.count;
        if (param->bucket != bucket || end <= param->own)
            continue;
        uint64_t first = here.first > param->own ? here.first : param->own;
        uint64_t copies = param->offset + first - share.first;
        status = add_squares(grads, data + from, copies - from, err);
        from = copies + (end - first);
    }
    return status == XRAY_OK
               ? add_squares(grads, data + from, share.count - from, err)
               : status;
}

xray_status xm_grad_squares(const xm_grad_share *grads, xr_err *err,
                            uint64_t out_squares[XRAY_SQUARES_WORDS])
{
    const xm_layout *layout = grads->layout;
    xray_status status = clear_squares(grads, err);
    for (uint32_t b = layout->frozen; b < layout->bucket_count; b++)
        if (status == XRAY_OK)
            status = add_bucket(grads, b, err);
    return status == XRAY_OK ? read_squares(grads, err, out_squares) : status;
}

static xray_status sum_param_squares(const xm_grad_share *grads,
                                     const xm_param *param, xr_err *err,
                                     uint64_t *out_squares)
{
    xm_range share = xm_bucket_share(grads->layout, param->bucket);
    xm_range own = xm_param_in(param, share);
    if (own.count == 0 || param->bucket < grads->layout->frozen)
        return XRAY_OK;
    const float *x =
        grads->data[param->bucket] + (param->offset + own.first - share.first);
    xray_status status = clear_squares(grads, err);
    if (status == XRAY_OK)
        status = add_squares(grads, x, own.count, err);
    return status == XRAY_OK ? read_squares(grads, err, out_squares) : status;
}

xray_status xm_grad_first_bad(const xm_grad_share *grads, xr_err *err,
                              const xm_param **out_bad)
{
    *out_bad = NULL;
    for (uint32_t i = 0; i < grads->layout->param_count; i++) {
        const xm_param *param = &grads->layout->params[i];
        uint64_t squares[XRAY_SQUARES_WORDS] = { 0 };
        xray_status status = sum_param_squares(grads, param, err, squares);
        if (status != XRAY_OK)
            return status;
        if (squares[XRAY_SQUARES_WORDS - 1]) {
            *out_bad = param;
            return XRAY_OK;
        }
    }
    return XRAY_OK;
}

double xm_clip_coefficient(double norm, double max_norm)
{
    if (!(max_norm > 0))
        return 1.0;
    double coefficient = max_norm / (norm + 1e-6);
    return coefficient < 1.0 ? coefficient : 1.0;
}
