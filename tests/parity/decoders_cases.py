# SPDX-License-Identifier: Apache-2.0
"""Lists the models of decoders.py.

`old`: config.json is the raw dictionary, in the spelling of most published files;
otherwise it is what this version of transformers writes. `without` lists changes of
config.json, each of which turns off one feature of the case and must change the
oracle's results.
"""

SMALL = {
    "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
    "intermediate_size": 20, "vocab_size": 48, "max_position_embeddings": 64, "rms_norm_eps": 1e-5,
    "pad_token_id": None, "bos_token_id": None, "eos_token_id": None,
}
GPT2 = {
    "n_embd": 16, "n_layer": 2, "n_head": 4, "vocab_size": 48, "n_positions": 64,
    "bos_token_id": None, "eos_token_id": None,
}
# The rotary pairs of a 16-wide head fall on all sides of these rules.
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 32}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16,
        "beta_fast": 4.0, "beta_slow": 0.5}

PLAIN = {"rope_scaling": None, "rope_parameters": None}


def case(name, kind, *without, old=False, dtype="bfloat16", **more):
    base = GPT2 if kind == "gpt2" else SMALL
    config = {"model_type": kind, **base, **more}
    return {"name": name, "config": config, "old": old, "dtype": dtype, "without": without}


def gemma3_ropes(factor, theta, local):
    return {"full_attention": {"rope_type": "linear", "factor": factor, "rope_theta": theta},
            "sliding_attention": {"rope_type": "default", "rope_theta": local}}


CASES = [
    case("llama", "llama", {"rms_norm_eps": 1e-1}),
    case("llama_tied", "llama", tie_word_embeddings=True, head_dim=8, dtype="float16"),
    case("llama_biases", "llama", attention_bias=True, mlp_bias=True, num_key_value_heads=4),
    case("llama_llama3", "llama", PLAIN, old=True, head_dim=16, rope_theta=10000.0,
         rope_scaling=LLAMA3),
    case("llama_linear", "llama", PLAIN, old=True, head_dim=8, rope_theta=500.0,
         rope_scaling={"type": "linear", "factor": 2.5}),
    case("llama_yarn", "llama", PLAIN, head_dim=16, rope_scaling=YARN),
    case("llama_yarn_mscale", "llama", {"rope_scaling": YARN}, old=True, head_dim=16,
         num_attention_heads=2, num_key_value_heads=1,
         rope_scaling={**YARN, "mscale": 0.7, "mscale_all_dim": 1.6}),
    case("mistral", "mistral", {"sliding_window": 8}, {"sliding_window": 6}, sliding_window=7,
         head_dim=8),
    case("mistral_full", "mistral", {"sliding_window": 8}, old=True, sliding_window=None,
         rope_theta=1000000.0, dtype="float16"),
    case("qwen2", "qwen2", {"rope_theta": 1000000.0}, old=True, tie_word_embeddings=True,
         rope_theta=10000.0, use_sliding_window=False, sliding_window=8, max_window_layers=1),
    case("qwen2_window", "qwen2", {"sliding_window": 7}, {"max_window_layers": 2},
         {"max_window_layers": 0}, old=True, rope_theta=1000000.0, use_sliding_window=True,
         sliding_window=6, max_window_layers=1),
    case("qwen3", "qwen3", {"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}},
         tie_word_embeddings=True, head_dim=8, rope_theta=1000000.0),
    case("qwen3_window", "qwen3", {"sliding_window": 10},
         {"layer_types": ["full_attention", "full_attention"]}, head_dim=8, attention_bias=True,
         use_sliding_window=True, sliding_window=9,
         layer_types=["sliding_attention", "full_attention"], dtype="float16"),
    case("gemma", "gemma", {"hidden_act": "silu"}, old=True, head_dim=8, hidden_act="gelu",
         num_key_value_heads=1),
    case("gemma2", "gemma2", {"attn_logit_softcapping": None}, {"final_logit_softcapping": None},
         {"sliding_window": 6}, {"query_pre_attn_scalar": 8}, num_hidden_layers=3, head_dim=8,
         sliding_window=5, query_pre_attn_scalar=12, attn_logit_softcapping=2.0,
         final_logit_softcapping=4.0),
    case("gemma3", "gemma3_text", {"sliding_window": 7}, {"query_pre_attn_scalar": 8},
         {"layer_types": ["sliding_attention"] * 6},
         {"rope_parameters": gemma3_ropes(1.0, 100000.0, 10000.0)},
         {"rope_parameters": gemma3_ropes(8.0, 10000.0, 10000.0)},
         {"rope_parameters": gemma3_ropes(8.0, 100000.0, 100000.0)}, num_hidden_layers=6, head_dim=8,
         num_attention_heads=2, num_key_value_heads=1, intermediate_size=12,
         sliding_window=6, query_pre_attn_scalar=10,
         rope_parameters=gemma3_ropes(8.0, 100000.0, 10000.0)),
    case("gemma3_pattern", "gemma3_text", {"sliding_window_pattern": 2},
         {"rope_scaling": None}, {"rope_theta": 10000.0}, {"rope_local_base_freq": 10000.0},
         {"final_logit_softcapping": None}, old=True, num_hidden_layers=4, head_dim=16,
         num_attention_heads=2, num_key_value_heads=1, sliding_window=6, sliding_window_pattern=3,
         rope_local_base_freq=20.0, rope_theta=100.0, query_pre_attn_scalar=24,
         rope_scaling={"rope_type": "linear", "factor": 4.0}, final_logit_softcapping=4.0),
    case("gpt2", "gpt2", {"layer_norm_epsilon": 1e-1}, {"activation_function": "gelu"}, old=True),
    case("gpt2_untied", "gpt2", {"scale_attn_weights": True}, tie_word_embeddings=False,
         n_inner=20, scale_attn_weights=False, activation_function="gelu_pytorch_tanh",
         dtype="float16"),
    case("phi3", "phi3", {"sliding_window": 8}, {"partial_rotary_factor": 1.0}, old=True,
         num_attention_heads=2,
         num_key_value_heads=1, partial_rotary_factor=0.75, sliding_window=7),
    case("phi3_full", "phi3", {"sliding_window": 8}, tie_word_embeddings=True, num_key_value_heads=4),
]
