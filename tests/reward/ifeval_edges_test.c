/* SPDX-License-Identifier: Apache-2.0
 *
 * IFEval's instructions at their bounds, with every word of their lists and
 * every invalid argument.
 */
#include "plugins/reward-rule/ifeval.h"
#include "tests/reward/rig.h"

typedef struct row {
    const char *id;
    const char *args;
    const char *response;
    int verdict; /* 1: followed, 0: not followed, -1: an invalid argument */
} row;

static int is_followed(rig *r, const char *id, const char *args,
                       const char *response)
{
    xr_str json = { 0 };
    xr_str_printf(&json, "{\"instruction_id_list\":[\"%s\"],\"kwargs\":[%s]}",
                  id, args);
    xray_sample_in s = rig_sample(1, response, strlen(response), "");
    s.fields_json = xr_str_text(&json);
    xray_score got = rig_score(r, &s);
    xr_str_free(&json);
    return rig_value(&got, "acc") > 0;
}

static void check_rows(const row *rows)
{
    for (; rows->id; rows++) {
        rig r;
        rig_open(&r, RIG_KEYS("grader", "ifeval"));
        int followed = is_followed(&r, rows->id, rows->args, rows->response);
        int got = r.host.warnings ? -1 : followed;
        if (got != rows->verdict)
            fail_msg("%s %s: '%s': %d, not %d", rows->id, rows->args,
                     rows->response, got, rows->verdict);
        rig_close(&r);
    }
}
#define RUN(...) \
    check_rows((const row[]){ __VA_ARGS__, { NULL, NULL, NULL, 0 } })

/* ---- arguments ---------------------------------------------------------- */

#define WORDS "length_constraints:number_words"
#define FREQUENCY "keywords:frequency"
#define LETTER "keywords:letter_frequency"

static void instructions_need_valid_arguments(void **state)
{
    (void)state;
    RUN({ WORDS, "{\"relation\":\"at least\"}", "x", -1 },
        { WORDS, "{\"num_words\":1}", "x", -1 },
        { WORDS, "{\"num_words\":1,\"relation\":3}", "x", -1 },
        { WORDS, "{\"num_words\":1,\"relation\":\"at most\"}", "x", -1 },
        { WORDS, "{\"num_words\":\"1\",\"relation\":\"at least\"}", "x", -1 },
        { WORDS, "{\"num_words\":1e15,\"relation\":\"less than\"}", "x", 1 },
        { WORDS, "{\"num_words\":2e15,\"relation\":\"less than\"}", "x", -1 },
        { WORDS, "{\"num_words\":0,\"relation\":\"less than\"}", "x", 0 },
        { FREQUENCY, "{\"frequency\":1,\"relation\":\"at least\"}", "x", -1 },
        { FREQUENCY, "{\"keyword\":\"x\",\"relation\":\"at least\"}", "x", -1 },
        { FREQUENCY,
          "{\"keyword\":\" \",\"frequency\":1,\"relation\":\"at least\"}", "x",
          -1 },
        { LETTER, "{\"let_frequency\":1,\"let_relation\":\"at least\"}", "x",
          -1 },
        { LETTER, "{\"letter\":\"x\",\"let_relation\":\"at least\"}", "x", -1 },
        { LETTER,
          "{\"letter\":\"\",\"let_frequency\":1,\"let_relation\":\"at "
          "least\"}",
          "x", -1 },
        { LETTER,
          "{\"letter\":\" \xC3\x89 \",\"let_frequency\":2,"
          "\"let_relation\":\"at least\"}",
          "\xC3\xA9t\xC3\xA9", 1 },
        { "keywords:existence", "{\"keywords\":[]}", "x", -1 },
        { "keywords:existence", "{\"keywords\":\"x\"}", "x", -1 },
        { "keywords:existence", "{\"keywords\":[\"\"]}", "x", 1 },
        { "keywords:forbidden_words", "{\"forbidden_words\":[]}", "x", -1 },
        { "keywords:forbidden_words", "{\"forbidden_words\":[2]}", "x", -1 },
        { "keywords:forbidden_words", "{\"forbidden_words\":[\"c++\"]}",
          "c++ is", 1 },
        { "keywords:forbidden_words", "{\"forbidden_words\":[\"c++\"]}",
          "c++x is", 0 },
        { "language:response_language", "{}", "x", -1 },
        { "length_constraints:number_sentences", "{\"relation\":\"at least\"}",
          "x", -1 },
        { "length_constraints:number_paragraphs", "{}", "x", -1 },
        { "detectable_content:number_placeholders", "{}", "x", -1 },
        { "detectable_content:postscript", "{}", "x", -1 },
        { "detectable_format:number_bullet_lists", "{}", "x", -1 },
        { "detectable_format:number_highlighted_sections", "{}", "x", -1 },
        { "detectable_format:multiple_sections", "{\"num_sections\":1}", "x",
          -1 },
        { "detectable_format:multiple_sections", "{\"section_spliter\":\"x\"}",
          "x", -1 },
        { "detectable_format:multiple_sections",
          "{\"num_sections\":1,\"section_spliter\":\" \"}", "x", -1 },
        { "combination:repeat_prompt", "{}", "x", -1 },
        { "combination:repeat_prompt", "{\"prompt_to_repeat\":\"\"}", "x", -1 },
        { "startend:end_checker", "{}", "x", -1 },
        { "change_case:capital_word_frequency",
          "{\"capital_relation\":\"at least\"}", "x", -1 });
}

