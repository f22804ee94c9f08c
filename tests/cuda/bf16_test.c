/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests of the cuda device in bfloat16, on the host and on a GPU: products,
 * their gradients and log-probabilities are close to float64 over rounded
 * operands, and a row alone has the same bits.
 */
#include "tests/device/bench.h"

static dev open_bf16(void)
{
    return open_cuda(CUDA_BFLOAT16, "cuda, bfloat16");
}

static double round_to_bf16(float x)
{
    return (double)cpu_from_bf16(cpu_to_bf16(x));
}

typedef struct shape {
    size_t tokens, rows, cols;
} shape;

static const shape shapes[] = { { 1, 1, 1 },      { 3, 17, 33 },
                                { 16, 64, 48 },   { 29, 48, 72 },
                                { 130, 96, 136 }, { 70, 200, 129 } };
#define SHAPES (sizeof(shapes) / sizeof(*shapes))

static void run_matmul(const dev *d, const xray_weight *w, uint32_t kind,
                       const float *x, size_t in, float *y, size_t out,
                       size_t n)
{
    xray_matmul op = { .header = XRAY_HEADER(xray_matmul),
                       .weight = w,
                       .tokens = { n, NULL },
                       .x = x,
                       .y = y,
                       .x_stride = in,
                       .y_stride = out,
                       .kind = kind };
    must(d->ops->matmul(d->self, NULL, &op));
}

static void check_product(const dev *d, size_t i, uint32_t kind)
{
    size_t n = shapes[i].tokens, rows = shapes[i].rows, cols = shapes[i].cols;
    size_t in = kind == XRAY_NT ? cols : rows;
    size_t out = kind == XRAY_NT ? rows : cols;
    float *data = random_floats(rows * cols, 1);
    float *x = random_floats(n * in, 1);
    float *y = alloc_floats(n * out);
    float *one = alloc_floats(out);
    xray_weight *w = create_weight(d, data, rows, cols);
    run_matmul(d, w, kind, x, in, y, out, n);
    for (size_t t = 0; t < n; t++)
        for (size_t j = 0; j < out; j++) {
            double sum = 0.0;
            for (size_t k = 0; k < in; k++)
                sum += round_to_bf16(x[t * in + k]) *
                       round_to_bf16(kind == XRAY_NT ? data[j * cols + k]
                                                     : data[k * cols + j]);
            assert_near(y[t * out + j], sum, 2e-5, "product in bfloat16");
        }
    run_matmul(d, w, kind, x + (n - 1) * in, in, one, out, 1);
    assert_same_bits(one, y + (n - 1) * out, out, "the last row alone",
                     d->name);
    d->ops->weight_destroy(d->self, w);
    free(data);
    free(x);
    free(y);
    free(one);
}

static void products_are_near_float64(void **state)
{
    (void)state;
    dev d = open_bf16();
    for (size_t i = 0; i < SHAPES; i++) {
        check_product(&d, i, XRAY_NT);
        check_product(&d, i, XRAY_NN);
    }
    d.ops->destroy(d.self);
}

static void run_matmul_grad(const dev *d, const shape *s, const float *dy,
                            const float *x, size_t first, size_t count,
                            float *dw)
{
    xray_matmul_grad op = { .header = XRAY_HEADER(xray_matmul_grad),
                            .tokens = { count, NULL },
                            .dy = dy + first * s->rows,
                            .x = x + first * s->cols,
                            .dy_stride = s->rows,
                            .x_stride = s->cols,
                            .rows = s->rows,
                            .cols = s->cols,
                            .dw = dw };
    must(d->ops->matmul_grad(d->self, NULL, &op));
}

/* Calls may cut the tokens at multiples of 4096. */
static void gradients_fold_at_multiples_of_4096(void **state)
{
    (void)state;
    enum { CUT = 4096, TOKENS = CUT + 77, ROWS = 40, COLS = 24 };
    dev d = open_bf16();
    float *dy = random_floats(TOKENS * ROWS, 1);
    float *x = random_floats(TOKENS * COLS, 1);
    float *dw = alloc_floats(ROWS * COLS);
    float *parts = alloc_floats(ROWS * COLS);
    const shape s = { TOKENS, ROWS, COLS };
    run_matmul_grad(&d, &s, dy, x, 0, TOKENS, dw);
    run_matmul_grad(&d, &s, dy, x, 0, CUT, parts);
    run_matmul_grad(&d, &s, dy, x, CUT, TOKENS - CUT, parts);
    assert_same_bits(parts, dw, ROWS * COLS, "dw by parts", d.name);
    free(dy);
    free(x);
    free(dw);
    free(parts);
    d.ops->destroy(d.self);
}

