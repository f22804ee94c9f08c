/* SPDX-License-Identifier: Apache-2.0
 *
 * The parser of math answers, between its two halves: relations and operators
 * (math_parse.c) and what stands between operators (math_atom.c).
 */
#ifndef RULE_MATH_PARSE_H
#define RULE_MATH_PARSE_H

#include "plugins/reward-rule/math_tree.h"

typedef struct rule_parser {
    rule_tree *tree;
    const char *at;
    const char *end;
    int depth;
    int brackets; /* depth of (), [] and sets: there a comma separates */
    int bar;      /* inside | |: the next bar closes */
    int power;    /* inside a function's argument without brackets */
    int failed;
} rule_parser;

rule_text rule_rest(const rule_parser *p);
void rule_skip_spaces(rule_parser *p);
/* 0, for `return rule_give_up(p)`. */
uint16_t rule_give_up(rule_parser *p);
/* Takes `string` if it is next. */
int rule_take(rule_parser *p, const char *string);
/* The name of the command that is next, without taking it; size 0 if none. */
rule_text rule_peek_command(const rule_parser *p);
/* Letters of ASCII that are next. */
rule_text rule_peek_word(const rule_parser *p);
/* Takes {...}: its inside; data NULL without one. */
rule_text rule_take_group(rule_parser *p);
uint16_t rule_new(rule_parser *p, int kind, uint16_t a, uint16_t b);
/* A name, which is told from others by its text. */
uint16_t rule_new_name(rule_parser *p, rule_text text);

/* A separator of list elements: 0, or ',' or 'a' for "and"; taken if wanted. */
int rule_separator(rule_parser *p, int take);
/* Elements up to a closing bracket or the end. One element stands for
 * itself. */
uint16_t rule_parse_list(rule_parser *p);
uint16_t rule_parse_union(rule_parser *p);
uint16_t rule_parse_sum(rule_parser *p);
uint16_t rule_parse_term(rule_parser *p);
/* A range of the text as a list of its own. */
uint16_t rule_parse_inside(rule_parser *p, rule_text inside);

/* Base, powers, factorials, units. */
uint16_t rule_parse_factor(rule_parser *p);
/* 1 if a factor may start here. */
int rule_starts_factor(rule_parser *p);
/* \text{...} and its kin. */
int rule_is_text_command(rule_text name);
uint16_t rule_parse_number(rule_parser *p);
uint16_t rule_parse_environment(rule_parser *p);
/* {x}, or one character or command, as TeX takes an argument. */
uint16_t rule_parse_argument(rule_parser *p);
/* Drops units behind an operand; percent signs and powers of ten count. */
uint16_t rule_parse_units(rule_parser *p, uint16_t node);

#endif
