/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads the configuration keys of Gemma 1, 2 and 3 (text).
 */
#include <math.h>
#include <string.h>

#include "model/hf/arch.h"

/* Reads a soft cap: `preset` if the key is missing, none if it is null. */
static xray_status read_softcap(const xm_keys *keys, const char *key,
                                double preset, double *out)
{
    *out = 0;
    if (xm_keys_is_null(keys, key))
        return XRAY_OK;
    return xm_keys_positive(keys, key, preset, out);
}

static xray_status read_softcaps(const xm_keys *keys, xm_config *out)
{
    int second = out->arch == XM_ARCH_GEMMA2;
    xray_status status = read_softcap(keys, "attn_logit_softcapping",
                                      second ? 50 : 0, &out->attn_softcap);
    if (status)
        return status;
    status = read_softcap(keys, "final_logit_softcapping", second ? 30 : 0,
                          &out->logit_softcap);
    if (status)
        return status;
    if (out->attn_softcap > 0 && !second)
        return xm_keys_refuse(keys, "attn_logit_softcapping",
                              "is not supported for gemma3_text, whose scores "
                              "have no cap");
    return XRAY_OK;
}

/* In Gemma 2 every second layer has full attention; in Gemma 3 every sixth, or
 * every n-th by sliding_window_pattern. */
static xray_status read_sliding_windows(const xm_keys *keys, xm_config *out)
{
    static const uint32_t bounds[2] = { 1, XM_MAX_LAYERS };
    uint32_t period = 2;
    int given = 0;
    xray_status status = xm_read_window(keys, 4096, &out->window);
    if (!status && out->arch == XM_ARCH_GEMMA3)
        status =
            xm_keys_integer(keys, "sliding_window_pattern", 6, bounds, &period);
    if (!status)
        status = xm_read_layer_types(keys, out, &given);
    if (status)
        return status;
    for (uint32_t layer = 0; !given && layer < out->layers; layer++)
        if ((layer + 1) % period)
            out->sliding[layer / 64] |= UINT64_C(1) << (layer % 64);
    return xm_check_window(keys, out);
}

static xray_status read_score_options(const xm_keys *keys, xm_config *out)
{
    double scalar = 256;
    xray_status status =
        xm_keys_positive(keys, "query_pre_attn_scalar", 256, &scalar);
    out->attn_scale = 1 / sqrt(scalar);
    if (!status)
        status = read_softcaps(keys, out);
    return status ? status : read_sliding_windows(keys, out);
}

static xray_status refuse_unsupported_keys(const xm_keys *keys,
                                           const xm_config *config)
{
    double dropout = 0;
    xray_status status =
        xm_keys_refuse_flag(keys, "use_bidirectional_attention",
                            "true is not supported: a decoder looks back only");
    if (status)
        return status;
    status = xr_json_real_or(keys->root, "attention_dropout", 0, keys->where,
                             keys->err, &dropout);
    if (status)
        return status;
    if (dropout != 0)
        return xm_keys_refuse(keys, "attention_dropout",
                              "other than 0 is not supported");
    const cJSON *act = xr_json_get(keys->root, "hidden_activation");
    /* Gemma 1 has both keys; "gelu" of hidden_act always meant the tanh form
     * there. */
    if (status)
        return status;
    if (config->arch == XM_ARCH_GEMMA && act &&
        (!cJSON_IsString(act) ||
         (strcmp(act->valuestring, "gelu_pytorch_tanh") != 0 &&
          strcmp(act->valuestring, "gelu") != 0)))
        return xm_keys_refuse(keys, "hidden_activation",
                              "other than \"gelu_pytorch_tanh\" is not "
                              "supported for gemma");
    return XRAY_OK;
}

xray_status xm_arch_gemma(const xm_keys *keys, const xm_arch *arch,
                          xm_config *out)
{
    int first = out->arch == XM_ARCH_GEMMA;
    out->norm_offset = 1;
    out->post_norms = !first;
    out->qk_norm = out->arch == XM_ARCH_GEMMA3;
    out->embed_scale = (double)(float)sqrt((double)out->hidden);
    xray_status status = xm_read_act(keys, arch, first, out);
    if (!status)
        status = xm_keys_flag(keys, "attention_bias", 0, &out->qkv_bias);
    out->o_bias = out->qkv_bias;
    if (!status && !first)
        status = read_score_options(keys, out);
    if (!status)
        status = xm_read_rope(keys, out);
    return status ? status : refuse_unsupported_keys(keys, out);
}
