#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Proves models in Workhorses: one rank has the bits of a run in one process,
# wherever its engine is; several ranks sample the same first step and learn the
# same up to rounding; for a given number of ranks nothing changes the bits.
. "$(dirname "$0")/lib.sh"
make_task
steps="--set trainer.total_training_steps=3 --set run.threads=1"

run() {
    local name=$1
    shift
    # shellcheck disable=SC2086
    train "$work/$name" $steps --set "trainer.rollout_data_dir=$work/$name/rollout" "$@" >/dev/null
}

same() {
    same_checkpoint "$work/$1/global_step_3" "$work/$2/global_step_3"
    diff <(steady "$work/$1/metrics.jsonl") <(steady "$work/$2/metrics.jsonl") ||
        fail "metrics of $2 differ from those of $1"
}

# first NAME KEY: prints a metric of the first step, whose line follows that of
# the validation before it.
first() {
    sed -n 's/^{"step":1,.*"'"${2//\//\\/}"'":\([^,}]*\).*/\1/p' "$work/$1/metrics.jsonl"
}

# near A B: expects values that are equal up to a millionth.
near() {
    [ -n "$1" ] && [ -n "$2" ] || fail "no values to compare: \"$1\" and \"$2\""
    awk -v a="$1" -v b="$2" 'BEGIN { d = a - b; s = a < 0 ? -a : a
        exit !(d < 1e-6 * (1 + s) && -d < 1e-6 * (1 + s)) }' ||
        fail "$1 and $2 are not near"
}

run one
run apart --set run.runtime=local
same one apart
run elsewhere --set run.ranks=2 --set placement.actor=0 --set placement.rollout=1
same one elsewhere
run beside --set run.ranks=2 --set placement.actor=0 --set placement.rollout=0-1 # an engine beside the actor and one on its own
same one beside
# The engine's own metric comes from its process; of two it is the mean.
rows=$(first one perf/infer.dsinf/rows)
[ -n "$rows" ] && [ "$rows" = "$(first apart perf/infer.dsinf/rows)" ] || fail "rows of a step: $rows and $(first apart perf/infer.dsinf/rows)"
awk -v a="$rows" -v b="$(first beside perf/infer.dsinf/rows)" 'BEGIN { exit !(b > 0 && b < a) }' ||
    fail "rows of a step on two engines: $(first beside perf/infer.dsinf/rows)"

for ranks in 2 4; do
    run "on$ranks" --set "run.ranks=$ranks"
    cmp "$work/one/rollout/1.jsonl" "$work/on$ranks/rollout/1.jsonl" ||
        fail "$ranks ranks sample another first step"
    # The counts of the ranks are added up.
    for key in grad_norm pg_loss pg_clipfrac ppo_kl entropy; do
        near "$(first one actor/$key)" "$(first "on$ranks" actor/$key)"
    done
done
run again --set run.ranks=2
same on2 again
for stage in 0 1 2; do
    run "stage$stage" --set run.ranks=2 --set "train.zero3.stage=$stage"
    same on2 "stage$stage"
done
run recompute --set run.ranks=2 --set train.zero3.gradient_checkpointing=true
same on2 recompute
# Engines on some of the actor's ranks and on another rank.
run overlap --set run.ranks=3 --set placement.actor=0-1 --set placement.rollout=1,2
same on2 overlap
run overlap1 --set run.ranks=3 --set placement.actor=0-1 --set placement.rollout=1,2 \
    --set train.zero3.stage=1 --set rollout.free_cache_engine=true --set actor.optimizer_offload=true
same on2 overlap1
# Weights in host memory are exported for them.
run overlap3 --set run.ranks=3 --set placement.actor=0-1 --set placement.rollout=1,2 --set train.zero3.offload_param=host
same on2 overlap3
# The actor's ranks are numbered from 0, even if they do not begin with rank 0.
run later --set run.ranks=3 --set placement.actor=1-2 --set placement.rollout=1-2
same on2 later
# Stages 2 and 3 add gradients of ranks after every micro-batch, stages 0 and 1
# once.
run micro1 --set run.ranks=2 --set actor.ppo_max_token_len_per_gpu=40 --set train.zero3.stage=1
same on2 micro1
run micro3 --set run.ranks=2 --set actor.ppo_max_token_len_per_gpu=40
near "$(first on2 actor/grad_norm)" "$(first micro3 actor/grad_norm)"
# Groups that share a prompt stay on one rank.
shared=(--set actor.share_prompts=true)
run shared "${shared[@]}"
run shared1 "${shared[@]}" --set run.runtime=local
same shared shared1
run shared2 "${shared[@]}" --set run.ranks=2 --set train.zero3.stage=1
near "$(first shared actor/grad_norm)" "$(first shared2 actor/grad_norm)"
run shared-micro "${shared[@]}" --set run.ranks=2 --set train.zero3.stage=1 --set actor.ppo_max_token_len_per_gpu=70
same shared2 shared-micro
run offload --set run.ranks=2 --set train.zero3.offload_optimizer=host
same on2 offload

# A checkpoint of two ranks can be resumed on four and on one.
cp -r "$work/on2" "$work/grown"
run grown --set run.ranks=4 --set trainer.total_training_steps=4
[ -d "$work/grown/global_step_4" ] || fail "no checkpoint of four ranks"
cp -r "$work/on2" "$work/shrunk"
run shrunk --set trainer.total_training_steps=4
near "$(tail -1 "$work/grown/metrics.jsonl" | grep -o '"actor/grad_norm":[^,}]*' | cut -d: -f2)" \
    "$(tail -1 "$work/shrunk/metrics.jsonl" | grep -o '"actor/grad_norm":[^,}]*' | cut -d: -f2)"
echo "ranks: ok"
