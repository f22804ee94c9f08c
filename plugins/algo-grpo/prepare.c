/* SPDX-License-Identifier: Apache-2.0
 *
 * Computes the advantages of a step from its rewards: penalties, groups,
 * dynamic sampling, estimators and whitening.
 */
#include "plugins/algo-grpo/prepare.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- workspace ----------------------------------------------------------- */

void grpo_workspace_free(grpo_workspace *work)
{
    free(work->scores);
    free(work->sums);
    free(work->groups);
    free(work->mask);
    *work = (grpo_workspace){ 0 };
}

static int grow_rows(grpo_workspace *work, uint32_t rows)
{
    double *scores = malloc(rows * sizeof(*scores));
    double *sums = malloc(rows * sizeof(*sums));
    xm_rl_group *groups = malloc(rows * sizeof(*groups));
    if (!scores || !sums || !groups) {
        free(scores);
        free(sums);
        free(groups);
        return -1;
    }
    free(work->scores);
    free(work->sums);
    free(work->groups);
    work->scores = scores;
    work->sums = sums;
    work->groups = groups;
    work->rows = rows;
    return 0;
}

static int grow_tokens(grpo_workspace *work, uint32_t tokens)
{
    /* Steps differ in length, so twice the size is allocated at once. */
    uint32_t capacity = tokens < UINT32_MAX / 2 ? 2 * tokens : tokens;
    float *mask = malloc(capacity * sizeof(*mask));
    if (!mask)
        return -1;
    free(work->mask);
    work->mask = mask;
    work->tokens = capacity;
    return 0;
}

xray_status grpo_reserve(grpo_driver *driver, const xray_batch *batch)
{
    grpo_workspace *work = &driver->work;
    if ((batch->rows > work->rows && grow_rows(work, batch->rows)) ||
        (driver->rule.loss.correct && batch->tokens > work->tokens &&
         grow_tokens(work, batch->tokens)))
        return driver->host->fail(driver->host, XRAY_E_NOMEM, "prepare",
                                  "out of memory");
    return XRAY_OK;
}

xray_status grpo_fail_row(const xray_host *host, xray_status code,
                          const xray_batch *batch, uint32_t row,
                          const char *what)
{
    char text[256];
    uint64_t id = batch->row_id ? batch->row_id[row] : row;
    (void)snprintf(text, sizeof(text), "row %" PRIu64 ": %s", id, what);
    return host->fail(host, code, "prepare", text);
}

/* ---- scores -------------------------------------------------------------- */

/* Subtracts beta * KL from the reward of every token in the loss (verl
 * `apply_kl_penalty`) and returns the mean KL of the row. */
static double penalise_kl(const grpo_kl_rule *kl, double coefficient,
                          xray_batch *batch, uint32_t row)
{
    double sum = 0;
    double tokens = 0;
    for (int32_t i = batch->row_start[row]; i < batch->row_start[row + 1];
         i++) {
        double mask = (double)batch->loss_mask[i];
        if (mask == 0)
            continue;
        double value =
            mask * xm_rl_kl(kl->type, kl->bounded, (double)batch->old_logp[i],
                            (double)batch->ref_logp[i])
                       .value;
        batch->reward[i] =
            (float)((double)batch->reward[i] - coefficient * value);
        sum += value;
        tokens += mask;
    }
    return sum / (tokens + 1e-8);
}

static int32_t find_response_start(const xray_batch *batch, uint32_t row)
{
    return batch->row_start[row] + batch->prompt_len[row];
}

/* Returns the sum of the rewards of a response. It includes tokens that are not
 * in the loss, because the score may be assigned to an observation. */
static double sum_row_score(const xray_batch *batch, uint32_t row)
{
    double sum = 0;
    for (int32_t i = find_response_start(batch, row);
         i < batch->row_start[row + 1]; i++)
        sum += (double)batch->reward[i];
    return sum;
}

/* Subtracts the penalty of an overlong response from the reward of its last
 * token. */
