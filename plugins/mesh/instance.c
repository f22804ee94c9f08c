/* SPDX-License-Identifier: Apache-2.0
 *
 * Makes and frees an instance, whatever carries its lines.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "core/base/system_error.h"
#include "plugins/mesh/mesh.h"

/* Of messages that are about no call: "comm tcp". */
static const char *name_place(const mesh_transport *transport, char out[24])
{
    (void)snprintf(out, 24, "comm %s", transport->name);
    return out;
}

/* ---- destroy --------------------------------------------------------------
 */

/* Tells the others that this rank has ended, not died. What they have not read
 * yet stays in the lines. */
static void say_farewell(mesh_comm *comm)
{
    static const mesh_frame leave = { .magic = MESH_FRAME_MAGIC,
                                      .kind = MESH_LEAVE };
    static const mesh_note end = { .magic = MESH_NOTE_MAGIC, .kind = MESH_END };
    for (uint32_t r = 0; r < comm->size; r++) {
        mesh_peer *peer = &comm->peers[r];
        uint32_t fate = atomic_load(&peer->fate);
        if (r == comm->rank || fate == MESH_LEFT || fate == MESH_DEAD)
            continue;
        if (mesh_line_put(peer, &leave))
            mesh_line_send(peer);
        mesh_send_note(comm, r, &end);
    }
}

void mesh_destroy(void *self)
{
    mesh_comm *comm = self;
    if (!comm)
        return;
    if (comm->watching) {
        mesh_stop_watcher(comm);
        say_farewell(comm);
        if (comm->trace)
            xr_trace_put32(&comm->trace->state, MESH_ENDED);
    }
    while (comm->groups) {
        xray_comm_group *group = comm->groups;
        comm->groups = group->next;
        mesh_group_free(group);
    }
    if (comm->lines)
        comm->via->close(comm);
    for (uint32_t r = 0; r < comm->size; r++)
        free(comm->peers[r].out);
    if (comm->wake >= 0)
        (void)close(comm->wake);
    if (comm->end >= 0)
        (void)close(comm->end);
    if (comm->locks) {
        (void)pthread_cond_destroy(&comm->heard);
        (void)pthread_mutex_destroy(&comm->lock);
    }
    free(comm->broken);
    free(comm->window);
    free(comm->mates);
    free(comm->parts);
    free(comm->stage_in);
    free(comm->stage_out);
    free(comm->peers);
    free(comm);
}

/* ---- create -------------------------------------------------------------- */

static xray_status check_setup(const xray_comm_setup *s, const char *where)
{
    if (!s || !XRAY_REACHES(xray_comm_setup, s, gather))
        return XRAY_E_ABI;
    if (!s->device || s->size == 0 || s->rank >= s->size ||
        (s->size > 1 && !s->gather))
        return xr_host_fail(s->host, XRAY_E_ARG, where,
                            "the setup lacks a device, ranks or the gather");
    if (s->size > MESH_MOST_RANKS)
        return xr_host_fail(s->host, XRAY_E_RANGE, where,
                            "%u ranks, but there may be at most %u", s->size,
                            MESH_MOST_RANKS);
    return XRAY_OK;
}

/* Makes the lock, and a condition of the clock that has no leaps. */
static int make_locks(mesh_comm *comm)
{
    pthread_condattr_t attributes;
    if (pthread_mutex_init(&comm->lock, NULL) != 0)
        return 0;
    (void)pthread_condattr_init(&attributes);
    (void)pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    int bad = pthread_cond_init(&comm->heard, &attributes);
    (void)pthread_condattr_destroy(&attributes);
    if (bad)
        (void)pthread_mutex_destroy(&comm->lock);
    comm->locks = !bad;
    return !bad;
}

static int make_memory(mesh_comm *comm, int staged)
{
    if (comm->size > 1)
        comm->window =
            malloc((size_t)comm->size * 2 * MESH_WINDOW * MESH_PIECE);
    if (staged) {
        comm->stage_in = malloc(MESH_STAGE);
        comm->stage_out = malloc(MESH_STAGE);
    }
    return (comm->size == 1 || comm->window) &&
           (!staged || (comm->stage_in && comm->stage_out));
}

xray_status mesh_prepare(mesh_comm *comm)
{
    char where[24];
    const xray_device_ops *ops = comm->device;
    xray_device_info info = { .header = XRAY_HEADER(xray_device_info),
                              .host_memory = 1 };
    xray_status status = XRAY_OK;
    if (XRAY_HAS(xray_device_ops, ops, info))
        status = ops->info(comm->device_self, &info);
    if (status != XRAY_OK)
        return status;
    if (!make_locks(comm) || !make_memory(comm, !info.host_memory))
        return xr_host_fail(comm->host, XRAY_E_NOMEM,
                            name_place(comm->via, where),
                            "no memory for the instance");
    comm->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    comm->end = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (comm->wake < 0 || comm->end < 0)
        return xr_host_fail(comm->host, XRAY_E_IO, name_place(comm->via, where),
                            "no descriptors for the instance: %s",
                            XR_SYSTEM_ERROR(errno));
    return XRAY_OK;
}

xray_status mesh_new(const xray_comm_setup *setup,
                     const mesh_transport *transport, mesh_comm **out)
{
    char where[24];
    xray_status status = check_setup(setup, name_place(transport, where));
    if (status != XRAY_OK)
        return status;
    mesh_comm *comm = calloc(1, sizeof(*comm));
    mesh_peer *peers = calloc(setup->size, sizeof(*peers));
    if (!comm || !peers) {
        free(comm);
        free(peers);
        return xr_host_fail(setup->host, XRAY_E_NOMEM,
                            name_place(transport, where),
                            "no memory for the instance");
    }
    *comm = (mesh_comm){ .host = setup->host,
                         .stop = xr_calls_of(setup->host),
                         .device = setup->device,
                         .device_self = setup->device_self,
                         .rank = setup->rank,
                         .size = setup->size,
                         .timeout = setup->timeout_ms * 1000000u,
                         .via = transport,
                         .trace = setup->trace,
                         .peers = peers,
                         .wake = -1,
                         .end = -1 };
    for (uint32_t r = 0; r < setup->size; r++)
        peers[r].via = transport;
    *out = comm;
    return XRAY_OK;
}

xray_status mesh_begin(mesh_comm *comm)
{
    char where[24];
    if (comm->size == 1 || mesh_start_watcher(comm))
        return XRAY_OK;
    return xr_host_fail(comm->host, XRAY_E_NOMEM, name_place(comm->via, where),
                        "no thread for the instance");
}

/* The other ranks are told even while this one is in no call. */
void mesh_abort(void *self)
{
    static const mesh_note stopped = { .magic = MESH_NOTE_MAGIC,
                                       .kind = MESH_STOPPED };
    mesh_comm *comm = self;
    atomic_store(&comm->aborted, 1);
    (void)pthread_mutex_lock(&comm->lock);
    for (uint32_t r = 0; r < comm->size; r++)
        mesh_send_note(comm, r, &stopped);
    (void)pthread_mutex_unlock(&comm->lock);
    mesh_wake(comm);
}

uint32_t mesh_serves(const char *device_name)
{
    return xr_collective_is_kind(device_name, "cpu") ||
           xr_collective_is_kind(device_name, "cuda");
}

uint32_t mesh_spans_hosts(void)
{
    return 1;
}
