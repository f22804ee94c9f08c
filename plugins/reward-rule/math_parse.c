/* SPDX-License-Identifier: Apache-2.0
 *
 * Parses the lists, relations, sets, sums and products of math answers.
 */
#include <string.h>

#include "plugins/reward-rule/math_parse.h"

/* Largest number of factors of a product, which nest to the left. */
#define LONGEST_PRODUCT 128

rule_text rule_rest(const rule_parser *p)
{
    return (rule_text){ p->at, (size_t)(p->end - p->at) };
}

void rule_skip_spaces(rule_parser *p)
{
    while (p->at < p->end && *p->at == ' ')
        p->at++;
}

uint16_t rule_give_up(rule_parser *p)
{
    p->failed = 1;
    p->at = p->end;
    return 0;
}

int rule_take(rule_parser *p, const char *string)
{
    rule_skip_spaces(p);
    if (!rule_begins(rule_rest(p), string))
        return 0;
    const char *next = p->at + strlen(string);
    if (*string == '\\' && rule_ascii_letter(next[-1]) && next < p->end &&
        rule_ascii_letter(*next))
        return 0;
    p->at = next;
    return 1;
}

rule_text rule_peek_command(const rule_parser *p)
{
    rule_text name = { p->at, 0 };
    if (p->at == p->end || *p->at != '\\')
        return name;
    name.data++;
    while (name.data + name.size < p->end &&
           rule_ascii_letter(name.data[name.size]))
        name.size++;
    return name;
}

rule_text rule_peek_word(const rule_parser *p)
{
    rule_text word = { p->at, 0 };
    while (word.data + word.size < p->end &&
           rule_ascii_letter(word.data[word.size]))
        word.size++;
    return word;
}

rule_text rule_take_group(rule_parser *p)
{
    rule_skip_spaces(p);
    rule_text none = { NULL, 0 };
    if (p->at == p->end || *p->at != '{')
        return none;
    int depth = 0;
    for (const char *c = p->at; c < p->end; c++) {
        if (*c == '\\' && c + 1 < p->end) {
            c++;
            continue;
        }
        depth += (*c == '{') - (*c == '}');
        if (depth == 0) {
            rule_text inside = { p->at + 1, (size_t)(c - p->at - 1) };
            p->at = c + 1;
            return inside;
        }
    }
    return none;
}

uint16_t rule_new_node(rule_parser *p, int kind, uint16_t a, uint16_t b)
{
    uint16_t node = rule_tree_node(p->tree, kind);
    if (!node)
        return rule_give_up(p);
    rule_tree_append(p->tree, node, a);
    rule_tree_append(p->tree, node, b);
    return node;
}

static int classify_joint(rule_text word)
{
    if (rule_equal(word, rule_text_of("and"), 1))
        return 'a';
    return rule_equal(word, rule_text_of("or"), 1) ? ',' : 0;
}

int rule_separator(rule_parser *p, int take)
{
    rule_skip_spaces(p);
    const char *start = p->at;
    int kind = 0;
    rule_text name = rule_peek_command(p);
    if (p->at == p->end)
        return 0;
    if (*p->at == ',' || *p->at == ';') {
        p->at++;
        kind = ',';
    } else if (name.size && rule_is_text_command(name)) {
        p->at += name.size + 1;
        rule_text inside = rule_trim(rule_take_group(p));
        if (inside.data && inside.size && *inside.data == ',')
            inside = rule_trim(rule_text_from(inside, 1));
        kind = inside.data ? classify_joint(inside) : 0;
    } else if (rule_ascii_letter(*p->at)) {
        rule_text word = rule_peek_word(p);
        kind = classify_joint(word);
        p->at += word.size;
    }
    if (!kind || !take)
        p->at = start;
    return kind;
}

static int is_at_close(rule_parser *p)
{
    rule_skip_spaces(p);
    if (p->at == p->end || strchr(")]}&", *p->at))
        return 1;
    if (*p->at == '|')
        return p->bar;
    if (rule_begins(rule_rest(p), "\\\\") || rule_begins(rule_rest(p), "\\}"))
        return 1;
    rule_text name = rule_peek_command(p);
    static const char *const closing[] = { "end", "rangle", "rfloor", "rceil",
                                           "mid", "rvert",  NULL };
    for (size_t i = 0; closing[i]; i++)
        if (rule_equal(name, rule_text_of(closing[i]), 0))
            return 1;
    return 0;
}

