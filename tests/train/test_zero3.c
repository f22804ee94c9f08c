/* SPDX-License-Identifier: Apache-2.0
 *
 * The plugin against the float64 goldens of a real model, and what it refuses.
 */
#include <math.h>

#include "core/base/json.h"
#include "tests/train/rig.h"

static const char *model_dir(const char *name, char *buffer, size_t cap)
{
    char part[128];
    (void)snprintf(part, sizeof(part), "models/stories260K/%s", name);
    return test_data(part, buffer, cap);
}

static cJSON *golden(const char *name)
{
    char path[512];
    xr_err err = { "" };
    cJSON *json = NULL;
    if (xr_json_file(model_dir(name, path, sizeof(path)), &err, &json) !=
        XRAY_OK)
        fail_msg("%s", err.text);
    return json;
}

static uint32_t add_ids(const cJSON *array, int32_t *ids, uint32_t count)
{
    const cJSON *item = NULL;
    cJSON_ArrayForEach(item, array) ids[count++] = (int32_t)item->valuedouble;
    return count;
}

static void near(float got, double expected, double bound, const char *what)
{
    if (!(fabs((double)got - expected) <= bound))
        fail_msg("%s: %.8g, expected %.8g", what, (double)got, expected);
}

static void check_case(const rig *r, const cJSON *c)
{
    int32_t ids[512];
    float logp[512];
    float entropy[512];
    const cJSON *prompt = xr_json_get(c, "prompt_ids");
    const cJSON *prompt_logp = xr_json_get(c, "prompt_logprobs");
    const cJSON *greedy_logp = xr_json_get(c, "greedy_logprobs");
    uint32_t start = add_ids(prompt, ids, 0);
    uint32_t count = add_ids(xr_json_get(c, "greedy_ids"), ids, start);
    rows batch;
    rows_one(&batch, ids, count);
    batch.batch.loss_mask = NULL;
    xray_outputs out = { .head = XRAY_HEAD(xray_outputs),
                         .logp = logp,
                         .entropy = entropy };
    assert_int_equal(r->ops->forward(r->self, &batch.batch,
                                     XRAY_HEAD_LOGP | XRAY_HEAD_ENTROPY, &out),
                     XRAY_OK);
    assert_true(logp[0] == 0 && entropy[0] == 0);
    for (uint32_t t = 1; t < start; t++)
        near(logp[t], cJSON_GetArrayItem(prompt_logp, (int)t - 1)->valuedouble,
             1e-4, "prompt log-prob");
    for (uint32_t t = start; t < count; t++)
        near(logp[t],
             cJSON_GetArrayItem(greedy_logp, (int)(t - start))->valuedouble,
             1e-4, "greedy log-prob");
    near(entropy[start], xr_json_get(c, "entropy_after_prompt")->valuedouble,
         1e-4, "entropy");
}

static void check_goldens(const char *folder, const char *file)
{
    char dir[512];
    rig_device device = rig_device_open(2);
    rig_spec spec = { .path = model_dir(folder, dir, sizeof(dir)),
                      .tokens = 512,
                      .rows = 4,
                      .row_tokens = 400,
                      .frozen = 1 };
    rig r;
    if (rig_open(&device, &spec, &r) != XRAY_OK)
        fail_msg("%s: %s", folder, rig_error());
    cJSON *json = golden(file);
    const cJSON *c = NULL;
    cJSON_ArrayForEach(c, xr_json_get(json, "cases")) check_case(&r, c);
    cJSON_Delete(json);
    rig_close(&r);
    rig_device_close(&device);
}

static void test_goldens(void **state)
{
    (void)state;
    check_goldens("hf", "golden.json");
    check_goldens("hf_untied", "golden.json");
    check_goldens("hf_as_qwen2", "golden.json");
    check_goldens("hf_bf16", "golden_hf_bf16.json");
    check_goldens("hf_f16", "golden_hf_f16.json");
}

