/* SPDX-License-Identifier: Apache-2.0
 *
 * Watching the calls under way. A collective whose peer does not come keeps its
 * device busy for ever, and whoever waits for the stream with it; so a thread
 * looks at the first call under way, and ends the communicator of a group that
 * cannot go on.
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <time.h>

#include "plugins/comm-nccl/instance.h"

#define LOOK 10000000u   /* ns between looks at the others */
#define GRACE 500000000u /* ns for what a rank did before it ended */
#define BUSY 1000000u    /* ns between looks at a call under way */
#define IDLE 50000000u

/* ---- the others --------------------------------------------------------- */

static uint32_t state_of(const nccl_comm *comm, uint32_t rank)
{
    return atomic_load_explicit(
        (const _Atomic uint32_t *)&comm->traces[rank].state,
        memory_order_acquire);
}

static uint64_t group_of(const nccl_comm *comm, uint32_t rank)
{
    return atomic_load_explicit(
        (const _Atomic uint64_t *)&comm->traces[rank].group,
        memory_order_relaxed);
}

uint32_t nccl_gone(const xray_comm_group *group)
{
    const nccl_comm *comm = group->comm;
    uint32_t found = 0;
    if (atomic_load(&comm->aborted))
        return NCCL_ABORTED;
    for (uint32_t i = 0; comm->traces && i < group->count; i++) {
        uint32_t rank = group->ranks[i];
        uint32_t state = state_of(comm, rank);
        if (rank == comm->rank)
            continue;
        if ((state & 255u) == NCCL_GAVE_UP &&
            group_of(comm, rank) == group->number)
            return state >> 8;
        if ((state & 255u) == NCCL_ENDED)
            found = NCCL_LEFT;
    }
    return found;
}

static uint32_t look_around(nccl_comm *comm, const xray_comm_group *group,
                            uint64_t now)
{
    uint32_t found = nccl_gone(group);
    if (found == NCCL_LEFT) {
        if (!comm->left_since)
            comm->left_since = now;
        if (now - comm->left_since < GRACE)
            found = 0;
    }
    for (uint32_t i = 0; !found && i < group->count; i++) {
        uint32_t rank = group->ranks[i];
        int ended = comm->traces && (state_of(comm, rank) & 255u) == NCCL_ENDED;
        if (!ended && nccl_is_dead(comm, rank))
            found = NCCL_DEAD;
    }
    return found;
}

uint32_t nccl_wrong(nccl_comm *comm, const xray_comm_group *group,
                    uint64_t since)
{
    uint64_t now = nccl_clock();
    uint32_t found = 0;
    if (now - comm->looked >= LOOK || atomic_load(&comm->aborted)) {
        comm->looked = now;
        found = look_around(comm, group, now);
    }
    if (!found && comm->timeout && now - since >= comm->timeout)
        found = NCCL_LATE;
    return found;
}

/* ---- the end of a group ------------------------------------------------- */

void nccl_break(xray_comm_group *group, uint32_t cause, const char *detail)
{
    nccl_comm *comm = group->comm;
    const nccl_slot *slot = NULL;
    if (group->broken)
        return;
    if (cause < 256)
        cause |= (comm->rank + 1) << 8;
    for (uint64_t i = comm->head; !slot && i < comm->tail; i++)
        if (comm->ring[i % NCCL_RING].group == group)
            slot = &comm->ring[i % NCCL_RING];
    if (!slot && comm->making && comm->making->group == group)
        slot = comm->making;
    group->broken = cause;
    nccl_report(group, slot, cause, detail);
    nccl_trace_broken(group, cause);
    comm->untold = group;
    if (group->nccl)
        (void)comm->api.abort(group->nccl);
    group->nccl = NULL;
    if (comm->host && comm->host->log)
        comm->host->log(comm->host, XRAY_LOG_ERROR, group->text);
}

xray_status nccl_unfit(xray_comm_group *group)
{
    if (group->comm->untold == group)
        group->comm->untold = NULL;
    return xr_host_fail(group->comm->host, XRAY_E_PEER, group->where, "%s",
                        group->text);
}

