/* SPDX-License-Identifier: Apache-2.0
 *
 * Proves how an engine behaves when its device fails: a step that ends early,
 * memory that cannot be restored, the lease that is released in any case, and
 * calls in the wrong order.
 */
#include "model/serve/engine_internal.h"
#include "tests/serve/engine.h"

static const int32_t prompt[] = { 1, 2, 3, 4, 5, 6 };
#define KV (1u << XRAY_TAG_KV)
#define WEIGHTS (1u << XRAY_TAG_WEIGHTS)
#define ACTIVATIONS (1u << XRAY_TAG_ACTIVATIONS)

/* ---- a device that fails on request
 * ----------------------------------------- */

static const xray_device_ops *cpu;
static struct {
    uint32_t copy; /* 1: this call fails; the others likewise */
    uint32_t gather;
    uint32_t sample;
    uint32_t evict;
    uint32_t weight_evict;
    uint32_t restore;
    uint32_t alloc;
    uint64_t copied; /* bytes copied on the device */
    uint32_t copies;
    const void *drawn; /* destination of hidden states gathered for draws */
} fails;

static xray_status fail_copy(void *self, xray_stream *stream, void *to,
                             const void *from, uint64_t bytes, uint32_t kind)
{
    if (kind == XRAY_COPY_ON_DEVICE) {
        fails.copied += bytes;
        fails.copies++;
    }
    return fails.copy && kind == XRAY_COPY_ON_DEVICE
               ? XRAY_E_DEVICE
               : cpu->copy(self, stream, to, from, bytes, kind);
}

static xray_status fail_gather(void *self, xray_stream *stream,
                               const xray_rows *rows)
{
    return fails.gather && rows->y == fails.drawn
               ? XRAY_E_DEVICE
               : cpu->gather(self, stream, rows);
}

static xray_status fail_sample(void *self, xray_stream *stream,
                               const xray_sample *call)
{
    return fails.sample ? XRAY_E_NUMERIC : cpu->sample(self, stream, call);
}

static xray_status fail_evict(void *self, void *ptr)
{
    return fails.evict ? XRAY_E_DEVICE : cpu->evict(self, ptr);
}

static xray_status fail_weight_evict(void *self, xray_weight *weight)
{
    return fails.weight_evict ? XRAY_E_DEVICE : cpu->weight_evict(self, weight);
}

static xray_status fail_restore(void *self, void *ptr)
{
    return fails.restore ? XRAY_E_NOMEM : cpu->restore(self, ptr);
}

static xray_status fail_alloc(void *self, const char *owner, uint32_t tag,
                              uint64_t bytes, void **out)
{
    return fails.alloc && tag == XRAY_TAG_KV
               ? XRAY_E_NOMEM
               : cpu->alloc(self, owner, tag, bytes, out);
}

/* ---- a trainer and an engine -------------------------------------------- */

typedef struct stage {
    rig *r;
    model *m;
    xray_device_ops ops;
    xray_weights table;
    uint32_t leases;
    uint32_t reserved;
    uint64_t version;
    void *engine;
    results out;
} stage;

static uint64_t stage_version(void *owner)
{
    return ((stage *)owner)->version;
}

static xray_status stage_lease(void *owner)
{
    ((stage *)owner)->leases++;
    return XRAY_OK;
}

static void stage_release(void *owner)
{
    ((stage *)owner)->leases--;
}

static stage *open_stage(int64_t weights, uint64_t rows)
{
    const engine_size size = { .rows = rows,
                               .row_tokens = 40,
                               .config = { .max_num_batched_tokens = 64,
                                           .weights = weights } };
    stage *s = calloc(1, sizeof(*s));
    assert_non_null(s);
    memset(&fails, 0, sizeof(fails));
    s->r = rig_open(1);
    cpu = s->r->device;
    s->ops = *cpu;
    s->ops.copy = fail_copy;
    s->ops.gather = fail_gather;
    s->ops.sample = fail_sample;
    s->ops.evict = fail_evict;
    s->ops.weight_evict = fail_weight_evict;
    s->ops.restore = fail_restore;
    s->ops.alloc = fail_alloc;
    s->r->device = &s->ops;
    s->m = model_open(s->r, MODEL_LLAMA);
    s->table = s->m->weights->table;
    s->table.owner = s;
    s->table.version = stage_version;
    s->table.lease = stage_lease;
    s->table.release = stage_release;
    if (engine_try(s->r, s->m, &s->table, &size, &s->engine) != XRAY_OK)
        fail_msg("%s", s->r->said);
    fails.drawn = ((xm_engine *)s->engine)->gathered;
    return s;
}

