/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests of the matrix products of device-cuda: every tile gives the same bits,
 * which in float32 are those of the contract; in bfloat16 they are close to
 * float64 over rounded operands.
 */
#include "tests/cuda/products.h"

typedef struct shape {
    uint32_t m, n, k;
} shape;

/* In transposed forms, a row runs along the other extent. */
typedef struct operands {
    uint32_t form;
    shape s;
    size_t a_rows, a_cols, b_rows, b_cols;
    float *a, *b, *c, *bias;
    size_t c_row;
} operands;

static operands make_operands(uint32_t form, shape s)
{
    operands o = { .form = form, .s = s };
    int turned = form == PRODUCT_TN;
    o.a_rows = turned ? s.k : s.m;
    o.a_cols = turned ? s.m : s.k;
    o.b_rows = form == PRODUCT_NT ? s.n : s.k;
    o.b_cols = form == PRODUCT_NT ? s.k : s.n;
    o.c_row = s.n + s.m % 3;
    o.a = random_floats(o.a_rows * o.a_cols, 1);
    o.b = random_floats(o.b_rows * o.b_cols, 1);
    o.c = random_floats(s.m * o.c_row, 1);
    o.bias = random_floats(s.n, 1);
    /* A chain of -0 stays -0: no padding term may be added. */
    for (size_t k = 0; k < s.k; k++) {
        o.a[turned ? k * o.a_cols : k] = 0.0f;
        o.b[form == PRODUCT_NT ? k : k * o.b_cols] = -1.0f;
    }
    o.c[0] = -0.0f;
    return o;
}

static void free_operands(operands *o)
{
    free(o->a);
    free(o->b);
    free(o->c);
    free(o->bias);
}

#define FROM_ZERO 0
#define FROM_C 1
#define FROM_BIAS 2

static product_gemm make_gemm(const operands *o, int start)
{
    product_gemm g = { .a = o->a,
                       .b = o->b,
                       .bias = start == FROM_BIAS ? o->bias : NULL,
                       .from = start == FROM_C ? o->c : NULL,
                       .from_row = o->c_row,
                       .a_row = o->a_cols,
                       .b_row = o->b_cols,
                       .c_row = o->c_row,
                       .form = (uint8_t)o->form,
                       .m = o->s.m,
                       .n = o->s.n,
                       .k = o->s.k,
                       .b_dtype = XRAY_F32 };
    return g;
}

REFERENCE static float read_a(const operands *o, size_t m, size_t k)
{
    return o->form == PRODUCT_TN ? o->a[k * o->a_cols + m]
                                 : o->a[m * o->a_cols + k];
}

REFERENCE static float read_b(const operands *o, size_t n, size_t k)
{
    return o->form == PRODUCT_NT ? o->b[n * o->b_cols + k]
                                 : o->b[k * o->b_cols + n];
}

REFERENCE static float read_start(const operands *o, int start, size_t m,
                                  size_t n)
{
    return start == FROM_C      ? o->c[m * o->c_row + n]
           : start == FROM_BIAS ? o->bias[n]
                                : 0.0f;
}

/* ---- float32 ------------------------------------------------------------- */

static const shape chain_shapes[] = {
    { 1, 1, 1 },     { 1, 70, 33 },   { 16, 64, 32 },   { 17, 65, 47 },
    { 130, 129, 9 }, { 64, 200, 50 }, { 129, 256, 31 },
};

REFERENCE static void check_chain(const operands *o, int start, uint32_t live_m,
                                  uint32_t live_k, const float *y,
                                  const float *before)
{
    for (size_t m = 0; m < o->s.m; m++)
        for (size_t n = 0; n < o->c_row; n++) {
            float got = y[m * o->c_row + n];
            if (m >= live_m || n >= o->s.n) {
                assert_true(got == before[m * o->c_row + n]);
                continue;
            }
            float c = read_start(o, start, m, n);
            for (size_t k = 0; k < live_k; k++)
                c = fmaf(read_a(o, m, k), read_b(o, n, k), c);
            if (memcmp(&c, &got, sizeof(c)) != 0)
                fail_msg("form %u, %u x %u x %u at %zu, %zu: %a, not %a",
                         o->form, o->s.m, o->s.n, o->s.k, m, n, (double)got,
                         (double)c);
        }
}