/* ---- the calls under way ------------------------------------------------ */

/* XRAY_OK: the event has come; XRAY_AGAIN: not yet; else the group is unfit. */
static xray_status has_come(nccl_comm *comm, const nccl_slot *slot, void *event)
{
    int error = comm->api.event_query(event);
    if (error == NCCL_CUDA_SUCCESS)
        return XRAY_OK;
    if (error == NCCL_CUDA_NOT_READY)
        return XRAY_AGAIN;
    nccl_break(slot->group, NCCL_FAILED, nccl_cuda_text(comm, error));
    return XRAY_E_DEVICE;
}

/* A call that is not done yet: is it going to be? */
static void look_at(nccl_comm *comm, const nccl_slot *slot)
{
    xray_comm_group *group = slot->group;
    int result = NCCL_SUCCESS;
    char detail[512];
    if (group->broken)
        return;
    int asked = comm->api.async_error(group->nccl, &result);
    result = asked == NCCL_SUCCESS ? result : asked;
    if (result != NCCL_SUCCESS && result != NCCL_IN_PROGRESS) {
        (void)snprintf(detail, sizeof(detail), "%s: %s",
                       comm->api.error_text(result),
                       comm->api.last_error(group->nccl));
        nccl_break(group, NCCL_FAILED, detail);
        return;
    }
    uint32_t cause = nccl_wrong(comm, group, slot->since);
    if (cause && has_come(comm, slot, slot->done) == XRAY_AGAIN)
        nccl_break(group, cause, NULL);
}

void nccl_look(nccl_comm *comm)
{
    while (comm->head != comm->tail) {
        nccl_slot *slot = &comm->ring[comm->head % NCCL_RING];
        xray_status status = XRAY_OK;
        if (!slot->since) {
            status = has_come(comm, slot, slot->ready);
            if (status == XRAY_AGAIN)
                return;
            slot->since = nccl_clock();
            if (!slot->group->broken)
                nccl_trace_begin(comm, slot);
        }
        status = has_come(comm, slot, slot->done);
        if (status == XRAY_AGAIN) {
            look_at(comm, slot);
            return;
        }
        comm->head++;
        if (comm->head == comm->tail && !slot->group->broken && comm->traces)
            nccl_trace_state(comm, NCCL_OUTSIDE);
    }
}

/* ---- the watcher -------------------------------------------------------- */

/* Others learn that this rank was told to stop, also while it is idle. */
static void end_all(nccl_comm *comm)
{
    for (xray_comm_group *g = comm->groups; g; g = g->next)
        if (g->nccl && !g->broken)
            nccl_break(g, NCCL_ABORTED, NULL);
}

static void *watch(void *arg)
{
    nccl_comm *comm = arg;
    (void)pthread_mutex_lock(&comm->lock);
    (void)comm->api.context_set(comm->context);
    while (!comm->ending) {
        struct timespec until;
        nccl_look(comm);
        if (atomic_load(&comm->aborted))
            end_all(comm);
        (void)clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += comm->head == comm->tail ? IDLE : BUSY;
        if (until.tv_nsec >= 1000000000) {
            until.tv_nsec -= 1000000000;
            until.tv_sec++;
        }
        (void)pthread_cond_timedwait(&comm->work, &comm->lock, &until);
    }
    (void)pthread_mutex_unlock(&comm->lock);
    return NULL;
}

int nccl_watch(nccl_comm *comm)
{
    comm->watching = pthread_create(&comm->watcher, NULL, watch, comm) == 0;
    return comm->watching != 0;
}

void nccl_unwatch(nccl_comm *comm)
{
    if (!comm->watching)
        return;
    (void)pthread_mutex_lock(&comm->lock);
    comm->ending = 1;
    (void)pthread_cond_signal(&comm->work);
    (void)pthread_mutex_unlock(&comm->lock);
    (void)pthread_join(comm->watcher, NULL);
    comm->watching = 0;
}
