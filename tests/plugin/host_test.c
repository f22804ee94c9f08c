/* SPDX-License-Identifier: Apache-2.0
 *
 * Proves reasons of failed calls and log lines. cmocka has a macro named fail,
 * hence the parentheses around the callback.
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

static void reason_has_its_location(void **state)
{
    (void)state;
    xr_err err = { "" };
    xr_host *host = xr_host_new("algo.x", NULL);
    const xray_host *api = xr_host_api(host);
    const xray_location own = { .header = XRAY_HEADER(xray_location),
                                .key = "lr" };
    const xray_location other = { .header = XRAY_HEADER(xray_location),
                                  .section = "model",
                                  .key = "dtype" };
    const xray_location file = { .header = XRAY_HEADER(xray_location),
                                 .file = "m/c" };
    const xray_location none = { .header = XRAY_HEADER(xray_location) };
    assert_true(XRAY_HAS(xray_host, api, fail_at));
    assert_int_equal(api->fail_at(api, XRAY_E_CONFIG, "create", &own, ": is 0"),
                     XRAY_E_CONFIG);
    (void)xr_host_error(host, XRAY_E_CONFIG, "create", &err);
    assert_string_equal(err.text, "algo.x: create: lr: is 0");
    assert_string_equal(err.location.section, "algo.x");
    assert_string_equal(err.location.key, "lr");
    assert_string_equal(err.text + err.location.name_end, ": is 0");
    /* The critic is an instance of the trainer's options. */
    xr_host_section(host, "train.x");
    (void)api->fail_at(api, XRAY_E_CONFIG, "create", &own, ": is 0");
    (void)xr_host_error(host, XRAY_E_CONFIG, "create", &err);
    assert_string_equal(err.text, "algo.x: create: lr: is 0");
    assert_string_equal(err.location.section, "train.x");
    (void)api->fail_at(api, XRAY_E_CONFIG, "plan", &other, " = 3 is none");
    (void)xr_host_error(host, XRAY_E_CONFIG, "plan", &err);
    assert_string_equal(err.text, "algo.x: plan: [model] dtype = 3 is none");
    assert_string_equal(err.location.section, "model");
    assert_string_equal(err.text + err.location.name_end, " = 3 is none");
    (void)api->fail_at(api, XRAY_E_CONFIG, NULL, &file, ": is short");
    (void)xr_host_error(host, XRAY_E_CONFIG, "plan", &err);
    assert_string_equal(err.location.key, "");
    assert_string_equal(err.text + err.location.name_begin, "m/c: is short");
    assert_string_equal(err.text + err.location.name_end, ": is short");
    (void)api->fail_at(api, XRAY_E_CONFIG, "plan", &none, "as it is");
    (void)xr_host_error(host, XRAY_E_CONFIG, "plan", &err);
    assert_string_equal(err.text, "algo.x: plan: as it is");
    assert_int_equal(err.location.name_end, 0);
    /* A location without a header, as if it had no members; and no text. */
    const xray_location bare = { .key = "lr", .file = "m/c" };
    (void)api->fail_at(api, XRAY_E_CONFIG, "plan", &bare, "as it is");
    (void)xr_host_error(host, XRAY_E_CONFIG, "plan", &err);
    assert_string_equal(err.text, "algo.x: plan: as it is");
    (void)api->fail_at(api, XRAY_E_CONFIG, "plan", &own, NULL);
    (void)xr_host_error(host, XRAY_E_CONFIG, "plan", &err);
    assert_string_equal(err.text, "algo.x: plan: no reason was given");
    xr_host_free(host);
}

static void further_reason_replaces_the_location(void **state)
{
    (void)state;
    xr_err err = { "" };
    xr_host *host = xr_host_new("algo.x", NULL);
    xr_host *below = xr_host_new("device.y", NULL);
    const xray_host *api = xr_host_api(host);
    const xray_host *device = xr_host_api(below);
    const xray_location own = { .header = XRAY_HEADER(xray_location),
                                .key = "lr" };
    (void)api->fail_at(api, XRAY_E_CONFIG, "create", &own, ": is 0");
    (void)(api->fail)(api, XRAY_E_CONFIG, "create", "the second half");
    (void)xr_host_error(host, XRAY_E_CONFIG, "create", &err);
    assert_string_equal(err.text,
                        "algo.x: create: the second half: create: lr: is 0");
    assert_int_equal(err.location.name_end, 0);
    /* Of two instances, the first one to report. */
    err = (xr_err){ "" };
    (void)api->fail_at(api, XRAY_E_CONFIG, "create", &own, ": is 0");
    (void)(device->fail)(device, XRAY_E_CONFIG, "alloc", "no memory left");
    assert_int_equal(xr_host_append(host, &err), 1);
    assert_int_equal(xr_host_append(below, &err), 1);
    assert_string_equal(err.text + err.location.name_end,
                        ": is 0: device.y: alloc: no memory left");
    assert_string_equal(err.location.section, "algo.x");
    xr_host_free(below);
    xr_host_free(host);
}

