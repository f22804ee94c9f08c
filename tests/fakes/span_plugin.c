/* SPDX-License-Identifier: Apache-2.0
 *
 * The collectives of comm-shm by another name, which say that they serve
 * several hosts: for hosts that are network namespaces of one machine.
 */
#define _GNU_SOURCE /* dladdr */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <xray/comm.h>
#include <xray/plugin.h>

static uint32_t span_hosts(void)
{
    return 1;
}

static xray_comm_ops ops; /* those of comm-shm */

/* The plugin is in the folder beside that of the tests. */
static const xray_plugin *load_shm(void)
{
    Dl_info own;
    char path[4096];
    if (!dladdr((const void *)&ops, &own))
        return NULL;
    (void)snprintf(path, sizeof(path), "%s", own.dli_fname);
    char *slash = strrchr(path, '/');
    if (!slash)
        return NULL;
    (void)snprintf(slash, sizeof(path) - (size_t)(slash - path),
                   "/../../plugins/comm-shm.so");
    void *file = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    void *symbol = file ? dlsym(file, "xray_plugin_query") : NULL;
    const xray_plugin *(*query)(uint32_t);
    if (!symbol)
        return NULL;
    memcpy(&query, &symbol, sizeof(query));
    return query(XRAY_ABI);
}

__attribute__((constructor)) static void copy_ops(void)
{
    const xray_plugin *shm = load_shm();
    if (!shm)
        return;
    memcpy(&ops, shm->components[0]->ops, sizeof(ops));
    ops.spans_hosts = span_hosts;
}

static const xray_component span = {
    .header = XRAY_HEADER(xray_component),
    .iface = XRAY_IFACE_COMM,
    .name = "span",
    .summary = "processes of one machine, whose hosts are namespaces",
    .ops = &ops,
};

static const xray_component *const components[] = { &span };

static const xray_plugin plugin = {
    .header = XRAY_HEADER(xray_plugin),
    .abi_needed = XRAY_ABI,
    .component_count = 1,
    .name = "fake-span",
    .version = "1.0",
    .vendor = "tests",
    .license = "Apache-2.0",
    .components = components,
};

XRAY_PLUGIN_DEFINE(fake_span, plugin, "fake-span", "1.0", "xray.comm/0:span")
XRAY_PLUGIN_ENTRY(fake_span)
