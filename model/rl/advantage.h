/* SPDX-License-Identifier: Apache-2.0
 *
 * Advantages without a critic: a sample's score against the other samples of
 * its prompt. Scores of a group come one after the other, so that rows may lie
 * in any order: add them all, close, deviate them all, then ask.
 */
#ifndef XM_RL_ADVANTAGE_H
#define XM_RL_ADVANTAGE_H

#include <stdint.h>

#include "model/rl/portable_math.h"

/* What is known of a group's scores. Zero-initialise. */
typedef struct xm_rl_group {
    double count;
    double mean;    /* after xm_rl_group_close */
    double squares; /* sum of (score - mean)^2 */
    double low;
    double high;
    double second;     /* the largest but one; equal to `high` on a tie */
    double length;     /* sum of the responses' lengths */
    double by_length;  /* sum of length * score, after close: their quotient */
    uint64_t best_row; /* the first row that has `high` */
} xm_rl_group;

/* `length`: tokens of the response that are in the loss. */
void xm_rl_group_add(xm_rl_group *group, double score, double length,
                     uint64_t row);
void xm_rl_group_close(xm_rl_group *group);
void xm_rl_group_deviate(xm_rl_group *group, double score);
/* Unbiased standard deviation; 0 of fewer than two. */
double xm_rl_group_deviation(const xm_rl_group *group);

/* Estimators that give one number a row. */
enum {
    XM_RL_ADV_GRPO,
    XM_RL_ADV_RLOO,
    XM_RL_ADV_RLOO_VECTORIZED,
    XM_RL_ADV_PASSK,
    XM_RL_ADV_OPO,
    XM_RL_ADV_GPG,
    XM_RL_ADV_MAXRL,
    /* From the score less the mean of the group, whitened over the batch. */
    XM_RL_ADV_REINFORCE_BASELINE,
    /* These give a number a token (xm_rl_returns). */
    XM_RL_ADV_REINFORCE,
    XM_RL_ADV_REMAX,
    /* GRPO of every reward by itself, summed and whitened: xm_rl_advantage
     * gives one reward's part. */
    XM_RL_ADV_GDPO,
};

/* What a centred score is divided by. */
enum {
    XM_RL_STD_NONE,
    XM_RL_STD_UNBIASED,   /* of the group, n - 1 */
    XM_RL_STD_POPULATION, /* of the group, n */
    XM_RL_STD_OTHERS,     /* of the others, and their mean is the baseline */
};

typedef struct xm_rl_estimator {
    int64_t type;
    int64_t deviation; /* XM_RL_STD_* of GRPO and pass@k */
    double epsilon;    /* added to the deviation */
} xm_rl_estimator;

/* The batch's part in GPG: rows, and those whose score is not 0. */
typedef struct xm_rl_score_counts {
    double rows;
    double nonzero;
} xm_rl_score_counts;

/* The advantage of row `row`, whose score is `score`. */
double xm_rl_advantage(const xm_rl_estimator *estimator,
                       const xm_rl_group *group,
                       const xm_rl_score_counts *counts, double score,
                       uint64_t row);

/* DAPO's overlong shaping: what a response of `length` tokens loses, <= 0. */
double xm_rl_overlong(double length, double longest, double buffer,
                      double factor);

/* ---- per-token baselines of a group -------------------------------------- */

/* Rows of a group, each `tokens[i]` long: what the optimal token baseline
 * reads. All tokens are in the loss. */
typedef struct xm_rl_otb {
    uint64_t rows;
    const uint64_t *tokens;
    const double *const *returns; /* G of every token */
    const double *const *logp;    /* old */
    const double *const *squares; /* sum over the vocabulary of p^2 */
    const double *const *ratio;   /* rho of the rollout correction, or NULL */
} xm_rl_otb;

/* Sum over tokens up to `t` of row `i`'s weight. */
double xm_rl_otb_weight(const xm_rl_otb *group, uint64_t i, uint64_t t);
/* The baseline of every row's token `t`. */
double xm_rl_otb_baseline(const xm_rl_otb *group, uint64_t t);

#endif
