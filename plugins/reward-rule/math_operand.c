/* SPDX-License-Identifier: Apache-2.0
 *
 * Parses the operands of math: names, functions, brackets and LaTeX commands.
 */
#include <string.h>

#include "plugins/reward-rule/math_parse.h"

static const struct {
    const char *name;
    int op;
} functions[] = {
    { "sin", RULE_SIN },
    { "cos", RULE_COS },
    { "tan", RULE_TAN },
    { "cot", RULE_COT },
    { "sec", RULE_SEC },
    { "csc", RULE_CSC },
    { "tg", RULE_TAN },
    { "ctg", RULE_COT },
    { "arcsin", RULE_ARCSIN },
    { "arccos", RULE_ARCCOS },
    { "arctan", RULE_ARCTAN },
    { "asin", RULE_ARCSIN },
    { "acos", RULE_ARCCOS },
    { "atan", RULE_ARCTAN },
    { "sinh", RULE_SINH },
    { "cosh", RULE_COSH },
    { "tanh", RULE_TANH },
    { "ln", RULE_LN },
    { "log", RULE_LOG },
    { "lg", RULE_LOG },
    { "exp", RULE_EXP },
    { "abs", RULE_ABS },
    { "floor", RULE_FLOOR },
    { "ceil", RULE_CEIL },
    { NULL, 0 },
};

static int find_function(rule_text name)
{
    for (size_t i = 0; functions[i].name; i++)
        if (rule_equal(name, rule_text_of(functions[i].name), 0))
            return functions[i].op;
    return -1;
}

static uint16_t new_hashed_name(rule_parser *p, rule_text text, uint64_t hash)
{
    uint16_t node = rule_new_node(p, RULE_NAME, 0, 0);
    uint16_t name = rule_tree_name(p->tree, hash);
    if (!node || name == RULE_NAMES)
        return rule_give_up(p);
    p->tree->node[node].name = (uint8_t)name;
    p->tree->node[node].text = text;
    return node;
}

uint16_t rule_new_name(rule_parser *p, rule_text text)
{
    return new_hashed_name(p, text, rule_hash_name(text));
}

static uint16_t new_constant(rule_parser *p, char which)
{
    uint16_t node = rule_new_node(p, RULE_CONSTANT, 0, 0);
    p->tree->node[node].op = (uint8_t)which;
    return node;
}

/* Makes a name of a word. Names that differ only in case are the same name. */
static uint16_t new_word_name(rule_parser *p, rule_text word)
{
    return new_hashed_name(p, word, rule_hash_word(word));
}

/* Turns `node`, the content of a pair of brackets, into a tuple if it is a
 * list. */
static uint16_t make_bracketed(rule_parser *p, uint16_t node, char open,
                               char close)
{
    if (!node)
        return rule_give_up(p);
    int list = p->tree->node[node].kind == RULE_LIST;
    if (!list) {
        int pair = (open == '(' && close == ')') ||
                   (open == '[' && close == ']') || open == '<';
        return pair ? node : rule_give_up(p);
    }
    p->tree->node[node].kind = RULE_TUPLE;
    p->tree->node[node].op = (uint8_t)open;
    p->tree->node[node].close = (uint8_t)close;
    return node;
}

/* Parses the list after an opening bracket. */
static uint16_t parse_inside_brackets(rule_parser *p, int bar)
{
    int old_bar = p->bar;
    int old_power = p->power;
    p->bar = bar;
    p->power = 0;
    p->brackets++;
    uint16_t node = rule_parse_list(p);
    p->brackets--;
    p->bar = old_bar;
    p->power = old_power;
    return node;
}

static uint16_t parse_bracket(rule_parser *p, char open)
{
    uint16_t node = parse_inside_brackets(p, 0);
    if (p->failed)
        return 0;
    if (open == '<')
        return rule_take(p, "\\rangle") ? make_bracketed(p, node, open, '>')
                                        : rule_give_up(p);
    if (rule_take(p, ")"))
        return make_bracketed(p, node, open, ')');
    if (rule_take(p, "]"))
        return make_bracketed(p, node, open, ']');
    return rule_give_up(p);
}

static uint16_t make_set_node(rule_parser *p, uint16_t node)
{
    if (node && p->tree->node[node].kind == RULE_LIST) {
        p->tree->node[node].kind = RULE_SET;
        return node;
    }
    return rule_new_node(p, RULE_SET, node, 0);
}

