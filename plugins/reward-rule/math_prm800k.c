/* SPDX-License-Identifier: Apache-2.0
 *
 * Compares answers as PRM800K's grader does (openai/prm800k,
 * grading/grader.py).
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "plugins/reward-rule/math.h"

static const char *const replaced[][2] = {
    { "\\%", "%" },
    { "\\$", "$" },
    { "$", "" },
    { "%", "" },
    { " or ", " , " },
    { " and ", " , " },
    { "million", "*10^6" },
    { "billion", "*10^9" },
    { "trillion", "*10^12" },
    { NULL, NULL },
};

static const char *const units[] = {
    "degree", "cm",   "centimeter", "meter", "mile",  "second",
    "minute", "hour", "day",        "week",  "month", "year",
    "foot",   "feet", "inch",       "yard",  NULL,
};

static void copy_back(rule_buffer *s, const rule_buffer *out)
{
    memcpy(s->data, out->data, out->size);
    s->size = out->size;
    s->full = s->full || out->full;
}

static void keep_range(rule_buffer *s, size_t first, size_t size)
{
    memmove(s->data, s->data + first, size);
    s->size = size;
}

static size_t count_spaces(rule_text text)
{
    size_t count = 0;
    while (count < text.size && text.data[count] == ' ')
        count++;
    return count;
}

static size_t count_digits(rule_text text)
{
    size_t count = 0;
    while (count < text.size && rule_ascii_digit(text.data[count]))
        count++;
    return count;
}

/* Returns the bytes of a plural, spaces and a power after a unit. */
static size_t measure_unit_tail(rule_text rest)
{
    size_t size = 0;
    if (rule_begins(rest, "es"))
        size = 2;
    if (rule_begins(rule_text_from(rest, size), "s"))
        size++;
    size += count_spaces(rule_text_from(rest, size));
    if (rule_begins(rule_text_from(rest, size), "^")) {
        size_t power = count_digits(rule_text_from(rest, size + 1));
        size += power ? power + 1 : 0;
    }
    return size;
}

static void drop_unit(rule_buffer *s, const char *unit, rule_buffer *out)
{
    rule_text rest = rule_buffer_text(s);
    size_t at = rule_seek(rest, unit);
    out->size = 0;
    out->full = 0;
    while (at < rest.size) {
        rule_buffer_add(out, rest.data, at);
        rest = rule_text_from(rest, at + strlen(unit));
        rest = rule_text_from(rest, measure_unit_tail(rest));
        at = rule_seek(rest, unit);
    }
    rule_buffer_add(out, rest.data, rest.size);
    copy_back(s, out);
}

/* Replaces `first`, spaces and `last`, which may be "", with `by`. */
static void replace_spaced(rule_buffer *s, const char *first, const char *last,
                           const char *by, rule_buffer *out)
{
    rule_text rest = rule_buffer_text(s);
    out->size = 0;
    out->full = 0;
    while (rest.size) {
        size_t size = strlen(first);
        size_t gap = rule_begins(rest, first)
                         ? count_spaces(rule_text_from(rest, size))
                         : 0;
        if (rule_begins(rest, first) &&
            rule_begins(rule_text_from(rest, size + gap), last)) {
            rule_buffer_puts(out, by);
            rest = rule_text_from(rest, size + gap + strlen(last));
            continue;
        }
        rule_buffer_add(out, rest.data, 1);
        rest = rule_text_from(rest, 1);
    }
    copy_back(s, out);
}

/* Returns 1 and the value if the text is a number to Python's float(). */
static int read_float(rule_text text, double *out)
{
    text = rule_trim(text);
    int negative = text.size && *text.data == '-';
    if (negative || (text.size && *text.data == '+'))
        text = rule_text_from(text, 1);
    size_t whole = count_digits(text);
    size_t point = whole < text.size && text.data[whole] == '.';
    size_t decimals = point ? count_digits(rule_text_from(text, whole + 1)) : 0;
    rule_text tail = rule_text_from(text, whole + point + decimals);
    if (!whole && !decimals)
        return 0;
    if (tail.size && (*tail.data == 'e' || *tail.data == 'E')) {
        tail = rule_text_from(tail, 1);
        if (tail.size && (*tail.data == '-' || *tail.data == '+'))
            tail = rule_text_from(tail, 1);
        if (!count_digits(tail))
            return 0;
        tail = rule_text_from(tail, count_digits(tail));
    }
    rule_ratio ratio;
    if (tail.size || !rule_ratio_parse(&ratio, text))
        return 0;
    *out = negative ? -rule_ratio_real(&ratio) : rule_ratio_real(&ratio);
    return 1;
}

