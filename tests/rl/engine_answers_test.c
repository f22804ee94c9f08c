/* SPDX-License-Identifier: Apache-2.0
 *
 * Proves that samples on their way from an engine to rewards are stored where
 * they belong, and that wrong answers of an engine are refused.
 */
#include <math.h>

#include "core/plugin/cancel.h"
#include "tests/growth.h"
#include "tests/rl/engine_rig.h"

/* ---- generating --------------------------------------------------------- */

/* Whatever the order of arrival, sample k of row i has the index i * n + k. */
static void samples_are_stored_by_their_index(void **state)
{
    static const int32_t tokens[6][MOST] = {
        { 0 }, { 1, 2 }, { 1, 2 }, { 2, 3, 4 }, { 2, 3, 4 }, { 3 },
    };
    static const uint32_t sizes[] = { 1, 2, 2, 3, 3, 1 };
    fixture *f = *state;
    xr_samples *samples = &f->samples;
    xr_err err = { "" };
    engine.made = 1;
    assert_int_equal(
        xr_samples_generate(&f->roles, samples, rows, 3, &f->how, &err),
        XRAY_OK);
    assert_int_equal(samples->count, 6);
    assert_int_equal(samples->n, 2);
    for (uint32_t i = 0; i < 6; i++) {
        assert_int_equal(samples->sizes[i], sizes[i]);
        assert_memory_equal(samples->tokens + i * MOST, tokens[i],
                            sizes[i] * sizeof(int32_t));
        for (uint32_t t = 0; t < sizes[i]; t++)
            assert_true(samples->logp[i * MOST + t] == -(float)(10 * i + t));
        assert_int_equal(samples->finish[i], 1 + i % 3);
        assert_int_equal(samples->versions[i], i == 1 ? 0 : 5);
    }
    assert_string_equal(engine.aborted, "");
    assert_true(f->roles.first_token > 0);
}

/* Checks the sentence on refused answers and failed calls, and that nothing of
 * the rollout is left for the next one. */
static void wrong_answers_of_an_engine_are_refused(void **state)
{
    static const struct {
        fault fault;
        uint32_t when;
        xray_status status;
        const char *says;
        const char *aborted;
    } cases[] = {
        { FAULT_SUBMIT, 1, XRAY_E_RANGE, "infer.fake: submit failed with", "" },
        { FAULT_STEP, 0, XRAY_E_RANGE, "infer.fake: step failed with", NULL },
        { FAULT_POLL, 2, XRAY_E_RANGE, "infer.fake: poll failed with", "" },
        { FAULT_IDLE, 0, XRAY_OK, "",
          NULL }, /* all samples were given at once */
        { FAULT_TWICE, 2, XRAY_E_BUG,
          "infer.fake gave sample 1 of request 2 twice", "" },
        { FAULT_SAMPLE, 2, XRAY_E_BUG,
          "infer.fake gave sample 2 of request 2 with 3 tokens, which was not "
          "asked for",
          "" },
        { FAULT_REQUEST, 1, XRAY_E_BUG,
          "infer.fake gave sample 1 of request 11 with 1 tokens, which was not "
          "asked for",
          "" },
        { FAULT_LONG, 4, XRAY_E_BUG,
          "infer.fake gave sample 0 of request 1 with 4 tokens, which was not "
          "asked for",
          "" },
        { FAULT_VERSION, 3, XRAY_E_BUG,
          "infer.fake generated sample 3 with weights of version 6, but "
          "version 5 was published",
          "" },
        { FAULT_LATER_VERSION, 3, XRAY_E_BUG,
          "infer.fake generated sample 3 with weights of version 6, but "
          "version 5 was published",
          "" },
    };
    fixture *f = *state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        xr_err err = { "" };
        memset(&engine, 0, sizeof(engine));
        engine.fault = cases[i].fault;
        engine.when = cases[i].when;
        assert_int_equal(
            xr_samples_generate(&f->roles, &f->samples, rows, 3, &f->how, &err),
            cases[i].status);
        assert_int_equal(
            strncmp(err.text, cases[i].says, strlen(cases[i].says)), 0);
        if (cases[i].aborted) {
            assert_string_equal(engine.aborted, "0 1 2 ");
            assert_int_equal(engine.polls_after,
                             4); /* polls until no sample is left */
        }
    }
    /* Before weights were published, versions of samples are not compared. */
    xr_err err = { "" };
    memset(&engine, 0, sizeof(engine));
    engine.fault = FAULT_VERSION;
    engine.when = 3;
    f->roles.published.synced = 0;
    assert_int_equal(
        xr_samples_generate(&f->roles, &f->samples, rows, 3, &f->how, &err),
        XRAY_OK);
    assert_int_equal(f->samples.versions[3], 6);
}

