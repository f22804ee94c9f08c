/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks of IFEval's instructions on one response. Ids and arguments are those
 * of its data (instruction_id_list, kwargs).
 */
#ifndef RULE_IFEVAL_H
#define RULE_IFEVAL_H

#include "core/base/json.h"
#include "plugins/reward-rule/unicode.h"

/* A response that is not blank, or what loose scoring leaves of it. */
typedef struct rule_followed {
    rule_text text;
    rule_text lower; /* the same in lower case */
    xr_str *scratch; /* for a check's own use */
    int *failed;     /* becomes 1 when memory runs out */
} rule_followed;

/* 1: followed, 0: not, -1: an argument is missing or of no use. */
typedef int (*rule_instruction)(const rule_followed *r, const cJSON *args);

/* The check of an id such as "keywords:existence", NULL for an unknown one. */
rule_instruction rule_instruction_of(const char *id);

/* Sentences: text up to ". ! ?" and closing marks in front of white space, or
 * up to the full stops of Chinese and Japanese; abbreviations, initials and
 * dots in front of a small letter do not end one. */
size_t rule_sentence_count(rule_text text);

/* ---- arguments ----------------------------------------------------------- */

/* A whole number >= 0, or -1. */
int64_t rule_arg_count(const cJSON *args, const char *key);
/* A string, or data NULL. */
rule_text rule_arg_text(const cJSON *args, const char *key);
/* In lower case in the scratch of `r`, until its next use. */
rule_text rule_arg_lower(const rule_followed *r, rule_text text);
/* count against limit under "less than" or "at least"; -1 for other words. */
int rule_relation(const cJSON *args, const char *key, size_t count,
                  int64_t limit);

/* ---- checks, by the part of the id they serve ---------------------------- */

int rule_if_keywords(const rule_followed *r, const cJSON *args);
int rule_if_frequency(const rule_followed *r, const cJSON *args);
int rule_if_forbidden(const rule_followed *r, const cJSON *args);
int rule_if_letters(const rule_followed *r, const cJSON *args);
int rule_if_language(const rule_followed *r, const cJSON *args);
int rule_if_sentences(const rule_followed *r, const cJSON *args);
int rule_if_words(const rule_followed *r, const cJSON *args);
int rule_if_capital_words(const rule_followed *r, const cJSON *args);
int rule_if_upper(const rule_followed *r, const cJSON *args);
int rule_if_lower(const rule_followed *r, const cJSON *args);
int rule_if_no_comma(const rule_followed *r, const cJSON *args);

int rule_if_paragraphs(const rule_followed *r, const cJSON *args);
int rule_if_first_word(const rule_followed *r, const cJSON *args);
int rule_if_placeholders(const rule_followed *r, const cJSON *args);
int rule_if_postscript(const rule_followed *r, const cJSON *args);
int rule_if_bullets(const rule_followed *r, const cJSON *args);
int rule_if_constrained(const rule_followed *r, const cJSON *args);
int rule_if_highlights(const rule_followed *r, const cJSON *args);
int rule_if_sections(const rule_followed *r, const cJSON *args);
int rule_if_json(const rule_followed *r, const cJSON *args);
int rule_if_title(const rule_followed *r, const cJSON *args);
int rule_if_two_responses(const rule_followed *r, const cJSON *args);
int rule_if_repeat_prompt(const rule_followed *r, const cJSON *args);
int rule_if_end(const rule_followed *r, const cJSON *args);
int rule_if_quotation(const rule_followed *r, const cJSON *args);

#endif
