/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests of the LM head of device-cuda: in float32 it has the CPU's bits,
 * including sampled tokens; in bfloat16 it is close to float64, and trainer and
 * engine have the same bits.
 */
#include "tests/cuda/products.h"
#include "tests/device/lm_input.h"

#include <xray/numerics.h>

/* Each item has a temperature of its own. */
static lm_input make_tempered(size_t items, size_t vocab, size_t dim,
                              float softcap)
{
    return make_lm_input((lm_input){ .items = items,
                                     .vocab = vocab,
                                     .dim = dim,
                                     .tempered = 1,
                                     .softcap = softcap });
}

#define OUT_LOGP 0
#define OUT_ENTROPY 1
#define OUT_LSE 2

typedef struct outputs {
    float *out[3];
    float *dx, *dw, *partial;
} outputs;

static outputs make_outputs(const lm_input *h)
{
    outputs e = { { alloc_floats(h->items), alloc_floats(h->items),
                    alloc_floats(h->items) },
                  alloc_floats(h->items * h->dim),
                  alloc_floats(h->vocab * h->dim),
                  alloc_floats(h->items * 4) };
    return e;
}

static void free_outputs(outputs *e)
{
    for (size_t i = 0; i < 3; i++)
        free(e->out[i]);
    free(e->dx);
    free(e->dw);
    free(e->partial);
}

static xray_lm_head_logp
make_logp_outputs(const lm_input *h, const xray_weight *w, const outputs *e)
{
    xray_lm_head_logp op = make_logp(h, w);
    op.logp = e->out[OUT_LOGP];
    op.entropy = e->out[OUT_ENTROPY];
    op.lse = e->out[OUT_LSE];
    return op;
}

static void run_all_calls(const xray_device_ops *ops, void *self,
                          const lm_input *h, const float *dh, float *logits,
                          outputs *e)
{
    xray_weight *w = create_weight_on(ops, self, h->w, h->vocab, h->dim);
    xray_lm_head_logp op = make_logp_outputs(h, w, e);
    op.logits = logits;
    must(ops->lm_head_logp(self, NULL, &op));
    xray_lm_head_grad grad = { .header = XRAY_HEADER(xray_lm_head_grad),
                               .forward = &op,
                               .dlogp = dh,
                               .dentropy = dh + h->items,
                               .dx = e->dx,
                               .dweight = e->dw };
    must(ops->lm_head_grad(self, NULL, &grad));
    op.logits = NULL;
    op.partial = e->partial;
    op.vocab_first = 3;
    must(ops->lm_head_logp(self, NULL, &op));
    ops->weight_destroy(self, w);
}

static void assert_same_outputs(const lm_input *h, const outputs *a,
                                const outputs *b)
{
    static const char *const names[] = { "logp", "entropy", "lse" };
    for (size_t i = 0; i < 3; i++)
        assert_same_bits(a->out[i], b->out[i], h->items, names[i], "head");
    assert_same_bits(a->partial, b->partial, h->items * 4, "partial", "head");
    assert_same_bits(a->dx, b->dx, h->items * h->dim, "dx", "head");
    assert_same_bits(a->dw, b->dw, h->vocab * h->dim, "dweight", "head");
}

/* Makes a logit of every item minus infinity. */
static void exclude_token(lm_input *h, int32_t token)
{
    float *row = h->w + (size_t)token * h->dim;
    memset(row, 0, h->dim * sizeof(*row));
    row[0] = -3e38f;
    for (size_t i = 0; i < h->items; i++) {
        h->x[i * h->dim] = 4.0f;
        if (h->targets[i] == token)
            h->targets[i] = token + 1;
    }
}

/* The logits are in scratch or kept by the caller, for one item and for more
 * than a chunk. */
static void float32_equals_the_cpu(void **state)
{
    (void)state;
    cuda_device *d = create_cuda(CUDA_FLOAT32);
    void *cpu = create_cpu();
    for (size_t i = 0; i < 5; i++) {
        static const size_t items[] = { 1, 7, 1100, 21, 9 };
        static const size_t vocab[] = { 16, 2900, 19, 300, 5001 };
        lm_input h = make_tempered(items[i], vocab[i], 24, i % 2 ? 3.0f : 0.0f);
        if (i == 4)
            exclude_token(&h, 17);
        float *dh = random_floats(2 * h.items, 1);
        float *logits = alloc_logits(&h);
        outputs want = make_outputs(&h);
        run_all_calls(cpu_ops(), cpu, &h, dh, NULL, &want);
        for (int kept = 0; kept < 2; kept++) {
            outputs got = make_outputs(&h);
            run_all_calls(cuda_ops(), d, &h, dh, kept ? logits : NULL, &got);
            assert_same_outputs(&h, &got, &want);
            free_outputs(&got);
        }
        free_outputs(&want);
        free(dh);
        free(logits);
        free_lm_input(&h);
    }
    cpu_ops()->destroy(cpu);
    destroy_cuda(d);
}

