/* SPDX-License-Identifier: Apache-2.0
 *
 * Continuous batching over slots: which tokens each step computes, which draws
 * follow, where results go. A slot holds the keys and values of one sequence.
 * The scheduler knows no device; an engine does what a step says:
 *
 *     xm_sched_begin      -> copies of prompts between slots, tokens to compute
 *     xm_sched_draws  \   -> which hidden state each draw reads, in portions
 *     xm_sched_results/   <- what was drawn
 *     xm_sched_end
 *
 * A prompt is computed once for all samples of its request: their first tokens
 * are drawn from the one hidden state, and the prompt's slot is the source its
 * other samples are copied from. That slot stays with the request until every
 * sample has started: when a sample in it finishes, the next one takes it over.
 * Nothing that a sample gets depends on slots, order or portions.
 */
#ifndef XM_SCHED_H
#define XM_SCHED_H

#include "model/serve/request.h"

typedef struct xm_sched xm_sched;

typedef struct xm_sched_limits {
    uint32_t slots;
    uint32_t step_tokens; /* most tokens in a step, at least `slots` */
    xm_limits request;
} xm_sched_limits;

/* All memory of steps is taken here; submit takes that of requests. */
xray_status xm_sched_create(const xm_sched_limits *limits, xr_err *err,
                            xm_sched **out);
void xm_sched_destroy(xm_sched *sched); /* accepts NULL */

/* The calls of xray_infer_ops. */
xray_status xm_sched_submit(xm_sched *sched, const xray_request *request,
                            xr_err *err);
xray_status xm_sched_abort(xm_sched *sched, uint64_t id, xr_err *err);
xray_status xm_sched_extend(xm_sched *sched, uint64_t id, uint32_t sample,
                            const int32_t *tokens, uint32_t count, xr_err *err);
xray_status xm_sched_release(xm_sched *sched, uint64_t id, uint32_t sample,
                             xr_err *err);
xray_status xm_sched_poll(xm_sched *sched, xray_sample_out *out);

/* Copies positions [0, positions) of one slot to another. */
typedef struct xm_slot_copy {
    uint32_t from;
    uint32_t to;
    uint32_t positions;
} xm_slot_copy;

/* One step. The arrays are the engine's. */
typedef struct xm_round {
    int32_t *ids;       /* [step_tokens] */
    int32_t *seq;       /* [step_tokens] slot */
    int32_t *positions; /* [step_tokens] */
    int32_t *last;      /* [slots] tokens whose hidden state is drawn from */
    uint32_t tokens;
    uint32_t last_count;
    uint32_t position_bound; /* no position is as large */
    uint32_t copy_count;
    const xm_slot_copy *copies; /* to be done before tokens are computed */
} xm_round;

/* Refills slots and fills `round`; `version` is that of the weights. Running
 * samples get their token first, prompts the rest of the budget, in the order
 * they came, cut where the budget ends. */
void xm_sched_begin(xm_sched *sched, uint64_t version, xm_round *round);

/* The next draws of this step, at most `cap`; index[i] is the entry of `last`
 * that draw i reads. 0: no more. *out_run is 1 where index counts up by ones,
 * so that no gathering is needed. */
uint32_t xm_sched_draws(xm_sched *sched, uint32_t cap, xray_draw *draws,
                        int32_t *index, int *out_run);
/* What the draws given last came to. */
void xm_sched_results(xm_sched *sched, const int32_t *tokens,
                      const float *raw_logp, const float *logp);
void xm_sched_end(xm_sched *sched);

/* 1 while a step would do something. */
int xm_sched_has_work(const xm_sched *sched);
/* Requests that are not finished, held ones included. */
uint32_t xm_sched_live(const xm_sched *sched);
/* Fills everything but the head. */
void xm_sched_stats(const xm_sched *sched, xray_infer_stats *out);
/* Times that memory was taken since create, for the proof that steps take
 * none. */
uint64_t xm_sched_grown(const xm_sched *sched);

#endif
