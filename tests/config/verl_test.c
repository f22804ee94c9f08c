/* SPDX-License-Identifier: Apache-2.0
 *
 * Names of veRL's configuration are refused with the name that they have here.
 */
#include "core/config/sections.h"
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
        cmocka_unit_test(every_key_of_a_section_is_translated),
    };
    return cmocka_run_group_tests_name("config.verl", tests, enter_folder,
                                       leave_folder);
}
