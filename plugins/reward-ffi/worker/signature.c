/* SPDX-License-Identifier: Apache-2.0
 *
 * Parses the signature of a function.
 */
#include "plugins/reward-ffi/worker/signature.h"

#include <string.h>

#define NUMBERS "diIuU"

typedef struct reader {
    const char *text;
    const char *at;
    xr_err *err;
} reader;

static void skip_spaces(reader *r)
{
    while (*r->at == ' ' || *r->at == '\t')
        r->at++;
}

static xray_status expect_other(const reader *r, const char *expected)
{
    if (!*r->at)
        return xr_fail(r->err, XRAY_E_CONFIG,
                       "signature \"%s\": it ends where %s was expected",
                       r->text, expected);
    return xr_fail(r->err, XRAY_E_CONFIG,
                   "signature \"%s\": '%c' at %d, expected %s", r->text, *r->at,
                   (int)(r->at - r->text) + 1, expected);
}

static int is_name_character(char c, int first)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
           (!first && ((c >= '0' && c <= '9') || c == '.'));
}

static xray_status read_name(reader *r, char *out)
{
    size_t size = 0;
    while (is_name_character(r->at[size], size == 0))
        size++;
    if (!size)
        return expect_other(r, "the name of an argument");
    if (size >= FN_NAME_CAP)
        return xr_fail(r->err, XRAY_E_CONFIG,
                       "signature \"%s\": the name at %d has more than %d "
                       "characters",
                       r->text, (int)(r->at - r->text) + 1, FN_NAME_CAP - 1);
    memcpy(out, r->at, size);
    r->at += size;
    return XRAY_OK;
}

/* Takes one of the letters, which a NUL is not; 0 if there is none. */
static char take_letter(reader *r, const char *letters)
{
    skip_spaces(r);
    return *r->at && strchr(letters, *r->at) ? *r->at++ : '\0';
}

static xray_status read_type(reader *r, fn_argument *arg)
{
    arg->is_array = take_letter(r, "[") != 0;
    arg->type = take_letter(r, arg->is_array ? NUMBERS : "s" NUMBERS);
    if (!arg->type)
        return expect_other(r, arg->is_array
                                   ? "one of the types d i I u U"
                                   : "one of the types s d i I u U [");
    if (arg->is_array && !take_letter(r, "]"))
        return expect_other(r, "]");
    return XRAY_OK;
}

static xray_status read_argument(reader *r, fn_signature *out)
{
    if (out->count == FN_ARGS)
        return xr_fail(r->err, XRAY_E_CONFIG,
                       "signature \"%s\": more than %d arguments", r->text,
                       FN_ARGS);
    fn_argument *arg = &out->args[out->count++];
    skip_spaces(r);
    xray_status status = read_name(r, arg->name);
    if (status == XRAY_OK && !take_letter(r, ":"))
        status = expect_other(r, ": and a type");
    return status == XRAY_OK ? read_type(r, arg) : status;
}

static xray_status read_result(reader *r, fn_signature *out)
{
    skip_spaces(r);
    if (r->at[0] != '-' || r->at[1] != '>')
        return expect_other(r, out->count ? "a comma or ->" : "->");
    r->at += 2;
    out->result = take_letter(r, "f" NUMBERS);
    if (!out->result)
        return expect_other(r, "the type of the result, one of d f i I u U");
    skip_spaces(r);
    return *r->at ? expect_other(r, "nothing after the result") : XRAY_OK;
}

xray_status fn_signature_parse(const char *text, xr_err *err, fn_signature *out)
{
    reader r = { text, text, err };
    fn_signature found = { .count = 0 };
    xray_status status = XRAY_OK;
    skip_spaces(&r);
    if (*r.at && *r.at != '-')
        do
            status = read_argument(&r, &found);
        while (status == XRAY_OK && take_letter(&r, ","));
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
