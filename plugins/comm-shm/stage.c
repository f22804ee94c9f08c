/* SPDX-License-Identifier: Apache-2.0
 *
 * Staging for devices whose memory the host cannot read, such as a GPU that
 * several ranks share. Each rank has staging memory on the host that the others
 * map. A call is made in pieces: each is copied there, processed like any other
 * call, and copied back. The bits are those of an undivided call, since the sum
 * of an element does not depend on where pieces end.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core/base/collective.h"
#include "plugins/comm-shm/shm.h"

#define STAGE_MAGIC 0x6567617453434d53u

typedef struct stage_handle {
    uint64_t magic;
    uint64_t base; /* address in the process of its owner */
    uint64_t at;
    uint32_t pid;
    int32_t fd;
    uint64_t unused[12];
} stage_handle;

_Static_assert(sizeof(stage_handle) == XRAY_HANDLE_BYTES, "handle");

static char *map_stage(int fd)
{
    void *base = mmap(NULL, 2 * (size_t)SHM_STAGE, PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_NORESERVE, fd, 0);
    return base == MAP_FAILED ? NULL : base;
}

int shm_stage_create(shm_comm *comm)
{
    comm->stage_fd = memfd_create("xray-stage", MFD_CLOEXEC);
    if (comm->stage_fd < 0)
        return 0;
    if (ftruncate(comm->stage_fd, 2 * (off_t)SHM_STAGE) == 0)
        comm->stage = map_stage(comm->stage_fd);
    return comm->stage != NULL;
}

void shm_stage_free(shm_comm *comm)
{
    for (uint32_t i = 0; comm->peers && i < comm->size; i++)
        if (comm->peers[i].stage)
            (void)munmap(comm->peers[i].stage, 2 * (size_t)SHM_STAGE);
    if (comm->stage)
        (void)munmap(comm->stage, 2 * (size_t)SHM_STAGE);
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
    if (h.magic != STAGE_MAGIC || h.at > 2 * (uint64_t)SHM_STAGE)
        return xr_host_fail(comm->host, XRAY_E_BUG, "comm shm",
                            "rank %u sent no handle of its staging memory",
                            rank);
    if (h.pid == (uint32_t)getpid()) { /* a rank of this process */
        char *base;
        memcpy(&base, &h.base, sizeof(base));
        *out = base + h.at;
        return XRAY_OK;
    }
    if (!peer->stage) {
        (void)snprintf(path, sizeof(path), "/proc/%u/fd/%d", h.pid, h.fd);
        int fd = open(path, O_RDWR | O_CLOEXEC);
        peer->stage = fd < 0 ? NULL : map_stage(fd);
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
    uint64_t parts_in; /* number of parts of `in`, each of call->bytes */
    uint64_t parts_out;
    uint32_t reads_out;  /* 1: `out` is read as well */
    uint32_t writes_out; /* 1: `out` is written */
} staged;

static xray_status copy_staged(const staged *s, char *stage, char *device,
                               uint64_t bytes, uint32_t kind)
{
    const shm_comm *comm = s->channel->comm;
    int back = kind == XRAY_COPY_TO_DEVICE;
    return comm->device->copy(comm->device_self, s->stream,
                              back ? device : stage, back ? stage : device,
                              bytes, kind);
}

/* Copies bytes [at, at + n) of every part. */
static xray_status copy_parts(const staged *s, char *stage, const void *device,
                              uint64_t parts, uint64_t at, uint64_t n,
                              uint32_t kind)
{
    char *base;
    xray_status status = XRAY_OK;
    memcpy(&base, &device, sizeof(base)); /* `in` is only read */
    for (uint64_t p = 0; status == XRAY_OK && p < parts; p++)
        status = copy_staged(s, stage + p * n, base + p * s->call->bytes + at,
                             n, kind);
    return status;
}

static xray_status run_piece(const staged *s, uint64_t at, uint64_t n)
{
    shm_comm *comm = s->channel->comm;
    const shm_call *full = s->call;
    uint64_t width = full->bytes ? full->bytes / full->count : 1;
    char *in = comm->stage;
    char *out = comm->stage + SHM_STAGE;
    shm_call part = *full;
    part.count = n / width;
    part.bytes = n;
    part.in = full->in ? in : NULL;
    part.out = full->out ? out : NULL;
    xray_status status = XRAY_OK;
    if (full->in)
        status =
            copy_parts(s, in, full->in, s->parts_in, at, n, XRAY_COPY_TO_HOST);
    if (status == XRAY_OK && s->reads_out)
        status = copy_parts(s, out, full->out, s->parts_out, at, n,
                            XRAY_COPY_TO_HOST);
    if (status == XRAY_OK)
        status = comm->device->sync(comm->device_self, s->stream);
    if (status != XRAY_OK) {
        (void)shm_break_channel(s->channel, full, SHM_FAILED);
        return status;
    }
    status = shm_run_round(s->channel, &part);
    if (status != XRAY_OK || !s->writes_out)
        return status;
    status =
        copy_parts(s, out, full->out, s->parts_out, at, n, XRAY_COPY_TO_DEVICE);
    return status == XRAY_OK ? comm->device->sync(comm->device_self, s->stream)
                             : status;
}

/* A group of one rank has no other rank to wait for. */
static xray_status run_alone(const staged *s)
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

static xray_status run_pieces(const staged *s)
{
    uint64_t most = s->parts_in > s->parts_out ? s->parts_in : s->parts_out;
    uint64_t most_bytes = SHM_STAGE / (most ? most : 1) / 64 * 64;
    uint64_t at = 0;
    xray_status status;
    do {
        uint64_t left = s->call->bytes - at;
        uint64_t n = left < most_bytes ? left : most_bytes;
        status = run_piece(s, at, n);
        at += n;
    } while (status == XRAY_OK && at < s->call->bytes);
    return status;
}

xray_status shm_make_call(shm_channel *channel, xray_stream *stream,
                          const shm_call *call)
{
    uint32_t count = channel->count;
    int sends =
        call->call == XRAY_COMM_BROADCAST && call->root == channel->self;
    staged s = { .channel = channel,
                 .stream = stream,
                 .call = call,
                 .parts_in = shm_parts_in(call->call, count),
                 .parts_out = shm_parts_out(call->call, count),
                 .reads_out = sends || xr_collective_is_in_place(call->call),
                 .writes_out = call->out && !sends };
    if (!channel->comm->stage)
        return shm_run_round(channel, call);
    return channel->count == 1 ? run_alone(&s) : run_pieces(&s);
}
