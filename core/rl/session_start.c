/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "core/config/deepspeed.h"
#include "core/rl/publish.h"
#include "core/rl/resources.h"
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
    setup.trainable_from_layer = load.trainable_from_layer;
    load.trainable = setup.trainable;
    xray_status status = XR_CALL_TIMED(
        part, "create",
        xr_train(s)->create(&setup, part->config, &load, &part->self));
    return created(part, status, err);
}

/* Reference and critic are the same backend under other roles; their options
 * are the trainer's. */
static xray_status start_other(xr_session *s, xr_part *part, uint32_t role,
                               xr_err *err)
{
    int critic = role == XRAY_ROLE_CRITIC;
    const char *name = critic ? "critic" : "reference";
    part->component = s->train.component;
    part->ops = s->train.ops;
    part->host = xr_host_new(name, &s->sink);
    if (!part->host)
        return xr_fail(err, XRAY_E_NOMEM, "%s: out of memory", name);
    part->instance = xr_host_instance(part->host);
    xray_setup setup = make_setup(s, part, role);
    xray_workload load = critic ? s->critic_load : xr_reference_load(s);
    setup.trainable = load.trainable;
    if (critic)
        setup.model = &s->critic_model;
    xray_status status = XR_CALL_TIMED(
        part, "create",
        xr_train(s)->create(&setup, s->train.config, &load, &part->self));
    return created(part, status, err);
}

/* Options may give an engine another contract than its component names. */
static void check_numerics(xr_session *s)
{
    const xray_infer_ops *ops = xr_infer(s);
    if (!s->exact || !XRAY_HAS(xray_infer_ops, ops, extension))
        return;
    xr_guard_enter(s->infer.instance, "extension", 0);
    const char *own = ops->extension(s->infer.self, XRAY_EXT_INFER_NUMERICS);
    (void)xr_guard_leave(XRAY_OK);
    s->exact = !own || strcmp(own, s->train.component->numerics) == 0;
}

static xray_status start_infer(xr_session *s, xr_err *err)
{
    xr_part *part = &s->infer;
    xray_setup setup = make_setup(s, part, XRAY_ROLE_ROLLOUT);
    const xray_weights *weights =
        s->train.self ? xr_train(s)->weights(s->train.self) : NULL;
    if (weights && s->run.rollout.share_weights == XR_SHARE_AUTO &&
        xr_weights_whole(weights))
        setup.weights = weights;
    xray_status status = XR_CALL_TIMED(
        part, "create",
        xr_infer(s)->create(&setup, part->config, &s->infer_load, &part->self));
    status = created(part, status, err);
    if (status == XRAY_OK)
        check_numerics(s);
    return status;
}

static xray_status start_algo(xr_session *s, xr_err *err)
{
    xr_part *part = &s->algo;
    xray_status status = XR_CALL_TIMED(
        part, "create",
        xr_algo(s)->create(xr_host_api(part->host), part->config, &part->self));
    status = created(part, status, err);
    if (status != XRAY_OK) {
        xr_session_place(s, part->instance, err);
        return status;
    }
    xray_needs needs = { .head = XRAY_HEAD(xray_needs) };
    status =
        XR_CALL_TIMED(part, "needs", xr_algo(s)->needs(part->self, &needs));
    if (status != XRAY_OK)
        return xr_host_error(part->host, status, "needs", err);
    s->needs = needs.flags;
    if ((needs.flags & XRAY_NEED_GROUPS) && s->run.rollout.n < 2 &&
        !xr_config_refused(s->config, "rollout", "n"))
        return xr_fail(err, XRAY_E_CONFIG,
                       "%s: [rollout] n: %s compares samples of one prompt, "
                       "so 2 or more are expected, not %lld",
                       xr_config_place(s->config, "rollout", "n"),
                       part->instance, (long long)s->run.rollout.n);
    return XRAY_OK;
}

static xray_status start_reward(const xr_session *s, xr_part *part, xr_err *err)
{
    const xray_reward_ops *ops = (const xray_reward_ops *)part->ops;
    xray_status status = XR_CALL_TIMED(
        part, "create",
        ops->create(xr_host_api(part->host), part->config, &part->self));
    status = created(part, status, err);
    if (status != XRAY_OK)
        xr_session_place(s, part->instance, err);
    return status;
}

static xray_status start_rewards(xr_session *s, xr_err *err)
{
    xray_status status = XRAY_OK;
    for (size_t i = 0; i < s->reward_count && status == XRAY_OK; i++)
        status = start_reward(s, &s->rewards[i], err);
    return status;
}

void xr_session_start_host(xr_session *s, xr_errors *errors)
{
    xr_err err = { "" };
    for (size_t i = 0; i < s->reward_count; i++)
        if (s->rewards[i].component && s->rewards[i].config &&
            start_reward(s, &s->rewards[i], &err) != XRAY_OK)
            xr_errors_add(errors, "%s", err.text);
    if (!s->algo.component || !s->algo.config)
        return;
    if (start_algo(s, &err) == XRAY_OK)
        xr_session_needs(s, errors);
    else
        xr_errors_add(errors, "%s", err.text);
}

/* What the plugins refuse, and what does not fit, before anything is made. */
static xray_status check_plans(xr_session *s, xr_err *err)
{
    xr_errors errors = { 0 };
    xr_resources plans;
    xray_status status = XRAY_OK;
    xr_session_needs(s, &errors);
    xr_resources_plan(s, &errors, &plans);
    /* Room for one checkpoint; what more steps take is what check is for. */
    if (!errors.count)
        xr_resources_room(s, &plans, &errors);
    if (errors.count)
        status = xr_fail(err, XRAY_E_CONFIG, "%s", errors.items[0]);
    else if (xr_resources_memory(s, &plans, err) == 2)
        status = XRAY_E_CONFIG;
    xr_errors_free(&errors);
    return status;
}

/* What a DeepSpeed JSON holds without effect. */
static void log_notes(const xr_session *s)
{
    for (const xr_note *n = xr_config_notes(s->config); n; n = n->next)
        if (s->sink.write && s->sink.level >= n->level)
            s->sink.write(s->sink.ctx, n->level, "train.zero3", n->text);
}

xray_status xr_session_start(xr_session *s, xr_err *err)
{
    xray_status status = XRAY_OK;
    log_notes(s);
    if (s->with & XR_WITH_REWARD)
        status = start_rewards(s, err);
    if (status == XRAY_OK && (s->with & XR_WITH_ALGO))
        status = start_algo(s, err);
    if (status == XRAY_OK && (s->with & (XR_WITH_TRAIN | XR_WITH_INFER)))
        status = check_plans(s, err);
    if (status == XRAY_OK && s->device.component)
        status = start_device(s, err);
    if (status == XRAY_OK && s->train.component)
        status = start_train(s, &s->train, XRAY_ROLE_ACTOR, err);
    if (status == XRAY_OK && s->train.component &&
        ((s->with & XR_WITH_REFERENCE) || (s->needs & XRAY_NEED_REFERENCE)))
        status = start_other(s, &s->reference, XRAY_ROLE_REFERENCE, err);
    if (status == XRAY_OK && s->train.component &&
        (s->needs & XRAY_NEED_CRITIC))
        status = start_other(s, &s->critic, XRAY_ROLE_CRITIC, err);
    if (status == XRAY_OK && s->infer.component)
        status = start_infer(s, err);
    if (status == XRAY_OK && s->train.self && s->infer.self)
        status = xr_publish(s, err);
    return status;
}
