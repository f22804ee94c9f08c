/* SPDX-License-Identifier: Apache-2.0
 *
 * Weights the losses of tokens so that their sum is the mini-batch's loss.
 */
#ifndef XM_RL_AGGREGATE_H
#define XM_RL_AGGREGATE_H

#include <stdint.h>

enum {
    XM_RL_TOKEN_MEAN,
    XM_RL_TOKEN_SUM,
    XM_RL_SEQ_MEAN_TOKEN_SUM,
    XM_RL_SEQ_MEAN_TOKEN_SUM_NORM,
    XM_RL_SEQ_MEAN_TOKEN_MEAN,
};

/* The counts over which a mini-batch's mean is taken. */
typedef struct xm_rl_counts {
    double rows;   /* rows with a token in the loss, over the mini-batch */
    double tokens; /* tokens in the loss, over the mini-batch */
    double scale;  /* loss_scale_factor */
} xm_rl_counts;

/* The factor of a token's loss in the mini-batch's loss; the token's row has
 * `row_tokens` tokens in the loss. 0 where the divisor would be 0. */
double xm_rl_token_weight(int64_t mode, const xm_rl_counts *counts,
                          double row_tokens);

#endif