static double penalise_overlong(const grpo_rule *rule, xray_batch *batch,
                                uint32_t row)
{
    int32_t first = find_response_start(batch, row);
    int32_t end = batch->row_start[row + 1];
    if (!(rule->overlong_buffer > 0) || first >= end)
        return 0.0;
    double lost = xm_rl_overlong(end - first, rule->longest,
                                 rule->overlong_buffer, rule->overlong_factor);
    batch->reward[end - 1] = (float)((double)batch->reward[end - 1] + lost);
    return lost;
}

static xray_status score_rows(grpo_driver *driver, xray_batch *batch,
                              const xray_metric_sink *metrics)
{
    const grpo_rule *rule = &driver->rule;
    double beta = driver->kl_coefficient;
    double kl = 0;
    double lost = 0;
    for (uint32_t r = 0; r < batch->rows; r++) {
        if (!isfinite(sum_row_score(batch, r)))
            return grpo_fail_row(driver->host, XRAY_E_NUMERIC, batch, r,
                                 "its reward is not finite");
        lost += penalise_overlong(rule, batch, r);
        if (rule->kl_reward.use)
            kl += penalise_kl(&rule->kl_reward, beta, batch, r);
        driver->work.scores[r] = sum_row_score(batch, r);
        if (!isfinite(driver->work.scores[r]))
            return grpo_fail_row(driver->host, XRAY_E_NUMERIC, batch, r,
                                 "its KL to the reference is not finite");
    }
    if (rule->overlong_buffer > 0)
        metrics->put(metrics->ctx, "reward/overlong_penalty",
                     lost / batch->rows);
    if (rule->kl_reward.use) {
        kl /= batch->rows;
        metrics->put(metrics->ctx, "actor/reward_kl_penalty", kl);
        metrics->put(metrics->ctx, "actor/reward_kl_penalty_coeff", beta);
        driver->kl_coefficient =
            xm_rl_kl_update(&rule->kl_control, beta, kl, batch->rows);
    }
    return XRAY_OK;
}

/* ---- groups -------------------------------------------------------------- */

static uint32_t get_group(const xray_batch *batch, uint32_t row)
{
    return batch->group ? (uint32_t)batch->group[row] : row;
}

static double count_trained_tokens(const xray_batch *batch, const float *mask,
                                   uint32_t row)
{
    double n = 0;
    for (int32_t i = batch->row_start[row]; i < batch->row_start[row + 1]; i++)
        n += mask[i] != 0;
    return n;
}

static xray_status measure_groups(grpo_driver *driver, const xray_batch *batch)
{
    grpo_workspace *work = &driver->work;
    for (uint32_t g = 0; g < batch->rows; g++)
        work->groups[g] = (xm_rl_group){ 0 };
    for (uint32_t r = 0; r < batch->rows; r++) {
        uint32_t g = get_group(batch, r);
        if (g >= batch->rows)
            return grpo_fail_row(driver->host, XRAY_E_ARG, batch, r,
                                 "its group number is not below the number of "
                                 "rows");
        xm_rl_group_add(&work->groups[g], work->scores[r],
                        count_trained_tokens(batch, driver->mask, r), r);
    }
    for (uint32_t g = 0; g < batch->rows; g++)
        xm_rl_group_close(&work->groups[g]);
    for (uint32_t r = 0; r < batch->rows; r++)
        xm_rl_group_deviate(&work->groups[get_group(batch, r)],
                            work->scores[r]);
    return XRAY_OK;
}

/* Returns 1 if all scores of the group are equal, so that its advantages are
 * 0. */
static int is_flat_group(const xm_rl_group *group)
{
    return group->count > 1 && group->low == group->high;
}

static double measure_flat_share(const grpo_workspace *work, uint32_t rows)
{
    double groups = 0;
    double flats = 0;
    for (uint32_t g = 0; g < rows; g++) {
        groups += work->groups[g].count > 0;
        flats += is_flat_group(&work->groups[g]);
    }
    return flats / groups;
}

/* DAPO's dynamic sampling (verl `filter_groups`); groups of one sample are
 * kept. */
