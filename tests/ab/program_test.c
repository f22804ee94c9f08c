/* SPDX-License-Identifier: Apache-2.0
 *
 * xray ab on real runs: a better variant wins, an equal one does not; stopped
 * runs resume, and failures and changed files are reported.
 */
#include <signal.h>
#include <unistd.h>

#include "core/base/lock.h"
#include "core/base/str.h"
#include "tests/cli/program.h"

#define SCORE "val-core/default/reward/mean@4"

static char base_ini[300];
static char better_ini[300];

/* A run on the small model, with a reward for words that a model of stories can
 * learn to use more often. */
static const char *write_run(const char *name, const char *lr, const char *more)
{
    char model[512];
    xr_str ini = { 0 };
    (void)test_data("models/stories260K/hf/tokenizer.json", model,
                    sizeof model);
    *strrchr(model, '/') = '\0';
    (void)scratch_write("rows.jsonl", "{\"prompt\":\"Once upon a time\"}\n"
                                      "{\"prompt\":\"Lily was\"}\n"
                                      "{\"prompt\":\"One day\"}\n"
                                      "{\"prompt\":\"Tom and\"}\n");
    xr_str_printf(&ini,
                  "[run]\nreward = words\nseed = 7\nthreads = 1\n"
                  "[model]\npath = %s\n"
                  "[data]\ntrain_files = rows.jsonl\nval_files = rows.jsonl\n"
                  "max_prompt_length = 16\nmax_response_length = 8\n"
                  "train_batch_size = 4\nanswer_key = \"\"\n"
                  "[rollout]\nn = 8\n"
                  "[rollout.val]\nn = 4\n"
                  "[actor]\nppo_max_token_len_per_gpu = 256\n"
                  "[actor.optim]\nlr = %s\n"
                  "[trainer]\ntotal_training_steps = 10\ntest_freq = 5\n"
                  "[reward.words]\ngrader = regex\npattern = \"dog|named\"\n"
                  "match_only = true\n%s",
                  model, lr, more);
    const char *path = scratch_write(name, xr_str_text(&ini));
    xr_str_free(&ini);
    return path;
}

static int make_inis(void **state)
{
    (void)state;
    (void)snprintf(base_ini, sizeof base_ini, "%s",
                   write_run("base.ini", "0", ""));
    (void)snprintf(better_ini, sizeof better_ini, "%s",
                   write_run("better.ini", "1e-3", ""));
    return 0;
}

#define AB(out, ...)                                           \
    RUN(NULL, "ab", "--metric", SCORE, "--jobs", "2", "--out", \
        scratch_path(out), __VA_ARGS__)

static char *read_page(const char *name)
{
    char *page = NULL;
    size_t size = 0;
    assert_int_equal(
        xr_file_read(scratch_path(name), 1u << 26, NULL, &page, &size),
        XRAY_OK);
    return page;
}

static void better_variant_wins(void **state)
{
    make_inis(state);
    const program_result *r = AB("one", base_ini, better_ini, "--seeds", "4");
    expect_code(r, 0);
    expect_text(r->out, "better is better than base: better minus base is +");
    expect_text(r->out, " excludes zero\n");
    expect_text(r->out, "step 1: actor/lr 0 | 0.001");
    expect_text(r->out, "first different sample: step 2");
    expect_text(r->err, "(8 of 8)");
    char *page = read_page("one/report.html");
    expect_text(page, "better is better than base");
    expect_text(page, "Once upon a time");
    free(page);
    /* Finished runs are not repeated. */
    r = AB("one", base_ini, better_ini, "--seeds", "4");
    expect_code(r, 0);
    expect_text(r->err, "8 of 8 runs are already done");
    assert_int_equal(count_lines(r->err), 1);
}

/* The same file twice: with equal seeds the runs have equal bits; with other
 * seeds no difference is shown, although the scores may differ. */
static void equal_variants_do_not_differ(void **state)
{
    (void)state;
    char ini[300];
    if (TEST_STEP > 1) /* a sanitizer has seen what these twelve runs do */
        return;
    (void)snprintf(ini, sizeof ini, "%s", write_run("same.ini", "1e-4", ""));
    const program_result *r =
        AB("two", ini, ini, "--seed-list", "101,102,103,104,105,106");
    expect_code(r, 0);
    expect_text(r->out, "same-2 against same: no difference shown: every "
                        "value is equal\n");
    expect_text(r->out, "seed 104             no metric differs up to step 10; "
                        "no sample differs\n");
    char dirs[6][300];
    for (int i = 0; i < 6; i++) {
        char name[64];
        (void)snprintf(name, sizeof name, "two/%s/seed-%d",
                       i < 3 ? "same" : "same-2", 101 + i);
        (void)snprintf(dirs[i], sizeof dirs[i], "%s", scratch_path(name));
    }
    r = RUN(NULL, "compare", "--metric", SCORE, dirs[0], dirs[1], dirs[2],
            dirs[3], dirs[4], dirs[5]);
    expect_code(r, 0);
    expect_text(r->out, "same-2 against same: no difference shown: the 95 % "
                        "interval [");
    expect_text(r->out, "compared unpaired, by Welch's t interval\n");
}

