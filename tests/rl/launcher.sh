#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Runs whose Workhorses an engine starts, by a launcher whose engine is this host: they
# have the bits of the local runtime; what the engine refuses and whom it loses is said,
# and a run goes on after a loss.
. "$(dirname "$0")/lib.sh"
make_task
export XRAY_PLUGIN_PATH=$XRAY_BUILD/tests/fakes
sed -i "s/^\[run\]$/&\nthreads = 1/; s/^\[trainer\]$/&\ntest_freq = 2\nsave_freq = 2/" "$work/run.ini"
four=(--set run.ranks=4 --set run.comm=tcp --set trainer.total_training_steps=3)
fake=(--set run.runtime=fake --set runtime.interface=lo --set "runtime.fake.notes=$work/notes")

run() { # NAME [--set ...]
    local name=$1
    shift
    train "$work/$name" "$@" >"$work/out" 2>"$work/err" || fail "$name: $(cat "$work/err")"
}

refused() { # SENTENCE [--set ...]: the run ends with it
    if train "$work/refused" "${four[@]}" "${fake[@]}" "${@:2}" >"$work/out" 2>"$work/err"; then fail "$1: the run was not refused"; fi
    grep -qF -- "$1" "$work/err" || fail "expected: $1; got: $(cat "$work/err")"
}

run local "${four[@]}" --set run.runtime=local
run fake "${four[@]}" "${fake[@]}"
same_checkpoint "$work/local/global_step_3" "$work/fake/global_step_3"
diff <(steady "$work/local/metrics.jsonl") <(steady "$work/fake/metrics.jsonl") || fail "metrics differ"
grep -q "^create $work/run.ini build $("$XRAY_BIN" --build)$" "$work/notes" || fail "the set-up was another: $(cat "$work/notes")"
grep -q "^place 3 actor+rollout devices 0 threads 1 memory known$" "$work/notes" || fail "places: $(cat "$work/notes")"
grep -q "^path $work/task/model$" "$work/notes" || fail "paths: $(cat "$work/notes")"

# ---- what is refused ----

refused 'runtime.fake: create: there are no places of this size' --set runtime.fake.fault=places
refused 'actor workhorse 0 on fake1: its engine did not start it: runtime.fake: start: Operation not permitted' --set runtime.fake.fault=start
refused 'runtime.fake: the host of rank 0, "fake host 1", is not the name of a host' --set runtime.fake.fault=name
refused '[run] comm: shm serves the ranks of one host only, and [run] runtime = fake chooses the hosts' --set run.comm=shm
refused '[placement] hosts: with [run] runtime = fake the engine chooses the hosts; leave the key out' --set placement.hosts=a:4
refused '[run] runtime: fake needs [runtime] interface, on which its Workhorses reach this host' --set runtime.interface=
refused '[runtime] tls: the collectives of [run] comm = tcp between the hosts of [placement] actor are not encrypted' --set runtime.tls=true

check() { "$XRAY_BIN" check "$work/run.ini" "${four[@]}" "${fake[@]}" "$@" >"$work/out" 2>&1; }
check || fail "check: $(cat "$work/out")"
if check --set runtime.fake.fault=check; then fail "check found nothing"; fi
grep -qF -- '--set: [run] runtime: runtime.fake: check: the engine has 1 of 2 nodes, and no accelerators' "$work/out" || fail "check: $(cat "$work/out")"
if check --set runtime.fake.fault=key; then fail "check found no key"; fi
grep -qF 'run.ini: [runtime.fake] per_host: the hosts are smaller' "$work/out" || fail "check: $(cat "$work/out")"
check --elsewhere --set runtime.fake.fault=check || fail "check --elsewhere: $(cat "$work/out")"

code=0
"$XRAY_BIN" submit "$work/run.ini" "${fake[@]}" --set run.seed=3 >"$work/out" 2>"$work/err" || code=$?
[ "$code" = 7 ] || fail "submit ended with $code: $(cat "$work/err")"
grep -qE '^job: train .*run.ini --set run.runtime=fake .* --set run.seed=3$' "$work/out" || fail "submit: $(cat "$work/out")"
for try in fake:'runtime.fake: submit: the engine takes no jobs' job:'[run] runtime: job takes no jobs' local:'[run] runtime: local is no engine that takes jobs'; do
    if "$XRAY_BIN" submit "$work/run.ini" --set "run.runtime=${try%%:*}" --set runtime.interface=lo --set runtime.fake.fault=submit \
        >"$work/out" 2>"$work/err"; then fail "submit by ${try%%:*} was not refused"; fi
    grep -qF "${try#*:}" "$work/err" || fail "submit by ${try%%:*}: $(cat "$work/err")"
