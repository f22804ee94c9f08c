/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks batch arithmetic, and finds and checks data files, before anything is
 * loaded. A key whose value was refused is skipped, since its default would get
 * the blame.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "core/base/file.h"
#include "core/base/infer_needs.h"
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

static void check_file(const xr_run *run, const char *key, const char *path,
                       xr_errors *errors)
{
    if (!xr_path_may_be_file(path))
        xr_errors_add(errors, "%s: [data] %s: %s is a folder, not a file",
                      locate_key(run, "data", key), key, path);
    else if (access(path, R_OK) != 0)
        xr_errors_add(errors, "%s: [data] %s: cannot read %s: %s",
                      locate_key(run, "data", key), key, path, strerror(errno));
}

/* Puts the files that folders and patterns stand for in the place of `files`,
 * and checks that each can be read. */
static void find_files(xr_run *run, const char *key, xray_list *files,
                       xr_file_list *keep, xr_errors *errors)
{
    xr_err err = { "" };
    if (xr_file_list_find(files, &err, keep) != XRAY_OK) {
        xr_errors_add(errors, "%s: [data] %s: %s", locate_key(run, "data", key),
                      key, err.text);
        return;
    }
    *files = (xray_list){ (const char *const *)keep->items, keep->count };
    for (uint64_t i = 0; i < files->count; i++)
        check_file(run, key, files->items[i], errors);
}

static void find_data_files(xr_run *run, xr_errors *errors)
{
    xr_data_section *data = &run->ini.data;
    int eval = !(run->with & XR_TRAINABLE);
    if (!eval && !data->train_files.count &&
        !is_refused(run, "data", "train_files"))
        xr_errors_add(errors, "%s: [data] train_files is not set",
                      locate_key(run, "data", "train_files"));
    if (!eval || data->val_split > 0)
        find_files(run, "train_files", &data->train_files, &run->data_files[0],
                   errors);
    find_files(run, "val_files", &data->val_files, &run->data_files[1], errors);
    if (data->chat_template && *data->chat_template)
        check_file(run, "chat_template", data->chat_template, errors);
}

/* Compares the longest row with the model's positions and with a micro-batch.
 * Wrong lengths are not shown to the plugins, which would report them again. */
static void check_row_lengths(xr_run *run, xr_errors *errors)
{
    const xr_data_section *data = &run->ini.data;
    int sft = !(run->with & XR_WITH_ALGO);
    const char *section = sft ? "sft" : "actor";
    const char *key = sft ? "max_token_len" : "ppo_max_token_len_per_gpu";
    int64_t micro = sft ? run->ini.sft.max_token_len
                        : run->ini.actor.ppo_max_token_len_per_gpu;
    int64_t row = data->max_prompt_length + data->max_response_length;
    if (is_refused(run, "data", "max_prompt_length") ||
        is_refused(run, "data", "max_response_length"))
        return;
    run->plannable = 1;
    if ((run->with & XR_TRAINABLE) && micro < row &&
        !is_refused(run, section, key))
        xr_errors_add(errors,
                      "%s: [%s] %s %lld is below the longest row: "
                      "max_prompt_length %lld + max_response_length %lld",
                      locate_key(run, section, key), section, key,
                      (long long)micro, (long long)data->max_prompt_length,
                      (long long)data->max_response_length);
    if (!run->actor.model.max_positions ||
        row <= (int64_t)run->actor.model.max_positions)
        return;
    run->plannable = 0;
    xr_errors_add(errors,
                  "%s: [data] max_prompt_length %lld + max_response_length "
                  "%lld is more than the model's max_position_embeddings %u",
                  locate_key(run, "data", "max_prompt_length"),
                  (long long)data->max_prompt_length,
                  (long long)data->max_response_length,
                  run->actor.model.max_positions);
}

/* Token offsets of a step are 32-bit integers. */
static void check_step_size(const xr_run *run, const char *section,
                            int64_t prompts, int64_t n, xr_errors *errors)
{
    const xr_data_section *data = &run->ini.data;
    int64_t row = data->max_prompt_length + data->max_response_length;
    if (prompts <= INT32_MAX / n / row)
        return;
    xr_errors_add(errors,
                  "%s: [%s] train_batch_size %lld x %lld samples x %lld tokens "
                  "of a row is more than the 2147483647 tokens a step can have",
                  locate_key(run, section, "train_batch_size"), section,
                  (long long)prompts, (long long)n, (long long)row);
}

static void check_mini_batches(const xr_run *run, xr_errors *errors)
{
    int64_t all = run->ini.data.train_batch_size;
    int64_t mini = run->ini.actor.ppo_mini_batch_size;
    if (!mini || all % mini == 0 ||
        is_refused(run, "actor", "ppo_mini_batch_size") ||
        is_refused(run, "data", "train_batch_size"))
        return;
    xr_errors_add(errors,
                  "%s: [actor] ppo_mini_batch_size %lld does not divide "
                  "[data] train_batch_size %lld",
                  locate_key(run, "actor", "ppo_mini_batch_size"),
                  (long long)mini, (long long)all);
}

/* A group whose prompt is computed once must fit into one micro-batch, whatever
 * the lengths of its rows; otherwise results would depend on how rows are cut.
 */
