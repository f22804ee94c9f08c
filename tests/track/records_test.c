/* SPDX-License-Identifier: Apache-2.0
 *
 * Proves what trackers are given besides metrics: histograms and ratios
 * counted by hand, and samples as texts.
 */
#include "tests/testing.h"

#include <float.h>
#include <math.h>

#include "core/monitor/monitor.h"
#include "core/monitor/sample_texts.h"
#include "core/roles/ratios.h"

/* ---- histograms ---------------------------------------------------------- */

/* Counts by comparison with the edges alone. */
static void expect_counts(const xray_histogram *h, const float *values,
                          size_t count)
{
    double all = 0;
    for (uint64_t b = 0; b < h->count; b++) {
        double want = 0;
        assert_true(h->edges[b] < h->edges[b + 1]);
        for (size_t i = 0; i < count; i++)
            want +=
                (double)values[i] >= h->edges[b] &&
                ((double)values[i] < h->edges[b + 1] ||
                 (b + 1 == h->count && (double)values[i] <= h->edges[b + 1]));
        if (want < h->counts[b] || want > h->counts[b])
            fail_msg("bucket %d of %s: %g, expected %g", (int)b, h->name,
                     h->counts[b], want);
        all += want;
    }
    size_t finite = 0;
    for (size_t i = 0; i < count; i++)
        finite += isfinite(values[i]) != 0;
    assert_int_equal((size_t)all, finite);
}

static void each_value_is_in_the_bucket_between_its_edges(void **state)
{
    (void)state;
    static float values[1000];
    xr_histograms *h = xr_histograms_new();
    size_t count = 0;
    for (int scale = 0; scale < 40; scale++) {
        for (size_t i = 0; i < 1000; i++)
            values[i] =
                (float)ldexp((double)(i * 7919 % 1009) - 300.3, 3 * scale - 60);
        values[17] = NAN;
        values[18] = INFINITY;
        values[19] = values[20];
        xr_histograms_clear(h);
        xr_histograms_add(h, "v", values, 1000);
        const xray_histogram *list = xr_histograms_list(h, &count);
        assert_int_equal(count, 1);
        assert_int_equal(list->count, 30);
        expect_counts(list, values, 1000);
    }
    xr_histograms_free(h);
}

static void equal_values_are_in_one_bucket(void **state)
{
    (void)state;
    static const float values[] = { 0, 3, -7.5f, 1e30f, FLT_MAX, -FLT_MAX };
    xr_histograms *h = xr_histograms_new();
    size_t count = 0;
    for (size_t i = 0; i < 6; i++) {
        const float all[] = { values[i], values[i], NAN };
        xr_histograms_add(h, "equal", all, 3);
    }
    const xray_histogram *list = xr_histograms_list(h, &count);
    assert_int_equal(count, 6);
    for (size_t i = 0; i < 6; i++) {
        assert_int_equal(list[i].count, 1);
        assert_true(list[i].counts[0] > 1.5 && list[i].counts[0] < 2.5);
        expect_counts(&list[i], (const float[]){ values[i], values[i] }, 2);
        assert_true(isfinite(list[i].edges[0]) && isfinite(list[i].edges[1]));
    }
    xr_histograms_free(h);
}

/* Its distance from the first edge, divided by the width, is rounded to just
 * below a whole number. */
static void a_value_on_an_edge_begins_a_bucket(void **state)
{
    (void)state;
    static const float rows[][3] = { { 2, 18.9f, 10.45f },
                                     { 22.5f, 33.2f, 27.85f },
                                     { -23, -11.5f, -17.25f } };
    for (size_t i = 0; i < 3; i++) {
        xr_histograms *h = xr_histograms_new();
        size_t count = 0;
        xr_histograms_add(h, "edge", rows[i], 3);
        const xray_histogram *list = xr_histograms_list(h, &count);
        assert_true(list->edges[XR_BUCKETS / 2] == (double)rows[i][2]);
        expect_counts(list, rows[i], 3);
        xr_histograms_free(h);
    }
}

static void nothing_gives_no_histogram(void **state)
{
    (void)state;
    static const float bad[] = { NAN, INFINITY, -INFINITY };
    static const double edges[] = { 0, 1, 2 };
    static const double none[] = { 0, 0 };
    xr_histograms *h = xr_histograms_new();
    size_t count = 9;
    xr_histograms_add(h, "none", bad, 0);
    xr_histograms_add(h, "none", bad, 3);
    xr_histograms_add_counts(h, "none", edges, none, 2);
    (void)xr_histograms_list(h, &count);
    assert_int_equal(count, 0);
    xr_histograms_free(h);
}

