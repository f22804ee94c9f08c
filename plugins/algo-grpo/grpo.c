/* SPDX-License-Identifier: Apache-2.0
 *
 * Group relative policy optimisation and its critic-free relatives: a sample's
 * advantage is its reward against the other samples of the same prompt.
 */
#include <stdlib.h>
#include <string.h>

#include <xray/algo.h>
#include <xray/plugin.h>

#include "plugins/algo-grpo/loss.h"
#include "plugins/algo-grpo/prepare.h"
#include "plugins/algo-grpo/rule.h"

typedef struct grpo {
    const xray_host *host;
    grpo_rule rule;
    grpo_workspace work;
} grpo;

static xray_status grpo_create(const xray_host *host, const void *config,
                               void **out_self)
{
    grpo_rule rule;
    xray_status status = grpo_rule_resolve(host, config, &rule);
    if (status != XRAY_OK)
        return status;
    grpo *self = malloc(sizeof(*self));
    if (!self)
        return host->fail(host, XRAY_E_NOMEM, "create", "out of memory");
    *self = (grpo){ .host = host, .rule = rule };
    *out_self = self;
    return XRAY_OK;
}

static void grpo_destroy(void *ptr)
{
    grpo *self = ptr;
    if (!self)
        return;
    grpo_workspace_free(&self->work);
    free(self);
}

static xray_status grpo_needs(void *ptr, xray_needs *out)
{
    const grpo *self = ptr;
    out->flags = XRAY_NEED_GROUPS;
    if (self->rule.kl_loss.use || self->rule.kl_reward.use)
        out->flags |= XRAY_NEED_REFERENCE;
    if (self->rule.entropy_coeff != 0)
        out->flags |= XRAY_NEED_ENTROPY;
    return XRAY_OK;
}

static xray_status prepare(void *ptr, xray_batch *batch,
                           const xray_metric_sink *metrics)
{
    grpo *self = ptr;
    return grpo_prepare(self->host, &self->rule, &self->work, batch, metrics);
}

static xray_status grpo_make_context(void *ptr, const xray_batch *mini,
                                     const xray_totals *totals, void *out,
                                     uint64_t cap, uint64_t *out_size)
{
    const grpo *self = ptr;
    const grpo_rule *rule = &self->rule;
    (void)mini;
    *out_size = sizeof(grpo_context);
    if (cap < sizeof(grpo_context))
        return XRAY_E_RANGE;
    grpo_context context = {
        .size = sizeof(context),
        .clip = rule->clip,
        .counts = { .rows = (double)totals->rows,
                    .tokens = totals->tokens,
                    .scale = rule->loss_scale_factor > 0
                                 ? rule->loss_scale_factor
                                 : (double)totals->max_response },
        .loss_agg_mode = rule->loss_agg_mode,
        .kl_type = rule->kl_loss.type,
        .use_kl = (uint32_t)rule->kl_loss.use,
        .kl_bounded = (uint32_t)rule->kl_loss.bounded,
        .kl_coefficient = rule->kl_loss.coefficient,
        .entropy_coeff = rule->entropy_coeff,
    };
    memcpy(out, &context, sizeof(context));
    return XRAY_OK;
}

static const xray_algo_ops ops = {
    .head = XRAY_HEAD(xray_algo_ops),
    .create = grpo_create,
    .destroy = grpo_destroy,
    .needs = grpo_needs,
    .prepare = prepare,
    .context = grpo_make_context,
    .metric_names = grpo_metric_names,
    .loss = grpo_loss,
};

static const xray_component component = {
    .head = XRAY_HEAD(xray_component),
    .iface = XRAY_IFACE_ALGO,
    .name = "grpo",
    .summary = "GRPO, Dr. GRPO and RLOO, each published variant by name",
    .ops = &ops,
    .options = grpo_options,
    .option_count = GRPO_OPTION_COUNT,
    .option_stride = sizeof(xray_option),
    .config_size = sizeof(grpo_config),
};

static const xray_component *const components[] = { &component };

static const xray_plugin plugin = {
    .head = XRAY_HEAD(xray_plugin),
    .abi_needed = XRAY_ABI,
    .component_count = 1,
    .name = "algo-grpo",
    .version = "0.1.0",
    .vendor = "xray",
    .license = "Apache-2.0",
    .components = components,
};

XRAY_PLUGIN_DEFINE(algo_grpo, plugin, "algo-grpo", "0.1.0", "xray.algo/0:grpo")