void xr_run_check_groups(const xr_run *run, const xr_dealing *deal,
                         xr_errors *errors)
{
    const xr_data_section *data = &run->ini.data;
    const char *section = deal->section;
    int64_t n = run->ini.rollout.n;
    int64_t row = data->max_prompt_length + data->max_response_length;
    if (!deal->share_prompts || is_refused(run, section, "share_prompts"))
        return;
    if (deal->shuffle && !is_refused(run, section, "shuffle"))
        xr_errors_add(
            errors,
            "%s: [%s] shuffle separates the samples of a prompt, which "
            "share_prompts keeps together: one of the two must be false",
            locate_key(run, section, "shuffle"), section);
    if (deal->micro / row >= n || is_refused(run, "rollout", "n") ||
        is_refused(run, "data", "max_prompt_length") ||
        is_refused(run, "data", "max_response_length") ||
        is_refused(run, section, "ppo_max_token_len_per_gpu"))
        return;
    xr_errors_add(errors,
                  "%s: [%s] ppo_max_token_len_per_gpu %lld cannot hold a group "
                  "of %lld samples of %lld + %lld tokens, expected at least "
                  "%lld with share_prompts",
                  locate_key(run, section, "ppo_max_token_len_per_gpu"),
                  section, (long long)deal->micro, (long long)n,
                  (long long)data->max_prompt_length,
                  (long long)data->max_response_length, (long long)(n * row));
}

/* Log-probabilities are those of the model's own logits, at the sampling
 * temperature. */
static void refuse_training(const xr_run *run, const char *key,
                            xr_errors *errors)
{
    if (run->with & XR_WITH_ALGO)
        xr_errors_add(errors,
                      "%s: [rollout] %s = %s changes the distribution that "
                      "tokens are drawn from and not their log-probabilities, "
                      "so that training would take them for the policy's own "
                      "choice; xray eval and sft, which only validate, may "
                      "set it",
                      locate_key(run, "rollout", key), key,
                      xr_config_get(run->config, "rollout", key));
}

/* Sampling from other logits than the model's needs an engine that does. */
static void check_sampling(const xr_run *run, xr_errors *errors)
{
    const xr_rollout_section *r = &run->ini.rollout;
    const uint64_t cuts = XRAY_INFER_TRUNCATION;
    const uint64_t penalties = XRAY_INFER_PENALTIES;
    const struct {
        const char *section;
        const char *key;
        uint64_t need;
        int set;
    } keys[] = {
        { "rollout", "top_p", cuts, r->top_p < 1 },
        { "rollout", "min_p", cuts, r->min_p > 0 },
        { "rollout", "top_k", cuts, r->top_k > 0 },
        { "rollout.val", "top_p", cuts, r->val_n > 0 && r->val_top_p < 1 },
        { "rollout.val", "top_k", cuts, r->val_n > 0 && r->val_top_k > 0 },
        { "rollout", "repetition_penalty", penalties,
          xray_is_set((float)r->repetition_penalty, 1) },
        { "rollout", "frequency_penalty", penalties,
          xray_is_set((float)r->frequency_penalty, 0) },
        { "rollout", "presence_penalty", penalties,
          xray_is_set((float)r->presence_penalty, 0) },
        { "rollout", "min_tokens", XRAY_INFER_MIN_TOKENS, r->min_tokens > 0 },
    };
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
        if (keys[i].set && !(keys[i].need & cuts))
            refuse_training(run, keys[i].key, errors);
    uint64_t has = run->infer.ops ? xr_infer(run)->capabilities : ~0ull;
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
        if (keys[i].set && !(has & keys[i].need))
            xr_errors_add(errors, "%s: [%s] %s: %s does not offer %s",
                          locate_key(run, keys[i].section, keys[i].key),
                          keys[i].section, keys[i].key, run->infer.instance,
                          xr_infer_need_name(keys[i].need));
    if (r->min_tokens > run->ini.data.max_response_length &&
        !is_refused(run, "rollout", "min_tokens") &&
        !is_refused(run, "data", "max_response_length"))
        xr_errors_add(errors,
                      "%s: [rollout] min_tokens %lld is more than [data] "
                      "max_response_length %lld",
                      locate_key(run, "rollout", "min_tokens"),
                      (long long)r->min_tokens,
                      (long long)run->ini.data.max_response_length);
}

void xr_run_check_batch(xr_run *run, xr_errors *errors)
{
    int eval = !(run->with & XR_TRAINABLE);
    const xr_run_config *ini = &run->ini;
    /* The commands score, generate and grade have no data. After running out
     * of memory nothing is decoded. */
    if ((eval && (run->with & (XR_WITH_INFER | XR_WITH_REWARD)) !=
                     (XR_WITH_INFER | XR_WITH_REWARD)) ||
        !ini->data.max_prompt_length)
        return;
    check_row_lengths(run, errors);
    find_data_files(run, errors);
    check_sampling(run, errors);
    if (eval)
        return;
    if (run->with & XR_WITH_ALGO) {
        const xr_actor_section *actor = &ini->actor;
        const xr_dealing deal = { "actor", actor->share_prompts, actor->shuffle,
                                  actor->ppo_max_token_len_per_gpu };
        check_mini_batches(run, errors);
        xr_run_check_groups(run, &deal, errors);
        check_step_size(run, "data", ini->data.train_batch_size, ini->rollout.n,
                        errors);
    } else {
        check_step_size(run, "sft", ini->sft.train_batch_size, 1, errors);
    }
}
