/* SPDX-License-Identifier: Apache-2.0
 *
 * Asks the backends how the ranks of each role hold its model, and fits batches
 * to it.
 */
#include <stdio.h>
#include <string.h>

#include "core/base/elements.h"
#include "core/run/hosts.h"
#include "core/run/replicas.h"
#include "core/run/run_setup.h"

const xr_layout *xr_run_layout(const xr_run *run, uint32_t role)
{
    return &run->layouts[role];
}

const char *xr_axes_text(const xr_layout *layout, char *buffer)
{
    size_t used = 0;
    (void)snprintf(buffer, XR_AXES_CAP, "no axes");
    for (uint32_t i = 0; i < layout->axis_count; i++)
        used += (size_t)snprintf(buffer + used, XR_AXES_CAP - used, "%s%s %u",
                                 i ? ", " : "", layout->axes[i].name,
                                 layout->axes[i].size);
    return buffer;
}

/* ---- one plan ----------------------------------------------------------- */

xray_status xr_run_ask_plan(const xr_run *run, uint32_t role, uint32_t rank,
                            const xray_workload *load, xray_plan *out)
{
    const xr_part *part = xr_run_part_of(run, role);
    const xray_model *model = xr_run_model(run, role);
    xray_world world = xr_run_world(run, role);
    world.rank = rank;
    *out = (xray_plan){ .header = XRAY_HEADER(xray_plan) };
    if (role == XRAY_ROLE_ROLLOUT)
        return XR_CALL_TIMED(part, "plan",
                             xr_infer(run)->plan(xr_host_api(part->host),
                                                 part->config, model, &world,
                                                 load, out));
    return XR_CALL_TIMED(part, "plan",
                         xr_train(run)->plan(xr_host_api(part->host),
                                             part->config, model, &world, load,
                                             out));
}

/* Two roles, or two ranks, that fail for the same reason give one error. */
static void add_once(xr_errors *errors, const char *text)
{
    for (size_t i = 0; i < errors->count; i++)
        if (strcmp(errors->items[i], text) == 0)
            return;
    xr_errors_add(errors, "%s", text);
}

void xr_run_report_plan(const xr_run *run, const xr_part *part,
                        xray_status status, xr_errors *errors)
{
    xr_err err = { "" };
    (void)xr_host_error(part->host, status, "plan", &err);
    xr_run_locate(run, &err);
    add_once(errors, err.text + err.location.name_begin);
}

/* ---- from a plan to a layout -------------------------------------------- */

static const char *find_bad_name(const xr_layout *layout, const char *name)
{
    if (!name || !*name || strlen(name) >= XR_AXIS_NAME_CAP)
        return "expected 1 to 31 characters";
    if (strcmp(name, XRAY_AXIS_DATA) == 0 ||
        strcmp(name, XRAY_AXIS_REPLICA) == 0)
        return "which is the core's";
    for (uint32_t i = 0; i < layout->axis_count; i++)
        if (strcmp(layout->axes[i].name, name) == 0)
            return "which another axis has";
    return NULL;
}

static xray_status take_axes(const xray_plan *plan, xr_err *err, xr_layout *out)
{
    if (plan->axis_count > XRAY_AXES || (plan->axis_count && !plan->axes))
        return xr_fail(err, XRAY_E_BUG,
                       "%u axes, expected a list of at most %u",
                       plan->axis_count, XRAY_AXES);
    for (uint32_t i = 0; i < plan->axis_count; i++) {
        xray_axis axis;
        xr_element_read(plan->axes, plan->axis_stride, i, sizeof(axis), &axis);
        const char *wrong = find_bad_name(out, axis.name);
        if (wrong)
            return xr_fail(err, XRAY_E_BUG, "axis %u has the name \"%s\", %s",
                           i, axis.name ? axis.name : "", wrong);
        if (!axis.size || axis.size > UINT32_MAX / out->width)
            return xr_fail(
                err, XRAY_E_BUG,
                "the axis %s has %u ranks, expected at least 1 and a "
                "width below 2^32",
                axis.name, axis.size);
        xr_axis *to = &out->axes[out->axis_count++];
        (void)snprintf(to->name, sizeof(to->name), "%s", axis.name);
        to->size = axis.size;
        out->width *= axis.size;
    }
    return XRAY_OK;
}

