/* SPDX-License-Identifier: Apache-2.0
 *
 * Proves the lines that xray check prints on the arithmetic of a step, data,
 * disk space for the steps of the run, and a checkpoint that it cannot resume.
 * Lines on memory are left out, since they depend on the plugins.
 */
#include "core/base/str.h"
#include "core/rl/check.h"
#include "core/run/inventory.h"
#include "core/run/run.h"
#include "tests/scratch.h"

#define TRAIN                                                        \
    (XR_WITH_TRAIN | XR_WITH_INFER | XR_WITH_ALGO | XR_WITH_REWARD | \
     XR_TRAINABLE)
#define SFT (XR_WITH_TRAIN | XR_WITH_INFER | XR_WITH_REWARD | XR_TRAINABLE)
#define EVAL (XR_WITH_INFER | XR_WITH_REWARD)

#define ROW(text, level) \
    "{\"prompt\":\"" text "\",\"answer\":\"a\",\"level\":" #level "}\n"
#define LONG "Once upon a time there was a little girl who had a dog and a cat"

static const char run_ini[] =
    "[run]\nreward = r\n[model]\npath = m\ninit = random\n"
    "[data]\nmax_prompt_length = 10\n"
    "max_response_length = 6\ntrain_batch_size = 3\n"
    "train_files = rows.jsonl\nfilter_overlong_prompts = true\n"
    "[rollout]\nn = 4\n"
    "[actor]\nppo_max_token_len_per_gpu = 64\n"
    "[trainer]\ndefault_local_dir = out\n"
    "[sft]\ntrain_batch_size = 2\nmax_token_len = 48\n"
    "[reward.r]\ngrader = regex\npattern = x\nmatch_only = true\n";

static char out_text[4096];
static char
    said[4096]; /* errors, followed by warnings that begin with "warning: " */

static const char *find_plugins(void)
{
    static char path[600];
    const char *build = getenv("XRAY_BUILD");
    assert_non_null(build);
    (void)snprintf(path, sizeof(path), "%s/plugins", build);
    return path;
}

/* Keeps the printed lines except those on memory. */
static void keep_lines(const char *text)
{
    size_t used = 0;
    out_text[0] = '\0';
    while (*text) {
        size_t size = strcspn(text, "\n") + 1;
        if (strncmp(text, "memory ", 7) != 0 &&
            strncmp(text, "one checkpoint: ", 16) != 0) {
            assert_true(used + size < sizeof(out_text));
            memcpy(out_text + used, text, size);
            used += size;
            out_text[used] = '\0';
        }
        text += size;
    }
}

/* Removes the folders of this machine from a sentence. */
static void add_said(const char *kind, const xr_errors *list)
{
    const char *dir = scratch_dir();
    for (size_t i = 0; i < list->count; i++) {
        const char *at = list->items[i];
        size_t used = strlen(said);
        used += (size_t)snprintf(said + used, sizeof(said) - used, "%s", kind);
        for (const char *next = NULL; (next = strstr(at, dir));) {
            used += (size_t)snprintf(said + used, sizeof(said) - used, "%.*s",
                                     (int)(next - at), at);
            at = next + strlen(dir) + 1;
        }
        (void)snprintf(said + used, sizeof(said) - used, "%s\n", at);
    }
}

static void run_check(uint32_t with, const char *const *sets)
{
    xr_errors errors = { 0 };
    xr_errors warnings = { 0 };
    xr_str out = { 0 };
    char path[300];
    (void)snprintf(path, sizeof(path), "%s", scratch_path("run.ini"));
    xr_config *config = xr_config_new();
    xr_config_read(config, path, &errors);
    for (; *sets; sets++)
        xr_config_set(config, *sets, &errors);
    xr_run *run = xr_run_draft(config, find_plugins(), with, &errors);
    assert_non_null(run);
    xr_check_run(run, &out, &errors, &warnings);
    said[0] = '\0';
    add_said("", &errors);
    add_said("warning: ", &warnings);
    keep_lines(xr_str_text(&out));
    xr_run_free(run);
    xr_config_free(config);
    xr_str_free(&out);
    xr_errors_free(&errors);
    xr_errors_free(&warnings);
}

