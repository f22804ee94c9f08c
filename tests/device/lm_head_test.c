/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests that log-probabilities, entropies and their gradient match float64, and
 * that sampled tokens follow their definition and distribution.
 */
#include "tests/device/bench.h"
#include "tests/device/lm_input.h"

#include <xray/numerics.h>

static const lm_input shapes[] = {
    { .items = 1, .vocab = 16, .dim = 8 },
    { .items = 7, .vocab = 29, .dim = 33, .tempered = 1 },
    { .items = 40, .vocab = 512, .dim = 64 },
    { .items = 1100, .vocab = 19, .dim = 24, .tempered = 1 },
    { .items = 21, .vocab = 300, .dim = 40, .tempered = 1, .softcap = 3.0f },
    { .items = 3, .vocab = 5001, .dim = 20 },
    { .items = 33, .vocab = 777, .dim = 48, .softcap = 30.0f },
    { .items = 9, .vocab = 130, .dim = 24, .softcap = 0.5f },
    { .items = 40, .vocab = 513, .dim = 17, .tempered = 1, .softcap = 30.0f },
};
#define SHAPES (sizeof(shapes) / sizeof(*shapes))

/* Log-probabilities of item i in double, and the slope of the softcap per
 * entry. */
REFERENCE static void ref_logp(const lm_input *h, size_t i, double *logp,
                               double *slope)
{
    double max = -INFINITY;
    double sum = 0;
    for (size_t v = 0; v < h->vocab; v++) {
        double z = 0;
        for (size_t k = 0; k < h->dim; k++)
            z += (double)h->x[i * h->dim + k] * (double)h->w[v * h->dim + k];
        slope[v] = 1;
        if (h->softcap != 0.0f) {
            double t = tanh(z / (double)h->softcap);
            slope[v] = 1 - t * t;
            z = t * (double)h->softcap;
        }
        if (h->tempered)
            z /= (double)h->temperature[i];
        logp[v] = z;
        max = z > max ? z : max;
    }
    for (size_t v = 0; v < h->vocab; v++)
        sum += exp(logp[v] - max);
    for (size_t v = 0; v < h->vocab; v++)
        logp[v] -= max + log(sum);
}

REFERENCE static double ref_entropy(const double *logp, size_t n)
{
    double e = 0;
    for (size_t v = 0; v < n; v++)
        e -= exp(logp[v]) * logp[v];
    return e;
}

static void logps_match_float64(void **state)
{
    (void)state;
    bench b;
    open_devices(&b);
    for (size_t s = 0; s < SHAPES; s += TEST_STEP) {
        lm_input h = make_lm_input(shapes[s]);
        scored first = make_scored(h.items);
        double *logp = calloc(h.vocab * 2, sizeof(*logp));
        assert_non_null(logp);
        for (int d = 0; d < b.count; d++) {
            scored got = make_scored(h.items);
            got.logits = d % 2 ? alloc_logits(&h) : NULL;
            xray_weight *w = create_weight(&b.dev[d], h.w, h.vocab, h.dim);
            xray_lm_head_logp op = make_logp_into(&h, w, d ? &got : &first);
            must(b.dev[d].ops->lm_head_logp(b.dev[d].self, NULL, &op));
            b.dev[d].ops->weight_destroy(b.dev[d].self, w);
            if (d) {
                assert_same_bits(got.logp, first.logp, h.items, "logp",
                                 b.dev[d].name);
                assert_same_bits(got.entropy, first.entropy, h.items, "entropy",
                                 b.dev[d].name);
                assert_same_bits(got.lse, first.lse, h.items, "lse",
                                 b.dev[d].name);
            }
            free_scored(&got);
        }
        for (size_t i = 0; i < h.items; i++) {
            ref_logp(&h, i, logp, logp + h.vocab);
            assert_near(first.logp[i], logp[h.targets[i]], 4e-6, "logp");
            assert_near(first.entropy[i], ref_entropy(logp, h.vocab), 4e-6,
                        "entropy");
        }
        free(logp);
        free_scored(&first);
        free_lm_input(&h);
    }
    close_devices(&b);
}