static xray_status take_layout(const xray_plan *plan, uint32_t ranks,
                               xr_err *err, xr_layout *out)
{
    *out = (xr_layout){ .width = 1,
                        .answers = plan->answers,
                        .micro_multiple =
                            plan->micro_multiple ? plan->micro_multiple : 1,
                        .token_multiple =
                            plan->token_multiple ? plan->token_multiple : 1,
                        .segments = plan->segments };
    xray_status status = take_axes(plan, err, out);
    if (status != XRAY_OK)
        return status;
    out->replicas = ranks / out->width;
    if (out->answers >= out->width)
        return xr_fail(err, XRAY_E_BUG,
                       "rank %u of a replica of %u ranks is to answer",
                       out->answers, out->width);
    if (plan->numerics && strlen(plan->numerics) >= sizeof(out->numerics))
        return xr_fail(err, XRAY_E_BUG,
                       "the id of the numerics has %zu characters, expected at "
                       "most %d",
                       strlen(plan->numerics), XR_NUMERICS_CAP - 1);
    (void)snprintf(out->numerics, sizeof(out->numerics), "%s",
                   plan->numerics ? plan->numerics : "");
    return XRAY_OK;
}

/* ---- comparing ranks ---------------------------------------------------- */

static int have_equal_axes(const xr_layout *a, const xr_layout *b)
{
    char x[XR_AXES_CAP];
    char y[XR_AXES_CAP];
    return strcmp(xr_axes_text(a, x), xr_axes_text(b, y)) == 0;
}

/* Rank 0 planned `a` and rank `rank` planned `b`. */
static xray_status compare_layouts(const xr_layout *a, const xr_layout *b,
                                   uint32_t rank, xr_err *err)
{
    char x[XR_AXES_CAP];
    char y[XR_AXES_CAP];
    const struct {
        const char *what;
        uint64_t of_a;
        uint64_t of_b;
    } numbers[] = {
        { "answers", a->answers, b->answers },
        { "micro_multiple", a->micro_multiple, b->micro_multiple },
        { "token_multiple", a->token_multiple, b->token_multiple },
        { "segments", a->segments, b->segments },
    };
    if (!have_equal_axes(a, b))
        return xr_fail(err, XRAY_E_BUG,
                       "ranks 0 and %u plan different axes: %s and %s", rank,
                       xr_axes_text(a, x), xr_axes_text(b, y));
    if (strcmp(a->numerics, b->numerics) != 0)
        return xr_fail(err, XRAY_E_BUG,
                       "ranks 0 and %u plan different numerics: \"%s\" and "
                       "\"%s\"",
                       rank, a->numerics, b->numerics);
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
        if (numbers[i].of_a != numbers[i].of_b)
            return xr_fail(err, XRAY_E_BUG,
                           "ranks 0 and %u plan different %s: %llu and %llu",
                           rank, numbers[i].what,
                           (unsigned long long)numbers[i].of_a,
                           (unsigned long long)numbers[i].of_b);
    return XRAY_OK;
}

/* ---- placement ---------------------------------------------------------- */

/* Returns the key of [placement] for a role. */
static const char *placement_key(uint32_t role)
{
    return role == XRAY_ROLE_ROLLOUT     ? "rollout"
           : role == XRAY_ROLE_CRITIC    ? "critic"
           : role == XRAY_ROLE_REFERENCE ? "reference"
           : role == XRAY_ROLE_REWARD    ? "reward"
                                         : "actor";
}

static int is_set_key(const xr_run *run, const char *section, const char *key)
{
    return strcmp(xr_config_origin(run->config, section, key), "default") != 0;
}

