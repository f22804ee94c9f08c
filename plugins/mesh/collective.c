/* SPDX-License-Identifier: Apache-2.0
 *
 * Plans what each call moves between this rank and every other one.
 *
 * Let N ranks have buffers of B bytes. In a reduce-scatter every rank sends
 * each other one the part that the other adds, so that an element is added
 * once, in the order of the ranks that <xray/comm.h> defines: (N - 1) / N B
 * bytes out and as many in, which is the least there is. A ring of partial sums
 * would move as many, but begin the sum of each part at another rank. An
 * all-reduce does that with slices, and the sums then go once around the ring,
 * piece by piece as they are added: again (N - 1) / N B. Small calls go from
 * each rank to each other one at once, since there the number of steps counts.
 *
 * Between hosts the bytes are those of one rank of each, not of all: a block
 * (layout.c) is added by one of its ranks, to which the others send their parts
 * (MESH_PART), and goes on as one sum; and the ring of the ranks, host by host,
 * brings each part to a host once.
 */
#include <string.h>

#include "core/base/collective.h"
#include "plugins/mesh/mesh.h"

#define UNIT 64u /* slices begin at multiples of this many elements */

/* Between two ranks the short way moves no more bytes than the other one. But a
 * sum that takes the place of what is sent waits until all of that has gone,
 * and the lines need not hold more than a small call. */
int mesh_is_small(const xray_comm_group *group, const mesh_call *call)
{
    return call->bytes <= MESH_SMALL ||
           (group->all.count == 2 && !xr_collective_is_in_place(call->call));
}

/* The slice of an all-reduce that a rank adds. */
static mesh_segment find_slice(const xray_comm_group *group,
                               const mesh_call *call, uint32_t index)
{
    uint64_t width = call->count ? call->bytes / call->count : 1;
    uint64_t each = (call->count + group->all.count - 1) / group->all.count;
    each = (each + UNIT - 1) / UNIT * UNIT;
    uint64_t first = each * index < call->count ? each * index : call->count;
    uint64_t n = call->count - first < each ? call->count - first : each;
    return (mesh_segment){ (char *)call->out + first * width, n * width };
}

static void fill_run(mesh_run_of_bytes *run, const mesh_segment *segments,
                     uint32_t count, uint32_t deals)
{
    *run = (mesh_run_of_bytes){ .segments = segments,
                                .count = count,
                                .deals = deals };
    for (uint32_t i = 0; i < count; i++)
        run->total += segments[i].bytes;
    mesh_run_advance(run, 0); /* past segments that are empty */
}

static void set_run(mesh_run_of_bytes *run, const mesh_segment *segments,
                    uint32_t count)
{
    fill_run(run, segments, count, 0);
}

static void set_direct(mesh_flow *flow, const void *out, uint64_t out_bytes,
                       void *in, uint64_t in_bytes)
{
    char *at;
    memcpy(&at, &out, sizeof(at)); /* it is only read */
    flow->direct[0] = (mesh_segment){ at, out_bytes };
    flow->direct[1] = (mesh_segment){ in, in_bytes };
    set_run(&flow->out[MESH_DIRECT], &flow->direct[0], 1);
    set_run(&flow->in[MESH_DIRECT], &flow->direct[1], 1);
}

/* Part of an all-gather, or slice of an all-reduce, that a rank begins with. */
static mesh_segment find_part(const xray_comm_group *group,
                              const mesh_call *call, uint32_t index)
{
    if (call->call == XRAY_COMM_ALL_REDUCE ||
        call->call == XRAY_COMM_ALL_REDUCE_MAX)
        return find_slice(group, call, index);
    return (mesh_segment){ (char *)call->out + index * call->bytes,
                           call->bytes };
}

/* The member that is `steps` places after another one in the ring. */
static uint32_t find_in_ring(const xray_comm_group *group, uint32_t index,
                             uint32_t steps)
{
    const mesh_layout *l = &group->layout;
    return l->order[(l->place[index] + steps) % group->all.count];
}

/* True if a rank of this rank's host has a part directly instead of along the
 * ring: it is before the part's own rank. */
