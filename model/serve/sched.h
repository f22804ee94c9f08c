/* SPDX-License-Identifier: Apache-2.0
 *
 * Continuous batching over slots: decides which tokens each step computes,
 * which random draws follow, and where their results go. A slot holds the keys
 * and values of one sequence. The scheduler knows no device; an engine carries
 * out its steps:
 *
 *     xm_sched_begin        -> copies between slots, tokens to compute
 *     xm_sched_scores       -> ids of prompts whose log-probs are asked for
 *     xm_sched_take_scores  <- these log-probs
 *     xm_sched_draws        -> the hidden state that each draw reads
 *     xm_sched_changes      -> how logits are changed before a draw
 *     xm_sched_take_top     <- log-probs of the likeliest ids
 *     xm_sched_take_logp    <- log-probs of ids that a request names
 *     xm_sched_results      <- the tokens that were drawn
 *     xm_sched_end
 *
 * Scores and draws come in portions, until there are no more. All calls on the
 * logits may be left out where xm_sched_changes returns 0.
 *
 * A prompt is computed once for all samples of its request: their first tokens
 * are drawn from the same hidden state, and the other samples' slots are copied
 * from the prompt's slot. That slot stays with the request until every sample
 * has started: when the sample in it finishes, the next one takes it over. The
 * result of a sample does not depend on slots, order or portions.
 *
 * With `speculate`, a step may compute drafts: tokens that are expected to
 * follow a sample's last one, since they followed the same tokens earlier in
 * its row. Each position is drawn from as if the drafts before it were right. A
 * draft is right if it is the token that is drawn before it; the draws after
 * the first wrong one mean nothing. Since a draw depends on its row and
 * position only, drafts change no result.
 */
#ifndef XM_SCHED_H
#define XM_SCHED_H

#include <xray/head.h>

#include "model/serve/blocks.h"
#include "model/serve/request.h"
#include "model/serve/trace.h"

typedef struct xm_sched xm_sched;

/* Of a cache whose blocks belong to no slot. */
typedef struct xm_paging_limits {
    int32_t *table; /* [slots, stride] the engine's; NULL: each slot has memory
                     * of its own */
    uint32_t stride;
    uint32_t watermark; /* blocks that stay free when a sequence starts beside
                         * others */
    xm_blocks_limits blocks; /* at least as many as the longest row takes */
} xm_paging_limits;

typedef struct xm_sched_limits {
    uint32_t slots;
    uint32_t step_tokens; /* maximum tokens per step, at least `slots` */
    xm_limits request;
    xm_paging_limits paging;
    xm_trace *trace;    /* outlives the scheduler; NULL: none */
    uint32_t speculate; /* most drafts of a sequence in a step; 0: none */
    uint32_t reserved;
} xm_sched_limits;

/* Allocates the memory of all steps; the memory of requests is allocated by
 * submit. */
xray_status xm_sched_create(const xm_sched_limits *limits, xr_err *err,
                            xm_sched **out);
void xm_sched_destroy(xm_sched *sched); /* accepts NULL */

/* The calls of xray_infer_ops. */
xray_status xm_sched_submit(xm_sched *sched, const xray_request *request,
                            xr_err *err);
xray_status xm_sched_abort(xm_sched *sched, uint64_t id, uint32_t sample,
                           xr_err *err);
xray_status xm_sched_extend(xm_sched *sched, uint64_t id, uint32_t sample,
                            const int32_t *tokens, uint32_t count, xr_err *err);
xray_status xm_sched_release(xm_sched *sched, uint64_t id, uint32_t sample,
                             xr_err *err);
xray_status xm_sched_poll(xm_sched *sched, xray_sample_out *out);
/* `mode` is XRAY_PAUSE_*. */
xray_status xm_sched_pause(xm_sched *sched, uint32_t mode, xr_err *err);
void xm_sched_resume(xm_sched *sched);

/* Copies positions [0, positions) of one slot to another; in a paged cache,
 * those of one block. */
typedef struct xm_slot_copy {
    uint32_t from;
    uint32_t to;
    uint32_t positions;
} xm_slot_copy;

/* The inputs of one step. The arrays belong to the engine. */
typedef struct xm_sched_step {
    int32_t *ids;       /* [step_tokens] */
    int32_t *seq;       /* [step_tokens] slot of each token */
    int32_t *positions; /* [step_tokens] */
    int32_t *last;      /* [step_tokens] tokens whose hidden states are read */
    uint32_t tokens;
    uint32_t last_count;
    uint32_t rows;           /* sequences that get a token */
    uint32_t position_bound; /* every position is below */
    uint32_t copy_count;
    const xm_slot_copy *copies; /* to be made before the tokens are computed */
} xm_sched_step;

