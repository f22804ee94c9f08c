/* SPDX-License-Identifier: Apache-2.0
 *
 * The rig of PPO: batches with values, in which each row is a group of its
 * own.
 */
#ifndef XR_ALGO_PPO_RIG_H
#define XR_ALGO_PPO_RIG_H

#include "tests/algo/rig.h"

const xray_plugin *xray_plugin_query_algo_ppo(uint32_t host_abi);

uint32_t ppo_row(rig_batch *batch, int32_t prompt, int32_t response,
                 float score);
/* Fills in varied log-probabilities, values and entropies. They are NaN outside
 * of the mask. */
void ppo_fill(rig_batch *batch, uint32_t seed);
xray_status ppo_observe(rig *r);

/* A mini-batch. ppo_run_mini makes its context and calls `loss` or
 * `critic_loss` for micro-batches of `cut` rows (0: an empty one first, then
 * all rows). The gradients are stored in the batch. */
typedef struct ppo_mini {
    uint32_t first;
    uint32_t rows;
    uint32_t cut;
    int critic;
} ppo_mini;
xray_status ppo_run_mini(rig *r, rig_batch *batch, const ppo_mini *mini,
                         rig_sums *out);

#endif
