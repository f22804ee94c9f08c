/* SPDX-License-Identifier: Apache-2.0
 *
 * With SICK=algo-state it is well, and has a state that every step changes and
 * that the advantages depend on: what an adaptive KL controller is to a resume.
 */
#include <math.h>
#include <string.h>

#include "tests/zoo/sick.h"

static const xray_algo_ops *base;
static double coefficient = 1; /* one instance a process */

static xray_status prepare(void *self, xray_batch *batch,
                           const xray_metric_sink *metrics)
{
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

static xray_status loss(const void *context, uint64_t size,
                        const xray_loss_call *call, xray_metric_sums *sums)
{
    xray_status status = base->loss(context, size, call, sums);
    if (sick_now("algo-gradient"))
        call->dlogp[call->batch->tokens - 1] = NAN;
    return status;
}

static xray_status save(void *self, void *out, uint64_t cap, uint64_t *out_size)
{
    (void)self;
    *out_size = sizeof(coefficient);
    if (cap < sizeof(coefficient))
        return XRAY_E_RANGE;
    memcpy(out, &coefficient, sizeof(coefficient));
    return XRAY_OK;
}

static xray_status load(void *self, const void *data, uint64_t size)
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
    ops.prepare = prepare;
    ops.loss = loss;
    ops.save = save;
    ops.load = load;
    component.name = "sick";
    component.ops = &ops;
    return &component;
}