/* Parses the conditions of {x | x > 3}. A comma between them means "and", and
 * {x \in [0, 9] | x > 3} has another one before the bar. */
static uint16_t parse_conditions(rule_parser *p, uint16_t member)
{
    int kind = p->tree->node[member].kind;
    uint16_t node = parse_inside_brackets(p, 0);
    if (!node || !rule_take(p, "\\}") ||
        (kind != RULE_NAME && kind != RULE_CHAIN))
        return rule_give_up(p);
    if (p->tree->node[node].kind == RULE_LIST)
        p->tree->node[node].op = 'a';
    if (kind == RULE_CHAIN && !rule_is_any_real(p->tree, member)) {
        node = rule_new_node(p, RULE_LIST, member, node);
        p->tree->node[node].op = 'a';
    }
    return node;
}

static uint16_t parse_set(rule_parser *p)
{
    uint16_t node = parse_inside_brackets(p, 1);
    if (p->failed)
        return 0;
    if (rule_take(p, "|") || rule_take(p, "\\mid"))
        return node ? parse_conditions(p, node) : rule_give_up(p);
    return rule_take(p, "\\}") ? make_set_node(p, node) : rule_give_up(p);
}

static uint16_t new_call_node(rule_parser *p, int op, uint16_t a, uint16_t b)
{
    if (!a)
        return rule_give_up(p);
    uint16_t node = rule_new_node(p, RULE_CALL, a, b);
    p->tree->node[node].op = (uint8_t)op;
    return node;
}

static uint16_t parse_enclosed(rule_parser *p, const char *close, int op)
{
    uint16_t node = parse_inside_brackets(p, *close == '|');
    if (p->failed || !rule_take(p, close))
        return rule_give_up(p);
    return new_call_node(p, op, node, 0);
}

/* Parses {x}. A list between the braces is a set. */
static uint16_t parse_group(rule_parser *p)
{
    rule_text inside = rule_take_group(p);
    if (!inside.data)
        return rule_give_up(p);
    uint16_t node = rule_parse_inside(p, inside);
    if (node && p->tree->node[node].kind == RULE_LIST)
        return make_set_node(p, node);
    return node ? node : rule_give_up(p);
}

static uint16_t parse_command(rule_parser *p);

uint16_t rule_parse_argument(rule_parser *p)
{
    rule_skip_spaces(p);
    if (p->at == p->end || p->depth > RULE_DEPTH)
        return rule_give_up(p);
    if (*p->at == '{')
        return parse_group(p);
    if (*p->at == '\\') {
        p->depth++;
        uint16_t node = parse_command(p);
        p->depth--;
        return node;
    }
    rule_text one = { p->at, rule_char_size(rule_rest(p)) };
    p->at += one.size;
    return rule_parse_inside(p, one);
}

/* Parses what follows "^", which may also be -1, 12 or (x). */
static uint16_t parse_exponent(rule_parser *p)
{
    rule_skip_spaces(p);
    const char *start = p->at;
    const char *c = start;
    while (c < p->end && (rule_ascii_digit(*c) || (c == start && *c == '-')))
        c++;
    if (c > start && rule_ascii_digit(c[-1])) {
        p->at = c;
        return rule_parse_inside(p, (rule_text){ start, (size_t)(c - start) });
    }
    if (c > start)
        return rule_give_up(p);
    if (rule_take(p, "("))
        return parse_bracket(p, '(');
    return rule_parse_argument(p);
}

static int find_inverse(int op)
{
    return op == RULE_SIN   ? RULE_ARCSIN
           : op == RULE_COS ? RULE_ARCCOS
           : op == RULE_TAN ? RULE_ARCTAN
                            : -1;
}

static uint16_t parse_function_argument(rule_parser *p)
{
    rule_skip_spaces(p);
    if (rule_take(p, "("))
        return parse_bracket(p, '(');
    if (p->depth++ > RULE_DEPTH)
        return rule_give_up(p);
    p->power++;
    uint16_t node = rule_parse_term(p);
    p->power--;
    p->depth--;
    return node;
}

