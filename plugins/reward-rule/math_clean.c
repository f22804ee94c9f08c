/* SPDX-License-Identifier: Apache-2.0
 *
 * The text of an answer without what has no meaning in it.
 */
#include <string.h>

#include "plugins/reward-rule/math_tree.h"

typedef struct cleaner {
    rule_text rest;
    rule_buffer *out;
    int environment; /* depth of \begin */
} cleaner;

static const char *const signs[][2] = {
    { "\xE2\x88\x92", "-" },
    { "\xE2\x80\x93", "-" },
    { "\xC3\x97", "\\times " },
    { "\xC2\xB7", "\\cdot " },
    { "\xE2\x8B\x85", "\\cdot " },
    { "\xC3\xB7", "\\div " },
    { "\xCF\x80", "\\pi " },
    { "\xE2\x88\x9E", "\\infty " },
    { "\xE2\x88\x9A", "\\sqrt " },
    { "\xE2\x89\xA4", "\\le " },
    { "\xE2\x89\xA5", "\\ge " },
    { "\xE2\x89\xA0", "\\ne " },
    { "\xE2\x89\x88", "\\approx " },
    { "\xC2\xB1", "\\pm " },
    { "\xE2\x88\x93", "\\mp " },
    { "\xC2\xB0", "\\degree " },
    { "\xC2\xB2", "^2" },
    { "\xC2\xB3", "^3" },
    { "\xE2\x88\xAA", "\\cup " },
    { "\xE2\x88\xA9", "\\cap " },
    { "\xE2\x88\x88", "\\in " },
    { "\xC2\xBD", "\\frac12 " },
    { "\xC2\xBC", "\\frac14 " },
    { "\xC2\xBE", "\\frac34 " },
    { "\xEF\xBC\x8C", "," },
    { "\xE2\x84\x9D", "\\mathbb{R}" },
    { "\xE2\x88\x85", "\\emptyset " },
    { "\xC2\xA0", " " },
    { "\xE2\x80\x89", " " },
    { "\xE2\x80\xAF", " " },
    { "\xE2\x82\xAC", "" },
    { "\xC2\xA3", "" },
    { "\xC2\xA5", "" },
    { "\xE2\x80\x9C", "" },
    { "\xE2\x80\x9D", "" },
    { "^\\circ", "\\degree " },
    { "^{\\circ}", "\\degree " },
    { "^ \\circ", "\\degree " },
    { "^{\\degree}", "\\degree " },
    { "\\textdegree", "\\degree " },
    { "\\lbrace", "\\{" },
    { "\\rbrace", "\\}" },
    { "\\$", "" },
    { "$", " " },
    { "\\%", "%" },
    { "\\!", "" },
    { "\\,", " " },
    { "\\;", " " },
    { "\\:", " " },
    { "\\ ", " " },
    { "\\>", " " },
    { "\\\n", " " },
    { "~", " " },
    { "**", "^" },
    { "<=", "\\le " },
    { ">=", "\\ge " },
    { "!=", "\\ne " },
    { "==", "=" },
    { ":=", "=" },
    { "\"", "" },
    { "\t", " " },
    { "\n", " " },
    { "\r", " " },
    { "\v", " " },
    { "\f", " " },
    { NULL, NULL },
};

static const char *const sizes[] = {
    "left",         "right",     "big",         "Big",       "bigg",
    "Bigg",         "bigl",      "bigr",        "Bigl",      "Bigr",
    "biggl",        "biggr",     "Biggl",       "Biggr",     "middle",
    "displaystyle", "textstyle", "scriptstyle", "limits",    "nolimits",
    "quad",         "qquad",     "enspace",     "thinspace", NULL,
};

/* Letters of the command behind the backslash at the front. */
static rule_text command(rule_text text)
{
    rule_text name = rule_from(text, 1);
    size_t size = 0;
    while (size < name.size && rule_ascii_letter(name.data[size]))
        size++;
    name.size = size;
    return name;
}

