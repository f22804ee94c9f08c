/* SPDX-License-Identifier: Apache-2.0 */
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
    const char *fault; /* what is wrong at `at`; NULL while nothing is */
} scan;

static int bad(scan *s, const char *fault)
{
    if (!s->fault)
        s->fault = fault;
    return -1;
}

static int peek(const scan *s)
{
    return s->at < s->end ? (unsigned char)*s->at : -1;
}

static void skip_space(scan *s)
{
    while (s->at < s->end && *s->at && strchr(" \t\r\n", *s->at))
        s->at++;
}

static int hex4(scan *s, uint32_t *out)
{
    uint32_t value = 0;
    for (int i = 0; i < 4; i++) {
        int c = s->at + i < s->end ? s->at[i] : '\0';
        const char *const digits = "0123456789abcdef0123456789ABCDEF";
        const char *hit = c ? strchr(digits, c) : NULL;
        if (!hit)
            return bad(s, "\\u needs four hexadecimal digits");
        value = value << 4 | (uint32_t)((hit - digits) & 15);
    }
    s->at += 4;
    *out = value;
    return 0;
}

static int unicode_escape(scan *s)
{
    uint32_t code;
    if (hex4(s, &code))
        return -1;
    if (code == 0)
        return bad(s, "\\u0000, the NUL character, cannot stand in a text "
                      "here; remove it");
    if (code >= 0xDC00 && code <= 0xDFFF)
        return bad(s, "a lone surrogate");
    if (code < 0xD800 || code > 0xDFFF)
        return 0;
    if (s->end - s->at < 2 || s->at[0] != '\\' || s->at[1] != 'u')
        return bad(s, "a lone surrogate");
    s->at += 2;
    if (hex4(s, &code))
        return -1;
    return code >= 0xDC00 && code <= 0xDFFF ? 0 : bad(s, "a lone surrogate");
}

static int escape(scan *s)
{
    s->at++;
    int c = peek(s);
    if (c <= 0 || !strchr("\"\\/bfnrtu", c))
        return bad(s, "an unknown escape");
    s->at++;
    return c == 'u' ? unicode_escape(s) : 0;
}

static int string(scan *s)
{
    for (s->at++; peek(s) != '"';) {
        int c = peek(s);
        if (c < 0)
            return bad(s, "the text ends inside a string");
        if (c < 0x20)
            return bad(s, "a control character inside a string");
        if (c == '\\') {
            if (escape(s))
                return -1;
            continue;
        }
        uint32_t code;
        int length = xr_utf8_decode(s->at, s->end, &code);
        if (!length)
            return bad(s, "a byte that is no UTF-8");
        s->at += length;
    }
    s->at++;
    return 0;
}

static int digits(scan *s)
{
    const char *from = s->at;
    while (peek(s) >= '0' && peek(s) <= '9')
        s->at++;
    return s->at > from ? 0 : bad(s, "a number needs a digit here");
}

static int number(scan *s)
{
    if (peek(s) == '-')
        s->at++;
    const char *from = s->at;
    if (digits(s))
        return -1;
    if (*from == '0' && s->at - from > 1)
        return bad(s, "a number starts with 0");
    if (peek(s) == '.') {
        s->at++;
        if (digits(s))
            return -1;
    }
    if (peek(s) == 'e' || peek(s) == 'E') {
        s->at++;
        if (peek(s) == '+' || peek(s) == '-')
            s->at++;
        if (digits(s))
            return -1;
    }
    /* cJSON copies a number into a buffer of 64 bytes. */
    return s->at - from < 62 ? 0 : bad(s, "a number of too many digits");
}

static int word(scan *s, const char *text)
{
    size_t size = strlen(text);
    if ((size_t)(s->end - s->at) < size || memcmp(s->at, text, size) != 0)
        return bad(s, "expected a JSON value");
    s->at += size;
    return 0;
}

/* A value with nothing inside it. */
static int scalar(scan *s)
{
    switch (peek(s)) {
    case '"':
        return string(s);
    case 't':
        return word(s, "true");
    case 'f':
        return word(s, "false");
    case 'n':
        return word(s, "null");
    case -1:
        return bad(s, "the text ends where a value should be");
    default:
        if (peek(s) == '-' || (peek(s) >= '0' && peek(s) <= '9'))
            return number(s);
        return bad(s, "expected a JSON value");
    }
}

static int key(scan *s)
{
    skip_space(s);
    if (peek(s) != '"')
        return bad(s, "expected a key in double quotes");
    if (string(s))
        return -1;
    skip_space(s);
    if (peek(s) != ':')
        return bad(s, "expected ':' after the key");
    s->at++;
    return 0;
}

/* What stands open, innermost last: '{' or '['. */
typedef struct nest {
    char open[DEEPEST];
    size_t depth;
} nest;

/* '{' or '[': 1 if a value comes next, 0 if it was empty and is closed. */
static int open_one(scan *s, nest *n)
{
    if (n->depth == DEEPEST)
        return bad(s, "values are nested too deeply");
    char kind = *s->at++;
    skip_space(s);
    if (peek(s) == (kind == '{' ? '}' : ']')) {
        s->at++;
        return 0;
    }
    n->open[n->depth++] = kind;
    return kind == '{' && key(s) ? -1 : 1;
}

/* After a value: closes what ends here. 1 if another value comes next, 0 when
 * all is closed. */
static int after_value(scan *s, nest *n)
{
    while (n->depth) {
        char kind = n->open[n->depth - 1];
        skip_space(s);
        if (peek(s) == ',') {
            s->at++;
            return kind == '{' && key(s) ? -1 : 1;
        }
        if (peek(s) != (kind == '{' ? '}' : ']'))
            return bad(s, kind == '{' ? "expected ',' or '}'"
                                      : "expected ',' or ']'");
        s->at++;
        n->depth--;
    }
    return 0;
}

static int document(scan *s)
{
    nest n;
    n.depth = 0;
    for (int more = 1; more;) {
        skip_space(s);
        if (peek(s) == '{' || peek(s) == '[') {
            more = open_one(s, &n);
            if (more < 0)
                return -1;
            if (more)
                continue;
        } else if (scalar(s)) {
            return -1;
        }
        more = after_value(s, &n);
        if (more < 0)
            return -1;
    }
    skip_space(s);
    return s->at == s->end ? 0 : bad(s, "text after the JSON value");
}

xray_status xr_json_check(const char *text, size_t size, const char *where,
                          xr_err *err)
{
    scan s = { text, text, text + size, NULL };
    if (!document(&s))
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
    /* Of JSON lines, `where` names the line. */
    if (!memchr(text, '\n', size))
        return xr_fail(err, XRAY_E_CONFIG, "%s: column %zu: %s", where, column,
                       s.fault);
    return xr_fail(err, XRAY_E_CONFIG, "%s: line %zu, column %zu: %s", where,
                   line, column, s.fault);
}
