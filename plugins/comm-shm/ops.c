/* SPDX-License-Identifier: Apache-2.0
 *
 * The collectives and messages of the interface. Each is complete when it
 * returns: the device runs the caller's work inside the call, or is waited for
 * (stage.c).
 */
#include "core/base/collective.h"
#include "plugins/comm-shm/shm.h"

/* Makes a call of `count` elements that all ranks of the group make alike. */
static xray_status call_group(xray_comm_group *group, xray_stream *stream,
                              uint32_t what, const void *in, void *out,
                              uint64_t count, uint32_t dtype)
{
    xray_status status = xr_collective_check_call(group->comm->host, what, in,
                                                  out, count, dtype);
    if (status != XRAY_OK)
        return status;
    uint64_t bytes = count * xr_collective_width(dtype);
    shm_call call = { .call = what,
                      .dtype = dtype,
                      .count = count,
                      .bytes = bytes,
                      .call_bytes = bytes,
                      .in = in,
                      .out = out };
    return shm_make_call(group->all, stream, &call);
}

xray_status shm_all_reduce(xray_comm_group *group, xray_stream *stream,
                           void *buf, uint64_t count, uint32_t dtype)
{
    return call_group(group, stream, XRAY_COMM_ALL_REDUCE, NULL, buf, count,
                      dtype);
}

xray_status shm_all_reduce_max(xray_comm_group *group, xray_stream *stream,
                               void *buf, uint64_t count, uint32_t dtype)
{
    return call_group(group, stream, XRAY_COMM_ALL_REDUCE_MAX, NULL, buf, count,
                      dtype);
}

xray_status shm_reduce_scatter(xray_comm_group *group, xray_stream *stream,
                               const void *in, void *out, uint64_t count,
                               uint32_t dtype)
{
    return call_group(group, stream, XRAY_COMM_REDUCE_SCATTER, in, out, count,
                      dtype);
}

xray_status shm_all_gather(xray_comm_group *group, xray_stream *stream,
                           const void *in, void *out, uint64_t count,
                           uint32_t dtype)
{
    return call_group(group, stream, XRAY_COMM_ALL_GATHER, in, out, count,
                      dtype);
}

xray_status shm_all_to_all(xray_comm_group *group, xray_stream *stream,
                           const void *in, void *out, uint64_t count,
                           uint32_t dtype)
{
    return call_group(group, stream, XRAY_COMM_ALL_TO_ALL, in, out, count,
                      dtype);
}

xray_status shm_broadcast(xray_comm_group *group, xray_stream *stream,
                          void *buf, uint64_t bytes, uint32_t root)
{
    xray_status status =
        xr_collective_check(group->comm->host, "broadcast", buf, buf, bytes);
    if (status != XRAY_OK)
        return status;
    if (root >= group->count)
        return xr_host_fail(group->comm->host, XRAY_E_ARG, "broadcast",
                            "root %u of a group of %u", root, group->count);
    shm_call call = { .call = XRAY_COMM_BROADCAST,
                      .root = root,
                      .other = group->ranks[root],
                      .count = bytes,
                      .bytes = bytes,
                      .call_bytes = bytes,
                      .out = buf };
    return shm_make_call(group->all, stream, &call);
}

xray_status shm_send(xray_comm_group *group, xray_stream *stream,
                     const void *buf, uint64_t bytes, uint32_t peer)
{
    shm_channel *channel;
    xray_status status =
        xr_collective_check(group->comm->host, "send", buf, buf, bytes);
    if (status == XRAY_OK)
        status = shm_message_channel(group, "send", peer, 1, &channel);
    if (status != XRAY_OK)
        return status;
    shm_call call = { .call = XRAY_COMM_SEND,
                      .other = group->ranks[peer],
                      .count = bytes,
                      .bytes = bytes,
                      .call_bytes = bytes,
                      .in = buf };
    return shm_make_call(channel, stream, &call);
}

xray_status shm_recv(xray_comm_group *group, xray_stream *stream, void *buf,
                     uint64_t bytes, uint32_t peer)
{
    shm_channel *channel;
    xray_status status =
        xr_collective_check(group->comm->host, "recv", buf, buf, bytes);
    if (status == XRAY_OK)
        status = shm_message_channel(group, "recv", peer, 0, &channel);
    if (status != XRAY_OK)
        return status;
    shm_call call = { .call = XRAY_COMM_RECV,
                      .other = group->ranks[peer],
                      .count = bytes,
                      .bytes = bytes,
                      .call_bytes = bytes,
                      .out = buf };
    return shm_make_call(channel, stream, &call);
}
