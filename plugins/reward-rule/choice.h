/* SPDX-License-Identifier: Apache-2.0
 *
 * The ground truth of a multiple-choice question.
 */
#ifndef RULE_CHOICE_H
#define RULE_CHOICE_H

#include "plugins/reward-rule/grade.h"

/* The number of the option that a letter ("B", "(B)", "B. Paris") or number
 * names, from 0; -1 if it names none. */
int rule_choice_truth(const rule_config *config, rule_text truth);

#endif
