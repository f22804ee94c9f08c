/* SPDX-License-Identifier: Apache-2.0
 *
 * Complete reports of made-up runs, as text and as page, against
 * tests/ab/goldens.
 */
#include <math.h>

#include "core/ab/compare.h"
#include "core/ab/page.h"
#include "tests/ab/made_up.h"
#include "tests/ab/markup.h"

/* ---- goldens ------------------------------------------------------------ */

/* If a report changes on purpose, copy the file that the message names over the
 * golden. */
static void expect_golden(const char *name, const char *got)
{
    char path[512];
    char *want = NULL;
    size_t size = 0;
    const char *source = getenv("XRAY_SOURCE");
    assert_non_null(source);
    (void)snprintf(path, sizeof path, "%s/tests/ab/goldens/%s", source, name);
    if (xr_file_read(path, 1u << 24, NULL, &want, &size) == XRAY_OK &&
        strcmp(want, got) == 0) {
        free(want);
        return;
    }
    size_t at = 0;
    unsigned line = 1;
    for (; want && got[at] && got[at] == want[at]; at++)
        line += got[at] == '\n';
    const char *build = getenv("XRAY_BUILD");
    assert_non_null(build);
    (void)snprintf(path, sizeof path, "%s/tests/new-%s", build, name);
    (void)xr_file_write(path, got, strlen(got), NULL);
    fail_msg("line %u of %s is now: %.100s (all of it: %s)", line, name,
             got + at, path);
}

/* ---- made-up runs ------------------------------------------------------- */

typedef struct made {
    const char *name;
    int first_seed;
    int count;
    const double *scores;
    const char *lr;
    const char *more; /* lines of the INI */
    int lines;        /* steps after step 0 */
    double tokens;    /* per step */
    int samples;      /* 1: kept at all steps but the last */
} made;

static double triangle_wave(int a, int b)
{
    return (double)((a * 7 + b * 3) % 5) / 10;
}

static void write_samples(const made *m, const char *dir, int seed, int step)
{
    static const char *const prompts[] = {
        "2 + 2", "a < b & \\\"c\\\"", "x", "2 + 2", "p5", "p6", "p7", "p8", "p9"
    };
    xr_str text = { 0 };
    char name[64];
    for (int p = 0; p < 9; p++) {
        if (p == 2 && m->lr[0] == '2') /* not every prompt is in all */
            continue;
        xr_str_printf(&text, "{\"prompt\":\"%s\",\"response\":\"%s of %d\"",
                      prompts[p], step > 1 ? m->name : "same", p);
        if (p != 1)
            xr_str_printf(&text, ",\"ground_truth\":\"t%d\"", p);
        xr_str_printf(&text, ",\"score\":%s}\n",
                      p == 4     ? "null"
                      : seed % 2 ? "0.5"
                                 : "1");
    }
    (void)snprintf(name, sizeof name, "rollout/%d.jsonl", step);
    made_up_file(dir, name, &text);
    xr_str_free(&text);
}

