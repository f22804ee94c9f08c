/* SPDX-License-Identifier: Apache-2.0
 *
 * Lists the architectures with the defaults of transformers' configuration
 * classes, and reads the keys that several of them share.
 */
#include "model/hf/arch.h"

#include <string.h>

static const xm_arch_names common = {
    .hidden = "hidden_size",
    .layers = "num_hidden_layers",
    .heads = "num_attention_heads",
    .ffn = "intermediate_size",
    .positions = "max_position_embeddings",
    .eps = "rms_norm_eps",
};

static const xm_arch_names gpt2_names = {
    .hidden = "n_embd",
    .layers = "n_layer",
    .heads = "n_head",
    .ffn = "n_inner",
    .positions = "n_positions",
    .eps = "layer_norm_epsilon",
};

#define TANH "gelu_pytorch_tanh"

static const xm_arch architectures[] = {
    { "llama", XM_ARCH_LLAMA, 0, &common, 4096, 32, 32, 0, 0, 11008, 32000,
      2048, 1e-6, "hidden_act", "silu", xm_arch_llama },
    { "mistral", XM_ARCH_MISTRAL, 0, &common, 4096, 32, 32, 8, 0, 14336, 32000,
      131072, 1e-6, "hidden_act", "silu", xm_arch_llama },
    { "qwen2", XM_ARCH_QWEN2, 0, &common, 4096, 32, 32, 32, 0, 22016, 151936,
      32768, 1e-6, "hidden_act", "silu", xm_arch_llama },
    { "qwen3", XM_ARCH_QWEN3, 0, &common, 4096, 32, 32, 32, 128, 22016, 151936,
      32768, 1e-6, "hidden_act", "silu", xm_arch_llama },
    { "phi3", XM_ARCH_PHI3, 0, &common, 3072, 32, 32, 0, 0, 8192, 32064, 4096,
      1e-5, "hidden_act", "silu", xm_arch_llama },
    { "gemma", XM_ARCH_GEMMA, 1, &common, 3072, 28, 16, 16, 256, 24576, 256000,
      8192, 1e-6, "hidden_act", TANH, xm_arch_gemma },
    { "gemma2", XM_ARCH_GEMMA2, 1, &common, 2304, 26, 8, 4, 256, 9216, 256000,
      8192, 1e-6, "hidden_activation", TANH, xm_arch_gemma },
    { "gemma3_text", XM_ARCH_GEMMA3, 1, &common, 2304, 26, 8, 4, 256, 9216,
      262208, 131072, 1e-6, "hidden_activation", TANH, xm_arch_gemma },
    { "gpt2", XM_ARCH_GPT2, 1, &gpt2_names, 768, 12, 12, 0, 0, 0, 50257, 1024,
      1e-5, "activation_function", "gelu_new", xm_arch_gpt2 },
};

const xm_arch *xm_arch_find(const char *name)
{
    for (size_t i = 0; i < sizeof architectures / sizeof architectures[0]; i++)
        if (strcmp(name, architectures[i].name) == 0)
            return &architectures[i];
    return NULL;
}

xray_status xm_read_act(const xm_keys *keys, const xm_arch *arch,
                        int gelu_is_tanh, xm_config *out)
{
    const char *name;
    xray_status status = xr_json_string_or(keys->root, arch->act_key, arch->act,
                                           keys->where, keys->err, &name);
    if (status)
        return status;
    if (strcmp(name, "silu") == 0 || strcmp(name, "swish") == 0)
        out->act = XM_ACT_SILU;
    else if (strcmp(name, TANH) == 0 || strcmp(name, "gelu_new") == 0 ||
             (gelu_is_tanh && strcmp(name, "gelu") == 0))
        out->act = XM_ACT_GELU_TANH;
    else
        return xr_fail(keys->err, XRAY_E_UNSUPPORTED,
                       "%s: \"%s\" \"%.40s\" is not supported; \"silu\", "
                       "\"gelu_new\" and \"" TANH "\" are",
                       keys->where, arch->act_key, name);
    return XRAY_OK;
}

static void mark_sliding_layer(xm_config *config, uint32_t layer)
{
    config->sliding[layer / 64] |= UINT64_C(1) << (layer % 64);
}

void xm_slide_from(xm_config *config, uint32_t first)
{
    for (uint32_t layer = first; layer < config->layers; layer++)
        mark_sliding_layer(config, layer);
}

xray_status xm_read_layer_types(const xm_keys *keys, xm_config *out,
                                int *out_given)
{
    const char *const key = "layer_types";
    const cJSON *types = xr_json_get(keys->root, key);
    *out_given = types != NULL;
    if (!types)
        return XRAY_OK;
    uint32_t layer = 0;
    const cJSON *item;
    cJSON_ArrayForEach(item, types)
    {
        const char *kind = cJSON_IsString(item) ? item->valuestring : "";
        int slides = strcmp(kind, "sliding_attention") == 0;
        if (!slides && strcmp(kind, "full_attention") != 0)
            return xr_fail(keys->err, XRAY_E_UNSUPPORTED,
                           "%s: \"%s\" holds \"%.40s\"; only "
                           "\"full_attention\" and \"sliding_attention\" are "
                           "supported",
                           keys->where, key, kind);
        if (slides && layer < out->layers)
            mark_sliding_layer(out, layer);
        layer++;
    }
    if (!cJSON_IsArray(types) || layer != out->layers)
        return xr_fail(keys->err, XRAY_E_CONFIG,
                       "%s: \"%s\" must be a list of %u kinds, one per layer",
                       keys->where, key, out->layers);
    return XRAY_OK;
}

xray_status xm_read_window(const xm_keys *keys, uint32_t preset, uint32_t *out)
{
    static const uint32_t bounds[2] = { 1, 1u << 30 };
    *out = 0;
    if (xm_keys_is_null(keys, "sliding_window"))
        return XRAY_OK;
    return xm_keys_integer(keys, "sliding_window", preset, bounds, out);
}

xray_status xm_check_window(const xm_keys *keys, const xm_config *config)
{
    for (uint32_t layer = 0; !config->window && layer < config->layers; layer++)
        if (xm_config_slides(config, layer))
            return xr_fail(keys->err, XRAY_E_CONFIG,
                           "%s: \"layer_types\" says that layer %u slides, but "
                           "\"sliding_window\" gives no window",
                           keys->where, layer);
    return XRAY_OK;
}
