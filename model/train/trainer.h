/* SPDX-License-Identifier: Apache-2.0
 *
 * Trains a decoder with AdamW over flat buckets: what training backends share.
 * A backend's instance begins with an xm_trainer. It says which part of the
 * model this rank computes and which ranks divide its buckets, and hooks into
 * what it does in its own way. Most functions of its table are those below.
 *
 * Gradients are sums over micro-batches in full buckets, which are summed over
 * the ranks once, when the sums are first needed or already in the last pass,
 * unless the backend's hooks keep shares of them.
 */
#ifndef XM_TRAIN_TRAINER_H
#define XM_TRAIN_TRAINER_H

#include <xray/train.h>

#include "core/base/services.h"
#include "model/nn/join.h"
#include "model/train/adamw.h"
#include "model/train/flow.h"
#include "model/train/folds.h"
#include "model/train/group.h"
#include "model/train/host_memory.h"
#include "model/train/pack.h"

/* Values of head_logits. */
#define XM_TRAINER_LOGITS_AUTO 0
#define XM_TRAINER_LOGITS_KEEP 1
#define XM_TRAINER_LOGITS_RECOMPUTE 2

/* The backward pass computes again the outputs of norms and of the MLP's
 * activation, everything but the inputs of blocks, or nothing. */
#define XM_TRAINER_RECOMPUTE_SELECTIVE 0
#define XM_TRAINER_RECOMPUTE_FULL 1
#define XM_TRAINER_RECOMPUTE_NONE 2

/* The options that all backends have. */
typedef struct xm_trainer_options {
    xm_host_folder folder; /* of offloaded values, and the options' section,
                            * "train.NAME", which outlives the instance */
    double beta1;
    double beta2;
    double eps;
    double weight_decay;
    int64_t head_logits;      /* XM_TRAINER_LOGITS_* */
    int64_t recompute;        /* XM_TRAINER_RECOMPUTE_* */
    uint32_t offload_moments; /* 1: the moments are in host memory */
    uint32_t all_moments;     /* 1: each rank has the moments of all elements */
    uint32_t overlap;  /* 1: full gradients are summed over ranks while the
                        * last backward pass of a call goes on */
    uint32_t sequence; /* 1: the ranks of a slice divide the tokens along the
                        * residual stream */
    uint32_t stages;   /* of the pipeline; 0 and 1: the model is one */
    uint32_t stage;    /* of this rank */
} xm_trainer_options;

/* Host arrays with one float per token: the outputs that the loss reads and the
 * gradients that it fills. */
typedef struct xm_trainer_tokens {
    float *logp;
    float *entropy;
    float *value;
    float *dlogp;
    float *dentropy;
    float *dvalue;
} xm_trainer_tokens;

typedef struct xm_trainer xm_trainer;
typedef struct xm_block_visit xm_block_visit;

/* A micro-batch between its forward and its backward pass. */
typedef struct xm_flight {
    xm_space *space;
    xm_packer *packer;
    xm_packed packed;
    xm_token_outputs heads; /* of the last stage */
} xm_flight;

/* The hooks in which backends differ. Any may be NULL. */
typedef struct xm_trainer_hooks {
    /* Create `weights` that hold only shares, and set `table`; free them. NULL:
     * the rank has all elements of its layout. */
    xray_status (*open_weights)(xm_trainer *self, xr_err *err);
    void (*close_weights)(xm_trainer *self);
    /* The shares have changed. */
    void (*forget)(xm_trainer *self);
    /* Create `grads` without buckets, and `grad_shares`; free and clear them.
     * NULL: the rank has all buckets. */
    xray_status (*open_grads)(xm_trainer *self, xr_err *err);
    void (*close_grads)(xm_trainer *self);
    xray_status (*zero_grads)(xm_trainer *self, xr_err *err);
    /* Gives part number `part` of an export, some tensors in full, or XRAY_END.
     * NULL: an export has one part, which is the published table. */
    xray_status (*export_part)(xm_trainer *self, uint32_t part, xr_err *err,
                               const xray_weights **out);
    /* Visit the device memory that other hooks allocated with a tag, and the
     * matrices whose packed copies are in it. */
    void (*visit_blocks)(const xm_trainer *self, uint32_t tag,
                         xm_block_visit *visit);
    xray_status (*visit_handles)(const xm_trainer *self,
                                 xray_status (*fn)(void *device,
                                                   xray_weight *weight));
    xm_watch watch; /* of the decoder; `ctx`, `calls`, `join` and `parts` are
                     * set */
} xm_trainer_hooks;

