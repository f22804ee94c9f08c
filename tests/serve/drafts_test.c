/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests that drafts change no bit of what an engine gives: random requests with
 * everything that they may wish have the same results with and without them,
 * in both engines, on devices that are late or not, while the engine pauses and
 * resumes, samples are held for further turns or aborted, and new weights come
 * between two turns.
 */
#include "tests/serve/engine.h"

enum { ROWS = 6, ROW_TOKENS = 80, REQUESTS = 9, PROMPT = 24, TURNS = 3 };
enum { MOST_SAMPLES = 3 * REQUESTS };

typedef struct dice {
    uint64_t state;
} dice;

static uint32_t throw_dice(dice *d, uint32_t bound)
{
    d->state = d->state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(d->state >> 33) % bound;
}

/* The requests of a run gave this: for each sample all that poll tells of it,
 * in the order of its tokens. */
typedef struct course {
    uint64_t id;
    uint32_t sample;
    uint32_t size;
    uint32_t tokens; /* sampled ones */
    uint32_t turns;  /* that have ended */
    int due;         /* 1: it is held, and its next turn has not begun */
    int aborted;
    unsigned char bytes[8192];
} course;

typedef struct record {
    course of[MOST_SAMPLES];
    uint32_t count;
    int held[REQUESTS + 1]; /* by the request's id */
} record;

static void add_bytes(course *c, const void *from, size_t size)
{
    assert_true(c->size + size <= sizeof(c->bytes));
    if (size)
        memcpy(c->bytes + c->size, from, size);
    c->size += (uint32_t)size;
}

static course *find_course(record *all, uint64_t id, uint32_t sample)
{
    uint32_t i = 0;
    while (i < all->count &&
           (all->of[i].id != id || all->of[i].sample != sample))
        i++;
    if (i == all->count) {
        assert_true(i < MOST_SAMPLES);
        all->of[all->count++] = (course){ .id = id, .sample = sample };
    }
    return &all->of[i];
}

/* The version of the weights that a part's token came from. */
static uint64_t find_version(const xray_sample_out *s, uint32_t token)
{
    const xray_span *span = s->spans;
    for (token += s->spans[0].first; token >= span->last;)
        span++;
    return span->version;
}

static void add_part(course *c, const xray_sample_out *s)
{
    int whole = s->finish != XRAY_FINISH_ABORT || s->token_count;
    if (s->prompt_count && whole)
        add_bytes(c, s->prompt_logp, s->prompt_count * sizeof(float));
    for (uint32_t i = 0; i < s->token_count; i++) {
        const uint64_t version = find_version(s, i);
        add_bytes(c, &version, sizeof(version));
        add_bytes(c, &s->tokens[i], sizeof(*s->tokens));
        add_bytes(c, &s->raw_logp[i], sizeof(*s->raw_logp));
        add_bytes(c, &s->logp[i], sizeof(*s->logp));
        add_bytes(c, s->top_ids + i * s->top_count,
                  s->top_count * sizeof(*s->top_ids));
        add_bytes(c, s->top_logp + i * s->top_count,
                  s->top_count * sizeof(*s->top_logp));
    }
    c->tokens += s->token_count;
}

static void poll_all(rig *r, void *engine, record *out)
{
    xray_sample_out s = { .header = XRAY_HEADER(xray_sample_out) };
    while (r->ops->poll(engine, &s) == XRAY_OK) {
        course *c = find_course(out, s.id, s.sample);
        add_part(c, &s);
        if (s.finish == XRAY_FINISH_NONE || s.finish == XRAY_FINISH_ABORT)
            continue;
        add_bytes(c, &s.finish, sizeof(s.finish));
        c->turns++;
        c->due = out->held[s.id] && !c->aborted;
    }
}

/* A held sample goes on with a few tokens of its own, until it has had all its
 * turns or its row has no more space. */
static void begin_turn(rig *r, void *engine, course *c)
{
    int32_t more[6];
    uint32_t count = (uint32_t)(c->id + c->turns) % 6;
    for (uint32_t i = 0; i < count; i++)
        more[i] = (int32_t)((c->id + 7 * c->sample + i % 2) % 101);
    c->due = 0;
    if (c->turns < TURNS &&
        r->ops->extend(engine, c->id, c->sample, more, count) == XRAY_OK)
        return;
    if (r->ops->release(engine, c->id, c->sample) != XRAY_OK)
        fail_msg("%s", r->said);
}

