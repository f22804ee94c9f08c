/* SPDX-License-Identifier: Apache-2.0
 *
 * Extracts the answer of a completion by fixed markers; data is NULL if there
 * is none.
 */
#ifndef RULE_MATH_EXTRACT_H
#define RULE_MATH_EXTRACT_H

#include "plugins/reward-rule/math_buffer.h"

/* MATH: returns the content of the last \boxed{...}, else of the last
 * \fbox{...}. Of "\boxed x" it is the text before the next "$". There is no
 * answer if the brace is never closed. */
rule_text rule_extract_boxed(rule_text response);

/* DAPO's strict box: returns the content of \boxed{...} within the last 100
 * characters. */
rule_text rule_extract_strict_box(rule_text response);

/* Minerva: returns X of the first "Final Answer: The final answer is X. I hope
 * it is correct." on one line; the last sentence may be cut off. */
rule_text rule_extract_minerva(rule_text response);

/* DAPO: returns the rest of the line after the last "Answer:", in any case. */
rule_text rule_extract_answer(rule_text response);

/* Returns the rest of the line after the last "####". */
rule_text rule_extract_marked(rule_text response);

#endif
