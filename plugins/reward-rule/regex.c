/* SPDX-License-Identifier: Apache-2.0
 *
 * The grader "regex" compares what a pattern finds in the response with the
 * ground truth.
 */
#include "plugins/reward-rule/grade.h"
#include "plugins/reward-rule/pattern.h"

static xray_status check_regex(const rule_config *config, xr_err *err)
{
    return *config->pattern ? XRAY_OK
                            : xr_fail_key(err, XRAY_E_CONFIG, NULL, "pattern",
                                          ": grader = regex needs a pattern");
}

static xray_status open_pattern(const rule_config *config, xr_err *err,
                                void **out_state)
{
    rule_pattern *pattern = NULL;
    xray_status status = rule_pattern_new(
        config->pattern, config->match_only != 0, err, &pattern);
    *out_state = pattern;
    return status;
}

static void close_pattern(void *state)
{
    rule_pattern_free(state);
}

static void grade_regex(const rule_input *in, rule_grade *out)
{
    const rule_config *config = in->config;
    int exhausted = 0;
    rule_text found = rule_pattern_find(
        in->state, rule_last_bytes(in->response, (size_t)config->search_bytes),
        config->take == RULE_LAST, &exhausted);
    if (exhausted)
        out->remark = "the pattern took too many steps";
    int right = found.data && (config->match_only ||
                               rule_same_answer(config, found, in->truth));
    rule_grade_outcome(config, found.data != NULL, right, out);
}

const rule_grader rule_grader_regex = {
    .keys = RULE_SCORES
    "after pattern take trim ignore_case match_only search_bytes",
    .decides = 1,
    .check = check_regex,
    .open = open_pattern,
    .close = close_pattern,
    .grade = grade_regex,
};
