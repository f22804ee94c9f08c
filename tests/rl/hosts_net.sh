#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Runs on two hosts, which are network namespaces with cables to a bridge: they have
# the checkpoints of local ranks bit for bit, also over a slow network that loses what
# is sent, and whatever goes wrong is named in time, leaves nothing running, and does no
# harm to a run that goes on. Needs root and namespaces. With `all` every backend and
# every fault.
set -euo pipefail
. "$(dirname "$0")/namespaces.sh"
enter_net "" "$@"
ip addr add 10.77.0.1/24 dev br0
make_host a 2
make_host b 3

. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/held.sh"
make_task
export XRAY_PLUGIN_PATH=$XRAY_BUILD/tests/fakes:$XRAY_BUILD/tests/sick
sed -i -E 's/("vocab_size"): *[0-9]+/\1: 128/' "$work/task/model/config.json" # megatron cuts it
sed -i "s/^\[run\]$/&\nthreads = 1/; s/^\[trainer\]$/&\nsave_freq = 2/" "$work/run.ini"
# Every process of a host has this in its environment.
mark=XRAY_HOSTS_TEST=$$
horse="ip netns exec {host} env $mark $XRAY_BIN workhorse {address}"

hosts() { # HOSTS [LAUNCH]
    net=(--set run.runtime=hosts --set runtime.interface=br0 --set "placement.hosts=$1" --set run.comm=tcp
        --set "runtime.hosts.launch=${2:-$horse}")
}

run() { # NAME [--set ...]
    train "$work/$1" "${@:2}" >/dev/null 2>"$work/err" || fail "$1: $(cat "$work/err")"
}

# No process of any host is left.
nothing_left() {
    local left
    for _ in $(seq 80); do
        left=$(grep -lsa "$mark" /proc/[0-9]*/environ || true)
        [ -n "$left" ] || return 0
        sleep 0.1
    done
    fail "$1: processes are left: $left"
}

# ---- the same bits ----

hosts a:2,b:2
four() { # NAME [--set ...]
    run "$1" --set run.ranks=4 --set trainer.total_training_steps=2 --set run.runtime=local "${@:2}"
    run "$1-hosts" --set run.ranks=4 --set trainer.total_training_steps=2 "${net[@]}" "${@:2}"
    same_checkpoint "$work/$1/global_step_2" "$work/$1-hosts/global_step_2"
    nothing_left "$1"
}
four zero3 --set run.train=zero3
# Two ranks share the memory of the run, and two have copies.
hosts localhost:2,b:2
four mixed --set run.train=zero3
! grep -q 'regions are copied' "$work/err" || fail "mixed: $(cat "$work/err")"
# Over TLS, where no collective goes from host to host.
hosts localhost:1,b:1
apart=(--set run.ranks=2 --set placement.actor=0 --set placement.rollout=1 --set trainer.total_training_steps=2)
run apart "${apart[@]}" --set run.runtime=local
if "$XRAY_BIN" check "$work/run.ini" "${net[@]}" "${apart[@]}" --set runtime.tls=true >/dev/null 2>"$work/err"; then
    run tls "${net[@]}" "${apart[@]}" --set runtime.tls=true
    same_checkpoint "$work/apart/global_step_2" "$work/tls/global_step_2"
    # The library is missing on the other host.
    mkdir "$work/none"
    touch "$work/none/libgnutls.so.30" "$work/none/libgnutls.so"
    hosts localhost:1,b:1 "ip netns exec {host} env LD_LIBRARY_PATH=$work/none $mark $XRAY_BIN workhorse {address}"
    if train "$work/other" "${net[@]}" "${apart[@]}" --set runtime.tls=true >/dev/null 2>"$work/err"; then
        fail "a host without the library is not refused"
    fi
    grep -qF "[runtime] tls is true, but this host has no GnuTLS of version 3.6.5 or later; install libgnutls30" "$work/err" ||
        fail "no library on the other host: $(cat "$work/err")"
else
    grep -qF "this host has no GnuTLS" "$work/err" || fail "TLS is refused: $(cat "$work/err")"
    echo "skipped: a run over TLS: this host has no GnuTLS"
fi
nothing_left tls
hosts a:2,b:2
if [ "${1:-}" = all ]; then
    four stage3 --set run.train=zero3 --set train.zero3.stage=3
    four megatron --set run.train=megatron --set train.megatron.tensor_model_parallel_size=2
fi

# ---- faults ----

