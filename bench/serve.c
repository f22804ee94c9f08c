/* SPDX-License-Identifier: Apache-2.0
 *
 * Measures engines on many requests of different lengths, in turns: each round
 * gives the same requests to one engine after the other.
 *
 *   bench-serve MODEL_FOLDER [section.key=value ...]
 *
 * Prompts are random ids, and a sample ends only at its max_tokens; all engines
 * must give the same tokens. Prints the best round of
 * each engine beside the time that its arithmetic takes at the FMA peak, and
 * that of reading weights and cached keys at the read bandwidth. The time of
 * the processors is that of all threads. The program's own keys:
 *
 *   bench.engines=paged,dsinf   what to measure; with turns also paged:hold,
 *                               which extends held samples where paged submits
 *                               the complete row again, and paged:cold, which
 *                               has no prefix cache
 *   bench.requests=256          samples of all requests together
 *   bench.prompts=16..1024      tokens of a prompt
 *   bench.outputs=16..1024      tokens of a sample
 *   bench.samples=1             samples of a request, which share its prompt
 *   bench.copies=1              requests with the same prompt
 *   bench.temperature=0         of the draws; 0: greedy, so that samples soon
 *                               repeat themselves
 *   bench.turns=1               answers of a sample, each of which has its
 *                               tokens; 64 tokens of an environment come
 *                               between them
 *   bench.lines=FILE            lines of JSON, {"ids","forced"}: prompts, and
 *                               the tokens that their samples are given, in
 *                               place of random ones
 *   bench.rounds=1              rounds
 *   bench.record=FILE           writes each sample as a line of JSON, with its
 *                               prompt, so that others can be given the same
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench/flops.h"
#include "bench/probe.h"
#include "bench/workload.h"
#include "core/base/file.h"
#include "core/roles/engine.h"
#include "core/roles/roles.h"

#define MOST_ENGINES 4u

/* Figures of one round. Sums are over its steps. */
typedef struct round_result {
    double seconds;
    double processors; /* seconds of all threads */
    double filled;     /* positions of the cache with keys, after each step */
    double held;       /* positions that its sequences hold */
    double running;    /* sequences that got a token */
    uint64_t capacity;
    uint64_t steps;
    uint64_t prompt_tokens;
    uint64_t saved;
    uint64_t preemptions;
    uint64_t recomputed;
    uint64_t drafts;
    uint64_t accepted;
} round_result;

typedef struct engine {
    char name[32];
    int holds; /* 1: samples are held between their turns */
    xr_config *config;
    xr_run *run;
    xr_roles *roles;
    round_result best;
} engine;

typedef struct bench {
    workload w;
    engine engines[MOST_ENGINES];
    uint32_t engine_count;
    uint32_t threads;
    int compared; /* 1: `tokens` are those of the first round */
    probe_rates machine;
    xm_config model;
} bench;

/* ---- the workload ------------------------------------------------------- */

/* Submits the request of sample i, and of those that share it. */
static xray_status submit_sample(bench *b, const engine *e, uint32_t i,
                                 xr_err *err)
{
    const sample *s = &b->w.samples[i];
    xray_request request = { .header = XRAY_HEADER(xray_request),
                             .id = i,
                             .id_count = workload_row(&b->w, i),
                             .count = (uint32_t)b->w.how.samples,
                             .max_tokens = workload_turn_tokens(&b->w, s),
                             .prompt_id = i,
                             .temperature = (float)b->w.how.temperature,
                             .top_p = 1,
                             .hold = (uint32_t)e->holds,
                             .forced_ids = s->forced,
                             .forced_count = s->forced ? s->max_tokens : 0,
                             .stream = 1 };
    request.ids = b->w.ids;
    xray_status status = xr_engine_serves(e->run, &request, 0, err);
    return status == XRAY_OK
               ? xr_infer(e->run)->submit(e->roles->engine.self, &request)
               : status;
}

