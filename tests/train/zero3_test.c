/* SPDX-License-Identifier: Apache-2.0
 *
 * Compares the plugin with float64 goldens of a trained model.
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

static void expect_near(float got, double expected, double bound,
                        const char *what)
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
    xray_outputs out = { .header = XRAY_HEADER(xray_outputs),
                         .logp = logp,
                         .entropy = entropy };
    assert_int_equal(forward_one(r->ops, r->self, &batch.batch,
                                 XRAY_OUTPUT_LOGP | XRAY_OUTPUT_ENTROPY, &out),
                     XRAY_OK);
    assert_true(logp[0] == 0 && entropy[0] == 0);
    for (uint32_t t = 1; t < start; t++)
        expect_near(logp[t],
                    cJSON_GetArrayItem(prompt_logp, (int)t - 1)->valuedouble,
                    1e-4, "prompt log-prob");
    for (uint32_t t = start; t < count; t++)
        expect_near(
            logp[t],
            cJSON_GetArrayItem(greedy_logp, (int)(t - start))->valuedouble,
            1e-4, "greedy log-prob");
    expect_near(entropy[start],
                xr_json_get(c, "entropy_after_prompt")->valuedouble, 1e-4,
                "entropy");
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

static void outputs_match_the_goldens(void **state)
{
    (void)state;
    check_goldens("hf", "golden.json");
    check_goldens("hf_untied", "golden.json");
    check_goldens("hf_as_qwen2", "golden.json");
    check_goldens("hf_bf16", "golden_hf_bf16.json");
    check_goldens("hf_f16", "golden_hf_f16.json");
}

/* Log-probs at a temperature, from the golden logits; masked tokens only. */
static void temperature_and_mask_match_the_goldens(void **state)
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
    xray_outputs out = { .header = XRAY_HEADER(xray_outputs),
                         .logp = logp,
                         .entropy = entropy };
    assert_int_equal(forward_one(r.ops, r.self, &batch.batch,
                                 XRAY_OUTPUT_LOGP | XRAY_OUTPUT_ENTROPY, &out),
                     XRAY_OK);
    for (uint32_t t = 0; t < count + 2; t++)
        if (t != count)
            assert_true(logp[t] == 0 && entropy[t] == 0);
    expect_near(logp[count],
                cJSON_GetArrayItem(logits, 300)->valuedouble / heat - log(sum),
                1e-4, "log-prob at a temperature");
    expect_near(entropy[count], log(sum) - weighted / sum, 1e-4,
                "entropy at a temperature");
    cJSON_Delete(json);
    rig_close(&r);
    rig_device_close(&device);
}

/* Derivatives of the mean negative log-likelihood, by finite differences. */
static void gradients_match_the_goldens(void **state)
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
    const xray_weights *grads = rig_debug(&r)->gradients(r.self);
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
        expect_near(((const float *)tensor->data)[at], expected,
                    1e-6 + 1e-4 * fabs(expected), name);
        checked++;
    }
    assert_int_equal(checked, 58);
    cJSON_Delete(json);
    rig_close(&r);
    rig_device_close(&device);
}

static void component_is_described(void **state)
{
    (void)state;
    const xray_component *c = rig_component();
    assert_string_equal(c->iface, XRAY_IFACE_TRAIN);
    assert_string_equal(c->name, "zero3");
    assert_string_equal(c->numerics, "xray.fp32/2");
    const xray_train_ops *ops = c->ops;
    ops->destroy(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(component_is_described),
        cmocka_unit_test(outputs_match_the_goldens),
        cmocka_unit_test(temperature_and_mask_match_the_goldens),
        cmocka_unit_test(gradients_match_the_goldens),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
