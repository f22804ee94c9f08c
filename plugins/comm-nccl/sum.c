/* SPDX-License-Identifier: Apache-2.0
 *
 * Forms sums in the order that <xray/comm.h> defines. NCCL only moves the
 * parts: each rank receives every rank's part of its own slice, adds them in
 * fp32 with the device's operators, rounds bf16 once, and sends the slice to
 * all.
 * That moves as much between ranks as a ring does: 2 (n - 1) / n of the buffer.
 * The sum is made in pieces that fit the scratch memory; the sum of an element
 * does not depend on where pieces end.
 */
#include "core/base/collective.h"
#include "plugins/comm-nccl/instance.h"

#define UNIT 64u /* slices begin at multiples of this many elements */

uint64_t nccl_piece_elements(const nccl_comm *comm, uint32_t ranks)
{
    return comm->config.scratch / (4 * ((uint64_t)ranks + 2)) / UNIT * UNIT;
}

/* ---- on the device ------------------------------------------------------- */

static xray_status cast_elements(const nccl_comm *comm, const void *x,
                                 uint32_t x_dtype, void *y, uint32_t y_dtype,
                                 uint64_t count)
{
    xray_cast op = { .header = XRAY_HEADER(xray_cast),
                     .count = count,
                     .x = x,
                     .y = y,
                     .x_dtype = x_dtype,
                     .y_dtype = y_dtype };
    return comm->device->cast(comm->device_self, comm->stream, &op);
}

static xray_status add_elements(const nccl_comm *comm, const void *x, void *y,
                                uint64_t count)
{
    xray_axpby op = { .header = XRAY_HEADER(xray_axpby),
                      .count = count,
                      .x = x,
                      .y = y,
                      .alpha = 1.0f,
                      .beta = 1.0f };
    return comm->device->axpby(comm->device_self, comm->stream, &op);
}

static xray_status copy_elements(const nccl_comm *comm, void *to,
                                 const void *from, uint64_t bytes)
{
    if (to == from)
        return XRAY_OK;
    return comm->device->copy(comm->device_self, comm->stream, to, from, bytes,
                              XRAY_COPY_ON_DEVICE);
}

/* The parts of one slice: that of rank r is in the scratch memory, this rank's
 * own stays in its buffer. */
typedef struct parts {
    xray_comm_group *group;
    const void *own;
    void *out;
    uint64_t count;
    uint64_t piece; /* distance between parts in fp32 elements */
    uint32_t dtype;
} parts;

static char *scratch_part(const parts *p, uint32_t rank)
{
    return p->group->comm->scratch + 4 * p->piece * rank;
}

static const void *part_of_rank(const parts *p, uint32_t rank)
{
    return rank == p->group->self ? p->own : scratch_part(p, rank);
}

/* Adds up sums over `step` neighbouring ranks, each at the place that sum_of
 * gives for its first rank: two neighbours at a time, then their sums, and so
 * on, which is the tree of xray_comm_left. */
static xray_status add_tree(const parts *p,
                            void *(*sum_of)(const parts *p, uint32_t rank),
                            uint32_t step)
{
    uint32_t count = p->group->count;
    xray_status status = XRAY_OK;
    for (; step < count; step *= 2)
        for (uint32_t r = 0; status == XRAY_OK && r < count - step;
             r += 2 * step)
            status = add_elements(p->group->comm, sum_of(p, r + step),
                                  sum_of(p, r), p->count);
    return status;
}

/* The place of the sum of ranks r and r + 1, for even r. This rank's own part,
 * which must not change, is added to the other's. */
static void *pair_f32(const parts *p, uint32_t rank)
{
    return scratch_part(p, rank == p->group->self ? rank + 1 : rank);
}

static xray_status add_f32(const parts *p)
{
    const nccl_comm *comm = p->group->comm;
    uint32_t count = p->group->count;
    xray_status status = XRAY_OK;
    for (uint32_t r = 0; status == XRAY_OK && r + 1 < count; r += 2)
        status =
            add_elements(comm, part_of_rank(p, r == p->group->self ? r : r + 1),
                         pair_f32(p, r), p->count);
    /* The last of an odd number of ranks has no neighbour. */
    if (status == XRAY_OK && count % 2 && p->group->self == count - 1)
        status =
            copy_elements(comm, pair_f32(p, count - 1), p->own, 4 * p->count);
    if (status == XRAY_OK)
        status = add_tree(p, pair_f32, 2);
    return status == XRAY_OK
               ? copy_elements(comm, p->out, pair_f32(p, 0), 4 * p->count)
               : status;
}

