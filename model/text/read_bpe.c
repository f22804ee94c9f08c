/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads a BPE model from tokenizer.json and prepares its tables.
 */
#include <stdlib.h>
#include <string.h>

#include "core/base/json.h"
#include "model/text/bpe.h"
#include "model/text/internal.h"

/* Splits a merge, "a b" or ["a", "b"], into its two tokens. */
static int split_merge(const cJSON *item, const char *text[2], size_t size[2])
{
    if (cJSON_IsString(item)) {
        const char *space = strchr(item->valuestring, ' ');
        if (!space || strchr(space + 1, ' '))
            return -1;
        text[0] = item->valuestring;
        size[0] = (size_t)(space - text[0]);
        text[1] = space + 1;
        size[1] = strlen(text[1]);
        return 0;
    }
    const cJSON *left = cJSON_IsArray(item) ? item->child : NULL;
    const cJSON *right = left ? left->next : NULL;
    if (!cJSON_IsString(left) || !cJSON_IsString(right) || right->next)
        return -1;
    text[0] = left->valuestring;
    size[0] = strlen(text[0]);
    text[1] = right->valuestring;
    size[1] = strlen(text[1]);
    return 0;
}

/* Returns the id of the token that a merge makes. The prefix of a token inside
 * a word is dropped. */
static int32_t find_merged_id(const xm_tokenizer *tok,
                              const char *const text[2], const size_t size[2],
                              xr_str *both)
{
    size_t prefix = strlen(tok->model.prefix);
    if (size[1] < prefix)
        return -1;
    xr_str_clear(both);
    xr_str_append(both, text[0], size[0]);
    xr_str_append(both, text[1] + prefix, size[1] - prefix);
    return xm_vocab_get(&tok->ids, xr_str_text(both), both->size);
}

static xray_status add_merge(const xm_reader *r, const cJSON *item,
                             uint32_t rank, xr_str *both)
{
    const xm_tokenizer *tok = r->tok;
    const char *text[2];
    size_t size[2];
    if (split_merge(item, text, size))
        return xr_fail(r->err, XRAY_E_CONFIG,
                       "%s: merge %u must be two tokens, as \"a b\" or "
                       "[\"a\", \"b\"]",
                       r->where, rank);
    int32_t left = xm_vocab_get(&tok->ids, text[0], size[0]);
    int32_t right = xm_vocab_get(&tok->ids, text[1], size[1]);
    int32_t made = find_merged_id(tok, text, size, both);
    if (both->failed)
        return xm_read_no_memory(r);
    if (left < 0 || right < 0 || made < 0)
        return xr_fail(r->err, XRAY_E_CONFIG,
                       "%s: merge %u uses a token that is not in the "
                       "vocabulary",
                       r->where, rank);
    xm_merges *merges = tok->model.merges;
    *xm_merge_slot(merges, (uint32_t)left, (uint32_t)right) =
        (xm_merge){ (uint32_t)left, (uint32_t)right, rank, made };
    return XRAY_OK;
}

static int is_version_line(const cJSON *item)
{
    return cJSON_IsString(item) &&
           strncmp(item->valuestring, "#version", 8) == 0;
}

static xray_status read_merges(const xm_reader *r, const cJSON *list)
{
    const cJSON *item;
    size_t slots = 16;
    xr_str both = { 0 };
    xray_status status = XRAY_OK;
    if (list && !cJSON_IsArray(list))
        return xr_fail(r->err, XRAY_E_CONFIG,
                       "%s: model \"merges\" must be an array", r->where);
    xm_merges *merges = xr_calloc(1, sizeof *merges);
    r->tok->model.merges = merges;
    if (!merges)
        return xm_read_no_memory(r);
    cJSON_ArrayForEach(item, list) merges->count++;
    while (slots / 4 * 3 < merges->count)
        slots *= 2;
    merges->slots = aligned_alloc(64, slots * sizeof *merges->slots);
    if (!merges->slots)
        return xm_read_no_memory(r);
    for (size_t i = 0; i < slots; i++)
        merges->slots[i] = (xm_merge){ UINT32_MAX, UINT32_MAX, XM_NO_RANK, -1 };
    merges->mask = slots - 4;
    uint32_t rank = 0;
    cJSON_ArrayForEach(item, list)
    {
        if (!status && !is_version_line(item))
            status = add_merge(r, item, rank++, &both);
    }
    xr_str_free(&both);
    return status;
}

/* Lets words stay raw bytes: if the pre_tokenizer ends with the byte-level
 * alphabet and the vocabulary has all of its characters, the step that writes
 * the alphabet is removed. */
