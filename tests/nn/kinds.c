/* SPDX-License-Identifier: Apache-2.0
 *
 * Defines small models: each architecture, and each of its features where it
 * has an effect. Rows of the suites have up to 50 tokens. Windows are shorter
 * than some rows and longer than others, and caps are low enough to change
 * scores and logits.
 */
#include "tests/nn/fixture.h"

#define BASE .norm_eps = 1e-5, .init_range = 0.02, .bos_id = -1
#define LLAMA \
    BASE, .max_positions = 512, .gated = 1, .act = XM_ACT_SILU, .embed_scale = 1
#define THETA(base)               \
    {                             \
        .theta = base, .scale = 1 \
    }

#define SIZES                                                            \
    .layers = 2, .hidden = 24, .heads = 4, .kv_heads = 2, .head_dim = 6, \
    .ffn = 20, .vocab = 37, .rotary = 6, .attn_scale = 0.40824829046386302
#define SMALL LLAMA, SIZES, .rope = THETA(10000)

/* Heads with enough rotary pairs for every case of a scaling rule. */
#define WIDE                                                             \
    LLAMA, .arch = XM_ARCH_LLAMA, .layers = 2, .hidden = 20, .heads = 2, \
           .kv_heads = 1, .head_dim = 16, .ffn = 18, .vocab = 31,        \
           .rotary = 16, .attn_scale = 0.25

#define GEMMA                                                       \
    BASE, .max_positions = 512, .tied = 1, .gated = 1,              \
          .act = XM_ACT_GELU_TANH, .norm_offset = 1, .head_dim = 8, \
          .rotary = 8, .rope_local = THETA(10000)
#define GEMMA_SIZES                                                  \
    .layers = 2, .hidden = 20, .heads = 4, .kv_heads = 2, .ffn = 24, \
    .vocab = 41, .embed_scale = 4.5, .rope = THETA(10000)
#define GEMMA2                                                               \
    GEMMA, GEMMA_SIZES, .arch = XM_ARCH_GEMMA2, .post_norms = 1,             \
                        .attn_softcap = 1.5, .logit_softcap = 2.5,           \
                        .attn_scale = 0.31622776601683794, .sliding = { 1 }, \
                        .window = 5
/* Layers 0 to 4 have a sliding window, layer 5 full attention. */
#define GEMMA3                                                               \
    GEMMA, .arch = XM_ARCH_GEMMA3, .layers = 6, .hidden = 16, .heads = 2,    \
           .kv_heads = 1, .ffn = 12, .vocab = 29, .embed_scale = 4,          \
           .post_norms = 1, .qk_norm = 1, .attn_scale = 0.4,                 \
           .sliding = { 0x1f }, .window = 6,                                 \
           .rope = {                                                         \
               .kind = XM_ROPE_LINEAR, .theta = 1e6, .factor = 8, .scale = 1 \
           }

#define GPT2                                                                \
    BASE, .arch = XM_ARCH_GPT2, .layers = 2, .hidden = 20, .heads = 4,      \
          .kv_heads = 4, .head_dim = 5, .ffn = 28, .vocab = 33,             \
          .max_positions = 64, .qkv_bias = 1, .o_bias = 1, .mlp_bias = 1,   \
          .layer_norm = 1, .act = XM_ACT_GELU_TANH, .learned_positions = 1, \
          .fused = 1, .transposed = 1, .attn_scale = 0.44721359549995793,   \
          .embed_scale = 1

#define PHI3                                                                  \
    LLAMA, .arch = XM_ARCH_PHI3, .layers = 2, .hidden = 18, .heads = 4,       \
           .kv_heads = 2, .head_dim = 10, .ffn = 22, .vocab = 35, .fused = 1, \
           .rope = THETA(10000), .rope_local = THETA(10000), .rotary = 6,     \
           .attn_scale = 0.31622776601683794