#define FIRST "length_constraints:nth_paragraph_first_word"
static void blank_paragraphs_count_as_ifeval_does(void **state)
{
    (void)state;
#define P(n, k, w)                                                            \
    "{\"num_paragraphs\":" #n ",\"nth_paragraph\":" #k ",\"first_word\":\"" w \
    "\"}"
    RUN({ FIRST, P(1, 2, "a"), "a", -1 }, { FIRST, P(2, 0, "a"), "a", -1 },
        { FIRST, "{\"num_paragraphs\":1,\"nth_paragraph\":1}", "a", -1 },
        { FIRST, P(1, 1, "a"), "''\"\"A.", 1 },
        { FIRST, P(1, 1, "a"), "\"'A", 0 }, { FIRST, P(1, 1, "a"), "a?b", 1 },
        { FIRST, P(1, 1, "a"), "a,b", 1 }, { FIRST, P(1, 1, "a"), "a'b", 1 },
        { FIRST, P(1, 1, "a"), "a-b", 0 }, { FIRST, P(1, 1, "a"), "a;", 0 },
        { FIRST, P(2, 2, "b"), "a\n\nb\n\n ", 1 },
        { FIRST, P(2, 3, "b"), "a\n\n\n\nb", -1 },
        { FIRST, P(3, 2, "b"), "a\n\nb\n\nc", 1 },
        { FIRST, P(3, 2, "c"), "a\n\nb\n\nc", 0 });
#define MARKED "length_constraints:number_paragraphs"
    RUN({ MARKED, "{\"num_paragraphs\":3}", "a***b***c", 1 },
        { MARKED, "{\"num_paragraphs\":2}", "a***b***c", 0 },
        { MARKED, "{\"num_paragraphs\":1}", "***a***", 1 },
        { MARKED, "{\"num_paragraphs\":1}", "a*** \n***", 0 },
        { MARKED, "{\"num_paragraphs\":2}", "a\n***\nb\n***\n\n", 1 });
}

/* ---- marks -------------------------------------------------------------- */

