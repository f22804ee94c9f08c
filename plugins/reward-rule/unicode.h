/* SPDX-License-Identifier: Apache-2.0
 *
 * Characters of text that may hold any bytes. A byte that does not start a
 * valid UTF-8 sequence counts as one character, U+FFFD.
 */
#ifndef RULE_UNICODE_H
#define RULE_UNICODE_H

#include <stddef.h>
#include <stdint.h>

#include "core/base/str.h"
#include "plugins/reward-rule/text.h"

/* Reads the character at byte `at` < size; returns the offset past it. */
size_t rule_char_at(rule_text text, size_t at, uint32_t *out);
/* Reads the character that ends at byte `end` > 0; returns the offset of its
 * first byte. */
size_t rule_char_before(rule_text text, size_t end, uint32_t *out);
size_t rule_char_count(rule_text text);

int rule_is_letter(uint32_t c); /* category L */
int rule_is_mark(uint32_t c);   /* category M */
int rule_is_upper(uint32_t c);  /* category Lu */
int rule_is_lower(uint32_t c);  /* category Ll */
/* These agree with \w, \d and \s of Python's re: letter, number or "_"; digit;
 * white space. */
int rule_is_word(uint32_t c);
int rule_is_digit(uint32_t c);
int rule_is_space(uint32_t c);

/* Cuts Unicode white space at both ends. */
rule_text rule_strip(rule_text text);

/* Returns the next run of characters other than white space, from *at on, and
 * moves *at past it; size 0 at the end. */
rule_text rule_next_word(rule_text text, size_t *at);

/* Appends the text with each character in its simple lower case; bytes that are
 * not UTF-8 stay unchanged. */
void rule_lower(rule_text text, xr_str *out);

/* Returns the offset of the first occurrence from byte `from` on, or SIZE_MAX.
 * An empty needle is never found. */
size_t rule_find(rule_text text, rule_text needle, size_t from);
int rule_starts(rule_text text, rule_text prefix);
int rule_ends(rule_text text, rule_text suffix);

/* Returns the bytes from first to end. */
rule_text rule_slice(rule_text text, size_t first, size_t end);

#endif