/* From here on tokens are sampled from the weights `version`; where that is
 * another one, it does as xm_sched_forget. It may allocate, since each running
 * sample may need one more span; XRAY_E_NOMEM changes nothing. */
xray_status xm_sched_set_version(xm_sched *sched, uint64_t version,
                                 xr_err *err);

/* No keys and values that were computed so far are used from here on: weights
 * or cache are others. Whatever has begun is computed again from its tokens. */
void xm_sched_forget(xm_sched *sched);

/* Fills free slots and `step`. Running samples get their one token first.
 * Prompts share the rest of the budget in the order of their arrival, and the
 * last one is cut where the budget ends. Drafts are computed if something is
 * left after all of them. */
void xm_sched_begin(xm_sched *sched, xm_sched_step *step);

/* The most items whose logits are in memory at once. */
#define XM_LOGIT_DRAWS 32u

/* Issues the next ids of prompts whose log-probs are asked for, at most
 * XM_LOGIT_DRAWS; index[i] is the entry of `last` that gives the log-prob of
 * ids[i], and *out_run as below. Returns 0 when there are no more. They come
 * before the draws. */
uint32_t xm_sched_scores(xm_sched *sched, int32_t *index, int32_t *ids,
                         int *out_run);
void xm_sched_take_scores(xm_sched *sched, const float *logp);

/* Issues the next draws of this step, at most `cap`; index[i] is the entry of
 * `last` that draw i reads. Returns 0 when there are no more. *out_run is 1
 * where the indices are consecutive, so that nothing has to be gathered.
 * Either no draw needs logits, or there are at most XM_LOGIT_DRAWS. */
uint32_t xm_sched_draws(xm_sched *sched, uint32_t cap, xray_draw *draws,
                        int32_t *index, int *out_run);

/* How the logits of the draws that were issued last are changed, and which
 * log-probs are wanted beside theirs. The arrays belong to the engine. */
typedef struct xm_changes {
    int32_t *edit_start;    /* [XM_LOGIT_DRAWS + 1] */
    xray_logit_edit *edits; /* [xm_sched_edits] */
    uint32_t *allowed;      /* [XM_LOGIT_DRAWS, (vocab + 31) / 32] */
    int32_t *allowed_set;   /* [XM_LOGIT_DRAWS] */
    uint32_t set_count;
    uint32_t top_count;     /* the most that any of them wants */
    uint32_t logp_id_count; /* likewise */
    uint32_t reserved;
} xm_changes;
/* Returns 0 if they need no logits. */
int xm_sched_changes(xm_sched *sched, xm_changes *out);
/* The most edits of draws that are issued together. */
uint64_t xm_sched_edits(const xm_limits *limits);
/* Fills in the ids [draws, stride] whose log-probs are wanted; -1: none. */
void xm_sched_logp_ids(const xm_sched *sched, uint32_t stride, int32_t *ids);
/* Take arrays [draws, stride], before the results of the same draws. */
void xm_sched_take_top(xm_sched *sched, uint32_t stride, const int32_t *ids,
                       const float *logp);
void xm_sched_take_logp(xm_sched *sched, uint32_t stride, const float *logp);

/* Takes the results of the draws that were issued last. */
void xm_sched_results(xm_sched *sched, const int32_t *tokens,
                      const float *raw_logp, const float *logp);
void xm_sched_end(xm_sched *sched);

/* Between the draws of a step and their results: 1 if the device can make the
 * next step from what this one draws, because every row has one token, goes
 * on unless that token itself ends it, and expects no drafts, which only the
 * host can look up. Then *out_next is that step, whose row i
 * goes on from draw i of this one. */
int xm_sched_follow(xm_sched *sched, const xm_sched_step *step,
                    xm_sched_step *out_next);
/* Begins the step that was made ahead, in place of xm_sched_begin and
 * xm_sched_draws; its results are those of all its rows. Rows are left out
 * whose sequences have ended, or gone on with other tokens, since then. Returns
 * 0, and begins nothing, if no row is left. */
int xm_sched_take_ahead(xm_sched *sched, xm_sched_step *step);

/* 1 while a step has something to compute; a pause may keep it from that. */
int xm_sched_has_work(const xm_sched *sched);
/* Number of requests that are not finished, including held ones. */
uint32_t xm_sched_live(const xm_sched *sched);
/* Fills everything but the header, which says how much of it there is. */
void xm_sched_stats(const xm_sched *sched, xray_infer_stats *out);
/* Number of allocations since create; the tests prove by it that steps do not
 * allocate. */
uint64_t xm_sched_grown(const xm_sched *sched);

#endif
