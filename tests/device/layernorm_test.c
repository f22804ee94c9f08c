/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests that LayerNorm matches float64, that its gradient matches differences
 * of float64, and that the bits do not depend on how the tokens are cut into
 * calls.
 */
#include "tests/device/bench.h"

#define RUN(d, op, args) must((d)->ops->op((d)->self, NULL, args))
#define EPS 1e-5

typedef struct norm {
    size_t tokens, dim;
    size_t pad; /* floats between two tokens */
    int no_bias;
    int accumulate;
    double mean, spread;
    size_t stride;
    float *x, *w, *bias, *dy, *dx, *stat;
} norm;

static const norm grid[] = {
    { .tokens = 1, .dim = 1, .spread = 1 },
    { .tokens = 5, .dim = 1, .mean = 3, .spread = 1, .accumulate = 1 },
    { .tokens = 3, .dim = 2, .pad = 1, .spread = 1 },
    { .tokens = 9, .dim = 15, .spread = 2, .no_bias = 1 },
    { .tokens = 9, .dim = 16, .pad = 16, .spread = 2, .accumulate = 1 },
    { .tokens = 7, .dim = 17, .pad = 3, .mean = -2, .spread = 2 },
    { .tokens = 33, .dim = 64, .spread = 1e-3 },
    { .tokens = 40, .dim = 96, .pad = 5, .spread = 30, .no_bias = 1 },
    { .tokens = 300, .dim = 515, .pad = 7, .spread = 1, .accumulate = 1 },
    { .tokens = 12, .dim = 768, .mean = 50, .spread = 0.5 },
    { .tokens = 6, .dim = 1600, .mean = -3000, .spread = 1 },
};
#define GRID (sizeof(grid) / sizeof(*grid))

static norm make_norm(norm n)
{
    n.stride = n.dim + n.pad;
    n.x = random_floats(n.tokens * n.stride, n.spread);
    for (size_t i = 0; i < n.tokens * n.stride; i++)
        n.x[i] += (float)n.mean;
    n.dy = random_floats(n.tokens * n.stride, 1);
    n.dx = random_floats(n.tokens * n.stride, 1);
    n.stat = alloc_floats(n.tokens * 2);
    n.w = random_floats(n.dim, 1);
    n.bias = random_floats(n.dim, 1);
    return n;
}

static void free_norm(norm *n)
{
    free(n->x);
    free(n->dy);
    free(n->dx);
    free(n->stat);
    free(n->w);
    free(n->bias);
}

static void run_forward(const dev *d, const norm *n, float *y, float *stat)
{
    xray_layernorm op = { .header = XRAY_HEADER(xray_layernorm),
                          .tokens = { n->tokens, NULL },
                          .x = n->x,
                          .weight = n->w,
                          .bias = n->no_bias ? NULL : n->bias,
                          .y = y,
                          .stat = stat,
                          .x_stride = n->stride,
                          .y_stride = n->stride,
                          .dim = (uint32_t)n->dim,
                          .eps = (float)EPS };
    RUN(d, layernorm, &op);
}

typedef struct grads {
    float *dx, *dw, *db;
} grads;

/* They start from existing values, as those of a second micro-batch do. */
static grads make_grads(const norm *n)
{
    return (grads){ copy_floats(n->dx, n->tokens * n->stride),
                    copy_floats(n->w, n->dim), copy_floats(n->bias, n->dim) };
}

static void free_grads(grads *g)
{
    free(g->dx);
    free(g->dw);
    free(g->db);
}

static xray_layernorm_grad make_grad_op(const norm *n, const grads *g,
                                        size_t first, size_t count)
{
    size_t at = first * n->stride;
    return (xray_layernorm_grad){ .header = XRAY_HEADER(xray_layernorm_grad),
                                  .tokens = { count, NULL },
                                  .x = n->x + at,
                                  .weight = n->w,
                                  .stat = n->stat + 2 * first,
                                  .dy = n->dy + at,
                                  .dx = g->dx + at,
                                  .dweight = g->dw,
                                  .dbias = n->no_bias ? NULL : g->db,
                                  .x_stride = n->stride,
                                  .dy_stride = n->stride,
                                  .dx_stride = n->stride,
                                  .dim = (uint32_t)n->dim,
                                  .accumulate = (uint32_t)n->accumulate };
}

