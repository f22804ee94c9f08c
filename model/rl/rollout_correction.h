/* SPDX-License-Identifier: Apache-2.0
 *
 * Rollout correction: weights and rejection for tokens whose sampler's
 * log-probability is not the trainer's. log r = old - rollout.
 */
#ifndef XM_RL_ROLLOUT_CORRECTION_H
#define XM_RL_ROLLOUT_CORRECTION_H

#include <stdint.h>

#include "model/rl/portable_math.h"

enum { XM_RL_IS_NONE, XM_RL_IS_TOKEN, XM_RL_IS_SEQUENCE };

/* Rejection: over what, by which estimate of the drift. */
enum { XM_RL_RS_TOKEN, XM_RL_RS_SUM, XM_RL_RS_MEAN, XM_RL_RS_MAX };
enum { XM_RL_RS_NONE, XM_RL_RS_K1, XM_RL_RS_K2, XM_RL_RS_K3 };

typedef struct xm_rl_correction {
    int64_t weight; /* XM_RL_IS_* */
    double low;     /* weights below are 0, with those above `high`; < 0:
                     * weights are cut down to `high` (TIS) */
    double high;
    int64_t level;  /* XM_RL_RS_TOKEN ... */
    int64_t kind;   /* XM_RL_RS_NONE ... */
    double rs_low;  /* k1: bounds of the ratio */
    double rs_high; /* k2, k3: bound of the estimate */
} xm_rl_correction;

/* A row's drift, over its tokens in the loss. Zero-initialise, add, close. */
typedef struct xm_rl_drift {
    double tokens;
    double sum;      /* of log r */
    double kept;     /* 1: the row stays; after close */
    double estimate; /* sum of the estimate of the rule */
    double least;    /* extremes of it */
    double most;
} xm_rl_drift;

/* log r, within +-20. */
double xm_rl_log_drift(double old, double rollout);
void xm_rl_drift_add(const xm_rl_correction *rule, double log_r,
                     xm_rl_drift *row);
void xm_rl_drift_close(const xm_rl_correction *rule, xm_rl_drift *row);
/* 0: the token leaves the loss. */
int xm_rl_drift_keeps(const xm_rl_correction *rule, const xm_rl_drift *row,
                      double log_r);
/* The token's weight in the policy loss. */
double xm_rl_drift_weight(const xm_rl_correction *rule, const xm_rl_drift *row,
                          double log_r);

#endif
