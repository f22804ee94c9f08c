/* SPDX-License-Identifier: Apache-2.0
 *
 * Proves when reward.http sends a request again: after which answers of a
 * server, how long after each, and how many samples and requests go together.
 */
#include <stdlib.h>

#include "tests/reward/http_rig.h"
#include "tests/reward/log_lines.h"
#include "tests/stopper.h"

static void await_lines(unsigned count)
{
    (void)pthread_mutex_lock(&logged.lock);
    while (logged.count < count)
        (void)pthread_cond_wait(&logged.changed, &logged.lock);
    (void)pthread_mutex_unlock(&logged.lock);
}

static void open_logged(rig *r, const char *path, const char *const *keys)
{
    rig_open(r, path, keys);
    logged.count = 0;
    r->host.api.log = keep_line;
}

/* Checks that a line tells of a time in [least, most] seconds; three digits of
 * it are written. */
static void check_wait(unsigned line, double least, double most)
{
    static const char words[] = "; it is asked again in ";
    const char *at = strstr(logged.line[line], words);
    assert_non_null(at);
    double wait = strtod(at + sizeof(words) - 1, NULL);
    if (wait < least * 0.99 || wait > most * 1.01)
        fail_msg("%s: not in %g to %g s", logged.line[line], least, most);
}

static void the_status_decides_whether_to_ask_again(void **state)
{
    static const struct {
        const char *text;
        unsigned requests;
        const char *words;
    } rows[] = {
        { "408 a", 2, "says 408: a, in the last of 2 attempts" },
        { "425 a", 2, "says 425: a, in the last of 2 attempts" },
        { "429 a", 2, "says 429: a, in the last of 2 attempts" },
        { "500 a", 2, "says 500: a, in the last of 2 attempts" },
        { "502 a", 2, "says 502: a, in the last of 2 attempts" },
        { "503 a", 2, "says 503: a, in the last of 2 attempts" },
        { "504 a", 2, "says 504: a, in the last of 2 attempts" },
        { "400 a", 1, "the server says 400: a" },
        { "401 a", 1, "the server says 401: a" },
        { "409 a", 1, "the server says 409: a" },
        { "501 a", 1, "the server says 501: a" },
        { "505 a", 1, "the server says 505: a" },
        { "300 a", 1, "says 300 and leads to another address, which is not" },
        { "399 a", 1, "says 399 and leads to another address, which is not" },
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        rig r;
        rig_open(&r, "/code", RIG_KEYS("retries", "1", "backoff", "1ms"));
        expect_failure(&r, rows[i].text, rows[i].words);
        assert_int_equal(server_requests(&r.server), rows[i].requests);
        rig_close(&r);
    }
    rig r;
    rig_open(&r, "/code", NULL);
    assert_true(score_text(&r, "200 [{\"id\":3,\"score\":2}]") == 2);
    assert_true(score_text(&r, "201 [{\"id\":3,\"score\":3}]") == 3);
    assert_true(score_text(&r, "299 [{\"id\":3,\"score\":4}]") == 4);
    rig_close(&r);
}

/* Of a longer reason a message has the first 200 bytes. */
static void long_reasons_are_cut(void **state)
{
    char text[256] = "400 ";
    char words[300];
    (void)state;
    for (int size = 200; size <= 201; size++) {
        rig r;
        rig_open(&r, "/code", NULL);
        memset(text + 4, 'x', (size_t)size);
        text[4 + size] = '\0';
        (void)snprintf(words, sizeof(words), "says 400: %.200s%s", text + 4,
                       size > 200 ? "..." : "");
        expect_failure(&r, text, words);
        assert_int_equal(strlen(strstr(r.host.reason, "says 400: ")),
                         strlen(words));
        rig_close(&r);
    }
}

static void each_wait_is_twice_the_one_before(void **state)
{
    (void)state;
    rig r;
    open_logged(&r, "/status", RIG_KEYS("retries", "4", "backoff", "8ms"));
    expect_failure(&r, "a", "in the last of 5 attempts");
    await_lines(4);
    for (unsigned i = 0; i < 4; i++)
        check_wait(i, 0.004 * (1 << i), 0.008 * (1 << i));
    assert_int_equal(logged.count, 4);
    rig_close(&r);
    for (unsigned i = 0; i < 4; i++)
        assert_true(r.server.times[i + 1] - r.server.times[i] >=
                    4000000 * (1 << i));
}

/* Instances end while several requests wait to be sent again. */
static void requests_do_not_all_wait_equally_long(void **state)
{
    (void)state;
    rig r;
    const xray_sample_in samples[] = { make_sample(0, "a"), make_sample(1, "b"),
                                       make_sample(2, "c") };
    open_logged(&r, "/status", RIG_KEYS("batch", "1", "backoff", "60s"));
    submit(&r, samples, 3);
    await_lines(3);
    rig_close(&r);
    for (unsigned i = 0; i < 3; i++)
        check_wait(i, 30, 60);
    assert_string_not_equal(logged.line[0], logged.line[1]);
    assert_string_not_equal(logged.line[1], logged.line[2]);
    assert_string_not_equal(logged.line[0], logged.line[2]);
}

