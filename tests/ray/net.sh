#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Runs on a cluster of Ray of two hosts, which are network namespaces with cables to a
# bridge: they have the checkpoint of local ranks bit for bit, ranks are in the order of
# addresses, `xray check` names what a host lacks, and a cable that is cut or a head that
# dies ends the run with a sentence. Needs root, namespaces and Ray.
set -euo pipefail
. "$(dirname "$0")/../rl/namespaces.sh"
enter_net "nsenter" "$@"
# The head is in the middle, so that a host may have a lower address and a higher one.
make_host low 1
make_host head 2
make_host high 3

. "$(dirname "$0")/../rl/lib.sh"
. "$(dirname "$0")/lib.sh"
ray_needed
trap 'ray_down; rm -rf "$work"' EXIT
# A host has a name and mounts of its own. `ip netns exec` would hide the memory limits
# that Ray reads.
ray_host=head
ray_on=on_host
export RAY_health_check_timeout_ms=1000 # or a cable would be noticed after a minute
on_host() {
    # shellcheck disable=SC2016
    nsenter "--net=/run/netns/$ray_host" unshare --mount --uts sh -c 'hostname "$0" && exec "$@"' "${ray_name:-$ray_host}" "$@"
}
ray_driver=on_head
on_head() { nsenter --net=/run/netns/head "$@"; }
join() { # HOST ADDRESS [NAME]: another host becomes a node of the cluster
    ray_host=$1 ray_name=${3:-} ray_node --address="$ray_address" --node-ip-address="$2" --num-cpus=2
    raylet=$(ray_raylets | grep -vxF "$ray_first" | tail -n 1)
}
# Lists the processes of Ray on a host, and those that it has started there.
of_host() { # HOST
    local pid net
    net=$(stat -Lc %i "/run/netns/$1")
    for pid in $(ray_processes); do
        [ "$(stat -Lc %i "/proc/$pid/ns/net" 2>/dev/null)" != "$net" ] || echo "$pid"
    done
}
leave() { # HOST
    # shellcheck disable=SC2046
    kill -KILL $(of_host "$1") 2>/dev/null || true
}

make_task
sed -i "s/^\[run\]$/&\nthreads = 1/; s/^\[trainer\]$/&\nsave_freq = 1/" "$work/run.ini"
ray_head() {
    ray_tmp=$(mktemp -d /tmp/xray-ray-XXXXXX)
    port=$(ray_free_port)
    ray_node --head --port="$port" --node-ip-address=10.77.0.2 --num-cpus=2 --temp-dir="$ray_tmp" --include-dashboard=false
    ray_address=10.77.0.2:$port
    ray_first=$(ray_raylets)
    ray=(--set run.runtime=ray --set runtime.interface=eth0 --set run.comm=tcp
        --set "runtime.ray.address=$ray_address" --set "runtime.ray.python=$ray_python")
}
ray_head
join high 10.77.0.3
four=(--set run.ranks=4 --set trainer.total_training_steps=2)
duo=(--set run.ranks=2 --set runtime.ray.placement=spread --set trainer.total_training_steps=60)

# The Workhorses of a host.
horses() { # HOST
    local pid
    for pid in $(of_host "$1"); do
        [ "$(cat "/proc/$pid/comm" 2>/dev/null)" != xray ] || echo "$pid"
    done
}
no_horses() { # NAME
    for _ in $(seq 200); do
        [ -n "$(horses low; horses head; horses high)" ] || return 0
        sleep 0.1
    done
    fail "$1: Workhorses are left: $(horses low; horses head; horses high)"
}

# ---- the same bits, in the order of addresses ----

train "$work/local" --set run.runtime=local --set run.comm=tcp "${four[@]}" >/dev/null 2>&1
run_four() { # NAME
    on_head "$XRAY_BIN" train "$work/run.ini" --set "trainer.default_local_dir=$work/$1" "${ray[@]}" "${four[@]}" \
        --set trainer.logger=console,jsonl >"$work/out" 2>"$work/err" || fail "$1: $(cat "$work/err")"
    same_checkpoint "$work/local/global_step_2" "$work/$1/global_step_2"
    no_horses "$1"
}
run_four hosts

said() { # NAME SECONDS SENTENCE
    local until=$((SECONDS + $2))
    until grep -Eq "$3" "$work/err"; do
        [ "$SECONDS" -le "$until" ] || fail "$1: not within $2 s: $3; said is: $(cat "$work/err")"
        sleep 0.1
    done
}
# hurt NAME HOST RANKS: a Workhorse there is killed, and named with its host.
hurt() {
    begin "$1" "${four[@]}" --set trainer.total_training_steps=1000
    kill -KILL "$(horses "$2" | tail -n 1)"
    ends "$1" 1 "actor workhorse $3 on $2 \(rank $3\): .*was killed by signal 9 \(Killed\)"
}
hurt named high '[23]'

