/* SPDX-License-Identifier: Apache-2.0
 *
 * The driver's half of the algorithm: computes the advantages and returns of a
 * step from its scores.
 */
#ifndef PPO_PREPARE_H
#define PPO_PREPARE_H

#include <xray/algo.h>

#include "plugins/algo-ppo/rule.h"

/* State that lasts from step to step and is saved in checkpoints unchanged. */
typedef struct ppo_state {
    uint64_t version;
    double kl_coef;
    double ref_std; /* 0: not known yet */
    xm_rl_moments moments;
} ppo_state;
#define PPO_STATE_VERSION 1u

/* Facts of a step that its end needs. */
typedef struct ppo_step {
    double kl;           /* KL for an adaptive controller */
    uint64_t rows;       /* rows of the step */
    uint64_t mini_rows;  /* rows of its first mini-batch */
    uint64_t shown_rows; /* rows of all its mini-batches so far */
} ppo_step;

typedef struct ppo_work {
    double *scores; /* [rows] */
    uint32_t rows;
} ppo_work;

void ppo_work_free(ppo_work *work);

xray_status ppo_prepare(const xray_host *host, const ppo_rule *rule,
                        ppo_state *state, ppo_step *step, ppo_work *work,
                        xray_batch *batch, const xray_metric_sink *metrics);

/* Computes the mean and the factor by which the advantages of a mini-batch are
 * whitened; 0 and 1 if they are not whitened per mini-batch. */
void ppo_whitening(const ppo_rule *rule, const xray_batch *mini,
                   double *out_mean, double *out_scale);

/* Updates the controller at the end of a step, once per epoch (trlX
 * `post_backward_callback`). */
void ppo_end_step(const ppo_rule *rule, ppo_state *state, ppo_step *step);

#endif
