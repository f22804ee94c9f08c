/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs a model on JSON lines: starts its roles, and collects lines into chunks.
 */
#include "core/cli/model_tool.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A chunk ends with this many lines or tokens. */
enum { CHUNK_LINES = 256, CHUNK_TOKENS = 1 << 16 };

static const uint64_t MIN_ROW_TOKENS = 256;
static const uint64_t MIN_MICRO_TOKENS = 2048;

/* ---- the run ------------------------------------------------------------ */

/* Lines are given to a model of this process, not to Workhorses. */
static void refuse_workhorses(const cli_tool *tool, xr_errors *errors)
{
    const xr_run *run = tool->run;
    if (run->ini.run.ranks > 1)
        xr_errors_add(errors,
                      "%s: [run] ranks = %lld: this command has its model in "
                      "one process, expected 1",
                      xr_config_location(tool->config, "run", "ranks"),
                      (long long)run->ini.run.ranks);
    else if (xr_run_is_remote(run))
        xr_errors_add(errors,
                      "%s: [run] runtime = %s: this command has its model in "
                      "its own process, expected auto",
                      xr_config_location(tool->config, "run", "runtime"),
                      run->ini.run.runtime);
}

static int open_tool_run(cli_tool *tool)
{
    xr_errors errors = { 0 };
    tool->config = cli_config(tool->args, NULL, &errors);
    if (tool->config)
        tool->run = xr_run_new(tool->config, tool->args->plugin_path,
                               tool->with, &errors);
    if (tool->run && !errors.count)
        refuse_workhorses(tool, &errors);
    int code = CLI_OK;
    if (!tool->run || errors.count)
        code = cli_errors(&errors);
    xr_errors_free(&errors);
    return code;
}

static void close_tool_run(cli_tool *tool)
{
    xr_roles_free(tool->roles);
    xr_run_free(tool->run);
    xr_config_free(tool->config);
    tool->roles = NULL;
    tool->run = NULL;
    tool->config = NULL;
}

int cli_tool_open(cli_tool *tool, const cli_args *args, uint32_t with)
{
    *tool = (cli_tool){ .args = args, .with = with };
    int code = open_tool_run(tool);
    if (code != CLI_OK || !tool->run->actor.model.path)
        return code;
    xr_run_say_found(tool->run);
    const char *dir = tool->run->ini.model.tokenizer_path;
    if (!dir || !*dir)
        dir = tool->run->actor.model.path;
    if (xm_tokenizer_open(dir, &tool->tokenizer_err, &tool->tokenizer) !=
        XRAY_OK)
        tool->tokenizer = NULL;
    cli_chat_open(dir, &tool->run->ini.data, &tool->chat);
    return CLI_OK;
}

void cli_tool_close(cli_tool *tool)
{
    close_tool_run(tool);
    cli_chat_close(&tool->chat);
    xm_tokenizer_close(tool->tokenizer);
    tool->tokenizer = NULL;
}

uint64_t cli_tool_micro_tokens(uint64_t row_tokens)
{
    return row_tokens > MIN_MICRO_TOKENS ? row_tokens : MIN_MICRO_TOKENS;
}

static uint64_t next_power_of_two(uint64_t least, uint64_t start)
{
    while (start < least && start < UINT64_MAX / 2)
        start *= 2;
    return start;
}

int cli_tool_ready(cli_tool *tool, uint64_t row_tokens, uint64_t sequences)
{
    if (tool->roles && row_tokens <= tool->row_tokens &&
        sequences <= tool->sequences)
        return CLI_OK;
    if (tool->roles) {
        close_tool_run(tool);
        int code = open_tool_run(tool);
        if (code != CLI_OK)
            return code;
    }
    /* Powers of two, so that lines of growing length rarely cause a restart. */
    uint64_t row = next_power_of_two(row_tokens, MIN_ROW_TOKENS);
    uint64_t bound = tool->run->actor.model.max_positions;
    row = row > bound && bound >= row_tokens ? bound : row;
    tool->row_tokens = row > tool->row_tokens ? row : tool->row_tokens;
    if (sequences > tool->sequences)
        tool->sequences = next_power_of_two(sequences, 1);
    xr_run_set_workloads(tool->run, cli_tool_micro_tokens(tool->row_tokens),
                         tool->row_tokens, tool->sequences);
    xr_err err = { "" };
    xray_status status = xr_roles_start(tool->run, &err, &tool->roles);
    if (status != XRAY_OK)
        return cli_fail(status, &err);
    return CLI_OK;
}

