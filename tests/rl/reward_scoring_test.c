/* SPDX-License-Identifier: Apache-2.0
 *
 * Proves how the built-in reward model scores samples with a backend made for
 * the test: what it passes for each sample, how many at a time, and what it
 * returns.
 */
#include "tests/forward.h"
#include "tests/growth.h"
#include "tests/testing.h"

#include "core/roles/reward_model.h"
#include "tests/rl/fake_roles.h"

static char said[2048];
static xray_status answer;

/* Notes a line per call: rows as their ids, and where calls end. The value of a
 * token is ten times its id. */
static xray_status answer_batch(void *self, const xray_batch *b,
                                uint32_t outputs, xray_outputs *out)
{
    size_t used = strlen(said);
    (void)self;
    assert_int_equal(outputs, XRAY_OUTPUT_VALUE);
    assert_null(out->logp);
    for (uint32_t r = 0; r < b->rows; r++) {
        int32_t last = b->row_start[r + 1] - 1;
        assert_true(b->temperature[r] == 1);
        assert_int_equal(b->ids[last],
                         0); /* some token, appended after the last one */
        for (int32_t t = b->row_start[r]; t <= last; t++) {
            used +=
                (size_t)snprintf(said + used, sizeof(said) - used, "%s%d%s",
                                 t > b->row_start[r] ? " " : (r ? " | " : ""),
                                 b->ids[t], b->loss_mask[t] != 0 ? "*" : "");
            /* The value of the state before a token. */
            out->value[t] =
                t > b->row_start[r] ? 10 * (float)b->ids[t - 1] : -1;
        }
    }
    (void)snprintf(said + used, sizeof(said) - used, "\n");
    return answer;
}

FORWARD_EACH(answer_forward, answer_batch)

typedef struct fixture {
    xr_run run;
    xr_roles roles;
    const xray_reward_ops *ops;
    void *self;
    xr_host *host;
} fixture;

static int set_up(void **state)
{
    static const xray_train_ops train = { .header = XRAY_HEADER(xray_train_ops),
                                          .forward = answer_forward };
    static const xr_reward_model_config config = { .path = "anywhere" };
    static int self;
    fixture *f = calloc(1, sizeof(*f));
    const xr_part part = { .component = &xr_reward_model_component };
    xr_run *run = &f->run;
    said[0] = '\0';
    answer = XRAY_OK;
    run->train.ops = &train;
    run->reward_model.load.tokens = 9;
    run->ini.data.train_batch_size = 3;
    run->ini.rollout.n = 1;
    make_fake_roles(run, &f->roles);
    f->roles.named[XRAY_ROLE_REWARD] = (xr_part){
        .ops = &train, .instance = "score", .host = xr_host_new("score", NULL)
    };
    f->roles.reward_model.self = &self;
    f->ops = xr_reward_ops(&part);
    f->host = xr_host_new("reward.rm", NULL);
    assert_int_equal(f->ops->create(xr_host_api(f->host), &config, &f->self),
                     XRAY_OK);
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    fixture *f = *state;
    f->ops->destroy(f->self);
    f->ops->destroy(NULL);
    xr_host_free(f->roles.named[XRAY_ROLE_REWARD].host);
    xr_host_free(f->host);
    free(f);
    return 0;
}

static const int32_t prompt[] = { 9, 8, 7, 6 };
static const int32_t response[] = { 1, 2, 3, 4, 5, 6 };

static xray_sample_in make_sample(uint64_t id, uint32_t prompts,
                                  uint32_t tokens)
{
    return (xray_sample_in){ .header = XRAY_HEADER(xray_sample_in),
                             .id = id,
                             .prompt_ids = prompt,
                             .prompt_id_count = prompts,
                             .ids = tokens ? response : NULL,
                             .id_count = tokens };
}

static void expect_scores(fixture *f, const double *want, uint64_t count)
{
    for (uint64_t i = 0; i <= count; i++) {
        xray_score score = { .header = XRAY_HEADER(xray_score),
                             .token_scores = (const float *)f,
                             .value_count = 7 };
        if (i == count) {
            assert_int_equal(f->ops->poll(f->self, 0, &score), XRAY_END);
            return;
        }
        assert_int_equal(f->ops->poll(f->self, 0, &score), XRAY_OK);
        assert_int_equal(score.id, 100 + i);
        assert_true(score.score == want[i]);
        assert_null(score.token_scores);
        assert_int_equal(score.value_count, 0);
    }
}

static xray_status poll_once(fixture *f, xr_err *err)
{
    xray_score score = { .header = XRAY_HEADER(xray_score) };
    xray_status status = f->ops->poll(f->self, 0, &score);
    return status < 0 ? xr_host_error(f->host, status, "poll", err) : status;
}

