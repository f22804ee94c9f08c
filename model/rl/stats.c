/* SPDX-License-Identifier: Apache-2.0
 *
 * Computes masked statistics, whitening, explained variance and running
 * moments.
 */
#include <math.h>

#include "model/rl/ppo.h"

/* verl `masked_mean`, `masked_var` (verl/utils/torch_functional.py): two passes
 * over the entries of the mask. verl divides by the count + 1e-8, which is the
 * same up to rounding. Without any entry it raises an error; here all is 0. */
void xm_rl_masked_stats(const float *x, const float *mask, uint64_t count,
                        xm_rl_stats *out)
{
    xm_rl_stats s = { 0, 0, 0 };
    for (uint64_t i = 0; i < count; i++)
        if (!mask || mask[i] != 0) {
            s.mean += (double)x[i];
            s.count++;
        }
    if (s.count > 0)
        s.mean /= s.count;
    for (uint64_t i = 0; i < count; i++)
        if (!mask || mask[i] != 0) {
            double d = (double)x[i] - s.mean;
            s.variance += d * d;
        }
    if (s.count > 0)
        s.variance /= s.count;
    *out = s;
}

void xm_rl_stats_merge(xm_rl_stats *into, const xm_rl_stats *part)
{
    double count = into->count + part->count;
    if (!(count > 0))
        return;
    double delta = part->mean - into->mean;
    double squares = into->variance * into->count +
                     part->variance * part->count +
                     delta * delta * into->count * part->count / count;
    into->mean += delta * part->count / count;
    into->variance = squares / count;
    into->count = count;
}

double xm_rl_unbiased(const xm_rl_stats *stats)
{
    return stats->count > 1
               ? stats->variance * (stats->count / (stats->count - 1.0))
               : 0.0;
}

/* verl `masked_whiten`: (x - mean) rsqrt(var + 1e-8) with the unbiased variance
 * of the mask; trlX `whiten` (trlx/utils/modeling.py) with the population's
 * when distributed. verl writes outside of the mask too; nothing reads that. */
void xm_rl_whiten(const xm_rl_whiten_rule *rule, const xm_rl_stats *stats,
                  const float *mask, uint64_t count, float *x)
{
    double variance = rule->unbiased ? xm_rl_unbiased(stats) : stats->variance;
    double scale =
        stats->count > 1 ? 1.0 / sqrt(variance + rule->epsilon) : 1.0;
    double back = rule->keep_mean ? stats->mean : 0.0;
    for (uint64_t i = 0; i < count; i++)
        if (!mask || mask[i] != 0)
            x[i] = (float)(((double)x[i] - stats->mean) * scale + back);
}

/* verl `compute_data_metrics` (verl/trainer/ppo/metric_utils.py),
 * critic/vf_explained_var. */
double xm_rl_explained_variance(const float *returns, const float *value,
                                const float *mask, uint64_t count)
{
    xm_rl_stats of_returns;
    xm_rl_stats of_errors = { 0, 0, 0 };
    xm_rl_masked_stats(returns, mask, count, &of_returns);
    for (uint64_t i = 0; i < count; i++)
        if (!mask || mask[i] != 0)
            of_errors.mean += (double)returns[i] - (double)value[i];
    of_errors.count = of_returns.count;
    if (of_errors.count > 0)
        of_errors.mean /= of_errors.count;
    for (uint64_t i = 0; i < count; i++)
        if (!mask || mask[i] != 0) {
            double d = (double)returns[i] - (double)value[i] - of_errors.mean;
            of_errors.variance += d * d;
        }
    if (of_errors.count > 0)
        of_errors.variance /= of_errors.count;
    return 1.0 -
           xm_rl_unbiased(&of_errors) / (xm_rl_unbiased(&of_returns) + 1e-5);
}

void xm_rl_moments_init(xm_rl_moments *m)
{
    *m = (xm_rl_moments){
        .count = 1e-24, .mean = 0, .variance = 1, .deviation = 1
    };
}

/* trlX `RunningMoments.update` (trlx/utils/modeling.py): a merge of moments
 * (Chan, Golub, LeVeque, 1979) that starts with a count of 1e-24, so that the
 * first scores alone decide. trlX divides by count - 1 also when that is 0;
 * here one score leaves the deviation as it was. If the first scores are all
 * equal, trlX keeps a remainder of the initial value, about 1e-12; here it is
 * 0. */
void xm_rl_moments_add(xm_rl_moments *m, const double *scores, uint64_t count,
                       double *out_deviation)
{
    xm_rl_stats added = { (double)count, 0, 0 };
    for (uint64_t i = 0; i < count; i++)
        added.mean += scores[i];
    if (count)
        added.mean /= (double)count;
    for (uint64_t i = 0; i < count; i++)
        added.variance += (scores[i] - added.mean) * (scores[i] - added.mean);
    if (count)
        added.variance /= (double)count;
    if (out_deviation)
        *out_deviation = sqrt(xm_rl_unbiased(&added));
    if (!count)
        return;
    xm_rl_stats all = { m->count, m->mean, m->variance };
    xm_rl_stats_merge(&all, &added);
    if (m->count < 1 && !(added.variance > 0))
        all.variance = 0;
    m->count = all.count;
    m->mean = all.mean;
    m->variance = all.variance;
    if (all.count > 1)
        m->deviation = sqrt(xm_rl_unbiased(&all));
}