static void gradients_are_near_float64(void **state)
{
    (void)state;
    dev d = open_bf16();
    for (size_t i = 0; i < SHAPES; i++) {
        size_t n = shapes[i].tokens, rows = shapes[i].rows;
        size_t cols = shapes[i].cols;
        float *dy = random_floats(n * rows, 1);
        float *x = random_floats(n * cols, 1);
        float *dw = alloc_floats(rows * cols);
        run_matmul_grad(&d, &shapes[i], dy, x, 0, n, dw);
        for (size_t r = 0; r < rows; r++)
            for (size_t c = 0; c < cols; c++) {
                double sum = 0.0;
                for (size_t t = 0; t < n; t++)
                    sum += round_to_bf16(dy[t * rows + r]) *
                           round_to_bf16(x[t * cols + c]);
                assert_near(dw[r * cols + c], sum, 2e-5, "dw in bfloat16");
            }
        free(dy);
        free(x);
        free(dw);
    }
    d.ops->destroy(d.self);
}

static void log_probs_are_near_float64(void **state)
{
    (void)state;
    enum { ITEMS = 37, VOCAB = 300, DIM = 72 };
    dev d = open_bf16();
    float *data = random_floats((size_t)VOCAB * DIM, 1);
    float *x = random_floats((size_t)ITEMS * DIM, 1);
    int32_t targets[ITEMS];
    float logp[ITEMS], entropy[ITEMS], alone;
    for (int i = 0; i < ITEMS; i++)
        targets[i] = (int32_t)random_below(VOCAB);
    xray_weight *w = create_weight(&d, data, VOCAB, DIM);
    xray_lm_head_logp op = { .header = XRAY_HEADER(xray_lm_head_logp),
                             .items = { ITEMS, NULL },
                             .weight = w,
                             .x = x,
                             .targets = targets,
                             .logp = logp,
                             .entropy = entropy };
    must(d.ops->lm_head_logp(d.self, NULL, &op));
    for (size_t i = 0; i < ITEMS; i++) {
        double z[VOCAB], sum = 0.0, mean = 0.0;
        for (size_t j = 0; j < VOCAB; j++) {
            z[j] = 0.0;
            for (size_t k = 0; k < DIM; k++)
                z[j] += round_to_bf16(x[i * DIM + k]) *
                        round_to_bf16(data[j * DIM + k]);
            sum += exp(z[j]);
            mean += exp(z[j]) * z[j];
        }
        assert_near(logp[i], z[targets[i]] - log(sum), 2e-5,
                    "logp in bfloat16");
        assert_near(entropy[i], log(sum) - mean / sum, 2e-5,
                    "entropy in bfloat16");
    }
    op.items.bound = 1;
    op.x = x + (size_t)(ITEMS - 1) * DIM;
    op.targets = targets + ITEMS - 1;
    op.logp = &alone;
    op.entropy = NULL;
    must(d.ops->lm_head_logp(d.self, NULL, &op));
    assert_same_bits(&alone, logp + ITEMS - 1, 1, "an item alone", d.name);
    d.ops->weight_destroy(d.self, w);
    free(data);
    free(x);
    d.ops->destroy(d.self);
}

/* cuBLASLt writes products whose epilogue is a kernel of ours to a part of the
 * scratch memory that other products do not have. */
static void staged_products_are_planned(void **state)
{
    cuda_config own = { .precision = CUDA_BFLOAT16 };
    cuda_config blas = own;
    const xray_device_work work = { .header = XRAY_HEADER(xray_device_work),
                                    .passes = XRAY_PASS_ROWS,
                                    .tokens = 300,
                                    .row_tokens = 100,
                                    .width = 500,
                                    .heads = 4,
                                    .kv_heads = 2,
                                    .head_dim = 64,
                                    .vocab = 1000 };
    const uint64_t aligned = 300 * (500 + 3) + 500; /* of the operands */
    const uint64_t staged = 300 * 500;
    const xray_device_ops *ops =
        xray_plugin_query_device_cuda(XRAY_ABI)->components[0]->ops;
    (void)state;
    blas.products = CUDA_PRODUCTS_CUBLASLT;
    uint64_t more = ops->plan_scratch(&blas, 1, &work, 1, sizeof(work)) -
                    ops->plan_scratch(&own, 1, &work, 1, sizeof(work));
    more -= (uint64_t)32 << 20; /* cuBLASLt's own */
    assert_true(more >= (aligned + staged) * sizeof(float));
    assert_true(more < (aligned + staged) * sizeof(float) + 4096);
    own.precision = blas.precision = CUDA_FLOAT32; /* has no such products */
    assert_int_equal(ops->plan_scratch(&blas, 1, &work, 1, sizeof(work)),
                     ops->plan_scratch(&own, 1, &work, 1, sizeof(work)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_are_near_float64),
        cmocka_unit_test(staged_products_are_planned),
        cmocka_unit_test(gradients_fold_at_multiples_of_4096),
        cmocka_unit_test(gradients_are_near_float64),
        cmocka_unit_test(log_probs_are_near_float64),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
