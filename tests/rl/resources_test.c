/* SPDX-License-Identifier: Apache-2.0
 *
 * Proves the sentences on memory, disk space and ranks that are not sufficient,
 * at their bounds, and the size of a step.
 */
#include <errno.h>
#include <sys/statvfs.h>

#include "core/base/str.h"
#include "core/run/placement.h"
#include "core/run/resources.h"
#include "tests/scratch.h"

static xr_run run;
static xr_config *config;

static int begin_test(void **state)
{
    config = xr_config_new();
    run = (xr_run){ .config = config, .with = XR_TRAINABLE | XR_WITH_ALGO };
    run.device.instance = "device.fake";
    return scratch_make(state);
}

static int end_test(void **state)
{
    xr_config_free(config);
    return scratch_drop(state);
}

/* ---- bytes -------------------------------------------------------------- */

static void bytes_as_people_read_them(void **state)
{
    (void)state;
    static const struct {
        uint64_t bytes;
        const char *text;
    } cases[] = {
        { 0, "0.0 KiB" },
        { 1, "0.0 KiB" },
        { 1536, "1.5 KiB" },
        { 999 << 10, "999.0 KiB" },
        { 1000 << 10, "1.0 MiB" },
        { UINT64_C(1) << 20, "1.0 MiB" },
        { UINT64_C(3) << 29, "1.5 GiB" },
        { UINT64_C(5) << 40, "5.0 TiB" },
        { UINT64_C(7) << 50, "7.0 PiB" },
        { UINT64_MAX, "16.0 EiB" },
    };
    static const char *const tags[] = { "weights",   "gradients",
                                        "optimizer", "activations",
                                        "kv",        "workspace",
                                        "?" };
    char buffer[XR_BYTES_CAP];
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        assert_string_equal(xr_bytes_text(cases[i].bytes, buffer),
                            cases[i].text);
    for (size_t i = 0; i < 7; i++)
        assert_string_equal(xr_tag_name(i), tags[i]);
}

/* ---- memory ------------------------------------------------------------- */

#define MIB (UINT64_C(1) << 20)

static xr_resources make_resources(uint64_t bytes, uint64_t memory)
{
    xr_resources r = { .bytes = bytes, .count = 2 };
    r.machine.memory_bytes = memory;
    r.parts[0].who = "train.fake";
    r.parts[1].who = "infer.fake";
    r.parts[0].plan.bytes[XRAY_TAG_OPTIMIZER] = 40 * MIB;
    r.parts[1].plan.bytes[XRAY_TAG_KV] = 50 * MIB;
    return r;
}

/* Up to 90 % of the memory passes; up to all of it warns; more is refused. */
static void memory_warns_and_refuses_at_its_bounds(void **state)
{
    (void)state;
    static const struct {
        uint64_t bytes;
        int found;
    } cases[] = { { 0, 0 },    { 900, 0 },  { 901, 1 },
                  { 1000, 1 }, { 1001, 2 }, { UINT64_MAX, 2 } };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        xr_err out = { "before" };
        xr_resources r = make_resources(cases[i].bytes, 1000);
        assert_int_equal(xr_resources_check_memory(&run, &r, &out),
                         cases[i].found);
        assert_int_equal(*out.text != '\0', cases[i].found > 0);
        r.machine.memory_bytes = 0; /* unknown */
        assert_int_equal(xr_resources_check_memory(&run, &r, &out), 0);
        r = make_resources(cases[i].bytes, 1000);
        r.count = 0;
        assert_int_equal(xr_resources_check_memory(&run, &r, &out), 0);
    }
    xr_err out = { "" };
    const xr_resources r = make_resources(120 * MIB, 100 * MIB);
    assert_int_equal(xr_resources_check_memory(&run, &r, &out), 2);
    assert_string_equal(
        out.text,
        "configuration: [rollout] max_num_seqs: the run needs 120.0 MiB of "
        "memory and device.fake has 100.0 MiB; the largest parts are 50.0 MiB "
        "of kv in infer.fake and 40.0 MiB of optimizer in train.fake: lower "
        "[rollout] max_num_seqs, or a smaller model in [model] path");
}

