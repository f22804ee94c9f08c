/* SPDX-License-Identifier: Apache-2.0
 *
 * What the suites of chat templates, real ones and our own, have in common.
 */
#ifndef XR_TEST_CHAT_ROWS_H
#define XR_TEST_CHAT_ROWS_H

#include "core/base/json.h"
#include "model/chat/chat.h"
#include "model/text/tokenizer.h"

/* One rendering of a source, with everything that is there to be given; errors
 * name "mine" and row 7 of rows.jsonl. */
xray_status chat_render(const char *source, size_t size, const cJSON *context,
                        int go_on, xr_err *err, xm_chat_text *out);
/* The text of it, or the error, is `wanted`. */
void chat_expect(const char *source, const char *json, int go_on,
                 const char *wanted);
/* Fails the test unless the spans of the text are `wanted`, pairs in
 * characters. */
void chat_expect_spans(const cJSON *wanted, const xm_chat_text *text);
/* Whether any of the token is the assistant's. */
int chat_is_said(const xm_chat_text *text, const xm_token_span *span);

/* One compiled template gives the same text in four threads at once. */
void chat_threads(const char *source, const cJSON *context);
/* Templates with random edits over the contexts end with a text or one message,
 * soon. XRAY_FUZZ_ROUNDS: how many. */
void chat_mutations(const cJSON *templates, const cJSON *contexts);

#endif
