/* SPDX-License-Identifier: Apache-2.0
 *
 * IFEval's instructions by table, each as its checker defines it; strict and
 * loose scoring, shares, and unusable rows.
 */
#include "tests/reward/rig.h"

typedef struct instruction_case {
    const char *id;
    const char *args; /* JSON */
    const char *response;
    int followed;
} instruction_case;

static void write_row(xr_str *row, const char *id, const char *args)
{
    xr_str_clear(row);
    xr_str_printf(row, "{\"instruction_id_list\":[\"%s\"],\"kwargs\":[%s]}", id,
                  args);
    assert_false(row->failed);
}

static double grade_accuracy(rig *r, const char *response, const char *row)
{
    xray_sample_in s = rig_sample(1, response, strlen(response), "");
    s.fields_json = row;
    xray_score got = rig_score(r, &s);
    return rig_value(&got, "acc");
}

static void run_cases(const instruction_case *cases)
{
    rig r;
    xr_str row = { 0 };
    rig_open(&r, RIG_KEYS("grader", "ifeval"));
    for (; cases->id; cases++) {
        write_row(&row, cases->id, cases->args);
        double got = grade_accuracy(&r, cases->response, xr_str_text(&row));
        if ((got > 0) != cases->followed)
            fail_msg("%s %s: '%s': got %g, want %d", cases->id, cases->args,
                     cases->response, got, cases->followed);
    }
    assert_int_equal(r.host.warnings, 0);
    xr_str_free(&row);
    rig_close(&r);
}

#define RUN(...) \
    run_cases(   \
        (const instruction_case[]){ __VA_ARGS__, { NULL, NULL, NULL, 0 } })

static void keywords_are_found_in_any_case(void **state)
{
    (void)state;
#define EXISTENCE "keywords:existence"
#define TWO "{\"keywords\":[\"Cat\",\"\xC3\x89t\xC3\xA9\"]}"
    RUN({ EXISTENCE, TWO, "a CATalogue of \xC3\xA9t\xC3\x89", 1 },
        { EXISTENCE, TWO, "cat", 0 }, { EXISTENCE, TWO, " \n", 0 },
        { EXISTENCE, "{\"keywords\":[\"c++\"]}", "C++ it is", 1 });
#define FREQUENCY "keywords:frequency"
#define AT(n, relation)                                                        \
    "{\"keyword\":\" Ha \",\"frequency\":" #n ",\"relation\":\"" relation "\"" \
    "}"
    RUN({ FREQUENCY, AT(2, "at least"), "ha HAha", 1 },
        { FREQUENCY, AT(3, "at least"), "ha ha", 0 },
        { FREQUENCY, AT(2, "less than"), "ha", 1 },
        { FREQUENCY, AT(2, "less than"), "haha", 0 },
        { FREQUENCY, AT(0, "at least"), "x", 1 });
#define FORBIDDEN "keywords:forbidden_words"
#define NO "{\"forbidden_words\":[\"cat\",\"dog\"]}"
    RUN({ FORBIDDEN, NO, "a Cat.", 0 },
        { FORBIDDEN, NO, "concatenate dogs", 1 },
        { FORBIDDEN, NO, "cat\xC3\xA9 _cat cat1", 1 },
        { FORBIDDEN, NO, "cats cat", 0 }, { FORBIDDEN, NO, "dog", 0 });
#define LETTER "keywords:letter_frequency"
#define OF(n, relation)                                                       \
    "{\"letter\":\"E\",\"let_frequency\":" #n ",\"let_relation\":\"" relation \
    "\"}"
    RUN({ LETTER, OF(3, "at least"), "Eel tree", 1 },
        { LETTER, OF(5, "at least"), "Eel tree", 0 },
        { LETTER, OF(1, "less than"), "\xC3\xA9 xyz", 1 },
        { LETTER, OF(1, "less than"), "e", 0 });
}

