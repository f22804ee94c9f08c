/* SPDX-License-Identifier: Apache-2.0
 *
 * The calls: arguments, the way onto the instance's stream and back.
 */
#include <stdio.h>

#include "core/base/collective.h"
#include "plugins/comm-nccl/instance.h"

#define ROOM 5000000000u /* ns until a full ring is held for stuck */

/* ---- enqueuing ---------------------------------------------------------- */

xray_status nccl_settle(xray_comm_group *group, const char *what, int result)
{
    nccl_comm *comm = group->comm;
    uint64_t start = nccl_clock();
    uint32_t cause = 0;
    char detail[512];
    for (uint32_t i = 0; result == NCCL_IN_PROGRESS && !cause; i++) {
        int state = NCCL_IN_PROGRESS;
        int asked = comm->api.async_error(group->nccl, &state);
        result = asked == NCCL_SUCCESS ? state : asked;
        if (result != NCCL_IN_PROGRESS)
            break;
        cause = nccl_wrong(comm, group, start);
        nccl_pause(i < 100 ? 20 : 500);
    }
    if (result == NCCL_SUCCESS)
        return XRAY_OK;
    (void)snprintf(detail, sizeof(detail), "%s: %s: %s", what,
                   comm->api.error_text(result),
                   comm->api.last_error(group->nccl));
    nccl_break(group, cause ? cause : NCCL_FAILED, cause ? NULL : detail);
    return XRAY_E_PEER;
}

/* A failure of the CUDA driver while a call is made. */
static xray_status cuda_settle(xray_comm_group *group, int error)
{
    if (error == NCCL_CUDA_SUCCESS)
        return XRAY_OK;
    nccl_break(group, NCCL_FAILED, nccl_cuda_text(group->comm, error));
    return XRAY_E_PEER;
}

static xray_status sum(xray_comm_group *g, const nccl_call *call)
{
    const nccl_comm *comm = g->comm;
    int bf16 = call->dtype == XRAY_BF16;
    int type = bf16 ? NCCL_BFLOAT16 : NCCL_FLOAT32;
    if (comm->config.sums == NCCL_SUMS_ORDERED)
        return nccl_ordered(g, call);
    if (bf16 && comm->config.reduce_bf16 == NCCL_BF16_FP32)
        return nccl_widened(g, call);
    if (call->call == XRAY_COMM_ALL_REDUCE)
        return nccl_settle(g, "ncclAllReduce",
                           comm->api.all_reduce(call->out, call->out,
                                                call->count, type, NCCL_SUM,
                                                g->nccl, comm->native));
    return nccl_settle(g, "ncclReduceScatter",
                       comm->api.reduce_scatter(call->in, call->out,
                                                call->count, type, NCCL_SUM,
                                                g->nccl, comm->native));
}

static xray_status enqueue(xray_comm_group *g, const nccl_call *call)
{
    const nccl_comm *comm = g->comm;
    const nccl_api *api = &comm->api;
    int other = (int)call->other;
    switch (call->call) {
    case XRAY_COMM_ALL_REDUCE:
    case XRAY_COMM_REDUCE_SCATTER:
        return sum(g, call);
    case XRAY_COMM_ALL_GATHER:
        return nccl_settle(g, "ncclAllGather",
                           api->all_gather(call->in, call->out, call->bytes,
                                           NCCL_INT8, g->nccl, comm->native));
    case XRAY_COMM_BROADCAST:
        return nccl_settle(g, "ncclBroadcast",
                           api->broadcast(call->out, call->out, call->bytes,
                                          NCCL_INT8, other, g->nccl,
                                          comm->native));
    case XRAY_COMM_SEND:
        return nccl_settle(g, "ncclSend",
                           api->send(call->in, call->bytes, NCCL_INT8, other,
                                     g->nccl, comm->native));
    case XRAY_COMM_RECV:
        return nccl_settle(g, "ncclRecv",
                           api->recv(call->out, call->bytes, NCCL_INT8, other,
                                     g->nccl, comm->native));
    default: { /* a barrier */
        char *last = comm->small + NCCL_SMALL / 2;
        return nccl_settle(g, "ncclAllReduce",
                           api->all_reduce(last, last, 1, NCCL_FLOAT32,
                                           NCCL_SUM, g->nccl, comm->native));
    }
    }
}

/* ---- a call's course ---------------------------------------------------- */

/* Bytes that this rank gets from others. */
static uint64_t bytes_received(const xray_comm_group *g, const nccl_call *call)
{
    uint64_t others = g->count - 1;
    switch (call->call) {
    case XRAY_COMM_ALL_REDUCE:
        return 2 * others * call->bytes / g->count;
    case XRAY_COMM_REDUCE_SCATTER:
    case XRAY_COMM_ALL_GATHER:
        return others * call->bytes;
    case XRAY_COMM_BROADCAST:
        return call->other == g->self ? 0 : call->bytes;
    case XRAY_COMM_RECV:
        return call->bytes;
    default:
        return 0;
    }
}

