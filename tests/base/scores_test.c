/* SPDX-License-Identifier: Apache-2.0
 *
 * Proves the JSON of a sample, and that the answers of rewards whose work is
 * done elsewhere arrive once, in their order, with what they say.
 */
#include <inttypes.h>
#include <pthread.h>
#include <sched.h>
#include <xray/infer.h>

#include "core/base/json.h"
#include "core/base/process.h"
#include "core/base/scores.h"
#include "tests/testing.h"

enum { WAIT = 10 }; /* nanoseconds: what is there is there */
static const uint64_t HOUR = UINT64_C(3600) * 1000000000;

typedef struct told {
    char log[1024];
    int lines;
    char reason[256];
} told;

static void record_line(const xray_host *host, uint32_t level, const char *line)
{
    told *t = host->host_data;
    assert_int_equal(level, XRAY_LOG_WARN);
    (void)snprintf(t->log, sizeof(t->log), "%s", line);
    t->lines++;
}

static xray_status record_failure(const xray_host *host, xray_status code,
                                  const char *where, const char *text)
{
    told *t = host->host_data;
    assert_string_equal(where, "poll");
    (void)snprintf(t->reason, sizeof(t->reason), "%s", text);
    return code;
}

#define HOST(t)                                             \
    {                                                       \
        .header = XRAY_HEADER(xray_host), .host_data = (t), \
        .log = record_line, .fail = record_failure          \
    }

static void put_json(xr_scores *scores, uint64_t id, const char *text)
{
    xr_scores_put(scores, id, cJSON_Parse(text));
}

/* Takes an answer and writes it as "ID SCORE NAME=VALUE...". */
static const char *poll_text(xr_scores *scores)
{
    static char text[256];
    xray_score got = { .header = XRAY_HEADER(xray_score) };
    xray_status status = xr_scores_poll(scores, WAIT, &got);
    if (status != XRAY_OK)
        return status == XRAY_AGAIN ? "again"
               : status == XRAY_END ? "end"
                                    : "failed";
    int n = snprintf(text, sizeof text, "%" PRIu64 " %g", got.id, got.score);
    for (uint32_t i = 0; i < got.value_count; i++)
        n += snprintf(text + n, sizeof text - (size_t)n, " %s=%g",
                      got.values[i].name, got.values[i].value);
    assert_null(got.token_scores);
    assert_int_equal(got.value_stride, sizeof(xray_named_value));
    return text;
}

static void answers_arrive_once_in_their_order(void **state)
{
    (void)state;
    told t = { .lines = 0 };
    const xray_host host = HOST(&t);
    xr_scores scores;
    assert_int_equal(xr_scores_open(&scores, &host, 1, 0), 0);
    assert_string_equal(poll_text(&scores), "end");
    assert_int_equal(xr_scores_expect(&scores, 2), 0);
    assert_string_equal(poll_text(&scores), "again");
    put_json(&scores, 7, "0.5");
    assert_int_equal(xr_scores_expect(&scores, 3), 0);
    put_json(&scores, 3, "{\"score\": 2}");
    put_json(&scores, 9, "-1");
    assert_string_equal(poll_text(&scores), "7 0.5 failed=0");
    put_json(&scores, 1, "4");
    assert_string_equal(poll_text(&scores), "3 2 failed=0");
    assert_string_equal(poll_text(&scores), "9 -1 failed=0");
    assert_string_equal(poll_text(&scores), "1 4 failed=0");
    assert_string_equal(poll_text(&scores), "again");
    put_json(&scores, 2, "8");
    assert_string_equal(poll_text(&scores), "2 8 failed=0");
    assert_string_equal(poll_text(&scores), "end");
    /* It can be closed with answers that nobody has polled. */
    assert_int_equal(xr_scores_expect(&scores, 3), 0);
    put_json(&scores, 1, "{\"score\": 1, \"other\": 2}");
    put_json(&scores, 2, "1");
    xr_scores_close(&scores);
    assert_int_equal(t.lines, 0);
}

/* Begins once the test's own thread sleeps. */
static void *put_two(void *ptr)
{
    while (xr_process_state((uint32_t)getpid()) != 'S')
        (void)sched_yield();
    put_json(ptr, 5, "1");
    xr_scores_fail(ptr, 6, "no answer");
    return NULL;
}

/* A wait ends with the first answer, and there is none for what is not
 * outstanding: no hour passes here. */
