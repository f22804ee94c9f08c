/* SPDX-License-Identifier: Apache-2.0
 *
 * Declares the engine's instance, and the functions that its files share.
 */
#ifndef XM_ENGINE_INTERNAL_H
#define XM_ENGINE_INTERNAL_H

#include "core/base/services.h"
#include "model/nn/join.h"
#include "model/serve/engine.h"
#include "model/serve/sched.h"

/* States of an update in parts: tensors are outstanding, or the call
 * update(NULL); all tensors have arrived, and update(NULL) may follow. */
#define XM_ENGINE_UPDATE_PART 1u
#define XM_ENGINE_UPDATE_ALL 2u

/* The sizes of an instance, and the options that they come from. */
typedef struct xm_engine_sizes {
    xm_config model;
    xm_engine_bounds bounds;
    xm_engine_options options;
} xm_engine_sizes;
xray_status xm_engine_find_sizes(const xm_engine_kind *kind, const void *config,
                                 const xray_model *model,
                                 const xray_world *world,
                                 const xray_workload *load, xr_err *err,
                                 xm_engine_sizes *out);

/* The results of a step's draws. */
typedef struct xm_engine_drawn {
    int32_t *token;  /* [draws] */
    float *raw_logp; /* [draws] */
    float *logp;     /* [draws] */
} xm_engine_drawn;

#define XM_DIGEST_FLOATS 4u

/* The arrays that go to and from the device in a step. On a device with host
 * memory, host and device pointers are the same. */
typedef struct xm_engine_arrays {
    int32_t *ids;             /* [step_tokens] */
    int32_t *seq;             /* [step_tokens] */
    int32_t *positions;       /* [step_tokens] */
    int32_t *last;            /* [step_tokens] */
    int32_t *index;           /* [draws] */
    xray_draw *draws;         /* [draws] */
    xm_engine_drawn drawn[2]; /* of a step and of the one that is made ahead */
    int32_t *table;           /* [slots, slot_blocks] of a paged cache */
    int32_t *stop; /* [slots] and `limit`: as in xray_advance, for steps
                    * that are made ahead. No row ends in them. */
    int32_t *limit;
    int32_t *rows; /* [1] of the step, and of the one ahead */
    /* The wishes that requests have of the logits: arrays of xm_changes, and
     * log-probs beside those of the drawn tokens. */
    int32_t *edit_start;    /* [logit_draws + 1] */
    int32_t *allowed_set;   /* [logit_draws] */
    xray_logit_edit *edits; /* [edits] */
    uint32_t *allowed;      /* [logit_draws, words] */
    int32_t *pick_ids;      /* [logit_draws, XM_MAX_PICKS] */
    float *pick_logp;       /* [logit_draws, XM_MAX_PICKS] */
    /* Of several ranks: where the parts of logits come from, and what each rank
     * knows of its calls, its own at the end. */
    int32_t *order; /* [logit_draws, ranks] */
    float *digests; /* [ranks + 1, XM_DIGEST_FLOATS] */
} xm_engine_arrays;

/* A step ahead that a device has recorded, for up to so many rows. */
typedef struct xm_engine_graph {
    xray_graph *graph; /* NULL: such a step was made once, but not recorded */
    uint32_t rows;     /* 0: no such step was made */
    uint32_t position_bound;
} xm_engine_graph;

/* Counts since a request came to the idle engine. */
typedef struct xm_engine_work {
    xray_infer_stats before;
    uint64_t steps;
    uint64_t rows;      /* that got a token in them */
    uint64_t kv_tokens; /* the most that were in use after a step */
} xm_engine_work;