/* A role without ranks of its own is where the actor is. */
static void report_width(const xr_run *run, uint32_t role,
                         const xr_layout *layout, xr_errors *errors)
{
    char axes[XR_AXES_CAP];
    const char *name = placement_key(role);
    const char *section = "placement";
    const char *key = name;
    if (!is_set_key(run, section, key))
        key = "actor";
    if (!is_set_key(run, section, key)) {
        section = "run";
        key = "ranks";
    }
    xr_errors_add(
        errors, "%s: [%s] %s: %s: %u ranks, but %s needs groups of %u (%s)",
        xr_config_location(run->config, section, key), section, key, name,
        xr_run_ranks(run, role)->count,
        (role == XRAY_ROLE_ROLLOUT ? &run->infer : &run->train)->instance,
        layout->width, xr_axes_text(layout, axes));
}

static void plan_layout(xr_run *run, uint32_t role, xr_errors *errors)
{
    const xr_part *part = xr_run_part_of(run, role);
    const xray_workload load = xr_run_workload(run, role);
    const uint32_t ranks = xr_run_ranks(run, role)->count;
    xr_layout first = { 0 };
    for (uint32_t i = 0; i < ranks; i++) {
        xray_plan plan;
        xr_layout own;
        xr_err err = { "" };
        xray_status status = xr_run_ask_plan(run, role, i, &load, &plan);
        if (status != XRAY_OK) {
            xr_run_report_plan(run, part, status, errors);
            return;
        }
        status = take_layout(&plan, ranks, &err, i ? &own : &first);
        if (status == XRAY_OK && i)
            status = compare_layouts(&first, &own, i, &err);
        if (status != XRAY_OK) {
            xr_errors_add(errors, "%s: plan: %s", part->instance, err.text);
            return;
        }
    }
    if (ranks % first.width != 0)
        report_width(run, role, &first, errors);
    else
        run->layouts[role] = first;
}

void xr_run_reset_layouts(xr_run *run)
{
    for (uint32_t role = 1; role <= XRAY_ROLE_REWARD; role++)
        run->layouts[role] =
            (xr_layout){ .width = 1,
                         .replicas = xr_run_ranks(run, role)->count,
                         .micro_multiple = 1,
                         .token_multiple = 1 };
}

/* ---- micro-batches ------------------------------------------------------ */

static uint64_t round_up(uint64_t value, uint64_t multiple)
{
    return (value + multiple - 1) / multiple * multiple;
}

uint64_t xr_layout_tokens(const xr_layout *layout, uint64_t tokens,
                          uint64_t row_tokens)
{
    const uint64_t multiple = layout->token_multiple;
    if (multiple <= 1)
        return tokens;
    const uint64_t fits = tokens / multiple * multiple;
    const uint64_t least = round_up(row_tokens, multiple);
    return fits > least ? fits : least;
}

/* The keys that bound the micro-batches of a role. */
typedef struct micro_keys {
    const char *section;
    const char *key;
    int64_t tokens;
    int64_t shares; /* 1: a group stays together */
} micro_keys;

static micro_keys find_micro_keys(const xr_run *run, uint32_t role)
{
    static const char key[] = "ppo_max_token_len_per_gpu";
    const xr_run_config *ini = &run->ini;
    if (!(run->with & XR_WITH_ALGO))
        return (micro_keys){ "sft", "max_token_len", ini->sft.max_token_len,
                             0 };
    if (role == XRAY_ROLE_CRITIC && is_set_key(run, "critic", key))
        return (micro_keys){ "critic", key,
                             ini->critic.ppo_max_token_len_per_gpu,
                             ini->critic.share_prompts };
    return (micro_keys){ "actor", key, ini->actor.ppo_max_token_len_per_gpu,
                         role == XRAY_ROLE_ACTOR && ini->actor.share_prompts };
}

/* Rows that must not be cut, padded to a multiple, must fit the micro-batch
 * that the INI allows. */
