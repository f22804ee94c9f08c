/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks that a text is exactly one JSON value by the grammar of RFC 8259.
 */
#include "core/base/jsoncheck.h"

#include <cjson/cJSON.h>
#include <stdint.h>
#include <string.h>

#include "core/base/str.h"

#define DEEPEST (CJSON_NESTING_LIMIT - 1)

typedef struct scan {
    const char *text;
    const char *at;
    const char *end;
    const char *fault; /* the fault at `at`; NULL while there is none */
} scan;

static int report_fault(scan *s, const char *fault)
{
    if (!s->fault)
        s->fault = fault;
    return -1;
}

static int peek_byte(const scan *s)
{
    return s->at < s->end ? (unsigned char)*s->at : -1;
}

static void skip_space(scan *s)
{
    while (s->at < s->end && *s->at && strchr(" \t\r\n", *s->at))
        s->at++;
}

static int scan_four_hex(scan *s, uint32_t *out)
{
    uint32_t value = 0;
    for (int i = 0; i < 4; i++) {
        int c = s->at + i < s->end ? s->at[i] : '\0';
        const char *const digits = "0123456789abcdef0123456789ABCDEF";
        const char *hit = c ? strchr(digits, c) : NULL;
        if (!hit)
            return report_fault(s, "\\u needs four hexadecimal digits");
        value = value << 4 | (uint32_t)((hit - digits) & 15);
    }
    s->at += 4;
    *out = value;
    return 0;
}

static int scan_unicode_escape(scan *s)
{
    uint32_t code;
    if (scan_four_hex(s, &code))
        return -1;
    if (code == 0)
        return report_fault(
            s, "\\u0000, the NUL character, is not allowed in text; "
               "remove it");
    if (code >= 0xDC00 && code <= 0xDFFF)
        return report_fault(s, "a lone surrogate");
    if (code < 0xD800 || code > 0xDFFF)
        return 0;
    if (s->end - s->at < 2 || s->at[0] != '\\' || s->at[1] != 'u')
        return report_fault(s, "a lone surrogate");
    s->at += 2;
    if (scan_four_hex(s, &code))
        return -1;
    return code >= 0xDC00 && code <= 0xDFFF
               ? 0
               : report_fault(s, "a lone surrogate");
}

static int scan_escape(scan *s)
{
    s->at++;
    int c = peek_byte(s);
    if (c <= 0 || !strchr("\"\\/bfnrtu", c))
        return report_fault(s, "an unknown escape");
    s->at++;
    return c == 'u' ? scan_unicode_escape(s) : 0;
}

static int scan_string(scan *s)
{
    for (s->at++; peek_byte(s) != '"';) {
        int c = peek_byte(s);
        if (c < 0)
            return report_fault(s, "the text ends inside a string");
        if (c < 0x20)
            return report_fault(s, "a control character inside a string");
        if (c == '\\') {
            if (scan_escape(s))
                return -1;
            continue;
        }
        uint32_t code;
        int length = xr_utf8_decode(s->at, s->end, &code);
        if (!length)
            return report_fault(s, "a byte that is not UTF-8");
        s->at += length;
    }
    s->at++;
    return 0;
}

static int scan_digits(scan *s)
{
    const char *from = s->at;
    while (peek_byte(s) >= '0' && peek_byte(s) <= '9')
        s->at++;
    return s->at > from ? 0 : report_fault(s, "a number needs a digit here");
}

static int scan_number(scan *s)
{
    if (peek_byte(s) == '-')
        s->at++;
    const char *from = s->at;
    if (scan_digits(s))
        return -1;
    if (*from == '0' && s->at - from > 1)
        return report_fault(s, "a number starts with 0");
    if (peek_byte(s) == '.') {
        s->at++;
        if (scan_digits(s))
            return -1;
    }
    if (peek_byte(s) == 'e' || peek_byte(s) == 'E') {
        s->at++;
        if (peek_byte(s) == '+' || peek_byte(s) == '-')
            s->at++;
        if (scan_digits(s))
            return -1;
    }
    /* cJSON copies a number into a buffer of 64 bytes. */
    return s->at - from < 62 ? 0
                             : report_fault(s, "a number with too many digits");
}

