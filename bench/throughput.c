/* SPDX-License-Identifier: Apache-2.0
 *
 * Measures the training and generation speed of a model with the plugins that
 * an INI names.
 *
 *   bench-throughput MODEL_FOLDER [section.key=value ...]
 *
 * Rows have a prompt of [data] max_prompt_length and a response of
 * max_response_length tokens; a step has train_batch_size x n rows. Prints the
 * best of several rounds and the floor, which is the time of matrix products
 * and attention at the FMA peak, or of reading weights and cached keys at the
 * read bandwidth. Both rates are measured first. One thread is timed by its
 * processor time. The program's own keys:
 *
 *   bench.what=train|generate   measures only one of the two; generate has no
 *                               trainer, so that infer.dsinf.weights=bfloat16
 *                               or model.dtype=bfloat16 keeps one copy
 *   bench.lengths=LOW..HIGH     trains on rows of these lengths instead, with
 *                               a loss on every token but the first
 *   bench.tokens=4096           the most tokens of those rows together
 *   bench.sequences=COUNT       generates one sample for each of COUNT prompts
 *   bench.rounds=7              rounds of each measurement
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include <xray/numerics.h>

#include "bench/flops.h"
#include "bench/probe.h"
#include "core/base/file.h"
#include "core/roles/publish.h"
#include "core/roles/role_calls.h"
#include "core/roles/samples.h"

typedef struct options {
    int64_t low; /* 0: the rows of a step of the INI */
    int64_t high;
    int64_t tokens;
    int64_t sequences; /* 0: the prompts and samples of a step of the INI */
    int64_t rounds;
    int no_train;
    int no_generate;
} options;

typedef struct bench {
    xr_run *run;
    xr_roles *roles;
    options how;
    probe_rates machine;
    xm_config config;
    xr_rows rows;
    xr_views views;
    xr_samples samples;
    xr_row *data; /* [prompts] */
    const xr_row **prompts;
    int32_t *ids; /* [longest row or prompt] */
    int32_t *prompt_ids;
    uint32_t threads;
    uint32_t prompt_count;
    uint32_t prompt_tokens;
    uint32_t response_tokens;
    uint32_t n;
} bench;

static const char *const presets[] = {
    "data.max_prompt_length=9",
    "data.max_response_length=5",
    "data.train_batch_size=64",
    "rollout.n=8",
    "actor.ppo_mini_batch_size=0",
    "actor.ppo_max_token_len_per_gpu=4096",
    "run.reward=rule",
};

/* ---- floors ------------------------------------------------------------- */

/* Counts forward operations, and twice as many backward; attention also
 * computes its scores again. */
static double count_train_flops(const bench *b)
{
    const xray_batch *batch = &b->rows.batch;
    double flops = 0;
    double learnt = 0;
    for (uint32_t r = 0; r < batch->rows; r++) {
        double size = batch->row_start[r + 1] - batch->row_start[r];
        flops += 3.5 * count_attention_flops(&b->config, size * (size + 1) / 2);
    }
    for (uint32_t t = 0; t < batch->tokens; t++)
        learnt += batch->loss_mask[t] != 0;
    return flops + 6 * count_block_weights(&b->config) * batch->tokens +
           6 * count_lm_head_weights(&b->config) * learnt;
}

static void print_share(double seconds, double floor, const char *of)
{
    printf("; floor %.2f ms (%s), %.0f %% of it reached\n", floor * 1e3, of,
           100 * floor / seconds);
}

/* ---- training ----------------------------------------------------------- */

static int32_t random_token_id(const bench *b, uint32_t row, uint32_t t)
{
    return (int32_t)(xray_philox(1, t, row, 0, 0).w[0] %
                     b->run->actor.model.vocab_size);
}

/* Spreads lengths evenly over low..high in an arbitrary order; the scripts in
 * bench/peers follow the same rule. The last row takes the tokens that are
 * left, if they suffice. */
static uint32_t row_length(const options *how, uint32_t row, uint64_t used)
{
    uint64_t span = (uint64_t)(how->high - how->low) + 1;
    uint64_t size = (uint64_t)how->low + (uint64_t)row * 277 % span;
    uint64_t left = (uint64_t)how->tokens - used;
    return (uint32_t)(size < left ? size : left);
}

static xray_status add_row(bench *b, uint32_t r, uint32_t size, xr_err *err)
{
    int step = b->how.low == 0;
    uint32_t prompt = step ? b->prompt_tokens : 1;
    for (uint32_t t = 0; t < size; t++)
        b->ids[t] = random_token_id(b, step ? r / b->n : r, t);
    xr_row_in in = { .prompt = b->ids,
                     .prompt_count = prompt,
                     .response = b->ids + prompt,
                     .response_count = size - prompt,
                     .group = (int32_t)(r / b->n),
                     .temperature = 1 };
    return xr_rows_add(&b->rows, &in, err);
}