static int is_near_integer(double value)
{
    return fabs(value) < 1e15 && fabs(value - round(value)) <= 1e-7;
}

static void put_integer(rule_buffer *s, double value)
{
    char text[40];
    (void)snprintf(text, sizeof(text), "%.0f", value);
    rule_buffer_set(s, rule_text_of(strcmp(text, "-0") == 0 ? "0" : text));
}

/* Drops commas after a digit and before exactly three digits. */
static void drop_group_commas(rule_buffer *s)
{
    size_t kept = 0;
    rule_text text = rule_buffer_text(s);
    for (size_t i = 0; i < text.size; i++) {
        int group = text.data[i] == ',' && i > 0 &&
                    rule_ascii_digit(text.data[i - 1]) &&
                    count_digits(rule_text_from(text, i + 1)) == 3;
        if (!group)
            s->data[kept++] = text.data[i];
    }
    s->size = kept;
}

static int read_integer(rule_text text, rule_buffer *scratch, double *out)
{
    rule_buffer_set(scratch, text);
    drop_group_commas(scratch);
    return read_float(rule_buffer_text(scratch), out) && is_near_integer(*out);
}

static void unwrap_text(rule_buffer *s)
{
    static const char open[] = "\\text{";
    const size_t size = sizeof(open) - 1;
    if (rule_begins(rule_buffer_text(s), open) && s->size > size + 1 &&
        s->data[s->size - 1] == '}' && !memchr(s->data, '\n', s->size))
        keep_range(s, size, s->size - size - 1);
}

/* Replaces 7 3/4 by 7+3/4. */
static void join_mixed(rule_buffer *s, rule_buffer *out)
{
    rule_text rest = rule_buffer_text(s);
    out->size = 0;
    out->full = 0;
    while (rest.size) {
        size_t gap = rule_ascii_digit(*rest.data)
                         ? count_spaces(rule_text_from(rest, 1))
                         : 0;
        rule_buffer_add(out, rest.data, 1);
        if (gap && count_digits(rule_text_from(rest, 1 + gap))) {
            rule_buffer_puts(out, "+");
            rule_buffer_add(out, rest.data + 1 + gap, 1);
            rest = rule_text_from(rest, gap + 1);
        }
        rest = rule_text_from(rest, 1);
    }
    copy_back(s, out);
}

static void make_lower(rule_buffer *s)
{
    for (size_t i = 0; i < s->size; i++)
        if (s->data[i] >= 'A' && s->data[i] <= 'Z')
            s->data[i] = (char)(s->data[i] - 'A' + 'a');
}

static void normalize_answer(rule_buffer *s, rule_buffer *scratch)
{
    double value = 0;
    unwrap_text(s);
    for (size_t i = 0; replaced[i][0]; i++)
        rule_buffer_replace(s, replaced[i][0], replaced[i][1], scratch);
    for (size_t i = 0; units[i]; i++)
        drop_unit(s, units[i], scratch);
    replace_spaced(s, "^", "\\circ", "", scratch);
    if (s->size > 1 && *s->data == '{' && s->data[s->size - 1] == '}')
        keep_range(s, 1, s->size - 2);
    replace_spaced(s, ",\\!", "", "", scratch);
    if (read_float(rule_buffer_text(s), &value) && is_near_integer(value))
        put_integer(s, value);
    if (memchr(s->data, '\\', s->size)) {
        rule_latex_to_text(rule_buffer_text(s), scratch);
        copy_back(s, scratch);
        rule_buffer_trim(s);
    }
    replace_spaced(s, "-", "", "-", scratch);
    join_mixed(s, scratch);
    rule_buffer_replace(s, " ", "", scratch);
    rule_buffer_replace(s, "{", "", scratch);
    rule_buffer_replace(s, "}", "", scratch);
    make_lower(s);
    if (read_integer(rule_buffer_text(s), scratch, &value))
        put_integer(s, value);
}

/* Returns 1 for a fraction such as -12/5. Two fractions are equal only if their
 * texts are, so that both must be reduced alike. */
static int is_fraction(rule_text text)
{
    if (rule_begins(text, "-"))
        text = rule_text_from(text, 1);
    size_t top = count_digits(text);
    if (!top)
        return 0;
    text = rule_text_from(text, top);
    if (text.size && *text.data != '/')
        text = rule_text_from(text, rule_char_size(text));
    if (!rule_begins(text, "/"))
        return 0;
    text = rule_text_from(text, 1);
    size_t bottom = count_digits(text);
    int nonzero = 0;
    for (size_t i = 0; i < bottom; i++)
        nonzero |= text.data[i] != '0';
    text = rule_text_from(text, bottom);
    return nonzero && text.size == rule_char_size(text);
}