/* Every tile and every start, with and without a live count that includes
 * earlier tokens. */
static void chains_are_those_of_the_contract(void **state)
{
    (void)state;
    cuda_device *d = create_cuda(CUDA_FLOAT32);
    for (size_t i = 0; i < sizeof(chain_shapes) / sizeof(shape); i++)
        for (uint32_t form = 0; form < 3; form++) {
            operands o = make_operands(form, chain_shapes[i]);
            size_t count = o.s.m * o.c_row;
            for (int run = 0; run < 3 * PRODUCT_CHAIN_TILES; run++) {
                int start = form == PRODUCT_TN ? FROM_C : run % 3;
                product_gemm g = make_gemm(&o, start);
                uint32_t tokens = form == PRODUCT_TN ? o.s.k : o.s.m;
                int32_t live = (int32_t)(5 + tokens * 2 / 3);
                uint32_t most = run % 2 ? tokens * 2 / 3 : tokens;
                g.live = run % 2 ? &live : NULL;
                g.live_from = 5;
                float *y = copy_floats(o.c, count);
                g.c = y;
                must(product_chain(d, NULL, "test", &g, run / 3));
                check_chain(&o, start, form == PRODUCT_TN ? o.s.m : most,
                            form == PRODUCT_TN ? most : o.s.k, y, o.c);
                free(y);
            }
            free_operands(&o);
        }
    destroy_cuda(d);
}

static float half_to_float(uint16_t h)
{
    int exponent = h >> 10 & 31;
    double m = (double)(h & 1023) * 0x1p-10;
    double v = exponent ? ldexp(1.0 + m, exponent - 15) : m * 0x1p-14;
    return (float)(h & 0x8000 ? -v : v);
}

/* 16-bit matrices are widened exactly, including subnormal halves. */
static void halves_are_widened(void **state)
{
    (void)state;
    cuda_device *d = create_cuda(CUDA_FLOAT32);
    enum { ALL = 0x7c00 };
    uint16_t *w = calloc(ALL, sizeof(*w));
    float *y = alloc_floats(ALL);
    float x = 1.0f;
    assert_non_null(w);
    for (uint32_t i = 0; i < ALL; i++)
        w[i] = (uint16_t)(i | (i % 2 ? 0x8000u : 0u));
    for (uint32_t dtype = XRAY_BF16; dtype <= XRAY_F16; dtype++) {
        product_gemm g = { .a = &x,
                           .b = w,
                           .c = y,
                           .a_row = 1,
                           .b_row = 1,
                           .c_row = ALL,
                           .form = PRODUCT_NT,
                           .m = 1,
                           .n = ALL,
                           .k = 1,
                           .b_dtype = (uint8_t)dtype };
        must(product_chain(d, NULL, "test", &g, 0));
        for (size_t i = 0; i < ALL; i++) {
            float want =
                dtype == XRAY_BF16 ? from_bf16(w[i]) : half_to_float(w[i]);
            assert_true(y[i] == want);
        }
    }
    free(w);
    free(y);
    destroy_cuda(d);
}

/* ---- bfloat16 ------------------------------------------------------------ */

static const shape tensor_shapes[] = {
    { 1, 8, 16 },    { 3, 17, 5 },    { 16, 33, 130 },  { 9, 40, 264 },
    { 40, 70, 200 }, { 70, 65, 129 }, { 130, 257, 90 }, { 200, 128, 64 },
};

/* Rounds operands to bf16 and pads rows with zeros. */
static uint16_t *round_operands(float *x, size_t rows, size_t cols)
{
    size_t row = product_row(cols);
    uint16_t *low = aligned_alloc(16, (rows * row * 2 + 15) / 16 * 16);
    assert_non_null(low);
    memset(low, 0, rows * row * 2);
    for (size_t r = 0; r < rows; r++)
        for (size_t c = 0; c < cols; c++) {
            low[r * row + c] = to_bf16(x[r * cols + c]);
            x[r * cols + c] = from_bf16(low[r * row + c]);
        }
    return low;
}

