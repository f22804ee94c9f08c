/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests that an LM head whose matrix is stored as bf16 gives the logits,
 * sampled tokens and log-probabilities of its widened values, on every device.
 */
#include "tests/device/bench.h"
#include "tests/device/lm_input.h"

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

/* Samples tokens, then computes their log-probabilities and entropies. */
static result sample_and_score(const dev *d, form f, float *x, xray_weight *w)
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
                       .x = x,
                       .draws = draws,
                       .token = r.token,
                       .raw_logp = r.raw,
                       .logp = r.logp,
                       .draw_stride = sizeof(xray_draw) };
    must(d->ops->sample(d->self, NULL, &op));
    const lm_input h = {
        .items = f.items, .vocab = f.vocab, .dim = f.dim, .x = x
    };
    compute_logits(d->ops, d->self, &h, w, 0.0f, r.logits, f.vocab);
    float *again = alloc_floats(f.items);
    xray_lm_head_logp head = { .header = XRAY_HEADER(xray_lm_head_logp),
                               .items = { f.items, NULL },
                               .weight = w,
                               .x = x,
                               .targets = r.token,
                               .logp = again,
                               .entropy = r.entropy };
    must(d->ops->lm_head_logp(d->self, NULL, &head));
    assert_same_bits(again, r.raw, f.items, "raw logp of the samples", d->name);
    d->ops->weight_destroy(d->self, w);
    free(again);
    free(draws);
    return r;
}

static xray_weight *create_bf16_weight(const dev *d, form f, uint16_t *data)
{
    xray_weight_desc desc = { .header = XRAY_HEADER(xray_weight_desc),
                              .data = data,
                              .rows = f.vocab,
                              .cols = f.dim,
                              .dtype = XRAY_BF16,
                              .uses = XRAY_USE_NT | XRAY_USE_NN | XRAY_USE_TN };
    xray_weight *w = NULL;
    must(d->ops->weight_create(d->self, &desc, &w));
    return w;
}

static void bf16_matrices_give_the_bits_of_widened_ones(void **state)
{
    (void)state;
    bench b;
    open_devices(&b);
    for (size_t s = 0; s < sizeof(forms) / sizeof(*forms); s++) {
        form f = forms[s];
        size_t count = f.vocab * f.dim;
        float *x = random_floats(f.items * f.dim, 1);
        float *w = random_floats(count, 1);
        uint16_t *narrow = calloc(count, sizeof(*narrow));
        assert_non_null(narrow);
        for (size_t i = 0; i < count; i++) {
            narrow[i] = cpu_to_bf16(w[i]);
            w[i] = cpu_from_bf16(narrow[i]);
        }
        result first = sample_and_score(
            &b.dev[0], f, x, create_weight(&b.dev[0], w, f.vocab, f.dim));
        for (int d = 0; d < b.count; d++) {
            const dev *v = &b.dev[d];
            result got =
                sample_and_score(v, f, x, create_bf16_weight(v, f, narrow));
            assert_memory_equal(got.token, first.token, f.items * 4);
            assert_same_bits(got.logits, first.logits, f.items * f.vocab,
                             "logits", v->name);
            assert_same_bits(got.raw, first.raw, f.items, "raw", v->name);
            assert_same_bits(got.logp, first.logp, f.items, "logp", v->name);
            assert_same_bits(got.entropy, first.entropy, f.items, "entropy",
                             v->name);
            free_result(&got);
        }
        free_result(&first);
        free(x);
        free(w);
        free(narrow);
    }
    close_devices(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bf16_matrices_give_the_bits_of_widened_ones),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
