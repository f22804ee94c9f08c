/* SPDX-License-Identifier: Apache-2.0
 *
 * xray generate: generates samples for prompts.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/cli/generator.h"

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

/* Appends the text of a sample: that which was watched, or that of its ids. */
static xray_status print_text(const cli_generator *g, const cli_prompt *p,
                              const cli_sample *s, xr_err *err, xr_str *out)
{
    xr_str text = { 0 };
    xray_status status = XRAY_OK;
    if (p->watched) {
        xr_str_json(out, xr_str_text(&s->text.text), s->text.text.size);
        return XRAY_OK;
    }
    if (!g->tool.tokenizer) {
        xr_str_puts(out, "null");
        return XRAY_OK;
    }
    status =
        xm_tokenizer_decode(g->tool.tokenizer, s->ids, s->count, 2, &text, err);
    xr_str_json(out, xr_str_text(&text), text.size);
    xr_str_free(&text);
    return status;
}

/* Appends the log-probs that a sample has beside those of its ids: for each
 * token pairs of an id and its log-prob, and one for each given id. */
static void print_wishes(const cli_wishes *w, const cli_sample *s, xr_str *out)
{
    if (w->top_count)
        xr_str_puts(out, ",\"top_logprobs\":[");
    for (size_t i = 0; i < s->count * w->top_count; i++) {
        int first = i % w->top_count == 0;
        xr_str_printf(out, "%s%s[%d,", i ? "," : "", first ? "[" : "",
                      s->top_ids[i]);
        xr_str_float(out, s->top_logp[i]);
        xr_str_puts(out, (i + 1) % w->top_count ? "]" : "]]");
    }
    xr_str_puts(out, w->top_count ? "]" : "");
    if (!w->picked.count)
        return;
    xr_str_puts(out, ",\"token_logprobs\":[");
    for (size_t i = 0; i < s->count; i++) {
        xr_str_puts(out, i ? "," : "");
        cli_put_floats(s->picked + i * w->picked.count, w->picked.count, 0,
                       out);
    }
    xr_str_puts(out, "]");
}

static xray_status print_sample(const cli_generator *g, const cli_prompt *p,
                                const cli_sample *s, xr_err *err, xr_str *out)
{
    xr_str_puts(out, "{\"ids\":");
    cli_put_ids(s->ids, s->count, out);
    xr_str_puts(out, ",\"text\":");
    xray_status status = print_text(g, p, s, err, out);
    xr_str_puts(out, ",\"logprobs\":");
    cli_put_floats(s->logp, s->count, 0, out);
    print_wishes(&p->wishes, s, out);
    xr_str_printf(out, ",\"finish_reason\":\"%s\"}", finish_name(s->finish));
    return status;
}

static xray_status print_outputs(void *ctx, const cli_item *item, xr_err *err,
                                 xr_str *out)
{
    const cli_prompt *p = item->own;
    xray_status status = XRAY_OK;
    xr_str_puts(out, "{\"outputs\":[");
    for (int64_t i = 0; i < p->how.n && status == XRAY_OK; i++) {
        if (i)
            xr_str_append(out, ",", 1);
        status = print_sample(ctx, p, &p->samples[i], err, out);
    }
    xr_str_puts(out, "]");
    if (p->prompt_logp) {
        xr_str_puts(out, ",\"prompt_logprobs\":");
        cli_put_floats(p->prompt_logp, item->count, 1, out);
    }
    xr_str_puts(out, "}");
    return status;
}

/* ---- the command -------------------------------------------------------- */

static const cli_flag flags[] = {
    CLI_MODEL_FLAG,
    { "--prompt", "TEXT", CLI_LIST, 0, offsetof(cli_args, prompts), NULL, 1, 0,
      "sample from this text instead of lines; can be repeated" },
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
    { "--repetition-penalty", "R", CLI_REAL, 0,
      offsetof(cli_args, repetition_penalty), "1", 0.01, 100,
      "divide logits above 0 of tokens that the prompt or the sample has, and "
      "multiply others" },
    { "--frequency-penalty", "F", CLI_REAL, 0,
      offsetof(cli_args, frequency_penalty), "0", -2, 2,
      "subtract this from a logit as often as the sample has the token" },
    { "--presence-penalty", "F", CLI_REAL, 0,
      offsetof(cli_args, presence_penalty), "0", -2, 2,
      "subtract this once from the logits of the sample's tokens" },
    { "--min-tokens", "N", CLI_INT, 0, offsetof(cli_args, min_tokens), "0", 0,
      2147483647, "sample no end token before a sample has N tokens" },
    { "--repeat-size", "N", CLI_INT, 0, offsetof(cli_args, repeat_size), "0", 0,
      2147483647,
      "end a sample that repeats at most N tokens, as often as "
      "--repeat-count" },
    { "--repeat-count", "N", CLI_INT, 0, offsetof(cli_args, repeat_count), "0",
      0, 2147483647, "how often, at least 2; 0, with --repeat-size 0: off" },
    { "--n", "N", CLI_INT, 0, offsetof(cli_args, n), "1", 1, 65536,
      "samples per prompt" },
    { "--seed", "S", CLI_INT, 0, offsetof(cli_args, seed), "0", 0, 0x1p53,
      "the same seed and lines give the same samples" },
    { "--stop", "TEXT", CLI_LIST, 0, offsetof(cli_args, stops), NULL, 1, 0,
      "end a sample before this text; can be repeated" },
    { "--stream", NULL, CLI_SWITCH, 0, offsetof(cli_args, stream), NULL, 1, 0,
      "print only text, as its tokens come" },
    { "--ignore-eos", NULL, CLI_SWITCH, 0, offsetof(cli_args, ignore_eos), NULL,
      1, 0, "continue past end tokens" },
    CLI_SET_FLAG,
    CLI_PLUGIN_PATH_FLAG,
    CLI_LOG_FLAG,
    { 0 }
};

