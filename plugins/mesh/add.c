/* SPDX-License-Identifier: Apache-2.0
 *
 * Adds what the ranks send, in pieces, as soon as all sources of one are there:
 * the elements that this rank holds the sum of, and before them those of its
 * block that it sends on as one sum (layout.c). Sums over blocks of bf16 are
 * fp32, so that only the complete sum is rounded.
 */
#include <string.h>

#include "core/base/sums.h"
#include "plugins/mesh/mesh.h"

#define STRIP 1024u     /* elements whose sums wait in the cache */
#define DEPTH 10u       /* of the tree over all ranks */
#define LARGE 0x200000u /* bytes of a result that bypasses the caches */

_Static_assert(MESH_MOST_RANKS <= XR_SUM_MOST, "every rank is a source");
_Static_assert(MESH_MOST_RANKS <= 1u << (DEPTH - 1), "a level per digit");

void mesh_sums_begin(mesh_sums *s, xray_comm_group *group,
                     const mesh_call *call)
{
    uint32_t self = group->all.self;
    *s = (mesh_sums){ .group = group, .call = call };
    if (!xr_collective_reduces(call->call) || group->all.count == 1)
        return;
    s->active = 1;
    s->to = call->out;
    s->own = call->out;
    s->bytes = call->bytes;
    s->parts = group->flows[self].in[MESH_PART];
    for (uint32_t i = 0; i < group->all.count; i++)
        s->joins |= (uint32_t)mesh_is_partial(group, call, self, i);
    if (call->call == XRAY_COMM_REDUCE_SCATTER) {
        s->own = mesh_share_of(group, call, self).at;
    } else if (mesh_is_small(group, call)) {
        s->holds = 1;
    } else {
        mesh_segment own = mesh_share_of(group, call, self);
        s->own = s->to = own.at;
        s->bytes = own.bytes;
    }
}

/* ---- windows --------------------------------------------------------------
 */

/* Bytes that a rank sends for each byte of this rank's sum. */
static uint64_t find_width(const mesh_sums *s, uint32_t index)
{
    return s->joins &&
                   mesh_is_partial(s->group, s->call, s->group->all.self, index)
               ? mesh_widens(s->call)
               : 1;
}

/* Where what a rank sends for the sum from byte `at` on waits. */
static char *find_slot(const mesh_sums *s, uint32_t index, uint64_t at)
{
    uint64_t ring = (uint64_t)MESH_WINDOW * MESH_PIECE * find_width(s, index);
    return s->group->all.comm->window + (uint64_t)index * MESH_PARTS +
           at % ring;
}

/* Where the piece that comes next in a run waits to be added for others. */
static char *find_mate(const mesh_sums *s, uint32_t index,
                       const mesh_run_of_bytes *run)
{
    uint64_t piece = (uint64_t)run->round * run->count + run->current;
    return s->group->all.comm->mates +
           ((uint64_t)index * MESH_WINDOW + piece % MESH_WINDOW) * MESH_PIECE +
           run->in_current;
}

char *mesh_sums_slot(const mesh_sums *s, uint32_t index, uint32_t lane)
{
    const mesh_run_of_bytes *in = &s->group->flows[index].in[lane];
    if (lane == MESH_PART) {
        uint64_t ahead =
            (uint64_t)(in->round - s->parts.round) * in->count + in->current;
        return ahead < MESH_WINDOW + (uint64_t)s->parts.current
                   ? find_mate(s, index, in)
                   : NULL;
    }
    uint64_t end =
        s->done / MESH_PIECE * MESH_PIECE + (uint64_t)MESH_WINDOW * MESH_PIECE;
    return in->done < end * find_width(s, index) ? find_slot(s, index, in->done)
                                                 : NULL;
}

/* ---- the sum of this rank -------------------------------------------------
 */