static const struct {
    const char *name;
    int op;
} relations[] = {
    { "=", RULE_EQ },          { "<", RULE_LT },
    { ">", RULE_GT },          { "\\leqslant", RULE_LE },
    { "\\geqslant", RULE_GE }, { "\\leq", RULE_LE },
    { "\\geq", RULE_GE },      { "\\le", RULE_LE },
    { "\\ge", RULE_GE },       { "\\lt", RULE_LT },
    { "\\gt", RULE_GT },       { "\\neq", RULE_NE },
    { "\\ne", RULE_NE },       { "\\approx", RULE_NEAR },
    { "\\simeq", RULE_NEAR },  { "\\equiv", RULE_EQ },
    { "\\in", RULE_IN },       { NULL, 0 },
};

static int take_relation(rule_parser *p)
{
    rule_skip_spaces(p);
    rule_text name = rule_peek_command(p);
    for (size_t i = 0; relations[i].name; i++) {
        const char *want = relations[i].name;
        int fits =
            *want == '\\'
                ? name.size && rule_equal(name, rule_text_of(want + 1), 0)
                : rule_begins(rule_rest(p), want);
        if (fits) {
            p->at += strlen(want);
            return relations[i].op;
        }
    }
    return 0;
}

static uint16_t parse_ratio(rule_parser *p)
{
    uint16_t node = rule_parse_sum(p);
    rule_skip_spaces(p);
    if (p->failed || p->at == p->end || *p->at != ':')
        return node;
    node = rule_new_node(p, RULE_RATIO, node, 0);
    while (!p->failed && rule_take(p, ":"))
        rule_tree_append(p->tree, node, rule_parse_sum(p));
    return node;
}

static int is_set_node(const rule_parser *p, uint16_t node)
{
    int kind = p->tree->node[node].kind;
    return kind == RULE_TUPLE || kind == RULE_SET || kind == RULE_UNION ||
           kind == RULE_INTERSECTION || kind == RULE_WITHOUT;
}

static int take_set_operator(rule_parser *p, uint16_t left)
{
    if (rule_take(p, "\\cup"))
        return RULE_UNION;
    if (rule_take(p, "\\cap"))
        return RULE_INTERSECTION;
    if (rule_take(p, "\\setminus") || rule_take(p, "\\backslash"))
        return RULE_WITHOUT;
    return is_set_node(p, left) && rule_take(p, "U") ? RULE_UNION : 0;
}

uint16_t rule_parse_union(rule_parser *p)
{
    uint16_t node = parse_ratio(p);
    for (;;) {
        int kind = p->failed ? 0 : take_set_operator(p, node);
        if (!kind)
            return node;
        uint16_t right = parse_ratio(p);
        node = rule_new_node(p, kind, node, right);
    }
}

static uint16_t parse_clause(rule_parser *p)
{
    rule_skip_spaces(p);
    const char *start = p->at;
    uint16_t node = rule_parse_union(p);
    rule_text left = { start, (size_t)(p->at - start) };
    int op = p->failed ? 0 : take_relation(p);
    if (!op)
        return node;
    node = rule_new_node(p, RULE_CHAIN, node, 0);
    p->tree->node[node].text = left;
    while (op && !p->failed) {
        uint16_t child = rule_parse_union(p);
        if (!child)
            return rule_give_up(p);
        /* The relation is stored in a new node, because the child may be
         * shared. */
        uint16_t link = rule_new_node(p, RULE_LIST, child, 0);
        p->tree->node[link].op = (uint8_t)op;
        rule_tree_append(p->tree, node, link);
        op = take_relation(p);
    }
    return node;
}

uint16_t rule_parse_list(rule_parser *p)
{
    uint16_t first = 0;
    uint16_t list = 0;
    int op = 0;
    int expected = 1; /* 1: an element comes next, so that a bar opens */
    if (p->depth++ > RULE_DEPTH)
        return rule_give_up(p);
    while (!p->failed) {
        int separator = rule_separator(p, 1);
        if (separator && separator != op)
            op = op ? ',' : separator;
        expected |= separator != 0;
        if (separator)
            continue;
        if (is_at_close(p) && !(expected && p->at < p->end && *p->at == '|'))
            break;
        if (first && !op)
            return rule_give_up(p);
        uint16_t node = parse_clause(p);
        if (!node)
            return rule_give_up(p);
        if (first && !list)
            list = rule_new_node(p, RULE_LIST, first, 0);
        if (list)
            rule_tree_append(p->tree, list, node);
        else
            first = node;
        expected = 0;
        if (!is_at_close(p) && !rule_separator(p, 0))
            return rule_give_up(p);
    }
    p->depth--;
    if (list)
        p->tree->node[list].op = (uint8_t)op;
    return list ? list : first;
}

uint16_t rule_parse_inside(rule_parser *p, rule_text inside)
{
    const char *at = p->at;
    const char *end = p->end;
    int bar = p->bar;
    int power = p->power;
    p->at = inside.data;
    p->end = inside.data + inside.size;
    p->bar = 0;
    p->power = 0;
    uint16_t node = rule_parse_list(p);
    if (p->at != p->end)
        p->failed = 1;
    p->at = p->failed ? end : at;
    p->end = end;
    p->bar = bar;
    p->power = power;
    return p->failed ? 0 : node;
}

