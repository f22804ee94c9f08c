/* SPDX-License-Identifier: Apache-2.0
 *
 * Extracts the answer of a completion by the fixed markers of several graders.
 */
#include "plugins/reward-rule/math_extract.h"

#include <string.h>

static const rule_text nothing = { NULL, 0 };

static rule_text keep_front(rule_text text, size_t size)
{
    return (rule_text){ text.data, size < text.size ? size : text.size };
}

/* Returns the content of command{...} at the front of `text`. */
static rule_text read_braced(rule_text text, const char *command)
{
    size_t first = strlen(command);
    int depth = 0;
    if (!rule_begins(text, command) || first >= text.size ||
        text.data[first] != '{')
        return nothing;
    for (size_t i = first; i < text.size; i++) {
        depth += (text.data[i] == '{') - (text.data[i] == '}');
        if (depth == 0)
            return (rule_text){ text.data + first + 1, i - first - 1 };
    }
    return nothing;
}

rule_text rule_extract_boxed(rule_text response)
{
    size_t bare = rule_seek_last(response, "\\boxed ");
    if (bare < response.size) {
        rule_text rest = rule_text_from(response, bare + 7);
        return keep_front(rest, rule_seek(rest, "$"));
    }
    size_t at = rule_seek_last(response, "\\boxed");
    if (at < response.size)
        return read_braced(rule_text_from(response, at), "\\boxed");
    at = rule_seek_last(response, "\\fbox");
    return at < response.size
               ? read_braced(rule_text_from(response, at), "\\fbox")
               : nothing;
}

rule_text rule_extract_strict_box(rule_text response)
{
    response = rule_last_characters(response, 100);
    size_t at = rule_seek_last(response, "\\boxed{");
    return read_braced(rule_text_from(response, at), "\\boxed");
}

rule_text rule_extract_minerva(rule_text response)
{
    static const char open[] = "Final Answer: The final answer is";
    static const char close[] = " I hope it is correct.";
    for (size_t at = rule_seek(response, open); at < response.size;
         at = rule_seek(response, open)) {
        response = rule_text_from(response, at + sizeof(open) - 1);
        rule_text line = keep_front(response, rule_seek(response, "\n"));
        int last = line.size == response.size;
        size_t step = 0;
        for (size_t i = 0; i < line.size; i += step) {
            step = rule_char_size(rule_text_from(line, i));
            rule_text tail = rule_text_from(line, i + step);
            int cut = last && tail.size == 1 && *tail.data == ' ';
            if (cut || rule_begins(tail, close))
                return rule_trim(keep_front(line, i));
        }
        response = rule_text_from(response, line.size);
    }
    return nothing;
}

static size_t find_word(rule_text text, const char *word, size_t from)
{
    size_t size = strlen(word);
    rule_text wanted = rule_text_of(word);
    for (size_t at = from; at + size <= text.size; at++)
        if ((text.data[at] | 0x20) == (*word | 0x20) &&
            rule_equal(keep_front(rule_text_from(text, at), size), wanted, 1))
            return at;
    return text.size;
}

/* Returns the bytes of white space at the front. */
static size_t measure_space(rule_text text)
{
    size_t size = 0;
    while (size < text.size && rule_ascii_space(text.data[size]))
        size++;
    return size;
}

/* Returns the answer after the word "answer", and the end of its line. */
static rule_text read_announced_line(rule_text text, size_t after,
                                     size_t *out_end)
{
    after += measure_space(rule_text_from(text, after));
    if (after >= text.size || text.data[after] != ':')
        return nothing;
    size_t first = ++after;
    after += measure_space(rule_text_from(text, after));
    /* If only white space is left, the answer is the last of it that is not a
     * line end, as DAPO's regular expression finds it. */
    while (after == text.size || text.data[after] == '\n')
        if (after-- == first)
            return nothing;
    rule_text rest = rule_text_from(text, after);
    rule_text line = keep_front(rest, rule_seek(rest, "\n"));
    *out_end = after + line.size;
    return line;
}

rule_text rule_extract_answer(rule_text response)
{
    static const char word[] = "answer";
    rule_text found = nothing;
    size_t at = find_word(response, word, 0);
    while (at < response.size) {
        size_t next = at + 1;
        rule_text line =
            read_announced_line(response, at + sizeof(word) - 1, &next);
        if (line.data)
            found = line;
        at = find_word(response, word, next);
    }
    return found;
}

rule_text rule_extract_marked(rule_text response)
{
    size_t at = rule_seek_last(response, "####");
    if (at == response.size)
        return nothing;
    rule_text rest = rule_text_from(response, at + 4);
    rest = rule_trim(keep_front(rest, rule_seek(rest, "\n")));
    return rest.size ? rest : nothing;
}
