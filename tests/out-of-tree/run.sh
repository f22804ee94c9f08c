#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# run.sh BUILD-FOLDER SOURCE-FOLDER
#
# Installs a finished build, builds the third party's project against it, and
# trains its table with its algorithm. The mean score must rise.
set -eu
build=$1 source=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
say() { echo "out-of-tree: $*"; }

cmake --install "$build" --prefix "$work/prefix" > "$work/log" 2>&1 ||
  { cat "$work/log"; say "install failed"; exit 1; }
for file in bin/xray include/xray/plugin.h; do
  [ -e "$work/prefix/$file" ] || { say "$file was not installed"; exit 1; }
done
cmake -S "$source" -B "$work/build" -DCMAKE_PREFIX_PATH="$work/prefix" \
  -DCMAKE_BUILD_TYPE=Debug > "$work/log" 2>&1 ||
  { cat "$work/log"; say "configure failed"; exit 1; }
cmake --build "$work/build" > "$work/log" 2>&1 ||
  { cat "$work/log"; say "build failed"; exit 1; }
# Runs conformance.NAME of xray_add_plugin.
ctest --test-dir "$work/build" --output-on-failure > "$work/log" 2>&1 ||
  { cat "$work/log"; say "conformance failed"; exit 1; }
say "built and inspected"
cmake --install "$work/build" --prefix "$work/theirs" > /dev/null
plugins=$(dirname "$(find "$work/theirs" -name backend-table.so)")

cp -R "$source/task" "$work/task"
# A refusal names the line of the option, or the model's file once.
refused() { # SENTENCE [--set ...]
  if "$work/prefix/bin/xray" check "$work/over.ini" --plugin-path "$plugins" "${@:2}" > "$work/log" 2>&1 ||
    [ "$(grep -v ' warning: ' "$work/log")" != "xray: $1" ]; then
    cat "$work/log"
    say "expected: $1"
    exit 1
  fi
}
printf 'include = task/run.ini\n[algo.reinforce]\nscale = 0\n' > "$work/over.ini"
refused "$work/over.ini:3: [algo.reinforce] scale: nothing is learned at 0"
cp -R "$work/task/model" "$work/other"
sed 's/"table"/"chair"/' "$work/task/model/config.json" > "$work/other/config.json"
refused "$work/other/config.json: model_type is not table" --set "model.path=$work/other" --set algo.reinforce.scale=1
printf 'include = task/run.ini\n[rollout]\ntop_k = 2\n' > "$work/over.ini"
refused "$work/over.ini:3: [rollout] top_k: infer.table does not offer top_p, min_p or top_k"
printf 'include = task/run.ini\n[rollout.val]\nn = 2\ntop_p = 0.5\n' > "$work/over.ini"
refused "$work/over.ini:4: [rollout.val] top_p: infer.table does not offer top_p, min_p or top_k"
"$work/prefix/bin/xray" train "$work/task/run.ini" --plugin-path "$plugins" \
  --set "trainer.default_local_dir=$work/task/out" \
  > "$work/log" 2>&1 || { cat "$work/log"; say "training failed"; exit 1; }
metrics=$(find "$work/task" -name metrics.jsonl)
[ -n "$metrics" ] || { cat "$work/log"; say "no metrics were written"; exit 1; }
grep -q '"perf/train.table/tokens": *[1-9]' "$metrics" || { head -n 1 "$metrics"; say "the trainer's own metric is missing"; exit 1; }
# Mean of the first and of the last five scores.
grep -o '"critic/score/mean": *[-0-9.e]*' "$metrics" | sed 's/.*: *//' |
  awk '{ v[NR] = $1 }
    END {
      if (NR < 10) { print "out-of-tree: only " NR " steps"; exit 1 }
      for (i = 1; i <= 5; i++) { a += v[i] / 5; b += v[NR - 5 + i] / 5 }
      printf "out-of-tree: mean score %.3f -> %.3f in %d steps\n", a, b, NR
      exit !(a < 0.5 && b > 0.9)
    }'
