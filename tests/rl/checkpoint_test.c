/* SPDX-License-Identifier: Apache-2.0
 *
 * Proves what is written to a checkpoint and read from it again, with a trainer
 * and an algorithm made for the test.
 */
#include <math.h>

#include "core/base/str.h"
#include "core/rl/checkpoint.h"
#include "core/run/inventory.h"
#include "tests/growth.h"
#include "tests/rl/fake_roles.h"
#include "tests/scratch.h"

/* ---- plugins ------------------------------------------------------------ */

static struct {
    unsigned char state[4]; /* state of the algorithm */
    uint64_t size;
    uint64_t claimed;        /* bytes that it claims to have written; 0: size */
    xray_status first;       /* status of the call that asks for the size */
    xray_status second;      /* status of the call that writes */
    xray_status train;       /* status of the trainer's save */
    xray_status loads;       /* status of load, of algorithm and policy */
    unsigned char loaded[8]; /* the state that the algorithm was given */
    uint64_t loaded_size;
    int loads_of_algo;
    char from[2][300]; /* folders that actor and critic were loaded from */
} fake;

static char actor_self;
static char critic_self;
static char algo_self;

static xray_status save_model(void *self, const char *dir)
{
    char path[XR_PATH_CAP];
    const char *text = self == &actor_self ? "policy" : "critic";
    if (fake.train != XRAY_OK)
        return fake.train;
    assert_int_equal(xr_path_join(dir, "weights", path, sizeof(path), NULL),
                     XRAY_OK);
    return xr_file_write(path, text, strlen(text), NULL);
}

static xray_status load_model(void *self, const char *dir)
{
    (void)snprintf(fake.from[self == &critic_self], sizeof(fake.from[0]), "%s",
                   dir);
    return self == &critic_self ? XRAY_OK : fake.loads;
}

static xray_status save_algo(void *self, void *out, uint64_t cap,
                             uint64_t *out_size)
{
    assert_ptr_equal(self, &algo_self);
    *out_size = fake.size;
    if (!out)
        return fake.first;
    assert_int_equal(cap, fake.size);
    memcpy(out, fake.state, cap);
    *out_size = fake.claimed ? fake.claimed : fake.size;
    return fake.second;
}

static xray_status load_algo(void *self, const void *data, uint64_t size)
{
    assert_ptr_equal(self, &algo_self);
    assert_true(size <= sizeof(fake.loaded));
    memcpy(fake.loaded, data, size);
    fake.loaded_size = size;
    fake.loads_of_algo++;
    return fake.loads;
}

static const xray_train_ops train_ops = { .header = XRAY_HEADER(xray_train_ops),
                                          .save = save_model,
                                          .load = load_model };
static xray_algo_ops algo_ops;

/* ---- a run -------------------------------------------------------------- */

static xr_run run;
static xr_roles roles;
static char root[256];
static char model[256];
static char run_path[256];
static xr_config *config;
static const xr_history history = { .run = "00000000000000aa" };

static void put_text(const char *name, const char *text)
{
    char path[512];
    xr_err err = { "" };
    (void)snprintf(path, sizeof(path), "%s/%s", scratch_dir(), name);
    if (xr_file_write(path, text, strlen(text), &err) != XRAY_OK)
        fail_msg("%s", err.text);
}

/* Returns 1 and the text if the file exists. */
static int read_text(const char *name, char *out, size_t cap)
{
    char path[512];
    char *text = NULL;
    size_t size = 0;
    (void)snprintf(path, sizeof(path), "%s/%s", scratch_dir(), name);
    out[0] = '\0';
    if (!xr_path_exists(path))
        return 0;
    assert_int_equal(xr_file_read(path, cap - 1, NULL, &text, &size), XRAY_OK);
    memcpy(out, text, size + 1);
    free(text);
    return 1;
}

static void expect_file(const char *name, const char *want)
{
    char text[4096];
    if (!read_text(name, text, sizeof(text)) && want)
        fail_msg("%s is missing", name);
    if (want)
        assert_string_equal(text, want);
    else
        assert_string_equal(text, "");
}

