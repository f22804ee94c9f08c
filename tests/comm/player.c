/* SPDX-License-Identifier: Apache-2.0
 *
 * Plays a drawn program as one rank: makes its buffers and calls, and checks
 * what comes of them.
 */
#include "tests/comm/player.h"

#include "tests/testing.h"

#include <dirent.h>

#include <xray/numerics.h>

#define GUARD 40
#define GUARD_BYTE 0x5a

/* ---- buffers ------------------------------------------------------------ */

static area make_area(ranks_env *e, uint64_t bytes, uint64_t unit,
                      uint64_t salt)
{
    uint64_t offset = salt % 3 ? salt / 3 % 17 * unit : 0;
    area a = { .total = bytes + offset + GUARD, .bytes = bytes };
    a.block = ranks_alloc(e, a.total);
    memset(a.block, GUARD_BYTE, a.total);
    a.at = a.block + offset;
    return a;
}

static void check_guards(ranks_env *e, const area *a)
{
    for (const char *b = a->block; b < a->at; b++)
        CHECK(e, *b == GUARD_BYTE);
    for (const char *b = a->at + a->bytes; b < a->block + a->total; b++)
        CHECK(e, *b == GUARD_BYTE);
}

static int is_in_place(const program_step *s)
{
    return s->in_place && (s->call == XRAY_COMM_ALL_GATHER ||
                           s->call == XRAY_COMM_REDUCE_SCATTER);
}

/* A member's bytes reach its buffer in the order of the stream. */
static void fill_area(player *pl, const program_step *s, uint32_t index,
                      buffers *b, char *to)
{
    ranks_env *e = pl->e;
    uint64_t bytes = program_in_bytes(&pl->p, s, index);
    bytes = bytes ? bytes : program_out_bytes(&pl->p, s, index);
    b->filled = malloc(bytes);
    CHECK(e, b->filled);
    bytes = program_fill(&pl->p, s, index, b->filled);
    CHECK_OK(e, e->dev->copy(e->dev_self, pl->streams[s->stream], to, b->filled,
                             bytes, XRAY_COPY_TO_DEVICE));
}

/* Begins anywhere, as far as its elements allow. */
void player_prepare(player *pl, const program_step *s, uint32_t index,
                    buffers *b)
{
    ranks_env *e = pl->e;
    uint64_t in = program_in_bytes(&pl->p, s, index);
    uint64_t out = program_out_bytes(&pl->p, s, index);
    uint64_t part = s->count * program_width(s->dtype);
    uint64_t unit = program_is_message(s) || s->call == XRAY_COMM_BROADCAST
                        ? 1
                        : program_width(s->dtype);
    uint64_t salt = xray_mix64(s->seed + 5, e->rank) >> 8;
    int gathers = s->call == XRAY_COMM_ALL_GATHER;
    memset(b, 0, sizeof(*b));
    if (in && !(gathers && is_in_place(s)))
        b->in = make_area(e, in, unit, salt);
    if (out && (gathers || !is_in_place(s)))
        b->out = make_area(e, out, unit, salt >> 16);
    b->from = b->in.at;
    b->to = b->out.at;
    if (out && gathers && is_in_place(s))
        b->from = b->out.at + index * part;
    if (out && !gathers && is_in_place(s))
        b->to = b->in.at + index * part;
    if (b->from && !b->in.at)
        fill_area(pl, s, index, b, b->out.at + index * part);
    else if (b->from || b->to)
        fill_area(pl, s, index, b, b->from ? b->in.at : b->to);
}

void player_check_result(player *pl, const program_step *s, uint32_t index,
                         const buffers *b)
{
    uint64_t out = program_out_bytes(&pl->p, s, index);
    if (!out)
        return;
    char *want = malloc(out);
    CHECK(pl->e, want);
    program_expect(&pl->p, s, index, want);
    CHECK(pl->e, program_agrees(s, b->to, want, out));
    free(want);
}

