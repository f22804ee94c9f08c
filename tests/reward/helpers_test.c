/* SPDX-License-Identifier: Apache-2.0
 *
 * The helpers of the graders: scripts and languages, characters, words, sets
 * of texts, numbers in text, and the option table.
 */
#include "plugins/reward-rule/grade.h"
#include "plugins/reward-rule/intern.h"
#include "plugins/reward-rule/language.h"
#include "plugins/reward-rule/math_parse.h"
#include "plugins/reward-rule/number.h"
#include "plugins/reward-rule/unicode.h"
#include "tests/reward/rig.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* ---- scripts and languages ---------------------------------------------- */

static const struct range {
    uint32_t first;
    uint32_t last;
    uint32_t script;
} ranges[] = {
    { 0x0041, 0x024F, RULE_LATIN },     { 0x0250, 0x02AF, RULE_LATIN },
    { 0x0370, 0x03FF, RULE_GREEK },     { 0x0400, 0x052F, RULE_CYRILLIC },
    { 0x0530, 0x058F, RULE_ARMENIAN },  { 0x0590, 0x05FF, RULE_HEBREW },
    { 0x0600, 0x06FF, RULE_ARABIC },    { 0x0750, 0x077F, RULE_ARABIC },
    { 0x08A0, 0x08FF, RULE_ARABIC },    { 0x0900, 0x097F, RULE_DEVANAGARI },
    { 0x0980, 0x09FF, RULE_BENGALI },   { 0x0A00, 0x0A7F, RULE_GURMUKHI },
    { 0x0A80, 0x0AFF, RULE_GUJARATI },  { 0x0B80, 0x0BFF, RULE_TAMIL },
    { 0x0C00, 0x0C7F, RULE_TELUGU },    { 0x0C80, 0x0CFF, RULE_KANNADA },
    { 0x0D00, 0x0D7F, RULE_MALAYALAM }, { 0x0E00, 0x0E7F, RULE_THAI },
    { 0x10A0, 0x10FF, RULE_GEORGIAN },  { 0x1100, 0x11FF, RULE_HANGUL },
    { 0x1200, 0x139F, RULE_ETHIOPIC },  { 0x1C80, 0x1C8F, RULE_CYRILLIC },
    { 0x1C90, 0x1CBF, RULE_GEORGIAN },  { 0x1E00, 0x1EFF, RULE_LATIN },
    { 0x1F00, 0x1FFF, RULE_GREEK },     { 0x2C60, 0x2C7F, RULE_LATIN },
    { 0x2DE0, 0x2DFF, RULE_CYRILLIC },  { 0x3005, 0x3007, RULE_HAN },
    { 0x3040, 0x30FF, RULE_KANA },      { 0x3130, 0x318F, RULE_HANGUL },
    { 0x31F0, 0x31FF, RULE_KANA },      { 0x3400, 0x4DBF, RULE_HAN },
    { 0x4E00, 0x9FFF, RULE_HAN },       { 0xA640, 0xA69F, RULE_CYRILLIC },
    { 0xA720, 0xA7FF, RULE_LATIN },     { 0xA8E0, 0xA8FF, RULE_DEVANAGARI },
    { 0xA960, 0xA97F, RULE_HANGUL },    { 0xAB30, 0xAB6F, RULE_LATIN },
    { 0xAC00, 0xD7FF, RULE_HANGUL },    { 0xF900, 0xFAFF, RULE_HAN },
    { 0xFB00, 0xFB06, RULE_LATIN },     { 0xFB13, 0xFB17, RULE_ARMENIAN },
    { 0xFB1D, 0xFB4F, RULE_HEBREW },    { 0xFB50, 0xFDFF, RULE_ARABIC },
    { 0xFE70, 0xFEFF, RULE_ARABIC },    { 0xFF21, 0xFF5A, RULE_LATIN },
    { 0xFF66, 0xFF9F, RULE_KANA },      { 0xFFA0, 0xFFDC, RULE_HANGUL },
    { 0x1B000, 0x1B16F, RULE_KANA },    { 0x20000, 0x3FFFF, RULE_HAN },
};

