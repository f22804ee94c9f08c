/* SPDX-License-Identifier: Apache-2.0
 *
 * Parses LaTeX environments: matrices, and those that only set text.
 */
#include <string.h>

#include "plugins/reward-rule/math_parse.h"

/* Takes {array}{cc}, {pmatrix} and so on; returns 1 if it is a matrix. */
static int take_environment_name(rule_parser *p)
{
    static const char *const kinds[] = { "matrix",  "pmatrix",     "bmatrix",
                                         "Bmatrix", "smallmatrix", "array",
                                         NULL };
    rule_text name = rule_trim(rule_take_group(p));
    if (!name.data)
        return 0;
    if (rule_equal(name, rule_text_of("array"), 0))
        (void)rule_take_group(p);
    for (size_t i = 0; kinds[i]; i++)
        if (rule_equal(name, rule_text_of(kinds[i]), 0))
            return 1;
    return 0;
}

static int is_at_end(rule_parser *p)
{
    rule_skip_spaces(p);
    return p->at == p->end ||
           rule_equal(rule_peek_command(p), rule_text_of("end"), 0);
}

/* Parses one row and returns its number of entries, or 0 on failure. */
static unsigned parse_matrix_row(rule_parser *p, uint16_t matrix)
{
    unsigned columns = 0;
    do {
        uint16_t entry = rule_parse_sum(p);
        if (!entry || p->tree->node[matrix].count >= RULE_ENTRIES) {
            (void)rule_give_up(p);
            return 0;
        }
        rule_tree_append(p->tree, matrix, entry);
        columns++;
    } while (!p->failed && rule_take(p, "&"));
    return columns;
}

uint16_t rule_parse_environment(rule_parser *p)
{
    unsigned columns = 0;
    uint16_t rows = 0;
    if (!take_environment_name(p) || p->depth++ > RULE_DEPTH)
        return rule_give_up(p);
    uint16_t node = rule_new_node(p, RULE_MATRIX, 0, 0);
    int bar = p->bar;
    int power = p->power;
    p->bar = 0;
    p->power = 0;
    while (!p->failed && !is_at_end(p)) {
        unsigned width = parse_matrix_row(p, node);
        if (!width || (columns && width != columns))
            return rule_give_up(p);
        columns = width;
        rows++;
        if (!rule_take(p, "\\\\"))
            break;
    }
    p->bar = bar;
    p->power = power;
    p->depth--;
    if (p->failed || !rows || !is_at_end(p) || !rule_take(p, "\\end") ||
        !rule_take_group(p).data)
        return rule_give_up(p);
    p->tree->node[node].rows = rows;
    return node;
}