/* Begins the turns that are due, or about half of them; returns their number.
 */
static uint32_t begin_turns(rig *r, void *engine, dice *half, record *out)
{
    uint32_t begun = 0;
    poll_all(r, engine, out);
    for (uint32_t i = 0; i < out->count; i++)
        if (out->of[i].due && (!half || throw_dice(half, 2))) {
            begin_turn(r, engine, &out->of[i]);
            begun++;
        }
    return begun;
}

static void abort_some(rig *r, void *engine, dice *d, record *out)
{
    if (!out->count)
        return;
    course *c = &out->of[throw_dice(d, out->count)];
    if (r->ops->abort(engine, c->id, c->sample) != XRAY_OK)
        return;
    c->aborted = 1;
    c->due = 0;
}

/* A request whose greedy or cool samples repeat themselves. */
static void submit_random(rig *r, void *engine, dice *d, uint64_t id,
                          record *out)
{
    static const float temperatures[] = { 0, 0.1f, 0.4f, 1 };
    static const int32_t stops[] = { 7, 31, 64 };
    static const int32_t banned[] = { 12, 13 };
    static const xray_id_list lists[] = { { .ids = banned, .count = 2 } };
    static const int32_t forced[] = { 5, 6, 5, 6, 5 };
    int32_t ids[PROMPT];
    uint32_t count = 1 + throw_dice(d, PROMPT);
    uint32_t period = 1 + throw_dice(d, 8);
    for (uint32_t i = 0; i < count; i++)
        ids[i] = (int32_t)((i % period * 7 + id) % 101);
    xray_request q = request_make(id, ids, count, 1 + throw_dice(d, 50));
    q.count = 1 + throw_dice(d, 3);
    q.temperature = temperatures[throw_dice(d, 4)];
    q.top_p = throw_dice(d, 3) ? 1 : 0.8f;
    q.stop_ids = stops;
    q.stop_count = throw_dice(d, 4);
    q.stream = throw_dice(d, 2);
    q.hold = throw_dice(d, 2);
    q.prompt_logp = throw_dice(d, 4) == 0;
    out->held[id] = (int)q.hold;
    if (throw_dice(d, 3) == 0) {
        q.min_tokens = throw_dice(d, 20);
        q.repetition_penalty = throw_dice(d, 2) ? 1.05f : 0;
        q.frequency_penalty = throw_dice(d, 2) ? 0.02f : 0;
        q.presence_penalty = throw_dice(d, 2) ? 0.1f : 0;
    }
    if (throw_dice(d, 4) == 0)
        q.top_count = 1 + throw_dice(d, 4);
    if (throw_dice(d, 4) == 0) {
        q.banned_lists = lists;
        q.banned_list_count = 1;
        q.banned_list_stride = sizeof(lists[0]);
        q.stop_lists = lists;
        q.stop_list_count = 1;
        q.stop_list_stride = sizeof(lists[0]);
    }
    if (throw_dice(d, 4) == 0) {
        q.forced_ids = forced;
        q.forced_count = 1 + throw_dice(d, 5);
    }
    if (throw_dice(d, 4) == 0) {
        q.repeat_size = 4;
        q.repeat_count = 6;
    }
    engine_submit(r, engine, &q);
}

typedef struct task {
    uint64_t seed;
    int paged;
    int late;
    int aborts;
    int64_t speculate;
} task;

/* In every second task a turn begins when all samples have had theirs, so that
 * new weights come at the same place whatever the engine. */
static int has_waves(const task *t)
{
    return t->seed % 2 == 1;
}

static void renew_weights(rig *r, void *engine, const model *m,
                          uint64_t version)
{
    xr_err err = { "" };
    assert_int_equal(r->ops->pause(engine, XRAY_PAUSE_KEEP), XRAY_OK);
    if (xm_weights_random(m->weights, &m->config, 70 + version, &err) !=
            XRAY_OK ||
        xm_weights_changed(m->weights, version, &err) != XRAY_OK)
        fail_msg("%s", err.text);
    assert_int_equal(r->ops->update(engine, NULL, version), XRAY_OK);
    assert_int_equal(r->ops->resume(engine), XRAY_OK);
}

