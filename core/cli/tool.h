/* SPDX-License-Identifier: Apache-2.0
 *
 * A model for the JSON-lines tools: roles that are started anew, for longer
 * rows, when the lines need it, and chunks of lines worked on together.
 */
#ifndef XR_CLI_TOOL_H
#define XR_CLI_TOOL_H

#include "core/cli/chat.h"
#include "core/cli/lines.h"
#include "core/roles/roles.h"

typedef struct cli_tool {
    const cli_args *args;
    uint32_t with;
    xr_config *config;
    xr_run *run;
    xr_roles *roles;     /* NULL until they are started */
    uint64_t row_tokens; /* what the roles are ready for */
    uint64_t sequences;
    const char *input; /* where lines come from: "stdin" or a file */
    xm_tokenizer *tokenizer;
    xr_err tokenizer_err; /* why there is none */
    cli_chat chat;
} cli_tool;

/* Makes the run; CLI_OK, or the exit code after messages. A folder without
 * a tokenizer is fine as long as lines bring ids. */
int cli_tool_open(cli_tool *tool, const cli_args *args, uint32_t with);
void cli_tool_close(cli_tool *tool);
/* Starts the roles, or starts them anew, ready for more. Exit code after
 * messages. */
int cli_tool_ready(cli_tool *tool, uint64_t row_tokens, uint64_t sequences);

/* Tokens of a micro-batch where the roles are ready for rows of `row_tokens`.
 */
uint64_t cli_tool_micro_tokens(uint64_t row_tokens);

/* A line of a chunk. */
typedef struct cli_item {
    char *error; /* NULL while nothing is wrong with it */
    int32_t *ids;
    size_t count;
    uint64_t number; /* of the line, from 0 */
    void *own;       /* the command's, made by `take`, freed by `drop` */
} cli_item;

/* Marks an item as bad; its line's answer is the error, with the line's place
 * in front. */
void cli_item_refused(const cli_tool *tool, cli_item *item, xr_err *err);

typedef struct cli_batch_ops {
    const char *text_key; /* "text": what is tokenised when there are no ids */
    int generate;         /* 1: messages end with the generation prompt */
    const char *const *keys; /* of a line beside a conversation's; ends with
                              * NULL */
    size_t most_tokens;      /* longest line; more is that line's error */
    /* Reads the command's own keys; may be NULL. */
    xray_status (*take)(void *ctx, const cJSON *object, const char *where,
                        cli_item *item, xr_err *err);
    void (*drop)(cli_item *item); /* may be NULL */
    /* Works on a chunk; items with an error are skipped. Exit code. */
    int (*run)(void *ctx, cli_item *items, size_t count);
    /* Appends the answer, without the newline. */
    xray_status (*print)(void *ctx, const cli_item *item, xr_err *err,
                         xr_str *out);
} cli_batch_ops;
int cli_tool_lines(cli_tool *tool, const cli_batch_ops *ops, void *ctx);

#endif
