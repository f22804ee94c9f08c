/* SPDX-License-Identifier: Apache-2.0
 *
 * xray/algo.h - interface "xray.algo/0": turns rewards into a policy gradient.
 *
 * Two halves. The driver half sees the whole batch of a step on one host and
 * may keep state. The worker half is pure: it gets a flat context made by the
 * driver and answers for one micro-batch; it may run in another process.
 * Everything is plain host memory, one float a token.
 */
#ifndef XRAY_ALGO_H
#define XRAY_ALGO_H

#include <xray/abi.h>
#include <xray/batch.h>
#include <xray/host.h>
#include <xray/train.h>

#define XRAY_IFACE_ALGO "xray.algo/0"

#define XRAY_NEED_CRITIC 1u        /* a value model and its updates */
#define XRAY_NEED_REFERENCE 2u     /* batch->ref_logp */
#define XRAY_NEED_GREEDY 4u        /* batch->baseline */
#define XRAY_NEED_GROUPS 8u        /* more than one sample a prompt */
#define XRAY_NEED_MINI_FORWARD 16u /* `select` wants current log-probs */
#define XRAY_NEED_ENTROPY 32u      /* the loss reads the entropy */
#define XRAY_NEED_VALUE_HEAD                       \
    64u /* the policy has a value head of its own: \
         * batch->value is its, and so is dvalue */

typedef struct xray_needs {
    xray_header header;
    uint32_t flags;
    uint32_t reserved;
} xray_needs;

/* Totals of a mini-batch, over all ranks. */
typedef struct xray_totals {
    xray_header header;
    uint64_t rows;         /* rows with a token in the loss */
    double tokens;         /* sum of loss_mask */
    uint64_t max_response; /* longest response a run may give, in tokens */
} xray_totals;

/* A running total the loss adds to: mean = sum / weight. The arrays hold one
 * entry a name of `metric_names`; they are carried from micro-batch to
 * micro-batch, and the loss adds token by token, so their bits do not depend
 * on the cut. */
typedef struct xray_metric_sums {
    xray_header header;
    double *sum;
    double *weight;
    uint64_t count;
} xray_metric_sums;

/* Sets a named number the core logs, "critic/kl_coef"; it copies the name.
 * [control] */
typedef struct xray_metric_sink {
    xray_header header;
    void *ctx;
    void (*put)(void *ctx, const char *name, double value);
} xray_metric_sink;

typedef struct xray_algo_ops {
    xray_header header;

    /* `config` is the filled option struct, valid for the instance's life. On
     * failure *out_self is untouched. [control] */
    xray_status (*create)(const xray_host *host, const void *config,
                          void **out_self);
    void (*destroy)(void *self); /* accepts NULL [control] */
    xray_status (*needs)(void *self, xray_needs *out);

    /* Once a step, all rows of it: score -> advantage. In: batch->reward (the
     * score of a row on its last response token, token rewards where given),
     * old_logp, ref_logp, value. Out: batch->reward (with KL taken off),
     * advantage and returns of tokens with loss_mask 1; both arrays are there
     * and zeroed before the call. `metrics` and its `put` are never NULL.
     * [control] */
    xray_status (*prepare)(void *self, xray_batch *batch,
                           const xray_metric_sink *metrics);

    /* The context of one mini-batch, at most `cap` bytes into `out`; its size
     * goes to *out_size (XRAY_E_RANGE if cap is too small, with the size; up
     * to 1 GiB is taken). [control] */
    xray_status (*context)(void *self, const xray_batch *mini,
                           const xray_totals *totals, void *out, uint64_t cap,
                           uint64_t *out_size);

    /* Names the loss's metrics, ends with NULL, constant; at most 1024 names,
     * the list itself is never NULL. [any] */
    const char *const *(*metric_names)(void);

    /* dL/dlogp (and dL/dH, dL/dv) of a micro-batch; adds to `sums`. Pure: no
     * instance, same input, same bits out. [any] [no-alloc] */
    xray_status (*loss)(const void *context, uint64_t size,
                        const xray_loss_call *call, xray_metric_sums *sums);

    /* Optional from here on. */

    /* Which groups of a fresh batch are worth training on: keep[g] = 0 drops
     * group g, and the core draws another prompt. [control] */
    xray_status (*accept)(void *self, const xray_batch *batch, uint32_t groups,
                          uint32_t *keep);

    /* Given current log-probs of the whole mini-batch, edits its context (and
     * its loss_mask-sized marks) for estimators that pick tokens across it. */
    xray_status (*select)(void *self, const xray_batch *mini, const float *logp,
                          void *context, uint64_t size);

    /* After the updates of a step: its metrics by name. [control] */
    xray_status (*observe)(void *self, const char *const *names,
                           const double *values, uint64_t count);

    /* State between steps, at most `cap` bytes, its size to *out_size
     * (XRAY_E_RANGE if cap is too small, with the size; up to 1 GiB is taken);
     * load takes what save gave. A plugin without state leaves them NULL.
     * [control] */
    xray_status (*save)(void *self, void *out, uint64_t cap,
                        uint64_t *out_size);
    xray_status (*load)(void *self, const void *data, uint64_t size);

    /* Finds an extension, "xray.algo.presets/0". NULL if none. [any] */
    const void *(*extension)(void *self, const char *id);

    /* With XRAY_NEED_CRITIC: dL/dv of a micro-batch of the critic, as `loss`
     * (call->value and call->dvalue are set, call->logp is not); the context is
     * the mini-batch's. Adds to the same metrics. [any] [no-alloc] */
    xray_status (*critic_loss)(const void *context, uint64_t size,
                               const xray_loss_call *call,
                               xray_metric_sums *sums);
} xray_algo_ops;

/* Optional extension "xray.algo.presets/0" of an algorithm: which published
 * variants it knows and where they differ, for `xray algo list`. extension()
 * answers for this id with self NULL too. [any] */
#define XRAY_ALGO_PRESETS "xray.algo.presets/0"

typedef struct xray_algo_presets {
    xray_header header;
    uint32_t columns;          /* 1 to 1024; the first is the preset's name */
    uint32_t rows;             /* at most 1024 */
    const char *const *titles; /* [columns] */
    const char *const *cells;  /* [rows * columns], row by row; none is NULL */
} xray_algo_presets;

#endif