/* ---- gradient ----------------------------------------------------------- */

typedef struct grads {
    float *dlogp, *dentropy, *dx, *dw;
} grads;

/* If the caller keeps the logits, they are computed first. */
static void run_grad(const dev *d, const lm_input *h, const scored *o,
                     const grads *g, size_t first, size_t count)
{
    xray_weight *w = create_weight(d, h->w, h->vocab, h->dim);
    xray_lm_head_logp f = make_logp_into(h, w, o);
    f.items.bound = count;
    f.x = (const float *)f.x + first * h->dim;
    f.targets += first;
    f.temperature = f.temperature ? f.temperature + first : NULL;
    f.lse += first;
    f.entropy += first;
    f.logp += first;
    if (f.logits)
        must(d->ops->lm_head_logp(d->self, NULL, &f));
    xray_lm_head_grad op = { .header = XRAY_HEADER(xray_lm_head_grad),
                             .forward = &f,
                             .dlogp = g->dlogp + first,
                             .dentropy = g->dentropy + first,
                             .dx = g->dx + first * h->dim,
                             .dweight = g->dw };
    must(d->ops->lm_head_grad(d->self, NULL, &op));
    d->ops->weight_destroy(d->self, w);
}

/* For item i: dlogp logp + dentropy entropy, the function whose derivatives are
 * the gradients. */
static double ref_loss(const lm_input *h, const grads *g, size_t i,
                       double *work)
{
    ref_logp(h, i, work, work + h->vocab);
    return (double)g->dlogp[i] * work[h->targets[i]] +
           (double)g->dentropy[i] * ref_entropy(work, h->vocab);
}

/* Compares the reference's dx of item i with differences of the reference. */
static void check_slopes(const lm_input *h, const grads *g, size_t i,
                         const double *dx)
{
    double *work = calloc(h->vocab * 2, sizeof(*work));
    assert_non_null(work);
    for (size_t k = 0; k < h->dim; k += 1 + h->dim / 4) {
        float *x = h->x + i * h->dim + k;
        float kept = *x;
        float up = kept + 0x1p-10f;
        float down = kept - 0x1p-10f;
        *x = up;
        double slope = ref_loss(h, g, i, work);
        *x = down;
        slope = (slope - ref_loss(h, g, i, work)) / ((double)up - (double)down);
        *x = kept;
        assert_near((float)dx[k], slope, 1e-4, "float64 gradient");
    }
    free(work);
}

static void ref_grad(const lm_input *h, const grads *g)
{
    double *logp = calloc(h->vocab * 2, sizeof(*logp));
    double *dw = calloc(h->vocab * h->dim + 1, sizeof(*dw));
    assert_non_null(logp);
    assert_non_null(dw);
    for (size_t i = 0; i < h->items; i++) {
        double dx[64] = { 0 };
        ref_logp(h, i, logp, logp + h->vocab);
        double entropy = ref_entropy(logp, h->vocab);
        for (size_t v = 0; v < h->vocab; v++) {
            double p = exp(logp[v]);
            double dz =
                (double)g->dlogp[i] * ((h->targets[i] == (int32_t)v) - p) -
                (double)g->dentropy[i] * p * (logp[v] + entropy);
            dz *= logp[h->vocab + v];
            if (h->tempered)
                dz /= (double)h->temperature[i];
            for (size_t k = 0; k < h->dim; k++) {
                dx[k] += dz * (double)h->w[v * h->dim + k];
                dw[v * h->dim + k] += dz * (double)h->x[i * h->dim + k];
            }
        }
        for (size_t k = 0; k < h->dim; k++)
            assert_near(g->dx[i * h->dim + k], dx[k], 2e-5, "lm_head dx");
        if (i < 4)
            check_slopes(h, g, i, dx);
    }
    for (size_t k = 0; k < h->vocab * h->dim; k++)
        assert_near(g->dw[k], dw[k], 1e-4, "lm_head dweight");
    free(logp);
    free(dw);
}

