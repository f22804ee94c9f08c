/* SPDX-License-Identifier: Apache-2.0
 *
 * qa and search_r1 follow SQuAD's definitions. Normalisation makes text lower
 * case, drops ASCII punctuation and a, an, the, and leaves one space between
 * words; EM is equality; F1 is 2 * common / (words of the answer + words of
 * the truth); the best ground truth counts.
 */
#include "tests/reward/rig.h"

typedef struct qa_case {
    const char *response;
    const char *truth;
    double em;
    double f1;
    double subem;
} qa_case;

/* F1 of c common words, n words of the answer and m words of the truth. */
#define F1(c, n, m) (2.0 * (c) / ((n) + (m)))

static const qa_case cases[] = {
    { "The Cat", "cat", 1, 1, 1 },
    { "a cat.", "\"Cat!\"", 1, 1, 1 },
    { "an  apple\ta day", "apple day", 1, 1, 1 },
    { "state-of-the-art", "stateoftheart", 1, 1, 1 },
    { "black cat", "the cat", 0, F1(1, 2, 1), 1 },
    { "in the year 1969", "1969", 0, F1(1, 3, 1), 1 },
    { "Neil A. Armstrong", "Neil Armstrong", 1, 1, 1 },
    { "cat cat dog", "cat dog dog", 0, F1(2, 3, 3), 0 },
    { "cat cat cat dog", "cat cat cat", 0, F1(3, 4, 3), 1 },
    { "cat dog cat", "dog cat cat", 0, F1(3, 3, 3), 0 },
    { "cat", "cat cat cat", 0, F1(1, 1, 3), 0 },
    /* An article between other marks leaves a space, too. */
    { "x\xE2\x80\x94the\xE2\x80\x94y", "x\xE2\x80\x94 \xE2\x80\x94y", 1, 1, 1 },
    { "x\xE2\x80\x94the\xE2\x80\x94y", "x\xE2\x80\x94\xE2\x80\x94y", 0, 0, 0 },
    { "dog", "cat", 0, 0, 0 },
    { "concatenate", "cat", 0, 0, 1 },
    { "", "cat", 0, 0, 0 },
    { "the", "a", 1, 1, 1 },
    { "", "", 1, 1, 1 },
    { "the", "cat", 0, 0, 0 },
    { "cat", "the", 0, 0, 1 },
    { "\xC3\x89tienne", "\xC3\xA9tienne", 1, 1, 1 },
    { "the\xE3\x80\x80"
      "cat",
      "cat", 1, 1, 1 },
    { "theory", "ory", 0, 0, 1 },
    { "dog", "[\"cat\", \"Dog\"]", 1, 1, 1 },
    { "big dog", "[\"dog\", \"big black dog\"]", 0, F1(2, 2, 3), 1 },
    { "big dog", "[\"big black dog\", \"dog\", \"cat\"]", 0, F1(2, 2, 3), 1 },
    { "dog", "{\"target\": [\"cat\", \"dog\"]}", 1, 1, 1 },
    { "dog", "{\"target\": \"dog\"}", 1, 1, 1 },
    { "[1]", "[1]", 1, 1, 1 },
    { "[dog", "[dog", 1, 1, 1 },
    { "x", "[]", 0, 0, 1 },
    { "\xFF\xC3", "\xFF\xC3", 1, 1, 1 },
    { "\xFF"
      "A",
      "\xFF"
      "a",
      1, 1, 1 },
};

static void scores_follow_squad(void **state)
{
    (void)state;
    static const char *const matches[] = { "em", "f1", "subem" };
    for (size_t m = 0; m < 3; m++) {
        rig r;
        rig_open(&r, RIG_KEYS("grader", "qa", "match", matches[m]));
        for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
            const qa_case *c = &cases[i];
            const double want[] = { c->em, c->f1, c->subem };
            xray_sample_in s =
                rig_sample(1, c->response, strlen(c->response), c->truth);
            xray_score got = rig_score(&r, &s);
            char what[128];
            (void)snprintf(what, sizeof(what), "%s: '%s' against '%s'",
                           matches[m], c->response, c->truth);
            rig_near(rig_value(&got, "em"), c->em, what);
            rig_near(rig_value(&got, "f1"), c->f1, what);
            rig_near(got.score, want[m], what);
            rig_near(rig_value(&got, "acc"), want[m] >= 1, what);
        }
        rig_close(&r);
    }
}

/* A share of one half scores half way between wrong and right. */
static void a_share_lies_between_wrong_and_right(void **state)
{
    (void)state;
    rig r;
    rig_open(&r, RIG_KEYS("grader", "qa", "match", "f1", "score", "2",
                          "format_score", "-1", "no_answer_score", "-3"));
    rig_near(rig_text_score(&r, "cat dog", "cat bird"), 0.5, "half");
    rig_near(rig_text_score(&r, "cat", "cat"), 2, "right");
    rig_near(rig_text_score(&r, "cat", "dog"), -1, "wrong");
    rig_near(rig_text_score(&r, " \n", "dog"), -3, "nothing");
    rig_close(&r);
}

static double score_search(rig *r, const char *response)
{
    return rig_text_score(r, response, "{\"target\": [\"cat\", \"dog\"]}");
}

static void search_r1_reads_the_last_answer_tag(void **state)
{
    (void)state;
    rig r;
    rig_open(&r, RIG_KEYS("grader", "search_r1", "format_score", "0.1"));
    rig_near(score_search(&r, "<answer> The Cat. </answer>"), 1, "right");
    rig_near(score_search(&r, "<answer>bird</answer>"), 0.1, "wrong");
    rig_near(score_search(&r, "cat"), 0, "no tag");
    rig_near(score_search(&r, "<answer>cat"), 0, "open tag");
    rig_near(score_search(&r, "</answer>cat<answer>"), 0, "turned round");
    rig_near(score_search(&r, "<answer>bird</answer><answer>dog</answer>"), 1,
             "the last counts");
    rig_near(score_search(&r, "<answer>dog</answer><answer>bird</answer>"), 0.1,
             "the last counts");
    rig_near(score_search(&r, "<answer>x<answer>cat</answer>"), 0.1,
             "the first opening tag opens");
    char many[512] = "";
    for (int i = 0; i < 10; i++)
        strncat(many, "<answer>cat</answer>", 21);
    rig_near(score_search(&r, many), 1, "ten tags");
    strncat(many, "</answer>", 10);
    rig_near(score_search(&r, many), 0.25, "eleven closing tags");
    rig_close(&r);
    rig_open(&r, RIG_KEYS("grader", "search_r1", "match", "subem"));
    rig_near(score_search(&r, "<answer>a black cat</answer>"), 1, "inside");
    rig_near(score_search(&r, many), 1, "no limit of tags with subem");
    rig_close(&r);
}

static void refuses_keys_of_other_graders(void **state)
{
    (void)state;
    rig_refuse(RIG_KEYS("grader", "search_r1", "after", "x"), "after: only");
    rig_refuse(RIG_KEYS("match", "f1"), "match: only grader = qa, search_r1");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scores_follow_squad),
        cmocka_unit_test(a_share_lies_between_wrong_and_right),
        cmocka_unit_test(search_r1_reads_the_last_answer_tag),
        cmocka_unit_test(refuses_keys_of_other_graders),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
