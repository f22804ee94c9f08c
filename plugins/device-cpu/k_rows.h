/* SPDX-License-Identifier: Apache-2.0
 *
 * Kernels that work token by token: rotary positions, activations, and
 * elementwise operators.
 */
#ifndef CPU_K_ROWS_H
#define CPU_K_ROWS_H

#include "plugins/device-cpu/kernels.h"
#include "plugins/device-cpu/vec.h"

/* Loops over n lanes in groups of at most 16; i is the first lane of a group,
 * `lanes` its size. */
#define LANES(i, n, lanes)                                   \
    for (size_t i = 0, lanes = (n) < 16 ? (n) : 16; i < (n); \
         i += 16, lanes = (n)-i < 16 ? (n)-i : 16)

static void scaled(float *y, const float *x, float scale, size_t n)
{
    v16 s = v16_set(scale);
    LANES(i, n, lanes)
    v16_storen(y + i, v16_mul(v16_loadn(x + i, lanes), s), lanes);
}

static void divide(float *y, const float *x, float by, size_t n)
{
    v16 s = v16_set(by);
    LANES(i, n, lanes)
    v16_storen(y + i, v16_div(v16_loadn(x + i, lanes), s), lanes);
}

static void fma_row(float *y, const float *x, float scale, size_t n)
{
    v16 s = v16_set(scale);
    LANES(i, n, lanes)
    v16_storen(y + i,
               v16_fma(s, v16_loadn(x + i, lanes), v16_loadn(y + i, lanes)),
               lanes);
}

/* Calls body(.., kx, ky). Kernels are compiled for floats without branches on
 * types in their loops, and once more for all other types: there a branch costs
 * less than the conversion that it selects. */
#define BY_TYPES(body, x_dtype, y_dtype, ...)    \
    do {                                         \
        int kx_ = cpu_is_narrow(x_dtype);        \
        int ky_ = cpu_is_narrow(y_dtype);        \
        if (kx_ || ky_)                          \
            body(__VA_ARGS__, kx_, ky_);         \
        else                                     \
            body(__VA_ARGS__, VEC_F32, VEC_F32); \
    } while (0)

/* With beta 0, y is not read. */
VFN void axpby_range(const xray_axpby *op, size_t first, size_t last, int kx,
                     int ky)
{
    v16 a = v16_set(op->alpha);
    v16 b = v16_set(op->beta);
    const void *x = op->x;
    void *y = op->y;
    int keep = op->beta != 0.0f;
    for (size_t i = first; i < last; i += 16) {
        size_t lanes = last - i < 16 ? last - i : 16;
        v16 sum = v16_set(0.0f);
        if (keep)
            sum = v16_mul(b, v16_take(y, ky, i, lanes));
        if (x) {
            v16 add = v16_take(x, kx, i, lanes);
            sum = keep ? v16_fma(a, add, sum) : v16_mul(a, add);
        }
        v16_put(y, ky, i, sum, lanes);
    }
}

static void axpby(const xray_axpby *op, size_t first, size_t last)
{
    BY_TYPES(axpby_range, op->x_dtype, op->y_dtype, op, first, last);
}

/* Rows outside of a slice are -0. A table of floats is rounded to bf16 if y
 * is. */
VFN void embed_range(const xray_embedding *op, size_t first, size_t last,
                     int kx, int ky)
{
    v16 scale = v16_set(op->scale);
    int kind = kx ? kx : ky ? VEC_ROUND : VEC_F32;
    for (size_t t = first; t < last; t++) {
        void *y = cpu_output(op->y, ky, t * op->dim);
        size_t row = (size_t)op->ids[t] - op->vocab_first;
        if (row >= op->vocab) {
            LANES(i, op->dim, lanes)
            v16_put(y, ky, i, v16_set(-0.0f), lanes);
            continue;
        }
        const void *x = cpu_element(op->table, kx, row * op->dim);
        LANES(i, op->dim, lanes)
        v16_put(y, ky, i, v16_mul(v16_take(x, kind, i, lanes), scale), lanes);
    }
}

static void embed(const xray_embedding *op, size_t first, size_t last)
{
    BY_TYPES(embed_range, op->table_dtype, op->y_dtype, op, first, last);
}

