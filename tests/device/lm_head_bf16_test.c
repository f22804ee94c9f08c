/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests that an LM head whose matrix is stored as bf16 or rounded to it, and
 * whose inputs may be bf16, gives the logits, sampled tokens, log-probabilities
 * and gradients of the widened values, on every device.
 */
#include "tests/device/lm_input.h"
#include "tests/device/typed.h"

typedef struct form {
    size_t items, vocab, dim;
} form;

static const form forms[] = {
    { 1, 300, 40 },  { 3, 5001, 20 },  { 21, 777, 48 },
    { 40, 513, 17 }, { 64, 512, 512 }, { 1100, 19, 24 },
};

typedef struct result {
    int32_t *token;
    float *raw, *logp, *logits, *entropy;
} result;

static result make_result(form f)
{
    result r = { calloc(f.items, sizeof(int32_t)), alloc_floats(f.items),
                 alloc_floats(f.items), alloc_floats(f.items * f.vocab),
                 alloc_floats(f.items) };
    assert_non_null(r.token);
    return r;
}

static void free_result(result *r)
{
    free(r->token);
    free(r->raw);
    free(r->logp);
    free(r->logits);
    free(r->entropy);
}

/* Hidden states. */
typedef struct states {
    float *wide;
    void *x; /* the same as dtype */
    uint32_t dtype;
} states;

/* Samples tokens, then computes their log-probabilities and entropies. */
static result sample_and_score(const dev *d, form f, states in, xray_weight *w)
{
    result r = make_result(f);
    xray_draw *draws = calloc(f.items, sizeof(*draws));
    assert_non_null(draws);
    for (size_t i = 0; i < f.items; i++)
        draws[i] = (xray_draw){ .key = 7 + i,
                                .position = (uint32_t)i,
                                .temperature = i % 3 ? 0.7f : 1.0f,
                                .top_p = i % 2 ? 0.9f : 1.0f };
    xray_sample op = { .header = XRAY_HEADER(xray_sample),
                       .items = { f.items, NULL },
                       .weight = w,
                       .x = in.x,
                       .draws = draws,
                       .token = r.token,
                       .raw_logp = r.raw,
                       .logp = r.logp,
                       .draw_stride = sizeof(xray_draw),
                       .x_dtype = in.dtype };
    must(d->ops->sample(d->self, NULL, &op));
    const lm_input h = {
        .items = f.items, .vocab = f.vocab, .dim = f.dim, .x = in.wide
    };
    compute_logits(d->ops, d->self, &h, w, 0.0f, r.logits, f.vocab);
    float *again = alloc_floats(f.items);
    xray_lm_head_logp head = { .header = XRAY_HEADER(xray_lm_head_logp),
                               .items = { f.items, NULL },
                               .weight = w,
                               .x = in.x,
                               .targets = r.token,
                               .logp = again,
                               .entropy = r.entropy,
                               .x_dtype = in.dtype };
    must(d->ops->lm_head_logp(d->self, NULL, &head));
    assert_same_bits(again, r.raw, f.items, "raw logp of the samples", d->name);
    d->ops->weight_destroy(d->self, w);
    free(again);
    free(draws);
    return r;
}

/* A matrix of bf16 or, with `wide`, of floats that products round. */
static xray_weight *create_narrow(const dev *d, form f, uint16_t *data,
                                  float *wide)
{
    xray_weight_desc desc = { .header = XRAY_HEADER(xray_weight_desc),
                              .data = wide ? (void *)wide : (void *)data,
                              .rows = f.vocab,
                              .cols = f.dim,
                              .dtype = wide ? XRAY_F32 : XRAY_BF16,
                              .uses = XRAY_USE_NT | XRAY_USE_NN | XRAY_USE_TN,
                              .product_dtype = wide ? XRAY_BF16 : 0 };
    xray_weight *w = NULL;
    must(d->ops->weight_create(d->self, &desc, &w));
    return w;
}

static void check_result(const dev *d, form f, const result *got,
                         const result *want)
{
    assert_memory_equal(got->token, want->token, f.items * 4);
    assert_same_bits(got->logits, want->logits, f.items * f.vocab, "logits",
                     d->name);
    assert_same_bits(got->raw, want->raw, f.items, "raw", d->name);
    assert_same_bits(got->logp, want->logp, f.items, "logp", d->name);
    assert_same_bits(got->entropy, want->entropy, f.items, "entropy", d->name);
}

/* A matrix in its three forms, of which the last is not rounded. */
typedef struct matrix {
    uint16_t *narrow;
    float *w, *raw;
} matrix;

