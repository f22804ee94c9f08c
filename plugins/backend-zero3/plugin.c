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
    XRAY_REAL(z3_config, beta1, "0.9", 0, 0.999999, NULL, 0u, "0.1",
              "AdamW: decay of the mean of gradients."),
    XRAY_REAL(z3_config, beta2, "0.999", 0, 0.99999999, NULL, 0u, "0.1",
              "AdamW: decay of the mean of squared gradients."),
    XRAY_REAL(z3_config, eps, "1e-8", 1e-30, 1, NULL, 0u, "0.1",
              "AdamW: added to the root of the mean square."),
    XRAY_REAL(z3_config, weight_decay, "0.01", 0, 10, NULL, 0u, "0.1",
              "AdamW: decoupled decay, times the learning rate. Matrices "
              "decay, norms and biases do not."),
    XRAY_BOOL(z3_config, gradient_checkpointing, "false", 0u, "0.1",
              "Keep only the input of each block and compute the rest again in "
              "the backward pass: less memory, about a third more work, and "
              "the same bits."),
    XRAY_CHOICE(z3_config, head_logits, "auto", logits, 0u, "0.1",
                "Whether a micro-batch's logits are kept between the loss and "
                "its gradient; the bits are the same."),
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
    XRAY_PATH(z3_config, offload_dir, "", 0, "0.1",
              "Folder of the files that offloading to the host maps on the cpu "
              "device; empty: TMPDIR, or /tmp."),
    XRAY_PATH(z3_config, deepspeed_config, "", XRAY_OPT_DEEPSPEED, "0.1",
              "A DeepSpeed JSON: its optimizer, schedule, batch and ZeRO keys "
              "are settings of this run; empty: none."),
};

static const xray_train_ops ops = {
    .header = XRAY_HEADER(xray_train_ops),
    .plan = z3_plan,
    .create = z3_create,
    .destroy = z3_destroy,
    .weights = xm_trainer_weights,
    .forward = xm_trainer_forward,
    .forward_backward = xm_trainer_forward_backward,
    .optimizer_step = xm_trainer_optimizer_step,
    .save = xm_trainer_save,
    .load = xm_trainer_load,
    .extension = xm_trainer_extension,
    .export_begin = xm_trainer_export_begin,
    .export_next = xm_trainer_export_next,
    .export_end = xm_trainer_export_end,
    .discard = xm_trainer_discard,
    .offload = xm_trainer_offload,
    .onload = xm_trainer_onload,
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
