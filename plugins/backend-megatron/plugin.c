/* SPDX-License-Identifier: Apache-2.0
 *
 * Declares backend-megatron, which trains a decoder whose layers are cut among
 * tensor-parallel ranks, with AdamW sharded among data-parallel ones.
 */
#include <xray/plugin.h>

#include "plugins/backend-megatron/megatron.h"

static const xray_choice granularities[] = {
    { "none", XM_TRAINER_RECOMPUTE_NONE,
      "Nothing, for more memory: the inputs of all products are kept." },
    { "selective", XM_TRAINER_RECOMPUTE_SELECTIVE,
      "What takes much memory and little work, the outputs of norms and of "
      "the MLP's activation." },
    { "full", XM_TRAINER_RECOMPUTE_FULL,
      "All but the inputs of blocks: less memory, and about a third more "
      "work." },
    { NULL, 0, NULL },
};

static const xray_choice logits[] = {
    { "auto", XM_TRAINER_LOGITS_AUTO,
      "Keep them up to 256 MiB, but not with recompute_granularity = full." },
    { "keep", XM_TRAINER_LOGITS_KEEP,
      "Keep them in memory of [micro-batch tokens, vocabulary / "
      "tensor_model_parallel_size]." },
    { "recompute", XM_TRAINER_LOGITS_RECOMPUTE, "Compute them a second time." },
    { NULL, 0, NULL },
};

static const xray_option options[] = {
    XRAY_INT(mg_config, tensor_model_parallel_size, "1", 1, 8, NULL, 0u, "0.1",
             "The ranks that compute each layer together: each has a part of "
             "the attention heads, of the MLP and of the vocabulary."),
    XRAY_INT(mg_config, context_parallel_size, "1", 1, 8, NULL, 0u, "0.1",
             "The ranks that divide the tokens of each row: 1, 2, 4 or 8. Each "
             "has two runs of a row, and gathers the keys and values of all "
             "for attention: less memory, for longer rows."),
    XRAY_INT(mg_config, pipeline_model_parallel_size, "1", 1, 8, NULL, 0u,
             "0.1",
             "The stages into which the layers are divided, of consecutive "
             "layers each, through which micro-batches flow one after "
             "another."),
    XRAY_INT(mg_config, virtual_pipeline_model_parallel_size, "1", 1, 64, NULL,
             0u, "0.1",
             "The chunks into which each stage's layers are divided, so that "
             "stages wait less: a micro-batch goes through the first chunks of "
             "all stages, then through the second ones."),
    XRAY_INT(mg_config, decoder_first_pipeline_num_layers, "0", 0, 4096, NULL,
             0u, "0.1",
             "The layers of the first stage, which also has the embedding; 0: "
             "as many as other stages without a number of their own."),
    XRAY_INT(mg_config, decoder_last_pipeline_num_layers, "0", 0, 4096, NULL,
             0u, "0.1",
             "The layers of the last stage, which also has the LM head; 0: as "
             "many as other stages without a number of their own."),
    XRAY_BOOL(mg_config, sequence_parallel, "false", 0u, "0.1",
              "Divide tokens among the tensor-parallel ranks between their "
              "products, where each would have all of them: less memory, and "
              "the same bits. One rank has nothing to divide."),
    XRAY_BOOL(mg_config, use_distributed_optimizer, "true", 0u, "0.1",
              "Share the optimizer's state among the data-parallel ranks. If "
              "false, each has all of it; the bits are the same."),
    XRAY_BOOL(mg_config, overlap_grad_reduce, "true", 0u, "0.1",
              "Sum the gradients of a block over the data-parallel ranks as "
              "soon as the last micro-batch has added its own. If false, all "
              "are summed before the update; the bits are the same."),
    XRAY_CHOICE(
        mg_config, recompute_granularity, "selective", granularities, 0u, "0.1",
        "What the backward pass computes again; the bits are the same."),
    XM_TRAINER_HEAD_LOGITS(mg_config, logits),
    XM_TRAINER_ADAMW(mg_config),
    XRAY_BOOL(mg_config, optimizer_cpu_offload, "false", 0u, "0.1",
              "Keep the optimizer's moments in host memory: on the cpu device, "
              "in a file mapped from offload_dir."),
    XM_TRAINER_OFFLOAD_DIR(mg_config),
};

static const xray_train_ops ops = {
    .header = XRAY_HEADER(xray_train_ops),
    .plan = mg_plan,
    .create = mg_create,
    .destroy = mg_destroy,
    XM_TRAINER_CALLS,
};

static const xray_component component = {
    .header = XRAY_HEADER(xray_component),
    .iface = XRAY_IFACE_TRAIN,
    .name = "megatron",
    .summary = "tensor, pipeline and data parallel ranks, fp32 and AdamW",
    .ops = &ops,
    .options = options,
    .option_count = sizeof(options) / sizeof(options[0]),
    .option_stride = sizeof(options[0]),
    .config_size = sizeof(mg_config),
    .numerics = XRAY_NUMERICS_FP32,
};

static const xray_component *const components[] = { &component };

static const xray_plugin plugin = {
    .header = XRAY_HEADER(xray_plugin),
    .abi_needed = XRAY_ABI_NEEDED,
    .component_count = 1,
    .name = "backend-megatron",
    .version = "0.1.0",
    .vendor = "xray",
    .license = "Apache-2.0",
    .components = components,
};

XRAY_PLUGIN_DEFINE(backend_megatron, plugin, "backend-megatron", "0.1.0",
                   "xray.train/0:megatron")
