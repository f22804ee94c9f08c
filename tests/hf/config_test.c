/* SPDX-License-Identifier: Apache-2.0
 *
 * Proves the defaults of config.json, its refusals, and that real
 * configurations describe the tensors of their files.
 */
#include <xray/numerics.h>

#include "core/base/file.h"
#include "core/base/str.h"
#include "model/hf/config.h"
#include "model/hf/safetensors.h"
#include "tests/testing.h"

#define SIZES                                                               \
    "\"hidden_size\":64,\"num_hidden_layers\":2,\"num_attention_heads\":4," \
    "\"intermediate_size\":96,\"vocab_size\":100"
#define KIND(name)                        \
    "{\"model_type\":\"" name "\"," SIZES \
    ",\"num_key_value_heads\":4,\"head_dim\":16"
#define GPT2 "{\"model_type\":\"gpt2\",\"n_embd\":64,\"n_head\":4"
#define ROPE LLAMA ",\"rope_scaling\":{"
#define LLAMA "{\"model_type\":\"llama\"," SIZES

static xray_status parse_config(const char *text, xm_config *out, xr_err *err)
{
    *err = (xr_err){ "" };
    return xm_config_parse(text, "config.json", err, out);
}

static void missing_keys_have_their_defaults(void **state)
{
    (void)state;
    xm_config c;
    xr_err err;
    assert_int_equal(parse_config(LLAMA "}", &c, &err), XRAY_OK);
    assert_int_equal(c.arch, XM_ARCH_LLAMA);
    assert_int_equal(c.kv_heads, 4);
    assert_int_equal(c.head_dim, 16);
    assert_int_equal(c.tied + c.qkv_bias + c.qk_norm, 0);
    assert_true(c.rope.theta == 10000 && c.norm_eps == 1e-6);
    assert_int_equal(c.bos_id, -1);
    assert_int_equal(c.end_count, 0);
    assert_int_equal(
        parse_config("{\"model_type\":\"qwen2\"," SIZES
                     ",\"num_key_value_heads\":2"
                     ",\"use_sliding_window\":false,\"sliding_window\":32768}",
                     &c, &err),
        XRAY_OK);
    assert_int_equal(c.qkv_bias, 1);
    assert_int_equal(
        parse_config("{\"model_type\":\"qwen3\"," SIZES
                     ",\"num_key_value_heads\":4"
                     ",\"head_dim\":32,\"rope_parameters\":{\"rope_theta\":1e6,"
                     "\"rope_type\":\"default\"},\"eos_token_id\":[3,4]}",
                     &c, &err),
        XRAY_OK);
    assert_int_equal(c.qk_norm, 1);
    assert_int_equal(c.head_dim, 32);
    assert_true(c.rope.theta == 1e6);
    assert_int_equal(c.end_count, 2);
    assert_int_equal(c.end_ids[1], 4);
}

