/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads the ground truth of a multiple-choice question.
 */
#ifndef RULE_CHOICE_H
#define RULE_CHOICE_H

#include "plugins/reward-rule/grade.h"

/* Returns the index, from 0, of the option that a letter ("B", "(B)",
 * "B. Paris") or a number names, or -1 if it names none. */
int rule_choice_truth(const rule_config *config, rule_text truth);

#endif
