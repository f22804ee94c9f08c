#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Proves that weights copied to the engine, by an export if the trainer has one,
# give the bits of shared weights at every stage and location of the weights. An
# engine that rounds weights receives rounded values, and the loop does not use
# its log-probs in place of the trainer's.
. "$(dirname "$0")/lib.sh"
make_task
steps=(--set trainer.total_training_steps=3)
train "$work/shared" "${steps[@]}" >/dev/null
# sent FOLDER: the bytes that engines received in each step.
sent() { grep -o '"perf/update_weights_bytes":[^,}]*' "$1/metrics.jsonl" | cut -d : -f 2 | tr '\n' ' '; }
[ "$(sent "$work/shared")" = "0 0 0 " ] || fail "shared weights were sent: $(sent "$work/shared")"
# All elements of the model's file, which are fp32, behind its header.
model=$work/shared/global_step_3/actor/model.safetensors
bytes=$(($(stat -c %s "$model") - 8 - $(od -An -tu8 -N 8 "$model")))
for set in train.zero3.stage=0 train.zero3.stage=3 train.zero3.offload_param=host train.zero3.offload_optimizer=host; do
    rm -rf "$work/copied"
    train "$work/copied" "${steps[@]}" --set "$set" --set rollout.share_weights=off >/dev/null
    same_checkpoint "$work/shared/global_step_3" "$work/copied/global_step_3"
    diff <(steady "$work/shared/metrics.jsonl") <(steady "$work/copied/metrics.jsonl") || fail "metrics with $set differ"
    [ "$(sent "$work/copied")" = "$bytes $bytes $bytes " ] || fail "$set sends $(sent "$work/copied"), expected $bytes in each step"
    [ "$(grep -c '"timing_s/update_weights":[0-9.e-]*[1-9]' "$work/copied/metrics.jsonl")" = 3 ] || fail "$set sends in no time"
done
# A resumed run sends the weights of the checkpoint, not those that the engine
# started with.
train "$work/again" "${steps[@]}" --set trainer.total_training_steps=1 >/dev/null
train "$work/again" "${steps[@]}" --set rollout.share_weights=off >/dev/null 2>&1
same_checkpoint "$work/shared/global_step_3" "$work/again/global_step_3"

narrow=(--set infer.dsinf.weights=bfloat16)
train "$work/narrow" "${steps[@]}" "${narrow[@]}" >/dev/null
train "$work/narrow2" "${steps[@]}" "${narrow[@]}" --set run.threads=1 >/dev/null
same_checkpoint "$work/narrow/global_step_3" "$work/narrow2/global_step_3"
[ "$(grep -c '"training/rollout_probs_diff/max":0\.0' "$work/narrow/metrics.jsonl")" = 3 ] ||
    fail "the old log-probs were not computed again: $(cat "$work/narrow/metrics.jsonl")"
echo "rl.copied_weights: ok"
