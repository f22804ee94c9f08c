/* SPDX-License-Identifier: Apache-2.0
 *
 * Devices whose memory the host cannot read, such as several ranks on one GPU:
 * each rank has a piece of host memory that the others map; a call is made in
 * pieces, each copied there, worked on there as any other, and copied back. The
 * bits are those of a call in one piece, for a sum's element does not depend on
 * where pieces end.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "plugins/comm-shm/shm.h"

#define AREA 0x100000u /* bytes of `in`, and of `out` */
#define STAGE_MAGIC 0x6567617453434d53u

typedef struct stage_handle {
    uint64_t magic;
    uint64_t base; /* address in its own process */
    uint64_t at;
    uint32_t pid;
    int32_t fd;
    uint64_t unused[4];
} stage_handle;

_Static_assert(sizeof(stage_handle) == XRAY_HANDLE_BYTES, "handle");

static char *map(int fd)
{
    void *base = mmap(NULL, 2 * (size_t)AREA, PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_NORESERVE, fd, 0);
    return base == MAP_FAILED ? NULL : base;
}

int shm_stage_make(shm_comm *comm)
{
    comm->stage_fd = memfd_create("xray-stage", MFD_CLOEXEC);
    if (comm->stage_fd < 0)
        return 0;
    if (ftruncate(comm->stage_fd, 2 * (off_t)AREA) == 0)
        comm->stage = map(comm->stage_fd);
    return comm->stage != NULL;
}

void shm_stage_free(shm_comm *comm)
{
    for (uint32_t i = 0; comm->peers && i < comm->size; i++)
        if (comm->peers[i].stage)
            (void)munmap(comm->peers[i].stage, 2 * (size_t)AREA);
    if (comm->stage)
        (void)munmap(comm->stage, 2 * (size_t)AREA);
    if (comm->stage_fd >= 0)
        (void)close(comm->stage_fd);
}

void shm_stage_share(const shm_comm *comm, const void *ptr, uint8_t *handle)
{
    stage_handle h = { .magic = STAGE_MAGIC,
                       .base = (uintptr_t)comm->stage,
                       .at = (uint64_t)((const char *)ptr - comm->stage),
                       .pid = (uint32_t)getpid(),
                       .fd = comm->stage_fd };
    memcpy(handle, &h, sizeof(h));
}

xray_status shm_stage_attach(shm_comm *comm, uint32_t rank,
                             const uint8_t *handle, void **out)
{
    stage_handle h;
    char path[64];
    shm_peer *peer = &comm->peers[rank];
    memcpy(&h, handle, sizeof(h));
    if (h.magic != STAGE_MAGIC || h.at > 2 * (uint64_t)AREA)
        return xr_host_fail(comm->host, XRAY_E_BUG, "comm shm",
                            "rank %u came without its staging memory", rank);
    if (h.pid == (uint32_t)getpid()) { /* a rank of this process */
        char *base;
        memcpy(&base, &h.base, sizeof(base));
        *out = base + h.at;
        return XRAY_OK;
    }
    if (!peer->stage) {
        (void)snprintf(path, sizeof(path), "/proc/%u/fd/%d", h.pid, h.fd);
        int fd = open(path, O_RDWR | O_CLOEXEC);
        peer->stage = fd < 0 ? NULL : map(fd);
        if (fd >= 0)
            (void)close(fd);
    }
    if (!peer->stage)
        return xr_host_fail(
            comm->host, XRAY_E_PEER, "comm shm",
            "the memory of rank %u cannot be reached through /proc", rank);
    *out = peer->stage + h.at;
    return XRAY_OK;
}

/* ---- a call in pieces --------------------------------------------------- */

typedef struct staged {
    shm_channel *channel;
    xray_stream *stream;
    const shm_call *call;
    uint64_t parts_in; /* parts of `in`, each of call->bytes */
    uint64_t parts_out;
    uint32_t gives; /* 1: `out` is read, too */
    uint32_t gets;  /* 1: `out` is written */
} staged;

static xray_status move(const staged *s, char *stage, char *device,
                        uint64_t bytes, uint32_t kind)
{
    const shm_comm *comm = s->channel->comm;
    int back = kind == XRAY_COPY_TO_DEVICE;
    return comm->device->copy(comm->device_self, s->stream,
                              back ? device : stage, back ? stage : device,
                              bytes, kind);
}

