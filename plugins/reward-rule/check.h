/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks that a configuration sets only keys and values that the chosen grader
 * can use.
 */
#ifndef RULE_CHECK_H
#define RULE_CHECK_H

#include "plugins/reward-rule/grade.h"

/* Fails with XRAY_E_CONFIG and a sentence that names the key. A key that has
 * its preset value counts as not given. */
xray_status rule_check(const rule_config *config, xr_err *err);

#endif
