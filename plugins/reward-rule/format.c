/* SPDX-License-Identifier: Apache-2.0
 *
 * The graders "format", "tag_count" and "reasoning_steps" reward the form of a
 * response, whatever its answer is.
 */
#include "plugins/reward-rule/grade.h"
#include "plugins/reward-rule/unicode.h"

/* Nested boxes that are tracked; deeper ones count as plain braces. */
#define RULE_BOXES 64u

static size_t find_literal(rule_text text, const char *needle, size_t from)
{
    return rule_find(text, rule_text_of(needle), from);
}

static size_t count_occurrences(rule_text text, const char *needle)
{
    size_t size = rule_text_of(needle).size;
    size_t count = 0;
    for (size_t at = find_literal(text, needle, 0); at != SIZE_MAX;
         at = find_literal(text, needle, at + size))
        count++;
    return count;
}

/* Requires "<think>\n", "\n</think>\n<answer>\n" and "\n</answer>" in this
 * order, the first at the first byte and the last at the end of a line. It is
 * enough to try the first occurrence of the middle part, because a later one
 * leaves less text in which the last part could be found. */
static int has_think_answer(rule_text text)
{
    rule_text middle = rule_text_of("\n</think>\n<answer>\n");
    rule_text close = rule_text_of("\n</answer>");
    if (!rule_starts(text, rule_text_of("<think>\n")))
        return 0;
    size_t at = rule_find(text, middle, 8);
    if (at == SIZE_MAX)
        return 0;
    at = rule_find(text, close, at + middle.size);
    while (at != SIZE_MAX) {
        size_t end = at + close.size;
        if (end == text.size || text.data[end] == '\n')
            return 1;
        at = rule_find(text, close, at + 1);
    }
    return 0;
}

static int is_ascii_space(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

/* Requires <think>..</think>, optional white space and <answer>..</answer>;
 * white space may precede them. */
static int has_soft_think_answer(rule_text text)
{
    rule_text bare = rule_strip(text);
    rule_text open = rule_text_of("<answer>");
    if (!rule_starts(bare, rule_text_of("<think>")))
        return 0;
    for (size_t at = find_literal(bare, "</think>", 7); at != SIZE_MAX;
         at = find_literal(bare, "</think>", at + 8)) {
        size_t next = at + 8;
        while (next < bare.size && is_ascii_space(bare.data[next]))
            next++;
        rule_text rest = rule_slice(bare, next, bare.size);
        if (rule_starts(rest, open))
            return find_literal(rest, "</answer>", open.size) != SIZE_MAX;
    }
    return 0;
}

static int has_think(rule_text text)
{
    return rule_starts(text, rule_text_of("<think>")) &&
           find_literal(text, "<think>", 7) == SIZE_MAX &&
           find_literal(text, "</think>", 7) != SIZE_MAX;
}

/* Requires exactly one <answer> and one </answer>, with text between them. */
static int has_answer(rule_text text)
{
    size_t open = find_literal(text, "<answer>", 0);
    size_t close = find_literal(text, "</answer>", 0);
    return count_occurrences(text, "<answer>") == 1 &&
           count_occurrences(text, "</answer>") == 1 && open < close &&
           rule_strip(rule_slice(text, open + 8, close)).size > 0;
}

/* Requires a \boxed{...} that is closed and not blank. Where a box is never
 * closed, the boxes inside it still count. The depth at which each box opened
 * is kept, so a single pass over the bytes is enough. */
static int has_closed_box(rule_text text)
{
    size_t open[RULE_BOXES];
    size_t depth_of[RULE_BOXES];
    size_t boxes = 0;
    size_t depth = 0;
    for (size_t at = 0; at < text.size; at++) {
        rule_text rest = rule_slice(text, at, text.size);
        if (text.data[at] == '\\' && boxes < RULE_BOXES &&
            rule_starts(rest, rule_text_of("\\boxed{"))) {
            at += 6;
            open[boxes] = at + 1;
            depth_of[boxes++] = depth;
        }
        depth += text.data[at] == '{';
        if (text.data[at] != '}' || !depth)
            continue;
        depth--;
        if (!boxes || depth_of[boxes - 1] != depth)
            continue;
        boxes--;
        if (rule_strip(rule_slice(text, open[boxes], at)).size)
            return 1;
    }
    return 0;
}

static void grade_format(const rule_input *in, rule_grade *out)
{
    static int (*const forms[])(rule_text) = {
        [RULE_THINK_ANSWER] = has_think_answer,
        [RULE_THINK_ANSWER_SOFT] = has_soft_think_answer,
        [RULE_THINK] = has_think,
        [RULE_ANSWER] = has_answer,
        [RULE_BOXED] = has_closed_box,
    };
    rule_grade_outcome(in->config, 1, forms[in->config->format](in->response),
                       out);
}

static void grade_tags(const rule_input *in, rule_grade *out)
{
    static const char *const tags[] = { "<think>\n", "\n</think>\n",
                                        "\n<answer>\n", "\n</answer>" };
    double share = 0;
    for (size_t i = 0; i < 4; i++)
        share += 0.25 * (count_occurrences(in->response, tags[i]) == 1);
    rule_grade_share(in->config, share, out);
}

static size_t skip_digits(rule_text text, size_t at)
{
    uint32_t c = 0;
    while (at < text.size) {
        size_t next = rule_char_at(text, at, &c);
        if (!rule_is_digit(c))
            break;
        at = next;
    }
    return at;
}

/* Returns the end of the step mark that begins at `at`, or `at` if none does.
 */
static size_t find_step_end(rule_text text, size_t at)
{
    static const char *const marks[] = { "\n-",     "\n*",   "First,",
                                         "Second,", "Next,", "Finally," };
    rule_text rest = rule_slice(text, at, text.size);
    if (rule_starts(rest, rule_text_of("Step "))) {
        size_t end = skip_digits(text, at + 5);
        if (end > at + 5 && end < text.size && text.data[end] == ':')
            return end + 1;
    }
    if (!at) {
        size_t end = skip_digits(text, 0);
        if (end && end < text.size && text.data[end] == '.')
            return end + 1;
    }
    for (size_t i = 0; i < sizeof(marks) / sizeof(marks[0]); i++) {
        rule_text mark = rule_text_of(marks[i]);
        if (rule_starts(rest, mark))
            return at + mark.size;
    }
    return at;
}

/* Number of steps that earns the full score. */
#define ENOUGH_STEPS 3

static void grade_steps(const rule_input *in, rule_grade *out)
{
    size_t count = 0;
    for (size_t at = 0; at < in->response.size;) {
        size_t end = find_step_end(in->response, at);
        count += end > at;
        at = end > at ? end : at + 1;
    }
    rule_grade_share(in->config,
                     count >= ENOUGH_STEPS ? 1 : (double)count / ENOUGH_STEPS,
                     out);
}

const rule_grader rule_grader_format = {
    .keys = "score format_score format",
    .decides = 1,
    .any_truth = 1,
    .grade = grade_format,
};

const rule_grader rule_grader_tag_count = {
    .keys = "score format_score",
    .grade = grade_tags,
};

const rule_grader rule_grader_reasoning_steps = {
    .keys = "score format_score",
    .grade = grade_steps,
};
