/* SPDX-License-Identifier: Apache-2.0
 *
 * The calls. A collective is done when it returns: the device runs what it is
 * given inside the call, or is waited for (stage.c).
 */
#include "plugins/comm-shm/shm.h"

static uint64_t element(uint32_t dtype)
{
    switch (dtype) {
    case XRAY_F32:
        return 4;
    case XRAY_BF16:
    case XRAY_F16:
        return 2;
    default:
        return 0;
    }
}

static xray_status check(const xray_comm_group *group, const char *where,
                         const void *in, const void *out, uint64_t bytes)
{
    if (bytes > UINT64_MAX / 4 / SHM_MOST_RANKS)
        return shm_fail(group->comm->host, XRAY_E_RANGE, where,
                        "%llu bytes are too many", (unsigned long long)bytes);
    if (bytes && (!in || !out))
        return shm_fail(group->comm->host, XRAY_E_ARG, where,
                        "a pointer is NULL");
    return XRAY_OK;
}

static xray_status check_sum(const xray_comm_group *group, const char *where,
                             const void *in, const void *out, uint64_t count,
                             uint32_t dtype)
{
    if (dtype != XRAY_F32 && dtype != XRAY_BF16)
        return shm_fail(group->comm->host, XRAY_E_UNSUPPORTED, where,
                        "sums are of f32 or bf16, not of element type %u",
                        dtype);
    if (count > UINT64_MAX / 8)
        return check(group, where, in, out, UINT64_MAX);
    return check(group, where, in, out, count * element(dtype));
}

xray_status shm_all_reduce(xray_comm_group *group, xray_stream *stream,
                           void *buf, uint64_t count, uint32_t dtype)
{
    xray_status status = check_sum(group, "all_reduce", buf, buf, count, dtype);
    if (status != XRAY_OK)
        return status;
    uint64_t bytes = count * element(dtype);
    shm_call call = { .call = XRAY_COMM_ALL_REDUCE,
                      .dtype = dtype,
                      .count = count,
                      .bytes = bytes,
                      .whole = bytes,
                      .out = buf,
                      .out_bytes = bytes };
    return shm_make(group->all, stream, &call);
}

xray_status shm_reduce_scatter(xray_comm_group *group, xray_stream *stream,
                               const void *in, void *out, uint64_t count,
                               uint32_t dtype)
{
    xray_status status =
        check_sum(group, "reduce_scatter", in, out, count, dtype);
    if (status != XRAY_OK)
        return status;
    uint64_t bytes = count * element(dtype);
    shm_call call = { .call = XRAY_COMM_REDUCE_SCATTER,
                      .dtype = dtype,
                      .count = count,
                      .bytes = bytes,
                      .whole = bytes,
                      .in = in,
                      .out = out,
                      .in_bytes = bytes * group->count,
                      .out_bytes = bytes };
    return shm_make(group->all, stream, &call);
}

xray_status shm_all_gather(xray_comm_group *group, xray_stream *stream,
                           const void *in, void *out, uint64_t count,
                           uint32_t dtype)
{
    if (!element(dtype) || count > UINT64_MAX / 8)
        return shm_fail(group->comm->host, XRAY_E_UNSUPPORTED, "all_gather",
                        "%llu elements of type %u", (unsigned long long)count,
                        dtype);
    uint64_t bytes = count * element(dtype);
    xray_status status = check(group, "all_gather", in, out, bytes);
    if (status != XRAY_OK)
        return status;
    shm_call call = { .call = XRAY_COMM_ALL_GATHER,
                      .dtype = dtype,
                      .count = count,
                      .bytes = bytes,
                      .whole = bytes,
                      .in = in,
                      .out = out,
                      .in_bytes = bytes,
                      .out_bytes = bytes * group->count };
    return shm_make(group->all, stream, &call);
}

xray_status shm_broadcast(xray_comm_group *group, xray_stream *stream,
                          void *buf, uint64_t bytes, uint32_t root)
{
    xray_status status = check(group, "broadcast", buf, buf, bytes);
    if (status != XRAY_OK)
        return status;
    if (root >= group->count)
        return shm_fail(group->comm->host, XRAY_E_ARG, "broadcast",
                        "root %u of a group of %u", root, group->count);
    shm_call call = { .call = XRAY_COMM_BROADCAST,
                      .root = root,
                      .other = group->ranks[root],
                      .count = bytes,
                      .bytes = bytes,
                      .whole = bytes,
                      .out = buf,
                      .out_bytes = bytes };
    return shm_make(group->all, stream, &call);
}

xray_status shm_send(xray_comm_group *group, xray_stream *stream,
                     const void *buf, uint64_t bytes, uint32_t peer)
{
    shm_channel *channel;
    xray_status status = check(group, "send", buf, buf, bytes);
    if (status == XRAY_OK)
        status = shm_pair_channel(group, peer, &channel);
    if (status != XRAY_OK)
        return status;
    shm_call call = { .call = XRAY_COMM_SEND,
                      .other = group->ranks[peer],
                      .count = bytes,
                      .bytes = bytes,
                      .whole = bytes,
                      .in = buf,
                      .in_bytes = bytes };
    return shm_make(channel, stream, &call);
}

xray_status shm_recv(xray_comm_group *group, xray_stream *stream, void *buf,
                     uint64_t bytes, uint32_t peer)
{
    shm_channel *channel;
    xray_status status = check(group, "recv", buf, buf, bytes);
    if (status == XRAY_OK)
        status = shm_pair_channel(group, peer, &channel);
    if (status != XRAY_OK)
        return status;
    shm_call call = { .call = XRAY_COMM_RECV,
                      .other = group->ranks[peer],
                      .count = bytes,
                      .bytes = bytes,
                      .whole = bytes,
                      .out = buf,
                      .out_bytes = bytes };
    return shm_make(channel, stream, &call);
}

xray_status shm_barrier(xray_comm_group *group, xray_stream *stream)
{
    shm_call call = { .call = XRAY_COMM_BARRIER };
    return shm_make(group->all, stream, &call);
}
