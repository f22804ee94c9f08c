/* SPDX-License-Identifier: Apache-2.0
 *
 * The workers' half of the algorithm: computes the loss of a micro-batch from
 * a context alone.
 */
#ifndef GRPO_LOSS_H
#define GRPO_LOSS_H

#include <xray/algo.h>

#include "plugins/algo-grpo/rule.h"

/* The flat blob that the driver sends to the workers. With `marked`, two arrays
 * follow it: int32 row_start[rows + 1] of the mini-batch, and one byte per
 * token, which is 1 if `select` picked the token. */
typedef struct grpo_context {
    uint64_t size; /* bytes of this struct */
    grpo_loss_rule rule;
    xm_rl_counts counts;
    uint32_t marked;
    uint32_t rows;
    uint32_t tokens;
    uint32_t reserved;
} grpo_context;

/* Returns the bytes of the context of a mini-batch. */
uint64_t grpo_context_size(const grpo_loss_rule *rule, const xray_batch *mini);
/* Writes the context to `out`, which has grpo_context_size bytes. */
void grpo_context_write(const grpo_context *context, const xray_batch *mini,
                        void *out);
/* Counts the rows and tokens that the correction leaves in the loss. */
void grpo_count(const grpo_loss_rule *rule, const xray_batch *mini,
                xm_rl_counts *out);

/* Marks tokens by the covariance of advantage and log-probability over the
 * entire mini-batch. Returns XRAY_E_ARG if the blob belongs to another
 * mini-batch. */
xray_status grpo_select(const xray_batch *mini, const float *logp, void *blob,
                        uint64_t size);

const char *const *grpo_metric_names(void *self);
xray_status grpo_loss(const void *context, uint64_t size,
                      const xray_loss_call *call, xray_metric_sums *sums);

#endif
