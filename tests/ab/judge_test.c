/* SPDX-License-Identifier: Apache-2.0
 *
 * Choices of a comparison: its metric, its pairs and the settings that weaken
 * them, curves, costs, and the variants of folders.
 */
#include <math.h>

#include "core/ab/compare.h"
#include "core/ab/divergence.h"
#include "tests/ab/made_up.h"

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

static void write_run(const char *dir, const char *metrics, const char *ini)
{
    char path[160];
    assert_int_equal(xr_dir_make(scratch_path(dir), NULL), XRAY_OK);
    (void)snprintf(path, sizeof path, "%s/metrics.jsonl", dir);
    (void)scratch_write(path, metrics);
    (void)snprintf(path, sizeof path, "%s/run.ini", dir);
    (void)scratch_write(path, ini);
}

static void read_run_into(xr_runs *runs, const char *dir)
{
    xr_err err = { "" };
    if (xr_runs_add(runs, scratch_path(dir), &err) != XRAY_OK)
        fail_msg("%s", err.text);
}

/* Two variants, a and b, whose runs have one line of metrics each. */
static void make_two_variants(xr_runs *runs, const char *const *a,
                              const char *const *b)
{
    xr_err err = { "" };
    *runs = (xr_runs){ .count = 0 };
    for (int v = 0; v < 2; v++) {
        const char *const *lines = v ? b : a;
        assert_int_equal(xr_runs_variant(runs, v ? "b" : "a", &err), XRAY_OK);
        for (int i = 0; lines[i]; i++) {
            char dir[32];
            char ini[64];
            (void)snprintf(dir, sizeof dir, "v%d/seed-%d", v, i);
            (void)snprintf(ini, sizeof ini, "[run]\nseed = %d\n", i);
            write_run(dir, lines[i], ini);
            read_run_into(runs, dir);
        }
    }
}

/* ---- the metric --------------------------------------------------------- */

#define X "\"val-core/x/reward/mean@1\":"
#define Y "\"val-core/y/reward/mean@1\":"
#define SCORE "\"critic/score/mean\":"

