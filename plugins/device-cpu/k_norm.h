/* SPDX-License-Identifier: Apache-2.0
 *
 * RMSNorm and LayerNorm kernels of the CPU. The gradients of their parameters
 * are chains over tokens, so they are cut by columns only.
 */
#ifndef CPU_K_NORM_H
#define CPU_K_NORM_H

#include "plugins/device-cpu/k_matmul.h"
#include "plugins/device-cpu/k_rows.h"

/* ---- RMSNorm ------------------------------------------------------------ */

VFN float norm_row(const xray_rmsnorm *op, const void *x, void *y, int kx,
                   int ky)
{
    size_t dim = op->dim;
    v16 sum = v16_set(0.0f);
    LANES(i, dim, lanes)
    {
        v16 e = v16_take(x, kx, i, lanes);
        sum = v16_fma(e, e, sum);
    }
    float mean = v16_sum(sum) / (float)dim;
    float rstd = 1.0f / __builtin_sqrtf(mean + op->eps);
    v16 s = v16_set(rstd);
    v16 offset = v16_set(op->offset);
    LANES(i, dim, lanes)
    {
        v16 w = v16_add(v16_loadn(op->weight + i, lanes), offset);
        v16 n = v16_mul(v16_take(x, kx, i, lanes), s);
        v16_put(y, ky, i, v16_mul(n, w), lanes);
    }
    return rstd;
}

/* kr is the kind of the residual. */
VFN void rmsnorm_range(const xray_rmsnorm *op, size_t first, size_t last,
                       int kr, int kx, int ky)
{
    size_t dim = op->dim;
    int kn = op->residual ? kr : kx;
    for (size_t t = first; t < last; t++) {
        const void *x = cpu_element(op->x, kx, t * op->x_stride);
        void *y = cpu_output(op->y, ky, t * op->y_stride);
        if (op->residual) {
            void *r = cpu_output(op->residual, kr, t * dim);
            LANES(i, dim, lanes)
            v16_put(
                r, kr, i,
                v16_add(v16_take(r, kr, i, lanes), v16_take(x, kx, i, lanes)),
                lanes);
            x = r;
        }
        for (size_t g = 0; g < op->groups; g++) {
            float rstd = norm_row(op, cpu_element(x, kn, g * dim),
                                  cpu_output(y, ky, g * dim), kn, ky);
            if (op->rstd)
                op->rstd[t * op->groups + g] = rstd;
        }
    }
}

static void rmsnorm(const xray_rmsnorm *op, size_t first, size_t last)
{
    int kr = op->residual && cpu_is_narrow(op->residual_dtype);
    if (kr)
        rmsnorm_range(op, first, last, VEC_BF16, cpu_is_narrow(op->x_dtype),
                      cpu_is_narrow(op->y_dtype));
    else
        BY_TYPES(rmsnorm_range, op->x_dtype, op->y_dtype, op, first, last,
                 VEC_F32);
}

/* With xh = x rstd, g = dy (w + offset) and c = sum(g xh) / dim: dx = rstd (g -
 * c xh). */
VFN void norm_dx_row(const xray_rmsnorm_grad *op, size_t at_x, size_t at_dy,
                     size_t at_dx, float rstd, int kind)
{
    size_t dim = op->dim;
    const void *x = cpu_element(op->x, kind, at_x);
    const float *dy = op->dy + at_dy;
    float *dx = op->dx + at_dx;
    v16 s = v16_set(rstd);
    v16 offset = v16_set(op->offset);
    v16 sum = v16_set(0.0f);
    LANES(i, dim, lanes)
    {
        v16 w = v16_add(v16_loadn(op->weight + i, lanes), offset);
        v16 g = v16_mul(v16_loadn(dy + i, lanes), w);
        sum = v16_fma(g, v16_mul(v16_take(x, kind, i, lanes), s), sum);
    }
    v16 c = v16_set(-(v16_sum(sum) / (float)dim));
    LANES(i, dim, lanes)
    {
        v16 w = v16_add(v16_loadn(op->weight + i, lanes), offset);
        v16 g = v16_mul(v16_loadn(dy + i, lanes), w);
        v16 xh = v16_mul(v16_take(x, kind, i, lanes), s);
        v16 d = v16_mul(s, v16_fma(c, xh, g));
        if (op->accumulate)
            d = v16_add(v16_loadn(dx + i, lanes), d);
        v16_storen(dx + i, d, lanes);
    }
}

VFN void norm_dx_range(const xray_rmsnorm_grad *op, size_t first, size_t last,
                       int kind)
{
    for (size_t t = first; t < last; t++)
        for (size_t g = 0; g < op->groups; g++)
            norm_dx_row(op, t * op->x_stride + g * op->dim,
                        t * op->dy_stride + g * op->dim,
                        t * op->dx_stride + g * op->dim,
                        op->rstd[t * op->groups + g], kind);
}

