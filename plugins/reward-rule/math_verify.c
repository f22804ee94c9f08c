/* SPDX-License-Identifier: Apache-2.0
 *
 * Finds the answer of a response as Math-Verify does, in five steps. Step 0
 * looks for "final answer is x. I hope", step 1 for "final answer ... is x" and
 * boxes, step 2 for "answer: x", step 3 for "answer x", step 4 for any formula
 * or number. The first step with a candidate that can be parsed decides, and
 * among its candidates the one that ends last.
 */
#include <string.h>

#include "plugins/reward-rule/math_find.h"
#include "plugins/reward-rule/unicode.h"

/* Patterns of candidates. SUMS has also the numbers that follow "answer". */
enum { FORMULAS, BOXED_FORMULAS, BOXES, SUMS, NUMBERS, PATTERNS };

#define KEPT 32u       /* only the last ones of a pattern's matches are tried */
#define NEAR 50        /* most characters from "answer" to the answer */
#define FAR 100        /* most from "final answer" to "is", or of an equation */
#define MOST_BOXES 32u /* in a list */
#define BOX_GAP 10u    /* boxes with fewer bytes between them are one list, */
#define LIST_GAP 70u   /* or with fewer than these and a comma, "and", "or" */

typedef struct candidate {
    size_t start;
    size_t end;
    size_t at; /* offset of the formulas; `start` is that of the pattern */
    rule_prose prose;
} candidate;

typedef struct finder {
    rule_scan scan;
    unsigned kinds;
    size_t count[PATTERNS];               /* candidates found */
    candidate candidates[PATTERNS][KEPT]; /* rings: number i is at i % KEPT */
} finder;

/* Finds a word in letters of either case; returns the text's size if there is
 * none. */
static size_t find_word(rule_text text, const char *word, size_t from)
{
    size_t size = strlen(word);
    rule_text wanted = rule_text_of(word);
    for (size_t at = from; at + size <= text.size; at++)
        if ((text.data[at] | 0x20) == *word &&
            rule_equal((rule_text){ text.data + at, size }, wanted, 1))
            return at;
    return text.size;
}

static int is_space_at(rule_text text, size_t at)
{
    return at < text.size && rule_ascii_space(text.data[at]);
}

static size_t skip_spaces(rule_text text, size_t at)
{
    while (is_space_at(text, at))
        at++;
    return at;
}

static candidate *add_candidate(finder *f, int pattern, size_t start,
                                size_t end)
{
    candidate *p = &f->candidates[pattern][f->count[pattern]++ % KEPT];
    memset(p, 0, sizeof(*p));
    p->start = start;
    p->end = end;
    return p;
}

/* ---- candidates at an offset --------------------------------------------- */

/* Adds the formulas at `at` as a candidate of the pattern that begins at
 * `start`, the most that `tail` can follow. Returns their end, or 0. */
static size_t add_formulas(finder *f, size_t start, size_t at, int tail)
{
    rule_formula list[RULE_CHAIN];
    unsigned count = rule_formulas_at(&f->scan, at, 0, list);
    for (; count > 0; count--) {
        size_t end = list[count - 1].end;
        if (tail == RULE_TAIL_I_HOPE && !rule_hopes_at(f->scan.text, end, &end))
            continue;
        add_candidate(f, FORMULAS, start, end)->at = at;
        return end;
    }
    return 0;
}

/* The same for a sum or a number. */
static size_t add_prose(finder *f, size_t start, size_t at, int tail)
{
    rule_prose prose;
    if (!rule_sum_at(&f->scan, at, tail, &prose) &&
        !rule_number_at(&f->scan, at, tail, &prose))
        return 0;
    add_candidate(f, SUMS, start, prose.end)->prose = prose;
    return prose.end;
}

/* The same after white space, which may be empty. The match of a number
 * includes its last character, that of a formula may. */
static size_t add_spaced(finder *f, size_t start, size_t from, int tail,
                         int formulas)
{
    size_t at = skip_spaces(f->scan.text, from);
    if (!formulas)
        return add_prose(f, start, at > from ? at - 1 : at, tail);
    size_t end = add_formulas(f, start, at, tail);
    return end || at == from ? end : add_formulas(f, start, at - 1, tail);
}

