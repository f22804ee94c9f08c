/* SPDX-License-Identifier: Apache-2.0
 *
 * The graders at their edges: bounds of options, warnings, precedence of keys,
 * and the last entry of each list.
 */
#include "tests/reward/rig.h"

#define RUN RIG_RUN

/* ---- warnings ----------------------------------------------------------- */

static const struct remark {
    const char *const *keys;
    const char *response;
    const char *truth;
    const char *said; /* NULL: nothing */
} remarks[] = {
#define JSON                                                                  \
    "its ground truth is a JSON list or object, which only qa and search_r1 " \
    "read"
    { RIG_KEYS("grader", "exact"), "x", "[\"a\"]", JSON },
    { RIG_KEYS("grader", "exact"), "x", " {\"target\": 1}", JSON },
    { RIG_KEYS("grader", "exact"), "x", "[ \"a\"]", JSON },
    { RIG_KEYS("grader", "exact"), "x", "[1, 2]", NULL },
    { RIG_KEYS("grader", "exact"), "x", "{1}", NULL },
    { RIG_KEYS("grader", "exact"), "x", "(\"a\")", NULL },
    { RIG_KEYS("grader", "exact"), "x", "[", NULL },
    { RIG_KEYS("grader", "exact"), "x", "", NULL },
    { RIG_KEYS("grader", "exact"), "[\"a\"]", "[\"a\"]", NULL },
    { RIG_KEYS("grader", "gsm8k"), "#### 1", "[\"1\"]", JSON },
    { RIG_KEYS("grader", "regex", "pattern", "a"), "a", "[\"1\"]", JSON },
    { RIG_KEYS("grader", "regex", "pattern", "b", "match_only", "true"), "a",
      "[\"1\"]", NULL },
    { RIG_KEYS("grader", "qa"), "x", "[\"a\"]", NULL },
    { RIG_KEYS("grader", "search_r1"), "x", "[\"a\"]", NULL },
    { RIG_KEYS("grader", "format"), "x", "[\"a\"]", NULL },
    { RIG_KEYS("grader", "tag_count"), "x", "[\"a\"]", NULL },
    { RIG_KEYS("grader", "language", "language", "en"), "1", "[\"a\"]", NULL },
    { RIG_KEYS("grader", "numeric"), "1", "one",
      "its ground truth holds no number" },
    { RIG_KEYS("grader", "choice"), "A", "Paris",
      "its ground truth is not the letter or number of an option" },
    { RIG_KEYS("grader", "gpqa"), "A", "Paris", NULL },
    { RIG_KEYS("grader", "overlong", "max_response_length", "5"), "x", "",
      "it has text but no token ids, so its length in tokens is 0" },
    { RIG_KEYS("grader", "repetition"), "x", "",
      "it has text but no token ids to compare" },
    { RIG_KEYS("grader", "overlong", "max_response_length", "5"), "", "",
      NULL },
    { RIG_KEYS("grader", "ifeval"), "x", "",
      "its row has no instruction_id_list" },
};

static void warns_once_about_samples_it_cannot_grade(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(remarks) / sizeof(remarks[0]); i++) {
        rig r;
        char want[256] = "";
        const struct remark *k = &remarks[i];
        rig_open(&r, k->keys);
        for (int again = 0; again < 2; again++)
            (void)rig_judge(&r, k->response, strlen(k->response), k->truth);
        if (k->said)
            (void)snprintf(want, sizeof(want),
                           "sample 77 could not be graded properly: %s "
                           "(reported only once)",
                           k->said);
        if (strcmp(r.host.line, want) != 0 ||
            r.host.warnings != (k->said != NULL))
            fail_msg("%s %s, truth %s: '%s'", k->keys[1], k->response, k->truth,
                     r.host.line);
        rig_close(&r);
    }
}

static void a_length_in_tokens_needs_token_ids(void **state)
{
    (void)state;
    static const int32_t ids[] = { 1 };
    rig r;
    rig_open(&r, RIG_KEYS("grader", "repetition"));
    xray_sample_in s = rig_sample(1, "x", 1, "");
    s.ids = ids;
    s.id_count = 1;
    (void)rig_score(&r, &s);
    assert_int_equal(r.host.warnings, 0);
    s.id_count = 0;
    (void)rig_score(&r, &s);
    assert_int_equal(r.host.warnings, 1);
    rig_close(&r);
}

