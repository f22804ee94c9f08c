/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests that operators on rows give, for arrays in bf16, the bits that they
 * give for the same values in fp32, rounded once.
 */
#include "tests/device/bench.h"

/* The same values in fp32 and in bf16. */
typedef struct twin {
    float *f;
    uint16_t *h;
    size_t n;
} twin;

static twin make_twin(size_t n)
{
    twin t = { random_floats(n + 1, 2), calloc(n + 1, sizeof(uint16_t)), n };
    assert_non_null(t.h);
    for (size_t i = 0; i <= n; i++) {
        t.h[i] = cpu_to_bf16(t.f[i]);
        t.f[i] = cpu_from_bf16(t.h[i]);
    }
    return t;
}

static twin copy_twin(const twin *x)
{
    twin t = { copy_floats(x->f, x->n + 1), calloc(x->n + 1, sizeof(uint16_t)),
               x->n };
    assert_non_null(t.h);
    memcpy(t.h, x->h, (x->n + 1) * sizeof(uint16_t));
    return t;
}

static void free_twin(twin *t)
{
    free(t->f);
    free(t->h);
}

/* Element `off` of the array of type `dtype`. */
static void *element_at(const twin *t, uint32_t dtype, size_t off)
{
    return dtype == XRAY_BF16 ? (void *)(t->h + off) : (void *)(t->f + off);
}

/* Asserts that `got` of type `dtype` has the values of want->f, rounded. */
static void assert_twin(const twin *got, uint32_t dtype, const twin *want,
                        const char *what)
{
    for (size_t i = 0; i <= want->n; i++) {
        float a = dtype == XRAY_BF16 ? cpu_from_bf16(got->h[i]) : got->f[i];
        float b = dtype == XRAY_BF16 ? cpu_from_bf16(cpu_to_bf16(want->f[i]))
                                     : want->f[i];
        if (memcmp(&a, &b, 4) != 0)
            fail_msg("%s, type %u: entry %zu of %zu is %a, not %a", what, dtype,
                     i, want->n, (double)a, (double)b);
    }
}

typedef struct kinds {
    uint32_t x, y, r;
} kinds;

static kinds kinds_of(int i)
{
    return (kinds){ i & 1 ? XRAY_BF16 : XRAY_F32, i & 2 ? XRAY_BF16 : 0,
                    i & 4 ? XRAY_BF16 : XRAY_F32 };
}

enum { TOKENS = 5 };
static const size_t dims[] = { 1, 15, 64, 100, 260, 300, 1032 };
#define DIMS (sizeof(dims) / sizeof(*dims))

