#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Measures the cost of Workhorses: the median time of an SFT step of a 35.3M Llama,
# about 4,096 tokens, in one process, in one Workhorse, on two ranks at each stage, and
# on two tensor-parallel ranks.
#
#     bench/ranks.sh BUILD [STEPS]
set -euo pipefail
build=$1
steps=${2:-12}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

"$build/quickstart-task" "$work" 1
cp "$(dirname "$0")/35m.json" "$work/model/config.json"
cat >"$work/run.ini" <<INI
[model]
path = $work/model
init = random
[data]
train_files = $work/train.jsonl
prompt_key = question
answer_key = answer
template = "{question}"
response_template = "{answer}"
max_prompt_length = 12
max_response_length = 6
[sft]
train_batch_size = 292
total_steps = $steps
max_token_len = 1024
[trainer]
resume_mode = disable
logger = jsonl
INI

measure() {
    local name=$1
    shift
    "$build/xray" sft "$work/run.ini" --set "trainer.default_local_dir=$work/run" "$@" >/dev/null
    grep -o '"timing_s/step":[0-9.]*' "$work/run/metrics.jsonl" | cut -d: -f2 | tail -n +3 | sort -n |
        awk -v name="$name" '{ t[NR] = $1 } END { printf "%-28s %8.1f ms per step\n", name, 1000 * t[int((NR + 1) / 2)] }'
    rm -rf "$work/run"
}

for round in 1 2 3; do
    echo "round $round"
    measure "one process, 1 thread" --set run.threads=1
    measure "one Workhorse, 1 thread" --set run.threads=1 --set run.runtime=local
    measure "one process, 2 threads" --set run.threads=2
    measure "one Workhorse, 2 threads" --set run.threads=2 --set run.runtime=local
    for stage in 0 1 2 3; do
        measure "two ranks, stage $stage" --set run.ranks=2 --set "train.zero3.stage=$stage"
    done
    measure "two ranks, one replica" --set run.ranks=2 --set run.train=megatron \
        --set train.megatron.tensor_model_parallel_size=2
done
