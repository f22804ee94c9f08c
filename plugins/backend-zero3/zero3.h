/* SPDX-License-Identifier: Apache-2.0
 *
 * What the files of backend-zero3 share.
 */
#ifndef Z3_ZERO3_H
#define Z3_ZERO3_H

#include <xray/train.h>

#include "model/train/adamw.h"
#include "model/train/pack.h"

/* Where offload_optimizer and offload_param put what they move. */
#define Z3_OFFLOAD_NONE 0
#define Z3_OFFLOAD_HOST 1

/* head_logits */
#define Z3_LOGITS_AUTO 0
#define Z3_LOGITS_KEEP 1
#define Z3_LOGITS_RECOMPUTE 2
#define Z3_LOGITS_MOST ((uint64_t)256 << 20) /* bytes that auto keeps */

/* Values of [train.zero3]. */
typedef struct z3_config {
    double beta1;
    double beta2;
    double eps;
    double weight_decay;
    int64_t stage;                /* 0 to 3; on one rank all are the same */
    int64_t offload_optimizer;    /* Z3_OFFLOAD_* */
    int64_t offload_param;        /* Z3_OFFLOAD_*; needs stage 3 */
    int64_t head_logits;          /* Z3_LOGITS_* */
    const char *offload_dir;      /* NULL or "": the temporary folder */
    const char *deepspeed_config; /* NULL or "": none */
    uint32_t gradient_checkpointing;
    uint32_t prefetch;
} z3_config;

/* ---- ranks -------------------------------------------------------------- */

#define Z3_WORD_BYTES 16u
typedef struct z3_word {
    double sum;
    uint32_t first; /* parameter, UINT32_MAX: none */
    int32_t code;
} z3_word;
#define Z3_MAX_RANKS 1024u

typedef struct z3_group {
    const xray_device_ops *device;
    void *device_self;
    const xray_comm_ops *comm;
    xray_comm_group *group;
    xray_stream *stream;  /* of collectives; NULL on one rank */
    xray_event *computed; /* what collectives wait for */
    xray_event *moved;    /* what computing waits for */
    float *words;         /* [dev] */
    z3_word *all;         /* [size] */
    uint32_t rank;
    uint32_t size;
} z3_group;

xray_status z3_group_open(const xray_setup *setup, const char *owner,
                          xr_err *err, z3_group *out);
void z3_group_close(z3_group *group);
uint64_t z3_group_bytes(uint32_t size);
/* The collectives' stream goes on behind what has been computed so far, and
 * computing behind the collectives so far. */
xray_status z3_group_behind(const z3_group *group);
xray_status z3_group_join(const z3_group *group);
/* Z3_WORD_BYTES of every rank, in rank order. Waits. [collective] */
xray_status z3_group_words(const z3_group *group, const void *mine, void *all);
/* XRAY_OK where all ranks give it. `ctx`: the group. [collective] */
xray_status z3_group_agree(void *ctx, xray_status mine, xr_err *err);

/* ---- host memory for what is offloaded ---------------------------------- */

typedef struct z3_map {
    void *data;
    uint64_t bytes;
} z3_map;
/* Zeros, in a file without a name in `dir`. */
xray_status z3_map_open(const char *dir, uint64_t bytes, xr_err *err,
                        z3_map *out);
/* The same in memory without a file. */
xray_status z3_map_memory(uint64_t bytes, xr_err *err, z3_map *out);
void z3_map_close(z3_map *map);

/* ---- weights that are gathered (stage 3) -------------------------------- */

#define Z3_NONE UINT32_MAX

/* Memory that buckets take turns in. */
typedef struct z3_turn {
    uint32_t slots;
    uint32_t reserved;
    uint32_t *slot_of; /* [bucket_count], Z3_NONE: has none */
    uint64_t *room;    /* [slots] elements */
} z3_turn;
/* `width` slots for the blocks from `from`, in turns; the embedding and the
 * last bucket share one unless `apart`. Both arrays go with z3_turn_free. */
xray_status z3_turn_make(const xm_layout *layout, uint32_t width, uint32_t from,
                         int apart, xr_err *err, z3_turn *out);
