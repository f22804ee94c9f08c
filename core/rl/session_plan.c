/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "core/rl/session_parts.h"

static void check_files(xr_session *s, const char *key, const xray_list *files,
                        xr_errors *errors)
{
    for (uint64_t i = 0; i < files->count; i++)
        if (access(files->items[i], R_OK) != 0)
            xr_errors_add(errors, "%s: [data] %s: cannot read %s",
                          xr_config_origin(s->config, "data", key), key,
                          files->items[i]);
}

void xr_session_check_batch(xr_session *s, xr_errors *errors)
{
    const xr_data_section *data = &s->run.data;
    const xr_actor_section *actor = &s->run.actor;
    int64_t row = data->max_prompt_length + data->max_response_length;
    int64_t mini = actor->ppo_mini_batch_size;
    if (mini && data->train_batch_size % mini != 0)
        xr_errors_add(
            errors,
            "%s: [actor] ppo_mini_batch_size %lld does not divide "
            "[data] train_batch_size %lld",
            xr_config_origin(s->config, "actor", "ppo_mini_batch_size"),
            (long long)mini, (long long)data->train_batch_size);
    if (actor->ppo_max_token_len_per_gpu < row)
        xr_errors_add(
            errors,
            "%s: [actor] ppo_max_token_len_per_gpu %lld is below the "
            "longest row: max_prompt_length %lld + "
            "max_response_length %lld",
            xr_config_origin(s->config, "actor", "ppo_max_token_len_per_gpu"),
            (long long)actor->ppo_max_token_len_per_gpu,
            (long long)data->max_prompt_length,
            (long long)data->max_response_length);
    if (s->model.max_positions && row > (int64_t)s->model.max_positions)
        xr_errors_add(errors,
                      "%s: [data] max_prompt_length %lld + "
                      "max_response_length %lld is more than the model's "
                      "max_position_embeddings %u",
                      xr_config_origin(s->config, "data", "max_prompt_length"),
                      (long long)data->max_prompt_length,
                      (long long)data->max_response_length,
                      s->model.max_positions);
    if (!data->train_files.count)
        xr_errors_add(errors, "[data] train_files is not set");
    check_files(s, "train_files", &data->train_files, errors);
    check_files(s, "val_files", &data->val_files, errors);
}

static const char *const tag_names[XRAY_TAG_COUNT] = {
    "weights", "gradients", "optimizer", "activations", "kv", "workspace",
};

static void print_plan(const char *who, const xray_plan *plan, xr_str *out)
{
    uint64_t sum = 0;
    xr_str_printf(out, "memory of %s:", who);
    for (size_t i = 0; i < XRAY_TAG_COUNT; i++) {
        sum += plan->bytes[i];
        if (plan->bytes[i])
            xr_str_printf(out, " %s %.1f MiB,", tag_names[i],
                          (double)plan->bytes[i] / 1048576.0);
    }
    xr_str_printf(out, " in all %.1f MiB\n", (double)sum / 1048576.0);
}

/* The words that confuse users, worked out. */
static void print_batch(const xr_session *s, xr_str *out)
{
    const xr_run_config *run = &s->run;
    int64_t prompts = run->data.train_batch_size;
    int64_t mini = run->actor.ppo_mini_batch_size
                       ? run->actor.ppo_mini_batch_size
                       : prompts;
    xr_str_printf(
        out,
        "a step: %lld prompts x %lld samples = %lld rows of at most %lld + "
        "%lld tokens\n",
        (long long)prompts, (long long)run->rollout.n,
        (long long)(prompts * run->rollout.n),
        (long long)run->data.max_prompt_length,
        (long long)run->data.max_response_length);
    xr_str_printf(out,
                  "updates a step: %lld epochs x %lld mini-batches of %lld "
                  "rows, cut into "
                  "micro-batches of at most %lld tokens\n",
                  (long long)run->actor.ppo_epochs, (long long)(prompts / mini),
                  (long long)(mini * run->rollout.n),
                  (long long)run->actor.ppo_max_token_len_per_gpu);
    if (run->actor.ppo_epochs * (prompts / mini) == 1)
        xr_str_puts(out, "one update a step: the ratio is 1 and clipping never "
                         "takes effect\n");
}

xray_status xr_session_plan(xr_session *s, xr_err *err, xr_str *out)
{
    if (out && (s->with & XR_WITH_ALGO))
        print_batch(s, out);
    if (s->train.component) {
        xray_plan plan = { .head = XRAY_HEAD(xray_plan) };
        xray_status status = XR_CALL_TIMED(
            &s->train, "plan",
            xr_train(s)->plan(xr_host_api(s->train.host), s->train.config,
                              &s->model, &s->world, &s->train_load, &plan));
        if (status != XRAY_OK)
            return xr_host_error(s->train.host, status, "plan", err);
        if (out)
            print_plan(s->train.instance, &plan, out);
    }
    if (s->infer.component) {
        xray_plan plan = { .head = XRAY_HEAD(xray_plan) };
        xray_status status = XR_CALL_TIMED(
            &s->infer, "plan",
            xr_infer(s)->plan(xr_host_api(s->infer.host), s->infer.config,
                              &s->model, &s->world, &s->infer_load, &plan));
        if (status != XRAY_OK)
            return xr_host_error(s->infer.host, status, "plan", err);
        if (out)
            print_plan(s->infer.instance, &plan, out);
    }
    return XRAY_OK;
}
