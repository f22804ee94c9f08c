/* SPDX-License-Identifier: Apache-2.0
 *
 * The worker half: the loss of a micro-batch, from a context alone.
 */
#ifndef GRPO_LOSS_H
#define GRPO_LOSS_H

#include <xray/algo.h>

#include "plugins/algo-grpo/rule.h"

/* What the driver ships to the workers: a flat blob, copied byte by byte. */
typedef struct grpo_context {
    uint64_t size; /* of this struct */
    grpo_clip clip;
    grpo_counts counts;
    int64_t loss_agg_mode;
    int64_t kl_type;
    uint32_t use_kl;
    uint32_t kl_bounded;
    double kl_coefficient;
    double entropy_coeff;
} grpo_context;

const char *const *grpo_metric_names(void);
xray_status grpo_loss(const void *context, uint64_t size,
                      const xray_loss_call *call, xray_metric_sums *sums);

#endif
