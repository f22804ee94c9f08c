/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests that attention over bf16 has the bits of attention over the widened
 * values in fp32, whose o is rounded once: forward and backward, with parents,
 * with some of the queries, and over caches of both types.
 */
#include "tests/device/attention_family.h"
#include "tests/device/attention_reference.h"

static const form forms[] = {
    { 1, 1, 8, 0, 0.0f, { 1, 2, 5 }, 0.0f },
    { 4, 2, 24, 0, 0.0f, { 14, 33, 16 }, 0.0f },
    { 3, 3, 15, 0, 2.0f, { 17, 63 }, 0.0f },
    { 2, 1, 64, 0, 0.0f, { 131, 64 }, 0.0f },
    { 4, 2, 16, 5, 0.0f, { 1, 40, 90 }, 0.0f },
    { 6, 2, 24, 7, 0.0f, { 70, 7, 8 }, 0.0f },
    { 4, 1, 80, 1, 0.0f, { 30, 1 }, 0.0f },
    { 2, 1, 256, 33, 50.0f, { 60, 33 }, 0.0625f },
    /* Heads that decoding computes side by side. */
    { 9, 9, 16, 0, 0.0f, { 40, 17 }, 0.0f },
    { 10, 5, 32, 21, 0.0f, { 50 }, 0.0f },
    { 14, 2, 48, 0, 0.0f, { 35, 3 }, 0.0f },
    { 12, 1, 112, 0, 0.0f, { 33 }, 0.0f },
    /* More keys than tensor cores attend to at once, or than a block that
     * decoding reads at a time. */
    { 2, 1, 16, 258, 0.0f, { 280 }, 0.0f },
};
#define FORMS (sizeof(forms) / sizeof(*forms))

enum { GUARD = 0x7F5A }; /* in elements that no call may write */

/* The devices whose attention over bf16 has the bits of the first one's over
 * fp32. */
static int open_kinds(bench kinds[2])
{
    open_devices(&kinds[0]);
#ifdef BENCH_CUDA
    kinds[1] = (bench){ .count = 1 };
    kinds[1].dev[0] = open_cuda(CUDA_BFLOAT16, "cuda, bfloat16");
    return 2;
#else
    return 1;
#endif
}

static void close_kinds(bench kinds[2], int count)
{
    for (int i = 0; i < count; i++)
        close_devices(&kinds[i]);
}

/* The q, k and v of rows as bf16, token t from element `off` + t * stride on:
 * with 1 most of them are not aligned. Those of `r` have the same values. */
typedef struct half_rows {
    rows *r;
    uint16_t *qkv;
    uint16_t *o; /* what is wanted, as qkv with o_stride */
    size_t stride, o_stride, off;
} half_rows;

static uint16_t *alloc_halves(size_t tokens, size_t stride)
{
    uint16_t *p = malloc((1 + tokens * stride) * sizeof(*p));
    assert_non_null(p);
    for (size_t i = 0; i < 1 + tokens * stride; i++)
        p[i] = GUARD;
    return p;
}

static half_rows round_rows(rows *r, size_t off)
{
    half_rows h = { .r = r,
                    .stride = r->stride + off,
                    .o_stride = r->q_width + 3 * off,
                    .off = off };
    h.qkv = alloc_halves(r->tokens, h.stride);
    for (size_t t = 0; t < r->tokens; t++)
        for (size_t i = 0; i < r->stride; i++) {
            float *x = r->qkv + t * r->stride + i;
            uint16_t *to = h.qkv + off + t * h.stride + i;
            *to = cpu_to_bf16(*x);
            *x = cpu_from_bf16(*to);
        }
    return h;
}

/* Rounds the o of fp32, in place as well, so that a gradient reads what a
 * trainer has. */
static void round_outputs(half_rows *h, size_t queries)
{
    size_t width = h->r->q_width;
    free(h->o);
    h->o = alloc_halves(queries, h->o_stride);
    for (size_t t = 0; t < queries; t++)
        for (size_t i = 0; i < width; i++) {
            float *x = h->r->o + t * width + i;
            uint16_t *to = h->o + h->off + t * h->o_stride + i;
            *to = cpu_to_bf16(*x);
            *x = cpu_from_bf16(*to);
        }
}

static void free_halves(half_rows *h)
{
    free(h->qkv);
    free(h->o);
}

