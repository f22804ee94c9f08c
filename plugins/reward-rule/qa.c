/* SPDX-License-Identifier: Apache-2.0
 *
 * The grader "qa" computes exact match and F1 as SQuAD's evaluation does;
 * "search_r1" makes the same comparison on the last <answer> and scores it as
 * verl does.
 */
#include <stdlib.h>

#include "core/base/json.h"
#include "plugins/reward-rule/grade.h"
#include "plugins/reward-rule/intern.h"
#include "plugins/reward-rule/unicode.h"

typedef struct qa {
    xr_str answer; /* normalised */
    xr_str truth;  /* normalised */
    xr_str lower;
    rule_intern words;
    int64_t *counts; /* [count_cap] occurrences in the answer, per word, that
                      * are not matched yet */
    size_t count_cap;
    int failed;
} qa;

static xray_status open_qa_state(const rule_config *config, xr_err *err,
                                 void **out)
{
    (void)config;
    *out = calloc(1, sizeof(qa));
    return *out ? XRAY_OK : xr_fail(err, XRAY_E_NOMEM, "qa: out of memory");
}

static void close_qa_state(void *state)
{
    qa *self = state;
    if (!self)
        return;
    xr_str_free(&self->answer);
    xr_str_free(&self->truth);
    xr_str_free(&self->lower);
    rule_intern_free(&self->words);
    free(self->counts);
    free(self);
}

static int is_punctuation(char c)
{
    return (c >= '!' && c <= '/') || (c >= ':' && c <= '@') ||
           (c >= '[' && c <= '`') || (c >= '{' && c <= '~');
}

static int is_article(rule_text word)
{
    return (word.size == 1 && *word.data == 'a') ||
           (word.size == 2 && rule_equal(word, rule_text_of("an"), 0)) ||
           (word.size == 3 && rule_equal(word, rule_text_of("the"), 0));
}

/* Appends `word` with each article that is a complete word replaced by a
 * space. */
static void append_without_articles(rule_text word, xr_str *out)
{
    size_t at = 0;
    uint32_t c = 0;
    while (at < word.size) {
        size_t end = at;
        for (size_t next; end < word.size; end = next) {
            next = rule_char_at(word, end, &c);
            if (!rule_is_word(c))
                break;
        }
        rule_text run = rule_slice(word, at, end);
        if (is_article(run))
            xr_str_append(out, " ", 1);
        else
            xr_str_append(out, run.data, run.size);
        at = end;
        if (at < word.size) {
            end = rule_char_at(word, at, &c);
            xr_str_append(out, word.data + at, end - at);
            at = end;
        }
    }
}

/* Appends the text in lower case, without ASCII punctuation and articles, and
 * with single spaces. */
static void normalise_text(qa *self, rule_text text, xr_str *out)
{
    xr_str *lower = &self->lower;
    xr_str_clear(lower);
    rule_lower(text, lower);
    size_t size = 0;
    for (size_t i = 0; i < lower->size; i++)
        if (!is_punctuation(lower->data[i]))
            lower->data[size++] = lower->data[i];
    rule_text plain = { lower->data ? lower->data : "", size };
    size_t marks = out->size;
    append_without_articles(plain, out);
    /* The spaces are collapsed in place, because the result is never longer. */
    rule_text loose = { out->data ? out->data + marks : "", out->size - marks };
    size_t to = 0;
    size_t at = 0;
    for (rule_text word = rule_next_word(loose, &at); word.size;
         word = rule_next_word(loose, &at)) {
        if (to)
            out->data[marks + to++] = ' ';
        for (size_t i = 0; i < word.size; i++)
            out->data[marks + to++] = word.data[i];
    }
    out->size = marks + to;
    if (out->data)
        out->data[out->size] = '\0';
    self->failed |= lower->failed || out->failed;
}

static rule_text get_string_text(const xr_str *s)
{
    return (rule_text){ s->data ? s->data : "", s->size };
}

static int reserve_words(qa *self, size_t words)
{
    if (rule_intern_reset(&self->words, words + 1))
        return -1;
    if (words + 1 > self->count_cap) {
        int64_t *counts =
            realloc(self->counts, (words + 1) * sizeof(*self->counts));
        if (!counts)
            return -1;
        self->counts = counts;
        self->count_cap = words + 1;
    }
    return 0;
}

/* Returns 2 * common words / words of both. A word counts as often as it
 * occurs. Two empty answers have an F1 of 1. */
static double compute_f1(qa *self, rule_text answer, rule_text truth)
{
    size_t at = 0;
    size_t mine = 0;
    size_t theirs = 0;
    size_t common = 0;
    if (reserve_words(self, (answer.size + truth.size) / 2 + 2)) {
        self->failed = 1;
        return 0;
    }
    for (rule_text w = rule_next_word(answer, &at); w.size;
         w = rule_next_word(answer, &at), mine++) {
        size_t known = self->words.count;
        size_t number = rule_intern_add(&self->words, w);
        if (number == known)
            self->counts[number] = 0;
        self->counts[number]++;
    }
    at = 0;
    size_t distinct = self->words.count;
    for (rule_text w = rule_next_word(truth, &at); w.size;
         w = rule_next_word(truth, &at), theirs++) {
        size_t number = rule_intern_add(&self->words, w);
        if (number < distinct && self->counts[number] > 0) {
            self->counts[number]--;
            common++;
        }
    }
    if (!mine || !theirs)
        return mine == theirs;
    return 2.0 * (double)common / (double)(mine + theirs);
}

