/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests that gather, RMSNorm and rotary positions match float64, and that their
 * bits do not depend on how the tokens are cut into calls.
 */
#include "tests/device/bench.h"

#define RUN(d, op, args) must((d)->ops->op((d)->self, NULL, args))

/* ---- rows by index ------------------------------------------------------ */

static void rows_are_gathered_and_scattered(void **state)
{
    (void)state;
    enum { FROM = 60, COUNT = 25, DIM = 19 };
    bench b;
    open_devices(&b);
    float *x = random_floats((size_t)FROM * DIM, 1);
    int32_t index[COUNT];
    for (int32_t i = 0; i < COUNT; i++)
        index[i] = (i * 7 + 3) % FROM;
    for (int d = 0; d < b.count; d++) {
        float *y = alloc_floats((size_t)COUNT * DIM);
        float *back = alloc_floats((size_t)FROM * DIM);
        xray_rows op = { .header = XRAY_HEADER(xray_rows),
                         .count = { COUNT, NULL },
                         .index = index,
                         .x = x,
                         .y = y,
                         .dim = DIM };
        RUN(&b.dev[d], gather, &op);
        op.x = y;
        op.y = back;
        RUN(&b.dev[d], scatter, &op);
        for (size_t i = 0; i < COUNT; i++) {
            size_t at = (size_t)index[i] * DIM;
            assert_same_bits(y + i * DIM, x + at, DIM, "gather", b.dev[d].name);
            assert_same_bits(back + at, x + at, DIM, "scatter", b.dev[d].name);
        }
        free(y);
        free(back);
    }
    free(x);
    close_devices(&b);
}

/* ---- RMSNorm ------------------------------------------------------------ */

typedef struct norm {
    size_t tokens, groups, dim, stride, segments;
    float offset;
    int accumulate;
    float *x, *w, *dy, *dx, *residual, *rstd;
} norm;

static norm make_norm(norm n)
{
    size_t width = n.groups * n.dim;
    n.stride = width + 5;
    n.x = random_floats(n.tokens * n.stride, 2);
    n.dy = random_floats(n.tokens * n.stride, 1);
    n.dx = random_floats(n.tokens * n.stride, 1);
    n.residual = random_floats(n.tokens * width, 1);
    n.rstd = alloc_floats(n.tokens * n.groups);
    n.w = random_floats(n.dim, 1);
    return n;
}

static void free_norm(norm *n)
{
    free(n->x);
    free(n->dy);
    free(n->dx);
    free(n->residual);
    free(n->rstd);
    free(n->w);
}

static xray_rmsnorm make_norm_op(const norm *n, float *y, float *rstd)
{
    return (xray_rmsnorm){ .header = XRAY_HEADER(xray_rmsnorm),
                           .tokens = { n->tokens, NULL },
                           .x = n->x,
                           .weight = n->w,
                           .y = y,
                           .rstd = rstd,
                           .x_stride = n->stride,
                           .y_stride = n->stride,
                           .groups = (uint32_t)n->groups,
                           .dim = (uint32_t)n->dim,
                           .eps = 1e-5f,
                           .offset = n->offset };
}

static double ref_rstd(const float *x, size_t dim)
{
    double s = 0;
    for (size_t i = 0; i < dim; i++)
        s += (double)x[i] * (double)x[i];
    return 1 / sqrt(s / (double)dim + 1e-5);
}

static void check_norm(const norm *n, const float *y, const float *rstd)
{
    for (size_t v = 0; v < n->tokens * n->groups; v++) {
        size_t at = v / n->groups * n->stride + v % n->groups * n->dim;
        double r = ref_rstd(n->x + at, n->dim);
        assert_near(rstd[v], r, 2e-6, "rstd");
        for (size_t i = 0; i < n->dim; i++)
            assert_near(y[at + i],
                        (double)n->x[at + i] * r *
                            (double)(n->w[i] + n->offset),
                        2e-6, "rmsnorm");
    }
}

