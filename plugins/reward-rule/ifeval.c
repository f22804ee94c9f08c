/* SPDX-License-Identifier: Apache-2.0
 *
 * The grader "ifeval" checks IFEval's verifiable instructions, which the data
 * row names.
 */
#include "plugins/reward-rule/ifeval.h"

#include <stdlib.h>
#include <string.h>

#include "plugins/reward-rule/grade.h"

/* Largest number of instructions that are read from one row. */
#define MAX_INSTRUCTIONS 64u

typedef struct ifeval {
    xr_str plain; /* a variant without asterisks */
    xr_str lower;
    xr_str scratch;
    int failed;
} ifeval;

typedef struct entry {
    const char *id;
    rule_instruction check;
} entry;

static const entry entries[] = {
    { "keywords:existence", rule_if_keywords },
    { "keywords:frequency", rule_if_frequency },
    { "keywords:forbidden_words", rule_if_forbidden },
    { "keywords:letter_frequency", rule_if_letters },
    { "language:response_language", rule_if_language },
    { "length_constraints:number_sentences", rule_if_sentences },
    { "length_constraints:number_paragraphs", rule_if_paragraphs },
    { "length_constraints:number_words", rule_if_words },
    { "length_constraints:nth_paragraph_first_word", rule_if_first_word },
    { "detectable_content:number_placeholders", rule_if_placeholders },
    { "detectable_content:postscript", rule_if_postscript },
    { "detectable_format:number_bullet_lists", rule_if_bullets },
    { "detectable_format:constrained_response", rule_if_constrained },
    { "detectable_format:number_highlighted_sections", rule_if_highlights },
    { "detectable_format:multiple_sections", rule_if_sections },
    { "detectable_format:json_format", rule_if_json },
    { "detectable_format:title", rule_if_title },
    { "combination:two_responses", rule_if_two_responses },
    { "combination:repeat_prompt", rule_if_repeat_prompt },
    { "startend:end_checker", rule_if_end },
    { "startend:quotation", rule_if_quotation },
    { "change_case:capital_word_frequency", rule_if_capital_words },
    { "change_case:english_capital", rule_if_upper },
    { "change_case:english_lowercase", rule_if_lower },
    { "punctuation:no_comma", rule_if_no_comma },
};

rule_instruction rule_instruction_of(const char *id)
{
    for (size_t i = 0; i < sizeof(entries) / sizeof(entries[0]); i++)
        if (strcmp(entries[i].id, id) == 0)
            return entries[i].check;
    return NULL;
}

/* ---- arguments ----------------------------------------------------------- */

int64_t rule_arg_count(const cJSON *args, const char *key)
{
    const cJSON *item = xr_json_get(args, key);
    if (!cJSON_IsNumber(item) || !(item->valuedouble >= 0) ||
        item->valuedouble > 1e15)
        return -1;
    return (int64_t)item->valuedouble;
}

rule_text rule_arg_text(const cJSON *args, const char *key)
{
    const cJSON *item = xr_json_get(args, key);
    return cJSON_IsString(item) ? rule_text_of(item->valuestring)
                                : (rule_text){ NULL, 0 };
}

rule_text rule_arg_lower(const rule_followed *r, rule_text text)
{
    xr_str_clear(r->scratch);
    rule_lower(text, r->scratch);
    *r->failed |= r->scratch->failed;
    return (rule_text){ xr_str_text(r->scratch), r->scratch->size };
}

int rule_relation(const cJSON *args, const char *key, size_t count,
                  int64_t limit)
{
    rule_text relation = rule_arg_text(args, key);
    if (rule_equal(relation, rule_text_of("less than"), 0))
        return (int64_t)count < limit;
    if (rule_equal(relation, rule_text_of("at least"), 0))
        return (int64_t)count >= limit;
    return -1;
}

/* ---- the grader ---------------------------------------------------------- */

static xray_status open_ifeval(const rule_config *config, xr_err *err,
                               void **out)
{
    (void)config;
    *out = calloc(1, sizeof(ifeval));
    return *out ? XRAY_OK : xr_fail(err, XRAY_E_NOMEM, "ifeval: out of memory");
}

static void close_ifeval(void *state)
{
    ifeval *self = state;
    if (!self)
        return;
    xr_str_free(&self->plain);
    xr_str_free(&self->lower);
    xr_str_free(&self->scratch);
    free(self);
}

/* Variants 0 to 3 are the response, the response without its first line,
 * without its last line, and without both. 4 to 7 are the same without
 * asterisks. */
