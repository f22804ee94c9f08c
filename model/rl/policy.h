/* SPDX-License-Identifier: Apache-2.0
 *
 * Computes the policy losses of one token. logp is the current log-probability,
 * old the one before the step's updates, a the advantage; ratio = exp(logp -
 * old). Values are not yet aggregated. Slopes are exact derivatives by logp, in
 * which terms that the source detaches are constant.
 */
#ifndef XM_RL_POLICY_H
#define XM_RL_POLICY_H

#include <stdint.h>

#include "model/rl/portable_math.h"

/* The limits of the policy's ratio. */
typedef struct xm_rl_clip {
    double low;   /* the ratio is clipped from below at 1 - low */
    double high;  /* and from above at 1 + high */
    double dual;  /* c of the dual clip; 0: none */
    double bound; /* the log-ratio is clamped to +-bound; 0: unbounded */
} xm_rl_clip;

typedef struct xm_rl_policy {
    xm_rl_term loss;
    double log_ratio;  /* after the bound */
    int clipped;       /* the clip was active */
    int clipped_lower; /* the dual clip, or the clip of the other side, was
                        * active */
} xm_rl_policy;

/* The clipped surrogate of PPO, dual clip included. */
xm_rl_policy xm_rl_vanilla(const xm_rl_clip *clip, double logp, double old,
                           double a);
/* Clipped weights, unclipped gradient. */
xm_rl_policy xm_rl_cispo(const xm_rl_clip *clip, double logp, double old,
                         double a);
/* -a logp: no ratio at all. */
xm_rl_policy xm_rl_gpg(const xm_rl_clip *clip, double logp, double old,
                       double a);
/* A soft gate instead of a clip; tau[0] applies to advantages above 0, tau[1]
 * to the others. */
xm_rl_policy xm_rl_sapo(const xm_rl_clip *clip, const double tau[2],
                        double logp, double old, double a);
/* A token that Clip-Cov picked has no loss; the others have PPO's loss without
 * the dual clip. A token that KL-Cov picked pays `coefficient` per unit of
 * |log-ratio|. */
xm_rl_policy xm_rl_clip_cov(const xm_rl_clip *clip, int picked, double logp,
                            double old, double a);
xm_rl_policy xm_rl_kl_cov(const xm_rl_clip *clip, double coefficient,
                          double logp, double old, double a);
/* Binary total variation, or binary KL (`kl`), instead of the ratio's clip. */
xm_rl_policy xm_rl_dppo(const xm_rl_clip *clip, int kl, double logp, double old,
                        double a);
/* Direct reward optimisation: a quadratic penalty beta > 0, no clip. */
xm_rl_policy xm_rl_dro(const xm_rl_clip *clip, double beta, double logp,
                       double old, double a);

/* ---- losses of complete rows -------------------------------------------- */

/* Sums over a row's tokens in the loss; zero-initialise, then add them all. */
typedef struct xm_rl_sequence {
    double tokens;
    double log_ratio;  /* sum of logp - old */
    double held;       /* the same, each limited as in GMPO */
    double advantage;  /* sum */
    double log_weight; /* sum of log(w + 1e-10), w of the rollout correction */
} xm_rl_sequence;

void xm_rl_sequence_add(const xm_rl_clip *clip, double logp, double old,
                        double a, double weight, xm_rl_sequence *row);
/* GSPO: every token of the row carries the row's geometric mean ratio. */
xm_rl_policy xm_rl_gspo(const xm_rl_clip *clip, const xm_rl_sequence *row,
                        double logp, double old, double a);
/* GMPO: the row's loss on each of its tokens, to be averaged over the row. It
 * includes the rollout correction. */
xm_rl_policy xm_rl_gmpo(const xm_rl_clip *clip, const xm_rl_sequence *row,
                        double logp, double old, double a);

/* ---- tokens picked by covariance ---------------------------------------- */

/* Means over the tokens in the loss of a mini-batch: zero-initialise, add all
 * tokens, close. */
typedef struct xm_rl_covariance {
    double tokens;
    double advantage;
    double logp;
} xm_rl_covariance;

void xm_rl_covariance_add(xm_rl_covariance *means, double a, double logp);
void xm_rl_covariance_close(xm_rl_covariance *means);
double xm_rl_covariance_at(const xm_rl_covariance *means, double a,
                           double logp);
/* max(int(ratio * tokens), 1); 0 without tokens. */
uint64_t xm_rl_covariance_picks(const xm_rl_covariance *means, double ratio);

/* Marks the `picks` entries with the largest keys with 1 and the others with 0.
 * Among equal keys earlier entries come first, and an entry with key 0 is never
 * picked. The key of entry i may depend on the old out_marks[i]. */
void xm_rl_pick(uint64_t (*key)(const void *ctx, uint64_t i), const void *ctx,
                uint64_t count, uint64_t picks, uint8_t *out_marks);
/* A key whose order is that of the numbers; above 0 unless x is a NaN. */
uint64_t xm_rl_key(double x);

#endif