struct xm_trainer {
    /* Set by the backend, before xm_trainer_open. */
    xm_config model; /* what this rank computes */
    xm_trainer_hooks hooks;
    xray_subgroup data;     /* the ranks that divide the buckets: those of a
                             * context in each replica, in this order */
    xray_subgroup replicas; /* those of them with the same place in a replica */
    xray_subgroup tensor;   /* the ranks of a slice; size 0: not a slice */
    xray_subgroup kv;       /* those of them that have the same KV heads */
    xray_subgroup context;  /* the ranks that divide rows (model.context_ranks),
                             * which are among those of `data` */
    xray_subgroup stages;   /* the ranks that have the model's other layers, of
                             * which each has the rank of its stage */
    /* Set by xm_trainer_open. */
    const xray_host *host;
    const xray_call_service *calls; /* or NULL */
    const xray_device_ops *device;
    void *device_self;
    char owner[32]; /* "train.NAME/actor" */
    xray_workload load;
    uint32_t trainable;
    uint32_t value_head;
    uint32_t all_moments;
    uint32_t overlap;
    xm_group group;
    xm_join join;        /* of slices */
    uint32_t from_layer; /* of the model, the first that is trained */
    uint32_t chunks;     /* of this rank's stage */
    uint32_t flight_count;
    xm_flow flow;     /* of the last call */
    uint32_t *places; /* [place_cap] its micro-batches in the schedule */
    size_t place_cap;
    xm_layout *layout;
    xm_layout *whole;    /* of all stages: of files, and the order of tensors */
    xm_weights *weights; /* all elements, or only shares */
    const xray_weights *table; /* what the decoder computes with */
    xm_decoder *decoder;
    xm_flight *flights;     /* [flight_count] */
    xray_tensor *tensors;   /* of `published` */
    xray_weights published; /* the weights' table, and tensors without data
                             * for those that others publish */
    uint32_t export_at;     /* index of the next part */
    uint32_t exporting;
    xm_host_folder folder; /* `dir` is the instance's own */
    char *offload_dir;
    /* NULL from here on unless trainable. */
    xm_grads *grads;
    float **grad_shares; /* [bucket_count] [dev]; NULL: `grads` has all */
    uint32_t reduced;    /* 1: the full gradients hold sums over ranks, on each
                          * rank at least those of its shares */
    uint32_t ends;       /* 1: the pass is the last one of a call */
    uint32_t has_grads;  /* 1: the gradients may hold values */
    xm_folds folds;
    xm_adamw *adamw;
    xm_host_memory moments;
    float **update_data[2]; /* [bucket_count] weights, gradients */
    float **norm_data;      /* [bucket_count] gradients of this rank's shares */
    xray_tensor *grad_tensors;
    xray_weights grad_table;
    float *token_memory;
    xm_trainer_tokens tokens;
    xm_host_memory host_copies[XRAY_TAG_COUNT]; /* values of offloaded tags */
    uint32_t offloaded; /* bits 1 << tag of the tags that are offloaded now */
    uint64_t skipped;   /* steps skipped for a norm that was not finite */
};

/* ---- for a backend's plan and create ------------------------------------- */

/* Reports the sentence of a failure to the host and returns the status. Without
 * a sentence, whoever failed has reported it already. */
xray_status xm_trainer_report(const xray_host *host, xray_status status,
                              const char *where, const xr_err *err);
/* Reads the model's configuration and refuses what no backend can do. */
xray_status xm_trainer_check(const char *section, const xray_model *model,
                             const xray_world *world, const xray_workload *load,
                             xr_err *err, xm_config *out);
/* Creates the layout, divided among `ranks`; `from_layer` as in xray_setup. */
xray_status xm_trainer_create_layout(const xm_config *model,
                                     uint32_t value_head,
                                     const xray_subgroup *data,
                                     uint32_t from_layer, xr_err *err,
                                     xm_layout **out);
/* Plans an instance without shares among `ranks` of the world. */
xray_plan xm_trainer_plan(const xm_trainer_options *options,
                          const xm_config *model, const xm_layout *layout,
                          const xray_workload *load, uint32_t ranks);

/* Creates the parts of an instance, which xm_trainer_close frees, also those of
 * one that could not be opened. [collective] */
xray_status xm_trainer_open(xm_trainer *self, const xm_trainer_options *options,
                            const xray_setup *setup, const xray_workload *load,
                            xr_err *err);
void xm_trainer_close(xm_trainer *self);

/* ---- for its hooks ------------------------------------------------------- */

/* Where the sum of the present segment waits: the bucket, or number
 * xm_folds_lookups, in a spare share, or
 * NULL for that of all segments, which goes to the gradients. */