static void write_made_run(const made *m, int i)
{
    char dir[64];
    char path[96];
    int seed = m->first_seed + i;
    xr_str text = { 0 };
    (void)snprintf(dir, sizeof dir, "%s/seed-%d", m->name, seed);
    (void)snprintf(path, sizeof path, "%s/rollout", dir);
    assert_int_equal(xr_dir_make(scratch_path(path), NULL), XRAY_OK);
    xr_str_puts(&text, "{\"step\":0,\"val-core/x/reward/mean@1\":0.125}\n");
    for (int s = 1; s <= m->lines; s++) {
        xr_str_printf(
            &text,
            "{\"step\":%d,\"actor/lr\":%s,\"timing_s/gen\":%g,"
            "\"timing_s/update_actor\":%g,\"loss\":%.6g,"
            "\"critic/score/mean\":%.6g,"
            "\"response_length/mean\":%d,\"actor/entropy\":%.3g,"
            "\"perf/total_num_tokens\":%g,\"perf/throughput\":%d,"
            "\"timing_s/step\":%g",
            s, m->lr, 0.25 + triangle_wave(s, i), 0.5 + triangle_wave(i, s),
            m->scores[i] - (s < m->lines ? triangle_wave(s, seed) : 0),
            -0.25 + triangle_wave(seed, s), 900 + 100 * s + 10 * i,
            1.0 / (s + i + 1), m->tokens, 4000 + 10 * s + i,
            1.25 + triangle_wave(s, i));
        if (s == m->lines)
            xr_str_printf(&text, ",\"val-core/x/reward/mean@1\":%.6g",
                          m->scores[i]);
        xr_str_puts(&text, "}\n");
        if (m->samples && s < m->lines)
            write_samples(m, dir, seed, s);
    }
    made_up_file(dir, "metrics.jsonl", &text);
    xr_str_clear(&text);
    xr_str_printf(&text,
                  "[run]\nseed = %d\nthreads = %d\n\n[data]\ntrain_files = "
                  "/rows\n%s\n[actor.optim]\nlr = %s\n",
                  seed, i, m->more, m->lr);
    made_up_file(dir, "run.ini", &text);
    xr_str_free(&text);
}

static void write_made_variant(const made *m)
{
    for (int i = 0; i < m->count; i++)
        write_made_run(m, i);
}

static void read_variants(const made *all, size_t count, xr_runs *out)
{
    char dirs[8][256];
    const char *list[8];
    xr_errors errors = { 0 };
    *out = (xr_runs){ .count = 0 };
    for (size_t i = 0; i < count; i++) {
        write_made_variant(&all[i]);
        (void)snprintf(dirs[i], sizeof dirs[i], "%s",
                       scratch_path(all[i].name));
        list[i] = dirs[i];
    }
    xr_runs_sort(out, list, count, &errors);
    if (errors.count)
        fail_msg("%s", errors.items[0]);
}

/* Expects the text and the page of the goldens `name`.txt and `name`.html. */
static void expect_report(xr_runs *runs, const char *metric, int lower,
                          const char *name)
{
    char file[64];
    xr_comparison c;
    xr_err err = { "" };
    xr_str text = { 0 };
    xr_str page = { 0 };
    if (xr_compare(runs, metric, lower, &err, &c) != XRAY_OK)
        fail_msg("%s", err.text);
    xr_compare_text(&c, &text);
    assert_int_equal(xr_compare_text_time(&c, &text, &err), XRAY_OK);
    assert_int_equal(xr_compare_html(&c, &page, &err), XRAY_OK);
    markup_check(xr_str_text(&page));
    xr_comparison_free(&c);
    xr_runs_free(runs);
    (void)snprintf(file, sizeof file, "%s.txt", name);
    expect_golden(file, xr_str_text(&text));
    (void)snprintf(file, sizeof file, "%s.html", name);
    expect_golden(file, xr_str_text(&page));
    xr_str_free(&text);
    xr_str_free(&page);
}

/* ---- reports ------------------------------------------------------------ */

/* Four variants: a winner, one with some of the seeds, one with other seeds. */
static void four_variants_are_reported(void **state)
{
    (void)state;
    static const double base[] = { 0.41, 0.44, 0.39, 0.47 };
    static const double good[] = { 0.56, 0.6, 0.55, 0.59 };
    static const double even[] = { 0.43, 0.40, 0.465 };
    static const double later[] = { 0.3, 0.35 };
    static const made all[] = {
        { "base", 1, 4, base, "1e-6", "shuffle = true\n", 4, 1234, 1 },
        { "good", 1, 4, good, "2e-6", "shuffle = true\nseed = 3\n", 4, 1234,
          1 },
        { "even", 2, 3, even, "1e-5", "shuffle = false\n", 4, 1300.5, 1 },
        { "later", 11, 2, later, "3e-6", "shuffle = true\n", 3, 2e6, 1 },
    };
    xr_runs runs;
    read_variants(all, 4, &runs);
    expect_report(&runs, NULL, 0, "four");
}

