/* SPDX-License-Identifier: Apache-2.0
 *
 * Converts strings to upper, lower and title case and tests their characters as
 * Python does, with the full mappings of Unicode's SpecialCasing and the final
 * sigma.
 */
#include <stdlib.h>
#include <utf8proc.h>

#include "model/chat/jinja.h"

struct special {
    uint32_t code;
    uint32_t to[3]; /* ends with 0 */
};

/* Characters whose upper or title case is more than one character. */
/* clang-format off */
static const struct special special_upper[] = {
    { 0xdf, { 0x53, 0x53, 0 } },
    { 0x149, { 0x2bc, 0x4e, 0 } },
    { 0x1f0, { 0x4a, 0x30c, 0 } },
    { 0x390, { 0x399, 0x308, 0x301 } },
    { 0x3b0, { 0x3a5, 0x308, 0x301 } },
    { 0x587, { 0x535, 0x552, 0 } },
    { 0x1e96, { 0x48, 0x331, 0 } },
    { 0x1e97, { 0x54, 0x308, 0 } },
    { 0x1e98, { 0x57, 0x30a, 0 } },
    { 0x1e99, { 0x59, 0x30a, 0 } },
    { 0x1e9a, { 0x41, 0x2be, 0 } },
    { 0x1f50, { 0x3a5, 0x313, 0 } },
    { 0x1f52, { 0x3a5, 0x313, 0x300 } },
    { 0x1f54, { 0x3a5, 0x313, 0x301 } },
    { 0x1f56, { 0x3a5, 0x313, 0x342 } },
    { 0x1f80, { 0x1f08, 0x399, 0 } },
    { 0x1f81, { 0x1f09, 0x399, 0 } },
    { 0x1f82, { 0x1f0a, 0x399, 0 } },
    { 0x1f83, { 0x1f0b, 0x399, 0 } },
    { 0x1f84, { 0x1f0c, 0x399, 0 } },
    { 0x1f85, { 0x1f0d, 0x399, 0 } },
    { 0x1f86, { 0x1f0e, 0x399, 0 } },
    { 0x1f87, { 0x1f0f, 0x399, 0 } },
    { 0x1f88, { 0x1f08, 0x399, 0 } },
    { 0x1f89, { 0x1f09, 0x399, 0 } },
    { 0x1f8a, { 0x1f0a, 0x399, 0 } },
    { 0x1f8b, { 0x1f0b, 0x399, 0 } },
    { 0x1f8c, { 0x1f0c, 0x399, 0 } },
    { 0x1f8d, { 0x1f0d, 0x399, 0 } },
    { 0x1f8e, { 0x1f0e, 0x399, 0 } },
    { 0x1f8f, { 0x1f0f, 0x399, 0 } },
    { 0x1f90, { 0x1f28, 0x399, 0 } },
    { 0x1f91, { 0x1f29, 0x399, 0 } },
    { 0x1f92, { 0x1f2a, 0x399, 0 } },
    { 0x1f93, { 0x1f2b, 0x399, 0 } },
    { 0x1f94, { 0x1f2c, 0x399, 0 } },
    { 0x1f95, { 0x1f2d, 0x399, 0 } },
    { 0x1f96, { 0x1f2e, 0x399, 0 } },
    { 0x1f97, { 0x1f2f, 0x399, 0 } },
    { 0x1f98, { 0x1f28, 0x399, 0 } },
    { 0x1f99, { 0x1f29, 0x399, 0 } },
    { 0x1f9a, { 0x1f2a, 0x399, 0 } },
    { 0x1f9b, { 0x1f2b, 0x399, 0 } },
    { 0x1f9c, { 0x1f2c, 0x399, 0 } },
    { 0x1f9d, { 0x1f2d, 0x399, 0 } },
    { 0x1f9e, { 0x1f2e, 0x399, 0 } },
    { 0x1f9f, { 0x1f2f, 0x399, 0 } },
    { 0x1fa0, { 0x1f68, 0x399, 0 } },
    { 0x1fa1, { 0x1f69, 0x399, 0 } },
    { 0x1fa2, { 0x1f6a, 0x399, 0 } },
    { 0x1fa3, { 0x1f6b, 0x399, 0 } },
    { 0x1fa4, { 0x1f6c, 0x399, 0 } },
    { 0x1fa5, { 0x1f6d, 0x399, 0 } },
    { 0x1fa6, { 0x1f6e, 0x399, 0 } },
    { 0x1fa7, { 0x1f6f, 0x399, 0 } },
    { 0x1fa8, { 0x1f68, 0x399, 0 } },
    { 0x1fa9, { 0x1f69, 0x399, 0 } },
    { 0x1faa, { 0x1f6a, 0x399, 0 } },
    { 0x1fab, { 0x1f6b, 0x399, 0 } },
    { 0x1fac, { 0x1f6c, 0x399, 0 } },
    { 0x1fad, { 0x1f6d, 0x399, 0 } },
    { 0x1fae, { 0x1f6e, 0x399, 0 } },
    { 0x1faf, { 0x1f6f, 0x399, 0 } },
    { 0x1fb2, { 0x1fba, 0x399, 0 } },
    { 0x1fb3, { 0x391, 0x399, 0 } },
    { 0x1fb4, { 0x386, 0x399, 0 } },
    { 0x1fb6, { 0x391, 0x342, 0 } },
    { 0x1fb7, { 0x391, 0x342, 0x399 } },
    { 0x1fbc, { 0x391, 0x399, 0 } },
    { 0x1fc2, { 0x1fca, 0x399, 0 } },
    { 0x1fc3, { 0x397, 0x399, 0 } },
    { 0x1fc4, { 0x389, 0x399, 0 } },
    { 0x1fc6, { 0x397, 0x342, 0 } },
    { 0x1fc7, { 0x397, 0x342, 0x399 } },
    { 0x1fcc, { 0x397, 0x399, 0 } },
    { 0x1fd2, { 0x399, 0x308, 0x300 } },
    { 0x1fd3, { 0x399, 0x308, 0x301 } },
    { 0x1fd6, { 0x399, 0x342, 0 } },
    { 0x1fd7, { 0x399, 0x308, 0x342 } },
    { 0x1fe2, { 0x3a5, 0x308, 0x300 } },
    { 0x1fe3, { 0x3a5, 0x308, 0x301 } },
    { 0x1fe4, { 0x3a1, 0x313, 0 } },
    { 0x1fe6, { 0x3a5, 0x342, 0 } },
    { 0x1fe7, { 0x3a5, 0x308, 0x342 } },
    { 0x1ff2, { 0x1ffa, 0x399, 0 } },
    { 0x1ff3, { 0x3a9, 0x399, 0 } },
    { 0x1ff4, { 0x38f, 0x399, 0 } },
    { 0x1ff6, { 0x3a9, 0x342, 0 } },
    { 0x1ff7, { 0x3a9, 0x342, 0x399 } },
    { 0x1ffc, { 0x3a9, 0x399, 0 } },
    { 0xfb00, { 0x46, 0x46, 0 } },
    { 0xfb01, { 0x46, 0x49, 0 } },
    { 0xfb02, { 0x46, 0x4c, 0 } },
    { 0xfb03, { 0x46, 0x46, 0x49 } },
    { 0xfb04, { 0x46, 0x46, 0x4c } },
    { 0xfb05, { 0x53, 0x54, 0 } },
    { 0xfb06, { 0x53, 0x54, 0 } },
    { 0xfb13, { 0x544, 0x546, 0 } },
    { 0xfb14, { 0x544, 0x535, 0 } },
    { 0xfb15, { 0x544, 0x53b, 0 } },
    { 0xfb16, { 0x54e, 0x546, 0 } },
    { 0xfb17, { 0x544, 0x53d, 0 } },
};
static const struct special special_title[] = {
    { 0xdf, { 0x53, 0x73, 0 } },
    { 0x149, { 0x2bc, 0x4e, 0 } },
    { 0x1f0, { 0x4a, 0x30c, 0 } },
    { 0x390, { 0x399, 0x308, 0x301 } },
    { 0x3b0, { 0x3a5, 0x308, 0x301 } },
    { 0x587, { 0x535, 0x582, 0 } },
    { 0x1e96, { 0x48, 0x331, 0 } },
    { 0x1e97, { 0x54, 0x308, 0 } },
    { 0x1e98, { 0x57, 0x30a, 0 } },
    { 0x1e99, { 0x59, 0x30a, 0 } },
    { 0x1e9a, { 0x41, 0x2be, 0 } },
    { 0x1f50, { 0x3a5, 0x313, 0 } },
    { 0x1f52, { 0x3a5, 0x313, 0x300 } },
    { 0x1f54, { 0x3a5, 0x313, 0x301 } },
    { 0x1f56, { 0x3a5, 0x313, 0x342 } },
    { 0x1fb2, { 0x1fba, 0x345, 0 } },
    { 0x1fb4, { 0x386, 0x345, 0 } },
    { 0x1fb6, { 0x391, 0x342, 0 } },
    { 0x1fb7, { 0x391, 0x342, 0x345 } },
    { 0x1fc2, { 0x1fca, 0x345, 0 } },
    { 0x1fc4, { 0x389, 0x345, 0 } },
    { 0x1fc6, { 0x397, 0x342, 0 } },
    { 0x1fc7, { 0x397, 0x342, 0x345 } },
    { 0x1fd2, { 0x399, 0x308, 0x300 } },
    { 0x1fd3, { 0x399, 0x308, 0x301 } },
    { 0x1fd6, { 0x399, 0x342, 0 } },
    { 0x1fd7, { 0x399, 0x308, 0x342 } },
    { 0x1fe2, { 0x3a5, 0x308, 0x300 } },
    { 0x1fe3, { 0x3a5, 0x308, 0x301 } },
    { 0x1fe4, { 0x3a1, 0x313, 0 } },
    { 0x1fe6, { 0x3a5, 0x342, 0 } },
    { 0x1fe7, { 0x3a5, 0x308, 0x342 } },
    { 0x1ff2, { 0x1ffa, 0x345, 0 } },
    { 0x1ff4, { 0x38f, 0x345, 0 } },
    { 0x1ff6, { 0x3a9, 0x342, 0 } },
    { 0x1ff7, { 0x3a9, 0x342, 0x345 } },
    { 0xfb00, { 0x46, 0x66, 0 } },
    { 0xfb01, { 0x46, 0x69, 0 } },
    { 0xfb02, { 0x46, 0x6c, 0 } },
    { 0xfb03, { 0x46, 0x66, 0x69 } },
    { 0xfb04, { 0x46, 0x66, 0x6c } },
    { 0xfb05, { 0x53, 0x74, 0 } },
    { 0xfb06, { 0x53, 0x74, 0 } },
    { 0xfb13, { 0x544, 0x576, 0 } },
    { 0xfb14, { 0x544, 0x565, 0 } },
    { 0xfb15, { 0x544, 0x56b, 0 } },
    { 0xfb16, { 0x54e, 0x576, 0 } },
    { 0xfb17, { 0x544, 0x56d, 0 } },
};
/* clang-format on */

