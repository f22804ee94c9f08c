/* SPDX-License-Identifier: Apache-2.0
 *
 * Proves what core/roles asks of engines and rewards and how it treats their
 * answers, with plugins made for the test.
 */
#include "tests/testing.h"

#include <math.h>

#include "core/plugin/cancel.h"
#include "core/roles/rewards.h"
#include "core/roles/samples.h"
#include "tests/rl/fake_roles.h"

/* ---- requests ----------------------------------------------------------- */

static xray_request asked[2];
static uint32_t asked_count;

/* Keeps the request; refuses the third one. */
static xray_status keep_request(void *self, const xray_request *request)
{
    (void)self;
    if (asked_count == 2)
        return XRAY_E_NOMEM;
    asked[asked_count++] = *request;
    return XRAY_OK;
}

static xray_status drop_request(void *self, uint64_t id, uint32_t sample)
{
    (void)self;
    (void)sample;
    (void)id;
    return XRAY_OK;
}

static xray_status answer_nothing(void *self, xray_sample_out *out)
{
    (void)self;
    (void)out;
    return XRAY_END;
}

static void request_three_samples(xr_roles *roles, const xr_sampling *how)
{
    static const int32_t ids[] = { 4, 5, 6 };
    xr_samples samples;
    xr_err err = { "" };
    const xr_row data[] = {
        { .id = 70, .ids = ids, .id_count = 3, .prompt_count = 2 },
        { .id = 71, .ids = ids + 1, .id_count = 2, .prompt_count = 1 },
        { .id = 72, .ids = ids, .id_count = 2, .prompt_count = 2 },
    };
    const xr_row *rows[] = { &data[0], &data[1], &data[2] };
    asked_count = 0;
    assert_int_equal(xr_samples_init(&samples, 12, 9, &err), XRAY_OK);
    assert_int_equal(xr_samples_generate(roles, &samples, rows, 3, how, &err),
                     XRAY_E_NOMEM);
    assert_int_equal(asked_count, 2);
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(asked[i].id, i);
        assert_int_equal(asked[i].prompt_id, 70 + i);
        assert_ptr_equal(asked[i].ids, ids + i);
        assert_int_equal(asked[i].id_count, 2 - i); /* only the prompt */
        assert_int_equal(asked[i].count, how->n);
    }
    xr_samples_free(&samples);
}

/* Every sampling setting reaches the engine with every request. */
static void requests_carry_all_sampling_settings(void **state)
{
    static const xray_infer_ops ops = { .header = XRAY_HEADER(xray_infer_ops),
                                        .capabilities = XRAY_INFER_TRUNCATION |
                                                        XRAY_INFER_PENALTIES |
                                                        XRAY_INFER_MIN_TOKENS,
                                        .submit = keep_request,
                                        .poll = answer_nothing,
                                        .abort = drop_request };
    xr_run run = { .end_ids = { 2, 3 }, .end_count = 2 };
    xr_roles roles;
    xr_sampling how = { .n = 4,
                        .max_tokens = 7,
                        .temperature = 0.5,
                        .top_p = 0.75,
                        .min_p = 0.125,
                        .top_k = 11,
                        .repetition_penalty = 1.25,
                        .frequency_penalty = -0.5,
                        .presence_penalty = 0.75,
                        .min_tokens = 3,
                        .seed = 1234567890123,
                        .step = 17 };
    (void)state;
    run.infer = (xr_part){ .ops = &ops,
                           .instance = "infer.fake",
                           .host = xr_host_new("infer.fake", NULL) };
    assert_non_null(run.infer.host);
    make_fake_roles(&run, &roles);
    request_three_samples(&roles, &how);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(asked[i].max_tokens, 7);
        assert_true(asked[i].temperature == 0.5f && asked[i].top_p == 0.75f);
        assert_true(asked[i].min_p == 0.125f && asked[i].top_k == 11);
        assert_true(asked[i].repetition_penalty == 1.25f);
        assert_true(asked[i].frequency_penalty == -0.5f);
        assert_true(asked[i].presence_penalty == 0.75f);
        assert_int_equal(asked[i].min_tokens, 3);
        assert_true(asked[i].seed == 1234567890123 && asked[i].step == 17);
        assert_int_equal(asked[i].stop_count, 2);
        assert_int_equal(asked[i].stop_ids[0], 2);
        assert_int_equal(asked[i].stop_ids[1], 3);
    }
    how.top_k = -1; /* means the same as 0: all tokens */
    how.ignore_eos = 1;
    request_three_samples(&roles, &how);
    assert_int_equal(asked[1].top_k, 0);
    assert_int_equal(asked[1].stop_count, 0);
    xr_host_free(run.infer.host);
}

