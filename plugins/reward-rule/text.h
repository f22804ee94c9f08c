/* SPDX-License-Identifier: Apache-2.0
 *
 * Finds, cuts and compares answers in text that may hold any bytes.
 */
#ifndef RULE_TEXT_H
#define RULE_TEXT_H

#include <stddef.h>

/* A range of a string that the caller owns. No NUL is promised after it. */
typedef struct rule_text {
    const char *data; /* NULL: nothing was found */
    size_t size;
} rule_text;

rule_text rule_text_of(const char *string); /* NULL gives "" */

/* Cuts ASCII white space at both ends. */
rule_text rule_trim(rule_text text);

/* Returns the last `count` characters. A continuation byte of UTF-8 belongs to
 * the character before it. */
rule_text rule_last_characters(rule_text text, size_t count);

/* Returns at most the last `count` bytes, from the start of a character on. */
rule_text rule_last_bytes(rule_text text, size_t count);

/* Returns the text after the last `marker`; data is NULL if there is none. */
rule_text rule_after(rule_text text, rule_text marker);

/* Returns 1 if equal. `ignore_case` ignores the case of ASCII letters. */
int rule_equal(rule_text a, rule_text b, int ignore_case);

#endif