static void check_rmsnorm(const dev *d, size_t dim, uint32_t groups, int with,
                          kinds k, size_t off)
{
    size_t stride = dim * groups + 4 * off;
    twin x = make_twin(TOKENS * stride), r = make_twin(TOKENS * dim);
    twin y = make_twin(TOKENS * stride);
    twin x2 = copy_twin(&x), r2 = copy_twin(&r), y2 = copy_twin(&y);
    float *w = random_floats(dim, 1), *rstd = alloc_floats(TOKENS * groups);
    float *rstd2 = alloc_floats(TOKENS * groups);
    xray_rmsnorm op = { .header = XRAY_HEADER(xray_rmsnorm),
                        .tokens = { TOKENS, NULL },
                        .x = x.f + off,
                        .residual = with ? r.f + off : NULL,
                        .weight = w,
                        .y = y.f + off,
                        .rstd = rstd,
                        .x_stride = stride,
                        .y_stride = stride,
                        .groups = groups,
                        .dim = (uint32_t)dim,
                        .eps = 1e-5f };
    if (with) { /* the sum as it is stored */
        for (size_t t = 0; t < TOKENS; t++)
            for (size_t i = 0; i < dim; i++) {
                float *s = &r.f[off + t * dim + i];
                *s = *s + x.f[off + t * stride + i];
                if (k.r == XRAY_BF16)
                    *s = cpu_from_bf16(cpu_to_bf16(*s));
            }
        op.x = r.f + off;
        op.x_stride = dim;
        op.residual = NULL;
    }
    must(d->ops->rmsnorm(d->self, NULL, &op));
    op.x = element_at(&x2, k.x, off);
    op.x_stride = stride;
    op.residual = with ? element_at(&r2, k.r, off) : NULL;
    op.y = element_at(&y2, k.y, off);
    op.rstd = rstd2;
    op.x_dtype = k.x;
    op.y_dtype = k.y;
    op.residual_dtype = k.r;
    must(d->ops->rmsnorm(d->self, NULL, &op));
    assert_same_bits(rstd2, rstd, TOKENS * groups, "rstd", d->name);
    assert_twin(&y2, k.y, &y, "rmsnorm");
    if (with)
        assert_twin(&r2, k.r, &r, "residual");
    float *dy = random_floats(TOKENS * stride, 1);
    float *dx = random_floats(TOKENS * stride, 1);
    float *dx2 = copy_floats(dx, TOKENS * stride);
    float *dw = alloc_floats(dim), *dw2 = alloc_floats(dim);
    xray_rmsnorm_grad g = { .header = XRAY_HEADER(xray_rmsnorm_grad),
                            .tokens = { TOKENS, NULL },
                            .x = x2.f + off,
                            .weight = w,
                            .rstd = rstd,
                            .dy = dy,
                            .dx = dx,
                            .dweight = dw,
                            .x_stride = stride,
                            .dy_stride = stride,
                            .dx_stride = stride,
                            .groups = groups,
                            .dim = (uint32_t)dim,
                            .accumulate = 1 };
    must(d->ops->rmsnorm_grad(d->self, NULL, &g));
    g.x = element_at(&x2, k.x, off);
    g.x_dtype = k.x;
    g.dx = dx2;
    g.dweight = dw2;
    must(d->ops->rmsnorm_grad(d->self, NULL, &g));
    assert_same_bits(dx2, dx, TOKENS * stride, "dx", d->name);
    assert_same_bits(dw2, dw, dim, "dweight", d->name);
    float *all[] = { w, rstd, rstd2, dy, dx, dx2, dw, dw2 };
    for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++)
        free(all[i]);
    twin *twins[] = { &x, &r, &y, &x2, &r2, &y2 };
    for (size_t i = 0; i < sizeof(twins) / sizeof(*twins); i++)
        free_twin(twins[i]);
}

static void check_layernorm(const dev *d, size_t dim, kinds k, size_t off)
{
    size_t stride = dim + 4 * off;
    twin x = make_twin(TOKENS * stride), y = make_twin(TOKENS * stride);
    twin y2 = copy_twin(&y);
    float *w = random_floats(dim, 1), *stat = alloc_floats(TOKENS * 2);
    float *stat2 = alloc_floats(TOKENS * 2);
    xray_layernorm op = { .header = XRAY_HEADER(xray_layernorm),
                          .tokens = { TOKENS, NULL },
                          .x = x.f + off,
                          .weight = w,
                          .bias = w,
                          .y = y.f + off,
                          .stat = stat,
                          .x_stride = stride,
                          .y_stride = stride,
                          .dim = (uint32_t)dim,
                          .eps = 1e-5f };
    must(d->ops->layernorm(d->self, NULL, &op));
    op.x = element_at(&x, k.x, off);
    op.y = element_at(&y2, k.y, off);
    op.stat = stat2;
    op.x_dtype = k.x;
    op.y_dtype = k.y;
    must(d->ops->layernorm(d->self, NULL, &op));
    assert_same_bits(stat2, stat, TOKENS * 2, "stat", d->name);
    assert_twin(&y2, k.y, &y, "layernorm");
    float *dy = random_floats(TOKENS * stride, 1);
    float *dx = alloc_floats(TOKENS * stride),
          *dx2 = alloc_floats(TOKENS * stride);
    float *dw = alloc_floats(2 * dim), *dw2 = alloc_floats(2 * dim);
    xray_layernorm_grad g = { .header = XRAY_HEADER(xray_layernorm_grad),
                              .tokens = { TOKENS, NULL },
                              .x = x.f + off,
                              .weight = w,
                              .stat = stat,
                              .dy = dy,
                              .dx = dx,
                              .dweight = dw,
                              .dbias = dw + dim,
                              .x_stride = stride,
                              .dy_stride = stride,
                              .dx_stride = stride,
                              .dim = (uint32_t)dim };
    must(d->ops->layernorm_grad(d->self, NULL, &g));
    g.x = element_at(&x, k.x, off);
    g.x_dtype = k.x;
    g.dx = dx2;
    g.dweight = dw2;
    g.dbias = dw2 + dim;
    must(d->ops->layernorm_grad(d->self, NULL, &g));
    assert_same_bits(dx2, dx, TOKENS * stride, "dx", d->name);
    assert_same_bits(dw2, dw, 2 * dim, "dweight", d->name);
    float *all[] = { w, stat, stat2, dy, dx, dx2, dw, dw2 };
    for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++)
        free(all[i]);
    free_twin(&x);
    free_twin(&y);
    free_twin(&y2);
}

