/* SPDX-License-Identifier: Apache-2.0
 *
 * The rig of PPO: fills batches and runs its losses.
 */
#include "tests/algo/ppo_rig.h"

#include <math.h>

static void offer_values(rig_batch *batch)
{
    batch->b.value = batch->value;
}

const rig_algo rig_tested = { .name = "ppo",
                              .query = xray_plugin_query_algo_ppo,
                              .offer = offer_values };

uint32_t ppo_row(rig_batch *batch, int32_t prompt, int32_t response,
                 float score)
{
    return rig_row(batch, prompt, response, (int32_t)batch->b.rows, score);
}

void ppo_fill(rig_batch *batch, uint32_t seed)
{
    for (uint32_t i = 0; i < batch->b.tokens; i++) {
        batch->old_logp[i] = -1.5f + rig_draw(&seed);
        batch->logp[i] = batch->old_logp[i] + 0.5f * rig_draw(&seed);
        batch->ref_logp[i] = batch->old_logp[i] + rig_draw(&seed);
        batch->entropy[i] = 1.5f + rig_draw(&seed);
        batch->value[i] = rig_draw(&seed);
        batch->value_now[i] = batch->value[i] + rig_draw(&seed);
        if (batch->mask[i] == 0)
            batch->old_logp[i] = batch->logp[i] = batch->ref_logp[i] =
                batch->entropy[i] = batch->value[i] = batch->value_now[i] =
                    (float)NAN;
    }
}

xray_status ppo_observe(rig *r)
{
    const char *const names[] = { "actor/lr" };
    const double values[] = { 0.5 };
    return r->ops->observe(r->self, names, values, 1);
}

static xray_status call_loss(rig *r, rig_batch *batch, const ppo_mini *mini,
                             const void *context, uint64_t size,
                             xray_metric_sums *sums)
{
    int32_t starts[RIG_ROWS + 1];
    int32_t at = batch->row_start[mini->first];
    xray_batch micro = rig_cut(batch, mini->first, mini->rows, starts);
    micro.reward = NULL;
    xray_loss_call in = { .header = XRAY_HEADER(xray_loss_call),
                          .batch = &micro,
                          .value = batch->value_now + at,
                          .dvalue = batch->dvalue + at };
    if (mini->critic)
        return r->ops->critic_loss(context, size, &in, sums);
    in.logp = batch->logp + at;
    in.entropy = batch->entropy + at;
    in.dlogp = batch->dlogp + at;
    in.dentropy = batch->dentropy + at;
    return r->ops->loss(context, size, &in, sums);
}

xray_status ppo_run_mini(rig *r, rig_batch *batch, const ppo_mini *mini,
                         rig_sums *out)
{
    char context[1024];
    xray_metric_sums sums = rig_sums_open(r, out);
    uint64_t size = rig_context(r, batch, mini->first, mini->rows, context,
                                sizeof(context));
    uint32_t cut = mini->cut ? mini->cut : mini->rows;
    ppo_mini part = *mini;
    if (!mini->cut) {
        part.rows = 0;
        assert_int_equal(call_loss(r, batch, &part, context + 1, size, &sums),
                         XRAY_OK);
    }
    for (uint32_t at = 0; at < mini->rows; at += cut) {
        part.first = mini->first + at;
        part.rows = mini->rows - at < cut ? mini->rows - at : cut;
        xray_status status =
            call_loss(r, batch, &part, context + 1, size, &sums);
        if (status != XRAY_OK)
            return status;
    }
    return XRAY_OK;
}
