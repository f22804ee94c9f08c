/* SPDX-License-Identifier: Apache-2.0
 *
 * The grader "language" measures the share of words in the script of a
 * language, compared with counts by hand.
 */
#include "tests/reward/rig.h"

typedef struct language_case {
    const char *language;
    const char *response;
    double share; /* -1: no words */
} language_case;

#define HAN3 "\xE4\xBD\xA0\xE5\xA5\xBD\xE5\x90\x97"
#define RUSSIAN "\xD0\xBF\xD1\x80\xD0\xB8\xD0\xB2\xD0\xB5\xD1\x82"

static const language_case cases[] = {
    { "en", "Hello, my world 42!", 1 },
    { "en", "", -1 },
    { "en", "1 + 1 = 2 !?", -1 },
    { "en", "\xFF\x80\xC3", -1 },
    { "en", "hello " HAN3, 1.0 / 4 },
    { "zh", "hello " HAN3, 3.0 / 4 },
    /* A character that is a word ends the word before it. */
    { "en", "is" HAN3 "so", 2.0 / 5 },
    { "zh", "is" HAN3 "so", 3.0 / 5 },
    { "ru", RUSSIAN HAN3 RUSSIAN "x", 1.0 / 5 },
    { "zh", "x=1 " HAN3 "\xE3\x80\x82", 3.0 / 4 },
    { "ru", RUSSIAN ", world", 1.0 / 2 },
    { "ru-RU", RUSSIAN, 1 },
    /* One letter of another script makes the word a foreign one. */
    { "ru", RUSSIAN "x " RUSSIAN, 1.0 / 2 },
    { "ru", "x" RUSSIAN, 0 },
    { "ru", "\xD0\xB8\xCC\x81x", 0 },
    { "zh", "\xE3\x81\xAE", 0 },
    { "fr", "\xC3\xA9t\xC3\xA9 no\xC3\xABl", 1 },
    /* A combining accent belongs to its word. */
    { "fr", "e\xCC\x81t", 1 },
    /* Kana and Han are both Japanese, and each character is a word. */
    { "ja", "\xE6\x97\xA5\xE6\x9C\xAC\xE3\x81\xAE ok", 3.0 / 4 },
    { "ko", "\xED\x95\x9C\xEA\xB5\xAD \xEC\x96\xB4", 1 },
    { "el", "\xCE\xB1\xCE\xB2\xCE\xB3 abc", 1.0 / 2 },
    { "hi", "\xE0\xA4\xA8\xE0\xA4\xAE\xE0\xA4\xB8\xE0\xA5\x8D\xE0\xA4\xA4", 1 },
    { "th", "\xE0\xB8\x81\xE0\xB8\xB1\xE0\xB8\x81", 1 },
    { "ar", "\xD8\xB3\xD9\x84\xD8\xA7\xD9\x85", 1 },
    { "he", "\xD7\xA9\xD7\x9C\xD7\x95\xD7\x9D", 1 },
    /* The Cherokee letter belongs to none of the known scripts. */
    { "en", "\xE1\x8E\xA0 a", 1.0 / 2 },
};

static void shares_are_those_counted_by_hand(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const language_case *c = &cases[i];
        rig r;
        rig_open(&r, RIG_KEYS("grader", "language", "language", c->language,
                              "no_answer_score", "-7"));
        xray_sample_in s = rig_sample(1, c->response, strlen(c->response), "");
        xray_score got = rig_score(&r, &s);
        rig_near(got.score, c->share < 0 ? -7 : c->share, c->response);
        rig_near(rig_value(&got, "words_in_language"),
                 c->share < 0 ? 0 : c->share, c->response);
        rig_near(rig_value(&got, "acc"), c->share >= 1, c->response);
        rig_near(rig_value(&got, "answered"), c->share >= 0, c->response);
        rig_close(&r);
    }
}

static void acc_needs_the_smallest_share(void **state)
{
    (void)state;
    rig r;
    rig_open(&r, RIG_KEYS("grader", "language", "language", "en", "scoring",
                          "all", "min_share", "0.75", "format_score", "-1"));
    rig_near(rig_text_score(&r, "a b c " RUSSIAN, ""), 1, "enough");
    rig_near(rig_text_score(&r, "a b " RUSSIAN, ""), -1, "too few");
    rig_close(&r);
    rig_open(&r, RIG_KEYS("grader", "language", "language", "en", "after",
                          "</think>"));
    rig_near(rig_text_score(&r, RUSSIAN "</think>yes", ""), 1, "after");
    rig_near(rig_text_score(&r, "yes", ""), 0, "after");
    rig_close(&r);
}

static void refuses_unknown_languages(void **state)
{
    (void)state;
    rig_refuse(RIG_KEYS("grader", "language"), "language: grader = language");
    static const char *const bad[] = { "xx", "e", "eng", "EN", "\xFF\xFF" };
    for (size_t i = 0; i < 5; i++)
        rig_refuse(RIG_KEYS("grader", "language", "language", bad[i]),
                   "language: the script of");
    rig_refuse(RIG_KEYS("language", "en"), "language: only grader = language");
    rig_refuse(RIG_KEYS("grader", "exact", "scoring", "all"),
               "scoring: only grader = language, ifeval");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shares_are_those_counted_by_hand),
        cmocka_unit_test(acc_needs_the_smallest_share),
        cmocka_unit_test(refuses_unknown_languages),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