/* ---- rewards ------------------------------------------------------------ */

/* Answers for two samples; each score is multiplied by *self. */
static size_t answered;

static xray_status submit_two(void *self, const xray_sample_in *samples,
                              uint64_t count, uint64_t stride)
{
    (void)self;
    (void)samples;
    (void)stride;
    assert_int_equal(count, 2);
    return XRAY_OK;
}

static xray_status poll_two(void *self, uint64_t wait_ns, xray_score *out)
{
    static float scores[3];
    const double *times = self;
    (void)wait_ns;
    if (answered == 2) {
        answered = 0;
        return XRAY_END;
    }
    out->id = answered++;
    out->score = *times * (double)(1 + out->id);
    for (int t = 0; t < 3; t++)
        scores[t] = (float)(*times * (double)(10 * (1 + out->id)) + t);
    out->token_scores = scores;
    return XRAY_OK;
}

/* Scores of a sample and of its tokens are the sums over the instances, each
 * times its weight. */
static void rewards_are_added_by_weight(void **state)
{
    static const xray_reward_ops ops = { .header = XRAY_HEADER(xray_reward_ops),
                                         .submit = submit_two,
                                         .poll = poll_two };
    double times[] = { 1, 3 };
    const double weight[] = { 0.5, -2 };
    float tokens[2][3] = { { 0 } };
    float *const token_scores[] = { tokens[0], tokens[1] };
    xray_sample_in samples[2] = { { .id = 0, .id_count = 3 },
                                  { .id = 1, .id_count = 2 } };
    xr_score scores[2];
    xr_err err = { "" };
    xr_run run = { .reward_count = 2 };
    xr_roles roles;
    (void)state;
    make_fake_roles(&run, &roles);
    for (size_t r = 0; r < 2; r++) {
        run.rewards[r] = (xr_part){ .ops = &ops,
                                    .instance = r ? "b" : "a",
                                    .weight = weight[r] };
        roles.rewards[r].self = &times[r];
    }
    assert_int_equal(xr_rewards_score(&roles, samples, 2, scores, token_scores,
                                      NULL, NULL, &err),
                     XRAY_OK);
    for (int i = 0; i < 2; i++) {
        assert_true(scores[i].parts[0] == 1 + i);
        assert_true(scores[i].parts[1] == 3 * (1 + i));
        assert_true(scores[i].score == (0.5 - 6) * (1 + i));
        for (int t = 0; t < 3 - i; t++)
            assert_true(tokens[i][t] == (float)(0.5 * (10 * (1 + i) + t) -
                                                2.0 * (30 * (1 + i) + t)));
    }
    assert_true(tokens[1][2] == 0); /* after the last token */
}

/* ---- answers of a reward ------------------------------------------------ */

/* The answers that `poll` gives one after the other; XRAY_END after them. */
typedef struct answer {
    xray_status status;
    uint64_t id;
    double score;
    const float *tokens;
    const void *values;
    uint32_t value_count;
    uint32_t stride;
} answer;

typedef struct script {
    answer answers[6];
    uint32_t at;
    uint32_t cancel_at; /* the answer during which the run is canceled */
    uint32_t submitted;
    xray_status submit;
    uint64_t last_wait;
} script;

static xray_status script_submit(void *self, const xray_sample_in *samples,
                                 uint64_t count, uint64_t stride)
{
    script *s = self;
    assert_int_equal(stride, sizeof(*samples));
    s->submitted += (uint32_t)count;
    return s->submit;
}

static xray_status script_poll(void *self, uint64_t wait_ns, xray_score *out)
{
    script *s = self;
    s->last_wait = wait_ns;
    if (s->at == 6 || s->answers[s->at].id == 99)
        return XRAY_END;
    const answer *a = &s->answers[s->at++];
    if (s->at == s->cancel_at)
        xr_cancel();
    out->id = a->id;
    out->score = a->score;
    out->token_scores = a->tokens;
    out->values = a->values;
    out->value_count = a->value_count;
    out->value_stride = a->stride;
    return a->status;
}

