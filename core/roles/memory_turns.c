/* SPDX-License-Identifier: Apache-2.0
 *
 * Offloads and loads the memory of models that share one device.
 */
#include "core/roles/memory_turns.h"

#define BIT(tag) (1u << (tag))
#define LAST_ROLE XRAY_ROLE_REWARD

/* ---- one model ---------------------------------------------------------- */

static xray_status move_tag_memory(xr_roles *roles, uint32_t role, uint32_t tag,
                                   int offload)
{
    const xr_instance *model = xr_roles_at(roles, role);
    const xr_part *part = model->part;
    if (role == XRAY_ROLE_ROLLOUT) {
        const xray_infer_ops *ops = xr_infer(roles->run);
        return offload
                   ? XR_CALL(part, "sleep", ops->sleep(model->self, BIT(tag)))
                   : XR_CALL(part, "wake", ops->wake(model->self, BIT(tag)));
    }
    const xray_train_ops *ops = xr_train(roles->run);
    return offload ? XR_CALL(part, "offload", ops->offload(model->self, tag))
                   : XR_CALL(part, "onload", ops->onload(model->self, tag));
}

/* A plugin may keep memory that holds nothing, if it cannot free it. */
static int may_stay_resident(uint32_t role, uint32_t tag)
{
    return tag == XRAY_TAG_ACTIVATIONS ||
           (role == XRAY_ROLE_ROLLOUT && tag == XRAY_TAG_WEIGHTS);
}

static const char *moving_call_name(uint32_t role, int offload)
{
    return role == XRAY_ROLE_ROLLOUT ? (offload ? "sleep" : "wake")
                                     : (offload ? "offload" : "onload");
}

static xray_status move_role_tags(xr_roles *roles, uint32_t role, uint32_t tags,
                                  int offload, xr_err *err)
{
    xr_turns *t = &roles->turns;
    tags &=
        t->movable[role] & (offload ? ~t->offloaded[role] : t->offloaded[role]);
    if (!xr_roles_at(roles, role)->self)
        return XRAY_OK;
    for (uint32_t tag = 0; tag < XRAY_TAG_COUNT; tag++) {
        if (!(tags & BIT(tag)))
            continue;
        xray_status status = move_tag_memory(roles, role, tag, offload);
        if (status == XRAY_E_UNSUPPORTED && offload &&
            may_stay_resident(role, tag)) {
            t->movable[role] &= ~BIT(tag);
            continue;
        }
        if (status != XRAY_OK)
            return xr_host_error(xr_roles_at(roles, role)->part->host, status,
                                 moving_call_name(role, offload), err);
        t->offloaded[role] ^= BIT(tag);
    }
    return XRAY_OK;
}

/* ---- turns -------------------------------------------------------------- */

/* keep[role] are the tags that stay on the device, come[role] those that are
 * loaded. Everything else is offloaded first, so that both are never on the
 * device at the same time. */
static xray_status arrange_memory(xr_roles *roles, const uint32_t *keep,
                                  const uint32_t *come, xr_err *err)
{
    xray_status status = XRAY_OK;
    for (uint32_t r = 1; r <= LAST_ROLE && status == XRAY_OK; r++)
        status = move_role_tags(roles, r, ~keep[r], 1, err);
    for (uint32_t r = 1; r <= LAST_ROLE && status == XRAY_OK; r++)
        status = move_role_tags(roles, r, come[r], 0, err);
    return status;
}

xray_status xr_turn_take(xr_roles *roles, uint32_t role, uint32_t tags,
                         xr_err *err)
{
    uint32_t keep[LAST_ROLE + 1] = { 0 };
    uint32_t come[LAST_ROLE + 1] = { 0 };
    keep[role] = UINT32_MAX; /* its next call may need the memory again */
    come[role] = tags;
    return arrange_memory(roles, keep, come, err);
}

xray_status xr_turn_publish(xr_roles *roles, xr_err *err)
{
    uint32_t tags[LAST_ROLE + 1] = { 0 };
    tags[XRAY_ROLE_ACTOR] = BIT(XRAY_TAG_WEIGHTS);
    tags[XRAY_ROLE_ROLLOUT] = BIT(XRAY_TAG_WEIGHTS);
    return arrange_memory(roles, tags, tags, err);
}

xray_status xr_turn_offload_all(xr_roles *roles, xr_err *err)
{
    const uint32_t none[LAST_ROLE + 1] = { 0 };
    return arrange_memory(roles, none, none, err);
}

/* Returns 0 if the engine uses the weights of the policy. */
static int engine_has_weights(const xr_roles *roles)
{
    const xray_infer_ops *ops = xr_infer(roles->run);
    return XRAY_HAS(xray_infer_ops, ops, weights) &&
           ops->weights(roles->engine.self) != NULL;
}

xray_status xr_turn_join(xr_roles *roles, uint32_t role, xr_err *err)
{
    xr_turns *t = &roles->turns;
    const char *key = NULL;
    uint32_t tags = xr_turn_tags(&roles->run->ini, role);
    int able = role == XRAY_ROLE_ROLLOUT
                   ? XRAY_HAS(xray_infer_ops, xr_infer(roles->run), sleep) &&
                         XRAY_HAS(xray_infer_ops, xr_infer(roles->run), wake)
                   : XRAY_HAS(xray_train_ops, xr_train(roles->run), offload) &&
                         XRAY_HAS(xray_train_ops, xr_train(roles->run), onload);
    if (tags && !able) {
        const char *section = xr_turn_key(&roles->run->ini, role, &key);
        return xr_fail(err, XRAY_E_CONFIG,
                       "%s: [%s] %s: %s cannot give memory back",
                       xr_config_location(roles->run->config, section, key),
                       section, key, xr_roles_at(roles, role)->part->instance);
    }
    t->movable[role] = tags;
    if (role == XRAY_ROLE_ROLLOUT && !engine_has_weights(roles)) {
        t->movable[role] &= ~BIT(XRAY_TAG_WEIGHTS);
        t->movable[XRAY_ROLE_ACTOR] &= ~BIT(XRAY_TAG_WEIGHTS);
    }
    return XRAY_OK;
}