/* The key that reduces each tag of each part. */
static void memory_errors_name_the_keys_to_change(void **state)
{
    (void)state;
    static const struct {
        const char *who;
        size_t tag;
        const char *train;
        const char *sft;
    } cases[] = {
        { "train.fake", XRAY_TAG_WEIGHTS, "a smaller model in [model] path",
          "a smaller model in [model] path" },
        { "train.fake", XRAY_TAG_GRADS, "a smaller model in [model] path",
          "a smaller model in [model] path" },
        { "critic", XRAY_TAG_OPTIMIZER, "a smaller model in [model] path",
          "a smaller model in [model] path" },
        { "train.fake", XRAY_TAG_ACTIVATIONS,
          "lower [actor] ppo_max_token_len_per_gpu",
          "lower [sft] max_token_len" },
        { "reference", XRAY_TAG_WORKSPACE,
          "lower [actor] ppo_max_token_len_per_gpu",
          "lower [sft] max_token_len" },
        { "critic", XRAY_TAG_ACTIVATIONS,
          "lower [critic] ppo_max_token_len_per_gpu",
          "lower [critic] ppo_max_token_len_per_gpu" },
        { "critic", XRAY_TAG_WORKSPACE,
          "lower [critic] ppo_max_token_len_per_gpu",
          "lower [critic] ppo_max_token_len_per_gpu" },
        { "infer.fake", XRAY_TAG_KV, "lower [rollout] max_num_seqs",
          "lower [rollout] max_num_seqs" },
        { "rows", XRAY_TAG_WORKSPACE, "lower [data] train_batch_size",
          "lower [sft] train_batch_size" },
        { "device.fake", XRAY_TAG_WORKSPACE,
          "lower [actor] ppo_max_token_len_per_gpu",
          "lower [sft] max_token_len" },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        for (int sft = 0; sft < 2; sft++) {
            xr_err out = { "" };
            xr_resources r = { .bytes = 9, .count = 1 };
            const char *want = sft ? cases[i].sft : cases[i].train;
            char end_of[200];
            r.machine.memory_bytes = 8;
            r.parts[0].who = cases[i].who;
            r.parts[0].plan.bytes[cases[i].tag] = 5;
            /* The second largest part is reduced by the same key. */
            r.parts[0].plan.bytes
                [cases[i].tag == XRAY_TAG_WEIGHTS       ? XRAY_TAG_GRADS
                 : cases[i].tag < XRAY_TAG_ACTIVATIONS  ? XRAY_TAG_WEIGHTS
                 : cases[i].tag == XRAY_TAG_ACTIVATIONS ? XRAY_TAG_WORKSPACE
                 : cases[i].tag == XRAY_TAG_KV          ? XRAY_TAG_KV
                                               : XRAY_TAG_ACTIVATIONS] = 5;
            r.parts[1] = r.parts[0];
            r.parts[1].plan.bytes[cases[i].tag] = 3;
            r.count = 2;
            run.with = sft ? XR_TRAINABLE : XR_TRAINABLE | XR_WITH_ALGO;
            assert_int_equal(xr_resources_check_memory(&run, &r, &out), 2);
            (void)snprintf(end_of, sizeof(end_of), ": %s", want);
            if (!strstr(out.text, end_of))
                fail_msg("%s: %s", cases[i].who, out.text);
            if (strcmp(cases[i].who, "rows") != 0)
                assert_string_equal(strstr(out.text, end_of), end_of);
        }
    /* Scratch memory of a device, of an engine alone, or of each thread. */
    xr_err out = { "" };
    xr_resources r = { .bytes = 9, .count = 1 };
    r.machine.memory_bytes = 8;
    r.parts[0].who = "device.fake";
    r.parts[0].plan.bytes[XRAY_TAG_WORKSPACE] = 5;
    run.with = 0;
    assert_int_equal(xr_resources_check_memory(&run, &r, &out), 2);
    assert_non_null(strstr(out.text, "lower [rollout] max_num_seqs"));
    r.machine.host_memory = 1;
    assert_int_equal(xr_resources_check_memory(&run, &r, &out), 2);
    assert_non_null(strstr(out.text, "lower [run] threads"));
    run.with = XR_TRAINABLE | XR_WITH_ALGO;
}

/* ---- disk --------------------------------------------------------------- */

static void begin_folder(uint64_t there)
{
    char name[64];
    xr_err err = { "" };
    assert_int_equal(xr_dir_remove(scratch_path("out"), &err), XRAY_OK);
    assert_int_equal(xr_dir_make(scratch_path("out"), &err), XRAY_OK);
    for (uint64_t i = 0; i < there; i++) {
        (void)snprintf(name, sizeof(name), "out/global_step_%d", (int)i);
        assert_int_equal(xr_dir_make(scratch_path(name), &err), XRAY_OK);
    }
    (void)scratch_write("out/other", "");
}

#define EIB (UINT64_C(1) << 60)

/* The most checkpoints at the same time, minus those that exist already. */
static void checkpoints_at_the_same_time_are_counted(void **state)
{
    (void)state;
    static const struct {
        int64_t save_freq;
        int64_t keep;
        uint64_t steps;
        uint64_t there;
        uint64_t count;
    } cases[] = {
        { -1, 0, 10, 0, 1 }, { 0, 0, 10, 0, 1 }, { 3, 0, 9, 0, 3 },
        { 3, 0, 10, 0, 4 },  { 3, 0, 2, 0, 1 },  { 1, 0, 7, 0, 7 },
        { 1, 2, 7, 0, 3 },   { 1, 7, 7, 0, 7 },  { 1, 6, 7, 0, 7 },
        { 1, 5, 7, 0, 6 },   { 5, 0, 0, 0, 2 },  { 1, 0, 7, 3, 4 },
        { 1, 0, 7, 6, 1 },   { 1, 0, 7, 7, 1 },  { 1, 0, 7, 9, 1 },
        { 1, 1, 7, 1, 1 },
    };
    xr_trainer_section *t = &run.ini.trainer;
    char dir[256];
    char want[900];
    (void)snprintf(dir, sizeof(dir), "%s", scratch_path("out"));
    t->default_local_dir = dir;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const xr_resources r = { .checkpoint_bytes = 2 * EIB };
        xr_errors errors = { 0 };
        uint64_t n = cases[i].count;
        begin_folder(cases[i].there);
        t->save_freq = cases[i].save_freq;
        t->max_actor_ckpt_to_keep = cases[i].keep;
        xr_resources_check_disk(&run, &r, cases[i].steps, &errors);
        assert_int_equal(errors.count, 1);
        (void)snprintf(
            want, sizeof(want),
            "configuration: [trainer] default_local_dir: %llu checkpoint%s of "
            "2.0 EiB take%s %llu.0 EiB, the file system of %s has ",
            (unsigned long long)n, n == 1 ? "" : "s", n == 1 ? "s" : "",
            (unsigned long long)(2 * n), dir);
        assert_int_equal(strncmp(errors.items[0], want, strlen(want)), 0);
        const char *what = n > 2 ? " left; raise [trainer] save_freq or lower "
                                   "max_actor_ckpt_to_keep"
                                 : " left; name a folder with more space";
        assert_string_equal(strstr(errors.items[0], " left;"), what);
        xr_errors_free(&errors);
    }
    /* More bytes than a 64-bit number holds are too many. */
    const xr_resources r = { .checkpoint_bytes = UINT64_MAX / 2 };
    xr_errors errors = { 0 };
    begin_folder(0);
    t->save_freq = 1;
    t->max_actor_ckpt_to_keep = 0;
    xr_resources_check_disk(&run, &r, 3, &errors);
    assert_int_equal(errors.count, 1);
    assert_non_null(strstr(errors.items[0], "take 16.0 EiB"));
    xr_errors_free(&errors);
}

