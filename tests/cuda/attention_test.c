/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests of attention in bfloat16 on the cuda device. It is close to float64
 * over rounded operands, and a query has the same bits whatever surrounds it:
 * as a packed row, in chunks, token by token, paged or not. On a GPU this also
 * shows that the result of a tensor-core product does not depend on the row of
 * the fragment.
 *
 * Rows with parents, in both precisions, have the bits of the joined rows, in
 * float32 those of device-cpu, and gradients close to float64.
 */
#include "tests/cuda/attention_run.h"
#include "tests/device/attention_family.h"

static const form forms[] = {
    { 1, 1, 8, 0, 0.0f, { 1, 2, 5 }, 0.0f },
    { 4, 4, 16, 0, 0.0f, { 14, 3, 17 }, 0.0f },
    { 4, 2, 20, 0, 2.0f, { 14, 33 }, 0.0f },
    { 7, 1, 64, 0, 0.0f, { 70, 9 }, 0.0f },
    { 2, 1, 40, 0, 0.0f, { 270, 64 }, 0.0f },
    { 4, 2, 128, 0, 0.0f, { 66, 20 }, 0.0f },
    { 4, 2, 16, 5, 0.0f, { 1, 40, 90 }, 0.0f },
    { 4, 1, 80, 1, 0.0f, { 30, 1 }, 0.0f },
    { 2, 2, 96, 20, 0.0f, { 45, 20, 19, 21 }, 0.0f },
    { 3, 1, 32, 64, 0.0f, { 63, 64, 65, 140 }, 0.0f },
    { 1, 1, 32, 100, 0.0f, { 330 }, 0.0f },
    { 2, 1, 256, 33, 0.0f, { 70, 12 }, 0.0f },
    { 1, 1, 256, 0, 50.0f, { 80, 5 }, 0.0625f },
    { 20, 1, 24, 0, 30.0f, { 50 }, 1.0f },
    { 70, 1, 8, 0, 0.0f, { 3, 18 }, 0.0f },
};
#define FORMS (sizeof(forms) / sizeof(*forms))

static rows make_rounded_rows(form f)
{
    rows r = make_rows(f);
    round_all_to_bf16(r.qkv, r.tokens * r.stride);
    return r;
}

/* p is rounded to 8 bits for the values but not for its sum: half a unit of the
 * last bit is 2^-8 of it. */
static void forward_is_near_float64(void **state)
{
    (void)state;
    dev d = open_attention(CUDA_BFLOAT16);
    double p[MOST_KEYS];
    double slope[MOST_KEYS];
    double o[256];
    double size[256];
    for (size_t f = 0; f < FORMS; f += TEST_STEP) {
        rows r = make_rounded_rows(forms[f]);
        run_rows(&d, &r, r.o, r.lse, NULL, NULL);
        for (size_t row = 0; row < r.count; row++)
            for (size_t i = 0; i < (size_t)r.f.lengths[row]; i++)
                for (size_t h = 0; h < r.f.heads; h++) {
                    seen q = make_query_view(&r, row, i, h);
                    size_t t = q.start + i;
                    double lse = compute_probs(&q, p, slope);
                    assert_near(r.lse[t * r.f.heads + h], lse, 3e-6, "lse");
                    compute_values(&q, p, o, size);
                    for (size_t e = 0; e < r.f.dim; e++)
                        assert_within(r.o[t * r.q_width + h * r.f.dim + e],
                                      o[e], size[e], 0x1.02p-8, "o", e);
                }
        free_rows(&r);
    }
    d.ops->destroy(d.self);
}