static void close_stage(stage *s)
{
    memset(&fails, 0, sizeof(fails));
    s->r->ops->destroy(s->engine);
    assert_int_equal(s->leases, 0);
    model_close(s->m);
    assert_int_equal(rig_live(s->r), rig_scratch(s->r));
    rig_close(s->r);
    free(s);
}

static xray_request make_test_request(uint64_t id, uint32_t samples,
                                      uint32_t tokens)
{
    xray_request q = request_make(id, prompt, 6, tokens);
    q.count = samples;
    return q;
}

/* ---- a step that fails -------------------------------------------------- */

static void expect_broken(stage *s)
{
#define GONE "dsinf: an earlier step failed; the engine can only be destroyed"
    const xray_request q = make_test_request(7, 1, 4);
    s->r->said[0] = '\0';
    assert_int_equal(s->r->ops->step(s->engine), XRAY_E_STATE);
    rig_expect_said(s->r, GONE);
    s->r->said[0] = '\0';
    assert_int_equal(s->r->ops->submit(s->engine, &q), XRAY_E_STATE);
    rig_expect_said(s->r, GONE);
    s->r->said[0] = '\0';
    assert_int_equal(s->r->ops->extend(s->engine, 1, 0, prompt, 1),
                     XRAY_E_STATE);
    rig_expect_said(s->r, GONE);
}

static void broken_engines(void **state)
{
    (void)state;
    static const struct {
        uint32_t *fails;
        xray_status status;
        const char *says;
        uint32_t samples;
    } cases[] = {
        { &fails.sample, XRAY_E_NUMERIC, "dsinf: sampling failed", 1 },
        { &fails.gather, XRAY_E_DEVICE, "dsinf: sampling failed", 2 },
        { &fails.copy, XRAY_E_DEVICE, "dsinf: copying a prompt failed", 2 },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        stage *s = open_stage(XM_ENGINE_WEIGHTS_AUTO, 3);
        const xray_request q = make_test_request(1, cases[i].samples, 20);
        xray_status status = XRAY_OK;
        *cases[i].fails = 1;
        engine_submit(s->r, s->engine, &q);
        for (int k = 0; k < 5 && status == XRAY_OK; k++)
            status = s->r->ops->step(s->engine);
        assert_int_equal(status, cases[i].status);
        rig_expect_said(s->r, cases[i].says);
        *cases[i].fails = 0; /* a broken engine stays broken */
        expect_broken(s);
        assert_int_equal(s->leases, 1);
        close_stage(s);
    }
}

/* ---- the lease ---------------------------------------------------------- */

/* The lease is taken once, and released with the last request that runs or is
 * held. */
static void lease_goes_with_the_last(void **state)
{
    (void)state;
    stage *s = open_stage(XM_ENGINE_WEIGHTS_AUTO, 3);
    const xray_infer_ops *ops = s->r->ops;
    xray_request q = make_test_request(1, 1, 2);
    engine_submit(s->r, s->engine, &q);
    q = make_test_request(2, 1, 9);
    engine_submit(s->r, s->engine, &q);
    assert_int_equal(s->leases, 1);
    while (s->out.count ==
           0) { /* the first one is complete, the second is not */
        assert_int_equal(ops->step(s->engine), XRAY_OK);
        engine_poll(s->r, s->engine, &s->out);
    }
    assert_int_equal(s->leases, 1);
    engine_run(s->r, s->engine, &s->out);
    assert_int_equal(s->leases, 0);
    /* The lease of a held request ends when it is released; with two samples,
     * when the second one is. */
    q = make_test_request(3, 2, 2);
    q.hold = 1;
    engine_submit(s->r, s->engine, &q);
    engine_run(s->r, s->engine, &s->out);
    assert_int_equal(s->leases, 1);
    assert_int_equal(ops->release(s->engine, 3, 0), XRAY_OK);
    assert_int_equal(s->leases, 1);
    assert_int_equal(ops->release(s->engine, 3, 5), XRAY_E_ARG);
    assert_int_equal(s->leases, 1);
    assert_int_equal(ops->release(s->engine, 3, 1), XRAY_OK);
    assert_int_equal(s->leases, 0);
    close_stage(s);
}

