/* SPDX-License-Identifier: Apache-2.0
 *
 * Opens and closes a tokenizer and encodes text with it.
 */
#include "model/text/tokenizer.h"

#include <stdlib.h>
#include <string.h>

#include "model/text/internal.h"
#include "model/text/word_cache.h"

/* Offsets in a text are 32 bits wide. */
#define TEXT_LIMIT ((size_t)1 << 30)

void xm_ids_free(xm_ids *ids)
{
    free(ids->data);
    *ids = (xm_ids){ 0 };
}

int xm_ids_push(xm_ids *ids, int32_t id)
{
    if (ids->count == ids->cap) {
        size_t cap = ids->cap ? ids->cap * 2 : 64;
        int32_t *data = realloc(ids->data, cap * sizeof *data);
        if (!data)
            return -1;
        ids->data = data;
        ids->cap = cap;
    }
    ids->data[ids->count++] = id;
    return 0;
}

void xm_token_spans_free(xm_token_spans *spans)
{
    free(spans->data);
    *spans = (xm_token_spans){ 0 };
}

xray_status xm_tokenizer_open(const char *dir, xr_err *err, xm_tokenizer **out)
{
    xm_tokenizer *tok = xr_calloc(1, sizeof *tok);
    if (!tok)
        return xr_fail(err, XRAY_E_NOMEM, "tokenizer: out of memory");
    tok->workspaces = xr_calloc(XM_WORKSPACES, sizeof *tok->workspaces);
    xray_status status = XRAY_OK;
    if (!tok->workspaces || xm_char_classes_init(&tok->classes))
        status = xr_fail(err, XRAY_E_NOMEM, "tokenizer: out of memory");
    if (!status)
        status = xm_tokenizer_read(tok, dir, err);
    if (status) {
        xm_tokenizer_close(tok);
        return status;
    }
    *out = tok;
    return XRAY_OK;
}

static void free_steps(xm_tokenizer *tok)
{
    for (size_t i = 0; i < tok->norm_count; i++) {
        free(tok->norm[i].from);
        free(tok->norm[i].to);
        xm_regex_close(tok->norm[i].regex);
        xm_charsmap_close(tok->norm[i].map);
    }
    for (size_t i = 0; i < XM_STEPS; i++)
        xm_regex_close(tok->pre[i].regex);
    for (size_t i = 0; i < tok->dec_count; i++) {
        free(tok->dec[i].from);
        free(tok->dec[i].to);
        xm_regex_close(tok->dec[i].regex);
    }
}

static void free_model(xm_model *model)
{
    free(model->prefix);
    free(model->suffix);
    xm_merges_free(model->merges);
    xm_vocab_free(&model->raw_words);
    free(model->pairs);
    free(model->scores);
    xm_trie_free(model->trie);
}

void xm_tokenizer_close(xm_tokenizer *tok)
{
    if (!tok)
        return;
    for (size_t i = 0; i < tok->added_count; i++) {
        xr_str_free(&tok->added[i].text);
        xr_str_free(&tok->added[i].content);
    }
    for (size_t i = 0; tok->workspaces && i < XM_WORKSPACES; i++)
        xm_workspace_free(atomic_exchange(&tok->workspaces[i], NULL));
    free(tok->workspaces);
    free(tok->added);
    free(tok->tokens);
    xr_str_free(&tok->pool);
    xm_vocab_free(&tok->ids);
    xm_vocab_free(&tok->added_ids);
    xm_vocab_free(&tok->added_texts[0]);
    xm_vocab_free(&tok->added_texts[1]);
    free_steps(tok);
    free_model(&tok->model);
    xm_ids_free(&tok->prefix);
    xm_ids_free(&tok->suffix);
    xm_char_classes_free(&tok->classes);
    free(tok);
}

uint32_t xm_tokenizer_vocab(const xm_tokenizer *tok)
{
    return (uint32_t)tok->token_count;
}

int32_t xm_tokenizer_bos(const xm_tokenizer *tok)
{
    return tok->bos_id;
}

int32_t xm_tokenizer_eos(const xm_tokenizer *tok)
{
    return tok->eos_id;
}

int32_t xm_tokenizer_find(const xm_tokenizer *tok, const char *text,
                          size_t size)
{
    int32_t id = xm_vocab_get(&tok->ids, text, size);
    return id >= 0 ? id : xm_vocab_get(&tok->added_ids, text, size);
}

static xray_status encode_between_added(xm_encoding *enc, const xm_piece *piece,
                                        int normalized);

