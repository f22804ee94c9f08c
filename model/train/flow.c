/* SPDX-License-Identifier: Apache-2.0
 *
 * Works out the turns of all stages of a pipeline, and from them the order of
 * the messages of one.
 */
#include "model/train/flow.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/str.h"

#define NONE UINT32_MAX
#define LEAST_CAP 1024u /* so that calls seldom need more than earlier ones */

/* The state of all stages. */
typedef struct flow_maker {
    const xm_schedule *own;
    xm_flow *flow;
    uint32_t now;      /* counted from 1 */
    uint32_t *at;      /* [stages] the turn that is next */
    uint32_t *ran;     /* [stages] the turn of the time before, or NONE */
    uint32_t *runs;    /* [stages] the turn of this time, or NONE */
    uint32_t *ended;   /* [2, chunks, stages, batches] when; 0: not yet */
    uint32_t *flights; /* [chunks, batches] of this stage */
    uint32_t *unused;  /* [in_flight] flights */
    uint32_t unused_count;
    int failed;
} flow_maker;

static xm_turn turn_of(const flow_maker *m, uint32_t stage, uint32_t at)
{
    xm_schedule s = *m->own;
    s.stage = stage;
    return xm_schedule_turn(&s, at);
}

static uint32_t *end_of(const flow_maker *m, uint32_t stage,
                        const xm_turn *turn)
{
    const xm_schedule *s = m->own;
    uint32_t part = (turn->backward * s->chunks + turn->chunk) * s->stages;
    return &m->ended[(part + stage) * (size_t)s->batches + turn->batch];
}

/* Finds the turn whose result a turn needs; 0 if it needs none but its own
 * forward pass. */
static int find_source(const flow_maker *m, uint32_t stage, const xm_turn *turn,
                       uint32_t *from, xm_turn *out)
{
    const xm_schedule *s = m->own;
    *out = *turn;
    if (turn->backward) {
        *from = (stage + 1) % s->stages;
        out->chunk += stage + 1 == s->stages;
        return out->chunk < s->chunks;
    }
    *from = (stage ? stage : s->stages) - 1;
    if (stage == 0 && turn->chunk == 0)
        return 0;
    out->chunk -= stage == 0;
    return 1;
}

static int is_ready(const flow_maker *m, uint32_t stage)
{
    uint32_t from = 0;
    xm_turn source;
    if (m->at[stage] == xm_schedule_turns(m->own))
        return 0;
    xm_turn turn = turn_of(m, stage, m->at[stage]);
    if (!find_source(m, stage, &turn, &from, &source))
        source = (xm_turn){ turn.batch, turn.chunk, 0 };
    if (!turn.backward && stage == 0 && turn.chunk == 0)
        return 1;
    if (turn.backward && source.backward == 0)
        from = stage;
    uint32_t end = *end_of(m, from, &source);
    return end && end < m->now;
}

/* ---- this stage's steps -------------------------------------------------- */

static uint32_t *flight_of(const flow_maker *m, const xm_turn *turn)
{
    return &m->flights[turn->chunk * (size_t)m->own->batches + turn->batch];
}

static void add_step(flow_maker *m, uint32_t what, const xm_turn *turn)
{
    xm_flow *flow = m->flow;
    if (flow->count == flow->cap) {
        uint32_t cap = flow->cap ? 2 * flow->cap : LEAST_CAP;
        xm_flow_step *more = realloc(flow->steps, cap * sizeof(*more));
        if (!more) {
            m->failed = 1;
            return;
        }
        flow->steps = more;
        flow->cap = cap;
    }
    flow->steps[flow->count++] =
        (xm_flow_step){ what, turn->batch, turn->chunk, *flight_of(m, turn) };
}

static void take_flight(flow_maker *m, const xm_turn *turn)
{
    uint32_t *flight = flight_of(m, turn);
    if (*flight == NONE)
        *flight = m->unused[--m->unused_count];
}

static void give_flight(flow_maker *m, const xm_turn *turn)
{
    m->unused[m->unused_count++] = *flight_of(m, turn);
}

/* Adds what this stage does of the message that `stage` receives for a turn. */
static void add_message(flow_maker *m, uint32_t stage, const xm_turn *turn)
{
    const uint32_t own = m->own->stage;
    uint32_t from = 0;
    xm_turn source;
    if (!find_source(m, stage, turn, &from, &source) ||
        source.backward != turn->backward)
        return;
    if (stage == own) {
        if (!turn->backward)
            take_flight(m, turn);
        add_step(m, turn->backward ? XM_FLOW_RECEIVE_GRAD : XM_FLOW_RECEIVE,
                 turn);
    }
    if (from != own)
        return;
    add_step(m, turn->backward ? XM_FLOW_SEND_GRAD : XM_FLOW_SEND, &source);
    if (turn->backward || m->own->forward)
        give_flight(m, &source);
}

