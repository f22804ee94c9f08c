#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Proves that Workhorses need no shared memory: under a runtime that sends copies
# over sockets, runs have the bits of the built-in runtime, wherever models and
# engines are; a lost Workhorse is reported and replaced, and a canceled run ends in
# order.
. "$(dirname "$0")/../rl/lib.sh"
make_task
export XRAY_PLUGIN_PATH=$XRAY_BUILD/tests/fakes:$XRAY_BUILD/tests/sick
sed -i "s/^\[run\]$/&\nthreads = 1/; s/^\[trainer\]$/&\ntest_freq = 2\nsave_freq = 2/" "$work/run.ini"

run() { # NAME [--set ...]
    local name=$1
    shift
    train "$work/$name" --set trainer.total_training_steps=3 --set "trainer.rollout_data_dir=$work/$name/rollout" "$@" \
        >/dev/null 2>"$work/err" || fail "$name: $(cat "$work/err")"
}

same() { # FOLDER FOLDER: checkpoints, samples, and metrics with those of validation
    diff -r "$work/$1" "$work/$2" -x metrics.jsonl -x history.json -x run.ini -x manifest.json -x .lock || fail "$2: other files than $1"
    diff <(steady "$work/$1/metrics.jsonl") <(steady "$work/$2/metrics.jsonl") || fail "$2: other metrics than $1"
}

# Expects the bits of the built-in runtime.
both() { # NAME [--set ...]
    run "$1" --set run.runtime=local "${@:2}"
    run "$1-apart" --set run.runtime=apart "${@:2}"
    same "$1" "$1-apart"
}
both one
both two --set run.ranks=2
# Weights are shipped to an engine, and a model is asked, on ranks of their own.
both engine --set run.ranks=2 --set placement.actor=0 --set placement.rollout=1
both reference --set run.ranks=2 --set placement.actor=0 --set placement.reference=1 --set algo.grpo.use_kl_loss=true
both critic --set run.ranks=3 --set placement.actor=0-1 --set placement.critic=1-2 --set run.algo=ppo
# A policy that is cut over four ranks, with engines of two.
both grid --set run.ranks=4 --set run.train=grid --set run.infer=grid --set actor.optim.lr=4 --set train.grid.tp=2 \
    --set train.grid.pp=2 --set infer.grid.tp=2

# A run goes on under the other runtime.
more=(--set run.ranks=2 --set trainer.total_training_steps=5)
run two --set run.runtime=apart "${more[@]}"
run two-apart --set run.runtime=local "${more[@]}"
same two two-apart

# ---- faults ----

duo=(--set run.runtime=apart --set run.ranks=2 --set run.infer=sick --set run.train=sick)
export SICK_FLAG=$work/flag

# held NAME FAULT CALL [--set ...]: a run in the background, up to the call in which
# the fault holds one of its ranks. `env` becomes the program, so that `pid` is its
# own; and a shell ignores SIGINT for what runs in the background.
held() {
    local name=$1
    rm -f "$SICK_FLAG"*
    SICK=$2 SICK_AT=$3 env --default-signal=INT "$XRAY_BIN" train "$work/run.ini" \
        --set "trainer.default_local_dir=$work/$name" "${duo[@]}" "${@:4}" >"$work/out" 2>"$work/err" &
    pid=$!
    until [ -e "$SICK_FLAG" ]; do
        kill -0 "$pid" 2>/dev/null || fail "$name ended before it was held: $(cat "$work/err")"
        sleep 0.01
    done
    horses=$(pgrep -P "$pid" | sort -n)
    [ "$(wc -w <<<"$horses")" = 2 ] || fail "$name has no two Workhorses: $(cat "$work/err")"
}

hit() { kill "-$1" "$(tail -1 <<<"$horses")"; } # the last Workhorse

ended() { # NAME CODE
    local code=0
    { wait "$pid" || code=$?; } 2>/dev/null
    [ "$code" = "$2" ] || fail "$1 ended with $code: $(cat "$work/err")"
    gone
}

# No process of the run is left.
gone() {
    local horse
    for horse in $horses; do
        for _ in $(seq 40); do
            [ -e "/proc/$horse" ] || continue 2
            sleep 0.1
        done
        fail "Workhorses are left of $horses"
    done
}

# lost NAME SIGNAL REASON: it is said within 5 s which Workhorse is lost, why, in
# which phase, and in which collective the ranks are or were.
lost() {
    local before=$EPOCHREALTIME
    hit "$2"
    ended "$1" 1
    awk -v a="$before" -v b="$EPOCHREALTIME" 'BEGIN { exit !(b - a < 5) }' || fail "$1: it took more than 5 s to notice"
    local rank='(left|waits in) [a-z_]+ of [0-9]+ bytes'
    grep -Eq "actor workhorse 1 \(rank 1, pid [0-9]+\): method [a-z_]+: $3, in phase \".*\" \(rank 0 $rank, rank 1 $rank\)" \
        "$work/err" ||
        fail "$1: what was lost is not said: $(cat "$work/err")"
}
# The other rank waits for the one that is held, so a call runs on both. What the
# parent knows of the ranks may be half a second old.
held killed train-hold 2
sleep 1
lost killed KILL "was killed by signal 9 \(Killed\)"
held stopped train-hold 2
sleep 1
lost stopped STOP "hangs: no sign of life for 3\.[0-9] s, its process is stopped \(killed\)"

held orphan infer-wait 12
{
    kill -KILL "$pid"
    wait "$pid" || true
} 2>/dev/null
gone

# A run that restarts goes on from its checkpoint.
again=(--set trainer.total_training_steps=5 --set run.max_restarts=1)
held again infer-wait 30 "${again[@]}"
hit KILL
touch "$SICK_FLAG.go"
ended again 0
grep -q 'restart 1 of 1 from .*/global_step_' "$work/err" || fail "nothing tells of the restart: $(cat "$work/err")"
SICK='' run calm "${duo[@]}" "${again[@]}"
same_checkpoint "$work/calm/global_step_5" "$work/again/global_step_5"
diff <(steady "$work/calm/metrics.jsonl") <(steady "$work/again/metrics.jsonl") || fail "metrics differ after a restart"

# The second signal ends a call that takes a minute, and every process in order.
for fault in infer-hold train-hold; do
    held "$fault" "$fault" 2
    kill -INT "$pid"
    until grep -q "a second signal stops" "$work/err" || ! kill -0 "$pid" 2>/dev/null; do sleep 0.01; done
    kill -INT "$pid"
    ended "$fault" 130
    [ -e "$SICK_FLAG.canceled" ] || fail "$fault: the call was not canceled: $(cat "$work/err")"
    if grep -vE "^xray: (stopping after|stopped at once; no checkpoint)|^step |^xray: actor|^resumed|rows left out" "$work/err"; then
        fail "$fault: more was said: $(cat "$work/err")"
    fi
done
echo "fakes.apart: ok"