static int compare_code(const void *key, const void *row)
{
    uint32_t a = *(const uint32_t *)key;
    uint32_t b = ((const struct special *)row)->code;
    return (a > b) - (a < b);
}

static void append_char(xr_str *out, uint32_t code)
{
    char bytes[4];
    int size = xr_utf8_encode(code, bytes);
    xr_str_append(out, bytes, (size_t)size);
}

static void append_special(xr_str *out, const struct special *row)
{
    for (int i = 0; i < 3 && row->to[i]; i++)
        append_char(out, row->to[i]);
}

static void append_upper(xr_str *out, uint32_t code)
{
    const struct special *row = bsearch(
        &code, special_upper, sizeof special_upper / sizeof *special_upper,
        sizeof *special_upper, compare_code);
    if (row)
        append_special(out, row);
    else
        append_char(out, (uint32_t)utf8proc_toupper((utf8proc_int32_t)code));
}

static void append_title(xr_str *out, uint32_t code)
{
    const struct special *row = bsearch(
        &code, special_title, sizeof special_title / sizeof *special_title,
        sizeof *special_title, compare_code);
    if (row)
        append_special(out, row);
    else
        append_char(out, (uint32_t)utf8proc_totitle((utf8proc_int32_t)code));
}

static utf8proc_category_t get_category(uint32_t code)
{
    return utf8proc_category((utf8proc_int32_t)code);
}

