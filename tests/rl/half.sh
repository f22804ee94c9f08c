#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Proves bf16 activations in complete runs: the rollout's log-probs are the
# trainer's, and the bits depend neither on threads, cuts, instruction sets,
# stages nor copies of the weights, whatever their type, nor on an interruption.
. "$(dirname "$0")/lib.sh"
make_task
sed -i 's/^init = random/&\ndtype = bfloat16/' "$work/run.ini"
steps="--set trainer.total_training_steps=3"

# shellcheck disable=SC2086
train "$work/base" $steps --set run.threads=1 --set run.log=info >/dev/null 2>"$work/base.err"
grep -q "numerics: train.zero3 keeps xray.bf16/1, infer.dsinf keeps xray.bf16/1" "$work/base.err" ||
    fail "the contract is not named: $(cat "$work/base.err")"
[ "$(grep -c '"training/rollout_probs_diff/max":0[,}]' "$work/base/metrics.jsonl")" = 3 ] ||
    fail "the trainer's probabilities are not the rollout's: $(cat "$work/base/metrics.jsonl")"

same() { # NAME [--set ...]
    local name=$1
    shift
    # shellcheck disable=SC2086
    train "$work/$name" $steps "$@" >/dev/null 2>&1
    same_checkpoint "$work/base/global_step_3" "$work/$name/global_step_3"
    diff <(steady "$work/base/metrics.jsonl") <(steady "$work/$name/metrics.jsonl") || fail "metrics of $name differ"
}
same threads --set run.threads=2
same cut --set actor.ppo_max_token_len_per_gpu=40 --set rollout.max_num_seqs=3
same avx2 --set device.cpu.isa=avx2
same scalar --set device.cpu.isa=scalar
same recompute --set train.zero3.gradient_checkpointing=true
same float32 --set rollout.share_weights=off --set infer.dsinf.weights=float32
same bfloat16 --set rollout.share_weights=off --set infer.dsinf.weights=bfloat16
same stage3 --set train.zero3.stage=3 --set train.zero3.offload_param=host
train "$work/resumed" --set trainer.total_training_steps=1 >/dev/null
# shellcheck disable=SC2086
train "$work/resumed" $steps >/dev/null 2>&1
same_checkpoint "$work/base/global_step_3" "$work/resumed/global_step_3"

# Other types give other bits, so the comparison can fail.
# shellcheck disable=SC2086
train "$work/wide" $steps --set model.dtype=float32 >/dev/null
! cmp -s "$work/base/global_step_3/actor/model.safetensors" \
    "$work/wide/global_step_3/actor/model.safetensors" || fail "the type has no effect"
echo "half: ok"
