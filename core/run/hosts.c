/* SPDX-License-Identifier: Apache-2.0
 *
 * Decodes [placement] hosts, and checks [runtime] and [runtime.hosts].
 */
#include "core/run/hosts.h"

#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/str.h"
#include "core/base/tls.h"
#include "core/base/words.h"
#include "core/run/replicas.h"

/* A configuration that could not be read has no values. */
static int is_runtime(const xr_run_config *ini, const char *name)
{
    return ini->run.runtime && strcmp(ini->run.runtime, name) == 0;
}

/* Cuts "a:2" into its name and number; returns the fault, or NULL. */
static const char *read_host(const char *text, char *out_name,
                             int64_t *out_slots)
{
    const size_t length = strcspn(text, ":");
    *out_slots = 1;
    if (length == 0 || length >= XR_HOST_NAME_CAP || text[0] == '-' ||
        strspn(text, XR_HOST_NAME_CHARACTERS) < length)
        return "is not the name of a host: use letters, digits, '.', '-' and "
               "'_'";
    memcpy(out_name, text, length);
    out_name[length] = '\0';
    if (text[length] && (xr_parse_int(text + length + 1, out_slots) ||
                         *out_slots < 1 || *out_slots > XR_MAX_RANKS))
        return "has no number of ranks after the colon";
    return NULL;
}

static int is_named_before(const xray_list *hosts, uint64_t at,
                           const char *name)
{
    const size_t length = strlen(name);
    for (uint64_t i = 0; i < at; i++)
        if (strcspn(hosts->items[i], ":") == length &&
            strncmp(hosts->items[i], name, length) == 0)
            return 1;
    return 0;
}

/* Gives the next ranks to the hosts in their order. */
static void assign_ranks(const xr_config *config, const xr_run_config *ini,
                         xr_placement *placement, xr_errors *errors)
{
    const xray_list *hosts = &ini->placement.hosts;
    const char *at = xr_config_location(config, "placement", "hosts");
    char name[XR_HOST_NAME_CAP];
    uint32_t rank = 0;
    placement->most_here = 1;
    for (uint64_t i = 0; i < hosts->count; i++) {
        int64_t slots = 0;
        const char *wrong = read_host(hosts->items[i], name, &slots);
        if (!wrong && is_named_before(hosts, i, name))
            wrong = "names a host twice; give the number of all its ranks";
        if (wrong) {
            xr_errors_add(errors, "%s: [placement] hosts: \"%s\" %s", at,
                          hosts->items[i], wrong);
            return;
        }
        placement->hosts += rank < placement->size;
        placement->elsewhere |= strcmp(name, "localhost") != 0;
        for (uint32_t n = 0; n < slots && rank < placement->size; n++) {
            placement->host[rank] = (uint32_t)i;
            placement->local[rank++] = n;
            if (n >= placement->most_here)
                placement->most_here = n + 1;
        }
    }
    if (rank < placement->size)
        xr_errors_add(errors,
                      "%s: [placement] hosts has places for %u ranks, but "
                      "[run] ranks is %u",
                      at, rank, placement->size);
}

static void check_launch(const xr_config *config, const xr_run_config *ini,
                         xr_errors *errors)
{
    const char *launch = ini->runtime.launch;
    const char *at = xr_config_location(config, "runtime.hosts", "launch");
    char **words = NULL;
    xr_err err = { "" };
    if (xr_words_cut(launch, NULL, 0, &err, &words) != XRAY_OK)
        xr_errors_add(errors, "%s: [runtime.hosts] launch %s", at, err.text);
    else if (!strstr(launch, "{address}"))
        xr_errors_add(errors,
                      "%s: [runtime.hosts] launch does not say {address}, "
                      "which tells a Workhorse where its run is",
                      at);
    else if (!strstr(launch, "{host}"))
        xr_errors_add(errors, "%s: [runtime.hosts] launch does not say {host}",
                      at);
    free(words);
}