static void run_backward(const dev *d, const norm *n, const grads *g,
                         size_t first, size_t count)
{
    xray_layernorm_grad op = make_grad_op(n, g, first, count);
    RUN(d, layernorm_grad, &op);
}

/* ---- float64 ------------------------------------------------------------ */

static void ref_stat(const double *x, size_t n, double *stat)
{
    double var = 0;
    stat[0] = 0;
    for (size_t i = 0; i < n; i++)
        stat[0] += x[i] / (double)n;
    for (size_t i = 0; i < n; i++)
        var += (x[i] - stat[0]) * (x[i] - stat[0]) / (double)n;
    stat[1] = 1 / sqrt(var + EPS);
}

/* sum_i dy[i] y[i] of token t with input x and parameters w, b: the function
 * whose derivatives are the gradients. */
static double ref_loss(const norm *n, size_t t, const double *x,
                       const double *w, const double *b)
{
    double stat[2];
    double sum = 0;
    ref_stat(x, n->dim, stat);
    for (size_t i = 0; i < n->dim; i++)
        sum += (double)n->dy[t * n->stride + i] *
               ((x[i] - stat[0]) * stat[1] * w[i] + b[i]);
    return sum;
}

static double *widen_floats(const float *p, size_t n)
{
    double *d = calloc(n, sizeof(*d));
    assert_non_null(d);
    for (size_t i = 0; i < n; i++)
        d[i] = (double)p[i];
    return d;
}

/* A mean in fp32 has a relative error of about 1e-7. In units of the spread,
 * that is the error that a large mean causes. */
static double mean_error(const norm *n, double rstd)
{
    return 3e-6 + 3e-7 * fabs(n->mean) * rstd;
}

static void check_forward(const norm *n, const float *y)
{
    for (size_t t = 0; t < n->tokens; t++) {
        double stat[2];
        double *x = widen_floats(n->x + t * n->stride, n->dim);
        ref_stat(x, n->dim, stat);
        assert_near(n->stat[2 * t], stat[0], 1e-6, "mean");
        assert_near((float)((double)n->stat[2 * t + 1] / stat[1]), 1, 2e-6,
                    "rstd");
        for (size_t i = 0; i < n->dim; i++) {
            double b = n->no_bias ? 0 : (double)n->bias[i];
            assert_near(y[t * n->stride + i],
                        (x[i] - stat[0]) * stat[1] * (double)n->w[i] + b,
                        mean_error(n, stat[1]), "layernorm");
        }
        for (size_t i = n->dim; i < n->stride; i++)
            assert_true(y[t * n->stride + i] == 0.0f);
        free(x);
    }
}

/* Compares dx of a token with central differences of ref_loss, for every
 * entry. */
static void check_dx(const norm *n, size_t t, const float *dx)
{
    double *x = widen_floats(n->x + t * n->stride, n->dim);
    double *w = widen_floats(n->w, n->dim);
    double *b = widen_floats(n->bias, n->dim);
    double stat[2];
    ref_stat(x, n->dim, stat);
    double h = 1e-5 / stat[1];
    for (size_t i = 0; i < n->dim; i++) {
        size_t at = t * n->stride + i;
        double kept = x[i];
        x[i] = kept + h;
        double slope = ref_loss(n, t, x, w, b);
        x[i] = kept - h;
        slope = (slope - ref_loss(n, t, x, w, b)) / (2 * h);
        x[i] = kept;
        double from = n->accumulate ? (double)n->dx[at] : 0;
        /* In units of rstd, which is the magnitude of dx. */
        double unit = 1 + stat[1];
        assert_near((float)(((double)dx[at] - from) / unit), slope / unit,
                    2 * mean_error(n, stat[1]), "layernorm dx");
    }
    free(x);
    free(w);
    free(b);
}