static const xray_reward_ops script_ops = { .header =
                                                XRAY_HEADER(xray_reward_ops),
                                            .submit = script_submit,
                                            .poll = script_poll };

#define END      \
    {            \
        .id = 99 \
    }
#define LARGEST (3.4028234663852886e38 / 4)

static char heard[512];

static void note_value(void *ctx, size_t sample, const char *instance,
                       const char *name, double value)
{
    size_t used = strlen(heard);
    assert_ptr_equal(ctx, heard);
    (void)snprintf(heard + used, sizeof(heard) - used, "%u %s %s %g\n",
                   (unsigned)sample, instance, name, value);
}

typedef struct graders {
    xr_run run;
    xr_roles roles;
} graders;

static void make_graders(graders *g, script *scripts, size_t count,
                         double weight)
{
    static const char *const names[] = { "a", "b" };
    *g = (graders){ .run = { .reward_count = count } };
    make_fake_roles(&g->run, &g->roles);
    for (size_t r = 0; r < count; r++) {
        const char *name = count > 1 ? names[r] : "reward.r";
        g->run.rewards[r] = (xr_part){ .ops = &script_ops,
                                       .instance = name,
                                       .weight = weight,
                                       .host = xr_host_new(name, NULL) };
        g->roles.rewards[r].self = &scripts[r];
    }
}

static void free_graders(graders *g)
{
    for (size_t r = 0; r < g->run.reward_count; r++)
        xr_host_free(g->run.rewards[r].host);
}

/* Scores two samples, of two tokens and one token, with one instance of weight
 * 2. */
static xray_status score_two(script *s, graders *g, xr_score *scores,
                             xr_err *err)
{
    static float tokens[2][2];
    float *const token_scores[] = { tokens[0], tokens[1] };
    const xray_sample_in samples[2] = { { .id = 0, .id_count = 2 },
                                        { .id = 1, .id_count = 1 } };
    memset(tokens, 0, sizeof(tokens));
    heard[0] = '\0';
    make_graders(g, s, 1, 2);
    xray_status status = xr_rewards_score(&g->roles, samples, 2, scores,
                                          token_scores, note_value, heard, err);
    assert_int_equal(s->submitted, 2);
    free_graders(g);
    return status;
}

/* Whether an answer was there at once or was waited for. */
static void no_answer_follows_a_cancel(void **state)
{
    static const xray_status statuses[] = { XRAY_OK, XRAY_AGAIN };
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        graders g;
        xr_score scores[2];
        xr_err err = { "" };
        script s = { .answers = { { .status = statuses[i] }, { .id = 1 }, END },
                     .cancel_at = 1 };
        assert_int_equal(score_two(&s, &g, scores, &err), XRAY_E_CANCELED);
        assert_int_equal(s.at, 1);
        xr_cancel_reset();
    }
}

static const float good[] = { 1, 2 };
static const float edge[] = { 4.2e37f, 1 };
static const float over[] = { 1, 4.3e37f };
static const float bad[] = { 1, NAN };
static const xray_named_value values[1025] = { { "left", 1 }, { NULL, 2 } };

/* The form of an answer up to its bounds, and values that are not finite or
 * become infinite when weighted. Remaining answers are collected nevertheless,
 * since they would be taken for those of the next step. */
