/* SPDX-License-Identifier: Apache-2.0
 *
 * Splits the text of a template into tokens, with the white space control of
 * trim_blocks and lstrip_blocks.
 */
#include <stdlib.h>
#include <string.h>

#include "model/chat/jinja_lex.h"

struct lexer {
    xm_jinterp *interp;
    xm_jtokens *out;
    const char *at;
    const char *end;
    const char *counted; /* newlines before this are counted in `line` */
    uint32_t line;
    int line_start; /* the part read last ended with a newline */
    char open[XM_CHAT_MAX_NESTING]; /* closing brackets that are expected */
    size_t open_count;
};

static uint32_t count_lines_to(struct lexer *l, const char *at)
{
    for (; l->counted < at; l->counted++)
        l->line += *l->counted == '\n';
    l->interp->line = l->line;
    return l->line;
}

static int add_token(struct lexer *l, enum xm_jtoken_type type,
                     const char *text, size_t size, xm_jtoken **out)
{
    xm_jtokens *all = l->out;
    if (all->count == all->cap) {
        size_t cap = all->cap ? 2 * all->cap : 256;
        xm_jtoken *more = realloc(all->at, cap * sizeof *more);
        if (!more)
            return xm_jfail(l->interp, "out of memory");
        all->at = more;
        all->cap = cap;
    }
    xm_jtoken *token = &all->at[all->count++];
    *token = (xm_jtoken){ .type = type, .text = text, .size = size };
    token->line = count_lines_to(l, text);
    if (out)
        *out = token;
    return 0;
}

static int match_space(const char *at, const char *end)
{
    uint32_t code;
    int size = xr_utf8_decode(at, end, &code);
    return size && xm_jis_space(code) ? size : 0;
}

static const char *skip_space(const char *at, const char *end)
{
    int size;
    while (at < end && (size = match_space(at, end)))
        at += size;
    return at;
}

static const char *strip_right(const char *from, const char *end)
{
    while (end > from) {
        const char *last = end - 1;
        while (last > from && ((unsigned char)*last & 0xC0) == 0x80)
            last--;
        if (!match_space(last, end))
            break;
        end = last;
    }
    return end;
}

/* Adds the text before a tag, cut by the tag's sign or by lstrip_blocks. */
static int add_data_token(struct lexer *l, const char *from, const char *to,
                          char sign, int variable)
{
    const char *stop = to;
    if (sign == '-') {
        stop = strip_right(from, to);
    } else if (sign != '+' && !variable) {
        const char *line = to;
        while (line > from && line[-1] != '\n')
            line--;
        if ((line > from || l->line_start) && skip_space(line, to) == to)
            stop = line;
    }
    if (stop == from)
        return 0;
    xm_jtoken *token;
    size_t size = (size_t)(stop - from);
    return add_token(l, XM_T_DATA, from, size, &token) ||
           xm_jstr_borrow(l->interp, from, size, xm_jcount_chars(from, size),
                          &token->value);
}

static int starts_with(const char *at, const char *end, const char *what)
{
    size_t size = strlen(what);
    return (size_t)(end - at) >= size && !memcmp(at, what, size);
}

/* Returns the end of a tag's closing delimiter, including the white space that
 * it removes, or NULL. `trim`: it also removes a newline directly after it. */
static const char *match_tag_end(const char *at, const char *end,
                                 const char *close, int plus, int trim)
{
    char sign = at < end && (*at == '-' || *at == '+') ? *at : 0;
    if (sign == '+' && !plus)
        return NULL;
    at += sign != 0;
    if (!starts_with(at, end, close))
        return NULL;
    at += 2;
    if (sign == '-')
        return skip_space(at, end);
    if (!sign && trim && at < end && *at == '\n')
        at++;
    return at;
}

static void move_lexer_to(struct lexer *l, const char *to)
{
    l->line_start = to[-1] == '\n';
    l->at = to;
}

/* Called after "{%" and its sign; returns the end of a raw tag, or NULL. */
static const char *match_raw_begin(const char *at, const char *end)
{
    at = skip_space(at, end);
    if (!starts_with(at, end, "raw"))
        return NULL;
    at = skip_space(at + 3, end);
    if (starts_with(at, end, "-%}"))
        return skip_space(at + 3, end);
    return starts_with(at, end, "%}") ? at + 2 : NULL;
}

