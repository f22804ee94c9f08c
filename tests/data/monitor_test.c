/* SPDX-License-Identifier: Apache-2.0
 *
 * Proves metrics of a step, their lines in a file, the progress line, and
 * plots.
 */
#include "core/monitor/monitor.h"

#include <math.h>

#include "core/base/json.h"
#include "tests/scratch.h"

static char *read_text(const char *path)
{
    char *text = NULL;
    size_t size;
    xr_err err = { "" };
    if (xr_file_read(path, 1 << 20, &err, &text, &size) != XRAY_OK)
        fail_msg("%s", err.text);
    return text;
}

static void names_keep_the_order_of_use(void **state)
{
    (void)state;
    const float values[] = { 1.0f, 4.0f, -2.0f };
    xr_metrics *m = xr_metrics_new();
    assert_non_null(m);
    xr_metrics_put(m, "b", 1);
    xr_metrics_put(m, "a", 2);
    xr_metrics_put(m, "b", 3);
    xr_metrics_stats(m, "s", values, 3);
    assert_int_equal(xr_metrics_count(m), 5);
    assert_string_equal(xr_metrics_name(m, 0), "b");
    assert_true(xr_metrics_value(m, 0) == 3);
    assert_true(xr_metrics_get(m, "s/mean") == 1);
    assert_true(xr_metrics_get(m, "s/max") == 4);
    assert_true(xr_metrics_get(m, "s/min") == -2);
    xr_metrics_clear(m);
    assert_int_equal(xr_metrics_count(m), 0);
    assert_true(isnan(xr_metrics_get(m, "b")));
    /* An earlier step does not affect the order. */
    xr_metrics_put(m, "a", 5);
    xr_metrics_put(m, "b", 6);
    xr_metrics_stats(m, "none", values, 0);
    assert_int_equal(xr_metrics_count(m), 2);
    assert_string_equal(xr_metrics_name(m, 0), "a");
    assert_string_equal(xr_metrics_name(m, 1), "b");
    assert_null(xr_metrics_name(m, 2));
    xr_metrics_free(m);
}

/* One NaN is visible in all statistics of the values, at whatever index it
 * is. */
static void nan_is_visible(void **state)
{
    (void)state;
    static const char *const names[] = { "s/mean", "s/max", "s/min" };
    for (size_t at = 0; at < 4; at++) {
        float values[] = { 1.0f, 4.0f, -2.0f, 3.0f };
        xr_metrics *m = xr_metrics_new();
        assert_non_null(m);
        values[at] = NAN;
        xr_metrics_stats(m, "s", values, 4);
        for (size_t i = 0; i < 3; i++)
            if (!isnan(xr_metrics_get(m, names[i])))
                fail_msg("%s is %g with a NaN at %zu", names[i],
                         xr_metrics_get(m, names[i]), at);
        xr_metrics_free(m);
    }
}

static void many_names_are_kept(void **state)
{
    (void)state;
    xr_metrics *m = xr_metrics_new();
    char name[32];
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < 1000; i++) {
            (void)snprintf(name, sizeof name, "metric/%d", i);
            xr_metrics_put(m, name, i);
        }
        assert_int_equal(xr_metrics_count(m), 1000);
        assert_true(xr_metrics_get(m, "metric/777") == 777);
        xr_metrics_clear(m);
    }
    xr_metrics_free(m);
}