/* A slice of the vocabulary that does not begin at 0 gives the results of
 * targets shifted by its beginning. */
static void a_vocabulary_may_begin_later(void **state)
{
    (void)state;
    cuda_device *d = create_cuda(CUDA_FLOAT32);
    void *cpu = create_cpu();
    lm_input h = make_tempered(9, 37, 24, 3.0f);
    float *dh = random_floats(2 * h.items, 1);
    outputs want = make_outputs(&h);
    run_all_calls(cpu_ops(), cpu, &h, dh, NULL, &want);
    for (size_t i = 0; i < h.items; i++)
        h.targets[i] += 5;
    for (int s = 0; s < 2; s++) {
        const xray_device_ops *ops = s ? cuda_ops() : cpu_ops();
        void *self = s ? (void *)d : cpu;
        xray_weight *w = create_weight_on(ops, self, h.w, h.vocab, h.dim);
        outputs got = make_outputs(&h);
        xray_lm_head_logp op = make_logp_outputs(&h, w, &got);
        op.vocab_first = 5;
        must(ops->lm_head_logp(self, NULL, &op));
        xray_lm_head_grad grad = { .header = XRAY_HEADER(xray_lm_head_grad),
                                   .forward = &op,
                                   .dlogp = dh,
                                   .dentropy = dh + h.items,
                                   .dx = got.dx,
                                   .dweight = got.dw };
        must(ops->lm_head_grad(self, NULL, &grad));
        memcpy(got.partial, want.partial, h.items * 4 * sizeof(float));
        assert_same_outputs(&h, &got, &want);
        free_outputs(&got);
        ops->weight_destroy(self, w);
    }
    free_outputs(&want);
    free(dh);
    free_lm_input(&h);
    cpu_ops()->destroy(cpu);
    destroy_cuda(d);
}

/* ---- bfloat16 ------------------------------------------------------------ */

/* The logits of item i over rounded operands, scaled as the device does. */
REFERENCE static double compute_ref_row(const lm_input *h, size_t i, double *z)
{
    double max = -INFINITY;
    double sum = 0;
    for (size_t v = 0; v < h->vocab; v++) {
        z[v] = 0;
        for (size_t k = 0; k < h->dim; k++)
            z[v] += (double)round_to_bf16(h->x[i * h->dim + k]) *
                    (double)round_to_bf16(h->w[v * h->dim + k]);
        z[v] /= (double)h->temperature[i];
        max = z[v] > max ? z[v] : max;
    }
    for (size_t v = 0; v < h->vocab; v++)
        sum += exp(z[v] - max);
    return max + log(sum);
}

static double *alloc_doubles(size_t n)
{
    double *p = calloc(n ? n : 1, sizeof(*p));
    assert_non_null(p);
    return p;
}

REFERENCE static void check_narrow(const lm_input *h, const float *dh,
                                   const outputs *e)
{
    double *z = alloc_doubles(h->vocab);
    double *dw = alloc_doubles(h->vocab * h->dim);
    for (size_t i = 0; i < h->items; i++) {
        double lse = compute_ref_row(h, i, z);
        double entropy = 0;
        double *dx = alloc_doubles(h->dim);
        assert_near(e->out[OUT_LOGP][i], z[h->targets[i]] - lse, 1e-5, "logp");
        for (size_t v = 0; v < h->vocab; v++)
            entropy -= exp(z[v] - lse) * (z[v] - lse);
        assert_near(e->out[OUT_ENTROPY][i], entropy, 1e-5, "entropy");
        for (size_t v = 0; v < h->vocab; v++) {
            double p = exp(z[v] - lse);
            double g = (double)dh[i] * ((h->targets[i] == (int32_t)v) - p) -
                       (double)dh[h->items + i] * p * (z[v] - lse + entropy);
            g /= (double)h->temperature[i];
            for (size_t k = 0; k < h->dim; k++) {
                dx[k] += g * (double)round_to_bf16(h->w[v * h->dim + k]);
                dw[v * h->dim + k] +=
                    g * (double)round_to_bf16(h->x[i * h->dim + k]);
            }
        }
        /* The gradient of a logit is rounded to bf16 as well. */
        for (size_t k = 0; k < h->dim; k++)
            assert_near(e->dx[i * h->dim + k], dx[k], 4e-3, "dx");
        free(dx);
    }
    for (size_t k = 0; k < h->vocab * h->dim; k++)
        assert_near(e->dw[k], dw[k], 4e-3, "dweight");
    free(z);
    free(dw);
}

