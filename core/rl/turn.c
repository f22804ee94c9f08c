/* SPDX-License-Identifier: Apache-2.0 */
#include "core/rl/turn.h"

#include "core/rl/session_parts.h"

#define BIT(tag) (1u << (tag))
#define LAST_ROLE XRAY_ROLE_REWARD

/* ---- the INI ------------------------------------------------------------ */

/* Activations hold nothing between calls: they go with the first of the rest.
 */
static uint32_t tags_of(uint32_t param, uint32_t grad, uint32_t optimizer)
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

uint32_t xr_turn_wanted(const xr_run_config *run, uint32_t role)
{
    const xr_actor_section *actor = &run->actor;
    const xr_critic_section *critic = &run->critic;
    switch (role) {
    case XRAY_ROLE_ACTOR:
        return tags_of(actor->param_offload, actor->grad_offload,
                       actor->optimizer_offload);
    case XRAY_ROLE_CRITIC:
        return tags_of(critic->param_offload, critic->grad_offload,
                       critic->optimizer_offload);
    case XRAY_ROLE_REFERENCE:
        return tags_of(run->ref.param_offload, 0, 0);
    case XRAY_ROLE_ROLLOUT:
        return run->rollout.free_cache_engine ? XR_TURN_ENGINE : 0;
    default:
        return 0;
    }
}

const char *xr_turn_section(const xr_run_config *run, uint32_t role,
                            const char **out_key)
{
    uint32_t tags = xr_turn_wanted(run, role);
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

/* ---- one model ---------------------------------------------------------- */

static const xr_part *part_of(const xr_session *s, uint32_t role)
{
    return role == XRAY_ROLE_ROLLOUT     ? &s->infer
           : role == XRAY_ROLE_CRITIC    ? &s->critic
           : role == XRAY_ROLE_REFERENCE ? &s->reference
           : role == XRAY_ROLE_REWARD    ? &s->score
                                         : &s->train;
}

static xray_status move_tag(xr_session *s, uint32_t role, uint32_t tag,
                            int away)
{
    const xr_part *part = part_of(s, role);
    if (role == XRAY_ROLE_ROLLOUT)
        return away ? XR_CALL(part, "sleep",
                              xr_infer(s)->sleep(part->self, BIT(tag)))
                    : XR_CALL(part, "wake",
                              xr_infer(s)->wake(part->self, BIT(tag)));
    return away
               ? XR_CALL(part, "offload", xr_train(s)->offload(part->self, tag))
               : XR_CALL(part, "onload", xr_train(s)->onload(part->self, tag));
}

/* What holds nothing may stay where a plugin cannot give it back. */
static int may_stay(uint32_t role, uint32_t tag)
{
    return tag == XRAY_TAG_ACTIVATIONS ||
           (role == XRAY_ROLE_ROLLOUT && tag == XRAY_TAG_WEIGHTS);
}

static const char *call_of(uint32_t role, int away)
{
    return role == XRAY_ROLE_ROLLOUT ? (away ? "sleep" : "wake")
                                     : (away ? "offload" : "onload");
}

static xray_status move_tags(xr_session *s, uint32_t role, uint32_t tags,
                             int away, xr_err *err)
{
    xr_turns *t = &s->turns;
    tags &= t->goes[role] & (away ? ~t->away[role] : t->away[role]);
    if (!part_of(s, role)->self)
        return XRAY_OK;
    for (uint32_t tag = 0; tag < XRAY_TAG_COUNT; tag++) {
        if (!(tags & BIT(tag)))
            continue;
        xray_status status = move_tag(s, role, tag, away);
        if (status == XRAY_E_UNSUPPORTED && away && may_stay(role, tag)) {
            t->goes[role] &= ~BIT(tag);
            continue;
        }
        if (status != XRAY_OK)
            return xr_host_error(part_of(s, role)->host, status,
                                 call_of(role, away), err);
        t->away[role] ^= BIT(tag);
    }
    return XRAY_OK;
}

/* ---- turns -------------------------------------------------------------- */

/* keep[role]: tags that stay, or come. What goes does so first, so that the
 * two are never there together. */
static xray_status arrange(xr_session *s, const uint32_t *keep,
                           const uint32_t *come, xr_err *err)
{
    xray_status status = XRAY_OK;
    if (s->whole)
        return XRAY_OK;
    for (uint32_t r = 1; r <= LAST_ROLE && status == XRAY_OK; r++)
        status = move_tags(s, r, ~keep[r], 1, err);
    for (uint32_t r = 1; r <= LAST_ROLE && status == XRAY_OK; r++)
        status = move_tags(s, r, come[r], 0, err);
    return status;
}

xray_status xr_turn_take(xr_session *s, uint32_t role, uint32_t tags,
                         xr_err *err)
{
    uint32_t keep[LAST_ROLE + 1] = { 0 };
    uint32_t come[LAST_ROLE + 1] = { 0 };
    keep[role] = UINT32_MAX; /* its next call may need it again */
    come[role] = tags;
    return arrange(s, keep, come, err);
}

xray_status xr_turn_publish(xr_session *s, xr_err *err)
{
    uint32_t tags[LAST_ROLE + 1] = { 0 };
    tags[XRAY_ROLE_ACTOR] = BIT(XRAY_TAG_WEIGHTS);
    tags[XRAY_ROLE_ROLLOUT] = BIT(XRAY_TAG_WEIGHTS);
    return arrange(s, tags, tags, err);
}

xray_status xr_turn_none(xr_session *s, xr_err *err)
{
    const uint32_t none[LAST_ROLE + 1] = { 0 };
    return arrange(s, none, none, err);
}

/* The engine's own weights, or 0: those it uses are the policy's. */
static int has_weights(const xr_session *s)
{
    const xray_infer_ops *ops = xr_infer(s);
    return XRAY_HAS(xray_infer_ops, ops, weights) &&
           ops->weights(s->infer.self) != NULL;
}

xray_status xr_turn_made(xr_session *s, uint32_t role, xr_err *err)
{
    xr_turns *t = &s->turns;
    const char *key = NULL;
    uint32_t tags = xr_turn_wanted(&s->run, role);
    int able = role == XRAY_ROLE_ROLLOUT
                   ? XRAY_HAS(xray_infer_ops, xr_infer(s), sleep) &&
                         XRAY_HAS(xray_infer_ops, xr_infer(s), wake)
                   : XRAY_HAS(xray_train_ops, xr_train(s), offload) &&
                         XRAY_HAS(xray_train_ops, xr_train(s), onload);
    if (tags && !able) {
        const char *section = xr_turn_section(&s->run, role, &key);
        return xr_fail(err, XRAY_E_CONFIG,
                       "%s: [%s] %s: %s gives no memory back",
                       xr_config_place(s->config, section, key), section, key,
                       part_of(s, role)->instance);
    }
    t->goes[role] = tags;
    if (role == XRAY_ROLE_ROLLOUT && !has_weights(s)) {
        t->goes[role] &= ~BIT(XRAY_TAG_WEIGHTS);
        t->goes[XRAY_ROLE_ACTOR] &= ~BIT(XRAY_TAG_WEIGHTS);
    }
    return XRAY_OK;
}
