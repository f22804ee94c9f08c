/* SPDX-License-Identifier: Apache-2.0
 *
 * Declares comm-shm: collectives among the processes of one host, over memory
 * that a device shares directly, or through copies in host memory. Creates and
 * destroys instances.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <xray/plugin.h>

#include "core/base/collective.h"
#include "core/base/process.h"
#include "core/base/system_error.h"
#include "plugins/comm-shm/shm.h"

#define SPIN_ALONE 20000u /* ns: about the cost of a sleep and a wake-up */
/* With fewer processors than ranks, spinning takes the processor from the
 * awaited rank. */
#define SPIN_CROWD 1000u

static uint32_t shm_serves(const char *device_name)
{
    return xr_collective_is_kind(device_name, "cpu") ||
           xr_collective_is_kind(device_name, "cuda");
}

static void shm_destroy(void *self)
{
    shm_comm *comm = self;
    if (!comm)
        return;
    if (comm->control.base)
        atomic_store(&shm_rank_state_of(&comm->control, comm->rank)->left, 1);
    while (comm->groups) {
        xray_comm_group *group = comm->groups;
        comm->groups = group->next;
        shm_group_free(group);
    }
    if (comm->peers) {
        shm_detach_all(comm);
        for (uint32_t i = 0; i < comm->size; i++)
            if (comm->peers[i].pidfd >= 0)
                (void)close(comm->peers[i].pidfd);
    }
    shm_control_leave(&comm->control);
    shm_stage_free(comm);
    free(comm->peers);
    free(comm);
}

/* Reports the first rank that cannot take part, as every rank does. */
static xray_status check_offers(const shm_comm *comm, const shm_offer *all)
{
    for (uint32_t i = 0; i < comm->size; i++) {
        if (all[i].size != comm->size)
            return xr_host_fail(
                comm->host, XRAY_E_PEER, "comm shm",
                "rank %u was created for %u ranks, but this one for %u", i,
                all[i].size, comm->size);
        if (all[i].status != XRAY_OK)
            return xr_host_fail(comm->host, XRAY_E_PEER, "comm shm",
                                "rank %u (pid %u) cannot take part%s%s", i,
                                all[i].pid, *all[i].why ? ": " : "",
                                all[i].why);
    }
    return XRAY_OK;
}

static xray_status gather_offers(const xray_comm_setup *setup,
                                 const shm_offer *mine, shm_offer *all)
{
    if (setup->size == 1) {
        *all = *mine;
        return XRAY_OK;
    }
    xray_status status =
        setup->gather(setup->gather_ctx, mine, sizeof(*mine), all);
    if (status != XRAY_OK)
        return xr_host_fail(setup->host, status, "comm shm",
                            "the ranks could not exchange their addresses");
    return XRAY_OK;
}

/* Records in the offer why this rank cannot take part. */
XRAY_PRINTF(3, 4)
static void refuse_offer(shm_offer *offer, xray_status status, const char *fmt,
                         ...)
{
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(offer->why, sizeof(offer->why), fmt, args);
    va_end(args);
    offer->status = status;
}

/* Rank 0 creates the control memory and the others map it; no rank goes on
 * before all have. A rank that fails still takes part in both gathers. */
static xray_status connect_ranks(shm_comm *comm, const xray_comm_setup *setup,
                                 xray_status mine, shm_offer *all)
{
    shm_offer offer = {
        .pid = (uint32_t)getpid(), .fd = -1, .status = mine, .size = setup->size
    };
    if (mine == XRAY_OK && setup->rank == 0 &&
        !shm_control_create(&comm->control, setup->size, &offer))
        refuse_offer(&offer, XRAY_E_IO,
                     "no shared memory for the control page: %s",
                     XR_SYSTEM_ERROR(errno));
    xray_status status = gather_offers(setup, &offer, all);
    if (status == XRAY_OK)
        status = check_offers(comm, all);
    if (status == XRAY_OK) {
        shm_offer joined = offer;
        if (setup->rank != 0 && !shm_control_join(&comm->control, &all[0]))
            refuse_offer(
                &joined, XRAY_E_PEER,
                "the memory of rank 0 (pid %u) cannot be reached through "
                "/proc: %s",
                all[0].pid, XR_SYSTEM_ERROR(errno));
        status = gather_offers(setup, &joined, all);
    }
    if (offer.fd >= 0)
        (void)close(offer.fd);
    if (status == XRAY_OK)
        status = check_offers(comm, all);
    return offer.status != XRAY_OK ? offer.status : status;
}

