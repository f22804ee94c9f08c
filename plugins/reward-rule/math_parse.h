/* SPDX-License-Identifier: Apache-2.0
 *
 * The parser of math answers; shared by its two halves, relations and
 * operators (math_parse.c) and operands (math_operand.c).
 */
#ifndef RULE_MATH_PARSE_H
#define RULE_MATH_PARSE_H

#include "plugins/reward-rule/math_tree.h"

typedef struct rule_parser {
    rule_tree *tree;
    const char *at;
    const char *end;
    int depth;
    int brackets; /* depth of (), [] and sets, in which a comma separates */
    int bar;      /* > 0: inside | |, where the next bar closes */
    int power;    /* > 0: inside a function's argument without brackets */
    int failed;
} rule_parser;

rule_text rule_rest(const rule_parser *p);
void rule_skip_spaces(rule_parser *p);
/* Marks the parse as failed and returns 0, for `return rule_give_up(p)`. */
uint16_t rule_give_up(rule_parser *p);
/* Takes `string` and returns 1 if it is next, else returns 0. */
int rule_take(rule_parser *p, const char *string);
/* Returns the name of the next command without taking it; size 0 if there is
 * none. */
rule_text rule_peek_command(const rule_parser *p);
/* Returns the next ASCII letters without taking them. */
rule_text rule_peek_word(const rule_parser *p);
/* Takes {...} and returns its content; data is NULL if there is none. */
rule_text rule_take_group(rule_parser *p);
uint16_t rule_new_node(rule_parser *p, int kind, uint16_t a, uint16_t b);
/* Makes a node of a name. Names with the same text are the same variable. */
uint16_t rule_new_name(rule_parser *p, rule_text text);

/* Returns the next separator of list elements: ',', or 'a' for "and", or 0.
 * Takes it if `take` is 1. */
int rule_separator(rule_parser *p, int take);
/* Parses elements up to a closing bracket or the end. A single element is not
 * made a list. */
uint16_t rule_parse_list(rule_parser *p);
uint16_t rule_parse_union(rule_parser *p);
uint16_t rule_parse_sum(rule_parser *p);
uint16_t rule_parse_term(rule_parser *p);
/* Parses a range of the text as a separate list. */
uint16_t rule_parse_inside(rule_parser *p, rule_text inside);

/* Parses a base with its powers, factorials and units. */
uint16_t rule_parse_factor(rule_parser *p);
/* Returns 1 if a factor may start here. */
int rule_starts_factor(rule_parser *p);
/* Returns 1 for \text and similar commands. */
int rule_is_text_command(rule_text name);
uint16_t rule_parse_number(rule_parser *p);
uint16_t rule_parse_environment(rule_parser *p);
/* Parses {x}, or one character or command, as TeX takes an argument. */
uint16_t rule_parse_argument(rule_parser *p);
/* Drops units after an operand; applies percent signs and powers of ten. */
uint16_t rule_parse_units(rule_parser *p, uint16_t node);

#endif
