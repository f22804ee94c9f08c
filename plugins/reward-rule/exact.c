/* SPDX-License-Identifier: Apache-2.0 */
#include "plugins/reward-rule/grade.h"

static void grade(const rule_input *in, rule_grade *out)
{
    rule_verdict(in->config, rule_trim(in->response).size > 0,
                 rule_same(in->config, in->response, in->truth), out);
}

const rule_grader rule_grader_exact = {
    .keys = RULE_SCORES "after trim ignore_case",
    .decides = 1,
    .grade = grade,
};
