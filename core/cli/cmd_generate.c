/* SPDX-License-Identifier: Apache-2.0
 *
 * xray generate: generates samples for prompts.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/cli/model_tool.h"
#include "core/roles/engine.h"
#include "core/roles/plugin_results.h"

/* Sequences in parallel; further ones wait in the engine. */
static const uint64_t MAX_SEQUENCES = 32;

typedef struct sample {
    int32_t *ids;
    float *logp;
    size_t count;
    uint32_t finish; /* XRAY_FINISH_NONE: not generated yet */
} sample;

/* The options of a line, and its samples. */
typedef struct prompt {
    cli_args how;    /* the command's options, overridden by the line's */
    sample *samples; /* [how.n] */
} prompt;

/* An option that a line may hold: "--top-p" as "top_p". */
typedef struct line_option {
    const cli_flag *flag;
    char key[24];
} line_option;

enum { MAX_OPTIONS = 12 };

typedef struct generate {
    cli_tool tool;
    line_option options[MAX_OPTIONS];
    size_t option_count;
    const char *keys[MAX_OPTIONS + 3]; /* of a line; ends with NULL */
    int32_t end_ids[9];
    uint32_t end_count;
} generate;

/* ---- lines -------------------------------------------------------------- */

static void free_prompt(cli_item *item)
{
    prompt *p = item->own;
    if (!p)
        return;
    for (int64_t i = 0; p->samples && i < p->how.n; i++) {
        free(p->samples[i].ids);
        free(p->samples[i].logp);
    }
    free(p->samples);
    free(p);
    item->own = NULL;
}

static void *option_field(cli_args *args, const cli_flag *flag)
{
    return (unsigned char *)args + flag->offset;
}

/* Reads a line's own value of an option, with the bounds of the option. */
static xray_status read_option(const cJSON *object, const line_option *option,
                               const char *where, cli_args *how, xr_err *err)
{
    const cli_flag *flag = option->flag;
    const char *key = option->key;
    void *value = option_field(how, flag);
    double number;
    xray_status status;
    if (flag->type == CLI_SWITCH)
        return xr_json_bool_or(object, key, *(int *)value, where, err, value);
    if (flag->type == CLI_INT) {
        int64_t *integer = value;
        status = xr_json_int_or(object, key, *integer, where, err, integer);
        number = (double)*integer;
    } else {
        double *real = value;
        status = xr_json_real_or(object, key, *real, where, err, real);
        number = *real;
    }
    if (status != XRAY_OK)
        return status;
    xr_str buffer = { 0 };
    xr_str got = { 0 };
    const char *wanted = cli_flag_refuses(flag, number, &buffer);
    xr_str_number(&got, number);
    if (wanted)
        status = xr_fail(err, XRAY_E_ARG, "%s: \"%s\" takes %s, not %s", where,
                         key, wanted, xr_str_text(&got));
    xr_str_free(&buffer);
    xr_str_free(&got);
    return status;
}

static xray_status read_prompt(void *ctx, const cJSON *object,
                               const char *where, cli_item *item, xr_err *err)
{
    const generate *g = ctx;
    prompt *p = xr_calloc(1, sizeof *p);
    if (!p)
        return xr_fail(err, XRAY_E_NOMEM, "%s: out of memory", where);
    item->own = p;
    p->how = *g->tool.args;
    if (!item->count)
        return xr_fail(err, XRAY_E_ARG, "%s: the prompt has no tokens", where);
    xray_status status = XRAY_OK;
    for (size_t i = 0; i < g->option_count && status == XRAY_OK; i++)
        status = read_option(object, &g->options[i], where, &p->how, err);
    if (status != XRAY_OK)
        return status;
    p->samples = xr_calloc((size_t)p->how.n, sizeof *p->samples);
    if (!p->samples)
        return xr_fail(err, XRAY_E_NOMEM, "%s: out of memory", where);
    return XRAY_OK;
}

static const char *finish_name(uint32_t finish)
{
    switch (finish) {
    case XRAY_FINISH_STOP:
        return "stop";
    case XRAY_FINISH_LENGTH:
        return "length";
    case XRAY_FINISH_REPEAT:
        return "repeat";
    default:
        return "abort";
    }
}