/* The loss is linear in the parameters, so its derivatives are sums. */
static void check_parameter_grads(const norm *n, const grads *g)
{
    double *dw = widen_floats(n->w, n->dim);
    double *db = widen_floats(n->bias, n->dim);
    double worst = 0;
    for (size_t t = 0; t < n->tokens; t++) {
        double stat[2];
        double *x = widen_floats(n->x + t * n->stride, n->dim);
        ref_stat(x, n->dim, stat);
        worst = mean_error(n, stat[1]) > worst ? mean_error(n, stat[1]) : worst;
        for (size_t i = 0; i < n->dim; i++) {
            double dy = (double)n->dy[t * n->stride + i];
            dw[i] += dy * (x[i] - stat[0]) * stat[1];
            db[i] += dy;
        }
        free(x);
    }
    for (size_t i = 0; i < n->dim; i++) {
        double many = sqrt((double)n->tokens);
        assert_near(g->dw[i], dw[i], worst * many, "layernorm dweight");
        assert_near(g->db[i], n->no_bias ? (double)n->bias[i] : db[i],
                    1e-6 * many, "layernorm dbias");
    }
    free(dw);
    free(db);
}

/* ---- tests -------------------------------------------------------------- */

static void assert_same_grads(const norm *n, const grads *a, const grads *b,
                              const char *name)
{
    assert_same_bits(a->dx, b->dx, n->tokens * n->stride, "dx", name);
    assert_same_bits(a->dw, b->dw, n->dim, "dweight", name);
    assert_same_bits(a->db, b->db, n->dim, "dbias", name);
}

static void check_cuts(const dev *d, const norm *n, const float *y,
                       const grads *complete)
{
    size_t size = n->tokens * n->stride;
    float *again = alloc_floats(size);
    float *stat = alloc_floats(n->tokens * 2);
    run_forward(d, n, again, stat);
    assert_same_bits(again, y, size, "layernorm", d->name);
    assert_same_bits(stat, n->stat, n->tokens * 2, "stat", d->name);
    free(again);
    free(stat);
    for (size_t step = 1; step <= n->tokens; step = step * 3 + 1) {
        grads g = make_grads(n);
        for (size_t t = 0; t < n->tokens; t += step)
            run_backward(d, n, &g, t,
                         n->tokens - t < step ? n->tokens - t : step);
        assert_same_grads(n, &g, complete, d->name);
        free_grads(&g);
    }
}

static void layernorm_matches_float64(void **state)
{
    (void)state;
    bench b;
    open_devices(&b);
    for (size_t i = 0; i < GRID; i++) {
        norm n = make_norm(grid[i]);
        float *y = alloc_floats(n.tokens * n.stride);
        grads g = make_grads(&n);
        run_forward(&b.dev[0], &n, y, n.stat);
        check_forward(&n, y);
        run_backward(&b.dev[0], &n, &g, 0, n.tokens);
        check_parameter_grads(&n, &g);
        for (size_t t = 0; t < n.tokens; t += 1 + n.tokens / 8)
            check_dx(&n, t, g.dx);
        for (int d = 0; d < b.count; d++)
            check_cuts(&b.dev[d], &n, y, &g);
        free(y);
        free_grads(&g);
        free_norm(&n);
    }
    close_devices(&b);
}

/* ---- the contract, one float at a time ---------------------------------- */

/* Element i enters partial sum i mod 16 as fma(a, b, s) or, without b, as a +
 * s; the tree follows. */
static float sum_row(const float *a, const float *b, size_t n)
{
    float s[16] = { 0 };
    for (size_t i = 0; i < n; i++)
        s[i % 16] = b ? fmaf(a[i], b[i], s[i % 16]) : s[i % 16] + a[i];
    for (size_t half = 8; half > 0; half /= 2)
        for (size_t i = 0; i < half; i++)
            s[i] += s[i + half];
    return s[0];
}

/* Computes one token as docs/numerics.md specifies: y in row[0 ..], dx in
 * row[dim ..]. */
