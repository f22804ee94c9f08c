/* SPDX-License-Identifier: Apache-2.0
 *
 * The structs and functions that the files of backend-zero3 share.
 */
#ifndef Z3_ZERO3_H
#define Z3_ZERO3_H

#include <xray/numerics.h>
#include <xray/train.h>

#include "core/base/services.h"
#include "model/train/adamw.h"
#include "model/train/pack.h"

/* Values of offload_optimizer and offload_param: where the moved values are
 * kept. */
#define Z3_OFFLOAD_NONE 0
#define Z3_OFFLOAD_HOST 1

/* Values of head_logits. */
#define Z3_LOGITS_AUTO 0
#define Z3_LOGITS_KEEP 1
#define Z3_LOGITS_RECOMPUTE 2
#define Z3_LOGITS_MOST \
    ((uint64_t)256     \
     << 20) /* size up to which `auto` keeps the logits, in bytes */

/* Values of [train.zero3]. */
typedef struct z3_config {
    double beta1;
    double beta2;
    double eps;
    double weight_decay;
    int64_t stage;             /* 0 to 3; on one rank all are alike */
    int64_t offload_optimizer; /* Z3_OFFLOAD_* */
    int64_t offload_param;     /* Z3_OFFLOAD_*; only with stage 3 */
    int64_t head_logits;       /* Z3_LOGITS_* */
    const char *offload_dir;   /* NULL or "": the system's temporary folder */
    const char *deepspeed_config; /* NULL or "": none */
    uint32_t gradient_checkpointing;
    uint32_t prefetch;
} z3_config;

/* ---- ranks -------------------------------------------------------------- */

typedef struct z3_record {
    uint64_t squares[XRAY_SQUARES_WORDS]; /* of the gradients' shares */
    uint32_t first; /* index of the first parameter that is not finite;
                     * UINT32_MAX: none */
    int32_t code;
} z3_record;
#define Z3_MAX_RANKS 1024u

typedef struct z3_group {
    const xray_device_ops *device;
    void *device_self;
    const xray_comm_ops *comm;
    xray_comm_group *group;
    xray_stream *stream;  /* where collectives run; NULL on one rank */
    xray_event *computed; /* end of the computation that collectives wait for */
    xray_event *moved; /* end of the collectives that computation waits for */
    float *records;    /* [dev] [size + 1], the last one is this rank's own */
    z3_record *all;    /* [size] on the host */
    uint32_t rank;
    uint32_t size;
} z3_group;

xray_status z3_group_open(const xray_setup *setup, const char *owner,
                          xr_err *err, z3_group *out);
void z3_group_close(z3_group *group);
/* Returns the bytes of `records` in a group of `size` ranks. */
uint64_t z3_group_bytes(uint32_t size);
/* Makes the collectives' stream wait for all computation so far. */
xray_status z3_group_wait_compute(const z3_group *group);
/* Makes computation wait for all collectives so far. */
xray_status z3_group_wait_collectives(const z3_group *group);
/* Gives every rank the records of all, in `all`. Waits for the device.
 * [collective] */
xray_status z3_group_exchange(const z3_group *group, const z3_record *mine);
/* Returns XRAY_OK if all ranks pass it, so that all of them go on or none does;
 * otherwise `mine`, or if that is XRAY_OK, the first other rank's error. `ctx`
 * is the group. [collective] */
xray_status z3_group_agree(void *ctx, xray_status mine, xr_err *err);

/* ---- host memory for offloaded values ---------------------------------- */

typedef struct z3_host_memory {
    void *data;
    uint64_t bytes;
} z3_host_memory;
/* Maps zeros from an unlinked file in `dir`. */
xray_status z3_host_memory_map_file(const char *dir, uint64_t bytes,
                                    xr_err *err, z3_host_memory *out);
/* Maps zeros without a file. */
xray_status z3_host_memory_map(uint64_t bytes, xr_err *err,
                               z3_host_memory *out);
