/* SPDX-License-Identifier: Apache-2.0
 *
 * Plans what each call moves between this rank and every other one, and adds.
 *
 * Let N ranks have buffers of B bytes. In a reduce-scatter every rank sends
 * each other one the part that the other adds, so that an element is added
 * once, in the order of the ranks that <xray/comm.h> defines: (N - 1) / N B
 * bytes out and as many in, which is the least there is. A ring of partial sums
 * would move as many, but begin the sum of each part at another rank. An
 * all-reduce does that with slices, and the sums then go once around the ring,
 * piece by piece as they are added: again (N - 1) / N B. A ring in the order of
 * the ranks brings every part to a host once, however many of its ranks are
 * there. Small calls go from each rank to each other one at once, since there
 * the number of steps counts.
 */
#include <stdlib.h>
#include <string.h>

#include "core/base/sums.h"
#include "plugins/comm-tcp/tcp.h"

#define SMALL 0x8000u /* bytes that each rank may send to every other one */
#define UNIT 64u      /* slices begin at multiples of this many elements */

_Static_assert(TCP_MOST_RANKS <= XR_SUM_MOST, "every rank is a source");

int tcp_is_small(const xray_comm_group *group, const tcp_call *call)
{
    return group->all.count == 2
               ? call->call != XRAY_COMM_ALL_REDUCE || call->bytes <= SMALL
               : call->bytes <= SMALL;
}

/* The slice of an all-reduce that a rank adds. */
static tcp_segment find_slice(const xray_comm_group *group,
                              const tcp_call *call, uint32_t index)
{
    uint64_t width = call->count ? call->bytes / call->count : 1;
    uint64_t each = (call->count + group->all.count - 1) / group->all.count;
    each = (each + UNIT - 1) / UNIT * UNIT;
    uint64_t first = each * index < call->count ? each * index : call->count;
    uint64_t n = call->count - first < each ? call->count - first : each;
    return (tcp_segment){ (char *)call->out + first * width, n * width };
}

static void set_run(tcp_run_of_bytes *run, const tcp_segment *segments,
                    uint32_t count)
{
    *run = (tcp_run_of_bytes){ .segments = segments, .count = count };
    for (uint32_t i = 0; i < count; i++)
        run->total += segments[i].bytes;
    tcp_run_advance(run, 0); /* past segments that are empty */
}

static void set_direct(tcp_flow *flow, const void *out, uint64_t out_bytes,
                       void *in, uint64_t in_bytes)
{
    char *at;
    memcpy(&at, &out, sizeof(at)); /* it is only read */
    flow->direct[0] = (tcp_segment){ at, out_bytes };
    flow->direct[1] = (tcp_segment){ in, in_bytes };
    set_run(&flow->out[TCP_DIRECT], &flow->direct[0], 1);
    set_run(&flow->in[TCP_DIRECT], &flow->direct[1], 1);
}

/* Part of an all-gather, or slice of an all-reduce, that a rank begins with. */
static tcp_segment find_part(const xray_comm_group *group, const tcp_call *call,
                             uint32_t index)
{
    if (call->call == XRAY_COMM_ALL_REDUCE ||
        call->call == XRAY_COMM_ALL_REDUCE_MAX)
        return find_slice(group, call, index);
    return (tcp_segment){ (char *)call->out + index * call->bytes,
                          call->bytes };
}

/* Each rank sends its own part to the next one, and then what it receives from
 * the one before, up to the part that the next one had first. */
static void plan_ring(xray_comm_group *group, const tcp_call *call)
{
    uint32_t n = group->all.count;
    uint32_t self = group->all.self;
    tcp_segment *out = group->ring;
    tcp_segment *in = group->ring + n;
    for (uint32_t k = 0; k + 1 < n; k++) {
        out[k] = find_part(group, call, (self + n - k) % n);
        in[k] = find_part(group, call, (self + n - 1 - k) % n);
    }
    if (call->call == XRAY_COMM_ALL_GATHER)
        memcpy(&out[0].at, &call->in, sizeof(out[0].at));
    set_run(&group->flows[(self + 1) % n].out[TCP_RING], out, n - 1);
    set_run(&group->flows[(self + n - 1) % n].in[TCP_RING], in, n - 1);
}

/* A large broadcast goes along the ring from the root to the rank before it. */
static void plan_chain(xray_comm_group *group, const tcp_call *call)
{
    uint32_t n = group->all.count;
    uint32_t self = group->all.self;
    uint32_t next = (self + 1) % n;
    group->ring[0] = (tcp_segment){ call->out, call->bytes };
    if (next != call->root)
        set_run(&group->flows[next].out[TCP_RING], group->ring, 1);
    if (self != call->root)
        set_run(&group->flows[(self + n - 1) % n].in[TCP_RING], group->ring, 1);
}

static void plan_broadcast(xray_comm_group *group, const tcp_call *call)
{
    uint32_t self = group->all.self;
    if (!tcp_is_small(group, call)) {
        plan_chain(group, call);
        return;
    }
    for (uint32_t i = 0; i < group->all.count; i++)
        set_direct(&group->flows[i], call->out,
                   self == call->root ? call->bytes : 0, call->out,
                   i == call->root && self != i ? call->bytes : 0);
}