/* The gradient sums rounded p and ds, and the rounding of o enters every ds. */
static void gradient_is_near_float64(void **state)
{
    (void)state;
    dev d = open_attention(CUDA_BFLOAT16);
    for (size_t f = 1 % TEST_STEP; f < FORMS; f += TEST_STEP) {
        rows r = make_rounded_rows(forms[f]);
        size_t n = r.tokens * r.stride;
        float *d_o = random_floats(r.tokens * r.q_width, 1);
        round_all_to_bf16(d_o, r.tokens * r.q_width);
        float *got = random_floats(n, 1);
        double *want = calloc(2 * n, sizeof(*want));
        assert_non_null(want);
        run_rows(&d, &r, r.o, r.lse, d_o, got);
        for (size_t row = 0; row < r.count; row++)
            for (size_t i = 0; i < (size_t)r.f.lengths[row]; i++)
                for (size_t h = 0; h < r.f.heads; h++) {
                    seen q = make_query_view(&r, row, i, h);
                    add_query_grad(
                        &q, d_o + (q.start + i) * r.q_width + h * r.f.dim, want,
                        want + n);
                }
        for (size_t e = 0; e < n; e++)
            assert_within(got[e], want[e], want[n + e], 0x1.1p-8, "gradient",
                          e);
        free(want);
        free(got);
        free(d_o);
        free_rows(&r);
    }
    d.ops->destroy(d.self);
}

/* Copies rows so that every query head has a key and a value of its own. */
static rows copy_keys_of_heads(const rows *r)
{
    form f = r->f;
    f.kv_heads = f.heads;
    rows own = make_rows(f);
    uint32_t group = f.heads / r->f.kv_heads;
    for (size_t t = 0; t < r->tokens; t++)
        for (size_t part = 0; part < 3; part++)
            for (size_t h = 0; h < f.heads; h++) {
                size_t at = part ? r->q_width + (part - 1) * r->kv_width +
                                       h / group * f.dim
                                 : h * f.dim;
                memcpy(own.qkv + t * own.stride + part * own.q_width +
                           h * f.dim,
                       r->qkv + t * r->stride + at, f.dim * sizeof(float));
            }
    return own;
}

/* The scale is a power of two, so it makes no difference whether it multiplies
 * the sums or their sum. */
static void heads_that_share_a_key_add_gradients_in_order(void **state)
{
    (void)state;
    dev d = open_attention(CUDA_BFLOAT16);
    static const form shared[] = {
        { 6, 2, 64, 0, 0.0f, { 70, 9 }, 0.0f },
        { 8, 2, 128, 20, 0.0f, { 66, 40 }, 0.125f },
        { 4, 1, 20, 0, 30.0f, { 33 }, 0.25f },
    };
    for (size_t f = 0; f < sizeof(shared) / sizeof(*shared); f++) {
        rows r = make_rows(shared[f]);
        rows own = copy_keys_of_heads(&r);
        uint32_t group = r.f.heads / r.f.kv_heads;
        float *d_o = random_floats(r.tokens * r.q_width, 1);
        float *got = alloc_floats(r.tokens * r.stride);
        float *each = alloc_floats(own.tokens * own.stride);
        run_rows(&d, &r, r.o, r.lse, d_o, got);
        run_rows(&d, &own, own.o, own.lse, d_o, each);
        for (size_t t = 0; t < r.tokens; t++)
            for (size_t i = 0; i < 2 * r.kv_width; i++) {
                size_t v = i / r.kv_width;
                size_t kv = i % r.kv_width / r.f.dim;
                const float *x = each + t * own.stride + (1 + v) * own.q_width +
                                 kv * group * r.f.dim + i % r.f.dim;
                float sum = x[0];
                for (size_t h = 1; h < group; h++)
                    sum = sum + x[h * r.f.dim];
                assert_same_bits(got + t * r.stride + r.q_width + i, &sum, 1,
                                 "gradient", v ? "of v" : "of k");
            }
        free(each);
        free(got);
        free(d_o);
        free_rows(&own);
        free_rows(&r);
    }
    d.ops->destroy(d.self);
}

