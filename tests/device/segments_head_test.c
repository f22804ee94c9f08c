/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests that the LM head sums its vocabulary in segments: whole, from slices,
 * over given logits, and with its gradient, against plain loops, bit by bit. In
 * bfloat16 the loops get the device's logits.
 */
#include <xray/comm.h>

#include "tests/device/bench.h"
#include "tests/device/lm_input.h"

/* Vocabularies whose last segment is short, with up to eight segments, whose
 * length need not be a multiple of 16. */
static const struct {
    lm_input h;
    size_t segment;
} cases[] = {
    { { .items = 2, .vocab = 29, .dim = 33, .tempered = 1, .softcap = 3.0f },
      16 },
    { { .items = 5, .vocab = 96, .dim = 8 }, 96 },
    { { .items = 19, .vocab = 513, .dim = 24, .tempered = 1 }, 80 },
    { { .items = 3, .vocab = 1026, .dim = 20, .softcap = 30.0f }, 176 },
    { { .items = 7, .vocab = 5003, .dim = 40, .tempered = 1 }, 637 },
    { { .items = 2, .vocab = 9100, .dim = 4, .tempered = 1 }, 4608 },
};
#define CASES (sizeof(cases) / sizeof(*cases))

/* ---- reference ---------------------------------------------------------- */

static float map_one(const dev *d, uint32_t which, float x)
{
    float y;
    const cpu_device *cpu = d->self;
    cpu->k->map(which, &y, &x, 1);
    return y;
}

static float reduce_sixteen(float *sums)
{
    for (int half = 8; half; half /= 2)
        for (int i = 0; i < half; i++)
            sums[i] = sums[i] + sums[i + half];
    return sums[0];
}

static float join_tree(const float *sums, uint32_t n)
{
    uint32_t left = n > 1 ? xray_comm_left(n) : 0;
    return n == 1 ? *sums
                  : join_tree(sums, left) + join_tree(sums + left, n - left);
}

/* S and M of the n logits z with the maximum m. */
static void sum_segments(const dev *d, const float *z, size_t n, size_t segment,
                         float m, float out[2])
{
    float sums[2][XRAY_SEGMENTS];
    uint32_t count = 0;
    for (size_t first = 0; first < n; first += segment, count++) {
        float sum[16] = { 0 };
        float moment[16] = { 0 };
        for (size_t i = 0; i < segment && first + i < n; i++) {
            float x = z[first + i] - m;
            float e = map_one(d, CPU_MAP_EXP, x);
            sum[i % 16] += e;
            if (e > 0)
                moment[i % 16] = fmaf(e, x, moment[i % 16]);
        }
        sums[0][count] = reduce_sixteen(sum);
        sums[1][count] = reduce_sixteen(moment);
    }
    out[0] = join_tree(sums[0], count);
    out[1] = join_tree(sums[1], count);
}

/* The scores of all items from the logits z, which have the softcap, at their
 * temperature or, without `tempered`, at 1. */
static scored score_plainly(const dev *d, const lm_input *h, const float *z,
                            size_t segment, int tempered)
{
    scored o = make_scored(h->items);
    float *row = alloc_floats(h->vocab);
    for (size_t i = 0; i < h->items; i++) {
        float m = -INFINITY;
        for (size_t j = 0; j < h->vocab; j++) {
            row[j] = z[i * h->vocab + j];
            row[j] = tempered ? row[j] / h->temperature[i] : row[j];
            m = row[j] > m ? row[j] : m;
        }
        float sums[2];
        sum_segments(d, row, h->vocab, segment, m, sums);
        float log_sum = map_one(d, CPU_MAP_LOG, sums[0]);
        o.logp[i] = (row[h->targets[i]] - m) - log_sum;
        o.entropy[i] = log_sum - sums[1] / sums[0];
        o.lse[i] = m + log_sum;
    }
    free(row);
    return o;
}

static float *make_logits(const dev *d, const lm_input *h, float softcap)
{
    float *z = alloc_floats(h->items * h->vocab);
    xray_weight *w = create_weight(d, h->w, h->vocab, h->dim);
    compute_logits(d->ops, d->self, h, w, softcap, z, h->vocab);
    d->ops->weight_destroy(d->self, w);
    return z;
}

static void assert_same_scores(const scored *got, const scored *want, size_t n,
                               const char *where)
{
    assert_same_bits(got->logp, want->logp, n, "logp", where);
    assert_same_bits(got->entropy, want->entropy, n, "entropy", where);
    assert_same_bits(got->lse, want->lse, n, "lse", where);
}

/* ---- scores and their gradient ------------------------------------------ */

/* A slice of the vocabulary that begins with a segment. */
typedef struct slice {
    xray_weight *weight;
    xray_lm_head_logp op;
} slice;

typedef struct cut {
    slice slice[XRAY_SEGMENTS];
    uint32_t slices;
    float *partials;
    float *top;
} cut;

