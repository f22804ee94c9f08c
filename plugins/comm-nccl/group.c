/* SPDX-License-Identifier: Apache-2.0
 *
 * Creates groups; each has its own communicator. The first group of all ranks
 * uses the communicator that was created when the ranks connected. For any
 * other group the first member creates an id and sends it to the other members
 * through that communicator, since only members make the call.
 */
#include <stdlib.h>
#include <string.h>

#include "core/base/collective.h"
#include "core/base/err.h"
#include "plugins/comm-nccl/instance.h"

typedef struct invitation {
    nccl_id id;
    uint64_t number;
} invitation;

void nccl_group_free(xray_comm_group *group)
{
    if (!group)
        return;
    free(group->ranks);
    free(group);
}

xray_comm_group *nccl_group_create(nccl_comm *comm, const uint32_t *ranks,
                                   uint32_t count)
{
    xray_comm_group *g = calloc(1, sizeof(*g));
    uint32_t *copy = calloc(count, sizeof(*copy));
    if (!g || !copy) {
        free(g);
        free(copy);
        return NULL;
    }
    memcpy(copy, ranks, count * sizeof(*copy));
    g->comm = comm;
    g->ranks = copy;
    g->count = count;
    atomic_store(&g->gate, NCCL_CLOSED);
    while (g->self < count && ranks[g->self] != comm->rank)
        g->self++;
    (void)pthread_mutex_lock(&comm->lock);
    g->next = comm->groups;
    comm->groups = g;
    (void)pthread_mutex_unlock(&comm->lock);
    return g;
}

static xray_status refuse_scratch(const nccl_comm *comm, uint32_t count)
{
    xr_err err;
    (void)xr_fail_key(&err, XRAY_E_CONFIG, "comm.nccl", "scratch",
                      ": %llu bytes are too few for sums of %u ranks",
                      (unsigned long long)comm->config.scratch, count);
    return xr_host_tell(comm->host, XRAY_E_CONFIG, "group", &err);
}

static xray_status check_ranks(const nccl_comm *comm, const uint32_t *ranks,
                               uint32_t count)
{
    xray_status status = xr_collective_check_ranks(comm->host, ranks, count,
                                                   comm->rank, comm->size);
    if (status != XRAY_OK)
        return status;
    if (count > 1 && nccl_piece_elements(comm, count) == 0)
        return refuse_scratch(comm, count);
    return XRAY_OK;
}

/* Sends the invitation from the first member to the others. */
static xray_status send_invitation(nccl_comm *comm, const uint32_t *ranks,
                                   uint32_t count, const invitation *card)
{
    xray_status status =
        comm->device->copy(comm->device_self, comm->stream, comm->small, card,
                           sizeof(*card), XRAY_COPY_TO_DEVICE);
    for (uint32_t i = 1; status == XRAY_OK && i < count; i++) {
        nccl_call call = { .call = XRAY_COMM_SEND,
                           .other = ranks[i],
                           .wait = 1,
                           .count = sizeof(*card),
                           .bytes = sizeof(*card),
                           .in = comm->small };
        status = nccl_run_call(comm->base, comm->stream, &call);
    }
    return status;
}

static xray_status receive_invitation(nccl_comm *comm, uint32_t first,
                                      invitation *card)
{
    nccl_call call = { .call = XRAY_COMM_RECV,
                       .other = first,
                       .wait = 1,
                       .count = sizeof(*card),
                       .bytes = sizeof(*card),
                       .out = comm->small };
    xray_status status = nccl_run_call(comm->base, comm->stream, &call);
    if (status == XRAY_OK)
        status =
            comm->device->copy(comm->device_self, comm->stream, card,
                               comm->small, sizeof(*card), XRAY_COPY_TO_HOST);
    if (status == XRAY_OK)
        status = comm->device->sync(comm->device_self, comm->stream);
    return status;
}

static xray_status join_group(xray_comm_group *g)
{
    nccl_comm *comm = g->comm;
    invitation card = { .number = 0 };
    xray_status status = XRAY_OK;
    if (g->self == 0) {
        comm->group_count++;
        card.number = (uint64_t)comm->group_count * comm->size + comm->rank;
    }
    g->number = card.number;
    if (g->count == 1)
        return XRAY_OK;
    if (g->self == 0) {
        int result = comm->api.unique_id(&card.id);
        if (result != NCCL_SUCCESS)
            return xr_host_fail(comm->host, XRAY_E_DEVICE, "group",
                                "no id for the group: NCCL says: %s: %s",
                                comm->api.error_text(result),
                                comm->api.last_error(NULL));
        status = send_invitation(comm, g->ranks, g->count, &card);
    } else {
        status = receive_invitation(comm, g->ranks[0], &card);
        g->number = card.number;
    }
    return status == XRAY_OK ? nccl_connect(g, &card.id) : status;
}

xray_status nccl_group(void *self, const uint32_t *ranks, uint32_t count,
                       xray_comm_group **out)
{
    nccl_comm *comm = self;
    if (!ranks || !out || count == 0)
        return xr_host_fail(comm->host, XRAY_E_ARG, "group",
                            "no ranks, or a pointer is NULL");
    xray_status status = check_ranks(comm, ranks, count);
    if (status != XRAY_OK)
        return status;
    if (count == comm->size && !comm->base_taken) {
        comm->base_taken = 1;
        *out = comm->base;
        return XRAY_OK;
    }
    /* A group that could not be joined stays in the list unused until the end,
     * since messages of other ranks may still name it. */
    xray_comm_group *g = nccl_group_create(comm, ranks, count);
    if (!g)
        return xr_host_fail(comm->host, XRAY_E_NOMEM, "group",
                            "no memory for a group");
    status = join_group(g);
    if (status == XRAY_OK)
        *out = g;
    return status;
}