static void lengths_are_compared_with_their_limits(void **state)
{
    (void)state;
#define WORDS "length_constraints:number_words"
#define N(n, relation) "{\"num_words\":" #n ",\"relation\":\"" relation "\"}"
    RUN({ WORDS, N(4, "at least"), "don't well-known", 1 },
        { WORDS, N(5, "at least"), "don't well-known", 0 },
        { WORDS, N(3, "less than"), "one _two_ !", 1 },
        { WORDS, N(2, "less than"), "\xD0\xB4\xD0\xB0 42", 0 });
#define SENTENCES "length_constraints:number_sentences"
#define S(n, relation) \
    "{\"num_sentences\":" #n ",\"relation\":\"" relation "\"}"
    RUN({ SENTENCES, S(3, "at least"), "One. Two! Three?", 1 },
        { SENTENCES, S(4, "at least"), "One. Two! Three?", 0 },
        { SENTENCES, S(2, "less than"), "Mr. Smith has 3.5 apples", 1 },
        { SENTENCES, S(2, "less than"), "See J. Doe, e.g. here", 1 },
        { SENTENCES, S(3, "at least"), "A. One thing\n  B. Another", 1 },
        { SENTENCES, S(2, "at least"), "\"Come!\", \"Go.\"", 1 },
        { SENTENCES, S(2, "less than"), "Well... so what", 1 },
        { SENTENCES, S(2, "at least"), "Well... So what", 1 },
        { SENTENCES, S(2, "at least"), "\"Stop.\" He did", 1 },
        { SENTENCES, S(2, "at least"), "\xE5\xA5\xBD\xE3\x80\x82\xE5\xA5\xBD",
          1 });
#define PARAGRAPHS "length_constraints:number_paragraphs"
    RUN({ PARAGRAPHS, "{\"num_paragraphs\":2}", "a\n***\nb", 1 },
        { PARAGRAPHS, "{\"num_paragraphs\":2}", "***\na\n***\nb\n***\n", 1 },
        { PARAGRAPHS, "{\"num_paragraphs\":2}", "a\n***\n \n***\nb", 0 },
        { PARAGRAPHS, "{\"num_paragraphs\":1}", "a\n\nb", 1 },
        { PARAGRAPHS, "{\"num_paragraphs\":1}", "a***b", 0 });
#define FIRST "length_constraints:nth_paragraph_first_word"
#define P(n, k, w)                                                            \
    "{\"num_paragraphs\":" #n ",\"nth_paragraph\":" #k ",\"first_word\":\"" w \
    "\"}"
    RUN({ FIRST, P(2, 2, "Then"), "Now.\n\nThen, more", 1 },
        { FIRST, P(2, 2, "then"), "Now.\n\n'\"THEN!x", 1 },
        { FIRST, P(2, 2, "then"), "Now.\n\nThenceforth", 0 },
        { FIRST, P(2, 1, "then"), "Now.\n\nThen", 0 },
        { FIRST, P(2, 2, "then"), "Now.\n\nThen\n\nMore", 0 },
        { FIRST, P(2, 2, "then"), "Now.\n\n\n\nThen", 0 },
        { FIRST, P(1, 1, "then"), "Then\n\n", 1 });
}

