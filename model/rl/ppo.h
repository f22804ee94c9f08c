/* SPDX-License-Identifier: Apache-2.0
 *
 * Computes what PPO with a critic needs: generalised advantage estimation,
 * whitening, the value loss, KL controllers and running moments. Masks are per
 * token, 1: the policy chose it; a NULL mask is all ones. Entries outside a
 * mask are never read, unless a function says so.
 */
#ifndef XM_RL_PPO_H
#define XM_RL_PPO_H

#include <stdint.h>

#include "model/rl/portable_math.h"

/* ---- advantages --------------------------------------------------------- */

typedef struct xm_rl_gae_rule {
    double gamma;
    double lam;
    int through; /* 1: the recursion ignores the mask (SkyRL, OpenRLHF, TRL,
                  * trlX), and every entry is read and written;
                  * 0: it carries over masked tokens (verl, AReaL, NeMo-RL),
                  * whose entries become 0 */
} xm_rl_gae_rule;

/* Generalised advantage estimation over one response of `count` tokens;
 * advantage is not whitened, returns = advantage + value. */
void xm_rl_gae(const xm_rl_gae_rule *rule, const float *reward,
               const float *value, const float *mask, uint64_t count,
               float *out_advantage, float *out_returns);

/* Discounted sums of the rewards from each token on. Masked tokens are skipped,
 * get 0, and their rewards are ignored (see returns.c). */
void xm_rl_returns(double gamma, const float *reward, const float *mask,
                   uint64_t count, float *out_returns);

/* ---- statistics --------------------------------------------------------- */

typedef struct xm_rl_stats {
    double count; /* entries of the mask, or their weight */
    double mean;
    double variance; /* of the population: divided by count */
} xm_rl_stats;

/* Computes statistics of the entries whose mask is not 0; all are 0 if there
 * are none. */
void xm_rl_masked_stats(const float *x, const float *mask, uint64_t count,
                        xm_rl_stats *out);
/* Merges `part` into `into` (Chan, Golub, LeVeque, 1979). */
void xm_rl_stats_merge(xm_rl_stats *into, const xm_rl_stats *part);
/* The variance times count / (count - 1); 0 for fewer than two entries. */
double xm_rl_unbiased(const xm_rl_stats *stats);

typedef struct xm_rl_whiten_rule {
    int unbiased;   /* verl, single-process trlX: 1; distributed trlX: 0 */
    int keep_mean;  /* verl shift_mean=False: the mean is added back */
    double epsilon; /* 1e-8 everywhere */
} xm_rl_whiten_rule;

/* x = (x - mean) / sqrt(variance + epsilon), for entries in the mask; others
 * stay as they are. With fewer than two entries verl stops with an error; here
 * they are only centred. */
void xm_rl_whiten(const xm_rl_whiten_rule *rule, const xm_rl_stats *stats,
                  const float *mask, uint64_t count, float *x);

/* 1 - Var(returns - value) / (Var(returns) + 1e-5), unbiased variances. */
double xm_rl_explained_variance(const float *returns, const float *value,
                                const float *mask, uint64_t count);

/* ---- the critic's loss -------------------------------------------------- */

typedef struct xm_rl_value {
    xm_rl_term loss; /* its slope is with respect to `value` */
    int clipped;     /* the clip made the loss larger */
} xm_rl_value;

/* Half the squared error of one token, not yet aggregated; `clip` <= 0: no
 * clip. */
xm_rl_value xm_rl_value_loss(double clip, double value, double old_value,
                             double returns);

/* ---- KL controllers ----------------------------------------------------- */

typedef struct xm_rl_kl_control {
    int adaptive;   /* 0: the coefficient stays */
    double target;  /* target_kl, above 0 */
    double horizon; /* above 0 */
} xm_rl_kl_control;

/* The coefficient after `steps` samples whose KL was `kl`. */
double xm_rl_kl_update(const xm_rl_kl_control *control, double coefficient,
                       double kl, double steps);

/* ---- running moments ---------------------------------------------------- */

/* Moments of all scores so far. Call xm_rl_moments_init first. */
typedef struct xm_rl_moments {
    double count;
    double mean;
    double variance;  /* of the population */
    double deviation; /* unbiased */
} xm_rl_moments;

void xm_rl_moments_init(xm_rl_moments *m);
/* Adds `count` scores (0: nothing changes); `*out_deviation` (may be NULL) is
 * the unbiased deviation of the added ones alone. */
void xm_rl_moments_add(xm_rl_moments *m, const double *scores, uint64_t count,
                       double *out_deviation);

#endif
