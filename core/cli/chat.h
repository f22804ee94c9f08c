/* SPDX-License-Identifier: Apache-2.0
 *
 * Renders lines with a conversation, {"messages": [...]}, through the model's
 * chat template.
 */
#ifndef XR_CLI_CHAT_H
#define XR_CLI_CHAT_H

#include "core/base/json.h"
#include "core/config/sections.h"
#include "model/chat/chat.h"

typedef struct cli_chat {
    xm_chat *chat; /* NULL: the model has none, or it cannot be read */
    xr_err why;    /* why it cannot be read */
    cJSON *kwargs; /* for lines without their own; NULL: none */
    char *system;  /* prompt for conversations without one; "": none */
    int64_t now;
} cli_chat;

/* Opens the model's template, or the one that `data` (may be NULL) names. Never
 * fails: an error is reported to the lines that need the template. */
void cli_chat_open(const char *dir, const xr_data_section *data, cli_chat *out);
void cli_chat_close(cli_chat *chat);

/* Renders the line's "messages" with its "tools", "documents",
 * "chat_template_kwargs" and "add_generation_prompt" (else `generate`). */
xray_status cli_chat_render(const cli_chat *chat, const cJSON *object,
                            const char *where, int generate, xr_err *err,
                            xm_chat_text *out);

#endif
