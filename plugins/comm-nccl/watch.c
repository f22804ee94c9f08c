/* SPDX-License-Identifier: Apache-2.0
 *
 * Watches the calls in progress. A collective whose peer does not arrive keeps
 * its device busy for ever, and with it whoever waits for the stream; therefore
 * a thread checks the first call in progress, and aborts the communicator of a
 * group that cannot go on.
 */
#define _GNU_SOURCE
#include <time.h>

#include "plugins/comm-nccl/instance.h"

#define CHECK_INTERVAL 10000000u /* ns between checks of the other ranks */
#define GRACE \
    500000000u /* ns for a rank's last calls to complete after it has left */
#define BUSY 1000000u /* ns between checks of a call in progress */
#define IDLE 50000000u
#define QUIET                                                       \
    20u /* looks without a call in progress before they become rare \
         */
#define ABORT 1000000000u /* ns that aborted operations have to end */
#define STUCK 500u /* looks before a thread that is in NCCL counts as stuck */

/* ---- the other ranks ---------------------------------------------------- */

static uint32_t trace_state(const nccl_comm *comm, uint32_t rank)
{
    return atomic_load_explicit(
        (const _Atomic uint32_t *)&nccl_trace_of(comm, rank)->state,
        memory_order_acquire);
}

static uint64_t trace_group(const nccl_comm *comm, uint32_t rank)
{
    return atomic_load_explicit(
        (const _Atomic uint64_t *)&nccl_trace_of(comm, rank)->group,
        memory_order_relaxed);
}

/* Asks the host last, since a rank that it told earlier leaves or ends. */
static uint32_t prefer_canceled(const nccl_comm *comm, uint32_t found)
{
    return xr_stop_check(comm->stop, NULL) != XRAY_OK ? NCCL_CANCELED : found;
}

/* Why a rank gave up in the group, or 0. Its record names one group only, but
 * one that was told to stop has given up in all of them. */
static uint32_t find_cause_of(const xray_comm_group *group, uint32_t rank,
                              uint32_t state)
{
    const uint32_t stopped = NCCL_ABORTED | (rank + 1) << 8;
    if ((state & 255u) != NCCL_GAVE_UP)
        return 0;
    return state >> 8 == stopped ||
                   trace_group(group->comm, rank) == group->number
               ? state >> 8
               : 0;
}

static uint32_t read_traces(const xray_comm_group *group)
{
    const nccl_comm *comm = group->comm;
    uint32_t found = 0;
    if (atomic_load(&comm->aborted))
        return NCCL_ABORTED;
    for (uint32_t i = 0; comm->traces && i < group->count; i++) {
        uint32_t rank = group->ranks[i];
        uint32_t state = trace_state(comm, rank);
        if (rank == comm->rank)
            continue;
        uint32_t cause = find_cause_of(group, rank, state);
        if (cause)
            return cause;
        if ((state & 255u) == NCCL_ENDED)
            found = NCCL_LEFT;
    }
    return found;
}

static int has_dead_rank(const xray_comm_group *group)
{
    const nccl_comm *comm = group->comm;
    int found = 0;
    for (uint32_t i = 0; !found && i < group->count; i++) {
        uint32_t rank = group->ranks[i];
        int ended =
            comm->traces && (trace_state(comm, rank) & 255u) == NCCL_ENDED;
        found = !ended && nccl_is_dead(comm, rank);
    }
    return found;
}

uint32_t nccl_find_departed(const xray_comm_group *group)
{
    uint32_t found = read_traces(group);
    /* The others may have left because a rank has died. */
    if (found == NCCL_LEFT && has_dead_rank(group))
        found = NCCL_DEAD;
    return prefer_canceled(group->comm, found);
}

static uint32_t find_departed_rank(xray_comm_group *group, uint64_t now)
{
    uint32_t found = read_traces(group);
    int left = found == NCCL_LEFT;
    if (left && !group->left_since)
        group->left_since = now;
    if (left && now - group->left_since < GRACE)
        found = 0;
    if ((left || !found) && has_dead_rank(group))
        found = NCCL_DEAD;
    return found;
}

