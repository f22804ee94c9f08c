#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Proves that rows of TRL need no keys: training and SFT on `prompt` with
# `solution` or `completion` end with the checkpoints of rows that [data] names,
# and what was chosen is said by check, train, sft and eval.
. "$(dirname "$0")/lib.sh"
make_task
trl() { # COLUMN
    sed -E "s/\"question\":/\"prompt\":/; s/\"answer\":/\"$1\":/" "$work/task/short.jsonl" >"$work/task/$1.jsonl"
    sed -E "s/\"question\":/\"prompt\":/; s/\"answer\":/\"$1\":/" "$work/task/val16.jsonl" >"$work/task/$1.val.jsonl"
    data=(--set "data.train_files=$work/task/$1.jsonl" --set "data.val_files=$work/task/$1.val.jsonl"
        --set data.prompt_key=prompt --set data.template={prompt})
}
says() { # FILE TEXT
    grep -qF "$2" "$1" || fail "not said: $2; but: $(cat "$1")"
}
steps=(--set trainer.total_training_steps=2)

train "$work/plain" "${steps[@]}" >/dev/null 2>&1 || fail "training on rows with keys"
trl solution
train "$work/trl" "${steps[@]}" "${data[@]}" >"$work/out" 2>&1 || fail "$(cat "$work/out")"
says "$work/out" "solution.jsonl:1: no 'answer', so ground truths are taken from 'solution'"
says "$work/out" "solution.val.jsonl:1: no 'answer', so ground truths are taken from 'solution'"
same_checkpoint "$work/plain/global_step_2" "$work/trl/global_step_2"
"$XRAY_BIN" check "$work/run.ini" "${data[@]}" >"$work/out" 2>&1 || fail "$(cat "$work/out")"
says "$work/out" "train_files: $work/task/solution.jsonl:1: no 'answer'"
"$XRAY_BIN" eval "$work/run.ini" "${data[@]}" >"$work/out" 2>&1 || fail "$(cat "$work/out")"
says "$work/out" "solution.val.jsonl:1: no 'answer', so ground truths are taken from 'solution'"

sft() { # FOLDER [--set ...]
    local dir=$1
    shift
    "$XRAY_BIN" sft "$work/run.ini" --set "trainer.default_local_dir=$dir" --set sft.total_steps=2 \
        --set sft.train_batch_size=8 "$@" >"$work/out" 2>&1 || fail "$(cat "$work/out")"
}
sft "$work/sft"
trl completion
sft "$work/sft-trl" "${data[@]}"
says "$work/out" "completion.jsonl:1: no 'answer', so responses are taken from 'completion'"
same_checkpoint "$work/sft/global_step_2" "$work/sft-trl/global_step_2"
