/* SPDX-License-Identifier: Apache-2.0
 *
 * Creates and destroys the instances of one process: all those of a run on one
 * device, or those of one Workhorse.
 */
#include "core/roles/create.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/str.h"
#include "core/plugin/cancel.h"
#include "core/roles/launched.h"
#include "core/roles/local.h"
#include "core/roles/memory_turns.h"
#include "core/roles/plugin_results.h"
#include "core/roles/publish.h"
#include "core/roles/reward_model.h"
#include "core/roles/worlds.h"
#include "core/run/replicas.h"
#include "core/run/resources.h"
#include "core/run/run_setup.h"

/* ---- instances ---------------------------------------------------------- */

static xray_setup make_setup(const xr_roles *roles, const xr_instance *instance,
                             uint32_t role)
{
    return (xray_setup){
        .header = XRAY_HEADER(xray_setup),
        .host = xr_host_api(instance->part->host),
        .device = (const xray_device_ops *)roles->device.part->ops,
        .device_self = roles->device.self,
        .model = xr_run_model(roles->run, role),
        .world = &roles->worlds[role],
        .role = role,
    };
}

/* Collects the reasons why an instance could not be created. The device comes
 * before the communicator, because errors of the latter are often caused by the
 * former. */
static xray_status explain_failure(const xr_roles *roles, const xr_part *part,
                                   xray_status status, xr_err *err)
{
    const xr_part *const below[] = { roles->device.part, roles->comm.part };
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

/* Checks that a call of create gave an instance or an error. */
static xray_status check_created_instance(const xr_roles *roles,
                                          const xr_instance *instance,
                                          xray_status status, xr_err *err)
{
    if (status != XRAY_OK)
        return explain_failure(roles, instance->part, status, err);
    if (instance->self)
        return XRAY_OK;
    return xr_fail(err, XRAY_E_BUG,
                   "%s: create gave neither an instance nor an error",
                   instance->part->instance);
}

/* Takes the device's scratch memory for the work of all models of this rank
 * before the first of them computes: no step of the run allocates any, and
 * recorded graphs stay valid. */
static xray_status reserve_scratch(xr_roles *roles)
{
    const xr_instance *device = &roles->device;
    const xray_device_ops *ops = (const xray_device_ops *)device->part->ops;
    xray_device_work works[XR_PLANS];
    uint64_t count = 0;
    xray_status status =
        xr_resources_works(roles->run, roles->rank, works, &count);
    if (status != XRAY_OK || count == 0)
        return status;
    return XR_CALL_TIMED(
        device->part, "reserve",
        ops->reserve(device->self, works, count, sizeof(works[0])));
}

xray_status xr_create_device(xr_roles *roles, xr_err *err)
{
    xr_instance *device = &roles->device;
    const xr_part *part = device->part;
    const xray_device_ops *ops = (const xray_device_ops *)part->ops;
    xray_status status = XR_CALL_TIMED(
        part, "create",
        ops->create(xr_host_api(part->host), part->config,
                    (uint32_t)roles->run->ini.run.threads, &device->self));
    status = check_created_instance(roles, device, status, err);
    if (status != XRAY_OK)
        return status;
    status = reserve_scratch(roles);
    return status == XRAY_OK ? status
                             : explain_failure(roles, part, status, err);
}

/* ---- models ------------------------------------------------------------- */

/* Reference, critic and reward model are instances of the training backend
 * under other names, with the trainer's options or those of their own. */
xray_status xr_create_role_part(xr_roles *roles, uint32_t role, xr_err *err)
{
    xr_part *part = &roles->named[role];
    const char *name = xr_role_name(role);
    *part = *xr_run_part_of(roles->run, role);
    const char *section = part->section ? part->section : part->instance;
    part->host = xr_host_new(name, &roles->run->sink);
    if (!part->host)
        return xr_fail(err, XRAY_E_NOMEM, "%s: out of memory", name);
    part->instance = xr_host_instance(part->host);
    xr_host_section(part->host, section);
    return XRAY_OK;
}

static xray_status create_model(xr_roles *roles, uint32_t role, xr_err *err)
{
    xr_instance *model = xr_roles_at(roles, role);
    xray_setup setup = make_setup(roles, model, role);
    xray_workload load = xr_run_workload(roles->run, role);
    setup.trainable = load.trainable;
    setup.trainable_from_layer = load.trainable_from_layer;
    xr_host_stand_on(model->part->host, roles->comm.part->host);
    xray_status status = xr_cancel_check(err);
    if (status != XRAY_OK)
        return status;
    status = XR_CALL_TIMED(
        model->part, "create",
        xr_train(roles->run)
            ->create(&setup, model->part->config, &load, &model->self));
    return check_created_instance(roles, model, status, err);
}

static xray_status create_actor(xr_roles *roles, xr_err *err)
{
    xr_instance *actor = &roles->actor;
    xray_status status = create_model(roles, XRAY_ROLE_ACTOR, err);
    if (status == XRAY_OK)
        status = xr_check_weights_table(
            actor->part, xr_train(roles->run)->weights(actor->self), err);
    return status == XRAY_OK ? xr_turn_join(roles, XRAY_ROLE_ACTOR, err)
                             : status;
}

static xray_status create_side_model(xr_roles *roles, uint32_t role,
                                     xr_err *err)
{
    xray_status status = xr_create_role_part(roles, role, err);
    if (status != XRAY_OK)
        return status;
    status = xr_turn_offload_all(roles, err);
    if (status != XRAY_OK)
        return status;
    status = create_model(roles, role, err);
    if (status != XRAY_OK)
        return status;
    return xr_turn_join(roles, role, err);
}

/* Returns 1 if each rank with a part of the policy has the same part of an
 * engine. Otherwise weights are sent to all engines, even to one on a rank of
 * the policy. */
static int engines_share_ranks(const xr_roles *roles)
{
    return xr_replicas_match(roles->run, XRAY_ROLE_ACTOR, XRAY_ROLE_ROLLOUT);
}

/* Returns 1 if the rank of this process holds a model in the role. */
static int is_placed_here(const xr_roles *roles, uint32_t role)
{
    return xr_run_has_role(roles->run, role) &&
           xr_ranks_find(xr_run_ranks(roles->run, role), roles->rank) >= 0;
}

static xray_status create_engine(xr_roles *roles, xr_err *err)
{
    xr_instance *engine = &roles->engine;
    const xr_part *part = engine->part;
    const xray_workload load = xr_run_workload(roles->run, XRAY_ROLE_ROLLOUT);
    xray_setup setup = make_setup(roles, engine, XRAY_ROLE_ROLLOUT);
    const xray_weights *weights =
        roles->actor.self ? xr_train(roles->run)->weights(roles->actor.self)
                          : NULL;
    if (weights && engines_share_ranks(roles) &&
        roles->run->ini.rollout.share_weights == XR_SHARE_AUTO &&
        xr_weights_complete(weights))
        setup.weights = weights;
    xr_host_stand_on(part->host, roles->comm.part->host);
    /* The engine may copy the weights when it is created. */
    xray_status status = xr_turn_publish(roles, err);
    if (status != XRAY_OK)
        return status;
    status =
        XR_CALL_TIMED(part, "create",
                      xr_infer(roles->run)
                          ->create(&setup, part->config, &load, &engine->self));
    status = check_created_instance(roles, engine, status, err);
    return status == XRAY_OK ? xr_turn_join(roles, XRAY_ROLE_ROLLOUT, err)
                             : status;
}

xray_status xr_create_models(xr_roles *roles, xr_err *err)
{
    static const uint32_t others[] = { XRAY_ROLE_REFERENCE, XRAY_ROLE_CRITIC,
                                       XRAY_ROLE_REWARD };
    xray_status status = XRAY_OK;
    if (is_placed_here(roles, XRAY_ROLE_ACTOR))
        status = create_actor(roles, err);
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
        if (status == XRAY_OK && is_placed_here(roles, others[i]))
            status = create_side_model(roles, others[i], err);
    if (status == XRAY_OK && is_placed_here(roles, XRAY_ROLE_ROLLOUT))
        status = create_engine(roles, err);
    if (status == XRAY_OK && roles->actor.self && roles->engine.self &&
        engines_share_ranks(roles))
        status = xr_publish(roles, err);
    return status;
}

/* ---- instances on the host ---------------------------------------------- */

xray_status xr_create_algo(xr_roles *roles, uint32_t *out_needs, xr_err *err)
{
    const xr_run *run = roles->run;
    const xr_part *part = roles->algo.part;
    const xray_algo_ops *ops = xr_algo(run);
    xray_status status = XR_CALL_TIMED(
        part, "create",
        ops->create(xr_host_api(part->host), part->config, &roles->algo.self));
    status = check_created_instance(roles, &roles->algo, status, err);
    if (status != XRAY_OK) {
        xr_run_locate(run, err);
        return status;
    }
    xray_needs needs = { .header = XRAY_HEADER(xray_needs) };
    status = XR_CALL_TIMED(part, "needs", ops->needs(roles->algo.self, &needs));
    if (status != XRAY_OK)
        return xr_host_error(part->host, status, "needs", err);
    status = xr_check_needs(part, needs.flags, err);
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

xray_status xr_create_reward(xr_roles *roles, xr_instance *reward, xr_err *err)
{
    const xr_part *part = reward->part;
    xray_status status =
        XR_CALL_TIMED(part, "create",
                      xr_reward_ops(part)->create(xr_host_api(part->host),
                                                  part->config, &reward->self));
    status = check_created_instance(roles, reward, status, err);
    if (status != XRAY_OK)
        xr_run_locate(roles->run, err);
    else if (part->component == &xr_reward_model_component)
        xr_reward_model_bind(reward->self, roles);
    return status;
}

xray_status xr_create_algo_of_run(xr_roles *roles, xr_run *run, xr_err *err)
{
    xr_errors errors = { 0 };
    uint32_t needs = 0;
    xray_status status = xr_create_algo(roles, &needs, err);
    if (status != XRAY_OK)
        return status;
    xr_run_apply_needs(run, needs, &errors);
    status = errors.count ? xr_fail(err, XRAY_E_CONFIG, "%s", errors.items[0])
                          : XRAY_OK;
    xr_errors_free(&errors);
    return status;
}

/* ---- roles -------------------------------------------------------------- */

xr_roles *xr_roles_new(const xr_run *run)
{
    xr_roles *roles = xr_calloc(1, sizeof(*roles));
    if (!roles)
        return NULL;
    roles->run = run;
    roles->calls = &xr_local_calls;
    roles->device.part = &run->device;
    roles->comm.part = &run->comm;
    roles->algo.part = &run->algo;
    for (uint32_t role = 1; role < XR_ROLES; role++) {
        xr_roles_at(roles, role)->part = &roles->named[role];
        roles->worlds[role] = xr_run_world(run, role);
    }
    roles->actor.part = &run->train;
    roles->engine.part = &run->infer;
    for (size_t i = 0; i < run->reward_count; i++)
        roles->rewards[i].part = &run->rewards[i];
    return roles;
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

/* Logs the peak use of device memory at level info. */
static void log_peak_memory(const xr_roles *roles)
{
    const xr_part *part = roles->device.part;
    const xr_log_sink *sink = &roles->run->sink;
    const xray_device_ops *ops = (const xray_device_ops *)part->ops;
    xray_memory_stats stats = { .header = XRAY_HEADER(xray_memory_stats) };
    xr_str line = { 0 };
    if (!roles->device.self || !sink->write || sink->level < XRAY_LOG_INFO ||
        XR_CALL(part, "memory", ops->memory(roles->device.self, &stats)) !=
            XRAY_OK)
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

void xr_roles_free(xr_roles *roles)
{
    if (!roles)
        return;
    const xray_train_ops *train = xr_train(roles->run);
    const xray_comm_ops *comm = (const xray_comm_ops *)roles->comm.part->ops;
    const xray_device_ops *device =
        (const xray_device_ops *)roles->device.part->ops;
    log_peak_memory(roles);
    xr_transfer_free(roles);
    if (roles->calls->close)
        roles->calls->close(roles);
    xr_launched_close(roles->launched);
    for (size_t i = 0; i < roles->run->reward_count; i++)
        if (roles->rewards[i].self)
            destroy_instance(&roles->rewards[i],
                             xr_reward_ops(roles->rewards[i].part)->destroy);
    if (roles->algo.self)
        destroy_instance(&roles->algo, xr_algo(roles->run)->destroy);
    if (roles->engine.self)
        destroy_instance(&roles->engine, xr_infer(roles->run)->destroy);
    if (train) {
        destroy_instance(&roles->reward_model, train->destroy);
        destroy_instance(&roles->critic, train->destroy);
        destroy_instance(&roles->reference, train->destroy);
        destroy_instance(&roles->actor, train->destroy);
    }
    if (comm)
        destroy_instance(&roles->comm, comm->destroy);
    if (device)
        destroy_instance(&roles->device, device->destroy);
    for (uint32_t role = 1; role < XR_ROLES; role++)
        xr_host_free(roles->named[role].host);
    xr_padding_free(&roles->padding);
    free(roles);
}

/* ---- in a Workhorse ----------------------------------------------------- */

static xray_status create_comm(xr_roles *roles, const xr_rank_link *link,
                               xr_err *err)
{
    const xr_part *part = roles->comm.part;
    const xray_comm_ops *ops = (const xray_comm_ops *)part->ops;
    xray_comm_setup setup = {
        .header = XRAY_HEADER(xray_comm_setup),
        .host = xr_host_api(part->host),
        .device = (const xray_device_ops *)roles->device.part->ops,
        .device_self = roles->device.self,
        .rank = link->rank,
        .size = roles->run->placement.size,
        .timeout_ms = (uint64_t)roles->run->ini.run.comm_timeout / 1000000,
        .trace = link->trace,
        .traces = link->traces,
        .trace_stride = link->trace_stride,
        .gather_ctx = link->gather_ctx,
        .gather = link->gather,
    };
    xray_status status = XR_CALL_TIMED(
        part, "create", ops->create(&setup, part->config, &roles->comm.self));
    return check_created_instance(roles, &roles->comm, status, err);
}

/* The driver has done the same, so errors are not expected. */
static xray_status plan_layouts(xr_run *run, xr_err *err)
{
    xr_errors errors = { 0 };
    xr_run_plan_layouts(run, &errors);
    xray_status status =
        errors.count ? xr_fail(err, XRAY_E_CONFIG, "%s", errors.items[0])
                     : XRAY_OK;
    xr_errors_free(&errors);
    return status;
}

static xray_status create_shard(xr_roles *roles, xr_run *run,
                                const xr_rank_link *link, xr_err *err)
{
    xray_status status = XRAY_OK;
    roles->rank = link->rank;
    roles->in_workhorse = 1;
    if (run->with & XR_WITH_ALGO)
        status = xr_create_algo_of_run(roles, run, err);
    if (status == XRAY_OK)
        status = plan_layouts(run, err);
    if (status == XRAY_OK)
        status = xr_create_device(roles, err);
    if (status != XRAY_OK)
        return status;
    if (run->placement.size > 1)
        status = create_comm(roles, link, err);
    if (status == XRAY_OK)
        status = xr_worlds_join(roles, err);
    return status == XRAY_OK ? xr_create_models(roles, err) : status;
}

xray_status xr_roles_start_rank(xr_run *run, const xr_rank_link *link,
                                xr_err *err, xr_roles **out)
{
    xr_roles *roles = xr_roles_new(run);
    *out = NULL;
    if (!roles)
        return xr_fail(err, XRAY_E_NOMEM, "out of memory");
    xray_status status = create_shard(roles, run, link, err);
    if (status == XRAY_OK)
        *out = roles;
    else
        xr_roles_free(roles);
    return status;
}
