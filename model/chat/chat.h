/* SPDX-License-Identifier: Apache-2.0
 *
 * Renders conversations by a model's chat template: the part of Jinja that such
 * templates use, executed as transformers does (trim_blocks, lstrip_blocks,
 * loop controls, generation blocks), with bounded time and memory.
 */
#ifndef XM_CHAT_H
#define XM_CHAT_H

#include <stddef.h>
#include <stdint.h>

#include "core/base/err.h"
#include "core/base/json.h"
#include "core/base/str.h"

/* Limits. Exceeding one is an error that names it. */
#define XM_CHAT_MAX_SOURCE ((size_t)1 << 20) /* bytes of a template */
#define XM_CHAT_MAX_NESTING 200u             /* of expressions, and of blocks */
#define XM_CHAT_MAX_CALLS 100u  /* of nested macro and recursive loop calls */
#define XM_CHAT_MAX_DEPTH 1000u /* of evaluations, and of values */
#define XM_CHAT_MAX_STEPS ((uint64_t)20000000) /* of work in one rendering */
#define XM_CHAT_MAX_MEMORY \
    ((size_t)256 << 20) /* bytes of the values of a rendering */
#define XM_CHAT_MAX_OUTPUT ((size_t)64 << 20) /* bytes of the rendered text */
#define XM_CHAT_MAX_RANGE 100000              /* items of range() */

/* A compiled template, or several by name. Any number of threads may render
 * with it. */
typedef struct xm_chat xm_chat;

/* Compiles the text of a template. Messages start with "<where>:<line>: ". */
xray_status xm_chat_compile(const char *source, size_t size, const char *where,
                            xr_err *err, xm_chat **out);
/* Opens the template of a model directory: chat_template.jinja, or
 * "chat_template" of tokenizer_config.json (a text, or a list of {name,
 * template}), or chat_template.json. `name` chooses one of several; NULL means
 * "default", or "tool_use" if the call has tools. The special tokens of the
 * directory (bos_token, eos_token, ...) become variables. *out is NULL if the
 * directory has no template. */
xray_status xm_chat_open(const char *dir, const char *name, xr_err *err,
                         xm_chat **out);
/* Opens a template file. Special tokens come from `dir`; they are undefined if
 * it is NULL. */
xray_status xm_chat_open_file(const char *path, const char *dir, xr_err *err,
                              xm_chat **out);
void xm_chat_close(xm_chat *chat); /* accepts NULL */

typedef struct xm_chat_call {
    const cJSON *messages;  /* an array of {role, content, ...} */
    const cJSON *tools;     /* an array; NULL: none */
    const cJSON *documents; /* an array; NULL: none */
    const cJSON *variables; /* an object with further variables, or NULL */
    int add_generation_prompt;
    /* 1: the text stops at the end of the last message's content */
    int continue_final_message;
    int64_t now; /* seconds since 1970 that strftime_now shows, in UTC */
} xm_chat_call;

/* Bytes [from, to) of the rendered text that a {% generation %} block wrote. */
typedef struct xm_chat_span {
    size_t from;
    size_t to;
} xm_chat_span;

/* A rendered text. Initialise it with zeros; xm_chat_text_free releases it. */
typedef struct xm_chat_text {
    xr_str text;
    xm_chat_span *spans;
    size_t span_count;
    size_t span_cap;
    int has_generation; /* the template has generation blocks */
} xm_chat_text;
void xm_chat_text_free(xm_chat_text *text);

/* Renders into `out`, which is cleared first. The template's raise_exception,
 * the use of an undefined value, a wrong type and an exceeded limit are errors
 * with the template's line. The message starts with `where` (file:line of a
 * data row) unless it is NULL. */
xray_status xm_chat_render(const xm_chat *chat, const xm_chat_call *call,
                           const char *where, xr_err *err, xm_chat_text *out);

#endif