/* While a pause keeps everything, the trainer has its weights for itself. */
static void a_pause_gives_the_lease_back(void **state)
{
    (void)state;
    stage *s = open_stage(XM_ENGINE_WEIGHTS_AUTO, 3);
    const xray_infer_ops *ops = s->r->ops;
    xray_request q = make_test_request(1, 1, 9);
    engine_submit(s->r, s->engine, &q);
    assert_int_equal(ops->step(s->engine), XRAY_OK);
    assert_int_equal(ops->pause(s->engine, XRAY_PAUSE_KEEP), XRAY_OK);
    assert_int_equal(s->leases, 0);
    q = make_test_request(2, 1, 2);
    q.hold = 1;
    engine_submit(s->r, s->engine, &q);
    assert_int_equal(s->leases, 0);
    assert_int_equal(ops->resume(s->engine), XRAY_OK);
    assert_int_equal(s->leases, 1);
    engine_run(s->r, s->engine, &s->out);
    assert_int_equal(s->leases, 1); /* one is held */
    assert_int_equal(ops->pause(s->engine, XRAY_PAUSE_KEEP), XRAY_OK);
    assert_int_equal(s->leases, 0);
    assert_int_equal(ops->extend(s->engine, 2, 0, prompt, 1), XRAY_OK);
    assert_int_equal(s->leases, 0);
    assert_int_equal(ops->resume(s->engine), XRAY_OK);
    assert_int_equal(s->leases, 1);
    engine_run(s->r, s->engine, &s->out);
    assert_int_equal(ops->release(s->engine, 2, 0), XRAY_OK);
    assert_int_equal(s->leases, 0);
    /* After the pause, all is as before it. */
    assert_int_equal(ops->pause(s->engine, XRAY_PAUSE_KEEP), XRAY_OK);
    assert_int_equal(ops->resume(s->engine), XRAY_OK);
    assert_int_equal(s->leases, 0);
    engine_submit(s->r, s->engine, &q);
    assert_int_equal(s->leases, 1);
    engine_run(s->r, s->engine, &s->out);
    assert_int_equal(s->leases, 1);
    assert_int_equal(ops->extend(s->engine, 2, 0, prompt, 1), XRAY_OK);
    engine_run(s->r, s->engine, &s->out);
    assert_int_equal(ops->release(s->engine, 2, 0), XRAY_OK);
    assert_int_equal(s->out.count, 5);
    close_stage(s);
}

/* ---- prompts that are copied -------------------------------------------- */

/* Complete blocks of a prompt of `count` tokens are copied to the second slot,
 * or in a paged cache the block that is partly filled: keys and values in each
 * of 3 layers. The samples are those of separate requests. */
static void prompts_are_copied(void **state)
{
    (void)state;
    static const struct {
        uint32_t count;
        uint64_t blocks;
    } cases[] = { { 2, 1 },  { 15, 1 }, { 16, 1 },
                  { 17, 2 }, { 32, 2 }, { 33, 3 } };
    int32_t ids[40];
    for (int32_t i = 0; i < 40; i++)
        ids[i] = 3 + i;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        stage *s = open_stage(XM_ENGINE_WEIGHTS_AUTO, 3);
        results *alone = calloc(1, sizeof(*alone));
        assert_non_null(alone);
        xray_request q = request_make(1, ids, cases[i].count, 5);
        q.count = 2;
        engine_submit(s->r, s->engine, &q);
        engine_run(s->r, s->engine, &s->out);
        uint64_t each = ((xm_engine *)s->engine)->block_bytes;
        uint64_t blocks =
            s->r->paged.block_size ? cases[i].count % 16 != 0 : cases[i].blocks;
        assert_true(fails.copies >= 3 * (blocks != 0));
        assert_int_equal(fails.copied, 3 * blocks * each);
        q.count = 1;
        for (uint32_t k = 0; k < 2; k++) {
            q.first_sample = k;
            engine_submit(s->r, s->engine, &q);
            engine_run(s->r, s->engine, alone);
        }
        results_equal(&s->out, alone);
        free(alone);
        close_stage(s);
    }
}