/* Bytes of the sum of which all sources are there. */
static uint64_t count_received(const mesh_sums *s)
{
    const xray_comm_group *group = s->group;
    uint64_t least = s->bytes;
    for (uint32_t i = 0; i < group->all.count; i++) {
        const mesh_run_of_bytes *in = &group->flows[i].in[MESH_DIRECT];
        uint64_t done = in->done / find_width(s, i);
        if (i != group->all.self && in->total && done < least)
            least = done;
    }
    return least;
}

/* A piece that is added, strip by strip. */
typedef struct strip {
    const mesh_sums *sums;
    uint64_t at; /* element of the piece */
    uint64_t count;
    uint32_t dtype;  /* of sums that are not complete */
    uint32_t stream; /* 1: the sum bypasses the caches */
    char (*waiting)[STRIP * sizeof(float)];
} strip;

/* True if the elements of ranks first .. first + n - 1 come one by one. */
static int are_single(const mesh_sums *s, uint32_t first, uint32_t n)
{
    for (uint32_t i = first; i < first + n; i++)
        if (mesh_is_partial(s->group, s->call, s->group->all.self, i))
            return 0;
    return 1;
}

/* Adds `n` sources of a type to a destination of another one. */
static void add_sources(const strip *t, const void *const *sources, uint32_t n,
                        uint64_t at, uint32_t dtype, void *to,
                        uint32_t to_dtype)
{
    const mesh_call *call = t->sums->call;
    const xr_sum sum = { .dst = &to,
                         .src = sources,
                         .src_at = at,
                         .dst_count = 1,
                         .src_count = n,
                         .dtype = dtype,
                         .to = to_dtype,
                         .stream = t->stream,
                         .max = call->call == XRAY_COMM_ALL_REDUCE_MAX };
    xr_sum_run(&sum, 0, t->count);
}

/* Returns the strip of the sum over ranks first .. first + n - 1: the tree of
 * <xray/comm.h>, in which a block has been added already. */
static const void *join_ranks(const strip *t, uint32_t first, uint32_t n,
                              uint32_t depth)
{
    const mesh_sums *s = t->sums;
    const mesh_layout *l = &s->group->layout;
    const char *block = s->group->sources[first];
    void *to = t->waiting[depth];
    if (are_single(s, first, n)) {
        add_sources(t, s->group->sources + first, n, t->at, s->call->dtype, to,
                    t->dtype);
        return to;
    }
    if (l->block_first[first] == first && l->block_count[first] == n)
        return block + t->at * xr_collective_width(t->dtype);
    uint32_t left = xray_comm_left(n);
    const void *two[2] = { join_ranks(t, first, left, depth),
                           join_ranks(t, first + left, n - left, depth + 1) };
    add_sources(t, two, 2, 0, t->dtype, to, t->dtype);
    return to;
}

static void join_piece(const mesh_sums *s, uint64_t count)
{
    const xray_comm_group *group = s->group;
    char waiting[DEPTH][STRIP * sizeof(float)];
    uint64_t width = xr_collective_width(s->call->dtype);
    strip t = { .sums = s,
                .dtype = mesh_widens(s->call) == 2 ? XRAY_F32 : s->call->dtype,
                .waiting = waiting };
    for (t.at = 0; t.at < count; t.at += STRIP) {
        t.count = count - t.at < STRIP ? count - t.at : STRIP;
        const void *sum = join_ranks(&t, 0, group->all.count, 0);
        add_sources(&t, &sum, 1, 0, t.dtype, s->to + s->done + t.at * width,
                    s->call->dtype);
    }
}