static int is_behind(const mesh_layout *l, uint32_t index, uint32_t part)
{
    return l->hosts > 1 && l->host[index] == l->host[part] &&
           l->place[index] < l->place[part];
}

/* The own part of a ring goes to those directly. */
static void plan_back(xray_comm_group *group, const mesh_call *call,
                      mesh_segment own)
{
    uint32_t self = group->all.self;
    for (uint32_t i = 0; i < group->all.count; i++) {
        mesh_flow *flow = &group->flows[i];
        flow->back[0] = own;
        flow->back[1] = find_part(group, call, i);
        if (is_behind(&group->layout, i, self))
            set_run(&flow->out[MESH_RING], &flow->back[0], 1);
        else if (is_behind(&group->layout, self, i))
            set_run(&flow->in[MESH_RING], &flow->back[1], 1);
    }
}

/* Each rank sends its own part to the next one, and then what it receives from
 * the one before, up to the parts that the next one's host has. */
static void plan_ring(xray_comm_group *group, const mesh_call *call)
{
    uint32_t n = group->all.count;
    uint32_t self = group->all.self;
    uint32_t next = find_in_ring(group, self, 1);
    uint32_t before = find_in_ring(group, self, n - 1);
    mesh_segment *out = group->ring;
    mesh_segment *in = group->ring + n;
    for (uint32_t k = 0; k + 1 < n; k++) {
        out[k] = find_part(group, call, find_in_ring(group, self, n - k));
        in[k] = find_part(group, call, find_in_ring(group, self, n - 1 - k));
    }
    if (call->call == XRAY_COMM_ALL_GATHER)
        memcpy(&out[0].at, &call->in, sizeof(out[0].at));
    plan_back(group, call, out[0]);
    set_run(&group->flows[next].out[MESH_RING], out,
            mesh_ring_parts(&group->layout, n, next));
    set_run(&group->flows[before].in[MESH_RING], in,
            mesh_ring_parts(&group->layout, n, self));
}

/* A large broadcast goes along the ring from the root to the last rank of the
 * other hosts. */
static void plan_chain(xray_comm_group *group, const mesh_call *call)
{
    const mesh_layout *l = &group->layout;
    uint32_t n = group->all.count;
    uint32_t self = group->all.self;
    uint32_t next = find_in_ring(group, self, 1);
    uint32_t before = find_in_ring(group, self, n - 1);
    group->ring[0] = (mesh_segment){ call->out, call->bytes };
    for (uint32_t i = 0; self == call->root && i < n; i++)
        if (is_behind(l, i, self))
            set_run(&group->flows[i].out[MESH_RING], group->ring, 1);
    if (is_behind(l, self, call->root)) {
        set_run(&group->flows[call->root].in[MESH_RING], group->ring, 1);
        return;
    }
    if (next != call->root && !is_behind(l, next, call->root))
        set_run(&group->flows[next].out[MESH_RING], group->ring, 1);
    if (self != call->root)
        set_run(&group->flows[before].in[MESH_RING], group->ring, 1);
}

static void plan_broadcast(xray_comm_group *group, const mesh_call *call)
{
    uint32_t self = group->all.self;
    if (!mesh_is_small(group, call)) {
        plan_chain(group, call);
        return;
    }
    for (uint32_t i = 0; i < group->all.count; i++)
        set_direct(&group->flows[i], call->out,
                   self == call->root ? call->bytes : 0, call->out,
                   i == call->root ? call->bytes : 0);
}

mesh_segment mesh_share_of(const xray_comm_group *group, const mesh_call *call,
                           uint32_t index)
{
    char *in;
    if (call->call != XRAY_COMM_REDUCE_SCATTER)
        return find_slice(group, call, index);
    memcpy(&in, &call->in, sizeof(in)); /* it is only read */
    return (mesh_segment){ in + index * call->bytes, call->bytes };
}

/* Plans the sums that the ranks of this rank's block make for other hosts: each
 * rank gets from the others the parts whose sums it sends. */