/* Sums a[i] b[i] in sixteen partial sums; lanes past the end add +0. */
VFN float dot_row(const float *a, const float *b, size_t n)
{
    v16 s = v16_set(0.0f);
    LANES(i, n, lanes)
    s = v16_fma(v16_loadn(a + i, lanes), v16_loadn(b + i, lanes), s);
    return v16_sum(s);
}

/* ---- rotary positions --------------------------------------------------- */

/* Rotates elements a and those `half` after them. */
VFN void rope_lanes(void *p, int kind, size_t a, size_t half, v16 c, v16 s,
                    size_t lanes)
{
    v16 x = v16_take(p, kind, a, lanes);
    v16 y = v16_take(p, kind, a + half, lanes);
    v16 neg = v16_sub(v16_set(-0.0f), v16_mul(y, s));
    v16_put(p, kind, a, v16_fma(x, c, neg), lanes);
    v16_put(p, kind, a + half, v16_fma(y, c, v16_mul(x, s)), lanes);
}

/* Loads cos and sin of `lanes` pairs. */
VFN void rope_pairs(const float *pairs, size_t lanes, v16 *out_c, v16 *out_s)
{
    float some[32] = { 0 };
    if (lanes < 16) {
        v16_storen(some, v16_loadn(pairs, 2 * lanes), 2 * lanes);
        if (lanes > 8)
            v16_storen(some + 16, v16_loadn(pairs + 16, 2 * lanes - 16),
                       2 * lanes - 16);
    }
    v16_split(lanes < 16 ? some : pairs, out_c, out_s);
}

/* Heads of 8 pairs, which fill 16 lanes. x s, with the sign of its half, is
 * added to the other half; this rounds as rope_lanes does. */
VFN void rope_8(const xray_rope *op, void *x, int kind, v16 c, v16 s)
{
    c = v16_twice(c);
    s = v16_twice(s);
    s = v16_pick(m16_range(0, 8), v16_sub(v16_set(-0.0f), s), s);
    for (size_t h = 0; h < op->heads; h++) {
        v16 a = v16_take(x, kind, h * op->head_dim, 16);
        a = v16_fma(a, c, v16_mul(v16_swap(a), s));
        v16_put(x, kind, h * op->head_dim, a, 16);
    }
}

VFN void rope_range(const xray_rope *op, size_t first, size_t last, int kind)
{
    size_t half = op->half;
    v16 turn = v16_set(op->inverse ? -1.0f : 1.0f);
    for (size_t t = first; t < last; t++) {
        const float *table =
            op->table + (size_t)(uint32_t)op->positions[t] * half * 2;
        void *x = cpu_output(op->x, kind, t * op->stride);
        LANES(i, half, lanes)
        {
            v16 c;
            v16 s;
            rope_pairs(table + 2 * i, lanes, &c, &s);
            s = v16_mul(s, turn);
            if (half == 8) {
                rope_8(op, x, kind, c, s);
                continue;
            }
            for (size_t h = 0; h < op->heads; h++)
                rope_lanes(x, kind, h * op->head_dim + i, half, c, s, lanes);
        }
    }
}

static void rotate_heads(const xray_rope *op, size_t first, size_t last)
{
    if (cpu_is_narrow(op->dtype))
        rope_range(op, first, last, VEC_BF16);
    else
        rope_range(op, first, last, VEC_F32);
}

/* ---- gated activation --------------------------------------------------- */

#define GELU_A 0x1.988454p-1f /* sqrt(2 / pi) */
#define GELU_B 0x1.6e4e26p-5f /* 0.044715 */

/* For a gate g: the factor f with act = g f, or the derivative d act / dg. */
VFN v16 silu_factor(v16 g)
{
    v16 e = v16_exp(v16_sub(v16_set(-0.0f), g));
    return v16_div(v16_set(1.0f), v16_add(v16_set(1.0f), e));
}

VFN v16 silu_slope(v16 g, v16 f)
{
    v16 rest = v16_sub(v16_set(1.0f), f);
    return v16_mul(f, v16_fma(g, rest, v16_set(1.0f)));
}

VFN v16 gelu_factor(v16 g)
{
    v16 cube = v16_mul(v16_mul(g, g), g);
    v16 u = v16_mul(v16_set(GELU_A), v16_fma(v16_set(GELU_B), cube, g));
    return v16_fma(v16_set(0.5f), v16_tanh(u), v16_set(0.5f));
}

