/* SPDX-License-Identifier: Apache-2.0
 *
 * Finds the launcher of a configuration before anything of its run is created,
 * and becomes what that says.
 */
#define _GNU_SOURCE /* pipe2 */
#include "core/cli/enter.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/system_error.h"
#include "core/cli/cli.h"
#include "core/plugin/guard.h"

static int is_provided(const xr_plugins *plugins, const char *name)
{
    xr_str want = { 0 };
    int found = 0;
    xr_str_printf(&want, XRAY_IFACE_LAUNCHER ":%s", name);
    for (size_t i = 0; i < xr_plugins_count(plugins) && !found; i++) {
        const char *text = xr_str_text(&want);
        const char *at = xr_plugins_at(plugins, i)->provides;
        for (at = at ? strstr(at, text) : NULL; at && !found;
             at = strstr(at + 1, text))
            found = at[want.size] == '\0' || at[want.size] == ' ';
    }
    xr_str_free(&want);
    return found;
}

/* Faults of the configuration are reported by the run, which reads it again. */
static xray_status read_options(cli_entry *entry,
                                const xray_component *component,
                                xr_config *config, xr_err *err)
{
    xr_errors errors = { 0 };
    xr_config *empty = config ? NULL : xr_config_new();
    if (config || empty)
        entry->config = xr_component_config(config ? config : empty, component,
                                            NULL, &errors);
    xray_status status =
        entry->config
            ? XRAY_OK
            : xr_fail(err, XRAY_E_CONFIG, "%s",
                      errors.count ? errors.items[0] : "out of memory");
    xr_errors_free(&errors);
    xr_config_free(empty);
    return status;
}

static xray_status ask_launcher(cli_entry *entry,
                                const xray_component *component,
                                const char *address, xr_err *err,
                                xray_launch_entry *out)
{
    const xray_launcher_ops *ops = (const xray_launcher_ops *)component->ops;
    const struct {
        const char *instance;
    } part = { xr_host_instance(entry->host) };
    xray_status status = XR_CALL(
        &part, "enter",
        ops->enter(xr_host_api(entry->host), entry->config, address, out));
    if (status != XRAY_OK)
        return xr_host_error(entry->host, status, "enter", err);
    if (out->kind == XRAY_ENTRY_DRIVER || out->kind == XRAY_ENTRY_WORKHORSE)
        return XRAY_OK;
    return xr_fail(err, XRAY_E_BUG, "%s: enter gave the kind %u", part.instance,
                   out->kind);
}

xray_status cli_entry_ask(cli_entry *entry, const char *name,
                          const char *folders, xr_config *config,
                          const char *address, xr_err *err,
                          xray_launch_entry *out)
{
    const xray_component *component = NULL;
    char section[XR_SECTION_CAP];
    *entry = (cli_entry){ .plugins = NULL };
    *out = (xray_launch_entry){ .header = XRAY_HEADER(xray_launch_entry) };
    xray_status status = xr_plugins_open(folders, err, &entry->plugins);
    if (status != XRAY_OK || !is_provided(entry->plugins, name))
        return status;
    status = xr_plugins_find(entry->plugins, XRAY_IFACE_LAUNCHER, name, err,
                             &component);
    if (status != XRAY_OK)
        return status;
    const xray_launcher_ops *ops = (const xray_launcher_ops *)component->ops;
    if (!XRAY_HAS(xray_launcher_ops, ops, enter))
        return XRAY_OK;
    entry->host = xr_host_new(xr_component_section(component, section), NULL);
    if (!entry->host)
        return xr_fail(err, XRAY_E_NOMEM, "%s: out of memory", name);
    status = read_options(entry, component, config, err);
    return status == XRAY_OK ? ask_launcher(entry, component, address, err, out)
                             : status;
}

void cli_entry_close(cli_entry *entry)
{
    free(entry->config);
    xr_host_free(entry->host);
    xr_plugins_close(entry->plugins);
    *entry = (cli_entry){ .plugins = NULL };
}

/* Makes the token the first line of the standard input, whose other end stays
 * open until the process ends. */
static xray_status take_token(const char *token, xr_err *err)
{
    int ends[2] = { -1, -1 };
    xr_str line = { 0 };
    xr_str_printf(&line, "%s\n", token);
    int bad = line.failed ? ENOMEM : pipe2(ends, O_CLOEXEC) ? errno : 0;
    if (!bad && write(ends[1], line.data, line.size) != (ssize_t)line.size)
        bad = errno;
    if (!bad && dup2(ends[0], STDIN_FILENO) < 0)
        bad = errno;
    if (ends[0] >= 0)
        (void)close(ends[0]);
    xr_str_free(&line);
    return bad ? xr_fail(err, XRAY_E_IO, "the token of the run: %s",
                         XR_SYSTEM_ERROR(bad))
               : XRAY_OK;
}

int cli_serve_entry(const xray_launch_entry *what)
{
    xr_err err = { "" };
    char address[sizeof(what->address)];
    char *const args[] = { address, NULL };
    (void)snprintf(address, sizeof(address), "%s", what->address);
    if (take_token(what->token, &err) == XRAY_OK)
        return cli_workhorse(args);
    cli_say("workhorse: %s", err.text);
    return CLI_FAILED;
}

int cli_enter(cli_entry *entry, xr_config *config, const char *folders,
              int *out_code)
{
    const char *name = xr_config_get(config, "run", "runtime");
    xray_launch_entry what = { .kind = 0 };
    xr_err err = { "" };
    *entry = (cli_entry){ .plugins = NULL };
    if (!name || xr_config_unread(config))
        return 0;
    xray_status status =
        cli_entry_ask(entry, name, folders, config, NULL, &err, &what);
    if (status == XRAY_OK && what.kind == XRAY_ENTRY_WORKHORSE)
        *out_code = cli_serve_entry(&what);
    else if (status == XRAY_OK)
        return 0;
    else
        *out_code = cli_fail(status, &err);
    cli_entry_close(entry);
    return 1;
}
