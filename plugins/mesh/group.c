/* SPDX-License-Identifier: Apache-2.0
 *
 * Creates groups of ranks. The lowest rank of a group gives it its number, so
 * that all its members, and messages about it, name it alike.
 */
#include <stdlib.h>
#include <string.h>

#include <xray/numerics.h>

#include "core/base/hash.h"
#include "plugins/mesh/mesh.h"

void mesh_group_free(xray_comm_group *group)
{
    if (!group)
        return;
    for (uint32_t i = 0; group->messages && i < 2 * group->all.count; i++)
        free(group->messages[i].broken);
    free(group->all.broken);
    free(group->ranks);
    free(group->flows);
    free(group->ring);
    free(group->dealt);
    free(group->layout.memory);
    free(group->sources);
    free(group->messages);
    free(group->pairs);
    free(group);
}

mesh_channel *mesh_find_channel(const mesh_comm *comm, uint64_t key)
{
    for (xray_comm_group *g = comm->groups; g; g = g->next) {
        if (g->all.key == key)
            return &g->all;
        for (uint32_t i = 0; i < 2 * g->all.count; i++)
            if (g->messages[i].key == key)
                return &g->messages[i];
    }
    return NULL;
}

/* The same ranks may form a group several times, and each is another one. */
static uint64_t compute_key(const mesh_comm *comm, const uint32_t *ranks,
                            uint32_t count)
{
    uint64_t before = 0;
    for (const xray_comm_group *g = comm->groups; g; g = g->next)
        before += g->all.count == count &&
                  memcmp(g->ranks, ranks, count * sizeof(*ranks)) == 0;
    return xr_hash64(ranks, count * sizeof(*ranks), before) | 1;
}

/* Memory of the sums over blocks, which is used as far as they need it. */
static int make_windows(mesh_comm *comm)
{
    size_t each = (size_t)comm->size * MESH_WINDOW * MESH_PIECE;
    if (!comm->mates)
        comm->mates = malloc(each);
    if (!comm->parts)
        comm->parts = malloc(2 * each);
    return comm->mates && comm->parts;
}

static int fill_group(xray_comm_group *g, mesh_comm *comm,
                      const uint32_t *ranks, uint32_t count)
{
    g->ranks = calloc(count, sizeof(*ranks));
    g->flows = calloc(count, sizeof(*g->flows));
    g->ring = calloc(count, 2 * sizeof(*g->ring));
    g->dealt = calloc(count, sizeof(*g->dealt));
    g->sources = calloc(count, sizeof(*g->sources));
    g->messages = calloc(count, 2 * sizeof(*g->messages));
    g->pairs = calloc(count, 4 * sizeof(*g->pairs));
    g->all = (mesh_channel){ .comm = comm,
                             .key = compute_key(comm, ranks, count),
                             .count = count,
                             .ranks = g->ranks };
    if (!g->ranks || !g->flows || !g->ring || !g->dealt || !g->sources ||
        !g->messages || !g->pairs ||
        !mesh_layout_make(&g->layout, comm, ranks, count))
        return 0;
    if (g->layout.hosts > 1 && g->layout.most > 1 && !make_windows(comm))
        return 0;
    memcpy(g->ranks, ranks, count * sizeof(*ranks));
    while (g->all.self < count && ranks[g->all.self] != comm->rank)
        g->all.self++;
    return 1;
}

/* All members meet, and learn the number. */
static xray_status form_group(mesh_comm *comm, xray_comm_group *g)
{
    const mesh_call call = { .call = MESH_FORM,
                             .extra = (uint64_t)comm->group_count * comm->size +
                                      comm->rank };
    xray_status status = g->all.count > 1 ? mesh_run_call(g, &call) : XRAY_OK;
    g->all.group = (uint32_t)(g->all.self ? comm->peers[g->ranks[0]].seen.extra
                                          : call.extra);
    return status;
}

xray_status mesh_group(void *self, const uint32_t *ranks, uint32_t count,
                       xray_comm_group **out)
{
    mesh_comm *comm = self;
    if (!ranks || !out || count == 0)
        return xr_host_fail(comm->host, XRAY_E_ARG, "group",
                            "no ranks, or a pointer is NULL");
    xray_status status = xr_collective_check_ranks(comm->host, ranks, count,
                                                   comm->rank, comm->size);
    if (status != XRAY_OK)
        return status;
    xray_comm_group *g = calloc(1, sizeof(*g));
    if (!g || !fill_group(g, comm, ranks, count)) {
        mesh_group_free(g);
        return xr_host_fail(comm->host, XRAY_E_NOMEM, "group",
                            "no memory for a group");
    }
    status = form_group(comm, g);
    if (status != XRAY_OK) {
        mesh_group_free(g);
        return status;
    }
    comm->group_count++;
    g->next = comm->groups;
    comm->groups = g;
    *out = g;
    return XRAY_OK;
}

/* Key of the messages from one rank of the world to another in a group; that of
 * a group is odd. */
static uint64_t message_key(uint64_t group, uint32_t from, uint32_t to)
{
    return xray_mix64(group, (uint64_t)from << 32 | to) & ~(uint64_t)1;
}

xray_status mesh_message_channel(xray_comm_group *group, const char *where,
                                 uint32_t peer, int sends, mesh_channel **out)
{
    mesh_comm *comm = group->all.comm;
    if (peer >= group->all.count || peer == group->all.self)
        return xr_host_fail(
            comm->host, XRAY_E_ARG, where,
            "peer %u: another rank of a group of %u is expected", peer,
            group->all.count);
    size_t at = 2 * (size_t)peer + (sends != 0);
    mesh_channel *c = &group->messages[at];
    if (!c->comm) {
        uint32_t mine = comm->rank;
        uint32_t other = group->ranks[peer];
        uint32_t *two = group->pairs + 2 * at;
        two[0] = mine < other ? mine : other;
        two[1] = mine < other ? other : mine;
        *c = (mesh_channel){ .comm = comm,
                             .key = message_key(group->all.key,
                                                sends ? mine : other,
                                                sends ? other : mine),
                             .group = group->all.group,
                             .count = 2,
                             .self = mine > other,
                             .ranks = two };
    }
    *out = c;
    return XRAY_OK;
}