# ---- what a host lacks ----

check() { on_head "$XRAY_BIN" check "$work/run.ini" "${ray[@]}" "${four[@]}" >"$work/out" 2>&1; }
check || fail "check: $(cat "$work/out")"
printf '#!/bin/sh\necho another build\n' >"$work/other"
chmod +x "$work/other"
mkdir "$work/none"
nsenter -t "$raylet" --mount mount --bind "$work/other" "$XRAY_BIN"
nsenter -t "$raylet" --mount mount --bind "$work/none" "$work/task/model"
nsenter -t "$raylet" --mount mount --bind "$work/none" "$work/task"
if check; then fail "check found nothing: $(cat "$work/out")"; fi
for sentence in "node 10.77.0.3 has another build of $XRAY_BIN: another build, while this one is" \
    "node 10.77.0.3 does not see $work/task/model" "node 10.77.0.3 does not see $work/task/short.jsonl"; do
    grep -qF "$sentence" "$work/out" || fail "check: expected $sentence; got: $(cat "$work/out")"
done
! grep -qF 'node 10.77.0.2 ' "$work/out" || fail "check: $(cat "$work/out")"
leave high

# ---- a host with a lower address, whose ranks come first, and with the head's name ----

join low 10.77.0.1
run_four lower
hurt first low '[01]'
leave low
join low 10.77.0.1 head
begin same "${four[@]}" --set trainer.total_training_steps=1000
kill -KILL "$(horses low | tail -n 1)"
ends same 1 'actor workhorse [01] on 10.77.0.1 \(rank [01]\): .*was killed by signal 9 \(Killed\)'
leave low

# ---- a cable ----

silent='hangs: no sign of life for 3\.[0-9] s, its host or the network to it may be down \(killed\)'
join high 10.77.0.3
begin cut "${duo[@]}" --set trainer.total_training_steps=100000
before=$EPOCHREALTIME
ip link set to-high down
said cut 60 "$silent"
# The silence, and 5 s.
awk -v a="$before" -v b="$EPOCHREALTIME" 'BEGIN { exit !(b - a < 8) }' || fail "cut: it took more than 8 s to say"
ends cut 1 "actor workhorse 1 on high \(rank 1\): (method [a-z_]+|no method ran): $silent"
link_up() {
    ip link set to-high up
    # The hosts find each other again once they have asked for their addresses.
    local said
    for _ in $(seq 100); do
        # Nobody listens there, so this is refused as soon as there is a way.
        said=$(LC_ALL=C nsenter --net=/run/netns/high bash -c 'exec 3<>/dev/tcp/10.77.0.2/9' 2>&1 || true)
        [[ $said != *refused* ]] || return 0
        sleep 0.1
    done
    fail "the hosts do not find each other again"
}
# Where Ray has given a host up for dead, its raylet ends with all that it has started as
# soon as it is told.
given_up() { # HOST PROGRAM: nothing that the run has started is left, nor the program
    local pid left
    for _ in $(seq 600); do
        left=
        for pid in $(of_host "$1"); do
            { ! grep -qsxE "xray|$2" "/proc/$pid/comm" && ! grep -qsa '^ray::Launcher' "/proc/$pid/cmdline"; } || left+=" $pid"
        done
        [ -n "$left" ] || break
        sleep 0.1
    done
    [ -z "$left" ] || fail "$1: processes are left: $left"
    leave "$1"
}
link_up
given_up high xray # Ray itself may not have noticed

# With restarts the run waits for its places, until somebody starts another raylet.
train "$work/calm" --set run.runtime=local --set run.comm=tcp "${four[@]}" --set trainer.total_training_steps=30 >/dev/null 2>&1
join high 10.77.0.3
begin resumed "${four[@]}" --set trainer.total_training_steps=30 --set run.max_restarts=1
ip link set to-high down
said resumed 60 "$silent.*; restart 1 of 1 from"
said resumed 120 'waiting for Ray: 4 places with 1 CPU.*room for 2; the cluster has 1 node with 2 CPU'
link_up
given_up high raylet
join high 10.77.0.3
ends resumed 0 'waiting for Ray: 4 places with 1 CPU'
same_checkpoint "$work/calm/global_step_30" "$work/resumed/global_step_30"

# ---- the head ----

# Its whole node; run.sh ends what knows the cluster alone.
begin head "${duo[@]}" --set trainer.total_training_steps=100000
for at in $(of_host head); do
    ! grep -qsxE 'gcs_server|raylet' "/proc/$at/comm" || kill -KILL "$at"
done
ends head 1 'actor workhorse 0 on head .*is gone: its node 10.77.0.2 died'
echo "ray.net: ok"