static void gradients_match_float64_under_any_cut(void **state)
{
    (void)state;
    bench b;
    open_devices(&b);
    for (size_t s = 1 % TEST_STEP; s < SHAPES; s += TEST_STEP) {
        lm_input h = make_lm_input(shapes[s]);
        size_t n = h.vocab * h.dim;
        scored o = make_scored(h.items);
        grads g = { random_floats(h.items, 1), random_floats(h.items, 1),
                    alloc_floats(h.items * h.dim), alloc_floats(n) };
        xray_weight *w = create_weight(&b.dev[0], h.w, h.vocab, h.dim);
        xray_lm_head_logp op = make_logp_into(&h, w, &o);
        must(b.dev[0].ops->lm_head_logp(b.dev[0].self, NULL, &op));
        b.dev[0].ops->weight_destroy(b.dev[0].self, w);
        run_grad(&b.dev[0], &h, &o, &g, 0, h.items);
        ref_grad(&h, &g);
        for (int i = 0; i < 2 * b.count; i++) {
            int d = i % b.count;
            grads c = { g.dlogp, g.dentropy, alloc_floats(h.items * h.dim),
                        alloc_floats(n) };
            size_t cut = h.items / 3;
            if (i == b.count)
                o.logits = alloc_logits(&h);
            run_grad(&b.dev[d], &h, &o, &c, 0, cut);
            run_grad(&b.dev[d], &h, &o, &c, cut, h.items - cut);
            assert_same_bits(c.dx, g.dx, h.items * h.dim, "dx", b.dev[d].name);
            assert_same_bits(c.dw, g.dw, n, "dweight", b.dev[d].name);
            free(c.dx);
            free(c.dw);
        }
        free(g.dlogp);
        free(g.dentropy);
        free(g.dx);
        free(g.dw);
        free_scored(&o);
        free_lm_input(&h);
    }
    close_devices(&b);
}

/* ---- sampling ----------------------------------------------------------- */

static sampled run_sample(const dev *d, const lm_input *h,
                          const xray_draw *draws)
{
    return sample_tokens(d->ops, d->self, h, draws, 1);
}

static xray_draw *make_draws(const lm_input *h)
{
    xray_draw *draws = calloc(h->items, sizeof(*draws));
    assert_non_null(draws);
    for (size_t i = 0; i < h->items; i++)
        draws[i] = (xray_draw){
            .key = xray_philox_key(1, 2, i),
            .sample = (uint32_t)(i % 5),
            .position = (uint32_t)i,
            .temperature = h->tempered ? h->temperature[i] : 1.0f,
            .top_p = i % 4 == 1 ? 0.7f : 1.0f,
            .min_p = i % 4 == 2 ? 0.05f : 0.0f,
            .top_k = i % 4 == 3 ? 4 : 0,
        };
    return draws;
}

/* Samples by definition, from the logits that the device returned. */
REFERENCE static size_t ref_draw(const lm_input *h, const float *logits,
                                 const xray_draw *draw)
{
    double best = -INFINITY;
    size_t token = 0;
    double *p = calloc(2 * h->vocab, sizeof(*p));
    assert_non_null(p);
    double *size = p + h->vocab; /* of the largest */
    double max = -INFINITY;
    for (size_t v = 0; v < h->vocab; v++) {
        p[v] = (double)logits[v] / (double)draw->temperature;
        max = p[v] > max ? p[v] : max;
    }
    double sum = 0;
    for (size_t v = 0; v < h->vocab; v++)
        sum += size[v] = exp(p[v] - max);
    for (size_t v = 0; v < h->vocab; v++) {
        size_t above = 0;
        double mass = 0;
        for (size_t u = 0; u < h->vocab; u++)
            if (p[u] > p[v]) {
                above++;
                mass += size[u] / sum;
            }
        if ((draw->top_k && above >= (size_t)draw->top_k) ||
            mass >= (double)draw->top_p || size[v] < (double)draw->min_p)
            continue;
        xray_philox_out r = xray_philox(draw->key, (uint32_t)(v / 4),
                                        draw->position, draw->sample, 0);
        double key = p[v] - log(-log((double)xray_unit(r.w[v % 4])));
        if (key > best) {
            best = key;
            token = v;
        }
    }
    free(p);
    return token;
}

