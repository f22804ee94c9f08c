/* SPDX-License-Identifier: Apache-2.0
 *
 * A table of samples for the console: one line for each, with its score, the
 * end of its prompt, the beginning of its answer, and the ground truth.
 */
#ifndef XR_SAMPLES_TABLE_H
#define XR_SAMPLES_TABLE_H

#include <stddef.h>

#include "core/base/str.h"

typedef struct xr_shown_sample {
    const char *prompt; /* prompt_size bytes */
    size_t prompt_size;
    const char *answer; /* answer_size bytes */
    size_t answer_size;
    const char *truth; /* ends with NUL */
    double score;
} xr_shown_sample;

/* Columns of the terminal at standard error; 120 if it is none. */
unsigned xr_terminal_columns(void);

/* Appends the head of a table that is `columns` wide, or one of its lines; at
 * least 60 columns are used. A text that is too long ends, or for a prompt
 * begins, with an ellipsis. A line feed is written as \n, and what else would
 * move the cursor or change the terminal as U+FFFD. */
void xr_samples_table_head(unsigned columns, xr_str *out);
void xr_samples_table_row(const xr_shown_sample *sample, unsigned columns,
                          xr_str *out);

/* Appends a text as it may be shown on a terminal, each line after `indent` and
 * the last one with its end. */
void xr_shown_text(const char *text, size_t size, const char *indent,
                   xr_str *out);

#endif
