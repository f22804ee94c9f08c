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

/* Checks what the launcher of an engine needs; it chooses the hosts. */
static void check_engine(const xr_config *config, const xr_run_config *ini,
                         xr_placement *placement, xr_errors *errors)
{
    placement->elsewhere = 1;
    if (ini->placement.hosts.count)
        xr_errors_add(errors,
                      "%s: [placement] hosts: with [run] runtime = %s the "
                      "engine chooses the hosts; leave the key out",
                      xr_config_location(config, "placement", "hosts"),
                      ini->run.runtime);
    if (!*ini->runtime.interface)
        xr_errors_add(errors,
                      "%s: [run] runtime: %s needs [runtime] interface, on "
                      "which its Workhorses reach this host, such as eth0, or "
                      "lo if the engine has this host only",
                      xr_config_location(config, "run", "runtime"),
                      ini->run.runtime);
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
    if (placement->engine == XR_ENGINE_CHOOSES) {
        check_engine(config, ini, placement, errors);
        return;
    }
    if (hosts->count && (is_runtime(ini, "local") || is_runtime(ini, "auto")))
        xr_errors_add(errors,
                      "%s: [placement] hosts: with [run] runtime = %s all "
                      "ranks are on this host; set runtime = " XR_HOSTS,
                      xr_config_location(config, "placement", "hosts"),
                      ini->run.runtime);
    else if (hosts->count)
        assign_ranks(config, ini, placement, errors);
    else if (placement->engine)
        xr_errors_add(errors,
                      "%s: [placement] hosts: this Workhorse was not told what "
                      "the engine chose",
                      xr_config_location(config, "placement", "hosts"));
    else if (built_in)
        xr_errors_add(errors,
                      "%s: [run] runtime: hosts needs [placement] hosts, such "
                      "as a:2, b:2",
                      xr_config_location(config, "run", "runtime"));
    if (!built_in && !placement->engine && ini->runtime.tls &&
        !is_runtime(ini, "local") && !is_runtime(ini, "auto"))
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

int xr_hosts_on(const xr_run *run)
{
    return run->placement.engine || is_runtime(&run->ini, XR_HOSTS);
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

void xr_hosts_check_here(const xr_run *run, xr_errors *errors)
{
    const xr_config *config = run->config;
    const xr_run_config *ini = &run->ini;
    const char *interface = ini->runtime.interface;
    const int on_hosts = xr_hosts_on(run);
    if (on_hosts && *interface && !if_nametoindex(interface))
        xr_errors_add(errors,
                      "%s: [runtime] interface: this host has no network "
                      "interface \"%s\"",
                      xr_config_location(config, "runtime", "interface"),
                      interface);
    if (on_hosts && ini->runtime.tls && !xr_tls_is_there())
        xr_errors_add(errors, "%s: [runtime] tls: " XR_TLS_MISSING,
                      xr_config_location(config, "runtime", "tls"));
}

/* ---- hosts that an engine chose ------------------------------------------ */

static xray_status refuse_host(const xr_run *run, uint32_t rank,
                               const char *name, const char *why, xr_err *err)
{
    return xr_fail(err, XRAY_E_BUG, "%s: the host of rank %u, \"%s\", %s",
                   run->launcher.instance, rank, name, why);
}

/* The first rank on a host of this name. */
static uint32_t find_first(const char *const *names, uint32_t rank)
{
    uint32_t first = 0;
    while (strcmp(names[first], names[rank]) != 0)
        first++;
    return first;
}

static xray_status place_rank(xr_run *run, const char *const *names,
                              uint32_t rank, xr_err *err)
{
    xr_placement *placement = &run->placement;
    const char *name = names[rank];
    if (!name || !*name || *name == '-' || strlen(name) >= XR_HOST_NAME_CAP ||
        strspn(name, XR_HOST_NAME_CHARACTERS) < strlen(name))
        return refuse_host(run, rank, name ? name : "",
                           "is not the name of a host: use letters, digits, "
                           "'.', '-' and '_'",
                           err);
    const uint32_t first = find_first(names, rank);
    const uint32_t local = rank - first;
    if (local && strcmp(names[rank - 1], name) != 0)
        return refuse_host(run, rank, name, "has places that are no neighbours",
                           err);
    placement->hosts += !local;
    placement->host[rank] = placement->hosts - 1;
    placement->local[rank] = local;
    if (local >= placement->most_here)
        placement->most_here = local + 1;
    return XRAY_OK;
}

xray_status xr_hosts_place(xr_run *run, const char *const *names, xr_str *out,
                           xr_err *err)
{
    xr_placement *placement = &run->placement;
    xray_status status = XRAY_OK;
    placement->hosts = 0;
    placement->most_here = 1;
    for (uint32_t r = 0; r < placement->size && status == XRAY_OK; r++)
        status = place_rank(run, names, r, err);
    if (status != XRAY_OK)
        return status;
    for (uint32_t r = 0; r < placement->size; r++) {
        const uint32_t ends = r + 1 == placement->size ||
                              placement->host[r + 1] != placement->host[r];
        if (ends)
            xr_str_printf(out, "%s%s:%u", placement->host[r] ? ", " : "",
                          names[r], placement->local[r] + 1);
    }
    return out->failed ? xr_fail(err, XRAY_E_NOMEM, "out of memory for hosts")
                       : XRAY_OK;
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
