/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads "decoder" of tokenizer.json.
 */
#include <string.h>

#include "core/base/json.h"
#include "model/text/internal.h"

static xray_status add_decoder_step(const xm_reader *r, xm_decoder_step step,
                                    const char *from, const char *to,
                                    xm_decoder_step **out)
{
    xm_tokenizer *tok = r->tok;
    if (tok->dec_count == XM_STEPS)
        return xr_fail(r->err, XRAY_E_UNSUPPORTED,
                       "%s: %s has more than %d steps", r->where, r->key,
                       XM_STEPS);
    xm_decoder_step *made = &tok->dec[tok->dec_count++];
    *made = step;
    made->from = xr_strdup(from);
    made->to = xr_strdup(to);
    if (out)
        *out = made;
    return made->from && made->to ? XRAY_OK : xm_read_no_memory(r);
}

static xray_status read_replace(const xm_reader *r, const cJSON *item)
{
    const char *string;
    const char *regex;
    const char *to;
    xm_decoder_step *step;
    xray_status status = xm_read_replace(r, item, &string, &regex, &to);
    if (!status)
        status =
            add_decoder_step(r, (xm_decoder_step){ .kind = XM_DEC_REPLACE },
                             string ? string : "", to, &step);
    if (!status && regex)
        status = xm_regex_open(regex, r->where, r->err, &step->regex);
    return status ? xr_fail_in(r->err, status, "%s Replace", r->key) : XRAY_OK;
}

static xray_status read_strip(const xm_reader *r, const cJSON *item)
{
    const char *content;
    int64_t start;
    int64_t stop;
    uint32_t code;
    xray_status status =
        xr_json_string(item, "content", r->where, r->err, &content);
    if (!status)
        status = xr_json_int(item, "start", r->where, r->err, &start);
    if (!status)
        status = xr_json_int(item, "stop", r->where, r->err, &stop);
    if (status)
        return xr_fail_in(r->err, status, "%s Strip", r->key);
    size_t size = strlen(content);
    if (!size || xr_utf8_decode(content, content + size, &code) != (int)size ||
        start < 0 || stop < 0 || start > INT32_MAX || stop > INT32_MAX)
        return xr_fail(r->err, XRAY_E_CONFIG,
                       "%s: %s Strip needs one character as \"content\" and "
                       "counts of at least 0 as \"start\" and \"stop\"",
                       r->where, r->key);
    return add_decoder_step(r,
                            (xm_decoder_step){ .kind = XM_DEC_STRIP,
                                               .start = (uint32_t)start,
                                               .stop = (uint32_t)stop },
                            content, "", NULL);
}

static xray_status read_metaspace(const xm_reader *r, const cJSON *item)
{
    const char *mark;
    const char *scheme;
    int prefix;
    xray_status status =
        xr_json_string(item, "replacement", r->where, r->err, &mark);
    if (!status)
        status = xr_json_string_or(item, "prepend_scheme", "always", r->where,
                                   r->err, &scheme);
    if (!status)
        status = xr_json_bool_or(item, "add_prefix_space", 1, r->where, r->err,
                                 &prefix);
    if (status)
        return xr_fail_in(r->err, status, "%s Metaspace", r->key);
    int never = !prefix || strcmp(scheme, "never") == 0;
    return *mark
               ? add_decoder_step(r,
                                  (xm_decoder_step){ .kind = XM_DEC_METASPACE },
                                  mark, never ? " " : "", NULL)
               : xr_fail(r->err, XRAY_E_CONFIG,
                         "%s: %s Metaspace: \"replacement\" must be one "
                         "character",
                         r->where, r->key);
}

static xray_status read_wordpiece(const xm_reader *r, const cJSON *item)
{
    xm_decoder_step step = { .kind = XM_DEC_WORDPIECE };
    const char *prefix;
    xray_status status =
        xr_json_string_or(item, "prefix", "##", r->where, r->err, &prefix);
    if (!status)
        status =
            xr_json_bool_or(item, "cleanup", 1, r->where, r->err, &step.clean);
    return status ? xr_fail_in(r->err, status, "%s WordPiece", r->key)
                  : add_decoder_step(r, step, prefix, "", NULL);
}

static xray_status read_bpe_suffix(const xm_reader *r, const cJSON *item)
{
    const char *suffix;
    xray_status status =
        xr_json_string_or(item, "suffix", "</w>", r->where, r->err, &suffix);
    if (!status && !*suffix)
        status = xr_fail(r->err, XRAY_E_CONFIG,
                         "%s: \"suffix\" must not be empty", r->where);
    return status ? xr_fail_in(r->err, status, "%s BPEDecoder", r->key)
                  : add_decoder_step(r, (xm_decoder_step){ .kind = XM_DEC_BPE },
                                     suffix, "", NULL);
}

static xray_status read_decoder_step(const xm_reader *r, const cJSON *item)
{
    static const xm_step_reader kinds[] = { { "Replace", read_replace },
                                            { "Strip", read_strip },
                                            { "Metaspace", read_metaspace },
                                            { "WordPiece", read_wordpiece },
                                            { "BPEDecoder", read_bpe_suffix } };
    const char *type = xr_json_get(item, "type")->valuestring;
    xray_status status =
        xm_read_by_type(r, item, kinds, sizeof kinds / sizeof kinds[0]);
    if (status != XRAY_END)
        return status;
    if (strcmp(type, "ByteLevel") == 0)
        return add_decoder_step(r, (xm_decoder_step){ .kind = XM_DEC_ALPHABET },
                                "", "", NULL);
    if (strcmp(type, "ByteFallback") == 0)
        return add_decoder_step(r, (xm_decoder_step){ .kind = XM_DEC_BYTES },
                                "", "", NULL);
    if (strcmp(type, "Fuse") == 0)
        return add_decoder_step(r, (xm_decoder_step){ .kind = XM_DEC_FUSE }, "",
                                "", NULL);
    return xm_read_refuse(r, type,
                          "ByteLevel, Replace, ByteFallback, Fuse, Strip, "
                          "Metaspace, WordPiece, BPEDecoder and Sequence");
}

xray_status xm_read_decoder(const xm_reader *r, const cJSON *root)
{
    const cJSON *item = xr_json_get(root, "decoder");
    return item ? xm_read_sequence(r, item, "decoders", read_decoder_step)
                : add_decoder_step(r, (xm_decoder_step){ .kind = XM_DEC_JOIN },
                                   "", "", NULL);
}
