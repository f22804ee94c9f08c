/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads the configuration keys of Llama and of the architectures that differ
 * from it in biases, query and key norms, windows or fused tensors: Mistral,
 * Qwen2, Qwen3 and Phi-3.
 */
#include "model/hf/arch.h"

/* Reads which projections have a bias. In Qwen2 q, k and v always have one and
 * o never has; transformers reads no key for it, so one that says otherwise is
 * refused. */
static xray_status read_bias_flags(const xm_keys *keys, xm_config *out)
{
    static const char *const why =
        "true is not supported for this model_type, which has no such bias";
    int qwen2 = out->arch == XM_ARCH_QWEN2;
    int has = out->arch == XM_ARCH_LLAMA || out->arch == XM_ARCH_QWEN3;
    uint32_t attention = 0;
    uint32_t mlp = 0;
    xray_status status =
        xm_keys_flag(keys, "attention_bias", (uint32_t)qwen2, &attention);
    if (!status)
        status = xm_keys_flag(keys, "mlp_bias", 0, &mlp);
    if (status)
        return status;
    if (qwen2 && !attention)
        return xm_keys_refuse(keys, "attention_bias",
                              "false is not supported for qwen2, whose q, k "
                              "and v have a bias");
    if (attention && !qwen2 && !has)
        return xm_keys_refuse(keys, "attention_bias", why);
    if (mlp && out->arch != XM_ARCH_LLAMA)
        return xm_keys_refuse(keys, "mlp_bias", why);
    out->qkv_bias = attention;
    out->o_bias = attention && !qwen2;
    out->mlp_bias = mlp;
    return XRAY_OK;
}

/* A Qwen model has sliding-window attention only if use_sliding_window is set:
 * in the layers that layer_types lists, or without that key in those from
 * max_window_layers on. */
static xray_status read_qwen_windows(const xm_keys *keys, xm_config *out)
{
    static const uint32_t bounds[2] = { 0, 1u << 30 };
    uint32_t use = 0;
    uint32_t first = 0;
    int given = 0;
    xray_status status = xm_keys_flag(keys, "use_sliding_window", 0, &use);
    if (!status && use)
        status = xm_read_window(keys, 4096, &out->window);
    if (!status)
        status = xm_keys_integer(keys, "max_window_layers", 28, bounds, &first);
    if (!status)
        status = xm_read_layer_types(keys, out, &given);
    if (status)
        return status;
    if (!given && out->window)
        xm_slide_from(out, first);
    return xm_check_window(keys, out);
}

/* Reads the window of an architecture in which all layers have sliding-window
 * attention or none has. transformers would ignore a layer_types that says
 * otherwise, so it is refused. */
static xray_status read_uniform_window(const xm_keys *keys, uint32_t preset,
                                       xm_config *out)
{
    int given = 0;
    xray_status status = xm_read_window(keys, preset, &out->window);
    if (!status)
        status = xm_read_layer_types(keys, out, &given);
    for (uint32_t layer = 0; !status && given && layer < out->layers; layer++)
        if (xm_config_slides(out, layer) != (out->window != 0))
            return xm_keys_refuse(keys, "layer_types",
                                  "must agree with \"sliding_window\", which "
                                  "holds for all layers of this model_type");
    if (!status && out->window)
        xm_slide_from(out, 0);
    return status;
}

static xray_status read_sliding_windows(const xm_keys *keys, xm_config *out)
{
    switch (out->arch) {
    case XM_ARCH_QWEN2:
    case XM_ARCH_QWEN3:
        return read_qwen_windows(keys, out);
    case XM_ARCH_MISTRAL:
        return read_uniform_window(keys, 4096, out);
    case XM_ARCH_PHI3:
        return read_uniform_window(keys, 0, out);
    default:
        break;
    }
    int given = 0;
    xray_status status =
        xm_keys_refuse_flag(keys, "use_sliding_window",
                            "true is not supported for this model_type");
    if (!status)
        status = xm_read_layer_types(keys, out, &given);
    return status ? status : xm_check_window(keys, out);
}

/* Refuses dropout, which the decoder does not compute. */
static xray_status refuse_dropouts(const xm_keys *keys)
{
    static const char *const names[] = { "attention_dropout", "resid_pdrop",
                                         "embd_pdrop" };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        double dropout = 0;
        xray_status status = xr_json_real_or(keys->root, names[i], 0,
                                             keys->where, keys->err, &dropout);
        if (status)
            return status;
        if (dropout != 0)
            return xm_keys_refuse(keys, names[i],
                                  "other than 0 is not supported");
    }
    return XRAY_OK;
}

xray_status xm_arch_llama(const xm_keys *keys, const xm_arch *arch,
                          xm_config *out)
{
    xray_status status = xm_read_act(keys, arch, 0, out);
    out->qk_norm = out->arch == XM_ARCH_QWEN3;
    out->fused = out->arch == XM_ARCH_PHI3;
    if (!status)
        status = read_bias_flags(keys, out);
    if (!status)
        status = read_sliding_windows(keys, out);
    if (!status)
        status = xm_read_rope(keys, out);
    return status ? status : refuse_dropouts(keys);
}
