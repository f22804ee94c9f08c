/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads "model" of tokenizer.json: its vocabulary and options. What only BPE
 * has is read by xm_read_bpe.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/json.h"
#include "model/text/internal.h"
#include "model/text/trie.h"

/* Checks all ids before memory is reserved for them. */
static xray_status check_vocab(const xm_reader *r, const cJSON *vocab,
                               int32_t *out_highest, size_t *out_count)
{
    const cJSON *item;
    int32_t id;
    *out_highest = -1;
    *out_count = 0;
    if (!cJSON_IsObject(vocab))
        return xr_fail(r->err, XRAY_E_CONFIG,
                       "%s: model \"vocab\" must be an object", r->where);
    cJSON_ArrayForEach(item, vocab)
    {
        if (xm_read_id(item, &id))
            return xr_fail(r->err, XRAY_E_CONFIG,
                           "%s: the id of \"%.100s\" must be an integer from 0 "
                           "to 4194303",
                           r->where, item->string);
        *out_highest = id > *out_highest ? id : *out_highest;
        ++*out_count;
    }
    return XRAY_OK;
}

/* Reads a vocabulary that is an object of tokens and their ids. */
static xray_status read_vocab(const xm_reader *r, const cJSON *vocab)
{
    xm_tokenizer *tok = r->tok;
    const cJSON *item;
    int32_t highest;
    size_t count;
    xray_status status = check_vocab(r, vocab, &highest, &count);
    if (status)
        return status;
    if (xm_vocab_init(&tok->ids, count) ||
        (count && xm_read_reserve(tok, highest)))
        return xm_read_no_memory(r);
    cJSON_ArrayForEach(item, vocab)
    {
        size_t size = strlen(item->string);
        int32_t id = (int32_t)item->valuedouble;
        int twice = tok->tokens[id].flags != 0;
        xm_read_token(tok, id, item->string, size, 0);
        int put = xm_vocab_put(&tok->ids, item->string, size, id);
        if (put < 0)
            return xm_read_no_memory(r);
        if (twice || put)
            return xr_fail(r->err, XRAY_E_CONFIG,
                           "%s: model \"vocab\": \"%.100s\" or its id %d "
                           "appears twice",
                           r->where, item->string, (int)id);
    }
    return tok->pool.failed ? xm_read_no_memory(r) : XRAY_OK;
}

/* Finds the tokens that byte_fallback uses for single bytes, <0x00> to <0xFF>;
 * -1 where the vocabulary lacks one. */
static void find_byte_ids(xm_tokenizer *tok)
{
    for (int i = 0; i < 256; i++) {
        char name[8];
        (void)snprintf(name, sizeof name, "<0x%02X>", (unsigned)i & 255u);
        tok->model.byte_ids[i] = xm_vocab_get(&tok->ids, name, 6);
    }
}

/* Reads "vocab" and "unk_token" of all models but Unigram. */
static xray_status read_vocab_and_unk(const xm_reader *r, const cJSON *model,
                                      const char **out_unk)
{
    xm_tokenizer *tok = r->tok;
    xray_status status = read_vocab(r, xr_json_get(model, "vocab"));
    if (!status)
        status = xr_json_string_or(model, "unk_token", NULL, r->where, r->err,
                                   out_unk);
    if (status)
        return status;
    if (*out_unk)
        tok->model.unk_id = xm_vocab_get(&tok->ids, *out_unk, strlen(*out_unk));
    find_byte_ids(tok);
    return XRAY_OK;
}

static xray_status read_wordpiece(const xm_reader *r, const cJSON *model)
{
    const char *prefix;
    int64_t longest;
    xray_status status = xr_json_string_or(model, "continuing_subword_prefix",
                                           "##", r->where, r->err, &prefix);
    if (!status)
        status = xr_json_int_or(model, "max_input_chars_per_word", 100,
                                r->where, r->err, &longest);
    if (!status && longest < 0)
        status =
            xr_fail(r->err, XRAY_E_CONFIG,
                    "%s: \"max_input_chars_per_word\" is negative", r->where);
    if (status)
        return xr_fail_in(r->err, status, "model");
    xm_model *m = &r->tok->model;
    m->longest_word = (size_t)longest;
    for (size_t i = 0; i < r->tok->token_count; i++)
        m->longest_piece = r->tok->tokens[i].size > m->longest_piece
                               ? r->tok->tokens[i].size
                               : m->longest_piece;
    free(m->prefix);
    m->prefix = xr_strdup(prefix);
    return m->prefix ? XRAY_OK : xm_read_no_memory(r);
}

