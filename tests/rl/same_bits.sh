#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Proves that the same INI and seed give the same bits, whatever the thread
# count, the cut into micro-batches, the rollout's batch size or the instruction
# set.
. "$(dirname "$0")/lib.sh"
make_task
steps="--set trainer.total_training_steps=3"

# shellcheck disable=SC2086
train "$work/base" $steps --set run.threads=1 >/dev/null
documented "$work/base/metrics.jsonl"

base=base
compare() {
    local name=$1
    shift
    # shellcheck disable=SC2086
    train "$work/$name" $steps "$@" >/dev/null
    same_checkpoint "$work/$base/global_step_3" "$work/$name/global_step_3"
    diff <(steady "$work/$base/metrics.jsonl") <(steady "$work/$name/metrics.jsonl") ||
        fail "metrics of $name differ"
}
compare threads --set run.threads=2
# ThreadSanitizer has nothing to see in the others.
if [ "${XRAY_SANITIZE:-}" = thread ]; then
    compare more-threads --set run.threads=3
    echo "same bits: ok"
    exit
fi
compare again --set run.threads=1
compare micro --set actor.ppo_max_token_len_per_gpu=40
compare batch --set rollout.max_num_seqs=3
compare avx2 --set device.cpu.isa=avx2
compare scalar --set device.cpu.isa=scalar
compare copied --set rollout.share_weights=off
compare recompute --set train.zero3.gradient_checkpointing=true
compare offload --set train.zero3.offload_optimizer=host --set train.zero3.offload_param=host

# With shared prompts computed once, gradients are rounded differently, but
# groups may be cut anywhere between them.
# shellcheck disable=SC2086
train "$work/shared" $steps --set actor.share_prompts=true >/dev/null
! cmp -s "$work/base/global_step_3/actor/model.safetensors" \
    "$work/shared/global_step_3/actor/model.safetensors" || fail "no prompt was shared"
base=shared
compare shared-threads --set actor.share_prompts=true --set run.threads=3
compare shared-micro --set actor.share_prompts=true --set actor.ppo_max_token_len_per_gpu=70
compare shared-avx2 --set actor.share_prompts=true --set device.cpu.isa=avx2
compare shared-recompute --set actor.share_prompts=true --set train.zero3.gradient_checkpointing=true

# Another seed gives other bits, so the comparison can fail.
# shellcheck disable=SC2086
train "$work/other" $steps --set run.seed=12 >/dev/null
! cmp -s "$work/base/global_step_3/actor/model.safetensors" \
    "$work/other/global_step_3/actor/model.safetensors" || fail "the seed has no effect"
echo "same bits: ok"
