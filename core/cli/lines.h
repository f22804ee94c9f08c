/* SPDX-License-Identifier: Apache-2.0
 *
 * JSON lines in, JSON lines out: a line for a line, in order.
 */
#ifndef XR_CLI_LINES_H
#define XR_CLI_LINES_H

#include <stddef.h>
#include <stdint.h>

#include "core/base/err.h"
#include "core/base/json.h"
#include "core/base/str.h"
#include "core/cli/cli.h"

#define LINES_GOT 1
#define LINES_END 0
#define LINES_NONE_NOW 2 /* the writer at the other end pauses */
#define LINES_BROKEN (-1)

typedef struct cli_lines {
    int fd;
    const char *name; /* "stdin" or the file */
    char *buffer;
    size_t start; /* of what is not given out yet */
    size_t used;
    size_t cap;
    size_t searched; /* bytes behind start without a newline */
    uint64_t number; /* of the line given out last, from 1 */
    int at_end;
    int bad; /* an error line was written */
} cli_lines;

/* Opens the first word as a file, or standard input. */
int cli_lines_open(const cli_args *args, cli_lines *out);
void cli_lines_close(cli_lines *lines);

/* The next line, without its newline and with a NUL behind it; valid until the
 * next call. With `wait` 0 it does not wait for one to come, so that a chunk
 * can be worked on while the other side waits for its answers. */
int cli_lines_next(cli_lines *lines, int wait, char **out_line,
                   size_t *out_size);

/* Fails with "did you mean" if the line has a key that is neither in `known`
 * (ends with NULL) nor, with `chat` 1, one of a conversation. */
xray_status cli_line_keys(const cJSON *object, const char *const *known,
                          int chat, const char *where, xr_err *err);
void cli_line_where(const cli_lines *lines, char *buffer, size_t cap);

/* Appends {"error":"..."} and remembers that there was one. */
void cli_line_error(cli_lines *lines, const xr_err *err, xr_str *out);
/* Appends the array, "null" in the first place where `first_null`. */
void cli_put_ids(const int32_t *ids, size_t count, xr_str *out);
void cli_put_floats(const float *values, size_t count, int first_null,
                    xr_str *out);

/* Writes and clears `out`; CLI_OK, or CLI_FAILED when nobody reads. */
int cli_lines_write(xr_str *out);

/* A tool without batches: `fn` turns an object into the text of the answer, or
 * fails. Returns the exit code. */
typedef xray_status (*cli_line_fn)(void *ctx, const cJSON *object,
                                   const char *line, const char *where,
                                   xr_err *err, xr_str *out);
int cli_lines_each(const cli_args *args, cli_line_fn fn, void *ctx);

#endif
