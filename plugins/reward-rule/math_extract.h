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

#endif