void player_finish(player *pl, const program_step *s, uint32_t index,
                   buffers *b)
{
    ranks_env *e = pl->e;
    CHECK_OK(e, e->dev->sync(e->dev_self, pl->streams[s->stream]));
    free(b->filled);
    if (b->in.block) {
        char *had = malloc(b->in.bytes);
        uint64_t part = is_in_place(s) ? s->count * program_width(s->dtype) : 0;
        uint64_t after = index * part + part;
        CHECK(e, had);
        (void)program_fill(&pl->p, s, index, had);
        CHECK(e, memcmp(had, b->in.at, index * part) == 0);
        CHECK(e,
              memcmp(had + after, b->in.at + after, b->in.bytes - after) == 0);
        check_guards(e, &b->in);
        e->dev->free(e->dev_self, b->in.block);
        free(had);
    }
    if (b->out.block) {
        check_guards(e, &b->out);
        e->dev->free(e->dev_self, b->out.block);
    }
    memset(b, 0, sizeof(*b));
}

/* ---- calls -------------------------------------------------------------- */

static void note_call(player *pl, const program_step *s, uint32_t index,
                      uint32_t part)
{
    char call[160];
    (pl->e->compares_not ? program_record : program_describe)(
        &pl->p, s, index, part, call, sizeof(call));
    memcpy(pl->before, pl->last, sizeof(pl->before));
    (void)snprintf(pl->last, sizeof(pl->last), "%s in group %llu", call,
                   (unsigned long long)pl->numbers[s->group]);
    pl->calls++;
}

static xray_status exchange(player *pl, const program_step *s, uint32_t index,
                            const buffers *b)
{
    const xray_comm_ops *c = pl->e->comm;
    xray_comm_group *g = pl->groups[s->group];
    xray_stream *stream = pl->streams[s->stream];
    const xray_comm_exchange x = { .header = XRAY_HEADER(xray_comm_exchange),
                                   .in = b->from,
                                   .in_bytes =
                                       program_in_bytes(&pl->p, s, index),
                                   .out = b->to,
                                   .out_bytes =
                                       program_out_bytes(&pl->p, s, index),
                                   .to = program_to(&pl->p, s, index),
                                   .from = program_from(&pl->p, s, index) };
    xray_status status = XRAY_OK;
    if (s->call == XRAY_COMM_EXCHANGE && index != s->alone) {
        note_call(pl, s, index, 0);
        return c->exchange(g, stream, &x);
    }
    int sends = s->call == XRAY_COMM_EXCHANGE || index == s->root;
    int receives = s->call == XRAY_COMM_EXCHANGE || index != s->root;
    for (uint32_t turn = 0; turn < 2 && status == XRAY_OK; turn++) {
        if (sends && turn == s->last) {
            note_call(pl, s, index, 1);
            status = c->send(g, stream, x.in, x.in_bytes, x.to);
        } else if (receives && turn != s->last) {
            note_call(pl, s, index, 2);
            status = c->recv(g, stream, x.out, x.out_bytes, x.from);
        }
    }
    return status;
}

xray_status player_call(player *pl, const program_step *s, uint32_t index,
                        const buffers *b)
{
    const xray_comm_ops *c = pl->e->comm;
    xray_comm_group *g = pl->groups[s->group];
    xray_stream *stream = pl->streams[s->stream];
    if (program_is_message(s))
        return exchange(pl, s, index, b);
    note_call(pl, s, index, 0);
    switch (s->call) {
    case XRAY_COMM_ALL_REDUCE:
        return c->all_reduce(g, stream, b->to, s->count, s->dtype);
    case XRAY_COMM_ALL_REDUCE_MAX:
        return c->all_reduce_max(g, stream, b->to, s->count, s->dtype);
    case XRAY_COMM_REDUCE_SCATTER:
        return c->reduce_scatter(g, stream, b->from, b->to, s->count, s->dtype);
    case XRAY_COMM_ALL_GATHER:
        return c->all_gather(g, stream, b->from, b->to, s->count, s->dtype);
    case XRAY_COMM_ALL_TO_ALL:
        return c->all_to_all(g, stream, b->from, b->to, s->count, s->dtype);
    default:
        return c->broadcast(g, stream, b->to, s->count, s->root);
    }
}