static void rows_do_not_depend_on_their_batch(void **state)
{
    (void)state;
    dev d = open_attention(CUDA_BFLOAT16);
    for (size_t f = 1; f < FORMS; f += 2 * TEST_STEP) {
        rows r = make_rounded_rows(forms[f]);
        size_t n = r.tokens * r.stride;
        float *d_o = random_floats(r.tokens * r.q_width, 1);
        float *all = alloc_floats(n);
        run_rows(&d, &r, r.o, r.lse, d_o, all);
        for (size_t row = 0; row < r.count; row++) {
            size_t start = (size_t)r.start[row];
            rows one = r;
            one.count = 1;
            one.tokens = one.longest = (size_t)r.f.lengths[row];
            one.start[0] = 0;
            one.start[1] = r.f.lengths[row];
            one.qkv = r.qkv + start * r.stride;
            float *o = alloc_floats(one.tokens * r.q_width);
            float *lse = alloc_floats(one.tokens * r.f.heads);
            float *grad = alloc_floats(one.tokens * r.stride);
            run_rows(&d, &one, o, lse, d_o + start * r.q_width, grad);
            assert_same_bits(o, r.o + start * r.q_width, one.tokens * r.q_width,
                             "o", "a row alone");
            assert_same_bits(lse, r.lse + start * r.f.heads,
                             one.tokens * r.f.heads, "lse", "a row alone");
            assert_same_bits(grad, all + start * r.stride,
                             one.tokens * r.stride, "gradient", "a row alone");
            free(o);
            free(lse);
            free(grad);
        }
        free(all);
        free(d_o);
        free_rows(&r);
    }
    d.ops->destroy(d.self);
}

static void the_engine_gives_the_trainers_bits(void **state)
{
    (void)state;
    dev d = open_attention(CUDA_BFLOAT16);
    static const cache_run ways[] = {
        { 16, 512, 0, 0, 0, 0 },
        { 48, 29, 0, 1, 0, XRAY_BF16 },
        { 16, 100, 13, 1, 5, 0 },
    };
    for (size_t f = 2 % TEST_STEP; f < FORMS; f += TEST_STEP) {
        rows r = make_rows(forms[f]); /* the device does the rounding */
        run_rows(&d, &r, r.o, r.lse, NULL, NULL);
        for (size_t w = 0; w < sizeof(ways) / sizeof(*ways); w++) {
            float *o = alloc_floats(r.tokens * r.q_width);
            run_over_cache(&d, &r, ways[w], o);
            assert_same_bits(o, r.o, r.tokens * r.q_width, "attention_kv",
                             "chunks");
            free(o);
        }
        if (r.longest < 100) {
            float *o = alloc_floats(r.tokens * r.q_width);
            run_over_cache(&d, &r, (cache_run){ 16, 1, 0, 1, 2, 0 }, o);
            assert_same_bits(o, r.o, r.tokens * r.q_width, "attention_kv",
                             "decode");
            free(o);
        }
        free_rows(&r);
    }
    d.ops->destroy(d.self);
}

/* Rows over several splits: a prompt, then tokens one by one close to and
 * across their borders. */
static void decode_of_long_rows_gives_the_trainers_bits(void **state)
{
    (void)state;
    dev d = open_attention(CUDA_BFLOAT16);
    static const form longer[] = {
        { 7, 1, 64, 0, 0.0f, { 517 }, 0.0f },
        { 2, 1, 32, 300, 0.0f, { 771, 260 }, 0.0f },
        { 2, 1, 128, 0, 20.0f, { 258, 25 }, 0.0f },
        /* More splits than attend_join loads at once. */
        { 1, 1, 16, 0, 0.0f, { 4360 }, 0.0f },
    };
    for (size_t f = 0; f < sizeof(longer) / sizeof(*longer); f++) {
        rows r = make_rows(longer[f]);
        run_rows(&d, &r, r.o, r.lse, NULL, NULL);
        for (int paged = 0; paged < 2; paged++) {
            float *o = alloc_floats(r.tokens * r.q_width);
            cache_run w = { paged ? 16 : 64, 1, r.longest - 5, paged, 0, 0 };
            run_over_cache(&d, &r, w, o);
            assert_same_bits(o, r.o, r.tokens * r.q_width, "attention_kv",
                             paged ? "paged" : "contiguous");
            free(o);
        }
        free_rows(&r);
    }
    d.ops->destroy(d.self);
}

/* ---- rows with parents -------------------------------------------------- */

