/* SPDX-License-Identifier: Apache-2.0
 *
 * The graders "length", "overlong", "cosine" and "length_group" score a
 * response by its length.
 */
#include <stdlib.h>
#include <string.h>

#include "plugins/reward-rule/grade.h"
#include "plugins/reward-rule/unicode.h"

static size_t count_words(rule_text text)
{
    size_t count = 0;
    size_t at = 0;
    while (rule_next_word(text, &at).size)
        count++;
    return count;
}

static double measure_length(const rule_input *in, rule_grade *out)
{
    switch (in->config->unit) {
    case RULE_CHARACTERS:
        return (double)rule_char_count(in->response);
    case RULE_WORDS:
        return (double)count_words(in->response);
    default:
        if (!in->sample->id_count && in->response.size)
            out->remark = "it has text but no token ids, so its length in "
                          "tokens is 0";
        return (double)in->sample->id_count;
    }
}

static xray_status require_positive(int64_t value, const char *key,
                                    const char *grader, xr_err *err)
{
    return value > 0
               ? XRAY_OK
               : xr_fail_key(err, XRAY_E_CONFIG, NULL, key,
                             ": grader = %s needs it as an integer above 0",
                             grader);
}

/* Sets a score that does not depend on the answer; acc says whether the length
 * goes unpunished. */
static void set_plain_score(rule_grade *out, double score, int acc)
{
    out->score = score;
    out->acc = acc != 0;
    out->answered = 1;
}

/* ---- length --------------------------------------------------------------
 */

static xray_status check_length(const rule_config *config, xr_err *err)
{
    int l1 = config->shape == RULE_L1_EXACT || config->shape == RULE_L1_MAX;
    if (l1 && config->max_response_length)
        return xr_fail_key(err, XRAY_E_CONFIG, NULL, "max_response_length",
                           ": only shape = cap, linear use it; l1_exact and "
                           "l1_max have target_length");
    if (!l1 && config->target_length)
        return xr_fail_key(err, XRAY_E_CONFIG, NULL, "target_length",
                           ": only shape = l1_exact, l1_max use it");
    if (config->base != RULE_NO_BASE && config->shape != RULE_L1_MAX)
        return xr_fail_key(err, XRAY_E_CONFIG, NULL, "base",
                           ": only shape = l1_max uses it; remove the key");
    if (config->shape == RULE_L1_MAX) {
        xray_status status = rule_need_base(config, "length", err);
        if (status != XRAY_OK)
            return status;
    }
    return l1 ? require_positive(config->target_length, "target_length",
                                 "length", err)
              : require_positive(config->max_response_length,
                                 "max_response_length", "length", err);
}

static double clip_to_unit(double x)
{
    if (x < 0)
        return 0;
    return x > 1 ? 1 : x;
}

static void grade_l1_max(const rule_input *in, rule_grade *out)
{
    const rule_config *c = in->config;
    rule_grade_base(in, out);
    out->value_count = 0;
    double unused = (double)c->target_length - measure_length(in, out);
    out->score =
        out->acc * clip_to_unit(c->length_coef * unused + c->length_offset);
}

static void grade_length(const rule_input *in, rule_grade *out)
{
    const rule_config *c = in->config;
    if (c->shape == RULE_L1_MAX) {
        grade_l1_max(in, out);
        return;
    }
    double length = measure_length(in, out);
    double max = (double)c->max_response_length;
    double off = length - (double)c->target_length;
    if (c->shape == RULE_CAP)
        set_plain_score(out, length > max ? -c->length_coef : 0, length <= max);
    else if (c->shape == RULE_LINEAR)
        set_plain_score(out, -c->length_coef * clip_to_unit(length / max),
                        length <= max);
    else
        set_plain_score(out, -c->length_coef * (off < 0 ? -off : off),
                        length >= (double)c->target_length &&
                            length <= (double)c->target_length);
}

/* ---- overlong ------------------------------------------------------------
 */

static xray_status check_overlong(const rule_config *config, xr_err *err)
{
    xray_status status = require_positive(
        config->max_response_length, "max_response_length", "overlong", err);
    if (status == XRAY_OK &&
        config->overlong_buffer_len > config->max_response_length)
        status = xr_fail_key(err, XRAY_E_CONFIG, NULL, "overlong_buffer_len",
                             ": %lld is more than max_response_length = %lld",
                             (long long)config->overlong_buffer_len,
                             (long long)config->max_response_length);
    return status;
}

/* With L = max_response_length, B = overlong_buffer_len and n tokens, the
 * penalty is 0 up to L - B, (L - B - n) / B up to L and -1 beyond, times
 * overlong_penalty_factor. */
static void grade_overlong(const rule_input *in, rule_grade *out)
{
    const rule_config *c = in->config;
    double length = measure_length(in, out);
    double buffer = (double)c->overlong_buffer_len;
    double exceed = length - ((double)c->max_response_length - buffer);
    if (exceed <= 0)
        set_plain_score(out, 0, 1);
    else
        set_plain_score(out,
                        -c->overlong_penalty_factor *
                            (exceed < buffer ? exceed / buffer : 1),
                        0);
}

/* ---- cosine --------------------------------------------------------------
 */

static xray_status check_cosine(const rule_config *config, xr_err *err)
{
    xray_status status = rule_need_base(config, "cosine", err);
    return status == XRAY_OK
               ? require_positive(config->max_response_length,
                                  "max_response_length", "cosine", err)
               : status;
}

