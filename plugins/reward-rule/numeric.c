/* SPDX-License-Identifier: Apache-2.0
 *
 * The grader "numeric" compares a number of the response with that of the
 * ground truth.
 */
#include <math.h>

#include "plugins/reward-rule/grade.h"
#include "plugins/reward-rule/number.h"

static void grade_numeric(const rule_input *in, rule_grade *out)
{
    const rule_config *config = in->config;
    double want = 0;
    double got = 0;
    if (!rule_number_find(in->truth, 1, &want)) {
        rule_grade_outcome(config, 0, 0, out);
        out->remark = "its ground truth holds no number";
        return;
    }
    int found = rule_number_find(in->response, config->take == RULE_LAST, &got);
    double allowed = config->tolerance + config->rel_tolerance * fabs(want);
    rule_grade_outcome(config, found, found && fabs(got - want) <= allowed,
                       out);
}

const rule_grader rule_grader_numeric = {
    .keys = RULE_SCORES "after take tolerance rel_tolerance",
    .decides = 1,
    .grade = grade_numeric,
};
