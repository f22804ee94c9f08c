/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks the arguments of calls, enqueues them on the instance's stream, and
 * waits for their completion.
 */
#include "core/base/collective.h"
#include "plugins/comm-nccl/instance.h"

#define RING_TIMEOUT \
    5000000000u /* ns after which a full ring counts as stuck */
#define DEAR 8u /* looks at a communicator that one at the ring is worth */

/* ---- enqueuing ---------------------------------------------------------- */

/* Begins a call that is one NCCL function. A sum or a maximum is formed as NCCL
 * forms it. */
static int post_direct(xray_comm_group *g, const nccl_call *call,
                       const char **what)
{
    const nccl_api *api = &g->comm->api;
    void *stream = g->comm->native;
    int type = call->dtype == XRAY_BF16 ? NCCL_BFLOAT16 : NCCL_FLOAT32;
    int op = call->call == XRAY_COMM_ALL_REDUCE_MAX ? NCCL_MAX : NCCL_SUM;
    int other = (int)call->other;
    switch (call->call) {
    case XRAY_COMM_REDUCE_SCATTER:
        *what = "ncclReduceScatter";
        return api->reduce_scatter(call->in, call->out, call->count, type, op,
                                   g->nccl, stream);
    case XRAY_COMM_ALL_GATHER:
        *what = "ncclAllGather";
        return api->all_gather(call->in, call->out, call->bytes, NCCL_INT8,
                               g->nccl, stream);
    case XRAY_COMM_BROADCAST:
        *what = "ncclBroadcast";
        return api->broadcast(call->out, call->out, call->bytes, NCCL_INT8,
                              other, g->nccl, stream);
    case XRAY_COMM_SEND:
        *what = "ncclSend";
        return api->send(call->in, call->bytes, NCCL_INT8, other, g->nccl,
                         stream);
    case XRAY_COMM_RECV:
        *what = "ncclRecv";
        return api->recv(call->out, call->bytes, NCCL_INT8, other, g->nccl,
                         stream);
    default:
        *what = "ncclAllReduce";
        return api->all_reduce(call->out, call->out, call->count, type, op,
                               g->nccl, stream);
    }
}

static xray_status enqueue_direct(xray_comm_group *g, const nccl_call *call)
{
    const char *what = NULL;
    if (!nccl_enter(g))
        return XRAY_E_PEER;
    int result = post_direct(g, call, &what);
    return nccl_finish(g, what, result);
}

static xray_status enqueue_sum(xray_comm_group *g, const nccl_call *call)
{
    const nccl_config *config = &g->comm->config;
    if (config->sums == NCCL_SUMS_ORDERED)
        return nccl_sum_ordered(g, call);
    if (call->dtype == XRAY_BF16 && config->reduce_bf16 == NCCL_BF16_FP32)
        return nccl_sum_widened(g, call);
    return enqueue_direct(g, call);
}

static xray_status enqueue_call(xray_comm_group *g, const nccl_call *call)
{
    switch (call->call) {
    case XRAY_COMM_ALL_REDUCE:
    case XRAY_COMM_REDUCE_SCATTER:
        return enqueue_sum(g, call);
    case XRAY_COMM_EXCHANGE:
        return nccl_enqueue_exchange(g, call);
    case XRAY_COMM_ALL_TO_ALL:
        return nccl_enqueue_all_to_all(g, call);
    default:
        return enqueue_direct(g, call);
    }
}

/* ---- the course of a call ------------------------------------------------ */

static void fill_slot(nccl_slot *slot, xray_comm_group *g,
                      const nccl_call *call)
{
    slot->group = g;
    slot->number = ++g->comm->calls;
    slot->call = call->call;
    slot->dtype = call->dtype;
    slot->other = call->other < g->count ? g->ranks[call->other] : 0;
    slot->from = call->from < g->count ? g->ranks[call->from] : 0;
    slot->bytes = call->bytes;
    slot->from_bytes = call->from_bytes;
    slot->since = 0;
    atomic_store(&slot->stage, NCCL_BEGUN);
}

