/* SPDX-License-Identifier: Apache-2.0
 *
 * Translates the INI keys for offloading into the tags of the device memory
 * that a model gives up between its turns.
 */
#include "core/run/turn_settings.h"

#define BIT(tag) (1u << (tag))

/* Activations are not needed between calls, so a model that offloads anything
 * gives up their memory too. */
static uint32_t offload_tags(uint32_t param, uint32_t grad, uint32_t optimizer)
{
    uint32_t tags = 0;
    if (param)
        tags |= BIT(XRAY_TAG_WEIGHTS);
    if (grad)
        tags |= BIT(XRAY_TAG_GRADS);
    if (optimizer)
        tags |= BIT(XRAY_TAG_OPTIMIZER);
    return tags ? tags | BIT(XRAY_TAG_ACTIVATIONS) : 0;
}

uint32_t xr_turn_tags(const xr_run_config *ini, uint32_t role)
{
    const xr_actor_section *actor = &ini->actor;
    const xr_critic_section *critic = &ini->critic;
    switch (role) {
    case XRAY_ROLE_ACTOR:
        return offload_tags(actor->param_offload, actor->grad_offload,
                            actor->optimizer_offload);
    case XRAY_ROLE_CRITIC:
        return offload_tags(critic->param_offload, critic->grad_offload,
                            critic->optimizer_offload);
    case XRAY_ROLE_REFERENCE:
        return offload_tags(ini->ref.param_offload, 0, 0);
    case XRAY_ROLE_ROLLOUT:
        return ini->rollout.free_cache_engine ? XR_TURN_ENGINE : 0;
    default:
        return 0;
    }
}

const char *xr_turn_key(const xr_run_config *ini, uint32_t role,
                        const char **out_key)
{
    uint32_t tags = xr_turn_tags(ini, role);
    *out_key = tags & BIT(XRAY_TAG_WEIGHTS) ? "param_offload"
               : tags & BIT(XRAY_TAG_GRADS) ? "grad_offload"
                                            : "optimizer_offload";
    if (role == XRAY_ROLE_ROLLOUT)
        *out_key = "free_cache_engine";
    return role == XRAY_ROLE_ROLLOUT     ? "rollout"
           : role == XRAY_ROLE_CRITIC    ? "critic"
           : role == XRAY_ROLE_REFERENCE ? "ref"
                                         : "actor";
}