/* ---- sleep -------------------------------------------------------------- */

static void expect_submit(stage *s, xray_status status)
{
    const xray_request q = make_test_request(1, 1, 4);
    assert_int_equal(s->r->ops->submit(s->engine, &q), status);
    if (status != XRAY_OK)
        rig_expect_said(s->r, "dsinf: the engine is asleep; wake it first");
    else
        assert_int_equal(s->r->ops->abort(s->engine, 1, XRAY_ALL_SAMPLES),
                         XRAY_OK);
}

/* The engine is asleep until every tag that sleeps is awake. */
static void tags_sleep_by_themselves(void **state)
{
    (void)state;
    static const uint32_t tags[] = { KV, ACTIVATIONS };
    for (int i = 0; i < 2; i++) {
        stage *s = open_stage(XM_ENGINE_WEIGHTS_AUTO, 3);
        const xray_infer_ops *ops = s->r->ops;
        assert_int_equal(ops->sleep(s->engine, tags[i]), XRAY_OK);
        expect_submit(s, XRAY_E_STATE);
        assert_int_equal(ops->wake(s->engine, tags[1 - i]), XRAY_OK);
        expect_submit(s, XRAY_E_STATE);
        assert_int_equal(ops->sleep(s->engine, WEIGHTS),
                         XRAY_OK); /* not the engine's own */
        assert_int_equal(ops->wake(s->engine, tags[i]), XRAY_OK);
        expect_submit(s, XRAY_OK);
        close_stage(s);
    }
}

static void sleep_that_fails(void **state)
{
    (void)state;
    static const struct {
        uint32_t *fails;
        uint32_t tags;
        int wakes; /* 1: waking up fails */
        xray_status status;
        const char *says;
    } cases[] = {
        { &fails.evict, ACTIVATIONS, 0, XRAY_E_DEVICE,
          "the device could not evict memory" },
        { &fails.weight_evict, WEIGHTS, 0, XRAY_E_DEVICE,
          "the device could not evict memory" },
        { &fails.restore, ACTIVATIONS, 1, XRAY_E_NOMEM,
          "no device memory for weights or activations" },
        { &fails.restore, WEIGHTS, 1, XRAY_E_NOMEM,
          "no device memory for weights or activations" },
        { &fails.alloc, KV, 1, XRAY_E_NOMEM,
          "keys and values (max_num_seqs or kv_memory lower it)" },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        stage *s = open_stage(XM_ENGINE_WEIGHTS_FLOAT32, 3);
        const xray_infer_ops *ops = s->r->ops;
        if (cases[i].wakes)
            assert_int_equal(ops->sleep(s->engine, cases[i].tags), XRAY_OK);
        *cases[i].fails = 1;
        assert_int_equal(cases[i].wakes ? ops->wake(s->engine, cases[i].tags)
                                        : ops->sleep(s->engine, cases[i].tags),
                         cases[i].status);
        assert_non_null(strstr(s->r->said, cases[i].says));
        *cases[i].fails = 0;
        if (cases[i].wakes) {
            expect_submit(s, XRAY_E_STATE);
            assert_int_equal(ops->wake(s->engine, cases[i].tags), XRAY_OK);
            assert_int_equal(ops->update(s->engine, &s->m->weights->table, 1),
                             XRAY_OK);
            assert_int_equal(ops->update(s->engine, NULL, 1), XRAY_OK);
            expect_submit(s, XRAY_OK);
        }
        close_stage(s);
    }
}

/* A device that cannot evict memory serves an engine that only frees keys and
 * values. */
