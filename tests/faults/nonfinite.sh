#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# If a weight is NaN, whatever loads the weights names the tensor and computes
# nothing.
. "$(dirname "$0")/../rl/lib.sh"
make_task
train "$work/first" --set trainer.total_training_steps=1 >/dev/null 2>&1
"$XRAY_BIN" train "$work/run.ini" --set "trainer.default_local_dir=$work/ppo" --set run.algo=ppo \
    --set trainer.total_training_steps=1 >/dev/null 2>&1
spoiled() { # FROM FOLDER: its last value becomes NaN
    cp -r "$1" "$2"
    printf '\000\000\300\177' | dd of="$2/model.safetensors" bs=1 conv=notrunc status=none \
        seek=$(($(stat -c %s "$2/model.safetensors") - 4))
}
spoiled "$work/first/global_step_1/actor" "$work/bad"
spoiled "$work/ppo/global_step_1/critic" "$work/bad-critic"
refused() { # FOLDER COMMAND...
    local folder=$1 code=0
    shift
    "$XRAY_BIN" "$@" >"$work/out" 2>"$work/err" || code=$?
    [ "$code" = 2 ] || fail "$*: exit $code: $(cat "$work/out" "$work/err")"
    grep -qE "$folder: tensor [a-z0-9_.]+: element [0-9]+ is NaN, expected a finite fp32 number" "$work/err" ||
        fail "$* says: $(cat "$work/err")"
    ! grep -q . "$work/out" || fail "$* answers: $(cat "$work/out")"
}
run=("$work/run.ini" --set model.init=load --set "trainer.default_local_dir=$work/none")
for command in train sft eval; do
    refused "$work/bad" $command "${run[@]}" --set "model.path=$work/bad"
done
refused "$work/bad" train "${run[@]}" --set "model.path=$work/bad" --set run.ranks=2
refused "$work/bad-critic" train "${run[@]}" --set "model.path=$work/first" --set run.algo=ppo --set "critic.model.path=$work/bad-critic"
echo '{"text":"1+2"}' >"$work/text"
echo '{"prompt":"1+2"}' >"$work/prompt"
refused "$work/bad" score --model "$work/bad" "$work/text"
refused "$work/bad" generate --model "$work/bad" "$work/prompt"
[ -z "$(ls "$work/none" 2>/dev/null | grep global_step)" ] || fail "a checkpoint was written"
echo "faults.nonfinite: ok"