/* Space for one checkpoint is not enough for two; a run that starts needs one.
 */
static void checkpoints_must_fit_the_free_space(void **state)
{
    (void)state;
    struct statvfs fs;
    xr_errors errors = { 0 };
    xr_trainer_section *t = &run.ini.trainer;
    char dir[256];
    (void)snprintf(dir, sizeof(dir), "%s", scratch_path("out"));
    t->default_local_dir = dir;
    t->save_freq = 1;
    t->max_actor_ckpt_to_keep = 0;
    begin_folder(0);
    assert_int_equal(statvfs(dir, &fs), 0);
    uint64_t room = (uint64_t)fs.f_bavail * fs.f_frsize;
    const xr_resources half = { .checkpoint_bytes = room / 8 * 5 };
    const xr_resources none = { .checkpoint_bytes = 0 };
    const xr_resources twice = { .checkpoint_bytes = room * 2 };
    xr_resources_check_disk(&run, &half, 1, &errors);
    assert_int_equal(errors.count, 0);
    xr_resources_check_disk(&run, &half, 2, &errors);
    assert_int_equal(errors.count, 1);
    xr_resources_check_space(&run, &half, &errors); /* one checkpoint */
    assert_int_equal(errors.count, 1);
    xr_resources_check_space(&run, &twice, &errors);
    assert_int_equal(errors.count, 2);
    run.with = XR_WITH_ALGO;
    xr_resources_check_space(&run, &twice, &errors);
    xr_resources_check_disk(&run, &twice, 1, &errors);
    run.with |= XR_TRAINABLE;
    xr_resources_check_space(&run, &none, &errors);
    xr_resources_check_disk(&run, &none, 1, &errors);
    assert_int_equal(errors.count, 2);
    xr_errors_free(&errors);
}

