/* SPDX-License-Identifier: Apache-2.0
 *
 * xray/setup.h - what a plugin that computes is told when it is created.
 */
#ifndef XRAY_SETUP_H
#define XRAY_SETUP_H

#include <xray/abi.h>
#include <xray/comm.h>
#include <xray/device.h>
#include <xray/host.h>

/* A model as the core knows it: a directory and the few numbers that every
 * kind of model has. Strings are owned by the host, valid for the instance. */
typedef struct xray_model {
    xray_header header;
    const char *path;        /* directory with weights; NULL: none */
    const char *config_json; /* text of config.json */
    uint32_t dtype;          /* XRAY_F32: what weights are computed in */
    uint32_t vocab_size;
    uint32_t max_positions;
    uint32_t random_init; /* 1: weights drawn from `seed`, none are read */
    uint64_t seed;
} xray_model;

/* The ranks that hold a model together. A plan is asked with rank 0 and without
 * comm. */
typedef struct xray_world {
    xray_header header;
    uint32_t rank;
    uint32_t size;
    const xray_comm_ops *comm; /* NULL when size is 1 */
    void *comm_self;
    xray_comm_group *group; /* of all these ranks, in order */
} xray_world;

/* One tensor of a published layout, by its Hugging Face name. A shard covers
 * elements [first, first + count) of the row-major global tensor. */
typedef struct xray_tensor {
    const char *name;
    uint32_t dtype;
    uint32_t dims;
    uint64_t shape[4];
    uint64_t first;
    uint64_t count;
    void *data;                /* device memory of the shard */
    const xray_weight *weight; /* matmul handle that covers it, or NULL */
    uint64_t weight_row;       /* its first row in that handle */
} xray_tensor;

/* A set of weights published at create; the table does not change, the values
 * do. `version` is the number of optimizer steps behind the values. */
typedef struct xray_weights {
    xray_header header;
    uint32_t tensor_count;
    uint32_t tensor_stride; /* sizeof(xray_tensor) */
    const xray_tensor *tensors;
    const xray_device_ops *device; /* whose memory `data` is */
    void *device_self;
    void *owner;
    /* Number of updates the values have behind them. [control] */
    uint64_t (*version)(void *owner);
    /* Holds the values still: an update under a lease fails with
     * XRAY_E_STATE. Leases count. [control] */
    xray_status (*lease)(void *owner);
    void (*release)(void *owner);
} xray_weights;

#define XRAY_ROLE_ACTOR 1u
#define XRAY_ROLE_REFERENCE 2u
#define XRAY_ROLE_CRITIC 3u
#define XRAY_ROLE_ROLLOUT 4u
#define XRAY_ROLE_REWARD 5u

typedef struct xray_setup {
    xray_header header;
    const xray_host *host;
    const xray_device_ops *device;
    void *device_self;
    const xray_model *model;
    const xray_world *world;
    const xray_weights *weights;   /* infer: weights to share, NULL: own copy */
    uint32_t role;                 /* XRAY_ROLE_* */
    uint32_t trainable;            /* train: 0 allocates no gradients */
    uint32_t trainable_from_layer; /* train: blocks below it, and the embedding
                                    * if it is above 0, are frozen */
    uint32_t reserved;
} xray_setup;

/* How much work an instance must be ready for. */
typedef struct xray_workload {
    xray_header header;
    uint64_t tokens;     /* train: most tokens in one micro-batch */
    uint64_t rows;       /* train: most rows in one; infer: most sequences */
    uint64_t row_tokens; /* longest row, prompt and response */
    uint32_t outputs;    /* train: XRAY_OUTPUT_* */
    uint32_t trainable;
    uint32_t shared; /* infer: weights are the trainer's */
    uint32_t threads;
    uint32_t trainable_from_layer; /* as in xray_setup */
    uint32_t reserved;
} xray_workload;

/* What an instance would take. Filled by `plan`, which touches no device; what
 * cannot work it refuses through host->fail. */
typedef struct xray_plan {
    xray_header header;
    uint64_t bytes[XRAY_TAG_COUNT]; /* by memory tag, on each rank */
    uint64_t micro_multiple;        /* micro-batches in a step: a multiple */
    uint64_t token_multiple;        /* tokens of a micro-batch: a multiple */
    uint32_t evictable; /* bit 1 << tag: offload or sleep takes it away */
    uint32_t sharded;   /* train: 1: an engine beside it has to keep a copy of
                         * the weights */
} xray_plan;

#endif