/* Log-probs at a temperature, from the golden logits; masked tokens only. */
static void test_temperature_and_mask(void **state)
{
    (void)state;
    char dir[512];
    rig_device device = rig_device_open(1);
    rig_spec spec = { .path = model_dir("hf", dir, sizeof(dir)) };
    rig r;
    assert_int_equal(rig_open(&device, &spec, &r), XRAY_OK);
    cJSON *json = golden("golden.json");
    const cJSON *c = cJSON_GetArrayItem(xr_json_get(json, "cases"), 1);
    const cJSON *logits = xr_json_get(c, "next_logits_after_prompt");
    double sum = 0;
    double weighted = 0;
    const cJSON *z = NULL;
    const double heat = 0.7;
    cJSON_ArrayForEach(z, logits)
    {
        sum += exp(z->valuedouble / heat);
        weighted += exp(z->valuedouble / heat) * z->valuedouble / heat;
    }
    rows batch;
    int32_t ids[64];
    float logp[64];
    float entropy[64];
    uint32_t count = add_ids(xr_json_get(c, "prompt_ids"), ids, 0);
    ids[count] = 300;
    ids[count + 1] = 5;
    rows_one(&batch, ids, count + 2);
    memset(batch.mask, 0, sizeof(batch.mask));
    batch.mask[count] = 1;
    batch.temperature[0] = (float)heat;
    batch.batch.temperature = batch.temperature;
    xray_outputs out = { .head = XRAY_HEAD(xray_outputs),
                         .logp = logp,
                         .entropy = entropy };
    assert_int_equal(r.ops->forward(r.self, &batch.batch,
                                    XRAY_HEAD_LOGP | XRAY_HEAD_ENTROPY, &out),
                     XRAY_OK);
    for (uint32_t t = 0; t < count + 2; t++)
        if (t != count)
            assert_true(logp[t] == 0 && entropy[t] == 0);
    near(logp[count],
         cJSON_GetArrayItem(logits, 300)->valuedouble / heat - log(sum), 1e-4,
         "log-prob at a temperature");
    near(entropy[count], log(sum) - weighted / sum, 1e-4,
         "entropy at a temperature");
    cJSON_Delete(json);
    rig_close(&r);
    rig_device_close(&device);
}

/* Derivatives of the mean negative log-likelihood, by finite differences. */
static void test_golden_gradients(void **state)
{
    (void)state;
    char dir[512];
    rig_device device = rig_device_open(2);
    rig_spec spec = { .path = model_dir("hf", dir, sizeof(dir)) };
    rig r;
    assert_int_equal(rig_open(&device, &spec, &r), XRAY_OK);
    cJSON *json = golden("golden_grad.json");
    rows batch;
    rows_loss ctx = { 0 };
    int32_t ids[64];
    rows_one(&batch, ids, add_ids(xr_json_get(json, "ids"), ids, 0));
    xray_loss loss = rows_loss_of(&ctx, &batch);
    assert_int_equal(r.ops->forward_backward(r.self, batch.pointers, 1, &loss),
                     XRAY_OK);
    assert_true(fabs(ctx.nll - xr_json_get(json, "mean_nll")->valuedouble) <
                1e-5);
    const xray_weights *grads = r.ops->gradients(r.self);
    const cJSON *g = NULL;
    int checked = 0;
    cJSON_ArrayForEach(g, xr_json_get(json, "grads"))
    {
        const char *name = xr_json_get(g, "tensor")->valuestring;
        const cJSON *index = xr_json_get(g, "index");
        const xray_tensor *tensor = rig_tensor(grads, name);
        uint64_t at = (uint64_t)cJSON_GetArrayItem(index, 0)->valuedouble;
        if (tensor->dims == 2)
            at = at * tensor->shape[1] +
                 (uint64_t)cJSON_GetArrayItem(index, 1)->valuedouble;
        double expected = xr_json_get(g, "grad")->valuedouble;
        near(((const float *)tensor->data)[at], expected,
             1e-6 + 1e-4 * fabs(expected), name);
        checked++;
    }
    assert_int_equal(checked, 58);
    cJSON_Delete(json);
    rig_close(&r);
    rig_device_close(&device);
}

static void refuse_plan(const rig_spec *spec, uint32_t world, const char *part)
{
    xray_plan plan = { .head = XRAY_HEAD(xray_plan) };
    assert_int_equal(rig_plan(spec, world, &plan), XRAY_E_CONFIG);
    if (!strstr(rig_error(), part))
        fail_msg("\"%s\" does not say \"%s\"", rig_error(), part);
}

