/* SPDX-License-Identifier: Apache-2.0
 *
 * Extracts the answer of a GSM8K completion as verl's scorer does
 * (verl/utils/reward_score/gsm8k.py).
 */
#ifndef RULE_GSM8K_H
#define RULE_GSM8K_H

#include "plugins/reward-rule/grade.h"

/* The scorer reads only the last 300 characters. An answer is ASCII, so it fits
 * into as many bytes. */
#define RULE_GSM8K_TAIL 300u

/* `method` is one of those in grade.h. RULE_STRICT takes the last
 * "#### number" and removes its commas. RULE_FLEXIBLE takes the last run of
 * digits, points and commas with its sign, unchanged, that is not a lone point
 * (if all are, the first). data is NULL if there is no number. The result may
 * point into `buffer`. */
rule_text rule_gsm8k_extract(rule_text response, int method,
                             char buffer[RULE_GSM8K_TAIL]);

#endif