const fixture_kind fixture_kinds[] = {
    { "llama, tied", { SMALL, .arch = XM_ARCH_LLAMA, .tied = 1 }, 0 },
    { "llama, untied", { SMALL, .arch = XM_ARCH_LLAMA }, 0 },
    { "llama, value head", { SMALL, .arch = XM_ARCH_LLAMA, .tied = 1 }, 1 },
    { "qwen2, biases",
      { SMALL, .arch = XM_ARCH_QWEN2, .tied = 1, .qkv_bias = 1 },
      0 },
    { "qwen3, wide heads",
      { LLAMA, .arch = XM_ARCH_QWEN3, .layers = 3, .hidden = 20, .heads = 4,
        .kv_heads = 1, .head_dim = 16, .ffn = 28, .vocab = 41, .qk_norm = 1,
        .rope = THETA(1e6), .rotary = 16, .attn_scale = 0.25 },
      1 },
    { "qwen3, sums in four segments",
      { LLAMA, .arch = XM_ARCH_QWEN3, .layers = 2, .hidden = 24, .heads = 4,
        .kv_heads = 4, .head_dim = 6, .ffn = 20, .vocab = 37, .tied = 1,
        .qk_norm = 1, .rope = THETA(1e6), .rotary = 6, .attn_scale = 0.4 },
      0 },
    { "llama, every bias",
      { SMALL, .arch = XM_ARCH_LLAMA, .qkv_bias = 1, .o_bias = 1,
        .mlp_bias = 1 },
      0 },
    { "llama 3.1, scaled positions",
      { WIDE, .rope = { .kind = XM_ROPE_LLAMA3,
                        .theta = 10000,
                        .factor = 8,
                        .low_freq_factor = 1,
                        .high_freq_factor = 4,
                        .original_positions = 64,
                        .scale = 1 } },
      0 },
    { "llama, linear positions",
      { WIDE, .tied = 1,
        .rope = { .kind = XM_ROPE_LINEAR,
                  .theta = 500,
                  .factor = 4,
                  .scale = 1 } },
      0 },
    { "qwen2, yarn positions",
      { WIDE, .qkv_bias = 1,
        .rope = { .kind = XM_ROPE_YARN,
                  .theta = 10000,
                  .factor = 4,
                  .original_positions = 512,
                  .beta_fast = 32,
                  .beta_slow = 1,
                  .scale = 1.1386294361119891,
                  .truncate = 1 } },
      0 },
    { "qwen2, a layer that slides",
      { SMALL, .arch = XM_ARCH_QWEN2, .qkv_bias = 1, .rope_local = THETA(10000),
        .sliding = { 2 }, .window = 17 },
      0 },
    { "mistral",
      { SMALL, .arch = XM_ARCH_MISTRAL, .rope_local = THETA(10000),
        .sliding = { 3 }, .window = 7 },
      0 },
    { "mistral, a window no row fills",
      { SMALL, .arch = XM_ARCH_MISTRAL, .rope_local = THETA(10000),
        .sliding = { 3 }, .window = 200 },
      0 },
    { "gemma",
      { GEMMA, GEMMA_SIZES, .arch = XM_ARCH_GEMMA,
        .attn_scale = 0.35355339059327379 },
      0 },
    { "gemma 2", { GEMMA2 }, 0 },
    { "gemma 2, biases, value head",
      { GEMMA2, .qkv_bias = 1, .o_bias = 1 },
      1 },
    { "gemma 3", { GEMMA3 }, 0 },
    { "gpt2, tied", { GPT2, .tied = 1 }, 0 },
    { "gpt2, untied, value head", { GPT2 }, 1 },
    { "phi3, part of a head turns",
      { PHI3, .sliding = { 3 }, .window = 20 },
      0 },
    { "phi3, no window, value head", { PHI3, .tied = 1 }, 1 },
};
const size_t fixture_kind_count =
    sizeof fixture_kinds / sizeof fixture_kinds[0];