static void marks_are_counted(void **state)
{
    (void)state;
#define HOLES "detectable_content:number_placeholders"
    RUN({ HOLES, "{\"num_placeholders\":2}", "[a] and [[b]]", 1 },
        { HOLES, "{\"num_placeholders\":3}", "[a] and [[b]]", 0 },
        { HOLES, "{\"num_placeholders\":1}", "[a\n]", 0 },
        { HOLES, "{\"num_placeholders\":1}", "[]", 1 });
#define POST "detectable_content:postscript"
    RUN({ POST, "{\"postscript_marker\":\"P.S.\"}", "x p. S. y", 1 },
        { POST, "{\"postscript_marker\":\"P.S.\"}", "PS. y", 0 },
        { POST, "{\"postscript_marker\":\"P.S.\"}", "P.S y", 0 },
        { POST, "{\"postscript_marker\":\"P.P.S\"}", "P. p. s", 1 },
        { POST, "{\"postscript_marker\":\"P.P.S\"}", "P.S.", 0 },
        { POST, "{\"postscript_marker\":\"Note:\"}", "NOTE: y", 1 });
#define BULLETS "detectable_format:number_bullet_lists"
    RUN({ BULLETS, "{\"num_bullets\":2}", "* a\n  * b", 1 },
        { BULLETS, "{\"num_bullets\":2}", "- a\n\n* b\nx - y", 1 },
        { BULLETS, "{\"num_bullets\":1}", "**bold**\n- a", 1 },
        { BULLETS, "{\"num_bullets\":1}", "* a\n* b", 0 },
        { BULLETS, "{\"num_bullets\":0}", "none *here*", 1 });
#define HIGHLIGHTS "detectable_format:number_highlighted_sections"
    RUN({ HIGHLIGHTS, "{\"num_highlights\":2}", "*a* and *b c*", 1 },
        { HIGHLIGHTS, "{\"num_highlights\":1}", "**a**", 1 },
        { HIGHLIGHTS, "{\"num_highlights\":1}", "** **", 0 },
        { HIGHLIGHTS, "{\"num_highlights\":1}", "* a\n* b", 0 },
        { HIGHLIGHTS, "{\"num_highlights\":3}", "*a* *b*", 0 });
#define SECTIONS "detectable_format:multiple_sections"
#define SPLIT(n) "{\"section_spliter\":\"Section\",\"num_sections\":" #n "}"
    RUN({ SECTIONS, SPLIT(2), "Section 1\na\nSection2 b", 1 },
        { SECTIONS, SPLIT(2), "Section 1\na\nSection  2", 0 },
        { SECTIONS, SPLIT(1), "SECTION 1", 0 },
        { SECTIONS, SPLIT(1), "Section", 0 });
#define TITLE "detectable_format:title"
    RUN({ TITLE, "{}", "<<a title>>\ntext", 1 }, { TITLE, "{}", "<<>>", 0 },
        { TITLE, "{}", "<< >>", 0 }, { TITLE, "{}", "<<a\n>>", 0 },
        { TITLE, "{}", "x <<<a>>", 1 });
#define ONE_OF "detectable_format:constrained_response"
    RUN({ ONE_OF, "{}", "So: My answer is no.", 1 },
        { ONE_OF, "{}", "my answer is no.", 0 });
}

static void instructions_about_the_entire_response(void **state)
{
    (void)state;
#define JSON "detectable_format:json_format"
    RUN({ JSON, "{}", "```json\n{\"a\": [1, null]}\n```", 1 },
        { JSON, "{}", " [\"x\"] ", 1 }, { JSON, "{}", "42", 1 },
        { JSON, "{}", "{\"a\": 1} x", 0 }, { JSON, "{}", "{'a': 1}", 0 },
        { JSON, "{}", "```", 0 });
#define TWICE "combination:two_responses"
    RUN({ TWICE, "{}", "a ****** b", 1 }, { TWICE, "{}", "a ****** a", 0 },
        { TWICE, "{}", "******a******b******", 1 },
        { TWICE, "{}", "a ****** ****** b", 0 }, { TWICE, "{}", "a", 0 },
        { TWICE, "{}", "a******b******c", 0 });
#define REPEAT "combination:repeat_prompt"
#define SAY "{\"prompt_to_repeat\":\"Say it. \"}"
    RUN({ REPEAT, SAY, " say IT. It", 1 }, { REPEAT, SAY, "Well, say it.", 0 });
#define END "startend:end_checker"
#define BYE "{\"end_phrase\":\" Good bye. \"}"
    RUN({ END, BYE, "x GOOD bye.\" \n", 1 }, { END, BYE, "Good bye. x", 0 });
#define QUOTED "startend:quotation"
    RUN({ QUOTED, "{}", " \"a\"\n", 1 }, { QUOTED, "{}", "\"", 0 },
        { QUOTED, "{}", "\"a\" b", 0 });
#define COMMA "punctuation:no_comma"
    RUN({ COMMA, "{}", "a; b", 1 }, { COMMA, "{}", "a, b", 0 });
}

