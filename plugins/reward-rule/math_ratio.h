/* SPDX-License-Identifier: Apache-2.0
 *
 * Exact rational numbers of bounded size. Every operation returns 0 if the
 * result would not fit; nothing is ever rounded.
 */
#ifndef RULE_MATH_RATIO_H
#define RULE_MATH_RATIO_H

#include <stdint.h>

#include "plugins/reward-rule/text.h"

#define RULE_LIMBS 36u /* of 32 bits: 346 decimal digits */

typedef struct rule_big {
    uint32_t size; /* limbs in use; the last one is not 0 */
    uint32_t limb[RULE_LIMBS];
} rule_big;

typedef struct rule_ratio {
    int negative;
    rule_big top;
    rule_big bottom; /* > 0; not reduced */
} rule_ratio;

void rule_ratio_set(rule_ratio *out, uint32_t value);
/* Reads digits, a decimal point, an exponent and a repeating tail
 * (0.1\overline{6}); ignores commas, spaces and other marks. */
int rule_ratio_parse(rule_ratio *out, rule_text digits);
int rule_ratio_add(rule_ratio *a, const rule_ratio *b);
int rule_ratio_multiply(rule_ratio *a, const rule_ratio *b);
int rule_ratio_divide(rule_ratio *a, const rule_ratio *b);
/* Raises a to the power b, which must be an integer. 0 to the power 0 is
 * refused like a result that does not fit. */
int rule_ratio_power(rule_ratio *a, const rule_ratio *b);
/* Returns -1, 0 or 1 as a is below, equal to or above b; 2 if the products that
 * are compared do not fit. */
int rule_ratio_compare(const rule_ratio *a, const rule_ratio *b);
int rule_ratio_is_zero(const rule_ratio *a);
/* Returns 1 and the value if it is an integer of at most 9 digits whose
 * numerator and denominator have one limb each. */
int rule_ratio_small_integer(const rule_ratio *a, int *out);
/* Returns the value as a double, rounded. */
double rule_ratio_real(const rule_ratio *a);

#endif