typedef struct xm_engine {
    const char *name; /* the component's, which outlives the engine */
    char owner[32];   /* "infer.NAME" */
    const xray_host *host;
    const xray_call_service *calls;      /* or NULL */
    const xray_metrics_service *metrics; /* or NULL */
    const xray_device_ops *device;
    void *device_self;
    xm_config model;
    xm_engine_bounds bounds;
    const xray_weights *shared; /* the weights of the setup, or NULL */
    xm_layout *layout; /* layout of the engine's own weights, or NULL */
    xm_weights *own;   /* the engine's own; NULL: the shared ones are used */
    uint64_t *arrived; /* [parameters] elements that the update has brought */
    uint64_t version;  /* version of the engine's own weights */
    xm_decoder *decoder;
    xm_space *space;
    xm_sched *sched;
    xm_trace *trace; /* or NULL */
    void *kv_memory; /* NULL while asleep */
    uint64_t kv_bytes;
    uint64_t block_bytes;
    xray_kv *kv; /* [layers] */
    xm_engine_arrays host_arrays;
    xm_engine_arrays device_arrays;
    void *host_block;
    void *device_block; /* NULL on a device with host memory */
    void *gathered;     /* [dev] [draws, hidden] */
    float *logits;      /* [dev] [bounds.logit_draws, bounds.logits] */
    float *changed;     /* [dev] [XM_LOGIT_DRAWS, bounds.logits] */
    float *parts;       /* [dev] as `logits`, rank by rank; one rank: NULL */
    xm_join join;       /* of the ranks that share the model */
    uint64_t told;      /* digest of the calls so far */
    uint32_t host_memory;
    uint32_t leased;
    uint32_t paused; /* XRAY_PAUSE_*; 0: no */
    xm_engine_work work;
    xray_event *done[2];       /* that drawn[i] has come back */
    xray_event *uploaded;      /* that the last step arrays have been read */
    xm_sched_step ahead;       /* the step after the last one */
    uint32_t turn;             /* the one of `drawn` that the last step has */
    uint32_t going;            /* 1: `ahead` is made and not yet taken */
    xm_engine_graph graphs[2]; /* of steps ahead, by `turn` */
    uint32_t broken;           /* 1: a step failed before its end */
    uint32_t updating; /* XM_ENGINE_UPDATE_* of the current update; 0: none */
    uint32_t bf16;     /* 1: the engine's own weights are bf16 */
    uint32_t asleep;   /* bits 1 << tag of activations and own weights */
    uint32_t weights_lost; /* 1: own weights were evicted, an update must bring
                            * all of them */
} xm_engine;

/* ---- engine_plan.c: pure functions --------------------------------------- */

/* The cache of one layer. */
xray_kv xm_engine_describe_kv(const xm_config *model, uint32_t block_tokens,
                              uint32_t slot_blocks);
/* The number of blocks of one layer. */
static inline uint64_t xm_engine_count_blocks(const xm_engine_bounds *b)
{
    return b->blocks ? b->blocks : (uint64_t)b->slots * b->slot_blocks;
}

/* Floats of `logits`, `changed` and `parts`. */
uint64_t xm_engine_count_logits(const xm_engine_bounds *b);

/* Lays out the arrays of a step from `base` (NULL: only counts), and returns
 * the number of bytes that they occupy. */
size_t xm_engine_lay_out_arrays(const xm_engine_bounds *bounds, void *base,
                                xm_engine_arrays *out);

/* ---- engine_memory.c: what an instance allocates ------------------------- */

xray_status xm_engine_create_weights(xm_engine *self, const xray_setup *setup,
                                     int64_t weights, xr_err *err);
xray_status xm_engine_alloc_arrays(xm_engine *self, xr_err *err);
xray_status xm_engine_alloc_kv(xm_engine *self, xr_err *err);
void xm_engine_free_kv(xm_engine *self);
xray_status xm_engine_copy_slot(xm_engine *self, const xm_slot_copy *copy);

/* ---- engine_step.c ----------------------------------------------------------
 */

/* Computes the tokens of a step, whose arrays are on the device, and enqueues
 * its draws and the way of their results to the host. `live` [dev] is the
 * number of rows if that is less; or NULL. `issued` is 1 if the scheduler knows
 * the draws, which may then need logits that were changed. */
xray_status xm_engine_compute(xm_engine *self, const xm_sched_step *step,
                              const int32_t *live, const void **out_hidden,
                              xr_err *err);
xray_status xm_engine_draw(xm_engine *self, const void *x, xray_extent count,
                           uint32_t turn, int issued);

/* ---- engine_ahead.c
 * ---------------------------------------------------------- */

/* Makes the step `ahead` from what the current one draws, before the host knows
 * it. A device that offers graphs records it and runs it as one. */
