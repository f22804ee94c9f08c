/* SPDX-License-Identifier: Apache-2.0
 *
 * xray score: computes log-probabilities and entropies of given tokens.
 */
#include <stdlib.h>
#include <string.h>

#include "core/cli/model_tool.h"

typedef struct score {
    cli_tool tool;
    /* A micro-batch, packed. */
    int32_t *ids;
    int32_t *row_start;
    int32_t *prompt_len; /* all 0 */
    uint32_t rows;
    uint32_t tokens;
    float *logp; /* of the chunk; those of item i begin at at[i] */
    float *entropy;
    size_t *at;
    size_t first_token; /* of the micro-batch in the chunk */
} score;

static void free_arrays(score *s)
{
    free(s->ids);
    free(s->row_start);
    free(s->prompt_len);
    free(s->logp);
    free(s->entropy);
    free(s->at);
    s->ids = s->row_start = s->prompt_len = NULL;
    s->logp = s->entropy = NULL;
    s->at = NULL;
}

static int allocate_arrays(score *s, size_t items, size_t tokens)
{
    free_arrays(s);
    s->ids = xr_calloc(tokens, sizeof *s->ids);
    s->row_start = xr_calloc(items + 1, sizeof *s->row_start);
    s->prompt_len = xr_calloc(items, sizeof *s->prompt_len);
    s->logp = xr_calloc(tokens, sizeof *s->logp);
    s->entropy = xr_calloc(tokens, sizeof *s->entropy);
    s->at = xr_calloc(items, sizeof *s->at);
    return s->ids && s->row_start && s->prompt_len && s->logp && s->entropy &&
                   s->at
               ? CLI_OK
               : CLI_FAILED;
}

/* Runs the forward pass of the collected rows and begins a new micro-batch. */
static int forward_rows(score *s)
{
    const xr_roles *roles = s->tool.roles;
    if (!s->rows)
        return CLI_OK;
    xray_batch batch = {
        .header = XRAY_HEADER(xray_batch),
        .rows = s->rows,
        .tokens = s->tokens,
        .ids = s->ids,
        .row_start = s->row_start,
        .prompt_len = s->prompt_len,
    };
    const xray_batch *const batches[] = { &batch };
    xray_outputs out = {
        .header = XRAY_HEADER(xray_outputs),
        .logp = s->logp + s->first_token,
        .entropy = s->entropy + s->first_token,
    };
    xray_status status =
        xr_train(roles->run)
            ->forward(roles->actor.self, batches, 1,
                      XRAY_OUTPUT_LOGP | XRAY_OUTPUT_ENTROPY, &out);
    s->first_token += s->tokens;
    s->rows = 0;
    s->tokens = 0;
    if (status == XRAY_OK)
        return CLI_OK;
    xr_err err = { "" };
    (void)xr_host_error(roles->actor.part->host, status, "forward", &err);
    (void)cli_fail(status, &err);
    return CLI_FAILED;
}

static int append_row(score *s, const cli_item *item, size_t index,
                      uint64_t micro_tokens)
{
    int code = CLI_OK;
    if (s->tokens + item->count > micro_tokens)
        code = forward_rows(s);
    if (code != CLI_OK)
        return code;
    s->at[index] = s->first_token + s->tokens;
    memcpy(s->ids + s->tokens, item->ids, item->count * sizeof *s->ids);
    s->tokens += (uint32_t)item->count;
    s->rows++;
    s->row_start[s->rows] = (int32_t)s->tokens;
    return CLI_OK;
}

/* A row of one token has nothing to predict, so it is not computed. */
static int is_computed(const cli_item *item)
{
    return !item->error && item->count > 1;
}

static int score_chunk(void *ctx, cli_item *items, size_t count)
{
    score *s = ctx;
    size_t longest = 0;
    size_t tokens = 0;
    for (size_t i = 0; i < count; i++) {
        items[i].own = NULL;
        if (!is_computed(&items[i]))
            continue;
        longest = items[i].count > longest ? items[i].count : longest;
        tokens += items[i].count;
    }
    if (!tokens)
        return CLI_OK;
    int code = cli_tool_ready(&s->tool, longest, 1);
    if (code != CLI_OK)
        return code;
    if (allocate_arrays(s, count, tokens) != CLI_OK) {
        cli_say("out of memory");
        return CLI_FAILED;
    }
    s->first_token = 0;
    uint64_t micro = cli_tool_micro_tokens(s->tool.row_tokens);
    for (size_t i = 0; i < count && code == CLI_OK; i++) {
        if (!is_computed(&items[i]))
            continue;
        code = append_row(s, &items[i], i, micro);
        items[i].own = &s->at[i];
    }
    return code == CLI_OK ? forward_rows(s) : code;
}

static xray_status print_scores(void *ctx, const cli_item *item, xr_err *err,
                                xr_str *out)
{
    const score *s = ctx;
    const size_t *at = item->own;
    const float none = 0.0f;
    (void)err;
    xr_str_puts(out, "{\"ids\":");
    cli_put_ids(item->ids, item->count, out);
    xr_str_puts(out, ",\"logprobs\":");
    cli_put_floats(at ? s->logp + *at : &none, item->count, 1, out);
    xr_str_puts(out, ",\"entropies\":");
    cli_put_floats(at ? s->entropy + *at : &none, item->count, 1, out);
    xr_str_append(out, "}", 1);
    return XRAY_OK;
}

static int run_score(const cli_args *args)
{
    score s = { 0 };
    int code = cli_tool_open(&s.tool, args, XR_WITH_TRAIN);
    if (code == CLI_OK) {
        static const char *const keys[] = { "text", "ids", NULL };
        const cli_batch_ops ops = {
            .text_key = "text",
            .keys = keys,
            .most_tokens = s.tool.run->actor.model.max_positions,
            .run = score_chunk,
            .print = print_scores,
        };
        code = cli_tool_lines(&s.tool, &ops, &s);
    }
    free_arrays(&s);
    cli_tool_close(&s.tool);
    return code;
}

static const cli_flag flags[] = { CLI_MODEL_FLAG,
                                  { "--train", "NAME", CLI_TEXT, 0,
                                    offsetof(cli_args, train), NULL, 1, 0,
                                    "training backend that computes them" },
                                  CLI_SET_FLAG,
                                  CLI_PLUGIN_PATH_FLAG,
                                  CLI_LOG_FLAG,
                                  { 0 } };

const cli_command cli_score = {
    .name = "score",
    .usage = "--model DIR [options] [FILE]",
    .summary = "log-probabilities and entropies of given tokens",
    .about =
        "Reads JSON lines from FILE or standard input and writes a line for "
        "each:\n{\"text\"}, {\"messages\"} or {\"ids\"} -> "
        "{\"ids\",\"logprobs\",\"entropies\"}. logprobs[i] is log p(ids[i] "
        "|\nids[0..i-1]) at "
        "temperature 1, entropies[i] the entropy in nats of the\ndistribution "
        "ids[i] came from; the first of both is null. Text is tokenised with\n"
        "the tokenizer's own BOS rule. A bad line gives {\"error\"} instead "
        "and exit\ncode 1 at the end.",
    .examples = "  echo '{\"text\":\"Once upon a time\"}' | xray score --model "
                "DIR\n  xray score --model DIR rows.jsonl > scores.jsonl\n",
    .flags = flags,
    .max_words = 1,
    .run = run_score,
};