/* Both ends of a block have its script, and the characters beside them another,
 * unless the neighbouring block has the same script. */
static void scripts_begin_and_end_at_their_blocks(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(ranges); i++) {
        const struct range *r = &ranges[i];
        uint32_t before = i ? ranges[i - 1].last : 0;
        uint32_t after = i + 1 < COUNT(ranges) ? ranges[i + 1].first : 0x40001;
        if (rule_script_of(r->first) != r->script ||
            rule_script_of(r->last) != r->script)
            fail_msg("%x to %x", r->first, r->last);
        if (before + 1 < r->first)
            assert_int_equal(rule_script_of(r->first - 1), RULE_OTHER_SCRIPT);
        if (after > r->last + 1)
            assert_int_equal(rule_script_of(r->last + 1), RULE_OTHER_SCRIPT);
    }
}

static const struct tongue {
    const char *codes; /* separated by spaces */
    uint32_t scripts;
} tongues[] = {
    { "af cs da de en es et fi fr hr hu id it lt lv ms nl no pl pt ro sk sl sv "
      "sw tl tr vi",
      RULE_LATIN },
    { "am", RULE_ETHIOPIC },
    { "ar fa ur", RULE_ARABIC },
    { "bg ru uk", RULE_CYRILLIC },
    { "bn", RULE_BENGALI },
    { "el", RULE_GREEK },
    { "gu", RULE_GUJARATI },
    { "he", RULE_HEBREW },
    { "hi mr ne", RULE_DEVANAGARI },
    { "hy", RULE_ARMENIAN },
    { "ja", RULE_HAN | RULE_KANA },
    { "ka", RULE_GEORGIAN },
    { "kn", RULE_KANNADA },
    { "ko", RULE_HANGUL },
    { "ml", RULE_MALAYALAM },
    { "pa", RULE_GURMUKHI },
    { "sr", RULE_CYRILLIC | RULE_LATIN },
    { "ta", RULE_TAMIL },
    { "te", RULE_TELUGU },
    { "th", RULE_THAI },
    { "zh", RULE_HAN },
};

static void languages_name_their_scripts(void **state)
{
    (void)state;
    size_t known = 0;
    for (size_t i = 0; i < COUNT(tongues); i++)
        for (const char *at = tongues[i].codes; *at; at += at[2] ? 3 : 2) {
            char code[8];
            (void)snprintf(code, sizeof(code), "%.2s", at);
            if (rule_language_scripts(code) != tongues[i].scripts)
                fail_msg("%s", code);
            (void)snprintf(code, sizeof(code), "%.2s-XX", at);
            assert_int_equal(rule_language_scripts(code), tongues[i].scripts);
            (void)snprintf(code, sizeof(code), "%.2s_XX", at);
            assert_int_equal(rule_language_scripts(code), tongues[i].scripts);
            (void)snprintf(code, sizeof(code), "%.2sx", at);
            assert_int_equal(rule_language_scripts(code), 0);
        }
    for (char a = 'a'; a <= 'z'; a++)
        for (char b = 'a'; b <= 'z'; b++) {
            const char code[] = { a, b, '\0' };
            known += rule_language_scripts(code) != 0;
        }
    assert_int_equal(known, 54);
}

/* ---- characters --------------------------------------------------------- */