/* Items in parts give the bits of a single call, but for the gradient of the
 * matrix, whose sums begin with a call. */
static void check_parts(cuda_device *d, const lm_input *h, const float *dh,
                        const outputs *complete)
{
    outputs e = make_outputs(h);
    xray_weight *w = create_weight_on(cuda_ops(), d, h->w, h->vocab, h->dim);
    for (size_t first = 0, n; first < h->items; first += n) {
        n = first == 0 ? 16 : h->items - first;
        xray_lm_head_logp op = make_logp_outputs(h, w, &e);
        int32_t live = (int32_t)n;
        op.items = (xray_extent){ h->items - first, &live };
        op.x = (const float *)op.x + first * h->dim;
        op.targets += first;
        op.temperature += first;
        op.logp += first;
        op.entropy += first;
        op.lse += first;
        must(cuda_lm_head_logp(d, NULL, &op));
        xray_lm_head_grad grad = { .header = XRAY_HEADER(xray_lm_head_grad),
                                   .forward = &op,
                                   .dlogp = dh + first,
                                   .dentropy = dh + h->items + first,
                                   .dx = e.dx + first * h->dim,
                                   .dweight = e.dw };
        must(cuda_lm_head_grad(d, NULL, &grad));
    }
    cuda_weight_destroy(d, w);
    for (size_t i = 0; i < h->vocab * h->dim; i++)
        assert_near(e.dw[i], complete->dw[i], 1e-5, "dweight in parts");
    memcpy(e.dw, complete->dw, h->vocab * h->dim * sizeof(float));
    memcpy(e.partial, complete->partial, h->items * 4 * sizeof(float));
    assert_same_outputs(h, &e, complete);
    free_outputs(&e);
}

static void bfloat16_is_near_float64(void **state)
{
    (void)state;
    cuda_device *d = create_cuda(CUDA_BFLOAT16);
    for (size_t i = 0; i < 3; i++) {
        static const size_t vocab[] = { 61, 500, 2100 };
        lm_input h = make_tempered(40, vocab[i], 20 + i, 0.0f);
        float *dh = random_floats(2 * h.items, 1);
        outputs e = make_outputs(&h);
        run_all_calls(cuda_ops(), d, &h, dh, NULL, &e);
        check_narrow(&h, dh, &e);
        check_parts(d, &h, dh, &e);
        free_outputs(&e);
        free(dh);
        free_lm_input(&h);
    }
    destroy_cuda(d);
}

/* ---- sampling ----------------------------------------------------------- */

/* Draws with every way to cut the support, alone and combined. */
static xray_draw *make_draws(size_t items)
{
    static const float temperatures[] = { 1.0f, 0.7f, 2.5f, 0.0f };
    static const float top_p[] = { 1.0f, 0.97f, 0.3f, 0.999f };
    static const int32_t top_k[] = { 0, 40, 2, 5000 };
    static const float min_p[] = { 0.0f, 0.2f, 0.0f, 0.01f };
    xray_draw *draws = calloc(items ? items : 1, sizeof(*draws));
    assert_non_null(draws);
    for (size_t i = 0; i < items; i++)
        draws[i] = (xray_draw){ .key = xray_philox_key(1, 2, i),
                                .sample = (uint32_t)(i % 5),
                                .position = (uint32_t)i,
                                .temperature = temperatures[i / 2 % 4],
                                .top_p = top_p[i / 5 % 4],
                                .min_p = min_p[i / 7 % 4],
                                .top_k = top_k[i / 3 % 4] };
    return draws;
}

#define ROW_RANDOM 0
#define ROW_EQUAL 1
#define ROW_TIES 2  /* three distinct values */
#define ROW_CLOSE 3 /* many values in the same bin of a coarse count */
#define ROW_KINDS 4

static lm_input make_logit_rows(size_t items, size_t vocab, int kind)
{
    lm_input h =
        make_tempered(items, vocab, 1, kind == ROW_RANDOM ? 30.0f : 0.0f);
    for (size_t i = 0; i < items; i++)
        h.x[i] = kind == ROW_CLOSE ? 1.0f : 4.0f;
    for (size_t v = 0; v < vocab && kind != ROW_RANDOM; v++)
        h.w[v] = kind == ROW_EQUAL  ? 0.25f
                 : kind == ROW_TIES ? (float)(v % 3)
                                    : 5.0f + 0.001f * (float)random_unit();
    return h;
}

