/* SPDX-License-Identifier: Apache-2.0
 *
 * Tables, verdicts and the page of a comparison, from run folders that the test
 * writes.
 */
#include <math.h>

#include "core/ab/compare.h"
#include "tests/ab/made_up.h"
#include "tests/ab/markup.h"

static const double base_scores[] = { 0.41, 0.44, 0.39, 0.47, 0.425 };
static const double good_scores[] = { 0.46, 0.47, 0.45, 0.49, 0.455 };
static const double even_scores[] = { 0.42, 0.43, 0.40, 0.455, 0.43 };

/* A variant of five runs in the folder `name`. */
static void make_variant(const char *name, const char *lr, int first_seed,
                         const double *scores)
{
    for (int i = 0; i < 5; i++) {
        char dir[128];
        (void)snprintf(dir, sizeof dir, "%s/seed-%d", name, first_seed + i);
        made_up_run(&(made_up){ .dir = dir,
                                .seed = first_seed + i,
                                .lr = lr,
                                .steps = 4,
                                .score = scores[i],
                                .samples = 1 });
    }
}

/* Reads folders of the scratch folder into variants; `names` ends with NULL. */
static void read_folders(xr_runs *runs, const char *const *names,
                         xr_errors *errors)
{
    char *dirs[8] = { NULL };
    size_t count = 0;
    for (; names[count]; count++)
        dirs[count] = xr_strdup(scratch_path(names[count]));
    *runs = (xr_runs){ .count = 0 };
    xr_runs_sort(runs, (const char *const *)dirs, count, errors);
    for (size_t i = 0; i < count; i++)
        free(dirs[i]);
}

/* Compares folders; the text and the page are the caller's to free. */
static char *compare_folders(const char *const *names, char **out_page)
{
    xr_runs runs;
    xr_errors errors = { 0 };
    xr_err err = { "" };
    xr_comparison c;
    xr_str text = { 0 };
    xr_str page = { 0 };
    read_folders(&runs, names, &errors);
    if (errors.count)
        fail_msg("%s", errors.items[0]);
    if (xr_compare(&runs, NULL, 0, &err, &c) != XRAY_OK)
        fail_msg("%s", err.text);
    xr_compare_text(&c, &text);
    if (out_page) {
        assert_int_equal(xr_compare_html(&c, &page, &err), XRAY_OK);
        *out_page = page.data;
    }
    xr_comparison_free(&c);
    xr_runs_free(&runs);
    assert_false(text.failed);
    return text.data;
}
/* The verdict of the first contrast. */
static int judge_runs(const xr_runs *runs, int lower)
{
    xr_comparison c;
    xr_err err = { "" };
    xr_str text = { 0 };
    assert_int_equal(xr_compare(runs, NULL, lower, &err, &c), XRAY_OK);
    int verdict = c.contrasts[0].verdict;
    xr_compare_text(&c, &text);
    assert_non_null(
        strstr(text.data, lower ? "; lower is better" : "; higher is better"));
    xr_str_free(&text);
    xr_comparison_free(&c);
    return verdict;
}

#define TEXT_OF(page, ...) \
    compare_folders((const char *const[]){ __VA_ARGS__, NULL }, page)

static void expect_in(const char *text, const char *part)
{
    if (!strstr(text, part))
        fail_msg("'%s' is not in:\n%s", part, text);
}

static int make_all_variants(void **state)
{
    if (scratch_make(state))
        return -1;
    make_variant("base", "0.1", 1, base_scores);
    make_variant("good", "0.2", 1, good_scores);
    make_variant("even", "0.3", 1, even_scores);
    make_variant("later", "0.1", 6, even_scores);
    return 0;
}

/* ---- tables ------------------------------------------------------------- */

