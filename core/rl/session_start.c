/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "core/config/deepspeed.h"
#include "core/rl/given.h"
#include "core/rl/publish.h"
#include "core/rl/resources.h"
#include "core/rl/score.h"
#include "core/rl/session_parts.h"
#include "core/rl/turn.h"
#include "core/rl/whole.h"

static xray_setup make_setup(const xr_session *s, const xr_part *part,
                             uint32_t role)
{
    return (xray_setup){
        .head = XRAY_HEAD(xray_setup),
        .host = xr_host_api(part->host),
        .device = (const xray_device_ops *)s->device.ops,
        .device_self = s->device.self,
        .model = &s->model,
        .world = &s->worlds[role],
        .role = role,
    };
}

/* Why an instance could not be made, where what it called knows that: the
 * device first, for that is the cause of what a comm has to say. */
static xray_status not_created(const xr_session *s, const xr_part *part,
                               xray_status status, xr_err *err)
{
    const xr_part *const below[] = { &s->device, &s->comm };
    xr_err why = { "" };
    int own = xr_host_append(part->host, &why);
    for (size_t i = 0; i < 2; i++)
        if (below[i]->host && below[i] != part)
            (void)xr_host_append(below[i]->host, &why);
    if (!*why.text)
        return xr_host_error(part->host, status, "create", err);
    return own ? xr_fail(err, status, "%s", why.text)
               : xr_fail(err, status, "%s: create: %s", part->instance,
                         why.text);
}

/* An instance, or why there is none. */
static xray_status created(const xr_session *s, const xr_part *part,
                           xray_status status, xr_err *err)
{
    if (status != XRAY_OK)
        return not_created(s, part, status, err);
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
    return created(s, part, status, err);
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
    status = created(s, part, status, err);
    if (status == XRAY_OK)
        status = xr_given_table(part, xr_train(s)->weights(part->self), err);
    return status == XRAY_OK ? xr_turn_made(s, role, err) : status;
}

static const char *role_name(uint32_t role)
{
    return role == XRAY_ROLE_CRITIC   ? "critic"
           : role == XRAY_ROLE_REWARD ? "reward model"
                                      : "reference";
}

static xray_status name_other(const xr_session *s, xr_part *part,
                              const char *name, xr_err *err)
{
    part->component = s->train.component;
    part->ops = s->train.ops;
    part->host = xr_host_new(name, &s->sink);
    if (!part->host)
        return xr_fail(err, XRAY_E_NOMEM, "%s: out of memory", name);
    part->instance = xr_host_instance(part->host);
    return XRAY_OK;
}

/* Reference, critic and reward model are the same backend under other roles;
 * their options are the trainer's. */