static void test_plan_refuses(void **state)
{
    (void)state;
    rig_spec spec = { 0 };
    refuse_plan(&spec, 100000, "at most 1024");
    spec.offload_param = 1;
    spec.stage_1 = 2 + 1;
    refuse_plan(&spec, 2, "offload_param = host needs stage = 3");
    spec = (rig_spec){ .from_layer = 3 };
    refuse_plan(&spec, 1, "the model has 2");
    spec = (rig_spec){ 0 };
    spec.row_tokens = 65;
    refuse_plan(&spec, 1, "max_position_embeddings 64");
    spec.row_tokens = 60;
    spec.tokens = 59;
    refuse_plan(&spec, 1, "do not fit micro-batches of 59");
    spec = (rig_spec){ .config_json = "{\"model_type\":\"mamba\"}" };
    refuse_plan(&spec, 1, "mamba");

    rig_device device = rig_device_open(1);
    rig r;
    spec = (rig_spec){ .row_tokens = 65 };
    assert_int_equal(rig_open(&device, &spec, &r), XRAY_E_CONFIG);
    assert_non_null(strstr(rig_error(), "max_position_embeddings 64"));
    spec = (rig_spec){ .path = "/no/such/folder", .config_json = rig_tiny };
    assert_true(rig_open(&device, &spec, &r) < 0);
    assert_non_null(strstr(rig_error(), "/no/such/folder"));
    spec = (rig_spec){ .offload_optimizer = 1, .offload_dir = "/no/such" };
    assert_true(rig_open(&device, &spec, &r) < 0);
    assert_non_null(strstr(rig_error(), "offload_dir"));
    assert_non_null(strstr(rig_error(), "/no/such"));
    rig_device_close(&device);
}

/* Runs the largest batch the instance was made for. */
static void run_full(const rig *r, const rig_spec *spec)
{
    static rows batch;
    static float logp[ROWS_TOKENS_MAX];
    rows_loss ctx = { .entropy_weight = 0.01 };
    xray_outputs out = { .head = XRAY_HEAD(xray_outputs), .logp = logp };
    xray_step_result result = { .head = XRAY_HEAD(xray_step_result) };
    uint32_t length = (uint32_t)spec->row_tokens;
    rows_full(&batch, (uint32_t)spec->tokens / length, length, 1000);
    assert_int_equal(
        r->ops->forward(r->self, &batch.batch, XRAY_HEAD_LOGP, &out), XRAY_OK);
    if (spec->frozen)
        return;
    xray_loss loss = rows_loss_of(&ctx, &batch);
    assert_int_equal(
        r->ops->forward_backward(r->self, batch.pointers, 1, &loss), XRAY_OK);
    assert_int_equal(r->ops->optimizer_step(r->self, 1e-3, 1, &result),
                     XRAY_OK);
}

/* Planned bytes against what the device handed out: at most 4 KiB less
 * (allocations are rounded up), at most an eighth and 16 KiB more; of
 * workspace, which holds the device's own scratch, at most half and 64 KiB. */
static void check_plan(const rig_spec *spec)
{
    xray_plan plan = { .head = XRAY_HEAD(xray_plan) };
    xray_memory_stats memory = { .head = XRAY_HEAD(xray_memory_stats) };
    rig_device device = rig_device_open(1);
    rig r;
    assert_int_equal(rig_plan(spec, 1, &plan), XRAY_OK);
    assert_int_equal(rig_open(&device, spec, &r), XRAY_OK);
    run_full(&r, spec);
    assert_int_equal(device.ops->memory(device.self, &memory), XRAY_OK);
    for (uint32_t tag = 0; tag < XRAY_TAG_COUNT; tag++) {
        uint64_t high = memory.high[tag];
        uint64_t more =
            tag == XRAY_TAG_WORKSPACE ? high / 2 + 65536 : high / 8 + 16384;
        if (plan.bytes[tag] + 4096 < high || plan.bytes[tag] > high + more)
            fail_msg("tag %u: planned %llu, used %llu", tag,
                     (unsigned long long)plan.bytes[tag],
                     (unsigned long long)high);
    }
    assert_int_equal(plan.micro_multiple, 1);
    assert_int_equal(plan.token_multiple, 1);
    rig_close(&r);
    assert_int_equal(device.ops->memory(device.self, &memory), XRAY_OK);
    for (uint32_t tag = 0; tag < XRAY_TAG_WORKSPACE; tag++)
        assert_int_equal(memory.live[tag], 0);
    rig_device_close(&device);
}

#define WIDE                                                   \
    "\"architectures\":[\"Any\"],\"hidden_size\":192,"         \
    "\"num_hidden_layers\":3,\"num_attention_heads\":6,"       \
    "\"num_key_value_heads\":2,"                               \
    "\"intermediate_size\":520,\"vocab_size\":1000,"           \
    "\"max_position_embeddings\":512,\"rms_norm_eps\":1e-5,"   \
    "\"initializer_range\":0.02,\"tie_word_embeddings\":true," \
    "\"bos_token_id\":1,\"eos_token_id\":2}"

