/* SPDX-License-Identifier: Apache-2.0
 *
 * What the algorithm's needs ask of the models: a value head on the policy, or
 * a critic, a model of its own with a value head alone.
 */
#include <stdlib.h>
#include <string.h>

#include "core/base/file.h"
#include "core/base/json.h"
#include "core/run/parts.h"
#include "core/run/score_model.h"

static const char *origin(const xr_run *s, const char *section, const char *key)
{
    return xr_config_location(s->config, section, key);
}

static int refused(const xr_run *s, const char *section, const char *key)
{
    return xr_config_refused(s->config, section, key);
}

/* Its ids are the policy's, so that its vocabulary has to hold them. */
static xray_status read_numbers(const xr_run *s, const xr_side_model *side,
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
                                s->actor.model.max_positions, where, err,
                                &positions);
    cJSON_Delete(json);
    if (status != XRAY_OK)
        return status;
    if (vocab < s->actor.model.vocab_size || vocab > (1 << 30))
        return xr_fail(err, XRAY_E_CONFIG,
                       "%s: vocab_size is %lld, expected at least the policy's "
                       "%u",
                       where, (long long)vocab, s->actor.model.vocab_size);
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

void xr_run_side_model(xr_run *s, const xr_side_model *side, xr_errors *errors)
{
    char buffer[XR_PATH_CAP];
    char file[XR_PATH_CAP];
    size_t size = 0;
    xr_err err = { "" };
    xr_model_slot *slot = side->slot;
    xray_model *model = &slot->model;
    const char *path = slot->path = xr_strdup(
        xr_run_model_dir(side->path, side->leaf, buffer, sizeof(buffer)));
    *model = s->actor.model;
    if (!path) {
        xr_errors_add(errors, "out of memory");
        return;
    }
    model->path = path;
    model->random_init = s->ini.model.init == XR_INIT_RANDOM;
    if (xr_run_verify_folder(path, 0, &err) == XRAY_OK &&
        xr_path_join(path, "config.json", file, sizeof(file), &err) ==
            XRAY_OK &&
        xr_file_read(file, 16u << 20, &err, &slot->json, &size) == XRAY_OK &&
        read_numbers(s, side, file, &err) == XRAY_OK) {
        model->config_json = slot->json;
        if (!model->random_init && !xr_run_has_weights(path))
            xr_run_no_weights(s, side->section, side->key, path, errors);
        return;
    }
    xr_errors_add(errors, "%s: [%s] %s: %s",
                  origin(s, side->section, side->key), side->section, side->key,
                  err.text);
}

/* A folder of its own; without one the critic starts where the policy does. */
static void read_model(xr_run *s, xr_errors *errors)
{
    const char *path = s->ini.critic.path;
    xr_side_model side = { "critic.model", "path", path, "critic", &s->critic };
    if (path && *path && !s->critic.path)
        xr_run_side_model(s, &side, errors);
}

static void check_batch(const xr_run *s, xr_errors *errors)
{
    const xr_critic_section *critic = &s->ini.critic;
    int64_t all = s->ini.data.train_batch_size;
    int64_t mini = critic->ppo_mini_batch_size;
    int64_t row = (int64_t)s->actor.load.row_tokens;
    int64_t micro = critic->ppo_max_token_len_per_gpu;
    if (mini && all % mini != 0 && mini != s->ini.actor.ppo_mini_batch_size &&
        !refused(s, "critic", "ppo_mini_batch_size") &&
        !refused(s, "data", "train_batch_size"))
        xr_errors_add(errors,
                      "%s: [critic] ppo_mini_batch_size %lld does not divide "
                      "[data] train_batch_size %lld",
                      origin(s, "critic", "ppo_mini_batch_size"),
                      (long long)mini, (long long)all);
    if (micro < row && micro != s->ini.actor.ppo_max_token_len_per_gpu &&
        !refused(s, "critic", "ppo_max_token_len_per_gpu"))
        xr_errors_add(errors,
                      "%s: [critic] ppo_max_token_len_per_gpu %lld is below "
                      "the longest row of %lld tokens",
                      origin(s, "critic", "ppo_max_token_len_per_gpu"),
                      (long long)micro, (long long)row);
    const xr_actor_section *actor = &s->ini.actor;
    const xr_dealing deal = { "critic", critic->share_prompts, critic->shuffle,
                              micro };
    if (!actor->share_prompts || critic->shuffle != actor->shuffle ||
        micro != actor->ppo_max_token_len_per_gpu)
        xr_run_check_groups(s, &deal, errors);
}

