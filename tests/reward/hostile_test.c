/* SPDX-License-Identifier: Apache-2.0
 *
 * Any bytes of any size through the graders: no crash, no read beyond the end,
 * a finite score, the same score again, and work that does not grow with the
 * square of the text.
 */
#include <math.h>

#include "tests/reward/rig.h"

static const char *const *const all_keys[] = {
    RIG_KEYS("grader", "choice", "option_count", "26"),
    RIG_KEYS("grader", "choice", "method", "flexible"),
    RIG_KEYS("grader", "gpqa"),
    RIG_KEYS("grader", "qa", "match", "f1"),
    RIG_KEYS("grader", "qa", "match", "subem", "after", "#"),
    RIG_KEYS("grader", "search_r1"),
    RIG_KEYS("grader", "format"),
    RIG_KEYS("grader", "format", "format", "think_answer_soft"),
    RIG_KEYS("grader", "format", "format", "think"),
    RIG_KEYS("grader", "format", "format", "answer"),
    RIG_KEYS("grader", "format", "format", "boxed"),
    RIG_KEYS("grader", "tag_count"),
    RIG_KEYS("grader", "reasoning_steps"),
    RIG_KEYS("grader", "overlong", "max_response_length", "9"),
    RIG_KEYS("grader", "length", "shape", "linear", "unit", "words",
             "max_response_length", "9"),
    RIG_KEYS("grader", "length", "shape", "l1_max", "unit", "characters",
             "target_length", "9", "base", "search_r1"),
    RIG_KEYS("grader", "cosine", "base", "qa", "max_response_length", "9"),
    RIG_KEYS("grader", "length_group", "base", "ifeval", "loose", "true"),
    RIG_KEYS("grader", "repetition"),
    RIG_KEYS("grader", "repetition", "unit", "words", "ngram_size", "64"),
    RIG_KEYS("grader", "language", "language", "ja"),
    RIG_KEYS("grader", "ifeval"),
    RIG_KEYS("grader", "ifeval", "loose", "true", "scoring", "all"),
};
#define KEYS (sizeof(all_keys) / sizeof(all_keys[0]))

/* A row with every instruction. */
static const char row[] =
    "{\"instruction_id_list\":[\"keywords:existence\",\"keywords:frequency\","
    "\"keywords:forbidden_words\",\"keywords:letter_frequency\","
    "\"language:response_language\",\"length_constraints:number_sentences\","
    "\"length_constraints:number_paragraphs\","
    "\"length_constraints:number_words\","
    "\"length_constraints:nth_paragraph_first_word\","
    "\"detectable_content:number_placeholders\","
    "\"detectable_content:postscript\",\"detectable_content:postscript\","
    "\"detectable_format:number_bullet_lists\","
    "\"detectable_format:constrained_response\","
    "\"detectable_format:number_highlighted_sections\","
    "\"detectable_format:multiple_sections\","
    "\"detectable_format:json_format\",\"detectable_format:title\","
    "\"combination:two_responses\",\"combination:repeat_prompt\","
    "\"startend:end_checker\",\"startend:quotation\","
    "\"change_case:capital_word_frequency\",\"change_case:english_capital\","
    "\"change_case:english_lowercase\",\"punctuation:no_comma\"],\"kwargs\":["
    "{\"keywords\":[\"ab\",\"\xC3\xA9\"]},"
    "{\"keyword\":\"aa\",\"frequency\":2,\"relation\":\"less than\"},"
    "{\"forbidden_words\":[\"aa\",\"*\"]},"
    "{\"letter\":\"a\",\"let_frequency\":2,\"let_relation\":\"at least\"},"
    "{\"language\":\"th\"},"
    "{\"num_sentences\":2,\"relation\":\"at least\"},"
    "{\"num_paragraphs\":2},"
    "{\"num_words\":2,\"relation\":\"at least\"},"
    "{\"num_paragraphs\":2,\"nth_paragraph\":2,\"first_word\":\"a\"},"
    "{\"num_placeholders\":2},{\"postscript_marker\":\"P.S.\"},"
    "{\"postscript_marker\":\"P.P.S\"},{\"num_bullets\":2},{},"
    "{\"num_highlights\":2},"
    "{\"section_spliter\":\"Section\",\"num_sections\":2},{},{},{},"
    "{\"prompt_to_repeat\":\"say\"},{\"end_phrase\":\"end\"},{},"
    "{\"capital_frequency\":2,\"capital_relation\":\"less than\"},{},{},{}]}";

static const char *const seeds[] = {
    "Answer: B",
    "the answer is \\boxed{\\text{C}}",
    "(A) I'd say (B) or \"C\"",
    "<think>\nx\n</think>\n<answer>\ncat\n</answer>",
    "<answer>the cat</answer>#<answer>dog</answer>",
    "First, a. Step 12: b\n- c\n* d\n1. e Finally, f",
    "<<title>>\n\nSection 1 [x] *y* **z** ***\nP. P. S. s. \"end\"",
    "******a******b",
    "```json\n{\"a\": [1, {\"b\": \"\\u00e9\\n\"}], \"c\": -1.5e+3}\n```",
    "Mr. J. Doe... Really?! (Yes.) 3.5 e.g. that etc. \xE3\x80\x82\xEF\xBC\x81",
    "\xE6\x97\xA5\xE6\x9C\xAC \xD0\xB4\xD0\xB0 e\xCC\x81 \xE2\x80\x99 say",
    "[\"cat\", \"dog\"]",
};
#define SEEDS (sizeof(seeds) / sizeof(seeds[0]))

static uint32_t draw_number(uint32_t *state, uint32_t below)
{
    *state = *state * 1664525u + 1013904223u;
    return (uint32_t)(((uint64_t)(*state >> 8) * below) >> 24);
}

