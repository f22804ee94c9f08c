/* SPDX-License-Identifier: Apache-2.0
 *
 * tokenizer.json: vocabulary, merges and added tokens.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/file.h"
#include "core/base/json.h"
#include "model/text/tok.h"

/* Far above any vocabulary; bounds the table of ids. */
#define ID_LIMIT (1 << 22)

typedef struct reader {
    xm_tokenizer *tok;
    const char *where;
    xr_err *err;
} reader;

static xray_status no_memory(const reader *r)
{
    return xr_fail(r->err, XRAY_E_NOMEM, "%s: out of memory", r->where);
}

static xray_status bad_id(const reader *r, const char *token)
{
    return xr_fail(r->err, XRAY_E_CONFIG,
                   "%s: the id of \"%.100s\" must be an integer from 0 to %d",
                   r->where, token, ID_LIMIT - 1);
}

static int to_id(const cJSON *item, int32_t *out)
{
    double value = cJSON_IsNumber(item) ? item->valuedouble : -1;
    if (!(value >= 0 && value < ID_LIMIT) || value != (double)(int32_t)value)
        return -1;
    *out = (int32_t)value;
    return 0;
}

/* Room for ids up to `id`. */
static int reserve(xm_tokenizer *tok, int32_t id)
{
    size_t need = (size_t)id + 1;
    if (need <= tok->token_count)
        return 0;
    xm_token *tokens = realloc(tok->tokens, need * sizeof *tokens);
    if (!tokens)
        return -1;
    memset(tokens + tok->token_count, 0,
           (need - tok->token_count) * sizeof *tokens);
    tok->tokens = tokens;
    tok->token_count = need;
    return 0;
}

static void set_token(xm_tokenizer *tok, int32_t id, const char *text,
                      uint32_t flags)
{
    size_t size = strlen(text);
    tok->tokens[id] = (xm_token){ tok->pool.size, size, flags | XM_TOK_KNOWN };
    xr_str_append(&tok->pool, text, size);
}

static xray_status read_vocab(const reader *r, const cJSON *vocab)
{
    xm_tokenizer *tok = r->tok;
    const cJSON *item;
    int32_t id;
    int32_t highest = -1;
    size_t count = 0;
    if (!cJSON_IsObject(vocab))
        return xr_fail(r->err, XRAY_E_CONFIG,
                       "%s: model \"vocab\" must be an object", r->where);
    cJSON_ArrayForEach(item, vocab)
    {
        if (to_id(item, &id))
            return bad_id(r, item->string);
        highest = id > highest ? id : highest;
        count++;
    }
    tok->ids = xr_map_new(count);
    if (!tok->ids || (count && reserve(tok, highest)))
        return no_memory(r);
    count = 0;
    cJSON_ArrayForEach(item, vocab)
    {
        size_t size = strlen(item->string);
        id = (int32_t)item->valuedouble;
        int twice = tok->tokens[id].flags != 0;
        set_token(tok, id, item->string, 0);
        if (xr_map_put(tok->ids, item->string, size, (uint64_t)id))
            return no_memory(r);
        if (twice || xr_map_count(tok->ids) != ++count)
            return xr_fail(r->err, XRAY_E_CONFIG,
                           "%s: model \"vocab\": \"%.100s\" or its id %d "
                           "stands twice",
                           r->where, item->string, (int)id);
    }
    return tok->pool.failed ? no_memory(r) : XRAY_OK;
}

static int32_t vocab_id(const xm_tokenizer *tok, const char *text, size_t size)
{
    uint64_t id;
    return xr_map_get(tok->ids, text, size, &id) ? (int32_t)id : -1;
}

/* The two halves of a merge: "a b", or ["a", "b"]. */
static int halves(const cJSON *item, const char *text[2], size_t size[2])
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

static xray_status add_merge(const reader *r, const cJSON *item, uint32_t rank)
{
    const xm_tokenizer *tok = r->tok;
    const char *text[2];
    size_t size[2];
    if (halves(item, text, size))
        return xr_fail(r->err, XRAY_E_CONFIG,
                       "%s: merge %u must be two tokens, as \"a b\" or "
                       "[\"a\", \"b\"]",
                       r->where, rank);
    xr_str both = { 0 };
    xr_str_append(&both, text[0], size[0]);
    xr_str_append(&both, text[1], size[1]);
    int32_t left = vocab_id(tok, text[0], size[0]);
    int32_t right = vocab_id(tok, text[1], size[1]);
    int32_t made = vocab_id(tok, xr_str_text(&both), both.size);
    int failed = both.failed;
    xr_str_free(&both);
    if (failed)
        return no_memory(r);
    if (left < 0 || right < 0 || made < 0)
        return xr_fail(r->err, XRAY_E_CONFIG,
                       "%s: merge %u uses a token that is not in the "
                       "vocabulary",
                       r->where, rank);
    xm_merge *slot =
        xm_tok_merge_slot(tok->merges, tok->merge_mask, left, right);
    *slot = (xm_merge){ left, right, rank, made };
    return XRAY_OK;
}

