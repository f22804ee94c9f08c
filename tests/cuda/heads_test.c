/* SPDX-License-Identifier: Apache-2.0
 *
 * The head of device-cuda: in float32 the CPU's bits, draws among them; in
 * bfloat16 near float64, and the same for trainer and engine.
 */
#include "tests/cuda/products.h"
#include "tests/device/heads.h"

#include <xray/numerics.h>

/* Each item has a temperature. */
static heads tempered(size_t items, size_t vocab, size_t dim, float softcap)
{
    return heads_make((heads){ .items = items,
                               .vocab = vocab,
                               .dim = dim,
                               .tempered = 1,
                               .softcap = softcap });
}

#define OUT_LOGP 0
#define OUT_ENTROPY 1
#define OUT_LSE 2

typedef struct ends {
    float *out[3];
    float *dx, *dw, *partial;
} ends;

static ends ends_make(const heads *h)
{
    ends e = { { floats(h->items), floats(h->items), floats(h->items) },
               floats(h->items * h->dim),
               floats(h->vocab * h->dim),
               floats(h->items * 4) };
    return e;
}

static void ends_free(ends *e)
{
    for (size_t i = 0; i < 3; i++)
        free(e->out[i]);
    free(e->dx);
    free(e->dw);
    free(e->partial);
}

static xray_lm_head_logp head_op(const heads *h, const xray_weight *w,
                                 const ends *e)
{
    xray_lm_head_logp op = heads_op(h, w);
    op.logp = e->out[OUT_LOGP];
    op.entropy = e->out[OUT_ENTROPY];
    op.lse = e->out[OUT_LSE];
    return op;
}