static void without_a_reason_that_of_the_instance_below_is_told(void **state)
{
    (void)state;
    xr_err err = { "" };
    xr_host *host = xr_host_new("train.x", NULL);
    xr_host *below = xr_host_new("comm.y", NULL);
    const xray_host *api = xr_host_api(host);
    const xray_host *comm = xr_host_api(below);
    xr_host_stand_on(host, below);
    (void)(comm->fail)(comm, XRAY_E_PEER, "all_reduce", "a rank is dead");
    assert_int_equal(xr_host_error(host, XRAY_E_PEER, "forward", &err),
                     XRAY_E_PEER);
    assert_string_equal(err.text,
                        "train.x: forward: comm.y: all_reduce: a rank is dead");
    (void)xr_host_error(host, XRAY_E_PEER, "forward", &err); /* once */
    assert_string_equal(
        err.text, "train.x: forward failed with status -400 (a rank is lost)");
    (void)(comm->fail)(comm, XRAY_E_PEER, "all_reduce", "a rank is dead");
    (void)(api->fail)(api, XRAY_E_NUMERIC, "loss", "is NaN");
    (void)xr_host_error(host, XRAY_E_NUMERIC, "forward", &err);
    assert_string_equal(err.text, "train.x: loss: is NaN");
    xr_host_free(below);
    xr_host_free(host);
}

static void long_reason_is_cut(void **state)
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

/* Lines up to the sink's level are written. */
static void lines_without_text_or_sink(void **state)
{
    (void)state;
    seen s = { 0 };
    xr_log_sink sink = { &s, keep_line, XRAY_LOG_INFO, 0 };
    xr_host *host = xr_host_new("a", &sink);
    const xray_host *api = xr_host_api(host);
    api->log(api, XRAY_LOG_INFO, NULL);
    assert_int_equal(s.count, 1);
    assert_int_equal(s.level, XRAY_LOG_INFO);
    assert_string_equal(s.text, "no text was given");
    assert_int_equal(api->header.size, sizeof(xray_host));
    assert_int_equal(api->header.abi, XRAY_ABI);
    assert_string_equal(api->version, XR_VERSION);
    xr_host_free(host);
    host = xr_host_new("b", NULL);
    api = xr_host_api(host);
    api->log(api, XRAY_LOG_ERROR, "into the air");
    xr_host_free(host);
    xr_host_free(NULL);
}

static void reasons_are_put_together(void **state)
{
    (void)state;
    xr_err err = { "" };
    xr_host *host = xr_host_new("reward.x", NULL);
    const xray_host *api = xr_host_api(host);
    assert_int_equal(xr_host_append(host, &err), 0);
    assert_string_equal(err.text, "");
    (void)(api->fail)(api, XRAY_E_IO, "open", NULL);
    assert_int_equal(xr_host_append(host, &err), 1);
    assert_string_equal(err.text, "reward.x: open: no reason was given");
    assert_int_equal(xr_host_append(host, &err), 0);
    (void)(api->fail)(api, XRAY_E_IO, "", "inner");
    (void)(api->fail)(api, XRAY_E_IO, "outer", "why");
    assert_int_equal(xr_host_append(host, &err), 1);
    assert_string_equal(err.text, "reward.x: open: no reason was given: "
                                  "reward.x: outer: why: inner");
    assert_int_equal(xr_host_error(host, XRAY_E_BUG, "poll", &err), XRAY_E_BUG);
    assert_string_equal(
        err.text, "reward.x: poll failed with status -402 (broken invariant)");
    xr_host_free(host);
}