static void check_norm_grad(const norm *n, const float *dx, const float *dw)
{
    double *want = calloc(n->dim, sizeof(*want));
    assert_non_null(want);
    for (size_t v = 0; v < n->tokens * n->groups; v++) {
        size_t at = v / n->groups * n->stride + v % n->groups * n->dim;
        double r = ref_rstd(n->x + at, n->dim);
        double mean = 0;
        for (size_t i = 0; i < n->dim; i++) {
            double xh = (double)n->x[at + i] * r;
            double dy = (double)n->dy[at + i];
            want[i] += dy * xh;
            mean += dy * (double)(n->w[i] + n->offset) * xh;
        }
        mean /= (double)n->dim;
        for (size_t i = 0; i < n->dim; i++) {
            double xh = (double)n->x[at + i] * r;
            double g = (double)n->dy[at + i] * (double)(n->w[i] + n->offset);
            double d = r * (g - mean * xh);
            if (n->accumulate)
                d += (double)n->dx[at + i];
            assert_near(dx[at + i], d, 5e-6, "rmsnorm dx");
        }
    }
    for (size_t i = 0; i < n->dim; i++)
        assert_near(dw[i], want[i] + (double)n->w[i], 2e-5, "rmsnorm dweight");
    free(want);
}

static void run_norm_grad(const dev *d, const norm *n, size_t first,
                          size_t count, float *dx, float *dw)
{
    xray_rmsnorm_grad op = { .header = XRAY_HEADER(xray_rmsnorm_grad),
                             .tokens = { count, NULL },
                             .x = n->x + first * n->stride,
                             .weight = n->w,
                             .rstd = n->rstd + first * n->groups,
                             .dy = n->dy + first * n->stride,
                             .dx = dx + first * n->stride,
                             .dweight = dw,
                             .x_stride = n->stride,
                             .dy_stride = n->stride,
                             .dx_stride = n->stride,
                             .groups = (uint32_t)n->groups,
                             .dim = (uint32_t)n->dim,
                             .accumulate = (uint32_t)n->accumulate,
                             .offset = n->offset,
                             .segments = (uint32_t)n->segments };
    RUN(d, rmsnorm_grad, &op);
}

static void norms_match_float64(void **state)
{
    (void)state;
    static const norm grid[] = {
        { .tokens = 1, .groups = 1, .dim = 1 },
        { .tokens = 9, .groups = 1, .dim = 96, .offset = 1.0f },
        { .tokens = 300, .groups = 1, .dim = 515, .accumulate = 1 },
        { .tokens = 40, .groups = 4, .dim = 24, .accumulate = 1 },
        { .tokens = 7, .groups = 3, .dim = 17 },
        { .tokens = 11, .groups = 1, .dim = 2, .offset = 1.0f },
        { .tokens = 5, .groups = 2, .dim = 15, .offset = 1.0f },
        { .tokens = 6, .groups = 1, .dim = 1153, .offset = 1.0f },
        { .tokens = 30,
          .groups = 4,
          .dim = 256,
          .offset = 1.0f,
          .accumulate = 1 },
        { .tokens = 70,
          .groups = 1,
          .dim = 640,
          .offset = 1.0f,
          .accumulate = 1 },
    };
    bench b;
    open_devices(&b);
    for (size_t i = 0; i < sizeof(grid) / sizeof(*grid); i++) {
        norm n = make_norm(grid[i]);
        size_t size = n.tokens * n.stride;
        float *y0 = alloc_floats(size);
        float *dx0 = copy_floats(n.dx, size);
        float *dw0 = copy_floats(n.w, n.dim);
        xray_rmsnorm op = make_norm_op(&n, y0, n.rstd);
        RUN(&b.dev[0], rmsnorm, &op);
        check_norm(&n, y0, n.rstd);
        run_norm_grad(&b.dev[0], &n, 0, n.tokens, dx0, dw0);
        check_norm_grad(&n, dx0, dw0);
        for (int d = 0; d < b.count; d++) {
            float *y = alloc_floats(size);
            float *dx = copy_floats(n.dx, size);
            float *dw = copy_floats(n.w, n.dim);
            size_t cut = n.tokens / 3;
            op = make_norm_op(&n, y, NULL);
            RUN(&b.dev[d], rmsnorm, &op);
            run_norm_grad(&b.dev[d], &n, 0, cut, dx, dw);
            run_norm_grad(&b.dev[d], &n, cut, n.tokens - cut, dx, dw);
            assert_same_bits(y, y0, size, "rmsnorm", b.dev[d].name);
            assert_same_bits(dx, dx0, size, "dx", b.dev[d].name);
            assert_same_bits(dw, dw0, n.dim, "dweight", b.dev[d].name);
            free(y);
            free(dx);
            free(dw);
        }
        free(y0);
        free(dx0);
        free(dw0);
        free_norm(&n);
    }
    close_devices(&b);
}

