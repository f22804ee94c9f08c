/* SPDX-License-Identifier: Apache-2.0
 *
 * Predicts the time of a training step, of a forward pass and of a rollout from
 * the shapes of a decoder, a layout of ranks and the figures of a machine.
 * Pure arithmetic; docs/time.md has the formulas.
 */
#ifndef XR_STEP_TIME_H
#define XR_STEP_TIME_H

#include <xray/setup.h>

#include "core/run/machine.h"
#include "model/hf/config.h"

/* A time is a sum of terms, in seconds. */
enum {
    XR_TIME_PRODUCTS,  /* matrix products that arithmetic bounds */
    XR_TIME_ATTENTION, /* scores and values */
    XR_TIME_MEMORY,    /* products, caches and elements that memory bounds */
    XR_TIME_AGAIN,     /* what the backward pass computes again */
    XR_TIME_TENSOR,    /* collectives of the tensor-parallel ranks */
    XR_TIME_CONTEXT,   /* collectives of the context-parallel ranks */
    XR_TIME_PIPELINE,  /* the bubble, and messages between stages */
    XR_TIME_DATA,      /* gradients and weights among the replicas, as far as
                        * nothing hides them */
    XR_TIME_UPDATE,    /* the optimizer */
    XR_TIME_HOST,      /* starts of kernels, and the host's work */
    XR_TIME_WEIGHTS,   /* weights on their way to the engines */
    XR_TIMES
};
typedef struct xr_times {
    double of[XR_TIMES];
} xr_times;

double xr_times_sum(const xr_times *times);
/* Returns the number of the largest term, and says in words what it is. */
int xr_times_largest(const xr_times *times);
const char *xr_times_bound(const xr_times *times);
void xr_times_add(xr_times *to, const xr_times *from, double factor);

/* The ranks along an axis: their number, and how far apart the numbers of
 * neighbours are, from which follows how many of them share a node. */
typedef struct xr_time_axis {
    uint32_t size; /* at least 1 */
    uint32_t stride;
} xr_time_axis;

typedef struct xr_time_layout {
    xr_time_axis tensor;
    xr_time_axis context;
    xr_time_axis pipeline;
    xr_time_axis data;
    uint32_t chunks;       /* parts of the model on each stage; at least 1 */
    uint32_t sequence;     /* 1: tensor-parallel ranks divide the tokens */
    uint32_t zero;         /* 0 to 3: optimizer, gradients and weights shared */
    uint32_t again;        /* XRAY_RECOMPUTE_* */
    uint32_t sum_bytes;    /* of an element of a sum over ranks */
    uint32_t grad_bytes;   /* of an element of a gradient */
    uint32_t weight_bytes; /* of a weight that is gathered */
} xr_time_layout;

typedef struct xr_time_model {
    const xm_config *config; /* of the entire model; dtype is set */
    const xr_machine *machine;
    const xr_time_layout *layout;
} xr_time_model;

/* A replica computes micro-batches of `tokens`, in rows of `row` tokens. */
typedef struct xr_time_work {
    double tokens;
    double row;
    double micro_batches;
} xr_time_work;

/* Seconds of an update: passes forward and back over all micro-batches, joins
 * of gradients, optimizer, gathering of weights. */
xr_times xr_time_update(const xr_time_model *model, const xr_time_work *work);
/* Seconds of forward passes without gradients. */
xr_times xr_time_forward(const xr_time_model *model, const xr_time_work *work);

/* One engine samples `rows` rows, at most `batch` at once. */
typedef struct xr_time_rollout {
    double rows;
    double batch;
    double prompt;   /* tokens of a prompt */
    double prompts;  /* prompts that are computed, each once */
    double response; /* tokens of a response */
} xr_time_rollout;
xr_times xr_time_sample(const xr_time_model *model,
                        const xr_time_rollout *work);

/* Seconds in which a replica's ranks write their weights to the host's memory
 * and an engine of `width` ranks reads them. */
xr_times xr_time_publish(const xr_time_model *model, double width);

/* FLOPs that a token of a row of `row` tokens needs in a forward pass, with
 * attention as it is computed; times 3 for an update. */
double xr_time_flops(const xm_config *config, double row);

/* Seconds in which the ranks of a group exchange `bytes` so that each has all
 * of them (all-gather) or its share of their sum (reduce-scatter). */
double xr_time_collective(const xr_machine *machine, const xr_time_axis *axes,
                          size_t count, double bytes);

#endif
