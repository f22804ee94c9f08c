/* SPDX-License-Identifier: Apache-2.0
 *
 * Implements the model that is a hash, its cache, and the oracle.
 */
#include "tests/serve/sched_rig.h"

#include <xray/numerics.h>

#include "model/serve/sched_internal.h"

rig *rig_new(const xm_sched_limits *limits, uint32_t draw_cap)
{
    rig *r = calloc(1, sizeof(*r));
    xr_err err = { "" };
    assert_non_null(r);
    r->limits = *limits;
    r->draw_cap = draw_cap;
    assert_true(draw_cap <= MOST_DRAWS);
    r->version = 7;
    uint32_t row = limits->request.row_bound;
    xm_paging_limits *p = &r->limits.paging;
    size_t positions = (size_t)limits->slots * row;
    if (p->blocks.blocks) {
        p->stride = row / p->blocks.block_tokens + 1;
        p->table = calloc((size_t)limits->slots * p->stride, sizeof(int32_t));
        positions = (size_t)p->blocks.blocks * p->blocks.block_tokens;
        assert_non_null(p->table);
    }
    r->memory = calloc(positions, sizeof(*r->memory));
    r->ids = calloc(4 * (size_t)limits->step_tokens, sizeof(*r->ids));
    assert_true(r->memory && r->ids);
    r->seq = r->ids + limits->step_tokens;
    r->positions = r->seq + limits->step_tokens;
    r->last = r->positions + limits->step_tokens;
    if (xm_sched_create(&r->limits, &err, &r->sched) != XRAY_OK)
        fail_msg("%s", err.text);
    return r;
}

void rig_free(rig *r)
{
    xm_sched_destroy(r->sched);
    free(r->limits.paging.table);
    free(r->memory);
    free(r->ids);
    free(r);
}

/* ---- the model ----------------------------------------------------------- */

static uint64_t *kept_at(const rig *r, uint32_t slot, uint32_t position)
{
    const xm_paging_limits *p = &r->limits.paging;
    uint32_t size = p->blocks.block_tokens;
    if (!p->table)
        return &r->memory[(size_t)slot * r->limits.request.row_bound +
                          position];
    int32_t block = p->table[slot * p->stride + position / size];
    assert_true(block >= 0 && (uint32_t)block < p->blocks.blocks);
    return &r->memory[(size_t)block * size + position % size];
}

/* Returns the value that a position keeps; `before` is that of the one before
 * it. */
static uint64_t mix_token(const rig *r, uint64_t before, uint64_t other,
                          int32_t id)
{
    uint64_t h = xray_mix64(before, (uint64_t)(uint32_t)id);
    return xray_mix64(xray_mix64(h, other), r->version);
}

/* Which position is read beside the one before. */
static uint32_t other_of(uint64_t before, uint32_t position)
{
    return (uint32_t)(before % position);
}

static void answer_draw(const rig *r, uint64_t kept, const xray_draw *draw,
                        int32_t *token, float *raw, float *logp)
{
    uint64_t h = xray_mix64(xray_mix64(kept, draw->key), draw->sample);
    h = xray_mix64(h, draw->position);
    *token = (int32_t)(r->period ? draw->position % r->period
                                 : h % (r->letters ? r->letters : VOCAB));
    *raw = -(float)(h >> 40);
    *logp = *raw * draw->temperature;
}

static float answer_score(uint64_t kept, int32_t id)
{
    return -(float)(xray_mix64(kept, (uint64_t)(uint32_t)id) >> 40);
}

static void copy_kept(rig *r, const xm_slot_copy *c)
{
    const xm_paging_limits *p = &r->limits.paging;
    size_t each =
        p->table ? p->blocks.block_tokens : r->limits.request.row_bound;
    size_t count = p->table ? each : c->positions;
    uint64_t *to = r->memory + c->to * each;
    assert_int_not_equal(c->from, c->to);
    memcpy(to, r->memory + c->from * each, count * sizeof(*to));
    /* Older values must not be read. */
    for (size_t i = count; i < each; i++)
        to[i] = 0;
    r->copies++;
}

static void compute_token(rig *r, uint32_t i, uint32_t position_bound)
{
    uint32_t slot = (uint32_t)r->seq[i];
    uint32_t position = (uint32_t)r->positions[i];
    uint64_t before = 0;
    uint64_t other = 0;
    assert_true(position < position_bound);
    if (position) {
        before = *kept_at(r, slot, position - 1);
        other = *kept_at(r, slot, other_of(before, position));
    }
    *kept_at(r, slot, position) = mix_token(r, before, other, r->ids[i]);
    r->computed++;
}

/* ---- steps --------------------------------------------------------------- */

