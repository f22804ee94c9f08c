/* SPDX-License-Identifier: Apache-2.0
 *
 * What stands around a text: post_processor, and the names in
 * tokenizer_config.json.
 */
#include <stdlib.h>
#include <string.h>

#include "core/base/json.h"
#include "model/text/tok.h"

static xray_status add_special(xm_tokenizer *tok, const cJSON *post,
                               const char *name, xm_ids *to, const char *where,
                               xr_err *err)
{
    const cJSON *known = xr_json_get(post, "special_tokens");
    const cJSON *entry = cJSON_GetObjectItemCaseSensitive(known, name);
    int32_t *ids;
    size_t count;
    xray_status status =
        xr_json_ids(xr_json_get(entry, "ids"), where, err, &ids, &count);
    if (status)
        return xr_fail_in(err, status, "special token \"%.100s\"", name);
    for (size_t i = 0; !status && i < count; i++) {
        if ((size_t)ids[i] >= tok->token_count)
            status = xr_fail(err, XRAY_E_CONFIG,
                             "%s: post_processor uses id %d, which is not in "
                             "the vocabulary",
                             where, (int)ids[i]);
        else if (xm_ids_push(to, ids[i]))
            status = xr_fail(err, XRAY_E_NOMEM, "%s: out of memory", where);
    }
    free(ids);
    return status;
}

static xray_status read_template(xm_tokenizer *tok, const cJSON *post,
                                 const char *where, xr_err *err)
{
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
            return xr_fail(err, XRAY_E_CONFIG,
                           "%s: post_processor \"single\" must hold Sequence "
                           "A and SpecialTokens",
                           where);
        xray_status status =
            add_special(tok, post, id->valuestring,
                        seen ? &tok->suffix : &tok->prefix, where, err);
        if (status)
            return status;
    }
    return seen == 1 ? XRAY_OK
                     : xr_fail(err, XRAY_E_CONFIG,
                               "%s: post_processor \"single\" must hold "
                               "Sequence A once",
                               where);
}

/* Id of a token that tokenizer_config.json names, as text or as an object with
 * "content"; -1: none. */
static int32_t named(const xm_tokenizer *tok, const cJSON *config,
                     const char *key)
{
    const cJSON *item = xr_json_get(config, key);
    if (cJSON_IsObject(item))
        item = xr_json_get(item, "content");
    if (!cJSON_IsString(item))
        return -1;
    return xm_tok_id(tok, item->valuestring, strlen(item->valuestring));
}

static xray_status read_rules(xm_tokenizer *tok, const cJSON *config,
                              const char *where, xr_err *err)
{
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
                       "%s: tokenizer_config.json adds a %s token that it "
                       "does not name",
                       where, bos && tok->bos_id < 0 ? "bos" : "eos");
    if ((bos && xm_ids_push(&tok->prefix, tok->bos_id)) ||
        (eos && xm_ids_push(&tok->suffix, tok->eos_id)))
        return xr_fail(err, XRAY_E_NOMEM, "%s: out of memory", where);
    return XRAY_OK;
}

/* ByteLevel moves offsets only, which nobody asks for here. */
static xray_status read_one_post(xm_tokenizer *tok, const cJSON *post,
                                 const char *where, int *templates, xr_err *err)
{
    const char *type;
    xray_status status = xr_json_string(post, "type", where, err, &type);
    if (status)
        return xr_fail_in(err, status, "post_processor");
    if (strcmp(type, "ByteLevel") == 0)
        return XRAY_OK;
    if (strcmp(type, "TemplateProcessing") != 0)
        return xr_fail(err, XRAY_E_UNSUPPORTED,
                       "%s: post_processor %.100s is not supported; null, "
                       "ByteLevel, TemplateProcessing and a Sequence of them "
                       "are",
                       where, type);
    if ((*templates)++)
        return xr_fail(err, XRAY_E_UNSUPPORTED,
                       "%s: post_processor Sequence with two "
                       "TemplateProcessing is not supported",
                       where);
    return read_template(tok, post, where, err);
}

static xray_status read_post(xm_tokenizer *tok, const cJSON *post,
                             const char *where, int *templates, xr_err *err)
{
    const cJSON *type = xr_json_get(post, "type");
    const cJSON *list = xr_json_get(post, "processors");
    const cJSON *item;
    if (!cJSON_IsString(type) || strcmp(type->valuestring, "Sequence") != 0)
        return read_one_post(tok, post, where, templates, err);
    if (!cJSON_IsArray(list))
        return xr_fail(err, XRAY_E_CONFIG,
                       "%s: post_processor Sequence needs the array "
                       "\"processors\"",
                       where);
    cJSON_ArrayForEach(item, list)
    {
        xray_status status = read_one_post(tok, item, where, templates, err);
        if (status)
            return status;
    }
    return XRAY_OK;
}

xray_status xm_tok_read_post(xm_tokenizer *tok, const cJSON *root,
                             const cJSON *config, const char *where,
                             xr_err *err)
{
    tok->bos_id = named(tok, config, "bos_token");
    tok->eos_id = named(tok, config, "eos_token");
    const cJSON *post = xr_json_get(root, "post_processor");
    if (!post)
        return read_rules(tok, config, where, err);
    int templates = 0;
    xray_status status = read_post(tok, post, where, &templates, err);
    /* Without names, what stands in front of every text is the BOS. */
    if (!status && !config && tok->prefix.count == 1)
        tok->bos_id = tok->prefix.data[0];
    return status;
}
