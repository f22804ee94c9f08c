/* SPDX-License-Identifier: Apache-2.0
 *
 * Declares the reader that turns the JSON of one data row into prompt, tokens
 * and loss mask.
 */
#ifndef XR_DATA_ROW_H
#define XR_DATA_ROW_H

#include "core/base/json.h"
#include "core/base/str.h"
#include "core/data/arena.h"
#include "core/data/data.h"
#include "core/data/template.h"

/* The state of reading rows; its buffers are reused from row to row. */
typedef struct xr_reader {
    const xr_data_section *data;
    const xr_data_want *want;
    xr_err *err;
    xr_template prompt_template;
    xr_template response_template;
    cJSON *kwargs; /* variables of the chat template, or NULL */
    int64_t today; /* [data] chat_date */
    xr_arena *arena;
    const char *where; /* place of the current row */
    /* Columns of the first row; see xr_reader_columns. */
    const char *truth_key;
    const char *response_key;
    xr_str text;
    xm_chat_text chat; /* the rendered conversation */
    xm_ids ids;
    xm_token_spans spans;
    uint8_t *mask; /* [mask_cap] mask of the current row */
    size_t mask_cap;
    int masked; /* 1: the current row has a mask */
} xr_reader;

xray_status xr_reader_open(xr_reader *r);
void xr_reader_close(xr_reader *r);
static inline xray_status xr_reader_no_memory(const xr_reader *r)
{
    return xr_fail(r->err, XRAY_E_NOMEM, "%s: out of memory", r->where);
}

/* Chooses the columns of ground truth and response by the first row: those that
 * [data] names, or where it lacks them those of TRL's data sets. Writes a line
 * that says so to *out_note, in the arena; NULL where [data] names them. */
xray_status xr_reader_columns(xr_reader *r, const cJSON *json,
                              const char **out_note);
/* Reads prompt and tokens into r->ids, row->prompt and row->prompt_count; for
 * SFT also the response, or a complete conversation with its mask. */
xray_status xr_reader_tokens(xr_reader *r, const cJSON *json, xr_row *row);
/* Reads row->ground_truth. */
xray_status xr_reader_truth(xr_reader *r, const cJSON *json, xr_row *row);
/* Copies a member as text to the arena. */
xray_status xr_reader_value(xr_reader *r, const cJSON *value, const char *key,
                            const char **out);

/* ---- conversations: conversation.c -------------------------------------- */

/* Returns the messages for the chat template, or NULL if the prompt is plain
 * text. cJSON_Delete releases them. */
xray_status xr_reader_messages(xr_reader *r, const cJSON *json, cJSON **out);
/* Renders messages into r->chat. */
xray_status xr_reader_render(xr_reader *r, const cJSON *json,
                             const cJSON *messages, int add_generation_prompt);
/* Tokenizes a conversation and masks the assistant's text in it: the template's
 * generation blocks, or the text that each assistant message adds to the
 * messages before it, up to its EOS. */
xray_status xr_reader_conversation(xr_reader *r, const cJSON *json,
                                   const cJSON *messages, xr_row *row);
/* The same for the messages of a prompt followed by those of its completion, of
 * which alone the assistant's text is masked. */
xray_status xr_reader_completion(xr_reader *r, const cJSON *json,
                                 const cJSON *completion, xr_row *row);

#endif
