/* SPDX-License-Identifier: Apache-2.0
 *
 * Proves that reward.http scores by its three protocols, that servers which are
 * slow, wrong, dead or flapping are told of in a sentence, and that the key is
 * in no message.
 */
#include <sys/stat.h>

#include "tests/reward/http_rig.h"

/* ---- protocols ---------------------------------------------------------- */

static void rows_are_found_by_their_ids(void **state)
{
    (void)state;
    rig r;
    xray_score score;
    xray_sample_in samples[5];
    double sum = 0;
    for (uint64_t i = 0; i < 5; i++)
        samples[i] = make_sample(100 - 7 * i, "abcdef" + i);
    rig_open(&r, "/rows", RIG_KEYS("batch", "2"));
    submit(&r, samples, 5);
    for (int i = 0; i < 5; i++) {
        assert_int_equal(next_score(&r, &score), XRAY_OK);
        assert_true(score.score == 6 - (double)(100 - score.id) / 7);
        assert_int_equal(score.value_count, 2);
        check_value(&score, "failed", 0);
        assert_true(score.values[1].value <= 2);
        sum += 1 / score.values[1].value;
    }
    assert_int_equal(next_score(&r, &score), XRAY_END);
    assert_true(sum == server_requests(&r.server));
    rig_close(&r);
}

static void remote_rewards_are_those_of_openrlhf(void **state)
{
    (void)state;
    rig r;
    xray_score score;
    xray_sample_in samples[] = { make_sample(0, "a"), make_sample(1, "b\"c") };
    rig_open(&r, "/openrlhf", RIG_KEYS("protocol", "openrlhf"));
    for (uint64_t i = 0; i < 2; i++) {
        samples[i].prompt = "ask ";
        samples[i].prompt_size = 4;
        samples[i].ground_truth = i ? "6" : "5";
        submit(&r, &samples[i], 1);
        assert_int_equal(next_score(&r, &score), XRAY_OK);
        assert_int_equal(score.id, i);
        assert_true(score.score == (i ? 7 : 5));
        check_value(&score, "label", i ? 6 : 5);
        check_value(&score, "asked", 2);
    }
    rig_close(&r);
}

static void judges_give_the_last_number_that_matches(void **state)
{
    (void)state;
    static const struct {
        const char *words;
        double score; /* -1: there is none, for the reason */
        const char *reason;
    } rows[] = {
        { "Score: 3 at first, then score:  7.5.", 7.5, NULL },
        { "Score: -2", -2, NULL },
        { "\xc3\xa9 Score: 1e1", 10, NULL },
        { "good", -1,
          "the judge's answer has no match of the pattern: \"good" },
        { "Score: .", -1, "has a match of the pattern that is no number" },
    };
    rig r;
    rig_open(
        &r, "/quote",
        CHAT("{response}", "pattern", "(?i)score: *([-0-9.e]+?)\\.?(?:,| |$)"));
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        if (rows[i].reason)
            expect_failure(&r, rows[i].words, rows[i].reason);
        else
            assert_true(score_text(&r, rows[i].words) == rows[i].score);
    }
    rig_close(&r);
    rig_open(&r, "/quote", CHAT("{response}", "pattern", "(a+)+b"));
    expect_failure(&r, "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaac b",
                   "could not be searched for the pattern");
    rig_close(&r);
}

static void judges_give_members_of_objects(void **state)
{
    (void)state;
    rig r;
    rig_open(&r, "/quote", CHAT("{response}", "score_path", "result.score"));
    assert_true(score_text(&r, "So:\n```json\n{\"result\": {\"score\": 4}}\n"
                               "```") == 4);
    assert_true(score_text(&r, "{\"result\":{\"score\":\" 0.5 \"}}") == 0.5);
    expect_failure(&r, "{\"result\":{\"scores\":4}}",
                   "the judge's answer has no number as its result.score: "
                   "\"{\"result\":{\"scores\":4}}\"");
    expect_failure(&r, "} {", "the judge's answer has no JSON object");
    expect_failure(&r, "none", "the judge's answer has no JSON object");
    rig_close(&r);
    rig_open(&r, "/say", CHAT("{response}", "pattern", "x"));
    expect_failure(&r, "{\"choices\":[]}",
                   "the answer has no choices[0].message.content");
    rig_close(&r);
}