static void winner_is_named(void **state)
{
    (void)state;
    static const char wanted[] =
        "val-core/x/reward/mean@1, the last of each run; higher is better\n"
        "\n"
        "variant   runs       mean         sd        min        max  last "
        "step\n"
        "base         5      0.427    0.03033       0.39       0.47          "
        "4\n"
        "good         5      0.465    0.01581       0.45       0.49          "
        "4\n"
        "\n"
        "seed                         base         good   difference\n"
        "1                            0.41         0.46        +0.05\n"
        "2                            0.44         0.47        +0.03\n"
        "3                            0.39         0.45        +0.06\n"
        "4                            0.47         0.49        +0.02\n"
        "5                           0.425        0.455        +0.03\n"
        "\n"
        "against base\n"
        "variant      n  difference                  interval  level         p "
        " judged by\n"
        "good         5      +0.038          [0.0176, 0.0584]    95%    0.0066 "
        " paired t\n"
        "\n"
        "good is better than base: good minus base is +0.038, and the 95 % "
        "interval [0.0176, 0.0584] excludes zero\n"
        "\n"
        "settings that differ\n"
        "[actor.optim] lr\n"
        "  base      0.1\n"
        "  good      0.2\n"
        "\n"
        "where good diverges from base\n"
        "seed 1               step 1: actor/lr 0.1 | 0.2 and 1 more; first "
        "different sample: step 2, sample 1\n"
        "seed 2               step 1: actor/lr 0.1 | 0.2 and 1 more; first "
        "different sample: step 2, sample 1\n"
        "seed 3               step 1: actor/lr 0.1 | 0.2 and 1 more; first "
        "different sample: step 2, sample 1\n"
        "seed 4               step 1: actor/lr 0.1 | 0.2 and 1 more; first "
        "different sample: step 2, sample 1\n"
        "seed 5               step 1: actor/lr 0.1 | 0.2 and 1 more; first "
        "different sample: step 2, sample 1\n";
    char *text = TEXT_OF(NULL, "base", "good/");
    assert_string_equal(text, wanted);
    free(text);
    /* With the order reversed the base wins. */
    text = TEXT_OF(NULL, "good", "base");
    expect_in(text, "good is better than base: base minus good is -0.038, and "
                    "the 95 % interval [-0.0584, -0.0176] excludes zero\n");
    free(text);
}

static void no_winner_within_the_scatter(void **state)
{
    (void)state;
    char *text = TEXT_OF(NULL, "base", "even");
    expect_in(text, "even against base: no difference shown: the 95 % interval "
                    "[-0.01456, 0.01456] contains zero\n");
    expect_in(text, "even         5          +0       [-0.01456, 0.01456]");
    assert_null(strstr(text, "better than"));
    free(text);
}

/* Runs with other seeds are not paired, and a note says so. */
static void other_seeds_are_unpaired(void **state)
{
    (void)state;
    char *page = NULL;
    char *text = TEXT_OF(&page, "base", "later");
    expect_in(text, "later against base: no difference shown: the 95 % "
                    "interval [");
    expect_in(text, "Welch t\n");
    expect_in(text, "settings that differ: none\n");
    expect_in(text, "note: base and later were not run with the same seeds, so "
                    "they are compared unpaired, by Welch's t interval\n");
    assert_null(strstr(text, "parts from"));
    free(text);
    expect_in(page, "<h2>Settings that differ</h2>\n<p>None.</p>\n<h2>");
    assert_null(strstr(page, "Where runs of the same seed diverge"));
    free(page);
}

/* Runs are paired if at least half of them have a partner. */
static void half_of_the_seeds_make_pairs(void **state)
{
    (void)state;
    for (int shared = 2; shared >= 1; shared--) {
        for (int i = 0; i < 8; i++) {
            char dir[64];
            int seed = i < 4 ? i + 1 : i + 1 - shared;
            (void)snprintf(dir, sizeof dir, "%s-%d/seed-%d",
                           i < 4 ? "four" : "next", shared, seed);
            made_up_run(&(made_up){ .dir = dir,
                                    .seed = seed,
                                    .lr = i < 4 ? "0.1" : "0.2",
                                    .steps = 4,
                                    .score = 0.4 + 0.01 * (i * i % 5) });
        }
    }
    char *text = TEXT_OF(NULL, "four-2", "next-2");
    expect_in(text, "paired t\n");
    expect_in(text, "note: four-2 and next-2: 2 of 4 runs have a partner of "
                    "their seed; the others are left out of the difference\n");
    free(text);
    text = TEXT_OF(NULL, "four-1", "next-1");
    expect_in(text, "Welch t\n");
    expect_in(text, "note: four-1 and next-1 were not run with the same seeds, "
                    "so they are compared unpaired, by Welch's t interval\n");
    free(text);
}

