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

/* One axis of a layout of ranks, such as the tensor-parallel one. */
typedef struct xray_axis {
    const char *name; /* XRAY_AXIS_*, or the backend's own */
    uint32_t size;    /* number of ranks along it */
    uint32_t reserved;
} xray_axis;

/* The names of axes in the field: tensor, context, pipeline and data parallel.
 * XRAY_AXIS_DATA is the core's: it runs over the replicas. */
#define XRAY_AXIS_TENSOR "tp"
#define XRAY_AXIS_CONTEXT "cp"
#define XRAY_AXIS_PIPELINE "pp"
#define XRAY_AXIS_DATA "dp"
#define XRAY_AXIS_REPLICA "replica" /* all ranks of one replica */

#define XRAY_AXES 8u /* the most axes of a plan */

/* The backward pass computes nothing of a block again, or these parts. */
#define XRAY_RECOMPUTE_NONE 0u
#define XRAY_RECOMPUTE_SELECTIVE 1u /* norms and activations */
#define XRAY_RECOMPUTE_FULL 2u      /* all of it */

/* The ranks that differ from this one along one axis only, itself included.
 * Sub-groups that consist of the same ranks, or of all ranks of the world, may
 * have the same group. */
typedef struct xray_subgroup {
    const char *name;       /* of the axis; XRAY_AXIS_DATA; XRAY_AXIS_REPLICA */
    xray_comm_group *group; /* NULL if its size is 1, and for `plan` */
    uint32_t rank;          /* of this rank along the axis */
    uint32_t size;
} xray_subgroup;

/* The ranks that hold one model: replicas of `width` ranks, one after the
 * other, of which each holds the model once. A backend says in xray_plan which
 * axes span a replica; the core makes the groups. `plan` is asked for every
 * rank and gets neither comm nor groups.
 *
 * The world of an engine is its replica alone: `size` is the width, and the
 * sub-group XRAY_AXIS_DATA has one rank. For `plan`, which decides the width,
 * it is all ranks of the role. */
typedef struct xray_world {
    xray_header header;
    uint32_t rank;
    uint32_t size;
    const xray_comm_ops *comm; /* NULL when size is 1 */
    void *comm_self;
    xray_comm_group *group; /* all of these ranks, in their order */
    /* [size] the number of each of these ranks in the run, ascending; NULL: 0
     * to size - 1. */
    const uint32_t *global_ranks;
    const xray_subgroup *subgroups; /* one per axis, data, replica */
    uint32_t subgroup_count;        /* 0 for `plan` */
    uint32_t subgroup_stride;       /* sizeof(xray_subgroup) */
} xray_world;

/* A box of one tensor of a published layout, under the tensor's Hugging Face
 * name: the elements whose index along each axis is lo to lo + extent - 1. The
 * indices are those of the global tensor, which is row-major and of `shape`,
 * whichever ranks hold it. Of [6, 4], for instance:
 *
 *     all of it                lo 0 0, extent 6 4, stride 4 1
 *     the right half           lo 0 2, extent 6 2, stride 2 1
 *     k in a fused matrix      all of k; data and stride are the matrix's
 *     rows padded to 16 bytes  the stride says it: storage may be larger
 *     rows 1 to 3, in full     lo 1 0, extent 3 4, stride 4 1
 *     nothing                  extent 0 0, data NULL
 *
 * Arrays have one entry per axis, of which there are `dims`; further entries
 * are 0. <xray/box.h> has functions for boxes. */
typedef struct xray_tensor {
    const char *name;
    uint32_t dtype;
    uint32_t dims; /* at most 4; 0: a single number */
    uint64_t shape[4];
    uint64_t lo[4];
    uint64_t extent[4]; /* one of 0: the box is empty */
    /* Elements from an index to the next along each axis. The last axis has 1:
     * the elements of a row lie side by side. */
    uint64_t stride[4];
    void *data; /* device memory of element lo; NULL if the box is empty */
    /* A matrix handle whose rows, from weight_row on, are those of a box of two
     * dimensions, with the same data; NULL: none. */
    const xray_weight *weight;
    uint64_t weight_row;
} xray_tensor;

