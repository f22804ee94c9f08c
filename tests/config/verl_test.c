/* SPDX-License-Identifier: Apache-2.0
 *
 * Names of veRL's configuration are refused with the name that they have here.
 */
#include "core/base/file.h"
#include "core/config/internal.h"
#include "tests/config/config_testing.h"

typedef struct word {
    const char *set; /* without its value */
    const char *said;
} word;

/* Each name beside what a user is told. */
static const word words[] = {
    { "actor_rollout_ref.actor.ppo_mini_batch_size",
      "[actor_rollout_ref.actor] ppo_mini_batch_size: no such option; a name "
      "of veRL, here [actor] ppo_mini_batch_size" },
    { "actor_rollout_ref.rollout.n", "[actor_rollout_ref.rollout] n: no such "
                                     "option; a name of veRL, here [rollout] "
                                     "n" },
    { "actor_rollout_ref.rollout.val_kwargs.n",
      "[actor_rollout_ref.rollout.val_kwargs] n: no such option; a name of "
      "veRL, here [rollout.val] n" },
    { "actor_rollout_ref.actor.optim.lr",
      "[actor_rollout_ref.actor.optim] lr: no such option; a name of veRL, "
      "here [actor.optim] lr" },
    { "actor_rollout_ref.model.path", "[actor_rollout_ref.model] path: no such "
                                      "option; a name of veRL, here [model] "
                                      "path" },
    { "actor_rollout_ref.actor.clip_ratio",
      "[actor_rollout_ref.actor] clip_ratio: no such option; a name of veRL, "
      "here [algo.NAME] clip_ratio" },
    { "actor_rollout_ref.actor.entropy_coeff",
      "[actor_rollout_ref.actor] entropy_coeff: no such option; a name of "
      "veRL, here [algo.NAME] entropy_coeff" },
    { "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu",
      "[actor_rollout_ref.actor] ppo_micro_batch_size_per_gpu: no such option; "
      "a name of veRL, here [actor] ppo_max_token_len_per_gpu, which counts "
      "tokens instead of rows" },
    { "actor_rollout_ref.rollout.name", "[actor_rollout_ref.rollout] name: no "
                                        "such option; a name of veRL, here "
                                        "[run] infer, such as paged or dsinf" },
    { "actor_rollout_ref.rollout.no_such_thing",
      "[actor_rollout_ref.rollout] no_such_thing: no such option; a section of "
      "veRL, here [rollout], which has no such option" },
    { "algorithm.adv_estimator",
      "[algorithm] adv_estimator: no such option; a name of veRL, here [run] "
      "algo = ppo for gae, else [algo.grpo] adv_estimator or preset" },
    { "algorithm.lam", "[algorithm] lam: no such option; a name of veRL, here "
                       "[algo.NAME] lam" },
    { "algorithm.kl_ctrl.kl_coef",
      "[algorithm.kl_ctrl] kl_coef: no such option; a name of veRL, here "
      "[algo.NAME] kl_coef" },
    { "custom_reward_function.path",
      "[custom_reward_function] path: no such option; a name of veRL, here "
      "[reward.NAME] path, with plugin = ffi and language = python" },
    /* Sections that both have. */
    { "trainer.n_gpus_per_node",
      "[trainer] n_gpus_per_node: no such option; a name of veRL, here [run] "
      "ranks, the number of all ranks" },
    { "rollout.tensor_model_parallel_size",
      "[rollout] tensor_model_parallel_size: no such option; a name of veRL, "
      "here [infer.NAME] tensor_model_parallel_size" },
    /* These are no names of veRL. */
    { "trainer.no_such_thing", "[trainer] no_such_thing: no such option" },
    { "actor_rollout_reff.x", "[actor_rollout_reff]: no such section" },
};

