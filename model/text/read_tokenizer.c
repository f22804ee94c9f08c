/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads tokenizer.json part by part, and its added tokens.
 */
#include <stdlib.h>
#include <string.h>

#include "core/base/file.h"
#include "core/base/json.h"
#include "model/text/internal.h"

/* Bounds the table of ids, far above any real vocabulary. */
#define ID_LIMIT (1 << 22)
/* Levels of nested Sequences. */
#define DEPTH_LIMIT 8

xray_status xm_read_no_memory(const xm_reader *r)
{
    return xr_fail(r->err, XRAY_E_NOMEM, "%s: out of memory", r->where);
}

xray_status xm_read_refuse(const xm_reader *r, const char *type,
                           const char *known)
{
    return xr_fail(r->err, XRAY_E_UNSUPPORTED,
                   "%s: %s %.100s is not supported; %s are", r->where, r->key,
                   type, known);
}

int xm_read_id(const cJSON *item, int32_t *out)
{
    double value = cJSON_IsNumber(item) ? item->valuedouble : -1;
    if (!(value >= 0 && value < ID_LIMIT) || value != (double)(int32_t)value)
        return -1;
    *out = (int32_t)value;
    return 0;
}

int xm_read_reserve(xm_tokenizer *tok, int32_t id)
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

void xm_read_token(xm_tokenizer *tok, int32_t id, const char *text, size_t size,
                   uint32_t flags)
{
    tok->tokens[id] = (xm_token){ tok->pool.size, size, flags | XM_TOK_KNOWN };
    xr_str_append(&tok->pool, text, size);
}

xray_status xm_read_pattern(const xm_reader *r, const cJSON *item,
                            const char **out_string, const char **out_regex)
{
    const cJSON *pattern = xr_json_get(item, "pattern");
    const cJSON *string = xr_json_get(pattern, "String");
    const cJSON *regex = xr_json_get(pattern, "Regex");
    if (cJSON_IsString(string) == cJSON_IsString(regex))
        return xr_fail(r->err, XRAY_E_CONFIG,
                       "%s: %s needs a \"pattern\" with \"Regex\" or "
                       "\"String\"",
                       r->where, r->key);
    *out_string = cJSON_IsString(string) ? string->valuestring : NULL;
    *out_regex = cJSON_IsString(regex) ? regex->valuestring : NULL;
    return XRAY_OK;
}

xray_status xm_read_replace(const xm_reader *r, const cJSON *item,
                            const char **out_string, const char **out_regex,
                            const char **out_to)
{
    xray_status status = xm_read_pattern(r, item, out_string, out_regex);
    if (!status)
        status = xr_json_string(item, "content", r->where, r->err, out_to);
    if (!status && *out_string && !**out_string)
        status = xm_read_refuse(r, "Replace of an empty string",
                                "Replace of a string and of a pattern");
    return status;
}

xray_status xm_read_by_type(const xm_reader *r, const cJSON *item,
                            const xm_step_reader *kinds, size_t count)
{
    const char *type = xr_json_get(item, "type")->valuestring;
    for (size_t i = 0; i < count; i++)
        if (strcmp(type, kinds[i].type) == 0)
            return kinds[i].read(r, item);
    return XRAY_END;
}

static xray_status
read_sequence(const xm_reader *r, const cJSON *item, const char *list,
              xray_status (*one)(const xm_reader *, const cJSON *), int depth)
{
    const char *type;
    const cJSON *step;
    xray_status status = xr_json_string(item, "type", r->where, r->err, &type);
    if (status)
        return xr_fail_in(r->err, status, "%s", r->key);
    if (strcmp(type, "Sequence") != 0)
        return one(r, item);
    const cJSON *steps = xr_json_get(item, list);
    if (!cJSON_IsArray(steps) || depth == DEPTH_LIMIT)
        return xr_fail(r->err, XRAY_E_CONFIG,
                       "%s: %s Sequence needs the array \"%s\" and may be at "
                       "most %d levels deep",
                       r->where, r->key, list, DEPTH_LIMIT);
    cJSON_ArrayForEach(step, steps)
    {
        status = read_sequence(r, step, list, one, depth + 1);
        if (status)
            return status;
    }
    return XRAY_OK;
}

xray_status
xm_read_sequence(const xm_reader *r, const cJSON *item, const char *list,
                 xray_status (*one)(const xm_reader *, const cJSON *))
{
    return item ? read_sequence(r, item, list, one, 0) : XRAY_OK;
}

