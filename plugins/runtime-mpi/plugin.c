/* SPDX-License-Identifier: Apache-2.0
 *
 * Describes the plugin runtime-mpi: its option and its component.
 */
#include <xray/plugin.h>

#include "plugins/runtime-mpi/launcher.h"

static const xray_option options[] = {
    XRAY_STRING(mpi_config, library, "", 0u, "0.1",
                "File or name of the library of MPI, which must be that of "
                "mpirun or srun; empty: the environment variable "
                "XRAY_MPI_LIBRARY, else the one that is found."),
};

static const xray_component component = {
    .header = XRAY_HEADER(xray_component),
    .iface = XRAY_IFACE_LAUNCHER,
    .name = "mpi",
    .summary = "Workhorses that mpirun or srun started",
    .ops = &mpi_ops,
    .options = options,
    .option_count = sizeof(options) / sizeof(options[0]),
    .option_stride = sizeof(xray_option),
    .config_size = sizeof(mpi_config),
};

static const xray_component *const components[] = { &component };

static const xray_plugin plugin = {
    .header = XRAY_HEADER(xray_plugin),
    .abi_needed = XRAY_ABI_NEEDED,
    .component_count = 1,
    .name = "runtime-mpi",
    .version = "0.1.0",
    .vendor = "xray",
    .license = "Apache-2.0",
    .components = components,
};

XRAY_PLUGIN_DEFINE(runtime_mpi, plugin, "runtime-mpi", "0.1.0",
                   "xray.launcher/0:mpi")
