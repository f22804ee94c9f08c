/* SPDX-License-Identifier: Apache-2.0
 *
 * Predicts how long a step of a run takes on a machine, from the sizes, layouts
 * and plans that the run has.
 */
#ifndef XR_PREDICT_H
#define XR_PREDICT_H

#include "core/run/resources.h"
#include "core/run/step_time.h"

#define XR_PREDICTED 8

typedef struct xr_part_time {
    const char *name; /* "rollout", "update", ... */
    xr_times times;   /* seconds in each term */
    double seconds;   /* their sum */
} xr_part_time;

typedef struct xr_prediction {
    xr_part_time parts[XR_PREDICTED];
    size_t count;   /* 0: the core does not know the model */
    double seconds; /* of a step */
    double mfu;     /* of the update: its operations, attention counted as it is
                     * computed, over those of the peak rates of all ranks */
} xr_prediction;

/* Predicts a step of the size that xr_step_size_of gives, with every row at its
 * longest. Rewards, validation and checkpoints are not part of it. */
void xr_predict(const xr_run *run, const xr_resources *r,
                const xr_machine *machine, xr_prediction *out);

#endif
