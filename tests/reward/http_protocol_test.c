/* SPDX-License-Identifier: Apache-2.0
 *
 * Proves what reward.http reads in answers and judges' words, what it writes
 * into requests of several samples, and where a key may go.
 */
#include <sys/stat.h>

#include "plugins/reward-http/http.h"
#include "tests/reward/http_rig.h"

#define SAMPLES 3

/* A protocol without a server: the test writes the answers. */
typedef struct desk {
    fake_host host;
    http_protocol *protocol;
    http_sample samples[SAMPLES];
    xr_scores scores;
    _Alignas(16) char config[1024];
} desk;

static void desk_open(desk *d, const char *const *keys)
{
    xr_err err = { "" };
    const xray_component *c = fake_component(xray_plugin_query_reward_http,
                                             XRAY_IFACE_REWARD, "http");
    memset(d, 0, sizeof(*d));
    fake_host_init(&d->host);
    fake_config(c, keys, d->config);
    if (http_protocol_open((const void *)d->config, &err, &d->protocol))
        fail_msg("%s", err.text);
    assert_int_equal(xr_scores_open(&d->scores, &d->host.api, 0, -9), 0);
    for (uint64_t i = 0; i < SAMPLES; i++) {
        d->samples[i].id = 10 + i;
        d->samples[i].next = i + 1 < SAMPLES ? &d->samples[i + 1] : NULL;
    }
}

static void desk_close(desk *d)
{
    xr_scores_close(&d->scores);
    http_protocol_close(d->protocol);
}

/* The samples 10, 11 and 12 get their scores of this answer; one that fails
 * gets -9. */
static void expect_scores(desk *d, const char *answer, const double *expected,
                          const char *name, const double *values)
{
    assert_int_equal(xr_scores_expect(&d->scores, SAMPLES), 0);
    http_protocol_answer(d->protocol, d->samples, answer, strlen(answer),
                         &d->scores);
    for (int i = 0; i < SAMPLES; i++) {
        xray_score score = { .header = XRAY_HEADER(xray_score) };
        assert_int_equal(xr_scores_poll(&d->scores, 0, &score), XRAY_OK);
        assert_in_range(score.id, 10, 10 + SAMPLES - 1);
        uint64_t at = score.id - 10;
        if (score.score != expected[at])
            fail_msg("%s: sample %d scores %g", answer, (int)score.id,
                     score.score);
        check_value(&score, "failed", expected[at] == -9);
        int named = name && expected[at] != -9;
        assert_int_equal(score.value_count, named ? 2 : 1);
        if (named)
            check_value(&score, name, values[at]);
    }
    xray_score none = { .header = XRAY_HEADER(xray_score) };
    assert_int_equal(xr_scores_poll(&d->scores, 0, &none), XRAY_END);
}

static const double all_failed[] = { -9, -9, -9 };

static void rows_belong_to_their_samples(void **state)
{
    static const double values[] = { 4, 5, 6 };
    static const double scores[] = { 1, 2, 3 };
    static const double some[] = { -9, 2, -9 };
    (void)state;
    desk d;
    desk_open(&d, NULL);
    expect_scores(&d,
                  "{\"scores\":[{\"id\":10,\"score\":1,\"v\":4},{\"id\":11,"
                  "\"score\":2,\"v\":5},{\"id\":12,\"score\":3,\"v\":6}]}",
                  scores, "v", values);
    expect_scores(&d,
                  "[{\"id\":12,\"score\":3},{\"id\":10,\"score\":1},"
                  "{\"id\":11,\"score\":2}]",
                  scores, NULL, NULL);
    expect_scores(&d,
                  "[{\"id\":12,\"score\":3,\"error\":\"no\"},"
                  "{\"id\":11,\"score\":2,\"error\":7}]",
                  some, "error", (const double[]){ 0, 7, 0 });
    desk_close(&d);
}

static void one_wrong_row_fails_all(void **state)
{
    static const char *const answers[] = {
        "[{\"id\":10,\"score\":1},{\"id\":11,\"score\":2},"
        "{\"id\":13,\"score\":3}]",
        "[{\"id\":10,\"score\":1},{\"id\":11,\"score\":2},"
        "{\"id\":10,\"score\":3}]",
        "[{\"id\":10,\"score\":1},{\"id\":11.5,\"score\":2}]",
        "[{\"id\":10,\"score\":1},{\"id\":\"11\",\"score\":2}]",
        "{\"score\":[]}",
        "[{\"id\":10,\"score\":1}",
    };
    (void)state;
    desk d;
    desk_open(&d, NULL);
    for (size_t i = 0; i < sizeof(answers) / sizeof(answers[0]); i++)
        expect_scores(&d, answers[i], all_failed, NULL, NULL);
    desk_close(&d);
}

