/* SPDX-License-Identifier: Apache-2.0
 *
 * The graders "exact", "numeric" and "regex" by table, the order of scores,
 * refused options, and hostile text.
 */
#include "plugins/reward-rule/grade.h"
#include "tests/growth.h"
#include "tests/reward/rig.h"

#define RUN RIG_RUN

static void exact_compares_the_entire_text(void **state)
{
    (void)state;
    RUN(NULL, { "42", "42", 'R' }, { " 42\n", "42", 'R' },
        { "42", "\t42 ", 'R' }, { "4 2", "42", 'W' }, { "yes", "Yes", 'W' },
        { "", "42", 'N' }, { " \n", "42", 'N' }, { "421", "42", 'W' },
        { "", "", 'R' });
    RUN(RIG_KEYS("trim", "false"), { "42 ", "42", 'W' }, { "42", "42", 'R' });
    RUN(RIG_KEYS("ignore_case", "true"), { "yEs", "Yes", 'R' },
        { "no", "Yes", 'W' }, { "[", "{", 'W' });
    RUN(RIG_KEYS("after", "Answer:"), { "x Answer: 1 Answer: 42", "42", 'R' },
        { "42", "42", 'N' }, { "Answer:", "42", 'N' },
        { "Answer: 4", "42", 'W' }, { "An", "42", 'N' });
}

static void numeric_compares_numbers(void **state)
{
    (void)state;
    RUN(RIG_KEYS("grader", "numeric"), { "It is 42.", "42", 'R' },
        { "42.0000001", "42", 'R' }, { "42.1", "42", 'W' },
        { "41, then 42", "42", 'R' }, { "42, then 41", "42", 'W' },
        { "none", "42", 'N' }, { "", "42", 'N' }, { "...", "42", 'N' },
        { "$1,234,567.50", "1234567.5", 'R' }, { "-$5", "-5", 'R' },
        { "$-5", "-5", 'R' }, { "8-5", "5", 'R' }, { "x = -5", "-5", 'R' },
        { "x = \xE2\x88\x92"
          "5",
          "-5", 'R' },
        { "(1)-5", "5", 'R' }, { "4.2e1", "42", 'R' }, { "4.2E+1", "42", 'R' },
        { "42e", "42", 'R' }, { ".5", "0.5", 'R' }, { "v1.2.3", "3", 'R' },
        { "1,23", "23", 'R' }, { "1, 2", "2", 'R' }, { "1e999", "1", 'N' },
        { "18", "9 * 2\n#### 18", 'R' });
    RUN(RIG_KEYS("grader", "numeric", "take", "first"),
        { "42, then 41", "42", 'R' });
    RUN(RIG_KEYS("grader", "numeric", "tolerance", "0.5"),
        { "42.5", "42", 'R' }, { "42.6", "42", 'W' });
    RUN(RIG_KEYS("grader", "numeric", "rel_tolerance", "0.01", "tolerance",
                 "0"),
        { "-101", "-100", 'R' }, { "-102", "-100", 'W' });
    RUN(RIG_KEYS("grader", "numeric", "after", "="), { "5 = 6", "6", 'R' },
        { "6", "6", 'N' });
}

static void regex_compares_what_it_finds(void **state)
{
    (void)state;
    RUN(RIG_KEYS("grader", "regex", "pattern", "<a>(.*?)</a>"),
        { "<a>1</a><a> 42 </a>", "42", 'R' },
        { "<a>42</a><a>1</a>", "42", 'W' }, { "42", "42", 'N' },
        { "", "42", 'N' }, { "\xFF<a>42</a>\x80", "42", 'R' },
        { "<a>\xC3\xA9</a>", "\xC3\xA9", 'R' });
    RUN(RIG_KEYS("grader", "regex", "pattern", "<a>(.*?)</a>", "take", "first"),
        { "<a>42</a><a>1</a>", "42", 'R' });
    RUN(RIG_KEYS("grader", "regex", "pattern", "[0-9]+"), { "x42y", "42", 'R' },
        { "x42y7", "42", 'W' });
    RUN(RIG_KEYS("grader", "regex", "pattern", "(a)|b"), { "ab", "a", 'N' },
        { "ba", "a", 'R' });
    RUN(RIG_KEYS("grader", "regex", "pattern", "x*"), { "yxxy", "", 'R' });
    RUN(RIG_KEYS("grader", "regex", "pattern", "once", "match_only", "true"),
        { "there once was", "", 'R' }, { "there was", "", 'N' });
    RUN(RIG_KEYS("grader", "regex", "pattern", "(yes|no)", "ignore_case",
                 "true"),
        { "yes", "YES", 'R' });
    RUN(RIG_KEYS("grader", "regex", "pattern", "[0-9]+", "search_bytes", "3"),
        { "42xxx", "42", 'N' }, { "xx42x", "42", 'R' });
}

