/* SPDX-License-Identifier: Apache-2.0
 *
 * Corrects for the drift between the log-probabilities of the sampler and of
 * the trainer, and reports it. Without drift, all weights are 1, no token is
 * rejected, and the effective sample size is 1.
 */
#include <math.h>

#include "plugins/algo-grpo/prepare.h"

static double compute_log_drift(const xray_batch *batch, int32_t at)
{
    return xm_rl_log_drift((double)batch->old_logp[at],
                           (double)batch->rollout_logp[at]);
}

xm_rl_drift grpo_row_drift(const xm_rl_correction *rule,
                           const xray_batch *batch, uint32_t row)
{
    xm_rl_drift drift = { 0 };
    if (rule->weight == XM_RL_IS_NONE && rule->kind == XM_RL_RS_NONE)
        return drift;
    for (int32_t i = batch->row_start[row]; i < batch->row_start[row + 1]; i++)
        if (batch->loss_mask[i] != 0)
            xm_rl_drift_add(rule, compute_log_drift(batch, i), &drift);
    xm_rl_drift_close(rule, &drift);
    return drift;
}

double grpo_mask_of(const xm_rl_correction *rule, const xray_batch *batch,
                    const xm_rl_drift *drift, int32_t at)
{
    double mask = (double)batch->loss_mask[at];
    if (mask == 0 || rule->kind == XM_RL_RS_NONE)
        return mask;
    return xm_rl_drift_keeps(rule, drift, compute_log_drift(batch, at)) ? mask
                                                                        : 0.0;
}

typedef struct drift_sums {
    double tokens;
    double rows;
    double kl;     /* sum of rollout - old, for KL(rollout || trainer) */
    double k3;     /* the same with the estimator k3 */
    double weight; /* sum of the correction weights */
    double square; /* sum of their squares */
    double least;
    double most;
    double rejected;  /* rejected tokens */
    double different; /* tokens whose two log-probabilities differ */
    double old_ppl;   /* sum over rows of exp(-mean log-probability) */
    double rollout_ppl;
    double log_ppl; /* sum over rows of the difference of the mean
                     * log-probabilities */
    double old;     /* sum over the current row */
    double rollout;
} drift_sums;

static void add_token_drift(grpo_driver *driver, const xray_batch *batch,
                            const xm_rl_drift *drift, int32_t at, drift_sums *s)
{
    const xm_rl_correction *rule = &driver->rule.loss.correction;
    double x = compute_log_drift(batch, at);
    double w = xm_rl_drift_weight(rule, drift, x);
    double mask = grpo_mask_of(rule, batch, drift, at);
    driver->work.mask[at] = (float)mask;
    s->tokens++;
    s->kl -= x;
    s->k3 += xm_rl_exp(x) - x - 1.0;
    s->least = s->tokens > 1 && s->least < w ? s->least : w;
    s->most = s->tokens > 1 && s->most > w ? s->most : w;
    s->weight += w;
    s->square += w * w;
    s->rejected += mask == 0;
    s->different += batch->old_logp[at] != batch->rollout_logp[at];
    s->old += (double)batch->old_logp[at];
    s->rollout += (double)batch->rollout_logp[at];
}

static void add_row_drift(grpo_driver *driver, const xray_batch *batch,
                          uint32_t row, drift_sums *s)
{
    xm_rl_drift drift =
        grpo_row_drift(&driver->rule.loss.correction, batch, row);
    s->old = s->rollout = 0;
    for (int32_t i = batch->row_start[row]; i < batch->row_start[row + 1]; i++)
        if (batch->loss_mask[i] != 0)
            add_token_drift(driver, batch, &drift, i, s);
        else
            driver->work.mask[i] = 0;
    if (!(drift.tokens > 0))
        return;
    s->rows++;
    s->old_ppl += xm_rl_exp(-s->old / drift.tokens);
    s->rollout_ppl += xm_rl_exp(-s->rollout / drift.tokens);
    s->log_ppl += (s->rollout - s->old) / drift.tokens;
}

/* The names are verl's (verl/trainer/ppo/rollout_corr_helper.py), except for
 * rollout_corr/exact: the share of tokens whose two log-probabilities have
 * equal bits. */
static void report_drift(const grpo_driver *driver, const drift_sums *s,
                         const xray_metric_sink *m)
{
    double mean = s->weight / s->tokens;
    double variance = s->square / s->tokens - mean * mean;
    double scale = driver->correction_scale;
    m->put(m->ctx, "rollout_corr/exact", 1.0 - s->different / s->tokens);
    m->put(m->ctx, "rollout_corr/kl", s->kl / s->tokens);
    m->put(m->ctx, "rollout_corr/k3_kl", s->k3 / s->tokens);
    m->put(m->ctx, "rollout_corr/training_ppl", s->old_ppl / s->rows);
    m->put(m->ctx, "rollout_corr/rollout_ppl", s->rollout_ppl / s->rows);
    m->put(m->ctx, "rollout_corr/log_ppl_diff", s->log_ppl / s->rows);
    m->put(m->ctx, "rollout_corr/ppl_ratio", xm_rl_exp(s->log_ppl / s->rows));
    m->put(m->ctx, "rollout_corr/rollout_is_mean", mean * scale);
    m->put(m->ctx, "rollout_corr/rollout_is_min", s->least * scale);
    m->put(m->ctx, "rollout_corr/rollout_is_max", s->most * scale);
    m->put(m->ctx, "rollout_corr/rollout_is_std",
           sqrt(variance > 0 ? variance : 0) * scale);
    /* 1 / mean((w / mean w)^2) */
    m->put(m->ctx, "rollout_corr/rollout_is_eff_sample_size",
           s->square > 0 ? mean * mean * s->tokens / s->square : 0);
    m->put(m->ctx, "rollout_corr/rollout_rs_masked_fraction",
           s->rejected / s->tokens);
}

xray_status grpo_correct(grpo_driver *driver, const xray_batch *batch,
                         const xray_metric_sink *metrics)
{
    drift_sums sums = { 0 };
    driver->correction_scale = 1.0;
    if (!driver->rule.loss.correct) {
        driver->mask = batch->loss_mask;
        return XRAY_OK;
    }
    if (!batch->old_logp || !batch->rollout_logp)
        return driver->host->fail(driver->host, XRAY_E_ARG, "prepare",
                                  "rollout_is and rollout_rs need old_logp "
                                  "and rollout_logp");
    driver->mask = driver->work.mask;
    for (uint32_t r = 0; r < batch->rows; r++)
        add_row_drift(driver, batch, r, &sums);
    if (!(sums.tokens > 0))
        return XRAY_OK;
    if (driver->rule.normalise_weights && sums.weight > 0)
        driver->correction_scale = sums.tokens / sums.weight;
    report_drift(driver, &sums, metrics);
    return XRAY_OK;
}
