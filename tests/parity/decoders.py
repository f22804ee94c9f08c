#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares X-ray with transformers on tiny random models of every architecture.

Needs torch, transformers and safetensors, and the targets xray and
decoders-probe of a build. transformers makes and saves each model with rounded
weights. X-ray is compared with its eager attention on those weights, in double
precision throughout:

    logits   of every token (decoders-probe)
    log-p    of every token given those before it (xray score)
    loss     mean negative log-likelihood (decoders-probe)
    grad     of every parameter: largest difference of an entry, and of a
             tensor over the norm of its gradient (decoders-probe)
    greedy   ids and log-probabilities (xray generate), and transformers'
             generate with its cache
    sft      three AdamW steps with clipping (xray sft): losses and gradient
             norms, and the checkpoint's weights as transformers loads them,
             against torch.optim.AdamW
    back     transformers loads the weights that X-ray saves, in one file and
             in shards: equal parameters, equal logits

    python3 tests/parity/decoders.py --xray build/release/xray [--write-goldens]

Prints a table, and exits with 1 if a difference is above the bound.
--write-goldens rewrites tests/nn/goldens, which the test nn.parity reads.
"""
import argparse
import contextlib
import importlib
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile

# The packages come first, because a script of this folder has the name of one.
sys.path.append(sys.path.pop(0))

import torch  # noqa: E402
import transformers  # noqa: E402
from safetensors.torch import load_file  # noqa: E402
from transformers import AutoConfig, AutoModelForCausalLM, modeling_rope_utils  # noqa: E402

from decoders_cases import CASES  # noqa: E402

BOUND = 1e-4
ROWS = (30, 13, 2)
PROMPT = 5
NEW_TOKENS = 16
MARGIN = 0.005  # between the two best logits of each greedy token
GOLDENS = pathlib.Path(__file__).resolve().parents[1] / "nn" / "goldens"
ENTRIES = 3  # entries of each gradient in a golden


# ---- the oracle --------------------------------------------------------------


class DoubleTorch:
    """torch with double precision in place of single precision."""

    def __getattr__(self, name):
        return getattr(torch, "float64" if name in ("float", "float32") else name)


@contextlib.contextmanager
def in_double(kind):
    """Makes the casts of norms, softmax and rotary angles in model code double."""
    folder = "gemma3" if kind == "gemma3_text" else kind
    module = importlib.import_module(f"transformers.models.{folder}.modeling_{folder}")
    kept = module.torch, modeling_rope_utils.torch, torch.Tensor.float, torch.nn.functional.softmax
    softmax = torch.nn.functional.softmax

    def double_softmax(x, *args, dtype=None, **keys):
        return softmax(x, *args, dtype=torch.float64, **keys)

    module.torch = modeling_rope_utils.torch = DoubleTorch()
    torch.Tensor.float = torch.Tensor.double
    torch.nn.functional.softmax = double_softmax
    try:
        yield
    finally:
        module.torch, modeling_rope_utils.torch, torch.Tensor.float, torch.nn.functional.softmax = kept


def load_model(folder, dtype):
    model, info = AutoModelForCausalLM.from_pretrained(
        folder, dtype=dtype, attn_implementation="eager", output_loading_info=True)
    for key in ("missing_keys", "unexpected_keys", "mismatched_keys"):
        assert not info[key], (folder, key, info[key])
    return model.eval()


def compute_logits(model, rows):
    return [model(torch.tensor([row])).logits[0] for row in rows]


def compute_logp(logits, rows):
    return [torch.log_softmax(x[:-1], -1).gather(-1, torch.tensor(row[1:])[:, None])[:, 0]
            for x, row in zip(logits, rows)]


def decode_greedily(model, prompt):
    """Returns greedy ids, their log-probabilities, and the least margin."""
    ids, logp, margin = list(prompt), [], float("inf")
    for _ in range(NEW_TOKENS):
        with torch.no_grad():
            last = model(torch.tensor([ids]), use_cache=False).logits[0, -1]
        best = last.topk(2)
        margin = min(margin, float(best.values[0] - best.values[1]))
        logp.append(float(torch.log_softmax(last, -1)[best.indices[0]]))
        ids.append(int(best.indices[0]))
    return {"ids": ids[len(prompt):], "logp": logp, "margin": margin}


def compute_oracle(folder, rows, kind):
    with in_double(kind):
        model = load_model(folder, torch.float64)
        return measure_model(model, rows)


def measure_model(model, rows):
    model.zero_grad()
    logits = compute_logits(model, rows)
    logp = compute_logp(logits, rows)
    loss = -torch.cat(logp).mean()
    loss.backward()
    return {
        "logits": torch.cat(logits).detach().double(),
        "logp": [x.detach().double() for x in logp],
        "loss": float(loss.detach()),
        "grads": {n: p.grad.double() for n, p in model.named_parameters()},
        "greedy": decode_greedily(model, rows[0][:PROMPT]),
    }


# ---- models ------------------------------------------------------------------


def draw_weights(model, seed):
    """Draws values with which every part of the model affects the result."""
    gen = torch.Generator().manual_seed(seed)
    gemma = "gemma" in model.config.model_type
    for name, p in model.named_parameters():
        value = torch.randn(p.shape, generator=gen)
        leaf = name.split(".")[-2]
        if name.endswith("bias"):
            p.data = 0.3 * value
        elif p.dim() == 1:
            p.data = (0.0 if gemma else 1.0) + 0.3 * value
        elif leaf in ("embed_tokens", "wte", "lm_head"):
            p.data = (0.35 if gemma else 0.5) * value
        else:
            p.data = 0.35 * value


def make_model(case, seed, folder):
    raw = dict(case["config"])
    kind = raw.pop("model_type")
    config = AutoConfig.for_model(kind, **raw)
    model = AutoModelForCausalLM.from_config(config)
    draw_weights(model, seed)
    shutil.rmtree(folder, ignore_errors=True)
    model.to(getattr(torch, case["dtype"])).save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)
    if case["old"]:  # the spelling of most published files
        text = {"model_type": kind, **raw, "torch_dtype": case["dtype"]}
        (folder / "config.json").write_text(json.dumps(text, indent=1) + "\n")
    gen = torch.Generator().manual_seed(seed + 1)
    return [torch.randint(0, config.vocab_size, (n,), generator=gen).tolist() for n in ROWS]


def make_clear_model(case, folder):
    """Makes the model of the first seed whose greedy continuation has clear margins
    and varied ids, and whose logits single precision reproduces."""
    kind = case["config"]["model_type"]
    for seed in range(400):
        rows = make_model(case, seed, folder)
        with torch.no_grad():
            single = torch.cat(compute_logits(load_model(folder, torch.float32), rows))
            with in_double(kind):
                model = load_model(folder, torch.float64)
                double = torch.cat(compute_logits(model, rows))
                greedy = decode_greedily(model, rows[0][:PROMPT])
        if (largest_difference(single.double(), double) < BOUND / 10 and greedy["margin"] >= MARGIN
                and len(set(greedy["ids"])) >= 5):
            return rows
    raise SystemExit(f"{case['name']}: no seed will do")


def measure_feature(case, folder, rows, oracle):
    """Returns the least change of log-probabilities when one feature is turned off."""
    least = float("inf")
    for change in case["without"]:
        text = json.loads((folder / "config.json").read_text())
        text.update(change)
        with tempfile.TemporaryDirectory() as other:
            other = pathlib.Path(other)
            shutil.copy(folder / "model.safetensors", other)
            (other / "config.json").write_text(json.dumps(text))
            with in_double(text["model_type"]), torch.no_grad():
                logits = compute_logits(load_model(other, torch.float64), rows)
        moved = max(largest_difference(a, b) for a, b in zip(compute_logp(logits, rows), oracle["logp"]))
        least = min(least, moved)
    return least


# ---- X-ray -------------------------------------------------------------------


def run_xray(xray, command, folder, lines, *options):
    text = "".join(json.dumps(line) + "\n" for line in lines)
    done = subprocess.run([xray, command, "--model", folder, *options], input=text,
                          capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"xray {command}: {done.stderr}{done.stdout}")
    return [json.loads(line) for line in done.stdout.splitlines()]


def measure_xray(args, folder, rows, work):
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir()
    (work / "rows.json").write_text(json.dumps({"rows": rows}))
    subprocess.run([args.probe, folder, work / "rows.json", work], check=True)
    out = load_file(work / "out.safetensors")
    scored = run_xray(args.xray, "score", folder, [{"ids": row} for row in rows])
    made = run_xray(args.xray, "generate", folder, [{"ids": rows[0][:PROMPT]}], "--temperature", "0",
               "--max-tokens", str(NEW_TOKENS), "--ignore-eos")[0]["outputs"][0]
    return {
        "logits": out["logits"].double(),
        "logp": [torch.tensor(s["logprobs"][1:], dtype=torch.float64) for s in scored],
        "loss": -float(out["logp"].double().mean()),
        "grads": {n: g.double() for n, g in load_file(work / "grads/model.safetensors").items()},
        "greedy": {"ids": made["ids"], "logp": made["logprobs"]},
    }


# ---- training ----------------------------------------------------------------

STEPS = 3
LR, EPS, DECAY, CLIP = 2e-3, 1e-2, 0.1, 1.0
SFT_PROMPT = 4


def vocabulary_letters(vocab):
    """Returns one letter per token; the last id is the end token."""
    return "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"[:vocab - 1]


def write_task(folder, rows, vocab, work):
    """Writes the model with a tokenizer, and rows as text, for xray sft."""
    model = work / "model"
    shutil.copytree(folder, model)
    words = {c: i for i, c in enumerate(vocabulary_letters(vocab))}
    end = {"id": vocab - 1, "content": "</s>", "single_word": False, "lstrip": False,
           "rstrip": False, "normalized": False, "special": True}
    split = {"type": "Split", "pattern": {"Regex": ""}, "behavior": "Isolated", "invert": False}
    (model / "tokenizer.json").write_text(json.dumps({
        "version": "1.0", "added_tokens": [end], "normalizer": None, "pre_tokenizer": split,
        "post_processor": None, "decoder": {"type": "Fuse"},
        "model": {"type": "WordLevel", "unk_token": "A", "vocab": {**words, "</s>": vocab - 1}}}))
    (model / "tokenizer_config.json").write_text('{"eos_token": "</s>"}')
    text = ["".join(vocabulary_letters(vocab)[i] for i in row) for row in rows]
    (work / "rows.jsonl").write_text("".join(
        json.dumps({"prompt": t[:SFT_PROMPT], "answer": t[SFT_PROMPT:]}) + "\n" for t in text))
    (work / "run.ini").write_text(f"""[model]
