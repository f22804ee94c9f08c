/* SPDX-License-Identifier: Apache-2.0
 *
 * Finding and comparing answers in text that may hold any bytes.
 */
#ifndef RULE_TEXT_H
#define RULE_TEXT_H

#include <stddef.h>

/* Bytes of somebody else's string; no NUL behind them is promised. */
typedef struct rule_text {
    const char *data; /* NULL: nothing was found */
    size_t size;
} rule_text;

rule_text rule_text_of(const char *string); /* NULL gives "" */

/* Without the ASCII white space at both ends. */
rule_text rule_trim(rule_text text);

/* The last `count` characters; a byte that is no UTF-8 lead or ASCII belongs to
 * the character before it. */
rule_text rule_last_characters(rule_text text, size_t count);

/* The last `count` bytes, from the start of a character on. */
rule_text rule_last_bytes(rule_text text, size_t count);

/* What follows the last `marker`; nothing (data NULL) without one. */
rule_text rule_after(rule_text text, rule_text marker);

/* 1 if equal; `ignore_case` folds the letters of ASCII. */
int rule_equal(rule_text a, rule_text b, int ignore_case);

#endif