/* ---- patterns ------------------------------------------------------------ */

/* Matches "final answer is: x. I hope". */
static size_t match_i_hope(finder *f, size_t start, int formulas)
{
    static const char words[] = "final answer is";
    size_t at = start + sizeof(words) - 1;
    rule_text text = f->scan.text;
    if (!rule_equal(
            (rule_text){ text.data + start, at <= text.size ? at - start : 0 },
            rule_text_of(words), 1))
        return 0;
    at += rule_begins(rule_text_from(text, at), ":") ? 1 : 0;
    return add_spaced(f, start, at, RULE_TAIL_I_HOPE, formulas);
}

/* Matches "final answer to the question is: x". */
static size_t match_final_answer(finder *f, size_t start, int formulas)
{
    rule_text text = f->scan.text;
    size_t at = start + strlen("final answer");
    for (int i = 0; i <= FAR && at < text.size; i++) {
        size_t is = skip_spaces(text, at);
        if (is > at && rule_begins(rule_text_from(text, is), "is")) {
            is += 2;
            is += rule_begins(rule_text_from(text, is), ":") ? 1 : 0;
            size_t end = formulas ? add_spaced(f, start, is, 0, 1)
                                  : add_prose(f, start, is, 0);
            if (end)
                return end;
        }
        if (!formulas && text.data[at] == '\n')
            return 0;
        at += rule_char_size(rule_text_from(text, at));
    }
    return 0;
}

/* Matches "answer is 3 + 4 = x": the answer follows the last "=" of the line.
 */
static size_t match_equation(finder *f, size_t start, size_t first)
{
    rule_text text = f->scan.text;
    size_t at = first;
    for (int i = 0; i < FAR && at < text.size && text.data[at] != '\n'; i++)
        at += rule_char_size(rule_text_from(text, at));
    for (at++; at-- > first;) {
        if (at >= text.size || text.data[at] != '=')
            continue;
        size_t end = add_spaced(f, start, at + 1, RULE_TAIL_NO_EQUALS, 0);
        if (end)
            return end;
    }
    return 0;
}

/* Matches the formula or number that follows `at` within NEAR characters and,
 * if it is a number, in the same line. */
static size_t match_near(finder *f, size_t start, size_t at, int formulas)
{
    rule_text text = f->scan.text;
    size_t end = formulas ? 0 : match_equation(f, start, at);
    for (int i = 0; !end && i <= NEAR && at < text.size; i++) {
        end = formulas ? add_formulas(f, start, at, RULE_TAIL_ANY)
                       : add_prose(f, start, at, RULE_TAIL_NO_EQUALS);
        if (!formulas && text.data[at] == '\n')
            break;
        at += rule_char_size(rule_text_from(text, at));
    }
    return end;
}

/* Matches "answer: x". */
static size_t match_colon(finder *f, size_t start, int formulas)
{
    size_t at = start + strlen("answer");
    return rule_begins(rule_text_from(f->scan.text, at), ":")
               ? match_near(f, start, at + 1, formulas)
               : 0;
}

/* Matches "answer x". */
static size_t match_answer(finder *f, size_t start, int formulas)
{
    return match_near(f, start, start + strlen("answer"), formulas);
}

/* Finds all matches of a pattern that begins with `word`, once with a number as
 * its answer and once with a formula. */
static void find_announced(finder *f, const char *word,
                           size_t (*match)(finder *, size_t, int))
{
    rule_text text = f->scan.text;
    for (int formulas = 0; formulas < 2; formulas++) {
        unsigned kind = formulas ? RULE_KIND_LATEX : RULE_KIND_NUMBER;
        size_t at = f->kinds & kind ? find_word(text, word, 0) : text.size;
        while (at < text.size) {
            size_t end = match(f, at, formulas);
            at = find_word(text, word, end > at ? end : at + 1);
        }
    }
}

