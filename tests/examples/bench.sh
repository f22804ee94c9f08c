#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The commands of docs/performance.md run; their figures are not judged here.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$XRAY_BUILD/quickstart-task" "$work" 1
"$XRAY_BUILD/bench-throughput" "$work/model" data.train_batch_size=4 >"$work/out.txt"
grep -q '^train: .* tokens/s$' "$work/out.txt"
grep -q '^generate: .* tokens/s$' "$work/out.txt"
"$XRAY_BUILD/bench-matmul" 1 >"$work/out.txt"
grep -q '^decode ' "$work/out.txt"
echo "bench: ok"
