/* SPDX-License-Identifier: Apache-2.0
 *
 * Parses numbers and what may follow an operand: units, percent signs and
 * factorials.
 */
#include <string.h>

#include "plugins/reward-rule/math_parse.h"

/* Short units. Any word of four or more letters after a number is a unit. */
static const char *const units[] = {
    "cm", "mm",  "km",  "nm",  "dm",  "kg",  "mg",  "lb", "lbs", "oz",
    "ft", "yd",  "mi",  "mph", "kph", "sec", "min", "hr", "hrs", "ml",
    "sq", "rad", "deg", "usd", "rs",  "am",  "pm",  NULL,
};

static const char *const text_commands[] = {
    "text",   "mbox",   "hbox",   "textrm", "textbf",       "textit", "textsf",
    "mathrm", "mathbf", "mathit", "mathsf", "operatorname", NULL,
};

int rule_is_text_command(rule_text name)
{
    for (size_t i = 0; text_commands[i]; i++)
        if (rule_equal(name, rule_text_of(text_commands[i]), 0))
            return 1;
    return 0;
}

static int is_listed_word(rule_text word, const char *const *list)
{
    for (size_t i = 0; list[i]; i++)
        if (rule_equal(word, rule_text_of(list[i]), 1))
            return 1;
    return 0;
}

static size_t count_digits(const rule_parser *p, const char *at)
{
    size_t count = 0;
    while (at + count < p->end && rule_ascii_digit(at[count]))
        count++;
    return count;
}

/* Returns the bytes of ",ddd" or " ddd" groups after the first digits. */
static size_t measure_groups(const rule_parser *p, const char *at, char mark)
{
    const char *c = at;
    while (c + 3 < p->end && *c == mark && count_digits(p, c + 1) == 3)
        c += 4;
    return (size_t)(c - at);
}

/* Returns the bytes of \overline{36} after a decimal point, or 0. */
static size_t measure_repeating(const rule_parser *p, const char *at)
{
    static const char open[] = "\\overline{";
    rule_text rest = { at, (size_t)(p->end - at) };
    if (!rule_begins(rest, open))
        return 0;
    size_t count = count_digits(p, at + sizeof(open) - 1);
    const char *close = at + sizeof(open) - 1 + count;
    return count && close < p->end && *close == '}' ? (size_t)(close + 1 - at)
                                                    : 0;
}

static size_t measure_exponent(const rule_parser *p, const char *at)
{
    if (at + 1 >= p->end || (*at != 'e' && *at != 'E'))
        return 0;
    size_t sign = at[1] == '-' || at[1] == '+';
    size_t count = count_digits(p, at + 1 + sign);
    return count ? 1 + sign + count : 0;
}

static size_t measure_number(const rule_parser *p)
{
    const char *c = p->at;
    size_t whole = count_digits(p, c);
    c += whole;
    if (whole && whole <= 3 && !p->brackets) {
        size_t commas = measure_groups(p, c, ',');
        c += commas ? commas : measure_groups(p, c, ' ');
    }
    if (c + 1 < p->end && *c == '.' && rule_ascii_digit(c[1])) {
        c += 1 + count_digits(p, c + 1);
        c += measure_repeating(p, c);
    } else if (c + 1 < p->end && *c == '.') {
        size_t tail = measure_repeating(p, c + 1);
        c += tail ? tail + 1 : 0;
    }
    return (size_t)(c - p->at) + measure_exponent(p, c);
}

/* Parses 1011_2. A numeral with a base is treated as a name. */
static uint16_t parse_numeral(rule_parser *p, const char *start)
{
    rule_text base = { p->at + 1, 0 };
    p->at++;
    rule_text group = rule_take_group(p);
    if (!group.data) {
        base.size = count_digits(p, base.data);
        if (!base.size)
            return rule_give_up(p);
        p->at = base.data + base.size;
    }
    return rule_new_name(p, (rule_text){ start, (size_t)(p->at - start) });
}

static uint16_t new_number(rule_parser *p, size_t size)
{
    uint16_t node = rule_new_node(p, RULE_NUMBER, 0, 0);
    if (!node)
        return 0;
    p->tree->node[node].text = (rule_text){ p->at, size };
    p->at += size;
    return node;
}

/* Parses the "3/4" of "7 3/4", or returns 0. */
static uint16_t parse_slash_fraction(rule_parser *p)
{
    size_t top = count_digits(p, p->at);
    const char *slash = p->at + top;
    if (!top || slash + 1 >= p->end || *slash != '/')
        return 0;
    size_t bottom = count_digits(p, slash + 1);
    if (!bottom)
        return 0;
    uint16_t a = new_number(p, top);
    p->at++;
    uint16_t b = new_number(p, bottom);
    return rule_new_node(p, RULE_DIVIDE, a, b);
}

static int is_fraction_command(rule_text name)
{
    return name.size >= 4 && name.size <= 5 &&
           rule_begins(rule_text_from(name, name.size - 4), "frac");
}

static int is_number_node(const rule_parser *p, uint16_t node)
{
    return node && p->tree->node[node].kind == RULE_NUMBER;
}

