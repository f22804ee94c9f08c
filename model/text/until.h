/* SPDX-License-Identifier: Apache-2.0
 *
 * The text of tokens as they come, until one of several texts occurs in it.
 */
#ifndef XM_UNTIL_H
#define XM_UNTIL_H

#include "model/text/tokenizer.h"

/* Initialise it with zeros and, if there are any, the texts at which to stop.
 * These are borrowed, UTF-8, and none is empty. */
typedef struct xm_until {
    const char *const *stops;
    size_t stop_count;
    xm_stream *stream; /* NULL before the first token and after the last */
    xr_str text;       /* special tokens have none */
    /* Bytes at the start of `text` that no later token takes back: they are
     * complete characters, and no stop begins in them. */
    size_t ready;
    int stopped; /* 1: `text` ends before the first stop in it */
} xm_until;

/* Adds a token. Where the decoded text of all tokens so far has a stop,
 * `stopped` becomes 1, and no token may follow. How the tokens came, one by one
 * or many at a time, changes nothing. */
xray_status xm_until_push(xm_until *u, const xm_tokenizer *tok, int32_t id,
                          xr_err *err);
/* Ends the text of a sample that did not stop. */
xray_status xm_until_end(xm_until *u, xr_err *err);
void xm_until_free(xm_until *u);

#endif