static void rmsnorm_dx(const xray_rmsnorm_grad *op, size_t first, size_t last)
{
    if (cpu_is_narrow(op->x_dtype))
        norm_dx_range(op, first, last, VEC_BF16);
    else
        norm_dx_range(op, first, last, VEC_F32);
}

/* ---- LayerNorm ---------------------------------------------------------- */

/* x - mean in the valid lanes, +0 past the end. */
VFN v16 centred_at(const void *x, int kind, size_t i, size_t lanes, v16 mean)
{
    v16 d = v16_sub(v16_take(x, kind, i, lanes), mean);
    return v16_pick(m16_range(0, lanes), d, v16_set(0.0f));
}

VFN float sum_row(const void *x, int kind, size_t n)
{
    v16 s = v16_set(0.0f);
    LANES(i, n, lanes)
    s = v16_add(s, v16_take(x, kind, i, lanes));
    return v16_sum(s);
}

/* The variance is computed from the centred values, so a large mean does not
 * cost digits. */
VFN void layer_row(const xray_layernorm *op, const void *x, void *y,
                   float *stat, int kx, int ky)
{
    size_t dim = op->dim;
    stat[0] = sum_row(x, kx, dim) / (float)dim;
    v16 mean = v16_set(stat[0]);
    v16 sum = v16_set(0.0f);
    LANES(i, dim, lanes)
    {
        v16 d = centred_at(x, kx, i, lanes, mean);
        sum = v16_fma(d, d, sum);
    }
    float var = v16_sum(sum) / (float)dim;
    stat[1] = 1.0f / __builtin_sqrtf(var + op->eps);
    v16 r = v16_set(stat[1]);
    LANES(i, dim, lanes)
    {
        v16 xh = v16_mul(centred_at(x, kx, i, lanes, mean), r);
        v16 w = v16_loadn(op->weight + i, lanes);
        v16_put(y, ky, i,
                op->bias ? v16_fma(xh, w, v16_loadn(op->bias + i, lanes))
                         : v16_mul(xh, w),
                lanes);
    }
}

VFN void layernorm_range(const xray_layernorm *op, size_t first, size_t last,
                         int kx, int ky)
{
    for (size_t t = first; t < last; t++) {
        float stat[2];
        layer_row(op, cpu_element(op->x, kx, t * op->x_stride),
                  cpu_output(op->y, ky, t * op->y_stride), stat, kx, ky);
        if (op->stat) {
            op->stat[2 * t] = stat[0];
            op->stat[2 * t + 1] = stat[1];
        }
    }
}

static void layernorm(const xray_layernorm *op, size_t first, size_t last)
{
    BY_TYPES(layernorm_range, op->x_dtype, op->y_dtype, op, first, last);
}

/* With xh = (x - mean) rstd, g = dy w, b = sum(g) / dim and c = sum(g xh) /
 * dim: dx = rstd ((g - b) - c xh). */
VFN void layer_dx_row(const xray_layernorm_grad *op, const void *x,
                      const float *dy, float *dx, const float *stat, int kind)
{
    size_t dim = op->dim;
    v16 mean = v16_set(stat[0]);
    v16 r = v16_set(stat[1]);
    v16 sum = v16_set(0.0f);
    v16 dot = v16_set(0.0f);
    LANES(i, dim, lanes)
    {
        v16 w = v16_loadn(op->weight + i, lanes);
        v16 g = v16_mul(v16_loadn(dy + i, lanes), w);
        v16 xh = v16_mul(centred_at(x, kind, i, lanes, mean), r);
        sum = v16_add(sum, g);
        dot = v16_fma(g, xh, dot);
    }
    v16 b = v16_set(v16_sum(sum) / (float)dim);
    v16 c = v16_set(-(v16_sum(dot) / (float)dim));
    LANES(i, dim, lanes)
    {
        v16 w = v16_loadn(op->weight + i, lanes);
        v16 g = v16_mul(v16_loadn(dy + i, lanes), w);
        v16 xh = v16_mul(centred_at(x, kind, i, lanes, mean), r);
        v16 d = v16_mul(r, v16_fma(c, xh, v16_sub(g, b)));
        if (op->accumulate)
            d = v16_add(v16_loadn(dx + i, lanes), d);
        v16_storen(dx + i, d, lanes);
    }
}

VFN void layer_dx_range(const xray_layernorm_grad *op, size_t first,
                        size_t last, int kind)
{
    for (size_t t = first; t < last; t++)
        layer_dx_row(op, cpu_element(op->x, kind, t * op->x_stride),
                     op->dy + t * op->dy_stride, op->dx + t * op->dx_stride,
                     op->stat + 2 * t, kind);
}

static void layernorm_dx(const xray_layernorm_grad *op, size_t first,
                         size_t last)
{
    if (cpu_is_narrow(op->x_dtype))
        layer_dx_range(op, first, last, VEC_BF16);
    else
        layer_dx_range(op, first, last, VEC_F32);
}

