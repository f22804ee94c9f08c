/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads JSON lines from a file or standard input and writes one answer per
 * line.
 */
#include "core/cli/json_lines.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/file_format.h"
#include "core/base/system_error.h"

enum { READ_SIZE = 1 << 16 };

/* Makes lines of the texts of --prompt. */
static int open_prompts(const cli_list *prompts, cli_lines *out)
{
    xr_str text = { 0 };
    for (size_t i = 0; i < prompts->count; i++) {
        const char *prompt = prompts->items[i];
        xr_str_puts(&text, "{\"prompt\":");
        xr_str_json(&text, prompt, strlen(prompt));
        xr_str_puts(&text, "}\n");
    }
    if (text.failed) {
        xr_str_free(&text);
        cli_say("out of memory");
        return CLI_FAILED;
    }
    *out = (cli_lines){ .fd = -1,
                        .name = "--prompt",
                        .buffer = text.data,
                        .used = text.size,
                        .cap = text.size,
                        .at_end = 1 };
    return CLI_OK;
}

int cli_lines_open(const cli_args *args, cli_lines *out)
{
    if (args->prompts.count)
        return open_prompts(&args->prompts, out);
    *out = (cli_lines){ .fd = STDIN_FILENO, .name = "stdin" };
    if (!args->words.count || strcmp(args->words.items[0], "-") == 0)
        return CLI_OK;
    out->name = args->words.items[0];
    out->fd = open(out->name, O_RDONLY | O_CLOEXEC);
    if (out->fd >= 0)
        return CLI_OK;
    cli_say("%s: %s", out->name, XR_SYSTEM_ERROR(errno));
    return CLI_USAGE;
}

void cli_lines_close(cli_lines *lines)
{
    if (lines->fd > STDIN_FILENO)
        (void)close(lines->fd);
    free(lines->buffer);
    lines->buffer = NULL;
}

/* Makes space after the buffered bytes, with one more byte for a NUL. */
static int reserve_line_buffer(cli_lines *l)
{
    if (l->start) {
        memmove(l->buffer, l->buffer + l->start, l->used - l->start);
        l->used -= l->start;
        l->start = 0;
    }
    if (l->cap - l->used > READ_SIZE)
        return 0;
    size_t cap = l->cap ? l->cap * 2 : 4 * READ_SIZE;
    char *buffer = realloc(l->buffer, cap);
    if (!buffer)
        return -1;
    l->buffer = buffer;
    l->cap = cap;
    return 0;
}

static int read_more_input(cli_lines *l)
{
    if (reserve_line_buffer(l)) {
        cli_say("%s: out of memory", l->name);
        return -1;
    }
    ssize_t n;
    do {
        n = read(l->fd, l->buffer + l->used, READ_SIZE);
    } while (n < 0 && errno == EINTR);
    if (n < 0) {
        cli_say("%s: %s", l->name, XR_SYSTEM_ERROR(errno));
        return -1;
    }
    l->at_end = n == 0;
    l->used += (size_t)n;
    return 0;
}

static int is_readable_now(const cli_lines *l)
{
    struct pollfd poller = { l->fd, POLLIN, 0 };
    return poll(&poller, 1, 0) != 0;
}

static int return_line(cli_lines *l, size_t size, size_t with_end,
                       char **out_line, size_t *out_size)
{
    char *line = l->buffer + l->start;
    l->start += with_end;
    l->searched = 0;
    l->number++;
    size_t bom = l->number == 1 ? xr_bom_size(line, size) : 0;
    line += bom;
    size -= bom;
    if (size && line[size - 1] == '\r')
        size--;
    line[size] = '\0';
    *out_line = line;
    *out_size = size;
    return LINES_GOT;
}

int cli_lines_next(cli_lines *lines, int wait, char **out_line,
                   size_t *out_size)
{
    for (;;) {
        size_t held = lines->used - lines->start;
        char *from = lines->buffer + lines->start + lines->searched;
        char *end = held > lines->searched
                        ? memchr(from, '\n', held - lines->searched)
                        : NULL;
        if (end) {
            size_t size = (size_t)(end - (lines->buffer + lines->start));
            return return_line(lines, size, size + 1, out_line, out_size);
        }
        lines->searched = held;
        if (lines->at_end && !held)
            return LINES_END;
        if (lines->at_end)
            return return_line(lines, held, held, out_line, out_size);
        if (!wait && !is_readable_now(lines))
            return LINES_NONE_NOW;
        if (read_more_input(lines))
            return LINES_BROKEN;
    }
}

void cli_line_where(const cli_lines *lines, char *buffer, size_t cap)
{
    (void)snprintf(buffer, cap, "%s:%llu", lines->name,
                   (unsigned long long)lines->number);
}