/* A comm may write it a moment after the call has ended. */
static void await_record(const xray_comm_trace *t)
{
    for (int i = 0; i < 1000 && __atomic_load_n(&t->state, __ATOMIC_ACQUIRE);
         i++)
        ranks_sleep_ms(1);
}

/* The record of this rank after a call that went well. */
static void check_record(player *pl, const program_step *s, uint32_t index)
{
    ranks_env *e = pl->e;
    const xray_comm_trace *t = &e->all->traces[e->rank].own;
    uint64_t bytes = s->count * program_width(s->dtype);
    uint64_t in = program_in_bytes(&pl->p, s, index);
    uint64_t out = program_out_bytes(&pl->p, s, index);
    if (pl->p.sizes[s->group] == 1) {
        /* A comm need not record what needs no other rank. */
        if (t->calls != pl->calls)
            memcpy(pl->last, pl->before, sizeof(pl->last));
        pl->calls = t->calls;
        return;
    }
    /* A call that moves nothing need not wait for the one before it. */
    if (e->compares_not && !in && !out)
        return;
    await_record(t);
    CHECK(e, t->state == 0 && t->pid == (uint64_t)getpid());
    CHECK(e, t->calls == pl->calls);
    CHECK(e, t->group == pl->numbers[s->group]);
    if (index == s->alone)
        CHECK(e, t->call == XRAY_COMM_SEND || t->call == XRAY_COMM_RECV);
    else if (s->call == XRAY_COMM_SEND)
        CHECK(e,
              t->call == (index == s->root ? XRAY_COMM_SEND : XRAY_COMM_RECV) &&
                  t->bytes == s->count);
    else if (s->call == XRAY_COMM_EXCHANGE)
        CHECK(e, t->call == s->call && t->bytes == in + out);
    else
        CHECK(e, t->call == s->call &&
                     t->bytes ==
                         (s->call == XRAY_COMM_BROADCAST ? s->count : bytes));
    CHECK(e, e->all->traces[e->rank].rest[0] == 0);
}

/* Now and then a rank is late: by less, or by more, than the others spin. */
static void delay_rank(const player *pl, const program_step *s)
{
    uint64_t drawn = xray_mix64(s->seed + 6, pl->e->rank);
    if (drawn % 40 == 0)
        ranks_sleep_ms(15);
    else if (drawn % 6 == 0)
        ranks_sleep_ms(drawn >> 8 & 1);
}

void player_step(player *pl, const program_step *s)
{
    ranks_env *e = pl->e;
    uint32_t index = program_index(&pl->p, s, e->rank);
    buffers b;
    if (index == NOBODY)
        return;
    player_prepare(pl, s, index, &b);
    delay_rank(pl, s);
    CHECK_OK(e, player_call(pl, s, index, &b));
    CHECK_OK(e, e->dev->sync(e->dev_self, pl->streams[s->stream]));
    player_check_result(pl, s, index, &b);
    player_finish(pl, s, index, &b);
    check_record(pl, s, index);
}

/* ---- instances ---------------------------------------------------------- */

static int is_member(const player *pl, uint32_t group)
{
    const program_step s = { .group = group };
    return program_index(&pl->p, &s, pl->e->rank) != NOBODY;
}

