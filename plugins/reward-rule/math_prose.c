/* SPDX-License-Identifier: Apache-2.0
 *
 * Finds numbers in prose (1,234.5, 2,74, 50 percent) and sums of numbers
 * (3/4).
 */
#include <string.h>

#include "plugins/reward-rule/math_find.h"

static char get_char_at(const rule_scan *scan, size_t at)
{
    return at < scan->text.size ? scan->text.data[at] : '\0';
}

static size_t count_digits_at(const rule_scan *scan, size_t at)
{
    size_t count = 0;
    while (rule_ascii_digit(get_char_at(scan, at + count)))
        count++;
    return count;
}

/* Returns the offset past what must precede a number (the start of the text,
 * white space or "=") and past "**", or -1. */
static size_t skip_front(const rule_scan *scan, size_t at, int edge)
{
    if (!edge) {
        char c = get_char_at(scan, at);
        if (at >= scan->text.size || (c != '=' && !rule_ascii_space(c)))
            return (size_t)-1;
        at++;
    }
    return at + (rule_begins(rule_text_from(scan->text, at), "**") ? 2 : 0);
}

int rule_hopes_at(rule_text text, size_t at, size_t *out_end)
{
    at += rule_begins(rule_text_from(text, at), ".") ? 1 : 0;
    if (at < text.size && rule_ascii_space(text.data[at]))
        at++;
    *out_end = at + 6;
    return rule_begins(rule_text_from(text, at), "I hope");
}

static int check_tail(const rule_scan *scan, int tail, size_t *end)
{
    size_t at = *end;
    if (tail == RULE_TAIL_I_HOPE)
        return rule_hopes_at(scan->text, at, end);
    if (tail == RULE_TAIL_ANY)
        return 1;
    while (rule_ascii_space(get_char_at(scan, at)))
        at++;
    return get_char_at(scan, at) != '=';
}

/* ---- sums ---------------------------------------------------------------- */

#define MAX_SHORTER \
    64 /* shorter sums that are tried if the text after a sum does not fit */

/* Returns the bytes of a multiplication or division sign, or 0. */
static size_t measure_sign(rule_text text)
{
    return rule_begins(text, "\xC3\x97") || rule_begins(text, "\xC3\xB7") ? 2
                                                                          : 0;
}

static int is_operator(const rule_scan *scan, size_t at)
{
    char c = get_char_at(scan, at);
    return (c && strchr("+-*/^()", c)) ||
           measure_sign(rule_text_from(scan->text, at)) > 0;
}

/* Returns the bytes of a character that may occur in a sum, 0 for others. */
static size_t measure_sum_char(const rule_scan *scan, size_t at)
{
    char c = get_char_at(scan, at);
    if (at >= scan->text.size)
        return 0;
    if (rule_ascii_digit(c) || c == '.' || rule_ascii_space(c) ||
        (c && strchr("+-*/^()", c)))
        return 1;
    return measure_sign(rule_text_from(scan->text, at));
}

/* Returns the end of the mark that must follow a sum, or 0. */
static size_t find_sum_stop(const rule_scan *scan, size_t at)
{
    for (size_t stars = 2;; stars = 0) {
        if (!stars || rule_begins(rule_text_from(scan->text, at), "**")) {
            size_t end = at + stars;
            char c = get_char_at(scan, end);
            if (end >= scan->text.size)
                return end;
            if ((c && strchr(".,:)$", c)) || rule_ascii_space(c))
                return end + 1;
        }
        if (!stars)
            return 0;
    }
}

/* Measures the run of a sum's characters from `at` on. */
static void measure_sum_run(rule_scan *scan, size_t at)
{
    if (scan->run_from <= at && at < scan->run) {
        if (scan->run_first < at)
            scan->run_first = at;
    } else {
        size_t size = 0;
        scan->run_from = scan->run_first = scan->run = at;
        while ((size = measure_sum_char(scan, scan->run)) > 0)
            scan->run += size;
        scan->run_stop = scan->run;
        while (scan->run_stop > at && !find_sum_stop(scan, scan->run_stop))
            scan->run_stop--;
    }
    while (scan->run_first < scan->run && !is_operator(scan, scan->run_first))
        scan->run_first++;
}

static int read_sum_from(rule_scan *scan, size_t at, int tail, rule_prose *out)
{
    size_t first = at;
    at += get_char_at(scan, at) == '-';
    at += get_char_at(scan, at) == '(';
    at += get_char_at(scan, at) == '-';
    if (!rule_ascii_digit(get_char_at(scan, at)))
        return 0;
    measure_sum_run(scan, at + 1);
    if (scan->run_first >= scan->run)
        return 0;
    size_t least =
        scan->run_first + 1 +
        (measure_sign(rule_text_from(scan->text, scan->run_first)) ? 2 : 1);
    size_t end = scan->run_stop;
    for (int i = 0; end >= least && i < MAX_SHORTER; i++, end--) {
        size_t stop = find_sum_stop(scan, end);
        if (!stop || !check_tail(scan, tail, &stop))
            continue;
        out->value = (rule_text){ scan->text.data + first, end - first };
        out->sum = 1;
        out->decimal = 0;
        out->percent = 0;
        out->end = stop;
        return 1;
    }
    return 0;
}

int rule_sum_at(rule_scan *scan, size_t at, int tail, rule_prose *out)
{
    size_t first = skip_front(scan, at, 0);
    if (!at && read_sum_from(scan, skip_front(scan, 0, 1), tail, out))
        return 1;
    return first != (size_t)-1 && read_sum_from(scan, first, tail, out);
}

