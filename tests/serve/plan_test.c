/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests that the engine's plan is what it takes, with what the device takes for
 * it, and refuses what cannot work.
 */
#include "tests/growth.h"
#include "tests/serve/engine.h"

#include <stdlib.h>

#include "model/nn/decoder.h"

/* A model of which no weights exist. */
static model describe_model(int which)
{
    rig *r = rig_open(1);
    model *m = model_open(r, which);
    model about = { .config = m->config, .json = m->json, .seed = m->seed };
    model_close(m);
    rig_close(r);
    return about;
}

static xray_status ask_plan(rig *r, const model *m, const engine_size *size,
                            const xray_workload *load, xray_plan *plan)
{
    xray_model about = { .header = XRAY_HEADER(xray_model),
                         .config_json = m->json,
                         .dtype = m->dtype ? m->dtype : XRAY_F32 };
    xray_world world = { .header = XRAY_HEADER(xray_world), .size = 1 };
    xray_workload own = *load;
    own.header = (xray_header)XRAY_HEADER(xray_workload);
    own.rows = size->rows;
    own.row_tokens = size->row_tokens;
    engine_config options;
    return r->ops->plan(&r->host, rig_config(r, size, &options), &about, &world,
                        &own, plan);
}

static xray_status make_plan(rig *r, const model *m, const engine_size *size,
                             const xray_workload *load, xray_plan *plan)
{
    *plan = (xray_plan){ .header = XRAY_HEADER(xray_plan) };
    return ask_plan(r, m, size, load, plan);
}

/* Samples once, with everything that a request may wish, so that the device has
 * taken its scratch memory. */
static void sample_one_token(rig *r, void *engine)
{
    static const int32_t prompt[] = { 1 };
    results *out = calloc(1, sizeof(*out));
    assert_non_null(out);
    xray_request q = request_make(1, prompt, 1, 1);
    q.repetition_penalty = 2;
    q.top_count = q.prompt_logp = 1;
    engine_submit(r, engine, &q);
    engine_run(r, engine, out);
    assert_int_equal(out->count, 1);
    free(out);
}

/* An engine with its own weights on its own device. */
static void check_plan(int which, const engine_size *size)
{
    const model about = describe_model(which);
    rig *r = rig_open(1);
    xray_plan plan;
    xray_device_work work = { .header = XRAY_HEADER(xray_device_work) };
    const xray_workload load = { .device = r->device, .device_work = &work };
    assert_int_equal(make_plan(r, &about, size, &load, &plan), XRAY_OK);
    if (size->config.weights == XM_ENGINE_WEIGHTS_BFLOAT16)
        assert_string_equal(plan.numerics, "xray.fp32-bf16-weights/2");
    else
        assert_null(plan.numerics);
    void *engine = NULL;
    if (engine_try(r, &about, NULL, size, &engine) != XRAY_OK)
        fail_msg("%s", r->said);
    sample_one_token(r, engine);
    for (uint32_t tag = 0; tag < XRAY_TAG_COUNT; tag++) {
        uint64_t high = rig_high(r, tag);
        uint64_t scratch =
            r->device->plan_scratch(NULL, 1, &work, 1, sizeof(work));
        /* a device may round each piece up to a line */
        uint64_t spare = tag == XRAY_TAG_WORKSPACE ? 256 : 0;
        uint64_t planned = plan.bytes[tag];
        planned += tag == XRAY_TAG_WORKSPACE ? scratch : 0;
        if (planned > high || planned + spare < high)
            fail_msg("model %d, tag %u: planned %llu, taken %llu", which, tag,
                     (unsigned long long)planned, (unsigned long long)high);
    }
    r->ops->destroy(engine);
    rig_close(r);
}

static void plan_is_what_is_taken(void **state)
{
    (void)state;
    const engine_size sizes[] = {
        { 1, 2, { .max_num_batched_tokens = 1 } },
        { 7, 50, { .max_num_batched_tokens = 100 } },
        { 100, 96, { .max_num_batched_tokens = 2048, .kv_memory = 1u << 20 } },
        { 2,
          9,
          { .weights = XM_ENGINE_WEIGHTS_BFLOAT16,
            .max_num_seqs = 1,
            .max_num_batched_tokens = 1 } },
    };
    for (int which = 0; which < MODEL_COUNT; which++)
        for (int i = 0; i < 4; i++)
            check_plan(which, &sizes[i]);
}

/* The bits depend on the type of activations, on whether weights are rounded,
 * and on whether ranks share KV heads, of which the model has two. */
