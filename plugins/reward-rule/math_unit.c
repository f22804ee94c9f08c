/* SPDX-License-Identifier: Apache-2.0
 *
 * Numbers, and what stands behind an operand: units, percent, factorials.
 */
#include <string.h>

#include "plugins/reward-rule/math_parse.h"

/* Longer words behind a number are units anyway. */
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

static int is_word(rule_text word, const char *const *list)
{
    for (size_t i = 0; list[i]; i++)
        if (rule_equal(word, rule_text_of(list[i]), 1))
            return 1;
    return 0;
}

static size_t digits_at(const rule_parser *p, const char *at)
{
    size_t count = 0;
    while (at + count < p->end && rule_ascii_digit(at[count]))
        count++;
    return count;
}

/* Bytes of ",ddd" or " ddd" groups behind the first digits. */
static size_t groups_at(const rule_parser *p, const char *at, char mark)
{
    const char *c = at;
    while (c + 3 < p->end && *c == mark && digits_at(p, c + 1) == 3)
        c += 4;
    return (size_t)(c - at);
}

/* \overline{36} behind a decimal point. */
static size_t repeating_at(const rule_parser *p, const char *at)
{
    static const char open[] = "\\overline{";
    rule_text rest = { at, (size_t)(p->end - at) };
    if (!rule_begins(rest, open))
        return 0;
    size_t count = digits_at(p, at + sizeof(open) - 1);
    const char *close = at + sizeof(open) - 1 + count;
    return count && close < p->end && *close == '}' ? (size_t)(close + 1 - at)
                                                    : 0;
}

static size_t exponent_at(const rule_parser *p, const char *at)
{
    if (at + 1 >= p->end || (*at != 'e' && *at != 'E'))
        return 0;
    size_t sign = at[1] == '-' || at[1] == '+';
    size_t count = digits_at(p, at + 1 + sign);
    return count ? 1 + sign + count : 0;
}

static size_t number_size(const rule_parser *p)
{
    const char *c = p->at;
    size_t whole = digits_at(p, c);
    c += whole;
    if (whole && whole <= 3 && !p->brackets) {
        size_t commas = groups_at(p, c, ',');
        c += commas ? commas : groups_at(p, c, ' ');
    }
    if (c + 1 < p->end && *c == '.' && rule_ascii_digit(c[1])) {
        c += 1 + digits_at(p, c + 1);
        c += repeating_at(p, c);
    } else if (c + 1 < p->end && *c == '.') {
        size_t tail = repeating_at(p, c + 1);
        c += tail ? tail + 1 : 0;
    }
    return (size_t)(c - p->at) + exponent_at(p, c);
}

/* 1011_2: a numeral of a base is a name of its own. */
static uint16_t based(rule_parser *p, const char *start)
{
    rule_text base = { p->at + 1, 0 };
    p->at++;
    rule_text group = rule_take_group(p);
    if (!group.data) {
        base.size = digits_at(p, base.data);
        if (!base.size)
            return rule_give_up(p);
        p->at = base.data + base.size;
    }
    return rule_new_name(p, (rule_text){ start, (size_t)(p->at - start) });
}

static uint16_t plain_number(rule_parser *p, size_t size)
{
    uint16_t node = rule_new(p, RULE_NUMBER, 0, 0);
    if (!node)
        return 0;
    p->tree->node[node].text = (rule_text){ p->at, size };
    p->at += size;
    return node;
}

/* "3/4" behind "7 ". */
static uint16_t slash_part(rule_parser *p)
{
    size_t top = digits_at(p, p->at);
    const char *slash = p->at + top;
    if (!top || slash + 1 >= p->end || *slash != '/')
        return 0;
    size_t bottom = digits_at(p, slash + 1);
    if (!bottom)
        return 0;
    uint16_t a = plain_number(p, top);
    p->at++;
    uint16_t b = plain_number(p, bottom);
    return rule_new(p, RULE_DIVIDE, a, b);
}

static int is_fraction(rule_text name)
{
    return name.size >= 4 && name.size <= 5 &&
           rule_begins(rule_from(name, name.size - 4), "frac");
}

