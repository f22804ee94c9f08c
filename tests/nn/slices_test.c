/* SPDX-License-Identifier: Apache-2.0
 *
 * Proves that slices of a model, each computed by a thread and joined by a
 * watch, give the bits of one rank that has the entire model: hidden states,
 * log-probabilities, entropies, values, gradients, and hidden states with a KV
 * cache. Weights of slices come from the model's table and from its files.
 */
#include <pthread.h>

#include <xray/comm.h>

#include "model/hf/param_slots.h"
#include "model/hf/safetensors.h"
#include "tests/nn/fixture.h"
#include "tests/scratch.h"
#include "tests/testing.h"

#define MOST_RANKS 8u
#define POSITIONS 64u
#define TOKENS 28u

#define BASE                                                                 \
    .layers = 2, .hidden = 20, .max_positions = POSITIONS, .norm_eps = 1e-5, \
    .init_range = 0.02, .attn_scale = 0.35
#define ROTARY(dims) .rotary = (dims), .rope = { .theta = 10000, .scale = 1 }

static const fixture_kind kinds[] = {
    { "qwen2, two heads of q to one of k",
      { BASE, ROTARY(6), .arch = XM_ARCH_QWEN2, .heads = 8, .kv_heads = 4,
        .head_dim = 6, .ffn = 20, .vocab = 200, .tied = 1, .qkv_bias = 1,
        .gated = 1, .act = XM_ACT_SILU, .embed_scale = 1 },
      0 },
    { "qwen3, eight segments",
      { BASE, ROTARY(4), .arch = XM_ARCH_QWEN3, .heads = 8, .kv_heads = 8,
        .head_dim = 4, .ffn = 32, .vocab = 121, .tied = 1, .qk_norm = 1,
        .gated = 1, .act = XM_ACT_SILU, .embed_scale = 1 },
      0 },
    { "llama, every bias, value head",
      { BASE, ROTARY(6), .arch = XM_ARCH_LLAMA, .heads = 4, .kv_heads = 2,
        .head_dim = 6, .ffn = 14, .vocab = 100, .qkv_bias = 1, .o_bias = 1,
        .mlp_bias = 1, .gated = 1, .act = XM_ACT_SILU, .embed_scale = 1 },
      1 },
    { "gemma 2, post-norms, caps and biases",
      { BASE,
        ROTARY(4),
        .arch = XM_ARCH_GEMMA2,
        .heads = 4,
        .kv_heads = 4,
        .head_dim = 4,
        .ffn = 24,
        .vocab = 128,
        .tied = 1,
        .qkv_bias = 1,
        .o_bias = 1,
        .post_norms = 1,
        .norm_offset = 1,
        .gated = 1,
        .act = XM_ACT_GELU_TANH,
        .attn_softcap = 1.5,
        .logit_softcap = 2.5,
        .embed_scale = 4.5,
        .sliding = { 1 },
        .window = 5,
        .rope_local = { .theta = 500, .scale = 1 } },
      0 },
    { "gpt2, untied, value head",
      { BASE, .arch = XM_ARCH_GPT2, .heads = 8, .kv_heads = 8, .head_dim = 3,
        .ffn = 40, .vocab = 125, .qkv_bias = 1, .o_bias = 1, .mlp_bias = 1,
        .layer_norm = 1, .act = XM_ACT_GELU_TANH, .learned_positions = 1,
        .fused = 1, .transposed = 1, .embed_scale = 1 },
      1 },
    { "phi3, part of a head turns",
      { BASE, ROTARY(4), .arch = XM_ARCH_PHI3, .heads = 8, .kv_heads = 4,
        .head_dim = 6, .ffn = 24, .vocab = 193, .fused = 1, .gated = 1,
        .act = XM_ACT_SILU, .embed_scale = 1 },
      0 },
};
#define KINDS (sizeof kinds / sizeof kinds[0])

/* ---- ranks -------------------------------------------------------------- */

/* Where the threads of a model's ranks meet. */
typedef struct meeting {
    pthread_mutex_t mutex;
    pthread_cond_t all_there;
    uint32_t ranks;
    uint32_t there;
    uint32_t rounds;
    int failed; /* a rank will not come any more */
    float *rows[MOST_RANKS];
} meeting;