static void metrics_keep_histograms_if_they_are_asked_to(void **state)
{
    (void)state;
    static const float values[] = { 1, 2, 2, 4 };
    xr_metrics *m = xr_metrics_new();
    size_t count = 9;
    xr_metrics_stats(m, "before", values, 4);
    assert_null(xr_metrics_histograms(m));
    assert_int_equal(xr_metrics_keep_histograms(m), 0);
    for (int step = 0; step < 3; step++) {
        xr_metrics_clear(m);
        (void)xr_histograms_list(xr_metrics_histograms(m), &count);
        assert_int_equal(count, 0);
        for (int i = 0; i < 20; i++) {
            char name[16];
            (void)snprintf(name, sizeof(name), "n%d", i);
            xr_metrics_stats(m, name, values, 4);
        }
        const xray_histogram *list =
            xr_histograms_list(xr_metrics_histograms(m), &count);
        assert_int_equal(count, 20);
        assert_string_equal(list[0].name, "n0");
        assert_string_equal(list[19].name, "n19");
        expect_counts(&list[19], values, 4);
        assert_int_equal(xr_metrics_count(m), 60);
    }
    xr_metrics_free(m);
}

/* Memory of an earlier step is used again, for names of any length and for
 * counts that others made. */
static void histograms_of_a_step_have_its_names_and_counts(void **state)
{
    static const float values[] = { 1, 2 };
    static const double edges[XR_BUCKETS_MOST + 2] = { -1, 0, 3, 4 };
    static const double counts[XR_BUCKETS_MOST + 1] = { 0, 2, 5 };
    char longest[300];
    xr_histograms *h = xr_histograms_new();
    size_t count = 0;
    (void)state;
    memset(longest, 'x', sizeof(longest) - 1);
    longest[sizeof(longest) - 1] = '\0';
    xr_histograms_add(h, longest, values, 2);
    const xray_histogram *list = xr_histograms_list(h, &count);
    const size_t size = strlen(list->name);
    assert_true(size >= 64 && size < sizeof(longest));
    assert_int_equal(strspn(list->name, "x"), size);
    xr_histograms_clear(h);
    xr_histograms_add_counts(h, "short", edges, counts, 3);
    xr_histograms_add_counts(h, "none", edges, counts, 1);
    xr_histograms_add_counts(h, "many", edges, counts, XR_BUCKETS_MOST + 1);
    xr_histograms_add(h, "own", values, 2);
    list = xr_histograms_list(h, &count);
    assert_int_equal(count, 2);
    assert_string_equal(list->name, "short");
    assert_int_equal(list->count, 3);
    assert_memory_equal(list->edges, edges, 4 * sizeof(*edges));
    assert_memory_equal(list->counts, counts, 3 * sizeof(*counts));
    assert_string_equal(list[1].name, "own");
    expect_counts(&list[1], values, 2);
    assert_false(xr_histograms_failed(h));
    xr_histograms_free(h);
}

/* ---- ratios -------------------------------------------------------------- */

static void ratios_of_tokens_in_the_loss_are_counted(void **state)
{
    (void)state;
    float mask[] = { 1, 0, 1, 1, 1, 1, 1, 1 };
    float before[] = { -1, -1, -2, -3, 0, -50, -1, -1 };
    /* ratios 1, (masked), e^0.5, e^-5, e^-0.0005, e^50, 0.79995, 1.2001 */
    float after[] = { -1, -9, -1.5f, -8, -0.0005f, 0, -1.2232f, -0.8176f };
    xray_batch batch = { .header = XRAY_HEADER(xray_batch),
                         .tokens = 8,
                         .loss_mask = mask,
                         .old_logp = before };
    double counts[XR_RATIO_BUCKETS] = { 0 };
    for (size_t b = 0; b < XR_RATIO_BUCKETS; b++)
        assert_true(xr_ratio_edges[b] < xr_ratio_edges[b + 1]);
    xr_ratios_count(&batch, after, counts);
    xr_ratios_count(&batch, after, counts);
    for (size_t b = 0; b < XR_RATIO_BUCKETS; b++) {
        double from = xr_ratio_edges[b];
        double want = from <= 0                        ? 2 /* e^-5 */
                      : from > 0.998 && from < 1       ? 4 /* 1, e^-0.0005 */
                      : from > 1.45 && from < 1.55     ? 2 /* e^0.5 */
                      : from > 3.9                     ? 2 /* e^50 */
                      : from > 0.749 && from < 0.751   ? 2 /* 0.79995 */
                      : from > 1.1999 && from < 1.2001 ? 2 /* 1.2001 */
                                                       : 0;
        if (counts[b] < want || counts[b] > want)
            fail_msg("ratios from %g: %g, expected %g", from, counts[b], want);
    }
}

/* A ratio that an algorithm clips at is no part of a bucket: it ends one. */
static void ratios_have_edges_where_algorithms_clip(void **state)
{
    static const double edges[] = { 0, 0.8, 1.2, 1.3, 4 };
    (void)state;
    assert_int_equal(XR_RATIO_BUCKETS, 34);
    for (size_t i = 0; i < sizeof(edges) / sizeof(edges[0]); i++) {
        size_t found = 0;
        for (size_t b = 0; b <= XR_RATIO_BUCKETS; b++)
            found += fabs(xr_ratio_edges[b] - edges[i]) < 1e-12;
        if (found != 1)
            fail_msg("%g is no edge", edges[i]);
    }
    float mask[] = { 1, 1 };
    float before[] = { 0, 0 };
    float after[] = { 1.387f, 90 }; /* ratios 4.003 and e^90 */
    xray_batch batch = { .header = XRAY_HEADER(xray_batch),
                         .tokens = 2,
                         .loss_mask = mask,
                         .old_logp = before };
    double counts[XR_RATIO_BUCKETS] = { 0 };
    xr_ratios_count(&batch, after, counts);
    assert_true(counts[XR_RATIO_BUCKETS - 1] > 1.5);
}

