/* SPDX-License-Identifier: Apache-2.0 */
#include "core/rl/role.h"

xray_status xr_wait(xr_future *future, xr_err *err)
{
    if (future->status != XRAY_OK)
        return xr_fail(err, future->status, "%s", future->err.text);
    return XRAY_OK;
}

xr_role xr_role_actor(xr_session *s)
{
    return (xr_role){ xr_train(s), &s->train, "actor" };
}

xr_role xr_role_reference(xr_session *s)
{
    return (xr_role){ xr_train(s), &s->reference, "reference" };
}

xr_role xr_role_critic(xr_session *s)
{
    return (xr_role){ xr_train(s), &s->critic, "critic" };
}

static void finish(const xr_role *role, xr_future *future, xray_status status,
                   const char *call)
{
    future->done = 1;
    future->err.text[0] = '\0';
    future->status = status;
    if (status != XRAY_OK) {
        (void)xr_host_error(role->part->host, status, call, &future->err);
        (void)xr_fail_in(&future->err, status, "%s", role->name);
    }
}

void xr_role_forward(const xr_role *role, const xr_views *views,
                     uint32_t outputs, const xray_outputs *out,
                     xr_future *future)
{
    size_t token = 0;
    xray_status status = XRAY_OK;
    for (uint32_t i = 0; i < views->count && status == XRAY_OK; i++) {
        xray_outputs part = { .head = XRAY_HEAD(xray_outputs) };
        part.logp = out->logp ? out->logp + token : NULL;
        part.entropy = out->entropy ? out->entropy + token : NULL;
        part.value = out->value ? out->value + token : NULL;
        status =
            XR_CALL(role->part, "forward",
                    role->ops->forward(role->part->self, views->pointers[i],
                                       outputs, &part));
        token += views->pointers[i]->tokens;
    }
    finish(role, future, status, "forward");
}

void xr_role_gradients(const xr_role *role, const xr_views *views,
                       const xray_loss *loss, xr_future *future)
{
    finish(role, future,
           XR_CALL(role->part, "forward_backward",
                   role->ops->forward_backward(
                       role->part->self, views->pointers, views->count, loss)),
           "forward_backward");
}

void xr_role_step(const xr_role *role, double lr, double max_norm,
                  xray_step_result *out, xr_future *future)
{
    *out = (xray_step_result){ .head = XRAY_HEAD(xray_step_result) };
    finish(
        role, future,
        XR_CALL(role->part, "optimizer_step",
                role->ops->optimizer_step(role->part->self, lr, max_norm, out)),
        "optimizer_step");
}