static void scores_come_in_order_of_submission(void **state)
{
    (void)state;
    rig r;
    rig_open(&r, RIG_KEYS("score", "3"));
    rig_is_empty(&r);
    assert_int_equal(r.ops->submit(r.self, NULL, 0, sizeof(xray_sample_in)),
                     XRAY_OK);
    struct {
        xray_sample_in in;
        uint64_t more[3]; /* a longer struct of a later ABI */
    } samples[5] = { 0 };
    for (uint64_t round = 0; round < 3; round++) {
        for (uint64_t i = 0; i < 5; i++)
            samples[i].in =
                rig_sample(100 - 7 * i + round, i % 2 ? "a" : "b", 1, "a");
        assert_int_equal(
            r.ops->submit(r.self, &samples[0].in, 5, sizeof(samples[0])),
            XRAY_OK);
        if (round == 0)
            continue; /* ten samples are outstanding */
        for (uint64_t k = 0; k < (round == 1 ? 10u : 5u); k++) {
            uint64_t i = k % 5;
            uint64_t of = round == 1 && k < 5 ? 0 : round;
            xray_score score = rig_next_score(&r);
            assert_int_equal(score.id, 100 - 7 * i + of);
            assert_true(score.score == (i % 2 ? 3.0 : 0.0));
        }
        rig_is_empty(&r);
    }
    rig_close(&r);
}

/* A caller that was compiled against an older version. */
static void scores_of_older_callers_are_filled(void **state)
{
    (void)state;
    rig r;
    xray_score score;
    const xray_sample_in sample = rig_sample(7, "a", 1, "a");
    rig_open(&r, RIG_KEYS("grader", "exact"));
    for (size_t size = sizeof(xray_header); size <= sizeof(score); size += 8)
        assert_int_equal(r.ops->submit(r.self, &sample, 1, sizeof(sample)),
                         XRAY_OK);
    EXPECT_FILLED_IN_REACH(xray_score, score, value_count,
                           r.ops->poll(r.self, 0, &score));
    assert_int_equal(score.id, 7);
    rig_is_empty(&r);
    rig_close(&r);
}

static void invalid_options_are_refused(void **state)
{
    (void)state;
    rig_refuse(RIG_KEYS("grader", "regex"), "pattern");
    rig_refuse(RIG_KEYS("grader", "regex", "pattern", "ab(c"),
               "pattern: at offset 4: missing closing parenthesis");
    rig_refuse(RIG_KEYS("grader", "regex", "pattern", "a\\C"),
               "pattern: at offset");
    rig_refuse(RIG_KEYS("grader", "regex", "pattern", "\xFF"),
               "pattern: at offset");
    rig_refuse(RIG_KEYS("pattern", "a"), "pattern: only grader = regex");
    rig_refuse(RIG_KEYS("grader", "gsm8k", "after", "x"), "after");
    rig_refuse(RIG_KEYS("search_bytes", "1"),
               "search_bytes: only grader = regex");
    rig_refuse(
        RIG_KEYS("grader", "gsm8k", "take", "first"),
        "take: only grader = numeric, regex use it; remove the key or set "
        "one of them");
    rig_refuse(RIG_KEYS("grader", "regex", "pattern", "a", "tolerance", "0"),
               "tolerance: only grader = numeric");
    rig_refuse(RIG_KEYS("grader", "numeric", "trim", "false"), "trim");
    rig_refuse(RIG_KEYS("method", "flexible"), "method");
    rig r;
    rig_open(&r, NULL);
    r.ops->destroy(NULL);
    rig_close(&r);
}

static void a_truth_without_number_is_warned_of_once(void **state)
{
    (void)state;
    rig r;
    rig_open(&r, RIG_KEYS("grader", "numeric"));
    assert_int_equal(rig_judge(&r, "42", 2, ""), 'N');
    assert_int_equal(rig_judge(&r, "42", 2, "forty-two"), 'N');
    assert_int_equal(r.host.warnings, 1);
    rig_close(&r);
}

/* Every key that a grader names is in the table, and some grader uses every key
 * of the table. */
