/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention of rows that go on from a parent: the bits of the joined rows, and
 * gradients that add up to theirs.
 */
#include "tests/device/bench.h"

#define MOST_ROWS 12

typedef struct form {
    uint32_t heads, kv_heads, dim, window;
    float softcap;
    int32_t lengths[MOST_ROWS]; /* ends with 0 */
    const char
        *kind; /* of each row: p a parent or a row by itself, c a child */
} form;

static const form forms[] = {
    { 1, 1, 8, 0, 0.0f, { 1, 1, 2 }, "pcc" },
    { 4, 2, 16, 0, 0.0f, { 8, 5, 5, 4, 8, 5, 1 }, "pcccpcc" },
    { 4, 4, 16, 0, 0.0f, { 16, 16, 3, 7, 15, 1, 2, 17 }, "pccppccp" },
    { 6, 2, 24, 0, 0.0f, { 17, 33, 1, 40, 2, 2 }, "pccpcc" },
    { 2, 1, 64, 0, 0.0f, { 130, 64, 65, 70, 1 }, "pccpc" },
    { 4, 2, 16, 5, 0.0f, { 20, 30, 2, 9, 40, 3 }, "pccpcc" },
    { 3, 3, 20, 0, 2.0f, { 30, 20, 21, 5 }, "pccc" },
    { 2, 1, 32, 18, 1.5f, { 17, 50, 3, 40 }, "pccp" },
    { 8, 2, 128, 64, 0.0f, { 65, 63, 64, 2 }, "pccc" },
};
#define FORMS (sizeof(forms) / sizeof(*forms))

/* Rows, packed; `parent` is NULL where all are joined. */
typedef struct rows {
    const form *f;
    size_t count, tokens, longest;
    int32_t start[MOST_ROWS + 1];
    int32_t parent_of[MOST_ROWS];
    const int32_t *parent;
    float *qkv, *o, *lse, *d_o, *grad;
} rows;

static size_t q_width(const form *f)
{
    return (size_t)f->heads * f->dim;
}

static size_t kv_width(const form *f)
{
    return (size_t)f->kv_heads * f->dim;
}

static size_t stride_of(const form *f)
{
    return q_width(f) + 2 * kv_width(f);
}

static void rows_room(rows *r)
{
    r->qkv = floats(r->tokens * stride_of(r->f));
    r->grad = random_floats(r->tokens * stride_of(r->f), 1);
    r->o = floats(r->tokens * q_width(r->f));
    r->d_o = floats(r->tokens * q_width(r->f));
    r->lse = floats(r->tokens * r->f->heads);
}

static void rows_free(rows *r)
{
    free(r->qkv);
    free(r->grad);
    free(r->o);
    free(r->d_o);
    free(r->lse);
}

static void fill(float *x, size_t n, float scale)
{
    float *from = random_floats(n, scale);
    memcpy(x, from, n * sizeof(*x));
    free(from);
}

static void rows_make(const form *f, rows *r)
{
    *r = (rows){ .f = f };
    int32_t last = -1;
    for (; f->lengths[r->count]; r->count++) {
        size_t n = (size_t)f->lengths[r->count];
        int child = f->kind[r->count] == 'c';
        r->parent_of[r->count] = child ? last : -1;
        last = child ? last : (int32_t)r->count;
        r->tokens += n;
        r->start[r->count + 1] = (int32_t)r->tokens;
        n += child ? (size_t)f->lengths[last] : 0;
        r->longest = n > r->longest ? n : r->longest;
    }
    r->parent = r->parent_of;
    rows_room(r);
    fill(r->qkv, r->tokens * stride_of(f), 2);
    fill(r->d_o, r->tokens * q_width(f), 1);
}

/* Tokens of the parent of a row. */
static size_t before(const rows *r, size_t row)
{
    int32_t p = r->parent_of[row];
    return p < 0 ? 0 : (size_t)r->f->lengths[p];
}

