/* SPDX-License-Identifier: Apache-2.0
 *
 * Proves the way of a conversation into the batch: an engine holds a sample,
 * its weights change, an observation follows, and it samples on. The row then
 * has a span for each version and none for the observation, which no loss
 * counts; the log-probs are a trainer's with the weights of each span.
 */
#include <math.h>

#include "core/roles/losses.h"
#include "core/run/rows.h"
#include "tests/algo/fake_host.h"
#include "tests/serve/engine.h"

const xray_plugin *xray_plugin_query_algo_grpo(uint32_t host_abi);

enum {
    PROMPT = 6,
    TURN = 5, /* tokens that a turn samples */
    SEEN = 7, /* tokens of the observation */
    LONG = PROMPT + TURN + SEEN + TURN,
    OLD = 3, /* versions of the weights */
    NEW = 4
};
static const int32_t prompt[PROMPT] = { 1, 2, 3, 4, 5, 6 };
static const int32_t seen[SEEN] = { 9, 8, 7, 6, 5, 4, 3 };

/* The caller of an engine collects this of a sample. */
typedef struct talk {
    uint32_t count; /* tokens of the response */
    uint32_t span_count;
    int32_t ids[LONG - PROMPT];
    float logp[LONG - PROMPT];
    xray_span spans[4];
} talk;

typedef struct stage {
    rig *r;
    model *m;
    void *engine;
    talk talks[2];
    xr_rows rows;
    xr_views views;
} stage;

/* ---- the conversation ---------------------------------------------------- */

/* The trainer steps: the next weights are published. */
static void set_weights(stage *s, uint64_t version)
{
    xr_err err = { "" };
    assert_int_equal(
        xm_weights_random(s->m->weights, &s->m->config, 30 + version, &err),
        XRAY_OK);
    assert_int_equal(xm_weights_changed(s->m->weights, version, &err), XRAY_OK);
}

static void publish_weights(stage *s, uint64_t version)
{
    assert_int_equal(s->r->ops->pause(s->engine, XRAY_PAUSE_KEEP), XRAY_OK);
    set_weights(s, version);
    assert_int_equal(s->r->ops->update(s->engine, NULL, version), XRAY_OK);
    assert_int_equal(s->r->ops->resume(s->engine), XRAY_OK);
}

/* Spans of an engine count from the start of the row, so a caller appends them
 * as they are. */
static void run_turn(stage *s)
{
    xray_sample_out out = { .header = XRAY_HEADER(xray_sample_out) };
    while (s->r->ops->step(s->engine) == XRAY_OK)
        ;
    while (s->r->ops->poll(s->engine, &out) == XRAY_OK) {
        talk *to = &s->talks[out.sample];
        assert_true(to->count + out.token_count <= LONG - PROMPT);
        assert_true(to->span_count + out.span_count <= 4);
        memcpy(to->ids + to->count, out.tokens,
               out.token_count * sizeof(*to->ids));
        memcpy(to->logp + to->count, out.logp,
               out.token_count * sizeof(*to->logp));
        memcpy(to->spans + to->span_count, out.spans,
               out.span_count * sizeof(*to->spans));
        to->count += out.token_count;
        to->span_count += out.span_count;
    }
}

static void observe(stage *s, uint32_t sample)
{
    talk *to = &s->talks[sample];
    assert_int_equal(s->r->ops->extend(s->engine, 1, sample, seen, SEEN),
                     XRAY_OK);
    memcpy(to->ids + to->count, seen, sizeof(seen));
    for (uint32_t i = 0; i < SEEN; i++)
        to->logp[to->count++] = NAN; /* nobody may read it */
}

/* Sample 0 has two turns, and sample 1 only the first one. */
static void hold_talks(stage *s)
{
    xray_infer_stats stats = { .header = XRAY_HEADER(xray_infer_stats) };
    xray_request q = request_make(1, prompt, PROMPT, TURN);
    q.count = 2;
    q.hold = 1;
    q.temperature = 0.8f;
    publish_weights(s, OLD);
    engine_submit(s->r, s->engine, &q);
    run_turn(s);
    publish_weights(s, NEW);
    observe(s, 0);
    run_turn(s);
    assert_int_equal(s->r->ops->stats(s->engine, &stats), XRAY_OK);
    assert_int_equal(stats.generation_tokens, 3 * TURN);
    assert_int_equal(s->r->ops->abort(s->engine, 1, XRAY_ALL_SAMPLES), XRAY_OK);
    assert_int_equal(s->r->ops->stats(s->engine, &stats), XRAY_OK);
    assert_int_equal(stats.kv_tokens, 0);
}

