/* SPDX-License-Identifier: Apache-2.0 */
#include "core/rl/rewards.h"

#include <math.h>

#define WAIT_NS 100000000u

static xray_status take(xr_session *s, size_t which, const xray_score *answer,
                        size_t count, xr_score *out_scores, xr_err *err)
{
    const xr_part *part = &s->rewards[which];
    if (answer->id >= count)
        return xr_fail(err, XRAY_E_BUG,
                       "%s answered for sample %llu, which was not asked for",
                       part->instance, (unsigned long long)answer->id);
    if (!isfinite(answer->score))
        return xr_fail(err, XRAY_E_NUMERIC,
                       "%s gave the score %g for sample %llu, expected a "
                       "finite number",
                       part->instance, answer->score,
                       (unsigned long long)answer->id);
    out_scores[answer->id].parts[which] = answer->score;
    out_scores[answer->id].score += part->weight * answer->score;
    return XRAY_OK;
}

static void add_tokens(const xr_part *part, const xray_score *answer,
                       uint32_t tokens, float *target)
{
    for (uint32_t t = 0; t < tokens; t++)
        target[t] += (float)part->weight * answer->token_scores[t];
}

/* All answers of one instance. They are added in the order of instances, so the
 * sum does not depend on which answer comes first. */
static xray_status collect(xr_session *s, size_t which,
                           const xray_sample_in *samples, size_t count,
                           xr_score *out_scores, float *const *token_scores,
                           xr_score_value value, void *ctx, xr_err *err)
{
    const xr_part *part = &s->rewards[which];
    const xray_reward_ops *ops = (const xray_reward_ops *)part->ops;
    size_t left = count;
    while (left) {
        xray_score answer = { .head = XRAY_HEAD(xray_score) };
        xray_status status = ops->poll(part->self, WAIT_NS, &answer);
        if (status == XRAY_AGAIN)
            continue;
        if (status == XRAY_END)
            return xr_fail(err, XRAY_E_BUG,
                           "%s has no more answers, %zu of %zu are missing",
                           part->instance, left, count);
        if (status != XRAY_OK)
            return xr_host_error(part->host, status, "poll", err);
        status = take(s, which, &answer, count, out_scores, err);
        if (status != XRAY_OK)
            return status;
        if (answer.token_scores && token_scores)
            add_tokens(part, &answer, samples[answer.id].id_count,
                       token_scores[answer.id]);
        const char *at = (const char *)answer.values;
        for (uint32_t v = 0; value && v < answer.value_count; v++) {
            const xray_named_value *named =
                (const xray_named_value
                     *)(const void *)(at + v * (size_t)answer.value_stride);
            value(ctx, answer.id, part->instance, named->name, named->value);
        }
        left--;
    }
    return XRAY_OK;
}

xray_status xr_rewards_score(xr_session *s, const xray_sample_in *samples,
                             size_t count, xr_score *out_scores,
                             float *const *token_scores, xr_score_value value,
                             void *ctx, xr_err *err)
{
    for (size_t i = 0; i < count; i++)
        out_scores[i] = (xr_score){ .score = 0 };
    if (!count)
        return XRAY_OK;
    /* Every instance gets its work before any is waited for. */
    for (size_t r = 0; r < s->reward_count; r++) {
        const xr_part *part = &s->rewards[r];
        const xray_reward_ops *ops = (const xray_reward_ops *)part->ops;
        xray_status status =
            ops->submit(part->self, samples, count, sizeof(*samples));
        if (status != XRAY_OK)
            return xr_host_error(part->host, status, "submit", err);
    }
    for (size_t r = 0; r < s->reward_count; r++) {
        xray_status status = collect(s, r, samples, count, out_scores,
                                     token_scores, value, ctx, err);
        if (status != XRAY_OK)
            return status;
    }
    return XRAY_OK;
}
