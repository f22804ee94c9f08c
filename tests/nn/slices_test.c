/* SPDX-License-Identifier: Apache-2.0
 *
 * Proves that slices of a model, each computed by a thread and joined over
 * their group, give the bits of one rank that has the entire model, also where
 * the layers are divided into two stages: hidden states, log-probabilities,
 * entropies, values, gradients, and hidden states with a KV cache. So do ranks
 * that divide the tokens along the residual stream, and whatever the backward
 * pass computes again. Where several ranks have the same KV head, all ranks
 * have the same bits, which are those of one rank within a bound.
 */
#include <math.h>
#include <pthread.h>

#include "model/hf/param_slots.h"
#include "model/hf/safetensors.h"
#include "tests/nn/joined.h"
#include "tests/nn/reference.h"
#include "tests/nn/slice_kinds.h"
#include "tests/testing.h"
#include "tests/train/thread_comm.h"

#define MOST_RANKS 8u
#define MOST_STAGES 2u
#define POSITIONS 64u
#define TOKENS 25u

/* ---- ranks -------------------------------------------------------------- */

/* The results of a pass. */
typedef struct outcome {
    float hidden[TOKENS * 20];
    float logp[TOKENS];
    float entropy[TOKENS];
    float value[TOKENS];
    float decoded[TOKENS * 20];
    xm_grads *grads[MOST_STAGES];
} outcome;

/* A rank of a model with all of its stages, or all of the model. */
typedef struct rank_state {
    fixture f[MOST_STAGES];
    uint32_t stages;
    uint32_t rank;
    uint32_t ranks; /* 0: all of the model */
    joined by;
    xm_join kv; /* the ranks that have the same KV head */
    uint32_t flags;
    const fixture_rows *rows;
    const fixture_items *items;
    outcome out;
    xray_status status;
    xr_err err;
} rank_state;

static float add_tree(float *const *rows, uint32_t ranks, size_t i)
{
    if (ranks == 1)
        return rows[0][i];
    uint32_t left = xray_comm_left(ranks);
    return add_tree(rows, left, i) + add_tree(rows + left, ranks - left, i);
}

/* ---- what each rank computes -------------------------------------------- */

static xray_status backprop_stages(rank_state *s, xm_space *const *spaces)
{
    const xm_output_grads given = { s->items->dlogp, s->items->dentropy,
                                    s->items->dvalue };
    const float *dhidden = NULL;
    uint32_t last = s->stages - 1;
    xray_status status =
        xm_outputs_backward(s->f[last].decoder, spaces[last], &s->items->items,
                            &given, s->out.grads[last], &dhidden, &s->err);
    for (uint32_t i = s->stages; i-- > 0 && status == XRAY_OK;) {
        status = xm_backward(s->f[i].decoder, spaces[i], &s->rows->pack,
                             dhidden, s->out.grads[i], &s->err);
        dhidden = xm_space_input_grad(spaces[i]);
        if (status == XRAY_OK)
            status = xm_grads_finish(s->out.grads[i], &s->err);
        const xm_layout *layout = s->f[i].layout;
        for (uint32_t b = 0; b < layout->bucket_count; b++)
            if (status == XRAY_OK)
                status = xm_join_kv_grads(&s->kv, layout, b,
                                          s->out.grads[i]->buckets[b]);
    }
    return status;
}

static xray_status train_once(rank_state *s, xm_space *const *spaces)
{
    uint32_t last = s->stages - 1;
    size_t bytes = s->items->items.count * sizeof(float);
    xm_pack pack = s->rows->pack;
    xm_token_outputs outputs = { 0 };
    xray_status status = XRAY_OK;
    for (uint32_t i = 0; i < s->stages && status == XRAY_OK; i++) {
        status = xm_forward(s->f[i].decoder, spaces[i], &pack, &s->err);
        pack.ids = NULL;
        pack.in = xm_space_hidden(spaces[i]);
    }
    if (status == XRAY_OK)
        status = xm_outputs(s->f[last].decoder, spaces[last], &s->items->items,
                            &outputs, &s->err);
    if (status != XRAY_OK)
        return status;
    memcpy(s->out.hidden, pack.in,
           (size_t)pack.tokens * s->f[0].config.hidden *
               xm_config_act_bytes(&s->f[0].config));
    memcpy(s->out.logp, outputs.logp, bytes);
    memcpy(s->out.entropy, outputs.entropy, bytes);
    if (outputs.value)
        memcpy(s->out.value, outputs.value, bytes);
    return backprop_stages(s, spaces);
}