static const struct {
    answer answers[4];
    xray_status status;
    int bad; /* roles.nonfinite: 1 for a bad value, 0 for a broken promise */
    uint32_t taken;
    const char *says;
} looked_at[] = {
    { { { .id = 1 }, { .id = 0 }, END }, XRAY_OK, 0, 2, "" },
    { { { .status = XRAY_AGAIN }, { .id = 1 }, { .id = 0 }, END },
      XRAY_OK,
      0,
      3,
      "" },
    { { { .id = 0 }, { .id = 2 }, END },
      XRAY_E_BUG,
      0,
      2,
      "reward.r answered for sample 2, which was not asked for" },
    { { { .id = 1 }, { .id = 1 }, END },
      XRAY_E_BUG,
      0,
      2,
      "reward.r answered twice for sample 1" },
    { { { .id = 1 }, END },
      XRAY_E_BUG,
      0,
      1,
      "reward.r has no more answers, 1 of 2 are missing" },
    { { { .id = 1 }, { .id = 0 }, { .id = 0 }, END },
      XRAY_E_BUG,
      0,
      3,
      "reward.r gave more answers than the 2 asked for" },
    { { { .id = 1 }, { .id = 0 }, { .status = XRAY_AGAIN }, END },
      XRAY_OK,
      0,
      3,
      "" },
    { { { .id = 1 }, { .id = 0 }, { .status = XRAY_E_RANGE }, END },
      XRAY_E_RANGE,
      0,
      3,
      "reward.r: poll failed with status -101 (size or "
      "value out of range)" },
    { { { .id = 1 }, { .status = XRAY_E_RANGE }, END },
      XRAY_E_RANGE,
      0,
      2,
      "reward.r: poll failed with status -101 (size or value out of "
      "range)" },
    /* Arrays of values. */
    { { { .id = 1, .value_count = 3 }, END },
      XRAY_E_BUG,
      0,
      1,
      "reward.r gave 3 values for sample 1, but no array of them" },
    { { { .id = 1, .values = values, .value_count = 1, .stride = 8 }, END },
      XRAY_E_BUG,
      0,
      1,
      "reward.r gave 1 values for sample 1, but no array of them" },
    { { { .id = 1, .values = values, .value_count = 1, .stride = 20 }, END },
      XRAY_E_BUG,
      0,
      1,
      "reward.r gave 1 values for sample 1, but no array of them" },
    { { { .id = 1, .values = values, .value_count = 1024, .stride = 16 },
        { .id = 0 },
        END },
      XRAY_OK,
      0,
      2,
      "" },
    { { { .id = 1, .values = values, .value_count = 1025, .stride = 16 }, END },
      XRAY_E_BUG,
      0,
      1,
      "reward.r gave 1025 values for sample 1, at most 1024 are allowed" },
    /* Scores. */
    { { { .id = 1, .score = NAN }, { .id = 0, .score = INFINITY }, END },
      XRAY_E_NUMERIC,
      1,
      2,
      "reward.r gave the score inf for sample 0, expected a finite "
      "number" },
    { { { .id = 1, .score = NAN }, { .id = 1 }, END },
      XRAY_E_BUG,
      0,
      2,
      "reward.r answered twice for sample 1" },
    { { { .id = 1, .score = -LARGEST / 2 }, { .id = 0 }, END },
      XRAY_OK,
      0,
      2,
      "" },
    { { { .id = 1, .score = -LARGEST * 0.51 }, { .id = 0 }, END },
      XRAY_E_NUMERIC,
      1,
      2,
      "reward.r gave the score -4.3386e+37 for sample 1, times its weight 2: "
      "up to 8.50706e+37 is allowed" },
    /* ... of tokens; values after a sample's last token are not read. */
    { { { .id = 1, .tokens = bad }, { .id = 0, .tokens = edge }, END },
      XRAY_OK,
      0,
      2,
      "" },
    { { { .id = 1 }, { .id = 0, .tokens = bad }, END },
      XRAY_E_NUMERIC,
      1,
      2,
      "reward.r gave the score nan for token 1 of sample 0, expected a "
      "finite number" },
    { { { .id = 0, .tokens = over }, { .id = 1 }, END },
      XRAY_E_NUMERIC,
      1,
      2,
      "reward.r gave the score 4.3e+37 for token 1 of sample 0, times its "
      "weight 2: up to 8.50706e+37 is allowed" },
};

static void faulty_answers_are_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(looked_at) / sizeof(looked_at[0]); i++) {
        graders g;
        xr_score scores[2];
        xr_err err = { "" };
        script s = { .at = 0 };
        memcpy(s.answers, looked_at[i].answers, sizeof(looked_at[i].answers));
        xray_status status = score_two(&s, &g, scores, &err);
        if (strcmp(err.text, looked_at[i].says) != 0)
            fail_msg("case %zu: \"%s\"", i, err.text);
        assert_int_equal(status, looked_at[i].status);
        assert_int_equal(g.roles.nonfinite, looked_at[i].bad);
        assert_int_equal(s.at, looked_at[i].taken);
    }
}

/* Named values are passed on with sample and instance, in the order of the
 * samples. One without a name is skipped, and arrays compiled with another
 * header have another stride. */