/* The description of a status without a reason. */
static void statuses_have_a_meaning(void **state)
{
    (void)state;
    static const struct {
        xray_status status;
        const char *text;
    } rows[] = {
        { XRAY_E_ARG, "-100 (bad argument)" },
        { XRAY_E_RANGE, "-101 (size or value out of range)" },
        { XRAY_E_UNSUPPORTED, "-102 (not offered by this plugin)" },
        { XRAY_E_NOMEM, "-103 (out of memory)" },
        { XRAY_E_CANCELED, "-104 (canceled)" },
        { XRAY_E_STATE, "-200 (used out of order)" },
        { XRAY_E_CONFIG, "-201 (options cannot work)" },
        { XRAY_E_NUMERIC, "-202 (NaN, Inf or divergence)" },
        { XRAY_E_DEVICE, "-300 (accelerator error)" },
        { XRAY_E_IO, "-301 (file or network error)" },
        { XRAY_E_PEER, "-400 (a rank is lost)" },
        { XRAY_E_ABI, "-401 (plugin and host do not match)" },
        { XRAY_E_BUG, "-402 (broken invariant)" },
        { -999, "-999 (a status this xray does not know)" },
    };
    xr_host *host = xr_host_new("p", NULL);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char want[128];
        xr_err err = { "" };
        (void)snprintf(want, sizeof(want), "p: call failed with status %s",
                       rows[i].text);
        (void)xr_host_error(host, rows[i].status, "call", &err);
        assert_string_equal(err.text, want);
    }
    xr_host_free(host);
}

typedef struct waiting {
    xr_host *host;
    int number;
    pthread_barrier_t *failed;
    pthread_barrier_t *told;
    char text[128];
} waiting;

static void *fail_and_wait(void *arg)
{
    waiting *w = arg;
    char text[32];
    xr_err err = { "" };
    const xray_host *api = xr_host_api(w->host);
    (void)snprintf(text, sizeof(text), "reason %d", w->number);
    (void)(api->fail)(api, XRAY_E_ARG, NULL, text);
    (void)pthread_barrier_wait(w->failed);
    (void)pthread_barrier_wait(w->told);
    (void)xr_host_error(w->host, XRAY_E_ARG, "call", &err);
    (void)snprintf(w->text, sizeof(w->text), "%.127s", err.text);
    return NULL;
}

/* Eight threads may fail at the same time. A ninth replaces the reason of the
 * thread that failed longest ago, which is not the first one if that failed
 * again. */
static void ninth_reason_replaces_the_oldest(void **state)
{
    (void)state;
    enum { THREADS = 8 };
    pthread_t threads[THREADS];
    waiting w[THREADS];
    pthread_barrier_t failed;
    pthread_barrier_t told;
    xr_err err = { "" };
    xr_host *host = xr_host_new("x", NULL);
    const xray_host *api = xr_host_api(host);
    assert_int_equal(pthread_barrier_init(&failed, NULL, 2), 0);
    assert_int_equal(pthread_barrier_init(&told, NULL, THREADS + 1), 0);
    (void)(api->fail)(api, XRAY_E_ARG, NULL, "mine");
    for (int i = 0; i < THREADS; i++) {
        if (i == THREADS - 1)
            (void)(api->fail)(api, XRAY_E_ARG, NULL, "again");
        w[i] = (waiting){ host, i, &failed, &told, "" };
        assert_int_equal(
            pthread_create(&threads[i], NULL, fail_and_wait, &w[i]), 0);
        (void)pthread_barrier_wait(&failed); /* one after the other */
    }
    (void)pthread_barrier_wait(&told);
    for (int i = 0; i < THREADS; i++) {
        char want[64];
        assert_int_equal(pthread_join(threads[i], NULL), 0);
        (void)snprintf(want, sizeof(want),
                       i ? "x: reason %d"
                         : "x: call failed with status -100 (bad argument)",
                       i);
        assert_string_equal(w[i].text, want);
    }
    (void)xr_host_error(host, XRAY_E_ARG, "call", &err);
    assert_string_equal(err.text, "x: again: mine");
    (void)pthread_barrier_destroy(&failed);
    (void)pthread_barrier_destroy(&told);
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
        cmocka_unit_test(reason_has_its_location),
        cmocka_unit_test(further_reason_replaces_the_location),
        cmocka_unit_test(without_a_reason_that_of_the_instance_below_is_told),
        cmocka_unit_test(long_reason_is_cut),
        cmocka_unit_test(lines_without_text_or_sink),
        cmocka_unit_test(reasons_are_put_together),
        cmocka_unit_test(statuses_have_a_meaning),
        cmocka_unit_test(ninth_reason_replaces_the_oldest),
        cmocka_unit_test(each_thread_has_its_own_reason),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