static uint16_t parse_function(rule_parser *p, int op)
{
    uint16_t base = 0;
    uint16_t exponent = 0;
    for (int i = 0; i < 2; i++) {
        if (op == RULE_LOG && rule_take(p, "_"))
            base = rule_parse_argument(p);
        if (!rule_take(p, "^"))
            continue;
        rule_text rest = rule_rest(p);
        if (find_inverse(op) >= 0 &&
            (rule_begins(rest, "{-1}") || rule_begins(rest, "-1"))) {
            p->at += *rest.data == '{' ? 4 : 2;
            op = find_inverse(op);
        } else {
            exponent = parse_exponent(p);
        }
    }
    uint16_t node = new_call_node(p, op, parse_function_argument(p), base);
    return exponent && !p->failed ? rule_new_node(p, RULE_POWER, node, exponent)
                                  : node;
}

/* Parses subscripts and primes of the name that starts at `start`. A subscript
 * with an operator, such as n-k, makes the name a function of it. */
static uint16_t parse_subscripted_name(rule_parser *p, const char *start)
{
    rule_text name = { start, (size_t)(p->at - start) };
    uint16_t index = 0;
    while (p->at < p->end && (*p->at == '_' || *p->at == '\'')) {
        if (*p->at++ == '\'')
            continue;
        rule_text group = rule_take_group(p);
        if (!group.data) {
            rule_text command = rule_peek_command(p);
            p->at +=
                command.size ? command.size + 1 : rule_char_size(rule_rest(p));
            continue;
        }
        int counts = 0;
        for (size_t i = 0; i < group.size; i++)
            counts |= strchr("+-*/(", group.data[i]) != NULL;
        if (counts && !index)
            index = rule_parse_inside(p, group);
    }
    if (p->failed)
        return 0;
    if (!index)
        name.size = (size_t)(p->at - start);
    uint16_t node = rule_new_name(p, name);
    if (!index || !node)
        return node;
    p->tree->node[node].kind = RULE_OPAQUE;
    rule_tree_append(p->tree, node, index);
    return node;
}

static uint16_t parse_application(rule_parser *p, uint16_t node)
{
    if (!rule_take(p, "("))
        return node;
    uint16_t arguments = parse_bracket(p, '(');
    if (!arguments)
        return 0;
    p->tree->node[node].kind = RULE_OPAQUE;
    rule_tree_append(p->tree, node, arguments);
    return node;
}

static uint16_t parse_letter_name(rule_parser *p)
{
    const char *start = p->at;
    char letter = *start;
    p->at += rule_char_size(rule_rest(p));
    int bare = p->at == p->end || (*p->at != '_' && *p->at != '\'');
    if (bare && (letter == 'e' || letter == 'i'))
        return new_constant(p, letter);
    uint16_t node = parse_subscripted_name(p, start);
    if (node && letter && strchr("fgh", letter) &&
        p->tree->node[node].kind == RULE_NAME)
        return parse_application(p, node);
    return node;
}

static uint16_t parse_word(rule_parser *p)
{
    rule_text word = rule_peek_word(p);
    int op = find_function(word);
    rule_text shorter = { word.data, word.size ? word.size - 1 : 0 };
    if (op < 0 && word.size > 2)
        op = find_function(shorter);
    else
        shorter = word;
    if (op >= 0) {
        p->at += shorter.size;
        return parse_function(p, op);
    }
    if (rule_equal(word, rule_text_of("sqrt"), 0)) {
        p->at += word.size;
        uint16_t node =
            rule_take(p, "(") ? parse_bracket(p, '(') : rule_parse_argument(p);
        return node ? rule_new_node(p, RULE_ROOT, node, 0) : rule_give_up(p);
    }
    int infinite = rule_equal(word, rule_text_of("inf"), 1) ||
                   rule_equal(word, rule_text_of("infinity"), 1) ||
                   rule_equal(word, rule_text_of("oo"), 0);
    int pi = rule_equal(word, rule_text_of("pi"), 0);
    if (infinite || pi || word.size >= 4)
        p->at += word.size;
    if (infinite || pi)
        return new_constant(p, pi ? 'p' : 'o');
    return word.size >= 4 ? new_word_name(p, word) : parse_letter_name(p);
}