static xray_status read_merges(const reader *r, const cJSON *merges)
{
    xm_tokenizer *tok = r->tok;
    const cJSON *item;
    size_t count = 0;
    if (merges && !cJSON_IsArray(merges))
        return xr_fail(r->err, XRAY_E_CONFIG,
                       "%s: model \"merges\" must be an array", r->where);
    cJSON_ArrayForEach(item, merges) count++;
    size_t slots = 16;
    while (slots / 2 < count)
        slots *= 2;
    tok->merges = xr_calloc(slots, sizeof *tok->merges);
    if (!tok->merges)
        return no_memory(r);
    for (size_t i = 0; i < slots; i++)
        tok->merges[i].left = -1;
    tok->merge_mask = slots - 1;
    tok->merge_count = count;
    uint32_t rank = 0;
    cJSON_ArrayForEach(item, merges)
    {
        xray_status status = add_merge(r, item, rank++);
        if (status)
            return status;
    }
    return XRAY_OK;
}

static xray_status read_bpe(const reader *r, const cJSON *model)
{
    static const char *const affixes[] = { "continuing_subword_prefix",
                                           "end_of_word_suffix" };
    xm_tokenizer *tok = r->tok;
    double dropout;
    xray_status status =
        xr_json_real_or(model, "dropout", 0, r->where, r->err, &dropout);
    if (!status && dropout != 0)
        return xr_fail(r->err, XRAY_E_UNSUPPORTED,
                       "%s: model \"dropout\" is not supported", r->where);
    for (size_t i = 0; !status && i < 2; i++) {
        const char *text;
        status =
            xr_json_string_or(model, affixes[i], "", r->where, r->err, &text);
        if (!status && *text)
            return xr_fail(r->err, XRAY_E_UNSUPPORTED,
                           "%s: model \"%s\" is not supported", r->where,
                           affixes[i]);
    }
    if (!status)
        status = xr_json_bool_or(model, "byte_fallback", 0, r->where, r->err,
                                 &tok->byte_fallback);
    if (!status)
        status = xr_json_bool_or(model, "fuse_unk", 0, r->where, r->err,
                                 &tok->fuse_unk);
    if (!status)
        status = xr_json_bool_or(model, "ignore_merges", 0, r->where, r->err,
                                 &tok->ignore_merges);
    tok->is_bpe = 1;
    return status ? status : read_merges(r, xr_json_get(model, "merges"));
}

static xray_status read_model(const reader *r, const cJSON *model)
{
    xm_tokenizer *tok = r->tok;
    const char *type;
    const char *unk;
    xray_status status = xr_json_string(model, "type", r->where, r->err, &type);
    if (status)
        return xr_fail_in(r->err, status, "model");
    int bpe = strcmp(type, "BPE") == 0;
    if (!bpe && strcmp(type, "WordLevel") != 0)
        return xr_fail(r->err, XRAY_E_UNSUPPORTED,
                       "%s: model %.100s is not supported; BPE and WordLevel "
                       "are",
                       r->where, type);
    status = read_vocab(r, xr_json_get(model, "vocab"));
    if (!status)
        status =
            xr_json_string_or(model, "unk_token", NULL, r->where, r->err, &unk);
    if (status)
        return status;
    tok->unk_id = unk ? vocab_id(tok, unk, strlen(unk)) : -1;
    /* The library lets WordLevel name one it lacks until it is needed. */
    if (bpe && unk && tok->unk_id < 0)
        return xr_fail(r->err, XRAY_E_CONFIG,
                       "%s: unk_token \"%.100s\" is not in the vocabulary",
                       r->where, unk);
    for (int i = 0; i < 256; i++) {
        char name[8];
        (void)snprintf(name, sizeof name, "<0x%02X>", (unsigned)i & 255u);
        tok->byte_ids[i] = vocab_id(tok, name, 6);
    }
    return bpe ? read_bpe(r, model) : XRAY_OK;
}