static void device_that_keeps_all(void **state)
{
    (void)state;
    stage *s = open_stage(XM_ENGINE_WEIGHTS_AUTO, 3);
    const xray_infer_ops *ops = s->r->ops;
    s->ops.evict = NULL;
    static const uint32_t tags[] = { ACTIVATIONS, WEIGHTS, KV | ACTIVATIONS };
    for (int i = 0; i < 3; i++) {
        assert_int_equal(ops->sleep(s->engine, tags[i]), XRAY_E_UNSUPPORTED);
        rig_expect_said(s->r, "dsinf: the device cannot evict memory");
    }
    expect_submit(s, XRAY_OK);
    assert_int_equal(ops->sleep(s->engine, KV), XRAY_OK);
    assert_int_equal(ops->wake(s->engine, KV), XRAY_OK);
    assert_int_equal(ops->wake(s->engine, 1u << XRAY_TAG_WORKSPACE),
                     XRAY_E_UNSUPPORTED);
    rig_expect_said(s->r, "dsinf: keys and values, activations and own weights "
                          "can be evicted, but other tags cannot");
    close_stage(s);
}

/* An unfinished update is forgotten with the weights that it was for. */
static void sleep_forgets_half_an_update(void **state)
{
    (void)state;
    stage *s = open_stage(XM_ENGINE_WEIGHTS_FLOAT32, 3);
    const xray_infer_ops *ops = s->r->ops;
    const xray_request q = make_test_request(1, 1, 4);
    xray_weights part = s->m->weights->table;
    uint32_t all = part.tensor_count;
    part.tensor_count = 3;
    assert_int_equal(ops->update(s->engine, &part, 1), XRAY_OK);
    assert_int_equal(ops->sleep(s->engine, WEIGHTS), XRAY_OK);
    assert_int_equal(ops->wake(s->engine, WEIGHTS), XRAY_OK);
    part.tensors += 3;
    part.tensor_count = all - 3;
    assert_int_equal(ops->update(s->engine, &part, 1), XRAY_OK);
    assert_int_equal(ops->submit(s->engine, &q), XRAY_E_STATE);
    rig_expect_said(s->r, "dsinf: sleep has evicted the weights: an "
                          "update must bring all of them again");
    assert_int_equal(ops->update(s->engine, NULL, 1), XRAY_E_STATE);
    rig_expect_said(s->r, "dsinf: after sleep an update must bring "
                          "all weights, but some are missing");
    part.tensors -= 3;
    part.tensor_count = 3;
    assert_int_equal(ops->update(s->engine, &part, 1), XRAY_OK);
    engine_submit(s->r, s->engine, &q);
    engine_run(s->r, s->engine, &s->out);
    assert_int_equal(s->out.count, 1);
    close_stage(s);
}

/* ---- versions ----------------------------------------------------------- */

/* A result names the version of its weights: the owner's at that time, or of a
 * copy that of the last update; random weights have version 0. */
static void results_carry_the_weights_version(void **state)
{
    (void)state;
    static const int64_t kinds[] = { XM_ENGINE_WEIGHTS_AUTO,
                                     XM_ENGINE_WEIGHTS_FLOAT32 };
    for (int i = 0; i < 2; i++) {
        stage *s = open_stage(kinds[i], 3);
        const xray_infer_ops *ops = s->r->ops;
        for (uint64_t version = 0; version < 14; version += 7) {
            const xray_request q = make_test_request(version, 1, 3);
            xray_sample_out out = { .header = XRAY_HEADER(xray_sample_out) };
            s->version = version;
            if (version)
                assert_int_equal(ops->update(s->engine, &s->table, version),
                                 XRAY_OK);
            engine_submit(s->r, s->engine, &q);
            while (ops->step(s->engine) == XRAY_OK)
                ;
            assert_int_equal(ops->poll(s->engine, &out), XRAY_OK);
            assert_int_equal(out.span_count, 1);
            assert_int_equal(out.spans[0].version, version);
            const xray_weights *own = ops->weights(s->engine);
            if (i)
                assert_int_equal(own->version(own->owner), version);
            else
                assert_null(own);
        }
        /* Shared weights are the trainer's own table and no other. */
        if (!i) {
            assert_int_equal(ops->update(s->engine, &s->m->weights->table, 7),
                             XRAY_E_ARG);
            rig_expect_said(s->r, "dsinf: the weights are shared "
                                  "with another owner than `from`");
        }
        close_stage(s);
    }
}