static rule_text make_variant(ifeval *self, rule_text text, unsigned which)
{
    const char *first = NULL;
    size_t last = text.size;
    if (which & 1u) {
        first = text.size ? memchr(text.data, '\n', text.size) : NULL;
        text =
            first ? rule_slice(text, (size_t)(first - text.data) + 1, text.size)
                  : rule_text_of("");
        last = text.size;
    }
    if (which & 2u) {
        while (last && text.data[last - 1] != '\n')
            last--;
        text.size = last ? last - 1 : 0;
    }
    if (which & 3u)
        text = rule_strip(text);
    if (!(which & 4u))
        return text;
    xr_str_clear(&self->plain);
    for (size_t at = 0; at < text.size;) {
        const char *star = memchr(text.data + at, '*', text.size - at);
        size_t end = star ? (size_t)(star - text.data) : text.size;
        xr_str_append(&self->plain, text.data + at, end - at);
        at = end + 1;
    }
    self->failed |= self->plain.failed;
    return (rule_text){ xr_str_text(&self->plain), self->plain.size };
}

typedef struct tasks {
    rule_instruction check[MAX_INSTRUCTIONS];
    const cJSON *args[MAX_INSTRUCTIONS];
    unsigned char done[MAX_INSTRUCTIONS];
    size_t count;
    size_t followed;
    size_t unread; /* instructions beyond MAX_INSTRUCTIONS */
    const char *remark;
} tasks;

static void check_variant(ifeval *self, rule_text text, tasks *t)
{
    rule_followed r = { .text = text,
                        .scratch = &self->scratch,
                        .failed = &self->failed };
    if (!rule_strip(text).size)
        return;
    xr_str_clear(&self->lower);
    rule_lower(text, &self->lower);
    self->failed |= self->lower.failed;
    r.lower = (rule_text){ xr_str_text(&self->lower), self->lower.size };
    for (size_t i = 0; i < t->count; i++) {
        if (t->done[i] || !t->check[i])
            continue;
        int verdict = t->check[i](&r, t->args[i]);
        if (verdict < 0)
            t->remark = "an argument of an instruction in kwargs is missing "
                        "or invalid";
        t->done[i] = verdict > 0;
        t->followed += verdict > 0;
    }
}

/* Reads the instructions of the row. `inner` is the parsed kwargs if the row
 * holds kwargs as text, else NULL. */
static void read_instructions(const cJSON *row, const cJSON *inner, tasks *t)
{
    const cJSON *ids = xr_json_get(row, "instruction_id_list");
    const cJSON *kwargs = inner ? inner : xr_json_get(row, "kwargs");
    const cJSON *id = NULL;
    const cJSON *args = cJSON_IsArray(kwargs) ? kwargs->child : NULL;
    if (!cJSON_IsArray(ids) || !cJSON_GetArraySize(ids)) {
        t->remark = "its row has no instruction_id_list";
        return;
    }
    cJSON_ArrayForEach(id, ids)
    {
        if (t->count == MAX_INSTRUCTIONS) {
            t->remark = "its row has more than 64 instructions";
            t->unread++;
            continue;
        }
        t->args[t->count] = args;
        t->check[t->count] =
            cJSON_IsString(id) ? rule_instruction_of(id->valuestring) : NULL;
        if (!t->check[t->count++])
            t->remark = "its row names an unknown instruction";
        args = args ? args->next : NULL;
    }
}

static void score_instructions(const rule_config *config, const tasks *t,
                               rule_grade *out)
{
    size_t asked = t->count + t->unread;
    double share = asked ? (double)t->followed / (double)asked : 0;
    int all = asked && t->followed == asked;
    out->remark = t->remark;
    if (!t->count)
        rule_grade_outcome(config, 0, 0, out);
    else if (config->scoring == RULE_ALL)
        rule_grade_outcome(config, 1, all, out);
    else
        rule_grade_share(config, share, out);
    rule_add_value(out, "followed", share);
}

static void grade_ifeval(const rule_input *in, rule_grade *out)
{
    ifeval *self = in->state;
    tasks t = { .count = 0 };
    self->failed = 0;
    cJSON *row = NULL;
    cJSON *inner = NULL;
    rule_text fields = rule_text_of(in->sample->fields_json);
    if (xr_json_parse(fields.data, fields.size, "row", NULL, &row) == XRAY_OK) {
        rule_text text = rule_arg_text(row, "kwargs");
        if (text.data)
            (void)xr_json_parse(text.data, text.size, "kwargs", NULL, &inner);
    }
    read_instructions(row, inner, &t);
    unsigned variants = in->config->loose ? 8 : 1;
    for (unsigned v = 0; v < variants && t.followed < t.count; v++)
        check_variant(self, make_variant(self, in->response, v), &t);
    score_instructions(in->config, &t, out);
    out->failed = self->failed != 0;
    cJSON_Delete(row);
    cJSON_Delete(inner);
}

const rule_grader rule_grader_ifeval = {
    .keys = RULE_SCORES "after scoring loose",
    .decides = 1,
    .any_truth = 1,
    .open = open_ifeval,
    .close = close_ifeval,
    .grade = grade_ifeval,
};
