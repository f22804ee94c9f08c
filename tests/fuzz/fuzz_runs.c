/* SPDX-License-Identifier: Apache-2.0
 *
 * Fuzzes the comparison of runs. The input is a sequence of texts, each but the
 * last with a NUL after it: a resolved INI, the lines of metrics and those of
 * the samples of step 1 of a run, then those of the next one, up to six. The
 * first half of them is one variant, the second half another.
 */
#include "core/ab/compare.h"
#include "tests/fuzz/fuzz.h"

#define RUNS 6u

static void write_file(const char *dir, const char *name, const char *text)
{
    char path[XR_PATH_CAP];
    xr_err err = { "" };
    FUZZ_CHECK(!xr_path_join(dir, name, path, sizeof(path), &err));
    FILE *file = fopen(path, "wb");
    FUZZ_CHECK(file);
    FUZZ_CHECK(fputs(text, file) >= 0);
    FUZZ_CHECK(fclose(file) == 0);
}

static void write_run(const char *const texts[3], size_t which, size_t count)
{
    char dir[XR_PATH_CAP];
    xr_err err = { "" };
    (void)snprintf(dir, sizeof(dir), "%s/%s/seed-%zu", fuzz_dir(),
                   which < count / 2 ? "base" : "other",
                   which < count / 2 ? which : which - count / 2);
    FUZZ_CHECK(!xr_dir_make(dir, &err));
    write_file(dir, "run.ini", texts[0]);
    write_file(dir, "metrics.jsonl", texts[1]);
    if (!*texts[2])
        return;
    (void)snprintf(dir + strlen(dir), sizeof(dir) - strlen(dir), "/rollout");
    FUZZ_CHECK(!xr_dir_make(dir, &err));
    write_file(dir, "1.jsonl", texts[2]);
}

static void report_contrast(const xr_comparison *c, size_t which)
{
    const xr_contrast *contrast = &c->contrasts[which];
    xr_str text = { 0 };
    xr_verdict(c, which, &text);
    for (size_t i = 0; i < contrast->count; i++) {
        xr_str_puts(&text, "\n");
        xr_divergence_text(&contrast->divergences[i], &text);
    }
    fuzz_saw_text("verdict", xr_str_text(&text));
    fuzz_saw_u64("paired", (uint64_t)contrast->paired);
    xr_str_free(&text);
}

static void compare_runs(const xr_runs *runs)
{
    xr_err err = { "" };
    xr_str text = { 0 };
    xr_comparison comparison;
    if (xr_compare(runs, NULL, 0, &err, &comparison)) {
        fuzz_said(&err);
        return;
    }
    fuzz_saw_text("metric", comparison.metric);
    for (size_t i = 0; i + 1 < runs->count; i++)
        report_contrast(&comparison, i);
    for (size_t i = 0; i < comparison.notes.count; i++)
        fuzz_saw_text("note", comparison.notes.items[i]);
    xr_compare_text(&comparison, &text);
    if (xr_compare_text_time(&comparison, &text, &err))
        fuzz_said(&err);
    fuzz_saw("text", xr_str_text(&text), text.size);
    xr_str_clear(&text);
    if (xr_compare_html(&comparison, &text, &err))
        fuzz_said(&err);
    fuzz_saw("page", xr_str_text(&text), text.size);
    xr_str_free(&text);
    xr_comparison_free(&comparison);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = fuzz_text(data, size);
    const char *texts[3 * RUNS] = { text };
    char base[XR_PATH_CAP];
    char other[XR_PATH_CAP];
    const char *const dirs[] = { base, other };
    xr_runs runs = { 0 };
    xr_errors errors = { 0 };
    size_t count = 1;
    (void)snprintf(base, sizeof(base), "%s/base", fuzz_dir());
    (void)snprintf(other, sizeof(other), "%s/other", fuzz_dir());
    for (size_t i = 0; i < size && count < 3 * RUNS; i++)
        if (!text[i])
            texts[count++] = text + i + 1;
    FUZZ_CHECK(!xr_dir_remove(base, NULL) && !xr_dir_remove(other, NULL));
    for (size_t i = 0; 3 * i + 2 < count; i++)
        write_run(texts + 3 * i, i, count / 3);
    xr_runs_sort(&runs, dirs, 2, &errors);
    for (size_t i = 0; i < errors.count; i++)
        fuzz_saw_text("refused", errors.items[i]);
    if (!errors.count)
        compare_runs(&runs);
    xr_errors_free(&errors);
    xr_runs_free(&runs);
    free(text);
    return 0;
}