/* Goes on with the next turn of a sample, if it has one. */
static xray_status begin_turn(bench *b, const engine *e, uint32_t i, int *begun,
                              xr_err *err)
{
    sample *s = &b->w.samples[i];
    const xray_infer_ops *ops = xr_infer(e->run);
    int32_t observed[OBSERVED];
    if (++s->turn == (uint32_t)b->w.how.turns)
        return e->holds ? ops->release(e->roles->engine.self, i, 0) : XRAY_OK;
    *begun = 1;
    workload_observe(&b->w, i, s->turn - 1, observed);
    return e->holds
               ? ops->extend(e->roles->engine.self, i, 0, observed, OBSERVED)
               : submit_sample(b, e, i, err);
}

static xray_status submit_all(bench *b, const engine *e, xr_err *err)
{
    uint32_t samples = (uint32_t)b->w.how.samples;
    xray_status status = XRAY_OK;
    for (uint32_t i = 0; i < b->w.count && status == XRAY_OK; i += samples)
        status = submit_sample(b, e, i, err);
    return status;
}

/* ---- a round ------------------------------------------------------------ */

static double read_processors(void)
{
    return probe_seconds(1);
}

static xray_infer_stats read_stats(const engine *e)
{
    xray_infer_stats stats = { .header = XRAY_HEADER(xray_infer_stats) };
    (void)xr_infer(e->run)->stats(e->roles->engine.self, &stats);
    return stats;
}

/* Keeps the tokens of the first round, and compares those of later ones. */
static xray_status take_part(bench *b, const xray_sample_out *part,
                             uint32_t step, xr_err *err)
{
    uint64_t i = part->id + part->sample;
    sample *s = &b->w.samples[i];
    int32_t *to =
        b->w.tokens + i * workload_longest_sample(&b->w.how) + s->given;
    size_t bytes = part->token_count * sizeof(*to);
    if (i >= b->w.count || s->given < part->first ||
        part->token_count > s->max_tokens - s->given)
        return xr_fail(err, XRAY_E_BUG, "sample %llu has tokens too many",
                       (unsigned long long)i);
    if (b->compared && memcmp(to, part->tokens, bytes) != 0)
        return xr_fail(err, XRAY_E_BUG,
                       "sample %llu has other tokens than in the first round",
                       (unsigned long long)i);
    if (bytes)
        memcpy(to, part->tokens, bytes);
    s->given += part->token_count;
    s->step = step;
    return XRAY_OK;
}

/* A running sample has a key for each of its tokens but the last one. */
static void count_cache(const bench *b, const engine *e, uint32_t step,
                        round_result *r)
{
    for (uint32_t i = 0; i < b->w.count; i++) {
        const sample *s = &b->w.samples[i];
        if (!s->given || s->step != step)
            continue;
        r->running++;
        if (s->given < s->max_tokens)
            r->filled += s->prompt_tokens + s->given + s->turn * OBSERVED - 1;
    }
    r->held += (double)read_stats(e).kv_tokens;
}

static xray_status run_steps(bench *b, const engine *e, round_result *r,
                             xr_err *err)
{
    const xray_infer_ops *ops = xr_infer(e->run);
    void *self = e->roles->engine.self;
    xray_status round = XRAY_OK;
    int begun = 0;
    for (uint32_t step = 1; round == XRAY_OK || begun; step++) {
        xray_sample_out part = { .header = XRAY_HEADER(xray_sample_out) };
        begun = 0;
        round = ops->step(self);
        if (round < 0)
            return round;
        while (ops->poll(self, &part) == XRAY_OK) {
            xray_status status = take_part(b, &part, step, err);
            if (status == XRAY_OK && part.finish != XRAY_FINISH_NONE &&
                b->w.how.turns > 1)
                status = begin_turn(b, e, (uint32_t)part.id, &begun, err);
            if (status != XRAY_OK)
                return status;
        }
        count_cache(b, e, step, r);
    }
    return XRAY_OK;
}