static xray_status read_added_flags(const xm_reader *r, const cJSON *item,
                                    uint32_t *out)
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

/* Appends the text that an added token is searched for as and decodes to: its
 * content, normalized if the token asks for it. */
static xray_status normalize_added(const xm_reader *r, const xm_added *added,
                                   xr_str *out)
{
    xm_tokenizer *tok = r->tok;
    xm_piece piece = { .text = xr_str_text(&added->content),
                       .size = added->content.size };
    xm_piece made = piece;
    xm_workspace *workspace = xm_workspace_take(tok);
    xm_encoding enc = { .tok = tok,
                        .limit = XM_GROWN(piece.size),
                        .err = r->err,
                        .workspace = workspace };
    xray_status status = workspace ? XRAY_OK : xm_read_no_memory(r);
    if (!status && (added->flags & XM_TOK_NORMALIZED))
        status = xm_normalize(&enc, &piece, &made);
    if (!status)
        xr_str_append(out, made.text, made.size);
    xm_workspace_give(tok, workspace);
    return !status && out->failed ? xm_read_no_memory(r) : status;
}

/* Returns the slot of the added token with the same id, or a new one. */
static xm_added *find_added_slot(xm_tokenizer *tok, int32_t id)
{
    int again = (tok->tokens[id].flags & XM_TOK_ADDED) != 0;
    for (size_t i = 0; again && i < tok->added_count; i++)
        if (tok->added[i].id == id) {
            xr_str_free(&tok->added[i].content);
            xr_str_free(&tok->added[i].text);
            return &tok->added[i];
        }
    return &tok->added[tok->added_count++];
}

static xray_status read_added_token(const xm_reader *r, const cJSON *item)
{
    xm_tokenizer *tok = r->tok;
    const char *text;
    uint32_t flags = 0;
    int32_t id;
    xray_status status =
        xr_json_string(item, "content", r->where, r->err, &text);
    if (status)
        return xr_fail_in(r->err, status, "added_tokens");
    if (xm_read_id(xr_json_get(item, "id"), &id))
        return xr_fail(r->err, XRAY_E_CONFIG,
                       "%s: the id of \"%.100s\" must be an integer from 0 to "
                       "%d",
                       r->where, text, ID_LIMIT - 1);
    status = read_added_flags(r, item, &flags);
    if (status || !*text)
        return status;
    if (xm_read_reserve(tok, id))
        return xm_read_no_memory(r);
    const xm_token *old = &tok->tokens[id];
    size_t size = strlen(text);
    int32_t known = xm_tokenizer_find(tok, text, size);
    if (known != id && (known >= 0 || (old->flags & XM_TOK_KNOWN)))
        return xr_fail(r->err, XRAY_E_CONFIG,
                       "%s: added token \"%.100s\" with id %d does not agree "
                       "with the rest of the vocabulary",
                       r->where, text, (int)id);
    xm_added *added = find_added_slot(tok, id);
    *added = (xm_added){ .id = id, .flags = flags };
    xr_str_append(&added->content, text, size);
    if (added->content.failed ||
        xm_vocab_put(&tok->added_ids, text, size, id) < 0)
        return xm_read_no_memory(r);
    status = normalize_added(r, added, &added->text);
    if (status)
        return status;
    int same =
        added->text.size == size && memcmp(added->text.data, text, size) == 0;
    if ((flags & XM_TOK_SPECIAL) && same)
        flags |= XM_TOK_SKIPPED;
    xm_read_token(tok, id, xr_str_text(&added->text), added->text.size,
                  flags | XM_TOK_ADDED);
    return tok->pool.failed ? xm_read_no_memory(r) : XRAY_OK;
}

/* Orders added tokens as the search needs them: raw ones first, then by first
 * byte, then longest first. */
static int compare_added(const void *a, const void *b)
{
    const xm_added *x = a;
    const xm_added *y = b;
    uint32_t kind = x->flags & XM_TOK_NORMALIZED;
    uint32_t other = y->flags & XM_TOK_NORMALIZED;
    unsigned first = (unsigned char)*xr_str_text(&x->text);
    unsigned second = (unsigned char)*xr_str_text(&y->text);
    if (kind != other)
        return kind ? 1 : -1;
    if (first != second)
        return first < second ? -1 : 1;
    return (x->text.size < y->text.size) - (x->text.size > y->text.size);
}

