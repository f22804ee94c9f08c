/* SPDX-License-Identifier: Apache-2.0
 *
 * Generates with a decoder whose steps a scheduler makes: what inference
 * engines share. An engine's component has options of its own, from which it
 * says how large an instance is; most functions of its table are those below.
 *
 * Where xray/infer.h leaves a choice, an engine does the following. `step`
 * returns XRAY_END (idle) while every slot is held; in a paged cache held
 * samples have no slot. A held sample can be extended or released once its
 * result has been polled. Each extension samples up to the request's max_tokens
 * again, and its result holds only the new tokens; the end id or last token
 * sampled before stays in the row, before the appended tokens. `min_tokens`,
 * `stop_lists` and `banned_lists` are about the tokens since the last
 * extension, `forced_ids` and penalties about all of the sample. The span of a
 * result counts from the start of the row, prompt included. Held samples keep
 * the lease on shared weights.
 */
#ifndef XM_ENGINE_H
#define XM_ENGINE_H

#include <xray/infer.h>
#include <xray/option.h>

#include "core/base/err.h"
#include "model/hf/config.h"
#include "model/serve/request.h"

/* Positions in a block of the KV cache: block_tokens is a multiple of it. */
#define XM_ENGINE_BLOCK_TOKENS 16u

/* Values of `weights`. */
#define XM_ENGINE_WEIGHTS_AUTO 0
#define XM_ENGINE_WEIGHTS_FLOAT32 1
#define XM_ENGINE_WEIGHTS_BFLOAT16 2

extern const xray_choice xm_engine_weight_choices[];
/* The option `weights`, with which the options of every engine begin. */
#define XM_ENGINE_WEIGHTS(config)                                        \
    XRAY_CHOICE(                                                         \
        config, weights, "auto", xm_engine_weight_choices, 0u, "0.1",    \
        "The weights to compute with. bfloat16 halves the bytes that a " \
        "step reads. Beside a trainer in float32 its log-probabilities " \
        "are not the trainer's, so those of the old policy are "         \
        "computed again; with [model] dtype = bfloat16 they are.")

/* The option `trace`, which follows it in every engine's options. */
#define XM_ENGINE_TRACE(config)                                             \
    XRAY_PATH(config, trace, "", 0u, "0.1",                                 \
              "File for the scheduler's decisions in Chrome's trace "       \
              "format, written anew at each start; rank N of several ones " \
              "writes FILE.N, rank 0 FILE. Empty: none.")

/* The option `speculate`, and the last of them. */
#define XM_ENGINE_SPECULATE(config)                                          \
    XRAY_INT(config, speculate, "0", 0, 32, "tokens", 0u, "0.1",             \
             "Most tokens of a sequence that a step computes beyond its "    \
             "next one, since they followed the same 2 to 5 tokens earlier " \
             "in its row; those that are then drawn cost no step of their "  \
             "own. It changes no bit of a result, and rests where it would " \
             "take longer than it saves. 0: none.")

#define XM_ENGINE_TENSOR(config)                                             \
    XRAY_INT(config, tensor_model_parallel_size, "1", 1, 8, "ranks", 0u,     \
             "0.1",                                                          \
             "The ranks of one engine: each has a part of the attention "    \
             "heads with their keys and values, of the MLP and of the "      \
             "vocabulary. It may differ from the trainer's, and changes no " \
             "bit of a result unless ranks share KV heads.")

/* The options of every component begin with these. */
typedef struct xm_engine_options {
    int64_t weights; /* XM_ENGINE_WEIGHTS_* */
    const char *trace;
    int64_t speculate;
    int64_t tensor_model_parallel_size; /* 0: 1 */
} xm_engine_options;

/* Sizes that follow from the model, the workload and the options. */
typedef struct xm_engine_bounds {
    /* Set by the component. */
    uint32_t slots;
    uint32_t row_bound; /* longest row, limited by the workload or the model */
    uint32_t block_tokens; /* positions in a block of the cache */
    uint32_t slot_blocks;  /* number of blocks of a slot in one layer */
    uint32_t blocks;       /* of one layer of a paged cache; 0: each slot has
                            * slot_blocks of its own */
    uint32_t watermark;    /* as in xm_paging_limits */
    uint32_t caching;      /* 1: blocks of equal prefixes are shared */
    uint32_t speculate;    /* as in xm_sched_limits */
    uint64_t slot_bytes;   /* keys and values of one slot in all layers */
    /* Set by xm_engine_find_bounds. */
    uint32_t ranks; /* that share the model */
    uint32_t step_tokens;
    uint32_t draws;  /* most random draws in one call of the sampler */
    uint32_t words;  /* of a set of ids */
    uint64_t edits;  /* most edits of logits that are drawn from together */
    uint64_t logits; /* floats from the logits of one draw to the next */
    uint32_t logit_draws; /* draws whose logits are computed together */
} xm_engine_bounds;