static const struct kind {
    uint32_t code;
    const char *kinds; /* l letter, u upper case, s lower case, w word, d digit,
                        * m mark, b white space */
} kinds[] = {
    { 'a', "lsw" },   { 'z', "lsw" },   { 'A', "luw" },   { 'Z', "luw" },
    { '0', "wd" },    { '9', "wd" },    { '_', "w" },     { '@', "" },
    { '[', "" },      { '`', "" },      { '{', "" },      { '/', "" },
    { ':', "" },      { ' ', "b" },     { '\t', "b" },    { '\r', "b" },
    { 0x08, "" },     { 0x0E, "" },     { 0x1B, "" },     { 0x1C, "b" },
    { 0x1F, "b" },    { 0x85, "b" },    { 0xA0, "b" },    { 0x1680, "b" },
    { 0x1FFF, "" },   { 0x2000, "b" },  { 0x200A, "b" },  { 0x200B, "" },
    { 0x2028, "b" },  { 0x2029, "b" },  { 0x202F, "b" },  { 0x205F, "b" },
    { 0x3000, "b" },  { 0x3001, "" },   { 0xE9, "lsw" },  { 0xC9, "luw" },
    { 0xAA, "lw" },   { 0x01C5, "lw" }, { 0x02B0, "lw" }, { 0x4E00, "lw" },
    { 0x0660, "wd" }, { 0x2160, "w" },  { 0xBD, "w" },    { 0x0301, "m" },
    { 0x0903, "m" },  { 0x20DD, "m" },  { 0xFFFD, "" },   { 0xD7, "" },
};

static void characters_are_classified(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(kinds); i++) {
        uint32_t c = kinds[i].code;
        char got[16];
        (void)snprintf(got, sizeof(got), "%s%s%s%s%s%s%s",
                       rule_is_letter(c) ? "l" : "",
                       rule_is_upper(c) ? "u" : "", rule_is_lower(c) ? "s" : "",
                       rule_is_word(c) ? "w" : "", rule_is_digit(c) ? "d" : "",
                       rule_is_mark(c) ? "m" : "", rule_is_space(c) ? "b" : "");
        if (strcmp(got, kinds[i].kinds) != 0)
            fail_msg("%x: %s, not %s", c, got, kinds[i].kinds);
    }
}

static void characters_are_read_forward_and_backward(void **state)
{
    (void)state;
    static const char text[] = "a\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80\xFF\x80z";
    static const struct {
        size_t at;
        size_t next;
        uint32_t code;
    } steps[] = { { 0, 1, 'a' },      { 1, 3, 0xE9 },     { 3, 6, 0x20AC },
                  { 6, 10, 0x1F600 }, { 10, 11, 0xFFFD }, { 11, 12, 0xFFFD },
                  { 12, 13, 'z' } };
    rule_text t = rule_text_of(text);
    for (size_t i = 0; i < COUNT(steps); i++) {
        uint32_t c = 0;
        assert_int_equal(rule_char_at(t, steps[i].at, &c), steps[i].next);
        assert_int_equal(c, steps[i].code);
        c = 0;
        assert_int_equal(rule_char_before(t, steps[i].next, &c), steps[i].at);
        assert_int_equal(c, steps[i].code);
    }
    assert_int_equal(rule_char_count(t), 7);
    assert_int_equal(rule_char_count(rule_text_of("")), 0);
    /* A character that is cut in the middle is not read. */
    uint32_t c = 0;
    assert_int_equal(rule_char_at((rule_text){ text, 2 }, 1, &c), 2);
    assert_int_equal(c, 0xFFFD);
    assert_int_equal(rule_char_before((rule_text){ text, 5 }, 5, &c), 4);
    assert_int_equal(c, 0xFFFD);
}

static void check_text(rule_text got, const char *want)
{
    if (got.size != strlen(want) || memcmp(got.data, want, got.size) != 0)
        fail_msg("'%.*s', not '%s'", (int)got.size, got.data, want);
}