/* With two variants p doubles from 0.0066 to 0.0133, and its interval widens.
 */
static void several_variants_are_corrected(void **state)
{
    (void)state;
    char *text = TEXT_OF(NULL, "base", "good", "even");
    expect_in(text, "against base (p and intervals corrected by Holm's "
                    "procedure for several variants)\n");
    expect_in(text, "+0.038        [0.01231, 0.06369]  97.5%    0.0133");
    expect_in(text, "95%    1.0000  paired t\n");
    free(text);
}

/* A run has the same bits as itself. */
static void equal_runs_do_not_diverge(void **state)
{
    (void)state;
    make_variant("again/base", "0.1", 1, base_scores);
    char *text = TEXT_OF(NULL, "base", "again/base");
    expect_in(text, "base-2 against base: no difference shown: every value is "
                    "equal\n");
    expect_in(text,
              "seed 5               no metric differs up to step 4; no sample "
              "differs\n");
    free(text);
}

static void one_run_each_has_no_verdict(void **state)
{
    (void)state;
    char *text = TEXT_OF(NULL, "base/seed-1", "good/seed-1");
    expect_in(
        text,
        "good against base: no verdict: an interval needs two runs of each\n");
    expect_in(text, "good         1       +0.05                         -");
    free(text);
}

/* ---- variants of runs ---------------------------------------------------- */

static void folders_become_variants(void **state)
{
    (void)state;
    xr_runs runs;
    xr_errors errors = { 0 };
    static const char *const loose[] = { "a1", "b1", "a2", "b2", NULL };
    for (int i = 0; i < 4; i++)
        made_up_run(&(made_up){ .dir = loose[i],
                                .seed = i / 2,
                                .lr = i % 2 ? "0.2" : "0.1",
                                .steps = 2,
                                .score = 0.5 });
    read_folders(&runs, loose, &errors);
    assert_int_equal(errors.count, 0);
    assert_int_equal(runs.count, 2);
    assert_string_equal(runs.variants[0].name, "a1");
    assert_string_equal(runs.variants[1].name, "b1");
    for (size_t v = 0; v < 2; v++) {
        assert_int_equal(runs.variants[v].count, 2);
        assert_int_equal(runs.variants[v].runs[0].seed, 0);
        assert_int_equal(runs.variants[v].runs[1].seed, 1);
    }
    xr_runs_free(&runs);
    read_folders(&runs,
                 (const char *const[]){ "base/seed-1", "good/seed-2",
                                        "base/seed-3", "later", NULL },
                 &errors);
    assert_int_equal(errors.count, 0);
    assert_int_equal(runs.count, 3);
    assert_int_equal(runs.variants[0].count, 2);
    assert_int_equal(runs.variants[1].count, 1);
    assert_int_equal(runs.variants[2].count, 5);
    assert_int_equal(runs.variants[2].runs[4].seed, 10);
    xr_runs_free(&runs);
    /* With one or more '/' at the end. */
    read_folders(&runs, (const char *const[]){ "base/", "good//", NULL },
                 &errors);
    assert_int_equal(errors.count, 0);
    assert_string_equal(runs.variants[0].name, "base");
    assert_string_equal(runs.variants[1].name, "good");
    xr_runs_free(&runs);
}

/* ---- broken runs -------------------------------------------------------- */

static void expect_refused(const char *dir, const char *sentence)
{
    xr_runs runs;
    xr_errors errors = { 0 };
    read_folders(&runs, (const char *const[]){ dir, NULL }, &errors);
    if (errors.count != 1)
        fail_msg("%zu errors", errors.count);
    expect_in(errors.items[0], sentence);
    xr_runs_free(&runs);
    xr_errors_free(&errors);
}

