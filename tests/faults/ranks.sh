#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# A Workhorse that is killed or stopped: the run says which, in which phase and
# collective, within seconds; nothing of it is left; with [run] max_restarts it
# goes on by itself and ends with the bits of an undisturbed run.
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
    pid=$(pgrep -P "$run" | head -1)
    horses=$(pgrep -P "${pid:-$run}" | sort -n)
    [ "$(echo "$horses" | wc -w)" = 2 ] || fail "$name has no two Workhorses: $(cat "$work/$name.err")"
}

# hit SIGNAL: the last Workhorse.
hit() {
    kill "-$1" "$(echo "$horses" | tail -1)"
}

# gone: no process that `start` saw is there any more, and no memory of theirs.
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

for signal in KILL STOP; do
    start "hit$signal" --set trainer.total_training_steps=2000
    hit "$signal"
    before=$EPOCHREALTIME
    code=0
    wait "$run" || code=$?
    [ "$code" = 1 ] || fail "the run ended with $code after $signal"
    awk -v a="$before" -v b="$EPOCHREALTIME" 'BEGIN { exit !(b - a < 5) }' ||
        fail "it took more than 5 s to notice $signal"
    grep -Eq 'workhorse [01] \(rank [01], pid [0-9]+\): method .*in phase ".*".*rank 0 .*rank 1 ' \
        "$work/hit$signal.err" || fail "what was lost is not said: $(cat "$work/hit$signal.err")"
    gone
done

# The run itself is killed: its Workhorses end, too.
start orphan --set trainer.total_training_steps=2000
kill -9 "$pid"
wait "$run" || true
gone

start again --set trainer.total_training_steps=600 --set trainer.save_freq=50 --set run.max_restarts=1
hit KILL
wait "$run" || fail "the run did not go on: $(cat "$work/again.err")"
grep -q 'restart 1 of 1 from' "$work/again.err" || fail "nothing tells of the restart"
# shellcheck disable=SC2086
train "$work/calm" $steps --set trainer.total_training_steps=600 --set trainer.save_freq=50 >/dev/null
same_checkpoint "$work/calm/global_step_600" "$work/again/global_step_600"
diff <(steady "$work/calm/metrics.jsonl") <(steady "$work/again/metrics.jsonl") ||
    fail "metrics differ after a restart"
gone
echo "faults of ranks: ok"
