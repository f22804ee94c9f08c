/* SPDX-License-Identifier: Apache-2.0
 *
 * Computes the statistics of groups, their advantages and baselines.
 */
#include "model/rl/advantage.h"

#include <math.h>

void xm_rl_group_add(xm_rl_group *group, double score, double length,
                     uint64_t row)
{
    if (group->count == 0 || score > group->high) {
        group->second = group->count > 0 ? group->high : score;
        group->high = score;
        group->best_row = row;
    } else if (group->count == 1 || score > group->second) {
        group->second = score;
    }
    if (group->count == 0 || score < group->low)
        group->low = score;
    group->count++;
    group->mean += score;
    group->length += length;
    group->by_length += length * score;
}

/* A group of equal scores has exactly that mean, without rounding errors. */
void xm_rl_group_close(xm_rl_group *group)
{
    if (group->count > 0)
        group->mean /= group->count;
    if (group->length > 0)
        group->by_length /= group->length;
    if (group->low == group->high) {
        group->mean = group->low;
        group->by_length = group->low;
    }
}

void xm_rl_group_deviate(xm_rl_group *group, double score)
{
    double d = score - group->mean;
    group->squares += d * d;
}

double xm_rl_group_deviation(const xm_rl_group *group)
{
    return group->count > 1 ? sqrt(group->squares / (group->count - 1.0)) : 0.0;
}

/* With s the score, mu and sigma mean and deviation of the n scores:
 *   (s - mu) / (sigma + epsilon)   Shao et al., "DeepSeekMath", 2024
 *   unbiased sigma: verl `grpo` and SkyRL 1e-6, OpenRLHF `group_norm` 1e-9,
 *     TRL `scale_rewards=group` 1e-4
 *   population: open-instruct `standard` 1e-8
 *   others: NeMo-RL (calculate_baseline_and_std_per_prompt): mu and sigma of
 *     the n - 1 others, and no division where their sigma is 0
 *   none: s - mu (Liu et al., "Dr. GRPO", 2025; open-instruct `centered`,
 *     OpenRLHF `dr_grpo`)
 * A group of one: verl sets mu = 0, sigma = 1; the population's form gives 0,
 * and so does NeMo-RL. */
static double grpo_advantage(const xm_rl_estimator *e, const xm_rl_group *g,
                             double s)
{
    double n = g->count;
    double d = s - g->mean;
    if (e->deviation == XM_RL_STD_POPULATION)
        return d / (sqrt(g->squares / n) + e->epsilon);
    if (e->deviation == XM_RL_STD_OTHERS) {
        if (n < 2)
            return 0.0;
        double a = d * (n / (n - 1.0));
        double left = g->squares - d * a;
        /* Rounding leaves a small remainder where the others are all equal. */
        if (n < 3 || left <= 1e-12 * g->squares)
            return a;
        return a / (sqrt(left / (n - 2.0)) + e->epsilon);
    }
    if (n < 2)
        return e->deviation == XM_RL_STD_NONE ? s : s / (1.0 + e->epsilon);
    return e->deviation == XM_RL_STD_NONE
               ? d
               : d / (xm_rl_group_deviation(g) + e->epsilon);
}

/* Only the best response counts: by as much as it beats the second (verl
 * `grpo_passk`; Tang et al., "Optimizing language models for inference time
 * objectives", 2025), over the unbiased deviation when normalising. verl raises
 * on a group of one; it gets 0 here. */
static double passk_advantage(const xm_rl_estimator *e, const xm_rl_group *g,
                              uint64_t row)
{
    if (g->count < 2 || row != g->best_row)
        return 0.0;
    double gain = g->high - g->second;
    return e->deviation == XM_RL_STD_NONE
               ? gain
               : gain / (xm_rl_group_deviation(g) + e->epsilon);
}

