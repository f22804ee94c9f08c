/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks of IFEval's instructions on one response. Ids and arguments are those
 * of its data (instruction_id_list, kwargs).
 */
#ifndef RULE_IFEVAL_H
#define RULE_IFEVAL_H

#include "core/base/json.h"
#include "plugins/reward-rule/unicode.h"

/* A response, or one of its variants under loose scoring, that is not blank. */
typedef struct rule_followed {
    rule_text text;
    rule_text lower; /* the same in lower case */
    xr_str *scratch; /* for a check's own use */
    int *failed;     /* becomes 1 when memory runs out */
} rule_followed;

/* Returns 1 if the instruction was followed, 0 if not, -1 if an argument is
 * missing or invalid. */
typedef int (*rule_instruction)(const rule_followed *r, const cJSON *args);

/* Returns the check of an id such as "keywords:existence", or NULL if the id is
 * unknown. */
rule_instruction rule_instruction_of(const char *id);

/* Counts sentences. A sentence ends at '.', '!' or '?' with its closing marks
 * before white space, or at a full stop of Chinese or Japanese. Abbreviations,
 * initials and dots before a lower-case letter do not end one. */
size_t rule_sentence_count(rule_text text);

/* ---- arguments ----------------------------------------------------------- */

/* Returns an argument that is an integer >= 0, or -1. */
int64_t rule_arg_count(const cJSON *args, const char *key);
/* Returns an argument that is a string; data is NULL if there is none. */
rule_text rule_arg_text(const cJSON *args, const char *key);
/* Returns the text in lower case. It stays in the scratch of `r` until the next
 * use of the scratch. */
rule_text rule_arg_lower(const rule_followed *r, rule_text text);
/* Compares count with limit under "less than" or "at least"; returns -1 if the
 * argument is neither. */
int rule_relation(const cJSON *args, const char *key, size_t count,
                  int64_t limit);

/* ---- checks, by the part of the id --------------------------------------- */

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
