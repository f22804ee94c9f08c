#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/hf/architectures.json: how transformers reads config.json.

Needs torch and transformers. Each case is a config.json with the properties of the
model built from it: sizes, windows, scales, frequencies of the rotary pairs in
double precision, and the names and shapes of its parameters.

    python3 tests/parity/hf_configs.py > tests/hf/architectures.json
"""
import copy
import importlib
import json
import sys

# The packages come first, because a script of this folder has the name of one.
sys.path.append(sys.path.pop(0))

import torch  # noqa: E402
import transformers  # noqa: E402
from transformers import AutoConfig, AutoModelForCausalLM, modeling_rope_utils  # noqa: E402


class DoubleTorch:
    """torch with double precision in place of single precision."""

    def __getattr__(self, name):
        return getattr(torch, "float64" if name in ("float", "float32") else name)


def import_modeling(kind):
    folder = "gemma3" if kind == "gemma3_text" else kind
    return importlib.import_module(f"transformers.models.{folder}.modeling_{folder}")


def read_rotary(config):
    """Returns [(inv_freq, attention factor)] for full-attention and sliding layers."""
    module = import_modeling(config.model_type)
    name = next((n for n in dir(module) if n.endswith("RotaryEmbedding")), None)
    if not name:
        return None
    kept = module.torch, modeling_rope_utils.torch
    module.torch = modeling_rope_utils.torch = DoubleTorch()
    try:
        rotary = getattr(module, name)(copy.deepcopy(config))
    finally:
        module.torch, modeling_rope_utils.torch = kept
    out = []
    for kind in ("full_attention", "sliding_attention"):
        nested = hasattr(rotary, f"{kind}_inv_freq")
        prefix = f"{kind}_" if nested else ""
        if not hasattr(rotary, prefix + "inv_freq"):
            out.append(None)
            continue
        scale = getattr(rotary, prefix + "attention_scaling")
        out.append([getattr(rotary, prefix + "inv_freq").tolist(), float(scale)])
    return out


def read_sliding_layers(config):
    kinds = getattr(config, "layer_types", None)
    window = getattr(config, "sliding_window", None)
    if kinds is None or config.model_type in ("mistral", "phi3", "llama"):
        slides = window is not None and config.model_type in ("mistral", "phi3")
        return [int(slides)] * config.num_hidden_layers
    return [int(k == "sliding_attention") for k in kinds]


ACTS = {"silu": 1, "gelu_pytorch_tanh": 2, "gelu_new": 2}


def describe_config(text):
    raw = copy.deepcopy(text)
    config = AutoConfig.for_model(raw.pop("model_type"), **raw)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(copy.deepcopy(config))
    gpt2 = config.model_type == "gpt2"
    body = model.transformer if gpt2 else model.model
    block = (body.h if gpt2 else body.layers)[0]
    attention = block.attn if gpt2 else block.self_attn
    sliding = read_sliding_layers(config)
    act = getattr(config, "activation_function", None) or getattr(
        config, "hidden_activation", None) or config.hidden_act
    embed = body.wte if gpt2 else body.embed_tokens
    parameters = list(model.named_parameters())
    expect = {
        "hidden": config.hidden_size,
        "layers": config.num_hidden_layers,
        "heads": config.num_attention_heads,
        "kv_heads": getattr(config, "num_key_value_heads", config.num_attention_heads),
        "head_dim": attention.head_dim,
        "ffn": config.n_inner or 4 * config.n_embd if gpt2 else config.intermediate_size,
        "vocab": config.vocab_size,
        "max_positions": config.max_position_embeddings,
        "tied": int(config.tie_word_embeddings),
        "act": ACTS[act],
        "norm_eps": config.layer_norm_epsilon if gpt2 else config.rms_norm_eps,
        "init_range": config.initializer_range,
        "attn_scale": attention.scaling,
        "attn_softcap": (getattr(config, "attn_logit_softcapping", None) or 0),
        "logit_softcap": getattr(config, "final_logit_softcapping", None) or 0,
        "embed_scale": getattr(embed, "scalar_embed_scale", 1.0),
        "window": config.sliding_window if any(sliding) else 0,
        "sliding": "".join(map(str, sliding)),
        "parameters": sum(p.numel() for _, p in parameters),
    }
    rotary = read_rotary(config)
    if rotary:
        expect["rope"], expect["rope_local"] = rotary
        if config.model_type != "gemma3_text":
            expect["rope"] = expect["rope_local"] = rotary[0] or rotary[1]
    if config.hidden_size <= 64 and config.num_hidden_layers <= 2:
        expect["tensors"] = {n: list(p.shape) for n, p in parameters}
    return expect


TINY = {
    "hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "intermediate_size": 40, "vocab_size": 32,
    "max_position_embeddings": 64, "pad_token_id": None, "bos_token_id": None,
    "eos_token_id": None,
}
TINY_GPT2 = {"n_embd": 48, "n_layer": 2, "n_head": 4, "vocab_size": 32, "n_positions": 64,
             "bos_token_id": None, "eos_token_id": None}
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
          "high_freq_factor": 4.0, "original_max_position_embeddings": 32}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16}


def tiny_config(kind, **more):
    base = TINY_GPT2 if kind == "gpt2" else TINY
    return {"model_type": kind, **base, **more}


def cases():
    kinds = ["llama", "mistral", "qwen2", "qwen3", "gemma", "gemma2", "gemma3_text",
             "gpt2", "phi3"]
    for kind in kinds:
        yield kind + " defaults", {"model_type": kind}
    for kind in kinds:
        yield kind + " tiny", tiny_config(kind)
    yield "llama biases", tiny_config("llama", attention_bias=True, mlp_bias=True,
                               tie_word_embeddings=True, head_dim=8)
    yield "llama null heads", tiny_config("llama", num_key_value_heads=None)
    yield "llama tanh", tiny_config("llama", hidden_act="gelu_pytorch_tanh")
    yield "llama linear, old spelling", tiny_config(
        "llama", rope_theta=5e5, rope_scaling={"type": "linear", "factor": 2.5})
    yield "llama linear, new spelling", tiny_config(
        "llama", rope_parameters={"rope_type": "linear", "factor": 3, "rope_theta": 7e4})
    yield "llama both spellings", tiny_config(
        "llama", rope_theta=5.0, rope_scaling={"rope_type": "linear", "factor": 3},
        rope_parameters={"rope_type": "default", "rope_theta": 7e4})
    yield "llama llama3", tiny_config("llama", head_dim=64, rope_theta=5e5, rope_scaling=LLAMA3)
    yield "llama 3.1 8B", {
        "model_type": "llama", "num_key_value_heads": 8, "intermediate_size": 14336,
        "vocab_size": 128256, "max_position_embeddings": 131072, "rms_norm_eps": 1e-5,
        "rope_theta": 500000.0,
        "rope_scaling": {**LLAMA3, "original_max_position_embeddings": 8192}}
    yield "llama yarn", tiny_config("llama", head_dim=64, rope_scaling=YARN)
    yield "llama yarn without truncation", tiny_config(
        "llama", head_dim=64, rope_parameters={**YARN, "truncate": False, "rope_theta": 3e4})
    yield "llama yarn betas and factor", tiny_config(
        "llama", head_dim=32,
        rope_scaling={**YARN, "beta_fast": 8, "beta_slow": 2, "attention_factor": 1.5})
    yield "llama yarn mscale", tiny_config(
        "llama", head_dim=32, rope_scaling={**YARN, "mscale": 0.7, "mscale_all_dim": 1.3})
    yield "llama yarn original outside", tiny_config(
        "llama", head_dim=32, original_max_position_embeddings=24, rope_scaling=YARN)
    yield "qwen3 yarn", {
        "model_type": "qwen3", "max_position_embeddings": 131072, "rope_theta": 1e6,
        "rope_scaling": {"type": "yarn", "factor": 4.0,
                         "original_max_position_embeddings": 32768}}
    yield "mistral no window", tiny_config("mistral", sliding_window=None)
    yield "mistral window", tiny_config("mistral", sliding_window=8, head_dim=20)
    yield "qwen2 window unused", tiny_config("qwen2", use_sliding_window=False, sliding_window=8,
                                      max_window_layers=1)
    yield "qwen2 window", tiny_config("qwen2", use_sliding_window=True, sliding_window=8,
                               max_window_layers=1)
    yield "qwen2 layer types", tiny_config(
        "qwen2", use_sliding_window=True, sliding_window=8,
        layer_types=["sliding_attention", "full_attention"])
    yield "qwen3 biases", tiny_config("qwen3", attention_bias=True, head_dim=16)
    yield "gemma gelu", tiny_config("gemma", hidden_act="gelu", head_dim=16)
    yield "gemma biases", tiny_config("gemma", attention_bias=True, tie_word_embeddings=False)
    yield "gemma2 no caps", tiny_config(
        "gemma2", attn_logit_softcapping=None, final_logit_softcapping=None,
        query_pre_attn_scalar=144, head_dim=16, cache_implementation="hybrid",
        num_hidden_layers=5)
    yield "gemma2 layer types", tiny_config(
        "gemma2", sliding_window=8, layer_types=["full_attention", "sliding_attention"])
    yield "gemma3 pattern", tiny_config(
        "gemma3_text", num_hidden_layers=7, sliding_window_pattern=3, sliding_window=8,
        rope_local_base_freq=5000.0, rope_theta=2e6, query_pre_attn_scalar=168,
        final_logit_softcapping=20.0)
    yield "gemma3 linear", tiny_config(
        "gemma3_text", num_hidden_layers=7, head_dim=16,
        rope_scaling={"rope_type": "linear", "factor": 8.0})
    yield "gemma3 nested", tiny_config(
        "gemma3_text", num_hidden_layers=2, head_dim=16,
        layer_types=["sliding_attention", "full_attention"],
        rope_parameters={
            "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 3e6},
            "sliding_attention": {"rope_type": "default", "rope_theta": 2e4}})
    yield "gpt2 inner", tiny_config("gpt2", n_inner=20, activation_function="gelu_pytorch_tanh",
                             tie_word_embeddings=False, scale_attn_weights=False)
    yield "phi3 partial", tiny_config("phi3", partial_rotary_factor=0.75, hidden_size=64,
                               sliding_window=8, original_max_position_embeddings=64)


def main():
    lines = []
    for name, config in cases():
        case = {"name": name, "config": config, "expect": describe_config(config)}
        lines.append(json.dumps(case, separators=(",", ":")))
    sys.stdout.write('{"transformers":"%s","cases":[\n' % transformers.__version__)
    sys.stdout.write(",\n".join(lines) + "\n]}\n")


if __name__ == "__main__":
    main()
