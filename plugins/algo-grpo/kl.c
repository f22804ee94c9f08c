/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "plugins/algo-grpo/formula.h"

/* k3 = exp(d) - d - 1 with d = ref - logp (Schulman, "Approximating KL
 * divergence", 2020). verl (`low_var_kl`) keeps the result within +-10, and
 * where that limit holds no gradient passes; its limit of 20 on |d| never
 * decides, as k3 is above 10 by then. TRL has no limits. */
static grpo_term k3(int bounded, double logp, double ref)
{
    double d = ref - logp;
    double e = grpo_exp(d);
    grpo_term term = { .value = e - d - 1.0, .slope = 1.0 - e };
    if (bounded && term.value > 10.0)
        term = (grpo_term){ .value = 10.0, .slope = 0.0 };
    return term;
}

/* With l = logp - ref (Schulman 2020; verl `kl_penalty`):
 *   k1 = l,  abs = |l|,  k2 = l^2 / 2,  k3 above. */
grpo_term grpo_kl(int64_t type, int bounded, double logp, double ref)
{
    double l = logp - ref;
    switch (type) {
    case GRPO_KL_ABS:
        return (grpo_term){ fabs(l), (l > 0) - (l < 0) };
    case GRPO_KL_K2:
        return (grpo_term){ 0.5 * l * l, l };
    case GRPO_KL_K3:
        return k3(bounded, logp, ref);
    default:
        return (grpo_term){ l, 1.0 };
    }
}