/* Removes the section that depends on time. */
static void remove_cost_section(char *page)
{
    char *from = strstr(page, "<section id=\"time\">");
    assert_non_null(from);
    const char *to = strstr(from, "</section>");
    assert_non_null(to);
    memmove(from, to, strlen(to) + 1);
}

static void stopped_runs_resume(void **state)
{
    make_inis(state);
    char out[300];
    char watched[300];
    (void)snprintf(out, sizeof out, "%s", scratch_path("three"));
    (void)snprintf(watched, sizeof watched, "%s",
                   scratch_path("three/base/seed-8/metrics.jsonl"));
    const char *const args[] = { "ab",       "--metric", SCORE, "--jobs",
                                 "2",        "--out",    out,   base_ini,
                                 better_ini, "--seeds",  "4",   NULL };
    const program_result *r = program_kill(args, watched, SIGINT, 1);
    expect_code(r, 128 + SIGINT);
    assert_string_equal(r->out, "");
    expect_text(r->err, "stopped by SIGINT with ");
    expect_text(r->err, "; resume with: ");
    assert_false(xr_path_exists(scratch_path("three/report.html")));
    r = program_run(NULL, args);
    expect_code(r, 0);
    expect_text(r->err, " of 8 runs are already done");
    char *first = read_page("one/report.html");
    char *second = read_page("three/report.html");
    remove_cost_section(first);
    remove_cost_section(second);
    assert_string_equal(first, second);
    free(first);
    free(second);
}

static void changed_files_are_refused(void **state)
{
    make_inis(state);
    char path[300];
    (void)snprintf(path, sizeof path, "%s",
                   write_run("better.ini", "2e-3", ""));
    const program_result *r = AB("one", base_ini, path, "--seeds", "4");
    expect_code(r, 2);
    assert_string_equal(r->out, "");
    expect_text(r->err, "better.ini: [actor.optim] lr is 2e-3, but the runs in "
                        "");
    expect_text(r->err, "/one/better were started with 1e-3; choose another "
                        "--out for the changed variant\n");
    /* Threads do not change results. */
    make_inis(state);
    r = AB("one", base_ini, better_ini, "--seeds", "4", "--set=run.threads=2");
    expect_code(r, 0);
}

/* Every fault of every file is reported, and nothing is started. */
static void all_faults_are_reported(void **state)
{
    (void)state;
    char bad[300];
    char worse[300];
    (void)snprintf(bad, sizeof bad, "%s",
                   write_run("bad.ini", "quick", "colour = red\n"));
    (void)snprintf(worse, sizeof worse, "%s",
                   write_run("worse.ini", "0", "[rollouts]\nm = 3\n"));
    const program_result *r =
        AB("four", bad, worse, "--seed-list=1,x", "--set=rollout.n=-3");
    expect_code(r, 2);
    assert_string_equal(r->out, "");
    expect_text(r->err, "--seed-list takes integers");
    expect_text(r->err, "[actor.optim] lr");
    expect_text(r->err, "[reward.words] colour");
    expect_text(r->err, "[rollouts]");
    expect_text(r->err, "[rollout] n");
    assert_false(xr_path_exists(scratch_path("four")));
    expect_code(RUN(NULL, "ab", "only.ini"), 2);
    expect_code(AB("four", "nowhere.ini", "nowhere-too.ini"), 2);
    r = AB("four", base_ini, better_ini, "--seed-list", "3,3");
    expect_code(r, 2);
    expect_text(r->err, "--seed-list: 3 is listed twice");
}

/* One run cannot store its samples; the others are compared. */
static void failed_run_is_reported(void **state)
{
    make_inis(state);
    assert_int_equal(xr_dir_make(scratch_path("five/better/seed-8"), NULL),
                     XRAY_OK);
    (void)scratch_write("five/better/seed-8/rollout", "x");
    const program_result *r = AB("five", base_ini, better_ini, "--seeds", "3");
    expect_code(r, 1);
    expect_text(r->err, "xray: better, seed 8: failed: ");
    expect_text(r->err, "five/better/seed-8/rollout");
    expect_text(r->err, "xray: 1 of 6 runs failed; the same command runs them "
                        "again\n");
    expect_text(r->out, "missing: better, seed 8 failed: ");
    expect_text(r->out, "better       2");
    assert_int_equal(remove(scratch_path("five/better/seed-8/rollout")), 0);
    r = AB("five", base_ini, better_ini, "--seeds", "3");
    expect_code(r, 0);
    expect_text(r->err, "5 of 6 runs are already done");
}

