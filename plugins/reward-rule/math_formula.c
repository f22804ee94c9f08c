/* SPDX-License-Identifier: Apache-2.0
 *
 * Finds formulas between delimiters, single or joined by commas and words.
 */
#include <string.h>

#include "plugins/reward-rule/math_find.h"

void rule_scan_open(rule_scan *scan, rule_text text)
{
    memset(scan, 0, sizeof(*scan));
    scan->text = text;
    for (int i = 0; i < RULE_MARKS; i++)
        scan->asked[i] = (size_t)-1;
    scan->run_from = (size_t)-1;
}

static size_t seek_mark(rule_text text, int mark, size_t from)
{
    static const char *const marks[] = { "$$",  "$",  "\\]",
                                         "\\)", "\n", "\\boxed{" };
    for (;;) {
        size_t at = from + rule_seek(rule_text_from(text, from), marks[mark]);
        int escaped = mark == RULE_MARK_DOLLAR && at < text.size && at &&
                      text.data[at - 1] == '\\';
        if (!escaped || at >= text.size)
            return at;
        from = at + 1;
    }
}

/* Returns the offset of the next mark from `from` on, or text.size. */
static size_t find_next_mark(rule_scan *scan, int mark, size_t from)
{
    if (from >= scan->text.size)
        return scan->text.size;
    int known = scan->asked[mark] <= from && from <= scan->found[mark];
    if (!known) {
        scan->found[mark] = seek_mark(scan->text, mark, from);
        scan->asked[mark] = from;
    }
    return scan->found[mark];
}

static char get_char_at(const rule_scan *scan, size_t at)
{
    return at < scan->text.size ? scan->text.data[at] : '\0';
}

static char get_char_before(const rule_scan *scan, size_t at)
{
    return at ? scan->text.data[at - 1] : '\0';
}

/* Reads the content from `first` to the closing mark. Fails if the mark is
 * missing, is escaped, leaves no content, or, with `one_line`, is on another
 * line. */
static int find_close(rule_scan *scan, size_t first, int mark, int one_line,
                      rule_text *out)
{
    size_t close = find_next_mark(scan, mark, first);
    if (close >= scan->text.size || close == first ||
        get_char_before(scan, close) == '\\')
        return 0;
    if (one_line && find_next_mark(scan, RULE_MARK_LINE, first) < close)
        return 0;
    *out = (rule_text){ scan->text.data + first, close - first };
    return 1;
}

static size_t measure_decimal(rule_text text)
{
    size_t size = rule_begins(text, "-") ? 1 : 0;
    size_t first = size;
    while (size < text.size && rule_ascii_digit(text.data[size]))
        size++;
    if (size == first)
        return 0;
    size_t mark = size;
    if (mark + 1 < text.size &&
        (text.data[mark] == '.' || text.data[mark] == ',') &&
        rule_ascii_digit(text.data[mark + 1])) {
        size = mark + 1;
        while (size < text.size && rule_ascii_digit(text.data[size]))
            size++;
    }
    return size;
}

/* Reads \frac{3}{4} of two numbers, which needs no delimiters. */
static int read_bare_fraction(const rule_scan *scan, size_t at,
                              rule_formula *out)
{
    rule_text text = rule_text_from(scan->text, at);
    size_t size = rule_begins(text, "-") ? 1 : 0;
    if (!rule_begins(rule_text_from(text, size), "\\frac"))
        return 0;
    size += 5;
    for (int i = 0; i < 2; i++) {
        rule_text rest = rule_text_from(text, size);
        if (!rule_begins(rest, "{"))
            return 0;
        size_t digits = measure_decimal(rule_text_from(rest, 1));
        if (!digits || !rule_begins(rule_text_from(rest, digits + 1), "}"))
            return 0;
        size += digits + 2;
    }
    out->inside = (rule_text){ text.data, size };
    out->end = at + size;
    return 1;
}

/* Reads [x] between white space. */
static int read_bracketed(const rule_scan *scan, size_t at, rule_formula *out)
{
    if (!rule_ascii_space(get_char_at(scan, at)) ||
        get_char_at(scan, at + 1) != '[')
        return 0;
    size_t close = at + 2;
    while (close < scan->text.size && !strchr("[]\n", get_char_at(scan, close)))
        close++;
    if (close == at + 2 || get_char_at(scan, close) != ']' ||
        !rule_ascii_space(get_char_at(scan, close + 1)))
        return 0;
    out->inside = (rule_text){ scan->text.data + at + 2, close - at - 2 };
    out->end = close + 2;
    return 1;
}

