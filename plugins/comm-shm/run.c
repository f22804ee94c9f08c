/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs one round of a call: describe the call, arrive, compare it with the
 * other ranks' calls, attach their buffers, work, and wait for the end.
 */
#include <string.h>

#include "core/base/hash.h"
#include "plugins/comm-shm/shm.h"

/* ---- buffers ------------------------------------------------------------ */

uint64_t shm_parts_in(uint32_t call, uint32_t count)
{
    switch (call) {
    case XRAY_COMM_REDUCE_SCATTER:
    case XRAY_COMM_ALL_TO_ALL:
        return count;
    case XRAY_COMM_ALL_GATHER:
    case XRAY_COMM_SEND:
        return 1;
    default:
        return 0;
    }
}

uint64_t shm_parts_out(uint32_t call, uint32_t count)
{
    switch (call) {
    case XRAY_COMM_ALL_GATHER:
    case XRAY_COMM_ALL_TO_ALL:
        return count;
    case XRAY_COMM_SEND:
        return 0;
    default:
        return 1;
    }
}

static xray_status share_buffer(const shm_comm *comm, const char *what,
                                const void *ptr, uint64_t bytes,
                                uint8_t *handle)
{
    if (comm->stage) {
        shm_stage_share(comm, ptr, handle);
        return XRAY_OK;
    }
    xray_status status =
        bytes ? comm->device->share(comm->device_self, ptr, handle) : XRAY_OK;
    if (status != XRAY_OK)
        return xr_host_fail(
            comm->host, status, "comm shm",
            "%s (%llu bytes) is not in memory that this device can "
            "share",
            what, (unsigned long long)bytes);
    return XRAY_OK;
}

/* Describes the buffers of this rank to the others. */
static xray_status share_buffers(const shm_channel *channel,
                                 const shm_call *call, shm_call_desc *desc)
{
    const shm_comm *comm = channel->comm;
    const char *first = call->in && call->out ? "in" : "buf";
    const char *second = call->in && call->out ? "out" : "buf";
    xray_status status = XRAY_OK;
    if (call->in)
        status = share_buffer(
            comm, first, call->in,
            call->bytes * shm_parts_in(call->call, channel->count), desc->in);
    if (status == XRAY_OK && call->out)
        status = share_buffer(
            comm, second, call->out,
            call->bytes * shm_parts_out(call->call, channel->count), desc->out);
    return status;
}

/* Attaches a buffer of a peer once, and finds it by its handle from then on. */
static xray_status attach_buffer(shm_comm *comm, uint32_t rank,
                                 const uint8_t *handle, uint64_t bytes,
                                 void **out)
{
    if (comm->stage)
        return shm_stage_attach(comm, rank, handle, out);
    shm_peer *peer = &comm->peers[rank];
    uint64_t hash = xr_hash64(handle, XRAY_HANDLE_BYTES, 0);
    shm_attached *entry = &peer->cache[hash % SHM_CACHE];
    if (entry->ptr && entry->bytes >= bytes &&
        memcmp(entry->handle, handle, XRAY_HANDLE_BYTES) == 0) {
        *out = entry->ptr;
        return XRAY_OK;
    }
    void *ptr = NULL;
    xray_status status =
        comm->device->attach(comm->device_self, handle, bytes, &ptr);
    if (status != XRAY_OK)
        return xr_host_fail(comm->host, status, "comm shm",
                            "the memory of rank %u cannot be attached", rank);
    if (entry->ptr)
        comm->device->detach(comm->device_self, entry->ptr);
    memcpy(entry->handle, handle, XRAY_HANDLE_BYTES);
    entry->bytes = bytes;
    entry->ptr = ptr;
    *out = ptr;
    return XRAY_OK;
}

void shm_detach_all(shm_comm *comm)
{
    for (uint32_t r = 0; r < comm->size; r++)
        for (uint32_t i = 0; i < SHM_CACHE; i++)
            if (comm->peers[r].cache[i].ptr)
                comm->device->detach(comm->device_self,
                                     comm->peers[r].cache[i].ptr);
}

xray_status shm_attach_buffers(shm_channel *channel, const shm_call *call,
                               shm_round *round)
{
    shm_comm *comm = channel->comm;
    for (uint32_t i = 0; i < channel->count; i++) {
        const shm_call_desc *desc = &shm_member_of(round, i)->desc;
        uint64_t in = desc->bytes * shm_parts_in(desc->call, channel->count);
        uint64_t out = desc->bytes * shm_parts_out(desc->call, channel->count);
        void *ptr = NULL;
        xray_status status = XRAY_OK;
        channel->in[i] = i == channel->self ? call->in : NULL;
        channel->out[i] = i == channel->self ? call->out : NULL;
        channel->in_place[i] = desc->in_place;
        if (i == channel->self)
            continue;
        if (in)
            status = attach_buffer(comm, channel->ranks[i], desc->in, in, &ptr);
        channel->in[i] = ptr;
        ptr = NULL;
        if (status == XRAY_OK && out)
            status =
                attach_buffer(comm, channel->ranks[i], desc->out, out, &ptr);
        channel->out[i] = ptr;
        if (status != XRAY_OK)
            return status;
    }
    return XRAY_OK;
}

/* ---- arriving ----------------------------------------------------------- */