/* Samples are those of a seed that all variants have, from the last step for
 * which all runs kept some. */
static void samples_are_of_one_seed(void **state)
{
    (void)state;
    static const double scores[] = { 0.25, 0.5, 0.75, 0.5 };
    static const made all[] = {
        { "sa", 1, 3, scores, "1", "", 4, 100, 1 },
        { "sb", 2, 3, scores, "3", "", 3, 100, 1 },
        { "sc", 0, 4, scores, "4", "", 4, 100, 1 },
    };
    xr_runs runs;
    xr_comparison c;
    xr_err err = { "" };
    xr_str page = { 0 };
    read_variants(all, 3, &runs);
    assert_int_equal(xr_compare(&runs, NULL, 0, &err, &c), XRAY_OK);
    assert_int_equal(xr_page_samples(&c, &page, &err), XRAY_OK);
    const char *head = strstr(xr_str_text(&page), "Step 2, the first sample");
    assert_non_null(head);
    for (int i = 0; i < 3; i++) {
        char want[64];
        (void)snprintf(want, sizeof want, "c%d\"></span>s%c, seed 2</th>", i,
                       'a' + i);
        assert_non_null(strstr(head, want));
    }
    xr_str_free(&page);
    xr_comparison_free(&c);
    xr_runs_free(&runs);
}

/* Values without scatter whose lower ones are better: exact tests, curves of
 * many steps, a variant without runs. */
static void reports_without_scatter(void **state)
{
    (void)state;
    static const double base[] = { 0.75, 0.5, 0.625, 0.875, 1, 1.125 };
    static const double less[] = { 0.5, 0.25, 0.375, 0.625, 0.75, 0.875 };
    static const made all[] = {
        { "the-base-with-its-name", 1, 6, base, "1e-6", "", 27, 12345, 0 },
        { "two-of-a-long-name", 1, 6, less, "1e-6", "filters = x\n", 27,
          2500000, 0 },
    };
    xr_runs runs;
    xr_err err = { "" };
    read_variants(all, 2, &runs);
    assert_int_equal(xr_runs_variant(&runs, "gone", &err), XRAY_OK);
    xr_errors_add(&runs.failures, "gone, seed 1 failed: <no memory>");
    xr_errors_add(&runs.failures, "gone, seed 2 failed: \"rows\"");
    expect_report(&runs, "loss", 1, "width");
}

/* Also the metric of the verdict is plotted once over each axis. */
static void figures_differ(void **state)
{
    (void)state;
    static const double scores[] = { 0.25, 0.5, 0.75 };
    static const made all[] = {
        { "fa", 1, 3, scores, "1", "", 3, 100, 0 },
        { "fb", 1, 3, scores, "3", "", 3, 100, 0 },
    };
    xr_runs runs;
    xr_comparison c;
    xr_err err = { "" };
    xr_str page = { 0 };
    read_variants(all, 2, &runs);
    assert_int_equal(xr_compare(&runs, "critic/score/mean", 0, &err, &c),
                     XRAY_OK);
    assert_int_equal(xr_compare_html(&c, &page, &err), XRAY_OK);
    for (const char *at = strstr(xr_str_text(&page), "<figcaption>"); at;
         at = strstr(at + 1, "<figcaption>")) {
        char caption[128];
        (void)snprintf(caption, sizeof caption, "%.*s", (int)strcspn(at, "\n"),
                       at);
        if (strstr(at + 1, caption))
            fail_msg("%s occurs twice", caption);
    }
    xr_str_free(&page);
    xr_comparison_free(&c);
    xr_runs_free(&runs);
}

static const double same_high[] = { 2, 2, 2, 2 };
static const double same_low[] = { 1, 1, 1, 1 };
static const double rising[] = { 1, 2,  3,  4,  5,  6,  7, 8,
                                 9, 10, 11, 12, 13, 14, 15 };
static const double one_above[] = { 2,  3,  4,  5,  6,  7,  8, 9,
                                    10, 11, 12, 13, 14, 15, 16 };