static xr_part make_part(const void *ops, const char *instance)
{
    return (xr_part){ .ops = ops,
                      .instance = instance,
                      .host = xr_host_new(instance, NULL) };
}

static int begin_run(void **state)
{
    (void)state;
    xr_errors errors = { 0 };
    (void)snprintf(root, sizeof(root), "%s", scratch_path("root"));
    (void)snprintf(model, sizeof(model), "%s", scratch_path("model"));
    (void)xr_dir_remove(root, NULL);
    (void)xr_dir_remove(model, NULL);
    (void)xr_dir_remove(scratch_path("text"), NULL);
    if (xr_dir_make(model, NULL) != XRAY_OK)
        return -1;
    (void)snprintf(run_path, sizeof(run_path), "%s", scratch_path("run.ini"));
    put_text("run.ini", "[run]\nseed = 3\n");
    config = xr_config_new();
    xr_config_read(config, run_path, &errors);
    xr_run_decode(config, &run.ini, &errors);
    xr_errors_free(&errors);
    memset(&fake, 0, sizeof(fake));
    fake.size = 3;
    memcpy(fake.state, "\x00\xa9\xff", 3);
    fake.first = XRAY_E_RANGE;
    algo_ops = (xray_algo_ops){ .header = XRAY_HEADER(xray_algo_ops),
                                .save = save_algo,
                                .load = load_algo };
    run = (xr_run){ .config = config,
                    .actor = { .path = model, .model.path = model } };
    run.ini.trainer.default_local_dir = root;
    run.train = make_part(&train_ops, "train.fake");
    run.algo = make_part(&algo_ops, "algo.fake");
    make_fake_roles(&run, &roles);
    roles.actor.self = &actor_self;
    roles.algo.self = &algo_self;
    return 0;
}

static int end_run(void **state)
{
    (void)state;
    xr_host_free(run.train.host);
    xr_host_free(run.algo.host);
    xr_host_free(roles.named[XRAY_ROLE_CRITIC].host);
    xr_config_free(config);
    return 0;
}

/* Adds a critic that started from a model of its own. */
static void use_critic(void)
{
    static char path[256];
    (void)snprintf(path, sizeof(path), "%s", scratch_path("begun"));
    roles.named[XRAY_ROLE_CRITIC] = make_part(&train_ops, "critic");
    roles.critic.self = &critic_self;
    run.critic.path = path;
    run.critic.model.path = path;
}

static xr_progress make_progress(void)
{
    return (xr_progress){ .kind = "train",
                          .step = 7,
                          .seed = 11,
                          .rows = 400,
                          .sampler_epoch = 2,
                          .sampler_position = 33,
                          .score_before = NAN,
                          .score_now = 0.25 };
}

static void save_checkpoint(void)
{
    char path[XR_PATH_CAP];
    char want[300];
    xr_err err = { "" };
    const xr_progress p = make_progress();
    if (xr_checkpoint_save(&roles, &p, &history, path, &err) != XRAY_OK)
        fail_msg("%s", err.text);
    (void)snprintf(want, sizeof(want), "%s/global_step_7", root);
    assert_string_equal(path, want);
}

static void expect_unsaved(xray_status status, const char *sentence)
{
    char path[XR_PATH_CAP] = "as it was";
    char want[400];
    xr_err err = { "" };
    const xr_progress p = make_progress();
    assert_int_equal(xr_checkpoint_save(&roles, &p, &history, path, &err),
                     status);
    (void)snprintf(want, sizeof(want), "checkpoint of step 7: %s", sentence);
    assert_string_equal(err.text, want);
    assert_string_equal(path, "as it was");
    assert_false(xr_path_exists(scratch_path("root/global_step_7.tmp")));
    assert_false(xr_path_exists(scratch_path("root/global_step_7")));
    assert_false(
        xr_path_exists(scratch_path("root/latest_checkpointed_iteration.txt")));
}

static int with_algo = 1;

