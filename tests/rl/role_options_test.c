/* SPDX-License-Identifier: Apache-2.0
 *
 * Proves that a role has the backend's options with those of its own section
 * over them: [critic.train.zero3] over [train.zero3].
 */
#include "core/base/str.h"
#include "core/rl/changes.h"
#include "core/run/run.h"
#include "core/run/run_setup.h"
#include "tests/scratch.h"

#define ALL (XR_WITH_TRAIN | XR_WITH_INFER | XR_WITH_ALGO | XR_TRAINABLE)

static xr_run *run;
static xr_config *config;
static xr_errors errors;

static const char *plugin_folder(void)
{
    static char plugins[600];
    const char *build = getenv("XRAY_BUILD");
    assert_non_null(build);
    (void)snprintf(plugins, sizeof(plugins), "%s/plugins", build);
    return plugins;
}

static void drop_run(void)
{
    xr_run_free(run);
    xr_config_free(config);
    xr_errors_free(&errors);
    run = NULL;
    config = NULL;
}

/* Makes a run of an INI that ends with `more`. */
static void make_draft(uint32_t with, const char *more, const char *assignment)
{
    char path[300];
    xr_str ini = { 0 };
    drop_run();
    (void)scratch_write("rows.jsonl", "{\"prompt\":\"a\",\"answer\":\"b\"}\n");
    (void)scratch_write(
        "m/config.json",
        "{\"architectures\":[\"LlamaForCausalLM\"],\"model_type\":\"llama\","
        "\"hidden_act\":\"silu\",\"hidden_size\":4,\"intermediate_size\":6,"
        "\"num_attention_heads\":2,\"num_hidden_layers\":1,"
        "\"num_key_value_heads\":1,\"rms_norm_eps\":1e-5,"
        "\"tie_word_embeddings\":true,\"vocab_size\":16,"
        "\"max_position_embeddings\":64}");
    xr_str_printf(&ini,
                  "[model]\npath = m\ninit = random\n"
                  "[data]\ntrain_files = rows.jsonl\nmax_prompt_length = 6\n"
                  "max_response_length = 4\ntrain_batch_size = 8\n"
                  "[rollout]\nn = 3\n%s",
                  more);
    (void)snprintf(path, sizeof(path), "%s",
                   scratch_write("run.ini", xr_str_text(&ini)));
    xr_str_free(&ini);
    config = xr_config_new();
    xr_config_read(config, path, &errors);
    if (assignment)
        xr_config_set(config, assignment, &errors);
    run = xr_run_draft(config, plugin_folder(), with, &errors);
    assert_non_null(run);
}

/* Expects one sentence without its folder, or none. */
static void expect_error(const char *want)
{
    size_t folder = strlen(scratch_dir()) + 1;
    if (!*want && errors.count)
        fail_msg("%s", errors.items[0]);
    assert_int_equal(errors.count, *want != '\0');
    if (*want)
        assert_string_equal(errors.items[0] + folder, want);
}

/* Returns an option of a role as it was decoded. */
static const void *find_field(uint32_t role, const char *key)
{
    const xr_part *part = xr_run_part_of(run, role);
    for (uint32_t i = 0; i < part->component->option_count; i++)
        if (strcmp(part->component->options[i].name, key) == 0)
            return (const char *)part->config +
                   part->component->options[i].offset;
    fail_msg("%s", key);
    return NULL;
}

static int64_t stage_of(uint32_t role)
{
    int64_t value = 0;
    memcpy(&value, find_field(role, "stage"), sizeof(value));
    return value;
}

static double beta_of(uint32_t role)
{
    double value = 0;
    memcpy(&value, find_field(role, "beta1"), sizeof(value));
    return value;
}

