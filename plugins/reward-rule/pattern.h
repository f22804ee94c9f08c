/* SPDX-License-Identifier: Apache-2.0
 *
 * Searches with regular expressions of PCRE2 in bounded work.
 */
#ifndef RULE_PATTERN_H
#define RULE_PATTERN_H

#include <stdint.h>

#include "core/base/err.h"
#include "plugins/reward-rule/text.h"

/* Largest number of steps of one search; a search that needs more ends without
 * a match. Each item of the pattern that is tried is one step, and so are each
 * RULE_PATTERN_STEP_BYTES that an item passes over. Steps are counted rather
 * than timed, so that a score is the same on every machine. */
#define RULE_PATTERN_STEPS 2000000u
#define RULE_PATTERN_STEP_BYTES 64u

typedef struct rule_pattern rule_pattern;

/* Compiles a pattern. A bad one fails with XRAY_E_CONFIG and the offset of the
 * fault. With `no_group`, searches return the entire match even if the pattern
 * has groups. */
xray_status rule_pattern_new(const char *text, int no_group, xr_err *err,
                             rule_pattern **out);
void rule_pattern_free(rule_pattern *pattern); /* accepts NULL */

/* Returns the first group of the first or last match, or the entire match if
 * there is no group. data is NULL if nothing matched or the group did not
 * participate. *out_exhausted is 1 if the steps ran out. */
rule_text rule_pattern_find(rule_pattern *pattern, rule_text text, int last,
                            int *out_exhausted);

#endif