/* dw[s] continues with the rows of the s-th run of groups, token by token. */
static void fold_segments(const norm *n, float *dw)
{
    size_t run = n->groups / n->segments;
    for (size_t v = 0; v < n->tokens * n->groups; v++) {
        size_t g = v % n->groups;
        size_t at = v / n->groups * n->stride + g * n->dim;
        float *sum = dw + g / run * n->dim;
        for (size_t i = 0; i < n->dim; i++)
            sum[i] = fmaf(n->dy[at + i], n->x[at + i] * n->rstd[v], sum[i]);
    }
}

static void runs_of_groups_have_weight_gradients_of_their_own(void **state)
{
    (void)state;
    static const norm grid[] = {
        { .tokens = 50, .groups = 8, .dim = 24, .segments = 8 },
        { .tokens = 33, .groups = 8, .dim = 17, .segments = 4 },
        { .tokens = 9, .groups = 6, .dim = 64, .segments = 2 },
        { .tokens = 300, .groups = 2, .dim = 128, .segments = 2 },
        { .tokens = 5, .groups = 4, .dim = 30, .segments = 1 },
    };
    bench b;
    open_devices(&b);
    for (size_t i = 0; i < sizeof(grid) / sizeof(*grid); i++) {
        norm n = make_norm(grid[i]);
        size_t size = n.tokens * n.stride;
        size_t sums = n.segments * n.dim;
        float *start = random_floats(sums, 1);
        float *want = copy_floats(start, sums);
        float *y = alloc_floats(size);
        xray_rmsnorm op = make_norm_op(&n, y, n.rstd);
        RUN(&b.dev[0], rmsnorm, &op);
        fold_segments(&n, want);
        for (int d = 0; d < b.count; d++) {
            float *dx = copy_floats(n.dx, size);
            float *dw = copy_floats(start, sums);
            size_t cut = n.tokens / 3;
            run_norm_grad(&b.dev[d], &n, 0, cut, dx, dw);
            run_norm_grad(&b.dev[d], &n, cut, n.tokens - cut, dx, dw);
            assert_same_bits(dw, want, sums, "dweight", b.dev[d].name);
            free(dx);
            free(dw);
        }
        free(start);
        free(want);
        free(y);
        free_norm(&n);
    }
    close_devices(&b);
}

static void residuals_are_added_first(void **state)
{
    (void)state;
    bench b;
    open_devices(&b);
    norm n = make_norm((norm){ .tokens = 21, .groups = 1, .dim = 40 });
    for (int d = 0; d < b.count; d++) {
        float *y = alloc_floats(n.tokens * n.stride);
        float *sum = copy_floats(n.residual, n.tokens * n.dim);
        xray_rmsnorm op = make_norm_op(&n, y, NULL);
        op.residual = sum;
        RUN(&b.dev[d], rmsnorm, &op);
        for (size_t t = 0; t < n.tokens; t++)
            for (size_t i = 0; i < n.dim; i++) {
                float want = n.residual[t * n.dim + i] + n.x[t * n.stride + i];
                assert_true(sum[t * n.dim + i] == want);
            }
        for (size_t t = 0; t < n.tokens; t++) {
            double r = ref_rstd(sum + t * n.dim, n.dim);
            assert_near(y[t * n.stride],
                        (double)sum[t * n.dim] * r * (double)n.w[0], 2e-6,
                        "norm of the sum");
        }
        free(y);
        free(sum);
    }
    free_norm(&n);
    close_devices(&b);
}