static void check_algo(const xr_run *s, xr_errors *errors)
{
    const xray_algo_ops *ops = xr_algo(s);
    if ((s->needs & XRAY_NEED_CRITIC) &&
        !XRAY_HAS(xray_algo_ops, ops, critic_loss))
        xr_errors_add(errors,
                      "%s needs a critic, but has no loss for it (critic_loss)",
                      s->algo.instance);
    if (!(s->needs & XRAY_NEED_CRITIC) && s->ini.trainer.critic_warmup > 0)
        xr_errors_add(errors,
                      "%s: [trainer] critic_warmup: %s has no critic, so that "
                      "steps without updates of the policy would train "
                      "nothing",
                      origin(s, "trainer", "critic_warmup"), s->algo.instance);
    if ((s->needs & XRAY_NEED_CRITIC) && (s->needs & XRAY_NEED_VALUE_HEAD))
        xr_errors_add(errors,
                      "%s needs a critic and a value head of the policy's own, "
                      "expected one of them",
                      s->algo.instance);
}

/* The section that names the reward model. */
static const char *score_section(const xr_run *s)
{
    for (size_t i = 0; i < s->reward_count; i++)
        if (s->rewards[i].component == &xr_score_component)
            return s->rewards[i].instance;
    return "reward." XR_SCORE_NAME;
}

static void prepare_score(xr_run *s, xr_errors *errors)
{
    const xr_score_config *own = s->score_config;
    xray_workload *load = &s->score.load;
    if (!own || !own->path || !*own->path || s->score.path ||
        !s->actor.model.config_json)
        return;
    *load = s->actor.load;
    load->outputs = XRAY_OUTPUT_VALUE;
    load->trainable = 0;
    load->trainable_from_layer = 0;
    load->row_tokens++; /* a token is put after each row: core/roles/score.c */
    if (load->tokens < load->row_tokens)
        load->tokens = load->row_tokens;
    load->rows = load->tokens;
    const xr_side_model side = { score_section(s), "path", own->path, "actor",
                                 &s->score };
    xr_run_side_model(s, &side, errors);
    /* Drawn values grade nothing, but what can be read is: [model] init is of
     * the models that are trained. */
    if (s->score.path && xr_run_has_weights(s->score.path))
        s->score.model.random_init = 0;
}

void xr_run_needs(xr_run *s, uint32_t needs, xr_errors *errors)
{
    xray_workload *load = &s->critic.load;
    s->needs = needs;
    if (!(s->with & XR_WITH_TRAIN))
        return;
    check_algo(s, errors);
    prepare_score(s, errors);
    if (needs & XRAY_NEED_VALUE_HEAD)
        s->actor.load.outputs |= XRAY_OUTPUT_VALUE;
    if (!(needs & XRAY_NEED_CRITIC))
        return;
    *load = s->actor.load;
    load->outputs = XRAY_OUTPUT_VALUE;
    load->trainable = 1;
    load->trainable_from_layer = 0;
    load->tokens = (uint64_t)s->ini.critic.ppo_max_token_len_per_gpu;
    if (load->tokens < load->row_tokens)
        load->tokens = load->row_tokens;
    load->rows = load->tokens / 2 + 1; /* a row has at least two tokens */
    if (s->plannable)
        check_batch(s, errors);
    if (s->actor.model.config_json)
        read_model(s, errors);
}
