/* SPDX-License-Identifier: Apache-2.0
 *
 * The instance of infer-dsinf, an engine over a contiguous workspace of keys
 * and values. Each layer has blocks [slots][blocks of a slot]; a slot holds one
 * sequence and is refilled in the step after that sequence ends. The scheduler
 * of model/serve decides what to compute, and the decoder of model/nn computes
 * it.
 */
#ifndef DSINF_H
#define DSINF_H

#include <xray/infer.h>

#include "core/base/services.h"
#include "model/hf/config.h"
#include "model/nn/decoder.h"
#include "model/serve/sched.h"

/* Positions per block: the least that a block may hold, so that no slot wastes
 * more than 15 positions. */
#define DSINF_BLOCK_TOKENS 16u

/* States of an update in parts: tensors are outstanding, or the call
 * update(NULL); all tensors have arrived, and update(NULL) may follow. */
#define DSINF_UPDATE_PART 1u
#define DSINF_UPDATE_ALL 2u

#define DSINF_WEIGHTS_AUTO 0
#define DSINF_WEIGHTS_FLOAT32 1
#define DSINF_WEIGHTS_BFLOAT16 2

typedef struct dsinf_config {
    int64_t weights; /* DSINF_WEIGHTS_* */
    int64_t max_num_seqs;
    int64_t max_num_batched_tokens;
    uint64_t kv_memory;
} dsinf_config;

/* Sizes that follow from the model, the workload and the options. */
typedef struct dsinf_bounds {
    uint32_t slots;
    uint32_t row_bound; /* longest row, limited by the workload or the model */
    uint32_t step_tokens;
    uint32_t slot_blocks; /* number of blocks of a slot in one layer */
    uint32_t draws;       /* most random draws in one call of the sampler */
    uint32_t words;       /* of a set of ids */
    uint64_t edits;      /* most edits of logits that are drawn from together */
    uint64_t logits;     /* floats from the logits of one draw to the next */
    uint64_t slot_bytes; /* keys and values of one slot in all layers */
} dsinf_bounds;

/* The results of a step's draws. */
typedef struct dsinf_drawn {
    int32_t *token;  /* [draws] */
    float *raw_logp; /* [draws] */
    float *logp;     /* [draws] */
} dsinf_drawn;

/* The arrays that go to and from the device in a step. On a device with host
 * memory, host and device pointers are the same. */