/* An update ends with the last tensor or with a call after it; random weights
 * have no owner whose values could be loaded again. */
static void all_parts_end_an_update(void **state)
{
    (void)state;
    stage *s = open_stage(XM_ENGINE_WEIGHTS_AUTO, 3);
    const engine_size size = { 3, 40, { .max_num_batched_tokens = 64 } };
    const xray_infer_ops *ops = s->r->ops;
    void *own = NULL;
    assert_int_equal(engine_try(s->r, s->m, NULL, &size, &own), XRAY_OK);
    assert_int_equal(ops->update(own, &s->table, 5), XRAY_OK);
    assert_int_equal(ops->update(own, NULL, 5), XRAY_OK);
    assert_int_equal(ops->update(own, NULL, 5), XRAY_E_ARG);
    ops->destroy(own);
    close_stage(s);
}

/* A row more than fits takes no slot, and a plan names the tags that may be
 * evicted. */
static void plan_refuses_a_row_too_many(void **state)
{
    (void)state;
    stage *s = open_stage(XM_ENGINE_WEIGHTS_AUTO, 3);
    const engine_size size = { .config = { .max_num_batched_tokens = 64,
                                           .kv_memory = 3 * 36864 } };
    engine_config own;
    const void *config = rig_config(s->r, &size, &own);
    const xray_model about = { .header = XRAY_HEADER(xray_model),
                               .config_json = s->m->json,
                               .dtype = XRAY_F32 };
    const xray_world world = { .header = XRAY_HEADER(xray_world), .size = 1 };
    const xray_workload load = { .header = XRAY_HEADER(xray_workload),
                                 .rows = 4,
                                 .row_tokens = 96 };
    xray_plan plan = { .header = XRAY_HEADER(xray_plan) };
    assert_int_equal(
        s->r->ops->plan(&s->r->host, config, &about, &world, &load, &plan),
        XRAY_OK);
    assert_int_equal(plan.bytes[XRAY_TAG_KV], 3 * 36864);
    assert_int_equal(plan.evictable, WEIGHTS | ACTIVATIONS | KV);
    close_stage(s);
}

/* An engine alone that is to draw no weights has to find them somewhere. */
static void an_engine_needs_weights(void **state)
{
    (void)state;
    stage *s = open_stage(XM_ENGINE_WEIGHTS_AUTO, 3);
    const engine_size size = { .config = { .max_num_batched_tokens = 64 } };
    const xray_model about = { .header = XRAY_HEADER(xray_model),
                               .config_json = s->m->json,
                               .dtype = XRAY_F32 };
    const xray_world world = { .header = XRAY_HEADER(xray_world), .size = 1 };
    const xray_workload load = { .header = XRAY_HEADER(xray_workload),
                                 .rows = 3,
                                 .row_tokens = 40 };
    const xray_setup setup = { .header = XRAY_HEADER(xray_setup),
                               .host = &s->r->host,
                               .device = s->r->device,
                               .device_self = s->r->device_self,
                               .model = &about,
                               .world = &world };
    engine_config own;
    void *engine = NULL;
    assert_int_equal(s->r->ops->create(&setup, rig_config(s->r, &size, &own),
                                       &load, &engine),
                     XRAY_E_CONFIG);
    rig_expect_said(s->r,
                    "dsinf: the model has no folder to read weights from");
    assert_null(engine);
    close_stage(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(broken_engines),
        cmocka_unit_test(lease_goes_with_the_last),
        cmocka_unit_test(a_pause_gives_the_lease_back),
        cmocka_unit_test(prompts_are_copied),
        cmocka_unit_test(tags_sleep_by_themselves),
        cmocka_unit_test(sleep_that_fails),
        cmocka_unit_test(device_that_keeps_all),
        cmocka_unit_test(sleep_forgets_half_an_update),
        cmocka_unit_test(results_carry_the_weights_version),
        cmocka_unit_test(all_parts_end_an_update),
        cmocka_unit_test(plan_refuses_a_row_too_many),
        cmocka_unit_test(an_engine_needs_weights),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