/* Computes the first row over a cache: some tokens at once, then one by one. */
static xray_status decode_first_row(rank_state *s, xm_space *const *spaces)
{
    uint32_t tokens = (uint32_t)s->rows->row_start[1];
    uint64_t row = s->f[0].config.hidden * xm_config_act_bytes(&s->f[0].config);
    xray_kv *kv[MOST_STAGES] = { NULL };
    xray_status status = XRAY_OK;
    const int32_t slots[TOKENS] = { 0 };
    int32_t last[TOKENS];
    for (int32_t i = 0; i < (int32_t)TOKENS; i++)
        last[i] = i;
    for (uint32_t i = 0; i < s->stages; i++)
        kv[i] = fixture_cache_open(&s->f[i], POSITIONS);
    for (uint32_t at = 0, n = 5; at < tokens && status == XRAY_OK;
         at += n, n = 1) {
        xm_decode_batch batch = { .tokens = n,
                                  .position_bound = at + n,
                                  .ids = s->rows->ids + at,
                                  .seq = slots,
                                  .positions = s->rows->positions + at,
                                  .last = last,
                                  .last_count = n };
        for (uint32_t i = 0; i < s->stages && status == XRAY_OK; i++) {
            const void *hidden = NULL;
            batch.kv = kv[i];
            status =
                xm_decode(s->f[i].decoder, spaces[i], &batch, &hidden, &s->err);
            batch.in = hidden;
        }
        if (status == XRAY_OK)
            memcpy((char *)s->out.decoded + at * row, batch.in, n * row);
    }
    for (uint32_t i = 0; i < s->stages; i++)
        fixture_cache_close(&s->f[i], kv[i]);
    return status;
}

static xray_status compute_in_spaces(rank_state *s, uint32_t flags)
{
    xm_space *spaces[MOST_STAGES] = { NULL };
    xray_status status = XRAY_OK;
    for (uint32_t i = 0; i < s->stages && status == XRAY_OK; i++)
        status = xm_space_create(s->f[i].decoder, TOKENS, 4, TOKENS, flags,
                                 "test", &s->err, &spaces[i]);
    if (status == XRAY_OK)
        status = flags ? train_once(s, spaces) : decode_first_row(s, spaces);
    for (uint32_t i = 0; i < s->stages; i++)
        xm_space_destroy(spaces[i]);
    return status;
}

static void *run_rank(void *ctx)
{
    rank_state *s = ctx;
    s->status = compute_in_spaces(s, s->flags);
    if (s->status == XRAY_OK && !(s->flags & XM_SPACE_SEQUENCE))
        s->status = compute_in_spaces(s, 0);
    return NULL;
}

static void make_slice(rank_state *s, const fixture *model)
{
    xm_config slice;
    fixture_ok(
        xm_config_slice(&model->config, s->rank, s->ranks, &s->err, &slice),
        &s->err);
    for (uint32_t i = 0; i < s->stages; i++) {
        fixture *f = &s->f[i];
        *f = (fixture){ .device = fixture_open(1, "auto"), .config = slice };
        if (s->stages > 1)
            fixture_ok(xm_config_stage(&slice, i, 1, &s->err, &f->config),
                       &s->err);
        joined_make(&s->by, model, POSITIONS, f);
        s->out.grads[i] = fixture_grads(f);
    }
}