void z3_turn_free(z3_turn *turn);

/* Blocks whose weights are there at once: one is computed with while the next
 * one comes. */
#define Z3_GATHER_SLOTS 2u

typedef struct z3_slot {
    float *data; /* [dev] */
    uint32_t holds;
    uint32_t handle_count;
    xray_weight **handles;
    uint32_t *matrices; /* that the handles were made for */
    xray_event *ready;
} z3_slot;

typedef struct z3_gather {
    const xm_layout *layout;
    const z3_group *group;
    z3_turn turn;
    z3_slot *slots;
    float **shares;      /* [bucket_count] */
    float *share_memory; /* [dev]; NULL: in the map */
    z3_map map;
    xray_weight **handles; /* [matrix_count] */
    xray_tensor *tensors;  /* [param_count] */
    xray_weights view;     /* of all tensors, whole, where they are in turn */
    uint32_t back_to;      /* lowest bucket that a backward pass reads */
    uint32_t offloaded;
    uint32_t prefetch; /* 1: the next bucket comes while one is used */
    uint32_t reserved;
} z3_gather;

typedef struct z3 z3;
xray_status z3_gather_open(z3 *self, const z3_config *config, xr_err *err);
void z3_gather_close(z3 *self);
uint64_t z3_gather_bytes(const xm_layout *layout, const xm_config *model,
                         const z3_config *config, int trainable);
/* The bucket's weights are whole in its slot when computing goes on. */
xray_status z3_gather_need(void *ctx, uint32_t bucket, int backward,
                           xr_err *err);
/* Values changed: nothing that was gathered is of use. */
void z3_gather_forget(z3_gather *gather);

/* ---- gradients that are scattered (stages 2 and 3) ---------------------- */

typedef struct z3_reduce {
    z3_turn turn;
    float **slots;       /* [turn.slots] [dev] */
    xray_event **ready;  /* [turn.slots] scattered, free again */
    float **shares;      /* [bucket_count] [dev] sums */
    float *part;         /* [dev] the largest share */
    unsigned char *some; /* [bucket_count] 1: the share holds a sum */
} z3_reduce;

xray_status z3_reduce_open(z3 *self, xr_err *err);
void z3_reduce_close(z3 *self);
uint64_t z3_reduce_bytes(const xm_layout *layout, const xm_config *model);
xray_status z3_reduce_begin(void *ctx, uint32_t bucket, xr_err *err);
xray_status z3_reduce_done(void *ctx, uint32_t bucket, xr_err *err);
xray_status z3_reduce_zero(z3 *self, xr_err *err);
/* Elements of `part`. */
uint64_t z3_reduce_part(const xm_layout *layout);

/* ---- the instance ------------------------------------------------------- */

/* Host arrays of one float a token that the loss is shown and fills. */
typedef struct z3_tokens {
    float *logp;
    float *entropy;
    float *value;
    float *dlogp;
    float *dentropy;
    float *dvalue;
} z3_tokens;
#define Z3_TOKEN_ARRAYS 6u

/* What a configuration comes to with so many ranks. */
typedef struct z3_kind {
    uint32_t gathers;  /* weights live as shares and are gathered */
    uint32_t scatters; /* gradients live as shares */
    uint32_t whole;    /* moments are whole on every rank */
    uint32_t reserved;
} z3_kind;
z3_kind z3_kind_of(const z3_config *config, uint32_t ranks);

