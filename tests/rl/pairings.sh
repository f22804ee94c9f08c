#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Proves that the pairings of examples/ are one run in any backend and engine:
# the trainer's log-probs are the rollout's in every step, and runs of one
# algorithm end with the same checkpoint, also where activations are bf16. A few
# steps of some pairings show it on a simple reward; with "learn grpo" or "learn ppo"
# all of an algorithm solve the task on 1, 2 and 4 ranks, and with the sums of
# gradients in segments every layout ends with one checkpoint.
. "$(dirname "$0")/lib.sh"
mkdir "$work/examples"
cp -r "$XRAY_SOURCE/examples/pairings" "$work/examples/"
pairings=$work/examples/pairings
runs=$work/build/pairings
"$XRAY_BUILD/quickstart-task" "$runs/task" 1
cp "$pairings/config.json" "$runs/task/model/"

run() { # FOLDER STEPS PAIRING [--set ...]
    local dir=$runs/$1 steps=$2 ini=$pairings/$3.ini
    shift 3
    "$XRAY_BIN" train "$ini" --set "trainer.default_local_dir=$dir" --set "trainer.total_training_steps=$steps" \
        --set actor.recompute_old_logp=1 --set trainer.logger=jsonl "$@" >"$dir.txt" 2>&1 || fail "$dir: $(cat "$dir.txt")"
    [ "$(grep -c '"training/rollout_probs_diff/max":0[,}]' "$dir/metrics.jsonl")" = "$steps" ] ||
        fail "$dir: the trainer gives other log-probs than the rollout"
}

same() { # FOLDER FOLDER
    diff -r -x manifest.json -x run.ini -x history.json "$runs/$1"/global_step_* "$runs/$2"/global_step_* ||
        fail "$1 and $2 end with different checkpoints"
}

learned() { # FOLDER ACCURACY
    awk -v least="$2" '/^validation/ { learned = $4 > $2 && $4 >= least } END { exit !learned }' "$runs/$1.txt" ||
        fail "$1 stays below $2: $(grep validation "$runs/$1.txt")"
}

if [ "${1:-}" = learn ]; then
    "$XRAY_BIN" sft "$pairings/sft.ini" >/dev/null
    algo=$2
    declare -A updates=([grpo]=300 [ppo]=200)
    steps=${updates[$algo]}
    for ranks in 1 2 4; do
        for pair in zero3-dsinf zero3-paged megatron-dsinf megatron-paged; do
            # The sums of the gradients are cut the same way for any number of replicas.
            how=(--set "run.ranks=$ranks" --set run.layout_segments=4 --set actor.ppo_max_token_len_per_gpu=4096)
            [ "$algo" = grpo ] || how+=(--set critic.ppo_max_token_len_per_gpu=4096)
            # Two ranks share each engine, and with megatron each layer; four are two replicas.
            share=$((ranks > 1 ? 2 : 1))
            how+=(--set "infer.${pair#*-}.tensor_model_parallel_size=$share")
            [ "${pair%-*}" = zero3 ] || how+=(--set "train.megatron.tensor_model_parallel_size=$share")
            run "$pair-$algo-$ranks" "$steps" "$pair-$algo" "${how[@]}"
            learned "$pair-$algo-$ranks" 0.95
            run "$pair-$algo-$ranks-half" 15 "$pair-$algo" "${how[@]}" --set model.dtype=bfloat16
            same "zero3-dsinf-$algo-1" "$pair-$algo-$ranks"
            same "zero3-dsinf-$algo-1-half" "$pair-$algo-$ranks-half"
            tail -n 2 "$runs/$pair-$algo-$ranks.txt" | head -n 1 | sed "s/^/$pair-$algo, $ranks ranks: /"
        done
    done
    exit
fi

# An answer of digits alone, which a model without any training finds soon.
head -n 16 "$runs/task/val.jsonl" >"$runs/task/val16.jsonl"
short=(--set "model.path=$runs/task/model" --set model.init=random --set "data.val_files=$runs/task/val16.jsonl"
    --set data.train_batch_size=16 --set actor.ppo_mini_batch_size=16 --set reward.exact.grader=regex
    --set 'reward.exact.pattern=^[0-9]+$' --set reward.exact.match_only=true)
if sanitized; then
    run megatron-paged-ppo 2 megatron-paged-ppo "${short[@]}" --set critic.ppo_mini_batch_size=8
    run stages-context-grpo 2 stages-context-grpo "${short[@]}"
    run zero3-paged-half 1 zero3-paged-grpo "${short[@]}" --set model.dtype=bfloat16
    echo "pairings: ok"
    exit
fi
for pair in zero3-dsinf megatron-paged; do
    run $pair-grpo 8 $pair-grpo "${short[@]}" --set actor.optim.lr=1e-3
    learned $pair-grpo 0.9
    run $pair-ppo 4 $pair-ppo "${short[@]}" --set critic.ppo_mini_batch_size=8 --set trainer.critic_warmup=2
done
same zero3-dsinf-grpo megatron-paged-grpo
run shared-grpo 8 megatron-paged-grpo "${short[@]}" --set actor.optim.lr=1e-3 --set infer.paged.tensor_model_parallel_size=2
same zero3-dsinf-grpo shared-grpo
same zero3-dsinf-ppo megatron-paged-ppo
# Gradients of divided rows are rounded differently, so only log-probs have the bits of the others.
run stages-context-grpo 8 stages-context-grpo "${short[@]}" --set actor.optim.lr=1e-3
learned stages-context-grpo 0.9
for pair in zero3-paged megatron-dsinf; do
    run $pair-half 2 $pair-grpo "${short[@]}" --set model.dtype=bfloat16
done
same zero3-paged-half megatron-dsinf-half
