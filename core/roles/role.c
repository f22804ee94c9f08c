/* SPDX-License-Identifier: Apache-2.0
 *
 * What all calls to a model have in common, wherever it lives.
 */
#include "core/roles/role.h"

const char *xr_role_name(uint32_t role)
{
    return role == XRAY_ROLE_CRITIC      ? "critic"
           : role == XRAY_ROLE_REWARD    ? "reward model"
           : role == XRAY_ROLE_REFERENCE ? "reference"
                                         : "actor";
}

/* Where the device is one model's at a time, the engine sleeps from here on. */
static void begin_call(xr_roles *s)
{
    if (s->run->ini.rollout.free_cache_engine)
        s->published.due = 1;
}

static xray_status end_call(uint32_t role, xray_status status, xr_err *err)
{
    return status == XRAY_OK
               ? status
               : xr_fail_in(err, status, "%s", xr_role_name(role));
}

xray_status xr_role_forward(xr_roles *s, uint32_t role, const xr_views *views,
                            uint32_t outputs, const xray_outputs *out,
                            xr_err *err)
{
    begin_call(s);
    return end_call(role, s->calls->forward(s, role, views, outputs, out, err),
                    err);
}

xray_status xr_role_gradients(xr_roles *s, uint32_t role, const xr_views *views,
                              const xr_loss_spec *spec, xr_err *fault,
                              xr_err *err)
{
    fault->text[0] = '\0';
    begin_call(s);
    return end_call(role, s->calls->gradients(s, role, views, spec, fault, err),
                    err);
}

xray_status xr_role_step(xr_roles *s, uint32_t role, double lr, double max_norm,
                         xray_step_result *out, xr_err *err)
{
    *out = (xray_step_result){ .header = XRAY_HEADER(xray_step_result) };
    begin_call(s);
    return end_call(role, s->calls->step(s, role, lr, max_norm, out, err), err);
}

xray_status xr_role_save(xr_roles *s, uint32_t role, const char *dir,
                         xr_err *err)
{
    begin_call(s);
    return s->calls->save(s, role, dir, err);
}

xray_status xr_role_load(xr_roles *s, uint32_t role, const char *dir,
                         xr_err *err)
{
    begin_call(s);
    return s->calls->load(s, role, dir, err);
}