static int pauses, resumes;

static xray_status pause_rig(void *self, uint32_t mode)
{
    (void)self;
    assert_int_equal(mode, XRAY_PAUSE_ABORT);
    pauses++;
    (void)snprintf(engine.aborted, sizeof(engine.aborted), "all ");
    return XRAY_OK;
}

static xray_status resume_rig(void *self)
{
    (void)self;
    assert_int_equal(engine.polls_after, 4); /* nothing is left to poll */
    resumes += pauses;
    return XRAY_OK;
}

/* An engine that can end all requests at once is asked to. */
static void a_pause_ends_the_requests_of_a_failed_rollout(void **state)
{
    fixture *f = *state;
    xr_err err = { "" };
    xray_infer_ops ops = engine_ops;
    ops.pause = pause_rig;
    ops.resume = resume_rig;
    f->run.infer.ops = &ops;
    engine.fault = FAULT_POLL;
    engine.when = 2;
    assert_int_equal(
        xr_samples_generate(&f->roles, &f->samples, rows, 3, &f->how, &err),
        XRAY_E_RANGE);
    assert_true(pauses == 1 && resumes == 1);
    assert_string_equal(engine.aborted, "all ");
    /* One of the calls alone is not made: an engine has both or neither. */
    for (int i = 0; i < 2 * LACK_WAYS; i++) {
        xray_infer_ops part = ops;
        if (i % 2)
            LACK_MEMBER(xray_infer_ops, part, pause, i / 2);
        else
            LACK_MEMBER(xray_infer_ops, part, resume, i / 2);
        f->run.infer.ops = &part;
        memset(&engine, 0, sizeof(engine));
        engine.fault = FAULT_POLL;
        engine.when = 2;
        assert_int_equal(
            xr_samples_generate(&f->roles, &f->samples, rows, 3, &f->how, &err),
            XRAY_E_RANGE);
        assert_true(pauses == 1 && resumes == 1);
        assert_string_equal(engine.aborted, "0 1 2 ");
    }
}

/* The engine is not asked for what it does not offer. */
static void what_an_engine_lacks_is_not_asked_for(void **state)
{
    fixture *f = *state;
    xr_err err = { "" };
    xray_infer_ops ops = engine_ops;
    ops.capabilities = 0;
    f->run.infer.ops = &ops;
    f->how.top_k = 3;
    assert_int_equal(
        xr_samples_generate(&f->roles, &f->samples, rows, 3, &f->how, &err),
        XRAY_E_UNSUPPORTED);
    assert_string_equal(err.text, "infer.fake does not offer top_p, min_p or "
                                  "top_k, which is asked for");
    assert_int_equal(engine.requests, 0);
}

/* An engine that is idle before all samples exist, and one that is stopped. */
static void generation_ends_early_if_idle_or_stopped(void **state)
{
    fixture *f = *state;
    xr_err err = { "" };
    engine.fault = FAULT_IDLE;
    engine.stopped = 99; /* it gives no samples */
    assert_int_equal(
        xr_samples_generate(&f->roles, &f->samples, rows, 2, &f->how, &err),
        XRAY_E_BUG);
    assert_string_equal(err.text,
                        "infer.fake is idle, but 4 samples are missing");
    assert_string_equal(engine.aborted, "0 1 ");
    memset(&engine, 0, sizeof(engine));
    engine.fault = FAULT_LOST;
    assert_int_equal(
        xr_samples_generate(&f->roles, &f->samples, rows, 2, &f->how, &err),
        XRAY_E_BUG);
    assert_string_equal(
        err.text, "infer.fake has no sample outstanding, but 4 are missing");
    memset(&engine, 0, sizeof(engine));
    engine.stopped = 3;
    assert_int_equal(
        xr_samples_generate(&f->roles, &f->samples, rows, 2, &f->how, &err),
        XRAY_E_CANCELED);
    assert_string_equal(err.text, "the run is stopped");
    xr_cancel_reset();
    assert_int_equal(engine.steps, 3);
    assert_string_equal(engine.aborted, "0 1 ");
    assert_true(f->roles.first_token == 0); /* no token was sampled */
}

