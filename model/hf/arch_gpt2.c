/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads the configuration keys of GPT-2, which has LayerNorm, learned
 * positions, biases everywhere, an MLP without a gate, and matrices stored as
 * [in, out].
 */
#include "model/hf/arch.h"

xray_status xm_arch_gpt2(const xm_keys *keys, const xm_arch *arch,
                         xm_config *out)
{
    uint32_t scale = 1;
    out->gated = 0;
    out->layer_norm = 1;
    out->learned_positions = 1;
    out->fused = 1;
    out->transposed = 1;
    out->qkv_bias = out->o_bias = out->mlp_bias = 1;
    xray_status status = xm_read_act(keys, arch, 0, out);
    if (!status && out->act != XM_ACT_GELU_TANH)
        return xm_keys_refuse(keys, arch->act_key,
                              "other than \"gelu_new\" and "
                              "\"gelu_pytorch_tanh\" is not supported for "
                              "gpt2");
    if (!status)
        status = xm_keys_flag(keys, "scale_attn_weights", 1, &scale);
    if (!scale)
        out->attn_scale = 1;
    static const char *const off[] = { "scale_attn_by_inverse_layer_idx",
                                       "reorder_and_upcast_attn",
                                       "add_cross_attention" };
    for (size_t i = 0; !status && i < sizeof off / sizeof off[0]; i++)
        status = xm_keys_refuse_flag(keys, off[i], "true is not supported");
    return status;
}
