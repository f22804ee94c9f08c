/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests that matrix products match float64, and that their bits do not depend
 * on how tokens or the summed index are cut.
 */
#include "tests/device/bench.h"

typedef struct shape {
    size_t tokens, rows, cols;
} shape;

static const shape shapes[] = {
    { 1, 1, 1 },      { 1, 16, 16 },   { 2, 5, 3 },      { 3, 17, 33 },
    { 5, 31, 8 },     { 7, 96, 64 },   { 13, 200, 129 }, { 14, 64, 96 },
    { 15, 33, 300 },  { 29, 48, 520 }, { 64, 130, 65 },  { 171, 40, 270 },
    { 4, 2051, 257 },
};
#define SHAPES (sizeof(shapes) / sizeof(*shapes))

typedef struct product {
    shape s;
    uint32_t kind;
    int start; /* 0: zero, 1: accumulate, 2: bias */
    float *w, *x, *y, *bias;
    size_t in, out, x_stride, y_stride;
} product;

static product make_product(shape s, uint32_t kind, int start)
{
    product p = { .s = s, .kind = kind, .start = start };
    p.in = kind == XRAY_NT ? s.cols : s.rows;
    p.out = kind == XRAY_NT ? s.rows : s.cols;
    p.x_stride = p.in + 3;
    p.y_stride = p.out + 1;
    p.w = random_floats(s.rows * s.cols, 1);
    p.x = random_floats(s.tokens * p.x_stride, 1);
    p.y = random_floats(s.tokens * p.y_stride, 1);
    p.bias = random_floats(p.out, 1);
    return p;
}

static void free_product(product *p)
{
    free(p->w);
    free(p->x);
    free(p->y);
    free(p->bias);
}

static void run_product(const dev *d, const product *p, const xray_weight *w,
                        size_t first, size_t count, float *y)
{
    xray_matmul op = { .header = XRAY_HEADER(xray_matmul),
                       .weight = w,
                       .tokens = { count, NULL },
                       .x = p->x + first * p->x_stride,
                       .y = y + first * p->y_stride,
                       .x_stride = p->x_stride,
                       .y_stride = p->y_stride,
                       .bias = p->start == 2 ? p->bias : NULL,
                       .kind = p->kind,
                       .residual =
                           p->start == 1 ? y + first * p->y_stride : NULL,
                       .residual_stride = p->y_stride };
    must(d->ops->matmul(d->self, NULL, &op));
}

REFERENCE static void check_product(const product *p, const float *y)
{
    for (size_t t = 0; t < p->s.tokens; t++) {
        for (size_t j = 0; j < p->out; j++) {
            double sum = p->start == 1   ? (double)p->y[t * p->y_stride + j]
                         : p->start == 2 ? (double)p->bias[j]
                                         : 0.0;
            float chain = (float)sum;
            for (size_t k = 0; k < p->in; k++) {
                float x = p->x[t * p->x_stride + k];
                float w = p->kind == XRAY_NT ? p->w[j * p->s.cols + k]
                                             : p->w[k * p->s.cols + j];
                sum += (double)x * (double)w;
                chain = fmaf(x, w, chain);
            }
            assert_near(y[t * p->y_stride + j], sum, 2e-5, "matmul");
            if (y[t * p->y_stride + j] != chain)
                fail_msg("matmul: not the chain of the contract");
        }
        assert_true(y[t * p->y_stride + p->out] ==
                    p->y[t * p->y_stride + p->out]);
    }
}

static void products_match_on_every_device(void **state)
{
    (void)state;
    bench b;
    open_devices(&b);
    for (size_t i = 0; i < SHAPES * 6; i++) {
        if ((i + i / 6) % TEST_STEP)
            continue;
        product p = make_product(shapes[i / 6], i % 2 ? XRAY_NN : XRAY_NT,
                                 (int)(i % 6 / 2));
        size_t n = p.s.tokens * p.y_stride;
        float *first = NULL;
        for (int d = 0; d < b.count; d++) {
            float *y = copy_floats(p.y, n);
            xray_weight *w = create_weight(&b.dev[d], p.w, p.s.rows, p.s.cols);
            run_product(&b.dev[d], &p, w, 0, p.s.tokens, y);
            if (first) {
                assert_same_bits(y, first, n, "matmul", b.dev[d].name);
                free(y);
            } else {
                first = y;
                check_product(&p, y);
            }
            /* One row alone, and two halves, give the rows of the complete
             * product. */
            y = copy_floats(p.y, n);
            size_t half = p.s.tokens / 2;
            run_product(&b.dev[d], &p, w, 0, half, y);
            run_product(&b.dev[d], &p, w, half, 1, y);
            run_product(&b.dev[d], &p, w, half + 1, p.s.tokens - half - 1, y);
            assert_same_bits(y, first, n, "rows by parts", b.dev[d].name);
            free(y);
            b.dev[d].ops->weight_destroy(b.dev[d].self, w);
        }
        free(first);
        free_product(&p);
    }
    close_devices(&b);
}