static void answers_are_awaited_while_some_are_outstanding(void **state)
{
    (void)state;
    told t = { .lines = 0 };
    const xray_host host = HOST(&t);
    xray_score got = { .header = XRAY_HEADER(xray_score) };
    pthread_t other;
    xr_scores scores;
    assert_int_equal(xr_scores_open(&scores, &host, 0, -2), 0);
    assert_int_equal(xr_scores_poll(&scores, HOUR, &got), XRAY_END);
    assert_int_equal(xr_scores_expect(&scores, 2), 0);
    assert_int_equal(pthread_create(&other, NULL, put_two, &scores), 0);
    for (uint64_t id = 5; id <= 6; id++) {
        assert_int_equal(xr_scores_poll(&scores, HOUR, &got), XRAY_OK);
        assert_int_equal(got.id, id);
        assert_true(got.score == (id == 5 ? 1 : -2));
    }
    assert_int_equal(xr_scores_poll(&scores, HOUR, &got), XRAY_END);
    assert_int_equal(pthread_join(other, NULL), 0);
    xr_scores_close(&scores);
}

/* Other finite numbers of an object are named values; the name "failed" is that
 * of the instance. */
static void numbers_beside_the_score_are_named_values(void **state)
{
    (void)state;
    told t = { .lines = 0 };
    const xray_host host = HOST(&t);
    xr_scores scores;
    assert_int_equal(xr_scores_open(&scores, &host, 1, 0), 0);
    assert_int_equal(xr_scores_expect(&scores, 3), 0);
    put_json(&scores, 1,
             "{\"a\": 1.5, \"score\": 2, \"failed\": 1, \"b\": -3, "
             "\"text\": \"4\", \"yes\": true, \"huge\": 1e999}");
    put_json(&scores, 2, "{\"score\": 3}");
    put_json(&scores, 3,
             "{\"c\": 0, \"d\": 0, \"e\": 0, \"f\": 9, "
             "\"score\": 4}");
    assert_string_equal(poll_text(&scores), "1 2 failed=0 a=1.5 b=-3");
    assert_string_equal(poll_text(&scores), "2 3 failed=0");
    assert_string_equal(poll_text(&scores), "3 4 failed=0 c=0 d=0 e=0 f=9");
    xr_scores_close(&scores);
}

static void a_failure_ends_poll_with_its_reason(void **state)
{
    (void)state;
    static const struct {
        const char *answer;
        const char *says;
    } rows[] = {
        { "\"1\"", "sample 5: the answer has no number as its score" },
        { "{\"Score\": 1}", "sample 5: the answer has no number as its score" },
        { "[1]", "sample 5: the answer has no number as its score" },
        { "1e999", "sample 5: the score is not a finite number" },
        { "{\"score\": -1e999}", "sample 5: the score is not a finite number" },
        { NULL, "sample 5: out of memory" },
    };
    told t = { .lines = 0 };
    const xray_host host = HOST(&t);
    xray_score got = { .header = XRAY_HEADER(xray_score) };
    xr_scores scores;
    assert_int_equal(xr_scores_open(&scores, &host, 1, 0.25), 0);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        assert_int_equal(xr_scores_expect(&scores, 1), 0);
        xr_scores_put(&scores, 5,
                      rows[i].answer ? cJSON_Parse(rows[i].answer) : NULL);
        assert_int_equal(xr_scores_poll(&scores, WAIT, &got), XRAY_E_IO);
        assert_string_equal(t.reason, rows[i].says);
    }
    assert_int_equal(xr_scores_expect(&scores, 1), 0);
    xr_scores_fail(&scores, 6, "code %d\nof the server", 500);
    assert_int_equal(xr_scores_poll(&scores, WAIT, &got), XRAY_E_IO);
    assert_string_equal(t.reason, "sample 6: code 500 of the server");
    assert_int_equal(t.lines, 0);
    assert_string_equal(poll_text(&scores), "end");
    xr_scores_close(&scores);
}

/* The first ten failures are told one by one; an answer between them is none.
 */
static void a_failure_may_have_a_score(void **state)
{
    (void)state;
    told t = { .lines = 0 };
    const xray_host host = HOST(&t);
    xr_scores scores;
    assert_int_equal(xr_scores_open(&scores, &host, 0, -0.5), 0);
    assert_int_equal(xr_scores_expect(&scores, 13), 0);
    for (uint64_t i = 1; i <= 12; i++) {
        char want[64];
        xr_scores_fail(&scores, i, "no answer");
        (void)snprintf(want, sizeof want, "%" PRIu64 " -0.5 failed=1", i);
        assert_string_equal(poll_text(&scores), want);
        assert_int_equal(t.lines, i < 10 ? i : 10);
        if (i == 9)
            assert_string_equal(t.log,
                                "sample 9 gets error_score -0.5: no answer");
        if (i == 3)
            put_json(&scores, 40, "1");
        if (i == 3)
            assert_string_equal(poll_text(&scores), "40 1 failed=0");
    }
    assert_string_equal(t.log, "sample 10 gets error_score -0.5: no answer "
                               "(more failures are only counted)");
    xr_scores_close(&scores);
}