static void check_token_multiple(const xr_run *run, uint32_t role,
                                 xr_errors *errors)
{
    xr_err err = { "" };
    const uint64_t multiple = run->layouts[role].token_multiple;
    const micro_keys keys = find_micro_keys(run, role);
    uint64_t row = xr_run_workload(run, role).row_tokens;
    if (!(run->with & XR_TRAINABLE) || multiple <= 1 ||
        role == XRAY_ROLE_ROLLOUT || role == XRAY_ROLE_REWARD ||
        xr_config_refused(run->config, keys.section, keys.key))
        return;
    if (keys.shares > 0)
        row *= (uint64_t)run->ini.rollout.n;
    /* Rows that do not fit without padding have an error of their own. */
    if ((uint64_t)keys.tokens < row ||
        (uint64_t)keys.tokens >= round_up(row, multiple))
        return;
    (void)xr_fail(&err, XRAY_E_CONFIG,
                  "%s: [%s] %s %lld cannot hold %s of %llu tokens that %s pads "
                  "to a multiple of %llu, expected at least %llu",
                  xr_config_location(run->config, keys.section, keys.key),
                  keys.section, keys.key, (long long)keys.tokens,
                  keys.shares > 0 ? "a group" : "a row",
                  (unsigned long long)row, xr_run_part_of(run, role)->instance,
                  (unsigned long long)multiple,
                  (unsigned long long)round_up(row, multiple));
    add_once(errors, err.text);
}

/* ---- segments ----------------------------------------------------------- */

/* Returns the most rows of a segment. Karmarkar and Karp's parts differ by no
 * more than one unit, so none has more units of full length than an equal share
 * of them, rounded up. */
static uint64_t count_segment_rows(const xr_run *run, uint32_t role,
                                   uint64_t segments)
{
    const xr_run_config *ini = &run->ini;
    const int critic = role == XRAY_ROLE_CRITIC;
    const uint64_t n = (uint64_t)ini->rollout.n;
    uint64_t prompts = (uint64_t)(critic ? ini->critic.ppo_mini_batch_size
                                         : ini->actor.ppo_mini_batch_size);
    if (!(run->with & XR_WITH_ALGO))
        return round_up((uint64_t)ini->sft.train_batch_size, segments) /
               segments;
    if (!prompts)
        prompts = (uint64_t)ini->data.train_batch_size;
    if (critic ? ini->critic.shuffle : ini->actor.shuffle)
        return round_up(prompts * n, segments) / segments;
    return round_up(prompts, segments) / segments * n;
}

/* A segment that is one micro-batch must fit it, whatever the lengths. */
static void check_segment_rows(const xr_run *run, uint32_t role,
                               uint64_t segments, xr_errors *errors)
{
    const micro_keys keys = find_micro_keys(run, role);
    const uint64_t row = xr_run_workload(run, role).row_tokens;
    const uint64_t rows = count_segment_rows(run, role, segments);
    if ((uint64_t)keys.tokens >= rows * row ||
        xr_config_refused(run->config, keys.section, keys.key))
        return;
    xr_errors_add(
        errors,
        "%s: [%s] %s %lld cannot hold one of %llu segments of the mini-batch, "
        "of up to %llu rows of %llu tokens, which %s computes at once; "
        "expected at least %llu, or more layout_segments",
        xr_config_location(run->config, keys.section, keys.key), keys.section,
        keys.key, (long long)keys.tokens, (unsigned long long)segments,
        (unsigned long long)rows, (unsigned long long)row,
        xr_run_part_of(run, role)->instance, (unsigned long long)(rows * row));
}

/* Says why the replicas of a role cannot add up segments; NULL if they can. */
static const char *find_bad_segments(const xr_run *run, uint32_t role,
                                     uint32_t segments, char why[256])
{
    const xr_layout *layout = &run->layouts[role];
    if (segments & (segments - 1))
        (void)snprintf(why, 256, "%u is not a power of two", segments);
    else if (!layout->segments)
        (void)snprintf(why, 256,
                       "%s cannot add up gradients in %u segments, expected 0, "
                       "or a backend that can",
                       xr_run_part_of(run, role)->instance, segments);
    else if (segments % layout->replicas)
        (void)snprintf(why, 256,
                       "the %u replicas of %s do not divide %u segments, "
                       "expected a power of two up to %u of them",
                       layout->replicas, placement_key(role), segments,
                       segments);
    else
        return NULL;
    return why;
}