/* A key that no chosen grader reads is refused for that reason first. */
static void a_refusal_names_the_graders_that_use_a_key(void **state)
{
    (void)state;
    rig_refuse(RIG_KEYS("grader", "exact", "base", "regex"),
               "base: only grader = length, length_group, cosine use it; "
               "remove the key or set one of them");
    rig_refuse(RIG_KEYS("grader", "gsm8k", "after", "####"),
               "after: grader = gsm8k finds the answer by its own rule; remove "
               "the key");
    rig_refuse(RIG_KEYS("loose", "true"),
               "loose: only grader = ifeval uses it; remove the key or set "
               "that grader");
    rig_refuse(RIG_KEYS("score", "2", "max_penalty", "-2"),
               "max_penalty: only grader = repetition uses it");
    rig_refuse(
        RIG_KEYS("grader", "length_group", "base", "tag_count"),
        "base: tag_count does not decide whether an answer is right; name "
        "a grader that does");
}

/* ---- scores ------------------------------------------------------------- */

/* Right, wrong and no answer each set the score, acc and answered. */
static void each_outcome_has_its_score(void **state)
{
    (void)state;
    static const struct {
        const char *response;
        double score;
        double acc;
        double answered;
    } rows[] = { { "42", 3, 1, 1 },
                 { "41", -2, 0, 1 },
                 { "4", -2, 0, 1 },
                 { " \n", -5, 0, 0 },
                 { "", -5, 0, 0 } };
    rig r;
    rig_open(&r, RIG_KEYS("score", "3", "format_score", "-2", "no_answer_score",
                          "-5"));
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        xray_sample_in s =
            rig_sample(i + 5, rows[i].response, strlen(rows[i].response), "42");
        xray_score got = rig_score(&r, &s);
        assert_int_equal(got.id, i + 5);
        assert_int_equal(got.value_count, 2);
        rig_near(got.score, rows[i].score, "score");
        rig_near(got.values[0].value, rows[i].acc, "acc");
        rig_near(got.values[1].value, rows[i].answered, "answered");
    }
    /* An empty response is right if the ground truth is empty. */
    xray_sample_in s = rig_sample(1, "", 0, "");
    xray_score got = rig_score(&r, &s);
    rig_near(got.score, 3, "nothing");
    rig_near(got.values[1].value, 1, "nothing");
    /* NULL as response or truth counts as empty text. */
    s = rig_sample(1, NULL, 0, NULL);
    rig_near(rig_score(&r, &s).score, 3, "NULL");
    rig_close(&r);
}

static void scores_default_to_one_and_zero(void **state)
{
    (void)state;
    rig r;
    rig_open(&r, NULL);
    rig_near(rig_text_score(&r, "a", "a"), 1, "right");
    rig_near(rig_text_score(&r, "b", "a"), 0, "wrong");
    rig_near(rig_text_score(&r, "", "a"), 0, "none");
    rig_close(&r);
}

/* ---- exact, numeric, regex ---------------------------------------------- */

static void absolute_and_relative_tolerance_add_up(void **state)
{
    (void)state;
    RUN(RIG_KEYS("grader", "numeric", "tolerance", "1", "rel_tolerance", "0.5"),
        { "16", "10", 'R' }, { "16.1", "10", 'W' }, { "4", "10", 'R' },
        { "3.9", "10", 'W' }, { "-16", "-10", 'R' }, { "-16.1", "-10", 'W' },
        { "0.9", "0", 'R' }, { "1.1", "0", 'W' });
    RUN(RIG_KEYS("grader", "numeric"), { "1.0000009", "1", 'R' },
        { "1.0000011", "1", 'W' }, { "2", "1 then 2", 'R' },
        { "1", "1 then 2", 'W' });
    RUN(RIG_KEYS("grader", "numeric", "tolerance", "0"), { "5", "5", 'R' },
        { "5.0000001", "5", 'W' });
}

