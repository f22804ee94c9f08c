/* SPDX-License-Identifier: Apache-2.0
 *
 * xray/train.h - interface "xray.train/0": a training backend. It holds a
 * model, computes per-token outputs of packed rows, adds up gradients and steps
 * the optimizer.
 *
 * One step of a run, for a policy that is trained on two mini-batches:
 *
 *     forward(self, micro, 6, XRAY_OUTPUT_LOGP, &out);     old log-probs
 *     forward_backward(self, micro, 3, &loss);             mini-batch 1
 *     optimizer_step(self, 1e-6, 1.0, &result);
 *     forward_backward(self, micro + 3, 3, &loss);         mini-batch 2
 *     optimizer_step(self, 1e-6, 1.0, &result);
 *
 * In a world of several ranks every rank makes the same calls with the same
 * number of micro-batches. The ranks of one replica get the same rows, and each
 * replica has rows of its own; a micro-batch may be empty. After an error of
 * class -2xx or worse the only legal call is `destroy`.
 */
#ifndef XRAY_TRAIN_H
#define XRAY_TRAIN_H

#include <xray/abi.h>
#include <xray/batch.h>
#include <xray/host.h>
#include <xray/setup.h>

#define XRAY_IFACE_TRAIN "xray.train/0"

/* Bit masks of outputs: those a model can give, and those a call asks for. */
#define XRAY_OUTPUT_LOGP 1u
#define XRAY_OUTPUT_ENTROPY 2u
#define XRAY_OUTPUT_VALUE 4u

/* Per-token outputs. Each array is the caller's and holds one entry per token
 * of the batch. The entries of a row's first token are 0. */
typedef struct xray_outputs {
    xray_header header;
    float *logp;    /* log p(token) at the row's temperature */
    float *entropy; /* of the distribution that the token came from, in nats */
    float *value;
} xray_outputs;

/* The inputs and results of one call of the loss. Every array is host memory of
 * `batch->tokens` floats. Entries whose loss_mask is 0 are not valid as inputs
 * and are ignored as results. */
typedef struct xray_loss_call {
    xray_header header;
    const xray_batch *batch; /* the micro-batch; it never splits a row */
    const float *logp;
    const float *entropy; /* NULL unless asked for */
    const float *value;   /* NULL without a value head */
    float *dlogp;         /* out, zeroed before the call */
    float *dentropy;      /* out, zeroed; NULL unless asked for */
    float *dvalue;        /* out, zeroed; NULL without a value head */
    /* The algorithm's host, so that a loss that fails can say why:
     * return call->host->fail(call->host, XRAY_E_NUMERIC, "loss", "...").
     * The core sets it; a backend leaves it NULL. */
    const xray_host *host;
} xray_loss_call;

/* The loss, the only function that a backend calls back. */
typedef struct xray_loss {
    xray_header header;
    void *ctx;
    /* Computes dL/dlogp, dL/dH and dL/dv of each token, already divided by the
     * denominators of the whole mini-batch over all ranks. The backend only
     * adds, so the loss cannot depend on how the rows are split into
     * micro-batches. Called once per micro-batch, in the order of the rows, by
     * the thread that called forward_backward. It must not call the backend.
     * [control] */
    xray_status (*fn)(void *ctx, const xray_loss_call *call);
    uint32_t outputs; /* XRAY_OUTPUT_* that the loss reads */
    uint32_t reserved;
} xray_loss;

/* The result of one optimizer step. */
typedef struct xray_step_result {
    xray_header header;
    double grad_norm; /* before clipping */
    uint32_t skipped; /* 1: the norm is not finite, so no weight was changed */
    uint32_t reserved;
    uint64_t version;       /* number of updates made to the weights so far */
    const char *bad_tensor; /* skipped: the first tensor that has a NaN or Inf;
                             * else NULL; valid until the next call */
} xray_step_result;

/* Optional extension of an instance, for tests and tools that look into it. */
#define XRAY_EXT_TRAIN_DEBUG "xray.train.debug/0"

typedef struct xray_train_debug {
    xray_header header;
    /* The gradients as they are now, under Hugging Face names; the table points
     * to fp32 memory of the instance. NULL if there are none. [collective]
     * [may-block] */
    const xray_weights *(*gradients)(void *self);
    /* Copies the values of the tensors in `from`, matched by name, into this
     * instance. [collective] [may-block] */
    xray_status (*import)(void *self, const xray_weights *from);
} xray_train_debug;

