/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs the program under test and splits its output into streams and lines.
 */
#ifndef XR_TEST_PROGRAM_H
#define XR_TEST_PROGRAM_H

#include <cjson/cJSON.h>

#include "tests/scratch.h"

typedef struct program_result {
    int code; /* exit code, or 128 + signal */
    char *out;
    char *err;
} program_result;

/* Runs $XRAY_BIN with `args` (ends with NULL, without the program's name) and
 * `input` on standard input. The last result is freed first. */
const program_result *program_run(const char *input, const char *const *args);
#define RUN(input, ...) \
    program_run(input, (const char *const[]){ __VA_ARGS__, NULL })

/* The same, with a signal sent `times` times once `file` holds something. */
const program_result *program_kill(const char *const *args, const char *file,
                                   int signal, int times);

/* Runs `command` in a shell with $XRAY_BIN in its environment. */
const program_result *program_shell(const char *command);

/* Fails the test, showing both streams, unless the exit code is `code`. */
void expect_code(const program_result *result, int code);
/* Fails unless `where` contains `text`. */
void expect_text(const char *where, const char *text);

/* Line `i` of the output as JSON; the caller deletes it. */
cJSON *output_line(const program_result *result, size_t i);
size_t count_lines(const char *text);

/* Frees the result of the last run. */
int program_done(void **state);

#endif
