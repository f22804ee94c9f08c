/* SPDX-License-Identifier: Apache-2.0
 *
 * Proves that a paged cache changes no bit: random requests have the results of
 * a contiguous cache, whatever the model, the blocks, the budget of a step, the
 * sequences that are preempted and the prefixes that are found. `all` as an
 * argument tries every model with every pool.
 */
#include "tests/serve/engine.h"

enum { ROWS = 12, ROW_TOKENS = 96, REQUESTS = 11, PROMPT = 70 };

static uint64_t next_random(uint64_t *state)
{
    return *state = *state * 6364136223846793005u + 1442695040888963407u,
           *state >> 33;
}

/* Half of the prompts begin with the same tokens. */
static void submit_all(rig *r, void *engine, uint64_t seed, int hold)
{
    int32_t ids[PROMPT];
    for (uint64_t id = 1; id <= REQUESTS; id++) {
        uint32_t count = 1 + (uint32_t)(next_random(&seed) % PROMPT);
        uint64_t from = id % 2 ? next_random(&seed) : 0;
        for (uint32_t i = 0; i < count; i++)
            ids[i] = (int32_t)((from + 7 * i) % 60);
        xray_request request = request_make(
            id, ids, count, 1 + (uint32_t)(next_random(&seed) % 40));
        request.count = 1 + (uint32_t)(next_random(&seed) % 4);
        request.hold = (uint32_t)hold;
        request.prompt_logp = id % 5 == 0;
        engine_submit(r, engine, &request);
    }
}

static const engine_size plain_size = {
    .rows = ROWS,
    .row_tokens = ROW_TOKENS,
    .config = { .max_num_batched_tokens = 64 },
};

static xray_infer_stats stats_of(rig *r, void *engine)
{
    xray_infer_stats s = { .header = XRAY_HEADER(xray_infer_stats) };
    assert_int_equal(r->ops->stats(engine, &s), XRAY_OK);
    return s;
}

typedef struct trial {
    int64_t block_size;
    int64_t step_tokens;
    uint64_t blocks; /* of the pool; 0: enough for all */
    uint32_t caching;
    double watermark;
} trial;

static const trial trials[] = {
    { 16, 64, 0, 1, 0 },    { 16, 13, 6, 1, 0 },    { 16, 200, 7, 0, 0 },
    { 32, 17, 3, 1, 0 },    { 48, 64, 2, 0, 0 },    { 96, 12, 3, 1, 0 },
    { 16, 64, 20, 1, 0.2 }, { 16, 30, 12, 1, 0.5 },
};

enum { TRIALS = sizeof(trials) / sizeof(trials[0]) };

static uint64_t bytes_of(const model *m, const trial *t)
{
    return t->blocks * (uint64_t)t->block_size * 2 * m->config.kv_heads *
           m->config.head_dim * (m->dtype == XRAY_BF16 ? 2 : sizeof(float)) *
           m->config.layers;
}

/* Extends each held sample by a few tokens, the last results first. */
static void extend_all(rig *r, void *engine, const results *first)
{
    static const int32_t seen[] = { 5, 4, 3, 2, 1, 0, 9 };
    for (uint32_t i = first->count; i--;)
        (void)r->ops->extend(engine, first->r[i].id, first->r[i].sample, seen,
                             (uint32_t)first->r[i].id % 7);
}

static void run_turns(rig *r, void *engine, uint64_t seed, uint32_t turns,
                      results out[3])
{
    submit_all(r, engine, seed, turns > 1);
    engine_run(r, engine, &out[0]);
    for (uint32_t i = 1; i < turns; i++) {
        extend_all(r, engine, &out[0]);
        engine_run(r, engine, &out[i]);
    }
    for (uint64_t id = 1; id <= REQUESTS && turns > 1; id++)
        (void)r->ops->abort(engine, id, XRAY_ALL_SAMPLES);
}

/* A run, and the pool it has (NULL: a contiguous cache). */
typedef struct task {
    int model;
    uint32_t dtype; /* as in `model` */
    uint32_t turns;
    uint64_t seed;
} task;

/* Both engines draw the same weights. */
static void run_task(const task *k, const trial *t, results out[3],
                     xray_infer_stats *stats)
{
    rig *r = rig_open(1);
    model *m = model_open(r, k->model);
    engine_size size = plain_size;
    void *engine = NULL;
    m->dtype = k->dtype;
    if (t) {
        rig_use_paged(r,
                      &(paged_config){ .block_size = t->block_size,
                                       .kv_memory = bytes_of(m, t),
                                       .watermark = t->watermark,
                                       .enable_prefix_caching = t->caching });
        size.config.max_num_batched_tokens = t->step_tokens;
    }
    if (!t) /* a slot for every sample, since all are held */
        size.rows = 4 * REQUESTS;
    if (engine_try(r, m, NULL, &size, &engine) != XRAY_OK)
        fail_msg("%s", r->said);
    memset(out, 0, 3 * sizeof(*out));
    run_turns(r, engine, k->seed, k->turns, out);
    *stats = stats_of(r, engine);
    r->ops->destroy(engine);
    model_close(m);
    rig_close(r);
}

