/* SPDX-License-Identifier: Apache-2.0
 *
 * Where the members of a group are, and what follows from it. The tree of sums
 * (<xray/comm.h>) has parts whose ranks are all of one host: the largest ones
 * are the blocks, of which every rank is in one. A block may be added at home
 * and sent to another host as one sum without changing a bit, since its sum is
 * a node of the tree. Ranks that alternate between hosts have no neighbours,
 * so their blocks are single ranks, and nothing is added before it is sent.
 */
#include <stdlib.h>

#include "core/base/collective.h"
#include "plugins/mesh/mesh.h"

static int is_of_one_host(const mesh_layout *l, uint32_t first, uint32_t n)
{
    for (uint32_t i = first + 1; i < first + n; i++)
        if (l->host[i] != l->host[first])
            return 0;
    return 1;
}

static void find_blocks(mesh_layout *l, uint32_t first, uint32_t n)
{
    if (!is_of_one_host(l, first, n)) {
        uint32_t left = xray_comm_left(n);
        find_blocks(l, first, left);
        find_blocks(l, first + left, n - left);
        return;
    }
    for (uint32_t i = first; i < first + n; i++) {
        l->block_first[i] = first;
        l->block_count[i] = n;
    }
    l->most = n > l->most ? n : l->most;
}

/* The hosts come in the order of their first members. */
static void find_order(mesh_layout *l, uint32_t count)
{
    uint32_t at = 0;
    for (uint32_t first = 0; first < count; first++) {
        if (l->host[first] != first)
            continue;
        l->hosts++;
        for (uint32_t i = first; i < count; i++)
            if (l->host[i] == first) {
                l->place[i] = at;
                l->order[at++] = i;
            }
    }
}

int mesh_layout_make(mesh_layout *layout, const mesh_comm *comm,
                     const uint32_t *ranks, uint32_t count)
{
    uint32_t *at = calloc(count, 6 * sizeof(*at));
    if (!at)
        return 0;
    *layout = (mesh_layout){ .memory = at,
                             .host = at,
                             .order = at + count,
                             .place = at + 2 * (size_t)count,
                             .block_first = at + 3 * (size_t)count,
                             .block_count = at + 4 * (size_t)count,
                             .tasks = at + 5 * (size_t)count };
    for (uint32_t i = 0; i < count; i++)
        while (comm->peers[ranks[layout->host[i]]].host_id !=
               comm->peers[ranks[i]].host_id)
            layout->host[i]++;
    find_order(layout, count);
    find_blocks(layout, 0, count);
    return 1;
}

uint32_t mesh_widens(const mesh_call *call)
{
    return call->dtype == XRAY_BF16 && call->call != XRAY_COMM_ALL_REDUCE_MAX
               ? 2
               : 1;
}

int mesh_is_partial(const xray_comm_group *group, const mesh_call *call,
                    uint32_t owner, uint32_t index)
{
    const mesh_layout *l = &group->layout;
    return l->host[index] != l->host[owner] && call->bytes > MESH_SMALL &&
           l->block_count[index] > mesh_widens(call);
}

/* The ranks of a block take turns, so that each adds for some. */
uint32_t mesh_source_of(const xray_comm_group *group, const mesh_call *call,
                        uint32_t owner, uint32_t index)
{
    const mesh_layout *l = &group->layout;
    if (!mesh_is_partial(group, call, owner, index))
        return index;
    return l->block_first[index] + owner % l->block_count[index];
}

/* Among several hosts a part goes along the ring until each host has it. The
 * ranks of its own host that the ring would reach last have it directly. */
uint32_t mesh_ring_parts(const mesh_layout *layout, uint32_t count,
                         uint32_t index)
{
    uint32_t after = 0;
    for (uint32_t p = layout->place[index] + 1; p < count; p++)
        after += layout->host[layout->order[p]] == layout->host[index];
    return count - 1 - (layout->hosts > 1 ? after : 0);
}
