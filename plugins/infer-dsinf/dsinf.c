/* SPDX-License-Identifier: Apache-2.0
 *
 * Declares infer-dsinf, and plans and creates its instances.
 */
#include <xray/plugin.h>

#include "plugins/infer-dsinf/dsinf.h"

/* ---- plan and create ---------------------------------------------------- */

static const xm_engine_kind kind = { .name = "dsinf",
                                     .find_bounds = dsinf_find_bounds };

static xray_status dsinf_plan(const xray_host *host, const void *config,
                              const xray_model *model, const xray_world *world,
                              const xray_workload *load, xray_plan *out)
{
    return xm_engine_plan(&kind, host, config, model, world, load, out);
}

static xray_status dsinf_create(const xray_setup *setup, const void *config,
                                const xray_workload *load, void **out_self)
{
    return xm_engine_create(&kind, setup, config, load, out_self);
}

/* ---- the component ------------------------------------------------------ */

static const xray_option options[] = {
    XM_ENGINE_WEIGHTS(dsinf_config),
    XRAY_INT(dsinf_config, max_num_seqs, "0", 0, 1048576, "sequences", 0u,
             "0.1",
             "Number of sequences that run at once; 0: as many as the workload "
             "has rows, or as kv_memory allows."),
    XRAY_INT(dsinf_config, max_num_batched_tokens, "2048", 1, 16777216,
             "tokens", 0u, "0.1",
             "Maximum tokens per step: running sequences come first, prompts "
             "get the rest. It also sets the size of the activations."),
    XRAY_BYTES(
        dsinf_config, kv_memory, "4G", 0, 0x1p50, 0u, "0.1",
        "Maximum memory for keys and values; 0: no bound. If rows do not "
        "fit, fewer run at once, unless max_num_seqs is set."),
    XM_ENGINE_TRACE(dsinf_config),
    XM_ENGINE_SPECULATE(dsinf_config),
    XM_ENGINE_TENSOR(dsinf_config),
};

static const xray_infer_ops ops = {
    .header = XRAY_HEADER(xray_infer_ops),
    .capabilities = XM_ENGINE_OFFERS,
    .plan = dsinf_plan,
    .create = dsinf_create,
    XM_ENGINE_CALLS,
};

static const xray_component component = {
    .header = XRAY_HEADER(xray_component),
    .iface = XRAY_IFACE_INFER,
    .name = "dsinf",
    .summary = "Contiguous key-value workspace, slots refilled at once",
    .ops = &ops,
    .options = options,
    .option_count = sizeof(options) / sizeof(options[0]),
    .option_stride = sizeof(options[0]),
    .config_size = sizeof(dsinf_config),
    .numerics = XRAY_NUMERICS_FP32,
};

static const xray_component *const components[] = { &component };

static const xray_plugin plugin = {
    .header = XRAY_HEADER(xray_plugin),
    .abi_needed = XRAY_ABI_NEEDED,
    .component_count = 1,
    .name = "infer-dsinf",
    .version = "0.1.0",
    .vendor = "xray",
    .license = "Apache-2.0",
    .components = components,
};

XRAY_PLUGIN_DEFINE(infer_dsinf, plugin, "infer-dsinf", "0.1.0",
                   "xray.infer/0:dsinf")
