/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/algo/rig.h"

#include <math.h>

static const xray_component *component(void)
{
    const xray_plugin *plugin = xray_plugin_query_algo_grpo(XRAY_ABI);
    assert_non_null(plugin);
    assert_null(xray_plugin_query_algo_grpo(XRAY_ABI + 1));
    const xray_component *c = plugin->components[0];
    assert_string_equal(c->iface, XRAY_IFACE_ALGO);
    assert_string_equal(c->name, "grpo");
    return c;
}

xray_status rig_try(rig *r, const char *const *keys)
{
    memset(r, 0, sizeof(*r));
    fake_host_init(&r->host);
    const xray_component *c = component();
    assert_true(c->config_size <= sizeof(r->config));
    fake_config(c, keys, r->config);
    r->ops = c->ops;
    r->kl_penalty = r->kl_coefficient = r->flat = -1;
    return r->ops->create(&r->host.api, r->config, &r->self);
}

void rig_open(rig *r, const char *const *keys)
{
    if (rig_try(r, keys) != XRAY_OK)
        fail_msg("create failed: %s", r->host.reason);
}

void rig_close(rig *r)
{
    r->ops->destroy(r->self);
    r->self = NULL;
}

void rig_batch_init(rig_batch *batch)
{
    memset(batch, 0, sizeof(*batch));
    batch->b = (xray_batch){ .head = XRAY_HEAD(xray_batch),
                             .row_start = batch->row_start,
                             .prompt_len = batch->prompt_len,
                             .loss_mask = batch->mask,
                             .row_id = batch->row_id,
                             .group = batch->group,
                             .old_logp = batch->old_logp,
                             .ref_logp = batch->ref_logp,
                             .rollout_logp = batch->rollout_logp,
                             .baseline = batch->baseline,
                             .reward = batch->reward,
                             .advantage = batch->advantage,
                             .returns = batch->returns,
                             .scores = batch->scores,
                             .score_weight = batch->score_weight,
                             .score_count = 1 };
    batch->score_weight[0] = batch->score_weight[1] = 1;
}

uint32_t rig_row(rig_batch *batch, int32_t prompt, int32_t response,
                 int32_t group, float score)
{
    uint32_t row = batch->b.rows++;
    assert_true(row < RIG_ROWS);
    int32_t first = batch->row_start[row];
    int32_t end = first + prompt + response;
    assert_true(end <= RIG_TOKENS);
    batch->row_start[row + 1] = end;
    batch->prompt_len[row] = prompt;
    batch->group[row] = group;
    batch->row_id[row] = 1000 + row;
    for (int32_t i = first + prompt; i < end; i++)
        batch->mask[i] = 1;
    if (response)
        batch->reward[end - 1] = score;
    batch->scores[row] = score;
    batch->b.tokens = (uint32_t)end;
    return row;
}

float rig_advantage(const rig_batch *batch, uint32_t row)
{
    return batch->advantage[batch->row_start[row + 1] - 1];
}

/* A number in [-1, 1) from a small generator (Numerical Recipes' constants). */
static float draw(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return (float)(*state >> 8) * 0x1p-23f - 1.0f;
}

void rig_fill(rig_batch *batch, uint32_t seed)
{
    for (uint32_t i = 0; i < batch->b.tokens; i++) {
        batch->old_logp[i] = -1.5f + draw(&seed);
        batch->logp[i] = batch->old_logp[i] + 0.7f * draw(&seed);
        batch->ref_logp[i] = batch->old_logp[i] + draw(&seed);
        batch->entropy[i] = 1.5f + draw(&seed);
        batch->advantage[i] = 2 * draw(&seed);
        batch->rollout_logp[i] = batch->old_logp[i] + 0.3f * draw(&seed);
    }
}

static void put(void *ctx, const char *name, double value)
{
    rig *r = ctx;
    assert_true(r->puts < 64);
    (void)snprintf(r->put[r->puts].name, sizeof(r->put[0].name), "%s", name);
    r->put[r->puts++].value = value;
    if (strcmp(name, "actor/reward_kl_penalty") == 0)
        r->kl_penalty = value;
    else if (strcmp(name, "actor/reward_kl_penalty_coeff") == 0)
        r->kl_coefficient = value;
    else if (strcmp(name, "reward/frac_reward_zero_std") == 0)
        r->flat = value;
}

double rig_put(const rig *r, const char *name)
{
    for (uint32_t i = 0; i < r->puts; i++)
        if (strcmp(r->put[i].name, name) == 0)
            return r->put[i].value;
    fail_msg("%s was not put", name);
    return 0;
}

xray_status rig_prepare(rig *r, rig_batch *batch)
{
    xray_metric_sink sink = { .head = XRAY_HEAD(xray_metric_sink),
                              .ctx = r,
                              .put = put };
    r->puts = 0;
    return r->ops->prepare(r->self, &batch->b, &sink);
}

static xray_totals totals(const rig_batch *batch)
{
    xray_totals t = { .head = XRAY_HEAD(xray_totals), .max_response = 32 };
    for (uint32_t r = 0; r < batch->b.rows; r++) {
        double row = 0;
        for (int32_t i = batch->row_start[r]; i < batch->row_start[r + 1]; i++)
            row += (double)batch->mask[i];
        t.rows += row > 0;
        t.tokens += row;
    }
    return t;
}

