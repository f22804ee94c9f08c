/* SPDX-License-Identifier: Apache-2.0
 *
 * Computes the weight of a token's loss for each aggregation mode.
 */
#include "model/rl/aggregate.h"

static double divide_or_zero(double numerator, double denominator)
{
    return denominator > 0 ? numerator / denominator : 0.0;
}

/* verl `agg_loss`, with N tokens and R rows in the mini-batch:
 *   token-mean              sum of all tokens / N
 *   token-sum               sum of all tokens
 *   seq-mean-token-sum      mean over rows of the row's sum
 *   seq-mean-token-sum-norm the same / loss_scale_factor (Liu et al.,
 *                           "Understanding R1-Zero-like training", 2025)
 *   seq-mean-token-mean     mean over rows of sum / (row's tokens + 1e-8) */
double xm_rl_token_weight(int64_t mode, const xm_rl_counts *counts,
                          double row_tokens)
{
    switch (mode) {
    case XM_RL_TOKEN_SUM:
        return 1.0;
    case XM_RL_SEQ_MEAN_TOKEN_SUM:
        return divide_or_zero(1.0, counts->rows);
    case XM_RL_SEQ_MEAN_TOKEN_SUM_NORM:
        return divide_or_zero(divide_or_zero(1.0, counts->rows), counts->scale);
    case XM_RL_SEQ_MEAN_TOKEN_MEAN:
        return divide_or_zero(divide_or_zero(1.0, row_tokens + 1e-8),
                              counts->rows);
    default:
        return divide_or_zero(1.0, counts->tokens);
    }
}
