#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The launcher of runtime-ray, and runs whose Workhorses Ray starts, on a cluster of two
# nodes, both of them this host: they have the bits of local ranks; what is killed or
# stopped is named, nothing is left, and a run that restarts has the bits of one that
# was not harmed. With `all` more is harmed.
. "$(dirname "$0")/../rl/lib.sh"
. "$(dirname "$0")/lib.sh"
ray_needed
trap 'ray_down; rm -rf "$work"' EXIT
ray_up
ray_node --address="$ray_address" --num-cpus=1 --resources='{"third": 1}'
third=$(ray_raylets | grep -vxF "$ray_first" | grep -vxF "$ray_second")
"$XRAY_BUILD/tests/test-ray-cluster" "$ray_python" "$ray_address" "$third" "$work" || fail "the launcher"

make_task
sed -i "s/^\[run\]$/&\nthreads = 1/; s/^\[trainer\]$/&\nsave_freq = 1/" "$work/run.ini"
ray=(--set run.runtime=ray --set runtime.interface=lo --set runtime.silence=8s --set run.comm=tcp --set "runtime.ray.address=$ray_address"
    --set "runtime.ray.python=$ray_python")
four=(--set run.ranks=4 --set trainer.total_training_steps=2)
duo=(--set run.ranks=2 --set runtime.ray.placement=spread --set trainer.total_training_steps=30)

run() { # NAME [--set ...]
    train "$work/$1" "${@:2}" >"$work/out" 2>"$work/err" || fail "$1: $(cat "$work/err")"
}

# ---- the same bits ----

"$XRAY_BIN" check "$work/run.ini" "${ray[@]}" "${four[@]}" >"$work/out" 2>&1 || fail "check: $(cat "$work/out")"
if "$XRAY_BIN" check "$work/run.ini" "${ray[@]}" --set run.ranks=5 >"$work/out" 2>&1; then fail "check found nothing"; fi
grep -Eq 'runtime.ray: check: 5 places with 1 CPU \+ [0-9.]+ [GM]iB of memory are needed, and there is room for 4; the cluster has 2 nodes with 4 CPU' "$work/out" ||
    fail "check: $(cat "$work/out")"
run four --set run.runtime=local --set run.comm=tcp "${four[@]}"
run four-ray "${ray[@]}" "${four[@]}"
same_checkpoint "$work/four/global_step_2" "$work/four-ray/global_step_2"
diff <(steady "$work/four/metrics.jsonl") <(steady "$work/four-ray/metrics.jsonl") || fail "metrics differ"

# ---- faults ----

# The processes that Ray has started for the run, in the order of their start.
horses() {
    local pid
    for pid in $(pgrep -f "^$XRAY_BIN workhorse" | sort -n); do
        if grep -qsaz "^$ray_mark\$" "/proc/$pid/environ"; then echo "$pid"; fi
    done
}

no_horses() { # NAME
    for _ in $(seq 100); do
        [ -n "$(horses)" ] || return 0
        sleep 0.1
    done
    fail "$1: Workhorses are left: $(horses)"
}

again() { # NAME SENTENCE
    ends "$1" 0 "$2"
    grep -q "restart 1 of 1 from .*/global_step_" "$work/err" || fail "$1: nothing tells of the restart: $(cat "$work/err")"
    same_checkpoint "$work/calm/global_step_30" "$work/$1/global_step_30"
}

run calm --set run.runtime=local --set run.comm=tcp "${duo[@]}"
# The run itself.
begin driver "${duo[@]}"
kill -KILL "$pid"
{ wait "$pid" || true; } 2>/dev/null
no_horses driver
# A Workhorse, and later a node, of runs that go on.
begin child "${duo[@]}" --set run.max_restarts=1
kill -KILL "$(horses | tail -n 1)"
again child 'actor workhorse [01] on .*: .*was killed by signal 9 \(Killed\)'
begin node "${duo[@]}" --set run.max_restarts=1
# shellcheck disable=SC2046
kill -STOP $(horses) # or they may be done before they notice
kill -KILL "$ray_second"
again node 'actor workhorse [01] on .*'
[ "${1:-}" = all ] || { echo "ray.run: ok"; exit 0; }

# ---- nightly ----

ray_node --address="$ray_address" --num-cpus=2
# A Workhorse, stopped: the run's heartbeat notices it.
begin stopped "${duo[@]}"
kill -STOP "$(horses | tail -n 1)"
ends stopped 1 'actor workhorse [01] on .*: hangs: no sign of life for [0-9.]+ s'
# A launcher; its Workhorse dies with it.
begin launcher "${duo[@]}"
kill -KILL "$(ps -o ppid= -p "$(horses | tail -n 1)" | tr -d ' ')"
ends launcher 1 'actor workhorse [01] on .*: .*'
# A Workhorse, a launcher, a node and the bridge, in random order, each more than once.
parent_of() { ps -o ppid= -p "$1" | tr -d ' '; }
victim_of() { # KIND: a process that the run cannot do without
    local horse raylet
    for horse in $(horses | shuf); do
        case $1 in
        child) echo "$horse" ;;
        launcher) parent_of "$horse" ;;
        bridge) pgrep -P "$pid" ;;
        node)
            raylet=$(parent_of "$(parent_of "$horse")")
            [ "$raylet" != "$ray_first" ] || continue
            echo "$raylet"
            ;;
        esac
        return 0
    done
}
round=0
for kind in $(printf '%s\n' {child,launcher,node,bridge}{,,,,} | shuf); do
    round=$((round + 1))
    name=random-$round-$kind
    begin "$name" "${duo[@]}" --set run.max_restarts=1
    victim=$(victim_of "$kind")
    [ -n "$victim" ] || fail "$name: there is nothing to kill: $(cat "$work/err")"
    # shellcheck disable=SC2046
    [ "$kind" != node ] || kill -STOP $(horses)
    kill -KILL "$victim"
    again "$name" 'actor workhorse [01] on .*'
    [ "$kind" != node ] || ray_node --address="$ray_address" --num-cpus=2
done

# Ends the GCS, which knows the cluster; net.sh ends the whole node of the head.
begin head "${duo[@]}" --set trainer.total_training_steps=100000
# shellcheck disable=SC2046
kill -KILL $(ray_named gcs_server)
ends head 1 "actor workhorse [01] on .*: is gone: the bridge to Ray \(.*\) exited with status 1: the cluster's head is gone"
echo "ray.run: ok"
