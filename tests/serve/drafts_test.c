/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests that drafts change no bit of what an engine gives: random requests with
 * everything that they may wish have the same results with and without them,
 * in both engines, on devices that are late or not, while the engine pauses and
 * resumes.
 */
#include "tests/serve/engine.h"

enum { ROWS = 6, ROW_TOKENS = 80, REQUESTS = 9, PROMPT = 24 };

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
    unsigned char bytes[8192];
} course;

typedef struct record {
    course of[64];
    uint32_t count;
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
        assert_true(i < 64);
        all->of[all->count++] = (course){ .id = id, .sample = sample };
    }
    return &all->of[i];
}

static void poll_all(rig *r, void *engine, record *out)
{
    xray_sample_out s = { .header = XRAY_HEADER(xray_sample_out) };
    while (r->ops->poll(engine, &s) == XRAY_OK) {
        course *c = find_course(out, s.id, s.sample);
        for (uint32_t i = 0; i < s.token_count; i++) {
            add_bytes(c, &s.tokens[i], sizeof(*s.tokens));
            add_bytes(c, &s.raw_logp[i], sizeof(*s.raw_logp));
            add_bytes(c, &s.logp[i], sizeof(*s.logp));
            add_bytes(c, s.top_ids + i * s.top_count,
                      s.top_count * sizeof(*s.top_ids));
            add_bytes(c, s.top_logp + i * s.top_count,
                      s.top_count * sizeof(*s.top_logp));
        }
        if (s.finish != XRAY_FINISH_NONE)
            add_bytes(c, &s.finish, sizeof(s.finish));
    }
}

/* A request whose greedy or cool samples repeat themselves. */
static void submit_random(rig *r, void *engine, dice *d, uint64_t id)
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
    int64_t speculate;
} task;

static void run_steps(rig *r, void *engine, dice *d, record *out)
{
    for (;;) {
        xray_status status = r->ops->step(engine);
        if (status < 0)
            fail_msg("%s", r->said);
        poll_all(r, engine, out);
        if (status == XRAY_END)
            return;
        if (throw_dice(d, 10) == 0) {
            assert_int_equal(r->ops->pause(engine, XRAY_PAUSE_KEEP), XRAY_OK);
            assert_int_equal(r->ops->resume(engine), XRAY_OK);
        }
    }
}

/* The small pool of the paged engine preempts, and steps of a few tokens leave
 * space for some drafts only. */
static xray_infer_stats run_task(const task *t, record *out)
{
    rig *r = rig_open(1);
    dice d = { .state = t->seed };
    dice calls = { .state = t->seed + 1 };
    model *m = model_open(r, (int)(t->seed % MODEL_COUNT));
    engine_size size = { .rows = ROWS,
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
    out->count = 0;
    for (uint64_t id = 1; id <= REQUESTS; id++) {
        submit_random(r, engine, &d, id);
        for (uint32_t i = throw_dice(&calls, 4); i; i--) {
            assert_true(r->ops->step(engine) >= 0);
            poll_all(r, engine, out);
        }
    }
    run_steps(r, engine, &calls, out);
    xray_infer_stats stats = { .header = XRAY_HEADER(xray_infer_stats) };
    assert_int_equal(r->ops->stats(engine, &stats), XRAY_OK);
    r->ops->destroy(engine);
    model_close(m);
    rig_close(r);
    return stats;
}

static void compare_records(const record *want, record *got)
{
    assert_int_equal(want->count, got->count);
    for (uint32_t i = 0; i < want->count; i++) {
        const course *a = &want->of[i];
        const course *b = find_course(got, a->id, a->sample);
        assert_int_equal(a->size, b->size);
        assert_memory_equal(a->bytes, b->bytes, a->size);
    }
}

static void compare_runs(int paged, int late)
{
    record *want = calloc(2, sizeof(*want));
    record *got = want + 1;
    uint64_t accepted = 0;
    uint64_t wrong = 0;
    uint64_t steps = 0;
    uint64_t fewer = 0;
    assert_non_null(want);
    for (uint64_t seed = 0; seed < 24; seed++) {
        const xray_infer_stats a = run_task(&(task){ seed, 0, 0, 0 }, want);
        const xray_infer_stats b = run_task(
            &(task){ seed, paged, late, 1 + (int64_t)(seed % 6) }, got);
        compare_records(want, got);
        assert_int_equal(a.num_draft_tokens, 0);
        accepted += b.num_accepted_tokens;
        wrong += b.num_draft_tokens - b.num_accepted_tokens;
        steps += a.steps;
        fewer += b.steps;
    }
    print_message("%u steps, with drafts %u; %u drafts right, %u wrong\n",
                  (unsigned)steps, (unsigned)fewer, (unsigned)accepted,
                  (unsigned)wrong);
    assert_true(accepted > 300);
    assert_true(wrong > 300);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(contiguous_results_have_the_same_bits),
        cmocka_unit_test(paged_results_have_the_same_bits),
        cmocka_unit_test(late_results_have_the_same_bits),
        cmocka_unit_test(metrics_tell_of_drafts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