static void rewards_come_in_the_order_of_the_samples(void **state)
{
    static const double scores[] = { 1, 2, 3 };
    static const double some[] = { 1, -9, 3 };
    static const double each[] = { 4, 5, 6 };
    static const double one[] = { 7, 7, 7 };
    (void)state;
    desk d;
    desk_open(&d, RIG_KEYS("protocol", "openrlhf"));
    expect_scores(&d, "{\"rewards\":[1,[2],3],\"extra_logs\":{\"v\":[4,5,6]}}",
                  scores, "v", each);
    expect_scores(&d, "{\"rewards\":[1,2,3],\"extra_logs\":{\"v\":7}}", scores,
                  "v", one);
    expect_scores(&d,
                  "{\"rewards\":[1,2,3],\"extra_logs\":{\"short\":[1,2],"
                  "\"score\":[4,5,6],\"text\":\"a\",\"v\":7}}",
                  scores, "v", one);
    expect_scores(&d, "{\"rewards\":[1,2,3],\"extra_logs\":[4,5,6]}", scores,
                  NULL, NULL);
    expect_scores(&d, "{\"rewards\":[1,[2,2],3]}", some, NULL, NULL);
    expect_scores(&d, "{\"rewards\":[1,[],3]}", some, NULL, NULL);
    expect_scores(&d, "{\"rewards\":[1,null,3],\"extra_logs\":{\"score\":9}}",
                  some, NULL, NULL);
    expect_scores(&d, "{\"rewards\":[1,{\"a\":2},3]}", some, NULL, NULL);
    expect_scores(&d, "{\"rewards\":[1,2]}", all_failed, NULL, NULL);
    expect_scores(&d, "{\"rewards\":[1,2,3,4]}", all_failed, NULL, NULL);
    desk_close(&d);
}

/* Writes a request of two samples. */
static void expect_body(const char *const *keys, const char *expected)
{
    desk d;
    xr_err err = { "" };
    xr_str body = { 0 };
    http_sample samples[2] = { { .next = &samples[1] } };
    desk_open(&d, keys);
    for (uint64_t i = 0; i < 2; i++) {
        xray_sample_in in = make_sample(i, i ? "r\"1" : "r0");
        in.prompt = i ? "p1" : "p0";
        in.prompt_size = 2;
        in.ground_truth = i ? "t1" : "t0";
        in.ids = (const int32_t[]){ 7, 8 };
        in.id_count = 2;
        in.prompt_ids = (const int32_t[]){ 4 };
        in.prompt_id_count = 1;
        assert_int_equal(
            http_protocol_sample(d.protocol, &in, &err, &samples[i]), XRAY_OK);
        assert_int_equal(samples[i].id, i);
    }
    http_protocol_body(d.protocol, samples, &body);
    assert_string_equal(body.data, expected);
    xr_str_free(&body);
    for (int i = 0; i < 2; i++)
        for (int k = 0; k < HTTP_PARTS; k++)
            xr_str_free(&samples[i].parts[k]);
    desk_close(&d);
}

static void requests_have_lists_of_samples(void **state)
{
    (void)state;
    expect_body(RIG_KEYS("protocol", "openrlhf"),
                "{\"query\":[\"p0r0\",\"p1r\\\"1\"],\"prompts\":[\"p0\","
                "\"p1\"],\"labels\":[\"t0\",\"t1\"]}");
    expect_body(NULL, "{\"samples\":["
                      "{\"id\":0,\"prompt\":\"p0\",\"response\":\"r0\","
                      "\"ground_truth\":\"t0\",\"data_source\":\"\","
                      "\"finish\":0,\"ids\":[7,8],\"prompt_ids\":[4],"
                      "\"fields\":{}},"
                      "{\"id\":1,\"prompt\":\"p1\",\"response\":\"r\\\"1\","
                      "\"ground_truth\":\"t1\",\"data_source\":\"\","
                      "\"finish\":0,\"ids\":[7,8],\"prompt_ids\":[4],"
                      "\"fields\":{}}]}");
    desk d;
    desk_open(&d, RIG_KEYS("batch", "7"));
    assert_int_equal(http_protocol_batch(d.protocol), 7);
    desk_close(&d);
    desk_open(&d, CHAT("{response}", "pattern", "1", "batch", "7"));
    assert_int_equal(http_protocol_batch(d.protocol), 1);
    desk_close(&d);
}

