/* SPDX-License-Identifier: Apache-2.0
 *
 * Compiles and matches patterns of tokenizer.json with PCRE2. They are written
 * in Oniguruma's Ruby syntax: syntax that both read alike is passed on, \s and
 * \S are spelled out because PCRE2 counts U+180E as white space, and the rest
 * is refused.
 */
#define PCRE2_CODE_UNIT_WIDTH 8
#include <ctype.h>
#include <pcre2.h>
#include <stdlib.h>
#include <string.h>

#include "model/text/internal.h"

/* The characters of \w in Oniguruma; outside of a class in brackets there are
 * some more. */
#define WORD                                               \
    "\\p{L}\\p{M}\\p{Nd}\\p{Nl}\\p{Pc}\\x{24B6}-\\x{24E9}" \
    "\\x{1F130}-\\x{1F149}\\x{1F150}-\\x{1F169}"           \
    "\\x{1F170}-\\x{1F189}"
#define WORD_ALONE "\\x{B2}\\x{B3}\\x{B9}\\x{BC}-\\x{BE}"

/* Limits of one match: steps of backtracking, and KiB of memory. */
#define STEP_LIMIT 10000000u
#define HEAP_LIMIT 65536u

struct xm_regex {
    pcre2_code *code;
    pcre2_match_context *limits;
};

/* The characters with the property White_Space, and all others. */
static const char space[] =
    "\\x{9}-\\x{D}\\x{20}\\x{85}\\x{A0}\\x{1680}\\x{2000}-\\x{200A}"
    "\\x{2028}\\x{2029}\\x{202F}\\x{205F}\\x{3000}";
static const char other[] =
    "\\x{0}-\\x{8}\\x{E}-\\x{1F}\\x{21}-\\x{84}\\x{86}-\\x{9F}"
    "\\x{A1}-\\x{167F}\\x{1681}-\\x{1FFF}\\x{200B}-\\x{2027}"
    "\\x{202A}-\\x{202E}\\x{2030}-\\x{205E}\\x{2060}-\\x{2FFF}"
    "\\x{3001}-\\x{10FFFF}";

typedef struct translator {
    const char *at;
    int in_class;
    int dash; /* a range is open in the class */
    xr_str *out;
} translator;

/* Each of the following functions translates the item at `at` and returns its
 * size, or 0 if the two syntaxes differ. */
static size_t read_property(translator *t)
{
    const char *at = t->at;
    char name[3] = "";
    size_t n = 2;
    if (at[n++] != '{')
        return 0;
    int negated = at[n] == '^';
    n += (size_t)negated;
    if (!isupper((unsigned char)at[n]))
        return 0;
    name[0] = at[n++];
    if (islower((unsigned char)at[n]))
        name[1] = at[n++];
    if (at[n] != '}')
        return 0;
    negated ^= at[1] == 'P';
    if (t->in_class && negated) {
        xr_str_append(t->out, at, n + 1);
        return n + 1;
    }
    xr_str_puts(t->out, t->in_class ? "" : negated ? "[^" : "[");
    xr_str_printf(t->out, "\\p{%s}", name);
    xm_unicode16_category(name, t->out);
    xr_str_puts(t->out, t->in_class ? "" : "]");
    return n + 1;
}

/* Translates \p{Han} and other scripts: in PCRE2 the plain name means
 * Script_Extensions instead of Script. */
static size_t read_script_property(translator *t)
{
    static const char *const names[] = {
        "Arabic",    "Armenian", "Bengali", "Cyrillic", "Devanagari",
        "Ethiopic",  "Georgian", "Greek",   "Gujarati", "Gurmukhi",
        "Han",       "Hangul",   "Hebrew",  "Hiragana", "Kannada",
        "Katakana",  "Khmer",    "Lao",     "Latin",    "Malayalam",
        "Mongolian", "Myanmar",  "Oriya",   "Sinhala",  "Tamil",
        "Telugu",    "Thaana",   "Thai",    "Tibetan"
    };
    const char *at = t->at;
    size_t n = at[2] == '{' ? 3 : 0;
    int negated = n && at[n] == '^';
    for (size_t i = 0; n && i < sizeof names / sizeof names[0]; i++) {
        const char *name = at + n + negated;
        size_t size = strlen(names[i]);
        if (strncmp(name, names[i], size) != 0 || name[size] != '}')
            continue;
        int outside = negated != (at[1] == 'P');
        if (t->in_class && outside) {
            xr_str_printf(t->out, "\\P{sc:%s}", names[i]);
        } else {
            xr_str_puts(t->out, t->in_class ? "" : outside ? "[^" : "[");
            xr_str_printf(t->out, "\\p{sc:%s}", names[i]);
            xm_unicode16_script(names[i], t->out);
            xr_str_puts(t->out, t->in_class ? "" : "]");
        }
        return n + (size_t)negated + size + 1;
    }
    return 0;
}

/* \uHHHH */
static size_t read_unicode_escape(translator *t)
{
    for (size_t i = 2; i < 6; i++)
        if (!isxdigit((unsigned char)t->at[i]))
            return 0;
    xr_str_printf(t->out, "\\x{%.4s}", t->at + 2);
    return 6;
}