static void graders_and_options_name_the_same_keys(void **state)
{
    (void)state;
    char known[4096] = " ";
    for (uint32_t i = 0; i < rule_option_count; i++) {
        int used = strcmp(rule_options[i].name, "grader") == 0;
        for (int64_t g = 0; g < RULE_GRADER_COUNT; g++)
            used |=
                rule_uses_key(rule_grader_at(g)->keys, rule_options[i].name);
        if (!used)
            fail_msg("no grader uses %s", rule_options[i].name);
        strncat(known, rule_options[i].name, 64);
        strncat(known, " ", 2);
    }
    for (int64_t g = 0; g < RULE_GRADER_COUNT; g++) {
        char keys[1024];
        (void)snprintf(keys, sizeof(keys), "%s", rule_grader_at(g)->keys);
        char *rest = keys;
        for (char *key; (key = strtok_r(rest, " ", &rest));)
            if (!rule_uses_key(known, key))
                fail_msg("%s: no option %s", rule_grader_name(g), key);
        assert_non_null(rule_grader_at(g)->grade);
    }
}

#define SCORES "score format_score no_answer_score "
#define MATH SCORES "after extract"
#define BY_VALUE MATH " tolerance allow_set_relation_comp"
static const struct {
    const char *grader;
    const char *keys; /* as the table of docs/rewards.md has them */
} own_keys[] = {
    { "exact", SCORES "after trim ignore_case" },
    { "numeric", SCORES "after take tolerance rel_tolerance" },
    { "regex", SCORES "after pattern take trim ignore_case match_only "
                      "search_bytes" },
    { "gsm8k", SCORES "method" },
    { "math", MATH },
    { "math_minerva", MATH },
    { "math_prm800k", MATH },
    { "math_dapo", MATH },
    { "math_slime", MATH },
    { "math_verify", BY_VALUE },
    { "math_areal", BY_VALUE },
    { "choice", SCORES "after method option_count index_from" },
    { "gpqa", SCORES "after option_count index_from" },
    { "qa", SCORES "after match" },
    { "search_r1", SCORES "match" },
    { "format", "score format_score format" },
    { "tag_count", "score format_score" },
    { "reasoning_steps", "score format_score" },
    { "length", "shape unit max_response_length target_length length_coef "
                "length_offset base" },
    { "overlong", "max_response_length overlong_buffer_len "
                  "overlong_penalty_factor" },
    { "length_group", "base unit" },
    { "cosine", "base unit max_response_length min_value_wrong "
                "max_value_wrong min_value_correct max_value_correct" },
    { "repetition", "ngram_size max_penalty unit" },
    { "language", SCORES "after language scoring min_share" },
    { "ifeval", SCORES "after scoring loose" },
};

/* A key that is not among them is refused, as one that has no effect. */
static void each_grader_uses_the_documented_keys(void **state)
{
    (void)state;
    assert_int_equal(sizeof(own_keys) / sizeof(own_keys[0]), RULE_GRADER_COUNT);
    for (int64_t g = 0; g < RULE_GRADER_COUNT; g++) {
        size_t row = 0;
        while (strcmp(own_keys[row].grader, rule_grader_name(g)) != 0)
            assert_true(++row < RULE_GRADER_COUNT);
        for (uint32_t i = 0; i < rule_option_count; i++) {
            const char *key = rule_options[i].name;
            if (rule_uses_key(rule_grader_at(g)->keys, key) !=
                rule_uses_key(own_keys[row].keys, key))
                fail_msg("%s: %s", own_keys[row].grader, key);
        }
    }
}

/* ---- hostile text ----------------------------------------------------------
 */

static const char *const *const hostile_keys[] = {
    RIG_KEYS("grader", "exact", "after", "##"),
    RIG_KEYS("grader", "exact", "ignore_case", "true"),
    RIG_KEYS("grader", "numeric"),
    RIG_KEYS("grader", "numeric", "take", "first"),
    RIG_KEYS("grader", "regex", "pattern", "#(\\d*)\\W?"),
    RIG_KEYS("grader", "regex", "pattern", "(?<=.)\\b|\\X(?=(.))"),
    RIG_KEYS("grader", "gsm8k"),
    RIG_KEYS("grader", "gsm8k", "method", "flexible"),
};

static void random_bytes_are_graded(void **state)
{
    (void)state;
    static const char alphabet[] = "0123456789.,-+eE$# \n\xE2\x88\x92\xC3\xFF";
    uint32_t seed = 1;
    for (size_t k = 0; k < sizeof(hostile_keys) / sizeof(hostile_keys[0]);
         k++) {
        rig r;
        rig_open(&r, hostile_keys[k]);
        for (int i = 0; i < 1500; i++) {
            seed = seed * 1664525u + 1013904223u;
            size_t size = (seed >> 16) % (i % 50 ? 40 : 2000);
            /* The allocation has the exact size, so that sanitizers notice a
             * read beyond it. */
            char *text = malloc(size ? size : 1);
            assert_non_null(text);
            for (size_t j = 0; j < size; j++) {
                seed = seed * 1664525u + 1013904223u;
                text[j] = i % 2 ? alphabet[(seed >> 16) % sizeof(alphabet)]
                                : (char)(seed >> 24);
            }
            char got = rig_judge(&r, text, size, "5");
            assert_true(got == 'R' || got == 'W' || got == 'N');
            free(text);
        }
        rig_close(&r);
    }
}

