/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads "pre_tokenizer" of tokenizer.json.
 */
#include <string.h>

#include "core/base/json.h"
#include "model/text/internal.h"

static xray_status add_pre_step(const xm_reader *r, xm_pre_step step,
                                xm_pre_step **out)
{
    xm_tokenizer *tok = r->tok;
    if (tok->pre_count == XM_STEPS)
        return xr_fail(r->err, XRAY_E_UNSUPPORTED,
                       "%s: %s has more than %d steps", r->where, r->key,
                       XM_STEPS);
    tok->pre[tok->pre_count] = step;
    if (out)
        *out = &tok->pre[tok->pre_count];
    tok->pre_count++;
    return XRAY_OK;
}

static xray_status add_class_step(const xm_reader *r, unsigned mask,
                                  enum xm_behavior behavior)
{
    return add_pre_step(r,
                        (xm_pre_step){ .kind = XM_PRE_CLASS,
                                       .mask = mask,
                                       .behavior = behavior },
                        NULL);
}

static xray_status read_behavior(const xm_reader *r, const cJSON *item,
                                 const char *preset, enum xm_behavior *out)
{
    static const char *const names[] = { "Isolated", "Removed",
                                         "MergedWithPrevious", "MergedWithNext",
                                         "Contiguous" };
    const char *name;
    xray_status status =
        xr_json_string_or(item, "behavior", preset, r->where, r->err, &name);
    if (status)
        return xr_fail_in(r->err, status, "%s", r->key);
    for (size_t i = 0; name && i < sizeof names / sizeof names[0]; i++)
        if (strcmp(name, names[i]) == 0) {
            *out = (enum xm_behavior)i;
            return XRAY_OK;
        }
    return xr_fail(r->err, XRAY_E_CONFIG,
                   "%s: %s: \"behavior\" must be Isolated, Removed, "
                   "MergedWithPrevious, MergedWithNext or Contiguous",
                   r->where, r->key);
}

/* Whether a pattern matches every single character, so that no matching is
 * needed. X-ray's own tools write the empty pattern. */
static int is_every_character(const char *pattern)
{
    return !*pattern || strcmp(pattern, "[\\s\\S]") == 0 ||
           strcmp(pattern, ".|\\n") == 0;
}

static xray_status read_split(const xm_reader *r, const cJSON *item)
{
    const char *string;
    const char *regex;
    xm_pre_step step = { .kind = XM_PRE_REGEX };
    xm_pre_step *made;
    xray_status status = xm_read_pattern(r, item, &string, &regex);
    if (!status)
        status = read_behavior(r, item, NULL, &step.behavior);
    if (!status)
        status =
            xr_json_bool_or(item, "invert", 0, r->where, r->err, &step.invert);
    if (status)
        return status;
    /* The scanners' patterns leave no gaps, so in both cases the pieces are the
     * matches. */
    int isolated = step.behavior == XM_ISOLATED ||
                   (step.behavior == XM_REMOVED && step.invert);
    if (step.behavior == XM_ISOLATED &&
        is_every_character(string ? string : regex) && (regex || !*string))
        return add_pre_step(r, (xm_pre_step){ .kind = XM_PRE_CHARS }, NULL);
    if (regex && isolated) {
        step.scanner = xm_find_scanner(regex);
        if (step.scanner.next) {
            step.kind = XM_PRE_SCAN;
            return add_pre_step(r, step, NULL);
        }
    }
    status = add_pre_step(r, step, &made);
    if (!status && regex)
        status = xm_regex_open(regex, r->where, r->err, &made->regex);
    else if (!status)
        status = xm_regex_literal(string, r->where, r->err, &made->regex);
    return status ? xr_fail_in(r->err, status, "%s Split", r->key) : XRAY_OK;
}

static xray_status read_byte_level(const xm_reader *r, const cJSON *item)
{
    int prefix;
    int regex;
    xray_status status =
        xr_json_bool_or(item, "add_prefix_space", 1, r->where, r->err, &prefix);
    if (!status)
        status =
            xr_json_bool_or(item, "use_regex", 1, r->where, r->err, &regex);
    if (status)
        return xr_fail_in(r->err, status, "%s", r->key);
    if (prefix)
        status = add_pre_step(r, (xm_pre_step){ .kind = XM_PRE_SPACE }, NULL);
    if (!status && regex)
        status = add_pre_step(
            r,
            (xm_pre_step){ .kind = XM_PRE_SCAN,
                           .scanner = xm_find_scanner(xm_gpt2_pattern) },
            NULL);
    return status ? status
                  : add_pre_step(r, (xm_pre_step){ .kind = XM_PRE_ALPHABET },
                                 NULL);
}

/* Reads a string of exactly one character. */
static xray_status read_one_char(const xm_reader *r, const cJSON *item,
                                 const char *key, char out[8])
{
    const char *text;
    xray_status status = xr_json_string(item, key, r->where, r->err, &text);
    if (status)
        return xr_fail_in(r->err, status, "%s", r->key);
    uint32_t code;
    size_t size = strlen(text);
    if (!size || xr_utf8_decode(text, text + size, &code) != (int)size)
        return xr_fail(r->err, XRAY_E_CONFIG,
                       "%s: %s: \"%s\" must be one character", r->where, r->key,
                       key);
    memcpy(out, text, size + 1);
    return XRAY_OK;
}