static void plan_block(xray_comm_group *group, const mesh_call *call)
{
    const mesh_layout *l = &group->layout;
    uint32_t self = group->all.self;
    uint32_t first = l->block_first[self];
    uint32_t end = first + l->block_count[self];
    mesh_segment *dealt = group->dealt;
    for (uint32_t i = first; i < end; i++) {
        uint32_t count = 0;
        for (uint32_t s = 0; s < group->all.count; s++) {
            if (!mesh_is_partial(group, call, s, i) ||
                mesh_source_of(group, call, s, i) != i)
                continue;
            if (i == self)
                l->tasks[count] = s;
            dealt[count++] = mesh_share_of(group, call, s);
        }
        if (i != self)
            fill_run(&group->flows[i].out[MESH_PART], dealt, count, 1);
        for (uint32_t k = first; i == self && k < end; k++)
            fill_run(&group->flows[k].in[MESH_PART], dealt, count, 1);
        dealt += count;
    }
}

/* Each rank sends every other one the elements that it adds, or the sum of its
 * block if it is the one that adds that. */
static void plan_sum(xray_comm_group *group, const mesh_call *call)
{
    uint32_t self = group->all.self;
    uint32_t widens = mesh_widens(call);
    mesh_segment own = mesh_share_of(group, call, self);
    for (uint32_t i = 0; i < group->all.count; i++) {
        mesh_flow *flow = &group->flows[i];
        mesh_segment out = mesh_share_of(group, call, i);
        uint64_t in_bytes = own.bytes;
        int sums = mesh_is_partial(group, call, i, self);
        if (sums) {
            out.bytes *= widens;
            out.at = group->all.comm->parts + i * (uint64_t)MESH_PARTS;
        }
        if (mesh_is_partial(group, call, self, i))
            in_bytes *= widens;
        if (mesh_source_of(group, call, i, self) != self)
            out.bytes = 0;
        if (mesh_source_of(group, call, self, i) != i)
            in_bytes = 0;
        set_direct(flow, out.at, out.bytes, NULL, in_bytes);
        flow->out[MESH_DIRECT].wraps = sums ? MESH_PARTS : 0;
    }
    plan_block(group, call);
}

static void plan_all_reduce(xray_comm_group *group, const mesh_call *call)
{
    if (!mesh_is_small(group, call)) {
        plan_sum(group, call);
        plan_ring(group, call);
        return;
    }
    for (uint32_t i = 0; i < group->all.count; i++)
        set_direct(&group->flows[i], call->out, call->bytes, NULL, call->bytes);
}

static void plan_all_gather(xray_comm_group *group, const mesh_call *call)
{
    char *out = call->out;
    for (uint32_t i = 0; mesh_is_small(group, call) && i < group->all.count;
         i++)
        set_direct(&group->flows[i], call->in, call->bytes,
                   out + i * call->bytes, call->bytes);
    if (!mesh_is_small(group, call))
        plan_ring(group, call);
    if (out + group->all.self * call->bytes != call->in)
        group->own = (mesh_copy){ .from = call->in,
                                  .to = out + group->all.self * call->bytes,
                                  .bytes = call->bytes };
}

void mesh_plan_call(xray_comm_group *group, const mesh_call *call)
{
    const char *in = call->in;
    char *out = call->out;
    uint32_t self = group->all.self;
    group->own = (mesh_copy){ .bytes = 0 };
    memset(group->flows, 0, group->all.count * sizeof(*group->flows));
    switch (call->call) {
    case XRAY_COMM_ALL_REDUCE:
    case XRAY_COMM_ALL_REDUCE_MAX:
        plan_all_reduce(group, call);
        break;
    case XRAY_COMM_REDUCE_SCATTER:
        plan_sum(group, call);
        break;
    case XRAY_COMM_ALL_GATHER:
        plan_all_gather(group, call);
        break;
    case XRAY_COMM_ALL_TO_ALL:
        for (uint32_t i = 0; i < group->all.count; i++)
            set_direct(&group->flows[i], in + i * call->bytes, call->bytes,
                       out + i * call->bytes, call->bytes);
        group->own = (mesh_copy){ .from = in + self * call->bytes,
                                  .to = out + self * call->bytes,
                                  .bytes = call->bytes };
        break;
    case XRAY_COMM_BROADCAST:
        plan_broadcast(group, call);
        break;
    default:
        break; /* the forming of a group moves nothing */
    }
}
