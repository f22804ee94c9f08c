/* SPDX-License-Identifier: Apache-2.0
 *
 * Makes the communication groups of a rank: for each role the ranks that hold
 * it, and those that differ along one axis of its layout.
 */
#include "core/roles/worlds.h"

#include <string.h>

#include "core/run/replicas.h"

/* Ranks `first`, `first` + `step`, ... of the world. */
typedef struct strided_ranks {
    uint32_t first;
    uint32_t step;
    uint32_t count;
} strided_ranks;

/* Calls the plugin for a group of ranks of the world; gives NULL for one rank.
 */
static xray_status make_group(xr_roles *roles, const xray_world *world,
                              const strided_ranks *members, xr_err *err,
                              xray_comm_group **out)
{
    const xr_part *part = roles->comm.part;
    const xray_comm_ops *ops = (const xray_comm_ops *)part->ops;
    xr_ranks ranks = { .count = members->count };
    *out = NULL;
    if (members->count < 2)
        return XRAY_OK;
    for (uint32_t i = 0; i < members->count; i++)
        ranks.rank[i] = world->global_ranks[members->first + i * members->step];
    xray_status status = XR_CALL_TIMED(
        part, "group",
        ops->group(roles->comm.self, ranks.rank, ranks.count, out));
    if (status != XRAY_OK)
        return xr_host_error(part->host, status, "group", err);
    return *out ? XRAY_OK
                : xr_fail(err, XRAY_E_BUG,
                          "%s: group gave neither a group nor an error",
                          part->instance);
}

/* Fills in a subgroup. One with the ranks of `same` uses its group, since every
 * group costs memory on all of its ranks. */
static xray_status fill_subgroup(xr_roles *roles, const xray_world *world,
                                 const strided_ranks *members,
                                 const xray_subgroup *same, xr_err *err,
                                 xray_subgroup *out)
{
    out->size = members->count;
    out->rank = (world->rank - members->first) / members->step;
    out->group = NULL;
    if (members->count == world->size)
        out->group = world->group;
    else if (same && same->size == members->count)
        out->group = same->group;
    else
        return make_group(roles, world, members, err, &out->group);
    return XRAY_OK;
}

/* The first axis varies fastest: with axes of 2 and 3 the ranks 0, 2 and 4 are
 * along the second one. */
static xray_status join_axes(xr_roles *roles, uint32_t role,
                             const xray_subgroup *replica, xr_err *err)
{
    const xr_layout *layout = xr_run_layout(roles->run, role);
    const xray_world *world = &roles->worlds[role];
    xray_status status = XRAY_OK;
    uint32_t step = 1;
    for (uint32_t i = 0; i < layout->axis_count && status == XRAY_OK; i++) {
        const uint32_t size = layout->axes[i].size;
        const uint32_t along = world->rank / step % size;
        const strided_ranks members = { world->rank - along * step, step,
                                        size };
        xray_subgroup *to = &roles->subgroups[role][i];
        to->name = layout->axes[i].name;
        status = fill_subgroup(roles, world, &members, replica, err, to);
        step *= size;
    }
    return status;
}

/* Joins the group of a replica, then those of its axes, then that over the
 * replicas. */
static xray_status join_subgroups(xr_roles *roles, uint32_t role, xr_err *err)
{
    const xr_replicas all = xr_replicas_of(roles->run, role);
    xray_world *world = &roles->worlds[role];
    const uint32_t axes = xr_run_layout(roles->run, role)->axis_count;
    const uint32_t within = world->rank % all.width;
    const strided_ranks mine = { world->rank - within, 1, all.width };
    const strided_ranks over = { within, all.width, world->size / all.width };
    xray_subgroup *data = &roles->subgroups[role][axes];
    xray_subgroup *replica = data + 1;
    data->name = XRAY_AXIS_DATA;
    replica->name = XRAY_AXIS_REPLICA;
    world->subgroups = roles->subgroups[role];
    world->subgroup_count = axes + 2;
    world->subgroup_stride = sizeof(xray_subgroup);
    xray_status status = fill_subgroup(roles, world, &mine, NULL, err, replica);
    if (status == XRAY_OK)
        status = join_axes(roles, role, replica, err);
    return status == XRAY_OK
               ? fill_subgroup(roles, world, &over, NULL, err, data)
               : status;
}

