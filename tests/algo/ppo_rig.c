/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/algo/ppo_rig.h"

#include <math.h>

xray_status ppo_rig_try(ppo_rig *r, const char *const *keys)
{
    memset(r, 0, sizeof(*r));
    fake_host_init(&r->host);
    const xray_plugin *plugin = xray_plugin_query_algo_ppo(XRAY_ABI);
    assert_non_null(plugin);
    assert_null(xray_plugin_query_algo_ppo(XRAY_ABI + 1));
    const xray_component *c = plugin->components[0];
    assert_string_equal(c->iface, XRAY_IFACE_ALGO);
    assert_string_equal(c->name, "ppo");
    assert_true(c->config_size <= sizeof(r->config));
    fake_config(c, keys, r->config);
    r->ops = c->ops;
    return r->ops->create(&r->host.api, r->config, &r->self);
}

void ppo_rig_open(ppo_rig *r, const char *const *keys)
{
    if (ppo_rig_try(r, keys) != XRAY_OK)
        fail_msg("create failed: %s", r->host.reason);
}

void ppo_rig_close(ppo_rig *r)
{
    r->ops->destroy(r->self);
    r->self = NULL;
}

uint32_t ppo_rig_needs(ppo_rig *r)
{
    xray_needs needs = { .head = XRAY_HEAD(xray_needs) };
    assert_int_equal(r->ops->needs(r->self, &needs), XRAY_OK);
    return needs.flags;
}

static void put(void *ctx, const char *name, double value)
{
    ppo_rig *r = ctx;
    int i = 0;
    while (i < r->put_count && strcmp(r->names[i], name) != 0)
        i++;
    assert_true(i < 16);
    r->names[i] = name;
    r->values[i] = value;
    r->put_count += i == r->put_count;
}

double ppo_rig_put(const ppo_rig *r, const char *name)
{
    for (int i = 0; i < r->put_count; i++)
        if (strcmp(r->names[i], name) == 0)
            return r->values[i];
    return (double)NAN;
}

void ppo_batch_init(ppo_batch *batch)
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
                             .value = batch->value,
                             .reward = batch->reward,
                             .advantage = batch->advantage,
                             .returns = batch->returns };
}

uint32_t ppo_row(ppo_batch *batch, int32_t prompt, int32_t response,
                 float score)
{
    uint32_t row = batch->b.rows++;
    assert_true(row < PPO_ROWS);
    int32_t first = batch->row_start[row];
    int32_t end = first + prompt + response;
    assert_true(end <= PPO_TOKENS);
    batch->row_start[row + 1] = end;
    batch->prompt_len[row] = prompt;
    batch->group[row] = (int32_t)row;
    batch->row_id[row] = 1000 + row;
    for (int32_t i = first + prompt; i < end; i++)
        batch->mask[i] = 1;
    if (response)
        batch->reward[end - 1] = score;
    batch->b.tokens = (uint32_t)end;
    return row;
}

/* A number in [-1, 1) from a small generator (Numerical Recipes' constants). */
static float draw(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return (float)(*state >> 8) * 0x1p-23f - 1.0f;
}

void ppo_fill(ppo_batch *batch, uint32_t seed)
{
    for (uint32_t i = 0; i < batch->b.tokens; i++) {
        batch->old_logp[i] = -1.5f + draw(&seed);
        batch->logp_now[i] = batch->old_logp[i] + 0.5f * draw(&seed);
        batch->ref_logp[i] = batch->old_logp[i] + draw(&seed);
        batch->entropy_now[i] = 1.5f + draw(&seed);
        batch->value[i] = draw(&seed);
        batch->value_now[i] = batch->value[i] + draw(&seed);
        if (batch->mask[i] == 0)
            batch->old_logp[i] = batch->logp_now[i] = batch->ref_logp[i] =
                batch->entropy_now[i] = batch->value[i] = batch->value_now[i] =
                    (float)NAN;
    }
}

xray_status ppo_rig_prepare(ppo_rig *r, ppo_batch *batch)
{
    xray_metric_sink sink = { .head = XRAY_HEAD(xray_metric_sink),
                              .ctx = r,
                              .put = put };
    return r->ops->prepare(r->self, &batch->b, &sink);
}

xray_status ppo_rig_observe(ppo_rig *r)
{
    const char *const names[] = { "actor/lr" };
    const double values[] = { 0.5 };
    return r->ops->observe(r->self, names, values, 1);
}