/* Gradients go to the stages that wait for those of the time before. */
static void add_gradients(flow_maker *m)
{
    const xm_schedule *s = m->own;
    for (uint32_t from = 0; from < s->stages; from++) {
        if (m->ran[from] == NONE)
            continue;
        xm_turn turn = turn_of(m, from, m->ran[from]);
        if (!turn.backward || (from == 0 && turn.chunk == 0))
            continue;
        turn.chunk -= from == 0;
        add_message(m, (from ? from : s->stages) - 1, &turn);
    }
}

static void add_hidden(flow_maker *m)
{
    for (uint32_t stage = m->own->stages; stage-- > 0;) {
        if (m->runs[stage] == NONE)
            continue;
        xm_turn turn = turn_of(m, stage, m->runs[stage]);
        if (!turn.backward)
            add_message(m, stage, &turn);
    }
}

static void add_own_turn(flow_maker *m)
{
    const xm_schedule *s = m->own;
    if (m->runs[s->stage] == NONE)
        return;
    xm_turn turn = turn_of(m, s->stage, m->runs[s->stage]);
    int ends = s->stage + 1 == s->stages && turn.chunk + 1 == s->chunks;
    int begins = s->stage == 0 && turn.chunk == 0;
    if (!turn.backward)
        take_flight(m, &turn);
    add_step(m, turn.backward ? XM_FLOW_BACKWARD : XM_FLOW_FORWARD, &turn);
    if (turn.backward ? begins : s->forward && ends)
        give_flight(m, &turn);
}

/* ---- time ---------------------------------------------------------------- */

/* Runs the turns of one time; 0 if there were none. */
static int run_turns(flow_maker *m)
{
    const xm_schedule *s = m->own;
    int any = 0;
    m->now++;
    for (uint32_t stage = 0; stage < s->stages; stage++) {
        m->runs[stage] = is_ready(m, stage) ? m->at[stage]++ : NONE;
        any |= m->runs[stage] != NONE;
    }
    add_gradients(m);
    add_hidden(m);
    add_own_turn(m);
    for (uint32_t stage = 0; stage < s->stages; stage++) {
        m->ran[stage] = m->runs[stage];
        if (m->runs[stage] == NONE)
            continue;
        xm_turn turn = turn_of(m, stage, m->runs[stage]);
        *end_of(m, stage, &turn) = m->now;
    }
    return any;
}

static void open_maker(flow_maker *m, uint32_t *memory, size_t ended)
{
    const xm_schedule *s = m->own;
    size_t flights = (size_t)s->chunks * s->batches;
    m->at = memory;
    m->ran = m->at + s->stages;
    m->runs = m->ran + s->stages;
    m->ended = m->runs + s->stages;
    m->flights = m->ended + ended;
    m->unused = m->flights + flights;
    for (uint32_t stage = 0; stage < s->stages; stage++)
        m->ran[stage] = NONE;
    for (size_t i = 0; i < flights; i++)
        m->flights[i] = NONE;
    m->unused_count = xm_schedule_in_flight(s);
    for (uint32_t i = 0; i < m->unused_count; i++)
        m->unused[i] = m->unused_count - 1 - i;
}

int xm_flow_reserve(uint32_t **memory, size_t *cap, size_t count)
{
    size_t grown = 2 * count > LEAST_CAP ? 2 * count : LEAST_CAP;
    if (count <= *cap)
        return 0;
    uint32_t *more = realloc(*memory, grown * sizeof(*more));
    if (!more)
        return -1;
    *memory = more;
    *cap = grown;
    return 0;
}

xray_status xm_flow_make(const xm_schedule *schedule, xr_err *err,
                         xm_flow *flow)
{
    flow_maker m = { .own = schedule, .flow = flow };
    size_t turns = (size_t)schedule->chunks * schedule->batches;
    size_t ended = 2 * turns * schedule->stages;
    size_t words = 3 * (size_t)schedule->stages + ended + turns +
                   xm_schedule_in_flight(schedule);
    flow->count = 0;
    if (xm_flow_reserve(&flow->memory, &flow->memory_cap, words))
        return xr_fail(err, XRAY_E_NOMEM, "no memory for a schedule");
    memset(flow->memory, 0, words * sizeof(*flow->memory));
    open_maker(&m, flow->memory, ended);
    while (run_turns(&m))
        ;
    return m.failed ? xr_fail(err, XRAY_E_NOMEM, "no memory for a schedule")
                    : XRAY_OK;
}

void xm_flow_free(xm_flow *flow)
{
    free(flow->steps);
    free(flow->memory);
    *flow = (xm_flow){ 0 };
}
