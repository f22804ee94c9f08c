/* SPDX-License-Identifier: Apache-2.0
 *
 * Creates groups of ranks and the channels on which their members make calls.
 */
#include <stdlib.h>
#include <string.h>

#include <xray/numerics.h>

#include "core/base/collective.h"
#include "core/base/hash.h"
#include "plugins/comm-shm/shm.h"

static void free_channel(shm_channel *channel)
{
    if (!channel)
        return;
    free(channel->in);
    free(channel->out);
    free(channel->in_place);
    free(channel);
}

void shm_group_free(xray_comm_group *group)
{
    if (!group)
        return;
    for (uint32_t i = 0; group->messages && i < 2 * group->count; i++)
        free_channel(group->messages[i]);
    free_channel(group->all);
    free(group->messages);
    free(group->pair_ranks);
    free(group->ranks);
    free(group);
}

/* Creates the channel of `ranks` with `key`. Returns NULL if there is no memory
 * or no free channel. */
static shm_channel *create_channel(shm_comm *comm, const uint32_t *ranks,
                                   uint32_t count, uint64_t key, uint64_t pair)
{
    shm_channel *c = calloc(1, sizeof(*c));
    if (!c)
        return NULL;
    c->comm = comm;
    c->ranks = ranks;
    c->count = count;
    while (c->self < count && ranks[c->self] != comm->rank)
        c->self++;
    c->in = calloc(count, sizeof(*c->in));
    c->out = calloc(count, sizeof(*c->out));
    c->in_place = calloc(count, sizeof(*c->in_place));
    c->number = shm_channel_claim(&comm->control, key, pair);
    if (!c->in || !c->out || !c->in_place || c->number == UINT32_MAX) {
        free_channel(c);
        return NULL;
    }
    c->group = c->number;
    return c;
}

/* Computes the key of a new group. The same ranks may form a group several
 * times, and each is another group. */
static uint64_t compute_group_key(const shm_comm *comm, const uint32_t *ranks,
                                  uint32_t count)
{
    uint64_t before = 0;
    for (const xray_comm_group *g = comm->groups; g; g = g->next)
        before += g->count == count &&
                  memcmp(g->ranks, ranks, count * sizeof(*ranks)) == 0;
    return xr_hash64(ranks, count * sizeof(*ranks), before) | 1;
}

static int fill_group(xray_comm_group *g, const uint32_t *ranks, uint32_t count)
{
    g->count = count;
    g->ranks = calloc(count, sizeof(*ranks));
    g->messages = calloc(count, 2 * sizeof(shm_channel *));
    g->pair_ranks = calloc(count, 2 * sizeof(*ranks));
    if (!g->ranks || !g->messages || !g->pair_ranks)
        return 0;
    memcpy(g->ranks, ranks, count * sizeof(*ranks));
    g->all = create_channel(g->comm, g->ranks, count,
                            compute_group_key(g->comm, ranks, count), 0);
    return g->all != NULL;
}

xray_status shm_group(void *self, const uint32_t *ranks, uint32_t count,
                      xray_comm_group **out)
{
    shm_comm *comm = self;
    if (!ranks || !out || count == 0)
        return xr_host_fail(comm->host, XRAY_E_ARG, "group",
                            "no ranks, or a pointer is NULL");
    xray_status status = xr_collective_check_ranks(comm->host, ranks, count,
                                                   comm->rank, comm->size);
    if (status != XRAY_OK)
        return status;
    xray_comm_group *g = calloc(1, sizeof(*g));
    if (g)
        g->comm = comm;
    if (!g || !fill_group(g, ranks, count)) {
        shm_group_free(g);
        return xr_host_fail(comm->host, XRAY_E_NOMEM, "group",
                            "no memory for a group, or more than %u groups and "
                            "ways of messages from one rank to another",
                            SHM_MAX_CHANNELS);
    }
    g->self = g->all->self;
    g->next = comm->groups;
    comm->groups = g;
    *out = g;
    return XRAY_OK;
}

xray_status shm_message_channel(xray_comm_group *group, const char *where,
                                uint32_t peer, int sends, shm_channel **out)
{
    shm_comm *comm = group->comm;
    if (peer >= group->count || peer == group->self)
        return xr_host_fail(
            comm->host, XRAY_E_ARG, where,
            "peer %u: another rank of a group of %u is expected", peer,
            group->count);
    shm_channel **at = &group->messages[2 * (size_t)peer + (sends != 0)];
    if (!*at) {
        uint32_t *two = group->pair_ranks + 2 * (size_t)peer;
        uint32_t mine = group->ranks[group->self];
        uint32_t other = group->ranks[peer];
        two[0] = mine < other ? mine : other;
        two[1] = mine < other ? other : mine;
        uint64_t pair = shm_pair(group->all->number, sends ? mine : other,
                                 sends ? other : mine);
        *at = create_channel(comm, two, 2, xray_mix64(1, pair) & ~(uint64_t)1,
                             pair);
    }
    if (!*at)
        return xr_host_fail(comm->host, XRAY_E_NOMEM, where,
                            "no memory, or more than %u groups and ways of "
                            "messages from one rank to another",
                            SHM_MAX_CHANNELS);
    (*at)->group = group->all->number;
    *out = *at;
    return XRAY_OK;
}
