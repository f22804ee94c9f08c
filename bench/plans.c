/* SPDX-License-Identifier: Apache-2.0
 *
 * Predicts, for known models on 1 to 64 devices, the fastest layout of a
 * training step that fits into the device's memory. Nothing is measured:
 * memory is what the backends plan, and times are those of docs/time.md.
 *
 *   bench-plans [machine] [model]
 *
 *   machine   h200, or any that `xray plan --machine` takes with a capacity
 *   model     part of a name, such as 7B; all models without it
 *
 * A step has 2^20 tokens of bfloat16 in rows of 4096. A layout fits if it takes
 * at most nine tenths of the memory.
 */
#include <stdio.h>
#include <string.h>

#include <xray/plugin.h>

#include "core/run/step_time.h"
#include "plugins/backend-megatron/megatron.h"
#include "plugins/backend-zero3/zero3.h"

#define ROW 4096
#define STEP_TOKENS (1u << 20)
#define MOST_RANKS 64

const xray_plugin *xray_plugin_query_backend_zero3(uint32_t host_abi);
const xray_plugin *xray_plugin_query_backend_megatron(uint32_t host_abi);

typedef struct known_model {
    const char *name;
    const char *type;
    uint32_t layers, hidden, heads, kv_heads, ffn, vocab, tied;
} known_model;

/* From the models' config.json. */
static const known_model models[] = {
    { "Qwen2.5-0.5B", "qwen2", 24, 896, 14, 2, 4864, 151936, 1 },
    { "Qwen2.5-1.5B", "qwen2", 28, 1536, 12, 2, 8960, 151936, 1 },
    { "Qwen2.5-3B", "qwen2", 36, 2048, 16, 2, 11008, 151936, 1 },
    { "Qwen2.5-7B", "qwen2", 28, 3584, 28, 4, 18944, 152064, 0 },
    { "Llama-3.1-8B", "llama", 32, 4096, 32, 8, 14336, 128256, 0 },
    { "Qwen2.5-14B", "qwen2", 48, 5120, 40, 8, 13824, 152064, 0 },
    { "Qwen2.5-32B", "qwen2", 64, 5120, 40, 8, 27648, 152064, 0 },
    { "Llama-3.1-70B", "llama", 80, 8192, 64, 8, 28672, 128256, 0 },
};

typedef struct candidate {
    uint32_t tensor; /* 0: zero3 */
    uint32_t zero;
    uint32_t again; /* XRAY_RECOMPUTE_* */
    uint32_t micro; /* tokens of a micro-batch */
    uint32_t ranks;
} candidate;

typedef struct found {
    candidate how;
    double bytes;
    double seconds; /* 0: nothing fits */
    double mfu;
    const char *loss; /* the largest part of the time beside products */
} found;

/* ---- memory ------------------------------------------------------------- */

/* Most candidates are refused for their sizes, which is no news. */
static xray_status keep_silent(const xray_host *host, xray_status code,
                               const char *where, const char *msg)
{
    (void)host;
    (void)where;
    (void)msg;
    return code;
}

static const xray_host host = { .header = XRAY_HEADER(xray_host),
                                .version = "bench",
                                .fail = keep_silent };

static void write_config(const known_model *m, char *json, size_t cap)
{
    (void)snprintf(
        json, cap,
        "{\"model_type\":\"%s\",\"hidden_act\":\"silu\",\"hidden_size\":%u,"
        "\"num_hidden_layers\":%u,\"num_attention_heads\":%u,"
        "\"num_key_value_heads\":%u,\"intermediate_size\":%u,"
        "\"vocab_size\":%u,\"max_position_embeddings\":32768,"
        "\"rms_norm_eps\":1e-6,\"rope_theta\":1000000.0,"
        "\"tie_word_embeddings\":%s,\"bos_token_id\":1,\"eos_token_id\":2}",
        m->type, m->hidden, m->layers, m->heads, m->kv_heads, m->ffn, m->vocab,
        m->tied ? "true" : "false");
}

/* Asks the backend for the plan of one rank; 0: it refuses. */
static double ask_plan(const candidate *how, const char *json, uint32_t rank)
{
    static const int64_t recompute[] = { XM_TRAINER_RECOMPUTE_NONE,
                                         XM_TRAINER_RECOMPUTE_SELECTIVE,
                                         XM_TRAINER_RECOMPUTE_FULL };
    const mg_config megatron = { .tensor_model_parallel_size = how->tensor,
                                 .context_parallel_size = 1,
                                 .pipeline_model_parallel_size = 1,
                                 .recompute_granularity = recompute[how->again],
                                 .use_distributed_optimizer = 1,
                                 .overlap_grad_reduce = 1,
                                 .sequence_parallel = how->tensor > 1 };
    const z3_config zero3 = { .stage = how->zero,
                              .gradient_checkpointing =
                                  how->again == XRAY_RECOMPUTE_FULL,
                              .prefetch = 1 };
    const xray_model model = { .header = XRAY_HEADER(xray_model),
                               .config_json = json,
                               .dtype = XRAY_BF16,
                               .random_init = 1 };
    const xray_world world = { .header = XRAY_HEADER(xray_world),
                               .rank = rank,
                               .size = how->ranks };
    const xray_workload load = { .header = XRAY_HEADER(xray_workload),
                                 .tokens = how->micro,
                                 .rows = how->micro / ROW,
                                 .row_tokens = ROW,
                                 .outputs = XRAY_OUTPUT_LOGP,
                                 .trainable = 1 };
    const xray_train_ops *ops =
        (how->tensor ? xray_plugin_query_backend_megatron(XRAY_ABI)
                     : xray_plugin_query_backend_zero3(XRAY_ABI))
            ->components[0]
            ->ops;
    xray_plan plan = { .header = XRAY_HEADER(xray_plan) };
    double bytes = 0;
    if (ops->plan(&host, how->tensor ? (const void *)&megatron : &zero3, &model,
                  &world, &load, &plan) != XRAY_OK)
        return 0;
    for (size_t t = 0; t < XRAY_TAG_COUNT; t++)
        bytes += (double)plan.bytes[t];
    return bytes;
}

