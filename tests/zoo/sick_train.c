/* SPDX-License-Identifier: Apache-2.0
 *
 * Implements faults of a training backend.
 */
#include <math.h>
#include <string.h>

#include "tests/zoo/sick.h"

static const xray_train_ops *base;
static const xray_loss *outer; /* the loss of the call in progress */

/* Returns the index of the last token in the loss. */
static uint32_t find_last_token(const xray_batch *batch)
{
    uint32_t t = batch->tokens - 1;
    while (t && batch->loss_mask[t] == 0)
        t--;
    return t;
}

static xray_status train_forward(void *self, const xray_batch *batch,
                                 uint32_t outputs, xray_outputs *out)
{
    xray_status status = base->forward(self, batch, outputs, out);
    if (status == XRAY_OK && sick_now("train-logp"))
        out->logp[find_last_token(batch)] = NAN;
    return status;
}

static xray_status train_loss(void *ctx, const xray_loss_call *call)
{
    static float logp[1 << 16];
    xray_loss_call shown = *call;
    (void)ctx;
    if (sick_now("train-shown-logp")) {
        memcpy(logp, call->logp, call->batch->tokens * sizeof(*logp));
        logp[find_last_token(call->batch)] = NAN;
        shown.logp = logp;
    }
    return outer->fn(outer->ctx, &shown);
}

static xray_status train_forward_backward(void *self,
                                          const xray_batch *const *batches,
                                          uint32_t count,
                                          const xray_loss *given)
{
    xray_loss own = *given;
    own.fn = train_loss;
    outer = given;
    xray_status status = base->forward_backward(self, batches, count, &own);
    /* An overflow in the backward pass. */
    if (status == XRAY_OK && sick_now("train-gradient"))
        ((float *)base->gradients(self)->tensors[0].data)[5] = INFINITY;
    return status;
}

static xray_status train_optimizer_step(void *self, double lr, double max_norm,
                                        xray_step_result *out)
{
    xray_status status = base->optimizer_step(self, lr, max_norm, out);
    if (sick_now("train-applied"))
        out->grad_norm = NAN;
    return status;
}

static const xray_weights *train_weights(void *self)
{
    static xray_weights table;
    static xray_tensor tensor;
    table = *base->weights(self);
    sick_table("train", &table, &tensor);
    return sick_is("train-table-none") ? NULL : &table;
}

static xray_status train_export_next(void *self, const xray_weights **out_part)
{
    static xray_weights part;
    static xray_tensor tensor;
    xray_status status = base->export_next(self, out_part);
    if (status != XRAY_OK)
        return status;
    part = **out_part;
    sick_table("export", &part, &tensor);
    *out_part = &part;
    return XRAY_OK;
}

const xray_component *sick_train(void)
{
    static xray_train_ops ops;
    static xray_component component;
    if (!sick_wrapped("backend-zero3", &component))
        return NULL;
    base = component.ops;
    ops = *base;
    ops.forward = train_forward;
    ops.forward_backward = train_forward_backward;
    ops.optimizer_step = train_optimizer_step;
    ops.weights = train_weights;
    ops.export_next = train_export_next;
    component.name = "sick";
    component.ops = &ops;
    return &component;
}
