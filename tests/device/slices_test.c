/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests that slices of the vocabulary, joined, give the log-probabilities of
 * the entire vocabulary, and add up in the order of the tree.
 */
#include "tests/device/bench.h"
#include "tests/device/lm_input.h"

#include <xray/comm.h>

static const lm_input shapes[] = {
    { .items = 1, .vocab = 16, .dim = 8 },
    { .items = 7, .vocab = 29, .dim = 33, .tempered = 1, .softcap = 3.0f },
    { .items = 67, .vocab = 513, .dim = 24, .tempered = 1 },
    { .items = 3, .vocab = 5001, .dim = 20, .softcap = 30.0f },
};
static const uint32_t cuts[] = { 1, 2, 3, 5, 8 };

/* The partial results of `slices` parts of the vocabulary, [slices, stride]. */
static float *score_slices(const dev *d, const lm_input *h, uint32_t slices,
                           size_t stride)
{
    float *partials = alloc_floats(slices * stride);
    for (uint32_t s = 0; s < slices; s++) {
        size_t first = h->vocab * s / slices;
        size_t end = h->vocab * (s + 1) / slices;
        xray_weight *w =
            create_weight(d, h->w + first * h->dim, end - first, h->dim);
        xray_lm_head_logp op = make_logp(h, w);
        op.partial = partials + s * stride;
        op.vocab_first = first;
        must(d->ops->lm_head_logp(d->self, NULL, &op));
        d->ops->weight_destroy(d->self, w);
    }
    return partials;
}

static void join_slices(const dev *d, const float *partials, uint32_t slices,
                        size_t stride, size_t items, const scored *o)
{
    xray_lm_head_join op = { .header = XRAY_HEADER(xray_lm_head_join),
                             .items = { items, NULL },
                             .partials = partials,
                             .slice_stride = stride,
                             .logp = o->logp,
                             .entropy = o->entropy,
                             .lse = o->lse,
                             .slices = slices };
    must(d->ops->lm_head_join(d->self, NULL, &op));
}

static scored score_and_join(const dev *d, const lm_input *h, uint32_t slices)
{
    size_t stride = 4 * h->items + 3 * (slices - 1);
    scored o = make_scored(h->items);
    float *partials = score_slices(d, h, slices, stride);
    join_slices(d, partials, slices, stride, h->items, &o);
    free(partials);
    return o;
}

static scored score_all(const dev *d, const lm_input *h)
{
    scored o = make_scored(h->items);
    xray_weight *w = create_weight(d, h->w, h->vocab, h->dim);
    xray_lm_head_logp op = make_logp_into(h, w, &o);
    must(d->ops->lm_head_logp(d->self, NULL, &op));
    d->ops->weight_destroy(d->self, w);
    return o;
}

static void assert_same_scores(const scored *got, const scored *want, size_t n,
                               const char *where)
{
    assert_same_bits(got->logp, want->logp, n, "joined logp", where);
    assert_same_bits(got->entropy, want->entropy, n, "joined entropy", where);
    assert_same_bits(got->lse, want->lse, n, "joined lse", where);
}

/* One slice has the bits of the entire vocabulary, which lm_head_test compares
 * with float64. */
static void slices_join_to_the_entire_vocabulary(void **state)
{
    (void)state;
    bench b;
    open_devices(&b);
    for (size_t s = 0; s < sizeof(shapes) / sizeof(*shapes); s++) {
        lm_input h = make_lm_input(shapes[s]);
        scored want = score_all(&b.dev[0], &h);
        for (size_t c = 0; c < sizeof(cuts) / sizeof(*cuts); c++) {
            scored first = score_and_join(&b.dev[0], &h, cuts[c]);
            if (cuts[c] == 1)
                assert_same_scores(&first, &want, h.items, "one slice");
            for (size_t i = 0; i < h.items; i++) {
                assert_near(first.logp[i], (double)want.logp[i], 1e-6, "logp");
                assert_near(first.entropy[i], (double)want.entropy[i], 1e-6,
                            "entropy");
                assert_near(first.lse[i], (double)want.lse[i], 1e-6, "lse");
            }
            for (int d = 1; d < b.count; d++) {
                scored got = score_and_join(&b.dev[d], &h, cuts[c]);
                assert_same_scores(&got, &first, h.items, b.dev[d].name);
                free_scored(&got);
            }
            free_scored(&first);
        }
        free_scored(&want);
        free_lm_input(&h);
    }
    close_devices(&b);
}

static float add_tree(const float *at, uint32_t n)
{
    uint32_t left = n > 1 ? xray_comm_left(n) : 0;
    return n == 1 ? *at
                  : add_tree(at, left) + add_tree(at + 4 * left, n - left);
}

/* Slices of equal maxima are added without a factor, so their sum is known to
 * the bit, and one slice that has it must give the same results. */
static void sums_are_the_tree_of_a_group(void **state)
{
    (void)state;
    enum { MOST = 13 };
    bench b;
    open_devices(&b);
    for (uint32_t n = 1; n <= MOST; n++) {
        float partials[4 * MOST];
        for (uint32_t s = 0; s < n; s++) {
            partials[4 * s] = 1.5f;
            partials[4 * s + 1] = (float)(1 + 1e4 * random_unit());
            partials[4 * s + 2] = (float)(-1e4 * random_unit());
            partials[4 * s + 3] = s == n / 2 ? 1.25f : 0.0f;
        }
        const float sum[4] = { 1.5f, add_tree(partials + 1, n),
                               add_tree(partials + 2, n), 1.25f };
        for (int d = 0; d < b.count; d++) {
            scored got = make_scored(1);
            scored want = make_scored(1);
            join_slices(&b.dev[d], partials, n, 4, 1, &got);
            join_slices(&b.dev[d], sum, 1, 4, 1, &want);
            assert_same_scores(&got, &want, 1, b.dev[d].name);
            free_scored(&got);
            free_scored(&want);
        }
    }
    close_devices(&b);
}

static void items_that_do_not_exist_stay_as_they_are(void **state)
{
    (void)state;
    bench b;
    open_devices(&b);
    const float partials[8] = { 1, 1, 0, 1, 1, 1, 0, 1 };
    int32_t live = 1;
    for (int d = 0; d < b.count; d++) {
        float logp[2] = { 9, 9 };
        xray_lm_head_join op = { .header = XRAY_HEADER(xray_lm_head_join),
                                 .items = { 2, &live },
                                 .partials = partials,
                                 .slice_stride = 8,
                                 .logp = logp,
                                 .slices = 1 };
        must(b.dev[d].ops->lm_head_join(b.dev[d].self, NULL, &op));
        assert_true(logp[0] == 0.0f && logp[1] == 9.0f);
    }
    close_devices(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(slices_join_to_the_entire_vocabulary),
        cmocka_unit_test(sums_are_the_tree_of_a_group),
        cmocka_unit_test(items_that_do_not_exist_stay_as_they_are),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
