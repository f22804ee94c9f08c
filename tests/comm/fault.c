/* SPDX-License-Identifier: Apache-2.0
 *
 * Draws and plays faults. Timeouts are of 20 s on a clock that the ranks
 * advance together, so that a slow machine changes nothing.
 */
#define _GNU_SOURCE
#include "tests/comm/fault_internal.h"

#include "tests/testing.h"

#include <pthread.h>
#include <signal.h>
#include <time.h>

#include <xray/numerics.h>

#include "core/base/process.h"

#define JUST_IN_TIME 12000000000u /* ns of the timeout that pass at once */
/* Far below the timeout, and far above what a loaded machine takes. */
#define SOON_MS 9000
#define AFTER 12u /* steps after it */

/* ---- the clock ---------------------------------------------------------- */

/* Of the ranks of a scenario, which all see it: in their meeting, or here. */
static _Atomic uint64_t jump_of_threads;
static _Atomic(_Atomic uint64_t *) clock_jump;

static uint64_t read_jump(void)
{
    _Atomic uint64_t *jump = atomic_load(&clock_jump);
    return jump ? atomic_load(jump) : 0;
}

int __real_clock_gettime(clockid_t id, struct timespec *out);
int __wrap_clock_gettime(clockid_t id, struct timespec *out);
int __wrap_clock_gettime(clockid_t id, struct timespec *out)
{
    int bad = __real_clock_gettime(id, out);
    if (id != CLOCK_MONOTONIC)
        return bad;
    uint64_t ns = (uint64_t)out->tv_nsec + read_jump();
    out->tv_sec += (time_t)(ns / 1000000000u);
    out->tv_nsec = (long)(ns % 1000000000u);
    return bad;
}

int __real_pthread_cond_timedwait(pthread_cond_t *cond, pthread_mutex_t *mutex,
                                  const struct timespec *until);
int __wrap_pthread_cond_timedwait(pthread_cond_t *cond, pthread_mutex_t *mutex,
                                  const struct timespec *until);
int __wrap_pthread_cond_timedwait(pthread_cond_t *cond, pthread_mutex_t *mutex,
                                  const struct timespec *until)
{
    /* Deadlines of the time of day lie decades later. */
    int is_of_day = until->tv_sec > 1000000000;
    uint64_t jump = is_of_day ? 0 : read_jump();
    uint64_t ns =
        (uint64_t)until->tv_sec * 1000000000u + (uint64_t)until->tv_nsec - jump;
    const struct timespec real = { (time_t)(ns / 1000000000u),
                                   (long)(ns % 1000000000u) };
    return __real_pthread_cond_timedwait(cond, mutex, &real);
}

static uint64_t real_ms(void)
{
    struct timespec t;
    (void)__real_clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000u + (uint64_t)t.tv_nsec / 1000000u;
}

/* ---- the other ranks ---------------------------------------------------- */

static uint32_t state_of(const player *pl, uint32_t rank)
{
    const volatile uint32_t *state = &pl->e->all->traces[rank].own.state;
    return __atomic_load_n(state, __ATOMIC_ACQUIRE) & 255u;
}

/* 1 if all who take part, but for one rank, are in a state. */
static int others_are(const player *pl, const fault *f, uint32_t state)
{
    for (uint32_t r = 0; r < pl->e->size; r++)
        if (r != f->rank && fault_has(&pl->p, f, r) && state_of(pl, r) != state)
            return 0;
    return 1;
}

static void await_others(const player *pl, const fault *f, uint32_t state)
{
    uint64_t start = real_ms();
    while (!others_are(pl, f, state)) {
        ranks_sleep_ms(1);
        CHECK(pl->e, real_ms() - start < RANKS_LIMIT_MS);
    }
    ranks_sleep_ms(30); /* a rank begins to wait after it has said so */
}

/* Lets the timeout pass for the others until they have given up. */
static void pass_timeout(const player *pl, const fault *f)
{
    await_others(pl, f, 1);
    for (uint32_t i = 0; i < 5 && !others_are(pl, f, 3); i++) {
        atomic_fetch_add(atomic_load(&clock_jump),
                         FAULT_TIMEOUT_MS * (uint64_t)1000000);
        for (uint32_t k = 0; k < 300 && !others_are(pl, f, 3); k++)
            ranks_sleep_ms(5);
    }
    CHECK(pl->e, others_are(pl, f, 3));
}

static void *pass_timeout_aside(void *arg)
{
    void **both = arg;
    const player *pl = both[0];
    const fault *f = both[1];
    uint64_t pid = atomic_load(&pl->e->all->notes[f->rank][FAULT_NOTE_PID]);
    while (xr_process_state((uint32_t)pid) != 'T')
        ranks_sleep_ms(1);
    pass_timeout(pl, f);
    return NULL;
}