static void broken_metrics_are_refused(void **state)
{
    (void)state;
    static const char *const faults[][2] = {
        { "", "bad/metrics.jsonl: it holds no step" },
        { "{\"step\":1,\"a\":1}\n{\"step\":1}\n",
          "bad/metrics.jsonl:2: step 1 is not above that of the line before" },
        { "{\"step\":1,\"a\":\"b\"}\n",
          "bad/metrics.jsonl:1: a is not a number" },
        { "[1]\n", "bad/metrics.jsonl:1: not a line of metrics" },
        { "{\"a\":1}\n", "bad/metrics.jsonl:1: \"step\" is missing" },
        { "{\"step\":1\n", "bad/metrics.jsonl:1" },
    };
    const made_up run = {
        .dir = "bad", .seed = 1, .lr = "1", .steps = 1, .score = 0.5
    };
    expect_refused("nowhere", "nowhere: no such folder");
    made_up_run(&run);
    for (size_t i = 0; i < sizeof faults / sizeof faults[0]; i++) {
        (void)scratch_write("bad/metrics.jsonl", faults[i][0]);
        expect_refused("bad", faults[i][1]);
    }
    made_up_run(&run);
    (void)scratch_write("bad/run.ini", "[run]\nseed\n");
    expect_refused("bad", "bad/run.ini:2: expected [section] or key = value");
    (void)scratch_write("bad/run.ini", "[run]\nseed = 1\nseed = 2\n");
    expect_refused("bad", "bad/run.ini:3: [run] seed: set twice in this file");
    (void)scratch_write("bad/run.ini", "[run]\nlog = warn\n");
    expect_refused("bad", "bad/run.ini: [run] seed is missing");
    assert_int_equal(remove(scratch_path("bad/run.ini")), 0);
    expect_refused("bad", "bad: it holds no resolved INI");
}

/* A kill may leave a half-written last line, which is skipped. */
static void incomplete_last_line_is_skipped(void **state)
{
    (void)state;
    xr_ab_run run;
    xr_err err = { "" };
    made_up_run(&(made_up){
        .dir = "torn", .seed = 3, .lr = "1", .steps = 1, .score = 0.5 });
    (void)scratch_write("torn/metrics.jsonl",
                        "{\"step\":1,\"a\":null,\"b\":2}\n{\"step\":2,\"b");
    assert_int_equal(xr_ab_run_read(scratch_path("torn"), &err, &run), XRAY_OK);
    assert_int_equal(run.line_count, 1);
    assert_true(isnan(xr_ab_run_value(&run, &run.lines[0], "a")));
    assert_true(xr_ab_run_value(&run, &run.lines[0], "b") == 2);
    assert_true(isnan(xr_ab_run_value(&run, &run.lines[0], "c")));
    assert_null(xr_ab_run_last(&run, "a"));
    xr_ab_run_free(&run);
}

static void impossible_comparisons_are_refused(void **state)
{
    (void)state;
    xr_runs runs;
    xr_errors errors = { 0 };
    xr_err err = { "" };
    xr_comparison c;
    read_folders(&runs, (const char *const[]){ "base", NULL }, &errors);
    assert_int_equal(xr_compare(&runs, NULL, 0, &err, &c), XRAY_E_CONFIG);
    expect_in(err.text, "a comparison needs two variants, but there is one");
    xr_runs_free(&runs);
    read_folders(&runs, (const char *const[]){ "base", "good", NULL }, &errors);
    assert_int_equal(xr_compare(&runs, "nothing", 0, &err, &c), XRAY_E_CONFIG);
    expect_in(err.text, "--metric nothing: not all runs have this metric");
    assert_int_equal(xr_compare(&runs, "critic/score/mean", 0, &err, &c),
                     XRAY_OK);
    xr_comparison_free(&c);
    int higher = judge_runs(&runs, 0);
    assert_int_not_equal(higher, XR_NO_DIFFERENCE);
    assert_int_equal(judge_runs(&runs, 1), higher == XR_VARIANT_WINS
                                               ? XR_BASE_WINS
                                               : XR_VARIANT_WINS);
    xr_runs_free(&runs);
}