/* Joins parts of several seeds and changes a few bytes. */
static size_t mutate_seeds(uint32_t *state, char *out, size_t cap)
{
    size_t size = 0;
    for (uint32_t part = 0; part < 2 + draw_number(state, 3); part++) {
        const char *seed = seeds[draw_number(state, SEEDS)];
        uint32_t length = (uint32_t)strlen(seed);
        uint32_t first = draw_number(state, 3) ? 0 : draw_number(state, length);
        uint32_t count = draw_number(state, 3)
                             ? length - first
                             : draw_number(state, length - first + 1);
        if (size + count > cap)
            break;
        memcpy(out + size, seed + first, count);
        size += count;
    }
    for (uint32_t i = 0; size && i < draw_number(state, 5); i++) {
        size_t at = draw_number(state, (uint32_t)size);
        if (draw_number(state, 2))
            out[at] = (char)draw_number(state, 256);
        else
            out[at] = out[draw_number(state, (uint32_t)size)];
    }
    return size;
}

static double grade_text(rig *r, const char *text, size_t size,
                         const char *truth, const char *fields)
{
    static const int32_t ids[] = { 3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5 };
    xray_sample_in s = rig_sample(7, text, size, truth);
    s.ids = ids;
    s.id_count = (uint32_t)(size % 12);
    s.fields_json = fields;
    xray_score got = rig_score(r, &s);
    assert_true(isfinite(got.score));
    for (uint32_t i = 0; i < got.value_count; i++)
        assert_true(got.values[i].value >= 0 && got.values[i].value <= 1);
    return got.score;
}

static void mutated_texts_have_one_finite_score(void **state)
{
    (void)state;
    uint32_t seed = 20;
    rig rigs[KEYS];
    for (size_t k = 0; k < KEYS; k++)
        rig_open(&rigs[k], all_keys[k]);
    for (int i = 0; i < 3000; i++) {
        char buffer[512];
        char truth[512];
        size_t size = mutate_seeds(&seed, buffer, sizeof(buffer));
        truth[mutate_seeds(&seed, truth, sizeof(truth) - 1)] = '\0';
        /* The allocation has the exact size, so that sanitizers notice a read
         * beyond it. */
        char *text = malloc(size ? size : 1);
        assert_non_null(text);
        memcpy(text, buffer, size);
        for (size_t k = 0; k < KEYS; k++) {
            double once = grade_text(&rigs[k], text, size, truth, row);
            double twice = grade_text(&rigs[k], text, size, truth, row);
            assert_true(once <= twice && once >= twice);
        }
        free(text);
    }
    for (size_t k = 0; k < KEYS; k++)
        rig_close(&rigs[k]);
}

static void mutated_rows_are_graded(void **state)
{
    (void)state;
    uint32_t seed = 7;
    rig r;
    rig_open(&r, RIG_KEYS("grader", "ifeval", "loose", "true"));
    for (int i = 0; i < 2000; i++) {
        char *fields = malloc(sizeof(row));
        assert_non_null(fields);
        memcpy(fields, row, sizeof(row));
        for (uint32_t n = 0; n < 1 + draw_number(&seed, 4); n++)
            fields[draw_number(&seed, sizeof(row) - 1)] =
                (char)("\",:[]{}0-a\xC3"[draw_number(&seed, 11)]);
        (void)grade_text(&r, "a b\n* c", 7, "", fields);
        free(fields);
    }
    rig_close(&r);
}

/* Long texts repeat one piece; a grader with quadratic work would not end in
 * time. */
static void long_texts_are_graded_in_linear_time(void **state)
{
    (void)state;
    static const char *const pieces[] = {
        "a",
        " ",
        "\n",
        "a ",
        "*",
        "**a",
        "- ",
        "[",
        "<<",
        ">>",
        "\"",
        "{",
        "}",
        "\\boxed{",
        "answer: ",
        "Answer",
        "<answer>",
        "</answer>",
        "</think>",
        "<think>",
        "\n</answer>",
        "(A",
        ". ",
        "p.",
        "******",
        "***",
        "\n\n",
        "Section ",
        "\xE3\x81\x82",
        "\xE2\x80",
        "\xFF",
        "e\xCC\x81",
        "the ",
        "1",
        "a.",
    };
    const size_t size = 200000;
    char *text = malloc(size + 16);
    assert_non_null(text);
    rig rigs[KEYS];
    for (size_t k = 0; k < KEYS; k++)
        rig_open(&rigs[k], all_keys[k]);
    for (size_t p = 0; p < sizeof(pieces) / sizeof(pieces[0]); p++) {
        size_t piece = strlen(pieces[p]);
        size_t filled = 0;
        for (; filled < size; filled += piece)
            memcpy(text + filled, pieces[p], piece);
        for (size_t k = 0; k < KEYS; k++)
            (void)grade_text(&rigs[k], text, filled, "[\"cat\"]", row);
    }
    for (size_t k = 0; k < KEYS; k++)
        rig_close(&rigs[k]);
    free(text);
}

static void a_sample_without_texts_is_graded(void **state)
{
    (void)state;
    for (size_t k = 0; k < KEYS; k++) {
        rig r;
        rig_open(&r, all_keys[k]);
        xray_sample_in s = rig_sample(1, NULL, 0, NULL);
        s.fields_json = NULL;
        s.prompt = NULL;
        xray_score got = rig_score(&r, &s);
        assert_true(isfinite(got.score));
        rig_close(&r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mutated_texts_have_one_finite_score),
        cmocka_unit_test(mutated_rows_are_graded),
        cmocka_unit_test(long_texts_are_graded_in_linear_time),
        cmocka_unit_test(a_sample_without_texts_is_graded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
