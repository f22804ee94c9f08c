/* SPDX-License-Identifier: Apache-2.0
 *
 * The driver's half of the algorithm: computes the advantages and returns of a
 * step from its scores.
 */
#ifndef PPO_PREPARE_H
#define PPO_PREPARE_H

#include <xray/algo.h>

#include "plugins/algo-ppo/rule.h"

/* State that lasts from step to step. A checkpoint holds the bytes of this
 * struct. */
typedef struct ppo_state {
    uint64_t version;
    double kl_coef;
    double ref_std; /* PPO_SCALE_REF divides scores by it; 0: not known yet */
    xm_rl_moments moments;
} ppo_state;
#define PPO_STATE_VERSION 1u

/* Facts about a step that ppo_end_step needs. */
typedef struct ppo_step {
    double kl;             /* KL for an adaptive controller */
    uint64_t rows;         /* rows of the step */
    uint64_t mini_rows;    /* rows of its first mini-batch */
    uint64_t trained_rows; /* rows of its mini-batches so far, in all epochs */
} ppo_step;

/* Memory that steps reuse. */
typedef struct ppo_work {
    double *scores; /* [rows] */
    uint32_t rows;
} ppo_work;

void ppo_work_free(ppo_work *work);

/* Fills the batch's advantages and returns from its scores and values, puts the
 * metrics, and begins `step`. A failure leaves the state as it was. */
xray_status ppo_prepare(const xray_host *host, const ppo_rule *rule,
                        ppo_state *state, ppo_step *step, ppo_work *work,
                        xray_batch *batch, const xray_metric_sink *metrics);

/* Computes the mean and the factor with which the loss whitens the advantages
 * of a mini-batch, (advantage - mean) * factor; 0 and 1 if the preset does not
 * whiten per mini-batch. */
void ppo_measure_whitening(const ppo_rule *rule, const xray_batch *mini,
                           double *out_mean, double *out_scale);

/* Ends a step. With PPO_CONTROL_EPOCH it updates the coefficient of the KL
 * penalty, once per epoch that was trained (trlX `post_backward_callback`). */
void ppo_end_step(const ppo_rule *rule, ppo_state *state, ppo_step *step);

#endif
