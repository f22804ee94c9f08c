/* SPDX-License-Identifier: Apache-2.0
 *
 * Estimates the KL divergence of the policy from a reference, from the
 * log-probabilities of one sampled token.
 */
#ifndef XM_RL_KL_H
#define XM_RL_KL_H

#include <stdint.h>

#include "model/rl/portable_math.h"

enum {
    XM_RL_KL_K1,  /* "kl", "k1" */
    XM_RL_KL_ABS, /* "abs" */
    XM_RL_KL_K2,  /* "mse", "k2" */
    XM_RL_KL_K3,  /* "low_var_kl", "k3" */
    /* Added to one of the above, verl's suffix "+": that estimator's value with
     * the gradient of k2. */
    XM_RL_KL_STRAIGHT = 8,
    /* Added to one of the above, NeMo-RL's `calculate_kl`: |logp - ref| is
     * limited to 20 and the estimate to +-10. Where either limit applies, the
     * gradient is 0. */
    XM_RL_KL_CLAMPED = 16,
};

/* Estimates KL(policy || reference) from a token whose log-probability is
 * `logp` under the policy and `ref` under the reference. `bounded` adds verl's
 * limits to k3. */
xm_rl_term xm_rl_kl(int64_t type, int bounded, double logp, double ref);

#endif
