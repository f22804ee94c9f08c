/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "core/rl/session_parts.h"

static xray_setup make_setup(const xr_session *s, const xr_part *part,
                             uint32_t role)
{
    return (xray_setup){
        .head = XRAY_HEAD(xray_setup),
        .host = xr_host_api(part->host),
        .device = (const xray_device_ops *)s->device.ops,
        .device_self = s->device.self,
        .model = &s->model,
        .world = &s->world,
        .role = role,
    };
}

/* An instance, or why there is none. */
static xray_status created(const xr_part *part, xray_status status, xr_err *err)
{
    if (status != XRAY_OK)
        return xr_host_error(part->host, status, "create", err);
    if (part->self)
        return XRAY_OK;
    return xr_fail(err, XRAY_E_BUG,
                   "%s: create gave neither an instance nor an error",
                   part->instance);
}

static xray_status start_device(xr_session *s, xr_err *err)
{
    xr_part *part = &s->device;
    const xray_device_ops *ops = (const xray_device_ops *)part->ops;
    xray_status status =
        XR_CALL_TIMED(part, "create",
                      ops->create(xr_host_api(part->host), part->config,
                                  (uint32_t)s->run.run.threads, &part->self));
    return created(part, status, err);
}

static xray_status start_train(xr_session *s, xr_part *part, uint32_t role,
                               xr_err *err)
{
    xray_setup setup = make_setup(s, part, role);
    xray_workload load = s->train_load;
    setup.trainable = role == XRAY_ROLE_ACTOR && (s->with & XR_TRAINABLE);
    load.trainable = setup.trainable;
    xray_status status = XR_CALL_TIMED(
        part, "create",
        xr_train(s)->create(&setup, part->config, &load, &part->self));
    return created(part, status, err);
}

/* The reference is the same backend under another role; its options are the
 * trainer's. */
static xray_status start_reference(xr_session *s, xr_err *err)
{
    s->reference.component = s->train.component;
    s->reference.ops = s->train.ops;
    s->reference.host = xr_host_new("reference", &s->sink);
    if (!s->reference.host)
        return xr_fail(err, XRAY_E_NOMEM, "reference: out of memory");
    s->reference.instance = xr_host_instance(s->reference.host);
    xray_setup setup = make_setup(s, &s->reference, XRAY_ROLE_REFERENCE);
    xray_workload load = s->train_load;
    load.trainable = 0;
    xray_status status =
        XR_CALL_TIMED(&s->reference, "create",
                      xr_train(s)->create(&setup, s->train.config, &load,
                                          &s->reference.self));
    return created(&s->reference, status, err);
}

static xray_status start_infer(xr_session *s, xr_err *err)
{
    xr_part *part = &s->infer;
    xray_setup setup = make_setup(s, part, XRAY_ROLE_ROLLOUT);
    if (s->train.self)
        setup.weights = xr_train(s)->weights(s->train.self);
    xray_status status = XR_CALL_TIMED(
        part, "create",
        xr_infer(s)->create(&setup, part->config, &s->infer_load, &part->self));
    return created(part, status, err);
}

static xray_status start_algo(xr_session *s, xr_err *err)
{
    xr_part *part = &s->algo;
    xray_status status = XR_CALL_TIMED(
        part, "create",
        xr_algo(s)->create(xr_host_api(part->host), part->config, &part->self));
    status = created(part, status, err);
    if (status != XRAY_OK)
        return status;
    xray_needs needs = { .head = XRAY_HEAD(xray_needs) };
    status =
        XR_CALL_TIMED(part, "needs", xr_algo(s)->needs(part->self, &needs));
    if (status != XRAY_OK)
        return xr_host_error(part->host, status, "needs", err);
    if (needs.flags & (XRAY_NEED_CRITIC | XRAY_NEED_GREEDY))
        return xr_fail(
            err, XRAY_E_CONFIG, "%s needs %s, which this version does not run",
            part->instance,
            needs.flags & XRAY_NEED_CRITIC ? "a critic" : "greedy baselines");
    if ((needs.flags & XRAY_NEED_GROUPS) && s->run.rollout.n < 2)
        return xr_fail(err, XRAY_E_CONFIG,
                       "%s compares samples of one prompt, but [rollout] n is "
                       "%lld; expected 2 or more",
                       part->instance, (long long)s->run.rollout.n);
    s->needs = needs.flags;
    return XRAY_OK;
}

static xray_status start_rewards(xr_session *s, xr_err *err)
{
    for (size_t i = 0; i < s->reward_count; i++) {
        xr_part *part = &s->rewards[i];
        const xray_reward_ops *ops = (const xray_reward_ops *)part->ops;
        xray_status status = XR_CALL_TIMED(
            part, "create",
            ops->create(xr_host_api(part->host), part->config, &part->self));
        status = created(part, status, err);
        if (status != XRAY_OK)
            return status;
    }
    return XRAY_OK;
}

xray_status xr_session_start(xr_session *s, xr_err *err)
{
    xray_status status = XRAY_OK;
    if (s->with & XR_WITH_REWARD)
        status = start_rewards(s, err);
    if (status == XRAY_OK && (s->with & XR_WITH_ALGO))
        status = start_algo(s, err);
    if (status == XRAY_OK && (s->with & (XR_WITH_TRAIN | XR_WITH_INFER)))
        status = xr_session_plan(s, err, NULL);
    if (status == XRAY_OK && s->device.component)
        status = start_device(s, err);
    if (status == XRAY_OK && s->train.component)
        status = start_train(s, &s->train, XRAY_ROLE_ACTOR, err);
    if (status == XRAY_OK && s->train.component &&
        ((s->with & XR_WITH_REFERENCE) || (s->needs & XRAY_NEED_REFERENCE)))
        status = start_reference(s, err);
    if (status == XRAY_OK && s->infer.component)
        status = start_infer(s, err);
    return status;
}