static void case_and_language_are_recognized(void **state)
{
    (void)state;
#define CAPITALS "change_case:capital_word_frequency"
#define C(n, relation) \
    "{\"capital_frequency\":" #n ",\"capital_relation\":\"" relation "\"}"
    RUN({ CAPITALS, C(3, "at least"), "I said STOP! WELL-KNOWN Man", 1 },
        { CAPITALS, C(4, "at least"), "I said STOP! WELL-KNOWN Man", 0 },
        { CAPITALS, C(3, "at least"), "I'm here--NOW...OK", 1 },
        { CAPITALS, C(2, "less than"), "U.S.A. and/or A1b", 1 },
        { CAPITALS, C(1, "less than"), "no 42 Word", 1 });
#define UPPER "change_case:english_capital"
#define LOWER "change_case:english_lowercase"
    RUN({ UPPER, "{}", "ALL OF IT 42!", 1 }, { UPPER, "{}", "ALL oF", 0 },
        { UPPER, "{}", "42", 0 }, { UPPER, "{}", "\xD0\x94\xD0\x90", 0 },
        { LOWER, "{}", "all of it 42!", 1 }, { LOWER, "{}", "all Of", 0 });
#define LANGUAGE "language:response_language"
    RUN({ LANGUAGE, "{\"language\":\"ru\"}", "\xD0\xB4\xD0\xB0 a", 1 },
        { LANGUAGE, "{\"language\":\"ru\"}", "\xD0\xB4\xD0\xB0 yes", 0 },
        { LANGUAGE, "{\"language\":\"en\"}", "yes", 1 },
        { LANGUAGE, "{\"language\":\"en\"}", "42", 1 });
}

static const char three[] =
    "{\"instruction_id_list\":[\"punctuation:no_comma\",\"startend:quotation\","
    "\"change_case:english_lowercase\"],\"kwargs\":[{},{},{\"x\":null}]}";

static void the_score_is_a_share_or_all(void **state)
{
    (void)state;
    rig r;
    xray_sample_in s = rig_sample(1, "one two", 7, "");
    s.fields_json = three;
    rig_open(&r, RIG_KEYS("grader", "ifeval"));
    xray_score got = rig_score(&r, &s);
    rig_near(got.score, 2.0 / 3, "share");
    rig_near(rig_value(&got, "followed"), 2.0 / 3, "share");
    rig_near(rig_value(&got, "acc"), 0, "share");
    rig_close(&r);
    rig_open(&r, RIG_KEYS("grader", "ifeval", "scoring", "all", "format_score",
                          "-1"));
    rig_near(rig_score(&r, &s).score, -1, "all must hold");
    s.response = "\"one\"";
    s.response_size = 5;
    got = rig_score(&r, &s);
    rig_near(got.score, 1, "all hold");
    rig_near(rig_value(&got, "acc"), 1, "all hold");
    rig_close(&r);
}

/* Loose scoring accepts any of eight readings: the response, the response
 * without its first line, its last line or both, and each of these without
 * asterisks. */
static void loose_scoring_accepts_any_of_eight_readings(void **state)
{
    (void)state;
    static const struct {
        const char *response;
        int strict;
        int loose;
    } cases[] = {
        { "\"a\"", 1, 1 },       { "Sure:\n\"a\"", 0, 1 },
        { "\"a\"\nBye", 0, 1 },  { "Sure:\n\"a\"\nBye", 0, 1 },
        { "*\"a\"*", 0, 1 },     { "Sure:\n**\"a\"**\nBye", 0, 1 },
        { "x\ny\n\"a\"", 0, 0 }, { "a", 0, 0 },
        { "\n", 0, 0 },          { "", 0, 0 },
        { "x \"a\"", 0, 0 },     { "***", 0, 0 },
    };
    xr_str row = { 0 };
    write_row(&row, "startend:quotation", "{}");
    for (int l = 0; l < 2; l++) {
        rig r;
        rig_open(&r,
                 RIG_KEYS("grader", "ifeval", "loose", l ? "true" : "false"));
        for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
            double got =
                grade_accuracy(&r, cases[i].response, xr_str_text(&row));
            rig_near(got, l ? cases[i].loose : cases[i].strict,
                     cases[i].response);
        }
        rig_close(&r);
    }
    xr_str_free(&row);
}