static int is_same_call(const shm_call_desc *a, const shm_call_desc *b)
{
    if (a->bytes != b->bytes || a->call_bytes != b->call_bytes)
        return 0;
    if (a->call == XRAY_COMM_SEND || a->call == XRAY_COMM_RECV)
        return a->call + b->call == XRAY_COMM_SEND + XRAY_COMM_RECV;
    return a->call == b->call && a->dtype == b->dtype && a->root == b->root;
}

/* Compares this rank's call with those of the ranks that have arrived. */
static int is_same_for_all(const shm_channel *channel, shm_round *round,
                           uint64_t number)
{
    const shm_call_desc *mine = &shm_member_of(round, channel->self)->desc;
    for (uint32_t i = 0; i < channel->count; i++) {
        shm_member *member = shm_member_of(round, i);
        if (i != channel->self && atomic_load(&member->arrived) == number &&
            !is_same_call(mine, &member->desc))
            return 0;
    }
    return 1;
}

/* The last rank to arrive resets the round and opens it: by then every rank has
 * left the round's previous use. */
static void arrive_at_round(const shm_channel *channel, shm_round *round,
                            uint64_t number)
{
    atomic_store(&shm_member_of(round, channel->self)->arrived, number);
    if (atomic_fetch_add(&round->arrived, 1) + 1 != channel->count)
        return;
    for (uint32_t i = 0; i < channel->count; i++)
        atomic_store(&shm_member_of(round, i)->next, 0);
    atomic_store(&round->finished, 0);
    atomic_store(&round->arrived, 0);
    atomic_store(&round->open, (uint32_t)number);
    shm_wake_ranks(round, &round->open);
}

static void describe_call(const shm_channel *channel, const shm_call *call,
                          shm_call_desc *desc)
{
    desc->count = call->count;
    desc->bytes = call->bytes;
    desc->call_bytes = call->call_bytes;
    desc->call = call->call;
    desc->dtype = call->dtype;
    desc->root = call->root;
    desc->half = call->whole != NULL;
    desc->in_place =
        call->call == XRAY_COMM_ALL_GATHER && call->bytes &&
        (const char *)call->out + channel->self * call->bytes == call->in;
}

shm_round *shm_next_round(const shm_channel *channel)
{
    return shm_round_of(&channel->comm->control, channel->number,
                        (uint32_t)((channel->calls + 1) & 1));
}

xray_status shm_begin_round(shm_channel *channel, const shm_call *call)
{
    shm_round *round = shm_next_round(channel);
    uint64_t number = channel->calls + 1;
    shm_call_desc *mine = &shm_member_of(round, channel->self)->desc;
    describe_call(channel, call, mine);
    xray_status status = share_buffers(channel, call, mine);
    if (status != XRAY_OK) {
        (void)shm_break_channel(channel, call, SHM_FAILED);
        return status;
    }
    channel->arrived = 1;
    arrive_at_round(channel, round, number);
    if (!is_same_for_all(channel, round, number))
        return shm_break_channel(channel, call, SHM_DIFFERENT);
    return XRAY_OK;
}

/* A rank that the system ran late may find that the others have done all work
 * and have freed their buffers. */
xray_status shm_work_round(shm_channel *channel, const shm_call *call)
{
    shm_comm *comm = channel->comm;
    shm_round *round = shm_next_round(channel);
    uint32_t number = (uint32_t)(channel->calls + 1);
    if (!is_same_for_all(channel, round, channel->calls + 1))
        return shm_break_channel(channel, call, SHM_DIFFERENT);
    if (atomic_load(&round->closed) == number)
        return XRAY_OK;
    xray_status status = shm_attach_buffers(channel, call, round);
    if (atomic_load(&round->closed) == number)
        return XRAY_OK;
    if (status != XRAY_OK) {
        (void)shm_break_channel(channel, call, SHM_FAILED);
        return status;
    }
    shm_trace_state(comm, SHM_WORKS);
    if (!shm_do_pieces(channel, call, round))
        return XRAY_OK;
    shm_trace_state(comm, SHM_WAITS);
    return XRAY_AGAIN;
}

void shm_end_round(shm_channel *channel)
{
    channel->calls++;
    channel->arrived = 0;
}

xray_status shm_run_round(shm_channel *channel, const shm_call *call)
{
    shm_comm *comm = channel->comm;
    shm_round *round = shm_next_round(channel);
    shm_wait open = { .channel = channel, .call = call, .word = &round->open };
    shm_wait closed = { .channel = channel,
                        .call = call,
                        .word = &round->closed };
    /* This comes before the trace, which still names the call that this rank
     * gave up in. */
    if (atomic_load(shm_channel_broken(&comm->control, channel->number)))
        return shm_report_broken(channel, call);
    shm_trace_begin(channel, NULL, call);
    if (atomic_load(&comm->aborted))
        return shm_break_channel(channel, call, SHM_ABORTED);
    xray_status status = shm_begin_round(channel, call);
    if (status == XRAY_OK)
        status = shm_wait_word(&open, 0);
    if (status == XRAY_OK)
        status = shm_work_round(channel, call);
    if (status == XRAY_AGAIN)
        status = shm_wait_word(&closed, 0);
    if (status != XRAY_OK)
        return status;
    shm_end_round(channel);
    shm_trace_end(comm, SHM_OUTSIDE);
    return XRAY_OK;
}
