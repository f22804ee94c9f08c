/* SPDX-License-Identifier: Apache-2.0
 *
 * gpqa: the letter of a multiple-choice answer, found as slime does for GPQA.
 */
#include <string.h>

#include "core/base/str.h"
#include "plugins/reward-rule/choice.h"
#include "plugins/reward-rule/grade.h"
#include "plugins/reward-rule/math_buffer.h"
#include "plugins/reward-rule/unicode.h"

#define NO_LETTER (-1)
#define NO_PLACE (-2) /* the words are nowhere */

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

/* The end of a word in any case that begins at `at`, or 0. */
static size_t word_end(rule_text text, size_t at, const char *word)
{
    size_t size = strlen(word);
    if (at > text.size || size > text.size - at ||
        !rule_equal(rule_slice(text, at, at + size), rule_text_of(word), 1))
        return 0;
    return at + size;
}

static int letter_at(rule_text text, size_t at)
{
    if (at >= text.size || !rule_ascii_letter(text.data[at]))
        return NO_LETTER;
    return (text.data[at] | 0x20) - 'a';
}

/* Behind the announcing word: "is" or ":" may stand before the letter. Where
 * none follows "is", the letter is its i. */
static int announced_at(rule_text text, size_t at)
{
    at = skip_spaces(text, at);
    size_t is = word_end(text, at, "is");
    if (!is && at < text.size && text.data[at] == ':')
        is = at + 1;
    int letter = is ? letter_at(text, skip_spaces(text, is)) : NO_LETTER;
    return letter == NO_LETTER ? letter_at(text, at) : letter;
}

/* The first place of one of the words that a letter follows. `lead`: behind
 * that word. */
static int announced(rule_text text, const char *lead, const char *const *words)
{
    for (size_t at = 0; at < text.size; at++) {
        size_t from = at;
        if (lead) {
            from = word_end(text, at, lead);
            if (!from)
                continue;
            from = skip_spaces(text, from);
        }
        for (size_t i = 0; words[i]; i++) {
            size_t end = word_end(text, from, words[i]);
            int letter = end ? announced_at(text, end) : NO_LETTER;
            if (letter != NO_LETTER)
                return letter;
        }
    }
    return NO_PLACE;
}

/* "B is the correct": the first letter, even the last of a word. */
static int called_correct(rule_text text)
{
    for (size_t at = 0; at < text.size; at++) {
        int letter = letter_at(text, at);
        size_t is =
            letter < 0 ? 0 : word_end(text, skip_spaces(text, at + 1), "is");
        if (!is)
            continue;
        is = skip_spaces(text, is);
        size_t the = word_end(text, is, "the");
        if (word_end(text, skip_spaces(text, the ? the : is), "correct"))
            return letter;
    }
    return NO_PLACE;
}

/* The last capital letter of an option with nothing of a word around it. */
static int last_alone(rule_text text, int count)
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

static int extract(rule_text text, int count)
{
    static const char *const words[] = { "answer", "option", "choice", NULL };
    static const char *const last[] = { "answer", "option", NULL };
    int letter = announced(text, NULL, words);
    if (letter < 0 || letter >= count)
        letter = called_correct(text);
    if (letter < 0 || letter >= count)
        letter = announced(text, "final", last);
    return letter < 0 || letter >= count ? last_alone(text, count) : letter;
}

/* Lower case, with one blank for whatever is no letter or digit of ASCII. */
static void simplify(rule_text text, xr_str *out)
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

/* 1 if the simplified truth is in the simplified response. */
static int holds_text(rule_text response, rule_text truth, uint32_t *out_failed)
{
    xr_str a = { 0 };
    xr_str b = { 0 };
    simplify(response, &a);
    simplify(truth, &b);
    *out_failed = a.failed || b.failed;
    int found =
        a.size && rule_find((rule_text){ a.data, a.size },
                            (rule_text){ b.data, b.size }, 0) != SIZE_MAX;
    xr_str_free(&a);
    xr_str_free(&b);
    return found;
}

static void grade(const rule_input *in, rule_grade *out)
{
    rule_text text = in->response;
    rule_text behind = rule_after(text, rule_text_of("</think>"));
    if (behind.data)
        text = behind;
    int want = rule_choice_truth(in->config, in->truth);
    int got = extract(text, (int)in->config->option_count);
    int right = want >= 0 && got == want;
    if (want < 0)
        right = holds_text(text, in->truth, &out->failed);
    rule_verdict(in->config, got >= 0 || right, right, out);
}

const rule_grader rule_grader_gpqa = {
    .keys = RULE_SCORES "after option_count index_from",
    .decides = 1,
    .grade = grade,
};
