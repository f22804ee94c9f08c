/* SPDX-License-Identifier: Apache-2.0
 *
 * Computes the memory in use in each turn, for models that take turns on the
 * device.
 */
#include <string.h>

#include "core/run/replicas.h"
#include "core/run/resources.h"
#include "core/run/turn_settings.h"

#define BIT(tag) (1u << (tag))
#define PUBLISH "weights to the engine"

static const xr_part_plan *find_role_plan(const xr_resources *r, uint32_t role)
{
    for (size_t p = 0; p < r->count; p++)
        if (r->parts[p].role == role)
            return &r->parts[p];
    return NULL;
}

/* Returns 1 if the engine uses the policy's own weights. */
static int shares_policy_weights(const xr_run *run, const xr_resources *r)
{
    const xr_part_plan *engine = find_role_plan(r, XRAY_ROLE_ROLLOUT);
    return engine && !engine->plan.bytes[XRAY_TAG_WEIGHTS] &&
           xr_replicas_match(run, XRAY_ROLE_ACTOR, XRAY_ROLE_ROLLOUT);
}

/* ---- memory that can be offloaded --------------------------------------- */

static void report_refusal(const xr_run *run, uint32_t role, const char *who,
                           const char *what, xr_errors *errors)
{
    const char *key = NULL;
    const char *section = xr_turn_key(&run->ini, role, &key);
    xr_errors_add(errors, "%s: [%s] %s: %s %s",
                  xr_config_location(run->config, section, key), section, key,
                  who, what);
}

static int can_give_back(const xr_run *run, uint32_t role)
{
    if (role == XRAY_ROLE_ROLLOUT)
        return XRAY_HAS(xray_infer_ops, xr_infer(run), sleep) &&
               XRAY_HAS(xray_infer_ops, xr_infer(run), wake);
    return XRAY_HAS(xray_train_ops, xr_train(run), offload) &&
           XRAY_HAS(xray_train_ops, xr_train(run), onload);
}

/* A plugin may keep activations, and an engine its weights; other tags must be
 * given back. */
static uint32_t required_tags(uint32_t role, uint32_t wanted)
{
    wanted &= ~BIT(XRAY_TAG_ACTIVATIONS);
    return role == XRAY_ROLE_ROLLOUT ? wanted & BIT(XRAY_TAG_KV) : wanted;
}

static void find_evictable_tags(const xr_run *run, const xr_resources *r,
                                xr_part_plan *p, xr_errors *errors)
{
    const xray_device_ops *device = (const xray_device_ops *)run->device.ops;
    uint32_t wanted = p->role ? xr_turn_tags(&run->ini, p->role) : 0;
    if (!wanted)
        return;
    if (!can_give_back(run, p->role) ||
        required_tags(p->role, wanted) & ~p->plan.evictable) {
        report_refusal(run, p->role, p->who, "cannot give memory back", errors);
        return;
    }
    if (!XRAY_HAS(xray_device_ops, device, evict)) {
        report_refusal(run, p->role, run->device.instance,
                       "cannot take memory back", errors);
        return;
    }
    p->movable = wanted & p->plan.evictable;
    if (p->role == XRAY_ROLE_ACTOR && shares_policy_weights(run, r))
        p->movable &= ~BIT(XRAY_TAG_WEIGHTS);
}

/* ---- turns -------------------------------------------------------------- */

/* Returns the tags of a part that are offloaded in the turn of `role` (0:
 * weights go to the engine). Parts on other ranks are not affected. */
static uint32_t tags_away(const xr_run *run, const xr_part_plan *p,
                          uint32_t role)
{
    const xr_ranks *mine = xr_run_ranks(run, p->role);
    if (!p->role || p->role == role)
        return 0;
    if (!xr_ranks_equal(mine, xr_run_ranks(run, role ? role : XRAY_ROLE_ACTOR)))
        return 0;
    if (!role && (p->role == XRAY_ROLE_ACTOR || p->role == XRAY_ROLE_ROLLOUT))
        return p->movable & ~BIT(XRAY_TAG_WEIGHTS);
    return p->movable;
}