static void close_cut(const dev *d, cut *c)
{
    for (uint32_t s = 0; s < c->slices; s++) {
        d->ops->weight_destroy(d->self, c->slice[s].weight);
        free(c->slice[s].op.logits);
    }
    free(c->partials);
    free(c->top);
}

/* Scores slices of `each` segments: first all of them to find the maximum, then
 * again from the logits that they keep. */
static cut score_slices(const dev *d, const lm_input *h, size_t segment,
                        size_t each)
{
    cut c = { .top = alloc_floats(h->items),
              .partials = alloc_floats(XRAY_SEGMENTS * 4 * h->items) };
    for (size_t first = 0; first < h->vocab; first += each * segment) {
        slice *s = &c.slice[c.slices];
        size_t left = h->vocab - first;
        lm_input part = *h;
        part.vocab = left < each * segment ? left : each * segment;
        s->weight = create_weight(d, h->w + first * h->dim, part.vocab, h->dim);
        s->op = make_logp(&part, s->weight);
        s->op.logits = alloc_logits(&part);
        s->op.partial = c.partials + (size_t)4 * h->items * c.slices++;
        s->op.vocab_first = first;
        s->op.segment = segment;
        must(d->ops->lm_head_logp(d->self, NULL, &s->op));
        for (size_t i = 0; i < h->items; i++)
            if (first == 0 || s->op.partial[4 * i] > c.top[i])
                c.top[i] = s->op.partial[4 * i];
    }
    for (uint32_t s = 0; s < c.slices; s++) {
        c.slice[s].op.top = c.top;
        c.slice[s].op.kept = 1;
        c.slice[s].op.x = NULL;
        must(d->ops->lm_head_logp(d->self, NULL, &c.slice[s].op));
    }
    return c;
}

/* The gradient of the input from a slice, or from the whole vocabulary. */
static float *compute_dx(const dev *d, const lm_input *h, xray_lm_head_logp f,
                         const scored *o)
{
    float *dx = alloc_floats(h->items * h->dim);
    float *dlogp = alloc_floats(h->items);
    for (size_t i = 0; i < h->items; i++)
        dlogp[i] = 0.5f + (float)i;
    f.x = h->x;
    f.lse = o->lse;
    f.entropy = o->entropy;
    xray_lm_head_grad op = { .header = XRAY_HEADER(xray_lm_head_grad),
                             .forward = &f,
                             .dlogp = dlogp,
                             .dentropy = dlogp,
                             .dx = dx };
    must(d->ops->lm_head_grad(d->self, NULL, &op));
    free(dlogp);
    return dx;
}

/* Adds the gradients of slices first .. first + n - 1 as a tree. */
static float *join_dx(const dev *d, const lm_input *h, const cut *c,
                      uint32_t first, uint32_t n, const scored *o)
{
    if (n == 1)
        return compute_dx(d, h, c->slice[first].op, o);
    uint32_t left = xray_comm_left(n);
    float *a = join_dx(d, h, c, first, left, o);
    float *b = join_dx(d, h, c, first + left, n - left, o);
    for (size_t i = 0; i < h->items * h->dim; i++)
        a[i] = a[i] + b[i];
    free(b);
    return a;
}

/* Slices of 1, 2, 4 and 8 segments, joined, against the whole. */
static void check_slices(const dev *d, const lm_input *h, size_t segment,
                         const scored *want, const float *dx)
{
    for (size_t each = 1; each <= XRAY_SEGMENTS; each *= 2) {
        cut c = score_slices(d, h, segment, each);
        scored got = make_scored(h->items);
        xray_lm_head_join op = { .header = XRAY_HEADER(xray_lm_head_join),
                                 .items = { h->items, NULL },
                                 .partials = c.partials,
                                 .slice_stride = 4 * h->items,
                                 .logp = got.logp,
                                 .entropy = got.entropy,
                                 .lse = got.lse,
                                 .slices = c.slices };
        must(d->ops->lm_head_join(d->self, NULL, &op));
        assert_same_scores(&got, want, h->items, d->name);
        float *joined = join_dx(d, h, &c, 0, c.slices, want);
        assert_same_bits(joined, dx, h->items * h->dim, "joined dx", d->name);
        free(joined);
        free_scored(&got);
        close_cut(d, &c);
    }
}

/* Gives the gradient of the input. The logits are the device's own. */
static float *check_vocabulary(const dev *cpu, const dev *d, const lm_input *h,
                               size_t segment, int kept)
{
    float *z = make_logits(d, h, h->softcap);
    scored want = score_plainly(cpu, h, z, segment, h->tempered);
    scored got = make_scored(h->items);
    got.logits = kept ? alloc_logits(h) : NULL;
    xray_weight *w = create_weight(d, h->w, h->vocab, h->dim);
    xray_lm_head_logp op = make_logp_into(h, w, &got);
    op.segment = segment;
    must(d->ops->lm_head_logp(d->self, NULL, &op));
    assert_same_scores(&got, &want, h->items, d->name);
    float *dx = compute_dx(d, h, op, &want);
    check_slices(d, h, segment, &want, dx);
    d->ops->weight_destroy(d->self, w);
    free_scored(&got);
    free_scored(&want);
    free(z);
    return dx;
}