/* Three rows per call, in micro-batches of nine tokens. The value after a row's
 * last token is its score, even without a response. Rows and calls that are
 * longer than any before get the memory they need. */
static void a_score_is_the_value_after_the_last_token(void **state)
{
    static const double want[] = { 10, 20, 80, 60, 20, 30, 10 };
    static const double again[] = { 60, 60, 60 };
    fixture *f = *state;
    struct {
        xray_sample_in in;
        uint64_t more;
    } wide[7] = {
        { .in = make_sample(100, 1, 1) }, { .in = make_sample(101, 2, 2) },
        { .in = make_sample(102, 2, 0) }, { .in = make_sample(103, 4, 6) },
        { .in = make_sample(104, 1, 2) }, { .in = make_sample(105, 1, 3) },
        { .in = make_sample(106, 1, 1) },
    };
    xr_reward_model_bind(f->self, &f->roles);
    assert_int_equal(f->ops->submit(f->self, &wide[0].in, 7, sizeof(wide[0])),
                     XRAY_OK);
    expect_scores(f, want, 7);
    assert_string_equal(said, "9 1 0* | 9 8 1 2 0*\n"
                              "9 8 0*\n"
                              "9 8 7 6 1 2 3 4 5 6 0*\n"
                              "9 1 2 0* | 9 1 2 3 0*\n"
                              "9 1 0*\n");
    const xray_sample_in three[] = { make_sample(100, 4, 6),
                                     make_sample(101, 4, 6),
                                     make_sample(102, 4, 6) };
    assert_int_equal(f->ops->submit(f->self, three, 3, sizeof(three[0])),
                     XRAY_OK);
    expect_scores(f, again, 3);
}

static void samples_that_cannot_be_scored_are_refused(void **state)
{
    fixture *f = *state;
    xr_err err = { "" };
    xray_sample_in in = make_sample(100, 1, 1);
    xray_status status = f->ops->submit(f->self, &in, 1, sizeof(in));
    assert_int_equal(status, XRAY_E_STATE);
    (void)xr_host_error(f->host, status, "submit", &err);
    assert_string_equal(err.text,
                        "reward.rm: submit: the reward model is not loaded");
    xr_reward_model_bind(f->self, &f->roles);
    in.prompt_ids = NULL;
    assert_int_equal(f->ops->submit(f->self, &in, 1, sizeof(in)), XRAY_OK);
    assert_int_equal(poll_once(f, &err), XRAY_E_ARG);
    assert_string_equal(err.text, "reward.rm: poll: sample 100 has no prompt "
                                  "ids, a reward model needs them");
    assert_string_equal(said, "");
    in.prompt_ids = prompt;
    answer = XRAY_E_RANGE;
    assert_int_equal(f->ops->submit(f->self, &in, 1, sizeof(in)), XRAY_OK);
    assert_int_equal(poll_once(f, &err), XRAY_E_RANGE);
    assert_string_equal(err.text, "reward.rm: poll: reward model: score: "
                                  "forward failed with status -101 (size or "
                                  "value out of range)");
    /* An instance needs its folder. */
    static const char *const paths[] = { NULL, "" };
    for (int i = 0; i < 2; i++) {
        const xr_reward_model_config config = { .path = paths[i] };
        void *self = NULL;
        status = f->ops->create(xr_host_api(f->host), &config, &self);
        assert_int_equal(status, XRAY_E_CONFIG);
        assert_null(self);
        (void)xr_host_error(f->host, status, "create", &err);
        assert_string_equal(err.text, "reward.rm: create: path: is not set; it "
                                      "names the folder of the reward model");
    }
}

/* A caller that was compiled against an older version. */
static void scores_of_older_callers_are_filled(void **state)
{
    fixture *f = *state;
    xray_sample_in samples[sizeof(xray_score) / 8];
    const uint64_t count = sizeof(samples) / sizeof(samples[0]);
    xray_score score;
    xr_reward_model_bind(f->self, &f->roles);
    for (uint64_t i = 0; i < count; i++)
        samples[i] = make_sample(100 + i, 1, 1);
    assert_int_equal(f->ops->submit(f->self, samples, count, sizeof(*samples)),
                     XRAY_OK);
    EXPECT_FILLED_IN_REACH(xray_score, score, id,
                           f->ops->poll(f->self, 0, &score));
    assert_int_equal(f->ops->poll(f->self, 0, &score), XRAY_END);
}

#define CASE(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(a_score_is_the_value_after_the_last_token),
        CASE(samples_that_cannot_be_scored_are_refused),
        CASE(scores_of_older_callers_are_filled),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