static xray_status start_other(xr_session *s, xr_part *part, uint32_t role,
                               xr_err *err)
{
    xray_status found = name_other(s, part, role_name(role), err);
    if (found == XRAY_OK)
        found = xr_turn_none(s, err);
    if (found != XRAY_OK)
        return found;
    xray_setup setup = make_setup(s, part, role);
    xray_workload load = xr_reference_load(s);
    if (role == XRAY_ROLE_CRITIC) {
        load = s->critic_load;
        setup.model = &s->critic_model;
    } else if (role == XRAY_ROLE_REWARD) {
        load = s->score_load;
        setup.model = &s->score_model;
    }
    setup.trainable = load.trainable;
    xray_status status = XR_CALL_TIMED(
        part, "create",
        xr_train(s)->create(&setup, s->train.config, &load, &part->self));
    status = created(s, part, status, err);
    return status == XRAY_OK ? xr_turn_made(s, role, err) : status;
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

/* 1 if every engine lies beside a shard of the policy, and no other. Otherwise
 * all of them are sent the weights, also one that has a trainer beside it. */
static int beside(const xr_session *s)
{
    return xr_ranks_equal(&s->placement.actor, &s->placement.rollout);
}

static xray_status start_infer(xr_session *s, xr_err *err)
{
    xr_part *part = &s->infer;
    xray_setup setup = make_setup(s, part, XRAY_ROLE_ROLLOUT);
    const xray_weights *weights =
        s->train.self ? xr_train(s)->weights(s->train.self) : NULL;
    if (weights && beside(s) && s->run.rollout.share_weights == XR_SHARE_AUTO &&
        xr_weights_whole(weights))
        setup.weights = weights;
    /* It may copy the weights. */
    xray_status status = xr_turn_publish(s, err);
    if (status != XRAY_OK)
        return status;
    status = XR_CALL_TIMED(
        part, "create",
        xr_infer(s)->create(&setup, part->config, &s->infer_load, &part->self));
    status = created(s, part, status, err);
    if (status == XRAY_OK)
        check_numerics(s);
    return status == XRAY_OK ? xr_turn_made(s, XRAY_ROLE_ROLLOUT, err) : status;
}

static xray_status start_algo(xr_session *s, xr_err *err)
{
    xr_part *part = &s->algo;
    xray_status status = XR_CALL_TIMED(
        part, "create",
        xr_algo(s)->create(xr_host_api(part->host), part->config, &part->self));
    status = created(s, part, status, err);
    if (status != XRAY_OK) {
        xr_session_place(s, part->instance, err);
        return status;
    }
    xray_needs needs = { .head = XRAY_HEAD(xray_needs) };
    status =
        XR_CALL_TIMED(part, "needs", xr_algo(s)->needs(part->self, &needs));
    if (status != XRAY_OK)
        return xr_host_error(part->host, status, "needs", err);
    status = xr_given_needs(part, needs.flags, err);
    if (status != XRAY_OK)
        return status;
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

static xray_status start_reward(xr_session *s, xr_part *part, xr_err *err)
{
    const xray_reward_ops *ops = (const xray_reward_ops *)part->ops;
    xray_status status = XR_CALL_TIMED(
        part, "create",
        ops->create(xr_host_api(part->host), part->config, &part->self));
    status = created(s, part, status, err);
    if (status != XRAY_OK)
        xr_session_place(s, part->instance, err);
    else if (part->component == &xr_score_component)
        xr_score_bind(part->self, s);
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

static int wants_reference(const xr_session *s)
{
    return s->train.component &&
           ((s->with & XR_WITH_REFERENCE) || (s->needs & XRAY_NEED_REFERENCE));
}

static int wants_critic(const xr_session *s)
{
    return s->train.component && (s->needs & XRAY_NEED_CRITIC);
}

static int wants_score(const xr_session *s)
{
    return s->train.component && s->score.config;
}

/* 1 if this process's rank holds the role. */
static int placed(const xr_session *s, const xr_ranks *ranks)
{
    return xr_ranks_find(ranks, s->rank) >= 0;
}

/* The models placed on this rank, all of them where there is one. */
static xray_status start_models(xr_session *s, xr_err *err)
{
    const xr_placement *p = &s->placement;
    xray_status status = XRAY_OK;
    if (s->train.component && placed(s, &p->actor))
        status = start_train(s, &s->train, XRAY_ROLE_ACTOR, err);
    if (status == XRAY_OK && wants_reference(s) && placed(s, &p->reference))
        status = start_other(s, &s->reference, XRAY_ROLE_REFERENCE, err);
    if (status == XRAY_OK && wants_critic(s) && placed(s, &p->critic))
        status = start_other(s, &s->critic, XRAY_ROLE_CRITIC, err);
    if (status == XRAY_OK && wants_score(s) && placed(s, &p->reward))
        status = start_other(s, &s->score, XRAY_ROLE_REWARD, err);
    if (status == XRAY_OK && s->infer.component && placed(s, &p->rollout))
        status = start_infer(s, err);
    if (status == XRAY_OK && s->train.self && s->infer.self && beside(s))
        status = xr_publish(s, err);
    return status;
}

/* Workhorses hold the models; here the WholeModel stands for each of them. */
static xray_status start_whole(xr_session *s, xr_err *err)
{
    xray_status status = XRAY_OK;
    if (wants_reference(s))
        status = name_other(s, &s->reference, "reference", err);
    if (status == XRAY_OK && wants_critic(s))
        status = name_other(s, &s->critic, "critic", err);
    if (status == XRAY_OK && wants_score(s))
        status = name_other(s, &s->score, "reward model", err);
    if (status == XRAY_OK)
        status = xr_whole_open(s, err, &s->whole);
    if (status != XRAY_OK)
        return status;
    s->train.self = s->train.component ? s->whole : NULL;
    s->infer.self = s->infer.component ? s->whole : NULL;
    s->reference.self = wants_reference(s) ? s->whole : NULL;
    s->critic.self = wants_critic(s) ? s->whole : NULL;
    s->score.self = wants_score(s) ? s->whole : NULL;
    return XRAY_OK;
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
    if (status == XRAY_OK && (s->with & (XR_WITH_TRAIN | XR_WITH_INFER)))
        status = xr_session_verify(s, err);
    if (status != XRAY_OK || !s->device.component)
        return status;
    if (xr_session_is_remote(s))
        return start_whole(s, err);
    status = start_device(s, err);
    return status == XRAY_OK ? start_models(s, err) : status;
}

/* ---- in a Workhorse ----------------------------------------------------- */

static xray_status start_comm(xr_session *s, const xr_rank_link *link,
                              xr_err *err)
{
    xr_part *part = &s->comm;
    const xray_comm_ops *ops = (const xray_comm_ops *)part->ops;
    xray_comm_setup setup = {
        .head = XRAY_HEAD(xray_comm_setup),
        .host = xr_host_api(part->host),
        .device = (const xray_device_ops *)s->device.ops,
        .device_self = s->device.self,
        .rank = link->rank,
        .size = s->placement.size,
        .timeout_ms = (uint64_t)s->run.run.comm_timeout / 1000000,
        .traces = link->traces,
        .exchange_ctx = link->exchange_ctx,
        .exchange = link->exchange,
    };
    xray_status status = XR_CALL_TIMED(
        part, "create", ops->create(&setup, part->config, &part->self));
    return created(s, part, status, err);
}

/* The world of a role: a group of its own unless another role has the same
 * ranks. */
static xray_status join_world(xr_session *s, uint32_t role,
                              const xr_ranks *ranks, xr_err *err)
{
    const xr_part *part = &s->comm;
    const xray_comm_ops *ops = (const xray_comm_ops *)part->ops;
    xray_world *world = &s->worlds[role];
    int64_t place = xr_ranks_find(ranks, s->rank);
    if (place < 0 || ranks->count < 2)
        return XRAY_OK;
    world->rank = (uint32_t)place;
    world->comm = ops;
    world->comm_self = part->self;
    if (role != XRAY_ROLE_ACTOR && xr_ranks_equal(ranks, &s->placement.actor)) {
        world->group = s->worlds[XRAY_ROLE_ACTOR].group;
        return XRAY_OK;
    }
    xray_status status = XR_CALL_TIMED(
        part, "group",
        ops->group(part->self, ranks->rank, ranks->count, &world->group));
    if (status != XRAY_OK)
        return xr_host_error(part->host, status, "group", err);
    return world->group ? XRAY_OK
                        : xr_fail(err, XRAY_E_BUG,
                                  "%s: group gave neither a group nor an error",
                                  part->instance);
}

static xray_status join_worlds(xr_session *s, xr_err *err)
{
    const xr_placement *p = &s->placement;
    xray_status status = join_world(s, XRAY_ROLE_ACTOR, &p->actor, err);
    if (status == XRAY_OK && wants_reference(s))
        status = join_world(s, XRAY_ROLE_REFERENCE, &p->reference, err);
    if (status == XRAY_OK && wants_critic(s))
        status = join_world(s, XRAY_ROLE_CRITIC, &p->critic, err);
    if (status == XRAY_OK && wants_score(s))
        status = join_world(s, XRAY_ROLE_REWARD, &p->reward, err);
    return status;
}

xray_status xr_session_start_rank(xr_session *s, const xr_rank_link *link,
                                  xr_err *err)
{
    xr_errors errors = { 0 };
    s->rank = link->rank;
    s->in_worker = 1;
    xray_status status = s->with & XR_WITH_ALGO ? start_algo(s, err) : XRAY_OK;
    if (status == XRAY_OK)
        xr_session_needs(s, &errors);
    if (errors.count)
        status = xr_fail(err, XRAY_E_CONFIG, "%s", errors.items[0]);
    xr_errors_free(&errors);
    if (status == XRAY_OK)
        status = start_device(s, err);
    if (status == XRAY_OK && s->placement.size > 1)
        status = start_comm(s, link, err);
    if (status == XRAY_OK && s->placement.size > 1)
        status = join_worlds(s, err);
    return status == XRAY_OK ? start_models(s, err) : status;
}
