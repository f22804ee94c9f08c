/* SPDX-License-Identifier: Apache-2.0 */
#include "core/rl/role.h"

#include "core/rl/nonfinite.h"
#include "core/rl/turn.h"
#include "core/rl/whole.h"

xray_status xr_wait(xr_pending *future, xr_err *err)
{
    if (future->status != XRAY_OK)
        return xr_fail(err, future->status, "%s", future->err.text);
    return XRAY_OK;
}

xr_role xr_role_actor(xr_session *s)
{
    return (xr_role){ xr_train(s), &s->train, "actor", s, XRAY_ROLE_ACTOR, 0 };
}

xr_role xr_role_reference(xr_session *s)
{
    return (xr_role){ xr_train(s), &s->reference,       "reference",
                      s,           XRAY_ROLE_REFERENCE, 0 };
}

xr_role xr_role_critic(xr_session *s)
{
    return (
        xr_role){ xr_train(s), &s->critic, "critic", s, XRAY_ROLE_CRITIC, 0 };
}

xr_role xr_role_score(xr_session *s)
{
    return (xr_role){ xr_train(s), &s->score,        "reward model",
                      s,           XRAY_ROLE_REWARD, 0 };
}

/* The call is over, and its sentence is written. */
static void answered(const xr_role *role, xr_pending *future,
                     xray_status status)
{
    future->done = 1;
    future->status = status;
    if (status != XRAY_OK)
        (void)xr_fail_in(&future->err, status, "%s", role->name);
}

/* The role has the device for itself, if the INI has it so: the engine sleeps
 * from here on. */
static xray_status begin(const xr_role *role, uint32_t tags, xr_err *err)
{
    xr_session *s = role->session;
    if (s->run.rollout.free_cache_engine)
        s->publish_due = 1;
    xray_status status = xr_turn_take(s, role->id, tags, err);
    return status == XRAY_OK ? status
                             : xr_fail_in(err, status, "%s", role->name);
}

/* 0: it did not begin, and the future says so. */
static int began(const xr_role *role, uint32_t tags, xr_pending *future)
{
    *future = (xr_pending){ .done = 1 };
    future->status = begin(role, tags, &future->err);
    return future->status == XRAY_OK;
}

static void finish(const xr_role *role, xr_pending *future, xray_status status,
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
                     xr_pending *future)
{
    size_t token = 0;
    xray_status status = XRAY_OK;
    if (!began(role, XR_TURN_FORWARD, future))
        return;
    if (role->session->whole) {
        answered(role, future,
                 xr_whole_forward(role->session->whole, role->id, views,
                                  outputs, out, &future->err));
        return;
    }
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

/* The fault comes back as an error, so that both ways look alike. */
static xray_status whole_gradients(const xr_role *role, const xr_views *views,
                                   const xr_loss_spec *spec, xr_err *fault,
                                   xr_err *err)
{
    xray_status status = xr_whole_gradients(role->session->whole, role->id,
                                            views, spec, fault, err);
    if (status != XRAY_OK || !*fault->text)
        return status;
    return xr_fail(err, xr_nonfinite_loss(role->session), "%s", fault->text);
}

void xr_role_gradients(const xr_role *role, const xr_views *views,
                       const xr_loss_spec *spec, xr_err *fault,
                       xr_pending *future)
{
    xr_loss_run run = { .session = role->session,
                        .who = role->part->instance,
                        .spec = spec };
    xray_loss loss = { .head = XRAY_HEAD(xray_loss),
                       .ctx = &run,
                       .fn = xr_loss_call,
                       .outputs = spec->outputs };
    fault->text[0] = '\0';
    if (!began(role, XR_TURN_GRADS, future))
        return;
    if (role->session->whole) {
        answered(role, future,
                 whole_gradients(role, views, spec, fault, &future->err));
        return;
    }
    xray_status status =
        XR_CALL(role->part, "forward_backward",
                role->ops->forward_backward(role->part->self, views->pointers,
                                            views->count, &loss));
    answered(role, future,
             xr_loss_result(&run, role->part, status, &future->err));
    *fault = run.fault;
}

void xr_role_step(const xr_role *role, double lr, double max_norm,
                  xray_step_result *out, xr_pending *future)
{
    *out = (xray_step_result){ .head = XRAY_HEAD(xray_step_result) };
    if (!began(role, XR_TURN_STEP, future))
        return;
    if (role->session->whole) {
        answered(role, future,
                 xr_whole_step(role->session->whole, role->id, lr, max_norm,
                               out, &future->err));
        return;
    }
    finish(
        role, future,
        XR_CALL(role->part, "optimizer_step",
                role->ops->optimizer_step(role->part->self, lr, max_norm, out)),
        "optimizer_step");
}

xray_status xr_role_save(const xr_role *role, const char *dir, xr_err *err)
{
    const xr_part *part = role->part;
    xray_status status = begin(role, XR_TURN_STEP, err);
    if (status != XRAY_OK)
        return status;
    if (role->session->whole)
        return xr_whole_save(role->session->whole, role->id, dir, err);
    status = XR_CALL(part, "save", role->ops->save(part->self, dir));
    return status == XRAY_OK ? XRAY_OK
                             : xr_host_error(part->host, status, "save", err);
}

xray_status xr_role_load(const xr_role *role, const char *dir, xr_err *err)
{
    const xr_part *part = role->part;
    xray_status status = begin(role, XR_TURN_STEP, err);
    if (status != XRAY_OK)
        return status;
    if (role->session->whole)
        return xr_whole_load(role->session->whole, role->id, dir, err);
    status = XR_CALL(part, "load", role->ops->load(part->self, dir));
    return status == XRAY_OK ? XRAY_OK
                             : xr_host_error(part->host, status, "load", err);
}
