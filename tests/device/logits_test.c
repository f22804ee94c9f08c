/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests of logits between the LM head and the draw: draws from given and from
 * changed logits, and log-probabilities of several ids.
 */
#include "tests/device/bench.h"
#include "tests/device/lm_input.h"

#include <xray/numerics.h>

static const lm_input shapes[] = {
    { .items = 1, .vocab = 1, .dim = 4 },
    { .items = 2, .vocab = 16, .dim = 8, .softcap = 0.5f },
    { .items = 7, .vocab = 29, .dim = 33, .softcap = 3.0f },
    { .items = 67, .vocab = 333, .dim = 24 },
    { .items = 5, .vocab = 9001, .dim = 12, .softcap = 30.0f },
    { .items = 1100, .vocab = 19, .dim = 24 },
    { .items = 300, .vocab = 512, .dim = 16, .softcap = 5.0f },
};
#define SHAPES (sizeof(shapes) / sizeof(*shapes))

/* Logits on a device, without the softcap, in rows that need not be aligned. */
typedef struct rows {
    size_t stride;
    float *z;
} rows;

static rows make_rows(const dev *d, const lm_input *h, size_t padding)
{
    rows r = { .stride = h->vocab + padding };
    r.z = alloc_floats(h->items * r.stride);
    xray_weight *w = create_weight(d, h->w, h->vocab, h->dim);
    compute_logits(d->ops, d->self, h, w, 0.0f, r.z, r.stride);
    d->ops->weight_destroy(d->self, w);
    return r;
}

/* Draws of every kind; every third is greedy. */
static xray_draw *make_draws(const lm_input *h)
{
    xray_draw *draws = calloc(h->items, sizeof(*draws));
    assert_non_null(draws);
    for (size_t i = 0; i < h->items; i++)
        draws[i] = (xray_draw){
            .key = xray_philox_key(3, 1, i),
            .sample = (uint32_t)(i % 5),
            .position = (uint32_t)i,
            .temperature = i % 3 == 0   ? 0.0f
                           : i % 3 == 1 ? 1.0f
                                        : 0.7f,
            .top_p = i % 4 == 1 ? 0.8f : 1.0f,
            .min_p = i % 5 == 2 ? 0.05f : 0.0f,
            .top_k = i % 7 == 3 ? 4 : 0,
        };
    return draws;
}

/* Draws from given logits; `changed` may be NULL. */
static sampled sample_given(const dev *d, const lm_input *h,
                            const xray_draw *draws, const rows *given,
                            const float *changed)
{
    sampled r = { calloc(h->items + 1, sizeof(int32_t)), alloc_floats(h->items),
                  alloc_floats(h->items), NULL };
    assert_non_null(r.token);
    xray_sample op = { .header = XRAY_HEADER(xray_sample),
                       .items = { h->items, NULL },
                       .draws = draws,
                       .token = r.token,
                       .raw_logp = r.raw,
                       .logp = r.logp,
                       .logits = given->z,
                       .changed = changed,
                       .logits_stride = given->stride,
                       .vocab = h->vocab,
                       .softcap = h->softcap,
                       .draw_stride = sizeof(xray_draw) };
    must(d->ops->sample(d->self, NULL, &op));
    return r;
}

static void assert_same_draws(const sampled *got, const sampled *want,
                              size_t items, const char *where)
{
    for (size_t i = 0; i < items; i++)
        if (got->token[i] != want->token[i])
            fail_msg("%s: token %zu is %d, not %d", where, i, got->token[i],
                     want->token[i]);
    assert_same_bits(got->raw, want->raw, items, "raw logp", where);
    assert_same_bits(got->logp, want->logp, items, "logp", where);
}

static void given_logits_draw_as_the_weight_does(void **state)
{
    (void)state;
    bench b;
    open_devices(&b);
    for (size_t s = 0; s < SHAPES; s += TEST_STEP) {
        lm_input h = make_lm_input(shapes[s]);
        xray_draw *draws = make_draws(&h);
        sampled want = sample_tokens(b.dev[0].ops, b.dev[0].self, &h, draws, 0);
        for (int i = 0; i < b.count; i++) {
            rows given = make_rows(&b.dev[i], &h, (size_t)i);
            sampled got = sample_given(&b.dev[i], &h, draws, &given, NULL);
            assert_same_draws(&got, &want, h.items, b.dev[i].name);
            free_sampled(&got);
            free(given.z);
        }
        free_sampled(&want);
        free(draws);
        free_lm_input(&h);
    }
    close_devices(&b);
}