static void too_many_samples_are_refused(void **state)
{
    fixture *f = *state;
    xr_err err = { "" };
    f->how.n = 3;
    assert_int_equal(
        xr_samples_generate(&f->roles, &f->samples, rows, 3, &f->how, &err),
        XRAY_E_BUG);
    assert_string_equal(err.text, "9 samples of 3 tokens do not fit");
    f->how.max_tokens = 4;
    assert_int_equal(
        xr_samples_generate(&f->roles, &f->samples, rows, 2, &f->how, &err),
        XRAY_E_BUG);
    assert_string_equal(err.text, "6 samples of 4 tokens do not fit");
    assert_int_equal(engine.requests, 0);
    f->how.max_tokens = MOST;
    assert_int_equal(
        xr_samples_generate(&f->roles, &f->samples, rows, 2, &f->how, &err),
        XRAY_OK);
}

/* The time starts again whenever a token or a sample arrives. */
static void an_engine_without_progress_times_out(void **state)
{
    fixture *f = *state;
    xr_roles *roles = &f->roles;
    xr_err err = { "" };
    xr_engine_watch w = { 0 };
    f->run.ini.run.plugin_timeout = 2500000000;
    engine.made = 7;
    assert_int_equal(xr_engine_progress(roles, &w, 6, &err), XRAY_OK);
    assert_true(w.since > 0 && w.made == 107 && w.left == 6);
    assert_true(roles->first_token > 0);
    w.since -= 2; /* seconds */
    assert_int_equal(xr_engine_progress(roles, &w, 6, &err), XRAY_OK);
    w.since -= 2;
    xr_engine_watch late = w;
    assert_int_equal(xr_engine_progress(roles, &w, 6, &err), XRAY_E_BUG);
    assert_string_equal(err.text, "infer.fake made no token for 2.5 s ([run] "
                                  "plugin_timeout), 6 samples are missing");
    w = late;
    assert_int_equal(xr_engine_progress(roles, &w, 5, &err), XRAY_OK);
    assert_true(w.since > late.since + 3 && w.left == 5);
    w = late;
    engine.made++;
    assert_int_equal(xr_engine_progress(roles, &w, 6, &err), XRAY_OK);
    assert_true(w.since > late.since + 3 && w.made == 108);
    w.since -= 100;
    f->run.ini.run.plugin_timeout = 0;
    assert_int_equal(xr_engine_progress(roles, &w, 6, &err), XRAY_OK);
}

/* ---- scoring ------------------------------------------------------------ */

