/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks IFEval's instructions about the form of a response: its parts, marks,
 * beginning and end.
 */
#include <string.h>

#include "core/base/jsoncheck.h"
#include "plugins/reward-rule/ifeval.h"

static int is_blank_text(rule_text text)
{
    return rule_strip(text).size == 0;
}

static rule_text drop_front(rule_text text, size_t first)
{
    return rule_slice(text, first, text.size);
}

/* Returns the offset past one white space character at `at`, or `at`. */
static size_t skip_one_space(rule_text text, size_t at)
{
    uint32_t c = 0;
    if (at >= text.size)
        return at;
    size_t next = rule_char_at(text, at, &c);
    return rule_is_space(c) ? next : at;
}

static size_t skip_spaces(rule_text text, size_t at)
{
    for (size_t next = skip_one_space(text, at); next != at;
         next = skip_one_space(text, at))
        at = next;
    return at;
}

/* Returns the end of the line that contains `at`, before its "\n". */
static size_t find_line_end(rule_text text, size_t at)
{
    if (at >= text.size)
        return text.size;
    const char *end = memchr(text.data + at, '\n', text.size - at);
    return end ? (size_t)(end - text.data) : text.size;
}

/* Paragraphs are separated by "***". A blank first or last one does not count;
 * a blank one between two others breaks the instruction. */
int rule_if_paragraphs(const rule_followed *r, const cJSON *args)
{
    int64_t want = rule_arg_count(args, "num_paragraphs");
    rule_text mark = rule_text_of("***");
    int64_t count = 0;
    size_t first = 0;
    if (want < 0)
        return -1;
    for (int last = 0; !last;) {
        size_t at = rule_find(r->text, mark, first);
        last = at == SIZE_MAX;
        size_t end = last ? r->text.size : at;
        if (!is_blank_text(rule_slice(r->text, first, end)))
            count++;
        else if (first && !last)
            return 0;
        first = end + mark.size;
    }
    return count == want;
}

static size_t measure_first_word(rule_text word)
{
    uint32_t c = 0;
    size_t at = 0;
    while (at < word.size) {
        size_t next = rule_char_at(word, at, &c);
        if (c == '.' || c == ',' || c == '?' || c == '!' || c == '\'' ||
            c == '"')
            break;
        at = next;
    }
    return at;
}

static int starts_with_word(const rule_followed *r, rule_text paragraph,
                            rule_text want)
{
    size_t at = 0;
    rule_text word = rule_next_word(paragraph, &at);
    while (word.size && *word.data == '\'')
        word = drop_front(word, 1);
    while (word.size && *word.data == '"')
        word = drop_front(word, 1);
    word.size = measure_first_word(word);
    want = rule_arg_lower(r, want);
    return rule_equal(word, want, 0);
}

/* Paragraphs are separated by empty lines. The n-th, counting blank ones too,
 * must begin with the word. */
int rule_if_first_word(const rule_followed *r, const cJSON *args)
{
    int64_t want = rule_arg_count(args, "num_paragraphs");
    int64_t nth = rule_arg_count(args, "nth_paragraph");
    rule_text word = rule_arg_text(args, "first_word");
    rule_text mark = rule_text_of("\n\n");
    rule_text chosen = { NULL, 0 };
    int64_t count = 0;
    int64_t index = 0;
    size_t first = 0;
    if (want < 0 || nth < 1 || nth > want || !word.data)
        return -1;
    for (int last = 0; !last;) {
        size_t at = rule_find(r->lower, mark, first);
        last = at == SIZE_MAX;
        rule_text part = rule_slice(r->lower, first, last ? r->lower.size : at);
        count += !is_blank_text(part);
        if (++index == nth)
            chosen = part;
        first = at + mark.size;
    }
    return count == want && nth <= count && chosen.data &&
           !is_blank_text(chosen) && starts_with_word(r, chosen, word);
}

/* A placeholder is "[...]" on one line. */
int rule_if_placeholders(const rule_followed *r, const cJSON *args)
{
    int64_t want = rule_arg_count(args, "num_placeholders");
    int64_t count = 0;
    int inside = 0;
    if (want < 0)
        return -1;
    for (size_t at = 0; at < r->text.size; at++) {
        char c = r->text.data[at];
        if (c == ']')
            count += inside;
        if (c == ']' || c == '\n')
            inside = 0;
        else if (c == '[')
            inside = 1;
    }
    return count >= want;
}