static xray_status find_raw_words(const xm_reader *r)
{
    xm_tokenizer *tok = r->tok;
    xm_model *m = &tok->model;
    if (!tok->pre_count ||
        tok->pre[tok->pre_count - 1].kind != XM_PRE_ALPHABET || *m->prefix ||
        *m->suffix)
        return XRAY_OK;
    for (unsigned i = 0; i < 256; i++) {
        char text[4];
        int size = xr_utf8_encode(xm_alphabet_code(i), text);
        m->raw_ids[i] = xm_vocab_get(&tok->ids, text, (size_t)size);
        if (m->raw_ids[i] < 0)
            return XRAY_OK;
    }
    m->raw = 1;
    tok->pre_count--;
    if (!m->ignore_merges)
        return XRAY_OK;
    if (xm_vocab_init(&m->raw_words, tok->ids.count))
        return xm_read_no_memory(r);
    xr_str bytes = { 0 };
    int failed = 0;
    for (size_t i = 0; !failed && i < tok->token_count; i++) {
        const xm_token *t = &tok->tokens[i];
        xr_str_clear(&bytes);
        if ((t->flags & XM_TOK_KNOWN) &&
            xm_alphabet_read(xr_str_text(&tok->pool) + t->at, t->size, &bytes))
            failed =
                bytes.failed || xm_vocab_put(&m->raw_words, xr_str_text(&bytes),
                                             bytes.size, (int32_t)i) < 0;
    }
    xr_str_free(&bytes);
    return failed ? xm_read_no_memory(r) : XRAY_OK;
}

/* Whether any merge uses a token that stands for a byte; -1: out of memory. */
static int has_byte_merges(const xm_tokenizer *tok)
{
    const xm_merges *merges = tok->model.merges;
    unsigned char *bytes = xr_calloc(tok->token_count, 1);
    int found = 0;
    if (!bytes)
        return -1;
    for (size_t i = 0; i < 256; i++)
        bytes[tok->model.byte_ids[i]] = 1;
    for (size_t i = 0; i < merges->mask + 4; i++) {
        const xm_merge *m = &merges->slots[i];
        if (m->rank != XM_NO_RANK)
            found |= bytes[m->left] | bytes[m->right];
    }
    free(bytes);
    return found;
}

/* Collects which characters stand next to each other in a token, so that a long
 * text can be cut elsewhere. That is valid only if every character has an id
 * and byte tokens do not merge. */
static xray_status find_char_pairs(const xm_reader *r)
{
    xm_tokenizer *tok = r->tok;
    xm_model *m = &tok->model;
    if (m->raw || *m->prefix || *m->suffix || m->ignore_merges ||
        !m->byte_fallback)
        return XRAY_OK;
    for (size_t i = 0; i < 256; i++)
        if (m->byte_ids[i] < 0)
            return XRAY_OK;
    int bytes = has_byte_merges(tok);
    if (bytes)
        return bytes < 0 ? xm_read_no_memory(r) : XRAY_OK;
    uint64_t *pairs = xr_calloc(XM_PAIR_BITS / 64, sizeof *pairs);
    if (!pairs)
        return xm_read_no_memory(r);
    for (size_t i = 0; i < m->merges->mask + 4; i++) {
        const xm_merge *merge = &m->merges->slots[i];
        if (merge->rank == XM_NO_RANK)
            continue;
        const xm_token *t = &tok->tokens[merge->made];
        const char *text = xr_str_text(&tok->pool) + t->at;
        uint32_t last = 0;
        for (size_t at = 0, length; at < t->size; at += length) {
            uint32_t code = xm_utf8_get(text + at, &length);
            uint32_t bit = xm_pair_bit(last, code);
            if (at)
                pairs[bit / 64] |= (uint64_t)1 << (bit % 64);
            last = code;
        }
    }
    m->pairs = pairs;
    return XRAY_OK;
}

static xray_status read_affixes(const xm_reader *r, const cJSON *model)
{
    static const char *const keys[] = { "continuing_subword_prefix",
                                        "end_of_word_suffix" };
    xm_model *m = &r->tok->model;
    char **const to[] = { &m->prefix, &m->suffix };
    for (size_t i = 0; i < 2; i++) {
        const char *text;
        xray_status status =
            xr_json_string_or(model, keys[i], "", r->where, r->err, &text);
        if (status)
            return status;
        free(*to[i]);
        *to[i] = xr_strdup(text);
        if (!*to[i])
            return xm_read_no_memory(r);
    }
    return XRAY_OK;
}

xray_status xm_read_bpe(const xm_reader *r, const cJSON *model)
{
    xm_model *m = &r->tok->model;
    const struct {
        const char *key;
        int *to;
    } flags[] = { { "byte_fallback", &m->byte_fallback },
                  { "fuse_unk", &m->fuse_unk },
                  { "ignore_merges", &m->ignore_merges } };
    double dropout;
    xray_status status =
        xr_json_real_or(model, "dropout", 0, r->where, r->err, &dropout);
    if (status)
        return status;
    if (dropout != 0)
        return xr_fail(r->err, XRAY_E_UNSUPPORTED,
                       "%s: model \"dropout\" is not supported", r->where);
    status = read_affixes(r, model);
    for (size_t i = 0; !status && i < sizeof flags / sizeof flags[0]; i++)
        status = xr_json_bool_or(model, flags[i].key, 0, r->where, r->err,
                                 flags[i].to);
    if (!status)
        status = read_merges(r, xr_json_get(model, "merges"));
    if (!status)
        status = find_raw_words(r);
    return status ? status : find_char_pairs(r);
}