/* Waits for a free slot in the ring. */
static xray_status wait_for_slot(nccl_comm *comm)
{
    uint64_t start = nccl_clock();
    for (uint32_t i = 0;; i++) {
        nccl_check_calls(comm);
        if (comm->enqueued - comm->completed < NCCL_RING)
            return XRAY_OK;
        xray_comm_group *first = comm->ring[comm->completed % NCCL_RING].group;
        if (first->broken && nccl_clock() - start > RING_TIMEOUT)
            return nccl_report_broken(first);
        (void)pthread_mutex_unlock(&comm->lock);
        nccl_back_off(i * DEAR);
        (void)pthread_mutex_lock(&comm->lock);
    }
}

/* Refuses a call whose group is broken, or some rank of which has left. */
static xray_status check_group(xray_comm_group *g, const nccl_call *call)
{
    nccl_comm *comm = g->comm;
    if (g->broken)
        return nccl_report_broken(g);
    if (comm->unreported)
        return nccl_report_broken(comm->unreported);
    uint32_t cause = nccl_find_departed(g);
    if (!cause)
        return XRAY_OK;
    nccl_slot slot = { 0 };
    fill_slot(&slot, g, call);
    slot.since = nccl_clock();
    nccl_trace_begin(comm, &slot);
    comm->refused = &slot;
    nccl_break_group(g, cause, NULL);
    comm->refused = NULL;
    return nccl_report_broken(g);
}

/* Enqueues the operations and events of a call; 0: it failed, and `why` names
 * the error of the CUDA driver, if it is one. Any of these functions may be
 * stuck: the driver waits where a stream has too much before it. The caller
 * does not hold the lock. */
static int post_call(xray_comm_group *g, void *stream, const nccl_call *call,
                     nccl_slot *slot, const char **why)
{
    const nccl_comm *comm = g->comm;
    const nccl_api *api = &comm->api;
    int error = api->event_record(slot->ready, stream);
    if (error == NCCL_CUDA_SUCCESS)
        atomic_store(&slot->stage, NCCL_MARKED);
    if (error == NCCL_CUDA_SUCCESS && stream != comm->native)
        error = api->stream_wait(comm->native, slot->ready, 0);
    if (error == NCCL_CUDA_SUCCESS && enqueue_call(g, call) != XRAY_OK)
        return 0;
    if (error == NCCL_CUDA_SUCCESS)
        error = api->event_record(slot->done, comm->native);
    if (error == NCCL_CUDA_SUCCESS)
        atomic_store(&slot->stage, NCCL_POSTED);
    if (error == NCCL_CUDA_SUCCESS && stream != comm->native)
        error = api->stream_wait(stream, slot->done, 0);
    if (error != NCCL_CUDA_SUCCESS)
        *why = nccl_cuda_text(comm, error);
    return error == NCCL_CUDA_SUCCESS;
}

/* The caller holds the lock, which is released while the call is enqueued. */
static xray_status start_call(xray_comm_group *g, void *stream,
                              const nccl_call *call)
{
    nccl_comm *comm = g->comm;
    const char *why = "the device failed in the call";
    xray_status status = check_group(g, call);
    if (status == XRAY_OK)
        status = wait_for_slot(comm);
    if (status != XRAY_OK)
        return status;
    nccl_slot *slot = &comm->ring[comm->enqueued % NCCL_RING];
    fill_slot(slot, g, call);
    /* Enqueuing may already wait for a peer; the trace then names this call. */
    if (comm->completed == comm->enqueued) {
        slot->since = nccl_clock();
        nccl_trace_begin(comm, slot);
        slot->since = 0;
    }
    comm->enqueued++;
    if (comm->idle)
        (void)pthread_cond_signal(&comm->work);
    (void)pthread_mutex_unlock(&comm->lock);
    int posted = post_call(g, stream, call, slot, &why);
    (void)pthread_mutex_lock(&comm->lock);
    if (!posted)
        nccl_break_group(g, NCCL_FAILED, why);
    if (!g->broken)
        return XRAY_OK;
    if (atomic_load(&slot->stage) != NCCL_POSTED)
        comm->enqueued--; /* nothing tells when it is complete */
    return nccl_report_broken(g);
}

/* Waits until call `number` is complete. The caller holds the lock, which is
 * released during sleeps. */