static int make_training_rows(bench *b, xr_err *err)
{
    uint32_t step = b->prompt_count * b->n;
    uint32_t size = b->prompt_tokens + b->response_tokens;
    uint64_t tokens =
        b->how.low ? (uint64_t)b->how.tokens : (uint64_t)step * size;
    uint64_t most = b->how.low ? (uint64_t)(b->how.tokens / b->how.low) : step;
    if (xr_rows_init(&b->rows, most, tokens, err) != XRAY_OK ||
        xr_views_init(&b->views, most, err) != XRAY_OK)
        return -1;
    for (uint32_t r = 0; r < most; r++) {
        if (b->how.low)
            size = row_length(&b->how, r, b->rows.batch.tokens);
        if (b->how.low && size < (uint64_t)b->how.low)
            break;
        if (add_row(b, r, size, err) != XRAY_OK)
            return -1;
    }
    return 0;
}

static int train_once(bench *b, double best[2], xr_err *err)
{
    double tokens = b->rows.batch.tokens;
    double nll = 0;
    xr_err fault = { "" };
    xr_loss_spec loss = { .kind = XR_LOSS_SFT,
                          .outputs = XRAY_OUTPUT_LOGP | XRAY_OUTPUT_ENTROPY,
                          .context = &tokens,
                          .context_size = sizeof(tokens),
                          .sums = &nll,
                          .names = 1 };
    xray_step_result result;
    const xr_cut cut = { .count = b->rows.batch.rows,
                         .budget = b->run->actor.load.tokens };
    double start = probe_seconds(b->threads);
    if (xr_views_cut(&b->views, &b->rows, &cut, err) != XRAY_OK)
        return -1;
    if (xr_role_gradients(b->roles, XRAY_ROLE_ACTOR, &b->views, &loss, &fault,
                          err) != XRAY_OK)
        return -1;
    double middle = probe_seconds(b->threads);
    if (xr_role_step(b->roles, XRAY_ROLE_ACTOR, 0, 1, &result, err) != XRAY_OK)
        return -1;
    double end = probe_seconds(b->threads);
    best[0] = middle - start < best[0] ? middle - start : best[0];
    best[1] = end - middle < best[1] ? end - middle : best[1];
    return 0;
}

static int bench_train(bench *b, xr_err *err)
{
    double best[2] = { 1e30, 1e30 };
    for (int64_t i = 0; i < b->how.rounds; i++)
        if (train_once(b, best, err))
            return -1;
    double tokens = b->rows.batch.tokens;
    double seconds = best[0] + best[1];
    printf("train: %.0f tokens of %u rows in %u micro-batches, forward and "
           "backward %.2f ms, optimizer %.2f ms",
           tokens, b->rows.batch.rows, b->views.count, best[0] * 1e3,
           best[1] * 1e3);
    print_share(seconds, count_train_flops(b) / b->machine.flops, "FMA peak");
    printf("train: %.0f tokens/s\n", tokens / seconds);
    return 0;
}

/* ---- generation --------------------------------------------------------- */

static int make_prompts(bench *b, xr_err *err)
{
    size_t count = b->prompt_count;
    b->prompt_ids = xr_calloc(count * b->prompt_tokens, sizeof(*b->prompt_ids));
    b->data = xr_calloc(count, sizeof(*b->data));
    b->prompts = xr_calloc(count, sizeof(*b->prompts));
    if (!b->prompt_ids || !b->data || !b->prompts)
        return -1;
    for (uint32_t p = 0; p < count; p++) {
        int32_t *ids = b->prompt_ids + (size_t)p * b->prompt_tokens;
        for (uint32_t t = 0; t < b->prompt_tokens; t++)
            ids[t] = random_token_id(b, p, t);
        b->data[p] = (xr_row){ .id = p,
                               .ids = ids,
                               .id_count = b->prompt_tokens,
                               .prompt_count = b->prompt_tokens };
        b->prompts[p] = &b->data[p];
    }
    return xr_samples_init(&b->samples, count * b->n, b->response_tokens,
                           err) != XRAY_OK;
}

/* Returns the best time to sample `tokens` per sequence; negative on an error.
 */
static double time_sampling(bench *b, uint32_t tokens, xr_err *err)
{
    xr_roles *s = b->roles;
    xr_sampling how = { .n = b->n,
                        .max_tokens = tokens,
                        .temperature = 1,
                        .top_p = 1,
                        .seed = 1,
                        .ignore_eos = 1 };
    double best = 1e30;
    for (int64_t i = 0; i < b->how.rounds; i++) {
        double start = probe_seconds(b->threads);
        how.step = (uint64_t)i;
        if ((s->actor.self && xr_publish(s, err) != XRAY_OK) ||
            xr_samples_generate(b->roles, &b->samples, b->prompts,
                                b->prompt_count, &how, err) != XRAY_OK)
            return -1;
        double took = probe_seconds(b->threads) - start;
        best = took < best ? took : best;
    }
    return best;
}

