/* SPDX-License-Identifier: Apache-2.0
 *
 * The grader "choice" finds the letter of a multiple-choice answer.
 */
#include "plugins/reward-rule/choice.h"
#include "core/base/str.h"
#include "plugins/reward-rule/unicode.h"

/* Returns the index of the option that a byte names, or -1. */
static int find_option(char c, int count)
{
    int upper = c >= 'a' && c <= 'z' ? c - 'a' : c - 'A';
    return upper >= 0 && upper < count ? upper : -1;
}

static int is_word_at(rule_text text, size_t at)
{
    uint32_t c = 0;
    if (at >= text.size)
        return 0;
    (void)rule_char_at(text, at, &c);
    return rule_is_word(c) || rule_is_mark(c);
}

static int is_word_before(rule_text text, size_t at)
{
    uint32_t c = 0;
    if (!at)
        return 0;
    (void)rule_char_before(text, at, &c);
    return rule_is_word(c) || rule_is_mark(c);
}

static int is_one_of(char c, const char *set)
{
    for (; *set; set++)
        if (c == *set)
            return 1;
    return 0;
}

static size_t skip_characters(rule_text text, size_t at, const char *set)
{
    while (at < text.size && is_one_of(text.data[at], set))
        at++;
    return at;
}

static int has_word_at(rule_text text, size_t at, const char *word)
{
    rule_text w = rule_text_of(word);
    return at + w.size <= text.size &&
           rule_equal(rule_slice(text, at, at + w.size), w, 1);
}

/* Returns the option whose letter is at `at`, after opening marks and without a
 * further letter or digit after it, or -1. */
static int read_marked_option(rule_text text, size_t at, int count)
{
    at = skip_characters(text, at, " \t*_$({[\"'`");
    if (has_word_at(text, at, "\\boxed{"))
        at += 7;
    if (has_word_at(text, at, "\\text{"))
        at += 6;
    else if (has_word_at(text, at, "\\textbf{") ||
             has_word_at(text, at, "\\mathrm{") ||
             has_word_at(text, at, "\\mathbf{"))
        at += 8;
    at = skip_characters(text, at, " \t*_$({[\"'`");
    if (at >= text.size || is_word_at(text, at + 1))
        return -1;
    return find_option(text.data[at], count);
}

/* Returns the option of a capital letter that is a word of its own, or -1. */
static int read_lone_letter(rule_text text, size_t at, int count)
{
    char c = text.data[at];
    if (c < 'A' || c > 'Z' || is_word_before(text, at) ||
        is_word_at(text, at + 1))
        return -1;
    return find_option(c, count);
}

/* Returns 1 for the first letters of "A dog" and "I'd", which are words of the
 * sentence rather than options. */
static int is_prose_word(rule_text text, size_t at)
{
    if (at + 1 < text.size && text.data[at + 1] == '\'')
        return 1;
    return at + 2 < text.size && text.data[at + 1] == ' ' &&
           text.data[at + 2] >= 'a' && text.data[at + 2] <= 'z';
}

static int find_last_boxed(rule_text text, int count)
{
    int found = -1;
    for (size_t at = 0; at + 8 < text.size; at++)
        if (text.data[at] == '\\' && has_word_at(text, at, "\\boxed{"))
            found = read_marked_option(text, at + 7, count);
    return found;
}

/* Returns the option of the last "answer" that announces one, as "Answer: B"
 * and "the answer is (B)" do. */
static int find_last_announced(rule_text text, int count)
{
    int found = -1;
    for (size_t at = 0; at + 6 < text.size; at++) {
        if ((text.data[at] | 0x20) != 'a' || !has_word_at(text, at, "answer"))
            continue;
        size_t next = skip_characters(text, at + 6, " \t*_");
        int told = 0;
        if (has_word_at(text, next, "is") && !is_word_at(text, next + 2)) {
            next = skip_characters(text, next + 2, " \t*_");
            told = 1;
        }
        if (next < text.size && text.data[next] == ':') {
            next++;
            told = 1;
        }
        int option = told ? read_marked_option(text, next, count) : -1;
        if (option >= 0)
            found = option;
    }
    return found;
}

static int find_last_parenthesis(rule_text text, int count)
{
    int found = -1;
    for (size_t at = 0; at + 2 < text.size; at++) {
        if (text.data[at] != '(' || text.data[at + 2] != ')')
            continue;
        int option = find_option(text.data[at + 1], count);
        if (option >= 0 && text.data[at + 1] <= 'Z')
            found = option;
    }
    return found;
}

static int find_last_lone(rule_text text, int count)
{
    int found = -1;
    for (size_t at = 0; at < text.size; at++) {
        int option = read_lone_letter(text, at, count);
        if (option >= 0 && !is_prose_word(text, at))
            found = option;
    }
    return found;
}

/* Returns the option if the text is its letter alone, in either case, or -1. */
static int read_single_letter(rule_text text, int count)
{
    text = rule_strip(text);
    size_t first = skip_characters(text, 0, "([*\"");
    if (first >= text.size)
        return -1;
    return skip_characters(text, first + 1, ")].*\"") == text.size
               ? find_option(text.data[first], count)
               : -1;
}

static int extract_option(const rule_config *config, rule_text text)
{
    int count = (int)config->option_count;
    int found = find_last_boxed(text, count);
    if (found < 0)
        found = find_last_announced(text, count);
    if (found < 0)
        found = read_single_letter(text, count);
    if (found < 0 && config->method == RULE_FLEXIBLE)
        found = find_last_parenthesis(text, count);
    if (found < 0 && config->method == RULE_FLEXIBLE)
        found = find_last_lone(text, count);
    return found;
}

int rule_choice_truth(const rule_config *config, rule_text truth)
{
    char digits[4] = { 0 };
    int64_t index = 0;
    truth = rule_strip(truth);
    if (!truth.size)
        return -1;
    for (size_t i = 0; i < truth.size && i < sizeof(digits); i++)
        digits[i] = truth.data[i];
    digits[sizeof(digits) - 1] = '\0';
    if (truth.size < sizeof(digits) && xr_parse_int(digits, &index) == 0) {
        index -= config->index_from;
        return index >= 0 && index < config->option_count ? (int)index : -1;
    }
    int option = read_single_letter(truth, (int)config->option_count);
    size_t first = skip_characters(truth, 0, "(");
    if (option < 0 && first + 1 < truth.size &&
        is_one_of(truth.data[first + 1], ").:"))
        option = find_option(truth.data[first], (int)config->option_count);
    return option;
}

static void grade_choice(const rule_input *in, rule_grade *out)
{
    int want = rule_choice_truth(in->config, in->truth);
    int got = extract_option(in->config, in->response);
    if (want < 0)
        out->remark = "its ground truth is not the letter or number of an "
                      "option";
    rule_grade_outcome(in->config, want >= 0 && got >= 0,
                       want >= 0 && got == want, out);
}

const rule_grader rule_grader_choice = {
    .keys = RULE_SCORES "after method option_count index_from",
    .decides = 1,
    .grade = grade_choice,
};
