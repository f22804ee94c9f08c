#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Proves models that take turns on one device: PPO with critic and reference has
# the bits of a run in which nothing is offloaded, on one rank and on two, with
# weights that are shared, copied and gathered, and resumes from a checkpoint.
# It uses less memory, as much as `xray plan` says.
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

same_files() {
    for file in actor/model.safetensors actor/optim.safetensors critic/model.safetensors critic/optim.safetensors state.json; do
        cmp "$work/$1/global_step_3/$file" "$work/$2/global_step_3/$file" || fail "$file of $1 and $2 differ"
    done
}

same() {
    same_files "$1" "$2"
    diff <(steady "$work/$1/metrics.jsonl") <(steady "$work/$2/metrics.jsonl") || fail "metrics of $1 and $2 differ"
}

# high NAME TAG: prints the most bytes of a tag on the first rank; `at once`: of
# all tags.
high() {
    sed -n "s/.*memory at most:.* $2 \([0-9]*\)\( bytes\)\{0,1\}\(,.*\)\{0,1\}$/\1/p" "$work/$1.log" | head -1
}

# planned TAG ARGS: prints the same from the plan, for all ranks together.
planned() {
    local tag=$1
    shift
    "$XRAY_BIN" plan "$work/run.ini" --json "$@" | grep '^ "bytes"' | grep -o "\"$tag\":[0-9]*" | cut -d: -f2
}

# as_planned NAME RANKS ARGS: expects every tag within 1 % of the plan, and the
# total below it, since the plan also counts what devices keep for themselves
# per model.
as_planned() {
    local name=$1 ranks=$2 tag
    shift 2
    for tag in weights gradients optimizer activations kv; do
        awk -v n="$ranks" -v a="$(high "$name" $tag)" -v b="$(planned $tag --set "run.ranks=$ranks" "$@")" \
            'BEGIN { d = n * a - b; exit !(b > 0 && d <= b / 100 && -d <= b / 100) }' ||
            fail "$name: $tag: $(high "$name" $tag) bytes, planned $(planned $tag --set "run.ranks=$ranks" "$@")"
    done
    [ $((ranks * $(high "$name" "at once"))) -le "$(planned all --set "run.ranks=$ranks" "$@")" ] ||
        fail "$name: $(high "$name" "at once") bytes at once, more than planned"
}

for ranks in 1 2; do
    run "stay$ranks" --set "run.ranks=$ranks"
    run "turn$ranks" --set "run.ranks=$ranks" "${turns[@]}"
    same "stay$ranks" "turn$ranks"
    as_planned "stay$ranks" "$ranks"
    as_planned "turn$ranks" "$ranks" "${turns[@]}"
    for tag in gradients optimizer activations "at once"; do
        [ $((3 * $(high "turn$ranks" "$tag"))) -le $((2 * $(high "stay$ranks" "$tag"))) ] ||
            fail "$ranks ranks: $tag: $(high "turn$ranks" "$tag") bytes in turns, $(high "stay$ranks" "$tag") without"
    done
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

# A checkpoint can be resumed, with turns or without.
run half "${turns[@]}" --set trainer.total_training_steps=1
run half
same_files stay1 half
echo "turns: ok"