static void norms_round_once(void **state)
{
    (void)state;
    dev d = open_cuda(CUDA_FLOAT32, "cuda");
    for (size_t i = 0; i < DIMS; i++)
        for (int j = 0; j < 16; j++) {
            check_rmsnorm(&d, dims[i], 3, 0, kinds_of(j), (size_t)j / 8);
            check_rmsnorm(&d, dims[i], 1, 1, kinds_of(j), (size_t)j / 8);
            check_layernorm(&d, dims[i], kinds_of(j), (size_t)j / 8);
        }
    d.ops->destroy(d.self);
}

static void check_glu(const dev *d, size_t dim, kinds k, size_t off, int act)
{
    size_t n = TOKENS * dim;
    twin x = make_twin(2 * n), y = make_twin(n), y2 = copy_twin(&y);
    float *dy = random_floats(n, 1);
    float *dx = alloc_floats(2 * n), *dx2 = alloc_floats(2 * n);
    xray_glu op = { .header = XRAY_HEADER(xray_glu),
                    .tokens = { TOKENS, NULL },
                    .x = x.f + off,
                    .y = y.f + off,
                    .dim = (uint32_t)dim,
                    .act = act % 2 ? XRAY_ACT_SILU : XRAY_ACT_GELU_TANH,
                    .plain = (uint32_t)act / 2 };
    xray_glu_grad g = { .header = XRAY_HEADER(xray_glu_grad),
                        .tokens = { TOKENS, NULL },
                        .x = op.x,
                        .dy = dy,
                        .dx = dx,
                        .dim = op.dim,
                        .act = op.act,
                        .plain = op.plain };
    must(d->ops->glu(d->self, NULL, &op));
    must(d->ops->glu_grad(d->self, NULL, &g));
    op.x = g.x = element_at(&x, k.x, off);
    op.y = element_at(&y2, k.y, off);
    op.x_dtype = g.x_dtype = k.x;
    op.y_dtype = k.y;
    g.dx = dx2;
    must(d->ops->glu(d->self, NULL, &op));
    must(d->ops->glu_grad(d->self, NULL, &g));
    assert_twin(&y2, k.y, &y, "glu");
    assert_same_bits(dx2, dx, 2 * n, "dx", d->name);
    free(dy);
    free(dx);
    free(dx2);
    free_twin(&x);
    free_twin(&y);
    free_twin(&y2);
}

static void check_axpby(const dev *d, size_t dim, kinds k, size_t off, int form)
{
    twin x = make_twin(TOKENS * dim);
    twin y = make_twin(TOKENS * dim), y2 = copy_twin(&y);
    xray_axpby op = { .header = XRAY_HEADER(xray_axpby),
                      .count = TOKENS * dim,
                      .x = form ? x.f + off : NULL,
                      .y = y.f + off,
                      .alpha = 0.7f,
                      .beta = form == 1 ? 0 : 1.3f };
    must(d->ops->axpby(d->self, NULL, &op));
    op.x = form ? element_at(&x, k.x, off) : NULL;
    op.y = element_at(&y2, k.y, off);
    op.x_dtype = k.x;
    op.y_dtype = k.y;
    must(d->ops->axpby(d->self, NULL, &op));
    assert_twin(&y2, k.y, &y, "axpby");
    free_twin(&x);
    free_twin(&y);
    free_twin(&y2);
}