static void rewards_receive_all_fields_of_a_sample(void **state)
{
    fixture *f = *state;
    xr_samples *samples = &f->samples;
    xr_err err = { "" };
    for (int round = 0; round < 2;
         round++) { /* scores of earlier rounds are not added */
        memset(&engine, 0, sizeof(engine));
        grader.log[0] = '\0';
        assert_int_equal(
            xr_samples_generate(&f->roles, samples, rows, 3, &f->how, &err),
            XRAY_OK);
        assert_int_equal(
            xr_samples_score(&f->roles, samples, rows, NULL, NULL, &err),
            XRAY_OK);
    }
    assert_string_equal(
        grader.log,
        "0: \"p0\" 2 \"a\" 1 truth \"g0\" source \"x\" fields {0} ids 1 from 0 "
        "prompt 3 from 3 finish 1\n"
        "1: \"p0\" 2 \"b c\" 3 truth \"g0\" source \"x\" fields {0} ids 2 from "
        "1 prompt 3 from 3 finish 2\n"
        "2: \"p\n1\" 3 \"b c\" 3 truth \"g\"1\" source \"\" fields {1} ids 2 "
        "from 1 prompt 2 from 2 finish 3\n"
        "3: \"p\n1\" 3 \"c d\" 3 truth \"g\"1\" source \"\" fields {1} ids 3 "
        "from 2 prompt 2 from 2 finish 1\n"
        "4: \"p2\" 2 \"c d\" 3 truth \"\" source \"x\" fields {2} ids 3 from 2 "
        "prompt 1 from 1 finish 2\n"
        "5: \"p2\" 2 \"d\" 1 truth \"\" source \"x\" fields {2} ids 1 from 3 "
        "prompt 1 from 1 finish 3\n");
    static const double scores[] = { 0, 6, 6, 18, 18, 6 };
    for (uint32_t i = 0; i < 6; i++) {
        assert_true(samples->scores[i].score == scores[i]);
        assert_true(samples->scores[i].parts[0] == scores[i] / 2);
        assert_true(samples->score_rows[i][0] == 0.5f);
        assert_true(samples->score_rows[i][1] == 0);
    }
    assert_string_equal(xr_samples_text(samples, 3), "c d");
    xr_str out = { 0 };
    xr_samples_append_line(samples, rows, 0, 4, "", &out);
    xr_samples_append_line(samples, rows, 2, 5, ",\"more\":1", &out);
    assert_string_equal(
        xr_str_text(&out),
        "{\"step\":4,\"prompt\":\"p0\",\"response\":\"a\",\"ground_truth\":"
        "\"g0\",\"score\":0}\n"
        "{\"step\":5,\"prompt\":\"p\\n1\",\"response\":\"b c\","
        "\"ground_truth\":\"g\\\"1\",\"score\":6,\"more\":1}\n");
    /* Samples are written per step, to a folder that is created if missing. */
    char *text = NULL;
    size_t size = 0;
    assert_int_equal(xr_samples_write(scratch_path("kept"), 12, &out, &err),
                     XRAY_OK);
    assert_int_equal(
        xr_file_read(scratch_path("kept/12.jsonl"), 4096, &err, &text, &size),
        XRAY_OK);
    assert_int_equal(size, out.size);
    assert_memory_equal(text, out.data, size);
    free(text);
    out.failed = 1;
    assert_int_equal(xr_samples_write(scratch_path("kept"), 13, &out, &err),
                     XRAY_E_NOMEM);
    assert_int_equal(access(scratch_path("kept/13.jsonl"), F_OK), -1);
    xr_str_free(&out);
}

/* A token may be the byte 0, so that a response does not end at its first NUL.
 */
static void responses_may_hold_a_nul(void **state)
{
    fixture *f = *state;
    xr_samples *samples = &f->samples;
    xr_err err = { "" };
    xr_str out = { 0 };
    xm_tokenizer_close(f->run.tokenizer);
    f->run.tokenizer = make_tokenizer(
        "{\"decoder\":{\"type\":\"ByteLevel\"},\"model\":{\"type\":"
        "\"WordLevel\",\"unk_token\":\"a\",\"vocab\":{\"a\":0,\"\\u0100\":1,"
        "\"c\":2,\"d\":3,\"e\":4}}}");
    assert_int_equal(
        xr_samples_generate(&f->roles, samples, rows, 3, &f->how, &err),
        XRAY_OK);
    assert_int_equal(
        xr_samples_score(&f->roles, samples, rows, NULL, NULL, &err), XRAY_OK);
    assert_int_equal(samples->inputs[1].response_size, 2);
    assert_memory_equal(samples->inputs[1].response, "\0c", 3);
    xr_samples_append_line(samples, rows, 1, 4, "", &out);
    assert_non_null(strstr(xr_str_text(&out), "\"response\":\"\\u0000c\","));
    xr_str_free(&out);
}

/* ---- rewards beside the rollout ------------------------------------------ */

static uint32_t nan_at; /* the sample whose log-prob is NaN, or 0 */

static xray_status poll_with_nan(void *self, xray_sample_out *out)
{
    static const float bad[MOST] = { NAN };
    xray_status status = engine_ops.poll(self, out);
    if (status == XRAY_OK && engine.given == nan_at)
        out->logp = bad;
    return status;
}