/* Finds boxes in formulas, and the text from the first box to the last closing
 * brace. */
static void find_boxes(finder *f)
{
    rule_text text = f->scan.text;
    size_t first = rule_seek(text, "\\boxed{");
    size_t last = text.size;
    if (!(f->kinds & RULE_KIND_LATEX) || first >= text.size)
        return;
    for (size_t at = 0; at < text.size;) {
        rule_formula list[RULE_CHAIN];
        unsigned count = rule_formulas_at(&f->scan, at, 1, list);
        if (count)
            add_candidate(f, BOXED_FORMULAS, at, list[count - 1].end)->at = at;
        at = count ? list[count - 1].end : at + 1;
    }
    while (last > first + 8 && text.data[last - 1] != '}')
        last--;
    if (last > first + 8)
        add_candidate(f, BOXES, first, last);
}

static void find_any_candidates(finder *f)
{
    size_t size = f->scan.text.size;
    size_t end = 0;
    if (f->kinds & RULE_KIND_LATEX)
        for (size_t at = 0; at < size; at = end ? end : at + 1)
            end = add_formulas(f, at, at, RULE_TAIL_ANY);
    if (!(f->kinds & RULE_KIND_NUMBER))
        return;
    rule_prose prose;
    for (size_t at = 0; at < size;) {
        int found = rule_sum_at(&f->scan, at, RULE_TAIL_ANY, &prose);
        if (found)
            add_candidate(f, SUMS, at, prose.end)->prose = prose;
        at = found ? prose.end : at + 1;
    }
    for (size_t at = 0; at < size;) {
        int found = rule_number_at(&f->scan, at, RULE_TAIL_ANY, &prose);
        if (found)
            add_candidate(f, NUMBERS, at, prose.end)->prose = prose;
        at = found ? prose.end : at + 1;
    }
}

/* Finds the candidates of a step, as numbered at the top of this file. */
static void find_candidates(finder *f, int step)
{
    memset(f->count, 0, sizeof(f->count));
    if (step == 0)
        find_announced(f, "final answer", match_i_hope);
    if (step == 1) {
        find_announced(f, "final answer", match_final_answer);
        find_boxes(f);
    }
    if (step == 2)
        find_announced(f, "answer", match_colon);
    if (step == 3)
        find_announced(f, "answer", match_answer);
    if (step == 4)
        find_any_candidates(f);
}

/* ---- the answer of a candidate ------------------------------------------- */

static size_t find_last_box(rule_text text, size_t *out_size)
{
    size_t boxed = rule_seek_last(text, "\\boxed");
    size_t framed = rule_seek_last(text, "\\fbox");
    int second = boxed == text.size || (framed != text.size && framed > boxed);
    *out_size = second ? strlen("\\fbox") : strlen("\\boxed");
    return second ? framed : boxed;
}

/* Returns the content of the brace at the front, or data NULL if it is never
 * closed. */
static rule_text read_braced(rule_text text)
{
    int depth = 0;
    for (size_t i = 0; i < text.size; i++) {
        depth += (text.data[i] == '{') - (text.data[i] == '}');
        if (!depth)
            return (rule_text){ text.data + 1, i - 1 };
    }
    return (rule_text){ NULL, 0 };
}

/* Returns 1 if the bytes from `at` to `end` are not part of a longer word. */
static int is_lone_word(rule_text text, size_t at, size_t end)
{
    uint32_t before = 0;
    uint32_t after = 0;
    if (at)
        (void)rule_char_before(text, at, &before);
    if (end < text.size)
        (void)rule_char_at(text, end, &after);
    return !rule_is_word(before) && !rule_is_word(after);
}

/* Tells whether a comma, a semicolon, "and" or "or" separates two boxes. */
static int has_separator(rule_text gap)
{
    static const char *const words[] = { "and", "or", NULL };
    if (memchr(gap.data, ',', gap.size) || memchr(gap.data, ';', gap.size))
        return 1;
    for (size_t i = 0; i + 2 <= gap.size; i++)
        for (size_t k = 0; words[k]; k++)
            if (rule_begins(rule_text_from(gap, i), words[k]) &&
                is_lone_word(gap, i, i + strlen(words[k])))
                return 1;
    return 0;
}

