/* SPDX-License-Identifier: Apache-2.0
 *
 * Where the answer of a completion stands. What was not found has data NULL.
 */
#ifndef RULE_MATH_EXTRACT_H
#define RULE_MATH_EXTRACT_H

#include "plugins/reward-rule/math_buffer.h"

/* MATH: the content of the last \boxed{...}, else of the last \fbox{...}; of
 * "\boxed x" what stands before the next "$". Nothing if a brace is open. */
rule_text rule_extract_boxed(rule_text response);

/* DAPO's strict box: of the last 100 characters, \boxed{...} only. */
rule_text rule_extract_strict_box(rule_text response);

/* Minerva: what stands in the first "Final Answer: The final answer is X. I
 * hope it is correct." on one line; the last sentence may be cut off. */
rule_text rule_extract_minerva(rule_text response);

/* DAPO: the rest of the line behind the last "Answer:", in any case. */
rule_text rule_extract_answer(rule_text response);

/* The rest of the line behind the last "####". */
rule_text rule_extract_marked(rule_text response);

enum {
    RULE_KIND_LATEX = 1, /* between $, $$, \( \) or \[ \], or boxed */
    RULE_KIND_NUMBER = 2
};

/* The last formula or number. */
rule_text rule_extract_last(rule_text response, unsigned kinds);

/* The first of these that there is, into `out`: the last boxes (several with
 * only commas, "and" or names between them are a list), the answer behind the
 * last "answer is" or "answer:", the line behind "####", the last formula or
 * number. A percent sign behind it is added. 0 if there is none. */
int rule_extract_any(rule_text response, unsigned kinds, rule_buffer *out);

/* The same for a ground truth: its boxes, its only formula, or all of it. */
void rule_extract_truth(rule_text truth, rule_buffer *out);

#endif
