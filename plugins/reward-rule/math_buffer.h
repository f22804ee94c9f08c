/* SPDX-License-Identifier: Apache-2.0
 *
 * Text of bounded length that is edited in place: what the normalisations of
 * math answers work on.
 */
#ifndef RULE_MATH_BUFFER_H
#define RULE_MATH_BUFFER_H

#include "plugins/reward-rule/text.h"

/* Bytes of the longest answer that is normalised; a longer one is compared as
 * it stands. */
#define RULE_BUFFER_BYTES 16384u

typedef struct rule_buffer {
    size_t size;
    int full; /* something did not fit and is missing */
    char data[RULE_BUFFER_BYTES];
} rule_buffer;

void rule_buffer_set(rule_buffer *buffer, rule_text text);
void rule_buffer_add(rule_buffer *buffer, const char *data, size_t size);
void rule_buffer_puts(rule_buffer *buffer, const char *string);
rule_text rule_buffer_text(const rule_buffer *buffer);

/* Every `what`, from the left, becomes `by`; `scratch` is overwritten. */
void rule_buffer_replace(rule_buffer *buffer, const char *what, const char *by,
                         rule_buffer *scratch);
void rule_buffer_trim(rule_buffer *buffer);

/* 1 if `text` starts with `string`. */
int rule_begins(rule_text text, const char *string);

/* Offset of the first or last `string`, or text.size if it is not there. */
size_t rule_seek(rule_text text, const char *string);
size_t rule_seek_last(rule_text text, const char *string);
size_t rule_occurs(rule_text text, const char *string);

/* Bytes of the UTF-8 character at the front; 0 at the end. */
size_t rule_char_size(rule_text text);

/* text[first ..]; an empty text if it is shorter. */
rule_text rule_from(rule_text text, size_t first);

int rule_ascii_digit(char c);
int rule_ascii_letter(char c);
int rule_ascii_space(char c);

#endif
