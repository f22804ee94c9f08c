/* SPDX-License-Identifier: Apache-2.0
 *
 * Calls the launcher of a run. Each call is recorded, so that a crash or a hang
 * names the plugin.
 */
#include "core/roles/launched.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/str.h"
#include "core/plugin/cancel.h"
#include "core/roles/launch_setup.h"
#include "core/run/hosts.h"
#include "core/run/run_setup.h"

struct xr_launched {
    const xr_part *part;
    void *self;
    const char **names; /* [size] of the hosts of the ranks */
    xr_str hosts;
    char program[XR_PATH_CAP];
};

static const xray_launcher_ops *ops_of(const xr_part *part)
{
    return (const xray_launcher_ops *)part->ops;
}

/* ---- calls of an instance ------------------------------------------------ */

static const char *host_of(void *self, uint32_t index)
{
    const xr_launched *at = self;
    xr_guard_enter(at->part->instance, "host_of", 1);
    const char *name = ops_of(at->part)->host_of(at->self, index);
    (void)xr_guard_leave(XRAY_OK);
    return name;
}

static xray_status start_process(void *self, const xray_launch *launch)
{
    const xr_launched *at = self;
    return XR_CALL_TIMED(at->part, "start",
                         ops_of(at->part)->start(at->self, launch));
}

static void stop_process(void *self, uint32_t index)
{
    const xr_launched *at = self;
    xr_guard_enter(at->part->instance, "stop", 0);
    ops_of(at->part)->stop(at->self, index);
    (void)xr_guard_leave(XRAY_OK);
}

static int32_t give_events(void *self)
{
    const xr_launched *at = self;
    xr_guard_enter(at->part->instance, "events", 1);
    const int32_t fd = ops_of(at->part)->events(at->self);
    (void)xr_guard_leave(XRAY_OK);
    return fd;
}

static xray_status take_event(void *self, xray_launch_event *out)
{
    const xr_launched *at = self;
    return XR_CALL_TIMED(at->part, "next",
                         ops_of(at->part)->next(at->self, out));
}

const xray_launcher_ops xr_launched_ops = {
    .header = XRAY_HEADER(xray_launcher_ops),
    .host_of = host_of,
    .start = start_process,
    .stop = stop_process,
    .events = give_events,
    .next = take_event,
};

/* ---- the instance -------------------------------------------------------- */

/* It may wait for places, for which the user need not wait. */
static xray_status create_instance(const xr_run *run, xr_launched *at,
                                   xr_err *err)
{
    const xr_part *part = &run->launcher;
    xr_launch_setup setup;
    xray_status status = xr_launch_setup_fill(run, err, &setup);
    if (status != XRAY_OK)
        return status;
    memcpy(at->program, setup.program, sizeof(at->program));
    xr_cancel_at_once(1);
    status =
        XR_CALL(part, "create",
                ops_of(part)->create(&setup.given, part->config, &at->self));
    xr_cancel_at_once(0);
    xr_launch_setup_free(&setup);
    if (status != XRAY_OK)
        return xr_host_error(part->host, status, "create", err);
    if (at->self)
        return XRAY_OK;
    return xr_fail(err, XRAY_E_BUG,
                   "%s: create gave neither an instance nor an error",
                   part->instance);
}

static xray_status place_ranks(xr_run *run, xr_launched *at, xr_err *err)
{
    xr_errors errors = { 0 };
    for (uint32_t r = 0; r < run->placement.size; r++)
        at->names[r] = host_of(at, r);
    xray_status status = xr_hosts_place(run, at->names, &at->hosts, err);
    if (status != XRAY_OK)
        return status;
    xr_hosts_check_tls(run, &errors);
    if (errors.count)
        status = xr_fail(err, XRAY_E_CONFIG, "%s", errors.items[0]);
    xr_errors_free(&errors);
    return status;
}

xray_status xr_launched_open(xr_run *run, xr_err *err, xr_launched **out)
{
    xr_launched *at = xr_calloc(1, sizeof(*at));
    const char **names = xr_calloc(run->placement.size, sizeof(*names));
    if (!at || !names) {
        free(at);
        free(names);
        return xr_fail(err, XRAY_E_NOMEM, "out of memory for the launcher");
    }
    at->part = &run->launcher;
    at->names = names;
    xray_status status = create_instance(run, at, err);
    if (status == XRAY_OK)
        status = place_ranks(run, at, err);
    if (status == XRAY_OK)
        *out = at;
    else
        xr_launched_close(at);
    return status;
}

void xr_launched_close(xr_launched *launched)
{
    if (!launched)
        return;
    if (launched->self) {
        xr_guard_enter(launched->part->instance, "destroy", 0);
        ops_of(launched->part)->destroy(launched->self);
        (void)xr_guard_leave(XRAY_OK);
    }
    xr_str_free(&launched->hosts);
    free(launched->names);
    free(launched);
}

void xr_launched_explain(const xr_launched *launched, xr_err *err)
{
    (void)xr_host_append(launched->part->host, err);
}

const char *xr_launched_program(const xr_launched *launched)
{
    return launched->program;
}

const char *xr_launched_hosts(const xr_launched *launched)
{
    return xr_str_text(&launched->hosts);
}

const char *xr_launched_host_of(const xr_launched *launched, uint32_t rank)
{
    return launched->names[rank];
}

int xr_launched_enters(const xr_run *run)
{
    const xray_launcher_ops *ops = ops_of(&run->launcher);
    return ops && XRAY_HAS(xray_launcher_ops, ops, enter);
}

/* ---- calls without an instance ------------------------------------------- */

xray_status xr_launched_check(const xr_run *run, xr_err *err)
{
    const xr_part *part = &run->launcher;
    const xray_launcher_ops *ops = ops_of(part);
    xr_launch_setup setup;
    if (!XRAY_HAS(xray_launcher_ops, ops, check))
        return XRAY_OK;
    xray_status status = xr_launch_setup_fill(run, err, &setup);
    if (status != XRAY_OK)
        return status;
    status = XR_CALL(part, "check", ops->check(&setup.given, part->config));
    xr_launch_setup_free(&setup);
    return status == XRAY_OK ? XRAY_OK
                             : xr_host_error(part->host, status, "check", err);
}

xray_status xr_launched_submit(const xr_run *run, const char **argv,
                               xr_err *err, int32_t *out_exit)
{
    const xr_part *part = &run->launcher;
    const xray_launcher_ops *ops = ops_of(part);
    xr_launch_setup setup;
    if (!XRAY_HAS(xray_launcher_ops, ops, submit))
        return xr_fail(err, XRAY_E_UNSUPPORTED,
                       "%s: [run] runtime: %s takes no jobs; start the run "
                       "with xray train",
                       xr_config_location(run->config, "run", "runtime"),
                       run->ini.run.runtime);
    xray_status status = xr_launch_setup_fill(run, err, &setup);
    if (status != XRAY_OK)
        return status;
    argv[0] = setup.program;
    status = XR_CALL(part, "submit",
                     ops->submit(&setup.given, part->config, argv, out_exit));
    xr_launch_setup_free(&setup);
    if (status == XRAY_OK)
        return XRAY_OK;
    (void)xr_host_error(part->host, status, "submit", err);
    xr_run_locate(run, err);
    return status;
}