static void numerics_name_what_changes_bits(void **state)
{
    static const struct {
        uint32_t dtype;
        int64_t weights;
        uint32_t ranks;
        const char *numerics;
    } cases[] = {
        { XRAY_F32, XM_ENGINE_WEIGHTS_AUTO, 1, NULL },
        { XRAY_F32, XM_ENGINE_WEIGHTS_AUTO, 2, NULL },
        { XRAY_F32, XM_ENGINE_WEIGHTS_AUTO, 4, XRAY_NUMERICS_FP32_SHARED_KV },
        { XRAY_F32, XM_ENGINE_WEIGHTS_BFLOAT16, 2,
          XRAY_NUMERICS_FP32_BF16_WEIGHTS },
        { XRAY_F32, XM_ENGINE_WEIGHTS_BFLOAT16, 4,
          XRAY_NUMERICS_FP32_BF16_WEIGHTS },
        { XRAY_BF16, XM_ENGINE_WEIGHTS_AUTO, 1, XRAY_NUMERICS_BF16 },
        { XRAY_BF16, XM_ENGINE_WEIGHTS_BFLOAT16, 2, XRAY_NUMERICS_BF16 },
        { XRAY_BF16, XM_ENGINE_WEIGHTS_AUTO, 4, XRAY_NUMERICS_BF16_SHARED_KV },
        { XRAY_BF16, XM_ENGINE_WEIGHTS_BFLOAT16, 4,
          XRAY_NUMERICS_BF16_SHARED_KV },
    };
    (void)state;
    model about = describe_model(MODEL_LLAMA);
    rig *r = rig_open(1);
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        xray_plan plan;
        const xray_workload load = { .shared = 1 };
        engine_size size = { 7, 50, { .max_num_batched_tokens = 100 } };
        about.dtype = cases[i].dtype;
        size.config.weights = cases[i].weights;
        size.config.tensor_model_parallel_size = cases[i].ranks;
        r->paged.tensor_model_parallel_size = cases[i].ranks;
        if (make_plan(r, &about, &size, &load, &plan) != XRAY_OK)
            fail_msg("%s", r->said);
        assert_string_equal(plan.numerics ? plan.numerics : "",
                            cases[i].numerics ? cases[i].numerics : "");
        assert_int_equal(plan.axis_count, cases[i].ranks > 1);
        if (plan.axis_count)
            assert_int_equal(plan.axes->size, cases[i].ranks);
    }
    rig_close(r);
}

static void shared_weights_are_not_counted(void **state)
{
    (void)state;
    const model about = describe_model(0);
    const engine_size size = { 7, 50, { .max_num_batched_tokens = 100 } };
    rig *r = rig_open(1);
    xray_plan plan;
    const xray_workload load = { .shared = 1, .device = r->device };
    assert_int_equal(make_plan(r, &about, &size, &load, &plan), XRAY_OK);
    assert_int_equal(plan.bytes[XRAY_TAG_WEIGHTS], 0);
    rig_close(r);
}

static void plan_refuses_what_cannot_be(void **state)
{
    (void)state;
    const model about = describe_model(0);
    rig *r = rig_open(1);
    if (r->paged.block_size) { /* serve.paged has what that engine refuses */
        rig_close(r);
        skip();
    }
    xray_plan plan;
    const xray_workload load = { .shared = 1 };
    engine_size size = { .rows = 8,
                         .row_tokens = 96,
                         .config = { .max_num_batched_tokens = 64,
                                     .kv_memory = 1000 } };
    /* 96 positions x 3 layers x 2 heads x 8 x 2 (k, v) x 4 bytes */
    assert_int_equal(make_plan(r, &about, &size, &load, &plan), XRAY_E_CONFIG);
    rig_expect_said(r, "dsinf: kv_memory of 1000 bytes is too small: one row "
                       "of 96 tokens takes 36864 bytes");
    size.config.kv_memory = 3 * 36864;
    assert_int_equal(make_plan(r, &about, &size, &load, &plan), XRAY_OK);
    assert_int_equal(plan.bytes[XRAY_TAG_KV], 3 * 36864);
    size.config.max_num_seqs = 4;
    assert_int_equal(make_plan(r, &about, &size, &load, &plan), XRAY_E_CONFIG);
    rig_expect_said(
        r, "dsinf: max_num_seqs = 4: 4 rows of 96 tokens take 147456 bytes, "
           "more than kv_memory = 110592; 3 rows fit");
    size.rows = 0;
    assert_int_equal(make_plan(r, &about, &size, &load, &plan), XRAY_E_CONFIG);
    rig_close(r);
}

/* ---- another device ----------------------------------------------------- */

/* A device whose figures the test makes up. */
static struct {
    uint64_t block;
    uint64_t weights; /* matrices that were asked for */
    uint64_t narrow;  /* of them in bf16 */
    uint32_t uses;    /* of any of them */
    const void *config;
} other;

