/* SPDX-License-Identifier: Apache-2.0
 *
 * Scores of samples from all reward instances of a roles: the weighted sum.
 */
#ifndef XR_REWARDS_H
#define XR_REWARDS_H

#include "core/roles/roles.h"

/* One sample's answer: the weighted sum, and each instance's own score. */
typedef struct xr_score {
    double score;
    double parts[XR_MAX_REWARDS];
} xr_score;

/* Called for a named value of a sample (metrics of an instance). */
typedef void (*xr_score_value)(void *ctx, size_t sample, const char *instance,
                               const char *name, double value);

/* Scores `count` samples; their ids must be 0 .. count - 1. Submits to every
 * instance, then waits for all answers; a score that is NaN or infinite is an
 * error naming instance and sample. `token_scores`, if not NULL, gets per
 * sample a pointer target of floats to add weighted token scores to. */
xray_status xr_rewards_score(xr_roles *roles, const xray_sample_in *samples,
                             size_t count, xr_score *out_scores,
                             float *const *token_scores, xr_score_value value,
                             void *ctx, xr_err *err);

#endif