typedef struct reader {
    rule_text rest;
    int depth;
} reader;

static int parse_sum(reader *r);

static void skip_white_space(reader *r)
{
    while (r->rest.size && rule_ascii_space(*r->rest.data))
        r->rest = rule_text_from(r->rest, 1);
}

static int take_mark(reader *r, const char *mark)
{
    skip_white_space(r);
    if (!rule_begins(r->rest, mark))
        return 0;
    r->rest = rule_text_from(r->rest, strlen(mark));
    return 1;
}

static int parse_number(reader *r)
{
    size_t size = 0;
    size_t digits = 0;
    int point = 0;
    while (size < r->rest.size) {
        char c = r->rest.data[size];
        if (!rule_ascii_digit(c) && (c != '.' || point))
            break;
        digits += rule_ascii_digit(c) != 0;
        point |= c == '.';
        size++;
    }
    r->rest = rule_text_from(r->rest, size);
    return digits > 0;
}

static int parse_operand(reader *r)
{
    int signs = 0;
    while (take_mark(r, "+") || take_mark(r, "-"))
        if (++signs > RULE_DEPTH)
            return 0;
    if (!take_mark(r, "("))
        return parse_number(r);
    if (r->depth++ > RULE_DEPTH || !parse_sum(r) || !take_mark(r, ")"))
        return 0;
    r->depth--;
    return 1;
}

static int parse_sum(reader *r)
{
    static const char *const operators[] = {
        "**", "^", "*", "/", "+", "-", NULL
    };
    for (;;) {
        size_t i = 0;
        if (!parse_operand(r))
            return 0;
        while (operators[i] && !take_mark(r, operators[i]))
            i++;
        if (!operators[i])
            return 1;
    }
}

int rule_is_python_sum(rule_text sum)
{
    reader r = { sum, 0 };
    if (!parse_sum(&r))
        return 0;
    skip_white_space(&r);
    return r.rest.size == 0;
}

/* ---- numbers ------------------------------------------------------------- */

/* Returns the bytes of a currency sign: the dollar has one, the pound and the
 * yen have two, the baht and U+2080 to U+20BF have three. */
static size_t measure_currency(rule_text text)
{
    if (rule_begins(text, "$"))
        return 1;
    if (rule_begins(text, "\xC2\xA3") || rule_begins(text, "\xC2\xA5"))
        return 2;
    return rule_begins(text, "\xE2\x82") || rule_begins(text, "\xE0\xB8\xBF")
               ? 3
               : 0;
}

/* Returns the bytes of groups of three digits after the first digits. */
static size_t measure_groups(const rule_scan *scan, size_t at)
{
    size_t size = 0;
    while ((get_char_at(scan, at + size) == ',' ||
            get_char_at(scan, at + size) == ' ') &&
           count_digits_at(scan, at + size + 1) >= 3)
        size += 4;
    return size;
}

/* Returns the bytes of a number of the given form, or 0. Form 0 has groups of
 * three digits, form 1 has decimals, form 2 is an integer. */
static size_t measure_number(const rule_scan *scan, size_t first, int form)
{
    size_t at = first + (get_char_at(scan, first) == '-');
    size_t whole = count_digits_at(scan, at);
    if (form == 2)
        return whole ? at + whole - first : 0;
    if (form == 1) {
        char mark = get_char_at(scan, at + whole);
        size_t decimals = count_digits_at(scan, at + whole + 1);
        int fits = decimals && (mark == '.' || (mark == ',' && whole)) &&
                   (whole || at == first);
        return fits ? at + whole + 1 + decimals - first : 0;
    }
    if (!whole || whole > 3 || get_char_at(scan, at) == '0')
        return 0;
    size_t groups = measure_groups(scan, at + whole);
    if (!groups)
        return 0;
    size_t end = at + whole + groups;
    size_t decimals =
        get_char_at(scan, end) == '.' ? count_digits_at(scan, end + 1) : 0;
    return end + (decimals ? decimals + 1 : 0) - first;
}

static size_t find_percent_end(const rule_scan *scan, size_t at)
{
    static const char *const words[] = { "%",   "percent", "Percent",
                                         "pct", "Pct",     NULL };
    while (rule_ascii_space(get_char_at(scan, at)))
        at++;
    for (size_t i = 0; words[i]; i++)
        if (rule_begins(rule_text_from(scan->text, at), words[i]))
            return at + strlen(words[i]);
    return 0;
}

static int read_number_from(rule_scan *scan, size_t at, int tail,
                            rule_prose *out)
{
    at += measure_currency(rule_text_from(scan->text, at));
    for (int form = 0; form < 3; form++) {
        size_t size = measure_number(scan, at, form);
        if (!size)
            continue;
        size_t percent = find_percent_end(scan, at + size);
        out->value = (rule_text){ scan->text.data + at, size };
        out->sum = 0;
        out->decimal = form == 1;
        out->percent = percent > 0;
        out->end = percent ? percent : at + size;
        if (check_tail(scan, tail, &out->end))
            return 1;
    }
    return 0;
}

int rule_number_at(rule_scan *scan, size_t at, int tail, rule_prose *out)
{
    size_t first = skip_front(scan, at, 0);
    if (!at && read_number_from(scan, skip_front(scan, 0, 1), tail, out))
        return 1;
    return first != (size_t)-1 && read_number_from(scan, first, tail, out);
}