/* Reads one [piece, score] of a Unigram vocabulary. */
static xray_status read_unigram_piece(const xm_reader *r, const cJSON *item,
                                      int32_t id)
{
    xm_tokenizer *tok = r->tok;
    const cJSON *text = cJSON_IsArray(item) ? item->child : NULL;
    const cJSON *score = text ? text->next : NULL;
    if (!cJSON_IsString(text) || !cJSON_IsNumber(score) || score->next ||
        isnan(score->valuedouble))
        return xr_fail(r->err, XRAY_E_CONFIG,
                       "%s: model \"vocab\": entry %d must be [\"piece\", "
                       "score]",
                       r->where, (int)id);
    size_t size = strlen(text->valuestring);
    xm_read_token(tok, id, text->valuestring, size, 0);
    tok->model.scores[id] = score->valuedouble;
    if (tok->pool.failed ||
        xm_vocab_put(&tok->ids, text->valuestring, size, id) < 0)
        return xm_read_no_memory(r);
    return XRAY_OK;
}

/* Reads the pieces of a Unigram vocabulary; the index of each is its id. */
static xray_status read_unigram_vocab(const xm_reader *r, const cJSON *vocab)
{
    xm_tokenizer *tok = r->tok;
    xm_model *m = &tok->model;
    const cJSON *item;
    size_t count = 0;
    size_t bytes = 0;
    int32_t id = 0;
    if (!cJSON_IsArray(vocab))
        return xr_fail(r->err, XRAY_E_CONFIG,
                       "%s: model \"vocab\" must be an array", r->where);
    cJSON_ArrayForEach(item, vocab) count++;
    if (count >= 1u << 22)
        return xr_fail(r->err, XRAY_E_CONFIG,
                       "%s: model \"vocab\" has more than 4194303 entries",
                       r->where);
    m->scores = xr_calloc(count + 1, sizeof *m->scores);
    if (!m->scores || xm_vocab_init(&tok->ids, count) ||
        (count && xm_read_reserve(tok, (int32_t)count - 1)))
        return xm_read_no_memory(r);
    double lowest = INFINITY;
    cJSON_ArrayForEach(item, vocab)
    {
        xray_status status = read_unigram_piece(r, item, id);
        if (status)
            return status;
        bytes += tok->tokens[id].size;
        lowest = m->scores[id] < lowest ? m->scores[id] : lowest;
        id++;
    }
    m->unk_score = lowest - 10.0; /* K_UNK_PENALTY of tokenizers */
    m->trie = xm_trie_new(bytes);
    if (!m->trie)
        return xm_read_no_memory(r);
    for (id = 0; (size_t)id < count; id++)
        xm_trie_put(m->trie, xr_str_text(&tok->pool) + tok->tokens[id].at,
                    tok->tokens[id].size, id);
    return XRAY_OK;
}

static xray_status read_unigram(const xm_reader *r, const cJSON *model)
{
    xm_tokenizer *tok = r->tok;
    const cJSON *unk = xr_json_get(model, "unk_id");
    xray_status status = read_unigram_vocab(r, xr_json_get(model, "vocab"));
    if (!status)
        status = xr_json_bool_or(model, "byte_fallback", 0, r->where, r->err,
                                 &tok->model.byte_fallback);
    if (status)
        return status;
    if (unk && (xm_read_id(unk, &tok->model.unk_id) ||
                (size_t)tok->model.unk_id >= tok->token_count))
        return xr_fail(r->err, XRAY_E_CONFIG,
                       "%s: model \"unk_id\" is not in the vocabulary",
                       r->where);
    find_byte_ids(tok);
    return XRAY_OK;
}

xray_status xm_read_model(const xm_reader *r, const cJSON *model)
{
    static const char *const kinds[] = { "BPE", "WordLevel", "WordPiece",
                                         "Unigram" };
    xm_model *m = &r->tok->model;
    const char *type;
    const char *unk = NULL;
    size_t kind = 0;
    xray_status status = xr_json_string(model, "type", r->where, r->err, &type);
    if (status)
        return xr_fail_in(r->err, status, "model");
    while (kind < 4 && strcmp(type, kinds[kind]) != 0)
        kind++;
    if (kind == 4)
        return xm_read_refuse(r, type, "BPE, Unigram, WordPiece and WordLevel");
    m->kind = (enum xm_model_kind)kind;
    m->unk_id = -1;
    m->prefix = xr_strdup("");
    m->suffix = xr_strdup("");
    if (!m->prefix || !m->suffix)
        return xm_read_no_memory(r);
    if (m->kind == XM_UNIGRAM)
        return read_unigram(r, model);
    status = read_vocab_and_unk(r, model, &unk);
    /* As in Hugging Face tokenizers, it is no error here that the vocabulary
     * lacks unk_token, but later, when a text needs that token. */
    m->unk_lost = unk && m->unk_id < 0;
    if (!status && m->kind == XM_BPE)
        status = xm_read_bpe(r, model);
    if (!status && m->kind == XM_WORDPIECE)
        status = read_wordpiece(r, model);
    return status;
}