/* ---- parameter gradients ------------------------------------------------ */

#define NORM_PANELS 4 /* panels of dweight computed at once */

/* The input of dweight in both norms. A row is one group of one token; its
 * statistics are rstd, or mean and rstd. The sum takes the first `run` of a
 * token's groups. */
typedef struct norm_fold {
    const void *x;
    const float *dy, *stat;
    float *dweight;
    size_t x_stride, dy_stride;
    size_t tokens, groups, run, dim;
} norm_fold;

/* s[p] continues with dy xh of row t, group g; xh = (x - mean) rstd where
 * centred. */
VFN void norm_fold_row(const norm_fold *f, const size_t *at, int centred,
                       int kind, const size_t *lanes, v16 *s)
{
    size_t row = at[0] * f->groups + at[1];
    size_t at_x = at[0] * f->x_stride + at[1] * f->dim + at[2];
    const void *x = cpu_element(f->x, kind, at_x);
    const float *dy = f->dy + at[0] * f->dy_stride + at[1] * f->dim + at[2];
    const float *stat = f->stat + (centred ? 2 * row : row);
    v16 mean = v16_set(stat[0]);
    v16 r = v16_set(stat[centred ? 1 : 0]);
    for (size_t p = 0; p < NORM_PANELS && lanes[p]; p++) {
        v16 xh = v16_take(x, kind, p * 16, lanes[p]);
        if (centred)
            xh = v16_sub(xh, mean);
        xh = v16_mul(xh, r);
        s[p] = v16_fma(v16_loadn(dy + p * 16, lanes[p]), xh, s[p]);
    }
}

/* dweight[j] = chain over tokens, then groups, of dy xh. */
VFN void norm_dw_range(const norm_fold *f, const size_t *columns, int centred,
                       int kind)
{
    for (size_t j = columns[0]; j < columns[1]; j += (size_t)NORM_PANELS * 16) {
        v16 s[NORM_PANELS];
        size_t lanes[NORM_PANELS];
        for (size_t p = 0; p < NORM_PANELS; p++) {
            size_t at = j + p * 16;
            size_t left = at < columns[1] ? columns[1] - at : 0;
            lanes[p] = left < 16 ? left : 16;
            s[p] = v16_loadn(f->dweight + (lanes[p] ? at : 0), lanes[p]);
        }
        for (size_t t = 0; t < f->tokens; t++)
            for (size_t g = 0; g < f->run; g++)
                norm_fold_row(f, (size_t[]){ t, g, j }, centred, kind, lanes,
                              s);
        for (size_t p = 0; p < NORM_PANELS && lanes[p]; p++)
            v16_storen(f->dweight + j + p * 16, s[p], lanes[p]);
    }
}

VFN void norm_dw(const norm_fold *f, const size_t *columns, int centred,
                 int narrow)
{
    if (narrow)
        norm_dw_range(f, columns, centred, VEC_BF16);
    else
        norm_dw_range(f, columns, centred, VEC_F32);
}

/* `columns` counts through the rows of dweight, one for each segment. */
static void rmsnorm_dw(const xray_rmsnorm_grad *op, size_t tokens,
                       const size_t *columns)
{
    size_t dim = op->dim;
    size_t run = op->groups / (op->segments ? op->segments : 1);
    int narrow = cpu_is_narrow(op->x_dtype);
    for (size_t at = columns[0]; at < columns[1];) {
        size_t s = at / dim;
        size_t end = (s + 1) * dim < columns[1] ? (s + 1) * dim : columns[1];
        norm_fold f = { .x = cpu_element(op->x, narrow, s * run * dim),
                        .dy = op->dy + s * run * dim,
                        .stat = op->rstd + s * run,
                        .dweight = op->dweight + s * dim,
                        .x_stride = op->x_stride,
                        .dy_stride = op->dy_stride,
                        .tokens = tokens,
                        .groups = op->groups,
                        .run = run,
                        .dim = dim };
        norm_dw(&f, (size_t[]){ at - s * dim, end - s * dim }, 0, narrow);
        at = end;
    }
}

/* Computes dbias too, the sum over tokens of dy. */
static void layernorm_dw(const xray_layernorm_grad *op, size_t tokens,
                         const size_t *columns)
{
    norm_fold f = { .x = op->x,
                    .dy = op->dy,
                    .stat = op->stat,
                    .dweight = op->dweight,
                    .x_stride = op->x_stride,
                    .dy_stride = op->dy_stride,
                    .tokens = tokens,
                    .groups = 1,
                    .run = 1,
                    .dim = op->dim };
    if (op->dweight)
        norm_dw(&f, columns, 1, cpu_is_narrow(op->x_dtype));
    if (op->dbias)
        bias_grad(op->dbias + columns[0], op->dy + columns[0], op->dy_stride,
                  tokens, columns[1] - columns[0]);
}

#endif