/* ---- edits -------------------------------------------------------------- */

#define EDITS 6 /* of an item, at most */
#define SETS 3

/* The edits of a caller whose struct is longer than the device's. */
typedef struct long_edit {
    xray_logit_edit edit;
    float more;
} long_edit;

typedef struct edits {
    int32_t *start;
    long_edit *all;
    uint32_t *allowed; /* any ids, none, and the lower half */
    int32_t *set;
} edits;

/* Some edits are of the same id, and some of no id. Every fourth item may have
 * any id. */
static edits make_edits(const lm_input *h)
{
    static const float penalties[] = { 0.0f, 1.0f, 1.3f, 0.5f };
    static const float adds[] = { 0.0f, -2.5f, 1.0f, 0.25f, -INFINITY };
    size_t words = (h->vocab + 31) / 32;
    edits e = { calloc(h->items + 1, sizeof(*e.start)),
                calloc(h->items * EDITS, sizeof(*e.all)),
                calloc(SETS * words, sizeof(*e.allowed)),
                calloc(h->items, sizeof(*e.set)) };
    assert_true(e.start && e.all && e.allowed && e.set);
    int32_t n = 0;
    for (size_t i = 0; i < h->items; i++) {
        e.set[i] = (int32_t)(i % (SETS + 1)) - 1;
        for (size_t j = 0; j < i % EDITS; j++, n++)
            e.all[n].edit = (xray_logit_edit){
                .id = (int32_t)random_below(h->vocab < 9 ? h->vocab : 9),
                .penalty = penalties[random_below(4)],
                .add = adds[random_below(5)],
            };
        e.start[i + 1] = n;
    }
    for (int32_t j = 0; j < n; j += 11)
        e.all[j].edit.id = j % 2 ? (int32_t)h->vocab : j % 3 ? -1 : INT32_MAX;
    for (size_t j = 0; j < h->vocab; j++) {
        if (random_below(3))
            e.allowed[j / 32] |= 1u << j % 32;
        if (j < h->vocab / 2)
            e.allowed[2 * words + j / 32] |= 1u << j % 32;
    }
    return e;
}

static void free_edits(edits *e)
{
    free(e->start);
    free(e->all);
    free(e->allowed);
    free(e->set);
}

static void edit_rows(const dev *d, const lm_input *h, const edits *e,
                      const rows *from, float *to)
{
    xray_edit_logits op = { .header = XRAY_HEADER(xray_edit_logits),
                            .items = { h->items, NULL },
                            .logits = from->z,
                            .changed = to,
                            .stride = from->stride,
                            .vocab = h->vocab,
                            .softcap = h->softcap };
    if (e) {
        op.edit_start = e->start;
        op.edits = &e->all->edit;
        op.allowed = e->allowed;
        op.allowed_set = e->set;
        op.edit_stride = sizeof(*e->all);
    }
    must(d->ops->edit_logits(d->self, NULL, &op));
}

/* Edits a row that already has its softcap, by definition. */
static void ref_edits(const lm_input *h, const edits *e, size_t i, float *z)
{
    for (int32_t j = e->start[i]; j < e->start[i + 1]; j++) {
        xray_logit_edit x = e->all[j].edit;
        if (x.id < 0 || (size_t)x.id >= h->vocab)
            continue;
        if (x.penalty != 0.0f && x.penalty != 1.0f)
            z[x.id] =
                z[x.id] > 0.0f ? z[x.id] / x.penalty : z[x.id] * x.penalty;
        z[x.id] += x.add;
    }
    const uint32_t *set =
        e->allowed + (size_t)e->set[i] * ((h->vocab + 31) / 32);
    for (size_t v = 0; v < h->vocab && e->set[i] >= 0; v++)
        if ((set[v / 32] & 1u << v % 32) == 0)
            z[v] = -INFINITY;
}

