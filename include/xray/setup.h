/* SPDX-License-Identifier: Apache-2.0
 *
 * xray/setup.h - what trainers and engines are created with: a model, the
 * ranks that hold it, a device, and how much work to expect.
 */
#ifndef XRAY_SETUP_H
#define XRAY_SETUP_H

#include <xray/abi.h>
#include <xray/comm.h>
#include <xray/device.h>
#include <xray/host.h>

/* A model as the core knows it: a directory, and the few numbers that a model
 * of any kind has. The host owns the strings; they live as long as the
 * instance. */
typedef struct xray_model {
    xray_header header;
    const char *path;        /* directory with the weights; NULL: none */
    const char *config_json; /* text of the model's config.json */
    uint32_t dtype;          /* element type of the computation: XRAY_F32 */
    uint32_t vocab_size;
    uint32_t max_positions;
    uint32_t random_init; /* 1: draw the weights from `seed`, read none */
    uint64_t seed;
} xray_model;

/* The ranks that together hold one model. `plan` is asked for rank 0 and gets
 * no comm. */
typedef struct xray_world {
    xray_header header;
    uint32_t rank;
    uint32_t size;
    const xray_comm_ops *comm; /* NULL when size is 1 */
    void *comm_self;
    xray_comm_group *group; /* all of these ranks, in their order */
} xray_world;

/* One tensor of a published layout, under its Hugging Face name. A shard holds
 * the elements [first, first + count) of the row-major global tensor. */
typedef struct xray_tensor {
    const char *name;
    uint32_t dtype;
    uint32_t dims;
    uint64_t shape[4];
    uint64_t first;
    uint64_t count;
    void *data;                /* device memory of the shard */
    const xray_weight *weight; /* matrix handle that contains it, or NULL */
    uint64_t weight_row;       /* its first row in that handle */
} xray_tensor;

/* The weights that an instance publishes when it is created. The table never
 * changes; the values do, with every update. An engine on the same device may
 * read them where they lie:
 *
 *     weights->lease(weights->owner);    before the first request
 *     ...                                the values stand still
 *     weights->release(weights->owner);  after the last; updates go on
 */
typedef struct xray_weights {
    xray_header header;
    uint32_t tensor_count;
    uint32_t tensor_stride; /* sizeof(xray_tensor) */
    const xray_tensor *tensors;
    const xray_device_ops *device; /* the device whose memory `data` is */
    void *device_self;
    void *owner;
    /* The number of updates that led to the values. [control] */
    uint64_t (*version)(void *owner);
    /* Keeps the values as they are: an update fails with XRAY_E_STATE until
     * `release` was called as often as `lease`. [control] */
    xray_status (*lease)(void *owner);
    void (*release)(void *owner);
} xray_weights;

#define XRAY_ROLE_ACTOR 1u
#define XRAY_ROLE_REFERENCE 2u
#define XRAY_ROLE_CRITIC 3u
#define XRAY_ROLE_ROLLOUT 4u
#define XRAY_ROLE_REWARD 5u

/* Everything that an instance is created with. */
typedef struct xray_setup {
    xray_header header;
    const xray_host *host;
    const xray_device_ops *device;
    void *device_self;
    const xray_model *model;
    const xray_world *world;
    const xray_weights *weights;   /* infer: weights to share; NULL: own copy */
    uint32_t role;                 /* XRAY_ROLE_* */
    uint32_t trainable;            /* train: 0: allocate no gradients */
    uint32_t trainable_from_layer; /* train: the blocks below this one are
                                    * frozen, and if it is above 0 the embedding
                                    * is, too */
    uint32_t reserved;
} xray_setup;

/* The largest amount of work that an instance must be ready for. */
typedef struct xray_workload {
    xray_header header;
    uint64_t tokens;     /* train: most tokens in one micro-batch */
    uint64_t rows;       /* train: most rows in one micro-batch; infer: most
                          * sequences at once */
    uint64_t row_tokens; /* most tokens in one row, prompt and response */
    uint32_t outputs;    /* train: XRAY_OUTPUT_* */
    uint32_t trainable;
    uint32_t shared; /* infer: 1: the weights are the trainer's */
    uint32_t threads;
    uint32_t trainable_from_layer; /* as in xray_setup */
    uint32_t reserved;
} xray_workload;

/* The needs of an instance. `plan` fills it without touching a device, and
 * explains through host->fail why a set-up cannot work. */
typedef struct xray_plan {
    xray_header header;
    uint64_t bytes[XRAY_TAG_COUNT]; /* per memory tag, on each rank */
    uint64_t
        micro_multiple; /* the micro-batches of a step must be a multiple */
    uint64_t
        token_multiple; /* the tokens of a micro-batch must be a multiple */
    uint32_t evictable; /* bit 1 << tag: offload or sleep frees that tag */
    uint32_t sharded;   /* train: 1: no rank holds all weights, so an engine
                         * beside it must keep a copy of its own */
} xray_plan;

#endif
