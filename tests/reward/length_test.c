/* SPDX-License-Identifier: Apache-2.0
 *
 * Scores by length and repetition agree with the published formulas.
 */
#include <math.h>

#include "tests/reward/rig.h"

static int32_t zeros[4096];

static xray_sample_in make_sample(const char *response, const char *truth,
                                  uint32_t tokens)
{
    xray_sample_in s = rig_sample(1, response, strlen(response), truth);
    s.ids = zeros;
    s.id_count = tokens;
    return s;
}

static double grade_score(rig *r, const char *response, uint32_t tokens)
{
    xray_sample_in s = make_sample(response, "right", tokens);
    return rig_score(r, &s).score;
}

/* DAPO, eq. 13, L_max 100, L_cache 20, factor f:
 * 0 for n <= 80; f (80 - n) / 20 for 80 < n <= 100; -f for n > 100. */
static void overlong_follows_dapo(void **state)
{
    (void)state;
    rig r;
    rig_open(&r, RIG_KEYS("grader", "overlong", "max_response_length", "100",
                          "overlong_buffer_len", "20",
                          "overlong_penalty_factor", "0.5"));
    static const struct {
        uint32_t tokens;
        double want;
    } cases[] = { { 0, 0 },
                  { 80, 0 },
                  { 81, 0.5 * (80 - 81) / 20 },
                  { 90, 0.5 * (80 - 90) / 20 },
                  { 100, -0.5 },
                  { 101, -0.5 },
                  { 4000, -0.5 } };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        xray_sample_in s = make_sample("", "", cases[i].tokens);
        xray_score got = rig_score(&r, &s);
        rig_near(got.score, cases[i].want, "overlong");
        rig_near(rig_value(&got, "acc"), cases[i].tokens <= 80, "acc");
    }
    rig_close(&r);
    rig_open(&r, RIG_KEYS("grader", "overlong", "max_response_length", "10"));
    rig_near(grade_score(&r, "", 10), 0, "no buffer");
    rig_near(grade_score(&r, "", 11), -1, "no buffer");
    rig_close(&r);
    /* The buffer may be as long as the response; then every token costs. */
    rig_open(&r, RIG_KEYS("grader", "overlong", "max_response_length", "10",
                          "overlong_buffer_len", "10"));
    rig_near(grade_score(&r, "", 0), 0, "all buffer");
    rig_near(grade_score(&r, "", 4), -0.4, "all buffer");
    rig_near(grade_score(&r, "", 10), -1, "all buffer");
    rig_close(&r);
}

static void each_shape_follows_its_formula(void **state)
{
    (void)state;
    rig r;
    rig_open(&r, RIG_KEYS("grader", "length", "max_response_length", "10",
                          "length_coef", "2"));
    rig_near(grade_score(&r, "", 10), 0, "cap");
    rig_near(grade_score(&r, "", 11), -2, "cap");
    rig_close(&r);
    rig_open(&r, RIG_KEYS("grader", "length", "shape", "linear",
                          "max_response_length", "10", "length_coef", "2"));
    rig_near(grade_score(&r, "", 0), 0, "linear");
    rig_near(grade_score(&r, "", 4), -2 * 0.4, "linear");
    rig_near(grade_score(&r, "", 40), -2, "linear");
    rig_close(&r);
    /* L1-Exact: - alpha |n_gold - n| */
    rig_open(&r, RIG_KEYS("grader", "length", "shape", "l1_exact",
                          "target_length", "100", "length_coef", "0.0003"));
    rig_near(grade_score(&r, "", 100), 0, "l1_exact");
    rig_near(grade_score(&r, "", 40), -0.0003 * 60, "l1_exact");
    rig_near(grade_score(&r, "", 170), -0.0003 * 70, "l1_exact");
    rig_close(&r);
    /* L1-Max: right x clip(alpha (n_gold - n) + delta, 0, 1) */
    rig_open(&r,
             RIG_KEYS("grader", "length", "shape", "l1_max", "target_length",
                      "100", "length_coef", "0.01", "base", "exact"));
    rig_near(grade_score(&r, "right", 100), 0.5, "l1_max");
    rig_near(grade_score(&r, "right", 80), 0.7, "l1_max");
    rig_near(grade_score(&r, "right", 10), 1, "l1_max");
    rig_near(grade_score(&r, "right", 190), 0, "l1_max");
    rig_near(grade_score(&r, "wrong", 10), 0, "l1_max");
    rig_close(&r);
}