static void check_segments(const xr_run *run, uint32_t role, xr_errors *errors)
{
    char why[256];
    xr_err err = { "" };
    const uint32_t segments = xr_run_workload(run, role).segments;
    if (!segments || xr_config_refused(run->config, "run", "layout_segments"))
        return;
    if (find_bad_segments(run, role, segments, why)) {
        (void)xr_fail(&err, XRAY_E_CONFIG, "%s: [run] layout_segments: %s",
                      xr_config_location(run->config, "run", "layout_segments"),
                      why);
        add_once(errors, err.text);
        return;
    }
    if (run->layouts[role].segments == XRAY_SEGMENTS_IN_TURN)
        check_segment_rows(run, role, segments, errors);
}

/* ---- contexts ----------------------------------------------------------- */

/* The ranks of a replica that divide rows. */
static uint32_t count_context(const xr_layout *layout)
{
    for (uint32_t i = 0; i < layout->axis_count; i++)
        if (strcmp(layout->axes[i].name, XRAY_AXIS_CONTEXT) == 0)
            return layout->axes[i].size;
    return 1;
}

/* Ranks that divide rows cannot compute the prompt of several rows once. */
static void check_shared_prompts(const xr_run *run, uint32_t role,
                                 xr_errors *errors)
{
    xr_err err = { "" };
    const char *section = role == XRAY_ROLE_ACTOR ? "actor" : "critic";
    const uint32_t ranks = count_context(&run->layouts[role]);
    int64_t shares = role == XRAY_ROLE_ACTOR ? run->ini.actor.share_prompts
                                             : run->ini.critic.share_prompts;
    if (!(run->with & XR_WITH_ALGO) || ranks < 2 || shares <= 0 ||
        (role != XRAY_ROLE_ACTOR && role != XRAY_ROLE_CRITIC) ||
        xr_config_refused(run->config, section, "share_prompts"))
        return;
    (void)xr_fail(&err, XRAY_E_CONFIG,
                  "%s: [%s] share_prompts: %s divides each row among %u ranks, "
                  "which cannot compute the prompt of several rows once: it "
                  "must be false",
                  xr_config_location(run->config, section, "share_prompts"),
                  section, xr_run_part_of(run, role)->instance, ranks);
    add_once(errors, err.text);
}

const char *xr_run_numerics(const xr_run *run, uint32_t role)
{
    const xray_component *component = xr_run_part_of(run, role)->component;
    const char *planned = xr_run_layout(run, role)->numerics;
    if (*planned)
        return planned;
    return component && XRAY_HAS(xray_component, component, numerics)
               ? component->numerics
               : NULL;
}

const char *xr_run_device_numerics(const xr_run *run)
{
    xray_device_plan plan = { .header = XRAY_HEADER(xray_device_plan) };
    const xray_device_ops *ops = (const xray_device_ops *)run->device.ops;
    return run->device.component && run->device.config &&
                   ops->plan(NULL, run->device.config, &plan) == XRAY_OK
               ? plan.numerics
               : NULL;
}

/* Trainer and engine keep the same contract whatever components they are. */
static int keep_one_contract(const xr_run *run)
{
    const char *train = xr_run_numerics(run, XRAY_ROLE_ACTOR);
    const char *infer = xr_run_numerics(run, XRAY_ROLE_ROLLOUT);
    return train && infer && strcmp(train, infer) == 0;
}

void xr_run_plan_layouts(xr_run *run, xr_errors *errors)
{
    xr_run_reset_layouts(run);
    for (uint32_t role = 1; role <= XRAY_ROLE_REWARD; role++) {
        const xr_part *part = xr_run_part_of(run, role);
        if (!xr_run_has_role(run, role) || !part->component || !part->config ||
            !xr_run_model(run, role)->config_json)
            continue;
        plan_layout(run, role, errors);
        check_token_multiple(run, role, errors);
        check_segments(run, role, errors);
        check_shared_prompts(run, role, errors);
    }
    xr_run_share_sequences(run);
    run->exact = keep_one_contract(run);
    run->rollout.load.shared &=
        xr_replicas_match(run, XRAY_ROLE_ACTOR, XRAY_ROLE_ROLLOUT) ? 1u : 0u;
    xr_hosts_check_tls(run, errors);
}
