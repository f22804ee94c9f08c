#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# If a Workhorse of a replica is killed or stopped in the middle of a pass, while the
# others wait for what it has of a layer or of a stage, the run reports within seconds which one, its
# phase and their collective, and leaves no process; with [run] max_restarts it restarts
# by itself and ends with the bits of an undisturbed run. The arguments say what happens
# to which runs: the number of ranks and a signal each.
. "$(dirname "$0")/../rl/lib.sh"
. "$(dirname "$0")/horses.sh"
make_task
sed -i -E 's/("vocab_size"): *[0-9]+/\1: 128/' "$work/task/model/config.json"
export XRAY_PLUGIN_PATH=$XRAY_BUILD/tests/sick SICK=algo-loss-wait SICK_AT=4

common="--set run.threads=1 --set run.train=megatron --set train.megatron.tensor_model_parallel_size=2"

# The first rank that calls the loss for the fourth time is held in it.
for name in "$@"; do
    ranks=${name%%[A-Z]*}
    steps="$common --set run.ranks=$ranks --set run.algo=sick"
    SICK_FLAG=$work/$name.flag held "$name" --set trainer.total_training_steps=2000
    quiet
    before=$EPOCHREALTIME
    hit "${name#"$ranks"}"
    lost "$name" forward_backward
    grep -q 'rank [0-3] \(waits\|gave up\) in all_reduce of [0-9]* bytes' "$work/$name.err" ||
        fail "no rank waits for the others of its replica: $(cat "$work/$name.err")"
done

# layout STAGES CONTEXT: the options of a replica of so many stages and ranks that divide rows.
layout() {
    ranks=$(($1 * $2))
    steps="--set run.threads=1 --set run.train=megatron --set run.ranks=$ranks --set run.algo=sick"
    steps="$steps --set train.megatron.pipeline_model_parallel_size=$1 --set train.megatron.context_parallel_size=$2"
}

# A rank of the last stage is held in the loss. Stages before it wait for its gradients, and
# ranks that divide its rows for the gradients of keys and values.
for cell in "2 1 recv" "1 2 reduce_scatter" "2 2 recv"; do
    read -r stages context call <<<"$cell"
    layout "$stages" "$context"
    name=stages$stages-context$context
    SICK_FLAG=$work/$name.flag held "$name" --set trainer.total_training_steps=2000
    quiet
    before=$EPOCHREALTIME
    hit KILL
    lost "$name" forward_backward
    grep -q "rank [0-3] \(waits\|gave up\) in $call of [0-9]* bytes" "$work/$name.err" ||
        fail "$name: no rank waits in $call: $(cat "$work/$name.err")"
done

# The same runs are stopped at once by two signals: the call that is held ends, and so do those that wait for it.
printf '#!/bin/sh\nexec env --default-signal=INT "%s" "$@"\n' "$XRAY_BIN" >"$work/interruptible"
chmod +x "$work/interruptible"
for cell in "2 1" "1 2" "2 2"; do
    read -r stages context <<<"$cell"
    layout "$stages" "$context"
    name=canceled$stages-$context
    export SICK_FLAG=$work/$name.flag
    SICK=algo-loss-hold XRAY_BIN=$work/interruptible held "$name" --set trainer.total_training_steps=2000
    quiet
    kill -INT "$pid"
    until grep -qs "a second signal stops" "$work/$name.err"; do sleep 0.01; done
    kill -INT "$pid"
    code=0
    wait "$run" || code=$?
    [ "$code" = 130 ] || fail "$name ended with $code: $(cat "$work/$name.err")"
    [ -e "$SICK_FLAG.canceled" ] || fail "$name: the loss was not canceled: $(cat "$work/$name.err")"
    grep -q '^xray: stopped at once; no checkpoint was written' "$work/$name.err" || fail "$name: $(cat "$work/$name.err")"
    ! grep -q 'train.megatron: \|workhorse [0-9]' "$work/$name.err" || fail "$name: more was said: $(cat "$work/$name.err")"
    gone
done
unset SICK_FLAG

# A rank that is late: the sentence of the collective that waited for it reaches the user.
ranks=2
steps="$common --set run.ranks=2 --set run.algo=sick --set run.comm_timeout=2"
SICK_FLAG=$work/late.flag held late --set trainer.total_training_steps=2000
wait "$run" && fail "a run without a rank ended well"
grep -Eq 'train.megatron: .*: comm.shm: all_reduce .*: not all ranks arrived within 2.0 s: .*rank [01] is outside' "$work/late.err" ||
    fail "the collective's sentence is missing: $(cat "$work/late.err")"
gone

ranks=4
steps="$common --set run.ranks=4 --set run.algo=sick"
restart="--set trainer.total_training_steps=5 --set trainer.save_freq=2 --set run.max_restarts=1"
# shellcheck disable=SC2086
SICK_AT=14 SICK_FLAG=$work/again.flag held again $restart
quiet
hit KILL
wait "$run" || fail "the run did not go on: $(cat "$work/again.err")"
grep -q 'restart 1 of 1 from .*/global_step_' "$work/again.err" ||
    fail "nothing tells of the restart: $(cat "$work/again.err")"
# shellcheck disable=SC2086
SICK='' train "$work/calm" $steps $restart >/dev/null
same_checkpoint "$work/calm/global_step_5" "$work/again/global_step_5"
diff <(steady "$work/calm/metrics.jsonl") <(steady "$work/again/metrics.jsonl") ||
    fail "metrics differ after a restart"
gone
echo "faults of replicas: ok"