static void test_plan_bytes(void **state)
{
    (void)state;
    static const char *const models[] = {
        "{\"model_type\":\"llama\",\"hidden_act\":\"silu\","
        "\"rope_theta\":10000.0," WIDE,
        "{\"model_type\":\"gemma2\",\"head_dim\":32,"
        "\"sliding_window\":50," WIDE,
        "{\"model_type\":\"gemma3_text\",\"head_dim\":32,"
        "\"sliding_window\":50,\"sliding_window_pattern\":3," WIDE,
        "{\"model_type\":\"phi3\",\"pad_token_id\":0,"
        "\"partial_rotary_factor\":0.5," WIDE,
        "{\"model_type\":\"gpt2\",\"n_embd\":192,\"n_layer\":3,"
        "\"n_head\":6,\"n_positions\":512,\"vocab_size\":1000,"
        "\"bos_token_id\":1,\"eos_token_id\":2}",
    };
    for (size_t i = 0; i < sizeof(models) / sizeof(models[0]); i++) {
        rig_spec spec = { .config_json = models[i],
                          .tokens = 512,
                          .rows = 16,
                          .row_tokens = 64 };
        check_plan(&spec);
        spec.checkpointing = 1;
        check_plan(&spec);
        spec.head_logits = 1;
        check_plan(&spec);
        spec.checkpointing = 0;
        spec.head_logits = 2;
        check_plan(&spec);
        spec.heads = XRAY_HEAD_LOGP | XRAY_HEAD_VALUE;
        spec.frozen = 1;
        check_plan(&spec);
    }
}

/* Bytes of activations that keeping the logits of `tokens` tokens adds. */
static uint64_t kept_bytes(rig_spec spec, uint64_t tokens, uint32_t how)
{
    xray_plan plans[2] = { { .head = XRAY_HEAD(xray_plan) },
                           { .head = XRAY_HEAD(xray_plan) } };
    spec.tokens = tokens;
    spec.head_logits = how;
    assert_int_equal(rig_plan(&spec, 1, &plans[0]), XRAY_OK);
    spec.head_logits = 2;
    assert_int_equal(rig_plan(&spec, 1, &plans[1]), XRAY_OK);
    return plans[0].bytes[XRAY_TAG_ACTIVATIONS] -
           plans[1].bytes[XRAY_TAG_ACTIVATIONS];
}

/* Of a vocabulary of 40 a row is 192 bytes; auto stops at 256 MiB. */
static void test_kept_logits(void **state)
{
    (void)state;
    const uint64_t most = ((uint64_t)256 << 20) / 192;
    rig_spec spec = { .rows = 4 };
    assert_int_equal(kept_bytes(spec, 1000, 0), 1000 * 192);
    assert_int_equal(kept_bytes(spec, most, 0), most * 192);
    assert_int_equal(kept_bytes(spec, most + 1, 0), 0);
    assert_int_equal(kept_bytes(spec, most + 1, 1), (most + 1) * 192);
    spec.checkpointing = 1;
    assert_int_equal(kept_bytes(spec, 1000, 0), 0);
    assert_int_equal(kept_bytes(spec, 1000, 1), 1000 * 192);
    spec.checkpointing = 0;
    spec.heads = XRAY_HEAD_VALUE;
    assert_int_equal(kept_bytes(spec, 1000, 1), 0);
    spec.heads = XRAY_HEAD_LOGP;
    spec.frozen = 1;
    assert_int_equal(kept_bytes(spec, 1000, 1), 0);
}

static void test_component(void **state)
{
    (void)state;
    const xray_component *c = rig_component();
    assert_string_equal(c->iface, XRAY_IFACE_TRAIN);
    assert_string_equal(c->name, "zero3");
    assert_string_equal(c->numerics, "xray.fp32/1");
    const xray_train_ops *ops = c->ops;
    ops->destroy(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_component),
        cmocka_unit_test(test_goldens),
        cmocka_unit_test(test_temperature_and_mask),
        cmocka_unit_test(test_golden_gradients),
        cmocka_unit_test(test_plan_refuses),
        cmocka_unit_test(test_plan_bytes),
        cmocka_unit_test(test_kept_logits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
