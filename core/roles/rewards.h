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

/* The samples of one batch on their way through all instances. */
typedef struct xr_scoring xr_scoring;

/* Returns 1 if an instance scores samples while others are still generated. */
int xr_rewards_work_beside(const xr_roles *roles);

/* Begins to score `count` samples, whose ids must be 0 .. count - 1 and which
 * must stay where they are until the instances have answered or are destroyed.
 * It submits nothing. The memory of an earlier batch in *inout, which is NULL
 * or over, is used again; the caller frees *inout, also after a failure. */
xray_status xr_scoring_begin(xr_roles *roles, const xray_sample_in *samples,
                             size_t count, xr_err *err, xr_scoring **inout);
/* Submits `count` samples from `first` on to the instances that work beside a
 * rollout. If it is called, it is called for every sample once. */
xray_status xr_scoring_submit(xr_scoring *scoring, size_t first, size_t count,
                              xr_err *err);
/* Takes the answers that are there; waits for none. */
xray_status xr_scoring_look(xr_scoring *scoring, xr_err *err);
/* The rollout is over. Returns the seconds in which samples were outstanding
 * during it; 0 if none was submitted. */
double xr_scoring_beside(xr_scoring *scoring);

/* What becomes of scores. */
typedef struct xr_scored {
    xr_score *scores;
    float *const *token_scores; /* or NULL: an array of floats per sample, to
                                 * which weighted token scores are added */
    xr_score_value value;       /* or NULL */
    void *ctx;
} xr_scored;

/* Submits to every instance what it was not given, waits for all answers and
 * adds them up in the order of instances and samples, whatever the order in
 * which they came. A score that is NaN or infinite is an error that names
 * instance and sample. */
xray_status xr_scoring_finish(xr_scoring *scoring, const xr_scored *out,
                              xr_err *err);
/* Waits for the answers that are outstanding and drops them, so that none is
 * taken for one of the next batch. At most for the time that a plugin has. */
void xr_scoring_drain(xr_scoring *scoring);
/* Calls no instance, which may be gone. Accepts NULL. */
void xr_scoring_free(xr_scoring *scoring);

/* Scores `count` samples from begin to end. */
xray_status xr_rewards_score(xr_roles *roles, const xray_sample_in *samples,
                             size_t count, xr_score *out_scores,
                             float *const *token_scores, xr_score_value value,
                             void *ctx, xr_err *err);

#endif
