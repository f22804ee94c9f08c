/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads "normalizer" of tokenizer.json.
 */
#include <string.h>

#include "core/base/json.h"
#include "model/text/internal.h"

/* Adds a step; the caller sets its options. */
static xray_status add_norm_step(const xm_reader *r, enum xm_norm_kind kind,
                                 xm_norm_step **out)
{
    xm_tokenizer *tok = r->tok;
    if (tok->norm_count == XM_STEPS)
        return xr_fail(r->err, XRAY_E_UNSUPPORTED,
                       "%s: %s has more than %d steps", r->where, r->key,
                       XM_STEPS);
    xm_norm_step *step = &tok->norm[tok->norm_count++];
    step->kind = kind;
    if (out)
        *out = step;
    return XRAY_OK;
}

static xray_status copy_string(const xm_reader *r, const char *text, char **out)
{
    *out = xr_strdup(text);
    return *out ? XRAY_OK : xm_read_no_memory(r);
}

static xray_status read_replace(const xm_reader *r, const cJSON *item)
{
    const char *string;
    const char *regex;
    const char *to;
    xm_norm_step *step = NULL;
    xray_status status = xm_read_replace(r, item, &string, &regex, &to);
    if (!status)
        status = add_norm_step(r, XM_NORM_REPLACE, &step);
    if (!status)
        status = copy_string(r, to, &step->to);
    if (!status && string)
        status = copy_string(r, string, &step->from);
    else if (!status)
        status = xm_regex_open(regex, r->where, r->err, &step->regex);
    return status ? xr_fail_in(r->err, status, "%s Replace", r->key) : XRAY_OK;
}

static xray_status read_bert_normalizer(const xm_reader *r, const cJSON *item)
{
    int clean;
    int chinese;
    int accents;
    int lower;
    xray_status status =
        xr_json_bool_or(item, "clean_text", 1, r->where, r->err, &clean);
    if (!status)
        status = xr_json_bool_or(item, "handle_chinese_chars", 1, r->where,
                                 r->err, &chinese);
    if (!status)
        status =
            xr_json_bool_or(item, "lowercase", 1, r->where, r->err, &lower);
    if (!status)
        status = xr_json_bool_or(item, "strip_accents", lower, r->where, r->err,
                                 &accents);
    if (!status && clean)
        status = add_norm_step(r, XM_NORM_BERT_CLEAN, NULL);
    if (!status && chinese)
        status = add_norm_step(r, XM_NORM_BERT_CHINESE, NULL);
    if (!status && accents)
        status = add_norm_step(r, XM_NORM_NFD, NULL);
    if (!status && accents)
        status = add_norm_step(r, XM_NORM_BERT_ACCENTS, NULL);
    if (!status && lower)
        status = add_norm_step(r, XM_NORM_LOWER, NULL);
    return status;
}

static xray_status read_strip(const xm_reader *r, const cJSON *item)
{
    xm_norm_step *step = NULL;
    xray_status status = add_norm_step(r, XM_NORM_STRIP, &step);
    if (!status)
        status = xr_json_bool_or(item, "strip_left", 0, r->where, r->err,
                                 &step->left);
    if (!status)
        status = xr_json_bool_or(item, "strip_right", 0, r->where, r->err,
                                 &step->right);
    return status;
}

static xray_status read_text_step(const xm_reader *r, const cJSON *item,
                                  enum xm_norm_kind kind, const char *key)
{
    const char *text;
    xm_norm_step *step = NULL;
    xray_status status = xr_json_string(item, key, r->where, r->err, &text);
    if (!status)
        status = add_norm_step(r, kind, &step);
    if (status)
        return xr_fail_in(r->err, status, "%s", r->key);
    if (kind == XM_NORM_CHARSMAP)
        return xm_charsmap_open(text, r->where, r->err, &step->map);
    return copy_string(r, text, &step->to);
}

static xray_status read_norm_step(const xm_reader *r, const cJSON *item)
{
    static const struct {
        const char *type;
        enum xm_norm_kind kind;
    } plain[] = { { "NFC", XM_NORM_NFC },
                  { "NFD", XM_NORM_NFD },
                  { "NFKC", XM_NORM_NFKC },
                  { "NFKD", XM_NORM_NFKD },
                  { "StripAccents", XM_NORM_ACCENTS },
                  { "Lowercase", XM_NORM_LOWER },
                  { "Nmt", XM_NORM_NMT },
                  { "ByteLevel", XM_NORM_ALPHABET } };
    const char *type = xr_json_get(item, "type")->valuestring;
    for (size_t i = 0; i < sizeof plain / sizeof plain[0]; i++)
        if (strcmp(type, plain[i].type) == 0)
            return add_norm_step(r, plain[i].kind, NULL);
    if (strcmp(type, "Replace") == 0)
        return read_replace(r, item);
    if (strcmp(type, "Prepend") == 0)
        return read_text_step(r, item, XM_NORM_PREPEND, "prepend");
    if (strcmp(type, "Precompiled") == 0)
        return read_text_step(r, item, XM_NORM_CHARSMAP,
                              "precompiled_charsmap");
    if (strcmp(type, "Strip") == 0)
        return read_strip(r, item);
    if (strcmp(type, "BertNormalizer") == 0)
        return read_bert_normalizer(r, item);
    return xm_read_refuse(
        r, type,
        "NFC, NFD, NFKC, NFKD, Prepend, Replace, Strip, StripAccents, "
        "Lowercase, Nmt, Precompiled, BertNormalizer, ByteLevel and Sequence");
}

xray_status xm_read_normalizer(const xm_reader *r, const cJSON *root)
{
    return xm_read_sequence(r, xr_json_get(root, "normalizer"), "normalizers",
                            read_norm_step);
}
