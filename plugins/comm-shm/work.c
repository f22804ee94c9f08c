/* SPDX-License-Identifier: Apache-2.0
 *
 * Does the work of a call, cut into slices of pieces; the ranks take the pieces
 * of each slice from a counter.
 *
 * Let N ranks have buffers of B bytes. A sum must read each of the N buffers
 * once, and an all-reduce must also write each once: 2 N B bytes over all
 * ranks. That is what is moved here, in one pass: a rank reads its piece from
 * all buffers and writes the sum into all of them while the lines are in its
 * cache. (Reducing slices first and gathering them afterwards, as over wires,
 * moves 2 N B - 2 B more and waits once more.) A reduce-scatter reads N B' with
 * B' = N count and writes B'; its results bypass the caches, since a line that
 * is written but not read would be read first otherwise. An all-gather writes N
 * B' and reads B', since each part is read once and written to all ranks by the
 * rank that takes it. Each rank starts with its own slice, so that from call to
 * call a processor finds the lines that it cached before, and then helps the
 * others: a rank that the system does not run at the moment delays no other.
 */
#include "core/base/collective.h"
#include "plugins/comm-shm/shm.h"

#define PIECE 0x20000u /* bytes: some 10 us of work per atomic operation */
#define SMALL 0x8000u  /* bytes below which a call is not divided */
#define UNIT 64u       /* slices begin at multiples of this many elements */
/* Results larger than the processors' caches bypass them. */
#define STREAM 0x200000u

typedef struct cut {
    uint64_t total;
    uint64_t slice; /* in elements for sums, otherwise in bytes */
    uint64_t piece;
    uint32_t slices;
    uint32_t stream;
} cut;

static cut cut_call(const shm_channel *channel, const shm_call *call)
{
    int sums = xr_collective_reduces(call->call);
    int parts = call->call == XRAY_COMM_ALL_GATHER ||
                call->call == XRAY_COMM_REDUCE_SCATTER ||
                call->call == XRAY_COMM_ALL_TO_ALL;
    uint64_t each = sums ? call->count : call->bytes;
    uint64_t width = each ? call->bytes / each : 1;
    if (call->call == XRAY_COMM_ALL_TO_ALL)
        each *= channel->count; /* a slice is all that one rank receives */
    cut c = { .slices = channel->count,
              .stream = call->bytes * channel->count >= STREAM };
    if (parts) {
        c.total = each * channel->count;
        c.slice = each;
    } else {
        if (call->bytes <= SMALL)
            c.slices = 1;
        c.total = each;
        c.slice = (each + c.slices - 1) / c.slices;
        c.slice = (c.slice + UNIT - 1) / UNIT * UNIT;
    }
    c.piece = PIECE / width;
    return c;
}

static uint64_t slice_units(const cut *c, uint32_t slice)
{
    uint64_t from = slice * c->slice;
    if (from >= c->total)
        return 0;
    return c->total - from < c->slice ? c->total - from : c->slice;
}

static uint64_t count_pieces(const cut *c)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < c->slices; i++)
        n += (slice_units(c, i) + c->piece - 1) / c->piece;
    return n;
}

static void sum_piece(shm_channel *channel, const shm_call *call, const cut *c,
                      uint32_t slice, uint64_t first, uint64_t n)
{
    xr_sum s = { .dtype = call->dtype,
                 .src_count = channel->count,
                 .max = call->call == XRAY_COMM_ALL_REDUCE_MAX };
    if (xr_collective_is_in_place(call->call)) {
        s.src = (const void *const *)channel->out;
        s.dst = channel->out;
        s.dst_count = channel->count;
        s.src_at = s.dst_at = slice * c->slice;
    } else {
        s.src = channel->in;
        s.dst = &channel->out[slice];
        s.dst_count = 1;
        s.src_at = slice * c->slice;
        s.stream = c->stream;
    }
    xr_sum_run(&s, first, n);
}

static void copy_piece(shm_channel *channel, const shm_call *call, const cut *c,
                       uint32_t slice, uint64_t first, uint64_t n)
{
    uint64_t at = slice * c->slice + first;
    uint32_t from = call->root;
    uint32_t except = UINT32_MAX;
    const char *src;
    if (call->call == XRAY_COMM_ALL_GATHER) {
        src = (const char *)channel->in[slice] + first;
        if (channel->in_place[slice])
            except = slice;
    } else if (call->call == XRAY_COMM_BROADCAST) {
        src = (const char *)channel->out[from] + at;
        except = from;
    } else {
        from = channel->in[0] ? 0 : 1;
        src = (const char *)channel->in[from] + at;
    }
    shm_copy copy = { channel->out, channel->count, except, at, src, n,
                      c->stream };
    shm_copy_run(&copy);
}

/* Copies bytes first .. first + n - 1 of what one rank receives: part r of it
 * is from rank r. */
static void deal_piece(shm_channel *channel, const shm_call *call, const cut *c,
                       uint32_t slice, uint64_t first, uint64_t n)
{
    while (n) {
        uint64_t from = first / call->bytes;
        uint64_t at = first % call->bytes;
        uint64_t most = call->bytes - at < n ? call->bytes - at : n;
        shm_copy copy = { &channel->out[slice],
                          1,
                          UINT32_MAX,
                          first,
                          (const char *)channel->in[from] +
                              slice * call->bytes + at,
                          most,
                          c->stream };
        shm_copy_run(&copy);
        first += most;
        n -= most;
    }
}

static void do_piece(shm_channel *channel, const shm_call *call, const cut *c,
                     uint32_t slice, uint64_t first, uint64_t n)
{
    switch (call->call) {
    case XRAY_COMM_ALL_REDUCE:
    case XRAY_COMM_ALL_REDUCE_MAX:
    case XRAY_COMM_REDUCE_SCATTER:
        sum_piece(channel, call, c, slice, first, n);
        break;
    case XRAY_COMM_ALL_TO_ALL:
        deal_piece(channel, call, c, slice, first, n);
        break;
    default:
        copy_piece(channel, call, c, slice, first, n);
        break;
    }
}

int shm_do_pieces(shm_channel *channel, const shm_call *call, shm_round *round)
{
    cut c = cut_call(channel, call);
    uint64_t all = count_pieces(&c);
    uint64_t done = 0;
    const _Atomic uint32_t *broken =
        shm_channel_broken(&channel->comm->control, channel->number);
    for (uint32_t i = 0; i < c.slices; i++) {
        uint32_t slice = (channel->self + i) % c.slices;
        uint64_t units = slice_units(&c, slice);
        _Atomic uint64_t *next = &shm_member_of(round, slice)->next;
        while (!atomic_load(broken)) {
            uint64_t first = atomic_fetch_add(next, 1) * c.piece;
            if (first >= units)
                break;
            uint64_t n = units - first < c.piece ? units - first : c.piece;
            do_piece(channel, call, &c, slice, first, n);
            done++;
        }
    }
    if (done) {
        shm_flush_stores();
        if (atomic_fetch_add(&round->finished, done) + done == all) {
            atomic_store(&round->closed, (uint32_t)(channel->calls + 1));
            shm_wake_ranks(round, &round->closed);
        }
    }
    return all > 0;
}