static void sampled_tokens_equal_the_cpu(void **state)
{
    (void)state;
    cuda_device *d = create_cuda(CUDA_FLOAT32);
    void *cpu = create_cpu();
    for (int run = 0; run < 2 * ROW_KINDS; run++) {
        lm_input h =
            make_logit_rows(run % 2 ? 900 : 24, run % 2 ? 70 : 9001, run / 2);
        xray_draw *draws = make_draws(h.items);
        sampled want = sample_tokens(cpu_ops(), cpu, &h, draws, 1);
        sampled got = sample_tokens(cuda_ops(), d, &h, draws, run % 2);
        for (size_t i = 0; i < h.items; i++)
            if (got.token[i] != want.token[i])
                fail_msg("rows %d, item %zu: token %d, not %d", run, i,
                         got.token[i], want.token[i]);
        assert_same_bits(got.raw, want.raw, h.items, "raw_logp", "draw");
        assert_same_bits(got.logp, want.logp, h.items, "logp", "draw");
        if (run % 2)
            assert_same_bits(got.logits, want.logits, h.items * h.vocab,
                             "logits", "draw");
        free_sampled(&want);
        free_sampled(&got);
        free(draws);
        free_lm_input(&h);
    }
    cpu_ops()->destroy(cpu);
    destroy_cuda(d);
}

/* A product, and a draw from it, give the bits of the draw alone. */
static void check_given_logits(cuda_device *d, const lm_input *h,
                               const xray_draw *draws, const sampled *want)
{
    size_t stride = h->vocab + 3;
    float *z = alloc_floats(h->items * stride);
    sampled got = { calloc(h->items + 1, sizeof(int32_t)),
                    alloc_floats(h->items), alloc_floats(h->items), NULL };
    xray_weight *w = create_weight_on(cuda_ops(), d, h->w, h->vocab, h->dim);
    compute_logits(cuda_ops(), d, h, w, 0.0f, z, stride);
    cuda_weight_destroy(d, w);
    xray_sample op = { .header = XRAY_HEADER(xray_sample),
                       .items = { h->items, NULL },
                       .draws = draws,
                       .token = got.token,
                       .raw_logp = got.raw,
                       .logp = got.logp,
                       .logits = z,
                       .logits_stride = stride,
                       .vocab = h->vocab,
                       .softcap = h->softcap,
                       .draw_stride = sizeof(xray_draw) };
    must(cuda_sample(d, NULL, &op));
    assert_memory_equal(got.token, want->token, h->items * sizeof(int32_t));
    assert_same_bits(got.raw, want->raw, h->items, "raw logp", "given");
    assert_same_bits(got.logp, want->logp, h->items, "logp", "given");
    free_sampled(&got);
    free(z);
}

/* The trainer's log-probabilities of sampled tokens have the engine's bits,
 * whether the engine samples one item at a time or many. */
static void trainer_and_engine_agree(void **state)
{
    (void)state;
    cuda_device *d = create_cuda(CUDA_BFLOAT16);
    lm_input h = make_tempered(33, 777, 40, 0.0f);
    xray_draw *draws = make_draws(h.items);
    for (size_t i = 0; i < h.items; i++)
        draws[i].temperature = h.temperature[i];
    sampled all = sample_tokens(cuda_ops(), d, &h, draws, 0);
    check_given_logits(d, &h, draws, &all);
    for (size_t i = 0; i < h.items; i += 8) {
        lm_input one = h;
        one.items = 1;
        one.x = h.x + i * h.dim;
        sampled r = sample_tokens(cuda_ops(), d, &one, draws + i, 0);
        assert_int_equal(r.token[0], all.token[i]);
        assert_same_bits(r.logp, all.logp + i, 1, "logp", "alone");
        free_sampled(&r);
    }
    memcpy(h.targets, all.token, h.items * sizeof(*h.targets));
    outputs e = make_outputs(&h);
    xray_weight *w = create_weight_on(cuda_ops(), d, h.w, h.vocab, h.dim);
    xray_lm_head_logp op = make_logp_outputs(&h, w, &e);
    must(cuda_lm_head_logp(d, NULL, &op));
    assert_same_bits(e.out[OUT_LOGP], all.logp, h.items, "rollout", "trainer");
    op.temperature = NULL;
    must(cuda_lm_head_logp(d, NULL, &op));
    assert_same_bits(e.out[OUT_LOGP], all.raw, h.items, "raw rollout",
                     "trainer");
    cuda_weight_destroy(d, w);
    free_outputs(&e);
    free_sampled(&all);
    free(draws);
    free_lm_input(&h);
    destroy_cuda(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(float32_equals_the_cpu),
        cmocka_unit_test(a_vocabulary_may_begin_later),
        cmocka_unit_test(bfloat16_is_near_float64),
        cmocka_unit_test(sampled_tokens_equal_the_cpu),
        cmocka_unit_test(trainer_and_engine_agree),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