static int is_protected; /* also for root, who may write everywhere */
int __real_access(const char *path, int mode);
int __wrap_access(const char *path, int mode);

int __wrap_access(const char *path, int mode)
{
    errno = EACCES;
    return is_protected && mode & W_OK ? -1 : __real_access(path, mode);
}

/* Every folder that a run writes to is checked, whether it exists or not. */
static void unwritable_folders_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *key;
        int when_eval; /* 1: checked even if nothing is trained */
    } keys[] = { { "default_local_dir", 0 },
                 { "rollout_data_dir", 0 },
                 { "validation_data_dir", 1 } };
    static char wide[XR_PATH_CAP + 1];
    const xr_resources r = { .checkpoint_bytes = 0 };
    char file[256];
    char below[300];
    char fine[300];
    (void)snprintf(file, sizeof(file), "%s", scratch_write("file", ""));
    (void)snprintf(below, sizeof(below), "%s/a/b", file);
    (void)snprintf(fine, sizeof(fine), "%s", scratch_path("not/there/yet"));
    memset(wide, 'w', XR_PATH_CAP);
    for (size_t i = 0; i < 3; i++) {
        const struct {
            const char *path;
            const char *says; /* sentence after the key; "": none */
        } cases[] = {
            { fine, "" },
            { "a name alone", "" },
            { "/", "" },
            { file, "%s is not a folder" },
            { below, "%s is not a folder" },
            { wide, "the path is too long" },
            { wide + 64, "the path is too long" },
        };
        for (size_t c = 0; c < sizeof(cases) / sizeof(cases[0]); c++)
            for (int eval = 0; eval < 2; eval++) {
                xr_errors errors = { 0 };
                char says[300];
                char want[600];
                xr_trainer_section *t = &run.ini.trainer;
                t->default_local_dir = i == 0 ? cases[c].path : fine;
                t->rollout_data_dir = i == 1 ? cases[c].path : "";
                t->validation_data_dir = i == 2 ? cases[c].path : "";
                run.with = eval ? XR_WITH_ALGO : XR_TRAINABLE | XR_WITH_ALGO;
                xr_resources_check_disk(&run, &r, 1, &errors);
                (void)snprintf(says, sizeof(says), "%s", cases[c].says);
                if (says[0] == '%')
                    (void)snprintf(says, sizeof(says), "%s is not a folder",
                                   file);
                (void)snprintf(want, sizeof(want),
                               "configuration: [trainer] %s: %s", keys[i].key,
                               says);
                int told = *says && (!eval || keys[i].when_eval);
                assert_int_equal(errors.count, told);
                if (told)
                    assert_string_equal(errors.items[0], want);
                xr_errors_free(&errors);
            }
    }
    run.with = XR_TRAINABLE | XR_WITH_ALGO;
    assert_false(xr_path_exists(scratch_path("not")));
    /* The parent of such a path is the root. */
    xr_errors top = { 0 };
    run.ini.trainer.default_local_dir = "/no-such-folder/out";
    run.ini.trainer.validation_data_dir = "";
    is_protected = 1;
    xr_resources_check_disk(&run, &r, 1, &top);
    is_protected = 0;
    assert_int_equal(top.count, 1);
    assert_non_null(
        strstr(top.items[0], "cannot be written, as / does not allow it"));
    xr_errors_free(&top);
    wide[XR_PATH_CAP - 65] = '\0'; /* the longest path that is accepted */
    xr_errors errors = { 0 };
    run.ini.trainer.default_local_dir = wide;
    xr_resources_check_disk(&run, &r, 1, &errors);
    assert_int_equal(errors.count, 0);
    xr_errors_free(&errors);
}