/* The weights that an instance publishes when it is created. A table may list
 * several boxes of one tensor, one directly after the other, which must not
 * overlap and have one type. Tables of different ranks may list the same box.
 *
 * The table never changes; the values do, with every update. An engine on the
 * same device may read them where they lie:
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
    /* 1: the boxes are kept in host memory, and only an export of the trainer
     * brings their values to the device. */
    uint32_t offloaded;
    uint32_t reserved;
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
    uint32_t shared;               /* infer: 1: the weights are the trainer's */
    uint32_t trainable_from_layer; /* as in xray_setup */
    /* The device of the instance and its options, whose plan_weight and
     * plan_kv_block a plan calls; NULL: not known, so that a plan leaves out
     * what the device takes for itself. */
    const xray_device_ops *device;
    const void *device_config;
    /* `plan` fills it with the largest work that the instance gives its device.
     * All users of a device share its scratch memory, so the core plans it for
     * all of their work together. NULL: nobody asks, as in `create`. */
    xray_device_work *device_work;
    /* train: a mini-batch comes in this many segments, a power of two that the
     * replicas divide (XRAY_SEGMENTS_*); 0: undivided. */
    uint32_t segments;
    uint32_t prompt_tokens; /* infer: most tokens of a prompt; 0: not known */
} xray_workload;

/* How a training backend adds up the gradients of S segments of a mini-batch:
 * those of a segment in the order of its rows, beginning with 0, and those of
 * the segments, empty ones included, as one balanced binary tree over S in
 * which neighbours are added first. So the sum is the same, bit for bit, on any
 * number N of replicas that divides S. With XRAY_SEGMENTS_IN_RUNS replica r has
 * the segments from r S / N to (r + 1) S / N - 1, of any number of
 * micro-batches each. With XRAY_SEGMENTS_IN_TURN it has r, r + N, r + 2 N and
 * so on, and a segment is at most one micro-batch. */
#define XRAY_SEGMENTS_IN_RUNS 1u
#define XRAY_SEGMENTS_IN_TURN 2u

/* The needs of an instance on the rank that was asked for. `plan` fills it
 * without touching a device, and explains through host->fail why a set-up
 * cannot work. 0 is neutral in every member. */
typedef struct xray_plan {
    xray_header header;
    /* Per memory tag, on this rank; without the scratch memory of the device.
     */
    uint64_t bytes[XRAY_TAG_ROOM];
    /* The number of micro-batches of a step must be a multiple of it; the core
     * adds empty ones. */
    uint64_t micro_multiple;
    /* The number of tokens of a micro-batch must be a multiple of it; the core
     * adds rows of padding at its end, none longer than row_tokens of the
     * workload, whose ids and loss_mask are 0 and whose row_index is
     * XRAY_NO_ROW. An empty micro-batch stays empty. */
    uint64_t token_multiple;
    uint32_t evictable; /* bit 1 << tag: offload or sleep frees that tag */
    uint32_t sharded;   /* train: 1: no rank holds all weights, so an engine
                         * beside it must keep a copy of its own */
    /* The axes that span one replica, the fastest first: with tp 2 and pp 2 the
     * ranks 0 and 1 are the tensor-parallel pair of the first stage. The width
     * of a replica is the product of their sizes and divides the ranks of the
     * role. Every rank must plan the same axes. */
    const xray_axis *axes;
    uint32_t axis_count;  /* 0: a replica is one rank */
    uint32_t axis_stride; /* sizeof(xray_axis) */
    /* The rank of a replica whose outputs, samples and sums count, from 0 to
     * width - 1. */
    uint32_t answers;
    uint32_t segments; /* train: XRAY_SEGMENTS_*; 0: it knows no segments */
    /* Id of the numerics contract that the instance keeps with these options;
     * NULL: the one that its component names. */
    const char *numerics;
    /* train: how the instance computes, from which the core predicts times. */
    uint32_t recompute; /* XRAY_RECOMPUTE_* */
    uint32_t sequence;  /* 1: the ranks that share each layer divide the tokens
                         * between the layers */
    uint32_t chunks;    /* parts of the model that each stage has, one after the
                         * other; 0: one */
    uint32_t reserved;
    /* train: bytes of the optimizer's state that are offloaded to host memory,
     * which `bytes` leaves out. */
    uint64_t offloaded;
} xray_plan;

#endif