typedef struct effort {
    uint64_t preempted;
    uint64_t saved;
} effort;

static void compare_task(const task *k, const trial *t, effort *sum)
{
    results *want = calloc(3, sizeof(*want));
    results *got = calloc(3, sizeof(*got));
    xray_infer_stats s;
    assert_true(want && got);
    run_task(k, NULL, want, &s);
    run_task(k, t, got, &s);
    for (uint32_t i = 0; i < k->turns; i++)
        results_equal(&want[i], &got[i]);
    sum->preempted += s.preemptions;
    sum->saved += s.prefix_tokens_saved;
    assert_int_equal(s.kv_tokens, 0);
    if (t->blocks)
        assert_int_equal(s.kv_capacity, t->blocks * (uint64_t)t->block_size);
    free(want);
    free(got);
}

/* Each model with one pool, which others have with the other type. */
static void compare_models(uint32_t dtype, uint32_t turns)
{
    effort sum = { 0 };
    for (int i = 0; i < MODEL_COUNT; i++) {
        const task k = { i, dtype, turns, (uint64_t)i };
        compare_task(&k, &trials[((uint32_t)i + turns) % TRIALS], &sum);
    }
    assert_true(sum.preempted > 20);
    assert_true(sum.saved > 0);
}

static void random_requests_have_the_same_bits(void **state)
{
    (void)state;
    compare_models(0, 1);
}

/* Held samples have neither slot nor blocks of their own, and go on from the
 * tokens of all turns. */
static void turns_have_the_same_bits(void **state)
{
    (void)state;
    compare_models(XRAY_BF16, 2);
}

/* Nothing is found that old weights gave. */
static void new_weights_forget_the_cache(void **state)
{
    (void)state;
    rig *r = rig_open(1);
    model *m = model_open(r, MODEL_LLAMA);
    rig_use_paged(
        r, &(paged_config){ .block_size = 16, .enable_prefix_caching = 1 });
    engine_size size = plain_size;
    size.config.weights = XM_ENGINE_WEIGHTS_FLOAT32;
    void *engine = engine_open(r, m, &size);
    results *out = calloc(1, sizeof(*out));
    assert_non_null(out);
    int32_t ids[40] = { 1, 2, 3 };
    xray_request q = request_make(1, ids, 40, 2);
    engine_submit(r, engine, &q);
    engine_run(r, engine, out);
    assert_int_equal(r->ops->update(engine, &m->weights->table, 0), XRAY_OK);
    uint64_t before = stats_of(r, engine).prefix_tokens_saved;
    q.id = 2;
    engine_submit(r, engine, &q);
    engine_run(r, engine, out);
    assert_int_equal(stats_of(r, engine).prefix_tokens_saved, before);
    q.id = 3;
    engine_submit(r, engine, &q);
    engine_run(r, engine, out);
    assert_int_equal(stats_of(r, engine).prefix_tokens_saved, before + 32);
    free(out);
    r->ops->destroy(engine);
    model_close(m);
    rig_close(r);
}

typedef struct told {
    xray_metrics_service service;
    char text[400];
} told;

static xray_status take_metric(const xray_metrics_service *service,
                               const char *name, double value)
{
    told *t = service->host_data;
    size_t end = strlen(t->text);
    (void)snprintf(t->text + end, sizeof(t->text) - end, "%s %g\n", name,
                   value);
    return XRAY_OK;
}

/* Two samples of 70 tokens in 6 blocks. The younger one gives way at 64 tokens.
 * When the other one has ended it finds 48 of them and computes 16 again; then
 * 5 steps are its own. Another request finds 32 tokens of its prompt. */
static void metrics_tell_what_the_work_took(void **state)
{
    (void)state;
    const trial t = { .block_size = 16, .blocks = 6 };
    told all = { .service = { .header = XRAY_HEADER(xray_metrics_service),
                              .put = take_metric } };
    results *out = calloc(1, sizeof(*out));
    rig *r = rig_open(1);
    model *m = model_open(r, MODEL_LLAMA);
    assert_non_null(out);
    all.service.host_data = &all;
    r->metrics = &all.service;
    r->speculate = 0;
    rig_use_paged(r, &(paged_config){ .block_size = 16,
                                      .kv_memory = bytes_of(m, &t),
                                      .enable_prefix_caching = 1 });
    void *engine = engine_open(r, m, &plain_size);
    int32_t ids[40] = { 1, 2, 3 };
    xray_request q = request_make(1, ids, 40, 30);
    q.count = 2;
    engine_submit(r, engine, &q);
    engine_run(r, engine, out);
    assert_string_equal(all.text, "rows 1.68571\nkv_usage 1\n"
                                  "prefix_share 0.5\npreemptions 1\n"
                                  "recomputed_tokens 16\n");
    all.text[0] = '\0';
    q.count = 1;
    engine_submit(r, engine, &q);
    engine_run(r, engine, out);
    assert_string_equal(all.text, "rows 1\nkv_usage 0.833333\n"
                                  "prefix_share 0.8\npreemptions 0\n"
                                  "recomputed_tokens 0\n");
    free(out);
    r->ops->destroy(engine);
    model_close(m);
    rig_close(r);
}