static void metric_is_chosen(void **state)
{
    (void)state;
    static const struct {
        const char *a;
        const char *b;
        const char *wanted;
        const char *metric; /* NULL: refused */
        const char *note;   /* or the sentence */
    } cases[] = {
        { "{\"step\":1," SCORE "1," X "2}\n",
          "{\"step\":1," X "2," SCORE "1}\n", NULL, "val-core/x/reward/mean@1",
          NULL },
        { "{\"step\":1," Y "1," X "2}\n", "{\"step\":1," X "2," Y "1}\n", NULL,
          "val-core/y/reward/mean@1",
          "the verdict is on val-core/y/reward/mean@1 alone; 1 more validation "
          "scores were measured (--metric chooses)" },
        { "{\"step\":1," Y "1," X "2}\n", "{\"step\":1," X "2}\n", NULL,
          "val-core/x/reward/mean@1", NULL },
        { "{\"step\":1," X "null," SCORE "1}\n",
          "{\"step\":1," X "2," SCORE "1}\n", NULL, "critic/score/mean",
          "no validation score is in all runs, so the verdict is on the mean "
          "reward of the last step, which rests on few samples" },
        { "{\"step\":1,\"val-core/x/reward/mean@4\":1}\n",
          "{\"step\":1,\"val-core/x/reward/mean@4\":1}\n", NULL, NULL,
          "no validation score and no critic/score/mean is in all runs; "
          "--metric names another" },
        { "{\"step\":1,\"val-core/x/reward/mean@4\":1}\n",
          "{\"step\":1,\"val-core/x/reward/mean@4\":1}\n",
          "val-core/x/reward/mean@4", "val-core/x/reward/mean@4", NULL },
        { "{\"step\":1,\"val-core//reward/mean@1\":1," SCORE "1}\n",
          "{\"step\":1,\"val-core//reward/mean@1\":1," SCORE "1}\n", NULL,
          "critic/score/mean",
          "no validation score is in all runs, so the verdict is on the mean "
          "reward of the last step, which rests on few samples" },
        { "{\"step\":1," SCORE "1,\"a\":1,\"b\":2}\n",
          "{\"step\":1," SCORE "1,\"a\":1}\n", "b", NULL,
          "--metric b: not all runs have this metric; the first run has "
          "critic/score/mean "
          "and 2 more" },
        { "{\"step\":1}\n", "{\"step\":1}\n", "b", NULL,
          "--metric b: not all runs have this metric; the first run has none "
          "and 0 more" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *const a[] = { cases[i].a, NULL };
        const char *const b[] = { cases[i].b, NULL };
        xr_runs runs;
        xr_comparison c;
        xr_err err = { "" };
        make_two_variants(&runs, a, b);
        xray_status status = xr_compare(&runs, cases[i].wanted, 0, &err, &c);
        if (!cases[i].metric) {
            assert_int_equal(status, XRAY_E_CONFIG);
            assert_string_equal(err.text, cases[i].note);
        } else {
            assert_int_equal(status, XRAY_OK);
            assert_string_equal(c.metric, cases[i].metric);
            assert_int_equal(c.notes.count, cases[i].note ? 1 : 0);
            if (cases[i].note)
                assert_string_equal(c.notes.items[0], cases[i].note);
            xr_comparison_free(&c);
        }
        xr_runs_free(&runs);
    }
}

static void too_few_runs_are_refused(void **state)
{
    (void)state;
    xr_runs runs = { .count = 0 };
    xr_comparison c;
    xr_err err = { "" };
    assert_int_equal(xr_compare(&runs, NULL, 0, &err, &c), XRAY_E_CONFIG);
    assert_string_equal(err.text,
                        "a comparison needs two variants, but there is none");
    assert_int_equal(xr_runs_variant(&runs, "a", &err), XRAY_OK);
    assert_int_equal(xr_compare(&runs, NULL, 0, &err, &c), XRAY_E_CONFIG);
    assert_string_equal(err.text, "a comparison needs two variants, but there "
                                  "is one: all runs have the same settings");
    assert_int_equal(xr_runs_variant(&runs, "b", &err), XRAY_OK);
    assert_int_equal(xr_compare(&runs, NULL, 0, &err, &c), XRAY_E_CONFIG);
    assert_string_equal(err.text, "no run is finished");
    xr_runs_free(&runs);
}

/* The last value of each run and its step. */
static void last_values_are_compared(void **state)
{
    (void)state;
    static const char *const a[] = { "{\"step\":1," X "1}\n{\"step\":4," X
                                     "2}\n{\"step\":5," X "null}\n",
                                     "{\"step\":4," X "7}\n", NULL };
    static const char *const b[] = { "{\"step\":4," X "3}\n{\"step\":6}\n",
                                     "{\"step\":3," X "1}\n", NULL };
    xr_runs runs;
    xr_comparison c;
    xr_err err = { "" };
    make_two_variants(&runs, a, b);
    assert_int_equal(xr_compare(&runs, NULL, 0, &err, &c), XRAY_OK);
    assert_true(c.finals[0][0] == 2 && c.finals[0][1] == 7);
    assert_true(c.finals[1][0] == 3 && c.finals[1][1] == 1);
    assert_true(c.steps[0][0] == 4 && c.steps[0][1] == 4);
    assert_true(c.steps[1][0] == 4 && c.steps[1][1] == 3);
    assert_int_equal(c.notes.count, 1);
    assert_string_equal(c.notes.items[0],
                        "the last values are not all from the same step: a run "
                        "that trained longer has an advantage");
    const xr_contrast *one = &c.contrasts[0];
    assert_true(one->paired && one->count == 2 && one->seeds[1] == 1);
    assert_true(fabs(one->difference.mean + 2.5) < 1e-12);
    /* The step of a variant is the last one of its runs. */
    xr_str text = { 0 };
    xr_compare_text(&c, &text);
    const char *row = strstr(xr_str_text(&text), "\nb ");
    assert_non_null(row);
    row = strchr(row + 1, '\n');
    assert_int_equal(strncmp(row - 2, " 4\n", 3), 0);
    xr_str_clear(&text);
    assert_int_equal(xr_compare_html(&c, &text, &err), XRAY_OK);
    assert_non_null(strstr(xr_str_text(&text), "<td>3</td><td>4</td></tr>"));
    assert_null(strstr(xr_str_text(&text), "<td>3</td></tr>\n</table>"));
    xr_str_free(&text);
    xr_comparison_free(&c);
    xr_runs_free(&runs);
}

/* A run belongs to one pair, even if several runs have its seed, and pairs are
 * in the order of the base's runs. */
static void pairs_share_a_seed(void **state)
{
    (void)state;
    static const int seeds[2][4] = { { 5, 5, 7, 9 }, { 9, 5, 5, 8 } };
    static const size_t want[3][2] = { { 0, 1 }, { 1, 2 }, { 3, 0 } };
    xr_runs runs = { .count = 0 };
    xr_comparison c;
    xr_err err = { "" };
    for (int v = 0; v < 2; v++) {
        assert_int_equal(xr_runs_variant(&runs, v ? "b" : "a", &err), XRAY_OK);
        for (int i = 0; i < 4; i++) {
            char line[64];
            char ini[64];
            (void)snprintf(line, sizeof line, "{\"step\":1," X "%d}\n",
                           10 * v + i * i);
            (void)snprintf(ini, sizeof ini, "[run]\nseed = %d\n", seeds[v][i]);
            write_run("one", line, ini);
            read_run_into(&runs, "one");
        }
    }
    assert_int_equal(xr_compare(&runs, NULL, 0, &err, &c), XRAY_OK);
    const xr_contrast *one = &c.contrasts[0];
    assert_int_equal(one->count, 3);
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(one->a_run[i], want[i][0]);
        assert_int_equal(one->b_run[i], want[i][1]);
        assert_int_equal(one->seeds[i], seeds[0][want[i][0]]);
    }
    /* 11 - 0, 14 - 1 and 10 - 9 */
    assert_true(fabs(one->difference.mean - 25.0 / 3) < 1e-12);
    assert_int_equal(one->difference.pairs, 3);
    xr_comparison_free(&c);
    xr_runs_free(&runs);
}

