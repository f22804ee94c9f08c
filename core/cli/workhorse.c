/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs the program as a Workhorse, which a run starts, never a user.
 */
#include <string.h>

#include "core/cli/cli.h"
#include "core/cli/enter.h"
#include "core/plugin/plugin.h"
#include "core/roles/workhorse.h"

static xray_status serve_workhorse(const xray_runtime_ops *ops,
                                   const xray_host *host, const char *address,
                                   xr_err *err)
{
    static const xr_actor_class *const classes[] = { &xr_workhorse_class };
    return xr_actor_serve(classes, 1, ops, host, address, err);
}

/* Serves on a runtime that a plugin provides. */
static xray_status serve_on_runtime_plugin(const char *name,
                                           const char *folders,
                                           const char *address, xr_err *err)
{
    xr_plugins *plugins = NULL;
    const xray_component *component = NULL;
    xray_status status =
        xr_plugins_open(*folders ? folders : NULL, err, &plugins);
    if (status != XRAY_OK)
        return status;
    status =
        xr_plugins_find(plugins, XRAY_IFACE_RUNTIME, name, err, &component);
    xr_host *host = status == XRAY_OK ? xr_host_new(name, NULL) : NULL;
    if (status == XRAY_OK && !host)
        status = xr_fail(err, XRAY_E_NOMEM, "%s: out of memory", name);
    if (status == XRAY_OK)
        status = serve_workhorse((const xray_runtime_ops *)component->ops,
                                 xr_host_api(host), address, err);
    xr_host_free(host);
    xr_plugins_close(plugins);
    return status;
}

static int report_end(xray_status status, const xr_err *err)
{
    if (status == XRAY_OK)
        return CLI_OK;
    if (status != XRAY_E_CANCELED) /* which the parent asked for */
        cli_say("workhorse: %s", err->text);
    return CLI_FAILED;
}

/* The name is that of a launcher, which is asked where the run is, or of a
 * runtime. */
static int serve_on_plugin(char *const *args)
{
    xr_err err = { "" };
    cli_entry entry;
    xray_launch_entry what;
    const char *folders = *args[1] ? args[1] : NULL;
    xray_status status =
        cli_entry_ask(&entry, args[0], folders, NULL, args[2], &err, &what);
    int code = CLI_OK;
    if (status != XRAY_OK)
        code = report_end(status, &err);
    else if (what.kind == XRAY_ENTRY_WORKHORSE)
        code = cli_serve_entry(&what);
    cli_entry_close(&entry);
    if (status != XRAY_OK || what.kind)
        return code;
    status = serve_on_runtime_plugin(args[0], args[1], args[2], &err);
    return report_end(status, &err);
}

int cli_workhorse(char *const *args)
{
    xr_err err = { "" };
    if (!args[1])
        return report_end(
            serve_workhorse(&xr_hosts_runtime, NULL, args[0], &err), &err);
    if (strcmp(args[0], XR_WORKHORSE_LOCAL) == 0)
        return report_end(serve_workhorse(NULL, NULL, args[2], &err), &err);
    return serve_on_plugin(args);
}
