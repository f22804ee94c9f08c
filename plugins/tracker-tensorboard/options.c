/* SPDX-License-Identifier: Apache-2.0
 *
 * Describes the plugin tracker-tensorboard: its option and its component.
 */
#include <xray/plugin.h>

#include "plugins/tracker-tensorboard/tensorboard.h"

static const xray_option options[] = {
    XRAY_PATH(tb_config, dir, "", 0u, "0.1",
              "Folder of the event files, for this run alone; empty: the "
              "folder tensorboard in [trainer] default_local_dir."),
};

static const xray_component component = {
    .header = XRAY_HEADER(xray_component),
    .iface = XRAY_IFACE_TRACKER,
    .name = "tensorboard",
    .summary = "Event files that TensorBoard shows",
    .ops = &tb_ops,
    .options = options,
    .option_count = sizeof(options) / sizeof(options[0]),
    .option_stride = sizeof(xray_option),
    .config_size = sizeof(tb_config),
};

static const xray_component *const components[] = { &component };

static const xray_plugin plugin = {
    .header = XRAY_HEADER(xray_plugin),
    .abi_needed = XRAY_ABI_NEEDED,
    .component_count = 1,
    .name = "tracker-tensorboard",
    .version = "0.1.0",
    .vendor = "xray",
    .license = "Apache-2.0",
    .components = components,
};

XRAY_PLUGIN_DEFINE(tracker_tensorboard, plugin, "tracker-tensorboard", "0.1.0",
                   "xray.tracker/0:tensorboard")
