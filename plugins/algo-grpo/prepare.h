/* SPDX-License-Identifier: Apache-2.0
 *
 * The driver half: from the rewards of a step to its advantages.
 */
#ifndef GRPO_PREPARE_H
#define GRPO_PREPARE_H

#include <xray/algo.h>

#include "plugins/algo-grpo/rule.h"

typedef struct grpo_score_range {
    grpo_group group;
    double low;
    double high;
} grpo_score_range;

/* Workspace that grows to the largest step seen. Zero-initialise. */
typedef struct grpo_workspace {
    double *scores;           /* [rows] */
    grpo_score_range *groups; /* [groups <= rows] */
    uint32_t rows;
} grpo_workspace;

void grpo_workspace_free(grpo_workspace *work);

xray_status grpo_prepare(const xray_host *host, const grpo_rule *rule,
                         grpo_workspace *work, xray_batch *batch,
                         const xray_metric_sink *metrics);

#endif