static xray_status read_metaspace(const xm_reader *r, const cJSON *item)
{
    xm_pre_step step = { .kind = XM_PRE_META };
    const char *scheme = "";
    int prefix;
    xray_status status = read_one_char(r, item, "replacement", step.from);
    if (!status)
        status = xr_json_string_or(item, "prepend_scheme", "always", r->where,
                                   r->err, &scheme);
    if (!status)
        status = xr_json_bool_or(item, "add_prefix_space", 1, r->where, r->err,
                                 &prefix);
    if (!status)
        status =
            xr_json_bool_or(item, "split", 1, r->where, r->err, &step.split);
    if (status)
        return status;
    int stated = xr_json_get(item, "prepend_scheme") != NULL;
    if (strcmp(scheme, "first") == 0)
        step.scheme = XM_FIRST;
    else if (strcmp(scheme, "never") == 0)
        step.scheme = XM_NEVER;
    else if (strcmp(scheme, "always") != 0)
        return xr_fail(r->err, XRAY_E_CONFIG,
                       "%s: %s Metaspace: \"prepend_scheme\" must be always, "
                       "first or never",
                       r->where, r->key);
    if (!prefix && stated && step.scheme != XM_NEVER)
        return xr_fail(r->err, XRAY_E_CONFIG,
                       "%s: %s Metaspace: \"add_prefix_space\" false does not "
                       "agree with \"prepend_scheme\"",
                       r->where, r->key);
    if (!prefix)
        step.scheme = XM_NEVER;
    if (step.scheme == XM_FIRST && (r->tok->norm_count || r->tok->pre_count))
        r->tok->tracks = 1;
    return add_pre_step(r, step, NULL);
}

static xray_status read_digits(const xm_reader *r, const cJSON *item)
{
    int single;
    xray_status status = xr_json_bool_or(item, "individual_digits", 0, r->where,
                                         r->err, &single);
    return status ? xr_fail_in(r->err, status, "%s", r->key)
                  : add_class_step(r, XM_C_NUMERIC,
                                   single ? XM_ISOLATED : XM_CONTIGUOUS);
}

static xray_status read_punctuation(const xm_reader *r, const cJSON *item)
{
    enum xm_behavior behavior;
    xray_status status = read_behavior(r, item, "Isolated", &behavior);
    return status ? status : add_class_step(r, XM_C_PUNCT, behavior);
}

static xray_status read_delimiter(const xm_reader *r, const cJSON *item)
{
    xm_pre_step step = { .kind = XM_PRE_CHAR, .behavior = XM_REMOVED };
    xray_status status = read_one_char(r, item, "delimiter", step.from);
    return status ? status : add_pre_step(r, step, NULL);
}

static xray_status read_fixed_length(const xm_reader *r, const cJSON *item)
{
    int64_t length;
    xray_status status =
        xr_json_int_or(item, "length", 5, r->where, r->err, &length);
    if (!status && (length < 1 || length > 1 << 30))
        status =
            xr_fail(r->err, XRAY_E_CONFIG,
                    "%s: \"length\" must be from 1 to 1073741824", r->where);
    return status ? xr_fail_in(r->err, status, "%s", r->key)
                  : add_pre_step(r,
                                 (xm_pre_step){ .kind = XM_PRE_LENGTH,
                                                .length = (size_t)length },
                                 NULL);
}

static xray_status read_pre_step(const xm_reader *r, const cJSON *item)
{
    static const xm_step_reader kinds[] = {
        { "Split", read_split },
        { "ByteLevel", read_byte_level },
        { "Metaspace", read_metaspace },
        { "Digits", read_digits },
        { "Punctuation", read_punctuation },
        { "CharDelimiterSplit", read_delimiter },
        { "FixedLength", read_fixed_length }
    };
    const char *type = xr_json_get(item, "type")->valuestring;
    xray_status status =
        xm_read_by_type(r, item, kinds, sizeof kinds / sizeof kinds[0]);
    if (status != XRAY_END)
        return status;
    if (strcmp(type, "Whitespace") == 0)
        return add_pre_step(r, (xm_pre_step){ .kind = XM_PRE_WORDS }, NULL);
    if (strcmp(type, "WhitespaceSplit") == 0)
        return add_class_step(r, XM_C_SPACE, XM_REMOVED);
    if (strcmp(type, "BertPreTokenizer") == 0) {
        status = add_class_step(r, XM_C_SPACE, XM_REMOVED);
        return status ? status : add_class_step(r, XM_C_PUNCT, XM_ISOLATED);
    }
    return xm_read_refuse(
        r, type,
        "null, ByteLevel, Split, Metaspace, Whitespace, WhitespaceSplit, "
        "Digits, Punctuation, CharDelimiterSplit, FixedLength, "
        "BertPreTokenizer and Sequence");
}

xray_status xm_read_pre_tokenizer(const xm_reader *r, const cJSON *root)
{
    return xm_read_sequence(r, xr_json_get(root, "pre_tokenizer"),
                            "pretokenizers", read_pre_step);
}