static int is_cased(uint32_t code)
{
    utf8proc_category_t c = get_category(code);
    return c == UTF8PROC_CATEGORY_LU || c == UTF8PROC_CATEGORY_LL ||
           c == UTF8PROC_CATEGORY_LT;
}

/* Whether a character is ignored where the case of its neighbours matters
 * (Case_Ignorable). */
static int is_case_ignorable(uint32_t code)
{
    static const uint32_t signs[] = { '\'',   '.',    ':',    0xB7,   0x387,
                                      0x55F,  0x5F4,  0x2018, 0x2019, 0x2024,
                                      0x2027, 0xFE13, 0xFE52, 0xFE55, 0xFF07,
                                      0xFF0E, 0xFF1A };
    utf8proc_category_t c = get_category(code);
    for (size_t i = 0; i < sizeof signs / sizeof signs[0]; i++)
        if (code == signs[i])
            return 1;
    return c == UTF8PROC_CATEGORY_MN || c == UTF8PROC_CATEGORY_ME ||
           c == UTF8PROC_CATEGORY_CF || c == UTF8PROC_CATEGORY_LM ||
           c == UTF8PROC_CATEGORY_SK;
}

/* Whether the capital sigma at `at` ends a word of [from, end). */
static int is_final_sigma(const char *from, const char *at, const char *end)
{
    uint32_t code = 0;
    const char *back = at;
    int before = 0;
    while (back > from) {
        do
            back--;
        while (back > from && ((unsigned char)*back & 0xC0) == 0x80);
        (void)xr_utf8_decode(back, end, &code);
        if (is_case_ignorable(code))
            continue;
        before = is_cased(code);
        break;
    }
    if (!before)
        return 0;
    for (at += 2; at < end;) {
        int size = xr_utf8_decode(at, end, &code);
        if (!size || !is_case_ignorable(code))
            return !size || !is_cased(code);
        at += size;
    }
    return 1;
}