static size_t read_hex_escape(const char *at)
{
    size_t n = 3;
    if (at[2] != '{')
        return 0;
    while (isxdigit((unsigned char)at[n]))
        n++;
    return at[n] == '}' ? n + 1 : 0;
}

/* Writes the characters of Oniguruma's \w; in PCRE2, \w does not contain
 * marks. */
static void put_word_class(xr_str *out)
{
    xr_str_puts(out, WORD);
    xm_unicode16_category("L", out);
    xm_unicode16_category("M", out);
    xm_unicode16_category("Nd", out);
}

/* Writes the word class between `begin` and `end`, as a lookaround or as a
 * character class. */
static void put_word_look(const char *begin, const char *end, xr_str *out)
{
    xr_str_puts(out, begin);
    xr_str_puts(out, WORD_ALONE);
    put_word_class(out);
    xr_str_puts(out, end);
}

static size_t read_word_escape(translator *t, unsigned char c)
{
    if (t->in_class) {
        if (t->dash || c != 'w')
            return 0;
        put_word_class(t->out);
    } else if (c == 'w' || c == 'W') {
        put_word_look(c == 'w' ? "[" : "[^", "]", t->out);
    } else {
        put_word_look("(?:(?<=[", c == 'b' ? "])(?![" : "])(?=[", t->out);
        put_word_look("", "])|(?<![", t->out);
        put_word_look("", c == 'b' ? "])(?=[" : "])(?![", t->out);
        put_word_look("", "]))", t->out);
    }
    return 2;
}

static size_t read_escape(translator *t)
{
    const char *at = t->at;
    unsigned char c = (unsigned char)at[1];
    if (c == 's' || c == 'S') {
        if (t->dash)
            return 0;
        xr_str_puts(t->out, t->in_class ? "" : "[");
        xr_str_puts(t->out, c == 's' ? space : other);
        xr_str_puts(t->out, t->in_class ? "" : "]");
        return 2;
    }
    size_t n = 0;
    if (c == 'w' || c == 'W' || c == 'b' || c == 'B')
        return read_word_escape(t, c);
    if (c == 'p' || c == 'P') {
        n = read_script_property(t);
        return n ? n : read_property(t);
    }
    if (c == 'u')
        return read_unicode_escape(t);
    if (c == 'x')
        n = read_hex_escape(at);
    else if (c && (ispunct(c) || strchr("rntdD", c)))
        n = 2;
    xr_str_append(t->out, at, n);
    return n;
}

static size_t open_class(translator *t)
{
    size_t n = t->at[1] == '^' ? 2 : 1;
    if (t->at[n] == ']')
        return 0;
    n += t->at[n] == '-'; /* a leading dash is no range */
    xr_str_append(t->out, t->at, n);
    t->in_class = 1;
    t->dash = 0;
    return n;
}

static size_t open_group(translator *t)
{
    static const char *const known[] = { "(?:",  "(?=",  "(?!", "(?>",
                                         "(?<=", "(?<!", "(?i:" };
    size_t n = t->at[1] == '?' || t->at[1] == '*' ? 0 : 1;
    for (size_t i = 0; !n && i < sizeof known / sizeof known[0]; i++)
        if (strncmp(t->at, known[i], strlen(known[i])) == 0)
            n = strlen(known[i]);
    xr_str_append(t->out, t->at, n);
    return n;
}

static size_t read_plain_char(translator *t)
{
    const char *at = t->at;
    int differs = 0;
    if (t->in_class)
        differs = *at == '[' || (*at == '&' && at[1] == '&');
    else if (*at == '{')
        differs = !isdigit((unsigned char)at[1]);
    else
        differs = *at == '}' && at[1] == '+';
    if (differs)
        return 0;
    if (!t->in_class && (*at == '^' || *at == '$')) {
        /* Anchors of lines: no line starts after a final newline, but $ matches
         * there. */
        xr_str_puts(t->out,
                    *at == '^' ? "(?:\\A|(?<=\n)(?!\\z))" : "(?:(?=\n)|\\z)");
        return 1;
    }
    if (t->in_class) {
        t->dash = *at == '-';
        t->in_class = *at != ']';
    }
    xr_str_append(t->out, at, 1);
    return 1;
}

static size_t read_pattern_item(translator *t)
{
    if (*t->at == '\\') {
        size_t n = read_escape(t);
        t->dash = 0;
        return n;
    }
    if (!t->in_class && *t->at == '[')
        return open_class(t);
    if (!t->in_class && *t->at == '(')
        return open_group(t);
    return read_plain_char(t);
}

static xray_status translate_pattern(const char *pattern, const char *where,
                                     xr_err *err, xr_str *out)
{
    translator t = { .at = pattern, .out = out };
    while (*t.at) {
        size_t n = read_pattern_item(&t);
        if (!n)
            return xr_fail(err, XRAY_E_UNSUPPORTED,
                           "%s: \"%.4s\" at offset %zu of the pattern is not "
                           "supported",
                           where, t.at, (size_t)(t.at - pattern));
        t.at += n;
    }
    return out->failed ? xr_fail(err, XRAY_E_NOMEM, "%s: out of memory", where)
                       : XRAY_OK;
}

