/* SPDX-License-Identifier: Apache-2.0
 *
 * The algorithm "ppo": proximal policy optimisation with values estimated by a
 * separate critic or by a second head of the policy.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <xray/algo.h>
#include <xray/plugin.h>

#include "plugins/algo-ppo/loss.h"
#include "plugins/algo-ppo/prepare.h"
#include "plugins/algo-ppo/presets.h"

typedef struct ppo {
    const xray_host *host;
    ppo_rule rule;
    ppo_state state;
    ppo_step step;
    ppo_work work;
} ppo;

static xray_status ppo_create(const xray_host *host, const void *config,
                              void **out_self)
{
    ppo_rule rule;
    xray_status status = ppo_rule_resolve(host, config, &rule);
    if (status != XRAY_OK)
        return status;
    ppo *self = malloc(sizeof(*self));
    if (!self)
        return host->fail(host, XRAY_E_NOMEM, "create", "out of memory");
    *self = (ppo){ .host = host, .rule = rule };
    self->state.version = PPO_STATE_VERSION;
    self->state.kl_coef = rule.kl_reward.coefficient;
    xm_rl_moments_init(&self->state.moments);
    *out_self = self;
    return XRAY_OK;
}

static void ppo_destroy(void *ptr)
{
    ppo *self = ptr;
    if (!self)
        return;
    ppo_work_free(&self->work);
    free(self);
}

static xray_status ppo_needs(void *ptr, xray_needs *out)
{
    const ppo *self = ptr;
    xray_needs own = { .header = XRAY_HEADER(xray_needs),
                       .flags = self->rule.value_model == PPO_VALUE_CRITIC
                                    ? XRAY_NEED_CRITIC
                                    : XRAY_NEED_VALUE_HEAD };
    if (self->rule.kl_loss.use || self->rule.kl_reward.use)
        own.flags |= XRAY_NEED_REFERENCE;
    if (self->rule.entropy_coeff != 0)
        own.flags |= XRAY_NEED_ENTROPY;
    xray_fill(out, &own);
    return XRAY_OK;
}

static xray_status ppo_prepare_step(void *ptr, xray_batch *batch,
                                    const xray_metric_sink *metrics)
{
    ppo *self = ptr;
    return ppo_prepare(self->host, &self->rule, &self->state, &self->step,
                       &self->work, batch, metrics);
}

static xray_status ppo_make_context(void *ptr, const xray_batch *mini,
                                    const xray_totals *totals, void *out,
                                    uint64_t cap, uint64_t *out_size)
{
    ppo *self = ptr;
    const ppo_rule *rule = &self->rule;
    *out_size = sizeof(ppo_context);
    if (cap < sizeof(ppo_context))
        return XRAY_E_RANGE;
    ppo_context context = {
        .size = sizeof(context),
        .clip = rule->clip,
        .counts = { .rows = (double)totals->rows,
                    .tokens = totals->tokens,
                    .scale = rule->loss_scale_factor > 0
                                 ? rule->loss_scale_factor
                                 : (double)totals->max_response },
        .loss_agg_mode = rule->loss_agg_mode,
        .critic_loss_agg_mode = rule->critic_loss_agg_mode,
        .kl_type = rule->kl_loss.type,
        .use_kl = (uint32_t)rule->kl_loss.use,
        .kl_bounded = (uint32_t)rule->kl_loss.bounded,
        .kl_coefficient = rule->kl_loss.coefficient,
        .entropy_coeff = rule->entropy_coeff,
        .cliprange_value = rule->cliprange_value,
        .vf_coef = rule->vf_coef,
        .own_value = rule->value_model == PPO_VALUE_POLICY,
    };
    ppo_measure_whitening(rule, mini, &context.mean, &context.scale);
    if (!self->step.trained_rows)
        self->step.mini_rows = mini->rows;
    self->step.trained_rows += mini->rows;
    memcpy(out, &context, sizeof(context));
    return XRAY_OK;
}

static xray_status ppo_observe(void *ptr, const char *const *names,
                               const double *values, uint64_t count)
{
    ppo *self = ptr;
    (void)names;
    (void)values;
    (void)count;
    ppo_end_step(&self->rule, &self->state, &self->step);
    return XRAY_OK;
}

static xray_status ppo_save(void *ptr, void *out, uint64_t cap,
                            uint64_t *out_size)
{
    const ppo *self = ptr;
    *out_size = sizeof(self->state);
    if (cap < sizeof(self->state))
        return XRAY_E_RANGE;
    memcpy(out, &self->state, sizeof(self->state));
    return XRAY_OK;
}

static int is_sound_state(const ppo_state *s)
{
    const double numbers[] = { s->kl_coef, s->ref_std, s->moments.count,
                               s->moments.variance, s->moments.deviation };
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
        if (!isfinite(numbers[i]) || numbers[i] < 0)
            return 0;
    return isfinite(s->moments.mean);
}

/* A fixed coefficient comes from the INI, an adaptive one from the
 * checkpoint. */
static xray_status ppo_load(void *ptr, const void *data, uint64_t size)
{
    ppo *self = ptr;
    ppo_state state;
    char text[128];
    if (size != sizeof(state)) {
        (void)snprintf(text, sizeof(text),
                       "the state has %llu bytes, expected %zu: it belongs to "
                       "another algorithm or version",
                       (unsigned long long)size, sizeof(state));
        return self->host->fail(self->host, XRAY_E_IO, "load", text);
    }
    memcpy(&state, data, sizeof(state));
    if (state.version != PPO_STATE_VERSION)
        return self->host->fail(self->host, XRAY_E_IO, "load",
                                "the state belongs to another version");
    if (!is_sound_state(&state))
        return self->host->fail(self->host, XRAY_E_IO, "load",
                                "the state holds an impossible number");
    if (!self->rule.control.adaptive)
        state.kl_coef = self->state.kl_coef;
    self->state = state;
    return XRAY_OK;
}

static const void *ppo_extension(void *ptr, const char *id)
{
    (void)ptr;
    return strcmp(id, XRAY_ALGO_PRESETS) == 0 ? &ppo_preset_table : NULL;
}

static const xray_algo_ops ops = {
    .header = XRAY_HEADER(xray_algo_ops),
    .create = ppo_create,
    .destroy = ppo_destroy,
    .needs = ppo_needs,
    .prepare = ppo_prepare_step,
    .context = ppo_make_context,
    .metric_names = ppo_metric_names,
    .loss = ppo_loss,
    .observe = ppo_observe,
    .save = ppo_save,
    .load = ppo_load,
    .extension = ppo_extension,
    .critic_loss = ppo_critic_loss,
};

static const xray_component component = {
    .header = XRAY_HEADER(xray_component),
    .iface = XRAY_IFACE_ALGO,
    .name = "ppo",
    .summary = "PPO with a critic or a value head, as in verl and in trlX",
    .ops = &ops,
    .options = ppo_options,
    .option_count = PPO_OPTION_COUNT,
    .option_stride = sizeof(xray_option),
    .config_size = sizeof(ppo_config),
};

static const xray_component *const components[] = { &component };

static const xray_plugin plugin = {
    .header = XRAY_HEADER(xray_plugin),
    .abi_needed = XRAY_ABI_NEEDED,
    .component_count = 1,
    .name = "algo-ppo",
    .version = "0.1.0",
    .vendor = "xray",
    .license = "Apache-2.0",
    .components = components,
};

XRAY_PLUGIN_DEFINE(algo_ppo, plugin, "algo-ppo", "0.1.0", "xray.algo/0:ppo")