static int is_normalized_kind(const xm_added *added)
{
    return (added->flags & XM_TOK_NORMALIZED) != 0;
}

/* Links each token of a run with one first byte to the next shorter one. */
static void index_added_lengths(xm_tokenizer *tok, uint32_t from, uint32_t to)
{
    for (uint32_t i = to; i-- > from;) {
        int same = i + 1 < to &&
                   tok->added[i + 1].text.size == tok->added[i].text.size;
        tok->added[i].shorter = same ? tok->added[i + 1].shorter : i + 1;
    }
}

static int index_added_tokens(xm_tokenizer *tok)
{
    uint32_t at = 0;
    int failed = 0;
    for (int kind = 0; kind < 2; kind++) {
        failed |= xm_vocab_init(&tok->added_texts[kind], tok->added_count);
        /* A token that normalizes to nothing would match everywhere. */
        while (at < tok->added_count && !tok->added[at].text.size &&
               is_normalized_kind(&tok->added[at]) == kind)
            at++;
        for (unsigned byte = 0; !failed && byte < 256; byte++) {
            tok->first[kind][byte] = at;
            while (at < tok->added_count &&
                   is_normalized_kind(&tok->added[at]) == kind &&
                   (unsigned char)*xr_str_text(&tok->added[at].text) == byte) {
                const xr_str *text = &tok->added[at].text;
                failed |= xm_vocab_put(&tok->added_texts[kind], text->data,
                                       text->size, (int32_t)at) < 0;
                at++;
            }
            index_added_lengths(tok, tok->first[kind][byte], at);
        }
        tok->first[kind][256] = at;
    }
    return failed;
}

xray_status xm_read_added_tokens(const xm_reader *r, const cJSON *list)
{
    xm_tokenizer *tok = r->tok;
    const cJSON *item;
    size_t count = 0;
    cJSON_ArrayForEach(item, list) count++;
    tok->added = xr_calloc(count + 1, sizeof *tok->added);
    if (!tok->added || xm_vocab_init(&tok->added_ids, count))
        return xm_read_no_memory(r);
    cJSON_ArrayForEach(item, list)
    {
        xray_status status = read_added_token(r, item);
        if (status)
            return status;
    }
    qsort(tok->added, tok->added_count, sizeof *tok->added, compare_added);
    return index_added_tokens(tok) ? xm_read_no_memory(r) : XRAY_OK;
}

static xray_status read_all_parts(xm_reader *r, const cJSON *root,
                                  const cJSON *config)
{
    if (!cJSON_IsObject(root))
        return xr_fail(r->err, XRAY_E_CONFIG, "%s: must be a JSON object",
                       r->where);
    r->key = "normalizer";
    xray_status status = xm_read_normalizer(r, root);
    r->key = "pre_tokenizer";
    if (!status)
        status = xm_read_pre_tokenizer(r, root);
    r->key = "decoder";
    if (!status)
        status = xm_read_decoder(r, root);
    r->key = "model";
    if (!status)
        status = xm_read_model(r, xr_json_get(root, "model"));
    r->key = "added_tokens";
    if (!status)
        status = xm_read_added_tokens(r, xr_json_get(root, "added_tokens"));
    r->key = "post_processor";
    if (!status)
        status = xm_read_post_processor(r, root, config);
    return status;
}

/* Moves the file's path to the front of a message, where the readers of the
 * parts have put their own names. */
static void put_file_first(xr_err *err, const char *path)
{
    size_t size = strlen(path);
    const char *at = err ? strstr(err->text, path) : NULL;
    if (!at || at == err->text || strncmp(at + size, ": ", 2) != 0)
        return;
    xr_err old = *err;
    at = old.text + (at - err->text);
    (void)xr_fail(err, XRAY_E_CONFIG, "%s: %.*s%s", path, (int)(at - old.text),
                  old.text, at + size + 2);
}

xray_status xm_tokenizer_read(xm_tokenizer *tok, const char *dir, xr_err *err)
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
    xm_reader r = { .tok = tok, .where = path, .err = err };
    if (!status)
        status = read_all_parts(&r, root, config);
    if (status)
        put_file_first(err, path);
    cJSON_Delete(root);
    cJSON_Delete(config);
    return status;
}