static void assert_same_halves(const half_rows *h, const uint16_t *got,
                               size_t queries, const char *where)
{
    for (size_t i = 0; i < 1 + queries * h->o_stride; i++)
        if (got[i] != h->o[i])
            fail_msg("%s: o has 0x%04x at %zu, not 0x%04x", where, got[i], i,
                     h->o[i]);
}

/* The call on fp32 as one on bf16. */
static xray_attention narrow_call(const half_rows *h,
                                  const xray_attention *wide, uint16_t *o,
                                  float *lse)
{
    xray_attention op = *wide;
    op.dtype = XRAY_BF16;
    const uint16_t *first = h->qkv + h->off;
    op.q = first;
    op.k = first + h->r->q_width;
    op.v = first + h->r->q_width + h->r->kv_width;
    op.o = o + h->off;
    op.lse = lse;
    op.q_stride = op.k_stride = op.v_stride = h->stride;
    op.o_stride = h->o_stride;
    return op;
}

/* Computes the calls on fp32 on the first device, then those on bf16 on all.
 * The rows have `queries` queries. */
static void check_call(const bench *b, half_rows *h, const xray_attention *wide,
                       size_t queries, const float *d_o)
{
    const rows *r = h->r;
    const size_t lses = queries * r->f.heads;
    const dev *first = &b->dev[0];
    const size_t grads = r->tokens * r->stride;
    float *grad = alloc_floats(grads);
    must(first->ops->attention(first->self, NULL, wide));
    round_outputs(h, queries);
    xray_attention_grad g = make_attention_grad(r, wide, d_o, grad);
    must(first->ops->attention_grad(first->self, NULL, &g));
    for (int i = 0; i < b->count; i++) {
        const dev *d = &b->dev[i];
        uint16_t *o = alloc_halves(queries, h->o_stride);
        float *lse = alloc_floats(lses);
        float *got = alloc_floats(grads);
        /* Strides of d_o are those of o. */
        float *wide_d_o = alloc_floats(queries * h->o_stride);
        for (size_t t = 0; t < queries; t++)
            memcpy(wide_d_o + t * h->o_stride, d_o + t * r->q_width,
                   r->q_width * sizeof(*d_o));
        xray_attention op = narrow_call(h, wide, o, lse);
        must(d->ops->attention(d->self, NULL, &op));
        assert_same_halves(h, o, queries, d->name);
        assert_same_bits(lse, r->lse, lses, "lse", d->name);
        xray_attention_grad narrow = make_attention_grad(r, &op, wide_d_o, got);
        must(d->ops->attention_grad(d->self, NULL, &narrow));
        assert_same_bits(got, grad, grads, "attention_grad", d->name);
        free(o);
        free(lse);
        free(got);
        free(wide_d_o);
    }
    free(grad);
}

static void check_rounded(const rows *r)
{
    double p[REF_KEYS];
    double slope[REF_KEYS];
    for (size_t row = 0; row < r->count; row++)
        for (size_t i = 0; i < (size_t)r->f.lengths[row]; i++)
            for (size_t h = 0; h < r->f.heads; h++) {
                query q = { r, row, i, h };
                size_t t = (size_t)r->start[row] + i;
                (void)ref_probs(&q, p, slope);
                for (size_t d = 0; d < r->f.dim; d++) {
                    double sum = 0;
                    for (size_t j = first_visible_key(&q); j <= i; j++)
                        sum += p[j] * (double)key_vector(&q, j, 2)[d];
                    double got =
                        (double)r->o[t * r->q_width + h * r->f.dim + d];
                    if (!(fabs(got - sum) <=
                          0x1p-8 * fabs(sum) + 3e-6 * (1 + fabs(sum))))
                        fail_msg("o is %.9g, float64 gives %.9g", got, sum);
                }
            }
}

static void bf16_rows_have_the_bits_of_rounded_fp32(void **state)
{
    (void)state;
    bench kinds[2];
    const int count = open_kinds(kinds);
    for (size_t i = TEST_STEP - 1; i < FORMS; i += TEST_STEP) {
        rows r = make_rows(forms[i]);
        half_rows h = round_rows(&r, i % 2);
        float *d_o = random_floats(r.tokens * r.q_width, 1);
        xray_attention wide = make_attention(&r, r.o, r.lse);
        for (int k = count - 1; k >= 0; k--)
            check_call(&kinds[k], &h, &wide, r.tokens, d_o);
        check_rounded(&r);
        free(d_o);
        free_halves(&h);
        free_rows(&r);
    }
    close_kinds(kinds, count);
}