/* dx may be written over dy, and y over x. */
static void norms_work_in_place(void **state)
{
    (void)state;
    bench b;
    open_devices(&b);
    norm n = make_norm((norm){ .tokens = 13, .groups = 2, .dim = 20 });
    size_t size = n.tokens * n.stride;
    float *y = alloc_floats(size);
    float *dx = alloc_floats(size);
    float *dw = alloc_floats(n.dim);
    float *dw2 = alloc_floats(n.dim);
    const dev *d = &b.dev[b.count - 1];
    xray_rmsnorm op = make_norm_op(&n, y, n.rstd);
    RUN(d, rmsnorm, &op);
    run_norm_grad(d, &n, 0, n.tokens, dx, dw);
    run_norm_grad(d, &n, 0, n.tokens, n.dy, dw2);
    op = make_norm_op(&n, n.x, NULL);
    RUN(d, rmsnorm, &op);
    assert_same_bits(dw2, dw, n.dim, "dweight", "in place");
    for (size_t t = 0; t < n.tokens; t++) {
        assert_same_bits(n.dy + t * n.stride, dx + t * n.stride, 40, "dx",
                         "in place");
        assert_same_bits(n.x + t * n.stride, y + t * n.stride, 40, "y",
                         "in place");
    }
    free(y);
    free(dx);
    free(dw);
    free(dw2);
    free_norm(&n);
    close_devices(&b);
}

/* ---- positions ---------------------------------------------------------- */

static void rotations_turn_there_and_back(void **state)
{
    (void)state;
    static const struct {
        uint32_t heads, dim, half;
    } grid[] = { { 1, 8, 4 },     { 3, 64, 32 },  { 2, 40, 17 }, { 5, 24, 8 },
                 { 2, 256, 128 }, { 1, 96, 48 },  { 3, 80, 40 }, { 4, 80, 16 },
                 { 2, 96, 36 },   { 3, 256, 64 }, { 2, 80, 8 },  { 2, 5, 1 },
                 { 3, 24, 9 },    { 2, 60, 30 } };
    enum { TOKENS = 60, POSITIONS = 100 };
    bench b;
    open_devices(&b);
    for (size_t g = 0; g < sizeof(grid) / sizeof(*grid); g++) {
        size_t half = grid[g].half;
        size_t stride = (size_t)grid[g].heads * grid[g].dim + 3;
        double freq[128];
        int32_t positions[TOKENS];
        float *table = alloc_floats(POSITIONS * half * 2);
        float *x = random_floats(TOKENS * stride, 1);
        float *first = copy_floats(x, TOKENS * stride);
        for (size_t i = 0; i < half; i++)
            freq[i] = pow(10000.0, -(double)i / (double)half);
        for (size_t t = 0; t < TOKENS; t++)
            positions[t] = (int32_t)random_below(POSITIONS);
        xray_rope_table fill = { .header = XRAY_HEADER(xray_rope_table),
                                 .inv_freq = freq,
                                 .table = table,
                                 .positions = POSITIONS,
                                 .half = (uint32_t)half,
                                 .scale = 1.0f };
        RUN(&b.dev[0], rope_table, &fill);
        xray_rope op = { .header = XRAY_HEADER(xray_rope),
                         .tokens = { TOKENS, NULL },
                         .x = first,
                         .positions = positions,
                         .table = table,
                         .stride = stride,
                         .heads = grid[g].heads,
                         .head_dim = grid[g].dim,
                         .half = (uint32_t)half };
        RUN(&b.dev[0], rope, &op);
        for (size_t t = 0; t < TOKENS; t++)
            for (size_t h = 0; h < grid[g].heads; h++)
                for (size_t i = 0; i < half; i++) {
                    size_t at = t * stride + h * grid[g].dim + i;
                    double a = positions[t] * freq[i];
                    double p = (double)x[at];
                    double q = (double)x[at + half];
                    assert_near(first[at], p * cos(a) - q * sin(a), 1e-6,
                                "rope");
                    assert_near(first[at + half], q * cos(a) + p * sin(a), 1e-6,
                                "rope");
                }
        /* Values that are not rotary stay unchanged, and so do those between
         * tokens. */
        for (size_t t = 0; t < TOKENS; t++)
            for (size_t i = 0; i < stride; i++)
                if (i >= (size_t)grid[g].heads * grid[g].dim ||
                    i % grid[g].dim >= 2 * half)
                    assert_true(first[t * stride + i] == x[t * stride + i]);
        for (int d = 0; d < b.count; d++) {
            float *y = copy_floats(x, TOKENS * stride);
            op.x = y;
            op.inverse = 0;
            RUN(&b.dev[d], rope, &op);
            assert_same_bits(y, first, TOKENS * stride, "rope", b.dev[d].name);
            op.inverse = 1;
            RUN(&b.dev[d], rope, &op);
            for (size_t i = 0; i < TOKENS * stride; i++)
                assert_near(y[i], (double)x[i], 1e-6, "rope and back");
            free(y);
        }
        free(table);
        free(x);
        free(first);
    }
    close_devices(&b);
}