/* What a pass gives. */
typedef struct outcome {
    float hidden[TOKENS * 20];
    float logp[TOKENS];
    float entropy[TOKENS];
    float value[TOKENS];
    float decoded[TOKENS * 20];
    xm_grads *grads;
} outcome;

/* A rank of a model, or all of the model. */
typedef struct rank_state {
    fixture f;
    meeting *meeting; /* NULL: all of the model */
    uint32_t rank;
    uint32_t flags;
    const fixture_rows *rows;
    const fixture_items *items;
    outcome out;
    xray_status status;
    xr_err err;
} rank_state;

/* Waits until all ranks are there; returns 0 if one of them failed. */
static int await_ranks(meeting *m)
{
    pthread_mutex_lock(&m->mutex);
    uint32_t round = m->rounds;
    if (++m->there == m->ranks) {
        m->there = 0;
        m->rounds++;
        pthread_cond_broadcast(&m->all_there);
    }
    while (round == m->rounds && !m->failed)
        pthread_cond_wait(&m->all_there, &m->mutex);
    int ok = !m->failed;
    pthread_mutex_unlock(&m->mutex);
    return ok;
}

static void give_up(meeting *m)
{
    pthread_mutex_lock(&m->mutex);
    m->failed = 1;
    pthread_cond_broadcast(&m->all_there);
    pthread_mutex_unlock(&m->mutex);
}

static float add_tree(float *const *rows, uint32_t ranks, size_t i)
{
    if (ranks == 1)
        return rows[0][i];
    uint32_t left = xray_comm_left(ranks);
    return add_tree(rows, left, i) + add_tree(rows + left, ranks - left, i);
}

static float find_most(float *const *rows, uint32_t ranks, size_t i)
{
    float most = rows[0][i];
    for (uint32_t r = 1; r < ranks; r++)
        most = rows[r][i] > most ? rows[r][i] : most;
    return most;
}

static xray_status join_rows(void *ctx, uint32_t what, float *rows,
                             uint64_t tokens, uint64_t dim, xr_err *err)
{
    rank_state *s = ctx;
    meeting *m = s->meeting;
    size_t count = tokens * dim;
    float *joined = calloc(count + 1, sizeof *joined);
    xray_status status = s->f.device.ops->sync(s->f.device.self, NULL);
    m->rows[s->rank] = rows;
    int ok = status == XRAY_OK && joined && await_ranks(m);
    for (size_t i = 0; ok && i < count; i++)
        joined[i] = what == XM_JOIN_TOP ? find_most(m->rows, m->ranks, i)
                                        : add_tree(m->rows, m->ranks, i);
    ok = ok && await_ranks(m);
    if (ok)
        memcpy(rows, joined, count * sizeof *rows);
    free(joined);
    return ok ? XRAY_OK : xr_fail(err, XRAY_E_PEER, "a rank failed");
}

/* ---- what each rank computes -------------------------------------------- */

static xray_status train_once(rank_state *s, xm_space *space)
{
    const fixture *f = &s->f;
    const xm_items *items = &s->items->items;
    const xm_output_grads given = { s->items->dlogp, s->items->dentropy,
                                    s->items->dvalue };
    const float *dhidden = NULL;
    xm_token_outputs outputs = { 0 };
    xray_status status = xm_forward(f->decoder, space, &s->rows->pack, &s->err);
    if (status == XRAY_OK)
        status = xm_outputs(f->decoder, space, items, &outputs, &s->err);
    if (status != XRAY_OK)
        return status;
    size_t bytes = items->count * sizeof(float);
    memcpy(s->out.hidden, xm_space_hidden(space), sizeof s->out.hidden);
    memcpy(s->out.logp, outputs.logp, bytes);
    memcpy(s->out.entropy, outputs.entropy, bytes);
    if (outputs.value)
        memcpy(s->out.value, outputs.value, bytes);
    status = xm_outputs_backward(f->decoder, space, items, &given, s->out.grads,
                                 &dhidden, &s->err);
    if (status == XRAY_OK)
        status = xm_backward(f->decoder, space, &s->rows->pack, dhidden,
                             s->out.grads, &s->err);
    if (status == XRAY_OK)
        status = xm_grads_finish(s->out.grads, &s->err);
    return status;
}

