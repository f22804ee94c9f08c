/* SPDX-License-Identifier: Apache-2.0
 *
 * The rig of GRPO and its relatives: fills batches and runs their losses on
 * one or several ranks.
 */
#include "tests/algo/grpo_rig.h"

static void offer_scores(rig_batch *batch)
{
    batch->b.rollout_logp = batch->rollout_logp;
    batch->b.baseline = batch->baseline;
    batch->b.scores = batch->scores;
    batch->b.score_weight = batch->score_weight;
    batch->b.score_count = 1;
    batch->score_weight[0] = batch->score_weight[1] = 1;
}

const rig_algo rig_tested = { .name = "grpo",
                              .query = xray_plugin_query_algo_grpo,
                              .offer = offer_scores };

float rig_advantage(const rig_batch *batch, uint32_t row)
{
    return batch->advantage[batch->row_start[row + 1] - 1];
}

void rig_fill(rig_batch *batch, uint32_t seed)
{
    for (uint32_t i = 0; i < batch->b.tokens; i++) {
        batch->old_logp[i] = -1.5f + rig_draw(&seed);
        batch->logp[i] = batch->old_logp[i] + 0.7f * rig_draw(&seed);
        batch->ref_logp[i] = batch->old_logp[i] + rig_draw(&seed);
        batch->entropy[i] = 1.5f + rig_draw(&seed);
        batch->advantage[i] = 2 * rig_draw(&seed);
        batch->rollout_logp[i] = batch->old_logp[i] + 0.3f * rig_draw(&seed);
    }
}

/* Calls the loss for rows [range[0], range[0] + range[1]) as a micro-batch. */
static xray_status call_loss(rig *r, rig_batch *batch, const void *context,
                             uint64_t size, const uint32_t range[2],
                             int entropy, xray_metric_sums *sums)
{
    int32_t starts[RIG_ROWS + 1];
    int32_t at = batch->row_start[range[0]];
    xray_batch micro = rig_cut(batch, range[0], range[1], starts);
    uint32_t index[RIG_ROWS];
    for (uint32_t i = 0; i < range[1]; i++)
        index[i] = range[0] + i;
    micro.row_index = index;
    micro.baseline = NULL;
    micro.reward = NULL;
    micro.returns = NULL;
    xray_loss_call call = { .header = XRAY_HEADER(xray_loss_call),
                            .batch = &micro,
                            .logp = batch->logp + at,
                            .entropy = entropy ? batch->entropy + at : NULL,
                            .dlogp = batch->dlogp + at,
                            .dentropy = entropy ? batch->dentropy + at : NULL };
    return r->ops->loss(context, size, &call, sums);
}

/* Makes the context of the entire batch, with its picked tokens. */
static uint64_t make_context(rig *r, rig_batch *batch, char *blob, uint64_t cap)
{
    uint64_t size = rig_context(r, batch, 0, batch->b.rows, blob, cap);
    if (rig_needs(r) & XRAY_NEED_MINI_FORWARD)
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

/* Runs rows [range[0], range[0] + range[1]) in micro-batches of `cut` rows. */
static xray_status run_rank_rows(rig *r, rig_batch *batch, const void *context,
                                 uint64_t size, const uint32_t range[2],
                                 uint32_t cut, int entropy,
                                 xray_metric_sums *sums)
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
    xray_metric_sums sums = rig_sums_open(r, &part);
    char context[4096];
    uint64_t size = make_context(r, batch, context, sizeof(context));
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
        xray_status status = run_rank_rows(r, batch, context + 1, size, range,
                                           cut, entropy, &sums);
        if (status != XRAY_OK)
            return status;
        for (int i = 0; i < RIG_METRICS; i++) {
            out->sum[i] += part.sum[i];
            out->weight[i] += part.weight[i];
        }
    }
    return XRAY_OK;
}
