#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# xray check accepts every INI of examples/, given the files it names.
. "$(dirname "$0")/../rl/lib.sh"
need_data gsm8k/train.jsonl
examples=$XRAY_SOURCE/examples
"$XRAY_BUILD/quickstart-task" "$work/task" 1

check() {
    "$XRAY_BIN" check "$@" >"$work/out.txt" || fail "xray check $* says: $(cat "$work/out.txt")"
    grep -q '^a step: ' "$work/out.txt" || fail "xray check $1 does not print the batch arithmetic"
}
for ini in grpo ppo-verl ppo-trlx; do
    check "$examples/quickstart/$ini.ini" --set "model.path=$work/task/model" \
        --set "data.train_files=$work/task/train.jsonl" --set "data.val_files=$work/task/val.jsonl"
done
check "$examples/stories260k/grpo.ini" --set "model.path=$data/models/stories260K/hf"
check "$examples/gsm8k/stories260k.ini" --set "model.path=$data/models/stories260K/hf" \
    --set "data.train_files=$data/gsm8k/train.jsonl"
# Its model is too large for many a machine this runs on: a narrow one of its kind.
cp -r "$data/tokenizers/qwen2" "$work/narrow"
sed -i -e 's/"hidden_size": .*/"hidden_size": 48,/' -e 's/"intermediate_size": .*/"intermediate_size": 64,/' \
    -e 's/"num_hidden_layers": .*/"num_hidden_layers": 2,/' "$work/narrow/config.json"
check "$examples/gsm8k/qwen2.5-0.5b-instruct.ini" --set "model.path=$work/narrow" \
    --set "data.train_files=$data/gsm8k/train.jsonl" --set "data.val_files=$data/gsm8k/test.jsonl"
grep -q '256 prompts x 5 samples = 1280 rows' "$work/out.txt" || fail "$(cat "$work/out.txt")"
echo "inis: ok"
