/* SPDX-License-Identifier: Apache-2.0
 *
 * Computes the policy losses that depend on the complete row: GSPO and GMPO.
 */
#include "model/rl/policy.h"

/* GMPO's log-ratio of a token: clamp(x, -low, high) where that makes sign(A) x
 * smaller, x elsewhere. */
static double hold_log_ratio(const xm_rl_clip *clip, double x, double a)
{
    if (a > 0 && x > clip->high)
        return clip->high;
    if (a < 0 && x < -clip->low)
        return -clip->low;
    return a == 0 ? 0.0 : x;
}

void xm_rl_sequence_add(const xm_rl_clip *clip, double logp, double old,
                        double a, double weight, xm_rl_sequence *row)
{
    double x = logp - old;
    row->tokens++;
    row->log_ratio += x;
    row->held += hold_log_ratio(clip, x, a);
    row->advantage += a;
    if (weight != 1.0) /* verl adds 1e-10 to these too: log(1 + 1e-10) */
        row->log_weight += xm_rl_log(weight + 1e-10);
}

/* s = exp(min(mean over the row of x, 10)), l = max(-A s, -A clip(s))
 * (Zheng et al., "Group sequence policy optimization", 2025; verl `gspo`).
 * Averaged over the row, the derivative by each token is -A s / tokens, as
 * verl's detached form has it; no dual clip, no bound on x. */
xm_rl_policy xm_rl_gspo(const xm_rl_clip *clip, const xm_rl_sequence *row,
                        double logp, double old, double a)
{
    double mean = row->tokens > 0 ? row->log_ratio / row->tokens : 0.0;
    int cut = mean > 10.0;
    double s = xm_rl_exp(cut ? 10.0 : mean);
    double kept = s < 1.0 - clip->low    ? 1.0 - clip->low
                  : s > 1.0 + clip->high ? 1.0 + clip->high
                                         : s;
    xm_rl_policy out = { .log_ratio = logp - old,
                         .clipped = -a * kept > -a * s };
    out.loss.value = -a * (out.clipped ? kept : s);
    out.loss.slope = out.clipped || cut ? 0.0 : -a * s;
    return out;
}

/* With m = 1e-8 added to the row's tokens n (Zhao et al., "Geometric-mean
 * policy optimization", 2025; verl `geo_mean`):
 *   l = -(sum A / m) exp(sum held / m) w
 * w is the geometric mean of the row's correction. A token that is held has no
 * slope; any other has m times dl / dlogp, so that the mean over the row is the
 * derivative. */
xm_rl_policy xm_rl_gmpo(const xm_rl_clip *clip, const xm_rl_sequence *row,
                        double logp, double old, double a)
{
    double m = row->tokens + 1e-8;
    double x = logp - old;
    double weight = row->log_weight == 0 ? 1.0 : xm_rl_exp(row->log_weight / m);
    double l = -(row->advantage / m) * xm_rl_exp(row->held / m) * weight;
    int outside = x < -clip->low || x > clip->high;
    int free = hold_log_ratio(clip, x, a) == x && a != 0;
    return (xm_rl_policy){ .loss = { l, free ? l : 0.0 },
                           .log_ratio = x,
                           .clipped = outside && a > 0,
                           .clipped_lower = outside && a < 0 };
}
