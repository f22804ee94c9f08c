/* SPDX-License-Identifier: Apache-2.0
 *
 * Proves how the folder of a run's checkpoints is kept: which ones are
 * replaced, removed or kept, what is cleaned up after a kill, and which one a
 * run resumes from.
 */
#include <dirent.h>

#include "core/base/str.h"
#include "core/rl/checkpoint.h"
#include "core/rl/checkpoint_folder.h"
#include "core/run/inventory.h"
#include "tests/scratch.h"

#define LATEST "latest_checkpointed_iteration.txt"
#define RUN_A "00000000000000aa"
#define RUN_B "00000000000000bb"

static char root[256];
static xr_run run;

/* A fresh folder, and a run that writes its checkpoints there. */
static int begin_root(void **state)
{
    (void)state;
    (void)snprintf(root, sizeof(root), "%s", scratch_path("root"));
    (void)xr_dir_remove(root, NULL);
    run = (xr_run){ .reward_count = 0 };
    run.ini.trainer.default_local_dir = root;
    run.ini.trainer.resume_mode = "auto";
    run.ini.trainer.resume_from_path = "";
    return xr_dir_make(root, NULL) == XRAY_OK ? 0 : -1;
}

static const char *in_root(const char *name)
{
    static char paths[4][600];
    static unsigned turn;
    char *path = paths[turn++ % 4];
    (void)snprintf(path, sizeof(paths[0]), "%s/%s", root, name);
    return path;
}

static void put_file(const char *name, const char *text)
{
    xr_err err = { "" };
    if (xr_file_write(in_root(name), text, strlen(text), &err) != XRAY_OK)
        fail_msg("%s", err.text);
}

