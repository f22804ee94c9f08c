#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Proves runs whose policy is cut among tensor-parallel ranks: the samples,
# metrics and checkpoints of one rank, and with four replicas those of zero3 on
# four ranks, wherever the engine is and whatever leaves the device in between;
# either backend goes on from the other's checkpoint, and any model can be cut in
# a way of its own.
# Ranks that share KV heads are near to one rank.
. "$(dirname "$0")/lib.sh"
make_task
sed -i -E 's/("vocab_size"): *[0-9]+/\1: 128/; s/("num_key_value_heads"): *[0-9]+/\1: 4/' "$work/task/model/config.json"

run() { # NAME STEPS [--set ...]
    local name=$1 steps=$2
    shift 2
    train "$work/$name" --set "trainer.total_training_steps=$steps" --set run.threads=1 \
        --set "trainer.rollout_data_dir=$work/$name/rollout" "$@" >/dev/null 2>"$work/$name.err" || fail "$name: $(cat "$work/$name.err")"
}

same() {
    same_checkpoint "$work/$1/global_step_3" "$work/$2/global_step_3"
    cmp "$work/$1/rollout/3.jsonl" "$work/$2/rollout/3.jsonl" || fail "$2 samples otherwise than $1"
    [ $# = 3 ] || diff <(steady "$work/$1/metrics.jsonl") <(steady "$work/$2/metrics.jsonl") ||
        fail "metrics of $2 differ from those of $1"
}

slices() { # TENSOR RANKS
    echo --set run.train=megatron --set "train.megatron.tensor_model_parallel_size=$1" --set "run.ranks=$2"
}

run one 3
run whole 3 --set run.train=megatron
same one whole
# Offloaded moments are in files of their folder.
train "$work/nowhere" --set run.train=megatron --set train.megatron.optimizer_cpu_offload=true \
    --set "train.megatron.offload_dir=$work/no-such" >/dev/null 2>"$work/err" && fail "moments are nowhere"
grep -q "\[train.megatron\] offload_dir: cannot create a file in $work/no-such: " "$work/err" || fail "$(cat "$work/err")"
# shellcheck disable=SC2046
run cut2 3 $(slices 2 2) --set train.megatron.sequence_parallel=true
same one cut2
# shellcheck disable=SC2046
run cut4 3 $(slices 4 4) --set rollout.free_cache_engine=true --set actor.param_offload=true --set actor.grad_offload=true \
    --set actor.optimizer_offload=true --set train.megatron.sequence_parallel=true --set train.megatron.recompute_granularity=full
same one cut4
# shellcheck disable=SC2046
run apart 3 $(slices 2 3) --set placement.actor=0-1 --set placement.rollout=2
same one apart
# shellcheck disable=SC2046
run stages2 3 $(slices 1 2) --set train.megatron.pipeline_model_parallel_size=2
same one stages2
# shellcheck disable=SC2046
run stages2x2 3 $(slices 2 5) --set train.megatron.pipeline_model_parallel_size=2 --set placement.actor=0-3 \
    --set placement.rollout=4 --set train.megatron.sequence_parallel=true
same one stages2x2
run four 3 --set run.ranks=4 --set train.zero3.stage=1
# shellcheck disable=SC2046
run cut2x4 3 $(slices 2 8) --set actor.share_prompts=false
same four cut2x4

run half 3 --set model.dtype=bfloat16
# shellcheck disable=SC2046
run halfcut 3 $(slices 2 2) --set model.dtype=bfloat16 --set train.megatron.sequence_parallel=true \
    --set train.megatron.recompute_granularity=none
same half halfcut

# Ranks that divide rows compute the engine's log-probs; their gradients are rounded differently.
for name in context contextcut; do
    [ $name = context ] && cells=$(slices 1 2) || cells="$(slices 2 4) --set train.megatron.sequence_parallel=true"
    # shellcheck disable=SC2086
    run $name 3 $cells --set train.megatron.context_parallel_size=2
    [ "$(grep -c '"training/rollout_probs_diff/max":0[,}.]' "$work/$name/metrics.jsonl")" = 3 ] ||
        fail "$name computes other log-probs than the engine: $(cat "$work/$name/metrics.jsonl")"
    cmp "$work/one/rollout/1.jsonl" "$work/$name/rollout/1.jsonl" || fail "$name samples otherwise at first"
done

# Stages change no bit of them, and neither do slices.
# shellcheck disable=SC2046
run contextstages 3 $(slices 1 4) --set train.megatron.pipeline_model_parallel_size=2 --set train.megatron.context_parallel_size=2
same context contextstages metrics
# shellcheck disable=SC2046
run contextall 3 $(slices 2 8) --set train.megatron.pipeline_model_parallel_size=2 --set train.megatron.context_parallel_size=2
same context contextall

# From one backend to the other, and back to another layout.
# shellcheck disable=SC2046
run on 1 $(slices 2 2)
run on 2
# shellcheck disable=SC2046
run on 3 $(slices 4 4)
same one on weights

# Every model in a layout of its own: a critic and a reward model that are cut as the policy is, beside a reference that
# every rank has; and all of them cut in other ways, on other ranks.
mkdir "$work/rm"
"$XRAY_BUILD/tests/make-score" "$work/rm" 128
printf '[reward.rm]\nplugin = model\npath = %s\n' "$work/rm" >>"$work/run.ini"
all=(--set run.algo=ppo --set algo.ppo.preset=verl --set algo.ppo.use_kl_in_reward=true --set run.reward=rm)
run all 2 "${all[@]}"
# shellcheck disable=SC2046
run cutall 2 "${all[@]}" $(slices 2 2) --set train.megatron.sequence_parallel=true \
    --set ref.train.megatron.tensor_model_parallel_size=1
# shellcheck disable=SC2046
run own 2 "${all[@]}" $(slices 4 4) --set placement.critic=2-3 --set critic.train.megatron.tensor_model_parallel_size=2 \
    --set placement.reference=1 --set ref.train.megatron.tensor_model_parallel_size=1 \
    --set placement.reward=0-1 --set reward.train.megatron.tensor_model_parallel_size=2
for name in cutall own; do
    diff -r -x manifest.json -x run.ini -x history.json "$work/all/global_step_2" "$work/$name/global_step_2" ||
        fail "models in layouts of their own give other bits in $name"
    cmp "$work/all/rollout/2.jsonl" "$work/$name/rollout/2.jsonl" || fail "$name samples or scores otherwise"
done

# shellcheck disable=SC2046
"$XRAY_BIN" check "$work/run.ini" "${all[@]}" $(slices 2 4) --set reward.train.megatron.tensor_model_parallel_size=4 \
    >"$work/check.txt" 2>&1 && fail "check accepts a reward model of 2 heads on 4 ranks"
grep -q 'reward.train.megatron. tensor_model_parallel_size = 4: a model of 2 query heads' "$work/check.txt" ||
    fail "check says: $(cat "$work/check.txt")"

# Two KV heads of four ranks: near to one rank, and the same in every run.
sed -i -E 's/("num_key_value_heads"): *[0-9]+/\1: 2/' "$work/task/model/config.json"
run few 2
for name in shared again; do
    # shellcheck disable=SC2046
    run $name 2 $(slices 4 4)
done
cmp "$work/shared/global_step_2/actor/model.safetensors" "$work/again/global_step_2/actor/model.safetensors" ||
    fail "ranks that share KV heads have other bits in a rerun"
norm() { grep -o '"actor/grad_norm":[^,}]*' "$work/$1/metrics.jsonl" | head -n 1 | cut -d: -f2; }
awk -v a="$(norm few)" -v b="$(norm shared)" 'BEGIN { exit !(a > 0 && a != b && (a - b) ^ 2 < 1e-10 * a * a) }' ||
    fail "gradient norms: $(norm few) and $(norm shared)"
# shellcheck disable=SC2046
"$XRAY_BIN" check "$work/run.ini" $(slices 4 4) | grep -q '^ranks of train.megatron: 1 replicas of 4 (kv 2, tp 2)$' ||
    fail "check names other axes"

"$XRAY_BIN" check "$work/run.ini" --set run.train=megatron --set run.ranks=8 \
    --set train.megatron.tensor_model_parallel_size=8 >"$work/check.txt" 2>&1 && fail "check accepts 8 ranks for 4 heads"
grep -q 'tensor_model_parallel_size = 8: .*; the next size that works is 4$' "$work/check.txt" || fail "check says: $(cat "$work/check.txt")"

# Stages of chunks of layers, whose micro-batches of one row are no multiple of the stages.
sed -i -E 's/("num_hidden_layers"): *[0-9]+/\1: 4/' "$work/task/model/config.json"
# shellcheck disable=SC2046
run chunks 2 $(slices 1 4) --set train.megatron.pipeline_model_parallel_size=2 --set actor.ppo_max_token_len_per_gpu=48 \
    --set train.megatron.virtual_pipeline_model_parallel_size=2
run deep2 2 --set run.ranks=2
same_checkpoint "$work/deep2/global_step_2" "$work/chunks/global_step_2"
run turn 1 --set run.ranks=2
# shellcheck disable=SC2046
run turn 2 $(slices 1 4) --set train.megatron.pipeline_model_parallel_size=2 --set train.megatron.virtual_pipeline_model_parallel_size=2
same_checkpoint "$work/deep2/global_step_2" "$work/turn/global_step_2"
# shellcheck disable=SC2046
"$XRAY_BIN" check "$work/run.ini" $(slices 1 2) --set train.megatron.pipeline_model_parallel_size=2 \
    --set train.megatron.virtual_pipeline_model_parallel_size=4 >"$work/check.txt" 2>&1 && fail "check accepts 4 chunks of 2 layers"
grep -q 'virtual_pipeline_model_parallel_size = 4: the stages have 2, 2 and 2 layers' "$work/check.txt" || fail "check says: $(cat "$work/check.txt")"