/* ---- judges ------------------------------------------------------------- */

#define NAME64 \
    "a234567890123456789012345678901234567890123456789012345678901234"

/* Checks the question that a template makes of a sample. */
static void expect_question(const char *template, const char *expected)
{
    desk d;
    xr_err err = { "" };
    http_sample out = { 0 };
    xray_sample_in in = make_sample(3, "R");
    in.prompt = "P";
    in.prompt_size = 1;
    in.data_source = "D";
    in.fields_json = "{\"x1\":\"X\",\"_y\":{\"z\":[2,\"b\"]},\"1a\":5,"
                     "\"" NAME64 NAME64 NAME64 NAME64 "\":5}";
    desk_open(&d, CHAT(template, "pattern", "1"));
    xray_status status = http_protocol_sample(d.protocol, &in, &err, &out);
    assert_string_equal(err.text, "");
    assert_int_equal(status, XRAY_OK);
    assert_string_equal(out.parts[0].data, expected);
    xr_str_free(&out.parts[0]);
    desk_close(&d);
}

static void braces_around_names_stand_for_parts(void **state)
{
    (void)state;
    expect_question("{response}{prompt} {ground_truth} {data_source}",
                    "\"RP 18 D\"");
    expect_question("{x1}{response}{_y.z}{_y}",
                    "\"XR[2,\\\"b\\\"]{\\\"z\\\":[2,\\\"b\\\"]}\"");
    expect_question("{} {1a} {x-1} {x1 {{response}} {.x1} {x1",
                    "\"{} {1a} {x-1} {x1 {R} {.x1} {x1\"");
    expect_question("{response}{" NAME64 NAME64 NAME64 NAME64 "}",
                    "\"R{" NAME64 NAME64 NAME64 NAME64 "}\"");
}

/* The score of a judge's words, or the reason why there is none. */
static void expect_words_score(const char *const *keys, const char *words,
                               double expected, const char *reason)
{
    desk d;
    xr_err err = { "" };
    http_judge *judge = NULL;
    double score = 0;
    desk_open(&d, keys);
    assert_int_equal(http_judge_open((const void *)d.config, &err, &judge),
                     XRAY_OK);
    xray_status status = http_judge_score(judge, words, &err, &score);
    assert_int_equal(status, reason ? XRAY_E_IO : XRAY_OK);
    if (reason)
        expect_words(err.text, reason);
    else if (score != expected)
        fail_msg("%s: %g", words, score);
    http_judge_close(judge);
    desk_close(&d);
}

#define DIGITS60 "000000000000000000000000000000000000000000000000000000000000"