static void sampled_tokens_follow_their_definition(void **state)
{
    (void)state;
    bench b;
    open_devices(&b);
    for (size_t s = 2 % TEST_STEP; s < SHAPES; s += TEST_STEP) {
        lm_input h = make_lm_input(shapes[s]);
        xray_draw *draws = make_draws(&h);
        sampled first = run_sample(&b.dev[0], &h, draws);
        if (h.vocab < 1000)
            for (size_t i = 0; i < h.items; i++)
                assert_int_equal(
                    first.token[i],
                    ref_draw(&h, first.logits + i * h.vocab, draws + i));
        for (int d = 1; d < b.count; d++) {
            sampled got = run_sample(&b.dev[d], &h, draws);
            assert_memory_equal(got.token, first.token, h.items * 4);
            assert_same_bits(got.raw, first.raw, h.items, "raw", b.dev[d].name);
            assert_same_bits(got.logp, first.logp, h.items, "logp",
                             b.dev[d].name);
            free_sampled(&got);
        }
        /* The trainer's log-probabilities of these tokens have the same
         * bits. */
        free(h.targets);
        h.targets = first.token;
        scored o = make_scored(h.items);
        const dev *v = &b.dev[b.count - 1];
        xray_weight *w = create_weight(v, h.w, h.vocab, h.dim);
        xray_lm_head_logp op = make_logp_into(&h, w, &o);
        must(v->ops->lm_head_logp(v->self, NULL, &op));
        assert_same_bits(o.logp, first.logp, h.items, "rollout", "trainer");
        op.temperature = NULL;
        must(v->ops->lm_head_logp(v->self, NULL, &op));
        assert_same_bits(o.logp, first.raw, h.items, "raw rollout", "trainer");
        v->ops->weight_destroy(v->self, w);
        free_scored(&o);
        h.targets = NULL;
        free_sampled(&first);
        free(draws);
        free_lm_input(&h);
    }
    close_devices(&b);
}

static void greedy_takes_the_lowest_of_equals(void **state)
{
    (void)state;
    bench b;
    open_devices(&b);
    float w[70];
    float x = 1.0f;
    for (size_t v = 0; v < 70; v++)
        w[v] = v == 33 || v == 14 || v == 53 ? 2.0f : 1.0f;
    lm_input h = { .items = 1, .vocab = 70, .dim = 1, .w = w, .x = &x };
    xray_draw draw = { .temperature = 0.0f, .top_p = 1.0f };
    for (int d = 0; d < b.count; d++) {
        sampled r = run_sample(&b.dev[d], &h, &draw);
        assert_int_equal(r.token[0], 14);
        assert_true(r.raw[0] == r.logp[0]);
        free_sampled(&r);
    }
    draw.temperature = -1.0f;
    xray_weight *weight = create_weight(&b.dev[0], w, 70, 1);
    int32_t token;
    float lp;
    xray_sample op = { .header = XRAY_HEADER(xray_sample),
                       .items = { 1, NULL },
                       .weight = weight,
                       .x = &x,
                       .draws = &draw,
                       .token = &token,
                       .raw_logp = &lp,
                       .logp = &lp,
                       .draw_stride = sizeof(draw) };
    assert_int_equal(b.dev[0].ops->sample(b.dev[0].self, NULL, &op),
                     XRAY_E_RANGE);
    b.dev[0].ops->weight_destroy(b.dev[0].self, weight);
    close_devices(&b);
}

