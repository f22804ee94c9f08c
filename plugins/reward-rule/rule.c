/* SPDX-License-Identifier: Apache-2.0
 *
 * Rewards by rule: a response is compared with the ground truth of its row.
 * Samples are judged as they are submitted and answered in that order.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include <xray/plugin.h>
#include <xray/reward.h>

#include "plugins/reward-rule/grade.h"

typedef struct answer {
    uint64_t id;
    rule_verdict verdict;
} answer;

typedef struct rule {
    const xray_host *host;
    const rule_config *config;
    rule_pattern *pattern; /* regex only */
    answer *answers;       /* [cap], first .. count are outstanding */
    size_t first;
    size_t count;
    size_t cap;
    xray_named_value values[2];
    int remarked;
} rule;

static xray_status rule_create(const xray_host *host, const void *config,
                               void **out_self)
{
    const rule_config *c = config;
    xr_err err = { "" };
    rule_pattern *pattern = NULL;
    xray_status status = rule_check(c, &err);
    if (status == XRAY_OK && c->grader == RULE_REGEX)
        status =
            rule_pattern_new(c->pattern, c->match_only != 0, &err, &pattern);
    if (status != XRAY_OK)
        return host->fail(host, status, "create", err.text);
    rule *self = calloc(1, sizeof(*self));
    if (!self) {
        rule_pattern_free(pattern);
        return host->fail(host, XRAY_E_NOMEM, "create", "out of memory");
    }
    self->host = host;
    self->config = c;
    self->pattern = pattern;
    *out_self = self;
    return XRAY_OK;
}

static void rule_destroy(void *ptr)
{
    rule *self = ptr;
    if (!self)
        return;
    rule_pattern_free(self->pattern);
    free(self->answers);
    free(self);
}

static int reserve(rule *self, uint64_t more)
{
    if (self->first == self->count)
        self->first = self->count = 0;
    if (more <= self->cap - self->count)
        return 0;
    if (more > SIZE_MAX / 2 / sizeof(answer) - self->count)
        return -1;
    size_t cap = 2 * (self->count + (size_t)more);
    answer *answers = realloc(self->answers, cap * sizeof(*answers));
    if (!answers)
        return -1;
    self->answers = answers;
    self->cap = cap;
    return 0;
}

/* The first remark of a run is worth a line, ten thousand are not. */
static void remark(rule *self, const xray_sample_in *sample, const char *text)
{
    if (!text || self->remarked)
        return;
    char line[160];
    (void)snprintf(line, sizeof(line),
                   "sample %" PRIu64 " has no score of its own: %s (said once)",
                   sample->id, text);
    self->host->log(self->host, XRAY_LOG_WARN, line);
    self->remarked = 1;
}

static xray_status rule_submit(void *ptr, const xray_sample_in *samples,
                               uint64_t count, uint64_t stride)
{
    rule *self = ptr;
    if (reserve(self, count))
        return self->host->fail(self->host, XRAY_E_NOMEM, "submit",
                                "out of memory");
    const char *at = (const char *)samples;
    for (uint64_t i = 0; i < count; i++, at += stride) {
        const xray_sample_in *sample = (const void *)at;
        rule_grade grade =
            rule_grade_sample(self->config, self->pattern, sample);
        remark(self, sample, grade.remark);
        self->answers[self->count++] = (answer){ sample->id, grade.verdict };
    }
    return XRAY_OK;
}

static double score_of(const rule_config *config, rule_verdict verdict)
{
    switch (verdict) {
    case RULE_RIGHT:
        return config->score;
    case RULE_WRONG:
        return config->format_score;
    default:
        return config->no_answer_score;
    }
}

static xray_status rule_poll(void *ptr, uint64_t wait_ns, xray_score *out)
{
    rule *self = ptr;
    (void)wait_ns;
    if (self->first == self->count)
        return XRAY_END;
    answer next = self->answers[self->first++];
    self->values[0] = (xray_named_value){ "acc", next.verdict == RULE_RIGHT };
    self->values[1] =
        (xray_named_value){ "answered", next.verdict != RULE_NO_ANSWER };
    out->id = next.id;
    out->score = score_of(self->config, next.verdict);
    out->token_scores = NULL;
    out->values = self->values;
    out->value_count = 2;
    out->value_stride = sizeof(self->values[0]);
    return XRAY_OK;
}

static const xray_reward_ops ops = {
    .head = XRAY_HEAD(xray_reward_ops),
    .create = rule_create,
    .destroy = rule_destroy,
    .submit = rule_submit,
    .poll = rule_poll,
};

static const xray_component component = {
    .head = XRAY_HEAD(xray_component),
    .iface = XRAY_IFACE_REWARD,
    .name = "rule",
    .summary = "Graders by rule: exact, numeric, regex, gsm8k",
    .ops = &ops,
    .options = rule_options,
    .option_count = RULE_OPTION_COUNT,
    .option_stride = sizeof(xray_option),
    .config_size = sizeof(rule_config),
};

static const xray_component *const components[] = { &component };

static const xray_plugin plugin = {
    .head = XRAY_HEAD(xray_plugin),
    .abi_needed = XRAY_ABI,
    .component_count = 1,
    .name = "reward-rule",
    .version = "0.1.0",
    .vendor = "xray",
    .license = "Apache-2.0",
    .components = components,
};

XRAY_PLUGIN_DEFINE(reward_rule, plugin, "reward-rule", "0.1.0",
                   "xray.reward/0:rule")
