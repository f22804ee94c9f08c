/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading of finished runs: resolved INIs, lines of metrics and samples, and
 * where two runs diverge.
 */
#include <math.h>

#include "core/ab/compare.h"
#include "core/ab/divergence.h"
#include "core/ab/tasks.h"
#include "tests/ab/made_up.h"

/* A message without the path of the scratch folder. */
static const char *without_scratch(const char *text)
{
    static char out[1024];
    const char *dir = scratch_dir();
    char *at;
    (void)snprintf(out, sizeof out, "%s", text);
    while ((at = strstr(out, dir)))
        memmove(at, at + strlen(dir) + 1, strlen(at + strlen(dir)));
    return out;
}

/* ---- resolved INIs ------------------------------------------------------ */

static xr_settings parse_settings(const char *text)
{
    xr_settings s;
    xr_err err = { "" };
    if (xr_settings_parse(text, "run.ini", &err, &s) != XRAY_OK)
        fail_msg("%s", err.text);
    return s;
}

static void settings_are_read(void **state)
{
    (void)state;
    static const char *const want[][2] = {
        { "run.seed", "7" },
        { "run.late", "x" },
        { "actor.optim.lr", "1e-6" },
        { "actor.optim.name", "a = b" },
        { "reward.words.pattern", "\" ; \"" },
    };
    xr_settings s = parse_settings(
        "[run]\nseed = 7\nlate = x\n\n\n[actor.optim]\nlr = 1e-6\n"
        "name = \"a = b\"\n[reward.words]\npattern = \" ; \"");
    assert_int_equal(s.count, 5);
    for (size_t i = 0; i < 5; i++) {
        assert_string_equal(s.items[i].key, want[i][0]);
        assert_string_equal(s.items[i].value, want[i][1]);
        assert_string_equal(xr_settings_get(&s, want[i][0]), want[i][1]);
    }
    assert_null(xr_settings_get(&s, "seed"));
    xr_settings_free(&s);
    s = parse_settings("");
    assert_int_equal(s.count, 0);
    xr_settings_free(&s);
}

static void bad_settings_are_refused(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        { "seed = 1\n", "run.ini:1: seed is set before the first section, "
                        "where only include is allowed" },
        { "[run]\n\nseed\n", "run.ini:3: expected [section] or key = value" },
        { "[run]\n = 1\n", "run.ini:2: there is no key before '='" },
        { "[run\nseed = 1\n",
          "run.ini:1: the section's name is not followed by ']'" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        xr_settings s;
        xr_err err = { "" };
        assert_int_equal(xr_settings_parse(cases[i][0], "run.ini", &err, &s),
                         XRAY_E_IO);
        assert_string_equal(err.text, cases[i][1]);
        assert_int_equal(s.count, 0);
    }
}

static void own_keys_are_known(void **state)
{
    (void)state;
    static const char *const own[] = {
        "run.seed",
        "run.threads",
        "run.log",
        "trainer.default_local_dir",
        "trainer.rollout_data_dir",
        "trainer.validation_data_dir",
        "trainer.resume_mode",
        "trainer.resume_from_path",
        "trainer.logger",
        "trainer.project_name",
        "trainer.experiment_name",
    };
    static const char *const others[] = { "run",         "run.seeds",
                                          "seed",        "data.seed",
                                          "run.device",  "trainer.test_freq",
                                          "trainer.log", "run.train" };
    for (size_t i = 0; i < sizeof own / sizeof own[0]; i++)
        if (!xr_setting_is_own(own[i]))
            fail_msg("%s", own[i]);
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        if (xr_setting_is_own(others[i]))
            fail_msg("%s", others[i]);
}

static void first_difference_is_found(void **state)
{
    (void)state;
    static const struct {
        const char *a;
        const char *b;
        const char *key;
        const char *values[2];
    } cases[] = {
        { "[run]\nseed = 1\nlog = x\n", "[run]\nseed = 2\n", NULL, { NULL } },
        { "[d]\na = 1\nb = 2\n", "[d]\nb = 2\na = 1\n", NULL, { NULL } },
        { "[d]\na = 1\nb = 2\n", "[d]\na = 1\nb = 3\n", "d.b", { "2", "3" } },
        { "[d]\na = 1\n", "", "d.a", { "1", NULL } },
        { "", "[run]\nlog = x\n[d]\na = 1\n", "d.a", { NULL, "1" } },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        xr_settings a = parse_settings(cases[i].a);
        xr_settings b = parse_settings(cases[i].b);
        const char *got[2] = { NULL, NULL };
        const char *key = xr_settings_differ(&a, &b, &got[0], &got[1]);
        assert_int_equal(!key, !cases[i].key);
        for (size_t k = 0; key && k < 2; k++) {
            assert_string_equal(key, cases[i].key);
            assert_int_equal(!got[k], !cases[i].values[k]);
            if (got[k])
                assert_string_equal(got[k], cases[i].values[k]);
        }
        xr_settings_free(&a);
        xr_settings_free(&b);
    }
}