static void run_to_idle(const task *t, rig *r, void *engine, dice *d,
                        record *out)
{
    for (;;) {
        xray_status status = r->ops->step(engine);
        if (status < 0)
            fail_msg("%s", r->said);
        if (throw_dice(d, 10) == 0) {
            assert_int_equal(r->ops->pause(engine, XRAY_PAUSE_KEEP), XRAY_OK);
            assert_int_equal(r->ops->resume(engine), XRAY_OK);
        }
        if (t->aborts && throw_dice(d, 20) == 0)
            abort_some(r, engine, d, out);
        poll_all(r, engine, out);
        uint32_t begun = has_waves(t) ? 0 : begin_turns(r, engine, d, out);
        if (status == XRAY_END && !begun)
            return;
    }
}

static void run_turns(const task *t, rig *r, const model *m, void *engine,
                      dice *d, record *out)
{
    uint64_t version = 0;
    do {
        run_to_idle(t, r, engine, d, out);
        if (has_waves(t))
            renew_weights(r, engine, m, ++version);
    } while (begin_turns(r, engine, NULL, out));
}

static uint64_t count_tokens(const record *all)
{
    uint64_t count = 0;
    for (uint32_t i = 0; i < all->count; i++)
        count += all->of[i].tokens;
    return count;
}

/* The small pool of the paged engine preempts, and steps of a few tokens leave
 * space for some drafts only. */
static xray_infer_stats run_task(const task *t, record *out)
{
    rig *r = rig_open(1);
    dice d = { .state = t->seed };
    dice calls = { .state = t->seed + 1 };
    model *m = model_open(r, (int)(t->seed % MODEL_COUNT));
    engine_size size = { .rows = has_waves(t) ? MOST_SAMPLES : ROWS,
                         .row_tokens = ROW_TOKENS,
                         .config = { .max_num_batched_tokens =
                                         8 + 8 * (int64_t)(t->seed % 5) } };
    uint64_t block = 2ull * 16 * m->config.kv_heads * m->config.head_dim *
                     m->config.layers * sizeof(float);
    r->paged = (paged_config){ 0 };
    r->speculate = t->speculate;
    if (t->paged)
        rig_use_paged(
            r, &(paged_config){ .block_size = 16,
                                .kv_memory = (5 + t->seed % 12) * block,
                                .enable_prefix_caching = t->seed % 3 != 0 });
    if (t->late)
        rig_make_late(r);
    void *engine = engine_open(r, m, &size);
    *out = (record){ .count = 0 };
    for (uint64_t id = 1; id <= REQUESTS; id++) {
        submit_random(r, engine, &d, id, out);
        for (uint32_t i = throw_dice(&calls, 4); i; i--) {
            assert_true(r->ops->step(engine) >= 0);
            poll_all(r, engine, out);
        }
    }
    run_turns(t, r, m, engine, &calls, out);
    xray_infer_stats stats = { .header = XRAY_HEADER(xray_infer_stats) };
    assert_int_equal(r->ops->stats(engine, &stats), XRAY_OK);
    assert_int_equal(stats.kv_tokens, 0);
    assert_int_equal(stats.generation_tokens, count_tokens(out));
    r->ops->destroy(engine);
    model_close(m);
    rig_close(r);
    return stats;
}

/* An aborted sample has come as far as it has. */
static void compare_records(const record *want, record *got)
{
    assert_int_equal(want->count, got->count);
    for (uint32_t i = 0; i < want->count; i++) {
        const course *a = &want->of[i];
        const course *b = find_course(got, a->id, a->sample);
        assert_true(b->aborted ? b->size <= a->size : b->size == a->size);
        assert_memory_equal(a->bytes, b->bytes, b->size);
    }
}

static uint32_t count_turns(const record *all)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < all->count; i++)
        count += all->of[i].turns;
    return count;
}

static uint64_t seeds = 16; /* of each comparison */