static void run_all(const xray_device_ops *ops, void *self, const heads *h,
                    const float *dh, float *logits, ends *e)
{
    xray_weight *w = weight_on(ops, self, h->w, h->vocab, h->dim);
    xray_lm_head_logp op = head_op(h, w, e);
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

static void same_ends(const heads *h, const ends *a, const ends *b)
{
    static const char *const names[] = { "logp", "entropy", "lse" };
    for (size_t i = 0; i < 3; i++)
        same_bits(a->out[i], b->out[i], h->items, names[i], "head");
    same_bits(a->partial, b->partial, h->items * 4, "partial", "head");
    same_bits(a->dx, b->dx, h->items * h->dim, "dx", "head");
    same_bits(a->dw, b->dw, h->vocab * h->dim, "dweight", "head");
}

/* Chunks in scratch or logits that are kept, one item or more than a chunk. */
static void heads_equal_the_cpu(void **state)
{
    (void)state;
    cuda_device *d = instance(CUDA_FLOAT32);
    void *cpu = cpu_instance();
    for (size_t i = 0; i < 5; i++) {
        static const size_t items[] = { 1, 7, 1100, 21, 9 };
        static const size_t vocab[] = { 16, 2900, 19, 300, 5001 };
        heads h = tempered(items[i], vocab[i], 24, i % 2 ? 3.0f : 0.0f);
        float *dh = random_floats(2 * h.items, 1);
        float *logits = logits_room(&h);
        ends want = ends_make(&h);
        run_all(cpu_ops(), cpu, &h, dh, NULL, &want);
        for (int kept = 0; kept < 2; kept++) {
            ends got = ends_make(&h);
            run_all(cuda_ops(), d, &h, dh, kept ? logits : NULL, &got);
            same_ends(&h, &got, &want);
            ends_free(&got);
        }
        ends_free(&want);
        free(dh);
        free(logits);
        heads_free(&h);
    }
    cpu_ops()->destroy(cpu);
    instance_close(d);
}

/* Words that do not begin at 0: the same of targets as many further on. */
static void a_vocabulary_may_begin_later(void **state)
{
    (void)state;
    cuda_device *d = instance(CUDA_FLOAT32);
    void *cpu = cpu_instance();
    heads h = tempered(9, 37, 24, 3.0f);
    float *dh = random_floats(2 * h.items, 1);
    ends want = ends_make(&h);
    run_all(cpu_ops(), cpu, &h, dh, NULL, &want);
    for (size_t i = 0; i < h.items; i++)
        h.targets[i] += 5;
    for (int s = 0; s < 2; s++) {
        const xray_device_ops *ops = s ? cuda_ops() : cpu_ops();
        void *self = s ? (void *)d : cpu;
        xray_weight *w = weight_on(ops, self, h.w, h.vocab, h.dim);
        ends got = ends_make(&h);
        xray_lm_head_logp op = head_op(&h, w, &got);
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
        same_ends(&h, &got, &want);
        ends_free(&got);
        ops->weight_destroy(self, w);
    }
    ends_free(&want);
    free(dh);
    heads_free(&h);
    cpu_ops()->destroy(cpu);
    instance_close(d);
}

/* ---- bfloat16 ------------------------------------------------------------ */

/* Logits of item i over rounded operands, as the device scales them. */
static double ref_row(const heads *h, size_t i, double *z)
{
    double max = -INFINITY;
    double sum = 0;
    for (size_t v = 0; v < h->vocab; v++) {
        z[v] = 0;
        for (size_t k = 0; k < h->dim; k++)
            z[v] += (double)low(h->x[i * h->dim + k]) *
                    (double)low(h->w[v * h->dim + k]);
        z[v] /= (double)h->temperature[i];
        max = z[v] > max ? z[v] : max;
    }
    for (size_t v = 0; v < h->vocab; v++)
        sum += exp(z[v] - max);
    return max + log(sum);
}

static double *doubles(size_t n)
{
    double *p = calloc(n ? n : 1, sizeof(*p));
    assert_non_null(p);
    return p;
}

static void check_narrow(const heads *h, const float *dh, const ends *e)
{
    double *z = doubles(h->vocab);
    double *dw = doubles(h->vocab * h->dim);
    for (size_t i = 0; i < h->items; i++) {
        double lse = ref_row(h, i, z);
        double entropy = 0;
        double *dx = doubles(h->dim);
        near(e->out[OUT_LOGP][i], z[h->targets[i]] - lse, 1e-5, "logp");
        for (size_t v = 0; v < h->vocab; v++)
            entropy -= exp(z[v] - lse) * (z[v] - lse);
        near(e->out[OUT_ENTROPY][i], entropy, 1e-5, "entropy");
        for (size_t v = 0; v < h->vocab; v++) {
            double p = exp(z[v] - lse);
            double g = (double)dh[i] * ((h->targets[i] == (int32_t)v) - p) -
                       (double)dh[h->items + i] * p * (z[v] - lse + entropy);
            g /= (double)h->temperature[i];
            for (size_t k = 0; k < h->dim; k++) {
                dx[k] += g * (double)low(h->w[v * h->dim + k]);
                dw[v * h->dim + k] += g * (double)low(h->x[i * h->dim + k]);
            }
        }
        /* The gradient of a logit is rounded to bf16 as well. */
        for (size_t k = 0; k < h->dim; k++)
            near(e->dx[i * h->dim + k], dx[k], 4e-3, "dx");
        free(dx);
    }
    for (size_t k = 0; k < h->vocab * h->dim; k++)
        near(e->dw[k], dw[k], 4e-3, "dweight");
    free(z);
    free(dw);
}

/* Items by parts, cut at a multiple of the grain, give the bits of the whole.
 */
static void check_parts(cuda_device *d, const heads *h, const float *dh,
                        const ends *whole)
{
    ends e = ends_make(h);
    xray_weight *w = weight_on(cuda_ops(), d, h->w, h->vocab, h->dim);
    for (size_t first = 0, n; first < h->items; first += n) {
        n = first == 0 ? CUDA_GRAIN : h->items - first;
        xray_lm_head_logp op = head_op(h, w, &e);
        int32_t live = (int32_t)n;
        op.items = (xray_extent){ h->items - first, &live };
        op.x += first * h->dim;
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
    memcpy(e.partial, whole->partial, h->items * 4 * sizeof(float));
    same_ends(h, &e, whole);
    ends_free(&e);
}

static void narrow_heads_are_near_float64(void **state)
{
    (void)state;
    cuda_device *d = instance(CUDA_BFLOAT16);
    for (size_t i = 0; i < 3; i++) {
        static const size_t vocab[] = { 61, 500, 2100 };
        heads h = tempered(40, vocab[i], 20 + i, 0.0f);
        float *dh = random_floats(2 * h.items, 1);
        ends e = ends_make(&h);
        run_all(cuda_ops(), d, &h, dh, NULL, &e);
        check_narrow(&h, dh, &e);
        check_parts(d, &h, dh, &e);
        ends_free(&e);
        free(dh);
        heads_free(&h);
    }
    instance_close(d);
}

/* ---- draws ----------------------------------------------------------------
 */

/* Every way to cut the support, alone and together. */
static xray_draw *draws_make(size_t items)
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
#define ROW_TIES 2  /* three values */
#define ROW_CLOSE 3 /* many in the same bin of a coarse count */
#define ROW_KINDS 4

static heads rows_make(size_t items, size_t vocab, int kind)
{
    heads h = tempered(items, vocab, 1, kind == ROW_RANDOM ? 30.0f : 0.0f);
    for (size_t i = 0; i < items; i++)
        h.x[i] = kind == ROW_CLOSE ? 1.0f : 4.0f;
    for (size_t v = 0; v < vocab && kind != ROW_RANDOM; v++)
        h.w[v] = kind == ROW_EQUAL  ? 0.25f
                 : kind == ROW_TIES ? (float)(v % 3)
                                    : 5.0f + 0.001f * (float)random_unit();
    return h;
}

static void draws_equal_the_cpu(void **state)
{
    (void)state;
    cuda_device *d = instance(CUDA_FLOAT32);
    void *cpu = cpu_instance();
    for (int run = 0; run < 2 * ROW_KINDS; run++) {
        heads h = rows_make(run % 2 ? 900 : 24, run % 2 ? 70 : 9001, run / 2);
        xray_draw *draws = draws_make(h.items);
        drawn want = heads_draw(cpu_ops(), cpu, &h, draws, 1);
        drawn got = heads_draw(cuda_ops(), d, &h, draws, run % 2);
        for (size_t i = 0; i < h.items; i++)
            if (got.token[i] != want.token[i])
                fail_msg("rows %d, item %zu: token %d, not %d", run, i,
                         got.token[i], want.token[i]);
        same_bits(got.raw, want.raw, h.items, "raw_logp", "draw");
        same_bits(got.logp, want.logp, h.items, "logp", "draw");
        if (run % 2)
            same_bits(got.logits, want.logits, h.items * h.vocab, "logits",
                      "draw");
        drawn_free(&want);
        drawn_free(&got);
        free(draws);
        heads_free(&h);
    }
    cpu_ops()->destroy(cpu);
    instance_close(d);
}

/* The trainer's log-probabilities of drawn tokens are the engine's bits, drawn
 * one item at a time or many. */
static void trainer_and_engine_agree(void **state)
{
    (void)state;
    cuda_device *d = instance(CUDA_BFLOAT16);
    heads h = tempered(33, 777, 40, 0.0f);
    xray_draw *draws = draws_make(h.items);
    for (size_t i = 0; i < h.items; i++)
        draws[i].temperature = h.temperature[i];
    drawn all = heads_draw(cuda_ops(), d, &h, draws, 0);
    for (size_t i = 0; i < h.items; i += 8) {
        heads one = h;
        one.items = 1;
        one.x = h.x + i * h.dim;
        drawn r = heads_draw(cuda_ops(), d, &one, draws + i, 0);
        assert_int_equal(r.token[0], all.token[i]);
        same_bits(r.logp, all.logp + i, 1, "logp", "alone");
        drawn_free(&r);
    }
    memcpy(h.targets, all.token, h.items * sizeof(*h.targets));
    ends e = ends_make(&h);
    xray_weight *w = weight_on(cuda_ops(), d, h.w, h.vocab, h.dim);
    xray_lm_head_logp op = head_op(&h, w, &e);
    must(cuda_lm_head_logp(d, NULL, &op));
    same_bits(e.out[OUT_LOGP], all.logp, h.items, "rollout", "trainer");
    op.temperature = NULL;
    must(cuda_lm_head_logp(d, NULL, &op));
    same_bits(e.out[OUT_LOGP], all.raw, h.items, "raw rollout", "trainer");
    cuda_weight_destroy(d, w);
    ends_free(&e);
    drawn_free(&all);
    free(draws);
    heads_free(&h);
    instance_close(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(heads_equal_the_cpu),
        cmocka_unit_test(a_vocabulary_may_begin_later),
        cmocka_unit_test(narrow_heads_are_near_float64),
        cmocka_unit_test(draws_equal_the_cpu),
        cmocka_unit_test(trainer_and_engine_agree),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