static int read_raw_block(struct lexer *l)
{
    const char *from = l->at;
    for (const char *at = from; at + 1 < l->end; at++) {
        if (at[0] != '{' || at[1] != '%')
            continue;
        const char *in = at + 2;
        char sign = in < l->end && (*in == '-' || *in == '+') ? *in : 0;
        in = skip_space(in + (sign != 0), l->end);
        if (!starts_with(in, l->end, "endraw"))
            continue;
        const char *to =
            match_tag_end(skip_space(in + 6, l->end), l->end, "%}", 1, 1);
        if (!to)
            continue;
        if (add_data_token(l, from, at, sign, 0))
            return -1;
        move_lexer_to(l, to);
        return 0;
    }
    (void)count_lines_to(l, from);
    return xm_jfail(l->interp, "the raw block is not closed");
}

static int skip_comment(struct lexer *l)
{
    const char *from = l->at;
    for (const char *at = from; at + 1 < l->end; at++) {
        const char *to = match_tag_end(at, l->end, "#}", 1, 1);
        if (to) {
            move_lexer_to(l, to);
            return 0;
        }
    }
    (void)count_lines_to(l, from);
    return xm_jfail(l->interp, "the comment is not closed");
}

/* Reads the digits of an escape in a string; 0: ill-formed. */
static int read_numeric_escape(const char *at, const char *end, int digits,
                               uint32_t *out)
{
    uint32_t code = 0;
    if (end - at < digits)
        return 0;
    for (int i = 0; i < digits; i++) {
        char c = at[i];
        uint32_t digit = c >= '0' && c <= '9'   ? (uint32_t)(c - '0')
                         : c >= 'a' && c <= 'f' ? (uint32_t)(c - 'a' + 10)
                         : c >= 'A' && c <= 'F' ? (uint32_t)(c - 'A' + 10)
                                                : 99;
        if (digit > 15)
            return 0;
        code = code << 4 | digit;
    }
    *out = code;
    return code < 0x110000 && (code < 0xD800 || code > 0xDFFF);
}

static void append_char(xr_str *out, uint32_t code)
{
    char bytes[4];
    xr_str_append(out, bytes, (size_t)xr_utf8_encode(code, bytes));
}

static int read_octal_escape(const char *at, const char *end, xr_str *out)
{
    uint32_t code = 0;
    int count = 0;
    for (;
         count < 3 && at + count < end && at[count] >= '0' && at[count] <= '7';
         count++)
        code = code * 8 + (uint32_t)(at[count] - '0');
    append_char(out, code);
    return count;
}

/* Returns the number of bytes of the escape after the backslash; 0:
 * ill-formed. */
static int read_escape(const char *at, const char *end, xr_str *out)
{
    static const char plain[] = "n\nt\tr\r\\\\''\"\"a\ab\bf\fv\v";
    uint32_t code;
    if (*at == '\n')
        return 1;
    for (const char *p = plain; *p; p += 2)
        if (*p == *at) {
            xr_str_append(out, p + 1, 1);
            return 1;
        }
    if (*at >= '0' && *at <= '7')
        return read_octal_escape(at, end, out);
    int digits = *at == 'x' ? 2 : *at == 'u' ? 4 : *at == 'U' ? 8 : 0;
    if (digits) {
        if (!read_numeric_escape(at + 1, end, digits, &code))
            return 0;
        append_char(out, code);
        return digits + 1;
    }
    if (*at == 'N')
        return 0;
    int size = xr_utf8_decode(at, end, &code);
    xr_str_puts(out, "\\");
    /* Jinja encodes the text with backslashreplace before it decodes the
     * escapes, so a character beyond ASCII turns into an escape itself. */
    if (code < 0x80)
        append_char(out, code);
    else
        xr_str_printf(out,
                      code < 0x100     ? "x%02x"
                      : code < 0x10000 ? "u%04x"
                                       : "U%08x",
                      (unsigned)code);
    return size;
}

static int read_string(struct lexer *l)
{
    const char *from = l->at;
    const char *at = from + 1;
    while (at < l->end && *at != *from)
        at += *at == '\\' ? 2 : 1;
    if (at >= l->end)
        return xm_jfail(l->interp, "the string is not closed");
    xr_str text = { 0 };
    for (const char *c = from + 1; c < at;) {
        if (*c != '\\') {
            xr_str_append(&text, c++, 1);
            continue;
        }
        int size = read_escape(c + 1, at, &text);
        if (!size) {
            xr_str_free(&text);
            return xm_jfail(l->interp, "the string has an invalid escape");
        }
        c += 1 + size;
    }
    xm_jtoken *token;
    if (add_token(l, XM_T_STRING, from, (size_t)(at + 1 - from), &token)) {
        xr_str_free(&text);
        return -1;
    }
    move_lexer_to(l, at + 1);
    return xm_jstr_take(l->interp, &text, &token->value);
}