static const struct verdict_case {
    const double *a;
    const double *b;
    int count;
    int shift; /* of the seeds of b */
    int lower;
    const char *verdict;
    const char *row;
} verdict_cases[] = {
    { same_low, same_high, 2, 0, 0,
      "vb against va: no difference shown: the values do not scatter, so there "
      "is no interval, and the exact test of labels over 2 runs gives p = "
      "0.333; more seeds could decide\n",
      "vb           2          +1                         -      -    "
      "0.3333  exact labels\n" },
    { rising, one_above, 5, 0, 0,
      "vb against va: no difference shown: the values do not scatter, so there "
      "is no interval, and the exact test of signs over 5 runs gives p = "
      "0.0625; more seeds could decide\n",
      "vb           5          +1                         -      -    "
      "0.0625  exact signs\n" },
    { rising, one_above, 6, 0, 0,
      "vb is better than va: vb minus va is +1 without scatter, and the "
      "exact test gives p = 0.0312\n",
      "vb           6          +1                         -      -    "
      "0.0312  exact signs\n" },
    { rising, one_above, 12, 0, 0,
      "vb is better than va: vb minus va is +1 without scatter, and the "
      "exact test gives p = 0.000488\n",
      "vb          12          +1                         -      -    "
      "0.0005  exact signs\n" },
    { rising, one_above, 15, 0, 0,
      "vb is better than va: vb minus va is +1 without scatter, and the "
      "exact test gives p = 6.1e-05\n",
      "vb          15          +1                         -      -  "
      "< 0.0001  exact signs\n" },
    { rising, one_above, 6, 0, 1,
      "va is better than vb: vb minus va is +1 without scatter, and the "
      "exact test gives p = 0.0312\n",
      "" },
    { same_low, same_high, 4, 10, 1,
      "va is better than vb: vb minus va is +1 without scatter, and the "
      "exact test gives p = 0.0286\n",
      "vb           8          +1                         -      -    "
      "0.0286  exact labels\n" },
    { rising, rising, 3, 0, 0,
      "vb against va: no difference shown: every value is equal\n",
      "vb           3          +0                         -      -    "
      "1.0000  exact signs\n" },
    { same_low, same_high, 1, 0, 0,
      "vb against va: no verdict: an interval needs two runs of each\n",
      "vb           1          +1                         -      -         "
      "-  none\n" },
};

/* Verdicts on values without scatter, of two runs and more. */
static void exact_tests_are_worded(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof verdict_cases / sizeof verdict_cases[0];
         i++) {
        const made all[] = {
            { "va", 1, verdict_cases[i].count, verdict_cases[i].a, "1", "", 2,
              100, 0 },
            { "vb", 1 + verdict_cases[i].shift, verdict_cases[i].count,
              verdict_cases[i].b, "2", "", 2, 100, 0 },
        };
        xr_runs runs;
        xr_comparison c;
        xr_err err = { "" };
        xr_str text = { 0 };
        for (size_t k = 0; k < 2; k++)
            (void)xr_dir_remove(scratch_path(all[k].name), NULL);
        read_variants(all, 2, &runs);
        assert_int_equal(
            xr_compare(&runs, NULL, verdict_cases[i].lower, &err, &c), XRAY_OK);
        xr_verdict(&c, 0, &text);
        xr_str_puts(&text, "\n");
        assert_string_equal(xr_str_text(&text), verdict_cases[i].verdict);
        xr_str_clear(&text);
        xr_compare_text(&c, &text);
        if (!strstr(xr_str_text(&text), verdict_cases[i].row))
            fail_msg("'%s' is not in:\n%s", verdict_cases[i].row,
                     xr_str_text(&text));
        xr_str_clear(&text);
        double p = c.contrasts[0].adjusted;
        if (p < 1e-3) { /* on the page too */
            assert_int_equal(xr_compare_html(&c, &text, &err), XRAY_OK);
            assert_non_null(
                strstr(xr_str_text(&text),
                       p < 1e-4 ? "<td>&lt; 0.0001</td>" : "<td>0.0005</td>"));
        }
        xr_str_free(&text);
        xr_comparison_free(&c);
        xr_runs_free(&runs);
    }
}

