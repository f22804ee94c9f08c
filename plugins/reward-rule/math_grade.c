/* SPDX-License-Identifier: Apache-2.0
 *
 * The math graders.
 */
#include <stdlib.h>

#include "plugins/reward-rule/grade.h"
#include "plugins/reward-rule/math_find.h"

/* Characters that DAPO's scorer reads. */
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

/* A whole solution stands for the content of its last box. */
static rule_text truth_of(rule_text truth)
{
    rule_text box = rule_extract_boxed(truth);
    return box.data ? box : truth;
}

/* Copies an answer out of the buffers that the comparison works on. */
static int extract(const rule_input *in, rule_text response, int preset,
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
    int found = extract(in, in->response, RULE_FROM_BOXED, answer);
    int right = found && rule_equal_hendrycks(rule_buffer_text(answer),
                                              truth_of(in->truth), &m->a, &m->b,
                                              &m->scratch);
    rule_verdict(in->config, found, right, out);
}

static void grade_minerva(const rule_input *in, rule_grade *out)
{
    static const rule_equality exact = { .single = 1 };
    rule_math *m = in->state;
    int found = extract(in, in->response, RULE_FROM_MINERVA, &m->given);
    int right = found && rule_equal_minerva(m, rule_buffer_text(&m->given),
                                            truth_of(in->truth), &exact);
    rule_verdict(in->config, found, right, out);
}

static void grade_prm800k(const rule_input *in, rule_grade *out)
{
    rule_math *m = in->state;
    int found = extract(in, in->response, RULE_FROM_BOXED, &m->given);
    int right = found && rule_equal_prm800k(m, rule_buffer_text(&m->given),
                                            truth_of(in->truth));
    rule_verdict(in->config, found, right, out);
}

/* A strict box is compared as it stands. */
static void grade_dapo(const rule_input *in, rule_grade *out)
{
    rule_math *m = in->state;
    rule_text tail = rule_last_characters(in->response, DAPO_TAIL);
    if (in->config->extract == RULE_FROM_BOXED) {
        rule_text box = rule_extract_strict_box(tail);
        rule_verdict(in->config, box.data != NULL,
                     box.data && rule_equal(box, in->truth, 0), out);
        return;
    }
    int found = extract(in, tail, RULE_FROM_ANSWER, &m->given);
    int right =
        found && rule_equal_dapo(m, rule_buffer_text(&m->given), in->truth);
    rule_verdict(in->config, found, right, out);
}

/* slime's copy of DAPO's scorer: end tokens go, and the truth is cut to a whole
 * number. */
static void grade_slime(const rule_input *in, rule_grade *out)
{
    rule_math *m = in->state;
    rule_text tail = rule_last_characters(in->response, DAPO_TAIL);
    int found = extract(in, tail, RULE_FROM_ANSWER, &m->given);
    int right =
        found && rule_equal_slime(m, rule_buffer_text(&m->given), in->truth);
    rule_verdict(in->config, found, right, out);
}

static void grade_verify(const rule_input *in, rule_grade *out)
{
    rule_math *m = in->state;
    rule_equality how = {
        .tolerance = in->config->tolerance,
        .relation_is_no_set = !in->config->allow_set_relation_comp,
    };
    int found = extract(in, in->response, RULE_FROM_ANY, &m->found);
    int known = 1;
    if (found && in->config->grader == RULE_IS_math_areal)
        known =
            rule_find_answer(m, in->truth, RULE_KIND_LATEX | RULE_KIND_NUMBER);
    else if (found)
        rule_find_truth(m, in->truth);
    int right = found && known && !m->a.full &&
                rule_math_equal(m, rule_buffer_text(&m->found),
                                rule_buffer_text(&m->a), &how);
    rule_verdict(in->config, found, right, out);
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
