/* SPDX-License-Identifier: Apache-2.0
 *
 * Starts the roles of a run, in this process or in Workhorses.
 */
#include "core/deepspeed/deepspeed.h"
#include "core/roles/create.h"
#include "core/roles/launched.h"
#include "core/roles/whole.h"
#include "core/roles/worlds.h"
#include "core/run/resources.h"
#include "core/run/run_setup.h"

void xr_roles_try(xr_run *run, xr_errors *errors)
{
    xr_err err = { "" };
    uint32_t needs = 0;
    xr_roles *roles = xr_roles_new(run);
    if (!roles) {
        xr_errors_add(errors, "out of memory");
        return;
    }
    for (size_t i = 0; i < run->reward_count; i++)
        if (run->rewards[i].component && run->rewards[i].config &&
            xr_create_reward(roles, &roles->rewards[i], &err) != XRAY_OK)
            xr_errors_add(errors, "%s", err.text);
    if (run->algo.component && run->algo.config) {
        if (xr_create_algo(roles, &needs, &err) == XRAY_OK)
            xr_run_apply_needs(run, needs, errors);
        else
            xr_errors_add(errors, "%s", err.text);
    }
    xr_roles_free(roles);
}

static xray_status create_rewards(xr_roles *roles, xr_err *err)
{
    xray_status status = XRAY_OK;
    for (size_t i = 0; i < roles->run->reward_count && status == XRAY_OK; i++)
        status = xr_create_reward(roles, &roles->rewards[i], err);
    return status;
}

/* Starts Workhorses, which hold the models. In this process the WholeModel
 * stands for each of them. */
static xray_status start_whole(xr_roles *roles, xr_err *err)
{
    xray_status status = XRAY_OK;
    for (uint32_t role = 1; role < XR_ROLES && status == XRAY_OK; role++)
        if (xr_run_has_role(roles->run, role) && role != XRAY_ROLE_ACTOR &&
            role != XRAY_ROLE_ROLLOUT)
            status = xr_create_role_part(roles, role, err);
    if (status == XRAY_OK)
        status = xr_whole_open(roles, err, &roles->whole);
    if (status != XRAY_OK)
        return status;
    roles->calls = &xr_whole_calls;
    for (uint32_t role = 1; role < XR_ROLES; role++)
        if (xr_run_has_role(roles->run, role))
            xr_roles_at(roles, role)->self = roles->whole;
    return XRAY_OK;
}

/* Reports what the plugins refuse, and what does not fit, before anything is
 * created. */
static xray_status check_plans(xr_run *run, xr_err *err)
{
    xr_errors errors = { 0 };
    xr_resources plans;
    xr_run_plan_layouts(run, &errors);
    xr_resources_plan(run, &errors, &plans);
    xr_resources_note_place(run, &plans);
    /* A run starts if one checkpoint fits; xray check looks at all of them. */
    if (!errors.count)
        xr_resources_check_space(run, &plans, &errors);
    xray_status status =
        errors.count ? xr_fail(err, XRAY_E_CONFIG, "%s", errors.items[0])
                     : XRAY_OK;
    xr_errors_free(&errors);
    if (status == XRAY_OK && xr_resources_check_memory(run, &plans, err) == 2)
        status = XRAY_E_CONFIG;
    return status;
}

static xray_status check_plans_and_weights(xr_run *run, xr_err *err)
{
    xray_status status = check_plans(run, err);
    return status == XRAY_OK ? xr_run_verify_models(run, err) : status;
}

/* Logs keys of a DeepSpeed JSON that have no effect. */
static void log_config_notes(const xr_run *run)
{
    for (const xr_note *n = xr_config_notes(run->config); n; n = n->next)
        if (run->sink.write && run->sink.level >= n->level)
            run->sink.write(run->sink.ctx, n->level, run->train.instance,
                            n->text);
}

static xray_status start_instances(xr_roles *roles, xr_run *run, xr_err *err)
{
    xray_status status = XRAY_OK;
    log_config_notes(run);
    if (run->with & XR_WITH_REWARD)
        status = create_rewards(roles, err);
    if (status != XRAY_OK)
        return status;
    if (run->with & XR_WITH_ALGO)
        status = xr_create_algo_of_run(roles, run, err);
    if (status != XRAY_OK)
        return status;
    if (run->with & (XR_WITH_TRAIN | XR_WITH_INFER))
        status = check_plans_and_weights(run, err);
    if (status != XRAY_OK || !run->device.component)
        return status;
    if (run->launcher.component)
        status = xr_launched_open(run, err, &roles->launched);
    if (status != XRAY_OK)
        return status;
    if (xr_run_is_remote(run))
        return start_whole(roles, err);
    status = xr_create_device(roles, err);
    if (status == XRAY_OK)
        status = xr_worlds_join(roles, err);
    return status == XRAY_OK ? xr_create_models(roles, err) : status;
}

xray_status xr_roles_start(xr_run *run, xr_err *err, xr_roles **out)
{
    xr_roles *roles = xr_roles_new(run);
    *out = NULL;
    if (!roles)
        return xr_fail(err, XRAY_E_NOMEM, "out of memory");
    xray_status status = start_instances(roles, run, err);
    if (status == XRAY_OK)
        *out = roles;
    else
        xr_roles_free(roles);
    return status;
}