xray_status grpo_accept(grpo_driver *driver, const xray_batch *batch,
                        uint32_t groups, uint32_t *keep)
{
    const grpo_rule *rule = &driver->rule;
    driver->rounds++;
    for (uint32_t g = 0; g < groups; g++)
        keep[g] = 1;
    if (!rule->filter_groups || !batch->rows ||
        (rule->max_rounds > 0 && driver->rounds >= rule->max_rounds))
        return XRAY_OK;
    if (!batch->reward || !batch->prompt_len || !batch->loss_mask)
        return driver->host->fail(driver->host, XRAY_E_ARG, "accept",
                                  "the batch lacks reward, prompt_len or "
                                  "loss_mask");
    xray_status status = grpo_reserve(driver, batch);
    if (status != XRAY_OK)
        return status;
    driver->mask = batch->loss_mask;
    for (uint32_t r = 0; r < batch->rows; r++)
        driver->work.scores[r] = sum_row_score(batch, r);
    status = measure_groups(driver, batch);
    for (uint32_t g = 0; status == XRAY_OK && g < groups && g < batch->rows;
         g++)
        keep[g] = !is_flat_group(&driver->work.groups[g]);
    return status;
}

/* ---- advantages ---------------------------------------------------------- */

static void spread_advantage(const grpo_driver *driver, xray_batch *batch,
                             uint32_t row, float advantage)
{
    for (int32_t i = batch->row_start[row]; i < batch->row_start[row + 1];
         i++) {
        float value = driver->mask[i] != 0 ? advantage : 0.0f;
        batch->advantage[i] = value;
        if (batch->returns)
            batch->returns[i] = value;
    }
}

static xray_status compute_row_advantages(grpo_driver *driver,
                                          xray_batch *batch)
{
    const grpo_workspace *work = &driver->work;
    xm_rl_score_counts counts = { .rows = batch->rows, .nonzero = 0 };
    for (uint32_t r = 0; r < batch->rows; r++)
        counts.nonzero += work->scores[r] != 0;
    for (uint32_t r = 0; r < batch->rows; r++) {
        float a = (float)xm_rl_advantage(&driver->rule.estimator,
                                         &work->groups[get_group(batch, r)],
                                         &counts, work->scores[r], r);
        if (!isfinite(a))
            return grpo_fail_row(driver->host, XRAY_E_NUMERIC, batch, r,
                                 "its advantage is beyond the range of a "
                                 "float");
        spread_advantage(driver, batch, r, a);
    }
    return XRAY_OK;
}

/* verl `compute_gdpo_outcome_advantage`: the advantages of GRPO for each reward
 * separately, summed with the weights of the rewards. The scores of the rows
 * are restored afterwards. */
static xray_status compute_gdpo_advantages(grpo_driver *driver,
                                           xray_batch *batch)
{
    grpo_workspace *work = &driver->work;
    if (!XRAY_HAS(xray_batch, batch, scores) || !batch->score_weight ||
        !batch->score_count)
        return driver->host->fail(driver->host, XRAY_E_ARG, "prepare",
                                  "gdpo needs the score of every reward");
    for (uint32_t r = 0; r < batch->rows; r++)
        work->sums[r] = 0;
    for (uint32_t k = 0; k < batch->score_count; k++) {
        for (uint32_t r = 0; r < batch->rows; r++)
            work->scores[r] =
                (double)batch->scores[(size_t)r * batch->score_count + k];
        xray_status status = measure_groups(driver, batch);
        if (status != XRAY_OK)
            return status;
        for (uint32_t r = 0; r < batch->rows; r++)
            work->sums[r] += (double)batch->score_weight[k] *
                             xm_rl_advantage(&driver->rule.estimator,
                                             &work->groups[get_group(batch, r)],
                                             NULL, work->scores[r], r);
    }
    for (uint32_t r = 0; r < batch->rows; r++) {
        if (!isfinite((float)work->sums[r]))
            return grpo_fail_row(driver->host, XRAY_E_NUMERIC, batch, r,
                                 "its advantage is not finite");
        spread_advantage(driver, batch, r, (float)work->sums[r]);
        work->scores[r] = sum_row_score(batch, r);
    }
    return measure_groups(driver, batch);
}

/* verl `compute_reinforce_plus_plus_outcome_advantage` and
 * `compute_remax_outcome_advantage`: A = G, or A = G - b where b is the score
 * of the greedy sample. The returns are G. */