REFERENCE static void check_near(const operands *o, int start, const float *y)
{
    for (size_t m = 0; m < o->s.m; m++)
        for (size_t n = 0; n < o->c_row; n++) {
            float got = y[m * o->c_row + n];
            if (n >= o->s.n) {
                assert_true(got == o->c[m * o->c_row + n]);
                continue;
            }
            double sum = (double)read_start(o, start, m, n);
            for (size_t k = 0; k < o->s.k; k++)
                sum += (double)read_a(o, m, k) * (double)read_b(o, n, k);
            assert_near(got, sum, 1e-5, "tensor product");
        }
}

static void tiles_agree_to_the_bit(void **state)
{
    (void)state;
    cuda_device *d = create_cuda(CUDA_BFLOAT16);
    for (size_t i = 0; i < sizeof(tensor_shapes) / sizeof(shape); i++)
        for (uint32_t form = 0; form < 3; form++) {
            operands o = make_operands(form, tensor_shapes[i]);
            uint16_t *a = round_operands(o.a, o.a_rows, o.a_cols);
            uint16_t *b = round_operands(o.b, o.b_rows, o.b_cols);
            size_t count = o.s.m * o.c_row;
            int start = form == PRODUCT_TN ? FROM_C : (int)(i % 3);
            float *first = NULL;
            for (int t = -1; t < PRODUCT_TENSOR_TILES; t++) {
                product_gemm g = make_gemm(&o, start);
                float *y = copy_floats(o.c, count);
                g.a = a;
                g.b = b;
                g.a_row = product_row(o.a_cols);
                g.b_row = product_row(o.b_cols);
                g.c = y;
                xray_status s = product_tensor(d, NULL, "test", &g, t);
                if (!has_tile(form, 0, 1, t)) {
                    assert_int_equal(s, XRAY_E_UNSUPPORTED);
                    free(y);
                    continue;
                }
                must(s);
                if (first) {
                    assert_same_bits(y, first, count, "tile", "another tile");
                    free(y);
                } else {
                    first = y;
                    check_near(&o, start, y);
                }
            }
            free(first);
            free(a);
            free(b);
            free_operands(&o);
        }
    destroy_cuda(d);
}

/* ---- epilogues ----------------------------------------------------------- */

typedef struct epilogue {
    const char *name;
    uint32_t act;
    uint32_t gates;
    int bias;
    int from;
    int add;
} epilogue;

static const epilogue epilogues[] = {
    { "residual", 0, 0, 0, 1, 0 },
    { "residual after a bias", 0, 0, 1, 0, 1 },
    { "gates", XRAY_ACT_SILU, 1, 0, 0, 0 },
    { "gates with a bias", XRAY_ACT_GELU_TANH, 1, 1, 0, 0 },
    { "activation", XRAY_ACT_SILU, 0, 1, 0, 0 },
};

static product_gemm make_epilogue(const operands *o, const epilogue *e,
                                  const void *residual)
{
    product_gemm g = make_gemm(o, e->bias ? FROM_BIAS : FROM_ZERO);
    g.act = (uint8_t)e->act;
    g.gates = (uint8_t)e->gates;
    g.from = e->from ? residual : NULL;
    g.add = e->add ? residual : NULL;
    g.from_row = o->s.n + 3;
    return g;
}

/* An epilogue within a tile gives the bits of a product in scratch memory that
 * a second kernel ends, as with cuBLASLt, and of any other tile, whether
 * outputs and residual are floats or bf16. Other elements stay as they are. */