static void templates_take_parts_and_fields(void **state)
{
    (void)state;
    rig r;
    xray_score score;
    xray_sample_in sample = make_sample(3, "{x}");
    sample.prompt = "p";
    sample.prompt_size = 1;
    sample.fields_json = "{\"extra_info\":{\"level\":5,\"tags\":[1,\"a\"]}}";
    rig_open(&r, "/quote",
             CHAT("{ {\"a\": 1} {prompt}|{response}|{ground_truth}|"
                  "{extra_info.level}|{extra_info.tags} {",
                  "pattern",
                  "^{ {\"a\": 1} p\\|{x}\\|18\\|(5)\\|\\[1,\"a\"\\] {$"));
    submit(&r, &sample, 1);
    if (next_score(&r, &score) != XRAY_OK)
        fail_msg("%s", r.host.reason);
    assert_true(score.score == 5);
    expect_failure(&r, "x",
                   "the data row has no field extra_info.level, which the "
                   "template names");
    rig_close(&r);
    rig_open(&r, "/quote", CHAT("{ids}{response}", "pattern", "."));
    expect_failure(&r, "x",
                   "the data row has no field ids, which the template names");
    rig_close(&r);
}

/* ---- answers that are no scores ----------------------------------------- */

static void wrong_answers_are_told(void **state)
{
    (void)state;
    static const struct {
        const char *protocol;
        const char *body;
        const char *words;
    } rows[] = {
        { "rows", "<html>", "the answer: " },
        { "rows", "", "the answer: " },
        { "rows", "7", "the answer has no list \"scores\"" },
        { "rows", "{\"scores\":{}}", "the answer has no list \"scores\"" },
        { "rows", "[]", "the answer has no score of it" },
        { "rows", "[{\"score\":1}]", "a score without the id of a sample" },
        { "rows", "[1]", "a score without the id of a sample" },
        { "rows", "[{\"id\":4,\"score\":1}]",
          "a score of sample 4, which the request has not" },
        { "rows", "[{\"id\":3,\"score\":1},{\"id\":3,\"score\":1}]",
          "two scores of sample 3" },
        { "rows", "[{\"id\":3}]", "the answer has no number as its score" },
        { "rows", "[{\"id\":3,\"score\":null}]",
          "the answer has no number as its score" },
        { "rows", "[{\"id\":3,\"score\":1e999}]", "not a finite number" },
        { "rows", "[{\"id\":3,\"error\":\"no idea\"}]",
          "the server says: no idea" },
        { "openrlhf", "{\"reward\":1}", "the answer has no list \"rewards\"" },
        { "openrlhf", "[1]", "the answer has no list \"rewards\"" },
        { "openrlhf", "{\"rewards\":[]}", "has 0 rewards for 1 samples" },
        { "openrlhf", "{\"rewards\":[1,2]}", "has 2 rewards for 1 samples" },
        { "openrlhf", "{\"rewards\":[\"1\"]}",
          "the answer has no number as its score" },
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        rig r;
        rig_open(&r, "/say", RIG_KEYS("protocol", rows[i].protocol));
        expect_failure(&r, rows[i].body, rows[i].words);
        rig_close(&r);
    }
    rig r;
    rig_open(&r, "/say", RIG_KEYS("protocol", "openrlhf"));
    assert_true(score_text(&r, "{\"rewards\":[[0.5]]}") == 0.5);
    rig_close(&r);
}

static void a_failure_can_have_a_score(void **state)
{
    (void)state;
    rig r;
    xray_score score;
    rig_open(&r, "/say", RIG_KEYS("on_error", "score", "error_score", "-3"));
    xray_sample_in sample = make_sample(3, "[{\"id\":3,\"score\":2}]");
    submit(&r, &sample, 1);
    assert_int_equal(next_score(&r, &score), XRAY_OK);
    assert_true(score.score == 2);
    check_value(&score, "failed", 0);
    sample = make_sample(3, "[]");
    submit(&r, &sample, 1);
    assert_int_equal(next_score(&r, &score), XRAY_OK);
    assert_true(score.score == -3);
    check_value(&score, "failed", 1);
    assert_string_equal(
        r.host.line,
        "sample 3 gets error_score -3: the answer has no score of it");
    rig_close(&r);
}

/* ---- servers that fail -------------------------------------------------- */

