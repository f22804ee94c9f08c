/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests the engine's states: ends of samples, leases, updates and sleep.
 */
#include "model/serve/engine_internal.h"
#include "tests/serve/engine.h"

#include "core/base/str.h"
#include "model/hf/safetensors.h"

/* A trainer that counts its leases. */
typedef struct owner {
    uint64_t version;
    int leases;
    int refuse;
} owner;

static uint64_t owner_version(void *self)
{
    return ((owner *)self)->version;
}

static xray_status owner_lease(void *self)
{
    owner *o = self;
    if (o->refuse)
        return XRAY_E_STATE;
    o->leases++;
    return XRAY_OK;
}

static void owner_release(void *self)
{
    ((owner *)self)->leases--;
}

/* Refuses a step during a lease, as a trainer does. */
static xray_status owner_step(owner *o, model *m)
{
    xr_err err = { "" };
    if (o->leases)
        return XRAY_E_STATE;
    assert_int_equal(xm_weights_random(m->weights, &m->config, 77, &err),
                     XRAY_OK);
    assert_int_equal(xm_weights_changed(m->weights, ++o->version, &err),
                     XRAY_OK);
    return XRAY_OK;
}

typedef struct stage {
    rig *r;
    model *m;
    owner o;
    xray_weights table;
    void *engine;
    results out;
} stage;

static const engine_size small_size = {
    .rows = 3,
    .row_tokens = 40,
    .config = { .max_num_batched_tokens = 32 },
};
static const int32_t prompt[] = { 1, 2, 3, 4, 5, 6 };

static int set_up(void **state)
{
    stage *s = calloc(1, sizeof(*s));
    assert_non_null(s);
    s->r = rig_open(1);
    s->m = model_open(s->r, MODEL_LLAMA);
    s->table = s->m->weights->table;
    s->table.owner = &s->o;
    s->table.version = owner_version;
    s->table.lease = owner_lease;
    s->table.release = owner_release;
    s->o.version = 4;
    if (engine_try(s->r, s->m, &s->table, &small_size, &s->engine) != XRAY_OK)
        fail_msg("%s", s->r->said);
    *state = s;
    return 0;
}

static int tear_down(void **state)
{
    stage *s = *state;
    s->r->ops->destroy(s->engine);
    s->r->ops->destroy(NULL);
    assert_int_equal(s->o.leases, 0);
    model_close(s->m);
    assert_int_equal(rig_live(s->r), rig_scratch(s->r));
    rig_close(s->r);
    free(s);
    return 0;
}

static xray_status step_engine(stage *s)
{
    return s->r->ops->step(s->engine);
}

static xray_infer_stats engine_stats(stage *s)
{
    xray_infer_stats stats = { .header = XRAY_HEADER(xray_infer_stats) };
    assert_int_equal(s->r->ops->stats(s->engine, &stats), XRAY_OK);
    return stats;
}

/* ---- ends of samples ---------------------------------------------------- */

static void stop_length_and_last_position(void **state)
{
    stage *s = *state;
    xray_request q = request_make(1, prompt, 6, 12);
    engine_submit(s->r, s->engine, &q);
    q.id = 2; /* same prompt_id 1: same draws */
    q.max_tokens = 500;
    engine_submit(s->r, s->engine, &q);
    engine_run(s->r, s->engine, &s->out);
    const result *a = result_find(&s->out, 1, 0);
    const result *b = result_find(&s->out, 2, 0);
    assert_int_equal(a->finish, XRAY_FINISH_LENGTH);
    assert_int_equal(a->count, 12);
    assert_int_equal(b->finish, XRAY_FINISH_LENGTH);
    assert_int_equal(b->count, 40 - 6); /* the longest row */
    assert_memory_equal(a->tokens, b->tokens, 12 * sizeof(int32_t));
    /* Its 8th token as an end id: kept, and the last one. */
    int32_t stop = b->tokens[7];
    uint32_t at = 0;
    while (b->tokens[at] != stop)
        at++;
    q.id = 3;
    q.stop_ids = &stop;
    q.stop_count = 1;
    engine_submit(s->r, s->engine, &q);
    engine_run(s->r, s->engine, &s->out);
    const result *c = result_find(&s->out, 3, 0);
    assert_int_equal(c->finish, XRAY_FINISH_STOP);
    assert_int_equal(c->count, at + 1);
    assert_int_equal(c->tokens[at], stop);
}