static void a_role_has_its_own_options_over_the_backends(void **state)
{
    (void)state;
    make_draft(ALL,
               "[critic.train.zero3]\nstage = 1\n"
               "[train.zero3]\nstage = 2\nbeta1 = 0.5\n"
               "[ref.train.zero3]\nstage = 0\nbeta1 = 0.25\n",
               "reward.train.zero3.beta1=0.75");
    expect_error("");
    assert_int_equal(stage_of(XRAY_ROLE_ACTOR), 2);
    assert_int_equal(stage_of(XRAY_ROLE_CRITIC), 1);
    assert_int_equal(stage_of(XRAY_ROLE_REFERENCE), 0);
    assert_int_equal(stage_of(XRAY_ROLE_REWARD), 2);
    assert_true(beta_of(XRAY_ROLE_ACTOR) == 0.5);
    assert_true(beta_of(XRAY_ROLE_CRITIC) == 0.5);
    assert_true(beta_of(XRAY_ROLE_REFERENCE) == 0.25);
    assert_true(beta_of(XRAY_ROLE_REWARD) == 0.75);
    assert_string_equal(xr_run_part_of(run, XRAY_ROLE_CRITIC)->instance,
                        "critic");
    assert_string_equal(xr_run_part_of(run, XRAY_ROLE_CRITIC)->section,
                        "critic.train.zero3");
    assert_ptr_equal(xr_run_part_of(run, XRAY_ROLE_ROLLOUT), &run->infer);
    /* Without a section of its own, a role has the backend's part. */
    make_draft(ALL, "[train.zero3]\nstage = 2\n", NULL);
    expect_error("");
    assert_ptr_equal(xr_run_part_of(run, XRAY_ROLE_CRITIC), &run->train);
    assert_ptr_equal(xr_run_part_of(run, XRAY_ROLE_REWARD), &run->train);
    /* A path is relative to the file that sets it, in either section. */
    make_draft(ALL,
               "[train.zero3]\noffload_dir = here\n"
               "[critic.train.zero3]\nstage = 1\n",
               NULL);
    const char *dir = NULL;
    memcpy(&dir, find_field(XRAY_ROLE_CRITIC, "offload_dir"), sizeof(dir));
    assert_string_equal(dir, scratch_path("here"));
}

static void wrong_options_of_a_role_are_located(void **state)
{
    (void)state;
    static const struct {
        const char *more;
        const char *want;
    } cases[] = {
        { "[critic.train.zero3]\nstge = 1\n",
          "run.ini:12: [critic.train.zero3] stge: no such option; did you mean "
          "stage?" },
        { "[ref.train.zero3]\nstage = 4\n",
          "run.ini:12: [ref.train.zero3] stage: 4 is out of range; expected 0 "
          "to 3" },
        /* The backend's own fault is reported once. */
        { "[train.zero3]\nstage = 4\n[critic.train.zero3]\nbeta1 = 0.5\n",
          "run.ini:12: [train.zero3] stage: 4 is out of range; expected 0 to "
          "3" },
        { "[critic.train.zero]\nstage = 1\n",
          "run.ini:11: [critic.train.zero]: no such section; did you mean "
          "[critic.train.zero3]?" },
        { "[reward.train.zero]\nstage = 1\n",
          "run.ini:11: [reward.train.zero]: no such section; did you mean "
          "[reward.train.zero3]?" },
        { "[critic.train.zero3]\ndeepspeed_config = ds.json\n",
          "run.ini:12: [critic.train.zero3] deepspeed_config: a DeepSpeed JSON "
          "is about all models, expected it in [train.zero3]" },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        make_draft(ALL, cases[i].more, NULL);
        expect_error(cases[i].want);
    }
    make_draft(ALL | XR_WITH_REWARD,
               "[run]\nreward = train.zero3\n[reward.train.zero3]\n"
               "stage = 1\n",
               NULL);
    expect_error("run.ini:12: [run] reward: train.zero3 cannot be the name of "
                 "a reward, since [reward.train.zero3] holds options of the "
                 "reward model");
    /* The job eval has no backend, and reads none of these sections. */
    make_draft(XR_WITH_INFER,
               "[critic.train.zero3]\nstge = 1\n[ref.train.zero3]\nx = 1\n",
               NULL);
    expect_error("");
}

/* A fault that a plugin finds in its options is located where the value was
 * set. */