/* ---- ranks -------------------------------------------------------------- */

static void expect_ranks(const xr_ranks *ranks, const char *want)
{
    xr_str text = { 0 };
    for (uint32_t i = 0; i < ranks->count; i++)
        xr_str_printf(&text, "%s%u", i ? " " : "", ranks->rank[i]);
    assert_string_equal(xr_str_text(&text), want);
    xr_str_free(&text);
}

/* [placement] critic = TEXT of four ranks, with the actor on 1 and 2. */
static void ranks_of_a_role_are_decoded(void **state)
{
    (void)state;
#define RANGE "is not a number, a range such as 0-3, or all"
#define AMONG "is not among the ranks of the run"
#define ABOVE "is not above the ranks before it"
    static const struct {
        const char *items[3];
        const char *ranks;
        const char *wrong; /* the wrong item, and why it is wrong */
    } cases[] = {
        { { "all" }, "0 1 2 3", NULL },
        { { NULL }, "1 2", NULL },
        { { "0" }, "0", NULL },
        { { "3" }, "3", NULL },
        { { "0-3" }, "0 1 2 3", NULL },
        { { "2-2" }, "2", NULL },
        { { "0-1", "3" }, "0 1 3", NULL },
        { { "0", "2-3" }, "0 2 3", NULL },
        { { "4" }, "0 1 2 3", "\"4\" " AMONG },
        { { "2-4" }, "0 1 2 3", "\"2-4\" " AMONG },
        { { "2-1" },
          "0 1 2 3",
          "\"2-1\" is a range that ends below its start" },
        { { "1", "1" }, "0 1 2 3", "\"1\" " ABOVE },
        { { "1-2", "2-3" }, "0 1 2 3", "\"2-3\" " ABOVE },
        { { "3", "0" }, "0 1 2 3", "\"0\" " ABOVE },
        { { "x" }, "0 1 2 3", "\"x\" " RANGE },
        { { "-1" }, "0 1 2 3", "\"-1\" " RANGE },
        { { "1-" }, "0 1 2 3", "\"1-\" " RANGE },
        { { "1-x" }, "0 1 2 3", "\"1-x\" " RANGE },
        { { "1", "all" }, "0 1 2 3", "\"all\" " RANGE },
        { { "all", "1" }, "0 1 2 3", "\"all\" " RANGE },
        { { "000000000000000000000001" },
          "0 1 2 3",
          "\"000000000000000000000001\" " RANGE },
    };
    const char *const keys[] = { "reference", "critic", "reward", "rollout" };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        for (size_t k = 0; k < 4; k++) {
            static const char *const one[] = { "1-2" };
            xr_run_config ini = { .run.ranks = 4 };
            xr_placement_section *p = &ini.placement;
            xr_placement got;
            xr_errors errors = { 0 };
            xray_list *const lists[] = { &p->reference, &p->critic, &p->reward,
                                         &p->rollout };
            xr_ranks *const ranks[] = { &got.reference, &got.critic,
                                        &got.reward, &got.rollout };
            char want[300];
            p->actor = (xray_list){ .items = one, .count = 1 };
            lists[k]->items = cases[i].items;
            while (lists[k]->count < 3 && cases[i].items[lists[k]->count])
                lists[k]->count++;
            xr_placement_read(config, &ini, &got, &errors);
            assert_int_equal(got.size, 4);
            for (size_t j = 0; j < 4; j++)
                expect_ranks(ranks[j], j == k ? cases[i].ranks : "1 2");
            assert_int_equal(errors.count, cases[i].wrong != NULL);
            if (cases[i].wrong) {
                (void)snprintf(want, sizeof(want),
                               "configuration: [placement] %s: %s; [run] "
                               "ranks is 4",
                               keys[k], cases[i].wrong);
                assert_string_equal(errors.items[0], want);
            }
            xr_errors_free(&errors);
        }
    const xr_run_config ini = { .run.ranks = 2 };
    xr_placement got;
    xr_placement_read(config, &ini, &got, NULL);
    expect_ranks(&got.actor,
                 "0 1"); /* all ranks, unless configured otherwise */
    expect_ranks(&got.rollout, "0 1");
}