static int read_delimited(rule_scan *scan, size_t at, rule_formula *out)
{
    rule_text rest = rule_text_from(scan->text, at);
    char before = get_char_before(scan, at);
    size_t width = 2;
    int found = 0;
    if (!rest.size || (*rest.data != '$' && *rest.data != '\\') ||
        before == '\\')
        return 0;
    if (rule_begins(rest, "$$"))
        found = find_close(scan, at + 2, RULE_MARK_DISPLAY, 0, &out->inside);
    else if (rule_begins(rest, "\\["))
        found = find_close(scan, at + 2, RULE_MARK_SQUARE, 0, &out->inside);
    else if (rule_begins(rest, "\\("))
        found = find_close(scan, at + 2, RULE_MARK_ROUND, 1, &out->inside);
    else if (*rest.data == '$' && !rule_ascii_digit(before)) {
        found = find_close(scan, at + 1, RULE_MARK_DOLLAR, 1, &out->inside);
        width = 1;
    }
    if (found)
        out->end = (size_t)(out->inside.data - scan->text.data) +
                   out->inside.size + width;
    return found;
}

/* Returns 1 if the formula holds a box that is not empty. */
static int holds_box(rule_scan *scan, rule_text inside)
{
    size_t first = (size_t)(inside.data - scan->text.data);
    size_t at = find_next_mark(scan, RULE_MARK_BOX, first);
    if (at + 9 > first + inside.size)
        return 0;
    rule_text rest = rule_text_from(inside, at - first + 8);
    return rule_seek(rest, "}") < rest.size;
}

static size_t skip_spaces(const rule_scan *scan, size_t at)
{
    while (rule_ascii_space(get_char_at(scan, at)))
        at++;
    return at;
}

/* Takes a percent sign, or a word for it, after the formula. */
static void take_percent(const rule_scan *scan, rule_formula *out)
{
    static const char *const words[] = { "\\%", "%",   "Percent", "percent",
                                         "Pct", "pct", NULL };
    size_t at = skip_spaces(scan, out->end);
    out->percent = 0;
    for (size_t i = 0; words[i]; i++)
        if (rule_begins(rule_text_from(scan->text, at), words[i])) {
            out->percent = 1;
            out->end = at + strlen(words[i]);
            return;
        }
    /* The white space belongs to the match even without a percent sign. */
    out->end = at;
}

static int read_formula(rule_scan *scan, size_t at, int boxed,
                        rule_formula *out)
{
    char c = get_char_at(scan, at);
    if (c != '$' && c != '\\' && c != '-' && !rule_ascii_space(c))
        return 0;
    int found = read_delimited(scan, at, out) ||
                read_bracketed(scan, at, out) ||
                (!boxed && read_bare_fraction(scan, at, out));
    if (!found || (boxed && !holds_box(scan, out->inside)))
        return 0;
    take_percent(scan, out);
    return 1;
}

/* Returns the offset past a comma, "and", "or", or a comma directly followed by
 * one of these words, or 0. */
static size_t skip_joint(const rule_scan *scan, size_t at)
{
    rule_text rest;
    at = skip_spaces(scan, at);
    size_t comma = get_char_at(scan, at) == ',';
    rest = rule_text_from(scan->text, at + comma);
    if (rule_begins(rest, "and"))
        return at + comma + 3;
    if (rule_begins(rest, "or"))
        return at + comma + 2;
    return comma ? at + 1 : 0;
}

unsigned rule_formulas_at(rule_scan *scan, size_t at, int boxed,
                          rule_formula out[RULE_CHAIN])
{
    unsigned count = 0;
    while (count < RULE_CHAIN && read_formula(scan, at, boxed, &out[count])) {
        size_t joint = skip_joint(scan, out[count].end);
        count++;
        if (!joint)
            break;
        at = skip_spaces(scan, joint);
        if (at > joint && get_char_at(scan, at) == '[')
            at--;
    }
    return count;
}