xray_batch ppo_cut(const ppo_batch *batch, uint32_t first, uint32_t rows,
                   int32_t *starts)
{
    int32_t at = batch->row_start[first];
    xray_batch cut = batch->b;
    for (uint32_t i = 0; i <= rows; i++)
        starts[i] = batch->row_start[first + i] - at;
    cut.rows = rows;
    cut.tokens = (uint32_t)starts[rows];
    cut.row_start = starts;
    cut.prompt_len += first;
    cut.row_id += first;
    cut.group += first;
    cut.loss_mask += at;
    cut.old_logp += at;
    cut.ref_logp = cut.ref_logp ? cut.ref_logp + at : NULL;
    cut.value += at;
    cut.reward += at;
    cut.advantage += at;
    cut.returns += at;
    return cut;
}

static xray_status call(ppo_rig *r, ppo_batch *batch, const ppo_mini *mini,
                        const void *context, uint64_t size,
                        xray_metric_sums *sums)
{
    int32_t starts[PPO_ROWS + 1];
    int32_t at = batch->row_start[mini->first];
    xray_batch micro = ppo_cut(batch, mini->first, mini->rows, starts);
    micro.reward = NULL;
    xray_loss_call in = { .head = XRAY_HEAD(xray_loss_call),
                          .batch = &micro,
                          .value = batch->value_now + at,
                          .dvalue = batch->dvalue + at };
    if (mini->critic)
        return r->ops->critic_loss(context, size, &in, sums);
    in.logp = batch->logp_now + at;
    in.entropy = batch->entropy_now + at;
    in.dlogp = batch->dlogp + at;
    in.dentropy = batch->dentropy + at;
    return r->ops->loss(context, size, &in, sums);
}

static xray_totals totals_of(const ppo_batch *batch, const ppo_mini *mini)
{
    xray_totals t = { .head = XRAY_HEAD(xray_totals), .max_response = 32 };
    for (uint32_t r = mini->first; r < mini->first + mini->rows; r++) {
        double row = 0;
        for (int32_t i = batch->row_start[r]; i < batch->row_start[r + 1]; i++)
            row += (double)batch->mask[i];
        t.rows += row > 0;
        t.tokens += row;
    }
    return t;
}

xray_status ppo_rig_mini(ppo_rig *r, ppo_batch *batch, const ppo_mini *mini,
                         ppo_sums *out)
{
    char context[1024];
    uint64_t size = 0;
    int32_t starts[PPO_ROWS + 1];
    xray_batch whole = ppo_cut(batch, mini->first, mini->rows, starts);
    xray_totals totals = totals_of(batch, mini);
    xray_metric_sums sums = { .head = XRAY_HEAD(xray_metric_sums),
                              .sum = out->sum,
                              .weight = out->weight };
    memset(out, 0, sizeof(*out));
    for (const char *const *n = r->ops->metric_names(); *n; n++)
        sums.count++;
    assert_true(sums.count <= PPO_METRICS);
    assert_int_equal(
        r->ops->context(r->self, &whole, &totals, context, 8, &size),
        XRAY_E_RANGE);
    assert_true(size > 8 && size < sizeof(context));
    /* At an odd address: it is a blob that may have come over a wire. */
    assert_int_equal(r->ops->context(r->self, &whole, &totals, context + 1,
                                     sizeof(context) - 1, &size),
                     XRAY_OK);
    uint32_t cut = mini->cut ? mini->cut : mini->rows;
    ppo_mini part = *mini;
    if (!mini->cut) {
        part.rows = 0;
        assert_int_equal(call(r, batch, &part, context + 1, size, &sums),
                         XRAY_OK);
    }
    for (uint32_t at = 0; at < mini->rows; at += cut) {
        part.first = mini->first + at;
        part.rows = mini->rows - at < cut ? mini->rows - at : cut;
        xray_status status = call(r, batch, &part, context + 1, size, &sums);
        if (status != XRAY_OK)
            return status;
    }
    return XRAY_OK;
}

double ppo_rig_metric(const ppo_rig *r, const ppo_sums *sums, const char *name)
{
    const char *const *names = r->ops->metric_names();
    for (int i = 0; names[i]; i++)
        if (strcmp(names[i], name) == 0)
            return sums->weight[i] > 0 ? sums->sum[i] / sums->weight[i]
                                       : (double)NAN;
    fail_msg("no metric %s", name);
    return 0;
}