/* Parts are widened in the order of the ranks, each to the place of the one
 * before it, which is free by then. */
static void *wide_bf16(const parts *p, uint32_t rank)
{
    return scratch_part(p, rank ? rank - 1 : p->group->count);
}

static xray_status add_bf16(const parts *p)
{
    const nccl_comm *comm = p->group->comm;
    xray_status status = XRAY_OK;
    for (uint32_t r = 0; status == XRAY_OK && r < p->group->count; r++)
        status = cast_elements(comm, part_of_rank(p, r), XRAY_BF16,
                               wide_bf16(p, r), XRAY_F32, p->count);
    if (status == XRAY_OK)
        status = add_tree(p, wide_bf16, 1);
    if (status == XRAY_OK)
        status = cast_elements(comm, wide_bf16(p, 0), XRAY_F32, p->out,
                               XRAY_BF16, p->count);
    return status;
}

/* ---- between ranks ------------------------------------------------------ */

/* The slices of one piece of an all_reduce, one per rank. */
typedef struct slices {
    char *at;       /* start of the piece */
    uint64_t count; /* number of its elements */
    uint64_t each;  /* elements per slice; the last slices may have fewer */
    uint64_t width;
} slices;

static uint64_t slice_count(const slices *s, uint32_t rank)
{
    uint64_t from = s->each * rank;
    if (from >= s->count)
        return 0;
    return s->count - from < s->each ? s->count - from : s->each;
}

static char *slice_at(const slices *s, uint32_t rank)
{
    return s->at + s->each * rank * s->width;
}

/* Sends every rank's part of slice r to rank r. */
static xray_status scatter_slices(xray_comm_group *g, const slices *s,
                                  uint64_t piece)
{
    uint64_t mine = slice_count(s, g->self) * s->width;
    nccl_transfers t = nccl_transfers_begin(g);
    for (uint32_t r = 0; r < g->count; r++) {
        if (r == g->self)
            continue;
        nccl_transfers_send(&t, slice_at(s, r), slice_count(s, r) * s->width,
                            r);
        nccl_transfers_recv(&t, g->comm->scratch + 4 * piece * r, mine, r);
    }
    return nccl_transfers_end(&t);
}

/* Sends slice r from rank r to all ranks. */
static xray_status gather_slices(xray_comm_group *g, const slices *s)
{
    const nccl_api *api = &g->comm->api;
    uint64_t mine = slice_count(s, g->self) * s->width;
    if (s->each * g->count == s->count) {
        if (!nccl_enter(g))
            return XRAY_E_PEER;
        return nccl_finish(g, "ncclAllGather",
                           api->all_gather(slice_at(s, g->self), s->at, mine,
                                           NCCL_INT8, g->nccl,
                                           g->comm->native));
    }
    nccl_transfers t = nccl_transfers_begin(g);
    for (uint32_t r = 0; r < g->count; r++) {
        if (r == g->self)
            continue;
        nccl_transfers_send(&t, slice_at(s, g->self), mine, r);
        nccl_transfers_recv(&t, slice_at(s, r), slice_count(s, r) * s->width,
                            r);
    }
    return nccl_transfers_end(&t);
}

static xray_status reduce_slices(xray_comm_group *g, const slices *s,
                                 uint64_t piece, uint32_t dtype)
{
    void *own = slice_at(s, g->self);
    parts p = { g, own, own, slice_count(s, g->self), piece, dtype };
    xray_status status = scatter_slices(g, s, piece);
    if (status == XRAY_OK && p.count)
        status = dtype == XRAY_F32 ? add_f32(&p) : add_bf16(&p);
    return status == XRAY_OK ? gather_slices(g, s) : status;
}

static xray_status all_reduce_ordered(xray_comm_group *g, const nccl_call *call)
{
    uint64_t piece = nccl_piece_elements(g->comm, g->count);
    uint64_t step = piece * g->count;
    xray_status status = XRAY_OK;
    for (uint64_t at = 0; status == XRAY_OK && at < call->count; at += step) {
        uint64_t left = call->count - at;
        slices s = { .width = xr_collective_width(call->dtype),
                     .count = left < step ? left : step };
        s.at = (char *)call->out + at * s.width;
        s.each = (s.count + g->count - 1) / g->count;
        if (s.count % (UNIT * g->count))
            s.each = (s.each + UNIT - 1) / UNIT * UNIT;
        status = reduce_slices(g, &s, piece, call->dtype);
    }
    return status;
}