static void a_plugins_fault_is_located_in_either_section(void **state)
{
    (void)state;
    xr_err err = { "" };
    make_draft(ALL,
               "[train.zero3]\nstage = 2\n[critic.train.zero3]\nbeta1 = "
               "0.5\n",
               NULL);
    expect_error("");
    (void)xr_fail_key(&err, XRAY_E_CONFIG, "critic.train.zero3", "beta1",
                      ": why");
    xr_run_locate(run, &err);
    assert_string_equal(err.text + strlen(scratch_dir()) + 1,
                        "run.ini:14: [critic.train.zero3] beta1: why");
    (void)xr_fail_key(&err, XRAY_E_CONFIG, "critic.train.zero3", "stage",
                      ": why");
    xr_run_locate(run, &err);
    assert_string_equal(err.text + strlen(scratch_dir()) + 1,
                        "run.ini:12: [train.zero3] stage: why");
}

/* A checkpoint keeps the resolved INI, and the Workhorses read it. */
static void the_resolved_ini_reads_back_to_the_same_options(void **state)
{
    (void)state;
    xr_str text = { 0 };
    make_draft(ALL,
               "[train.zero3]\nstage = 2\nbeta1 = 0.5\n"
               "[critic.train.zero3]\nstage = 1\n",
               NULL);
    expect_error("");
    xr_config_print(config, 0, &text);
    assert_non_null(strstr(xr_str_text(&text), "[critic.train.zero3]\n"
                                               "stage = 1\n\n"));
    assert_null(strstr(xr_str_text(&text), "[ref.train.zero3]"));
    drop_run();
    config = xr_config_new();
    xr_config_read_text(config, "the run's INI", xr_str_text(&text), &errors);
    run = xr_run_draft(config, plugin_folder(), ALL, &errors);
    expect_error("");
    assert_int_equal(stage_of(XRAY_ROLE_CRITIC), 1);
    assert_int_equal(stage_of(XRAY_ROLE_ACTOR), 2);
    assert_true(beta_of(XRAY_ROLE_CRITIC) == 0.5);
    xr_str_free(&text);
}

/* A resume with other options of a role goes on and says so, also where the
 * role is the reward model. */
static void a_resume_reports_options_of_a_role(void **state)
{
    (void)state;
    xr_err err = { "" };
    xr_history none = { 0 };
    xr_changes changes;
    make_draft(ALL,
               "[critic.train.zero3]\nstage = 1\n"
               "[reward.train.zero3]\nstage = 2\n",
               NULL);
    expect_error("");
    xr_str before = { 0 };
    xr_config_print(config, 0, &before);
    (void)scratch_write("c/run.ini", xr_str_text(&before));
    xr_str_free(&before);
    make_draft(ALL,
               "[critic.train.zero3]\nstage = 0\n"
               "[reward.train.zero3]\nstage = 3\n",
               NULL);
    assert_int_equal(
        xr_changes_find(run, scratch_path("c"), &none, &none, &err, &changes),
        XRAY_OK);
    assert_int_equal(changes.meaning.count, 0);
    assert_int_equal(changes.harmless.count, 2);
    for (size_t i = 0; i < 2; i++)
        assert_non_null(strstr(changes.harmless.items[i],
                               i ? "[reward.train.zero3] stage is 3, was 2 in"
                                 : "[critic.train.zero3] stage is 0, was 1 "
                                   "in"));
    xr_changes_free(&changes);
}

static int begin_test(void **state)
{
    if (scratch_make(state) != 0)
        return -1;
    return xr_dir_make(scratch_path("m"), NULL) == XRAY_OK &&
                   xr_dir_make(scratch_path("c"), NULL) == XRAY_OK
               ? 0
               : -1;
}

static int end_test(void **state)
{
    drop_run();
    return scratch_drop(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_role_has_its_own_options_over_the_backends),
        cmocka_unit_test(wrong_options_of_a_role_are_located),
        cmocka_unit_test(a_plugins_fault_is_located_in_either_section),
        cmocka_unit_test(the_resolved_ini_reads_back_to_the_same_options),
        cmocka_unit_test(a_resume_reports_options_of_a_role),
    };
    return cmocka_run_group_tests_name("rl.role_options", tests, begin_test,
                                       end_test);
}