/* Lists the keys of a line: its own, and the options that are numbers and
 * switches but --stream, which is about the output of all lines. */
static void list_line_options(cli_generator *g)
{
    size_t count = 0;
    g->keys[count++] = "prompt";
    g->keys[count++] = "ids";
    g->keys[count++] = "stop";
    g->keys[count++] = "id";
    g->keys[count++] = "after";
    for (size_t i = 0; cli_wish_keys[i]; i++)
        g->keys[count++] = cli_wish_keys[i];
    for (const cli_flag *flag = flags;
         flag->name && g->option_count < CLI_LINE_OPTIONS; flag++) {
        cli_line_option *option = &g->options[g->option_count];
        if (flag->type == CLI_TEXT || flag->type == CLI_LIST ||
            flag->offset == offsetof(cli_args, stream))
            continue;
        (void)snprintf(option->key, sizeof option->key, "%s", flag->name + 2);
        for (char *at = option->key; *at; at++)
            *at = *at == '-' ? '_' : *at;
        option->flag = flag;
        g->option_count++;
        g->keys[count++] = option->key;
    }
}

static int check_stops(const cli_list *stops)
{
    for (size_t i = 0; i < stops->count; i++)
        if (!cli_is_text(stops->items[i])) {
            cli_say("--stop takes a text of at least one character, in UTF-8");
            return CLI_USAGE;
        }
    return CLI_OK;
}

/* Refuses before the first line is read what no line could do. */
static int check_watching(const cli_generator *g)
{
    xr_err err = { "" };
    const cli_args *args = g->tool.args;
    const char *what = args->stops.count ? "--stop" : "--stream";
    if (!args->stops.count && !args->stream)
        return CLI_OK;
    xray_status status = cli_generator_watches(g, what, args, &err);
    return status == XRAY_OK ? CLI_OK : cli_fail(status, &err);
}

static int run_generate(const cli_args *args)
{
    cli_generator g = { 0 };
    int code = check_stops(&args->stops);
    if (args->prompts.count && args->words.count) {
        cli_say("--prompt takes the place of FILE: give one of them");
        code = CLI_USAGE;
    }
    if (code == CLI_OK)
        code = cli_tool_open(&g.tool, args, XR_WITH_INFER);
    if (code == CLI_OK)
        code = check_watching(&g);
    if (code == CLI_OK) {
        cli_generator_find_ends(&g);
        list_line_options(&g);
        const cli_batch_ops ops = {
            .text_key = "prompt",
            .keys = g.keys,
            .generate = 1,
            .most_tokens = g.tool.run->actor.model.max_positions - 1,
            .take = cli_prompt_read,
            .drop = cli_prompt_free,
            .run = cli_generator_run,
            .print = args->stream ? NULL : print_outputs,
        };
        code = cli_tool_lines(&g.tool, &ops, &g);
    }
    cli_tool_close(&g.tool);
    cli_answers_free(&g.answers);
    xr_str_free(&g.out);
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
        "Messages go through the model's chat template. logprobs are\nthose of "
        "the raw distribution, whatever the sampling options; finish_reason "
        "is\nstop, length, repeat or abort. A bad line gives {\"error\"} "
        "instead and exit code 1\nat the end.\n\nA line may hold its own "
        "temperature, top_p, top_k, min_p, repetition_penalty,\n"
        "frequency_penalty, presence_penalty, min_tokens, max_tokens, "
        "repeat_size,\nrepeat_count, n, seed, ignore_eos and stop (a text or "
        "a list of texts). Keys of\nlines only are\n"
        "  logit_bias         numbers from -100 to 100, by id, that are added "
        "to logits\n"
        "  stop_token_ids     ids that end a sample, like end tokens\n"
        "  stop_id_lists      lists of ids that end a sample\n"
        "  allowed_token_ids  no other ids are sampled\n"
        "  bad_words_ids      lists of ids; the last is not sampled after the "
        "others\n"
        "  forced_ids         the first ids of each sample\n"
        "  top_logprobs       K: also the K likeliest ids of each token\n"
        "  logprob_token_ids  also the log-probs of these ids\n"
        "  prompt_logprobs    true: also the log-probs of the prompt's ids\n"
        "\nA line with an id (a text) of its own can be continued: a line "
        "whose after is that\nid goes on from the tokens of that line and its "
        "answer, and its prompt or ids\ncome behind them, without special "
        "tokens.\n"
        "\nWith --stop, a sample ends with the token that "
        "completes one of the texts, and its\ntext before the text that was "
        "found; all other samples go on.\n\nWith --stream, only texts are "
        "printed, each with a newline after it, in the order\nof lines and "
        "samples. The first that is not complete is printed as its tokens\n"
        "come; those after it are sampled beside it and printed in their "
        "turn.",
    .examples =
        "  xray generate --model DIR --prompt 'Once upon a time' "
        "--stream\n  echo '{\"prompt\":\"Once upon a time\"}' |\n      xray "
        "generate --model DIR --temperature 0 --max-tokens 32\n  xray "
        "generate --model DIR --n 4 --seed 7 --stop . prompts.jsonl\n",
    .flags = flags,
    .max_words = 1,
    .run = run_generate,
};