done

# ---- signals and losses ----

# The first signal ends the wait for places.
env --default-signal=INT "$XRAY_BIN" train "$work/run.ini" --set "trainer.default_local_dir=$work/wait" "${four[@]}" "${fake[@]}" \
    --set runtime.fake.fault=wait >"$work/out" 2>"$work/err" &
pid=$!
until grep -q "waiting for places" "$work/err"; do
    kill -0 "$pid" 2>/dev/null || fail "the run did not wait: $(cat "$work/err")"
    sleep 0.01
done
kill -INT "$pid"
code=0
wait "$pid" || code=$?
[ "$code" = 130 ] || fail "the wait ended with $code: $(cat "$work/err")"
grep -q "^xray: stopped at once" "$work/err" || fail "nothing tells of the end: $(cat "$work/err")"

# A Workhorse that is killed is named, with its host, and a run that restarts has
# the bits of one that was not harmed.
long=(--set run.ranks=2 --set run.comm=tcp --set runtime.fake.per_host=1 --set trainer.total_training_steps=8 --set trainer.save_freq=1
    --set trainer.test_freq=8)
harm() { # NAME CODE [--set ...]
    local name=$1 want=$2 code=0 pid
    "$XRAY_BIN" train "$work/run.ini" --set "trainer.default_local_dir=$work/$name" "${long[@]}" "${fake[@]}" "${@:3}" \
        >"$work/out" 2>"$work/err" &
    pid=$!
    until [ -d "$work/$name/global_step_2" ]; do
        kill -0 "$pid" 2>/dev/null || fail "$name ended early: $(cat "$work/err")"
        sleep 0.01
    done
    kill -KILL "$(pgrep -P "$pid" | sort -n | tail -1)"
    wait "$pid" || code=$?
    [ "$code" = "$want" ] || fail "$name ended with $code: $(cat "$work/err")"
    grep -Eq 'actor workhorse 1 on fake2 \(rank 1\): .*was killed by signal 9 \(Killed\)' "$work/err" || fail "$name: $(cat "$work/err")"
}
harm lost 1
harm again 0 --set run.max_restarts=1
[ "$(grep -cx 'restarts 1' "$work/notes")" = 1 ] || fail "the launcher is not told of the restart: $(cat "$work/notes")"
grep -q 'restart 1 of 1 from .*/global_step_' "$work/err" || fail "nothing tells of the restart: $(cat "$work/err")"
run calm "${long[@]}" --set run.runtime=local
same_checkpoint "$work/calm/global_step_8" "$work/again/global_step_8"

# ---- a job whose processes have one command line ----

export FAKE_JOB=$work/job
mkdir "$FAKE_JOB"
job=(--set run.ranks=3 --set run.comm=tcp --set run.runtime=job --set runtime.interface=lo --set trainer.total_training_steps=3)
pids=()
for rank in 1 2; do
    FAKE_RANK=$rank train "$work/job-$rank" "${job[@]}" >"$work/out-$rank" 2>&1 &
    pids+=($!)
done
FAKE_RANK=0 run job-0 "${job[@]}"
for rank in 1 2; do
    wait "${pids[rank - 1]}" || fail "rank $rank failed: $(cat "$work/out-$rank")"
    [ ! -s "$work/out-$rank" ] || fail "rank $rank says: $(cat "$work/out-$rank")"
    [ ! -e "$work/job-$rank" ] || fail "rank $rank made its folder"
done
run three --set run.ranks=3 --set trainer.total_training_steps=3 --set run.comm=tcp
same_checkpoint "$work/three/global_step_3" "$work/job-0/global_step_3"
if train "$work/none" "${job[@]}" >"$work/out" 2>"$work/err"; then fail "a process of no job ran"; fi
grep -q 'xray: runtime.job: enter: no job runs this process' "$work/err" || fail "no job: $(cat "$work/err")"
echo "rl.launcher: ok"