/* ---- the call that fails ------------------------------------------------ */

static xray_status expected_status(const fault *f, uint32_t rank)
{
    if (f->kind == FAULT_CANCELED)
        return XRAY_E_CANCELED;
    return f->kind == FAULT_MEMORY && rank == f->rank ? XRAY_E_ARG
                                                      : XRAY_E_PEER;
}

/* A rank that comes when the call is broken begins nothing. */
static void check_state(const player *pl, const fault *f)
{
    uint32_t state = state_of(pl, pl->e->rank);
    int was_there = f->kind == FAULT_LATE || f->kind == FAULT_STOPPED;
    CHECK(pl->e, state == 3 || (!was_there && state == 0));
    CHECK(pl->e, pl->e->all->traces[pl->e->rank].own.calls <= pl->calls);
}

/* Makes the step that fails, and then finds the call as broken as before. */
static void make_failing_call(player *pl, const fault *f,
                              const program_step *mine)
{
    ranks_env *e = pl->e;
    uint32_t index = program_index(&pl->p, mine, e->rank);
    int repeats = f->kind == FAULT_KILLED_IN_CALL ||
                  (e->sends_copies && f->kind >= FAULT_KILLED);
    xray_status status = XRAY_OK;
    uint64_t start = real_ms();
    buffers b;
    for (int turn = 0; status == XRAY_OK; turn++) {
        CHECK(e, repeats || turn == 0);
        player_prepare(pl, mine, index, &b);
        e->text[0] = '\0';
        start = real_ms();
        e->stop_ms = f->kind == FAULT_CANCELED && e->rank == f->rank;
        status = player_call(pl, mine, index, &b);
        e->stop_ms = 0;
        if (status == XRAY_OK)
            player_check_result(pl, mine, index, &b);
        player_finish(pl, mine, index, &b);
    }
    CHECK(e, status == expected_status(f, e->rank));
    uint64_t limit = SOON_MS;
    if (f->kind == FAULT_LATE || f->kind == FAULT_STOPPED)
        limit += 6000;
    CHECK(e, real_ms() - start < limit);
    if (status == XRAY_E_ARG)
        CHECK(e, ranks_said(e, "is not in memory that this device can share"));
    else
        fault_check_report(pl, f, mine);
    check_state(pl, f);
}

static void try_broken_call(player *pl, const fault *f,
                            const program_step *mine)
{
    ranks_env *e = pl->e;
    uint32_t index = program_index(&pl->p, mine, e->rank);
    xray_status status =
        f->kind == FAULT_CANCELED ? XRAY_E_CANCELED : XRAY_E_PEER;
    char cause[80];
    buffers b;
    fault_print_cause(f, cause, sizeof(cause));
    player_prepare(pl, mine, index, &b);
    uint64_t start = real_ms();
    e->text[0] = '\0';
    CHECK(e, player_call(pl, mine, index, &b) == status);
    CHECK(e, real_ms() - start < SOON_MS);
    CHECK(e, ranks_said(e, cause));
    player_finish(pl, mine, index, &b);
    /* A comm need not count a call that it refused. */
    pl->calls = e->all->traces[e->rank].own.calls;
}

/* ---- illegal calls ------------------------------------------------------ */

static void make_illegal_call(player *pl, const fault *f)
{
    ranks_env *e = pl->e;
    const xray_comm_ops *c = e->comm;
    xray_comm_group *g = pl->groups[f->step.group];
    xray_comm_group *none = NULL;
    uint32_t n = pl->p.sizes[f->step.group];
    const program_step member = { .group = f->step.group };
    uint32_t self = program_index(&pl->p, &member, e->rank);
    const uint32_t twice[2] = { e->rank, e->rank };
    const uint32_t beyond[2] = { e->rank, e->size };
    unsigned char *a = ranks_alloc(e, 64);
    const xray_comm_exchange own = { .header = XRAY_HEADER(xray_comm_exchange),
                                     .in = a,
                                     .in_bytes = 4,
                                     .out = a + 8,
                                     .out_bytes = 4,
                                     .to = f->variant % 2 ? self : n,
                                     .from = f->variant % 2 ? n : self };
    memset(a, 0x77, 64);
    CHECK(e, c->all_reduce(g, NULL, NULL, 1, XRAY_F32) == XRAY_E_ARG);
    CHECK(e, c->all_reduce_max(g, NULL, a, 2, XRAY_F16) == XRAY_E_UNSUPPORTED);
    CHECK(e, c->reduce_scatter(g, NULL, a, NULL, 1, XRAY_F32) == XRAY_E_ARG);
    CHECK(e,
          c->reduce_scatter(g, NULL, a, a, 1, XRAY_F16) == XRAY_E_UNSUPPORTED);
    CHECK(e, c->all_gather(g, NULL, NULL, a, 1, XRAY_F32) == XRAY_E_ARG);
    CHECK(e, c->all_gather(g, NULL, a, a, 1, 4) == XRAY_E_UNSUPPORTED);
    CHECK(e, c->all_to_all(g, NULL, a, a + 32, UINT64_MAX / 2, XRAY_BF16) ==
                 XRAY_E_RANGE);
    CHECK(e, c->broadcast(g, NULL, a, 1, n) == XRAY_E_ARG);
    CHECK(e, c->broadcast(g, NULL, a, UINT64_MAX - 3, 0) == XRAY_E_RANGE);
    CHECK(e, c->send(g, NULL, a, 4, self) == XRAY_E_ARG);
    CHECK(e, c->send(g, NULL, NULL, 4, self ? 0 : 1) == XRAY_E_ARG);
    CHECK(e, c->recv(g, NULL, a, 4, n) == XRAY_E_ARG);
    CHECK(e, c->exchange(g, NULL, &own) == XRAY_E_ARG);
    CHECK(e, c->group(pl->self, twice, 2, &none) == XRAY_E_ARG);
    CHECK(e, c->group(pl->self, beyond, 2, &none) == XRAY_E_ARG);
    CHECK(e, !none);
    for (uint32_t i = 0; i < 64; i++)
        CHECK(e, a[i] == 0x77);
    CHECK(e, e->all->traces[e->rank].own.calls == pl->calls);
    e->dev->free(e->dev_self, a);
}

