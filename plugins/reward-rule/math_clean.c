/* SPDX-License-Identifier: Apache-2.0
 *
 * Cleans the text of an answer of spacing, delimiters and signs that carry no
 * meaning.
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
    { "\\lbrack", "[" },
    { "\\rbrack", "]" },
    { "\\vert", "|" },
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

/* Returns the name of the command whose backslash is at the front. */
static rule_text read_command_name(rule_text text)
{
    rule_text name = rule_text_from(text, 1);
    size_t size = 0;
    while (size < name.size && rule_ascii_letter(name.data[size]))
        size++;
    name.size = size;
    return name;
}

static int is_size_command(rule_text name)
{
    for (size_t i = 0; sizes[i]; i++)
        if (rule_equal(name, rule_text_of(sizes[i]), 0))
            return 1;
    return 0;
}

static void skip_bytes(cleaner *c, size_t size)
{
    c->rest = rule_text_from(c->rest, size);
}

static int follows_digit(const cleaner *c)
{
    return c->out->size && rule_ascii_digit(c->out->data[c->out->size - 1]);
}

/* Drops a separator of thousands that LaTeX writes in a special way. */
static int clean_thousands(cleaner *c)
{
    static const char *const marks[] = { "{,}", ",\\!", "\\,", NULL };
    for (size_t i = 0; marks[i]; i++) {
        if (!rule_begins(c->rest, marks[i]))
            continue;
        rule_text next = rule_text_from(c->rest, strlen(marks[i]));
        while (next.size && *next.data == ' ')
            next = rule_text_from(next, 1);
        if (!next.size || !rule_ascii_digit(*next.data) || !follows_digit(c))
            continue;
        c->rest = next;
        return 1;
    }
    return 0;
}

/* Keeps \\ as a row break in an environment. Elsewhere it is one backslash too
 * many before a command, or a line break. */
static int clean_row_break(cleaner *c)
{
    if (!rule_begins(c->rest, "\\\\"))
        return 0;
    rule_text next = rule_text_from(c->rest, 2);
    if (c->environment && !rule_begins(next, "end{")) {
        rule_buffer_puts(c->out, "\\\\");
        skip_bytes(c, 2);
    } else if (next.size && rule_ascii_letter(*next.data)) {
        skip_bytes(c, 1);
    } else {
        rule_buffer_puts(c->out, " ");
        skip_bytes(c, 2);
    }
    return 1;
}

static int clean_spacing(cleaner *c)
{
    if (*c->rest.data != '\\')
        return 0;
    rule_text name = read_command_name(c->rest);
    if (rule_begins(name, "quad") && name.size == 5)
        name.size = 4; /* the space after \quad is missing */
    if (!is_size_command(name))
        return 0;
    skip_bytes(c, name.size + 1);
    int delimiter = rule_begins(name, "left") || rule_begins(name, "right");
    if (delimiter && c->rest.size && *c->rest.data == '.')
        skip_bytes(c, 1);
    rule_buffer_puts(c->out, " ");
    return 1;
}

static int clean_sign(cleaner *c)
{
    char first = *c->rest.data;
    if (rule_ascii_letter(first) || rule_ascii_digit(first) || first == ' ')
        return 0;
    for (size_t i = 0; signs[i][0]; i++)
        if (first == *signs[i][0] && rule_begins(c->rest, signs[i][0])) {
            rule_buffer_puts(c->out, signs[i][1]);
            skip_bytes(c, strlen(signs[i][0]));
            return 1;
        }
    return 0;
}

static int is_closing_mark(char c)
{
    return c == '.' || c == ',' || c == ';' || c == ':' || c == '*';
}

/* Returns 1 if the text ends in a mark that does not belong to a command. */
static int ends_in_closing_mark(rule_text text)
{
    return text.size && is_closing_mark(text.data[text.size - 1]) &&
           (text.size == 1 || text.data[text.size - 2] != '\\');
}

void rule_clean(rule_text text, rule_buffer *out)
{
    cleaner c = { rule_trim(text), out, 0 };
    out->size = 0;
    out->full = 0;
    while (c.rest.size && (*c.rest.data == '*' || *c.rest.data == ':'))
        skip_bytes(&c, 1);
    while (ends_in_closing_mark(c.rest))
        c.rest.size--;
    while (c.rest.size && !out->full) {
        if (clean_row_break(&c) || clean_thousands(&c) || clean_spacing(&c) ||
            clean_sign(&c))
            continue;
        c.environment += rule_begins(c.rest, "\\begin");
        if (rule_begins(c.rest, "\\end") && c.environment)
            c.environment--;
        size_t size = 1;
        if (*c.rest.data == '\\')
            size += read_command_name(c.rest).size;
        if (size == 1 && *c.rest.data == '\\' && c.rest.size > 1)
            size = 2;
        rule_buffer_add(out, c.rest.data, size);
        skip_bytes(&c, size);
    }
    rule_buffer_trim(out);
    while (out->size && is_closing_mark(out->data[out->size - 1])) {
        out->size--;
        rule_buffer_trim(out);
    }
}
