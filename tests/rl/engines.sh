#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Proves runs whose engines have several ranks: the samples, metrics and
# checkpoints of one rank, whichever backend trains and however it cuts the
# model, in both engines and both types of activations. The trainer's log-probs
# are the rollout's in every step.
. "$(dirname "$0")/lib.sh"
make_task
sed -i -E 's/("vocab_size"): *[0-9]+/\1: 128/; s/("num_key_value_heads"): *[0-9]+/\1: 4/' "$work/task/model/config.json"

run() { # NAME TENSOR-PARALLEL-RANKS-OF-TRAINER OF-ENGINE [--set ...]
    local name=$1 train=$2 infer=$3 cut=()
    shift 3
    [ "$train" = 0 ] || cut=(--set run.train=megatron --set "train.megatron.tensor_model_parallel_size=$train")
    train "$work/$name" --set trainer.total_training_steps=2 --set run.threads=1 --set run.infer=paged "${cut[@]}" \
        --set "infer.paged.tensor_model_parallel_size=$infer" --set "trainer.rollout_data_dir=$work/$name/rollout" \
        --set actor.recompute_old_logp=1 "$@" >/dev/null 2>"$work/$name.err" || fail "$name: $(cat "$work/$name.err")"
    [ "$(grep -c '"training/rollout_probs_diff/max":0[,}]' "$work/$name/metrics.jsonl")" = 2 ] ||
        fail "$name: the trainer gives other log-probs than the rollout"
}

same() { # NAME NAME
    same_checkpoint "$work/$1/global_step_2" "$work/$2/global_step_2"
    cmp "$work/$1/rollout/2.jsonl" "$work/$2/rollout/2.jsonl" || fail "$2 samples otherwise than $1"
    diff <(steady "$work/$1/metrics.jsonl") <(steady "$work/$2/metrics.jsonl") || fail "metrics of $2 differ from those of $1"
}

run one 0 1
run two 2 2 --set run.ranks=2
same one two
run fourtwo 4 2 --set run.ranks=4
same one fourtwo
run fourone 4 1 --set run.ranks=4
same one fourone
run four 4 4 --set run.ranks=4 --set rollout.free_cache_engine=true
same one four
run apart 2 2 --set run.ranks=4 --set placement.actor=0-1 --set placement.rollout=2-3 --set infer.paged.kv_memory=64K \
    --set infer.paged.speculate=3
same one apart

# Two replicas of zero3 share an engine, or have one each.
run replicas 0 1 --set run.ranks=2
for how in "stage=1" "stage=3"; do
    rm -rf "$work/shared"
    run shared 0 2 --set run.ranks=2 --set "train.zero3.$how"
    same replicas shared
done
rm -rf "$work/shared"
run shared 0 1 --set run.ranks=2 --set run.infer=dsinf --set infer.dsinf.tensor_model_parallel_size=2
same replicas shared

run half 0 1 --set model.dtype=bfloat16
run halves 2 2 --set model.dtype=bfloat16 --set run.ranks=2
same half halves

ppo=(--set run.algo=ppo --set algo.ppo.preset=verl)
run critic 0 1 "${ppo[@]}"
run critics 2 2 "${ppo[@]}" --set run.ranks=2
same critic critics

"$XRAY_BIN" check "$work/run.ini" --set run.ranks=4 --set run.infer=paged --set infer.paged.tensor_model_parallel_size=2 >"$work/check.txt"
grep -q '^ranks of infer.paged: 2 replicas of 2 (tp 2)$' "$work/check.txt" || fail "check names other ranks: $(cat "$work/check.txt")"
"$XRAY_BIN" check "$work/run.ini" --set run.ranks=8 --set run.infer=paged --set infer.paged.tensor_model_parallel_size=8 \
    >"$work/check.txt" 2>&1 && fail "check accepts an engine of 8 ranks for 4 heads"
grep -q 'infer.paged. tensor_model_parallel_size = 8: a model of 4 query heads.*; the next size that works is 4$' "$work/check.txt" ||
    fail "check says: $(cat "$work/check.txt")"
echo "rl.engines: ok"