typedef struct best {
    double em;
    double f1;
    double subem;
    int golds;
} best;

static void compare_gold(qa *self, rule_text gold, best *out)
{
    xr_str_clear(&self->truth);
    normalise_text(self, gold, &self->truth);
    rule_text answer = get_string_text(&self->answer);
    rule_text truth = get_string_text(&self->truth);
    double share = compute_f1(self, answer, truth);
    out->golds++;
    if (rule_equal(answer, truth, 0))
        out->em = 1;
    if (!truth.size || rule_find(answer, truth, 0) != SIZE_MAX)
        out->subem = 1;
    if (share > out->f1)
        out->f1 = share;
}

static void compare_gold_list(qa *self, const cJSON *list, best *out)
{
    const cJSON *item = NULL;
    if (cJSON_IsString(list))
        compare_gold(self, rule_text_of(list->valuestring), out);
    else if (cJSON_IsArray(list))
        cJSON_ArrayForEach(item, list)
        {
            if (cJSON_IsString(item))
                compare_gold(self, rule_text_of(item->valuestring), out);
        }
}

/* Compares the answer with every gold answer. The ground truth is a text, a
 * JSON list of texts, or an object whose "target" is one of these. */
static best compare_golds(qa *self, rule_text answer, rule_text truth)
{
    best out = { .em = 0 };
    cJSON *json = NULL;
    self->failed = 0;
    xr_str_clear(&self->answer);
    normalise_text(self, answer, &self->answer);
    rule_text bare = rule_strip(truth);
    if (bare.size && (*bare.data == '[' || *bare.data == '{') &&
        xr_json_parse(bare.data, bare.size, "ground_truth", NULL, &json) ==
            XRAY_OK) {
        compare_gold_list(
            self, cJSON_IsObject(json) ? xr_json_get(json, "target") : json,
            &out);
        cJSON_Delete(json);
    }
    if (!out.golds)
        compare_gold(self, truth, &out);
    return out;
}

static void score_match(const rule_input *in, const best *found,
                        rule_grade *out)
{
    const rule_config *config = in->config;
    double share = found->em;
    if (config->match == RULE_F1)
        share = found->f1;
    else if (config->match == RULE_SUBEM)
        share = found->subem;
    rule_grade_share(config, share, out);
}

static void grade_qa(const rule_input *in, rule_grade *out)
{
    qa *self = in->state;
    best found = compare_golds(self, in->response, in->truth);
    score_match(in, &found, out);
    if (!rule_strip(in->response).size)
        rule_grade_outcome(in->config, 0, out->acc > 0, out);
    rule_add_value(out, "em", found.em);
    rule_add_value(out, "f1", found.f1);
    out->failed = self->failed != 0;
}

static size_t count_occurrences(rule_text text, const char *tag)
{
    rule_text needle = rule_text_of(tag);
    size_t count = 0;
    for (size_t at = rule_find(text, needle, 0); at != SIZE_MAX;
         at = rule_find(text, needle, at + needle.size))
        count++;
    return count;
}

/* Returns the content of the last <answer>...</answer>, where each match is the
 * shortest one from the left; data is NULL if there is none. */
static rule_text find_last_answer(rule_text text)
{
    rule_text open = rule_text_of("<answer>");
    rule_text close = rule_text_of("</answer>");
    rule_text found = { NULL, 0 };
    size_t at = rule_find(text, open, 0);
    while (at != SIZE_MAX) {
        size_t end = rule_find(text, close, at + open.size);
        if (end == SIZE_MAX)
            break;
        found = rule_strip(rule_slice(text, at + open.size, end));
        at = rule_find(text, open, end + close.size);
    }
    return found;
}

/* With more tags of one kind, a right answer loses three quarters of its
 * score. */
#define MAX_TAGS 10u

static void grade_search_r1(const rule_input *in, rule_grade *out)
{
    qa *self = in->state;
    rule_text answer = find_last_answer(in->response);
    if (!answer.data) {
        rule_grade_outcome(in->config, 0, 0, out);
        return;
    }
    best found = compare_golds(self, answer, in->truth);
    score_match(in, &found, out);
    if (in->config->match == RULE_EM && found.em > 0 &&
        (count_occurrences(in->response, "<answer>") > MAX_TAGS ||
         count_occurrences(in->response, "</answer>") > MAX_TAGS))
        out->score = in->config->score / 4;
    out->failed = self->failed != 0;
}

const rule_grader rule_grader_qa = {
    .keys = RULE_SCORES "after match",
    .decides = 1,
    .any_truth = 1,
    .open = open_qa_state,
    .close = close_qa_state,
    .grade = grade_qa,
};

const rule_grader rule_grader_search_r1 = {
    .keys = RULE_SCORES "match",
    .decides = 1,
    .any_truth = 1,
    .open = open_qa_state,
    .close = close_qa_state,
    .grade = grade_search_r1,
};
