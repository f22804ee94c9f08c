#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Calls and bandwidth of the runtime of several hosts, beside the local runtime and
# iperf3: bench/hosts.sh FOLDER, with the folder of a build. The other host is a
# network namespace with a cable of veth, so it needs root, and iperf3. Each side has
# a core of its own, as two hosts have.
set -euo pipefail
build=$(realpath "$1")
if [ -z "${XRAY_NET:-}" ]; then
    exec env XRAY_NET=1 unshare --net --mount "$0" "$@"
fi
mkdir -p /run/netns
mount -t tmpfs none /run/netns
ip link set lo up
ip netns add other
ip link add cable type veth peer name eth0 netns other
ip addr add 10.77.0.1/24 dev cable
ip link set cable up
ip -n other addr add 10.77.0.2/24 dev eth0
ip -n other link set eth0 up
ip -n other link set lo up

here="taskset -c 0"
there="taskset -c 1"
raw() { # ADDRESS COMMAND ...: the rate of iperf3 to a server that the command starts
    "${@:2}" $there iperf3 --server --one-off >/dev/null &
    sleep 0.5
    $here iperf3 --client "$1" --time 5 --json | awk '/"sum_received"/ { in_sum = 1 }
        in_sum && /"bits_per_second"/ { gsub(/[^0-9.e+]/, "", $2); printf "%.2f GB/s\n", $2 / 8e9; exit }'
    wait
}
for turn in 1 2 3; do
    echo "== turn $turn: the local runtime"
    "$build/bench-actor" 20000
    echo "== loopback; iperf3: $(raw 127.0.0.1 env)"
    "$build/bench-actor" 20000 lo
    echo "== veth; iperf3: $(raw 10.77.0.2 ip netns exec other)"
    $here "$build/bench-actor" 20000 cable other "ip netns exec {host} $there $build/bench-actor --actor {address}"
    echo "== veth, over TLS"
    $here "$build/bench-actor" 20000 tls:cable other "ip netns exec {host} $there $build/bench-actor --actor {address}"
done
