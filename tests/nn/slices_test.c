/* SPDX-License-Identifier: Apache-2.0
 *
 * Proves that slices of a model, each computed by a thread and joined by a
 * watch, give the bits of one rank that has the entire model, also where the
 * layers are divided into two stages: hidden states, log-probabilities,
 * entropies, values, gradients, and hidden states with a KV cache. Weights of
 * slices come from the model's table and from its files.
 */
#include <pthread.h>

#include <xray/comm.h>

#include "model/hf/param_slots.h"
#include "model/hf/safetensors.h"
#include "tests/nn/fixture.h"
#include "tests/scratch.h"
#include "tests/testing.h"

#define MOST_RANKS 8u
#define MOST_STAGES 2u
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
    xray_status status = s->f[0].device.ops->sync(s->f[0].device.self, NULL);
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
    memcpy(s->out.hidden, pack.in, sizeof s->out.hidden);
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
    uint64_t dim = s->f[0].config.hidden;
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
            const float *hidden = NULL;
            batch.kv = kv[i];
            status =
                xm_decode(s->f[i].decoder, spaces[i], &batch, &hidden, &s->err);
            batch.in = hidden;
        }
        if (status == XRAY_OK)
            memcpy(s->out.decoded + at * dim, batch.in,
                   n * dim * sizeof(float));
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
    if (s->status == XRAY_OK)
        s->status = compute_in_spaces(s, 0);
    if (s->status != XRAY_OK && s->meeting)
        give_up(s->meeting);
    return NULL;
}

/* Makes the decoder of a slice with the model's weights. */
static void make_stage(rank_state *s, const fixture *model, fixture *f)
{
    const xm_watch watch = { .ctx = s, .join = join_rows };
    int value = xm_layout_find(model->layout, XM_VALUE_HEAD) != NULL;
    fixture_ok(xm_layout_create(&f->config, value, &s->err, &f->layout),
               &s->err);
    fixture_ok(xm_weights_create(f->layout, f->device.ops, f->device.self,
                                 "test", XM_WEIGHTS_TRAINABLE, &s->err,
                                 &f->weights),
               &s->err);
    fixture_ok(xm_weights_import(f->weights, &model->weights->table, &s->err),
               &s->err);
    fixture_ok(xm_decoder_create(&f->config, &f->weights->table, POSITIONS,
                                 "test", &s->err, &f->decoder),
               &s->err);
    xm_decoder_watch(f->decoder, &watch);
}

static void make_slice(rank_state *s, const fixture *model)
{
    xm_config slice;
    fixture_ok(xm_config_slice(&model->config, s->rank, s->meeting->ranks,
                               &s->err, &slice),
               &s->err);
    for (uint32_t i = 0; i < s->stages; i++) {
        fixture *f = &s->f[i];
        *f = (fixture){ .device = fixture_open(1, "auto"), .config = slice };
        if (s->stages > 1)
            fixture_ok(xm_config_stage(&slice, i, 1, &s->err, &f->config),
                       &s->err);
        make_stage(s, model, f);
        s->out.grads[i] = fixture_grads(f);
    }
}

/* ---- comparing ---------------------------------------------------------- */

static void expect_bits(const void *got, const void *want, size_t bytes,
                        const char *kind, uint32_t ranks, const char *what)
{
    if (memcmp(got, want, bytes) != 0)
        fail_msg("%s, %u ranks: %s: other bits", kind, ranks, what);
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

/* Head norms have the part of their rank; all other gradients are those of the
 * model. */
static void compare_gradient(const rank_state *all, const xm_param *whole,
                             const rank_state *ranks, uint32_t count,
                             const char *kind)
{
    const float *want =
        all->out.grads[0]->buckets[whole->bucket] + whole->offset;
    float *rows[MOST_RANKS];
    int heads = whole->slot == XM_Q_NORM || whole->slot == XM_K_NORM;
    for (uint32_t r = 0; r < count; r++) {
        rows[r] = calloc(whole->count, sizeof(float));
        assert_non_null(rows[r]);
        const xm_param *part = sum_stages(&ranks[r], whole->name, rows[r]);
        assert_non_null(part);
        for (uint64_t at = 0, run = 0; at < part->count && !heads; at += run) {
            uint64_t from = 0;
            run = xm_param_run(part, at, &from);
            expect_bits(rows[r] + at, want + from, run * sizeof(float), kind,
                        count, whole->name);
        }
    }
    for (uint64_t at = 0; heads && at < whole->count; at++) {
        float sum = add_tree(rows, count, at);
        expect_bits(&sum, want + at, sizeof sum, kind, count, whole->name);
    }
    for (uint32_t r = 0; r < count; r++)
        free(rows[r]);
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

static void run_slices(const rank_state *all, uint32_t count, uint32_t stages,
                       const char *kind)
{
    meeting m = { .ranks = count };
    pthread_t threads[MOST_RANKS];
    rank_state *ranks = calloc(count, sizeof *ranks);
    assert_non_null(ranks);
    assert_int_equal(pthread_mutex_init(&m.mutex, NULL), 0);
    assert_int_equal(pthread_cond_init(&m.all_there, NULL), 0);
    for (uint32_t r = 0; r < count; r++) {
        ranks[r] = (rank_state){ .stages = stages,
                                 .meeting = &m,
                                 .rank = r,
                                 .flags = all->flags,
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
        compare_outcomes(all, &ranks[r], kind, count);
    }
    for (uint32_t i = 0; i < all->f[0].layout->param_count; i++)
        compare_gradient(all, &all->f[0].layout->params[i], ranks, count, kind);
    for (uint32_t i = 0; i < count * stages; i++) {
        rank_state *s = &ranks[i / stages];
        xm_grads_destroy(s->out.grads[i % stages]);
        fixture_end(&s->f[i % stages]);
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
            fixture_make(&all->f[0], kind, k + 1);
            all->stages = 1;
            all->flags = flags[i];
            all->rows = &rows;
            all->items = &items;
            all->out.grads[0] = fixture_grads(&all->f[0]);
            (void)run_rank(all);
            fixture_ok(all->status, &all->err);
            for (uint32_t n = 1; n <= xm_segments(&kind->config); n *= 2)
                for (uint32_t stages = 1; stages <= MOST_STAGES; stages++)
                    run_slices(all, n, stages, kind->name);
            xm_grads_destroy(all->out.grads[0]);
            fixture_end(&all->f[0]);
            free(all);
            fixture_items_free(&items);
            fixture_rows_free(&rows);
        }
}

/* ---- weights of a slice ------------------------------------------------- */

/* A slice of a model, or a stage of it, on the model's device. */
typedef struct cut_weights {
    xm_config config;
    xm_layout *layout;
    xm_weights *weights;
} cut_weights;

static cut_weights cut_model(const fixture *model, uint32_t rank,
                             uint32_t ranks, uint32_t layer, uint32_t layers)
{
    cut_weights c = { 0 };
    xm_config slice;
    xr_err err = { "" };
    int value = xm_layout_find(model->layout, XM_VALUE_HEAD) != NULL;
    fixture_ok(xm_config_slice(&model->config, rank, ranks, &err, &slice),
               &err);
    fixture_ok(xm_config_stage(&slice, layer, layers, &err, &c.config), &err);
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
            cut_weights c = cut_model(&f, r, ranks, r % 2, 2 - r % 2);
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
    cut_weights half = cut_model(&f, 1, 2, 0, 2);
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
    cut_weights other = cut_model(&f, 0, 2, 0, 2);
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
