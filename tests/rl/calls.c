/* SPDX-License-Identifier: Apache-2.0
 *
 * What core/rl asks of engines and rewards, and what it makes of the answers,
 * over plugins made for the test.
 */
#include "tests/testing.h"

#include "core/rl/rewards.h"
#include "core/rl/samples.h"

/* ---- requests ----------------------------------------------------------- */

static xray_request asked[2];
static uint32_t asked_count;

/* Keeps what it is asked for, and has no room for a third request. */
static xray_status keep_request(void *self, const xray_request *request)
{
    (void)self;
    if (asked_count == 2)
        return XRAY_E_NOMEM;
    asked[asked_count++] = *request;
    return XRAY_OK;
}

static xray_status drop_request(void *self, uint64_t id)
{
    (void)self;
    (void)id;
    return XRAY_OK;
}

static xray_status nothing_ready(void *self, xray_sample_out *out)
{
    (void)self;
    (void)out;
    return XRAY_END;
}

static void draw_three(xr_session *s, const xr_sampling *how)
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
    assert_int_equal(xr_samples_draw(s, &samples, rows, 3, how, NULL, &err),
                     XRAY_E_NOMEM);
    assert_int_equal(asked_count, 2);
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(asked[i].id, i);
        assert_int_equal(asked[i].prompt_id, 70 + i);
        assert_ptr_equal(asked[i].ids, ids + i);
        assert_int_equal(asked[i].id_count, 2 - i); /* the prompt alone */
        assert_int_equal(asked[i].count, how->n);
    }
    xr_samples_free(&samples);
}

/* Every setting of the sampling reaches the engine with every request. */
static void requests_carry_the_sampling(void **state)
{
    static const xray_infer_ops ops = { .head = XRAY_HEAD(xray_infer_ops),
                                        .submit = keep_request,
                                        .poll = nothing_ready,
                                        .abort = drop_request };
    xr_session session = { .end_ids = { 2, 3 }, .end_count = 2 };
    xr_sampling how = { .n = 4,
                        .max_tokens = 7,
                        .temperature = 0.5,
                        .top_p = 0.75,
                        .min_p = 0.125,
                        .top_k = 11,
                        .seed = 1234567890123,
                        .step = 17 };
    (void)state;
    session.infer = (xr_part){ .ops = &ops,
                               .instance = "infer.fake",
                               .host = xr_host_new("infer.fake", NULL) };
    assert_non_null(session.infer.host);
    draw_three(&session, &how);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(asked[i].max_tokens, 7);
        assert_true(asked[i].temperature == 0.5f && asked[i].top_p == 0.75f);
        assert_true(asked[i].min_p == 0.125f && asked[i].top_k == 11);
        assert_true(asked[i].seed == 1234567890123 && asked[i].step == 17);
        assert_int_equal(asked[i].stop_count, 2);
        assert_int_equal(asked[i].stop_ids[0], 2);
        assert_int_equal(asked[i].stop_ids[1], 3);
    }
    how.top_k = -1; /* as 0: all */
    how.ignore_eos = 1;
    draw_three(&session, &how);
    assert_int_equal(asked[1].top_k, 0);
    assert_int_equal(asked[1].stop_count, 0);
    xr_host_free(session.infer.host);
}

/* ---- rewards ------------------------------------------------------------ */

/* Answers for two samples: `self` is what each score is times. */
static size_t answered;

static xray_status two_submit(void *self, const xray_sample_in *samples,
                              uint64_t count, uint64_t stride)
{
    (void)self;
    (void)samples;
    (void)stride;
    assert_int_equal(count, 2);
    return XRAY_OK;
}

static xray_status two_poll(void *self, uint64_t wait_ns, xray_score *out)
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

/* What a sample and what its tokens are given: the sum over the instances,
 * each times its weight. */
static void rewards_are_weighed(void **state)
{
    static const xray_reward_ops ops = { .head = XRAY_HEAD(xray_reward_ops),
                                         .submit = two_submit,
                                         .poll = two_poll };
    double times[] = { 1, 3 };
    const double weight[] = { 0.5, -2 };
    float tokens[2][3] = { { 0 } };
    float *const token_scores[] = { tokens[0], tokens[1] };
    xray_sample_in samples[2] = { { .id = 0, .id_count = 3 },
                                  { .id = 1, .id_count = 2 } };
    xr_score scores[2];
    xr_err err = { "" };
    xr_session session = { .reward_count = 2 };
    (void)state;
    for (size_t r = 0; r < 2; r++)
        session.rewards[r] = (xr_part){ .ops = &ops,
                                        .self = &times[r],
                                        .instance = r ? "b" : "a",
                                        .weight = weight[r] };
    assert_int_equal(xr_rewards_score(&session, samples, 2, scores,
                                      token_scores, NULL, NULL, &err),
                     XRAY_OK);
    for (int i = 0; i < 2; i++) {
        assert_true(scores[i].parts[0] == 1 + i);
        assert_true(scores[i].parts[1] == 3 * (1 + i));
        assert_true(scores[i].score == (0.5 - 6) * (1 + i));
        for (int t = 0; t < 3 - i; t++)
            assert_true(tokens[i][t] == (float)(0.5 * (10 * (1 + i) + t) -
                                                2.0 * (30 * (1 + i) + t)));
    }
    assert_true(tokens[1][2] == 0); /* behind its end */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(requests_carry_the_sampling),
        cmocka_unit_test(rewards_are_weighed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
