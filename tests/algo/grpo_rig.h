/* SPDX-License-Identifier: Apache-2.0
 *
 * The rig of GRPO and its relatives.
 */
#ifndef XR_ALGO_GRPO_RIG_H
#define XR_ALGO_GRPO_RIG_H

#include "tests/algo/rig.h"

const xray_plugin *xray_plugin_query_algo_grpo(uint32_t host_abi);

/* The advantage of a row's last token after prepare. */
float rig_advantage(const rig_batch *batch, uint32_t row);
/* Fills log-probs, entropies and advantages with varied numbers. */
void rig_fill(rig_batch *batch, uint32_t seed);
/* The marks that select made of the mini-batch, a byte a token; 0: there are
 * none. */
uint32_t rig_marks(rig *r, rig_batch *batch, unsigned char *out);

/* The loss over rows, `cut` rows a micro-batch (0: an empty micro-batch first,
 * then all at once); gradients go into the batch. */
xray_status rig_loss(rig *r, rig_batch *batch, uint32_t cut, int entropy,
                     rig_sums *out);

#endif