path = {model}
[data]
train_files = {work}/rows.jsonl
max_prompt_length = {SFT_PROMPT}
max_response_length = 32
[sft]
train_batch_size = {len(rows)}
total_steps = {STEPS}
max_token_len = 40
grad_clip = {CLIP}
[sft.optim]
lr = {LR}
[train.zero3]
eps = {EPS}
weight_decay = {DECAY}
[trainer]
default_local_dir = {work}/out
logger = jsonl
""")


def run_xray_sft(args, folder, rows, vocab, work):
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir()
    write_task(folder, rows, vocab, work)
    done = subprocess.run([args.xray, "sft", work / "run.ini"], capture_output=True, text=True,
                          check=False)
    if done.returncode:
        raise SystemExit(f"xray sft: {done.stderr}{done.stdout}")
    lines = [json.loads(x) for x in (work / "out/metrics.jsonl").read_text().splitlines()]
    steps = [x for x in lines if "train/loss" in x]
    model = load_model(work / f"out/global_step_{STEPS}/actor", torch.float32)
    return {"loss": [x["train/loss"] for x in steps], "norm": [x["train/grad_norm"] for x in steps],
            "weights": {n: p.detach().double() for n, p in model.named_parameters()}}


def run_torch_sft(folder, rows, vocab, kind):
    with in_double(kind):
        model = load_model(folder, torch.float64)
        matrices = [p for p in model.parameters() if p.dim() > 1]
        vectors = [p for p in model.parameters() if p.dim() == 1]
        adam = torch.optim.AdamW([{"params": matrices, "weight_decay": DECAY},
                                  {"params": vectors, "weight_decay": 0.0}], lr=LR, eps=EPS)
        rows = [row + [vocab - 1] for row in rows]
        out = {"loss": [], "norm": []}
        for _ in range(STEPS):
            adam.zero_grad()
            logp = [x[SFT_PROMPT - 1:] for x in compute_logp(compute_logits(model, rows), rows)]
            loss = -torch.cat(logp).mean()
            loss.backward()
            out["loss"].append(float(loss.detach()))
            out["norm"].append(float(torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)))
            adam.step()
    out["weights"] = {n: p.detach() for n, p in model.named_parameters()}
    return out


def compare_sft(args, folder, rows, kind, work):
    """Returns the largest differences of losses, gradient norms (relative) and weights."""
    vocab = json.loads((folder / "config.json").read_text())["vocab_size"]
    # Only rows with an answer; the end id follows it and occurs nowhere else.
    rows = [[i % (vocab - 1) for i in row] for row in rows if len(row) > SFT_PROMPT]
    rows.append(list(reversed(rows[0]))[:20])
    got = run_xray_sft(args, folder, rows, vocab, work)
    want = run_torch_sft(folder, rows, vocab, kind)
    assert len(got["loss"]) == STEPS and got["weights"].keys() == want["weights"].keys()
    loss = max(abs(a - b) for a, b in zip(got["loss"], want["loss"]))
    norm = max(abs(a - b) / b for a, b in zip(got["norm"], want["norm"]))
    if args.verbose:
        print(got["loss"], want["loss"], got["norm"], want["norm"], sep="\n")
    return loss, norm, max(largest_difference(got["weights"][n], w) for n, w in want["weights"].items())


# ---- comparison --------------------------------------------------------------


def largest_difference(a, b):
    assert a.shape == b.shape, (a.shape, b.shape)
    worst = (a - b).abs().max()
    return float("nan") if torch.isnan(a).any() else float(worst)


def compare_results(got, want):
    assert got["grads"].keys() == want["grads"].keys(), got["grads"].keys() ^ want["grads"].keys()
    norm = torch.cat([g.flatten() for g in want["grads"].values()]).norm()
    pairs = [(got["grads"][n], g) for n, g in want["grads"].items()]
    # The gradient of GPT-2's key bias is only rounding, because softmax cancels it.
    floor = 1e-3 * norm
    return {
        "logits": largest_difference(got["logits"], want["logits"]),
        "log-p": max(largest_difference(a, b) for a, b in zip(got["logp"], want["logp"])),
        "loss": abs(got["loss"] - want["loss"]),
        "grad": max(largest_difference(a, b) for a, b in pairs),
        "grad/norm": max(float((a - b).norm() / max(b.norm(), floor)) for a, b in pairs),
    }


def compare_greedy(got, want):
    if got["ids"] != want["ids"]:
        return float("inf")
    return max(abs(a - b) for a, b in zip(got["logp"], want["logp"]))


def check_reload(folder, work, rows):
    """Tells whether transformers loads the saved weights with equal bits and logits."""
    before = load_model(folder, torch.float32)
    for name in ("one", "shards"):
        shutil.copy(folder / "config.json", work / name)
        files = list((work / name).glob("*.safetensors"))
        assert (len(files) > 1) == (name == "shards"), files
        after = load_model(work / name, torch.float32)
        a, b = before.state_dict(), after.state_dict()
        if a.keys() != b.keys() or not all(torch.equal(a[k], b[k]) for k in a):
            return False
        with torch.no_grad():
            pairs = zip(compute_logits(before, rows), compute_logits(after, rows))
            if not all(torch.equal(x, y) for x, y in pairs):
                return False
    return True


def generate_with_cache(folder, rows):
    """Generates with transformers and its cache."""
    model = load_model(folder, torch.float32)
    prompt = torch.tensor([rows[0][:PROMPT]])
    out = model.generate(prompt, attention_mask=torch.ones_like(prompt), do_sample=False,
                         max_new_tokens=NEW_TOKENS, min_new_tokens=NEW_TOKENS, pad_token_id=0)
    return out[0, PROMPT:].tolist()


# ---- goldens -----------------------------------------------------------------


def round_to_9_digits(x):
    return float(f"{float(x):.9g}")


def pick_golden_grads(grads):
    gen = torch.Generator().manual_seed(7)
    out = {}
    for name, g in grads.items():
        flat = g.flatten()
        at = [int(flat.abs().argmax())]
        at += torch.randint(0, flat.numel(), (ENTRIES - 1,), generator=gen).tolist()
        out[name] = {"norm": round_to_9_digits(g.norm()), "at": at, "grad": [round_to_9_digits(flat[i]) for i in at]}
    return out


def write_golden(case, folder, rows, oracle):
    to = GOLDENS / case["name"]
    shutil.rmtree(to, ignore_errors=True)
    to.mkdir(parents=True)
    (to / "model.safetensors").write_bytes((folder / "model.safetensors").read_bytes())
    text = json.loads((folder / "config.json").read_text())
    for key in ("transformers_version", "architectures"):
        text.pop(key, None)
    (to / "config.json").write_text(json.dumps(text, indent=1) + "\n")
    greedy = oracle["greedy"]
    golden = {
        "made_with": {"torch": torch.__version__, "transformers": transformers.__version__},
        "rows": rows,
        "logp": [[round_to_9_digits(x) for x in row] for row in oracle["logp"]],
        "last_logits": [round_to_9_digits(x) for x in oracle["logits"][len(rows[0]) - 1]],
        "loss": round_to_9_digits(oracle["loss"]),
        "greedy": {"prompt": rows[0][:PROMPT], "ids": greedy["ids"], "margin": round_to_9_digits(greedy["margin"]),
                   "logp": [round_to_9_digits(x) for x in greedy["logp"]]},
        "grads": pick_golden_grads(oracle["grads"]),
    }
    lines = [f"{json.dumps(k)}:" + (
        "{\n" + ",\n".join(f"{json.dumps(n)}:{json.dumps(g, separators=(',', ':'))}"
                           for n, g in v.items()) + "}"
        if k == "grads" else json.dumps(v, separators=(",", ":"))) for k, v in golden.items()]
    (to / "golden.json").write_text("{" + ",\n".join(lines) + "}\n")


# ---- the table ---------------------------------------------------------------

BOUNDED = ("logits", "log-p", "loss", "grad", "grad/norm", "greedy", "sft loss", "sft norm", "sft weights")
COLUMNS = (*BOUNDED, "torch fp32", "feature")


def run_case(args, case, work):
    folder = work / "model"
    rows = make_clear_model(case, folder)
    kind = case["config"]["model_type"]
    oracle = compute_oracle(folder, rows, kind)
    got = measure_xray(args, folder, rows, work / "xray")
    row = compare_results(got, oracle)
    row["greedy"] = compare_greedy(got["greedy"], oracle["greedy"])
    row["feature"] = measure_feature(case, folder, rows, oracle)
    theirs = compare_results(measure_model(load_model(folder, torch.float32), rows), oracle)
    row["torch fp32"] = max(theirs["logits"], theirs["grad"])
    row["back"] = check_reload(folder, work / "xray", rows)
    row["cache"] = generate_with_cache(folder, rows) == oracle["greedy"]["ids"]
    row["sft loss"], row["sft norm"], row["sft weights"] = compare_sft(args, folder, rows, kind, work / "sft")
    row["ok"] = (all(row[c] <= BOUND for c in BOUNDED) and row["back"] and row["cache"]
                 and row["feature"] > 5 * BOUND)
    if args.write_goldens and row["ok"]:
        write_golden(case, folder, rows, oracle)
    return row


def print_row(name, row):
    cells = " | ".join("-" if row[c] == float("inf") and c == "feature" else f"{row[c]:.1e}"
                       for c in COLUMNS)
    flags = " | ".join("equal" if row[c] else "DIFFERS" for c in ("back", "cache"))
    print(f"| {name} | {cells} | {flags} | {'ok' if row['ok'] else 'FAILED'} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--xray", required=True, type=pathlib.Path)
    parser.add_argument("--probe", type=pathlib.Path, help="default: tests/decoders-probe beside xray")
    parser.add_argument("--only", help="cases whose name holds this")
    parser.add_argument("--verbose", action="store_true", help="losses and norms of training")
    parser.add_argument("--write-goldens", action="store_true")
    args = parser.parse_args()
    args.xray = args.xray.resolve()
    args.probe = (args.probe or args.xray.parent / "tests" / "decoders-probe").resolve()
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    print(f"torch {torch.__version__}, transformers {transformers.__version__}, bound {BOUND}\n")
    print("| model | " + " | ".join(COLUMNS) + " | back | cache | |")
    print("|---" * (len(COLUMNS) + 4) + "|")
    bad = 0
    with tempfile.TemporaryDirectory() as work:
        for case in CASES:
            if args.only and args.only not in case["name"]:
                continue
            row = run_case(args, case, pathlib.Path(work))
            print_row(case["name"], row)
            bad += not row["ok"]
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
