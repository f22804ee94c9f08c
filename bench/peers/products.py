#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures the cost of batch-invariant matrix products against PyTorch, in turns.

    products.py BUILD [--threads 2] [--turns 2]

X-ray's sums have one order for any number of rows, any number of threads and any
cut into micro-batches (docs/numerics.md); MKL and oneDNN, which torch.mm calls,
choose an order for each shape. The shapes are those of bench-matmul. Prints a
table: GF/s of both (best of the turns), and the ratio of X-ray's to the peer's.
"""
import argparse
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

from compare import PRELOAD

LINE = re.compile(r"^(\S.*?) +(NT|NN|grad) +(\d+) +(\d+) +(\d+) +([\d.]+) ")


def ours(args):
    out = subprocess.run([args.build / "bench-matmul", str(args.threads)], capture_output=True,
                         text=True, check=True).stdout
    for line in out.splitlines():
        found = LINE.match(line)
        if found:
            model, kind, *shape, rate = found.groups()
            yield (kind, *map(int, shape)), float(rate), model


def product(kind, tokens, rows, cols):
    import torch

    w, x, y = torch.randn(rows, cols), torch.randn(tokens, cols), torch.randn(tokens, rows)
    if kind == "NT":
        return lambda: torch.mm(x, w.t(), out=y)
    if kind == "NN":
        return lambda: torch.mm(y, w, out=x)
    return lambda: torch.mm(y.t(), x, out=w)


def peer(shapes, threads):
    import torch

    torch.set_num_threads(threads)
    clock = time.process_time if threads == 1 else time.perf_counter
    for kind, tokens, rows, cols in shapes:
        call, calls, best = product(kind, tokens, rows, cols), 1, 1e30
        for _ in range(9):
            start = clock()
            for _ in range(calls):
                call()
            each = (clock() - start) / calls
            best = min(best, each)
            calls = int(0.04 / each) + 1
        print(json.dumps(2e-9 * tokens * rows * cols / best), flush=True)


def torch_rates(shapes, args, preload):
    out = subprocess.run([sys.executable, __file__, args.build, "--threads", str(args.threads),
                          "--peer", json.dumps(shapes)], capture_output=True, text=True, check=True,
                         env={**os.environ, "LD_PRELOAD": str(preload),
                              "OMP_NUM_THREADS": str(args.threads)}).stdout
    return [float(x) for x in out.split()]


def main():
    p = argparse.ArgumentParser()
    p.add_argument("build", type=pathlib.Path)
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--turns", type=int, default=2)
    p.add_argument("--peer", help=argparse.SUPPRESS)
    args = p.parse_args()
    if args.peer:
        peer(json.loads(args.peer), args.threads)
        return
    with tempfile.TemporaryDirectory() as out:
        preload = pathlib.Path(out) / "preload.so"
        subprocess.run(["cc", "-shared", "-fPIC", "-x", "c", "-o", preload, "-"], input=PRELOAD,
                       text=True, check=True)
        best = {}
        for _ in range(args.turns):
            turn = list(ours(args))
            rates = torch_rates([shape for shape, _, _ in turn], args, preload)
            for (shape, rate, model), theirs in zip(turn, rates):
                a, b, _ = best.get(shape, (0, 0, ""))
                best[shape] = max(a, rate), max(b, theirs), model
    print("| model | tokens x rows x cols | kind | X-ray | PyTorch | ratio |\n|---|---|---|---|---|---|")
    for (kind, *shape), (a, b, model) in best.items():
        print(f"| {model} | {' x '.join(map(str, shape))} | {kind} | {a:.0f} | {b:.0f} | {a / b:.2f} |")


if __name__ == "__main__":
    main()