static xray_status prepare_device(const xray_comm_setup *setup, shm_comm *comm)
{
    const xray_device_ops *ops = setup->device;
    xray_device_info info = { .header = XRAY_HEADER(xray_device_info),
                              .host_memory = 1 };
    xray_status status = XRAY_OK;
    if (XRAY_HAS(xray_device_ops, ops, info))
        status = ops->info(setup->device_self, &info);
    if (status != XRAY_OK)
        return status;
    if (!info.host_memory)
        return shm_stage_create(comm)
                   ? XRAY_OK
                   : xr_host_fail(setup->host, XRAY_E_NOMEM, "comm shm",
                                  "no host memory for staging: %s",
                                  XR_SYSTEM_ERROR(errno));
    if (!XRAY_HAS(xray_device_ops, ops, share) ||
        !XRAY_HAS(xray_device_ops, ops, attach) ||
        !XRAY_HAS(xray_device_ops, ops, detach))
        return xr_host_fail(setup->host, XRAY_E_UNSUPPORTED, "comm shm",
                            "the device cannot share memory among processes");
    if (XRAY_HAS(xray_device_ops, ops, shareable))
        return ops->shareable(setup->device_self, 1);
    return XRAY_OK;
}

static xray_status check_setup(const xray_comm_setup *s)
{
    if (!s || !XRAY_REACHES(xray_comm_setup, s, gather))
        return XRAY_E_ABI;
    if (!s->device || s->size == 0 || s->rank >= s->size ||
        (s->size > 1 && !s->gather))
        return xr_host_fail(s->host, XRAY_E_ARG, "comm shm",
                            "the setup lacks a device, ranks or the gather");
    if (s->size > SHM_MAX_RANKS)
        return xr_host_fail(s->host, XRAY_E_RANGE, "comm shm",
                            "%u ranks, but one host takes at most %u", s->size,
                            SHM_MAX_RANKS);
    return XRAY_OK;
}

static uint64_t choose_spin_time(uint32_t size)
{
    long processors = sysconf(_SC_NPROCESSORS_ONLN);
    return processors >= (long)size ? SPIN_ALONE : SPIN_CROWD;
}

static xray_status shm_create(const xray_comm_setup *setup, const void *config,
                              void **out_self)
{
    (void)config;
    xray_status status = check_setup(setup);
    if (status != XRAY_OK)
        return status;
    shm_comm *comm = calloc(1, sizeof(*comm));
    shm_offer *all = calloc(setup->size, sizeof(*all));
    shm_peer *peers = calloc(setup->size, sizeof(*peers));
    if (!comm || !all || !peers) {
        free(comm);
        free(all);
        free(peers);
        return xr_host_fail(setup->host, XRAY_E_NOMEM, "comm shm",
                            "no memory for the instance");
    }
    *comm = (shm_comm){ .host = setup->host,
                        .calls = xr_calls_of(setup->host),
                        .device = setup->device,
                        .device_self = setup->device_self,
                        .rank = setup->rank,
                        .size = setup->size,
                        .timeout = setup->timeout_ms * 1000000u,
                        .spin = choose_spin_time(setup->size),
                        .trace = setup->trace,
                        .peers = peers,
                        .stage_fd = -1 };
    for (uint32_t i = 0; i < setup->size; i++)
        peers[i].pidfd = -1;
    status = connect_ranks(comm, setup, prepare_device(setup, comm), all);
    for (uint32_t i = 0; status == XRAY_OK && i < setup->size; i++) {
        peers[i].pid = all[i].pid;
        peers[i].pidfd = xr_process_open(all[i].pid);
    }
    free(all);
    if (status != XRAY_OK) {
        shm_destroy(comm);
        return status;
    }
    atomic_store(&shm_rank_state_of(&comm->control, comm->rank)->pid,
                 (uint32_t)getpid());
    *out_self = comm;
    return XRAY_OK;
}

static void shm_abort(void *self)
{
    shm_comm *comm = self;
    atomic_store(&comm->aborted, 1);
}

static const xray_comm_ops ops = {
    .header = XRAY_HEADER(xray_comm_ops),
    .serves = shm_serves,
    .create = shm_create,
    .destroy = shm_destroy,
    .group = shm_group,
    .all_reduce = shm_all_reduce,
    .all_reduce_max = shm_all_reduce_max,
    .reduce_scatter = shm_reduce_scatter,
    .all_gather = shm_all_gather,
    .broadcast = shm_broadcast,
    .send = shm_send,
    .recv = shm_recv,
    .exchange = shm_exchange,
    .all_to_all = shm_all_to_all,
    .abort = shm_abort,
};

static const xray_component shm = {
    .header = XRAY_HEADER(xray_component),
    .iface = XRAY_IFACE_COMM,
    .name = "shm",
    .summary = "processes of one host, over shared memory",
    .ops = &ops,
};

static const xray_component *const components[] = { &shm };

static const xray_plugin plugin = {
    .header = XRAY_HEADER(xray_plugin),
    .abi_needed = XRAY_ABI_NEEDED,
    .component_count = 1,
    .name = "comm-shm",
    .version = "0.1.0",
    .vendor = "X-ray",
    .license = "Apache-2.0",
    .components = components,
};

XRAY_PLUGIN_DEFINE(comm_shm, plugin, "comm-shm", "0.1.0", "xray.comm/0:shm")