/* Writes a complete checkpoint of a run; `mark` tells checkpoints apart. */
static void put_checkpoint(const char *name, const char *of, const char *mark)
{
    xr_err err = { "" };
    char file[300];
    xr_history history = { .has_lines = 0 };
    (void)snprintf(history.run, sizeof(history.run), "%s", of);
    assert_int_equal(xr_dir_make(in_root(name), &err), XRAY_OK);
    (void)snprintf(file, sizeof(file), "%s/mark", name);
    put_file(file, mark);
    assert_int_equal(xr_history_write(in_root(name), &history, &err), XRAY_OK);
    assert_int_equal(xr_inventory_write(in_root(name), &err), XRAY_OK);
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Expects these entries in the folder, sorted; the name of a checkpoint is
 * followed by its mark in brackets. */
static void expect_root(const char *want)
{
    char *names[64];
    size_t count = 0;
    xr_str all = { 0 };
    DIR *dir = opendir(root);
    assert_non_null(dir);
    for (struct dirent *e = readdir(dir); e; e = readdir(dir))
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
            names[count++] = xr_strdup(e->d_name);
    (void)closedir(dir);
    if (count)
        qsort(names, count, sizeof(names[0]), compare_names);
    for (size_t i = 0; i < count; i++) {
        char file[300];
        char *mark = NULL;
        size_t size = 0;
        xr_str_printf(&all, "%s%s", i ? " " : "", names[i]);
        (void)snprintf(file, sizeof(file), "%s/mark", names[i]);
        if (xr_path_exists(in_root(file)) &&
            xr_file_read(in_root(file), 64, NULL, &mark, &size) == XRAY_OK)
            xr_str_printf(&all, "(%s)", mark);
        free(mark);
        free(names[i]);
    }
    assert_string_equal(xr_str_text(&all), want);
    xr_str_free(&all);
}

static void expect_latest(const char *want)
{
    char *text = NULL;
    size_t size = 0;
    assert_int_equal(xr_file_read(in_root(LATEST), 64, NULL, &text, &size),
                     XRAY_OK);
    assert_string_equal(text, want);
    free(text);
}

static void install_step(uint64_t step, const char *of, const char *mark)
{
    xr_err err = { "" };
    put_checkpoint("new", of, mark);
    if (xr_step_install(root, in_root("new"), step, &err) != XRAY_OK)
        fail_msg("%s", err.text);
}

/* ---- installing a step -------------------------------------------------- */

/* A checkpoint of the same run is replaced; one of another run is kept under
 * the first free name. */
static void a_checkpoint_replaces_only_one_of_its_own_run(void **state)
{
    (void)state;
    install_step(3, RUN_A, "a");
    expect_latest("3\n");
    expect_root("global_step_3(a) " LATEST);
    install_step(3, RUN_A, "a2");
    expect_root("global_step_3(a2) " LATEST);
    install_step(3, RUN_B, "b");
    expect_root("global_step_3(b) global_step_3.1(a2) " LATEST);
    install_step(3, RUN_A, "a3");
    expect_root(
        "global_step_3(a3) global_step_3.1(a2) global_step_3.2(b) " LATEST);
    install_step(12, RUN_A, "a4");
    expect_latest("12\n");
}

/* Checkpoints that a kill left hidden are restored or removed before a new one
 * is installed. */
static void hidden_checkpoints_are_cleared_first(void **state)
{
    (void)state;
    put_checkpoint("global_step_3", RUN_A, "a");
    put_checkpoint(".replaced-global_step_3", RUN_A, "old");
    install_step(3, RUN_A, "a2");
    expect_root("global_step_3(a2) " LATEST);
    put_checkpoint(".replaced-global_step_3", RUN_B, "b");
    install_step(3, RUN_A, "a3");
    expect_root("global_step_3(a3) global_step_3.1(b) " LATEST);
}

/* If the finished folder cannot be renamed, no checkpoint is lost, and no other
 * one is named the newest. */
static void a_failed_install_restores_the_old_checkpoint(void **state)
{
    (void)state;
    xr_err err = { "" };
    put_checkpoint("global_step_3", RUN_A, "a");
    put_file(LATEST, "3\n");
    put_checkpoint("global_step_4", RUN_A, "later");
    assert_int_not_equal(xr_step_install(root, in_root("none"), 4, &err),
                         XRAY_OK);
    assert_non_null(strstr(err.text, "none"));
    expect_root("global_step_3(a) global_step_4(later) " LATEST);
    expect_latest("3\n");
}

/* ROOT/global_step_N and its NUL must fit XR_PATH_CAP. */
static void paths_that_are_too_long_are_refused(void **state)
{
    (void)state;
    static char wide[XR_PATH_CAP + 1];
    char out[XR_PATH_CAP];
    xr_err err = { "" };
    memset(wide, 'x', XR_PATH_CAP);
    size_t most = XR_PATH_CAP - 1 - strlen("/.old-global_step_17");
    wide[most] = '\0';
    assert_int_equal(xr_step_path(wide, ".old-", 17, out, &err), XRAY_OK);
    assert_int_equal(strlen(out), XR_PATH_CAP - 1);
    assert_string_equal(out + most, "/.old-global_step_17");
    wide[most] = 'x';
    wide[most + 1] = '\0';
    assert_int_equal(xr_step_path(wide, ".old-", 17, out, &err), XRAY_E_RANGE);
    assert_string_equal(err.text, "[trainer] default_local_dir is too long");
}

/* ---- removing old steps ------------------------------------------------- */

static void put_many(void)
{
    static const char *const own[] = { "global_step_0", "global_step_2",
                                       "global_step_9", "global_step_10",
                                       "global_step_11" };
    for (size_t i = 0; i < 5; i++)
        put_checkpoint(own[i], RUN_A, "a");
    put_checkpoint("global_step_1", RUN_B, "b");
    put_checkpoint("global_step_2.1", RUN_A, "aside");
}

/* The run's lowest steps are removed; later ones and those of another run do
 * not count. */
static void the_oldest_checkpoints_are_removed(void **state)
{
    (void)state;
    static const struct {
        int64_t keep;
        uint64_t newest;
        const char *left;
    } cases[] = {
        { 0, 11,
          "global_step_0(a) global_step_1(b) global_step_10(a) "
          "global_step_11(a) global_step_2(a) global_step_2.1(aside) "
          "global_step_9(a)" },
        { 5, 11,
          "global_step_0(a) global_step_1(b) global_step_10(a) "
          "global_step_11(a) global_step_2(a) global_step_2.1(aside) "
          "global_step_9(a)" },
        { 4, 11,
          "global_step_1(b) global_step_10(a) global_step_11(a) "
          "global_step_2(a) global_step_2.1(aside) global_step_9(a)" },
        { 1, 11, "global_step_1(b) global_step_11(a) global_step_2.1(aside)" },
        { 1, 10,
          "global_step_1(b) global_step_10(a) global_step_11(a) "
          "global_step_2.1(aside)" },
        { 2, 9,
          "global_step_1(b) global_step_10(a) global_step_11(a) "
          "global_step_2(a) global_step_2.1(aside) global_step_9(a)" },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        xr_err err = { "" };
        (void)begin_root(NULL);
        put_many();
        run.ini.trainer.max_actor_ckpt_to_keep = cases[i].keep;
        assert_int_equal(xr_steps_prune(&run, RUN_A, cases[i].newest, &err),
                         XRAY_OK);
        expect_root(cases[i].left);
    }
}

/* ---- after a kill ------------------------------------------------------- */

static void leftovers_of_a_kill_are_removed(void **state)
{
    (void)state;
    xr_err err = { "" };
    put_checkpoint("global_step_1", RUN_A, "a");
    put_checkpoint("global_step_4.tmp", RUN_A, "half");
    put_file("global_step_5.tmp", "a file");
    put_checkpoint(".removed-global_step_0", RUN_A, "going");
    put_file(LATEST, "1\n");
    put_file(LATEST ".tmp-1-2-0", "4");
    /* Names that only look like those of checkpoints. */
    put_file("metrics.jsonl", "{}");
    put_file("other.tmp", "mine");
    put_file("global_step_7.tmp.txt", "mine");
    put_file(LATEST ".old", "mine");
    put_file(".replaced-notes", "mine");
    put_checkpoint("global_step_1.1", RUN_B, "aside");
    /* Replaced checkpoints: with no successor, with one of the same run, and
     * with one of another run. */
    put_checkpoint(".replaced-global_step_2", RUN_A, "back");
    put_checkpoint(".replaced-global_step_1", RUN_A, "gone");
    put_checkpoint("global_step_3", RUN_A, "new");
    put_checkpoint(".replaced-global_step_3", RUN_B, "kept");
    assert_int_equal(xr_checkpoint_tidy(&run, &err), XRAY_OK);
    expect_root(".replaced-notes global_step_1(a) global_step_1.1(aside) "
                "global_step_2(back) global_step_3(new) global_step_3.1(kept) "
                "global_step_7.tmp.txt " LATEST " " LATEST
                ".old metrics.jsonl other.tmp");
    run.ini.trainer.default_local_dir = in_root("not there");
    assert_int_equal(xr_checkpoint_tidy(&run, &err), XRAY_OK);
    run.ini.trainer.default_local_dir = in_root("metrics.jsonl");
    assert_int_equal(xr_checkpoint_tidy(&run, &err), XRAY_E_IO);
    char want[600];
    (void)snprintf(want, sizeof(want),
                   "cannot list %s/metrics.jsonl: Not a directory", root);
    assert_string_equal(err.text, want);
}

/* A leftover that stays would be in the way later on. These folders are deeper
 * than any checkpoint, so that they cannot be removed as a whole. */
static void a_leftover_that_cannot_be_removed_is_an_error(void **state)
{
    (void)state;
    static const char *const names[] = { "global_step_5.tmp",
                                         ".removed-global_step_5" };
    for (int i = 0; i < 2; i++) {
        char path[600];
        char half[600];
        char want[700];
        xr_err err = { "" };
        (void)snprintf(path, sizeof(path), "%s", in_root(names[i]));
        for (int depth = 0; depth < 80; depth++) {
            assert_int_equal(xr_dir_make(path, NULL), XRAY_OK);
            if (depth == 40)
                (void)snprintf(half, sizeof(half), "%s", path);
            size_t size = strlen(path);
            (void)snprintf(path + size, sizeof(path) - size, "/d");
        }
        assert_int_equal(xr_checkpoint_tidy(&run, &err), XRAY_E_IO);
        (void)snprintf(want, sizeof(want), "%s: cannot remove the folder",
                       in_root(names[i]));
        assert_non_null(strstr(err.text, want));
        assert_int_equal(rename(half, in_root("half")), 0);
        assert_int_equal(xr_checkpoint_tidy(&run, &err), XRAY_OK);
        expect_root("half");
        assert_int_equal(xr_dir_remove(in_root("half"), NULL), XRAY_OK);
    }
}

/* ---- the checkpoint to resume from -------------------------------------- */

static void expect_found(const char *name)
{
    xr_err err = { "" };
    char path[XR_PATH_CAP];
    if (xr_checkpoint_find(&run, path, &err) != XRAY_OK)
        fail_msg("%s", err.text);
    assert_string_equal(path, *name ? in_root(name) : "");
}

static void expect_not_found(const char *sentence)
{
    xr_err err = { "" };
    char path[XR_PATH_CAP];
    char want[1600];
    assert_int_equal(xr_checkpoint_find(&run, path, &err), XRAY_E_IO);
    (void)snprintf(want, sizeof(want), "%s/%s", root, sentence);
    assert_string_equal(err.text, want);
}

static void the_newest_is_found_by_its_name(void **state)
{
    (void)state;
    xr_trainer_section *t = &run.ini.trainer;
    expect_found("");
    put_file(LATEST, "12\n");
    expect_found("global_step_12"); /* its existence is checked later */
    put_file(LATEST, "0");
    expect_found("global_step_0");
    put_file(LATEST, "-1\n");
    expect_not_found(LATEST ": \"-1\" is not a step number");
    put_file(LATEST, "7th\n");
    expect_not_found(LATEST ": \"7th\" is not a step number");
    put_file(LATEST, "");
    expect_not_found(LATEST ": \"\" is not a step number");
    t->resume_mode = "disable";
    expect_found("");
    t->resume_from_path = in_root("elsewhere");
    expect_found("elsewhere");
    t->resume_mode = "auto";
    expect_found("elsewhere");
}

static void the_newest_is_found_without_its_name(void **state)
{
    (void)state;
    char lost[XR_PATH_CAP] = "";
    xr_trainer_section *t = &run.ini.trainer;
    assert_false(xr_checkpoint_latest_is_lost(&run, lost));
    put_checkpoint("global_step_9", RUN_A, "a");
    put_checkpoint("global_step_10", RUN_A, "b");
    assert_true(xr_checkpoint_latest_is_lost(&run, lost));
    assert_string_equal(lost, in_root(LATEST));
    expect_found("global_step_10");
    put_file("global_step_10/mark", "damaged");
    expect_found("global_step_9");
    put_file("global_step_9/mark", "longer");
    char want[1200];
    (void)snprintf(want, sizeof(want),
                   LATEST
                   " is missing and no checkpoint there is complete "
                   "(%s/global_step_10/mark has 7 bytes, its manifest says 1); "
                   "start a new run in another [trainer] default_local_dir, or "
                   "here with --set trainer.resume_mode=disable",
                   root);
    expect_not_found(want);
    put_file(LATEST, "9\n");
    assert_false(xr_checkpoint_latest_is_lost(&run, lost));
    assert_int_equal(remove(in_root(LATEST)), 0);
    t->resume_mode = "disable";
    assert_false(xr_checkpoint_latest_is_lost(&run, lost));
    t->resume_mode = "auto";
    t->resume_from_path = in_root("global_step_9");
    assert_false(xr_checkpoint_latest_is_lost(&run, lost));
}

static void a_damaged_one_names_a_complete_one(void **state)
{
    (void)state;
    char want[1200];
    xr_err err = { "" };
    put_checkpoint("global_step_2", RUN_A, "a");
    put_checkpoint("global_step_8", RUN_A, "b");
    put_checkpoint("global_step_11", RUN_A, "c");
    assert_int_equal(xr_checkpoint_verify(&run, in_root("global_step_8"), &err),
                     XRAY_OK);
    put_file("global_step_8/other", "foreign");
    assert_int_equal(xr_checkpoint_verify(&run, in_root("global_step_8"), &err),
                     XRAY_E_IO);
    (void)snprintf(want, sizeof(want), "; %s/global_step_11 is complete, ",
                   root);
    assert_non_null(strstr(err.text, want));
    put_file("global_step_11/mark", "damaged");
    assert_int_equal(
        xr_checkpoint_verify(&run, in_root("global_step_11"), &err), XRAY_E_IO);
    (void)snprintf(want, sizeof(want),
                   "%s/global_step_11/mark has 7 bytes, its manifest says 1; "
                   "%s/global_step_2 is complete, resume from it with --set "
                   "trainer.resume_from_path=%s/global_step_2",
                   root, root, root);
    assert_string_equal(err.text, want);
    put_file("global_step_2/mark", "");
    assert_int_equal(xr_checkpoint_verify(&run, in_root("global_step_8"), &err),
                     XRAY_E_IO);
    (void)snprintf(
        want, sizeof(want),
        "%s/global_step_8/other does not belong to the checkpoint: its "
        "manifest does not list it; no other checkpoint in %s is complete",
        root, root);
    assert_string_equal(err.text, want);
}

#define CASE(name) cmocka_unit_test_setup(name, begin_root)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(a_checkpoint_replaces_only_one_of_its_own_run),
        CASE(hidden_checkpoints_are_cleared_first),
        CASE(a_failed_install_restores_the_old_checkpoint),
        CASE(paths_that_are_too_long_are_refused),
        CASE(the_oldest_checkpoints_are_removed),
        CASE(leftovers_of_a_kill_are_removed),
        CASE(a_leftover_that_cannot_be_removed_is_an_error),
        CASE(the_newest_is_found_by_its_name),
        CASE(the_newest_is_found_without_its_name),
        CASE(a_damaged_one_names_a_complete_one),
    };
    return cmocka_run_group_tests_name("rl.checkpoint_folder", tests,
                                       scratch_make, scratch_drop);
}