static const form families[] = {
    { 1, 1, 8, 0, 0.0f, { 1, -1, -2 }, 0.0f },
    { 4, 2, 16, 0, 0.0f, { 5, 15, -1, -33, 9, 16, -16, -2, -1, 3 }, 0.0f },
    { 2, 1, 64, 0, 0.0f, { 130, -1, -2, -16, -33, -33 }, 0.0f },
    { 2, 2, 20, 5, 2.0f, { 40, -33, -2, -1, 17, -16 }, 0.0f },
    { 3, 1, 32, 18, 0.0f, { 130, -33, -2, 7, 16, -16, 1, -33 }, 0.0f },
    { 7, 1, 40, 0, 30.0f, { 17, -16, -33, -1, -2, -2 }, 0.0f },
    { 4, 1, 80, 1, 0.0f, { 15, -2, -16 }, 0.0f },
    { 2, 1, 96, 64, 0.0f, { 130, -33, -16, 40, -33 }, 0.0f },
    { 4, 2, 128, 0, 0.0f, { 40, -33, -16, -2, -1, 4 }, 0.0f },
    { 2, 1, 256, 33, 0.0f, { 70, -33, -2 }, 0.0f },
    { 1, 1, 128, 200, 0.0f, { 290, -33, -130, 65, -16 }, 0.0f },
    { 20, 2, 24, 0, 0.0f, { 16, -16, -2 }, 0.0f },
    { 70, 1, 8, 0, 0.0f, { 3, 17, -18 }, 0.0f },
    /* A key that the next 64 queries see, in a tile whose other keys they do
     * not see. */
    { 2, 1, 16, 18, 0.0f, { 17, -150, -3 }, 0.0f },
    /* Sums that are so small that keys which a query does not see could
     * overflow. */
    { 8, 2, 16, 2, 0.0f, { 20, -3, -17, -2, -1, 5, -1, -1 }, 60.0f },
};
#define FAMILIES (sizeof(families) / sizeof(*families))

static const int64_t precisions[] = { CUDA_FLOAT32, CUDA_BFLOAT16 };

/* Operands are rounded to bf16, which both precisions represent exactly. */
static family make_rounded_family(form f)
{
    family made = make_family(f);
    round_all_to_bf16(made.r.qkv, made.r.tokens * made.r.stride);
    round_all_to_bf16(made.d_o, made.r.tokens * made.r.q_width);
    return made;
}

/* Computes o, lse and grad of all rows; `grad` starts with arbitrary values. */
static void run_family(const dev *d, const family *f, const int32_t *parent)
{
    run_packed(d, &f->r, f->r.start, parent, f->r.o, f->r.lse, f->d_o, f->grad);
}

/* Adds the float64 gradient of a joined row's own queries to `want` and its
 * magnitude to `size`, both with the layout of qkv of all rows. */
static void add_family_reference(const family *from, size_t row,
                                 const family *joined, double *want,
                                 double *size)
{
    const rows *r = &joined->r;
    size_t n = r->tokens * r->stride;
    double *sum = calloc(2 * n, sizeof(*sum));
    assert_non_null(sum);
    for (size_t i = parent_length(from, row); i < r->tokens; i++)
        for (size_t h = 0; h < r->f.heads; h++) {
            seen q = make_query_view(r, 0, i, h);
            add_query_grad(&q, joined->d_o + i * r->q_width + h * r->f.dim, sum,
                           sum + n);
        }
    for (size_t i = 0; i < r->tokens; i++) {
        size_t to = joined_token(from, row, i);
        for (size_t e = 0; e < r->stride; e++) {
            want[to * r->stride + e] += sum[i * r->stride + e];
            size[to * r->stride + e] += sum[n + i * r->stride + e];
        }
    }
    free(sum);
}

/* Compares a row's own tokens, in `a` from `from` on and in `b` from `to`
 * on. */
static void assert_same_row(const family *a, size_t from, const family *b,
                            size_t to, size_t n, int grad, const char *where)
{
    const rows *r = &a->r;
    assert_same_family(a, from, b, to, n, where);
    for (size_t t = 0; t < n; t++)
        assert_same_bits(a->grad + (from + t) * r->stride,
                         b->grad + (to + t) * r->stride,
                         grad ? r->stride : r->q_width, "gradient", where);
}

/* A parent's o, lse and dq are those of the joined row; other rows' dk and dv
 * too. */
