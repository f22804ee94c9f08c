/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory of models that take turns: what is there at once, turn by turn.
 */
#include <string.h>

#include "core/run/resources.h"
#include "core/run/turns.h"

#define BIT(tag) (1u << (tag))
#define PUBLISH "weights to the engine"

static const xr_part_plan *part_of(const xr_resources *r, uint32_t role)
{
    for (size_t p = 0; p < r->count; p++)
        if (r->parts[p].role == role)
            return &r->parts[p];
    return NULL;
}

/* 1 if the engine's weights are the policy's own. */
static int shares(const xr_run *s, const xr_resources *r)
{
    const xr_part_plan *engine = part_of(r, XRAY_ROLE_ROLLOUT);
    return engine && !engine->plan.bytes[XRAY_TAG_WEIGHTS] &&
           xr_ranks_equal(&s->placement.actor, &s->placement.rollout);
}

/* ---- what goes ---------------------------------------------------------- */

static void refuse(const xr_run *s, uint32_t role, const char *who,
                   const char *what, xr_errors *errors)
{
    const char *key = NULL;
    const char *section = xr_turn_section(&s->ini, role, &key);
    xr_errors_add(errors, "%s: [%s] %s: %s %s",
                  xr_config_location(s->config, section, key), section, key,
                  who, what);
}

static int able(const xr_run *s, uint32_t role)
{
    if (role == XRAY_ROLE_ROLLOUT)
        return XRAY_HAS(xray_infer_ops, xr_infer(s), sleep) &&
               XRAY_HAS(xray_infer_ops, xr_infer(s), wake);
    return XRAY_HAS(xray_train_ops, xr_train(s), offload) &&
           XRAY_HAS(xray_train_ops, xr_train(s), onload);
}

/* Activations and an engine's weights may stay where a plugin keeps them. */
static uint32_t needed(uint32_t role, uint32_t wanted)
{
    wanted &= ~BIT(XRAY_TAG_ACTIVATIONS);
    return role == XRAY_ROLE_ROLLOUT ? wanted & BIT(XRAY_TAG_KV) : wanted;
}

static void find_tags(const xr_run *s, const xr_resources *r, xr_part_plan *p,
                      xr_errors *errors)
{
    const xray_device_ops *device = (const xray_device_ops *)s->device.ops;
    uint32_t wanted = p->role ? xr_turn_wanted(&s->ini, p->role) : 0;
    if (!wanted)
        return;
    if (!able(s, p->role) || needed(p->role, wanted) & ~p->plan.evictable) {
        refuse(s, p->role, p->who, "gives no memory back", errors);
        return;
    }
    if (!XRAY_HAS(xray_device_ops, device, evict)) {
        refuse(s, p->role, s->device.instance, "takes no memory back", errors);
        return;
    }
    p->goes = wanted & p->plan.evictable;
    if (p->role == XRAY_ROLE_ACTOR && shares(s, r))
        p->goes &= ~BIT(XRAY_TAG_WEIGHTS);
}

/* ---- turns -------------------------------------------------------------- */

/* Tags of a part that are away in the turn of `role` (0: weights go to the
 * engine). On other ranks nothing moves. */
static uint32_t away(const xr_run *s, const xr_part_plan *p, uint32_t role)
{
    const xr_ranks *mine = xr_run_ranks(s, p->role);
    if (!p->role || p->role == role)
        return 0;
    if (!xr_ranks_equal(mine, xr_run_ranks(s, role ? role : XRAY_ROLE_ACTOR)))
        return 0;
    if (!role && (p->role == XRAY_ROLE_ACTOR || p->role == XRAY_ROLE_ROLLOUT))
        return p->goes & ~BIT(XRAY_TAG_WEIGHTS);
    return p->goes;
}

static uint64_t add(uint64_t a, uint64_t b)
{
    return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

/* The turn's bytes by tag; their sum. */
static uint64_t count(const xr_run *s, const xr_resources *r, uint32_t role,
                      uint64_t *out_tags)
{
    uint64_t all = 0;
    memset(out_tags, 0, XRAY_TAG_COUNT * sizeof(*out_tags));
    for (size_t i = 0; i < r->count; i++) {
        const xr_part_plan *p = &r->parts[i];
        uint32_t gone = away(s, p, role);
        uint64_t copies = r->machine.host_memory ? p->ranks : 1;
        for (size_t t = 0; t < XRAY_TAG_COUNT; t++) {
            uint64_t bytes = gone & BIT(t) ? 0 : p->plan.bytes[t];
            for (uint64_t k = 0; k < copies; k++) {
                out_tags[t] = add(out_tags[t], bytes);
                all = add(all, bytes);
            }
        }
    }
    return all;
}

static void add_turn(const xr_run *s, xr_resources *r, uint32_t role,
                     const char *who)
{
    uint64_t tags[XRAY_TAG_COUNT];
    uint64_t all = count(s, r, role, tags);
    r->turns[r->turn_count++] = (xr_turn_plan){ who, all };
    if (all > r->bytes)
        r->bytes = all;
    for (size_t t = 0; t < XRAY_TAG_COUNT; t++)
        if (tags[t] > r->tags[t])
            r->tags[t] = tags[t];
}

void xr_resources_turns(const xr_run *s, xr_errors *errors, xr_resources *r)
{
    uint32_t goes = 0;
    for (size_t p = 0; p < r->count; p++) {
        find_tags(s, r, &r->parts[p], errors);
        goes |= r->parts[p].goes;
    }
    if (!goes)
        return;
    r->bytes = 0;
    memset(r->tags, 0, sizeof(r->tags));
    for (size_t p = 0; p < r->count; p++)
        if (r->parts[p].role)
            add_turn(s, r, r->parts[p].role, r->parts[p].who);
    if (part_of(r, XRAY_ROLE_ACTOR) && part_of(r, XRAY_ROLE_ROLLOUT))
        add_turn(s, r, 0, PUBLISH);
}
