#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Two ranks of a run on the cuda device, its kernels on the host, whose memory
# comm-shm copies through the host: in float32 the checkpoint of two ranks on the
# cpu device.
. "$(dirname "$0")/../rl/lib.sh"
make_task

cuda_on_host

run() { # FOLDER [--set ...]
    local dir=$1
    shift
    train "$dir" --set trainer.total_training_steps=1 --set run.threads=1 --set run.ranks=2 "$@" >"$work/log" 2>&1 ||
        { cat "$work/log"; fail "no run in $dir"; }
}
run "$work/cpu"
run "$work/f32" --set run.device=cuda --set device.cuda.precision=float32
same_checkpoint "$work/cpu/global_step_1" "$work/f32/global_step_1"
diff <(steady "$work/cpu/metrics.jsonl") <(steady "$work/f32/metrics.jsonl") ||
    fail "metrics of cpu and cuda differ"
echo "two ranks on one device: ok"
