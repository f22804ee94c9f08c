#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Proves that the commands of docs/performance.md run; their figures are not judged here.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$XRAY_BUILD/quickstart-task" "$work" 1
"$XRAY_BUILD/bench-throughput" "$work/model" model.init=random data.train_batch_size=4 >"$work/out.txt"
grep -q '^train: .* tokens/s$' "$work/out.txt"
grep -q '^generate: .* tokens/s$' "$work/out.txt"
grep -q '^decode: .* reached$' "$work/out.txt"
"$XRAY_BUILD/bench-throughput" "$work/model" model.init=random bench.what=train bench.lengths=8..32 bench.tokens=256 >"$work/out.txt"
grep -q '^train: 2[0-9][0-9] tokens of .* reached$' "$work/out.txt"
"$XRAY_BUILD/bench-train" "$XRAY_BUILD/xray" "$work/run/metrics.jsonl" train "$XRAY_SOURCE/bench/peers/grpo.ini" \
    --set "model.path=$work/model" --set model.init=random --set "data.train_files=$work/train.jsonl" \
    --set "data.val_files=$work/val.jsonl" --set "trainer.default_local_dir=$work/run" \
    --set data.max_prompt_length=12 --set data.max_response_length=4 --set trainer.total_training_steps=2 >"$work/out.txt"
grep -q '^best: step .* ms$' "$work/out.txt"
# The folder of a run can be used as a model: its newest checkpoint.
"$XRAY_BUILD/bench-throughput" "$work/run" data.train_batch_size=4 bench.what=train >"$work/out.txt"
grep -q '^train: .* tokens/s$' "$work/out.txt"
# The engines of bench-serve must give the same tokens, also where the cache is too small for all sequences.
"$XRAY_BUILD/bench-serve" "$work/model" model.init=random bench.requests=16 bench.prompts=2..12 bench.outputs=8..20 \
    bench.copies=2 infer.paged.kv_memory=120K "bench.record=$work/samples.jsonl" >"$work/out.txt"
grep -q '^paged: [0-9]* tokens in .* tokens/s$' "$work/out.txt"
grep -q '^dsinf: [0-9]* tokens in .* tokens/s$' "$work/out.txt"
grep -q '^  [1-9][0-9]* preemptions, [1-9]' "$work/out.txt"
[ "$(wc -l <"$work/samples.jsonl")" -eq 16 ]
# A round starts with an empty cache: the best one has computed all prompts, too.
"$XRAY_BUILD/bench-serve" "$work/model" model.init=random bench.requests=8 bench.prompts=20..24 bench.outputs=4..8 \
    bench.rounds=2 >"$work/out.txt"
[ "$(grep -c ' 0 tokens of prompts saved, ' "$work/out.txt")" = 2 ] || { cat "$work/out.txt" >&2; exit 1; }
# No backend may refuse a candidate for its options alone.
"$XRAY_BUILD/bench-plans" h200 0.5B >"$work/out.txt"
grep -q '^| Qwen2.5-0.5B | 8 | megatron, TP 1, DP 8 | none | ' "$work/out.txt"
# One shape of each kind: all of them take most of a minute.
for shape in 512x96x96 512x768x96 1x1024x512; do
    "$XRAY_BUILD/bench-matmul" 1 auto $shape >>"$work/products.txt"
done
grep -q '^quickstart .* grad16 ' "$work/products.txt"
grep -q '^quickstart .* glu16 ' "$work/products.txt"
grep -q '^decode ' "$work/products.txt"
"$XRAY_BUILD/bench-segments" 1 auto 1 stories260K >"$work/out.txt"
grep -q '^log-sum-exp ' "$work/out.txt"
"$XRAY_BUILD/bench-layouts" hidden=64 layers=4 ffn=64 vocab=256 tokens=128 micro=32 row=16 rounds=1 >"$work/out.txt"
test "$(grep -c '^\(one rank\|TP\|CP\|PP\|DP\|zero3\).* | .* | .* | ' "$work/out.txt")" = 12
bash "$XRAY_SOURCE/bench/sync.sh" "$XRAY_BUILD" "$XRAY_SOURCE/examples/pairings" 1 >"$work/out.txt"
[ "$(grep -cE ' MB .* ms .* GB/s$' "$work/out.txt")" = 8 ] || { cat "$work/out.txt" >&2; exit 1; }
"$XRAY_BUILD/bench-rewards" ffi 10 language=python "path=$XRAY_SOURCE/examples/rewards/gsm8k.py" workers=2 >"$work/out.txt"
grep -q '^10 samples in ' "$work/out.txt"
"$XRAY_BUILD/bench-scale" 3 lo >"$work/out.txt"
grep -q '^a call to each: ' "$work/out.txt"
echo "bench: ok"