/* Matches each of `letters` followed by a dot and one optional white space
 * character. The last dot is required only with `last_dot`. */
static int matches_dotted(rule_text text, size_t at, const char *letters,
                          int last_dot)
{
    for (; *letters; letters++) {
        if (at >= text.size || text.data[at] != *letters)
            return 0;
        at++;
        if (!letters[1] && !last_dot)
            return 1;
        if (at >= text.size || text.data[at] != '.')
            return 0;
        at = skip_one_space(text, at + 1);
    }
    return 1;
}

int rule_if_postscript(const rule_followed *r, const cJSON *args)
{
    rule_text marker = rule_arg_text(args, "postscript_marker");
    if (!marker.data)
        return -1;
    marker = rule_strip(marker);
    int pps = rule_equal(marker, rule_text_of("P.P.S"), 0);
    if (!pps && !rule_equal(marker, rule_text_of("P.S."), 0)) {
        marker = rule_arg_lower(r, marker);
        return !marker.size || rule_find(r->lower, marker, 0) != SIZE_MAX;
    }
    for (size_t at = 0; at < r->lower.size; at++)
        if (matches_dotted(r->lower, at, pps ? "pps" : "ps", !pps))
            return 1;
    return 0;
}

/* Counts lines that begin, after white space, with `mark`; a "*" must not be
 * followed by another. It counts as IFEval's multi-line regular expression
 * does: blank lines before a bullet belong to it, and so does the line after a
 * "*" that is the last character of its line. */
static int64_t count_bullets(rule_text text, char mark)
{
    int64_t count = 0;
    size_t at = 0;
    while (at < text.size) {
        size_t start = skip_spaces(text, at);
        size_t next = start + 1;
        int hit = start < text.size && text.data[start] == mark;
        if (hit && mark == '*') {
            hit = next < text.size && text.data[next] != '*';
            next++;
        }
        count += hit;
        at = find_line_end(text, hit ? next : start) + 1;
    }
    return count;
}

int rule_if_bullets(const rule_followed *r, const cJSON *args)
{
    int64_t want = rule_arg_count(args, "num_bullets");
    if (want < 0)
        return -1;
    return count_bullets(r->text, '*') + count_bullets(r->text, '-') == want;
}

int rule_if_constrained(const rule_followed *r, const cJSON *args)
{
    static const char *const options[] = { "My answer is yes.",
                                           "My answer is no.",
                                           "My answer is maybe." };
    (void)args;
    for (size_t i = 0; i < 3; i++)
        if (rule_find(r->text, rule_text_of(options[i]), 0) != SIZE_MAX)
            return 1;
    return 0;
}

/* Finds the next text between two runs of `width` asterisks, from *at on. The
 * text has neither an asterisk nor a line end. Moves *at past it and returns
 * it, or data NULL if there are no more. */
static rule_text find_next_highlight(rule_text text, size_t width, size_t *at)
{
    static const char stars[] = "**";
    rule_text mark = { stars, width };
    for (size_t open = rule_find(text, mark, *at); open != SIZE_MAX;
         open = rule_find(text, mark, open + 1)) {
        size_t end = open + width;
        while (end < text.size && text.data[end] != '*' &&
               text.data[end] != '\n')
            end++;
        if (!rule_starts(drop_front(text, end), mark))
            continue;
        *at = end + width;
        return rule_slice(text, open + width, end);
    }
    return (rule_text){ NULL, 0 };
}

/* *one* and **two** asterisks are counted separately, so "**two**" may count in
 * both passes. */
int rule_if_highlights(const rule_followed *r, const cJSON *args)
{
    int64_t want = rule_arg_count(args, "num_highlights");
    int64_t count = 0;
    if (want < 0)
        return -1;
    for (size_t width = 1; width <= 2; width++) {
        size_t at = 0;
        for (rule_text inner = find_next_highlight(r->text, width, &at);
             inner.data; inner = find_next_highlight(r->text, width, &at))
            count += !is_blank_text(inner);
    }
    return count >= want;
}

/* A section begins with the mark, at most one white space character and a
 * digit. */
