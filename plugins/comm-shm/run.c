/* SPDX-License-Identifier: Apache-2.0
 *
 * The course of a call: say what one comes with, arrive, compare, attach the
 * others' buffers, work, wait for the end of it.
 */
#include <string.h>

#include "core/base/hash.h"
#include "plugins/comm-shm/shm.h"

/* ---- buffers ------------------------------------------------------------ */

static xray_status share_one(const shm_comm *comm, const char *what,
                             const void *ptr, uint64_t bytes, uint8_t *handle)
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

xray_status shm_share(const shm_comm *comm, const shm_call *call,
                      shm_desc *desc)
{
    const char *first = call->in && call->out ? "in" : "buf";
    const char *second = call->in && call->out ? "out" : "buf";
    xray_status status = XRAY_OK;
    if (call->in)
        status = share_one(comm, first, call->in, call->in_bytes, desc->in);
    if (status == XRAY_OK && call->out)
        status = share_one(comm, second, call->out, call->out_bytes, desc->out);
    return status;
}

/* A block of a peer, attached once and found again by its handle. */
static xray_status attach_one(shm_comm *comm, uint32_t rank,
                              const uint8_t *handle, uint64_t bytes, void **out)
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

/* Bytes of `in` and `out` of a member, by what it came with. */
static uint64_t needs_in(const shm_channel *c, const shm_desc *d)
{
    switch (d->call) {
    case XRAY_COMM_REDUCE_SCATTER:
        return d->bytes * c->count;
    case XRAY_COMM_ALL_GATHER:
    case XRAY_COMM_SEND:
        return d->bytes;
    default:
        return 0;
    }
}

static uint64_t needs_out(const shm_channel *c, const shm_desc *d)
{
    switch (d->call) {
    case XRAY_COMM_ALL_GATHER:
        return d->bytes * c->count;
    case XRAY_COMM_SEND:
    case XRAY_COMM_BARRIER:
        return 0;
    default:
        return d->bytes;
    }
}

xray_status shm_attach(shm_channel *channel, const shm_call *call,
                       shm_step *step)
{
    shm_comm *comm = channel->comm;
    for (uint32_t i = 0; i < channel->count; i++) {
        const shm_desc *desc = &shm_member_of(step, i)->desc;
        uint64_t in = needs_in(channel, desc);
        uint64_t out = needs_out(channel, desc);
        void *ptr = NULL;
        xray_status status = XRAY_OK;
        channel->in[i] = i == channel->self ? call->in : NULL;
        channel->out[i] = i == channel->self ? call->out : NULL;
        channel->in_place[i] = desc->in_place;
        if (i == channel->self)
            continue;
        if (in)
            status = attach_one(comm, channel->ranks[i], desc->in, in, &ptr);
        channel->in[i] = ptr;
        ptr = NULL;
        if (status == XRAY_OK && out)
            status = attach_one(comm, channel->ranks[i], desc->out, out, &ptr);
        channel->out[i] = ptr;
        if (status != XRAY_OK)
            return status;
    }
    return XRAY_OK;
}

/* ---- arriving ----------------------------------------------------------- */

static int same_call(const shm_desc *a, const shm_desc *b)
{
    if (a->bytes != b->bytes || a->whole != b->whole)
        return 0;
    if (a->call == XRAY_COMM_SEND || a->call == XRAY_COMM_RECV)
        return a->call + b->call == XRAY_COMM_SEND + XRAY_COMM_RECV;
    return a->call == b->call && a->dtype == b->dtype && a->root == b->root;
}

/* Compares with those that have arrived. */
static int all_the_same(const shm_channel *channel, shm_step *step,
                        uint64_t number)
{
    const shm_desc *mine = &shm_member_of(step, channel->self)->desc;
    for (uint32_t i = 0; i < channel->count; i++) {
        shm_member *member = shm_member_of(step, i);
        if (i != channel->self && atomic_load(&member->arrived) == number &&
            !same_call(mine, &member->desc))
            return 0;
    }
    return 1;
}

/* The last to arrive clears the step and opens it: every other rank is past the
 * step's former use. */