static void compute_contract_token(const norm *n, size_t t, const grads *g,
                                   float *row)
{
    size_t dim = n->dim;
    const float *x = n->x + t * n->stride;
    const float *dy = n->dy + t * n->stride;
    float *xh = row + 2 * dim;
    float *gw = row + 3 * dim;
    float mean = sum_row(x, NULL, dim) / (float)dim;
    for (size_t i = 0; i < dim; i++)
        xh[i] = x[i] - mean;
    float rstd = 1.0f / sqrtf(sum_row(xh, xh, dim) / (float)dim + (float)EPS);
    for (size_t i = 0; i < dim; i++) {
        xh[i] *= rstd;
        gw[i] = dy[i] * n->w[i];
        row[i] =
            n->no_bias ? xh[i] * n->w[i] : fmaf(xh[i], n->w[i], n->bias[i]);
    }
    float b = sum_row(gw, NULL, dim) / (float)dim;
    float c = sum_row(gw, xh, dim) / (float)dim;
    for (size_t i = 0; i < dim; i++) {
        row[dim + i] = rstd * fmaf(-c, xh[i], gw[i] - b);
        if (n->accumulate)
            row[dim + i] = n->dx[t * n->stride + i] + row[dim + i];
        g->dw[i] = fmaf(dy[i], xh[i], g->dw[i]);
        if (!n->no_bias)
            g->db[i] = g->db[i] + dy[i];
    }
}

static void layernorm_keeps_the_contract(void **state)
{
    (void)state;
    bench b;
    open_devices(&b);
    const dev *d = &b.dev[b.count - 1];
    for (size_t i = 0; i < GRID; i++) {
        norm n = make_norm(grid[i]);
        float *y = alloc_floats(n.tokens * n.stride);
        float *row = alloc_floats(4 * n.dim);
        grads got = make_grads(&n);
        grads want = make_grads(&n);
        run_forward(d, &n, y, n.stat);
        run_backward(d, &n, &got, 0, n.tokens);
        for (size_t t = 0; t < n.tokens; t++) {
            compute_contract_token(&n, t, &want, row);
            assert_same_bits(y + t * n.stride, row, n.dim, "y", "contract");
            assert_same_bits(got.dx + t * n.stride, row + n.dim, n.dim, "dx",
                             "contract");
        }
        assert_same_bits(got.dw, want.dw, n.dim, "dweight", "contract");
        assert_same_bits(got.db, want.db, n.dim, "dbias", "contract");
        free(y);
        free(row);
        free_grads(&got);
        free_grads(&want);
        free_norm(&n);
    }
    close_devices(&b);
}

/* y is written over x and dx over dy. Without stat, dweight or dbias the other
 * results are the same. */
static void layernorm_works_in_place(void **state)
{
    (void)state;
    bench b;
    open_devices(&b);
    for (int i = 0; i < b.count; i++) {
        const dev *d = &b.dev[i];
        norm n = make_norm((norm){ .tokens = 130, .dim = 77, .spread = 1 });
        size_t size = n.tokens * n.stride;
        float *y = alloc_floats(size);
        grads g = make_grads(&n);
        grads in_place = make_grads(&n);
        run_forward(d, &n, y, n.stat);
        run_backward(d, &n, &g, 0, n.tokens);
        float *dy = copy_floats(n.dy, size);
        xray_layernorm_grad op = make_grad_op(&n, &in_place, 0, n.tokens);
        op.dx = n.dy;
        RUN(d, layernorm_grad, &op);
        assert_same_bits(n.dy, g.dx, size, "dx in place", d->name);
        assert_same_bits(in_place.dw, g.dw, n.dim, "dweight", d->name);
        assert_same_bits(in_place.db, g.db, n.dim, "dbias", d->name);
        memcpy(n.dy, dy, size * sizeof(*dy));
        op = make_grad_op(&n, &in_place, 0, n.tokens);
        op.dweight = NULL;
        op.dbias = NULL;
        RUN(d, layernorm_grad, &op);
        assert_same_grads(&n, &in_place, &g, d->name);
        grads one[2] = { make_grads(&n), make_grads(&n) };
        for (int only = 0; only < 2; only++) {
            op = make_grad_op(&n, &one[only], 0, n.tokens);
            if (only)
                op.dweight = NULL;
            else
                op.dbias = NULL;
            RUN(d, layernorm_grad, &op);
        }
        assert_same_bits(one[0].dw, g.dw, n.dim, "dweight alone", d->name);
        assert_same_bits(one[0].db, n.bias, n.dim, "no dbias", d->name);
        assert_same_bits(one[1].db, g.db, n.dim, "dbias alone", d->name);
        assert_same_bits(one[1].dw, n.w, n.dim, "no dweight", d->name);
        free_grads(&one[0]);
        free_grads(&one[1]);
        run_forward(d, &n, n.x, NULL);
        assert_same_bits(n.x, y, size, "y in place", d->name);
        free(y);
        free(dy);
        free_grads(&g);
        free_grads(&in_place);
        free_norm(&n);
    }
    close_devices(&b);
}

