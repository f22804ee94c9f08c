/* SPDX-License-Identifier: Apache-2.0
 *
 * infer-dsinf: an engine over a contiguous workspace of keys and values. Each
 * layer has blocks [slots][blocks of a slot]; a slot holds one sequence and is
 * refilled in the step after that sequence ends. The scheduler of model/serve
 * decides, the decoder of model/nn computes.
 */
#ifndef DSINF_H
#define DSINF_H

#include <xray/infer.h>

#include "core/base/err.h"
#include "model/hf/config.h"
#include "model/nn/decoder.h"
#include "model/serve/sched.h"

#define DSINF_BLOCK_TOKENS                            \
    16u /* the least a block may hold: no slot wastes \
         * more than 15 positions */

#define DSINF_PART 1u /* tensors are still to come, or update(NULL) */
#define DSINF_ALL 2u  /* all came, update(NULL) may follow */

#define DSINF_WEIGHTS_AUTO 0
#define DSINF_WEIGHTS_FLOAT32 1
#define DSINF_WEIGHTS_BFLOAT16 2

typedef struct dsinf_config {
    int64_t weights; /* DSINF_WEIGHTS_* */
    int64_t max_num_seqs;
    int64_t max_num_batched_tokens;
    uint64_t kv_memory;
} dsinf_config;

/* Sizes that follow from model, workload and options. */
typedef struct dsinf_bounds {
    uint32_t slots;
    uint32_t row_bound; /* longest row: of the workload or the model */
    uint32_t step_tokens;
    uint32_t slot_blocks; /* blocks of a slot in one layer */
    uint32_t draws;       /* most draws in one call of the sampler */
    uint32_t reserved;
    uint64_t slot_bytes; /* keys and values of a slot, all layers */
} dsinf_bounds;

/* What goes to and from the device in a step. On a device with host memory
 * host and device pointers are the same. */
typedef struct dsinf_arrays {
    int32_t *ids;       /* [step_tokens] */
    int32_t *seq;       /* [step_tokens] */
    int32_t *positions; /* [step_tokens] */
    int32_t *last;      /* [slots] */
    int32_t *index;     /* [draws] */
    xray_draw *draws;   /* [draws] */
    int32_t *token;     /* [draws] */
    float *raw_logp;    /* [draws] */
    float *logp;        /* [draws] */
} dsinf_arrays;

typedef struct dsinf {
    const xray_host *host;
    const xray_device_ops *device;
    void *device_self;
    xm_config model;
    dsinf_bounds bounds;
    const xray_weights *shared; /* setup's, or NULL */
    xm_layout *layout;          /* of own weights, or NULL */
    xm_weights *own;            /* NULL: the shared ones are used */
    unsigned char *came; /* [parameters] 1: it has its part of an update */
    uint64_t version;    /* of own weights */
    xm_decoder *decoder;
    xm_space *space;
    xm_sched *sched;
    void *kv_memory; /* NULL while asleep */
    uint64_t kv_bytes;
    uint64_t block_bytes;
    xray_kv *kv; /* [layers] */
    dsinf_arrays h;
    dsinf_arrays d;
    void *host_block;
    void *device_block; /* NULL on a device with host memory */
    float *gathered;    /* [dev] [draws, hidden] */
    uint32_t host_memory;
    uint32_t leased;
    uint32_t paused;
    uint32_t broken;   /* a step failed half-way */
    uint32_t updating; /* parts of an update came: DSINF_PART, DSINF_ALL */
    uint32_t narrow;   /* own weights are bf16 */
    uint32_t asleep;   /* 1 << tag: of activations and own weights */
    uint32_t lost;     /* own weights slept: all of them have to come */
} dsinf;

/* ---- bounds.c: pure ------------------------------------------------------ */

xray_status dsinf_read_model(const xray_model *model, xr_err *err,
                             xm_config *out);
/* XM_WEIGHTS_* of a copy that the engine keeps; `alone`: it has to. */
int dsinf_keeps_copy(const dsinf_config *config, int alone);
int dsinf_copy_flags(const dsinf_config *config, const xray_model *model);
xray_status dsinf_find_bounds(const dsinf_config *config,
                              const xm_config *model, const xray_workload *load,
                              xr_err *err, dsinf_bounds *out);
xray_status dsinf_plan(const xray_host *host, const void *config,
                       const xray_model *model, const xray_world *world,
                       const xray_workload *load, xray_plan *out);
/* Lays the arrays of a step out from `base` (NULL: only counts); bytes used. */
size_t dsinf_lay_arrays(const dsinf_bounds *bounds, void *base,
                        dsinf_arrays *out);

/* ---- memory.c: what an instance holds ------------------------------------ */

xray_status dsinf_take_weights(dsinf *self, const xray_setup *setup,
                               const dsinf_config *config, xr_err *err);
xray_status dsinf_take_arrays(dsinf *self, xr_err *err);
xray_status dsinf_take_kv(dsinf *self, xr_err *err);
void dsinf_drop_kv(dsinf *self);
xray_status dsinf_copy_slot(dsinf *self, const xm_slot_copy *copy);
void dsinf_free(dsinf *self);

/* Tags that sleep may take. */
#define DSINF_EVICTABLE \
    (1u << XRAY_TAG_WEIGHTS | 1u << XRAY_TAG_ACTIVATIONS | 1u << XRAY_TAG_KV)
xray_status dsinf_sleep(void *self, uint32_t tags);
xray_status dsinf_wake(void *self, uint32_t tags);

/* ---- step.c -------------------------------------------------------------- */

uint64_t dsinf_version(const dsinf *self);
xray_status dsinf_step(void *self);

/* ---- update.c: new weights ----------------------------------------------- */

xray_status dsinf_update(void *self, const xray_weights *from,
                         uint64_t version);
const xray_weights *dsinf_weights(void *self);
/* XRAY_E_STATE between the first part of an update and its end. */
xray_status dsinf_check_whole(dsinf *self, const char *where);

/* ---- weights in use ------------------------------------------------------ */

/* Leases shared weights while requests live, and lets go when none does. */
xray_status dsinf_lease(dsinf *self);
void dsinf_settle(dsinf *self);

/* Passes a sentence on to the host. */
xray_status dsinf_fail(const xray_host *host, xray_status status,
                       const char *where, const xr_err *err);

#endif