static void make_batch(stage *s)
{
    xr_err err = { "" };
    const xr_cut cut = { .count = 2, .budget = 2 * LONG };
    assert_int_equal(xr_rows_init(&s->rows, 2, 2 * LONG, &err), XRAY_OK);
    assert_int_equal(xr_views_init(&s->views, 2, &err), XRAY_OK);
    for (uint32_t i = 0; i < 2; i++) {
        const talk *from = &s->talks[i];
        const xr_row_in in = { .prompt = prompt,
                               .prompt_count = PROMPT,
                               .response = from->ids,
                               .response_count = from->count,
                               .logp = from->logp,
                               .spans = from->spans,
                               .span_count = from->span_count,
                               .row_id = i,
                               .temperature = 0.8f };
        if (xr_rows_add(&s->rows, &in, &err) != XRAY_OK)
            fail_msg("%s", err.text);
        s->rows.batch.reward[s->rows.batch.tokens - 1] = (float)i;
    }
    assert_int_equal(xr_views_cut(&s->views, &s->rows, &cut, &err), XRAY_OK);
    assert_int_equal(s->views.count, 1);
}

static void open_stage(stage *s, const paged_config *paged)
{
    engine_size size = { .rows = 2,
                         .row_tokens = LONG + 8,
                         .config = { .max_num_batched_tokens = 8 } };
    *s = (stage){ .r = rig_open(1) };
    if (paged)
        rig_use_paged(s->r, paged);
    s->m = model_open(s->r, MODEL_LLAMA);
    s->engine = engine_open(s->r, s->m, &size);
    hold_talks(s);
    make_batch(s);
}

static void close_stage(stage *s)
{
    s->r->ops->destroy(s->engine);
    model_close(s->m);
    rig_close(s->r);
    xr_views_free(&s->views);
    xr_rows_free(&s->rows);
}

/* ---- the batch ----------------------------------------------------------- */

static int is_observed(uint32_t t)
{
    return t >= PROMPT + TURN && t < PROMPT + TURN + SEEN;
}

static void expect_span(const xray_batch *b, uint32_t i, const xray_span *want)
{
    assert_memory_equal(&b->spans[i], want, sizeof(*want));
}

static void expect_batch(const stage *s)
{
    const xray_batch *b = s->views.pointers[0];
    uint32_t end = PROMPT + TURN + SEEN + TURN;
    assert_int_equal(b->row_start[1], end);
    assert_int_equal(b->row_start[2] - b->row_start[1], PROMPT + TURN);
    assert_int_equal(b->span_count, 3);
    expect_span(b, 0, &(xray_span){ 0, PROMPT, PROMPT + TURN, 0, OLD });
    expect_span(b, 1, &(xray_span){ 0, PROMPT + TURN + SEEN, end, 0, NEW });
    expect_span(b, 2, &(xray_span){ 1, PROMPT, PROMPT + TURN, 0, OLD });
    for (uint32_t t = 0; t < b->tokens; t++) {
        int sampled =
            t < end ? t >= PROMPT && !is_observed(t) : t >= end + PROMPT;
        assert_true(b->loss_mask[t] == (sampled ? 1 : 0));
        assert_true(sampled ? b->rollout_logp[t] < 0 : b->rollout_logp[t] == 0);
        if (t < end && is_observed(t))
            assert_int_equal(b->ids[t], seen[t - PROMPT - TURN]);
    }
}

/* The log-probs of each span are those of a forward pass of its version over
 * the row, with the observation in it. */
static void expect_trainer_logp(stage *s)
{
    const xray_batch *b = s->views.pointers[0];
    float want[LONG];
    for (uint32_t i = 0; i < b->span_count; i++) {
        const xray_span *span = &b->spans[i];
        const int32_t *row = b->ids + b->row_start[span->row];
        const float *got = b->rollout_logp + b->row_start[span->row];
        set_weights(s, span->version);
        trainer_logp(s->r, s->m, row, span->last, span->first, 0.8f, want);
        assert_memory_equal(got + span->first, want,
                            (span->last - span->first) * sizeof(*want));
    }
}

/* ---- losses -------------------------------------------------------------- */

/* Other log-probs of the first row's observation change no loss, and get no
 * gradient. */
static void spoil_observation(float *logp)
{
    for (uint32_t t = 0; t < LONG; t++)
        if (is_observed(t))
            logp[t] = -20;
}

static void expect_gradients(const xray_batch *b, const float *dlogp)
{
    for (uint32_t t = 0; t < b->tokens; t++)
        if ((b->loss_mask[t] != 0) != (dlogp[t] < 0 || dlogp[t] > 0))
            fail_msg("token %u has the gradient %g", t, (double)dlogp[t]);
}