static void values_are_replaced_in_place(void **state)
{
    (void)state;
    static const float values[] = { 2.0f, -1.0f, 0.5f, 4.5f };
    static const struct {
        const char *name;
        double value;
    } want[] = { { "z", 3 },      { "s/mean", 1.5 }, { "s/max", 4.5 },
                 { "s/min", -1 }, { "one/mean", 2 }, { "one/max", 2 },
                 { "one/min", 2 } };
    xr_metrics *m = xr_metrics_new();
    xr_metrics_put(m, "s/min", 0);
    xr_metrics_put(m, "z", 1);
    xr_metrics_clear(m);
    xr_metrics_put(m, "z", 3);
    xr_metrics_stats(m, "s", values, 4);
    xr_metrics_stats(m, "one", values, 1);
    assert_int_equal(xr_metrics_count(m), 7);
    for (size_t i = 0; i < 7; i++) {
        assert_string_equal(xr_metrics_name(m, i), want[i].name);
        assert_true(xr_metrics_value(m, i) == want[i].value);
        assert_true(xr_metrics_get(m, want[i].name) == want[i].value);
    }
    static const float below[] = { -3.0f, -2.0f, -4.0f };
    xr_metrics_stats(m, "below", below, 3);
    assert_true(xr_metrics_get(m, "below/mean") == -3);
    assert_true(xr_metrics_get(m, "below/max") == -2);
    assert_true(xr_metrics_get(m, "below/min") == -4);
    xr_metrics_stats(m, "above", values + 3, 1);
    assert_true(xr_metrics_get(m, "above/min") == 4.5);
    /* A name that is set in one step and not in the next is set again in the
     * third. */
    for (int step = 0; step < 3; step++) {
        xr_metrics_clear(m);
        assert_int_equal(xr_metrics_count(m), 0);
        assert_true(isnan(xr_metrics_get(m, "z")));
        if (step == 1)
            xr_metrics_put(m, "s/min", 1);
        xr_metrics_put(m, "z", step);
        assert_int_equal(xr_metrics_count(m), step == 1 ? 2 : 1);
        assert_string_equal(xr_metrics_name(m, step == 1), "z");
    }
    assert_true(isnan(xr_metrics_value(m, 7)));
    assert_true(isnan(xr_metrics_get(m, "never")));
    xr_metrics_free(m);
}

/* More names than the initial capacity, each with its own value. */
static void names_beyond_the_first_capacity_are_kept(void **state)
{
    (void)state;
    char name[32];
    xr_metrics *m = xr_metrics_new();
    for (int i = 0; i < 300; i++) {
        (void)snprintf(name, sizeof name, "m%d", i);
        xr_metrics_put(m, name, i * 0.5);
    }
    assert_int_equal(xr_metrics_count(m), 300);
    for (size_t i = 0; i < 300; i++) {
        (void)snprintf(name, sizeof name, "m%zu", i);
        assert_string_equal(xr_metrics_name(m, i), name);
        assert_true(xr_metrics_value(m, i) == (double)i * 0.5);
        assert_true(xr_metrics_get(m, name) == (double)i * 0.5);
    }
    xr_metrics_free(m);
}

/* Steps [first, last] with one metric each. */
static void write_steps(const char *path, int64_t keep, uint64_t first,
                        uint64_t last)
{
    xr_monitor *monitor;
    xr_err err = { "" };
    xr_metrics *m = xr_metrics_new();
    if (xr_monitor_open(path, keep, 0, NULL, &err, &monitor) != XRAY_OK)
        fail_msg("%s", err.text);
    for (uint64_t step = first; step <= last; step++) {
        xr_metrics_clear(m);
        xr_metrics_put(m, "critic/score/mean", (double)step / 8);
        assert_int_equal(xr_monitor_step(monitor, step, 0, m, &err), XRAY_OK);
    }
    xr_monitor_close(monitor);
    xr_metrics_free(m);
}

static void resume_cuts_later_lines(void **state)
{
    (void)state;
    const char *path = scratch_path("metrics.jsonl");
    write_steps(path, -1, 0, 4);
    char *five = read_text(path);
    /* A killed run left later steps and an incomplete line. */
    write_steps(path, -1, 5, 6);
    FILE *file = fopen(path, "ab");
    assert_non_null(file);
    (void)fputs("{\"step\":7,\"critic/sc", file);
    (void)fclose(file);
    write_steps(path, 2, 3, 4);
    char *again = read_text(path);
    assert_string_equal(again, five);
    assert_non_null(
        strstr(again, "{\"step\":3,\"critic/score/mean\":0.375}\n"));
    free(five);
    free(again);
}