static void patterns_give_their_last_match(void **state)
{
    static const struct {
        const char *pattern;
        const char *words;
        double score;
        const char *reason; /* NULL: there is a score */
    } rows[] = {
        { "[0-9]+", "7", 7, NULL },
        { "([a-z])?([0-9]+)", "7", 7, NULL },
        { "[0-9]", "123", 3, NULL },
        { "([0-9]+)%|[0-9]+", "7 50%", 50, NULL },
        { "([0-9]+)%|[0-9]+", "50% 7", 7, NULL },
        { "(?:x|([0-9]))y", "1y xy", 0, "that is no number: \"1y xy\"" },
        { "=(.*)$", "=\t 7 \r\n", 7, NULL },
        { "(?s)=(.*)$", "= \r\n7\t\n ", 7, NULL },
        { "=(.*)", "=7 a", 0, "that is no number: \"=7 a\"" },
        { "=( *)", "=  ", 0, "that is no number" },
        { "[0-9]+", DIGITS60 "123", 123, NULL },
        { "[0-9]+", DIGITS60 "1234", 0, "that is no number" },
        { "[0-9]*", "a", 0, "has no match of the pattern: \"a\"" },
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        expect_words_score(CHAT("{response}", "pattern", rows[i].pattern),
                           rows[i].words, rows[i].score, rows[i].reason);
}

static void objects_reach_from_the_first_to_the_last_brace(void **state)
{
    static const struct {
        const char *words;
        double score;
        const char *reason;
    } rows[] = {
        { "{\"s\":{\"a\":2}}", 2, NULL },
        { "so {\"s\":{\"a\":\" 2.5\\n\"}} it is", 2.5, NULL },
        { "{\"s\":{\"a\":\"two\"}}", 0, "has no number as its s.a" },
        { "{\"s\":{\"a\":true}}", 0, "has no number as its s.a" },
        { "{\"s\":2}", 0, "has no number as its s.a" },
        { "{\"s\":{\"a\":1}} {\"s\":{\"a\":2}}", 0, "has no JSON object" },
        { "}{", 0, "has no JSON object" },
        { "}", 0, "has no JSON object" },
        { "{", 0, "has no JSON object" },
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        expect_words_score(CHAT("{response}", "score_path", "s.a"),
                           rows[i].words, rows[i].score, rows[i].reason);
}

/* Of a judge's words a message has the first 160 bytes. */
static void long_words_are_cut(void **state)
{
    char words[200];
    char reason[256];
    (void)state;
    for (int size = 160; size <= 161; size++) {
        memset(words, 'x', sizeof(words));
        words[size] = '\0';
        (void)snprintf(reason, sizeof(reason), "pattern: \"%.160s%s\"", words,
                       size > 160 ? "..." : "");
        expect_words_score(CHAT("{response}", "pattern", "1"), words, 0,
                           reason);
    }
}

static void templates_that_cannot_work_are_refused(void **state)
{
    static char large[(1 << 20) + 2];
    (void)state;
    memset(large, 'a', sizeof(large) - 1);
    memcpy(large, "{response}", 10);
    expect_refusal("https://localhost/", CHAT(large, "pattern", "1"),
                   "template_file");
    large[1 << 20] = '\0';
    desk d;
    desk_open(&d, CHAT(large, "pattern", "1"));
    desk_close(&d);
    const char *path = scratch_path("nul");
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite("{response}\0a", 1, 12, file), 12);
    assert_int_equal(fclose(file), 0);
    expect_refusal("https://localhost/",
                   RIG_KEYS("protocol", "chat", "model", "a", "template_file",
                            path, "pattern", "1"),
                   "has a NUL byte, expected text");
}

/* ---- keys --------------------------------------------------------------- */

static void keys_are_covered_wherever_they_are(void **state)
{
    static const struct {
        const char *text;
        const char *covered;
    } rows[] = {
        { "sesame12", "********" },
        { "a sesame12", "a ********" },
        { "sesame12sesame12 b sesame12", "**************** b ********" },
        { "sesame1", "sesame1" },
        { "sesame1 sesame12sesame1", "sesame1 ********sesame1" },
        { "", "" },
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char text[64];
        (void)snprintf(text, sizeof(text), "%s", rows[i].text);
        http_key_cover("sesame12", text, strlen(text));
        assert_string_equal(text, rows[i].covered);
        (void)snprintf(text, sizeof(text), "%s", rows[i].text);
        http_key_cover(NULL, text, strlen(text));
        assert_string_equal(text, rows[i].text);
    }
}

/* As writers of JSON and of addresses escape a key. */
static void escaped_keys_are_covered(void **state)
{
    static const struct {
        const char *text;
        const char *covered;
    } rows[] = {
        { "a b+/\"\\cdef", "a *********" },
        { "a b+\\/\\\"\\\\cdef b", "a ************ b" },
        { "\\u0062+\\/\\\"\\u005Ccdef", "*********************" },
        { "b%2B%2f%22%5Ccdef&b", "*****************&b" },
        { "b%2B%2f%22%5Ccde", "b%2B%2f%22%5Ccde" },
        { "b\\+/\"\\cdef", "b\\+/\"\\cdef" },
        { "b%2", "b%2" },
        { "\\u006", "\\u006" },
        { "\\", "\\" },
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char text[64];
        (void)snprintf(text, sizeof(text), "%s", rows[i].text);
        http_key_cover("b+/\"\\cdef", text, strlen(text));
        assert_string_equal(text, rows[i].covered);
    }
}

static void keys_of_files_need_a_mode_and_a_form(void **state)
{
    static const struct {
        const char *key;
        unsigned mode;
        const char *read; /* NULL: refused */
    } rows[] = {
        { "sesame12", 0600, "sesame12" },
        { "sesame12", 0400, "sesame12" },
        { "sesame12", 0640, NULL },
        { "sesame12", 0620, NULL },
        { "sesame12", 0610, NULL },
        { "sesame12", 0604, NULL },
        { "sesame12", 0602, NULL },
        { "sesame12", 0601, NULL },
        { "sesame1", 0600, NULL },
        { "sesame1 \r\n", 0600, NULL },
        { "!sesame~ \t\r\n", 0600, "!sesame~" },
        { " sesame12", 0600, NULL },
        { "sesame\x7f"
          "12",
          0600, NULL },
        { "sesame\xc3\xa9", 0600, NULL },
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        xr_err err = { "" };
        char *key = NULL;
        const char *path = scratch_write("mode", rows[i].key);
        assert_int_equal(chmod(path, rows[i].mode), 0);
        const http_config config = { .key_env = "", .key_file = path };
        xray_status status = http_key_read(&config, &err, &key);
        assert_int_equal(status, rows[i].read ? XRAY_OK : XRAY_E_CONFIG);
        if (rows[i].read)
            assert_string_equal(key, rows[i].read);
        else
            assert_null(key);
        free(key);
        assert_int_equal(chmod(path, 0600), 0);
    }
}

/* A key that would travel to another host without TLS is a warning. */
static void keys_in_the_open_are_warned_of(void **state)
{
    static const struct {
        const char *url;
        int warned;
    } rows[] = {
        { "http://localhost:1/a", 0 },
        { "http://127.0.0.1:1/a", 0 },
        { "http://127.1.2.3/a", 0 },
        { "http://[::1]:1/a", 0 },
        { "https://judge.invalid/a", 0 },
        { "http://judge.invalid/a", 1 },
        { "http://localhost.invalid/", 1 },
        { "http://127.invalid/", 1 },
        { "http://[::2]/a", 1 },
        { "http://128.0.0.1/a", 1 },
    };
    (void)state;
    const char *path = scratch_write("warned", "sesame12");
    assert_int_equal(chmod(path, 0600), 0);
    assert_int_equal(setenv("TEST_KEY", "sesame12", 1), 0);
    for (size_t i = 0; i < 3 * sizeof(rows) / sizeof(rows[0]); i++) {
        rig r;
        const char *url = rows[i / 3].url;
        memset(&r, 0, sizeof(r));
        xray_status status =
            i % 3 == 2 ? try_create(&r, url, NULL)
            : i % 3    ? try_create(&r, url, RIG_KEYS("key_file", path))
                       : try_create(&r, url, RIG_KEYS("key_env", "TEST_KEY"));
        assert_int_equal(status, XRAY_OK);
        if (r.host.warnings != (rows[i / 3].warned && i % 3 != 2))
            fail_msg("%s: %d warnings", url, r.host.warnings);
        r.ops->destroy(r.self);
    }
}

static void refusals_do_not_repeat_passwords(void **state)
{
    static const char *const urls[] = { "http://me:sesame12@host:x/",
                                        "http://me:sesame12@host/",
                                        "ftp://me:sesame12@host/" };
    (void)state;
    for (size_t i = 0; i < sizeof(urls) / sizeof(urls[0]); i++) {
        rig r;
        memset(&r, 0, sizeof(r));
        assert_int_equal(try_create(&r, urls[i], NULL), XRAY_E_CONFIG);
        expect_words(r.host.reason, "url");
        assert_null(strstr(r.host.reason, "sesame12"));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_belong_to_their_samples),
        cmocka_unit_test(one_wrong_row_fails_all),
        cmocka_unit_test(rewards_come_in_the_order_of_the_samples),
        cmocka_unit_test(requests_have_lists_of_samples),
        cmocka_unit_test(braces_around_names_stand_for_parts),
        cmocka_unit_test(patterns_give_their_last_match),
        cmocka_unit_test(objects_reach_from_the_first_to_the_last_brace),
        cmocka_unit_test(long_words_are_cut),
        cmocka_unit_test(templates_that_cannot_work_are_refused),
        cmocka_unit_test(keys_are_covered_wherever_they_are),
        cmocka_unit_test(escaped_keys_are_covered),
        cmocka_unit_test(keys_of_files_need_a_mode_and_a_form),
        cmocka_unit_test(keys_in_the_open_are_warned_of),
        cmocka_unit_test(refusals_do_not_repeat_passwords),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_drop);
}
