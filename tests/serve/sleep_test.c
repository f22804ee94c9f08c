/* SPDX-License-Identifier: Apache-2.0
 *
 * Proves which memory an engine evicts while it sleeps, and what it needs to
 * wake.
 */
#include "tests/growth.h"
#include "tests/serve/engine.h"

#include <unistd.h>

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

/* An engine frees nothing but keys and values on a device that cannot take
 * memory back. */
static void a_device_may_keep_its_memory(void **state)
{
    (void)state;
    stage *s = calloc(1, sizeof(*s));
    assert_non_null(s);
    s->r = rig_open(1);
    const xray_device_ops *whole = s->r->device;
    const engine_size size = { .rows = 3, .row_tokens = 40 };
    xray_device_ops part = *whole;
    s->r->device = &part;
    s->m = model_open(s->r, MODEL_LLAMA_UNTIED);
    s->engine = engine_open(s->r, s->m, &size);
    for (int i = 0; i < LACK_EVICTIONS; i++) {
        part = *whole;
        LACK_EVICTION(part, i);
        assert_int_equal(s->r->ops->sleep(s->engine, activations),
                         XRAY_E_UNSUPPORTED);
        assert_non_null(strstr(s->r->said, "the device cannot evict memory"));
        assert_int_equal(
            s->r->ops->sleep(s->engine, all & ~weights & ~activations),
            XRAY_OK);
        assert_int_equal(s->r->ops->wake(s->engine, 1u << XRAY_TAG_KV),
                         XRAY_OK);
    }
    part = *whole;
    close_stage(s);
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

/* ---- what the system gets back --------------------------------------------
 */

/* 17 MB of weights, and 5 MB of keys and values. */
enum { WIDE_ROWS = 48, WIDE_TOKENS = 96, WIDE_PROMPT = 94 };
static const char wide[] =
    "{\"model_type\": \"llama\", \"hidden_size\": 128, "
    "\"intermediate_size\": 64, \"num_hidden_layers\": 1, "
    "\"num_attention_heads\": 4, \"num_key_value_heads\": 4, "
    "\"vocab_size\": 16384, \"rms_norm_eps\": 1e-5, \"rope_theta\": 10000, "
    "\"tie_word_embeddings\": false, \"max_position_embeddings\": 96}";

static uint64_t resident_bytes(void)
{
    unsigned long long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    assert_non_null(file);
    assert_int_equal(fscanf(file, "%*u %llu", &pages), 1);
    assert_int_equal(fclose(file), 0);
    return pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

/* The process shrinks by the memory of a tag, all of which was in use. */
static void put_to_sleep(rig *r, void *engine, uint32_t tag)
{
    uint64_t live = live_bytes(r, tag);
    uint64_t before = resident_bytes();
    assert_int_equal(r->ops->sleep(engine, 1u << tag), XRAY_OK);
    uint64_t freed = live - live_bytes(r, tag);
    uint64_t after = resident_bytes();
    assert_true(freed > 4u << 20);
    assert_true(before > after && before - after > freed - (1u << 20));
}

static void fill_cache(rig *r, void *engine, results *out)
{
    int32_t ids[WIDE_PROMPT] = { 0 };
    for (uint32_t i = 0; i < WIDE_ROWS; i++) {
        ids[0] = (int32_t)i;
        xray_request q = request_make(i, ids, WIDE_PROMPT, 2);
        engine_submit(r, engine, &q);
    }
    out->count = 0;
    engine_run(r, engine, out);
}

static void sleep_shrinks_the_process(void **state)
{
    (void)state;
    const engine_size size = { .rows = WIDE_ROWS,
                               .row_tokens = WIDE_TOKENS,
                               .config = { .max_num_batched_tokens = 256 } };
    xr_err err = { "" };
    results *before = calloc(2, sizeof(*before));
    rig *r = rig_open(1);
    model m = { .json = wide, .seed = 5 };
    void *engine = NULL;
    assert_non_null(before);
    assert_int_equal(xm_config_parse(wide, "test", &err, &m.config), XRAY_OK);
    if (engine_try(r, &m, NULL, &size, &engine) != XRAY_OK)
        fail_msg("%s", r->said);
    fill_cache(r, engine, before);
    put_to_sleep(r, engine, XRAY_TAG_KV);
    assert_int_equal(r->ops->wake(engine, all), XRAY_OK);
    fill_cache(r, engine, before + 1);
    results_equal(before, before + 1);
    put_to_sleep(r, engine, XRAY_TAG_KV);
    put_to_sleep(r, engine, XRAY_TAG_WEIGHTS);
    r->ops->destroy(engine);
    rig_close(r);
    free(before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_device_may_keep_its_memory),
        cmocka_unit_test(shared_weights_stay_during_sleep),
        cmocka_unit_test(own_weights_must_come_again_after_sleep),
        cmocka_unit_test(sleep_shrinks_the_process),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
