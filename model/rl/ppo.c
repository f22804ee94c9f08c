/* SPDX-License-Identifier: Apache-2.0
 *
 * Computes the critic's value loss and the adaptive KL coefficient.
 */
#include "model/rl/ppo.h"

static double clamp_value(double x, double low, double high)
{
    return x < low ? low : x > high ? high : x;
}

/* With v the current value, V the one before the updates, R the return (verl
 * `compute_value_loss`; trlX `PPOConfig.loss`):
 *   vc = clip(v, V - c, V + c),  loss = max((v - R)^2, (vc - R)^2) / 2
 * Where the second is taken v is outside the clip, and the slope is 0. */
xm_rl_value xm_rl_value_loss(double clip, double value, double old_value,
                             double returns)
{
    double plain = value - returns;
    xm_rl_value out = { .loss = { 0.5 * plain * plain, plain } };
    if (!(clip > 0))
        return out;
    double held =
        clamp_value(value, old_value - clip, old_value + clip) - returns;
    if (held * held > plain * plain) {
        out.loss = (xm_rl_term){ 0.5 * held * held, 0.0 };
        out.clipped = 1;
    }
    return out;
}

/* Ziegler et al., "Fine-tuning language models from human preferences", 2019,
 * section 2.2; verl `AdaptiveKLController.update`, trlX the same:
 *   e = clip(kl / target - 1, -0.2, 0.2),  beta *= 1 + e steps / horizon */
double xm_rl_kl_update(const xm_rl_kl_control *control, double coefficient,
                       double kl, double steps)
{
    if (!control->adaptive)
        return coefficient;
    double error = clamp_value(kl / control->target - 1.0, -0.2, 0.2);
    return coefficient * (1.0 + error * steps / control->horizon);
}