#define CHECK(with, ...) \
    run_check(with, (const char *const[]){ __VA_ARGS__, NULL })

static void expect_output(const char *out, const char *errors)
{
    assert_string_equal(said, errors);
    assert_string_equal(out_text, out);
}

#define ROWS_3 "train_files: 3 rows, 1 left out and 0 cut for their length\n"

/* ---- a step ------------------------------------------------------------- */

static void the_arithmetic_of_a_step_is_printed(void **state)
{
    (void)state;
#define STEP \
    "one step: 3 prompts x 4 samples = 12 rows of at most 10 + 6 tokens\n"
    CHECK(TRAIN, "actor.ppo_epochs=2");
    expect_output(STEP
                  "updates per step: 2 epochs x 1 mini-batches of 12 rows, cut "
                  "into micro-batches of at most 64 tokens\n" ROWS_3,
                  "");
    CHECK(TRAIN, "actor.ppo_mini_batch_size=1",
          "actor.ppo_max_token_len_per_gpu=16");
    expect_output(STEP
                  "updates per step: 1 epochs x 3 mini-batches of 4 rows, cut "
                  "into micro-batches of at most 16 tokens\n" ROWS_3,
                  "");
    CHECK(TRAIN, "run.seed=1"); /* the INI as it is */
    expect_output(
        STEP "updates per step: 1 epochs x 1 mini-batches of 12 rows, cut "
             "into micro-batches of at most 64 tokens\none update per step: "
             "the ratio is 1 and clipping never takes effect\n" ROWS_3,
        "");
    CHECK(TRAIN, "run.algo=ppo", "actor.ppo_epochs=2", "critic.ppo_epochs=5",
          "critic.ppo_mini_batch_size=1");
    expect_output(
        STEP "updates per step: 2 epochs x 1 mini-batches of 12 rows, cut "
             "into micro-batches of at most 64 tokens\nupdates of the "
             "critic per step: 5 epochs x 3 mini-batches of 4 rows\n" ROWS_3,
        "");
    CHECK(TRAIN, "run.algo=ppo", "actor.ppo_mini_batch_size=1",
          "critic.ppo_epochs=5", "critic.ppo_mini_batch_size=0");
    expect_output(
        STEP "updates per step: 1 epochs x 3 mini-batches of 4 rows, cut "
             "into micro-batches of at most 64 tokens\nupdates of the "
             "critic per step: 5 epochs x 1 mini-batches of 12 rows\n" ROWS_3,
        "");
    CHECK(SFT, "run.seed=1");
    expect_output(
        "one step: 2 rows of at most 10 + 6 tokens\nupdates per step: 1 "
        "epochs x 1 mini-batches of 2 rows, cut into micro-batches of at "
        "most 48 tokens\n" ROWS_3,
        "");
    CHECK(EVAL, "run.seed=1");
    expect_output("", "run.ini: [data] val_files is not set\n");
}

/* ---- data --------------------------------------------------------------- */