/* Returns the bytes of one element of the engine's matrices. */
static double engine_weight_bytes(const xr_roles *s)
{
    const xray_infer_ops *ops = xr_infer(s->run);
    const xray_weights *w = XRAY_HAS(xray_infer_ops, ops, weights)
                                ? ops->weights(s->engine.self)
                                : NULL;
    for (uint32_t i = 0; w && i < w->tensor_count; i++)
        if (w->tensors[i].dims == 2)
            return w->tensors[i].dtype == XRAY_F32 ? 4 : 2;
    return 4;
}

/* Prints one decoding step of all sequences. Its floor is the slower of
 * arithmetic and memory. */
static void print_decode(const bench *b, double seconds)
{
    const xm_config *c = &b->config;
    double sequences = (double)b->prompt_count * b->n;
    double weights = count_block_weights(c) + count_lm_head_weights(c);
    double keys = b->prompt_tokens + b->response_tokens / 2.0;
    double cached = count_cache_elements(c) * keys;
    double flops =
        (sequences * (2 * weights + count_attention_flops(c, keys))) /
        b->machine.flops;
    double bytes =
        (engine_weight_bytes(b->roles) * weights + 4 * cached * sequences) /
        b->machine.bytes;
    printf("decode: %.0f sequences, %.3f ms a step, %.0f tokens/s", sequences,
           seconds * 1e3, sequences / seconds);
    if (bytes > flops)
        print_share(seconds, bytes, "read bandwidth");
    else
        print_share(seconds, flops, "FMA peak");
}

static int bench_generate(bench *b, xr_err *err)
{
    double sequences = (double)b->prompt_count * b->n;
    double tokens = sequences * b->response_tokens;
    double all = time_sampling(b, b->response_tokens, err);
    double first = all < 0 ? -1 : time_sampling(b, 1, err);
    if (first < 0)
        return -1;
    printf(
        "generate: %.0f tokens of %.0f sequences in %.2f ms, %.0f tokens/s\n",
        tokens, sequences, all * 1e3, tokens / all);
    /* Samples of one prompt share its computation. */
    double prompts = (double)b->prompt_count * b->prompt_tokens;
    double keys = (b->prompt_tokens + 1) / 2.0;
    double flops = prompts * (2 * count_block_weights(&b->config) +
                              count_attention_flops(&b->config, keys)) +
                   2 * sequences * count_lm_head_weights(&b->config);
    printf("prefill: %.0f tokens in %.2f ms, %.0f tokens/s", prompts,
           first * 1e3, prompts / first);
    print_share(first, flops / b->machine.flops, "FMA peak");
    if (b->response_tokens > 1)
        print_decode(b, (all - first) / (b->response_tokens - 1));
    return 0;
}

/* ---- the run ------------------------------------------------------------ */

static void set_workloads(bench *b)
{
    uint64_t row = b->prompt_tokens + b->response_tokens;
    if ((uint64_t)b->how.high > row)
        row = (uint64_t)b->how.high;
    /* Training alone needs almost no KV cache. */
    uint64_t sequences =
        b->how.no_generate ? 1 : (uint64_t)b->prompt_count * b->n;
    xr_run_set_workloads(b->run,
                         (uint64_t)b->run->ini.actor.ppo_max_token_len_per_gpu,
                         row, sequences);
}

/* Probes the machine before anything else is allocated, and then resets the
 * peak of resident memory (Linux) so that it excludes the probe. */
static void probe_the_machine(bench *b)
{
    b->threads = (uint32_t)b->run->ini.run.threads;
    if (b->threads == 0)
        b->threads = (uint32_t)sysconf(_SC_NPROCESSORS_ONLN);
    b->machine = probe_machine(b->threads, probe_has_avx512());
    printf("machine: %u threads, %.0f GF/s fp32 FMA, %.1f GB/s read\n",
           b->threads, b->machine.flops * 1e-9, b->machine.bytes * 1e-9);
    FILE *peak = fopen("/proc/self/clear_refs", "w");
    if (peak) {
        (void)fputs("5", peak);
        (void)fclose(peak);
    }
}

static void print_memory(void)
{
    struct rusage use;
    if (getrusage(RUSAGE_SELF, &use) == 0)
        printf("memory: %.0f MB at most\n", (double)use.ru_maxrss / 1024);
}