/* Empties the cache, so that no round finds the prompts of the one before. */
static xray_status empty_cache(const engine *e)
{
    const xray_infer_ops *ops = xr_infer(e->run);
    void *self = e->roles->engine.self;
    xray_status status = XRAY_E_UNSUPPORTED;
    if (XRAY_HAS(xray_infer_ops, ops, sleep))
        status = ops->sleep(self, 1u << XRAY_TAG_KV);
    return status == XRAY_OK ? ops->wake(self, 1u << XRAY_TAG_KV) : status;
}

static xray_status run_round(bench *b, engine *e, xr_err *err)
{
    round_result r = { 0 };
    if (e->best.steps && empty_cache(e) != XRAY_OK)
        return xr_fail(err, XRAY_E_STATE, "%s cannot empty its cache", e->name);
    for (uint32_t i = 0; i < b->w.count; i++)
        b->w.samples[i].given = b->w.samples[i].step = b->w.samples[i].turn = 0;
    const xray_infer_stats before = read_stats(e);
    double start = probe_seconds(b->threads);
    double used = read_processors();
    xray_status status = submit_all(b, e, err);
    if (status == XRAY_OK)
        status = run_steps(b, e, &r, err);
    if (status != XRAY_OK)
        return status;
    r.seconds = probe_seconds(b->threads) - start;
    r.processors = read_processors() - used;
    const xray_infer_stats after = read_stats(e);
    r.capacity = after.kv_capacity;
    r.steps = after.steps - before.steps;
    r.prompt_tokens = after.prompt_tokens - before.prompt_tokens;
    r.saved = after.prefix_tokens_saved - before.prefix_tokens_saved;
    r.preemptions = after.preemptions - before.preemptions;
    r.recomputed = after.recomputed_tokens - before.recomputed_tokens;
    r.drafts = after.num_draft_tokens - before.num_draft_tokens;
    r.accepted = after.num_accepted_tokens - before.num_accepted_tokens;
    b->compared = 1;
    if (e->best.seconds <= 0 || r.seconds < e->best.seconds)
        e->best = r;
    return XRAY_OK;
}

/* ---- results ------------------------------------------------------------ */

static void print_floor(const bench *b, const round_result *r, double tokens)
{
    const xm_config *c = &b->model;
    double flops = 2 * tokens * count_lm_head_weights(c) +
                   2 * count_block_weights(c) *
                       ((double)(r->prompt_tokens + r->recomputed) + tokens);
    double bytes = 4 * (double)r->steps *
                   (count_block_weights(c) + count_lm_head_weights(c));
    double attention = 0;
    for (uint32_t i = 0; i < b->w.count; i++) {
        const sample *s = &b->w.samples[i];
        double keys =
            s->max_tokens * (s->prompt_tokens + (s->max_tokens + 1) / 2.0);
        double own = s->prompt_tokens * (s->prompt_tokens + 1) / 2.0;
        attention += count_attention_flops(c, keys + own);
        bytes += 4 * keys * count_cache_elements(c);
    }
    printf("  at %.0f GF/s products take %.2f s and attention %.2f s; at %.1f "
           "GB/s reading takes %.2f s\n",
           b->machine.flops * 1e-9, flops / b->machine.flops,
           attention / b->machine.flops, b->machine.bytes * 1e-9,
           bytes / b->machine.bytes);
}

static void print_engine(const bench *b, const engine *e)
{
    const round_result *r = &e->best;
    double tokens = 0;
    for (uint32_t i = 0; i < b->w.count; i++)
        tokens += b->w.samples[i].max_tokens;
    double steps = (double)r->steps;
    double capacity = (double)r->capacity;
    printf("%s: %.0f tokens in %.2f s (processors %.2f s), %.0f tokens/s\n",
           e->name, tokens, r->seconds, r->processors, tokens / r->seconds);
    printf("  %.0f steps, of %.1f sequences; %.1f %% of the held cache and "
           "%.1f %% of its %.0f positions are filled\n",
           steps, r->running / steps, 100 * r->filled / r->held,
           100 * r->filled / steps / capacity, capacity);
    printf("  %llu preemptions, %llu tokens computed again (%.2f %%), %llu "
           "tokens of prompts saved, %llu computed\n",
           (unsigned long long)r->preemptions,
           (unsigned long long)r->recomputed,
           100 * (double)r->recomputed /
               ((double)(r->prompt_tokens + r->recomputed) + tokens),
           (unsigned long long)r->saved, (unsigned long long)r->prompt_tokens);
    if (r->drafts)
        printf("  %llu drafts, %llu of them right\n",
               (unsigned long long)r->drafts, (unsigned long long)r->accepted);
    if (b->w.how.turns == 1)
        print_floor(b, r, tokens);
}

