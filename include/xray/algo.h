/* SPDX-License-Identifier: Apache-2.0
 *
 * xray/algo.h - interface "xray.algo/0": an algorithm, which turns rewards into
 * a policy gradient.
 *
 * An algorithm has two halves. The driver's half runs once, sees all rows of a
 * step and may keep state between steps. The worker's half is pure: from a flat
 * context that the driver's half made it computes the gradient of one
 * micro-batch, and it may run in another process. A step calls:
 *
 *     prepare(self, batch, &sink);                 driver: advantages
 *     context(self, mini, &totals, bytes, ...);    driver: per mini-batch
 *     loss(bytes, size, &call, &sums);             worker: per micro-batch
 *     observe(self, names, values, count);         driver: the step's metrics
 *
 * All arrays are host memory with one float per token.
 */
#ifndef XRAY_ALGO_H
#define XRAY_ALGO_H

#include <xray/abi.h>
#include <xray/batch.h>
#include <xray/host.h>
#include <xray/train.h>

#define XRAY_IFACE_ALGO "xray.algo/0"

/* The needs of an algorithm, which the run meets. */
/* clang-format off */
#define XRAY_NEED_CRITIC 1u        /* a value model that is trained, too */
#define XRAY_NEED_REFERENCE 2u     /* batch->ref_logp */
#define XRAY_NEED_GREEDY 4u        /* batch->baseline */
#define XRAY_NEED_GROUPS 8u        /* more than one sample per prompt */
#define XRAY_NEED_MINI_FORWARD 16u /* `select`, called with current log-probs */
#define XRAY_NEED_ENTROPY 32u      /* the loss reads the entropy */
#define XRAY_NEED_VALUE_HEAD 64u   /* a value head on the policy itself, which
                                    * batch->value comes from and dvalue goes
                                    * to */
/* clang-format on */

typedef struct xray_needs {
    xray_header header;
    uint32_t flags;
    uint32_t reserved;
} xray_needs;

/* Totals of a mini-batch, over all ranks. */
typedef struct xray_totals {
    xray_header header;
    uint64_t rows;         /* rows that have a token in the loss */
    double tokens;         /* sum of loss_mask */
    uint64_t max_response; /* most tokens that a response may have in the run */
} xray_totals;

/* Running totals of the loss's metrics; a metric is sum / weight. Each array
 * has one entry per name of `metric_names`. The totals are carried from one
 * micro-batch to the next, and the loss adds to them token by token, so their
 * bits do not depend on how rows are split into micro-batches. */
typedef struct xray_metric_sums {
    xray_header header;
    double *sum;
    double *weight;
    uint64_t count;
} xray_metric_sums;

/* Takes metrics that the core logs. */
typedef struct xray_metric_sink {
    xray_header header;
    void *ctx;
    /* Sets the metric `name`, such as "critic/kl_coef". The name is copied.
     * [control] */
    void (*put)(void *ctx, const char *name, double value);
} xray_metric_sink;

typedef struct xray_algo_ops {
    xray_header header;

    /* Creates an instance. `config` is the filled struct of options, valid as
     * long as the instance. On failure *out_self is not written. [control] */
    xray_status (*create)(const xray_host *host, const void *config,
                          void **out_self);
    void (*destroy)(void *self); /* accepts NULL [control] */
    /* Says what the algorithm needs with these options. [control] */
    xray_status (*needs)(void *self, xray_needs *out);

    /* Turns scores into advantages, once per step for all of its rows. Inputs:
     * batch->reward, which holds a row's score on its last response token, or
     * per-token rewards where a reward gives them; old_logp, ref_logp, value.
     * Outputs: batch->reward with the KL penalty subtracted, and advantage and
     * returns of the tokens whose loss_mask is 1; both arrays are set and zero
     * before the call. `metrics` and its `put` are never NULL. [control] */
    xray_status (*prepare)(void *self, xray_batch *batch,
                           const xray_metric_sink *metrics);

    /* Writes the context of one mini-batch, at most `cap` bytes, to `out` and
     * its size to *out_size. If `cap` is too small it returns XRAY_E_RANGE and
     * the size, and the core calls again with that much, up to 1 GiB. [control]
     */
    xray_status (*context)(void *self, const xray_batch *mini,
                           const xray_totals *totals, void *out, uint64_t cap,
                           uint64_t *out_size);

    /* The names of the loss's metrics: a list of at most 1024 that ends with
     * NULL and lives as long as the instance. The list itself is never NULL.
     * [control] */
    const char *const *(*metric_names)(void *self);

    /* Computes dL/dlogp, dL/dH and dL/dv of a micro-batch and adds its metrics
     * to `sums`. Pure: it has no instance, and the same inputs give the same
     * bits. If it fails, call->host takes the reason. [any] [no-alloc] */
    xray_status (*loss)(const void *context, uint64_t size,
                        const xray_loss_call *call, xray_metric_sums *sums);

    /* Members from here on are optional: test them with XRAY_HAS. */

    /* Chooses the groups of a new batch that are worth training on. keep[g] = 0
     * drops group g, and the core samples another prompt for it. [control] */
    xray_status (*accept)(void *self, const xray_batch *batch, uint32_t groups,
                          uint32_t *keep);

    /* With XRAY_NEED_MINI_FORWARD: edits the context of a mini-batch once the
     * current log-probs of all its tokens are known, for estimators that pick
     * tokens across the mini-batch. [control] */
    xray_status (*select)(void *self, const xray_batch *mini, const float *logp,
                          void *context, uint64_t size);

    /* Shows the algorithm the metrics of a step, after its updates. [control]
     */
    xray_status (*observe)(void *self, const char *const *names,
                           const double *values, uint64_t count);

    /* The state that an algorithm keeps between steps, for checkpoints. `save`
     * writes it as `context` does; `load` takes what `save` wrote. An algorithm
     * without state leaves both NULL. [control] */
    xray_status (*save)(void *self, void *out, uint64_t cap,
                        uint64_t *out_size);
    xray_status (*load)(void *self, const void *data, uint64_t size);

    /* Finds an extension by its id, such as XRAY_ALGO_PRESETS; NULL if there is
     * none. [any] */
    const void *(*extension)(void *self, const char *id);

    /* With XRAY_NEED_CRITIC: computes dL/dv of a micro-batch of the critic, as
     * `loss` does for the policy. call->value and call->dvalue are set,
     * call->logp is not. The context is the mini-batch's, and the metrics are
     * added to the same totals. [any] [no-alloc] */
    xray_status (*critic_loss)(const void *context, uint64_t size,
                               const xray_loss_call *call,
                               xray_metric_sums *sums);
} xray_algo_ops;

/* Optional extension of an algorithm, for `xray algo list`: the published
 * variants that it knows as presets, and the options in which they differ. For
 * this id `extension` accepts self NULL. */
#define XRAY_ALGO_PRESETS "xray.algo.presets/0"

typedef struct xray_algo_presets {
    xray_header header;
    uint32_t columns;          /* 1 to 1024; the first is the preset's name */
    uint32_t rows;             /* at most 1024 */
    const char *const *titles; /* [columns] */
    const char *const *cells;  /* [rows * columns], row by row; none is NULL */
} xray_algo_presets;

#endif