static void append_lower(xr_str *out, uint32_t code, const char *from,
                         const char *at, const char *end)
{
    if (code == 0x130)
        xr_str_append(out, "i\xCC\x87", 3);
    else if (code == 0x3A3)
        append_char(out, is_final_sigma(from, at, end) ? 0x3C2 : 0x3C3);
    else
        append_char(out, (uint32_t)utf8proc_tolower((utf8proc_int32_t)code));
}

static int is_word_separator(uint32_t code)
{
    return xm_jis_space(code) || code == '-' || code == '(' || code == '{' ||
           code == '[' || code == '<';
}

static void append_swapped(xr_str *out, uint32_t code, const char *from,
                           const char *at, const char *end)
{
    utf8proc_category_t c = get_category(code);
    if (c == UTF8PROC_CATEGORY_LU)
        append_lower(out, code, from, at, end);
    else if (c == UTF8PROC_CATEGORY_LL)
        append_upper(out, code);
    else
        append_char(out, code);
}

static void append_folded(xr_str *out, uint32_t code)
{
    utf8proc_int32_t folded[8];
    int boundary = 0;
    utf8proc_ssize_t count = utf8proc_decompose_char(
        (utf8proc_int32_t)code, folded, 8, UTF8PROC_CASEFOLD, &boundary);
    for (utf8proc_ssize_t i = 0; i < count && i < 8; i++)
        append_char(out, (uint32_t)folded[i]);
}

static void append_converted(xr_str *out, const xm_jstr *str, enum xm_jcase how)
{
    const char *from = str->text; /* what a final sigma may look back to */
    const char *end = str->text + str->size;
    int begin = 1;
    for (const char *at = str->text; at < end;) {
        uint32_t code;
        int size = xr_utf8_decode(at, end, &code);
        if (!size)
            return;
        int up = begin;
        if (how == XM_J_CAPITAL)
            begin = 0;
        else if (how == XM_J_TITLE)
            begin = !is_cased(code);
        else
            begin = is_word_separator(code);
        if (how == XM_J_UPPER || (how == XM_J_TITLE_WORD && up))
            append_upper(out, code);
        else if (how == XM_J_SWAP)
            append_swapped(out, code, from, at, end);
        else if (how == XM_J_FOLD)
            append_folded(out, code);
        else if (up && (how == XM_J_CAPITAL || how == XM_J_TITLE))
            append_title(out, code);
        else
            append_lower(out, code, from, at, end);
        at += size;
        /* The filter lowers the rest of a word without its first character. */
        if (how == XM_J_TITLE_WORD && up)
            from = at;
    }
}

