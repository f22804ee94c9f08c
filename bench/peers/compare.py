#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures X-ray, PyTorch 2 with transformers, TRL and llama.cpp in one run.

    compare.py BUILD MODELS [--threads 2] [--turns 3] [--llama llama-batched-bench]
               [--only train,generate,llama,bf16,grpo,start] [--models small,35m]

BUILD is a build folder of the release preset, MODELS the folder that models.py
wrote (and gguf_model.py, as NAME-f32.gguf). Each measurement is taken in turns,
first X-ray and then each configuration of the peer, and the best of each side
counts. Prints one line per measurement and a table at the end.
"""
import argparse
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

# On processors not made by Intel MKL uses AVX2 kernels, at less than half the speed
# of the AVX-512 ones, unless this function returns 1.
PRELOAD = "int mkl_serv_intel_cpu_true(void) { return 1; }\n"
# On a virtual machine getting pages from the system costs more than the arithmetic.
PYTHON = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": "100000000000",
          "THP_MEM_ALLOC_ENABLE": "1"}
HERE = pathlib.Path(__file__).resolve().parent
ROWS = []


def run(command, **env):
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True,
                          env={**os.environ, **env}, check=False)
    if done.returncode:
        print("failed:", *command, "\n", done.stderr[-2000:], file=sys.stderr)
    return done.stdout


def make_preload(folder):
    """Lets the peers' MKL use all of the processor."""
    preload = pathlib.Path(folder) / "preload.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-x", "c", "-o", preload, "-"], input=PRELOAD,
                   text=True, check=True)
    PYTHON["LD_PRELOAD"] = str(preload)


def say(*what):
    print(*what, flush=True)


class Side:
    """The best figure of one side, and the configuration that reached it."""

    def __init__(self, better=max):
        self.better, self.value, self.how, self.memory = better, None, "", None

    def add(self, value, how, memory=None):
        say("  ", how, value, f"{memory} MB" if memory else "")
        if self.value is None or self.better(self.value, value) == value:
            self.value, self.how = value, how
        if memory:
            self.memory = memory if self.memory is None else min(self.memory, memory)


def ours(args, model, *options):
    out = run([args.build / "bench-throughput", args.dir / model,
               f"run.threads={args.threads}", f"bench.rounds={args.rounds}", *options])
    say(out.strip())
    return out


def number(out, pattern):
    found = re.search(pattern, out)
    return float(found.group(1)) if found else 0.0


def torch_peer(args, side, model, *options):
    out = run([sys.executable, HERE / "torch_peer.py", args.dir / model, *options,
               "--threads", args.threads, "--rounds", args.rounds], OMP_NUM_THREADS=str(args.threads), **PYTHON)
    for line in out.splitlines():
        if line.startswith("{"):
            row = json.loads(line)
            how = row["peer"] + (f", {row['micro_batches']} parts" if "micro_batches" in row else "")
            side.add(row["tokens_s"], how, row["peak_mb"])


def row(measure, model, us, peer):
    if us.value and peer.value:
        ratio = us.value / peer.value if us.better is max else peer.value / us.value
        ROWS.append((measure, model, us.value, peer.value, f"{ratio:.2f}", us.how, peer.how))
    if us.memory and peer.memory:
        ROWS.append(("peak memory, MB", f"{model}, {measure}", us.memory, peer.memory,
                     f"{us.memory / peer.memory:.2f}", "", ""))


MICRO = {"small": ["1024"], "35m": ["512", "1024", "4096"]}


def train(args, model):
    for lengths, what in (("256..256", "equal rows"), ("64..512", "rows 64..512")):
        us, peer = Side(), Side()
        say("train", model, what)
        for _ in range(args.turns):
            for micro in MICRO[model]:
                out = ours(args, model, "bench.what=train", f"bench.lengths={lengths}",
                           f"actor.ppo_max_token_len_per_gpu={micro}")
                us.add(number(out, r"train: (\d+) tokens/s"), f"micro-batches of {micro}",
                       number(out, r"memory: (\d+) MB"))
            for mode in args.modes:
                parts = args.parts if mode == "eager" else "2"
                torch_peer(args, peer, model, "train", lengths, "--mode", mode, "--parts", parts)
        row(f"training tokens/s, {what}", model, us, peer)


def generate(args, model):
    for count in (64, 1):
        us, peer = Side(), Side()
        say("generate", model, count)
        for _ in range(args.turns):
            out = ours(args, model, "bench.what=generate", f"bench.sequences={count}",
                       "data.max_prompt_length=64", "data.max_response_length=64")
            us.add(number(out, r"generate: .* (\d+) tokens/s"), "prefill and decode")
            for mode in args.modes:
                torch_peer(args, peer, model, "generate", count, "--mode", mode)
        row(f"generation tokens/s, {count} sequences, prefill included", model, us, peer)


