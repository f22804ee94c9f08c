/* SPDX-License-Identifier: Apache-2.0
 *
 * The plugin of the runtime without shared memory.
 */
#include <xray/plugin.h>

#include "tests/fakes/apart.h"

static const xray_component runtime = {
    .header = XRAY_HEADER(xray_component),
    .iface = XRAY_IFACE_RUNTIME,
    .name = "apart",
    .summary = "Processes on this host that share no memory",
    .ops = &apart_runtime,
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
