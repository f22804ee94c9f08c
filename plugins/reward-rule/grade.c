/* SPDX-License-Identifier: Apache-2.0 */
#include "plugins/reward-rule/grade.h"

#include "plugins/reward-rule/check.h"

#define ENTRY(name, text) &rule_grader_##name,
static const rule_grader *const table[] = { RULE_GRADERS(ENTRY) };

#define NAME(name, text) #name,
static const char *const names[] = { RULE_GRADERS(NAME) };

const rule_grader *rule_grader_at(int64_t which)
{
    return table[which];
}

const char *rule_grader_name(int64_t which)
{
    return names[which];
}

void rule_verdict(const rule_config *config, int answered, int right,
                  rule_grade *out)
{
    out->answered = answered || right;
    out->acc = right != 0;
    if (right)
        out->score = config->score;
    else
        out->score = answered ? config->format_score : config->no_answer_score;
}

void rule_share(const rule_config *config, double share, rule_grade *out)
{
    out->answered = 1;
    out->acc = share >= 1;
    out->score = out->acc > 0
                     ? config->score
                     : config->format_score +
                           share * (config->score - config->format_score);
}

void rule_value(rule_grade *out, const char *name, double value)
{
    if (out->value_count < RULE_VALUES)
        out->values[out->value_count++] = (xray_named_value){ name, value };
}

int rule_same(const rule_config *config, rule_text a, rule_text b)
{
    if (config->trim) {
        a = rule_trim(a);
        b = rule_trim(b);
    }
    return rule_equal(a, b, config->ignore_case != 0);
}

xray_status rule_judge_open(const rule_config *config, xr_err *err,
                            rule_judge *out)
{
    *out = (rule_judge){ .config = config,
                         .grader = rule_grader_at(config->grader) };
    xray_status status = rule_check(config, err);
    if (status == XRAY_OK && out->grader->open)
        status = out->grader->open(config, err, &out->state);
    if (status != XRAY_OK)
        *out = (rule_judge){ .config = NULL };
    return status;
}

void rule_judge_close(rule_judge *judge)
{
    if (judge->grader && judge->grader->close)
        judge->grader->close(judge->state);
    *judge = (rule_judge){ .config = NULL };
}

void rule_judge_sample(const rule_judge *judge, const xray_sample_in *sample,
                       rule_grade *out)
{
    const rule_config *config = judge->config;
    rule_input input = {
        .config = config,
        .judge = judge,
        .state = judge->state,
        .sample = sample,
        .response = { sample->response, (size_t)sample->response_size },
        .truth = rule_text_of(sample->ground_truth),
    };
    *out = (rule_grade){ .score = 0 };
    if (!input.response.data)
        input.response = rule_text_of("");
    rule_text marker = rule_text_of(config->after);
    if (marker.size)
        input.response = rule_after(input.response, marker);
    if (input.response.data)
        judge->grader->grade(&input, out);
    else
        rule_verdict(config, 0, 0, out);
}

xray_status rule_judge_batch(const rule_judge *judge,
                             const xray_sample_in *samples, uint64_t count,
                             uint64_t stride, rule_grade *grades, xr_err *err)
{
    if (!judge->grader->batch)
        return XRAY_OK;
    rule_batch batch = { .config = judge->config,
                         .state = judge->state,
                         .samples = samples,
                         .grades = grades,
                         .count = count,
                         .stride = stride };
    return judge->grader->batch(&batch, err);
}