static xray_status print_sample(const generate *g, const sample *s, xr_err *err,
                                xr_str *out)
{
    xr_str text = { 0 };
    xray_status status = XRAY_OK;
    xr_str_puts(out, "{\"ids\":");
    cli_put_ids(s->ids, s->count, out);
    xr_str_puts(out, ",\"text\":");
    if (g->tool.tokenizer) {
        status = xm_tokenizer_decode(g->tool.tokenizer, s->ids, s->count, 2,
                                     &text, err);
        xr_str_json(out, xr_str_text(&text), text.size);
    } else {
        xr_str_puts(out, "null");
    }
    xr_str_puts(out, ",\"logprobs\":");
    cli_put_floats(s->logp, s->count, 0, out);
    xr_str_printf(out, ",\"finish_reason\":\"%s\"}", finish_name(s->finish));
    xr_str_free(&text);
    return status;
}

static xray_status print_outputs(void *ctx, const cli_item *item, xr_err *err,
                                 xr_str *out)
{
    const prompt *p = item->own;
    xray_status status = XRAY_OK;
    xr_str_puts(out, "{\"outputs\":[");
    for (int64_t i = 0; i < p->how.n && status == XRAY_OK; i++) {
        if (i)
            xr_str_append(out, ",", 1);
        status = print_sample(ctx, &p->samples[i], err, out);
    }
    xr_str_puts(out, "]}");
    return status;
}

/* ---- the engine --------------------------------------------------------- */

/* The most tokens a row of the line can have; the model's last position ends a
 * row, too. */
static uint64_t longest_row_tokens(const generate *g, const cli_item *item)
{
    const prompt *p = item->own;
    uint64_t most = g->tool.run->actor.model.max_positions;
    uint64_t row = (uint64_t)item->count + (uint64_t)p->how.max_tokens;
    return row < most ? row : most;
}

static void submit_prompt(generate *g, cli_item *item, uint64_t id)
{
    const prompt *p = item->own;
    xr_roles *roles = g->tool.roles;
    xray_request request = {
        .header = XRAY_HEADER(xray_request),
        .id = id,
        .ids = item->ids,
        .id_count = (uint32_t)item->count,
        .count = (uint32_t)p->how.n,
        .max_tokens = (uint32_t)(longest_row_tokens(g, item) - item->count),
        .seed = (uint64_t)p->how.seed,
        .prompt_id = item->number,
        .temperature = (float)p->how.temperature,
        .top_p = (float)p->how.top_p,
        .min_p = (float)p->how.min_p,
        .top_k = (int32_t)p->how.top_k,
        .stop_ids = p->how.ignore_eos ? NULL : g->end_ids,
        .stop_count = p->how.ignore_eos ? 0 : g->end_count,
    };
    xr_err err = { "" };
    xray_status status = xr_engine_serves(roles, &request, 0, &err);
    if (status == XRAY_OK) {
        status =
            XR_CALL(roles->engine.part, "submit",
                    xr_infer(roles->run)->submit(roles->engine.self, &request));
        if (status == XRAY_OK)
            return;
        (void)xr_host_error(roles->engine.part->host, status, "submit", &err);
    }
    cli_item_refused(&g->tool, item, &err);
}

static int store_sample(generate *g, cli_item *items, size_t count,
                        const xray_sample_out *out)
{
    xr_err err = { "" };
    const prompt *p = out->id < count ? items[out->id].own : NULL;
    if (!p || out->sample >= (uint64_t)p->how.n) {
        cli_say("the engine returned a sample that was not requested");
        return CLI_FAILED;
    }
    sample *s = &p->samples[out->sample];
    if (s->ids) {
        cli_say("the engine returned a sample twice");
        return CLI_FAILED;
    }
    const cli_item *item = &items[out->id];
    uint32_t most = (uint32_t)(longest_row_tokens(g, item) - item->count);
    xray_status status =
        xr_check_sample(g->tool.roles, out, out->raw_logp,
                        out->id * (uint64_t)p->how.n + out->sample, most, &err);
    if (status != XRAY_OK)
        return cli_fail(status, &err);
    s->ids = xr_calloc(out->token_count, sizeof *s->ids);
    s->logp = xr_calloc(out->token_count, sizeof *s->logp);
    if (!s->ids || !s->logp) {
        cli_say("out of memory");
        return CLI_FAILED;
    }
    s->count = out->token_count;
    s->finish = out->finish;
    if (s->count) {
        memcpy(s->ids, out->tokens, s->count * sizeof *s->ids);
        memcpy(s->logp, out->raw_logp, s->count * sizeof *s->logp);
    }
    return CLI_OK;
}