void xr_hosts_read(const xr_config *config, const xr_run_config *ini,
                   xr_placement *placement, xr_errors *errors)
{
    const xray_list *hosts = &ini->placement.hosts;
    const int built_in = is_runtime(ini, XR_HOSTS);
    if (hosts->count && (is_runtime(ini, "local") || is_runtime(ini, "auto")))
        xr_errors_add(errors,
                      "%s: [placement] hosts: with [run] runtime = %s all "
                      "ranks are on this host; set runtime = " XR_HOSTS,
                      xr_config_location(config, "placement", "hosts"),
                      ini->run.runtime);
    else if (hosts->count)
        assign_ranks(config, ini, placement, errors);
    else if (built_in)
        xr_errors_add(errors,
                      "%s: [run] runtime: hosts needs [placement] hosts, such "
                      "as a:2, b:2",
                      xr_config_location(config, "run", "runtime"));
    if (!built_in && ini->runtime.tls && !is_runtime(ini, "local") &&
        !is_runtime(ini, "auto"))
        xr_errors_add(errors,
                      "%s: [runtime] tls: [run] runtime = %s does not know it; "
                      "set runtime = " XR_HOSTS,
                      xr_config_location(config, "runtime", "tls"),
                      ini->run.runtime);
    if (!built_in)
        return;
    check_launch(config, ini, errors);
    if (placement->elsewhere && !*ini->runtime.interface)
        xr_errors_add(errors,
                      "%s: [run] runtime: hosts needs [runtime] interface, on "
                      "which other hosts reach this one",
                      xr_config_location(config, "run", "runtime"));
}

const char *xr_hosts_name(const xr_run_config *ini,
                          const xr_placement *placement, uint32_t rank,
                          char *out)
{
    int64_t slots = 0;
    if (!placement->hosts)
        return NULL;
    (void)read_host(ini->placement.hosts.items[placement->host[rank]], out,
                    &slots);
    return out;
}

void xr_hosts_check_here(const xr_config *config, const xr_run_config *ini,
                         xr_errors *errors)
{
    const char *interface = ini->runtime.interface;
    if (is_runtime(ini, XR_HOSTS) && *interface && !if_nametoindex(interface))
        xr_errors_add(errors,
                      "%s: [runtime] interface: this host has no network "
                      "interface \"%s\"",
                      xr_config_location(config, "runtime", "interface"),
                      interface);
    if (is_runtime(ini, XR_HOSTS) && ini->runtime.tls && !xr_tls_is_there())
        xr_errors_add(errors, "%s: [runtime] tls: " XR_TLS_MISSING,
                      xr_config_location(config, "runtime", "tls"));
}

/* Returns 1 if ranks that have a group together are on different hosts. */
static int spans_hosts(const xr_run *run, uint32_t role)
{
    const xr_replicas all = xr_replicas_of(run, role);
    const uint32_t *host = run->placement.host;
    /* Engines have a group per replica, other roles one of all ranks. */
    const uint32_t width =
        role == XRAY_ROLE_ROLLOUT ? all.width : all.ranks->count;
    for (uint32_t i = 0; i < all.ranks->count; i++)
        if (host[all.ranks->rank[i]] !=
            host[all.ranks->rank[i / width * width]])
            return 1;
    return 0;
}

void xr_hosts_check_tls(const xr_run *run, xr_errors *errors)
{
    static const char *const names[XRAY_ROLE_REWARD + 1] = {
        [XRAY_ROLE_ACTOR] = "actor",         [XRAY_ROLE_ROLLOUT] = "rollout",
        [XRAY_ROLE_REFERENCE] = "reference", [XRAY_ROLE_CRITIC] = "critic",
        [XRAY_ROLE_REWARD] = "reward",
    };
    if (!run->ini.runtime.tls || run->placement.hosts < 2)
        return;
    for (uint32_t role = 1; role <= XRAY_ROLE_REWARD; role++) {
        if (!xr_run_has_role(run, role) || !spans_hosts(run, role))
            continue;
        xr_errors_add(errors,
                      "%s: [runtime] tls: the collectives of [run] comm = %s "
                      "between the hosts of [placement] %s are not encrypted; "
                      "place these ranks on one host, or set tls = false and "
                      "use a network that is encrypted itself (WireGuard, "
                      "IPsec)",
                      xr_config_location(run->config, "runtime", "tls"),
                      run->ini.run.comm, names[role]);
        return;
    }
}
