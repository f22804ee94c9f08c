/* SPDX-License-Identifier: Apache-2.0
 *
 * Refusal of keys and values that the chosen grader cannot use.
 */
#ifndef RULE_CHECK_H
#define RULE_CHECK_H

#include "plugins/reward-rule/grade.h"

/* XRAY_E_CONFIG with a sentence that names the key. A key at its preset counts
 * as not given. */
xray_status rule_check(const rule_config *config, xr_err *err);

#endif