static void edited_logits_follow_their_definition(void **state)
{
    (void)state;
    bench b;
    open_devices(&b);
    for (size_t s = 1 % TEST_STEP; s < SHAPES; s += TEST_STEP) {
        lm_input h = make_lm_input(shapes[s]);
        edits e = make_edits(&h);
        rows first = make_rows(&b.dev[0], &h, 0);
        float *want = alloc_floats(h.items * h.vocab);
        edit_rows(&b.dev[0], &h, NULL, &first, want);
        for (size_t j = 0; j < h.items * h.vocab; j++) {
            double cap = (double)h.softcap;
            double z = (double)first.z[j];
            assert_near(want[j], cap == 0.0 ? z : cap * tanh(z / cap), 4e-7,
                        "softcap");
        }
        for (size_t i = 0; i < h.items; i++)
            ref_edits(&h, &e, i, want + i * h.vocab);
        for (int i = 0; i < 2 * b.count; i++) {
            const dev *d = &b.dev[i / 2];
            rows from = make_rows(d, &h, (size_t)i / 2);
            float *to = i % 2 ? from.z : alloc_floats(h.items * from.stride);
            edit_rows(d, &h, &e, &from, to);
            for (size_t r = 0; r < h.items; r++)
                assert_same_bits(to + r * from.stride, want + r * h.vocab,
                                 h.vocab, "edited", d->name);
            if (to != from.z)
                free(to);
            free(from.z);
        }
        free(want);
        free(first.z);
        free_edits(&e);
        free_lm_input(&h);
    }
    close_devices(&b);
}

/* ---- draws from changed logits ------------------------------------------ */

static size_t find_largest(const float *z, size_t n)
{
    size_t best = 0;
    for (size_t v = 1; v < n; v++)
        if (z[v] > z[best])
            best = v;
    return best;
}

/* The trainer's log-probabilities of the drawn tokens. */
static void check_logps(const dev *d, const lm_input *h, const xray_draw *draws,
                        const sampled *got)
{
    scored o = make_scored(h->items);
    xray_weight *w = create_weight(d, h->w, h->vocab, h->dim);
    xray_lm_head_logp op = make_logp_into(h, w, &o);
    op.targets = got->token;
    must(d->ops->lm_head_logp(d->self, NULL, &op));
    assert_same_bits(got->raw, o.logp, h->items, "raw logp", d->name);
    for (size_t i = 0; i < h->items; i++)
        h->temperature[i] =
            draws[i].temperature == 0.0f ? 1.0f : draws[i].temperature;
    op.temperature = h->temperature;
    must(d->ops->lm_head_logp(d->self, NULL, &op));
    assert_same_bits(got->logp, o.logp, h->items, "logp", d->name);
    d->ops->weight_destroy(d->self, w);
    free_scored(&o);
}

/* The token is the one that `changed` alone would give. A row in which nothing
 * is left gives the most likely token of the logits. */
static void check_tokens(const dev *d, const lm_input *h,
                         const xray_draw *draws, const rows *given,
                         const rows *changed, const sampled *got)
{
    lm_input plain = *h;
    plain.softcap = 0.0f;
    sampled alone = sample_given(d, &plain, draws, changed, NULL);
    float *capped = alloc_floats(h->items * given->stride);
    edit_rows(d, h, NULL, given, capped);
    for (size_t i = 0; i < h->items; i++) {
        const float *z = changed->z + i * changed->stride;
        size_t want = (size_t)alone.token[i];
        if (z[find_largest(z, h->vocab)] == -INFINITY)
            want = find_largest(capped + i * given->stride, h->vocab);
        if ((size_t)got->token[i] != want)
            fail_msg("%s: token %zu is %d, not %zu", d->name, i, got->token[i],
                     want);
    }
    free(capped);
    free_sampled(&alone);
}