typedef struct dsinf_arrays {
    int32_t *ids;         /* [step_tokens] */
    int32_t *seq;         /* [step_tokens] */
    int32_t *positions;   /* [step_tokens] */
    int32_t *last;        /* [step_tokens] */
    int32_t *index;       /* [draws] */
    xray_draw *draws;     /* [draws] */
    dsinf_drawn drawn[2]; /* of a step and of the one that is made ahead */
    int32_t *stop;        /* [slots] and `limit`: as in xray_advance, for steps
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
} dsinf_arrays;

/* A step ahead that a device has recorded, for up to so many rows. */
typedef struct dsinf_graph {
    xray_graph *graph; /* NULL: such a step was made once, but not recorded */
    uint32_t rows;     /* 0: no such step was made */
    uint32_t position_bound;
} dsinf_graph;

typedef struct dsinf {
    const xray_host *host;
    const xray_call_service *calls;      /* or NULL */
    const xray_metrics_service *metrics; /* or NULL */
    const xray_device_ops *device;
    void *device_self;
    xm_config model;
    dsinf_bounds bounds;
    const xray_weights *shared; /* the weights of the setup, or NULL */
    xm_layout *layout; /* layout of the engine's own weights, or NULL */
    xm_weights *own;   /* the engine's own; NULL: the shared ones are used */
    uint64_t *arrived; /* [parameters] elements that the update has brought */
    uint64_t version;  /* version of the engine's own weights */
    xm_decoder *decoder;
    xm_space *space;
    xm_sched *sched;
    void *kv_memory; /* NULL while asleep */
    uint64_t kv_bytes;
    uint64_t block_bytes;
    xray_kv *kv; /* [layers] */
    dsinf_arrays host_arrays;
    dsinf_arrays device_arrays;
    void *host_block;
    void *device_block; /* NULL on a device with host memory */
    void *gathered;     /* [dev] [draws, hidden] */
    float *logits;      /* [dev] [XM_LOGIT_DRAWS, bounds.logits] */
    float *changed;     /* [dev] likewise */
    uint32_t host_memory;
    uint32_t leased;
    uint32_t paused;       /* XRAY_PAUSE_*; 0: no */
    uint64_t work_steps;   /* steps since requests came to the idle engine */
    uint64_t work_rows;    /* rows that got a token in them */
    xray_event *done[2];   /* that drawn[i] has come back */
    xm_sched_step ahead;   /* the step after the last one */
    uint32_t turn;         /* the one of `drawn` that the last step has */
    uint32_t going;        /* 1: `ahead` is made and not yet taken */
    dsinf_graph graphs[2]; /* of steps ahead, by `turn` */
    uint32_t broken;       /* 1: a step failed before its end */
    uint32_t updating;     /* DSINF_UPDATE_* of the current update; 0: none */
    uint32_t bf16;         /* 1: the engine's own weights are bf16 */
    uint32_t asleep;       /* bits 1 << tag of activations and own weights */
    uint32_t weights_lost; /* 1: own weights were evicted, an update must bring
                            * all of them */
} dsinf;

/* ---- bounds.c: pure functions -------------------------------------------- */

xray_status dsinf_read_model(const xray_model *model, xr_err *err,
                             xm_config *out);
/* The first is 1 if the engine keeps a copy of the weights; `alone` means that
 * it has none to share. The second gives the XM_WEIGHTS_* of that copy. */
int dsinf_keeps_copy(const dsinf_config *config, int alone);
int dsinf_copy_flags(const dsinf_config *config, const xray_model *model);
/* The cache of one layer. */
xray_kv dsinf_describe_kv(const xm_config *model, uint32_t slot_blocks);
xray_status dsinf_find_bounds(const dsinf_config *config,
                              const xm_config *model, const xray_workload *load,
                              xr_err *err, dsinf_bounds *out);
xray_status dsinf_plan(const xray_host *host, const void *config,
                       const xray_model *model, const xray_world *world,
                       const xray_workload *load, xray_plan *out);
/* Lays out the arrays of a step from `base` (NULL: only counts), and returns
 * the number of bytes that they occupy. */
size_t dsinf_lay_out_arrays(const dsinf_bounds *bounds, void *base,
                            dsinf_arrays *out);

/* ---- memory.c: what an instance allocates -------------------------------- */

xray_status dsinf_create_weights(dsinf *self, const xray_setup *setup,
                                 const dsinf_config *config, xr_err *err);
xray_status dsinf_alloc_arrays(dsinf *self, xr_err *err);
xray_status dsinf_alloc_kv(dsinf *self, xr_err *err);
void dsinf_free_kv(dsinf *self);
xray_status dsinf_copy_slot(dsinf *self, const xm_slot_copy *copy);
void dsinf_free(dsinf *self);

/* The tags that `sleep` may evict. */
#define DSINF_EVICTABLE \
    (1u << XRAY_TAG_WEIGHTS | 1u << XRAY_TAG_ACTIVATIONS | 1u << XRAY_TAG_KV)
xray_status dsinf_sleep(void *self, uint32_t tags);
xray_status dsinf_wake(void *self, uint32_t tags);

/* ---- step.c -------------------------------------------------------------- */

/* Computes the tokens of a step, whose arrays are on the device, and enqueues
 * its draws and the way of their results to the host. `live` [dev] is the
 * number of rows if that is less; or NULL. `issued` is 1 if the scheduler knows
 * the draws, which may then need logits that were changed. */
xray_status dsinf_compute(dsinf *self, const xm_sched_step *step,
                          const int32_t *live, const void **out_hidden,
                          xr_err *err);
xray_status dsinf_draw(dsinf *self, const void *x, xray_extent count,
                       uint32_t turn, int issued);

/* ---- ahead.c ------------------------------------------------------------- */

/* Makes the step `ahead` from what the current one draws, before the host knows
 * it. A device that offers graphs records it and runs it as one. */
xray_status dsinf_make_ahead(dsinf *self, xr_err *err);
/* Destroys the graphs, since they hold addresses of memory that moves. */
void dsinf_forget_graphs(dsinf *self);

/* Forgets the step that was made ahead, since its weights are about to change;
 * it is made again from what the host knows. */
static inline void dsinf_forget_ahead(dsinf *self)
{
    self->going = 0;
}

uint64_t dsinf_version(const dsinf *self);
xray_status dsinf_step(void *self);
/* Copy to and from the device where host and device memory differ. */
xray_status dsinf_upload(dsinf *self, void *to, const void *from, size_t bytes);
xray_status dsinf_download(dsinf *self, void *to, const void *from,
                           size_t bytes);
/* Makes the hidden states of `count` indices consecutive. Where they already
 * are, they are read in place. */
xray_status dsinf_gather(dsinf *self, const void *hidden, uint32_t count,
                         int in_order, const void **out);

/* ---- logits.c: where something comes between the LM head and the draw ---- */

/* Computes the log-probs of prompts that requests ask for. */
xray_status dsinf_score_prompts(dsinf *self, const void *hidden);
/* Computes the logits of the draws that were issued last, changes them, and
 * takes the log-probs that are wanted beside theirs. Adds to `call` what the
 * sampler needs; nothing if no draw needs logits. */
xray_status dsinf_prepare_logits(dsinf *self, const float *x, uint32_t count,
                                 xray_sample *call);

/* ---- update.c: new weights ----------------------------------------------- */

xray_status dsinf_update(void *self, const xray_weights *from,
                         uint64_t version);
const xray_weights *dsinf_weights(void *self);
/* Returns XRAY_E_STATE while the weights are incomplete: between the first part
 * of an update and its end, and after `sleep` until all have arrived. */
xray_status dsinf_check_weights(dsinf *self, const char *where);
/* Begins to count again what an update brings. */
void dsinf_expect_weights(dsinf *self);

/* ---- the lease on shared weights ----------------------------------------- */

/* Takes a lease on shared weights, and releases it when no request is live or
 * a pause leaves nothing to compute. */
xray_status dsinf_take_lease(dsinf *self, const char *where);
void dsinf_drop_lease(dsinf *self);

/* Reports the sentence of a failure to the host. */
xray_status dsinf_report(const xray_host *host, xray_status status,
                         const char *where, const xr_err *err);

#endif
