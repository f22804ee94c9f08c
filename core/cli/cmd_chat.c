/* SPDX-License-Identifier: Apache-2.0
 *
 * xray chat: a conversation with a model, one line of input for each turn.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/cli/generator.h"

/* Rows for which the engine is started; longer conversations restart it. */
static const uint64_t FIRST_ROW_TOKENS = 4096;

typedef struct talk {
    cli_generator g;
    cli_args args;   /* of the command, which streams one sample */
    cJSON *object;   /* {"messages": [...]} */
    cJSON *messages; /* in `object` */
    cJSON *options;  /* a line without keys */
    uint64_t turn;
} talk;

static volatile sig_atomic_t interrupts;

/* The first interrupt ends the answer. A second one before the next answer ends
 * the program, whatever the engine is doing. */
static void count_interrupt(int signal)
{
    if (interrupts++)
        _exit(128 + signal);
}

static void catch_interrupts(void)
{
    struct sigaction action = { .sa_handler = count_interrupt,
                                .sa_flags = SA_RESTART };
    (void)sigemptyset(&action.sa_mask);
    (void)sigaction(SIGINT, &action, NULL);
}

/* ---- the conversation --------------------------------------------------- */

static xray_status add_message(talk *t, const char *role, const char *text,
                               xr_err *err)
{
    cJSON *message = cJSON_CreateObject();
    if (message && cJSON_AddStringToObject(message, "role", role) &&
        cJSON_AddStringToObject(message, "content", text) &&
        cJSON_AddItemToArray(t->messages, message))
        return XRAY_OK;
    cJSON_Delete(message);
    return xr_fail(err, XRAY_E_NOMEM, "out of memory");
}

static void drop_last_message(talk *t)
{
    cJSON_DeleteItemFromArray(t->messages, cJSON_GetArraySize(t->messages) - 1);
}

static xray_status begin_conversation(talk *t, xr_err *err)
{
    cJSON_Delete(t->object);
    t->object = cJSON_CreateObject();
    t->messages =
        t->object ? cJSON_AddArrayToObject(t->object, "messages") : NULL;
    if (!t->messages)
        return xr_fail(err, XRAY_E_NOMEM, "out of memory");
    return t->args.system ? add_message(t, "system", t->args.system, err)
                          : XRAY_OK;
}

/* Keeps the answer as a message, and tells how it ended unless by itself. */
static xray_status keep_answer(talk *t, const cli_item *item, xr_err *err)
{
    const cli_prompt *p = item->own;
    const cli_sample *s = &p->samples[0];
    if (s->finish == XRAY_FINISH_LENGTH)
        cli_say("the answer was cut after %zu tokens", s->count);
    return add_message(t, "assistant", xr_str_text(&s->text.text), err);
}

/* Answers a message. The tokens of the turns before it are found in the prefix
 * cache of an engine that has one. Returns the exit code; a message that cannot
 * be answered is dropped, with a sentence. */
static int answer_message(talk *t, const char *text)
{
    xr_err err = { "" };
    char where[32];
    cli_item item = { .number = t->turn };
    int code = CLI_OK;
    (void)snprintf(where, sizeof where, "%s:%llu", t->g.tool.input,
                   (unsigned long long)++t->turn);
    xray_status status = add_message(t, "user", text, &err);
    if (status != XRAY_OK)
        return cli_fail(status, &err);
    status = cli_tool_messages(&t->g.tool, t->object, where, &item, &err);
    if (status == XRAY_OK)
        status = cli_prompt_read(&t->g, t->options, where, &item, &err);
    if (status == XRAY_OK) {
        interrupts = 0;
        code = cli_generator_run(&t->g, &item, 1);
    }
    if (status == XRAY_OK && code == CLI_OK && !item.error) {
        status = keep_answer(t, &item, &err);
        code = status == XRAY_OK ? CLI_OK : cli_fail(status, &err);
    } else if (code == CLI_OK) {
        cli_say("%s", item.error ? item.error : err.text);
        drop_last_message(t);
    }
    cli_prompt_free(&item);
    free(item.error);
    free(item.ids);
    return code;
}

static int take_line(talk *t, char *line, size_t size)
{
    xr_err err = { "" };
    if (strcmp(line, "/reset") == 0) {
        xray_status status = begin_conversation(t, &err);
        return status == XRAY_OK ? CLI_OK : cli_fail(status, &err);
    }
    if (strspn(line, " \t") == size)
        return CLI_OK;
    if (strlen(line) != size || !cli_is_text(line)) {
        cli_say("the line is not text in UTF-8");
        return CLI_OK;
    }
    return answer_message(t, line);
}

