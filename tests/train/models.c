/* SPDX-License-Identifier: Apache-2.0
 *
 * The models that ranks train, each a config.json, and the run that tests
 * begin with.
 */
#include "tests/train/ranks.h"

const char ranks_deep[] =
    "{\"model_type\":\"llama\",\"architectures\":[\"LlamaForCausalLM\"],"
    "\"hidden_act\":\"silu\",\"hidden_size\":64,\"num_hidden_layers\":6,"
    "\"num_attention_heads\":4,\"num_key_value_heads\":2,"
    "\"intermediate_size\":160,\"vocab_size\":512,"
    "\"max_position_embeddings\":64,\"rms_norm_eps\":1e-5,"
    "\"rope_theta\":10000.0,\"initializer_range\":0.08,"
    "\"tie_word_embeddings\":false,\"bos_token_id\":1,\"eos_token_id\":2}";

const char ranks_qwen3[] =
    "{\"model_type\":\"qwen3\",\"architectures\":[\"Qwen3ForCausalLM\"],"
    "\"hidden_act\":\"silu\",\"hidden_size\":24,\"num_hidden_layers\":2,"
    "\"num_attention_heads\":8,\"num_key_value_heads\":8,\"head_dim\":4,"
    "\"intermediate_size\":32,\"vocab_size\":121,"
    "\"max_position_embeddings\":64,\"rms_norm_eps\":1e-6,"
    "\"rope_theta\":10000.0,\"initializer_range\":0.08,"
    "\"tie_word_embeddings\":true,\"bos_token_id\":1,\"eos_token_id\":2}";
const char ranks_qwen2[] =
    "{\"model_type\":\"qwen2\",\"architectures\":[\"Qwen2ForCausalLM\"],"
    "\"hidden_act\":\"silu\",\"hidden_size\":32,\"num_hidden_layers\":2,"
    "\"num_attention_heads\":8,\"num_key_value_heads\":4,"
    "\"intermediate_size\":56,\"vocab_size\":250,"
    "\"max_position_embeddings\":64,\"rms_norm_eps\":1e-5,"
    "\"rope_theta\":10000.0,\"initializer_range\":0.08,"
    "\"tie_word_embeddings\":false,\"bos_token_id\":1,\"eos_token_id\":2}";

/* Fused, transposed q, k and v; biases that every rank has. */
const char ranks_gpt2[] =
    "{\"model_type\":\"gpt2\",\"architectures\":[\"GPT2LMHeadModel\"],"
    "\"n_embd\":32,\"n_layer\":2,\"n_head\":8,\"n_positions\":64,"
    "\"vocab_size\":121,\"layer_norm_epsilon\":1e-5,"
    "\"initializer_range\":0.08,\"tie_word_embeddings\":true,"
    "\"bos_token_id\":1,\"eos_token_id\":2}";

/* Two KV heads, with norms. */
const char ranks_narrow[] =
    "{\"model_type\":\"qwen3\",\"architectures\":[\"Qwen3ForCausalLM\"],"
    "\"hidden_act\":\"silu\",\"hidden_size\":24,\"num_hidden_layers\":2,"
    "\"num_attention_heads\":8,\"num_key_value_heads\":2,\"head_dim\":4,"
    "\"intermediate_size\":32,\"vocab_size\":121,"
    "\"max_position_embeddings\":64,\"rms_norm_eps\":1e-6,"
    "\"rope_theta\":10000.0,\"initializer_range\":0.08,"
    "\"tie_word_embeddings\":true,\"bos_token_id\":1,\"eos_token_id\":2}";

const char ranks_fused[] =
    "{\"model_type\":\"phi3\",\"architectures\":[\"Phi3ForCausalLM\"],"
    "\"hidden_act\":\"silu\",\"hidden_size\":32,\"num_hidden_layers\":2,"
    "\"num_attention_heads\":8,\"num_key_value_heads\":2,"
    "\"intermediate_size\":32,\"vocab_size\":121,\"pad_token_id\":0,"
    "\"max_position_embeddings\":64,\"rms_norm_eps\":1e-6,"
    "\"rope_theta\":10000.0,\"initializer_range\":0.08,"
    "\"tie_word_embeddings\":false,\"bos_token_id\":1,\"eos_token_id\":2}";

ranks_run ranks_of(const char *json, uint32_t ranks, uint32_t stage)
{
    return (ranks_run){ .spec = { .config_json = json,
                                  .tokens = 400,
                                  .row_tokens = 24,
                                  .outputs = XRAY_OUTPUT_LOGP |
                                             XRAY_OUTPUT_ENTROPY |
                                             XRAY_OUTPUT_VALUE,
                                  .seed = 4,
                                  .stage_1 = stage + 1 },
                        .ranks = ranks,
                        .steps = 3,
                        .cuts = 1 };
}