static void bad_targets_are_refused(void **state)
{
    (void)state;
    bench b;
    open_devices(&b);
    const dev *d = &b.dev[0];
    lm_input h = make_lm_input(shapes[1]);
    scored o = make_scored(h.items);
    xray_weight *w = create_weight(d, h.w, h.vocab, h.dim);
    xray_lm_head_logp op = make_logp_into(&h, w, &o);
    h.targets[3] = 29;
    assert_int_equal(d->ops->lm_head_logp(d->self, NULL, &op), XRAY_E_RANGE);
    assert_non_null(strstr(last_failure, "target 29 of item 3"));
    h.targets[3] = 0;
    h.temperature[2] = 0.0f;
    assert_int_equal(d->ops->lm_head_logp(d->self, NULL, &op), XRAY_E_RANGE);
    d->ops->weight_destroy(d->self, w);
    free_scored(&o);
    free_lm_input(&h);
    close_devices(&b);
}

/* A logit of -inf is that of a token which cannot come: it adds nothing to the
 * entropy, and the gradient does not see it. */
static void impossible_tokens_enter_nothing(void **state)
{
    enum { VOCAB = 20, NEVER = 5 };
    float x[2] = { 1, 1e30f };
    float w[2 * VOCAB];
    int32_t target = 3;
    float dlogp = 0.5f;
    float dentropy = 0.25f;
    double logp[VOCAB];
    double sum = 0;
    double entropy = 0;
    double dx = 0;
    bench b;
    (void)state;
    for (int v = 0; v < VOCAB; v++) {
        w[2 * v] = v == NEVER ? 0 : 0.125f * (float)(v % 7);
        w[2 * v + 1] = v == NEVER ? -1e30f : 0;
        sum += v == NEVER ? 0 : exp((double)w[2 * v]);
    }
    for (int v = 0; v < VOCAB; v++) {
        logp[v] = (double)w[2 * v] - log(sum);
        entropy -= v == NEVER ? 0 : exp(logp[v]) * logp[v];
    }
    for (int v = 0; v < VOCAB; v++)
        dx += (double)w[2 * v] *
              (0.5 * (v == target) -
               exp(logp[v]) * (0.5 + 0.25 * (logp[v] + entropy)));
    open_cpu_devices(&b);
    for (int d = 0; d < b.count; d++) {
        const lm_input h = { .items = 1,
                             .vocab = VOCAB,
                             .dim = 2,
                             .w = w,
                             .x = x,
                             .targets = &target };
        scored got = make_scored(1);
        float grad[2] = { 0 };
        const grads g = { &dlogp, &dentropy, grad, NULL };
        xray_weight *weight = create_weight(&b.dev[d], w, VOCAB, 2);
        xray_lm_head_logp op = make_logp_into(&h, weight, &got);
        must(b.dev[d].ops->lm_head_logp(b.dev[d].self, NULL, &op));
        b.dev[d].ops->weight_destroy(b.dev[d].self, weight);
        assert_near(got.logp[0], logp[target], 4e-6, "logp");
        assert_near(got.entropy[0], entropy, 4e-6, "entropy");
        run_grad(&b.dev[d], &h, &got, &g, 0, 1);
        assert_near(grad[0], dx, 4e-6, "dx");
        assert_true(grad[1] == 0);
        free_scored(&got);
    }
    close_devices(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(logps_match_float64),
        cmocka_unit_test(impossible_tokens_enter_nothing),
        cmocka_unit_test(gradients_match_float64_under_any_cut),
        cmocka_unit_test(sampled_tokens_follow_their_definition),
        cmocka_unit_test(greedy_takes_the_lowest_of_equals),
        cmocka_unit_test(bad_targets_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