static void marks_count_at_their_bounds(void **state)
{
    (void)state;
#define BULLETS "detectable_format:number_bullet_lists"
    RUN({ BULLETS, "{\"num_bullets\":1}", "-", 1 },
        { BULLETS, "{\"num_bullets\":1}", "*", 0 },
        { BULLETS, "{\"num_bullets\":1}", "*x", 1 },
        { BULLETS, "{\"num_bullets\":2}", "--\n- x", 1 },
        { BULLETS, "{\"num_bullets\":1}", "\n\n \t- x", 1 },
        { BULLETS, "{\"num_bullets\":1}", "*\n* x", 1 });
#define HIGHLIGHTS "detectable_format:number_highlighted_sections"
    RUN({ HIGHLIGHTS, "{\"num_highlights\":1}", "*x", 0 },
        { HIGHLIGHTS, "{\"num_highlights\":1}", "*x*", 1 },
        { HIGHLIGHTS, "{\"num_highlights\":1}", "**x**", 1 },
        { HIGHLIGHTS, "{\"num_highlights\":2}", "**x**", 0 },
        { HIGHLIGHTS, "{\"num_highlights\":2}", "*x*y*z*", 1 },
        /* The search goes on at the next asterisk of a failed one. */
        { HIGHLIGHTS, "{\"num_highlights\":2}", "***x**", 1 },
        { HIGHLIGHTS, "{\"num_highlights\":3}", "***x**", 0 },
        { HIGHLIGHTS, "{\"num_highlights\":1}", "*x\ny* z*", 1 },
        { HIGHLIGHTS, "{\"num_highlights\":2}", "*x\ny* z*", 0 },
        { HIGHLIGHTS, "{\"num_highlights\":0}", "x", 1 });
#define HOLES "detectable_content:number_placeholders"
    RUN({ HOLES, "{\"num_placeholders\":2}", "[a][b]", 1 },
        { HOLES, "{\"num_placeholders\":3}", "[a][b]", 0 },
        { HOLES, "{\"num_placeholders\":2}", "[a]]", 0 },
        { HOLES, "{\"num_placeholders\":1}", "]a[", 0 });
#define SECTIONS "detectable_format:multiple_sections"
#define SPLIT(n) "{\"section_spliter\":\" S \",\"num_sections\":" #n "}"
    RUN({ SECTIONS, SPLIT(2), "S1 S 2", 1 },
        { SECTIONS, SPLIT(3), "S1 S 2", 0 }, { SECTIONS, SPLIT(1), "Sx", 0 },
        { SECTIONS, SPLIT(1), "SS7", 1 }, { SECTIONS, SPLIT(0), "x", 1 },
        { SECTIONS, SPLIT(1), "S\xD9\xA3", 1 });
#define POST "detectable_content:postscript"
    RUN({ POST, "{\"postscript_marker\":\" P.S. \"}", "p.s.", 1 },
        { POST, "{\"postscript_marker\":\"P.S.\"}", "p.  s.", 0 },
        { POST, "{\"postscript_marker\":\"P.S.\"}", "a.b. x.s.", 0 },
        { POST, "{\"postscript_marker\":\"P.S.\"}", "p.s", 0 },
        { POST, "{\"postscript_marker\":\"P.P.S\"}", "a.b.c.", 0 },
        { POST, "{\"postscript_marker\":\"P.P.S\"}", "p.p.s", 1 },
        { POST, "{\"postscript_marker\":\"P.P.S\"}", "p.ps", 0 },
        { POST, "{\"postscript_marker\":\"\"}", "x", 1 },
        { POST, "{\"postscript_marker\":\"NB\"}", "nb x", 1 },
        { POST, "{\"postscript_marker\":\"NB\"}", "n b", 0 });
#define TITLE "detectable_format:title"
    RUN({ TITLE, "{}", "<<a>>", 1 }, { TITLE, "{}", "<<a>", 0 },
        { TITLE, "{}", "<a>>", 0 }, { TITLE, "{}", "x\ny <<a>> z >>", 1 },
        { TITLE, "{}", "<<<<>>>>", 0 }, { TITLE, "{}", "<<a\nb>>\n<<c>>", 1 },
        { TITLE, "{}", "<<a>>>", 1 }, { TITLE, "{}", "<<a>> z", 1 },
        { TITLE, "{}", "<< >> z", 0 }, { TITLE, "{}", "<<>> <<a>> z", 1 },
        { TITLE, "{}", "<<a> > z", 0 });
#define ONE_OF "detectable_format:constrained_response"
    RUN({ ONE_OF, "{}", "My answer is yes.", 1 },
        { ONE_OF, "{}", "My answer is maybe.", 1 },
        { ONE_OF, "{}", "My answer is yes", 0 });
#define JSON "detectable_format:json_format"
    RUN({ JSON, "{}", "```JSON\n{}\n```", 1 },
        { JSON, "{}", "```Json{}```", 1 }, { JSON, "{}", "```\n[1]\n```", 1 },
        { JSON, "{}", "```json {}", 1 }, { JSON, "{}", "{} ```", 1 },
        { JSON, "{}", "json {}", 0 });
#define TWICE "combination:two_responses"
    RUN({ TWICE, "{}", "a******b", 1 }, { TWICE, "{}", "******a******b", 1 },
        { TWICE, "{}", "a******b******", 1 }, { TWICE, "{}", "a******", 0 },
        { TWICE, "{}", "a *****b", 0 }, { TWICE, "{}", "a****** a ", 0 });
#define QUOTED "startend:quotation"
    RUN({ QUOTED, "{}", "\"\"", 1 }, { QUOTED, "{}", "x\"", 0 },
        { QUOTED, "{}", "\"x", 0 });
#define END "startend:end_checker"
    RUN({ END, "{\"end_phrase\":\"Bye\"}", "\"bye\"\"", 1 },
        { END, "{\"end_phrase\":\"Bye\"}", "good BYE ", 1 },
        { END, "{\"end_phrase\":\"\\\"Bye\"}", "\"bye\"", 0 },
        { END, "{\"end_phrase\":\"\"}", "x", 1 },
        { END, "{\"end_phrase\":\"\"}", "\"\"", 1 },
        { END, "{\"end_phrase\":\"Bye\"}", "\"\"\"bye\"\"", 1 },
        { END, "{\"end_phrase\":\"Bye\"}", "bye.", 0 });
#define REPEAT "combination:repeat_prompt"
    RUN({ REPEAT, "{\"prompt_to_repeat\":\" Say It \"}", "\n SAY it, no", 1 },
        { REPEAT, "{\"prompt_to_repeat\":\"Say it\"}", "say", 0 });
}

