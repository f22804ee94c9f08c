/* SPDX-License-Identifier: Apache-2.0
 *
 * Computes the advantages and returns of a step from its scores: clipping and
 * scaling of scores, the KL penalty, generalised advantage estimation and
 * whitening.
 */
#include "plugins/algo-ppo/prepare.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define EPSILON 1e-8 /* of whitening, in both verl and trlX */

void ppo_work_free(ppo_work *work)
{
    free(work->scores);
    *work = (ppo_work){ NULL, 0 };
}

static int reserve_rows(ppo_work *work, uint32_t rows)
{
    if (rows <= work->rows)
        return 0;
    double *scores = malloc(rows * sizeof(*scores));
    if (!scores)
        return -1;
    ppo_work_free(work);
    *work = (ppo_work){ scores, rows };
    return 0;
}

static xray_status fail_for_row(const xray_host *host, const xray_batch *batch,
                                uint32_t row, const char *what)
{
    char text[256];
    uint64_t id = batch->row_id ? batch->row_id[row] : row;
    (void)snprintf(text, sizeof(text), "row %" PRIu64 ": %s", id, what);
    return host->fail(host, XRAY_E_NUMERIC, "prepare", text);
}

static int32_t find_response_start(const xray_batch *batch, uint32_t row)
{
    return batch->row_start[row] + batch->prompt_len[row];
}

static int32_t find_row_end(const xray_batch *batch, uint32_t row)
{
    return batch->row_start[row + 1];
}

/* ---- scores -------------------------------------------------------------- */

static double sum_row_score(const xray_batch *batch, uint32_t row)
{
    double sum = 0;
    for (int32_t i = find_response_start(batch, row);
         i < find_row_end(batch, row); i++)
        sum += (double)batch->reward[i];
    return sum;
}

/* Clips token scores to +-limit before they are measured (trlX
 * `make_experience`). */
static void clip_scores(double limit, xray_batch *batch, uint32_t row)
{
    for (int32_t i = find_response_start(batch, row);
         i < find_row_end(batch, row); i++)
        batch->reward[i] =
            (float)fmin(fmax((double)batch->reward[i], -limit), limit);
}

static void divide_scores(double by, xray_batch *batch)
{
    for (uint32_t r = 0; r < batch->rows; r++)
        for (int32_t i = find_response_start(batch, r);
             i < find_row_end(batch, r); i++)
            batch->reward[i] = (float)((double)batch->reward[i] / by);
}

/* Clips, measures and divides the scores as trlX does, which does not subtract
 * the mean. Scores that are all equal have a deviation of 0 and are not
 * divided. */
static xray_status shape_scores(const xray_host *host, const ppo_rule *rule,
                                ppo_state *state, const ppo_work *work,
                                xray_batch *batch)
{
    double deviation = 0;
    for (uint32_t r = 0; r < batch->rows; r++) {
        if (!isfinite(sum_row_score(batch, r)))
            return fail_for_row(host, batch, r, "its reward is not finite");
        if (rule->cliprange_reward > 0)
            clip_scores(rule->cliprange_reward, batch, r);
        work->scores[r] = sum_row_score(batch, r);
    }
    xm_rl_moments_add(&state->moments, work->scores, batch->rows, &deviation);
    if (!(state->ref_std > 0))
        state->ref_std = rule->ref_std > 0 ? rule->ref_std : deviation;
    double by = rule->scale_reward == PPO_SCALE_RUNNING
                    ? state->moments.deviation
                    : state->ref_std;
    if (rule->scale_reward != PPO_SCALE_IGNORED && by > 0)
        divide_scores(by, batch);
    return XRAY_OK;
}

/* ---- KL ------------------------------------------------------------------ */

/* Sums over the tokens of a row. */
typedef struct row_kl {
    double penalty; /* sum of the estimator that is subtracted */
    double other;   /* sum of exp(l) - 1 - l with l = logp - ref, which trlX
                     * reports */
    double tokens;
} row_kl;

