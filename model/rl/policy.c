/* SPDX-License-Identifier: Apache-2.0
 *
 * Computes the policy losses of single tokens and their derivatives.
 */
#include "model/rl/policy.h"

#include <math.h>

typedef struct ratio {
    double x; /* log-ratio */
    double rho;
    double kept; /* rho within the clip */
    int cut;     /* the bound applies, so the gradient is 0 */
} ratio;

static ratio policy_ratio(const xm_rl_clip *clip, double logp, double old)
{
    ratio r = { .x = logp - old };
    r.cut = clip->bound > 0 && fabs(r.x) > clip->bound;
    if (r.cut)
        r.x = r.x > 0 ? clip->bound : -clip->bound;
    r.rho = xm_rl_exp(r.x);
    r.kept = r.rho;
    if (r.rho < 1.0 - clip->low)
        r.kept = 1.0 - clip->low;
    if (r.rho > 1.0 + clip->high)
        r.kept = 1.0 + clip->high;
    return r;
}

/* max(-A rho, -A kept), whose slope is -A rho where the first is taken. Where
 * only the second is, rho is outside of the clip and the slope 0. */
static xm_rl_policy clip_surrogate(const ratio *r, double a)
{
    double l1 = -a * r->rho;
    double l2 = -a * r->kept;
    xm_rl_policy out = { .log_ratio = r->x, .clipped = l2 > l1 };
    out.loss.value = out.clipped ? l2 : l1;
    out.loss.slope = out.clipped || r->cut ? 0.0 : l1;
    return out;
}

/* With x = logp - old, rho = exp(x), A the advantage:
 *   l1 = -A rho,  l2 = -A clip(rho, 1 - low, 1 + high),  l = max(l1, l2)
 * (Schulman et al., "Proximal policy optimization", 2017, eq. 7; two bounds:
 * Yu et al., "DAPO", 2025), and where A < 0 the dual clip l = min(l, -A c)
 * (Ye et al., "Mastering complex control in MOBA games", 2020). verl's
 * `vanilla` keeps x within +-20 first; TRL does not. */
xm_rl_policy xm_rl_vanilla(const xm_rl_clip *clip, double logp, double old,
                           double a)
{
    ratio r = policy_ratio(clip, logp, old);
    xm_rl_policy out = clip_surrogate(&r, a);
    double most = -a * clip->dual;
    if (clip->dual > 0 && a < 0 && out.loss.value > most) {
        out.loss = (xm_rl_term){ .value = most, .slope = 0.0 };
        out.clipped_lower = 1;
    }
    return out;
}

/* l = -sg(clip(rho, 1 - low, 1 + high)) A logp (MiniMax, "MiniMax-M1", 2025;
 * verl, SkyRL, slime `cispo`). TRL's bound is epsilon_high itself and it has no
 * lower one: high = epsilon_high - 1, low = 1. open-instruct: low = 1. */
xm_rl_policy xm_rl_cispo(const xm_rl_clip *clip, double logp, double old,
                         double a)
{
    ratio r = policy_ratio(clip, logp, old);
    return (xm_rl_policy){ .loss = { -r.kept * a * logp, -r.kept * a },
                           .log_ratio = r.x,
                           .clipped = r.rho > r.kept,
                           .clipped_lower = r.rho < r.kept };
}

/* l = -A logp (Chu et al., "GPG", 2025; verl `gpg`). */
xm_rl_policy xm_rl_gpg(const xm_rl_clip *clip, double logp, double old,
                       double a)
{
    ratio r = policy_ratio(clip, logp, old);
    return (xm_rl_policy){ .loss = { -a * logp, -a }, .log_ratio = r.x };
}

/* l = -f A with f = sigmoid(tau (rho - 1)) 4 / tau (Gao et al., "Soft adaptive
 * policy optimization", 2025; verl `sapo`): df / drho = 4 s (1 - s), which is 1
 * at rho = 1. */