static int report_engine_failure(const xr_roles *roles, xray_status status,
                                 const char *call)
{
    xr_err err = { "" };
    (void)xr_host_error(roles->engine.part->host, status, call, &err);
    (void)cli_fail(status, &err);
    return CLI_FAILED;
}

/* Stores the samples that are finished; *left is the number still missing. */
static int poll_samples(generate *g, cli_item *items, size_t count,
                        uint64_t *left)
{
    xr_roles *roles = g->tool.roles;
    for (;;) {
        xray_sample_out out = { .header = XRAY_HEADER(xray_sample_out) };
        xray_status status =
            XR_CALL(roles->engine.part, "poll",
                    xr_infer(roles->run)->poll(roles->engine.self, &out));
        if (status == XRAY_END || status == XRAY_AGAIN)
            return CLI_OK;
        if (status != XRAY_OK)
            return report_engine_failure(roles, status, "poll");
        int code = store_sample(g, items, count, &out);
        if (code != CLI_OK)
            return code;
        --*left;
    }
}

static int step_engine_until_done(generate *g, cli_item *items, size_t count,
                                  uint64_t left)
{
    xr_roles *roles = g->tool.roles;
    xr_engine_watch progress = { 0 };
    xray_status status = XRAY_OK;
    xr_err err = { "" };
    while (status == XRAY_OK) {
        status = XR_CALL(roles->engine.part, "step",
                         xr_infer(roles->run)->step(roles->engine.self));
        if (status < 0)
            return report_engine_failure(roles, status, "step");
        int code = poll_samples(g, items, count, &left);
        if (code != CLI_OK)
            return code;
        if (left && xr_engine_progress(roles, &progress, left, &err) < 0)
            return cli_fail(XRAY_E_BUG, &err);
    }
    if (left) {
        cli_say("%s is idle, but %llu samples are missing",
                roles->engine.part->instance, (unsigned long long)left);
        return CLI_FAILED;
    }
    return CLI_OK;
}

static int generate_chunk(void *ctx, cli_item *items, size_t count)
{
    generate *g = ctx;
    uint64_t longest = 0;
    uint64_t samples = 0;
    for (size_t i = 0; i < count; i++) {
        if (items[i].error)
            continue;
        uint64_t row = longest_row_tokens(g, &items[i]);
        longest = row > longest ? row : longest;
        samples += (uint64_t)((const prompt *)items[i].own)->how.n;
    }
    if (!samples)
        return CLI_OK;
    int code = cli_tool_ready(
        &g->tool, longest, samples < MAX_SEQUENCES ? samples : MAX_SEQUENCES);
    if (code != CLI_OK)
        return code;
    samples = 0;
    for (size_t i = 0; i < count; i++) {
        if (!items[i].error)
            submit_prompt(g, &items[i], i);
        if (!items[i].error)
            samples += (uint64_t)((const prompt *)items[i].own)->how.n;
    }
    return samples ? step_engine_until_done(g, items, count, samples) : CLI_OK;
}

/* ---- the command -------------------------------------------------------- */

static void find_end_ids(generate *g)
{
    const xr_run *run = g->tool.run;
    g->end_count = run->end_count;
    memcpy(g->end_ids, run->end_ids, sizeof run->end_ids);
    if (g->end_count || !g->tool.tokenizer)
        return;
    int32_t eos = xm_tokenizer_eos(g->tool.tokenizer);
    if (eos >= 0)
        g->end_ids[g->end_count++] = eos;
}