uint32_t nccl_find_cause(nccl_comm *comm, xray_comm_group *group,
                         uint64_t since)
{
    uint64_t now = nccl_clock();
    uint32_t found = 0;
    if (now - comm->last_check >= CHECK_INTERVAL ||
        atomic_load(&comm->aborted)) {
        comm->last_check = now;
        found = find_departed_rank(group, now);
    }
    if (!found && comm->timeout && now - since >= comm->timeout)
        found = NCCL_LATE;
    return prefer_canceled(comm, found);
}

/* ---- the end of a group ------------------------------------------------- */

static int is_canceled(const xray_comm_group *group)
{
    return (group->broken & 255u) == NCCL_CANCELED;
}

void nccl_break_group(xray_comm_group *group, uint32_t cause,
                      const char *detail)
{
    nccl_comm *comm = group->comm;
    const nccl_slot *slot = NULL;
    if (group->broken)
        return;
    if (cause < 256)
        cause |= (comm->rank + 1) << 8;
    for (uint64_t i = comm->completed; !slot && i < comm->enqueued; i++)
        if (comm->ring[i % NCCL_RING].group == group)
            slot = &comm->ring[i % NCCL_RING];
    if (!slot && comm->refused && comm->refused->group == group)
        slot = comm->refused;
    nccl_write_report(group, slot, cause, detail);
    atomic_store(&group->broken, cause);
    nccl_trace_broken(group, cause);
    comm->unreported = group;
    nccl_close(group, 0);
    if (!is_canceled(group) && comm->host && comm->host->log)
        comm->host->log(comm->host, XRAY_LOG_ERROR, group->text);
}

/* The time `ns` from now, as pthread_cond_timedwait takes it. */
static struct timespec compute_deadline(uint64_t ns)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_REALTIME, &t);
    ns += (uint64_t)t.tv_nsec;
    t.tv_sec += (time_t)(ns / 1000000000u);
    t.tv_nsec = (long)(ns % 1000000000u);
    return t;
}

xray_status nccl_report_broken(xray_comm_group *group)
{
    nccl_comm *comm = group->comm;
    struct timespec until = compute_deadline(ABORT);
    nccl_close(group, 0);
    while (comm->watching && atomic_load(&group->closing) &&
           pthread_cond_timedwait(&comm->closed, &comm->lock, &until) == 0)
        ;
    if (comm->unreported == group)
        comm->unreported = NULL;
    return xr_host_fail(group->comm->host,
                        is_canceled(group) ? XRAY_E_CANCELED : XRAY_E_PEER,
                        group->where, "%s", group->text);
}

/* ---- the calls in progress ---------------------------------------------- */

/* XRAY_OK: the event has occurred; XRAY_AGAIN: not yet; otherwise the group is
 * broken. */
static xray_status poll_event(nccl_comm *comm, const nccl_slot *slot,
                              void *event)
{
    int error = comm->api.event_query(event);
    if (error == NCCL_CUDA_SUCCESS)
        return XRAY_OK;
    if (error == NCCL_CUDA_NOT_READY)
        return XRAY_AGAIN;
    nccl_break_group(slot->group, NCCL_FAILED, nccl_cuda_text(comm, error));
    return XRAY_E_DEVICE;
}

static xray_status poll_done(nccl_comm *comm, const nccl_slot *slot)
{
    if (atomic_load(&slot->stage) != NCCL_POSTED)
        return XRAY_AGAIN;
    return poll_event(comm, slot, slot->done);
}

