/* SPDX-License-Identifier: Apache-2.0
 *
 * Calls on devices whose memory the host cannot read: pieces of the buffers are
 * copied to host memory, a call is made there, and its results are copied back.
 * The bits are those of an undivided call, since the sum of an element does not
 * depend on where pieces end.
 */
#include <stdlib.h>
#include <string.h>

#include "plugins/mesh/mesh.h"

typedef struct staged {
    xray_comm_group *group;
    xray_stream *stream;
    const mesh_call *call;
    uint64_t parts_in; /* number of parts of `in`, each of call->bytes */
    uint64_t parts_out;
    uint32_t reads_out;
    uint32_t writes_out;
} staged;

static xray_status copy_now(const mesh_comm *comm, xray_stream *stream,
                            void *to, const void *from, uint64_t bytes,
                            uint32_t kind)
{
    return bytes ? comm->device->copy(comm->device_self, stream, to, from,
                                      bytes, kind)
                 : XRAY_OK;
}

/* Copies bytes [at, at + n) of every part. */
static xray_status copy_parts(const staged *s, char *host, const void *device,
                              uint64_t parts, uint64_t at, uint64_t n, int back)
{
    const mesh_comm *comm = s->group->all.comm;
    xray_status status = XRAY_OK;
    char *base;
    memcpy(&base, &device, sizeof(base)); /* `in` is only read */
    for (uint64_t p = 0; status == XRAY_OK && p < parts; p++) {
        char *there = base + p * s->call->bytes + at;
        char *here = host + p * n;
        status =
            back
                ? copy_now(comm, s->stream, there, here, n, XRAY_COPY_TO_DEVICE)
                : copy_now(comm, s->stream, here, there, n, XRAY_COPY_TO_HOST);
    }
    return status;
}

static xray_status run_piece(const staged *s, uint64_t at, uint64_t n)
{
    const mesh_comm *comm = s->group->all.comm;
    const mesh_call *full = s->call;
    mesh_call part = *full;
    part.bytes = n;
    part.count = n / (full->bytes ? full->bytes / full->count : 1);
    part.in = full->in ? comm->stage_in : NULL;
    part.out = full->out ? comm->stage_out : NULL;
    xray_status status =
        copy_parts(s, comm->stage_in, full->in, s->parts_in, at, n, 0);
    if (status == XRAY_OK && s->reads_out)
        status =
            copy_parts(s, comm->stage_out, full->out, s->parts_out, at, n, 0);
    if (status == XRAY_OK)
        status = comm->device->sync(comm->device_self, s->stream);
    if (status != XRAY_OK) {
        (void)mesh_break(&s->group->all, full, MESH_FAILED, comm->rank);
        return status;
    }
    status = mesh_run_call(s->group, &part);
    if (status != XRAY_OK || !s->writes_out)
        return status;
    status = copy_parts(s, comm->stage_out, full->out, s->parts_out, at, n, 1);
    return status == XRAY_OK ? comm->device->sync(comm->device_self, s->stream)
                             : status;
}

xray_status mesh_stage_call(xray_comm_group *group, xray_stream *stream,
                            const mesh_call *call)
{
    uint32_t count = group->all.count;
    int sends =
        call->call == XRAY_COMM_BROADCAST && call->root == group->all.self;
    int deals = call->call == XRAY_COMM_ALL_TO_ALL;
    staged s = { .group = group,
                 .stream = stream,
                 .call = call,
                 .parts_in = deals || call->call == XRAY_COMM_REDUCE_SCATTER
                                 ? count
                                 : call->in != NULL,
                 .parts_out =
                     deals || call->call == XRAY_COMM_ALL_GATHER ? count : 1,
                 .reads_out = sends || xr_collective_is_in_place(call->call),
                 .writes_out = !sends };
    uint64_t most = s.parts_in > s.parts_out ? s.parts_in : s.parts_out;
    uint64_t most_bytes = MESH_STAGE / most / 64 * 64;
    uint64_t at = 0;
    xray_status status;
    do {
        uint64_t left = call->bytes - at;
        uint64_t n = left < most_bytes ? left : most_bytes;
        status = run_piece(&s, at, n);
        at += n;
    } while (status == XRAY_OK && at < call->bytes);
    return status;
}

/* A message is copied as a whole, since its two ranks may have devices of which
 * only one needs that. */
xray_status mesh_stage_messages(xray_comm_group *group, xray_stream *stream,
                                const mesh_call *call,
                                const xray_comm_exchange *x)
{
    const mesh_comm *comm = group->all.comm;
    xray_comm_exchange host = *x;
    char *memory = malloc(x->in_bytes + x->out_bytes + 1);
    if (!memory)
        return xr_host_fail(comm->host, XRAY_E_NOMEM,
                            xr_collective_name(call->call),
                            "no host memory for a message");
    host.in = memory;
    host.out = memory + x->in_bytes;
    xray_status status =
        copy_now(comm, stream, memory, x->in, x->in_bytes, XRAY_COPY_TO_HOST);
    if (status == XRAY_OK)
        status = comm->device->sync(comm->device_self, stream);
    if (status == XRAY_OK)
        status = mesh_messages(group, call, &host);
    if (status == XRAY_OK)
        status = copy_now(comm, stream, x->out, host.out, x->out_bytes,
                          XRAY_COPY_TO_DEVICE);
    if (status == XRAY_OK)
        status = comm->device->sync(comm->device_self, stream);
    free(memory);
    return status;
}
