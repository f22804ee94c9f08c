/* SPDX-License-Identifier: Apache-2.0
 *
 * What each rank says about itself, and the sentence an error makes of it. What
 * a rank of another host does is known only where the control plane carries its
 * trace here.
 */
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "plugins/comm-nccl/instance.h"

typedef struct sentence {
    char *text;
    size_t cap;
    size_t used;
} sentence;

XRAY_PRINTF(2, 3)
static void say(sentence *s, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(s->text + s->used, s->cap - s->used, fmt, args);
    va_end(args);
    if (n > 0)
        s->used += (size_t)n;
    if (s->used >= s->cap)
        s->used = s->cap - 1;
}

/* ---- traces ------------------------------------------------------------- */

/* Others read these while they are written. */
static void put64(uint64_t *to, uint64_t value)
{
    atomic_store_explicit((_Atomic uint64_t *)to, value, memory_order_release);
}

static void put32(uint32_t *to, uint32_t value)
{
    atomic_store_explicit((_Atomic uint32_t *)to, value, memory_order_release);
}

static uint64_t get64(const uint64_t *from)
{
    return atomic_load_explicit((const _Atomic uint64_t *)from,
                                memory_order_acquire);
}

static uint32_t get32(const uint32_t *from)
{
    return atomic_load_explicit((const _Atomic uint32_t *)from,
                                memory_order_acquire);
}

/* What an instance before this one left there is not this one's. */
void nccl_trace_reset(const nccl_comm *comm)
{
    if (!comm->traces)
        return;
    xray_comm_trace *trace = &comm->traces[comm->rank];
    put64(&trace->calls, 0);
    put64(&trace->pid, (uint64_t)getpid());
    put32(&trace->state, NCCL_OUTSIDE);
}

void nccl_trace_begin(const nccl_comm *comm, const nccl_slot *slot)
{
    if (!comm->traces)
        return;
    xray_comm_trace *trace = &comm->traces[comm->rank];
    put64(&trace->calls, slot->number);
    put64(&trace->bytes, slot->bytes);
    put64(&trace->group, slot->group->number);
    put32(&trace->call, slot->call);
    put64(&trace->since, slot->since);
    put64(&trace->pid, (uint64_t)getpid());
    put32(&trace->state, NCCL_WAITS);
}

void nccl_trace_state(const nccl_comm *comm, uint32_t state)
{
    if (comm->traces)
        put32(&comm->traces[comm->rank].state, state);
}

void nccl_trace_broken(const xray_comm_group *group, uint32_t cause)
{
    const nccl_comm *comm = group->comm;
    if (!comm->traces)
        return;
    put64(&comm->traces[comm->rank].group, group->number);
    put32(&comm->traces[comm->rank].state, NCCL_GAVE_UP | cause << 8);
}

/* ---- sentences ---------------------------------------------------------- */

static const char *call_name(uint32_t call)
{
    static const char *const names[] = { "no call",        "all_reduce",
                                         "reduce_scatter", "all_gather",
                                         "broadcast",      "send",
                                         "recv",           "barrier" };
    return call < sizeof(names) / sizeof(*names) ? names[call] : "a call";
}

static void say_trace(sentence *s, const xray_comm_trace *t)
{
    uint32_t call = get32(&t->call);
    say(s, "%s", call_name(call));
    if (call != XRAY_COMM_BARRIER)
        say(s, " of %llu bytes", (unsigned long long)get64(&t->bytes));
    say(s, " in group %llu", (unsigned long long)get64(&t->group));
}

/* "all_reduce of 64 bytes of f32 in group 0" */
static void say_slot(sentence *s, const nccl_slot *slot)
{
    static const char *const types[] = { "", " of f32", " of bf16", " of f16" };
    say(s, "%s", call_name(slot->call));
    if (slot->call != XRAY_COMM_BARRIER)
        say(s, " of %llu bytes", (unsigned long long)slot->bytes);
    if (slot->call == XRAY_COMM_ALL_REDUCE ||
        slot->call == XRAY_COMM_REDUCE_SCATTER)
        say(s, "%s", slot->dtype < 4 ? types[slot->dtype] : "");
    else if (slot->call == XRAY_COMM_BROADCAST || slot->call == XRAY_COMM_RECV)
        say(s, " from rank %u", slot->other);
    else if (slot->call == XRAY_COMM_SEND)
        say(s, " to rank %u", slot->other);
    say(s, " in group %llu", (unsigned long long)slot->group->number);
}