static void abort_keeps_what_was_made(void **state)
{
    stage *s = *state;
    xray_request q = request_make(1, prompt, 6, 30);
    q.count = 5;
    engine_submit(s->r, s->engine, &q);
    for (int i = 0; i < 4; i++)
        assert_int_equal(step_engine(s), XRAY_OK);
    assert_int_equal(s->o.leases, 1);
    assert_int_equal(s->r->ops->abort(s->engine, 1, XRAY_ALL_SAMPLES), XRAY_OK);
    assert_int_equal(s->o.leases, 0);
    assert_int_equal(step_engine(s), XRAY_END);
    engine_poll(s->r, s->engine, &s->out);
    assert_int_equal(s->out.count, 5);
    uint32_t made = 0;
    for (uint32_t i = 0; i < 5; i++) {
        assert_int_equal(s->out.r[i].finish, XRAY_FINISH_ABORT);
        made += s->out.r[i].count;
    }
    /* five first tokens, then three slots for three steps */
    assert_int_equal(made, 5 + 3 * 3);
    assert_int_equal(s->r->ops->abort(s->engine, 1, XRAY_ALL_SAMPLES),
                     XRAY_E_ARG);
    rig_expect_said(s->r, "request 1: no request with this id is running");
}

static void more_requests_than_slots(void **state)
{
    stage *s = *state;
    for (uint64_t i = 0; i < 20; i++) {
        xray_request q = request_make(i, prompt, 1 + (uint32_t)i % 6,
                                      1 + (uint32_t)(i * 5) % 9);
        engine_submit(s->r, s->engine, &q);
    }
    assert_int_equal(engine_stats(s).requests_waiting, 20);
    uint64_t most = 0;
    while (step_engine(s) == XRAY_OK) {
        xray_infer_stats now = engine_stats(s);
        most = now.requests_running > most ? now.requests_running : most;
        assert_true(now.requests_running <= 3);
        assert_true(now.kv_tokens <= now.kv_capacity);
    }
    engine_poll(s->r, s->engine, &s->out);
    assert_int_equal(s->out.count, 20);
    assert_int_equal(most, 3);
    xray_infer_stats end = engine_stats(s);
    uint64_t tokens = 0;
    for (uint64_t i = 0; i < 20; i++) {
        assert_int_equal(result_find(&s->out, i, 0)->count, 1 + (i * 5) % 9);
        tokens += 1 + (i * 5) % 9;
    }
    assert_int_equal(end.generation_tokens, tokens);
    assert_int_equal(end.requests_running + end.requests_waiting, 0);
    /* Slots are refilled at once: only the last few steps had an idle slot. */
    assert_true(end.steps <= tokens / 3 + 9);
}

static void step_takes_no_memory(void **state)
{
    stage *s = *state;
    xm_engine *inner = s->engine;
    uint64_t live = 0;
    for (int round = 0; round < 3; round++) {
        for (uint64_t i = 0; i < 6; i++) {
            xray_request q = request_make(i, prompt, 6, 8);
            q.count = 2;
            engine_submit(s->r, s->engine, &q);
        }
        uint64_t grown = xm_sched_grown(inner->sched);
        s->out.count = 0;
        engine_run(s->r, s->engine, &s->out);
        assert_int_equal(s->out.count, 12);
        assert_int_equal(xm_sched_grown(inner->sched), grown);
        if (round == 0) /* the device has its own memory, too */
            live = rig_live(s->r);
        assert_int_equal(rig_live(s->r), live);
    }
}

/* ---- weights ------------------------------------------------------------ */