static uint16_t new_negation(rule_parser *p, uint16_t node)
{
    return rule_new_node(p, RULE_NEGATE, node, 0);
}

static uint16_t new_either(rule_parser *p, uint16_t node, char op)
{
    uint16_t out = rule_new_node(p, RULE_EITHER, node, 0);
    p->tree->node[out].op = (uint8_t)op;
    return out;
}

/* Takes a sign: returns '+', '-', 'p' for +-, 'm' for -+, or 0. */
static int take_sign(rule_parser *p)
{
    rule_skip_spaces(p);
    if (rule_take(p, "\\pm") || rule_take(p, "+-") || rule_take(p, "+/-"))
        return 'p';
    if (rule_take(p, "\\mp"))
        return 'm';
    if (rule_take(p, "+"))
        return '+';
    return rule_take(p, "-") ? '-' : 0;
}

static uint16_t apply_sign(rule_parser *p, int sign, uint16_t node)
{
    if (!node)
        return rule_give_up(p);
    if (sign == '-')
        return new_negation(p, node);
    if (sign == 'p' || sign == 'm')
        return new_either(p, node, sign == 'p' ? '+' : '-');
    return node;
}

static uint16_t parse_plain_sum(rule_parser *p)
{
    if (p->depth++ > RULE_DEPTH)
        return rule_give_up(p);
    int sign = take_sign(p);
    uint16_t node = apply_sign(p, sign, rule_parse_term(p));
    uint16_t sum = 0;
    for (sign = p->failed ? 0 : take_sign(p); sign && !p->failed;
         sign = take_sign(p)) {
        uint16_t right = apply_sign(p, sign, rule_parse_term(p));
        if (!sum)
            sum = rule_new_node(p, RULE_ADD, node, 0);
        rule_tree_append(p->tree, sum, right);
    }
    p->depth--;
    return sum ? sum : node;
}

/* Parses a sum, also {a \over b} and {n \choose k}. */
uint16_t rule_parse_sum(rule_parser *p)
{
    uint16_t node = parse_plain_sum(p);
    int over = !p->failed && rule_take(p, "\\over");
    int choose = !p->failed && !over && rule_take(p, "\\choose");
    if (!over && !choose)
        return node;
    uint16_t right = parse_plain_sum(p);
    if (!node || !right)
        return rule_give_up(p);
    node = rule_new_node(p, over ? RULE_DIVIDE : RULE_CALL, node, right);
    p->tree->node[node].op = over ? 0 : RULE_BINOMIAL;
    return node;
}

/* Takes an operator: returns '*', '/', 'm' for the remainder, or 0. */
static int take_operator(rule_parser *p)
{
    static const char *const times[] = { "*", "\\cdot", "\\times", "\\ast",
                                         NULL };
    for (size_t i = 0; times[i]; i++)
        if (rule_take(p, times[i]))
            return '*';
    if (rule_take(p, "\\bmod") || rule_take(p, "\\mod"))
        return 'm';
    return rule_take(p, "/") || rule_take(p, "\\div") ? '/' : 0;
}

static uint16_t parse_signed_factor(rule_parser *p)
{
    int sign = take_sign(p);
    if (!sign)
        return rule_parse_factor(p);
    if (p->depth++ > RULE_DEPTH)
        return rule_give_up(p);
    uint16_t node = apply_sign(p, sign, parse_signed_factor(p));
    p->depth--;
    return node;
}

uint16_t rule_parse_term(rule_parser *p)
{
    uint16_t node = parse_signed_factor(p);
    for (int count = 0; !p->failed; count++) {
        if (count > LONGEST_PRODUCT)
            return rule_give_up(p);
        int op = p->power ? 0 : take_operator(p);
        if (!op && (is_set_node(p, node) || !rule_starts_factor(p)))
            break;
        uint16_t right = op ? parse_signed_factor(p) : rule_parse_factor(p);
        if (!right)
            return rule_give_up(p);
        int kind = op == '/'   ? RULE_DIVIDE
                   : op == 'm' ? RULE_CALL
                               : RULE_MULTIPLY;
        node = rule_new_node(p, kind, node, right);
        if (op == 'm')
            p->tree->node[node].op = RULE_MODULO;
    }
    return node;
}

uint16_t rule_parse(rule_tree *tree, rule_text text)
{
    rule_parser p = { .tree = tree,
                      .at = text.data,
                      .end = text.data + text.size };
    if (!text.size)
        return 0;
    uint16_t node = rule_parse_list(&p);
    rule_skip_spaces(&p);
    return p.failed || p.at != p.end ? 0 : node;
}