static void failures_of_servers_are_told(void **state)
{
    (void)state;
    static const struct {
        const char *path;
        const char *words;
        unsigned requests;
    } rows[] = {
        { "/status",
          "the server says 500: out of order, in the last of 2 attempts", 2 },
        { "/missing", "the server says 404: no reason", 1 },
        { "/redirect", "/rows, which is not followed", 1 },
        { "/slow",
          "the server did not answer within 0.2 s (timeout), in the last of 2",
          2 },
        { "/hangup", "the server gave no answer: Empty reply from server", 2 },
        { "/cut", "the server gave no answer: transfer closed", 2 },
        { "/big", "the server's answer has more than 16777216 bytes", 1 },
        { "/later",
          "the server says 429: wait, and wants 100000 s without requests, "
          "more than 600 s",
          1 },
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        rig r;
        int slow = strcmp(rows[i].path, "/slow") == 0;
        rig_open(&r, rows[i].path,
                 RIG_KEYS("retries", "1", "backoff", "1ms", "timeout",
                          slow ? "200ms" : "60s"));
        expect_failure(&r, "a", rows[i].words);
        assert_int_equal(server_requests(&r.server), rows[i].requests);
        rig_close(&r);
    }
}

static void endless_answers_are_cut(void **state)
{
    (void)state;
    rig r;
    rig_open(&r, "/endless", NULL);
    expect_failure(&r, "a", "the server's answer has more than 16777216 bytes");
    rig_close(&r);
    assert_true(r.server.sent < (uint64_t)128 << 20);
}

static void dead_servers_are_told(void **state)
{
    (void)state;
    rig r;
    rig dead;
    rig_open(&r, "/rows", NULL);
    r.ops->destroy(r.self);
    server_close(&r.server);
    memset(&dead, 0, sizeof(dead));
    assert_int_equal(
        try_create(&dead, r.url, RIG_KEYS("retries", "2", "backoff", "1ms")),
        XRAY_OK);
    expect_failure(&dead, "a", "the server gave no answer: Failed to connect");
    expect_failure(&dead, "a", "in the last of 3 attempts");
    dead.ops->destroy(dead.self);
}

static void flapping_servers_are_asked_again(void **state)
{
    (void)state;
    rig r;
    rig_open(&r, "/flap", RIG_KEYS("retries", "2", "backoff", "1ms"));
    assert_true(score_text(&r, "abc") == 3);
    assert_int_equal(server_requests(&r.server), 3);
    expect_words(r.host.line, "the server gave no answer: Empty reply");
    expect_words(r.host.line, "; it is asked again in ");
    rig_close(&r);
    rig_open(&r, "/limit", RIG_KEYS("backoff", "1ms"));
    assert_true(score_text(&r, "abc") == 3);
    assert_int_equal(server_requests(&r.server), 2);
    assert_true(r.server.times[1] - r.server.times[0] >= 1000000000);
    rig_close(&r);
}

/* The others pass one that has no answer yet. */
static void requests_are_under_way_together(void **state)
{
    (void)state;
    rig r;
    xray_score score;
    const xray_sample_in samples[] = { make_sample(0, "a"),
                                       make_sample(1, "ab"),
                                       make_sample(2, "abc"),
                                       make_sample(3, "abcd") };
    rig_open(&r, "/meet", RIG_KEYS("batch", "1", "concurrency", "2"));
    submit(&r, samples, 1);
    while (!server_requests(&r.server))
        ;
    submit(&r, samples + 1, 3);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(next_score(&r, &score), XRAY_OK);
        assert_true(score.score == (double)score.id + 1);
    }
    rig_close(&r);
}

static void instances_end_in_the_midst_of_a_request(void **state)
{
    (void)state;
    rig r;
    xray_sample_in sample = make_sample(0, "a");
    rig_open(&r, "/slow", RIG_KEYS("timeout", "1h"));
    submit(&r, &sample, 1);
    while (!server_requests(&r.server))
        ;
    submit(&r, &sample, 1);
    rig_close(&r);
}

/* ---- the key ------------------------------------------------------------ */

static void keys_come_from_the_environment_or_a_file(void **state)
{
    (void)state;
    rig r;
    const char *path = scratch_write("key", "sesame-1234\n");
    assert_int_equal(chmod(path, 0600), 0);
    assert_int_equal(setenv("TEST_KEY", "sesame-1234", 1), 0);
    rig_open(&r, "/key", RIG_KEYS("key_env", "TEST_KEY"));
    assert_true(score_text(&r, "abc") == 3);
    rig_close(&r);
    rig_open(&r, "/key", RIG_KEYS("key_file", path));
    assert_true(score_text(&r, "abc") == 3);
    rig_close(&r);
    rig_open(&r, "/key", NULL);
    expect_failure(&r, "abc", "the server says 401: no key");
    rig_close(&r);
    rig_open(&r, "/echo", RIG_KEYS("key_env", "TEST_KEY"));
    expect_failure(&r, "abc",
                   "says 400: you said Authorization: Bearer ***********.");
    rig_close(&r);
    rig_open(&r, "/redirect", RIG_KEYS("key_env", "TEST_KEY"));
    expect_failure(&r, "abc", "/rows?key=***********, which is not followed");
    rig_close(&r);
}

