/* SPDX-License-Identifier: Apache-2.0
 *
 * Finds the first metric and the first sample in which two runs of the same
 * seed differ.
 */
#include "core/ab/divergence.h"

#include <math.h>
#include <string.h>

/* ---- metrics ------------------------------------------------------------ */

static int is_same_value(double a, double b)
{
    return a == b || (isnan(a) && isnan(b));
}

/* Stores the first metric of the line that differs, and counts the others. */
static void note_differing_metric(xr_divergence *out, const char *name,
                                  double a, double b)
{
    if (out->differs) {
        out->more++;
        return;
    }
    out->differs = 1;
    out->metric = name;
    out->a = a;
    out->b = b;
}

static void compare_metric_lines(const xr_ab_run *a, const xr_line *la,
                                 const xr_ab_run *b, const xr_line *lb,
                                 xr_divergence *out)
{
    for (size_t i = la->first; i < la->first + la->count; i++) {
        const char *name = a->names[a->name_of[i]];
        double other = xr_ab_run_value(b, lb, name);
        if (!xr_metric_is_time(name) && !is_same_value(a->values[i], other))
            note_differing_metric(out, name, a->values[i], other);
    }
    for (size_t i = lb->first; i < lb->first + lb->count; i++) {
        const char *name = b->names[b->name_of[i]];
        if (!xr_metric_is_time(name) && !isnan(b->values[i]) &&
            isnan(xr_ab_run_value(a, la, name)) && name != out->metric) {
            int seen = 0; /* metrics of both lines were counted above */
            for (size_t k = la->first; k < la->first + la->count; k++)
                seen |= strcmp(a->names[a->name_of[k]], name) == 0;
            if (!seen)
                note_differing_metric(out, name, (double)NAN, b->values[i]);
        }
    }
}

static void find_metric_divergence(const xr_ab_run *a, const xr_ab_run *b,
                                   xr_divergence *out)
{
    size_t lines =
        a->line_count < b->line_count ? a->line_count : b->line_count;
    for (size_t i = 0; i < lines && !out->differs; i++) {
        const xr_line *la = &a->lines[i];
        const xr_line *lb = &b->lines[i];
        out->step = la->step < lb->step ? la->step : lb->step;
        if (la->step != lb->step)
            out->differs =
                1; /* without a metric: one run has no line of the step */
        else
            compare_metric_lines(a, la, b, lb, out);
    }
    out->last_step = out->step;
    if (out->differs || a->line_count == b->line_count)
        return;
    out->differs = 1;
    out->step = a->line_count > b->line_count ? a->lines[lines].step
                                              : b->lines[lines].step;
}

/* ---- samples ------------------------------------------------------------ */

static int compare_sample_lists(const xr_sample_list *a,
                                const xr_sample_list *b, uint64_t step,
                                xr_divergence *out)
{
    size_t count = a->count < b->count ? a->count : b->count;
    for (size_t i = 0; i < count; i++) {
        int prompts = strcmp(a->items[i].prompt, b->items[i].prompt) != 0;
        if (!prompts && strcmp(a->items[i].response, b->items[i].response) == 0)
            continue;
        out->samples_differ = 1;
        out->prompts_differ = prompts;
        out->sample_step = step;
        out->sample = i + 1;
        return 1;
    }
    if (a->count == b->count)
        return 0;
    out->samples_differ = 1;
    out->sample_step = step;
    out->sample = count + 1;
    return 1;
}

static xray_status find_sample_divergence(const xr_ab_run *a,
                                          const xr_ab_run *b,
                                          xr_divergence *out, xr_err *err)
{
    for (size_t i = 0; i < a->line_count; i++) {
        uint64_t step = a->lines[i].step;
        xr_sample_list left = { .count = 0 };
        xr_sample_list right = { .count = 0 };
        xray_status status = xr_samples_read(a, step, err, &left);
        if (status == XRAY_OK && left.count)
            status = xr_samples_read(b, step, err, &right);
        int done = 0;
        if (status == XRAY_OK && left.count && right.count) {
            out->sampled = 1;
            done = compare_sample_lists(&left, &right, step, out);
        }
        xr_sample_list_free(&left);
        xr_sample_list_free(&right);
        if (status != XRAY_OK || done)
            return status;
    }
    return XRAY_OK;
}