typedef struct xray_train_ops {
    xray_header header;

    /* Says what an instance would need. Pure: it touches no device. It refuses
     * what cannot work with XRAY_E_CONFIG and a reason through host->fail.
     * [any] */
    xray_status (*plan)(const xray_host *host, const void *config,
                        const xray_model *model, const xray_world *world,
                        const xray_workload *load, xray_plan *out);

    /* Creates an instance. No later call exceeds `load`, so buffers can be laid
     * out once. On failure *out_self is not written. [collective] [may-block]
     */
    xray_status (*create)(const xray_setup *setup, const void *config,
                          const xray_workload *load, void **out_self);
    /* Frees the instance; waits for no other rank. Accepts NULL. [control] */
    void (*destroy)(void *self);

    /* The published tensors, which live as long as the instance. [control] */
    const xray_weights *(*weights)(void *self);

    /* Computes per-token outputs of `count` micro-batches, each of which fits
     * `load`. `outputs` says which arrays of `out` to fill; they hold the
     * tokens of all micro-batches, one after the other. Where batch->loss_mask
     * is set, entries whose mask is 0 become 0; where it is NULL, all entries
     * are computed. Only the rank that answers (xray_plan.answers) must fill
     * them. [collective] [may-block] */
    xray_status (*forward)(void *self, const xray_batch *const *batches,
                           uint32_t count, uint32_t outputs, xray_outputs *out);

    /* Adds the gradients of all micro-batches of a mini-batch. `batches` points
     * to `count` micro-batches that together hold the mini-batch's rows in
     * order; one of 0 rows is legal. With segments (xray_workload) none has
     * rows of two of them, they ascend, one without a micro-batch is empty, and
     * a mini-batch is one call. If the loss fails, the call fails with its
     * status. After a failure of class -1xx the gradients are cleared and the
     * instance stays usable. [collective] [may-block] */
    xray_status (*forward_backward)(void *self,
                                    const xray_batch *const *batches,
                                    uint32_t count, const xray_loss *loss);

    /* Clips the gradients to `max_norm` (0 or less: no clipping), updates the
     * weights, and clears the gradients. After XRAY_E_CANCELED the weights are
     * undefined. [collective] [may-block] */
    xray_status (*optimizer_step)(void *self, double lr, double max_norm,
                                  xray_step_result *out);

    /* `save` writes model.safetensors under Hugging Face names, and what a
     * resume needs, into the existing folder `dir`; the core adds config.json
     * and the tokenizer. One that is canceled leaves no incomplete file. `load`
     * reads both back; after XRAY_E_CANCELED the weights are undefined. All
     * ranks name the same folder, and each writes and reads its own ranges. The
     * files do not depend on the number of ranks. [collective] [may-block] */
    xray_status (*save)(void *self, const char *dir);
    xray_status (*load)(void *self, const char *dir);

    /* Members from here on are optional: test them with XRAY_HAS. */

    /* `offload` moves the memory of one tag (XRAY_TAG_*) off the device, and
     * `onload` moves it back with the same bits; activations, which hold
     * nothing between calls, are freed and allocated again. Addresses do not
     * change. A call that needs an offloaded tag fails with XRAY_E_STATE, and
     * so does the offload of weights under a lease. Offloading twice, or
     * onloading what is on the device, does nothing. Each rank does this on its
     * own. [control] [may-block] */
    xray_status (*offload)(void *self, uint32_t tag);
    xray_status (*onload)(void *self, uint32_t tag);

    /* Finds an extension by its id, XRAY_EXT_TRAIN_*; NULL if there is none.
     * [any] */
    const void *(*extension)(void *self, const char *id);

    /* Hand out the values of the entire model in parts, to an engine that keeps
     * a copy. The parts have every element once, in boxes in device memory of
     * the instance; each is valid until the next call. After the last part
     * `export_next` returns XRAY_END:
     *
     *     export_begin(self);
     *     while (export_next(self, &part) == XRAY_OK)
     *         engine->update(engine_self, part, version);
     *     export_end(self);
     *
     * [collective] [may-block] */
    xray_status (*export_begin)(void *self);
    xray_status (*export_next)(void *self, const xray_weights **out_part);
    void (*export_end)(void *self);

    /* Clears the gradients without a step, as after a failed call of another
     * rank. [control] */
    xray_status (*discard)(void *self);
} xray_train_ops;

#endif