static int is_digit_at(const char *at, const char *end)
{
    return at < end && *at >= '0' && *at <= '9';
}

/* Skips digits, which may have single underscores between them. */
static const char *skip_digits(const char *at, const char *end)
{
    while (is_digit_at(at, end) ||
           (at < end && *at == '_' && is_digit_at(at + 1, end) &&
            is_digit_at(at - 1, end)))
        at++;
    return at;
}

static const char *match_exponent(const char *at, const char *end)
{
    if (at == end || (*at != 'e' && *at != 'E'))
        return NULL;
    at++;
    at += at < end && (*at == '+' || *at == '-');
    return is_digit_at(at, end) ? skip_digits(at, end) : NULL;
}

/* Returns the end of a float, or NULL. */
static const char *match_real(const char *begin, const char *at,
                              const char *end)
{
    if (at > begin && at[-1] == '.')
        return NULL;
    at = skip_digits(at, end);
    const char *to = NULL;
    if (at < end && *at == '.' && is_digit_at(at + 1, end))
        at = to = skip_digits(at + 1, end);
    const char *far = match_exponent(at, end);
    return far ? far : to;
}

static const char *match_based_integer(const char *at, const char *end,
                                       const char *set)
{
    const char *to = at + 2;
    while (to < end && *to &&
           (strchr(set, *to) || (*to == '_' && to[-1] != '_' && to + 1 < end &&
                                 to[1] && strchr(set, to[1]))))
        to++;
    return to > at + 2 ? to : NULL;
}

static const char *match_integer(const char *at, const char *end)
{
    const char *to = NULL;
    if (*at == '0' && at + 1 < end) {
        char kind = at[1] | 32;
        to = kind == 'b'   ? match_based_integer(at, end, "01")
             : kind == 'o' ? match_based_integer(at, end, "01234567")
             : kind == 'x'
                 ? match_based_integer(at, end, "0123456789abcdefABCDEF")
                 : NULL;
        if (to)
            return to;
    }
    if (*at != '0')
        return skip_digits(at, end);
    to = at + 1;
    while (to < end &&
           (*to == '0' || (*to == '_' && to + 1 < end && to[1] == '0')))
        to++;
    return to;
}

static int read_number(struct lexer *l, const char *begin)
{
    const char *to = match_real(begin, l->at, l->end);
    enum xm_jtoken_type type = to ? XM_T_FLOAT : XM_T_INT;
    if (!to)
        to = match_integer(l->at, l->end);
    xm_jtoken *token;
    xm_jstr text = { l->at, (size_t)(to - l->at), (size_t)(to - l->at) };
    if (add_token(l, type, text.text, text.size, &token))
        return -1;
    int64_t integer = 0;
    double real = 0;
    if (type == XM_T_INT) {
        int status = xm_jparse_int(&text, 0, &integer);
        if (status)
            return xm_jfail(l->interp, "the integer %.*s is beyond 64 bits",
                            (int)(text.size < 40 ? text.size : 40), text.text);
        token->value = xm_jint(integer);
    } else {
        if (xm_jparse_real(&text, &real))
            return xm_jfail(l->interp, "a number is too long");
        token->value = xm_jfloat(real);
    }
    move_lexer_to(l, to);
    return 0;
}

static int read_name(struct lexer *l)
{
    const char *to = l->at;
    uint32_t code;
    int size;
    while (to < l->end && (size = xr_utf8_decode(to, l->end, &code)) &&
           xm_jis_word_char(code))
        to += size;
    if (to == l->at)
        return xm_jfail(l->interp, "unexpected character '%.*s'",
                        xr_utf8_decode(l->at, l->end, &code), l->at);
    if (add_token(l, XM_T_NAME, l->at, (size_t)(to - l->at), NULL))
        return -1;
    move_lexer_to(l, to);
    return 0;
}

static const struct {
    const char *text;
    enum xm_jtoken_type type;
} operators[] = {
    { "//", XM_T_FLOORDIV }, { "**", XM_T_POW },      { "==", XM_T_EQ },
    { "!=", XM_T_NE },       { ">=", XM_T_GE },       { "<=", XM_T_LE },
    { "+", XM_T_ADD },       { "-", XM_T_SUB },       { "*", XM_T_MUL },
    { "/", XM_T_DIV },       { "%", XM_T_MOD },       { "~", XM_T_TILDE },
    { "[", XM_T_LBRACKET },  { "]", XM_T_RBRACKET },  { "(", XM_T_LPAREN },
    { ")", XM_T_RPAREN },    { "{", XM_T_LBRACE },    { "}", XM_T_RBRACE },
    { ">", XM_T_GT },        { "<", XM_T_LT },        { "=", XM_T_ASSIGN },
    { ".", XM_T_DOT },       { ":", XM_T_COLON },     { "|", XM_T_PIPE },
    { ",", XM_T_COMMA },     { ";", XM_T_SEMICOLON },
};