static int is_size(rule_text name)
{
    for (size_t i = 0; sizes[i]; i++)
        if (rule_equal(name, rule_text_of(sizes[i]), 0))
            return 1;
    return 0;
}

static void skip(cleaner *c, size_t size)
{
    c->rest = rule_from(c->rest, size);
}

static int after_digit(const cleaner *c)
{
    return c->out->size && rule_ascii_digit(c->out->data[c->out->size - 1]);
}

/* A comma between thousands that TeX writes in a special way. */
static int thousands(cleaner *c)
{
    static const char *const marks[] = { "{,}", ",\\!", "\\,", NULL };
    for (size_t i = 0; marks[i]; i++) {
        if (!rule_begins(c->rest, marks[i]))
            continue;
        rule_text next = rule_from(c->rest, strlen(marks[i]));
        while (next.size && *next.data == ' ')
            next = rule_from(next, 1);
        if (!next.size || !rule_ascii_digit(*next.data) || !after_digit(c))
            continue;
        c->rest = next;
        return 1;
    }
    return 0;
}

/* \\ is a new row in an environment, else a backslash too many or a new
 * line. */
static int new_row(cleaner *c)
{
    if (!rule_begins(c->rest, "\\\\"))
        return 0;
    rule_text next = rule_from(c->rest, 2);
    if (c->environment && !rule_begins(next, "end{")) {
        rule_buffer_puts(c->out, "\\\\");
        skip(c, 2);
    } else if (next.size && rule_ascii_letter(*next.data)) {
        skip(c, 1);
    } else {
        rule_buffer_puts(c->out, " ");
        skip(c, 2);
    }
    return 1;
}

static int spacing(cleaner *c)
{
    if (*c->rest.data != '\\')
        return 0;
    rule_text name = command(c->rest);
    if (rule_begins(name, "quad") && name.size == 5)
        name.size = 4; /* a missing space behind it */
    if (!is_size(name))
        return 0;
    skip(c, name.size + 1);
    int delimiter = rule_begins(name, "left") || rule_begins(name, "right");
    if (delimiter && c->rest.size && *c->rest.data == '.')
        skip(c, 1);
    rule_buffer_puts(c->out, " ");
    return 1;
}

static int sign(cleaner *c)
{
    char first = *c->rest.data;
    if (rule_ascii_letter(first) || rule_ascii_digit(first) || first == ' ')
        return 0;
    for (size_t i = 0; signs[i][0]; i++)
        if (first == *signs[i][0] && rule_begins(c->rest, signs[i][0])) {
            rule_buffer_puts(c->out, signs[i][1]);
            skip(c, strlen(signs[i][0]));
            return 1;
        }
    return 0;
}

static int is_mark(char c)
{
    return c == '.' || c == ',' || c == ';' || c == ':' || c == '*';
}

/* 1 unless the mark belongs to a command. */
static int ends_in_mark(rule_text text)
{
    return text.size && is_mark(text.data[text.size - 1]) &&
           (text.size == 1 || text.data[text.size - 2] != '\\');
}

void rule_clean(rule_text text, rule_buffer *out)
{
    cleaner c = { rule_trim(text), out, 0 };
    out->size = 0;
    out->full = 0;
    while (c.rest.size && (*c.rest.data == '*' || *c.rest.data == ':'))
        skip(&c, 1);
    while (ends_in_mark(c.rest))
        c.rest.size--;
    while (c.rest.size && !out->full) {
        if (new_row(&c) || thousands(&c) || spacing(&c) || sign(&c))
            continue;
        c.environment += rule_begins(c.rest, "\\begin");
        if (rule_begins(c.rest, "\\end") && c.environment)
            c.environment--;
        size_t size = 1;
        if (*c.rest.data == '\\')
            size += command(c.rest).size;
        if (size == 1 && *c.rest.data == '\\' && c.rest.size > 1)
            size = 2;
        rule_buffer_add(out, c.rest.data, size);
        skip(&c, size);
    }
    rule_buffer_trim(out);
    while (out->size && is_mark(out->data[out->size - 1])) {
        out->size--;
        rule_buffer_trim(out);
    }
}
