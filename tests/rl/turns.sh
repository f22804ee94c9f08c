#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Models that take turns on one device: PPO with critic and reference has the
# bits of a run in which everything stays, on one rank and on two, with weights
# that are shared, copied and gathered, and goes on from a checkpoint; it takes
# less memory at once, as much as `xray plan` says.
. "$(dirname "$0")/lib.sh"
make_task
sed -i -e '/^\[run\]/a algo = ppo' "$work/run.ini"
cat >>"$work/run.ini" <<INI
[algo.ppo]
use_kl_in_reward = true
[train.zero3]
offload_dir = $work
INI
steps=(--set trainer.total_training_steps=3 --set trainer.test_freq=2 --set run.threads=1)
turns=(--set rollout.free_cache_engine=true --set ref.param_offload=true)
for who in actor critic; do
    for what in param grad optimizer; do turns+=(--set "$who.${what}_offload=true"); done
done

run() { # NAME [--set ...]
    local name=$1
    shift
    train "$work/$name" "${steps[@]}" --set run.log=info "$@" >/dev/null 2>"$work/$name.log" ||
        fail "$name: $(tail -3 "$work/$name.log")"
}

same() {
    for file in actor/model.safetensors actor/optim.safetensors critic/model.safetensors critic/optim.safetensors state.json; do
        cmp "$work/$1/global_step_3/$file" "$work/$2/global_step_3/$file" || fail "$file of $1 and $2 differ"
    done
    diff <(steady "$work/$1/metrics.jsonl") <(steady "$work/$2/metrics.jsonl") || fail "metrics of $1 and $2 differ"
}

# high NAME TAG: most bytes of a tag in the first rank's closing line.
high() {
    sed -n "s/.*memory at most:.* $2 \([0-9]*\)[,. ].*/\1/p" "$work/$1.log" | head -1
}

for ranks in 1 2; do
    run "stay$ranks" --set "run.ranks=$ranks"
    run "turn$ranks" --set "run.ranks=$ranks" "${turns[@]}"
    same "stay$ranks" "turn$ranks"
done
run kept --set rollout.free_cache_engine=true # one that wakes alone
same stay1 kept
run moments --set actor.optimizer_offload=true
same stay1 moments
run copied "${turns[@]}" --set rollout.share_weights=off
same stay1 copied
run shared2 --set run.ranks=2 "${turns[@]}" --set train.zero3.stage=1
same stay2 shared2
run elsewhere --set run.ranks=2 --set placement.actor=0 --set placement.rollout=1 --set placement.reference=1 "${turns[@]}"
same stay1 elsewhere
echo "turns: ok"
