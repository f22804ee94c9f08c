/* SPDX-License-Identifier: Apache-2.0
 *
 * The use of a communicator by the calling thread and by the watcher. NCCL
 * asks for communicators that do not block if they are to be aborted, and that
 * no thread is inside when that happens
 * (https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/usage/communicators.html,
 * Fault Tolerance). So a thread goes through the gate of the group, and one
 * that finds the group broken comes out at once. If it does not, NCCL itself is
 * stuck, and the watcher aborts all the same, since the flag that this raises
 * is the only thing that NCCL's loops look at.
 */
#include <sched.h>
#include <stdio.h>

#include "plugins/comm-nccl/instance.h"

/* Looks before the first yield, and before the first sleep. A look at a
 * communicator or an event takes some 50 ns. */
#define SPINS 500u
#define YIELDS 2000u

static void pause_core(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

void nccl_back_off(uint32_t i)
{
    if (i < SPINS)
        pause_core();
    else if (i < YIELDS)
        (void)sched_yield();
    else
        nccl_pause(i < 2 * YIELDS ? 50 : 500);
}

static int is_failure(int result)
{
    return result != NCCL_SUCCESS && result != NCCL_IN_PROGRESS;
}

int nccl_enter(xray_comm_group *group)
{
    uint64_t now = nccl_clock();
    uint64_t seen = NCCL_OPEN;
    while (!atomic_compare_exchange_strong(&group->gate, &seen, now)) {
        if (seen == NCCL_CLOSED)
            return 0;
        (void)sched_yield(); /* who asks is done in less than 1 us */
        seen = NCCL_OPEN;
    }
    return 1;
}

/* Gives the gate back; 0: the communicator was aborted meanwhile. */
static int leave_gate(xray_comm_group *group)
{
    uint64_t mine = atomic_load(&group->gate);
    return mine != NCCL_CLOSED &&
           atomic_compare_exchange_strong(&group->gate, &mine, NCCL_OPEN);
}

static int ask_state(const xray_comm_group *group)
{
    int state = NCCL_IN_PROGRESS;
    int asked = group->comm->api.async_error(group->nccl, &state);
    return asked == NCCL_SUCCESS ? state : asked;
}

xray_status nccl_finish(xray_comm_group *group, const char *what, int result)
{
    nccl_comm *comm = group->comm;
    char detail[512] = "";
    for (uint32_t i = 0;
         result == NCCL_IN_PROGRESS && !atomic_load(&group->broken); i++) {
        result = ask_state(group);
        if (result == NCCL_IN_PROGRESS)
            nccl_back_off(i);
    }
    if (is_failure(result) && !atomic_load(&group->broken))
        (void)snprintf(detail, sizeof(detail), "%s: %s: %s", what,
                       comm->api.error_text(result),
                       comm->api.last_error(group->nccl));
    if (leave_gate(group) && result == NCCL_SUCCESS)
        return XRAY_OK;
    if (detail[0]) {
        (void)pthread_mutex_lock(&comm->lock);
        nccl_break_group(group, NCCL_FAILED, detail);
        (void)pthread_mutex_unlock(&comm->lock);
    }
    return XRAY_E_PEER; /* whoever reports that closes the gate */
}

int nccl_ask(xray_comm_group *group, char *detail, size_t size)
{
    const nccl_api *api = &group->comm->api;
    uint64_t seen = NCCL_OPEN;
    if (!atomic_compare_exchange_strong(&group->gate, &seen, NCCL_ASKED))
        return 1;
    int result = ask_state(group);
    if (is_failure(result))
        (void)snprintf(detail, size, "%s: %s", api->error_text(result),
                       api->last_error(group->nccl));
    atomic_store(&group->gate, NCCL_OPEN);
    return !is_failure(result);
}

void nccl_close(xray_comm_group *group, int force)
{
    uint64_t seen = NCCL_OPEN;
    if (!atomic_compare_exchange_strong(&group->gate, &seen, NCCL_CLOSED)) {
        if (seen == NCCL_CLOSED || !force)
            return;
        atomic_store(&group->gate, NCCL_CLOSED);
    }
    atomic_store(&group->closing, 1);
    (void)pthread_cond_signal(&group->comm->work);
}

void nccl_abort_closed(xray_comm_group *group)
{
    if (!atomic_load(&group->closing))
        return;
    (void)group->comm->api.abort(group->nccl);
    atomic_store(&group->closing, 0);
}