static const struct {
    const char *text;
    const char *named;
} refusals[] = {
    { "[]", "JSON object" },
    { "{}", "\"model_type\"" },
    { "{\"model_type\":\"mamba\"," SIZES "}", "\"mamba\"" },
    { "{\"model_type\":\"gemma3\"}", "\"gemma3\"" },
    { "{\"model_type\":\"mixtral\"}", "gemma3_text, gpt2 and phi3 are" },
    { "{\"model_type\":\"llama\",\"hidden_size\":0}", "\"hidden_size\"" },
    { LLAMA ",\"num_key_value_heads\":3}", "\"num_key_value_heads\"" },
    { LLAMA ",\"head_dim\":15}", "\"head_dim\"" },
    { LLAMA ",\"head_dim\":0}", "\"head_dim\"" },
    { LLAMA ",\"max_position_embeddings\":-1}", "max_position" },
    { LLAMA ",\"rms_norm_eps\":0}", "\"rms_norm_eps\"" },
    { LLAMA ",\"rope_theta\":\"x\"}", "\"rope_theta\"" },
    { ROPE "\"rope_type\":\"linear\"}}", "\"factor\" is missing" },
    { ROPE "\"type\":\"linear\",\"factor\":0}}", "\"factor\"" },
    { ROPE "\"rope_type\":\"dynamic\",\"factor\":2}}", "\"dynamic\"" },
    { ROPE "\"rope_type\":\"longrope\"}}", "\"longrope\"" },
    { ROPE "\"type\":\"mrope\"}}", "\"mrope\"" },
    { ROPE "\"rope_type\":7}}", "rope_type" },
    { ROPE "\"rope_type\":\"yarn\",\"factor\":-1}}", "\"factor\"" },
    { ROPE "\"type\":\"yarn\",\"rope_theta\":1}}", "\"rope_theta\"" },
    { ROPE "\"type\":\"yarn\",\"truncate\":1}}", "truncate" },
    { ROPE "\"type\":\"yarn\",\"mscale\":-1}}", "mscale" },
    { ROPE "\"full_attention\":{\"rope_type\":\"default\"}}}",
      "gemma3_text only" },
    { ROPE "\"rope_type\":\"llama3\",\"factor\":8,\"low_freq_factor\":4,"
           "\"high_freq_factor\":4}}",
      "\"high_freq_factor\" (4) must be above" },
    { LLAMA ",\"rope_scaling\":[]}", "rope_scaling" },
    { LLAMA ",\"rope_parameters\":{\"rope_type\":\"llama3\"}}",
      "\"rope_parameters\": \"factor\" is missing" },
    { LLAMA ",\"partial_rotary_factor\":0.5}", "partial_rotary_factor" },
    { LLAMA ",\"use_sliding_window\":true}", "use_sliding_window" },
    { LLAMA ",\"hidden_act\":\"gelu\"}", "gelu" },
    { LLAMA ",\"attention_dropout\":0.1}", "attention_dropout" },
    { LLAMA ",\"quantization_config\":{}}", "quantization_config" },
    { LLAMA ",\"layer_types\":[\"sliding_attention\"]}", "one per layer" },
    { LLAMA ",\"layer_types\":[\"sliding_attention\","
            "\"full_attention\"]}",
      "layer 0 slides" },
    { LLAMA ",\"layer_types\":[\"linear_attention\"]}", "linear_attention" },
    { LLAMA ",\"eos_token_id\":100}", "eos_token_id" },
    { LLAMA ",\"eos_token_id\":[1,2,3,4,5,6,7,8,9]}", "more than 8" },
    { LLAMA ",\"bos_token_id\":\"<s>\"}", "bos_token_id" },
    { KIND("mistral") ",\"attention_bias\":true}", "attention_bias" },
    { KIND("mistral") ",\"mlp_bias\":true}", "mlp_bias" },
    { KIND("mistral") ",\"sliding_window\":0}", "sliding_window" },
    { KIND("mistral") ",\"layer_types\":[\"full_attention\","
                      "\"sliding_attention\"]}",
      "layer_types" },
    { KIND("qwen2") ",\"attention_bias\":false}", "attention_bias" },
    { KIND("qwen2") ",\"layer_types\":[\"full_attention\","
                    "\"sliding_attention\"]}",
      "layer 1 slides" },
    { KIND("gemma2") ",\"sliding_window\":null}", "layer 0 slides" },
    { KIND("gemma2") ",\"hidden_activation\":\"gelu\"}", "hidden_activation" },
    { KIND("gemma2") ",\"use_bidirectional_attention\":true}",
      "use_bidirectional_attention" },
    { KIND("gemma") ",\"hidden_activation\":\"relu\"}", "hidden_activation" },
    { KIND("gemma3_text") ",\"attn_logit_softcapping\":50}",
      "attn_logit_softcapping" },
    { KIND("gemma3_text") ",\"rope_parameters\":{\"rope_theta\":1e6}}",
      "sliding_attention" },
    { KIND("phi3") ",\"rope_scaling\":{\"type\":\"longrope\"}}",
      "only \"default\" is for phi3" },
    { KIND("phi3") ",\"rope_scaling\":{\"type\":\"yarn\"}}", "yarn" },
    { KIND("phi3") ",\"partial_rotary_factor\":0.2}", "3 rotary dimensions" },
    { KIND("phi3") ",\"partial_rotary_factor\":1.5}", "partial_rotary_factor" },
    { KIND("phi3") ",\"resid_pdrop\":0.1}", "resid_pdrop" },
    { GPT2 ",\"activation_function\":\"relu\"}", "activation_function" },
    { GPT2 ",\"activation_function\":\"silu\"}", "activation_function" },
    { GPT2 ",\"scale_attn_by_inverse_layer_idx\":true}",
      "scale_attn_by_inverse_layer_idx" },
    { GPT2 ",\"reorder_and_upcast_attn\":true}", "reorder_and_upcast_attn" },
    { GPT2 ",\"add_cross_attention\":true}", "add_cross_attention" },
    { "{\"model_type\":\"gpt2\",\"n_embd\":30}",
      "\"n_embd\" (30) must be a multiple" },
};