/* ---- time --------------------------------------------------------------- */

static xr_time_layout make_layout(const candidate *how)
{
    const uint32_t tensor = how->tensor ? how->tensor : 1;
    return (xr_time_layout){ .tensor = { tensor, 1 },
                             .context = { 1, 1 },
                             .pipeline = { 1, 1 },
                             .data = { how->ranks / tensor, tensor },
                             .chunks = 1,
                             .sequence = tensor > 1,
                             .zero = how->zero,
                             .again = how->again,
                             .sum_bytes = sizeof(float),
                             .grad_bytes = sizeof(float),
                             .weight_bytes = sizeof(float) };
}

/* Puts the candidate in place of *best if it fits and is faster. */
static void try_candidate(const candidate *how, const char *json,
                          const xm_config *config, const xr_machine *machine,
                          found *best)
{
    const xr_time_layout layout = make_layout(how);
    const xr_time_model model = { config, machine, &layout };
    const double each = (double)STEP_TOKENS / layout.data.size;
    if (how->ranks % layout.tensor.size || each < how->micro)
        return;
    /* The device keeps the matrices a second time, in bfloat16; at stage 3 the
     * backend plans it only for what is gathered, which is little. */
    const double elements =
        (double)xm_config_param_count(config) / layout.tensor.size;
    const double first = ask_plan(how, json, 0);
    const double bytes = first + (how->zero == 3 ? 0 : 2 * elements);
    if (first == 0 || bytes > 0.9 * machine->capacity)
        return;
    const xr_time_work work = { how->micro, ROW, each / how->micro };
    xr_times times = xr_time_update(&model, &work);
    const double seconds = xr_times_sum(&times);
    if (best->seconds > 0 && seconds >= best->seconds)
        return;
    times.of[XR_TIME_PRODUCTS] = 0;
    *best = (found){ *how, bytes, seconds,
                     3 * xr_time_flops(config, ROW) * STEP_TOKENS /
                         (machine->flops * how->ranks * seconds),
                     xr_times_bound(&times) };
}

static found find_fastest_layout(const char *json, const xm_config *config,
                                 const xr_machine *machine, uint32_t ranks)
{
    found best = { .seconds = 0 };
    for (uint32_t again = XRAY_RECOMPUTE_NONE; again <= XRAY_RECOMPUTE_FULL;
         again++)
        for (uint32_t micro = ROW; micro <= 8 * ROW; micro *= 2) {
            for (uint32_t tensor = 1; tensor <= 8; tensor *= 2)
                try_candidate(&(candidate){ tensor, 1, again, micro, ranks },
                              json, config, machine, &best);
            for (uint32_t stage = 2; stage <= 3 && ranks > 1; stage++)
                if (again != XRAY_RECOMPUTE_NONE)
                    try_candidate(&(candidate){ 0, stage, again, micro, ranks },
                                  json, config, machine, &best);
        }
    return best;
}

/* ---- the table ---------------------------------------------------------- */

static void print_row(const known_model *m, uint32_t ranks, const found *f)
{
    static const char *const again[] = { "none", "selective", "full" };
    char layout[64];
    if (f->how.tensor)
        (void)snprintf(layout, sizeof(layout), "megatron, TP %u, DP %u",
                       f->how.tensor, ranks / f->how.tensor);
    else
        (void)snprintf(layout, sizeof(layout), "zero3, stage %u", f->how.zero);
    printf("| %s | %u | %s | %s | %u | %.0f | %.2f | %.0f %% | %s |\n", m->name,
           ranks, layout, again[f->how.again], f->how.micro, f->bytes / 1e9,
           f->seconds, 100 * f->mfu, f->loss);
}

static int print_model(const known_model *m, const xr_machine *machine)
{
    char json[1024];
    xr_err err = { "" };
    xm_config config;
    write_config(m, json, sizeof(json));
    if (xm_config_parse(json, m->name, &err, &config) != XRAY_OK) {
        (void)fprintf(stderr, "%s\n", err.text);
        return 0;
    }
    config.dtype = XRAY_BF16;
    for (uint32_t ranks = 1; ranks <= MOST_RANKS; ranks *= 2) {
        const found best = find_fastest_layout(json, &config, machine, ranks);
        if (best.seconds > 0)
            print_row(m, ranks, &best);
    }
    return 1;
}

int main(int argc, char **argv)
{
    xr_machine machine;
    xr_err err = { "" };
    if (argc > 3 || xr_machine_read(argc > 1 ? argv[1] : "h200", &err,
                                    &machine) != XRAY_OK) {
        (void)fprintf(stderr, "usage: bench-plans [machine] [model]\n%s\n",
                      err.text);
        return 2;
    }
    puts("| model | devices | layout | recomputed | tokens of a micro-batch | "
         "GB | s | MFU | beside products "
         "|\n|---|---|---|---|---|---|---|---|---|");
    for (size_t i = 0; i < sizeof(models) / sizeof(models[0]); i++)
        if (argc < 3 || strstr(models[i].name, argv[2]))
            if (!print_model(&models[i], &machine))
                return 1;
    return 0;
}