static uint16_t parse_text(rule_parser *p)
{
    rule_text group = rule_take_group(p);
    rule_text inside = rule_trim(group);
    if (!group.data)
        return rule_give_up(p);
    if (!inside.size)
        return rule_parse_factor(p);
    int choice =
        inside.size == 3 && *inside.data == '(' && inside.data[2] == ')';
    if (choice)
        inside = (rule_text){ inside.data + 1, 1 };
    if (inside.size == 1 || strchr("0123456789-.\\", *inside.data))
        return rule_parse_inside(p, inside);
    rule_skip_spaces(p);
    if (p->at < p->end && rule_ascii_digit(*p->at))
        return rule_parse_factor(p); /* words before a number */
    return new_word_name(p, inside);
}

/* Parses \sum_{k=0}^{n} x and similar operators as a function of their limits
 * and their body. */
static uint16_t parse_big_operator(rule_parser *p, rule_text name)
{
    uint16_t node = 0;
    if (rule_equal(name, rule_text_of("lim"), 0) && rule_take(p, "_")) {
        rule_text where = rule_take_group(p);
        node = where.data ? rule_new_name(p, where) : rule_give_up(p);
    } else {
        node = rule_new_name(p, name);
    }
    while (!p->failed && (rule_take(p, "_") || rule_take(p, "^")))
        rule_tree_append(p->tree, node, rule_parse_argument(p));
    uint16_t body = p->failed ? 0 : rule_parse_term(p);
    if (!body)
        return rule_give_up(p);
    p->tree->node[node].kind = RULE_OPAQUE;
    rule_tree_append(p->tree, node, body);
    return node;
}

static int is_one_of(rule_text name, const char *const *list)
{
    for (size_t i = 0; list[i]; i++)
        if (rule_equal(name, rule_text_of(list[i]), 0))
            return 1;
    return 0;
}

static uint16_t parse_root(rule_parser *p)
{
    uint16_t degree = 0;
    rule_skip_spaces(p);
    if (rule_take(p, "[")) {
        rule_text rest = rule_rest(p);
        size_t close = rule_seek(rest, "]");
        if (close == rest.size)
            return rule_give_up(p);
        p->at += close + 1;
        degree = rule_parse_inside(p, (rule_text){ rest.data, close });
        if (!degree)
            return rule_give_up(p);
    }
    uint16_t node =
        rule_take(p, "(") ? parse_bracket(p, '(') : rule_parse_argument(p);
    return node ? rule_new_node(p, RULE_ROOT, node, degree) : rule_give_up(p);
}

static uint16_t parse_pair(rule_parser *p, int kind)
{
    uint16_t a = rule_parse_argument(p);
    uint16_t b = p->failed ? 0 : rule_parse_argument(p);
    if (!a || !b)
        return rule_give_up(p);
    return kind == RULE_CALL ? new_call_node(p, RULE_BINOMIAL, a, b)
                             : rule_new_node(p, kind, a, b);
}

static const struct {
    const char *name;
    const char *close;
    int op;
} pairs[] = {
    { "lfloor", "\\rfloor", RULE_FLOOR },
    { "lceil", "\\rceil", RULE_CEIL },
    { "lvert", "\\rvert", RULE_ABS },
    { NULL, NULL, 0 },
};

static uint16_t parse_structure(rule_parser *p, rule_text name)
{
    static const char *const fractions[] = { "frac", "dfrac", "tfrac", "cfrac",
                                             NULL };
    static const char *const binomials[] = { "binom", "dbinom", "tbinom",
                                             NULL };
    static const char *const marked[] = {
        "mathbb",  "mathcal",   "overline",       "vec",        "bar", "hat",
        "widehat", "underline", "overrightarrow", "boldsymbol", NULL
    };
    static const char *const big[] = { "sum",    "prod", "int", "lim", "bigcup",
                                       "bigcap", "min",  "max", "gcd", NULL };
    const char *start = name.data;
    if (is_one_of(name, fractions))
        return parse_pair(p, RULE_DIVIDE);
    if (is_one_of(name, binomials))
        return parse_pair(p, RULE_CALL);
    if (rule_is_text_command(name))
        return parse_text(p);
    if (is_one_of(name, big))
        return parse_big_operator(p, name);
    if (is_one_of(name, marked)) {
        if (!rule_take_group(p).data)
            p->at += rule_char_size(rule_rest(p));
        return parse_subscripted_name(p, start);
    }
    return parse_subscripted_name(p, start);
}