static void a_pattern_answers_with_its_group_or_match(void **state)
{
    (void)state;
    RUN(RIG_KEYS("grader", "regex", "pattern", "a(b)(c)?"), { "abc", "b", 'R' },
        { "abc", "c", 'W' }, { "ab ab", "b", 'R' });
    RUN(RIG_KEYS("grader", "regex", "pattern", "(x)?b", "match_only", "true"),
        { "b", "", 'R' }, { "xb", "", 'R' }, { "x", "", 'N' });
    RUN(RIG_KEYS("grader", "regex", "pattern", "."), { "abc", "c", 'R' },
        { "ab\xC3\xA9", "\xC3\xA9", 'R' });
    RUN(RIG_KEYS("grader", "regex", "pattern", ".", "take", "first"),
        { "abc", "a", 'R' });
    RUN(RIG_KEYS("grader", "regex", "pattern", "x*|b"), { "ab", "", 'R' },
        { "abx", "", 'R' });
    RUN(RIG_KEYS("grader", "regex", "pattern", "aa"), { "aaa", "aa", 'R' });
    RUN(RIG_KEYS("grader", "regex", "pattern", "a|(?<=a)b|c"),
        { "ab", "b", 'R' }, { "abc", "c", 'R' });
    RUN(RIG_KEYS("grader", "regex", "pattern", "[A-Z]+", "trim", "false"),
        { "AB", "AB ", 'W' }, { "AB", "AB", 'R' });
    RUN(RIG_KEYS("grader", "regex", "pattern", "\\s*(.*)", "trim", "true",
                 "take", "first"),
        { " x ", "x", 'R' });
    RUN(RIG_KEYS("grader", "regex", "pattern", "^.", "search_bytes", "2"),
        { "abc", "b", 'R' },
        { "a\xC3\xA9"
          "b",
          "b", 'R' },
        { "a\xC3\xA9", "\xC3\xA9", 'R' });
    RUN(RIG_KEYS("grader", "regex", "pattern", "q", "after", "::"),
        { "q::x", "q", 'N' }, { "x::q", "q", 'R' }, { "q", "q", 'N' });
}

/* ---- choice and gpqa ---------------------------------------------------- */

static void choice_accepts_only_letters_of_options(void **state)
{
    (void)state;
    RUN(RIG_KEYS("grader", "choice", "option_count", "26"),
        { "Answer: Z", "Z", 'R' }, { "Answer: z", "25", 'R' },
        { "Answer: [", "Z", 'N' }, { "Answer: @", "A", 'N' },
        { "Answer: Z", "26", 'N' });
    RUN(RIG_KEYS("grader", "choice", "option_count", "2"),
        { "Answer: B", "B", 'R' }, { "Answer: C", "B", 'N' },
        { "Answer: A", "C", 'N' });
    RUN(RIG_KEYS("grader", "choice"), { "\\boxed{\\mathbf{B}}", "B", 'R' },
        { "\\boxed{\\mathrm{B}}", "B", 'R' },
        { "\\boxed{\\textbf{B}}", "B", 'R' }, { "\\boxed{B}", "B", 'R' },
        { "\\boxed{B", "B", 'N' }, { "\\boxed{ ( B ) }", "B", 'R' },
        { "\\boxed{A} \\boxed{42}", "A", 'N' },
        { "\\boxed{A} \\boxed{C}", "C", 'R' }, { "Answer is: `B`", "B", 'R' },
        { "Answer - B", "B", 'N' }, { "The answer isB", "B", 'N' },
        { "Answer is B", "B", 'R' }, { "answer _is_ B", "B", 'N' },
        { "Answer: B Answer: Beta", "B", 'R' }, { "Answer:\n B", "B", 'N' },
        { "Answer:'B'", "B", 'R' }, { "[D]", "D", 'R' }, { "(d).", "D", 'R' },
        { "D)", "D", 'R' }, { "D:", "D", 'N' }, { "DD", "D", 'N' },
        { "*D*", "D", 'R' });
    RUN(RIG_KEYS("grader", "choice"), { "Answer: C", "C:", 'R' },
        { "Answer: C", "C: Paris", 'R' }, { "Answer: C", "C) Paris", 'R' },
        { "Answer: C", "C Paris", 'N' }, { "Answer: C", "02", 'R' },
        { "Answer: C", "002", 'R' }, { "Answer: C", "0002", 'N' },
        { "Answer: C", "+2", 'R' });
    RUN(RIG_KEYS("grader", "choice", "method", "flexible"),
        { "it is (b)", "B", 'N' }, { "it is (B", "B", 'R' },
        { "(A) or (B)", "B", 'R' }, { "(E) or B", "B", 'R' },
        { "B's fine", "B", 'N' }, { "A b", "A", 'N' }, { "A B", "B", 'R' },
        { "A. b", "A", 'R' }, { "B ", "B", 'R' }, { "x-B-y", "B", 'R' },
        { "1B", "B", 'N' }, { "B1", "B", 'N' }, { "B\xCC\x81", "B", 'N' });
    RUN(RIG_KEYS("grader", "choice", "index_from", "1"),
        { "Answer: D", "4", 'R' }, { "Answer: A", "0", 'N' },
        { "Answer: D", "5", 'N' });
}

