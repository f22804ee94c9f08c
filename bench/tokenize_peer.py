#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures tokenizers: MB/s of the Hugging Face library and of X-ray, one thread each.

    python3 bench/tokenize_peer.py build/release/bench-tokenize shared/data

It needs the Python package `tokenizers`. The library's figure is the best of the
complete file as one text, texts of about 2000 bytes one by one, and a batch of
them with and without offsets (encode_batch_fast). X-ray's is the better of the
complete file and texts of 2000 bytes. The two take turns. Both are timed by
processor time, because on a loaded machine the wall clock includes other programs.
"""
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["RAYON_NUM_THREADS"] = "1"
from tokenizers import Tokenizer  # noqa: E402

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
          r"|\s*[\r\n]+|\s+(?!\S)|\s+")


def mixed(size, seed=1):
    """Makes text of Chinese, Russian, Arabic, Hindi, emoji and code, with words drawn by rank."""
    r = random.Random(seed)

    def words(letters, count, low, high):
        return ["".join(r.choice(letters) for _ in range(r.randint(low, high))) for _ in range(count)]

    def pick(items):  # near Zipf's law
        return items[min(int(len(items) ** r.random()), len(items)) - 1]

    hanzi = [chr(c) for c in r.sample(range(0x4E00, 0x9FA5), 3000)]
    common = list("的一是不了人我在有他这为之大来以个中上们到说国和地也子时道出而要于就下得可你年生")
    ru = words("оеаинтсрвлкмдпуяыьгзбчйхжшю", 4000, 2, 11)
    ar = words("ابتثجحخدذرزسشصضطظعغفقكلمنهوي", 4000, 2, 8)
    hi = ["".join(r.choice("कखगघचजटडतदनपबमयरलवसह") + r.choice(["", "ा", "ि", "ी", "ु", "े", "ो", "्", "ं"]) for _ in range(r.randint(1, 5)))
          for _ in range(4000)]
    emoji = ["😀", "😂", "❤️", "👍🏽", "👨‍👩‍👧", "🎉", "🔥", "🇩🇪", "🚀", "✨"]
    names = words("abcdefghijklmnopqrstuvwxyz", 600, 2, 9)
    lines, total = [], 0
    while total < size:
        kind = r.randrange(6)
        if kind == 0:
            line = "".join(pick(hanzi) if r.random() < .6 else pick(common) for _ in range(r.randint(8, 40))) + "。"
        elif kind < 4:
            vocabulary = (ru, ar, hi)[kind - 1]
            line = " ".join(pick(vocabulary) for _ in range(r.randint(5, 18))) + r.choice([".", "?", "!", "،", "।"])
        elif kind == 4:
            line = " ".join(pick(names) + r.choice(["", "", " " + r.choice(emoji)]) for _ in range(r.randint(3, 10)))
        else:
            a, b, c = pick(names), pick(names), pick(names)
            line = r.choice([f"    for {a} in range({r.randint(0, 999)}):", f"    if ({a} != {b}->{c}[{r.randint(0, 99)}]) {{",
                             f"def {a}_{b}(self, {c}=None):", f"        return {a}.{b}({c} + {r.random():.4f});  // {a}",
                             f"#include <{a}/{b}.h>", f'  "{a}": {{"{b}": [{r.randint(0, 9999)}, "{c}"]}},'])
        lines.append(line + "\n")
        total += len(lines[-1].encode())
    return "".join(lines)


def chunks(text, size=2000):
    out, now, used = [], [], 0
    for line in text.splitlines(keepends=True):
        now.append(line)
        used += len(line.encode())
        if used >= size:
            out.append("".join(now))
            now, used = [], 0
    return out + ["".join(now)] if now else out


def library(tok, text, rounds=3):
    parts, size = chunks(text), len(text.encode())
    ways = [lambda: tok.encode(text), lambda: [tok.encode(p) for p in parts], lambda: tok.encode_batch(parts)]
    if hasattr(tok, "encode_batch_fast"):
        ways.append(lambda: tok.encode_batch_fast(parts))
    best = 0
    for way in ways:
        for _ in range(rounds):
            start = time.process_time()
            way()
            best = max(best, size / (time.process_time() - start) / 1e6)
    return best


def ours(program, folder, path):
    out = subprocess.run([program, folder, path], capture_output=True, text=True, check=True).stdout
    found = dict(re.findall(r"^(\w+) ([\d.]+)", out, re.M))
    return {k: float(v) for k, v in found.items()}


def main():
    program, data = sys.argv[1:3]
    with tempfile.TemporaryDirectory() as folder:
        texts = {"shakespeare": open(os.path.join(data, "corpora/tinyshakespeare.txt"), encoding="utf-8").read(),
                 "gsm8k": "".join(json.loads(line)["question"] + "\n" + json.loads(line)["answer"] + "\n"
                                  for line in open(os.path.join(data, "gsm8k/train.jsonl"), encoding="utf-8"))[:2000000],
                 "mixed": mixed(2000000)}
        dirs = {n: os.path.join(data, "tokenizers", n) for n in ("qwen2", "gpt2", "llama2_spm")}
        llama3 = json.load(open(os.path.join(dirs["qwen2"], "tokenizer.json"), encoding="utf-8"))
        llama3["normalizer"] = None
        llama3["model"]["ignore_merges"] = True
        llama3["pre_tokenizer"]["pretokenizers"][0]["pattern"] = {"Regex": LLAMA3}
        dirs["llama3"] = os.path.join(folder, "llama3")
        os.mkdir(dirs["llama3"])
        json.dump(llama3, open(os.path.join(dirs["llama3"], "tokenizer.json"), "w", encoding="utf-8"), ensure_ascii=False)
        print("| tokenizer | text | library MB/s | xray MB/s | ratio | with spans |")
        print("|---|---|---|---|---|---|")
        for name, where in dirs.items():
            tok = Tokenizer.from_file(os.path.join(where, "tokenizer.json"))
            tok.no_truncation()
            tok.no_padding()
            for kind, text in texts.items():
                path = os.path.join(folder, "text")
                with open(path, "w", encoding="utf-8", newline="") as f:
                    f.write(text)
                first = ours(program, where, path)
                theirs = library(tok, text)
                second = ours(program, where, path)
                best = max(first["whole"], first["chunks"], second["whole"], second["chunks"])
                spans = max(first["spans"], second["spans"])
                print(f"| {name} | {kind} | {theirs:.2f} | {best:.1f} | {best / theirs:.1f} | {spans:.1f} |", flush=True)


if __name__ == "__main__":
    main()