static void children_are_the_joined_rows(void **state)
{
    (void)state;
    for (size_t p = 0; p < 2; p++) {
        dev d = open_attention(precisions[p]);
        for (size_t i = p % TEST_STEP; i < FAMILIES; i += TEST_STEP) {
            family f = make_rounded_family(families[i]);
            size_t n = f.r.tokens * f.r.stride;
            double *want = calloc(2 * n, sizeof(*want));
            double sharp = fmax(1, (double)score_scale(&f.r.f));
            double tolerance =
                precisions[p] == CUDA_FLOAT32 ? 2e-6 * sharp : 0x1.1p-8;
            assert_non_null(want);
            run_family(&d, &f, f.parent);
            for (size_t row = 0; row < f.r.count; row++) {
                family joined = join_family(&f, row, 1);
                run_family(&d, &joined, NULL);
                assert_same_row(&f, (size_t)f.r.start[row], &joined,
                                parent_length(&f, row), row_length(&f, row),
                                !has_children(&f, row), "a joined row");
                add_family_reference(&f, row, &joined, want, want + n);
                free_family(&joined);
            }
            for (size_t e = 0; e < n; e++)
                assert_within(f.grad[e], want[e], want[n + e], tolerance,
                              "gradient", e);
            free(want);
            free_family(&f);
        }
        d.ops->destroy(d.self);
    }
}

static void families_have_device_cpus_bits(void **state)
{
    (void)state;
    cpu_config config = { .isa = CPU_ISA_SCALAR };
    dev cpu = { .ops = device_ops(), .name = "cpu" };
    must(cpu.ops->create(&bench_host, &config, 1, &cpu.self));
    dev d = open_attention(CUDA_FLOAT32);
    for (size_t i = 0; i < FAMILIES; i += TEST_STEP) {
        random_state = 5 + i;
        family f = make_rounded_family(families[i]);
        random_state = 5 + i;
        family g = make_rounded_family(families[i]);
        run_family(&d, &f, f.parent);
        run_family(&cpu, &g, g.parent);
        assert_same_row(&f, 0, &g, 0, f.r.tokens, 1, "device-cpu");
        free_family(&f);
        free_family(&g);
    }
    d.ops->destroy(d.self);
    cpu.ops->destroy(cpu.self);
}

/* The last family alone gives the same bits; a parent of -1 means none. */
static void families_do_not_depend_on_their_batch(void **state)
{
    (void)state;
    for (size_t i = 2 % TEST_STEP; i < FAMILIES; i += TEST_STEP) {
        dev d = open_attention(precisions[i % 2]);
        random_state = 5 + i;
        family f = make_rounded_family(families[i]);
        random_state = 5 + i;
        family g = make_rounded_family(families[i]);
        family last = view_family_from(&g, find_last_family(&g));
        size_t skip = f.r.tokens - last.r.tokens;
        run_family(&d, &f, f.parent);
        run_family(&d, &last, last.parent);
        assert_same_row(&f, skip, &g, skip, f.r.tokens - skip, 1,
                        "a family alone");
        static const int32_t none[MOST_ROWS] = { -1, -1, -1, -1, -1, -1,
                                                 -1, -1, -1, -1, -1, -1 };
        run_family(&d, &f, none);
        run_family(&d, &g, NULL);
        assert_same_row(&f, 0, &g, 0, f.r.tokens, 1, "no parents");
        free_family(&f);
        free_family(&g);
        d.ops->destroy(d.self);
    }
}

static void parents_are_supported(void **state)
{
    (void)state;
    for (size_t p = 0; p < 2; p++) {
        dev d = open_attention(precisions[p]);
        xray_device_info info = { .header = XRAY_HEADER(xray_device_info) };
        must(d.ops->info(d.self, &info));
        assert_int_equal(info.features, XRAY_DEVICE_PARENTS);
        d.ops->destroy(d.self);
    }
}