/* Computes the first row over a cache: some tokens at once, then one by one. */
static xray_status decode_first_row(rank_state *s, xm_space *space)
{
    const fixture *f = &s->f;
    uint32_t tokens = (uint32_t)s->rows->row_start[1];
    xray_kv *kv = fixture_cache_open(f, POSITIONS);
    xray_status status = XRAY_OK;
    const int32_t slots[TOKENS] = { 0 };
    int32_t last[TOKENS];
    for (int32_t i = 0; i < (int32_t)TOKENS; i++)
        last[i] = i;
    for (uint32_t at = 0, n = 5; at < tokens && status == XRAY_OK;
         at += n, n = 1) {
        const float *hidden = NULL;
        const xm_decode_batch batch = { .tokens = n,
                                        .position_bound = at + n,
                                        .ids = s->rows->ids + at,
                                        .seq = slots,
                                        .positions = s->rows->positions + at,
                                        .kv = kv,
                                        .last = last,
                                        .last_count = n };
        status = xm_decode(f->decoder, space, &batch, &hidden, &s->err);
        if (status == XRAY_OK)
            memcpy(s->out.decoded + at * f->config.hidden, hidden,
                   n * f->config.hidden * sizeof(float));
    }
    fixture_cache_close(f, kv);
    return status;
}

static void *run_rank(void *ctx)
{
    rank_state *s = ctx;
    for (uint32_t i = 0; i < 2 && s->status == XRAY_OK; i++) {
        xm_space *space = NULL;
        s->status = xm_space_create(s->f.decoder, TOKENS, 4, TOKENS,
                                    i ? 0 : s->flags, "test", &s->err, &space);
        if (s->status == XRAY_OK)
            s->status = i ? decode_first_row(s, space) : train_once(s, space);
        xm_space_destroy(space);
    }
    if (s->status != XRAY_OK && s->meeting)
        give_up(s->meeting);
    return NULL;
}

static void make_slice(rank_state *s, const fixture *model)
{
    uint32_t ranks = s->meeting->ranks;
    const xm_watch watch = { .ctx = s, .join = join_rows };
    s->f.device = fixture_open(1, "auto");
    fixture_ok(
        xm_config_slice(&model->config, s->rank, ranks, &s->err, &s->f.config),
        &s->err);
    fixture_ok(
        xm_layout_create(&s->f.config,
                         xm_layout_find(model->layout, XM_VALUE_HEAD) != NULL,
                         &s->err, &s->f.layout),
        &s->err);
    fixture_ok(xm_weights_create(s->f.layout, s->f.device.ops, s->f.device.self,
                                 "test", XM_WEIGHTS_TRAINABLE, &s->err,
                                 &s->f.weights),
               &s->err);
    fixture_ok(xm_weights_import(s->f.weights, &model->weights->table, &s->err),
               &s->err);
    fixture_ok(xm_decoder_create(&s->f.config, &s->f.weights->table, POSITIONS,
                                 "test", &s->err, &s->f.decoder),
               &s->err);
    xm_decoder_watch(s->f.decoder, &watch);
}

/* ---- comparing ---------------------------------------------------------- */

static void expect_bits(const void *got, const void *want, size_t bytes,
                        const char *kind, uint32_t ranks, const char *what)
{
    if (memcmp(got, want, bytes) != 0)
        fail_msg("%s, %u ranks: %s: other bits", kind, ranks, what);
}

/* Head norms have the part of their rank; all other gradients are those of the
 * model. */
static void compare_gradients(const rank_state *all, const rank_state *ranks,
                              uint32_t count, const char *kind)
{
    for (uint32_t i = 0; i < ranks[0].f.layout->param_count; i++) {
        const xm_param *whole = &all->f.layout->params[i];
        const float *want = all->out.grads->buckets[whole->bucket];
        float *rows[MOST_RANKS];
        int heads = whole->slot == XM_Q_NORM || whole->slot == XM_K_NORM;
        for (uint32_t r = 0; r < count; r++) {
            const xm_param *part = &ranks[r].f.layout->params[i];
            rows[r] = ranks[r].out.grads->buckets[part->bucket] + part->offset;
            for (uint64_t at = 0, run = 0; at < part->count && !heads;
                 at += run) {
                uint64_t from = 0;
                run = xm_param_run(part, at, &from);
                expect_bits(rows[r] + at, want + whole->offset + from,
                            run * sizeof(float), kind, count, whole->name);
            }
        }
        for (uint64_t at = 0; heads && at < whole->count; at++) {
            float sum = add_tree(rows, count, at);
            expect_bits(&sum, want + whole->offset + at, sizeof sum, kind,
                        count, whole->name);
        }
    }
}