/* Fine-tuning on rows with answers that teach the model the word "named". */
static const char *write_sft(const char *name, const char *lr)
{
    char more[400];
    (void)scratch_write("told.jsonl",
                        "{\"prompt\":\"Tom and\",\"answer\":\" a dog named "
                        "Tim were happy.\"}\n"
                        "{\"prompt\":\"Lily was\",\"answer\":\" a dog named "
                        "Lily.\"}\n");
    (void)snprintf(more, sizeof more,
                   "[sft]\ntrain_batch_size = 2\ntotal_steps = 12\n"
                   "max_token_len = 256\ntest_freq = 6\n[sft.optim]\nlr = %s\n",
                   lr);
    return write_run(name, "0", more);
}

static void fine_tuning_is_compared(void **state)
{
    (void)state;
    char slow[300];
    char quick[300];
    (void)snprintf(slow, sizeof slow, "%s", write_sft("slow.ini", "0"));
    (void)snprintf(quick, sizeof quick, "%s", write_sft("quick.ini", "1e-2"));
    char train[300];
    char val[300];
    (void)snprintf(train, sizeof train, "data.train_files=%s",
                   scratch_path("told.jsonl"));
    (void)snprintf(val, sizeof val, "data.val_files=%s",
                   scratch_path("told.jsonl"));
#define TUNE(...)                                                        \
    AB("six", slow, quick, "--seeds", "3", "--set", train, "--set", val, \
       "--set", "data.answer_key=answer", __VA_ARGS__)
    const program_result *r = TUNE("--job", "sft");
    expect_code(r, 0);
    expect_text(r->out, "quick is better than slow: quick minus slow is +");
    expect_text(r->out, "step 1: train/lr 0 | 0.01");
    expect_text(r->err, "(6 of 6)");
    r = TUNE("--job", "train");
    expect_code(r, 2);
    expect_text(r->err, "--job train: the runs in ");
    expect_text(r->err,
                "/six were started with --job sft; choose another --out\n");
    expect_code(TUNE("--job", "eval"), 2);
#undef TUNE
}

static void folder_in_use_is_refused(void **state)
{
    make_inis(state);
    static const char *const folders[] = { "one", "one/better/seed-8" };
    char who[64];
    (void)snprintf(who, sizeof who, " is in use by another xray (pid %ld on ",
                   (long)getpid());
    for (size_t i = 0; i < 2; i++) {
        xr_lock lock;
        assert_int_equal(xr_lock_take(scratch_path(folders[i]), NULL, &lock),
                         XRAY_OK);
        const program_result *r =
            AB("one", base_ini, better_ini, "--seeds", "4");
        expect_code(r, 1);
        expect_text(r->err, folders[i]);
        expect_text(r->err, who);
        xr_lock_drop(&lock);
    }
}

static void faults_of_compare_are_reported(void **state)
{
    (void)state;
    const program_result *r =
        RUN(NULL, "compare", scratch_path("one/base"), "/nowhere", "/nor-here");
    expect_code(r, 2);
    expect_text(r->err, "/nowhere: no such folder\n");
    expect_text(r->err, "/nor-here: no such folder\n");
    r = RUN(NULL, "compare", scratch_path("one/base"));
    expect_code(r, 2);
    expect_text(r->err, "a comparison needs two variants");
    r = RUN(NULL, "compare", scratch_path("one/base"),
            scratch_path("one/better"), "--metric=none");
    expect_code(r, 2);
    r = RUN(NULL, "compare", scratch_path("one/base"),
            scratch_path("one/better"), "--out=/nowhere/report.html");
    expect_code(r, 1);
    expect_text(r->err, "/nowhere/report.html");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(better_variant_wins),
        cmocka_unit_test(equal_variants_do_not_differ),
        cmocka_unit_test(stopped_runs_resume),
        cmocka_unit_test(changed_files_are_refused),
        cmocka_unit_test(all_faults_are_reported),
        cmocka_unit_test(failed_run_is_reported),
        cmocka_unit_test(fine_tuning_is_compared),
        cmocka_unit_test(folder_in_use_is_refused),
        cmocka_unit_test(faults_of_compare_are_reported),
    };
    return cmocka_run_group_tests_name("ab.program", tests, scratch_make,
                                       program_done);
}