/* All ranks give a group the same number, and it is that of no other one. */
static void check_numbers(player *pl)
{
    ranks_env *e = pl->e;
    for (uint32_t g = 0; g < pl->p.group_count; g++)
        atomic_store(&e->all->notes[e->rank][g], pl->numbers[g]);
    ranks_meet(e);
    for (uint32_t g = 0; g < pl->p.group_count; g++) {
        if (!is_member(pl, g) || pl->p.sizes[g] == 1)
            continue;
        for (uint32_t i = 0; i < pl->p.sizes[g]; i++)
            CHECK(e, atomic_load(&e->all->notes[pl->p.ranks[g][i]][g]) ==
                         pl->numbers[g]);
        for (uint32_t k = 0; k < g; k++)
            CHECK(e, !is_member(pl, k) || pl->p.sizes[k] == 1 ||
                         pl->numbers[k] != pl->numbers[g]);
    }
    ranks_meet(e);
}

/* The first call in each group tells its number. */
static void find_numbers(player *pl)
{
    ranks_env *e = pl->e;
    for (uint32_t g = 0; g < pl->p.group_count; g++) {
        const program_step s = { .group = g,
                                 .call = XRAY_COMM_ALL_REDUCE,
                                 .dtype = XRAY_F32,
                                 .alone = NOBODY,
                                 .count = 1,
                                 .seed = g };
        uint32_t index = program_index(&pl->p, &s, e->rank);
        buffers b;
        if (index == NOBODY)
            continue;
        player_prepare(pl, &s, index, &b);
        CHECK_OK(e, player_call(pl, &s, index, &b));
        CHECK_OK(e, e->dev->sync(e->dev_self, NULL));
        player_check_result(pl, &s, index, &b);
        player_finish(pl, &s, index, &b);
        await_record(&e->all->traces[e->rank].own);
        pl->numbers[g] = e->all->traces[e->rank].own.group;
        note_call(pl, &s, index, 0); /* once more, with its number */
        pl->calls = e->all->traces[e->rank].own.calls; /* and of the forming */
        check_record(pl, &s, index);
    }
}

void player_open(player *pl, ranks_env *e, const void *config,
                 uint64_t timeout_ms)
{
    xray_comm_setup setup = ranks_setup(e, timeout_ms);
    pl->e = e;
    memset(&e->all->traces[e->rank], 0, sizeof(e->all->traces[e->rank]));
    CHECK_OK(e, e->comm->create(&setup, config, &pl->self));
    for (uint32_t g = 0; g < pl->p.group_count; g++)
        if (is_member(pl, g))
            CHECK_OK(e, e->comm->group(pl->self, pl->p.ranks[g], pl->p.sizes[g],
                                       &pl->groups[g]));
    for (uint32_t i = 1; i < PROGRAM_STREAMS; i++)
        if (XRAY_HAS(xray_device_ops, e->dev, stream_create))
            CHECK_OK(e, e->dev->stream_create(e->dev_self, &pl->streams[i]));
    find_numbers(pl);
    check_numbers(pl);
}

void player_close(player *pl)
{
    ranks_env *e = pl->e;
    e->comm->destroy(pl->self);
    for (uint32_t i = 1; i < PROGRAM_STREAMS; i++)
        if (pl->streams[i])
            e->dev->stream_destroy(e->dev_self, pl->streams[i]);
    *pl = (player){ .e = NULL };
}

/* ---- leaks -------------------------------------------------------------- */

static uint64_t count_entries(const char *path)
{
    uint64_t n = 0;
    DIR *dir = opendir(path);
    while (dir && readdir(dir))
        n++;
    if (dir)
        (void)closedir(dir);
    return n;
}

holdings player_holdings(void)
{
    char line[512];
    holdings h = { .descriptors = count_entries("/proc/self/fd"),
                   .threads = count_entries("/proc/self/task") };
    FILE *f = fopen("/proc/self/maps", "re");
    while (f && fgets(line, sizeof(line), f))
        h.memory_files += strstr(line, "/memfd:") != NULL;
    if (f)
        (void)fclose(f);
    return h;
}
