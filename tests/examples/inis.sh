#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Proves that xray check accepts every INI of examples/, given the files it names,
# and that the runs of examples/h200 fit one H200 and train.
. "$(dirname "$0")/../rl/lib.sh"
data=$XRAY_TEST_DATA
examples=$XRAY_SOURCE/examples
"$XRAY_BUILD/quickstart-task" "$work/task" 1

cp -r "$work/task" "$work/cut"
cp "$examples/pairings/config.json" "$work/cut/model/"
head -n 1000 "$work/task/train.jsonl" >"$work/cut/train.jsonl"

check() {
    "$XRAY_BIN" check "$@" >"$work/out.txt" || fail "xray check $* says: $(cat "$work/out.txt")"
    grep -q '^one step: ' "$work/out.txt" || fail "xray check $1 does not print the batch arithmetic"
}
for ini in grpo ppo-verl ppo-trlx; do
    check "$examples/quickstart/$ini.ini" --set "model.path=$work/task/model" --set model.init=random \
        --set "data.train_files=$work/task/train.jsonl" --set "data.val_files=$work/task/val.jsonl"
done
for train in zero3 megatron; do
    for infer in dsinf paged; do
        for algo in grpo ppo; do
            check "$examples/pairings/$train-$infer-$algo.ini" --set "model.path=$work/cut/model" --set model.init=random \
                --set "data.train_files=$work/cut/train.jsonl" --set "data.val_files=$work/cut/val.jsonl"
            [ "$(grep -cE "^memory of (train.$train|infer.$infer):" "$work/out.txt")" = 2 ] || fail "$(cat "$work/out.txt")"
        done
    done
done
check "$examples/pairings/stages-context-grpo.ini" --set "model.path=$work/cut/model" --set model.init=random \
    --set "data.train_files=$work/cut/train.jsonl" --set "data.val_files=$work/cut/val.jsonl"
grep -q '^ranks of train.megatron: 1 replicas of 4 (tp 1, cp 2, pp 2)$' "$work/out.txt" || fail "$(cat "$work/out.txt")"
check "$examples/stories260k/grpo.ini" --set "model.path=$data/models/stories260K/hf"
check "$examples/gsm8k/stories260k.ini" --set "model.path=$data/models/stories260K/hf" \
    --set "data.train_files=$data/gsm8k/train.jsonl"
# The model is too large for some machines, so a narrow one of the same architecture is used.
cp -r "$data/tokenizers/qwen2" "$work/narrow"
sed -i -e 's/"hidden_size": .*/"hidden_size": 48,/' -e 's/"intermediate_size": .*/"intermediate_size": 64,/' \
    -e 's/"num_hidden_layers": .*/"num_hidden_layers": 2,/' "$work/narrow/config.json"
check "$examples/gsm8k/qwen2.5-0.5b-instruct.ini" --set "model.path=$work/narrow" --set model.init=random \
    --set "data.train_files=$data/gsm8k/train.jsonl" --set "data.val_files=$data/gsm8k/test.jsonl"
grep -q '256 prompts x 5 samples = 1280 rows' "$work/out.txt" || fail "$(cat "$work/out.txt")"
# Runs for one H200 are planned from the shapes alone. If the cuda plugin is not
# built, its section becomes the cpu device's, which gives the same plan.
task=(--set model.init=random --set "model.tokenizer_path=$work/task/model" --set "data.train_files=$work/task/train.jsonl")
cp -r "$examples/h200" "$work/h200"
if ! "$XRAY_BIN" plugin list | grep -q '^device-cuda'; then
    echo "inis: h200 as device = cpu: the cuda plugin is not built"
    sed -i -e 's/^device = cuda/device = cpu/' -e 's/device\.cuda/device.cpu/' -e '/^precision/d' "$work"/h200/*.ini
fi
for model in qwen2.5-0.5b qwen2.5-7b llama-3.1-8b; do
    "$XRAY_BIN" plan "$work/h200/$model.ini" "${task[@]}" >"$work/out.txt" || fail "$model: $(cat "$work/out.txt")"
    grep -q 'machine .* 139.0 GiB' "$work/out.txt" || fail "$model is not planned into an H200: $(cat "$work/out.txt")"
    # The same run with a narrow model of the same architecture and random weights.
    sed -i -E -e 's/("hidden_size"): *[0-9]+/\1: 64/' -e 's/("intermediate_size"): *[0-9]+/\1: 64/' \
        -e 's/("num_hidden_layers"): *[0-9]+/\1: 2/' -e 's/("num_attention_heads"): *[0-9]+/\1: 4/' \
        -e 's/("num_key_value_heads"): *[0-9]+/\1: 2/' "$work/h200/$model/config.json"
    sed -i -e 's/^device = cuda/device = cpu/' -e 's/device\.cuda/device.cpu/' -e '/^precision/d' "$work/h200/$model.ini"
    "$XRAY_BIN" train "$work/h200/$model.ini" "${task[@]}" --set trainer.total_training_steps=1 --set data.train_batch_size=2 \
        --set rollout.n=2 --set actor.ppo_mini_batch_size=2 --set data.max_response_length=3 --set data.train_max_samples=8 \
        --set infer.dsinf.kv_memory=16M --set trainer.default_local_dir="$work/$model" >"$work/out.txt" 2>&1 ||
        fail "$model does not run: $(cat "$work/out.txt")"
done
echo "inis: ok"
