/* SPDX-License-Identifier: Apache-2.0
 *
 * Proves which memory an engine evicts while it sleeps, and what it needs to
 * wake.
 */
#include "tests/serve/engine.h"

static const int32_t prompt[] = { 1, 2, 3, 4, 5, 6 };
static const uint32_t weights = 1u << XRAY_TAG_WEIGHTS;
static const uint32_t activations = 1u << XRAY_TAG_ACTIVATIONS;
static const uint32_t all =
    1u << XRAY_TAG_WEIGHTS | 1u << XRAY_TAG_ACTIVATIONS | 1u << XRAY_TAG_KV;

typedef struct stage {
    rig *r;
    model *m;
    void *engine;
    results before;
    results after;
} stage;

static void open_stage(stage *s, int64_t kind)
{
    engine_size size = { .rows = 3,
                         .row_tokens = 40,
                         .config = { .max_num_batched_tokens = 32,
                                     .weights = kind } };
    memset(s, 0, sizeof(*s));
    s->r = rig_open(1);
    s->m = model_open(s->r, MODEL_LLAMA_UNTIED);
    if (engine_try(s->r, s->m, &s->m->weights->table, &size, &s->engine) !=
        XRAY_OK)
        fail_msg("%s", s->r->said);
}

static void close_stage(stage *s)
{
    s->r->ops->destroy(s->engine);
    model_close(s->m);
    rig_close(s->r);
    free(s);
}

static void run_one_request(stage *s, results *out)
{
    xray_request q = request_make(1, prompt, 6, 20);
    q.count = 2;
    out->count = 0;
    engine_submit(s->r, s->engine, &q);
    engine_run(s->r, s->engine, out);
}

static uint64_t live_bytes(const rig *r, uint32_t tag)
{
    xray_memory_stats stats = { .header = XRAY_HEADER(xray_memory_stats) };
    assert_int_equal(r->device->memory(r->device_self, &stats), XRAY_OK);
    return stats.live[tag];
}

/* Shared weights stay in memory, everything else is evicted. */
static void shared_weights_stay_during_sleep(void **state)
{
    (void)state;
    stage *s = calloc(1, sizeof(*s));
    assert_non_null(s);
    open_stage(s, XM_ENGINE_WEIGHTS_AUTO);
    run_one_request(s, &s->before);
    uint64_t live = rig_live(s->r);
    uint64_t held = live_bytes(s->r, XRAY_TAG_WEIGHTS);
    assert_int_equal(s->r->ops->sleep(s->engine, all), XRAY_OK);
    assert_int_equal(live_bytes(s->r, XRAY_TAG_WEIGHTS), held);
    assert_int_equal(live_bytes(s->r, XRAY_TAG_ACTIVATIONS), 0);
    assert_int_equal(live_bytes(s->r, XRAY_TAG_KV), 0);
    assert_int_equal(s->r->ops->wake(s->engine, all & ~activations), XRAY_OK);
    xray_request q = request_make(1, prompt, 6, 20);
    assert_int_equal(s->r->ops->submit(s->engine, &q), XRAY_E_STATE);
    assert_non_null(strstr(s->r->said, "asleep"));
    assert_int_equal(s->r->ops->wake(s->engine, all), XRAY_OK);
    assert_int_equal(rig_live(s->r), live);
    run_one_request(s, &s->after);
    results_equal(&s->before, &s->after);
    close_stage(s);
}

/* Own weights must all be loaded again before the next request. */
static void own_weights_must_come_again_after_sleep(void **state)
{
    (void)state;
    static const int64_t kinds[] = { XM_ENGINE_WEIGHTS_FLOAT32,
                                     XM_ENGINE_WEIGHTS_BFLOAT16 };
    for (int k = 0; k < 2; k++) {
        stage *s = calloc(1, sizeof(*s));
        assert_non_null(s);
        open_stage(s, kinds[k]);
        const xray_infer_ops *ops = s->r->ops;
        const xray_weights *table = &s->m->weights->table;
        run_one_request(s, &s->before);
        uint64_t live = rig_live(s->r);
        uint64_t trainers = live_bytes(s->r, XRAY_TAG_WEIGHTS);
        assert_int_equal(ops->sleep(s->engine, all), XRAY_OK);
        assert_int_equal(ops->sleep(s->engine, all), XRAY_OK);
        assert_true(live_bytes(s->r, XRAY_TAG_WEIGHTS) < trainers);
        assert_int_equal(ops->update(s->engine, table, 1), XRAY_E_STATE);
        assert_int_equal(ops->wake(s->engine, all), XRAY_OK);
        xray_request q = request_make(1, prompt, 6, 20);
        assert_int_equal(ops->submit(s->engine, &q), XRAY_E_STATE);
        assert_non_null(strstr(s->r->said, "bring all of them"));
        /* A part of them is not enough. */
        xray_weights part = *table;
        part.tensor_count = 3;
        assert_int_equal(ops->update(s->engine, &part, 1), XRAY_OK);
        assert_int_equal(ops->update(s->engine, NULL, 1), XRAY_E_STATE);
        assert_int_equal(ops->submit(s->engine, &q), XRAY_E_STATE);
        assert_int_equal(ops->update(s->engine, table, 1), XRAY_OK);
        assert_int_equal(ops->update(s->engine, NULL, 1), XRAY_OK);
        assert_int_equal(rig_live(s->r), live);
        run_one_request(s, &s->after);
        results_equal(&s->before, &s->after);
        assert_int_equal(ops->sleep(s->engine, weights), XRAY_OK);
        close_stage(s); /* asleep */
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shared_weights_stay_during_sleep),
        cmocka_unit_test(own_weights_must_come_again_after_sleep),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