/* ---- comparing ---------------------------------------------------------- */

/* The models and ranks that are compared. */
typedef struct comparison {
    const char *kind;
    uint32_t ranks;
    double
        bound; /* of the difference, in units of the largest value; 0: bits */
    uint32_t dtype; /* of activations */
    uint32_t reserved;
} comparison;

static void expect_floats(const comparison *c, const float *got,
                          const float *want, size_t count, const char *what)
{
    double most = 0;
    if (memcmp(got, want, count * sizeof *got) == 0)
        return;
    for (size_t i = 0; i < count; i++)
        most = fmax(most, fabs((double)want[i]));
    for (size_t i = 0; i < count; i++)
        if (!(fabs((double)got[i] - (double)want[i]) < c->bound * most))
            fail_msg("%s, %u ranks: %s: %.9g is not %.9g", c->kind, c->ranks,
                     what, (double)got[i], (double)want[i]);
}

/* The part of a parameter's gradient that a rank has: the sum over its stages.
 */
static const xm_param *sum_stages(const rank_state *s, const char *name,
                                  float *out)
{
    const xm_param *found = NULL;
    for (uint32_t i = 0; i < s->stages; i++) {
        const xm_param *part = xm_layout_find(s->f[i].layout, name);
        if (!part)
            continue;
        const float *at = s->out.grads[i]->buckets[part->bucket] + part->offset;
        for (uint64_t e = 0; e < part->count; e++)
            out[e] = found ? out[e] + at[e] : at[e];
        found = part;
    }
    return found;
}

/* Makes of a rank's part of a gradient, which has the order of the slice, the
 * elements of the model's gradient that lie there. */
static void take_part(const xm_param *part, const float *whole, float *out)
{
    for (uint64_t at = 0, run = 0; at < part->count; at += run) {
        uint64_t from = 0;
        run = xm_param_run(part, at, &from);
        memcpy(out + at, whole + from, run * sizeof *out);
    }
}

/* Head norms have the part of their rank; all other gradients are those of the
 * model. */
static void compare_gradient(const comparison *c, const rank_state *all,
                             const xm_param *whole, const rank_state *ranks)
{
    const float *model =
        all->out.grads[0]->buckets[whole->bucket] + whole->offset;
    float *rows[MOST_RANKS];
    float *want = calloc(whole->count, sizeof *want);
    int heads = whole->slot == XM_Q_NORM || whole->slot == XM_K_NORM;
    for (uint32_t r = 0; r < c->ranks; r++) {
        rows[r] = calloc(whole->count, sizeof(float));
        assert_true(rows[r] && want);
        const xm_param *part = sum_stages(&ranks[r], whole->name, rows[r]);
        assert_non_null(part);
        take_part(part, model, want);
        if (!heads)
            expect_floats(c, rows[r], want, part->count, whole->name);
    }
    for (uint64_t at = 0; heads && at < whole->count; at++)
        want[at] = add_tree(rows, c->ranks, at);
    if (heads)
        expect_floats(c, want, model, whole->count, whole->name);
    for (uint32_t r = 0; r < c->ranks; r++)
        free(rows[r]);
    free(want);
}

/* Rows of hidden states, whose elements are bf16 or fp32. */
static void expect_states(const comparison *c, const float *got,
                          const float *want, const char *what)
{
    float wide[2][TOKENS * 20];
    const float *from[2] = { got, want };
    for (int k = 0; k < 2; k++)
        for (size_t i = 0; i < TOKENS * 20; i++)
            wide[k][i] = c->dtype == XRAY_BF16
                             ? xm_bf16_to_f32(((const uint16_t *)from[k])[i])
                             : from[k][i];
    expect_floats(c, wide[0], wide[1], TOKENS * 20, what);
}