static void texts_are_cut_at_characters(void **state)
{
    (void)state;
    size_t at = 0;
    rule_text t = rule_text_of(" \xC2\xA0one \t two\xE3\x80\x80three\x1F");
    check_text(rule_strip(t), "one \t two\xE3\x80\x80three");
    check_text(rule_strip(rule_text_of("")), "");
    check_text(rule_strip(rule_text_of(" \n\xC2\xA0")), "");
    check_text(rule_strip(rule_text_of("x")), "x");
    check_text(rule_trim(rule_text_of("\t\n\v\f\r x \r\f\v\n\t")), "x");
    check_text(rule_trim(rule_text_of("\xC2\xA0x")), "\xC2\xA0x");
    check_text(rule_trim(rule_text_of(" \x1F ")), "\x1F");
    check_text(rule_next_word(t, &at), "one");
    check_text(rule_next_word(t, &at), "two");
    check_text(rule_next_word(t, &at), "three");
    check_text(rule_next_word(t, &at), "");
    assert_int_equal(at, t.size);
    check_text(rule_last_characters(rule_text_of("a\xC3\xA9"
                                                 "b"),
                                    2),
               "\xC3\xA9"
               "b");
    check_text(rule_last_characters(rule_text_of("ab"), 9), "ab");
    check_text(rule_last_characters(rule_text_of("ab"), 0), "");
    check_text(rule_last_bytes(rule_text_of("a\xC3\xA9"
                                            "b"),
                               3),
               "\xC3\xA9"
               "b");
    check_text(rule_last_bytes(rule_text_of("a\xC3\xA9"
                                            "b"),
                               2),
               "b");
    check_text(rule_last_bytes(rule_text_of("a\xC3\xA9"), 1), "");
    check_text(rule_last_bytes(rule_text_of("ab"), 2), "ab");
    check_text(rule_after(rule_text_of("a##b##c"), rule_text_of("##")), "c");
    check_text(rule_after(rule_text_of("##c"), rule_text_of("##")), "c");
    check_text(rule_after(rule_text_of("c##"), rule_text_of("##")), "");
    assert_null(rule_after(rule_text_of("c#"), rule_text_of("##")).data);
    assert_null(rule_after(rule_text_of("#"), rule_text_of("##")).data);
    assert_true(rule_equal(rule_text_of("aZ"), rule_text_of("Az"), 1));
    assert_false(rule_equal(rule_text_of("aZ"), rule_text_of("Az"), 0));
    assert_false(rule_equal(rule_text_of("a"), rule_text_of("ab"), 1));
    assert_false(rule_equal(rule_text_of("@"), rule_text_of("`"), 1));
    assert_false(rule_equal(rule_text_of("["), rule_text_of("{"), 1));
    assert_int_equal(rule_find(rule_text_of("abab"), rule_text_of("ab"), 0), 0);
    assert_int_equal(rule_find(rule_text_of("abab"), rule_text_of("ab"), 1), 2);
    assert_int_equal(rule_find(rule_text_of("abab"), rule_text_of("ab"), 2), 2);
    assert_true(rule_find(rule_text_of("abab"), rule_text_of("ab"), 3) ==
                SIZE_MAX);
    assert_true(rule_find(rule_text_of("ab"), rule_text_of(""), 0) == SIZE_MAX);
    assert_true(rule_find(rule_text_of("a"), rule_text_of("ab"), 0) ==
                SIZE_MAX);
    assert_true(rule_starts(rule_text_of("abc"), rule_text_of("ab")));
    assert_false(rule_starts(rule_text_of("abc"), rule_text_of("bc")));
    assert_true(rule_ends(rule_text_of("abc"), rule_text_of("bc")));
    assert_false(rule_ends(rule_text_of("abc"), rule_text_of("ab")));
    assert_true(rule_ends(rule_text_of("abc"), rule_text_of("")));
    xr_str lower = { 0 };
    rule_lower(rule_text_of("AZ@[\xC3\x89\xCE\xA3\xFF\xC3"), &lower);
    assert_string_equal(xr_str_text(&lower), "az@[\xC3\xA9\xCF\x83\xFF\xC3");
    xr_str_free(&lower);
}

