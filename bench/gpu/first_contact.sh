#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# first_contact.sh BUILD RESULTS [PATTERN]: goes through what device-cuda has to show
# on a GPU, in about five minutes. Each item has a time limit and a log in RESULTS; a
# table of what held comes last, and results.json has the same for programs. Items
# whose names match PATTERN, an extended regular expression, are run; without one, all.
# BUILD is a build folder, or what pack.sh packed.
#
# Items that compare bits run beside each other, then those that measure run alone.
# JOBS is how many of the former (8); LIMIT cuts every time limit to so many seconds.
# The exit code is 0 if all held, 1 if one did not, and 77 without a GPU.
set -uo pipefail
build=$(realpath "${1:?which build folder}")
mkdir -p "${2:?which folder for results}"
results=$(realpath "$2")
pattern=${3:-.}
source=$(realpath "$(dirname "$0")/../..")
export XRAY_BUILD=$build XRAY_BIN=$build/xray XRAY_SOURCE=$source XRAY_SANITIZE=
[ ! -d "$build/lib" ] || export LD_LIBRARY_PATH=$build/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
checker=$(command -v compute-sanitizer || echo /usr/local/cuda/bin/compute-sanitizer)
lines=$results/lines
mkdir -p "$lines"
rm -f "$lines"/*

nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader >"$results/gpu.txt" 2>/dev/null ||
    { echo "skipped: nvidia-smi shows no GPU"; exit 77; }
date -u +%Y-%m-%dT%H:%MZ >>"$results/gpu.txt"
cat "$results/gpu.txt"

# item NAME SECONDS COMMAND...: runs one item and notes how it ended.
item() {
    local name=$1 limit=$2 code=0 started ended
    shift 2
    [[ $name =~ $pattern ]] || return 0
    [ -z "${LIMIT:-}" ] || [ "$limit" -le "$LIMIT" ] || limit=$LIMIT
    started=$(date +%s.%N)
    timeout -k 5 "$limit" "$@" >"$results/$name.log" 2>&1 </dev/null || code=$?
    ended=$(date +%s.%N)
    printf '%s %s %.1f\n' "$name" "$code" "$(echo "$ended $started" | awk '{ print $1 - $2 }')" >"$lines/$name"
}

# beside NAME SECONDS COMMAND...: an item that runs beside others.
beside() {
    [[ $1 =~ $pattern ]] || return 0
    while [ "$(jobs -rp | wc -l)" -ge "${JOBS:-8}" ]; do wait -n; done
    item "$@" &
}

# A run of examples/h200 with random weights and the quickstart's task.
"$build/quickstart-task" "$results/task" 1 >/dev/null
example() { # NAME [--set ...]
    local name=$1
    shift
    echo "$build/xray train $source/examples/h200/$name.ini --set model.init=random" \
        "--set model.tokenizer_path=$results/task/model --set data.train_files=$results/task/train.jsonl" \
        "--set trainer.default_local_dir=$results/out-$name --set trainer.logger=console,jsonl $*"
}

# steps N COMMAND...: ends a run after N steps, before it writes a checkpoint.
steps() {
    local n=$1 line ended=1 run
    shift
    exec 3< <(exec "$@" 2>&1)
    run=$!
    while IFS= read -r line <&3; do
        echo "$line"
        [[ $line =~ ^step\ ([0-9]+)/ && ${BASH_REMATCH[1]} -ge $n && $ended = 1 ]] || continue
        ended=0
        kill -INT "$run" 2>/dev/null
        sleep 0.2
        kill -INT "$run" 2>/dev/null
    done
    return $ended
}
export -f steps

# ---- bits ------------------------------------------------------------------

beside steps 60 "$build/bench-gpu-steps" cases
for suite in "$build"/tests/test-gpu-*; do
    beside "suite.${suite##*/test-gpu-}" 120 "$suite"
done
beside train 200 "$source/tests/cuda/train.sh" gpu
for suite in rows placed_bf16 placed_decode lm_head_bf16; do
    for tool in memcheck racecheck; do
        beside "$tool.$suite" 150 "$checker" --tool $tool --error-exitcode 1 "$build/tests/test-gpu-$suite"
    done
done
wait
item memory 90 "$build/bench-gpu-memory" "$build/plugins/device-cuda.so"

# ---- speed, and models of their real size ----------------------------------

so=$build/plugins/device-cuda.so
item rows 40 "$build/bench-cuda-rows"
item attention 40 "$build/bench-cuda-attention"
for tokens in 1 16 64 256 1024 4096; do
    item tiles.$tokens 40 "$build/bench-cuda-tiles" $tokens
done
for model in 0.5b 1.5b 7b 8b; do
    item "products.$model" 60 "$build/bench-cuda_products" "$so" $model bf16
done
item products.fp32 60 "$build/bench-cuda_products" "$so" 0.5b
small="--set data.train_batch_size=32 --set actor.ppo_mini_batch_size=32 --set data.max_response_length=256"
large="--set data.train_batch_size=8 --set actor.ppo_mini_batch_size=8 --set data.max_response_length=64"
# The first difference between rollout and trainer ends a run.
same="--set actor.recompute_old_logp=1"
# shellcheck disable=SC2046,SC2086 # words of a command
{
    item run.0.5b 90 bash -c 'steps "$@"' steps 10 $(example qwen2.5-0.5b $small $same)
    item run.7b 180 bash -c 'steps "$@"' steps 10 $(example qwen2.5-7b $large $same)
    item run.8b 180 bash -c 'steps "$@"' steps 2 $(example llama-3.1-8b $large $same)
}
# The first engine is measured again behind the second: its first round has what a process does once.
item decode 90 "$build/bench-serve" "$source/examples/h200/qwen2.5-0.5b" run.device=cuda model.init=random \
    "model.tokenizer_path=$results/task/model" bench.engines=dsinf,paged,dsinf bench.requests=256 \
    bench.prompts=100..1024 bench.outputs=100..1024 infer.dsinf.kv_memory=16G infer.paged.kv_memory=16G

# ---- what held -------------------------------------------------------------

for out in "$results"/out-*; do
    [ ! -f "$out/metrics.jsonl" ] || cp "$out/metrics.jsonl" "$results/${out##*/out-}.jsonl"
done
rm -rf "$results"/task "$results"/out-*
awk '{ r = $2 == 0 ? "held" : $2 == 77 ? "skipped" : $2 == 124 || $2 == 137 ? "time" : "failed"
       printf "%s  {\"item\": \"%s\", \"result\": \"%s\", \"exit\": %d, \"seconds\": %s}", (NR == 1 ? "[\n" : ",\n"), $1, r, $2, $3 }
     END { print "\n]" }' "$lines"/* >"$results/results.json"
failed=0
for line in "$lines"/*; do
    read -r name code seconds <"$line"
    case $code in
    0) word=held why= ;;
    77) word=skipped why=$(tail -n 1 "$results/$name.log") ;;
    *) word=FAILED why=$(grep -a -m 1 -E 'FAIL|FAILED|ERROR|[Ee]rror|differ|DIFFER|Invalid' "$results/$name.log" || tail -n 1 "$results/$name.log")
        failed=1
        [ "$code" != 124 ] && [ "$code" != 137 ] || why="ran past its limit: $why" ;;
    esac
    printf '%-28s %-8s %6.1f s  %.150s\n' "$name" "$word" "$seconds" "$why"
done
exit $failed
