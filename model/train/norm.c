/* SPDX-License-Identifier: Apache-2.0 */
#include "model/train/norm.h"

#include <math.h>

static xray_status add_squares(const xm_grads *grads, const float *x,
                               uint64_t count, double *scratch, xr_err *err)
{
    xray_sumsq call = {
        .head = XRAY_HEAD(xray_sumsq), .count = count, .x = x, .result = scratch
    };
    xray_status status = grads->device->sumsq(grads->device_self, NULL, &call);
    return status == XRAY_OK ? XRAY_OK
                             : xr_fail(err, status, "gradient norm failed");
}

static xray_status read_squares(const xm_grads *grads, const double *scratch,
                                xr_err *err, double *out_sum)
{
    double host[2];
    xray_status status =
        grads->device->copy(grads->device_self, NULL, host, scratch,
                            sizeof(host), XRAY_COPY_TO_HOST);
    if (status == XRAY_OK)
        status = grads->device->sync(grads->device_self, NULL);
    if (status != XRAY_OK)
        return xr_fail(err, status, "reading the gradient norm failed");
    *out_sum = host[1] > 0 ? (double)NAN : host[0];
    return XRAY_OK;
}

static xray_status clear(const xm_grads *grads, double *scratch, xr_err *err)
{
    xray_status status = grads->device->zero(grads->device_self, NULL, scratch,
                                             2 * sizeof(double));
    return status == XRAY_OK ? XRAY_OK
                             : xr_fail(err, status, "gradient norm failed");
}

static xray_status find_bad(const xm_grads *grads, double *scratch, xr_err *err,
                            const xm_param **out_bad)
{
    const xm_layout *layout = grads->layout;
    for (uint32_t i = 0; i < layout->param_count; i++) {
        const xm_param *param = &layout->params[i];
        double sum = 0;
        xray_status status = clear(grads, scratch, err);
        if (status == XRAY_OK)
            status = add_squares(grads,
                                 grads->buckets[param->bucket] + param->offset,
                                 param->count, scratch, err);
        if (status == XRAY_OK)
            status = read_squares(grads, scratch, err, &sum);
        if (status != XRAY_OK)
            return status;
        if (!isfinite(sum)) {
            *out_bad = param;
            return XRAY_OK;
        }
    }
    return XRAY_OK;
}

xray_status xm_grad_norm(const xm_grads *grads, double *scratch, xr_err *err,
                         double *out_norm, const xm_param **out_bad)
{
    double sum = 0;
    *out_bad = NULL;
    xray_status status = clear(grads, scratch, err);
    for (uint32_t b = 0; b < grads->layout->bucket_count; b++)
        if (status == XRAY_OK)
            status = add_squares(grads, grads->buckets[b],
                                 grads->layout->bucket_sizes[b], scratch, err);
    if (status == XRAY_OK)
        status = read_squares(grads, scratch, err, &sum);
    if (status != XRAY_OK)
        return status;
    *out_norm = sqrt(sum);
    return isfinite(sum) ? XRAY_OK : find_bad(grads, scratch, err, out_bad);
}

double xm_clip_coefficient(double norm, double max_norm)
{
    if (!(max_norm > 0))
        return 1.0;
    double coefficient = max_norm / (norm + 1e-6);
    return coefficient < 1.0 ? coefficient : 1.0;
}
