/* SPDX-License-Identifier: Apache-2.0
 *
 * Reasons of failed calls and log lines. cmocka has a macro named fail, hence
 * the parentheses around the callback.
 */
#include <pthread.h>

#include "core/plugin/plugin.h"
#include "tests/testing.h"

typedef struct seen {
    uint32_t level;
    uint32_t count;
    char instance[64];
    char text[64];
} seen;

static void keep_line(void *ctx, uint32_t level, const char *instance,
                      const char *text)
{
    seen *s = ctx;
    s->level = level;
    s->count++;
    (void)snprintf(s->instance, sizeof(s->instance), "%s", instance);
    (void)snprintf(s->text, sizeof(s->text), "%s", text);
}

static void log_lines_carry_the_instance(void **state)
{
    (void)state;
    seen s = { 0 };
    xr_log_sink sink = { &s, keep_line, XRAY_LOG_INFO, 0 };
    xr_host *host = xr_host_new("train.zero3", &sink);
    const xray_host *api = xr_host_api(host);
    api->log(api, XRAY_LOG_DEBUG, "dropped");
    assert_int_equal(s.count, 0);
    api->log(api, XRAY_LOG_WARN, "kept");
    assert_int_equal(s.count, 1);
    assert_int_equal(s.level, XRAY_LOG_WARN);
    assert_string_equal(s.instance, "train.zero3");
    assert_string_equal(s.text, "kept");
    assert_string_equal(xr_host_instance(host), "train.zero3");
    assert_null(api->service(api, "xray.host.none/0"));
    xr_host_free(host);
}

static void reasons_are_taken_once(void **state)
{
    (void)state;
    xr_err err = { "" };
    xr_host *host = xr_host_new("algo.x", NULL);
    const xray_host *api = xr_host_api(host);
    assert_int_equal((api->fail)(api, XRAY_E_CONFIG, "x_create", "lr is 0"),
                     XRAY_E_CONFIG);
    (void)(api->fail)(api, XRAY_E_CONFIG, NULL, "cannot start");
    assert_int_equal(xr_host_error(host, XRAY_E_CONFIG, "create", &err),
                     XRAY_E_CONFIG);
    assert_string_equal(err.text, "algo.x: cannot start: x_create: lr is 0");
    (void)xr_host_error(host, XRAY_E_NOMEM, "create", &err);
    assert_string_equal(
        err.text, "algo.x: create failed with status -103 (out of memory)");
    xr_host_free(host);
}

static void a_long_reason_is_cut(void **state)
{
    (void)state;
    char text[5000];
    xr_err err = { "" };
    xr_host *host = xr_host_new("algo.x", NULL);
    const xray_host *api = xr_host_api(host);
    memset(text, 'a', sizeof(text) - 1);
    text[sizeof(text) - 1] = '\0';
    for (int i = 0; i < 3; i++)
        (void)(api->fail)(api, XRAY_E_BUG, text, text);
    (void)xr_host_error(host, XRAY_E_BUG, "loss", &err);
    assert_int_equal(strlen(err.text), sizeof(err.text) - 1);
    xr_host_free(host);
}

typedef struct worker {
    xr_host *host;
    int number;
    int wrong;
} worker;

static void *fail_often(void *arg)
{
    worker *w = arg;
    const xray_host *api = xr_host_api(w->host);
    for (int i = 0; i < 2000; i++) {
        char text[32];
        char want[64];
        xr_err err = { "" };
        (void)snprintf(text, sizeof(text), "reason %d", w->number);
        (void)snprintf(want, sizeof(want), "x: %s", text);
        (void)(api->fail)(api, XRAY_E_ARG, "", text);
        (void)xr_host_error(w->host, XRAY_E_ARG, "call", &err);
        w->wrong += strcmp(err.text, want) != 0;
    }
    return NULL;
}

static void each_thread_has_its_own_reason(void **state)
{
    (void)state;
    enum { THREADS = 4 };
    pthread_t threads[THREADS];
    worker workers[THREADS];
    xr_host *host = xr_host_new("x", NULL);
    for (int i = 0; i < THREADS; i++) {
        workers[i] = (worker){ host, i, 0 };
        assert_int_equal(
            pthread_create(&threads[i], NULL, fail_often, &workers[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
        assert_int_equal(workers[i].wrong, 0);
    }
    xr_host_free(host);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(log_lines_carry_the_instance),
        cmocka_unit_test(reasons_are_taken_once),
        cmocka_unit_test(a_long_reason_is_cut),
        cmocka_unit_test(each_thread_has_its_own_reason),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