static void add_trace(rig *r, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static void add_trace(rig *r, const char *format, ...)
{
    size_t at = strlen(r->trace);
    va_list args;
    va_start(args, format);
    (void)vsnprintf(r->trace + at, sizeof(r->trace) - at, format, args);
    va_end(args);
}

static void trace_run(rig *r, uint32_t first, uint32_t last)
{
    const xm_slot *s = &r->sched->slots[r->seq[first]];
    add_trace(r, "%s%c", *r->trace ? " " : "",
              (char)('a' + (s->request->id - 1) % 26));
    if (s->sample)
        add_trace(r, "%u", s->sample->number);
    add_trace(r, ":%d", r->positions[first]);
    if (last > first)
        add_trace(r, "-%d", r->positions[last]);
    if (!r->limits.paging.table)
        return;
    const xm_block_seq *blocks = &r->sched->paging.seqs[r->seq[first]];
    add_trace(r, " ");
    for (uint32_t i = 0; i < blocks->count; i++)
        add_trace(r, "%c", (char)('A' + blocks->blocks[i] % 26));
}

static void trace_step(rig *r, const xm_sched_step *step)
{
    r->trace[0] = 0;
    for (uint32_t i = 0; i < step->copy_count; i++)
        add_trace(r, "%s%c>%c", i ? " " : "",
                  (char)('A' + step->copies[i].from % 26),
                  (char)('A' + step->copies[i].to % 26));
    for (uint32_t i = 0, next; i < step->tokens; i = next) {
        next = i + 1;
        while (next < step->tokens && r->seq[next] == r->seq[i])
            next++;
        trace_run(r, i, next - 1);
    }
}

static uint64_t kept_by_entry(const rig *r, const xm_sched_step *step,
                              int32_t entry)
{
    int32_t at = r->last[entry];
    assert_true((uint32_t)entry < step->last_count);
    assert_true(at >= 0 && (uint32_t)at < step->tokens);
    return *kept_at(r, (uint32_t)r->seq[at], (uint32_t)r->positions[at]);
}

static void answer_scores(rig *r, const xm_sched_step *step)
{
    int32_t index[XM_LOGIT_DRAWS], ids[XM_LOGIT_DRAWS];
    float logp[XM_LOGIT_DRAWS];
    int run = 0;
    uint32_t n;
    while ((n = xm_sched_scores(r->sched, index, ids, &run))) {
        for (uint32_t i = 0; i < n; i++)
            logp[i] = answer_score(kept_by_entry(r, step, index[i]), ids[i]);
        xm_sched_take_scores(r->sched, logp);
    }
}

/* Makes the next step from what this one draws, before the scheduler knows
 * that: token i of both is of the same row. */
static void make_ahead(rig *r, const xm_sched_step *step, const answers *from)
{
    answers *a = &r->ahead;
    a->count = 0;
    if (!r->hurries || from->count != step->rows ||
        !xm_sched_follow(r->sched, step, &r->next))
        return;
    for (uint32_t i = 0; i < from->count; i++) {
        r->ids[i] = from->token[i];
        r->positions[i]++;
        compute_token(r, i, r->next.position_bound);
        a->draws[i] = from->draws[i];
        a->draws[i].position++;
        answer_draw(r,
                    *kept_at(r, (uint32_t)r->seq[i], (uint32_t)r->positions[i]),
                    &a->draws[i], &a->token[i], &a->raw[i], &a->logp[i]);
    }
    a->count = from->count;
}

static void answer_draws(rig *r, const xm_sched_step *step)
{
    answers a;
    int32_t index[MOST_DRAWS];
    int run = 0;
    while ((a.count =
                xm_sched_draws(r->sched, r->draw_cap, a.draws, index, &run))) {
        for (uint32_t i = 0; i < a.count; i++) {
            if (run)
                assert_int_equal(index[i], index[0] + (int32_t)i);
            answer_draw(r, kept_by_entry(r, step, index[i]), &a.draws[i],
                        &a.token[i], &a.raw[i], &a.logp[i]);
        }
        make_ahead(r, step, &a);
        xm_sched_results(r->sched, a.token, a.raw, a.logp);
    }
}

/* Returns 1 if the step that was made ahead is the next one. */
static int take_ahead(rig *r)
{
    const answers a = r->ahead;
    xm_sched_step step = r->next;
    r->ahead.count = 0;
    if (!a.count || !xm_sched_take_ahead(r->sched, &step))
        return 0;
    make_ahead(r, &step, &a);
    xm_sched_results(r->sched, a.token, a.raw, a.logp);
    xm_sched_end(r->sched);
    r->hurried++;
    return 1;
}

static void compute_step(rig *r, const xm_sched_step *step)
{
    for (uint32_t i = 0; i < step->copy_count; i++)
        copy_kept(r, &step->copies[i]);
    assert_true(step->tokens <= r->limits.step_tokens);
    if (step->tokens > r->most_tokens)
        r->most_tokens = step->tokens;
    for (uint32_t i = 0; i < step->tokens; i++)
        compute_token(r, i, step->position_bound);
    for (uint32_t i = 1; i < step->last_count; i++)
        assert_true(r->last[i] > r->last[i - 1]);
}

void rig_step(rig *r)
{
    xm_sched_step step = {
        .ids = r->ids, .seq = r->seq, .positions = r->positions, .last = r->last
    };
    xr_err err = { "" };
    assert_int_equal(xm_sched_set_version(r->sched, r->version, &err), XRAY_OK);
    if (take_ahead(r))
        return;
    xm_sched_begin(r->sched, &step);
    if (r->traced)
        trace_step(r, &step);
    compute_step(r, &step);
    answer_scores(r, &step);
    answer_draws(r, &step);
    xm_sched_end(r->sched);
}

void rig_run(rig *r)
{
    int steps = 0;
    while (xm_sched_has_work(r->sched)) {
        rig_step(r);
        assert_true(++steps < 2000000);
    }
}

void rig_submit(rig *r, const xray_request *request)
{
    xr_err err = { "" };
    if (xm_sched_submit(r->sched, request, &err) != XRAY_OK)
        fail_msg("%s", err.text);
}

xray_infer_stats rig_stats(const rig *r)
{
    xray_infer_stats stats = { .header = XRAY_HEADER(xray_infer_stats) };
    xm_sched_stats(r->sched, &stats);
    return stats;
}

/* ---- requests and their right answers ------------------------------------ */

static const int32_t stops[] = { STOP_ID };

void fill_text(uint64_t text, uint32_t count, int32_t *ids)
{
    for (uint32_t i = 0; i < count; i++)
        ids[i] = (int32_t)((text * 31 + (uint64_t)i * 7 + 3) % VOCAB);
}

xray_request make_test_request(uint64_t id, uint32_t prompt, uint32_t count,
                               uint32_t max_tokens)
{
    static int32_t ids[MOST_ROW];
    fill_text(id, prompt, ids);
    return (xray_request){ .header = XRAY_HEADER(xray_request),
                           .id = id,
                           .ids = ids,
                           .id_count = prompt,
                           .count = count,
                           .max_tokens = max_tokens,
                           .seed = 11,
                           .step = 3,
                           .prompt_id = id + 100,
                           .temperature = 0.5f,
                           .top_p = 1,
                           .stop_ids = stops,
                           .stop_count = 1 };
}

void oracle_begin(const rig *r, const int32_t *ids, uint32_t count, oracle *out)
{
    out->count = 0;
    out->bound = r->limits.request.row_bound;
    assert_true(out->bound <= MOST_ROW);
    oracle_add(r, ids, count, out);
}

void oracle_add(const rig *r, const int32_t *ids, uint32_t count, oracle *row)
{
    for (uint32_t i = 0; i < count; i++) {
        uint32_t at = row->count++;
        uint64_t before = at ? row->kept[at - 1] : 0;
        uint64_t other = at ? row->kept[other_of(before, at)] : 0;
        row->ids[at] = ids[i];
        row->kept[at] = mix_token(r, before, other, ids[i]);
    }
}

uint32_t oracle_sample(const rig *r, const xray_request *q, uint32_t sample,
                       oracle *row, uint32_t *made)
{
    uint64_t key = xray_philox_key(q->seed, q->step, q->prompt_id);
    *made = 0;
    for (;;) {
        float raw;
        float logp;
        int32_t token;
        const xray_draw draw = { .key = key,
                                 .sample = sample,
                                 .position = row->count,
                                 .temperature = q->temperature };
        answer_draw(r, row->kept[row->count - 1], &draw, &token, &raw, &logp);
        oracle_add(r, &token, 1, row);
        ++*made;
        if (token == STOP_ID && q->stop_count)
            return XRAY_FINISH_STOP;
        if (*made == q->max_tokens || row->count == row->bound)
            return XRAY_FINISH_LENGTH;
    }
}

void check_result(const rig *r, const xray_request *q,
                  const xray_sample_out *out)
{
    static oracle row;
    uint32_t made = 0;
    oracle_begin(r, q->ids, q->id_count, &row);
    uint32_t finish = oracle_sample(r, q, out->sample, &row, &made);
    assert_int_equal(out->finish, finish);
    assert_int_equal(out->token_count, made);
    assert_memory_equal(out->tokens, row.ids + q->id_count,
                        made * sizeof(*row.ids));
    assert_int_equal(out->span_count, 1);
    assert_int_equal(out->spans[0].first, q->id_count);
    assert_int_equal(out->spans[0].last, row.count);
    assert_int_equal(out->spans[0].version, r->version);
    assert_int_equal(out->prompt_count, q->prompt_logp ? q->id_count : 0);
    for (uint32_t i = 1; i < out->prompt_count; i++)
        assert_true(out->prompt_logp[i] ==
                    answer_score(row.kept[i - 1], row.ids[i]));
}