/* GRPO and pass@k above; the others, verl's functions of the same name:
 *   rloo         n / (n - 1) (s - mu) = s less the mean of the others (Ahmadian
 *                et al., "Back to basics", 2024); alone: s
 *   rloo_vectorized  the same; alone: 0
 *   opo          s - sum(len s) / sum(len) (Hao et al., "On-policy RL with
 *                optimal reward baseline", 2025); alone: s
 *   gpg          (s - mu) B / max(rows whose score is not 0, 1) (Chu et al.,
 *                "GPG", 2025); alone: mu = 0
 *   maxrl        (s - mu) / (mu + epsilon) (SkyRL `compute_maxrl_advantage`);
 *                alone: mu = 0
 *   gdpo         GRPO of one reward; the caller adds up w_k A_k over rewards k
 *                and whitens (Liu et al., "GDPO: group reward-decoupled
 *                normalization policy optimization", 2026)
 *   reinforce_plus_plus_baseline  s - mu (Hu et al., "REINFORCE++", 2025);
 *                alone: s */
double xm_rl_advantage(const xm_rl_estimator *estimator,
                       const xm_rl_group *group,
                       const xm_rl_score_counts *counts, double score,
                       uint64_t row)
{
    int alone = group->count < 2;
    double centred = alone ? score : score - group->mean;
    switch (estimator->type) {
    case XM_RL_ADV_GRPO:
    case XM_RL_ADV_GDPO:
        return grpo_advantage(estimator, group, score);
    case XM_RL_ADV_PASSK:
        return passk_advantage(estimator, group, row);
    case XM_RL_ADV_RLOO_VECTORIZED:
        if (alone)
            return 0.0;
        return centred * (group->count / (group->count - 1.0));
    case XM_RL_ADV_RLOO:
        return alone ? score : centred * (group->count / (group->count - 1.0));
    case XM_RL_ADV_OPO:
        return alone ? score : score - group->by_length;
    case XM_RL_ADV_GPG:
        return centred *
               (counts->rows / (counts->nonzero > 0 ? counts->nonzero : 1.0));
    case XM_RL_ADV_MAXRL:
        return centred / ((alone ? 0.0 : group->mean) + estimator->epsilon);
    default:
        return centred;
    }
}

/* min(-(length - (longest - buffer)) / buffer * factor, 0) (Yu et al., "DAPO",
 * 2025, eq. 13; verl `reward_manager/dapo.py`). */
double xm_rl_overlong(double length, double longest, double buffer,
                      double factor)
{
    double over = length - (longest - buffer);
    return over > 0 ? -over / buffer * factor : 0.0;
}

/* W_t = sum up to t of (1 - 2 p + sum over the vocabulary of p^2) [rho^2] (verl
 * `compute_optimal_token_baseline_advantage`). */
double xm_rl_otb_weight(const xm_rl_otb *group, uint64_t i, uint64_t t)
{
    double sum = 0;
    for (uint64_t k = 0; k <= t && k < group->tokens[i]; k++) {
        double w =
            1.0 - 2.0 * xm_rl_exp(group->logp[i][k]) + group->squares[i][k];
        double rho = group->ratio ? group->ratio[i][k] : 1.0;
        sum += w * rho * rho;
    }
    return sum;
}

/* B_t = sum(G W) / (sum(W) + 1e-8) over the rows that have a token t. The tail
 * of the single longest row has B = 0, and so has a group of one, because no
 * other row gives an expectation. A_t = G_t - B_t. */
double xm_rl_otb_baseline(const xm_rl_otb *group, uint64_t t)
{
    double weights = 0;
    double weighted = 0;
    uint64_t rows = 0;
    for (uint64_t i = 0; i < group->rows; i++) {
        if (t >= group->tokens[i])
            continue;
        double w = xm_rl_otb_weight(group, i, t);
        weights += w;
        weighted += w * group->returns[i][t];
        rows++;
    }
    return rows < 2 ? 0.0 : weighted / (weights + 1e-8);
}