static void arrive(const shm_channel *channel, shm_step *step, uint64_t number)
{
    atomic_store(&shm_member_of(step, channel->self)->arrived, number);
    if (atomic_fetch_add(&step->arrived, 1) + 1 != channel->count)
        return;
    for (uint32_t i = 0; i < channel->count; i++)
        atomic_store(&shm_member_of(step, i)->next, 0);
    atomic_store(&step->finished, 0);
    atomic_store(&step->arrived, 0);
    atomic_store(&step->open, (uint32_t)number);
    shm_wake(step, &step->open);
}

static void describe(const shm_channel *channel, const shm_call *call,
                     shm_desc *desc)
{
    desc->count = call->count;
    desc->bytes = call->bytes;
    desc->whole = call->whole;
    desc->call = call->call;
    desc->dtype = call->dtype;
    desc->root = call->root;
    desc->in_place =
        call->call == XRAY_COMM_ALL_GATHER && call->bytes &&
        (const char *)call->out + channel->self * call->bytes == call->in;
}

/* Bytes that this rank gets from others, whoever does the work: what the same
 * call would move over wires, by rings. */
static uint64_t bytes_received(const shm_channel *channel, const shm_call *call)
{
    uint64_t others = channel->count - 1;
    switch (call->call) {
    case XRAY_COMM_ALL_REDUCE:
        return 2 * others * call->bytes / channel->count;
    case XRAY_COMM_REDUCE_SCATTER:
    case XRAY_COMM_ALL_GATHER:
        return others * call->bytes;
    case XRAY_COMM_BROADCAST:
        return call->root == channel->self ? 0 : call->bytes;
    case XRAY_COMM_RECV:
        return call->bytes;
    default:
        return 0;
    }
}

/* From the step's opening to its close. A rank that the system let run late may
 * find that the others have done all, and have freed their buffers since. */
static xray_status finish(shm_channel *channel, const shm_call *call,
                          shm_step *step, uint32_t number)
{
    shm_comm *comm = channel->comm;
    if (atomic_load(&step->closed) == number)
        return XRAY_OK;
    xray_status status = shm_attach(channel, call, step);
    if (atomic_load(&step->closed) == number)
        return XRAY_OK;
    if (status != XRAY_OK) {
        (void)shm_break(channel, call, SHM_FAILED);
        return status;
    }
    shm_trace_state(comm, SHM_WORKS);
    if (!shm_work(channel, call, step))
        return XRAY_OK;
    shm_trace_state(comm, SHM_WAITS);
    return shm_wait(channel, call, step, &step->closed, number);
}

xray_status shm_run(shm_channel *channel, const shm_call *call)
{
    shm_comm *comm = channel->comm;
    uint64_t number = channel->calls + 1;
    shm_step *step =
        shm_step_of(&comm->control, channel->number, (uint32_t)(number & 1));
    shm_desc *mine = &shm_member_of(step, channel->self)->desc;
    /* Before the trace: what this rank gave up in is of more use. */
    if (atomic_load(shm_channel_broken(&comm->control, channel->number)))
        return shm_unfit(channel, call);
    shm_trace_begin(channel, call);
    if (atomic_load(&comm->aborted))
        return shm_break(channel, call, SHM_ABORTED);
    describe(channel, call, mine);
    xray_status status = shm_share(comm, call, mine);
    if (status != XRAY_OK) {
        (void)shm_break(channel, call, SHM_FAILED);
        return status;
    }
    arrive(channel, step, number);
    if (!all_the_same(channel, step, number))
        return shm_break(channel, call, SHM_DIFFERENT);
    status = shm_wait(channel, call, step, &step->open, (uint32_t)number);
    if (status != XRAY_OK)
        return status;
    if (!all_the_same(channel, step, number))
        return shm_break(channel, call, SHM_DIFFERENT);
    status = finish(channel, call, step, (uint32_t)number);
    if (status != XRAY_OK)
        return status;
    channel->calls = number;
    comm->received += bytes_received(channel, call);
    shm_trace_end(comm, SHM_OUTSIDE);
    return XRAY_OK;
}
