/* SPDX-License-Identifier: Apache-2.0
 *
 * Normalises answers as the graders of MATH and PRM800K do.
 */
#include "plugins/reward-rule/math_strip.h"

#include <string.h>

static const char *const plain[][2] = {
    { "\n", "" },        { "\\!", "" },       { "\\\\", "\\" },
    { "tfrac", "frac" }, { "dfrac", "frac" }, { "\\left", "" },
    { "\\right", "" },   { "^{\\circ}", "" }, { "^\\circ", "" },
    { "\\$", "" },       { NULL, NULL },
};

static void copy_back(rule_buffer *s, const rule_buffer *scratch)
{
    rule_buffer_set(s, rule_buffer_text(scratch));
    s->full = s->full || scratch->full;
}

static void keep_range(rule_buffer *s, size_t first, size_t size)
{
    memmove(s->data, s->data + first, size);
    s->size = size;
}

static size_t count_characters(rule_text text)
{
    size_t count = 0;
    while (text.size) {
        text = rule_text_from(text, rule_char_size(text));
        count++;
    }
    return count;
}

/* Cuts "x = 3" to "3" if at most two characters precede the only "=". */
static void drop_variable(rule_buffer *s)
{
    rule_text text = rule_buffer_text(s);
    if (rule_count_text(text, "=") != 1)
        return;
    size_t at = rule_seek(text, "=");
    if (count_characters((rule_text){ text.data, at }) <= 2)
        keep_range(s, at + 1, s->size - at - 1);
}

static void move_group(rule_buffer *out, rule_text *rest)
{
    size_t size = rule_char_size(*rest);
    rule_buffer_puts(out, "{");
    rule_buffer_add(out, rest->data, size);
    rule_buffer_puts(out, "}");
    *rest = rule_text_from(*rest, size);
}

/* Replaces \sqrt3 by \sqrt{3}. Returns 0 if nothing follows the command. */
static int fix_square_roots(rule_buffer *s, rule_buffer *out)
{
    rule_text rest = rule_buffer_text(s);
    size_t at = rule_seek(rest, "\\sqrt");
    out->size = 0;
    out->full = s->full;
    while (at < rest.size) {
        rule_buffer_add(out, rest.data, at + 5);
        rest = rule_text_from(rest, at + 5);
        if (!rest.size || rule_begins(rest, "\\sqrt"))
            return 0;
        if (*rest.data != '{')
            move_group(out, &rest);
        at = rule_seek(rest, "\\sqrt");
    }
    rule_buffer_add(out, rest.data, rest.size);
    copy_back(s, out);
    return 1;
}

/* Replaces \frac12 by \frac{1}{2} and \frac1{72} by \frac{1}{72}. If only one
 * character follows a command, the entire answer stays unchanged. */
static int fix_fractions(rule_buffer *s, rule_buffer *out)
{
    rule_text rest = rule_buffer_text(s);
    size_t at = rule_seek(rest, "\\frac");
    out->size = 0;
    out->full = s->full;
    while (at < rest.size) {
        rule_buffer_add(out, rest.data, at + 5);
        rest = rule_text_from(rest, at + 5);
        size_t next = rule_seek(rest, "\\frac");
        rule_text part = { rest.data, next };
        if (!part.size)
            return 0;
        if (*part.data != '{') {
            if (part.size == rule_char_size(part))
                return 1;
            move_group(out, &part);
            if (*part.data != '{')
                move_group(out, &part);
        }
        rule_buffer_add(out, part.data, part.size);
        rest = rule_text_from(rest, next);
        at = 0;
    }
    rule_buffer_add(out, rest.data, rest.size);
    copy_back(s, out);
    return 1;
}

/* Returns 1 if the text is an integer as Python prints it. */
static int is_python_integer(rule_text text)
{
    if (text.size > 1 && *text.data == '-') {
        text = rule_text_from(text, 1);
        if (*text.data == '0')
            return 0;
    }
    if (!text.size || (text.size > 1 && *text.data == '0'))
        return 0;
    for (size_t i = 0; i < text.size; i++)
        if (!rule_ascii_digit(text.data[i]))
            return 0;
    return 1;
}

static void fix_slash_fraction(rule_buffer *s, rule_buffer *out)
{
    rule_text text = rule_buffer_text(s);
    if (rule_count_text(text, "/") != 1)
        return;
    size_t at = rule_seek(text, "/");
    rule_text a = { text.data, at };
    rule_text b = rule_text_from(text, at + 1);
    if (!is_python_integer(a) || !is_python_integer(b))
        return;
    out->size = 0;
    out->full = s->full;
    rule_buffer_puts(out, "\\frac{");
    rule_buffer_add(out, a.data, a.size);
    rule_buffer_puts(out, "}{");
    rule_buffer_add(out, b.data, b.size);
    rule_buffer_puts(out, "}");
    copy_back(s, out);
}

int rule_strip_hendrycks(rule_buffer *s, rule_buffer *scratch)
{
    for (size_t i = 0; plain[i][0]; i++)
        rule_buffer_replace(s, plain[i][0], plain[i][1], scratch);
    size_t units = rule_count_text(rule_buffer_text(s), "\\text{ ");
    if (units > 1)
        return 0;
    if (units)
        s->size = rule_seek(rule_buffer_text(s), "\\text{ ");
    rule_buffer_replace(s, "\\%", "", scratch);
    rule_buffer_replace(s, " .", " 0.", scratch);
    rule_buffer_replace(s, "{.", "{0.", scratch);
    if (!s->size)
        return 1;
    if (*s->data == '.') {
        scratch->size = 0;
        scratch->full = s->full;
        rule_buffer_puts(scratch, "0");
        rule_buffer_add(scratch, s->data, s->size);
        copy_back(s, scratch);
    }
    drop_variable(s);
    if (!fix_square_roots(s, scratch))
        return 0;
    rule_buffer_replace(s, " ", "", scratch);
    if (!fix_fractions(s, scratch))
        return 0;
    if (rule_equal(rule_buffer_text(s), rule_text_of("0.5"), 0))
        rule_buffer_set(s, rule_text_of("\\frac{1}{2}"));
    fix_slash_fraction(s, scratch);
    return 1;
}

void rule_strip_prm800k(rule_buffer *s, rule_buffer *scratch)
{
    static const char open[] = "\\text{";
    const size_t size = sizeof(open) - 1;
    rule_buffer_trim(s);
    rule_text text = rule_buffer_text(s);
    if (rule_begins(text, open) && text.size > size + 1 &&
        text.data[text.size - 1] == '}' &&
        !memchr(text.data, '\n', text.size)) {
        keep_range(s, size, s->size - size - 1);
        rule_buffer_trim(s);
    }
    rule_buffer before = *s;
    if (!rule_strip_hendrycks(s, scratch))
        rule_buffer_set(s, rule_buffer_text(&before));
}

int rule_equal_hendrycks(rule_text x, rule_text y, rule_buffer *a,
                         rule_buffer *b, rule_buffer *scratch)
{
    rule_buffer_set(a, x);
    rule_buffer_set(b, y);
    int ok = rule_strip_hendrycks(a, scratch) &&
             rule_strip_hendrycks(b, scratch) && !a->full && !b->full;
    if (!ok)
        return rule_equal(x, y, 0);
    return rule_equal(rule_buffer_text(a), rule_buffer_text(b), 0);
}
