/* SPDX-License-Identifier: Apache-2.0
 *
 * Computes generalised advantages and discounted returns over one response.
 */
#include "model/rl/ppo.h"

static int is_in_mask(const float *mask, uint64_t t)
{
    return !mask || mask[t] != 0;
}

/* Schulman et al., "High-dimensional continuous control using generalized
 * advantage estimation", 2015; verl `compute_gae_advantage_return`. From the
 * last token to the first:
 *   delta = r_t + gamma V' - V_t,  A_t = delta + gamma lam A'
 * where V' and A' are those of the next token, 0 after the last. Unless
 * `through` is set, a masked token leaves V' and A' as they were, so a tool's
 * output neither discounts nor stops credit (verl's test
 * test_multi_turn_compute_gae_advantage_return). With `through` (SkyRL
 * `compute_gae_advantage_return`, trlX `get_advantages_and_returns`) every
 * position counts.
 */
void xm_rl_gae(const xm_rl_gae_rule *rule, const float *reward,
               const float *value, const float *mask, uint64_t count,
               float *out_advantage, float *out_returns)
{
    double next_value = 0;
    double next = 0;
    for (uint64_t t = count; t-- > 0;) {
        if (!rule->through && !is_in_mask(mask, t)) {
            out_advantage[t] = 0;
            out_returns[t] = 0;
            continue;
        }
        double v = (double)value[t];
        double delta = (double)reward[t] + rule->gamma * next_value - v;
        next = delta + rule->gamma * rule->lam * next;
        next_value = v;
        out_advantage[t] = (float)next;
        out_returns[t] = (float)(next + v);
    }
}

/* G_t = r_t + gamma G_{t+1}; masked tokens carry G unchanged and store 0 (verl
 * `compute_reinforce_plus_plus_outcome_advantage` since 2026-08-10,
 * verl#7300). */
void xm_rl_returns(double gamma, const float *reward, const float *mask,
                   uint64_t count, float *out_returns)
{
    double next = 0;
    for (uint64_t t = count; t-- > 0;) {
        if (is_in_mask(mask, t))
            next = (double)reward[t] + gamma * next;
        out_returns[t] = is_in_mask(mask, t) ? (float)next : 0.0f;
    }
}
