/* SPDX-License-Identifier: Apache-2.0
 *
 * pre_tokenizer of tokenizer.json.
 */
#include <string.h>

#include "core/base/json.h"
#include "model/text/tok.h"

/* What GPT-2 splits words with; ByteLevel stands for it. */
static const char gpt2_pattern[] =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+"
    "|\\s+(?!\\S)|\\s+";

typedef struct reader {
    xm_tokenizer *tok;
    const char *where;
    xr_err *err;
} reader;

static xray_status add_step(const reader *r, enum xm_pre_kind kind,
                            const char *pattern)
{
    xm_tokenizer *tok = r->tok;
    if (tok->pre_count == XM_STEPS)
        return xr_fail(r->err, XRAY_E_UNSUPPORTED,
                       "%s: pre_tokenizer has more than %d steps", r->where,
                       XM_STEPS);
    xm_pre *step = &tok->pre[tok->pre_count++];
    step->kind = kind;
    return kind == XM_PRE_REGEX
               ? xm_regex_open(pattern, r->where, r->err, &step->regex)
               : XRAY_OK;
}

/* Patterns that mean every character by itself need no matching. The empty one
 * is what our own tools write. */
static int every_character(const char *pattern)
{
    return !*pattern || strcmp(pattern, "[\\s\\S]") == 0 ||
           strcmp(pattern, ".|\\n") == 0;
}

/* A string to find as it stands, written as a pattern. */
static xray_status add_literal(const reader *r, const char *text)
{
    xr_str pattern = { 0 };
    for (; *text; text++) {
        if (strchr("\\^$.|?*+()[]{}", *text))
            xr_str_puts(&pattern, "\\");
        xr_str_append(&pattern, text, 1);
    }
    xray_status status =
        pattern.failed
            ? xr_fail(r->err, XRAY_E_NOMEM, "%s: out of memory", r->where)
            : add_step(r, XM_PRE_REGEX, xr_str_text(&pattern));
    xr_str_free(&pattern);
    return status;
}

static xray_status read_split(const reader *r, const cJSON *item)
{
    const cJSON *pattern = xr_json_get(item, "pattern");
    const cJSON *regex = xr_json_get(pattern, "Regex");
    const cJSON *text = xr_json_get(pattern, "String");
    const char *behavior;
    int invert;
    xray_status status =
        xr_json_string(item, "behavior", r->where, r->err, &behavior);
    if (!status)
        status = xr_json_bool_or(item, "invert", 0, r->where, r->err, &invert);
    if (status)
        return xr_fail_in(r->err, status, "pre_tokenizer");
    if (invert || strcmp(behavior, "Isolated") != 0)
        return xr_fail(r->err, XRAY_E_UNSUPPORTED,
                       "%s: pre_tokenizer Split with behavior %.100s%s is not "
                       "supported; Isolated without invert is",
                       r->where, behavior, invert ? " and invert" : "");
    if (!cJSON_IsString(regex) && !cJSON_IsString(text))
        return xr_fail(r->err, XRAY_E_CONFIG,
                       "%s: pre_tokenizer Split needs a \"pattern\" with "
                       "\"Regex\" or \"String\"",
                       r->where);
    if (every_character(cJSON_IsString(regex) ? regex->valuestring
                        : *text->valuestring  ? "-"
                                              : ""))
        return add_step(r, XM_PRE_CHARS, NULL);
    return cJSON_IsString(regex) ? add_step(r, XM_PRE_REGEX, regex->valuestring)
                                 : add_literal(r, text->valuestring);
}

static xray_status read_byte_level(const reader *r, const cJSON *item)
{
    int prefix;
    int regex;
    xray_status status =
        xr_json_bool_or(item, "add_prefix_space", 1, r->where, r->err, &prefix);
    if (!status)
        status =
            xr_json_bool_or(item, "use_regex", 1, r->where, r->err, &regex);
    if (status)
        return xr_fail_in(r->err, status, "pre_tokenizer");
    if (prefix)
        status = add_step(r, XM_PRE_SPACE, NULL);
    if (!status && regex)
        status = add_step(r, XM_PRE_REGEX, gpt2_pattern);
    return status ? status : add_step(r, XM_PRE_ALPHABET, NULL);
}

static xray_status read_step(const reader *r, const cJSON *item)
{
    const char *type;
    xray_status status = xr_json_string(item, "type", r->where, r->err, &type);
    if (status)
        return xr_fail_in(r->err, status, "pre_tokenizer");
    if (strcmp(type, "Split") == 0)
        return read_split(r, item);
    if (strcmp(type, "ByteLevel") == 0)
        return read_byte_level(r, item);
    return xr_fail(r->err, XRAY_E_UNSUPPORTED,
                   "%s: pre_tokenizer %.100s is not supported; null, Split, "
                   "ByteLevel and a Sequence of them are",
                   r->where, type);
}

xray_status xm_tok_read_pre(xm_tokenizer *tok, const cJSON *root,
                            const char *where, xr_err *err)
{
    reader r = { tok, where, err };
    const cJSON *item = xr_json_get(root, "pre_tokenizer");
    const cJSON *type = xr_json_get(item, "type");
    const cJSON *list = xr_json_get(item, "pretokenizers");
    const cJSON *step;
    if (!item)
        return XRAY_OK;
    if (!cJSON_IsString(type) || strcmp(type->valuestring, "Sequence") != 0)
        return read_step(&r, item);
    if (!cJSON_IsArray(list))
        return xr_fail(err, XRAY_E_CONFIG,
                       "%s: pre_tokenizer Sequence needs the array "
                       "\"pretokenizers\"",
                       where);
    cJSON_ArrayForEach(step, list)
    {
        xray_status status = read_step(&r, step);
        if (status)
            return status;
    }
    return XRAY_OK;
}
