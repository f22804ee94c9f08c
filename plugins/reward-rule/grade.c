/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs the chosen grader, and its base, on samples, and offers the helpers
 * that graders share.
 */
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

void rule_grade_outcome(const rule_config *config, int answered, int right,
                        rule_grade *out)
{
    out->answered = answered || right;
    out->acc = right != 0;
    if (right)
        out->score = config->score;
    else
        out->score = answered ? config->format_score : config->no_answer_score;
}

void rule_grade_share(const rule_config *config, double share, rule_grade *out)
{
    out->answered = 1;
    out->acc = share >= 1;
    out->score = out->acc > 0
                     ? config->score
                     : config->format_score +
                           share * (config->score - config->format_score);
}

void rule_add_value(rule_grade *out, const char *name, double value)
{
    if (out->value_count < RULE_VALUES)
        out->values[out->value_count++] = (xray_named_value){ name, value };
}

int rule_same_answer(const rule_config *config, rule_text a, rule_text b)
{
    if (config->trim) {
        a = rule_trim(a);
        b = rule_trim(b);
    }
    return rule_equal(a, b, config->ignore_case != 0);
}

xray_status rule_need_base(const rule_config *config, const char *grader,
                           xr_err *err)
{
    if (config->base == RULE_NO_BASE)
        return xr_fail_key(err, XRAY_E_CONFIG, NULL, "base",
                           ": grader = %s needs a base: the grader that "
                           "decides whether an answer is right",
                           grader);
    if (!rule_grader_at(config->base)->decides)
        return xr_fail_key(
            err, XRAY_E_CONFIG, NULL, "base",
            ": %s does not decide whether an answer is right; name a grader "
            "that does",
            rule_grader_name(config->base));
    return XRAY_OK;
}

static xray_status open_grader_state(const rule_grader *grader,
                                     const rule_config *config, xr_err *err,
                                     void **out_state)
{
    return grader->open ? grader->open(config, err, out_state) : XRAY_OK;
}

static void close_grader_state(const rule_grader *grader, void *state)
{
    if (grader && grader->close)
        grader->close(state);
}

xray_status rule_judge_open(const rule_config *config, xr_err *err,
                            rule_judge *out)
{
    const rule_grader *grader = rule_grader_at(config->grader);
    *out = (rule_judge){ .config = config };
    xray_status status = rule_check(config, err);
    if (status == XRAY_OK)
        status = open_grader_state(grader, config, err, &out->state);
    if (status != XRAY_OK)
        return status;
    out->grader = grader;
    if (config->base == RULE_NO_BASE)
        return XRAY_OK;
    const rule_grader *base = rule_grader_at(config->base);
    status = open_grader_state(base, config, err, &out->base_state);
    if (status == XRAY_OK)
        out->base = base;
    else
        rule_judge_close(out);
    return status;
}

void rule_judge_close(rule_judge *judge)
{
    close_grader_state(judge->grader, judge->state);
    close_grader_state(judge->base, judge->base_state);
    *judge = (rule_judge){ .config = NULL };
}

/* Recognizes a JSON object, or a JSON list that begins with a string. */
static int looks_like_json(rule_text truth)
{
    rule_text bare = rule_trim(truth);
    if (bare.size < 2 || (*bare.data != '[' && *bare.data != '{'))
        return 0;
    rule_text inner = rule_trim((rule_text){ bare.data + 1, bare.size - 1 });
    return inner.size && *inner.data == '"';
}

/* Grades input->sample with `grader`. */
static void run_grader(const rule_grader *grader, rule_input *input,
                       rule_grade *out)
{
    rule_text marker = rule_text_of(input->config->after);
    *out = (rule_grade){ .score = 0 };
    input->response = (rule_text){ input->sample->response,
                                   (size_t)input->sample->response_size };
    if (!input->response.data)
        input->response = rule_text_of("");
    if (marker.size && rule_uses_key(grader->keys, "after"))
        input->response = rule_after(input->response, marker);
    if (input->response.data)
        grader->grade(input, out);
    else
        rule_grade_outcome(input->config, 0, 0, out);
    if (out->acc < 1 && !out->remark && grader->decides && !grader->any_truth &&
        !input->config->match_only && looks_like_json(input->truth))
        out->remark = "its ground truth is a JSON list or object, which only "
                      "qa and search_r1 read";
}

void rule_judge_sample(const rule_judge *judge, const xray_sample_in *sample,
                       rule_grade *out)
{
    rule_input input = { .config = judge->config,
                         .judge = judge,
                         .state = judge->state,
                         .sample = sample,
                         .truth = rule_text_of(sample->ground_truth) };
    run_grader(judge->grader, &input, out);
}

void rule_grade_base(const rule_input *input, rule_grade *out)
{
    rule_input inner = *input;
    inner.state = input->judge->base_state;
    run_grader(input->judge->base, &inner, out);
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
