/* SPDX-License-Identifier: Apache-2.0
 *
 * Calls the training backend of this process, after bringing the memory of the
 * model to the device.
 */
#include "core/roles/local.h"

#include "core/roles/engine.h"
#include "core/roles/memory_turns.h"
#include "core/roles/publish.h"

/* Returns the status of a call, with the plugin's own sentence if it failed. */
static xray_status report_plugin_failure(const xr_instance *model,
                                         xray_status status, const char *call,
                                         xr_err *err)
{
    return status == XRAY_OK
               ? XRAY_OK
               : xr_host_error(model->part->host, status, call, err);
}

/* Fills up the micro-batches in roles->padding. */
static xray_status fill_up(xr_roles *roles, uint32_t role,
                           const xr_views *views, uint32_t least, xr_err *err)
{
    const xr_layout *layout = xr_run_layout(roles->run, role);
    const uint64_t row_tokens = xr_run_workload(roles->run, role).row_tokens;
    const xr_micro micro = { .batches = views->pointers,
                             .count = views->count,
                             .least = least,
                             .most = views->cap,
                             .micro_multiple = layout->micro_multiple,
                             .token_multiple = layout->token_multiple,
                             .row_tokens = row_tokens };
    return xr_padding_fill(&roles->padding, &micro, err);
}

xray_status xr_local_forward(xr_roles *roles, uint32_t role,
                             const xr_views *views, uint32_t least,
                             uint32_t outputs, const xray_outputs *out,
                             xr_err *err)
{
    const xr_instance *model = xr_roles_at(roles, role);
    xr_padding *padding = &roles->padding;
    xray_outputs own;
    xray_status status = xr_turn_take(roles, role, XR_TURN_FORWARD, err);
    if (status == XRAY_OK)
        status = fill_up(roles, role, views, least, err);
    if (status == XRAY_OK)
        status = xr_padding_outputs(padding, out, err, &own);
    if (status != XRAY_OK)
        return status;
    status = XR_CALL(model->part, "forward",
                     xr_train(roles->run)
                         ->forward(model->self, padding->batches,
                                   padding->count, outputs, &own));
    if (status == XRAY_OK)
        xr_padding_drop(padding, &own, out);
    return report_plugin_failure(model, status, "forward", err);
}

xray_status xr_local_gradients(xr_roles *roles, uint32_t role,
                               const xr_views *views, uint32_t least,
                               xr_loss_run *run, xr_err *err)
{
    const xr_instance *model = xr_roles_at(roles, role);
    xray_loss loss = { .header = XRAY_HEADER(xray_loss),
                       .ctx = run,
                       .fn = xr_loss_call,
                       .outputs = run->spec->outputs };
    xray_status status = xr_turn_take(roles, role, XR_TURN_GRADS, err);
    if (status == XRAY_OK)
        status = fill_up(roles, role, views, least, err);
    if (status != XRAY_OK)
        return status;
    status = XR_CALL(model->part, "forward_backward",
                     xr_train(roles->run)
                         ->forward_backward(model->self, roles->padding.batches,
                                            roles->padding.count, &loss));
    return xr_loss_result(run, model->part, status, err);
}

xray_status xr_local_step(xr_roles *roles, uint32_t role, double lr,
                          double max_norm, xray_step_result *out, xr_err *err)
{
    const xr_instance *model = xr_roles_at(roles, role);
    xray_status status = xr_turn_take(roles, role, XR_TURN_STEP, err);
    if (status != XRAY_OK)
        return status;
    *out = (xray_step_result){ .header = XRAY_HEADER(xray_step_result) };
    return report_plugin_failure(
        model,
        XR_CALL(model->part, "optimizer_step",
                xr_train(roles->run)
                    ->optimizer_step(model->self, lr, max_norm, out)),
        "optimizer_step", err);
}

xray_status xr_local_discard(xr_roles *roles, uint32_t role, xr_err *err)
{
    const xr_instance *model = xr_roles_at(roles, role);
    const xray_train_ops *ops = xr_train(roles->run);
    xray_status status = xr_turn_take(roles, role, XR_TURN_GRADS, err);
    if (status != XRAY_OK)
        return status;
    if (!XRAY_HAS(xray_train_ops, ops, discard))
        return xr_fail(err, XRAY_E_UNSUPPORTED, "%s cannot take gradients back",
                       model->part->instance);
    return report_plugin_failure(
        model, XR_CALL(model->part, "discard", ops->discard(model->self)),
        "discard", err);
}

xray_status xr_local_save(xr_roles *roles, uint32_t role, const char *dir,
                          xr_err *err)
{
    const xr_instance *model = xr_roles_at(roles, role);
    xray_status status = xr_turn_take(roles, role, XR_TURN_STEP, err);
    if (status != XRAY_OK)
        return xr_fail_in(err, status, "%s", xr_role_name(role));
    return report_plugin_failure(
        model,
        XR_CALL(model->part, "save",
                xr_train(roles->run)->save(model->self, dir)),
        "save", err);
}

xray_status xr_local_load(xr_roles *roles, uint32_t role, const char *dir,
                          xr_err *err)
{
    const xr_instance *model = xr_roles_at(roles, role);
    xray_status status = xr_turn_take(roles, role, XR_TURN_STEP, err);
    if (status != XRAY_OK)
        return xr_fail_in(err, status, "%s", xr_role_name(role));
    return report_plugin_failure(
        model,
        XR_CALL(model->part, "load",
                xr_train(roles->run)->load(model->self, dir)),
        "load", err);
}

static xray_status forward_views(xr_roles *roles, uint32_t role,
                                 const xr_views *views, uint32_t outputs,
                                 const xray_outputs *out, xr_err *err)
{
    return xr_local_forward(roles, role, views, 0, outputs, out, err);
}

static xray_status gradients_of_views(xr_roles *roles, uint32_t role,
                                      const xr_views *views,
                                      const xr_loss_spec *spec, xr_err *fault,
                                      xr_err *err)
{
    xr_loss_run run = { .roles = roles,
                        .who = xr_roles_at(roles, role)->part->instance,
                        .spec = spec };
    xray_status status = xr_local_gradients(roles, role, views, 0, &run, err);
    *fault = run.fault;
    return status;
}

const xr_role_ops xr_local_calls = {
    .forward = forward_views,
    .gradients = gradients_of_views,
    .step = xr_local_step,
    .save = xr_local_save,
    .load = xr_local_load,
    .generate = xr_engine_generate,
    .publish = xr_publish_here,
};