static void lengths_are_counted_in_their_unit(void **state)
{
    (void)state;
    static const struct {
        const char *unit;
        double n;
    } cases[] = { { "tokens", 7 }, { "characters", 9 }, { "words", 3 } };
    for (size_t i = 0; i < 3; i++) {
        rig r;
        rig_open(&r, RIG_KEYS("grader", "length", "shape", "linear", "unit",
                              cases[i].unit, "max_response_length", "1000"));
        rig_near(grade_score(&r, " \xC3\xA9t\xC3\xA9 b \xFF ", 7),
                 -cases[i].n / 1000, cases[i].unit);
        rig_close(&r);
    }
    /* Text without token ids causes one warning. */
    rig r;
    rig_open(&r, RIG_KEYS("grader", "overlong", "max_response_length", "1"));
    rig_near(grade_score(&r, "text", 0), 0, "no ids");
    rig_near(grade_score(&r, "text", 0), 0, "no ids");
    assert_int_equal(r.host.warnings, 1);
    rig_close(&r);
}

/* open-r1: min + (max - min) (1 + cos(pi n / max_len)) / 2, with the two ends
 * swapped for a wrong response. At n = max_len / 2 the score is half way
 * between them. */
static void cosine_follows_open_r1(void **state)
{
    (void)state;
    rig r;
    rig_open(&r, RIG_KEYS("grader", "cosine", "base", "exact",
                          "max_response_length", "1000"));
    rig_near(grade_score(&r, "right", 0), 1, "short and right");
    rig_near(grade_score(&r, "right", 500), 0.75, "right");
    rig_near(grade_score(&r, "right", 1000), 0.5, "long and right");
    rig_near(grade_score(&r, "right", 4000), 0.5, "beyond the end");
    rig_near(grade_score(&r, "wrong", 0), -1, "short and wrong");
    rig_near(grade_score(&r, "wrong", 500), -0.75, "wrong");
    rig_near(grade_score(&r, "wrong", 1000), -0.5, "long and wrong");
    for (uint32_t n = 0; n <= 1000; n += 7) {
        double c = cos(3.14159265358979323846 * n / 1000);
        rig_near(grade_score(&r, "right", n), 0.5 + 0.5 * 0.5 * (1 + c),
                 "curve");
        rig_near(grade_score(&r, "wrong", n), -0.5 - 0.5 * 0.5 * (1 + c),
                 "curve");
    }
    rig_close(&r);
    rig_open(&r,
             RIG_KEYS("grader", "cosine", "base", "gsm8k", "method", "flexible",
                      "max_response_length", "10", "unit", "characters",
                      "max_value_correct", "2", "min_value_correct", "0"));
    xray_sample_in s = make_sample("it is", "18", 0);
    xray_score got = rig_score(&r, &s);
    rig_near(got.score, -0.75, "the base's answer is missing");
    rig_near(rig_value(&got, "answered"), 0, "answered is the base's");
    s = make_sample("is 18", "18", 0);
    got = rig_score(&r, &s);
    rig_near(got.score, 1, "the base's keys are in use");
    rig_near(rig_value(&got, "acc"), 1, "acc is the base's");
    rig_close(&r);
    /* The base grades the text after `after`; the length is that of the entire
     * response. */
    rig_open(&r, RIG_KEYS("grader", "cosine", "base", "exact", "after", "#",
                          "max_response_length", "12", "unit", "characters"));
    rig_near(grade_score(&r, "#right", 0), 0.75, "after");
    rig_close(&r);
}

/* Kimi k1.5, sec. 2.3.3: lambda = 0.5 - (n - min) / (max - min) over the group
 * of a prompt; min(0, lambda) for a wrong response; 0 if max = min. */
