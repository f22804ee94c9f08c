/* SPDX-License-Identifier: Apache-2.0
 *
 * Proves what a changed key means to a run that resumes from a checkpoint, key
 * by key, and how it is reported.
 */
#include "core/base/hash.h"
#include "core/base/str.h"
#include "core/rl/changes.h"
#include "tests/scratch.h"

static xr_run run;
static xr_changes changes;

/* Compares `now` with a checkpoint that was written with `then`. */
static void compare_inis(const char *now, const char *then,
                         const xr_history *inputs,
                         const xr_history *inputs_then)
{
    static const xr_history none;
    xr_errors errors = { 0 };
    xr_err err = { "" };
    char path[300];
    char folder[300];
    xr_changes_free(&changes);
    (void)snprintf(folder, sizeof(folder), "%s", scratch_path("c"));
    assert_int_equal(xr_dir_make(folder, &err), XRAY_OK);
    (void)snprintf(path, sizeof(path), "%s", scratch_write("now.ini", now));
    (void)scratch_write("c/run.ini", then);
    xr_config_free(run.config);
    run.config = xr_config_new();
    xr_config_read(run.config, path, &errors);
    assert_int_equal(errors.count, 0);
    if (inputs) {
        xr_run_decode(run.config, &run.ini, &errors);
        xr_errors_free(&errors);
    }
    if (xr_changes_find(&run, folder, inputs ? inputs : &none,
                        inputs_then ? inputs_then : &none, &err,
                        &changes) != XRAY_OK)
        fail_msg("%s", err.text);
}

/* Expects these lines, with "now.ini" and "c" without their folder. */
static void expect_lines(const xr_errors *lines, const char *want)
{
    xr_str all = { 0 };
    const char *dir = scratch_dir();
    for (size_t i = 0; i < lines->count; i++) {
        const char *at = lines->items[i];
        for (const char *next = NULL; (next = strstr(at, dir)); at = next) {
            xr_str_append(&all, at, (size_t)(next - at));
            next += strlen(dir) + 1;
        }
        xr_str_printf(&all, "%s\n", at);
    }
    assert_string_equal(xr_str_text(&all), want);
    xr_str_free(&all);
}

/* ---- keys --------------------------------------------------------------- */

/* q: quiet, t: told, m: changes the meaning of scores. */
static void a_change_of_every_key_has_its_kind(void **state)
{
    (void)state;
    static const struct {
        const char *section;
        const char *key;
        char kind;
    } keys[] = {
        { "run", "seed", 'q' },
        { "run", "threads", 'q' },
        { "run", "log", 'q' },
        { "run", "plugin_timeout", 'q' },
        { "run", "comm_timeout", 'q' },
        { "run", "max_restarts", 'q' },
        { "run", "ranks", 't' },
        { "run", "train", 't' },
        { "run", "infer", 't' },
        { "run", "device", 't' },
        { "run", "reward", 'm' },
        { "run", "algo", 'm' },
        { "algo.grpo", "preset", 'm' },
        { "algo.grpo", "clip_ratio", 't' },
        { "reward.x", "plugin", 'm' },
        { "reward.x", "weight", 'm' },
        { "model", "path", 'm' },
        { "model", "tokenizer_path", 'm' },
        { "model", "dtype", 't' },
        { "data", "train_batch_size", 't' },
        { "data", "val_batch_size", 'q' },
        { "data", "train_files", 'm' },
        { "data", "max_prompt_length", 'm' },
        { "data", "seed", 'm' },
        { "rollout.val", "temperature", 'm' },
        { "rollout", "n", 't' },
        { "rollout", "temperature", 't' },
        { "actor", "ppo_epochs", 't' },
        { "actor.optim", "lr", 't' },
        { "critic", "ppo_epochs", 't' },
        { "trainer", "total_epochs", 't' },
        { "trainer", "total_training_steps", 't' },
        { "trainer", "on_nonfinite", 't' },
        { "trainer", "critic_warmup", 't' },
        { "trainer", "save_freq", 'q' },
        { "trainer", "test_freq", 'q' },
        { "trainer", "default_local_dir", 'q' },
        { "trainer", "max_actor_ckpt_to_keep", 'q' },
        { "trainer", "logger", 'q' },
        { "tracker.tensorboard", "dir", 'q' },
        { "runtime", "hosts", 'q' },
        { "runtime.ray", "address", 'q' },
        { "reward.train.zero3", "stage", 't' }, /* of a reward model */
        { "trainers", "save_freq", 't' },       /* the complete name counts */
        { "datas", "path", 't' },
        { "rewards", "path", 't' },
    };
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
        char now[200];
        char then[200];
        char line[300];
        (void)snprintf(now, sizeof(now), "[%s]\n%s = 2\n", keys[i].section,
                       keys[i].key);
        (void)snprintf(then, sizeof(then), "[%s]\n%s = 1\n", keys[i].section,
                       keys[i].key);
        (void)snprintf(line, sizeof(line),
                       "now.ini:2: [%s] %s is 2, was 1 in c\n", keys[i].section,
                       keys[i].key);
        compare_inis(now, then, NULL, NULL);
        expect_lines(&changes.harmless, keys[i].kind == 't' ? line : "");
        expect_lines(&changes.meaning, keys[i].kind == 'm' ? line : "");
        assert_int_equal(changes.algorithm, strcmp(keys[i].key, "algo") == 0);
    }
}