static void unsupported_configs_are_refused_by_name(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof refusals / sizeof refusals[0]; i++) {
        xm_config c;
        xr_err err;
        if (parse_config(refusals[i].text, &c, &err) >= 0)
            fail_msg("%s is accepted", refusals[i].text);
        if (!strstr(err.text, refusals[i].named) ||
            strncmp(err.text, "config.json: ", 13) != 0)
            fail_msg("%s: %s", refusals[i].text, err.text);
    }
}

static xray_status check_param_shape(void *ctx, const xm_param_info *info)
{
    const xm_st_tensor *t = xm_st_find(ctx, info->name);
    assert_non_null(t);
    assert_int_equal(t->dims, info->cols ? 2 : 1);
    assert_int_equal(t->shape[0], info->rows);
    if (info->cols)
        assert_int_equal(t->shape[1], info->cols);
    return XRAY_OK;
}

static xray_status count_parameter(void *ctx, const xm_param_info *info)
{
    (void)info;
    ++*(size_t *)ctx;
    return XRAY_OK;
}

/* Every parameter has its tensor with the same shape, and every tensor its
 * parameter. */
static void configs_describe_the_tensors_of_their_files(void **state)
{
    (void)state;
    static const char *const names[] = { "hf",        "hf_bf16",
                                         "hf_f16",    "hf_sharded",
                                         "hf_untied", "hf_as_qwen2" };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char name[128];
        char path[XR_PATH_CAP];
        (void)snprintf(name, sizeof name, "models/stories260K/%s", names[i]);
        test_data(name, path, sizeof path);
        xm_config c;
        xm_st *st;
        char *text;
        xr_err err = { "" };
        assert_int_equal(xm_config_read(path, &err, &c, &text), XRAY_OK);
        assert_non_null(strstr(text, "model_type"));
        free(text);
        assert_int_equal(c.end_count, 2); /* generation_config.json */
        assert_int_equal(c.end_ids[0], 2);
        assert_int_equal(c.end_ids[1], 1);
        assert_int_equal(xm_st_open(path, &err, &st), XRAY_OK);
        assert_int_equal(xm_config_params(&c, check_param_shape, st), XRAY_OK);
        size_t count = 0;
        uint64_t elements = 0;
        assert_int_equal(xm_config_params(&c, count_parameter, &count),
                         XRAY_OK);
        assert_int_equal(xm_st_count(st), count);
        for (size_t t = 0; t < count; t++)
            elements += xm_st_at(st, t)->count;
        assert_true(xm_config_param_count(&c) == elements);
        xm_st_close(st);
    }
}

static void mutated_configs_are_consistent_or_refused(void **state)
{
    (void)state;
    const char *const good =
        "{\"model_type\":\"gemma3_text\"," SIZES
        ",\"head_dim\":16,\"eos_token_id\":[1,2],\"rope_scaling\":{"
        "\"rope_type\":\"yarn\",\"factor\":8,\"mscale\":1},\"rope_theta\":1e4,"
        "\"bos_token_id\":0,\"sliding_window\":8,\"sliding_window_pattern\":2,"
        "\"layer_types\":[\"full_attention\",\"sliding_attention\"]}";
    char text[512];
    size_t size = strlen(good);
    for (uint32_t i = 0; i < 20000; i++) {
        xray_philox_out r = xray_philox(11, i, 0, 0, 0);
        memcpy(text, good, size + 1);
        text[r.w[0] % size] = (char)(r.w[1] & 127);
        text[r.w[2] % size] = "09-\"{}[],:en."[r.w[3] % 13];
        xm_config c;
        xr_err err;
        xray_status status = parse_config(text, &c, &err);
        if (status)
            assert_true(err.text[0] != '\0');
        else
            assert_true(c.heads % c.kv_heads == 0 && c.head_dim % 2 == 0 &&
                        c.rotary <= c.head_dim && c.rope.scale > 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(missing_keys_have_their_defaults),
        cmocka_unit_test(unsupported_configs_are_refused_by_name),
        cmocka_unit_test(configs_describe_the_tensors_of_their_files),
        cmocka_unit_test(mutated_configs_are_consistent_or_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