static void rows_of_the_files_are_counted(void **state)
{
    (void)state;
    char val[400];
    char both[900];
    CHECK(TRAIN, "actor.ppo_epochs=2", "data.filters=level >= 2",
          "data.train_batch_size=2");
    assert_string_equal(said, "");
    assert_non_null(strstr(
        out_text, "train_files: 2 rows, 1 left out and 0 cut for their length\n"
                  "train_files: 1 rows left out by [data] filters\n"));
    CHECK(TRAIN, "actor.ppo_epochs=2", "data.filters=level >= 2");
    assert_string_equal(said,
                        "run.ini:9: [data] train_batch_size: a step takes 3 "
                        "rows, train_files hold 2 usable ones (1 left out for "
                        "their length, 1 by filters)\n");
    CHECK(SFT, "sft.train_batch_size=4");
    assert_string_equal(said,
                        "--set: [sft] train_batch_size: a step takes 4 rows, "
                        "train_files hold 3 usable ones (1 left out for their "
                        "length, 0 by filters)\n");
    CHECK(SFT, "sft.train_batch_size=3");
    assert_string_equal(said, "");
    CHECK(TRAIN, "data.filter_overlong_prompts=false", "data.truncation=left");
    assert_non_null(
        strstr(out_text,
               "train_files: 4 rows, 0 left out and 1 cut for their length\n"));
    (void)snprintf(val, sizeof(val), "data.val_files=%s",
                   scratch_write("val.jsonl", ROW("a", 1) ROW("b", 1)));
    CHECK(EVAL, val);
    expect_output("val_files: 2 rows, 0 left out and 0 cut for their length\n",
                  "");
    CHECK(TRAIN, val);
    assert_non_null(
        strstr(out_text, ROWS_3
               "val_files: 2 rows, 0 left out and 0 cut for their length\n"));
    CHECK(EVAL, "data.val_split=0.5");
    assert_string_equal(said, "");
    assert_int_equal(strncmp(out_text, "val_split: ", 11), 0);
    /* A fault of both files is reported once. */
    (void)snprintf(val, sizeof(val), "%s", scratch_write("bad.jsonl", "{\n"));
    (void)snprintf(both, sizeof(both), "data.train_files=%s", val);
    char also[900];
    (void)snprintf(also, sizeof(also), "data.val_files=%s", val);
    CHECK(TRAIN, both, also);
    assert_int_equal(strncmp(said, "bad.jsonl:1: ", 13), 0);
    assert_ptr_equal(strchr(said, '\n'), said + strlen(said) - 1);
}

/* The tokenizer's ids must be in the model's vocabulary; its end id ends a
 * response if the model names none. */
static void the_tokenizer_must_fit_the_model(void **state)
{
    (void)state;
    static const struct {
        const char *json;
        const char *says;
        int end;
    } cases[] = {
        { "{\"vocab_size\":512}", "", 2 },
        { "{\"vocab_size\":512,\"eos_token_id\":7}", "", 7 },
        { "{\"vocab_size\":511}",
          "m: the tokenizer has ids up to 511, the model's vocab_size is 511",
          2 },
    };
    assert_int_equal(xr_dir_make(scratch_path("n"), NULL), XRAY_OK);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        xr_errors errors = { 0 };
        xr_config *config = xr_config_new();
        char set[400];
        (void)scratch_write("n/config.json", cases[i].json);
        (void)snprintf(set, sizeof(set), "model.path=%s", scratch_path("n"));
        xr_config_read(config, scratch_path("run.ini"), &errors);
        xr_config_set(config, set, &errors);
        (void)snprintf(set, sizeof(set), "model.tokenizer_path=%s",
                       scratch_path("m"));
        xr_config_set(config, set, &errors);
        xr_run *run = xr_run_draft(config, find_plugins(),
                                   XR_WITH_INFER | XR_WITH_TOKENIZER, &errors);
        assert_non_null(run);
        said[0] = '\0';
        add_said("", &errors);
        if (*cases[i].says)
            said[strlen(said) - 1] = '\0';
        assert_string_equal(said, cases[i].says);
        assert_int_equal(run->end_count, 1);
        assert_int_equal(run->end_ids[0], cases[i].end);
        xr_run_free(run);
        xr_config_free(config);
        xr_errors_free(&errors);
    }
}

/* ---- disk space --------------------------------------------------------- */

static void expect_checkpoints(const char *count)
{
    char want[200];
    (void)snprintf(want, sizeof(want),
                   "[trainer] default_local_dir: %s checkpoints of ", count);
    if (!strstr(said, want))
        fail_msg("%s: %s", count, said);
}

/* The steps of the run: as configured, or from epochs and rows. */
static void space_is_checked_for_all_steps(void **state)
{
    (void)state;
    CHECK(TRAIN, "trainer.save_freq=1",
          "trainer.total_training_steps=1000000007");
    expect_checkpoints("1000000007");
    CHECK(TRAIN, "trainer.save_freq=1", "trainer.total_epochs=1000000008",
          "data.train_batch_size=1");
    expect_checkpoints("3000000024"); /* 3 rows, one per step */
    CHECK(SFT, "trainer.save_freq=1", "sft.total_steps=1000000009",
          "trainer.total_training_steps=5");
    expect_checkpoints("1000000009");
    CHECK(TRAIN, "trainer.total_training_steps=1000000007");
    assert_string_equal(said, ""); /* one checkpoint, at the end */
}