static void the_vocabulary_is_summed_in_segments(void **state)
{
    (void)state;
    bench b;
    open_devices(&b);
    const int same = b.count;
#ifdef BENCH_CUDA
    b.dev[b.count++] = open_cuda(CUDA_BFLOAT16, "cuda, bf16");
#endif
    for (size_t c = 0; c < CASES; c += TEST_STEP) {
        lm_input h = make_lm_input(cases[c].h);
        size_t n = h.items * h.dim;
        float *first = NULL;
        for (int i = 0; i < b.count; i++) {
            float *dx = check_vocabulary(&b.dev[0], &b.dev[i], &h,
                                         cases[c].segment, i % 2);
            first = first ? first : copy_floats(dx, n);
            if (i < same)
                assert_same_bits(dx, first, n, "dx", b.dev[i].name);
            free(dx);
        }
        free(first);
        free_lm_input(&h);
    }
    close_devices(&b);
}

/* ---- draws and picks ---------------------------------------------------- */

/* Draws a token for each item, from the hidden states or from the logits z. */
static void draw_tokens(const dev *d, const lm_input *h, const xray_draw *draws,
                        size_t segment, const float *z, const sampled *r)
{
    xray_weight *w = z ? NULL : create_weight(d, h->w, h->vocab, h->dim);
    xray_sample op = { .header = XRAY_HEADER(xray_sample),
                       .items = { h->items, NULL },
                       .weight = w,
                       .x = z ? NULL : h->x,
                       .draws = draws,
                       .token = r->token,
                       .raw_logp = r->raw,
                       .logp = r->logp,
                       .logits = z,
                       .logits_stride = z ? h->vocab : 0,
                       .vocab = z ? h->vocab : 0,
                       .softcap = h->softcap,
                       .draw_stride = sizeof(xray_draw),
                       .segment = segment };
    must(d->ops->sample(d->self, NULL, &op));
    if (w)
        d->ops->weight_destroy(d->self, w);
}

/* The drawn tokens become the targets of the reference. */
static void check_draws(const dev *cpu, const dev *d, lm_input *h,
                        size_t segment, const float *z, const float *capped)
{
    float found[32];
    int32_t token[32];
    int32_t want[32];
    sampled r = { token, alloc_floats(h->items), alloc_floats(h->items), NULL };
    sampled first = { want, r.raw, r.logp, NULL };
    xray_draw draws[32];
    for (size_t i = 0; i < h->items; i++)
        draws[i] = (xray_draw){ .key = 7,
                                .position = (uint32_t)i,
                                .temperature = h->temperature[i],
                                .top_p = i % 2 ? 0.5f : 1 };
    for (int given = 0; given < 2; given++) {
        draw_tokens(cpu, h, draws, segment, given ? z : NULL, &first);
        draw_tokens(d, h, draws, segment, given ? z : NULL, &r);
        assert_memory_equal(token, want, h->items * sizeof(*token));
        memcpy(h->targets, token, h->items * sizeof(*token));
        scored raw = score_plainly(cpu, h, capped, segment, 0);
        scored own = score_plainly(cpu, h, capped, segment, 1);
        assert_same_bits(r.raw, raw.logp, h->items, "raw logp", d->name);
        assert_same_bits(r.logp, own.logp, h->items, "logp", d->name);
        xray_pick_logp pick = { .header = XRAY_HEADER(xray_pick_logp),
                                .items = { h->items, NULL },
                                .logits = z,
                                .stride = h->vocab,
                                .vocab = h->vocab,
                                .ids = token,
                                .logp = found,
                                .count = 1,
                                .given = 1,
                                .softcap = h->softcap,
                                .segment = segment };
        must(d->ops->pick_logp(d->self, NULL, &pick));
        assert_same_bits(found, raw.logp, h->items, "picked logp", d->name);
        free_scored(&raw);
        free_scored(&own);
    }
    free(r.raw);
    free(r.logp);
}

static void draws_and_picks_sum_the_same_segments(void **state)
{
    (void)state;
    bench b;
    open_devices(&b);
    for (size_t c = 1 % TEST_STEP; c < CASES; c += TEST_STEP) {
        lm_input h = make_lm_input(cases[c].h);
        float *z = make_logits(&b.dev[0], &h, 0);
        float *capped = make_logits(&b.dev[0], &h, h.softcap);
        for (int d = 0; d < b.count; d++)
            check_draws(&b.dev[0], &b.dev[d], &h, cases[c].segment, z, capped);
        free(z);
        free(capped);
        free_lm_input(&h);
    }
    close_devices(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_vocabulary_is_summed_in_segments),
        cmocka_unit_test(draws_and_picks_sum_the_same_segments),
    };
    return cmocka_run_group_tests_name("device.segments_head", tests, NULL,
                                       NULL);
}
