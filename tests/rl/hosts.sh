#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Runs whose Workhorses are started for hosts, all of them this one: they have the
# bits of the local runtime, wherever models and engines are; a lost Workhorse is
# reported and replaced, and a canceled run ends in order. A runtime of a plugin, too.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/held.sh"
make_task
hosts=(--set run.runtime=hosts --set placement.hosts=localhost:4)
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
    run "$1-hosts" "${hosts[@]}" "${@:2}"
    same "$1" "$1-hosts"
}
both one
run one-apart --set run.runtime=apart
same one one-apart
both two --set run.ranks=2
# Weights are shipped to an engine, and a model is asked, on ranks of their own.
both engine --set run.ranks=2 --set placement.actor=0 --set placement.rollout=1
both reference --set run.ranks=2 --set placement.actor=0 --set placement.reference=1 --set algo.grpo.use_kl_loss=true
both critic --set run.ranks=3 --set placement.actor=0-1 --set placement.critic=1-2 --set run.algo=ppo
# A policy that is cut over four ranks, with engines of two.
both grid --set run.ranks=4 --set run.train=grid --set run.infer=grid --set actor.optim.lr=4 --set train.grid.tp=2 \
    --set train.grid.pp=2 --set infer.grid.tp=2

# Memory is planned for the host that needs the most.
planned() { # HOSTS: of the model on four ranks
    "$XRAY_BIN" plan "$work/run.ini" --set run.ranks=4 --set run.runtime=hosts --set run.comm=tcp \
        --set runtime.interface=lo --set "placement.hosts=$1" | awk '$1 == "all" { print $(NF - 1), $NF }'
}
four=$(planned a:4)
[ -n "$four" ] && [ "$(planned localhost:4)" = "$four" ] || fail "a host of four ranks has $four, or $(planned localhost:4)"
awk -v four="$four" -v three="$(planned a,b:3)" -v two="$(planned a:2,b:2)" 'BEGIN {
    split(four, f); split(three, h); split(two, w)
    exit !(f[2] == w[2] && f[2] == h[2] && f[1] > h[1] && h[1] > w[1]) }' ||
    fail "planned: $four on four ranks, $(planned a,b:3) on three, $(planned a:2,b:2) on two"

# With threads = 0 the ranks of the fullest host share its cores.
cores=$(getconf _NPROCESSORS_ONLN)
threads() { # THREADS: the memory of three ranks, of which a host has two
    "$XRAY_BIN" plan "$work/run.ini" --set run.ranks=3 --set run.runtime=hosts --set run.comm=tcp --set runtime.interface=lo \
        --set placement.hosts=a:2,b --set "run.threads=$1" | awk '$1 == "all" { print $(NF - 1), $NF }'
}
[ "$(threads 0)" = "$(threads $((cores > 2 ? cores / 2 : 1)))" ] || fail "threads: the ranks plan $(threads 0)"
[ "$(threads 1)" != "$(threads 2)" ] || fail "threads make no difference"

# A run goes on under the other runtime.
more=(--set run.ranks=2 --set trainer.total_training_steps=5)
run two "${hosts[@]}" "${more[@]}"
run two-hosts --set run.runtime=local "${more[@]}"
same two two-hosts

# ---- faults ----

duo=("${hosts[@]}" --set run.ranks=2 --set run.infer=sick --set run.train=sick)
export SICK_FLAG=$work/flag

# The other rank waits for the one that is held, so a call runs on both. What the
# parent knows of the ranks may be half a second old.
held killed train-hold 2
sleep 1
lost killed "was killed by signal 9 \(Killed\)" localhost 5 hit KILL
held stopped train-hold 2
sleep 1
lost stopped "hangs: no sign of life for 3\.[0-9] s, its process is stopped \(killed\)" localhost 5 hit STOP

# The limit of silence holds with the built-in runtime, too.
held quiet train-hold 2 --set run.runtime=local --set placement.hosts= --set runtime.silence=2s
hit STOP
ended quiet 1
grep -Eq 'actor workhorse 1 \(rank 1, pid [0-9]+\): .*hangs: no sign of life for 2\.[0-9] s, its process is stopped \(killed\)' \
    "$work/err" || fail "quiet: what was lost is not said: $(cat "$work/err")"

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
echo "rl.hosts: ok"
