/* SPDX-License-Identifier: Apache-2.0
 *
 * Implements faults of a training backend.
 */
#include <math.h>
#include <string.h>

#include "tests/zoo/sick.h"

static const xray_train_ops *base;
static const xray_loss *outer;    /* the loss of the call in progress */
static const xray_host *own_host; /* of the instance that was created last */

static xray_status train_create(const xray_setup *setup, const void *config,
                                const xray_workload *load, void **out_self)
{
    own_host = setup->host;
    xray_status held = sick_hold(own_host, "train-create-hold");
    return held != XRAY_OK ? held : base->create(setup, config, load, out_self);
}

static xray_status train_save(void *self, const char *dir)
{
    xray_status status = base->save(self, dir);
    return status != XRAY_OK ? status : sick_hold(own_host, "train-save-hold");
}

static xray_status train_load(void *self, const char *dir)
{
    xray_status held = sick_hold(own_host, "train-load-hold");
    return held != XRAY_OK ? held : base->load(self, dir);
}

/* Returns the index of the last token in the loss. */
static uint32_t find_last_token(const xray_batch *batch)
{
    uint32_t t = batch->tokens - 1;
    while (t && batch->loss_mask[t] == 0)
        t--;
    return t;
}

/* Plans that the ranks cannot keep, and one of a backend that wants its
 * micro-batches filled up. */
static xray_status train_plan(const xray_host *host, const void *config,
                              const xray_model *model, const xray_world *world,
                              const xray_workload *load, xray_plan *out)
{
    static const xray_axis triple = { .name = XRAY_AXIS_TENSOR, .size = 3 };
    xray_status status = base->plan(host, config, model, world, load, out);
    if (sick_is("train-plan-triple") ||
        (sick_is("train-plan-apart") && world->rank)) {
        out->axes = &triple;
        out->axis_count = 1;
        out->axis_stride = sizeof(triple);
    }
    if (sick_is("train-plan-answers"))
        out->answers = 1;
    if (sick_is("train-plan-multiples")) {
        out->micro_multiple = 3;
        out->token_multiple = 16;
    }
    return status;
}

/* Returns 1 if the micro-batches are not those that train-plan-multiples asks
 * for. */
static int lacks_padding(const xray_batch *const *batches, uint32_t count)
{
    if (!sick_is("train-plan-multiples"))
        return 0;
    for (uint32_t i = 0; i < count; i++)
        if (batches[i]->tokens % 16)
            return 1;
    return count % 3 != 0;
}

static xray_status train_forward(void *self, const xray_batch *const *batches,
                                 uint32_t count, uint32_t outputs,
                                 xray_outputs *out)
{
    if (lacks_padding(batches, count))
        return XRAY_E_RANGE;
    if (sick_now("train-breaks"))
        return own_host->fail(own_host, XRAY_E_IO, "forward",
                              "the device is lost");
    xray_status status = base->forward(self, batches, count, outputs, out);
    if (status == XRAY_OK && count && sick_now("train-logp"))
        out->logp[find_last_token(batches[0])] = NAN;
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
    if (lacks_padding(batches, count))
        return XRAY_E_RANGE;
    own.fn = train_loss;
    outer = given;
    xray_status status = sick_hold(own_host, "train-hold");
    if (status == XRAY_OK)
        status = base->forward_backward(self, batches, count, &own);
    /* An overflow in the backward pass. */
    if (status == XRAY_OK && sick_now("train-gradient"))
        ((float *)((const xray_train_debug *)base->extension(
                       self, XRAY_EXT_TRAIN_DEBUG))
             ->gradients(self)
             ->tensors[0]
             .data)[5] = INFINITY;
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
    ops.plan = train_plan;
    ops.create = train_create;
    ops.save = train_save;
    ops.load = train_load;
    ops.forward = train_forward;
    ops.forward_backward = train_forward_backward;
    ops.optimizer_step = train_optimizer_step;
    ops.weights = train_weights;
    ops.export_next = train_export_next;
    component.name = "sick";
    component.ops = &ops;
    return &component;
}