static xray_status restore_all(xr_err *err)
{
    char where[300];
    (void)snprintf(where, sizeof(where), "%s",
                   scratch_path("root/global_step_7"));
    fake.loads_of_algo = 0;
    fake.from[0][0] = fake.from[1][0] = '\0';
    return xr_checkpoint_restore(&roles, where, with_algo, err);
}

/* ---- writing ------------------------------------------------------------ */

static void every_file_is_written(void **state)
{
    (void)state;
    xr_err err = { "" };
    use_critic();
    put_text("model/config.json", "A");
    assert_int_equal(xr_dir_make(scratch_path("begun"), &err), XRAY_OK);
    put_text("begun/config.json", "C");
    save_checkpoint();
    expect_file("root/global_step_7/state.json",
                "{\"version\": 1, \"kind\": \"train\", \"step\": \"7\", "
                "\"seed\": \"11\", \"rows\": \"400\", \"epoch\": \"2\", "
                "\"position\": \"33\", \"score_before\": null, "
                "\"score_now\": 0.25, \"algo\": \"00a9ff\"}\n");
    xr_str ini = { 0 };
    xr_config_print(config, 0, &ini);
    assert_non_null(strstr(xr_str_text(&ini), "\nseed = 3\n"));
    char read[8192];
    assert_true(read_text("root/global_step_7/run.ini", read, sizeof(read)));
    assert_string_equal(read, xr_str_text(&ini));
    xr_str_free(&ini);
    expect_file("root/global_step_7/history.json",
                "{\"version\": 1, \"run\": \"00000000000000aa\",\n"
                " \"inputs\": []}\n");
    expect_file("root/global_step_7/actor/weights", "policy");
    expect_file("root/global_step_7/critic/weights", "critic");
    expect_file("root/global_step_7/actor/config.json", "A");
    expect_file("root/global_step_7/critic/config.json", "C");
    expect_file("root/latest_checkpointed_iteration.txt", "7\n");
    assert_int_equal(
        xr_inventory_verify(scratch_path("root/global_step_7"), &err), XRAY_OK);
    assert_false(xr_path_exists(scratch_path("root/global_step_7.tmp")));
}

/* The next save does not include files that a killed save left. */
static void an_unfinished_save_is_started_over(void **state)
{
    (void)state;
    assert_int_equal(xr_dir_make(scratch_path("root/global_step_7.tmp"), NULL),
                     XRAY_OK);
    put_text("root/global_step_7.tmp/old", "half");
    save_checkpoint();
    expect_file("root/global_step_7/old", NULL);
    assert_false(xr_path_exists(scratch_path("root/global_step_7/critic")));
}

static void the_oldest_checkpoint_is_removed(void **state)
{
    (void)state;
    char path[XR_PATH_CAP];
    xr_err err = { "" };
    run.ini.trainer.max_actor_ckpt_to_keep = 2;
    for (uint64_t step = 1; step <= 4; step++) {
        xr_progress p = make_progress();
        p.step = step;
        assert_int_equal(xr_checkpoint_save(&roles, &p, &history, path, &err),
                         XRAY_OK);
    }
    assert_false(xr_path_exists(scratch_path("root/global_step_2")));
    assert_true(xr_path_exists(scratch_path("root/global_step_3")));
    assert_true(xr_path_exists(scratch_path("root/global_step_4")));
}

/* Copies every file that a Hugging Face folder has besides its weights; if the
 * tokenizer has a folder of its own, its files come from there. */
