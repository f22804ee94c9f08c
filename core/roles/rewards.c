/* SPDX-License-Identifier: Apache-2.0
 *
 * Submits samples to the rewards, waits for their answers and checks them.
 */
#include "core/roles/rewards.h"
#include "core/base/elements.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/file.h"
#include "core/base/str.h"
#include "core/plugin/cancel.h"
#include "core/roles/nonfinite.h"
#include "core/roles/plugin_results.h"
#include "core/roles/reward_model.h"

#define WAIT_NS 100000000u

/* Memory that a later batch uses again. */
typedef struct kept_memory {
    void *data;
    size_t cap;
} kept_memory;

/* One answer, until all of its instance are there. */
typedef struct kept_answer {
    int given;
    uint32_t value_count;
    double score;
    float *tokens;            /* one per response token, or NULL */
    xray_named_value *values; /* [value_count], then their names, or NULL */
    kept_memory memory[2];    /* of both */
} kept_answer;

struct xr_scoring {
    xr_roles *roles;
    const xray_sample_in *samples;
    size_t count;
    size_t answer_count;
    kept_answer *answers; /* [answer_count], [reward_count, count] of which this
                           * batch has */
    size_t submitted[XR_MAX_REWARDS];
    size_t outstanding[XR_MAX_REWARDS];
    double since; /* xr_now() when the first of those outstanding began, or 0 */
    double beside; /* seconds in which samples were outstanding before that */
};

/* The answers of one instance, and what becomes of them. */
typedef struct collector {
    xr_scoring *scoring;
    xr_roles *roles;
    size_t which;
    const xr_scored *out;
} collector;

/* ---- answers ------------------------------------------------------------ */

static kept_answer *answer_at(const xr_scoring *s, size_t which, size_t sample)
{
    return &s->answers[which * s->count + sample];
}

