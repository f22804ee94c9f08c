/* SPDX-License-Identifier: Apache-2.0 */
#include "plugins/reward-rule/math_extract.h"

#include <string.h>

static const rule_text nothing = { NULL, 0 };

static rule_text head(rule_text text, size_t size)
{
    return (rule_text){ text.data, size < text.size ? size : text.size };
}

/* The content of command{...} at the front of `text`. */
static rule_text braced(rule_text text, const char *command)
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
        rule_text rest = rule_from(response, bare + 7);
        return head(rest, rule_seek(rest, "$"));
    }
    size_t at = rule_seek_last(response, "\\boxed");
    if (at < response.size)
        return braced(rule_from(response, at), "\\boxed");
    at = rule_seek_last(response, "\\fbox");
    return at < response.size ? braced(rule_from(response, at), "\\fbox")
                              : nothing;
}

rule_text rule_extract_strict_box(rule_text response)
{
    response = rule_last_characters(response, 100);
    size_t at = rule_seek_last(response, "\\boxed{");
    return braced(rule_from(response, at), "\\boxed");
}

rule_text rule_extract_minerva(rule_text response)
{
    static const char open[] = "Final Answer: The final answer is";
    static const char close[] = " I hope it is correct.";
    for (size_t at = rule_seek(response, open); at < response.size;
         at = rule_seek(response, open)) {
        response = rule_from(response, at + sizeof(open) - 1);
        rule_text line = head(response, rule_seek(response, "\n"));
        int last = line.size == response.size;
        size_t step = 0;
        for (size_t i = 0; i < line.size; i += step) {
            step = rule_char_size(rule_from(line, i));
            rule_text tail = rule_from(line, i + step);
            int cut = last && tail.size == 1 && *tail.data == ' ';
            if (cut || rule_begins(tail, close))
                return rule_trim(head(line, i));
        }
        response = rule_from(response, line.size);
    }
    return nothing;
}

static size_t find_word(rule_text text, const char *word, size_t from)
{
    size_t size = strlen(word);
    rule_text wanted = rule_text_of(word);
    for (size_t at = from; at + size <= text.size; at++)
        if ((text.data[at] | 0x20) == (*word | 0x20) &&
            rule_equal(head(rule_from(text, at), size), wanted, 1))
            return at;
    return text.size;
}

/* Bytes of white space at the front. */
static size_t space_size(rule_text text)
{
    size_t size = 0;
    while (size < text.size && rule_ascii_space(text.data[size]))
        size++;
    return size;
}

/* The answer behind the word, and where its line ends. */
static rule_text announced(rule_text text, size_t after, size_t *out_end)
{
    after += space_size(rule_from(text, after));
    if (after >= text.size || text.data[after] != ':')
        return nothing;
    size_t first = ++after;
    after += space_size(rule_from(text, after));
    /* Only white space up to the end: the last of it that is no line end. */
    while (after == text.size || text.data[after] == '\n')
        if (after-- == first)
            return nothing;
    rule_text rest = rule_from(text, after);
    rule_text line = head(rest, rule_seek(rest, "\n"));
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
        rule_text line = announced(response, at + sizeof(word) - 1, &next);
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
    rule_text rest = rule_from(response, at + 4);
    rest = rule_trim(head(rest, rule_seek(rest, "\n")));
    return rest.size ? rest : nothing;
}

/* ---- formulas and numbers in running text ------------------------------- */

static const struct {
    const char *open;
    const char *close;
    int one_line;
} delimiters[] = {
    { "$$", "$$", 0 },   { "$", "$", 1 },   { "\\[", "\\]", 0 },
    { "\\(", "\\)", 1 }, { NULL, NULL, 0 },
};

/* Where the delimiter closes, or inside.size. */
static size_t closing(rule_text inside, const char *close)
{
    size_t at = 0;
    for (;;) {
        at += rule_seek(rule_from(inside, at), close);
        if (!at || at >= inside.size || *close != '$' ||
            inside.data[at - 1] != '\\')
            return at;
        at++;
    }
}