static void check_rope(const dev *d, size_t dim, uint32_t dtype, size_t off)
{
    uint32_t half = (uint32_t)dim / 2;
    twin x = make_twin(TOKENS * dim), x2 = copy_twin(&x);
    float *table = random_floats(9 * half * 2, 1);
    const int32_t positions[TOKENS] = { 0, 3, 8, 1, 2 };
    xray_rope op = { .header = XRAY_HEADER(xray_rope),
                     .tokens = { TOKENS, NULL },
                     .x = x.f + off,
                     .positions = positions,
                     .table = table,
                     .stride = dim,
                     .heads = 1,
                     .head_dim = (uint32_t)dim,
                     .half = half };
    must(d->ops->rope(d->self, NULL, &op));
    op.x = element_at(&x2, dtype, off);
    op.dtype = dtype;
    must(d->ops->rope(d->self, NULL, &op));
    assert_twin(&x2, dtype, &x, "rope");
    free(table);
    free_twin(&x);
    free_twin(&x2);
}

/* A table in fp32 is rounded before the scale if y is bf16. */
static void check_embedding(const dev *d, size_t dim, kinds k, size_t off)
{
    twin table = make_twin(7 * dim);
    twin y = make_twin(TOKENS * dim), y2 = copy_twin(&y);
    const int32_t ids[TOKENS] = { 6, 0, 9, 5, 0 };
    xray_embedding op = { .header = XRAY_HEADER(xray_embedding),
                          .tokens = { TOKENS, NULL },
                          .ids = ids,
                          .table = table.f + off,
                          .y = y.f + off,
                          .vocab = 7,
                          .dim = dim,
                          .scale = 1.3f,
                          .slice = 1 };
    must(d->ops->embedding(d->self, NULL, &op));
    if (k.y == XRAY_BF16)
        for (size_t i = 0; i <= table.n; i++)
            table.f[i] *= 1.0f + 0x1p-10f;
    op.table = element_at(&table, k.x, off);
    op.y = element_at(&y2, k.y, off);
    op.table_dtype = k.x;
    op.y_dtype = k.y;
    must(d->ops->embedding(d->self, NULL, &op));
    assert_twin(&y2, k.y, &y, "embedding");
    free_twin(&table);
    free_twin(&y);
    free_twin(&y2);
}

static void check_moves(const dev *d, size_t dim, uint32_t dtype, size_t off)
{
    const int32_t index[TOKENS] = { 3, 1, 4, 0, 2 };
    for (int put = 0; put < 2; put++) {
        twin x = make_twin(TOKENS * dim);
        twin y = make_twin(TOKENS * dim), y2 = copy_twin(&y);
        xray_rows op = { .header = XRAY_HEADER(xray_rows),
                         .count = { TOKENS, NULL },
                         .index = index,
                         .x = x.f + off,
                         .y = y.f + off,
                         .dim = dim };
        must((put ? d->ops->scatter : d->ops->gather)(d->self, NULL, &op));
        op.x = element_at(&x, dtype, off);
        op.y = element_at(&y2, dtype, off);
        op.dtype = dtype;
        must((put ? d->ops->scatter : d->ops->gather)(d->self, NULL, &op));
        assert_twin(&y2, dtype, &y, put ? "scatter" : "gather");
        free_twin(&x);
        free_twin(&y);
        free_twin(&y2);
    }
}

static void others_round_once(void **state)
{
    (void)state;
    dev d = open_cuda(CUDA_FLOAT32, "cuda");
    for (size_t i = 0; i < DIMS; i++)
        for (int j = 0; j < 4; j++)
            for (size_t off = 0; off < 2; off++) {
                kinds k = kinds_of(j);
                for (int form = 0; form < 4; form++) {
                    check_glu(&d, dims[i], k, off, form);
                    check_axpby(&d, dims[i], k, off, form);
                }
                check_rope(&d, dims[i], k.x, off);
                check_embedding(&d, dims[i], k, off);
                check_moves(&d, dims[i], k.x, off);
            }
    d.ops->destroy(d.self);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(norms_round_once),
        cmocka_unit_test(others_round_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
