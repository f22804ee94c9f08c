/* SPDX-License-Identifier: Apache-2.0
 *
 * The collectives and messages of the interface. Each is complete when it
 * returns: the device runs the caller's work inside the call, or is waited for
 * (stage.c).
 */
#include <string.h>

#include "plugins/mesh/mesh.h"

/* A group of one rank has no other rank to wait for. */
static xray_status run_alone(const xray_comm_group *group, xray_stream *stream,
                             const mesh_call *call)
{
    const mesh_comm *comm = group->all.comm;
    if (!call->in || !call->out || call->in == call->out || !call->bytes)
        return XRAY_OK;
    if (!comm->stage_in) {
        memcpy(call->out, call->in, call->bytes);
        return XRAY_OK;
    }
    xray_status status =
        comm->device->copy(comm->device_self, stream, call->out, call->in,
                           call->bytes, XRAY_COPY_ON_DEVICE);
    return status == XRAY_OK ? comm->device->sync(comm->device_self, stream)
                             : status;
}

static xray_status make_call(xray_comm_group *group, xray_stream *stream,
                             const mesh_call *call)
{
    if (group->all.count == 1)
        return run_alone(group, stream, call);
    return group->all.comm->stage_in ? mesh_stage_call(group, stream, call)
                                     : mesh_run_call(group, call);
}

/* Makes a call of `count` elements that all ranks of the group make alike. */
static xray_status call_group(xray_comm_group *group, xray_stream *stream,
                              uint32_t what, const void *in, void *out,
                              uint64_t count, uint32_t dtype)
{
    xray_status status = xr_collective_check_call(group->all.comm->host, what,
                                                  in, out, count, dtype);
    if (status != XRAY_OK)
        return status;
    uint64_t bytes = count * xr_collective_width(dtype);
    const mesh_call call = { .call = what,
                             .dtype = dtype,
                             .count = count,
                             .bytes = bytes,
                             .call_bytes = bytes,
                             .in = in,
                             .out = out };
    return make_call(group, stream, &call);
}

xray_status mesh_all_reduce(xray_comm_group *group, xray_stream *stream,
                            void *buf, uint64_t count, uint32_t dtype)
{
    return call_group(group, stream, XRAY_COMM_ALL_REDUCE, NULL, buf, count,
                      dtype);
}

xray_status mesh_all_reduce_max(xray_comm_group *group, xray_stream *stream,
                                void *buf, uint64_t count, uint32_t dtype)
{
    return call_group(group, stream, XRAY_COMM_ALL_REDUCE_MAX, NULL, buf, count,
                      dtype);
}

xray_status mesh_reduce_scatter(xray_comm_group *group, xray_stream *stream,
                                const void *in, void *out, uint64_t count,
                                uint32_t dtype)
{
    return call_group(group, stream, XRAY_COMM_REDUCE_SCATTER, in, out, count,
                      dtype);
}

xray_status mesh_all_gather(xray_comm_group *group, xray_stream *stream,
                            const void *in, void *out, uint64_t count,
                            uint32_t dtype)
{
    return call_group(group, stream, XRAY_COMM_ALL_GATHER, in, out, count,
                      dtype);
}

xray_status mesh_all_to_all(xray_comm_group *group, xray_stream *stream,
                            const void *in, void *out, uint64_t count,
                            uint32_t dtype)
{
    return call_group(group, stream, XRAY_COMM_ALL_TO_ALL, in, out, count,
                      dtype);
}

xray_status mesh_broadcast(xray_comm_group *group, xray_stream *stream,
                           void *buf, uint64_t bytes, uint32_t root)
{
    const xray_host *host = group->all.comm->host;
    xray_status status =
        xr_collective_check(host, "broadcast", buf, buf, bytes);
    if (status != XRAY_OK)
        return status;
    if (root >= group->all.count)
        return xr_host_fail(host, XRAY_E_ARG, "broadcast",
                            "root %u of a group of %u", root, group->all.count);
    const mesh_call call = { .call = XRAY_COMM_BROADCAST,
                             .root = root,
                             .other = group->ranks[root],
                             .count = bytes,
                             .bytes = bytes,
                             .call_bytes = bytes,
                             .out = buf };
    return make_call(group, stream, &call);
}

/* ---- messages ------------------------------------------------------------ */

static uint32_t rank_at(const xray_comm_group *group, uint32_t index)
{
    return index < group->all.count ? group->ranks[index] : 0;
}

static xray_status make_messages(xray_comm_group *group, xray_stream *stream,
                                 uint32_t what, const xray_comm_exchange *x)
{
    const mesh_comm *comm = group->all.comm;
    const char *where = xr_collective_name(what);
    int exchanges = what == XRAY_COMM_EXCHANGE;
    const mesh_call call = {
        .call = what,
        .other = rank_at(group, what == XRAY_COMM_RECV ? x->from : x->to),
        .from = exchanges ? rank_at(group, x->from) : 0,
        .from_bytes = exchanges ? x->out_bytes : 0,
        .call_bytes = what == XRAY_COMM_RECV ? x->out_bytes : x->in_bytes
    };
    xray_status status =
        xr_collective_check(comm->host, where, x->in, x->in, x->in_bytes);
    if (status == XRAY_OK)
        status = xr_collective_check(comm->host, where, x->out, x->out,
                                     x->out_bytes);
    if (status != XRAY_OK)
        return status;
    return comm->stage_in ? mesh_stage_messages(group, stream, &call, x)
                          : mesh_messages(group, &call, x);
}

xray_status mesh_exchange(xray_comm_group *group, xray_stream *stream,
                          const xray_comm_exchange *messages)
{
    return make_messages(group, stream, XRAY_COMM_EXCHANGE, messages);
}

xray_status mesh_send(xray_comm_group *group, xray_stream *stream,
                      const void *buf, uint64_t bytes, uint32_t peer)
{
    const xray_comm_exchange x = { .header = XRAY_HEADER(xray_comm_exchange),
                                   .in = buf,
                                   .in_bytes = bytes,
                                   .to = peer };
    return make_messages(group, stream, XRAY_COMM_SEND, &x);
}

xray_status mesh_recv(xray_comm_group *group, xray_stream *stream, void *buf,
                      uint64_t bytes, uint32_t peer)
{
    const xray_comm_exchange x = { .header = XRAY_HEADER(xray_comm_exchange),
                                   .out = buf,
                                   .out_bytes = bytes,
                                   .from = peer };
    return make_messages(group, stream, XRAY_COMM_RECV, &x);
}
