/* SPDX-License-Identifier: Apache-2.0
 *
 * Creates and destroys the instances of one process: those of a run on one
 * device, and a Workhorse's.
 */
#include "core/roles/create.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/str.h"
#include "core/roles/given.h"
#include "core/roles/local.h"
#include "core/roles/publish.h"
#include "core/roles/score.h"
#include "core/roles/turn.h"
#include "core/run/parts.h"
#include "core/run/resources.h"

/* ---- an instance -------------------------------------------------------- */

static xray_setup make_setup(const xr_roles *s, const xr_instance *instance,
                             uint32_t role)
{
    return (xray_setup){
        .header = XRAY_HEADER(xray_setup),
        .host = xr_host_api(instance->part->host),
        .device = (const xray_device_ops *)s->device.part->ops,
        .device_self = s->device.self,
        .model = xr_run_model(s->run, role),
        .world = &s->worlds[role],
        .role = role,
    };
}

/* Why an instance could not be made, where what it called knows that: the
 * device first, for that is the cause of what a comm has to say. */
static xray_status tell_why(const xr_roles *s, const xr_part *part,
                            xray_status status, xr_err *err)
{
    const xr_part *const below[] = { s->device.part, s->comm.part };
    xr_err why = { "" };
    int own = xr_host_append(part->host, &why);
    for (size_t i = 0; i < 2; i++)
        if (below[i]->host && below[i] != part)
            (void)xr_host_append(below[i]->host, &why);
    if (!*why.text)
        return xr_host_error(part->host, status, "create", err);
    if (!own)
        (void)xr_fail_in(&why, status, "%s: create", part->instance);
    *err = why;
    return status;
}

/* An instance, or why there is none. */
static xray_status check_created(const xr_roles *s, const xr_instance *instance,
                                 xray_status status, xr_err *err)
{
    if (status != XRAY_OK)
        return tell_why(s, instance->part, status, err);
    if (instance->self)
        return XRAY_OK;
    return xr_fail(err, XRAY_E_BUG,
                   "%s: create gave neither an instance nor an error",
                   instance->part->instance);
}

xray_status xr_create_device(xr_roles *s, xr_err *err)
{
    xr_instance *device = &s->device;
    const xr_part *part = device->part;
    const xray_device_ops *ops = (const xray_device_ops *)part->ops;
    xray_status status = XR_CALL_TIMED(
        part, "create",
        ops->create(xr_host_api(part->host), part->config,
                    (uint32_t)s->run->ini.run.threads, &device->self));
    return check_created(s, device, status, err);
}

/* ---- models ------------------------------------------------------------- */

/* Reference, critic and reward model are the same backend under other names;
 * their options are the trainer's. */
xray_status xr_create_name(xr_roles *s, uint32_t role, xr_err *err)
{
    xr_part *part = &s->named[role];
    const char *name = xr_role_name(role);
    *part = s->run->train;
    part->host = xr_host_new(name, &s->run->sink);
    if (!part->host)
        return xr_fail(err, XRAY_E_NOMEM, "%s: out of memory", name);
    part->instance = xr_host_instance(part->host);
    xr_host_section(part->host, s->run->train.instance);
    return XRAY_OK;
}

static xray_status create_model(xr_roles *s, uint32_t role, xr_err *err)
{
    xr_instance *model = xr_roles_at(s, role);
    xray_setup setup = make_setup(s, model, role);
    xray_workload load = xr_run_load(s->run, role);
    setup.trainable = load.trainable;
    setup.trainable_from_layer = load.trainable_from_layer;
    xray_status status =
        XR_CALL_TIMED(model->part, "create",
                      xr_train(s->run)->create(&setup, model->part->config,
                                               &load, &model->self));
    return check_created(s, model, status, err);
}

static xray_status create_actor(xr_roles *s, xr_err *err)
{
    xr_instance *actor = &s->actor;
    xray_status status = create_model(s, XRAY_ROLE_ACTOR, err);
    if (status == XRAY_OK)
        status = xr_given_table(actor->part,
                                xr_train(s->run)->weights(actor->self), err);
    return status == XRAY_OK ? xr_turn_made(s, XRAY_ROLE_ACTOR, err) : status;
}

static xray_status create_other(xr_roles *s, uint32_t role, xr_err *err)
{
    xray_status status = xr_create_name(s, role, err);
    if (status == XRAY_OK)
        status = xr_turn_none(s, err);
    if (status == XRAY_OK)
        status = create_model(s, role, err);
    return status == XRAY_OK ? xr_turn_made(s, role, err) : status;
}

