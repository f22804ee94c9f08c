#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the models and data with which X-ray and its peers are measured.

    models.py FOLDER QUICKSTART_SFT

writes FOLDER/small (the quickstart's decoder after `xray sft`, extended to 1024
positions), FOLDER/35m (a Llama with random weights), and for each of them a
prompts.jsonl for one GRPO step. Both have the quickstart's tokenizer; that of
35m is filled up to 32,000 words, which occur in no text. A QUICKSTART_SFT without
weights, as `quickstart-task` writes it, gives 35m alone.
"""
import json
import pathlib
import random
import shutil
import sys

import torch
from safetensors.torch import load_file, save_file
from transformers import LlamaConfig, LlamaForCausalLM


def write(path, value):
    path.write_text(json.dumps(value, indent=1) + "\n")


def make_35m(out, tokenizer):
    config = json.loads((pathlib.Path(__file__).parent.parent / "35m.json").read_text())
    torch.manual_seed(1)
    model = LlamaForCausalLM(LlamaConfig(**{k: v for k, v in config.items() if k != "torch_dtype"}))
    tensors = {k: v.contiguous() for k, v in model.state_dict().items() if k != "lm_head.weight"}
    print("35m:", sum(t.numel() for t in tensors.values()), "parameters")
    save_file(tensors, out / "model.safetensors", metadata={"format": "pt"})
    write(out / "config.json", config)
    vocab = tokenizer["model"]["vocab"]
    while len(vocab) < config["vocab_size"]:
        vocab[f"word{len(vocab)}"] = len(vocab)
    write(out / "tokenizer.json", tokenizer)


def make_small(out, source):
    config = json.loads((source / "config.json").read_text())
    config["max_position_embeddings"] = 1024
    write(out / "config.json", config)
    save_file(load_file(source / "model.safetensors"), out / "model.safetensors",
              metadata={"format": "pt"})
    shutil.copy(source / "tokenizer.json", out)


def prompts(out, count, digits):
    """Writes prompts of `digits` characters, which with the BOS are their tokens."""
    draw = random.Random(1)
    with open(out / "prompts.jsonl", "w", encoding="utf-8") as f:
        for _ in range(count):
            if digits == 8:
                a, b = draw.randint(100, 999), draw.randint(100, 999)
                row = {"question": f"{a}+{b}=", "answer": str(a + b)[::-1]}
            else:
                row = {"question": "".join(draw.choice("0123456789") for _ in range(digits)),
                       "answer": "1"}
            f.write(json.dumps(row) + "\n")


def main():
    out, source = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    trained = (source / "model.safetensors").exists()
    for name in ("small", "35m")[not trained:]:
        (out / name).mkdir(parents=True, exist_ok=True)
        shutil.copy(source / "tokenizer_config.json", out / name)
    if trained:
        make_small(out / "small", source)
        prompts(out / "small", 64, 8)
    make_35m(out / "35m", json.loads((source / "tokenizer.json").read_text()))
    prompts(out / "35m", 8, 63)


if __name__ == "__main__":
    main()