static matrix make_matrix(form f)
{
    size_t n = f.vocab * f.dim;
    matrix m = { .narrow = keep_array(calloc(n, sizeof(*m.narrow))),
                 .w = keep_array(alloc_floats(n)),
                 .raw = keep_array(random_floats(n, 1)) };
    for (size_t i = 0; i < n; i++) {
        m.narrow[i] = cpu_to_bf16(m.raw[i]);
        m.w[i] = cpu_from_bf16(m.narrow[i]);
    }
    return m;
}

static void bf16_heads_give_the_bits_of_widened_ones(void **state)
{
    (void)state;
    bench b;
    open_devices(&b);
    for (size_t s = 0; s < sizeof(forms) / sizeof(*forms); s++) {
        form f = forms[s];
        float *wide = make_values(f.items * f.dim, 1);
        const states x[2] = {
            { wide, wide, XRAY_F32 },
            { wide, make_typed(wide, f.items * f.dim, XRAY_BF16), XRAY_BF16 }
        };
        matrix m = make_matrix(f);
        result first = sample_and_score(
            &b.dev[0], f, x[0], create_weight(&b.dev[0], m.w, f.vocab, f.dim));
        for (int d = 0; d < b.count; d++)
            /* Both types of x and both matrices, paired in turns. */
            for (int i = (d + (int)s) % 2; i < 4; i += i % 2 ? 1 : 3) {
                const dev *v = &b.dev[d];
                result got = sample_and_score(
                    v, f, x[i % 2],
                    create_narrow(v, f, m.narrow, i / 2 ? m.raw : NULL));
                check_result(v, f, &got, &first);
                free_result(&got);
            }
        free_result(&first);
        release();
    }
    close_devices(&b);
}

/* ---- gradients ---------------------------------------------------------- */

/* With `segments` the vocabulary has two, and with `keep` the caller has memory
 * for the logits. */
typedef struct call {
    int keep, segments;
} call;

/* The gradients of x, and then of the matrix. */
static float *compute_grads(const dev *d, const lm_input *h, call c, states in,
                            xray_weight *w)
{
    size_t nx = h->items * h->dim;
    float *grads = alloc_floats(nx + h->vocab * h->dim);
    float *dlogp = alloc_floats(h->items);
    for (size_t i = 0; i < h->items; i++)
        dlogp[i] = (float)(i % 5) - 1.5f;
    scored out = make_scored(h->items);
    out.logits = c.keep ? alloc_logits(h) : NULL;
    xray_lm_head_logp op = make_logp_into(h, w, &out);
    op.x = in.x;
    op.x_dtype = in.dtype;
    op.segment = c.segments ? (h->vocab + 1) / 2 : 0;
    must(d->ops->lm_head_logp(d->self, NULL, &op));
    xray_lm_head_grad grad = { .header = XRAY_HEADER(xray_lm_head_grad),
                               .forward = &op,
                               .dlogp = dlogp,
                               .dentropy = dlogp,
                               .dx = grads,
                               .dweight = grads + nx };
    must(d->ops->lm_head_grad(d->self, NULL, &grad));
    d->ops->weight_destroy(d->self, w);
    free_scored(&out);
    free(dlogp);
    return grads;
}

static void gradients_have_the_bits_of_widened_inputs(void **state)
{
    (void)state;
    static const form grid[] = { { 1, 300, 40 },
                                 { 21, 777, 17 },
                                 { 70, 65, 96 } };
    bench b;
    open_devices(&b);
    for (size_t s = 0; s < 4 * sizeof(grid) / sizeof(*grid); s++) {
        form f = grid[s / 4];
        const call c = { .keep = (int)(s % 2), .segments = (int)(s / 2 % 2) };
        lm_input h = make_lm_input((lm_input){
            .items = f.items, .vocab = f.vocab, .dim = f.dim, .tempered = 1 });
        size_t n = f.items * f.dim;
        float *wide = make_values(n, 1);
        matrix m = make_matrix(f);
        states x = { wide, wide, XRAY_F32 };
        float *want = compute_grads(
            &b.dev[0], &h, c, x, create_weight(&b.dev[0], m.w, f.vocab, f.dim));
        x.x = make_typed(wide, n, XRAY_BF16);
        x.dtype = XRAY_BF16;
        for (int d = 0; d < b.count; d++) {
            float *got = compute_grads(
                &b.dev[d], &h, c, x, create_narrow(&b.dev[d], f, NULL, m.raw));
            assert_same_bits(got, want, n + f.vocab * f.dim, "gradients",
                             b.dev[d].name);
            free(got);
        }
        free(want);
        free_lm_input(&h);
        release();
    }
    close_devices(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bf16_heads_give_the_bits_of_widened_ones),
        cmocka_unit_test(gradients_have_the_bits_of_widened_inputs),
    };
    return cmocka_run_group_tests_name("device.lm_head_bf16", tests, NULL,
                                       NULL);
}
