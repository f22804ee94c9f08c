/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests that attention forward and backward match float64, and that the
 * engine's attention gives the bits of the trainer's.
 */
#include "tests/device/attention_reference.h"

static const form forms[] = {
    { 1, 1, 8, 0, 0.0f, { 1, 2, 5 }, 0.0f },
    { 4, 4, 8, 0, 0.0f, { 14, 3, 16, 17 }, 0.0f },
    { 4, 2, 24, 0, 0.0f, { 14, 33 }, 0.0f },
    { 7, 1, 32, 0, 0.0f, { 40, 9 }, 0.0f },
    { 2, 1, 64, 0, 0.0f, { 131, 64 }, 0.0f },
    { 2, 2, 128, 0, 0.0f, { 20 }, 0.0f },
    { 4, 2, 16, 5, 0.0f, { 1, 40, 90 }, 0.0f },
    { 3, 3, 20, 0, 2.0f, { 30, 70 }, 0.0f },
    { 2, 1, 16, 18, 1.5f, { 150, 3 }, 0.0f },
    /* Windows shorter than a tile of queries, of a single key, and as long as
     * the rows. */
    { 6, 2, 24, 7, 0.0f, { 90, 7, 8 }, 0.0f },
    { 4, 1, 80, 1, 0.0f, { 30, 1 }, 0.0f },
    { 4, 2, 80, 8, 0.0f, { 70, 8, 9 }, 0.0f },
    { 2, 2, 96, 20, 0.0f, { 45, 20, 19, 21 }, 0.0f },
    { 8, 2, 20, 1000, 0.0f, { 64, 33 }, 0.0f },
    { 3, 1, 32, 64, 0.0f, { 63, 64, 65, 140 }, 0.0f },
    /* Heads of 256 dimensions, softcaps, and scales other than 1 /
     * sqrt(dim). */
    { 4, 1, 256, 33, 0.0f, { 100, 33, 12 }, 0.0f },
    { 2, 1, 256, 0, 50.0f, { 37, 5 }, 0.0625f },
    { 8, 4, 128, 24, 50.0f, { 60, 24, 25, 7 }, 1.0f / 12.0f },
    { 4, 2, 96, 40, 0.7f, { 130, 41 }, 0.2f },
    { 2, 2, 12, 0, 30.0f, { 50 }, 1.0f },
    /* Heads computed side by side: more and fewer than a kernel does at once,
     * odd groups, and numbers of columns that are not powers of two. */
    { 9, 9, 16, 0, 0.0f, { 40, 17, 1 }, 0.0f },
    { 10, 5, 16, 21, 0.0f, { 60, 33 }, 0.0f },
    { 14, 2, 48, 0, 0.0f, { 50, 3 }, 0.0f },
    { 15, 3, 32, 17, 4.0f, { 35 }, 0.0f },
    { 12, 1, 112, 0, 0.0f, { 33 }, 0.0f },
    /* Several kv heads whose keys are read in more than one part. */
    { 10, 5, 64, 0, 0.0f, { 66 }, 0.0f },
    { 9, 9, 16, 0, 0.0f, { 129 }, 0.0f },
};
#define FORMS (sizeof(forms) / sizeof(*forms))

/* ---- float64 ------------------------------------------------------------ */

static void ref_forward(const rows *r, const float *o, const float *lse)
{
    for (size_t row = 0; row < r->count; row++)
        for (size_t i = 0; i < (size_t)r->f.lengths[row]; i++)
            for (size_t h = 0; h < r->f.heads; h++) {
                size_t t = (size_t)r->start[row] + i;
                check_ref_query(&(query){ r, row, i, h },
                                o + t * r->q_width + h * r->f.dim,
                                lse[t * r->f.heads + h]);
            }
}

/* The sum of d_o o over all queries, whose derivatives are the gradients. */
REFERENCE static double ref_loss(const rows *r, const float *d_o)
{
    double p[REF_KEYS];
    double slope[REF_KEYS];
    double sum = 0;
    for (size_t row = 0; row < r->count; row++)
        for (size_t i = 0; i < (size_t)r->f.lengths[row]; i++)
            for (size_t h = 0; h < r->f.heads; h++) {
                query q = { r, row, i, h };
                const float *g = d_o +
                                 ((size_t)r->start[row] + i) * r->q_width +
                                 h * r->f.dim;
                (void)ref_probs(&q, p, slope);
                for (size_t j = first_visible_key(&q); j <= i; j++)
                    for (size_t d = 0; d < r->f.dim; d++)
                        sum += p[j] * (double)key_vector(&q, j, 2)[d] *
                               (double)g[d];
            }
    return sum;
}

