/* SPDX-License-Identifier: Apache-2.0 */
#include "plugins/reward-rule/grade.h"

#include <math.h>

#include "plugins/reward-rule/gsm8k.h"
#include "plugins/reward-rule/number.h"

static rule_grade verdict(int answered, int right)
{
    rule_verdict v = answered ? RULE_WRONG : RULE_NO_ANSWER;
    return (rule_grade){ right ? RULE_RIGHT : v, NULL };
}

static int same(const rule_config *config, rule_text a, rule_text b)
{
    if (config->trim) {
        a = rule_trim(a);
        b = rule_trim(b);
    }
    return rule_equal(a, b, config->ignore_case != 0);
}

static rule_grade grade_exact(const rule_config *config, rule_text response,
                              rule_text truth)
{
    return verdict(rule_trim(response).size > 0, same(config, response, truth));
}

static rule_grade grade_numeric(const rule_config *config, rule_text response,
                                rule_text truth)
{
    double want = 0;
    double got = 0;
    if (!rule_number_find(truth, 1, &want))
        return (rule_grade){ RULE_NO_ANSWER,
                             "its ground truth holds no number" };
    int found = rule_number_find(response, config->take == RULE_LAST, &got);
    double room = config->tolerance + config->rel_tolerance * fabs(want);
    return verdict(found, found && fabs(got - want) <= room);
}

static rule_grade grade_regex(const rule_config *config, rule_pattern *pattern,
                              rule_text response, rule_text truth)
{
    int exhausted = 0;
    rule_text found = rule_pattern_find(
        pattern, rule_last_bytes(response, (size_t)config->search_bytes),
        config->take == RULE_LAST, &exhausted);
    if (exhausted)
        return (rule_grade){ RULE_NO_ANSWER,
                             "the pattern took too many steps" };
    if (!found.data)
        return verdict(0, 0);
    return verdict(1, config->match_only || same(config, found, truth));
}

/* A ground truth that is a whole GSM8K solution stands for its "#### N". */
static rule_grade grade_gsm8k(const rule_config *config, rule_text response,
                              rule_text truth)
{
    char answer[RULE_GSM8K_TAIL];
    char wanted[RULE_GSM8K_TAIL];
    rule_text found = rule_gsm8k_extract(response, (int)config->method, answer);
    rule_text solution = rule_gsm8k_extract(truth, RULE_STRICT, wanted);
    if (!found.data)
        return verdict(0, 0);
    return verdict(1, rule_equal(found, solution.data ? solution : truth, 0));
}

rule_grade rule_grade_sample(const rule_config *config, rule_pattern *pattern,
                             const xray_sample_in *sample)
{
    rule_text response = { sample->response, (size_t)sample->response_size };
    if (!response.data)
        response = (rule_text){ "", 0 };
    rule_text truth = rule_text_of(sample->ground_truth);
    rule_text marker = rule_text_of(config->after);
    if (marker.size) {
        response = rule_after(response, marker);
        if (!response.data)
            return verdict(0, 0);
    }
    switch (config->grader) {
    case RULE_NUMERIC:
        return grade_numeric(config, response, truth);
    case RULE_REGEX:
        return grade_regex(config, pattern, response, truth);
    case RULE_GSM8K:
        return grade_gsm8k(config, response, truth);
    default:
        return grade_exact(config, response, truth);
    }
}
