/* SPDX-License-Identifier: Apache-2.0
 *
 * Initializes weights at random, with the same values on every machine.
 */
#include <math.h>
#include <string.h>

#include <xray/numerics.h>

#include "core/base/map.h"
#include "model/nn/weights_internal.h"

/* Natural logarithm from basic arithmetic, so that initial weights do not
 * depend on the C library: with x = m 2^e, ln m = 2 atanh((m-1)/(m+1)). */
static double portable_log(double x)
{
    int e = 0;
    double m = frexp(x, &e);
    if (m < 0.70710678118654752) {
        m *= 2;
        e--;
    }
    double s = (m - 1) / (m + 1);
    double s2 = s * s;
    double sum = 0;
    for (int k = 21; k >= 1; k -= 2)
        sum = sum * s2 + 1.0 / k;
    return 2 * s * sum + e * 0.69314718055994531;
}

/* Draws two normal numbers by the polar method (Marsaglia, 1964); each attempt
 * has its own Philox counter. */
static void draw_normal_pair(uint64_t key, uint64_t pair, double out[2])
{
    double u = 0;
    double v = 0;
    double r = 0;
    for (uint32_t attempt = 0;; attempt++) {
        xray_philox_out bits = xray_philox(key, (uint32_t)pair,
                                           (uint32_t)(pair >> 32), attempt, 0);
        u = ((double)bits.w[0] + 0.5) * 0x1p-31 - 1;
        v = ((double)bits.w[1] + 0.5) * 0x1p-31 - 1;
        r = u * u + v * v;
        if (r > 0 && r < 1)
            break;
    }
    double scale = sqrt(-2 * portable_log(r) / r);
    out[0] = u * scale;
    out[1] = v * scale;
}

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
    for (uint64_t i = 0; i < count; i++)
        out[i] = d->value;
    if (d->deviation <= 0)
        return XRAY_OK;
    for (uint64_t i = first / 2 * 2; i < first + count; i += 2) {
        double pair[2];
        draw_normal_pair(d->key, i / 2, pair);
        if (i >= first)
            out[i - first] = (float)(pair[0] * d->deviation);
        if (i + 1 < first + count)
            out[i + 1 - first] = (float)(pair[1] * d->deviation);
    }
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
