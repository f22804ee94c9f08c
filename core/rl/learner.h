/* SPDX-License-Identifier: Apache-2.0
 *
 * From scored samples to updated weights: one step of reinforcement learning.
 */
#ifndef XR_LEARNER_H
#define XR_LEARNER_H

#include "core/monitor/monitor.h"
#include "core/roles/role_calls.h"
#include "core/roles/samples.h"

/* The updates of one model in a step: how its rows are dealt, and what they
 * came to. */
typedef struct xr_updates {
    uint32_t role;    /* XRAY_ROLE_* */
    uint32_t outputs; /* XRAY_HEAD_* its loss reads */
    int critic;       /* 1: critic_loss, 0: loss */
    double lr;
    double grad_clip;
    uint64_t micro_tokens;
    int64_t mini; /* prompts of a mini-batch, 0: all */
    int64_t epochs;
    int shuffle;
    uint32_t prompts; /* XR_PROMPTS_* of its gradients */
    uint64_t updates; /* optimizer steps that were applied */
    uint64_t skipped;
    double grad_norm; /* sum over those that were applied */
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
    int has_values; /* of a critic, or of the policy's own head */
    float *scores;  /* [rows, rewards] of `fresh`: each reward's own */
    float *kept;    /* the same of `rows`; NULL where nothing is picked */
    float *weights_of_scores; /* [rewards] */
    float *baseline;  /* [prompts] of the next pack; NULL: none is needed */
    xr_rows fresh;    /* one rollout */
    xr_rows rows;     /* the step's kept groups, when the algorithm picks */
    xr_rows shuffled; /* rows in the order of an epoch */
    xr_views views;
    xr_views whole;      /* a mini-batch as one run */
    xr_metrics *metrics; /* borrowed */
    float *logp;         /* [tokens] scratch */
    float *scratch;      /* [rows or tokens] scratch for statistics */
    uint32_t *order;     /* [rows] */
    uint32_t *keep;      /* [groups] */
    unsigned char *context;
    uint64_t context_size;
    uint64_t context_cap;
    double *sums; /* [names] of the loss's metrics */
    double *weights;
    uint64_t names;
    const char **told_names; /* [told_cap] what `observe` is told */
    double *told_values;
    size_t told_cap;
    size_t unnamed; /* metrics that `prepare` put without a name */
    xr_err fault;   /* a value the loss was shown that is not finite */
} xr_learner;

xray_status xr_learner_init(xr_learner *learner, xr_roles *roles,
                            xr_metrics *metrics, xr_err *err);
void xr_learner_free(xr_learner *learner);

/* Packs scored samples of `rows` as the fresh batch. */
xray_status xr_learner_pack(xr_learner *learner, const xr_samples *samples,
                            const xr_row *const *rows, uint64_t step,
                            xr_err *err);

/* Dynamic sampling: moves the groups worth keeping to the step's batch, up to
 * `want` groups; *out_groups tells how many it holds now. */
xray_status xr_learner_accept(xr_learner *learner, uint32_t want,
                              uint32_t *out_groups, xr_err *err);

/* Old and reference log-probs, values, advantages, updates; metrics of all of
 * it. */
xray_status xr_learner_step(xr_learner *learner, const xr_rows *rows,
                            uint64_t step, const xr_rates *rates, xr_err *err);

/* The updates of one model; sums go to `updates` and to the loss's metrics. */
xray_status xr_learner_update(xr_learner *learner, xr_updates *updates,
                              const xr_rows *rows, uint64_t step, xr_err *err);

/* Tells the algorithm the step's metrics, once they are all there. */
xray_status xr_learner_observe(xr_learner *learner, xr_err *err);

/* Statistics of a batch under verl's names. */
void xr_learner_stats(xr_learner *learner, const xr_rows *rows,
                      const xr_samples *samples);

#endif
