#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures PyTorch 2 with transformers: training and generation speed, peak memory.

    torch_peer.py MODEL train LOW..HIGH [--mode eager|compile] [--threads 2]
    torch_peer.py MODEL generate SEQUENCES --prompt 64 --new 64 [...]
    torch_peer.py MODEL serve SAMPLES --batch 32 [...]

Prints one JSON object per line, the best of --rounds after a warm-up of every
shape. `serve` gives the prompts of SAMPLES (bench-serve's bench.record), padded on
the left, in static batches that end with their longest sample; it runs once, and
counts the tokens that were asked for and the samples that are those of SAMPLES.
Training uses the rows of `bench-throughput bench.lengths=LOW..HIGH`, padded
on the right to the longest of their micro-batch (causal attention then needs no
mask, so SDPA takes its fast path), fused AdamW and clipped gradients.

On a virtual machine getting pages from the system costs more than the arithmetic.
These settings, which compare.py makes, let the peer keep its pages:
MALLOC_MMAP_MAX_=0 MALLOC_TRIM_THRESHOLD_=100000000000 THP_MEM_ALLOC_ENABLE=1
"""
import argparse
import json
import resource
import time

import torch
import torch.nn.functional as F
from transformers import AutoModelForCausalLM


def lengths(text, tokens):
    low, high = (int(x) for x in text.split(".."))
    out, used = [], 0
    while True:
        size = min(low + len(out) * 277 % (high - low + 1), tokens - used)
        if size < low:
            return out
        out.append(size)
        used += size


def micro_batches(sizes, parts, vocab):
    """Sorts rows by length and cuts them into `parts` with about equal numbers of tokens."""
    sizes, total = sorted(sizes), sum(sizes)
    cuts, used = [[] for _ in range(parts)], 0
    for size in sizes:
        cuts[min(parts - 1, (used + size // 2) * parts // total)].append(size)
        used += size
    cuts = [c for c in cuts if c]
    out = []
    for rows in cuts:
        ids = torch.zeros(len(rows), max(rows), dtype=torch.long)
        labels = torch.full_like(ids, -100)
        for r, n in enumerate(rows):
            ids[r, :n] = torch.randint(vocab, (n,))
            labels[r, : n - 1] = ids[r, 1:n]
        out.append((ids, labels))
    return out


def best_of(rounds, f):
    """Measures processor time for one thread, as bench-throughput does, else wall-clock time."""
    clock = time.process_time if torch.get_num_threads() == 1 else time.perf_counter
    f()
    f()
    best = 1e30
    for _ in range(rounds):
        start = clock()
        f()
        best = min(best, clock() - start)
    return best


def train(model, args):
    sizes = lengths(args.what, args.tokens)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-6, fused=True)
    forward = torch.compile(model, dynamic=False) if args.mode == "compile" else model
    model.train()
    vocab = model.config.vocab_size
    used = sum(sizes)

    def step(batches):
        for ids, labels in batches:
            logits = forward(input_ids=ids, use_cache=False).logits
            loss = F.cross_entropy(logits.view(-1, vocab).float(), labels.view(-1),
                                   ignore_index=-100, reduction="sum")
            (loss / used).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    for parts in [int(x) for x in args.parts.split(",")]:
        batches = micro_batches(sizes, parts, vocab)
        seconds = best_of(args.rounds, lambda: step(batches))
        padded = sum(ids.numel() for ids, _ in batches)
        yield {"tokens": used, "padded": padded, "micro_batches": len(batches),
               "ms": round(seconds * 1e3, 1), "tokens_s": round(used / seconds)}


def generate(model, args):
    count = int(args.what)
    model.eval()
    ids = torch.randint(model.config.vocab_size, (count, args.prompt))
    ones = torch.ones_like(ids)
    config = model.generation_config
    config.eos_token_id = None
    config.pad_token_id = 0
    how = {"do_sample": True, "temperature": 1.0, "top_k": 0, "top_p": 1.0}
    if args.mode == "compile":
        how["cache_implementation"] = "static"
        model.forward = torch.compile(model.forward, dynamic=False)

    def run(new):
        with torch.inference_mode():
            out = model.generate(ids, attention_mask=ones, min_new_tokens=None,
                                 max_new_tokens=new, **how)
        assert out.shape[1] == args.prompt + new

    seconds = best_of(args.rounds, lambda: run(args.new))
    yield {"tokens": count * args.new, "ms": round(seconds * 1e3, 1),
           "tokens_s": round(count * args.new / seconds)}


def serve(model, args):
    with open(args.what, encoding="utf-8") as f:
        samples = [json.loads(line) for line in f]
    model.eval()
    model.generation_config.eos_token_id = None
    model.generation_config.pad_token_id = 0
    same, start = 0, time.perf_counter()
    for first in range(0, len(samples), args.batch):
        batch = samples[first:first + args.batch]
        width = max(len(s["prompt"]) for s in batch)
        ids = torch.zeros(len(batch), width, dtype=torch.long)
        mask = torch.zeros_like(ids)
        for row, s in enumerate(batch):
            ids[row, width - len(s["prompt"]):] = torch.tensor(s["prompt"])
            mask[row, width - len(s["prompt"]):] = 1
        with torch.inference_mode():
            out = model.generate(ids, attention_mask=mask, do_sample=False,
                                 max_new_tokens=max(len(s["tokens"]) for s in batch))
        for row, s in enumerate(batch):
            same += out[row, width:width + len(s["tokens"])].tolist() == s["tokens"]
    seconds = time.perf_counter() - start
    tokens = sum(len(s["tokens"]) for s in samples)
    yield {"tokens": tokens, "batch": args.batch, "same": same, "ms": round(seconds * 1e3, 1),
           "processors_s": round(time.process_time(), 1), "tokens_s": round(tokens / seconds)}


def main():
    p = argparse.ArgumentParser()
    p.add_argument("model")
    p.add_argument("task", choices=["train", "generate", "serve"])
    p.add_argument("what")
    p.add_argument("--mode", default="eager", choices=["eager", "compile"])
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--tokens", type=int, default=4096)
    p.add_argument("--parts", default="1")
    p.add_argument("--prompt", type=int, default=64)
    p.add_argument("--new", type=int, default=64)
    p.add_argument("--batch", type=int, default=32)
    p.add_argument("--dtype", default="float32")
    args = p.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(1)
    model = AutoModelForCausalLM.from_pretrained(
        args.model, dtype=getattr(torch, args.dtype), attn_implementation="sdpa")
    for row in globals()[args.task](model, args):
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
        print(json.dumps({"peer": f"torch {torch.__version__} {args.mode}", "dtype": args.dtype,
                          "threads": args.threads, **row, "peak_mb": peak}), flush=True)


if __name__ == "__main__":
    main()