/* ---- settings that pairs should share ----------------------------------- */

#define ROWS "scores are measured on different rows"
#define ORDER "prompts come in a different order"
#define PROMPTS "the prompts differ"
#define THINGS "scores measure different things"
#define ROUNDS "gradients are rounded differently"

static const struct key_case {
    const char *section;
    const char *key;
    const char *what; /* NULL: no note */
} key_cases[] = {
    { "data", "val_files", ROWS },
    { "data", "val_split", ROWS },
    { "data", "val_max_samples", ROWS },
    { "data", "max_response_length",
      "scores are of answers of different lengths" },
    { "run", "reward", THINGS },
    { "reward.words", "pattern", THINGS },
    { "data", "train_files", PROMPTS },
    { "data", "train_batch_size", "a step takes different prompts" },
    { "data", "shuffle", ORDER },
    { "data", "seed", ORDER },
    { "data", "train_max_samples", ORDER },
    { "data", "train_weights", ORDER },
    { "data", "filters", ORDER },
    { "data", "filter_overlong_prompts", ORDER },
    { "data", "max_prompt_length", "prompts may be left out or cut" },
    { "data", "truncation", "prompts may be cut" },
    { "data", "prompt_key", PROMPTS },
    { "data", "template", PROMPTS },
    { "data", "special_tokens", PROMPTS },
    { "data", "apply_chat_template", PROMPTS },
    { "data", "chat_template", PROMPTS },
    { "data", "chat_date", PROMPTS },
    { "data", "system_prompt", PROMPTS },
    { "model", "path", "the runs begin with different weights" },
    { "model", "tokenizer_path", "texts become different tokens" },
    { "rollout", "n", "samples beyond the smaller n have no partner" },
    { "run", "device", "another device rounds differently" },
    { "actor", "share_prompts", ROUNDS },
    { "critic", "share_prompts", ROUNDS },
    { "reward.train.zero3", "stage", NULL }, /* how its model is held */
    { "critic.train.zero3", "stage", NULL },
    { "actor.optim", "lr", NULL },
    { "rollout", "temperature", NULL },
    { "rollout", "name", NULL },
    { "run", "rewards", NULL },
    { "run", "seed", NULL },
    { "data", "response_key", NULL },
};