int rule_if_sections(const rule_followed *r, const cJSON *args)
{
    int64_t want = rule_arg_count(args, "num_sections");
    rule_text mark = rule_arg_text(args, "section_spliter");
    int64_t count = 0;
    if (want < 0 || !mark.data)
        return -1;
    mark = rule_strip(mark);
    if (!mark.size)
        return -1;
    for (size_t at = rule_find(r->text, mark, 0); at != SIZE_MAX;
         at = rule_find(r->text, mark, at)) {
        uint32_t c = 0;
        size_t digit = skip_one_space(r->text, at + mark.size);
        at++;
        if (digit >= r->text.size)
            break;
        size_t past = rule_char_at(r->text, digit, &c);
        if (!rule_is_digit(c))
            continue;
        count++;
        at = past;
    }
    return count >= want;
}

static rule_text remove_prefix(rule_text text, const char *prefix)
{
    rule_text p = rule_text_of(prefix);
    return rule_starts(text, p) ? drop_front(text, p.size) : text;
}

int rule_if_json(const rule_followed *r, const cJSON *args)
{
    rule_text text = rule_strip(r->text);
    (void)args;
    text = remove_prefix(text, "```json");
    text = remove_prefix(text, "```Json");
    text = remove_prefix(text, "```JSON");
    text = remove_prefix(text, "```");
    if (rule_ends(text, rule_text_of("```")))
        text.size -= 3;
    text = rule_strip(text);
    return xr_json_check(text.data, text.size, "response", NULL) == XRAY_OK;
}

/* A title reaches from the first "<<" of a line to its last ">>" and is not
 * blank. */
static int line_has_title(rule_text line)
{
    size_t open = rule_find(line, rule_text_of("<<"), 0);
    if (open == SIZE_MAX)
        return 0;
    size_t end = line.size;
    while (end >= open + 5 && memcmp(line.data + end - 2, ">>", 2) != 0)
        end--;
    if (end < open + 5)
        return 0;
    while (open < end && line.data[open] == '<')
        open++;
    while (end > open && line.data[end - 1] == '>')
        end--;
    return !is_blank_text(rule_slice(line, open, end));
}

int rule_if_title(const rule_followed *r, const cJSON *args)
{
    (void)args;
    for (size_t at = 0; at < r->text.size;) {
        size_t end = find_line_end(r->text, at);
        if (line_has_title(rule_slice(r->text, at, end)))
            return 1;
        at = end + 1;
    }
    return 0;
}

/* "******" must separate exactly two different responses. */
int rule_if_two_responses(const rule_followed *r, const cJSON *args)
{
    rule_text mark = rule_text_of("******");
    rule_text found[2] = { { "", 0 }, { "", 0 } };
    size_t count = 0;
    size_t first = 0;
    (void)args;
    for (int last = 0; !last;) {
        size_t at = rule_find(r->text, mark, first);
        last = at == SIZE_MAX;
        size_t end = last ? r->text.size : at;
        rule_text part = rule_strip(rule_slice(r->text, first, end));
        if (!part.size && first && !last)
            return 0;
        if (part.size && count < 2)
            found[count] = part;
        count += part.size > 0;
        first = end + mark.size;
    }
    return count == 2 && !rule_equal(found[0], found[1], 0);
}

int rule_if_repeat_prompt(const rule_followed *r, const cJSON *args)
{
    rule_text prompt = rule_arg_text(args, "prompt_to_repeat");
    if (!prompt.data || !prompt.size)
        return -1;
    return rule_starts(rule_strip(r->lower),
                       rule_arg_lower(r, rule_strip(prompt)));
}

int rule_if_end(const rule_followed *r, const cJSON *args)
{
    rule_text phrase = rule_arg_text(args, "end_phrase");
    rule_text text = rule_strip(r->lower);
    if (!phrase.data)
        return -1;
    while (text.size && text.data[text.size - 1] == '"')
        text.size--;
    while (text.size && *text.data == '"')
        text = drop_front(text, 1);
    return rule_ends(text, rule_arg_lower(r, rule_strip(phrase)));
}

int rule_if_quotation(const rule_followed *r, const cJSON *args)
{
    rule_text text = rule_strip(r->text);
    (void)args;
    return text.size > 1 && *text.data == '"' &&
           text.data[text.size - 1] == '"';
}
