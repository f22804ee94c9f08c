/* SPDX-License-Identifier: Apache-2.0
 *
 * Describes the plugin device-cpu: its options and its table of operators for
 * x86-64 processors.
 */
#include <xray/plugin.h>

#include "plugins/device-cpu/device.h"
#include "plugins/device-cpu/instance.h"

static const xray_choice isa_choices[] = {
    { "auto", CPU_ISA_AUTO, "the widest set that the processor has" },
    { "avx512", CPU_ISA_AVX512, "AVX-512 F, BW, VL and DQ" },
    { "avx2", CPU_ISA_AVX2, "AVX2 and FMA" },
    { "scalar", CPU_ISA_SCALAR, "one lane at a time; for tests" },
    { NULL, 0, NULL },
};

static const xray_choice share_choices[] = {
    { "auto", CPU_SHARE_AUTO, "as soon as a comm plugin asks for it" },
    { "on", CPU_SHARE_ON, "from the start" },
    { "off", CPU_SHARE_OFF, "never; a comm plugin that asks is refused" },
    { NULL, 0, NULL },
};

static const xray_option options[] = {
    XRAY_CHOICE(cpu_config, isa, "auto", isa_choices, 0u, "0.1",
                "Instruction set of the kernels. All give the same bits."),
    XRAY_BYTES(cpu_config, memory, "0", 0, 0x1p50, 0u, "0.1",
               "Memory that plans of a run assume; 0: what the machine and "
               "its control groups allow."),
    XRAY_CHOICE(
        cpu_config, share, "auto", share_choices, 0u, "0.1",
        "Whether memory is allocated so that other processes can map it. "
        "The kernel's shmem_enabled then decides about large pages."),
};

static const xray_device_ops device_ops = {
    .header = XRAY_HEADER(xray_device_ops),
    .plan = cpu_plan,
    .plan_weight = cpu_plan_weight,
    .plan_kv_block = cpu_plan_kv_block,
    .plan_scratch = cpu_plan_scratch,
    .create = cpu_create,
    .destroy = cpu_destroy,
    .info = cpu_info,
    .alloc = cpu_user_alloc,
    .free = cpu_user_free,
    .host_alloc = cpu_host_alloc,
    .host_free = cpu_host_free,
    .memory = cpu_memory,
    .reserve = cpu_reserve,
    .copy = cpu_copy,
    .zero = cpu_zero,
    .copy_rows = cpu_copy_rows,
    .checksum = cpu_checksum,
    .stream_create = cpu_stream_create,
    .stream_destroy = cpu_stream_destroy,
    .sync = cpu_sync,
    .event_create = cpu_event_create,
    .event_destroy = cpu_event_destroy,
    .event_record = cpu_event_record,
    .event_wait = cpu_event_wait,
    .event_query = cpu_event_query,
    .event_sync = cpu_event_sync,
    .weight_create = cpu_weight_create,
    .weight_destroy = cpu_weight_destroy,
    .weight_changed = cpu_weight_changed,
    .kv_block_bytes = cpu_kv_block_bytes,
    .matmul = cpu_matmul,
    .matmul_grad = cpu_matmul_grad,
    .embedding = cpu_embedding,
    .embedding_grad = cpu_embedding_grad,
    .gather = cpu_gather,
    .scatter = cpu_scatter,
    .rmsnorm = cpu_rmsnorm,
    .rmsnorm_grad = cpu_rmsnorm_grad,
    .layernorm = cpu_layernorm,
    .layernorm_grad = cpu_layernorm_grad,
    .rope_table = cpu_rope_table,
    .rope = cpu_rope,
    .glu = cpu_glu,
    .glu_grad = cpu_glu_grad,
    .attention = cpu_attention,
    .attention_grad = cpu_attention_grad,
    .attention_kv = cpu_attention_kv,
    .lm_head_logp = cpu_lm_head_logp,
    .lm_head_grad = cpu_lm_head_grad,
    .lm_head_join = cpu_lm_head_join,
    .sample = cpu_sample,
    .edit_logits = cpu_edit_logits,
    .pick_logp = cpu_pick_logp,
    .advance = cpu_advance,
    .axpby = cpu_axpby,
    .cast = cpu_cast,
    .sumsq = cpu_sumsq,
    .adamw = cpu_adamw,
    .share = cpu_share,
    .attach = cpu_attach,
    .detach = cpu_detach,
    .shareable = cpu_shareable,
    .evict = cpu_evict,
    .restore = cpu_restore,
    .weight_evict = cpu_weight_evict,
};

static const xray_component cpu = {
    .header = XRAY_HEADER(xray_component),
    .iface = XRAY_IFACE_DEVICE,
    .name = "cpu",
    .summary = "x86-64 kernels with a thread pool of their own",
    .ops = &device_ops,
    .options = options,
    .option_count = sizeof(options) / sizeof(*options),
    .option_stride = sizeof(xray_option),
    .config_size = sizeof(cpu_config),
    .numerics = XRAY_NUMERICS_FP32,
};

static const xray_component *const components[] = { &cpu };

static const xray_plugin plugin = {
    .header = XRAY_HEADER(xray_plugin),
    .abi_needed = XRAY_ABI_NEEDED,
    .component_count = 1,
    .name = "device-cpu",
    .version = "0.1.0",
    .vendor = "X-ray",
    .license = "Apache-2.0",
    .components = components,
};

XRAY_PLUGIN_DEFINE(device_cpu, plugin, "device-cpu", "0.1.0",
                   "xray.device/0:cpu")
