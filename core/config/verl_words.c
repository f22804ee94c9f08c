/* SPDX-License-Identifier: Apache-2.0
 *
 * Translates veRL's sections and keys for the hints that users of its
 * configurations get. Its names are those of verl/trainer/config.
 */
#include "core/config/internal.h"

#include <stdio.h>
#include <string.h>

/* A key of veRL, with its path, whose name or meaning differs here; `here` ends
 * the sentence "a name of veRL, here ...". */
typedef struct verl_key {
    const char *path;
    const char *here;
} verl_key;

#define ROLLOUT "actor_rollout_ref.rollout."
#define ACTOR "actor_rollout_ref.actor."
#define BY_TOKENS \
    "[actor] ppo_max_token_len_per_gpu, which counts tokens instead of rows"

static const verl_key keys[] = {
    { "trainer.n_gpus_per_node", "[run] ranks, the number of all ranks" },
    { "trainer.nnodes", "[run] ranks, the number of all ranks" },
    { "trainer.device", "[run] device" },
    { "trainer.max_critic_ckpt_to_keep",
      "[trainer] max_actor_ckpt_to_keep, which is about complete checkpoints" },
    { ACTOR "strategy", "[run] train, such as zero3 or megatron" },
    { ROLLOUT "name", "[run] infer, such as paged or dsinf" },
    { ROLLOUT "tensor_model_parallel_size",
      "[infer.NAME] tensor_model_parallel_size" },
    { ROLLOUT "gpu_memory_utilization",
      "[infer.NAME] kv_memory, the bytes of the KV cache" },
    { ROLLOUT "max_num_batched_tokens", "[infer.NAME] max_num_batched_tokens" },
    { ROLLOUT "max_model_len", "[infer.NAME] max_model_len" },
    { ROLLOUT "enable_prefix_caching", "[infer.paged] enable_prefix_caching" },
    { ROLLOUT "prompt_length", "[data] max_prompt_length" },
    { ROLLOUT "response_length", "[data] max_response_length" },
    { ROLLOUT "dtype", "[model] dtype" },
    { ROLLOUT "log_prob_micro_batch_size_per_gpu", BY_TOKENS },
    { ROLLOUT "log_prob_max_token_len_per_gpu",
      "[actor] ppo_max_token_len_per_gpu" },
    { ROLLOUT "val_kwargs.do_sample",
      "[rollout.val] n: 0 has greedy samples only" },
    { ACTOR "ppo_micro_batch_size_per_gpu", BY_TOKENS },
    { ACTOR "ppo_micro_batch_size", BY_TOKENS },
    { "actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu", BY_TOKENS },
    { ACTOR "optim.weight_decay", "[train.NAME] weight_decay" },
    { ACTOR "optim.warmup_style", "[actor.optim] lr_scheduler_type" },
    { ACTOR "fsdp_config.param_offload", "[actor] param_offload" },
    { ACTOR "fsdp_config.optimizer_offload", "[actor] optimizer_offload" },
    { "actor_rollout_ref.ref.fsdp_config.param_offload",
      "[ref] param_offload" },
    { ACTOR "megatron.tensor_model_parallel_size",
      "[train.megatron] tensor_model_parallel_size" },
    { ACTOR "megatron.pipeline_model_parallel_size",
      "[train.megatron] pipeline_model_parallel_size" },
    { ACTOR "megatron.context_parallel_size",
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

/* Sections whose keys are in one section here. */
static const verl_key sections[] = {
    { "actor_rollout_ref.actor.optim", "actor.optim" },
    { "actor_rollout_ref.actor", "actor" },
    { "actor_rollout_ref.rollout.val_kwargs", "rollout.val" },
    { "actor_rollout_ref.rollout", "rollout" },
    { "actor_rollout_ref.ref", "ref" },
    { "actor_rollout_ref.model", "model" },
    { "algorithm", "algo.NAME" },
    { "algorithm.kl_ctrl", "algo.NAME" },
};

/* Keys of veRL's actor that belong to the algorithm here. */
static int is_of_the_algorithm(const char *key)
{
    static const char *const names[] = {
        "clip_ratio",    "clip_ratio_low", "clip_ratio_high", "clip_ratio_c",
        "loss_agg_mode", "entropy_coeff",  "use_kl_loss",     "kl_loss_coef",
        "kl_loss_type",  "loss_mode",      "tau_pos",         "tau_neg",
    };
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (strcmp(key, names[i]) == 0)
            return 1;
    return 0;
}

static int has_key(const xr_config *config, const char *section,
                   const char *key)
{
    const xr_section *known = xr_section_find(config, section);
    const xr_entry *entry = known ? xr_entry_find(known, key) : NULL;
    return entry && entry->flags & XR_ENTRY_KNOWN;
}

static const char *find_here(const verl_key *list, size_t count,
                             const char *path)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(path, list[i].path) == 0)
            return list[i].here;
    return NULL;
}

static const char *find_key_here(const char *before, const char *section,
                                 const char *key)
{
    char path[3 * XR_NAME_MAX];
    (void)snprintf(path, sizeof(path), "%s%s.%s", before, section, key);
    return find_here(keys, sizeof(keys) / sizeof(keys[0]), path);
}

int xr_verl_key(const char *section, const char *key, xr_str *out)
{
    const char *here = find_key_here("", section, key);
    if (!here)
        here = find_key_here("actor_rollout_ref.", section, key);
    if (here)
        xr_str_printf(out, "; a name of veRL, here %s", here);
    return here != NULL;
}

int xr_verl_section_key(const xr_config *config, const char *section,
                        const char *key, xr_str *out)
{
    const char *ours =
        find_here(sections, sizeof(sections) / sizeof(sections[0]), section);
    if (xr_verl_key(section, key, out))
        return 1;
    if (!ours)
        return 0;
    if (is_of_the_algorithm(key))
        ours = "algo.NAME";
    if (strcmp(ours, "algo.NAME") == 0 || has_key(config, ours, key))
        xr_str_printf(out, "; a name of veRL, here [%s] %s", ours, key);
    else
        xr_str_printf(
            out, "; a section of veRL, here [%s], which has no such option",
            ours);
    return 1;
}