static row_kl penalise_row_kl(const ppo_rule *rule, double coefficient,
                              xray_batch *batch, uint32_t row)
{
    const ppo_kl_rule *kl = &rule->kl_reward;
    row_kl sum = { 0, 0, 0 };
    for (int32_t i = find_response_start(batch, row);
         i < find_row_end(batch, row); i++) {
        double mask = (double)batch->loss_mask[i];
        double logp = (double)batch->old_logp[i];
        double ref = (double)batch->ref_logp[i];
        if (mask == 0)
            continue;
        double value = mask * xm_rl_kl(kl->type, kl->bounded, logp, ref).value;
        batch->reward[i] =
            (float)((double)batch->reward[i] - coefficient * value);
        sum.penalty += value;
        sum.other += mask * xm_rl_kl(XM_RL_KL_K3, 0, ref, logp).value;
        sum.tokens += mask;
    }
    return sum;
}

/* verl `apply_kl_penalty` reports the mean over rows of the mean per row and
 * updates the controller at once, by the rows of the step. trlX reports the
 * mean over rows of the sum per row and updates the controller at the end of
 * the step. */
static xray_status penalise_kl(const xray_host *host, const ppo_rule *rule,
                               ppo_state *state, ppo_step *step,
                               xray_batch *batch,
                               const xray_metric_sink *metrics)
{
    double coefficient = state->kl_coef;
    double means = 0;
    double sums = 0;
    for (uint32_t r = 0; r < batch->rows; r++) {
        row_kl row = penalise_row_kl(rule, coefficient, batch, r);
        if (!isfinite(row.penalty) || !isfinite(row.other))
            return fail_for_row(host, batch, r,
                                "its KL to the reference is not finite");
        means += row.penalty / (row.tokens + 1e-8);
        sums += row.other;
    }
    means /= (double)batch->rows;
    sums /= (double)batch->rows;
    int by_epoch = rule->control_update == PPO_CONTROL_EPOCH;
    step->kl = by_epoch ? sums : means;
    metrics->put(metrics->ctx, "actor/reward_kl_penalty", step->kl);
    metrics->put(metrics->ctx, "actor/reward_kl_penalty_coeff", coefficient);
    if (!by_epoch)
        state->kl_coef = xm_rl_kl_update(&rule->control, coefficient, step->kl,
                                         (double)batch->rows);
    return XRAY_OK;
}

void ppo_end_step(const ppo_rule *rule, ppo_state *state, ppo_step *step)
{
    uint64_t epochs = step->rows ? step->trained_rows / step->rows : 0;
    if (rule->kl_reward.use && rule->control_update == PPO_CONTROL_EPOCH)
        for (uint64_t i = 0; i < epochs; i++)
            state->kl_coef = xm_rl_kl_update(&rule->control, state->kl_coef,
                                             step->kl, (double)step->mini_rows);
    *step = (ppo_step){ .kl = 0 };
}

/* ---- advantages ---------------------------------------------------------- */

static xray_status estimate_advantages(const xray_host *host,
                                       const ppo_rule *rule, xray_batch *batch)
{
    for (uint32_t r = 0; r < batch->rows; r++) {
        int32_t first = find_response_start(batch, r);
        int32_t end = find_row_end(batch, r);
        for (int32_t i = batch->row_start[r]; i < first; i++)
            batch->advantage[i] = batch->returns[i] = 0;
        xm_rl_gae(&rule->gae, batch->reward + first, batch->value + first,
                  batch->loss_mask + first, (uint64_t)(end - first),
                  batch->advantage + first, batch->returns + first);
        for (int32_t i = first; i < end; i++)
            if (!isfinite(batch->advantage[i]) || !isfinite(batch->returns[i]))
                return fail_for_row(host, batch, r,
                                    "its advantage is not finite");
    }
    return XRAY_OK;
}