static void print_ids(FILE *file, const int32_t *ids, uint32_t count)
{
    for (uint32_t t = 0; t < count; t++)
        (void)fprintf(file, "%s%d", t ? "," : "", ids[t]);
}

static int record_samples(bench *b, xr_err *err)
{
    FILE *file = fopen(b->w.how.record, "w");
    for (uint32_t i = 0; i < b->w.count && file; i++) {
        workload_prompt(&b->w, &b->w.samples[i]);
        (void)fputs("{\"prompt\":[", file);
        print_ids(file, b->w.ids, b->w.samples[i].prompt_tokens);
        (void)fputs("],\"tokens\":[", file);
        print_ids(file, b->w.tokens + i * workload_longest_sample(&b->w.how),
                  b->w.samples[i].max_tokens);
        (void)fputs("]}\n", file);
    }
    int bad = !file || ferror(file);
    bad = (file && fclose(file) != 0) || bad;
    if (bad)
        (void)xr_fail(err, XRAY_E_IO, "%s cannot be written", b->w.how.record);
    return bad;
}

/* ---- the run ------------------------------------------------------------ */

/* Returns 1 for an option of this program, 0 for one of the configuration, -1
 * for an invalid one. */
static int read_own_option(options *how, const char *text)
{
    static const char prefix[] = "bench.";
    char name[16];
    char value[256];
    if (strncmp(text, prefix, strlen(prefix)) != 0)
        return 0;
    if (sscanf(text + strlen(prefix), "%15[a-z]=%255s", name, value) != 2)
        return -1;
    if (strcmp(name, "engines") == 0)
        return snprintf(how->engines, sizeof(how->engines), "%s", value) <
                       (int)sizeof(how->engines)
                   ? 1
                   : -1;
    if (strcmp(name, "record") == 0 || strcmp(name, "lines") == 0) {
        (void)snprintf(*name == 'r' ? how->record : how->lines,
                       sizeof(how->record), "%s", value);
        return 1;
    }
    if (strcmp(name, "temperature") == 0)
        return xr_parse_real(value, &how->temperature) == 0 ? 1 : -1;
    char *dots = strstr(value, "..");
    int64_t *range = strcmp(name, "prompts") == 0   ? how->prompts
                     : strcmp(name, "outputs") == 0 ? how->outputs
                                                    : NULL;
    if (range && dots) {
        *dots = '\0';
        return xr_parse_int(value, &range[0]) == 0 &&
                       xr_parse_int(dots + 2, &range[1]) == 0 && range[0] > 0 &&
                       range[1] >= range[0]
                   ? 1
                   : -1;
    }
    int64_t *to = strcmp(name, "requests") == 0  ? &how->requests
                  : strcmp(name, "samples") == 0 ? &how->samples
                  : strcmp(name, "copies") == 0  ? &how->copies
                  : strcmp(name, "rounds") == 0  ? &how->rounds
                  : strcmp(name, "turns") == 0   ? &how->turns
                                                 : NULL;
    return to && xr_parse_int(value, to) == 0 && *to > 0 && *to <= 1 << 20 ? 1
                                                                           : -1;
}

