/* SPDX-License-Identifier: Apache-2.0
 *
 * normalizer and decoder of tokenizer.json.
 */
#include <string.h>

#include "core/base/json.h"
#include "model/text/tok.h"

typedef struct reader {
    const char *where;
    const char *key; /* "normalizer" or "decoder" */
    xr_err *err;
} reader;

static xray_status refuse(const reader *r, const char *type)
{
    return xr_fail(r->err, XRAY_E_UNSUPPORTED,
                   "%s: %s %.100s is not supported; %s", r->where, r->key, type,
                   strcmp(r->key, "normalizer") == 0
                       ? "NFC, Prepend, Replace of a string and Sequence are"
                       : "ByteLevel, Replace of a string, ByteFallback, Fuse, "
                         "Strip and Sequence are");
}

static xray_status read_replace(const reader *r, const cJSON *item,
                                const char **from, const char **to)
{
    const cJSON *pattern = xr_json_get(item, "pattern");
    const cJSON *text = xr_json_get(pattern, "String");
    if (!cJSON_IsString(text) || !*text->valuestring)
        return refuse(r, "Replace of a pattern");
    *from = text->valuestring;
    return xr_json_string(item, "content", r->where, r->err, to);
}

static xray_status read_strip(const reader *r, const cJSON *item, xm_step *step,
                              const char **from)
{
    int64_t start;
    int64_t stop;
    xray_status status =
        xr_json_string(item, "content", r->where, r->err, from);
    if (!status)
        status = xr_json_int(item, "start", r->where, r->err, &start);
    if (!status)
        status = xr_json_int(item, "stop", r->where, r->err, &stop);
    if (status)
        return status;
    if (!**from || start < 0 || stop < 0 || start > INT32_MAX ||
        stop > INT32_MAX)
        return xr_fail(r->err, XRAY_E_CONFIG,
                       "%s: %s Strip needs a character and counts from 0",
                       r->where, r->key);
    step->start = (uint32_t)start;
    step->stop = (uint32_t)stop;
    return XRAY_OK;
}

static xray_status add_step(const reader *r, xm_steps *out, xm_step step,
                            const char *from, const char *to)
{
    if (out->count == XM_STEPS)
        return xr_fail(r->err, XRAY_E_UNSUPPORTED,
                       "%s: %s has more than %d steps", r->where, r->key,
                       XM_STEPS);
    step.from = xr_strdup(from);
    step.to = xr_strdup(to);
    out->step[out->count++] = step;
    return step.from && step.to
               ? XRAY_OK
               : xr_fail(r->err, XRAY_E_NOMEM, "%s: out of memory", r->where);
}

static xray_status read_step(const reader *r, const cJSON *item, xm_steps *out)
{
    int decodes = strcmp(r->key, "decoder") == 0;
    xm_step step = { .kind = XM_STEP_REPLACE };
    const char *from = "";
    const char *to = "";
    const char *type;
    xray_status status = xr_json_string(item, "type", r->where, r->err, &type);
    if (status)
        return xr_fail_in(r->err, status, "%s", r->key);
    if (strcmp(type, "Replace") == 0) {
        status = read_replace(r, item, &from, &to);
    } else if (!decodes && strcmp(type, "Prepend") == 0) {
        step.kind = XM_STEP_PREPEND;
        status = xr_json_string(item, "prepend", r->where, r->err, &to);
    } else if (!decodes && strcmp(type, "NFC") == 0) {
        step.kind = XM_STEP_NFC;
    } else if (decodes && strcmp(type, "ByteLevel") == 0) {
        step.kind = XM_STEP_ALPHABET;
    } else if (decodes && strcmp(type, "ByteFallback") == 0) {
        step.kind = XM_STEP_BYTES;
    } else if (decodes && strcmp(type, "Fuse") == 0) {
        step.kind = XM_STEP_FUSE;
    } else if (decodes && strcmp(type, "Strip") == 0) {
        step.kind = XM_STEP_STRIP;
        status = read_strip(r, item, &step, &from);
    } else {
        status = refuse(r, type);
    }
    return status ? status : add_step(r, out, step, from, to);
}

/* One step, or a Sequence of them; a Sequence inside a Sequence is refused. */
static xray_status read_chain(const reader *r, const cJSON *item,
                              const char *list, xm_steps *out)
{
    if (!item)
        return XRAY_OK;
    const cJSON *type = xr_json_get(item, "type");
    if (!cJSON_IsString(type) || strcmp(type->valuestring, "Sequence") != 0)
        return read_step(r, item, out);
    const cJSON *steps = xr_json_get(item, list);
    if (!cJSON_IsArray(steps))
        return xr_fail(r->err, XRAY_E_CONFIG,
                       "%s: %s Sequence needs the array \"%s\"", r->where,
                       r->key, list);
    const cJSON *step;
    cJSON_ArrayForEach(step, steps)
    {
        xray_status status = read_step(r, step, out);
        if (status)
            return status;
    }
    return XRAY_OK;
}

xray_status xm_tok_read_steps(xm_tokenizer *tok, const cJSON *root,
                              const char *where, xr_err *err)
{
    reader r = { where, "normalizer", err };
    xray_status status = read_chain(&r, xr_json_get(root, "normalizer"),
                                    "normalizers", &tok->normalizer);
    r.key = "decoder";
    tok->has_decoder = xr_json_get(root, "decoder") != NULL;
    if (!status)
        status = read_chain(&r, xr_json_get(root, "decoder"), "decoders",
                            &tok->decoder);
    return status;
}