static void servers_may_ask_for_ten_minutes(void **state)
{
    (void)state;
    rig r;
    xray_sample_in sample = make_sample(3, "600");
    open_logged(&r, "/after", NULL);
    submit(&r, &sample, 1);
    await_lines(1);
    rig_close(&r);
    check_wait(0, 600, 600);
    rig_open(&r, "/after", NULL);
    expect_failure(&r, "601",
                   "and wants 601 s without requests, more than 600");
    assert_int_equal(server_requests(&r.server), 1);
    rig_close(&r);
}

/* A wish counts only where it is longer than the time to wait without it. */
static void a_shorter_wish_shortens_no_wait(void **state)
{
    (void)state;
    rig r;
    xray_sample_in sample = make_sample(3, "1");
    open_logged(&r, "/after", RIG_KEYS("backoff", "60s"));
    submit(&r, &sample, 1);
    await_lines(1);
    rig_close(&r);
    check_wait(0, 30, 60);
}

/* The first request is refused for a second, so the five that come meanwhile
 * wait as well; then they go as two, two and one. */
static void a_wish_of_the_server_holds_all_requests_back(void **state)
{
    (void)state;
    rig r;
    xray_score score;
    xray_sample_in samples[6];
    double asked[6] = { 0 };
    static const double expected[6] = { 1, 2, 2, 2, 2, 1 };
    for (uint64_t i = 0; i < 6; i++)
        samples[i] = make_sample(i, "abcdef" + i);
    open_logged(&r, "/limit",
                RIG_KEYS("batch", "2", "concurrency", "1", "backoff", "1ms"));
    submit(&r, samples, 1);
    await_lines(1);
    check_wait(0, 1, 1);
    submit(&r, samples + 1, 5);
    for (int i = 0; i < 6; i++) {
        assert_int_equal(next_score(&r, &score), XRAY_OK);
        assert_true(score.score == 6 - (double)score.id);
        asked[score.id] = score.values[1].value;
    }
    assert_memory_equal(asked, expected, sizeof(asked));
    assert_int_equal(next_score(&r, &score), XRAY_END);
    rig_close(&r);
    assert_int_equal(r.server.count, 5);
    for (int i = 1; i < 5; i++)
        assert_true(r.server.times[i] - r.server.times[0] >= 1000000000);
}

static void no_more_requests_than_allowed_are_under_way(void **state)
{
    (void)state;
    rig r;
    xray_score score;
    xray_sample_in samples[8];
    for (uint64_t i = 0; i < 8; i++)
        samples[i] = make_sample(i, "abcdefgh" + i);
    rig_open(&r, "/crowd", RIG_KEYS("batch", "1", "concurrency", "2"));
    submit(&r, samples, 8);
    for (int i = 0; i < 8; i++) {
        assert_int_equal(next_score(&r, &score), XRAY_OK);
        assert_true(score.score == 8 - (double)score.id);
    }
    rig_close(&r);
    assert_int_equal(r.server.count, 8);
    assert_true(r.server.largest_crowd <= 2);
}

static stopper stop;

static const void *find_calls(const xray_host *host, const char *id)
{
    (void)host;
    return strcmp(id, XRAY_SERVICE_CALLS) == 0 ? &stop.service : NULL;
}

/* A submit asks before each sample, and sends none after it was told to stop.
 */
static void a_canceled_submit_sends_nothing(void **state)
{
    const xray_sample_in sample = make_sample(3, "abc");
    xray_score score;
    rig r;
    (void)state;
    rig_open(&r, "/rows", NULL);
    r.ops->destroy(r.self);
    r.host.api.service = find_calls;
    stopper_begin(&stop, 0);
    assert_int_equal(r.ops->create(&r.host.api, r.config, &r.self), XRAY_OK);
    stopper_begin(&stop, 1);
    assert_int_equal(r.ops->submit(r.self, &sample, 1, sizeof(sample)),
                     XRAY_E_CANCELED);
    assert_string_equal(r.host.reason, "submit: the run is stopped");
    stopper_begin(&stop, 0);
    assert_int_equal(next_score(&r, &score), XRAY_END);
    assert_true(score_text(&r, "abc") == 3);
    rig_close(&r);
    assert_int_equal(r.server.count, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_status_decides_whether_to_ask_again),
        cmocka_unit_test(long_reasons_are_cut),
        cmocka_unit_test(each_wait_is_twice_the_one_before),
        cmocka_unit_test(requests_do_not_all_wait_equally_long),
        cmocka_unit_test(servers_may_ask_for_ten_minutes),
        cmocka_unit_test(a_shorter_wish_shortens_no_wait),
        cmocka_unit_test(a_wish_of_the_server_holds_all_requests_back),
        cmocka_unit_test(no_more_requests_than_allowed_are_under_way),
        cmocka_unit_test(a_canceled_submit_sends_nothing),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_drop);
}
