/* SPDX-License-Identifier: Apache-2.0
 *
 * Converts text to token ids and back with a tokenizer.json, as the Hugging
 * Face library does.
 *
 * The models are BPE (byte-level and SentencePiece-style), Unigram, WordPiece
 * and WordLevel, with their normalizers, pre-tokenizers, decoders and
 * post-processors. Anything else that a file asks for is refused by name;
 * docs/models.md has the list.
 */
#ifndef XM_TOKENIZER_H
#define XM_TOKENIZER_H

#include <stddef.h>
#include <stdint.h>

#include "core/base/err.h"
#include "core/base/str.h"

typedef struct xm_tokenizer xm_tokenizer;

/* Reads <dir>/tokenizer.json and, if it exists, tokenizer_config.json, which
 * names the special tokens and says whether BOS and EOS are added. */
xray_status xm_tokenizer_open(const char *dir, xr_err *err, xm_tokenizer **out);
void xm_tokenizer_close(xm_tokenizer *tok); /* accepts NULL */

/* The highest id plus one, added tokens included. */
uint32_t xm_tokenizer_vocab(const xm_tokenizer *tok);
int32_t xm_tokenizer_bos(const xm_tokenizer *tok); /* -1: none */
int32_t xm_tokenizer_eos(const xm_tokenizer *tok); /* -1: none */

/* A growing array of token ids. */
typedef struct xm_ids {
    int32_t *data;
    size_t count;
    size_t cap;
} xm_ids;
void xm_ids_free(xm_ids *ids);
/* Appends the ids of `text`. special = 1 adds what the file's own
 * post-processor adds (BOS and the like). Added tokens in the text are found
 * either way. Bytes that are not valid UTF-8 are an error that names the
 * offset. Any number of threads may encode at once. */
xray_status xm_tokenizer_encode(const xm_tokenizer *tok, const char *text,
                                size_t size, int special, xm_ids *ids,
                                xr_err *err);

/* The bytes [from, to) of the text that an id stands for. Ids that the
 * post-processor adds have from = to. If a character takes several ids, each of
 * them has the range of the complete character. */
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
/* Appends the same ids as xm_tokenizer_encode, and for each its span in `text`.
 * The Hugging Face library calls spans offsets and counts them in
 * characters. */
xray_status xm_tokenizer_encode_spans(const xm_tokenizer *tok, const char *text,
                                      size_t size, int special, xm_ids *ids,
                                      xm_token_spans *spans, xr_err *err);

/* Appends the text of ids to `out`. skip_special = 1 leaves out special tokens;
 * 2 also leaves out ids outside the vocabulary, which are an error with 0 and
 * 1. A model's vocab_size is often padded beyond the tokenizer's, and sampling
 * may hit such an id. Bytes of byte-level tokens that are not valid UTF-8
 * become U+FFFD. */
xray_status xm_tokenizer_decode(const xm_tokenizer *tok, const int32_t *ids,
                                size_t count, int skip_special, xr_str *out,
                                xr_err *err);

/* Decodes one id at a time. The pieces of text that are appended, put together,
 * are the text of all ids, and no piece ends inside a UTF-8 character. */
typedef struct xm_stream xm_stream;
xray_status xm_stream_open(const xm_tokenizer *tok, int skip_special,
                           xr_err *err, xm_stream **out);
void xm_stream_close(xm_stream *stream); /* accepts NULL */
/* Appends the text that no later id can change, which is often none. */
xray_status xm_stream_push(xm_stream *stream, int32_t id, xr_str *out,
                           xr_err *err);
/* Appends the text that xm_stream_end would append now. The stream goes on. */
xray_status xm_stream_peek(const xm_stream *stream, xr_str *out, xr_err *err);
/* Appends the text that was held back, with U+FFFD for an incomplete character.
 * The stream may then be used for another text. */
xray_status xm_stream_end(xm_stream *stream, xr_str *out, xr_err *err);

#endif
