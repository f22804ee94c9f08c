/* SPDX-License-Identifier: Apache-2.0
 *
 * Submits samples to the rewards, waits for their answers and checks them.
 */
#include "core/roles/rewards.h"
#include "core/base/elements.h"

#include <float.h>
#include <math.h>

#include "core/base/file.h"
#include "core/plugin/cancel.h"
#include "core/roles/nonfinite.h"
#include "core/roles/plugin_results.h"
#include "core/roles/reward_model.h"

#define WAIT_NS 100000000u

/* Collects the answers of one instance. */
typedef struct collector {
    xr_roles *roles;
    size_t which;
    const xray_sample_in *samples;
    size_t count;
    xr_score *scores;
    float *const *token_scores; /* or NULL */
    xr_score_value value;       /* or NULL */
    void *ctx;
} collector;

/* Checks that an answer is one that was asked for. */
static xray_status check_answer(const collector *c, const xray_score *answer,
                                xr_err *err)
{
    const char *who = c->roles->rewards[c->which].part->instance;
    if (answer->id >= c->count)
        return xr_fail(err, XRAY_E_BUG,
                       "%s answered for sample %llu, which was not asked for",
                       who, (unsigned long long)answer->id);
    if (!isnan(c->scores[answer->id].parts[c->which]))
        return xr_fail(err, XRAY_E_BUG, "%s answered twice for sample %llu",
                       who, (unsigned long long)answer->id);
    if (answer->value_count &&
        (!answer->values ||
         answer->value_stride < XR_LEAST(xray_named_value, value) ||
         answer->value_stride % 8))
        return xr_fail(err, XRAY_E_BUG,
                       "%s gave %u values for sample %llu, but no array of "
                       "them",
                       who, answer->value_count,
                       (unsigned long long)answer->id);
    if (answer->value_count > XR_NAMES_MOST)
        return xr_fail(
            err, XRAY_E_BUG,
            "%s gave %u values for sample %llu, at most %u are allowed", who,
            answer->value_count, (unsigned long long)answer->id, XR_NAMES_MOST);
    return XRAY_OK;
}

/* Scores are trained on as 32-bit floats. The limit lets the score of a token
 * and that of the sample be added without overflow. */
#define LARGEST ((double)(FLT_MAX / 4))

static int is_trainable_score(double value)
{
    return fabs(value) <= LARGEST;
}

static xray_status add_answer_score(const collector *c,
                                    const xray_score *answer, xr_err *err)
{
    const xr_part *part = c->roles->rewards[c->which].part;
    xr_score *score = &c->scores[answer->id];
    score->parts[c->which] = 0;
    if (!isfinite(answer->score))
        return xr_nonfinite(c->roles, err,
                            "%s gave the score %g for sample %llu, expected a "
                            "finite number",
                            part->instance, answer->score,
                            (unsigned long long)answer->id);
    double sum = score->score + part->weight * answer->score;
    if (!is_trainable_score(answer->score) || !is_trainable_score(sum))
        return xr_nonfinite(c->roles, err,
                            "%s gave the score %g for sample %llu, times its "
                            "weight %g: up to %g is allowed",
                            part->instance, answer->score,
                            (unsigned long long)answer->id, part->weight,
                            LARGEST);
    score->parts[c->which] = answer->score;
    score->score = sum;
    return XRAY_OK;
}

static xray_status add_token_scores(const collector *c,
                                    const xray_score *answer, xr_err *err)
{
    const xr_part *part = c->roles->rewards[c->which].part;
    uint32_t tokens = c->samples[answer->id].id_count;
    if (!answer->token_scores || !c->token_scores)
        return XRAY_OK;
    for (uint32_t t = 0; t < tokens; t++)
        if (!isfinite(answer->token_scores[t]))
            return xr_nonfinite(c->roles, err,
                                "%s gave the score %g for token %u of sample "
                                "%llu, expected a finite number",
                                part->instance, (double)answer->token_scores[t],
                                t, (unsigned long long)answer->id);
    for (uint32_t t = 0; t < tokens; t++) {
        float *sum = &c->token_scores[answer->id][t];
        *sum += (float)part->weight * answer->token_scores[t];
        if (!is_trainable_score((double)*sum))
            return xr_nonfinite(
                c->roles, err,
                "%s gave the score %g for token %u of sample %llu, times its "
                "weight %g: up to %g is allowed",
                part->instance, (double)answer->token_scores[t], t,
                (unsigned long long)answer->id, part->weight, LARGEST);
    }
    return XRAY_OK;
}

static void report_answer_values(const collector *c, const xray_score *answer)
{
    for (uint32_t v = 0; c->value && v < answer->value_count; v++) {
        xray_named_value named;
        xr_element_read(answer->values, answer->value_stride, v, sizeof(named),
                        &named);
        if (named.name)
            c->value(c->ctx, answer->id,
                     c->roles->rewards[c->which].part->instance, named.name,
                     named.value);
    }
}