xm_rl_policy xm_rl_sapo(const xm_rl_clip *clip, const double tau[2],
                        double logp, double old, double a)
{
    ratio r = policy_ratio(clip, logp, old);
    double t = a > 0 ? tau[0] : tau[1];
    double gate = 1.0 / (1.0 + xm_rl_exp(-t * (r.rho - 1.0)));
    double slope = -a * 4.0 * gate * (1.0 - gate) * r.rho;
    return (xm_rl_policy){ .loss = { -a * gate * 4.0 / t, r.cut ? 0.0 : slope },
                           .log_ratio = r.x };
}

/* Cui et al., "The entropy mechanism of reinforcement learning", 2025; verl
 * `clip_cov`: the clip without the dual one, times 0 where the token was
 * picked; `clipped` counts the picked. */
xm_rl_policy xm_rl_clip_cov(const xm_rl_clip *clip, int picked, double logp,
                            double old, double a)
{
    ratio r = policy_ratio(clip, logp, old);
    xm_rl_policy out = clip_surrogate(&r, a);
    if (picked)
        out.loss = (xm_rl_term){ 0.0, 0.0 };
    out.clipped_lower = out.clipped && !picked;
    out.clipped = picked;
    return out;
}

/* The same paper; verl `kl_cov`: -A rho + coefficient |x| of a picked token
 * (coefficient 0: of any other). */
xm_rl_policy xm_rl_kl_cov(const xm_rl_clip *clip, double coefficient,
                          double logp, double old, double a)
{
    ratio r = policy_ratio(clip, logp, old);
    double l = -a * r.rho;
    double sign = (double)((r.x > 0) - (r.x < 0));
    return (xm_rl_policy){
        .loss = { l + coefficient * fabs(r.x),
                  r.cut ? 0.0 : l + coefficient * sign },
        .log_ratio = r.x,
        .clipped = coefficient != 0,
    };
}

/* p log(p / q) + (1 - p) log((1 - p) / (1 - q)) with p the old probability,
 * verl's 1e-8 included. */
static double binary_divergence(double logp, double old, double now,
                                double before)
{
    return before * (old - logp) +
           (1.0 - before) *
               xm_rl_log((1.0 - before + 1e-8) / (1.0 - now + 1e-8));
}

/* l = -A sg(min(rho, c)) logp where the token may still move (verl `dppo_tv`,
 * `dppo_kl`; arXiv 2602.04879), else 0. With p = exp(logp), q = exp(old):
 *   tv: A > 0: p - q <= high;  else p - q >= -low
 *   kl: A > 0: KL <= high or p <= q;  else KL <= low or p >= q
 * The dual clip's c is the bound of the ratio, 0: none. */
xm_rl_policy xm_rl_dppo(const xm_rl_clip *clip, int kl, double logp, double old,
                        double a)
{
    ratio r = policy_ratio(clip, logp, old);
    double p = xm_rl_exp(logp);
    double q = xm_rl_exp(old);
    double far = kl      ? binary_divergence(logp, old, p, q)
                 : a > 0 ? p - q
                         : q - p;
    int valid = far <= (a > 0 ? clip->high : clip->low);
    if (kl)
        valid = valid || (a > 0 ? p <= q : p >= q);
    int held = clip->dual > 0 && r.rho > clip->dual;
    double weight = !valid ? 0.0 : held ? clip->dual : r.rho;
    return (xm_rl_policy){ .loss = { -a * weight * logp, -a * weight },
                           .log_ratio = r.x,
                           .clipped = !valid,
                           .clipped_lower = valid && held };
}

/* l = -(A logp - beta / 2 (logp - old)^2) (Richemond et al., "Offline
 * regularised reinforcement learning", 2024; verl `dro`). */
xm_rl_policy xm_rl_dro(const xm_rl_clip *clip, double beta, double logp,
                       double old, double a)
{
    ratio r = policy_ratio(clip, logp, old);
    double x = logp - old;
    return (xm_rl_policy){ .loss = { -(a * logp - 0.5 * beta * x * x),
                                     -a + beta * x },
                           .log_ratio = r.x };
}