static void devices_and_memory_are_checked(void **state)
{
    (void)state;
    CHECK(TRAIN, "device.cpu.memory=1M");
    assert_non_null(strstr(said, "the run needs "));
    assert_int_not_equal(strncmp(said, "warning: ", 9), 0);
}

#define SAVED "out/global_step_2"
#define STATE(version, kind)                                                \
    "{\"version\": " #version ", \"kind\": \"" kind "\", \"step\": \"2\", " \
    "\"seed\": \"42\", \"rows\": \"3\", \"epoch\": \"0\", \"position\": "   \
    "\"0\"}\n"
#define HISTORY(version)                                          \
    "{\"version\": " #version ", \"run\": \"00112233445566ff\", " \
    "\"inputs\": []}\n"

/* A checkpoint that is intact is refused for what its files say, before the run
 * refuses it. */
static void checkpoints_that_cannot_be_resumed_are_named(void **state)
{
    static const struct {
        const char *state;
        const char *history;
        const char *ini;
        const char *says;
    } cases[] = {
        { STATE(2, "train"), HISTORY(1), run_ini,
          "state.json: version is 2, this xray reads 1" },
        { STATE(1, "sft"), HISTORY(1), run_ini,
          "state.json: a checkpoint of xray sft, this run is xray train" },
        { STATE(1, "train"), HISTORY(2), run_ini,
          "history.json: version is 2, this xray reads 1" },
        { STATE(1, "train"), HISTORY(1), "[run",
          "run.ini:1: the section's name is not followed by ']'" },
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        xr_err err = { "" };
        char want[400];
        assert_int_equal(xr_dir_make(scratch_path(SAVED), &err), XRAY_OK);
        (void)scratch_write("out/latest_checkpointed_iteration.txt", "2\n");
        (void)scratch_write(SAVED "/state.json", cases[i].state);
        (void)scratch_write(SAVED "/history.json", cases[i].history);
        (void)scratch_write(SAVED "/run.ini", cases[i].ini);
        assert_int_equal(xr_inventory_write(scratch_path(SAVED), &err),
                         XRAY_OK);
        CHECK(TRAIN, "trainer.total_training_steps=3");
        (void)snprintf(want, sizeof(want),
                       "run.ini: [trainer] resume_mode: the run cannot resume "
                       "from its checkpoint: " SAVED "/%s\n",
                       cases[i].says);
        assert_string_equal(said, want);
        assert_int_equal(xr_dir_remove(scratch_path("out"), &err), XRAY_OK);
    }
}

static int begin_test(void **state)
{
    static const char *const files[] = { "config.json", "tokenizer.json",
                                         "tokenizer_config.json" };
    if (scratch_make(state) != 0 ||
        xr_dir_make(scratch_path("m"), NULL) != XRAY_OK)
        return -1;
    for (size_t i = 0; i < 3; i++) {
        char from[600];
        char name[64];
        char to[300];
        (void)snprintf(name, sizeof(name), "models/stories260K/hf/%s",
                       files[i]);
        (void)test_data(name, from, sizeof(from));
        (void)snprintf(name, sizeof(name), "m/%s", files[i]);
        (void)snprintf(to, sizeof(to), "%s", scratch_path(name));
        if (xr_file_copy(from, to, NULL) != XRAY_OK)
            return -1;
    }
    (void)scratch_write("rows.jsonl",
                        ROW("a", 1) ROW("b", 2) ROW("c", 2) ROW(LONG, 2));
    (void)scratch_write("run.ini", run_ini);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_arithmetic_of_a_step_is_printed),
        cmocka_unit_test(rows_of_the_files_are_counted),
        cmocka_unit_test(the_tokenizer_must_fit_the_model),
        cmocka_unit_test(space_is_checked_for_all_steps),
        cmocka_unit_test(devices_and_memory_are_checked),
        cmocka_unit_test(checkpoints_that_cannot_be_resumed_are_named),
    };
    return cmocka_run_group_tests_name("rl.check", tests, begin_test,
                                       scratch_drop);
}
