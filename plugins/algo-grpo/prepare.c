/* SPDX-License-Identifier: Apache-2.0 */
#include "plugins/algo-grpo/prepare.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

void grpo_workspace_free(grpo_workspace *work)
{
    free(work->scores);
    free(work->groups);
    *work = (grpo_workspace){ 0 };
}

static int reserve(grpo_workspace *work, uint32_t rows)
{
    if (rows <= work->rows)
        return 0;
    double *scores = malloc(rows * sizeof(*scores));
    grpo_score_range *groups = malloc(rows * sizeof(*groups));
    if (!scores || !groups) {
        free(scores);
        free(groups);
        return -1;
    }
    grpo_workspace_free(work);
    work->scores = scores;
    work->groups = groups;
    work->rows = rows;
    return 0;
}

static xray_status fail_row(const xray_host *host, xray_status code,
                            const xray_batch *batch, uint32_t row,
                            const char *what)
{
    char text[256];
    uint64_t id = batch->row_id ? batch->row_id[row] : row;
    (void)snprintf(text, sizeof(text), "row %" PRIu64 ": %s", id, what);
    return host->fail(host, code, "prepare", text);
}

/* Takes beta * KL off the reward of every token in the loss (verl
 * `apply_kl_penalty`) and returns the row's mean KL. */
static double penalise(const grpo_kl_rule *kl, xray_batch *batch, uint32_t row)
{
    double sum = 0;
    double tokens = 0;
    for (int32_t i = batch->row_start[row]; i < batch->row_start[row + 1];
         i++) {
        double mask = (double)batch->loss_mask[i];
        if (mask == 0)
            continue;
        double value =
            mask * grpo_kl(kl->type, kl->bounded, (double)batch->old_logp[i],
                           (double)batch->ref_logp[i])
                       .value;
        batch->reward[i] =
            (float)((double)batch->reward[i] - kl->coefficient * value);
        sum += value;
        tokens += mask;
    }
    return sum / (tokens + 1e-8);
}

/* A row's score: the sum of the rewards of its response, whether or not a
 * token is in the loss (the score may stand on an observation). */
static double row_score(const xray_batch *batch, uint32_t row)
{
    double sum = 0;
    int32_t first = batch->row_start[row] + batch->prompt_len[row];
    for (int32_t i = first; i < batch->row_start[row + 1]; i++)
        sum += (double)batch->reward[i];
    return sum;
}

static xray_status score_rows(const xray_host *host, const grpo_rule *rule,
                              grpo_workspace *work, xray_batch *batch,
                              const xray_metric_sink *metrics)
{
    double kl = 0;
    for (uint32_t r = 0; r < batch->rows; r++) {
        if (!isfinite(row_score(batch, r)))
            return fail_row(host, XRAY_E_NUMERIC, batch, r,
                            "its reward is not finite");
        if (rule->kl_reward.use)
            kl += penalise(&rule->kl_reward, batch, r);
        work->scores[r] = row_score(batch, r);
        if (!isfinite(work->scores[r]))
            return fail_row(host, XRAY_E_NUMERIC, batch, r,
                            "its KL to the reference is not finite");
    }
    if (rule->kl_reward.use) {
        metrics->put(metrics->ctx, "actor/reward_kl_penalty",
                     kl / (double)batch->rows);
        metrics->put(metrics->ctx, "actor/reward_kl_penalty_coeff",
                     rule->kl_reward.coefficient);
    }
    return XRAY_OK;
}

static int32_t group_of(const xray_batch *batch, uint32_t row)
{
    return batch->group ? batch->group[row] : (int32_t)row;
}

/* Two passes: the deviations are taken from a mean that is known. A group of
 * equal scores has its mean and a deviation of 0 exactly, not by rounding. */