struct z3 {
    const xray_host *host;
    const xray_device_ops *device;
    void *device_self;
    char owner[32]; /* "train.zero3/actor" */
    xm_config model;
    xray_workload load;
    uint32_t trainable;
    uint32_t value_head;
    z3_kind kind;
    z3_group group;
    xm_layout *layout;
    xm_weights *weights; /* whole, or the shares where weights are gathered */
    z3_gather gather;
    xm_decoder *decoder;
    xm_space *space;
    xm_packer *packer;
    uint32_t export_at; /* the next part */
    uint32_t exporting;
    xray_weights export_part;
    /* NULL from here on unless trainable */
    xm_grads *grads;
    z3_reduce reduce;
    uint32_t reduced; /* 1: the whole gradients hold sums over ranks, each rank
                       * at least its shares */
    uint32_t reserved;
    xm_adamw *adamw;
    z3_map moments;
    float **at[2];   /* [bucket_count] weights and gradients of the update */
    float **norm_at; /* [bucket_count] gradients of the shares */
    xray_tensor *grad_tensors;
    xray_weights grad_table;
    float *token_memory;
    z3_tokens tokens;
    z3_map kept[XRAY_TAG_COUNT]; /* values of tags that are away, or were */
    char *offload_dir;
    uint32_t away;    /* 1 << tag */
    uint32_t folded;  /* 1: the gradients may hold something */
    uint64_t skipped; /* steps left out for a norm that is not finite */
};

/* Hands a sentence to the host and returns the status. Without a sentence who
 * failed has spoken already. */
xray_status z3_done(const xray_host *host, xray_status status,
                    const char *where, const xr_err *err);

/* Device memory for `count` floats of a tag, weights or gradients; none for
 * 0. */
xray_status z3_take(const z3 *self, uint32_t tag, uint64_t count, xr_err *err,
                    float **out);

/* The model of a configuration; refuses what this backend cannot do. */
xray_status z3_check(const z3_config *config, const xray_model *model,
                     const xray_world *world, const xray_workload *load,
                     xr_err *err, xm_config *out);
/* The layout with its cut; `from_layer` as in xray_setup. */
xray_status z3_layout(const xm_config *model, uint32_t value_head,
                      const xray_world *world, uint32_t from_layer, xr_err *err,
                      xm_layout **out);
uint32_t z3_space_flags(const z3_config *config, const xm_config *model,
                        const xray_workload *load);
xm_pack_limits z3_limits(const xm_config *model, const xray_workload *load);

/* Sums over ranks, where whole gradients wait for it. [collective] */
xray_status z3_settle(z3 *self, xr_err *err);
xray_status z3_clear(z3 *self, xr_err *err);
/* Before gradients are added to. */
xray_status z3_unsettle(z3 *self, xr_err *err);

xray_status z3_plan(const xray_host *host, const void *config,
                    const xray_model *model, const xray_world *world,
                    const xray_workload *load, xray_plan *out);
xray_status z3_create(const xray_setup *setup, const void *config,
                      const xray_workload *load, void **out_self);
void z3_destroy(void *self);
const xray_weights *z3_weights(void *self);
const xray_weights *z3_gradients(void *self);
xray_status z3_save(void *self, const char *dir);
xray_status z3_load(void *self, const char *dir);
xray_status z3_import(void *self, const xray_weights *from);
xray_status z3_forward(void *self, const xray_batch *batch, uint32_t outputs,
                       xray_outputs *out);
xray_status z3_forward_backward(void *self, const xray_batch *const *batches,
                                uint32_t count, const xray_loss *loss);
xray_status z3_optimizer_step(void *self, double lr, double max_norm,
                              xray_step_result *out);
xray_status z3_export_begin(void *self);
xray_status z3_export_next(void *self, const xray_weights **out_part);
void z3_export_end(void *self);
xray_status z3_discard(void *ptr);

/* ---- memory that is away ------------------------------------------------- */

#define Z3_BIT_WEIGHTS (1u << XRAY_TAG_WEIGHTS)
#define Z3_BIT_GRADS (1u << XRAY_TAG_GRADS)
#define Z3_BIT_MOMENTS (1u << XRAY_TAG_OPTIMIZER)
#define Z3_BITS_FORWARD (Z3_BIT_WEIGHTS | 1u << XRAY_TAG_ACTIVATIONS)
#define Z3_EVICTABLE (Z3_BITS_FORWARD | Z3_BIT_GRADS | Z3_BIT_MOMENTS)
xray_status z3_offload(void *self, uint32_t tag);
xray_status z3_onload(void *self, uint32_t tag);
/* XRAY_E_STATE if one of the tags (bits) is away. */
xray_status z3_present(const z3 *self, uint32_t tags, xr_err *err);
void z3_offload_close(z3 *self);

#endif