static void named_values_are_passed_on(void **state)
{
    static const struct {
        xray_named_value value;
        uint64_t more;
    } wide[] = { { { "a", 3 }, 7 }, { { "b", 4 }, 7 } };
    script s = { .answers = { { .id = 1,
                                .score = 4,
                                .tokens = good,
                                .values = values,
                                .value_count = 2,
                                .stride = 16 },
                              { .id = 0,
                                .score = -1,
                                .values = wide,
                                .value_count = 2,
                                .stride = sizeof(wide[0]) },
                              END } };
    graders g;
    xr_score scores[2];
    xr_err err = { "" };
    (void)state;
    assert_int_equal(score_two(&s, &g, scores, &err), XRAY_OK);
    assert_string_equal(heard, "0 reward.r a 3\n"
                               "0 reward.r b 4\n"
                               "1 reward.r left 1\n");
    assert_true(scores[1].score == 8 && scores[1].parts[0] == 4);
    assert_true(scores[0].score == -2 && scores[0].parts[0] == -1);
    assert_int_equal(s.last_wait, 0); /* there is nothing to wait for */
    /* Without samples no instance is called. */
    memset(&s, 0, sizeof(s));
    assert_int_equal(
        xr_rewards_score(&g.roles, NULL, 0, NULL, NULL, NULL, NULL, &err),
        XRAY_OK);
    assert_int_equal(s.submitted, 0);
}

/* After a bad value of one instance the answers of the others are collected,
 * and the first sentence is reported; a broken promise takes precedence. */
static void the_first_of_several_faults_is_reported(void **state)
{
    static const struct {
        answer first[2];
        answer second[2];
        xray_status status;
        int bad;
        const char *says;
    } cases[] = {
        { { { .score = NAN }, END },
          { { .score = 1 }, END },
          XRAY_E_NUMERIC,
          1,
          "a gave the score nan for sample 0, expected a finite number" },
        { { { .score = 1 }, END },
          { { .score = INFINITY }, END },
          XRAY_E_NUMERIC,
          1,
          "b gave the score inf for sample 0, expected a finite number" },
        { { { .score = NAN }, END },
          { { .score = INFINITY }, END },
          XRAY_E_NUMERIC,
          1,
          "a gave the score nan for sample 0, expected a finite number" },
        { { { .score = NAN }, END },
          { { .id = 5 }, END },
          XRAY_E_BUG,
          0,
          "b answered for sample 5, which was not asked for" },
        /* Each score is small enough, but their sum is not. */
        { { { .score = LARGEST * 0.75 }, END },
          { { .score = LARGEST * 0.75 }, END },
          XRAY_E_NUMERIC,
          1,
          "b gave the score 6.38029e+37 for sample 0, times its weight 1: up "
          "to 8.50706e+37 is allowed" },
    };
    const xray_sample_in sample = { .id = 0 };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        script two[2] = { { .at = 0 }, { .at = 0 } };
        graders g;
        xr_score score;
        xr_err err = { "" };
        memcpy(two[0].answers, cases[i].first, sizeof(cases[i].first));
        memcpy(two[1].answers, cases[i].second, sizeof(cases[i].second));
        make_graders(&g, two, 2, 1);
        assert_int_equal(xr_rewards_score(&g.roles, &sample, 1, &score, NULL,
                                          NULL, NULL, &err),
                         cases[i].status);
        assert_string_equal(err.text, cases[i].says);
        assert_int_equal(g.roles.nonfinite, cases[i].bad);
        free_graders(&g);
        assert_int_equal(two[1].at, 1);
    }
    /* All instances get their work before one is waited for; a refusal ends it.
     */
    script two[2] = { { .answers = { END } }, { .submit = XRAY_E_RANGE } };
    graders g;
    xr_score score;
    xr_err err = { "" };
    make_graders(&g, two, 2, 1);
    assert_int_equal(
        xr_rewards_score(&g.roles, &sample, 1, &score, NULL, NULL, NULL, &err),
        XRAY_E_RANGE);
    assert_string_equal(err.text, "b: submit failed with status -101 (size or "
                                  "value out of range)");
    assert_int_equal(two[0].submitted, 1);
    free_graders(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(requests_carry_all_sampling_settings),
        cmocka_unit_test(rewards_are_added_by_weight),
        cmocka_unit_test(no_answer_follows_a_cancel),
        cmocka_unit_test(faulty_answers_are_refused),
        cmocka_unit_test(named_values_are_passed_on),
        cmocka_unit_test(the_first_of_several_faults_is_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
