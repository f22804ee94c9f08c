/* SPDX-License-Identifier: Apache-2.0
 *
 * Describes the plugin device-cuda: its options and its table of operators for
 * NVIDIA GPUs.
 */
#include <xray/plugin.h>

#include "plugins/device-cuda/instance.h"

static const xray_choice precision_choices[] = {
    { "bfloat16", CUDA_BFLOAT16,
      "products and attention on tensor cores; operands are rounded to bf16, "
      "sums are fp32" },
    { "float32", CUDA_FLOAT32, "the bits of the cpu device; slow" },
    { NULL, 0, NULL },
};

static const xray_choice product_choices[] = {
    { "own", CUDA_PRODUCTS_OWN, "the kernels of this plugin" },
    { "cublaslt", CUDA_PRODUCTS_CUBLASLT,
      "cuBLASLt, if it can be loaded, for the shapes in which one of its "
      "algorithms gives a row the same bits for any number of tokens" },
    { NULL, 0, NULL },
};

static const xray_option options[] = {
    XRAY_INT(cuda_config, index, "-1", -1, 63, NULL, 0u, "0.1",
             "Number of the GPU among those that CUDA_VISIBLE_DEVICES "
             "leaves; -1: the rank modulo the number of GPUs."),
    XRAY_CHOICE(cuda_config, precision, "bfloat16", precision_choices, 0u,
                "0.1",
                "Arithmetic of matrix products, attention and the LM head."),
    XRAY_CHOICE(cuda_config, products, "own", product_choices, 0u, "0.1",
                "Implementation of matrix products in bfloat16."),
    XRAY_BYTES(cuda_config, memory, "0", 0, 0x1p50, 0u, "0.1",
               "Memory that plans of a run assume, such as 141G; 0: not "
               "known before the run."),
};

static const xray_device_ops device_ops = {
    .header = XRAY_HEADER(xray_device_ops),
    .plan = cuda_plan,
    .plan_weight = cuda_plan_weight,
    .plan_kv_block = cuda_plan_kv_block,
    .plan_scratch = cuda_plan_scratch,
    .create = cuda_create,
    .destroy = cuda_destroy,
    .info = cuda_info,
    .alloc = cuda_user_alloc,
    .free = cuda_user_free,
    .host_alloc = cuda_host_alloc,
    .host_free = cuda_host_free,
    .memory = cuda_memory,
    .reserve = cuda_reserve,
    .copy = cuda_copy,
    .zero = cuda_zero,
    .copy_rows = cuda_copy_rows,
    .checksum = cuda_checksum,
    .stream_create = cuda_stream_create,
    .stream_destroy = cuda_stream_destroy,
    .sync = cuda_sync,
    .event_create = cuda_event_create,
    .event_destroy = cuda_event_destroy,
    .event_record = cuda_event_record,
    .event_wait = cuda_event_wait,
    .event_query = cuda_event_query,
    .event_sync = cuda_event_sync,
    .weight_create = cuda_weight_create,
    .weight_destroy = cuda_weight_destroy,
    .weight_changed = cuda_weight_restore,
    .kv_block_bytes = cuda_kv_block_bytes,
    .matmul = cuda_matmul,
    .matmul_grad = cuda_matmul_grad,
    .embedding = cuda_embedding,
    .embedding_grad = cuda_embedding_grad,
    .gather = cuda_gather,
    .scatter = cuda_scatter,
    .rmsnorm = cuda_rmsnorm,
    .rmsnorm_grad = cuda_rmsnorm_grad,
    .layernorm = cuda_layernorm,
    .layernorm_grad = cuda_layernorm_grad,
    .rope_table = cuda_rope_table,
    .rope = cuda_rope,
    .glu = cuda_glu,
    .glu_grad = cuda_glu_grad,
    .attention = cuda_attention,
    .attention_grad = cuda_attention_grad,
    .attention_kv = cuda_attention_kv,
    .lm_head_logp = cuda_lm_head_logp,
    .lm_head_grad = cuda_lm_head_grad,
    .lm_head_join = cuda_lm_head_join,
    .sample = cuda_sample,
    .edit_logits = cuda_edit_logits,
    .pick_logp = cuda_pick_logp,
    .advance = cuda_advance,
    .axpby = cuda_axpby,
    .cast = cuda_cast,
    .sumsq = cuda_sumsq,
    .adamw = cuda_adamw,
    .graph_begin = cuda_graph_begin,
    .graph_end = cuda_graph_end,
    .graph_launch = cuda_graph_launch,
    .graph_destroy = cuda_graph_destroy,
    .share = cuda_share,
    .attach = cuda_attach,
    .extension = cuda_extension,
    .detach = cuda_detach,
    .shareable = cuda_shareable,
    .evict = cuda_evict,
    .restore = cuda_restore,
    .weight_evict = cuda_weight_evict,
    .probe = cuda_probe,
};

static const xray_component cuda = {
    .header = XRAY_HEADER(xray_component),
    .iface = XRAY_IFACE_DEVICE,
    .name = "cuda",
    .summary = "NVIDIA GPUs of compute capability 8.0 and later",
    .ops = &device_ops,
    .options = options,
    .option_count = sizeof(options) / sizeof(*options),
    .option_stride = sizeof(xray_option),
    .config_size = sizeof(cuda_config),
    .numerics = XRAY_NUMERICS_CUDA_BF16, /* of the preset precision */
};

static const xray_component *const components[] = { &cuda };

static const xray_plugin plugin = {
    .header = XRAY_HEADER(xray_plugin),
    .abi_needed = XRAY_ABI_NEEDED,
    .component_count = 1,
    .name = "device-cuda",
    .version = "0.1.0",
    .vendor = "X-ray",
    .license = "Apache-2.0",
    .components = components,
};

XRAY_PLUGIN_DEFINE(device_cuda, plugin, "device-cuda", "0.1.0",
                   "xray.device/0:cuda")