static void bf16_rows_with_parents_have_the_same_bits(void **state)
{
    (void)state;
    static const form families[] = {
        { 4, 2, 24, 0, 0.0f, { 37, -5, -18, 20, 3, -1 }, 0.0f },
        { 2, 1, 16, 9, 1.5f, { 16, -16, -40, 5 }, 0.0f },
        { 3, 1, 15, 0, 0.0f, { 50, -33 }, 0.0f },
    };
    bench kinds[2];
    const int count = open_kinds(kinds);
    for (size_t i = 0; i < sizeof(families) / sizeof(*families); i++) {
        family f = make_family(families[i]);
        half_rows h = round_rows(&f.r, i % 2);
        xray_attention wide = make_attention(&f.r, f.r.o, f.r.lse);
        wide.parent = f.parent;
        for (int k = 0; k < count; k++)
            check_call(&kinds[k], &h, &wide, f.r.tokens, f.d_o);
        free_halves(&h);
        free_family(&f);
    }
    close_kinds(kinds, count);
}

/* Every row has the last third of its queries, at the start of q, o and lse. */
static void some_queries_of_bf16_rows_have_the_same_bits(void **state)
{
    (void)state;
    bench kinds[2];
    const int count = open_kinds(kinds);
    for (size_t i = 1; i < FORMS; i += 3) {
        rows r = make_rows(forms[i]);
        half_rows h = round_rows(&r, i % 2);
        int32_t start[MOST_ROWS + 1] = { 0 };
        int32_t first[MOST_ROWS];
        for (size_t row = 0; row < r.count; row++) {
            first[row] = r.f.lengths[row] * 2 / 3;
            start[row + 1] = start[row] + r.f.lengths[row] - first[row];
        }
        size_t queries = (size_t)start[r.count];
        float *d_o = random_floats(queries * r.q_width, 1);
        xray_attention wide = make_attention(&r, r.o, r.lse);
        wide.queries.bound = queries;
        wide.query_start = start;
        wide.query_first = first;
        for (int k = 0; k < count; k++)
            check_call(&kinds[k], &h, &wide, queries, d_o);
        free(d_o);
        free_halves(&h);
        free_rows(&r);
    }
    close_kinds(kinds, count);
}

/* ---- caches ------------------------------------------------------------- */

/* A part of the rows, as an engine's call has it. */
typedef struct call {
    int32_t seq[512], positions[512];
    size_t token[512];
    size_t n;
} call;

static void cut_call(const rows *r, size_t base, size_t chunk, call *c)
{
    c->n = 0;
    for (size_t row = 0; row < r->count; row++)
        for (size_t p = base; p < base + chunk && p < (size_t)r->f.lengths[row];
             p++) {
            c->seq[c->n] = (int32_t)row;
            c->positions[c->n] = (int32_t)p;
            c->token[c->n++] = (size_t)r->start[row] + p;
        }
}

/* Attends over a cache in calls of `chunk` positions of each row. The blocks
 * are copied as bytes, to other numbers, after the first call. */
