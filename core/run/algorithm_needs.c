/* SPDX-License-Identifier: Apache-2.0
 *
 * Applies the needs of an algorithm to the models of a run: a value head on the
 * policy, or a critic, which is a model of its own with only a value head.
 * Prepares the reward model, too.
 */
#include <stdlib.h>
#include <string.h>

#include "core/base/file.h"
#include "core/base/json.h"
#include "core/run/reward_model.h"
#include "core/run/run_setup.h"

static const char *locate_key(const xr_run *run, const char *section,
                              const char *key)
{
    return xr_config_location(run->config, section, key);
}

static int is_refused(const xr_run *run, const char *section, const char *key)
{
    return xr_config_refused(run->config, section, key);
}

/* The model reads the policy's token ids, so its vocabulary must contain them.
 */
static xray_status read_model_numbers(const xr_run *run,
                                      const xr_side_model *side,
                                      const char *where, xr_err *err)
{
    cJSON *json = NULL;
    int64_t vocab = 0;
    int64_t positions = 0;
    const char *text = side->slot->json;
    xray_status status = xr_json_parse(text, strlen(text), where, err, &json);
    if (status == XRAY_OK && !cJSON_IsObject(json))
        status =
            xr_fail(err, XRAY_E_CONFIG, "%s: must be a JSON object", where);
    if (status == XRAY_OK)
        status = xr_json_int(json, "vocab_size", where, err, &vocab);
    if (status == XRAY_OK)
        status = xr_json_int_or(json, "max_position_embeddings",
                                run->actor.model.max_positions, where, err,
                                &positions);
    cJSON_Delete(json);
    if (status != XRAY_OK)
        return status;
    if (vocab < run->actor.model.vocab_size || vocab > (1 << 30))
        return xr_fail(err, XRAY_E_CONFIG,
                       "%s: vocab_size is %lld, expected at least the policy's "
                       "%u",
                       where, (long long)vocab, run->actor.model.vocab_size);
    side->slot->model.vocab_size = (uint32_t)vocab;
    side->slot->model.max_positions = (uint32_t)positions;
    if (positions >= (int64_t)side->slot->load.row_tokens)
        return XRAY_OK;
    return xr_fail(err, XRAY_E_CONFIG,
                   "%s: max_position_embeddings is %lld, the longest row has "
                   "%llu tokens",
                   where, (long long)positions,
                   (unsigned long long)side->slot->load.row_tokens);
}

void xr_run_side_model(xr_run *run, const xr_side_model *side,
                       xr_errors *errors)
{
    char buffer[XR_PATH_CAP];
    char file[XR_PATH_CAP];
    size_t size = 0;
    xr_err err = { "" };
    xr_model_slot *slot = side->slot;
    xray_model *model = &slot->model;
    const char *path = slot->path = xr_strdup(
        xr_run_model_dir(side->path, side->leaf, buffer, sizeof(buffer)));
    *model = run->actor.model;
    if (!path) {
        xr_errors_add(errors, "out of memory");
        return;
    }
    model->path = path;
    if (!xr_path_is_dir(path)) {
        xr_run_report_no_folder(run, side->section, side->key, path, errors);
        return;
    }
    model->random_init = run->ini.model.init == XR_INIT_RANDOM;
    if (xr_run_verify_folder(path, 0, &err) == XRAY_OK &&
        xr_path_join(path, "config.json", file, sizeof(file), &err) ==
            XRAY_OK &&
        xr_file_read(file, 16u << 20, &err, &slot->json, &size) == XRAY_OK &&
        read_model_numbers(run, side, file, &err) == XRAY_OK) {
        model->config_json = slot->json;
        if (!model->random_init && !xr_run_has_weights(path))
            xr_run_report_no_weights(run, side->section, side->key, path,
                                     errors);
        else if (!model->random_init)
            xr_run_check_snapshot(run, side->section, side->key, path, errors);
        return;
    }
    xr_errors_add(errors, "%s: [%s] %s: %s",
                  locate_key(run, side->section, side->key), side->section,
                  side->key, err.text);
}

/* The critic may have a folder of its own; otherwise it starts from the
 * policy's weights. */
static void read_critic_model(xr_run *run, xr_errors *errors)
{
    const char *path = run->ini.critic.path;
    xr_side_model side = { "critic.model", "path", path, "critic",
                           &run->critic };
    if (path && *path && !run->critic.path)
        xr_run_side_model(run, &side, errors);
}