/* Numbers are compared by value, texts by their characters. */
static void equal_values_are_no_change(void **state)
{
    (void)state;
    static const struct {
        const char *now;
        const char *then;
        int same;
    } cases[] = {
        { "1", "1.0", 1 },  { "1e-3", "0.001", 1 }, { "1", "1.5", 0 },
        { "1", "2", 0 },    { "2", "1", 0 },        { "a", "a", 1 },
        { "a", "b", 0 },    { "1", "one", 0 },      { "one", "1", 0 },
        { "0.0", "-0", 1 },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char now[64];
        char then[64];
        (void)snprintf(now, sizeof(now), "[a]\nb = %s\n", cases[i].now);
        (void)snprintf(then, sizeof(then), "[a]\nb = %s\n", cases[i].then);
        compare_inis(now, then, NULL, NULL);
        assert_int_equal(changes.harmless.count, !cases[i].same);
        assert_int_equal(changes.meaning.count, 0);
    }
}

/* Changed keys, new keys, removed keys, a removed section; values as an INI has
 * them. */
static void added_and_removed_keys_are_reported(void **state)
{
    (void)state;
    compare_inis("[a]\nb = \" 2\"\nnew = \" two\"\n[data]\nshuffle = true\n",
                 "[a]\nb = \"1 \"\nold = \" 3\"\n[gone]\nc = 1\nd = 2\n"
                 "[reward.x]\ne = 1\nf = 2\n[run]\nseed = 4\nlog = info\n",
                 NULL, NULL);
    expect_lines(&changes.harmless,
                 "now.ini:2: [a] b is \" 2\", was \"1 \" in c\n"
                 "now.ini:3: [a] new is \" two\", was not set in c\n"
                 "[a] old is not set, was \" 3\" in c\n"
                 "[gone] is not read, was in c\n");
    expect_lines(&changes.meaning,
                 "now.ini:5: [data] shuffle is true, was not set in c\n"
                 "[reward.x] is not read, was in c\n");
}

/* ---- files -------------------------------------------------------------- */

static void add_input(xr_history *h, const char *key, const char *path,
                      const char *text)
{
    xr_err err = { "" };
    char name[64];
    (void)snprintf(name, sizeof(name), "%s", path);
    assert_int_equal(xr_history_input(h, key, scratch_write(name, text), &err),
                     XRAY_OK);
}

/* A plugin with a file, which counts as one of a reward and not as one of an
 * algorithm. */
typedef struct with_path {
    const char *path;
} with_path;

static const xray_option options[] = {
    XRAY_PATH(with_path, path, "", 0u, "0.1", "A file."),
};

