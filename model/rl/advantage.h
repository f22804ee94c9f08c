/* SPDX-License-Identifier: Apache-2.0
 *
 * Computes advantages without a critic, from a sample's score and the other
 * scores of its prompt. Rows may come in any order: add all scores of a group,
 * close it, call deviate with all of them, and then ask for advantages.
 */
#ifndef XM_RL_ADVANTAGE_H
#define XM_RL_ADVANTAGE_H

#include <stdint.h>

#include "model/rl/portable_math.h"

/* Statistics of a group's scores. Zero-initialise. */
typedef struct xm_rl_group {
    double count;
    double mean;    /* after xm_rl_group_close */
    double squares; /* sum of (score - mean)^2 */
    double low;
    double high;
    double second;     /* the second largest; equal to `high` on a tie */
    double length;     /* sum of the responses' lengths */
    double by_length;  /* sum of length * score; after close, its quotient by
                        * `length` */
    uint64_t best_row; /* the first row that has `high` */
} xm_rl_group;

/* `length`: tokens of the response that are in the loss. */
void xm_rl_group_add(xm_rl_group *group, double score, double length,
                     uint64_t row);
void xm_rl_group_close(xm_rl_group *group);
void xm_rl_group_deviate(xm_rl_group *group, double score);
/* Unbiased standard deviation; 0 for fewer than two scores. */
double xm_rl_group_deviation(const xm_rl_group *group);

/* Estimators that give one number per row. */
enum {
    XM_RL_ADV_GRPO,
    XM_RL_ADV_RLOO,
    XM_RL_ADV_RLOO_VECTORIZED,
    XM_RL_ADV_PASSK,
    XM_RL_ADV_OPO,
    XM_RL_ADV_GPG,
    XM_RL_ADV_MAXRL,
    /* The score less the mean of the group, whitened over the batch. */
    XM_RL_ADV_REINFORCE_BASELINE,
    /* These give one number per token (xm_rl_returns). */
    XM_RL_ADV_REINFORCE,
    XM_RL_ADV_REMAX,
    /* GRPO of each reward by itself, summed and whitened; xm_rl_advantage
     * computes the part of one reward. */
    XM_RL_ADV_GDPO,
};

/* The deviation by which a centred score is divided. */
enum {
    XM_RL_STD_NONE,
    XM_RL_STD_UNBIASED,   /* of the group, n - 1 */
    XM_RL_STD_POPULATION, /* of the group, n */
    XM_RL_STD_OTHERS,     /* of the other scores, whose mean is the baseline */
};

typedef struct xm_rl_estimator {
    int64_t type;
    int64_t deviation; /* XM_RL_STD_*, for GRPO and pass@k */
    double epsilon;    /* added to the deviation */
} xm_rl_estimator;

/* Counts over the batch for GPG: rows, and rows whose score is not 0. */
typedef struct xm_rl_score_counts {
    double rows;
    double nonzero;
} xm_rl_score_counts;

/* The advantage of row `row`, whose score is `score`. */
double xm_rl_advantage(const xm_rl_estimator *estimator,
                       const xm_rl_group *group,
                       const xm_rl_score_counts *counts, double score,
                       uint64_t row);

/* DAPO's overlong shaping: the penalty of a response of `length` tokens, <= 0.
 */
double xm_rl_overlong(double length, double longest, double buffer,
                      double factor);

/* ---- per-token baselines of a group ------------------------------------- */

/* Rows of a group, each `tokens[i]` long, for the optimal token baseline. All
 * tokens are in the loss. */
typedef struct xm_rl_otb {
    uint64_t rows;
    const uint64_t *tokens;
    const double *const *returns; /* return G of every token */
    const double *const *logp;    /* old */
    const double *const *squares; /* sum over the vocabulary of p^2 */
    const double *const *ratio;   /* weight rho of the rollout correction, or
                                   * NULL */
} xm_rl_otb;

/* The sum of row `i`'s weights over tokens up to `t`. */
double xm_rl_otb_weight(const xm_rl_otb *group, uint64_t i, uint64_t t);
/* The baseline of token `t`, the same for every row. */
double xm_rl_otb_baseline(const xm_rl_otb *group, uint64_t t);

#endif
