/* SPDX-License-Identifier: Apache-2.0
 *
 * Enqueues transfers between two ranks: single messages, and any number that
 * NCCL carries out together, so that none waits for another.
 */
#include "core/base/collective.h"
#include "plugins/comm-nccl/instance.h"

/* ---- transfers that are made together ----------------------------------- */

nccl_transfers nccl_transfers_begin(xray_comm_group *group)
{
    nccl_transfers t = { group, nccl_enter(group), NCCL_SUCCESS };
    if (t.inside)
        t.result = group->comm->api.group_start();
    return t;
}

static void keep_failure(nccl_transfers *t, int result)
{
    if (t->result == NCCL_SUCCESS || t->result == NCCL_IN_PROGRESS)
        t->result = result;
}

void nccl_transfers_send(nccl_transfers *t, const void *buf, uint64_t bytes,
                         uint32_t peer)
{
    const nccl_comm *comm = t->group->comm;
    if (bytes && t->inside)
        keep_failure(t, comm->api.send(buf, bytes, NCCL_INT8, (int)peer,
                                       t->group->nccl, comm->native));
}

void nccl_transfers_recv(nccl_transfers *t, void *buf, uint64_t bytes,
                         uint32_t peer)
{
    const nccl_comm *comm = t->group->comm;
    if (bytes && t->inside)
        keep_failure(t, comm->api.recv(buf, bytes, NCCL_INT8, (int)peer,
                                       t->group->nccl, comm->native));
}

xray_status nccl_transfers_end(nccl_transfers *t)
{
    if (!t->inside)
        return XRAY_E_PEER;
    keep_failure(t, t->group->comm->api.group_end());
    return nccl_finish(t->group, "ncclSend, ncclRecv", t->result);
}

/* ---- calls -------------------------------------------------------------- */

xray_status nccl_enqueue_exchange(xray_comm_group *group, const nccl_call *call)
{
    nccl_transfers t = nccl_transfers_begin(group);
    nccl_transfers_send(&t, call->in, call->bytes, call->other);
    nccl_transfers_recv(&t, call->out, call->from_bytes, call->from);
    return nccl_transfers_end(&t);
}

/* Part r of `in` goes to rank r; this rank's own is copied on the device. */
xray_status nccl_enqueue_all_to_all(xray_comm_group *group,
                                    const nccl_call *call)
{
    const nccl_comm *comm = group->comm;
    const char *in = call->in;
    char *out = call->out;
    uint64_t own = call->bytes * group->self;
    xray_status status =
        comm->device->copy(comm->device_self, comm->stream, out + own, in + own,
                           call->bytes, XRAY_COPY_ON_DEVICE);
    if (status != XRAY_OK)
        return status;
    nccl_transfers t = nccl_transfers_begin(group);
    for (uint32_t r = 0; r < group->count; r++) {
        if (r == group->self)
            continue;
        nccl_transfers_send(&t, in + call->bytes * r, call->bytes, r);
        nccl_transfers_recv(&t, out + call->bytes * r, call->bytes, r);
    }
    return nccl_transfers_end(&t);
}

/* ---- the interface ------------------------------------------------------ */

static xray_status check_peer(const xray_comm_group *group, const char *where,
                              uint32_t peer)
{
    if (peer >= group->count || peer == group->self)
        return xr_host_fail(
            group->comm->host, XRAY_E_ARG, where,
            "peer %u: another rank of a group of %u is expected", peer,
            group->count);
    return XRAY_OK;
}

static xray_status check_message(const xray_comm_group *group,
                                 const char *where, const void *buf,
                                 uint64_t bytes, uint32_t peer)
{
    xray_status status = check_peer(group, where, peer);
    return status == XRAY_OK
               ? xr_collective_check(group->comm->host, where, buf, buf, bytes)
               : status;
}

xray_status nccl_send(xray_comm_group *group, xray_stream *stream,
                      const void *buf, uint64_t bytes, uint32_t peer)
{
    xray_status status = check_message(group, "send", buf, bytes, peer);
    if (status != XRAY_OK)
        return status;
    nccl_call call = { .call = XRAY_COMM_SEND,
                       .other = peer,
                       .count = bytes,
                       .bytes = bytes,
                       .in = buf };
    return nccl_run_call(group, stream, &call);
}

xray_status nccl_recv(xray_comm_group *group, xray_stream *stream, void *buf,
                      uint64_t bytes, uint32_t peer)
{
    xray_status status = check_message(group, "recv", buf, bytes, peer);
    if (status != XRAY_OK)
        return status;
    nccl_call call = { .call = XRAY_COMM_RECV,
                       .other = peer,
                       .count = bytes,
                       .bytes = bytes,
                       .out = buf };
    return nccl_run_call(group, stream, &call);
}

xray_status nccl_exchange(xray_comm_group *group, xray_stream *stream,
                          const xray_comm_exchange *messages)
{
    const xray_comm_exchange *m = messages;
    xray_status status =
        check_message(group, "exchange", m->in, m->in_bytes, m->to);
    if (status == XRAY_OK)
        status =
            check_message(group, "exchange", m->out, m->out_bytes, m->from);
    if (status != XRAY_OK)
        return status;
    nccl_call call = { .call = XRAY_COMM_EXCHANGE,
                       .other = m->to,
                       .from = m->from,
                       .count = m->in_bytes,
                       .bytes = m->in_bytes,
                       .from_bytes = m->out_bytes,
                       .in = m->in,
                       .out = m->out };
    return nccl_run_call(group, stream, &call);
}