static void gpqa_applies_its_rules_in_order(void **state)
{
    (void)state;
    RUN(RIG_KEYS("grader", "gpqa"), { "answer: B", "B", 'R' },
        { "Option is C", "C", 'R' }, { "CHOICE B", "B", 'R' },
        { "Answer A, option B", "A", 'R' }, { "answer is", "A", 'N' },
        { "the answer: is B", "B", 'R' }, { "B is the correct one", "B", 'R' },
        { "B is correct", "B", 'R' }, { "B isthecorrect", "B", 'R' },
        { "B was correct. D", "D", 'R' }, { "A, then C", "C", 'R' },
        { "AB", "B", 'N' }, { "B1 C_", "B", 'N' }, { "B\xC3\xA9 C", "C", 'R' },
        { "a b", "B", 'N' }, { "answer: Z, but D is correct", "D", 'R' },
        { "answer: Z. D", "D", 'R' }, { "final choice: ok. A", "A", 'R' },
        { "answer A </think> answer B", "B", 'R' },
        { "answer A</think>", "A", 'N' }, { "it is the H2O!", "h2o", 'R' },
        { "it is: H-2-O", "h 2 o", 'R' }, { "- H2O", "H2O.", 'R' },
        { "water", "H2O", 'N' }, { "H2 O", "H2O", 'N' }, { "H2O", "H2 O", 'N' },
        { "", "H2O", 'N' }, { "H2O", "(H2O)", 'R' },
        { "answer: Z. B is correct, not D", "B", 'R' },
        { "answer: Z. final choice: B. D", "D", 'R' },
        { "answer: Z. final answer: B. D", "B", 'R' },
        { "answer: Z. final option: B. D", "B", 'R' },
        { "answer B. D", "B", 'R' }, { "option B. D", "B", 'R' },
        { "choice B. D", "B", 'R' },
        { "answer:\xE3\x80\x80\xC2\xA0"
          "B, not D",
          "B", 'R' });
    RUN(RIG_KEYS("grader", "gpqa", "option_count", "10", "index_from", "1"),
        { "answer: J", "10", 'R' }, { "answer: J", "J", 'R' },
        { "answer: K", "J", 'N' });
    RUN(RIG_KEYS("grader", "gpqa", "after", "::"),
        { "answer A::x B", "B", 'R' });
}

/* ---- format ------------------------------------------------------------- */

static void expect_score(const char *const *keys, const char *response,
                         double want)
{
    rig r;
    rig_open(&r, keys);
    rig_near(rig_text_score(&r, response, ""), want, response);
    rig_close(&r);
}
#define FORM(name) RIG_KEYS("grader", "format", "format", name)