/* ---- samples ------------------------------------------------------------ */

static void samples_are_lines_of_json(void **state)
{
    (void)state;
    static const int32_t ids[] = { 4, 5, -6 };
    static const int32_t prompt_ids[] = { 1, 2 };
    xray_sample_in sample = {
        .header = XRAY_HEADER(xray_sample_in),
        .id = UINT64_MAX,
        .prompt = "a\"b and more",
        .prompt_size = 3,
        .response = "c\nd\0e",
        .response_size = 5,
        .ground_truth = "t",
        .data_source = "s",
        .fields_json = "{\"x\":\r\n {\"y\": [1]}, \"id\": \"row\"}",
        .ids = ids,
        .id_count = 3,
        .prompt_ids = prompt_ids,
        .prompt_id_count = 2,
        .finish = XRAY_FINISH_LENGTH,
    };
    xr_str out = { 0 };
    xr_scores_sample(&sample, 0, &out);
    assert_string_equal(
        xr_str_text(&out),
        "{\"id\":18446744073709551615,\"prompt\":\"a\\\"b\",\"response\":"
        "\"c\\nd\\u0000e\",\"ground_truth\":\"t\",\"data_source\":\"s\","
        "\"finish\":2,\"fields\":{\"x\":   {\"y\": [1]}, \"id\": \"row\"}}");
    xr_str_clear(&out);
    sample.prompt_ids = NULL;
    xr_scores_sample(&sample, 1, &out);
    assert_non_null(strstr(xr_str_text(&out),
                           ",\"ids\":[4,5,-6],\"prompt_ids\":[],\"fields\""));
    xr_str_clear(&out);
    sample.prompt_ids = prompt_ids;
    sample.fields_json = "{\"x\": {\"y\": [1]}, \"id\": \"row\"}";
    xr_scores_sample(&sample, 1, &out);
    cJSON *json = cJSON_Parse(xr_str_text(&out));
    assert_non_null(json);
    /* A name of the sample's own hides that of the row. */
    assert_true(cJSON_IsNumber(xr_scores_part(json, "id")));
    assert_int_equal(cJSON_GetArraySize(xr_scores_part(json, "ids")), 3);
    assert_int_equal(cJSON_GetArraySize(xr_scores_part(json, "prompt_ids")), 2);
    static const char *const own[] = { "prompt",       "response",
                                       "ground_truth", "data_source",
                                       "finish",       "fields" };
    for (size_t i = 0; i < sizeof own / sizeof own[0]; i++)
        assert_ptr_equal(xr_scores_part(json, own[i]),
                         xr_json_get(json, own[i]));
    assert_true(cJSON_IsArray(xr_scores_part(json, "x.y")));
    assert_true(cJSON_IsObject(xr_scores_part(json, "x")));
    assert_null(xr_scores_part(json, "y"));
    assert_null(xr_scores_part(json, "x.z"));
    assert_null(xr_scores_part(json, "x.y.z"));
    cJSON_Delete(json);
    xr_str_free(&out);
}

/* A point leads into an object; a key may be as long as 255 bytes. */
static void paths_lead_into_objects(void **state)
{
    (void)state;
    char longest[300];
    char text[700];
    memset(longest, 'k', 255);
    longest[255] = '\0';
    (void)snprintf(text, sizeof text,
                   "{\"long\": {\"b\": {\"c\": 3}, \"\": 4}, \"%s\": 5, "
                   "\"%sk\": 6}",
                   longest, longest);
    cJSON *json = cJSON_Parse(text);
    assert_non_null(json);
    assert_int_equal(xr_json_path(json, "long.b.c")->valueint, 3);
    assert_ptr_equal(xr_json_path(json, "long.b"),
                     xr_json_get(xr_json_get(json, "long"), "b"));
    assert_int_equal(xr_json_path(json, "long.")->valueint, 4);
    assert_int_equal(xr_json_path(json, longest)->valueint, 5);
    longest[255] = 'k';
    longest[256] = '\0';
    assert_null(xr_json_path(json, longest));
    assert_null(xr_json_path(json, "lo"));
    assert_null(xr_json_path(json, "b"));
    assert_null(xr_json_path(json, ""));
    cJSON_Delete(json);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(answers_arrive_once_in_their_order),
        cmocka_unit_test(answers_are_awaited_while_some_are_outstanding),
        cmocka_unit_test(numbers_beside_the_score_are_named_values),
        cmocka_unit_test(a_failure_ends_poll_with_its_reason),
        cmocka_unit_test(a_failure_may_have_a_score),
        cmocka_unit_test(samples_are_lines_of_json),
        cmocka_unit_test(paths_lead_into_objects),
    };
    return cmocka_run_group_tests_name("base.scores", tests, NULL, NULL);
}