static xray_status compute_token_advantages(grpo_driver *driver,
                                            xray_batch *batch)
{
    int remax = driver->rule.estimator.type == XM_RL_ADV_REMAX;
    double gamma = remax ? 1.0 : driver->rule.gamma;
    if (remax && !batch->baseline)
        return driver->host->fail(driver->host, XRAY_E_ARG, "prepare",
                                  "remax needs the scores of greedy samples");
    for (uint32_t r = 0; r < batch->rows; r++) {
        int32_t first = batch->row_start[r];
        int32_t end = batch->row_start[r + 1];
        float *a = batch->advantage + first;
        xm_rl_returns(gamma, batch->reward + first, driver->mask + first,
                      (uint64_t)(end - first), a);
        for (int32_t i = 0; i < end - first; i++) {
            if (batch->returns)
                batch->returns[first + i] = a[i];
            if (remax && driver->mask[first + i] != 0)
                a[i] -= batch->baseline[r];
            if (!isfinite(a[i]))
                return grpo_fail_row(driver->host, XRAY_E_NUMERIC, batch, r,
                                     "its advantage is not finite");
        }
    }
    return XRAY_OK;
}

/* Whitens over all tokens of the step, as verl does for both forms of
 * REINFORCE++ and for GDPO. */
static void whiten_advantages(const grpo_driver *driver, xray_batch *batch)
{
    static const xm_rl_whiten_rule rule = { .unbiased = 1, .epsilon = 1e-8 };
    int64_t type = driver->rule.estimator.type;
    int row = type == XM_RL_ADV_REINFORCE_BASELINE || type == XM_RL_ADV_GDPO;
    const float *mask = driver->mask;
    xm_rl_stats stats;
    if (!row && type != XM_RL_ADV_REINFORCE)
        return;
    xm_rl_masked_stats(batch->advantage, mask, batch->tokens, &stats);
    xm_rl_whiten(&rule, &stats, mask, batch->tokens, batch->advantage);
    for (uint32_t i = 0; row && batch->returns && i < batch->tokens; i++)
        batch->returns[i] = batch->advantage[i];
}

static xray_status compute_advantages(grpo_driver *driver, xray_batch *batch)
{
    if (driver->rule.estimator.type == XM_RL_ADV_GDPO)
        return compute_gdpo_advantages(driver, batch);
    return grpo_is_token_level(&driver->rule)
               ? compute_token_advantages(driver, batch)
               : compute_row_advantages(driver, batch);
}

static xray_status check_inputs(const grpo_driver *driver,
                                const xray_batch *batch)
{
    if (!batch->reward || !batch->advantage || !batch->loss_mask ||
        !batch->prompt_len)
        return driver->host->fail(driver->host, XRAY_E_ARG, "prepare",
                                  "the batch lacks reward, advantage, "
                                  "loss_mask or prompt_len");
    if (driver->rule.kl_reward.use && (!batch->old_logp || !batch->ref_logp))
        return driver->host->fail(driver->host, XRAY_E_ARG, "prepare",
                                  "use_kl_in_reward needs old_logp and "
                                  "ref_logp");
    return XRAY_OK;
}

xray_status grpo_prepare(grpo_driver *driver, xray_batch *batch,
                         const xray_metric_sink *metrics)
{
    driver->rounds = 0;
    if (!batch->rows)
        return XRAY_OK;
    xray_status status = check_inputs(driver, batch);
    if (status == XRAY_OK)
        status = grpo_reserve(driver, batch);
    if (status == XRAY_OK)
        status = score_rows(driver, batch, metrics);
    if (status == XRAY_OK)
        status = grpo_correct(driver, batch, metrics);
    if (status == XRAY_OK)
        status = measure_groups(driver, batch);
    if (status == XRAY_OK)
        status = compute_advantages(driver, batch);
    if (status != XRAY_OK)
        return status;
    whiten_advantages(driver, batch);
    metrics->put(metrics->ctx, "reward/frac_reward_zero_std",
                 measure_flat_share(&driver->work, batch->rows));
    return XRAY_OK;
}
