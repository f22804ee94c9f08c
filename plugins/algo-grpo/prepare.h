/* SPDX-License-Identifier: Apache-2.0
 *
 * The driver's half of the algorithm: computes the advantages of a step from
 * its rewards.
 */
#ifndef GRPO_PREPARE_H
#define GRPO_PREPARE_H

#include <xray/algo.h>

#include "plugins/algo-grpo/rule.h"

/* Workspace that grows to the largest step so far. It begins filled with
 * zeros. */
typedef struct grpo_workspace {
    double *scores;      /* [rows] */
    double *sums;        /* [rows] sums of weighted advantages, for gdpo */
    xm_rl_group *groups; /* [groups <= rows] */
    float *mask;         /* [tokens] loss_mask without rejected tokens; used
                          * only with rollout correction */
    uint32_t rows;
    uint32_t tokens;
} grpo_workspace;

void grpo_workspace_free(grpo_workspace *work);

/* An instance of the algorithm in the driver. */
typedef struct grpo_driver {
    const xray_host *host;
    grpo_rule rule;
    grpo_workspace work;
    const float *mask;       /* [tokens] of the current batch; not 0 where a
                              * token is trained */
    double kl_coefficient;   /* coefficient of the KL in the reward */
    double correction_scale; /* factor of the weights of this step */
    int64_t rounds;          /* generations since the last prepare */
} grpo_driver;

xray_status grpo_prepare(grpo_driver *driver, xray_batch *batch,
                         const xray_metric_sink *metrics);
xray_status grpo_accept(grpo_driver *driver, const xray_batch *batch,
                        uint32_t groups, uint32_t *keep);

/* Grows the workspace to the size of the batch. */
xray_status grpo_reserve(grpo_driver *driver, const xray_batch *batch);
xray_status grpo_fail_row(const xray_host *host, xray_status code,
                          const xray_batch *batch, uint32_t row,
                          const char *what);

/* Computes rejection, the scale of the weights, and the metrics of both
 * (drift.c). driver->mask selects the tokens that are left. */
xray_status grpo_correct(grpo_driver *driver, const xray_batch *batch,
                         const xray_metric_sink *metrics);
/* Returns the drift of the row under the rule. */
xm_rl_drift grpo_row_drift(const xm_rl_correction *rule,
                           const xray_batch *batch, uint32_t row);
/* Returns the loss_mask of a token, or 0 if the rule rejects it. */
double grpo_mask_of(const xm_rl_correction *rule, const xray_batch *batch,
                    const xm_rl_drift *drift, int32_t at);

#endif