/* An engine's world is its replica alone, so that what it samples depends on no
 * other engine. */
static void place_world(xr_roles *roles, uint32_t role, uint32_t position)
{
    const xr_replicas all = xr_replicas_of(roles->run, role);
    xray_world *world = &roles->worlds[role];
    uint32_t first =
        role == XRAY_ROLE_ROLLOUT ? position / all.width * all.width : 0;
    world->global_ranks = all.ranks->rank + first;
    world->rank = position - first;
    world->size = role == XRAY_ROLE_ROLLOUT ? all.width : all.ranks->count;
}

/* Returns the policy's sub-group of a name; one rank if it has none. */
static xray_subgroup find_policy_subgroup(const xr_roles *roles,
                                          const char *name)
{
    const xray_world *world = &roles->worlds[XRAY_ROLE_ACTOR];
    for (uint32_t i = 0; i < world->subgroup_count; i++)
        if (strcmp(world->subgroups[i].name, name) == 0)
            return world->subgroups[i];
    return (xray_subgroup){ .name = name, .size = 1 };
}

/* Takes the policy's world for a model that is held as the policy is. Only axes
 * of one rank may differ. */
static void take_policy_world(xr_roles *roles, uint32_t role)
{
    const xr_layout *layout = xr_run_layout(roles->run, role);
    xray_world *world = &roles->worlds[role];
    xray_subgroup *to = roles->subgroups[role];
    *world = roles->worlds[XRAY_ROLE_ACTOR];
    for (uint32_t i = 0; i < layout->axis_count; i++)
        *to++ = find_policy_subgroup(roles, layout->axes[i].name);
    *to++ = find_policy_subgroup(roles, XRAY_AXIS_DATA);
    *to = find_policy_subgroup(roles, XRAY_AXIS_REPLICA);
    world->subgroups = roles->subgroups[role];
    world->subgroup_count = layout->axis_count + 2;
}

/* Joins the groups of a role. A model that is held as the policy is uses the
 * policy's groups; an engine has groups of its own. */
static xray_status join_world(xr_roles *roles, uint32_t role, xr_err *err)
{
    xray_world *world = &roles->worlds[role];
    int64_t position =
        xr_ranks_find(xr_run_ranks(roles->run, role), roles->rank);
    if (position < 0)
        return XRAY_OK;
    if (role != XRAY_ROLE_ACTOR && role != XRAY_ROLE_ROLLOUT &&
        xr_replicas_match(roles->run, role, XRAY_ROLE_ACTOR)) {
        take_policy_world(roles, role);
        return XRAY_OK;
    }
    place_world(roles, role, (uint32_t)position);
    if (world->size > 1) {
        const strided_ranks all = { 0, 1, world->size };
        xray_status status = make_group(roles, world, &all, err, &world->group);
        if (status != XRAY_OK)
            return status;
        world->comm = (const xray_comm_ops *)roles->comm.part->ops;
        world->comm_self = roles->comm.self;
    }
    return join_subgroups(roles, role, err);
}

xray_status xr_worlds_join(xr_roles *roles, xr_err *err)
{
    static const uint32_t order[] = { XRAY_ROLE_ACTOR, XRAY_ROLE_REFERENCE,
                                      XRAY_ROLE_CRITIC, XRAY_ROLE_REWARD,
                                      XRAY_ROLE_ROLLOUT };
    xray_status status = XRAY_OK;
    for (size_t i = 0; i < sizeof(order) / sizeof(order[0]); i++)
        if (status == XRAY_OK && (order[i] == XRAY_ROLE_ACTOR ||
                                  xr_run_has_role(roles->run, order[i])))
            status = join_world(roles, order[i], err);
    return status;
}