/* Compares the gradient of the reference with differences of the reference, at
 * some entries. */
static void check_slopes(const rows *r, const float *d_o, const double *grad)
{
    for (size_t n = 0; n < 12; n++) {
        size_t e = random_below(r->tokens * r->stride);
        float kept = r->qkv[e];
        float up = kept + 0x1p-9f;
        float down = kept - 0x1p-9f;
        r->qkv[e] = up;
        double slope = ref_loss(r, d_o);
        r->qkv[e] = down;
        slope = (slope - ref_loss(r, d_o)) / ((double)up - (double)down);
        r->qkv[e] = kept;
        assert_near((float)grad[e], slope, 2e-4, "float64 gradient");
    }
}

/* ---- tests -------------------------------------------------------------- */

static void forward_matches_float64(void **state)
{
    (void)state;
    bench b;
    open_devices(&b);
    for (size_t i = 0; i < FORMS; i += TEST_STEP) {
        rows r = make_rows(forms[i]);
        for (int d = 0; d < b.count; d++) {
            float *o = alloc_floats(r.tokens * r.q_width);
            float *lse = alloc_floats(r.tokens * r.f.heads);
            xray_attention op = make_attention(&r, o, lse);
            must(b.dev[d].ops->attention(b.dev[d].self, NULL, &op));
            if (d == 0) {
                memcpy(r.o, o, r.tokens * r.q_width * sizeof(*o));
                memcpy(r.lse, lse, r.tokens * r.f.heads * sizeof(*o));
                ref_forward(&r, o, lse);
            }
            assert_same_bits(o, r.o, r.tokens * r.q_width, "o", b.dev[d].name);
            assert_same_bits(lse, r.lse, r.tokens * r.f.heads, "lse",
                             b.dev[d].name);
            free(o);
            free(lse);
        }
        free_rows(&r);
    }
    close_devices(&b);
}

static void run_backward(const dev *d, const rows *r, const float *d_o,
                         float *grad)
{
    xray_attention f = make_attention(r, r->o, r->lse);
    xray_attention_grad op = make_attention_grad(r, &f, d_o, grad);
    must(d->ops->attention_grad(d->self, NULL, &op));
}

static void backward_matches_float64(void **state)
{
    (void)state;
    bench b;
    open_devices(&b);
    for (size_t i = 1 % TEST_STEP; i < FORMS; i += TEST_STEP) {
        rows r = make_rows(forms[i]);
        size_t n = r.tokens * r.stride;
        float *d_o = random_floats(r.tokens * r.q_width, 1);
        xray_attention op = make_attention(&r, r.o, r.lse);
        must(b.dev[0].ops->attention(b.dev[0].self, NULL, &op));
        float *first = random_floats(n, 1);
        run_backward(&b.dev[0], &r, d_o, first);
        double *want = calloc(n, sizeof(*want));
        assert_non_null(want);
        for (size_t row = 0; row < r.count; row++)
            for (size_t t = 0; t < (size_t)r.f.lengths[row]; t++)
                for (size_t h = 0; h < r.f.heads; h++)
                    add_ref_query_grad(&(query){ &r, row, t, h }, d_o, want);
        for (size_t e = 0; e < n; e++)
            assert_near(first[e], want[e], 2e-5, "attention_grad");
        if (r.tokens * r.stride < 20000)
            check_slopes(&r, d_o, want);
        free(want);
        for (int d = 1; d < b.count; d++) {
            float *got = random_floats(n, 1);
            run_backward(&b.dev[d], &r, d_o, got);
            assert_same_bits(got, first, n, "attention_grad", b.dev[d].name);
            free(got);
        }
        /* A row alone gives the bits that it gives among others. */
        rows one = r;
        one.count = 1;
        one.start[0] = 0;
        one.start[1] = r.start[1];
        one.tokens = (size_t)r.start[1];
        float *alone = alloc_floats(one.tokens * r.stride);
        run_backward(&b.dev[b.count - 1], &one, d_o, alone);
        assert_same_bits(alone, first, one.tokens * r.stride, "one row",
                         "grad");
        free(alone);
        free(first);
        free(d_o);
        free_rows(&r);
    }
    close_devices(&b);
}

