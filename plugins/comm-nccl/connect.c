/* SPDX-License-Identifier: Apache-2.0
 *
 * Connects the ranks: exchanges and checks their addresses, creates
 * communicators, and finds out which ranks are alive.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "core/base/hash.h"
#include "core/base/process.h"
#include "plugins/comm-nccl/instance.h"

/* Identifies this machine since its last boot, and its process namespace. */
static uint64_t compute_host_id(void)
{
    char text[256] = "";
    ssize_t used = 0;
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    if (fd >= 0) {
        used = read(fd, text, 64);
        (void)close(fd);
    }
    size_t at = used > 0 ? (size_t)used : 0;
    ssize_t more = readlink("/proc/self/ns/pid", text + at, 128);
    at += more > 0 ? (size_t)more : 0;
    return xr_hash64(text, at, 0);
}

void nccl_offer_fill(const nccl_comm *comm, xray_status ready,
                     nccl_offer *offer)
{
    memset(offer, 0, sizeof(*offer));
    offer->host = compute_host_id();
    offer->pid = (uint32_t)getpid();
    offer->size = comm->size;
    offer->status = ready;
    if (ready != XRAY_OK)
        return;
    (void)comm->api.version(&offer->version);
    int error =
        comm->api.bus_id(offer->bus, (int)sizeof(offer->bus), comm->gpu);
    if (error != NCCL_CUDA_SUCCESS)
        offer->status = xr_host_fail(comm->host, XRAY_E_DEVICE, "comm nccl",
                                     "the CUDA driver says: %s",
                                     nccl_cuda_text(comm, error));
    int result = comm->rank ? NCCL_SUCCESS : comm->api.unique_id(&offer->id);
    if (result != NCCL_SUCCESS)
        offer->status = xr_host_fail(
            comm->host, XRAY_E_DEVICE, "comm nccl",
            "NCCL gave no id for the ranks to connect: %s: %s",
            comm->api.error_text(result), comm->api.last_error(NULL));
}

static xray_status check_offer(const nccl_comm *comm, const nccl_offer *all,
                               uint32_t i)
{
    const nccl_offer *a = &all[i];
    if (a->size != comm->size)
        return xr_host_fail(
            comm->host, XRAY_E_PEER, "comm nccl",
            "rank %u was created for %u ranks, but this one for %u", i, a->size,
            comm->size);
    if (a->status != XRAY_OK)
        return xr_host_fail(comm->host, XRAY_E_PEER, "comm nccl",
                            "rank %u (pid %u) cannot take part", i, a->pid);
    if (a->version != all[0].version)
        return xr_host_fail(comm->host, XRAY_E_PEER, "comm nccl",
                            "rank 0 has NCCL %d, but rank %u has %d",
                            all[0].version, i, a->version);
    for (uint32_t j = 0; j < i; j++)
        if (all[j].host == a->host && strcmp(all[j].bus, a->bus) == 0)
            return xr_host_fail(
                comm->host, XRAY_E_PEER, "comm nccl",
                "ranks %u and %u are both on the device %s: NCCL "
                "takes one rank per device; [run] comm = shm serves "
                "several on one",
                j, i, a->bus);
    return XRAY_OK;
}

xray_status nccl_offers_check(const nccl_comm *comm, const nccl_offer *all)
{
    xray_status status = XRAY_OK;
    for (uint32_t i = 0; status == XRAY_OK && i < comm->size; i++)
        status = check_offer(comm, all, i);
    return status;
}

void nccl_peers_open(nccl_comm *comm, const nccl_offer *all)
{
    uint64_t here = all[comm->rank].host;
    for (uint32_t i = 0; i < comm->size; i++) {
        nccl_peer *peer = &comm->peers[i];
        peer->pid = all[i].pid;
        peer->near = all[i].host == here && peer->pid != (uint32_t)getpid();
        if (peer->near)
            peer->pidfd = xr_process_open(peer->pid);
    }
}

int nccl_is_dead(const nccl_comm *comm, uint32_t rank)
{
    const nccl_peer *peer = &comm->peers[rank];
    return peer->near && xr_process_is_dead(peer->pid, peer->pidfd);
}

/* Does not block, so that a rank that never arrives is an error after the
 * timeout. */
xray_status nccl_connect(xray_comm_group *group, const nccl_id *id)
{
    nccl_comm *comm = group->comm;
    nccl_settings settings = NCCL_SETTINGS;
    void *made = NULL;
    uint64_t start = nccl_clock();
    uint32_t cause = 0;
    int result = comm->api.init(&made, (int)group->count, *id, (int)group->self,
                                &settings);
    for (uint32_t i = 0; result == NCCL_IN_PROGRESS && !cause; i++) {
        if (comm->api.async_error(made, &result) != NCCL_SUCCESS ||
            result != NCCL_IN_PROGRESS)
            break;
        (void)pthread_mutex_lock(&comm->lock);
        cause = nccl_find_cause(comm, group, start);
        (void)pthread_mutex_unlock(&comm->lock);
        nccl_pause(i < 100 ? 50 : 1000);
    }
    if (result == NCCL_SUCCESS) {
        group->nccl = made;
        atomic_store(&group->gate, NCCL_OPEN);
        return XRAY_OK;
    }
    char detail[512] = "";
    if (!cause)
        (void)snprintf(detail, sizeof(detail), "%s: %s",
                       comm->api.error_text(result),
                       comm->api.last_error(made));
    if (made)
        (void)comm->api.abort(made);
    (void)pthread_mutex_lock(&comm->lock);
    nccl_break_group(group, cause ? cause : NCCL_FAILED, cause ? NULL : detail);
    xray_status status = nccl_report_broken(group);
    (void)pthread_mutex_unlock(&comm->lock);
    return status;
}