static void huge_texts_are_graded(void **state)
{
    (void)state;
    static const char fill[] = { 'a', '1', ',', '.', '-', '#', '\0', '\x80' };
    const size_t size = 4u << 20;
    char *text = malloc(size);
    assert_non_null(text);
    for (size_t k = 0; k < sizeof(hostile_keys) / sizeof(hostile_keys[0]);
         k++) {
        rig r;
        rig_open(&r, hostile_keys[k]);
        for (size_t f = 0; f < sizeof(fill); f++) {
            memset(text, fill[f], size);
            (void)rig_judge(&r, text, size, "5");
        }
        rig_close(&r);
    }
    free(text);
}

/* Patterns with exponential, cubic or quadratic work end the same way each time
 * and do not affect the next sample. The last pattern does little work at each
 * offset, but does it at every offset. */
static void explosive_patterns_end_after_their_steps(void **state)
{
    (void)state;
    static const char *const patterns[] = { "(a+)+[bx]", "(a|aa)+$|[bx]",
                                            "a*a*a*[bx]", "(a*)(a*)\\2\\1[bx]",
                                            "(?:a)*[bx]" };
    char text[4097];
    memset(text, 'a', 4096);
    text[4096] = 'c';
    for (size_t p = 0; p < sizeof(patterns) / sizeof(patterns[0]); p++) {
        rig r;
        rig_open(&r, RIG_KEYS("grader", "regex", "pattern", patterns[p],
                              "match_only", "true"));
        assert_int_equal(rig_judge(&r, text, sizeof(text), ""), 'N');
        assert_int_equal(r.host.warnings, 1);
        assert_int_equal(rig_judge(&r, text, sizeof(text), ""), 'N');
        assert_int_equal(rig_judge(&r, "ab", 2, ""), 'R');
        assert_int_equal(r.host.warnings, 1);
        rig_close(&r);
    }
}

/* At this size, work that grows with the square of the text would take minutes:
 * many matches, an item that passes over the entire text from every offset, and
 * many matches in text that is not UTF-8, which only the steps bound. */
static void long_texts_end_after_the_steps_of_a_pattern(void **state)
{
    (void)state;
    enum { SIZE = 900000 };
    char *text = malloc(SIZE);
    assert_non_null(text);
    memset(text, 'a', SIZE);
    rig r;
    rig_open(&r, RIG_KEYS("grader", "regex", "pattern", "a", "search_bytes",
                          "1048576"));
    assert_int_equal(rig_judge(&r, text, SIZE, "a"), 'R');
    assert_int_equal(r.host.warnings, 0);
    text[SIZE - 1] = '\xFF';
    assert_int_equal(rig_judge(&r, text, SIZE, "a"), 'N');
    assert_int_equal(r.host.warnings, 1);
    assert_int_equal(rig_judge(&r, text + SIZE - 8192, 8192, "a"), 'R');
    rig_close(&r);
    text[SIZE - 1] = 'a';
    rig_open(&r, RIG_KEYS("grader", "regex", "pattern", "[ab]*[cd]",
                          "search_bytes", "1048576"));
    assert_int_equal(rig_judge(&r, text, SIZE, "a"), 'N');
    assert_int_equal(r.host.warnings, 1);
    rig_close(&r);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exact_compares_the_entire_text),
        cmocka_unit_test(numeric_compares_numbers),
        cmocka_unit_test(regex_compares_what_it_finds),
        cmocka_unit_test(scores_come_in_order_of_submission),
        cmocka_unit_test(scores_of_older_callers_are_filled),
        cmocka_unit_test(invalid_options_are_refused),
        cmocka_unit_test(graders_and_options_name_the_same_keys),
        cmocka_unit_test(each_grader_uses_the_documented_keys),
        cmocka_unit_test(a_truth_without_number_is_warned_of_once),
        cmocka_unit_test(random_bytes_are_graded),
        cmocka_unit_test(huge_texts_are_graded),
        cmocka_unit_test(explosive_patterns_end_after_their_steps),
        cmocka_unit_test(long_texts_end_after_the_steps_of_a_pattern),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