static uint16_t parse_command(rule_parser *p)
{
    rule_text name = rule_peek_command(p);
    static const char *const transparent[] = { "boxed", "fbox", NULL };
    static const char *const prefixes[] = { "angle", "triangle", "circ",
                                            "measuredangle", NULL };
    if (!name.size)
        return rule_take(p, "\\{") ? parse_set(p) : rule_give_up(p);
    p->at += name.size + 1;
    for (size_t i = 0; pairs[i].name; i++)
        if (rule_equal(name, rule_text_of(pairs[i].name), 0))
            return parse_enclosed(p, pairs[i].close, pairs[i].op);
    if (find_function(name) >= 0)
        return parse_function(p, find_function(name));
    if (rule_equal(name, rule_text_of("sqrt"), 0))
        return parse_root(p);
    if (rule_equal(name, rule_text_of("pi"), 0))
        return new_constant(p, 'p');
    if (rule_equal(name, rule_text_of("infty"), 0))
        return new_constant(p, 'o');
    if (rule_equal(name, rule_text_of("langle"), 0))
        return parse_bracket(p, '<');
    if (rule_equal(name, rule_text_of("begin"), 0))
        return rule_parse_environment(p);
    if (rule_equal(name, rule_text_of("emptyset"), 0) ||
        rule_equal(name, rule_text_of("varnothing"), 0))
        return rule_new_node(p, RULE_SET, 0, 0);
    if (is_one_of(name, transparent))
        return parse_group(p);
    if (is_one_of(name, prefixes))
        return rule_parse_factor(p);
    return parse_structure(p, name);
}

static uint16_t parse_base(rule_parser *p)
{
    rule_skip_spaces(p);
    if (p->at == p->end)
        return rule_give_up(p);
    char c = *p->at;
    if (rule_ascii_digit(c) || c == '.')
        return rule_parse_number(p);
    if (rule_ascii_letter(c))
        return parse_word(p);
    if (c == '{')
        return parse_group(p);
    if (c == '\\')
        return parse_command(p);
    if (((unsigned char)c & 0x80) != 0)
        return parse_letter_name(p);
    p->at++;
    if (c == '(' || c == '[')
        return parse_bracket(p, c);
    return c == '|' ? parse_enclosed(p, "|", RULE_ABS) : rule_give_up(p);
}

uint16_t rule_parse_factor(rule_parser *p)
{
    if (p->depth++ > RULE_DEPTH)
        return rule_give_up(p);
    uint16_t node = rule_parse_units(p, parse_base(p));
    for (int count = 0; !p->failed && rule_take(p, "^"); count++) {
        uint16_t exponent = parse_exponent(p);
        if (!exponent || count > RULE_DEPTH)
            return rule_give_up(p);
        node = rule_new_node(p, RULE_POWER, node, exponent);
        node = rule_parse_units(p, node);
    }
    p->depth--;
    return p->failed ? 0 : node;
}

static int starts_command(rule_parser *p)
{
    static const char *const never[] = {
        "cdot",       "times",      "div",      "ast",       "pm",    "mp",
        "cup",        "cap",        "setminus", "backslash", "le",    "leq",
        "ge",         "geq",        "leqslant", "geqslant",  "lt",    "gt",
        "ne",         "neq",        "approx",   "simeq",     "equiv", "in",
        "over",       "choose",     "bmod",     "mod",       "end",   "rangle",
        "rfloor",     "rceil",      "rvert",    "notin",     "to",    "mid",
        "Rightarrow", "rightarrow", "implies",  NULL,
    };
    rule_text name = rule_peek_command(p);
    if (!name.size || is_one_of(name, never))
        return 0;
    return !p->power || find_function(name) < 0;
}

int rule_starts_factor(rule_parser *p)
{
    rule_skip_spaces(p);
    if (p->at == p->end || rule_separator(p, 0))
        return 0;
    char c = *p->at;
    if (c == '\\')
        return starts_command(p);
    if (c == '(' || c == '[' || c == '|')
        return !p->power && (c != '|' || !p->bar);
    if (rule_ascii_letter(c) && p->power)
        return find_function(rule_peek_word(p)) < 0;
    if (rule_ascii_digit(c) && p->at[-1] == '!')
        return 1; /* 2!3! is a product */
    return rule_ascii_letter(c) || c == '{' || ((unsigned char)c & 0x80) != 0;
}