/* A formula at the front; *out_size: with its delimiters. *lost has a bit for
 * each delimiter that does not close before the end of the text. */
static rule_text formula(rule_text text, unsigned *lost, size_t *out_size)
{
    for (size_t i = 0; delimiters[i].open; i++) {
        size_t first = strlen(delimiters[i].open);
        if ((*lost >> i & 1) || !rule_begins(text, delimiters[i].open))
            continue;
        rule_text inside = rule_from(text, first);
        size_t close = closing(inside, delimiters[i].close);
        if (close >= inside.size) {
            *lost |= 1u << i;
            continue;
        }
        inside.size = close;
        if (!rule_trim(inside).size ||
            (delimiters[i].one_line && memchr(inside.data, '\n', close)))
            continue;
        *out_size = first + close + strlen(delimiters[i].close);
        return inside;
    }
    return nothing;
}

static size_t digit_run(rule_text text, size_t at)
{
    size_t count = 0;
    while (at + count < text.size && rule_ascii_digit(text.data[at + count]))
        count++;
    return count;
}

/* ",ddd" and " ddd" groups. */
static size_t group_run(rule_text text, size_t at, char mark)
{
    size_t end = at;
    while (end < text.size && text.data[end] == mark &&
           digit_run(text, end + 1) == 3)
        end += 4;
    return end - at;
}

/* Bytes of a number at `at`: also 1,000.5, 1 000, 2,74 and 3/4. */
static size_t number_size(rule_text text, size_t at)
{
    size_t i = at;
    if (i < text.size && (text.data[i] == '-' || text.data[i] == '+'))
        i++;
    size_t whole = digit_run(text, i);
    i += whole;
    size_t groups = whole && whole <= 3 ? group_run(text, i, ',') : 0;
    if (!groups && whole && whole <= 3)
        groups = group_run(text, i, ' ');
    i += groups;
    int mark = i < text.size && (text.data[i] == '.' ||
                                 (text.data[i] == ',' && !groups && whole));
    size_t decimals = mark ? digit_run(text, i + 1) : 0;
    if (decimals)
        i += 1 + decimals;
    if (!whole && !decimals)
        return 0;
    int slash = i < text.size && text.data[i] == '/';
    size_t bottom = slash ? digit_run(text, i + 1) : 0;
    return i + (bottom ? bottom + 1 : 0) - at;
}

/* A number does not start within a word or another number. */
static int may_start(rule_text text, size_t at)
{
    if (!at)
        return 1;
    unsigned char before = (unsigned char)text.data[at - 1];
    return !rule_ascii_letter((char)before) &&
           !rule_ascii_digit((char)before) && before != '_' && before != '^' &&
           before != '\\' &&
           !((before == '.' || before == ',') && at > 1 &&
             rule_ascii_digit(text.data[at - 2])) &&
           !(text.data[at] != '-' && text.data[at] != '+' && before == '.');
}

/* A sign behind an operand is an operator. */
static size_t number_at(rule_text text, size_t at)
{
    char c = text.data[at];
    if (!rule_ascii_digit(c) && c != '.' && c != '-' && c != '+')
        return 0;
    int sign = c == '-' || c == '+';
    if (sign && at && (text.data[at - 1] == ')' || text.data[at - 1] == '}'))
        return 0;
    return may_start(text, at) ? number_size(text, at) : 0;
}

static rule_text last_of(rule_text response, unsigned kinds, int *out_number)
{
    rule_text found = nothing;
    unsigned lost = 0;
    *out_number = 0;
    for (size_t at = 0; at < response.size;) {
        rule_text rest = rule_from(response, at);
        size_t size = 0;
        if (rule_begins(rest, "\\$")) {
            at += 2;
            continue;
        }
        rule_text inside = formula(rest, &lost, &size);
        if (inside.data && (kinds & RULE_KIND_LATEX)) {
            found = inside;
            *out_number = 0;
        } else if (!inside.data && (kinds & RULE_KIND_NUMBER)) {
            size = number_at(response, at);
            if (size) {
                found = head(rest, size);
                *out_number = 1;
            }
        }
        at += size ? size : 1;
    }
    return found;
}

