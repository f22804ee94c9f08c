/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "plugins/algo-grpo/formula.h"

/* With x = logp - old, rho = exp(x), A the advantage:
 *   l1 = -A rho,  l2 = -A clip(rho, 1 - low, 1 + high),  l = max(l1, l2)
 * (Schulman et al., "Proximal policy optimization", 2017, eq. 7; two bounds:
 * Yu et al., "DAPO", 2025), and where A < 0 the dual clip l = min(l, -A c)
 * (Ye et al., "Mastering complex control in MOBA games", 2020). verl's
 * `vanilla` keeps x within +-20 first; TRL does not.
 *
 * dl/dlogp is -A rho where l1 is taken and the bound does not hold. Where l2
 * alone is taken rho is outside the clip, and -A c is constant, so both have
 * slope 0. */
grpo_policy grpo_policy_loss(const grpo_clip *clip, double logp, double old,
                             double a)
{
    double x = logp - old;
    int cut = clip->bound > 0 && fabs(x) > clip->bound;
    if (cut)
        x = x > 0 ? clip->bound : -clip->bound;
    double rho = grpo_exp(x);
    double kept = rho;
    if (rho < 1.0 - clip->low)
        kept = 1.0 - clip->low;
    if (rho > 1.0 + clip->high)
        kept = 1.0 + clip->high;
    double l1 = -a * rho;
    double l2 = -a * kept;
    grpo_policy out = { .log_ratio = x, .clipped = l2 > l1 };
    out.loss.value = out.clipped ? l2 : l1;
    out.loss.slope = out.clipped || cut ? 0.0 : l1;
    double most = -a * clip->dual;
    if (clip->dual > 0 && a < 0 && out.loss.value > most) {
        out.loss = (grpo_term){ .value = most, .slope = 0.0 };
        out.clipped_lower = 1;
    }
    return out;
}