static void ranks_are_found_and_compared(void **state)
{
    (void)state;
    const xr_ranks a = { .count = 3, .rank = { 0, 2, 5 } };
    const xr_ranks less = { .count = 2, .rank = { 0, 2 } };
    const xr_ranks other = { .count = 3, .rank = { 0, 2, 6 } };
    const xr_ranks same = { .count = 3, .rank = { 0, 2, 5, 7 } };
    assert_int_equal(xr_ranks_find(&a, 0), 0);
    assert_int_equal(xr_ranks_find(&a, 5), 2);
    assert_int_equal(xr_ranks_find(&a, 1), -1);
    assert_int_equal(xr_ranks_find(&same, 7), -1);
    assert_true(xr_ranks_equal(&a, &same));
    assert_false(xr_ranks_equal(&a, &less));
    assert_false(xr_ranks_equal(&less, &a));
    assert_false(xr_ranks_equal(&a, &other));
}

/* ---- a step ------------------------------------------------------------- */

static void the_size_of_a_step_is_computed(void **state)
{
    (void)state;
    const xr_resources r = { .parameters = 100 };
    xr_step_size s;
    xr_run_config *ini = &run.ini;
    ini->data.max_prompt_length = 6;
    ini->data.max_response_length = 4;
    ini->data.train_batch_size = 8;
    ini->rollout.n = 3;
    ini->actor.ppo_mini_batch_size = 2;
    ini->actor.ppo_epochs = 5;
    ini->actor.ppo_max_token_len_per_gpu = 64;
    ini->critic.ppo_epochs = 2;
    ini->sft.train_batch_size = 9;
    ini->sft.max_token_len = 35;
    run.needs = XRAY_NEED_REFERENCE | XRAY_NEED_CRITIC;
    xr_step_size_of(&run, &r, &s);
    assert_true(s.prompts == 8 && s.samples == 3 && s.rows == 24);
    assert_true(s.row_tokens == 10 && s.tokens == 240 && s.computed == 240);
    assert_true(s.epochs == 5 && s.mini_batches == 4 && s.mini_rows == 6);
    assert_true(s.micro_tokens == 64 && s.micro_batches == 1);
    assert_true(s.prompt_tokens == 48 && s.response_tokens == 96);
    assert_true(s.sampling_flops == 2 * 100 * (48 + 96));
    assert_true(s.reference_flops == 2 * 100 * 240);
    assert_true(s.critic_flops == (2 + 6 * 2) * 100 * 240);
    assert_true(s.update_flops == 6 * 100 * 240 * 5);
    ini->actor.share_prompts = 1;
    ini->actor.ppo_max_token_len_per_gpu = 59; /* one group of three */
    xr_step_size_of(&run, &r, &s);
    assert_true(s.computed == 144 && s.micro_batches == 2);
    assert_true(s.update_flops == 6 * 100 * 144 * 5);
    ini->actor.share_prompts = 0;
    xr_step_size_of(&run, &r, &s);
    assert_true(s.micro_batches == 2); /* five rows, one row */
    ini->actor.ppo_max_token_len_per_gpu = 3;
    ini->actor.ppo_mini_batch_size = 0; /* all prompts */
    run.needs = 0;
    xr_step_size_of(&run, &r, &s);
    assert_true(s.micro_tokens == 10 && s.micro_batches == 24);
    assert_true(s.mini_batches == 1 && s.mini_rows == 24);
    assert_true(s.reference_flops == 0 && s.critic_flops == 0);
    run.with &= ~XR_WITH_ALGO;
    ini->actor.share_prompts = 1; /* sft does not have it */
    xr_step_size_of(&run, &r, &s);
    assert_true(s.prompts == 9 && s.samples == 1 && s.rows == 9);
    assert_true(s.epochs == 1 && s.mini_batches == 1 && s.mini_rows == 9);
    assert_true(s.micro_tokens == 35 && s.micro_batches == 3);
    assert_true(s.computed == 90 && s.update_flops == 6 * 100 * 90);
    run.with &= ~XR_TRAINABLE;
    xr_step_size_of(&run, &r, &s);
    assert_true(s.row_tokens == 10 && s.rows == 0 && s.update_flops == 0);
}

