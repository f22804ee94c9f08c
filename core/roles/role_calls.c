/* SPDX-License-Identifier: Apache-2.0
 *
 * What all calls to a model have in common, wherever the model is.
 */
#include "core/roles/role_calls.h"

#include "core/plugin/cancel.h"

const char *xr_role_name(uint32_t role)
{
    return role == XRAY_ROLE_CRITIC      ? "critic"
           : role == XRAY_ROLE_REWARD    ? "reward model"
           : role == XRAY_ROLE_REFERENCE ? "reference"
                                         : "actor";
}

/* With free_cache_engine a call to a model puts the engine to sleep, so the
 * weights must be published again before the next rollout. */
static xray_status begin_model_call(xr_roles *roles, xr_err *err)
{
    if (roles->run->ini.rollout.free_cache_engine)
        roles->published.due = 1;
    return xr_cancel_check(err);
}

static xray_status end_model_call(uint32_t role, xray_status status,
                                  xr_err *err)
{
    return status == XRAY_OK
               ? status
               : xr_fail_in(err, status, "%s", xr_role_name(role));
}

xray_status xr_role_forward(xr_roles *roles, uint32_t role,
                            const xr_views *views, uint32_t outputs,
                            const xray_outputs *out, xr_err *err)
{
    xray_status status = begin_model_call(roles, err);
    if (status == XRAY_OK)
        status = roles->calls->forward(roles, role, views, outputs, out, err);
    return end_model_call(role, status, err);
}

xray_status xr_role_gradients(xr_roles *roles, uint32_t role,
                              const xr_views *views, const xr_loss_spec *spec,
                              xr_err *fault, xr_err *err)
{
    fault->text[0] = '\0';
    xray_status status = begin_model_call(roles, err);
    if (status == XRAY_OK)
        status = roles->calls->gradients(roles, role, views, spec, fault, err);
    return end_model_call(role, status, err);
}

xray_status xr_role_step(xr_roles *roles, uint32_t role, double lr,
                         double max_norm, xray_step_result *out, xr_err *err)
{
    *out = (xray_step_result){ .header = XRAY_HEADER(xray_step_result) };
    xray_status status = begin_model_call(roles, err);
    if (status == XRAY_OK)
        status = roles->calls->step(roles, role, lr, max_norm, out, err);
    return end_model_call(role, status, err);
}

xray_status xr_role_save(xr_roles *roles, uint32_t role, const char *dir,
                         xr_err *err)
{
    xray_status status = begin_model_call(roles, err);
    return status == XRAY_OK ? roles->calls->save(roles, role, dir, err)
                             : status;
}

xray_status xr_role_load(xr_roles *roles, uint32_t role, const char *dir,
                         xr_err *err)
{
    xray_status status = begin_model_call(roles, err);
    return status == XRAY_OK ? roles->calls->load(roles, role, dir, err)
                             : status;
}