/* Panels of bf16 give the bits of fp32 panels of the same values, for any
 * number of tokens, forward and backward, on every device. */
static void narrow_panels_give_the_bits_of_wide_ones(void **state)
{
    (void)state;
    bench b;
    open_devices(&b);
    for (size_t i = 0; i < SHAPES * 6; i++) {
        if ((i + i / 6) % TEST_STEP)
            continue;
        product p = make_product(shapes[i / 6], i % 2 ? XRAY_NN : XRAY_NT,
                                 (int)(i % 6 / 2));
        size_t n = p.s.tokens * p.y_stride;
        size_t count = p.s.rows * p.s.cols;
        uint16_t *narrow = calloc(count, sizeof(*narrow));
        assert_non_null(narrow);
        for (size_t k = 0; k < count; k++) {
            narrow[k] = cpu_to_bf16(p.w[k]);
            p.w[k] = cpu_from_bf16(narrow[k]);
        }
        float *first = NULL;
        for (int d = 0; d < b.count; d++) {
            const dev *v = &b.dev[d];
            xray_weight_desc desc = { .header = XRAY_HEADER(xray_weight_desc),
                                      .data = narrow,
                                      .rows = p.s.rows,
                                      .cols = p.s.cols,
                                      .dtype = XRAY_BF16,
                                      .uses = XRAY_USE_NT | XRAY_USE_NN };
            xray_weight *w = NULL;
            must(v->ops->weight_create(v->self, &desc, &w));
            float *y = copy_floats(p.y, n);
            run_product(v, &p, w, 0, p.s.tokens, y);
            if (!first) {
                xray_weight *wide = create_weight(v, p.w, p.s.rows, p.s.cols);
                first = copy_floats(p.y, n);
                run_product(v, &p, wide, 0, p.s.tokens, first);
                check_product(&p, first);
                v->ops->weight_destroy(v->self, wide);
            }
            assert_same_bits(y, first, n, "bf16 panels", v->name);
            free(y);
            /* One token at a time. */
            y = copy_floats(p.y, n);
            for (size_t t = 0; t < p.s.tokens; t++)
                run_product(v, &p, w, t, 1, y);
            assert_same_bits(y, first, n, "bf16 panels, one token per call",
                             v->name);
            free(y);
            v->ops->weight_destroy(v->self, w);
        }
        free(first);
        free(narrow);
        free_product(&p);
    }
    close_devices(&b);
}

/* Summing the first part of the inputs and then adding the rest gives the
 * complete sum. */
static void a_cut_of_the_summed_index_is_exact(void **state)
{
    (void)state;
    bench b;
    open_devices(&b);
    const size_t tokens = 37;
    const size_t rows = 50;
    const size_t cols = 411;
    float *w = random_floats(rows * cols, 1);
    float *x = random_floats(tokens * cols, 1);
    for (int d = 0; d < b.count; d++) {
        const dev *v = &b.dev[d];
        float *complete = alloc_floats(tokens * rows);
        float *parts = alloc_floats(tokens * rows);
        xray_weight *h = create_weight(v, w, rows, cols);
        xray_matmul op = { .header = XRAY_HEADER(xray_matmul),
                           .weight = h,
                           .tokens = { tokens, NULL },
                           .x = x,
                           .y = complete,
                           .x_stride = cols,
                           .y_stride = rows,
                           .kind = XRAY_NT };
        must(v->ops->matmul(v->self, NULL, &op));
        v->ops->weight_destroy(v->self, h);
        static const size_t cuts[] = { 0, 7, 64, 391, 411 };
        for (size_t c = 0; c + 1 < sizeof(cuts) / sizeof(*cuts); c++) {
            size_t n = cuts[c + 1] - cuts[c];
            float *part = alloc_floats(rows * n);
            for (size_t r = 0; r < rows; r++)
                memcpy(part + r * n, w + r * cols + cuts[c], n * sizeof(*part));
            h = create_weight(v, part, rows, n);
            op.weight = h;
            op.x = x + cuts[c];
            op.y = parts;
            op.residual = c > 0 ? parts : NULL;
            op.residual_stride = rows;
            must(v->ops->matmul(v->self, NULL, &op));
            v->ops->weight_destroy(v->self, h);
            free(part);
        }
        assert_same_bits(parts, complete, tokens * rows, "cut", v->name);
        free(complete);
        free(parts);
    }
    free(w);
    free(x);
    close_devices(&b);
}

