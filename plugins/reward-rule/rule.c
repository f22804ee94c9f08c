/* SPDX-License-Identifier: Apache-2.0
 *
 * The reward "rule": grades samples when they are submitted, mostly against
 * the ground truth of their row, and returns the scores in the same order.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include <xray/reward.h>

#include "core/base/services.h"
#include "plugins/reward-rule/grade.h"

typedef struct rule {
    const xray_host *host;
    const xray_call_service *calls; /* or NULL */
    rule_judge judge;
    uint64_t *ids;      /* [cap]; those from first to count are outstanding */
    rule_grade *grades; /* [cap] */
    size_t first;
    size_t count;
    size_t cap;
    xray_named_value values[2 + RULE_VALUES];
    int remarked;
} rule;

static xray_status rule_create(const xray_host *host, const void *config,
                               void **out_self)
{
    xr_err err = { "" };
    rule_judge judge = { .config = NULL };
    xray_status status = rule_judge_open(config, &err, &judge);
    if (status != XRAY_OK)
        return xr_host_tell(host, status, "create", &err);
    rule *self = calloc(1, sizeof(*self));
    if (!self) {
        rule_judge_close(&judge);
        return host->fail(host, XRAY_E_NOMEM, "create", "out of memory");
    }
    self->host = host;
    self->calls = xr_calls_of(host);
    self->judge = judge;
    *out_self = self;
    return XRAY_OK;
}

static void rule_destroy(void *ptr)
{
    rule *self = ptr;
    if (!self)
        return;
    rule_judge_close(&self->judge);
    free(self->ids);
    free(self->grades);
    free(self);
}

static int reserve_grades(rule *self, uint64_t more)
{
    if (self->first == self->count)
        self->first = self->count = 0;
    if (more <= self->cap - self->count)
        return 0;
    if (more > SIZE_MAX / 2 / sizeof(rule_grade) - self->count)
        return -1;
    size_t cap = 2 * (self->count + (size_t)more);
    uint64_t *ids = realloc(self->ids, cap * sizeof(*ids));
    if (ids)
        self->ids = ids;
    rule_grade *grades = realloc(self->grades, cap * sizeof(*grades));
    if (grades)
        self->grades = grades;
    if (!ids || !grades)
        return -1;
    self->cap = cap;
    return 0;
}

/* Logs only the first remark of a run, because there may be one per sample. */
static void report_remark(rule *self, const xray_sample_in *sample,
                          const char *text)
{
    if (!text || self->remarked)
        return;
    char line[160];
    (void)snprintf(line, sizeof(line),
                   "sample %" PRIu64
                   " could not be graded properly: %s (reported only once)",
                   sample->id, text);
    self->host->log(self->host, XRAY_LOG_WARN, line);
    self->remarked = 1;
}

static xray_status rule_submit(void *ptr, const xray_sample_in *samples,
                               uint64_t count, uint64_t stride)
{
    rule *self = ptr;
    xr_err err = { "" };
    if (!count)
        return XRAY_OK;
    if (reserve_grades(self, count))
        return self->host->fail(self->host, XRAY_E_NOMEM, "submit",
                                "out of memory");
    rule_grade *grades = self->grades + self->count;
    const char *at = (const char *)samples;
    for (uint64_t i = 0; i < count; i++, at += stride) {
        const xray_sample_in *sample = (const void *)at;
        xray_status status = xr_stop_check(self->calls, &err);
        if (status != XRAY_OK)
            return xr_host_tell(self->host, status, "submit", &err);
        rule_judge_sample(&self->judge, sample, &grades[i]);
        report_remark(self, sample, grades[i].remark);
        self->ids[self->count + i] = sample->id;
        if (grades[i].failed)
            return self->host->fail(self->host, XRAY_E_NOMEM, "submit",
                                    "out of memory");
    }
    xray_status status =
        rule_judge_batch(&self->judge, samples, count, stride, grades, &err);
    if (status != XRAY_OK)
        return self->host->fail(self->host, status, "submit", err.text);
    self->count += (size_t)count;
    return XRAY_OK;
}

static xray_status rule_poll(void *ptr, uint64_t wait_ns, xray_score *out)
{
    rule *self = ptr;
    (void)wait_ns;
    if (self->first == self->count)
        return XRAY_END;
    const rule_grade *grade = &self->grades[self->first];
    self->values[0] = (xray_named_value){ "acc", grade->acc };
    self->values[1] = (xray_named_value){ "answered", grade->answered };
    for (uint32_t i = 0; i < grade->value_count; i++)
        self->values[2 + i] = grade->values[i];
    const xray_score own = { .header = XRAY_HEADER(xray_score),
                             .id = self->ids[self->first++],
                             .score = grade->score,
                             .values = self->values,
                             .value_count = 2 + grade->value_count,
                             .value_stride = sizeof(self->values[0]) };
    xray_fill(out, &own);
    return XRAY_OK;
}

const xray_reward_ops rule_ops = {
    .header = XRAY_HEADER(xray_reward_ops),
    .create = rule_create,
    .destroy = rule_destroy,
    .submit = rule_submit,
    .poll = rule_poll,
};