static int belong_together(rule_text box, rule_text next, rule_text gap)
{
    if (gap.size < BOX_GAP)
        return 1;
    return !rule_equal(box, next, 0) && gap.size < LIST_GAP &&
           has_separator(gap);
}

/* Writes the boxes of a text as a list "a, b, c", or the text itself if it has
 * none. The list ends with the last box and goes back as far as boxes belong
 * together; with `all`, back to the first box. */
static void add_boxes(rule_text text, int all, rule_buffer *out)
{
    rule_text found[MOST_BOXES];
    unsigned count = 0;
    rule_text rest = text;
    while (count < MOST_BOXES) {
        size_t command = 0;
        size_t start = find_last_box(rest, &command);
        size_t brace = skip_spaces(rest, start + command);
        if (start >= rest.size || brace >= rest.size)
            break;
        rule_text box = { NULL, 0 };
        if (rest.data[brace] == '{')
            box = read_braced(rule_text_from(rest, brace));
        if (!box.data) {
            if (!count)
                found[count++] = rule_text_from(rest, brace);
            break;
        }
        size_t end = (size_t)(box.data - rest.data) + box.size + 1;
        box = rule_trim(box);
        if (count && !all &&
            !belong_together(box, found[count - 1], rule_text_from(rest, end)))
            break;
        if (!count || !rule_equal(box, found[count - 1], 0))
            found[count++] = box;
        rest.size = start;
    }
    if (!count)
        rule_buffer_add(out, text.data, text.size);
    while (count > 0) {
        rule_text box = found[--count];
        rule_buffer_add(out, box.data, box.size);
        rule_buffer_puts(out, count ? ", " : "");
    }
}

/* Parses a text into m->tree. */
static int parse_text(rule_math *m, const rule_buffer *text)
{
    rule_clean(rule_buffer_text(text), &m->clean_a);
    rule_tree_clear(&m->tree);
    return !text->full && !m->clean_a.full &&
           rule_parse(&m->tree, rule_buffer_text(&m->clean_a)) != 0;
}

/* Reduces a = b = c to c; returns 0 for anything else. */
static int keep_last_side(rule_buffer *text)
{
    size_t last = 0;
    int signs = 0;
    for (size_t i = 0; i < text->size; i++) {
        char c = text->data[i];
        if (c == ',' || c == ';')
            return 0;
        if (c == '=' && (!i || !strchr("\\<!>", text->data[i - 1]))) {
            signs++;
            last = i + 1;
        }
    }
    if (signs < 2)
        return 0;
    memmove(text->data, text->data + last, text->size - last);
    text->size -= last;
    return 1;
}

/* Parses a text or, if that fails, the last side of its equations. */
static int read_latex(rule_math *m, rule_buffer *text)
{
    if (parse_text(m, text))
        return 1;
    m->spare = *text;
    if (!keep_last_side(&m->spare) || !parse_text(m, &m->spare))
        return 0;
    *text = m->spare;
    return 1;
}

/* Reads several formulas as a list if each can be parsed, else only the first.
 */
static int read_formulas(rule_math *m, finder *f, size_t at, int boxed)
{
    rule_formula list[RULE_CHAIN];
    unsigned count = rule_formulas_at(&f->scan, at, boxed, list);
    unsigned good = 0;
    size_t first = 0;
    m->a.size = 0;
    m->a.full = 0;
    for (unsigned i = 0; i < count; i++) {
        m->b.size = 0;
        m->b.full = 0;
        add_boxes(list[i].inside, 1, &m->b);
        good += read_latex(m, &m->b) != 0;
        if (i == 0 && !good)
            count = 1;
        rule_buffer_puts(&m->a, i ? ", " : "");
        rule_buffer_add(&m->a, m->b.data, m->b.size);
        rule_buffer_puts(&m->a, list[i].percent ? "\\%" : "");
        m->a.full |= m->b.full;
        first = i ? first : m->a.size;
    }
    if (good && good < count)
        m->a.size = first;
    return good > 0;
}