rule_text rule_extract_last(rule_text response, unsigned kinds)
{
    int number = 0;
    return last_of(response, kinds, &number);
}

/* ---- the best place ------------------------------------------------------ */

#define WIDEST_GAP 40u
#define MOST_OPEN 64
#define LONGEST_PHRASE 400u
#define MOST_WORDS 60u

static rule_text unfinished_box(rule_text text)
{
    static const char open[] = "\\boxed{";
    size_t at = rule_seek_last(text, open);
    if (at == text.size)
        return nothing;
    rule_text rest = rule_from(text, at + sizeof(open) - 1);
    rest = head(rest, rule_seek(rest, "\n"));
    rest = rule_trim(head(rest, rule_seek(rest, "$")));
    return rest.size ? rest : nothing;
}

static rule_text first_box(rule_text text, size_t *out_at)
{
    int open = 0; /* boxes that do not close */
    for (size_t at = 0; at < text.size && open < MOST_OPEN; at++) {
        at += rule_seek(rule_from(text, at), "\\");
        rule_text rest = rule_from(text, at);
        rule_text box = braced(rest, "\\boxed");
        if (!box.data)
            box = braced(rest, "\\fbox");
        if (box.data) {
            *out_at = at;
            return box;
        }
        open += rule_begins(rest, "\\boxed{") || rule_begins(rest, "\\fbox{");
    }
    return nothing;
}

static size_t letters(rule_text text)
{
    size_t count = 0;
    while (count < text.size && rule_ascii_letter(text.data[count]))
        count++;
    return count;
}

/* 1 if what stands between two boxes only makes a list of them. */
static int joins(rule_text gap)
{
    static const char *const words[] = { "and",   "or",     "text", "quad",
                                         "qquad", "mathrm", NULL };
    int named = 0;
    if (gap.size > WIDEST_GAP)
        return 0;
    while (gap.size) {
        size_t count = letters(gap);
        int known = 0;
        for (size_t i = 0; count && words[i]; i++)
            known |= rule_equal(head(gap, count), rule_text_of(words[i]), 1);
        if (count && !known) {
            named = 1;
            if (count > 2)
                return 0;
        }
        char c = *gap.data;
        if ((c == '=' && !named) || (rule_ascii_digit(c) && !named) ||
            c == '<' || c == '>' || c == '?' || c == '.')
            return 0;
        if (c == '=')
            named = 0;
        gap = rule_from(gap, count ? count : 1);
    }
    return !named;
}

static void add_percent(rule_text rest, rule_buffer *out)
{
    static const char *const words[] = { "\\%", "%", "percent", "pct", NULL };
    while (rest.size && (rule_ascii_space(*rest.data) || *rest.data == '$' ||
                         *rest.data == ')' || *rest.data == '\\')) {
        if (rule_begins(rest, "\\%"))
            break;
        rest = rule_from(rest, 1);
    }
    for (size_t i = 0; words[i]; i++)
        if (rule_begins(rest, words[i])) {
            rule_buffer_puts(out, "\\%");
            return;
        }
}

static rule_text behind(rule_text text, rule_text part)
{
    return rule_from(text, (size_t)(part.data - text.data) + part.size);
}

static int last_boxes(rule_text text, rule_buffer *out)
{
    rule_text rest = text;
    rule_text box = nothing;
    int found = 0;
    size_t at = 0;
    for (rule_text next = first_box(rest, &at); next.data;
         next = first_box(rest, &at)) {
        if (found && joins(head(rest, at)))
            rule_buffer_puts(out, ", ");
        else
            out->size = 0;
        rule_buffer_add(out, next.data, next.size);
        found = 1;
        box = next;
        rest = rule_from(behind(text, next), 1);
    }
    if (found)
        add_percent(rule_from(behind(text, box), 1), out);
    return found;
}