/* A key that an INI sets in vain is no option of the section. */
static void only_options_are_suggested(void **state)
{
    (void)state;
    xr_run_config run;
    xr_errors errors = { 0 };
    xr_config *config = xr_config_new();
    assert_non_null(config);
    xr_config_set(config, "rollout.nonsense=1", &errors);
    xr_config_set(config, "actor_rollout_ref.rollout.nonsense=1", &errors);
    xr_run_decode(config, &run, &errors);
    xr_errors_free(&errors);
    xr_config_finish(config, &errors);
    assert_int_equal(errors.count, 2);
    assert_string_equal(errors.items[0],
                        "--set: [rollout] nonsense: no such option");
    assert_string_equal(errors.items[1],
                        "--set: [actor_rollout_ref.rollout] nonsense: no such "
                        "option; a section of veRL, here [rollout], which has "
                        "no such option");
    xr_errors_free(&errors);
    xr_config_free(config);
}

static void names_of_verl_are_translated(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        xr_run_config run;
        xr_errors errors = { 0 };
        char text[256];
        char want[512];
        xr_config *config = xr_config_new();
        assert_non_null(config);
        (void)snprintf(text, sizeof(text), "%s=1", words[i].set);
        xr_config_set(config, text, &errors);
        xr_run_decode(config, &run, &errors);
        xr_errors_free(&errors);
        xr_config_finish(config, &errors);
        (void)snprintf(want, sizeof(want), "--set: %s", words[i].said);
        expect_errors(&errors, want);
        xr_config_free(config);
    }
}

/* Every name with another place here, and what is there. */
static const word elsewhere[] = {
    { "trainer.n_gpus_per_node", "[run] ranks, the number of all ranks" },
    { "trainer.nnodes", "[run] ranks, the number of all ranks" },
    { "trainer.device", "[run] device" },
    { "trainer.max_critic_ckpt_to_keep",
      "[trainer] max_actor_ckpt_to_keep, which is about complete checkpoints" },
    { "actor_rollout_ref.actor.strategy",
      "[run] train, such as zero3 or megatron" },
    { "actor_rollout_ref.rollout.name", "[run] infer, such as paged or dsinf" },
    { "actor_rollout_ref.rollout.tensor_model_parallel_size",
      "[infer.NAME] tensor_model_parallel_size" },
    { "actor_rollout_ref.rollout.gpu_memory_utilization",
      "[infer.NAME] kv_memory, the bytes of the KV cache" },
    { "actor_rollout_ref.rollout.max_num_batched_tokens",
      "[infer.NAME] max_num_batched_tokens" },
    { "actor_rollout_ref.rollout.max_model_len", "[infer.NAME] max_model_len" },
    { "actor_rollout_ref.rollout.enable_prefix_caching",
      "[infer.paged] enable_prefix_caching" },
    { "actor_rollout_ref.rollout.prompt_length", "[data] max_prompt_length" },
    { "actor_rollout_ref.rollout.response_length",
      "[data] max_response_length" },
    { "actor_rollout_ref.rollout.dtype", "[model] dtype" },
    { "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu",
      "[actor] ppo_max_token_len_per_gpu, which counts tokens instead of "
      "rows" },
    { "actor_rollout_ref.rollout.log_prob_max_token_len_per_gpu",
      "[actor] ppo_max_token_len_per_gpu" },
    { "actor_rollout_ref.rollout.val_kwargs.do_sample",
      "[rollout.val] n: 0 has greedy samples only" },
    { "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu",
      "[actor] ppo_max_token_len_per_gpu, which counts tokens instead of "
      "rows" },
    { "actor_rollout_ref.actor.ppo_micro_batch_size",
      "[actor] ppo_max_token_len_per_gpu, which counts tokens instead of "
      "rows" },
    { "actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu",
      "[actor] ppo_max_token_len_per_gpu, which counts tokens instead of "
      "rows" },
    { "actor_rollout_ref.actor.optim.weight_decay",
      "[train.NAME] weight_decay" },
    { "actor_rollout_ref.actor.optim.warmup_style",
      "[actor.optim] lr_scheduler_type" },
    { "actor_rollout_ref.actor.fsdp_config.param_offload",
      "[actor] param_offload" },
    { "actor_rollout_ref.actor.fsdp_config.optimizer_offload",
      "[actor] optimizer_offload" },
    { "actor_rollout_ref.ref.fsdp_config.param_offload",
      "[ref] param_offload" },
    { "actor_rollout_ref.actor.megatron.tensor_model_parallel_size",
      "[train.megatron] tensor_model_parallel_size" },
    { "actor_rollout_ref.actor.megatron.pipeline_model_parallel_size",
      "[train.megatron] pipeline_model_parallel_size" },
    { "actor_rollout_ref.actor.megatron.context_parallel_size",
      "[train.megatron] context_parallel_size" },
    { "actor_rollout_ref.model.enable_gradient_checkpointing",
      "[train.zero3] gradient_checkpointing" },
    { "critic.model.enable_gradient_checkpointing",
      "[train.zero3] gradient_checkpointing" },
    { "algorithm.adv_estimator",
      "[run] algo = ppo for gae, else [algo.grpo] adv_estimator or preset" },
    { "algorithm.kl_ctrl.type", "[algo.NAME] kl_ctrl" },
    { "algorithm.kl_ctrl.kl_coef", "[algo.NAME] kl_coef" },
    { "algorithm.kl_ctrl.horizon", "[algo.NAME] horizon" },
    { "algorithm.kl_ctrl.target_kl", "[algo.NAME] target_kl" },
    { "algorithm.filter_groups.enable", "[algo.grpo] filter_groups" },
    { "algorithm.filter_groups.max_num_gen_batches",
      "[algo.grpo] max_num_gen_batches" },
    { "data.image_key", "nothing: models of text only" },
    { "custom_reward_function.path",
      "[reward.NAME] path, with plugin = ffi and language = python" },
    { "custom_reward_function.name",
      "[reward.NAME] name, with plugin = ffi and language = python" },
    { "reward_model.model.path", "[reward.NAME] path, with plugin = model" },
    { "reward_model.enable", "an instance in [run] reward" },
};

