/* SPDX-License-Identifier: Apache-2.0
 *
 * From a run to the parts of its step: which model computes how many
 * micro-batches in which layout.
 */
#include "core/run/predict.h"

#include <math.h>
#include <string.h>

typedef struct step {
    const xr_run *run;
    const xr_resources *resources;
    const xr_machine *machine;
    xr_step_size size;
    xr_prediction *out;
} step;

/* ---- layouts ------------------------------------------------------------ */

static const xr_part_plan *find_role_plan(const xr_resources *r, uint32_t role)
{
    for (size_t p = 0; p < r->count; p++)
        if (r->parts[p].role == role)
            return &r->parts[p];
    return NULL;
}

/* Takes the axes of a replica. Those that are neither for stages nor for
 * tokens divide each layer. */
static void take_axes(const xr_layout *from, xr_time_layout *to)
{
    uint32_t stride = 1;
    for (uint32_t i = 0; i < from->axis_count; i++) {
        const char *name = from->axes[i].name;
        xr_time_axis *axis =
            strcmp(name, XRAY_AXIS_PIPELINE) == 0  ? &to->pipeline
            : strcmp(name, XRAY_AXIS_CONTEXT) == 0 ? &to->context
                                                   : &to->tensor;
        if (axis->size == 1)
            axis->stride = stride;
        axis->size *= from->axes[i].size;
        stride *= from->axes[i].size;
    }
    to->data = (xr_time_axis){ from->replicas, from->width };
}

/* Returns the stage of ZeRO that the bytes of a plan show: a rank without
 * sharing has 4 bytes of gradients and 8 of moments for each element. */
static uint32_t find_zero_stage(const xr_part_plan *plan, double elements,
                                uint32_t replicas)
{
    const double gradients = (double)plan->plan.bytes[XRAY_TAG_GRADS];
    const double moments = (double)plan->plan.bytes[XRAY_TAG_OPTIMIZER];
    if (replicas < 2 || moments > 0.75 * 8 * elements)
        return 0;
    if (plan->plan.sharded)
        return 3;
    return gradients < 0.95 * 4 * elements ? 2 : 1;
}

static xr_time_layout make_layout(const step *s, uint32_t role,
                                  const xm_config *config)
{
    const xr_layout *from = xr_run_layout(s->run, role);
    const xr_part_plan *plan = find_role_plan(s->resources, role);
    xr_time_layout out = { .tensor = { 1, 1 },
                           .context = { 1, 1 },
                           .pipeline = { 1, 1 },
                           .chunks = 1,
                           .sum_bytes = sizeof(float),
                           .grad_bytes = sizeof(float),
                           .weight_bytes = sizeof(float) };
    take_axes(from, &out);
    if (plan) {
        out.chunks = plan->plan.chunks ? plan->plan.chunks : 1;
        out.sequence = plan->plan.sequence;
        out.again = plan->plan.recompute;
    }
    if (plan && role == XRAY_ROLE_ACTOR)
        out.zero =
            find_zero_stage(plan,
                            (double)xm_config_param_count(config) /
                                ((double)out.tensor.size * out.pipeline.size),
                            from->replicas);
    else if (plan && plan->plan.sharded)
        out.zero = 3;
    return out;
}

/* ---- models ------------------------------------------------------------- */

/* A model that the core cannot parse has no prediction. */
static int read_model(const step *s, uint32_t role, xm_config *out)
{
    const xray_model *model = xr_run_model(s->run, role);
    if (!model->config_json ||
        xm_config_parse(model->config_json, "config.json", NULL, out) !=
            XRAY_OK)
        return 0;
    out->dtype = model->dtype == XRAY_BF16 ? XRAY_BF16 : 0;
    /* A value head has one row. */
    if (role == XRAY_ROLE_CRITIC || role == XRAY_ROLE_REWARD)
        out->vocab = 1;
    return 1;
}

/* Divides the tokens of a pass among the replicas, and those of each into equal
 * micro-batches within the bound. */
static xr_time_work divide_tokens(const step *s, uint32_t role, double tokens)
{
    const xr_layout *layout = xr_run_layout(s->run, role);
    const double each = tokens / layout->replicas;
    const double multiple = (double)layout->micro_multiple;
    double count = ceil(each / (double)s->size.micro_tokens);
    count = ceil((count > 1 ? count : 1) / multiple) * multiple;
    return (xr_time_work){ each / count, (double)s->size.row_tokens, count };
}

static void add_part(step *s, const char *name, const xr_times *times)
{
    xr_part_time *part = &s->out->parts[s->out->count++];
    *part = (xr_part_time){ name, *times, xr_times_sum(times) };
    s->out->seconds += part->seconds;
}

/* ---- the parts of a step ------------------------------------------------ */

