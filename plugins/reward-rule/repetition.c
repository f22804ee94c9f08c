/* SPDX-License-Identifier: Apache-2.0
 *
 * The grader "repetition" scores max_penalty * (1 - distinct n-grams /
 * n-grams).
 */
#include <stdlib.h>

#include "plugins/reward-rule/grade.h"
#include "plugins/reward-rule/intern.h"
#include "plugins/reward-rule/unicode.h"

typedef struct repetition {
    xr_str lower;
    int32_t *ids; /* [cap] numbers of words */
    size_t cap;
    rule_intern words;
    rule_intern grams;
} repetition;

static xray_status check_repetition(const rule_config *config, xr_err *err)
{
    return config->unit == RULE_CHARACTERS
               ? xr_fail_key(err, XRAY_E_CONFIG, NULL, "unit",
                             ": grader = repetition counts n-grams of tokens "
                             "or words, not of characters")
               : XRAY_OK;
}

static xray_status open_repetition(const rule_config *config, xr_err *err,
                                   void **out)
{
    (void)config;
    *out = calloc(1, sizeof(repetition));
    return *out ? XRAY_OK
                : xr_fail(err, XRAY_E_NOMEM, "repetition: out of memory");
}

static void close_repetition(void *state)
{
    repetition *self = state;
    if (!self)
        return;
    xr_str_free(&self->lower);
    free(self->ids);
    rule_intern_free(&self->words);
    rule_intern_free(&self->grams);
    free(self);
}

static int reserve_words(repetition *self, size_t words)
{
    if (words > self->cap) {
        int32_t *ids = realloc(self->ids, words * sizeof(*ids));
        if (!ids)
            return -1;
        self->ids = ids;
        self->cap = words;
    }
    return rule_intern_reset(&self->words, words);
}

/* Gives each word, in lower case, a number. Returns -1 if memory runs out. */
static int number_words(repetition *self, rule_text text, size_t *out_count)
{
    *out_count = 0;
    xr_str_clear(&self->lower);
    rule_lower(text, &self->lower);
    if (self->lower.failed || reserve_words(self, self->lower.size / 2 + 1))
        return -1;
    rule_text lower = { self->lower.data, self->lower.size };
    size_t at = 0;
    for (rule_text word = rule_next_word(lower, &at); word.size;
         word = rule_next_word(lower, &at))
        self->ids[(*out_count)++] =
            (int32_t)rule_intern_add(&self->words, word);
    return 0;
}

static int count_distinct(repetition *self, const int32_t *ids, size_t grams,
                          size_t size, size_t *out)
{
    if (rule_intern_reset(&self->grams, grams))
        return -1;
    for (size_t i = 0; i < grams; i++)
        (void)rule_intern_add(
            &self->grams,
            (rule_text){ (const char *)(ids + i), size * sizeof(*ids) });
    *out = self->grams.count;
    return 0;
}

/* Returns the share of n-grams that occurred before, or 0 for a text without
 * n-grams. */
static double measure_repeated(repetition *self, const int32_t *ids,
                               size_t count, size_t size, rule_grade *out)
{
    size_t different = 0;
    if (!ids || count < size)
        return 0;
    size_t grams = count - size + 1;
    if (count_distinct(self, ids, grams, size, &different)) {
        out->failed = 1;
        return 0;
    }
    return 1 - (double)different / (double)grams;
}

static void grade_repetition(const rule_input *in, rule_grade *out)
{
    repetition *self = in->state;
    const int32_t *ids = in->sample->ids;
    size_t count = in->sample->id_count;
    if (in->config->unit == RULE_WORDS) {
        out->failed = number_words(self, in->response, &count) != 0;
        ids = self->ids;
    } else if ((!ids || !count) && in->response.size) {
        out->remark = "it has text but no token ids to compare";
    }
    double share = 0;
    if (!out->failed)
        share = measure_repeated(self, ids, count,
                                 (size_t)in->config->ngram_size, out);
    if (share > 0)
        out->score = share * in->config->max_penalty;
    out->acc = !(share > 0);
    out->answered = 1;
    rule_add_value(out, "repeated", share);
}

const rule_grader rule_grader_repetition = {
    .keys = "ngram_size max_penalty unit",
    .check = check_repetition,
    .open = open_repetition,
    .close = close_repetition,
    .grade = grade_repetition,
};
