/* SPDX-License-Identifier: Apache-2.0
 *
 * Regular expressions through PCRE2, with the work of a search bounded.
 */
#ifndef RULE_PATTERN_H
#define RULE_PATTERN_H

#include <stdint.h>

#include "core/base/err.h"
#include "plugins/reward-rule/text.h"

/* Steps of the matcher one search may take in all; a search that needs more
 * ends without a match. An item of the pattern that is tried is one, and so are
 * so many bytes that an item goes over. Counted, not timed, so a score is the
 * same anywhere. */
#define RULE_PATTERN_STEPS 2000000u
#define RULE_PATTERN_STEP_BYTES 64u

typedef struct rule_pattern rule_pattern;

/* Compiles; a bad pattern is XRAY_E_CONFIG with the offset of the fault. With
 * `whole` searches give the whole match whatever groups there are. */
xray_status rule_pattern_new(const char *text, int whole, xr_err *err,
                             rule_pattern **out);
void rule_pattern_free(rule_pattern *pattern); /* accepts NULL */

/* The first group (the whole match where there is no group) of the first or
 * last match. data NULL: no match, or the group took no part in it.
 * *out_exhausted is 1 when the steps ran out. */
rule_text rule_pattern_find(rule_pattern *pattern, rule_text text, int last,
                            int *out_exhausted);

#endif