/* With th = 2 f - 1 the slope is f + g (1 - th^2) / 2 u', where 1 - th^2 = 4 f
 * (1 - f). Where that is 0, u' may be infinite, so the slope is f. */
VFN v16 gelu_slope(v16 g, v16 f)
{
    v16 square = v16_mul(g, g);
    v16 du = v16_fma(v16_set(3.0f * GELU_B), square, v16_set(1.0f));
    du = v16_mul(v16_set(GELU_A), du);
    v16 bell = v16_mul(f, v16_sub(v16_set(1.0f), f));
    bell = v16_mul(v16_set(2.0f), bell);
    v16 slope = v16_fma(v16_mul(g, bell), du, f);
    return v16_pick(v16_lt(v16_set(0.0f), bell), slope, f);
}

/* Without a gate: y = act(x), which is the factor times x. */
VFN void act_row(void *y, const void *x, int silu, size_t n, int kx, int ky)
{
    LANES(i, n, lanes)
    {
        v16 g = v16_take(x, kx, i, lanes);
        v16 f = silu ? silu_factor(g) : gelu_factor(g);
        v16_put(y, ky, i, v16_mul(g, f), lanes);
    }
}

/* The number of rows to prefetch: the two halves of a short row end before the
 * hardware has detected a stream. */
VFN size_t glu_ahead(size_t dim)
{
    return 1024 / dim;
}

/* y = act(gate) * up; `ahead` elements further the next rows are prefetched. */
VFN void gate_row(void *y, const void *gate, const void *up, int silu, size_t n,
                  size_t ahead, int kx, int ky)
{
    int narrow = kx == VEC_BF16;
    LANES(i, n, lanes)
    {
        v16 g = v16_take(gate, kx, i, lanes);
        v16 u = v16_take(up, kx, i, lanes);
        __builtin_prefetch(cpu_element(gate, narrow, ahead + i));
        __builtin_prefetch(cpu_element(up, narrow, ahead + i));
        v16 f = silu ? silu_factor(g) : gelu_factor(g);
        v16_put(y, ky, i, v16_mul(v16_mul(g, f), u), lanes);
    }
}

VFN void glu_range(const xray_glu *op, size_t first, size_t last, int kx,
                   int ky)
{
    size_t dim = op->dim;
    size_t wide = op->plain ? dim : 2 * dim;
    size_t ahead = glu_ahead(dim) * wide;
    int silu = op->act == XRAY_ACT_SILU;
    if (op->plain) {
        act_row(cpu_output(op->y, ky, first * dim),
                cpu_element(op->x, kx, first * dim), silu, (last - first) * dim,
                kx, ky);
        return;
    }
    for (size_t t = first; t < last; t++) {
        const void *x = cpu_element(op->x, kx, t * wide);
        gate_row(cpu_output(op->y, ky, t * dim), x, cpu_element(x, kx, dim),
                 silu, dim, ahead, kx, ky);
    }
}

static void compute_glu(const xray_glu *op, size_t first, size_t last)
{
    BY_TYPES(glu_range, op->x_dtype, op->y_dtype, op, first, last);
}

VFN void activate_rows(const cpu_activation *a, int kx, int ky)
{
    for (size_t r = 0; r < a->rows; r++) {
        const float *gate = a->gate + r * a->x_row;
        void *y = cpu_output(a->y, ky, r * a->y_row);
        if (a->up)
            gate_row(y, gate, a->up + r * a->x_row, a->silu, a->cols, 0, kx,
                     ky);
        else
            act_row(y, gate, a->silu, a->cols, kx, ky);
    }
}

static void activate(const cpu_activation *a)
{
    if (a->narrow)
        activate_rows(a, VEC_ROUND, VEC_BF16);
    else
        activate_rows(a, VEC_F32, VEC_F32);
}

VFN void act_grad_row(float *dx, const void *x, const float *dy, int silu,
                      size_t n, int kind)
{
    LANES(i, n, lanes)
    {
        v16 g = v16_take(x, kind, i, lanes);
        v16 f = silu ? silu_factor(g) : gelu_factor(g);
        v16 slope = silu ? silu_slope(g, f) : gelu_slope(g, f);
        v16_storen(dx + i, v16_mul(v16_loadn(dy + i, lanes), slope), lanes);
    }
}