/* Two prompts of 2 blocks start together if the watermark, a part of 6 blocks,
 * leaves the second one its own. One that comes again is found in the cache if
 * there is one. */
static void watermark_and_cache_are_those_of_the_options(void **state)
{
    (void)state;
    static const struct {
        double watermark;
        uint32_t caching;
        uint64_t used;  /* positions after the first step */
        uint64_t saved; /* when all has been done twice */
    } cases[] = {
        { 0, 1, 64, 32 },   { 0.34, 1, 64, 32 }, { 0.49, 0, 64, 0 },
        { 0.51, 0, 32, 0 }, { 0.51, 1, 32, 32 },
    };
    const trial t = { .block_size = 16, .blocks = 6 };
    results *out = calloc(1, sizeof(*out));
    assert_non_null(out);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        rig *r = rig_open(1);
        model *m = model_open(r, MODEL_LLAMA);
        r->speculate = 0;
        rig_use_paged(
            r, &(paged_config){ .block_size = 16,
                                .kv_memory = bytes_of(m, &t),
                                .watermark = cases[i].watermark,
                                .enable_prefix_caching = cases[i].caching });
        void *engine = engine_open(r, m, &plain_size);
        for (uint64_t id = 1; id <= 4; id++) {
            int32_t ids[30] = { (int32_t)(id % 2) };
            xray_request q = request_make(id, ids, 30, 3);
            engine_submit(r, engine, &q);
            if (id % 2)
                continue;
            assert_true(r->ops->step(engine) >= 0);
            if (id == 2)
                assert_int_equal(stats_of(r, engine).kv_tokens, cases[i].used);
            engine_run(r, engine, out);
        }
        assert_int_equal(stats_of(r, engine).prefix_tokens_saved,
                         cases[i].saved);
        r->ops->destroy(engine);
        model_close(m);
        rig_close(r);
    }
    free(out);
}

/* A pool that one row does not fit is refused, and so are blocks of an odd
 * size. */
static void impossible_pools_are_refused(void **state)
{
    (void)state;
    rig *r = rig_open(1);
    model *m = model_open(r, MODEL_LLAMA);
    void *engine = NULL;
    const trial small = { .block_size = 16, .blocks = 5 };
    rig_use_paged(r, &(paged_config){ .block_size = 16,
                                      .kv_memory = bytes_of(m, &small) });
    assert_int_equal(engine_try(r, m, &m->weights->table, &plain_size, &engine),
                     XRAY_E_CONFIG);
    assert_non_null(strstr(r->said, "kv_memory of"));
    assert_non_null(strstr(r->said, "max_model_len shortens the rows"));
    rig_use_paged(r, &(paged_config){ .block_size = 24 });
    assert_int_equal(engine_try(r, m, &m->weights->table, &plain_size, &engine),
                     XRAY_E_CONFIG);
    assert_non_null(
        strstr(r->said, "block_size = 24, a multiple of 16 was expected"));
    rig_use_paged(r, &(paged_config){ .block_size = 16,
                                      .max_model_len = 80,
                                      .kv_memory = bytes_of(m, &small) });
    engine = engine_open(r, m, &plain_size);
    r->ops->destroy(engine);
    model_close(m);
    rig_close(r);
}

static void every_model_on_every_pool(void **state)
{
    (void)state;
    effort sum = { 0 };
    for (uint64_t n = 0; n < (uint64_t)MODEL_COUNT * TRIALS * 8; n++) {
        const task k = { .model = (int)(n % MODEL_COUNT),
                         .dtype = n / MODEL_COUNT % 2 ? XRAY_BF16 : 0,
                         .turns = n / MODEL_COUNT / 2 % 2 ? 3 : 1,
                         .seed = n };
        compare_task(&k, &trials[n / MODEL_COUNT / 4 % TRIALS], &sum);
    }
    assert_true(sum.preempted > 1000 && sum.saved > 1000);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_requests_have_the_same_bits),
        cmocka_unit_test(turns_have_the_same_bits),
        cmocka_unit_test(new_weights_forget_the_cache),
        cmocka_unit_test(metrics_tell_what_the_work_took),
        cmocka_unit_test(watermark_and_cache_are_those_of_the_options),
        cmocka_unit_test(impossible_pools_are_refused),
    };
    const struct CMUnitTest all[] = {
        cmocka_unit_test(every_model_on_every_pool),
    };
    if (argc > 1 && strcmp(argv[1], "all") == 0)
        return cmocka_run_group_tests(all, NULL, NULL);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