static void equal_texts_get_equal_numbers(void **state)
{
    (void)state;
    enum { MOST = 500 };
    static char names[MOST][8];
    rule_intern set = { .count = 0 };
    for (int round = 0; round < 3; round++) {
        size_t cap = round == 1 ? 40 : MOST;
        assert_int_equal(rule_intern_reset(&set, cap), 0);
        for (size_t i = 0; i < cap; i++) {
            int size = snprintf(names[i], sizeof(names[i]), "w%zu", i);
            rule_text key = { names[i], (size_t)size };
            assert_int_equal(rule_intern_add(&set, key), i);
            assert_int_equal(rule_intern_add(&set, key), i);
            assert_int_equal(set.count, i + 1);
        }
        for (size_t i = 0; i < cap; i++)
            assert_int_equal(rule_intern_add(&set, rule_text_of(names[i])), i);
    }
    rule_intern_free(&set);
    assert_null(set.slots);
}

/* ---- numbers in text ---------------------------------------------------- */

static void first_and_last_numbers_are_found(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        double first;
        double last;
    } rows[] = {
        { "1,234 and 5,67", 1234, 67 },
        { "1,2345", 1, 2345 },
        { "12,345,678.5", 12345678.5, 12345678.5 },
        { "1,234,56", 1234, 56 },
        { "3.14.15", 3.14, 15 },
        { "7. Then .5", 7, 0.5 },
        { "-2 x-3", -2, 3 },
        { "(-2) )-3", -2, 3 },
        { "a -4", -4, -4 },
        { "a-4", 4, 4 },
        { "Z-4", 4, 4 },
        { "[-4", -4, -4 },
        { "$-5", -5, -5 },
        { "-$5", -5, -5 },
        { "1e5 2E-3", 1e5, 2e-3 },
        { "1e", 1, 1 },
        { "1e+", 1, 1 },
        { "5.e3", 5, 3 },
        { "7.", 7, 7 },
        { "2e+3x", 2000, 2000 },
        { "\xE2\x88\x92"
          "6",
          -6, -6 },
        { "3\xE2\x88\x92"
          "6",
          3, 6 },
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        double got = 0.25;
        assert_int_equal(rule_number_find(rule_text_of(rows[i].text), 0, &got),
                         1);
        rig_near(got, rows[i].first, rows[i].text);
        assert_int_equal(rule_number_find(rule_text_of(rows[i].text), 1, &got),
                         1);
        rig_near(got, rows[i].last, rows[i].text);
    }
    static const char *const none[] = { "", "x", ".", "-", "...", ",", "e5" };
    for (size_t i = 0; i < COUNT(none); i++) {
        double got = 0;
        /* "e5" contains the number 5. */
        assert_int_equal(rule_number_find(rule_text_of(none[i]), 1, &got),
                         i == 6);
    }
    char digits[420];
    double got = 0;
    memset(digits, '0', sizeof(digits));
    digits[0] = '1';
    assert_int_equal(rule_number_find((rule_text){ digits, 300 }, 1, &got), 1);
    assert_true(got == 1e299);
    memset(digits, '0', sizeof(digits));
    digits[400] = '5';
    assert_int_equal(rule_number_find((rule_text){ digits, 401 }, 1, &got), 1);
    assert_true(got == 5);
    assert_int_equal(rule_number_find((rule_text){ digits, 402 }, 1, &got), 0);
}

/* ---- options ------------------------------------------------------------ */

/* The table holds name, type, flags, default, bounds, unit, version and choices
 * of each key. */
