/* SPDX-License-Identifier: Apache-2.0
 *
 * Finds the components that a run selects, with their options and hosts.
 */
#include "core/run/run_setup.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/str.h"

/* "xray.train/0" -> "train", the name of the interface in the INI. */
static void interface_kind(const char *iface, char *out, size_t cap)
{
    const char *dot = strchr(iface, '.');
    const char *kind = dot ? dot + 1 : iface;
    /* [run] runtime names launchers, too. */
    if (strcmp(iface, XRAY_IFACE_LAUNCHER) == 0)
        kind = "runtime";
    (void)snprintf(out, cap, "%.*s", (int)strcspn(kind, "/"), kind);
}

/* If the component is missing, its options are unknown, so its section is
 * ignored rather than reported. */
void xr_run_find_part(xr_run *run, xr_part *part, const char *iface,
                      const char *name, const char *section, xr_errors *errors)
{
    xr_err err = { "" };
    char kind[32];
    char instance[128];
    interface_kind(iface, kind, sizeof(kind));
    (void)snprintf(instance, sizeof(instance), "%s.%s", kind, name);
    if (xr_plugins_find(run->plugins, iface, name, &err, &part->component) !=
        XRAY_OK) {
        part->component = NULL;
        int tracker = strcmp(kind, "tracker") == 0;
        const char *where = section ? section : tracker ? "trainer" : "run";
        const char *key = section ? "plugin" : tracker ? "logger" : kind;
        xr_errors_add(errors, "%s: [%s] %s: %s",
                      xr_config_location(run->config, where, key), where, key,
                      err.text);
        xr_config_ignore(run->config, section ? section : instance);
        return;
    }
    part->ops = part->component->ops;
    part->host = xr_host_new(section ? section : instance, &run->sink);
    part->config =
        xr_component_config(run->config, part->component, section, errors);
    if (!part->host)
        xr_errors_add(errors, "out of memory");
    else
        part->instance = xr_host_instance(part->host);
}

static int is_provided(const xr_run *run, const char *want)
{
    size_t size = strlen(want);
    for (size_t i = 0; i < xr_plugins_count(run->plugins); i++) {
        const char *at = xr_plugins_at(run->plugins, i)->provides;
        for (at = at ? strstr(at, want) : NULL; at; at = strstr(at + 1, want))
            if (at[size] == '\0' || at[size] == ' ')
                return 1;
    }
    return 0;
}

int xr_run_provides(const xr_run *run, const char *section)
{
    char want[192];
    const char *dot = strchr(section, '.');
    (void)snprintf(want, sizeof(want), "xray.%.*s/0:%s", (int)(dot - section),
                   section, dot + 1);
    return is_provided(run, want) || (strncmp(section, "runtime.", 8) == 0 &&
                                      xr_run_has_launcher(run, dot + 1));
}

int xr_run_has_launcher(const xr_run *run, const char *name)
{
    char want[192];
    (void)snprintf(want, sizeof(want), XRAY_IFACE_LAUNCHER ":%s", name);
    return is_provided(run, want);
}

static void drop_part(xr_part *part)
{
    free(part->config);
    free(part->section);
    xr_host_free(part->host);
    *part = (xr_part){ 0 };
}

void xr_run_drop_parts(xr_run *run)
{
    xr_part *const parts[] = { &run->algo,     &run->infer,   &run->train,
                               &run->launcher, &run->runtime, &run->comm,
                               &run->device };
    for (size_t i = 0; i < run->reward_count; i++)
        drop_part(&run->rewards[i]);
    for (size_t i = 0; i < run->tracker_count; i++)
        drop_part(&run->trackers[i]);
    for (size_t i = 0; i <= XRAY_ROLE_REWARD; i++)
        drop_part(&run->role_parts[i]);
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
        drop_part(parts[i]);
    free(run->reward_model_config);
    run->reward_model_config = NULL;
}