/* Drops the separators of thousands and turns a decimal comma into a point. */
static int read_prose(rule_math *m, const rule_prose *prose)
{
    rule_text value = prose->value;
    m->a.size = 0;
    m->a.full = 0;
    for (size_t i = 0; i < value.size; i++) {
        char c = value.data[i];
        if (prose->sum)
            c = rule_ascii_space(c) ? ' ' : c;
        else if (c == ' ' || (c == ',' && !prose->decimal))
            continue;
        else if (c == ',')
            c = '.';
        rule_buffer_add(&m->a, &c, 1);
    }
    if (prose->percent)
        rule_buffer_puts(&m->a, "\\%");
    return (!prose->sum || rule_is_python_sum(value)) && parse_text(m, &m->a);
}

/* Writes the answer of a candidate to m->a and parses it. */
static int read_candidate(rule_math *m, finder *f, int pattern,
                          const candidate *p)
{
    if (pattern == SUMS || pattern == NUMBERS)
        return read_prose(m, &p->prose);
    if (pattern != BOXES)
        return read_formulas(m, f, p->at, pattern == BOXED_FORMULAS);
    m->a.size = 0;
    m->a.full = 0;
    add_boxes((rule_text){ f->scan.text.data + p->start, p->end - p->start }, 0,
              &m->a);
    return read_latex(m, &m->a);
}

/* ---- the best candidate -------------------------------------------------- */

/* The better candidate ends later or, if both end at once, begins
 * earlier. */
static int is_better(const candidate *a, const candidate *b)
{
    return a->end != b->end ? a->end > b->end : a->start < b->start;
}

/* Takes the best candidate of those not yet tried and returns its pattern, or
 * -1. left[i] of pattern i are untried, which were found before all others of
 * it. */
static int take_best_candidate(finder *f, size_t left[PATTERNS],
                               const candidate **out)
{
    int best = -1;
    for (int i = 0; i < PATTERNS; i++) {
        if (!left[i])
            continue;
        const candidate *p =
            &f->candidates[i][(f->count[i] - 1 -
                               ((f->count[i] < KEPT ? f->count[i] : KEPT) -
                                left[i])) %
                              KEPT];
        if (best < 0 || is_better(p, *out)) {
            *out = p;
            best = i;
        }
    }
    if (best >= 0)
        left[best]--;
    return best;
}

int rule_find_answer(rule_math *m, rule_text response, unsigned kinds)
{
    finder f;
    int fallback = 0;
    f.kinds = kinds;
    rule_scan_open(&f.scan, response);
    for (int step = kinds & RULE_KIND_LAST ? 4 : 0; step < 5; step++) {
        size_t left[PATTERNS];
        const candidate *p = NULL;
        find_candidates(&f, step);
        for (int i = 0; i < PATTERNS; i++)
            left[i] = f.count[i] < KEPT ? f.count[i] : KEPT;
        for (int which = take_best_candidate(&f, left, &p); which >= 0;
             which = take_best_candidate(&f, left, &p)) {
            if (read_candidate(m, &f, which, p))
                return 1;
            if (!fallback && m->a.size)
                m->given = m->a;
            fallback |= m->a.size > 0;
        }
    }
    if (fallback)
        m->a = m->given;
    return fallback;
}

void rule_find_truth(rule_math *m, rule_text truth)
{
    static const char *const marks[] = { "$",       "\\(",    "\\[",
                                         "\\boxed", "\\fbox", NULL };
    int marked = 0;
    truth = rule_trim(truth);
    for (size_t i = 0; marks[i]; i++)
        marked |= rule_seek(truth, marks[i]) < truth.size;
    rule_buffer_set(&m->a, truth);
    if (!marked && read_latex(m, &m->a))
        return;
    if (!rule_find_answer(m, truth, RULE_KIND_LATEX | RULE_KIND_NUMBER))
        rule_buffer_set(&m->a, truth);
}