/* Returns 1 if the original would pass the text to sympy, which it does not do
 * with long powers. Adds the letters that occur, because there may be at most
 * two. */
static int may_evaluate(rule_text text, uint64_t *letters, unsigned *others)
{
    for (size_t i = 0; i < text.size; i++) {
        rule_text rest = rule_text_from(text, i);
        if (rule_begins(rest, "sqrt") || rule_begins(rest, "frac")) {
            i += 3;
            continue;
        }
        if (rule_begins(rest, "^(") || rule_begins(rest, "^{"))
            return 0;
        size_t power =
            *rest.data == '^' ? count_digits(rule_text_from(rest, 1)) : 0;
        if (power > 1 ||
            (power && rule_begins(rule_text_from(rest, 1 + power), "^")))
            return 0;
        if (rule_ascii_letter(*rest.data))
            *letters |= (uint64_t)1 << (*rest.data & 31);
        *others += ((unsigned char)*rest.data & 0xC0) == 0xC0;
    }
    return 1;
}

static int equal_values(rule_math *m, rule_text truth, rule_text given)
{
    uint64_t letters = 0;
    unsigned count = 0;
    static const rule_equality exact = { .single = 1 };
    if (!may_evaluate(truth, &letters, &count) ||
        !may_evaluate(given, &letters, &count))
        return 0;
    for (; letters; letters &= letters - 1)
        count++;
    return count <= 2 && rule_seek(truth, ",") == truth.size &&
           rule_seek(given, ",") == given.size &&
           rule_math_equal(m, truth, given, &exact);
}

static int is_bracket(char c)
{
    return c == '(' || c == ')' || c == '[' || c == ']';
}

/* Returns the content of a tuple without further brackets, or else the text. */
static rule_text get_tuple_content(rule_text text, int *out_tuple)
{
    *out_tuple = 0;
    if (text.size <= 2 || !is_bracket(*text.data) ||
        !is_bracket(text.data[text.size - 1]))
        return text;
    for (size_t i = 1; i + 1 < text.size; i++)
        if (is_bracket(text.data[i]))
            return text;
    *out_tuple = 1;
    return (rule_text){ text.data + 1, text.size - 2 };
}

static rule_text take_next_element(rule_text *rest, int tuple)
{
    size_t size = tuple ? rule_seek(*rest, ",") : rest->size;
    rule_text element = { rest->data, size };
    *rest = rule_text_from(*rest, size + 1);
    return rule_trim(element);
}

static int equal_elements(rule_math *m, rule_text truth, rule_text given)
{
    double value = 0;
    if (is_fraction(truth) && is_fraction(given))
        return rule_equal(truth, given, 0);
    if (read_integer(truth, &m->scratch, &value) !=
        read_integer(given, &m->scratch, &value))
        return 0;
    return equal_values(m, truth, given);
}

static int equal_tuples(rule_math *m, rule_text truth, rule_text given)
{
    int tuple = 0;
    int given_tuple = 0;
    rule_text a = get_tuple_content(truth, &tuple);
    rule_text b = get_tuple_content(given, &given_tuple);
    size_t count = tuple ? rule_count_text(a, ",") + 1 : 1;
    size_t given_count = given_tuple ? rule_count_text(b, ",") + 1 : 1;
    if (count != given_count)
        return 0;
    if (count > 1 && (*truth.data != *given.data ||
                      truth.data[truth.size - 1] != given.data[given.size - 1]))
        return 0;
    while (count-- > 0)
        if (!equal_elements(m, take_next_element(&a, tuple),
                            take_next_element(&b, given_tuple)))
            return 0;
    return 1;
}

int rule_equal_prm800k(rule_math *m, rule_text given, rule_text truth)
{
    rule_buffer_set(&m->a, given);
    rule_buffer_set(&m->b, truth);
    if (m->a.full || m->b.full)
        return rule_equal(given, truth, 0);
    rule_strip_prm800k(&m->a, &m->scratch);
    rule_strip_prm800k(&m->b, &m->scratch);
    if (rule_equal(rule_buffer_text(&m->a), rule_buffer_text(&m->b), 0))
        return 1;
    rule_buffer_set(&m->a, given);
    rule_buffer_set(&m->b, truth);
    normalize_answer(&m->a, &m->scratch);
    normalize_answer(&m->b, &m->scratch);
    if (m->a.full || m->b.full)
        return 0;
    if (rule_equal(rule_buffer_text(&m->a), rule_buffer_text(&m->b), 0))
        return 1;
    drop_group_commas(&m->a);
    drop_group_commas(&m->b);
    if (!m->a.size || !m->b.size)
        return 0;
    return equal_tuples(m, rule_buffer_text(&m->b), rule_buffer_text(&m->a));
}
