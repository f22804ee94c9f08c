/* SPDX-License-Identifier: Apache-2.0
 *
 * JSON lines in, JSON lines out: one answer per line, in the order of the
 * lines.
 */
#ifndef XR_CLI_JSON_LINES_H
#define XR_CLI_JSON_LINES_H

#include <stddef.h>
#include <stdint.h>

#include "core/base/err.h"
#include "core/base/json.h"
#include "core/base/str.h"
#include "core/cli/cli.h"

#define LINES_GOT 1
#define LINES_END 0
#define LINES_NONE_NOW 2 /* the writer at the other end is pausing */
#define LINES_BROKEN (-1)

typedef struct cli_lines {
    int fd;
    const char *name; /* "stdin" or the file */
    char *buffer;
    size_t start; /* offset of the next line */
    size_t used;
    size_t cap;
    size_t searched; /* bytes after start without a newline */
    uint64_t number; /* of the last line returned, from 1 */
    int at_end;
    int bad; /* an error line was written */
} cli_lines;

/* Opens the texts of --prompt as lines, else the first word as a file, else
 * standard input. */
int cli_lines_open(const cli_args *args, cli_lines *out);
void cli_lines_close(cli_lines *lines);

/* The next line, with a NUL instead of its newline, valid until the next call;
 * returns LINES_*. With `wait` 0 it does not wait for input, so that a chunk
 * can be processed while the writer waits for answers. */
int cli_lines_next(cli_lines *lines, int wait, char **out_line,
                   size_t *out_size);

/* Fails, with "did you mean", if the line has a key that is neither in `known`
 * (ends with NULL) nor, with `chat` 1, one of a conversation. */
xray_status cli_line_keys(const cJSON *object, const char *const *known,
                          int chat, const char *where, xr_err *err);
void cli_line_where(const cli_lines *lines, char *buffer, size_t cap);

/* Appends {"error":"..."} and sets `bad`. */
void cli_line_error(cli_lines *lines, const xr_err *err, xr_str *out);
/* Append an array; with `first_null` 1 its first element is null. */
void cli_put_ids(const int32_t *ids, size_t count, xr_str *out);
void cli_put_floats(const float *values, size_t count, int first_null,
                    xr_str *out);

/* Writes and clears `out`; CLI_FAILED if the output is closed. */
int cli_lines_write(xr_str *out);

/* Answers each line by itself: `fn` appends the answer to an object, or fails.
 * Returns the exit code. */
typedef xray_status (*cli_line_fn)(void *ctx, const cJSON *object,
                                   const char *line, const char *where,
                                   xr_err *err, xr_str *out);
int cli_lines_each(const cli_args *args, cli_line_fn fn, void *ctx);

#endif