static void changed_logits_decide_the_token_only(void **state)
{
    (void)state;
    bench b;
    open_devices(&b);
    for (size_t s = 2 % TEST_STEP; s < SHAPES; s += TEST_STEP) {
        lm_input h = make_lm_input(shapes[s]);
        xray_draw *draws = make_draws(&h);
        edits e = make_edits(&h);
        sampled first = { 0 };
        for (int i = 0; i < b.count; i++) {
            const dev *d = &b.dev[i];
            rows given = make_rows(d, &h, (size_t)i);
            rows changed = given;
            changed.z = alloc_floats(h.items * given.stride);
            edit_rows(d, &h, &e, &given, changed.z);
            sampled got = sample_given(d, &h, draws, &given, changed.z);
            if (i == 0)
                first = sample_given(d, &h, draws, &given, changed.z);
            assert_same_draws(&got, &first, h.items, d->name);
            check_logps(d, &h, draws, &got);
            check_tokens(d, &h, draws, &given, &changed, &got);
            free_sampled(&got);
            free(given.z);
            free(changed.z);
        }
        free_sampled(&first);
        free_edits(&e);
        free(draws);
        free_lm_input(&h);
    }
    close_devices(&b);
}

/* ---- log-probabilities of several ids ----------------------------------- */

typedef struct picked {
    uint32_t count;
    int32_t *ids; /* [items, count] */
    float *logp;
} picked;

static picked make_picked(const lm_input *h, uint32_t count)
{
    picked p = { count, calloc(h->items * count + 1, sizeof(*p.ids)),
                 alloc_floats(h->items * count) };
    assert_non_null(p.ids);
    return p;
}

static void free_picked(picked *p)
{
    free(p->ids);
    free(p->logp);
}

static void pick_ids(const dev *d, const lm_input *h, const rows *from,
                     int given, picked *p)
{
    xray_pick_logp op = { .header = XRAY_HEADER(xray_pick_logp),
                          .items = { h->items, NULL },
                          .logits = from->z,
                          .stride = from->stride,
                          .vocab = h->vocab,
                          .ids = p->ids,
                          .logp = p->logp,
                          .count = p->count,
                          .given = given ? 1 : 0,
                          .softcap = h->softcap };
    must(d->ops->pick_logp(d->self, NULL, &op));
}

/* The ids of a row in descending order of capped logits z. */
static void check_order(const float *z, size_t vocab, const int32_t *ids,
                        size_t count)
{
    char *taken = calloc(vocab, 1);
    assert_non_null(taken);
    for (size_t c = 0; c < count; c++) {
        size_t best = vocab;
        for (size_t v = 0; v < vocab; v++)
            if (!taken[v] && (best == vocab || z[v] > z[best]))
                best = v;
        assert_int_equal(ids[c], best);
        taken[best] = 1;
    }
    free(taken);
}

/* Each column of ids has the log-probabilities that lm_head_logp gives. */
static void check_picked(const dev *d, const lm_input *h, const picked *p)
{
    scored o = make_scored(h->items);
    xray_weight *w = create_weight(d, h->w, h->vocab, h->dim);
    xray_lm_head_logp op = make_logp_into(h, w, &o);
    op.targets = h->targets;
    for (uint32_t c = 0; c < p->count; c += 1 + p->count / 3) {
        for (size_t i = 0; i < h->items; i++)
            h->targets[i] = p->ids[i * p->count + c];
        must(d->ops->lm_head_logp(d->self, NULL, &op));
        for (size_t i = 0; i < h->items; i++)
            assert_same_bits(p->logp + i * p->count + c, o.logp + i, 1,
                             "picked logp", d->name);
    }
    d->ops->weight_destroy(d->self, w);
    free_scored(&o);
}

static void the_likeliest_ids_come_in_order(void **state)
{
    (void)state;
    bench b;
    open_devices(&b);
    for (size_t s = 0; s < 2 * SHAPES; s += TEST_STEP) {
        lm_input h = make_lm_input(shapes[s / 2]);
        /* Many equal logits. */
        for (size_t j = 0; s % 2 && j < h.vocab; j++)
            memcpy(h.w + j * h.dim, h.w + j / 4 % 5 * h.dim,
                   h.dim * sizeof(*h.w));
        uint32_t few = h.vocab < 5 ? (uint32_t)h.vocab : 5;
        uint32_t all = h.vocab < 400 ? (uint32_t)h.vocab : 23;
        for (int i = 0; i < b.count; i++) {
            const dev *d = &b.dev[i];
            rows from = make_rows(d, &h, (size_t)i);
            float *capped = alloc_floats(h.items * from.stride);
            edit_rows(d, &h, NULL, &from, capped);
            picked p = make_picked(&h, i % 2 ? few : all);
            pick_ids(d, &h, &from, 0, &p);
            for (size_t r = 0; r < h.items; r++)
                check_order(capped + r * from.stride, h.vocab,
                            p.ids + r * p.count, p.count);
            check_picked(d, &h, &p);
            free_picked(&p);
            free(capped);
            free(from.z);
        }
        free_lm_input(&h);
    }
    close_devices(&b);
}