/* ---- chunks ------------------------------------------------------------- */

typedef struct chunk {
    cli_tool *tool;
    const cli_batch_ops *ops;
    void *ctx;
    cli_lines lines;
    cli_item *items; /* [CHUNK_LINES] */
    size_t count;
    size_t tokens;
    xr_str out;
} chunk;

static void set_item_error(cli_item *item, const xr_err *err)
{
    free(item->error);
    item->error = xr_strdup(err->text[0] ? err->text : "out of memory");
}

void cli_item_refused(const cli_tool *tool, cli_item *item, xr_err *err)
{
    (void)xr_fail_in(err, XRAY_E_ARG, "%s:%llu", tool->input,
                     (unsigned long long)item->number + 1);
    set_item_error(item, err);
}

/* `special` 0: a chat template already wrote the special tokens, or the text
 * goes on from tokens that have them. */
static xray_status tokenize_text(const cli_tool *tool, const char *text,
                                 int special, const char *where, cli_item *item,
                                 xr_err *err)
{
    xm_ids ids = { 0 };
    if (!tool->tokenizer)
        return xr_fail(err, XRAY_E_CONFIG, "%s: no tokenizer: %s", where,
                       tool->tokenizer_err.text);
    xray_status status = xm_tokenizer_encode(tool->tokenizer, text,
                                             strlen(text), special, &ids, err);
    if (status != XRAY_OK) {
        xm_ids_free(&ids);
        return xr_fail_in(err, status, "%s", where);
    }
    item->ids = ids.data;
    item->count = ids.count;
    return XRAY_OK;
}

static xray_status read_messages(const cli_tool *tool, const cJSON *object,
                                 int generate, const char *where,
                                 cli_item *item, xr_err *err)
{
    xm_chat_text text = { .spans = NULL };
    xray_status status =
        cli_chat_render(&tool->chat, object, where, generate, err, &text);
    if (status == XRAY_OK)
        status =
            tokenize_text(tool, xr_str_text(&text.text), 0, where, item, err);
    xm_chat_text_free(&text);
    return status;
}

static xray_status check_token_ids(const cli_tool *tool, size_t most,
                                   const char *where, const cli_item *item,
                                   xr_err *err)
{
    uint32_t vocab = tool->run->actor.model.vocab_size;
    if (item->count > most)
        return xr_fail(err, XRAY_E_ARG,
                       "%s: %zu tokens, at most %zu are possible with this "
                       "model",
                       where, item->count, most);
    for (size_t i = 0; i < item->count; i++)
        if ((uint32_t)item->ids[i] >= vocab)
            return xr_fail(err, XRAY_E_ARG,
                           "%s: id %d at index %zu is outside the model's "
                           "vocabulary of %u",
                           where, (int)item->ids[i], i, vocab);
    return XRAY_OK;
}

xray_status cli_tool_messages(cli_tool *tool, const cJSON *object,
                              const char *where, cli_item *item, xr_err *err)
{
    size_t most = tool->run->actor.model.max_positions - 1;
    xray_status status = read_messages(tool, object, 1, where, item, err);
    return status == XRAY_OK ? check_token_ids(tool, most, where, item, err)
                             : status;
}

static xray_status read_line_object(chunk *c, const cJSON *object,
                                    const char *where, cli_item *item,
                                    xr_err *err)
{
    const char *key = c->ops->text_key;
    const cJSON *ids = xr_json_get(object, "ids");
    const cJSON *text = xr_json_get(object, key);
    const cJSON *messages = xr_json_get(object, "messages");
    xray_status status = cli_line_keys(object, c->ops->keys, 1, where, err);
    if (status != XRAY_OK)
        return status;
    /* A line that goes on from another one may have nothing to add. */
    int goes_on = xr_json_get(object, "after") != NULL;
    if (goes_on && messages)
        return xr_fail(err, XRAY_E_ARG,
                       "%s: \"messages\" are a complete conversation; a line "
                       "with \"after\" has \"%s\" or \"ids\"",
                       where, key);
    if (!!ids + !!text + !!messages + goes_on < 1 ||
        !!ids + !!text + !!messages > 1)
        return xr_fail(err, XRAY_E_ARG,
                       "%s: a line must have exactly one of \"%s\", "
                       "\"messages\" and \"ids\"",
                       where, key);
    if (ids) {
        status = xr_json_ids(ids, where, err, &item->ids, &item->count);
    } else if (messages) {
        status =
            read_messages(c->tool, object, c->ops->generate, where, item, err);
    } else if (text) {
        const char *value;
        status = xr_json_string(object, key, where, err, &value);
        if (status == XRAY_OK)
            status = tokenize_text(c->tool, value, !goes_on, where, item, err);
    }
    if (status != XRAY_OK)
        return status;
    status = check_token_ids(c->tool, c->ops->most_tokens, where, item, err);
    if (status != XRAY_OK || !c->ops->take)
        return status;
    return c->ops->take(c->ctx, object, where, item, err);
}