/* ---- runs --------------------------------------------------------------- */

#define INI(seed) "[run]\nseed = " seed "\n"

static void write_run(const char *dir, const char *metrics, const char *ini)
{
    char path[160];
    (void)snprintf(path, sizeof path, "%s/rollout", dir);
    assert_int_equal(xr_dir_make(scratch_path(path), NULL), XRAY_OK);
    (void)snprintf(path, sizeof path, "%s/metrics.jsonl", dir);
    (void)scratch_write(path, metrics);
    (void)snprintf(path, sizeof path, "%s/run.ini", dir);
    (void)scratch_write(path, ini);
}

static xr_ab_run read_run(const char *dir)
{
    xr_ab_run run;
    xr_err err = { "" };
    if (xr_ab_run_read(scratch_path(dir), &err, &run) != XRAY_OK)
        fail_msg("%s", err.text);
    return run;
}

static void expect_unreadable(const char *dir, const char *want)
{
    xr_ab_run run;
    xr_err err = { "" };
    assert_true(xr_ab_run_read(scratch_path(dir), &err, &run) < 0);
    assert_string_equal(without_scratch(err.text), want);
    assert_null(run.dir);
}

static void metrics_are_read(void **state)
{
    (void)state;
    write_run("plain",
              "{\"step\":0,\"b\":1,\"a\":null}\n{\"step\":3,\"a\":2.5}\n"
              "{\"step\":9,\"c\":-1,\"a\":3,\"b\":null}\n{\"step\":10}",
              INI("-12"));
    xr_ab_run run = read_run("plain");
    assert_string_equal(run.label, "seed -12");
    assert_int_equal(run.seed, -12);
    assert_int_equal(run.line_count, 3); /* the last line is incomplete */
    assert_int_equal(run.name_count, 3);
    assert_string_equal(run.names[0], "b");
    assert_string_equal(run.names[2], "c");
    assert_int_equal(run.lines[1].step, 3);
    assert_true(xr_ab_run_value(&run, &run.lines[1], "a") == 2.5);
    assert_true(isnan(xr_ab_run_value(&run, &run.lines[1], "b")));
    assert_true(isnan(xr_ab_run_value(&run, &run.lines[1], "c")));
    assert_true(xr_ab_run_value(&run, &run.lines[2], "a") == 3);
    assert_ptr_equal(xr_ab_run_last(&run, "a"), &run.lines[2]);
    assert_ptr_equal(xr_ab_run_last(&run, "b"), &run.lines[0]);
    assert_null(xr_ab_run_last(&run, "d"));
    xr_ab_run_free(&run);
}

/* More values than the first allocation holds; each is read from its line. */
static void many_values_keep_their_line(void **state)
{
    (void)state;
    xr_str text = { 0 };
    for (int s = 1; s <= 60; s++) {
        xr_str_printf(&text, "{\"step\":%d", s);
        for (int k = 0; k < 40; k++)
            xr_str_printf(&text, ",\"m%d\":%d", (k + s) % 50, s * 100 + k);
        xr_str_puts(&text, "}\n");
    }
    write_run("many", xr_str_text(&text), INI("1"));
    xr_str_free(&text);
    xr_ab_run run = read_run("many");
    assert_int_equal(run.value_count, 2400);
    assert_int_equal(run.name_count, 50);
    for (int s = 1; s <= 60; s++)
        for (int k = 0; k < 40; k++) {
            char name[16];
            (void)snprintf(name, sizeof name, "m%d", (k + s) % 50);
            assert_true(xr_ab_run_value(&run, &run.lines[s - 1], name) ==
                        s * 100 + k);
        }
    xr_ab_run_free(&run);
}

