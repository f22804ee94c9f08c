/* SPDX-License-Identifier: Apache-2.0
 *
 * The workers' half of the algorithm: computes the losses of a micro-batch
 * from a context alone.
 */
#ifndef PPO_LOSS_H
#define PPO_LOSS_H

#include <xray/algo.h>

#include "plugins/algo-ppo/rule.h"

/* The flat blob that the driver sends to the workers. */
typedef struct ppo_context {
    uint64_t size; /* bytes of this struct */
    xm_rl_clip clip;
    xm_rl_counts counts;
    int64_t loss_agg_mode;
    int64_t critic_loss_agg_mode;
    int64_t kl_type;
    uint32_t use_kl;
    uint32_t kl_bounded;
    double kl_coefficient;
    double entropy_coeff;
    double cliprange_value;
    double vf_coef;
    uint32_t own_value; /* 1: the policy has the value head */
    uint32_t reserved;
    double mean; /* advantages A are used as (A - mean) * scale */
    double scale;
} ppo_context;

const char *const *ppo_metric_names(void *self);
xray_status ppo_loss(const void *context, uint64_t size,
                     const xray_loss_call *call, xray_metric_sums *sums);
xray_status ppo_critic_loss(const void *context, uint64_t size,
                            const xray_loss_call *call, xray_metric_sums *sums);

#endif