/* Predicts a pass over all rows without gradients. */
static void predict_forward(step *s, uint32_t role, const char *name)
{
    xm_config config;
    if (!read_model(s, role, &config))
        return;
    const xr_time_layout layout = make_layout(s, role, &config);
    const xr_time_model model = { &config, s->machine, &layout };
    const xr_time_work work = divide_tokens(s, role, (double)s->size.tokens);
    const xr_times times = xr_time_forward(&model, &work);
    add_part(s, name, &times);
}

/* Predicts the updates of a step; `tokens` are those of one epoch. */
static void predict_updates(step *s, uint32_t role, double tokens,
                            double epochs, const char *name)
{
    xm_config config;
    if (!read_model(s, role, &config) || !s->size.mini_batches)
        return;
    const double updates = epochs * (double)s->size.mini_batches;
    const xr_time_layout layout = make_layout(s, role, &config);
    const xr_time_model model = { &config, s->machine, &layout };
    const xr_time_work work =
        divide_tokens(s, role, tokens / (double)s->size.mini_batches);
    const xr_times one = xr_time_update(&model, &work);
    xr_times all = { { 0 } };
    xr_times_add(&all, &one, updates);
    add_part(s, name, &all);
    const double peak =
        config.dtype == XRAY_BF16 ? s->machine->flops : s->machine->flops32;
    if (role == XRAY_ROLE_ACTOR && peak > 0)
        s->out->mfu =
            3 * xr_time_flops(&config, work.row) * tokens * epochs /
            (peak * xr_run_ranks(s->run, role)->count * xr_times_sum(&all));
}

static void predict_rollout(step *s)
{
    xm_config config;
    const xr_layout *engines = xr_run_layout(s->run, XRAY_ROLE_ROLLOUT);
    const xray_workload load = xr_run_workload(s->run, XRAY_ROLE_ROLLOUT);
    const xr_data_section *data = &s->run->ini.data;
    if (!read_model(s, XRAY_ROLE_ROLLOUT, &config))
        return;
    const xr_time_layout layout = make_layout(s, XRAY_ROLE_ROLLOUT, &config);
    const xr_time_model model = { &config, s->machine, &layout };
    const xr_time_rollout work = {
        .rows = (double)s->size.rows / engines->replicas,
        .batch = (double)load.rows,
        .prompt = (double)data->max_prompt_length,
        .prompts = (double)s->size.prompts / engines->replicas,
        .response = (double)data->max_response_length
    };
    const xr_times times = xr_time_sample(&model, &work);
    add_part(s, "rollout", &times);
}

/* Predicts the way of new weights to engines that have a copy of their own. */
static void predict_publish(step *s)
{
    xm_config config;
    const xr_part_plan *actor = find_role_plan(s->resources, XRAY_ROLE_ACTOR);
    if (!read_model(s, XRAY_ROLE_ACTOR, &config) || !actor)
        return;
    if (xr_run_workload(s->run, XRAY_ROLE_ROLLOUT).shared &&
        !actor->plan.sharded)
        return;
    const xr_time_layout layout = make_layout(s, XRAY_ROLE_ACTOR, &config);
    const xr_time_model model = { &config, s->machine, &layout };
    const xr_times times = xr_time_publish(
        &model, xr_run_layout(s->run, XRAY_ROLE_ROLLOUT)->width);
    add_part(s, "weights", &times);
}

static void predict_training(step *s)
{
    const xr_run *run = s->run;
    const double tokens = (double)s->size.tokens;
    predict_rollout(s);
    if (!run->exact)
        predict_forward(s, XRAY_ROLE_ACTOR, "log-probs");
    if (xr_run_has_role(run, XRAY_ROLE_REFERENCE))
        predict_forward(s, XRAY_ROLE_REFERENCE, "reference");
    if (xr_run_has_role(run, XRAY_ROLE_REWARD))
        predict_forward(s, XRAY_ROLE_REWARD, "reward model");
    if (xr_run_has_role(run, XRAY_ROLE_CRITIC)) {
        predict_forward(s, XRAY_ROLE_CRITIC, "values");
        predict_updates(s, XRAY_ROLE_CRITIC, tokens,
                        (double)run->ini.critic.ppo_epochs, "critic");
    }
}

void xr_predict(const xr_run *run, const xr_resources *r,
                const xr_machine *machine, xr_prediction *out)
{
    step s = { .run = run, .resources = r, .machine = machine, .out = out };
    *out = (xr_prediction){ .count = 0 };
    xr_step_size_of(run, r, &s.size);
    if (!r->parameters || !s.size.rows)
        return;
    if (run->with & XR_WITH_ALGO)
        predict_training(&s);
    predict_updates(&s, XRAY_ROLE_ACTOR, (double)s.size.computed,
                    (double)s.size.epochs, "update");
    if (run->with & XR_WITH_ALGO)
        predict_publish(&s);
}