/* Computes cos(pi x) for x in [0, 1] by its series, so that a score has the
 * same bits with every C library. The error is below 1e-15. */
static double cosine_of_pi(double x)
{
    if (x > 0.5)
        return -cosine_of_pi(1 - x);
    double y = 3.14159265358979323846 * x;
    double y2 = y * y;
    double sum = 0;
    for (int k = 11; k >= 1; k--)
        sum = -(1 + sum) * y2 / ((2.0 * k - 1) * (2.0 * k));
    return 1 + sum;
}

/* The score is longest + (shortest - longest) * (1 + cos(pi n / max)) / 2,
 * where shortest and longest are the scores of an empty response and of one of
 * max tokens; right and wrong answers have their own pair. */
static void grade_cosine(const rule_input *in, rule_grade *out)
{
    const rule_config *c = in->config;
    rule_grade_base(in, out);
    out->value_count = 0;
    int right = out->acc >= 1;
    double longest = right ? c->min_value_correct : c->max_value_wrong;
    double shortest = right ? c->max_value_correct : c->min_value_wrong;
    double progress =
        clip_to_unit(measure_length(in, out) / (double)c->max_response_length);
    out->score =
        longest + 0.5 * (shortest - longest) * (1.0 + cosine_of_pi(progress));
}

/* ---- length_group --------------------------------------------------------
 */

typedef struct member {
    const char *prompt;
    const char *truth;
    double length;
    rule_grade *grade;
} member;

typedef struct group {
    member *members; /* [cap] */
    size_t cap;
} group;

static xray_status check_length_group(const rule_config *config, xr_err *err)
{
    return rule_need_base(config, "length_group", err);
}

static xray_status open_group_state(const rule_config *config, xr_err *err,
                                    void **out)
{
    (void)config;
    *out = calloc(1, sizeof(group));
    return *out ? XRAY_OK
                : xr_fail(err, XRAY_E_NOMEM, "length_group: out of memory");
}

static void close_group_state(void *state)
{
    group *self = state;
    if (self)
        free(self->members);
    free(self);
}

/* Stores the length in the score until all samples of the group are graded. */
static void grade_member(const rule_input *in, rule_grade *out)
{
    rule_grade_base(in, out);
    out->value_count = 0;
    out->score = measure_length(in, out);
}

static int is_same_group(const member *a, const member *b)
{
    return strcmp(a->prompt, b->prompt) == 0 && strcmp(a->truth, b->truth) == 0;
}

static int compare_by_group(const void *pa, const void *pb)
{
    const member *a = pa;
    const member *b = pb;
    int order = strcmp(a->prompt, b->prompt);
    return order ? order : strcmp(a->truth, b->truth);
}

/* The score is lambda = 0.5 - (n - min) / (max - min). A wrong response gets at
 * most 0, and a group whose responses have equal lengths gets 0. */
static void score_group_lengths(member *members, size_t count)
{
    double min = members[0].length;
    double max = min;
    for (size_t i = 1; i < count; i++) {
        min = members[i].length < min ? members[i].length : min;
        max = members[i].length > max ? members[i].length : max;
    }
    for (size_t i = 0; i < count; i++) {
        rule_grade *grade = members[i].grade;
        double lambda = 0;
        if (max > min)
            lambda = 0.5 - (members[i].length - min) / (max - min);
        grade->score = grade->acc < 1 && lambda > 0 ? 0 : lambda;
    }
}

static xray_status grade_groups(const rule_batch *batch, xr_err *err)
{
    group *self = batch->state;
    size_t count = (size_t)batch->count;
    if (count > self->cap) {
        member *members = realloc(self->members, count * sizeof(*members));
        if (!members)
            return xr_fail(err, XRAY_E_NOMEM, "out of memory");
        self->members = members;
        self->cap = count;
    }
    const char *at = (const char *)batch->samples;
    for (size_t i = 0; i < count; i++, at += batch->stride) {
        const xray_sample_in *sample = (const void *)at;
        self->members[i] = (member){
            .prompt = sample->prompt ? sample->prompt : "",
            .truth = sample->ground_truth ? sample->ground_truth : "",
            .length = batch->grades[i].score,
            .grade = &batch->grades[i],
        };
    }
    qsort(self->members, count, sizeof(*self->members), compare_by_group);
    for (size_t first = 0, end = 0; first < count; first = end) {
        while (end < count &&
               is_same_group(&self->members[first], &self->members[end]))
            end++;
        score_group_lengths(self->members + first, end - first);
    }
    return XRAY_OK;
}

const rule_grader rule_grader_length = {
    .keys = "max_response_length target_length shape unit length_coef "
            "length_offset base",
    .check = check_length,
    .grade = grade_length,
};

const rule_grader rule_grader_overlong = {
    .keys = "max_response_length overlong_buffer_len overlong_penalty_factor",
    .check = check_overlong,
    .grade = grade_overlong,
};

const rule_grader rule_grader_cosine = {
    .keys = "base max_response_length unit min_value_wrong max_value_wrong "
            "min_value_correct max_value_correct",
    .check = check_cosine,
    .grade = grade_cosine,
};

const rule_grader rule_grader_length_group = {
    .keys = "base unit",
    .check = check_length_group,
    .open = open_group_state,
    .close = close_group_state,
    .grade = grade_member,
    .batch = grade_groups,
};
