/* SPDX-License-Identifier: Apache-2.0
 *
 * Loads a plugin's shared object, queries its descriptor, and compares it with
 * the note.
 */
#define _GNU_SOURCE /* dladdr, dlinfo */
#include <dlfcn.h>
#include <link.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/plugin/guard.h"
#include "core/plugin/internal.h"

/* dlsym also searches the object's dependencies, but only its own symbol
 * counts; otherwise a library linked to a plugin would pass for one. */
static void *find_own_symbol(void *object, const char *name)
{
    struct link_map *map = NULL;
    Dl_info info;
    void *symbol = dlsym(object, name);
    if (!symbol || dladdr(symbol, &info) == 0 ||
        dlinfo(object, RTLD_DI_LINKMAP, (void *)&map) != 0)
        return NULL;
    return (uintptr_t)info.dli_fbase == map->l_addr ? symbol : NULL;
}

static int has_component(const xray_plugin *plugin, const char *iface,
                         size_t size, const char *name, size_t name_size)
{
    for (uint32_t i = 0; i < plugin->component_count; i++) {
        const xray_component *c = plugin->components[i];
        if (strlen(c->iface) == size && strlen(c->name) == name_size &&
            memcmp(c->iface, iface, size) == 0 &&
            memcmp(c->name, name, name_size) == 0)
            return 1;
    }
    return 0;
}

/* Listing trusts the note, so it must match the components of the code. */
static xray_status compare_note(const xray_plugin *plugin, const char *path,
                                const xr_manifest *manifest, xr_err *err)
{
    uint32_t count = 0;
    const char *at = manifest->provides;
    for (at += strspn(at, " "); *at; at += strspn(at, " ")) {
        size_t size = strcspn(at, " ");
        const char *colon = memchr(at, ':', size);
        size_t iface = colon ? (size_t)(colon - at) : size;
        if (!colon ||
            !has_component(plugin, at, iface, colon + 1, size - iface - 1))
            return xr_fail(
                err, XRAY_E_ABI,
                "%s: its note lists %.*s, which the plugin does not provide",
                path, (int)size, at);
        count++;
        at += size;
    }
    if (count != plugin->component_count)
        return xr_fail(
            err, XRAY_E_ABI,
            "%s: its note lists %u components, but the plugin has %u", path,
            count, plugin->component_count);
    return XRAY_OK;
}

/* Constructors of the object run in this function. */
static xray_status open_object(const char *path, xr_err *err, void **out)
{
    char slashed[XR_PATH_CAP];
    /* dlopen would search for a bare name elsewhere. */
    int size = snprintf(slashed, sizeof(slashed), "%s%s",
                        strchr(path, '/') ? "" : "./", path);
    if (size <= 0 || (size_t)size >= sizeof(slashed))
        return xr_fail(err, XRAY_E_IO, "%.200s...: its name is too long", path);
    xr_trial_mark('L');
    xr_guard_enter(path, "load", 1);
    *out = dlopen(slashed, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    (void)xr_guard_leave(XRAY_OK);
    if (*out)
        return XRAY_OK;
    const char *why = dlerror();
    return xr_fail(err, XRAY_E_IO, "%s: cannot be loaded: %s", path,
                   why ? why : "no reason was given");
}

static xray_status query_object(void *object, const char *path, xr_err *err,
                                const xray_plugin **out)
{
    xray_plugin_query_fn query = NULL;
    void *symbol = find_own_symbol(object, XRAY_PLUGIN_QUERY);
    memcpy(&query, &symbol, sizeof(query));
    if (!query)
        return xr_fail(err, XRAY_E_ABI,
                       "%s: exports no " XRAY_PLUGIN_QUERY
                       " of its own; XRAY_PLUGIN_ENTRY defines it",
                       path);
    xr_trial_mark('Q');
    xr_guard_enter(path, "query", 1);
    *out = query(XRAY_ABI);
    (void)xr_guard_leave(XRAY_OK);
    if (*out)
        return XRAY_OK;
    return xr_fail(err, XRAY_E_ABI, "%s: refuses xray ABI %u.%u", path,
                   XRAY_ABI_MAJOR, XRAY_ABI_MINOR);
}

xray_status xr_plugin_load(const char *path, xr_err *err,
                           const xray_plugin **out)
{
    xr_manifest manifest;
    const xray_plugin *plugin = NULL;
    void *object = NULL;
    xray_status status = xr_manifest_read(path, err, &manifest);
    if (status != XRAY_OK)
        return status;
    if (xr_trial_wanted(path))
        status = xr_trial_run(path, err);
    if (status != XRAY_OK)
        return status;
    status = open_object(path, err, &object);
    if (status != XRAY_OK)
        return status;
    status = query_object(object, path, err, &plugin);
    if (status != XRAY_OK)
        return status;
    status = xr_plugin_check(plugin, path, err);
    if (status != XRAY_OK)
        return status;
    status = compare_note(plugin, path, &manifest, err);
    if (status != XRAY_OK)
        return status;
    *out = plugin;
    return XRAY_OK;
}