/* Every entry is the float nearest to the float64 value times the scale, also
 * for positions with many turns. */
static void tables_are_rounded_once(void **state)
{
    (void)state;
    enum { HALF = 6, POSITIONS = 3000 };
    static const double freq[HALF] = { 1, 0.6, 0.31, 0.01, 1e-4, 77.7 };
    static const float scales[] = { 1.0f, 1.25f };
    static float table[POSITIONS * HALF * 2];
    bench b;
    open_devices(&b);
    for (int k = 0; k < 2 * b.count; k++) {
        const dev *d = &b.dev[k / 2];
        double scale = (double)scales[k % 2];
        xray_rope_table fill = { .header = XRAY_HEADER(xray_rope_table),
                                 .inv_freq = freq,
                                 .table = table,
                                 .positions = POSITIONS,
                                 .half = HALF,
                                 .scale = scales[k % 2] };
        memset(table, 0, sizeof(table));
        RUN(d, rope_table, &fill);
        for (size_t i = 0; i < (size_t)POSITIONS * HALF; i++) {
            double x = (double)(i / HALF) * freq[i % HALF];
            if (table[2 * i] != (float)(cos(x) * scale) ||
                table[2 * i + 1] != (float)(sin(x) * scale))
                fail_msg("%s: position %zu, pair %zu", d->name, i / HALF,
                         i % HALF);
        }
    }
    close_devices(&b);
}

/* Items end at the live count in device memory and never exceed the bound. */
static void extents_end_with_the_live_count(void **state)
{
    (void)state;
    static const struct {
        int32_t live;
        size_t rows;
    } cases[] = { { -1, 0 }, { 0, 0 }, { 1, 1 }, { 3, 3 }, { 4, 3 } };
    static const int32_t index[] = { 2, 0, 1 };
    const float x[] = { 1, 2, 3, 4, 5, 6 };
    bench b;
    open_devices(&b);
    for (int d = 0; d < b.count; d++)
        for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
            float y[6] = { 0 };
            int32_t live = cases[i].live;
            xray_rows op = { .header = XRAY_HEADER(xray_rows),
                             .count = { 3, &live },
                             .index = index,
                             .x = x,
                             .y = y,
                             .dim = 2 };
            RUN(&b.dev[d], gather, &op);
            for (size_t r = 0; r < 3; r++)
                assert_true(y[2 * r] ==
                            (r < cases[i].rows ? x[2 * index[r]] : 0.0f));
        }
    close_devices(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_are_gathered_and_scattered),
        cmocka_unit_test(norms_match_float64),
        cmocka_unit_test(runs_of_groups_have_weight_gradients_of_their_own),
        cmocka_unit_test(residuals_are_added_first),
        cmocka_unit_test(norms_work_in_place),
        cmocka_unit_test(rotations_turn_there_and_back),
        cmocka_unit_test(tables_are_rounded_once),
        cmocka_unit_test(extents_end_with_the_live_count),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