static const char *const options[] = {
    "grader 8 0 exact [1 0] - 0.1 exact=0 numeric=1 regex=2 gsm8k=3 "
    "math=4 math_minerva=5 math_prm800k=6 math_dapo=7 math_slime=8 "
    "math_verify=9 math_areal=10 choice=11 gpqa=12 qa=13 search_r1=14 "
    "format=15 tag_count=16 reasoning_steps=17 length=18 overlong=19 "
    "length_group=20 cosine=21 repetition=22 language=23 ifeval=24",
    "method 8 0 strict [1 0] - 0.1 strict=0 flexible=1",
    "score 3 0 1 [-1000000000 1000000000] - 0.1",
    "format_score 3 0 0 [-1000000000 1000000000] - 0.1",
    "no_answer_score 3 0 0 [-1000000000 1000000000] - 0.1",
    "after 6 0 - [1 0] - 0.1",
    "take 8 0 last [1 0] - 0.1 last=0 first=1",
    "trim 1 0 true [1 0] - 0.1",
    "ignore_case 1 0 false [1 0] - 0.1",
    "tolerance 3 0 1e-6 [0 1e+300] - 0.1",
    "extract 8 0 preset [1 0] - 0.1 preset=0 boxed=1 minerva=2 answer=3"
    " marked=4 last=5 latex=6 number=7 any=8",
    "rel_tolerance 3 0 0 [0 1e+300] - 0.1",
    "pattern 6 0 - [1 0] - 0.1",
    "match_only 1 0 false [1 0] - 0.1",
    "search_bytes 2 0 8192 [1 1048576] bytes 0.1",
    "base 8 0 none [1 0] - 0.1 none=-1 exact=0 numeric=1 regex=2 "
    "gsm8k=3 math=4 math_minerva=5 math_prm800k=6 math_dapo=7 "
    "math_slime=8 math_verify=9 math_areal=10 choice=11 gpqa=12 qa=13 "
    "search_r1=14 format=15 tag_count=16 reasoning_steps=17 length=18 "
    "overlong=19 length_group=20 cosine=21 repetition=22 language=23 "
    "ifeval=24",
    "option_count 2 0 4 [2 26] options 0.1",
    "index_from 2 0 0 [0 1] - 0.1",
    "match 8 0 em [1 0] - 0.1 em=0 f1=1 subem=2",
    "format 8 0 think_answer [1 0] - 0.1 think_answer=0 "
    "think_answer_soft=1 think=2 answer=3 boxed=4",
    "unit 8 0 tokens [1 0] - 0.1 tokens=0 characters=1 words=2",
    "shape 8 0 cap [1 0] - 0.1 cap=0 linear=1 l1_exact=2 l1_max=3",
    "max_response_length 2 0 0 [0 1073741824] - 0.1",
    "target_length 2 0 0 [0 1073741824] - 0.1",
    "length_coef 3 0 1 [0 1000000000] - 0.1",
    "length_offset 3 0 0.5 [-1000000000 1000000000] - 0.1",
    "overlong_buffer_len 2 0 0 [0 1073741824] tokens 0.1",
    "overlong_penalty_factor 3 0 1 [0 1000000000] - 0.1",
    "min_value_wrong 3 0 -1 [-1000000000 1000000000] - 0.1",
    "max_value_wrong 3 0 -0.5 [-1000000000 1000000000] - 0.1",
    "min_value_correct 3 0 0.5 [-1000000000 1000000000] - 0.1",
    "max_value_correct 3 0 1 [-1000000000 1000000000] - 0.1",
    "ngram_size 2 0 3 [1 64] - 0.1",
    "max_penalty 3 0 -1 [-1000000000 0] - 0.1",
    "language 6 0 - [1 0] - 0.1",
    "min_share 3 0 1 [0 1] - 0.1",
    "scoring 8 0 share [1 0] - 0.1 share=0 all=1",
    "loose 1 0 false [1 0] - 0.1",
    "allow_set_relation_comp 1 0 false [1 0] - 0.1",
};

static void options_keep_their_types_and_defaults(void **state)
{
    (void)state;
    assert_int_equal(rule_option_count, sizeof(options) / sizeof(options[0]));
    for (uint32_t i = 0; i < rule_option_count; i++) {
        const xray_option *o = &rule_options[i];
        xr_str line = { 0 };
        xr_str_printf(&line, "%s %u %u %s [%.10g %.10g] %s %s", o->name,
                      (unsigned)o->type, (unsigned)o->flags,
                      *o->preset ? o->preset : "-", o->min, o->max,
                      o->unit ? o->unit : "-", o->since);
        for (const xray_choice *c = o->choices; c && c->name; c++)
            xr_str_printf(&line, " %s=%lld", c->name, (long long)c->value);
        assert_string_equal(xr_str_text(&line), options[i]);
        xr_str_free(&line);
    }
}

