/* SPDX-License-Identifier: Apache-2.0
 *
 * Numbers in running text.
 */
#ifndef RULE_NUMBER_H
#define RULE_NUMBER_H

#include "plugins/reward-rule/text.h"

/* The first or last number of a text: a sign (also U+2212; one that follows a
 * letter, a digit or ')' is a minus between operands), "$", digits with commas
 * between thousands, a fraction, an exponent. 1 and the value, or 0 when there
 * is none or it does not fit a double. */
int rule_number_find(rule_text text, int last, double *out);

#endif
