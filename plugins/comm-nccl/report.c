/* SPDX-License-Identifier: Apache-2.0
 *
 * Records what this rank does, reads what the other ranks do, and puts that
 * into the text of errors. The state of a rank on another host is known only
 * where the control plane carries its trace to this host.
 */
#include <unistd.h>

#include "core/base/collective.h"
#include "core/base/process.h"
#include "plugins/comm-nccl/instance.h"

/* ---- traces ------------------------------------------------------------- */

const xray_comm_trace *nccl_trace_of(const nccl_comm *comm, uint32_t rank)
{
    return xr_trace_at(comm->traces, comm->trace_stride, rank);
}

/* Clears the trace that an earlier instance left. */
void nccl_trace_reset(const nccl_comm *comm)
{
    xray_comm_trace *trace = comm->trace;
    if (!trace)
        return;
    xr_trace_put64(&trace->calls, 0);
    xr_trace_put64(&trace->pid, (uint64_t)getpid());
    xr_trace_put32(&trace->state, NCCL_OUTSIDE);
}

void nccl_trace_begin(const nccl_comm *comm, const nccl_slot *slot)
{
    xray_comm_trace *trace = comm->trace;
    if (!trace)
        return;
    xr_trace_put64(&trace->calls, slot->number);
    xr_trace_put64(&trace->bytes, slot->bytes + slot->from_bytes);
    xr_trace_put64(&trace->group, slot->group->number);
    xr_trace_put32(&trace->call, slot->call);
    xr_trace_put64(&trace->since, slot->since);
    xr_trace_put64(&trace->pid, (uint64_t)getpid());
    xr_trace_put32(&trace->state, NCCL_WAITS);
}

void nccl_trace_state(const nccl_comm *comm, uint32_t state)
{
    if (comm->trace)
        xr_trace_put32(&comm->trace->state, state);
}

void nccl_trace_broken(const xray_comm_group *group, uint32_t cause)
{
    const nccl_comm *comm = group->comm;
    if (!comm->trace)
        return;
    xr_trace_put64(&comm->trace->group, group->number);
    xr_trace_put32(&comm->trace->state, NCCL_GAVE_UP | cause << 8);
}

/* ---- sentences ---------------------------------------------------------- */

static void say_trace(xr_sentence *s, const xray_comm_trace *t)
{
    uint32_t call = xr_trace_get32(&t->call);
    xr_sentence_printf(s, "%s of %llu bytes in group %llu",
                       xr_collective_name(call),
                       (unsigned long long)xr_trace_get64(&t->bytes),
                       (unsigned long long)xr_trace_get64(&t->group));
}

/* Writes, for example, "all_reduce of 64 bytes of f32 in group 0". */
static void say_slot(xr_sentence *s, const nccl_slot *slot)
{
    const xr_collective call = { .call = slot->call,
                                 .dtype = slot->dtype,
                                 .bytes = slot->bytes,
                                 .other = slot->other,
                                 .from = slot->from,
                                 .from_bytes = slot->from_bytes };
    xr_collective_print(s, &call);
    xr_sentence_printf(s, " in group %llu",
                       (unsigned long long)slot->group->number);
}

/* The state of a process that cannot report it itself, "dead" or "stopped";
 * otherwise NULL. */
static const char *find_process_fate(const nccl_comm *comm, uint32_t rank)
{
    const nccl_peer *peer = &comm->peers[rank];
    if (!peer->near)
        return NULL;
    if (nccl_is_dead(comm, rank))
        return "dead";
    char state = xr_process_state(peer->pid);
    return state == 'T' || state == 't' ? "stopped" : NULL;
}

static void say_rank(xr_sentence *s, const nccl_comm *comm, uint32_t rank)
{
    const xray_comm_trace *t = nccl_trace_of(comm, rank);
    uint32_t state = xr_trace_get32(&t->state) & 255u;
    int some = xr_trace_get64(&t->calls) != 0;
    const char *is = state == NCCL_ENDED ? NULL : find_process_fate(comm, rank);
    if (state == NCCL_ENDED) {
        xr_sentence_printf(s, "rank %u has ended its part", rank);
    } else if (is) {
        xr_sentence_printf(s, "rank %u (pid %u) is %s", rank,
                           comm->peers[rank].pid, is);
        if (some) {
            xr_sentence_printf(s, "%s",
                               state == NCCL_OUTSIDE ? ", after " : ", in ");
            say_trace(s, t);
        }
    } else if (state == NCCL_OUTSIDE) {
        xr_sentence_printf(s, "rank %u is outside any collective%s", rank,
                           some ? ", after " : "");
        if (some)
            say_trace(s, t);
    } else if (!some) {
        xr_sentence_printf(s, "rank %u gave up", rank);
    } else {
        xr_sentence_printf(s, "rank %u %s ", rank,
                           state == NCCL_GAVE_UP ? "gave up in" : "waits in");
        say_trace(s, t);
        if (state != NCCL_GAVE_UP)
            xr_sentence_printf(
                s, " for %.1f s",
                1e-9 * (double)(nccl_clock() - xr_trace_get64(&t->since)));
    }
}

static void say_cause(xr_sentence *s, const xray_comm_group *group,
                      uint32_t cause)
{
    uint32_t rank = (cause >> 8) - 1;
    switch (cause & 255u) {
    case NCCL_LATE:
        xr_sentence_printf(s, "not all ranks arrived within %.1f s",
                           1e-9 * (double)group->comm->timeout);
        break;
    case NCCL_DEAD:
        xr_sentence_printf(s, "a rank is dead");
        break;
    case NCCL_ABORTED:
        xr_sentence_printf(s, "rank %u was told to stop", rank);
        break;
    case NCCL_CANCELED:
        xr_sentence_printf(s, "the run is stopped");
        break;
    case NCCL_LEFT:
        xr_sentence_printf(s, "a rank has ended its part");
        break;
    default:
        xr_sentence_printf(s, "rank %u failed in the call", rank);
        break;
    }
}

void nccl_write_report(xray_comm_group *group, const nccl_slot *slot,
                       uint32_t cause, const char *detail)
{
    const nccl_comm *comm = group->comm;
    xr_sentence where = { group->where, sizeof(group->where), 0 };
    xr_sentence s = { group->text, sizeof(group->text), 0 };
    if (slot)
        say_slot(&where, slot);
    else
        xr_sentence_printf(&where, "group %llu",
                           (unsigned long long)group->number);
    if (detail)
        xr_sentence_printf(&s, "NCCL failed: %s", detail);
    else
        say_cause(&s, group, cause);
    if (!comm->traces)
        return;
    for (uint32_t i = 0; i < group->count && s.used < s.cap - 160; i++) {
        xr_sentence_printf(&s, "%s", i ? "; " : ": ");
        say_rank(&s, comm, group->ranks[i]);
    }
}
