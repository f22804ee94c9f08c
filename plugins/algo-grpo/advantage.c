/* SPDX-License-Identifier: Apache-2.0 */
#include "plugins/algo-grpo/formula.h"

/* With s the score, mu and sigma the mean and unbiased standard deviation of
 * the n scores of the group:
 *   grpo            (s - mu) / (sigma + epsilon)  (Shao et al., "DeepSeekMath",
 *                   2024; verl `grpo` 1e-6, TRL `scale_rewards=group` 1e-4)
 *                   s - mu without the division (Liu et al., "Dr. GRPO", 2025)
 *   rloo            n / (n - 1) (s - mu) = s - mean of the others
 *                   (Ahmadian et al., "Back to basics", 2024)
 * A group of one: verl sets mu = 0 and sigma = 1 in `grpo`, keeps s in `rloo`
 * and gives 0 in `rloo_vectorized`. */
double grpo_advantage(const grpo_estimator *estimator, const grpo_group *group,
                      double score)
{
    int alone = group->count < 2;
    double centred = alone ? score : score - group->mean;
    if (estimator->type == GRPO_ESTIMATOR_GRPO) {
        if (!estimator->by_deviation)
            return centred;
        return centred /
               ((alone ? 1.0 : group->deviation) + estimator->epsilon);
    }
    if (alone)
        return estimator->type == GRPO_ESTIMATOR_RLOO ? score : 0.0;
    double n = (double)group->count;
    return centred * (n / (n - 1.0));
}
