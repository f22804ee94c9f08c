/* SPDX-License-Identifier: Apache-2.0
 *
 * The math graders: each extracts an answer and compares it with the ground
 * truth by its own rules.
 */
#include <stdlib.h>

#include "plugins/reward-rule/grade.h"
#include "plugins/reward-rule/math_find.h"

/* Number of last characters that DAPO's scorer reads. */
#define DAPO_TAIL 300u

static xray_status open_math(const rule_config *config, xr_err *err, void **out)
{
    (void)config;
    *out = malloc(sizeof(rule_math));
    return *out ? XRAY_OK : xr_fail(err, XRAY_E_NOMEM, "out of memory");
}

static void close_math(void *state)
{
    free(state);
}

/* A ground truth that is a complete solution stands for the content of its
 * last box. */
static rule_text extract_truth(rule_text truth)
{
    rule_text box = rule_extract_boxed(truth);
    return box.data ? box : truth;
}

/* Copies the answer out of the buffers that the comparison overwrites. */
static int extract_answer(const rule_input *in, rule_text response, int preset,
                          rule_buffer *out)
{
    rule_math *m = in->state;
    int from = (int)in->config->extract;
    if (!rule_math_extract(m, response, from ? from : preset))
        return 0;
    *out = m->a;
    return !out->full;
}

static void grade_hendrycks(const rule_input *in, rule_grade *out)
{
    rule_math *m = in->state;
    rule_buffer *answer = &m->given;
    int found = extract_answer(in, in->response, RULE_FROM_BOXED, answer);
    int right = found && rule_equal_hendrycks(rule_buffer_text(answer),
                                              extract_truth(in->truth), &m->a,
                                              &m->b, &m->scratch);
    rule_grade_outcome(in->config, found, right, out);
}

static void grade_minerva(const rule_input *in, rule_grade *out)
{
    static const rule_equality exact = { .single = 1 };
    rule_math *m = in->state;
    int found = extract_answer(in, in->response, RULE_FROM_MINERVA, &m->given);
    int right = found && rule_equal_minerva(m, rule_buffer_text(&m->given),
                                            extract_truth(in->truth), &exact);
    rule_grade_outcome(in->config, found, right, out);
}

static void grade_prm800k(const rule_input *in, rule_grade *out)
{
    rule_math *m = in->state;
    int found = extract_answer(in, in->response, RULE_FROM_BOXED, &m->given);
    int right = found && rule_equal_prm800k(m, rule_buffer_text(&m->given),
                                            extract_truth(in->truth));
    rule_grade_outcome(in->config, found, right, out);
}

/* The content of a strict box is compared unchanged. */
static void grade_dapo(const rule_input *in, rule_grade *out)
{
    rule_math *m = in->state;
    rule_text tail = rule_last_characters(in->response, DAPO_TAIL);
    if (in->config->extract == RULE_FROM_BOXED) {
        rule_text box = rule_extract_strict_box(tail);
        rule_grade_outcome(in->config, box.data != NULL,
                           box.data && rule_equal(box, in->truth, 0), out);
        return;
    }
    int found = extract_answer(in, tail, RULE_FROM_ANSWER, &m->given);
    int right =
        found && rule_equal_dapo(m, rule_buffer_text(&m->given), in->truth);
    rule_grade_outcome(in->config, found, right, out);
}

/* slime's copy of DAPO's scorer drops end tokens and cuts the truth to an
 * integer. */
static void grade_slime(const rule_input *in, rule_grade *out)
{
    rule_math *m = in->state;
    rule_text tail = rule_last_characters(in->response, DAPO_TAIL);
    int found = extract_answer(in, tail, RULE_FROM_ANSWER, &m->given);
    int right =
        found && rule_equal_slime(m, rule_buffer_text(&m->given), in->truth);
    rule_grade_outcome(in->config, found, right, out);
}

static void grade_verify(const rule_input *in, rule_grade *out)
{
    rule_math *m = in->state;
    rule_equality how = {
        .tolerance = in->config->tolerance,
        .relation_is_no_set = !in->config->allow_set_relation_comp,
    };
    int found = extract_answer(in, in->response, RULE_FROM_ANY, &m->found);
    int known = 1;
    if (found && in->config->grader == RULE_IS_math_areal)
        known =
            rule_find_answer(m, in->truth, RULE_KIND_LATEX | RULE_KIND_NUMBER);
    else if (found)
        rule_find_truth(m, in->truth);
    int right = found && known && !m->a.full &&
                rule_math_equal(m, rule_buffer_text(&m->found),
                                rule_buffer_text(&m->a), &how);
    rule_grade_outcome(in->config, found, right, out);
}

#define MATH_GRADER(name, own_keys, function)          \
    const rule_grader rule_grader_##name = {           \
        .keys = RULE_SCORES "after extract " own_keys, \
        .decides = 1,                                  \
        .open = open_math,                             \
        .close = close_math,                           \
        .grade = function,                             \
    }

MATH_GRADER(math, "", grade_hendrycks);
MATH_GRADER(math_minerva, "", grade_minerva);
MATH_GRADER(math_prm800k, "", grade_prm800k);
MATH_GRADER(math_dapo, "", grade_dapo);
MATH_GRADER(math_slime, "", grade_slime);
MATH_GRADER(math_areal, "tolerance allow_set_relation_comp ", grade_verify);
MATH_GRADER(math_verify, "tolerance allow_set_relation_comp ", grade_verify);
