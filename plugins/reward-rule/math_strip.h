/* SPDX-License-Identifier: Apache-2.0
 *
 * The normalisations of published graders of math answers. Each edits the
 * answer in `s` and overwrites `scratch`.
 */
#ifndef RULE_MATH_STRIP_H
#define RULE_MATH_STRIP_H

#include "plugins/reward-rule/math_buffer.h"

/* MATH (hendrycks/math, modeling/math_equivalence.py, _strip_string). Returns 0
 * where the original raises an error. `s` is then partly normalised, and the
 * caller must compare the original answer. */
int rule_strip_hendrycks(rule_buffer *s, rule_buffer *scratch);

/* PRM800K (openai/prm800k, grading/math_normalize.py, normalize_answer). An
 * answer that is one \text{...} is replaced by its content and then normalised
 * as for MATH. On failure `s` is the trimmed answer. */
void rule_strip_prm800k(rule_buffer *s, rule_buffer *scratch);

/* Minerva (Lewkowycz et al. 2022, appendix D.1, normalize_final_answer). */
void rule_strip_minerva(rule_buffer *s, rule_buffer *scratch);

/* DAPO (verl/utils/reward_score/math_dapo.py): as Minerva's, then trimmed. */
void rule_strip_dapo(rule_buffer *s, rule_buffer *scratch);

/* Returns 1 if MATH's is_equiv does; overwrites `a`, `b` and `scratch`. */
int rule_equal_hendrycks(rule_text x, rule_text y, rule_buffer *a,
                         rule_buffer *b, rule_buffer *scratch);

#endif
