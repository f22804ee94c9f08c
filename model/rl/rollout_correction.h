/* SPDX-License-Identifier: Apache-2.0
 *
 * Corrects for tokens whose log-probability in the sampler differs from the
 * trainer's, by weights and by rejection. log r = old - rollout.
 */
#ifndef XM_RL_ROLLOUT_CORRECTION_H
#define XM_RL_ROLLOUT_CORRECTION_H

#include <stdint.h>

#include "model/rl/portable_math.h"

enum { XM_RL_IS_NONE, XM_RL_IS_TOKEN, XM_RL_IS_SEQUENCE };

/* Rejection: the level at which it is decided, and the estimate of the drift.
 */
enum { XM_RL_RS_TOKEN, XM_RL_RS_SUM, XM_RL_RS_MEAN, XM_RL_RS_MAX };
enum { XM_RL_RS_NONE, XM_RL_RS_K1, XM_RL_RS_K2, XM_RL_RS_K3 };

typedef struct xm_rl_correction {
    int64_t weight; /* XM_RL_IS_* */
    double low;     /* weights below it or above `high` become 0; < 0: weights
                     * are truncated to `high` (TIS) */
    double high;
    int64_t level;  /* XM_RL_RS_TOKEN ... */
    int64_t kind;   /* XM_RL_RS_NONE ... */
    double rs_low;  /* k1: bounds of the ratio */
    double rs_high; /* k2, k3: bound of the estimate */
} xm_rl_correction;

/* A row's drift over its tokens in the loss. Zero-initialise, add all tokens,
 * then close. */
typedef struct xm_rl_drift {
    double tokens;
    double sum;      /* of log r */
    double kept;     /* 1: the row stays in the loss; valid after close */
    double estimate; /* sum of the rule's estimate */
    double least;    /* extremes of that estimate */
    double most;
} xm_rl_drift;

/* Returns log r, clamped to +-20. */
double xm_rl_log_drift(double old, double rollout);
void xm_rl_drift_add(const xm_rl_correction *rule, double log_r,
                     xm_rl_drift *row);
void xm_rl_drift_close(const xm_rl_correction *rule, xm_rl_drift *row);
/* Returns 0 if the token is removed from the loss. */
int xm_rl_drift_keeps(const xm_rl_correction *rule, const xm_rl_drift *row,
                      double log_r);
/* The token's weight in the policy loss. */
double xm_rl_drift_weight(const xm_rl_correction *rule, const xm_rl_drift *row,
                          double log_r);

#endif
