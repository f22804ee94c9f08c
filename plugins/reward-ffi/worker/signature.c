/* SPDX-License-Identifier: Apache-2.0
 *
 * Parses the signature of a function.
 */
#include "plugins/reward-ffi/worker/signature.h"

#include <string.h>

#include "core/base/signature.h"

#define NUMBERS "diIuU"

static int is_name_character(char c, int first)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
           (!first && ((c >= '0' && c <= '9') || c == '.'));
}

static xray_status read_name(xr_signature_reader *r, char *out)
{
    size_t size = 0;
    while (is_name_character(r->at[size], size == 0))
        size++;
    if (!size)
        return xr_signature_expected(r, "the name of an argument");
    if (size >= FN_NAME_CAP)
        return xr_fail(r->err, XRAY_E_CONFIG,
                       "signature \"%s\": the name at %d has more than %d "
                       "characters",
                       r->text, (int)(r->at - r->text) + 1, FN_NAME_CAP - 1);
    memcpy(out, r->at, size);
    r->at += size;
    return XRAY_OK;
}

static xray_status read_type(xr_signature_reader *r, fn_argument *arg)
{
    arg->is_array = xr_signature_letter(r, "[") != 0;
    arg->type = xr_signature_letter(r, arg->is_array ? NUMBERS : "s" NUMBERS);
    if (!arg->type)
        return xr_signature_expected(r, arg->is_array
                                            ? "one of the types d i I u U"
                                            : "one of the types s d i I u U [");
    if (arg->is_array && !xr_signature_letter(r, "]"))
        return xr_signature_expected(r, "]");
    return XRAY_OK;
}

static xray_status read_argument(xr_signature_reader *r, fn_signature *out)
{
    if (out->count == FN_ARGS)
        return xr_fail(r->err, XRAY_E_CONFIG,
                       "signature \"%s\": more than %d arguments", r->text,
                       FN_ARGS);
    fn_argument *arg = &out->args[out->count++];
    xr_signature_skip(r);
    xray_status status = read_name(r, arg->name);
    if (status == XRAY_OK && !xr_signature_letter(r, ":"))
        status = xr_signature_expected(r, ": and a type");
    return status == XRAY_OK ? read_type(r, arg) : status;
}

static xray_status read_result(xr_signature_reader *r, fn_signature *out)
{
    if (!xr_signature_arrow(r))
        return xr_signature_expected(r, out->count ? "a comma or ->" : "->");
    out->result = xr_signature_letter(r, "f" NUMBERS);
    if (!out->result)
        return xr_signature_expected(
            r, "the type of the result, one of d f i I u U");
    xr_signature_skip(r);
    return *r->at ? xr_signature_expected(r, "nothing after the result")
                  : XRAY_OK;
}

xray_status fn_signature_parse(const char *text, xr_err *err, fn_signature *out)
{
    xr_signature_reader r = { text, text, XRAY_E_CONFIG, err };
    fn_signature found = { .count = 0 };
    xray_status status = XRAY_OK;
    xr_signature_skip(&r);
    if (*r.at && *r.at != '-')
        do
            status = read_argument(&r, &found);
        while (status == XRAY_OK && xr_signature_letter(&r, ","));
    if (status == XRAY_OK)
        status = read_result(&r, &found);
    if (status == XRAY_OK)
        *out = found;
    return status;
}

int fn_signature_equal(const fn_signature *a, const fn_signature *b)
{
    if (a->count != b->count || a->result != b->result)
        return 0;
    for (uint32_t i = 0; i < a->count; i++)
        if (strcmp(a->args[i].name, b->args[i].name) != 0 ||
            a->args[i].type != b->args[i].type ||
            a->args[i].is_array != b->args[i].is_array)
            return 0;
    return 1;
}