xray_status xr_divergence_find(const xr_ab_run *a, const xr_ab_run *b,
                               xr_err *err, xr_divergence *out)
{
    *out = (xr_divergence){ .seed = a->seed };
    find_metric_divergence(a, b, out);
    return find_sample_divergence(a, b, out, err);
}

/* ---- settings that pairs should share ----------------------------------- */

static const struct rule {
    const char *key;    /* ends with '.' or '_': all keys with this prefix */
    const char *effect; /* NULL: none */
} rules[] = {
    { "data.val_files", "scores are measured on different rows" },
    { "data.val_split", "scores are measured on different rows" },
    { "data.val_max_samples", "scores are measured on different rows" },
    { "data.max_response_length",
      "scores are of answers of different lengths" },
    { "run.reward", "scores measure different things" },
    { "reward.train.", NULL }, /* how the reward model is held */
    { "reward.", "scores measure different things" },
    { "data.train_files", "the prompts differ" },
    { "data.train_batch_size", "a step takes different prompts" },
    { "data.shuffle", "prompts come in a different order" },
    { "data.seed", "prompts come in a different order" },
    { "data.train_max_samples", "prompts come in a different order" },
    { "data.train_weights", "prompts come in a different order" },
    { "data.filters", "prompts come in a different order" },
    { "data.filter_overlong_prompts", "prompts come in a different order" },
    { "data.max_prompt_length", "prompts may be left out or cut" },
    { "data.truncation", "prompts may be cut" },
    { "data.prompt_key", "the prompts differ" },
    { "data.template", "the prompts differ" },
    { "data.special_tokens", "the prompts differ" },
    { "data.apply_chat_template", "the prompts differ" },
    { "data.chat_", "the prompts differ" },
    { "data.system_prompt", "the prompts differ" },
    { "model.path", "the runs begin with different weights" },
    { "model.tokenizer_path", "texts become different tokens" },
    { "rollout.n", "samples beyond the smaller n have no partner" },
    { "run.device", "another device rounds differently" },
    { "actor.share_prompts", "gradients are rounded differently" },
    { "critic.share_prompts", "gradients are rounded differently" },
};

static int rule_covers_key(const struct rule *rule, const char *key)
{
    size_t n = strlen(rule->key);
    char last = rule->key[n - 1];
    if (last == '.' || last == '_')
        return strncmp(key, rule->key, n) == 0;
    return strcmp(key, rule->key) == 0;
}

static void note_key_difference(const char *key, const char *a, const char *b,
                                const char *name, xr_errors *notes)
{
    for (size_t i = 0; i < sizeof(rules) / sizeof(rules[0]); i++) {
        const char *dot = strrchr(key, '.');
        if (!rule_covers_key(&rules[i], key))
            continue;
        if (!rules[i].effect)
            return;
        xr_errors_add(notes,
                      "%s does not share everything with the base: [%.*s] %s "
                      "is %s here and %s in the base: %s",
                      name, (int)(dot - key), key, dot + 1, b ? b : "not set",
                      a ? a : "not set", rules[i].effect);
        return;
    }
}

void xr_note_unshared_settings(const xr_variant *base,
                               const xr_variant *variant, xr_errors *notes)
{
    if (!base->count || !variant->count)
        return;
    const xr_settings *a = &base->runs[0].settings;
    const xr_settings *b = &variant->runs[0].settings;
    for (size_t i = 0; i < a->count; i++) {
        const char *other = xr_settings_get(b, a->items[i].key);
        if (!other || strcmp(other, a->items[i].value) != 0)
            note_key_difference(a->items[i].key, a->items[i].value, other,
                                variant->name, notes);
    }
    for (size_t i = 0; i < b->count; i++)
        if (!xr_settings_get(a, b->items[i].key))
            note_key_difference(b->items[i].key, NULL, b->items[i].value,
                                variant->name, notes);
}