static void forms_are_exact_at_their_edges(void **state)
{
    (void)state;
    expect_score(RIG_KEYS("grader", "format"),
                 "<think>\nx\n</think>\n<answer>\ny\n</answer>", 1);
    expect_score(FORM("think_answer"),
                 "<think>\n</think>\n<answer>\n\n</answer>", 0);
    expect_score(FORM("think_answer"),
                 "<think>\n\n</think>\n<answer>\n</answer>\n</answer>", 1);
    expect_score(FORM("think_answer"),
                 "<think>\nx\n</think>\n<answer>\ny\n</answer> ", 0);
    expect_score(FORM("think_answer_soft"),
                 "<think></think>\t\v\f\r\n<answer></answer>", 1);
    expect_score(FORM("think_answer_soft"),
                 "<think></think><answer> </think><answer>x</answer>", 1);
    expect_score(FORM("think_answer_soft"), "<think><answer></answer>", 0);
    expect_score(FORM("think"), "<think></think>", 1);
    expect_score(FORM("think"), "</think><think>", 0);
    expect_score(FORM("answer"), "<answer>\xC2\xA0</answer>", 0);
    expect_score(FORM("answer"), "<answer>x</answer></answer>", 0);
    expect_score(FORM("answer"), "<answer>x</answer><answer>", 0);
    expect_score(FORM("boxed"), "\\boxed{{a}}", 1);
    expect_score(FORM("boxed"), "{\\boxed{}", 0);
    expect_score(FORM("boxed"), "{\\boxed{} x}", 0);
    expect_score(FORM("boxed"), "\\boxed{\\boxed{}}", 1);
    expect_score(FORM("boxed"), "\\boxed{ \\boxed{", 0);
    expect_score(FORM("boxed"), "\\boxed\\boxed{2}", 1);
    expect_score(RIG_KEYS("grader", "reasoning_steps"), "1.2. x", 1.0 / 3);
    expect_score(RIG_KEYS("grader", "reasoning_steps"), "x\n1. y\n2. z", 0);
    expect_score(RIG_KEYS("grader", "reasoning_steps"), "12 x", 0);
    expect_score(RIG_KEYS("grader", "reasoning_steps"), "Second, Next,",
                 2.0 / 3);
    expect_score(RIG_KEYS("grader", "reasoning_steps"),
                 "Step 1: Step 2: Step 3: Step 4:", 1);
    expect_score(RIG_KEYS("grader", "reasoning_steps", "score", "3",
                          "format_score", "-3"),
                 "First, x", -1);
    expect_score(
        RIG_KEYS("grader", "tag_count", "score", "8", "format_score", "4"),
        "<think>\n", 5);
    expect_score(RIG_KEYS("grader", "tag_count", "score", "8"),
                 "<think>\n\n</think>\n\n<answer>\n\n</answer>", 8);
}

/* ---- lengths and repetition --------------------------------------------- */

static double score_length(const char *const *keys, const char *response,
                           uint32_t tokens, double *out_acc)
{
    static int32_t zeros[64];
    rig r;
    rig_open(&r, keys);
    xray_sample_in s = rig_sample(1, response, strlen(response), "right");
    s.ids = zeros;
    s.id_count = tokens;
    xray_score got = rig_score(&r, &s);
    *out_acc = rig_value(&got, "acc");
    assert_int_equal(rig_value(&got, "answered"), 1);
    rig_close(&r);
    return got.score;
}

static void length_scores_are_exact_at_their_bounds(void **state)
{
    (void)state;
    const struct {
        const char *const *keys;
        const char *response;
        uint32_t tokens;
        double score;
        double acc;
    } rows[] = {
        { RIG_KEYS("grader", "length", "max_response_length", "5"), "x", 5, 0,
          1 },
        { RIG_KEYS("grader", "length", "max_response_length", "5"), "x", 6, -1,
          0 },
        { RIG_KEYS("grader", "length", "shape", "linear", "max_response_length",
                   "5"),
          "x", 5, -1, 1 },
        { RIG_KEYS("grader", "length", "shape", "linear", "max_response_length",
                   "5"),
          "x", 6, -1, 0 },
        { RIG_KEYS("grader", "length", "shape", "l1_exact", "target_length",
                   "5"),
          "x", 5, 0, 1 },
        { RIG_KEYS("grader", "length", "shape", "l1_exact", "target_length",
                   "5"),
          "x", 4, -1, 0 },
        { RIG_KEYS("grader", "length", "shape", "l1_exact", "target_length",
                   "5"),
          "x", 7, -2, 0 },
        { RIG_KEYS("grader", "length", "shape", "l1_max", "target_length", "5",
                   "base", "exact", "length_offset", "0.25", "length_coef",
                   "0.125"),
          "right", 5, 0.25, 1 },
        { RIG_KEYS("grader", "length", "shape", "l1_max", "target_length", "5",
                   "base", "exact", "length_coef", "0.125"),
          "right", 3, 0.75, 1 },
        { RIG_KEYS("grader", "length", "shape", "l1_max", "target_length", "5",
                   "base", "exact", "length_coef", "0.125"),
          "wrong", 3, 0, 0 },
        { RIG_KEYS("grader", "overlong", "max_response_length", "10",
                   "overlong_buffer_len", "4"),
          "x", 6, 0, 1 },
        { RIG_KEYS("grader", "overlong", "max_response_length", "10",
                   "overlong_buffer_len", "4"),
          "x", 7, -0.25, 0 },
        { RIG_KEYS("grader", "overlong", "max_response_length", "10",
                   "overlong_buffer_len", "4"),
          "x", 10, -1, 0 },
        { RIG_KEYS("grader", "cosine", "base", "exact", "max_response_length",
                   "10", "min_value_wrong", "-4", "max_value_wrong", "-2"),
          "wrong", 0, -4, 0 },
        { RIG_KEYS("grader", "cosine", "base", "exact", "max_response_length",
                   "10", "min_value_wrong", "-4", "max_value_wrong", "-2"),
          "wrong", 10, -2, 0 },
        { RIG_KEYS("grader", "cosine", "base", "exact", "max_response_length",
                   "10", "min_value_correct", "2", "max_value_correct", "6"),
          "right", 5, 4, 1 },
        { RIG_KEYS("grader", "repetition", "ngram_size", "4"), "x", 4, 0, 1 },
        { RIG_KEYS("grader", "repetition", "ngram_size", "4"), "x", 5, -0.5,
          0 },
        { RIG_KEYS("grader", "repetition", "ngram_size", "4"), "x", 3, 0, 1 },
        { RIG_KEYS("grader", "repetition"), "x", 3, 0, 1 },
        { RIG_KEYS("grader", "repetition"), "x", 4, -0.5, 0 },
        { RIG_KEYS("grader", "repetition", "max_penalty", "-8"), "x", 6, -6,
          0 },
        { RIG_KEYS("grader", "repetition", "unit", "words", "ngram_size", "1"),
          "a A a b", 0, -0.5, 0 },
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char what[96];
        double acc = 0;
        double got =
            score_length(rows[i].keys, rows[i].response, rows[i].tokens, &acc);
        (void)snprintf(what, sizeof(what), "row %zu, %s, %u tokens", i,
                       rows[i].keys[1], rows[i].tokens);
        rig_near(got, rows[i].score, what);
        rig_near(acc, rows[i].acc, what);
    }
}

