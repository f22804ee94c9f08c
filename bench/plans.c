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
#define MOST_AXIS 8 /* ranks along an axis of a replica */
#define MOST_CHUNKS 4

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
    uint32_t context;
    uint32_t stages; /* of the pipeline */
    uint32_t chunks; /* of each stage */
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

/* Asks the backend for the plan of one rank; 0: it refuses. The device keeps
 * the matrices a second time, in bfloat16; at stage 3 the backend plans it only
 * for what is gathered, which is little. */
static double ask_rank(const candidate *how, const char *json, uint32_t rank)
{
    static const int64_t recompute[] = { XM_TRAINER_RECOMPUTE_NONE,
                                         XM_TRAINER_RECOMPUTE_SELECTIVE,
                                         XM_TRAINER_RECOMPUTE_FULL };
    const mg_config megatron = { .tensor_model_parallel_size = how->tensor,
                                 .context_parallel_size = how->context,
                                 .pipeline_model_parallel_size = how->stages,
                                 .virtual_pipeline_model_parallel_size =
                                     how->chunks,
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
    return how->zero == 3 ? bytes
                          : bytes + (double)plan.bytes[XRAY_TAG_WEIGHTS] / 2;
}

static uint32_t count_stage_ranks(const candidate *how)
{
    return (how->tensor ? how->tensor : 1) * how->context;
}

/* Returns what the fullest stage takes; 0: the backend refuses. */
static double ask_plan(const candidate *how, const char *json)
{
    double most = 0;
    for (uint32_t stage = 0; stage < how->stages; stage++) {
        const double bytes =
            ask_rank(how, json, stage * count_stage_ranks(how));
        if (bytes == 0)
            return 0;
        most = bytes > most ? bytes : most;
    }
    return most;
}

/* ---- time --------------------------------------------------------------- */

static xr_time_layout make_layout(const candidate *how)
{
    const uint32_t tensor = how->tensor ? how->tensor : 1;
    const uint32_t each = count_stage_ranks(how);
    const uint32_t width = each * how->stages;
    return (xr_time_layout){ .tensor = { tensor, 1 },
                             .context = { how->context, tensor },
                             .pipeline = { how->stages, each },
                             .data = { how->ranks / width, width },
                             .chunks = how->chunks,
                             .sequence = tensor > 1,
                             .zero = how->zero,
                             .again = how->again,
                             .sum_bytes = sizeof(float),
                             .grad_bytes = sizeof(float),
                             .weight_bytes = sizeof(float) };
}

/* Puts the candidate in place of *best if it is faster and fits. */
static void try_candidate(const candidate *how, const char *json,
                          const xm_config *config, const xr_machine *machine,
                          found *best)
{
    if (how->ranks % (count_stage_ranks(how) * how->stages))
        return;
    const xr_time_layout layout = make_layout(how);
    const xr_time_model model = { config, machine, &layout };
    const double each = (double)STEP_TOKENS / layout.data.size;
    if (each < how->micro)
        return;
    const xr_time_work work = { how->micro, ROW, each / how->micro };
    xr_times times = xr_time_update(&model, &work);
    const double seconds = xr_times_sum(&times);
    if (best->seconds > 0 && seconds >= best->seconds)
        return;
    const double bytes = ask_plan(how, json);
    if (bytes == 0 || bytes > 0.9 * machine->capacity)
        return;
    times.of[XR_TIME_PRODUCTS] = 0;
    *best = (found){ *how, bytes, seconds,
                     3 * xr_time_flops(config, ROW) * STEP_TOKENS /
                         (machine->flops * how->ranks * seconds),
                     xr_times_bound(&times) };
}

static void try_stages(candidate how, const char *json, const xm_config *config,
                       const xr_machine *machine, found *best)
{
    for (how.stages = 1; how.stages <= MOST_AXIS; how.stages *= 2)
        for (how.chunks = 1; how.chunks <= (how.stages > 1 ? MOST_CHUNKS : 1);
             how.chunks *= 2)
            try_candidate(&how, json, config, machine, best);
}

/* Tries megatron in any shape of a replica. */
static void try_replicas(candidate how, const char *json,
                         const xm_config *config, const xr_machine *machine,
                         found *best)
{
    for (how.tensor = 1; how.tensor <= MOST_AXIS; how.tensor *= 2)
        for (how.context = 1; how.context <= MOST_AXIS; how.context *= 2)
            try_stages(how, json, config, machine, best);
}

static found find_fastest_layout(const char *json, const xm_config *config,
                                 const xr_machine *machine, uint32_t ranks)
{
    found best = { .seconds = 0 };
    for (uint32_t again = XRAY_RECOMPUTE_NONE; again <= XRAY_RECOMPUTE_FULL;
         again++)
        for (uint32_t micro = ROW; micro <= 8 * ROW; micro *= 2) {
            candidate how = { 0, 1, 1, 1, 1, again, micro, ranks };
            try_replicas(how, json, config, machine, &best);
            for (how.zero = 2; how.zero <= 3 && ranks > 1; how.zero++)
                if (again != XRAY_RECOMPUTE_NONE)
                    try_candidate(&how, json, config, machine, &best);
        }
    return best;
}

/* ---- the table ---------------------------------------------------------- */

static void print_row(const known_model *m, uint32_t ranks, const found *f)
{
    static const char *const again[] = { "none", "selective", "full" };
    char layout[128];
    char more[2][32] = { "", "" };
    if (f->how.context > 1)
        (void)snprintf(more[0], sizeof(more[0]), "CP %u, ", f->how.context);
    if (f->how.chunks > 1)
        (void)snprintf(more[1], sizeof(more[1]), "PP %u x %u, ", f->how.stages,
                       f->how.chunks);
    else if (f->how.stages > 1)
        (void)snprintf(more[1], sizeof(more[1]), "PP %u, ", f->how.stages);
    if (f->how.tensor)
        (void)snprintf(layout, sizeof(layout), "megatron, TP %u, %s%sDP %u",
                       f->how.tensor, more[0], more[1],
                       ranks / (count_stage_ranks(&f->how) * f->how.stages));
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