static void unusable_rows_are_warned_of_once(void **state)
{
    (void)state;
    static const char *const rows[] = {
        "{}",
        "",
        "{\"instruction_id_list\":[]}",
        "{\"instruction_id_list\":\"punctuation:no_comma\"}",
        "{\"instruction_id_list\":[\"punctuation:no_such\"],\"kwargs\":[{}]}",
        "{\"instruction_id_list\":[7],\"kwargs\":[{}]}",
        "{\"instruction_id_list\":[\"punctuation:no_comma\","
        "\"punctuation:no_such\"],\"kwargs\":[{},{}]}",
        "{\"instruction_id_list\":[\"punctuation:no_such\","
        "\"punctuation:no_comma\"],\"kwargs\":[{},{}]}",
        "{\"instruction_id_list\":[\"keywords:existence\"]}",
        "{\"instruction_id_list\":[\"keywords:existence\"],\"kwargs\":[{}]}",
        "{\"instruction_id_list\":[\"keywords:existence\"],\"kwargs\":[3]}",
        "{\"instruction_id_list\":[\"keywords:existence\"],\"kwargs\":"
        "[{\"keywords\":[1]}]}",
        "{\"instruction_id_list\":[\"length_constraints:number_words\"],"
        "\"kwargs\":[{\"num_words\":1,\"relation\":\"about\"}]}",
        "{\"instruction_id_list\":[\"length_constraints:number_words\"],"
        "\"kwargs\":[{\"num_words\":-1,\"relation\":\"at least\"}]}",
        "{\"instruction_id_list\":[\"keywords:letter_frequency\"],\"kwargs\":"
        "[{\"letter\":\"ab\",\"let_frequency\":0,\"let_relation\":"
        "\"at least\"}]}",
        "{\"instruction_id_list\":[\"language:response_language\"],\"kwargs\":"
        "[{\"language\":\"xx\"}]}",
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        rig r;
        rig_open(&r, RIG_KEYS("grader", "ifeval"));
        for (int again = 0; again < 2; again++)
            rig_near(grade_accuracy(&r, "some text", rows[i]), 0, rows[i]);
        if (r.host.warnings != 1)
            fail_msg("%s: %d warnings", rows[i], r.host.warnings);
        rig_close(&r);
    }
    /* kwargs may be text that holds JSON, and a null argument is ignored. */
    rig r;
    rig_open(&r, RIG_KEYS("grader", "ifeval"));
    rig_near(grade_accuracy(&r, "one two",
                            "{\"instruction_id_list\":"
                            "[\"length_constraints:number_words\"],\"kwargs\":"
                            "\"[{\\\"num_words\\\": 2, \\\"relation\\\": "
                            "\\\"at least\\\", \\\"letter\\\": null}]\"}"),
             1, "text");
    assert_int_equal(r.host.warnings, 0);
    rig_close(&r);
}

/* A row with more instructions than are read causes a warning and is never
 * right. */
static void a_row_with_too_many_instructions_is_never_right(void **state)
{
    (void)state;
    xr_str row = { 0 };
    xr_str_puts(&row, "{\"instruction_id_list\":[");
    for (int i = 0; i < 200; i++)
        xr_str_printf(&row, "%s\"punctuation:no_comma\"", i ? "," : "");
    xr_str_puts(&row, "]}");
    rig r;
    rig_open(&r, RIG_KEYS("grader", "ifeval"));
    rig_near(grade_accuracy(&r, "text", xr_str_text(&row)), 0, "too many");
    assert_int_equal(r.host.warnings, 1);
    rig_close(&r);
    xr_str_free(&row);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keywords_are_found_in_any_case),
        cmocka_unit_test(lengths_are_compared_with_their_limits),
        cmocka_unit_test(marks_are_counted),
        cmocka_unit_test(instructions_about_the_entire_response),
        cmocka_unit_test(case_and_language_are_recognized),
        cmocka_unit_test(the_score_is_a_share_or_all),
        cmocka_unit_test(loose_scoring_accepts_any_of_eight_readings),
        cmocka_unit_test(unusable_rows_are_warned_of_once),
        cmocka_unit_test(a_row_with_too_many_instructions_is_never_right),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