/* A base with a state of its own is called with that state. */
static void a_base_has_its_own_state(void **state)
{
    (void)state;
    rig r;
    rig_open(&r,
             RIG_KEYS("grader", "length_group", "base", "qa", "unit", "words"));
    const char *const texts[] = { "the cat", "cat", "a big dog" };
    const double want[] = { 0, 0.5, -0.5 };
    xray_sample_in s[3];
    for (uint64_t i = 0; i < 3; i++)
        s[i] = rig_sample(i, texts[i], strlen(texts[i]), "[\"cat\"]");
    assert_int_equal(r.ops->submit(r.self, s, 3, sizeof(s[0])), XRAY_OK);
    for (int i = 0; i < 3; i++) {
        xray_score got = rig_next_score(&r);
        rig_near(got.score, want[i], texts[i]);
        rig_near(rig_value(&got, "acc"), i < 2, texts[i]);
        assert_int_equal(got.value_count, 2);
    }
    rig_close(&r);
    rig_open(&r, RIG_KEYS("grader", "cosine", "base", "regex", "pattern", "\\d",
                          "take", "first", "unit", "characters",
                          "max_response_length", "2"));
    rig_near(rig_text_score(&r, "7 8", "7"), 0.5, "the base's pattern");
    rig_close(&r);
}

/* ---- qa ----------------------------------------------------------------- */

static void qa_ignores_punctuation_and_articles(void **state)
{
    (void)state;
    static const char marks[] = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~";
    rig r;
    rig_open(&r, RIG_KEYS("grader", "qa"));
    for (const char *c = marks; *c; c++) {
        const char text[] = { 'x', *c, 'y', '\0' };
        rig_near(rig_text_score(&r, text, "xy"), 1, text);
    }
    for (char c = '0'; c <= '9'; c++) {
        const char text[] = { 'x', c, 'y', '\0' };
        rig_near(rig_text_score(&r, text, "xy"), 0, text);
    }
    rig_near(rig_text_score(&r, "", "the"), 1, "an article is nothing");
    rig_near(rig_text_score(&r, "an ant", "ant"), 1, "an");
    rig_near(rig_text_score(&r, "thea", "thea"), 1, "within a word");
    rig_near(rig_text_score(&r, "x", "{\"other\": \"x\"}"), 0, "no target");
    rig_near(rig_text_score(&r, "x", "{\"target\": [1, \"x\"]}"), 1, "a list");
    rig_near(rig_text_score(&r, "x", "[\"y\", 3, \"x\"]"), 1, "a list");
    rig_near(rig_text_score(&r, "y", "  [\"y\"]  "), 1, "blanks");
    rig_close(&r);
    rig_open(&r, RIG_KEYS("grader", "qa", "match", "f1"));
    rig_near(rig_text_score(&r, "x x y", "x y y"), 2.0 * 2 / 6, "f1");
    rig_near(rig_text_score(&r, "x x", "x"), 2.0 / 3, "f1");
    rig_near(rig_text_score(&r, "x y z", "[\"x\", \"y z\"]"), 0.8, "the best");
    rig_close(&r);
    rig_open(&r,
             RIG_KEYS("grader", "qa", "no_answer_score", "-3", "score", "2"));
    rig_near(rig_text_score(&r, " ", "the"), 2, "nothing is right");
    rig_near(rig_text_score(&r, " ", "cat"), -3, "nothing is wrong");
    rig_close(&r);
    rig_open(&r, RIG_KEYS("grader", "qa", "after", "A:"));
    rig_near(rig_text_score(&r, "dog A: cat", "cat"), 1, "after");
    rig_close(&r);
}