/* Bytes [at, at + n) of every part. */
static xray_status move_parts(const staged *s, char *stage, const void *device,
                              uint64_t parts, uint64_t at, uint64_t n,
                              uint32_t kind)
{
    char *base;
    xray_status status = XRAY_OK;
    memcpy(&base, &device, sizeof(base)); /* `in` is only read */
    for (uint64_t p = 0; status == XRAY_OK && p < parts; p++)
        status =
            move(s, stage + p * n, base + p * s->call->bytes + at, n, kind);
    return status;
}

static xray_status piece(const staged *s, uint64_t at, uint64_t n)
{
    shm_comm *comm = s->channel->comm;
    const shm_call *whole = s->call;
    uint64_t width = whole->bytes ? whole->bytes / whole->count : 1;
    char *in = comm->stage;
    char *out = comm->stage + AREA;
    shm_call part = *whole;
    part.count = n / width;
    part.bytes = n;
    part.in = whole->in ? in : NULL;
    part.out = whole->out ? out : NULL;
    part.in_bytes = n * s->parts_in;
    part.out_bytes = n * s->parts_out;
    xray_status status = XRAY_OK;
    if (whole->in)
        status =
            move_parts(s, in, whole->in, s->parts_in, at, n, XRAY_COPY_TO_HOST);
    if (status == XRAY_OK && s->gives)
        status = move_parts(s, out, whole->out, s->parts_out, at, n,
                            XRAY_COPY_TO_HOST);
    if (status == XRAY_OK)
        status = comm->device->sync(comm->device_self, s->stream);
    if (status != XRAY_OK) {
        (void)shm_break(s->channel, whole, SHM_FAILED);
        return status;
    }
    status = shm_run(s->channel, &part);
    if (status != XRAY_OK || !s->gets)
        return status;
    status = move_parts(s, out, whole->out, s->parts_out, at, n,
                        XRAY_COPY_TO_DEVICE);
    return status == XRAY_OK ? comm->device->sync(comm->device_self, s->stream)
                             : status;
}

/* A group of one rank has nothing to meet for. */
static xray_status alone(const staged *s)
{
    const shm_comm *comm = s->channel->comm;
    const shm_call *call = s->call;
    if (!call->in || !call->out || call->in == call->out || !call->bytes)
        return XRAY_OK;
    xray_status status =
        comm->device->copy(comm->device_self, s->stream, call->out, call->in,
                           call->bytes, XRAY_COPY_ON_DEVICE);
    return status == XRAY_OK ? comm->device->sync(comm->device_self, s->stream)
                             : status;
}

static xray_status pieces(const staged *s)
{
    uint64_t most = s->parts_in > s->parts_out ? s->parts_in : s->parts_out;
    uint64_t step = AREA / (most ? most : 1) / 64 * 64;
    uint64_t at = 0;
    xray_status status;
    do {
        uint64_t left = s->call->bytes - at;
        uint64_t n = left < step ? left : step;
        status = piece(s, at, n);
        at += n;
    } while (status == XRAY_OK && at < s->call->bytes);
    return status;
}

xray_status shm_make(shm_channel *channel, xray_stream *stream,
                     const shm_call *call)
{
    staged s = { .channel = channel,
                 .stream = stream,
                 .call = call,
                 .parts_in = call->in ? 1 : 0,
                 .parts_out = call->out ? 1 : 0 };
    if (!channel->comm->stage || call->call == XRAY_COMM_BARRIER)
        return shm_run(channel, call);
    switch (call->call) {
    case XRAY_COMM_ALL_REDUCE:
        s.gives = s.gets = 1;
        break;
    case XRAY_COMM_REDUCE_SCATTER:
        s.parts_in = channel->count;
        s.gets = 1;
        break;
    case XRAY_COMM_ALL_GATHER:
        s.parts_out = channel->count;
        s.gets = 1;
        break;
    case XRAY_COMM_BROADCAST:
        s.gives = call->root == channel->self;
        s.gets = !s.gives;
        break;
    default:
        s.gets = call->call == XRAY_COMM_RECV;
        break;
    }
    return channel->count == 1 ? alone(&s) : pieces(&s);
}