static int hold_conversation(talk *t)
{
    cli_lines lines;
    int terminal = isatty(STDIN_FILENO);
    int code = cli_lines_open(&t->args, &lines);
    while (code == CLI_OK) {
        char *line;
        size_t size;
        if (terminal)
            (void)fputs("> ", stderr);
        int got = cli_lines_next(&lines, 1, &line, &size);
        if (got != LINES_GOT) {
            code = got == LINES_END ? CLI_OK : CLI_FAILED;
            break;
        }
        if (strcmp(line, "/quit") == 0)
            break;
        code = take_line(t, line, size);
    }
    cli_lines_close(&lines);
    return code;
}

/* ---- the command -------------------------------------------------------- */

/* Refuses, before the first line is read, a model that cannot talk, and starts
 * the engine. */
static int prepare_talk(talk *t)
{
    xr_err err = { "" };
    cli_tool *tool = &t->g.tool;
    uint64_t most = tool->run->actor.model.max_positions;
    if (!tool->chat.chat) {
        cli_say("%s; xray generate samples from texts",
                tool->chat.why.text[0] ? tool->chat.why.text
                                       : "the model has no chat template");
        return CLI_USAGE;
    }
    xray_status status =
        cli_generator_watches(&t->g, "xray chat", &t->args, &err);
    if (status == XRAY_OK)
        status = begin_conversation(t, &err);
    if (status != XRAY_OK)
        return cli_fail(status, &err);
    t->options = cJSON_CreateObject();
    cli_generator_find_ends(&t->g);
    tool->input = "turn";
    t->g.stop = &interrupts;
    return cli_tool_ready(tool,
                          most < FIRST_ROW_TOKENS ? most : FIRST_ROW_TOKENS, 1);
}

static int run_chat(const cli_args *args)
{
    talk t = { .args = *args };
    t.args.stream = 1;
    t.args.n = 1;
    int code = cli_tool_open(&t.g.tool, &t.args, XR_WITH_INFER);
    if (code == CLI_OK)
        code = prepare_talk(&t);
    if (code == CLI_OK) {
        catch_interrupts();
        code = hold_conversation(&t);
    }
    cli_tool_close(&t.g.tool);
    cJSON_Delete(t.object);
    cJSON_Delete(t.options);
    xr_str_free(&t.g.out);
    return code;
}

static const cli_flag flags[] = {
    CLI_MODEL_FLAG,
    { "--system", "TEXT", CLI_TEXT, 0, offsetof(cli_args, system), NULL, 1, 0,
      "system message of the conversation" },
    { "--infer", "NAME", CLI_TEXT, 0, offsetof(cli_args, infer), "paged", 1, 0,
      "inference engine that samples" },
    { "--temperature", "T", CLI_TEMPERATURE, 0, offsetof(cli_args, temperature),
      "1", 1, 0, "0 is greedy" },
    { "--top-p", "P", CLI_TOP_P, 0, offsetof(cli_args, top_p), "1", 1, 0,
      "sample from the likeliest tokens with this total probability" },
    { "--top-k", "K", CLI_INT, 0, offsetof(cli_args, top_k), "0", 0, 2147483647,
      "sample from the K likeliest tokens; 0: all" },
    { "--min-p", "P", CLI_REAL, 0, offsetof(cli_args, min_p), "0", 0, 1,
      "sample from tokens at least P times as likely as the likeliest" },
    { "--repetition-penalty", "R", CLI_REAL, 0,
      offsetof(cli_args, repetition_penalty), "1", 0.01, 100,
      "divide logits above 0 of tokens that the conversation has, and multiply "
      "others" },
    { "--max-tokens", "N", CLI_INT, 0, offsetof(cli_args, max_tokens), "1024",
      1, 2147483647, "limit of tokens per answer" },
    { "--seed", "S", CLI_INT, 0, offsetof(cli_args, seed), "0", 0, 0x1p53,
      "the same seed and lines give the same answers" },
    CLI_SET_FLAG,
    CLI_PLUGIN_PATH_FLAG,
    CLI_LOG_FLAG,
    { 0 }
};

const cli_command cli_chat_command = {
    .name = "chat",
    .usage = "--model DIR [options]",
    .summary = "talk to a model, turn by turn",
    .about =
        "Reads messages from standard input, one on each line, and prints each "
        "answer as\nits tokens come. The conversation goes through the model's "
        "chat template. Ctrl-C\nends an answer, which stays as far as it has "
        "come; twice, the program. The line\n/reset begins a new "
        "conversation; /quit or Ctrl-D ends.",
    .examples = "  xray chat --model DIR --temperature 0.7\n  echo 'Hello' | "
                "xray chat --model checkpoints --system 'Be brief.'\n",
    .flags = flags,
    .run = run_chat,
};