/* Parses the rest of 1\frac{1}{2} and 1 1/2, which are sums. */
static uint16_t parse_mixed_number(rule_parser *p, uint16_t whole)
{
    const char *start = p->at;
    rule_skip_spaces(p);
    uint16_t part = 0;
    if (is_fraction_command(rule_peek_command(p))) {
        p->at += rule_peek_command(p).size + 1;
        uint16_t top = rule_parse_argument(p);
        uint16_t bottom = rule_parse_argument(p);
        if (!top || !bottom)
            return rule_give_up(p);
        part = rule_new_node(p, RULE_DIVIDE, top, bottom);
        if (!is_number_node(p, top) || !is_number_node(p, bottom))
            return rule_new_node(p, RULE_MULTIPLY, whole, part);
    } else if (p->at > start) {
        part = parse_slash_fraction(p);
    }
    if (!part) {
        p->at = start;
        return whole;
    }
    return rule_new_node(p, RULE_ADD, whole, part);
}

uint16_t rule_parse_number(rule_parser *p)
{
    const char *start = p->at;
    size_t size = measure_number(p);
    if (!size)
        return rule_give_up(p);
    uint16_t node = new_number(p, size);
    if (!node)
        return 0;
    if (p->at < p->end && *p->at == '_')
        return parse_numeral(p, start);
    if (count_digits(p, start) == size)
        return parse_mixed_number(p, node);
    return node;
}

static uint16_t multiply_by(rule_parser *p, uint16_t node, const char *power)
{
    uint16_t number = rule_new_node(p, RULE_NUMBER, 0, 0);
    if (!number)
        return 0;
    p->tree->node[number].text = rule_text_of(power);
    return rule_new_node(p, RULE_MULTIPLY, node, number);
}

/* Applies a unit to its operand: returns the new node, or 0 if the word is not
 * a unit. With `known`, every other word is a unit that does not count. */
static uint16_t apply_unit(rule_parser *p, uint16_t node, rule_text word,
                           int known)
{
    static const char *const percent[] = { "percent", "pct", "percentage",
                                           NULL };
    if (is_listed_word(word, percent))
        return rule_new_node(p, RULE_PERCENT, node, 0);
    if (rule_equal(word, rule_text_of("million"), 1))
        return multiply_by(p, node, "1000000");
    if (rule_equal(word, rule_text_of("billion"), 1))
        return multiply_by(p, node, "1000000000");
    if (rule_equal(word, rule_text_of("trillion"), 1))
        return multiply_by(p, node, "1000000000000");
    if (rule_equal(word, rule_text_of("thousand"), 1))
        return multiply_by(p, node, "1000");
    return known || word.size >= 4 || is_listed_word(word, units) ? node : 0;
}

static void drop_power(rule_parser *p)
{
    if (rule_take(p, "^"))
        (void)rule_parse_argument(p);
}

static uint16_t parse_word_unit(rule_parser *p, uint16_t node)
{
    rule_text word = rule_peek_word(p);
    if (word.size < 2 || rule_separator(p, 0) || p->power ||
        (rule_contents(p->tree, node) & RULE_HAS_NAME))
        return 0;
    static const char *const functions[] = { "sqrt",   "sinh",   "cosh",
                                             "tanh",   "arcsin", "arccos",
                                             "arctan", NULL };
    if (is_listed_word(word, functions))
        return 0;
    uint16_t out = apply_unit(p, node, word, 0);
    if (!out)
        return 0;
    p->at += word.size;
    drop_power(p);
    return out;
}

static uint16_t parse_text_unit(rule_parser *p, uint16_t node)
{
    rule_text name = rule_peek_command(p);
    const char *start = p->at;
    if (!rule_is_text_command(name) || rule_separator(p, 0))
        return 0;
    p->at += name.size + 1;
    rule_text inside = rule_trim(rule_take_group(p));
    int letter = inside.size == 1 && rule_begins(name, "math");
    if (!inside.data || letter) {
        p->at = start;
        return 0;
    }
    uint16_t out = apply_unit(p, node, inside, 1);
    drop_power(p);
    return out;
}

static int drop_modulus(rule_parser *p)
{
    if (!rule_take(p, "\\pmod"))
        return 0;
    (void)rule_parse_argument(p);
    return 1;
}

uint16_t rule_parse_units(rule_parser *p, uint16_t node)
{
    for (int count = 0; !p->failed && node && count < RULE_DEPTH; count++) {
        rule_skip_spaces(p);
        uint16_t next = 0;
        if (rule_take(p, "%"))
            next = rule_new_node(p, RULE_PERCENT, node, 0);
        else if (rule_take(p, "\\degree"))
            next = rule_new_node(p, RULE_DEGREE, node, 0);
        else if (rule_take(p, "!"))
            next = rule_new_node(p, RULE_CALL, node, 0);
        else if (drop_modulus(p))
            next = node;
        else
            next = parse_word_unit(p, node);
        if (next && p->tree->node[next].kind == RULE_CALL && next != node)
            p->tree->node[next].op = RULE_FACTORIAL;
        if (!next)
            next = parse_text_unit(p, node);
        if (!next)
            break;
        node = next;
    }
    return node;
}
