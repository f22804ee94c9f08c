#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Proves that the quickstart's task on 1, 2 and 4 ranks, from one checkpoint,
# samples the same first step and ends above 90 %.
. "$(dirname "$0")/lib.sh"
root=$(cd "$(dirname "$0")/../.." && pwd)
"$XRAY_BUILD/quickstart-task" "$work" 1
data=(--set run.seed=1 --set "data.train_files=$work/train.jsonl" --set "data.val_files=$work/val.jsonl")
"$XRAY_BIN" sft "$root/examples/quickstart/sft.ini" "${data[@]}" --set "model.path=$work/model" \
    --set "trainer.default_local_dir=$work/sft" >/dev/null
for ranks in 1 2 4; do
    start=$EPOCHREALTIME
    "$XRAY_BIN" train "$root/examples/quickstart/grpo.ini" "${data[@]}" --set "model.path=$work/sft" \
        --set "trainer.default_local_dir=$work/r$ranks" --set "trainer.rollout_data_dir=$work/r$ranks/rollout" \
        --set "run.ranks=$ranks" >"$work/r$ranks.txt"
    cmp "$work/r1/rollout/1.jsonl" "$work/r$ranks/rollout/1.jsonl" || fail "$ranks ranks sample another first step"
    awk -v ranks="$ranks" -v start="$start" -v end="$EPOCHREALTIME" '/^validation/ { before = $2; after = $4 }
        END { printf "%d ranks: %.3f -> %.3f in %.0f s\n", ranks, before, after, end - start; exit !(after >= 0.9) }' \
        "$work/r$ranks.txt" || fail "$ranks ranks stay below 90 %"
done
