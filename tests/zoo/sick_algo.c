/* SPDX-License-Identifier: Apache-2.0
 *
 * Implements faults of an algorithm. With SICK=algo-state it works and has a
 * state that every step changes and that the advantages depend on, as an
 * adaptive KL controller does.
 */
#include <math.h>
#include <string.h>

#include "tests/zoo/sick.h"

static const xray_algo_ops *base;
static const xray_host *host;  /* host of the only instance */
static double coefficient = 1; /* one instance per process */

static xray_status algo_create(const xray_host *given, const void *config,
                               void **out_self)
{
    host = given;
    return base->create(given, config, out_self);
}

/* Checks what the ABI promises about a batch. */
static xray_status check_promises(const xray_batch *batch,
                                  const xray_metric_sink *metrics)
{
    if (!metrics || !metrics->put)
        return host->fail(host, XRAY_E_BUG, "prepare", "no sink came");
    for (uint32_t t = 0; t < batch->tokens; t++)
        if (batch->advantage[t] != 0 || batch->returns[t] != 0)
            return host->fail(host, XRAY_E_BUG, "prepare",
                              "advantage or returns came with values");
    return XRAY_OK;
}

static xray_status algo_prepare(void *self, xray_batch *batch,
                                const xray_metric_sink *metrics)
{
    xray_status promised = check_promises(batch, metrics);
    if (promised != XRAY_OK)
        return promised;
    if (sick_now("algo-metric"))
        metrics->put(metrics->ctx, NULL, 1);
    xray_status status = base->prepare(self, batch, metrics);
    if (status != XRAY_OK)
        return status;
    for (uint32_t t = 0; t < batch->tokens && sick_is("algo-state"); t++)
        batch->advantage[t] *= (float)coefficient;
    if (sick_is("algo-state")) {
        metrics->put(metrics->ctx, "zoo/coefficient", coefficient);
        coefficient *= 1.01 + 1e-3 * (double)batch->reward[batch->tokens - 1];
    }
    if (sick_now("algo-advantage"))
        batch->advantage[batch->tokens - 1] = INFINITY;
    return XRAY_OK;
}

static xray_status algo_loss(const void *context, uint64_t size,
                             const xray_loss_call *call, xray_metric_sums *sums)
{
    xray_status status = base->loss(context, size, call, sums);
    if (sick_now("algo-loss-wait"))
        sick_wait();
    xray_status held = sick_hold(host, "algo-loss-hold");
    if (held != XRAY_OK)
        return held;
    if (sick_now("algo-loss-silent"))
        return XRAY_E_RANGE;
    if (sick_now("algo-loss-odd"))
        return 7;
    if (sick_now("algo-loss-says"))
        return host->fail(host, XRAY_E_NUMERIC, "loss", "the ratio is 1e9");
    if (sick_now("algo-gradient"))
        call->dlogp[call->batch->tokens - 1] = NAN;
    return status;
}

/* Returns sizes that are wrong or impossible. */
static xray_status algo_context(void *self, const xray_batch *mini,
                                const xray_totals *totals, void *out,
                                uint64_t cap, uint64_t *out_size)
{
    xray_status status = base->context(self, mini, totals, out, cap, out_size);
    if (sick_now("algo-context-over"))
        *out_size = UINT64_C(64) << 20;
    if (sick_now("algo-context-absurd")) {
        *out_size = UINT64_MAX / 2;
        return XRAY_E_RANGE;
    }
    /* Grows once, and is then longer than it announced. */
    if (sick_now("algo-context-grows")) {
        *out_size = cap < 5000 ? 5000 : 5001;
        return cap < 5000 ? XRAY_E_RANGE : XRAY_OK;
    }
    return status;
}

static xray_status algo_save(void *self, void *out, uint64_t cap,
                             uint64_t *out_size)
{
    (void)self;
    *out_size = sizeof(coefficient);
    if (sick_is("algo-save-absurd"))
        *out_size = UINT64_MAX - 1;
    if (sick_is("algo-save-over") && cap)
        *out_size = UINT64_C(64) << 20;
    if (cap < sizeof(coefficient))
        return XRAY_E_RANGE;
    memcpy(out, &coefficient, sizeof(coefficient));
    return XRAY_OK;
}

static xray_status algo_load(void *self, const void *data, uint64_t size)
{
    (void)self;
    if (size != sizeof(coefficient))
        return XRAY_E_ARG;
    memcpy(&coefficient, data, sizeof(coefficient));
    return XRAY_OK;
}

const xray_component *sick_algo(void)
{
    static xray_algo_ops ops;
    static xray_component component;
    if (!sick_wrapped("algo-grpo", &component))
        return NULL;
    base = component.ops;
    ops = *base;
    ops.create = algo_create;
    ops.prepare = algo_prepare;
    ops.context = algo_context;
    ops.accept = NULL; /* prepare then receives the rows as packed */
    ops.loss = algo_loss;
    ops.save = algo_save;
    ops.load = algo_load;
    component.name = "sick";
    component.ops = &ops;
    return &component;
}