/* `ahead` elements further the next rows are prefetched. */
VFN void gate_grad_row(float *dx, const void *x, const float *dy, int silu,
                       size_t n, size_t ahead, int kind)
{
    LANES(i, n, lanes)
    {
        v16 g = v16_take(x, kind, i, lanes);
        v16 up = v16_take(x, kind, n + i, lanes);
        v16 d = v16_loadn(dy + i, lanes);
        __builtin_prefetch(cpu_element(x, kind, 2 * ahead + i));
        __builtin_prefetch(cpu_element(x, kind, 2 * ahead + n + i));
        __builtin_prefetch(dy + ahead + i);
        v16 f = silu ? silu_factor(g) : gelu_factor(g);
        v16 slope = silu ? silu_slope(g, f) : gelu_slope(g, f);
        v16_storen(dx + i, v16_mul(v16_mul(d, up), slope), lanes);
        v16_storen(dx + n + i, v16_mul(d, v16_mul(g, f)), lanes);
    }
}

VFN void glu_grad_range(const xray_glu_grad *op, size_t first, size_t last,
                        int kind)
{
    size_t dim = op->dim;
    size_t ahead = glu_ahead(dim) * dim;
    int silu = op->act == XRAY_ACT_SILU;
    if (op->plain) {
        act_grad_row(op->dx + first * dim,
                     cpu_element(op->x, kind, first * dim),
                     op->dy + first * dim, silu, (last - first) * dim, kind);
        return;
    }
    for (size_t t = first; t < last; t++)
        gate_grad_row(op->dx + t * dim * 2,
                      cpu_element(op->x, kind, t * dim * 2), op->dy + t * dim,
                      silu, dim, ahead, kind);
}

static void glu_grad(const xray_glu_grad *op, size_t first, size_t last)
{
    if (cpu_is_narrow(op->x_dtype))
        glu_grad_range(op, first, last, VEC_BF16);
    else
        glu_grad_range(op, first, last, VEC_F32);
}

/* ---- optimizer ---------------------------------------------------------- */

static void adamw(const xray_adamw *op, size_t first, size_t last)
{
    v16 decay = v16_set(-(op->scalars[0] * op->weight_decay));
    v16 rate = v16_set(-op->scalars[0]);
    v16 clip = v16_set(op->scalars[1]);
    v16 c1 = v16_set(op->scalars[2]);
    v16 c2 = v16_set(op->scalars[3]);
    v16 b1 = v16_set(op->beta1);
    v16 b2 = v16_set(op->beta2);
    v16 n1 = v16_set(1.0f - op->beta1);
    v16 n2 = v16_set(1.0f - op->beta2);
    v16 eps = v16_set(op->eps);
    float *pm = op->m + first;
    float *pv = op->v + first;
    LANES(i, last - first, lanes)
    {
        v16 g = v16_mul(v16_loadn(op->g + first + i, lanes), clip);
        v16 p = v16_loadn(op->p + first + i, lanes);
        v16 m = v16_fma(b1, v16_loadn(pm + i, lanes), v16_mul(n1, g));
        v16 v =
            v16_fma(b2, v16_loadn(pv + i, lanes), v16_mul(n2, v16_mul(g, g)));
        v16 root = v16_add(v16_sqrt(v16_div(v, c2)), eps);
        p = v16_fma(decay, p, p);
        p = v16_fma(rate, v16_div(v16_div(m, c1), root), p);
        v16_storen(op->p + first + i, p, lanes);
        v16_storen(pm + i, m, lanes);
        v16_storen(pv + i, v, lanes);
    }
}

/* db[j] = chain over tokens of dy[t, j], each added (a product with 1). */
static void bias_grad(float *db, const float *dy, size_t stride, size_t tokens,
                      size_t n)
{
    for (size_t j = 0; j < n; j += 16) {
        size_t lanes = n - j < 16 ? n - j : 16;
        v16 s = v16_loadn(db + j, lanes);
        for (size_t t = 0; t < tokens; t++)
            s = v16_add(s, v16_loadn(dy + t * stride + j, lanes));
        v16_storen(db + j, s, lanes);
    }
}

#endif