/* Rows [first, first + rows) as a batch of their own. */
static xray_status call_loss(rig *r, rig_batch *batch, const void *context,
                             uint64_t size, const uint32_t range[2],
                             int entropy, xray_metric_sums *sums)
{
    int32_t row_start[RIG_ROWS + 1];
    int32_t at = batch->row_start[range[0]];
    for (uint32_t i = 0; i <= range[1]; i++)
        row_start[i] = batch->row_start[range[0] + i] - at;
    xray_batch micro = batch->b;
    micro.rows = range[1];
    micro.tokens = (uint32_t)row_start[range[1]];
    micro.row_start = row_start;
    micro.prompt_len += range[0];
    micro.row_id += range[0];
    micro.group += range[0];
    micro.loss_mask += at;
    micro.old_logp += at;
    micro.ref_logp = micro.ref_logp ? micro.ref_logp + at : NULL;
    micro.rollout_logp = micro.rollout_logp ? micro.rollout_logp + at : NULL;
    micro.baseline = NULL;
    micro.reward = NULL;
    micro.advantage += at;
    micro.returns = NULL;
    xray_loss_call call = { .head = XRAY_HEAD(xray_loss_call),
                            .batch = &micro,
                            .first_row = range[0],
                            .logp = batch->logp + at,
                            .entropy = entropy ? batch->entropy + at : NULL,
                            .dlogp = batch->dlogp + at,
                            .dentropy = entropy ? batch->dentropy + at : NULL };
    return r->ops->loss(context, size, &call, sums);
}

/* The context of the whole batch, picks included, at an odd address: it is a
 * blob that may have come over a wire. */
static uint64_t make_context(rig *r, rig_batch *batch, char *blob, uint64_t cap)
{
    uint64_t size = 0;
    xray_needs needs = { .head = XRAY_HEAD(xray_needs) };
    xray_totals t = totals(batch);
    assert_int_equal(r->ops->context(r->self, &batch->b, &t, blob, 8, &size),
                     XRAY_E_RANGE);
    assert_true(size > 8 && size < cap);
    assert_int_equal(
        r->ops->context(r->self, &batch->b, &t, blob + 1, cap - 1, &size),
        XRAY_OK);
    assert_int_equal(r->ops->needs(r->self, &needs), XRAY_OK);
    if (needs.flags & XRAY_NEED_MINI_FORWARD)
        assert_int_equal(
            r->ops->select(r->self, &batch->b, batch->logp, blob + 1, size),
            XRAY_OK);
    return size;
}

uint32_t rig_marks(rig *r, rig_batch *batch, unsigned char *out)
{
    char blob[4096];
    uint64_t size = make_context(r, batch, blob, sizeof(blob));
    uint32_t marks = 0;
    memcpy(out, blob + 1 + size - batch->b.tokens, batch->b.tokens);
    for (uint32_t i = 0; i < batch->b.tokens; i++)
        marks += out[i];
    return marks;
}

/* Rows [range[0], range[0] + range[1]) in micro-batches of `cut` rows. */
static xray_status run_rank(rig *r, rig_batch *batch, const void *context,
                            uint64_t size, const uint32_t range[2],
                            uint32_t cut, int entropy, xray_metric_sums *sums)
{
    uint32_t count = (range[1] + cut - 1) / cut;
    for (uint32_t k = 0; k < count; k++) {
        uint32_t first = (r->reverse ? count - 1 - k : k) * cut;
        uint32_t left = range[1] - first;
        uint32_t micro[2] = { range[0] + first, left < cut ? left : cut };
        xray_status status =
            call_loss(r, batch, context, size, micro, entropy, sums);
        if (status != XRAY_OK)
            return status;
    }
    return XRAY_OK;
}

xray_status rig_loss(rig *r, rig_batch *batch, uint32_t cut, int entropy,
                     rig_sums *out)
{
    memset(out, 0, sizeof(*out));
    memset(batch->dlogp, 0, sizeof(batch->dlogp));
    memset(batch->dentropy, 0, sizeof(batch->dentropy));
    rig_sums part;
    xray_metric_sums sums = { .head = XRAY_HEAD(xray_metric_sums),
                              .sum = part.sum,
                              .weight = part.weight };
    for (const char *const *n = r->ops->metric_names(); *n; n++)
        sums.count++;
    assert_true(sums.count <= RIG_METRICS);
    char context[4096];
    uint64_t size = make_context(r, batch, context, sizeof(context));
    memset(&part, 0, sizeof(part));
    if (!cut) {
        uint32_t none[2] = { 0, 0 };
        assert_int_equal(
            call_loss(r, batch, context + 1, size, none, entropy, &sums),
            XRAY_OK);
        cut = batch->b.rows ? batch->b.rows : 1;
    }
    uint32_t ranks = r->ranks ? r->ranks : 1;
    for (uint32_t k = 0; k < ranks; k++) {
        uint32_t first = batch->b.rows * k / ranks;
        uint32_t range[2] = { first, batch->b.rows * (k + 1) / ranks - first };
        memset(&part, 0, sizeof(part));
        xray_status status =
            run_rank(r, batch, context + 1, size, range, cut, entropy, &sums);
        if (status != XRAY_OK)
            return status;
        for (int i = 0; i < RIG_METRICS; i++) {
            out->sum[i] += part.sum[i];
            out->weight[i] += part.weight[i];
        }
    }
    return XRAY_OK;
}

double rig_metric(const rig *r, const rig_sums *sums, const char *name)
{
    const char *const *names = r->ops->metric_names();
    for (int i = 0; names[i]; i++)
        if (strcmp(names[i], name) == 0)
            return sums->weight[i] > 0 ? sums->sum[i] / sums->weight[i]
                                       : (double)NAN;
    fail_msg("no metric %s", name);
    return 0;
}
