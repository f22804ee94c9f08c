/* SPDX-License-Identifier: Apache-2.0
 *
 * A model for the tools that read JSON lines: its roles are restarted when
 * lines need longer rows, and lines are processed in chunks.
 */
#ifndef XR_CLI_MODEL_TOOL_H
#define XR_CLI_MODEL_TOOL_H

#include "core/cli/chat.h"
#include "core/cli/json_lines.h"
#include "core/roles/roles.h"

typedef struct cli_tool {
    const cli_args *args;
    uint32_t with;
    xr_config *config;
    xr_run *run;
    xr_roles *roles;     /* NULL until they are started */
    uint64_t row_tokens; /* the roles are ready for rows of this length */
    uint64_t sequences;
    const char *input; /* "stdin" or the name of the file */
    xm_tokenizer *tokenizer;
    xr_err tokenizer_err; /* why there is none */
    cli_chat chat;
} cli_tool;

/* Makes the run; CLI_OK, or the exit code after messages. The model needs no
 * tokenizer if all lines have ids. */
int cli_tool_open(cli_tool *tool, const cli_args *args, uint32_t with);
void cli_tool_close(cli_tool *tool);
/* Starts the roles, or restarts them if they are not ready for such rows.
 * CLI_OK, or the exit code after messages. */
int cli_tool_ready(cli_tool *tool, uint64_t row_tokens, uint64_t sequences);

/* Tokens per micro-batch of roles that are ready for rows of `row_tokens`. */
uint64_t cli_tool_micro_tokens(uint64_t row_tokens);

/* A line of a chunk. */
typedef struct cli_item {
    char *error; /* NULL: none */
    int32_t *ids;
    size_t count;
    uint64_t number; /* of the line, from 0 */
    void *own;       /* of the command: made by `take`, freed by `drop` */
} cli_item;

/* Marks an item as refused; the answer to its line is the error, after the name
 * of the input and the number of the line. */
void cli_item_refused(const cli_tool *tool, cli_item *item, xr_err *err);

/* Renders the conversation of `object` and reads its tokens, of which the model
 * must have positions for one more. */
xray_status cli_tool_messages(cli_tool *tool, const cJSON *object,
                              const char *where, cli_item *item, xr_err *err);

typedef struct cli_batch_ops {
    const char *text_key;    /* key of the text to tokenize, as "text" */
    int generate;            /* 1: messages end with the generation prompt */
    const char *const *keys; /* keys of a line, without those of a
                              * conversation; ends with NULL */
    size_t most_tokens;      /* limit per line; a longer one is an error */
    /* Reads the command's own keys; may be NULL. */
    xray_status (*take)(void *ctx, const cJSON *object, const char *where,
                        cli_item *item, xr_err *err);
    void (*drop)(cli_item *item); /* may be NULL */
    /* Processes a chunk without its items with an error; returns the exit code.
     */
    int (*run)(void *ctx, cli_item *items, size_t count);
    /* Appends the answer, without the newline. NULL: `run` writes the answers
     * itself, and errors go to standard error. */
    xray_status (*print)(void *ctx, const cli_item *item, xr_err *err,
                         xr_str *out);
} cli_batch_ops;
int cli_tool_lines(cli_tool *tool, const cli_batch_ops *ops, void *ctx);

#endif