static void unreadable_runs_are_refused(void **state)
{
    (void)state;
    static const char line[] = "{\"step\":1,\"a\":1}\n";
    expect_unreadable("none", "none: no such folder");
    write_run("bad", "", INI("1"));
    expect_unreadable("bad", "bad/metrics.jsonl: it holds no step");
    write_run("bad", "{\"step\":1", INI("1"));
    expect_unreadable("bad", "bad/metrics.jsonl: it holds no step");
    write_run("bad", "{\"step\":-1}\n", INI("1"));
    expect_unreadable(
        "bad",
        "bad/metrics.jsonl:1: step -1 is not above that of the line before");
    write_run("bad", "{\"step\":2}\n{\"step\":1}\n", INI("1"));
    expect_unreadable(
        "bad",
        "bad/metrics.jsonl:2: step 1 is not above that of the line before");
    write_run("bad", line, "[run]\nlog = info\n");
    expect_unreadable("bad", "bad/run.ini: [run] seed is missing");
    write_run("bad", line, INI("x"));
    expect_unreadable("bad", "bad/run.ini: [run] seed is not a number");
    assert_int_equal(remove(scratch_path("bad/run.ini")), 0);
    assert_int_equal(xr_dir_make(scratch_path("bad/run.ini"), NULL), XRAY_OK);
    expect_unreadable(
        "bad", "bad/run.ini: this is a folder, but a regular file is expected");
    assert_int_equal(remove(scratch_path("bad/run.ini")), 0);
    expect_unreadable(
        "bad", "bad: it holds no resolved INI (run.ini of a checkpoint)");
    assert_int_equal(remove(scratch_path("bad/metrics.jsonl")), 0);
    xr_ab_run run;
    xr_err err = { "" };
    assert_true(xr_ab_run_read(scratch_path("bad"), &err, &run) < 0);
    assert_non_null(strstr(err.text, "bad/metrics.jsonl: "));
}

/* The INI of the newest checkpoint is read, else that of the folder. */
static void newest_ini_is_read(void **state)
{
    (void)state;
    static const char latest[] = "ini/latest_checkpointed_iteration.txt";
    char path[XR_PATH_CAP];
    xr_err err = { "" };
    const char *dir = NULL;
    write_run("ini", "{\"step\":1}\n", INI("1"));
    assert_int_equal(xr_run_settings_path(scratch_path("ini"), path, &err),
                     XRAY_OK);
    assert_string_equal(without_scratch(path), "ini/run.ini");
    assert_int_equal(xr_dir_make(scratch_path("ini/global_step_12"), NULL),
                     XRAY_OK);
    (void)scratch_write(latest, "12\n");
    assert_int_equal(xr_run_settings_path(scratch_path("ini"), path, &err),
                     XRAY_OK);
    assert_string_equal(without_scratch(path),
                        "ini/run.ini"); /* the checkpoint has none */
    (void)scratch_write("ini/global_step_12/run.ini", INI("5"));
    assert_int_equal(xr_run_settings_path(scratch_path("ini"), path, &err),
                     XRAY_OK);
    assert_string_equal(without_scratch(path), "ini/global_step_12/run.ini");
    xr_ab_run run = read_run("ini");
    assert_int_equal(run.seed, 5);
    xr_ab_run_free(&run);
    static const char *const bad[] = { "x\n", "-1\n", "" };
    for (size_t i = 0; i < 3; i++) {
        char want[160];
        (void)scratch_write(latest, bad[i]);
        (void)snprintf(want, sizeof want, "%s: \"%.*s\" is not a step number",
                       latest, (int)strcspn(bad[i], "\n"), bad[i]);
        assert_int_equal(xr_run_settings_path(scratch_path("ini"), path, &err),
                         XRAY_E_IO);
        assert_string_equal(without_scratch(err.text), want);
    }
    dir = scratch_path("empty");
    assert_int_equal(xr_dir_make(dir, NULL), XRAY_OK);
    assert_int_equal(xr_run_settings_path(dir, path, &err), XRAY_OK);
    assert_string_equal(path, "");
}

static void time_metrics_are_known(void **state)
{
    (void)state;
    static const char *const clock[] = { "timing_s/step", "timing_per_token",
                                         "perf/throughput", "perf/" };
    static const char *const not [] = { "perf/total_num_tokens", "actor/lr",
                                        "timing", "performance/x", "" };
    for (size_t i = 0; i < sizeof clock / sizeof clock[0]; i++)
        assert_int_equal(xr_metric_is_time(clock[i]), 1);
    for (size_t i = 0; i < sizeof not / sizeof not [0]; i++)
        assert_int_equal(xr_metric_is_time(not [i]), 0);
}

