#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Trains on the cuda device, with its kernels on the host or, with the argument
# "gpu", on a GPU. In float32 the checkpoint and the metrics equal those of the
# cpu device. In bfloat16 they are close, the rollout's log-probabilities equal
# the trainer's, and a rerun with other batches in the engine gives the same bits.
# All of this holds with bf16 activations, too.
. "$(dirname "$0")/../rl/lib.sh"
make_task

if [ "${1:-}" = gpu ]; then
    code=0
    "$XRAY_BUILD/tests/test-gpu-lm_head_bf16" >"$work/log" 2>&1 || code=$?
    [ $code != 77 ] || { cat "$work/log"; exit 77; }
else
    cuda_on_host
fi

# A second step has the code of the first, which is enough for a sanitizer.
steps=2
sanitized && steps=1
run() { # FOLDER [--set ...]
    local dir=$1
    shift
    train "$dir" --set trainer.total_training_steps=$steps --set run.threads=1 "$@" >"$work/log" 2>&1 ||
        { cat "$work/log"; fail "no run in $dir"; }
}
run "$work/cpu"
run "$work/f32" --set run.device=cuda --set device.cuda.precision=float32
same_checkpoint "$work/cpu/global_step_$steps" "$work/f32/global_step_$steps"
diff <(steady "$work/cpu/metrics.jsonl") <(steady "$work/f32/metrics.jsonl") ||
    fail "metrics of cpu and cuda in float32 differ"

# Moments in page-locked host memory, also through a checkpoint.
offload=(--set run.device=cuda --set device.cuda.precision=float32 --set train.zero3.offload_optimizer=host)
run "$work/f32-host" "${offload[@]}"
same_checkpoint "$work/cpu/global_step_$steps" "$work/f32-host/global_step_$steps"

once=(--set trainer.total_training_steps=1 --set actor.ppo_epochs=1 --set actor.ppo_mini_batch_size=8)
if sanitized; then
    run "$work/half" "${once[@]}" --set model.dtype=bfloat16 --set actor.share_prompts=true --set run.device=cuda
    echo "cuda: ok"
    exit
fi

# recompute_old_logp = 1: a difference between rollout and trainer stops a run.
run "$work/bf16" --set run.device=cuda --set run.log=info
grep -q "numerics: .* xray.fp32/2, but for products and attention, which are those of xray.cuda-bf16/4:" "$work/log" ||
    fail "the log does not name the contract of the device: $(grep numerics "$work/log")"
run "$work/again" --set run.device=cuda --set rollout.max_num_seqs=3
same_checkpoint "$work/bf16/global_step_2" "$work/again/global_step_2"
! cmp -s "$work/cpu/global_step_2/actor/model.safetensors" \
    "$work/bf16/global_step_2/actor/model.safetensors" || fail "bfloat16 has no effect"

run "$work/cpu-shared" --set actor.share_prompts=true
run "$work/f32-shared" --set actor.share_prompts=true --set run.device=cuda --set device.cuda.precision=float32
same_checkpoint "$work/cpu-shared/global_step_2" "$work/f32-shared/global_step_2"
# Penalties and min_tokens change samples that are not trained on.
changed=(--set rollout.repetition_penalty=1.5 --set rollout.presence_penalty=0.5 --set rollout.min_tokens=2)
evaluate() { # NAME [--set ...]
    "$XRAY_BIN" eval "$work/run.ini" "${changed[@]}" --set "trainer.validation_data_dir=$work/$1" "${@:2}" >"$work/log" 2>&1 ||
        { cat "$work/log"; fail "no validation in $1"; }
}
evaluate cpu-changed
evaluate f32-changed --set run.device=cuda --set device.cuda.precision=float32
cmp "$work/cpu-changed/0.jsonl" "$work/f32-changed/0.jsonl"
evaluate bf16-changed --set run.device=cuda

# The numbers of a single update, which see the same weights: AdamW moves a
# weight whose gradient is nearly 0 either way, so later ones drift apart.
run "$work/cpu-once" "${once[@]}"
run "$work/bf16-once" "${once[@]}" --set run.device=cuda
value() { # FOLDER KEY
    sed -n "2s|.*\"$2\":\([^,}]*\).*|\1|p" "$work/$1/metrics.jsonl"
}
for key in actor/entropy actor/grad_norm; do
    awk -v a="$(value cpu-once $key)" -v b="$(value bf16-once $key)" \
        'BEGIN { d = a - b; exit !(a > 0 && d * d < 1e-6 * a * a) }' ||
        fail "$key: cpu $(value cpu-once $key), bfloat16 $(value bf16-once $key)"
done

# Activations of bf16: the same points of rounding, and a cache of bf16.
half=("${once[@]}" --set model.dtype=bfloat16)
run "$work/cpu-half" "${half[@]}"
run "$work/f32-half" "${half[@]}" --set run.device=cuda --set device.cuda.precision=float32
same_checkpoint "$work/cpu-half/global_step_1" "$work/f32-half/global_step_1"
run "$work/bf16-half" "${half[@]}" --set run.device=cuda
run "$work/again-half" "${half[@]}" --set run.device=cuda --set rollout.max_num_seqs=3
same_checkpoint "$work/bf16-half/global_step_1" "$work/again-half/global_step_1"
echo "cuda: ok"