static void length_group_follows_kimi(void **state)
{
    (void)state;
    static const struct {
        const char *prompt;
        const char *truth;
        const char *response;
        uint32_t tokens;
        double want;
    } rows[] = {
        { "p", "right", "right", 10, 0.5 },
        { "q", "right", "right", 7, 0 },
        { "p", "right", "right", 20, 0 },
        { "p", "other", "right", 60, -0.5 },
        { "p", "right", "right", 30, -0.5 },
        { "p", "right", "wrong", 10, 0 },
        { "p", "right", "wrong", 25, -0.25 },
        { "q", "right", "wrong", 7, 0 },
        { "r", "right", "right", 900, 0 },
        { "p", "other", "other", 50, 0.5 },
        { "p", "right", "wrong", 30, -0.5 },
    };
    enum { ROWS = sizeof(rows) / sizeof(rows[0]) };
    rig r;
    rig_open(&r, RIG_KEYS("grader", "length_group", "base", "exact"));
    xray_sample_in samples[ROWS];
    for (uint64_t i = 0; i < ROWS; i++) {
        samples[i] =
            make_sample(rows[i].response, rows[i].truth, rows[i].tokens);
        samples[i].prompt = rows[i].prompt;
        samples[i].id = 10 + i;
    }
    for (int round = 0; round < 2; round++) {
        assert_int_equal(
            r.ops->submit(r.self, samples, ROWS, sizeof(samples[0])), XRAY_OK);
        for (uint64_t i = 0; i < ROWS; i++) {
            xray_score got = rig_next_score(&r);
            assert_int_equal(got.id, 10 + i);
            rig_near(got.score, rows[i].want, rows[i].response);
            rig_near(rig_value(&got, "acc"),
                     strcmp(rows[i].response, rows[i].truth) == 0, "acc");
        }
        rig_is_empty(&r);
    }
    rig_near(grade_score(&r, "right", 5), 0, "alone");
    rig_close(&r);
}

/* Batches of any size after one another, each a group of its own. */
static void groups_may_grow(void **state)
{
    enum { MOST = 20 };
    (void)state;
    rig r;
    xray_sample_in samples[MOST];
    rig_open(&r, RIG_KEYS("grader", "length_group", "base", "exact"));
    for (uint32_t i = 0; i < MOST; i++)
        samples[i] = make_sample("right", "right", i);
    for (uint32_t count = 2; count <= MOST; count++) {
        assert_int_equal(
            r.ops->submit(r.self, samples, count, sizeof(samples[0])), XRAY_OK);
        for (uint32_t i = 0; i < count; i++)
            rig_near(rig_next_score(&r).score, 0.5 - (double)i / (count - 1),
                     "group");
    }
    rig_close(&r);
}

/* A score by length has the base's verdict and none of its metrics. */
static void metrics_of_a_base_are_left_out(void **state)
{
    (void)state;
    const char *const *const keys[] = {
        RIG_KEYS("grader", "cosine", "base", "qa", "max_response_length", "9"),
        RIG_KEYS("grader", "length_group", "base", "qa"),
        RIG_KEYS("grader", "length", "shape", "l1_max", "base", "qa",
                 "target_length", "9"),
    };
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
        rig r;
        rig_open(&r, keys[i]);
        const xray_sample_in s = make_sample("right", "right", 3);
        xray_score got = rig_score(&r, &s);
        assert_int_equal(got.value_count, 2);
        rig_near(rig_value(&got, "acc"), 1, "acc");
        rig_close(&r);
    }
}

/* The score is max_penalty * (1 - distinct n-grams / n-grams). */
static void repetition_counts_repeated_ngrams(void **state)
{
    (void)state;
    rig r;
    static const int32_t ids[] = { 1, 2, 3, 4, 5, 5, 5, 5, 5 };
    xray_sample_in s = rig_sample(1, "x", 1, "");
    rig_open(&r, RIG_KEYS("grader", "repetition", "ngram_size", "2"));
    s.ids = ids;
    s.id_count = 4;
    xray_score got = rig_score(&r, &s);
    rig_near(got.score, 0, "nothing repeats");
    rig_near(rig_value(&got, "acc"), 1, "nothing repeats");
    s.ids = ids + 4;
    s.id_count = 5;
    got = rig_score(&r, &s);
    rig_near(got.score, -0.75, "one of four runs is new");
    rig_near(rig_value(&got, "repeated"), 0.75, "one of four runs is new");
    s.id_count = 1;
    rig_near(rig_score(&r, &s).score, 0, "shorter than a run");
    rig_close(&r);
    rig_open(&r, RIG_KEYS("grader", "repetition", "unit", "words",
                          "max_penalty", "-2"));
    rig_near(grade_score(&r, "a b c a B C", 0), -2 * (1 - 3.0 / 4), "words");
    rig_near(grade_score(&r, "a b", 0), 0, "too few words");
    rig_near(grade_score(&r, "", 0), 0, "no words");
    rig_near(grade_score(&r, "ab c d a bc d", 0), 0, "words have edges");
    rig_near(grade_score(&r, "x\xE3\x80\x80x\nx\tx", 0), -2 * 0.5, "any blank");
    char many[2048] = "";
    for (int i = 0; i < 200; i++)
        (void)snprintf(many + strlen(many), 16, "w%d ", i);
    rig_near(grade_score(&r, many, 0), 0, "many different words");
    assert_int_equal(r.host.warnings, 0);
    rig_close(&r);
}

