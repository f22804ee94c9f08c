/* SPDX-License-Identifier: Apache-2.0
 *
 * The scalar formulas of the critic-free family: pure functions of double
 * precision, each with its source. Names of the projects meant: verl
 * (verl/trainer/ppo/core_algos.py), TRL (trl/trainer/grpo_trainer.py).
 */
#ifndef GRPO_FORMULA_H
#define GRPO_FORMULA_H

#include <stdint.h>

/* A function's value and its derivative with respect to the token's current
 * log-probability. */
typedef struct grpo_term {
    double value;
    double slope;
} grpo_term;

/* exp(x), correct to about one unit in the last place, from additions and
 * multiplications alone, so that its bits are the same wherever the plugin
 * runs; exp(0) is exactly 1. */
double grpo_exp(double x);

enum {
    GRPO_KL_K1,  /* "kl" */
    GRPO_KL_ABS, /* "abs" */
    GRPO_KL_K2,  /* "mse" */
    GRPO_KL_K3,  /* "low_var_kl" */
};

/* An estimate of KL(policy || reference) from one sampled token whose
 * log-probability is `logp` under the policy and `ref` under the reference.
 * `bounded` adds verl's limits to k3. */
grpo_term grpo_kl(int64_t type, int bounded, double logp, double ref);

/* How the policy's ratio is held back. */
typedef struct grpo_clip {
    double low;   /* the ratio counts down to 1 - low */
    double high;  /* and up to 1 + high */
    double dual;  /* c of the dual clip; 0: none */
    double bound; /* the log-ratio is kept within +-bound; 0: unbounded */
} grpo_clip;

typedef struct grpo_policy {
    grpo_term loss;
    double log_ratio;  /* after the bound */
    int clipped;       /* the clip made the loss larger */
    int clipped_lower; /* the dual clip made it smaller */
} grpo_policy;

/* The clipped surrogate of one token with advantage `a`. */
grpo_policy grpo_policy_loss(const grpo_clip *clip, double logp, double old,
                             double a);

enum {
    GRPO_TOKEN_MEAN,
    GRPO_TOKEN_SUM,
    GRPO_SEQ_MEAN_TOKEN_SUM,
    GRPO_SEQ_MEAN_TOKEN_SUM_NORM,
    GRPO_SEQ_MEAN_TOKEN_MEAN,
};

/* What the mean over a mini-batch is taken of. */
typedef struct grpo_counts {
    double rows;   /* rows with a token in the loss, of the whole mini-batch */
    double tokens; /* tokens in the loss, of the whole mini-batch */
    double scale;  /* loss_scale_factor */
} grpo_counts;

/* Factor of a token's loss in the mini-batch's loss; the token's row has
 * `row_tokens` tokens in the loss. 0 when there is nothing to divide by. */
double grpo_token_weight(int64_t mode, const grpo_counts *counts,
                         double row_tokens);

/* Mean and unbiased standard deviation of a group's scores. */
typedef struct grpo_group {
    double mean;
    double deviation;
    uint64_t count;
} grpo_group;

enum {
    GRPO_ESTIMATOR_GRPO,
    GRPO_ESTIMATOR_RLOO,
    GRPO_ESTIMATOR_RLOO_VECTORIZED,
};

typedef struct grpo_estimator {
    int64_t type;
    int by_deviation; /* grpo: divide by deviation + epsilon */
    double epsilon;
} grpo_estimator;

/* The advantage of a row whose score is `score`. */
double grpo_advantage(const grpo_estimator *estimator, const grpo_group *group,
                      double score);

#endif
