/* SPDX-License-Identifier: Apache-2.0
 *
 * Models whose sums have one to eight segments; the last three can be shared by
 * more ranks than they have KV heads.
 */
#include "tests/nn/slice_kinds.h"

#include <xray/operators.h>

#define BASE                                                          \
    .layers = 2, .hidden = 20, .max_positions = 64, .norm_eps = 1e-5, \
    .init_range = 0.02, .attn_scale = 0.35
#define ROTARY(dims) .rotary = (dims), .rope = { .theta = 10000, .scale = 1 }

const fixture_kind slice_kinds[] = {
    { "qwen2, two heads of q to one of k",
      { BASE, ROTARY(6), .arch = XM_ARCH_QWEN2, .heads = 8, .kv_heads = 4,
        .head_dim = 6, .ffn = 20, .vocab = 200, .tied = 1, .qkv_bias = 1,
        .gated = 1, .act = XM_ACT_SILU, .embed_scale = 1 },
      0 },
    { "qwen3, eight segments",
      { BASE, ROTARY(4), .arch = XM_ARCH_QWEN3, .heads = 8, .kv_heads = 8,
        .head_dim = 4, .ffn = 32, .vocab = 121, .tied = 1, .qk_norm = 1,
        .gated = 1, .act = XM_ACT_SILU, .embed_scale = 1 },
      0 },
    { "llama, every bias, value head",
      { BASE, ROTARY(6), .arch = XM_ARCH_LLAMA, .heads = 4, .kv_heads = 2,
        .head_dim = 6, .ffn = 14, .vocab = 100, .qkv_bias = 1, .o_bias = 1,
        .mlp_bias = 1, .gated = 1, .act = XM_ACT_SILU, .embed_scale = 1 },
      1 },
    { "gemma 2, post-norms, caps and biases",
      { BASE,
        ROTARY(4),
        .arch = XM_ARCH_GEMMA2,
        .heads = 4,
        .kv_heads = 4,
        .head_dim = 4,
        .ffn = 24,
        .vocab = 128,
        .tied = 1,
        .qkv_bias = 1,
        .o_bias = 1,
        .post_norms = 1,
        .norm_offset = 1,
        .gated = 1,
        .act = XM_ACT_GELU_TANH,
        .attn_softcap = 1.5,
        .logit_softcap = 2.5,
        .embed_scale = 4.5,
        .sliding = { 1 },
        .window = 5,
        .rope_local = { .theta = 500, .scale = 1 } },
      0 },
    { "gpt2, untied, value head",
      { BASE, .arch = XM_ARCH_GPT2, .heads = 8, .kv_heads = 8, .head_dim = 3,
        .ffn = 40, .vocab = 125, .qkv_bias = 1, .o_bias = 1, .mlp_bias = 1,
        .layer_norm = 1, .act = XM_ACT_GELU_TANH, .learned_positions = 1,
        .fused = 1, .transposed = 1, .embed_scale = 1 },
      1 },
    { "phi3, part of a head turns",
      { BASE, ROTARY(4), .arch = XM_ARCH_PHI3, .heads = 8, .kv_heads = 4,
        .head_dim = 6, .ffn = 24, .vocab = 193, .fused = 1, .gated = 1,
        .act = XM_ACT_SILU, .embed_scale = 1 },
      0 },
    { "qwen3, one KV head",
      { BASE, ROTARY(4), .arch = XM_ARCH_QWEN3, .heads = 4, .kv_heads = 1,
        .head_dim = 4, .ffn = 16, .vocab = 121, .tied = 1, .qk_norm = 1,
        .gated = 1, .act = XM_ACT_SILU, .embed_scale = 1 },
      0 },
    { "llama, two KV heads, every bias, value head",
      { BASE, ROTARY(6), .arch = XM_ARCH_LLAMA, .heads = 8, .kv_heads = 2,
        .head_dim = 6, .ffn = 16, .vocab = 250, .qkv_bias = 1, .o_bias = 1,
        .mlp_bias = 1, .gated = 1, .act = XM_ACT_SILU, .embed_scale = 1 },
      1 },
    { "phi3, two KV heads",
      { BASE, ROTARY(4), .arch = XM_ARCH_PHI3, .heads = 8, .kv_heads = 2,
        .head_dim = 6, .ffn = 24, .vocab = 250, .fused = 1, .gated = 1,
        .act = XM_ACT_SILU, .embed_scale = 1 },
      0 },
};
const size_t slice_kind_count = sizeof slice_kinds / sizeof slice_kinds[0];

uint32_t slice_most_ranks(const xm_config *model)
{
    xm_config slice;
    uint32_t ranks = XRAY_SEGMENTS;
    while (ranks > 1 &&
           xm_config_slice(model, 0, ranks, NULL, &slice) != XRAY_OK)
        ranks /= 2;
    return ranks;
}