static int scan_literal(scan *s, const char *text)
{
    size_t size = strlen(text);
    if ((size_t)(s->end - s->at) < size || memcmp(s->at, text, size) != 0)
        return report_fault(s, "expected a JSON value");
    s->at += size;
    return 0;
}

/* Scans a value that contains no other value. */
static int scan_scalar(scan *s)
{
    switch (peek_byte(s)) {
    case '"':
        return scan_string(s);
    case 't':
        return scan_literal(s, "true");
    case 'f':
        return scan_literal(s, "false");
    case 'n':
        return scan_literal(s, "null");
    case -1:
        return report_fault(s, "the text ends where a value should be");
    default:
        if (peek_byte(s) == '-' || (peek_byte(s) >= '0' && peek_byte(s) <= '9'))
            return scan_number(s);
        return report_fault(s, "expected a JSON value");
    }
}

static int scan_key(scan *s)
{
    skip_space(s);
    if (peek_byte(s) != '"')
        return report_fault(s, "expected a key in double quotes");
    if (scan_string(s))
        return -1;
    skip_space(s);
    if (peek_byte(s) != ':')
        return report_fault(s, "expected ':' after the key");
    s->at++;
    return 0;
}

/* Open containers, innermost last: '{' or '['. */
typedef struct nest {
    char open[DEEPEST];
    size_t depth;
} nest;

/* Opens a container: returns 1 if a value comes next, 0 if it was empty and is
 * closed again. */
static int open_container(scan *s, nest *n)
{
    if (n->depth == DEEPEST)
        return report_fault(s, "values are nested too deeply");
    char kind = *s->at++;
    skip_space(s);
    if (peek_byte(s) == (kind == '{' ? '}' : ']')) {
        s->at++;
        return 0;
    }
    n->open[n->depth++] = kind;
    return kind == '{' && scan_key(s) ? -1 : 1;
}

/* Closes the containers that end after a value: returns 1 if another value
 * comes next, 0 if all are closed. */
static int finish_value(scan *s, nest *n)
{
    while (n->depth) {
        char kind = n->open[n->depth - 1];
        skip_space(s);
        if (peek_byte(s) == ',') {
            s->at++;
            return kind == '{' && scan_key(s) ? -1 : 1;
        }
        if (peek_byte(s) != (kind == '{' ? '}' : ']'))
            return report_fault(s, kind == '{' ? "expected ',' or '}'"
                                               : "expected ',' or ']'");
        s->at++;
        n->depth--;
    }
    return 0;
}

static int scan_document(scan *s)
{
    nest n;
    n.depth = 0;
    for (int more = 1; more;) {
        skip_space(s);
        if (peek_byte(s) == '{' || peek_byte(s) == '[') {
            more = open_container(s, &n);
            if (more < 0)
                return -1;
            if (more)
                continue;
        } else if (scan_scalar(s)) {
            return -1;
        }
        more = finish_value(s, &n);
        if (more < 0)
            return -1;
    }
    skip_space(s);
    return s->at == s->end ? 0 : report_fault(s, "text after the JSON value");
}

xray_status xr_json_check(const char *text, size_t size, const char *where,
                          xr_err *err)
{
    scan s = { text, text, text + size, NULL };
    if (!scan_document(&s))
        return XRAY_OK;
    size_t line = 1;
    const char *start = text;
    for (const char *p = text; p < s.at; p++) {
        if (*p == '\n') {
            line++;
            start = p + 1;
        }
    }
    size_t column = (size_t)(s.at - start) + 1;
    /* For a line of a JSON-lines file, `where` includes its number. */
    if (!memchr(text, '\n', size))
        return xr_fail(err, XRAY_E_CONFIG, "%s: column %zu: %s", where, column,
                       s.fault);
    return xr_fail(err, XRAY_E_CONFIG, "%s: line %zu, column %zu: %s", where,
                   line, column, s.fault);
}