/* Checks that an answer is one that was asked for. */
static xray_status check_answer(const xr_scoring *s, size_t which,
                                const xray_score *answer, xr_err *err)
{
    const char *who = s->roles->rewards[which].part->instance;
    if (answer->id >= s->count)
        return xr_fail(err, XRAY_E_BUG,
                       "%s answered for sample %llu, which was not asked for",
                       who, (unsigned long long)answer->id);
    if (answer_at(s, which, answer->id)->given)
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

/* Returns `size` bytes; NULL when out of memory. */
static void *reserve_memory(kept_memory *memory, size_t size)
{
    if (size > memory->cap) {
        void *more = realloc(memory->data, size);
        if (!more)
            return NULL;
        *memory = (kept_memory){ more, size };
    }
    return memory->data;
}

/* Copies the values with their names into one block of memory. A value without
 * a name stays without one. */
static int keep_values(const xray_score *answer, kept_answer *out)
{
    size_t names = 0;
    xray_named_value one;
    if (!answer->value_count)
        return 0;
    for (uint32_t v = 0; v < answer->value_count; v++) {
        xr_element_read(answer->values, answer->value_stride, v, sizeof(one),
                        &one);
        names += one.name ? strlen(one.name) + 1 : 0;
    }
    size_t table = answer->value_count * sizeof(one);
    char *memory = reserve_memory(&out->memory[1], table + names);
    if (!memory)
        return -1;
    out->values = (void *)memory;
    out->value_count = answer->value_count;
    char *name = memory + table;
    for (uint32_t v = 0; v < answer->value_count; v++) {
        xr_element_read(answer->values, answer->value_stride, v, sizeof(one),
                        &one);
        size_t size = one.name ? strlen(one.name) + 1 : 0;
        if (size)
            memcpy(name, one.name, size);
        one.name = size ? name : NULL;
        name += size;
        out->values[v] = one;
    }
    return 0;
}

/* Keeps what is valid only until the next poll. */
static xray_status keep_answer(xr_scoring *s, size_t which,
                               const xray_score *answer, xr_err *err)
{
    xray_status status = check_answer(s, which, answer, err);
    if (status != XRAY_OK)
        return status;
    kept_answer *kept = answer_at(s, which, answer->id);
    size_t tokens = s->samples[answer->id].id_count;
    int bad = keep_values(answer, kept);
    if (answer->token_scores && tokens) {
        kept->tokens =
            reserve_memory(&kept->memory[0], tokens * sizeof(*kept->tokens));
        if (kept->tokens)
            memcpy(kept->tokens, answer->token_scores,
                   tokens * sizeof(*kept->tokens));
        bad |= !kept->tokens;
    }
    if (bad)
        return xr_fail(err, XRAY_E_NOMEM, "out of memory for scores");
    kept->score = answer->score;
    kept->given = 1;
    return XRAY_OK;
}

/* ---- sums --------------------------------------------------------------- */

/* Scores are trained on as 32-bit floats. The limit lets the score of a token
 * and that of the sample be added without overflow. */
#define LARGEST ((double)(FLT_MAX / 4))

static int is_trainable_score(double value)
{
    return fabs(value) <= LARGEST;
}

static xray_status add_answer_score(const collector *c, size_t sample,
                                    const kept_answer *answer, xr_err *err)
{
    const xr_part *part = c->roles->rewards[c->which].part;
    xr_score *score = &c->out->scores[sample];
    if (!isfinite(answer->score))
        return xr_nonfinite(c->roles, err,
                            "%s gave the score %g for sample %zu, expected a "
                            "finite number",
                            part->instance, answer->score, sample);
    double sum = score->score + part->weight * answer->score;
    if (!is_trainable_score(answer->score) || !is_trainable_score(sum))
        return xr_nonfinite(c->roles, err,
                            "%s gave the score %g for sample %zu, times its "
                            "weight %g: up to %g is allowed",
                            part->instance, answer->score, sample, part->weight,
                            LARGEST);
    score->parts[c->which] = answer->score;
    score->score = sum;
    return XRAY_OK;
}

static xray_status add_token_scores(const collector *c, size_t sample,
                                    const kept_answer *answer, xr_err *err)
{
    const xr_part *part = c->roles->rewards[c->which].part;
    uint32_t tokens = c->scoring->samples[sample].id_count;
    if (!answer->tokens || !c->out->token_scores)
        return XRAY_OK;
    for (uint32_t t = 0; t < tokens; t++)
        if (!isfinite(answer->tokens[t]))
            return xr_nonfinite(c->roles, err,
                                "%s gave the score %g for token %u of sample "
                                "%zu, expected a finite number",
                                part->instance, (double)answer->tokens[t], t,
                                sample);
    for (uint32_t t = 0; t < tokens; t++) {
        float *sum = &c->out->token_scores[sample][t];
        *sum += (float)part->weight * answer->tokens[t];
        if (!is_trainable_score((double)*sum))
            return xr_nonfinite(
                c->roles, err,
                "%s gave the score %g for token %u of sample %zu, times its "
                "weight %g: up to %g is allowed",
                part->instance, (double)answer->tokens[t], t, sample,
                part->weight, LARGEST);
    }
    return XRAY_OK;
}

static void report_answer_values(const collector *c, size_t sample,
                                 const kept_answer *answer)
{
    for (uint32_t v = 0; c->out->value && v < answer->value_count; v++)
        if (answer->values[v].name)
            c->out->value(c->out->ctx, sample,
                          c->roles->rewards[c->which].part->instance,
                          answer->values[v].name, answer->values[v].value);
}

/* Adds the answers of one instance in the order of the samples. */
static xray_status add_answers(const collector *c, xr_err *err)
{
    xray_status found = XRAY_OK;
    for (size_t i = 0; i < c->scoring->count; i++) {
        const kept_answer *answer = answer_at(c->scoring, c->which, i);
        xr_err *first = found == XRAY_OK ? err : NULL;
        xray_status status = add_answer_score(c, i, answer, first);
        if (status == XRAY_OK)
            status = add_token_scores(c, i, answer, first);
        if (status == XRAY_OK)
            report_answer_values(c, i, answer);
        else if (found == XRAY_OK)
            found = status;
    }
    return found;
}

/* ---- calls -------------------------------------------------------------- */

static xray_status poll_answer(const xr_instance *reward, uint64_t wait_ns,
                               xray_score *out)
{
    const xray_reward_ops *ops = xr_reward_ops(reward->part);
    *out = (xray_score){ .header = XRAY_HEADER(xray_score) };
    return XR_CALL(reward->part, "poll", ops->poll(reward->self, wait_ns, out));
}

static int works_beside(const xr_instance *reward)
{
    const xray_reward_ops *ops = xr_reward_ops(reward->part);
    return XRAY_HAS(xray_reward_ops, ops, capabilities) &&
           (ops->capabilities & XRAY_REWARD_BESIDE);
}

int xr_rewards_work_beside(const xr_roles *roles)
{
    for (size_t r = 0; r < roles->run->reward_count; r++)
        if (works_beside(&roles->rewards[r]))
            return 1;
    return 0;
}

/* Keeps the time while samples are outstanding. */
static void note_time(xr_scoring *s)
{
    size_t outstanding = 0;
    for (size_t r = 0; r < s->roles->run->reward_count; r++)
        outstanding += s->outstanding[r];
    if (outstanding && s->since <= 0)
        s->since = xr_now();
    if (!outstanding && s->since > 0) {
        s->beside += xr_now() - s->since;
        s->since = 0;
    }
}

static xray_status submit_samples(xr_scoring *s, size_t which, size_t first,
                                  size_t count, xr_err *err)
{
    const xr_instance *reward = &s->roles->rewards[which];
    const xray_reward_ops *ops = xr_reward_ops(reward->part);
    xray_status status = XR_CALL(reward->part, "submit",
                                 ops->submit(reward->self, s->samples + first,
                                             count, sizeof(*s->samples)));
    if (status != XRAY_OK)
        return xr_host_error(reward->part->host, status, "submit", err);
    s->submitted[which] += count;
    s->outstanding[which] += count;
    return XRAY_OK;
}

/* Takes the next answer if one comes within wait_ns; XRAY_AGAIN if none does.
 */
static xray_status take_answer(xr_scoring *s, size_t which, uint64_t wait_ns,
                               xr_err *err)
{
    const xr_instance *reward = &s->roles->rewards[which];
    xray_score answer;
    xray_status status = poll_answer(reward, wait_ns, &answer);
    if (status == XRAY_AGAIN)
        return status;
    if (status == XRAY_END)
        return xr_fail(err, XRAY_E_BUG,
                       "%s has no more answers, %zu of %zu are missing",
                       reward->part->instance, s->outstanding[which], s->count);
    if (status != XRAY_OK)
        return xr_host_error(reward->part->host, status, "poll", err);
    s->outstanding[which]--;
    return keep_answer(s, which, &answer, err);
}

/* Waits for the next answer, at most for the time that a plugin has. */
static xray_status wait_for_answer(xr_scoring *s, size_t which, xr_err *err)
{
    int64_t limit = xr_guard_limit_now();
    double start = xr_now();
    for (;;) {
        xray_status status = xr_cancel_check(err);
        if (status == XRAY_OK)
            status = take_answer(s, which, WAIT_NS, err);
        if (status != XRAY_AGAIN)
            return status;
        if (limit && xr_now() - start > 1e-9 * (double)limit)
            return xr_fail(err, XRAY_E_BUG,
                           "%s gave no answer for %g s ([run] "
                           "plugin_timeout), %zu of %zu are missing",
                           s->roles->rewards[which].part->instance,
                           1e-9 * (double)limit, s->outstanding[which],
                           s->count);
    }
}

/* Checks that no answer follows the last sample; it would be taken for an
 * answer of the next step. */
static xray_status expect_no_more_answers(const xr_scoring *s, size_t which,
                                          xr_err *err)
{
    const xr_instance *reward = &s->roles->rewards[which];
    xray_score answer;
    xray_status status = poll_answer(reward, 0, &answer);
    if (status == XRAY_END || status == XRAY_AGAIN)
        return XRAY_OK;
    if (status != XRAY_OK)
        return xr_host_error(reward->part->host, status, "poll", err);
    return xr_fail(err, XRAY_E_BUG,
                   "%s gave more answers than the %zu asked for",
                   reward->part->instance, s->count);
}

/* Collects all answers of one instance and adds them. A value that is not
 * finite does not end the collection, because remaining answers would be taken
 * for those of the next step. */
static xray_status collect_answers(const collector *c, xr_err *err)
{
    xr_scoring *s = c->scoring;
    xray_status status = XRAY_OK;
    while (status == XRAY_OK && s->outstanding[c->which])
        status = wait_for_answer(s, c->which, err);
    if (status == XRAY_OK)
        status = expect_no_more_answers(s, c->which, err);
    return status == XRAY_OK ? add_answers(c, err) : status;
}

/* ---- a batch ------------------------------------------------------------ */

static int grow_answers(xr_scoring *s, size_t count)
{
    kept_answer *more = realloc(s->answers, count * sizeof(*more));
    if (!more)
        return -1;
    s->answers = more;
    for (; s->answer_count < count; s->answer_count++)
        s->answers[s->answer_count] = (kept_answer){ 0 };
    return 0;
}

xray_status xr_scoring_begin(xr_roles *roles, const xray_sample_in *samples,
                             size_t count, xr_err *err, xr_scoring **inout)
{
    size_t all = roles->run->reward_count * count;
    xr_scoring *s = *inout ? *inout : xr_calloc(1, sizeof(*s));
    int bad = !s;
    if (s && s->answer_count < all)
        bad = grow_answers(s, all);
    *inout = s;
    if (bad)
        return xr_fail(err, XRAY_E_NOMEM, "out of memory for %zu scores",
                       count);
    for (size_t i = 0; i < all; i++) {
        kept_answer *a = &s->answers[i];
        *a = (kept_answer){ .memory = { a->memory[0], a->memory[1] } };
    }
    *s = (xr_scoring){ .roles = roles,
                       .samples = samples,
                       .count = count,
                       .answer_count = s->answer_count,
                       .answers = s->answers };
    return XRAY_OK;
}

void xr_scoring_free(xr_scoring *s)
{
    if (!s)
        return;
    for (size_t i = 0; i < s->answer_count; i++) {
        free(s->answers[i].memory[0].data);
        free(s->answers[i].memory[1].data);
    }
    free(s->answers);
    free(s);
}

xray_status xr_scoring_submit(xr_scoring *s, size_t first, size_t count,
                              xr_err *err)
{
    xray_status status = XRAY_OK;
    for (size_t r = 0; r < s->roles->run->reward_count && status == XRAY_OK;
         r++)
        if (works_beside(&s->roles->rewards[r]))
            status = submit_samples(s, r, first, count, err);
    note_time(s);
    return status;
}

xray_status xr_scoring_look(xr_scoring *s, xr_err *err)
{
    xray_status status = XRAY_OK;
    for (size_t r = 0; r < s->roles->run->reward_count && status == XRAY_OK;
         r++) {
        while (status == XRAY_OK && s->outstanding[r])
            status = take_answer(s, r, 0, err);
        if (status == XRAY_AGAIN)
            status = XRAY_OK;
    }
    note_time(s);
    return status;
}

double xr_scoring_beside(xr_scoring *s)
{
    if (s->since > 0)
        s->beside += xr_now() - s->since;
    s->since = 0;
    return s->beside;
}

/* All instances get their samples before one is waited for. */
static xray_status submit_rest(xr_scoring *s, xr_err *err)
{
    xray_status status = XRAY_OK;
    for (size_t r = 0; r < s->roles->run->reward_count && status == XRAY_OK;
         r++) {
        if (!s->submitted[r])
            status = submit_samples(s, r, 0, s->count, err);
        else if (s->submitted[r] != s->count)
            status = xr_fail(err, XRAY_E_BUG, "%s was given %zu of %zu samples",
                             s->roles->rewards[r].part->instance,
                             s->submitted[r], s->count);
    }
    return status;
}

xray_status xr_scoring_finish(xr_scoring *s, const xr_scored *out, xr_err *err)
{
    xr_roles *roles = s->roles;
    xray_status found = XRAY_OK;
    xr_err first = { "" };
    for (size_t i = 0; i < s->count; i++)
        out->scores[i] = (xr_score){ .score = 0 };
    if (!s->count)
        return XRAY_OK;
    xray_status status = submit_rest(s, err);
    for (size_t r = 0; r < roles->run->reward_count && status == XRAY_OK; r++) {
        const collector c = { s, roles, r, out };
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

/* A failure is an answer, too, of a sample that is not wanted any more. */
void xr_scoring_drain(xr_scoring *s)
{
    int64_t limit = xr_guard_limit_now();
    double start = xr_now();
    for (size_t r = 0; r < s->roles->run->reward_count; r++) {
        const xr_instance *reward = &s->roles->rewards[r];
        while (s->outstanding[r] && xr_cancel_check(NULL) == XRAY_OK &&
               !(limit && xr_now() - start > 1e-9 * (double)limit)) {
            xray_score answer;
            xray_status status = poll_answer(reward, WAIT_NS, &answer);
            if (status == XRAY_END)
                s->outstanding[r] = 0;
            else if (status != XRAY_AGAIN)
                s->outstanding[r]--;
        }
    }
}

xray_status xr_rewards_score(xr_roles *roles, const xray_sample_in *samples,
                             size_t count, xr_score *out_scores,
                             float *const *token_scores, xr_score_value value,
                             void *ctx, xr_err *err)
{
    const xr_scored out = { out_scores, token_scores, value, ctx };
    xr_scoring *scoring = NULL;
    xray_status status = xr_scoring_begin(roles, samples, count, err, &scoring);
    if (status == XRAY_OK)
        status = xr_scoring_finish(scoring, &out, err);
    xr_scoring_free(scoring);
    return status;
}