static void weakening_keys_are_noted(void **state)
{
    (void)state;
    /* Another value, an additional key, a missing key. */
    static const char *const values[][2] = { { "x", "y" },
                                             { NULL, "y" },
                                             { "x", NULL } };
    for (size_t i = 0; i < sizeof key_cases / sizeof key_cases[0]; i++)
        for (size_t k = 0; k < 3; k++) {
            xr_ab_run runs[2];
            xr_errors notes = { 0 };
            memset(runs, 0, sizeof runs);
            for (size_t side = 0; side < 2; side++) {
                char ini[128] = "";
                if (values[k][side])
                    (void)snprintf(ini, sizeof ini, "[%s]\n%s = %s\n",
                                   key_cases[i].section, key_cases[i].key,
                                   values[k][side]);
                assert_int_equal(
                    xr_settings_parse(ini, "ini", NULL, &runs[side].settings),
                    XRAY_OK);
            }
            char b_name[] = "b";
            const xr_variant a = { .runs = &runs[0], .count = 1 };
            const xr_variant b = { .name = b_name,
                                   .runs = &runs[1],
                                   .count = 1 };
            xr_note_unshared_settings(&a, &b, &notes);
            assert_int_equal(notes.count, key_cases[i].what ? 1 : 0);
            if (key_cases[i].what) {
                char want[256];
                (void)snprintf(want, sizeof want,
                               "b does not share everything with the base: "
                               "[%s] %s is %s here and %s in the base: %s",
                               key_cases[i].section, key_cases[i].key,
                               values[k][1] ? values[k][1] : "not set",
                               values[k][0] ? values[k][0] : "not set",
                               key_cases[i].what);
                assert_string_equal(notes.items[0], want);
            }
            xr_errors_free(&notes);
            xr_settings_free(&runs[0].settings);
            xr_settings_free(&runs[1].settings);
        }
}

/* ---- curves and costs --------------------------------------------------- */

enum { NO_GAPS, VALUE_GAPS, LINE_GAPS };

/* A run of steps 1 to `steps`; with gaps every second step lacks the metric, or
 * its line. */
static void write_curve(const char *dir, int seed, unsigned steps, int gaps)
{
    xr_str text = { 0 };
    char ini[64];
    for (unsigned s = gaps == LINE_GAPS ? 2 : 1; s <= steps;
         s += gaps == LINE_GAPS ? 2 : 1) {
        xr_str_printf(&text, "{\"step\":%u", s);
        if (gaps != VALUE_GAPS || s % 2 == 0)
            xr_str_printf(&text, ",\"m\":%u", s * 10 + (unsigned)seed);
        xr_str_printf(&text,
                      ",\"timing_s/step\":%d,\"perf/total_num_tokens\":%d}\n",
                      seed, 100 * seed);
    }
    (void)snprintf(ini, sizeof ini, "[run]\nseed = %d\n", seed);
    write_run(dir, xr_str_text(&text), ini);
    xr_str_free(&text);
}