/* Which files that keys name are inputs, and in which order. */
static void inputs_are_the_files_that_count(void **state)
{
    (void)state;
    xr_errors errors = { 0 };
    xr_err err = { "" };
    xr_history h = { .has_lines = 0 };
    with_path of_reward;
    with_path of_algo;
    char text[3000];
    char dir[256];
    char path[300];
    (void)snprintf(dir, sizeof(dir), "%s", scratch_dir());
    (void)scratch_write("a.jsonl", "A");
    (void)scratch_write("b.jsonl", "B");
    (void)scratch_write("v.jsonl", "V");
    assert_int_equal(xr_dir_make(scratch_path("set"), &err), XRAY_OK);
    (void)scratch_write("set/d.jsonl", "D");
    (void)scratch_write("set/c.jsonl", "C");
    (void)scratch_write("set/e.txt", "E");
    (void)scratch_write("score.py", "P");
    (void)snprintf(text, sizeof(text),
                   "[data]\ntrain_files = %s/a.jsonl, %s/b.jsonl\n"
                   "val_files = %s/v.jsonl, %s/set/*.jsonl\n"
                   "chat_template = %s/missing\n"
                   "[trainer]\ndefault_local_dir = %s/a.jsonl\n"
                   "[model]\npath = %s\n"
                   "[reward.x]\npath = %s/score.py\n"
                   "[algo.y]\npath = %s/a.jsonl\n",
                   dir, dir, dir, dir, dir, dir, dir, dir, dir);
    (void)snprintf(path, sizeof(path), "%s", scratch_write("in.ini", text));
    xr_config_free(run.config);
    run.config = xr_config_new();
    xr_config_read(run.config, path, &errors);
    xr_run_decode(run.config, &run.ini, &errors);
    xr_errors_free(&errors);
    xr_config_decode(run.config, "reward.x", XR_TABLE(options), &of_reward,
                     &errors);
    xr_config_decode(run.config, "algo.y", XR_TABLE(options), &of_algo,
                     &errors);
    assert_int_equal(errors.count, 0);
    assert_int_equal(xr_changes_add_inputs(&run, &h, &err), XRAY_OK);
    static const char *const want[][3] = {
        { "data.train_files", "a.jsonl", "A" },
        { "data.train_files", "b.jsonl", "B" },
        { "data.val_files", "v.jsonl", "V" },
        { "data.val_files", "set/c.jsonl", "C" },
        { "data.val_files", "set/d.jsonl", "D" },
        { "reward.x.path", "score.py", "P" },
    };
    assert_int_equal(h.input_count, sizeof(want) / sizeof(want[0]));
    for (size_t i = 0; i < h.input_count; i++) {
        assert_string_equal(h.inputs[i].key, want[i][0]);
        assert_string_equal(h.inputs[i].path, scratch_path(want[i][1]));
        assert_true(h.inputs[i].hash == xr_hash64(want[i][2], 1, 0));
    }
    xr_history_free(&h);
}

