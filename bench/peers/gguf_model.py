#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Converts a measured Llama to an fp32 (or bf16) GGUF for llama.cpp.

    gguf_model.py MODEL OUT.gguf [f32|bf16]

The words of its vocabulary occur in no text, because prompts are token ids; the
server does not start without any.
"""
import json
import sys

import gguf
import numpy as np
from safetensors import safe_open

NAMES = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def name_of(key):
    if not key.startswith("model.layers."):
        return {"model.embed_tokens.weight": "token_embd.weight",
                "model.norm.weight": "output_norm.weight",
                "lm_head.weight": "output.weight"}[key]
    layer, rest = key[len("model.layers."):].split(".", 1)
    return f"blk.{layer}.{NAMES[rest.removesuffix('.weight')]}.weight"


def rotated(x, heads):
    """Interleaves the rotary halves, as llama.cpp's rope requires for this model."""
    return x.reshape(heads, 2, -1, x.shape[1]).swapaxes(1, 2).reshape(x.shape)


def main():
    model, out = sys.argv[1], sys.argv[2]
    kind = sys.argv[3] if len(sys.argv) > 3 else "f32"
    with open(f"{model}/config.json", encoding="utf-8") as f:
        c = json.load(f)
    w = gguf.GGUFWriter(out, "llama")
    w.add_context_length(c["max_position_embeddings"])
    w.add_embedding_length(c["hidden_size"])
    w.add_block_count(c["num_hidden_layers"])
    w.add_feed_forward_length(c["intermediate_size"])
    w.add_head_count(c["num_attention_heads"])
    w.add_head_count_kv(c["num_key_value_heads"])
    w.add_key_length(c["head_dim"])
    w.add_value_length(c["head_dim"])
    w.add_rope_dimension_count(c["head_dim"])
    w.add_layer_norm_rms_eps(c["rms_norm_eps"])
    w.add_rope_freq_base(c["rope_theta"])
    w.add_vocab_size(c["vocab_size"])
    words = [f"<{i}>" for i in range(c["vocab_size"])]
    w.add_tokenizer_model("llama")
    w.add_token_list(words)
    w.add_token_scores([0.0] * len(words))
    w.add_token_types([gguf.TokenType.NORMAL] * len(words))
    w.add_bos_token_id(c["bos_token_id"])
    w.add_eos_token_id(c["eos_token_id"])
    w.add_add_bos_token(False)
    with safe_open(f"{model}/model.safetensors", "numpy") as tensors:
        for key in tensors.keys():
            x = tensors.get_tensor(key).astype(np.float32)
            if "q_proj" in key:
                x = rotated(x, c["num_attention_heads"])
            if "k_proj" in key:
                x = rotated(x, c["num_key_value_heads"])
            half = kind == "bf16" and x.ndim == 2
            raw = gguf.GGMLQuantizationType.BF16 if half else None
            w.add_tensor(name_of(key), gguf.quants.quantize(x, raw) if half else x, raw_dtype=raw)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


if __name__ == "__main__":
    main()