static void special_values_become_null(void **state)
{
    (void)state;
    const char *path = scratch_path("special.jsonl");
    xr_monitor *monitor;
    xr_metrics *m = xr_metrics_new();
    assert_int_equal(xr_monitor_open(path, -1, 0, NULL, NULL, &monitor),
                     XRAY_OK);
    xr_metrics_put(m, "quote\"", (double)NAN);
    xr_metrics_put(m, "third", 1.0 / 3.0);
    assert_int_equal(xr_monitor_step(monitor, 1, 1, m, NULL), XRAY_OK);
    xr_monitor_close(monitor);
    xr_metrics_free(m);
    cJSON *line;
    char *text = read_text(path);
    assert_int_equal(xr_json_parse(text, strlen(text), path, NULL, &line),
                     XRAY_OK);
    assert_true(cJSON_IsNull(cJSON_GetObjectItem(line, "quote\"")));
    assert_true(xr_json_get(line, "third")->valuedouble == 1.0 / 3.0);
    cJSON_Delete(line);
    free(text);
}

static void foreign_files_are_left_unchanged(void **state)
{
    (void)state;
    xr_monitor *monitor;
    xr_err err = { "" };
    const char *path = scratch_write("notes.txt", "my notes\nmore\n");
    assert_int_equal(xr_monitor_open(path, 0, 0, NULL, &err, &monitor),
                     XRAY_E_CONFIG);
    assert_non_null(strstr(err.text, "notes.txt:1:"));
    char *text = read_text(path);
    assert_string_equal(text, "my notes\nmore\n");
    free(text);
    assert_int_equal(xr_monitor_open(scratch_path("no/such/dir"), -1, 0, NULL,
                                     &err, &monitor),
                     XRAY_E_IO);
}

static void plots_show_the_values(void **state)
{
    (void)state;
    double values[200];
    xr_str out = { 0 };
    for (int i = 0; i < 200; i++)
        values[i] = i / 199.0;
    values[7] = (double)NAN;
    xr_plot(values, 200, 40, 9, "reward", &out);
    const char *text = xr_str_text(&out);
    size_t lines = 0;
    size_t stars = 0;
    size_t longest = 0;
    for (const char *at = text; *at;) {
        size_t n = strcspn(at, "\n");
        longest = n > longest ? n : longest;
        for (size_t i = 0; i < n; i++)
            stars += at[i] == '*';
        lines++;
        at += n + 1;
    }
    assert_int_equal(lines, 1 + 9 + 2);
    assert_int_equal(stars, 40);
    assert_true(longest <= 40 + 13);
    assert_int_equal(strncmp(text, "reward\n", 7), 0);
    /* A rising curve: the first row's star is at the right end. */
    const char *row = strchr(text, '\n') + 1;
    assert_true(strcspn(row, "*") > strcspn(row, "|") + 35);
    xr_str_clear(&out);
    double flat[3] = { 2, 2, 2 };
    xr_plot(flat, 3, 40, 5, "flat", &out);
    assert_non_null(strstr(xr_str_text(&out), "***"));
    xr_str_clear(&out);
    xr_plot(flat, 0, 40, 5, "none", &out);
    assert_non_null(strstr(xr_str_text(&out), "no values"));
    xr_str_free(&out);
}

/* The numbers at a plot's first and last row. */
static void plot_range(const char *plot, unsigned height, double *out_top,
                       double *out_bottom)
{
    const char *row = strchr(plot, '\n') + 1;
    *out_top = strtod(row, NULL);
    for (unsigned i = 1; i < height; i++)
        row = strchr(row, '\n') + 1;
    *out_bottom = strtod(row, NULL);
}

/* A constant curve runs through the middle of the plot, whose first row has a
 * larger value than its last one. */
static void flat_values_are_in_the_middle(void **state)
{
    (void)state;
    static const double all[] = { 2, 0, -2, -1e-3 };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        const double flat[3] = { all[i], all[i], all[i] };
        double top;
        double bottom;
        xr_str out = { 0 };
        xr_plot(flat, 3, 40, 5, "flat", &out);
        const char *row = strchr(xr_str_text(&out), '\n') + 1;
        plot_range(xr_str_text(&out), 5, &top, &bottom);
        assert_true(top > all[i] && all[i] > bottom);
        assert_true(fabs(top - all[i] - (all[i] - bottom)) < 1e-9);
        for (int k = 0; k < 2; k++)
            row = strchr(row, '\n') + 1;
        assert_true(strcspn(row, "*") < strcspn(row, "\n"));
        assert_true(strtod(row, NULL) == all[i]);
        xr_str_free(&out);
    }
}