static void lease_stops_the_optimizer(void **state)
{
    stage *s = *state;
    xray_request q = request_make(1, prompt, 6, 5);
    engine_submit(s->r, s->engine, &q);
    assert_int_equal(owner_step(&s->o, s->m), XRAY_E_STATE);
    engine_run(s->r, s->engine, &s->out);
    assert_int_equal(owner_step(&s->o, s->m), XRAY_OK);
    assert_int_equal(s->r->ops->update(s->engine, NULL, 4), XRAY_E_ARG);
    rig_expect_said(
        s->r, "dsinf: the shared weights are at version 5, 4 was expected");
    assert_int_equal(s->r->ops->update(s->engine, NULL, 5), XRAY_OK);
    q.id = 2;
    engine_submit(s->r, s->engine, &q);
    while (step_engine(s) == XRAY_OK)
        ;
    xray_sample_out out = { .header = XRAY_HEADER(xray_sample_out) };
    assert_int_equal(s->r->ops->poll(s->engine, &out), XRAY_OK);
    assert_int_equal(out.span_count, 1);
    assert_int_equal(out.spans[0].version, 5);
    assert_int_equal(out.spans[0].first, 6);
    assert_int_equal(out.spans[0].last, 11);
    /* other weights, other log-probabilities */
    assert_true(out.raw_logp[0] < s->out.r[0].raw[0] ||
                out.raw_logp[0] > s->out.r[0].raw[0]);
    s->o.refuse = 1;
    assert_int_equal(s->r->ops->submit(s->engine, &q), XRAY_E_STATE);
    rig_expect_said(s->r, "dsinf: the trainer refused a lease on its weights");
}

static void run_one_request(stage *s, void *engine, results *out)
{
    xray_request q = request_make(1, prompt, 6, 20);
    engine_submit(s->r, engine, &q);
    engine_run(s->r, engine, out);
}

static void own_weights_are_copied(void **state)
{
    stage *s = *state;
    void *own = NULL;
    assert_int_equal(engine_try(s->r, s->m, NULL, &small_size, &own), XRAY_OK);
    results *a = calloc(1, sizeof(*a));
    results *b = calloc(1, sizeof(*b));
    assert_true(a && b);
    run_one_request(s, s->engine, &s->out);
    run_one_request(s, own, a);
    results_equal(&s->out, a); /* drawn from the same seed */
    assert_int_equal(s->r->ops->update(own, NULL, 1), XRAY_E_ARG);
    assert_non_null(strstr(s->r->said, "`from` must name"));
    assert_int_equal(owner_step(&s->o, s->m), XRAY_OK);
    assert_int_equal(s->r->ops->update(own, &s->table, 5), XRAY_OK);
    s->out.count = a->count = 0;
    run_one_request(s, s->engine, &s->out);
    run_one_request(s, own, a);
    results_equal(&s->out, a);
    s->r->ops->destroy(own);
    free(a);
    free(b);
}

/* A table whose q, k and v do not share a handle is copied and logged. */
static void table_that_cannot_be_shared(void **state)
{
    stage *s = *state;
    uint32_t n = s->table.tensor_count;
    xray_tensor *loose = calloc(n, sizeof(*loose));
    assert_non_null(loose);
    memcpy(loose, s->table.tensors, n * sizeof(*loose));
    for (uint32_t i = 0; i < n; i++) {
        loose[i].weight = NULL;
        loose[i].weight_row = 0;
    }
    xray_weights table = s->table;
    table.tensors = loose;
    void *engine = NULL;
    if (engine_try(s->r, s->m, &table, &small_size, &engine) != XRAY_OK)
        fail_msg("%s", s->r->said);
    assert_non_null(strstr(s->r->log, "cannot be shared"));
    results *a = calloc(1, sizeof(*a));
    assert_non_null(a);
    run_one_request(s, s->engine, &s->out);
    run_one_request(s, engine, a);
    results_equal(&s->out, a);
    assert_int_equal(owner_step(&s->o, s->m), XRAY_OK);
    assert_int_equal(s->r->ops->update(engine, NULL, 5), XRAY_OK);
    s->out.count = a->count = 0;
    run_one_request(s, s->engine, &s->out);
    run_one_request(s, engine, a);
    results_equal(&s->out, a);
    free(a);
    s->r->ops->destroy(engine);
    free(loose);
}

