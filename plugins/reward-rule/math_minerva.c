/* SPDX-License-Identifier: Apache-2.0
 *
 * Minerva's normalisation, which DAPO took over.
 */
#include <string.h>

#include "plugins/reward-rule/math_strip.h"

static const char *const changed[][2] = {
    { "an ", "" },          { "a ", "" },
    { ".$", "$" },          { "\\$", "" },
    { "\\ ", "" },          { " ", "" },
    { "mbox", "text" },     { ",\\text{and}", "," },
    { "\\text{and}", "," }, { "\\text{m}", "\\text{}" },
    { NULL, NULL },
};

static const char *const removed[] = {
    "square",     "ways",       "integers",  "dollars",      "mph",
    "inches",     "hours",      "km",        "units",        "\\ldots",
    "sue",        "points",     "feet",      "minutes",      "digits",
    "cents",      "degrees",    "cm",        "gm",           "pounds",
    "meters",     "meals",      "edges",     "students",     "childrentickets",
    "multiples",  "\\text{s}",  "\\text{.}", "\\text{\ns}",  "\\text{}^2",
    "\\text{}^3", "\\text{\n}", "\\text{}",  "\\mathrm{th}", "^\\circ",
    "^{\\circ}",  "\\;",        ",\\!",      "{,}",          "\"",
    "\\dots",     NULL,
};

static void take(rule_buffer *s, const rule_buffer *out)
{
    memcpy(s->data, out->data, out->size);
    s->size = out->size;
    s->full = out->full;
}

static size_t line_size(rule_text text)
{
    return rule_seek(text, "\n");
}

/* A line with two "$" is what stands between them, in "$". */
static void between_dollars(rule_buffer *s, rule_buffer *out)
{
    rule_text rest = rule_buffer_text(s);
    out->size = 0;
    while (rest.size) {
        size_t size = line_size(rest);
        rule_text line = { rest.data, size };
        size_t open = rule_seek(line, "$");
        rule_text inner = rule_from(line, open + 1);
        size_t close = rule_seek(inner, "$");
        if (open < line.size && close < inner.size) {
            rule_buffer_puts(out, "$");
            rule_buffer_add(out, inner.data, close);
            rule_buffer_puts(out, "$");
        } else {
            rule_buffer_add(out, line.data, line.size);
        }
        if (size < rest.size)
            rule_buffer_puts(out, "\n");
        rest = rule_from(rest, size + 1);
    }
    take(s, out);
}

/* command{x} is x, where the brace closes on its line: the next one, or the
 * last one of the line if `widest`. */
static void unwrap(rule_buffer *s, const char *command, int widest,
                   rule_buffer *out)
{
    rule_text rest = rule_buffer_text(s);
    size_t at = rule_seek(rest, command);
    out->size = 0;
    while (at < rest.size) {
        size_t first = at + strlen(command);
        rule_text inner = rule_from(rest, first);
        inner.size = line_size(inner);
        size_t close =
            widest ? rule_seek_last(inner, "}") : rule_seek(inner, "}");
        int found = close < inner.size;
        rule_buffer_add(out, rest.data, found ? at : first);
        if (found) {
            rule_buffer_add(out, inner.data, close);
            first += close + 1;
        } else if (widest) {
            rule_buffer_add(out, inner.data, inner.size);
            first += inner.size;
        }
        rest = rule_from(rest, first);
        at = rule_seek(rest, command);
    }
    rule_buffer_add(out, rest.data, rest.size);
    take(s, out);
}

static void put_group(rule_buffer *out, rule_text text)
{
    rule_buffer_puts(out, "{");
    rule_buffer_add(out, text.data, text.size);
    rule_buffer_puts(out, "}");
}

/* frac12 is frac{1}{2}; sqrt2 is sqrt{2}. */
static void shorthand(rule_buffer *s, const char *word, int arguments,
                      rule_buffer *out)
{
    rule_text rest = rule_buffer_text(s);
    size_t at = rule_seek(rest, word);
    out->size = 0;
    while (at < rest.size) {
        rule_text tail = rule_from(rest, at + strlen(word));
        rule_text one = { tail.data, rule_char_size(tail) };
        rule_text left = rule_from(tail, one.size);
        rule_text two = { left.data, rule_char_size(left) };
        int fits = one.size && *one.data != '{' &&
                   (arguments == 1 || (two.size && *two.data != '\n'));
        rule_buffer_add(out, rest.data, at + strlen(word));
        if (fits) {
            put_group(out, one);
            tail = left;
        }
        if (fits && arguments == 2) {
            put_group(out, two);
            tail = rule_from(left, two.size);
        }
        rest = tail;
        at = rule_seek(rest, word);
    }
    rule_buffer_add(out, rest.data, rest.size);
    take(s, out);
}

static void join_digits(rule_buffer *s, rule_buffer *scratch)
{
    size_t digits = 0;
    for (size_t i = 0; i < s->size; i++) {
        if (!rule_ascii_digit(s->data[i]) && s->data[i] != ',')
            return;
        digits += rule_ascii_digit(s->data[i]) != 0;
    }
    if (digits)
        rule_buffer_replace(s, ",", "", scratch);
}

void rule_strip_minerva(rule_buffer *s, rule_buffer *scratch)
{
    rule_text text = rule_buffer_text(s);
    size_t at = rule_seek_last(text, "=");
    if (at < text.size) {
        memmove(s->data, s->data + at + 1, s->size - at - 1);
        s->size -= at + 1;
    }
    scratch->full = s->full;
    for (size_t i = 0; changed[i][0]; i++)
        rule_buffer_replace(s, changed[i][0], changed[i][1], scratch);
    for (size_t i = 0; removed[i]; i++)
        rule_buffer_replace(s, removed[i], "", scratch);
    scratch->full = s->full;
    between_dollars(s, scratch);
    unwrap(s, "\\text{", 0, scratch);
    unwrap(s, "\\textbf{", 0, scratch);
    unwrap(s, "\\overline{", 0, scratch);
    unwrap(s, "\\boxed{", 1, scratch);
    shorthand(s, "frac", 2, scratch);
    shorthand(s, "sqrt", 1, scratch);
    rule_buffer_replace(s, "$", "", scratch);
    join_digits(s, scratch);
}

void rule_strip_dapo(rule_buffer *s, rule_buffer *scratch)
{
    rule_strip_minerva(s, scratch);
    rule_buffer_trim(s);
}