static void compare_outcomes(const rank_state *all, const rank_state *s,
                             const char *kind, uint32_t ranks)
{
#define SAME(what)                                                           \
    expect_bits(s->out.what, all->out.what, sizeof s->out.what, kind, ranks, \
                #what)
    SAME(hidden);
    SAME(logp);
    SAME(entropy);
    SAME(value);
    SAME(decoded);
#undef SAME
}

static void run_slices(const rank_state *all, uint32_t count, const char *kind)
{
    meeting m = { .ranks = count };
    pthread_t threads[MOST_RANKS];
    rank_state *ranks = calloc(count, sizeof *ranks);
    assert_non_null(ranks);
    assert_int_equal(pthread_mutex_init(&m.mutex, NULL), 0);
    assert_int_equal(pthread_cond_init(&m.all_there, NULL), 0);
    for (uint32_t r = 0; r < count; r++) {
        ranks[r] = (rank_state){ .meeting = &m,
                                 .rank = r,
                                 .flags = all->flags,
                                 .rows = all->rows,
                                 .items = all->items };
        make_slice(&ranks[r], &all->f);
        ranks[r].out.grads = fixture_grads(&ranks[r].f);
    }
    for (uint32_t r = 0; r < count; r++)
        assert_int_equal(pthread_create(&threads[r], NULL, run_rank, &ranks[r]),
                         0);
    for (uint32_t r = 0; r < count; r++)
        pthread_join(threads[r], NULL);
    for (uint32_t r = 0; r < count; r++) {
        fixture_ok(ranks[r].status, &ranks[r].err);
        compare_outcomes(all, &ranks[r], kind, count);
    }
    compare_gradients(all, ranks, count, kind);
    for (uint32_t r = 0; r < count; r++) {
        xm_grads_destroy(ranks[r].out.grads);
        fixture_end(&ranks[r].f);
    }
    pthread_mutex_destroy(&m.mutex);
    pthread_cond_destroy(&m.all_there);
    free(ranks);
}

static void slices_give_the_bits_of_one_rank(void **state)
{
    (void)state;
    const uint32_t lengths[] = { 12, 1, 15 };
    const uint32_t flags[] = { XM_SPACE_TRAIN | XM_SPACE_LOGITS,
                               XM_SPACE_RECOMPUTE };
    for (size_t k = 0; k < KINDS; k++)
        for (uint32_t i = 0; i < 2; i++) {
            const fixture_kind *kind = &kinds[k];
            fixture_rows rows =
                fixture_rows_make(lengths, 3, kind->config.vocab, k);
            fixture_items items =
                fixture_items_make(&rows, kind->value_head, k + 9);
            rank_state *all = calloc(1, sizeof *all);
            assert_non_null(all);
            fixture_make(&all->f, kind, k + 1);
            all->flags = flags[i];
            all->rows = &rows;
            all->items = &items;
            all->out.grads = fixture_grads(&all->f);
            (void)run_rank(all);
            fixture_ok(all->status, &all->err);
            for (uint32_t n = 2; n <= xm_segments(&kind->config); n *= 2)
                run_slices(all, n, kind->name);
            xm_grads_destroy(all->out.grads);
            fixture_end(&all->f);
            free(all);
            fixture_items_free(&items);
            fixture_rows_free(&rows);
        }
}

/* ---- weights of a slice ------------------------------------------------- */

/* A slice of a model whose values are drawn, on the model's device. */
typedef struct cut_weights {
    xm_config config;
    xm_layout *layout;
    xm_weights *weights;
} cut_weights;

static cut_weights cut_model(const fixture *model, uint32_t rank,
                             uint32_t ranks)
{
    cut_weights c = { 0 };
    xr_err err = { "" };
    int value = xm_layout_find(model->layout, XM_VALUE_HEAD) != NULL;
    fixture_ok(xm_config_slice(&model->config, rank, ranks, &err, &c.config),
               &err);
    fixture_ok(xm_layout_create(&c.config, value, &err, &c.layout), &err);
    fixture_ok(xm_weights_create(c.layout, model->device.ops,
                                 model->device.self, "test", 0, &err,
                                 &c.weights),
               &err);
    return c;
}

/* Compares a slice with the model, and clears it. */
static void check_cut(const fixture *model, const cut_weights *c,
                      const char *kind)
{
    uint64_t found = 0;
    for (uint32_t i = 0; i < c->weights->table.tensor_count; i++) {
        const xray_tensor *box = &c->weights->tensors[i];
        const xm_param *whole = xm_layout_find(model->layout, box->name);
        const float *want =
            model->weights->buckets[whole->bucket] + whole->offset;
        uint64_t cols = whole->cols ? box->extent[1] : 1;
        assert_int_equal(box->shape[0], whole->rows);
        for (uint64_t r = 0; r < box->extent[0]; r++) {
            float *row = (float *)box->data + r * box->stride[0];
            uint64_t at = whole->cols
                              ? (box->lo[0] + r) * whole->cols + box->lo[1]
                              : box->lo[0] + r;
            expect_bits(row, want + at, cols * sizeof(float), kind,
                        c->config.slice.ranks, box->name);
            memset(row, 0, cols * sizeof(float));
        }
        found += xray_box_count(box);
    }
    assert_int_equal(
        found,
        xm_config_param_count(&c->config) +
            (xm_layout_find(c->layout, XM_VALUE_HEAD) ? c->config.hidden : 0));
}

static void slices_hold_their_part_of_each_tensor(void **state)
{
    (void)state;
    for (size_t k = 0; k < KINDS; k++) {
        fixture f;
        xr_err err = { "" };
        const char *dir = scratch_path("model");
        fixture_make(&f, &kinds[k], 7);
        uint32_t ranks = xm_segments(&f.config);
        for (uint32_t r = 0; r < ranks; r++) {
            cut_weights c = cut_model(&f, r, ranks);
            fixture_ok(xm_weights_import(c.weights, &f.weights->table, &err),
                       &err);
            check_cut(&f, &c, kinds[k].name);
            fixture_ok(xm_weights_save(f.weights, dir, XM_ST_SHARD_BYTES, &err),
                       &err);
            fixture_ok(xm_weights_load(c.weights, dir, &err), &err);
            check_cut(&f, &c, kinds[k].name);
            fixture_ok(xm_weights_random(f.weights, &f.config, 3, &err), &err);
            fixture_ok(xm_weights_random(c.weights, &f.config, 3, &err), &err);
            check_cut(&f, &c, kinds[k].name);
            xm_weights_destroy(c.weights);
            xm_layout_destroy(c.layout);
        }
        fixture_end(&f);
    }
}

static void what_a_slice_cannot_do_is_refused(void **state)
{
    (void)state;
    fixture f;
    xm_decoder *decoder = NULL;
    xm_weights *shares = NULL;
    float *memory[4] = { 0 };
    xr_err err = { "" };
    fixture_make(&f, &kinds[0], 7);
    cut_weights half = cut_model(&f, 1, 2);
    assert_int_equal(xm_weights_save(half.weights, scratch_path("half"),
                                     XM_ST_SHARD_BYTES, &err),
                     XRAY_E_UNSUPPORTED);
    assert_non_null(
        strstr(err.text, "half: a slice of a model cannot be saved"));
    assert_int_equal(xm_weights_create_share(half.layout, f.device.ops,
                                             f.device.self, memory, &err,
                                             &shares),
                     XRAY_E_UNSUPPORTED);
    /* The weights of one slice do not serve another, nor the model. */
    cut_weights other = cut_model(&f, 0, 2);
    assert_int_equal(
        xm_weights_import(other.weights, &half.weights->table, &err),
        XRAY_E_UNSUPPORTED);
    assert_int_equal(xm_decoder_create(&other.config, &half.weights->table, 8,
                                       "test", &err, &decoder),
                     XRAY_E_UNSUPPORTED);
    assert_int_equal(xm_decoder_create(&f.config, &half.weights->table, 8,
                                       "test", &err, &decoder),
                     XRAY_E_UNSUPPORTED);
    xm_weights_destroy(other.weights);
    xm_layout_destroy(other.layout);
    xm_weights_destroy(half.weights);
    xm_layout_destroy(half.layout);
    fixture_end(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(slices_give_the_bits_of_one_rank),
        cmocka_unit_test(slices_hold_their_part_of_each_tensor),
        cmocka_unit_test(what_a_slice_cannot_do_is_refused),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_drop);
}
