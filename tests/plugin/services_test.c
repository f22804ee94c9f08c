/* SPDX-License-Identifier: Apache-2.0
 *
 * Proves what a host gives by id: whether to stop, the log level, metrics, and
 * which thread drives the run.
 */
#include <math.h>
#include <pthread.h>

#include <xray/services.h>

#include "core/plugin/cancel.h"
#include "core/plugin/plugin.h"
#include "tests/testing.h"

static const void *find_service(const xr_host *host, const char *id)
{
    const xray_host *api = xr_host_api(host);
    return api->service(api, id);
}

static void every_call_hears_of_a_stop(void **state)
{
    (void)state;
    xr_host *host = xr_host_new("train.x", NULL);
    xr_err err = { "" };
    const xray_call_service *calls = find_service(host, XRAY_SERVICE_CALLS);
    _Atomic uint32_t word = 0;
    assert_int_equal(calls->stopping(calls), 0);
    assert_int_equal(xr_stop_check(calls, &err), XRAY_OK);
    xr_cancel();
    assert_int_equal(calls->stopping(calls), 1);
    assert_int_equal(xr_stop_check(calls, &err), XRAY_E_CANCELED);
    assert_string_equal(err.text, "the run is stopped");
    assert_int_equal(xr_cancel_check(&err), XRAY_E_CANCELED);
    xr_cancel_reset();
    assert_int_equal(calls->stopping(calls), 0);
    xr_cancel_follow(&word);
    assert_int_equal(calls->stopping(calls), 0);
    word = 1;
    assert_int_equal(calls->stopping(calls), 1);
    xr_cancel_follow(NULL);
    assert_int_equal(calls->stopping(calls), 0);
    xr_host_free(host);
}

static void a_host_may_have_no_service(void **state)
{
    (void)state;
    xr_host *host = xr_host_new("train.x", NULL);
    assert_null(find_service(host, "xray.host.none/0"));
    assert_null(find_service(host, NULL));
    assert_null(xr_calls_of(NULL));
    assert_ptr_equal(xr_calls_of(xr_host_api(host)),
                     find_service(host, XRAY_SERVICE_CALLS));
    assert_int_equal(xr_stop_check(NULL, NULL), XRAY_OK);
    xr_host_free(host);
}

static void write_nothing(void *ctx, uint32_t level, const char *instance,
                          const char *text)
{
    (void)ctx;
    (void)level;
    (void)instance;
    (void)text;
}

static void log_level_is_what_is_written(void **state)
{
    (void)state;
    xr_log_sink sink = { NULL, write_nothing, XRAY_LOG_DEBUG, 0 };
    xr_host *host = xr_host_new("train.x", &sink);
    const xray_log_service *log = find_service(host, XRAY_SERVICE_LOG);
    assert_int_equal(log->level(log), XRAY_LOG_DEBUG);
    xr_host_free(host);
    sink.write = NULL;
    host = xr_host_new("train.x", &sink);
    log = find_service(host, XRAY_SERVICE_LOG);
    assert_int_equal(log->level(log), 0);
    xr_host_free(host);
}

/* ---- metrics ------------------------------------------------------------ */

typedef struct lines {
    uint32_t count;
    double values[4];
    char names[4][64];
} lines;

static void keep_metric(void *ctx, const char *name, double value)
{
    lines *l = ctx;
    if (l->count < 4) {
        (void)snprintf(l->names[l->count], sizeof(l->names[0]), "%s", name);
        l->values[l->count] = value;
    }
    l->count++;
}

static void last_value_of_a_step_counts(void **state)
{
    (void)state;
    xr_host *host = xr_host_new("infer.x", NULL);
    const xray_metrics_service *m = find_service(host, XRAY_SERVICE_METRICS);
    lines l = { 0 };
    assert_int_equal(m->put(m, "rows", 3), XRAY_OK);
    assert_int_equal(m->put(m, "kv/used_2", 0.5), XRAY_OK);
    assert_int_equal(m->put(m, "rows", 4), XRAY_OK);
    xr_host_metrics(host, keep_metric, &l);
    assert_int_equal(l.count, 2);
    assert_string_equal(l.names[0], "perf/infer.x/rows");
    assert_true(l.values[0] == 4);
    assert_string_equal(l.names[1], "perf/infer.x/kv/used_2");
    assert_true(l.values[1] == 0.5);
    xr_host_metrics(host, keep_metric, &l); /* the next step has none */
    assert_int_equal(l.count, 2);
    xr_host_free(host);
}

static void bad_metrics_are_refused(void **state)
{
    static const char *const bad[] = {
        NULL,
        "",
        "Rows",
        "rows per step",
        "a\"b",
        "a.b",
        "a_name_of_forty_eight_characters_is_one_too_long"
    };
    (void)state;
    xr_host *host = xr_host_new("infer.x", NULL);
    const xray_metrics_service *m = find_service(host, XRAY_SERVICE_METRICS);
    lines l = { 0 };
    char name[16];
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_int_equal(m->put(m, bad[i], 1), XRAY_E_ARG);
    assert_int_equal(m->put(m, bad[6] + 1, 1), XRAY_OK);
    for (uint32_t i = 1; i < XRAY_METRICS_MOST; i++) {
        (void)snprintf(name, sizeof(name), "m%u", i);
        assert_int_equal(m->put(m, name, 1), XRAY_OK);
    }
    assert_int_equal(m->put(m, "one_more", 1), XRAY_E_RANGE);
    assert_int_equal(m->put(m, "m1", 2), XRAY_OK);
    xr_host_metrics(host, keep_metric, &l);
    assert_int_equal(l.count, XRAY_METRICS_MOST);
    xr_host_free(host);
}

/* ---- threads ------------------------------------------------------------ */

static void *ask_elsewhere(void *data)
{
    const xr_host *host = data;
    const xray_call_service *calls = find_service(host, XRAY_SERVICE_CALLS);
    const xray_metrics_service *m = find_service(host, XRAY_SERVICE_METRICS);
    int wrong =
        calls->on_control(calls) != 0 || m->put(m, "rows", 1) != XRAY_E_STATE;
    return wrong ? data : NULL;
}

static void another_thread_is_not_control(void **state)
{
    (void)state;
    xr_host *host = xr_host_new("infer.x", NULL);
    const xray_call_service *calls = find_service(host, XRAY_SERVICE_CALLS);
    pthread_t thread;
    void *wrong = NULL;
    assert_int_equal(calls->on_control(calls), 1);
    assert_int_equal(pthread_create(&thread, NULL, ask_elsewhere, host), 0);
    assert_int_equal(pthread_join(thread, &wrong), 0);
    assert_null(wrong);
    xr_host_free(host);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_call_hears_of_a_stop),
        cmocka_unit_test(a_host_may_have_no_service),
        cmocka_unit_test(log_level_is_what_is_written),
        cmocka_unit_test(last_value_of_a_step_counts),
        cmocka_unit_test(bad_metrics_are_refused),
        cmocka_unit_test(another_thread_is_not_control),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