static void changed_weights_are_packed_again(void **state)
{
    (void)state;
    bench b;
    open_devices(&b);
    for (int i = 0; i < 2 * b.count; i++) {
        const dev *d = &b.dev[i / 2];
        product p =
            make_product((shape){ 9, 40, 24 }, i % 2 ? XRAY_NN : XRAY_NT, 0);
        xray_weight *w = create_weight(d, p.w, 40, 24);
        float *y = copy_floats(p.y, 9 * p.y_stride);
        run_product(d, &p, w, 0, 9, y);
        for (size_t k = 0; k < (size_t)40 * 24; k++)
            p.w[k] = -2.0f * p.w[k];
        must(d->ops->weight_changed(d->self, w));
        run_product(d, &p, w, 0, 9, y);
        check_product(&p, y);
        d->ops->weight_destroy(d->self, w);
        free(y);
        free_product(&p);
    }
    close_devices(&b);
}

static void narrow_weights_are_widened(void **state)
{
    (void)state;
    bench b;
    open_devices(&b);
    product p = make_product((shape){ 6, 35, 50 }, XRAY_NT, 0);
    uint16_t narrow[35 * 50];
    for (uint32_t dtype = XRAY_BF16; dtype <= XRAY_F16; dtype++) {
        for (size_t i = 0; i < (size_t)35 * 50; i++) {
            narrow[i] =
                dtype == XRAY_BF16 ? cpu_to_bf16(p.w[i]) : cpu_to_f16(p.w[i]);
            p.w[i] = dtype == XRAY_BF16 ? cpu_from_bf16(narrow[i])
                                        : cpu_from_f16(narrow[i]);
        }
        xray_weight_desc desc = { .header = XRAY_HEADER(xray_weight_desc),
                                  .data = narrow,
                                  .rows = 35,
                                  .cols = 50,
                                  .dtype = dtype,
                                  .uses = XRAY_USE_NT };
        const dev *d = &b.dev[b.count - 1];
        xray_weight *w = NULL;
        must(d->ops->weight_create(d->self, &desc, &w));
        float *y = copy_floats(p.y, 6 * p.y_stride);
        run_product(d, &p, w, 0, 6, y);
        check_product(&p, y);
        p.kind = XRAY_NN;
        xray_matmul nn = { .header = XRAY_HEADER(xray_matmul),
                           .weight = w,
                           .tokens = { 1, NULL },
                           .x = y,
                           .y = y,
                           .x_stride = 35,
                           .y_stride = 50,
                           .kind = XRAY_NN };
        assert_int_equal(d->ops->matmul(d->self, NULL, &nn), XRAY_E_STATE);
        p.kind = XRAY_NT;
        d->ops->weight_destroy(d->self, w);
        free(y);
    }
    free_product(&p);
    close_devices(&b);
}

/* ---- gradient of the matrix --------------------------------------------- */

static void run_matmul_grad(const dev *d, shape s, const float *dy,
                            const float *x, size_t first, size_t count,
                            float *dw, float *db)
{
    xray_matmul_grad op = { .header = XRAY_HEADER(xray_matmul_grad),
                            .tokens = { count, NULL },
                            .dy = dy + first * (s.rows + 2),
                            .x = x + first * (s.cols + 1),
                            .dy_stride = s.rows + 2,
                            .x_stride = s.cols + 1,
                            .rows = s.rows,
                            .cols = s.cols,
                            .dw = dw,
                            .dbias = db };
    must(d->ops->matmul_grad(d->self, NULL, &op));
}

