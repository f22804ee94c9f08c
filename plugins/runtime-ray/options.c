/* SPDX-License-Identifier: Apache-2.0
 *
 * Describes the plugin runtime-ray: its options and its component.
 */
#include "plugins/runtime-ray/ray.h"

static const xray_choice placements[] = {
    { "pack", RAY_PACK, "on as few nodes as possible" },
    { "spread", RAY_SPREAD, "on as many nodes as possible" },
    { "strict_pack", RAY_STRICT_PACK, "on one node" },
    { NULL, 0, NULL },
};

static const xray_option options[] = {
    XRAY_STRING(ray_config, address, "auto", 0u, "0.1",
                "The cluster: HOST:PORT of its head, or auto for RAY_ADDRESS "
                "and then the cluster that this host is a node of. For `xray "
                "submit` also http://HEAD:8265, that of the dashboard."),
    XRAY_CHOICE(ray_config, placement, "pack", placements, 0u, "0.1",
                "The nodes on which Ray places the Workhorses."),
    XRAY_LIST(ray_config, resources, "", 0u, "0.1",
              "Further resources of Ray that each Workhorse needs, as "
              "NAME:AMOUNT."),
    XRAY_STRING(ray_config, namespace, "", 0u, "0.1",
                "Ray's namespace of the launchers; empty: one of their own."),
    XRAY_STRING(ray_config, runtime_env, "", 0u, "0.1",
                "Ray's runtime_env of the launchers, from which Workhorses "
                "have their environment: an object of JSON, or the path of a "
                "file with one."),
    XRAY_BOOL(ray_config, autoscale, "false", 0u, "0.1",
              "The cluster adds nodes when they are asked for, so a run waits "
              "for what its nodes do not have; else that is an error."),
    XRAY_STRING(ray_config, python, "python3", 0u, "0.1",
                "The Python that has the package ray of the cluster's "
                "version."),
};

static const xray_component component = {
    .header = XRAY_HEADER(xray_component),
    .iface = XRAY_IFACE_LAUNCHER,
    .name = "ray",
    .summary = "Workhorses on the nodes of a Ray cluster",
    .ops = &ray_ops,
    .options = options,
    .option_count = sizeof(options) / sizeof(options[0]),
    .option_stride = sizeof(xray_option),
    .config_size = sizeof(ray_config),
};

static const xray_component *const components[] = { &component };

static const xray_plugin plugin = {
    .header = XRAY_HEADER(xray_plugin),
    .abi_needed = XRAY_ABI_NEEDED,
    .component_count = 1,
    .name = "runtime-ray",
    .version = "0.1.0",
    .vendor = "xray",
    .license = "Apache-2.0",
    .components = components,
};

XRAY_PLUGIN_DEFINE(runtime_ray, plugin, "runtime-ray", "0.1.0",
                   "xray.launcher/0:ray")