static int is_number(const rule_parser *p, uint16_t node)
{
    return node && p->tree->node[node].kind == RULE_NUMBER;
}

/* 1\frac{1}{2} and 1 1/2 are sums. */
static uint16_t mixed(rule_parser *p, uint16_t whole)
{
    const char *start = p->at;
    rule_skip_spaces(p);
    uint16_t part = 0;
    if (is_fraction(rule_peek_command(p))) {
        p->at += rule_peek_command(p).size + 1;
        uint16_t top = rule_parse_argument(p);
        uint16_t bottom = rule_parse_argument(p);
        if (!top || !bottom)
            return rule_give_up(p);
        part = rule_new(p, RULE_DIVIDE, top, bottom);
        if (!is_number(p, top) || !is_number(p, bottom))
            return rule_new(p, RULE_MULTIPLY, whole, part);
    } else if (p->at > start) {
        part = slash_part(p);
    }
    if (!part) {
        p->at = start;
        return whole;
    }
    return rule_new(p, RULE_ADD, whole, part);
}

uint16_t rule_parse_number(rule_parser *p)
{
    const char *start = p->at;
    size_t size = number_size(p);
    if (!size)
        return rule_give_up(p);
    uint16_t node = plain_number(p, size);
    if (!node)
        return 0;
    if (p->at < p->end && *p->at == '_')
        return based(p, start);
    if (digits_at(p, start) == size)
        return mixed(p, node);
    return node;
}

static uint16_t times_ten(rule_parser *p, uint16_t node, const char *power)
{
    uint16_t number = rule_new(p, RULE_NUMBER, 0, 0);
    if (!number)
        return 0;
    p->tree->node[number].text = rule_text_of(power);
    return rule_new(p, RULE_MULTIPLY, node, number);
}

/* A unit by its name: what becomes of the operand; 0 if it is no unit. */
static uint16_t unit(rule_parser *p, uint16_t node, rule_text word, int known)
{
    static const char *const percent[] = { "percent", "pct", "percentage",
                                           NULL };
    if (is_word(word, percent))
        return rule_new(p, RULE_PERCENT, node, 0);
    if (rule_equal(word, rule_text_of("million"), 1))
        return times_ten(p, node, "1000000");
    if (rule_equal(word, rule_text_of("billion"), 1))
        return times_ten(p, node, "1000000000");
    if (rule_equal(word, rule_text_of("trillion"), 1))
        return times_ten(p, node, "1000000000000");
    if (rule_equal(word, rule_text_of("thousand"), 1))
        return times_ten(p, node, "1000");
    return known || word.size >= 4 || is_word(word, units) ? node : 0;
}

static void drop_power(rule_parser *p)
{
    if (rule_take(p, "^"))
        (void)rule_parse_argument(p);
}

static uint16_t word_unit(rule_parser *p, uint16_t node)
{
    rule_text word = rule_peek_word(p);
    if (word.size < 2 || rule_separator(p, 0) || p->power ||
        (rule_contents(p->tree, node) & RULE_HAS_NAME))
        return 0;
    static const char *const functions[] = { "sqrt",   "sinh",   "cosh",
                                             "tanh",   "arcsin", "arccos",
                                             "arctan", NULL };
    if (is_word(word, functions))
        return 0;
    uint16_t out = unit(p, node, word, 0);
    if (!out)
        return 0;
    p->at += word.size;
    drop_power(p);
    return out;
}

static uint16_t text_unit(rule_parser *p, uint16_t node)
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
    uint16_t out = unit(p, node, inside, 1);
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
            next = rule_new(p, RULE_PERCENT, node, 0);
        else if (rule_take(p, "\\degree"))
            next = rule_new(p, RULE_DEGREE, node, 0);
        else if (rule_take(p, "!"))
            next = rule_new(p, RULE_CALL, node, 0);
        else if (drop_modulus(p))
            next = node;
        else
            next = word_unit(p, node);
        if (next && p->tree->node[next].kind == RULE_CALL && next != node)
            p->tree->node[next].op = RULE_FACTORIAL;
        if (!next)
            next = text_unit(p, node);
        if (!next)
            break;
        node = next;
    }
    return node;
}