hosts a:1,b:1
duo=("${net[@]}" --set run.ranks=2 --set run.infer=sick --set run.train=sick)
export SICK_FLAG=$work/flag
silent='hangs: no sign of life for 3\.[0-9] s, its host or the network to it may be down \(killed\)'
link() { # up, down
    ip link set to-b "$1"
    [ "$1" = up ] || return 0
    # The hosts find each other again once they have asked for their addresses.
    local said
    for _ in $(seq 100); do
        # Nobody listens there, so this is refused as soon as there is a way.
        said=$(LC_ALL=C ip netns exec b bash -c 'exec 3<>/dev/tcp/10.77.0.2/9' 2>&1 || true)
        [[ $said != *refused* ]] || return 0
        sleep 0.1
    done
    fail "the hosts do not find each other again"
}

held down train-hold 2
sleep 1
lost down "$silent" b 8 link down
link up
nothing_left down

# A run whose host was lost goes on with the bits of one that was not.
calm() { SICK='' run "$1" "${duo[@]}" --set trainer.total_training_steps=4; }
calm whole
held resumed infer-wait 24 --set trainer.total_training_steps=4
[ -e "$work/resumed/global_step_2" ] || fail "resumed: there is no checkpoint yet"
link down
ended resumed 1
link up
calm resumed
same_checkpoint "$work/whole/global_step_4" "$work/resumed/global_step_4"
nothing_left resumed

# ---- a slow network that loses what is sent ----

sent_again() { ip netns exec "$1" awk '/^Tcp: [0-9]/ { print $13 }' /proc/net/snmp; }
if make_far_host c 4 7 8 3 20; then
    hosts a:2,c:2
    far() { # NAME [--set ...]: the checkpoint is that of NAME on local ranks
        run "$1-far" --set run.ranks=4 --set trainer.total_training_steps=2 "${net[@]}" "${@:2}"
        same_checkpoint "$work/$1/global_step_2" "$work/$1-far/global_step_2"
        nothing_left "$1-far"
    }
    far zero3 --set run.train=zero3
    [ "$(sent_again c)" -gt 0 ] || fail "the cable lost nothing"
    if [ "${1:-}" = all ]; then
        far megatron --set run.train=megatron --set train.megatron.tensor_model_parallel_size=2
    fi
    # Both ends still seem to be connected.
    hosts a:1,c:1
    duo=("${net[@]}" --set run.ranks=2 --set run.infer=sick --set run.train=sick)
    held quiet train-hold 2
    sleep 1
    lost quiet "$silent" c 8 kill -USR1 "$cable"
    nothing_left quiet
    hosts a:1,b:1
    duo=("${net[@]}" --set run.ranks=2 --set run.infer=sick --set run.train=sick)
else
    echo "skipped: a slow network that loses what is sent"
fi

if [ "${1:-}" != all ]; then
    echo "rl.hosts_net: ok"
    exit 0
fi

held killed train-hold 2
sleep 1
lost killed "was killed by signal 9 \(Killed\)" b 5 hit KILL
nothing_left killed
held stopped train-hold 2
sleep 1
lost stopped "hangs: no sign of life for 3\.[0-9] s, its process is stopped \(killed\)" b 8 hit STOP
nothing_left stopped

# Half a cable: what the host sends is lost, and what is sent to it arrives.
held half train-hold 2
sleep 1
lost half "$silent" b 8 ip -n b route add blackhole 10.77.0.1
nothing_left half
ip -n b route del blackhole 10.77.0.1

held orphan infer-wait 12
{
    kill -KILL "$pid"
    wait "$pid" || true
} 2>/dev/null
nothing_left orphan

# A launcher that is a process of its own.
hosts a:1,b:1 "sh -c '$horse; exit \$?'"
duo=("${net[@]}" --set run.ranks=2 --set run.infer=sick --set run.train=sick)
held launcher train-hold 2
sleep 1
lost launcher "was killed by signal 9 \(Killed\)" b 5 hit KILL
nothing_left launcher

# Nothing that the run does reaches this Workhorse any more, as on a real host whose
# cable is cut: neither its signals nor the end of the launcher's input.
hosts a:1,b:1 "sh -c 'read -r token; (echo \$token; exec sleep 60) | setsid -w $horse'"
duo=("${net[@]}" --set run.ranks=2 --set run.infer=sick --set run.train=sick)
held alone train-hold 2
sleep 1
lost alone "$silent" b 8 link down
nothing_left alone
link up

echo "rl.hosts_net: ok"
