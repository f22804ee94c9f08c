#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Measures how weights reach the engines in each layout of trainer and engine, in
# fp32 with random weights of a model's shapes: the bytes that all engines receive, the
# best time of a few updates, and the rate.
#
#     bench/sync.sh BUILD [MODEL [UPDATES]]
#
# MODEL is a folder with a config.json whose KV heads two ranks can share; without it
# the shapes are those of a 35.3M Llama.
set -euo pipefail
build=$1
model=${2:-}
steps=${3:-6}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

"$build/quickstart-task" "$work" 1
if [ -z "$model" ]; then
    model=$work/35m
    mkdir "$model"
    cp "$(dirname "$0")/35m.json" "$model/config.json"
fi
cat >"$work/run.ini" <<INI
[run]
reward = any
threads = 1
[model]
path = $(realpath "$model")
tokenizer_path = $work/model
init = random
[data]
train_files = $work/train.jsonl
prompt_key = question
answer_key = answer
template = "{question}"
max_prompt_length = 12
max_response_length = 2
train_batch_size = 4
[rollout]
n = 2
max_num_seqs = 16
[actor]
ppo_max_token_len_per_gpu = 64
[reward.any]
plugin = rule
grader = exact
[trainer]
total_training_steps = $steps
save_freq = -1
logger = jsonl
default_local_dir = $work/run
INI

value() { # METRIC: its values, ascending
    grep -o "\"$1\":[0-9.e+-]*" "$work/run/metrics.jsonl" | cut -d: -f2 | sort -g
}

measure() { # NAME [--set ...]
    local name=$1
    shift
    "$build/xray" train "$work/run.ini" "$@" >"$work/out.txt" 2>&1 || { cat "$work/out.txt" >&2; exit 1; }
    awk -v name="$name" -v bytes="$(value perf/update_weights_bytes | tail -n 1)" -v best="$(value timing_s/update_weights | head -n 1)" \
        'BEGIN { printf "%-52s %9.1f MB %8.1f ms %7.2f GB/s\n", name, bytes / 1e6, 1000 * best, bytes / best / 1e9 }'
    rm -rf "$work/run"
}

apart=(--set run.ranks=3 --set placement.actor=0-1 --set placement.rollout=2)
cut=(--set run.train=megatron --set train.megatron.tensor_model_parallel_size=2)
measure "one rank, shared with the engine"
measure "one rank, an engine with a copy" --set rollout.share_weights=off
measure "one rank, an engine on another rank" --set run.ranks=2 --set placement.actor=0 --set placement.rollout=1
measure "zero3 on 2 ranks, stage 1, shared with 2 engines" --set run.ranks=2 --set train.zero3.stage=1
measure "zero3 on 2 ranks, stage 3, 2 engines beside them" --set run.ranks=2
measure "zero3 on 2 ranks, stage 3, an engine on a third" "${apart[@]}"
measure "megatron on 2 ranks, 2 engines beside them" --set run.ranks=2 "${cut[@]}"
measure "megatron on 2 ranks, an engine on a third" "${apart[@]}" "${cut[@]}"