static xray_status finish_call(xray_comm_group *g, uint64_t number)
{
    nccl_comm *comm = g->comm;
    for (uint32_t i = 0;; i++) {
        nccl_check_calls(comm);
        if (g->broken)
            return nccl_report_broken(g);
        if (comm->completed > number)
            return XRAY_OK;
        (void)pthread_mutex_unlock(&comm->lock);
        nccl_back_off(i * DEAR);
        (void)pthread_mutex_lock(&comm->lock);
    }
}

/* Carries out a call that moves nothing between ranks. */
static xray_status run_alone(xray_comm_group *g, xray_stream *stream,
                             const nccl_call *call)
{
    nccl_comm *comm = g->comm;
    nccl_slot slot = { 0 };
    xray_status status = XRAY_OK;
    if (g->broken || comm->unreported)
        return nccl_report_broken(g->broken ? g : comm->unreported);
    fill_slot(&slot, g, call);
    slot.since = nccl_clock();
    if (comm->completed == comm->enqueued)
        nccl_trace_begin(comm, &slot);
    if (call->in && call->out && call->in != call->out && call->bytes)
        status = comm->device->copy(comm->device_self, stream, call->out,
                                    call->in, call->bytes, XRAY_COPY_ON_DEVICE);
    if (status == XRAY_OK && comm->config.wait)
        status = comm->device->sync(comm->device_self, stream);
    if (comm->completed == comm->enqueued)
        nccl_trace_state(comm, NCCL_OUTSIDE);
    return status;
}

xray_status nccl_run_call(xray_comm_group *g, xray_stream *stream,
                          const nccl_call *call)
{
    nccl_comm *comm = g->comm;
    xray_status status;
    (void)pthread_mutex_lock(&comm->lock);
    if (g->count == 1 || !(call->bytes | call->from_bytes)) {
        status = run_alone(g, stream, call);
    } else {
        uint64_t number = comm->enqueued;
        status =
            start_call(g, comm->cuda->stream(comm->device_self, stream), call);
        if (status == XRAY_OK && (call->wait || comm->config.wait))
            status = finish_call(g, number);
    }
    (void)pthread_mutex_unlock(&comm->lock);
    return status;
}

/* ---- the interface ------------------------------------------------------ */

/* Makes a call of `count` elements that all ranks of the group make alike. */
static xray_status call_group(xray_comm_group *group, xray_stream *stream,
                              uint32_t what, const void *in, void *out,
                              uint64_t count, uint32_t dtype)
{
    xray_status status = xr_collective_check_call(group->comm->host, what, in,
                                                  out, count, dtype);
    if (status != XRAY_OK)
        return status;
    nccl_call call = { .call = what,
                       .dtype = dtype,
                       .count = count,
                       .bytes = count * xr_collective_width(dtype),
                       .in = in,
                       .out = out };
    return nccl_run_call(group, stream, &call);
}

xray_status nccl_all_reduce(xray_comm_group *group, xray_stream *stream,
                            void *buf, uint64_t count, uint32_t dtype)
{
    return call_group(group, stream, XRAY_COMM_ALL_REDUCE, NULL, buf, count,
                      dtype);
}

xray_status nccl_all_reduce_max(xray_comm_group *group, xray_stream *stream,
                                void *buf, uint64_t count, uint32_t dtype)
{
    return call_group(group, stream, XRAY_COMM_ALL_REDUCE_MAX, NULL, buf, count,
                      dtype);
}

xray_status nccl_reduce_scatter(xray_comm_group *group, xray_stream *stream,
                                const void *in, void *out, uint64_t count,
                                uint32_t dtype)
{
    return call_group(group, stream, XRAY_COMM_REDUCE_SCATTER, in, out, count,
                      dtype);
}

xray_status nccl_all_gather(xray_comm_group *group, xray_stream *stream,
                            const void *in, void *out, uint64_t count,
                            uint32_t dtype)
{
    return call_group(group, stream, XRAY_COMM_ALL_GATHER, in, out, count,
                      dtype);
}

xray_status nccl_all_to_all(xray_comm_group *group, xray_stream *stream,
                            const void *in, void *out, uint64_t count,
                            uint32_t dtype)
{
    return call_group(group, stream, XRAY_COMM_ALL_TO_ALL, in, out, count,
                      dtype);
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
    return nccl_run_call(group, stream, &call);
}