static int run_benchmarks(bench *b, xr_err *err)
{
    const xr_run_config *run = &b->run->ini;
    b->prompt_count = (uint32_t)run->data.train_batch_size;
    b->n = (uint32_t)run->rollout.n;
    if (b->how.sequences)
        b->prompt_count = (uint32_t)b->how.sequences;
    b->n = b->how.sequences ? 1 : b->n;
    b->prompt_tokens = (uint32_t)run->data.max_prompt_length;
    b->response_tokens = (uint32_t)run->data.max_response_length;
    set_workloads(b);
    uint64_t most = b->run->actor.load.row_tokens;
    b->ids = xr_calloc((size_t)most, sizeof(*b->ids));
    if (!b->ids ||
        xm_config_parse(b->run->actor.json, "config.json", err, &b->config) !=
            XRAY_OK ||
        xr_roles_start(b->run, err, &b->roles) != XRAY_OK)
        return 1;
    if (!b->how.no_train && (make_training_rows(b, err) || bench_train(b, err)))
        return 1;
    if (!b->how.no_generate && (make_prompts(b, err) || bench_generate(b, err)))
        return 1;
    return 0;
}

/* Returns 1 for an option of this program, 0 for one of the configuration, -1
 * for an invalid one. */
static int read_own_option(options *how, const char *text)
{
    static const char prefix[] = "bench.";
    char name[32];
    char value[32];
    if (strncmp(text, prefix, strlen(prefix)) != 0)
        return 0;
    if (sscanf(text + strlen(prefix), "%31[a-z]=%31s", name, value) != 2)
        return -1;
    if (strcmp(name, "what") == 0) {
        how->no_train = strcmp(value, "generate") == 0;
        how->no_generate = strcmp(value, "train") == 0;
        return how->no_train || how->no_generate ? 1 : -1;
    }
    if (strcmp(name, "lengths") == 0) {
        char *dots = strstr(value, "..");
        if (!dots)
            return -1;
        *dots = '\0';
        return xr_parse_int(value, &how->low) == 0 &&
                       xr_parse_int(dots + 2, &how->high) == 0 &&
                       how->low > 1 && how->high >= how->low
                   ? 1
                   : -1;
    }
    int64_t *to = strcmp(name, "tokens") == 0      ? &how->tokens
                  : strcmp(name, "sequences") == 0 ? &how->sequences
                  : strcmp(name, "rounds") == 0    ? &how->rounds
                                                   : NULL;
    return to && xr_parse_int(value, to) == 0 && *to > 0 ? 1 : -1;
}

static int read_options(bench *b, xr_config *config, char **argv,
                        xr_errors *errors)
{
    char model[XR_PATH_CAP];
    (void)snprintf(model, sizeof(model), "model.path=%s", argv[1]);
    xr_config_set(config, model, errors);
    /* A run with training requires a data file; none is read here. */
    xr_config_set(config, "data.train_files=/dev/null", errors);
    for (size_t i = 0; i < sizeof(presets) / sizeof(presets[0]); i++)
        xr_config_set(config, presets[i], errors);
    for (char **arg = argv + 2; *arg; arg++) {
        int own = read_own_option(&b->how, *arg);
        if (own < 0) {
            (void)fprintf(stderr, "bench-throughput: bad option %s\n", *arg);
            return -1;
        }
        if (!own)
            xr_config_set(config, *arg, errors);
    }
    return 0;
}

static int open_and_run(bench *b, xr_config *config, xr_errors *errors,
                        xr_err *err)
{
    uint32_t train = b->how.no_train ? 0 : XR_WITH_TRAIN | XR_TRAINABLE;
    b->run = xr_run_new(config, NULL, train | XR_WITH_INFER, errors);
    if (!b->run)
        return 1;
    probe_the_machine(b);
    int bad = run_benchmarks(b, err);
    print_memory();
    return bad;
}

static void free_bench(bench *b)
{
    xr_rows_free(&b->rows);
    xr_views_free(&b->views);
    xr_samples_free(&b->samples);
    free(b->ids);
    free(b->prompt_ids);
    free(b->data);
    free(b->prompts);
    xr_roles_free(b->roles);
    xr_run_free(b->run);
}

int main(int argc, char **argv)
{
    xr_errors errors = { 0 };
    xr_err err = { "" };
    bench b = { .how = { .tokens = 4096, .rounds = 7 } };
    xr_config *config = xr_config_new();
    if (argc < 2 || !config) {
        (void)fputs("usage: bench-throughput MODEL_FOLDER "
                    "[section.key=value ...]\n",
                    stderr);
        return 2;
    }
    int bad = read_options(&b, config, argv, &errors);
    bad = bad || open_and_run(&b, config, &errors, &err);
    for (size_t i = 0; i < errors.count; i++)
        (void)fprintf(stderr, "bench-throughput: %s\n", errors.items[i]);
    if (*err.text)
        (void)fprintf(stderr, "bench-throughput: %s\n", err.text);
    free_bench(&b);
    xr_config_free(config);
    xr_errors_free(&errors);
    return bad;
}