static void check_critic_batch(const xr_run *run, xr_errors *errors)
{
    const xr_critic_section *critic = &run->ini.critic;
    int64_t all = run->ini.data.train_batch_size;
    int64_t mini = critic->ppo_mini_batch_size;
    int64_t row = (int64_t)run->actor.load.row_tokens;
    int64_t micro = critic->ppo_max_token_len_per_gpu;
    if (mini && all % mini != 0 && mini != run->ini.actor.ppo_mini_batch_size &&
        !is_refused(run, "critic", "ppo_mini_batch_size") &&
        !is_refused(run, "data", "train_batch_size"))
        xr_errors_add(errors,
                      "%s: [critic] ppo_mini_batch_size %lld does not divide "
                      "[data] train_batch_size %lld",
                      locate_key(run, "critic", "ppo_mini_batch_size"),
                      (long long)mini, (long long)all);
    if (micro < row && micro != run->ini.actor.ppo_max_token_len_per_gpu &&
        !is_refused(run, "critic", "ppo_max_token_len_per_gpu"))
        xr_errors_add(errors,
                      "%s: [critic] ppo_max_token_len_per_gpu %lld is below "
                      "the longest row of %lld tokens",
                      locate_key(run, "critic", "ppo_max_token_len_per_gpu"),
                      (long long)micro, (long long)row);
    const xr_actor_section *actor = &run->ini.actor;
    const xr_dealing deal = { "critic", critic->share_prompts, critic->shuffle,
                              micro };
    if (!actor->share_prompts || critic->shuffle != actor->shuffle ||
        micro != actor->ppo_max_token_len_per_gpu)
        xr_run_check_groups(run, &deal, errors);
}

static void check_algo_needs(const xr_run *run, xr_errors *errors)
{
    const xray_algo_ops *ops = xr_algo(run);
    if ((run->needs & XRAY_NEED_CRITIC) &&
        !XRAY_HAS(xray_algo_ops, ops, critic_loss))
        xr_errors_add(errors,
                      "%s needs a critic, but has no loss for it (critic_loss)",
                      run->algo.instance);
    if (!(run->needs & XRAY_NEED_CRITIC) && run->ini.trainer.critic_warmup > 0)
        xr_errors_add(errors,
                      "%s: [trainer] critic_warmup: %s has no critic, so steps "
                      "without updates of the policy would train nothing",
                      locate_key(run, "trainer", "critic_warmup"),
                      run->algo.instance);
    if ((run->needs & XRAY_NEED_CRITIC) && (run->needs & XRAY_NEED_VALUE_HEAD))
        xr_errors_add(errors,
                      "%s needs a critic and a value head of the policy's own, "
                      "expected one of them",
                      run->algo.instance);
}

/* Returns the section that configures the reward model. */
static const char *reward_model_section(const xr_run *run)
{
    for (size_t i = 0; i < run->reward_count; i++)
        if (run->rewards[i].component == &xr_reward_model_component)
            return run->rewards[i].instance;
    return "reward." XR_REWARD_MODEL_NAME;
}

static void prepare_reward_model(xr_run *run, xr_errors *errors)
{
    const xr_reward_model_config *own = run->reward_model_config;
    xray_workload *load = &run->reward_model.load;
    if (!own || !own->path || !*own->path || run->reward_model.path ||
        !run->actor.model.config_json)
        return;
    *load = run->actor.load;
    load->outputs = XRAY_OUTPUT_VALUE;
    load->trainable = 0;
    load->trainable_from_layer = 0;
    load->row_tokens++; /* core/roles/reward_model.c appends a token to each row
                         */
    if (load->tokens < load->row_tokens)
        load->tokens = load->row_tokens;
    load->rows = load->tokens;
    const xr_side_model side = { reward_model_section(run), "path", own->path,
                                 "actor", &run->reward_model };
    xr_run_side_model(run, &side, errors);
    /* [model] init = random is meant for the models that are trained. A reward
     * model with random weights would be useless, so its weights are read if
     * they exist. */
    if (run->reward_model.path && xr_run_has_weights(run->reward_model.path))
        run->reward_model.model.random_init = 0;
}

void xr_run_apply_needs(xr_run *run, uint32_t needs, xr_errors *errors)
{
    xray_workload *load = &run->critic.load;
    run->needs = needs;
    if (!(run->with & XR_WITH_TRAIN))
        return;
    check_algo_needs(run, errors);
    prepare_reward_model(run, errors);
    if (needs & XRAY_NEED_VALUE_HEAD)
        run->actor.load.outputs |= XRAY_OUTPUT_VALUE;
    if (!(needs & XRAY_NEED_CRITIC))
        return;
    *load = run->actor.load;
    load->outputs = XRAY_OUTPUT_VALUE;
    load->trainable = 1;
    load->trainable_from_layer = 0;
    load->tokens = (uint64_t)run->ini.critic.ppo_max_token_len_per_gpu;
    if (load->tokens < load->row_tokens)
        load->tokens = load->row_tokens;
    load->rows = load->tokens / 2 + 1; /* a row has at least two tokens */
    if (run->plannable)
        check_critic_batch(run, errors);
    if (run->actor.model.config_json)
        read_critic_model(run, errors);
}