static uint64_t plan_other_weight(const void *config,
                                  const xray_weight_desc *desc)
{
    other.config = config;
    other.weights++;
    other.narrow += desc->dtype == XRAY_BF16;
    other.uses |= desc->uses;
    return 1000;
}

static uint64_t plan_other_block(const void *config, const xray_kv *kv)
{
    assert_ptr_equal(config, other.config);
    assert_int_equal(kv->kv_heads * kv->head_dim, 16);
    return other.block;
}

static void the_device_is_asked(void **state)
{
    (void)state;
    const xray_device_ops ops = { .header = XRAY_HEADER(xray_device_ops),
                                  .plan_weight = plan_other_weight,
                                  .plan_kv_block = plan_other_block };
    const model about = describe_model(0);
    engine_size size = { 8, 96, { .max_num_batched_tokens = 64 } };
    const xray_workload none = { .shared = 0 };
    xray_device_work work = { .header = XRAY_HEADER(xray_device_work) };
    const xray_workload load = { .device = &ops,
                                 .device_config = &other,
                                 .device_work = &work };
    xray_plan bare;
    xray_plan plan;
    rig *r = rig_open(1);
    memset(&other, 0, sizeof(other));
    other.config = &other;
    other.block = 100;
    assert_int_equal(make_plan(r, &about, &size, &none, &bare), XRAY_OK);
    assert_int_equal(make_plan(r, &about, &size, &load, &plan), XRAY_OK);
    assert_ptr_equal(other.config, &other);
    assert_int_equal(plan.bytes[XRAY_TAG_WEIGHTS],
                     bare.bytes[XRAY_TAG_WEIGHTS] + 1000 * other.weights);
    assert_int_equal(plan.bytes[XRAY_TAG_WORKSPACE],
                     bare.bytes[XRAY_TAG_WORKSPACE]);
    assert_int_equal(plan.bytes[XRAY_TAG_ACTIVATIONS],
                     bare.bytes[XRAY_TAG_ACTIVATIONS]);
    /* 8 rows of 6 blocks of 16 positions in 3 layers */
    assert_int_equal(plan.bytes[XRAY_TAG_KV], 8 * 6 * 3 * 100);
    assert_int_equal(other.uses, XRAY_USE_NT);
    assert_int_equal(other.narrow, 0);
    assert_int_equal(work.passes, XRAY_PASS_CACHE | XRAY_PASS_SAMPLE);
    assert_int_equal(work.tokens, 64);
    assert_int_equal(work.row_tokens, 96);
    assert_int_equal(work.vocab, about.config.vocab);
    assert_int_equal(work.hidden, about.config.hidden);
    assert_int_equal(work.width, 2 * about.config.ffn);
    assert_int_equal(work.sides, 2 * about.config.ffn + about.config.hidden);
    /* Smaller blocks, more rows in the same memory. */
    size.config.kv_memory = 5 * 6 * 3 * 100;
    assert_int_equal(make_plan(r, &about, &size, &load, &plan), XRAY_OK);
    assert_int_equal(plan.bytes[XRAY_TAG_KV], 5 * 6 * 3 * 100);
    size.config.weights = XM_ENGINE_WEIGHTS_BFLOAT16;
    assert_int_equal(make_plan(r, &about, &size, &load, &plan), XRAY_OK);
    assert_int_equal(other.narrow * 3, other.weights);
    other.block = 0;
    assert_int_equal(make_plan(r, &about, &size, &load, &plan), XRAY_E_CONFIG);
    rig_expect_said(r, "dsinf: the device has no cache for heads of "
                       "dimension 8 in blocks of 16 tokens");
    rig_close(r);
}

/* A caller that was compiled against an older version. */
static void plans_of_older_callers_are_filled(void **state)
{
    (void)state;
    const model about = describe_model(0);
    const engine_size size = { 7,
                               50,
                               { .max_num_batched_tokens = 100,
                                 .weights = XM_ENGINE_WEIGHTS_BFLOAT16 } };
    rig *r = rig_open(1);
    xray_plan plan;
    const xray_workload load = { .device = r->device };
    EXPECT_FILLED_IN_REACH(xray_plan, plan, numerics,
                           ask_plan(r, &about, &size, &load, &plan));
    rig_close(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plan_is_what_is_taken),
        cmocka_unit_test(numerics_name_what_changes_bits),
        cmocka_unit_test(shared_weights_are_not_counted),
        cmocka_unit_test(plan_refuses_what_cannot_be),
        cmocka_unit_test(the_device_is_asked),
        cmocka_unit_test(plans_of_older_callers_are_filled),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
