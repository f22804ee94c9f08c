/* SPDX-License-Identifier: Apache-2.0
 *
 * Finds numbers in running text.
 */
#ifndef RULE_NUMBER_H
#define RULE_NUMBER_H

#include "plugins/reward-rule/text.h"

/* Finds the first or last number of a text. A number has a sign (also U+2212),
 * "$", digits with commas between thousands, a fraction and an exponent. A
 * minus after a letter, a digit or ')' is an operator, not a sign. Returns 1
 * and the value, or 0 if there is no number or it does not fit a double. */
int rule_number_find(rule_text text, int last, double *out);

#endif
