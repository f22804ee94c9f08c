/* SPDX-License-Identifier: Apache-2.0
 *
 * Computes the estimators of the KL divergence and, as `slope`, their
 * derivatives by logp.
 */
#include "model/rl/kl.h"

#include <math.h>

/* k3 = exp(d) - d - 1 with d = ref - logp (Schulman, "Approximating KL
 * divergence", 2020). verl (`low_var_kl`, here `bounded`) clamps the result
 * to +-10, where its gradient is 0. verl also clamps d to +-20, which changes
 * nothing: k3 is above 10 at both ends and beyond. TRL has no limits. */
static xm_rl_term k3_estimate(int bounded, double logp, double ref)
{
    double d = ref - logp;
    double e = xm_rl_exp(d);
    xm_rl_term term = { .value = e - d - 1.0, .slope = 1.0 - e };
    if (bounded && term.value > 10.0)
        term = (xm_rl_term){ .value = 10.0, .slope = 0.0 };
    return term;
}

/* Where |l| > 20, each of the estimates is beyond +-10, so the result is +-10
 * whichever of the two limits applies. */
static xm_rl_term clamp_estimate(xm_rl_term term, double l)
{
    const double most = 10.0;
    if (fabs(l) > 20.0 || fabs(term.value) > most)
        term = (xm_rl_term){ term.value < 0 ? -most : most, 0.0 };
    return term;
}

/* With l = logp - ref (Schulman 2020; verl `kl_penalty_forward`):
 *   k1 = l,  abs = |l|,  k2 = l^2 / 2,  k3 above.
 * With XM_RL_KL_STRAIGHT (verl `kl_penalty`, names ending in "+") the value is
 * the estimator's, but the slope is that of k2, l: on samples of the policy,
 * its expectation times the gradient of logp is the gradient of the KL. */
xm_rl_term xm_rl_kl(int64_t type, int bounded, double logp, double ref)
{
    const int64_t flags = XM_RL_KL_STRAIGHT | XM_RL_KL_CLAMPED;
    double l = logp - ref;
    xm_rl_term term = { l, 1.0 };
    switch (type & ~flags) {
    case XM_RL_KL_ABS:
        term = (xm_rl_term){ fabs(l), (l > 0) - (l < 0) };
        break;
    case XM_RL_KL_K2:
        term = (xm_rl_term){ 0.5 * l * l, l };
        break;
    case XM_RL_KL_K3:
        term = k3_estimate(bounded, logp, ref);
        break;
    default:
        break;
    }
    if (type & XM_RL_KL_STRAIGHT)
        term.slope = l;
    if (type & XM_RL_KL_CLAMPED)
        term = clamp_estimate(term, l);
    return term;
}
