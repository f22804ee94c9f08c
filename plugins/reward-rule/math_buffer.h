/* SPDX-License-Identifier: Apache-2.0
 *
 * A text buffer of fixed capacity, in which the normalisations of math answers
 * edit their text in place.
 */
#ifndef RULE_MATH_BUFFER_H
#define RULE_MATH_BUFFER_H

#include "plugins/reward-rule/text.h"

/* Bytes of the longest answer that is normalised. A longer one is compared
 * unchanged. */
#define RULE_BUFFER_BYTES 16384u

typedef struct rule_buffer {
    size_t size;
    int full; /* 1: something did not fit and is missing */
    char data[RULE_BUFFER_BYTES];
} rule_buffer;

void rule_buffer_set(rule_buffer *buffer, rule_text text);
void rule_buffer_add(rule_buffer *buffer, const char *data, size_t size);
void rule_buffer_puts(rule_buffer *buffer, const char *string);
rule_text rule_buffer_text(const rule_buffer *buffer);

/* Replaces every `what`, from the left, with `by`; overwrites `scratch`. */
void rule_buffer_replace(rule_buffer *buffer, const char *what, const char *by,
                         rule_buffer *scratch);
void rule_buffer_trim(rule_buffer *buffer);

/* Returns 1 if `text` starts with `string`. */
int rule_begins(rule_text text, const char *string);

/* Return the offset of the first or last `string`, or text.size if there is
 * none; rule_count_text counts them. */
size_t rule_seek(rule_text text, const char *string);
size_t rule_seek_last(rule_text text, const char *string);
size_t rule_count_text(rule_text text, const char *string);

/* Returns the bytes of the UTF-8 character at the front, or 0 at the end. */
size_t rule_char_size(rule_text text);

/* Returns text[first ..], or an empty text if `text` is shorter. */
rule_text rule_text_from(rule_text text, size_t first);

int rule_ascii_digit(char c);
int rule_ascii_letter(char c);
int rule_ascii_space(char c);

#endif
