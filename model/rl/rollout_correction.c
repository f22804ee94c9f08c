/* SPDX-License-Identifier: Apache-2.0
 *
 * Computes the weights and rejections of the rollout correction.
 */
#include "model/rl/rollout_correction.h"

static double clamp_value(double x, double low, double high)
{
    return x < low ? low : x > high ? high : x;
}

/* verl's SAFETY_BOUND (verl/trainer/ppo/rollout_corr_helper.py). */
double xm_rl_log_drift(double old, double rollout)
{
    return clamp_value(old - rollout, -20.0, 20.0);
}

/* With x = log r: k1 = -x, k2 = x^2 / 2, k3 = exp(x) - 1 - x. */
static double estimate_drift(int64_t kind, double x)
{
    if (kind == XM_RL_RS_K2)
        return 0.5 * x * x;
    if (kind == XM_RL_RS_K3)
        return xm_rl_exp(x) - 1.0 - x;
    return -x;
}

/* For k1 the ratio exp(-k1) must lie between two bounds; k2 and k3 have an
 * upper bound. */
static int is_within_bounds(const xm_rl_correction *rule, double k)
{
    if (rule->kind != XM_RL_RS_K1)
        return k <= rule->rs_high;
    double ratio = xm_rl_exp(clamp_value(-k, -20.0, 20.0));
    return ratio >= rule->rs_low && ratio <= rule->rs_high;
}

void xm_rl_drift_add(const xm_rl_correction *rule, double log_r,
                     xm_rl_drift *row)
{
    double k = estimate_drift(rule->kind, log_r);
    if (row->tokens == 0 || k < row->least)
        row->least = k;
    if (row->tokens == 0 || k > row->most)
        row->most = k;
    row->tokens++;
    row->sum += log_r;
    row->estimate += k;
}

/* verl `compute_rollout_rejection_mask`: seq_sum, seq_mean and seq_max look at
 * the row's sum, mean and extremes. The geometric mean of the ratios is
 * seq_mean_k1 ("geo_rs"). */
void xm_rl_drift_close(const xm_rl_correction *rule, xm_rl_drift *row)
{
    row->kept = 1;
    if (rule->kind == XM_RL_RS_NONE || row->tokens == 0)
        return;
    if (rule->level == XM_RL_RS_SUM)
        row->kept = is_within_bounds(rule, row->estimate);
    if (rule->level == XM_RL_RS_MEAN)
        row->kept = is_within_bounds(rule, row->estimate / row->tokens);
    if (rule->level == XM_RL_RS_MAX)
        row->kept = is_within_bounds(rule, row->least) &&
                    is_within_bounds(rule, row->most);
}

int xm_rl_drift_keeps(const xm_rl_correction *rule, const xm_rl_drift *row,
                      double log_r)
{
    if (rule->kind == XM_RL_RS_NONE)
        return 1;
    if (rule->level == XM_RL_RS_TOKEN)
        return is_within_bounds(rule, estimate_drift(rule->kind, log_r));
    return row->kept != 0;
}

/* verl `compute_rollout_correction_weights`:
 *   token     w = exp(log r)
 *   sequence  w = exp(clamp(sum of log r, +-20)), the same on every token
 * cut down to `high` (truncated importance sampling; Yao et al., 2025), or 0
 * outside of [low, high] (IcePop). */
double xm_rl_drift_weight(const xm_rl_correction *rule, const xm_rl_drift *row,
                          double log_r)
{
    double w = 1.0;
    if (rule->weight == XM_RL_IS_TOKEN)
        w = xm_rl_exp(log_r);
    if (rule->weight == XM_RL_IS_SEQUENCE)
        w = xm_rl_exp(clamp_value(row->sum, -20.0, 20.0));
    if (rule->weight == XM_RL_IS_NONE)
        return 1.0;
    if (rule->low < 0)
        return w > rule->high ? rule->high : w;
    return w < rule->low || w > rule->high ? 0.0 : w;
}