static void progress_is_on_stderr(void **state)
{
    (void)state;
    const char *const watch[] = { "critic/score/mean", "missing", NULL };
    xr_monitor *monitor;
    xr_metrics *m = xr_metrics_new();
    const char *path = scratch_path("stderr.txt");
    (void)fflush(stderr);
    int saved = dup(STDERR_FILENO);
    FILE *file = fopen(path, "wb");
    assert_true(file && saved >= 0 && dup2(fileno(file), STDERR_FILENO) >= 0);
    assert_int_equal(xr_monitor_open(NULL, -1, 1, watch, NULL, &monitor),
                     XRAY_OK);
    xr_metrics_put(m, "critic/score/mean", 0.25);
    xray_status status = xr_monitor_step(monitor, 1, 3, m, NULL);
    xr_monitor_say(monitor, "a checkpoint was written");
    status |= xr_monitor_step(monitor, 3, 3, m, NULL);
    xr_monitor_close(monitor);
    (void)dup2(saved, STDERR_FILENO);
    (void)close(saved);
    (void)fclose(file);
    xr_metrics_free(m);
    assert_int_equal(status, XRAY_OK);
    char *text = read_text(path);
    assert_non_null(strstr(text, "step 1/3  critic/score/mean 0.25  eta "));
    assert_non_null(strstr(text, "\na checkpoint was written\n"));
    assert_non_null(strstr(text, "step 3/3  critic/score/mean 0.25\n"));
    assert_null(strstr(text, "missing"));
    free(text);
}

/* The first and last rows are the greatest and the least column: means of five
 * values each. */
static void a_plot_goes_from_its_least_to_its_greatest_value(void **state)
{
    double values[200];
    double top;
    double bottom;
    xr_str out = { 0 };
    (void)state;
    for (int i = 0; i < 200; i++)
        values[i] = 10 + i;
    xr_plot(values, 200, 40, 9, "rising", &out);
    plot_range(xr_str_text(&out), 9, &top, &bottom);
    assert_true(fabs(top - 207) < 0.5 && fabs(bottom - 12) < 0.5);
    /* The axis ends where the curve does, above the number of the last value.
     */
    const char *axis = strchr(xr_str_text(&out), '+');
    const size_t dashes = strspn(axis + 1, "-");
    assert_int_equal(dashes, 40);
    assert_string_equal(axis + 1 + dashes, "\n            1"
                                           "                                   "
                                           " 200\n");
    xr_str_clear(&out);
    xr_plot(values, 1, 40, 5, "one", &out);
    axis = strchr(xr_str_text(&out), '+');
    assert_string_equal(axis, "+-\n            1\n");
    xr_str_clear(&out);
    xr_plot(values, 2, 40, 2, "two", &out);
    assert_string_equal(xr_str_text(&out), "two\n"
                                           "        11 | *\n"
                                           "        10 |*\n"
                                           "           +--\n"
                                           "            1 2\n");
    xr_str_free(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_keep_the_order_of_use),
        cmocka_unit_test(nan_is_visible),
        cmocka_unit_test(many_names_are_kept),
        cmocka_unit_test(values_are_replaced_in_place),
        cmocka_unit_test(names_beyond_the_first_capacity_are_kept),
        cmocka_unit_test(resume_cuts_later_lines),
        cmocka_unit_test(special_values_become_null),
        cmocka_unit_test(foreign_files_are_left_unchanged),
        cmocka_unit_test(plots_show_the_values),
        cmocka_unit_test(flat_values_are_in_the_middle),
        cmocka_unit_test(a_plot_goes_from_its_least_to_its_greatest_value),
        cmocka_unit_test(progress_is_on_stderr),
    };
    return cmocka_run_group_tests_name("monitor", tests, scratch_make,
                                       scratch_drop);
}