/* ---- groups of LaTeX ----------------------------------------------------- */

/* A group ends at the brace that closes it; a brace after a backslash neither
 * opens nor closes one, and an escaped backslash escapes nothing. */
static void a_group_ends_at_its_brace(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        const char *inside; /* NULL: there is no group */
        const char *rest;
    } rows[] = {
        { "{a}b", "a", "b" },
        { " {a}", "a", "" },
        { "{}", "", "" },
        { "{a{b}c}{d}", "a{b}c", "{d}" },
        { "{a\\}b}c", "a\\}b", "c" },
        { "{\\{}c", "\\{", "c" },
        { "{\\\\}c}", "\\\\", "c}" },
        { "{a", NULL, "{a" },
        { "{a\\}", NULL, "{a\\}" },
        { "{a{b}", NULL, "{a{b}" },
        { "a{b}", NULL, "a{b}" },
        { "", NULL, "" },
        { "{a\\", NULL, "{a\\" },
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        const char *text = rows[i].text;
        rule_parser p = { .at = text, .end = text + strlen(text) };
        rule_text inside = rule_take_group(&p);
        assert_string_equal(p.at, rows[i].rest);
        assert_int_equal(inside.data != NULL, rows[i].inside != NULL);
        if (rows[i].inside) {
            assert_int_equal(inside.size, strlen(rows[i].inside));
            assert_memory_equal(inside.data, rows[i].inside, inside.size);
        }
    }
}

/* As Python's \\s, [0-9] and [A-Za-z] in a pattern of bytes. */
static void bytes_are_classified(void **state)
{
    (void)state;
    for (int c = 0; c < 256; c++) {
        assert_int_equal(rule_ascii_space((char)c),
                         c && strchr(" \t\n\v\f\r", c));
        assert_int_equal(rule_ascii_digit((char)c),
                         c && strchr("0123456789", c));
        assert_int_equal(rule_ascii_letter((char)c),
                         c && strchr("abcdefghijklmnopqrstuvwxyz"
                                     "ABCDEFGHIJKLMNOPQRSTUVWXYZ",
                                     c));
    }
}

/* A buffer keeps in mind that something did not fit, until it is set anew. */
static void a_replacement_that_does_not_fit_is_told(void **state)
{
    static rule_buffer buffer;
    static rule_buffer scratch;
    static char text[RULE_BUFFER_BYTES];
    (void)state;
    memset(text, 'b', sizeof(text));
    text[0] = 'a';
    for (size_t more = 0; more < 2; more++) {
        size_t size = sizeof(text) - 1 + more;
        rule_buffer_set(&buffer, (rule_text){ text, size });
        assert_int_equal(buffer.full, 0);
        rule_buffer_replace(&buffer, "a", "cc", &scratch);
        assert_int_equal(buffer.full, more);
        rule_buffer_replace(&buffer, "d", "e", &scratch);
        assert_int_equal(buffer.full, more);
        if (!more) {
            assert_int_equal(buffer.size, sizeof(text));
            assert_memory_equal(buffer.data, "ccb", 3);
        }
    }
    rule_buffer_set(&buffer, rule_text_of("a"));
    assert_int_equal(buffer.full, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scripts_begin_and_end_at_their_blocks),
        cmocka_unit_test(languages_name_their_scripts),
        cmocka_unit_test(characters_are_classified),
        cmocka_unit_test(characters_are_read_forward_and_backward),
        cmocka_unit_test(texts_are_cut_at_characters),
        cmocka_unit_test(equal_texts_get_equal_numbers),
        cmocka_unit_test(first_and_last_numbers_are_found),
        cmocka_unit_test(options_keep_their_types_and_defaults),
        cmocka_unit_test(a_group_ends_at_its_brace),
        cmocka_unit_test(bytes_are_classified),
        cmocka_unit_test(a_replacement_that_does_not_fit_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