/* With two runs per variant the interval is far wider than the values, and the
 * chart shows all of it. */
static void wide_intervals_fit_the_chart(void **state)
{
    (void)state;
    static const double low[] = { 1, 2 };
    static const double high[] = { 1.5, 2.125 };
    for (int turn = 0; turn < 2; turn++) {
        const made all[] = {
            { "wa", 1, 2, turn ? high : low, "1", "", 2, 100, 0 },
            { "wb", 1, 2, turn ? low : high, "2", "", 2, 100, 0 },
        };
        double ends[2] = { 0, 0 };
        xr_runs runs;
        xr_comparison c;
        xr_err err = { "" };
        xr_str page = { 0 };
        read_variants(all, 2, &runs);
        assert_int_equal(xr_compare(&runs, NULL, 0, &err, &c), XRAY_OK);
        xr_page_differences(&c, &page);
        const char *bar = strstr(xr_str_text(&page), "class=\"bar\" x1=\"");
        assert_non_null(bar);
        ends[0] = strtod(strstr(bar, "x1=") + 4, NULL);
        ends[1] = strtod(strstr(bar, "x2=") + 4, NULL);
        assert_true(ends[0] >= 58 && ends[0] < 150);
        assert_true(ends[1] <= 526 && ends[1] > 430);
        xr_str_free(&page);
        xr_comparison_free(&c);
        xr_runs_free(&runs);
    }
}

/* ---- axes --------------------------------------------------------------- */

/* The labels of both axes of a curve from (x[0], y[0]) to (x[1], y[1]). */
static void read_axis_labels(const double *x, const double *y, char *out,
                             size_t cap)
{
    double mean[2] = { y[0], y[1] };
    double at[2] = { x[0], x[1] };
    xr_variant one = { .name = xr_strdup("v") };
    xr_runs runs = { .variants = &one, .count = 1 };
    const xr_series s = { 2, at, mean, mean, mean, at, at };
    xr_str page = { 0 };
    xr_page_curves(&s, &runs, "m", XR_OVER_STEPS, &page);
    size_t size = 0;
    out[0] = '\0';
    for (const char *text = strstr(xr_str_text(&page), "<text "); text;
         text = strstr(text + 1, "<text ")) {
        const char *from = strchr(text, '>') + 1;
        size +=
            (size_t)snprintf(out + size, cap - size, "%s%.*s", size ? " " : "",
                             (int)strcspn(from, "<"), from);
    }
    xr_str_free(&page);
    free(one.name);
}

