/* SPDX-License-Identifier: Apache-2.0
 *
 * Compares math answers by the rules of several graders, and extracts an
 * answer from where a configuration says.
 */
#include "plugins/reward-rule/math_find.h"

#include <string.h>

/* Returns the bytes of \text{ or a similar wrapper at the front, or 0. */
static size_t measure_wrapper(rule_text text)
{
    static const char *const wrappers[] = { "\\text{",   "\\textbf{",
                                            "\\textit{", "\\mathrm{",
                                            "\\mathbf{", "\\mbox{",
                                            NULL };
    for (size_t i = 0; wrappers[i]; i++)
        if (rule_begins(text, wrappers[i]))
            return strlen(wrappers[i]);
    return 0;
}

static int has_only_letters(const rule_buffer *s)
{
    for (size_t i = 0; i < s->size; i++)
        if (!rule_ascii_letter(s->data[i]))
            return 0;
    return 1;
}

static void fold_words(rule_buffer *s)
{
    if (s->size == 3 && *s->data == '(' && s->data[2] == ')') {
        s->data[0] = s->data[1];
        s->size = 1;
    }
    if (s->size > 2 && has_only_letters(s))
        for (size_t i = 0; i < s->size; i++)
            s->data[i] = (char)(s->data[i] | 0x20);
}

/* Writes the part of the text that is compared: without spaces, without
 * wrappers of words, without brackets around a single letter, and with words
 * in lower case. */
static void make_canonical(rule_text text, rule_buffer *out)
{
    int depth = 0;
    int wrapper = -1; /* depth outside of the open wrapper, or -1 */
    out->size = 0;
    out->full = 0;
    while (text.size) {
        size_t size = wrapper < 0 ? measure_wrapper(text) : 0;
        char c = *text.data;
        if (size) {
            wrapper = depth++;
            text = rule_text_from(text, size);
            continue;
        }
        depth += (c == '{') - (c == '}');
        if (c == '}' && depth == wrapper)
            wrapper = -1;
        else if (c != ' ')
            rule_buffer_add(out, &c, 1);
        text = rule_text_from(text, 1);
    }
    fold_words(out);
}

static int is_same_text(rule_text a, rule_text b, rule_buffer *x,
                        rule_buffer *y)
{
    if (a.size && rule_equal(a, b, 0))
        return 1;
    make_canonical(a, x);
    make_canonical(b, y);
    return x->size && !x->full && !y->full &&
           rule_equal(rule_buffer_text(x), rule_buffer_text(y), 0);
}

int rule_math_equal(rule_math *m, rule_text a, rule_text b,
                    const rule_equality *how)
{
    rule_clean(a, &m->clean_a);
    rule_clean(b, &m->clean_b);
    if (m->clean_a.full || m->clean_b.full)
        return rule_equal(rule_trim(a), rule_trim(b), 0);
    rule_text x = rule_buffer_text(&m->clean_a);
    rule_text y = rule_buffer_text(&m->clean_b);
    if (!how->single && is_same_text(x, y, &m->scratch, &m->spare))
        return 1;
    rule_tree_clear(&m->tree);
    uint16_t left = rule_parse(&m->tree, x);
    uint16_t right = rule_parse(&m->tree, y);
    return rule_equal_trees(&m->tree, left, right, how);
}

int rule_equal_minerva(rule_math *m, rule_text given, rule_text truth,
                       const rule_equality *how)
{
    rule_buffer_set(&m->a, given);
    rule_buffer_set(&m->b, truth);
    rule_strip_minerva(&m->a, &m->scratch);
    rule_strip_minerva(&m->b, &m->scratch);
    if (m->a.full || m->b.full)
        return rule_equal(given, truth, 0);
    rule_text a = rule_buffer_text(&m->a);
    rule_text b = rule_buffer_text(&m->b);
    return rule_equal(a, b, 0) || rule_math_equal(m, a, b, how);
}

int rule_equal_dapo(rule_math *m, rule_text given, rule_text truth)
{
    rule_buffer_set(&m->a, given);
    rule_buffer_set(&m->b, truth);
    rule_strip_dapo(&m->a, &m->scratch);
    rule_strip_dapo(&m->b, &m->scratch);
    if (m->a.full || m->b.full)
        return rule_equal(given, truth, 0);
    return rule_equal(rule_buffer_text(&m->a), rule_buffer_text(&m->b), 0);
}

/* Cuts 12.0 and 12.7 to 12; leaves 1e3, and text that is not a number. */
static void cut_decimals(rule_buffer *s)
{
    size_t at = s->size && (*s->data == '-' || *s->data == '+') ? 1 : 0;
    size_t first = at;
    while (at < s->size && rule_ascii_digit(s->data[at]))
        at++;
    size_t end = at;
    if (at == first || at == s->size || s->data[at] != '.')
        return;
    for (at++; at < s->size; at++)
        if (!rule_ascii_digit(s->data[at]))
            return;
    s->size = end;
}

int rule_equal_slime(rule_math *m, rule_text given, rule_text truth)
{
    static const char *const ends[] = { "<|im_end|>", "<|endoftext|>", NULL };
    rule_buffer *both[] = { &m->a, &m->b };
    rule_buffer_set(&m->a, given);
    rule_buffer_set(&m->b, truth);
    for (int i = 0; i < 2; i++) {
        for (size_t k = 0; ends[k]; k++)
            rule_buffer_replace(both[i], ends[k], "", &m->scratch);
        rule_strip_dapo(both[i], &m->scratch);
    }
    cut_decimals(&m->b);
    if (m->a.full || m->b.full)
        return rule_equal(given, truth, 0);
    return rule_equal(rule_buffer_text(&m->a), rule_buffer_text(&m->b), 0);
}

static int keep_answer(rule_math *m, rule_text found)
{
    if (!found.data)
        return 0;
    rule_buffer_set(&m->a, found);
    return 1;
}

int rule_math_extract(rule_math *m, rule_text response, int from)
{
    const unsigned both = RULE_KIND_LATEX | RULE_KIND_NUMBER;
    switch (from) {
    case RULE_FROM_BOXED:
        return keep_answer(m, rule_extract_boxed(response));
    case RULE_FROM_MINERVA:
        return keep_answer(m, rule_extract_minerva(response));
    case RULE_FROM_ANSWER:
        return keep_answer(m, rule_extract_answer(response));
    case RULE_FROM_MARKED:
        return keep_answer(m, rule_extract_marked(response));
    case RULE_FROM_LAST:
        return rule_find_answer(m, response, both | RULE_KIND_LAST);
    case RULE_FROM_LATEX:
        return rule_find_answer(m, response, RULE_KIND_LATEX);
    case RULE_FROM_NUMBER:
        return rule_find_answer(m, response, RULE_KIND_NUMBER);
    default:
        return rule_find_answer(m, response, both);
    }
}