/* Waits for the next answer, at most for the time that a plugin has. */
static xray_status wait_for_answer(const xr_instance *reward, size_t left,
                                   size_t count, xray_score *out, xr_err *err)
{
    const xr_part *part = reward->part;
    const xray_reward_ops *ops = xr_reward_ops(part);
    int64_t limit = xr_guard_limit_now();
    double start = xr_now();
    for (;;) {
        *out = (xray_score){ .header = XRAY_HEADER(xray_score) };
        xray_status status = xr_cancel_check(err);
        if (status != XRAY_OK)
            return status;
        status = XR_CALL(part, "poll", ops->poll(reward->self, WAIT_NS, out));
        if (status == XRAY_OK)
            return XRAY_OK;
        if (status == XRAY_END)
            return xr_fail(err, XRAY_E_BUG,
                           "%s has no more answers, %zu of %zu are missing",
                           part->instance, left, count);
        if (status != XRAY_AGAIN)
            return xr_host_error(part->host, status, "poll", err);
        if (limit && xr_now() - start > 1e-9 * (double)limit)
            return xr_fail(err, XRAY_E_BUG,
                           "%s gave no answer for %g s ([run] "
                           "plugin_timeout), %zu of %zu are missing",
                           part->instance, 1e-9 * (double)limit, left, count);
    }
}

/* Checks that no answer follows the last sample; it would be taken for an
 * answer of the next step. */
static xray_status expect_no_more_answers(const xr_instance *reward,
                                          size_t count, xr_err *err)
{
    const xr_part *part = reward->part;
    const xray_reward_ops *ops = xr_reward_ops(part);
    xray_score answer = { .header = XRAY_HEADER(xray_score) };
    xray_status status =
        XR_CALL(part, "poll", ops->poll(reward->self, 0, &answer));
    if (status == XRAY_END || status == XRAY_AGAIN)
        return XRAY_OK;
    if (status != XRAY_OK)
        return xr_host_error(part->host, status, "poll", err);
    return xr_fail(err, XRAY_E_BUG,
                   "%s gave more answers than the %zu asked for",
                   part->instance, count);
}

/* Collects all answers of one instance. Instances are collected in their order,
 * so the sum does not depend on which answer comes first. A value that is not
 * finite does not end the collection, because remaining answers would be taken
 * for those of the next step. */
static xray_status collect_answers(const collector *c, xr_err *err)
{
    const xr_instance *reward = &c->roles->rewards[c->which];
    xray_status found = XRAY_OK;
    for (size_t left = c->count; left; left--) {
        xray_score answer;
        xray_status status =
            wait_for_answer(reward, left, c->count, &answer, err);
        if (status == XRAY_OK)
            status = check_answer(c, &answer, err);
        if (status != XRAY_OK)
            return status;
        xr_err *first = found == XRAY_OK ? err : NULL;
        status = add_answer_score(c, &answer, first);
        if (status == XRAY_OK)
            status = add_token_scores(c, &answer, first);
        if (status == XRAY_OK)
            report_answer_values(c, &answer);
        else if (found == XRAY_OK)
            found = status;
    }
    xray_status status = expect_no_more_answers(reward, c->count, err);
    return status != XRAY_OK ? status : found;
}

/* Submits to every instance before any answer is waited for. */
static xray_status submit_to_rewards(xr_roles *roles,
                                     const xray_sample_in *samples,
                                     size_t count, xr_err *err)
{
    for (size_t r = 0; r < roles->run->reward_count; r++) {
        const xr_part *part = roles->rewards[r].part;
        const xray_reward_ops *ops = xr_reward_ops(part);
        xray_status status =
            XR_CALL(part, "submit",
                    ops->submit(roles->rewards[r].self, samples, count,
                                sizeof(*samples)));
        if (status != XRAY_OK)
            return xr_host_error(part->host, status, "submit", err);
    }
    return XRAY_OK;
}

xray_status xr_rewards_score(xr_roles *roles, const xray_sample_in *samples,
                             size_t count, xr_score *out_scores,
                             float *const *token_scores, xr_score_value value,
                             void *ctx, xr_err *err)
{
    xray_status found = XRAY_OK;
    xr_err first = { "" };
    for (size_t i = 0; i < count; i++) {
        out_scores[i] = (xr_score){ .score = 0 };
        for (size_t r = 0; r < roles->run->reward_count; r++)
            out_scores[i].parts[r] = NAN; /* not answered yet */
    }
    if (!count)
        return XRAY_OK;
    xray_status status = submit_to_rewards(roles, samples, count, err);
    for (size_t r = 0; r < roles->run->reward_count && status == XRAY_OK; r++) {
        const collector c = { roles,        r,     samples, count, out_scores,
                              token_scores, value, ctx };
        xr_err own = { "" };
        roles->nonfinite = 0;
        status = collect_answers(&c, &own);
        if (status != XRAY_OK && (!found || !roles->nonfinite))
            first = own;
        if (status != XRAY_E_NUMERIC || !roles->nonfinite)
            continue;
        found = status;
        status = XRAY_OK;
    }
    if (status == XRAY_OK)
        status = found;
    roles->nonfinite = status != XRAY_OK && status == found;
    if (status != XRAY_OK && *first.text)
        (void)xr_fail(err, status, "%s", first.text);
    return status;
}