static void refuses_keys_that_have_no_effect(void **state)
{
    (void)state;
    rig_refuse(RIG_KEYS("grader", "overlong"),
               "max_response_length: grader = overlong needs it");
    rig_refuse(RIG_KEYS("grader", "overlong", "max_response_length", "5",
                        "overlong_buffer_len", "6"),
               "overlong_buffer_len: 6 is more than max_response_length = 5");
    rig_refuse(RIG_KEYS("grader", "length"), "max_response_length");
    rig_refuse(RIG_KEYS("grader", "length", "shape", "l1_exact",
                        "target_length", "5", "base", "gsm8k"),
               "base: only shape = l1_max uses it");
    rig_refuse(RIG_KEYS("grader", "length", "shape", "l1_exact"),
               "target_length: grader = length needs it");
    rig_refuse(RIG_KEYS("grader", "length", "shape", "l1_exact",
                        "target_length", "5", "max_response_length", "5"),
               "max_response_length: only shape = cap, linear");
    rig_refuse(RIG_KEYS("grader", "length", "max_response_length", "5",
                        "target_length", "5"),
               "target_length: only shape");
    rig_refuse(
        RIG_KEYS("grader", "length", "shape", "l1_max", "target_length", "5"),
        "base: grader = length needs a base");
    rig_refuse(RIG_KEYS("grader", "length", "max_response_length", "5", "base",
                        "exact"),
               "base: only shape = l1_max");
    rig_refuse(RIG_KEYS("grader", "cosine", "max_response_length", "5"),
               "base: grader = cosine needs a base");
    rig_refuse(RIG_KEYS("grader", "cosine", "base", "gsm8k"),
               "max_response_length: grader = cosine needs it");
    rig_refuse(RIG_KEYS("grader", "length_group"), "base: grader = length_gr");
    rig_refuse(RIG_KEYS("grader", "cosine", "base", "length",
                        "max_response_length", "5"),
               "base: length does not decide whether an answer is right");
    rig_refuse(RIG_KEYS("grader", "cosine", "base", "regex",
                        "max_response_length", "5"),
               "pattern: grader = regex needs a pattern");
    rig_refuse(RIG_KEYS("grader", "cosine", "base", "regex", "pattern", "(",
                        "max_response_length", "5"),
               "pattern: at offset");
    rig_refuse(RIG_KEYS("grader", "cosine", "base", "exact", "take", "first",
                        "max_response_length", "5"),
               "take: only grader = numeric, regex");
    rig_refuse(RIG_KEYS("grader", "exact", "base", "gsm8k"),
               "base: only grader = length, length_group, cosine");
    rig_refuse(RIG_KEYS("grader", "repetition", "unit", "characters"),
               "unit: grader = repetition");
    rig_refuse(RIG_KEYS("grader", "repetition", "score", "2"), "score: only");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(overlong_follows_dapo),
        cmocka_unit_test(each_shape_follows_its_formula),
        cmocka_unit_test(lengths_are_counted_in_their_unit),
        cmocka_unit_test(cosine_follows_open_r1),
        cmocka_unit_test(length_group_follows_kimi),
        cmocka_unit_test(groups_may_grow),
        cmocka_unit_test(metrics_of_a_base_are_left_out),
        cmocka_unit_test(repetition_counts_repeated_ngrams),
        cmocka_unit_test(refuses_keys_that_have_no_effect),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
