#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures the time of one complete GRPO step with TRL's GRPOTrainer.

    trl_peer.py MODEL --prompts 8 --n 8 --new 64 [--parts 1] [--threads 2]

Reads MODEL/prompts.jsonl. No sample ends early, because the trainer's end token is
one that the model does not sample; X-ray is run with `rollout.ignore_eos`.
"""
import argparse
import json
import os
import resource
import time

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
from datasets import Dataset
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast, TrainerCallback
from trl import GRPOConfig, GRPOTrainer


class Clock(TrainerCallback):
    def __init__(self):
        self.seconds = []
        one = torch.get_num_threads() == 1
        self.now = time.process_time if one else time.perf_counter

    def on_step_begin(self, args, state, control, **kwargs):
        self.start = self.now()

    def on_step_end(self, args, state, control, **kwargs):
        self.seconds.append(self.now() - self.start)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("model")
    p.add_argument("--prompts", type=int, default=8)
    p.add_argument("--n", type=int, default=8)
    p.add_argument("--new", type=int, default=64)
    p.add_argument("--parts", type=int, default=1)
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--steps", type=int, default=6)
    p.add_argument("--out", default="/tmp/trl-peer")
    args = p.parse_args()
    torch.set_num_threads(args.threads)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_file=f"{args.model}/tokenizer.json", bos_token="<s>", eos_token="<unk>",
        pad_token="<unk>", unk_token="<unk>")
    rows = [json.loads(line) for line in open(f"{args.model}/prompts.jsonl", encoding="utf-8")]
    data = Dataset.from_list([{"prompt": r["question"], "answer": r["answer"]} for r in rows])
    model = AutoModelForCausalLM.from_pretrained(
        args.model, dtype=torch.float32, attn_implementation="sdpa")
    model.generation_config.eos_token_id = tokenizer.eos_token_id
    model.generation_config.pad_token_id = tokenizer.pad_token_id
    samples = args.prompts * args.n
    sizes = []

    def reward(prompts, completions, completion_ids, answer, **kwargs):
        sizes.append(sum(len(c) for c in completion_ids) / len(completion_ids))
        return [float(c.strip() == a) for c, a in zip(completions, answer)]

    config = GRPOConfig(
        output_dir=args.out, use_cpu=True, bf16=False, fp16=False, report_to="none",
        save_strategy="no", logging_steps=1, disable_tqdm=True,
        per_device_train_batch_size=samples // args.parts,
        gradient_accumulation_steps=args.parts, num_generations=args.n,
        max_completion_length=args.new, temperature=1.0, beta=0.0, learning_rate=1e-6,
        gradient_checkpointing=False, optim="adamw_torch_fused", max_steps=args.steps,
        dataloader_num_workers=0, shuffle_dataset=False)
    clock = Clock()
    trainer = GRPOTrainer(model=model, reward_funcs=reward, args=config, train_dataset=data,
                          processing_class=tokenizer, callbacks=[clock])
    trainer.train()
    torch_prompt = len(tokenizer(rows[0]["question"])["input_ids"])
    print(json.dumps({
        "peer": "trl", "threads": args.threads, "micro_batches": args.parts,
        "samples": samples, "prompt_tokens": torch_prompt, "response_tokens": sizes[-1],
        "ms": round(min(clock.seconds[2:]) * 1e3, 1), "all": [round(s, 3) for s in clock.seconds],
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024}), flush=True)


if __name__ == "__main__":
    main()
