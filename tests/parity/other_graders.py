#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Records the verdicts of the projects after which graders are named.

Runs the reward functions of verl, slime, AReaL and PRM800K over pairs made from a
seed and writes their verdicts; tests/reward/sources_test.c compares X-ray's.

    pip install "math-verify[antlr4_13_2]" pylatexenc
    tests/parity/other_graders.py --verl VERL --slime SLIME --areal AREAL --prm PRM --write tests/reward/sources.jsonl

The paths are checkouts of volcengine/verl, THUDM/slime, inclusionAI/AReaL and
openai/prm800k. A line is {"grader", "response", "truth", "right", "meant"}.
"""
import argparse
import importlib.util
import json
import logging
import os
import random
import sys
import types

import math_answers


def load(path, name):
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


LETTERED = [
    "The answer is {a}.", "Answer: {a}", "answer: {a}) {t}", "The correct answer is ({a}).", "My choice is {a}", "Option {a} is the correct one.", "{a} is correct.", "{a}. {t}", "({a}) {t}", "**Answer: {a}**",
    "The answer is {a}: {t}", "Answer: {a}. {t}", "Final answer: {a}", "final option is {a}", "I would choose {a}, since {t} fits.", "The answer is: {a}", "Answer is option {a}", "{b} is wrong, so {a}",
    "</think>The answer is {a}", "The answer is {b}.</think>So {a}.", "we ruled out {b}, then {a}", "It must be {t}.", "the answer depends on {t}, so {a}", "Answer:\n\n{a}", "the choice ({a})", "\\boxed{{{a}}}",
    "The answer is \\boxed{{{a}}}", "Answer: {a} because {t}", "I think {t} is the correct option", "The final answer is {a}", "The final\nanswer is\n{a}", "ANSWER: {a}", "answer {l}", "the answer is {l}) {t}", "none of these",
    "So {a} is the correct choice, not {b}.", "Answers vary.", "A dog has option {a}", "The answer is option ({a})", "Therefore the answer is (b)? No: {a}.",
]
TEXTS = ["Paris", "about 3 kg", "the electron", "a weak acid", "10^-4 eV", "cis-2-butene", "H2O and CO2", "it doubles"]


def padding(r):
    """Makes text after an answer, so that it lies near the limit of 300 characters."""
    return " and so on" * r.randint(18, 34) if r.random() < 0.4 else ""


def choice_pairs(r, count):
    for _ in range(count):
        a, b = r.sample("ABCD", 2)
        t = r.choice(TEXTS)
        text = r.choice(LETTERED).format(a=a, b=b, t=t, l=a.lower())
        if r.random() < 0.3:
            text = r.choice(["Let us think. ", "We compare the choices one by one. ", "First, the option with I is out. "]) + text
        truth = r.choice([a, a, a, b, t if r.random() < 0.5 else a])
        yield text, truth


LINES = ["Answer: {n}", "Answer: {n}<|im_end|>", "Answer: {n}<|endoftext|>", "Answer: {n}\t", "Answer: ${n}$<|endoftext|>", "So.\n\nAnswer: {n}.", "**Answer:** {n}", "answer: {n}<|im_end|>\n", "Answer: \\boxed{{{n}}}<|im_end|>", "The result is {n}", "Answer: {n} cm",
         "Answer: {n}\nAnswer: {m}<|im_end|>", "Answer: n = {n}<|im_end|>", "Answer: {n}.0"]


def slime_pairs(r, count):
    for _ in range(count):
        n = r.choice([r.randint(-9, 999), r.randint(1000, 90000)])
        text = r.choice(LINES).format(n=r.choice([n, n, f"{n:,}"]), m=n + 1)
        if r.random() < 0.3:
            text += "\n" + padding(r)
        yield text, r.choice([str(n), str(n), f"{n}.0", str(n + 1)])


COUNTS = [
    "#### {n}", "So she has {n} left.\n#### {n}", "The answer is {n}.", "#### {n}.", "####{n}", "#### ${n}", "#### {n}\n#### {m}", "It is {n}. Not {m}.", "#### {n} apples", "{n} - {m} = 5\n#### {n}",
    "#### -{n}", "so {m}\n#### {c}", "{c} is what we get", "it costs ${c}", "#### {n}.50", "#### {c}.00", "We get {n},", "We count 1,2,{n}", "# {n}", "no number at all", "#### ", "#### +{n}", "We have {n}/{m}",
]


def count_pairs(r, count):
    for _ in range(count):
        n = r.choice([r.randint(0, 99), r.randint(100, 99999)])
        m = r.randint(0, 50)
        text = r.choice(COUNTS).format(n=n, m=m, c=f"{n:,}")
        if r.random() < 0.2:
            text = "She buys {0} of them and gives {1} away. ".format(r.randint(2, 9), m) * r.randint(1, 12) + text
        text += padding(r)
        yield text, r.choice([str(n), str(n), str(n), f"{n}.00", f"-{n}", str(m), f"{n}."])


BOXES = ["\\boxed{{{L}}}", "so $\\boxed{{{L}}}$.", "\\boxed{{7}} or rather \\boxed{{{L}}}", "$\\boxed {L}$", "\\boxed{{{L}", "the answer is ${L}$", "Answer: {L}", "Answer: {L}\t", "Answer: ${L}$", "Answer: \\boxed{{{L}}}",
         "\\boxed{{\\text{{{L}}}}}", "\\boxed{{{L}}} units", "\\boxed{{x = {L}}}", "\\boxed{{{{{L}}}}}"]


def box_pairs(r, count):
    for _ in range(count):
        truth, right, wrong, _ = math_answers.choose(r, math_answers.KINDS)(r)
        text = r.choice(BOXES).format(L=r.choice(right if r.random() < 0.7 else wrong))
        if r.random() < 0.3:
            text = math_answers.steps(r) + "\n" + text
        yield text, truth


def areal_worker(root):
    quiet = types.ModuleType("areal.utils")
    quiet.logging = logging
    sys.modules["areal"] = types.ModuleType("areal")
    sys.modules["areal.utils"] = quiet
    return load(os.path.join(root, "areal/reward/__init__.py"), "areal.reward").MathVerifyWorker(timeout=None)


def ask(judge, text, truth):
    """Returns the verdict of a scorer; a scorer that fails counts as wrong."""
    try:
        return bool(judge(text, truth))
    except Exception:
        return False


def main():
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("verl", "slime", "areal", "prm"):
        args.add_argument("--" + name, required=True)
    args.add_argument("--seed", type=int, default=3)
    args.add_argument("--count", type=int, default=120)
    args.add_argument("--write", required=True)
    args = args.parse_args()
    logging.disable(logging.CRITICAL)
    hub = os.path.join(args.slime, "slime/rollout/rm_hub")
    scores = os.path.join(args.verl, "verl/utils/reward_score")
    sys.path.insert(0, os.path.join(args.prm, "prm800k"))
    gpqa = load(os.path.join(hub, "gpqa.py"), "gpqa").compute_gpqa_reward
    slime = load(os.path.join(hub, "math_dapo_utils.py"), "slime").compute_score
    gsm8k = load(os.path.join(scores, "gsm8k.py"), "gsm8k").compute_score
    boxed = load(os.path.join(scores, "math_reward.py"), "math_reward")
    dapo = load(os.path.join(scores, "math_dapo.py"), "dapo").compute_score
    worker = areal_worker(args.areal)
    from grading.grader import grade_answer

    def prm800k(text, truth):
        box = boxed.last_boxed_only_string(text)
        return box is not None and grade_answer(boxed.remove_boxed(box), truth)

    sources = [
        ("gpqa", choice_pairs, lambda a, b: gpqa(a, b, {"valid_letters": list("ABCD")}) > 0),
        ("math_slime", slime_pairs, lambda a, b: slime(a, b)["score"] > 0),
        ("gsm8k_strict", count_pairs, lambda a, b: gsm8k(a, b, "strict") > 0),
        ("gsm8k_flexible", count_pairs, lambda a, b: gsm8k(a, b, "flexible") > 0),
        ("math", box_pairs, lambda a, b: boxed.compute_score(a, b) > 0),
        ("math_prm800k", box_pairs, prm800k),
        ("math_dapo", box_pairs, lambda a, b: dapo(a, b)["score"] > 0),
        ("math_dapo_box", box_pairs, lambda a, b: dapo(a, b, strict_box_verify=True)["score"] > 0),
    ]
    rows = []
    for name, pairs, judge in sources:
        for text, truth in pairs(random.Random(f"{args.seed} {name}"), args.count):
            rows.append({"grader": name, "response": text, "truth": truth, "right": ask(judge, text, truth)})
    for row in math_answers.pairs(args.seed, args.count):
        rows.append({"grader": "math_areal", **row, "right": worker.verify(row["response"], row["truth"]) > 0})
    with open(args.write, "w") as out:
        for row in rows:
            out.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