/* ---- words and letters -------------------------------------------------- */

static void words_and_cases_count_at_their_bounds(void **state)
{
    (void)state;
#define N(n, relation) "{\"num_words\":" #n ",\"relation\":\"" relation "\"}"
    RUN({ WORDS, N(3, "at least"), "a_b c1 \xC3\xA9", 1 },
        { WORDS, N(4, "at least"), "a_b c1 \xC3\xA9", 0 },
        { WORDS, N(2, "less than"), "\xC2\xBD", 1 },
        { WORDS, N(1, "at least"), "\xC2\xBD", 1 },
        { WORDS, N(1, "at least"), "...", 0 });
#define CAPITALS "change_case:capital_word_frequency"
#define C(n) "{\"capital_frequency\":" #n ",\"capital_relation\":\"at least\"}"
    static const char marks[] = "!#$%&'(),:;<>?@[]{} \t";
    for (const char *c = marks; *c; c++) {
        const char text[] = { 'A', *c, 'b', '\0' };
        RUN({ CAPITALS, C(1), text, 1 });
    }
    static const char joins[] = "-./*+=_|~^`";
    for (const char *c = joins; *c; c++) {
        const char text[] = { 'A', *c, 'b', '\0' };
        RUN({ CAPITALS, C(1), text, 0 });
    }
    RUN({ CAPITALS, C(2),
          "A\xE2\x80\x98"
          "B",
          1 },
        { CAPITALS, C(2),
          "A\xE2\x80\x9E"
          "B",
          1 },
        { CAPITALS, C(2),
          "A\xC2\xAB"
          "B",
          1 },
        { CAPITALS, C(2),
          "A\xC2\xBB"
          "B",
          1 },
        { CAPITALS, C(2),
          "A\xE2\x80\x9F"
          "B",
          0 },
        { CAPITALS, C(2),
          "A\xE2\x80\x97"
          "B",
          0 },
        { CAPITALS, C(2), "A--B", 1 }, { CAPITALS, C(2), "A..B", 1 },
        { CAPITALS, C(2), "A**B", 0 }, { CAPITALS, C(1), "1 2", 0 },
        { CAPITALS, C(1), "\xC3\x89", 1 }, { CAPITALS, C(0), "x", 1 });
#define UPPER "change_case:english_capital"
#define LOWER "change_case:english_lowercase"
    RUN({ UPPER, "{}", "A \xD0\x90", 0 }, { UPPER, "{}", "AB \xD0\x90", 1 },
        { LOWER, "{}", "\xD0\xB4\xD0\xB0", 0 },
        { LOWER, "{}", "\xD0\xB4\xD0\xB0 abc", 1 }, { LOWER, "{}", "1", 0 });
#define LANGUAGE "language:response_language"
    RUN({ LANGUAGE, "{\"language\":\"en\"}", "ab \xD0\xB4\xD0\xB0", 0 },
        { LANGUAGE, "{\"language\":\"en\"}", "abc \xD0\xB4\xD0\xB0", 1 });
#define COMMA "punctuation:no_comma"
    RUN({ COMMA, "{}", ",", 0 }, { COMMA, "{}", "\xEF\xBC\x8C", 1 });
}

/* ---- sentences ---------------------------------------------------------- */

