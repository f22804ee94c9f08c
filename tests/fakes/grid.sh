#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Proves that models and engines which are held by several ranks together train in
# the loop with the bits of one rank: samples, log-probs, losses, gradient norms,
# weights.
. "$(dirname "$0")/../rl/lib.sh"
make_task
export XRAY_PLUGIN_PATH=$XRAY_BUILD/tests/fakes

run() { # NAME [--set ...]
    local name=$1
    shift
    train "$work/$name" --set run.train=grid --set run.infer=grid --set run.threads=1 --set run.comm_timeout=60 \
        --set actor.optim.lr=4 --set trainer.total_training_steps=3 --set "trainer.rollout_data_dir=$work/$name/rollout" "$@" \
        >/dev/null 2>"$work/err" || fail "$name: $(cat "$work/err")"
    [ ! -s "$work/err" ] || fail "$name: $(cat "$work/err")"
}

# Expects the bits of another run.
same() {
    cmp "$work/$1/global_step_3/actor/grid.bin" "$work/$2/global_step_3/actor/grid.bin" || fail "$2: other weights than $1"
    for step in 1 2 3; do
        cmp "$work/$1/rollout/$step.jsonl" "$work/$2/rollout/$step.jsonl" || fail "$2: other samples than $1"
    done
    diff <(steady "$work/$1/metrics.jsonl") <(steady "$work/$2/metrics.jsonl") || fail "$2: other metrics than $1"
}

# Sums of metrics are added by replica, so they are compared for one number of
# replicas.
norms() {
    grep -oE '"(actor/grad_norm|critic/score/mean)":[^,}]*' "$work/$1/metrics.jsonl"
}

cut=(--set train.grid.tp=2 --set train.grid.pp=2)
pair=(--set infer.grid.tp=2)
run one
[ "$(grep -c '"training/rollout_probs_diff/max":0[,.}]' "$work/one/metrics.jsonl")" = 3 ] ||
    fail "the trainer computes other log-probs than the engine: $(cat "$work/one/metrics.jsonl")"
[ "$(norms one | grep -c 'grad_norm":0\.0*[1-9]')" = 3 ] || fail "nothing is learned: $(norms one)"
run apart --set run.runtime=local
same one apart
# One replica of four ranks, with engines of one rank and of two.
run square --set run.ranks=4 "${cut[@]}"
same one square
run square2 --set run.ranks=4 "${cut[@]}" "${pair[@]}"
same one square2
# Cut along one axis, with engines that are cut likewise or not at all.
run halves --set run.ranks=2 --set train.grid.tp=2 "${pair[@]}"
same one halves
run stages --set run.ranks=2 --set train.grid.pp=2
same one stages
# Engines of two ranks on ranks of their own.
run elsewhere --set run.ranks=3 --set placement.actor=0 --set placement.rollout=1-2 "${pair[@]}"
same one elsewhere
# Micro-batches that are filled up, in this process and in others.
filled=(--set train.grid.token_multiple=8 --set train.grid.micro_multiple=3)
run filled "${filled[@]}"
same one filled
run filled4 --set run.ranks=4 "${cut[@]}" "${filled[@]}"
same one filled4
# Two replicas: of one rank, of two, and of four with engines of two.
run two --set run.ranks=2
run pairs --set run.ranks=2 "${pair[@]}"
same two pairs
run wide --set run.ranks=8 "${cut[@]}" "${pair[@]}"
same two wide
run halves2 --set run.ranks=4 --set train.grid.tp=2 --set infer.grid.tp=2
same two halves2
cmp "$work/one/global_step_3/actor/grid.bin" "$work/two/global_step_3/actor/grid.bin" || fail "two replicas: other weights"
diff <(norms one) <(norms two) || fail "two replicas: other norms"
# A reference that is held as the policy is, and one that each rank holds alone.
kl=(--set algo.grpo.use_kl_loss=true)
run kl "${kl[@]}"
grep -q '"actor/kl_loss":0\.[0-9]*[1-9]' "$work/kl/metrics.jsonl" || fail "no KL: $(cat "$work/kl/metrics.jsonl")"
run kl-square --set run.ranks=4 "${kl[@]}" "${cut[@]}" "${pair[@]}"
same kl kl-square
run kl-apart --set run.ranks=4 "${kl[@]}" "${cut[@]}" "${pair[@]}" --set ref.train.grid.tp=1 --set ref.train.grid.pp=1
same kl kl-apart

# A gradient that is not finite is found on the last stage only; all ranks leave
# the update out.
sick() { # NAME FAULT [--set ...]
    local name=$1 fault=$2
    shift 2
    XRAY_PLUGIN_PATH=$XRAY_BUILD/tests/fakes:$XRAY_BUILD/tests/sick SICK=$fault SICK_AT=2 train "$work/$name" \
        --set run.train=grid --set run.infer=grid --set run.algo=sick --set run.threads=1 --set run.comm_timeout=60 \
        --set actor.optim.lr=4 --set trainer.total_training_steps=3 "$@" >/dev/null 2>"$work/err"
}
skip=(--set trainer.on_nonfinite=skip)
sick left-out algo-gradient "${skip[@]}" || fail "left out on one rank: $(cat "$work/err")"
sick left-out4 algo-gradient "${skip[@]}" --set run.ranks=4 "${cut[@]}" "${pair[@]}" ||
    fail "left out on four ranks: $(cat "$work/err")"
for name in left-out left-out4; do
    grep -q '"actor/skipped_updates":1[,}]' "$work/$name/metrics.jsonl" || fail "$name: $(cat "$work/$name/metrics.jsonl")"
done
cmp "$work/left-out/global_step_3/actor/grid.bin" "$work/left-out4/global_step_3/actor/grid.bin" ||
    fail "other weights after an update that was left out"
# A loss that fails ends all stages at once.
code=0
sick failed algo-loss-says --set run.ranks=4 "${cut[@]}" "${pair[@]}" || code=$?
[ $code = 1 ] && grep -qE 'algo.sick: loss: the ratio is 1e9$|the loss failed on the last stage$' "$work/err" ||
    fail "a loss that fails: exit $code, $(cat "$work/err")"

# A checkpoint of four ranks is continued by one, and the other way round.
for width in 1 4; do
    more=(--set trainer.total_training_steps=4)
    [ $width = 1 ] || more+=(--set run.ranks=4 "${cut[@]}" "${pair[@]}")
    cp -r "$work/$([ $width = 1 ] && echo square2 || echo one)" "$work/resumed$width"
    train "$work/resumed$width" --set run.train=grid --set run.infer=grid --set run.threads=1 --set actor.optim.lr=4 \
        "${more[@]}" \
        >/dev/null 2>"$work/err" || fail "resumed on $width: $(cat "$work/err")"
done
cmp "$work/resumed1/global_step_4/actor/grid.bin" "$work/resumed4/global_step_4/actor/grid.bin" ||
    fail "resumed runs differ"
echo "fakes.grid: ok"