static void fill(nccl_slot *slot, xray_comm_group *g, const nccl_call *call)
{
    slot->group = g;
    slot->number = ++g->comm->calls;
    slot->call = call->call;
    slot->dtype = call->dtype;
    slot->other = call->other < g->count ? g->ranks[call->other] : 0;
    slot->bytes = call->bytes;
    slot->since = 0;
}

/* Waits for room in the ring. */
static xray_status make_room(nccl_comm *comm)
{
    uint64_t start = nccl_clock();
    for (;;) {
        nccl_look(comm);
        if (comm->tail - comm->head < NCCL_RING)
            return XRAY_OK;
        xray_comm_group *first = comm->ring[comm->head % NCCL_RING].group;
        if (first->broken && nccl_clock() - start > ROOM)
            return nccl_unfit(first);
        (void)pthread_mutex_unlock(&comm->lock);
        nccl_pause(100);
        (void)pthread_mutex_lock(&comm->lock);
    }
}

/* What speaks against a call before it begins. */
static xray_status check_fit(xray_comm_group *g, const nccl_call *call)
{
    nccl_comm *comm = g->comm;
    if (g->broken)
        return nccl_unfit(g);
    if (comm->untold)
        return nccl_unfit(comm->untold);
    uint32_t cause = nccl_gone(g);
    if (!cause)
        return XRAY_OK;
    nccl_slot slot = { 0 };
    fill(&slot, g, call);
    slot.since = nccl_clock();
    nccl_trace_begin(comm, &slot);
    comm->making = &slot;
    nccl_break(g, cause, NULL);
    comm->making = NULL;
    return nccl_unfit(g);
}

static xray_status start(xray_comm_group *g, void *stream,
                         const nccl_call *call)
{
    nccl_comm *comm = g->comm;
    const nccl_api *api = &comm->api;
    xray_status status = check_fit(g, call);
    if (status == XRAY_OK)
        status = make_room(comm);
    if (status != XRAY_OK)
        return status;
    nccl_slot *slot = &comm->ring[comm->tail % NCCL_RING];
    fill(slot, g, call);
    comm->making = slot;
    /* Enqueuing may wait for a peer already: then this says in what. */
    if (comm->head == comm->tail) {
        slot->since = nccl_clock();
        nccl_trace_begin(comm, slot);
        slot->since = 0;
    }
    status = cuda_settle(g, api->event_record(slot->ready, stream));
    if (status == XRAY_OK && stream != comm->native)
        status = cuda_settle(g, api->stream_wait(comm->native, slot->ready, 0));
    if (status == XRAY_OK)
        status = enqueue(g, call);
    if (status == XRAY_OK)
        status = cuda_settle(g, api->event_record(slot->done, comm->native));
    if (status == XRAY_OK && stream != comm->native)
        status = cuda_settle(g, api->stream_wait(stream, slot->done, 0));
    if (status != XRAY_OK && !g->broken)
        nccl_break(g, NCCL_FAILED, "the device failed in it");
    comm->making = NULL;
    if (status != XRAY_OK)
        return nccl_unfit(g);
    comm->tail++;
    if (call->wait < 2)
        comm->received += bytes_received(g, call);
    return XRAY_OK;
}

/* Until call `number` is done. Holds the lock, but not while it sleeps. */
static xray_status finish(xray_comm_group *g, uint64_t number)
{
    nccl_comm *comm = g->comm;
    for (uint32_t i = 0;; i++) {
        nccl_look(comm);
        if (g->broken)
            return nccl_unfit(g);
        if (comm->head > number)
            return XRAY_OK;
        (void)pthread_mutex_unlock(&comm->lock);
        nccl_pause(i < 200 ? 10 : 200);
        (void)pthread_mutex_lock(&comm->lock);
    }
}

/* A call that moves nothing between ranks. */
static xray_status alone(xray_comm_group *g, xray_stream *stream,
                         const nccl_call *call)
{
    nccl_comm *comm = g->comm;
    nccl_slot slot = { 0 };
    xray_status status = XRAY_OK;
    if (g->broken || comm->untold)
        return nccl_unfit(g->broken ? g : comm->untold);
    fill(&slot, g, call);
    slot.since = nccl_clock();
    if (comm->head == comm->tail)
        nccl_trace_begin(comm, &slot);
    if (call->in && call->out && call->in != call->out && call->bytes)
        status = comm->device->copy(comm->device_self, stream, call->out,
                                    call->in, call->bytes, XRAY_COPY_ON_DEVICE);
    if (status == XRAY_OK && comm->config.wait)
        status = comm->device->sync(comm->device_self, stream);
    if (comm->head == comm->tail)
        nccl_trace_state(comm, NCCL_OUTSIDE);
    return status;
}