/* ---- settings ----------------------------------------------------------- */

static void addresses_that_cannot_work_are_refused(void **state)
{
    (void)state;
    expect_refusal("", NULL, "url: expected an address");
    expect_refusal("ftp://host/a", NULL, "expected http:// or https://");
    expect_refusal("localhost/score", NULL, "url = localhost/score: ");
    expect_refusal("http://", NULL, "url = http://: ");
    expect_refusal("http://me:sesame@host/", NULL,
                   "url has a user or a password");
    rig r;
    memset(&r, 0, sizeof(r));
    assert_int_equal(setenv("TEST_KEY", "sesame-1234", 1), 0);
    assert_int_equal(try_create(&r, "http://judge.invalid/",
                                RIG_KEYS("key_env", "TEST_KEY")),
                     XRAY_OK);
    expect_words(r.host.line,
                 "the key is sent to judge.invalid without encryption");
    r.ops->destroy(r.self);
}

static void keys_that_cannot_work_are_refused(void **state)
{
    (void)state;
    const char *url = "https://localhost/";
    const char *path = scratch_write("loose", "sesame-1234");
    assert_int_equal(chmod(path, 0640), 0);
    assert_int_equal(unsetenv("NO_KEY"), 0);
    assert_int_equal(setenv("BAD_KEY", "sesame 1234", 1), 0);
    assert_int_equal(setenv("SHORT_KEY", "sesame", 1), 0);
    expect_refusal(url, RIG_KEYS("key_env", "NO_KEY"),
                   "key_env = NO_KEY: the environment has no such variable");
    expect_refusal(url, RIG_KEYS("key_env", "BAD_KEY"),
                   "byte 7 of the key is no visible character");
    expect_refusal(url, RIG_KEYS("key_env", "SHORT_KEY"),
                   "expected a key of at least 8 characters");
    expect_refusal(url, RIG_KEYS("key_env", "A", "key_file", "b"),
                   "key_file and key_env are both set");
    expect_refusal(url, RIG_KEYS("key_file", path),
                   "others may read or write it (mode 0640); expected 0600");
    expect_refusal(url, RIG_KEYS("key_file", scratch_path("none")),
                   "key_file: ");
}

static void judges_that_cannot_work_are_refused(void **state)
{
    (void)state;
    const char *url = "https://localhost/";
    expect_refusal(url, RIG_KEYS("model", "a"),
                   "model is used with protocol = chat only");
    expect_refusal(url, RIG_KEYS("protocol", "chat"),
                   "model: expected a value, because protocol = chat");
    expect_refusal(url, CHAT("{response}", "ca_file", ""),
                   "expected either pattern or score_path");
    expect_refusal(url, CHAT("{response}", "pattern", "a", "score_path", "b"),
                   "expected either pattern or score_path");
    expect_refusal(url, CHAT("{response}", "pattern", "(a"), "pattern: ");
    expect_refusal(url, CHAT("{ response }", "pattern", "a"),
                   "expected {response} in it");
    expect_refusal(url,
                   RIG_KEYS("protocol", "chat", "model", "a", "template_file",
                            scratch_path("none"), "pattern", "a"),
                   "template_file: ");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_are_found_by_their_ids),
        cmocka_unit_test(remote_rewards_are_those_of_openrlhf),
        cmocka_unit_test(judges_give_the_last_number_that_matches),
        cmocka_unit_test(judges_give_members_of_objects),
        cmocka_unit_test(templates_take_parts_and_fields),
        cmocka_unit_test(wrong_answers_are_told),
        cmocka_unit_test(a_failure_can_have_a_score),
        cmocka_unit_test(failures_of_servers_are_told),
        cmocka_unit_test(endless_answers_are_cut),
        cmocka_unit_test(dead_servers_are_told),
        cmocka_unit_test(flapping_servers_are_asked_again),
        cmocka_unit_test(requests_are_under_way_together),
        cmocka_unit_test(instances_end_in_the_midst_of_a_request),
        cmocka_unit_test(keys_come_from_the_environment_or_a_file),
        cmocka_unit_test(addresses_that_cannot_work_are_refused),
        cmocka_unit_test(keys_that_cannot_work_are_refused),
        cmocka_unit_test(judges_that_cannot_work_are_refused),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_drop);
}