static void model_files_are_copied(void **state)
{
    (void)state;
    static const char *const names[] = {
        "config.json",        "generation_config.json",
        "tokenizer.json",     "tokenizer_config.json",
        "vocab.json",         "merges.txt",
        "tokenizer.model",    "special_tokens_map.json",
        "added_tokens.json",  "chat_template.json",
        "chat_template.jinja"
    };
    char text[300];
    char file[300];
    assert_int_equal(xr_dir_make(scratch_path("text"), NULL), XRAY_OK);
    for (size_t i = 0; i < 11; i++) {
        (void)snprintf(file, sizeof(file), "model/%s", names[i]);
        (void)snprintf(text, sizeof(text), "model's %s", names[i]);
        put_text(file, text);
        (void)snprintf(file, sizeof(file), "text/%s", names[i]);
        (void)snprintf(text, sizeof(text), "tokenizer's %s", names[i]);
        put_text(file, text);
    }
    put_text("model/model.safetensors", "weights");
    for (int own = 0; own < 3; own++) {
        char path[300];
        char chat[300];
        (void)snprintf(path, sizeof(path), "%s", scratch_path("text"));
        (void)snprintf(chat, sizeof(chat), "%s", scratch_path("chat.txt"));
        put_text("chat.txt", "mine");
        run.ini.model.tokenizer_path = own ? path : "";
        run.ini.data.chat_template = own == 2 ? chat : "";
        save_checkpoint();
        for (size_t i = 0; i < 11; i++) {
            (void)snprintf(file, sizeof(file), "root/global_step_7/actor/%s",
                           names[i]);
            (void)snprintf(text, sizeof(text), "%s %s",
                           own && i >= 2 ? "tokenizer's" : "model's", names[i]);
            expect_file(file, own == 2 && i == 10 ? "mine" : text);
        }
        expect_file("root/global_step_7/actor/model.safetensors", NULL);
    }
}

static void a_failed_save_leaves_nothing(void **state)
{
    (void)state;
    fake.second = XRAY_E_STATE;
    expect_unsaved(
        XRAY_E_STATE,
        "algo.fake: save failed with status -200 (used out of order)");
    fake.second = XRAY_OK;
    fake.claimed = 4;
    expect_unsaved(XRAY_E_BUG, "algo.fake: save says that it wrote 4 bytes "
                               "where 3 fit");
    fake.claimed = 0;
    fake.size = (UINT64_C(1) << 30) + 1;
    expect_unsaved(XRAY_E_BUG, "algo.fake: save asks for 1073741825 bytes, at "
                               "most 1073741824 are allowed");
    fake.size = 3;
    fake.first = XRAY_E_IO;
    expect_unsaved(
        XRAY_E_IO,
        "algo.fake: save failed with status -301 (file or network error)");
    fake.first = XRAY_E_RANGE;
    fake.train = XRAY_E_IO;
    expect_unsaved(
        XRAY_E_IO,
        "train.fake: save failed with status -301 (file or network error)");
    fake.train = XRAY_OK;
    run.ini.data.chat_template = scratch_path("none");
    char path[XR_PATH_CAP];
    xr_err err = { "" };
    const xr_progress p = make_progress();
    assert_int_not_equal(xr_checkpoint_save(&roles, &p, &history, path, &err),
                         XRAY_OK);
    assert_non_null(strstr(err.text, "/none"));
}

/* An algorithm whose size is known at once, one that writes fewer bytes than it
 * asked for, and one without state. */
static void states_of_algorithms_are_saved(void **state)
{
    (void)state;
    char text[1000];
    xr_err err = { "" };
    fake.first = XRAY_OK;
    save_checkpoint();
    assert_true(read_text("root/global_step_7/state.json", text, sizeof(text)));
    assert_non_null(strstr(text, ", \"algo\": \"00a9ff\"}\n"));
    fake.size = 4; /* asked for, of which two are written */
    fake.claimed = 2;
    save_checkpoint();
    assert_true(read_text("root/global_step_7/state.json", text, sizeof(text)));
    assert_non_null(strstr(text, ", \"algo\": \"00a9\"}\n"));
    assert_int_equal(restore_all(&err), XRAY_OK);
    assert_int_equal(fake.loaded_size, 2);
    fake.size = 0;
    fake.claimed = 0;
    save_checkpoint();
    assert_true(read_text("root/global_step_7/state.json", text, sizeof(text)));
    assert_non_null(strstr(text, ", \"algo\": \"\"}\n"));
    for (int way = 0; way < LACK_WAYS; way++) {
        algo_ops.header.size = sizeof(algo_ops);
        LACK_MEMBER(xray_algo_ops, algo_ops, save, way);
        save_checkpoint();
        assert_true(
            read_text("root/global_step_7/state.json", text, sizeof(text)));
        assert_null(strstr(text, "algo"));
    }
}

