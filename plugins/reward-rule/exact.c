/* SPDX-License-Identifier: Apache-2.0
 *
 * The grader "exact" compares the response with the ground truth as text.
 */
#include "plugins/reward-rule/grade.h"

static void grade_exact(const rule_input *in, rule_grade *out)
{
    rule_grade_outcome(in->config, rule_trim(in->response).size > 0,
                       rule_same_answer(in->config, in->response, in->truth),
                       out);
}

const rule_grader rule_grader_exact = {
    .keys = RULE_SCORES "after trim ignore_case",
    .decides = 1,
    .grade = grade_exact,
};