/* Options may give an engine another contract than its component names. */
static void check_numerics(xr_roles *s)
{
    const xray_infer_ops *ops = xr_infer(s->run);
    if (!s->exact || !XRAY_HAS(xray_infer_ops, ops, extension))
        return;
    xr_guard_enter(s->engine.part->instance, "extension", 0);
    const char *own = ops->extension(s->engine.self, XRAY_EXT_INFER_NUMERICS);
    (void)xr_guard_leave(XRAY_OK);
    s->exact = !own || strcmp(own, s->actor.part->component->numerics) == 0;
}

/* 1 if every engine lies beside a shard of the policy, and no other. Otherwise
 * all of them are sent the weights, also one that has a trainer beside it. */
static int is_beside(const xr_roles *s)
{
    return xr_ranks_equal(&s->run->placement.actor, &s->run->placement.rollout);
}

/* 1 if this process's rank is to hold a model in the role. */
static int is_placed(const xr_roles *s, uint32_t role)
{
    return xr_run_wants(s->run, role) &&
           xr_ranks_find(xr_run_ranks(s->run, role), s->rank) >= 0;
}

static xray_status create_engine(xr_roles *s, xr_err *err)
{
    xr_instance *engine = &s->engine;
    const xr_part *part = engine->part;
    const xray_workload load = xr_run_load(s->run, XRAY_ROLE_ROLLOUT);
    xray_setup setup = make_setup(s, engine, XRAY_ROLE_ROLLOUT);
    const xray_weights *weights =
        s->actor.self ? xr_train(s->run)->weights(s->actor.self) : NULL;
    if (weights && is_beside(s) &&
        s->run->ini.rollout.share_weights == XR_SHARE_AUTO &&
        xr_weights_complete(weights))
        setup.weights = weights;
    /* It may copy the weights. */
    xray_status status = xr_turn_publish(s, err);
    if (status != XRAY_OK)
        return status;
    status = XR_CALL_TIMED(
        part, "create",
        xr_infer(s->run)->create(&setup, part->config, &load, &engine->self));
    status = check_created(s, engine, status, err);
    if (status == XRAY_OK)
        check_numerics(s);
    return status == XRAY_OK ? xr_turn_made(s, XRAY_ROLE_ROLLOUT, err) : status;
}

/* The models placed on this rank, all of them where there is one. */
xray_status xr_create_models(xr_roles *s, xr_err *err)
{
    static const uint32_t others[] = { XRAY_ROLE_REFERENCE, XRAY_ROLE_CRITIC,
                                       XRAY_ROLE_REWARD };
    xray_status status = XRAY_OK;
    if (is_placed(s, XRAY_ROLE_ACTOR))
        status = create_actor(s, err);
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
        if (status == XRAY_OK && is_placed(s, others[i]))
            status = create_other(s, others[i], err);
    if (status == XRAY_OK && is_placed(s, XRAY_ROLE_ROLLOUT))
        status = create_engine(s, err);
    if (status == XRAY_OK && s->actor.self && s->engine.self && is_beside(s))
        status = xr_publish(s, err);
    return status;
}

/* ---- on the host -------------------------------------------------------- */

xray_status xr_create_algo(xr_roles *s, uint32_t *out_needs, xr_err *err)
{
    const xr_run *run = s->run;
    const xr_part *part = s->algo.part;
    const xray_algo_ops *ops = xr_algo(run);
    xray_status status = XR_CALL_TIMED(
        part, "create",
        ops->create(xr_host_api(part->host), part->config, &s->algo.self));
    status = check_created(s, &s->algo, status, err);
    if (status != XRAY_OK) {
        xr_run_locate(run, err);
        return status;
    }
    xray_needs needs = { .header = XRAY_HEADER(xray_needs) };
    status = XR_CALL_TIMED(part, "needs", ops->needs(s->algo.self, &needs));
    if (status != XRAY_OK)
        return xr_host_error(part->host, status, "needs", err);
    status = xr_given_needs(part, needs.flags, err);
    if (status != XRAY_OK)
        return status;
    *out_needs = needs.flags;
    if ((needs.flags & XRAY_NEED_GROUPS) && run->ini.rollout.n < 2 &&
        !xr_config_refused(run->config, "rollout", "n"))
        return xr_fail(err, XRAY_E_CONFIG,
                       "%s: [rollout] n: %s compares samples of one prompt, "
                       "so 2 or more are expected, not %lld",
                       xr_config_location(run->config, "rollout", "n"),
                       part->instance, (long long)run->ini.rollout.n);
    return XRAY_OK;
}

