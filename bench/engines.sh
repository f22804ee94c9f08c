#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Measures what an engine of two ranks costs: the rollout of a 35.3M Llama, 64
# samples of 96 tokens, by one rank with one thread and with two, and by two
# tensor-parallel ranks with one each. All give the same samples.
#
#     bench/engines.sh BUILD [STEPS]
set -euo pipefail
build=$1
steps=${2:-2}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

"$build/quickstart-task" "$work" 1
cp "$(dirname "$0")/35m.json" "$work/model/config.json"
cat >"$work/run.ini" <<INI
[run]
train = megatron
infer = paged
[model]
path = $work/model
init = random
[data]
train_files = $work/train.jsonl
prompt_key = question
answer_key = answer
template = "{question}"
max_prompt_length = 12
max_response_length = 96
train_batch_size = 16
[rollout]
n = 4
ignore_eos = true
[actor]
ppo_mini_batch_size = 16
ppo_max_token_len_per_gpu = 1024
[trainer]
total_training_steps = $steps
resume_mode = disable
logger = jsonl
rollout_data_dir = $work/rollout
INI

measure() {
    local name=$1
    shift
    "$build/xray" train "$work/run.ini" --set "trainer.default_local_dir=$work/run" "$@" >/dev/null
    cat "$work"/rollout/*.jsonl >"$work/now"
    [ -e "$work/first" ] || cp "$work/now" "$work/first"
    cmp -s "$work/now" "$work/first" || { echo "$name gives other samples" >&2; exit 1; }
    grep -o '"timing_s/gen":[0-9.]*' "$work/run/metrics.jsonl" | cut -d: -f2 | tail -n +2 | sort -n | head -n 1 |
        awk -v name="$name" '{ printf "%-24s %8.1f ms, %7.0f tokens/s\n", name, 1000 * $1, 64 * 96 / $1 }'
    rm -rf "$work/run" "$work/rollout"
}

for round in 1 2 3; do
    echo "round $round"
    measure "one rank, 1 thread" --set run.threads=1
    measure "one rank, 2 threads" --set run.threads=2
    for infer in dsinf paged; do
        measure "two ranks, $infer" --set run.threads=1 --set run.ranks=2 --set train.megatron.tensor_model_parallel_size=2 \
            --set "run.infer=$infer" --set "infer.$infer.tensor_model_parallel_size=2"
    done
done