/* Tensors [first, last) of the trainer's table. */
static xray_weights part_of_table(const stage *s, uint32_t first, uint32_t last)
{
    xray_weights part = s->table;
    part.tensors += first;
    part.tensor_count = last - first;
    return part;
}

static void weights_come_in_parts(void **state)
{
    stage *s = *state;
    const xray_infer_ops *ops = s->r->ops;
    engine_size size = small_size;
    size.config.weights = XM_ENGINE_WEIGHTS_FLOAT32;
    void *own = NULL;
    assert_null(ops->weights(s->engine));
    assert_int_equal(engine_try(s->r, s->m, &s->table, &size, &own), XRAY_OK);
    const xray_weights *table = ops->weights(own);
    assert_non_null(table);
    assert_int_equal(table->version(table->owner), 4);
    results *a = calloc(1, sizeof(*a));
    assert_non_null(a);
    run_one_request(s, own, a);
    assert_int_equal(s->o.leases, 0); /* a copy needs no lease */
    assert_int_equal(owner_step(&s->o, s->m), XRAY_OK);
    xray_weights some = part_of_table(s, 0, 3);
    assert_int_equal(ops->update(own, &some, 5), XRAY_OK);
    xray_request q = request_make(2, prompt, 6, 4);
    assert_int_equal(ops->submit(own, &q), XRAY_E_STATE);
    rig_expect_said(
        s->r,
        "dsinf: an update has brought some new weights and has not ended yet");
    assert_int_equal(table->version(table->owner), 4);
    some = part_of_table(s, 3, s->table.tensor_count);
    assert_int_equal(ops->update(own, &some, 5), XRAY_OK);
    assert_int_equal(ops->update(own, NULL, 5), XRAY_OK);
    assert_int_equal(table->version(table->owner), 5);
    run_one_request(s, s->engine, &s->out);
    a->count = 0;
    run_one_request(s, own, a);
    results_equal(&s->out, a);
    for (uint32_t i = 0; i < table->tensor_count; i++)
        assert_memory_equal(table->tensors[i].data, s->table.tensors[i].data,
                            xray_box_count(&table->tensors[i]) * sizeof(float));
    /* A tensor that is left out keeps its values; NULL ends the update. */
    some = part_of_table(s, 1, 2);
    assert_int_equal(ops->update(own, &some, 6), XRAY_OK);
    /* Weights of the last update do not count for this one. */
    assert_int_equal(ops->submit(own, &q), XRAY_E_STATE);
    assert_int_equal(table->version(table->owner), 5);
    assert_int_equal(ops->update(own, NULL, 6), XRAY_OK);
    assert_int_equal(table->version(table->owner), 6);
    a->count = 0;
    run_one_request(s, own, a);
    results_equal(&s->out, a);
    ops->destroy(own);
    free(a);
}

/* The trainer's matrices, rounded as bf16 and then shared by handle, give the
 * same bits as an engine that keeps them as bf16. */
static void rounded_weights(void **state)
{
    stage *s = *state;
    const xray_infer_ops *ops = s->r->ops;
    engine_size size = small_size;
    size.config.weights = XM_ENGINE_WEIGHTS_BFLOAT16;
    void *narrow = NULL;
    assert_int_equal(engine_try(s->r, s->m, &s->table, &size, &narrow),
                     XRAY_OK);
    results *a = calloc(1, sizeof(*a));
    results *b = calloc(1, sizeof(*b));
    assert_true(a && b);
    run_one_request(s, s->engine, &s->out);
    run_one_request(s, narrow, a);
    assert_true(a->r[0].raw[0] < s->out.r[0].raw[0] ||
                a->r[0].raw[0] > s->out.r[0].raw[0]);
    const xray_weights *table = ops->weights(narrow);
    for (uint32_t i = 0; i < table->tensor_count; i++) {
        const xray_tensor *t = &table->tensors[i];
        float *values = s->table.tensors[i].data;
        assert_int_equal(t->dtype, t->dims == 2 ? XRAY_BF16 : XRAY_F32);
        for (uint64_t k = 0; t->dims == 2 && k < xray_box_count(t); k++) {
            values[k] = xm_bf16_to_f32(xm_f32_to_bf16(values[k]));
            assert_int_equal(((const uint16_t *)t->data)[k],
                             xm_f32_to_bf16(values[k]));
        }
    }
    xr_err err = { "" };
    assert_int_equal(xm_weights_changed(s->m->weights, 4, &err), XRAY_OK);
    run_one_request(s, s->engine, b);
    results_equal(a, b);
    /* New values are rounded, too. */
    assert_int_equal(owner_step(&s->o, s->m), XRAY_OK);
    assert_int_equal(ops->update(narrow, NULL, 5), XRAY_OK);
    b->count = 0;
    run_one_request(s, narrow, b);
    assert_memory_not_equal(a->r[0].raw, b->r[0].raw, sizeof(float) * 4);
    ops->destroy(narrow);
    free(a);
    free(b);
}