/* The letter of /proc/PID/stat; 0: no such process. */
static char process_state(uint32_t pid)
{
    char path[64];
    char text[512];
    (void)snprintf(path, sizeof(path), "/proc/%u/stat", pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    ssize_t n = read(fd, text, sizeof(text) - 1);
    (void)close(fd);
    text[n > 0 ? n : 0] = '\0';
    /* The name before it is in brackets and may hold anything. */
    const char *end = strrchr(text, ')');
    return end && end[1] == ' ' ? end[2] : 0;
}

/* What a rank of another process is, that cannot say so itself; or NULL. */
static const char *fate(const nccl_comm *comm, uint32_t rank)
{
    const nccl_peer *peer = &comm->peers[rank];
    if (!peer->near)
        return NULL;
    if (nccl_is_dead(comm, rank))
        return "dead";
    char state = process_state(peer->pid);
    return state == 'T' || state == 't' ? "stopped" : NULL;
}

static void say_rank(sentence *s, const nccl_comm *comm, uint32_t rank)
{
    const xray_comm_trace *t = &comm->traces[rank];
    uint32_t state = get32(&t->state) & 255u;
    int some = get64(&t->calls) != 0;
    const char *is = state == NCCL_ENDED ? NULL : fate(comm, rank);
    if (state == NCCL_ENDED) {
        say(s, "rank %u has ended its part", rank);
    } else if (is) {
        say(s, "rank %u (pid %u) is %s", rank, comm->peers[rank].pid, is);
        if (some) {
            say(s, "%s", state == NCCL_OUTSIDE ? ", after " : ", in ");
            say_trace(s, t);
        }
    } else if (state == NCCL_OUTSIDE) {
        say(s, "rank %u is outside any collective%s", rank,
            some ? ", after " : "");
        if (some)
            say_trace(s, t);
    } else if (!some) {
        say(s, "rank %u gave up", rank);
    } else {
        say(s, "rank %u %s ", rank,
            state == NCCL_GAVE_UP ? "gave up in" : "waits in");
        say_trace(s, t);
        if (state != NCCL_GAVE_UP)
            say(s, " for %.1f s",
                1e-9 * (double)(nccl_clock() - get64(&t->since)));
    }
}

static void say_cause(sentence *s, const xray_comm_group *group, uint32_t cause)
{
    uint32_t rank = (cause >> 8) - 1;
    switch (cause & 255u) {
    case NCCL_LATE:
        say(s, "not all ranks came within %.1f s",
            1e-9 * (double)group->comm->timeout);
        break;
    case NCCL_DEAD:
        say(s, "a rank is dead");
        break;
    case NCCL_ABORTED:
        say(s, "rank %u was told to stop", rank);
        break;
    case NCCL_LEFT:
        say(s, "a rank has ended its part");
        break;
    default:
        say(s, "rank %u failed in it", rank);
        break;
    }
}

void nccl_report(xray_comm_group *group, const nccl_slot *slot, uint32_t cause,
                 const char *detail)
{
    const nccl_comm *comm = group->comm;
    sentence where = { group->where, sizeof(group->where), 0 };
    sentence s = { group->text, sizeof(group->text), 0 };
    if (slot)
        say_slot(&where, slot);
    else
        say(&where, "group %llu", (unsigned long long)group->number);
    if (detail)
        say(&s, "NCCL failed: %s", detail);
    else
        say_cause(&s, group, cause);
    if (!comm->traces)
        return;
    for (uint32_t i = 0; i < group->count && s.used < s.cap - 160; i++) {
        say(&s, "%s", i ? "; " : ": ");
        say_rank(&s, comm, group->ranks[i]);
    }
}