static int put(rule_text text, rule_text found, rule_buffer *out)
{
    if (!found.data)
        return 0;
    rule_buffer_set(out, found);
    add_percent(behind(text, found), out);
    return 1;
}

/* The comma of 2,74 is a decimal point: three digits do not follow. */
static void decimal_point(rule_buffer *out)
{
    rule_text text = rule_buffer_text(out);
    size_t at = rule_seek(text, ",");
    if (rule_occurs(text, ",") == 1 && digit_run(text, at + 1) != 3)
        out->data[at] = '.';
}

static int put_number(rule_text text, rule_text found, rule_buffer *out)
{
    if (!put(text, found, out))
        return 0;
    decimal_point(out);
    return 1;
}

/* The first formula or number of a phrase, or all of a short one. */
static int phrase(rule_text text, rule_text part, unsigned kinds,
                  rule_buffer *out)
{
    unsigned lost = 0;
    for (size_t at = 0; at < part.size; at++) {
        size_t size = 0;
        rule_text inside = formula(rule_from(part, at), &lost, &size);
        if (inside.data && (kinds & RULE_KIND_LATEX))
            return put(text, inside, out);
    }
    for (size_t at = 0; at < part.size && (kinds & RULE_KIND_NUMBER); at++) {
        size_t size = number_at(part, at);
        if (size)
            return put_number(text, head(rule_from(part, at), size), out);
    }
    return 0;
}

/* The rest of a short sentence. */
static int words(rule_text part, rule_buffer *out)
{
    part = head(part, rule_seek(part, "\n"));
    part = head(part, rule_seek(part, ". "));
    while (part.size && (*part.data == '*' || rule_ascii_space(*part.data)))
        part = rule_from(part, 1);
    if (!part.size || part.size > MOST_WORDS)
        return 0;
    rule_buffer_set(out, part);
    return 1;
}

static int answer_phrase(rule_text text, unsigned kinds, rule_buffer *out)
{
    static const char *const phrases[] = { "answer is", "answer:", NULL };
    size_t last = text.size;
    size_t size = 0;
    for (size_t i = 0; phrases[i]; i++)
        for (size_t at = find_word(text, phrases[i], 0); at < text.size;
             at = find_word(text, phrases[i], at + 1))
            if (last == text.size || at > last) {
                last = at;
                size = strlen(phrases[i]);
            }
    if (last == text.size)
        return 0;
    rule_text part = rule_from(text, last + size);
    part = rule_from(part, space_size(part));
    if (kinds == (RULE_KIND_LATEX | RULE_KIND_NUMBER) &&
        !rule_extract_last(part, kinds).data)
        return words(part, out);
    part = head(part, rule_seek(part, "\n\n"));
    part = head(part, find_word(part, "I hope it is", 0));
    return phrase(text, head(part, LONGEST_PHRASE), kinds, out);
}

int rule_extract_any(rule_text response, unsigned kinds, rule_buffer *out)
{
    out->size = 0;
    out->full = 0;
    if ((kinds & RULE_KIND_LATEX) && last_boxes(response, out))
        return 1;
    if ((kinds & RULE_KIND_LATEX) &&
        put(response, unfinished_box(response), out))
        return 1;
    if (answer_phrase(response, kinds, out))
        return 1;
    rule_text marked = rule_extract_marked(response);
    if (marked.data && (kinds & RULE_KIND_NUMBER))
        return put(response, marked, out);
    int number = 0;
    rule_text last = last_of(response, kinds, &number);
    return number ? put_number(response, last, out) : put(response, last, out);
}

void rule_extract_truth(rule_text truth, rule_buffer *out)
{
    size_t size = 0;
    out->size = 0;
    out->full = 0;
    truth = rule_trim(truth);
    if (last_boxes(truth, out))
        return;
    unsigned lost = 0;
    rule_text inside = formula(truth, &lost, &size);
    if (inside.data && size == truth.size) {
        rule_buffer_set(out, inside);
        return;
    }
    rule_text last = rule_extract_last(truth, RULE_KIND_LATEX);
    if (!put(truth, last, out))
        rule_buffer_set(out, truth);
}