static uint64_t add_saturated(uint64_t a, uint64_t b)
{
    return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

/* Adds what a part has on rank `i` of its role, but for the tags in `gone`. */
static void add_rank_bytes(const xr_part_plan *p, int64_t i, uint32_t gone,
                           uint64_t *tags)
{
    for (size_t t = 0; i >= 0 && t < XRAY_TAG_COUNT; t++)
        if (!(gone & BIT(t)))
            tags[t] = add_saturated(tags[t], p->tags[i][t]);
}

static uint64_t sum_tags(const uint64_t *tags)
{
    uint64_t all = 0;
    for (size_t t = 0; t < XRAY_TAG_COUNT; t++)
        all = add_saturated(all, tags[t]);
    return all;
}

/* Adds up all ranks, which share the host's memory. */
static void add_all_ranks(const xr_resources *r, const uint32_t *gone,
                          uint64_t *tags)
{
    for (size_t p = 0; p < r->count; p++)
        for (uint32_t i = 0; i < r->parts[p].ranks; i++)
            add_rank_bytes(&r->parts[p], i, gone[p], tags);
}

/* Returns the position of a rank among those of a part, or -1. */
static int64_t find_rank_in(const xr_run *run, const xr_part_plan *p,
                            uint32_t rank)
{
    return p->part == &run->device
               ? rank
               : xr_ranks_find(xr_run_ranks(run, p->role), rank);
}

/* Gives the tags of the host whose memory is the fullest. What the core holds
 * is on that of rank 0, which errs on the safe side. */
static void find_fullest_host(const xr_run *run, const xr_resources *r,
                              const uint32_t *gone, uint64_t *tags)
{
    const xr_placement *place = &run->placement;
    for (uint32_t host = 0; host < place->hosts; host++) {
        uint64_t here[XRAY_TAG_COUNT] = { 0 };
        for (uint32_t rank = 0; rank < place->size; rank++)
            for (size_t p = 0; p < r->count; p++) {
                const int64_t i = find_rank_in(run, &r->parts[p], rank);
                if (place->host[rank] == host && i < r->parts[p].ranks)
                    add_rank_bytes(&r->parts[p], i, gone[p], here);
            }
        if (sum_tags(here) > sum_tags(tags))
            memcpy(tags, here, sizeof(here));
    }
}

/* Gives the tags of the rank whose device is the fullest. */
static void find_fullest_rank(const xr_run *run, const xr_resources *r,
                              const uint32_t *gone, uint64_t *tags)
{
    for (uint32_t rank = 0; rank < run->placement.size; rank++) {
        uint64_t here[XRAY_TAG_COUNT] = { 0 };
        for (size_t p = 0; p < r->count; p++)
            add_rank_bytes(&r->parts[p], find_rank_in(run, &r->parts[p], rank),
                           gone[p], here);
        if (sum_tags(here) > sum_tags(tags))
            memcpy(tags, here, sizeof(here));
    }
}

/* Returns the bytes in use while the tags in `gone` of each part are offloaded,
 * and writes them per tag. */
static uint64_t count_bytes(const xr_run *run, const xr_resources *r,
                            const uint32_t *gone, uint64_t *out_tags)
{
    memset(out_tags, 0, XRAY_TAG_COUNT * sizeof(*out_tags));
    /* How many ranks an engine puts on a host is not known before. */
    if (run->placement.engine == XR_ENGINE_CHOOSES && !run->placement.hosts)
        find_fullest_rank(run, r, gone, out_tags);
    else if (r->machine.host_memory && run->placement.hosts > 1)
        find_fullest_host(run, r, gone, out_tags);
    else if (r->machine.host_memory)
        add_all_ranks(r, gone, out_tags);
    else
        find_fullest_rank(run, r, gone, out_tags);
    return sum_tags(out_tags);
}

static void add_turn_plan(const xr_run *run, xr_resources *r, uint32_t role,
                          const char *who)
{
    uint64_t tags[XRAY_TAG_COUNT];
    uint32_t gone[XR_PLANS] = { 0 };
    for (size_t p = 0; p < r->count; p++)
        gone[p] = tags_away(run, &r->parts[p], role);
    uint64_t all = count_bytes(run, r, gone, tags);
    r->turns[r->turn_count++] = (xr_turn_plan){ who, all };
    if (all > r->bytes)
        r->bytes = all;
    for (size_t t = 0; t < XRAY_TAG_COUNT; t++)
        if (tags[t] > r->tags[t])
            r->tags[t] = tags[t];
}

void xr_resources_note_place(xr_run *run, const xr_resources *r)
{
    const int alone = run->placement.engine == XR_ENGINE_CHOOSES;
    run->place_memory = alone && r->machine.host_memory ? r->bytes : 0;
}

void xr_resources_turns(const xr_run *run, xr_errors *errors, xr_resources *r)
{
    const uint32_t none[XR_PLANS] = { 0 };
    uint32_t movable = 0;
    r->bytes = count_bytes(run, r, none, r->tags);
    for (size_t p = 0; p < r->count; p++) {
        find_evictable_tags(run, r, &r->parts[p], errors);
        movable |= r->parts[p].movable;
    }
    if (!movable)
        return;
    r->bytes = 0;
    memset(r->tags, 0, sizeof(r->tags));
    for (size_t p = 0; p < r->count; p++)
        if (r->parts[p].role)
            add_turn_plan(run, r, r->parts[p].role, r->parts[p].who);
    if (find_role_plan(r, XRAY_ROLE_ACTOR) &&
        find_role_plan(r, XRAY_ROLE_ROLLOUT))
        add_turn_plan(run, r, 0, PUBLISH);
}
