/* SPDX-License-Identifier: Apache-2.0
 *
 * Batch arithmetic and files, checked before anything is loaded. A key whose
 * value was refused is left out: its default would be blamed for nothing.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "core/base/file.h"
#include "core/run/parts.h"

static const char *origin(const xr_run *s, const char *section, const char *key)
{
    return xr_config_location(s->config, section, key);
}

static int refused(const xr_run *s, const char *section, const char *key)
{
    return xr_config_refused(s->config, section, key);
}

static void check_file(const xr_run *s, const char *key, const char *path,
                       xr_errors *errors)
{
    if (xr_path_is_dir(path))
        xr_errors_add(errors, "%s: [data] %s: %s is a folder, not a file",
                      origin(s, "data", key), key, path);
    else if (access(path, R_OK) != 0)
        xr_errors_add(errors, "%s: [data] %s: cannot read %s: %s",
                      origin(s, "data", key), key, path, strerror(errno));
}

static void check_files(const xr_run *s, const char *key,
                        const xray_list *files, xr_errors *errors)
{
    for (uint64_t i = 0; i < files->count; i++)
        check_file(s, key, files->items[i], errors);
}

static void check_data(const xr_run *s, xr_errors *errors)
{
    const xr_data_section *data = &s->ini.data;
    int eval = !(s->with & XR_TRAINABLE);
    if (!eval && !data->train_files.count && !refused(s, "data", "train_files"))
        xr_errors_add(errors, "%s: [data] train_files is not set",
                      origin(s, "data", "train_files"));
    if (!eval || data->val_split > 0)
        check_files(s, "train_files", &data->train_files, errors);
    check_files(s, "val_files", &data->val_files, errors);
    if (data->chat_template && *data->chat_template)
        check_file(s, "chat_template", data->chat_template, errors);
}

/* Rows against the model's positions and against a micro-batch. Wrong ones are
 * not shown to the plugins, which would say it again. */
static void check_lengths(xr_run *s, xr_errors *errors)
{
    const xr_data_section *data = &s->ini.data;
    int sft = !(s->with & XR_WITH_ALGO);
    const char *section = sft ? "sft" : "actor";
    const char *key = sft ? "max_token_len" : "ppo_max_token_len_per_gpu";
    int64_t micro =
        sft ? s->ini.sft.max_token_len : s->ini.actor.ppo_max_token_len_per_gpu;
    int64_t row = data->max_prompt_length + data->max_response_length;
    if (refused(s, "data", "max_prompt_length") ||
        refused(s, "data", "max_response_length"))
        return;
    s->plannable = 1;
    if ((s->with & XR_TRAINABLE) && micro < row && !refused(s, section, key))
        xr_errors_add(errors,
                      "%s: [%s] %s %lld is below the longest row: "
                      "max_prompt_length %lld + max_response_length %lld",
                      origin(s, section, key), section, key, (long long)micro,
                      (long long)data->max_prompt_length,
                      (long long)data->max_response_length);
    if (!s->actor.model.max_positions ||
        row <= (int64_t)s->actor.model.max_positions)
        return;
    s->plannable = 0;
    xr_errors_add(errors,
                  "%s: [data] max_prompt_length %lld + max_response_length "
                  "%lld is more than the model's max_position_embeddings %u",
                  origin(s, "data", "max_prompt_length"),
                  (long long)data->max_prompt_length,
                  (long long)data->max_response_length,
                  s->actor.model.max_positions);
}

/* Token offsets of a step are 32-bit numbers. */
static void check_size(const xr_run *s, const char *section, int64_t prompts,
                       int64_t n, xr_errors *errors)
{
    const xr_data_section *data = &s->ini.data;
    int64_t row = data->max_prompt_length + data->max_response_length;
    if (prompts <= INT32_MAX / n / row)
        return;
    xr_errors_add(errors,
                  "%s: [%s] train_batch_size %lld x %lld samples x %lld tokens "
                  "of a row is more than the 2147483647 tokens a step can have",
                  origin(s, section, "train_batch_size"), section,
                  (long long)prompts, (long long)n, (long long)row);
}

static void check_mini(const xr_run *s, xr_errors *errors)
{
    int64_t all = s->ini.data.train_batch_size;
    int64_t mini = s->ini.actor.ppo_mini_batch_size;
    if (!mini || all % mini == 0 ||
        refused(s, "actor", "ppo_mini_batch_size") ||
        refused(s, "data", "train_batch_size"))
        return;
    xr_errors_add(errors,
                  "%s: [actor] ppo_mini_batch_size %lld does not divide "
                  "[data] train_batch_size %lld",
                  origin(s, "actor", "ppo_mini_batch_size"), (long long)mini,
                  (long long)all);
}

/* A group whose prompt is computed once lies in one micro-batch, whatever the
 * lengths: else results would depend on the cut. */
void xr_run_check_groups(const xr_run *s, const xr_dealing *deal,
                         xr_errors *errors)
{
    const xr_data_section *data = &s->ini.data;
    const char *section = deal->section;
    int64_t n = s->ini.rollout.n;
    int64_t row = data->max_prompt_length + data->max_response_length;
    if (!deal->share_prompts || refused(s, section, "share_prompts"))
        return;
    if (deal->shuffle && !refused(s, section, "shuffle"))
        xr_errors_add(errors,
                      "%s: [%s] shuffle parts the samples of a prompt, which "
                      "share_prompts keeps together: one of the two must be "
                      "false",
                      origin(s, section, "shuffle"), section);
    if (deal->micro / row >= n || refused(s, "rollout", "n") ||
        refused(s, "data", "max_prompt_length") ||
        refused(s, "data", "max_response_length") ||
        refused(s, section, "ppo_max_token_len_per_gpu"))
        return;
    xr_errors_add(errors,
                  "%s: [%s] ppo_max_token_len_per_gpu %lld has no room for a "
                  "group of %lld samples of %lld + %lld tokens, expected at "
                  "least %lld with share_prompts",
                  origin(s, section, "ppo_max_token_len_per_gpu"), section,
                  (long long)deal->micro, (long long)n,
                  (long long)data->max_prompt_length,
                  (long long)data->max_response_length, (long long)(n * row));
}

void xr_run_check_batch(xr_run *s, xr_errors *errors)
{
    int eval = !(s->with & XR_TRAINABLE);
    const xr_run_config *run = &s->ini;
    /* score, generate and grade have no data; without memory nothing was
     * decoded. */
    if ((eval && (s->with & (XR_WITH_INFER | XR_WITH_REWARD)) !=
                     (XR_WITH_INFER | XR_WITH_REWARD)) ||
        !run->data.max_prompt_length)
        return;
    check_lengths(s, errors);
    check_data(s, errors);
    if (eval)
        return;
    if (s->with & XR_WITH_ALGO) {
        const xr_actor_section *actor = &run->actor;
        const xr_dealing deal = { "actor", actor->share_prompts, actor->shuffle,
                                  actor->ppo_max_token_len_per_gpu };
        check_mini(s, errors);
        xr_run_check_groups(s, &deal, errors);
        check_size(s, "data", run->data.train_batch_size, run->rollout.n,
                   errors);
    } else {
        check_size(s, "sft", run->sft.train_batch_size, 1, errors);
    }
}