/* Pushes the added tokens of one kind, raw or normalized, and encodes the text
 * between them. */
static xray_status encode_around_added(xm_encoding *enc, const xm_piece *piece,
                                       int normalized)
{
    xm_added_search split = { .tok = enc->tok,
                              .text = piece->text,
                              .size = piece->size,
                              .normalized = normalized };
    xm_span span;
    while (xm_added_next(&split, &span)) {
        xray_status status = XRAY_OK;
        xm_piece part = xm_piece_cut(piece, span.from, span.to);
        enc->piece = part;
        if (span.id < 0)
            status = encode_between_added(enc, &part, normalized);
        else if (xm_push_id(enc, span.id, 0, part.size))
            status = xm_encode_no_memory(enc);
        if (status)
            return status;
    }
    return XRAY_OK;
}

static xray_status encode_between_added(xm_encoding *enc, const xm_piece *piece,
                                        int normalized)
{
    if (normalized)
        return xm_pre_tokenize(enc, piece);
    if (!enc->tok->norm_count)
        return encode_around_added(enc, piece, 1);
    xm_piece plain;
    xray_status status = xm_normalize(enc, piece, &plain);
    return status ? status : encode_around_added(enc, &plain, 1);
}

static xray_status check_utf8_text(const char *text, size_t size, xr_err *err)
{
    if (size > TEXT_LIMIT)
        return xr_fail(err, XRAY_E_RANGE,
                       "a text of %zu bytes is above the limit of %zu", size,
                       TEXT_LIMIT);
    for (size_t at = 0; at < size;) {
        uint32_t code;
        if (size - at >= 8 && !(xm_load8(text + at) & 0x8080808080808080u)) {
            at += 8;
            continue;
        }
        int length = xr_utf8_decode(text + at, text + size, &code);
        if (!length)
            return xr_fail(err, XRAY_E_ARG,
                           "the text is not valid UTF-8 at byte offset %zu",
                           at);
        at += (size_t)length;
    }
    return XRAY_OK;
}

/* Pushes the ids that the post-processor puts around every text. They stand for
 * no byte of it. */
static xray_status push_fixed_ids(xm_encoding *enc, const xm_ids *ids,
                                  size_t at)
{

    enc->piece = (xm_piece){ .text = "", .base = at };
    for (size_t i = 0; i < ids->count; i++)
        if (xm_push_id(enc, ids->data[i], 0, 0))
            return xm_encode_no_memory(enc);
    return XRAY_OK;
}

static xray_status run_encoding(xm_encoding *enc, const char *text, size_t size,
                                int special)
{
    const xm_tokenizer *tok = enc->tok;
    xm_piece piece = { .text = text, .size = size };
    xray_status status = check_utf8_text(text, size, enc->err);
    if (status)
        return status;
    enc->limit = XM_GROWN(size);
    enc->workspace = xm_workspace_take(tok);
    if (!enc->workspace)
        return xm_encode_no_memory(enc);
    if (special)
        status = push_fixed_ids(enc, &tok->prefix, 0);
    size_t from = enc->spans ? enc->spans->count : 0;
    if (!status)
        status = encode_around_added(enc, &piece, 0);
    if (!status && enc->spans)
        xm_trim_spans(enc, from);
    if (!status && special)
        status = push_fixed_ids(enc, &tok->suffix, size);
    xm_workspace_give(tok, enc->workspace);
    return status;
}

xray_status xm_tokenizer_encode(const xm_tokenizer *tok, const char *text,
                                size_t size, int special, xm_ids *ids,
                                xr_err *err)
{
    xm_encoding enc = { .tok = tok,
                        .ids = ids,
                        .track = tok->tracks,
                        .original = text,
                        .err = err };
    size_t from = ids->count;
    xray_status status = run_encoding(&enc, text, size, special);
    if (status)
        ids->count = from;
    return status;
}

xray_status xm_tokenizer_encode_spans(const xm_tokenizer *tok, const char *text,
                                      size_t size, int special, xm_ids *ids,
                                      xm_token_spans *spans, xr_err *err)
{
    xm_encoding enc = { .tok = tok,
                        .ids = ids,
                        .spans = spans,
                        .track = 1,
                        .original = text,
                        .err = err };
    size_t from = ids->count;
    size_t start = spans->count;
    xray_status status = run_encoding(&enc, text, size, special);
    if (status) {
        ids->count = from;
        spans->count = start;
    }
    return status;
}
