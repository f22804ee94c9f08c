/* SPDX-License-Identifier: Apache-2.0
 *
 * tokenizer.json: text to ids and back, as the Hugging Face library does.
 *
 * BPE (byte-level and SentencePiece-style), Unigram, WordPiece and WordLevel
 * with their normalizers, pre-tokenizers, decoders and post-processors; what a
 * file asks for beyond that is refused by name. docs/models.md lists it.
 */
#ifndef XM_TOKENIZER_H
#define XM_TOKENIZER_H

#include <stddef.h>
#include <stdint.h>

#include "core/base/err.h"
#include "core/base/str.h"

typedef struct xm_tokenizer xm_tokenizer;

/* Reads <dir>/tokenizer.json and, where it is there, tokenizer_config.json (the
 * BOS rule; names of special tokens). */
xray_status xm_tokenizer_open(const char *dir, xr_err *err, xm_tokenizer **out);
void xm_tokenizer_close(xm_tokenizer *tok); /* accepts NULL */

/* Highest id + 1, added tokens included. */
uint32_t xm_tokenizer_vocab(const xm_tokenizer *tok);
int32_t xm_tokenizer_bos(const xm_tokenizer *tok); /* -1: none */
int32_t xm_tokenizer_eos(const xm_tokenizer *tok); /* -1: none */
int xm_tokenizer_is_special(const xm_tokenizer *tok, int32_t id);

/* Ids of `text`. special = 1 adds what the file's own post-processor adds (BOS
 * and the like). Added tokens in the text are found either way. The ids are
 * appended to a growing array; bytes that are no UTF-8 are an error naming the
 * offset. Safe to call from several threads at once. */
typedef struct xm_ids {
    int32_t *data;
    size_t count;
    size_t cap;
} xm_ids;
void xm_ids_free(xm_ids *ids);
xray_status xm_tokenizer_encode(const xm_tokenizer *tok, const char *text,
                                size_t size, int special, xm_ids *ids,
                                xr_err *err);

/* The bytes of the text that an id stands for: [from, to). What the
 * post-processor adds has from = to. A character that takes several ids gives
 * each of them its whole range. */
typedef struct xm_token_span {
    size_t from;
    size_t to;
} xm_token_span;
typedef struct xm_token_spans {
    xm_token_span *data;
    size_t count;
    size_t cap;
} xm_token_spans;
void xm_token_spans_free(xm_token_spans *spans);
/* The same ids as xm_tokenizer_encode, each with its span in `text`: what the
 * Hugging Face library gives as offsets (there in characters). */
xray_status xm_tokenizer_encode_spans(const xm_tokenizer *tok, const char *text,
                                      size_t size, int special, xm_ids *ids,
                                      xm_token_spans *spans, xr_err *err);

/* Text of ids, appended to `out`. skip_special = 1 leaves special tokens out,
 * 2 also ids outside the vocabulary: a model's vocab_size is often padded
 * beyond the tokenizer's, and sampling may hit such an id. With 0 and 1 they
 * are an error. Bytes of byte-level tokens that are no UTF-8 come out as
 * U+FFFD. */
xray_status xm_tokenizer_decode(const xm_tokenizer *tok, const int32_t *ids,
                                size_t count, int skip_special, xr_str *out,
                                xr_err *err);

/* Decoding one id at a time: what comes out, put together, is the text of all
 * ids, and never ends inside a UTF-8 character. */
typedef struct xm_stream xm_stream;
xray_status xm_stream_open(const xm_tokenizer *tok, int skip_special,
                           xr_err *err, xm_stream **out);
void xm_stream_close(xm_stream *stream); /* accepts NULL */
/* Appends the text that is certain now, often none. */
xray_status xm_stream_push(xm_stream *stream, int32_t id, xr_str *out,
                           xr_err *err);
/* Appends what was held back, U+FFFD for a broken character. The stream may
 * then be used for another text. */
xray_status xm_stream_end(xm_stream *stream, xr_str *out, xr_err *err);

#endif