static xray_status roll_beside(fixture *f, xr_err *err)
{
    static xray_infer_ops ops;
    ops = engine_ops;
    ops.poll = poll_with_nan;
    f->run.infer.ops = &ops;
    memset(&engine, 0, sizeof(engine));
    f->run.rewards[1] = (xr_part){ .ops = &beside_ops,
                                   .instance = "reward.beside",
                                   .weight = 0.7,
                                   .host = f->run.infer.host };
    f->run.reward_count = 2;
    return xr_samples_generate(&f->roles, &f->samples, rows, 3, &f->how, err);
}

static uint32_t doubles; /* values of the other name */

static void add_value(void *ctx, size_t sample, const char *instance,
                      const char *name, double value)
{
    static double third;
    (void)sample;
    assert_string_equal(instance, "reward.beside");
    if (strcmp(name, "third") == 0) {
        third = value;
        *(double *)ctx += value / 6;
        return;
    }
    assert_string_equal(name, "double");
    assert_true(value == 2 * third);
    doubles++;
}

/* The engine gives the last row first. Each row is submitted once both of its
 * samples are there, and the other reward gets all after the rollout. */
static void rows_are_submitted_as_they_end(void **state)
{
    fixture *f = *state;
    xr_err err = { "" };
    assert_int_equal(roll_beside(f, &err), XRAY_OK);
    assert_string_equal(beside.log, "after 2: 4 \"c d\" 5 \"d\"\n"
                                    "after 4: 2 \"b c\" 3 \"c d\"\n"
                                    "after 6: 0 \"a\" 1 \"b c\"\n");
    assert_true(beside.polled_early > 0);
    assert_true(f->samples.beside > 0);
    assert_int_equal(grader.count, 0);
    assert_int_equal(
        xr_samples_score(&f->roles, &f->samples, rows, NULL, NULL, &err),
        XRAY_OK);
    assert_int_equal(grader.count, 6);
    assert_int_equal(beside.count, 6); /* nothing twice */
    assert_int_equal(beside.given, 6);
    /* Without such a reward there is nothing beside. */
    f->run.reward_count = 1;
    memset(&engine, 0, sizeof(engine));
    assert_int_equal(
        xr_samples_generate(&f->roles, &f->samples, rows, 3, &f->how, &err),
        XRAY_OK);
    assert_true(f->samples.beside == 0);
}

/* Whatever the order of the answers, and whether they came during the rollout
 * or after it, the same bits come out. */
static void the_order_of_answers_changes_no_bit(void **state)
{
    fixture *f = *state;
    double first_scores[6];
    double first_mean = 0;
    for (int i = 0; i < 4; i++) {
        xr_err err = { "" };
        double mean = 0;
        memset(&beside, 0, sizeof(beside));
        doubles = 0;
        beside.newest_first = i & 1;
        beside.silent = i & 2;
        assert_int_equal(roll_beside(f, &err), XRAY_OK);
        assert_int_equal(beside.given > 0, !beside.silent);
        assert_int_equal(xr_samples_score(&f->roles, &f->samples, rows,
                                          add_value, &mean, &err),
                         XRAY_OK);
        assert_int_equal(doubles, 6);
        for (uint32_t k = 0; k < 6; k++) {
            if (i == 0)
                first_scores[k] = f->samples.scores[k].score;
            assert_memory_equal(&first_scores[k], &f->samples.scores[k].score,
                                sizeof(double));
        }
        if (i == 0)
            first_mean = mean;
        assert_memory_equal(&first_mean, &mean, sizeof(mean));
    }
    /* Sample 4 has the ids 2 and 3 and 4. */
    assert_true(first_scores[4] == 18 + 0.7 * (9 / 3.0));
}

/* A failure during the rollout ends it, and nothing of it is left. */
static void a_failing_reward_ends_the_rollout(void **state)
{
    fixture *f = *state;
    xr_err err = { "" };
    beside.fails = 2;
    assert_int_equal(roll_beside(f, &err), XRAY_E_RANGE);
    assert_non_null(strstr(err.text, "poll failed with status -101"));
    assert_int_equal(engine.given, 2);
    assert_string_equal(engine.aborted, "0 1 2 ");
    assert_null(f->samples.scoring);
}