static xm_rl_stats compute_padded_stats(const xray_batch *mini)
{
    xm_rl_stats stats = { 0, 0, 0 };
    int32_t longest = 0;
    for (uint32_t r = 0; r < mini->rows; r++) {
        int32_t size = find_row_end(mini, r) - find_response_start(mini, r);
        longest = size > longest ? size : longest;
    }
    stats.count = (double)mini->rows * (double)longest;
    if (!(stats.count > 0))
        return stats;
    double present = 0;
    for (uint32_t r = 0; r < mini->rows; r++)
        for (int32_t i = find_response_start(mini, r);
             i < find_row_end(mini, r); i++) {
            stats.mean += (double)mini->advantage[i];
            present++;
        }
    stats.mean /= stats.count;
    for (uint32_t r = 0; r < mini->rows; r++)
        for (int32_t i = find_response_start(mini, r);
             i < find_row_end(mini, r); i++) {
            double d = (double)mini->advantage[i] - stats.mean;
            stats.variance += d * d;
        }
    stats.variance += (stats.count - present) * stats.mean * stats.mean;
    stats.variance /= stats.count;
    return stats;
}

void ppo_measure_whitening(const ppo_rule *rule, const xray_batch *mini,
                           double *out_mean, double *out_scale)
{
    xm_rl_stats stats = { 0, 0, 0 };
    *out_mean = 0;
    *out_scale = 1;
    if (rule->whiten == PPO_WHITEN_MINI)
        xm_rl_masked_stats(mini->advantage, mini->loss_mask, mini->tokens,
                           &stats);
    else if (rule->whiten == PPO_WHITEN_PADDED)
        stats = compute_padded_stats(mini);
    else
        return;
    *out_mean = stats.mean;
    if (stats.count > 1)
        *out_scale = 1.0 / sqrt(xm_rl_unbiased(&stats) + EPSILON);
}

static void whiten_batch(xray_batch *batch)
{
    static const xm_rl_whiten_rule whiten = { .unbiased = 1,
                                              .epsilon = EPSILON };
    xm_rl_stats stats;
    xm_rl_masked_stats(batch->advantage, batch->loss_mask, batch->tokens,
                       &stats);
    xm_rl_whiten(&whiten, &stats, batch->loss_mask, batch->tokens,
                 batch->advantage);
}

static xray_status check_inputs(const xray_host *host, const ppo_rule *rule,
                                const xray_batch *batch)
{
    if (!batch->reward || !batch->advantage || !batch->returns ||
        !batch->loss_mask || !batch->prompt_len)
        return host->fail(host, XRAY_E_ARG, "prepare",
                          "the batch lacks reward, advantage, returns, "
                          "loss_mask or prompt_len");
    if (!batch->value)
        return host->fail(host, XRAY_E_ARG, "prepare",
                          "the batch lacks the values of its tokens");
    if (rule->kl_reward.use && (!batch->old_logp || !batch->ref_logp))
        return host->fail(host, XRAY_E_ARG, "prepare",
                          "use_kl_in_reward needs old_logp and ref_logp");
    return XRAY_OK;
}

xray_status ppo_prepare(const xray_host *host, const ppo_rule *rule,
                        ppo_state *state, ppo_step *step, ppo_work *work,
                        xray_batch *batch, const xray_metric_sink *metrics)
{
    *step = (ppo_step){ .rows = batch->rows };
    if (!batch->rows)
        return XRAY_OK;
    xray_status status = check_inputs(host, rule, batch);
    if (status != XRAY_OK)
        return status;
    if (reserve_rows(work, batch->rows))
        return host->fail(host, XRAY_E_NOMEM, "prepare", "out of memory");
    /* A step that fails must not change the state, because it is repeated or
     * skipped. */
    ppo_state next = *state;
    status = shape_scores(host, rule, &next, work, batch);
    if (status == XRAY_OK && rule->kl_reward.use)
        status = penalise_kl(host, rule, &next, step, batch, metrics);
    if (status == XRAY_OK)
        status = estimate_advantages(host, rule, batch);
    if (status != XRAY_OK)
        return status;
    *state = next;
    if (rule->whiten == PPO_WHITEN_BATCH)
        whiten_batch(batch);
    metrics->put(metrics->ctx, "rollout_scores/running_mean",
                 state->moments.mean);
    metrics->put(metrics->ctx, "rollout_scores/running_std",
                 state->moments.deviation);
    return XRAY_OK;
}