xray_status xr_create_reward(xr_roles *s, xr_instance *reward, xr_err *err)
{
    const xr_part *part = reward->part;
    xray_status status =
        XR_CALL_TIMED(part, "create",
                      xr_reward_ops(part)->create(xr_host_api(part->host),
                                                  part->config, &reward->self));
    status = check_created(s, reward, status, err);
    if (status != XRAY_OK)
        xr_run_locate(s->run, err);
    else if (part->component == &xr_score_component)
        xr_score_bind(reward->self, s);
    return status;
}

xray_status xr_create_needs(xr_roles *s, xr_run *run, xr_err *err)
{
    xr_errors errors = { 0 };
    uint32_t needs = 0;
    xray_status status = xr_create_algo(s, &needs, err);
    if (status != XRAY_OK)
        return status;
    xr_run_needs(run, needs, &errors);
    status = errors.count ? xr_fail(err, XRAY_E_CONFIG, "%s", errors.items[0])
                          : XRAY_OK;
    xr_errors_free(&errors);
    return status;
}

/* ---- made and freed ----------------------------------------------------- */

xr_roles *xr_roles_make(const xr_run *run)
{
    xr_roles *s = xr_calloc(1, sizeof(*s));
    if (!s)
        return NULL;
    s->run = run;
    s->calls = &xr_local_calls;
    s->exact = run->exact;
    s->device.part = &run->device;
    s->comm.part = &run->comm;
    s->algo.part = &run->algo;
    for (uint32_t role = 1; role < XR_ROLES; role++) {
        xr_roles_at(s, role)->part = &s->named[role];
        s->worlds[role] = xr_run_world(run, role);
    }
    s->actor.part = &run->train;
    s->engine.part = &run->infer;
    for (size_t i = 0; i < run->reward_count; i++)
        s->rewards[i].part = &run->rewards[i];
    return s;
}

static void destroy_instance(xr_instance *instance, void (*destroy)(void *self))
{
    if (!instance->self)
        return;
    xr_guard_enter(instance->part->instance, "destroy", 1);
    destroy(instance->self);
    (void)xr_guard_leave(XRAY_OK);
    instance->self = NULL;
}

/* What the device held at most, at log level info. */
static void log_memory(const xr_roles *s)
{
    const xr_part *part = s->device.part;
    const xr_log_sink *sink = &s->run->sink;
    const xray_device_ops *ops = (const xray_device_ops *)part->ops;
    xray_memory_stats stats = { .header = XRAY_HEADER(xray_memory_stats) };
    xr_str line = { 0 };
    if (!s->device.self || !sink->write || sink->level < XRAY_LOG_INFO ||
        XR_CALL(part, "memory", ops->memory(s->device.self, &stats)) != XRAY_OK)
        return;
    xr_str_puts(&line, "memory at most:");
    for (size_t t = 0; t < XRAY_TAG_COUNT; t++)
        if (stats.high[t])
            xr_str_printf(&line, " %s %llu,", xr_tag_name(t),
                          (unsigned long long)stats.high[t]);
    xr_str_printf(&line, " at once %llu bytes",
                  (unsigned long long)stats.high_all);
    sink->write(sink->ctx, XRAY_LOG_INFO, part->instance, xr_str_text(&line));
    xr_str_free(&line);
}

void xr_roles_free(xr_roles *s)
{
    if (!s)
        return;
    const xray_train_ops *train = xr_train(s->run);
    const xray_comm_ops *comm = (const xray_comm_ops *)s->comm.part->ops;
    const xray_device_ops *device =
        (const xray_device_ops *)s->device.part->ops;
    log_memory(s);
    xr_transfer_free(s);
    if (s->calls->close)
        s->calls->close(s);
    for (size_t i = 0; i < s->run->reward_count; i++)
        if (s->rewards[i].self)
            destroy_instance(&s->rewards[i],
                             xr_reward_ops(s->rewards[i].part)->destroy);
    if (s->algo.self)
        destroy_instance(&s->algo, xr_algo(s->run)->destroy);
    if (s->engine.self)
        destroy_instance(&s->engine, xr_infer(s->run)->destroy);
    if (train) {
        destroy_instance(&s->score, train->destroy);
        destroy_instance(&s->critic, train->destroy);
        destroy_instance(&s->reference, train->destroy);
        destroy_instance(&s->actor, train->destroy);
    }
    if (comm)
        destroy_instance(&s->comm, comm->destroy);
    if (device)
        destroy_instance(&s->device, device->destroy);
    for (uint32_t role = 1; role < XR_ROLES; role++)
        xr_host_free(s->named[role].host);
    free(s);
}

