/* SPDX-License-Identifier: Apache-2.0
 *
 * The work of a call, cut in pieces that the ranks take from a counter a slice.
 *
 * Bytes moved, N ranks, buffers of B bytes. A sum must read each of the N
 * buffers once and an all-reduce must write each once: 2 N B over all ranks,
 * and that is what is done here, in one pass: who takes a piece reads it from
 * all buffers and writes the sum into all of them while the lines are in its
 * cache. (Reducing slices first and gathering them then, as over wires, moves 2
 * N B - 2 B more, and waits once more.) Reduce-scatter reads N B' with B' = N
 * count and writes B'; its results go past the caches, for a line that is not
 * read before it is written would be read all the same. All-gather writes N B',
 * and reads B' as each part is read once and written to all: the writer pushes.
 * Each rank starts with its own slice, so that from call to call a processor
 * meets the lines it met before, then helps the others: ranks that the system
 * does not run at the moment hold up no one.
 */
#include "plugins/comm-shm/shm.h"

#define PIECE 0x20000u /* bytes: some 10 us of work; one atomic each */
#define SMALL 0x8000u  /* bytes that are not worth sharing */
#define UNIT 64u       /* slices begin at multiples of it */
/* Results beyond what the processors keep go past the caches. */
#define STREAM 0x200000u

typedef struct cut {
    uint64_t total;
    uint64_t slice; /* units: elements of sums, else bytes */
    uint64_t piece;
    uint32_t slices;
    uint32_t stream;
} cut;

static cut cut_of(const shm_channel *channel, const shm_call *call)
{
    int sums = call->call == XRAY_COMM_ALL_REDUCE ||
               call->call == XRAY_COMM_REDUCE_SCATTER;
    int parts = call->call == XRAY_COMM_ALL_GATHER ||
                call->call == XRAY_COMM_REDUCE_SCATTER;
    uint64_t each = sums ? call->count : call->bytes;
    uint64_t width = each ? call->bytes / each : 1;
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

static uint64_t pieces(const cut *c)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < c->slices; i++)
        n += (slice_units(c, i) + c->piece - 1) / c->piece;
    return n;
}

static void sum_piece(shm_channel *channel, const shm_call *call, const cut *c,
                      uint32_t slice, uint64_t first, uint64_t n)
{
    shm_sum s = { .dtype = call->dtype, .src_count = channel->count };
    if (call->call == XRAY_COMM_ALL_REDUCE) {
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
    shm_sum_run(&s, first, n);
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

int shm_work(shm_channel *channel, const shm_call *call, shm_step *step)
{
    cut c = cut_of(channel, call);
    uint64_t all = pieces(&c);
    uint64_t done = 0;
    int sums = call->call == XRAY_COMM_ALL_REDUCE ||
               call->call == XRAY_COMM_REDUCE_SCATTER;
    const _Atomic uint32_t *broken =
        shm_channel_broken(&channel->comm->control, channel->number);
    for (uint32_t i = 0; i < c.slices; i++) {
        uint32_t slice = (channel->self + i) % c.slices;
        uint64_t units = slice_units(&c, slice);
        _Atomic uint64_t *next = &shm_member_of(step, slice)->next;
        while (!atomic_load(broken)) {
            uint64_t first = atomic_fetch_add(next, 1) * c.piece;
            if (first >= units)
                break;
            uint64_t n = units - first < c.piece ? units - first : c.piece;
            (sums ? sum_piece : copy_piece)(channel, call, &c, slice, first, n);
            done++;
        }
    }
    if (done) {
        shm_settle();
        if (atomic_fetch_add(&step->finished, done) + done == all) {
            atomic_store(&step->closed, (uint32_t)(channel->calls + 1));
            shm_wake(step, &step->closed);
        }
    }
    return all > 0;
}