static void epilogues_of_tiles_agree_to_the_bit(void **state)
{
    (void)state;
    static const shape shapes[] = {
        { 1, 8, 16 }, { 9, 40, 264 }, { 70, 66, 129 }, { 130, 258, 90 }
    };
    cuda_device *d = create_cuda(CUDA_BFLOAT16);
    for (size_t i = 0; i < sizeof(shapes) / sizeof(shape); i++) {
        operands o = make_operands(PRODUCT_NT, shapes[i]);
        uint16_t *a = round_operands(o.a, o.a_rows, o.a_cols);
        uint16_t *b = round_operands(o.b, o.b_rows, o.b_cols);
        size_t count = o.s.m * o.c_row;
        size_t left = (size_t)o.s.m * (o.s.n + 3);
        float *residual = random_floats(left, 1);
        uint16_t *low = round_operands(residual, 1, left);
        for (size_t e = 0; e < sizeof(epilogues) / sizeof(epilogue); e++)
            for (int run = 0; run < 4; run++) {
                product_gemm g =
                    make_epilogue(&o, &epilogues[e],
                                  run > 1 ? (void *)low : (void *)residual);
                int32_t live = (int32_t)(o.s.m * 2 / 3 + 5);
                g.live = run % 2 ? &live : NULL;
                if (run > 1)
                    g.narrow = PRODUCT_NARROW_C | PRODUCT_NARROW_FROM;
                g.live_from = 5;
                g.a = a;
                g.b = b;
                g.a_row = product_row(o.a_cols);
                g.b_row = product_row(o.b_cols);
                float *want = copy_floats(o.c, count);
                g.c = want;
                must(product_staged(d, NULL, "test", &g));
                if (!run)
                    assert_memory_not_equal(want, o.c, sizeof(*want));
                for (int t = -1; t < PRODUCT_TENSOR_TILES; t++) {
                    if (!has_tile(PRODUCT_NT, 0, 1, t))
                        continue;
                    float *y = copy_floats(o.c, count);
                    g.c = y;
                    must(product_tensor(d, NULL, "test", &g, t));
                    assert_same_bits(y, want, count, epilogues[e].name,
                                     "a tile");
                    free(y);
                }
                free(want);
            }
        free(residual);
        free(low);
        free(a);
        free(b);
        free_operands(&o);
    }
    destroy_cuda(d);
}

/* ---- the operators in bfloat16 ------------------------------------------- */

typedef struct linear {
    size_t tokens, rows, cols;
    float *w, *x, *dy;
} linear;

static linear make_linear(size_t tokens, size_t rows, size_t cols)
{
    linear l = { tokens,
                 rows,
                 cols,
                 random_floats(rows * cols, 1),
                 random_floats(tokens * (cols + 1), 1),
                 random_floats(tokens * (rows + 2), 1) };
    return l;
}

static void free_linear(linear *l)
{
    free(l->w);
    free(l->x);
    free(l->dy);
}

static void run_linear(cuda_device *d, const linear *l, const xray_weight *w,
                       uint32_t kind, size_t first, size_t count,
                       const int32_t *live, float *y)
{
    int nt = kind == XRAY_NT;
    size_t x_row = nt ? l->cols + 1 : l->rows + 2;
    size_t y_row = nt ? l->rows : l->cols;
    xray_matmul op = { .header = XRAY_HEADER(xray_matmul),
                       .weight = w,
                       .tokens = { count, live },
                       .x = (nt ? l->x : l->dy) + first * x_row,
                       .y = y + first * y_row,
                       .x_stride = x_row,
                       .y_stride = y_row,
                       .kind = kind };
    must(cuda_matmul(d, NULL, &op));
}

REFERENCE static void check_linear(const linear *l, uint32_t kind,
                                   const float *y)
{
    int nt = kind == XRAY_NT;
    size_t out = nt ? l->rows : l->cols;
    size_t in = nt ? l->cols : l->rows;
    for (size_t t = 0; t < l->tokens; t++)
        for (size_t j = 0; j < out; j++) {
            double sum = 0;
            for (size_t k = 0; k < in; k++) {
                float x = nt ? l->x[t * (in + 1) + k] : l->dy[t * (in + 2) + k];
                float w = nt ? l->w[j * l->cols + k] : l->w[k * l->cols + j];
                sum += (double)round_to_bf16(x) * (double)round_to_bf16(w);
            }
            assert_near(y[t * out + j], sum, 1e-5, "matmul");
        }
}