/* When a rollout fails by a value that is not finite, the run may go on: the
 * answers that are outstanding are not those of the next rollout. */
static void a_rollout_left_out_leaves_no_answers(void **state)
{
    fixture *f = *state;
    xr_err err = { "" };
    beside.silent = 1;
    nan_at = 3;
    assert_int_equal(roll_beside(f, &err), XRAY_E_NUMERIC);
    nan_at = 0;
    assert_true(f->roles.nonfinite);
    assert_int_equal(beside.count, 2);
    assert_int_equal(beside.given, 2);
    assert_null(f->samples.scoring);
}

#define CASE(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

static xray_sample_out next_sample;

static xray_status give_next_sample(void *self, xray_sample_out *out)
{
    (void)self;
    *out = next_sample;
    return XRAY_OK;
}

static xray_status give_two_spans(void *self, xray_sample_out *out)
{
    static xray_span spans[2];
    static int32_t tokens[] = { 1, 2 };
    static float logps[] = { -1, -2 };
    static uint32_t given;
    (void)self;
    if (given == 2)
        return XRAY_END;
    *out = (xray_sample_out){ .header = XRAY_HEADER(xray_sample_out),
                              .sample = given++,
                              .token_count = 2,
                              .tokens = tokens,
                              .logp = logps,
                              .finish = XRAY_FINISH_STOP,
                              .spans = spans,
                              .span_count = 2,
                              .span_stride = sizeof(*spans) };
    spans[0].version = 5;
    spans[1].version = 6;
    return XRAY_OK;
}

/* Of two requests, the third does not exist, even where memory for it does. */
static void samples_of_the_next_request_are_refused(void **state)
{
    fixture *f = *state;
    xr_err err = { "" };
    xray_infer_ops ops = engine_ops;
    static const int32_t token = 1;
    static const float logp = -1;
    f->roles.published.synced = 0;
    next_sample = (xray_sample_out){ .id = 2,
                                     .token_count = 1,
                                     .tokens = &token,
                                     .logp = &logp,
                                     .finish = XRAY_FINISH_STOP };
    ops.poll = give_next_sample;
    f->run.infer.ops = &ops;
    for (uint32_t i = 0; i < f->samples.cap; i++)
        f->samples.sizes[i] = UINT32_MAX;
    assert_int_equal(
        xr_samples_generate(&f->roles, &f->samples, rows, 2, &f->how, &err),
        XRAY_E_BUG);
    assert_non_null(strstr(err.text, "which was not asked for"));
}

/* Weights may change within a sample; it counts for those it began with. */
static void a_sample_has_the_version_it_began_with(void **state)
{
    fixture *f = *state;
    xr_err err = { "" };
    xray_infer_ops ops = engine_ops;
    f->roles.published.synced = 0;
    ops.poll = give_two_spans;
    f->run.infer.ops = &ops;
    if (xr_samples_generate(&f->roles, &f->samples, rows, 1, &f->how, &err) !=
        XRAY_OK)
        fail_msg("%s", err.text);
    assert_int_equal(f->samples.versions[0], 5);
    assert_int_equal(f->samples.versions[1], 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(samples_are_stored_by_their_index),
        CASE(wrong_answers_of_an_engine_are_refused),
        CASE(a_pause_ends_the_requests_of_a_failed_rollout),
        CASE(what_an_engine_lacks_is_not_asked_for),
        CASE(generation_ends_early_if_idle_or_stopped),
        CASE(too_many_samples_are_refused),
        CASE(an_engine_without_progress_times_out),
        CASE(rewards_receive_all_fields_of_a_sample),
        CASE(responses_may_hold_a_nul),
        CASE(rows_are_submitted_as_they_end),
        CASE(the_order_of_answers_changes_no_bit),
        CASE(a_failing_reward_ends_the_rollout),
        CASE(a_rollout_left_out_leaves_no_answers),
        CASE(samples_of_the_next_request_are_refused),
        CASE(a_sample_has_the_version_it_began_with),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_drop);
}