static void given_ids_have_their_logps(void **state)
{
    (void)state;
    bench b;
    open_devices(&b);
    for (size_t s = 1 % TEST_STEP; s < SHAPES; s += TEST_STEP) {
        lm_input h = make_lm_input(shapes[s]);
        for (int i = 0; i < b.count; i++) {
            const dev *d = &b.dev[i];
            rows from = make_rows(d, &h, (size_t)i);
            picked p = make_picked(&h, 3);
            for (size_t j = 0; j < 3 * h.items; j++)
                p.ids[j] = (int32_t)random_below(h.vocab);
            pick_ids(d, &h, &from, 1, &p);
            check_picked(d, &h, &p);
            p.ids[0] = -1;
            p.ids[1] = (int32_t)h.vocab;
            float kept = p.logp[2];
            pick_ids(d, &h, &from, 1, &p);
            assert_true(isnan(p.logp[0]) && isnan(p.logp[1]));
            assert_true(p.logp[2] == kept);
            free_picked(&p);
            free(from.z);
        }
        free_lm_input(&h);
    }
    close_devices(&b);
}

/* ---- fewer items than the bound ----------------------------------------- */

static void items_that_do_not_exist_stay_as_they_are(void **state)
{
    (void)state;
    bench b;
    open_devices(&b);
    float z[2 * 5] = { 1, 2, 3, 4, 5, 1, 2, 3, 4, 5 };
    const xray_draw draws[2] = { { .top_p = 1 }, { .top_p = 1 } };
    int32_t live = 1;
    for (int i = 0; i < b.count; i++) {
        const dev *d = &b.dev[i];
        int32_t ids[2] = { -7, -7 };
        float out[2][2] = { { 9, 9 }, { 9, 9 } };
        float changed[10] = { 0 };
        xray_sample sample = { .header = XRAY_HEADER(xray_sample),
                               .items = { 2, &live },
                               .draws = draws,
                               .token = ids,
                               .raw_logp = out[0],
                               .logp = out[1],
                               .logits = z,
                               .logits_stride = 5,
                               .vocab = 5,
                               .draw_stride = sizeof(xray_draw) };
        must(d->ops->sample(d->self, NULL, &sample));
        assert_true(ids[0] == 4 && ids[1] == -7 && out[1][1] == 9.0f);
        xray_edit_logits edit = { .header = XRAY_HEADER(xray_edit_logits),
                                  .items = { 2, &live },
                                  .logits = z,
                                  .changed = changed,
                                  .stride = 5,
                                  .vocab = 5 };
        must(d->ops->edit_logits(d->self, NULL, &edit));
        assert_true(changed[4] == 5.0f && changed[5] == 0.0f);
        xray_pick_logp pick = { .header = XRAY_HEADER(xray_pick_logp),
                                .items = { 2, &live },
                                .logits = z,
                                .stride = 5,
                                .vocab = 5,
                                .ids = ids,
                                .logp = out[1],
                                .count = 1 };
        must(d->ops->pick_logp(d->self, NULL, &pick));
        assert_true(out[1][0] == out[0][0] && ids[1] == -7);
        assert_true(out[1][1] == 9.0f);
    }
    close_devices(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(given_logits_draw_as_the_weight_does),
        cmocka_unit_test(edited_logits_follow_their_definition),
        cmocka_unit_test(changed_logits_decide_the_token_only),
        cmocka_unit_test(the_likeliest_ids_come_in_order),
        cmocka_unit_test(given_ids_have_their_logps),
        cmocka_unit_test(items_that_do_not_exist_stay_as_they_are),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
