/* SPDX-License-Identifier: Apache-2.0
 *
 * The learning half of a step of reinforcement learning: turns scored samples
 * into advantages and updates the weights.
 */
#ifndef XR_LEARNER_H
#define XR_LEARNER_H

#include "core/monitor/monitor.h"
#include "core/rl/segments.h"
#include "core/roles/role_calls.h"
#include "core/roles/samples.h"

/* The updates of one model in a step: how its rows are divided, and what the
 * updates resulted in. */
typedef struct xr_updates {
    uint32_t role;    /* XRAY_ROLE_* */
    uint32_t outputs; /* XRAY_OUTPUT_* that the loss reads */
    int critic;       /* 1: critic_loss, 0: loss */
    double lr;
    double grad_clip;
    uint64_t micro_tokens;
    int64_t mini; /* prompts per mini-batch; 0: all */
    int64_t epochs;
    int shuffle;
    uint32_t prompts; /* XR_PROMPTS_* of the gradient passes */
    uint64_t updates; /* optimizer steps that were applied */
    uint64_t skipped;
    double grad_norm; /* sum over the applied steps */
} xr_updates;

/* Learning rates of a step. */
typedef struct xr_rates {
    double actor;
    double critic;
} xr_rates;

typedef struct xr_learner {
    xr_roles *roles;
    xr_updates actor;
    xr_updates critic;
    int has_values; /* 1: the critic, or a value head of the policy, gives
                     * values */
    float *scores;  /* [rows, rewards] scores of `fresh`, per reward */
    float *kept; /* [rows, rewards] scores of `rows`; NULL unless the algorithm
                  * filters groups */
    float *weights_of_scores; /* [rewards] weight of each reward */
    /* [prompts] baselines for the next pack; NULL: not needed */
    float *baseline;
    xr_rows fresh;   /* one rollout */
    xr_rows rows;    /* the groups kept for the step, if the algorithm filters
                      * groups */
    xr_rows ordered; /* rows in the order of an epoch */
    xr_segments segments;
    xr_views views;
    xr_views mini_batch; /* a mini-batch as a single view */
    xr_metrics *metrics; /* borrowed */
    float *logp;         /* [tokens] scratch */
    float *scratch;      /* [rows or tokens] scratch for statistics */
    uint32_t *order;     /* [rows] */
    uint32_t *keep;      /* [groups] */
    unsigned char *context;
    uint64_t context_size;
    uint64_t context_cap;
    double *sums; /* [names + ratios] sums of the loss's metrics */
    double *weights;
    uint64_t names;
    uint32_t ratios; /* XR_RATIO_BUCKETS counts behind the sums; 0: none */
    uint32_t reserved;
    /* [observed_cap] metrics passed to `observe` */
    const char **observed_names;
    double *observed_values;
    size_t observed_cap;
    size_t nameless_metrics; /* metrics without a name that `prepare` put */
    xr_err fault; /* the first value shown to the loss that is not finite */
} xr_learner;

xray_status xr_learner_init(xr_learner *learner, xr_roles *roles,
                            xr_metrics *metrics, xr_err *err);
void xr_learner_free(xr_learner *learner);

/* Packs the scored samples of `rows` into the fresh batch. */
xray_status xr_learner_pack(xr_learner *learner, const xr_samples *samples,
                            const xr_row *const *rows, uint64_t step,
                            xr_err *err);

/* Dynamic sampling: copies the groups that the algorithm accepts to the batch
 * of the step, until it holds `want` groups. *out_groups is the number it
 * holds. */
xray_status xr_learner_accept(xr_learner *learner, uint32_t want,
                              uint32_t *out_groups, xr_err *err);

/* Runs the learning half of a step: old and reference log-probs, values,
 * advantages, updates, and their metrics. */
xray_status xr_learner_step(xr_learner *learner, const xr_rows *rows,
                            uint64_t step, const xr_rates *rates, xr_err *err);

/* Runs the updates of one model. Results go to `updates` and to the sums of the
 * loss's metrics. */
xray_status xr_learner_update(xr_learner *learner, xr_updates *updates,
                              const xr_rows *rows, uint64_t step, xr_err *err);

/* Passes the complete metrics of the step to the algorithm. */
xray_status xr_learner_observe(xr_learner *learner, xr_err *err);

/* Puts statistics of a batch into the metrics, under verl's names. */
void xr_learner_stats(xr_learner *learner, const xr_rows *rows,
                      const xr_samples *samples);

#endif