static void the_engine_gives_the_trainers_bits(void **state)
{
    (void)state;
    bench b;
    open_devices(&b);
    static const size_t chunks[] = { 1, 3, 16, 29, 512 };
    for (size_t i = 2 % TEST_STEP; i < FORMS; i += TEST_STEP) {
        rows r = make_rows(forms[i]);
        xray_attention op = make_attention(&r, r.o, r.lse);
        must(b.dev[0].ops->attention(b.dev[0].self, NULL, &op));
        for (int d = 0; d < b.count; d++)
            for (size_t c = 0; c < 5; c++) {
                const dev *v = &b.dev[d];
                cache kv = make_cache(v, &r, c % 2 ? 16 : 48, c != 2);
                float *o = alloc_floats(r.tokens * r.q_width);
                run_cached(v, &r, &kv, chunks[c], o);
                assert_same_bits(o, r.o, r.tokens * r.q_width, "attention_kv",
                                 v->name);
                free(o);
                v->ops->free(v->self, kv.kv.blocks);
            }
        free_rows(&r);
    }
    close_devices(&b);
}

/* The token that is number i of a call: with turn 0 every second token comes
 * first, with 1 the last one. */
static size_t find_token(size_t n, size_t i, int turn)
{
    size_t even = (n + 1) / 2;
    if (turn)
        return n - 1 - i;
    return i < even ? 2 * i : 2 * (i - even) + 1;
}

/* All keys of a call are stored before a query reads, so the order of its
 * tokens changes no bit. */
static void tokens_of_a_call_have_any_order(void **state)
{
    (void)state;
    bench b;
    open_devices(&b);
    for (size_t i = 0; i < FORMS; i += TEST_STEP) {
        rows r = make_rows(forms[i]);
        size_t n = r.tokens;
        int32_t seq[512], positions[512];
        float *in = alloc_floats(n * r.stride);
        float *o = alloc_floats(n * r.q_width);
        assert_true(n <= 512);
        xray_attention op = make_attention(&r, r.o, r.lse);
        must(b.dev[0].ops->attention(b.dev[0].self, NULL, &op));
        for (int k = 0; k < b.count; k++) {
            const dev *d = &b.dev[k];
            cache kv = make_cache(d, &r, 16, k % 2);
            for (size_t t = 0; t < n; t++) {
                size_t from = find_token(n, t, k % 2);
                size_t row = 0;
                while ((size_t)r.start[row + 1] <= from)
                    row++;
                seq[t] = (int32_t)row;
                positions[t] = (int32_t)from - r.start[row];
                memcpy(in + t * r.stride, r.qkv + from * r.stride,
                       r.stride * sizeof(*in));
            }
            kv.kv.table = kv.kv.table ? kv.table : NULL;
            xray_attention_kv call = make_attention_kv(&r, &kv.kv, in, o);
            call.tokens.bound = n;
            call.seq = seq;
            call.positions = positions;
            must(d->ops->attention_kv(d->self, NULL, &call));
            for (size_t t = 0; t < n; t++)
                assert_same_bits(o + t * r.q_width,
                                 r.o + find_token(n, t, k % 2) * r.q_width,
                                 r.q_width, "attention_kv", d->name);
            d->ops->free(d->self, kv.kv.blocks);
        }
        free(in);
        free(o);
        free_rows(&r);
    }
    close_devices(&b);
}

/* Copies `width` columns of rows into rows that lie `pitch` apart, or back. */
static void move_columns(float *to, size_t to_pitch, const float *from,
                         size_t from_pitch, size_t rows_moved, size_t width)
{
    for (size_t t = 0; t < rows_moved; t++)
        memcpy(to + t * to_pitch, from + t * from_pitch, width * sizeof(*to));
}

/* All tokens in one call over a cache; r->o has what comes out. */
static void attend_apart(const dev *d, const rows *r, float *const part[3],
                         const size_t pitch[3])
{
    int32_t seq[512], positions[512];
    float *o = alloc_floats(r->tokens * r->q_width);
    cache kv = make_cache(d, r, 16, 1);
    kv.kv.table = kv.table;
    xray_attention_kv op = make_attention_kv(r, &kv.kv, NULL, o);
    assert_true(r->tokens <= 512);
    for (size_t row = 0; row < r->count; row++)
        for (int32_t t = r->start[row]; t < r->start[row + 1]; t++) {
            seq[t] = (int32_t)row;
            positions[t] = t - r->start[row];
        }
    op.tokens.bound = r->tokens;
    op.seq = seq;
    op.positions = positions;
    op.q = part[0], op.k = part[1], op.v = part[2];
    op.q_stride = pitch[0], op.k_stride = pitch[1], op.v_stride = pitch[2];
    must(d->ops->attention_kv(d->self, NULL, &op));
    assert_same_bits(o, r->o, r->tokens * r->q_width, "attention_kv", d->name);
    d->ops->free(d->self, kv.kv.blocks);
    free(o);
}