xray_status xm_regex_literal(const char *text, const char *where, xr_err *err,
                             xm_regex **out)
{
    xr_str pattern = { 0 };
    for (; *text; text++) {
        if (strchr("\\^$.|?*+()[]{}", *text))
            xr_str_puts(&pattern, "\\");
        xr_str_append(&pattern, text, 1);
    }
    xray_status status =
        pattern.failed ? xr_fail(err, XRAY_E_NOMEM, "%s: out of memory", where)
                       : xm_regex_open(xr_str_text(&pattern), where, err, out);
    xr_str_free(&pattern);
    return status;
}

static xray_status compile_pattern(xm_regex *regex, const char *pattern,
                                   const char *where, xr_err *err)
{
    pcre2_compile_context *context = pcre2_compile_context_create(NULL);
    int code = 0;
    size_t offset = 0;
    regex->limits = pcre2_match_context_create(NULL);
    if (!context || !regex->limits) {
        pcre2_compile_context_free(context);
        return xr_fail(err, XRAY_E_NOMEM, "%s: out of memory", where);
    }
    (void)pcre2_set_newline(context, PCRE2_NEWLINE_LF);
    (void)pcre2_set_match_limit(regex->limits, STEP_LIMIT);
    (void)pcre2_set_heap_limit(regex->limits, HEAP_LIMIT);
    regex->code = pcre2_compile((PCRE2_SPTR)pattern, strlen(pattern),
                                PCRE2_UTF | PCRE2_UCP, &code, &offset, context);
    pcre2_compile_context_free(context);
    if (!regex->code && code == PCRE2_ERROR_HEAP_FAILED)
        return xr_fail(err, XRAY_E_NOMEM, "%s: out of memory", where);
    if (!regex->code) {
        PCRE2_UCHAR text[120] = "";
        (void)pcre2_get_error_message(code, text, sizeof text);
        return xr_fail(err, XRAY_E_CONFIG,
                       "%s: the pattern is not a regular expression: %s", where,
                       (const char *)text);
    }
    /* If there is no JIT for this processor, matching is only slower. */
    (void)pcre2_jit_compile(regex->code, PCRE2_JIT_COMPLETE);
    return XRAY_OK;
}

xray_status xm_regex_open(const char *pattern, const char *where, xr_err *err,
                          xm_regex **out)
{
    xr_str text = { 0 };
    xm_regex *regex = xr_calloc(1, sizeof *regex);
    xray_status status =
        regex ? translate_pattern(pattern, where, err, &text)
              : xr_fail(err, XRAY_E_NOMEM, "%s: out of memory", where);
    if (!status)
        status = compile_pattern(regex, xr_str_text(&text), where, err);
    xr_str_free(&text);
    if (status) {
        xm_regex_close(regex);
        return status;
    }
    *out = regex;
    return XRAY_OK;
}

void xm_regex_close(xm_regex *regex)
{
    if (!regex)
        return;
    pcre2_code_free(regex->code);
    pcre2_match_context_free(regex->limits);
    free(regex);
}

void *xm_regex_workspace(void)
{
    return pcre2_match_data_create(1, NULL);
}

void xm_regex_workspace_free(void *workspace)
{
    pcre2_match_data_free(workspace);
}

/* Matches again without the JIT if the JIT's stack is too small. */
static int run_pcre2_match(const xm_matches *m)
{
    uint32_t options = PCRE2_NO_UTF_CHECK;
    int code = pcre2_match(m->regex->code, (PCRE2_SPTR)m->text, m->size,
                           m->search, options, m->workspace, m->regex->limits);
    if (code == PCRE2_ERROR_JIT_STACKLIMIT)
        code =
            pcre2_match(m->regex->code, (PCRE2_SPTR)m->text, m->size, m->search,
                        options | PCRE2_NO_JIT, m->workspace, m->regex->limits);
    return code;
}

xray_status xm_regex_next(xm_matches *m, xr_err *err, int *out_found,
                          size_t *out_from, size_t *out_to)
{
    *out_found = 0;
    while (m->search <= m->size) {
        int code = run_pcre2_match(m);
        if (code == PCRE2_ERROR_NOMATCH)
            return XRAY_OK;
        if (code < 0)
            return xr_fail(
                err, code == PCRE2_ERROR_NOMEMORY ? XRAY_E_NOMEM : XRAY_E_RANGE,
                "tokenizer: a pattern takes too long or too much memory at "
                "byte %zu of %zu",
                m->search, m->size);
        const size_t *at = pcre2_get_ovector_pointer(m->workspace);
        if (at[0] == at[1] && m->last == at[1] + 1) {
            uint32_t ignored;
            int length = xr_utf8_decode(m->text + m->search, m->text + m->size,
                                        &ignored);
            m->search += length ? (size_t)length : 1;
            continue;
        }
        *out_found = 1;
        *out_from = at[0];
        *out_to = at[1];
        m->search = at[1];
        m->last = at[1] + 1;
        return XRAY_OK;
    }
    return XRAY_OK;
}
