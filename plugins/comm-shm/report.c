/* SPDX-License-Identifier: Apache-2.0
 *
 * Who is where: what each rank says about itself, and the sentence an error
 * makes of it.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "plugins/comm-shm/shm.h"

#define TEXT_CAP 900u

typedef struct sentence {
    char text[TEXT_CAP];
    size_t used;
} sentence;

XRAY_PRINTF(2, 3)
static void say(sentence *s, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(s->text + s->used, TEXT_CAP - s->used, fmt, args);
    va_end(args);
    if (n > 0)
        s->used += (size_t)n;
    if (s->used >= TEXT_CAP)
        s->used = TEXT_CAP - 1;
}

/* ---- processes ---------------------------------------------------------- */

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

int shm_is_dead(const shm_comm *comm, uint32_t rank)
{
    const shm_peer *peer = &comm->peers[rank];
    if (peer->pid == (uint32_t)getpid())
        return 0;
    if (peer->pidfd >= 0) {
        struct pollfd p = { .fd = peer->pidfd, .events = POLLIN };
        return poll(&p, 1, 0) > 0;
    }
    if (kill((pid_t)peer->pid, 0) != 0 && errno == ESRCH)
        return 1;
    char state = process_state(peer->pid);
    return state == 'Z' || state == 'X';
}

/* ---- other calls -------------------------------------------------------- */

/* This rank's channel with that number, or NULL. */
static const shm_channel *find_channel(const shm_comm *comm, uint32_t number)
{
    for (const xray_comm_group *g = comm->groups; g; g = g->next) {
        if (g->all->number == number)
            return g->all;
        for (uint32_t i = 0; i < g->count; i++)
            if (g->pairs[i] && g->pairs[i]->number == number)
                return g->pairs[i];
    }
    return NULL;
}

int shm_is_elsewhere(const shm_channel *channel, uint32_t rank,
                     uint32_t *out_channel)
{
    const shm_comm *comm = channel->comm;
    uint64_t now = atomic_load(&shm_area_of(&comm->control, rank)->now);
    if (now == 0 || (now >> 48) - 1 == channel->number)
        return 0;
    uint32_t number = (uint32_t)(now >> 48) - 1;
    uint64_t call = now & 0xffffffffffffu;
    *out_channel = number;
    const shm_channel *there = find_channel(comm, number);
    if (there)
        return call > there->calls;
    /* A pair whose other side never used it. */
    uint64_t pair = shm_channel_pair(&comm->control, number);
    return pair && ((pair >> 16 & 0xffff) == comm->rank ||
                    (pair & 0xffff) == comm->rank);
}

/* ---- traces ------------------------------------------------------------- */

/* The core reads these while they are written. */
static void put64(uint64_t *to, uint64_t value)
{
    atomic_store_explicit((_Atomic uint64_t *)to, value, memory_order_release);
}

static void put32(uint32_t *to, uint32_t value)
{
    atomic_store_explicit((_Atomic uint32_t *)to, value, memory_order_release);
}

void shm_trace_begin(const shm_channel *channel, const shm_call *call)
{
    const shm_comm *comm = channel->comm;
    shm_area *area = shm_area_of(&comm->control, comm->rank);
    uint64_t calls = atomic_load(&area->calls) + 1;
    uint64_t since = shm_clock();
    atomic_store(&area->calls, calls);
    atomic_store(&area->bytes, call->whole);
    atomic_store(&area->since, since);
    atomic_store(&area->group, channel->group);
    atomic_store(&area->call, call->call);
    atomic_store(&area->dtype, call->dtype);
    atomic_store(&area->root, call->other);
    atomic_store(&area->state, SHM_WAITS);
    atomic_store(&area->now, shm_now(channel->number, channel->calls + 1));
    if (!comm->traces)
        return;
    xray_comm_trace *trace = &comm->traces[comm->rank];
    put64(&trace->calls, calls);
    put64(&trace->bytes, call->whole);
    put64(&trace->group, channel->group);
    put32(&trace->call, call->call);
    put64(&trace->since, since);
    put64(&trace->pid, (uint64_t)getpid());
    put32(&trace->state, SHM_WAITS);
}

void shm_trace_state(const shm_comm *comm, uint32_t state)
{
    atomic_store(&shm_area_of(&comm->control, comm->rank)->state, state);
    if (comm->traces)
        put32(&comm->traces[comm->rank].state, state);
}