static void compare_outcomes(const comparison *c, const outcome *got,
                             const outcome *want)
{
#define SAME(what)                          \
    expect_floats(c, got->what, want->what, \
                  sizeof got->what / sizeof got->what[0], #what)
    expect_states(c, got->hidden, want->hidden, "hidden");
    SAME(logp);
    SAME(entropy);
    SAME(value);
    expect_states(c, got->decoded, want->decoded, "decoded");
#undef SAME
}

/* A parameter that several ranks have, as norms, or the KV heads of some of
 * them, has the same bits on each of them. */
static void compare_copies(const comparison *c, const rank_state *a,
                           const rank_state *b, uint32_t stage)
{
    const comparison exact = { c->kind, c->ranks, 0, c->dtype, 0 };
    const xm_layout *layout = b->f[stage].layout;
    compare_outcomes(&exact, &b->out, &a->out);
    for (uint32_t i = 0; i < layout->param_count; i++) {
        const xm_param *p = &layout->params[i];
        const xm_param *q = &a->f[stage].layout->params[i];
        const float *want = a->out.grads[stage]->buckets[q->bucket];
        const float *got = b->out.grads[stage]->buckets[p->bucket];
        if (p->slot != XM_Q_NORM && p->slot != XM_K_NORM && p->slot != XM_EMBED)
            expect_floats(&exact, got + p->offset + p->own,
                          want + q->offset + p->own, p->count - p->own,
                          p->name);
    }
}

/* Of more ranks than KV heads: their outputs are as far from double precision
 * as those of one rank may be (gradient_test.c), and gradients as far from
 * those of one rank. */
#define BOUND 2e-5
#define HALF 0.01 /* with bf16 activations */

static void compare_reference(const rank_state *all, const rank_state *s,
                              double bound)
{
    reference ref;
    reference_out want[TOKENS];
    reference_make(&ref, &all->f[0]);
    reference_run(&ref, s->rows, s->items, want);
    for (uint32_t i = 0; i < s->items->items.count; i++)
        if (!(fabs((double)s->out.logp[i] - want[i].logp) < bound &&
              fabs((double)s->out.entropy[i] - want[i].entropy) < bound &&
              (!s->items->items.value ||
               fabs((double)s->out.value[i] - want[i].value) < bound)))
            fail_msg("item %u: log-p %.9g is not %.9g, or entropy or value", i,
                     (double)s->out.logp[i], want[i].logp);
    reference_free(&ref);
}

static void run_slices(const rank_state *all, uint32_t count, uint32_t stages,
                       uint32_t sequence, const char *kind)
{
    const xm_config *model = &all->f[0].config;
    const double bound = model->dtype == XRAY_BF16 ? HALF : BOUND;
    const comparison c = { kind, count, count > xm_segments(model) ? bound : 0,
                           model->dtype, 0 };
    uint32_t each = count > model->kv_heads ? count / model->kv_heads : 1;
    thread_comm *comm = thread_comm_open(count);
    thread_comm *kv[MOST_RANKS] = { NULL };
    pthread_t threads[MOST_RANKS];
    rank_state *ranks = calloc(count, sizeof *ranks);
    assert_true(comm && ranks);
    for (uint32_t r = 0; r < count; r += each)
        kv[r] = thread_comm_open(each);
    for (uint32_t r = 0; r < count; r++) {
        ranks[r] =
            (rank_state){ .stages = stages,
                          .rank = r,
                          .ranks = count,
                          .by.slices = { thread_comm_ops(),
                                         thread_comm_group(comm, r), count, r },
                          .kv = { thread_comm_ops(),
                                  thread_comm_group(kv[r - r % each], r % each),
                                  each, r % each },
                          .flags = all->flags | sequence,
                          .rows = all->rows,
                          .items = all->items };
        make_slice(&ranks[r], &all->f[0]);
    }
    for (uint32_t r = 0; r < count; r++)
        assert_int_equal(pthread_create(&threads[r], NULL, run_rank, &ranks[r]),
                         0);
    for (uint32_t r = 0; r < count; r++)
        pthread_join(threads[r], NULL);
    for (uint32_t r = 0; r < count; r++) {
        fixture_ok(ranks[r].status, &ranks[r].err);
        if (sequence) /* the cache knows no such spaces */
            memcpy(ranks[r].out.decoded, all->out.decoded,
                   sizeof all->out.decoded);
        compare_outcomes(&c, &ranks[r].out, &all->out);
    }
    for (uint32_t i = 0; i < all->f[0].layout->param_count; i++)
        compare_gradient(&c, all, &all->f[0].layout->params[i], ranks);
    if (c.bound > 0)
        compare_reference(all, &ranks[0], c.bound);
    for (uint32_t i = stages; i < count * stages; i++)
        compare_copies(&c, &ranks[i / stages - 1], &ranks[i / stages],
                       i % stages);
    for (uint32_t i = 0; i < count * stages; i++) {
        rank_state *s = &ranks[i / stages];
        xm_grads_destroy(s->out.grads[i % stages]);
        fixture_end(&s->f[i % stages]);
    }
    thread_comm_close(comm);
    for (uint32_t r = 0; r < count; r += each)
        thread_comm_close(kv[r]);
    free(ranks);
}

/* Compares slices with one rank, which computes in a space with `flags`; so do
 * the slices, and those of so many stages divide the tokens as well. */
static void compare_kind(const fixture_kind *kind, const uint32_t *lengths,
                         uint32_t rows_count, uint32_t flags, uint32_t divided)
{
    uint64_t seed = (uint64_t)(kind - slice_kinds);
    fixture_rows rows =
        fixture_rows_make(lengths, rows_count, kind->config.vocab, seed);
    fixture_items items = fixture_items_make(&rows, kind->value_head, seed + 9);
    rank_state *all = calloc(1, sizeof *all);
    assert_non_null(all);
    fixture_make(&all->f[0], kind, seed + 1);
    all->stages = 1;
    all->flags = flags;
    all->rows = &rows;
    all->items = &items;
    all->out.grads[0] = fixture_grads(&all->f[0]);
    (void)run_rank(all);
    fixture_ok(all->status, &all->err);
    for (uint32_t n = 1; n <= slice_most_ranks(&kind->config); n *= 2)
        for (uint32_t stages = 1; stages <= MOST_STAGES; stages++)
            run_slices(all, n, stages,
                       stages == divided ? XM_SPACE_SEQUENCE : 0, kind->name);
    xm_grads_destroy(all->out.grads[0]);
    fixture_end(&all->f[0]);
    free(all);
    fixture_items_free(&items);
    fixture_rows_free(&rows);
}

static void slices_give_the_bits_of_one_rank(void **state)
{
    (void)state;
    const uint32_t lengths[] = { 11, 1, 13 };
    const uint32_t flags[] = { XM_SPACE_TRAIN | XM_SPACE_LOGITS,
                               XM_SPACE_TRAIN | XM_SPACE_INPUTS,
                               XM_SPACE_RECOMPUTE };
    for (size_t k = 0; k < slice_kind_count; k++)
        for (uint32_t i = 0; i < sizeof flags / sizeof *flags; i++)
            compare_kind(&slice_kinds[k], lengths, 3, flags[i], 1 + i % 2);
}

/* Some of eight ranks have no token of their own. */
static void fewer_tokens_than_ranks_are_divided(void **state)
{
    (void)state;
    const uint32_t lengths[] = { 5, 1 };
    compare_kind(&slice_kinds[1], lengths, 2, XM_SPACE_TRAIN, 1);
    compare_kind(&slice_kinds[4], lengths, 2, XM_SPACE_TRAIN, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(slices_give_the_bits_of_one_rank),
        cmocka_unit_test(fewer_tokens_than_ranks_are_divided),
    };
    int failed = cmocka_run_group_tests_name("nn.slices", tests, NULL, NULL);
    fixture_activations(XRAY_BF16);
    return failed +
           cmocka_run_group_tests_name("nn.slices, bf16", tests, NULL, NULL);
}