/* ---- in a Workhorse ----------------------------------------------------- */

static xray_status create_comm(xr_roles *s, const xr_rank_link *link,
                               xr_err *err)
{
    const xr_part *part = s->comm.part;
    const xray_comm_ops *ops = (const xray_comm_ops *)part->ops;
    xray_comm_setup setup = {
        .header = XRAY_HEADER(xray_comm_setup),
        .host = xr_host_api(part->host),
        .device = (const xray_device_ops *)s->device.part->ops,
        .device_self = s->device.self,
        .rank = link->rank,
        .size = s->run->placement.size,
        .timeout_ms = (uint64_t)s->run->ini.run.comm_timeout / 1000000,
        .traces = link->traces,
        .exchange_ctx = link->exchange_ctx,
        .exchange = link->exchange,
    };
    xray_status status = XR_CALL_TIMED(
        part, "create", ops->create(&setup, part->config, &s->comm.self));
    return check_created(s, &s->comm, status, err);
}

/* The world of a role: a group of its own unless another role has the same
 * ranks. */
static xray_status join_world(xr_roles *s, uint32_t role, xr_err *err)
{
    const xr_part *part = s->comm.part;
    const xray_comm_ops *ops = (const xray_comm_ops *)part->ops;
    const xr_ranks *ranks = xr_run_ranks(s->run, role);
    xray_world *world = &s->worlds[role];
    int64_t place = xr_ranks_find(ranks, s->rank);
    if (place < 0 || ranks->count < 2)
        return XRAY_OK;
    world->rank = (uint32_t)place;
    world->comm = ops;
    world->comm_self = s->comm.self;
    if (role != XRAY_ROLE_ACTOR &&
        xr_ranks_equal(ranks, &s->run->placement.actor)) {
        world->group = s->worlds[XRAY_ROLE_ACTOR].group;
        return XRAY_OK;
    }
    xray_status status = XR_CALL_TIMED(
        part, "group",
        ops->group(s->comm.self, ranks->rank, ranks->count, &world->group));
    if (status != XRAY_OK)
        return xr_host_error(part->host, status, "group", err);
    return world->group ? XRAY_OK
                        : xr_fail(err, XRAY_E_BUG,
                                  "%s: group gave neither a group nor an error",
                                  part->instance);
}

static xray_status join_worlds(xr_roles *s, xr_err *err)
{
    static const uint32_t others[] = { XRAY_ROLE_REFERENCE, XRAY_ROLE_CRITIC,
                                       XRAY_ROLE_REWARD };
    xray_status status = join_world(s, XRAY_ROLE_ACTOR, err);
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
        if (status == XRAY_OK && xr_run_wants(s->run, others[i]))
            status = join_world(s, others[i], err);
    return status;
}

static xray_status create_shard(xr_roles *s, xr_run *run,
                                const xr_rank_link *link, xr_err *err)
{
    xray_status status = XRAY_OK;
    s->rank = link->rank;
    s->in_worker = 1;
    if (run->with & XR_WITH_ALGO)
        status = xr_create_needs(s, run, err);
    if (status == XRAY_OK)
        status = xr_create_device(s, err);
    if (status == XRAY_OK && run->placement.size > 1)
        status = create_comm(s, link, err);
    if (status == XRAY_OK && run->placement.size > 1)
        status = join_worlds(s, err);
    return status == XRAY_OK ? xr_create_models(s, err) : status;
}

xray_status xr_roles_start_rank(xr_run *run, const xr_rank_link *link,
                                xr_err *err, xr_roles **out)
{
    xr_roles *s = xr_roles_make(run);
    *out = NULL;
    if (!s)
        return xr_fail(err, XRAY_E_NOMEM, "out of memory");
    xray_status status = create_shard(s, run, link, err);
    if (status == XRAY_OK)
        *out = s;
    else
        xr_roles_free(s);
    return status;
}