static xray_status reduce_scatter_ordered(xray_comm_group *g,
                                          const nccl_call *call)
{
    uint64_t piece = nccl_piece_elements(g->comm, g->count);
    uint64_t width = xr_collective_width(call->dtype);
    xray_status status = XRAY_OK;
    for (uint64_t at = 0; status == XRAY_OK && at < call->count; at += piece) {
        uint64_t n = call->count - at < piece ? call->count - at : piece;
        nccl_transfers t = nccl_transfers_begin(g);
        for (uint32_t r = 0; r < g->count; r++) {
            const char *from =
                (const char *)call->in + (call->count * r + at) * width;
            if (r == g->self)
                continue;
            nccl_transfers_send(&t, from, n * width, r);
            nccl_transfers_recv(&t, g->comm->scratch + 4 * piece * r, n * width,
                                r);
        }
        status = nccl_transfers_end(&t);
        parts p = { g,
                    (const char *)call->in +
                        (call->count * g->self + at) * width,
                    (char *)call->out + at * width,
                    n,
                    piece,
                    call->dtype };
        if (status == XRAY_OK)
            status = call->dtype == XRAY_F32 ? add_f32(&p) : add_bf16(&p);
    }
    return status;
}

xray_status nccl_sum_ordered(xray_comm_group *group, const nccl_call *call)
{
    return call->call == XRAY_COMM_ALL_REDUCE
               ? all_reduce_ordered(group, call)
               : reduce_scatter_ordered(group, call);
}

/* ---- sums that NCCL forms in fp32 ---------------------------------------- */

static xray_status reduce_scatter_widened(xray_comm_group *g,
                                          const nccl_call *call)
{
    const nccl_comm *comm = g->comm;
    uint64_t piece = nccl_piece_elements(comm, g->count);
    float *wide = (float *)(void *)comm->scratch;
    float *sum = wide + piece * g->count;
    xray_status status = XRAY_OK;
    for (uint64_t at = 0; status == XRAY_OK && at < call->count; at += piece) {
        uint64_t n = call->count - at < piece ? call->count - at : piece;
        for (uint32_t r = 0; status == XRAY_OK && r < g->count; r++)
            status = cast_elements(
                comm, (const uint16_t *)call->in + call->count * r + at,
                XRAY_BF16, wide + n * r, XRAY_F32, n);
        if (status == XRAY_OK && !nccl_enter(g))
            status = XRAY_E_PEER;
        if (status == XRAY_OK)
            status = nccl_finish(
                g, "ncclReduceScatter",
                comm->api.reduce_scatter(wide, sum, n, NCCL_FLOAT32, NCCL_SUM,
                                         g->nccl, comm->native));
        if (status == XRAY_OK)
            status = cast_elements(comm, sum, XRAY_F32,
                                   (uint16_t *)call->out + at, XRAY_BF16, n);
    }
    return status;
}

xray_status nccl_sum_widened(xray_comm_group *g, const nccl_call *call)
{
    const nccl_comm *comm = g->comm;
    uint64_t piece = nccl_piece_elements(comm, g->count) * (g->count + 2);
    xray_status status = XRAY_OK;
    if (call->call == XRAY_COMM_REDUCE_SCATTER)
        return reduce_scatter_widened(g, call);
    for (uint64_t at = 0; status == XRAY_OK && at < call->count; at += piece) {
        uint64_t n = call->count - at < piece ? call->count - at : piece;
        uint16_t *buf = (uint16_t *)call->out + at;
        status =
            cast_elements(comm, buf, XRAY_BF16, comm->scratch, XRAY_F32, n);
        if (status == XRAY_OK && !nccl_enter(g))
            status = XRAY_E_PEER;
        if (status == XRAY_OK)
            status =
                nccl_finish(g, "ncclAllReduce",
                            comm->api.all_reduce(comm->scratch, comm->scratch,
                                                 n, NCCL_FLOAT32, NCCL_SUM,
                                                 g->nccl, comm->native));
        if (status == XRAY_OK)
            status =
                cast_elements(comm, comm->scratch, XRAY_F32, buf, XRAY_BF16, n);
    }
    return status;
}