static void read_line_item(chunk *c, const char *line, size_t size)
{
    char where[4128];
    xr_err err = { "" };
    cJSON *object = NULL;
    cli_item *item = &c->items[c->count++];
    *item = (cli_item){ .number = c->lines.number - 1 };
    cli_line_where(&c->lines, where, sizeof where);
    xray_status status = xr_json_line(line, size, where, &err, &object);
    if (status == XRAY_OK)
        status = read_line_object(c, object, where, item, &err);
    cJSON_Delete(object);
    c->tokens += item->count;
    if (status != XRAY_OK)
        set_item_error(item, &err);
}

/* Waits for a line, then reads those that have arrived. Returns the LINES_* of
 * the last read. */
static int read_chunk(chunk *c)
{
    int got = LINES_GOT;
    while (c->count < CHUNK_LINES && c->tokens < CHUNK_TOKENS) {
        char *line;
        size_t size;
        got = cli_lines_next(&c->lines, c->count == 0, &line, &size);
        if (got != LINES_GOT)
            break;
        read_line_item(c, line, size);
    }
    return got;
}

static void report_errors(chunk *c)
{
    for (size_t i = 0; i < c->count; i++)
        if (c->items[i].error) {
            cli_say("%s", c->items[i].error);
            c->lines.bad = 1;
        }
}

static int print_chunk(chunk *c)
{
    for (size_t i = 0; i < c->count; i++) {
        cli_item *item = &c->items[i];
        xr_err err = { "" };
        size_t before = c->out.size;
        if (!item->error &&
            c->ops->print(c->ctx, item, &err, &c->out) != XRAY_OK) {
            c->out.size = before; /* removes a half-written answer */
            set_item_error(item, &err);
        }
        if (!item->error) {
            xr_str_append(&c->out, "\n", 1);
            continue;
        }
        (void)snprintf(err.text, sizeof err.text, "%s", item->error);
        cli_line_error(&c->lines, &err, &c->out);
    }
    return cli_lines_write(&c->out);
}

static void free_chunk_items(chunk *c)
{
    for (size_t i = 0; i < c->count; i++) {
        if (c->ops->drop)
            c->ops->drop(&c->items[i]);
        free(c->items[i].error);
        free(c->items[i].ids);
    }
    c->count = 0;
    c->tokens = 0;
}

static int process_chunks(chunk *c)
{
    for (;;) {
        int got = read_chunk(c);
        int code = got == LINES_BROKEN ? CLI_FAILED : CLI_OK;
        if (code == CLI_OK && c->count)
            code = c->ops->run(c->ctx, c->items, c->count);
        if (code == CLI_OK && c->ops->print)
            code = print_chunk(c);
        else if (code == CLI_OK)
            report_errors(c);
        free_chunk_items(c);
        if (code != CLI_OK || got == LINES_END)
            return code;
    }
}

int cli_tool_lines(cli_tool *tool, const cli_batch_ops *ops, void *ctx)
{
    chunk c = { .tool = tool, .ops = ops, .ctx = ctx };
    int code = cli_lines_open(tool->args, &c.lines);
    if (code != CLI_OK)
        return code;
    tool->input = c.lines.name;
    c.items = xr_calloc(CHUNK_LINES, sizeof *c.items);
    if (c.items) {
        code = process_chunks(&c);
    } else {
        cli_say("out of memory");
        code = CLI_FAILED;
    }
    if (code == CLI_OK && c.lines.bad)
        code = CLI_FAILED;
    free(c.items);
    xr_str_free(&c.out);
    cli_lines_close(&c.lines);
    return code;
}
