/* SPDX-License-Identifier: Apache-2.0
 *
 * Declares backend-zero3, which trains a decoder with AdamW over flat buckets
 * that are sharded among ranks.
 */
#include <xray/plugin.h>

#include "plugins/backend-zero3/zero3.h"

static const xray_choice offloads[] = {
    { "none", Z3_OFFLOAD_NONE, "On the device." },
    { "host", Z3_OFFLOAD_HOST,
      "In host memory; on the cpu device, in a file mapped from offload_dir." },
    { NULL, 0, NULL },
};

static const xray_choice logits[] = {
    { "auto", XM_TRAINER_LOGITS_AUTO,
      "Keep them up to 256 MiB, but not with gradient_checkpointing." },
    { "keep", XM_TRAINER_LOGITS_KEEP,
      "Keep them in memory of [micro-batch tokens, vocabulary]." },
    { "recompute", XM_TRAINER_LOGITS_RECOMPUTE, "Compute them a second time." },
    { NULL, 0, NULL },
};

static const xray_option options[] = {
    XM_TRAINER_ADAMW(z3_config),
    XRAY_BOOL(z3_config, gradient_checkpointing, "false", 0u, "0.1",
              "Keep only the input of each block and compute the rest again in "
              "the backward pass: less memory, about a third more work, and "
              "the same bits."),
    XM_TRAINER_HEAD_LOGITS(z3_config, logits),
    XRAY_INT(z3_config, stage, "3", 0, 3, NULL, 0u, "0.1",
             "What is sharded among the ranks. 0: nothing; 1: the optimizer's "
             "state; 2: gradients too; 3: weights too. A single rank holds "
             "everything at any stage."),
    XRAY_BOOL(z3_config, prefetch, "true", 0u, "0.1",
              "Stage 3: gather the next block while one is computed with. If "
              "false, a block is gathered when a pass comes to it: the same "
              "amount is moved, and the bits are the same."),
    XRAY_CHOICE(z3_config, offload_optimizer, "none", offloads, 0u, "0.1",
                "Where the optimizer's moments are kept."),
    XRAY_CHOICE(
        z3_config, offload_param, "none", offloads, 0u, "0.1",
        "Where a rank's share of the weights is kept between uses; needs "
        "stage = 3."),
    XM_TRAINER_OFFLOAD_DIR(z3_config),
    XRAY_PATH(z3_config, deepspeed_config, "", XRAY_OPT_DEEPSPEED, "0.1",
              "A DeepSpeed JSON: its optimizer, schedule, batch and ZeRO keys "
              "are settings of this run; empty: none."),
};

static const xray_train_ops ops = {
    .header = XRAY_HEADER(xray_train_ops),
    .plan = z3_plan,
    .create = z3_create,
    .destroy = z3_destroy,
    XM_TRAINER_CALLS,
    .export_begin = xm_trainer_export_begin,
    .export_next = xm_trainer_export_next,
    .export_end = xm_trainer_export_end,
};

static const xray_component component = {
    .header = XRAY_HEADER(xray_component),
    .iface = XRAY_IFACE_TRAIN,
    .name = "zero3",
    .summary = "ZeRO stages 0 to 3 over flat buckets, fp32 and AdamW",
    .ops = &ops,
    .options = options,
    .option_count = sizeof(options) / sizeof(options[0]),
    .option_stride = sizeof(options[0]),
    .config_size = sizeof(z3_config),
    .numerics = XRAY_NUMERICS_FP32,
};

static const xray_component *const components[] = { &component };

static const xray_plugin plugin = {
    .header = XRAY_HEADER(xray_plugin),
    .abi_needed = XRAY_ABI_NEEDED,
    .component_count = 1,
    .name = "backend-zero3",
    .version = "0.1.0",
    .vendor = "xray",
    .license = "Apache-2.0",
    .components = components,
};

XRAY_PLUGIN_DEFINE(backend_zero3, plugin, "backend-zero3", "0.1.0",
                   "xray.train/0:zero3")