static int open_engine(bench *b, engine *e, char **argv, xr_errors *errors,
                       xr_err *err)
{
    char text[XR_PATH_CAP];
    e->config = xr_config_new();
    if (!e->config)
        return -1;
    (void)snprintf(text, sizeof(text), "model.path=%s", argv[1]);
    xr_config_set(e->config, text, errors);
    size_t size = strcspn(e->name, ":");
    const char *variant = e->name + size;
    e->holds = strcmp(variant, ":hold") == 0;
    (void)snprintf(text, sizeof(text), "run.infer=%.*s", (int)size, e->name);
    xr_config_set(e->config, text, errors);
    if (strcmp(variant, ":cold") == 0)
        xr_config_set(e->config, "infer.paged.enable_prefix_caching=false",
                      errors);
    for (char **arg = argv + 2; *arg; arg++)
        if (!read_own_option(&b->w.how, *arg))
            xr_config_set(e->config, *arg, errors);
    e->run = xr_run_new(e->config, NULL, XR_WITH_INFER, errors);
    if (!e->run)
        return -1;
    xr_run_set_workloads(e->run, 1, workload_longest_row(&b->w.how),
                         (uint64_t)b->w.how.requests);
    return xm_config_parse(e->run->actor.json, "config.json", err, &b->model) ||
           xr_roles_start(e->run, err, &e->roles);
}

static int run_benchmarks(bench *b, char **argv, xr_errors *errors, xr_err *err)
{
    const char *name = b->w.how.engines;
    for (size_t size; b->engine_count < MOST_ENGINES && *name; name += size) {
        name += *name == ',';
        size = strcspn(name, ",");
        engine *e = &b->engines[b->engine_count++];
        (void)snprintf(e->name, sizeof(e->name), "%.*s", (int)size, name);
        if (open_engine(b, e, argv, errors, err))
            return 1;
    }
    b->w.vocab = b->model.vocab;
    if (!b->engine_count || workload_make(&b->w, err))
        return *err->text
                   ? XRAY_E_ARG
                   : xr_fail(err, XRAY_E_ARG, "there is nothing to measure");
    if (b->w.how.turns > 1 && (b->w.how.samples > 1 || *b->w.how.lines))
        return xr_fail(err, XRAY_E_ARG,
                       "turns are those of requests with one sample, and not "
                       "of lines");
    b->threads = (uint32_t)b->engines[0].run->ini.run.threads;
    if (b->threads == 0)
        b->threads = (uint32_t)sysconf(_SC_NPROCESSORS_ONLN);
    b->machine = probe_machine(b->threads, probe_has_avx512());
    for (int64_t i = 0; i < b->w.how.rounds; i++)
        for (uint32_t k = 0; k < b->engine_count; k++)
            if (run_round(b, &b->engines[k], err) != XRAY_OK)
                return 1;
    for (uint32_t k = 0; k < b->engine_count; k++)
        print_engine(b, &b->engines[k]);
    return *b->w.how.record ? record_samples(b, err) : 0;
}

static void free_bench(bench *b)
{
    for (uint32_t k = 0; k < b->engine_count; k++) {
        xr_roles_free(b->engines[k].roles);
        xr_run_free(b->engines[k].run);
        xr_config_free(b->engines[k].config);
    }
    workload_free(&b->w);
}

int main(int argc, char **argv)
{
    xr_errors errors = { 0 };
    xr_err err = { "" };
    bench b = { .w.how = { .engines = "paged,dsinf",
                           .requests = 256,
                           .prompts = { 16, 1024 },
                           .outputs = { 16, 1024 },
                           .samples = 1,
                           .copies = 1,
                           .turns = 1,
                           .rounds = 1 } };
    if (argc < 2) {
        (void)fputs("usage: bench-serve MODEL_FOLDER [section.key=value ...]\n",
                    stderr);
        return 2;
    }
    for (char **arg = argv + 2; *arg; arg++) {
        if (read_own_option(&b.w.how, *arg) < 0) {
            (void)fprintf(stderr, "bench-serve: bad option %s\n", *arg);
            return 2;
        }
    }
    int bad = run_benchmarks(&b, argv, &errors, &err);
    for (size_t i = 0; i < errors.count; i++)
        (void)fprintf(stderr, "bench-serve: %s\n", errors.items[i]);
    if (*err.text)
        (void)fprintf(stderr, "bench-serve: %s\n", err.text);
    free_bench(&b);
    xr_errors_free(&errors);
    return bad;
}
