/* SPDX-License-Identifier: Apache-2.0
 *
 * choice: the letter of a multiple-choice answer.
 */
#include "core/base/str.h"
#include "plugins/reward-rule/choice.h"
#include "plugins/reward-rule/unicode.h"

/* Number of the option that a byte names, or -1. */
static int option_of(char c, int count)
{
    int upper = c >= 'a' && c <= 'z' ? c - 'a' : c - 'A';
    return upper >= 0 && upper < count ? upper : -1;
}

static int word_at(rule_text text, size_t at)
{
    uint32_t c = 0;
    if (at >= text.size)
        return 0;
    (void)rule_char_at(text, at, &c);
    return rule_is_word(c) || rule_is_mark(c);
}

static int word_before(rule_text text, size_t at)
{
    uint32_t c = 0;
    if (!at)
        return 0;
    (void)rule_char_before(text, at, &c);
    return rule_is_word(c) || rule_is_mark(c);
}

static int one_of(char c, const char *set)
{
    for (; *set; set++)
        if (c == *set)
            return 1;
    return 0;
}

static size_t skip(rule_text text, size_t at, const char *set)
{
    while (at < text.size && one_of(text.data[at], set))
        at++;
    return at;
}

static int has(rule_text text, size_t at, const char *word)
{
    rule_text w = rule_text_of(word);
    return at + w.size <= text.size &&
           rule_equal(rule_slice(text, at, at + w.size), w, 1);
}

/* The option whose letter stands at `at` behind opening marks, with no further
 * letter or digit behind it; -1 otherwise. */
static int marked_option(rule_text text, size_t at, int count)
{
    at = skip(text, at, " \t*_$({[\"'`");
    if (has(text, at, "\\boxed{"))
        at += 7;
    if (has(text, at, "\\text{"))
        at += 6;
    else if (has(text, at, "\\textbf{") || has(text, at, "\\mathrm{") ||
             has(text, at, "\\mathbf{"))
        at += 8;
    at = skip(text, at, " \t*_$({[\"'`");
    if (at >= text.size || word_at(text, at + 1))
        return -1;
    return option_of(text.data[at], count);
}

/* A capital letter of the options with nothing of a word around it. */
static int lone_letter(rule_text text, size_t at, int count)
{
    char c = text.data[at];
    if (c < 'A' || c > 'Z' || word_before(text, at) || word_at(text, at + 1))
        return -1;
    return option_of(c, count);
}

/* "A dog", "I'd": a word of the sentence rather than an option. */
static int is_prose(rule_text text, size_t at)
{
    if (at + 1 < text.size && text.data[at + 1] == '\'')
        return 1;
    return at + 2 < text.size && text.data[at + 1] == ' ' &&
           text.data[at + 2] >= 'a' && text.data[at + 2] <= 'z';
}

static int last_boxed(rule_text text, int count)
{
    int found = -1;
    for (size_t at = 0; at + 8 < text.size; at++)
        if (text.data[at] == '\\' && has(text, at, "\\boxed{"))
            found = marked_option(text, at + 7, count);
    return found;
}

/* "Answer: B", "the answer is (B)": the last "answer" that announces one. */
static int last_announced(rule_text text, int count)
{
    int found = -1;
    for (size_t at = 0; at + 6 < text.size; at++) {
        if ((text.data[at] | 0x20) != 'a' || !has(text, at, "answer"))
            continue;
        size_t next = skip(text, at + 6, " \t*_");
        int told = 0;
        if (has(text, next, "is") && !word_at(text, next + 2)) {
            next = skip(text, next + 2, " \t*_");
            told = 1;
        }
        if (next < text.size && text.data[next] == ':') {
            next++;
            told = 1;
        }
        int option = told ? marked_option(text, next, count) : -1;
        if (option >= 0)
            found = option;
    }
    return found;
}

static int last_parenthesis(rule_text text, int count)
{
    int found = -1;
    for (size_t at = 0; at + 2 < text.size; at++) {
        if (text.data[at] != '(' || text.data[at + 2] != ')')
            continue;
        int option = option_of(text.data[at + 1], count);
        if (option >= 0 && text.data[at + 1] <= 'Z')
            found = option;
    }
    return found;
}

static int last_lone(rule_text text, int count)
{
    int found = -1;
    for (size_t at = 0; at < text.size; at++) {
        int option = lone_letter(text, at, count);
        if (option >= 0 && !is_prose(text, at))
            found = option;
    }
    return found;
}

/* The response may be the letter alone in either case. */
static int whole(rule_text text, int count)
{
    text = rule_strip(text);
    size_t first = skip(text, 0, "([*\"");
    if (first >= text.size)
        return -1;
    return skip(text, first + 1, ")].*\"") == text.size
               ? option_of(text.data[first], count)
               : -1;
}

static int extract(const rule_config *config, rule_text text)
{
    int count = (int)config->option_count;
    int found = last_boxed(text, count);
    if (found < 0)
        found = last_announced(text, count);
    if (found < 0)
        found = whole(text, count);
    if (found < 0 && config->method == RULE_FLEXIBLE)
        found = last_parenthesis(text, count);
    if (found < 0 && config->method == RULE_FLEXIBLE)
        found = last_lone(text, count);
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
    int option = whole(truth, (int)config->option_count);
    size_t first = skip(truth, 0, "(");
    if (option < 0 && first + 1 < truth.size &&
        one_of(truth.data[first + 1], ").:"))
        option = option_of(truth.data[first], (int)config->option_count);
    return option;
}

static void grade(const rule_input *in, rule_grade *out)
{
    int want = rule_choice_truth(in->config, in->truth);
    int got = extract(in->config, in->response);
    if (want < 0)
        out->remark = "its ground truth is no letter or number of an option";
    rule_verdict(in->config, want >= 0 && got >= 0, want >= 0 && got == want,
                 out);
}

const rule_grader rule_grader_choice = {
    .keys = RULE_SCORES "after method option_count index_from",
    .decides = 1,
    .grade = grade,
};