static void tokens_beyond_live_are_left(void **state)
{
    (void)state;
    bench b;
    open_devices(&b);
    norm n = make_norm((norm){ .tokens = 20, .dim = 30, .spread = 1 });
    float *y = alloc_floats(n.tokens * n.stride);
    run_forward(&b.dev[0], &n, y, n.stat);
    for (int i = 0; i < b.count; i++) {
        const dev *d = &b.dev[i];
        const int32_t live = 13;
        float *some = alloc_floats(n.tokens * n.stride);
        grads g = make_grads(&n);
        grads want = make_grads(&n);
        run_backward(d, &n, &want, 0, 13);
        xray_layernorm_grad op = make_grad_op(&n, &g, 0, n.tokens);
        op.tokens.live = &live;
        RUN(d, layernorm_grad, &op);
        assert_same_grads(&n, &g, &want, d->name);
        xray_layernorm f = { .header = XRAY_HEADER(xray_layernorm),
                             .tokens = { n.tokens, &live },
                             .x = n.x,
                             .weight = n.w,
                             .bias = n.bias,
                             .y = some,
                             .x_stride = n.stride,
                             .y_stride = n.stride,
                             .dim = (uint32_t)n.dim,
                             .eps = (float)EPS };
        RUN(d, layernorm, &f);
        assert_same_bits(some, y, 13 * n.stride, "live", d->name);
        for (size_t e = 13 * n.stride; e < n.tokens * n.stride; e++)
            assert_true(some[e] == 0.0f);
        free(some);
        free_grads(&g);
        free_grads(&want);
    }
    free(y);
    free_norm(&n);
    close_devices(&b);
}

/* A row of one value has no spread: y is the bias, and nothing is infinite. */
static void equal_values_give_the_bias(void **state)
{
    (void)state;
    bench b;
    open_devices(&b);
    norm n = make_norm((norm){ .tokens = 4, .dim = 64, .mean = 1024 });
    float *y = alloc_floats(n.tokens * n.stride);
    for (int d = 0; d < b.count; d++) {
        run_forward(&b.dev[d], &n, y, n.stat);
        for (size_t i = 0; i < n.tokens * n.dim; i++)
            assert_true(y[i] == n.bias[i % n.dim]);
    }
    free(y);
    free_norm(&n);
    close_devices(&b);
}

static void bad_shapes_are_refused(void **state)
{
    (void)state;
    bench b;
    open_devices(&b);
    const dev *d = &b.dev[0];
    norm n = make_norm((norm){ .tokens = 2, .dim = 8, .spread = 1 });
    grads g = make_grads(&n);
    xray_layernorm_grad op = make_grad_op(&n, &g, 0, 2);
    op.dx_stride = 7;
    assert_int_equal(d->ops->layernorm_grad(d->self, NULL, &op), XRAY_E_ARG);
    assert_non_null(strstr(last_failure, "strides 8, 8 and 7"));
    op.dx_stride = 8;
    op.stat = NULL;
    assert_int_equal(d->ops->layernorm_grad(d->self, NULL, &op), XRAY_E_ARG);
    xray_layernorm f = { .header = XRAY_HEADER(xray_layernorm),
                         .tokens = { 2, NULL },
                         .x = n.x,
                         .weight = n.w,
                         .y = n.x,
                         .x_stride = 8,
                         .y_stride = 8 };
    assert_int_equal(d->ops->layernorm(d->self, NULL, &f), XRAY_E_ARG);
    assert_non_null(strstr(last_failure, "dim 0"));
    f.dim = 8;
    f.header.size = 40;
    assert_int_equal(d->ops->layernorm(d->self, NULL, &f), XRAY_E_ABI);
    free_grads(&g);
    free_norm(&n);
    close_devices(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layernorm_matches_float64),
        cmocka_unit_test(layernorm_keeps_the_contract),
        cmocka_unit_test(layernorm_works_in_place),
        cmocka_unit_test(tokens_beyond_live_are_left),
        cmocka_unit_test(equal_values_give_the_bias),
        cmocka_unit_test(bad_shapes_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