/* A note names each setting that weakens the pairs. */
static void weakened_pairing_is_noted(void **state)
{
    (void)state;
    make_variant("odd", "0.2", 1, good_scores);
    for (int i = 1; i <= 5; i++) {
        char name[64];
        char text[256];
        (void)snprintf(name, sizeof name, "odd/seed-%d/run.ini", i);
        (void)snprintf(text, sizeof text,
                       "[run]\nseed = %d\n\n[data]\ntrain_files = /others\n\n"
                       "[actor.optim]\nlr = %s\n",
                       i, i == 5 ? "0.7" : "0.2");
        (void)scratch_write(name, text);
    }
    made_up_run(&(made_up){ .dir = "odd/seed-9",
                            .seed = 9,
                            .lr = "0.2",
                            .steps = 3,
                            .score = 0.5 });
    char *text = TEXT_OF(NULL, "base", "odd");
    expect_in(text, "note: odd does not share everything with the base: [data] "
                    "train_files is /others here and /rows in the base: the "
                    "prompts differ\n");
    expect_in(text, "note: odd: its runs do not all have the same settings: "
                    "actor.optim.lr is 0.2, and 0.7 with seed 5\n");
    expect_in(text, "note: base and odd: 5 of 6 runs have a partner of their "
                    "seed; the others are left out of the difference\n");
    expect_in(text, "note: the last values are not all from the same step");
    free(text);
}

/* The axes of a curve: at each step the seconds and tokens of all steps up to
 * and including it, as a mean over the runs. */
static void curves_count_time_and_tokens(void **state)
{
    (void)state;
    xr_runs runs;
    xr_errors errors = { 0 };
    xr_err err = { "" };
    xr_series s;
    read_folders(&runs, (const char *const[]){ "base", "good", NULL }, &errors);
    assert_int_equal(errors.count, 0);
    assert_int_equal(
        xr_series_make(&runs.variants[0], "critic/score/mean", &err, &s), 0);
    assert_int_equal(s.count, 4);
    for (size_t i = 0; i < 4; i++) {
        double step = (double)i + 1;
        assert_true(s.step[i] == step);
        assert_true(fabs(s.mean[i] - 0.427 * step / 4) < 1e-6);
        assert_true(s.low[i] <= s.mean[i] && s.mean[i] <= s.high[i]);
        assert_true(s.seconds[i] == 1.25 * step);
        assert_true(s.tokens[i] == 100 * step);
    }
    xr_series_free(&s);
    xr_runs_free(&runs);
}

/* ---- the page ----------------------------------------------------------- */

static void page_is_well_formed(void **state)
{
    (void)state;
    char *page = NULL;
    char *text = TEXT_OF(&page, "base", "good", "even", "later");
    markup_check(page);
    expect_in(page, "No prompt of that step is in all runs.");
    free(text);
    free(page);
    text = TEXT_OF(&page, "base", "good", "even");
    markup_check(page);
    free(text);
    assert_null(strstr(page, "http"));
    assert_null(strstr(page, "src="));
    assert_null(strstr(page, "href"));
    assert_null(strstr(page, "url("));
    assert_null(strstr(page, "<script"));
    assert_null(strstr(page, "nan"));
    assert_null(strstr(page, "inf "));
    assert_null(strstr(page, scratch_dir()));
    expect_in(page, "good is better than base");
    expect_in(page, "&lt;b&gt;0 &amp; 1");
    expect_in(page, "prefers-color-scheme:dark");
    expect_in(page, "<section id=\"time\">");
    expect_in(page, "[actor.optim] lr</td>");
    expect_in(page, "val-core/x/reward/mean@1 over steps");
    expect_in(page, "val-core/x/reward/mean@1 over tokens");
    expect_in(page, "val-core/x/reward/mean@1 over seconds");
    free(page);
}

