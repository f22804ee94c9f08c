/* SPDX-License-Identifier: Apache-2.0
 *
 * Samples generated for data rows, with their scores: the output of a rollout.
 */
#ifndef XR_SAMPLES_H
#define XR_SAMPLES_H

#include <signal.h>

#include "core/base/str.h"
#include "core/data/data.h"
#include "core/roles/rewards.h"

/* Parameters of sampling. */
typedef struct xr_sampling {
    uint32_t n; /* samples per row */
    uint32_t max_tokens;
    double temperature;
    double top_p;
    double min_p;
    int64_t top_k;
    double repetition_penalty; /* 0 or 1: off */
    double frequency_penalty;
    double presence_penalty;
    uint64_t seed;
    uint64_t step;
    uint32_t ignore_eos;
    uint32_t min_tokens;
} xr_sampling;

/* Capacity for `cap` samples of at most `max_tokens`. Sample k of data row i
 * has the index i * n + k. */
typedef struct xr_samples {
    uint32_t cap;
    uint32_t max_tokens;
    uint32_t count; /* samples held now */
    uint32_t n;
    int32_t *tokens; /* [cap, max_tokens] */
    float *logp; /* [cap, max_tokens] log-probs at the sampling temperature */
    float *token_scores; /* [cap, max_tokens] */
    uint32_t *sizes;     /* [cap] tokens of each sample */
    uint32_t *finish;    /* [cap] XRAY_FINISH_* */
    uint64_t *versions;  /* [cap] version of the weights */
    xr_score *scores;    /* [cap] */
    xr_str *texts; /* [cap] each response with a NUL, where rewards read it */
    xray_sample_in *inputs;
    float **score_rows; /* [cap] rows of token_scores */
    /* Of rewards that work beside the rollout: core/roles/rewards.h. */
    xr_scoring *scoring;       /* that has begun, or NULL */
    xr_scoring *kept;          /* its memory */
    const xr_row *const *rows; /* [count / n] of the present rollout */
    uint32_t *missing;         /* [cap] of each row: samples not arrived yet */
    double beside; /* seconds in which they worked during the last rollout */
} xr_samples;

xray_status xr_samples_init(xr_samples *samples, uint64_t cap,
                            uint64_t max_tokens, xr_err *err);
void xr_samples_free(xr_samples *samples);

/* Generates how->n samples for each of `count` rows. */
xray_status xr_samples_generate(xr_roles *roles, xr_samples *samples,
                                const xr_row *const *rows, uint32_t count,
                                const xr_sampling *how, xr_err *err);

/* Sample i has been stored. When it is the last one of its row, the row's
 * samples are submitted to the rewards that work beside the rollout. */
xray_status xr_samples_arrived(xr_roles *roles, xr_samples *samples, uint32_t i,
                               xr_err *err);
/* Takes the scores that are there already, and returns the failure of a reward
 * that ends the rollout. */
xray_status xr_samples_look(xr_samples *samples, xr_err *err);

/* Decodes the samples to text and scores them, as far as this was not done
 * beside the rollout. */
xray_status xr_samples_score(xr_roles *roles, xr_samples *samples,
                             const xr_row *const *rows, xr_score_value value,
                             void *ctx, xr_err *err);

const char *xr_samples_text(const xr_samples *samples, uint32_t i);

/* Appends scored sample i as a line of JSON: step, prompt, response,
 * ground_truth and score, then `more` (",\"key\":value..." or ""). */
void xr_samples_append_line(const xr_samples *samples,
                            const xr_row *const *rows, uint32_t i,
                            uint64_t step, const char *more, xr_str *out);
/* Writes the lines to DIR/STEP.jsonl; creates DIR if it does not exist. */
xray_status xr_samples_write(const char *dir, uint64_t step,
                             const xr_str *lines, xr_err *err);

#endif