static void search_r1_counts_tags(void **state)
{
    (void)state;
    char text[600] = "";
    rig r;
    rig_open(&r, RIG_KEYS("grader", "search_r1", "score", "8"));
    for (int i = 0; i < 10; i++)
        strncat(text, "<answer>", 9);
    strncat(text, "</answer><answer>cat</answer>", 40);
    rig_near(rig_text_score(&r, text, "cat"), 2, "eleven opening tags");
    rig_near(rig_text_score(&r, text + 8, "cat"), 8, "ten");
    rig_near(rig_text_score(&r, text, "dog"), 0, "wrong is wrong");
    rig_near(rig_text_score(&r, "<answer>\n cat\n</answer>", "cat"), 8, "bare");
    rig_near(rig_text_score(&r, "<answer></answer>", ""), 8, "nothing");
    rig_close(&r);
    rig_open(&r, RIG_KEYS("grader", "search_r1", "match", "f1"));
    rig_near(rig_text_score(&r, "<answer>big cat</answer>", "cat"), 2.0 / 3,
             "f1");
    rig_near(rig_text_score(&r, text, "cat"), 1, "no bound of tags");
    rig_close(&r);
}

/* ---- language ----------------------------------------------------------- */

static void a_share_at_the_bound_is_enough(void **state)
{
    (void)state;
    rig r;
    static const char half[] = "yes \xD0\xB4\xD0\xB0";
    rig_open(&r, RIG_KEYS("grader", "language", "language", "en", "min_share",
                          "0.5"));
    xray_sample_in s = rig_sample(1, half, strlen(half), "");
    xray_score got = rig_score(&r, &s);
    rig_near(got.score, 0.5, "a share");
    rig_near(rig_value(&got, "acc"), 1, "enough");
    rig_close(&r);
    rig_open(&r, RIG_KEYS("grader", "language", "language", "en", "min_share",
                          "0.51", "score", "3", "format_score", "1"));
    got = rig_score(&r, &s);
    rig_near(got.score, 2, "a share");
    rig_near(rig_value(&got, "acc"), 0, "not enough");
    rig_close(&r);
    rig_open(&r, RIG_KEYS("grader", "language", "language", "sr"));
    rig_near(rig_text_score(&r, half, ""), 1, "two scripts");
    rig_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(warns_once_about_samples_it_cannot_grade),
        cmocka_unit_test(a_length_in_tokens_needs_token_ids),
        cmocka_unit_test(a_refusal_names_the_graders_that_use_a_key),
        cmocka_unit_test(each_outcome_has_its_score),
        cmocka_unit_test(scores_default_to_one_and_zero),
        cmocka_unit_test(absolute_and_relative_tolerance_add_up),
        cmocka_unit_test(a_pattern_answers_with_its_group_or_match),
        cmocka_unit_test(choice_accepts_only_letters_of_options),
        cmocka_unit_test(gpqa_applies_its_rules_in_order),
        cmocka_unit_test(forms_are_exact_at_their_edges),
        cmocka_unit_test(length_scores_are_exact_at_their_bounds),
        cmocka_unit_test(a_base_has_its_own_state),
        cmocka_unit_test(qa_ignores_punctuation_and_articles),
        cmocka_unit_test(search_r1_counts_tags),
        cmocka_unit_test(a_share_at_the_bound_is_enough),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
