/* SPDX-License-Identifier: Apache-2.0 */
#include "model/text/tokenizer.h"

#include <stdlib.h>
#include <string.h>

#include "model/text/tok.h"

/* Positions inside a text are 32 bits wide. */
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

xray_status xm_tokenizer_open(const char *dir, xr_err *err, xm_tokenizer **out)
{
    xm_tokenizer *tok = xr_calloc(1, sizeof *tok);
    if (!tok)
        return xr_fail(err, XRAY_E_NOMEM, "tokenizer: out of memory");
    xray_status status = xm_tok_read(tok, dir, err);
    if (status) {
        xm_tokenizer_close(tok);
        return status;
    }
    *out = tok;
    return XRAY_OK;
}

static void free_steps(xm_steps *steps)
{
    for (size_t i = 0; i < steps->count; i++) {
        free(steps->step[i].from);
        free(steps->step[i].to);
    }
}

void xm_tokenizer_close(xm_tokenizer *tok)
{
    if (!tok)
        return;
    for (size_t i = 0; i < tok->added_count; i++)
        xr_str_free(&tok->added[i].text);
    free(tok->added);
    free(tok->tokens);
    free(tok->merges);
    xr_str_free(&tok->pool);
    xr_map_free(tok->ids);
    free_steps(&tok->normalizer);
    free_steps(&tok->decoder);
    for (size_t i = 0; i < tok->pre_count; i++)
        xm_regex_close(tok->pre[i].regex);
    xm_ids_free(&tok->prefix);
    xm_ids_free(&tok->suffix);
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

int xm_tokenizer_is_special(const xm_tokenizer *tok, int32_t id)
{
    return id >= 0 && (size_t)id < tok->token_count &&
           (tok->tokens[id].flags & XM_TOK_SPECIAL) != 0;
}

int32_t xm_tok_id(const xm_tokenizer *tok, const char *text, size_t size)
{
    uint64_t id;
    if (tok->ids && xr_map_get(tok->ids, text, size, &id))
        return (int32_t)id;
    for (size_t i = 0; i < tok->added_count; i++) {
        const xm_token *t = &tok->tokens[tok->added[i].id];
        if (t->size == size &&
            memcmp(xr_str_text(&tok->pool) + t->at, text, size) == 0)
            return tok->added[i].id;
    }
    return -1;
}

static xray_status encode_gap(xm_walk *walk, const char *text, size_t size,
                              int normalized);

/* The added tokens of one kind, and what to do with the text between them. */
static xray_status encode_split(xm_walk *walk, const char *text, size_t size,
                                int normalized)
{
    xm_split split = {
        .tok = walk->tok, .text = text, .size = size, .normalized = normalized
    };
    xm_span span;
    while (xm_tok_split(&split, &span)) {
        xray_status status = XRAY_OK;
        if (span.id < 0)
            status = encode_gap(walk, text + span.from, span.to - span.from,
                                normalized);
        else if (xm_ids_push(walk->ids, span.id))
            status =
                xr_fail(walk->err, XRAY_E_NOMEM, "tokenizer: out of memory");
        if (status)
            return status;
    }
    return XRAY_OK;
}

static xray_status encode_gap(xm_walk *walk, const char *text, size_t size,
                              int normalized)
{
    if (normalized)
        return xm_walk_text(walk, text, size);
    if (!walk->tok->normalizer.count)
        return encode_split(walk, text, size, 1);
    xr_str plain = { 0 };
    xm_tok_normalize(walk->tok, text, size, &plain);
    xray_status status =
        plain.failed
            ? xr_fail(walk->err, XRAY_E_NOMEM, "tokenizer: out of memory")
            : encode_split(walk, xr_str_text(&plain), plain.size, 1);
    xr_str_free(&plain);
    return status;
}

static xray_status push_all(const xm_ids *from, xm_ids *ids, xr_err *err)
{
    for (size_t i = 0; i < from->count; i++)
        if (xm_ids_push(ids, from->data[i]))
            return xr_fail(err, XRAY_E_NOMEM, "tokenizer: out of memory");
    return XRAY_OK;
}

static xray_status check_text(const char *text, size_t size, xr_err *err)
{
    if (size > TEXT_LIMIT)
        return xr_fail(err, XRAY_E_RANGE,
                       "a text of %zu bytes is above the limit of %zu", size,
                       TEXT_LIMIT);
    for (size_t at = 0; at < size;) {
        uint32_t code;
        int length = xr_utf8_decode(text + at, text + size, &code);
        if (!length)
            return xr_fail(err, XRAY_E_ARG,
                           "the text is no UTF-8 at byte offset %zu", at);
        at += (size_t)length;
    }
    return XRAY_OK;
}

xray_status xm_tokenizer_encode(const xm_tokenizer *tok, const char *text,
                                size_t size, int special, xm_ids *ids,
                                xr_err *err)
{
    xm_walk walk = { .tok = tok, .ids = ids, .err = err };
    size_t from = ids->count;
    xray_status status = check_text(text, size, err);
    if (!status)
        status = xm_walk_open(&walk);
    if (!status && special)
        status = push_all(&tok->prefix, ids, err);
    if (!status)
        status = encode_split(&walk, text, size, 0);
    if (!status && special)
        status = push_all(&tok->suffix, ids, err);
    xm_walk_close(&walk);
    if (status)
        ids->count = from;
    return status;
}