/* ---- pause, sleep ------------------------------------------------------- */

static void pause_and_sleep(void **state)
{
    stage *s = *state;
    const uint32_t kv = 1u << XRAY_TAG_KV;
    const xray_infer_ops *ops = s->r->ops;
    results *a = calloc(1, sizeof(*a));
    assert_non_null(a);
    run_one_request(s, s->engine, a);
    xray_request q = request_make(1, prompt, 6, 20);
    engine_submit(s->r, s->engine, &q);
    for (int i = 0; i < 3; i++)
        (void)step_engine(s);
    assert_int_equal(ops->pause(s->engine, XRAY_PAUSE_KEEP), XRAY_OK);
    uint64_t steps = engine_stats(s).steps;
    assert_int_equal(step_engine(s), XRAY_END);
    assert_int_equal(engine_stats(s).steps, steps);
    assert_int_equal(ops->sleep(s->engine, kv), XRAY_E_STATE);
    assert_int_equal(ops->resume(s->engine), XRAY_OK);
    engine_run(s->r, s->engine, &s->out);
    results_equal(a, &s->out);

    uint64_t live = rig_live(s->r);
    assert_int_equal(ops->sleep(s->engine, 1u << XRAY_TAG_GRADS),
                     XRAY_E_UNSUPPORTED);
    assert_int_equal(ops->sleep(s->engine, kv), XRAY_OK);
    assert_true(rig_live(s->r) < live);
    assert_int_equal(ops->submit(s->engine, &q), XRAY_E_STATE);
    rig_expect_said(s->r, "dsinf: the engine is asleep; wake it first");
    assert_int_equal(ops->wake(s->engine, kv), XRAY_OK);
    assert_int_equal(ops->wake(s->engine, kv), XRAY_OK);
    assert_int_equal(rig_live(s->r), live);
    s->out.count = 0;
    run_one_request(s, s->engine, &s->out);
    results_equal(a, &s->out);
    free(a);
}

/* ---- requests that are refused ------------------------------------------ */

static void submit_says_what_is_wrong(void **state)
{
    stage *s = *state;
    static const int32_t bad[] = { 1, 101 };
    xray_request q = request_make(8, bad, 2, 5);
    assert_int_equal(s->r->ops->submit(s->engine, &q), XRAY_E_ARG);
    rig_expect_said(s->r, "request 8: prompt id 101 at position 1 is "
                          "outside the vocabulary of 101");
    assert_int_equal(s->o.leases, 0);
    assert_int_equal(step_engine(s), XRAY_END);
    xray_sample_out out = { .header = XRAY_HEADER(xray_sample_out) };
    assert_int_equal(s->r->ops->poll(s->engine, &out), XRAY_END);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(stop_length_and_last_position),
        TEST(abort_keeps_what_was_made),
        TEST(more_requests_than_slots),
        TEST(step_takes_no_memory),
        TEST(lease_stops_the_optimizer),
        TEST(own_weights_are_copied),
        TEST(table_that_cannot_be_shared),
        TEST(weights_come_in_parts),
        TEST(rounded_weights),
        TEST(pause_and_sleep),
        TEST(submit_says_what_is_wrong),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
