#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Proves that a run whose engine has a paged cache ends with the bits of one with
# a contiguous cache, at any size of its blocks and of its pool, also where the
# activations are bf16.
. "$(dirname "$0")/lib.sh"
make_task
steps=(--set trainer.total_training_steps=2)
train "$work/dsinf" "${steps[@]}" >/dev/null
for set in kv_memory=64K block_size=48 enable_prefix_caching=false max_num_batched_tokens=19; do
    rm -rf "$work/paged"
    train "$work/paged" "${steps[@]}" --set run.infer=paged --set "infer.paged.$set" >/dev/null
    same_checkpoint "$work/dsinf/global_step_2" "$work/paged/global_step_2"
    diff <(steady "$work/dsinf/metrics.jsonl") <(steady "$work/paged/metrics.jsonl") || fail "metrics with $set differ"
done
half=(--set model.dtype=bfloat16)
train "$work/half" "${steps[@]}" "${half[@]}" >/dev/null
train "$work/half2" "${steps[@]}" "${half[@]}" --set run.infer=paged >/dev/null
same_checkpoint "$work/half/global_step_2" "$work/half2/global_step_2"
echo "rl.paged: ok"
