/* SPDX-License-Identifier: Apache-2.0
 *
 * Scores samples with all reward instances of a run and adds up the weighted
 * scores.
 */
#ifndef XR_REWARDS_H
#define XR_REWARDS_H

#include "core/roles/roles.h"

/* The weighted sum of a sample's scores, and the score of each instance. */
typedef struct xr_score {
    double score;
    double parts[XR_MAX_REWARDS];
} xr_score;

/* Called for each named value that a reward instance gives for a sample. */
typedef void (*xr_score_value)(void *ctx, size_t sample, const char *instance,
                               const char *name, double value);

/* Scores `count` samples, whose ids must be 0 .. count - 1. Submits them to
 * every instance, then waits for all answers. A score that is NaN or infinite
 * is an error that names instance and sample. `token_scores`, if not NULL, has
 * an array of floats per sample, to which weighted token scores are added. */
xray_status xr_rewards_score(xr_roles *roles, const xray_sample_in *samples,
                             size_t count, xr_score *out_scores,
                             float *const *token_scores, xr_score_value value,
                             void *ctx, xr_err *err);

#endif