static void sentences_end_at_stops_but_not_abbreviations(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        size_t count;
    } rows[] = {
        { "", 0 },
        { " \n", 0 },
        { "No stop", 1 },
        { "One.", 1 },
        { "One. Two", 2 },
        { "One.Two", 1 },
        { "One.\nTwo", 2 },
        { "One!! Two?! Three", 3 },
        { "Why? because", 2 },
        { "Well... yes", 1 },
        { "Well... Yes", 2 },
        { "Well.. Yes", 2 },
        { "Oh!.. yes", 1 },
        { ". Then", 2 },
        { ". then", 1 },
        { "(He left.) She came", 2 },
        { "He left.\xE2\x80\x9D She came", 2 },
        { "He left.\xE2\x80\x99 She", 2 },
        { "\"Go.\", he said", 2 },
        { "Go., he said", 1 },
        { "A is I. Then", 2 },
        { "J. Doe came", 2 },
        { "so did J. Doe", 1 },
        { "A. first\nB. second", 3 },
        { "\t C. third", 2 },
        { "It is 3. then", 1 },
        { "It is 3. Then", 2 },
        { "It is x2. then", 1 },
        { "It is 3.! then", 2 },
        { "It is 3.? Then", 2 },
        { "I saw Dr.! Smith", 2 },
        { "I saw Dr.? smith", 2 },
        { "so did J.! Doe", 2 },
        { "It is him. then", 2 },
        { "\xE5\xA5\xBD\xE3\x80\x82\xE5\xA5\xBD", 2 },
        { "\xE5\xA5\xBD\xEF\xBC\x81\xE5\xA5\xBD\xEF\xBC\x9F\xE5\xA5\xBD", 3 },
        { "\xE5\xA5\xBD\xEF\xBC\x81\xEF\xBC\x9F\xE3\x80\x8D\xE5\xA5\xBD", 2 },
        { "\xE5\xA5\xBD\xE3\x80\x82", 1 },
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        if (rule_sentence_count(rule_text_of(rows[i].text)) != rows[i].count)
            fail_msg("'%s': %zu sentences, not %zu", rows[i].text,
                     rule_sentence_count(rule_text_of(rows[i].text)),
                     rows[i].count);
    static const char *const never[] = {
        "mr",  "mrs",  "ms", "dr",  "prof", "st", "gen", "col", "sen",
        "rep", "capt", "lt", "sgt", "rev",  "vs", "e.g", "i.e", "cf",
    };
    static const char *const before_capitals[] = {
        "etc", "inc", "ltd", "co",  "corp", "jr",  "sr",   "no",
        "fig", "vol", "al",  "a.m", "p.m",  "u.s", "ph.d",
    };
    char text[64];
    for (size_t i = 0; i < sizeof(never) / sizeof(never[0]); i++) {
        (void)snprintf(text, sizeof(text), "See %s. X here", never[i]);
        assert_int_equal(rule_sentence_count(rule_text_of(text)), 1);
        (void)snprintf(text, sizeof(text), "See (%s. X here", never[i]);
        assert_int_equal(rule_sentence_count(rule_text_of(text)), 1);
        (void)snprintf(text, sizeof(text), "See %s. X here", never[i]);
        for (char *c = text + 4; *c != '.'; c++)
            *c = (char)(*c & 0x5F);
        if (!strchr(never[i], '.'))
            assert_int_equal(rule_sentence_count(rule_text_of(text)), 1);
    }
    for (size_t i = 0; i < sizeof(before_capitals) / sizeof(char *); i++) {
        (void)snprintf(text, sizeof(text), "See %s. X here",
                       before_capitals[i]);
        assert_int_equal(rule_sentence_count(rule_text_of(text)), 2);
        (void)snprintf(text, sizeof(text), "See %s. x here",
                       before_capitals[i]);
        assert_int_equal(rule_sentence_count(rule_text_of(text)), 1);
    }
}

/* Marks that close (UAX #29, Sentence_Break=Close) and those of Markdown may
 * lie between a stop and the space; others may not. */
static void marks_may_close_and_open_a_sentence(void **state)
{
    (void)state;
    static const char *const closing[] = {
        "\"",
        "'",
        ")",
        "]",
        "}",
        "*",
        "_",
        "\xE2\x80\x99",
        "\xE2\x80\x9D",
        "\xE3\x80\x8D",
        "\xE3\x80\x8F",
        "\xEF\xBC\x89",
    };
    static const char *const other[] = { "-", "/", "x", "0", "\xE2\x82\xAC" };
    for (size_t i = 0; i < sizeof(closing) / sizeof(char *); i++) {
        char line[64];
        (void)snprintf(line, sizeof(line), "He left.%s She came", closing[i]);
        assert_int_equal(rule_sentence_count(rule_text_of(line)), 2);
        (void)snprintf(line, sizeof(line), "\xE5\xA5\xBD\xE3\x80\x82%s",
                       closing[i]);
        assert_int_equal(rule_sentence_count(rule_text_of(line)), 1);
    }
    for (size_t i = 0; i < sizeof(other) / sizeof(char *); i++) {
        char line[64];
        (void)snprintf(line, sizeof(line), "He left.%s She came", other[i]);
        assert_int_equal(rule_sentence_count(rule_text_of(line)), 1);
    }
    static const char opening[] = "(\"*[";
    for (const char *c = opening; *c; c++) {
        char line[64];
        (void)snprintf(line, sizeof(line), "See %cMr. X here", *c);
        assert_int_equal(rule_sentence_count(rule_text_of(line)), 1);
    }
}