xray_status xm_engine_make_ahead(xm_engine *self, xr_err *err);
/* Destroys the graphs, since they hold addresses of memory that moves. */
void xm_engine_forget_graphs(xm_engine *self);

/* Forgets the step that was made ahead, since its weights are about to change;
 * it is made again from what the host knows. */
static inline void xm_engine_forget_ahead(xm_engine *self)
{
    self->going = 0;
}

/* Reports that a trace could not be written, after which it is not. The run
 * goes on, since its results do not depend on it. */
void xm_engine_lose_trace(const xm_engine *self, const xr_err *why);
uint64_t xm_engine_version(const xm_engine *self);
/* Tells the device which blocks the slots have in a paged cache. */
xray_status xm_engine_upload_table(xm_engine *self);
/* Marks the point behind the uploads of the step arrays. */
xray_status xm_engine_mark_uploads(xm_engine *self);
/* Copy to and from the device where host and device memory differ. */
xray_status xm_engine_upload(xm_engine *self, void *to, const void *from,
                             size_t bytes);
xray_status xm_engine_download(xm_engine *self, void *to, const void *from,
                               size_t bytes);
/* Makes the hidden states of `count` indices consecutive. Where they already
 * are, they are read in place. */
xray_status xm_engine_gather(xm_engine *self, const void *hidden,
                             uint32_t count, int in_order, const void **out);

/* ---- engine_logits.c: where something comes between the LM head and the draw
 * ---- */

/* Computes the log-probs of prompts that requests ask for. */
xray_status xm_engine_score_prompts(xm_engine *self, const void *hidden);
/* Computes the logits of the draws that were issued last, changes them, and
 * takes the log-probs that are wanted beside theirs. Adds to `call` what the
 * sampler needs; nothing if no draw needs logits. */
xray_status xm_engine_prepare_logits(xm_engine *self, const float *x,
                                     uint32_t count, xray_sample *call);

/* ---- engine_ranks.c: ranks that share the model ---------------------------
 */

/* Takes the ranks from the world; nothing for one rank. */
xray_status xm_engine_join_ranks(xm_engine *self, const xray_world *world,
                                 xr_err *err);
/* What a pass calls; `join` is NULL for one rank. */
xm_watch xm_engine_watch(xm_engine *self);
/* Where the rank's part of the logits of `count` draws goes, and its stride. */
float *xm_engine_own_logits(const xm_engine *self, uint32_t count,
                            uint64_t *out_stride);
/* Gathers the parts into self->logits. [collective] */
xray_status xm_engine_gather_logits(xm_engine *self, uint32_t count);
/* Adds a call to the digest of all that the ranks must be given alike. */
void xm_engine_note_call(xm_engine *self, const void *data, size_t size);
void xm_engine_note_request(xm_engine *self, const xray_request *request);
/* Refuses to go on if a rank was given other calls. [collective] */
xray_status xm_engine_agree(xm_engine *self, xr_err *err);

/* ---- engine_update.c: new weights
 * ----------------------------------------------- */

/* Returns XRAY_E_STATE while the weights are incomplete: between the first part
 * of an update and its end, and after `sleep` until all have arrived. */
xray_status xm_engine_check_weights(xm_engine *self, const char *where);
/* Begins to count again what an update brings. */
void xm_engine_expect_weights(xm_engine *self);

/* ---- engine_metrics.c ---------------------------------------------------- */

/* Begins to measure where the engine is idle. */
void xm_engine_begin_work(xm_engine *self);
/* A step gave `rows` sequences a token. */
void xm_engine_measure_step(xm_engine *self, uint32_t rows);

/* ---- the lease on shared weights ----------------------------------------- */

/* Takes a lease on shared weights, and releases it when no request is live or
 * a pause leaves nothing to compute. */
xray_status xm_engine_take_lease(xm_engine *self, const char *where);
void xm_engine_drop_lease(xm_engine *self);

/* Reports to the host why a call fails, in a sentence that begins with the
 * component's name. */
xray_status xm_engine_fail(const xm_engine *self, xray_status status,
                           const char *where, const char *text);

#endif
