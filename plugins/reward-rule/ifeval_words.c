/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks IFEval's instructions about words, letters and sentences.
 */
#include <string.h>

#include "plugins/reward-rule/ifeval.h"
#include "plugins/reward-rule/language.h"

/* Counts occurrences that do not overlap. */
static size_t count_occurrences(rule_text text, rule_text needle)
{
    size_t count = 0;
    for (size_t at = rule_find(text, needle, 0); at != SIZE_MAX;
         at = rule_find(text, needle, at + needle.size))
        count++;
    return count;
}

/* Returns 1 if no word of the list breaks the rule, 0 if one does, -1 if there
 * is no list of words. */
static int check_each_word(const rule_followed *r, const cJSON *list,
                           int (*breaks)(rule_text text, rule_text word))
{
    const cJSON *item = NULL;
    if (!cJSON_IsArray(list) || !cJSON_GetArraySize(list))
        return -1;
    cJSON_ArrayForEach(item, list)
    {
        if (!cJSON_IsString(item))
            return -1;
        rule_text word = rule_arg_lower(r, rule_text_of(item->valuestring));
        if (breaks(r->lower, word))
            return 0;
    }
    return 1;
}

static int lacks_word(rule_text text, rule_text word)
{
    return word.size && rule_find(text, word, 0) == SIZE_MAX;
}

int rule_if_keywords(const rule_followed *r, const cJSON *args)
{
    return check_each_word(r, xr_json_get(args, "keywords"), lacks_word);
}

int rule_if_frequency(const rule_followed *r, const cJSON *args)
{
    rule_text keyword = rule_arg_text(args, "keyword");
    int64_t limit = rule_arg_count(args, "frequency");
    if (!keyword.data || limit < 0)
        return -1;
    keyword = rule_arg_lower(r, rule_strip(keyword));
    if (!keyword.size)
        return -1;
    return rule_relation(args, "relation", count_occurrences(r->lower, keyword),
                         limit);
}

static int is_word_before(rule_text text, size_t at)
{
    uint32_t c = 0;
    if (!at)
        return 0;
    (void)rule_char_before(text, at, &c);
    return rule_is_word(c);
}

static int is_word_after(rule_text text, size_t at)
{
    uint32_t c = 0;
    if (at >= text.size)
        return 0;
    (void)rule_char_at(text, at, &c);
    return rule_is_word(c);
}

/* The edges of a word are those that \b matches in a regular expression. */
static int contains_word(rule_text text, rule_text word)
{
    for (size_t at = rule_find(text, word, 0); at != SIZE_MAX;
         at = rule_find(text, word, at + 1)) {
        size_t end = at + word.size;
        if (is_word_before(text, at) != is_word_after(text, at) &&
            is_word_before(text, end) != is_word_after(text, end))
            return 1;
    }
    return 0;
}

int rule_if_forbidden(const rule_followed *r, const cJSON *args)
{
    return check_each_word(r, xr_json_get(args, "forbidden_words"),
                           contains_word);
}

int rule_if_letters(const rule_followed *r, const cJSON *args)
{
    rule_text letter = rule_arg_text(args, "letter");
    int64_t limit = rule_arg_count(args, "let_frequency");
    if (!letter.data || limit < 0)
        return -1;
    letter = rule_strip(letter);
    if (rule_char_count(letter) != 1)
        return -1;
    letter = rule_arg_lower(r, letter);
    return rule_relation(args, "let_relation",
                         count_occurrences(r->lower, letter), limit);
}

/* Returns 1 if more than half of the letters are of the scripts, or if there
 * are no letters. */
static int is_mostly_in_scripts(rule_text text, uint32_t scripts)
{
    rule_letters n = rule_count_letters(text, scripts);
    return 2 * n.letters_in > n.letters || !n.letters;
}

int rule_if_language(const rule_followed *r, const cJSON *args)
{
    rule_text code = rule_arg_text(args, "language");
    uint32_t scripts = code.data ? rule_language_scripts(code.data) : 0;
    return scripts ? is_mostly_in_scripts(r->text, scripts) : -1;
}

int rule_if_sentences(const rule_followed *r, const cJSON *args)
{
    int64_t limit = rule_arg_count(args, "num_sentences");
    if (limit < 0)
        return -1;
    return rule_relation(args, "relation", rule_sentence_count(r->text), limit);
}

int rule_if_words(const rule_followed *r, const cJSON *args)
{
    int64_t limit = rule_arg_count(args, "num_words");
    size_t count = 0;
    int inside = 0;
    if (limit < 0)
        return -1;
    for (size_t at = 0; at < r->text.size;) {
        uint32_t c = 0;
        at = rule_char_at(r->text, at, &c);
        int word = rule_is_word(c);
        count += (size_t)(word && !inside);
        inside = word;
    }
    return rule_relation(args, "relation", count, limit);
}

/* Numbers of upper-case and lower-case letters of a text. */
typedef struct cases {
    size_t upper;
    size_t lower;
} cases;

static cases count_cases(rule_text text)
{
    cases n = { 0 };
    for (size_t at = 0; at < text.size;) {
        uint32_t c = 0;
        at = rule_char_at(text, at, &c);
        n.upper += (size_t)rule_is_upper(c);
        n.lower += (size_t)rule_is_lower(c);
    }
    return n;
}

/* Returns 1 for characters that separate words as white space does. Others,
 * such as a hyphen, a slash or a dot, belong to a word. */
static int separates_words(uint32_t c)
{
    static const char marks[] = "!\"#$%&'(),:;<>?@[]{}";
    if (c < 0x80)
        return rule_is_space(c) || (c && strchr(marks, (int)c));
    return rule_is_space(c) || c == 0xAB || c == 0xBB ||
           (c >= 0x2018 && c <= 0x201E);
}

/* Returns 1 for the second character of "--" and "..". */
static int is_doubled_mark(rule_text text, size_t at)
{
    char c = text.data[at];
    return at && (c == '-' || c == '.') && text.data[at - 1] == c;
}

int rule_if_capital_words(const rule_followed *r, const cJSON *args)
{
    int64_t limit = rule_arg_count(args, "capital_frequency");
    size_t count = 0;
    size_t first = 0;
    if (limit < 0)
        return -1;
    for (size_t at = 0; at <= r->text.size;) {
        uint32_t c = ' ';
        size_t next = at + 1;
        if (at < r->text.size)
            next = rule_char_at(r->text, at, &c);
        if (separates_words(c) || is_doubled_mark(r->text, at)) {
            cases n = count_cases(rule_slice(r->text, first, at));
            count += n.upper && !n.lower;
            first = next;
        }
        at = next;
    }
    return rule_relation(args, "capital_relation", count, limit);
}

int rule_if_upper(const rule_followed *r, const cJSON *args)
{
    cases n = count_cases(r->text);
    (void)args;
    return n.upper && !n.lower && is_mostly_in_scripts(r->text, RULE_LATIN);
}

int rule_if_lower(const rule_followed *r, const cJSON *args)
{
    cases n = count_cases(r->text);
    (void)args;
    return n.lower && !n.upper && is_mostly_in_scripts(r->text, RULE_LATIN);
}

int rule_if_no_comma(const rule_followed *r, const cJSON *args)
{
    (void)args;
    return !r->text.size || !memchr(r->text.data, ',', r->text.size);
}