/* ---- reading ------------------------------------------------------------ */

#define GOOD                                                            \
    "\"step\": \"7\", \"seed\": \"11\", \"rows\": \"400\", \"epoch\": " \
    "\"2\", \"position\": \"33\""

static void state_is_read_or_refused(void **state)
{
    (void)state;
    static const char *const bad[][2] = {
        { "{\"version\": 2, \"kind\": \"train\", " GOOD "}",
          ": version is 2, this xray reads 1" },
        { "{\"version\": 0, \"kind\": \"train\", " GOOD "}",
          ": version is 0, this xray reads 1" },
        { "{\"version\": 1, \"kind\": \"sft\", " GOOD "}",
          ": a checkpoint of xray sft, this run is xray train" },
        { "{\"version\": 1, \"kind\": \"train\", \"step\": \"-1\"}",
          ": step is \"-1\", expected a count" },
        { "{\"version\": 1, \"kind\": \"train\", \"step\": \"7\", \"seed\": "
          "\"x\"}",
          ": seed is \"x\", expected a count" },
        { "{\"version\": 1, \"kind\": \"train\", \"step\": \"7\", \"seed\": "
          "\"12\", \"rows\": \"400\", \"epoch\": \"2\", \"position\": \"3\"}",
          ": the checkpoint's seed is 12, this run's is 11; resume needs the "
          "same" },
        { "{\"version\": 1, \"kind\": \"train\", \"step\": \"7\", \"seed\": "
          "\"11\", \"rows\": \"401\", \"epoch\": \"2\", \"position\": \"3\"}",
          ": the checkpoint was made with 401 data rows, this run has 400; "
          "resume needs the same" },
    };
    static const char *const keys[] = { "version", "kind",  "step",    "seed",
                                        "rows",    "epoch", "position" };
    char where[300];
    char want[600];
    const xr_progress expect = { .kind = "train", .seed = 11, .rows = 400 };
    (void)snprintf(where, sizeof(where), "%s", scratch_path("model"));
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        xr_err err = { "" };
        xr_progress got = { .step = 99 };
        put_text("model/state.json", bad[i][0]);
        assert_int_not_equal(xr_checkpoint_read(where, &expect, &got, &err),
                             XRAY_OK);
        (void)snprintf(want, sizeof(want), "%s/state.json%s", where, bad[i][1]);
        assert_string_equal(err.text, want);
        assert_int_equal(got.step, 99);
    }
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
        xr_err err = { "" };
        xr_progress got = { .step = 99 };
        char text[300] = "{\"version\": 1, \"kind\": \"train\", " GOOD "}";
        char name[32];
        (void)snprintf(name, sizeof(name), "\"%s\"", keys[i]);
        strstr(text, name)[1] = 'x'; /* the key has another name */
        put_text("model/state.json", text);
        assert_int_not_equal(xr_checkpoint_read(where, &expect, &got, &err),
                             XRAY_OK);
        assert_non_null(strstr(err.text, keys[i]));
    }
}

static void progress_is_restored(void **state)
{
    (void)state;
    char where[300];
    xr_err err = { "" };
    xr_progress expect = { .kind = "train", .seed = 11, .rows = 400 };
    xr_progress got = { .kind = NULL };
    save_checkpoint();
    (void)snprintf(where, sizeof(where), "%s",
                   scratch_path("root/global_step_7"));
    for (int known = 0; known < 2; known++) {
        expect.rows = known ? 400 : 0; /* 0: not yet known */
        got = (xr_progress){ .kind = NULL };
        assert_int_equal(xr_checkpoint_read(where, &expect, &got, &err),
                         XRAY_OK);
        assert_string_equal(got.kind, "train");
        assert_true(got.step == 7 && got.seed == 11 && got.rows == 400);
        assert_true(got.sampler_epoch == 2 && got.sampler_position == 33);
        assert_true(isnan(got.score_before) && got.score_now == 0.25);
    }
    put_text("root/global_step_7/state.json",
             "{\"version\": 1, \"kind\": \"train\", " GOOD "}");
    assert_int_equal(xr_checkpoint_read(where, &expect, &got, &err), XRAY_OK);
    assert_true(isnan(got.score_before) && isnan(got.score_now));
}

