/* SPDX-License-Identifier: Apache-2.0
 *
 * Initializes weights at random, with the same values on every machine.
 */
#include <math.h>
#include <string.h>

#include <xray/numerics.h>

#include "core/base/map.h"
#include "model/nn/weights_internal.h"

typedef struct distribution {
    uint64_t key;
    double deviation; /* 0: all elements are `value` */
    float value;
} distribution;

static xray_status draw_values(void *ctx, uint64_t first, uint64_t count,
                               float *out, xr_err *err)
{
    const distribution *d = ctx;
    (void)err;
    if (d->deviation > 0) {
        xm_draw_normals(d->key, d->deviation, first, count, out);
        return XRAY_OK;
    }
    for (uint64_t i = 0; i < count; i++)
        out[i] = d->value;
    return XRAY_OK;
}

static int is_norm_weight(uint32_t slot)
{
    switch (slot) {
    case XM_NORM1:
    case XM_NORM2:
    case XM_POST_NORM1:
    case XM_POST_NORM2:
    case XM_Q_NORM:
    case XM_K_NORM:
    case XM_NORM:
        return 1;
    default:
        return 0;
    }
}

static distribution param_distribution(const xm_param *param,
                                       const xm_config *config, uint64_t seed)
{
    distribution d = { .key = xray_mix64(
                           xray_mix64(0, seed),
                           xr_hash(param->name, strlen(param->name))) };
    if (param->slot == XM_VALUE)
        return d;
    if (param->cols == 0) {
        d.value =
            is_norm_weight(param->slot) ? (float)(1 - config->norm_offset) : 0;
        return d;
    }
    uint32_t layers =
        config->slice.layers ? config->slice.layers : config->layers;
    d.deviation = config->init_range;
    if (param->slot == XM_O || param->slot == XM_DOWN)
        d.deviation /= sqrt(2.0 * layers);
    return d;
}

xray_status xm_weights_random(xm_weights *w, const xm_config *config,
                              uint64_t seed, xr_err *err)
{
    xm_stage s = { 0 };
    xray_status status = xm_weights_check_unleased(w, err);
    if (status == XRAY_OK)
        status = xm_stage_open(w, err, &s);
    for (uint32_t i = 0; i < w->layout->param_count && status == XRAY_OK; i++) {
        const xm_param *param = &w->layout->params[i];
        distribution d = param_distribution(param, config, seed);
        status = xm_stage_fill(w, param, &s, draw_values, &d, err);
    }
    xm_stage_close(&s);
    return status == XRAY_OK ? xm_weights_changed(w, w->version, err) : status;
}