static void run_half_cached(const dev *d, const half_rows *h, uint32_t dtype,
                            uint32_t block_tokens, size_t chunk, uint16_t *o)
{
    const rows *r = h->r;
    int32_t table[2][64];
    static call c;
    xray_kv kv = { .header = XRAY_HEADER(xray_kv),
                   .block_tokens = block_tokens,
                   .kv_heads = r->f.kv_heads,
                   .head_dim = r->f.dim,
                   .dtype = dtype };
    kv.table_stride = (r->longest + block_tokens - 1) / block_tokens;
    size_t blocks = kv.table_stride * r->count;
    size_t bytes = d->ops->kv_block_bytes(d->self, &kv);
    if (!d->on_cuda)
        assert_int_equal(bytes, (size_t)block_tokens * r->kv_width * 2 *
                                    (dtype == XRAY_BF16 ? 2 : 4));
    assert_true(blocks <= 64);
    for (size_t i = 0; i < blocks; i++) {
        table[0][i] = (int32_t)i;
        table[1][i] = (int32_t)(blocks - 1 - i);
    }
    char *first = (char *)alloc_floats(bytes * blocks / sizeof(float));
    char *second = (char *)alloc_floats(bytes * blocks / sizeof(float));
    memset(first, 0xFF, bytes * blocks);
    for (size_t base = 0; base < r->longest; base += chunk) {
        cut_call(r, base, chunk, &c);
        uint16_t *in = alloc_halves(c.n, h->stride);
        uint16_t *out = alloc_halves(c.n, h->o_stride);
        for (size_t t = 0; t < c.n; t++)
            memcpy(in + h->off + t * h->stride,
                   h->qkv + h->off + c.token[t] * h->stride,
                   r->stride * sizeof(*in));
        kv.blocks = base ? second : first;
        kv.table = table[base ? 1 : 0];
        xray_attention_kv op = make_attention_kv(r, &kv, NULL, NULL);
        op.tokens.bound = c.n;
        op.seq = c.seq;
        op.positions = c.positions;
        op.dtype = XRAY_BF16;
        op.q = in + h->off;
        op.k = in + h->off + r->q_width;
        op.v = in + h->off + r->q_width + r->kv_width;
        op.o = out + h->off;
        op.q_stride = op.k_stride = op.v_stride = h->stride;
        op.o_stride = h->o_stride;
        must(d->ops->attention_kv(d->self, NULL, &op));
        for (size_t t = 0; t < c.n; t++)
            memcpy(o + h->off + c.token[t] * h->o_stride,
                   out + h->off + t * h->o_stride, h->o_stride * sizeof(*out));
        for (size_t i = 0; base == 0 && i < blocks; i++)
            memcpy(second + (size_t)table[1][i] * bytes, first + i * bytes,
                   bytes);
        free(in);
        free(out);
    }
    free(first);
    free(second);
}

/* Compares runs over caches of both types, in calls of several lengths, with
 * complete rows. The emulated device makes fewer. */
static void check_caches(const bench *b, half_rows *h)
{
    static const size_t chunks[] = { 1, 3, 29, 512 };
    const rows *r = h->r;
    xray_attention wide = make_attention(r, r->o, r->lse);
    must(b->dev[0].ops->attention(b->dev[0].self, NULL, &wide));
    round_outputs(h, r->tokens);
    for (int i = 0; i < b->count; i++) {
        const dev *d = &b->dev[i];
        for (size_t c = d->on_cuda ? 1 : 0; c < 8; c += d->on_cuda ? 5 : 1) {
            uint16_t *o = alloc_halves(r->tokens, h->o_stride);
            run_half_cached(d, h, c < 4 ? XRAY_BF16 : XRAY_F32, c % 2 ? 16 : 48,
                            chunks[c % 4], o);
            assert_same_halves(h, o, r->tokens, d->name);
            free(o);
        }
    }
}

static void caches_of_both_types_give_the_trainers_bits(void **state)
{
    (void)state;
    bench kinds[2];
    const int count = open_kinds(kinds);
    for (size_t i = 0; i < FORMS; i += TEST_STEP) {
        rows r = make_rows(forms[i]);
        half_rows h = round_rows(&r, i % 2);
        for (int k = 0; k < count; k++)
            check_caches(&kinds[k], &h);
        free_halves(&h);
        free_rows(&r);
    }
    close_kinds(kinds, count);
}

static void other_types_are_refused(void **state)
{
    (void)state;
    const char *says = "q has element type 3, but must be F32 or BF16";
    bench b;
    open_cpu_devices(&b);
    const dev *d = &b.dev[0];
    rows r = make_rows(forms[1]);
    float *grad = alloc_floats(r.tokens * r.stride);
    xray_attention op = make_attention(&r, r.o, r.lse);
    op.dtype = XRAY_F16;
    assert_int_equal(d->ops->attention(d->self, NULL, &op), XRAY_E_UNSUPPORTED);
    assert_non_null(strstr(last_failure, says));
    last_failure[0] = '\0';
    xray_attention_grad g = make_attention_grad(&r, &op, r.o, grad);
    assert_int_equal(d->ops->attention_grad(d->self, NULL, &g),
                     XRAY_E_UNSUPPORTED);
    assert_non_null(strstr(last_failure, says));
    free(grad);
    free_rows(&r);
    close_devices(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bf16_rows_have_the_bits_of_rounded_fp32),
        cmocka_unit_test(bf16_rows_with_parents_have_the_same_bits),
        cmocka_unit_test(some_queries_of_bf16_rows_have_the_same_bits),
        cmocka_unit_test(caches_of_both_types_give_the_trainers_bits),
        cmocka_unit_test(other_types_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