static void ticks_have_round_numbers(void **state)
{
    (void)state;
    static const struct {
        double x[2];
        double y[2];
        const char *labels; /* those of y, of x, and the name of x */
    } cases[] = {
        { { 0, 10 }, { 0, 1 }, "0.0 0.2 0.4 0.6 0.8 1.0 0 2 4 6 8 10 step" },
        { { 1, 7 },
          { 0.31, 0.47 },
          "0.30 0.35 0.40 0.45 0.50 1 2 3 4 5 6 7 step" },
        { { 0, 12000 },
          { -1, 1 },
          "-1.0 -0.5 0.0 0.5 1.0 0 2000 4000 6000 8000 10k 12k step" },
        { { 1000, 9000 },
          { 0, 5e6 },
          "0 1M 2M 3M 4M 5M 2000 4000 6000 8000 step" },
        { { 0, 3e9 },
          { 2, 2 },
          "1.8 1.9 2.0 2.1 2.2 0 500M 1.0G 1.5G 2.0G 2.5G 3.0G step" },
        { { 5, 5 },
          { 0, 0 },
          "-1.0 -0.5 0.0 0.5 1.0 4.4 4.6 4.8 5.0 5.2 5.4 5.6 step" },
        { { 3, 250 },
          { -0.00012, 0.00031 },
          "-0.0002 -0.0001 0.0000 0.0001 0.0002 0.0003 0.0004 50 100 150 200 "
          "250 step" },
        { { 0, 15 }, { 0, 13 }, "0 5 10 15 0 5 10 15 step" },
        { { 0, 40 }, { 0, 30 }, "0 10 20 30 0 10 20 30 40 step" },
        { { 0, 100000 },
          { -30000, -20000 },
          "-30k -28k -26k -24k -22k -20k 0 20k 40k 60k 80k 100k step" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char got[512];
        read_axis_labels(cases[i].x, cases[i].y, got, sizeof got);
        assert_string_equal(got, cases[i].labels);
    }
}

/* Dots mark up to 25 points; more would hide the curve. */
static void few_points_have_dots(void **state)
{
    (void)state;
    for (size_t count = 24; count <= 26; count++) {
        double at[26];
        for (size_t i = 0; i < count; i++)
            at[i] = (double)i;
        xr_variant one = { .name = xr_strdup("v") };
        xr_runs runs = { .variants = &one, .count = 1 };
        const xr_series s = { count, at, at, at, at, at, at };
        xr_str page = { 0 };
        xr_page_curves(&s, &runs, "m", XR_OVER_STEPS, &page);
        size_t found = 0;
        for (const char *dot = strstr(xr_str_text(&page), "class=\"dot\""); dot;
             dot = strstr(dot + 1, "class=\"dot\""))
            found++;
        assert_int_equal(found, count <= 25 ? count : 0);
        xr_str_free(&page);
        free(one.name);
    }
}

/* ---- text of a page ----------------------------------------------------- */

static void page_text_is_escaped(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        { "a<b>&\"c'", "a&lt;b&gt;&amp;&quot;c'" },
        { "tab\tline\n", "tab\tline\n" },
        { "\x01|\x1f|\x7f|\xc2\x80|\xc2\x9f|\xc2\xa0",
          "\xef\xbf\xbd|\xef\xbf\xbd|\xef\xbf\xbd|\xef\xbf\xbd|\xef\xbf\xbd|"
          "\xc2\xa0" },
        { "\xc3\xa4\xf0\x9f\x98\x80", "\xc3\xa4\xf0\x9f\x98\x80" },
        { "\xff|\xc3", "\xef\xbf\xbd|\xef\xbf\xbd" },
        { "\xef\xbf\xbe|\xef\xbf\xbf|\xef\xbf\xbd",
          "\xef\xbf\xbd|\xef\xbf\xbd|\xef\xbf\xbd" },
    };
    static const struct {
        double value;
        const char *text;
    } numbers[] = {
        { 0, "0" },
        { 0.123456, "0.1235" },
        { 999.94, "999.9" },
        { 1000, "1000" },
        { 123456.7, "123457" },
        { -1234.5, "-1234" },
        { 1e15, "1e+15" },
        { 1e-7, "1e-07" },
        { (double)NAN, "\xe2\x80\x93" },
    };
    xr_str out = { 0 };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        xr_str_clear(&out);
        xr_page_text(cases[i][0], &out);
        assert_string_equal(xr_str_text(&out), cases[i][1]);
    }
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        xr_str_clear(&out);
        xr_page_number(numbers[i].value, &out);
        assert_string_equal(xr_str_text(&out), numbers[i].text);
    }
    xr_str_free(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(four_variants_are_reported),
        cmocka_unit_test(reports_without_scatter),
        cmocka_unit_test(exact_tests_are_worded),
        cmocka_unit_test(samples_are_of_one_seed),
        cmocka_unit_test(figures_differ),
        cmocka_unit_test(ticks_have_round_numbers),
        cmocka_unit_test(page_text_is_escaped),
        cmocka_unit_test(wide_intervals_fit_the_chart),
        cmocka_unit_test(few_points_have_dots),
    };
    return cmocka_run_group_tests_name("ab.goldens", tests, scratch_make,
                                       scratch_drop);
}