static void add_piece(mesh_sums *s, uint64_t bytes)
{
    const mesh_channel *all = &s->group->all;
    uint64_t count = bytes / xr_collective_width(s->call->dtype);
    /* An all-reduce has read its sum and sends it on, so that stays cached. */
    strip whole = { .sums = s,
                    .count = count,
                    .stream = s->call->call == XRAY_COMM_REDUCE_SCATTER &&
                              s->bytes >= LARGE };
    for (uint32_t i = 0; i < all->count; i++) {
        uint32_t from =
            s->joins ? mesh_source_of(s->group, s->call, all->self, i) : i;
        s->group->sources[i] =
            i == all->self ? s->own + s->done
                           : find_slot(s, from, s->done * find_width(s, i));
    }
    if (s->joins)
        join_piece(s, count);
    else
        add_sources(&whole, s->group->sources, all->count, 0, s->call->dtype,
                    s->to + s->done, s->call->dtype);
    s->done += bytes;
}

static int add_own(mesh_sums *s)
{
    uint64_t ready = count_received(s);
    int added = 0;
    while (s->done < ready) {
        uint64_t n = s->bytes - s->done;
        n = n < MESH_PIECE ? n : MESH_PIECE;
        if (ready - s->done < n)
            break;
        add_piece(s, n);
        added = 1;
    }
    return added;
}

/* ---- sums for other hosts -------------------------------------------------
 */

/* Bytes of a part that this rank has added of its block. */
static uint64_t count_added(const mesh_sums *s, uint32_t task)
{
    uint64_t pieces = s->parts.round + (task < s->parts.current);
    uint64_t bytes = s->parts.segments[task].bytes;
    return s->parts.done == s->parts.total || pieces * MESH_PIECE > bytes
               ? bytes
               : pieces * MESH_PIECE;
}

uint64_t mesh_parts_ready(const mesh_sums *s, uint32_t owner)
{
    uint32_t task = 0;
    while (s->group->layout.tasks[task] != owner)
        task++;
    return count_added(s, task) * mesh_widens(s->call);
}

/* Where the sum of the next piece goes, or NULL while a source of it is not
 * there, or the sums before it have not gone. */
static char *find_room(const mesh_sums *s, uint64_t bytes)
{
    const xray_comm_group *group = s->group;
    const mesh_layout *l = &group->layout;
    uint32_t self = group->all.self;
    uint32_t first = l->block_first[self];
    uint32_t owner = l->tasks[s->parts.current];
    const mesh_peer *peer = &group->all.comm->peers[group->ranks[owner]];
    uint64_t at =
        count_added(s, s->parts.current) * (uint64_t)mesh_widens(s->call);
    uint64_t sent =
        group->flows[owner].out[MESH_DIRECT].done - peer->payload_left;
    for (uint32_t i = first; i < first + l->block_count[self]; i++)
        if (i != self &&
            group->flows[i].in[MESH_PART].done < s->parts.done + bytes)
            return NULL;
    return at + bytes * mesh_widens(s->call) - sent <= MESH_PARTS
               ? group->all.comm->parts + (uint64_t)owner * MESH_PARTS +
                     at % MESH_PARTS
               : NULL;
}

static int add_parts(mesh_sums *s)
{
    const xray_comm_group *group = s->group;
    uint32_t self = group->all.self;
    uint32_t first = group->layout.block_first[self];
    uint32_t n = group->layout.block_count[self];
    int added = 0;
    while (s->parts.done < s->parts.total) {
        mesh_segment own = mesh_run_next(&s->parts);
        strip t = { .sums = s,
                    .count = own.bytes / xr_collective_width(s->call->dtype) };
        char *to = find_room(s, own.bytes);
        if (!to)
            break;
        for (uint32_t i = 0; i < n; i++)
            group->sources[i] =
                first + i == self ? own.at : find_mate(s, first + i, &s->parts);
        add_sources(&t, group->sources, n, 0, s->call->dtype, to,
                    mesh_widens(s->call) == 2 ? XRAY_F32 : s->call->dtype);
        mesh_run_advance(&s->parts, own.bytes);
        added = 1;
    }
    return added;
}

int mesh_sums_add(mesh_sums *s)
{
    int added = add_parts(s);
    return add_own(s) | added;
}