/* ---- numerics of the device ---------------------------------------------- */

static xray_status planned;

static xray_status plan_device(const xray_host *host, const void *options,
                               xray_device_plan *out)
{
    assert_null(host);
    assert_string_equal(options, "options");
    out->numerics = "fake/1";
    return planned;
}

/* A device that is unknown, has faulty options or cannot plan says nothing. */
static void numerics_of_a_device_are_those_of_its_plan(void **state)
{
    static const xray_component component = { .name = "fake" };
    static const xray_device_ops ops = { .header = XRAY_HEADER(xray_device_ops),
                                         .plan = plan_device };
    (void)state;
    planned = XRAY_OK;
    run.device = (xr_part){ .component = &component,
                            .ops = &ops,
                            .config = (void *)(uintptr_t) "options" };
    assert_string_equal(xr_run_device_numerics(&run), "fake/1");
    planned = XRAY_E_CONFIG;
    assert_null(xr_run_device_numerics(&run));
    planned = XRAY_OK;
    run.device.config = NULL;
    assert_null(xr_run_device_numerics(&run));
    run.device.config = (void *)(uintptr_t) "options";
    run.device.component = NULL;
    assert_null(xr_run_device_numerics(&run));
    run.device = (xr_part){ .instance = "device.fake" };
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_as_people_read_them),
        cmocka_unit_test(memory_warns_and_refuses_at_its_bounds),
        cmocka_unit_test(memory_errors_name_the_keys_to_change),
        cmocka_unit_test(checkpoints_at_the_same_time_are_counted),
        cmocka_unit_test(checkpoints_must_fit_the_free_space),
        cmocka_unit_test(unwritable_folders_are_refused),
        cmocka_unit_test(ranks_of_a_role_are_decoded),
        cmocka_unit_test(ranks_are_found_and_compared),
        cmocka_unit_test(the_size_of_a_step_is_computed),
        cmocka_unit_test(numerics_of_a_device_are_those_of_its_plan),
    };
    return cmocka_run_group_tests_name("rl.resources", tests, begin_test,
                                       end_test);
}
