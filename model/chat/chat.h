/* SPDX-License-Identifier: Apache-2.0
 *
 * Chat templates: the part of Jinja that the templates of models use, executed
 * as transformers does (trim_blocks, lstrip_blocks, loop controls, generation
 * blocks), bounded in time and memory.
 */
#ifndef XM_CHAT_H
#define XM_CHAT_H

#include <stddef.h>
#include <stdint.h>

#include "core/base/err.h"
#include "core/base/json.h"
#include "core/base/str.h"

/* Bounds; one that is exceeded is an error that names it. */
#define XM_CHAT_MAX_SOURCE ((size_t)1 << 20) /* bytes of a template */
#define XM_CHAT_MAX_NESTING 200u             /* of expressions, and of blocks */
#define XM_CHAT_MAX_CALLS 100u  /* macros and recursive loops in each other */
#define XM_CHAT_MAX_DEPTH 1000u /* of evaluation, and of nested values */
#define XM_CHAT_MAX_STEPS ((uint64_t)20000000) /* of one rendering */
#define XM_CHAT_MAX_MEMORY ((size_t)256 << 20) /* bytes of its values */
#define XM_CHAT_MAX_OUTPUT ((size_t)64 << 20)  /* bytes of its text */
#define XM_CHAT_MAX_RANGE 100000               /* items of range() */

/* A compiled template; any number of threads may render with it. */
typedef struct xm_chat xm_chat;

/* Compiles a template's text. Messages read "<where>:<line>: ...". */
xray_status xm_chat_compile(const char *source, size_t size, const char *where,
                            xr_err *err, xm_chat **out);
/* The template of a model directory: chat_template.jinja, or "chat_template" of
 * tokenizer_config.json (text, or a list of {name, template}), or
 * chat_template.json. `name` picks one of a list; NULL: "default", and
 * "tool_use" where the call has tools. The special tokens of the directory
 * (bos_token, eos_token, ...) become variables. *out is NULL when the directory
 * has none. */
xray_status xm_chat_open(const char *dir, const char *name, xr_err *err,
                         xm_chat **out);
/* A template file; special tokens come from `dir`, or are undefined where it
 * is NULL. */
xray_status xm_chat_open_file(const char *path, const char *dir, xr_err *err,
                              xm_chat **out);
void xm_chat_close(xm_chat *chat); /* accepts NULL */

typedef struct xm_chat_call {
    const cJSON *messages;  /* an array of {role, content, ...} */
    const cJSON *tools;     /* an array, or NULL: none */
    const cJSON *documents; /* an array, or NULL: none */
    const cJSON *variables; /* an object of more variables, or NULL */
    int add_generation_prompt;
    int continue_final_message; /* 1: the text ends within the last message */
    int64_t now; /* seconds since 1970, what strftime_now shows, in UTC */
} xm_chat_call;

/* Bytes [from, to) of the text that a {% generation %} block wrote. */
typedef struct xm_chat_span {
    size_t from;
    size_t to;
} xm_chat_span;

/* Zero-initialise; xm_chat_text_free releases it. */
typedef struct xm_chat_text {
    xr_str text;
    xm_chat_span *spans;
    size_t span_count;
    size_t span_cap;
    int has_generation; /* the template has generation blocks */
} xm_chat_text;
void xm_chat_text_free(xm_chat_text *text);

/* Renders into `out`, replacing what it held. raise_exception of the template,
 * an undefined value, a type that does not fit and spent limits are errors with
 * the template's line; `where` (a data row's file:line) starts the message. */
xray_status xm_chat_render(const xm_chat *chat, const xm_chat_call *call,
                           const char *where, xr_err *err, xm_chat_text *out);

#endif