def llama_peer(args, gguf, peer):
    """Measures decoding of 1 and 64 sequences, with both attentions and both cache types."""
    for attention, cache in (("on", "f16"), ("on", "f32"), ("off", "f32")):
        out = run([args.llama, "-m", args.dir / gguf, "-c", 8448, "-b", 4096, "-ub", 512,
                   "-npp", 64, "-ntg", 64, "-npl", "1,64", "-t", args.threads, "-tb", args.threads,
                   "-fa", attention, "-ctk", cache, "-ctv", cache, "-ngl", 0,
                   "--output-format", "jsonl"])
        for line in out.splitlines():
            if line.startswith("{"):
                found = json.loads(line)
                peer[found["pl"]].add(round(found["speed_tg"], 1),
                                      f"flash attention {attention}, {cache} cache")


def llama(args, model, weights="auto", gguf="f32"):
    us = {1: Side(), 64: Side()}
    peer = {1: Side(), 64: Side()}
    say("llama.cpp", model, weights)
    for _ in range(args.turns):
        for count in (1, 64):
            out = ours(args, model, "bench.what=generate", f"bench.sequences={count}",
                       "data.max_prompt_length=64", "data.max_response_length=64",
                       f"infer.dsinf.weights={weights}")
            us[count].add(number(out, r"decode: .* (\d+) tokens/s"), "decode")
        llama_peer(args, f"{model}-{gguf}.gguf", peer)
    for count in (1, 64):
        row(f"decode tokens/s, {count} sequences, weights {gguf}, against llama.cpp", model,
            us[count], peer[count])


def bf16(args, model):
    """Measures decoding with bfloat16 weights, for X-ray where the engine has them."""
    if args.llama:
        llama(args, model, "bfloat16", "bf16")
    for what, pattern in (("train", "256..256"), ("generate", "64")):
        side = Side()
        for mode in args.modes:
            parts = ("--parts", args.parts if mode == "eager" else "2") if what == "train" else ()
            torch_peer(args, side, model, what, pattern, "--dtype", "bfloat16", "--mode", mode, *parts)
        ROWS.append((f"{what} {pattern}, bfloat16, tokens/s", model, "", side.value, "", "", side.how))


GRPO = {"small": (64, 9, 5), "35m": (8, 64, 64)}


def xray_train(args, model, *options):
    prompts, prompt_tokens, new = GRPO[model]
    with tempfile.TemporaryDirectory() as out:
        sets = [f"model.path={args.dir / model}", f"data.train_files={args.dir / model}/prompts.jsonl",
                f"data.val_files={args.dir / model}/prompts.jsonl",
                f"trainer.default_local_dir={out}", f"run.threads={args.threads}",
                f"data.train_batch_size={prompts}", f"data.max_prompt_length={prompt_tokens}",
                f"data.max_response_length={new}", *options]
        command = [args.build / "bench-train", args.build / "xray", f"{out}/metrics.jsonl", "train",
                   HERE / "grpo.ini"]
        for option in sets:
            command += ["--set", option]
        found = run(command)
    say(found.strip())
    return found


def grpo(args, model):
    prompts, _, new = GRPO[model]
    us, peer = Side(min), Side(min)
    say("grpo", model)
    for _ in range(args.turns):
        out = xray_train(args, model)
        us.add(number(out, r"best: step ([\d.]+) ms"), "xray train", number(out, r"memory: (\d+) MB"))
        for parts in (1, 4):
            out = run([sys.executable, HERE / "trl_peer.py", args.dir / model, "--prompts", prompts,
                       "--new", new, "--parts", parts, "--threads", args.threads],
                      OMP_NUM_THREADS=str(args.threads), **PYTHON)
            for line in out.splitlines():
                if line.startswith('{"peer"'):
                    found = json.loads(line)
                    peer.add(found["ms"], f"trl, {parts} parts", found["peak_mb"])
    row("one GRPO step, ms", model, us, peer)


def start(args, model):
    token, step = Side(min), Side(min)
    for _ in range(args.turns):
        out = xray_train(args, model, "trainer.total_training_steps=1", "trainer.save_freq=-1")
        token.add(number(out, r"first token after ([\d.]+) s"), "the INI's prompts")
        step.add(number(out, r"first step after ([\d.]+) s"), "with its update")
    ROWS.append(("start to the first sampled token, s", model, token.value, "", "", token.how, ""))
    ROWS.append(("start to the first step's end, s", model, step.value, "", "", step.how, ""))


def main():
    p = argparse.ArgumentParser()
    p.add_argument("build", type=pathlib.Path)
    p.add_argument("dir", type=pathlib.Path)
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--turns", type=int, default=3)
    p.add_argument("--llama", default=shutil.which("llama-batched-bench"))
    p.add_argument("--only", default="train,generate,llama,bf16,grpo,start")
    p.add_argument("--models", default="small,35m")
    p.add_argument("--rounds", default="3")
    p.add_argument("--parts", default="1,2,4")
    p.add_argument("--modes", default="eager,compile")
    args = p.parse_args()
    args.modes = args.modes.split(",")
    make_preload(tempfile.mkdtemp())
    for task in args.only.split(","):
        if task == "llama" and not args.llama:
            say("llama-batched-bench is not there: its rows stay open")
            continue
        for model in args.models.split(","):
            globals()[task](args, model)
    say("\n| measure | model | X-ray | peer | ratio | how | peer's how |\n|---|---|---|---|---|---|---|")
    for r in ROWS:
        say("| " + " | ".join(str(x) for x in r) + " |")


if __name__ == "__main__":
    main()