/* ---- the rank at fault -------------------------------------------------- */

static void *die_soon(void *arg)
{
    struct timespec t = { 0, (long)*(uint32_t *)arg % 20 * 1000000 };
    (void)nanosleep(&t, NULL);
    (void)raise(SIGKILL);
    return NULL;
}

/* Passes memory that is not the device's, which matters where other ranks read
 * it, as input or result. */
static void share_no_memory(player *pl, const fault *f)
{
    ranks_env *e = pl->e;
    uint32_t index = program_index(&pl->p, &f->step, e->rank);
    buffers b;
    player_prepare(pl, &f->step, index, &b);
    CHECK_OK(e, e->dev->sync(e->dev_self, pl->streams[f->step.stream]));
    buffers given = b;
    int reads = b.from && (!b.to || f->variant % 2);
    const area *own = (reads && b.in.at) || !b.out.at ? &b.in : &b.out;
    char *bad = malloc(own->bytes + 1);
    CHECK(e, bad);
    memcpy(bad, own->at, own->bytes);
    if (b.from >= own->at && b.from <= own->at + own->bytes)
        given.from = bad + (b.from - own->at);
    if (b.to >= own->at && b.to <= own->at + own->bytes)
        given.to = bad + (b.to - own->at);
    e->text[0] = '\0';
    xray_status status = player_call(pl, &f->step, index, &given);
    if (e->sends_copies) {
        CHECK_OK(e, status);
        memcpy(own->at, bad, own->bytes);
        player_check_result(pl, &f->step, index, &b);
    } else {
        CHECK(e, status == XRAY_E_ARG);
        CHECK(e, ranks_said(e, "is not in memory that this device can share"));
        CHECK(e, memcmp(own->at, bad, own->bytes) == 0);
    }
    player_finish(pl, &f->step, index, &b);
    free(bad);
}

/* Plays the part of the rank at fault; the meeting at the end is with all. */
static void be_at_fault(player *pl, const fault *f)
{
    ranks_env *e = pl->e;
    pthread_t id;
    switch (f->kind) {
    case FAULT_ILLEGAL:
        make_illegal_call(pl, f);
        player_step(pl, &f->step);
        return;
    case FAULT_IN_TIME:
        await_others(pl, f, 1);
        atomic_fetch_add(atomic_load(&clock_jump), JUST_IN_TIME);
        ranks_sleep_ms(60);
        CHECK(e, others_are(pl, f, 1));
        player_step(pl, &f->step);
        return;
    case FAULT_LATE:
        pass_timeout(pl, f);
        ranks_meet(e);
        try_broken_call(pl, f, &f->step);
        return;
    case FAULT_MEMORY:
        share_no_memory(pl, f);
        return;
    case FAULT_LEFT:
        e->comm->destroy(pl->self);
        pl->self = NULL;
        return;
    case FAULT_ABORTED:
        e->comm->abort(pl->self);
        break;
    case FAULT_KILLED:
        (void)raise(SIGKILL);
        break;
    case FAULT_EXITED:
        _exit(0);
    case FAULT_STOPPED:
        (void)raise(SIGSTOP);
        break;
    case FAULT_KILLED_IN_CALL:
        CHECK(e, pthread_create(&id, NULL, die_soon,
                                (void *)(uintptr_t)&f->variant) == 0);
        for (;;)
            player_step(pl, &f->step);
    default:
        break;
    }
    make_failing_call(pl, f, &f->other);
}