/* Every section whose keys are in one section here, with a key of it. */
static const word sections[] = {
    { "actor_rollout_ref.actor.optim.lr", "[actor.optim] lr" },
    { "actor_rollout_ref.actor.ppo_epochs", "[actor] ppo_epochs" },
    { "actor_rollout_ref.rollout.val_kwargs.top_p", "[rollout.val] top_p" },
    { "actor_rollout_ref.rollout.top_k", "[rollout] top_k" },
    { "actor_rollout_ref.ref.param_offload", "[ref] param_offload" },
    { "actor_rollout_ref.model.path", "[model] path" },
    { "algorithm.gamma", "[algo.NAME] gamma" },
    { "algorithm.kl_ctrl.kl_coef", "[algo.NAME] kl_coef" },
    { "actor_rollout_ref.actor.clip_ratio", "[algo.NAME] clip_ratio" },
    { "actor_rollout_ref.actor.clip_ratio_low", "[algo.NAME] clip_ratio_low" },
    { "actor_rollout_ref.actor.clip_ratio_high",
      "[algo.NAME] clip_ratio_high" },
    { "actor_rollout_ref.actor.clip_ratio_c", "[algo.NAME] clip_ratio_c" },
    { "actor_rollout_ref.actor.loss_agg_mode", "[algo.NAME] loss_agg_mode" },
    { "actor_rollout_ref.actor.entropy_coeff", "[algo.NAME] entropy_coeff" },
    { "actor_rollout_ref.actor.use_kl_loss", "[algo.NAME] use_kl_loss" },
    { "actor_rollout_ref.actor.kl_loss_coef", "[algo.NAME] kl_loss_coef" },
    { "actor_rollout_ref.actor.kl_loss_type", "[algo.NAME] kl_loss_type" },
    { "actor_rollout_ref.actor.loss_mode", "[algo.NAME] loss_mode" },
    { "actor_rollout_ref.actor.tau_pos", "[algo.NAME] tau_pos" },
    { "actor_rollout_ref.actor.tau_neg", "[algo.NAME] tau_neg" },
};

/* Fails unless docs/config.md lists the key in that section; of "algo.NAME"
 * one algorithm must have it. */
