/* SPDX-License-Identifier: Apache-2.0
 *
 * Counts the sentences of a response for IFEval's instruction about their
 * number.
 */
#include <string.h>

#include "plugins/reward-rule/ifeval.h"

/* A dot after one of these never ends a sentence. */
static const char *const titles[] = {
    "mr",  "mrs",  "ms", "dr",  "prof", "st", "gen", "col", "sen",
    "rep", "capt", "lt", "sgt", "rev",  "vs", "e.g", "i.e", "cf"
};
/* A dot after one of these ends a sentence unless a lower-case letter follows.
 */
static const char *const shorts[] = { "etc", "inc", "ltd", "co",  "corp",
                                      "jr",  "sr",  "no",  "fig", "vol",
                                      "al",  "a.m", "p.m", "u.s", "ph.d" };

static int is_listed_word(rule_text word, const char *const *list, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (rule_equal(word, rule_text_of(list[i]), 1))
            return 1;
    return 0;
}

static int is_full_stop(uint32_t c)
{
    return c == '.' || c == '!' || c == '?';
}

/* Full stops of Chinese and Japanese, which need no white space after them. */
static int is_wide_stop(uint32_t c)
{
    return c == 0x3002 || c == 0xFF01 || c == 0xFF1F;
}

static int is_closing_mark(uint32_t c)
{
    return c == '"' || c == '\'' || c == ')' || c == ']' || c == '}' ||
           c == '*' || c == '_' || c == 0x2019 || c == 0x201D || c == 0x300D ||
           c == 0x300F || c == 0xFF09;
}

/* Returns the word that ends at `end`, without opening marks; of a long word,
 * only its last bytes. */
static rule_text find_word_before(rule_text text, size_t end)
{
    size_t first = end;
    uint32_t c = 0;
    while (first && end - first < 16) {
        size_t before = rule_char_before(text, first, &c);
        if (rule_is_space(c) || c == '(' || c == '"' || c == '*' || c == '[')
            break;
        first = before;
    }
    return rule_slice(text, first, end);
}

static int lowercase_follows(rule_text text, size_t at)
{
    uint32_t c = 0;
    while (at < text.size) {
        at = rule_char_at(text, at, &c);
        if (!rule_is_space(c))
            return rule_is_lower(c);
    }
    return 0;
}

/* Returns 1 if only white space lies between the start of the line and `at`. */
static int is_at_line_start(rule_text text, size_t at)
{
    while (at && (text.data[at - 1] == ' ' || text.data[at - 1] == '\t'))
        at--;
    return !at || text.data[at - 1] == '\n';
}

/* Returns 1 if the single "." at `dot`, with white space at `blank_at`, ends a
 * sentence. */
static int dot_ends_sentence(rule_text text, size_t dot, size_t blank_at)
{
    uint32_t c = 0;
    rule_text word = find_word_before(text, dot);
    int small = lowercase_follows(text, blank_at);
    if (!word.size)
        return !small;
    size_t next = rule_char_at(word, 0, &c);
    if (next == word.size && rule_is_letter(c) && c != 'I')
        return is_at_line_start(text,
                                dot - word.size); /* A. of a list, J. Doe */
    if (is_listed_word(word, titles, sizeof(titles) / sizeof(titles[0])))
        return 0;
    if (is_listed_word(word, shorts, sizeof(shorts) / sizeof(shorts[0])))
        return !small;
    (void)rule_char_before(word, word.size, &c);
    return !(small && rule_is_digit(c));
}

static size_t skip_characters(rule_text text, size_t at, int (*is)(uint32_t))
{
    uint32_t c = 0;
    while (at < text.size) {
        size_t next = rule_char_at(text, at, &c);
        if (!is(c))
            break;
        at = next;
    }
    return at;
}

size_t rule_sentence_count(rule_text text)
{
    size_t count = 0;
    uint32_t c = 0;
    text = rule_strip(text);
    for (size_t at = 0; at < text.size;) {
        size_t stop = at;
        at = rule_char_at(text, at, &c);
        int wide = is_wide_stop(c);
        if (!wide && !is_full_stop(c))
            continue;
        int plain_dot = c == '.';
        size_t more =
            skip_characters(text, at, wide ? is_wide_stop : is_full_stop);
        int run = more > at;
        at = skip_characters(text, more, is_closing_mark);
        if (at > more && at < text.size && text.data[at] == ',')
            at++;
        if (at >= text.size)
            break;
        (void)rule_char_at(text, at, &c);
        if (!wide && !rule_is_space(c))
            continue;
        if (!wide && run && text.data[more - 1] == '.')
            count += !lowercase_follows(text, at); /* ... */
        else if (!wide && plain_dot && !run)
            count += (size_t)dot_ends_sentence(text, stop, at);
        else
            count++;
    }
    return count + (text.size > 0);
}