/* True if the list has the key; else *near is the most similar name, if its
 * edit distance is below *best. */
static int is_known_key(const char *key, const char *const *known,
                        const char **near, unsigned *best)
{
    for (; *known; known++) {
        unsigned distance = xr_edit_distance(key, *known, *best);
        if (!distance)
            return 1;
        if (distance < *best) {
            *best = distance;
            *near = *known;
        }
    }
    return 0;
}

xray_status cli_line_keys(const cJSON *object, const char *const *known,
                          int chat, const char *where, xr_err *err)
{
    static const char *const of_chats[] = { "messages",
                                            "tools",
                                            "documents",
                                            "chat_template_kwargs",
                                            "add_generation_prompt",
                                            NULL };
    const cJSON *item;
    cJSON_ArrayForEach(item, object)
    {
        const char *key = item->string;
        const char *near = NULL;
        unsigned best = strlen(key) < 5 ? 2 : 3;
        if (is_known_key(key, known, &near, &best) ||
            (chat && is_known_key(key, of_chats, &near, &best)))
            continue;
        return xr_fail(err, XRAY_E_ARG, "%s: there is no key \"%.100s\"%s%s%s",
                       where, key, near ? "; did you mean \"" : "",
                       near ? near : "", near ? "\"?" : "");
    }
    return XRAY_OK;
}

void cli_line_error(cli_lines *lines, const xr_err *err, xr_str *out)
{
    lines->bad = 1;
    xr_str_puts(out, "{\"error\":");
    xr_str_json(out, err->text, strlen(err->text));
    xr_str_puts(out, "}\n");
}

void cli_put_ids(const int32_t *ids, size_t count, xr_str *out)
{
    xr_str_append(out, "[", 1);
    for (size_t i = 0; i < count; i++) {
        char text[16];
        int n = snprintf(text, sizeof text, i ? ",%d" : "%d", (int)ids[i]);
        xr_str_append(out, text, (size_t)n);
    }
    xr_str_append(out, "]", 1);
}

void cli_put_floats(const float *values, size_t count, int first_null,
                    xr_str *out)
{
    xr_str_append(out, "[", 1);
    for (size_t i = 0; i < count; i++) {
        if (i)
            xr_str_append(out, ",", 1);
        if (i == 0 && first_null)
            xr_str_puts(out, "null");
        else
            xr_str_float(out, values[i]);
    }
    xr_str_append(out, "]", 1);
}

int cli_lines_write(xr_str *out)
{
    if (out->failed) {
        cli_say("out of memory");
        return CLI_FAILED;
    }
    size_t size = out->size;
    size_t done = size ? fwrite(out->data, 1, size, stdout) : 0;
    xr_str_clear(out);
    return done == size && fflush(stdout) == 0 ? CLI_OK : CLI_FAILED;
}

static int answer_json_line(cli_lines *lines, cli_line_fn fn, void *ctx,
                            const char *line, size_t size, xr_str *out)
{
    char where[4128];
    xr_err err = { "" };
    cJSON *object = NULL;
    cli_line_where(lines, where, sizeof where);
    size_t before = out->size;
    xray_status status = xr_json_line(line, size, where, &err, &object);
    if (status == XRAY_OK)
        status = fn(ctx, object, line, where, &err, out);
    cJSON_Delete(object);
    if (status == XRAY_OK) {
        xr_str_append(out, "\n", 1);
    } else {
        out->size = before; /* removes a half-written answer */
        cli_line_error(lines, &err, out);
    }
    return CLI_OK;
}

int cli_lines_each(const cli_args *args, cli_line_fn fn, void *ctx)
{
    cli_lines lines;
    xr_str out = { 0 };
    int code = cli_lines_open(args, &lines);
    while (code == CLI_OK) {
        char *line;
        size_t size;
        int got = cli_lines_next(&lines, 0, &line, &size);
        if (got == LINES_NONE_NOW || out.size > READ_SIZE) {
            code = cli_lines_write(&out);
            if (code == CLI_OK && got == LINES_NONE_NOW)
                got = cli_lines_next(&lines, 1, &line, &size);
        }
        if (code != CLI_OK || got == LINES_END)
            break;
        if (got != LINES_GOT)
            code = CLI_FAILED;
        else
            code = answer_json_line(&lines, fn, ctx, line, size, &out);
    }
    if (code == CLI_OK)
        code = cli_lines_write(&out);
    if (code == CLI_OK && lines.bad)
        code = CLI_FAILED;
    cli_lines_close(&lines);
    xr_str_free(&out);
    return code;
}