xray_status nccl_run(xray_comm_group *g, xray_stream *stream,
                     const nccl_call *call)
{
    nccl_comm *comm = g->comm;
    xray_status status;
    (void)pthread_mutex_lock(&comm->lock);
    if (g->count == 1 || (!call->bytes && call->call != XRAY_COMM_BARRIER)) {
        status = alone(g, stream, call);
    } else {
        uint64_t number = comm->tail;
        status = start(g, comm->cuda->stream(comm->device_self, stream), call);
        if (status == XRAY_OK) {
            nccl_look(comm);
            (void)pthread_cond_signal(&comm->work);
        }
        if (status == XRAY_OK && (call->wait || comm->config.wait))
            status = finish(g, number);
    }
    (void)pthread_mutex_unlock(&comm->lock);
    return status;
}

/* ---- the interface ------------------------------------------------------ */

xray_status nccl_all_reduce(xray_comm_group *group, xray_stream *stream,
                            void *buf, uint64_t count, uint32_t dtype)
{
    xray_status status = xr_collective_check_sum(
        group->comm->host, "all_reduce", buf, buf, count, dtype);
    if (status != XRAY_OK)
        return status;
    nccl_call call = { .call = XRAY_COMM_ALL_REDUCE,
                       .dtype = dtype,
                       .count = count,
                       .bytes = count * xr_collective_width(dtype),
                       .out = buf };
    return nccl_run(group, stream, &call);
}

xray_status nccl_reduce_scatter(xray_comm_group *group, xray_stream *stream,
                                const void *in, void *out, uint64_t count,
                                uint32_t dtype)
{
    xray_status status = xr_collective_check_sum(
        group->comm->host, "reduce_scatter", in, out, count, dtype);
    if (status != XRAY_OK)
        return status;
    nccl_call call = { .call = XRAY_COMM_REDUCE_SCATTER,
                       .dtype = dtype,
                       .count = count,
                       .bytes = count * xr_collective_width(dtype),
                       .in = in,
                       .out = out };
    return nccl_run(group, stream, &call);
}

xray_status nccl_all_gather(xray_comm_group *group, xray_stream *stream,
                            const void *in, void *out, uint64_t count,
                            uint32_t dtype)
{
    xray_status status = xr_collective_check_all(
        group->comm->host, "all_gather", in, out, count, dtype);
    if (status != XRAY_OK)
        return status;
    uint64_t bytes = count * xr_collective_width(dtype);
    nccl_call call = { .call = XRAY_COMM_ALL_GATHER,
                       .dtype = dtype,
                       .count = count,
                       .bytes = bytes,
                       .in = in,
                       .out = out };
    return nccl_run(group, stream, &call);
}

xray_status nccl_broadcast(xray_comm_group *group, xray_stream *stream,
                           void *buf, uint64_t bytes, uint32_t root)
{
    xray_status status =
        xr_collective_check(group->comm->host, "broadcast", buf, buf, bytes);
    if (status != XRAY_OK)
        return status;
    if (root >= group->count)
        return xr_host_fail(group->comm->host, XRAY_E_ARG, "broadcast",
                            "root %u of a group of %u", root, group->count);
    nccl_call call = { .call = XRAY_COMM_BROADCAST,
                       .other = root,
                       .count = bytes,
                       .bytes = bytes,
                       .out = buf };
    return nccl_run(group, stream, &call);
}

static xray_status check_peer(const xray_comm_group *group, const char *where,
                              const void *buf, uint64_t bytes, uint32_t peer)
{
    if (peer >= group->count || peer == group->self)
        return xr_host_fail(
            group->comm->host, XRAY_E_ARG, where,
            "peer %u: another rank of a group of %u is expected", peer,
            group->count);
    return xr_collective_check(group->comm->host, where, buf, buf, bytes);
}

xray_status nccl_send(xray_comm_group *group, xray_stream *stream,
                      const void *buf, uint64_t bytes, uint32_t peer)
{
    xray_status status = check_peer(group, "send", buf, bytes, peer);
    if (status != XRAY_OK)
        return status;
    nccl_call call = { .call = XRAY_COMM_SEND,
                       .other = peer,
                       .count = bytes,
                       .bytes = bytes,
                       .in = buf };
    return nccl_run(group, stream, &call);
}

xray_status nccl_recv(xray_comm_group *group, xray_stream *stream, void *buf,
                      uint64_t bytes, uint32_t peer)
{
    xray_status status = check_peer(group, "recv", buf, bytes, peer);
    if (status != XRAY_OK)
        return status;
    nccl_call call = { .call = XRAY_COMM_RECV,
                       .other = peer,
                       .count = bytes,
                       .bytes = bytes,
                       .out = buf };
    return nccl_run(group, stream, &call);
}

xray_status nccl_barrier(xray_comm_group *group, xray_stream *stream)
{
    nccl_call call = { .call = XRAY_COMM_BARRIER, .wait = 1 };
    return nccl_run(group, stream, &call);
}