void z3_host_memory_unmap(z3_host_memory *memory);

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
    const z3_group *group;
    z3_slot_table table;
    z3_gather_slot *slots;
    float **shares;      /* [bucket_count] */
    float *share_memory; /* [dev]; NULL: the shares are in host memory */
    z3_host_memory memory;
    xray_weight **handles; /* [matrix_count] */
    xray_tensor *tensors;  /* [param_count] */
    xray_weights view;     /* all tensors in full, in their slots */
    uint32_t backward_end; /* lowest bucket that a backward pass reads */
    uint32_t offloaded;
    uint32_t prefetch; /* 1: the next bucket is gathered while one is used */
    uint32_t reserved;
} z3_gather;

typedef struct z3 z3;
xray_status z3_gather_open(z3 *self, const z3_config *config, xr_err *err);
void z3_gather_close(z3 *self);
uint64_t z3_gather_bytes(const xm_layout *layout, const xm_config *model,
                         const z3_config *config, const xray_workload *load);
/* Gathers the bucket; computation that follows finds all its weights in its
 * slot. */
xray_status z3_gather_need(void *ctx, uint32_t bucket, int backward,
                           xr_err *err);
/* Marks all slots as stale after values have changed. */
void z3_gather_forget(z3_gather *gather);

/* ---- scattered gradients (stages 2 and 3) ------------------------------ */

typedef struct z3_reduce {
    z3_slot_table table;
    float **slots;      /* [table.slots] [dev] */
    xray_event **ready; /* [table.slots] the slot's gradients are scattered, it
                         * can be reused */
    float **shares;     /* [bucket_count] [dev] sums over ranks */
    float *part; /* [dev] receives the sum of one call; as large as the largest
                  * share */
    unsigned char *has_sum; /* [bucket_count] 1: the share holds a sum */
} z3_reduce;

xray_status z3_reduce_open(z3 *self, xr_err *err);
void z3_reduce_close(z3 *self);
uint64_t z3_reduce_bytes(const xm_layout *layout, const xm_config *model);
xray_status z3_reduce_begin(void *ctx, uint32_t bucket, xr_err *err);
xray_status z3_reduce_done(void *ctx, uint32_t bucket, xr_err *err);
xray_status z3_reduce_zero(z3 *self, xr_err *err);
/* Number of elements of `part`. */
uint64_t z3_reduce_part_count(const xm_layout *layout);

/* ---- the instance ------------------------------------------------------- */

/* Host arrays with one float per token: the outputs that the loss reads and the
 * gradients that it fills. */
typedef struct z3_tokens {
    float *logp;
    float *entropy;
    float *value;
    float *dlogp;
    float *dentropy;
    float *dvalue;
} z3_tokens;
#define Z3_TOKEN_ARRAYS 6u

/* How a configuration divides the model among a given number of ranks. */
typedef struct z3_sharding {
    uint32_t gathers;     /* weights are kept as shares and gathered */
    uint32_t scatters;    /* gradients are kept as shares */
    uint32_t all_moments; /* every rank has the moments of all elements */
    uint32_t reserved;
} z3_sharding;
z3_sharding z3_sharding_of(const z3_config *config, uint32_t ranks);

struct z3 {
    const xray_host *host;
    const xray_call_service *calls; /* or NULL */
    const xray_device_ops *device;
    void *device_self;
    char owner[32]; /* "train.zero3/actor" */
    xm_config model;
    xray_workload load;
    uint32_t trainable;
    uint32_t value_head;
    z3_sharding sharding;
    z3_group group;
    xm_layout *layout;
    xm_weights *weights; /* all elements, or only the shares where weights are
                          * gathered */
    z3_gather gather;
    xm_decoder *decoder;
    xm_space *space;
    xm_packer *packer;
    uint32_t export_at; /* index of the next part */
    uint32_t exporting;
    xray_weights export_part;
    /* NULL from here on unless trainable. */
    xm_grads *grads;
    z3_reduce reduce;
    uint32_t reduced; /* 1: the full gradients hold sums over ranks, on each
                       * rank at least those of its shares */
    uint32_t reserved;
    xm_adamw *adamw;
    z3_host_memory moments;
    float **update_data[2]; /* [bucket_count] weights, gradients */
    float **norm_data;      /* [bucket_count] gradients of this rank's shares */
    xray_tensor *grad_tensors;
    xray_weights grad_table;
    float *token_memory;
    z3_tokens tokens;
    z3_host_memory host_copies[XRAY_TAG_COUNT]; /* values of offloaded tags */
    char *offload_dir;
    uint32_t offloaded; /* bits 1 << tag of the tags that are offloaded now */
    uint32_t has_grads; /* 1: the gradients may hold values */
    uint64_t skipped;   /* steps skipped for a norm that was not finite */
};

