/* SPDX-License-Identifier: Apache-2.0
 *
 * Parses template strings, fills them from data rows, and writes JSON members
 * as text.
 */
#include "core/data/template.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void xr_template_free(xr_template *template)
{
    for (size_t i = 0; i < template->count; i++)
        free(template->pieces[i].text);
    free(template->pieces);
    *template = (xr_template){ NULL, 0 };
}

/* Adds a literal text or a key. */
static xray_status add_piece(xr_template *template, const char *text,
                             size_t size, int key, xr_err *err)
{
    if (!size)
        return XRAY_OK;
    xr_piece *pieces =
        realloc(template->pieces, (template->count + 1) * sizeof *pieces);
    if (!pieces)
        return xr_fail(err, XRAY_E_NOMEM, "out of memory");
    template->pieces = pieces;
    char *copy = xr_strndup(text, size);
    if (!copy)
        return xr_fail(err, XRAY_E_NOMEM, "out of memory");
    pieces[template->count++] = (xr_piece){ copy, size, key };
    return XRAY_OK;
}

static xray_status parse_key(const char **at, const char *key, xr_template *out,
                             xr_err *err)
{
    const char *start = *at + 1;
    size_t size = strcspn(start, "{}");
    if (start[size] != '}' || !size)
        return xr_fail_key(err, XRAY_E_CONFIG, "data", key,
                           ": '{' is not followed by a key and '}' (a literal "
                           "brace is written '{{')");
    *at = start + size + 1;
    return add_piece(out, start, size, 1, err);
}

static xray_status parse_pieces(const char *text, const char *key,
                                xr_str *literal, xr_template *out, xr_err *err)
{
    const char *at = text;
    xray_status status = XRAY_OK;
    while (*at && status == XRAY_OK) {
        if ((*at == '{' || *at == '}') && at[1] == *at) {
            xr_str_append(literal, at, 1);
            at += 2;
        } else if (*at == '{') {
            status = literal->failed ? xr_fail_key(err, XRAY_E_NOMEM, "data",
                                                   key, ": out of memory")
                                     : add_piece(out, xr_str_text(literal),
                                                 literal->size, 0, err);
            xr_str_clear(literal);
            if (status == XRAY_OK)
                status = parse_key(&at, key, out, err);
        } else if (*at == '}') {
            status = xr_fail_key(
                err, XRAY_E_CONFIG, "data", key,
                ": '}' without '{' (a literal brace is written '}}')");
        } else {
            xr_str_append(literal, at++, 1);
        }
    }
    if (status == XRAY_OK)
        status = add_piece(out, xr_str_text(literal), literal->size, 0, err);
    if (status == XRAY_OK && literal->failed)
        status = xr_fail(err, XRAY_E_NOMEM, "out of memory");
    return status;
}

xray_status xr_template_parse(const char *text, const char *key, xr_err *err,
                              xr_template *out)
{
    xr_str literal = { 0 };
    *out = (xr_template){ NULL, 0 };
    xray_status status = parse_pieces(text, key, &literal, out, err);
    xr_str_free(&literal);
    if (status != XRAY_OK)
        xr_template_free(out);
    return status;
}

static xray_status append_number(double value, const char *key,
                                 const char *where, xr_err *err, xr_str *out)
{
    /* Beyond 2^53, a double loses digits of the file. */
    if (!(fabs(value) < 0x1p53))
        return xr_fail(err, XRAY_E_CONFIG,
                       "%s: '%s' is a number of more than 53 bits; write it as "
                       "a string",
                       where, key);
    if (floor(value) == value)
        xr_str_printf(out, "%.0f", value == 0 ? 0.0 : value);
    else
        xr_str_number(out, value);
    return XRAY_OK;
}

static xray_status append_messages(const cJSON *list, const char *key,
                                   const char *where, xr_err *err, xr_str *out)
{
    const cJSON *message;
    int first = 1;
    cJSON_ArrayForEach(message, list)
    {
        const cJSON *content =
            cJSON_IsObject(message) ? xr_json_get(message, "content") : NULL;
        if (!cJSON_IsString(content))
            return xr_fail(err, XRAY_E_CONFIG,
                           "%s: '%s' is a list, but an entry has no text in "
                           "'content'",
                           where, key);
        if (!first)
            xr_str_append(out, "\n", 1);
        first = 0;
        xr_str_puts(out, content->valuestring);
    }
    return XRAY_OK;
}

xray_status xr_value_text(const cJSON *value, const char *key,
                          const char *where, xr_err *err, xr_str *out)
{
    if (!value)
        return xr_fail(err, XRAY_E_CONFIG, "%s: no key '%s'", where, key);
    if (cJSON_IsString(value)) {
        xr_str_puts(out, value->valuestring);
        return XRAY_OK;
    }
    if (cJSON_IsNumber(value))
        return append_number(value->valuedouble, key, where, err, out);
    if (cJSON_IsBool(value)) {
        xr_str_puts(out, cJSON_IsTrue(value) ? "true" : "false");
        return XRAY_OK;
    }
    if (cJSON_IsArray(value) && !value->child)
        return xr_fail(err, XRAY_E_CONFIG, "%s: '%s' is an empty list", where,
                       key);
    if (cJSON_IsArray(value))
        return append_messages(value, key, where, err, out);
    return xr_fail(
        err, XRAY_E_CONFIG,
        "%s: '%s' is an object; expected text, a number or a list of messages",
        where, key);
}

/* True for values without text of their own: objects, and lists of anything but
 * messages. */
static int is_structure(const cJSON *value)
{
    if (!value || !value->child)
        return 0;
    return cJSON_IsObject(value) || !cJSON_IsObject(value->child) ||
           !xr_json_get(value->child, "content");
}

xray_status xr_truth_text(const cJSON *value, const char *key,
                          const char *where, xr_err *err, xr_str *out)
{
    if (!is_structure(value))
        return xr_value_text(value, key, where, err, out);
    char *text = cJSON_PrintUnformatted(value);
    if (!text)
        return xr_fail(err, XRAY_E_NOMEM, "%s: out of memory", where);
    xr_str_puts(out, text);
    cJSON_free(text);
    return XRAY_OK;
}

xray_status xr_template_fill(const xr_template *template, xr_alias alias,
                             const cJSON *row, const char *where, xr_err *err,
                             xr_str *out)
{
    for (size_t i = 0; i < template->count; i++) {
        const xr_piece *piece = &template->pieces[i];
        if (!piece->key) {
            xr_str_append(out, piece->text, piece->size);
            continue;
        }
        const char *key =
            strcmp(piece->text, alias.name) == 0 ? alias.key : piece->text;
        xray_status status =
            xr_value_text(xr_json_get(row, key), key, where, err, out);
        if (status != XRAY_OK)
            return status;
    }
    if (out->failed)
        return xr_fail(err, XRAY_E_NOMEM, "%s: out of memory", where);
    return XRAY_OK;
}