static void compare_runs(int paged, int late)
{
    record *want = calloc(2, sizeof(*want));
    record *got = want + 1;
    uint64_t accepted = 0;
    uint64_t wrong = 0;
    uint64_t samples = 0;
    uint64_t turns = 0;
    assert_non_null(want);
    for (uint64_t seed = 0; seed < seeds; seed++) {
        const xray_infer_stats a = run_task(&(task){ .seed = seed }, want);
        /* On a device in time without drafts, too: turns change no bit. */
        for (int drafts = late; drafts < 2; drafts++) {
            const xray_infer_stats b = run_task(
                &(task){ .seed = seed,
                         .paged = paged,
                         .late = late,
                         .aborts = seed % 3 == 0,
                         .speculate = drafts * (1 + (int64_t)(seed % 6)) },
                got);
            compare_records(want, got);
            accepted += b.num_accepted_tokens;
            wrong += b.num_draft_tokens - b.num_accepted_tokens;
        }
        assert_int_equal(a.num_draft_tokens, 0);
        samples += want->count;
        turns += count_turns(want);
    }
    print_message("%u samples with %u turns; %u drafts right, %u wrong\n",
                  (unsigned)samples, (unsigned)turns, (unsigned)accepted,
                  (unsigned)wrong);
    assert_true(accepted > 300);
    assert_true(wrong > 300);
    assert_true(turns > samples * 4 / 3);
    free(want);
}

static void contiguous_results_have_the_same_bits(void **state)
{
    (void)state;
    compare_runs(0, 0);
}

static void paged_results_have_the_same_bits(void **state)
{
    (void)state;
    compare_runs(1, 0);
}

static void late_results_have_the_same_bits(void **state)
{
    (void)state;
    compare_runs(0, 1);
    compare_runs(1, 1);
}

typedef struct told {
    xray_metrics_service service;
    double drafts;
    double accepted;
} told;

static xray_status take_metric(const xray_metrics_service *service,
                               const char *name, double value)
{
    told *t = service->host_data;
    if (strcmp(name, "num_draft_tokens") == 0)
        t->drafts += value;
    if (strcmp(name, "num_accepted_tokens") == 0)
        t->accepted += value;
    return XRAY_OK;
}

/* A greedy row that repeats its forced beginning comes to its end in fewer
 * steps, and the metrics tell of each piece of work by itself. */
static void metrics_tell_of_drafts(void **state)
{
    (void)state;
    told all = { .service = { .header = XRAY_HEADER(xray_metrics_service),
                              .put = take_metric } };
    all.service.host_data = &all;
    rig *r = rig_open(1);
    model *m = model_open(r, MODEL_LLAMA);
    const engine_size size = { .rows = 2,
                               .row_tokens = ROW_TOKENS,
                               .config = { .max_num_batched_tokens = 32 } };
    int32_t forced[40];
    int32_t ids[20];
    for (int32_t i = 0; i < 40; i++)
        forced[i] = i % 4;
    memcpy(ids, forced, sizeof(ids));
    r->metrics = &all.service;
    r->speculate = 4;
    void *engine = engine_open(r, m, &size);
    results *out = calloc(1, sizeof(*out));
    assert_non_null(out);
    xray_request q = request_make(1, ids, 20, 40);
    q.forced_ids = forced;
    q.forced_count = 40;
    engine_submit(r, engine, &q);
    engine_run(r, engine, out);
    xray_infer_stats stats = { .header = XRAY_HEADER(xray_infer_stats) };
    assert_int_equal(r->ops->stats(engine, &stats), XRAY_OK);
    assert_memory_equal(out->r[0].tokens, forced, sizeof(forced));
    /* The prompt's step draws one token, seven draw five, and one the rest. */
    assert_int_equal(stats.steps, 9);
    assert_int_equal(stats.num_draft_tokens, 31);
    assert_int_equal(stats.num_accepted_tokens, 31);
    assert_true(all.drafts == 31 && all.accepted == 31);
    q.id = 2;
    engine_submit(r, engine, &q);
    engine_run(r, engine, out);
    assert_true(all.drafts == 62 && all.accepted == 62);
    free(out);
    r->ops->destroy(engine);
    model_close(m);
    rig_close(r);
}

/* `all` runs thousands of requests. */
int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "all") == 0)
        seeds = 400;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(contiguous_results_have_the_same_bits),
        cmocka_unit_test(paged_results_have_the_same_bits),
        cmocka_unit_test(late_results_have_the_same_bits),
        cmocka_unit_test(metrics_tell_of_drafts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
