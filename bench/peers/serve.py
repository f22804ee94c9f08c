#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures X-ray's engines and their peers on the same requests, in one run.

    serve.py BUILD MODELS [--model 35m] [--requests 256] [--turns 1] [--threads 2]
             [--slots 32] [--batches 16,32] [--static 64] [--llama llama-server]

bench-serve makes the requests and measures X-ray's engines. The peers get the same
prompts and lengths, all of them at once: llama.cpp's server in parallel slots, and
transformers in static batches. --static limits the latter to the first requests,
because it takes long. All sample greedily; `same` counts the samples in which a
peer has X-ray's tokens to the last one, and `alike` the part of a sample up to the
first other token, on average. Prints a table at the end.
"""
import argparse
import concurrent.futures
import http.client
import json
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time

from compare import HERE, PYTHON, make_preload, run, say

ENGINES = ("paged", "dsinf")


def ours(args, samples, best):
    """Measures both engines; the peers are then given what they recorded."""
    out = run([args.build / "bench-serve", args.dir / args.model, f"run.threads={args.threads}",
               f"bench.requests={args.requests}", f"bench.engines={','.join(ENGINES)}",
               f"bench.record={samples}", *args.ours])
    say(out.strip())
    for name in ENGINES:
        keep(best, f"infer-{name}", float(re.search(rf"^{name}: .* (\d+) tokens/s$", out, re.M)[1]), "")


def keep(best, name, tokens_s, how):
    if name not in best or best[name][0] < tokens_s:
        best[name] = (tokens_s, how)


def post(port, body):
    connection = http.client.HTTPConnection("127.0.0.1", port)
    connection.request("POST", "/completion", json.dumps(body), {"Content-Type": "application/json"})
    answer = json.loads(connection.getresponse().read())
    connection.close()
    return answer


def wait_until_ready(port, server):
    while server.poll() is None:
        try:
            connection = http.client.HTTPConnection("127.0.0.1", port)
            connection.request("GET", "/health")
            if connection.getresponse().status == 200:
                return
        except OSError:
            pass
        time.sleep(0.1)
    sys.exit("the server of llama.cpp ended")


def compare_tokens(answer, sample):
    tokens = answer.get("tokens", [])
    if len(tokens) != len(sample["tokens"]):
        sys.exit(f"llama.cpp gave {len(tokens)} of {len(sample['tokens'])} tokens: {str(answer)[:300]}")
    first = next((i for i, (a, b) in enumerate(zip(tokens, sample["tokens"])) if a != b), len(tokens))
    return first / len(tokens)


def llama(args, samples, attention, cache):
    """Returns the tokens per second of llama.cpp's server, and how many it has as X-ray."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    longest = max(len(s["prompt"]) + len(s["tokens"]) for s in samples)
    command = [args.llama, "-m", args.dir / f"{args.model}-f32.gguf", "--host", "127.0.0.1", "--port", port,
               "-np", args.slots, "-c", args.slots * longest, "-t", args.threads, "-tb", args.threads,
               "-fa", attention, "-ctk", cache, "-ctv", cache, "-b", 2048, "-ub", 512, "-ngl", 0,
               "--cache-ram", 0, "--no-webui", "--log-disable"]
    with subprocess.Popen([str(c) for c in command], stdout=subprocess.DEVNULL,
                          stderr=subprocess.DEVNULL) as server:
        try:
            wait_until_ready(port, server)
            bodies = [{"prompt": s["prompt"], "n_predict": len(s["tokens"]), "samplers": ["top_k"],
                       "top_k": 1, "ignore_eos": True, "cache_prompt": False, "return_tokens": True}
                      for s in samples]
            post(port, {**bodies[0], "n_predict": 4})
            start = time.perf_counter()
            with concurrent.futures.ThreadPoolExecutor(len(bodies)) as pool:
                answers = list(pool.map(lambda body: post(port, body), bodies))
            seconds = time.perf_counter() - start
        finally:
            server.terminate()
    alike = [compare_tokens(a, s) for a, s in zip(answers, samples)]
    tokens_s = sum(len(s["tokens"]) for s in samples) / seconds
    say(f"llama.cpp, {args.slots} slots, flash attention {attention}, {cache} cache: {seconds:.2f} s, {tokens_s:.0f} tokens/s, "
        f"same {alike.count(1)} of {len(alike)}, alike {100 * sum(alike) / len(alike):.0f} %")
    return tokens_s


def static(args, path, batch):
    out = run([sys.executable, HERE / "torch_peer.py", args.dir / args.model, "serve", path, "--batch", batch,
               "--threads", args.threads], OMP_NUM_THREADS=str(args.threads), **PYTHON)
    say(out.strip())
    return json.loads(out.splitlines()[-1])["tokens_s"]


def main():
    p = argparse.ArgumentParser()
    p.add_argument("build", type=pathlib.Path)
    p.add_argument("dir", type=pathlib.Path)
    p.add_argument("--model", default="35m")
    p.add_argument("--requests", type=int, default=256)
    p.add_argument("--turns", type=int, default=1)
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--slots", type=int, default=32)
    p.add_argument("--batches", default="16,32", help="of transformers; '': without it")
    p.add_argument("--static", type=int, default=64)
    p.add_argument("--attention", default="on,off", help="llama.cpp's flash attention")
    p.add_argument("--caches", default="f32,f16", help="the types of llama.cpp's cache")
    p.add_argument("--llama", default=shutil.which("llama-server"))
    p.add_argument("--ours", nargs="*", default=[], help="options of bench-serve")
    args = p.parse_args()
    best = {}
    with tempfile.TemporaryDirectory() as folder:
        make_preload(folder)
        path = pathlib.Path(folder) / "samples.jsonl"
        for _ in range(args.turns):
            ours(args, path, best)
            samples = [json.loads(line) for line in path.read_text().splitlines()]
            for cache in args.caches.split(",") if args.llama else ():
                for attention in args.attention.split(","):
                    keep(best, f"llama.cpp, {cache} cache", llama(args, samples, attention, cache),
                         f"flash attention {attention}")
            path.write_text("".join(json.dumps(s) + "\n" for s in samples[:args.static]))
            for batch in args.batches.split(",") if args.batches else ():
                keep(best, "transformers", static(args, path, batch), f"batches of {batch}")
    say("\n| engine | output tokens/s | paged against it | how |\n|---|---|---|---|")
    for name, (tokens_s, how) in best.items():
        say(f"| {name} | {tokens_s:.0f} | {best['infer-paged'][0] / tokens_s:.2f} | {how} |")


if __name__ == "__main__":
    main()
