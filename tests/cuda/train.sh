#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# A run on the cuda device, its kernels on the host: in float32 it gives the cpu
# device's checkpoint and metrics, in bfloat16 the rollout's log-probabilities
# are the trainer's and a rerun with other batches of the engine gives the same
# bits.
. "$(dirname "$0")/../rl/lib.sh"
make_task

# A name may be there once: the real device-cuda, where it was built, stays out.
mkdir -p "$work/bin/plugins"
for module in "$XRAY_BUILD"/plugins/*.so "$XRAY_BUILD/tests/cuda/device-cuda.so"; do
    [ "$module" = "$XRAY_BUILD/plugins/device-cuda.so" ] || ln -s "$module" "$work/bin/plugins/"
done
cp "$XRAY_BIN" "$work/bin/xray"
XRAY_BIN=$work/bin/xray

run() { # FOLDER [--set ...]
    local dir=$1
    shift
    train "$dir" --set trainer.total_training_steps=2 --set run.threads=1 "$@" >"$work/log" 2>&1 ||
        { cat "$work/log"; fail "no run in $dir"; }
}
run "$work/cpu"
run "$work/f32" --set run.device=cuda --set device.cuda.precision=float32
same_checkpoint "$work/cpu/global_step_2" "$work/f32/global_step_2"
diff <(steady "$work/cpu/metrics.jsonl") <(steady "$work/f32/metrics.jsonl") ||
    fail "metrics of cpu and cuda in float32 differ"

# recompute_old_logp = 1: a difference between rollout and trainer stops a run.
run "$work/bf16" --set run.device=cuda
run "$work/again" --set run.device=cuda --set rollout.max_num_seqs=3
same_checkpoint "$work/bf16/global_step_2" "$work/again/global_step_2"
! cmp -s "$work/cpu/global_step_2/actor/model.safetensors" \
    "$work/bf16/global_step_2/actor/model.safetensors" || fail "bfloat16 has no effect"
echo "cuda on the host: ok"