int xm_jconvert_case(xm_jinterp *interp, xm_jvalue value, enum xm_jcase how,
                     xm_jvalue *out)
{
    xr_str text = { 0 };
    if (xm_jcount_work(interp, value.u.str->size / 2))
        return -1;
    append_converted(&text, value.u.str, how);
    if (xm_jstr_take(interp, &text, out))
        return -1;
    out->markup = value.markup;
    return 0;
}

static int is_in_class(uint32_t code, enum xm_jclass what)
{
    utf8proc_category_t c = get_category(code);
    int letter = c >= UTF8PROC_CATEGORY_LU && c <= UTF8PROC_CATEGORY_LO;
    int number = c >= UTF8PROC_CATEGORY_ND && c <= UTF8PROC_CATEGORY_NO;
    switch (what) {
    case XM_J_ISALNUM:
        return letter || number;
    case XM_J_ISALPHA:
        return letter;
    case XM_J_ISASCII:
        return code < 0x80;
    case XM_J_ISDECIMAL:
        return c == UTF8PROC_CATEGORY_ND;
    case XM_J_ISDIGIT:
        return c == UTF8PROC_CATEGORY_ND || code == 0xB2 || code == 0xB3 ||
               code == 0xB9 || code == 0x2070 ||
               (code >= 0x2074 && code <= 0x2079) ||
               (code >= 0x2080 && code <= 0x2089) ||
               (code >= 0x2460 && code <= 0x2468);
    case XM_J_ISNUMERIC:
        return number;
    case XM_J_ISSPACE:
        return xm_jis_space(code);
    default:
        return xm_jis_printable(code);
    }
}

/* islower, isupper and istitle, which look only at cased characters. */
static int has_letter_case(const xm_jstr *str, enum xm_jclass what)
{
    const char *end = str->text + str->size;
    int any = 0;
    int inside = 0;
    for (const char *at = str->text; at < end;) {
        uint32_t code;
        int size = xr_utf8_decode(at, end, &code);
        if (!size)
            return 0;
        at += size;
        utf8proc_category_t c = get_category(code);
        int low = c == UTF8PROC_CATEGORY_LL;
        int title = c == UTF8PROC_CATEGORY_LT;
        int up = c == UTF8PROC_CATEGORY_LU || title;
        if ((what == XM_J_ISLOWER && up) ||
            (what == XM_J_ISUPPER && (low || title)) ||
            (what == XM_J_ISTITLE && ((up && inside) || (low && !inside))))
            return 0;
        inside = low || up;
        any |= inside;
    }
    return any;
}

int xm_jis_class(const xm_jstr *str, enum xm_jclass what)
{
    if (what == XM_J_ISLOWER || what == XM_J_ISUPPER || what == XM_J_ISTITLE)
        return has_letter_case(str, what);
    const char *end = str->text + str->size;
    for (const char *at = str->text; at < end;) {
        uint32_t code;
        int size = xr_utf8_decode(at, end, &code);
        if (!size || !is_in_class(code, what))
            return 0;
        at += size;
    }
    return str->size > 0 || what == XM_J_ISASCII || what == XM_J_ISPRINTABLE;
}

int xm_jis_printable(uint32_t code)
{
    if (code < 0x7F)
        return code >= 0x20;
    utf8proc_category_t c = get_category(code);
    return !(c == UTF8PROC_CATEGORY_CN || c >= UTF8PROC_CATEGORY_ZS);
}

int xm_jis_word_char(uint32_t code)
{
    if (code < 0x80)
        return (code >= '0' && code <= '9') || (code >= 'A' && code <= 'Z') ||
               (code >= 'a' && code <= 'z') || code == '_';
    return is_in_class(code, XM_J_ISALNUM);
}