/* A row alone, as in decoding, has the bits that it has among many. */
static void rows_do_not_depend_on_the_batch(void **state)
{
    (void)state;
    cuda_device *d = create_cuda(CUDA_BFLOAT16);
    linear l = make_linear(75, 67, 130);
    xray_weight *w = create_weight_on(cuda_ops(), d, l.w, 67, 130);
    for (uint32_t kind = XRAY_NT; kind <= XRAY_NN; kind++) {
        size_t out = kind == XRAY_NT ? l.rows : l.cols;
        float *complete = alloc_floats(75 * out);
        float *parts = alloc_floats(75 * out);
        run_linear(d, &l, w, kind, 0, 75, NULL, complete);
        check_linear(&l, kind, complete);
        static const size_t cuts[] = { 0, 1, 17, 20, 75 };
        for (size_t c = 0; c + 1 < sizeof(cuts) / sizeof(*cuts); c++)
            run_linear(d, &l, w, kind, cuts[c], cuts[c + 1] - cuts[c], NULL,
                       parts);
        assert_same_bits(parts, complete, 75 * out, "rows", "by parts");
        int32_t live = 31;
        memset(parts, 0, 75 * out * sizeof(*parts));
        run_linear(d, &l, w, kind, 0, 75, &live, parts);
        assert_same_bits(parts, complete, 31 * out, "rows", "that live");
        for (size_t i = 31 * out; i < 75 * out; i++)
            assert_true(parts[i] == 0.0f);
        free(complete);
        free(parts);
    }
    cuda_weight_destroy(d, w);
    free_linear(&l);
    destroy_cuda(d);
}

/* A bf16 copy is updated after its data changed, at the next product or before
 * a graph runs. */
static void changed_matrices_are_rounded_again(void **state)
{
    (void)state;
    cuda_device *d = create_cuda(CUDA_BFLOAT16);
    linear l = make_linear(3, 20, 12);
    float *y = alloc_floats(3 * 20);
    xray_weight *w = create_weight_on(cuda_ops(), d, l.w, 20, 12);
    run_linear(d, &l, w, XRAY_NT, 0, 3, NULL, y);
    check_linear(&l, XRAY_NT, y);
    for (int pass = 0; pass < 2; pass++) {
        for (size_t i = 0; i < 20 * 12; i++)
            l.w[i] = 1.0f - 3.0f * l.w[i];
        must(cuda_weight_changed(d, w));
        if (pass == 1) {
            must(cuda_weights_refresh(d, NULL));
            assert_int_equal(w->stale, 0);
        }
        run_linear(d, &l, w, XRAY_NT, 0, 3, NULL, y);
        check_linear(&l, XRAY_NT, y);
    }
    cuda_weight_destroy(d, w);
    assert_null(d->weights);
    free(y);
    free_linear(&l);
    destroy_cuda(d);
}

static void run_matmul_grad(cuda_device *d, const linear *l, size_t first,
                            size_t count, const int32_t *live, float *dw,
                            float *dbias)
{
    xray_matmul_grad op = { .header = XRAY_HEADER(xray_matmul_grad),
                            .tokens = { count, live },
                            .dy = l->dy + first * (l->rows + 2),
                            .x = l->x + first * (l->cols + 1),
                            .dy_stride = l->rows + 2,
                            .x_stride = l->cols + 1,
                            .rows = l->rows,
                            .cols = l->cols,
                            .dw = dw,
                            .dbias = dbias };
    must(cuda_matmul_grad(d, NULL, &op));
}