/* Plays the part of the others. */
static void be_told(player *pl, const fault *f)
{
    ranks_env *e = pl->e;
    pthread_t id;
    void *both[2] = { pl, (void *)(uintptr_t)f };
    uint32_t first = 0;
    while (first == f->rank || !fault_has(&pl->p, f, first))
        first++;
    if (fault_is_harmless(f, e)) {
        player_step(pl, &f->step);
        return;
    }
    if (f->kind == FAULT_STOPPED && e->rank == first)
        CHECK(e, pthread_create(&id, NULL, pass_timeout_aside, both) == 0);
    make_failing_call(pl, f, &f->step);
    if (f->kind == FAULT_STOPPED && e->rank == first)
        (void)pthread_join(id, NULL);
    if (f->kind == FAULT_LATE)
        ranks_meet(e);
}

/* ---- afterwards --------------------------------------------------------- */

/* All that are left meet. */
static void meet_survivors(const player *pl, const fault *f, uint64_t turn)
{
    ranks_env *e = pl->e;
    uint64_t start = real_ms();
    if (f->kind < FAULT_ALIVE) {
        ranks_meet(e);
        return;
    }
    atomic_store(&e->all->notes[e->rank][FAULT_NOTE_MET], turn);
    for (uint32_t r = 0; r < e->size; r++)
        while (r != f->rank &&
               atomic_load(&e->all->notes[r][FAULT_NOTE_MET]) < turn) {
            ranks_sleep_ms(1);
            CHECK(e, real_ms() - start < RANKS_LIMIT_MS);
        }
}

static int has_rank(const program *p, uint32_t group, uint32_t rank)
{
    const program_step s = { .group = group };
    return program_index(p, &s, rank) != NOBODY;
}

/* 1 if a step still works. */
static int is_left(const player *pl, const fault *f, const program_step *s)
{
    if (fault_is_harmless(f, pl->e))
        return 1;
    if ((f->kind == FAULT_ABORTED || f->kind >= FAULT_LEFT) &&
        has_rank(&pl->p, s->group, f->rank))
        return 0;
    if (s->group == f->step.group)
        return program_is_message(&f->step) && program_is_message(&f->other) &&
               !program_is_message(s);
    return s->group != f->other.group;
}

static void go_on(player *pl, const fault *f)
{
    program_step s = pl->p.steps[f->before];
    for (uint32_t i = 0; i < AFTER; i++) {
        s = pl->p.steps[f->before + i];
        if (i % 3 == 0)
            s.group = i % 2 ? f->twin : f->step.group;
        if (i % 3 == 0)
            s = program_draw_step(&pl->p, s.seed, s.group, 1);
        if (is_left(pl, f, &s))
            player_step(pl, &s);
    }
}

static void break_program(player *pl, const fault *f)
{
    ranks_env *e = pl->e;
    atomic_store(&e->all->notes[e->rank][FAULT_NOTE_PID], (uint64_t)getpid());
    (void)snprintf(e->all->offers[e->rank], sizeof(e->all->offers[0]), "%s",
                   pl->last);
    meet_survivors(pl, f, 0);
    if (f->kind >= FAULT_ALIVE)
        ranks_meet(e);
    if (e->rank == f->rank)
        be_at_fault(pl, f);
    else if (f->kind == FAULT_LATE && !fault_has(&pl->p, f, e->rank))
        ranks_meet(e);
    else if (fault_has(&pl->p, f, e->rank) && e->rank != f->missing)
        be_told(pl, f);
    meet_survivors(pl, f, 1);
    if (e->rank == f->missing)
        make_failing_call(pl, f, &f->step);
    meet_survivors(pl, f, 2);
}

void fault_play(ranks_env *e, uint64_t seed, fault_kind kind)
{
    static _Thread_local fault f;
    static _Thread_local player pl;
    memset(&pl, 0, sizeof(pl));
    atomic_store(&clock_jump,
                 e->shares_process ? &jump_of_threads : &e->all->jump);
    fault_draw(&f, &pl.p, seed, e->size, kind, e->compares_not);
    player_open(&pl, e, e->comm_config, FAULT_TIMEOUT_MS);
    for (uint32_t i = 0; i < f.before; i++)
        player_step(&pl, &pl.p.steps[i]);
    break_program(&pl, &f);
    int told = fault_has(&pl.p, &f, e->rank) && pl.self;
    if (told && !fault_is_harmless(&f, e))
        try_broken_call(&pl, &f, e->rank == f.rank ? &f.other : &f.step);
    meet_survivors(&pl, &f, 3);
    go_on(&pl, &f);
    meet_survivors(&pl, &f, 4);
    player_close(&pl);
}
