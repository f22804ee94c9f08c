/* SPDX-License-Identifier: Apache-2.0
 *
 * The driver half: from the scores of a step to its advantages and returns.
 */
#ifndef PPO_PREPARE_H
#define PPO_PREPARE_H

#include <xray/algo.h>

#include "plugins/algo-ppo/rule.h"

/* What goes on from step to step, and into a checkpoint as it stands. */
typedef struct ppo_state {
    uint64_t version;
    double kl_coef;
    double ref_std; /* 0: not known yet */
    xm_rl_moments moments;
} ppo_state;
#define PPO_STATE_VERSION 1u

/* What one step leaves for its end. */
typedef struct ppo_step {
    double kl;           /* what an adaptive controller is told */
    uint64_t rows;       /* of the step */
    uint64_t mini_rows;  /* of its first mini-batch */
    uint64_t shown_rows; /* of all its mini-batches so far */
} ppo_step;

typedef struct ppo_work {
    double *scores; /* [rows] */
    uint32_t rows;
} ppo_work;

void ppo_work_free(ppo_work *work);

xray_status ppo_prepare(const xray_host *host, const ppo_rule *rule,
                        ppo_state *state, ppo_step *step, ppo_work *work,
                        xray_batch *batch, const xray_metric_sink *metrics);

/* Mean and factor by which a mini-batch's advantages are whitened; 0 and 1
 * where they are not. */
void ppo_whitening(const ppo_rule *rule, const xray_batch *mini,
                   double *out_mean, double *out_scale);

/* The controller's updates at the end of a step, one an epoch (trlX's
 * `post_backward_callback`). */
void ppo_end_step(const ppo_rule *rule, ppo_state *state, ppo_step *step);

#endif