/* ---- texts --------------------------------------------------------------- */

static const char *text_of(const xr_sample_texts *texts, size_t i)
{
    assert_true(i < texts->count);
    assert_int_equal(strlen(texts->list[i].text), texts->list[i].size);
    return texts->list[i].text;
}

static void a_sample_is_code_in_markdown(void **state)
{
    (void)state;
    xr_sample_texts texts = { .count = 0 };
    xr_shown_sample sample = { "1+1=\n*b*", 8, "```\n\x1b[2J", 8, "2", 0.5 };
    for (int step = 0; step < 2; step++) {
        xr_sample_texts_clear(&texts);
        for (size_t i = 0; i < 10; i++)
            xr_sample_texts_add(&texts, "train", i, &sample);
        assert_int_equal(texts.count, 10);
        assert_string_equal(texts.list[9].name, "samples/train/9");
        assert_string_equal(text_of(&texts, 9),
                            "score 0.5\n\nprompt:\n\n    1+1=\n    *b*\n"
                            "\nanswer:\n\n    ```\n    \xef\xbf\xbd[2J\n"
                            "\nground truth:\n\n    2\n");
    }
    sample.truth = "";
    xr_sample_texts_clear(&texts);
    xr_sample_texts_add(&texts, "validation", 0, &sample);
    assert_null(strstr(text_of(&texts, 0), "truth"));
    xr_sample_texts_free(&texts);
}

/* Of a long prompt the end is kept, of a long answer the beginning, and no
 * character is cut in two. */
static void long_samples_are_cut_between_characters(void **state)
{
    (void)state;
    xr_sample_texts texts = { .count = 0 };
    xr_str long_text = { 0 };
    xr_str_puts(&long_text, "<");
    for (int i = 0; i < 4000; i++)
        xr_str_puts(&long_text, "\xe2\x82\xac"); /* three bytes */
    xr_str_puts(&long_text, ">");
    const xr_shown_sample sample = {
        long_text.data, long_text.size, long_text.data, long_text.size, "", 1
    };
    xr_sample_texts_add(&texts, "train", 0, &sample);
    const char *text = text_of(&texts, 0);
    const char *prompt = strstr(text, "prompt, its end:\n\n    \xe2\x82\xac");
    const char *answer = strstr(text, "answer, its beginning:\n\n    <\xe2");
    assert_non_null(prompt);
    assert_non_null(answer);
    assert_non_null(strstr(prompt, ">\n\nanswer"));
    assert_null(strstr(text, "\xef\xbf\xbd"));
    assert_true(strlen(text) > 16300 && strlen(text) < 16500);
    xr_str_free(&long_text);
    xr_sample_texts_free(&texts);
}

/* 8 KiB of a part are kept; no byte less, and no more. A step begins without
 * the failure of the one before. */
static void parts_of_8_kib_are_whole(void **state)
{
    static char letters[8194];
    (void)state;
    memset(letters, 'a', sizeof(letters) - 1);
    for (size_t size = 8192; size <= 8193; size++) {
        xr_sample_texts texts = { .failed = 1 };
        const char *truth = letters + sizeof(letters) - 1 - size;
        const xr_shown_sample sample = {
            letters, size, letters, size, truth, 1
        };
        xr_sample_texts_clear(&texts);
        assert_int_equal(texts.failed, 0);
        xr_sample_texts_add(&texts, "train", 0, &sample);
        const char *text = text_of(&texts, 0);
        const int cut = size > 8192;
        assert_int_equal(strstr(text, "prompt, its end:") != NULL, cut);
        assert_int_equal(strstr(text, "answer, its beginning:") != NULL, cut);
        assert_int_equal(strstr(text, "truth, its beginning:") != NULL, cut);
        const char *prompt = strstr(text, "aa");
        assert_int_equal(strspn(prompt, "a"), 8192);
        assert_int_equal(strspn(strstr(prompt + 8192, "aa"), "a"), 8192);
        xr_sample_texts_free(&texts);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_value_is_in_the_bucket_between_its_edges),
        cmocka_unit_test(equal_values_are_in_one_bucket),
        cmocka_unit_test(a_value_on_an_edge_begins_a_bucket),
        cmocka_unit_test(nothing_gives_no_histogram),
        cmocka_unit_test(metrics_keep_histograms_if_they_are_asked_to),
        cmocka_unit_test(histograms_of_a_step_have_its_names_and_counts),
        cmocka_unit_test(ratios_of_tokens_in_the_loss_are_counted),
        cmocka_unit_test(ratios_have_edges_where_algorithms_clip),
        cmocka_unit_test(a_sample_is_code_in_markdown),
        cmocka_unit_test(long_samples_are_cut_between_characters),
        cmocka_unit_test(parts_of_8_kib_are_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