/* Queries, keys, values, outputs and gradients may each have rows of another
 * length. */
static void operands_may_lie_apart(void **state)
{
    (void)state;
    bench b;
    open_devices(&b);
    rows r = make_rows(forms[6]);
    const size_t n = r.tokens;
    const size_t width[] = { r.q_width, r.kv_width, r.kv_width };
    const size_t column[] = { 0, r.q_width, r.q_width + r.kv_width };
    float *part[3];
    float *grad[3];
    size_t pitch[3];
    size_t grad_pitch[3];
    float *d_o = random_floats(n * r.q_width, 1);
    float *want = alloc_floats(n * r.stride);
    const xray_attention packed = make_attention(&r, r.o, r.lse);
    must(b.dev[0].ops->attention(b.dev[0].self, NULL, &packed));
    run_backward(&b.dev[0], &r, d_o, want);
    for (size_t i = 0; i < 3; i++) {
        pitch[i] = width[i] + 3 + 2 * i;
        grad_pitch[i] = width[i] + 9 + 4 * i;
        part[i] = alloc_floats(n * pitch[i]);
        grad[i] = alloc_floats(n * grad_pitch[i]);
        move_columns(part[i], pitch[i], r.qkv + column[i], r.stride, n,
                     width[i]);
    }
    for (int k = 0; k < b.count; k++) {
        const dev *d = &b.dev[k];
        float *o = alloc_floats(n * r.q_width);
        float *got = alloc_floats(n * r.stride);
        xray_attention op = make_attention(&r, o, r.lse);
        op.q = part[0], op.k = part[1], op.v = part[2];
        op.q_stride = pitch[0], op.k_stride = pitch[1], op.v_stride = pitch[2];
        must(d->ops->attention(d->self, NULL, &op));
        assert_same_bits(o, r.o, n * r.q_width, "attention", d->name);
        xray_attention_grad back = make_attention_grad(&r, &op, d_o, NULL);
        back.dq = grad[0], back.dk = grad[1], back.dv = grad[2];
        back.dq_stride = grad_pitch[0];
        back.dk_stride = grad_pitch[1];
        back.dv_stride = grad_pitch[2];
        must(d->ops->attention_grad(d->self, NULL, &back));
        for (size_t i = 0; i < 3; i++)
            move_columns(got + column[i], r.stride, grad[i], grad_pitch[i], n,
                         width[i]);
        assert_same_bits(got, want, n * r.stride, "attention_grad", d->name);
        attend_apart(d, &r, part, pitch);
        free(o);
        free(got);
    }
    for (size_t i = 0; i < 3; i++) {
        free(part[i]);
        free(grad[i]);
    }
    free(d_o);
    free(want);
    free_rows(&r);
    close_devices(&b);
}

static void bad_rows_and_positions_are_refused(void **state)
{
    (void)state;
    bench b;
    open_devices(&b);
    const dev *d = &b.dev[0];
    rows r = make_rows(forms[1]);
    xray_attention op = make_attention(&r, r.o, r.lse);
    op.row_bound = 4;
    assert_int_equal(d->ops->attention(d->self, NULL, &op), XRAY_E_RANGE);
    assert_non_null(strstr(last_failure, "row 0"));
    op.row_bound = r.longest;
    op.kv_heads = 3;
    assert_int_equal(d->ops->attention(d->self, NULL, &op), XRAY_E_ARG);
    xray_kv kv = { .header = XRAY_HEADER(xray_kv),
                   .block_tokens = 20,
                   .kv_heads = 1,
                   .head_dim = 8,
                   .dtype = XRAY_F32 };
    assert_true(d->ops->kv_block_bytes(d->self, &kv) == 0);
    free_rows(&r);
    close_devices(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(forward_matches_float64),
        cmocka_unit_test(backward_matches_float64),
        cmocka_unit_test(the_engine_gives_the_trainers_bits),
        cmocka_unit_test(tokens_of_a_call_have_any_order),
        cmocka_unit_test(operands_may_lie_apart),
        cmocka_unit_test(bad_rows_and_positions_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