/* ---- samples ------------------------------------------------------------ */

static void samples_are_read(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        const char *why;
    } bad[] = {
        { "[1]\n", "smp/rollout/5.jsonl:1: not a sample" },
        { "{\"prompt\":\"a\"}\n",
          "smp/rollout/5.jsonl:1: \"response\" is missing" },
        { "{\"prompt\":\"a\",\"response\":\"b\"}\n{\"response\":\"b\"}\n",
          "smp/rollout/5.jsonl:2: \"prompt\" is missing" },
        { "{\"prompt\":\"a\",\"response\":\"b\",\"score\":\"x\"}\n",
          "smp/rollout/5.jsonl:1: \"score\" must be a number, not a string" },
    };
    char ini[400];
    xr_sample_list list;
    xr_err err = { "" };
    (void)snprintf(ini, sizeof ini,
                   "[run]\nseed = 1\n[trainer]\nrollout_data_dir = %s\n",
                   scratch_path("elsewhere"));
    assert_int_equal(xr_dir_make(scratch_path("elsewhere"), NULL), XRAY_OK);
    write_run("smp", "{\"step\":1}\n", ini);
    xr_ab_run run = read_run("smp");
    (void)scratch_write("smp/rollout/4.jsonl",
                        "{\"prompt\":\"a\\u0000\\\\u0000\",\"response\":\"b\","
                        "\"ground_truth\":\"t\",\"score\":0.25}\n"
                        "{\"prompt\":\"c\",\"response\":\"\"}\n{\"torn");
    assert_int_equal(xr_samples_read(&run, 4, &err, &list), XRAY_OK);
    assert_int_equal(list.count, 2);
    assert_string_equal(list.items[0].prompt, "a\xef\xbf\xbd\\u0000");
    assert_string_equal(list.items[0].response, "b");
    assert_string_equal(list.items[0].truth, "t");
    assert_true(list.items[0].score == 0.25);
    assert_string_equal(list.items[1].truth, "");
    assert_true(isnan(list.items[1].score));
    xr_sample_list_free(&list);
    assert_int_equal(list.count, 0);
    assert_int_equal(xr_samples_read(&run, 3, &err, &list), XRAY_OK);
    assert_int_equal(list.count, 0);
    /* The run's own folder comes before that of the INI. */
    (void)scratch_write("elsewhere/3.jsonl",
                        "{\"prompt\":\"e\",\"response\":\"\"}\n");
    (void)scratch_write("elsewhere/4.jsonl", "");
    for (uint64_t step = 3; step <= 4; step++) {
        assert_int_equal(xr_samples_read(&run, step, &err, &list), XRAY_OK);
        assert_int_equal(list.count, step == 3 ? 1 : 2);
        xr_sample_list_free(&list);
    }
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        (void)scratch_write("smp/rollout/5.jsonl", bad[i].text);
        assert_true(xr_samples_read(&run, 5, &err, &list) < 0);
        assert_string_equal(without_scratch(err.text), bad[i].why);
        assert_int_equal(list.count, 0);
    }
    xr_ab_run_free(&run);
}

/* ---- where runs diverge -------------------------------------------------- */

#define AT(step, more) "{\"step\":" step more "}\n"

