/* SPDX-License-Identifier: Apache-2.0
 *
 * The answer of a GSM8K completion, as verl's scorer reads it
 * (verl/utils/reward_score/gsm8k.py).
 */
#ifndef RULE_GSM8K_H
#define RULE_GSM8K_H

#include "plugins/reward-rule/grade.h"

/* The scorer looks at the last 300 characters only. An answer is made of ASCII,
 * so it fits. */
#define RULE_GSM8K_TAIL 300u

/* `method` as in grade.h. strict: the last "#### number", without commas.
 * flexible: the last run of digits, points and commas with its sign, as it
 * stands, that is not a lone point (if all are, the first). data NULL: there is
 * none. The result may lie in `buffer`. */
rule_text rule_gsm8k_extract(rule_text response, int method,
                             char buffer[RULE_GSM8K_TAIL]);

#endif
