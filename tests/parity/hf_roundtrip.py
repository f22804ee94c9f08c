#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Proves that weights survive transformers -> X-ray -> transformers unchanged.

Needs torch and transformers. Small random models of every architecture are
saved by transformers in shards, loaded and saved again by nn-resave (a target
of tests/nn) in shards and as one file, and loaded by transformers.

    python3 tests/parity/hf_roundtrip.py build/tests/nn/nn-resave
"""
import copy
import pathlib
import shutil
import subprocess
import sys
import tempfile

# The packages come first, because a script of this folder has the name of one.
sys.path.append(sys.path.pop(0))

import torch  # noqa: E402
from transformers import AutoConfig, AutoModelForCausalLM  # noqa: E402

from hf_configs import cases  # noqa: E402


def check(resave, text, folder):
    raw = copy.deepcopy(text)
    config = AutoConfig.for_model(raw.pop("model_type"), **raw)
    model = AutoModelForCausalLM.from_config(config).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter)
    ids = torch.arange(24).reshape(2, 12) % config.vocab_size
    ours, theirs = folder / "ours", folder / "theirs"
    model.save_pretrained(theirs, max_shard_size="20KB")
    for limit in (20_000, 5_000_000_000):
        subprocess.run([resave, theirs, ours, str(limit)], check=True)
        shutil.copy(theirs / "config.json", ours)
        again, info = AutoModelForCausalLM.from_pretrained(ours, output_loading_info=True)
        assert not info["missing_keys"] and not info["unexpected_keys"], info
        before, after = model.state_dict(), again.state_dict()
        assert before.keys() == after.keys()
        assert all(torch.equal(before[k], after[k]) for k in before)
        with torch.no_grad():
            assert torch.equal(model(ids).logits, again.eval()(ids).logits)


def main():
    torch.manual_seed(0)
    done = 0
    for name, text in cases():
        if text.get("hidden_size", text.get("n_embd", 1 << 20)) > 64:
            continue
        with tempfile.TemporaryDirectory() as folder:
            check(sys.argv[1], text, pathlib.Path(folder))
        done += 1
        print("ok", name)
    print(f"{done} models, equal parameters and logits")


if __name__ == "__main__":
    main()
