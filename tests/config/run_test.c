/* SPDX-License-Identifier: Apache-2.0
 *
 * Proves presets, checks across keys, and documentation of the core's sections.
 */
#include "core/config/sections.h"
#include "tests/config/config_testing.h"

static xr_config *decode_ini(const char *text, xr_run_config *run,
                             xr_errors *errors)
{
    xr_config *config = xr_config_new();
    assert_non_null(config);
    write_text("run.ini", text);
    xr_config_read(config, "run.ini", errors);
    xr_run_decode(config, run, errors);
    xr_config_finish(config, errors);
    return config;
}

static void presets_are_as_documented(void **state)
{
    (void)state;
    xr_errors errors = { 0 };
    xr_run_config run;
    xr_config *config = decode_ini("", &run, &errors);
    expect_errors(&errors, "");
    assert_string_equal(run.run.train, "zero3");
    assert_string_equal(run.run.infer, "dsinf");
    assert_string_equal(run.run.algo, "grpo");
    assert_string_equal(run.run.device, "cpu");
    assert_int_equal(run.run.reward.count, 1);
    assert_int_equal(run.model.dtype, XRAY_F32);
    assert_int_equal(run.data.train_batch_size, 1024);
    assert_int_equal(run.data.shuffle, 1);
    assert_int_equal(run.rollout.top_k, 0);
    assert_int_equal(run.actor.ppo_epochs, 1);
    assert_true(run.actor_optim.lr == 1e-6);
    assert_true(run.critic_optim.lr == 1e-5);
    assert_true(run.sft_optim.lr == 1e-5);
    assert_string_equal(run.trainer.default_local_dir, "checkpoints/xray/run");
    xr_config_free(config);
}

static void sections_reach_their_fields(void **state)
{
    (void)state;
    xr_errors errors = { 0 };
    xr_run_config run;
    xr_reward_section reward;
    xr_config *config = decode_ini(
        "[rollout]\nn = 8\ntop_k = 5\n[rollout.val]\nn = 4\ntop_k = 7\n"
        "temperature = 0.6\n[sft.optim]\nlr = 0.5\n[actor.optim]\nlr = 0.25\n"
        "[actor]\nppo_epochs = 3\nshuffle = true\nppo_mini_batch_size = 16\n"
        "[critic]\nppo_mini_batch_size = 0\n[critic.model]\npath = /m\n"
        "[critic.optim]\nlr = 0.125\n"
        "[trainer]\nproject_name = p\nexperiment_name = e\n",
        &run, &errors);
    /* Keys that the critic's section does not set come from the actor. */
    assert_int_equal(run.critic.ppo_epochs, 3);
    assert_int_equal(run.critic.shuffle, 1);
    assert_int_equal(run.critic.ppo_mini_batch_size, 0);
    assert_int_equal(run.critic.ppo_max_token_len_per_gpu, 16384);
    assert_string_equal(run.critic.path, "/m");
    assert_true(run.critic_optim.lr == 0.125);
    assert_int_equal(run.rollout.n, 8);
    assert_int_equal(run.rollout.top_k, 5);
    assert_int_equal(run.rollout.val_n, 4);
    assert_int_equal(run.rollout.val_top_k, 7);
    assert_true(run.rollout.val_temperature == 0.6);
    assert_true(run.rollout.temperature == 1);
    assert_true(run.sft_optim.lr == 0.5);
    assert_true(run.actor_optim.lr == 0.25);
    assert_string_equal(run.trainer.default_local_dir, "checkpoints/p/e");
    xr_config_set(config, "reward.mine.weight=0.5", &errors);
    xr_config_set(config, "reward.mine.plugin=other", &errors);
    xr_run_reward(config, "mine", &reward, &errors);
    assert_string_equal(reward.plugin, "other");
    assert_true(reward.weight == 0.5);
    expect_errors(&errors, "");
    xr_config_free(config);
}

static void keys_are_checked_against_each_other(void **state)
{
    (void)state;
    xr_errors errors = { 0 };
    xr_run_config run;
    xr_config *config = decode_ini(
        "[run]\nlog = loud\n[trainer]\nresume_mode = resume_path\n"
        "logger = console, wandb\nsave_freq = 0\n[rollout]\ntop_p = 0\n"
        "[rollout.val]\ntemperature = 1e-9\n[algo.grop]\nclip_ratio = 1\n",
        &run, &errors);
    expect_errors(
        &errors,
        "run.ini:2: [run] log: 'loud' is not one of error, warn, info, debug\n"
        "run.ini:4: [trainer] resume_mode: the value resume_path needs "
        "resume_from_path\n"
        "run.ini:6: [trainer] save_freq: 0 is not a number of steps; -1 turns "
        "it "
        "off\n"
        "run.ini:8: [rollout] top_p takes a number above 0, up to 1, not 0\n"
        "run.ini:10: [rollout.val] temperature takes 0 (greedy) or a number "
        "from 0.00001 to 100, not 1e-09\n"
        "run.ini:11: [algo.grop]: no such section");
    xr_config_free(config);
}

/* The page of options is generated from the tables, so each entry needs a
 * description. */
static void every_option_is_documented(void **state)
{
    (void)state;
    size_t sections = 0;
    const xr_section_info *info = NULL;
    for (; (info = xr_run_sections(sections)); sections++) {
        assert_true(strlen(info->doc) > 10);
        assert_int_equal(info->table.stride, sizeof(xray_option));
        for (size_t i = 0; i < info->table.count; i++) {
            const xray_option *o = &info->table.options[i];
            assert_non_null(o->preset);
            assert_non_null(o->since);
            size_t size = strlen(o->doc);
            assert_true(size > 10 && o->doc[size - 1] == '.');
        }
    }
    assert_int_equal(sections, 18);
}

static void resolved_ini_reads_back(void **state)
{
    (void)state;
    xr_errors errors = { 0 };
    xr_run_config run;
    xr_run_config back;
    xr_str text = { 0 };
    xr_str again = { 0 };
    xr_config *config = decode_ini(
        "[data]\ntemplate = \"Q: {prompt} ; \\\"x\\\"\\nA:\"\n"
        "train_files = a.jsonl, b.jsonl\n[trainer]\nexperiment_name = e\n",
        &run, &errors);
    xr_config_print(config, 0, &text);
    xr_config *second = decode_ini(xr_str_text(&text), &back, &errors);
    xr_config_print(second, 0, &again);
    expect_errors(&errors, "");
    assert_string_equal(xr_str_text(&again), xr_str_text(&text));
    assert_string_equal(back.data.template, "Q: {prompt} ; \"x\"\nA:");
    assert_int_equal(back.data.train_files.count, 2);
    assert_true(back.trainer.default_local_dir[0] == '/');
    xr_str_free(&text);
    xr_str_free(&again);
    xr_config_free(config);
    xr_config_free(second);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(presets_are_as_documented),
        cmocka_unit_test(sections_reach_their_fields),
        cmocka_unit_test(keys_are_checked_against_each_other),
        cmocka_unit_test(every_option_is_documented),
        cmocka_unit_test(resolved_ini_reads_back),
    };
    return cmocka_run_group_tests(tests, enter_folder, leave_folder);
}
