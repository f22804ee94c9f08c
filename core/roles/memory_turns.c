/* SPDX-License-Identifier: Apache-2.0 */
#include "core/roles/memory_turns.h"

#define BIT(tag) (1u << (tag))
#define LAST_ROLE XRAY_ROLE_REWARD

/* ---- one model ---------------------------------------------------------- */

static xray_status move_tag_memory(xr_roles *roles, uint32_t role, uint32_t tag,
                                   int away)
{
    const xr_instance *model = xr_roles_at(roles, role);
    const xr_part *part = model->part;
    if (role == XRAY_ROLE_ROLLOUT) {
        const xray_infer_ops *ops = xr_infer(roles->run);
        return away ? XR_CALL(part, "sleep", ops->sleep(model->self, BIT(tag)))
                    : XR_CALL(part, "wake", ops->wake(model->self, BIT(tag)));
    }
    const xray_train_ops *ops = xr_train(roles->run);
    return away ? XR_CALL(part, "offload", ops->offload(model->self, tag))
                : XR_CALL(part, "onload", ops->onload(model->self, tag));
}

/* What holds nothing may stay where a plugin cannot give it back. */
static int may_stay_resident(uint32_t role, uint32_t tag)
{
    return tag == XRAY_TAG_ACTIVATIONS ||
           (role == XRAY_ROLE_ROLLOUT && tag == XRAY_TAG_WEIGHTS);
}

static const char *moving_call_name(uint32_t role, int away)
{
    return role == XRAY_ROLE_ROLLOUT ? (away ? "sleep" : "wake")
                                     : (away ? "offload" : "onload");
}

static xray_status move_role_tags(xr_roles *roles, uint32_t role, uint32_t tags,
                                  int away, xr_err *err)
{
    xr_turns *t = &roles->turns;
    tags &= t->goes[role] & (away ? ~t->away[role] : t->away[role]);
    if (!xr_roles_at(roles, role)->self)
        return XRAY_OK;
    for (uint32_t tag = 0; tag < XRAY_TAG_COUNT; tag++) {
        if (!(tags & BIT(tag)))
            continue;
        xray_status status = move_tag_memory(roles, role, tag, away);
        if (status == XRAY_E_UNSUPPORTED && away &&
            may_stay_resident(role, tag)) {
            t->goes[role] &= ~BIT(tag);
            continue;
        }
        if (status != XRAY_OK)
            return xr_host_error(xr_roles_at(roles, role)->part->host, status,
                                 moving_call_name(role, away), err);
        t->away[role] ^= BIT(tag);
    }
    return XRAY_OK;
}

/* ---- turns -------------------------------------------------------------- */

/* keep[role]: tags that stay, or come. What goes does so first, so that the
 * two are never there together. */
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
    keep[role] = UINT32_MAX; /* its next call may need it again */
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

/* The engine's own weights, or 0: those it uses are the policy's. */
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
                       "%s: [%s] %s: %s gives no memory back",
                       xr_config_location(roles->run->config, section, key),
                       section, key, xr_roles_at(roles, role)->part->instance);
    }
    t->goes[role] = tags;
    if (role == XRAY_ROLE_ROLLOUT && !engine_has_weights(roles)) {
        t->goes[role] &= ~BIT(XRAY_TAG_WEIGHTS);
        t->goes[XRAY_ROLE_ACTOR] &= ~BIT(XRAY_TAG_WEIGHTS);
    }
    return XRAY_OK;
}