static xray_status measure_groups(const xray_host *host, grpo_workspace *work,
                                  const xray_batch *batch)
{
    for (uint32_t g = 0; g < batch->rows; g++)
        work->groups[g] = (grpo_score_range){ .low = (double)INFINITY,
                                              .high = -(double)INFINITY };
    for (uint32_t r = 0; r < batch->rows; r++) {
        int32_t g = group_of(batch, r);
        if (g < 0 || (uint32_t)g >= batch->rows)
            return fail_row(host, XRAY_E_ARG, batch, r,
                            "its group is out of range");
        grpo_score_range *range = &work->groups[g];
        double score = work->scores[r];
        range->low = score < range->low ? score : range->low;
        range->high = score > range->high ? score : range->high;
        range->group.mean += score;
        range->group.count++;
    }
    for (uint32_t g = 0; g < batch->rows; g++) {
        grpo_score_range *range = &work->groups[g];
        if (range->group.count)
            range->group.mean /= (double)range->group.count;
        if (range->low == range->high)
            range->group.mean = range->low;
    }
    for (uint32_t r = 0; r < batch->rows; r++) {
        grpo_group *group = &work->groups[group_of(batch, r)].group;
        double d = work->scores[r] - group->mean;
        group->deviation += d * d;
    }
    for (uint32_t g = 0; g < batch->rows; g++) {
        grpo_group *group = &work->groups[g].group;
        if (group->count > 1)
            group->deviation =
                sqrt(group->deviation / (double)(group->count - 1));
    }
    return XRAY_OK;
}

/* Share of groups whose scores are all the same: they teach nothing. */
static double flat_share(const grpo_workspace *work, uint32_t rows)
{
    double groups = 0;
    double flat = 0;
    for (uint32_t g = 0; g < rows; g++) {
        const grpo_score_range *range = &work->groups[g];
        groups += range->group.count > 0;
        flat += range->group.count > 1 && range->low == range->high;
    }
    return flat / groups;
}

static void spread(xray_batch *batch, uint32_t row, float advantage)
{
    for (int32_t i = batch->row_start[row]; i < batch->row_start[row + 1];
         i++) {
        float value = batch->loss_mask[i] != 0 ? advantage : 0.0f;
        batch->advantage[i] = value;
        if (batch->returns)
            batch->returns[i] = value;
    }
}

static xray_status complete(const xray_host *host, const grpo_rule *rule,
                            const xray_batch *batch)
{
    if (!batch->reward || !batch->advantage || !batch->loss_mask ||
        !batch->prompt_len)
        return host->fail(host, XRAY_E_ARG, "prepare",
                          "the batch lacks reward, advantage, "
                          "loss_mask or prompt_len");
    if (rule->kl_reward.use && (!batch->old_logp || !batch->ref_logp))
        return host->fail(host, XRAY_E_ARG, "prepare",
                          "use_kl_in_reward needs old_logp and "
                          "ref_logp");
    return XRAY_OK;
}

xray_status grpo_prepare(const xray_host *host, const grpo_rule *rule,
                         grpo_workspace *work, xray_batch *batch,
                         const xray_metric_sink *metrics)
{
    if (!batch->rows)
        return XRAY_OK;
    xray_status status = complete(host, rule, batch);
    if (status != XRAY_OK)
        return status;
    if (reserve(work, batch->rows))
        return host->fail(host, XRAY_E_NOMEM, "prepare", "out of memory");
    status = score_rows(host, rule, work, batch, metrics);
    if (status != XRAY_OK)
        return status;
    status = measure_groups(host, work, batch);
    if (status != XRAY_OK)
        return status;
    for (uint32_t r = 0; r < batch->rows; r++) {
        const grpo_group *group = &work->groups[group_of(batch, r)].group;
        float a =
            (float)grpo_advantage(&rule->estimator, group, work->scores[r]);
        if (!isfinite(a))
            return fail_row(host, XRAY_E_NUMERIC, batch, r,
                            "its advantage is beyond the range of a float");
        spread(batch, r, a);
    }
    metrics->put(metrics->ctx, "reward/frac_reward_zero_std",
                 flat_share(work, batch->rows));
    return XRAY_OK;
}