/* Checks whether a call that is not complete yet can still complete. */
static void check_call(nccl_comm *comm, const nccl_slot *slot)
{
    xray_comm_group *group = slot->group;
    char detail[512];
    if (group->broken)
        return;
    if (!nccl_ask(group, detail, sizeof(detail))) {
        nccl_break_group(group, NCCL_FAILED, detail);
        return;
    }
    uint32_t cause = nccl_find_cause(comm, group, slot->since);
    if (cause && poll_done(comm, slot) == XRAY_AGAIN)
        nccl_break_group(group, cause, NULL);
}

/* NCCL may keep the calling thread while its stream is not there yet. */
static void check_inside(xray_comm_group *group)
{
    uint64_t since = atomic_load(&group->gate);
    if (since <= NCCL_CLOSED || group->broken)
        return;
    uint32_t cause = nccl_find_cause(group->comm, group, since);
    if (cause)
        nccl_break_group(group, cause, NULL);
}

void nccl_check_calls(nccl_comm *comm)
{
    while (comm->completed != comm->enqueued) {
        nccl_slot *slot = &comm->ring[comm->completed % NCCL_RING];
        xray_status status = XRAY_OK;
        if (atomic_load(&slot->stage) == NCCL_BEGUN)
            return;
        if (!slot->since) {
            status = poll_event(comm, slot, slot->ready);
            if (status == XRAY_AGAIN) {
                check_inside(slot->group);
                return;
            }
            slot->since = nccl_clock();
            if (!slot->group->broken)
                nccl_trace_begin(comm, slot);
        }
        status = poll_done(comm, slot);
        if (status == XRAY_AGAIN) {
            check_call(comm, slot);
            return;
        }
        comm->completed++;
        if (comm->completed == comm->enqueued && !slot->group->broken)
            nccl_trace_state(comm, NCCL_OUTSIDE);
    }
}

/* ---- the thread ---------------------------------------------------------- */

/* Tells the other ranks that this one was told to stop, even while it is
 * idle. */
static void break_all_groups(nccl_comm *comm)
{
    for (xray_comm_group *g = comm->groups; g; g = g->next)
        if (atomic_load(&g->gate) != NCCL_CLOSED && !g->broken)
            nccl_break_group(g, NCCL_ABORTED, NULL);
}

/* Aborts the communicators of broken groups. The calling thread may still be in
 * one; looks are counted, not time, so that a process which was
 * stopped has as long as any other. */
static void close_groups(nccl_comm *comm)
{
    for (xray_comm_group *g = comm->groups; g; g = g->next) {
        if (!g->broken)
            continue;
        nccl_close(g, ++g->waits > STUCK);
        if (!atomic_load(&g->closing))
            continue;
        /* This waits for the operations to end. Groups are only added. */
        (void)pthread_mutex_unlock(&comm->lock);
        nccl_abort_closed(g);
        (void)pthread_mutex_lock(&comm->lock);
        (void)pthread_cond_broadcast(&comm->closed);
    }
}

static void *run_watcher(void *arg)
{
    nccl_comm *comm = arg;
    uint32_t quiet = 0; /* looks at which nothing was in progress */
    (void)pthread_mutex_lock(&comm->lock);
    (void)comm->api.context_set(comm->context);
    while (!comm->ending) {
        nccl_check_calls(comm);
        if (atomic_load(&comm->aborted))
            break_all_groups(comm);
        close_groups(comm);
        quiet = comm->completed == comm->enqueued ? quiet + 1 : 0;
        comm->idle = quiet > QUIET;
        if (comm->ending)
            break; /* perhaps it was signaled during an abort */
        struct timespec until = compute_deadline(comm->idle ? IDLE : BUSY);
        (void)pthread_cond_timedwait(&comm->work, &comm->lock, &until);
    }
    (void)pthread_mutex_unlock(&comm->lock);
    return NULL;
}

int nccl_start_watcher(nccl_comm *comm)
{
    comm->watching =
        pthread_create(&comm->watcher, NULL, run_watcher, comm) == 0;
    return comm->watching != 0;
}

void nccl_stop_watcher(nccl_comm *comm)
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