/* If all runs of a variant failed, that is reported and the rest is compared.
 */
static void variant_without_runs_is_reported(void **state)
{
    (void)state;
    xr_runs runs;
    xr_errors errors = { 0 };
    xr_err err = { "" };
    xr_comparison c;
    xr_str text = { 0 };
    read_folders(&runs, (const char *const[]){ "base", "good", NULL }, &errors);
    assert_int_equal(xr_runs_variant(&runs, "gone", &err), XRAY_OK);
    xr_errors_add(&runs.failures, "gone, seed 1 failed: <no memory>");
    assert_int_equal(xr_compare(&runs, NULL, 0, &err, &c), XRAY_OK);
    xr_compare_text(&c, &text);
    assert_int_equal(xr_compare_text_time(&c, &text, &err), XRAY_OK);
    expect_in(xr_str_text(&text), "gone         0          -          -");
    expect_in(xr_str_text(&text), "gone against base: no verdict: ");
    expect_in(xr_str_text(&text), "good is better than base");
    expect_in(xr_str_text(&text), "0.0066  paired t");
    expect_in(xr_str_text(&text), "missing: gone, seed 1 failed: <no memory>");
    assert_null(strstr(xr_str_text(&text), "nan"));
    xr_str_clear(&text);
    assert_int_equal(xr_compare_html(&c, &text, &err), XRAY_OK);
    markup_check(xr_str_text(&text));
    assert_null(strstr(xr_str_text(&text), "nan"));
    expect_in(xr_str_text(&text), "seed 1 failed: &lt;no memory&gt;");
    xr_comparison_free(&c);
    xr_runs_free(&runs);
    xr_str_free(&text);
}

/* Metrics that are all NaN, and names and texts with characters of HTML. */
static void odd_texts_are_escaped(void **state)
{
    (void)state;
    char *page = NULL;
    for (int i = 0; i < 2; i++) {
        const char *dir = i ? "<i>&\"x/seed-1" : "plain/seed-1";
        char name[64];
        made_up_run(&(made_up){
            .dir = dir, .seed = 1, .lr = "1", .steps = 1, .score = 0.5 });
        (void)snprintf(name, sizeof name, "%s/metrics.jsonl", dir);
        (void)scratch_write(name, "{\"step\":1,\"critic/score/mean\":-3,"
                                  "\"actor/entropy\":null}\n");
        (void)snprintf(name, sizeof name, "%s/rollout/1.jsonl", dir);
        (void)scratch_write(
            name, "{\"prompt\":\"a\\u0000b\",\"response\":\"\\u0007\\u001b[1m "
                  "</pre><script>\",\"score\":null}\n");
    }
    char *text = TEXT_OF(&page, "plain", "<i>&\"x");
    markup_check(page);
    assert_null(strstr(page, "<script"));
    expect_in(page, "&lt;i&gt;&amp;&quot;x");
    expect_in(text, "no validation score is in all runs");
    free(text);
    free(page);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(winner_is_named),
        cmocka_unit_test(no_winner_within_the_scatter),
        cmocka_unit_test(other_seeds_are_unpaired),
        cmocka_unit_test(half_of_the_seeds_make_pairs),
        cmocka_unit_test(several_variants_are_corrected),
        cmocka_unit_test(equal_runs_do_not_diverge),
        cmocka_unit_test(one_run_each_has_no_verdict),
        cmocka_unit_test(folders_become_variants),
        cmocka_unit_test(broken_metrics_are_refused),
        cmocka_unit_test(incomplete_last_line_is_skipped),
        cmocka_unit_test(impossible_comparisons_are_refused),
        cmocka_unit_test(weakened_pairing_is_noted),
        cmocka_unit_test(curves_count_time_and_tokens),
        cmocka_unit_test(page_is_well_formed),
        cmocka_unit_test(variant_without_runs_is_reported),
        cmocka_unit_test(odd_texts_are_escaped),
    };
    return cmocka_run_group_tests_name("ab.compare", tests, make_all_variants,
                                       scratch_drop);
}