static xray_status read_flags(const reader *r, const cJSON *item, uint32_t *out)
{
    static const struct {
        const char *key;
        uint32_t flag;
    } flags[] = { { "special", XM_TOK_SPECIAL },
                  { "lstrip", XM_TOK_LSTRIP },
                  { "rstrip", XM_TOK_RSTRIP },
                  { "single_word", XM_TOK_SINGLE_WORD },
                  { "normalized", XM_TOK_NORMALIZED } };
    for (size_t i = 0; i < sizeof flags / sizeof flags[0]; i++) {
        int set;
        xray_status status =
            xr_json_bool_or(item, flags[i].key, 0, r->where, r->err, &set);
        if (status)
            return xr_fail_in(r->err, status, "added_tokens");
        *out |= set ? flags[i].flag : 0;
    }
    return XRAY_OK;
}

static xray_status add_token(const reader *r, const cJSON *item)
{
    xm_tokenizer *tok = r->tok;
    const char *text;
    uint32_t flags = 0;
    int32_t id;
    xray_status status =
        xr_json_string(item, "content", r->where, r->err, &text);
    if (status)
        return xr_fail_in(r->err, status, "added_tokens");
    if (to_id(xr_json_get(item, "id"), &id))
        return bad_id(r, text);
    status = read_flags(r, item, &flags);
    if (status || !*text)
        return status;
    if (reserve(tok, id))
        return no_memory(r);
    const xm_token *old = &tok->tokens[id];
    size_t size = strlen(text);
    int32_t known = xm_tok_id(tok, text, size);
    if ((known >= 0 && known != id) ||
        ((old->flags & XM_TOK_KNOWN) &&
         (old->size != size ||
          memcmp(xr_str_text(&tok->pool) + old->at, text, size) != 0)))
        return xr_fail(r->err, XRAY_E_CONFIG,
                       "%s: added token \"%.100s\" with id %d does not agree "
                       "with the rest of the vocabulary",
                       r->where, text, (int)id);
    set_token(tok, id, text, flags);
    if (tok->pool.failed)
        return no_memory(r);
    xm_added *added = &tok->added[tok->added_count++];
    *added = (xm_added){ .id = id, .flags = flags };
    if (flags & XM_TOK_NORMALIZED)
        xm_tok_normalize(tok, text, size, &added->text);
    else
        xr_str_append(&added->text, text, size);
    if (added->text.failed)
        return no_memory(r);
    if (added->text.size)
        tok->starts[(flags & XM_TOK_NORMALIZED) != 0]
                   [(unsigned char)added->text.data[0]] = 1;
    return XRAY_OK;
}

static int longest_first(const void *a, const void *b)
{
    size_t x = ((const xm_added *)a)->text.size;
    size_t y = ((const xm_added *)b)->text.size;
    return (x < y) - (x > y);
}

static xray_status read_added(const reader *r, const cJSON *list)
{
    xm_tokenizer *tok = r->tok;
    const cJSON *item;
    size_t count = 0;
    cJSON_ArrayForEach(item, list) count++;
    tok->added = xr_calloc(count, sizeof *tok->added);
    if (!tok->added)
        return no_memory(r);
    cJSON_ArrayForEach(item, list)
    {
        xray_status status = add_token(r, item);
        if (status)
            return status;
    }
    qsort(tok->added, tok->added_count, sizeof *tok->added, longest_first);
    /* One that normalizes to nothing could match everywhere. */
    while (tok->added_count && !tok->added[tok->added_count - 1].text.size)
        xr_str_free(&tok->added[--tok->added_count].text);
    return XRAY_OK;
}

static xray_status read_root(const reader *r, const cJSON *root,
                             const cJSON *config)
{
    if (!cJSON_IsObject(root))
        return xr_fail(r->err, XRAY_E_CONFIG, "%s: must be a JSON object",
                       r->where);
    xray_status status = xm_tok_read_steps(r->tok, root, r->where, r->err);
    if (!status)
        status = xm_tok_read_pre(r->tok, root, r->where, r->err);
    if (!status)
        status = read_model(r, xr_json_get(root, "model"));
    if (!status)
        status = read_added(r, xr_json_get(root, "added_tokens"));
    if (!status)
        status = xm_tok_read_post(r->tok, root, config, r->where, r->err);
    return status;
}

xray_status xm_tok_read(xm_tokenizer *tok, const char *dir, xr_err *err)
{
    char path[XR_PATH_CAP];
    char side[XR_PATH_CAP];
    cJSON *root = NULL;
    cJSON *config = NULL;
    xray_status status =
        xr_path_join(dir, "tokenizer.json", path, sizeof path, err);
    if (!status)
        status =
            xr_path_join(dir, "tokenizer_config.json", side, sizeof side, err);
    if (!status)
        status = xr_json_file(path, err, &root);
    if (!status && xr_path_exists(side))
        status = xr_json_file(side, err, &config);
    reader r = { tok, path, err };
    if (!status)
        status = read_root(&r, root, config);
    cJSON_Delete(root);
    cJSON_Delete(config);
    return status;
}