static void plan_all_reduce(xray_comm_group *group, const tcp_call *call)
{
    int small = tcp_is_small(group, call);
    tcp_segment own = find_slice(group, call, group->all.self);
    for (uint32_t i = 0; i < group->all.count; i++) {
        tcp_segment s = find_slice(group, call, i);
        if (small)
            set_direct(&group->flows[i], call->out, call->bytes, NULL,
                       call->bytes);
        else
            set_direct(&group->flows[i], s.at, s.bytes, NULL, own.bytes);
    }
    if (!small)
        plan_ring(group, call);
}

static void plan_all_gather(xray_comm_group *group, const tcp_call *call)
{
    char *out = call->out;
    for (uint32_t i = 0; tcp_is_small(group, call) && i < group->all.count; i++)
        set_direct(&group->flows[i], call->in, call->bytes,
                   out + i * call->bytes, call->bytes);
    if (!tcp_is_small(group, call))
        plan_ring(group, call);
    if (call->bytes && out + group->all.self * call->bytes != call->in)
        memcpy(out + group->all.self * call->bytes, call->in, call->bytes);
}

void tcp_plan_call(xray_comm_group *group, const tcp_call *call)
{
    const char *in = call->in;
    char *out = call->out;
    uint32_t self = group->all.self;
    memset(group->flows, 0, group->all.count * sizeof(*group->flows));
    switch (call->call) {
    case XRAY_COMM_ALL_REDUCE:
    case XRAY_COMM_ALL_REDUCE_MAX:
        plan_all_reduce(group, call);
        break;
    case XRAY_COMM_REDUCE_SCATTER:
        for (uint32_t i = 0; i < group->all.count; i++)
            set_direct(&group->flows[i], in + i * call->bytes, call->bytes,
                       NULL, call->bytes);
        break;
    case XRAY_COMM_ALL_GATHER:
        plan_all_gather(group, call);
        break;
    case XRAY_COMM_ALL_TO_ALL:
        for (uint32_t i = 0; i < group->all.count; i++)
            set_direct(&group->flows[i], in + i * call->bytes, call->bytes,
                       out + i * call->bytes, call->bytes);
        if (call->bytes)
            memcpy(out + self * call->bytes, in + self * call->bytes,
                   call->bytes);
        break;
    case XRAY_COMM_BROADCAST:
        plan_broadcast(group, call);
        break;
    default:
        break; /* the forming of a group moves nothing */
    }
}

/* ---- sums --------------------------------------------------------------- */

void tcp_sums_begin(tcp_sums *s, xray_comm_group *group, const tcp_call *call)
{
    *s = (tcp_sums){ .group = group, .call = call };
    if (!xr_collective_reduces(call->call) || group->all.count == 1)
        return;
    s->active = 1;
    s->to = call->out;
    s->own = call->out;
    s->bytes = call->bytes;
    if (call->call == XRAY_COMM_REDUCE_SCATTER) {
        s->own = (const char *)call->in + group->all.self * call->bytes;
    } else if (tcp_is_small(group, call)) {
        s->holds = 1;
    } else {
        tcp_segment own = find_slice(group, call, group->all.self);
        s->own = s->to = own.at;
        s->bytes = own.bytes;
    }
}

static char *find_slot(const tcp_sums *s, uint32_t index, uint64_t at)
{
    return s->group->all.comm->window +
           ((uint64_t)index * TCP_WINDOW + at / TCP_PIECE % TCP_WINDOW) *
               TCP_PIECE +
           at % TCP_PIECE;
}

char *tcp_sums_slot(const tcp_sums *s, uint32_t index)
{
    uint64_t at = s->group->flows[index].in[TCP_DIRECT].done;
    return at < s->done / TCP_PIECE * TCP_PIECE +
                       (uint64_t)TCP_WINDOW * TCP_PIECE
               ? find_slot(s, index, at)
               : NULL;
}

static uint64_t count_received(const tcp_sums *s)
{
    const tcp_channel *all = &s->group->all;
    uint64_t least = s->bytes;
    for (uint32_t i = 0; i < all->count; i++) {
        uint64_t done = s->group->flows[i].in[TCP_DIRECT].done;
        if (i != all->self && done < least)
            least = done;
    }
    return least;
}

static void add_piece(tcp_sums *s, uint64_t bytes)
{
    const tcp_channel *all = &s->group->all;
    void *to = s->to + s->done;
    for (uint32_t i = 0; i < all->count; i++)
        s->group->sources[i] =
            i == all->self ? s->own + s->done : find_slot(s, i, s->done);
    const xr_sum sum = { .dst = &to,
                         .src = s->group->sources,
                         .dst_count = 1,
                         .src_count = all->count,
                         .dtype = s->call->dtype,
                         .max = s->call->call == XRAY_COMM_ALL_REDUCE_MAX };
    xr_sum_run(&sum, 0, bytes / xr_collective_width(s->call->dtype));
    s->done += bytes;
}

int tcp_sums_add(tcp_sums *s)
{
    uint64_t ready = count_received(s);
    int added = 0;
    while (s->done < ready) {
        uint64_t n = s->bytes - s->done;
        n = n < TCP_PIECE ? n : TCP_PIECE;
        if (ready - s->done < n)
            break;
        add_piece(s, n);
        added = 1;
    }
    return added;
}
