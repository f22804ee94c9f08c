/* SPDX-License-Identifier: Apache-2.0
 *
 * The algorithm "grpo": group relative policy optimisation and its critic-free
 * relatives, in which the advantage of a sample is its reward relative to the
 * other samples of the same prompt.
 */
#include <stdlib.h>
#include <string.h>

#include <xray/algo.h>
#include <xray/plugin.h>

#include "plugins/algo-grpo/loss.h"
#include "plugins/algo-grpo/prepare.h"
#include "plugins/algo-grpo/rule.h"

static xray_status grpo_create(const xray_host *host, const void *config,
                               void **out_self)
{
    grpo_rule rule;
    xray_status status = grpo_rule_resolve(host, config, &rule);
    if (status != XRAY_OK)
        return status;
    grpo_driver *self = malloc(sizeof(*self));
    if (!self)
        return host->fail(host, XRAY_E_NOMEM, "create", "out of memory");
    *self = (grpo_driver){ .host = host,
                           .rule = rule,
                           .kl_coefficient = rule.kl_reward.coefficient,
                           .correction_scale = 1.0 };
    *out_self = self;
    return XRAY_OK;
}

static void grpo_destroy(void *ptr)
{
    grpo_driver *self = ptr;
    if (!self)
        return;
    grpo_workspace_free(&self->work);
    free(self);
}

static xray_status grpo_needs(void *ptr, xray_needs *out)
{
    const grpo_driver *self = ptr;
    const grpo_rule *rule = &self->rule;
    xray_needs own = { .header = XRAY_HEADER(xray_needs) };
    if (grpo_needs_groups(rule))
        own.flags |= XRAY_NEED_GROUPS;
    if (rule->loss.use_kl || rule->kl_reward.use)
        own.flags |= XRAY_NEED_REFERENCE;
    if (rule->loss.entropy_coeff != 0)
        own.flags |= XRAY_NEED_ENTROPY;
    if (rule->estimator.type == XM_RL_ADV_REMAX)
        own.flags |= XRAY_NEED_GREEDY;
    if (rule->loss.mode == GRPO_CLIP_COV || rule->loss.mode == GRPO_KL_COV)
        own.flags |= XRAY_NEED_MINI_FORWARD;
    xray_fill(out, &own);
    return XRAY_OK;
}

static xray_status grpo_prepare_step(void *ptr, xray_batch *batch,
                                     const xray_metric_sink *metrics)
{
    return grpo_prepare(ptr, batch, metrics);
}

static xray_status grpo_make_context(void *ptr, const xray_batch *mini,
                                     const xray_totals *totals, void *out,
                                     uint64_t cap, uint64_t *out_size)
{
    const grpo_driver *self = ptr;
    const grpo_rule *rule = &self->rule;
    *out_size = grpo_context_size(&rule->loss, mini);
    if (cap < *out_size)
        return XRAY_E_RANGE;
    grpo_context context = {
        .rule = rule->loss,
        .counts = { .rows = (double)totals->rows,
                    .tokens = totals->tokens,
                    .scale = rule->loss_scale_factor > 0
                                 ? rule->loss_scale_factor
                                 : (double)totals->max_response },
    };
    context.rule.correction_scale = self->correction_scale;
    if (rule->loss.correction.kind != XM_RL_RS_NONE) {
        if (!mini->old_logp || !mini->rollout_logp)
            return self->host->fail(self->host, XRAY_E_ARG, "context",
                                    "rollout_rs needs old_logp and "
                                    "rollout_logp");
        grpo_count(&rule->loss, mini, &context.counts);
    }
    grpo_context_write(&context, mini, out);
    return XRAY_OK;
}

static xray_status grpo_accept_groups(void *ptr, const xray_batch *batch,
                                      uint32_t groups, uint32_t *keep)
{
    return grpo_accept(ptr, batch, groups, keep);
}

static xray_status grpo_select_tokens(void *ptr, const xray_batch *mini,
                                      const float *logp, void *context,
                                      uint64_t size)
{
    const grpo_driver *self = ptr;
    xray_status status = grpo_select(mini, logp, context, size);
    return status == XRAY_OK
               ? XRAY_OK
               : self->host->fail(self->host, status, "select",
                                  "the context belongs to another mini-batch");
}

/* The coefficient of the KL in the reward is the entire state of a run. */
static xray_status grpo_save(void *ptr, void *out, uint64_t cap,
                             uint64_t *out_size)
{
    const grpo_driver *self = ptr;
    *out_size = sizeof(self->kl_coefficient);
    if (cap < *out_size)
        return XRAY_E_RANGE;
    memcpy(out, &self->kl_coefficient, sizeof(self->kl_coefficient));
    return XRAY_OK;
}

static xray_status grpo_load(void *ptr, const void *data, uint64_t size)
{
    grpo_driver *self = ptr;
    double value = 0;
    if (size == sizeof(value))
        memcpy(&value, data, sizeof(value));
    if (size != sizeof(value) || !(value >= 0 && value < 1e300))
        return self->host->fail(self->host, XRAY_E_ARG, "load",
                                "the state was not saved by this plugin");
    /* A fixed coefficient comes from the configuration, which may have
     * changed. */
    if (self->rule.kl_control.adaptive)
        self->kl_coefficient = value;
    return XRAY_OK;
}

static const void *grpo_extension(void *ptr, const char *id)
{
    (void)ptr;
    return strcmp(id, XRAY_ALGO_PRESETS) == 0 ? &grpo_preset_table : NULL;
}

static const xray_algo_ops ops = {
    .header = XRAY_HEADER(xray_algo_ops),
    .create = grpo_create,
    .destroy = grpo_destroy,
    .needs = grpo_needs,
    .prepare = grpo_prepare_step,
    .context = grpo_make_context,
    .metric_names = grpo_metric_names,
    .loss = grpo_loss,
    .accept = grpo_accept_groups,
    .select = grpo_select_tokens,
    .save = grpo_save,
    .load = grpo_load,
    .extension = grpo_extension,
};

static const xray_component component = {
    .header = XRAY_HEADER(xray_component),
    .iface = XRAY_IFACE_ALGO,
    .name = "grpo",
    .summary =
        "GRPO and the critic-free family, each published variant by name",
    .ops = &ops,
    .options = grpo_options,
    .option_count = GRPO_OPTION_COUNT,
    .option_stride = sizeof(xray_option),
    .config_size = sizeof(grpo_config),
};

static const xray_component *const components[] = { &component };

static const xray_plugin plugin = {
    .header = XRAY_HEADER(xray_plugin),
    .abi_needed = XRAY_ABI_NEEDED,
    .component_count = 1,
    .name = "algo-grpo",
    .version = "0.1.0",
    .vendor = "xray",
    .license = "Apache-2.0",
    .components = components,
};

XRAY_PLUGIN_DEFINE(algo_grpo, plugin, "algo-grpo", "0.1.0", "xray.algo/0:grpo")
