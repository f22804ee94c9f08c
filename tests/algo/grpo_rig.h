/* SPDX-License-Identifier: Apache-2.0
 *
 * The rig of GRPO and its relatives: fills batches and runs their losses.
 */
#ifndef XR_ALGO_GRPO_RIG_H
#define XR_ALGO_GRPO_RIG_H

#include "tests/algo/rig.h"

const xray_plugin *xray_plugin_query_algo_grpo(uint32_t host_abi);

/* Returns the advantage of the last token of a row after prepare. */
float rig_advantage(const rig_batch *batch, uint32_t row);
/* Fills log-probabilities, entropies and advantages with varied numbers. */
void rig_fill(rig_batch *batch, uint32_t seed);
/* Copies the marks that `select` made for the mini-batch, one byte per token.
 * Returns 0 if there are none. */
uint32_t rig_marks(rig *r, rig_batch *batch, unsigned char *out);

/* Computes the loss over all rows with `cut` rows per micro-batch (0: an empty
 * micro-batch first, then all rows). The gradients are stored in the batch. */
xray_status rig_loss(rig *r, rig_batch *batch, uint32_t cut, int entropy,
                     rig_sums *out);

#endif