static void differing_metrics_are_found(void **state)
{
    (void)state;
    static const struct {
        const char *a;
        const char *b;
        const char *text;
    } cases[] = {
        { AT("1", ",\"a\":1") AT("2", ",\"a\":2"),
          AT("1", ",\"a\":1") AT("2", ",\"a\":2"),
          "no metric differs up to step 2" },
        { AT("1", ",\"a\":1,\"timing_s/x\":1,\"perf/mfu\":1"),
          AT("1", ",\"a\":1,\"timing_s/x\":2,\"perf/tokens\":1"),
          "no metric differs up to step 1" },
        { AT("1", ",\"a\":null"), AT("1", ",\"a\":null"),
          "no metric differs up to step 1" },
        { AT("1", ",\"a\":1") AT("2", ",\"a\":2"),
          AT("1", ",\"a\":1") AT("2", ",\"a\":2.5"), "step 2: a 2 | 2.5" },
        { AT("1", ",\"a\":1,\"b\":1,\"c\":3"),
          AT("1", ",\"a\":2,\"b\":2,\"c\":3"), "step 1: a 1 | 2 and 1 more" },
        { AT("1", ",\"a\":1,\"b\":1"), AT("1", ",\"a\":1"), "step 1: b 1 | -" },
        { AT("1", ",\"a\":1"), AT("1", ",\"a\":1,\"b\":1,\"c\":2"),
          "step 1: b - | 1 and 1 more" },
        { AT("1", ",\"a\":null"), AT("1", ",\"a\":7"), "step 1: a - | 7" },
        { AT("1", "") AT("3", ""), AT("1", "") AT("2", ""),
          "step 2: only one run has it" },
        { AT("1", "") AT("4", ""), AT("1", ""), "step 4: only one run has it" },
        { AT("1", ""), AT("1", "") AT("5", "") AT("6", ""),
          "step 5: only one run has it" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        xr_divergence p;
        xr_err err = { "" };
        xr_str text = { 0 };
        char want[96];
        write_run("pa", cases[i].a, INI("3"));
        write_run("pb", cases[i].b, INI("3"));
        xr_ab_run a = read_run("pa");
        xr_ab_run b = read_run("pb");
        assert_int_equal(xr_divergence_find(&a, &b, &err, &p), XRAY_OK);
        assert_int_equal(p.seed, 3);
        xr_divergence_text(&p, &text);
        (void)snprintf(want, sizeof want, "%s; samples were not kept",
                       cases[i].text);
        assert_string_equal(xr_str_text(&text), want);
        xr_str_free(&text);
        xr_ab_run_free(&a);
        xr_ab_run_free(&b);
    }
}

#define SAID(prompt, response) \
    "{\"prompt\":\"" prompt "\",\"response\":\"" response "\"}\n"

static void differing_samples_are_found(void **state)
{
    (void)state;
    static const struct {
        const char *a[2]; /* of steps 1 and 2; NULL: none */
        const char *b[2];
        const char *text;
    } cases[] = {
        { { SAID("p", "r"), SAID("q", "s") },
          { SAID("p", "r"), SAID("q", "s") },
          "no sample differs" },
        { { SAID("p", "r"), NULL },
          { NULL, SAID("p", "r") },
          "samples were not kept" },
        { { NULL, SAID("p", "r") SAID("p", "t") },
          { NULL, SAID("p", "r") SAID("p", "u") },
          "first different sample: step 2, sample 2" },
        { { SAID("p", "r"), NULL },
          { SAID("q", "r"), NULL },
          "first different prompt: step 1, sample 1" },
        { { SAID("p", "r"), NULL },
          { SAID("p", "r") SAID("q", "t"), NULL },
          "first different sample: step 1, sample 2" },
        { { SAID("p", "r") SAID("q", "t"), NULL },
          { SAID("p", "r"), NULL },
          "first different sample: step 1, sample 2" },
    };
    static const char two[] = AT("1", "") AT("2", "");
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        xr_divergence p;
        xr_err err = { "" };
        xr_str text = { 0 };
        for (int run = 0; run < 2; run++) {
            write_run(run ? "sb" : "sa", two, INI("3"));
            for (int step = 0; step < 2; step++) {
                char name[64];
                const char *said = run ? cases[i].b[step] : cases[i].a[step];
                (void)snprintf(name, sizeof name, "s%c/rollout/%d.jsonl",
                               'a' + run, step + 1);
                (void)remove(scratch_path(name));
                if (said)
                    (void)scratch_write(name, said);
            }
        }
        xr_ab_run a = read_run("sa");
        xr_ab_run b = read_run("sb");
        assert_int_equal(xr_divergence_find(&a, &b, &err, &p), XRAY_OK);
        xr_divergence_text(&p, &text);
        const char *at = strstr(xr_str_text(&text), "; ");
        assert_non_null(at);
        assert_string_equal(at + 2, cases[i].text);
        xr_str_free(&text);
        xr_ab_run_free(&a);
        xr_ab_run_free(&b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(settings_are_read),
        cmocka_unit_test(bad_settings_are_refused),
        cmocka_unit_test(own_keys_are_known),
        cmocka_unit_test(first_difference_is_found),
        cmocka_unit_test(metrics_are_read),
        cmocka_unit_test(many_values_keep_their_line),
        cmocka_unit_test(unreadable_runs_are_refused),
        cmocka_unit_test(newest_ini_is_read),
        cmocka_unit_test(time_metrics_are_known),
        cmocka_unit_test(samples_are_read),
        cmocka_unit_test(differing_metrics_are_found),
        cmocka_unit_test(differing_samples_are_found),
    };
    return cmocka_run_group_tests_name("ab.runs", tests, scratch_make,
                                       scratch_drop);
}
