/* SPDX-License-Identifier: Apache-2.0
 *
 * xray/train.h - interface "xray.train/0": holds a model, computes per-token
 * outputs of packed rows, folds gradients, steps the optimizer.
 *
 * States: created -> [forward | forward_backward ... optimizer_step] ->
 * destroyed. Calls come from one thread. In a world of several ranks every rank
 * makes the same calls with as many micro-batches (empty ones are legal), each
 * with the rows of its own. An error of class -2xx or worse leaves
 * the instance fit for `destroy` only.
 */
#ifndef XRAY_TRAIN_H
#define XRAY_TRAIN_H

#include <xray/abi.h>
#include <xray/batch.h>
#include <xray/host.h>
#include <xray/setup.h>

#define XRAY_IFACE_TRAIN "xray.train/0"

/* Bit masks: which heads a model has, which outputs a call wants. */
#define XRAY_OUTPUT_LOGP 1u
#define XRAY_OUTPUT_ENTROPY 2u
#define XRAY_OUTPUT_VALUE 4u

/* Per-token outputs, caller's storage, [tokens] of the batch each; entries that
 * were not asked for or whose token has nothing before it are 0. */
typedef struct xray_outputs {
    xray_header header;
    float *logp;    /* log p(token) at the row's temperature */
    float *entropy; /* nats, of the distribution the token came from */
    float *value;
} xray_outputs;

/* What the loss is shown and what it answers. Everything is host memory of
 * `batch->tokens` floats; entries with loss_mask 0 are neither valid nor read.
 */
typedef struct xray_loss_call {
    xray_header header;
    const xray_batch *batch; /* the micro-batch, whole rows */
    uint32_t first_row;      /* its first row's index in the mini-batch */
    uint32_t reserved;
    const float *logp;
    const float *entropy; /* NULL unless asked for */
    const float *value;   /* NULL without a value head */
    float *dlogp;         /* out, zeroed before the call */
    float *dentropy;      /* out, zeroed; NULL unless asked for */
    float *dvalue;        /* out, zeroed; NULL without a value head */
} xray_loss_call;

/* The only callback. Returns dL/dlogp, dL/dH, dL/dv per token, divided by the
 * mini-batch's global denominators: the backend only sums, so the loss cannot
 * depend on how rows are cut into micro-batches. Must not re-enter the
 * backend. Called once a micro-batch, in row order. */
typedef struct xray_loss {
    xray_header header;
    void *ctx;
    xray_status (*fn)(void *ctx, const xray_loss_call *call);
    uint32_t outputs; /* XRAY_HEAD_* the loss reads */
    uint32_t reserved;
} xray_loss;

/* What a step did. */
typedef struct xray_step_result {
    xray_header header;
    double grad_norm; /* before clipping */
    uint32_t skipped; /* 1: the norm is not finite, nothing was changed */
    uint32_t reserved;
    uint64_t version;       /* updates behind the weights, now */
    const char *bad_tensor; /* skipped: first tensor with a NaN or Inf, else
                             * NULL; valid until the next call */
} xray_step_result;

typedef struct xray_train_ops {
    xray_header header;

    /* Pure, touches no device. What cannot work is refused through host->fail
     * with XRAY_E_CONFIG. [any] */
    xray_status (*plan)(const xray_host *host, const void *config,
                        const xray_model *model, const xray_world *world,
                        const xray_workload *load, xray_plan *out);

    /* `load` bounds every later call: buffers are laid out once. On failure
     * *out_self is untouched. [control] [may-block] */
    xray_status (*create)(const xray_setup *setup, const void *config,
                          const xray_workload *load, void **out_self);
    void (*destroy)(void *self); /* accepts NULL */

    /* The published tensors; live as long as the instance. */
    const xray_weights *(*weights)(void *self);

    /* Per-token outputs of `batch`, which fits `load`. `outputs` says which
     * pointers of `out` to fill. With batch->loss_mask set, only tokens with a
     * mask other than 0 are filled, the rest is 0; with NULL, all are. */
    xray_status (*forward)(void *self, const xray_batch *batch,
                           uint32_t outputs, xray_outputs *out);

    /* Adds the gradients of all micro-batches of a mini-batch. `batches` is an
     * array of pointers; together they are the rows of the mini-batch in
     * order; an empty micro-batch (rows 0) is legal. A loss that fails fails
     * the call with its status; after a failure of class -1xx the gradients are
     * cleared and the instance goes on. */
    xray_status (*forward_backward)(void *self,
                                    const xray_batch *const *batches,
                                    uint32_t count, const xray_loss *loss);

    /* Clips to `max_norm` (<= 0: no clipping), steps, clears the gradients. */
    xray_status (*optimizer_step)(void *self, double lr, double max_norm,
                                  xray_step_result *out);

    /* Writes model.safetensors (HF names; config.json and tokenizer are the
     * core's) and what a resume needs into the existing folder `dir`; reads it
     * back. All ranks call it with one folder, each writes and reads its own
     * ranges. Formats do not depend on the layout. [may-block] */
    xray_status (*save)(void *self, const char *dir);
    xray_status (*load)(void *self, const char *dir);

    /* Optional from here on. */

    /* Copies in tensors by HF name from `from`: its values become this
     * instance's. Used for weights that are not shared. */
    xray_status (*import)(void *self, const xray_weights *from);

    /* Moves memory of a tag (XRAY_TAG_*) off the device, and back with the
     * same bits; what holds nothing between calls (activations) is only given
     * back. Addresses stay. Calls that use a tag that is away fail with
     * XRAY_E_STATE; weights under a lease stay. Each rank for itself. What is
     * away or there already stays so. [may-block] */
    xray_status (*offload)(void *self, uint32_t tag);
    xray_status (*onload)(void *self, uint32_t tag);

    /* Gradients as they stand, by HF name: data of the table is fp32 memory of
     * the instance. For tests and for norms by tensor. */
    const xray_weights *(*gradients)(void *self);

    /* Finds an extension by id. NULL if none. [any] */
    const void *(*extension)(void *self, const char *id);

    /* The whole model's values, part after part, for whoever keeps a copy: each
     * part holds full tensors, is device memory of the instance and valid until
     * the next call; XRAY_END after the last. All ranks call these alike.
     * [collective] */
    xray_status (*export_begin)(void *self);
    xray_status (*export_next)(void *self, const xray_weights **out_part);
    void (*export_end)(void *self);

    /* Drops the gradients, as after a failed call. */
    xray_status (*discard)(void *self);
} xray_train_ops;

#endif
