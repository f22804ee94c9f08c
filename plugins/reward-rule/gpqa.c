/* SPDX-License-Identifier: Apache-2.0
 *
 * The grader "gpqa" finds the letter of a multiple-choice answer as slime does
 * for GPQA.
 */
#include <string.h>

#include "core/base/str.h"
#include "plugins/reward-rule/choice.h"
#include "plugins/reward-rule/grade.h"
#include "plugins/reward-rule/math_buffer.h"
#include "plugins/reward-rule/unicode.h"

#define NO_LETTER (-1)
#define NOT_FOUND (-2) /* the words do not occur */

static size_t skip_spaces(rule_text text, size_t at)
{
    uint32_t c = 0;
    while (at < text.size) {
        size_t next = rule_char_at(text, at, &c);
        if (!rule_is_space(c))
            break;
        at = next;
    }
    return at;
}

/* Returns the end of `word` if the text has it at `at` in any case, else 0. */
static size_t match_word(rule_text text, size_t at, const char *word)
{
    size_t size = strlen(word);
    if (at > text.size || size > text.size - at ||
        !rule_equal(rule_slice(text, at, at + size), rule_text_of(word), 1))
        return 0;
    return at + size;
}

static int read_letter(rule_text text, size_t at)
{
    if (at >= text.size || !rule_ascii_letter(text.data[at]))
        return NO_LETTER;
    return (text.data[at] | 0x20) - 'a';
}

/* Reads the letter after an announcing word; "is" or ":" may precede it. If no
 * letter follows "is", slime's pattern takes the i of "is" as the letter. */
static int read_announced_letter(rule_text text, size_t at)
{
    at = skip_spaces(text, at);
    size_t is = match_word(text, at, "is");
    if (!is && at < text.size && text.data[at] == ':')
        is = at + 1;
    int letter = is ? read_letter(text, skip_spaces(text, is)) : NO_LETTER;
    return letter == NO_LETTER ? read_letter(text, at) : letter;
}

/* Returns the letter that follows the first occurrence of one of `words` that
 * a letter follows. With `lead`, a word counts only directly after `lead`. */
static int find_announced_letter(rule_text text, const char *lead,
                                 const char *const *words)
{
    for (size_t at = 0; at < text.size; at++) {
        size_t from = at;
        if (lead) {
            from = match_word(text, at, lead);
            if (!from)
                continue;
            from = skip_spaces(text, from);
        }
        for (size_t i = 0; words[i]; i++) {
            size_t end = match_word(text, from, words[i]);
            int letter = end ? read_announced_letter(text, end) : NO_LETTER;
            if (letter != NO_LETTER)
                return letter;
        }
    }
    return NOT_FOUND;
}

/* Returns the first letter before "is the correct" or "is correct". As in
 * slime, it may be the last letter of a longer word. */
static int find_letter_called_correct(rule_text text)
{
    for (size_t at = 0; at < text.size; at++) {
        int letter = read_letter(text, at);
        size_t is =
            letter < 0 ? 0 : match_word(text, skip_spaces(text, at + 1), "is");
        if (!is)
            continue;
        is = skip_spaces(text, is);
        size_t the = match_word(text, is, "the");
        if (match_word(text, skip_spaces(text, the ? the : is), "correct"))
            return letter;
    }
    return NOT_FOUND;
}

/* Returns the last capital letter of an option that is a word of its own. */
static int find_last_lone_letter(rule_text text, int count)
{
    int found = NO_LETTER;
    for (size_t at = 0; at < text.size; at++) {
        int letter = text.data[at] - 'A';
        uint32_t c = 0;
        if (letter < 0 || letter >= count)
            continue;
        if (at && (rule_char_before(text, at, &c), rule_is_word(c)))
            continue;
        if (at + 1 < text.size &&
            (rule_char_at(text, at + 1, &c), rule_is_word(c)))
            continue;
        found = letter;
    }
    return found;
}

static int extract_letter(rule_text text, int count)
{
    static const char *const words[] = { "answer", "option", "choice", NULL };
    static const char *const last[] = { "answer", "option", NULL };
    int letter = find_announced_letter(text, NULL, words);
    if (letter < 0 || letter >= count)
        letter = find_letter_called_correct(text);
    if (letter < 0 || letter >= count)
        letter = find_announced_letter(text, "final", last);
    return letter < 0 || letter >= count ? find_last_lone_letter(text, count)
                                         : letter;
}

/* Appends the text in lower case, with one space for each run of characters
 * other than ASCII letters and digits. */
static void simplify_text(rule_text text, xr_str *out)
{
    int gap = 0;
    for (size_t i = 0; i < text.size; i++) {
        char c = text.data[i];
        if (!rule_ascii_letter(c) && !rule_ascii_digit(c)) {
            gap = out->size > 0;
            continue;
        }
        char low = rule_ascii_letter(c) ? (char)(c | 0x20) : c;
        if (gap)
            xr_str_append(out, " ", 1);
        xr_str_append(out, &low, 1);
        gap = 0;
    }
}

/* Returns 1 if the simplified response contains the simplified truth. */
static int contains_simplified(rule_text response, rule_text truth,
                               uint32_t *out_failed)
{
    xr_str a = { 0 };
    xr_str b = { 0 };
    simplify_text(response, &a);
    simplify_text(truth, &b);
    *out_failed = a.failed || b.failed;
    int found =
        a.size && rule_find((rule_text){ a.data, a.size },
                            (rule_text){ b.data, b.size }, 0) != SIZE_MAX;
    xr_str_free(&a);
    xr_str_free(&b);
    return found;
}

static void grade_gpqa(const rule_input *in, rule_grade *out)
{
    rule_text text = in->response;
    rule_text after_think = rule_after(text, rule_text_of("</think>"));
    if (after_think.data)
        text = after_think;
    int want = rule_choice_truth(in->config, in->truth);
    int got = extract_letter(text, (int)in->config->option_count);
    int right = want >= 0 && got == want;
    if (want < 0)
        right = contains_simplified(text, in->truth, &out->failed);
    rule_grade_outcome(in->config, got >= 0 || right, right, out);
}

const rule_grader rule_grader_gpqa = {
    .keys = RULE_SCORES "after option_count index_from",
    .decides = 1,
    .grade = grade_gpqa,
};