/* Each child with its parent's tokens before it; d_o is 0 there. */
static void rows_join(const rows *from, rows *r)
{
    *r = (rows){ .f = from->f, .count = from->count };
    r->longest = from->longest;
    for (size_t row = 0; row < r->count; row++) {
        r->tokens += before(from, row) + (size_t)r->f->lengths[row];
        r->start[row + 1] = (int32_t)r->tokens;
    }
    rows_room(r);
    size_t stride = stride_of(r->f);
    size_t width = q_width(r->f);
    for (size_t row = 0; row < r->count; row++) {
        size_t shared = before(from, row);
        size_t at = (size_t)r->start[row];
        size_t n = (size_t)r->f->lengths[row];
        if (shared)
            memcpy(r->qkv + at * stride,
                   from->qkv +
                       (size_t)from->start[from->parent_of[row]] * stride,
                   shared * stride * sizeof(float));
        memcpy(r->qkv + (at + shared) * stride,
               from->qkv + (size_t)from->start[row] * stride,
               n * stride * sizeof(float));
        memcpy(r->d_o + (at + shared) * width,
               from->d_o + (size_t)from->start[row] * width,
               n * width * sizeof(float));
    }
}

static void run(const dev *d, const rows *r, int backward)
{
    size_t q = q_width(r->f);
    size_t kv = kv_width(r->f);
    size_t stride = stride_of(r->f);
    xray_attention f = { .head = XRAY_HEAD(xray_attention),
                         .tokens = { r->tokens, NULL },
                         .row_start = r->start,
                         .rows = r->count,
                         .row_bound = r->longest,
                         .q = r->qkv,
                         .k = r->qkv + q,
                         .v = r->qkv + q + kv,
                         .o = r->o,
                         .lse = r->lse,
                         .q_stride = stride,
                         .k_stride = stride,
                         .v_stride = stride,
                         .o_stride = q,
                         .heads = r->f->heads,
                         .kv_heads = r->f->kv_heads,
                         .head_dim = r->f->dim,
                         .window = r->f->window,
                         .scale = 1.0f / sqrtf((float)r->f->dim),
                         .softcap = r->f->softcap,
                         .parent = r->parent };
    xray_attention_grad op = { .head = XRAY_HEAD(xray_attention_grad),
                               .forward = &f,
                               .d_o = r->d_o,
                               .dq = r->grad,
                               .dk = r->grad + q,
                               .dv = r->grad + q + kv,
                               .dq_stride = stride,
                               .dk_stride = stride,
                               .dv_stride = stride };
    must(d->ops->attention(d->self, NULL, &f));
    if (backward)
        must(d->ops->attention_grad(d->self, NULL, &op));
}

static int knows_parents(const dev *d)
{
    xray_device_info info = { .head = XRAY_HEAD(xray_device_info) };
    must(d->ops->info(d->self, &info));
    assert_true(d->on_cuda || info.features & XRAY_DEVICE_PARENTS);
    return (info.features & XRAY_DEVICE_PARENTS) != 0;
}

static void outputs_are_the_joined_rows(void **state)
{
    (void)state;
    bench b;
    bench_open(&b);
    for (size_t i = 0; i < FORMS; i++) {
        rows r;
        rows joined;
        rows_make(&forms[i], &r);
        rows_join(&r, &joined);
        run(&b.dev[0], &joined, 0);
        for (int d = 0; d < b.count; d++) {
            if (!knows_parents(&b.dev[d]))
                continue;
            run(&b.dev[d], &r, 0);
            for (size_t row = 0; row < r.count; row++) {
                size_t n = (size_t)r.f->lengths[row];
                size_t at = (size_t)r.start[row];
                size_t in = (size_t)joined.start[row] + before(&r, row);
                size_t width = q_width(r.f);
                same_bits(r.o + at * width, joined.o + in * width, n * width,
                          "o", b.dev[d].name);
                same_bits(r.lse + at * r.f->heads, joined.lse + in * r.f->heads,
                          n * r.f->heads, "lse", b.dev[d].name);
            }
        }
        rows_free(&r);
        rows_free(&joined);
    }
    bench_close(&b);
}

/* What the joined rows give a token's q, k and v, added up. */
static double *summed(const rows *r, const rows *joined)
{
    size_t stride = stride_of(r->f);
    double *sum = calloc(r->tokens * stride, sizeof(*sum));
    assert_non_null(sum);
    for (size_t row = 0; row < r->count; row++) {
        size_t shared = before(r, row);
        for (size_t t = 0; t < shared + (size_t)r->f->lengths[row]; t++) {
            size_t own = t < shared ? (size_t)r->start[r->parent_of[row]] + t
                                    : (size_t)r->start[row] + t - shared;
            size_t in = (size_t)joined->start[row] + t;
            for (size_t e = 0; e < stride; e++)
                sum[own * stride + e] += (double)joined->grad[in * stride + e];
        }
    }
    return sum;
}