/* Checks that brackets match. Inside brackets no delimiter closes a tag. */
static int match_bracket(struct lexer *l, char c)
{
    if (c == '{' || c == '(' || c == '[') {
        if (l->open_count == sizeof l->open)
            return xm_jfail(l->interp, "more than %u nested brackets",
                            XM_CHAT_MAX_NESTING);
        l->open[l->open_count++] = c == '{' ? '}' : c == '(' ? ')' : ']';
    } else if (c == '}' || c == ')' || c == ']') {
        if (!l->open_count)
            return xm_jfail(l->interp, "unexpected '%c'", c);
        char want = l->open[--l->open_count];
        if (want != c)
            return xm_jfail(l->interp, "unexpected '%c', expected '%c'", c,
                            want);
    }
    return 0;
}

static int read_operator(struct lexer *l, int *found)
{
    *found = 1;
    for (size_t i = 0; i < sizeof operators / sizeof operators[0]; i++) {
        size_t size = strlen(operators[i].text);
        if (!starts_with(l->at, l->end, operators[i].text))
            continue;
        if (add_token(l, operators[i].type, l->at, size, NULL) ||
            (size == 1 && match_bracket(l, *l->at)))
            return -1;
        move_lexer_to(l, l->at + size);
        return 0;
    }
    *found = 0;
    return 0;
}

/* Reads the tokens of one tag up to its closing delimiter. */
static int read_tag_tokens(struct lexer *l, int block, const char *begin)
{
    const char *close = block ? "%}" : "}}";
    l->open_count = 0;
    while (l->at < l->end) {
        const char *to =
            l->open_count ? NULL
                          : match_tag_end(l->at, l->end, close, block, block);
        (void)count_lines_to(l, l->at);
        if (to) {
            if (add_token(l, block ? XM_T_BLOCK_END : XM_T_VAR_END, l->at, 2,
                          NULL))
                return -1;
            move_lexer_to(l, to);
            return 0;
        }
        const char *next = skip_space(l->at, l->end);
        int found = next > l->at;
        if (found)
            move_lexer_to(l, next);
        else if (is_digit_at(l->at, l->end) && (found = 1)) {
            if (read_number(l, begin))
                return -1;
        } else if ((*l->at == '\'' || *l->at == '"') && (found = 1)) {
            if (read_string(l))
                return -1;
        } else if (read_operator(l, &found)) {
            return -1;
        }
        if (!found && read_name(l))
            return -1;
    }
    return 0;
}

static int read_next_part(struct lexer *l, const char *begin)
{
    const char *from = l->at;
    const char *at = from;
    while (at + 1 < l->end &&
           !(at[0] == '{' && (at[1] == '%' || at[1] == '{' || at[1] == '#')))
        at++;
    if (at + 1 >= l->end) {
        l->at = l->end;
        return add_data_token(l, from, l->end, '+', 0);
    }
    char kind = at[1];
    const char *in = at + 2;
    char sign = in < l->end && (*in == '-' || *in == '+') ? *in : 0;
    in += sign != 0;
    if (add_data_token(l, from, at, sign, kind == '{'))
        return -1;
    const char *raw_at = kind == '%' ? match_raw_begin(in, l->end) : NULL;
    move_lexer_to(l, raw_at ? raw_at : in);
    if (raw_at)
        return read_raw_block(l);
    if (kind == '#')
        return skip_comment(l);
    if (add_token(l, kind == '%' ? XM_T_BLOCK_BEGIN : XM_T_VAR_BEGIN, at, 2,
                  NULL))
        return -1;
    return read_tag_tokens(l, kind == '%', begin);
}

int xm_jtokenize(xm_jinterp *interp, const char *source, size_t size,
                 xm_jtokens *out)
{
    struct lexer l = { .interp = interp,
                       .out = out,
                       .at = source,
                       .end = source + size,
                       .counted = source,
                       .line = 1,
                       .line_start = 1 };
    while (l.at < l.end)
        if (read_next_part(&l, source))
            return -1;
    return add_token(&l, XM_T_EOF, l.end, 0, NULL);
}
