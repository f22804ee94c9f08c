/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads which tokens are added around every text, from "post_processor" and
 * tokenizer_config.json.
 */
#include <stdlib.h>
#include <string.h>

#include "core/base/json.h"
#include "model/text/internal.h"

static xray_status add_known_id(const xm_reader *r, int32_t id, xm_ids *to)
{
    if (id < 0 || (size_t)id >= r->tok->token_count)
        return xr_fail(r->err, XRAY_E_CONFIG,
                       "%s: post_processor uses id %d, which is not in the "
                       "vocabulary",
                       r->where, (int)id);
    return xm_ids_push(to, id) ? xm_read_no_memory(r) : XRAY_OK;
}

static xray_status add_special_token(const xm_reader *r, const cJSON *post,
                                     const char *name, xm_ids *to)
{
    const cJSON *known = xr_json_get(post, "special_tokens");
    const cJSON *entry = cJSON_GetObjectItemCaseSensitive(known, name);
    int32_t *ids;
    size_t count;
    xray_status status =
        xr_json_ids(xr_json_get(entry, "ids"), r->where, r->err, &ids, &count);
    if (status)
        return xr_fail_in(r->err, status, "special token \"%.100s\"", name);
    for (size_t i = 0; !status && i < count; i++)
        status = add_known_id(r, ids[i], to);
    free(ids);
    return status;
}

static xray_status read_template(const xm_reader *r, const cJSON *post)
{
    xm_tokenizer *tok = r->tok;
    const cJSON *item;
    int seen = 0;
    cJSON_ArrayForEach(item, xr_json_get(post, "single"))
    {
        const cJSON *sequence = xr_json_get(item, "Sequence");
        const cJSON *id = xr_json_get(xr_json_get(item, "SpecialToken"), "id");
        const cJSON *which = xr_json_get(sequence, "id");
        if (cJSON_IsString(which) && strcmp(which->valuestring, "A") == 0) {
            seen++;
            continue;
        }
        if (sequence || !cJSON_IsString(id))
            return xr_fail(r->err, XRAY_E_CONFIG,
                           "%s: post_processor \"single\" must hold Sequence "
                           "A and SpecialTokens",
                           r->where);
        xray_status status = add_special_token(
            r, post, id->valuestring, seen ? &tok->suffix : &tok->prefix);
        if (status)
            return status;
    }
    return seen == 1 ? XRAY_OK
                     : xr_fail(r->err, XRAY_E_CONFIG,
                               "%s: post_processor \"single\" must hold "
                               "Sequence A once",
                               r->where);
}

/* Reads "cls" or "sep" of BertProcessing and RobertaProcessing, each [text,
 * id]. */
static xray_status read_token_pair(const xm_reader *r, const cJSON *post,
                                   const char *key, xm_ids *to)
{
    const cJSON *list = xr_json_get(post, key);
    const cJSON *text = cJSON_IsArray(list) ? list->child : NULL;
    const cJSON *id = text ? text->next : NULL;
    int32_t value;
    if (!cJSON_IsString(text) || xm_read_id(id, &value))
        return xr_fail(r->err, XRAY_E_CONFIG,
                       "%s: post_processor \"%s\" must be [\"token\", id]",
                       r->where, key);
    return add_known_id(r, value, to);
}

static xray_status read_trim_offsets(const xm_reader *r, const cJSON *post)
{
    xm_tokenizer *tok = r->tok;
    int trims;
    int prefix;
    xray_status status =
        xr_json_bool_or(post, "trim_offsets", 1, r->where, r->err, &trims);
    if (!status)
        status = xr_json_bool_or(post, "add_prefix_space", 1, r->where, r->err,
                                 &prefix);
    if (status)
        return xr_fail_in(r->err, status, "post_processor");
    if (trims && tok->trim_count == XM_STEPS)
        return xr_fail(r->err, XRAY_E_UNSUPPORTED,
                       "%s: post_processor has more than %d steps", r->where,
                       XM_STEPS);
    if (trims)
        tok->trim[tok->trim_count++] = prefix;
    return XRAY_OK;
}

/* Returns the id of a token that tokenizer_config.json names, as a string or as
 * an object with "content"; -1: none. */
static int32_t find_named_token(const xm_tokenizer *tok, const cJSON *config,
                                const char *key)
{
    const cJSON *item = xr_json_get(config, key);
    if (cJSON_IsObject(item))
        item = xr_json_get(item, "content");
    if (!cJSON_IsString(item))
        return -1;
    return xm_tokenizer_find(tok, item->valuestring, strlen(item->valuestring));
}

static xray_status read_bos_eos_rules(const xm_reader *r, const cJSON *config)
{
    xm_tokenizer *tok = r->tok;
    const char *where = r->where;
    xr_err *err = r->err;
    int bos;
    int eos;
    xray_status status =
        xr_json_bool_or(config, "add_bos_token", 0, where, err, &bos);
    if (!status)
        status = xr_json_bool_or(config, "add_eos_token", 0, where, err, &eos);
    if (status)
        return status;
    if ((bos && tok->bos_id < 0) || (eos && tok->eos_id < 0))
        return xr_fail(err, XRAY_E_CONFIG,
                       "%s: tokenizer_config.json adds the %s token but "
                       "does not name it",
                       where, bos && tok->bos_id < 0 ? "bos" : "eos");
    if ((bos && xm_ids_push(&tok->prefix, tok->bos_id)) ||
        (eos && xm_ids_push(&tok->suffix, tok->eos_id)))
        return xr_fail(err, XRAY_E_NOMEM, "%s: out of memory", where);
    return XRAY_OK;
}

/* Reads one post-processor. ByteLevel adds no token and only trims spans. */
static xray_status read_processor(const xm_reader *r, const cJSON *post)
{
    xm_tokenizer *tok = r->tok;
    const char *type = xr_json_get(post, "type")->valuestring;
    int roberta = strcmp(type, "RobertaProcessing") == 0;
    if (strcmp(type, "ByteLevel") == 0)
        return read_trim_offsets(r, post);
    if (tok->prefix.count || tok->suffix.count)
        return xr_fail(r->err, XRAY_E_UNSUPPORTED,
                       "%s: post_processor Sequence with two steps that add "
                       "tokens is not supported",
                       r->where);
    if (strcmp(type, "TemplateProcessing") == 0)
        return read_template(r, post);
    if (!roberta && strcmp(type, "BertProcessing") != 0)
        return xm_read_refuse(r, type,
                              "null, ByteLevel, TemplateProcessing, "
                              "BertProcessing, RobertaProcessing and Sequence");
    xray_status status = read_token_pair(r, post, "cls", &tok->prefix);
    if (!status)
        status = read_token_pair(r, post, "sep", &tok->suffix);
    return status || !roberta ? status : read_trim_offsets(r, post);
}

xray_status xm_read_post_processor(const xm_reader *r, const cJSON *root,
                                   const cJSON *config)
{
    xm_tokenizer *tok = r->tok;
    tok->bos_id = find_named_token(tok, config, "bos_token");
    tok->eos_id = find_named_token(tok, config, "eos_token");
    const cJSON *post = xr_json_get(root, "post_processor");
    if (!post)
        return read_bos_eos_rules(r, config);
    xray_status status =
        xm_read_sequence(r, post, "processors", read_processor);
    /* If no tokenizer_config.json names a BOS, the token added in front is
     * taken as it. */
    if (!status && !config && tok->prefix.count == 1)
        tok->bos_id = tok->prefix.data[0];
    return status;
}