static void unsupported_shapes_are_refused(void **state)
{
    (void)state;
    for (size_t p = 0; p < 2; p++) {
        dev d = open_attention(precisions[p]);
        xray_kv kv = { .header = XRAY_HEADER(xray_kv),
                       .block_tokens = 32,
                       .kv_heads = 2,
                       .head_dim = 20,
                       .dtype = XRAY_F32 };
        uint64_t wide = precisions[p] == CUDA_FLOAT32 ? 20 * 4 : 24 * 2;
        assert_true(d.ops->kv_block_bytes(d.self, &kv) == 2 * 2 * 32 * wide);
        kv.dtype = XRAY_BF16;
        wide = precisions[p] == CUDA_FLOAT32 ? 20 * 2 : 24 * 2;
        assert_true(d.ops->kv_block_bytes(d.self, &kv) == 2 * 2 * 32 * wide);
        kv.dtype = XRAY_F16;
        assert_true(d.ops->kv_block_bytes(d.self, &kv) == 0);
        kv.dtype = XRAY_F32;
        kv.block_tokens = 20;
        assert_true(d.ops->kv_block_bytes(d.self, &kv) == 0);
        rows r = make_rows(forms[1]);
        xray_attention op = make_attention(&r, r.o, r.lse);
        op.kv_heads = 3;
        assert_int_equal(d.ops->attention(d.self, NULL, &op), XRAY_E_ARG);
        op.kv_heads = 4;
        op.q_stride = 3;
        assert_int_equal(d.ops->attention(d.self, NULL, &op), XRAY_E_ARG);
        op.q_stride = op.k_stride = op.v_stride = op.o_stride = 4096;
        op.head_dim = 264;
        assert_int_equal(d.ops->attention(d.self, NULL, &op),
                         XRAY_E_UNSUPPORTED);
        assert_non_null(strstr(last_failure, "256"));
        free_rows(&r);
        d.ops->destroy(d.self);
    }
}

/* A call of no tokens, or of none that is live, succeeds and leaves outputs and
 * cache as they are. */
static void calls_without_tokens_change_nothing(void **state)
{
    (void)state;
    for (size_t p = 0; p < 2; p++) {
        dev d = open_attention(precisions[p]);
        rows r = make_rows(forms[1]);
        cache_call c = { .r = &r, .base = r.longest, .chunk = 2 };
        c.kv = (xray_kv){ .header = XRAY_HEADER(xray_kv),
                          .table_stride = 1,
                          .block_tokens = 32,
                          .kv_heads = r.f.kv_heads,
                          .head_dim = r.f.dim,
                          .dtype = XRAY_F32 };
        size_t bytes = d.ops->kv_block_bytes(d.self, &c.kv) * r.count;
        unsigned char *before = malloc(bytes);
        unsigned char *after = malloc(bytes);
        assert_true(bytes && before && after);
        memset(before, 0x3c, bytes);
        c.kv.blocks = copy_to_device(&d, before, bytes);
        for (c.spare = 0; c.spare < 4; c.spare += 3)
            run_cache_call(&d, &c, r.o);
        copy_from_device(&d, after, c.kv.blocks, bytes);
        assert_memory_equal(after, before, bytes);
        free_on_device(&d, c.kv.blocks);
        xray_attention op = make_attention(&r, r.o, r.lse);
        op.rows = 0;
        op.tokens.bound = 0;
        xray_attention_grad back = make_attention_grad(&r, &op, r.o, r.qkv);
        must(d.ops->attention(d.self, NULL, &op));
        must(d.ops->attention_grad(d.self, NULL, &back));
        free(before);
        free(after);
        free_rows(&r);
        d.ops->destroy(d.self);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(forward_is_near_float64),
        cmocka_unit_test(gradient_is_near_float64),
        cmocka_unit_test(heads_that_share_a_key_add_gradients_in_order),
        cmocka_unit_test(rows_do_not_depend_on_their_batch),
        cmocka_unit_test(the_engine_gives_the_trainers_bits),
        cmocka_unit_test(decode_of_long_rows_gives_the_trainers_bits),
        cmocka_unit_test(children_are_the_joined_rows),
        cmocka_unit_test(families_have_device_cpus_bits),
        cmocka_unit_test(families_do_not_depend_on_their_batch),
        cmocka_unit_test(parents_are_supported),
        cmocka_unit_test(unsupported_shapes_are_refused),
        cmocka_unit_test(calls_without_tokens_change_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
