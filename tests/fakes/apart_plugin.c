/* SPDX-License-Identifier: Apache-2.0
 *
 * A runtime that a plugin provides: that of several hosts by another name. It
 * starts all actors on this host.
 */
#include <xray/plugin.h>

#include "core/actor/actor.h"

static xray_runtime_ops ops;

static xray_status create_here(const xray_runtime_setup *setup,
                               const void *config, void **out_self)
{
    (void)config;
    return xr_hosts_runtime.create(setup, NULL, out_self);
}

__attribute__((constructor)) static void copy_ops(void)
{
    ops = xr_hosts_runtime;
    ops.create = create_here;
}

static const xray_component runtime = {
    .header = XRAY_HEADER(xray_component),
    .iface = XRAY_IFACE_RUNTIME,
    .name = "apart",
    .summary = "Processes on this host that share no memory",
    .ops = &ops,
};

static const xray_component *const components[] = { &runtime };

static const xray_plugin plugin = {
    .header = XRAY_HEADER(xray_plugin),
    .abi_needed = XRAY_ABI,
    .component_count = sizeof(components) / sizeof(components[0]),
    .name = "fake-apart",
    .version = "1.0",
    .vendor = "tests",
    .license = "Apache-2.0",
    .components = components,
};

XRAY_PLUGIN_DEFINE(fake_apart, plugin, "fake-apart", "1.0",
                   "xray.runtime/0:apart")
XRAY_PLUGIN_ENTRY(fake_apart)