/* Reports the sentence of a failure to the host and returns the status. Without
 * a sentence, whoever failed has reported it already. */
xray_status z3_report(const xray_host *host, xray_status status,
                      const char *where, const xr_err *err);

/* Allocates device memory for `count` floats of weights or gradients; nothing
 * for 0. */
xray_status z3_alloc_floats(const z3 *self, uint32_t tag, uint64_t count,
                            xr_err *err, float **out);

/* Reads the model's configuration and refuses what this backend cannot do. */
xray_status z3_check_setup(const z3_config *config, const xray_model *model,
                           const xray_world *world, const xray_workload *load,
                           xr_err *err, xm_config *out);
/* Creates the layout and sets its sharding; `from_layer` as in xray_setup. */
xray_status z3_create_layout(const xm_config *model, uint32_t value_head,
                             const xray_world *world, uint32_t from_layer,
                             xr_err *err, xm_layout **out);
uint32_t z3_space_flags(const z3_config *config, const xm_config *model,
                        const xray_workload *load);
xm_pack_limits z3_pack_limits(const xm_config *model,
                              const xray_workload *load);

/* Sums the full gradients over ranks where that is still to be done.
 * [collective] */
xray_status z3_sum_full_grads(z3 *self, xr_err *err);
xray_status z3_zero_grads(z3 *self, xr_err *err);
/* Prepares the gradients for another micro-batch to be added. */
xray_status z3_resume_full_grads(z3 *self, xr_err *err);

xray_status z3_plan(const xray_host *host, const void *config,
                    const xray_model *model, const xray_world *world,
                    const xray_workload *load, xray_plan *out);
xray_status z3_create(const xray_setup *setup, const void *config,
                      const xray_workload *load, void **out_self);
void z3_destroy(void *self);
const xray_weights *z3_weights(void *self);
const void *z3_extension(void *self, const char *id);
xray_status z3_save(void *self, const char *dir);
xray_status z3_load(void *self, const char *dir);
xray_status z3_forward(void *self, const xray_batch *const *batches,
                       uint32_t count, uint32_t outputs, xray_outputs *out);
xray_status z3_forward_backward(void *self, const xray_batch *const *batches,
                                uint32_t count, const xray_loss *loss);
xray_status z3_optimizer_step(void *self, double lr, double max_norm,
                              xray_step_result *out);
xray_status z3_export_begin(void *self);
xray_status z3_export_next(void *self, const xray_weights **out_part);
void z3_export_end(void *self);
xray_status z3_discard(void *ptr);

/* ---- offloaded memory -------------------------------------------------- */

#define Z3_BIT_WEIGHTS (1u << XRAY_TAG_WEIGHTS)
#define Z3_BIT_GRADS (1u << XRAY_TAG_GRADS)
#define Z3_BIT_MOMENTS (1u << XRAY_TAG_OPTIMIZER)
#define Z3_BITS_FORWARD (Z3_BIT_WEIGHTS | 1u << XRAY_TAG_ACTIVATIONS)
#define Z3_EVICTABLE (Z3_BITS_FORWARD | Z3_BIT_GRADS | Z3_BIT_MOMENTS)
xray_status z3_offload(void *self, uint32_t tag);
xray_status z3_onload(void *self, uint32_t tag);
/* Returns XRAY_E_STATE if one of the tags (bits) is offloaded. */
xray_status z3_check_resident(const z3 *self, uint32_t tags, xr_err *err);
void z3_offload_close(z3 *self);

#endif