REFERENCE static void check_matmul_grad(const linear *l, const float *before,
                                        const float *dw,
                                        const float *bias_before,
                                        const float *dbias)
{
    for (size_t n = 0; n < l->rows; n++) {
        float b = bias_before[n];
        for (size_t at = 0; at < l->tokens; at += 256) {
            float sum = 0.0f;
            for (size_t t = at; t < l->tokens && t < at + 256; t++)
                sum = sum + l->dy[t * (l->rows + 2) + n];
            b = b + sum;
        }
        assert_true(dbias[n] == b);
        for (size_t k = 0; k < l->cols; k++) {
            double sum = (double)before[n * l->cols + k];
            for (size_t t = 0; t < l->tokens; t++)
                sum += (double)round_to_bf16(l->dy[t * (l->rows + 2) + n]) *
                       (double)round_to_bf16(l->x[t * (l->cols + 1) + k]);
            assert_near(dw[n * l->cols + k], sum, 4e-5, "matmul_grad");
        }
    }
}

/* Calls may cut the tokens at multiples of the grain. */
static void gradients_do_not_depend_on_the_cut(void **state)
{
    (void)state;
    cuda_device *d = create_cuda(CUDA_BFLOAT16);
    linear l = make_linear(2 * CUDA_GRAIN + 149, 7, 9);
    size_t n = l.rows * l.cols;
    float *before = random_floats(n, 1);
    float *bias = random_floats(l.rows, 1);
    float *complete = copy_floats(before, n);
    float *whole_bias = copy_floats(bias, l.rows);
    run_matmul_grad(d, &l, 0, l.tokens, NULL, complete, whole_bias);
    check_matmul_grad(&l, before, complete, bias, whole_bias);
    const size_t cuts[] = { 0, CUDA_GRAIN, 2 * CUDA_GRAIN, l.tokens };
    for (int with_live = 0; with_live < 2; with_live++) {
        float *parts = copy_floats(before, n);
        float *parts_bias = copy_floats(bias, l.rows);
        for (size_t c = 0; c + 1 < sizeof(cuts) / sizeof(*cuts); c++) {
            int32_t live = (int32_t)(cuts[c + 1] - cuts[c]);
            size_t bound = with_live ? l.tokens - cuts[c] : (size_t)live;
            run_matmul_grad(d, &l, cuts[c], bound, with_live ? &live : NULL,
                            parts, parts_bias);
        }
        assert_same_bits(parts, complete, n, "dw", "cut");
        assert_same_bits(parts_bias, whole_bias, l.rows, "dbias", "cut");
        free(parts);
        free(parts_bias);
    }
    free(before);
    free(bias);
    free(complete);
    free(whole_bias);
    free_linear(&l);
    destroy_cuda(d);
}

/* The sentence tells how much shared memory suffices. */
static void too_little_shared_memory_is_refused(void **state)
{
    (void)state;
    cuda_device *d = create_cuda(CUDA_BFLOAT16);
    operands o = make_operands(PRODUCT_NT, (shape){ 8, 8, 16 });
    product_gemm g = make_gemm(&o, 0);
    g.c = o.c;
    d->shared_most = 0;
    assert_int_equal(product_tensor(d, NULL, "test", &g, 0),
                     XRAY_E_UNSUPPORTED);
    const char *needs = strstr(last_failure, "the kernel needs ");
    assert_non_null(needs);
    d->shared_most = (int)strtol(needs + 17, NULL, 10) - 1;
    assert_int_equal(product_tensor(d, NULL, "test", &g, 0),
                     XRAY_E_UNSUPPORTED);
    d->shared_most++;
    must(product_tensor(d, NULL, "test", &g, 0));
    free_operands(&o);
    destroy_cuda(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chains_are_those_of_the_contract),
        cmocka_unit_test(halves_are_widened),
        cmocka_unit_test(tiles_agree_to_the_bit),
        cmocka_unit_test(epilogues_of_tiles_agree_to_the_bit),
        cmocka_unit_test(rows_do_not_depend_on_the_batch),
        cmocka_unit_test(changed_matrices_are_rounded_again),
        cmocka_unit_test(gradients_do_not_depend_on_the_cut),
        cmocka_unit_test(too_little_shared_memory_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