/* A curve has the steps of which every run has the metric. */
static void curves_are_thinned(void **state)
{
    (void)state;
    static const struct {
        unsigned steps;
        int gaps;
        size_t count;
        unsigned every;
    } cases[] = {
        { 1, VALUE_GAPS, 0, 1 },     { 1, LINE_GAPS, 0, 1 },
        { 3, VALUE_GAPS, 1, 2 },     { 3, LINE_GAPS, 1, 2 },
        { 481, VALUE_GAPS, 240, 2 }, { 482, VALUE_GAPS, 121, 4 },
        { 482, LINE_GAPS, 121, 4 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        xr_runs runs = { .count = 0 };
        xr_series s;
        xr_err err = { "" };
        /* Without its odd lines the second run has half the time. */
        const double each = cases[i].gaps == LINE_GAPS ? 1 : 1.5;
        write_curve("curve/seed-1", 1, cases[i].steps, NO_GAPS);
        write_curve("curve/seed-2", 2, cases[i].steps + 3, cases[i].gaps);
        assert_int_equal(xr_runs_variant(&runs, "v", &err), XRAY_OK);
        read_run_into(&runs, "curve/seed-1");
        read_run_into(&runs, "curve/seed-2");
        assert_int_equal(xr_series_make(&runs.variants[0], "m", &err, &s),
                         XRAY_OK);
        assert_int_equal(s.count, cases[i].count);
        for (size_t k = 0; k < s.count; k++) {
            double last = cases[i].steps - cases[i].steps % 2;
            double step = last - (double)((s.count - 1 - k) * cases[i].every);
            assert_true(s.step[k] == step);
            assert_true(s.mean[k] == step * 10 + 1.5);
            assert_true(s.low[k] == step * 10 + 1);
            assert_true(s.high[k] == step * 10 + 2);
            assert_true(s.seconds[k] == step * each);
            assert_true(s.tokens[k] == step * 100 * each);
        }
        xr_series_free(&s);
        /* One run: no band. No run: no curve. */
        xr_variant *v = &runs.variants[0];
        v->count = 1;
        assert_int_equal(xr_series_make(v, "m", &err, &s), XRAY_OK);
        assert_true(s.step[s.count - 1] == cases[i].steps);
        assert_true(s.low[s.count - 1] == s.mean[s.count - 1] &&
                    s.high[s.count - 1] == s.mean[s.count - 1]);
        xr_series_free(&s);
        v->count = 0;
        assert_int_equal(xr_series_make(v, "m", &err, &s), XRAY_OK);
        assert_int_equal(s.count, 0);
        xr_series_free(&s);
        v->count = 2;
        xr_runs_free(&runs);
    }
}

static void costs_are_medians(void **state)
{
    (void)state;
    static const char *const a[] = {
        "{\"step\":0,\"timing_s/testing\":9}\n"
        "{\"step\":1,\"timing_s/step\":1,\"timing_s/gen\":0.5,"
        "\"timing_s/update_actor\":0.25,\"perf/throughput\":10,"
        "\"perf/total_num_tokens\":100}\n"
        "{\"step\":2,\"timing_s/step\":3,\"timing_s/gen\":0.75,"
        "\"timing_s/update_actor\":0.5,\"perf/throughput\":30,"
        "\"perf/total_num_tokens\":300}\n",
        "{\"step\":1,\"timing_s/step\":7,\"timing_s/gen\":2,"
        "\"timing_s/update_actor\":4,\"perf/throughput\":20,"
        "\"perf/total_num_tokens\":200}\n",
        NULL
    };
    static const char *const b[] = { "{\"step\":1,\"a\":1}\n", NULL };
    xr_runs runs;
    xr_cost cost;
    xr_err err = { "" };
    make_two_variants(&runs, a, b);
    assert_int_equal(xr_cost_of(&runs.variants[0], &err, &cost), XRAY_OK);
    assert_true(cost.step_seconds == 3);
    assert_true(cost.gen_seconds == 0.75);
    assert_true(cost.update_seconds == 0.5);
    assert_true(cost.tokens_per_second == 20);
    assert_true(cost.run_seconds == 5.5); /* between 4 and 7 */
    assert_true(cost.run_tokens == 300);  /* between 400 and 200 */
    assert_int_equal(xr_cost_of(&runs.variants[1], &err, &cost), XRAY_OK);
    assert_true(isnan(cost.step_seconds) && isnan(cost.gen_seconds));
    assert_true(isnan(cost.update_seconds) && isnan(cost.tokens_per_second));
    xr_runs_free(&runs);
}

/* ---- folders ------------------------------------------------------------ */

/* Expects the variants of folders as "name:seed,seed name:...". */
static void expect_sorted(const char *const *names, const char *want,
                          const char *error)
{
    char dirs[8][256];
    const char *list[8];
    size_t count = 0;
    xr_runs runs = { .count = 0 };
    xr_errors errors = { 0 };
    xr_str got = { 0 };
    for (; names[count]; count++) {
        (void)snprintf(dirs[count], sizeof dirs[count], "%s",
                       scratch_path(names[count]));
        list[count] = dirs[count];
    }
    xr_runs_sort(&runs, list, count, &errors);
    for (size_t v = 0; v < runs.count; v++) {
        xr_str_printf(&got, "%s%s:", v ? " " : "", runs.variants[v].name);
        for (size_t i = 0; i < runs.variants[v].count; i++)
            xr_str_printf(&got, "%s%lld", i ? "," : "",
                          (long long)runs.variants[v].runs[i].seed);
    }
    assert_string_equal(xr_str_text(&got), want);
    assert_int_equal(errors.count, error ? 1 : 0);
    if (error)
        assert_string_equal(without_scratch(errors.items[0]), error);
    xr_str_free(&got);
    xr_errors_free(&errors);
    xr_runs_free(&runs);
}

#define FOLDERS(...) ((const char *const[]){ __VA_ARGS__, NULL })

/* The current folder has no name of its own. */
static void expect_current_folder(void)
{
    static const char *const list[] = { ".", "../two" };
    char before[4096];
    xr_runs runs = { .count = 0 };
    xr_errors errors = { 0 };
    assert_non_null(getcwd(before, sizeof before));
    assert_int_equal(chdir(scratch_path("f/one")), 0);
    xr_runs_sort(&runs, list, 2, &errors);
    assert_int_equal(chdir(before), 0);
    assert_int_equal(errors.count, 0);
    assert_int_equal(runs.count, 2);
    assert_string_equal(runs.variants[0].name, "runs");
    assert_string_equal(runs.variants[1].name, "two");
    xr_runs_free(&runs);
}

static void folders_become_variants(void **state)
{
    (void)state;
    static const int seeds[] = { 10, 9, -3 };
    for (int i = 0; i < 3; i++) {
        char dir[64];
        char ini[64];
        (void)snprintf(ini, sizeof ini, "[run]\nseed = %d\n", seeds[i]);
        (void)snprintf(dir, sizeof dir, "f/one/seed-%d", seeds[i]);
        write_run(dir, "{\"step\":1}\n", ini);
        (void)snprintf(dir, sizeof dir, "f/two/seed-%d", seeds[i]);
        write_run(dir, "{\"step\":1}\n", ini);
    }
    assert_int_equal(xr_dir_make(scratch_path("f/one/seed-x"), NULL), XRAY_OK);
    assert_int_equal(xr_dir_make(scratch_path("f/one/seeds"), NULL), XRAY_OK);
    write_run("f/loose1", "{\"step\":1}\n", "[run]\nseed = 1\n[d]\na = 1\n");
    write_run("f/loose2", "{\"step\":1}\n", "[run]\nseed = 2\n[d]\na = 1\n");
    write_run("f/loose3", "{\"step\":1}\n", "[run]\nseed = 3\n[d]\na = 2\n");
    assert_int_equal(xr_dir_make(scratch_path("f/one/seed_4"), NULL), XRAY_OK);
    /* Seeds are sorted as numbers, whatever the order of the folder is. */
    expect_sorted(FOLDERS("f/one", "f/two"), "one:-3,9,10 two:-3,9,10", NULL);
    expect_sorted(FOLDERS("f/one", "f/one/"), "one:-3,9,10 one-2:-3,9,10",
                  NULL);
    expect_sorted(FOLDERS("f/two/seed-9", "f/one/seed-9", "f/two/seed-10"),
                  "two:9,10 one:9", NULL);
    expect_sorted(FOLDERS("f/loose1", "f/loose3", "f/loose2"),
                  "loose1:1,2 loose3:3", NULL);
    /* A run named seed-N and one with another name never share a variant. */
    expect_sorted(FOLDERS("f/loose1", "f/one/seed-9", "f/loose2"),
                  "loose1:1,2 one:9", NULL);
    write_run("f/alike", "{\"step\":1}\n", "[run]\nseed = 4\n");
    expect_sorted(FOLDERS("f/one/seed-9", "f/alike"), "one:9 alike:4", NULL);
    expect_sorted(FOLDERS("f/alike", "f/one/seed-9"), "alike:4 one:9", NULL);
    expect_current_folder();
    expect_sorted(FOLDERS("f/one/seed-9", "f/none", "f/loose3"),
                  "one:9 none: loose3:3", "f/none: no such folder");
    (void)remove(scratch_path("f/one/seed-9/run.ini"));
    expect_sorted(
        FOLDERS("f/one", "f/two"), "one:-3,10 two:-3,9,10",
        "f/one/seed-9: it holds no resolved INI (run.ini of a checkpoint)");
}

static void names_are_unique(void **state)
{
    (void)state;
    static const char *const want[] = { "a", "a-2", "a-2-2", "a-3", "b" };
    static const char *const given[] = { "a", "a", "a-2", "a", "b" };
    xr_runs runs = { .count = 0 };
    xr_err err = { "" };
    for (size_t i = 0; i < 5; i++) {
        assert_int_equal(xr_runs_variant(&runs, given[i], &err), XRAY_OK);
        assert_string_equal(runs.variants[i].name, want[i]);
    }
    xr_runs_free(&runs);
    assert_int_equal(runs.count, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(metric_is_chosen),
        cmocka_unit_test(too_few_runs_are_refused),
        cmocka_unit_test(last_values_are_compared),
        cmocka_unit_test(weakening_keys_are_noted),
        cmocka_unit_test(pairs_share_a_seed),
        cmocka_unit_test(curves_are_thinned),
        cmocka_unit_test(costs_are_medians),
        cmocka_unit_test(folders_become_variants),
        cmocka_unit_test(names_are_unique),
    };
    return cmocka_run_group_tests_name("ab.judge", tests, scratch_make,
                                       scratch_drop);
}
