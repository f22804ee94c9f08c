/* SPDX-License-Identifier: Apache-2.0
 *
 * The structs and functions that the files of backend-zero3 share.
 */
#ifndef Z3_ZERO3_H
#define Z3_ZERO3_H

#include "model/train/trainer.h"

#define Z3_SECTION "train.zero3"

/* Values of offload_optimizer and offload_param: where the moved values are
 * kept. */
#define Z3_OFFLOAD_NONE 0
#define Z3_OFFLOAD_HOST 1

/* Values of [train.zero3]. */
typedef struct z3_config {
    double beta1;
    double beta2;
    double eps;
    double weight_decay;
    int64_t stage;             /* 0 to 3; on one rank all are alike */
    int64_t offload_optimizer; /* Z3_OFFLOAD_* */
    int64_t offload_param;     /* Z3_OFFLOAD_*; only with stage 3 */
    int64_t head_logits;       /* XM_TRAINER_LOGITS_* */
    const char *offload_dir;   /* NULL or "": the system's temporary folder */
    const char *deepspeed_config; /* NULL or "": none */
    uint32_t gradient_checkpointing;
    uint32_t prefetch;
} z3_config;

/* ---- gathered weights (stage 3) ---------------------------------------- */

#define Z3_NONE UINT32_MAX

/* Assigns each bucket to one of a few slots of memory that buckets share. */
typedef struct z3_slot_table {
    uint32_t slots;
    uint32_t reserved;
    uint32_t *slot_of;  /* [bucket_count], Z3_NONE: the bucket has no slot */
    uint64_t *capacity; /* [slots] elements of the largest bucket */
} z3_slot_table;
/* Assigns the blocks from `from` to `width` slots in rotation. The embedding
 * and the last bucket share a slot unless `separate`. Free with
 * z3_slot_table_free. */
xray_status z3_slot_table_create(const xm_layout *layout, uint32_t width,
                                 uint32_t from, int separate, xr_err *err,
                                 z3_slot_table *out);
void z3_slot_table_free(z3_slot_table *table);

/* Number of blocks whose weights are gathered at once: one is computed with
 * while the next one arrives. */
#define Z3_GATHER_SLOTS 2u

typedef struct z3_gather_slot {
    float *data; /* [dev] */
    uint32_t holds;
    uint32_t handle_count;
    xray_weight **handles;
    uint32_t *matrices; /* layout indices of the matrices that the handles were
                         * created for */
    xray_event *ready;
} z3_gather_slot;

typedef struct z3_gather {
    const xm_layout *layout;
    const xm_group *group;
    z3_slot_table table;
    z3_gather_slot *slots;
    float **shares;      /* [bucket_count] */
    float *share_memory; /* [dev]; NULL: the shares are in host memory */
    xm_host_memory memory;
    xray_weight **handles; /* [matrix_count] */
    xray_tensor *tensors;  /* [param_count] */
    xray_weights view;     /* all tensors in full, in their slots */
    xray_weights part;     /* those of a bucket, of an export */
    uint32_t backward_end; /* lowest bucket that a backward pass reads */
    uint32_t offloaded;    /* 1: the shares are in host memory */
    uint32_t prefetch; /* 1: the next bucket is gathered while one is used */
    uint32_t reserved;
} z3_gather;

/* ---- scattered gradients (stages 2 and 3) ------------------------------ */

typedef struct z3_reduce {
    z3_slot_table table;
    float **slots;      /* [table.slots] [dev] */
    xray_event **ready; /* [table.slots] the slot's gradients are scattered, it
                         * can be reused */
    float **shares;     /* [bucket_count + 1] [dev] sums over ranks; at the end
                         * those of look-ups that are summed by segments */
    float *part; /* [dev] receives the sum of one call; as large as the largest
                  * share */
    unsigned char *has_sum; /* [bucket_count] 1: the share holds a sum */
} z3_reduce;

/* ---- the instance ------------------------------------------------------- */

typedef struct z3 {
    xm_trainer base; /* the first member */
    z3_gather gather;
    z3_reduce reduce;
} z3;

uint64_t z3_gather_bytes(const xm_layout *layout, const xm_config *model,
                         const z3_config *config, const xray_workload *load);
void z3_gather_hook(z3 *self);
void z3_gather_visit(const z3 *self, xm_block_visit *visit);

uint64_t z3_reduce_bytes(const xm_layout *layout, const xm_config *model,
                         uint32_t segments);
void z3_reduce_hook(z3 *self);
void z3_reduce_visit(const z3 *self, xm_block_visit *visit);

xray_status z3_plan(const xray_host *host, const void *config,
                    const xray_model *model, const xray_world *world,
                    const xray_workload *load, xray_plan *out);
xray_status z3_create(const xray_setup *setup, const void *config,
                      const xray_workload *load, void **out_self);
void z3_destroy(void *self);

#endif
