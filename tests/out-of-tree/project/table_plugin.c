/* SPDX-License-Identifier: Apache-2.0
 *
 * Describes the plugin with the table's training and inference backends.
 */
#include <xray/plugin.h>

#include "table.h"

static const xray_component train = {
    .header = XRAY_HEADER(xray_component),
    .iface = XRAY_IFACE_TRAIN,
    .name = "table",
    .summary = "A table of logits, trained by gradient descent",
    .ops = &table_train_ops,
    .numerics = TABLE_NUMERICS,
};

static const xray_component infer = {
    .header = XRAY_HEADER(xray_component),
    .iface = XRAY_IFACE_INFER,
    .name = "table",
    .summary = "Draws from a table of logits",
    .ops = &table_infer_ops,
    .numerics = TABLE_NUMERICS,
};

static const xray_component *const components[] = { &train, &infer };

static const xray_plugin plugin = {
    .header = XRAY_HEADER(xray_plugin),
    .abi_needed = XRAY_ABI_NEEDED,
    .component_count = 2,
    .name = "backend-table",
    .version = "1.0.0",
    .vendor = "a third party",
    .license = "Apache-2.0",
    .components = components,
};

XRAY_PLUGIN_DEFINE(backend_table, plugin, "backend-table", "1.0.0",
                   "xray.train/0:table xray.infer/0:table")
