/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks that the suites of chat templates, published ones and our own, share.
 */
#ifndef XR_TEST_CHAT_CHECKS_H
#define XR_TEST_CHAT_CHECKS_H

#include <string.h>

#include "core/base/json.h"
#include "model/chat/chat.h"
#include "model/text/tokenizer.h"

/* Whether the rendered text is this one and nothing behind it. */
static inline int chat_wrote(const xm_chat_text *text, const char *wanted)
{
    return text->text.size == strlen(wanted) &&
           strcmp(xr_str_text(&text->text), wanted) == 0;
}

/* Compiles and renders a source with all that the context holds. Errors name
 * the template "mine" and row 7 of rows.jsonl. */
xray_status chat_render(const char *source, size_t size, const cJSON *context,
                        int continue_last, xr_err *err, xm_chat_text *out);
/* Fails the test unless the rendered text, or the error, is `wanted`. */
void chat_expect(const char *source, const char *json, int continue_last,
                 const char *wanted);
/* Fails the test unless the spans of the text are `wanted`, a list of pairs
 * counted in characters. */
void chat_expect_spans(const cJSON *wanted, const xm_chat_text *text);
/* Whether any part of the token is the assistant's. */
int chat_is_assistant(const xm_chat_text *text, const xm_token_span *span);

/* Checks that four threads render the same text with one compiled template. */
void chat_check_threads(const char *source, const cJSON *context);
/* Checks that templates with random edits soon end with a text or a message.
 * XRAY_FUZZ_ROUNDS sets how many are tried. */
void chat_check_mutations(const cJSON *templates, const cJSON *contexts);

#endif