static void expect_listed(const char *page, const char *section, size_t size,
                          const char *key)
{
    char heading[80];
    char row[80];
    const char *any = memchr(section, 'N', size);
    (void)snprintf(heading, sizeof(heading), "\n## [%.*s",
                   (int)(any ? (size_t)(any - section) : size), section);
    (void)snprintf(row, sizeof(row), "\n| `%.*s` |",
                   (int)strspn(key, "abcdefghijklmnopqrstuvwxyz0123456789_"),
                   key);
    for (const char *at = page; (at = strstr(at, heading)); at++) {
        const char *found = strstr(at, row);
        const char *next = strstr(at + 1, "\n## ");
        if (found && (!next || found < next))
            return;
    }
    fail_msg("docs/config.md has no key '%s' of [%.*s]", row + 4, (int)size,
             section);
}

/* Each "[section] key" that a user is told exists. */
static void expect_all_listed(const char *page, const char *said)
{
    for (const char *at = said; (at = strchr(at, '[')); at++)
        expect_listed(page, at + 1, strcspn(at + 1, "]"), strchr(at, ']') + 2);
}

static void expect_translated(const xr_config *config, const word *one)
{
    char section[128];
    char want[512];
    xr_str said = { 0 };
    const char *dot = strrchr(one->set, '.');
    assert_non_null(dot);
    (void)snprintf(section, sizeof(section), "%.*s", (int)(dot - one->set),
                   one->set);
    (void)snprintf(want, sizeof(want), "; a name of veRL, here %s", one->said);
    assert_int_equal(xr_verl_section_key(config, section, dot + 1, &said), 1);
    assert_string_equal(xr_str_text(&said), want);
    xr_str_free(&said);
}

static void every_name_has_its_place_here(void **state)
{
    (void)state;
    xr_run_config run;
    xr_errors errors = { 0 };
    char path[4096];
    char *page = NULL;
    size_t size = 0;
    xr_err err = { .text = "" };
    const char *source = getenv("XRAY_SOURCE");
    assert_non_null(source);
    (void)snprintf(path, sizeof(path), "%s/docs/config.md", source);
    assert_int_equal(xr_file_read(path, 1 << 20, &err, &page, &size), XRAY_OK);
    xr_config *config = xr_config_new();
    assert_non_null(config);
    xr_run_decode(config, &run, &errors);
    xr_errors_free(&errors);
    for (size_t i = 0; i < sizeof(elsewhere) / sizeof(elsewhere[0]); i++) {
        expect_translated(config, &elsewhere[i]);
        expect_all_listed(page, elsewhere[i].said);
    }
    for (size_t i = 0; i < sizeof(sections) / sizeof(sections[0]); i++) {
        expect_translated(config, &sections[i]);
        expect_all_listed(page, sections[i].said);
    }
    xr_config_free(config);
    free(page);
}

static void every_key_of_a_section_is_translated(void **state)
{
    (void)state;
    xr_run_config run;
    xr_errors errors = { 0 };
    xr_config *config = xr_config_new();
    assert_non_null(config);
    write_text("run.ini", "[actor_rollout_ref.rollout]\nn = 8\n"
                          "temperature = 1\n");
    xr_config_read(config, "run.ini", &errors);
    xr_run_decode(config, &run, &errors);
    xr_errors_free(&errors);
    xr_config_finish(config, &errors);
    expect_errors(&errors,
                  "run.ini:2: [actor_rollout_ref.rollout] n: no such option; a "
                  "name of veRL, here [rollout] n\n"
                  "run.ini:3: [actor_rollout_ref.rollout] temperature: no such "
                  "option; a name of veRL, here [rollout] temperature");
    xr_config_free(config);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_of_verl_are_translated),
        cmocka_unit_test(only_options_are_suggested),
        cmocka_unit_test(every_key_of_a_section_is_translated),
        cmocka_unit_test(every_name_has_its_place_here),
    };
    return cmocka_run_group_tests_name("config.verl", tests, enter_folder,
                                       leave_folder);
}
