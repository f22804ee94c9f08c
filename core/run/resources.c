/* SPDX-License-Identifier: Apache-2.0
 *
 * Adds up the plugins' plans of memory, compares them with the machine, and
 * computes the size of a step.
 */
#include "core/run/resources.h"

#include <stdio.h>
#include <string.h>

#include "core/run/rows.h"
#include "core/run/run_setup.h"
#include "model/hf/config.h"

static const char *const tag_names[XRAY_TAG_COUNT] = {
    "weights", "gradients", "optimizer", "activations", "kv", "workspace",
};

const char *xr_tag_name(size_t tag)
{
    return tag < XRAY_TAG_COUNT ? tag_names[tag] : "?";
}

const char *xr_bytes_text(uint64_t bytes, char *buffer)
{
    static const char *const units[] = { "KiB", "MiB", "GiB",
                                         "TiB", "PiB", "EiB" };
    double value = (double)bytes / 1024;
    size_t unit = 0;
    for (; value >= 1000 && unit < 5; unit++)
        value /= 1024;
    (void)snprintf(buffer, XR_BYTES_CAP, "%.1f %s", value, units[unit]);
    return buffer;
}

/* Adds without overflow, since a plan of absurd size must not wrap around to
 * one that fits. */
static uint64_t add_saturated(uint64_t a, uint64_t b)
{
    return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

/* ---- plans -------------------------------------------------------------- */

static xr_part_plan *begin_part_plan(xr_resources *r, const xr_part *part,
                                     const char *who)
{
    xr_part_plan *p = &r->parts[r->count];
    *p = (xr_part_plan){ .who = who,
                         .part = part,
                         .ranks = 1,
                         .plan = { .header = XRAY_HEADER(xray_plan) } };
    return p;
}

/* Adds the plan of rank `i`; the plan of the part is the largest of them. */
static void take_rank_plan(xr_part_plan *p, uint32_t i, const xray_plan *plan)
{
    const xray_plan before = p->plan;
    uint64_t bytes = 0;
    for (size_t t = 0; t < XRAY_TAG_COUNT; t++) {
        p->tags[i][t] = plan->bytes[t];
        bytes = add_saturated(bytes, plan->bytes[t]);
    }
    if (i == 0 || bytes < p->least)
        p->least = bytes;
    if (i == 0 || bytes > p->bytes) {
        p->plan = *plan;
        p->plan.axes = NULL; /* the plugin's, until its next plan */
        p->plan.numerics = NULL;
        p->bytes = bytes;
        p->fullest = i;
    }
    if (i > 0) {
        p->plan.evictable = plan->evictable & before.evictable;
        p->plan.sharded = plan->sharded | before.sharded;
    }
}

/* Plans a role on each of its ranks. */
static void plan_role(const xr_run *run, uint32_t role, const char *who,
                      const xray_workload *load, xr_errors *errors,
                      xr_resources *r)
{
    const xr_part *part = xr_run_part_of(run, role);
    xr_part_plan *p = begin_part_plan(r, part, who);
    p->role = role;
    p->ranks = xr_run_ranks(run, role)->count;
    for (uint32_t i = 0; i < p->ranks; i++) {
        xray_plan plan;
        xray_workload asked = *load;
        p->works[i].header = (xray_header)XRAY_HEADER(xray_device_work);
        asked.device_work = &p->works[i];
        xray_status status = xr_run_ask_plan(run, role, i, &asked, &plan);
        if (status != XRAY_OK) {
            xr_run_report_plan(run, part, status, errors);
            return;
        }
        take_rank_plan(p, i, &plan);
    }
    r->count++;
}

/* Adds the plan of the training backend in one of its roles. */
static void plan_trainer_role(const xr_run *run, uint32_t role,
                              xr_errors *errors, xr_resources *r)
{
    const xray_workload load = xr_run_workload(run, role);
    const char *who = role == XRAY_ROLE_CRITIC      ? "critic"
                      : role == XRAY_ROLE_REWARD    ? "reward"
                      : role == XRAY_ROLE_REFERENCE ? "reference"
                                                    : run->train.instance;
    plan_role(run, role, who, &load, errors, r);
}

static void plan_trainer_roles(const xr_run *run, xr_errors *errors,
                               xr_resources *r)
{
    static const uint32_t others[] = { XRAY_ROLE_REFERENCE, XRAY_ROLE_CRITIC,
                                       XRAY_ROLE_REWARD };
    plan_trainer_role(run, XRAY_ROLE_ACTOR, errors, r);
    if (!r->count)
        return;
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
        if (xr_run_has_role(run, others[i]) &&
            xr_run_model(run, others[i])->config_json)
            plan_trainer_role(run, others[i], errors, r);
}

#define ROWS "rows" /* the rows that the core itself holds */

/* Adds the rows of a step: as sampled, as accepted by the algorithm, as
 * shuffled into mini-batches, and with their padding. */
static void plan_step_rows(const xr_run *run, xr_resources *r)
{
    const xr_run_config *ini = &run->ini;
    uint64_t row =
        (uint64_t)(ini->data.max_prompt_length + ini->data.max_response_length);
    uint64_t rows = (uint64_t)ini->sft.train_batch_size;
    uint64_t stores = 1;
    if (!r->machine.host_memory || !(run->with & XR_TRAINABLE))
        return;
    if (run->with & XR_WITH_ALGO) {
        rows = xr_step_rows(ini);
        stores += ini->actor.shuffle || ini->critic.shuffle;
        stores += run->algo.component &&
                  XRAY_HAS(xray_algo_ops, xr_algo(run), accept);
    }
    stores += xr_run_layout(run, XRAY_ROLE_ACTOR)->token_multiple > 1;
    uint64_t bytes = xr_rows_bytes(rows, rows * row, rows);
    if (bytes == UINT64_MAX)
        return; /* too many tokens, which has an error of its own */
    xray_plan plan = { .header = XRAY_HEADER(xray_plan) };
    plan.bytes[XRAY_TAG_WORKSPACE] = bytes * stores;
    take_rank_plan(begin_part_plan(r, NULL, ROWS), 0, &plan);
    r->count++;
}

/* Adds the scratch memory that the device of each rank takes for the work of
 * all models there. */
static void plan_devices(const xr_run *run, xr_resources *r)
{
    const xray_device_ops *ops = (const xray_device_ops *)run->device.ops;
    const uint32_t threads = (uint32_t)run->ini.run.threads;
    if (!run->device.component || !run->device.config)
        return;
    xr_part_plan *device =
        begin_part_plan(r, &run->device, run->device.instance);
    device->ranks = run->placement.size;
    for (uint32_t rank = 0; rank < device->ranks; rank++) {
        xray_device_work works[XR_PLANS];
        xray_plan plan = { .header = XRAY_HEADER(xray_plan) };
        uint64_t count = 0;
        for (size_t p = 0; p < r->count; p++) {
            const xr_part_plan *model = &r->parts[p];
            int64_t i = xr_ranks_find(xr_run_ranks(run, model->role), rank);
            if (i >= 0)
                works[count++] = model->works[i];
        }
        plan.bytes[XRAY_TAG_WORKSPACE] = ops->plan_scratch(
            run->device.config, threads, works, count, sizeof(works[0]));
        take_rank_plan(device, rank, &plan);
    }
    r->count++;
}

xray_status xr_resources_works(const xr_run *run, uint32_t rank,
                               xray_device_work *works, uint64_t *out_count)
{
    uint64_t count = 0;
    *out_count = 0;
    for (uint32_t role = 1; role <= XRAY_ROLE_REWARD; role++) {
        int64_t i = xr_ranks_find(xr_run_ranks(run, role), rank);
        xray_plan plan;
        if (!xr_run_has_role(run, role) || i < 0)
            continue;
        xray_workload load = xr_run_workload(run, role);
        works[count] = (xray_device_work){ XRAY_HEADER(xray_device_work) };
        load.device_work = &works[count];
        xray_status status =
            xr_run_ask_plan(run, role, (uint32_t)i, &load, &plan);
        if (status != XRAY_OK)
            return status;
        if (works[count].tokens == 0)
            return XRAY_OK;
        count++;
    }
    *out_count = count;
    return XRAY_OK;
}

static void plan_engine(const xr_run *run, xr_errors *errors, xr_resources *r)
{
    xray_workload load = xr_run_workload(run, XRAY_ROLE_ROLLOUT);
    if (r->count && r->parts[0].plan.sharded)
        load.shared = 0;
    plan_role(run, XRAY_ROLE_ROLLOUT, run->infer.instance, &load, errors, r);
}

/* A model that the core cannot parse is left to its backend. */
static void count_parameters(const xr_run *run, xr_resources *r)
{
    xm_config config;
    if (xm_config_parse(run->actor.json, "config.json", NULL, &config) ==
        XRAY_OK)
        r->parameters = xm_config_param_count(&config);
}

/* Returns the bytes of a model's weights and optimizer in a checkpoint. All
 * ranks write their shards to the same files, so the plan of one rank is not
 * enough if there are several. Of a model that the core cannot parse, one
 * replica is counted. */
static uint64_t saved_model_bytes(const xr_run *run, const xr_resources *r,
                                  const xr_part_plan *p)
{
    const uint32_t width = xr_run_layout(run, p->role)->width;
    uint64_t weights = 0;
    uint64_t optimizer = 0;
    if (r->parameters && p->ranks > 1)
        return add_saturated(r->parameters * sizeof(float),
                             2 * r->parameters * sizeof(float));
    for (uint32_t i = 0; i < width; i++) {
        weights = add_saturated(weights, p->tags[i][XRAY_TAG_WEIGHTS]);
        optimizer = add_saturated(optimizer, p->tags[i][XRAY_TAG_OPTIMIZER]);
    }
    if (p == r->parts && r->parameters)
        weights = r->parameters * sizeof(float);
    for (uint32_t i = 0; i < width; i++)
        optimizer = add_saturated(optimizer, p->plan.offloaded);
    return add_saturated(weights, optimizer);
}

static void count_checkpoint_bytes(const xr_run *run, xr_resources *r)
{
    r->checkpoint_bytes = saved_model_bytes(run, r, &r->parts[0]);
    for (size_t p = 1; p < r->count; p++)
        if (strcmp(r->parts[p].who, "critic") == 0)
            r->checkpoint_bytes = add_saturated(
                r->checkpoint_bytes, saved_model_bytes(run, r, &r->parts[p]));
}

void xr_resources_plan(xr_run *run, xr_errors *errors, xr_resources *out)
{
    *out = (xr_resources){ .count = 0 };
    out->machine.header = (xray_header)XRAY_HEADER(xray_device_plan);
    if (run->device.component && run->device.config) {
        const xray_device_ops *ops = (const xray_device_ops *)run->device.ops;
        xray_status status =
            XR_CALL_TIMED(&run->device, "plan",
                          ops->plan(xr_host_api(run->device.host),
                                    run->device.config, &out->machine));
        if (status != XRAY_OK)
            xr_run_report_plan(run, &run->device, status, errors);
    }
    xr_run_reset_layouts(run);
    if (!run->actor.model.config_json)
        return;
    xr_run_plan_layouts(run, errors);
    count_parameters(run, out);
    if (run->train.component && run->train.config)
        plan_trainer_roles(run, errors, out);
    if (out->count && (run->with & XR_TRAINABLE))
        count_checkpoint_bytes(run, out);
    if (run->infer.component && run->infer.config)
        plan_engine(run, errors, out);
    if (out->count) {
        plan_devices(run, out);
        plan_step_rows(run, out);
    }
    xr_resources_turns(run, errors, out);
}

/* ---- memory ------------------------------------------------------------- */

static int is_sft_run(const xr_run *run)
{
    return (run->with & XR_TRAINABLE) && !(run->with & XR_WITH_ALGO);
}

typedef struct memory_key {
    const char *section;
    const char *key;
    const char *how;
} memory_key;

/* Returns the key that reduces the memory of a tag of a part. In host memory,
 * each thread of a device has its own scratch memory. */
static memory_key find_shrinking_key(const xr_run *run, const xr_resources *r,
                                     const char *who, size_t tag)
{
    const char *device = run->device.instance;
    if (strcmp(who, ROWS) == 0)
        return (memory_key){ is_sft_run(run) ? "sft" : "data",
                             "train_batch_size", "lower" };
    int scratch = device && strcmp(who, device) == 0;
    if (scratch && r->machine.host_memory)
        return (memory_key){ "run", "threads", "lower" };
    int micro = tag == XRAY_TAG_ACTIVATIONS || tag == XRAY_TAG_WORKSPACE;
    int engine =
        (run->infer.instance && strcmp(who, run->infer.instance) == 0) ||
        (scratch && !(run->with & XR_TRAINABLE));
    if (tag == XRAY_TAG_KV || (engine && micro))
        return (memory_key){ "rollout", "max_num_seqs", "lower" };
    if (micro && strcmp(who, "critic") == 0)
        return (memory_key){ "critic", "ppo_max_token_len_per_gpu", "lower" };
    if (micro)
        return is_sft_run(run)
                   ? (memory_key){ "sft", "max_token_len", "lower" }
                   : (memory_key){ "actor", "ppo_max_token_len_per_gpu",
                                   "lower" };
    return (memory_key){ "model", "path", "a smaller model in" };
}

/* Returns the tag that takes the most memory (`rank` 0) or the second most (1).
 */
static size_t find_biggest_tag(const xr_resources *r, int rank,
                               uint64_t *out_bytes, const char **out_who)
{
    uint64_t bound = UINT64_MAX;
    size_t best = 0;
    for (int i = 0; i <= rank; i++) {
        *out_bytes = 0;
        for (size_t p = 0; p < r->count; p++)
            for (size_t t = 0; t < XRAY_TAG_COUNT; t++) {
                uint64_t bytes = r->parts[p].plan.bytes[t];
                if (bytes < bound && bytes > *out_bytes) {
                    *out_bytes = bytes;
                    *out_who = r->parts[p].who;
                    best = t;
                }
            }
        bound = *out_bytes;
    }
    return best;
}

int xr_resources_check_memory(const xr_run *run, const xr_resources *r,
                              xr_err *out)
{
    char need[XR_BYTES_CAP];
    char have[XR_BYTES_CAP];
    char first[XR_BYTES_CAP];
    char second[XR_BYTES_CAP];
    uint64_t one = 0;
    uint64_t two = 0;
    const char *who[2] = { "", "" };
    double share = (double)r->bytes / (double)r->machine.memory_bytes;
    out->text[0] = '\0';
    if (!r->machine.memory_bytes || !r->count || share <= 0.9)
        return 0;
    size_t tag = find_biggest_tag(r, 0, &one, &who[0]);
    size_t next = find_biggest_tag(r, 1, &two, &who[1]);
    memory_key a = find_shrinking_key(run, r, who[0], tag);
    memory_key b = find_shrinking_key(run, r, who[1], next);
    int same = strcmp(a.key, b.key) == 0;
    (void)xr_fail(
        out, XRAY_E_CONFIG,
        "%s: [%s] %s: the run needs %s of memory and %s has %s; the largest "
        "parts are %s of %s in %s and %s of %s in %s: %s [%s] %s%s%s%s%s%s%s",
        xr_config_location(run->config, a.section, a.key), a.section, a.key,
        xr_bytes_text(r->bytes, need),
        run->device.instance ? run->device.instance : "the device",
        xr_bytes_text(r->machine.memory_bytes, have), xr_bytes_text(one, first),
        xr_tag_name(tag), who[0], xr_bytes_text(two, second), xr_tag_name(next),
        who[1], a.how, a.section, a.key, same ? "" : ", or ", same ? "" : b.how,
        same ? "" : " [", same ? "" : b.section, same ? "" : "] ",
        same ? "" : b.key);
    return share > 1 ? 2 : 1;
}

/* ---- a step ------------------------------------------------------------- */

static uint64_t divide_up(uint64_t a, uint64_t b)
{
    return b ? (a + b - 1) / b : 0;
}

static void size_train_step(const xr_run_config *ini, xr_step_size *out)
{
    out->prompts = (uint64_t)ini->data.train_batch_size;
    out->samples = (uint64_t)ini->rollout.n;
    out->rows = xr_step_rows(ini);
    out->epochs = (uint64_t)ini->actor.ppo_epochs;
    uint64_t mini = (uint64_t)ini->actor.ppo_mini_batch_size;
    mini = mini ? mini : out->prompts;
    out->mini_batches = mini ? out->prompts / mini : 0;
    out->mini_rows = mini * out->samples;
    out->micro_tokens = (uint64_t)ini->actor.ppo_max_token_len_per_gpu;
    out->prompt_tokens = out->prompts * (uint64_t)ini->data.max_prompt_length;
    out->response_tokens = out->rows * (uint64_t)ini->data.max_response_length;
}

static void size_sft_step(const xr_run_config *ini, xr_step_size *out)
{
    out->prompts = out->rows = out->mini_rows =
        (uint64_t)ini->sft.train_batch_size;
    out->samples = out->epochs = out->mini_batches = 1;
    out->micro_tokens = (uint64_t)ini->sft.max_token_len;
}

void xr_step_size_of(const xr_run *run, const xr_resources *r,
                     xr_step_size *out)
{
    const xr_data_section *data = &run->ini.data;
    *out =
        (xr_step_size){ .row_tokens = (uint64_t)(data->max_prompt_length +
                                                 data->max_response_length) };
    if (!(run->with & XR_TRAINABLE))
        return;
    if (is_sft_run(run))
        size_sft_step(&run->ini, out);
    else
        size_train_step(&run->ini, out);
    if (out->micro_tokens < out->row_tokens)
        out->micro_tokens = out->row_tokens;
    const xr_layout *layout = xr_run_layout(run, XRAY_ROLE_ACTOR);
    out->micro_tokens =
        xr_layout_tokens(layout, out->micro_tokens, out->row_tokens);
    out->tokens = out->rows * out->row_tokens;
    int shares = !is_sft_run(run) && run->ini.actor.share_prompts;
    uint64_t unit = shares ? out->samples : 1; /* rows that stay together */
    out->micro_batches =
        out->row_tokens
            ? divide_up(out->mini_rows / unit,
                        out->micro_tokens / (unit * out->row_tokens))
            : 0;
    if (layout->micro_multiple > 1)
        out->micro_batches =
            divide_up(out->micro_batches, layout->micro_multiple) *
            layout->micro_multiple;
    out->computed =
        shares ? out->prompt_tokens + out->response_tokens : out->tokens;
    double p = (double)r->parameters;
    out->sampling_flops =
        2 * p * (double)(out->prompt_tokens + out->response_tokens);
    if (run->needs & XRAY_NEED_REFERENCE)
        out->reference_flops = 2 * p * (double)out->tokens;
    if (run->needs & XRAY_NEED_CRITIC)
        out->critic_flops = (2 + 6 * (double)run->ini.critic.ppo_epochs) * p *
                            (double)out->tokens;
    out->update_flops = 6 * p * (double)out->computed * (double)out->epochs;
}