void shm_trace_end(const shm_comm *comm, uint32_t state)
{
    shm_area *area = shm_area_of(&comm->control, comm->rank);
    atomic_store(&area->state, state);
    atomic_store(&area->now, 0);
    if (comm->traces)
        put32(&comm->traces[comm->rank].state, SHM_OUTSIDE);
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

/* "all_reduce of 64 bytes of f32 in group 0" */
static void say_call(sentence *s, uint32_t call, uint64_t bytes, uint32_t dtype,
                     uint32_t root)
{
    static const char *const types[] = { "", " of f32", " of bf16", " of f16" };
    say(s, "%s", call_name(call));
    if (call == XRAY_COMM_BARRIER)
        return;
    say(s, " of %llu bytes", (unsigned long long)bytes);
    if (call == XRAY_COMM_ALL_REDUCE || call == XRAY_COMM_REDUCE_SCATTER)
        say(s, "%s", dtype < 4 ? types[dtype] : "");
    else if (call == XRAY_COMM_BROADCAST || call == XRAY_COMM_RECV)
        say(s, " from rank %u", root);
    else if (call == XRAY_COMM_SEND)
        say(s, " to rank %u", root);
}

static void say_call_of(sentence *s, shm_area *area)
{
    say_call(s, atomic_load(&area->call), atomic_load(&area->bytes),
             atomic_load(&area->dtype), atomic_load(&area->root));
    say(s, " in group %u", atomic_load(&area->group));
}

/* What a rank of another process is, that cannot say so itself; or NULL. */
static const char *fate(const shm_comm *comm, uint32_t rank)
{
    if (comm->peers[rank].pid == (uint32_t)getpid())
        return NULL;
    if (shm_is_dead(comm, rank))
        return "dead";
    char state = process_state(comm->peers[rank].pid);
    return state == 'T' || state == 't' ? "stopped" : NULL;
}

/* What a member came with to the step at hand, once it is elsewhere. */
static int say_desc(sentence *s, const shm_channel *channel, uint32_t index)
{
    const shm_control *control = &channel->comm->control;
    uint32_t rank = channel->ranks[index];
    uint64_t number = channel->calls + 1;
    shm_step *step =
        shm_step_of(control, channel->number, (uint32_t)(number & 1));
    shm_member *member = shm_member_of(step, index);
    if (atomic_load(&member->arrived) != number ||
        atomic_load(&shm_area_of(control, rank)->now) ==
            shm_now(channel->number, number))
        return 0;
    const shm_desc *d = &member->desc;
    uint32_t root = d->call == XRAY_COMM_BROADCAST
                        ? channel->ranks[d->root]
                        : channel->ranks[channel->count - 1 - index];
    say(s, "rank %u gave up in ", rank);
    say_call(s, d->call, d->whole, d->dtype, root);
    say(s, " in group %u", channel->group);
    return 1;
}

static void say_rank(sentence *s, const shm_channel *channel, uint32_t index)
{
    const shm_comm *comm = channel->comm;
    uint32_t rank = channel->ranks[index];
    shm_area *area = shm_area_of(&comm->control, rank);
    uint32_t state = atomic_load(&area->state);
    const char *is = fate(comm, rank);
    if (atomic_load(&area->left)) {
        say(s, "rank %u has ended its part", rank);
    } else if (is) {
        say(s, "rank %u (pid %u) is %s", rank, comm->peers[rank].pid, is);
        if (atomic_load(&area->calls)) {
            say(s, "%s", state ? ", in " : ", after ");
            say_call_of(s, area);
        }
    } else if (say_desc(s, channel, index)) {
        return;
    } else if (state == SHM_OUTSIDE) {
        say(s, "rank %u is outside any collective", rank);
        if (atomic_load(&area->calls)) {
            say(s, ", after ");
            say_call_of(s, area);
        }
    } else {
        say(s, "rank %u %s ", rank,
            state == SHM_WAITS   ? "waits in"
            : state == SHM_WORKS ? "works in"
                                 : "gave up in");
        say_call_of(s, area);
        if (state != SHM_GAVE_UP)
            say(s, " for %.1f s",
                1e-9 * (double)(shm_clock() - atomic_load(&area->since)));
    }
}

static void say_cause(sentence *s, const shm_comm *comm, uint32_t broken)
{
    uint32_t rank = broken / 256;
    switch (broken % 256) {
    case SHM_LATE:
        say(s, "not all ranks came within %.1f s",
            1e-9 * (double)comm->timeout);
        break;
    case SHM_DEAD:
        say(s, "a rank is dead");
        break;
    case SHM_DIFFERENT:
        say(s, "the ranks are in different calls");
        break;
    case SHM_ABORTED:
        say(s, "rank %u was told to stop", rank);
        break;
    case SHM_LEFT:
        say(s, "a rank has ended its part");
        break;
    default:
        say(s, "rank %u failed in it", rank);
        break;
    }
}

xray_status shm_report(const shm_channel *channel, const shm_call *call,
                       uint32_t broken)
{
    const shm_comm *comm = channel->comm;
    sentence s = { .used = 0 };
    say_cause(&s, comm, broken);
    for (uint32_t i = 0; i < channel->count && s.used < TEXT_CAP - 160; i++) {
        say(&s, "%s", i ? "; " : ": ");
        say_rank(&s, channel, i);
    }
    sentence where = { .used = 0 };
    say_call(&where, call->call, call->whole, call->dtype, call->other);
    say(&where, " in group %u", channel->group);
    return shm_fail(comm->host, XRAY_E_PEER, where.text, "%s", s.text);
}