static int has_children(const rows *r, size_t row)
{
    return row + 1 < r->count && r->parent_of[row + 1] == (int32_t)row;
}

/* Rows without children have the bits of the joined rows. */
static void check_grads(const rows *r, const rows *joined, const char *who)
{
    size_t stride = stride_of(r->f);
    double *want = summed(r, joined);
    for (size_t e = 0; e < r->tokens * stride; e++)
        near(r->grad[e], want[e], 2e-5, who);
    free(want);
    for (size_t row = 0; row < r->count; row++)
        if (!has_children(r, row))
            same_bits(r->grad + (size_t)r->start[row] * stride,
                      joined->grad +
                          ((size_t)joined->start[row] + before(r, row)) *
                              stride,
                      (size_t)r->f->lengths[row] * stride, "grad", who);
}

static void gradients_add_up(void **state)
{
    (void)state;
    bench b;
    bench_open(&b);
    for (size_t i = 0; i < FORMS; i++) {
        rows r;
        rows joined;
        rows_make(&forms[i], &r);
        rows_join(&r, &joined);
        run(&b.dev[0], &joined, 1);
        run(&b.dev[0], &r, 1);
        check_grads(&r, &joined, b.dev[0].name);
        size_t n = r.tokens * stride_of(r.f);
        float *first = floats(n);
        memcpy(first, r.grad, n * sizeof(*first));
        for (int d = 1; d < b.count; d++) {
            if (!knows_parents(&b.dev[d]))
                continue;
            fill(r.grad, n, 1);
            run(&b.dev[d], &r, 1);
            same_bits(r.grad, first, n, "grad", b.dev[d].name);
        }
        /* The last family by itself. */
        size_t row = r.count - 1;
        while (r.parent_of[row] >= 0)
            row--;
        size_t skip = (size_t)r.start[row];
        rows one = r;
        one.count = r.count - row;
        one.tokens = r.tokens - skip;
        one.qkv += skip * stride_of(r.f);
        one.grad += skip * stride_of(r.f);
        one.o += skip * q_width(r.f);
        one.d_o += skip * q_width(r.f);
        one.lse += skip * r.f->heads;
        for (size_t k = 0; k <= one.count; k++)
            one.start[k] = r.start[row + k] - (int32_t)skip;
        for (size_t k = 0; k < one.count; k++)
            one.parent_of[k] = k ? 0 : -1;
        one.parent = one.parent_of;
        run(&b.dev[1], &one, 1);
        same_bits(one.grad, first + skip * stride_of(r.f),
                  one.tokens * stride_of(r.f), "a family alone", "grad");
        free(first);
        rows_free(&r);
        rows_free(&joined);
    }
    bench_close(&b);
}

static void strange_parents_are_refused(void **state)
{
    (void)state;
    bench b;
    bench_open_cpu(&b);
    static const int32_t strange[] = { 2, 1, 3, -2, 7 };
    for (size_t i = 0; i < sizeof(strange) / sizeof(*strange); i++) {
        rows r;
        rows_make(&forms[0], &r);
        r.parent_of[2] = strange[i];
        xray_attention op = { .head = XRAY_HEAD(xray_attention),
                              .tokens = { r.tokens, NULL },
                              .row_start = r.start,
                              .rows = r.count,
                              .row_bound = r.longest,
                              .q = r.qkv,
                              .k = r.qkv,
                              .v = r.qkv,
                              .o = r.o,
                              .q_stride = 24,
                              .k_stride = 24,
                              .v_stride = 24,
                              .o_stride = 8,
                              .heads = 1,
                              .kv_heads = 1,
                              .head_dim = 8,
                              .scale = 1,
                              .parent = r.parent_of };
        assert_int_equal(b.dev[0].ops->attention(b.dev[0].self, NULL, &op),
                         XRAY_E_ARG);
        assert_non_null(strstr(last_failure, "row 2 goes on from row"));
        r.parent_of[2] = 0;
        op.row_bound = 2;
        assert_int_equal(b.dev[0].ops->attention(b.dev[0].self, NULL, &op),
                         XRAY_E_RANGE);
        rows_free(&r);
    }
    bench_close(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(outputs_are_the_joined_rows),
        cmocka_unit_test(gradients_add_up),
        cmocka_unit_test(strange_parents_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
