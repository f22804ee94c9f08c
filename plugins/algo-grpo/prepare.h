/* SPDX-License-Identifier: Apache-2.0
 *
 * The driver half: from the rewards of a step to its advantages.
 */
#ifndef GRPO_PREPARE_H
#define GRPO_PREPARE_H

#include <xray/algo.h>

#include "plugins/algo-grpo/rule.h"

/* Workspace that grows to the largest step seen. Zero-initialise. */
typedef struct grpo_workspace {
    double *scores;      /* [rows] */
    double *sums;        /* [rows] of weighted advantages; gdpo */
    xm_rl_group *groups; /* [groups <= rows] */
    float *mask;         /* [tokens] loss_mask less what is rejected; only
                          * with rollout correction */
    uint32_t rows;
    uint32_t tokens;
} grpo_workspace;

void grpo_workspace_free(grpo_workspace *work);

/* What the driver knows and carries from step to step. */
typedef struct grpo_driver {
    const xray_host *host;
    grpo_rule rule;
    grpo_workspace work;
    const float *mask;     /* [tokens] of the batch at hand: what is trained */
    double kl_coefficient; /* of the KL in the reward */
    double correction_scale; /* of the step's weights */
    int64_t rounds;          /* of generation since the last prepare */
} grpo_driver;

xray_status grpo_prepare(grpo_driver *driver, xray_batch *batch,
                         const xray_metric_sink *metrics);
xray_status grpo_accept(grpo_driver *driver, const xray_batch *batch,
                        uint32_t groups, uint32_t *keep);

/* Room for the batch in the workspace. */
xray_status grpo_reserve(grpo_driver *driver, const xray_batch *batch);
xray_status grpo_fail_row(const xray_host *host, xray_status code,
                          const xray_batch *batch, uint32_t row,
                          const char *what);

/* Rejection, the scale of the weights, and the metrics of both: drift.c. The
 * tokens left are driver->mask. */
xray_status grpo_correct(grpo_driver *driver, const xray_batch *batch,
                         const xray_metric_sink *metrics);
/* The row's drift by the rule. */
xm_rl_drift grpo_row_drift(const xm_rl_correction *rule,
                           const xray_batch *batch, uint32_t row);
/* loss_mask of a token, 0 where the rule rejects it. */
double grpo_mask_of(const xm_rl_correction *rule, const xray_batch *batch,
                    const xm_rl_drift *drift, int32_t at);

#endif