float *xm_folds_spare(const xm_trainer *self, uint32_t bucket);
/* Adds the full branches before the present segment to its sum `data`. */
xray_status xm_folds_add_spares(const xm_trainer *self, xray_stream *stream,
                                uint32_t bucket, float *data);
/* Allocates device memory for `count` floats of weights or gradients; nothing
 * for 0. */
xray_status xm_trainer_alloc_floats(const xm_trainer *self, uint32_t tag,
                                    uint64_t count, xr_err *err, float **out);
/* Visits one allocation. Without `keep` its values are not needed between
 * calls. */
void xm_visit_block(xm_block_visit *visit, float *data, uint64_t count,
                    int keep);

/* ---- the functions of a backend's table ---------------------------------- */

const xray_weights *xm_trainer_weights(void *self);
const void *xm_trainer_extension(void *self, const char *id);
xray_status xm_trainer_save(void *self, const char *dir);
xray_status xm_trainer_load(void *self, const char *dir);
xray_status xm_trainer_forward(void *self, const xray_batch *const *batches,
                               uint32_t count, uint32_t outputs,
                               xray_outputs *out);
xray_status xm_trainer_forward_backward(void *self,
                                        const xray_batch *const *batches,
                                        uint32_t count, const xray_loss *loss);
xray_status xm_trainer_optimizer_step(void *self, double lr, double max_norm,
                                      xray_step_result *out);
xray_status xm_trainer_export_begin(void *self);
xray_status xm_trainer_export_next(void *self, const xray_weights **out_part);
void xm_trainer_export_end(void *self);
xray_status xm_trainer_discard(void *self);
xray_status xm_trainer_offload(void *self, uint32_t tag);
xray_status xm_trainer_onload(void *self, uint32_t tag);

/* The tags that an instance can offload. */
#define XM_TRAINER_BIT_WEIGHTS (1u << XRAY_TAG_WEIGHTS)
#define XM_TRAINER_BIT_GRADS (1u << XRAY_TAG_GRADS)
#define XM_TRAINER_BIT_MOMENTS (1u << XRAY_TAG_OPTIMIZER)
#define XM_TRAINER_BITS_FORWARD \
    (XM_TRAINER_BIT_WEIGHTS | 1u << XRAY_TAG_ACTIVATIONS)
#define XM_TRAINER_EVICTABLE \
    (XM_TRAINER_BITS_FORWARD | XM_TRAINER_BIT_GRADS | XM_TRAINER_BIT_MOMENTS)

/* The members of a component's table that are the same in every backend. A
 * backend whose ranks can gather the entire model also has the exports. */
#define XM_TRAINER_CALLS                                                  \
    .weights = xm_trainer_weights, .forward = xm_trainer_forward,         \
    .forward_backward = xm_trainer_forward_backward,                      \
    .optimizer_step = xm_trainer_optimizer_step, .save = xm_trainer_save, \
    .load = xm_trainer_load, .extension = xm_trainer_extension,           \
    .discard = xm_trainer_discard, .offload = xm_trainer_offload,         \
    .onload = xm_trainer_onload

/* The options that every backend has, of members of the same names. */
#define XM_TRAINER_ADAMW(config)                                               \
    XRAY_REAL(config, beta1, "0.9", 0, 0.999999, NULL, 0u, "0.1",              \
              "AdamW: decay of the mean of gradients."),                       \
        XRAY_REAL(config, beta2, "0.999", 0, 0.99999999, NULL, 0u, "0.1",      \
                  "AdamW: decay of the mean of squared gradients."),           \
        XRAY_REAL(config, eps, "1e-8", 1e-30, 1, NULL, 0u, "0.1",              \
                  "AdamW: added to the root of the mean square."),             \
        XRAY_REAL(config, weight_decay, "0.01", 0, 10, NULL, 0u, "0.1",        \
                  "AdamW: decoupled decay, times the learning rate. Matrices " \
                  "decay, norms and biases do not.")
#define XM_TRAINER_HEAD_LOGITS(config, choices)                         \
    XRAY_CHOICE(                                                        \
        config, head_logits, "auto", choices, 0u, "0.1",                \
        "Whether a micro-batch's logits are kept between the loss and " \
        "its gradient; the bits are the same.")
#define XM_TRAINER_OFFLOAD_DIR(config)                                     \
    XRAY_PATH(                                                             \
        config, offload_dir, "", 0, "0.1",                                 \
        "Folder of the files that offloading to the host maps on the cpu " \
        "device; empty: TMPDIR, or /tmp.")

#endif
