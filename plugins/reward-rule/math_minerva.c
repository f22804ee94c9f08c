/* SPDX-License-Identifier: Apache-2.0
 *
 * Normalises answers as Minerva does; DAPO adopted the same rules.
 */
#include <string.h>

#include "plugins/reward-rule/math_strip.h"

static const char *const replaced[][2] = {
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

static void copy_back(rule_buffer *s, const rule_buffer *out)
{
    memcpy(s->data, out->data, out->size);
    s->size = out->size;
    s->full = out->full;
}

static size_t measure_line(rule_text text)
{
    return rule_seek(text, "\n");
}

/* Cuts each line that has two "$" down to the part from one to the other. */
static void keep_between_dollars(rule_buffer *s, rule_buffer *out)
{
    rule_text rest = rule_buffer_text(s);
    out->size = 0;
    while (rest.size) {
        size_t size = measure_line(rest);
        rule_text line = { rest.data, size };
        size_t open = rule_seek(line, "$");
        rule_text inner = rule_text_from(line, open + 1);
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
        rest = rule_text_from(rest, size + 1);
    }
    copy_back(s, out);
}

/* Replaces command{x} by x if the brace is closed on its line, by the next "}"
 * or, with `widest`, by the last one of the line. */
static void unwrap_command(rule_buffer *s, const char *command, int widest,
                           rule_buffer *out)
{
    rule_text rest = rule_buffer_text(s);
    size_t at = rule_seek(rest, command);
    out->size = 0;
    while (at < rest.size) {
        size_t first = at + strlen(command);
        rule_text inner = rule_text_from(rest, first);
        inner.size = measure_line(inner);
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
        rest = rule_text_from(rest, first);
        at = rule_seek(rest, command);
    }
    rule_buffer_add(out, rest.data, rest.size);
    copy_back(s, out);
}

static void add_group(rule_buffer *out, rule_text text)
{
    rule_buffer_puts(out, "{");
    rule_buffer_add(out, text.data, text.size);
    rule_buffer_puts(out, "}");
}

/* Expands frac12 to frac{1}{2} and sqrt2 to sqrt{2}. */
static void expand_shorthand(rule_buffer *s, const char *word, int arguments,
                             rule_buffer *out)
{
    rule_text rest = rule_buffer_text(s);
    size_t at = rule_seek(rest, word);
    out->size = 0;
    while (at < rest.size) {
        rule_text tail = rule_text_from(rest, at + strlen(word));
        rule_text one = { tail.data, rule_char_size(tail) };
        rule_text left = rule_text_from(tail, one.size);
        rule_text two = { left.data, rule_char_size(left) };
        int fits = one.size && *one.data != '{' &&
                   (arguments == 1 || (two.size && *two.data != '\n'));
        rule_buffer_add(out, rest.data, at + strlen(word));
        if (fits) {
            add_group(out, one);
            tail = left;
        }
        if (fits && arguments == 2) {
            add_group(out, two);
            tail = rule_text_from(left, two.size);
        }
        rest = tail;
        at = rule_seek(rest, word);
    }
    rule_buffer_add(out, rest.data, rest.size);
    copy_back(s, out);
}

static void join_digit_groups(rule_buffer *s, rule_buffer *scratch)
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
    for (size_t i = 0; replaced[i][0]; i++)
        rule_buffer_replace(s, replaced[i][0], replaced[i][1], scratch);
    for (size_t i = 0; removed[i]; i++)
        rule_buffer_replace(s, removed[i], "", scratch);
    scratch->full = s->full;
    keep_between_dollars(s, scratch);
    unwrap_command(s, "\\text{", 0, scratch);
    unwrap_command(s, "\\textbf{", 0, scratch);
    unwrap_command(s, "\\overline{", 0, scratch);
    unwrap_command(s, "\\boxed{", 1, scratch);
    expand_shorthand(s, "frac", 2, scratch);
    expand_shorthand(s, "sqrt", 1, scratch);
    rule_buffer_replace(s, "$", "", scratch);
    join_digit_groups(s, scratch);
}

void rule_strip_dapo(rule_buffer *s, rule_buffer *scratch)
{
    rule_strip_minerva(s, scratch);
    rule_buffer_trim(s);
}
