/* SPDX-License-Identifier: Apache-2.0
 *
 * Characters of text that may hold any bytes. A byte that starts no valid UTF-8
 * sequence counts as one character, U+FFFD.
 */
#ifndef RULE_UNICODE_H
#define RULE_UNICODE_H

#include <stddef.h>
#include <stdint.h>

#include "core/base/str.h"
#include "plugins/reward-rule/text.h"

/* The character at byte `at` < size; gives the byte behind it. */
size_t rule_char_at(rule_text text, size_t at, uint32_t *out);
/* The character that ends at byte `end` > 0; gives its first byte. */
size_t rule_char_before(rule_text text, size_t end, uint32_t *out);
size_t rule_char_count(rule_text text);

int rule_is_letter(uint32_t c); /* category L */
int rule_is_mark(uint32_t c);   /* category M */
int rule_is_upper(uint32_t c);  /* has a lower case and is none */
int rule_is_lower(uint32_t c);
/* As \w, \d, \s of Python's re: letter, number or "_"; digit; white space. */
int rule_is_word(uint32_t c);
int rule_is_digit(uint32_t c);
int rule_is_space(uint32_t c);

/* Without white space (Unicode's) at both ends. */
rule_text rule_strip(rule_text text);

/* The next run of characters that are no white space, from *at on, which moves
 * behind it; size 0 at the end. */
rule_text rule_next_word(rule_text text, size_t *at);

/* Appends the text with each character in its simple lower case; bytes that are
 * no UTF-8 stay as they are. */
void rule_lower(rule_text text, xr_str *out);

/* First occurrence at or behind byte `from`, or SIZE_MAX. An empty needle is
 * found nowhere. */
size_t rule_find(rule_text text, rule_text needle, size_t from);
int rule_starts(rule_text text, rule_text prefix);
int rule_ends(rule_text text, rule_text suffix);

/* Bytes first .. end. */
rule_text rule_slice(rule_text text, size_t first, size_t end);

#endif