static void expect_likelihood(const xray_batch *b)
{
    float logp[2 * LONG];
    float dlogp[2 * LONG] = { 0 };
    double tokens = 3 * TURN;
    double want = 0;
    double sum = 0;
    const xr_loss_spec spec = { .kind = XR_LOSS_SFT,
                                .context = &tokens,
                                .context_size = sizeof(tokens),
                                .sums = &sum,
                                .names = 1 };
    xr_loss_run run = { .spec = &spec };
    const xray_loss_call call = { .header = XRAY_HEADER(xray_loss_call),
                                  .batch = b,
                                  .logp = logp,
                                  .dlogp = dlogp };
    memcpy(logp, b->rollout_logp, b->tokens * sizeof(*logp));
    for (uint32_t t = 0; t < b->tokens; t++)
        want -= (double)logp[t];
    spoil_observation(logp);
    assert_int_equal(xr_loss_call(&run, &call), XRAY_OK);
    assert_true(sum == want);
    expect_gradients(b, dlogp);
}

static void ignore_metric(void *ctx, const char *name, double value)
{
    (void)ctx;
    (void)name;
    (void)value;
}

/* Runs GRPO's loss over the batch; `sum` gets its metrics. */
static void run_grpo(const xray_algo_ops *ops, void *self, xray_batch *b,
                     int spoil, double sum[32])
{
    char context[1024];
    float logp[2 * LONG];
    float dlogp[2 * LONG] = { 0 };
    uint64_t size = 0;
    const xray_totals totals = { .header = XRAY_HEADER(xray_totals),
                                 .rows = 2,
                                 .tokens = 3 * TURN,
                                 .max_response = LONG };
    double weight[16] = { 0 };
    xray_metric_sums sums = { .header = XRAY_HEADER(xray_metric_sums),
                              .sum = sum,
                              .weight = weight };
    for (const char *const *n = ops->metric_names(self); *n; n++)
        sums.count++;
    assert_true(sums.count <= 16);
    assert_int_equal(
        ops->context(self, b, &totals, context, sizeof(context), &size),
        XRAY_OK);
    for (uint32_t t = 0; t < b->tokens; t++)
        logp[t] = b->old_logp[t] + 0.01f * (float)(t % 5);
    if (spoil)
        spoil_observation(logp);
    const xray_loss_call call = { .header = XRAY_HEADER(xray_loss_call),
                                  .batch = b,
                                  .logp = logp,
                                  .dlogp = dlogp };
    assert_int_equal(ops->loss(context, size, &call, &sums), XRAY_OK);
    expect_gradients(b, dlogp);
    memcpy(sum + 16, weight, sizeof(weight));
}

static void expect_grpo(xray_batch *b)
{
    _Alignas(16) char config[1024];
    double plain[32] = { 0 };
    double spoiled[32] = { 0 };
    void *self = NULL;
    fake_host host;
    const xray_component *grpo =
        fake_component(xray_plugin_query_algo_grpo, XRAY_IFACE_ALGO, "grpo");
    const xray_algo_ops *ops = grpo->ops;
    const xray_metric_sink sink = { .header = XRAY_HEADER(xray_metric_sink),
                                    .put = ignore_metric };
    fake_host_init(&host);
    fake_config(grpo, NULL, config);
    assert_int_equal(ops->create(&host.api, config, &self), XRAY_OK);
    assert_int_equal(ops->prepare(self, b, &sink), XRAY_OK);
    for (uint32_t t = 0; t < b->tokens; t++)
        assert_int_equal(b->advantage[t] != 0, b->loss_mask[t] != 0);
    run_grpo(ops, self, b, 0, plain);
    run_grpo(ops, self, b, 1, spoiled);
    assert_memory_equal(plain, spoiled, sizeof(plain));
    ops->destroy(self);
}

/* ---- tests --------------------------------------------------------------- */

static void check_talks(const paged_config *paged)
{
    stage s;
    open_stage(&s, paged);
    expect_batch(&s);
    expect_trainer_logp(&s);
    expect_likelihood(s.views.pointers[0]);
    expect_grpo(&s.views.batches[0]);
    close_stage(&s);
}

static void turns_reach_the_batch(void **state)
{
    (void)state;
    check_talks(NULL);
}

static void turns_of_a_paged_cache_reach_the_batch(void **state)
{
    const paged_config paged = { .block_size = 16, .enable_prefix_caching = 1 };
    (void)state;
    check_talks(&paged);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(turns_reach_the_batch),
        cmocka_unit_test(turns_of_a_paged_cache_reach_the_batch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
