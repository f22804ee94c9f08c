#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# If a Workhorse is killed or stopped, the run reports within seconds which one, its
# phase and collective, and leaves no process; with [run] max_restarts it restarts by
# itself and ends with the bits of an undisturbed run.
. "$(dirname "$0")/../rl/lib.sh"
make_task
steps="--set run.threads=1 --set run.ranks=2"

# start NAME ARGS: a long run in the background, up to its second step.
start() {
    local name=$1
    shift
    # shellcheck disable=SC2086
    train "$work/$name" $steps "$@" >"$work/$name.out" 2>"$work/$name.err" &
    run=$!
    for _ in $(seq 200); do
        [ "$(cat "$work/$name/metrics.jsonl" 2>/dev/null | wc -l)" -ge 2 ] && break
        sleep 0.05
    done
    look_around "$name"
}

# held NAME ARGS: a run in the background, up to where SICK_FLAG holds it.
held() {
    local name=$1
    shift
    # shellcheck disable=SC2086
    train "$work/$name" $steps "$@" >"$work/$name.out" 2>"$work/$name.err" &
    run=$!
    until [ -e "$SICK_FLAG" ]; do
        kill -0 "$run" 2>/dev/null || fail "$name ended before it was held: $(cat "$work/$name.err")"
        sleep 0.01
    done
    look_around "$name"
}

# look_around NAME: the pids of the program and of its Workhorses, by rank.
look_around() {
    local name=$1
    pid=$(pgrep -P "$run" | head -1)
    horses=$(pgrep -P "${pid:-$run}" | sort -n)
    [ "$(echo "$horses" | wc -w)" = 2 ] || fail "$name has no two Workhorses: $(cat "$work/$name.err")"
}

# hit SIGNAL: sends it to the last Workhorse.
hit() {
    kill "-$1" "$(echo "$horses" | tail -1)"
}

# gone: no process that `start` saw is left, nor their shared memory.
gone() {
    local p
    for _ in $(seq 40); do
        for p in $horses; do
            [ -e "/proc/$p" ] && break
        done
        [ -e "/proc/$p" ] || return 0
        sleep 0.1
    done
    fail "Workhorses are left of $horses"
}

# lost NAME PHASE: the run ends within 5 s of `before` and reports which Workhorse is
# lost, its phase, and where the ranks are.
lost() {
    local code=0
    wait "$run" || code=$?
    [ "$code" = 1 ] || fail "$1 ended with $code"
    awk -v a="$before" -v b="$EPOCHREALTIME" 'BEGIN { exit !(b - a < 5) }' ||
        fail "$1: it took more than 5 s to notice"
    grep -Eq "workhorse [01] \(rank [01], pid [0-9]+\): (no )?method .*in phase \"$2\".*rank 0 .*rank 1 " \
        "$work/$1.err" || fail "what was lost is not said: $(cat "$work/$1.err")"
    gone
}

for signal in KILL STOP; do
    start "hit$signal" --set trainer.total_training_steps=2000
    before=$EPOCHREALTIME
    hit "$signal"
    lost "hit$signal" '.*'
done

# A Workhorse dies between two calls, while the program scores the samples: the next
# call does not reach it and fails with the same message at once, without a wait for
# the other Workhorses.
export XRAY_PLUGIN_PATH=$XRAY_BUILD/tests/sick
for victim in 1 2; do
    SICK=reward-wait SICK_AT=70 SICK_FLAG=$work/idle$victim.flag held "idle$victim" --set reward.close.plugin=sick
    horse=$(echo "$horses" | sed -n "${victim}p")
    kill -KILL "$horse"
    until ! [ -e "/proc/$horse" ] || grep -q '^State:.*Z' "/proc/$horse/status"; do sleep 0.01; done
    before=$EPOCHREALTIME
    touch "$work/idle$victim.flag.go"
    lost "idle$victim" 'waiting for a call'
done

# The run itself is killed: its Workhorses end, too.
start orphan --set trainer.total_training_steps=2000
kill -9 "$pid"
wait "$run" || true
gone

# In the middle of a call: the run restarts from the last checkpoint by itself.
restart="--set trainer.total_training_steps=8 --set trainer.save_freq=3 --set run.max_restarts=1 --set run.infer=sick"
# shellcheck disable=SC2086
SICK=infer-wait SICK_AT=36 SICK_FLAG=$work/again.flag held again $restart
hit KILL
touch "$work/again.flag.go"
wait "$run" || fail "the run did not go on: $(cat "$work/again.err")"
grep -q 'restart 1 of 1 from .*/global_step_3' "$work/again.err" ||
    fail "nothing tells of the restart from step 3: $(cat "$work/again.err")"
# shellcheck disable=SC2086
train "$work/calm" $steps $restart >/dev/null
same_checkpoint "$work/calm/global_step_8" "$work/again/global_step_8"
diff <(steady "$work/calm/metrics.jsonl") <(steady "$work/again/metrics.jsonl") ||
    fail "metrics differ after a restart"
gone
echo "faults of ranks: ok"