/* ---- rows --------------------------------------------------------------- */

static void each_instruction_reads_its_own_arguments(void **state)
{
    (void)state;
    rig r;
    static const char text[] = "one two";
    rig_open(&r, RIG_KEYS("grader", "ifeval"));
    xray_sample_in s = rig_sample(1, text, 7, "");
    s.fields_json =
        "{\"instruction_id_list\":[\"punctuation:no_comma\","
        "\"length_constraints:number_words\",\"keywords:existence\"],"
        "\"kwargs\":[{\"num_words\":9},{\"num_words\":2,\"relation\":"
        "\"at least\",\"keywords\":[\"three\"]},{\"keywords\":[\"two\"]}]}";
    xray_score got = rig_score(&r, &s);
    rig_near(rig_value(&got, "followed"), 1, "each has its own");
    assert_int_equal(r.host.warnings, 0);
    rig_close(&r);
}

/* 64 instructions are read; all others count as not followed. */
static void instructions_after_the_64th_count_as_not_followed(void **state)
{
    (void)state;
    for (int count = 64; count <= 80; count += 16) {
        rig r;
        xr_str json = { 0 };
        xr_str_puts(&json, "{\"instruction_id_list\":[");
        for (int i = 0; i < count; i++)
            xr_str_printf(&json, "%s\"punctuation:no_comma\"", i ? "," : "");
        xr_str_puts(&json, "]}");
        rig_open(&r, RIG_KEYS("grader", "ifeval"));
        xray_sample_in s = rig_sample(1, "text", 4, "");
        s.fields_json = xr_str_text(&json);
        xray_score got = rig_score(&r, &s);
        rig_near(rig_value(&got, "followed"), 64.0 / count, "followed");
        rig_near(got.score, 64.0 / count, "score");
        rig_near(rig_value(&got, "acc"), count == 64, "acc");
        assert_int_equal(r.host.warnings, count != 64);
        rig_close(&r);
        xr_str_free(&json);
    }
}

static void loose_accepts_eight_readings(void **state)
{
    (void)state;
    static const struct {
        const char *response;
        int followed;
    } rows[] = {
        { "x\n \"a\" \n", 1 },   { "x\n \"a\" \ny", 1 },
        { "*\"*a\"", 1 },        { "x\n*\"a\"*", 1 },
        { "\"a\"\n*y*", 1 },     { "x\n\n\"a\"\n\ny", 1 },
        { "x\n\"a\"\ny\nz", 0 },
    };
    rig r;
    rig_open(&r, RIG_KEYS("grader", "ifeval", "loose", "true"));
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        if (is_followed(&r, "startend:quotation", "{}", rows[i].response) !=
            rows[i].followed)
            fail_msg("'%s'", rows[i].response);
    /* Nothing is left of a single line, rather than the line without the space
     * that makes a bullet of "* ". */
    assert_int_equal(is_followed(&r, "detectable_format:number_bullet_lists",
                                 "{\"num_bullets\":0}", "* "),
                     0);
    assert_int_equal(is_followed(&r, "detectable_format:number_bullet_lists",
                                 "{\"num_bullets\":0}", "x\n* \ny"),
                     1);
    /* White space around what is left is cut, so no blank paragraph precedes
     * it. */
    assert_int_equal(is_followed(&r, FIRST, P(1, 1, "then"), "Sure:\n\n\nThen"),
                     1);
    rig_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(instructions_need_valid_arguments),
        cmocka_unit_test(blank_paragraphs_count_as_ifeval_does),
        cmocka_unit_test(marks_count_at_their_bounds),
        cmocka_unit_test(words_and_cases_count_at_their_bounds),
        cmocka_unit_test(sentences_end_at_stops_but_not_abbreviations),
        cmocka_unit_test(marks_may_close_and_open_a_sentence),
        cmocka_unit_test(each_instruction_reads_its_own_arguments),
        cmocka_unit_test(instructions_after_the_64th_count_as_not_followed),
        cmocka_unit_test(loose_accepts_eight_readings),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