static void content_counts_and_not_the_path(void **state)
{
    (void)state;
    xr_history now = { .has_lines = 0 };
    xr_history then = { .has_lines = 0 };
    xr_history less = { .has_lines = 0 };
    char ini[600];
    char other[600];
    char dir[256];
    char line[900];
    (void)snprintf(dir, sizeof(dir), "%s", scratch_dir());
    add_input(&then, "data.val_files", "v", "V");
    add_input(&then, "data.train_files", "a", "A");
    add_input(&then, "data.train_files", "b", "B");
    add_input(&now, "data.train_files", "a", "A");
    add_input(&now, "data.train_files", "b", "changed");
    add_input(&now, "data.val_files", "v", "V");
    add_input(&less, "data.train_files", "a", "A");
    (void)snprintf(ini, sizeof(ini), "[data]\ntrain_files = %s/a, %s/b\n", dir,
                   dir);
    (void)snprintf(other, sizeof(other), "[data]\ntrain_files = %s/x, %s/y\n",
                   dir, dir);
    (void)snprintf(line, sizeof(line),
                   "now.ini:2: [data] train_files: b has other content than it "
                   "had in c\n");
    compare_inis(ini, ini, &now, &then); /* the same names */
    expect_lines(&changes.meaning, line);
    compare_inis(ini, ini, &then, &then);
    expect_lines(&changes.meaning, "");
    compare_inis(ini, other, &then, &then); /* only moved */
    expect_lines(&changes.meaning, "");
    assert_int_equal(strncmp(changes.harmless.items[0], dir, strlen(dir)), 0);
    assert_non_null(strstr(changes.harmless.items[0], "[data] train_files is"));
    compare_inis(ini, other, &now, &then); /* moved and changed */
    assert_int_equal(changes.meaning.count, 1);
    compare_inis(ini, ini, &less, &then); /* fewer files, then more */
    assert_int_equal(changes.meaning.count, 1);
    assert_non_null(strstr(changes.meaning.items[0], "has other content"));
    compare_inis(ini, ini, &then, &less);
    expect_lines(&changes.meaning, line);
    compare_inis(ini, ini, &now,
                 NULL); /* the checkpoint of an older xray cannot be compared */
    expect_lines(&changes.meaning, "");
    xr_history_free(&now);
    xr_history_free(&then);
    xr_history_free(&less);
}

/* ---- refusing ----------------------------------------------------------- */

static void refusals_say_what_can_be_done(void **state)
{
    (void)state;
    xr_errors errors = { 0 };
    compare_inis("[run]\nreward = a\nalgo = ppo\n",
                 "[run]\nreward = b\nalgo = grpo\n", NULL, NULL);
    for (int ab = 0; ab < 2; ab++) {
        run.in_comparison = ab;
        xr_changes_refuse(&run, "c", &changes, &errors);
        assert_int_equal(errors.count, 3);
        assert_string_equal(
            errors.items[0],
            ab ? "resume from c: the meaning of scores has changed; give the "
                 "changed runs another --out:"
               : "resume from c: the meaning of scores has changed; resume "
                 "anyway "
                 "with --accept-changes, or start a new run in another "
                 "[trainer] default_local_dir:");
        assert_string_equal(errors.items[1], changes.meaning.items[0]);
        assert_string_equal(errors.items[2], changes.meaning.items[1]);
        xr_errors_free(&errors);
    }
    run.in_comparison = 0;
}

/* A checkpoint whose configuration cannot be read is no unchanged one. */
static void a_damaged_configuration_is_an_error(void **state)
{
    static const xr_history none;
    xr_changes found;
    xr_err err = { "" };
    char folder[300];
    (void)state;
    compare_inis("[run]\nseed = 1\n", "[run]\nseed = 1\n", NULL, NULL);
    (void)snprintf(folder, sizeof(folder), "%s", scratch_path("c"));
    (void)scratch_write("c/run.ini", "[run]\nseed\n");
    assert_int_equal(xr_changes_find(&run, folder, &none, &none, &err, &found),
                     XRAY_E_IO);
    assert_non_null(strstr(err.text, "c/run.ini"));
    xr_changes_free(&found);
    assert_int_equal(remove(scratch_path("c/run.ini")), 0);
    assert_int_equal(xr_changes_find(&run, folder, &none, &none, &err, &found),
                     XRAY_E_IO);
    assert_non_null(strstr(err.text, "c/run.ini"));
    xr_changes_free(&found);
}

static int free_all(void **state)
{
    xr_changes_free(&changes);
    xr_config_free(run.config);
    return scratch_drop(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_change_of_every_key_has_its_kind),
        cmocka_unit_test(equal_values_are_no_change),
        cmocka_unit_test(added_and_removed_keys_are_reported),
        cmocka_unit_test(inputs_are_the_files_that_count),
        cmocka_unit_test(content_counts_and_not_the_path),
        cmocka_unit_test(refusals_say_what_can_be_done),
        cmocka_unit_test(a_damaged_configuration_is_an_error),
    };
    return cmocka_run_group_tests_name("rl.changed_keys", tests, scratch_make,
                                       free_all);
}