static void models_and_algorithm_are_restored(void **state)
{
    (void)state;
    xr_err err = { "" };
    save_checkpoint();
    assert_int_equal(restore_all(&err), XRAY_OK);
    assert_string_equal(fake.from[0], scratch_path("root/global_step_7/actor"));
    assert_string_equal(fake.from[1], "");
    assert_int_equal(fake.loads_of_algo, 1);
    assert_int_equal(fake.loaded_size, 3);
    assert_memory_equal(fake.loaded, "\x00\xa9\xff", 3);
    with_algo = 0;
    assert_int_equal(restore_all(&err), XRAY_OK);
    assert_int_equal(fake.loads_of_algo, 0);
    with_algo = 1;
    for (int way = 0; way < LACK_WAYS; way++) { /* it reads no state any more */
        const xray_algo_ops both = algo_ops;
        LACK_MEMBER(xray_algo_ops, algo_ops, load, way);
        assert_int_equal(restore_all(&err), XRAY_OK);
        assert_int_equal(fake.loads_of_algo, 0);
        algo_ops = both;
    }
    use_critic();
    assert_int_equal(restore_all(&err), XRAY_E_IO);
    char want[400];
    (void)snprintf(want, sizeof(want),
                   "%s: the checkpoint has no critic, which this run trains",
                   scratch_path("root/global_step_7/critic"));
    assert_string_equal(err.text, want);
    save_checkpoint();
    assert_int_equal(restore_all(&err), XRAY_OK);
    assert_string_equal(fake.from[1],
                        scratch_path("root/global_step_7/critic"));
    /* A checkpoint of an algorithm without state. */
    put_text("root/global_step_7/state.json", "{\"version\": 1}");
    assert_int_equal(restore_all(&err), XRAY_OK);
    assert_int_equal(fake.loads_of_algo, 0);
}

static void faulty_checkpoints_are_not_restored(void **state)
{
    (void)state;
    xr_err err = { "" };
    use_critic();
    save_checkpoint();
    fake.loads = XRAY_E_IO;
    assert_int_equal(restore_all(&err), XRAY_E_IO);
    assert_string_equal(fake.from[1], "");
    assert_string_equal(
        err.text,
        "train.fake: load failed with status -301 (file or network error)");
    fake.loads = XRAY_OK;
    static const char *const bad[] = { "0G", "zz", "0A", "/0", "0:", "a`" };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        char text[64];
        char want[400];
        (void)snprintf(text, sizeof(text), "{\"algo\": \"00%s\"}", bad[i]);
        put_text("root/global_step_7/state.json", text);
        assert_int_equal(restore_all(&err), XRAY_E_IO);
        (void)snprintf(want, sizeof(want), "%s: algo is not hexadecimal",
                       scratch_path("root/global_step_7/state.json"));
        assert_string_equal(err.text, want);
        assert_int_equal(fake.loads_of_algo, 0);
    }
    put_text("root/global_step_7/state.json", "{\"algo\": \"0099afd0\"}");
    assert_int_equal(restore_all(&err), XRAY_OK);
    assert_int_equal(fake.loaded_size, 4);
    assert_memory_equal(fake.loaded, "\x00\x99\xaf\xd0", 4);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, begin_run, end_run)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(every_file_is_written),
        CASE(an_unfinished_save_is_started_over),
        CASE(the_oldest_checkpoint_is_removed),
        CASE(model_files_are_copied),
        CASE(a_failed_save_leaves_nothing),
        CASE(states_of_algorithms_are_saved),
        CASE(state_is_read_or_refused),
        CASE(progress_is_restored),
        CASE(models_and_algorithm_are_restored),
        CASE(faulty_checkpoints_are_not_restored),
    };
    return cmocka_run_group_tests_name("rl.checkpoint", tests, scratch_make,
                                       scratch_drop);
}