static const cli_flag flags[] = {
    CLI_MODEL_FLAG,
    { "--infer", "NAME", CLI_TEXT, 0, offsetof(cli_args, infer), NULL, 1, 0,
      "inference engine that samples" },
    { "--temperature", "T", CLI_TEMPERATURE, 0, offsetof(cli_args, temperature),
      "1", 1, 0, "0 is greedy" },
    { "--top-p", "P", CLI_TOP_P, 0, offsetof(cli_args, top_p), "1", 1, 0,
      "sample from the likeliest tokens with this total probability" },
    { "--top-k", "K", CLI_INT, 0, offsetof(cli_args, top_k), "0", 0, 2147483647,
      "sample from the K likeliest tokens; 0: all" },
    { "--min-p", "P", CLI_REAL, 0, offsetof(cli_args, min_p), "0", 0, 1,
      "sample from tokens at least P times as likely as the likeliest" },
    { "--max-tokens", "N", CLI_INT, 0, offsetof(cli_args, max_tokens), "128", 1,
      2147483647, "limit of tokens per sample" },
    { "--n", "N", CLI_INT, 0, offsetof(cli_args, n), "1", 1, 65536,
      "samples per prompt" },
    { "--seed", "S", CLI_INT, 0, offsetof(cli_args, seed), "0", 0, 0x1p53,
      "the same seed and lines give the same samples" },
    { "--ignore-eos", NULL, CLI_SWITCH, 0, offsetof(cli_args, ignore_eos), NULL,
      1, 0, "continue past end tokens" },
    CLI_SET_FLAG,
    CLI_PLUGIN_PATH_FLAG,
    CLI_LOG_FLAG,
    { 0 }
};

/* Lists the options that are also keys of a line: numbers and switches. */
static void list_line_options(generate *g)
{
    size_t count = 0;
    g->keys[count++] = "prompt";
    g->keys[count++] = "ids";
    for (const cli_flag *flag = flags;
         flag->name && g->option_count < MAX_OPTIONS; flag++) {
        line_option *option = &g->options[g->option_count];
        if (flag->type == CLI_TEXT || flag->type == CLI_SETS)
            continue;
        (void)snprintf(option->key, sizeof option->key, "%s", flag->name + 2);
        for (char *at = option->key; *at; at++)
            *at = *at == '-' ? '_' : *at;
        option->flag = flag;
        g->option_count++;
        g->keys[count++] = option->key;
    }
}

static int run_generate(const cli_args *args)
{
    generate g = { 0 };
    int code = cli_tool_open(&g.tool, args, XR_WITH_INFER);
    if (code == CLI_OK) {
        find_end_ids(&g);
        list_line_options(&g);
        const cli_batch_ops ops = {
            .text_key = "prompt",
            .keys = g.keys,
            .generate = 1,
            .most_tokens = g.tool.run->actor.model.max_positions - 1,
            .take = read_prompt,
            .drop = free_prompt,
            .run = generate_chunk,
            .print = print_outputs,
        };
        code = cli_tool_lines(&g.tool, &ops, &g);
    }
    cli_tool_close(&g.tool);
    return code;
}

const cli_command cli_generate = {
    .name = "generate",
    .usage = "--model DIR [options] [FILE]",
    .summary = "sample from prompts",
    .about =
        "Reads JSON lines from FILE or standard input and writes a line for "
        "each:\n{\"prompt\"}, {\"messages\"} or {\"ids\"} -> "
        "{\"outputs\":[{\"ids\",\"text\",\"logprobs\",\n\"finish_reason\"}]}. "
        "Messages go through the model's chat template. logprobs are those of "
        "the raw "
        "distribution, whatever the\nsampling options; finish_reason is stop, "
        "length or abort. A line may hold its own\ntemperature, top_p, top_k, "
        "min_p, max_tokens, n, seed and ignore_eos. A bad line\ngives "
        "{\"error\"} instead and exit code 1 at the end.",
    .examples = "  echo '{\"prompt\":\"Once upon a time\"}' |\n      xray "
                "generate --model DIR --temperature 0 --max-tokens 32\n  xray "
                "generate --model DIR --n 4 --seed 7 prompts.jsonl\n",
    .flags = flags,
    .max_words = 1,
    .run = run_generate,
};