/* The capabilities of all engines. */
#define XM_ENGINE_OFFERS \
    (XM_REQUEST_OFFERS | XRAY_INFER_ABORT_SAMPLE | XRAY_INFER_UPDATE_RUNNING)

/* ---- for a component's plan and create ----------------------------------- */

/* A component as the engine sees it. */
typedef struct xm_engine_kind {
    const char *name; /* outlives the instances */
    /* Finds the sizes of an instance from the component's options, which begin
     * with xm_engine_options. */
    xray_status (*find_bounds)(const void *config, const xm_config *model,
                               const xray_workload *load, xr_err *err,
                               xm_engine_bounds *out);
} xm_engine_kind;
/* The first is 1 if the engine keeps a copy of the weights; `alone` means that
 * it has none to share. The second gives the XM_WEIGHTS_* of that copy. */
int xm_engine_keeps_copy(int64_t weights, int alone);
int xm_engine_copy_flags(int64_t weights, const xray_model *model);
/* Bytes of a slot in all layers, 0 if the device has no such cache; where the
 * device is not known, those of the elements without padding. */
uint64_t xm_engine_slot_bytes(const xm_config *model, const xray_workload *load,
                              uint32_t block_tokens, uint32_t slot_blocks);
/* Adds to `bounds` what follows from the component's part of it; a step has at
 * most `step_tokens` tokens, but at least one for each slot. */
void xm_engine_find_bounds(const xm_config *model, uint64_t step_tokens,
                           xm_engine_bounds *bounds);
xray_status xm_engine_plan(const xm_engine_kind *kind, const xray_host *host,
                           const void *config, const xray_model *model,
                           const xray_world *world, const xray_workload *load,
                           xray_plan *out);
/* On failure *out_self is not written. */
xray_status xm_engine_create(const xm_engine_kind *kind,
                             const xray_setup *setup, const void *config,
                             const xray_workload *load, void **out_self);

/* ---- the functions of a component's table -------------------------------- */

void xm_engine_destroy(void *self);
xray_status xm_engine_submit(void *self, const xray_request *request);
xray_status xm_engine_step(void *self);
xray_status xm_engine_poll(void *self, xray_sample_out *out);
xray_status xm_engine_abort(void *self, uint64_t id, uint32_t sample);
xray_status xm_engine_stats(void *self, xray_infer_stats *out);
xray_status xm_engine_update(void *self, const xray_weights *from,
                             uint64_t version);
xray_status xm_engine_extend(void *self, uint64_t id, uint32_t sample,
                             const int32_t *tokens, uint32_t count);
xray_status xm_engine_release(void *self, uint64_t id, uint32_t sample);
xray_status xm_engine_pause(void *self, uint32_t mode);
xray_status xm_engine_resume(void *self);
xray_status xm_engine_sleep(void *self, uint32_t tags);
xray_status xm_engine_wake(void *self, uint32_t tags);
const xray_weights *xm_engine_weights(void *self);

/* Those of them that are the same in every component. */
#define XM_ENGINE_CALLS                                                       \
    .destroy = xm_engine_destroy, .submit = xm_engine_submit,                 \
    .step = xm_engine_step, .poll = xm_engine_poll, .abort = xm_engine_abort, \
    .stats = xm_engine_stats, .update = xm_engine_update,                     \
    .extend = xm_engine_extend, .release = xm_engine_release,                 \
    .pause = xm_engine_pause, .resume = xm_engine_resume,                     \
    .sleep = xm_engine_sleep, .wake = xm_engine_wake,                         \
    .weights = xm_engine_weights

/* The tags that `sleep` may evict. */
#define XM_ENGINE_EVICTABLE \
    (1u << XRAY_TAG_WEIGHTS | 1u << XRAY_TAG_ACTIVATIONS | 1u << XRAY_TAG_KV)

#endif