REFERENCE static void check_matmul_grad(shape s, const float *dy,
                                        const float *x, const float *start,
                                        const float *got)
{
    for (size_t n = 0; n < s.rows; n++)
        for (size_t k = 0; k < s.cols; k++) {
            float chain = start[n * s.cols + k];
            double sum = (double)chain;
            for (size_t t = 0; t < s.tokens; t++) {
                float a = dy[t * (s.rows + 2) + n];
                float c = x[t * (s.cols + 1) + k];
                chain = fmaf(a, c, chain);
                sum += (double)a * (double)c;
            }
            assert_near(got[n * s.cols + k], sum, 2e-5, "matmul_grad");
            assert_true(got[n * s.cols + k] == chain);
        }
}

static void gradients_do_not_depend_on_the_cut(void **state)
{
    (void)state;
    static const shape grid[] = { { 1, 3, 5 },     { 20, 64, 96 },
                                  { 257, 33, 17 }, { 300, 100, 200 },
                                  { 530, 16, 65 }, { 40, 200, 31 },
                                  { 700, 300, 8 } };
    bench b;
    open_devices(&b);
    for (size_t i = 0; i < sizeof(grid) / sizeof(*grid); i += TEST_STEP) {
        shape s = grid[i];
        size_t n = s.rows * s.cols;
        float *dy = random_floats(s.tokens * (s.rows + 2), 1);
        float *x = random_floats(s.tokens * (s.cols + 1), 1);
        float *start = random_floats(n, 1);
        float *dw = copy_floats(start, n);
        float *db = alloc_floats(s.rows);
        run_matmul_grad(&b.dev[0], s, dy, x, 0, s.tokens, dw, db);
        check_matmul_grad(s, dy, x, start, dw);
        for (int d = 0; d < b.count; d++) {
            for (size_t parts = 1; parts < 5; parts++) {
                float *got = copy_floats(start, n);
                float *gotb = alloc_floats(s.rows);
                size_t done = 0;
                while (done < s.tokens) {
                    size_t c = 1 + random_below(s.tokens / parts);
                    c = parts == 1 ? s.tokens : c;
                    c = c < s.tokens - done ? c : s.tokens - done;
                    run_matmul_grad(&b.dev[d], s, dy, x, done, c, got, gotb);
                    done += c;
                }
                assert_same_bits(got, dw, n, "dw", b.dev[d].name);
                assert_same_bits(gotb, db, s.rows, "dbias", b.dev[d].name);
                free(got);
                free(gotb);
            }
        }
        free(dy);
        free(x);
        free(start);
        free(dw);
        free(db);
    }
    close_devices(&b);
}

static void live_counts_and_bad_arguments(void **state)
{
    (void)state;
    bench b;
    open_devices(&b);
    const dev *d = &b.dev[0];
    product p = make_product((shape){ 4, 8, 8 }, XRAY_NT, 0);
    xray_weight *w = create_weight(d, p.w, 8, 8);
    float *y = copy_floats(p.y, 4 * p.y_stride);
    int32_t live = 2;
    xray_matmul op = { .header = XRAY_HEADER(xray_matmul),
                       .weight = w,
                       .tokens = { 4, &live },
                       .x = p.x,
                       .y = y,
                       .x_stride = p.x_stride,
                       .y_stride = p.y_stride,
                       .kind = XRAY_NT };
    must(d->ops->matmul(d->self, NULL, &op));
    assert_same_bits(y + 2 * p.y_stride, p.y + 2 * p.y_stride, 2 * p.y_stride,
                     "beyond live", d->name);
    op.x_stride = 7;
    assert_int_equal(d->ops->matmul(d->self, NULL, &op), XRAY_E_ARG);
    op.x_stride = p.x_stride;
    op.x = NULL;
    assert_int_equal(d->ops->matmul(d->self, NULL, &op), XRAY_E_ARG);
    assert_non_null(strstr(last_failure, "op->x"));
    op.x = p.x;
    op.kind = 9;
    assert_int_equal(d->ops->matmul(d->self, NULL, &op), XRAY_E_ARG);
    op.kind = XRAY_NT;
    op.header.size = 8;
    assert_int_equal(d->ops->matmul(d->self, NULL, &op), XRAY_E_ABI);
    d->ops->weight_destroy(d->self, w);
    free(y);
    free_product(&p);
    close_devices(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_match_on_every_device),
        cmocka_unit_test(narrow_panels_give_the_bits_of_wide_ones),
        cmocka_unit_test(a_cut_of_the_summed_index_is_exact),
        cmocka_unit_test(changed_weights_are_packed_again),
        cmocka_unit_test(narrow_weights_are_widened),
        cmocka_unit_test(gradients_do_not_depend_on_the_cut),
        cmocka_unit_test(live_counts_and_bad_arguments),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
