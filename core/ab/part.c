/* SPDX-License-Identifier: Apache-2.0 */
#include "core/ab/part.h"

#include <math.h>
#include <string.h>

/* ---- metrics ------------------------------------------------------------ */

static int same_value(double a, double b)
{
    return a == b || (isnan(a) && isnan(b));
}

/* Notes the metric, the first of the line or one more. */
static void note_metric(xr_parting *out, const char *name, double a, double b)
{
    if (out->parted) {
        out->more++;
        return;
    }
    out->parted = 1;
    out->metric = name;
    out->a = a;
    out->b = b;
}

static void compare_lines(const xr_ab_run *a, const xr_line *la,
                          const xr_ab_run *b, const xr_line *lb,
                          xr_parting *out)
{
    for (size_t i = la->first; i < la->first + la->count; i++) {
        const char *name = a->names[a->name_of[i]];
        double other = xr_ab_run_value(b, lb, name);
        if (!xr_metric_is_time(name) && !same_value(a->values[i], other))
            note_metric(out, name, a->values[i], other);
    }
    for (size_t i = lb->first; i < lb->first + lb->count; i++) {
        const char *name = b->names[b->name_of[i]];
        if (!xr_metric_is_time(name) && !isnan(b->values[i]) &&
            isnan(xr_ab_run_value(a, la, name)) && name != out->metric) {
            int seen = 0; /* a metric of both was counted above */
            for (size_t k = la->first; k < la->first + la->count; k++)
                seen |= strcmp(a->names[a->name_of[k]], name) == 0;
            if (!seen)
                note_metric(out, name, (double)NAN, b->values[i]);
        }
    }
}

static void part_metrics(const xr_ab_run *a, const xr_ab_run *b,
                         xr_parting *out)
{
    size_t lines =
        a->line_count < b->line_count ? a->line_count : b->line_count;
    for (size_t i = 0; i < lines && !out->parted; i++) {
        const xr_line *la = &a->lines[i];
        const xr_line *lb = &b->lines[i];
        out->step = la->step < lb->step ? la->step : lb->step;
        if (la->step != lb->step)
            out->parted = 1; /* and no metric: one has no line of the step */
        else
            compare_lines(a, la, b, lb, out);
    }
    out->last_step = out->step;
    if (out->parted || a->line_count == b->line_count)
        return;
    out->parted = 1;
    out->step = a->line_count > b->line_count ? a->lines[lines].step
                                              : b->lines[lines].step;
}

/* ---- samples ------------------------------------------------------------ */

static int part_lists(const xr_sample_list *a, const xr_sample_list *b,
                      uint64_t step, xr_parting *out)
{
    size_t count = a->count < b->count ? a->count : b->count;
    for (size_t i = 0; i < count; i++) {
        int prompts = strcmp(a->items[i].prompt, b->items[i].prompt) != 0;
        if (!prompts && strcmp(a->items[i].response, b->items[i].response) == 0)
            continue;
        out->samples_parted = 1;
        out->prompts_parted = prompts;
        out->sample_step = step;
        out->sample = i + 1;
        return 1;
    }
    if (a->count == b->count)
        return 0;
    out->samples_parted = 1;
    out->sample_step = step;
    out->sample = count + 1;
    return 1;
}

static xray_status part_samples(const xr_ab_run *a, const xr_ab_run *b,
                                xr_parting *out, xr_err *err)
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
            done = part_lists(&left, &right, step, out);
        }
        xr_sample_list_free(&left);
        xr_sample_list_free(&right);
        if (status != XRAY_OK || done)
            return status;
    }
    return XRAY_OK;
}

xray_status xr_part_find(const xr_ab_run *a, const xr_ab_run *b, xr_err *err,
                         xr_parting *out)
{
    *out = (xr_parting){ .seed = a->seed };
    part_metrics(a, b, out);
    return part_samples(a, b, out, err);
}

/* ---- what pairing rests on ---------------------------------------------- */

static const struct rule {
    const char *key; /* ends with '.': all keys that begin so */
    const char *what;
} rules[] = {
    { "data.val_files", "scores are of other rows" },
    { "data.val_split", "scores are of other rows" },
    { "data.val_max_samples", "scores are of other rows" },
    { "data.max_response_length", "scores are of answers of other lengths" },
    { "run.reward", "scores measure different things" },
    { "reward.", "scores measure different things" },
    { "data.train_files", "the prompts are others" },
    { "data.train_batch_size", "a step takes other prompts" },
    { "data.shuffle", "prompts come in another order" },
    { "data.seed", "prompts come in another order" },
    { "data.train_max_samples", "prompts come in another order" },
    { "data.train_weights", "prompts come in another order" },
    { "data.filters", "prompts come in another order" },
    { "data.filter_overlong_prompts", "prompts come in another order" },
    { "data.max_prompt_length", "prompts may be left out or cut" },
    { "data.truncation", "prompts may be cut" },
    { "data.prompt_key", "the prompts are others" },
    { "data.template", "the prompts are others" },
    { "data.special_tokens", "the prompts are others" },
    { "data.apply_chat_template", "the prompts are others" },
    { "data.chat_", "the prompts are others" },
    { "data.system_prompt", "the prompts are others" },
    { "model.path", "the runs begin with other weights" },
    { "model.tokenizer_path", "texts become other tokens" },
    { "rollout.n", "samples beyond the smaller n have no partner" },
    { "run.device", "another device rounds otherwise" },
    { "actor.share_prompts", "gradients are rounded otherwise" },
    { "critic.share_prompts", "gradients are rounded otherwise" },
};

static int falls_under(const struct rule *rule, const char *key)
{
    size_t n = strlen(rule->key);
    char last = rule->key[n - 1];
    if (last == '.' || last == '_')
        return strncmp(key, rule->key, n) == 0;
    return strcmp(key, rule->key) == 0;
}

static void judge_key(const char *key, const char *a, const char *b,
                      const char *name, xr_errors *notes)
{
    for (size_t i = 0; i < sizeof(rules) / sizeof(rules[0]); i++) {
        const char *dot = strrchr(key, '.');
        if (!falls_under(&rules[i], key))
            continue;
        xr_errors_add(notes,
                      "%s does not share everything with the base: [%.*s] %s "
                      "is %s, not %s: %s",
                      name, (int)(dot - key), key, dot + 1, b ? b : "not set",
                      a ? a : "not set", rules[i].what);
        return;
    }
}

void xr_part_pairing(const xr_variant *base, const xr_variant *variant,
                     xr_errors *notes)
{
    if (!base->count || !variant->count)
        return;
    const xr_settings *a = &base->runs[0].settings;
    const xr_settings *b = &variant->runs[0].settings;
    for (size_t i = 0; i < a->count; i++) {
        const char *other = xr_settings_get(b, a->items[i].key);
        if (!other || strcmp(other, a->items[i].value) != 0)
            judge_key(a->items[i].key, a->items[i].value, other, variant->name,
                      notes);
    }
    for (size_t i = 0; i < b->count; i++)
        if (!xr_settings_get(a, b->items[i].key))
            judge_key(b->items[i].key, NULL, b->items[i].value, variant->name,
                      notes);
}
